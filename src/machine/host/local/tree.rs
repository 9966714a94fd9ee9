//! Process trees: which processes belong to a step, and how they are ended.
//!
//! A group kill is not enough: fio's jobs call setsid(). So `matrix` is a subreaper, whom the
//! kernel gives every orphan below it, and a process is a step's if
//! 1. its environment holds the step's marker (`MATRIX_STEP`); a marker of another step excludes it;
//! 2. without a marker: if it is, or is in a group or session of, a process known to be the step's;
//! 3. or if its parent is the step's.
//!
//! What escapes: a process that cleared its environment *and* left group and session *and* lost
//! its parent before we looked; and a process of another user (sudo) that we may not signal.
//! The first is not seen, the second is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal,
    set_child_subreaper, waitid,
};

use super::proc::{self, Children, Stat};
use crate::machine::host::{HostError, HostErrorKind};

/// Names the step that a process belongs to. That of a step of a `matrix` which itself runs in a
/// step begins with the outer one's and a slash.
pub const STEP_VARIABLE: &str = "MATRIX_STEP";
/// Names the `matrix` that a process belongs to: `pid:start:namespace`.
pub const OWNER_VARIABLE: &str = "MATRIX_OWNER";

/// How long a killed process may take to go: one in an uninterruptible sleep may never.
const KILL_TIME_MAX: Duration = Duration::from_secs(5);
/// Pauses between two looks grow up to this.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// A `matrix` process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub pid: i32,
    start: u64,
    /// The pid namespace in which `pid` means something.
    pub namespace: String,
}

impl Owner {
    /// This process. The first call makes it the subreaper of all that it starts.
    pub fn this() -> Result<Owner, HostError> {
        static THIS: OnceLock<Result<Owner, HostError>> = OnceLock::new();
        THIS.get_or_init(|| {
            let pid = rustix::process::getpid();
            set_child_subreaper(Some(pid)).map_err(|error| {
                HostError::io(
                    "cannot become a subreaper (PR_SET_CHILD_SUBREAPER)",
                    &error.into(),
                )
            })?;
            let stat = Stat::of(pid.as_raw_pid()).ok_or_else(|| {
                HostError::new(
                    HostErrorKind::NotFound,
                    "cannot read `/proc/self/stat`: mount proc (`mount -t proc proc /proc`)",
                )
            })?;
            Ok(Owner {
                pid: stat.pid,
                start: stat.start,
                namespace: proc::pid_namespace(),
            })
        })
        .clone()
    }

    fn parse(text: &str) -> Option<Owner> {
        let mut fields = text.splitn(3, ':');
        Some(Owner {
            pid: fields.next()?.parse().ok()?,
            start: fields.next()?.parse().ok()?,
            namespace: fields.next()?.to_owned(),
        })
    }

    fn is_alive(&self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.start == self.start && !stat.zombie)
    }

    /// A marker that no other step has, neither of this process nor of another.
    pub fn new_step(&self) -> String {
        static STEPS: AtomicU64 = AtomicU64::new(0);
        let step = STEPS.fetch_add(1, Ordering::Relaxed);
        let own = format!("{}-{}-{step}", self.pid, self.start);
        match std::env::var(STEP_VARIABLE) {
            Ok(outer) => format!("{outer}/{own}"),
            Err(_) => own,
        }
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.pid, self.start, self.namespace)
    }
}

/// A living process, held so that a signal reaches it or nobody: never one that has got the same
/// pid since.
struct TreeProcess {
    fd: OwnedFd,
    stat: Stat,
}

impl TreeProcess {
    /// None when it has ended. All that is read about the pid after this call is about this
    /// process, or the process has ended and signals go nowhere.
    fn open(pid: i32) -> Option<TreeProcess> {
        let fd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        Some(TreeProcess {
            fd,
            stat: Stat::of(pid)?,
        })
    }
}

/// All processes of one step.
#[derive(Debug)]
pub struct Tree {
    step: String,
    main: i32,
    /// While it is, its pid is its own; then the number may be given to another.
    main_is_unreaped: bool,
    /// Start times of processes that were once seen to belong here.
    known: BTreeMap<i32, u64>,
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Once reaped, the number may be that of another step.
        if self.main_is_unreaped {
            mains().remove(&self.main);
        }
    }
}

impl Tree {
    /// `main` is a child of ours, leads a process group, and its environment has `step` as
    /// [`STEP_VARIABLE`].
    pub fn new(step: String, main: u32) -> Tree {
        mains().insert(main as i32);
        Tree {
            step,
            main: main as i32,
            main_is_unreaped: true,
            known: BTreeMap::new(),
        }
    }

