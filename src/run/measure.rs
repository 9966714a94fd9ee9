//! One measurement: the command, its output as readings, the readings as a sample.

use super::command::{Log, command, last_words, now_ms};
use super::dispatch::{Completed, MeasureOutcome};
use super::event::Event;
use super::execute::{ActionResult, Announcement, CellResult, Executor, Recording, RunError};
use super::monitor::Monitors;
use super::null;
use crate::base::diag::Diagnostic;
use crate::base::sample::{Ended, Parsed, Reading};
use crate::config::hook::Moment;
use crate::edge::parse::{Input, OUTPUT_BYTES_MAX, settle};
use crate::edge::store::{self, NewReading, SampleContext, StepKind};
use crate::machine::host::measurement::Measurement;
use crate::machine::host::{Host, HostError, Output, ServiceId};
use crate::machine::measure::measure;
use crate::plan::commands::{MonitorWords, Words, show_words};
use crate::resolve::lookup::Failed;
use crate::resolve::prepare::Machine;

use std::time::{Duration, Instant};

/// Readings of one run step that are kept beside the declared ones.
const UNDECLARED_READINGS_MAX: usize = 256;

/// Measurements in the middle of which `matrix` was stopped, one after the other.
const TRIES_MAX: u32 = 10;

/// Bytes of standard output that a log keeps of a program whose output is dropped.
const SILENT_BYTES_MAX: usize = 4096;

/// One measurement to be taken.
struct Task<'a> {
    machine: &'a str,
    machine_number: u16,
    cell: u32,
    case: usize,
    /// Before each run of the command.
    prepare: Vec<Words>,
    argv: Words,
    dir: String,
    monitors: Vec<MonitorWords>,
}

/// Why there is no sample: never `Outcome::Ok`.
type Unmeasured = (store::AttemptOutcome, String);

/// A measurement's good end.
struct Measured {
    metrics: Vec<Reading>,
    warnings: Vec<String>,
}

/// What a measurement came to: the readings of the declared metrics, and all that was read.
type Outcome = Result<(Vec<Option<Reading>>, Measured), (store::AttemptOutcome, String)>;

