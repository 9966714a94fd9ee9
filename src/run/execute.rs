//! Carrying out a run: actions of the dispatcher on hosts, samples into the store, events out.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::command::{Log, now_ms, remove};
use super::dispatch::{Action, Adjustment, Completed, Dispatch, MeasureOutcome, RunRequest};
use super::event::{Event, TimedEvent};
use super::hooks::{About, Hooks};
use super::pool::Pool;
use super::progress::Progress;
use super::setup::{Up, run_folders};
use super::tune;
use crate::base::key::Key;
use crate::config::hook::Moment;
use crate::edge::parse::Reader;
use crate::edge::store::{
    self, NewAttempt, NewReading, Record, Recorded, SampleContext, StepKind, Store, StoreError,
    Writer, Written,
};
use crate::machine::host::{Cancel, Holder, HostError, Lock};
use crate::machine::setups;
use crate::machine::tune::TuneError;
use crate::plan::dag::Plan;
use crate::resolve::lookup::{Failed, LookupError};
use crate::resolve::planner::PlanError;
use crate::resolve::prepare::{Machine, Machines};
use crate::run::machine_session::MachineSessions;

/// A run could not go on. What was measured until then is stored.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Tune(#[from] TuneError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error("{0}")]
    Template(String),
    #[error(
        "{what} stopped: the disk is full ({reason}); make space there and run again: what is stored is whole"
    )]
    NoSpace { what: String, reason: String },
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub measured: u64,
    pub failed: Vec<Failed>,
    pub interrupted: bool,
    /// Cells and measurements that were not reached, as the time that was given is over.
    pub late: Option<(usize, u64)>,
    /// What could not be undone: it stays in the machine's journal.
    pub left_behind: BTreeSet<String>,
}

impl Tally {
    /// Adds what came of another part.
    pub fn add(&mut self, other: Tally) {
        self.measured += other.measured;
        self.failed.extend(other.failed);
        self.interrupted |= other.interrupted;
        self.left_behind.extend(other.left_behind);
        if let Some((cells, measurements)) = other.late {
            let late = self.late.get_or_insert_default();
            *late = (late.0 + cells, late.1 + measurements);
        }
    }
}

/// Who makes results durable.
pub trait WriteResults {
    /// Writes a result soon, at once where somebody waits for it; `tell` is called when it is on the disk or cannot be
    /// written.
    fn write(&self, record: Record, is_awaited: bool, tell: Box<dyn FnOnce(Written) + Send>);
}

impl WriteResults for Writer {
    fn write(&self, record: Record, is_awaited: bool, tell: Box<dyn FnOnce(Written) + Send>) {
        Writer::write(self, record, is_awaited, tell);
    }
}

/// Where and with what a session works.
pub struct Site<'a> {
    pub machines: &'a Machines,
    pub store: &'a RefCell<Store>,
    /// Writes what is measured.
    pub writer: &'a dyn WriteResults,
    pub session: i64,
    pub seed: u64,
    pub progress: &'a RefCell<dyn Progress>,
    pub hooks: &'a Hooks,
    /// See [`Tally::left_behind`].
    pub left_behind: RefCell<BTreeSet<String>>,
}

impl Site<'_> {
    pub(super) fn leave_behind(&self, what: String) {
        self.left_behind.borrow_mut().insert(what);
    }

    pub fn tell(&self, event: Event) {
        let time_ms = now_ms();
        let event = TimedEvent { time_ms, event };
        self.progress.borrow_mut().event(&event);
    }

    /// Calls the hooks of a moment with an event. Err: one that is required has failed.
    pub(super) async fn call(
        &self,
        moment: Moment,
        event: &Event,
        cancel: &Cancel,
    ) -> Result<(), String> {
        let tell = |event| self.tell(event);
        let about = About::Event(event);
        let session = Some(self.session);
        self.hooks.call(moment, about, session, &tell, cancel).await
    }

    pub(super) fn note(&self, machine: &str, what: String) {
        self.tell(Event::Note {
            machine: machine.to_owned(),
            what,
        });
    }
}

/// What is run.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    pub site: &'a Site<'a>,
    pub plan: &'a Plan<'a>,
    pub readers: &'a [Reader],
    pub around: &'a MachineSessions,
}

