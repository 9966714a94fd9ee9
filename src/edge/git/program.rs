//! How the git program is called: its environment, limits, time-outs, and its error words.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::error::GitError;

/// Standard output of one call.
pub const OUTPUT_BYTES_MAX: usize = 256 << 20;
/// Standard error of one call; what is beyond is read and dropped.
const STDERR_BYTES_MAX: usize = 64 << 10;
/// A call that touches no network: a checkout of a large tree on a slow disk.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(1800);
/// From TERM, at which git removes its lock files, to KILL.
const TERM_TO_KILL: Duration = Duration::from_secs(2);
/// An ssh control master may hold standard error open for ever.
const STDERR_GRACE: Duration = Duration::from_millis(500);

/// Configuration that wins over a repository's own.
const CONFIG: &[&str] = &[
    // A repository may belong to somebody else: we only read it.
    "safe.directory=*",
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    "core.fsmonitor=false",
    "core.quotePath=false",
    "core.autocrlf=false",
    "gc.auto=0",
    "maintenance.auto=false",
];

/// Variables of git's environment that say how to reach a server; all others named `GIT_*` could
/// point git at another repository and are dropped.
const NETWORK_VARIABLES: &[&str] = &[
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSH_VARIANT",
    "GIT_PROXY_COMMAND",
    "GIT_PROXY_SSL_CAINFO",
    "GIT_SSL_CAINFO",
    "GIT_SSL_CAPATH",
    "GIT_SSL_NO_VERIFY",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
];

/// A call of git that is being put together.
pub struct Call {
    command: Command,
    /// The git command's name, for errors.
    name: String,
    stdin: Vec<u8>,
    timeout: Duration,
}

/// How a call ended.
pub struct GitOutput {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    stderr: String,
    name: String,
}

impl Call {
    /// A call that touches no network and does not see the user's configuration.
    pub fn local(git_dir: Option<&Path>, name: &str) -> Call {
        let mut call = Call::new(git_dir, name, LOCAL_TIMEOUT);
        call.command
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            // A partial clone would fetch, and write into a repository that is used in place.
            .env("GIT_NO_LAZY_FETCH", "1");
        call
    }

    /// A call that may reach a server: the user's configuration (proxies, credentials, ssh)
    /// counts, but nothing may ask at a terminal.
    pub fn network(git_dir: Option<&Path>, name: &str, timeout: Duration) -> Call {
        let mut call = Call::new(git_dir, name, timeout);
        for variable in NETWORK_VARIABLES {
            if let Some(value) = std::env::var_os(variable) {
                call.command.env(variable, value);
            }
        }
        call.command
            .env("GIT_ASKPASS", "false")
            .env("SSH_ASKPASS", "false")
            .env("SSH_ASKPASS_REQUIRE", "force");
        call
    }

    fn new(git_dir: Option<&Path>, name: &str, timeout: Duration) -> Call {
        let mut command = Command::new("git");
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("GIT_") {
                command.env_remove(variable);
            }
        }
        command
            .env("LC_ALL", "C.UTF-8")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_ATTR_NOSYSTEM", "1")
            // A commit's hash must mean its content.
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            // Its own group, so that a helper such as ssh is ended with it.
            .process_group(0);
        for setting in CONFIG {
            command.args(["-c", setting]);
        }
        if let Some(git_dir) = git_dir {
            command.arg("--git-dir").arg(git_dir).current_dir(git_dir);
        }
        command.arg(name);
        Call {
            command,
            name: name.to_owned(),
            stdin: Vec::new(),
            timeout,
        }
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Call {
        self.command.arg(arg);
        self
    }

    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Call {
        self.command.args(args);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Call {
        self.command.env(name, value);
        self
    }

    pub fn dir(mut self, dir: &Path) -> Call {
        self.command.current_dir(dir);
        self
    }

    pub fn stdin(mut self, bytes: Vec<u8>) -> Call {
        self.stdin = bytes;
        self
    }

    /// Starts git with pipes on standard input and output, to be talked to.
    pub fn spawn(mut self) -> Result<Child, GitError> {
        self.command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        start(&mut self.command)
    }

    /// Runs git to its end, whatever its exit status.
    pub fn output(mut self) -> Result<GitOutput, GitError> {
        let deadline = Instant::now() + self.timeout;
        self.command
            .stdin(if self.stdin.is_empty() {
                Stdio::null()
            } else {
                Stdio::piped()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = start(&mut self.command)?;
        if let Some(mut stdin) = child.stdin.take() {
            let bytes = std::mem::take(&mut self.stdin);
            // A git that ends early closes the pipe; its exit status says why.
            thread::spawn(move || stdin.write_all(&bytes));
        }
        let stdout = read_whole(child.stdout.take());
        let (stderr, stderr_closed) = read_head(child.stderr.take());

        let received = stdout.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        let too_long = matches!(&received, Ok(None));
        let mut status = None;
        while received.is_ok() && status.is_none() && Instant::now() < deadline {
            status = child.try_wait().map_err(|e| self.io_error(&e))?;
            if status.is_none() {
                thread::sleep(Duration::from_millis(1));
            }
        }
        let Some(status) = status else {
            end_group(&mut child);
            return Err(GitError::TimedOut {
                command: self.name,
                timeout: self.timeout,
            });
        };
        if too_long {
            return Err(GitError::TooMuch {
                what: format!("bytes printed by `git {}`", self.name),
                max: OUTPUT_BYTES_MAX as u64,
            });
        }
        // Disconnected when the reader has seen the end.
        let _ = stderr_closed.recv_timeout(STDERR_GRACE);
        let stderr = stderr.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(GitOutput {
            status,
            stdout: received.ok().flatten().unwrap_or_default(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
            name: self.name,
        })
    }

    /// Runs git to its end and returns what it printed; an exit status other than 0 is an error.
    pub fn run(self) -> Result<Vec<u8>, GitError> {
        let output = self.output()?;
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(output.error())
        }
    }

    fn io_error(&self, error: &std::io::Error) -> GitError {
        GitError::Failed {
            command: self.name.clone(),
            words: error.to_string(),
        }
    }
}

impl GitOutput {
    /// The error that this output stands for.
    pub fn error(&self) -> GitError {
        let words = match self.words() {
            words if words.is_empty() => format!("{} and no message", self.status),
            words => words,
        };
        let is_of_disk = ["No space left", "quota exceeded", "Read-only file system"]
            .iter()
            .any(|sign| self.stderr.contains(sign));
        if is_of_disk {
            return GitError::Io {
                path: format!("`git {}`", self.name),
                words,
            };
        }
        GitError::Failed {
            command: self.name.clone(),
            words,
        }
    }

    /// Git's own words of what went wrong in one line; empty where it said nothing.
    pub fn words(&self) -> String {
        words_of(&self.stderr)
    }

    /// Standard error as it came.
    pub fn stderr(&self) -> &str {
        &self.stderr
    }
}

/// The lines that begin with `fatal:` or `error:`, without that; all lines where there are none.
fn words_of(stderr: &str) -> String {
    const WORDS_CHARS_MAX: usize = 400;
    let marked: Vec<&str> = stderr
        .lines()
        .filter_map(|line| {
            line.strip_prefix("fatal: ")
                .or_else(|| line.strip_prefix("error: "))
        })
        .collect();
    let lines = if marked.is_empty() {
        stderr
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty())
            .collect()
    } else {
        marked
    };
    lines.join("; ").chars().take(WORDS_CHARS_MAX).collect()
}

fn start(command: &mut Command) -> Result<Child, GitError> {
    #[cfg(test)]
    tests::STARTED.with(|started| started.set(started.get() + 1));
    command.spawn().map_err(|error| match error.kind() {
        // A working folder that is gone gives the same error.
        std::io::ErrorKind::NotFound if !git_is_there() => GitError::NoGit,
        _ => GitError::Failed {
            command: "git".to_owned(),
            words: match command.get_current_dir() {
                Some(dir) => format!("cannot start in {}: {error}", dir.display()),
                None => error.to_string(),
            },
        },
    })
}

fn git_is_there() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir: PathBuf| dir.join("git").is_file())
}

