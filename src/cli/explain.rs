//! `matrix explain`.

use std::fmt::Write as _;

use clap::Args;

use super::load::load;
use super::run::{Extent, block_on, stored_report};
use super::session::SelectionArgs;
use super::show::{self, Stop};
use super::{Common, Exit};
use crate::base::diag::Sources;
use crate::plan::commands::{Places, show_words};
use crate::plan::explain::{Explanation, explain as explain_cell};
use crate::report::samples::strips;
use crate::resolve::lookup;
use crate::verdicts::document::Document;

#[derive(Debug, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    common: Common,
    /// The cell's name, such as `bs=4k,cache=none`; axes with one value need not be named
    cell: String,
    /// Show the samples of its comparisons: both sides as strips over one scale, the higher the bar the more samples
    #[arg(long)]
    samples: bool,
}

pub fn explain(args: ExplainArgs) -> Exit {
    let mut sources = Sources::default();
    match explained(&args, &mut sources) {
        Ok(explanation) => {
            if args.common.json {
                show::document(&Document::Explanation(&explanation));
            } else {
                show::out(&text(&explanation));
            }
            if args.samples && !args.common.json {
                let extent = Extent {
                    samples: true,
                    ..Extent::default()
                };
                match block_on(stored_report(&args.common, extent, &mut sources)) {
                    Ok(report) => {
                        show::out(&strips(&report, &explanation.cell, show::style()));
                    }
                    Err(stop) => return show::stopped(&stop, &sources, false),
                }
            }
            Exit::Fine
        }
        Err(stop) => show::stopped(&stop, &sources, args.common.json),
    }
}

fn explained(args: &ExplainArgs, sources: &mut Sources) -> Result<Explanation, Stop> {
    let loaded = load(&args.common, sources)?;
    let looked = block_on(loaded.look(&args.common))?;
    let store = loaded.store()?;
    let world = loaded.world(&looked, store.as_ref())?;
    let plan = loaded.plan(&args.common, &looked, &world)?;
    let chosen =
        SelectionArgs::default().choose(&plan, &loaded, &looked.machines, store.as_ref(), None)?;
    let failures = match &store {
        Some(store) => lookup::failures(&plan, store)?,
        None => Default::default(),
    };
    let machine = plan.cells.axis("machine").unwrap_or(0);
    let places = |cell: u32| {
        let name = plan.cells.label(plan.cells.cell(cell as usize), machine);
        let machine = looked.machines.get(name);
        machine.map_or_else(Places::default, |machine| machine.view().places.clone())
    };
    let past = |run: usize| failures.get(&run).cloned();
    Ok(explain_cell(
        &plan,
        &chosen.known.todo,
        loaded.repeat.min,
        &args.cell,
        &loaded.only,
        &places,
        &past,
    )?)
}

fn text(explanation: &Explanation) -> String {
    let mut out = format!("{}\n{}\n\n", explanation.cell, explanation.state);
    let names = explanation
        .values
        .iter()
        .map(|value| value.name.len())
        .max()
        .unwrap_or(0);
    for value in &explanation.values {
        let _ = writeln!(
            out,
            "  {:names$} = {}  ({})",
            value.name, value.value, value.origin
        );
    }
    for step in &explanation.steps {
        let _ = writeln!(out, "\n{} ({}), {}", step.step, &step.key[..8], step.shared);
        for command in &step.commands {
            let _ = writeln!(out, "  {:7} {}", command.role, show_words(&command.argv));
        }
    }
    out
}
