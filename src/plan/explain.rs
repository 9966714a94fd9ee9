//! The explanation of one cell: its values, its commands, who shares its steps, why it runs.

use schemars::JsonSchema;
use serde::Serialize;

use super::cell::{Cells, Origin, excluded_by};
use super::commands::{Places, SetupCommands, Words};
use super::dag::{Plan, Todo};
use crate::base::diag::Diagnostic;
use crate::base::units::count;
use crate::config::template::Expr;

/// One cell, explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Explanation {
    pub cell: String,
    pub values: Vec<ExplainedValue>,
    /// Empty when the cell is not in the matrix.
    pub steps: Vec<StepOf>,
    /// Why it will or will not run.
    pub state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExplainedValue {
    pub name: String,
    pub value: String,
    /// `axis`, `derived`, `preset`, `command line` or `default`.
    pub origin: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StepOf {
    /// `set-up nbd`, `run`.
    pub step: String,
    pub key: String,
    pub commands: Vec<ExplainedCommand>,
    /// With which cells it is shared.
    pub shared: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExplainedCommand {
    /// `run`, `service`, `ready`, `undo` or `measure`.
    pub role: &'static str,
    pub argv: Words,
}

/// Explains the cell of this name. `rounds_min`: rounds that are wanted of each; `only`: what cells were selected by; `places` are those of its machine; `past` says what is known of
/// the run step's last failure.
pub fn explain(
    plan: &Plan,
    todo: &Todo,
    rounds_min: u32,
    name: &str,
    only: &[Expr],
    places: &dyn Fn(u32) -> Places,
    past: &dyn Fn(usize) -> Option<String>,
) -> Result<Explanation, Diagnostic> {
    let tuple = plan.cells.parse(name)?;
    let mut explanation = Explanation {
        cell: plan.cells.name(&tuple),
        values: values(plan, &tuple)?,
        steps: Vec::new(),
        state: String::new(),
    };
    let Some(index) = plan.cells.find(&tuple) else {
        explanation.state = match excluded_by(plan.matrix, &plan.cells.axes, &tuple) {
            Some(rule) => {
                let rule = &plan.matrix.excludes[rule];
                let reason = rule.reason.as_deref().unwrap_or("no reason is given");
                format!("excluded by `{}`: {reason}", rule.when.text)
            }
            None => not_selected(plan, only, &tuple)?,
        };
        return Ok(explanation);
    };
    let cell = index as u32;
    let places = places(cell);
    for (setup, step) in plan.setups_of(cell) {
        let commands = plan.setup_commands(setup, step, &places)?;
        explanation.steps.push(StepOf {
            step: format!("set-up {}", plan.matrix.setups[setup].name.value),
            key: plan.steps.setups[setup].steps[step as usize]
                .key
                .to_string(),
            commands: listed(commands),
            shared: sharing(
                &plan.cells,
                &tuple,
                &plan.steps.setups[setup].axes,
                |cell| plan.steps.setups[setup].of(plan.cells.cell(cell)) == Some(step),
            ),
        });
    }
    let run = plan.steps.runs.of_cell[index];
    let all: Vec<usize> = (0..tuple.len()).collect();
    explanation.steps.push(StepOf {
        step: "run".to_owned(),
        key: plan.steps.runs.keys[run as usize].to_string(),
        commands: vec![ExplainedCommand {
            role: "measure",
            argv: plan.run_command(cell, 0, 0, 0, &places)?,
        }],
        shared: sharing(&plan.cells, &tuple, &all, |cell| {
            plan.steps.runs.of_cell[cell] == run
        }),
    });
    let missing = todo.rounds[run as usize];
    explanation.state = match (missing, past(run as usize)) {
        (0, _) => "stored: all its rounds are measured".to_owned(),
        (n, Some(failure)) => format!(
            "will run {}: failed last time: {failure}",
            count(n as usize, "round")
        ),
        (n, None) if n < rounds_min => {
            format!("will run {} that are missing", count(n as usize, "round"))
        }
        (n, None) => format!(
            "will run {}: nothing is stored under its key",
            count(n as usize, "round")
        ),
    };
    Ok(explanation)
}

/// Why a cell that no rule excludes is not in the plan.
fn not_selected(plan: &Plan, only: &[Expr], cell: &[u16]) -> Result<String, Diagnostic> {
    for expr in only {
        let axes = plan.scope().axes_of(&expr.mentions);
        if !plan.scope().test(expr, cell, &axes)? {
            return Ok(format!("not selected: `--only \"{}\"`", expr.text));
        }
    }
    Ok("not in this plan: a covering array leaves cells out, and a value that only `[[include]]` names is only in its cells".to_owned())
}

fn values(plan: &Plan, cell: &[u16]) -> Result<Vec<ExplainedValue>, Diagnostic> {
    let mut values: Vec<ExplainedValue> = plan
        .cells
        .axes
        .iter()
        .zip(cell)
        .map(|(axis, &value)| ExplainedValue {
            name: axis.name.clone(),
            value: axis.labels[usize::from(value)].clone(),
            origin: match axis.origin {
                Origin::Axis => "axis",
                Origin::Preset => "preset",
                Origin::CommandLine => "command line",
                Origin::Default => "default",
            },
        })
        .collect();
    let all: Vec<usize> = (0..cell.len()).collect();
    let context = plan.scope().context(cell, &all)?;
    for derived in &plan.matrix.derived {
        let value = plan.matrix.engine.value(&derived.expr, &context);
        values.push(ExplainedValue {
            name: derived.name.value.clone(),
            value: value.map_or_else(|reason| format!("({reason})"), |value| value.to_string()),
            origin: "derived",
        });
    }
    values.push(ExplainedValue {
        name: "seconds".to_owned(),
        value: plan.seconds.to_string(),
        origin: if plan.seconds == plan.matrix.run.seconds {
            "default"
        } else {
            "preset"
        },
    });
    Ok(values)
}

fn listed(commands: SetupCommands) -> Vec<ExplainedCommand> {
    let with = |role: &'static str, list: Vec<Words>| {
        list.into_iter()
            .map(move |argv| ExplainedCommand { role, argv })
    };
    with("run", commands.run)
        .chain(with("service", commands.service.into_iter().collect()))
        .chain(with("ready", commands.ready.into_iter().collect()))
        .chain(with("undo", commands.undo))
        .collect()
}

/// Who else has the step of a cell. `axes`: those that tell the steps apart.
fn sharing(cells: &Cells, own: &[u16], axes: &[usize], has_it: impl Fn(usize) -> bool) -> String {
    let others = (0..cells.len()).filter(|cell| has_it(*cell));
    let mut others: Vec<&[u16]> = others.map(|cell| cells.cell(cell)).collect();
    others.retain(|cell| *cell != own);
    if others.is_empty() {
        return "for this cell alone".to_owned();
    }
    let differs = |cell: &&[u16]| axes.iter().any(|axis| cell[*axis] != own[*axis]);
    let is_same_text = others.iter().any(differs);
    let axes: Vec<&str> = axes
        .iter()
        .map(|&axis| &cells.axes[axis])
        .filter(|axis| !axis.silent && axis.values.len() > 1)
        .map(|axis| axis.name.as_str())
        .collect();
    let others = count(others.len(), "other cell");
    if is_same_text {
        return format!("with {others}: their commands are the same");
    }
    match axes.is_empty() {
        true => format!("with {others}: all on this machine"),
        false => format!("with {others}: all that agree on {}", axes.join(", ")),
    }
}