    pub fn main_was_reaped(&mut self) {
        self.main_is_unreaped = false;
        mains().remove(&self.main);
    }

    /// Ends all its processes: TERM, then after `grace` KILL, until none is left. Returns those
    /// that there were. With the main process reaped and nothing left, this costs one system call, or a
    /// few where other steps run.
    pub async fn end(&mut self, grace: Duration) -> Vec<Leftover> {
        if !self.main_is_unreaped && (!have_children() || !have_orphans()) {
            return Vec::new();
        }
        end_all(grace, || self.look()).await
    }

    /// Kills all its processes and waits until they are gone; for when nothing can be awaited.
    pub fn kill_now(&mut self) {
        let give_up = Instant::now() + KILL_TIME_MAX;
        while Instant::now() < give_up {
            let found = self.look();
            if found.is_empty() {
                return;
            }
            for process in &found {
                // It has ended or may not be signalled: the next look tells.
                let _ = pidfd_send_signal(&process.fd, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Its living processes. Reaps those of its dead that nobody else will, not the main one.
    fn look(&mut self) -> Vec<TreeProcess> {
        loop {
            let (found, has_reaped) = self.look_once();
            // One that has ended since our children were listed may have left us another one.
            if !found.is_empty() || !has_reaped {
                return found;
            }
        }
    }

    fn look_once(&mut self) -> (Vec<TreeProcess>, bool) {
        let children = Children::now();
        let us = std::process::id() as i32;
        let (mut found, mut has_reaped) = (Vec::new(), false);
        let mut queue = vec![us];
        while let Some(parent) = queue.pop() {
            for pid in children.of(parent) {
                // One that has another parent by now is found by the next look.
                let Some(process) = TreeProcess::open(pid).filter(|it| it.stat.parent == parent)
                else {
                    continue;
                };
                if process.stat.zombie {
                    if parent == us && self.is_dead_of_ours(&process.stat) {
                        reap(pid);
                        has_reaped = true;
                    }
                } else if parent != us || self.has(&process.stat) {
                    self.known.insert(pid, process.stat.start);
                    queue.push(pid);
                    found.push(process);
                }
            }
        }
        (found, has_reaped)
    }

    /// Whether a child of ours belongs here.
    fn has(&self, stat: &Stat) -> bool {
        if stat.pid == self.main {
            return self.main_is_unreaped;
        }
        if let Some(step) = proc::environment_of(stat.pid, STEP_VARIABLE) {
            let below = step.strip_prefix(&self.step);
            return below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        }
        self.is_related(stat)
    }

    fn is_related(&self, stat: &Stat) -> bool {
        // A number is not given to a new process while it still names a group or a session.
        self.known.get(&stat.pid) == Some(&stat.start)
            || [stat.group, stat.session]
                .iter()
                .any(|leader| *leader == self.main || self.known.contains_key(leader))
    }

    /// Whether a dead child of ours is one that nobody else waits for. The dead have no
    /// environment, but one in another session is an orphan: what we start ourselves never leaves
    /// ours, as the leader of a group cannot.
    fn is_dead_of_ours(&self, stat: &Stat) -> bool {
        // Not getsid(): in a pid namespace that was entered with a session from outside, ours is 0.
        let is_orphan =
            || Stat::of(std::process::id() as i32).is_some_and(|us| us.session != stat.session);
        stat.pid != self.main && (self.is_related(stat) || is_orphan())
    }
}

/// A process that was ended, or could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    pub pid: i32,
    pub name: String,
    /// It is still there: it may not be signalled, or hangs in the kernel.
    pub survived: bool,
}

impl std::fmt::Display for Leftover {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "`{}` (pid {})", self.name, self.pid)?;
        if self.survived {
            write!(f, " could not be ended: try `sudo kill -9 {}`", self.pid)?;
        }
        Ok(())
    }
}

/// Ends what `look` finds, again and again: processes may fork while they are being ended.
async fn end_all(grace: Duration, mut look: impl FnMut() -> Vec<TreeProcess>) -> Vec<Leftover> {
    let began = Instant::now();
    let mut all: BTreeMap<(i32, u64), Leftover> = BTreeMap::new();
    let mut termed = BTreeSet::new();
    let mut pause = Duration::from_millis(1);
    let mut killing = false;
    loop {
        let found = look();
        // A list of processes is not a snapshot: nothing must be found twice in a row, unless
        // there never was anything.
        if found.is_empty() && (all.is_empty() || look().is_empty()) {
            break;
        }
        if !killing && began.elapsed() >= grace {
            killing = true;
            pause = Duration::from_millis(1);
        }
        let mut can_be_ended = found.is_empty();
        for process in &found {
            let id = (process.stat.pid, process.stat.start);
            all.entry(id).or_insert_with(|| Leftover {
                pid: process.stat.pid,
                name: process.stat.name.clone(),
                survived: false,
            });
            let sent = if killing {
                pidfd_send_signal(&process.fd, Signal::KILL)
            } else if termed.insert(id) {
                pidfd_send_signal(&process.fd, Signal::TERM)
            } else {
                Ok(())
            };
            can_be_ended |= sent != Err(Errno::PERM);
        }
        if !can_be_ended || began.elapsed() >= grace + KILL_TIME_MAX {
            for process in &found {
                if let Some(left) = all.get_mut(&(process.stat.pid, process.stat.start)) {
                    left.survived = true;
                }
            }
            break;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
    all.into_values().collect()
}

/// Ends the processes of `matrix` processes of this pid namespace that are gone. Returns a line
/// about each.
pub async fn clean(namespace: &str, grace: Duration) -> Vec<String> {
    let mut owners: BTreeMap<i32, i32> = BTreeMap::new();
    let ended = end_all(grace, || ownerless(namespace, &mut owners)).await;
    let describe = |left: &Leftover| match owners.get(&left.pid) {
        Some(owner) => format!("{left}, left by a matrix that is gone (pid {owner})"),
        None => left.to_string(),
    };
    ended.iter().map(describe).collect()
}

/// Processes whose owner is not alive any more, with all below them, but not this process nor
/// those above it. `owners` gets the owner's pid by the process's.
fn ownerless(namespace: &str, owners: &mut BTreeMap<i32, i32>) -> Vec<TreeProcess> {
    let mut seen = ancestry(std::process::id() as i32);
    let mut found = Vec::new();
    let marked = proc::pids()
        .into_iter()
        .filter(|pid| dead_owner(*pid, namespace).is_some());
    let mut queue: Vec<(i32, Option<Below>)> = marked.map(|pid| (pid, None)).collect();
    if queue.is_empty() {
        return found;
    }
    let children = Children::now();
    while let Some((pid, below)) = queue.pop() {
        if seen.contains(&pid) {
            continue;
        }
        let Some(process) = TreeProcess::open(pid).filter(|process| !process.stat.zombie) else {
            continue;
        };
        // Asked again now that it is held: the pid may have changed hands.
        let owner = match below {
            Some(below) => (process.stat.parent == below.parent).then_some(below.owner),
            None => dead_owner(pid, namespace),
        };
        let Some(owner) = owner else {
            continue;
        };
        seen.insert(pid);
        owners.insert(pid, owner);
        let below = |child| (child, Some(Below { parent: pid, owner }));
        queue.extend(children.of(pid).into_iter().map(below));
        found.push(process);
    }
    found
}

/// Why a process without a marker of its own is ended: it is below one that has one.
struct Below {
    parent: i32,
    owner: i32,
}

/// The pid of the process's owner if that one is gone. None for an owner in another pid
/// namespace (a container): whether it lives cannot be seen from here.
fn dead_owner(pid: i32, namespace: &str) -> Option<i32> {
    let owner = Owner::parse(&proc::environment_of(pid, OWNER_VARIABLE)?)?;
    (owner.namespace == namespace && !owner.is_alive()).then_some(owner.pid)
}

/// A process and all those above it.
fn ancestry(pid: i32) -> BTreeSet<i32> {
    let mut line = BTreeSet::from([pid]);
    let mut pid = pid;
    while let Some(stat) = Stat::of(pid) {
        pid = stat.parent;
        if !line.insert(pid) {
            break;
        }
    }
    line
}

/// The main processes of all steps of this process that are not reaped.
fn mains() -> MutexGuard<'static, BTreeSet<i32>> {
    static MAINS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
    MAINS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child of ours that is no step's, such as an agent: while this is kept, nobody takes it for what a step
/// has left.
#[derive(Debug)]
pub struct OwnChild(i32);

impl OwnChild {
    pub fn new(pid: u32) -> OwnChild {
        mains().insert(pid as i32);
        OwnChild(pid as i32)
    }
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        mains().remove(&self.0);
    }
}

/// Whether this process has a child, living or dead, that is no step's main process. What a step has left
/// is one, or is below one.
fn have_orphans() -> bool {
    let children = Children::now().of(std::process::id() as i32);
    let mains = mains();
    children.iter().any(|child| !mains.contains(child))
}

/// Whether this process has any child, living or dead.
fn have_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
}

fn reap(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        // Fails if it was reaped meanwhile.
        let _ = waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        );
    }
}
