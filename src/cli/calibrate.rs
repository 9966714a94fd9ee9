//! `matrix calibrate`.

use std::cell::RefCell;
use std::collections::BTreeSet;

use clap::Args;

use super::load::load;
use super::run::{block_on, progress};
use super::session::settings;
use super::show::{self, Stop};
use super::signals::signals;
use super::{Common, Exit};
use crate::base::diag::{Sources, suggest};
use crate::config::matrix::{Matrix, REPEAT_MAX};
use crate::edge::store::Store;
use crate::report::calibration::text;
use crate::resolve::samples::Samples;
use crate::resolve::selection::SelectionOptions;
use crate::run::execute::Tally;
use crate::run::progress::say;
use crate::run::session::{Asked, Session, SessionResult};
use crate::run::strategy::calibrate::Calibrate;
use crate::verdicts::calibration::{Calibration, calibrated};
use crate::verdicts::document::Document;
use crate::verdicts::history::{NOISE_SESSIONS_MAX, Past, What, metrics_of, preset_name};

/// The preset that the smallest effect is told for, where the matrix has it.
pub const NIGHTLY: &str = "nightly";

#[derive(Debug, Args)]
pub struct CalibrateArgs {
    #[command(flatten)]
    common: Common,
    /// The machine to calibrate
    #[arg(long, value_name = "NAME")]
    machine: String,
    /// Rounds that each cell is measured against itself
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(4..=REPEAT_MAX as i64))]
    rounds: u32,
    /// The preset whose repetitions are judged; `nightly` where there is one
    #[arg(long = "for", value_name = "PRESET")]
    judged_for: Option<String>,
}

pub fn calibrate(args: CalibrateArgs) -> Exit {
    let mut sources = Sources::default();
    let json = args.common.json;
    match block_on(measured(&args, &mut sources)) {
        Ok((calibration, exit)) => {
            match json {
                true => show::document(&Document::Calibration(&calibration)),
                false => show::out(&text(&calibration, show::style())),
            }
            exit
        }
        Err(stop) => show::stopped(&stop, &sources, json),
    }
}

async fn measured(
    args: &CalibrateArgs,
    sources: &mut Sources,
) -> Result<(Calibration, Exit), Stop> {
    let machine = &args.machine;
    let mut loaded = load(&args.common, sources)?;
    if loaded.matrix.machine(machine).is_none() {
        let known = loaded
            .matrix
            .machines
            .iter()
            .map(|machine| machine.name.as_str());
        let help = suggest(machine, known);
        return Err(Stop::message(format!(
            "there is no machine `{machine}`; {help}"
        )));
    }
    let only = format!("machine == '{}'", machine.replace(['\'', '\\'], ""));
    loaded.narrow(&only, sources)?;
    let (judged_for, repetitions) = repetitions(&loaded.matrix, args)?;
    let looked = loaded.look(&args.common).await?;
    let store = RefCell::new(Store::open(&loaded.state)?);
    let progress = progress(None)?;
    let selection = SelectionOptions::default();
    let planner = loaded.planner(&args.common, &looked);
    let hooks = loaded.hooks().await?;
    let session = Session {
        planner: &planner,
        store: &store,
        progress: &progress,
        settings: &settings(&args.common, &selection, &loaded, &hooks),
    };
    let plan = session.plan()?;
    loaded.has_cells(&plan)?;
    let mut chosen = session.choose(&selection, None)?;
    chosen.known.measure_all(&plan, args.rounds);
    let planned = session.announce(&chosen)?;
    let strategy = Calibrate::new(args.rounds, planned.clone());
    let names = BTreeSet::from([machine.clone()]);
    let mut signals = signals()?;
    let done = session
        .run(
            &names,
            vec![Asked::new(strategy, &planner)],
            planned,
            None,
            &mut signals,
        )
        .await;
    drop(signals);
    session.finished(done.as_ref().map_or(&Tally::default(), |done| &done.tally));
    let SessionResult { id, tally, .. } = done?;
    let plan = session.plan()?;
    let store = store.borrow();
    let preset = preset_name(&loaded.matrix, args.common.preset.as_deref());
    let what = What {
        sessions: NOISE_SESSIONS_MAX,
        metrics: &metrics_of(&plan),
        is_kept: false,
    };
    let past = Past::read(&store, &loaded.matrix, preset, what, &|_| true)?;
    let samples = Samples::of(&plan, &store)?;
    let found = calibrated(&plan, &samples, &past, id, repetitions)?;
    let mut calibration = Calibration {
        matrix: loaded.matrix.name.clone(),
        machine: args.machine.clone(),
        preset: preset.to_owned(),
        judged_for,
        repetitions,
        rounds: args.rounds,
        false_alarms: 0,
        metrics: Vec::new(),
        cells: Vec::new(),
    };
    calibration.add(&plan, &found);
    for failed in &tally.failed {
        say(&format!("failed: {}: {}", failed.cell, failed.reason));
    }
    let exit = match &tally {
        tally if tally.interrupted => Exit::Interrupted,
        _ if !calibration.is_something() => Exit::Nothing,
        tally if !tally.failed.is_empty() => Exit::Failed,
        _ => Exit::Fine,
    };
    Ok((calibration, exit))
}

/// The preset that is judged, and its repetitions at the most.
fn repetitions(matrix: &Matrix, args: &CalibrateArgs) -> Result<(String, u32), Stop> {
    let find = |name: &str| {
        matrix
            .presets
            .iter()
            .find(|preset| preset.name.value == name)
    };
    let own = preset_name(matrix, args.common.preset.as_deref());
    let name = match &args.judged_for {
        Some(name) if find(name).is_none() => {
            let known = matrix
                .presets
                .iter()
                .map(|preset| preset.name.value.as_str());
            let help = suggest(name, known);
            return Err(Stop::message(format!(
                "there is no preset `{name}`; {help}"
            )));
        }
        Some(name) => name,
        None if find(NIGHTLY).is_some() => NIGHTLY,
        None => own,
    };
    let declared = find(name).and_then(|preset| preset.repeat.as_ref());
    let repeat = declared.unwrap_or(&matrix.run.repeat);
    let shown = if name.is_empty() { "this matrix" } else { name };
    Ok((shown.to_owned(), repeat.max))
}