/// Told when to stop: `soon` after the measurements under way, `at_once` with them. Nothing is begun
/// after the `deadline`. `waits` is told `soon` and at the deadline: what waits or builds ends.
#[derive(Clone)]
pub struct Stops {
    pub soon: Cancel,
    pub at_once: Cancel,
    pub waits: Cancel,
    pub deadline: Option<Instant>,
}

/// Takes the lock of a machine, and puts away what a dead run has left on it. None where
/// nothing runs.
pub async fn enter(
    site: &Site<'_>,
    purpose: &str,
    name: &str,
    cancel: &Cancel,
) -> Result<Option<Lock>, RunError> {
    let Some(
        machine @ Machine {
            host: Some(host), ..
        },
    ) = site.machines.get(name)
    else {
        return Ok(None);
    };
    let host = host.as_ref();
    let waiting = |holder: &str| {
        site.tell(Event::Waiting {
            machine: name.to_owned(),
            holder: holder.to_owned(),
        })
    };
    let holder = Holder::this(purpose);
    let lock = host.lock(holder, &waiting, cancel.clone()).await?;
    let mut cleaned = host.clean().await?;
    machine.link_programs().await?;
    let undone = setups::undo_all(host).await?;
    cleaned.extend(undone.put_away);
    for what in undone.left {
        site.tell(Event::LeftBehind {
            machine: name.to_owned(),
            what: what.clone(),
        });
        site.leave_behind(what);
    }
    // Folders of run steps are not in the journal: nobody but us can have one at the moment.
    for folder in run_folders(machine).await {
        remove(host, &folder).await?;
    }
    for what in cleaned {
        site.tell(Event::Cleaned {
            machine: name.to_owned(),
            what,
        });
    }
    tune::recover(site, name, host, machine).await?;
    Ok(Some(lock))
}

/// What came of a run step's round.
#[derive(Clone, Debug, PartialEq)]
pub struct CellResult {
    pub run: u32,
    pub round: u32,
    /// The values of the matrix's metrics in their order, None of those that it does not have; or why there is no
    /// sample.
    pub sample: Result<Vec<Option<f64>>, String>,
}

/// Who says what a machine measures.
pub trait Feed {
    /// What it measures next; nothing: its set-ups are undone.
    fn more(&self) -> Result<Vec<RunRequest>, RunError>;
    /// Told of each result; what is wanted may change by it.
    fn on(&self, result: &CellResult) -> Result<Vec<Adjustment>, RunError>;
}

/// Something that was done and is not durable yet. Nobody is told of it before it is.
struct Unwritten {
    news: Announcement,
    /// The slot that waits for it.
    slot: Option<(usize, EndedAction)>,
}

/// An action that has ended, and the result that it gave.
struct EndedAction {
    done: Completed,
    result: Option<CellResult>,
}

/// What is told when a result is durable.
#[derive(Default)]
pub(super) struct Announcement {
    pub(super) events: Vec<Event>,
    /// It is a sample.
    pub(super) is_sample: bool,
    /// With its run step and round.
    pub(super) failed: Option<(Failed, u32, u32)>,
}

/// What came of an action, and what is to be recorded of it.
pub(super) struct ActionResult {
    pub(super) done: Completed,
    pub(super) result: Option<CellResult>,
    pub(super) record: Option<Record>,
    pub(super) news: Announcement,
}

impl ActionResult {
    /// Nothing is recorded or told.
    pub(super) fn only(done: Completed) -> ActionResult {
        ActionResult {
            done,
            result: None,
            record: None,
            news: Announcement::default(),
        }
    }
}

