//! A session: what is chosen is built and measured on each machine, machines side by side.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::load::{Loaded, Targets};
use super::show::Stop;
use super::{Common, Exit};
use crate::base::units::{exact_duration, parse_duration};
use crate::edge::store::{SessionStart, Store};
use crate::machine::host::{Cancel, HostErrorKind};
use crate::plan::dag::{self, Plan};
use crate::resolve::inputs;
use crate::resolve::lookup::Failed;
use crate::resolve::lookup::{self, StepTimes};
use crate::resolve::prepare::Machines;
use crate::resolve::selection::{Chosen, LeftOut, Out, SelectionOptions, choose, choose_again};
use crate::run::build::{self, BrokenBuilds, Workplace};
use crate::run::command::now_ms;
use crate::run::event::Event;
use crate::run::execute::{self, Job, RunError, Site, Stops, Tally};
use crate::run::machine_session::MachineSessions;
use crate::run::pool::Pool;
use crate::run::progress::{Progress, Several, say};
use crate::run::strategy::calibrate;
use crate::run::strategy::confirm;
use crate::verdicts::history::preset_name;

/// What is measured beside what is missing, or instead of it.
#[derive(Clone, Debug, Default, Args)]
pub struct SelectionArgs {
    /// Measure again whatever is stored; new rounds are added to those that there are
    #[arg(long)]
    pub fresh: bool,
    /// Only what failed last time: measurements, and builds, which are not tried again otherwise
    #[arg(long)]
    pub failed: bool,
    /// Measure again what is older than this, such as `30d`, instead of the matrix's `max_age`
    #[arg(long, value_name = "AGE", value_parser = duration)]
    pub max_age: Option<Duration>,
    /// Stop after this time, such as `2h`: what was never measured first, then what is too old or not
    /// settled, then the rest
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "a duration such as `2h30m` or `30d`".to_owned())
}

impl SelectionArgs {
    fn asked(&self) -> SelectionOptions {
        SelectionOptions {
            fresh: self.fresh,
            failed: self.failed,
            max_age: self.max_age,
            budget: self.budget,
        }
    }

    /// The options that choose the same once more.
    pub fn words(&self) -> Vec<String> {
        let flags = [("--fresh", self.fresh), ("--failed", self.failed)];
        let flags = flags.into_iter().filter(|(_, given)| *given);
        let times = [("--max-age", self.max_age), ("--budget", self.budget)];
        let times = times
            .into_iter()
            .filter_map(|(name, time)| Some([name.to_owned(), exact_duration(time?)]));
        let flags = flags.map(|(name, _)| name.to_owned());
        flags.chain(times.flatten()).collect()
    }

    /// What of a plan is to be done, on the machines of these names or on all.
    pub fn choose(
        &self,
        plan: &Plan,
        loaded: &Loaded,
        machines: &Machines,
        store: Option<&Store>,
        names: Option<&BTreeSet<String>>,
    ) -> Result<Chosen, Stop> {
        let known = lookup::known(plan, store, &loaded.artifacts)?;
        let asked = self.asked();
        Ok(choose(
            plan,
            known,
            store,
            &asked,
            machines,
            names,
            now_ms(),
        )?)
    }
}

/// What a session is to do, and with what.
pub struct Session<'a> {
    pub common: &'a Common,
    pub choosing: &'a SelectionArgs,
    /// Rounds of a calibration: then nothing else is measured.
    pub calibrate: Option<u32>,
    pub loaded: &'a Loaded,
    pub looked: &'a Targets,
    pub store: &'a RefCell<Store>,
    pub progress: &'a RefCell<Several>,
}

/// What a session came to.
pub struct Ran {
    pub id: i64,
    pub summary: Tally,
    pub left_out: Option<LeftOut>,
}

