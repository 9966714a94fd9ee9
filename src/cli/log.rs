//! `matrix log`.

use clap::Args;

use super::load::load;
use super::show::{self, Stop};
use super::{Common, Exit};
use crate::base::diag::{Diagnostic, Sources};
use crate::verdicts::document::{Document, LogDocument};

#[derive(Debug, Args)]
pub struct LogArgs {
    #[command(flatten)]
    common: Common,
    /// The cell's name
    cell: String,
}

pub fn log(args: LogArgs) -> Exit {
    let mut sources = Sources::default();
    match find(&args, &mut sources) {
        Ok(text) => {
            if args.common.json {
                let cell = args.cell;
                show::document(&Document::Log(LogDocument { cell, log: text }));
            } else {
                show::out(&text);
            }
            Exit::Fine
        }
        Err(stop) => show::stopped(&stop, &sources, args.common.json),
    }
}

/// The log of the cell's last run step; of its set-ups or its build where it never came to that.
fn find(args: &LogArgs, sources: &mut Sources) -> Result<String, Stop> {
    let loaded = load(&args.common, sources)?;
    let looked = super::run::block_on(loaded.look(&args.common))?;
    let store = loaded.store()?;
    let world = loaded.world(&looked, store.as_ref())?;
    let plan = loaded.plan(&args.common, &looked, &world)?;
    let tuple = plan.cells.parse(&args.cell)?;
    let nothing = || Stop {
        diagnostics: vec![Diagnostic::error(format!(
            "no attempt at `{}` is stored",
            args.cell
        ))],
        exit: Exit::Nothing,
    };
    let cell = plan.cells.find(&tuple).ok_or_else(nothing)? as u32;
    let store = store.as_ref().ok_or_else(nothing)?;
    let run = plan.key_of(cell);
    let setups: Vec<_> = plan.setups_of(cell).collect();
    let setups = setups
        .iter()
        .rev()
        .map(|(setup, step)| plan.steps.setups[*setup].steps[*step as usize].key);
    let builds = plan.build_of(cell as usize);
    let builds = builds.map(|build| plan.steps.builds.steps[build as usize].key);
    for key in std::iter::once(run).chain(setups).chain(builds) {
        if let Some(attempt) = store.latest_log(key)?
            && let Some(bytes) = store.read_log(attempt)?
        {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    Err(nothing())
}
