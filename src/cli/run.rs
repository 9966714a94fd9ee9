//! Owns `matrix run` and `matrix compare`.
//! Does not know how a step is carried out, nor how a verdict comes about.

use std::cell::RefCell;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::load::{Loaded, Looked, load};
use super::show::{self, Stop};
use super::{Common, Exit, Format, install};
use crate::config::matrix::INSTALLED;
use crate::edge::host::Cancel;
use crate::edge::store::{SessionStart, Store};
use crate::plan::dag::{self, Plan};
use crate::plan::resolve::show_words;
use crate::report::model::{self, Report};
use crate::report::{template, text};
use crate::run::build::{self, BrokenBuilds};
use crate::run::event::Event;
use crate::run::execute::{self, Failed, Job, Site, Summary};
use crate::run::inputs;
use crate::run::lookup::{self, Known, Past};
use crate::run::progress::{Bars, JsonLines, Lines, Progress, Several};
use crate::words::diag::Sources;
use crate::words::units::count;

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
            eprintln!("the operating system refuses timers or polling: {error}");
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
    let common = &args.common;
    let loaded = load(common, sources)?;
    let mut looked = loaded.look(common).await?;
    nothing_installed(&loaded, &looked)?;
    if install::check(&loaded.matrix, &looked.machines, args.install).await? {
        looked.machines = loaded.machines(&looked.versions).await?;
        install::check(&loaded.matrix, &looked.machines, false).await?;
    }
    let store = RefCell::new(Store::open(&loaded.state)?);
    let plan = current_plan(args, &loaded, &looked, &store)?;
    let known = lookup::known(&plan, Some(&store.borrow()), &loaded.artifacts)?;
    if known.todo.is_nothing() {
        let cells = count(plan.cells.len(), "cell");
        show::note(&format!("nothing to do: all {cells} are stored"));
        return Ok(Shown {
            report: judge(&plan, Some(&store.borrow()), Vec::new())?,
            interrupted: false,
            ran: false,
        });
    }
    drop(plan);
    let summary = session(args, &loaded, &looked, &store).await?;
    // Builds have changed what the keys are.
    let plan = current_plan(args, &loaded, &looked, &store)?;
    Ok(Shown {
        report: judge(&plan, Some(&store.borrow()), summary.failed)?,
        interrupted: summary.interrupted,
        ran: true,
    })
}

/// A subject that is only built has nothing to measure without a version.
fn nothing_installed(loaded: &Loaded, looked: &Looked) -> Result<(), Stop> {
    let subject = &loaded.matrix.subject;
    let is_only_built = subject.git.is_some() && subject.installed.is_empty();
    let measures = looked
        .machines
        .iter()
        .any(|(_, machine)| machine.host.is_some());
    match is_only_built && measures && looked.versions.get(INSTALLED).is_some() {
        true => Err(Stop::message(
            "the matrix names no installed programs (`[subject] installed`): say what to build, \
             `--version REV`"
                .to_owned(),
        )),
        false => Ok(()),
    }
}

fn current_plan<'a>(
    args: &RunArgs,
    loaded: &'a Loaded,
    looked: &Looked,
    store: &RefCell<Store>,
) -> Result<Plan<'a>, Stop> {
    let world = loaded.world(looked, Some(&store.borrow()))?;
    loaded.plan(&args.common, looked, &world)
}

/// Builds and measures what is missing, as one session.
async fn session(
    args: &RunArgs,
    loaded: &Loaded,
    looked: &Looked,
    store: &RefCell<Store>,
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
    let progress = progress(args)?;
    let site = Site {
        machines: &looked.machines,
        store,
        session,
        seed: args.common.seed,
        progress: &progress,
    };
    let result = work(args, loaded, looked, &site).await;
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

async fn work(
    args: &RunArgs,
    loaded: &Loaded,
    looked: &Looked,
    site: &Site<'_>,
) -> Result<Summary, Stop> {
    let mut interrupts = interrupts()?;
    let (stop, cancel) = watch::channel(false);
    let cancel = Cancel::new(cancel);
    let before = async {
        let names: Vec<String> = looked
            .machines
            .iter()
            .map(|(name, _)| name.to_owned())
            .collect();
        let slots = execute::enter(site, &loaded.matrix.name, &names, &cancel)
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
    for (run, rounds) in known.todo.rounds.iter_mut().enumerate() {
        let cell = plan.steps.runs.steps[run].cell as usize;
        let reason = plan.build_of(cell).and_then(|build| broken.get(&build));
        if let Some(reason) = reason.filter(|_| *rounds > 0 && !known.is_built[run]) {
            *rounds = 0;
            failed.push(Failed {
                cell: plan.cells.name(plan.cells.cell(cell)),
                reason: format!("not measured, its build failed: {reason}"),
            });
        }
    }
    let job = Job {
        site,
        plan: &plan,
        parser: &loaded.parser,
    };
    let world = loaded.world(looked, Some(&site.store.borrow()))?;
    inputs::record(&plan, &known.todo, &world, &site.store.borrow())??;
    announce(&job, &known)?;
    let rounds = known.rounds;
    let have = |run: usize| rounds[run].iter().collect();
    let summary = execute::run(&job, &known.todo, &have, known.repetition, &mut interrupts).await;
    drop(slots);
    let mut summary = summary.map_err(stop_of)?;
    failed.append(&mut summary.failed);
    Ok(Summary { failed, ..summary })
}

/// Makes the builds that are missing.
async fn build(
    args: &RunArgs,
    loaded: &Loaded,
    looked: &Looked,
    site: &Site<'_>,
    cancel: &Cancel,
) -> Result<BrokenBuilds, Stop> {
    let world = loaded.world(looked, Some(&site.store.borrow()))?;
    let plan = loaded.plan(&args.common, looked, &world)?;
    let known = lookup::known(&plan, Some(&site.store.borrow()), &loaded.artifacts)?;
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

fn announce(job: &Job, known: &Known) -> Result<(), Stop> {
    let past = Past::of(job.plan, Some(&job.site.store.borrow()))?;
    let graph = dag::graph(job.plan, &known.todo);
    let estimate = past.with(|durations| dag::estimate(job.plan, &known.todo, &graph, durations));
    job.site.progress.borrow_mut().event(&Event::Started {
        matrix: job.plan.matrix.name.clone(),
        cells: known.todo.counts().run.run,
        measurements: known.todo.measurements(),
        estimate_s: estimate.total.as_secs_f64(),
        seed: job.site.seed,
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

/// What one would want to do next, in words that can be pasted into a shell.
fn next_commands(result: &Shown, common: &Common) {
    let command = |verb: &str, rest: &[String]| {
        let program = std::env::args().next().unwrap_or("matrix".to_owned());
        let mut words = vec![
            program,
            verb.to_owned(),
            common.matrix.display().to_string(),
        ];
        let mut option = |name: &str, value: Option<String>| {
            words.extend(
                value
                    .map(|value| [name.to_owned(), value])
                    .into_iter()
                    .flatten(),
            );
        };
        option("--preset", common.preset.clone());
        option(
            "--state",
            common
                .state
                .as_ref()
                .map(|state| state.display().to_string()),
        );
        show_words(&[words, rest.to_vec()].concat())
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
        show::note(&format!("\nnext:\n  {}", commands.join("\n  ")));
    }
}

fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_millis() as i64)
}
