//! The local host: processes, files and the lock of the machine that `matrix` runs on.

mod artifact;
pub mod blocking;
mod elf;
mod files;
mod lock;
mod output;
pub mod pauses;
mod proc;
mod process;
mod record;
mod setups;
mod sockets;
mod state;
mod tree;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use self::lock::LockedFile;
use self::process::{BaseEnvironment, Running};
use self::record::Recording;
pub use self::tree::OwnChild;
use self::tree::Owner;
use self::tree::now_ticks;
use super::undo::{UndoOp, UndoReply};
use super::{
    Cancel, Command, FileOp, FileReply, HeldLock, Holder, Host, HostError, HostErrorKind,
    HostFacts, JournalPlace, Lock, Output, Probed, ServiceId, Wait,
};
use crate::base::sample::Ended;

/// The program that runs, as a file.
pub const OWN_PROGRAM: &str = "/proc/self/exe";
/// Between TERM and KILL.
const GRACE: Duration = Duration::from_secs(2);
/// How long a daemon that has ended may be a zombie.
const REAP_PAUSE: Duration = Duration::from_secs(1);
/// Operations in one call of [`Host::files`].
const OPS_MAX: usize = 100_000;

/// The machine that `matrix` runs on. Needs a tokio runtime with I/O and time, and Linux 5.6.
/// Dropping it kills all services that it still has.
pub struct LocalHost {
    name: String,
    owner: Owner,
    environment: Arc<BaseEnvironment>,
    lock: PathBuf,
    /// Journals of the machine.
    state: PathBuf,
    profile_journal: JournalPlace,
    /// Where builds, artifacts and work folders are; None: where the orchestrator says.
    work: Option<PathBuf>,
    grace: Duration,
    services: RefCell<BTreeMap<ServiceId, Service>>,
    services_started: Cell<u64>,
}

enum Service {
    Running(Box<Running>),
    /// By itself. Kept until it is stopped.
    Ended(Output),
}

impl LocalHost {
    /// `name` is the machine's in the matrix. From here on orphans below this process become its
    /// children. Fails where `/proc` is not mounted.
    pub fn new(name: impl Into<String>) -> Result<LocalHost, HostError> {
        Ok(LocalHost {
            name: name.into(),
            owner: Owner::this()?,
            environment: Arc::new(BaseEnvironment::of_this_process()),
            lock: lock::path_default(),
            state: state::folder(None),
            profile_journal: state::profile_journal(None),
            work: None,
            grace: GRACE,
            services: RefCell::default(),
            services_started: Cell::new(0),
        })
    }

    /// Another file to lock than the machine's.
    pub fn with_lock(mut self, path: impl Into<PathBuf>) -> LocalHost {
        self.lock = path.into();
        self.state = state::folder(Some(&self.lock));
        self.profile_journal = state::profile_journal(Some(&self.lock));
        self
    }

    /// A state folder of its own, instead of the orchestrator's.
    pub fn with_state(mut self, path: impl Into<PathBuf>) -> LocalHost {
        self.work = Some(path.into());
        self
    }

    /// Another time between TERM and KILL than two seconds.
    pub fn with_grace(mut self, grace: Duration) -> LocalHost {
        self.grace = grace;
        self
    }

    fn spawn(&self, command: Command) -> Result<Running, HostError> {
        Running::start(command, &self.environment, &self.owner, now_ticks())
    }

    async fn run_to_end(
        &self,
        mut running: Running,
        timeout: Duration,
        mut cancel: Cancel,
    ) -> Output {
        let reason = loop {
            let pauses_before = pauses::count();
            tokio::select! {
                biased;
                () = running.exited() => break None,
                () = cancel.cancelled() => break Some(Ended::Interrupted),
                () = tokio::time::sleep(timeout) => {}
            }
            // Its time begins anew where we were stopped: nobody knows how long.
            if pauses::count() == pauses_before {
                break Some(Ended::TimedOut);
            }
        };
        running.finish(reason, self.grace).await
    }

    fn take_service(&self, id: ServiceId) -> Option<Service> {
        self.services.borrow_mut().remove(&id)
    }
}

/// The lock, and the record of what is started while it is held, which ends first.
struct LocalLock {
    reaper: JoinHandle<()>,
    _recording: Recording,
    _file: LockedFile,
}

impl HeldLock for LocalLock {
    fn release(self: Box<Self>) -> Wait<'static, ()> {
        drop(self);
        Box::pin(std::future::ready(()))
    }
}

impl Drop for LocalLock {
    fn drop(&mut self) {
        self.reaper.abort();
    }
}

fn carry_out(ops: Vec<FileOp>, environment: &BaseEnvironment) -> Vec<Result<FileReply, HostError>> {
    let too_many = || {
        HostError::new(
            HostErrorKind::TooLarge,
            format!("more than {OPS_MAX} file operations at once: split them"),
        )
    };
    let one = |(i, op)| match op {
        _ if i >= OPS_MAX => Err(too_many()),
        FileOp::Which { program } => environment
            .find(&program, None, Path::new("/"))
            .map(FileReply::Path),
        op => files::carry_out(op),
    };
    ops.into_iter().enumerate().map(one).collect()
}

