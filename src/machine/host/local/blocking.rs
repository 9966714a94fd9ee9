//! Programs and files that the orchestrator needs while it plans: the calling thread waits for them.
//!
//! Programs are started as every other is, so that what a killed `matrix` leaves of them is ended by the next one.

use std::fs::{File, TryLockError};
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::output::Capture;
use super::process::{BaseEnvironment, ended, spawn};
use super::record;
use super::tree::{NEVER, Owner, Tree};
use crate::base::sample::Ended;
use crate::machine::host::{Command, FileOp, FileReply, HostError, HostErrorKind, Output};

/// From TERM, at which git removes its lock files, to KILL.
const TERM_TO_KILL: Duration = Duration::from_secs(2);
/// A program's own children, such as an ssh control master, may hold its streams open for ever.
const STREAM_GRACE: Duration = Duration::from_millis(500);
/// Between two looks at whether a program is to be stopped.
const POLL: Duration = Duration::from_millis(20);
/// The first of them.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const CHUNK_BYTES: usize = 64 << 10;

/// Raised when all that runs is to be stopped.
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);
/// Programs that run.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Stops the programs that run now, and returns when they have ended.
pub fn interrupt() {
    INTERRUPTS.fetch_add(1, Ordering::SeqCst);
    let until = Instant::now() + TERM_TO_KILL + TERM_TO_KILL;
    while RUNNING.load(Ordering::SeqCst) > 0 && Instant::now() < until {
        thread::sleep(POLL);
    }
}

/// Carries out one file operation on this machine. `Which` is not among them.
pub fn file(op: FileOp) -> Result<FileReply, HostError> {
    super::files::carry_out(op)
}

/// Runs a command to its end. Err only where it could not be started. What it leaves running is not ended: with git
/// that is the user's, such as an ssh control master.
pub fn run(command: Command) -> Result<Output, HostError> {
    run_until(command, &INTERRUPTS)
}

/// [`run`], or until the number of interrupts changes.
fn run_until(mut command: Command, interrupts: &AtomicU64) -> Result<Output, HostError> {
    let began = Instant::now();
    let interrupts_before = interrupts.load(Ordering::SeqCst);
    let (timeout, bytes_max) = (command.timeout, command.output_bytes_max);
    let _running = CountedRun::begin();
    let (mut child, mut tree) = start(&command)?;
    if let Some(mut pipe) = child.stdin.take() {
        let stdin = std::mem::take(&mut command.stdin);
        // A program that ends early closes the pipe; its exit status says why.
        thread::spawn(move || pipe.write_all(&stdin));
    }
    let stdout = Stream::of(child.stdout.take(), bytes_max);
    let stderr = Stream::of(child.stderr.take(), bytes_max);
    let mut pause = PAUSE_MIN;
    let (reason, status) = loop {
        if let Ok(Some(status)) = child.try_wait() {
            break (None, Some(status));
        }
        if interrupts.load(Ordering::SeqCst) != interrupts_before {
            break (Some(Ended::Interrupted), None);
        }
        if began.elapsed() >= timeout {
            break (Some(Ended::TimedOut), None);
        }
        // Most end within a few milliseconds, and close their output when they do.
        stdout.wait(pause);
        pause = (pause * 2).min(POLL);
    };
    let status = status.or_else(|| end(&mut child, &mut tree));
    tree.main_was_reaped();
    let duration = began.elapsed();
    let ((stdout, stdout_cut), (stderr, stderr_cut)) = (stdout.take(), stderr.take());
    Ok(Output {
        ended: reason.unwrap_or_else(|| status.map_or(Ended::Signal(9), ended)),
        stdout,
        stderr,
        truncated: stdout_cut || stderr_cut,
        duration,
        leftovers: Vec::new(),
        was_paused: false,
    })
}

fn start(command: &Command) -> Result<(Child, Tree), HostError> {
    let owner = Owner::this()?;
    let step = owner.new_step();
    let environment = BaseEnvironment::of_this_process();
    let child = spawn(command, &environment, &owner, &step)?;
    let tree = Tree::new(step, child.id(), NEVER);
    record::started(child.id());
    Ok((child, tree))
}

/// Ends a program with all its processes: TERM, then KILL.
fn end(child: &mut Child, tree: &mut Tree) -> Option<ExitStatus> {
    // Fails where the group has ended.
    let _ = kill_process_group(Pid::from_child(child), Signal::TERM);
    let until = Instant::now() + TERM_TO_KILL;
    while Instant::now() < until {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(2));
    }
    tree.kill_now();
    child.try_wait().ok().flatten()
}

struct CountedRun;

impl CountedRun {
    fn begin() -> CountedRun {
        RUNNING.fetch_add(1, Ordering::SeqCst);
        CountedRun
    }
}

impl Drop for CountedRun {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An output, read by a thread of its own.
struct Stream {
    capture: Arc<Mutex<Capture>>,
    /// Closed at the stream's end.
    end: mpsc::Receiver<()>,
}

impl Stream {
    fn of(pipe: Option<impl Read + Send + 'static>, bytes_max: usize) -> Stream {
        let capture = Arc::new(Mutex::new(Capture::new(bytes_max)));
        let kept = Arc::clone(&capture);
        let (sender, end) = mpsc::channel();
        thread::spawn(move || {
            let mut chunk = vec![0; CHUNK_BYTES];
            let Some(mut pipe) = pipe else { return };
            while let Ok(bytes @ 1..) = pipe.read(&mut chunk) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push(&chunk[..bytes]);
            }
            drop(sender);
        });
        Stream { capture, end }
    }

