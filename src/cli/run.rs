//! Owns `matrix run` and `matrix compare`.
//! Does not know how a step is carried out, nor how a verdict comes about.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::load::{self, Loaded, Looked, load};
use super::show::{self, Stop};
use super::{Common, Exit, Format, SEED, install, sides};
use crate::edge::host::Cancel;
use crate::edge::store::{SessionStart, Store};
use crate::plan::dag::{self, Plan};
use crate::plan::resolve::show_words;
use crate::report::model::{self, Report};
use crate::report::{beside, columns, template, text};
use crate::run::build::{self, BrokenBuilds};
use crate::run::calibrate;
use crate::run::command::now_ms;
use crate::run::confirm;
use crate::run::event::Event;
use crate::run::execute::{self, Failed, Interrupts, Job, RunError, Site, Summary};
use crate::run::family::Beside;
use crate::run::inputs;
use crate::run::lookup::{self, Known, Past};
use crate::run::past::preset_name;
use crate::run::progress::{Bars, JsonLines, Lines, Progress, Several, say};
use crate::run::surroundings::Surroundings;
use crate::words::diag::Sources;
use crate::words::sample::Better;
use crate::words::units::{count, parse_percent};

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    common: Common,
    /// Install what `[requires]` names and the machine lacks, with the system's package manager
    #[arg(long)]
    install: bool,
    /// Try builds again that failed before
    #[arg(long)]
    failed: bool,
    /// Write each event as a JSON line
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    #[command(flatten)]
    faces: Faces,
    /// Rounds of a calibration: then nothing else is measured.
    #[arg(skip)]
    calibrate: Option<u32>,
}

impl RunArgs {
    pub fn calibrating(common: Common, rounds: u32) -> RunArgs {
        RunArgs {
            common,
            install: false,
            failed: false,
            events: None,
            faces: Faces {
                format: Format::Text,
                template: None,
            },
            calibrate: Some(rounds),
        }
    }
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    #[command(flatten)]
    common: Common,
    /// Compare a file instead of a matrix: columns `cell,metric,side,round,value`
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Which direction is better in a file: `higher` or `lower`
    #[arg(long, value_name = "DIRECTION", requires = "csv", default_value = "higher", value_parser = better)]
    better: Better,
    /// The smallest change that matters in a file
    #[arg(long, value_name = "PERCENT", requires = "csv", default_value = "2%", value_parser = percent)]
    min_effect: f64,
    /// List the monitors that moved together with a verdict
    #[arg(long)]
    monitors: bool,
    #[command(flatten)]
    faces: Faces,
}

#[derive(Debug, Args)]
struct Faces {
    /// How the result is shown
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// A minijinja template to fill instead of `hooks/compare.md.jinja`
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
}

/// What a run gives to show.
struct Shown {
    report: Report,
    interrupted: bool,
    /// Anything was tried.
    ran: bool,
}

pub fn run(args: RunArgs) -> Exit {
    let mut sources = Sources::default();
    let result = block_on(run_all(&args, &mut sources));
    finish(result, &args.common, &args.faces, &sources)
}

fn better(text: &str) -> Result<Better, String> {
    match text {
        "higher" => Ok(Better::Higher),
        "lower" => Ok(Better::Lower),
        _ => Err("it is `higher` or `lower`".to_owned()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = parse_percent(text).filter(|percent| *percent >= 0.0);
    percent.ok_or_else(|| "a percentage such as `2%`".to_owned())
}

pub fn compare(args: CompareArgs) -> Exit {
    let mut sources = Sources::default();
    let result = match (&args.csv, args.common.matrix.as_os_str().is_empty()) {
        (Some(file), true) => {
            sides::report(file, args.better, args.min_effect).map(|report| Shown {
                report,
                interrupted: false,
                ran: false,
            })
        }
        (None, false) => block_on(compare_stored(&args, &mut sources)),
        _ => Err(Stop::message(
            "`matrix compare` looks at a matrix or, with `--csv FILE`, at a file: give one of them",
        )),
    };
    finish(result, &args.common, &args.faces, &sources)
}

/// Runs a future to its end on this thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime.block_on(future),
        Err(error) => {
            say(&format!(
                "the operating system refuses timers or polling: {error}"
            ));
            std::process::exit(Exit::Usage as i32);
        }
    }
}

