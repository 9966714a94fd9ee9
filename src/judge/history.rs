//! What one more night adds to a series: told changes stand, only the tail is looked at.

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

/// What a fresh look at the whole series says of a change that was told before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeStanding {
    /// It is found again.
    Stands,
    /// It is not found any more.
    Gone,
}

/// The changes that the newest points add to those told before. Looks at the points since the last of them, at most the
/// last [`TAIL_MAX`]: the cost of a night does not grow with the series.
///
/// Give the indexes told so far in ascending order; what is returned belongs at their end.
pub fn append(series: &[Option<f64>], told: &[usize], options: &DetectorOptions) -> Vec<Change> {
    let since = told.last().copied().unwrap_or(0);
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
    // The first points may be those of the level before, where the last change was told too early.
    found.retain(|change| begin == 0 || change.index >= options.min_segment);
    for change in &mut found {
        change.index += begin;
        change.set.iter_mut().for_each(|index| *index += begin);
    }
    found
}

/// Whether a change was told when so few points were behind it that the next ones may show a passing excursion: then a
/// fresh look decides ([`review`]).
pub fn is_provisional(points_behind: usize, options: &DetectorOptions) -> bool {
    points_behind < options.min_segment
}

/// The fresh change that a told one is, by its index: the nearest within `min_segment` points. None where there is none.
pub fn review(told: usize, fresh: &[Change], options: &DetectorOptions) -> Option<usize> {
    let indexes = fresh.iter().map(|change| change.index);
    let nearest = indexes.min_by_key(|index| index.abs_diff(told));
    nearest.filter(|index| index.abs_diff(told) <= options.min_segment)
}
