//! Owns carrying out a run: actions of the dispatcher on hosts, samples into the store, events out.
//! Does not know in which order steps come (run/dispatch does) nor what a result means.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{mpsc, watch};

use super::command::Log;
use super::dispatch::{Action, Dispatch, Done, Outcome};
use super::event::Event;
use super::prepare::{Machine, Machines};
use super::progress::Progress;
use super::repeat::Repetition;
use super::setup::{Up, put_away};
use super::surroundings::Surroundings;
use super::tune;
use crate::config::matrix::Via;
use crate::edge::host::{Cancel, Holder, HostError, Slot, Wait};
use crate::edge::parse::Parser;
use crate::edge::store::{self, Beside, Kind, NewAttempt, NewReading, Recorded, Store, StoreError};
use crate::edge::tune::TuneError;
use crate::plan::dag::{Plan, Todo};
use crate::words::key::Key;

/// A run could not go on. What was measured until then is stored.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Tune(#[from] TuneError),
    #[error("{0}")]
    Template(String),
    /// They would wait for each other's slot, or measure at the same time.
    #[error(
        "machines `{0}` and `{1}` are both this one (`via = \"local\"`), which measures one thing at a \
         time: run them one after the other, with `--only \"machine == '{0}'\"`"
    )]
    SameMachine(String, String),
    #[error(
        "{what} stopped: the disk is full ({reason}); make space there and run again: what is stored is whole"
    )]
    NoSpace { what: String, reason: String },
}

/// A cell of which no sample was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failed {
    pub cell: String,
    pub reason: String,
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub measured: u64,
    pub failed: Vec<Failed>,
    pub interrupted: bool,
}

/// Where and with what a session works.
pub struct Site<'a> {
    pub machines: &'a Machines,
    pub store: &'a RefCell<Store>,
    pub session: i64,
    pub seed: u64,
    pub progress: &'a RefCell<dyn Progress>,
}

impl Site<'_> {
    pub(super) fn tell(&self, event: Event) {
        self.progress.borrow_mut().event(&event);
    }

    pub(super) fn note(&self, machine: &str, what: String) {
        self.tell(Event::Note {
            machine: machine.to_owned(),
            what,
        });
    }
}

/// One message for each Ctrl-C.
pub type Interrupts = mpsc::UnboundedReceiver<()>;

/// What is run.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    pub site: &'a Site<'a>,
    pub plan: &'a Plan<'a>,
    pub parser: &'a Parser,
    pub around: &'a Surroundings,
}

/// Takes the measuring slots of these machines, in the order of their names so that two runs cannot
/// wait for each other, and puts away what a dead run has left on them.
pub async fn enter(
    site: &Site<'_>,
    purpose: &str,
    names: &BTreeSet<String>,
    cancel: &Cancel,
) -> Result<Vec<Slot>, RunError> {
    let is_local = |name: &&String| {
        site.machines
            .get(name)
            .is_some_and(|it| it.via == Via::Local)
    };
    let local: Vec<&String> = names.iter().filter(is_local).collect();
    if let [one, other, ..] = local[..] {
        return Err(RunError::SameMachine(one.clone(), other.clone()));
    }
    let mut slots = Vec::new();
    for name in names {
        let Some(
            machine @ Machine {
                host: Some(host), ..
            },
        ) = site.machines.get(name)
        else {
            continue;
        };
        let host = host.as_ref();
        let holder = Holder::this(purpose);
        let waiting = |holder: &str| {
            site.tell(Event::Waiting {
                machine: name.clone(),
                holder: holder.to_owned(),
            })
        };
        slots.push(host.lock(holder, &waiting, cancel.clone()).await?);
        let mut cleaned = host.clean().await?;
        machine.link_programs().await?;
        cleaned.extend(put_away(site, name, machine).await?);
        for what in cleaned {
            site.tell(Event::Cleaned {
                machine: name.clone(),
                what,
            });
        }
        tune::recover(site, name, host, machine).await?;
    }
    Ok(slots)
}

