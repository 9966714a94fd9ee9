//! Series as they are reported: their course, their change points, and one cause for changes that happened together.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::sample::Better;
use crate::judge::changepoint::Change;
use crate::judge::history::ChangeStanding;
use crate::judge::stats::median;
use crate::judge::verdict::Verdict;
use crate::verdicts::cells::{CellName, NamedCell};
use crate::verdicts::report::AcceptedRow;

/// Change points of the series of a file.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FileChanges {
    pub series: Vec<FileSeries>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FileSeries {
    pub name: String,
    /// Points that are no gaps.
    pub points: usize,
    pub changes: Vec<FileChange>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FileChange {
    /// Of the most likely first point after the change.
    pub revision: String,
    /// Revisions that hold 95 % of the probability together.
    #[serde(rename = "revisions")]
    pub set: Vec<String>,
    #[serde(flatten)]
    pub change: Change,
}

/// Change points of a matrix: one cause is one line.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MatrixChanges {
    pub matrix: String,
    pub preset: String,
    /// The latest first.
    pub causes: Vec<Cause>,
    pub accepted: Vec<AcceptedRow>,
}

/// What happened to a metric on a machine between two versions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Cause {
    /// For `matrix accept --change`.
    pub id: Option<i64>,
    pub machine: String,
    pub metric: String,
    /// It is after `from`, at `to` at the latest, and most likely at `most_likely`.
    pub from: String,
    pub to: String,
    pub most_likely: String,
    pub probability: Option<f64>,
    /// When the most likely version was measured: ISO 8601, UTC.
    pub at: String,
    /// That of most cells.
    pub verdict: Verdict,
    /// Median over the cells.
    pub ratio: Option<f64>,
    pub surroundings: Vec<String>,
    /// The acceptance that all cells are under.
    pub accepted: Option<i64>,
    pub cells: Vec<CellChange>,
}

/// A change point of one series.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CellChange {
    pub id: Option<i64>,
    #[serde(flatten)]
    #[schemars(with = "NamedCell")]
    pub cell: CellName,
    pub machine: String,
    pub metric: String,
    pub unit: String,
    /// Of the most likely first point after the change, and how likely that is; None where it is gone.
    pub index: usize,
    pub probability: Option<f64>,
    /// Indexes that hold 95 % of the probability together, ascending.
    pub set: Vec<usize>,
    /// The last version before all of these, the last one of these, and the most likely one.
    pub from: String,
    pub to: String,
    pub most_likely: String,
    /// The version at which it was told first, where that was another one.
    pub told_at: Option<String>,
    /// When the most likely first point was measured.
    pub at: String,
    #[serde(skip)]
    pub session: i64,
    pub verdict: Verdict,
    pub ratio: Option<f64>,
    pub ci95: Option<[f64; 2]>,
    pub before: Option<f64>,
    pub after: Option<f64>,
    /// What a fresh look at the whole series says of one that was told before.
    pub standing: Option<ChangeStanding>,
    pub surroundings: Vec<String>,
    pub accepted: Option<i64>,
}

