//! `matrix run` and `matrix compare`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use clap::Args;
use tokio::time::Instant;

use super::files;
use super::load::{Targets, load};
use super::pivot::LayoutOptions;
use super::session::{SelectionArgs, settings};
use super::show::{self, Stop};
use super::signals::signals;
use super::{Common, Exit, Format, SEED, install, sides};
use crate::base::diag::{Sources, suggest};
use crate::base::sample::Better;
use crate::base::units::{count, parse_percent};
use crate::config::hook::Moment;
use crate::config::matrix::INSTALLED;
use crate::edge::store::Store;
use crate::machine::host::{Cancel, MachineIdentity};
use crate::plan::commands::show_words;
use crate::plan::dag::Plan;
use crate::report::text::Style;
use crate::report::{columns, junit, pivot, rows, template, text};
use crate::resolve::lookup;
use crate::resolve::lookup::Failed;
use crate::resolve::prepare::Machines;
use crate::resolve::samples::Samples;
use crate::resolve::selection::{Chosen, LeftOut};
use crate::run::event::Event;
use crate::run::hooks::{About, Hooks};
use crate::run::progress::{Bars, JsonLines, PlainLines, Progress, Several, say};
use crate::run::session::Session;
use crate::run::strategy::confirm;
use crate::run::tune;
use crate::verdicts::comparisons::ComparisonContext;
use crate::verdicts::document::Document;
use crate::verdicts::history::preset_name;
use crate::verdicts::metric_check::unmatched;
use crate::verdicts::parts::FindingStanding;
use crate::verdicts::report::{self, Report, VerdictRow};
use crate::verdicts::{context, details, findings};

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    common: Common,
    /// Install what `[requires]` names and the machine lacks, with the system's package manager
    #[arg(long)]
    install: bool,
    #[command(flatten)]
    choosing: SelectionArgs,
    /// Write each event as a JSON line
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    #[command(flatten)]
    faces: OutputOptions,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    #[command(flatten)]
    common: Common,
    /// Compare a file instead of a matrix: columns `cell,metric,side,round,value`
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Which direction is better in a file: `higher` or `lower`
    #[arg(long, value_name = "DIRECTION", requires = "csv", value_parser = better)]
    better: Option<Better>,
    /// The smallest change that matters in a file
    #[arg(long, value_name = "PERCENT", requires = "csv", default_value = "2%", value_parser = percent)]
    min_effect: f64,
    /// List the monitors that moved together with a verdict
    #[arg(long)]
    monitors: bool,
    #[command(flatten)]
    faces: OutputOptions,
}

#[derive(Debug, Args)]
struct OutputOptions {
    /// How the result is shown
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Which regressions make the exit status 1: `any` that gates, or only `new` ones, which no earlier session found
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = FailOn::Any)]
    fail_on: FailOn,
    /// A minijinja template to fill instead of `hooks/compare.md.jinja`
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    #[command(flatten)]
    layout: LayoutOptions,
    #[command(flatten)]
    rows: RowOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FailOn {
    New,
    Any,
}

/// Which rows of the verdicts are shown, and in which order.
#[derive(Debug, Args)]
struct RowOptions {
    /// Show all rows, however many they are
    #[arg(long)]
    all: bool,
    /// Show only comparisons along this axis
    #[arg(long, value_name = "AXIS")]
    axis: Vec<String>,
    /// Show only this metric
    #[arg(long, value_name = "NAME")]
    metric: Vec<String>,
    /// Show only this verdict, such as `regression`, `slower` or `inconclusive`
    #[arg(long, value_name = "WORD")]
    verdict: Vec<String>,
    /// The order of rows: what gates, then what is confirmed, then cell by cell (`cell`), or by the size of the change
    #[arg(long, value_enum, default_value_t = Sort::Cell)]
    sort: Sort,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    Cell,
    Effect,
}

