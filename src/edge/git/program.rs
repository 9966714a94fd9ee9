//! How the git program is called: its environment, limits, time-outs, and its error words.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use super::error::GitError;
use crate::base::sample::Ended;
use crate::machine::host::local::blocking::{self, Conversation};
use crate::machine::host::{Cancel, Command, Host, HostError, HostErrorKind, Output};

/// Each of the two outputs of one call.
pub const OUTPUT_BYTES_MAX: usize = 256 << 20;
/// A call that touches no network: a checkout of a large tree on a slow disk.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(1800);

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
    /// A word that cannot be given to git.
    bad_word: Option<String>,
}

/// How a call ended.
pub struct GitOutput {
    pub ended: Ended,
    pub stdout: Vec<u8>,
    stderr: String,
    name: String,
}

impl Call {
    /// A call that touches no network and does not see the user's configuration.
    pub fn local(git_dir: Option<&Path>, name: &str) -> Call {
        Call::new(git_dir, name, LOCAL_TIMEOUT)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            // A partial clone would fetch, and write into a repository that is used in place.
            .env("GIT_NO_LAZY_FETCH", "1")
    }

    /// A call that may reach a server: the user's environment and configuration (proxies, credentials, ssh)
    /// count, but nothing may ask at a terminal.
    pub fn network(git_dir: Option<&Path>, name: &str, timeout: Duration) -> Call {
        let mut call = Call::new(git_dir, name, timeout);
        for (variable, value) in std::env::vars_os() {
            // Those of the host have their values already.
            if let (Ok(variable), Ok(value)) = (variable.into_string(), value.into_string())
                && (!variable.starts_with("GIT_") || NETWORK_VARIABLES.contains(&variable.as_str()))
                && !variable.starts_with("LC_")
            {
                call.command.env.insert(0, (variable, value));
            }
        }
        call.env("GIT_ASKPASS", "false")
            .env("SSH_ASKPASS", "false")
            .env("SSH_ASKPASS_REQUIRE", "force")
    }

    fn new(git_dir: Option<&Path>, name: &str, timeout: Duration) -> Call {
        let mut call = Call {
            command: Command {
                argv: vec!["git".to_owned()],
                dir: git_dir.unwrap_or(Path::new("/")).to_owned(),
                env: Vec::new(),
                stdin: Vec::new(),
                timeout,
                output_bytes_max: OUTPUT_BYTES_MAX,
            },
            name: name.to_owned(),
            bad_word: None,
        };
        for setting in CONFIG {
            call = call.args(["-c", setting]);
        }
        if let Some(git_dir) = git_dir {
            call = call.arg("--git-dir").arg(git_dir);
        }
        call.arg(name)
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_ATTR_NOSYSTEM", "1")
            // A commit's hash must mean its content.
            .env("GIT_NO_REPLACE_OBJECTS", "1")
    }

    /// Where git looks for a repository that is not named.
    pub fn in_folder(mut self, folder: &Path) -> Call {
        self.command.dir = folder.to_owned();
        self
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Call {
        let word = self.word(arg.as_ref());
        self.command.argv.push(word);
        self
    }

    pub fn args<S: AsRef<OsStr>>(self, args: impl IntoIterator<Item = S>) -> Call {
        args.into_iter().fold(self, Call::arg)
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Call {
        let value = self.word(value.as_ref());
        self.command.env.push((name.to_owned(), value));
        self
    }

    pub fn dir(mut self, dir: &Path) -> Call {
        self.command.dir = dir.to_owned();
        self
    }

    pub fn stdin(mut self, bytes: Vec<u8>) -> Call {
        self.command.stdin = bytes;
        self
    }

    fn word(&mut self, text: &OsStr) -> String {
        text.to_str().map(str::to_owned).unwrap_or_else(|| {
            let shown = text.to_string_lossy().into_owned();
            self.bad_word = Some(shown.clone());
            shown
        })
    }

    fn check(&self) -> Result<(), GitError> {
        #[cfg(test)]
        tests::STARTED.with(|started| started.set(started.get() + 1));
        match &self.bad_word {
            Some(word) => Err(GitError::Failed {
                command: self.name.clone(),
                words: format!("the path `{word}` is not UTF-8: rename it"),
            }),
            None => Ok(()),
        }
    }

    /// Starts git on this machine with pipes on standard input and output, to be talked to.
    pub fn talk(self) -> Result<Conversation, GitError> {
        self.check()?;
        Conversation::start(self.command).map_err(not_started)
    }

    /// Runs git on this machine to its end, whatever its exit status. The calling thread waits.
    pub fn output(self) -> Result<GitOutput, GitError> {
        self.check()?;
        let timeout = self.command.timeout;
        let output = blocking::run(self.command).map_err(not_started)?;
        GitOutput::of(self.name, timeout, output)
    }

    /// Runs git on this machine to its end and returns what it printed; an exit status other than 0 is an error.
    pub fn run(self) -> Result<Vec<u8>, GitError> {
        self.output()?.printed()
    }

    /// [`Call::run`] on a host.
    pub async fn run_on(self, host: &dyn Host, cancel: &Cancel) -> Result<Vec<u8>, GitError> {
        self.output_on(host, cancel).await?.printed()
    }

    /// [`Call::output`] on a host.
    pub async fn output_on(self, host: &dyn Host, cancel: &Cancel) -> Result<GitOutput, GitError> {
        self.check()?;
        let timeout = self.command.timeout;
        let output = host.run(self.command, cancel.clone()).await;
        GitOutput::of(self.name, timeout, output.map_err(not_started)?)
    }
}

fn not_started(error: HostError) -> GitError {
    match error.kind {
        HostErrorKind::NotFound if error.message.contains("program `git`") => GitError::NoGit,
        _ => GitError::Host(error),
    }
}

impl GitOutput {
    fn of(name: String, timeout: Duration, output: Output) -> Result<GitOutput, GitError> {
        match output.ended {
            Ended::TimedOut => Err(GitError::TimedOut {
                command: name,
                timeout,
            }),
            Ended::Interrupted => Err(GitError::Interrupted { command: name }),
            _ if output.truncated => Err(GitError::TooMuch {
                what: format!("bytes printed by `git {name}`"),
                max: OUTPUT_BYTES_MAX as u64,
            }),
            ended => Ok(GitOutput {
                ended,
                stdout: output.stdout,
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
                name,
            }),
        }
    }

    pub fn is_success(&self) -> bool {
        self.ended.is_success()
    }

    fn printed(self) -> Result<Vec<u8>, GitError> {
        match self.is_success() {
            true => Ok(self.stdout),
            false => Err(self.error()),
        }
    }

    /// The error that this output stands for.
    pub fn error(&self) -> GitError {
        let words = match self.words() {
            words if words.is_empty() => format!("{} and no message", self.ended),
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
    fn a_path_that_is_no_text_is_told() {
        use std::os::unix::ffi::OsStrExt;
        let call = Call::local(None, "rev-parse").arg(OsStr::from_bytes(b"/x\xff"));
        let error = call.output().err().unwrap().to_string();
        assert!(error.contains("is not UTF-8: rename it"), "{error}");
    }
}