    /// Returns at the stream's end, or after this time; a moment later where it has ended before.
    fn wait(&self, time: Duration) {
        if self.end.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Disconnected) {
            thread::sleep(PAUSE_MIN);
        }
    }

    /// What was read, and whether some of it is missing.
    fn take(self) -> (Vec<u8>, bool) {
        // Disconnected at the stream's end; later than that nothing is waited for.
        let _ = self.end.recv_timeout(STREAM_GRACE);
        let mut capture = self.capture.lock().unwrap_or_else(PoisonError::into_inner);
        capture.take()
    }
}

/// A program that is asked by its standard input and answers by its standard output. Dropped, it is ended.
pub struct Conversation {
    child: Child,
    tree: Tree,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Conversation {
    /// The command's time limit means nothing; its standard error is read by nobody, so it must print little.
    pub fn start(mut command: Command) -> Result<Conversation, HostError> {
        // Any byte: the pipe is made for a command that has something to read.
        command.stdin = vec![0];
        let (mut child, mut tree) = start(&command)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(stdin), Some(stdout)) => Ok(Conversation {
                child,
                tree,
                stdin,
                stdout: BufReader::new(stdout),
            }),
            _ => {
                tree.kill_now();
                let message = format!("`{}` was started without pipes", command.argv[0]);
                Err(HostError::new(HostErrorKind::Other, message))
            }
        }
    }

    /// Sends a line and returns where the answer is read.
    pub fn ask(&mut self, line: &str) -> io::Result<&mut BufReader<ChildStdout>> {
        self.stdin.write_all(format!("{line}\n").as_bytes())?;
        Ok(&mut self.stdout)
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
        self.tree.main_was_reaped();
    }
}

/// A lock that keeps two processes out of one folder of ours. Held until dropped, or until the process ends in any
/// way.
pub struct FileLock(#[allow(dead_code)] File);

impl FileLock {
    /// Waits at most `wait` for whoever has it; then None.
    pub fn take(path: &Path, wait: Duration) -> Result<Option<FileLock>, HostError> {
        let failed =
            |error: io::Error| HostError::io(format!("cannot lock `{}`", path.display()), &error);
        let mut options = File::options();
        options.create(true).truncate(false).write(true);
        let file = options.open(path).map_err(failed)?;
        let deadline = Instant::now() + wait;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(FileLock(file))),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return Ok(None),
                Err(TryLockError::WouldBlock) => thread::sleep(POLL),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;

    use super::*;

    fn command(script: &str) -> Command {
        Command {
            argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
            dir: "/".into(),
            env: Vec::new(),
            stdin: Vec::new(),
            timeout: Duration::from_secs(60),
            output_bytes_max: 1 << 20,
        }
    }

    fn is_alive(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z"))
    }

    #[test]
    fn streams_and_the_exit_status_arrive() {
        let mut asked = command("cat; echo bad >&2; exit 3");
        asked.stdin = vec![b'x'; 1 << 19];
        let output = run(asked).unwrap();
        assert_eq!(output.ended, Ended::Exit(3));
        assert_eq!(
            (output.stdout.len(), output.stderr.as_slice()),
            (1 << 19, b"bad\n".as_slice())
        );
        let output = run(command("kill -9 $$")).unwrap();
        assert_eq!(output.ended, Ended::Signal(9));
    }

    /// Also what ignores TERM, and its children.
    #[test]
    fn what_hangs_is_ended_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let check = |time: Duration, interrupted: bool, expected: Ended| {
            let script = format!(
                "trap '' TERM; sleep 60 & echo $$ $! > {}; wait; sleep 60",
                pids.display()
            );
            let mut asked = command(&script);
            asked.timeout = time;
            let began = Instant::now();
            let interrupts = Arc::new(AtomicU64::new(0));
            let of_waiter = Arc::clone(&interrupts);
            let waiter = thread::spawn(move || run_until(asked, &of_waiter));
            if interrupted {
                while !std::fs::read(&pids).is_ok_and(|text| text.ends_with(b"\n")) {
                    thread::sleep(POLL);
                }
                interrupts.fetch_add(1, Ordering::SeqCst);
            }
            assert_eq!(waiter.join().unwrap().unwrap().ended, expected);
            assert!(began.elapsed() < Duration::from_secs(30));
            let text = std::fs::read_to_string(&pids).unwrap();
            assert_eq!(
                text.split_whitespace().filter(|pid| is_alive(pid)).count(),
                0
            );
            std::fs::remove_file(&pids).unwrap();
        };
        check(Duration::from_millis(300), false, Ended::TimedOut);
        check(Duration::from_secs(60), true, Ended::Interrupted);
    }

    #[test]
    fn a_conversation() {
        let mut cat = Conversation::start(command("exec cat")).unwrap();
        for word in ["one", "two"] {
            let mut line = String::new();
            cat.ask(word).unwrap().read_line(&mut line).unwrap();
            assert_eq!(line, format!("{word}\n"));
        }
    }

    #[test]
    fn a_lock_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = FileLock::take(&path, Duration::ZERO).unwrap();
        assert!(held.is_some());
        assert!(FileLock::take(&path, POLL).unwrap().is_none());
        drop(held);
        assert!(FileLock::take(&path, POLL).unwrap().is_some());
    }
}