impl RowOptions {
    /// Leaves only what was asked for. Err where no row can have such a value.
    fn apply(&self, report: &mut Report) -> Result<(), Stop> {
        type Named = fn(&VerdictRow) -> Vec<&str>;
        let options: [(&str, &[String], Named); 3] = [
            ("axis", &self.axis, |row| vec![&row.axis]),
            ("metric", &self.metric, |row| vec![&row.metric]),
            ("verdict", &self.verdict, |row| {
                vec![row.comparison.verdict.name(), row.verdict_name()]
            }),
        ];
        for (option, wanted, names) in options {
            for name in wanted.iter().filter(|_| option != "verdict") {
                if !report
                    .verdicts
                    .iter()
                    .any(|row| names(row).contains(&name.as_str()))
                {
                    let known: BTreeSet<&str> = report.verdicts.iter().flat_map(names).collect();
                    let help = suggest(name, known);
                    return Err(Stop::message(format!(
                        "nothing is compared of {option} `{name}`; {help}"
                    )));
                }
            }
            let is_wanted = |row: &VerdictRow| {
                let names = names(row);
                wanted.is_empty()
                    || wanted
                        .iter()
                        .any(|it| names.contains(&it.replace('_', " ").as_str()))
            };
            report.verdicts.retain(is_wanted);
        }
        report.count();
        if self.sort == Sort::Effect {
            report.sort_by_effect();
        }
        Ok(())
    }
}

/// What a run gives to show.
pub struct Shown {
    pub report: Report,
    pub interrupted: bool,
    /// Anything was tried.
    pub ran: bool,
    /// Something could not be undone.
    is_left_behind: bool,
    /// A required hook failed.
    is_hook_failed: bool,
    /// A machine could not be reached: its cells are left out.
    is_machine_away: bool,
}

pub fn run(args: RunArgs) -> Exit {
    let mut sources = Sources::default();
    let RunArgs {
        common, choosing, ..
    } = &args;
    let extent = Extent {
        is_noted: true,
        ..Extent::of(common, &args.faces)
    };
    let events = args.events.as_deref();
    let done = measured(common, choosing, args.install, events, extent, &mut sources);
    let result = block_on(done);
    finish(result, &args.common, &args.choosing, &args.faces, &sources)
}

fn better(text: &str) -> Result<Better, String> {
    match text {
        "higher" => Ok(Better::Higher),
        "lower" => Ok(Better::Lower),
        _ => Err("it is `higher` or `lower`".to_owned()),
    }
}

/// Versions that are named where nothing is stored of those asked for.
const VERSIONS_TOLD_MAX: u32 = 8;

fn percent(text: &str) -> Result<f64, String> {
    let percent = parse_percent(text).filter(|percent| *percent >= 0.0);
    percent.ok_or_else(|| "a percentage such as `2%`".to_owned())
}

pub fn compare(args: CompareArgs) -> Exit {
    let mut sources = Sources::default();
    let result = match (&args.csv, args.common.matrix.as_os_str().is_empty()) {
        (Some(file), true) => {
            let better = args.better.unwrap_or_else(|| {
                say("higher is taken as better; `--better lower` says otherwise");
                Better::Higher
            });
            sides::report(file, better, args.min_effect).map(|report| Shown {
                report,
                interrupted: false,
                ran: false,
                is_left_behind: false,
                is_hook_failed: false,
                is_machine_away: false,
            })
        }
        (None, false) => block_on(compare_stored(&args, &mut sources)),
        _ => Err(Stop::message(
            "`matrix compare` looks at a matrix or, with `--csv FILE`, at a file: give one of them",
        )),
    };
    let choosing = SelectionArgs::default();
    finish(result, &args.common, &choosing, &args.faces, &sources)
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
    let extent = Extent::of(&args.common, &args.faces);
    let extent = Extent {
        monitors: extent.monitors || args.monitors,
        ..extent
    };
    Ok(Shown {
        report: stored_report(&args.common, extent, sources).await?,
        interrupted: false,
        ran: false,
        is_left_behind: false,
        is_hook_failed: false,
        is_machine_away: false,
    })
}

/// The report of what is stored of a matrix.
pub async fn stored_report(
    common: &Common,
    extent: Extent,
    sources: &mut Sources,
) -> Result<Report, Stop> {
    let loaded = load(common, sources)?;
    let looked = loaded.look(common).await?;
    let store = loaded.store()?;
    let world = loaded.world(&looked, store.as_ref())?;
    let plan = loaded.plan(common, &looked, &world)?;
    let failed = stored_failures(&plan, store.as_ref())?;
    let report = judge(&plan, common, &looked, store.as_ref(), failed, extent)?;
    if let Some(store) = store.filter(|_| !report.measured_anything()) {
        tell_versions(&store, &loaded.matrix.name)?;
    }
    Ok(report)
}

