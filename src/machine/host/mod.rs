//! The host trait: every file, process and lock of a machine goes through it.

pub mod fake;
pub mod local;
pub mod measurement;
pub mod serial;
pub mod undo;

use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use self::measurement::{Measurement, MeasurementResult};
use self::undo::{UndoOp, UndoReply};
use crate::base::sample::Ended;
use crate::base::units::show_time;

/// A future of a host's call. The program runs on one thread: no `Send`.
pub type Wait<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A machine on which steps run. Remote ones fit because nothing here hands out a file
/// descriptor or a process id: a file is read whole, a service is a number that the host keeps.
pub trait Host {
    /// The machine's name in the matrix.
    fn name(&self) -> &str;

    /// What the machine says of itself.
    fn facts(&self) -> Wait<'_, Result<HostFacts, HostError>>;

    /// Carries out file operations in order, in one round trip. Each has its own result; a failed
    /// one does not stop the next.
    fn files(&self, ops: Vec<FileOp>) -> Wait<'_, Vec<Result<FileReply, HostError>>>;

    /// Runs a command to its end, and ends whatever it left behind.
    /// Err only where it could not be started; how it ended is in the output.
    fn run(&self, command: Command, cancel: Cancel) -> Wait<'_, Result<Output, HostError>>;

    /// Starts a command that stays (a service). Its `timeout` means nothing.
    fn start(&self, command: Command) -> Wait<'_, Result<ServiceId, HostError>>;

    /// Runs a command that asks whether a service can answer. What the service starts meanwhile is not taken for
    /// the command's, and whether somebody else has answered is looked at where that can be told.
    fn probe(
        &self,
        service: ServiceId,
        command: Command,
        cancel: Cancel,
    ) -> Wait<'_, Result<Probed, HostError>> {
        let _ = service;
        Box::pin(async move {
            let output = self.run(command, cancel).await?;
            Ok(Probed {
                output,
                answered_by: None,
            })
        })
    }

    /// Carries out a whole measurement, where the machine's agent does that by itself. None: it is done by the other
    /// methods, as in [`crate::machine::measure::carry_out`].
    fn measure<'a>(
        &'a self,
        _measurement: &Measurement,
        _cancel: &Cancel,
    ) -> Option<Wait<'a, Result<MeasurementResult, HostError>>> {
        None
    }

    /// The service's output when it has ended by itself; None while it runs, or when the host
    /// has no such service.
    fn ended(&self, service: ServiceId) -> Wait<'_, Option<Output>>;

    /// Ends a service and all its processes: TERM, then KILL. Returns what it had printed.
    fn stop(&self, service: ServiceId) -> Wait<'_, Result<Output, HostError>>;

    /// Takes the machine's exclusive lock, across processes and users. `on_wait` is told
    /// who holds it while it has to wait, once for each holder.
    fn lock<'a>(
        &'a self,
        holder: Holder,
        on_wait: &'a dyn Fn(&str),
        cancel: Cancel,
    ) -> Wait<'a, Result<Lock, HostError>>;

    /// Ends the processes that a `matrix` which is no longer alive left on the machine. Returns a
    /// line about each. The caller holds the lock.
    fn clean(&self) -> Wait<'_, Result<Vec<String>, HostError>>;

    /// Reads or writes the machine's journal of set-ups. The caller holds the lock.
    fn undo(&self, op: UndoOp) -> Wait<'_, Result<UndoReply, HostError>>;
}

/// Carries out one file operation.
pub async fn file(host: &dyn Host, op: FileOp) -> Result<FileReply, HostError> {
    let reply = host.files(vec![op]).await.pop();
    reply.unwrap_or_else(|| {
        let message = format!("`{}` gave no answer about a file", host.name());
        Err(HostError::new(HostErrorKind::Other, message))
    })
}

/// The machine's lock. Dropping it gives it back, a moment later where the host is elsewhere.
pub struct Lock(pub Box<dyn HeldLock>);

impl Lock {
    /// Gives it back; when this returns, somebody else can have it.
    pub async fn release(self) {
        self.0.release().await;
    }
}

/// What holds a lock: dropped, it gives it back.
pub trait HeldLock {
    /// Gives it back and waits until that is done.
    fn release(self: Box<Self>) -> Wait<'static, ()>;
}

/// Whether nobody has the machine's lock.
pub async fn lock_is_free(host: &dyn Host, purpose: &str) -> bool {
    let (stop, cancel) = watch::channel(false);
    let taken = |_: &str| {
        // Fails only when nobody waits any more.
        let _ = stop.send(true);
    };
    let lock = host.lock(Holder::this(purpose), &taken, Cancel::new(cancel));
    match lock.await {
        Ok(lock) => {
            lock.release().await;
            true
        }
        Err(_) => false,
    }
}

