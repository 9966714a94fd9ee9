//! What one more night adds to a series: reported changes stand, only the tail is looked at.

use schemars::JsonSchema;
use serde::Serialize;

use super::changepoint::{Change, DetectorOptions, changes};

/// Points of the tail that are looked at, however long the series is.
pub const TAIL_MAX: usize = 80;

/// Points since the last reported change from which on another one is looked for: with fewer, the
/// noise is not known well enough to look at it every night.
pub const TAIL_MIN: usize = 20;

/// A change has to be so much clearer when the series is looked at again every night: a point that
/// is reported stays, so that false ones of all nights add up.
const NIGHTLY_PENALTY: f64 = 1.5;

/// What a full analysis says of a change that was reported before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeStanding {
    /// Found again at the same index.
    Stands,
    /// Found again, but at this index.
    Moved { to: usize },
    /// Not found any more.
    Gone,
}

/// The changes that the newest points add to those reported before; the reported ones are neither
/// moved nor withdrawn. Looks at the points since the last reported change, at most the
/// last [`TAIL_MAX`]: the cost of a night does not grow with the series.
///
/// Give the indices reported so far in ascending order; what is returned belongs at their end.
pub fn append(
    series: &[Option<f64>],
    reported: &[usize],
    options: &DetectorOptions,
) -> Vec<Change> {
    let since = reported.last().copied().unwrap_or(0);
    let begin = since
        .max(series.len().saturating_sub(TAIL_MAX))
        .min(series.len());
    let tail = &series[begin..];
    if tail.len() < TAIL_MIN {
        return Vec::new();
    }
    // A change of the tail must be as clear as one of the whole series.
    let length = |points: &[Option<f64>]| (points.len().max(2) as f64).ln();
    let strict = DetectorOptions {
        // The tail says too little of a trend.
        trends: false,
        penalty: NIGHTLY_PENALTY * options.penalty * length(series) / length(tail),
        ..*options
    };
    let mut found = changes(tail, &strict);
    for change in &mut found {
        change.index += begin;
    }
    if found
        .last()
        .is_some_and(|last| may_begin_later(series, last, options))
    {
        found.pop();
    }
    found
}

/// Whether a change has no more points behind it than the fewest of a level, and the first of them is nearer to the
/// level before: the next night tells whether it only filled up the level.
fn may_begin_later(series: &[Option<f64>], change: &Change, options: &DetectorOptions) -> bool {
    let mut points = series[change.index..]
        .iter()
        .flatten()
        .filter(|x| x.is_finite());
    let to_before = |x: &f64| (x - change.before).abs() < (x - change.after).abs();
    let first = points.next();
    first.is_some_and(to_before) && points.count() < options.min_segment
}

/// Compares reported changes with a fresh analysis of the whole series: one word for each, in their
/// order. A change counts as moved where the fresh one lies within `min_segment` points.
pub fn review(
    reported: &[usize],
    fresh: &[Change],
    options: &DetectorOptions,
) -> Vec<ChangeStanding> {
    let standing = |index: &usize| {
        let nearest = fresh
            .iter()
            .map(|change| change.index)
            .min_by_key(|at| at.abs_diff(*index));
        match nearest.filter(|at| at.abs_diff(*index) <= options.min_segment) {
            Some(at) if at == *index => ChangeStanding::Stands,
            Some(to) => ChangeStanding::Moved { to },
            None => ChangeStanding::Gone,
        }
    };
    reported.iter().map(standing).collect()
}
