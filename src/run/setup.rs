//! Making a set-up and undoing it.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use super::command::{Log, command, last_words, make_dir, now_ms};
use super::dispatch::Completed;
use super::event::Event;
use super::execute::{ActionResult, Announcement, Executor, Recording};
use crate::base::sample::Ended;
use crate::base::units::show_duration;
use crate::config::hook::Moment;
use crate::edge::store::{self, SampleContext, StepKind};
use crate::machine::host::undo::{NotedSetup, SetupUndo, UndoOp, UndoReply, UndoStep};
use crate::machine::host::{Command, FileOp, FileReply, Host, Output, ServiceId};
use crate::machine::setups;
use crate::plan::commands::{Words, show_words};
use crate::plan::dag::Plan;
use crate::resolve::prepare::Machine;

/// Pause between two probes of a service; it doubles up to the second.
const READY_PAUSE: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];
/// For one probe, whatever the set-up's own limit is.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// A set-up that is up, or in the making.
pub(super) struct Up {
    /// Its entry in the machine's journal.
    noted: NotedSetup,
    pub(super) service: Option<ServiceId>,
}

/// Why a set-up was not made: never `Outcome::Ok`.
type Unmade = (store::AttemptOutcome, String);

/// Where and how the commands of a set-up run.
struct SetupPlace<'a> {
    host: &'a dyn Host,
    dir: &'a str,
    env: &'a [(String, String)],
    timeout: Duration,
}

impl SetupPlace<'_> {
    fn command(&self, argv: &Words, timeout: Duration) -> Command {
        command(argv, self.dir, self.env, timeout)
    }
}

