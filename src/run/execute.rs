//! Owns carrying out a run: actions of the dispatcher on hosts, samples into the store, events out.
//! Does not know in which order steps come (run/dispatch does) nor what a result means.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use super::dispatch::{Action, Dispatch, Done, Outcome};
use super::event::Event;
use super::null;
use super::prepare::{Machine, Machines};
use super::progress::Progress;
use super::repeat::Repetition;
use crate::edge::host::{Cancel, Command, FileOp, Holder, Host, HostError, Output, ServiceId, Slot, Wait};
use crate::edge::parse::{Input, OUTPUT_BYTES_MAX, Parser};
use crate::edge::store::{self, Kind, NewAttempt, NewReading, Recorded, Store, StoreError};
use crate::plan::dag::{Plan, Todo};
use crate::plan::resolve::{Words, show_words};
use crate::words::key::Key;
use crate::words::sample::{Better, Ended, Parsed, Reading};

/// Readings of one run step that are kept beside the declared ones.
const UNDECLARED_READINGS_MAX: usize = 256;
/// Bytes of a log's part that are kept.
const LOG_PART_BYTES_MAX: usize = 1 << 20;
/// Pause between two probes of a service; it doubles up to the second.
const READY_PAUSE: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];
/// For one probe, whatever the set-up's own limit is.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// A run could not go on. What was measured until then is stored.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("{0}")]
    Template(String),
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

/// What is run, and with what.
pub struct Job<'a> {
    pub plan: &'a Plan<'a>,
    pub machines: &'a Machines,
    pub parser: &'a Parser,
    pub store: &'a RefCell<Store>,
    pub session: i64,
    pub seed: u64,
    pub progress: &'a RefCell<dyn Progress>,
}

/// How to undo a set-up; kept in the store while it is up, for whoever comes after a crash.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Undo {
    dir: String,
    commands: Vec<Words>,
    env: Vec<(String, String)>,
    timeout_s: f64,
}

/// A set-up that is up.
struct Up {
    journal: i64,
    undo: Undo,
    service: Option<ServiceId>,
}

/// Takes the measuring slots of all machines, in the order of their names so that two runs cannot
/// wait for each other, and puts away what a dead run has left on them.
pub async fn enter(job: &Job<'_>, names: &[String], cancel: &Cancel) -> Result<Vec<Slot>, RunError> {
    let mut names: Vec<&String> = names.iter().collect();
    names.sort();
    let mut slots = Vec::new();
    for name in names {
        let Some(machine @ Machine { host: Some(host), .. }) = job.machines.get(name) else {
            continue;
        };
        let host = host.as_ref();
        let holder = Holder {
            pid: std::process::id(),
            user: std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "?".to_owned()),
            purpose: job.plan.matrix.name.clone(),
            since: jiff::Timestamp::now().to_string(),
        };
        let waiting = |holder: &str| {
            job.tell(Event::Waiting {
                machine: name.clone(),
                holder: holder.to_owned(),
            })
        };
        slots.push(host.lock(holder, &waiting, cancel.clone()).await?);
        let mut cleaned = host.clean().await?;
        machine.link_programs().await?;
        let left = job.store.borrow().live_left_by(|session, _| session != job.session)?;
        for live in left.into_iter().filter(|live| live.machine == *name) {
            if let Ok(undo) = serde_json::from_str::<Undo>(&live.what) {
                let failed = undo_commands(host, &undo).await;
                match remove(host, &undo.dir).await {
                    Ok(()) => cleaned.push(format!("set-up in {}", undo.dir)),
                    Err(error) => {
                        return Err(RunError::Host(HostError {
                            message: format!(
                                "a dead run left {}, and it cannot be put away: {}{error}",
                                undo.dir,
                                failed.map(|reason| format!("{reason}; ")).unwrap_or_default()
                            ),
                            kind: error.kind,
                        }));
                    }
                }
            }
            job.store.borrow().live_end(live.id)?;
        }
        for what in cleaned {
            job.tell(Event::Cleaned {
                machine: name.clone(),
                what,
            });
        }
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
    interrupts: &mut mpsc::UnboundedReceiver<()>,
) -> Result<Summary, RunError> {
    let (stop_at_once, cancel) = watch::channel(false);
    let mut dispatch = Dispatch::new(job.plan, todo, job.seed, have);
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
                pool.futures.push(Box::pin(async move { (machine, executor.carry_out(machine, action).await) }));
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
                    job.tell(Event::Interrupted { at_once: interrupted == 2 });
                }
            }
        }
    }
    drop(pool);
    let summary = Summary {
        measured: executor.measured.get(),
        failed: executor.failed.into_inner().into_iter().map(|(failed, _)| failed).collect(),
        interrupted: interrupted > 0,
    };
    job.tell(Event::Finished {
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
    fn tell(&self, event: Event) {
        self.progress.borrow_mut().event(&event);
    }

    fn machine(&self, machine: u16) -> Option<(&str, &Machine)> {
        let axis = self.plan.cells.axis("machine")?;
        let name = self.plan.cells.axes[axis].labels.get(usize::from(machine))?;
        Some((name, self.machines.get(name)?))
    }
}

struct Executor<'a> {
    job: &'a Job<'a>,
    cancel: Cancel,
    up: RefCell<HashMap<(u16, usize, u32), Up>>,
    repetition: RefCell<Repetition>,
    /// What makes going on impossible.
    fatal: RefCell<Option<RunError>>,
    measured: Cell<u64>,
    /// With the number of measurements given up with it, once known.
    failed: RefCell<Vec<(Failed, u32)>>,
}