/// Where nothing is stored of what was asked for: says what is.
pub fn tell_versions(store: &Store, matrix: &str) -> Result<(), Stop> {
    let mut versions = store.versions(matrix, VERSIONS_TOLD_MAX)?;
    versions.retain(|version| version != INSTALLED);
    if !versions.is_empty() {
        say(&format!(
            "nothing is stored of what was asked for; stored are versions {}: name them as the run did, \
             `--version {}`",
            versions.join(", "),
            versions[0]
        ));
    }
    Ok(())
}

/// Cells whose last attempt failed.
pub fn stored_failures(plan: &Plan, store: Option<&Store>) -> Result<Vec<Failed>, Stop> {
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

/// How much is told beside the verdicts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// Monitors that moved.
    pub monitors: bool,
    /// The samples that comparisons rest on.
    pub samples: bool,
    /// All that lets a report stand by itself: samples, history, logs of failures, commands.
    pub whole: bool,
    /// A session has ended: what it found is noted.
    pub is_noted: bool,
}

impl Extent {
    pub const WHOLE: Extent = Extent {
        monitors: true,
        samples: true,
        whole: true,
        is_noted: false,
    };

    fn of(common: &Common, faces: &OutputOptions) -> Extent {
        let whole = common.json
            || faces.template.is_some()
            || matches!(
                faces.format,
                Format::Json | Format::Markdown | Format::Junit
            );
        Extent {
            monitors: whole || faces.format == Format::Lkp,
            samples: whole,
            whole,
            is_noted: false,
        }
    }
}

/// Judges what is stored of a plan.
pub fn judge(
    plan: &Plan,
    common: &Common,
    looked: &Targets,
    store: Option<&Store>,
    failed: Vec<Failed>,
    extent: Extent,
) -> Result<Report, Stop> {
    let Some(store) = store else {
        return Ok(report::report(
            plan,
            Default::default(),
            &Default::default(),
            failed,
        )?);
    };
    let samples = Samples::of(plan, store)?;
    for line in unmatched(plan, &samples)? {
        say(&format!("warning: {line}"));
    }
    let preset = common.preset.as_deref();
    let mut past = ComparisonContext::read(plan, store, &samples, preset)?;
    past.keeps_samples = extent.samples;
    let mut report = report::report(plan, samples, &past, failed)?;
    context::add(&mut report, plan, store, extent.monitors)?;
    details::add(&mut report, plan, store, &looked.versions, preset)?;
    if extent.is_noted {
        findings::note(&report, store)?;
    }
    findings::add(&mut report, store)?;
    if extent.whole {
        details::add_history(&mut report, plan, store.another()?)?;
        details::add_by_hand(&mut report, plan, store, &looked.machines)?;
    }
    Ok(report)
}