/// Measures on a machine of the plan, by its number on the `machine` axis, what is asked for at first and what the
/// feed wants then. Set-ups are undone however it is stopped.
pub async fn run(
    job: &Job<'_>,
    machine: u16,
    requests: &[RunRequest],
    feed: &dyn Feed,
    stops: &Stops,
) -> Result<Tally, RunError> {
    let slots = job.machine(machine).map_or(1, |(_, machine)| machine.slots);
    // Writing must not disturb the next measurement, unless there are others anyway.
    let waits = job
        .machine(machine)
        .is_some_and(|(_, it)| it.waits_for_writes());
    let executor = Executor {
        job,
        cancel: stops.at_once.clone(),
        up: RefCell::default(),
        fatal: RefCell::default(),
    };
    let mut lane = Lane {
        executor: &executor,
        feed,
        dispatch: Dispatch::new(job.plan, job.site.seed, slots),
        tally: Tally::default(),
    };
    lane.dispatch.want(requests);
    let mut pool = Pool::default();
    let (told, mut written) = mpsc::unbounded_channel::<(u64, Written)>();
    let mut unwritten: HashMap<u64, Unwritten> = HashMap::new();
    let mut tickets = 0;
    let mut soon = stops.soon.clone();
    let mut is_late = stops.is_late();
    let mut is_stopped = is_late || soon.is_cancelled();
    if is_stopped {
        lane.dispatch.stop();
    }
    for turn in 1u64.. {
        // Steps that never wait, on a null machine, must not keep signals and clocks out.
        if turn.is_multiple_of(TURNS_WITHOUT_YIELD_MAX) {
            tokio::task::yield_now().await;
        }
        if !is_stopped && pool.is_empty() && unwritten.is_empty() && lane.dispatch.is_idle() {
            lane.ask();
        }
        while let Some((slot, action)) = lane.dispatch.next_action() {
            let executor = &executor;
            pool.push(async move { (slot, executor.carry_out(machine, slot, action).await) });
        }
        if pool.is_empty() && unwritten.is_empty() {
            break;
        }
        tokio::select! {
            biased;
            () = soon.cancelled(), if !is_stopped => {
                is_stopped = true;
                lane.dispatch.stop();
            }
            () = sleep_until(stops.deadline), if !is_stopped => {
                (is_stopped, is_late) = (true, true);
                lane.dispatch.stop();
            }
            Some((ticket, written)) = written.recv() => {
                let Some(Unwritten { news, slot }) = unwritten.remove(&ticket) else { continue };
                match written {
                    Ok(recorded) => lane.tell(news, recorded),
                    Err(error) => lane.fail(error.into()),
                }
                if let Some((slot, ended)) = slot {
                    lane.on(slot, ended);
                }
            }
            (slot, carried) = pool.next() => {
                let ActionResult { done, result, record, news } = carried;
                let ended = EndedAction { done, result };
                match record {
                    Some(record) => {
                        let (ticket, told) = (tickets, told.clone());
                        tickets += 1;
                        let slot = match waits {
                            true => Some((slot, ended)),
                            false => {
                                lane.on(slot, ended);
                                None
                            }
                        };
                        unwritten.insert(ticket, Unwritten { news, slot });
                        let tell = move |written| {
                            // Nobody listens any more where the run was given up.
                            let _ = told.send((ticket, written));
                        };
                        job.site.writer.write(record, waits, Box::new(tell));
                    }
                    None => {
                        lane.tell(news, Recorded::AlreadyDone);
                        lane.on(slot, ended);
                    }
                }
                if executor.fatal.borrow().is_some() {
                    is_stopped = true;
                    lane.dispatch.stop();
                }
            }
        }
    }
    drop(pool);
    if let Some((name, machine)) = job.machine(machine)
        && let Some(host) = machine.host.as_deref()
    {
        for slot in 0..machine.slots {
            let removed = remove(host, &machine.view().places.run_dir(slot)).await;
            removed.unwrap_or_else(|error| job.site.note(name, error.message));
        }
    }
    let Lane {
        dispatch,
        mut tally,
        ..
    } = lane;
    tally.interrupted = stops.soon.is_cancelled();
    tally.late = Some(dispatch.left()).filter(|left| is_late && *left != (0, 0));
    match executor.fatal.into_inner() {
        Some(error) => Err(error),
        None => Ok(tally),
    }
}

/// A machine's dispatcher between who feeds it and who carries its actions out.
struct Lane<'a> {
    executor: &'a Executor<'a>,
    feed: &'a dyn Feed,
    dispatch: Dispatch<'a>,
    tally: Tally,
}