impl Host for LocalHost {
    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> Wait<'_, Result<HostFacts, HostError>> {
        Box::pin(async {
            Ok(HostFacts {
                cpus: std::thread::available_parallelism().map_or(1, usize::from),
                is_root: rustix::process::geteuid().is_root(),
                state: self.work.clone(),
                identity: state::identity(&self.lock),
                journal: self.profile_journal.clone(),
                pid: std::process::id(),
            })
        })
    }

    fn files(&self, ops: Vec<FileOp>) -> Wait<'_, Vec<Result<FileReply, HostError>>> {
        let environment = self.environment.clone();
        Box::pin(async move {
            if !ops.iter().any(files::may_take_long) {
                return carry_out(ops, &environment);
            }
            let count = ops.len();
            let done = tokio::task::spawn_blocking(move || carry_out(ops, &environment));
            done.await.unwrap_or_else(|error| {
                let error = HostError::new(HostErrorKind::Other, error.to_string());
                vec![Err(error); count]
            })
        })
    }

    fn run(&self, command: Command, cancel: Cancel) -> Wait<'_, Result<Output, HostError>> {
        Box::pin(async move {
            if cancel.is_cancelled() {
                return Ok(Output::interrupted());
            }
            let timeout = command.timeout;
            let running = self.spawn(command)?;
            Ok(self.run_to_end(running, timeout, cancel).await)
        })
    }

    fn probe(
        &self,
        service: ServiceId,
        command: Command,
        cancel: Cancel,
    ) -> Wait<'_, Result<Probed, HostError>> {
        Box::pin(async move {
            let (timeout, words) = (command.timeout, command.argv.clone());
            let output = match cancel.is_cancelled() {
                true => Output::interrupted(),
                false => {
                    let (environment, owner) = (&self.environment, &self.owner);
                    let running = Running::start(command, environment, owner, tree::NEVER)?;
                    self.run_to_end(running, timeout, cancel).await
                }
            };
            let mut answered_by = None;
            if output.ended.is_success() {
                let mut services = self.services.borrow_mut();
                if let Some(Service::Running(running)) = services.get_mut(&service) {
                    answered_by = running.answered_by_another(words);
                }
            }
            Ok(Probed {
                output,
                answered_by,
            })
        })
    }

    fn start(&self, command: Command) -> Wait<'_, Result<ServiceId, HostError>> {
        Box::pin(async move {
            let running = self.spawn(command)?;
            let id = ServiceId(self.services_started.get());
            self.services_started.set(id.0 + 1);
            self.services
                .borrow_mut()
                .insert(id, Service::Running(Box::new(running)));
            Ok(id)
        })
    }

    fn ended(&self, service: ServiceId) -> Wait<'_, Option<Output>> {
        Box::pin(async move {
            let output = match self.take_service(service)? {
                Service::Ended(output) => output,
                Service::Running(mut running) => {
                    if !running.has_exited() {
                        self.services
                            .borrow_mut()
                            .insert(service, Service::Running(running));
                        return None;
                    }
                    running.finish(None, self.grace).await
                }
            };
            self.services
                .borrow_mut()
                .insert(service, Service::Ended(output.clone()));
            Some(output)
        })
    }

    fn stop(&self, service: ServiceId) -> Wait<'_, Result<Output, HostError>> {
        Box::pin(async move {
            match self.take_service(service) {
                Some(Service::Running(running)) => Ok(running.finish(None, self.grace).await),
                Some(Service::Ended(output)) => Ok(output),
                None => Err(HostError::new(
                    HostErrorKind::NotFound,
                    format!(
                        "`{}` has no service {}: it was stopped before",
                        self.name, service.0
                    ),
                )),
            }
        })
    }

    fn lock<'a>(
        &'a self,
        holder: Holder,
        on_wait: &'a dyn Fn(&str),
        cancel: Cancel,
    ) -> Wait<'a, Result<Lock, HostError>> {
        Box::pin(async move {
            let file = lock::take(&self.lock, holder, on_wait, cancel).await?;
            let reaper = tokio::spawn(async {
                loop {
                    tokio::time::sleep(REAP_PAUSE).await;
                    tree::reap_orphans();
                }
            });
            let lock = LocalLock {
                reaper,
                _recording: Recording::begin(&self.state, &self.owner),
                _file: file,
            };
            Ok(Lock(Box::new(lock)))
        })
    }

    fn clean(&self) -> Wait<'_, Result<Vec<String>, HostError>> {
        Box::pin(
            async move { Ok(tree::clean(&self.owner.namespace, &self.state, self.grace).await) },
        )
    }

    fn undo(&self, op: UndoOp) -> Wait<'_, Result<UndoReply, HostError>> {
        let state = self.state.clone();
        Box::pin(async move {
            if !matches!(op, UndoOp::Begin(_)) {
                return setups::carry_out(&state, op);
            }
            // It waits for the disk.
            let done = tokio::task::spawn_blocking(move || setups::carry_out(&state, op));
            let done = done.await;
            done.unwrap_or_else(|error| {
                Err(HostError::new(HostErrorKind::Other, error.to_string()))
            })
        })
    }
}

#[cfg(test)]
mod tests;
