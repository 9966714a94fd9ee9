//! A session: machines are entered, versions built, what strategies ask for is measured, machines put back.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::build::{self, Workplace};
use super::command::now_ms;
use super::dispatch::{Adjustment, RunRequest};
use super::event::{Event, TimedEvent};
use super::execute::{self, CellResult, Feed, Job, RunError, Site, Stops, Tally, WriteResults};
use super::hooks::Hooks;
use super::machine_session::MachineSessions;
use super::pool::Pool;
use super::progress::{Progress, say};
use super::strategy::confirm::Confirm;
use super::strategy::missing::Missing;
use super::strategy::{Knowledge, Next, Strategy};
use super::tune;
use crate::base::key::Key;
use crate::config::profile::{Chain, Facts};
use crate::edge::parse::{Parser, Reader};
use crate::edge::store::{SessionStart, Store, StoreError};
use crate::machine::host::{Cancel, HostErrorKind};
use crate::plan::dag::{self, Plan};
use crate::plan::steps::Subject;
use crate::resolve::lookup::{self, Failed, StepTimes};
use crate::resolve::planner::{PlanError, Planner};
use crate::resolve::prepare::LookAgainError;
use crate::resolve::selection::{Chosen, LeftOut, SelectionOptions, choose};
use crate::verdicts::history::preset_name;

/// One message for each request to stop: the first stops after what is under way, the second at once.
pub type Signals = mpsc::UnboundedReceiver<()>;

/// What a session works with.
#[derive(Clone, Copy)]
pub struct Session<'a> {
    pub planner: &'a Planner<'a>,
    pub store: &'a RefCell<Store>,
    pub progress: &'a RefCell<dyn Progress>,
    pub settings: &'a SessionSettings<'a>,
}

/// How a session works.
pub struct SessionSettings<'a> {
    /// The preset that is asked for by name.
    pub preset: Option<&'a str>,
    pub seed: u64,
    /// Builds that failed before are tried again.
    pub retries_builds: bool,
    /// The command line, for the store.
    pub arguments: String,
    pub readers: &'a [Reader],
    /// Parsers of the monitors that are programs, in the order of the matrix.
    pub monitors: &'a [Parser],
    /// Programs that are called at named moments.
    pub hooks: &'a Hooks,
    /// Profiles by machine, to be resolved again when a machine is entered.
    pub profiles: &'a BTreeMap<String, Chain>,
    /// Who makes results durable: [`writer_thread`], but in simulations.
    pub writer: fn(&Store) -> Result<Box<dyn WriteResults>, StoreError>,
}

/// Writes on a thread of its own, so that results which come while it is busy share a sync.
pub fn writer_thread(store: &Store) -> Result<Box<dyn WriteResults>, StoreError> {
    Ok(Box::new(store.writer()?))
}

/// What a session came to.
pub struct SessionResult {
    pub id: i64,
    pub tally: Tally,
    /// Cells and measurements that the time did not suffice for, with the time that they would have taken.
    pub late: Option<LeftOut>,
}

/// A strategy, and who makes the plans that its run steps are of.
pub struct Asked<'a> {
    strategy: RefCell<Box<dyn Strategy>>,
    planner: &'a Planner<'a>,
}

impl<'a> Asked<'a> {
    pub fn new(strategy: impl Strategy + 'static, planner: &'a Planner<'a>) -> Asked<'a> {
        Asked {
            strategy: RefCell::new(Box::new(strategy)),
            planner,
        }
    }
}

/// Cells and measurements by machine.
pub type PlannedWork = BTreeMap<String, (usize, u64)>;

/// Something that went wrong on a machine, or on none in particular.
#[derive(Debug)]
pub struct SessionError {
    pub machine: Option<String>,
    pub error: RunError,
}

impl<E: Into<RunError>> From<E> for SessionError {
    fn from(error: E) -> SessionError {
        SessionError {
            machine: None,
            error: error.into(),
        }
    }
}

impl<'a> Session<'a> {
    pub fn plan(&self) -> Result<Rc<Plan<'a>>, RunError> {
        Ok(self.planner.plan(Some(&self.store.borrow()))?)
    }

    pub fn tell(&self, event: Event) {
        let time_ms = now_ms();
        let event = TimedEvent { time_ms, event };
        self.progress.borrow_mut().event(&event);
    }