/// A measurement's good end.
struct Measured {
    metrics: Vec<Reading>,
    warnings: Vec<String>,
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
                Done::Measured { run, round, outcome }
            }
            Action::GiveUp { run, round, .. } => Done::GaveUp { run, round },
        }
    }

    async fn set_up(&self, machine: u16, setup: usize, step: u32) -> Option<String> {
        let plan = self.job.plan;
        let name = plan.matrix.setups[setup].name.value.clone();
        let shared = &plan.setups[setup].steps[step as usize];
        let tuple = plan.cells.cell(shared.cell as usize);
        let cell = plan.scope().name_of(tuple, &visible(plan, &plan.setups[setup].axes));
        self.job.tell(Event::SetupStarted {
            setup: name.clone(),
            cell: cell.clone(),
        });
        let clock = Instant::now();
        let started_ms = now_ms();
        let mut log = Log::default();
        let error = self.try_set_up(machine, setup, step, &mut log).await.err();
        let duration = clock.elapsed();
        if error.is_some() {
            self.undo(machine, setup, step).await;
        }
        let recorded = self.record(
            machine,
            Recording {
                kind: Kind::Setup,
                key: shared.key,
                round: 0,
                cell: &cell,
                tuple,
                started_ms,
                duration,
                outcome: if error.is_some() { store::Outcome::Failed } else { store::Outcome::Ok },
                reason: error.as_deref().unwrap_or(""),
                log: &log,
            },
            &[],
        );
        if let Err(error) = recorded {
            self.fatal.borrow_mut().get_or_insert(error.into());
        }
        self.job.tell(Event::SetupDone {
            setup: name.clone(),
            cell,
            duration_s: duration.as_secs_f64(),
            error: error.clone(),
        });
        error.map(|error| format!("set-up `{name}`: {error}"))
    }

    async fn try_set_up(&self, machine: u16, setup: usize, step: u32, log: &mut Log) -> Result<(), String> {
        let plan = self.job.plan;
        let Some((machine_name, Machine { host: Some(host), places, .. })) = self.job.machine(machine) else {
            return Ok(());
        };
        let cell = plan.setups[setup].steps[step as usize].cell;
        let timeout = plan.matrix.setups[setup].timeout;
        let commands = plan
            .setup_commands(setup, step, places)
            .map_err(|diagnostic| diagnostic.message)?;
        let dir = plan.setup_dir(setup, step, places);
        let env = plan.environment(cell).map_err(|diagnostic| diagnostic.message)?;
        let undo = Undo {
            dir: dir.clone(),
            commands: commands.undo,
            env: env.clone(),
            timeout_s: timeout.as_secs_f64(),
        };
        // Written down before anything is done: a crash must find it.
        let what = serde_json::to_string(&undo).map_err(|error| error.to_string())?;
        let journal = self.job.store.borrow().live_begin(self.job.session, machine_name, &what);
        let journal = journal.map_err(|error| error.to_string())?;
        self.up.borrow_mut().insert((machine, setup, step), Up { journal, undo, service: None });

        make_dir(host.as_ref(), &dir).await.map_err(|error| error.message)?;
        let command = |argv: &Words, timeout| command(argv, &dir, &env, timeout);
        for argv in &commands.run {
            log.command(argv);
            let output = host.run(command(argv, timeout), self.cancel.clone()).await;
            let output = output.map_err(|error| error.message)?;
            log.output(&output);
            if !output.ended.is_success() {
                return Err(format!("`{}`: {}{}", show_words(argv), output.ended, last_words(&output)));
            }
        }
        let Some(service) = &commands.service else {
            return Ok(());
        };
        log.command(service);
        let id = host.start(command(service, Duration::MAX)).await.map_err(|error| error.message)?;
        if let Some(up) = self.up.borrow_mut().get_mut(&(machine, setup, step)) {
            up.service = Some(id);
        }
        let deadline = Instant::now() + timeout;
        let mut pause = READY_PAUSE[0];
        loop {
            if let Some(output) = host.ended(id).await {
                log.output(&output);
                return Err(format!("`{}` ended: {}{}", show_words(service), output.ended, last_words(&output)));
            }
            let Some(ready) = &commands.ready else {
                return Ok(());
            };
            let probe = host.run(command(ready, PROBE_TIMEOUT.min(timeout)), self.cancel.clone()).await;
            let probe = probe.map_err(|error| error.message)?;
            if probe.ended.is_success() {
                return Ok(());
            }
            if self.cancel.is_cancelled() {
                return Err("interrupted".to_owned());
            }
            if Instant::now() >= deadline {
                log.command(ready);
                log.output(&probe);
                return Err(format!(
                    "not ready after {}: `{}`: {}{}",
                    crate::words::units::show_duration(timeout),
                    show_words(ready),
                    probe.ended,
                    last_words(&probe)
                ));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(READY_PAUSE[1]);
        }
    }

    async fn undo(&self, machine: u16, setup: usize, step: u32) {
        let Some(up) = self.up.borrow_mut().remove(&(machine, setup, step)) else {
            return;
        };
        let Some((_, Machine { host: Some(host), .. })) = self.job.machine(machine) else {
            return;
        };
        if let Some(service) = up.service {
            // Its output told what was wrong while it was needed; now it only has to be gone.
            let _ = host.stop(service).await;
        }
        let failed = undo_commands(host.as_ref(), &up.undo).await;
        let removed = remove(host.as_ref(), &up.undo.dir).await.err();
        let error = removed.map(|error| match failed {
            Some(reason) => format!("{reason}; {error}"),
            None => error.message,
        });
        // What is left behind stays in the journal: the next run tries again.
        if error.is_none()
            && let Err(error) = self.job.store.borrow().live_end(up.journal)
        {
            self.fatal.borrow_mut().get_or_insert(error.into());
        }
        self.job.tell(Event::Undone {
            setup: self.job.plan.matrix.setups[setup].name.value.clone(),
            error,
        });
    }

    async fn measure(&self, machine: u16, run: u32, round: u32) -> Result<Outcome, RunError> {
        let plan = self.job.plan;
        let step = plan.runs.steps[run as usize];
        let tuple = plan.cells.cell(step.cell as usize);
        let cell = plan.cells.name(tuple);
        self.job.tell(Event::RunStarted {
            cell: cell.clone(),
            round,
        });
        let clock = Instant::now();
        let started_ms = now_ms();
        let mut log = Log::default();
        let result = match self.job.machine(machine) {
            Some((_, Machine { host: Some(host), places, .. })) => {
                let command = plan
                    .run_command(step.cell, round, self.job.seed, places)
                    .map_err(|diagnostic| RunError::Template(diagnostic.message))?;
                let dir = plan.run_dir(run, places);
                self.measure_on(host.as_ref(), step.cell, &command, &dir, &mut log).await
            }
            Some((_, Machine { noise, .. })) => self.generate(step.cell, round, *noise),
            None => Err((store::Outcome::Failed, "the machine is not known".to_owned())),
        };
        // Readings alone do not make a sample if what was measured had died meanwhile.
        let result = match (result, self.dead_service(machine).await) {
            (Ok(_), Some(reason)) => Err((store::Outcome::Failed, reason)),
            (Err((outcome, reason)), Some(dead)) => Err((outcome, format!("{dead}\n{reason}"))),
            (result, None) => result,
        };
        let result = result.and_then(|measured| {
            let chosen = self.choose(step.cell, &measured.metrics);
            chosen.map(|chosen| (chosen, measured)).map_err(|reason| (store::Outcome::Refused, reason))
        });
        let duration = clock.elapsed();
        let (outcome, reason) = match &result {
            Ok(_) => (store::Outcome::Ok, ""),
            Err((outcome, reason)) => (*outcome, reason.as_str()),
        };
        let readings: Vec<NewReading> = match &result {
            Ok((chosen, measured)) => readings(chosen, &measured.metrics),
            Err(_) => Vec::new(),
        };
        let recording = Recording {
            kind: Kind::Run,
            key: step.key,
            round,
            cell: &cell,
            tuple,
            started_ms,
            duration,
            outcome,
            reason,
            log: &log,
        };
        let recorded = self.record(machine, recording, &readings)?;
        match result {
            Ok((chosen, measured)) => {
                if let Recorded::New(_) = recorded {
                    self.measured.set(self.measured.get() + 1);
                }
                let names = plan.matrix.metrics.iter().map(|metric| metric.name.clone());
                let values: Vec<f64> = chosen.iter().map(|reading| reading.value).collect();
                self.job.tell(Event::RunDone {
                    cell: cell.clone(),
                    round,
                    duration_s: duration.as_secs_f64(),
                    metrics: names.zip(values.iter().copied()).collect(),
                    warnings: measured.warnings,
                });
                self.repetition.borrow_mut().add(run, &values);
                let enough = self.repetition.borrow().is_enough(plan, run).map_err(RunError::Template)?;
                if plan.repeat.until.is_some() && !enough && round + 1 >= plan.repeat.min {
                    self.job.tell(Event::Repeats { cell, more: true });
                }
                Ok(Outcome::Sample { enough })
            }
            Err((store::Outcome::Interrupted, _)) => Ok(Outcome::Interrupted),
            Err((_, reason)) => {
                self.failed.borrow_mut().push((Failed { cell, reason }, round));
                Ok(Outcome::Failed)
            }
        }
    }

    async fn measure_on(
        &self,
        host: &dyn Host,
        cell: u32,
        argv: &Words,
        dir: &str,
        log: &mut Log,
    ) -> Result<Measured, (store::Outcome, String)> {
        let infrastructure = |error: HostError| (store::Outcome::Failed, error.message);
        let env = self.job.plan.environment(cell);
        let env = env.map_err(|diagnostic| (store::Outcome::Failed, diagnostic.message))?;
        make_dir(host, dir).await.map_err(infrastructure)?;
        log.command(argv);
        let command = command(argv, dir, &env, self.job.plan.matrix.run.timeout);
        let output = host.run(command, self.cancel.clone()).await;
        let removed = remove(host, dir).await;
        let output = output.map_err(infrastructure)?;
        removed.map_err(infrastructure)?;
        log.output(&output);
        let outcome = match output.ended {
            Ended::Interrupted => return Err((store::Outcome::Interrupted, "interrupted".to_owned())),
            Ended::TimedOut => store::Outcome::Timeout,
            Ended::Exit(0) => store::Outcome::Refused,
            _ => store::Outcome::Failed,
        };
        let parsed = self.job.parser.parse(&Input {
            stdout: &output.stdout,
            stderr: &output.stderr,
            ended: output.ended,
        });
        match parsed {
            Parsed::Readings { metrics, mut warnings } => {
                if !output.leftovers.is_empty() {
                    warnings.push(format!("left processes behind, which were ended: {}", output.leftovers.join(", ")));
                }
                Ok(Measured { metrics, warnings })
            }
            Parsed::Refused { reason } => Err((outcome, reason)),
        }
    }

    fn generate(&self, cell: u32, round: u32, noise: f64) -> Result<Measured, (store::Outcome, String)> {
        let plan = self.job.plan;
        let tuple = plan.cells.cell(cell as usize);
        let version = plan.cells.axis("version");
        let label = version.map_or("", |axis| plan.cells.label(tuple, axis));
        let without: Vec<usize> = version.into_iter().collect();
        let name = plan.cells.name_without(tuple, &without);
        let names = plan.metric_names(cell);
        let names = names.map_err(|diagnostic| (store::Outcome::Failed, diagnostic.message))?;
        let metrics = names
            .into_iter()
            .zip(&plan.matrix.metrics)
            .map(|(from, metric)| Reading {
                value: null::value(&name, &from, label, round, self.job.seed, noise),
                name: from,
                unit: metric.unit.clone().unwrap_or_default(),
                better: metric.better.or(Some(Better::Higher)),
            })
            .collect();
        Ok(Measured {
            metrics,
            warnings: Vec::new(),
        })
    }

    /// The declared metrics of a cell, in their order, with unit and direction settled.
    fn choose(&self, cell: u32, readings: &[Reading]) -> Result<Vec<Reading>, String> {
        let plan = self.job.plan;
        let names = plan.metric_names(cell).map_err(|diagnostic| diagnostic.message)?;
        let mut chosen = Vec::new();
        for (name, metric) in names.iter().zip(&plan.matrix.metrics) {
            let Some(reading) = readings.iter().find(|reading| reading.name == *name) else {
                let known = readings.iter().map(|reading| reading.name.as_str()).collect::<Vec<_>>();
                return Err(format!(
                    "no `{name}` in the output, which metric `{}` is taken from; {}",
                    metric.name,
                    crate::words::diag::suggest(name, known)
                ));
            };
            let better = match (metric.better, reading.better) {
                (Some(ours), Some(theirs)) if ours != theirs => {
                    return Err(format!(
                        "metric `{}` is declared better = \"{}\", but the parser knows that {} `{name}` is better",
                        metric.name,
                        ours.name(),
                        theirs.name()
                    ));
                }
                (ours, theirs) => ours.or(theirs),
            };
            if better.is_none() {
                return Err(format!(
                    "nobody says which direction of metric `{0}` is better: add `better = \"lower\"` or `\"higher\"` to `[metrics.{0}]`",
                    metric.name
                ));
            }
            chosen.push(Reading {
                name: name.clone(),
                value: reading.value,
                unit: metric.unit.clone().unwrap_or_else(|| reading.unit.clone()),
                better,
            });
        }
        Ok(chosen)
    }

    /// Why what is measured is not there any more, if so.
    async fn dead_service(&self, machine: u16) -> Option<String> {
        let (_, Machine { host: Some(host), .. }) = self.job.machine(machine)? else {
            return None;
        };
        let services: Vec<(usize, ServiceId)> = {
            let up = self.up.borrow();
            let here = up.iter().filter(|((of, _, _), _)| *of == machine);
            here.filter_map(|((_, setup, _), up)| Some((*setup, up.service?))).collect()
        };
        for (setup, service) in services {
            if let Some(output) = host.ended(service).await {
                let name = &self.job.plan.matrix.setups[setup].name.value;
                return Some(format!("set-up `{name}` ended meanwhile: {}{}", output.ended, last_words(&output)));
            }
        }
        None
    }

    fn record(&self, machine: u16, what: Recording, readings: &[NewReading]) -> Result<Recorded, StoreError> {
        let plan = self.job.plan;
        let version = plan.cells.axis("version").map_or("", |axis| plan.cells.label(what.tuple, axis));
        let attempt = NewAttempt {
            session: self.job.session,
            kind: what.kind,
            key: what.key,
            round: what.round,
            cell: what.cell,
            machine: self.job.machine(machine).map_or("", |(name, _)| name),
            version,
            started_ms: what.started_ms,
            duration: what.duration,
            outcome: what.outcome,
            reason: what.reason,
            environment: None,
            log: Some(what.log.0.as_slice()).filter(|log| !log.is_empty()),
        };
        self.job.store.borrow_mut().record(&attempt, readings)
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
            self.job.tell(Event::Failed {
                cell: failed.cell.clone(),
                round: *round,
                reason: failed.reason.clone(),
                given_up,
            });
        }
    }
}

