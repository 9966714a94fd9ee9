//! One command: its start, its streams, its time limit and its end.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

use super::output::Capture;
use super::pauses;
use super::record;
use super::sockets;
use super::tree::{Leftover, OWNER_VARIABLE, Owner, STEP_VARIABLE, Tree};
use crate::base::sample::Ended;
use crate::machine::host::{Command, HostError, HostErrorKind, Output};

/// How long the streams may stay open after the command has ended: what it started may still
/// write its last line, but must not hold us up.
const DRAIN_GRACE: Duration = Duration::from_millis(200);
/// Each command has two of these buffers: most print little.
const CHUNK_BYTES: usize = 16 << 10;
/// Used when `matrix` itself was started without a PATH.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";
/// Where tools of the administrator are; cron's PATH lacks them.
const PATH_ADDED: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// What the host gives to each command.
#[derive(Clone, Debug)]
pub struct BaseEnvironment {
    variables: Vec<(&'static str, OsString)>,
    path: OsString,
}

impl BaseEnvironment {
    pub fn of_this_process() -> BaseEnvironment {
        let mut variables = vec![("LC_ALL", OsString::from("C.UTF-8"))];
        for name in ["HOME", "USER", "LOGNAME", "TMPDIR"] {
            if let Some(value) = std::env::var_os(name) {
                variables.push((name, value));
            }
        }
        let mut path = std::env::var_os("PATH")
            .filter(|path| !path.is_empty())
            .unwrap_or_else(|| PATH_DEFAULT.into());
        let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        for folder in PATH_ADDED {
            if !folders.iter().any(|it| it == Path::new(folder)) {
                path.push(":");
                path.push(folder);
            }
        }
        BaseEnvironment { variables, path }
    }

    /// The absolute path of a program. `path` replaces the host's PATH; `dir` is what a program
    /// named by a relative path with a slash is relative to.
    pub fn find(
        &self,
        program: &str,
        path: Option<&str>,
        dir: &Path,
    ) -> Result<PathBuf, HostError> {
        let absolute = |path: &Path| {
            let path = dir.join(path);
            std::path::absolute(&path).map_err(|error| {
                HostError::io(format!("cannot resolve `{}`", path.display()), &error)
            })
        };
        if program.contains('/') {
            return absolute(Path::new(program));
        }
        let path = path.map_or_else(|| self.path.clone(), OsString::from);
        let is_program = |file: &PathBuf| {
            file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
        };
        let found = std::env::split_paths(&path)
            .map(|folder| folder.join(program))
            .find(is_program);
        match found {
            Some(file) if !program.is_empty() => absolute(&file),
            _ => Err(HostError::new(
                HostErrorKind::NotFound,
                format!(
                    "program `{program}` is not in PATH ({}): install it, or give its whole path",
                    path.display()
                ),
            )),
        }
    }
}

/// A command that was started and has not been finished yet. Dropping it kills all its processes.
pub struct Running {
    child: Child,
    words: Vec<String>,
    /// The main process's pidfd, readable when it has ended. Not a pipe and never read from: only
    /// its readiness is asked for, which tokio's `AsyncFd` offers to unsafe code alone.
    exit: pipe::Receiver,
    status: Option<(ExitStatus, Duration)>,
    tree: Tree,
    started: Instant,
    stdin: Option<JoinHandle<()>>,
    stdout: OutputStream,
    stderr: OutputStream,
    is_finished: bool,
    pauses_before: u64,
}

impl Running {
    /// `began` is [`super::tree::now_ticks`], or [`super::tree::NEVER`] of a command that is taken to leave nothing.
    pub fn start(
        command: Command,
        environment: &BaseEnvironment,
        owner: &Owner,
        began: u64,
    ) -> Result<Running, HostError> {
        let step = owner.new_step();
        let pauses_before = pauses::count();
        let started = Instant::now();
        let mut child = spawn(&command, environment, owner, &step)?;
        let tree = Tree::new(step, child.id(), began);
        record::started(child.id());
        let watch = |child: &mut Child| -> io::Result<_> {
            let pidfd = pidfd_open(
                Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::InvalidData)?,
                PidfdFlags::empty(),
            )?;
            let exit = pipe::Receiver::from_owned_fd_unchecked(pidfd)?;
            let stdout = OutputStream::new(child.stdout.take(), command.output_bytes_max)?;
            let stderr = OutputStream::new(child.stderr.take(), command.output_bytes_max)?;
            let stdin = child
                .stdin
                .take()
                .map(|pipe| feed(pipe, command.stdin))
                .transpose()?;
            Ok((exit, stdin, stdout, stderr))
        };
        match watch(&mut child) {
            Ok((exit, stdin, stdout, stderr)) => Ok(Running {
                child,
                words: command.argv,
                exit,
                status: None,
                tree,
                started,
                stdin,
                stdout,
                stderr,
                is_finished: false,
                pauses_before,
            }),
            Err(error) => {
                kill(&mut child, tree);
                Err(HostError::io(
                    format!(
                        "cannot watch `{}` (needs Linux 5.3, and enough open files)",
                        command.argv[0]
                    ),
                    &error,
                ))
            }
        }
    }