    /// Says that all is over: once, also where something went wrong.
    pub fn finished(&self, tally: &Tally) {
        self.tell(Event::Finished {
            measured: tally.measured,
            failed: tally.failed.len(),
        });
    }

    /// What is to be done, on the machines of these names or on all.
    pub fn choose(
        &self,
        selection: &SelectionOptions,
        names: Option<&BTreeSet<String>>,
    ) -> Result<Chosen, RunError> {
        let plan = self.plan()?;
        let (store, machines) = (self.store.borrow(), self.planner.machines);
        let known = lookup::known(
            &plan,
            self.planner.repeat(),
            Some(&store),
            self.planner.artifacts,
        )?;
        let store = Some(&*store);
        Ok(choose(
            &plan,
            known,
            store,
            selection,
            machines,
            names,
            now_ms(),
        )?)
    }

    /// Says what is to be done; returns it by machine.
    pub fn announce(&self, chosen: &Chosen) -> Result<PlannedWork, RunError> {
        let plan = self.plan()?;
        let todo = &chosen.known.todo;
        let store = self.store.borrow();
        let past = StepTimes::of(&plan, Some(&store), &|run| chosen.known.is_partly_done(run))?;
        let estimate = past.with(|durations| dag::estimate(&plan, todo, durations));
        self.tell(Event::Started {
            matrix: plan.matrix.name.clone(),
            cells: todo.counts().run.run,
            measurements: todo.measurements(),
            estimate_s: estimate.total.as_secs_f64(),
            seed: self.settings.seed,
        });
        if chosen.out.left_out.cells > 0 {
            self.tell(Event::LeftOut(chosen.out.left_out));
        }
        let mut planned = PlannedWork::new();
        let rounds = todo.rounds.iter().enumerate();
        for (run, rounds) in rounds.filter(|(_, rounds)| **rounds > 0) {
            let machine = lookup::machine_of(&plan, run).unwrap_or("");
            let planned = planned.entry(machine.to_owned()).or_default();
            *planned = (planned.0 + 1, planned.1 + u64::from(*rounds));
        }
        Ok(planned)
    }

    /// Measures what is missing on the machines of these names, and again what looks like a change then. Machines that
    /// are one and the same with another profile each take turns, each a session of its own. `began`: when the time of
    /// a budget began to run.
    pub async fn measure_missing(
        &self,
        names: &BTreeSet<String>,
        selection: &SelectionOptions,
        began: Instant,
        signals: &mut Signals,
    ) -> (Tally, LeftOut, Result<(), SessionError>) {
        let (mut tally, mut left_out) = (Tally::default(), LeftOut::default());
        let mut result = Ok(());
        for names in &self.planner.machines.turns(names) {
            match self.turn(names, selection, began, signals).await {
                Ok((done, late)) => {
                    tally.add(done);
                    left_out.add(late);
                }
                // The other turns go on.
                Err(error) => result = result.and(Err(error)),
            }
            if tally.interrupted {
                break;
            }
        }
        (tally, left_out, result)
    }

    async fn turn(
        &self,
        names: &BTreeSet<String>,
        selection: &SelectionOptions,
        began: Instant,
        signals: &mut Signals,
    ) -> Result<(Tally, LeftOut), SessionError> {
        let budget = selection.budget;
        let selection = SelectionOptions {
            budget: budget.map(|budget| budget.saturating_sub(began.elapsed())),
            ..*selection
        };
        let chosen = self.choose(&selection, Some(names))?;
        let mut left_out = chosen.out.left_out;
        if selection.budget.is_some_and(|left| left.is_zero()) && left_out.cells > 0 {
            // The budget was spent before: all that they lack is left out.
            self.tell(Event::LeftOut(left_out));
            return Ok((Tally::default(), left_out));
        }
        let planned = self.announce(&chosen)?;
        let missing = Missing::new(selection, chosen.out, planned.clone());
        let confirm = Confirm::new(self.settings.preset);
        let planner = self.planner;
        let strategies = vec![Asked::new(missing, planner), Asked::new(confirm, planner)];
        let deadline = selection.budget.map(|budget| Instant::now() + budget);
        let done = self
            .run(names, strategies, planned, deadline, signals)
            .await?;
        if let Some(late) = done.late {
            left_out.add(late);
        }
        Ok((done.tally, left_out))
    }

