//! Process trees: which processes belong to a step, and how they are ended.
//!
//! A group kill is not enough: fio's jobs call setsid(). So `matrix` is a subreaper, whom the
//! kernel gives every orphan below it, and a process is a step's if
//! 1. its environment holds the step's marker (`MATRIX_STEP`); a marker of another step excludes it;
//! 2. without a marker: if it is, or is in a group or session of, a process known to be the step's;
//! 3. or if its parent is the step's;
//! 4. or if it is an orphan that nobody knows (a daemon with a clean environment), and the step is the last
//!    that was begun before it, of those that have not ended.
//!
//! What escapes: a process of another user that we may not signal. It is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal,
    set_child_subreaper, waitid,
};

use super::proc::{self, Children, Stat};
use super::record::{self, Record};
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

    pub fn parse(text: &str) -> Option<Owner> {
        let mut fields = text.splitn(3, ':');
        Some(Owner {
            pid: fields.next()?.parse().ok()?,
            start: fields.next()?.parse().ok()?,
            namespace: fields.next()?.to_owned(),
        })
    }

    /// What its record is called.
    pub fn file_name(&self) -> String {
        format!("{}-{}-{}", self.pid, self.start, self.namespace)
    }

    pub fn parse_file_name(text: &str) -> Option<Owner> {
        Owner::parse(&text.replace('-', ":"))
    }

    pub fn is_alive(&self) -> bool {
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
}

/// What is known of a step that has not ended.
#[derive(Debug)]
struct OpenStep {
    /// In clock ticks since boot.
    began: u64,
    /// None once it is reaped.
    main: Option<i32>,
    /// Start times of processes that were once seen to belong here.
    known: BTreeMap<i32, u64>,
}

impl OpenStep {
    /// `main` stays its group's number after it is reaped, for as long as the group lives.
    fn is_related(&self, main: i32, stat: &Stat) -> bool {
        // A number is not given to a new process while it still names a group or a session.
        self.known.get(&stat.pid) == Some(&stat.start)
            || [stat.group, stat.session]
                .iter()
                .any(|leader| *leader == main || self.known.contains_key(leader))
    }
}

/// The children of this process that are known.
#[derive(Default)]
struct Steps {
    open: BTreeMap<String, (i32, OpenStep)>,
    /// Children that are no step's, such as agents.
    others: BTreeSet<i32>,
}

fn steps() -> MutexGuard<'static, Steps> {
    static STEPS: Mutex<Steps> = Mutex::new(Steps {
        open: BTreeMap::new(),
        others: BTreeSet::new(),
    });
    STEPS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Steps {
    /// Whether a child is one that we have started and wait for.
    fn has_main(&self, pid: i32) -> bool {
        let mut open = self.open.values();
        self.others.contains(&pid) || open.any(|(_, step)| step.main == Some(pid))
    }

    /// The step that an orphan without a marker is taken for; None where all that can have started it have ended.
    fn of_stray(&self, stat: &Stat) -> Option<&str> {
        let open = || self.open.iter();
        let related = open().find(|(_, (main, step))| step.is_related(*main, stat));
        let last = || {
            let before = open().filter(|(_, (_, step))| step.began <= stat.start);
            before.max_by_key(|(_, (_, step))| step.began)
        };
        related.or_else(last).map(|(name, _)| name.as_str())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        steps().open.remove(&self.step);
    }
}

impl Tree {
    /// `main` is a child of ours, leads a process group, and its environment has `step` as
    /// [`STEP_VARIABLE`]. `began` is [`now_ticks`] of before it was started, or [`NEVER`] where no orphan shall be
    /// taken for its own.
    pub fn new(step: String, main: u32, began: u64) -> Tree {
        let open = OpenStep {
            began,
            main: Some(main as i32),
            known: BTreeMap::new(),
        };
        steps().open.insert(step.clone(), (main as i32, open));
        Tree {
            step,
            main: main as i32,
            main_is_unreaped: true,
        }
    }

    /// When it was started, in clock ticks since boot; its main process; and all that live.
    pub fn members(&mut self) -> (u64, i32, BTreeSet<i32>) {
        let pids = self.look().iter().map(|process| process.stat.pid).collect();
        let began = steps()
            .open
            .get(&self.step)
            .map_or(0, |(_, step)| step.began);
        (began, self.main, pids)
    }