/// Measures what is missing, and judges. `events`: a file for them.
pub async fn measured(
    common: &Common,
    choosing: &SelectionArgs,
    install: bool,
    events: Option<&Path>,
    extent: Extent,
    sources: &mut Sources,
) -> Result<Shown, Stop> {
    let loaded = load(common, sources)?;
    let mut looked = loaded.look(common).await?;
    loaded.has_something_to_measure(&looked)?;
    if install::check(&loaded.matrix, &looked.machines, install).await? {
        looked.machines = loaded.machines(&looked.versions).await?;
        install::check(&loaded.matrix, &looked.machines, false).await?;
    }
    let is_machine_away = !looked.machines.unreachable().is_empty();
    // Before the store is looked up: events of an earlier run must not be taken for this one's.
    let progress = progress(events)?;
    let store = RefCell::new(Store::open(&loaded.state)?);
    let began = Instant::now();
    let mut selection = choosing.options();
    let planner = loaded.planner(common, &looked);
    let hooks = loaded.hooks().await?;
    let session = Session {
        planner: &planner,
        store: &store,
        progress: &progress,
        settings: &settings(common, &selection, &loaded, &hooks),
    };
    let plan = session.plan()?;
    loaded.has_cells(&plan)?;
    let mut chosen = session.choose(&selection, None)?;
    if choosing.side_by_side && !chosen.known.todo.is_nothing() {
        selection.fresh = true;
        chosen = session.choose(&selection, None)?;
    }
    let begun = confirm::is_begun(&plan, &store.borrow())?;
    let mut names = chosen.known.machines(&plan, begun);
    names.extend(left_by_dead_runs(&looked.machines, &names).await);
    if chosen.known.todo.is_nothing() && names.is_empty() {
        say(&nothing_to_do(choosing, &chosen, plan.cells.len()));
        let extent = Extent {
            is_noted: false,
            ..extent
        };
        let store = store.borrow();
        let mut report = judge(&plan, common, &looked, Some(&store), Vec::new(), extent)?;
        report.left_out = selection.budget.map(|_| chosen.out.left_out);
        return Ok(Shown {
            report,
            interrupted: false,
            ran: false,
            is_left_behind: false,
            is_hook_failed: false,
            is_machine_away,
        });
    }
    let mut left_out = LeftOut::default();
    if selection.budget.is_some() {
        // Machines on which the budget has no room for anything have no turn.
        let others = looked.machines.iter().map(|(name, _)| name.to_owned());
        let others = others.filter(|name| !names.contains(name)).collect();
        let chosen = session.choose(&selection, Some(&others))?;
        if chosen.out.left_out.cells > 0 {
            session.tell(Event::LeftOut(chosen.out.left_out));
            left_out.add(chosen.out.left_out);
        }
    }
    let mut signals = signals()?;
    let (tally, late, result) = session
        .measure_missing(&names, &selection, began, &mut signals)
        .await;
    left_out.add(late);
    drop(signals);
    let ending = Ending {
        session: &session,
        hooks: &hooks,
        failed: Cell::new(false),
    };
    ending.call(Moment::PreCompare, None).await;
    session.finished(&tally);
    let is_left_behind = !tally.left_behind.is_empty();
    let interrupted = tally.interrupted;
    let judged = result.map_err(Stop::from).and_then(|()| {
        // Builds may have changed what the keys are.
        let plan = session.plan()?;
        let extent = Extent {
            is_noted: extent.is_noted && !interrupted,
            ..extent
        };
        let store = store.borrow();
        let mut report = judge(&plan, common, &looked, Some(&store), tally.failed, extent)?;
        report.left_out = selection.budget.map(|_| left_out);
        if interrupted {
            report.leave_out_unmeasured();
        } else {
            let preset = preset_name(&loaded.matrix, common.preset.as_deref());
            let changes = &report.finding_changes;
            store.note_open_findings(&loaded.matrix.name, preset, changes)?;
        }
        Ok(report)
    });
    if let Ok(report) = &judged {
        ending.call(Moment::PostCompare, Some(report)).await;
        let is_new = |row: &VerdictRow| row.standing != Some(FindingStanding::Still);
        let mut gating = report.verdicts.iter().filter(|row| row.rank() == 0);
        if gating.any(is_new) {
            ending.call(Moment::OnRegression, Some(report)).await;
        }
        if !report.failed.is_empty() {
            ending.call(Moment::OnFailure, Some(report)).await;
        }
    }
    ending.call(Moment::OnEnd, judged.as_ref().ok()).await;
    Ok(Shown {
        report: judged?,
        interrupted,
        ran: true,
        is_left_behind,
        is_hook_failed: ending.failed.get(),
        is_machine_away,
    })
}

/// A session that has measured, and who is told of its result.
struct Ending<'a> {
    session: &'a Session<'a>,
    hooks: &'a Hooks,
    /// A required hook failed.
    failed: Cell<bool>,
}

impl Ending<'_> {
    async fn call(&self, moment: Moment, report: Option<&Report>) {
        let tell = |event| self.session.tell(event);
        let about = report.map_or(About::Nothing, About::Report);
        let never = Cancel::never();
        let called = self.hooks.call(moment, about, None, &tell, &never);
        if called.await.is_err() {
            self.failed.set(true);
        }
    }
}

/// Machines that have to be put back though there is nothing to measure on them, by one of their names.
async fn left_by_dead_runs(machines: &Machines, names: &BTreeSet<String>) -> Vec<String> {
    let known = names.iter().filter_map(|name| machines.get(name));
    let mut known: BTreeSet<&MachineIdentity> = known.map(|machine| &machine.identity).collect();
    let mut left = Vec::new();
    for (name, machine) in machines.iter() {
        if known.insert(&machine.identity) && tune::is_left(machine).await {
            left.push(name.to_owned());
        }
    }
    left
}

