//! Which monitors moved together with a verdict.

use schemars::JsonSchema;
use serde::Serialize;

use super::compare::compare;
use super::stats::{benjamini_hochberg, median};
use super::verdict::Question;
use crate::base::sample::{Better, Sample};

/// The false discovery rate among the monitors of one verdict. Far below that of verdicts: there are
/// hundreds of monitors, and one that is named for nothing leads somebody astray.
const LEVEL: f64 = 0.001;
/// Monitors that are named for one verdict.
pub const MOVED_MAX: usize = 5;
/// Samples a side below which nothing is said.
const SAMPLES_MIN: usize = 3;

/// One monitor on both sides of a comparison.
#[derive(Clone, Debug)]
pub struct Watched<'a> {
    pub name: &'a str,
    pub baseline: &'a [Sample],
    pub candidate: &'a [Sample],
}

/// A monitor that moved.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MovedMonitor {
    pub monitor: String,
    /// Medians.
    pub baseline: f64,
    pub candidate: f64,
    /// Candidate / baseline, where there is one.
    pub ratio: Option<f64>,
    /// p-value, adjusted for the number of monitors (Benjamini & Hochberg, 1995).
    pub q: f64,
}

/// The monitors that differ between the two sides, strongest first: the least likely to differ by
/// chance, by the same tests as metrics ([`compare`]). At most [`MOVED_MAX`].
pub fn moved(watched: &[Watched]) -> Vec<MovedMonitor> {
    let question = Question {
        level: LEVEL,
        // Neither direction of a monitor is better, and every change counts: only p is used.
        ..Question::new(Better::Higher, 0.0)
    };
    let mut tested = Vec::new();
    for monitor in watched {
        let sides = [monitor.baseline, monitor.candidate];
        if sides.iter().any(|side| side.len() < SAMPLES_MIN) {
            continue;
        }
        let comparison = compare(monitor.baseline, monitor.candidate, &question);
        let [baseline, candidate] = sides.map(|side| {
            let values: Vec<f64> = side.iter().map(|sample| sample.value).collect();
            median(&values).unwrap_or_default()
        });
        tested.push(MovedMonitor {
            monitor: monitor.name.to_owned(),
            baseline,
            candidate,
            ratio: comparison.ratio,
            q: comparison.p.unwrap_or(1.0),
        });
    }
    let p: Vec<f64> = tested.iter().map(|moved| moved.q).collect();
    for (moved, q) in tested.iter_mut().zip(benjamini_hochberg(&p)) {
        moved.q = q;
    }
    tested.retain(|moved| moved.q <= LEVEL);
    let size = |moved: &MovedMonitor| moved.ratio.map_or(0.0, |ratio| ratio.ln().abs());
    tested.sort_by(|a, b| a.q.total_cmp(&b.q).then(size(b).total_cmp(&size(a))));
    tested.truncate(MOVED_MAX);
    tested
}