struct Recording<'a> {
    kind: Kind,
    key: Key,
    round: u32,
    cell: &'a str,
    tuple: &'a [u16],
    started_ms: i64,
    duration: Duration,
    outcome: store::Outcome,
    reason: &'a str,
    log: &'a Log,
}

/// What the store keeps of a measurement: the declared metrics, and as many others as it may, so
/// that a metric added to the matrix later finds its values.
fn readings<'a>(chosen: &'a [Reading], all: &'a [Reading]) -> Vec<NewReading<'a>> {
    let others = all.iter().filter(|reading| !chosen.iter().any(|own| own.name == reading.name));
    let others = others.filter(|reading| reading.better.is_some()).take(UNDECLARED_READINGS_MAX);
    chosen
        .iter()
        .chain(others)
        .filter_map(|reading| {
            Some(NewReading {
                metric: &reading.name,
                value: reading.value,
                unit: &reading.unit,
                better: reading.better?,
            })
        })
        .collect()
}

/// Axes that a person sees in names.
fn visible(plan: &Plan, axes: &[usize]) -> Vec<usize> {
    axes.iter().copied().filter(|&axis| !plan.cells.axes[axis].silent).collect()
}

fn command(argv: &Words, dir: &str, env: &[(String, String)], timeout: Duration) -> Command {
    Command {
        argv: argv.clone(),
        dir: dir.into(),
        env: env.to_vec(),
        stdin: Vec::new(),
        timeout,
        output_bytes_max: OUTPUT_BYTES_MAX,
    }
}

