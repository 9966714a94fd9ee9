//! `matrix log`.

use clap::Args;

use super::load::load;
use super::show::{self, Stop};
use super::{Common, Exit};
use crate::base::diag::{Diagnostic, Sources};
use crate::base::key::Key;
use crate::base::printable::printable_bytes;
use crate::base::units::count;
use crate::edge::store::Store;
use crate::verdicts::details::failing_log;
use crate::verdicts::document::{Document, LogDocument};

#[derive(Debug, Args)]
pub struct LogArgs {
    #[command(flatten)]
    common: Common,
    /// The cell's name
    cell: String,
    /// The log of this repetition of the measurement, counted from 0, instead of the last attempt's
    #[arg(long, value_name = "N")]
    round: Option<u32>,
}

pub fn log(args: LogArgs) -> Exit {
    let mut sources = Sources::default();
    match find(&args, &mut sources) {
        Ok(bytes) if args.common.json => {
            let log = String::from_utf8_lossy(&bytes).into_owned();
            let cell = args.cell;
            show::document(&Document::Log(LogDocument { cell, log }));
            Exit::Fine
        }
        Ok(bytes) => {
            show::out(&printable_bytes(&bytes));
            Exit::Fine
        }
        Err(stop) => show::stopped(&stop, &sources, args.common.json),
    }
}

/// What the last attempt printed: at the build or set-up that failed where one did, else at the cell's run step.
fn find(args: &LogArgs, sources: &mut Sources) -> Result<Vec<u8>, Stop> {
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
    if let Some(round) = args.round {
        let log = store.log_of_round(run, round)?;
        let log = log.map(|attempt| store.read_log(attempt)).transpose()?;
        return log.flatten().ok_or_else(|| Stop {
            diagnostics: vec![no_round(store, run, args, round)],
            exit: Exit::Nothing,
        });
    }
    failing_log(&plan, store, cell)?.ok_or_else(nothing)
}

fn no_round(store: &Store, run: Key, args: &LogArgs, round: u32) -> Diagnostic {
    let problem = Diagnostic::error(format!(
        "no log of round {round} of `{}` is stored",
        args.cell
    ));
    match store.finished(&[run]).map(|finished| finished.count(0)) {
        Ok(rounds @ 1..) => problem.help(format!(
            "{} stored, from round 0 on",
            count(rounds, "round")
        )),
        _ => problem,
    }
}