    /// Returns when the main process has ended. What it printed may still be on its way.
    pub async fn exited(&mut self) {
        while !self.has_exited() {
            if self.exit.readable().await.is_err() {
                // The runtime is going down: so is the command, when this is dropped.
                std::future::pending().await
            }
        }
    }

    /// Whether the main process has ended.
    pub fn has_exited(&mut self) -> bool {
        if self.status.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.status = Some((status, self.started.elapsed()));
            self.tree.main_was_reaped();
        }
        self.status.is_some()
    }

    /// Who was there before this service and listens where its words, or these, say.
    pub fn answered_by_another(&mut self, mut words: Vec<String>) -> Option<String> {
        words.extend(self.words.iter().cloned());
        let (began, main, ours) = self.tree.members();
        sockets::answered_by_another(&words, main, began, &ours)
    }

    /// Ends what there is left of it and returns what it printed. `reason` says why it is ended if
    /// not by itself, `grace` the time between TERM and KILL.
    pub async fn finish(mut self, reason: Option<Ended>, grace: Duration) -> Output {
        if self.has_exited() {
            self.drain().await;
        }
        let by_itself = self.has_exited() && reason.is_none();
        let mut leftovers = self.tree.end(grace).await;
        leftovers.retain(|left| by_itself || left.survived);
        self.has_exited();
        self.drain().await;
        self.is_finished = true;
        let (stdout, stdout_truncated) = self.stdout.take();
        let (stderr, stderr_truncated) = self.stderr.take();
        let (ended, duration) = match self.status {
            Some((status, duration)) => (ended(status), duration),
            // Not even KILL ended it: it hangs in the kernel.
            None => (Ended::Signal(9), self.started.elapsed()),
        };
        Output {
            ended: reason.unwrap_or(ended),
            stdout,
            stderr,
            truncated: stdout_truncated || stderr_truncated,
            duration,
            leftovers: leftovers.iter().map(Leftover::to_string).collect(),
            was_paused: pauses::count() != self.pauses_before,
        }
    }

    /// Waits for the end of both streams, but not longer than the grace time.
    async fn drain(&mut self) {
        let both = async {
            self.stdout.ended().await;
            self.stderr.ended().await;
        };
        // Too late is told by what is found to be left over.
        let _ = tokio::time::timeout(DRAIN_GRACE, both).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(stdin) = &self.stdin {
            stdin.abort();
        }
        if !self.is_finished {
            self.tree.kill_now();
            self.has_exited();
        }
    }
}

fn kill(child: &mut Child, mut tree: Tree) {
    tree.kill_now();
    // Fails only if it was waited for already.
    let _ = child.try_wait();
}

pub(super) fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::from_status(code),
        (None, signal) => Ended::Signal(signal.unwrap_or(0)),
    }
}