impl Executor<'_> {
    pub(super) async fn measure(
        &self,
        machine: u16,
        slot: usize,
        run: u32,
        round: u32,
    ) -> Result<ActionResult, RunError> {
        let plan = self.job.plan;
        let step = plan.run_step(run);
        let tuple = plan.cells.cell(step.cell as usize);
        let cell = plan.cells.name(tuple);
        let site = self.job.site;
        let started = Event::RunStarted {
            cell: cell.clone(),
            round,
        };
        let allowed = site.call(Moment::PreRun, &started, &self.cancel).await;
        site.tell(started);
        let clock = Instant::now();
        let started_ms = now_ms();
        let mut log = Log::default();
        let mut beside = SampleContext::default();
        let machine_number = machine;
        let result = match self.job.machine(machine).filter(|_| allowed.is_ok()) {
            Some((
                name,
                machine @ Machine {
                    host: Some(host), ..
                },
            )) => {
                let host = host.as_ref();
                let view = machine.view();
                let places = &view.places;
                let seed = self.job.site.seed;
                let in_words = |diagnostic: Diagnostic| RunError::Template(diagnostic.message);
                let command = plan.run_command(step.cell, round, seed, slot, places);
                let monitors = plan.monitors(step.cell, round, seed, slot, places);
                let prepare = plan.prepare_commands(step.cell, round, seed, slot, places);
                let task = Task {
                    machine: name,
                    machine_number,
                    cell: step.cell,
                    case: plan.case_of(step.cell).map_err(in_words)?,
                    prepare: prepare.map_err(in_words)?,
                    argv: self.job.around.on_cpus(name, command.map_err(in_words)?),
                    dir: places.run_dir(slot),
                    monitors: monitors.map_err(in_words)?,
                };
                self.measure_on(host, machine, task, &mut log, &mut beside)
                    .await
            }
            Some((_, machine)) => self.generate(step.cell, round, machine),
            None => {
                let unknown = || "the machine is not known".to_owned();
                let reason = allowed.err().unwrap_or_else(unknown);
                Err((store::AttemptOutcome::Failed, reason))
            }
        };
        let result = result.and_then(|measured| {
            let chosen = self.choose(step.cell, &measured);
            chosen
                .map(|chosen| (chosen, measured))
                .map_err(|reason| (store::AttemptOutcome::Refused, reason))
        });
        let duration = clock.elapsed();
        let result = match site.hooks.has(Moment::PostRun) {
            true => self.after_run(&cell, round, duration, result).await,
            false => result,
        };
        let (outcome, reason) = match &result {
            Ok(_) => (store::AttemptOutcome::Ok, ""),
            Err((outcome, reason)) => (*outcome, reason.as_str()),
        };
        let readings: Vec<NewReading> = match &result {
            Ok((chosen, measured)) => readings(chosen, &measured.metrics),
            Err(_) => Vec::new(),
        };
        let recording = Recording {
            kind: StepKind::Run,
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
        let record = Some(self.record(machine, recording, &readings, beside)?);
        let mut news = Announcement::default();
        let (outcome, sample) = match result {
            Ok((chosen, measured)) => {
                let values = chosen
                    .iter()
                    .map(|reading| Some(reading.as_ref()?.value))
                    .collect();
                news.is_sample = true;
                let done = self.run_done(&cell, round, duration, &chosen, &measured);
                news.events.push(done);
                (MeasureOutcome::Sample, Some(Ok(values)))
            }
            Err((store::AttemptOutcome::Interrupted, _)) => (MeasureOutcome::Interrupted, None),
            Err((_, reason)) => {
                let sample = Err(reason.clone());
                news.failed = Some((Failed { cell, reason }, run, round));
                (MeasureOutcome::Failed, Some(sample))
            }
        };
        let done = Completed::Measured {
            run,
            round,
            outcome,
        };
        Ok(ActionResult {
            done,
            result: sample.map(|sample| CellResult { run, round, sample }),
            record,
            news,
        })
    }

    fn run_done(
        &self,
        cell: &str,
        round: u32,
        duration: Duration,
        chosen: &[Option<Reading>],
        measured: &Measured,
    ) -> Event {
        let metrics = self.job.plan.matrix.metrics.iter().zip(chosen);
        Event::RunDone {
            cell: cell.to_owned(),
            round,
            duration_s: duration.as_secs_f64(),
            metrics: metrics
                .filter_map(|(metric, reading)| {
                    Some((metric.name.clone(), reading.as_ref()?.value))
                })
                .collect(),
            warnings: measured.warnings.clone(),
        }
    }

    /// Calls the hooks after a measurement; a required one that fails refuses it.
    async fn after_run(
        &self,
        cell: &str,
        round: u32,
        duration: Duration,
        result: Outcome,
    ) -> Outcome {
        let event = match &result {
            Ok((chosen, measured)) => self.run_done(cell, round, duration, chosen, measured),
            // Nothing has come of it, good or bad.
            Err((store::AttemptOutcome::Interrupted, _)) => return result,
            Err((_, reason)) => Event::Failed {
                cell: cell.to_owned(),
                round,
                reason: reason.clone(),
                given_up: 0,
            },
        };
        let called = self.job.site.call(Moment::PostRun, &event, &self.cancel);
        match called.await {
            Err(reason) if result.is_ok() => Err((store::AttemptOutcome::Refused, reason)),
            _ => result,
        }
    }

    async fn measure_on(
        &self,
        host: &dyn Host,
        machine: &Machine,
        task: Task<'_>,
        log: &mut Log,
        beside: &mut SampleContext,
    ) -> Result<Measured, Unmeasured> {
        let infrastructure = |error: HostError| (store::AttemptOutcome::Failed, error.message);
        let plan = self.job.plan;
        let env = plan.environment(task.cell);
        let env = env.map_err(|diagnostic| (store::AttemptOutcome::Failed, diagnostic.message))?;
        let case = &plan.matrix.run.cases[task.case];
        let in_dir = |argv: &Words| command(argv, &task.dir, &env, case.timeout);
        // Warms up: each time the commands of `prepare`, then the command itself; and prepares once more.
        let before: Vec<&Words> = (0..=case.warmup)
            .flat_map(|round| {
                let warmup = (round < case.warmup).then_some(&task.argv);
                task.prepare.iter().chain(warmup)
            })
            .collect();
        let mut monitors = Monitors::new(task.monitors, &task.dir, &env, plan.matrix.run.timeout);
        let services = self.services_of(task.machine_number, task.cell);
        let applied = self.job.around.applied(task.machine);
        let measurement = Measurement {
            dir: task.dir.clone().into(),
            drops_caches: applied.as_ref().is_some_and(|it| it.drop_caches),
            // Its own measurements disturb each other where it has several slots.
            quiet_wait: (machine.slots == 1).then_some(machine.quiet_wait),
            ours: vec![std::process::id(), machine.agent_pid],
            before: before.iter().map(|argv| in_dir(argv)).collect(),
            monitors: std::mem::take(&mut monitors.commands),
            counters: std::mem::take(&mut monitors.counters),
            command: in_dir(&task.argv),
            services: services.iter().map(|(_, service)| *service).collect(),
            profile_journal: applied.map(|_| machine.journal.own.clone()),
        };
        let mut tries = 1;
        let mut result = loop {
            let result = measure(host, measurement.clone(), self.cancel.clone()).await;
            let result = result.map_err(infrastructure)?;
            if !(result.output.as_ref()).is_some_and(|output| output.was_paused) {
                break result;
            }
            if tries == TRIES_MAX {
                let reason = format!("`matrix` was stopped in each of {tries} tries to measure it");
                return Err((store::AttemptOutcome::Failed, reason));
            }
            tries += 1;
            let what = "`matrix` was stopped in the middle of a measurement, which is repeated";
            self.job.site.note(task.machine, what.to_owned());
        };
        self.note_before(task.machine, &result, beside);
        let (outputs, counters) = (
            std::mem::take(&mut result.monitors),
            std::mem::take(&mut result.counters),
        );
        if result.output.is_some() {
            self.keep_monitors(task.machine, monitors, outputs, counters, beside);
        }
        self.note_after(task.machine, &result, beside);
        let measured = match result.output {
            Some(output) => {
                for argv in before.into_iter().chain([&task.argv]) {
                    log.command(argv);
                }
                self.read(task.case, output, log)
            }
            None => Err(failed_before(&before, &result.before, log)),
        };
        // Readings alone do not make a sample if what was measured had died meanwhile.
        let dead = result.dead_service;
        let dead = dead.and_then(|(place, output)| Some((services.get(place)?.0, output)));
        let Some((setup, output)) = dead else {
            return measured;
        };
        let name = &plan.matrix.setups[setup].name.value;
        let dead = format!(
            "set-up `{name}` ended meanwhile: {}{}",
            output.ended,
            last_words(&output)
        );
        Err(match measured {
            Ok(_) => (store::AttemptOutcome::Failed, dead),
            Err((outcome, reason)) => (outcome, format!("{dead}\n{reason}")),
        })
    }

    /// What the output of a command says.
    fn read(&self, case: usize, output: Output, log: &mut Log) -> Result<Measured, Unmeasured> {
        let mut output = output;
        if self.job.plan.matrix.run.cases[case].is_silent {
            output.stdout.truncate(SILENT_BYTES_MAX);
            output.truncated = false;
        }
        log.output(&output);
        let outcome = match output.ended {
            Ended::Interrupted => return Err(interrupted()),
            Ended::TimedOut => store::AttemptOutcome::Timeout,
            Ended::Exit(0) => store::AttemptOutcome::Refused,
            _ => store::AttemptOutcome::Failed,
        };
        if output.truncated && output.ended.is_success() {
            // A number may have lost its middle.
            return Err((
                outcome,
                format!(
                    "it printed more than the {} MiB that are kept: make it print less",
                    OUTPUT_BYTES_MAX >> 20
                ),
            ));
        }
        let input = Input {
            stdout: &output.stdout,
            stderr: &output.stderr,
            ended: output.ended,
            duration: Some(output.duration),
        };
        let reader = &self.job.readers[case];
        let parsed = reader.read(&input, &self.job.plan.matrix.engine);
        match parsed {
            Parsed::Readings {
                metrics,
                mut warnings,
            } => {
                if !output.leftovers.is_empty() {
                    warnings.push(format!(
                        "left processes behind, which were ended: {}",
                        output.leftovers.join(", ")
                    ));
                }
                Ok(Measured { metrics, warnings })
            }
            Parsed::Refused { reason } => Err((outcome, reason)),
        }
    }

    fn generate(&self, cell: u32, round: u32, machine: &Machine) -> Result<Measured, Unmeasured> {
        let plan = self.job.plan;
        let tuple = plan.cells.cell(cell as usize);
        let version = plan.cells.axis("version");
        let label = version.map_or("", |axis| plan.cells.label(tuple, axis));
        let without: Vec<usize> = version.into_iter().collect();
        let name = plan.cells.name_without(tuple, &without);
        let effect = machine.effects.get(label).copied().unwrap_or(1.0);
        let names = plan.metric_names(cell);
        let names =
            names.map_err(|diagnostic| (store::AttemptOutcome::Failed, diagnostic.message))?;
        let metrics = names
            .into_iter()
            .zip(&plan.matrix.metrics)
            .filter(|(from, _)| !from.is_empty())
            .map(|(from, metric)| Reading {
                value: effect
                    * null::value(
                        &name,
                        &from,
                        label,
                        round,
                        self.job.site.seed,
                        machine.noise,
                    ),
                name: from,
                unit: metric.unit.clone().unwrap_or_default(),
                better: metric.better,
            })
            .collect();
        Ok(Measured {
            metrics,
            warnings: Vec::new(),
        })
    }

    /// The declared metrics of a cell, in their order, with unit and direction settled; None where
    /// a metric has no reading here.
    fn choose(&self, cell: u32, measured: &Measured) -> Result<Vec<Option<Reading>>, String> {
        let plan = self.job.plan;
        let names = plan.metric_names(cell);
        let names = names.map_err(|diagnostic| diagnostic.message)?;
        let chosen = names.iter().zip(&plan.matrix.metrics);
        let chosen = chosen.map(|(name, metric)| match name.is_empty() {
            true => Ok(None),
            false => settle(metric, name, &measured.metrics, &measured.warnings),
        });
        let chosen: Vec<Option<Reading>> = chosen.collect::<Result<_, String>>()?;
        match chosen.iter().any(Option::is_some) {
            true => Ok(chosen),
            false => Err("none of the metrics is in the output".to_owned()),
        }
    }

    /// The services that a cell is measured on, with their set-ups.
    fn services_of(&self, machine: u16, cell: u32) -> Vec<(usize, ServiceId)> {
        let up = self.up.borrow();
        let needed = self.job.plan.setups_of(cell);
        let service = |(setup, step)| Some((setup, up.get(&(machine, setup, step))?.service?));
        needed.filter_map(service).collect()
    }
}