    /// One session: each of these machines is entered once, measures what the strategies ask for, the first of them
    /// first, and is put back. `planned`: what was announced, to tell what the time until the `deadline` did not
    /// suffice for.
    pub async fn run(
        &self,
        names: &BTreeSet<String>,
        strategies: Vec<Asked<'a>>,
        planned: PlannedWork,
        deadline: Option<Instant>,
        signals: &mut Signals,
    ) -> Result<SessionResult, SessionError> {
        let matrix = self.planner.matrix;
        let id = self.store.borrow().begin_session(&SessionStart {
            started_ms: now_ms(),
            matrix: &matrix.name,
            preset: preset_name(matrix, self.settings.preset),
            seed: self.settings.seed,
            arguments: &self.settings.arguments,
            program_version: env!("CARGO_PKG_VERSION"),
            process: &std::process::id().to_string(),
        })?;
        let writer = (self.settings.writer)(&self.store.borrow())?;
        let site = Site {
            machines: self.planner.machines,
            store: self.store,
            writer: writer.as_ref(),
            session: id,
            seed: self.settings.seed,
            progress: self.progress,
            hooks: self.settings.hooks,
            left_behind: RefCell::default(),
        };
        self.note_versions(id);
        let result = self
            .until_stopped(&site, names, strategies, planned, deadline, signals)
            .await;
        let outcome = match &result {
            Ok((tally, _)) if tally.interrupted => "interrupted",
            Ok((tally, _)) if !tally.failed.is_empty() => "failed",
            Ok(_) => "ok",
            Err(_) => "error",
        };
        let ended = self.store.borrow().end_session(id, now_ms(), outcome);
        let (mut tally, late) = result?;
        tally.left_behind = site.left_behind.take();
        ended?;
        Ok(SessionResult { id, tally, late })
    }

    /// Only the order of a series rests on it: what goes wrong does not stop a run.
    fn note_versions(&self, session: i64) {
        let (versions, store) = (self.planner.versions, self.store.borrow());
        if let Err(error) = versions.note(&store, &self.planner.matrix.name, session) {
            say(&format!(
                "note: it is not known where the versions stand in the history: {error}"
            ));
        }
    }

    /// Turns signals and the clock into stops.
    async fn until_stopped(
        &self,
        site: &Site<'_>,
        names: &BTreeSet<String>,
        strategies: Vec<Asked<'a>>,
        planned: PlannedWork,
        deadline: Option<Instant>,
        signals: &mut Signals,
    ) -> Result<(Tally, Option<LeftOut>), SessionError> {
        let [soon, at_once, waits] = [(); 3].map(|()| watch::channel(false));
        let stops = Stops {
            soon: Cancel::new(soon.1),
            at_once: Cancel::new(at_once.1),
            waits: Cancel::new(waits.1),
            deadline,
        };
        let engine = Engine {
            session: self,
            site,
            names,
            stops: &stops,
            strategies,
            around: MachineSessions::new(self.settings.monitors),
            built: RefCell::default(),
            at_work: RefCell::new(names.clone()),
            entered: RefCell::default(),
            is_flawed: Cell::new(false),
            changed: Notify::new(),
        };
        let all = engine.on_all(&planned);
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
}

/// A session under way.
struct Engine<'e, 'a> {
    session: &'e Session<'a>,
    site: &'e Site<'e>,
    names: &'e BTreeSet<String>,
    stops: &'e Stops,
    strategies: Vec<Asked<'a>>,
    around: MachineSessions,
    /// Builds that were tried, by machine and key; with the reason where one could not be made.
    built: RefCell<BTreeMap<(String, Key), Option<String>>>,
    /// Machines that do not wait for others and have not ended.
    at_work: RefCell<BTreeSet<String>>,
    /// Machines that are ours.
    entered: RefCell<BTreeSet<String>>,
    is_flawed: Cell<bool>,
    /// A machine waits or has ended.
    changed: Notify,
}

/// What a strategy wants of a machine.
enum Answer<'a> {
    Measure {
        /// The strategy's number.
        strategy: usize,
        plan: Rc<Plan<'a>>,
        requests: Vec<RunRequest>,
    },
    /// It is asked again when another machine idles.
    Wait,
    /// No strategy wants anything.
    Nothing,
}

