//! `matrix plan`.

use std::fmt::Write as _;
use std::time::Duration;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::diff::{self, PlanDifference};
use super::load::load;
use super::session::SelectionArgs;
use super::show::{self, Stop};
use super::{Common, Exit};
use crate::base::diag::Sources;
use crate::base::units::{count, show_duration};
use crate::plan::dag::{self, Count, Node, Plan, StepCounts, TimeEstimate, Todo};
use crate::plan::why::Reason;
use crate::report::text;
use crate::resolve::inputs;
use crate::resolve::lookup::StepTimes;
use crate::resolve::selection::{Chosen, LeftOut};
use crate::run::progress::say;
use crate::verdicts::document::{Document, PlanDocument, PlannedStep, StepTotal, StepTotals};

#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    choosing: SelectionArgs,
    /// `text`, `json` (every step, with `--json` only the counts) or `dot` (for Graphviz)
    #[arg(long, value_enum, default_value_t = PlanFormat::Text)]
    format: PlanFormat,
    /// Say why each step is to be run
    #[arg(long)]
    why: bool,
    /// Show the difference that `--to` makes against this version
    #[arg(long, value_name = "REV", requires = "to", conflicts_with_all = ["why", "base", "versions", "against"])]
    from: Option<String>,
    /// Show the difference that this version makes against `--from`
    #[arg(long, value_name = "REV", requires = "from")]
    to: Option<String>,
    /// Show the difference that the matrix makes against an older text of it
    #[arg(long, value_name = "FILE", conflicts_with = "why")]
    base: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlanFormat {
    Text,
    Json,
    Dot,
}

/// Steps of a chain that are printed.
const CHAIN_MAX: usize = 12;
/// Reasons that are printed.
const REASONS_MAX: usize = 30;

pub fn plan(args: PlanArgs) -> Exit {
    let mut sources = Sources::default();
    match planned(&args, &mut sources) {
        Ok(exit) => exit,
        Err(stop) => show::stopped(&stop, &sources, args.common.json),
    }
}

fn planned(args: &PlanArgs, sources: &mut Sources) -> Result<Exit, Stop> {
    if let Some(difference) = super::run::block_on(difference(args))? {
        match args.common.json || args.format == PlanFormat::Json {
            true => show::document(&Document::PlanDifference(difference.document())),
            false => show::out(&difference.text()),
        }
        return Ok(Exit::Fine);
    }
    let loaded = load(&args.common, sources)?;
    let looked = super::run::block_on(loaded.look(&args.common))?;
    loaded.has_something_to_measure(&looked)?;
    let store = loaded.store()?;
    let world = loaded.world(&looked, store.as_ref())?;
    let plan = loaded.plan(&args.common, &looked, &world)?;
    let chosen = args
        .choosing
        .choose(&plan, &loaded, &looked.machines, store.as_ref(), None)?;
    let todo = &chosen.known.todo;
    let estimate = match todo.is_nothing() {
        true => TimeEstimate::default(),
        false => {
            let past = StepTimes::of(&plan, store.as_ref(), &|run| {
                chosen.known.is_partly_done(run)
            })?;
            past.with(|durations| dag::estimate(&plan, todo, durations))
        }
    };
    for (name, machine) in looked
        .machines
        .iter()
        .filter(|(_, machine)| !machine.missing.is_empty())
    {
        say(&format!(
            "machine `{name}` has no {}: `matrix run --install` installs it",
            machine.missing.join(", ")
        ));
    }
    let reasons = match args.why {
        true => inputs::reasons(&plan, &chosen, &world, store.as_ref())
            .map_err(|error| Stop::message(error.to_string()))?,
        false => Vec::new(),
    };
    let left_out = args.choosing.budget.map(|_| chosen.out.left_out);
    let document = |todo: Option<Vec<PlannedStep>>| {
        show::document(&Document::Plan(PlanDocument {
            todo,
            left_out,
            why: args.why.then(|| reasons.clone()),
            ..counts(&plan, &chosen, &estimate)
        }));
    };
    match args.format {
        _ if args.common.json => document(None),
        PlanFormat::Json => document(Some(steps(&plan, todo))),
        PlanFormat::Dot => show::out(&dot(&plan, todo)),
        PlanFormat::Text => show::out(&people(
            &plan,
            &chosen,
            &estimate,
            &reasons,
            left_out,
            args.choosing.failed,
        )),
    }
    Ok(Exit::Fine)
}

async fn difference(args: &PlanArgs) -> Result<Option<PlanDifference>, Stop> {
    Ok(match (&args.from, &args.to, &args.base) {
        (Some(from), Some(to), _) => Some(diff::versions(&args.common, from, to).await?),
        (_, _, Some(base)) => Some(diff::matrices(&args.common, base).await?),
        _ => None,
    })
}

fn counts(plan: &Plan, chosen: &Chosen, estimate: &TimeEstimate) -> PlanDocument {
    let todo = &chosen.known.todo;
    let StepCounts {
        build,
        setup,
        mut run,
        compare,
    } = todo.counts();
    run.stored -= chosen.put_out;
    let of = |count: Count| StepTotal {
        total: count.total,
        run: count.run,
        stored: count.stored,
    };
    PlanDocument {
        matrix: plan.matrix.name.clone(),
        cells: plan.cells.len(),
        steps: StepTotals {
            build: of(build),
            setup: of(setup),
            run: of(run),
            compare: of(compare),
        },
        measurements: todo.measurements(),
        estimate_s: estimate.total.as_secs_f64(),
        todo: None,
        left_out: None,
        why: None,
    }
}