async fn compare_stored(args: &CompareArgs, sources: &mut Sources) -> Result<Shown, Stop> {
    let loaded = load(&args.common, sources)?;
    let looked = loaded.look(&args.common).await?;
    let store = loaded.store()?;
    let world = loaded.world(&looked, store.as_ref())?;
    let plan = loaded.plan(&args.common, &looked, &world)?;
    Ok(Shown {
        report: judge(
            &plan,
            &args.common,
            store.as_ref(),
            stored_failures(&plan, store.as_ref())?,
            args.monitors,
        )?,
        interrupted: false,
        ran: false,
    })
}

/// Cells whose last attempt failed.
fn stored_failures(plan: &Plan, store: Option<&Store>) -> Result<Vec<Failed>, Stop> {
    let Some(store) = store else {
        return Ok(Vec::new());
    };
    let failures = lookup::failures(plan, store)?;
    let mut runs: Vec<usize> = failures.keys().copied().collect();
    runs.sort_unstable();
    let failed = |run: usize| Failed {
        cell: plan.cells.name(plan.cell_of(run)),
        reason: failures[&run].clone(),
    };
    Ok(runs.into_iter().map(failed).collect())
}

fn judge(
    plan: &Plan,
    common: &Common,
    store: Option<&Store>,
    failed: Vec<Failed>,
    monitors: bool,
) -> Result<Report, Stop> {
    let Some(store) = store else {
        return Ok(model::report(
            plan,
            &Default::default(),
            &Default::default(),
            failed,
        )?);
    };
    let samples = lookup::samples(plan, store)?;
    let past = Beside::read(plan, store, common.preset.as_deref())?;
    let mut report = model::report(plan, &samples, &past, failed)?;
    beside::add(&mut report, plan, &samples, store, monitors)?;
    Ok(report)
}

async fn run_all(args: &RunArgs, sources: &mut Sources) -> Result<Shown, Stop> {
    let common = &args.common;
    let loaded = load(common, sources)?;
    let mut looked = loaded.look(common).await?;
    loaded.has_something_to_measure(&looked)?;
    if install::check(&loaded.matrix, &looked.machines, args.install).await? {
        looked.machines = loaded.machines(&looked.versions).await?;
        install::check(&loaded.matrix, &looked.machines, false).await?;
    }
    // Before the store is looked up: events of an earlier run must not be taken for this one's.
    let progress = progress(args)?;
    let store = RefCell::new(Store::open(&loaded.state)?);
    let plan = current_plan(args, &loaded, &looked, &store)?;
    let known = lookup::known(&plan, Some(&store.borrow()), &loaded.artifacts)?;
    let begun = confirm::is_begun(&plan, &store.borrow())?;
    if known.todo.is_nothing() && !begun {
        say(&format!(
            "nothing to do: all {} are stored",
            count(plan.cells.len(), "cell")
        ));
        return Ok(Shown {
            report: judge(&plan, common, Some(&store.borrow()), Vec::new(), false)?,
            interrupted: false,
            ran: false,
        });
    }
    let names = known.machines(&plan, begun);
    drop(plan);
    let (_, summary) = session(args, &loaded, &looked, &names, &store, &progress).await?;
    // Builds have changed what the keys are.
    let plan = current_plan(args, &loaded, &looked, &store)?;
    Ok(Shown {
        report: judge(&plan, common, Some(&store.borrow()), summary.failed, false)?,
        interrupted: summary.interrupted,
        ran: true,
    })
}

pub fn current_plan<'a>(
    args: &RunArgs,
    loaded: &'a Loaded,
    looked: &Looked,
    store: &RefCell<Store>,
) -> Result<Plan<'a>, Stop> {
    let world = loaded.world(looked, Some(&store.borrow()))?;
    loaded.plan(&args.common, looked, &world)
}