fn interrupted() -> Unmeasured {
    (store::AttemptOutcome::Interrupted, "interrupted".to_owned())
}

/// The last of these outputs is that of a command that failed.
fn failed_before(before: &[&Words], outputs: &[Output], log: &mut Log) -> Unmeasured {
    for argv in &before[..outputs.len()] {
        log.command(argv);
    }
    let (Some(output), Some(argv)) = (outputs.last(), before.get(outputs.len().wrapping_sub(1)))
    else {
        let reason = "the machine gave no result of it".to_owned();
        return (store::AttemptOutcome::Failed, reason);
    };
    log.output(output);
    match output.ended {
        Ended::Interrupted => interrupted(),
        ended => (
            store::AttemptOutcome::Failed,
            format!(
                "`{}` failed before the measurement: {ended}{}",
                show_words(argv),
                last_words(output)
            ),
        ),
    }
}

/// What the store keeps of a measurement: the declared metrics, and as many others as it may, so
/// that a metric added to the matrix later finds its values.
fn readings<'a>(chosen: &'a [Option<Reading>], all: &'a [Reading]) -> Vec<NewReading<'a>> {
    let chosen = chosen.iter().flatten();
    let others = all
        .iter()
        .filter(|reading| !chosen.clone().any(|own| own.name == reading.name));
    chosen
        .clone()
        .chain(others.take(UNDECLARED_READINGS_MAX))
        .map(|reading| NewReading {
            metric: &reading.name,
            value: reading.value,
            unit: &reading.unit,
            better: reading.better,
        })
        .collect()
}
