//! `matrix plan --from A --to B` and `--base FILE`: what a commit or an edited matrix changes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::Common;
use super::load::load;
use super::show::Stop;
use crate::base::diag::Sources;
use crate::base::key::Key;
use crate::base::units::{count, show_duration};
use crate::plan::dag::Plan;
use crate::resolve::lookup::StepTimes;
use crate::verdicts::document::PlanDifferenceDocument;

/// Cells of each list that are printed.
const CELLS_MAX: usize = 20;

/// What one side of a difference would measure: cell → key, and how long that takes.
struct DiffSide(BTreeMap<String, (Key, Duration)>);

/// Cells that differ.
pub struct PlanDifference {
    added: Vec<String>,
    removed: Vec<String>,
    affected: Vec<String>,
    total: usize,
    /// To measure what is added and affected.
    duration: Duration,
}

/// The difference between two versions under one matrix.
pub async fn versions(common: &Common, from: &str, to: &str) -> Result<PlanDifference, Stop> {
    let of = |version: &str| Common {
        versions: vec![version.to_owned()],
        against: None,
        ..common.clone()
    };
    Ok(difference(side(&of(from)).await?, side(&of(to)).await?))
}

/// The difference that an edited matrix makes against an older text of it.
pub async fn matrices(common: &Common, base: &std::path::Path) -> Result<PlanDifference, Stop> {
    let old = Common {
        matrix: base.to_owned(),
        ..common.clone()
    };
    Ok(difference(side(&old).await?, side(common).await?))
}

async fn side(common: &Common) -> Result<DiffSide, Stop> {
    let mut sources = Sources::default();
    let loaded = load(common, &mut sources)?;
    let looked = loaded.look(common).await?;
    let store = loaded.store()?;
    let world = loaded.world(&looked, store.as_ref())?;
    let plan = loaded.plan(common, &looked, &world)?;
    let past = StepTimes::of(&plan, store.as_ref(), &|_| true)?;
    let rounds = loaded.repeat.min;
    let cells = past.with(|durations| keyed(&plan, &|key| (durations.run)(key) * rounds));
    Ok(DiffSide(cells))
}

fn keyed(plan: &Plan, duration: &dyn Fn(Key) -> Duration) -> BTreeMap<String, (Key, Duration)> {
    let version: Vec<usize> = plan.cells.axis("version").into_iter().collect();
    let cells = plan.cells.iter().zip(&plan.steps.runs.of_cell);
    cells
        .map(|(cell, run)| {
            let key = plan.steps.runs.keys[*run as usize];
            (
                plan.cells.name_without(cell, &version),
                (key, duration(key)),
            )
        })
        .collect()
}

fn difference(from: DiffSide, to: DiffSide) -> PlanDifference {
    let (from, to) = (from.0, to.0);
    let names = |which: &dyn Fn(&String) -> bool, side: &BTreeMap<String, (Key, Duration)>| {
        side.keys()
            .filter(|name| which(name))
            .cloned()
            .collect::<Vec<_>>()
    };
    let added = names(&|name| !from.contains_key(name), &to);
    let differs = |name: &String| from.get(name).is_some_and(|(key, _)| *key != to[name].0);
    let affected = names(&differs, &to);
    PlanDifference {
        removed: names(&|name| !to.contains_key(name), &from),
        total: to.len(),
        duration: added.iter().chain(&affected).map(|name| to[name].1).sum(),
        added,
        affected,
    }
}

impl PlanDifference {
    pub fn document(&self) -> PlanDifferenceDocument<'_> {
        PlanDifferenceDocument {
            cells: self.total,
            added: &self.added,
            removed: &self.removed,
            affected: &self.affected,
            estimate_s: self.duration.as_secs_f64(),
        }
    }

    pub fn text(&self) -> String {
        let mut out = String::new();
        for (word, cells) in [
            ("added", &self.added),
            ("removed", &self.removed),
            ("affected", &self.affected),
        ] {
            let _ = writeln!(out, "{} {word}", count(cells.len(), "cell"));
            for cell in cells.iter().take(CELLS_MAX) {
                let _ = writeln!(out, "  {cell}");
            }
            if cells.len() > CELLS_MAX {
                let _ = writeln!(
                    out,
                    "  … and {} more (`--json` has all)",
                    cells.len() - CELLS_MAX
                );
            }
        }
        let measured = self.added.len() + self.affected.len();
        let all = count(self.total, "cell");
        let _ = writeln!(
            out,
            "{measured} of {all} to measure, about {}",
            show_duration(self.duration)
        );
        out
    }
}