/// Builds and measures what is missing, as one session, whose number is returned. `names`: the machines
/// on which anything is.
pub async fn session(
    args: &RunArgs,
    loaded: &Loaded,
    looked: &Looked,
    names: &BTreeSet<String>,
    store: &RefCell<Store>,
    progress: &RefCell<Several>,
) -> Result<(i64, Summary), Stop> {
    let arguments: Vec<String> = std::env::args().collect();
    let session = store.borrow().begin_session(&SessionStart {
        started_ms: now_ms(),
        matrix: &loaded.matrix.name,
        preset: preset_name(&loaded.matrix, args.common.preset.as_deref()),
        seed: args.common.seed,
        arguments: &arguments.join(" "),
        program_version: env!("CARGO_PKG_VERSION"),
        process: &std::process::id().to_string(),
    })?;
    let site = Site {
        machines: &looked.machines,
        store,
        session,
        seed: args.common.seed,
        progress,
    };
    let result = work(args, loaded, looked, names, &site).await;
    let outcome = match &result {
        Ok(summary) if summary.interrupted => "interrupted",
        Ok(summary) if !summary.failed.is_empty() => "failed",
        Ok(_) => "ok",
        Err(_) => "error",
    };
    let ended = store.borrow().end_session(session, now_ms(), outcome);
    let summary = result?;
    ended?;
    Ok((session, summary))
}

async fn work(
    args: &RunArgs,
    loaded: &Loaded,
    looked: &Looked,
    names: &BTreeSet<String>,
    site: &Site<'_>,
) -> Result<Summary, Stop> {
    let mut interrupts = interrupts()?;
    let (stop, cancel) = watch::channel(false);
    let cancel = Cancel::new(cancel);
    let before = async {
        let slots = execute::enter(site, &loaded.matrix.name, names, &cancel)
            .await
            .map_err(stop_of)?;
        let broken = build(args, loaded, looked, site, &cancel).await?;
        Ok::<_, Stop>((slots, broken))
    };
    tokio::pin!(before);
    // While waiting and building, one Ctrl-C ends what is under way.
    let (slots, broken) = tokio::select! {
        done = &mut before => done?,
        Some(()) = interrupts.recv() => {
            let _ = stop.send(true);
            let _ = before.await;
            return Ok(Summary { interrupted: true, ..Summary::default() });
        }
    };
    // Whoever had the machine before may have done some of it, and builds may have come out equal.
    let plan = current_plan(args, loaded, looked, site.store)?;
    let mut known = lookup::known(&plan, Some(&site.store.borrow()), &loaded.artifacts)?;
    let mut failed = Vec::new();
    for (run, cell) in plan.steps.runs.cells.iter().enumerate() {
        let cell = *cell as usize;
        let is_due = known.todo.rounds[run] > 0 && !known.is_built(&plan, run);
        let reason = plan.build_of(cell).and_then(|build| broken.get(&build));
        if let Some(reason) = reason.filter(|_| is_due) {
            known.todo.rounds[run] = 0;
            failed.push(Failed {
                cell: plan.cells.name(plan.cells.cell(cell)),
                reason: format!("not measured, its build failed: {reason}"),
            });
        }
    }
    let world = loaded.world(looked, Some(&site.store.borrow()))?;
    inputs::record(
        &plan,
        &known.todo,
        &world,
        &site.store.borrow(),
        site.session,
    )??;
    let in_use = plan.steps.subjects.artifacts();
    site.store
        .borrow()
        .put_artifacts_in_use(&loaded.matrix.name, &in_use)?;
    announce(site, &plan, &known)?;
    let around = Surroundings::enter(site, names, &loaded.monitors)
        .await
        .map_err(stop_of)?;
    let job = Job {
        site,
        plan: &plan,
        parser: &loaded.parser,
        around: &around,
    };
    let summary = measure(args, &job, known, &mut interrupts).await;
    // Whatever came of it: the machine is put back before anybody else may have it.
    let left = around.leave(site).await;
    drop(slots);
    let mut summary = summary.map_err(stop_of)?;
    left.map_err(stop_of)?;
    failed.append(&mut summary.failed);
    Ok(Summary { failed, ..summary })
}