/// A lock that nobody else wants.
impl HeldLock for () {
    fn release(self: Box<Self>) -> Wait<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Who holds a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    /// On which the process runs.
    #[serde(default)]
    pub host: String,
    pub user: String,
    /// What it is doing: the matrix's name.
    pub purpose: String,
    /// RFC 3339, UTC.
    pub since: String,
}

impl Holder {
    /// This process.
    pub fn this(purpose: &str) -> Holder {
        // Neither is set where cron or a service manager has started it.
        let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
        let uid = rustix::process::geteuid().as_raw();
        Holder {
            pid: std::process::id(),
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            user: user.unwrap_or_else(|_| match uid {
                0 => "root".to_owned(),
                uid => format!("uid {uid}"),
            }),
            purpose: purpose.to_owned(),
            since: show_time(&jiff::Timestamp::now().to_string()),
        }
    }
}

/// One operation on a host's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileOp {
    /// At most `bytes_max` bytes; more is an error.
    Read {
        #[serde(with = "serial::path")]
        path: PathBuf,
        bytes_max: usize,
    },
    /// Written in place with one `write`, as sysfs and procfs want it; the file must exist. Of a
    /// regular file nothing of the old content stays.
    Write {
        #[serde(with = "serial::path")]
        path: PathBuf,
        #[serde(with = "serial::bytes")]
        bytes: Vec<u8>,
    },
    /// A new file beside it, synced, then renamed over it, and the folder synced: after a power
    /// loss either the old or the new content is there. An old file's permissions are kept.
    Replace {
        #[serde(with = "serial::path")]
        path: PathBuf,
        #[serde(with = "serial::bytes")]
        bytes: Vec<u8>,
    },
    /// At the end of a file, which must exist. Nothing is synced: after a power loss it may be missing,
    /// or a part of it.
    Append {
        #[serde(with = "serial::path")]
        path: PathBuf,
        #[serde(with = "serial::bytes")]
        bytes: Vec<u8>,
    },
    /// Names in a folder, sorted.
    List {
        #[serde(with = "serial::path")]
        path: PathBuf,
    },
    /// A folder with its parents; fine when it is there.
    MakeDir {
        #[serde(with = "serial::path")]
        path: PathBuf,
    },
    /// A file, a link or a whole folder, without following links or crossing into another file
    /// system; fine when it is not there.
    Remove {
        #[serde(with = "serial::path")]
        path: PathBuf,
    },
    /// A symbolic link at `path` that points to `target`, replacing one that is there.
    Link {
        #[serde(with = "serial::path")]
        path: PathBuf,
        #[serde(with = "serial::path")]
        target: PathBuf,
    },
    /// The absolute path of a program on the host's PATH (`sbin` folders included).
    Which { program: String },
    /// BLAKE3 of a file's content, as a [`crate::base::key::Key`].
    Digest {
        #[serde(with = "serial::path")]
        path: PathBuf,
    },
    /// At most `bytes_max` bytes from `offset` on; fewer only at the end of the file.
    ReadAt {
        #[serde(with = "serial::path")]
        path: PathBuf,
        offset: u64,
        bytes_max: usize,
    },
    /// What is at a path; links are followed.
    Facts {
        #[serde(with = "serial::path")]
        path: PathBuf,
    },
    /// The absolute path without links.
    Resolve {
        #[serde(with = "serial::path")]
        path: PathBuf,
    },
    /// Replaces what is at `to`; the folder is synced.
    Rename {
        #[serde(with = "serial::path")]
        from: PathBuf,
        #[serde(with = "serial::path")]
        to: PathBuf,
    },
    /// Copies files (paths below `from`) into the folder `into/DIGEST`, each under its own name. They are synced
    /// and renamed into place: a crash leaves all of them or none.
    KeepArtifact {
        #[serde(with = "serial::path")]
        from: PathBuf,
        files: Vec<String>,
        /// Regular expressions: what matches is no content.
        volatile: Vec<String>,
        #[serde(with = "serial::path")]
        into: PathBuf,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileReply {
    Done,
    Bytes(#[serde(with = "serial::bytes")] Vec<u8>),
    Names(Vec<String>),
    Path(#[serde(with = "serial::path")] PathBuf),
    Digest(crate::base::key::Key),
    Facts(FileFacts),
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    pub is_file: bool,
    pub is_folder: bool,
    /// Of a file's content.
    pub bytes: u64,
    /// Last change, in milliseconds since 1970-01-01 UTC.
    pub modified_ms: i64,
}

/// What a machine says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Processors that steps may use.
    pub cpus: usize,
    /// Whether steps run as root.
    pub is_root: bool,
    /// Where the machine keeps builds, artifacts and work folders; None where it shares the state folder of the
    /// orchestrator.
    pub state: Option<PathBuf>,
    pub identity: MachineIdentity,
    /// Where it is kept how to put a profile back.
    pub journal: JournalPlace,
    /// Its own process, or that of its agent: it does not count as somebody else's load.
    pub pid: u32,
}

/// Which machine it is. Two names of one machine have the same, and take turns.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MachineIdentity {
    /// machine-id(5); empty where there is none, as in many a container.
    pub machine_id: String,
    /// The kernel's, of this boot.
    pub boot_id: String,
    /// Who names another lock file shares nothing with those who have the machine's.
    #[serde(with = "serial::path")]
    pub lock: PathBuf,
}

/// Where the journals of profiles are.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JournalPlace {
    pub own: PathBuf,
    /// Root's, for others: what it tells of they can neither set nor put back.
    pub of_root: Option<PathBuf>,
}