impl<'a> Engine<'_, 'a> {
    async fn on_all(
        &self,
        planned: &PlannedWork,
    ) -> Result<(Tally, Option<LeftOut>), SessionError> {
        let began = Instant::now();
        let mut pool = Pool::default();
        for name in self.names {
            let planned = planned.get(name).copied().unwrap_or_default();
            pool.push(async move {
                let done = self.serve(name, planned).await;
                self.at_work.borrow_mut().remove(name);
                self.is_flawed.set(self.is_flawed.get() | done.is_err());
                self.changed.notify_waiters();
                done.map_err(|error| SessionError {
                    machine: Some(name.clone()),
                    error,
                })
            });
        }
        let mut total = Tally::default();
        let mut result = Ok(());
        while !pool.is_empty() {
            match pool.next().await {
                Ok(tally) => total.add(tally),
                // The other machines go on.
                Err(error) => result = result.and(Err(error)),
            }
        }
        // Whatever came of it: the machines are put back before anybody else may have them.
        let left = self.around.leave(self.site).await;
        for machine in self.entered.take() {
            self.site.tell(Event::Left { machine });
        }
        result?;
        left?;
        total.interrupted = self.stops.soon.is_cancelled();
        let late = total.late.map(|(cells, measurements)| {
            // At the pace until now.
            let each = began.elapsed().as_secs_f64() / total.measured.max(1) as f64;
            LeftOut {
                cells,
                measurements,
                estimate_s: each * measurements as f64,
            }
        });
        if let Some(late) = late {
            self.site.tell(Event::LeftOut(late));
        }
        Ok((total, late))
    }

    /// Waits for a machine, then builds and measures there as long as any strategy wants something.
    async fn serve(&self, name: &str, planned: (usize, u64)) -> Result<Tally, RunError> {
        let mut tally = Tally::default();
        let purpose = &self.session.planner.matrix.name;
        let waits = &self.stops.waits;
        let mut is_begun = false;
        let mut is_tuned = false;
        match execute::enter(self.site, purpose, name, waits).await {
            Err(RunError::Host(error)) if error.kind == HostErrorKind::Cancelled => {}
            lock => {
                self.around.keep(lock?);
                self.entered.borrow_mut().insert(name.to_owned());
                self.site.tell(Event::Entered {
                    machine: name.to_owned(),
                });
                self.look_again(name).await?;
            }
        }
        while !waits.is_cancelled() {
            let waiting = self.changed.notified();
            let (strategy, plan, requests) = match self.ask(name)? {
                Answer::Nothing => {
                    is_begun = true;
                    break;
                }
                Answer::Wait => {
                    is_begun = true;
                    let mut stopped = waits.clone();
                    tokio::select! {
                        () = waiting => {}
                        () = stopped.cancelled() => {}
                    }
                    continue;
                }
                Answer::Measure {
                    strategy,
                    plan,
                    requests,
                } => (strategy, plan, requests),
            };
            if self.build(name, strategy, &plan, &requests).await? {
                // What is known now is more than what the strategy knew.
                continue;
            }
            let (requests, failed) = self.without_broken(name, strategy, &plan, requests);
            tally.failed.extend(failed);
            self.begin(name, strategy, &plan, &requests)?;
            is_begun = true;
            if requests.is_empty() {
                continue;
            }
            if !std::mem::replace(&mut is_tuned, true) {
                self.around.enter(self.site, name).await?;
                self.site.tell(Event::Tuned {
                    machine: name.to_owned(),
                });
            }
            let done = self.measure(name, strategy, &plan, &requests).await?;
            tally.add(done);
        }
        if !is_begun && !self.stops.soon.is_cancelled() {
            tally.late = Some(planned);
        }
        Ok(tally)
    }

    /// Looks at a machine again, now that it is ours and as it was found: what was seen before may be another one's doing.
    async fn look_again(&self, name: &str) -> Result<(), RunError> {
        let (matrix, settings) = (self.session.planner.matrix, self.session.settings);
        let (Some(machine), Some(declared)) = (self.site.machines.get(name), matrix.machine(name))
        else {
            return Ok(());
        };
        let resolve = |found: &Facts| {
            let Some(chain) = settings.profiles.get(name) else {
                return Ok(None);
            };
            let mut facts = found.clone();
            facts.extend(declared.facts.clone());
            tune::resolve(chain, &matrix.engine, &facts).map(Some)
        };
        let is_other = machine.look_again(&resolve).await;
        let is_other = is_other.map_err(|error| match error {
            LookAgainError::Host(error) => RunError::Host(error),
            LookAgainError::Profile(problems) => PlanError::Matrix(problems).into(),
        })?;
        if is_other {
            let planners = self.strategies.iter().map(|asked| asked.planner);
            planners.for_each(Planner::forget);
        }
        Ok(())
    }

    async fn measure(
        &self,
        name: &str,
        strategy: usize,
        plan: &Rc<Plan<'a>>,
        requests: &[RunRequest],
    ) -> Result<Tally, RunError> {
        let job = Job {
            site: self.site,
            plan,
            readers: self.session.settings.readers,
            around: &self.around,
        };
        let labels = plan
            .cells
            .axis("machine")
            .map(|axis| &plan.cells.axes[axis].labels);
        let mut labels = labels.into_iter().flatten();
        let machine = labels.position(|label| label == name).unwrap_or(0) as u16;
        let feed = MachineFeed {
            engine: self,
            name,
            plan,
            strategy: Cell::new(strategy),
        };
        let mut tally = execute::run(&job, machine, requests, &feed, self.stops).await?;
        let last = &self.strategies[feed.strategy.get()];
        if !last.strategy.borrow().is_required() {
            // What a rerun lacks is no cell that was left out.
            tally.late = None;
        }
        Ok(tally)
    }

    /// Calls `with` with a strategy and what it may know.
    fn with<T>(
        &self,
        name: &str,
        strategy: usize,
        plan: &Plan,
        with: impl FnOnce(&mut dyn Strategy, &Knowledge) -> T,
    ) -> T {
        let Asked { strategy, planner } = &self.strategies[strategy];
        let at_work = self.at_work.borrow().iter().any(|other| other != name);
        let known = Knowledge {
            site: self.site,
            versions: planner.versions,
            plan,
            plan_number: planner.made(),
            artifacts: planner.artifacts,
            repeat: planner.repeat(),
            machines: self.names,
            others_at_work: at_work,
            is_flawed: self.is_flawed.get(),
        };
        with(strategy.borrow_mut().as_mut(), &known)
    }

    /// The plan as things stand now; one that was not told of yet is told.
    fn plan_of(&self, planner: &Planner<'a>) -> Result<Rc<Plan<'a>>, RunError> {
        let plan = planner.plan(Some(&self.session.store.borrow()))?;
        if planner.is_news() {
            self.site.tell(Event::Planned {
                cells: plan.cells.len(),
                builds: plan.steps.builds.steps.len(),
            });
        }
        Ok(plan)
    }

    /// Asks the strategies in turn what a machine that idles is to measure.
    fn ask(&self, name: &str) -> Result<Answer<'a>, RunError> {
        for (strategy, asked) in self.strategies.iter().enumerate() {
            let (plan, next) = loop {
                let plan = self.plan_of(asked.planner)?;
                match self.with(name, strategy, &plan, |it, known| it.next(name, known))? {
                    Next::Versions(labels) if asked.planner.add_versions(&labels) => {}
                    next => break (plan, next),
                }
            };
            let mut at_work = self.at_work.borrow_mut();
            let (is_news, answer) = match next {
                Next::Measure(requests) if !requests.is_empty() => {
                    let answer = Answer::Measure {
                        strategy,
                        plan,
                        requests,
                    };
                    (at_work.insert(name.to_owned()), answer)
                }
                Next::Wait => (at_work.remove(name), Answer::Wait),
                // Versions that are there already bring nothing.
                Next::Nothing | Next::Measure(_) | Next::Versions(_) => continue,
            };
            if is_news {
                // The others may have waited for this.
                self.changed.notify_waiters();
            }
            return Ok(answer);
        }
        Ok(Answer::Nothing)
    }

    fn begin(
        &self,
        name: &str,
        strategy: usize,
        plan: &Plan,
        requests: &[RunRequest],
    ) -> Result<(), RunError> {
        self.with(name, strategy, plan, |it, known| {
            it.begun(name, requests, known)
        })
    }

    /// Makes the builds that run steps lack, but for those that were tried before; whether anything is known
    /// now that was not.
    async fn build(
        &self,
        name: &str,
        strategy: usize,
        plan: &Rc<Plan<'a>>,
        requests: &[RunRequest],
    ) -> Result<bool, RunError> {
        let planner = self.strategies[strategy].planner;
        if plan.matrix.build.is_some()
            && let Some(machine) = self.site.machines.get(name)
        {
            // Somebody may have removed some since.
            machine.look_at_artifacts(name, planner.artifacts).await?;
        }
        let is_kept = |digest| planner.artifacts.has_on(name, digest);
        let mut rounds = vec![0; plan.steps.runs.len()];
        let mut gone: BTreeSet<Key> = BTreeSet::new();
        let mut tried = self.built.borrow().clone();
        for RunRequest { run, rounds: asked } in requests {
            let cell = plan.steps.runs.cells[*run as usize] as usize;
            let key = build_key(name, plan, cell);
            if plan.is_there(cell, &is_kept) || key.as_ref().is_none_or(|it| tried.contains_key(it))
            {
                continue;
            }
            if let Subject::Artifact(digest) = plan.subject_of(cell) {
                gone.insert(digest);
            }
            rounds[*run as usize] = asked.len() as u32;
        }
        if !gone.is_empty() {
            // What somebody has removed must not go on standing for what other builds would give.
            self.session.store.borrow().forget_artifacts(gone)?;
            return Ok(true);
        }
        let todo = plan.todo(rounds, &is_kept);
        if !todo.builds.contains(&true) {
            return Ok(false);
        }
        let world = planner
            .world(Some(&self.session.store.borrow()))
            .map_err(RunError::Store)?;
        let place = Workplace {
            site: self.site,
            plan,
            world: &world,
        };
        let again = self.session.settings.retries_builds;
        let broken = build::build(&place, name, &todo, again, &self.stops.waits).await?;
        let needed = (0..).zip(&todo.builds).filter(|(_, needed)| **needed);
        for (build, _) in needed {
            let key = plan.steps.builds.steps[build as usize].key;
            tried.insert((name.to_owned(), key), broken.get(&build).cloned());
        }
        self.built.borrow_mut().append(&mut tried);
        Ok(true)
    }

    /// What can be measured of what is asked for, and the cells whose builds could not be made.
    fn without_broken(
        &self,
        name: &str,
        strategy: usize,
        plan: &Plan,
        requests: Vec<RunRequest>,
    ) -> (Vec<RunRequest>, Vec<Failed>) {
        let planner = self.strategies[strategy].planner;
        let is_kept = |digest| planner.artifacts.has_on(name, digest);
        let mut failed = Vec::new();
        let mut whole = requests;
        whole.retain(|request| {
            let cell = plan.steps.runs.cells[request.run as usize] as usize;
            if plan.is_there(cell, &is_kept) {
                return true;
            }
            let key = build_key(name, plan, cell);
            let built = self.built.borrow();
            let reason = key.and_then(|key| built.get(&key).cloned().flatten());
            let reason = reason.unwrap_or_else(|| "its artifact is not there".to_owned());
            failed.push(Failed {
                cell: plan.cells.name(plan.cells.cell(cell)),
                reason: format!("not measured, its build failed: {reason}"),
            });
            false
        });
        (whole, failed)
    }
}