/// The course of series.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct History {
    pub matrix: String,
    pub preset: String,
    pub series: Vec<Course>,
    pub accepted: Vec<AcceptedRow>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Course {
    #[serde(flatten)]
    #[schemars(with = "NamedCell")]
    pub cell: CellName,
    pub machine: String,
    pub metric: String,
    pub unit: String,
    pub better: Better,
    pub points: Vec<CoursePoint>,
    pub changes: Vec<CellChange>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CoursePoint {
    pub version: String,
    /// ISO 8601, UTC.
    pub at: String,
    pub session: i64,
    /// Median of the samples.
    pub value: Option<f64>,
    pub n: usize,
    /// Hash of what was true of the machine.
    pub environment: Option<String>,
    /// How that differs from the point before.
    pub differences: Vec<String>,
}

/// The word for a change of level.
pub fn direction(ratio: Option<f64>, difference: f64, better: Better) -> Verdict {
    let up = ratio.map_or(difference > 0.0, |ratio| ratio > 1.0);
    match up == (better == Better::Higher) {
        true => Verdict::Improvement,
        false => Verdict::Regression,
    }
}

/// Gathers the changes that happened to the same metric on the same machine between the same
/// versions, the latest first. Versions of one name (`installed`) are told apart by their session.
pub fn causes(changes: Vec<CellChange>) -> Vec<Cause> {
    let mut groups: BTreeMap<(i64, String, String, String, String), Vec<CellChange>> =
        BTreeMap::new();
    for change in changes {
        let session = if change.from == change.to {
            change.session
        } else {
            0
        };
        let (machine, metric) = (change.machine.clone(), change.metric.clone());
        let key = (
            session,
            change.from.clone(),
            change.to.clone(),
            machine,
            metric,
        );
        groups.entry(key).or_default().push(change);
    }
    let mut causes: Vec<Cause> = groups.into_values().filter_map(cause).collect();
    causes.sort_by(|a, b| b.at.cmp(&a.at).then(a.id.cmp(&b.id)));
    causes
}

fn cause(cells: Vec<CellChange>) -> Option<Cause> {
    let first = cells.first()?.clone();
    let ratios: Vec<f64> = cells.iter().filter_map(|cell| cell.ratio).collect();
    let worse = cells
        .iter()
        .filter(|cell| cell.verdict == Verdict::Regression);
    let mut surroundings: Vec<String> = Vec::new();
    for told in cells.iter().flat_map(|cell| &cell.surroundings) {
        if !surroundings.contains(told) {
            surroundings.push(told.clone());
        }
    }
    let accepted = first.accepted;
    let all_accepted = cells.iter().all(|cell| cell.accepted.is_some());
    Some(Cause {
        id: cells.iter().filter_map(|cell| cell.id).min(),
        machine: first.machine,
        metric: first.metric,
        from: first.from,
        to: first.to,
        most_likely: first.most_likely,
        probability: first.probability,
        at: cells.iter().map(|cell| cell.at.clone()).min()?,
        verdict: match 2 * worse.count() >= cells.len() {
            true => Verdict::Regression,
            false => Verdict::Improvement,
        },
        ratio: median(&ratios),
        surroundings,
        accepted: accepted.filter(|_| all_accepted),
        cells,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(cell: &str, from: &str, to: &str, session: i64, ratio: f64) -> CellChange {
        CellChange {
            id: Some(session),
            cell: cell.to_owned().into(),
            machine: "here".into(),
            metric: "iops".into(),
            unit: String::new(),
            index: 9,
            probability: Some(1.0),
            set: vec![9],
            from: from.into(),
            to: to.into(),
            most_likely: to.into(),
            told_at: None,
            at: format!("2026-01-0{session}T00:00:00Z"),
            session,
            verdict: direction(Some(ratio), 0.0, Better::Higher),
            ratio: Some(ratio),
            ci95: None,
            before: None,
            after: None,
            standing: None,
            surroundings: vec!["kernel".into()],
            accepted: None,
        }
    }

    #[test]
    fn one_cause_is_one_line() {
        let found = causes(vec![
            change("a", "v1", "v2", 3, 0.9),
            change("b", "v1", "v2", 4, 0.8),
            change("a", "v2", "v3", 5, 1.1),
            change("a", "installed", "installed", 6, 0.9),
            change("b", "installed", "installed", 7, 0.9),
        ]);
        let told: Vec<_> = found
            .iter()
            .map(|cause| (cause.id, cause.cells.len(), cause.verdict))
            .collect();
        assert_eq!(
            told,
            [
                (Some(7), 1, Verdict::Regression),
                (Some(6), 1, Verdict::Regression),
                (Some(5), 1, Verdict::Improvement),
                (Some(3), 2, Verdict::Regression),
            ]
        );
        assert_eq!(found[3].surroundings, ["kernel"]);
        assert!((found[3].ratio.unwrap() - 0.85).abs() < 1e-12);
    }
}
