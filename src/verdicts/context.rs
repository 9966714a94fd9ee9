//! What stands beside verdicts: differing environments, doubtful samples, monitors that moved.

use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::key::Key;
use crate::base::sample::Sample;
use crate::edge::store::{MARK_SEPARATOR, MarkKind, Store, StoreError};
use crate::judge::monitors::{MovedMonitor, Watched, moved};
use crate::machine::environment::{Environment, EnvironmentDifference};
use crate::plan::dag::Plan;
use crate::plan::steps::NONE;
use crate::verdicts::cells::CellRows;
use crate::verdicts::report::{Report, VerdictRow};

/// Changed knobs that are named.
const KNOBS_MAX: usize = 10;

/// Pairs of environments that are compared.
const PAIRS_MAX: usize = 20;

/// How the machine differed between the two sides of comparisons.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EnvironmentsRow {
    /// The two sides, such as `version=v1` and `version=v2`.
    pub between: [String; 2],
    /// Comparisons that this is about.
    pub verdicts: usize,
    pub differences: Vec<EnvironmentDifference>,
}

/// Samples that are to be read with care.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MarksRow {
    /// `noisy` or `knob`.
    pub kind: &'static str,
    pub samples: usize,
    /// What is said of one of them; of changed knobs, of each.
    pub example: String,
}

/// Monitors that moved together with a verdict.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MonitorsRow {
    pub cell: String,
    pub axis: String,
    pub baseline: String,
    pub candidate: String,
    /// The metrics that changed.
    pub metrics: Vec<String>,
    /// How many monitors there are.
    pub monitors: usize,
    /// Strongest first.
    pub moved: Vec<MovedMonitor>,
}

/// Adds to a report what was beside its samples. `monitors`: those too.
pub fn add(
    report: &mut Report,
    plan: &Plan,
    store: &Store,
    monitors: bool,
) -> Result<(), StoreError> {
    report.environments = environments(&report.verdicts, store)?;
    report.marks = marks(&mut report.cells, plan, store)?;
    if monitors {
        report.monitors = monitors_moved(&report.verdicts, plan, store)?;
    }
    Ok(())
}

fn environments(rows: &[VerdictRow], store: &Store) -> Result<Vec<EnvironmentsRow>, StoreError> {
    let mut found: BTreeMap<([Key; 2], [String; 2]), usize> = BTreeMap::new();
    for row in rows {
        if let Some(keys) = row.differing {
            let side = |label: &str| format!("{}={label}", row.axis);
            let between = [side(&row.baseline), side(&row.candidate)];
            *found.entry((keys, between)).or_default() += 1;
        }
    }
    let mut known: HashMap<Key, Option<Environment>> = HashMap::new();
    let mut list = Vec::new();
    for ((keys, between), verdicts) in found.into_iter().take(PAIRS_MAX) {
        for key in keys {
            if let std::collections::hash_map::Entry::Vacant(place) = known.entry(key) {
                // One of a newer version cannot be compared.
                let json = store.environment(key)?;
                place.insert(json.and_then(|json| Environment::from_json(&json).ok()));
            }
        }
        let [a, b] = keys.map(|key| known.get(&key).and_then(Option::as_ref));
        let (Some(a), Some(b)) = (a, b) else { continue };
        list.push(EnvironmentsRow {
            between,
            verdicts,
            differences: a.differences(b),
        });
    }
    Ok(list)
}

fn marks(cells: &mut CellRows, plan: &Plan, store: &Store) -> Result<Vec<MarksRow>, StoreError> {
    let keys = &plan.steps.runs.keys;
    let mut found: BTreeMap<MarkKind, (usize, Vec<String>)> = BTreeMap::new();
    store.for_each_mark(keys, |key, mark| {
        if let Ok(run) = keys.binary_search(&key) {
            cells.note_mark(run as u32);
        }
        let (samples, examples) = found.entry(mark.kind).or_default();
        *samples += 1;
        // Each knob is worth naming, one moment of noise is like another.
        let max = match mark.kind {
            MarkKind::Knob => KNOBS_MAX,
            MarkKind::Noisy => 1,
        };
        let new = |line: &str| !examples.iter().any(|known| known == line);
        let lines = mark.what.split(MARK_SEPARATOR);
        let lines: Vec<String> = match mark.kind {
            MarkKind::Knob => lines.filter(|line| new(line)).map(str::to_owned).collect(),
            MarkKind::Noisy => vec![mark.what],
        };
        let room = max - examples.len();
        examples.extend(lines.into_iter().take(room));
    })?;
    let rows = found
        .into_iter()
        .map(|(kind, (samples, examples))| MarksRow {
            kind: kind.name(),
            samples,
            example: examples.join(MARK_SEPARATOR),
        });
    Ok(rows.collect())
}

fn monitors_moved(
    rows: &[VerdictRow],
    plan: &Plan,
    store: &Store,
) -> Result<Vec<MonitorsRow>, StoreError> {
    let changes = rows.iter().filter(|row| row.comparison.verdict.is_change());
    let mut list: Vec<(&VerdictRow, Vec<String>)> = Vec::new();
    for row in changes.filter(|row| !row.runs.contains(&NONE)) {
        // Metrics of one comparison share the monitors.
        match list.iter_mut().find(|(known, _)| known.runs == row.runs) {
            Some((_, metrics)) => metrics.push(row.metric.clone()),
            None => list.push((row, vec![row.metric.clone()])),
        }
    }
    let key = |run: u32| plan.steps.runs.keys[run as usize];
    let mut keys: Vec<Key> = list.iter().flat_map(|(row, _)| row.runs.map(key)).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut values: HashMap<Key, BTreeMap<String, Vec<Sample>>> = HashMap::new();
    store.for_each_monitor_value(&keys, |key, name, sample| {
        let of_key = values.entry(key).or_default();
        of_key.entry(name).or_default().push(sample);
    })?;
    let none = BTreeMap::new();
    let tell = |(row, metrics): (&VerdictRow, Vec<String>)| {
        let [a, b] = row.runs.map(|run| values.get(&key(run)).unwrap_or(&none));
        let both = a.iter().filter_map(|(name, baseline)| {
            let candidate = b.get(name)?;
            Some(Watched {
                name,
                baseline,
                candidate,
            })
        });
        let both: Vec<Watched> = both.collect();
        MonitorsRow {
            cell: row.cell.0.clone(),
            axis: row.axis.clone(),
            baseline: row.baseline.clone(),
            candidate: row.candidate.clone(),
            metrics,
            monitors: both.len(),
            moved: moved(&both),
        }
    };
    Ok(list.into_iter().map(tell).collect())
}