/// A command to run: an argv, never a shell line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    pub argv: Vec<String>,
    /// The working folder.
    #[serde(with = "serial::path")]
    pub dir: PathBuf,
    /// The whole environment beside what the host gives each command (PATH, HOME, USER, TMPDIR,
    /// `LC_ALL=C.UTF-8`).
    pub env: Vec<(String, String)>,
    #[serde(with = "serial::bytes")]
    pub stdin: Vec<u8>,
    pub timeout: Duration,
    /// Limit for each of the two streams. Beyond it the first and the last half of the limit are
    /// kept, the middle is read and dropped.
    pub output_bytes_max: usize,
}

/// What a command printed and how it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    pub ended: Ended,
    #[serde(with = "serial::bytes")]
    pub stdout: Vec<u8>,
    #[serde(with = "serial::bytes")]
    pub stderr: Vec<u8>,
    /// One of the streams was longer than its limit.
    pub truncated: bool,
    pub duration: Duration,
    /// Processes that were still there when the command had ended by itself, and were ended by
    /// us; also those that could not be ended, however the command ended.
    pub leftovers: Vec<String>,
    /// Who waited for it was stopped meanwhile, as by Ctrl-Z: its duration is not known.
    pub was_paused: bool,
}

impl Output {
    /// That of a command which was not started, as everything stops.
    pub fn interrupted() -> Output {
        Output {
            ended: Ended::Interrupted,
            stdout: Vec::new(),
            stderr: Vec::new(),
            truncated: false,
            duration: Duration::ZERO,
            leftovers: Vec::new(),
            was_paused: false,
        }
    }
}

/// What came of a probe of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probed {
    pub output: Output,
    /// Who listens where the probe asked and was there before the service: `nginx` (pid 7) listens on port 80.
    pub answered_by: Option<String>,
}

/// A service of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServiceId(pub u64);

/// Told when everything must stop at once.
#[derive(Clone, Debug)]
pub struct Cancel(Option<watch::Receiver<bool>>);

impl Cancel {
    /// The sender sends `true` once.
    pub fn new(receiver: watch::Receiver<bool>) -> Self {
        Cancel(Some(receiver))
    }

    /// One that never comes.
    pub fn never() -> Self {
        Cancel(None)
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|stop| *stop.borrow())
    }

    /// Returns when everything must stop; never if that does not come.
    pub async fn cancelled(&mut self) {
        if let Some(receiver) = &mut self.0
            && receiver.wait_for(|stop| *stop).await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

impl From<watch::Receiver<bool>> for Cancel {
    fn from(receiver: watch::Receiver<bool>) -> Cancel {
        Cancel::new(receiver)
    }
}

/// A host could not do what it was asked to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub struct HostError {
    /// What was tried and what came of it, in one line that names the file or the program.
    pub message: String,
    pub kind: HostErrorKind,
}

impl HostError {
    pub fn new(kind: HostErrorKind, message: impl Into<String>) -> Self {
        HostError {
            message: message.into(),
            kind,
        }
    }

    /// `what` says what was tried and names the file, such as "cannot read `/x`".
    pub fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        use io::ErrorKind as Io;
        let (kind, remedy) = match error.kind() {
            Io::NotFound => (HostErrorKind::NotFound, ""),
            Io::PermissionDenied => (HostErrorKind::PermissionDenied, ""),
            Io::FileTooLarge => (HostErrorKind::TooLarge, ""),
            Io::ResourceBusy => (HostErrorKind::Busy, ""),
            Io::StorageFull | Io::QuotaExceeded => {
                (HostErrorKind::NoSpace, "; free some space and run again")
            }
            _ => (HostErrorKind::Other, ""),
        };
        HostError::new(kind, format!("{what}: {error}{remedy}"))
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostErrorKind {
    NotFound,
    PermissionDenied,
    TooLarge,
    /// The disk is full.
    NoSpace,
    /// The kernel has it in use, or a CPU that it belongs to is offline.
    Busy,
    Cancelled,
    /// The machine cannot be reached, or its agent is gone.
    Lost,
    Other,
}