/// Runs all commands even if one fails; the first failure in words.
async fn undo_commands(host: &dyn Host, undo: &Undo) -> Option<String> {
    let mut failed = None;
    // Without its folder nothing had been done yet.
    let there = host.files(vec![FileOp::List { path: Path::new(&undo.dir).into() }]).await;
    if there.first().is_none_or(|reply| reply.is_err()) {
        return None;
    }
    let timeout = Duration::try_from_secs_f64(undo.timeout_s).unwrap_or(PROBE_TIMEOUT);
    for argv in &undo.commands {
        let command = command(argv, &undo.dir, &undo.env, timeout);
        let reason = match host.run(command, Cancel::never()).await {
            Ok(output) if output.ended.is_success() => None,
            Ok(output) => Some(format!("`{}`: {}{}", show_words(argv), output.ended, last_words(&output))),
            Err(error) => Some(error.message),
        };
        failed = failed.or(reason);
    }
    failed
}

async fn make_dir(host: &dyn Host, dir: &str) -> Result<(), HostError> {
    one(host, FileOp::MakeDir { path: dir.into() }).await
}

async fn remove(host: &dyn Host, dir: &str) -> Result<(), HostError> {
    one(host, FileOp::Remove { path: dir.into() }).await
}

async fn one(host: &dyn Host, op: FileOp) -> Result<(), HostError> {
    host.files(vec![op]).await.pop().map_or(Ok(()), |reply| reply.map(|_| ()))
}