fn nothing_to_do(choosing: &SelectionArgs, chosen: &Chosen, cells: usize) -> String {
    match chosen.out.left_out.cells {
        0 if choosing.failed => "nothing to do: nothing failed last time".to_owned(),
        0 if cells == 1 => "nothing to do: the cell is stored".to_owned(),
        0 => format!("nothing to do: all {cells} cells are stored"),
        n => format!(
            "nothing to do: the budget has no room for any of {}",
            count(n, "cell")
        ),
    }
}

/// Who follows a run: the terminal, and the events file if one is asked for.
pub fn progress(events: Option<&Path>) -> Result<RefCell<Several>, Stop> {
    let mut readers: Vec<Box<dyn Progress>> = vec![match show::stderr_is_terminal() {
        true => Box::new(Bars::default()),
        false => Box::new(PlainLines::default()),
    }];
    if let Some(path) = events {
        let file = files::create(path).map_err(|error| {
            Stop::message(format!(
                "`--events {}` cannot be written: {error}",
                path.display()
            ))
        })?;
        readers.push(Box::new(JsonLines(BufWriter::new(file))));
    }
    Ok(RefCell::new(Several(readers)))
}

fn finish(
    result: Result<Shown, Stop>,
    common: &Common,
    choosing: &SelectionArgs,
    faces: &OutputOptions,
    sources: &Sources,
) -> Exit {
    let json = common.json || faces.format == Format::Json;
    let mut result = match result {
        Ok(result) => result,
        Err(stop) => return show::stopped(&stop, sources, json),
    };
    let exit = exit_of(&result, faces.fail_on);
    let compared: Vec<String> = result
        .report
        .verdicts
        .iter()
        .map(|row| row.axis.clone())
        .collect();
    let compared: Vec<&str> = compared.iter().map(String::as_str).collect();
    let layout = faces.layout.layout(&result.report.axes, &compared);
    let total = result.report.verdicts.len();
    let reason = gating(&result.report);
    let layout = match faces.rows.apply(&mut result.report).and(layout) {
        Ok(layout) => layout,
        Err(stop) => return show::stopped(&stop, sources, json),
    };
    let report = &result.report;
    if json {
        show::document(&Document::Report(report));
    } else if faces.format == Format::Lkp {
        show::out(&columns::lkp(report));
    } else if faces.format == Format::Mmtests {
        show::out(&columns::mmtests(report));
    } else if faces.format == Format::Csv {
        show::out(&rows::verdicts(report));
    } else if faces.format == Format::Markdown || faces.template.is_some() {
        match markdown(report, common, faces) {
            Ok(text) => show::out(&text),
            Err(stop) => {
                // The result is not lost for a broken template.
                show::out(&text::report(report, show::style()));
                return show::stopped(&stop, sources, json);
            }
        }
    } else if faces.format == Format::Junit {
        match junit::junit(report) {
            Ok(text) => show::out(&text),
            Err(error) => {
                let problem = format!("this result cannot be written as JUnit XML: {error}");
                return show::stopped(&Stop::message(problem), sources, json);
            }
        }
    } else {
        let style = Style {
            all: faces.rows.all,
            ..show::style()
        };
        show::out(&match faces.layout.is_given() {
            _ if report.verdicts.is_empty() && total > 0 => {
                "no comparison is such a one\n".to_owned()
            }
            true => pivot::verdicts(report, &layout, style),
            false => text::report(report, style),
        });
        if report.verdicts.len() < total {
            let left = total - report.verdicts.len();
            show::out(&format!("{} not asked for\n", count(left, "comparison")));
        }
        if let Some(reason) = reason.filter(|_| !report.has_gating_regression()) {
            show::out(&format!("{reason}\n"));
        }
        next_commands(&result, common, choosing);
    }
    exit
}

/// How a verb ends that gives this.
pub fn exit_of(result: &Shown, fail_on: FailOn) -> Exit {
    let report = &result.report;
    match result.report {
        _ if result.interrupted => Exit::Interrupted,
        _ if result.is_left_behind || result.is_hook_failed || result.is_machine_away => {
            Exit::Failed
        }
        _ if !report.measured_anything() && report.failed.is_empty() => Exit::Nothing,
        _ if !report.failed.is_empty() => Exit::Failed,
        _ if report.has_gating_regression() && fail_on == FailOn::Any => Exit::Regression,
        _ if report.has_new_regression() => Exit::Regression,
        _ => Exit::Fine,
    }
}

