//! Owns `matrix run` and `matrix compare`.
//! Does not know how a step is carried out, nor how a verdict comes about.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::load::{Loaded, load};
use super::show::{self, Stop};
use super::{Common, Exit, Format, install, plan};
use crate::edge::host::Cancel;
use crate::edge::store::{SessionStart, Store};
use crate::plan::dag::{self, Plan};
use crate::report::model::{self, Report};
use crate::report::{template, text};
use crate::run::event::Event;
use crate::run::execute::{self, Failed, Job, Summary};
use crate::run::lookup::{self, Known, Past};
use crate::run::prepare::Machines;
use crate::run::progress::{Bars, JsonLines, Lines, Progress, Several, say};
use crate::words::diag::Sources;
use crate::words::units::count;

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    common: Common,
    /// Install what `[requires]` names and the machine lacks, with the system's package manager
    #[arg(long)]
    install: bool,
    /// Write each event as a JSON line
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    #[command(flatten)]
    faces: Faces,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    #[command(flatten)]
    common: Common,
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

pub fn compare(args: CompareArgs) -> Exit {
    let mut sources = Sources::default();
    let result = block_on(compare_stored(&args, &mut sources));
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

pub fn nothing_selected(common: &Common) -> Stop {
    Stop {
        diagnostics: vec![plan::diagnose_empty(common)],
        exit: Exit::Nothing,
    }
}

async fn compare_stored(args: &CompareArgs, sources: &mut Sources) -> Result<Shown, Stop> {
    let loaded = load(&args.common, sources)?;
    let machines = loaded.machines().await?;
    let plan =
        dag::plan(&loaded.matrix, &loaded.choice(&args.common), &machines).map_err(Stop::usage)?;
    if plan.cells.is_empty() {
        return Err(nothing_selected(&args.common));
    }
    let store = loaded.store()?;
    Ok(Shown {
        report: judge(
            &plan,
            store.as_ref(),
            stored_failures(&plan, store.as_ref())?,
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

fn judge(plan: &Plan, store: Option<&Store>, failed: Vec<Failed>) -> Result<Report, Stop> {
    let samples = match store {
        Some(store) => lookup::samples(plan, store)?,
        None => Default::default(),
    };
    Ok(model::report(plan, &samples, failed)?)
}

async fn run_all(args: &RunArgs, sources: &mut Sources) -> Result<Shown, Stop> {
    let loaded = load(&args.common, sources)?;
    let mut machines = loaded.machines().await?;
    if install::check(&loaded.matrix, &machines, args.install).await? {
        machines = loaded.machines().await?;
        install::check(&loaded.matrix, &machines, false).await?;
    }
    let choice = loaded.choice(&args.common);
    let plan = dag::plan(&loaded.matrix, &choice, &machines).map_err(Stop::usage)?;
    if plan.cells.is_empty() {
        return Err(nothing_selected(&args.common));
    }
    // Before the store is looked up: events of an earlier run must not be taken for this one's.
    let progress = progress(args)?;
    let store = RefCell::new(Store::open(&loaded.state)?);
    let known = lookup::known(&plan, Some(&store.borrow()))?;
    if known.todo.is_nothing() {
        say(&format!(
            "nothing to do: all {} are stored",
            count(plan.cells.len(), "cell")
        ));
        return Ok(Shown {
            report: judge(&plan, Some(&store.borrow()), Vec::new())?,
            interrupted: false,
            ran: false,
        });
    }
    let names = known.machines(&plan);
    let summary = measure(args, &loaded, &plan, &machines, &names, &store, &progress).await?;
    let failed = summary.failed;
    Ok(Shown {
        report: judge(&plan, Some(&store.borrow()), failed)?,
        interrupted: summary.interrupted,
        ran: true,
    })
}

/// Measures what is missing, as one session. `names`: the machines on which anything is.
async fn measure(
    args: &RunArgs,
    loaded: &Loaded,
    plan: &Plan<'_>,
    machines: &Machines,
    names: &BTreeSet<String>,
    store: &RefCell<Store>,
    progress: &RefCell<Several>,
) -> Result<Summary, Stop> {
    let arguments: Vec<String> = std::env::args().collect();
    let session = store.borrow().begin_session(&SessionStart {
        started_ms: now_ms(),
        matrix: &loaded.matrix.name,
        preset: args.common.preset.as_deref().unwrap_or(""),
        seed: args.common.seed,
        arguments: &arguments.join(" "),
        program_version: env!("CARGO_PKG_VERSION"),
        process: &std::process::id().to_string(),
    })?;
    let job = Job {
        plan,
        machines,
        parser: &loaded.parser,
        store,
        session,
        seed: args.common.seed,
        progress,
    };
    let mut interrupts = interrupts()?;
    let result = measure_job(&job, names, &mut interrupts).await;
    let outcome = match &result {
        Ok(summary) if summary.interrupted => "interrupted",
        Ok(summary) if !summary.failed.is_empty() => "failed",
        Ok(_) => "ok",
        Err(_) => "error",
    };
    let ended = store.borrow().end_session(session, now_ms(), outcome);
    let summary = result?;
    ended?;
    Ok(summary)
}

async fn measure_job(
    job: &Job<'_>,
    names: &BTreeSet<String>,
    interrupts: &mut mpsc::UnboundedReceiver<()>,
) -> Result<Summary, Stop> {
    let (stop, cancel) = watch::channel(false);
    let cancel = Cancel::new(cancel);
    let slots = tokio::select! {
        slots = execute::enter(job, names, &cancel) => slots.map_err(stop_of)?,
        Some(()) = interrupts.recv() => {
            let _ = stop.send(true);
            return Ok(Summary { interrupted: true, ..Summary::default() });
        }
    };
    // Whoever had the machine before may have done some of it.
    let known = lookup::known(job.plan, Some(&job.store.borrow()))?;
    announce(job, &known)?;
    let rounds = known.rounds;
    let have = |run: usize| rounds[run].iter().collect();
    let summary = execute::run(job, &known.todo, &have, known.repetition, interrupts).await;
    drop(slots);
    summary.map_err(stop_of)
}

fn stop_of(error: execute::RunError) -> Stop {
    Stop::message(error.to_string())
}

fn announce(job: &Job, known: &Known) -> Result<(), Stop> {
    let past = Past::of(job.plan, Some(&job.store.borrow()))?;
    let graph = dag::graph(job.plan, &known.todo);
    let estimate = past.with(|durations| dag::estimate(job.plan, &known.todo, &graph, durations));
    job.progress.borrow_mut().event(&Event::Started {
        matrix: job.plan.matrix.name.clone(),
        cells: known.todo.counts().run.run,
        measurements: known.todo.measurements(),
        estimate_s: estimate.total.as_secs_f64(),
        seed: job.seed,
    });
    Ok(())
}

fn progress(args: &RunArgs) -> Result<RefCell<Several>, Stop> {
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
            let text = std::fs::read_to_string(&path).map_err(|error| {
                Stop::message(format!(
                    "template `{}` cannot be read: {error}",
                    path.display()
                ))
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

/// What one would want to do next.
fn next_commands(result: &Shown, common: &Common) {
    let matrix = common.matrix.display();
    let preset = common
        .preset
        .as_ref()
        .map(|preset| format!(" --preset {preset}"))
        .unwrap_or_default();
    let mut commands = Vec::new();
    if let Some(failed) = result.report.failed.first() {
        commands.push(format!("matrix log {matrix}{preset} {}", failed.cell));
        commands.push(format!("matrix explain {matrix}{preset} {}", failed.cell));
    }
    if result.interrupted {
        commands.push(format!("matrix run {matrix}{preset}   # goes on"));
    } else if let Some(cell) = result.report.cells.first().filter(|_| commands.is_empty()) {
        commands.push(format!("matrix explain {matrix}{preset} {}", cell.cell));
    }
    if result.ran && !result.report.verdicts.is_empty() {
        commands.push(format!("matrix compare {matrix}{preset} --format markdown"));
    }
    if !commands.is_empty() {
        say("\nnext:");
        commands
            .iter()
            .for_each(|command| say(&format!("  {command}")));
    }
}

fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_millis() as i64)
}