/// Sends all that is read, or None where it is too long.
fn read_whole(stream: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Option<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(stream) = stream {
            // What was read before an error counts; the exit status tells the rest.
            let _ = stream
                .take(OUTPUT_BYTES_MAX as u64 + 1)
                .read_to_end(&mut bytes);
        }
        let _ = sender.send((bytes.len() <= OUTPUT_BYTES_MAX).then_some(bytes));
    });
    receiver
}

/// The head of a stream as it grows, and a channel that is closed at its end.
fn read_head(
    stream: Option<impl Read + Send + 'static>,
) -> (Arc<Mutex<Vec<u8>>>, mpsc::Receiver<()>) {
    let head = Arc::new(Mutex::new(Vec::new()));
    let (sender, receiver) = mpsc::channel();
    let kept = Arc::clone(&head);
    thread::spawn(move || {
        let mut buffer = [0u8; 4096];
        let Some(mut stream) = stream else { return };
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let room = STDERR_BYTES_MAX - kept.len();
            kept.extend_from_slice(&buffer[..n.min(room)]);
        }
        drop(sender);
    });
    (head, receiver)
}

/// Ends a process and its group: TERM, then KILL.
pub fn end_group(child: &mut Child) {
    let group = Pid::from_child(child);
    let _ = kill_process_group(group, Signal::TERM);
    let until = Instant::now() + TERM_TO_KILL;
    while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(Duration::from_millis(5));
    }
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Processes of git started by this thread.
        pub static STARTED: Cell<u32> = const { Cell::new(0) };
    }

    #[test]
    fn words_are_one_line_without_marks() {
        let check = |stderr: &str, expected: &str| assert_eq!(words_of(stderr), expected);
        check("fatal: bad object\n", "bad object");
        check("hint: x\nerror: a\nfatal: b\n", "a; b");
        check("ssh: no route\n\n", "ssh: no route");
        check("", "");
        assert_eq!(words_of(&"x".repeat(5000)).len(), 400);
    }

    #[test]
    fn a_call_that_hangs_is_ended_with_its_children() {
        let started = Instant::now();
        let dir = tempfile::tempdir().unwrap();
        let mut call = Call::network(None, "unused", Duration::from_millis(200));
        let pid_file = dir.path().join("pid");
        call.command = Command::new("sh");
        call.command.process_group(0).args([
            "-c",
            &format!("sleep 60 & echo $! > {}; wait", pid_file.display()),
        ]);
        assert!(matches!(call.output(), Err(GitError::TimedOut { .. })));
        assert!(started.elapsed() < Duration::from_secs(10));
        let pid = std::fs::read_to_string(pid_file).unwrap();
        let stat = format!("/proc/{}/stat", pid.trim());
        // Gone, or dead and not yet reaped by init; a signal takes a moment.
        let is_gone = || std::fs::read_to_string(&stat).map_or(true, |s| s.contains(") Z"));
        let until = Instant::now() + Duration::from_secs(5);
        while !is_gone() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        assert!(is_gone());
    }
}