/// The reason of an exit status of 1, for a reader who asked for other rows.
fn gating(report: &Report) -> Option<String> {
    let mut rows = report.verdicts.iter().filter(|row| row.rank() == 0);
    let Some(first) = rows.next() else {
        let first = report.open_regressions.iter().find(|row| row.gate)?;
        return Some(format!(
            "a regression stands: {} of {} since {}",
            first.metric, first.cell, first.candidate
        ));
    };
    Some(format!(
        "{} in all, such as {} of {} ({} → {})",
        count(1 + rows.count(), "gating regression"),
        first.metric,
        first.cell,
        first.baseline,
        first.candidate
    ))
}

/// The user's template: the one named, or `compare.md.jinja` in a `hooks` folder beside the matrix or
/// beside its folder; else the shipped one.
fn markdown(report: &Report, common: &Common, faces: &OutputOptions) -> Result<String, Stop> {
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
            let text = files::read_text(&path).map_err(|reason| {
                let path = path.display();
                Stop::message(format!("template `{path}` cannot be read: {reason}"))
            })?;
            (path.display().to_string(), text)
        }
        None => {
            let shipped = template::markdown(report);
            return shipped
                .map_err(|reason| Stop::message(format!("the shipped template: {reason}")));
        }
    };
    template::render(&text, report, report.verdicts.len().max(report.cells.len()))
        .map_err(|reason| Stop::message(format!("{name}: {reason}")))
}

/// What one would want to do next, in words that can be pasted into a shell.
fn next_commands(result: &Shown, common: &Common, choosing: &SelectionArgs) {
    let command = |verb: &str, rest: &[String]| {
        let program = std::env::args_os()
            .next()
            .map_or("matrix".to_owned(), |it| it.to_string_lossy().into_owned());
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
        let what = match choosing.fresh {
            true => "begins anew",
            false => "goes on",
        };
        let again = command("run", &[&only[..], &choosing.words()].concat());
        commands.push(format!("{again}   # {what}"));
    } else if let Some(row) = result
        .report
        .cells
        .iter()
        .next()
        .filter(|_| commands.is_empty())
    {
        commands.push(command("explain", &[row.cell.0]));
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
pub fn same_choice(common: &Common) -> Vec<String> {
    let state = common.state.as_ref().map(|it| it.display().to_string());
    let seed = (common.seed != SEED).then(|| common.seed.to_string());
    let mut options = vec![
        ("--preset", common.preset.clone()),
        ("--repo", common.repo.clone()),
        ("--against", common.against.clone()),
        ("--state", state),
        ("--seed", seed),
    ];
    let machines = common.machines.iter().map(ToString::to_string);
    options.extend(machines.map(|machine| ("--machine", Some(machine))));
    let versions = common.versions.iter().cloned();
    options.extend(versions.map(|version| ("--version", Some(version))));
    let given = options
        .into_iter()
        .filter_map(|(name, value)| Some([name.to_owned(), value?]));
    let first_parent = common.first_parent.then(|| "--first-parent".to_owned());
    given.flatten().chain(first_parent).collect()
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

    #[derive(Parser)]
    struct Options {
        #[command(flatten)]
        choosing: SelectionArgs,
    }

    #[test]
    fn the_next_command_sees_the_same_cells() {
        let check = |line: &str, expected: &str| {
            let words = shlex::split(line).unwrap();
            let line = Line::try_parse_from(words).unwrap();
            assert_eq!(same_choice(&line.common).join(" "), expected);
        };
        check("matrix m.toml --only a --json --seed 1", "");
        let choice = |text: &str| {
            let words = shlex::split(text).unwrap();
            Options::try_parse_from(words).unwrap().choosing.words()
        };
        assert_eq!(choice("matrix"), [""; 0]);
        let line = "matrix --fresh --failed --max-age 30d --budget 90min";
        let given = ["--fresh", "--failed", "--max-age", "30d", "--budget", "90m"];
        assert_eq!(choice(line), given);
        assert_eq!(choice("matrix --budget 1.5s")[1], "1500ms");
        check(
            "matrix m.toml --version b --seed 7 --version c --against a --repo r --preset p --state s",
            "--preset p --repo r --against a --state s --seed 7 --version b --version c",
        );
    }
}