/// What the build of a cell is known by in a session.
fn build_key(name: &str, plan: &Plan, cell: usize) -> Option<(String, Key)> {
    let build = plan.build_of(cell)?;
    let key = plan.steps.builds.steps[build as usize].key;
    Some((name.to_owned(), key))
}

/// What a machine measures of one plan.
struct MachineFeed<'e, 'a> {
    engine: &'e Engine<'e, 'a>,
    name: &'e str,
    plan: &'e Rc<Plan<'a>>,
    /// Who asked last.
    strategy: Cell<usize>,
}

impl Feed for MachineFeed<'_, '_> {
    fn more(&self) -> Result<Vec<RunRequest>, RunError> {
        let Self { engine, name, .. } = *self;
        let Answer::Measure {
            strategy,
            plan,
            requests,
        } = engine.ask(name)?
        else {
            return Ok(Vec::new());
        };
        let artifacts = engine.strategies[strategy].planner.artifacts;
        let is_there = |request: &RunRequest| {
            let cell = plan.steps.runs.cells[request.run as usize] as usize;
            plan.is_there(cell, &|digest| artifacts.has_on(name, digest))
        };
        if !Rc::ptr_eq(&plan, self.plan) || !requests.iter().all(is_there) {
            // It is asked again when what is set up is undone.
            return Ok(Vec::new());
        }
        engine.begin(name, strategy, &plan, &requests)?;
        self.strategy.set(strategy);
        Ok(requests)
    }

    fn on(&self, result: &CellResult) -> Result<Vec<Adjustment>, RunError> {
        let strategy = self.strategy.get();
        self.engine
            .with(self.name, strategy, self.plan, |it, known| {
                it.on(self.name, result, known)
            })
    }
}

#[cfg(test)]
mod tests;