impl Executor<'_> {
    pub(super) async fn set_up(&self, machine: u16, setup: usize, step: u32) -> ActionResult {
        let plan = self.job.plan;
        let name = plan.matrix.setups[setup].name.value.clone();
        let shared = &plan.steps.setups[setup].steps[step as usize];
        let tuple = plan.cells.cell(shared.cell as usize);
        let cell = plan
            .scope()
            .name_of(tuple, &visible(plan, &plan.steps.setups[setup].axes));
        let site = self.job.site;
        let started = Event::SetupStarted {
            setup: name.clone(),
            cell: cell.clone(),
        };
        let allowed = site.call(Moment::PreSetup, &started, &self.cancel).await;
        site.tell(started);
        let clock = Instant::now();
        let started_ms = now_ms();
        let mut log = Log::default();
        let mut result = match allowed {
            Ok(()) => self.try_set_up(machine, setup, step, &mut log).await,
            Err(reason) => Err((store::AttemptOutcome::Failed, reason)),
        };
        let duration = clock.elapsed();
        if !matches!(result, Err((store::AttemptOutcome::Interrupted, _))) {
            let done = Event::SetupDone {
                setup: name.clone(),
                cell: cell.clone(),
                duration_s: duration.as_secs_f64(),
                error: result.as_ref().err().map(|(_, reason)| reason.clone()),
            };
            let called = site.call(Moment::PostSetup, &done, &self.cancel).await;
            result = result.and(called.map_err(|it| (store::AttemptOutcome::Failed, it)));
        }
        let (outcome, error) = match result {
            Ok(()) => (store::AttemptOutcome::Ok, None),
            Err((outcome, reason)) => (outcome, Some(reason)),
        };
        match &error {
            Some(_) => self.undo(machine, setup, step).await,
            None => self.note_made(machine, setup, step).await,
        }
        let record = self.record(
            machine,
            Recording {
                kind: StepKind::Setup,
                key: shared.key,
                round: 0,
                cell: &cell,
                tuple,
                started_ms,
                duration,
                outcome,
                reason: error.as_deref().unwrap_or(""),
                log: &log,
            },
            &[],
            SampleContext::default(),
        );
        let record = record.map_err(|error| {
            self.fatal.borrow_mut().get_or_insert(error.into());
        });
        let mut news = Announcement::default();
        // Stopping is no failure of the set-up.
        if outcome != store::AttemptOutcome::Interrupted {
            news.events.push(Event::SetupDone {
                setup: name.clone(),
                cell,
                duration_s: duration.as_secs_f64(),
                error: error.clone(),
            });
        }
        let error = error.map(|error| format!("set-up `{name}`: {error}"));
        ActionResult {
            done: Completed::SetUp { setup, step, error },
            result: None,
            record: record.ok(),
            news,
        }
    }

    async fn try_set_up(
        &self,
        machine: u16,
        setup: usize,
        step: u32,
        log: &mut Log,
    ) -> Result<(), Unmade> {
        let plan = self.job.plan;
        let Some((
            machine_name,
            looked @ Machine {
                host: Some(host), ..
            },
        )) = self.job.machine(machine)
        else {
            return Ok(());
        };
        let view = looked.view();
        let places = &view.places;
        let failed = |reason: String| (store::AttemptOutcome::Failed, reason);
        let cell = plan.steps.setups[setup].steps[step as usize].cell;
        let commands = plan
            .setup_commands(setup, step, places)
            .map_err(|diagnostic| failed(diagnostic.message))?;
        let dir = plan.setup_dir(setup, step, places);
        let env = plan
            .environment(cell)
            .map_err(|diagnostic| failed(diagnostic.message))?;
        let timeout = plan.matrix.setups[setup].timeout;
        let undo = SetupUndo {
            matrix: plan.matrix.name.clone(),
            setup: plan.matrix.setups[setup].name.value.clone(),
            dir: dir.clone(),
            commands: commands.undo,
            env: env.clone(),
            timeout,
        };
        // Written down before anything is done: a crash must find it.
        let begun = host.undo(UndoOp::Begin(undo.clone())).await;
        let id = match begun.map_err(|error| failed(error.message))? {
            UndoReply::Begun(id) => id,
            _ => {
                return Err(failed(
                    "its entry in the machine's journal has no number".into(),
                ));
            }
        };
        let noted = NotedSetup {
            id,
            undo,
            is_of_this_boot: true,
            steps: Vec::new(),
        };
        let up = Up {
            noted,
            service: None,
        };
        self.up.borrow_mut().insert((machine, setup, step), up);

        make_dir(host.as_ref(), &dir)
            .await
            .map_err(|error| failed(error.message))?;
        let place = SetupPlace {
            host: host.as_ref(),
            dir: &dir,
            env: &env,
            timeout,
        };
        for argv in &commands.run {
            let left = self.run_to_end(&place, argv, log).await?;
            if !left.is_empty() {
                let name = &plan.matrix.setups[setup].name.value;
                let what = format!(
                    "set-up `{name}` left processes behind, which were ended: {}; \
                     what is to stay is its `service`",
                    left.join(", ")
                );
                let about = format!("set-up {name}: left");
                let around = self.job.around;
                around.tell_once_about(self.job.site, machine_name, &about, what);
            }
        }
        let Some(service) = &commands.service else {
            return Ok(());
        };
        log.command(service);
        let id = host
            .start(place.command(service, Duration::MAX))
            .await
            .map_err(|error| failed(error.message))?;
        if let Some(up) = self.up.borrow_mut().get_mut(&(machine, setup, step)) {
            up.service = Some(id);
        }
        let ready = commands.ready.as_ref();
        self.await_service(&place, service, id, ready, log).await
    }

    /// Returns what it left running, which was ended.
    async fn run_to_end(
        &self,
        place: &SetupPlace<'_>,
        argv: &Words,
        log: &mut Log,
    ) -> Result<Vec<String>, Unmade> {
        log.command(argv);
        let output = place
            .host
            .run(place.command(argv, place.timeout), self.cancel.clone())
            .await
            .map_err(|error| (store::AttemptOutcome::Failed, error.message))?;
        log.output(&output);
        let outcome = match output.ended {
            Ended::Exit(0) => return Ok(output.leftovers),
            Ended::Interrupted => store::AttemptOutcome::Interrupted,
            Ended::TimedOut => store::AttemptOutcome::Timeout,
            _ => store::AttemptOutcome::Failed,
        };
        Err((outcome, said(argv, &output)))
    }

    /// Probes a service until it answers, ends, or the set-up's time is over.
    async fn await_service(
        &self,
        place: &SetupPlace<'_>,
        service: &Words,
        id: ServiceId,
        mut ready: Option<&Words>,
        log: &mut Log,
    ) -> Result<(), Unmade> {
        let deadline = Instant::now() + place.timeout;
        let mut pause = READY_PAUSE[0];
        loop {
            if let Some(output) = place.host.ended(id).await {
                log.output(&output);
                let reason = format!(
                    "`{}` ended: {}{}",
                    show_words(service),
                    output.ended,
                    last_words(&output)
                );
                return Err((store::AttemptOutcome::Failed, reason));
            }
            let Some(probed) = ready else {
                return Ok(());
            };
            let probe = place.command(probed, PROBE_TIMEOUT.min(place.timeout));
            let probe = place.host.probe(id, probe, self.cancel.clone()).await;
            let probe = probe.map_err(|error| (store::AttemptOutcome::Failed, error.message))?;
            if let Some(other) = probe.answered_by {
                let reason = format!(
                    "somebody else answered `{}`: {other}, and was there before the service; end it, \
                     or use another place",
                    show_words(probed)
                );
                return Err((store::AttemptOutcome::Failed, reason));
            }
            let probe = probe.output;
            if probe.ended.is_success() {
                // It must still be there: something else may have answered.
                ready = None;
                continue;
            }
            if self.cancel.is_cancelled() {
                return Err((store::AttemptOutcome::Interrupted, "interrupted".to_owned()));
            }
            if Instant::now() >= deadline {
                log.command(probed);
                log.output(&probe);
                let reason = format!(
                    "not ready after {}: {}",
                    show_duration(place.timeout),
                    said(probed, &probe)
                );
                return Err((store::AttemptOutcome::Timeout, reason));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(READY_PAUSE[1]);
        }
    }

    pub(super) async fn undo(&self, machine: u16, setup: usize, step: u32) {
        let Some(up) = self.up.borrow_mut().remove(&(machine, setup, step)) else {
            return;
        };
        let Some((
            _,
            Machine {
                host: Some(host), ..
            },
        )) = self.job.machine(machine)
        else {
            return;
        };
        if let Some(service) = up.service {
            // Its output told what was wrong while it was needed; now it only has to be gone.
            let _ = host.stop(service).await;
        }
        // What is left behind stays in the journal: the next run tries again.
        let error = setups::undo(host.as_ref(), up.noted).await.err();
        let setup = self.job.plan.matrix.setups[setup].name.value.clone();
        if let Some(error) = &error {
            self.job
                .site
                .leave_behind(format!("set-up `{setup}`: {error}"));
        }
        self.job.site.tell(Event::Undone { setup, error });
    }

    /// All that the set-up does was done: whatever of it is there has to be undone.
    async fn note_made(&self, machine: u16, setup: usize, step: u32) {
        let Some((
            _,
            Machine {
                host: Some(host), ..
            },
        )) = self.job.machine(machine)
        else {
            return;
        };
        let id = self
            .up
            .borrow_mut()
            .get_mut(&(machine, setup, step))
            .map(|up| {
                up.noted.steps.push(UndoStep::Made);
                up.noted.id
            });
        let Some(id) = id else {
            return;
        };
        // Without the note a failure to undo it is told by its folder alone.
        let _ = host.undo(UndoOp::Note(id, UndoStep::Made)).await;
    }
}

/// Folders of run steps that there are on a machine. While nobody measures there a dead run has left them.
pub(super) async fn run_folders(machine: &Machine) -> Vec<String> {
    let Some(host) = machine.host.as_deref() else {
        return Vec::new();
    };
    let view = machine.view();
    let work = Path::new(&view.places.work);
    let listed = host.files(vec![FileOp::List { path: work.into() }]).await;
    let Some(Ok(FileReply::Names(names))) = listed.first() else {
        return Vec::new();
    };
    let names = names.iter().filter(|name| name.starts_with("run-"));
    let folder = |name: &String| work.join(name).to_string_lossy().into_owned();
    names.map(folder).collect()
}

/// Axes that a person sees in names.
fn visible(plan: &Plan, axes: &[usize]) -> Vec<usize> {
    axes.iter()
        .copied()
        .filter(|&axis| !plan.cells.axes[axis].silent)
        .collect()
}

/// How a command ended, and what it said last.
fn said(argv: &Words, output: &Output) -> String {
    format!(
        "`{}`: {}{}",
        show_words(argv),
        output.ended,
        last_words(output)
    )
}