/// Measures what is missing, then measures again what looks like a change.
async fn measure(
    args: &RunArgs,
    job: &Job<'_>,
    mut known: Known,
    interrupts: &mut Interrupts,
) -> Result<Summary, RunError> {
    if let Some(rounds) = args.calibrate {
        return calibrate::measure(job, rounds, interrupts).await;
    }
    let repetition = std::mem::take(&mut known.repetition);
    let have = |run: usize| known.rounds.rounds(run).collect();
    let mut summary = execute::run(job, &known.todo, &have, repetition, interrupts).await?;
    if !summary.interrupted {
        let preset = args.common.preset.as_deref();
        let is_built = |run: u32| known.is_built(job.plan, run as usize);
        let mut again = confirm::confirm(job, preset, &is_built, interrupts).await?;
        summary.failed.append(&mut again.failed);
        summary.interrupted = again.interrupted;
    }
    Ok(summary)
}

/// Makes the builds that are missing.
async fn build(
    args: &RunArgs,
    loaded: &Loaded,
    looked: &Looked,
    site: &Site<'_>,
    cancel: &Cancel,
) -> Result<BrokenBuilds, Stop> {
    let mut world = loaded.world(looked, Some(&site.store.borrow()))?;
    let mut plan = loaded.plan(&args.common, looked, &world)?;
    let mut known = lookup::known(&plan, Some(&site.store.borrow()), &loaded.artifacts)?;
    // What somebody has removed must not go on standing for what other builds would give.
    let gone = known.gone(&plan);
    if !gone.is_empty() {
        site.store.borrow().forget_artifacts(gone)?;
        world = loaded.world(looked, Some(&site.store.borrow()))?;
        plan = loaded.plan(&args.common, looked, &world)?;
        known = lookup::known(&plan, Some(&site.store.borrow()), &loaded.artifacts)?;
    }
    build::build(
        site,
        &plan,
        &known.todo,
        &world,
        &loaded.state,
        args.failed,
        cancel,
    )
    .await
    .map_err(stop_of)
}

fn stop_of(error: execute::RunError) -> Stop {
    Stop::message(error.to_string())
}

fn announce(site: &Site, plan: &Plan, known: &Known) -> Result<(), Stop> {
    let past = Past::of(plan, Some(&site.store.borrow()), &|run| {
        known.todo.rounds[run] > 0
    })?;
    let estimate = past.with(|durations| dag::estimate(plan, &known.todo, durations));
    site.progress.borrow_mut().event(&Event::Started {
        matrix: plan.matrix.name.clone(),
        cells: known.todo.counts().run.run,
        measurements: known.todo.measurements(),
        estimate_s: estimate.total.as_secs_f64(),
        seed: site.seed,
    });
    Ok(())
}

/// Who follows a run: the terminal, and the events file if one is asked for.
pub fn progress(args: &RunArgs) -> Result<RefCell<Several>, Stop> {
    let mut readers: Vec<Box<dyn Progress>> = vec![match show::stderr_is_terminal() {
        true => Box::new(Bars::default()),
        false => Box::new(Lines::default()),
    }];
    if let Some(path) = &args.events {
        let file = File::create(path).map_err(|error| {
            Stop::message(format!(
                "`--events {}` cannot be written: {error}",
                path.display()
            ))
        })?;
        readers.push(Box::new(JsonLines(BufWriter::new(file))));
    }
    Ok(RefCell::new(Several(readers)))
}

/// One message for each Ctrl-C or SIGTERM.
fn interrupts() -> Result<mpsc::UnboundedReceiver<()>, Stop> {
    let (sender, receiver) = mpsc::unbounded_channel();
    for kind in [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ] {
        let mut signals = signal(kind)
            .map_err(|error| Stop::message(format!("signals cannot be caught: {error}")))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if sender.send(()).is_err() {
                    break;
                }
            }
        });
    }
    Ok(receiver)
}

fn finish(result: Result<Shown, Stop>, common: &Common, faces: &Faces, sources: &Sources) -> Exit {
    let json = common.json || faces.format == Format::Json;
    let result = match result {
        Ok(result) => result,
        Err(stop) => return show::stopped(&stop, sources, json),
    };
    let report = &result.report;
    if json {
        show::document(report);
    } else if faces.format == Format::Lkp {
        show::out(&columns::lkp(report));
    } else if faces.format == Format::Mmtests {
        show::out(&columns::mmtests(report));
    } else if faces.format == Format::Markdown || faces.template.is_some() {
        match markdown(report, common, faces) {
            Ok(text) => show::out(&text),
            Err(stop) => return show::stopped(&stop, sources, json),
        }
    } else {
        show::out(&text::report(report, show::style()));
        next_commands(&result, common);
    }
    match result.report {
        _ if result.interrupted => Exit::Interrupted,
        _ if !report.measured_anything() && report.failed.is_empty() => Exit::Nothing,
        _ if !report.failed.is_empty() => Exit::Failed,
        _ if report.has_gating_regression() => Exit::Regression,
        _ => Exit::Fine,
    }
}