    pub fn main_was_reaped(&mut self) {
        self.main_is_unreaped = false;
        if let Some((_, step)) = steps().open.get_mut(&self.step) {
            step.main = None;
        }
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
                    if let Some((_, step)) = steps().open.get_mut(&self.step) {
                        step.known.insert(pid, process.stat.start);
                    }
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
        let steps = steps();
        let own = steps.open.get(&self.step);
        if own.is_some_and(|(main, step)| step.is_related(*main, stat)) {
            return true;
        }
        is_orphan(stat)
            && !steps.others.contains(&stat.pid)
            && steps.of_stray(stat).is_none_or(|step| step == self.step)
    }

    /// Whether a dead child of ours is one that nobody else waits for.
    fn is_dead_of_ours(&self, stat: &Stat) -> bool {
        let steps = steps();
        let own = steps.open.get(&self.step);
        let is_related = own.is_some_and(|(main, step)| step.is_related(*main, stat));
        stat.pid != self.main && !steps.has_main(stat.pid) && (is_related || is_orphan(stat))
    }
}

/// Whether a child of ours was not started by us, but has lost its parent. What we start without a host stays in
/// our session and group, and the leader of a group cannot leave its session.
fn is_orphan(stat: &Stat) -> bool {
    // Not getsid(): in a pid namespace that was entered with a session from outside, ours is 0.
    let us = Stat::of(std::process::id() as i32);
    us.is_some_and(|us| us.session != stat.session)
}

/// A start after that of any process.
pub const NEVER: u64 = u64::MAX;

/// Clock ticks since boot, as a process's start is told.
pub fn now_ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    let nanos_per_tick = 1_000_000_000 / ticks_per_second.max(1);
    now.tv_sec as u64 * ticks_per_second + now.tv_nsec as u64 / nanos_per_tick
}

/// Reaps orphans that have ended, so that their numbers are free and nobody takes them for alive.
pub fn reap_orphans() {
    let us = std::process::id() as i32;
    for pid in Children::now().of(us) {
        let is_dead = |stat: &Stat| stat.zombie && stat.parent == us && is_orphan(stat);
        if Stat::of(pid).is_some_and(|stat| is_dead(&stat)) && !steps().has_main(pid) {
            reap(pid);
        }
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

/// Ends the processes of `matrix` processes of this pid namespace that are gone: those with their marker, those
/// on record in the machine's `state` folder, and all below them. Returns a line about each.
pub async fn clean(namespace: &str, state: &Path, grace: Duration) -> Vec<String> {
    let records = record::dead(state, namespace);
    let mut owners: BTreeMap<i32, i32> = BTreeMap::new();
    let ended = end_all(grace, || ownerless(namespace, &records, &mut owners)).await;
    if !ended.iter().any(|left| left.survived) {
        records.into_iter().for_each(Record::remove);
    }
    let describe = |left: &Leftover| match owners.get(&left.pid) {
        Some(owner) => format!("{left}, left by a matrix that is gone (pid {owner})"),
        None => left.to_string(),
    };
    ended.iter().map(describe).collect()
}

/// Processes whose owner is not alive any more, with all below them, but not this process nor
/// those above it. `owners` gets the owner's pid by the process's.
fn ownerless(
    namespace: &str,
    records: &[Record],
    owners: &mut BTreeMap<i32, i32>,
) -> Vec<TreeProcess> {
    let mut seen = ancestry(std::process::id() as i32);
    let mut found = Vec::new();
    // The record's word is as good again once the process is held: numbers go round slowly.
    let on_record = || -> BTreeMap<i32, i32> {
        let of = |record: &Record| {
            let owner = record.owner.pid;
            record.pids().into_iter().map(move |pid| (pid, owner))
        };
        records.iter().flat_map(of).collect()
    };
    let recorded = on_record();
    let marked = proc::pids()
        .into_iter()
        .filter(|pid| recorded.contains_key(pid) || dead_owner(*pid, namespace).is_some());
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
            None => dead_owner(pid, namespace).or_else(|| {
                let owner = recorded.get(&pid)?;
                on_record().contains_key(&pid).then_some(*owner)
            }),
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

/// A child of ours that is no step's, such as an agent: while this is kept, nobody takes it for what a step
/// has left.
#[derive(Debug)]
pub struct OwnChild(i32);

impl OwnChild {
    pub fn new(pid: u32) -> OwnChild {
        steps().others.insert(pid as i32);
        OwnChild(pid as i32)
    }
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        steps().others.remove(&self.0);
    }
}

/// Whether this process has a child, living or dead, that it did not start. What a step has left
/// is one, or is below one.
fn have_orphans() -> bool {
    let children = Children::now().of(std::process::id() as i32);
    let steps = steps();
    children.iter().any(|child| !steps.has_main(*child))
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