/// Each step that is to be done.
fn steps(plan: &Plan, todo: &Todo) -> Vec<PlannedStep> {
    let graph = dag::graph(plan, todo);
    let step = |index| {
        let needs = graph.neighbors_directed(index, dag::Direction::Incoming);
        let node = graph[index];
        PlannedStep {
            id: index.index(),
            step: step_name(plan, node),
            needs: needs.map(|need| need.index()).collect(),
            rounds: match node {
                Node::Run(run) => Some(todo.rounds[run as usize]),
                _ => None,
            },
        }
    };
    graph.node_indices().map(step).collect()
}

fn dot(plan: &Plan, todo: &Todo) -> String {
    let graph = dag::graph(plan, todo);
    let mut out = String::from("digraph matrix {\n  rankdir = LR;\n  node [shape = box];\n");
    for index in graph.node_indices() {
        let name = step_name(plan, graph[index])
            .replace('\\', "\\\\")
            .replace('"', "\\\"");
        let _ = writeln!(out, "  n{} [label = \"{name}\"];", index.index());
    }
    for edge in graph.edge_indices() {
        if let Some((from, to)) = graph.edge_endpoints(edge) {
            let _ = writeln!(out, "  n{} -> n{};", from.index(), to.index());
        }
    }
    out.push_str("}\n");
    out
}

fn step_name(plan: &Plan, node: Node) -> String {
    let projection = |cell: u32, axes: &[usize]| {
        let visible: Vec<usize> = axes
            .iter()
            .copied()
            .filter(|&axis| !plan.cells.axes[axis].silent)
            .collect();
        plan.scope()
            .name_of(plan.cells.cell(cell as usize), &visible)
    };
    let name = match node {
        Node::Build(step) => {
            let cell = plan.steps.builds.steps[step as usize].cell;
            format!("build {}", projection(cell, &plan.steps.builds.axes))
        }
        Node::Setup(setup, step) => {
            let shared = &plan.steps.setups[setup as usize];
            let name = &plan.matrix.setups[setup as usize].name.value;
            format!(
                "set-up {name} {}",
                projection(shared.steps[step as usize].cell, &shared.axes)
            )
        }
        Node::Run(run) => format!("run {}", plan.cells.name(plan.cell_of(run as usize))),
        Node::Compare(rule, group) => {
            let compare = &plan.compares[rule as usize];
            let cell = compare
                .of_cell
                .iter()
                .position(|of| *of == group)
                .unwrap_or(0);
            let name = plan
                .cells
                .name_without(plan.cells.cell(cell), &[compare.axis]);
            format!("compare {} {name}", plan.cells.axes[compare.axis].name)
        }
    };
    name.trim_end().to_owned()
}

fn people(
    plan: &Plan,
    chosen: &Chosen,
    estimate: &TimeEstimate,
    reasons: &[Reason],
    left_out: Option<LeftOut>,
    is_failed_only: bool,
) -> String {
    let todo = &chosen.known.todo;
    let mut out = format!(
        "{}: {}\n\n",
        plan.matrix.name,
        count(plan.cells.len(), "cell")
    );
    let mut table = text::table(show::style(), &["step", "total", "to run", "stored"], 1);
    let StepCounts {
        build,
        setup,
        mut run,
        compare,
    } = todo.counts();
    run.stored -= chosen.put_out;
    for (name, count) in [
        ("build", build),
        ("set-up", setup),
        ("run", run),
        ("compare", compare),
    ] {
        table.add_row(vec![
            name.to_owned(),
            count.total.to_string(),
            count.run.to_string(),
            count.stored.to_string(),
        ]);
    }
    out.push_str(&text::lines(&table));
    let rules = plan.cells.excluded.iter().zip(&plan.matrix.excludes);
    for (index, (excluded, rule)) in rules.enumerate() {
        let reason = rule.reason.as_deref().unwrap_or(&rule.when.text);
        let gap = if index == 0 { "\n" } else { "" };
        let _ = writeln!(out, "{gap}{} excluded: {reason}", count(*excluded, "cell"));
    }
    if let Some(left_out) = left_out.filter(|left_out| left_out.cells > 0) {
        let _ = writeln!(out, "\n{left_out}");
    }
    if todo.is_nothing() {
        out.push_str(match left_out {
            Some(LeftOut { cells: 1.., .. }) => "\nnothing to do within the budget\n",
            _ if is_failed_only => "\nnothing to do: nothing failed last time\n",
            _ => "\nnothing to do: everything is stored\n",
        });
        return out;
    }
    let repeat = &chosen.known.repetition.repeat;
    let adaptive = match repeat.until {
        Some(_) => format!(" at least (adaptive, up to {} a cell)", repeat.max),
        None => String::new(),
    };
    let _ = writeln!(
        out,
        "\n{}{adaptive}, about {}",
        count(todo.measurements() as usize, "measurement"),
        show_duration(estimate.total)
    );
    for reason in reasons.iter().take(REASONS_MAX) {
        let _ = writeln!(out, "\n{}: {}", count(reason.steps, "cell"), reason.why);
        let _ = writeln!(out, "  such as {}", reason.example);
    }
    if reasons.len() > REASONS_MAX {
        let more = count(reasons.len() - REASONS_MAX, "more reason");
        let _ = writeln!(out, "\n{more} (`--json` has all)");
    }
    let _ = writeln!(out, "\nlongest chain ({}):", show_duration(chain(estimate)));
    for (node, duration) in estimate.critical_path.iter().take(CHAIN_MAX) {
        let _ = writeln!(
            out,
            "  {:>6}  {}",
            show_duration(*duration),
            step_name(plan, *node)
        );
    }
    out
}

fn chain(estimate: &TimeEstimate) -> Duration {
    estimate
        .critical_path
        .iter()
        .map(|(_, duration)| *duration)
        .sum()
}