impl Lane<'_> {
    /// Nothing can go on: what is set up is undone.
    fn fail(&mut self, error: RunError) {
        self.executor.fatal.borrow_mut().get_or_insert(error);
        self.dispatch.stop();
    }

    fn ask(&mut self) {
        match self.feed.more() {
            Ok(requests) => self.dispatch.want(&requests),
            Err(error) => self.fail(error),
        }
    }

    fn on(&mut self, slot: usize, ended: EndedAction) {
        self.dispatch.on(slot, ended.done);
        let Some(result) = ended.result else {
            return;
        };
        match self.feed.on(&result) {
            Ok(adjustments) => adjustments
                .into_iter()
                .for_each(|adjustment| self.dispatch.adjust(adjustment)),
            Err(error) => self.fail(error),
        }
    }

    /// Tells of what is durable now.
    fn tell(&mut self, news: Announcement, recorded: Recorded) {
        let site = self.executor.job.site;
        if news.is_sample && matches!(recorded, Recorded::New(_)) {
            self.tally.measured += 1;
        }
        news.events.into_iter().for_each(|event| site.tell(event));
        if let Some((failed, run, round)) = news.failed {
            site.tell(Event::Failed {
                cell: failed.cell.clone(),
                round,
                reason: failed.reason.clone(),
                given_up: self.dispatch.outstanding(run),
            });
            self.tally.failed.push(failed);
        }
    }
}

const TURNS_WITHOUT_YIELD_MAX: u64 = 64;

impl Stops {
    /// The time that was given is over.
    pub fn is_late(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= Instant::now())
    }
}

/// For ever where there is no deadline.
pub async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

impl Job<'_> {
    pub(super) fn machine(&self, machine: u16) -> Option<(&str, &Machine)> {
        let axis = self.plan.cells.axis("machine")?;
        let name = self.plan.cells.axes[axis]
            .labels
            .get(usize::from(machine))?;
        Some((name, self.site.machines.get(name)?))
    }
}

pub(super) struct Executor<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) cancel: Cancel,
    pub(super) up: RefCell<HashMap<(u16, usize, u32), Up>>,
    /// What makes going on impossible.
    pub(super) fatal: RefCell<Option<RunError>>,
}

impl Executor<'_> {
    async fn carry_out(&self, machine: u16, slot: usize, action: Action) -> ActionResult {
        match action {
            Action::SetUp { setup, step } => self.set_up(machine, setup, step).await,
            Action::Undo { setup, step } => {
                self.undo(machine, setup, step).await;
                ActionResult::only(Completed::Undo { setup, step })
            }
            Action::Measure { run, round } => {
                let carried = self.measure(machine, slot, run, round).await;
                carried.unwrap_or_else(|error| {
                    self.fatal.borrow_mut().get_or_insert(error);
                    let outcome = MeasureOutcome::Interrupted;
                    ActionResult::only(Completed::Measured {
                        run,
                        round,
                        outcome,
                    })
                })
            }
            Action::GiveUp { run, round, reason } => {
                let plan = self.job.plan;
                let cell = plan.cells.name(plan.cell_of(run as usize));
                let sample = Err(reason.clone());
                let failed = Failed { cell, reason };
                ActionResult {
                    done: Completed::GaveUp { run, round },
                    result: Some(CellResult { run, round, sample }),
                    record: None,
                    news: Announcement {
                        failed: Some((failed, run, round)),
                        ..Announcement::default()
                    },
                }
            }
        }
    }

    pub(super) fn record(
        &self,
        machine: u16,
        what: Recording,
        readings: &[NewReading],
        beside: SampleContext,
    ) -> Result<Record, StoreError> {
        let plan = self.job.plan;
        let version = plan
            .cells
            .axis("version")
            .map_or("", |axis| plan.cells.label(what.tuple, axis));
        let machine = self.job.machine(machine).map_or("", |(name, _)| name);
        let attempt = NewAttempt {
            session: self.job.site.session,
            kind: what.kind,
            key: what.key,
            round: what.round,
            cell: what.cell,
            machine,
            version,
            started_ms: what.started_ms,
            duration: what.duration,
            outcome: what.outcome,
            reason: what.reason,
            environment: self.job.around.environment(machine),
            log: Some(what.log.0.as_slice()).filter(|log| !log.is_empty()),
        };
        let store = self.job.site.store.borrow();
        store.prepare(&attempt, readings, beside)
    }
}

pub(super) struct Recording<'a> {
    pub(super) kind: StepKind,
    pub(super) key: Key,
    pub(super) round: u32,
    pub(super) cell: &'a str,
    pub(super) tuple: &'a [u16],
    pub(super) started_ms: i64,
    pub(super) duration: Duration,
    pub(super) outcome: store::AttemptOutcome,
    pub(super) reason: &'a str,
    pub(super) log: &'a Log,
}