/// No `pre_exec`, an absolute program: std then takes posix_spawn, which does not copy our page
/// tables.
pub(super) fn spawn(
    command: &Command,
    environment: &BaseEnvironment,
    owner: &Owner,
    step: &str,
) -> Result<Child, HostError> {
    let Some(name) = command.argv.first() else {
        return Err(HostError::new(
            HostErrorKind::Other,
            "cannot run a command without words",
        ));
    };
    // The last one of a name counts, as for std.
    let path = command
        .env
        .iter()
        .rev()
        .find(|(name, _)| name == "PATH")
        .map(|(_, path)| path.as_str());
    let program = environment.find(name, path, &command.dir)?;
    let stdin = if command.stdin.is_empty() {
        Stdio::null()
    } else {
        Stdio::piped()
    };
    std::process::Command::new(&program)
        .arg0(name)
        .args(&command.argv[1..])
        .current_dir(&command.dir)
        .env_clear()
        .env("PATH", &environment.path)
        .envs(
            environment
                .variables
                .iter()
                .map(|(name, value)| (name, value)),
        )
        .envs(command.env.iter().map(|(name, value)| (name, value)))
        .env(STEP_VARIABLE, step)
        .env(OWNER_VARIABLE, owner.to_string())
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| why_not_started(&program, &command.dir, &error))
}

/// The kernel says the same of a missing program, folder and interpreter.
fn why_not_started(program: &Path, dir: &Path, error: &io::Error) -> HostError {
    let (program_text, dir_text) = (program.display(), dir.display());
    let new = HostError::new;
    if !dir.is_dir() {
        return new(
            HostErrorKind::NotFound,
            format!(
                "cannot run `{program_text}` in `{dir_text}`: there is no such folder; create it first"
            ),
        );
    }
    match error.kind() {
        io::ErrorKind::NotFound if !program.exists() => new(
            HostErrorKind::NotFound,
            format!(
                "there is no program `{program_text}`: install or build it, or correct the path"
            ),
        ),
        io::ErrorKind::NotFound => new(
            HostErrorKind::NotFound,
            format!(
                "cannot run `{program_text}`: its interpreter is missing; see `head -1` of a script, `ldd` of a program"
            ),
        ),
        io::ErrorKind::PermissionDenied => new(
            HostErrorKind::PermissionDenied,
            format!(
                "may not run `{program_text}` in `{dir_text}`: `chmod +x` it, and check the folders' permissions"
            ),
        ),
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => new(
            HostErrorKind::Other,
            format!(
                "cannot run `{program_text}`: not a program of this machine's kind; a script needs `#!` and its interpreter as first line"
            ),
        ),
        _ => HostError::io(
            format!("cannot run `{program_text}` in `{dir_text}`"),
            error,
        ),
    }
}

/// One of the two outputs, read by a task of its own until its end.
struct OutputStream {
    capture: Arc<Mutex<Capture>>,
    task: JoinHandle<()>,
}

impl OutputStream {
    fn new(pipe: Option<impl Into<OwnedFd>>, bytes_max: usize) -> io::Result<OutputStream> {
        let pipe = pipe.ok_or(io::ErrorKind::BrokenPipe)?;
        let mut pipe = pipe::Receiver::from_owned_fd(pipe.into())?;
        let capture = Arc::new(Mutex::new(Capture::new(bytes_max)));
        let kept = capture.clone();
        let task = tokio::spawn(async move {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            // A pipe does not fail; if it should, there is nothing more to read.
            while let Ok(bytes) = pipe.read_buf(&mut chunk).await
                && bytes > 0
            {
                kept.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(&chunk);
                chunk.clear();
            }
        });
        Ok(OutputStream { capture, task })
    }

    async fn ended(&mut self) {
        if !self.task.is_finished() {
            // Fails if the task was aborted: then it has ended.
            let _ = (&mut self.task).await;
        }
    }

    fn take(&mut self) -> (Vec<u8>, bool) {
        self.capture
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl Drop for OutputStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Writes a command's standard input while its outputs are read: either pipe may fill up first.
fn feed(pipe: impl Into<OwnedFd>, bytes: Vec<u8>) -> io::Result<JoinHandle<()>> {
    let mut pipe = pipe::Sender::from_owned_fd(pipe.into())?;
    Ok(tokio::spawn(async move {
        // A command need not read it all.
        let _ = pipe.write_all(&bytes).await;
    }))
}