/// Runs all that is to be done. `interrupts` counts Ctrl-C: once stops after the step at hand, twice at
/// once; set-ups are undone in both cases.
pub async fn run(
    job: &Job<'_>,
    todo: &Todo,
    have: &dyn Fn(usize) -> Vec<u32>,
    repetition: Repetition,
    interrupts: &mut Interrupts,
) -> Result<Summary, RunError> {
    let (stop_at_once, cancel) = watch::channel(false);
    let mut dispatch = Dispatch::new(job.plan, todo, job.site.seed, have);
    let executor = Executor {
        job,
        cancel: Cancel::new(cancel),
        up: RefCell::default(),
        repetition: RefCell::new(repetition),
        fatal: RefCell::default(),
        measured: Cell::new(0),
        failed: RefCell::default(),
    };
    let mut pool = Pool::default();
    let mut interrupted = 0;
    loop {
        for machine in dispatch.machines() {
            if let Some(action) = dispatch.next(machine) {
                if let Action::GiveUp { run, round, reason } = &action {
                    executor.give_up(*run, *round, reason, dispatch.outstanding(*run));
                }
                let executor = &executor;
                pool.futures.push(Box::pin(async move {
                    (machine, executor.carry_out(machine, action).await)
                }));
            }
        }
        if pool.futures.is_empty() {
            break;
        }
        tokio::select! {
            (machine, done) = pool.next() => {
                if let Done::Measured { run, outcome: Outcome::Failed, .. } = &done {
                    executor.given_up(dispatch.outstanding(*run));
                }
                dispatch.on(machine, done);
                if executor.fatal.borrow().is_some() {
                    dispatch.stop();
                }
            }
            Some(()) = interrupts.recv() => {
                interrupted += 1;
                dispatch.stop();
                if interrupted == 2 {
                    let _ = stop_at_once.send(true);
                }
                if interrupted <= 2 {
                    job.site.tell(Event::Interrupted { at_once: interrupted == 2 });
                }
            }
        }
    }
    drop(pool);
    let summary = Summary {
        measured: executor.measured.get(),
        failed: executor
            .failed
            .into_inner()
            .into_iter()
            .map(|(failed, _)| failed)
            .collect(),
        interrupted: interrupted > 0,
    };
    job.site.tell(Event::Finished {
        measured: summary.measured,
        failed: summary.failed.len(),
    });
    match executor.fatal.into_inner() {
        Some(error) => Err(error),
        None => Ok(summary),
    }
}

/// Futures of which the first to end is taken out: one for each machine at the most.
#[derive(Default)]
struct Pool<'a> {
    futures: Vec<Wait<'a, (u16, Done)>>,
}

impl Pool<'_> {
    async fn next(&mut self) -> (u16, Done) {
        std::future::poll_fn(|context| {
            for index in 0..self.futures.len() {
                if let std::task::Poll::Ready(done) = self.futures[index].as_mut().poll(context) {
                    drop(self.futures.swap_remove(index));
                    return std::task::Poll::Ready(done);
                }
            }
            std::task::Poll::Pending
        })
        .await
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
    pub(super) repetition: RefCell<Repetition>,
    /// What makes going on impossible.
    pub(super) fatal: RefCell<Option<RunError>>,
    pub(super) measured: Cell<u64>,
    /// With the number of measurements given up with it, once known.
    pub(super) failed: RefCell<Vec<(Failed, u32)>>,
}

impl Executor<'_> {
    async fn carry_out(&self, machine: u16, action: Action) -> Done {
        match action {
            Action::SetUp { setup, step } => {
                let error = self.set_up(machine, setup, step).await;
                Done::SetUp { setup, step, error }
            }
            Action::Undo { setup, step } => {
                self.undo(machine, setup, step).await;
                Done::Undo { setup, step }
            }
            Action::Measure { run, round } => {
                let outcome = self.measure(machine, run, round).await;
                let outcome = outcome.unwrap_or_else(|error| {
                    self.fatal.borrow_mut().get_or_insert(error);
                    Outcome::Interrupted
                });
                Done::Measured {
                    run,
                    round,
                    outcome,
                }
            }
            Action::GiveUp { run, round, .. } => Done::GaveUp { run, round },
        }
    }

    pub(super) fn record(
        &self,
        machine: u16,
        what: Recording,
        readings: &[NewReading],
        beside: &Beside,
    ) -> Result<Recorded, StoreError> {
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
        let mut store = self.job.site.store.borrow_mut();
        store.record_with(&attempt, readings, beside)
    }

    fn give_up(&self, run: u32, round: u32, reason: &str, outstanding: u64) {
        let plan = self.job.plan;
        let cell = plan.cells.name(plan.cell_of(run as usize));
        let failed = Failed {
            cell,
            reason: reason.to_owned(),
        };
        self.failed.borrow_mut().push((failed, round));
        self.given_up(outstanding);
    }

    /// Tells of the latest failure, now that it is known what is given up with it.
    fn given_up(&self, given_up: u64) {
        if let Some((failed, round)) = self.failed.borrow().last() {
            self.job.site.tell(Event::Failed {
                cell: failed.cell.clone(),
                round: *round,
                reason: failed.reason.clone(),
                given_up,
            });
        }
    }
}

pub(super) struct Recording<'a> {
    pub(super) kind: Kind,
    pub(super) key: Key,
    pub(super) round: u32,
    pub(super) cell: &'a str,
    pub(super) tuple: &'a [u16],
    pub(super) started_ms: i64,
    pub(super) duration: Duration,
    pub(super) outcome: store::Outcome,
    pub(super) reason: &'a str,
    pub(super) log: &'a Log,
}