/// What a program said last, for a message: `: its last lines`.
fn last_words(output: &Output) -> String {
    const LINES_MAX: usize = 3;
    const BYTES_MAX: usize = 400;
    let text = match output.stderr.iter().all(u8::is_ascii_whitespace) {
        true => String::from_utf8_lossy(&output.stdout),
        false => String::from_utf8_lossy(&output.stderr),
    };
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LINES_MAX)..].join("; ");
    let mut start = last.len().saturating_sub(BYTES_MAX);
    while !last.is_char_boundary(start) {
        start += 1;
    }
    match &last[start..] {
        "" => String::new(),
        last => format!(": {last}"),
    }
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as i64)
}

/// The log of an attempt: commands and what they printed.
#[derive(Default)]
struct Log(Vec<u8>);

impl Log {
    fn command(&mut self, argv: &Words) {
        let line = show_words(argv);
        self.0.extend_from_slice(format!("$ {line}\n").as_bytes());
    }

    fn output(&mut self, output: &Output) {
        for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            if !bytes.is_empty() {
                self.0.extend_from_slice(format!("--- {name}\n").as_bytes());
                self.0.extend_from_slice(&bytes[..bytes.len().min(LOG_PART_BYTES_MAX)]);
                if bytes.len() > LOG_PART_BYTES_MAX {
                    self.0.extend_from_slice(b"\n(cut)");
                }
                self.0.push(b'\n');
            }
        }
        self.0.extend_from_slice(format!("--- {}\n", output.ended).as_bytes());
    }
}