impl<'a> Session<'a> {
    pub fn plan(&self) -> Result<Plan<'a>, Stop> {
        let world = self.loaded.world(self.looked, Some(&self.store.borrow()))?;
        self.loaded.plan(self.common, self.looked, &world)
    }

    pub fn tell(&self, event: Event) {
        self.progress.borrow_mut().event(&event);
    }

    /// Says that all is over: once, also where something went wrong.
    pub fn finished(&self, summary: &Tally) {
        self.tell(Event::Finished {
            measured: summary.measured,
            failed: summary.failed.len(),
        });
    }

    /// Builds and measures what was chosen on the machines of these names, then measures again what
    /// looks like a change.
    pub async fn run(
        &self,
        names: &BTreeSet<String>,
        chosen: Chosen,
        signals: &mut Signals,
    ) -> Result<Ran, Stop> {
        let arguments: Vec<String> = std::env::args_os()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        let session = self.store.borrow().begin_session(&SessionStart {
            started_ms: now_ms(),
            matrix: &self.loaded.matrix.name,
            preset: preset_name(&self.loaded.matrix, self.common.preset.as_deref()),
            seed: self.common.seed,
            arguments: &arguments.join(" "),
            program_version: env!("CARGO_PKG_VERSION"),
            process: &std::process::id().to_string(),
        })?;
        let writer = self.store.borrow().writer()?;
        let site = Site {
            machines: &self.looked.machines,
            store: self.store,
            writer: &writer,
            session,
            seed: self.common.seed,
            progress: self.progress,
        };
        self.note_versions(session);
        let result = self.work(&site, names, chosen, signals).await;
        let outcome = match &result {
            Ok((summary, _)) if summary.interrupted => "interrupted",
            Ok((summary, _)) if !summary.failed.is_empty() => "failed",
            Ok(_) => "ok",
            Err(_) => "error",
        };
        let ended = self.store.borrow().end_session(session, now_ms(), outcome);
        let (summary, left_out) = result?;
        ended?;
        Ok(Ran {
            id: session,
            summary,
            left_out,
        })
    }

    /// Only the order of a series rests on it: what goes wrong does not stop a run.
    fn note_versions(&self, session: i64) {
        let (versions, store) = (&self.looked.versions, self.store.borrow());
        if let Err(error) = versions.note(&store, &self.loaded.matrix.name, session) {
            say(&format!(
                "note: it is not known where the versions stand in the history: {error}"
            ));
        }
    }

    async fn work(
        &self,
        site: &Site<'_>,
        names: &BTreeSet<String>,
        chosen: Chosen,
        signals: &mut Signals,
    ) -> Result<(Tally, Option<LeftOut>), Stop> {
        let [soon, at_once, waits] = [(); 3].map(|()| watch::channel(false));
        let stops = Stops {
            soon: Cancel::new(soon.1),
            at_once: Cancel::new(at_once.1),
            waits: Cancel::new(waits.1),
            deadline: self.choosing.budget.map(|budget| Instant::now() + budget),
        };
        let all = self.on_all(site, names, chosen, &stops);
        tokio::pin!(all);
        let (mut interrupts, mut is_late) = (0, false);
        loop {
            tokio::select! {
                result = &mut all => return result,
                () = execute::sleep_until(stops.deadline), if !is_late => {
                    is_late = true;
                    let _ = waits.0.send(true);
                }
                Some(()) = signals.recv() => {
                    interrupts += 1;
                    // Fails only when nobody works any more.
                    let _ = if interrupts == 1 { &soon.0 } else { &at_once.0 }.send(true);
                    let _ = waits.0.send(true);
                    if interrupts <= 2 {
                        site.tell(Event::Interrupted { at_once: interrupts == 2 });
                    }
                }
            }
        }
    }

    async fn on_all(
        &self,
        site: &Site<'_>,
        names: &BTreeSet<String>,
        chosen: Chosen,
        stops: &Stops,
    ) -> Result<(Tally, Option<LeftOut>), Stop> {
        let began = Instant::now();
        // Kept to the end: what builds gave must not be removed meanwhile.
        let _held = self.loaded.artifacts.hold().map_err(|error| {
            Stop::message(format!("`{}`: {error}", self.loaded.state.display()))
        })?;
        let planned = self.announce(site, &chosen)?;
        let around = MachineSessions::new(&self.loaded.monitors);
        let mut pool = Pool::default();
        for name in names {
            let planned = planned.get(name).copied().unwrap_or_default();
            let part = self.on_machine(site, name, planned, &chosen.out, &around, stops);
            pool.push(async move { part.await.map_err(|stop| stop.on(name)) });
        }
        let mut total = Tally::default();
        let mut result = Ok(());
        while !pool.is_empty() {
            match pool.next().await {
                Ok(summary) => total.add(summary),
                // The other machines go on.
                Err(error) => result = result.and(Err(error)),
            }
        }
        let is_over = stops.soon.is_cancelled() || total.late.is_some();
        if result.is_ok() && !is_over && self.calibrate.is_none() {
            let again = self.confirm(site, names, &around, stops).await;
            // What a rerun lacks is no cell that was left out.
            result = again.map(|again| {
                total.add(Tally {
                    late: None,
                    ..again
                })
            });
        }
        // Whatever came of it: the machines are put back before anybody else may have them.
        let left = around.leave(site).await.map_err(stop_of);
        result?;
        left?;
        total.interrupted = stops.soon.is_cancelled();
        let mut left_out = self.choosing.budget.map(|_| chosen.out.left_out);
        if let (Some(left_out), Some((cells, measurements))) = (&mut left_out, total.late) {
            // At the pace until now.
            let each = began.elapsed().as_secs_f64() / total.measured.max(1) as f64;
            let late = LeftOut {
                cells,
                measurements,
                estimate_s: each * measurements as f64,
            };
            site.tell(Event::LeftOut(late));
            left_out.add(late);
        }
        Ok((total, left_out))
    }

    /// Waits for a machine, then builds and measures there: `planned` cells and measurements, as was
    /// thought before.
    async fn on_machine(
        &self,
        site: &Site<'_>,
        name: &str,
        planned: (usize, u64),
        out: &Out,
        around: &MachineSessions,
        stops: &Stops,
    ) -> Result<Tally, Stop> {
        let not_begun = || Tally {
            late: Some(planned).filter(|_| !stops.soon.is_cancelled()),
            ..Tally::default()
        };
        let entered = execute::enter(site, &self.loaded.matrix.name, name, &stops.waits).await;
        match entered {
            Err(RunError::Host(error)) if error.kind == HostErrorKind::Cancelled => {
                return Ok(not_begun());
            }
            lock => around.keep(lock.map_err(stop_of)?),
        }
        let broken = self.build(site, name, out, &stops.waits).await?;
        if stops.waits.is_cancelled() {
            return Ok(not_begun());
        }
        // Whoever had the machine before may have done some of it, and builds may have come out equal.
        let plan = self.plan()?;
        let mut chosen = self.choose_again(&plan, out)?;
        let world = self.loaded.world(self.looked, Some(&self.store.borrow()))?;
        inputs::record(
            &plan,
            &chosen.known.todo,
            &world,
            &self.store.borrow(),
            site.session,
        )??;
        let in_use = plan.steps.subjects.artifacts();
        let matrix = &self.loaded.matrix.name;
        self.store.borrow().put_artifacts_in_use(matrix, &in_use)?;
        let mut rounds = chosen.known.todo.rounds.clone();
        let axis = plan.cells.axis("machine").unwrap_or(0);
        let mut failed = Vec::new();
        for (run, rounds) in rounds.iter_mut().enumerate() {
            let cell = plan.steps.runs.cells[run] as usize;
            if plan.cells.label(plan.cells.cell(cell), axis) != name {
                *rounds = 0;
            }
            let reason = plan.build_of(cell).and_then(|build| broken.get(&build));
            let is_built = chosen.known.is_built(&plan, run);
            if let Some(reason) = reason.filter(|_| *rounds > 0 && !is_built) {
                *rounds = 0;
                failed.push(Failed {
                    cell: plan.cells.name(plan.cells.cell(cell)),
                    reason: format!("not measured, its build failed: {reason}"),
                });
            }
        }
        let todo = plan.todo(rounds, &|digest| chosen.known.is_kept(digest));
        let (_, planned) = planned;
        if todo.measurements() < planned {
            site.tell(Event::Spared {
                machine: name.to_owned(),
                measurements: planned - todo.measurements(),
            });
        }
        around.enter(site, name).await.map_err(stop_of)?;
        let job = Job {
            site,
            plan: &plan,
            parser: &self.loaded.parser,
            around,
        };
        if self.calibrate.is_none() {
            let todo = &chosen.known.todo;
            let is_new = |run: usize| chosen.again.contains_key(&run) && todo.rounds[run] > 0;
            confirm::forget(&plan, name, &is_new, &self.store.borrow())?;
        }
        let repetition = std::mem::take(&mut chosen.known.repetition);
        let stored = |run: usize| chosen.stored(run);
        let summary = match self.calibrate {
            Some(rounds) => calibrate::measure(&job, &todo, rounds, stops).await,
            None => execute::run(&job, &todo, &stored, repetition, stops).await,
        };
        let mut summary = summary.map_err(stop_of)?;
        failed.append(&mut summary.failed);
        Ok(Tally { failed, ..summary })
    }

    /// Measures again what looks like a change on the machines of these names.
    async fn confirm(
        &self,
        site: &Site<'_>,
        names: &BTreeSet<String>,
        around: &MachineSessions,
        stops: &Stops,
    ) -> Result<Tally, Stop> {
        let plan = self.plan()?;
        let known = lookup::known(&plan, Some(&self.store.borrow()), &self.loaded.artifacts)?;
        let job = Job {
            site,
            plan: &plan,
            parser: &self.loaded.parser,
            around,
        };
        let is_built = |run: u32| known.is_built(&plan, run as usize);
        let preset = self.common.preset.as_deref();
        let again = confirm::confirm(&job, preset, names, &is_built, stops).await;
        again.map_err(stop_of)
    }

    /// Makes the builds that a machine lacks.
    async fn build(
        &self,
        site: &Site<'_>,
        name: &str,
        out: &Out,
        cancel: &Cancel,
    ) -> Result<BrokenBuilds, Stop> {
        let mut world = self.loaded.world(self.looked, Some(&self.store.borrow()))?;
        let mut plan = self.loaded.plan(self.common, self.looked, &world)?;
        let mut chosen = self.choose_again(&plan, out)?;
        // What somebody has removed must not go on standing for what other builds would give.
        let gone = chosen.known.gone(&plan);
        if !gone.is_empty() {
            self.store.borrow().forget_artifacts(gone)?;
            world = self.loaded.world(self.looked, Some(&self.store.borrow()))?;
            plan = self.loaded.plan(self.common, self.looked, &world)?;
            chosen = self.choose_again(&plan, out)?;
        }
        let place = Workplace {
            site,
            plan: &plan,
            world: &world,
            state: &self.loaded.state,
        };
        let todo = &chosen.known.todo;
        let built = build::build(&place, name, todo, self.choosing.failed, cancel).await;
        built.map_err(stop_of)
    }

    fn choose_again(&self, plan: &Plan, out: &Out) -> Result<Chosen, Stop> {
        let store = self.store.borrow();
        let artifacts = &self.loaded.artifacts;
        let mut known = lookup::known(plan, Some(&store), artifacts)?;
        if let Some(rounds) = self.calibrate {
            known.measure_all(plan, rounds);
        }
        let asked = self.choosing.asked();
        let machines = &self.looked.machines;
        Ok(choose_again(
            plan,
            known,
            &store,
            &asked,
            machines,
            out,
            now_ms(),
        )?)
    }

    /// Says what is to be done; cells and measurements by machine are returned.
    fn announce(
        &self,
        site: &Site,
        chosen: &Chosen,
    ) -> Result<BTreeMap<String, (usize, u64)>, Stop> {
        let plan = self.plan()?;
        let todo = &chosen.known.todo;
        let store = self.store.borrow();
        let past = StepTimes::of(&plan, Some(&store), &|run| chosen.known.is_partly_done(run))?;
        let estimate = past.with(|durations| dag::estimate(&plan, todo, durations));
        site.tell(Event::Started {
            matrix: plan.matrix.name.clone(),
            cells: todo.counts().run.run,
            measurements: todo.measurements(),
            estimate_s: estimate.total.as_secs_f64(),
            seed: site.seed,
        });
        if chosen.out.left_out.cells > 0 {
            site.tell(Event::LeftOut(chosen.out.left_out));
        }
        let axis = plan.cells.axis("machine").unwrap_or(0);
        let mut planned: BTreeMap<String, (usize, u64)> = BTreeMap::new();
        for (run, rounds) in todo
            .rounds
            .iter()
            .enumerate()
            .filter(|(_, rounds)| **rounds > 0)
        {
            let machine = plan.cells.label(plan.cell_of(run), axis);
            let planned = planned.entry(machine.to_owned()).or_default();
            *planned = (planned.0 + 1, planned.1 + u64::from(*rounds));
        }
        Ok(planned)
    }
}

fn stop_of(error: RunError) -> Stop {
    Stop::message(error.to_string())
}

/// One message for each Ctrl-C, SIGTERM or hang-up. Dropped, these end the process as they would have.
pub type Signals = mpsc::UnboundedReceiver<()>;

/// Catches signals, on a thread of its own: whoever computes does not look at messages.
pub fn signals() -> Result<Signals, Stop> {
    let refused = |error| Stop::message(format!("signals cannot be caught: {error}"));
    let (sender, receiver) = mpsc::unbounded_channel();
    let runtime = Builder::new_current_thread().enable_io().build();
    let runtime = runtime.map_err(refused)?;
    let of = |kind| {
        let _in_runtime = runtime.enter();
        signal(kind).map_err(refused)
    };
    let mut interrupt = of(SignalKind::interrupt())?;
    let mut terminate = of(SignalKind::terminate())?;
    let mut hang_up = of(SignalKind::hangup())?;
    let forward = async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
            }
            if sender.send(()).is_err() {
                std::process::exit(Exit::Interrupted as i32);
            }
        }
    };
    let thread = thread::Builder::new().name("signals".to_owned());
    let started = thread.spawn(move || runtime.block_on(forward));
    started.map(|_| receiver).map_err(refused)
}