/// The user's template: the one named, or `compare.md.jinja` in a `hooks` folder beside the matrix or
/// beside its folder; else the shipped one.
fn markdown(report: &Report, common: &Common, faces: &Faces) -> Result<String, Stop> {
    let folder = common
        .matrix
        .parent()
        .map(PathBuf::from)
        .unwrap_or_default();
    let beside = ["hooks", "../hooks"].map(|hooks| folder.join(hooks).join("compare.md.jinja"));
    let found = faces
        .template
        .clone()
        .or_else(|| beside.into_iter().find(|path| path.is_file()));
    let (name, text) = match found {
        Some(path) => {
            let text = load::read(&path).map_err(|reason| {
                let path = path.display();
                Stop::message(format!("template `{path}` cannot be read: {reason}"))
            })?;
            (path.display().to_string(), text)
        }
        None => (
            "the shipped template".to_owned(),
            template::MARKDOWN.to_owned(),
        ),
    };
    template::render(&text, report).map_err(|reason| Stop::message(format!("{name}: {reason}")))
}

/// What one would want to do next, in words that can be pasted into a shell.
fn next_commands(result: &Shown, common: &Common) {
    let command = |verb: &str, rest: &[String]| {
        let program = std::env::args().next().unwrap_or("matrix".to_owned());
        let matrix = common.matrix.display().to_string();
        let words = vec![program, verb.to_owned(), matrix];
        show_words(&[words, same_choice(common), rest.to_vec()].concat())
    };
    let only: Vec<String> = common
        .only
        .iter()
        .flat_map(|only| ["--only".to_owned(), only.clone()])
        .collect();
    let mut commands = Vec::new();
    if let Some(failed) = result.report.failed.first() {
        commands.push(command("log", std::slice::from_ref(&failed.cell)));
        commands.push(command("explain", std::slice::from_ref(&failed.cell)));
    }
    if result.interrupted {
        commands.push(command("run", &only) + "   # goes on");
    } else if let Some(row) = result.report.cells.first().filter(|_| commands.is_empty()) {
        commands.push(command("explain", std::slice::from_ref(&row.cell)));
    }
    if result.ran && !result.report.verdicts.is_empty() {
        let markdown = ["--format".to_owned(), "markdown".to_owned()];
        commands.push(command("compare", &[&only[..], &markdown].concat()));
    }
    if !commands.is_empty() {
        say(&format!("\nnext:\n  {}", commands.join("\n  ")));
    }
}

/// The options by which another verb sees the same cells of the same store, but for `--only`.
fn same_choice(common: &Common) -> Vec<String> {
    let state = common.state.as_ref().map(|it| it.display().to_string());
    let seed = (common.seed != SEED).then(|| common.seed.to_string());
    let mut options = vec![
        ("--preset", common.preset.clone()),
        ("--repo", common.repo.clone()),
        ("--against", common.against.clone()),
        ("--state", state),
        ("--seed", seed),
    ];
    let versions = common.versions.iter().cloned();
    options.extend(versions.map(|version| ("--version", Some(version))));
    let given = options
        .into_iter()
        .filter_map(|(name, value)| Some([name.to_owned(), value?]));
    given.flatten().collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        common: Common,
    }

    #[test]
    fn the_next_command_sees_the_same_cells() {
        let check = |line: &str, expected: &str| {
            let words = shlex::split(line).unwrap();
            let line = Line::try_parse_from(words).unwrap();
            assert_eq!(same_choice(&line.common).join(" "), expected);
        };
        check("matrix m.toml --only a --json --seed 1", "");
        check(
            "matrix m.toml --version b --seed 7 --version c --against a --repo r --preset p --state s",
            "--preset p --repo r --against a --state s --seed 7 --version b --version c",
        );
    }
}
