//! Findings of earlier sessions: which of them stand, and which the present samples refute.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use crate::edge::store::{FindingChanges, OpenFinding, SeriesFinding};
use crate::judge::verdict::{Comparison, Verdict};
use crate::verdicts::cells::{CellName, NamedCell};

/// What the present samples say of a regression that was confirmed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// It is still there, or nothing can be said.
    Present,
    /// It looks gone, and that is not certain.
    LooksGone,
    /// The interval of what is left of it does not reach half of it, or not `min_effect`.
    Refuted,
}

/// A confirmed regression of an earlier session beside a comparison of the same series.
#[derive(Clone, Debug)]
pub struct Standing {
    pub open: OpenFinding,
    pub outlook: Outlook,
    /// The baseline of the comparison has the regression too.
    pub is_in_baseline: bool,
    /// The comparison is the very one that confirmed it: it speaks for itself.
    pub is_same_pair: bool,
}

impl Standing {
    /// Whether another candidate is compared with a baseline from before the regression.
    pub fn is_direct(&self) -> bool {
        !self.is_in_baseline && !self.is_same_pair
    }
}

/// A confirmed regression that stands.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OpenRegressionRow {
    /// Name of the cell without its version.
    #[serde(flatten)]
    #[schemars(with = "NamedCell")]
    pub cell: CellName,
    pub metric: String,
    /// The versions between which it was confirmed.
    pub baseline: String,
    pub candidate: String,
    /// Candidate / baseline, as it was confirmed.
    pub ratio: f64,
    /// The session that confirmed it, and when that began: ISO 8601, UTC.
    pub session: i64,
    pub confirmed_at: String,
    /// The version in which it still stands.
    pub now: String,
    /// It makes the exit status 1.
    pub gate: bool,
}

/// What is left of a regression of this ln ratio, by a comparison; `is_in_baseline`: the comparison begins where the
/// regression is already in.
pub fn outlook(
    shift: f64,
    is_in_baseline: bool,
    comparison: &Comparison,
    min_effect: f64,
) -> Outlook {
    let bound = (shift.abs() / 2.0).max(min_effect.max(0.0).ln_1p());
    let before = if is_in_baseline { shift } else { 0.0 };
    let left = |ratio: f64| (before + ratio.ln()) * shift.signum();
    let Some(point) = comparison.ratio.filter(|ratio| *ratio > 0.0).map(left) else {
        return Outlook::Present;
    };
    let ends = comparison.ci95.filter(|ends| ends[0] > 0.0);
    let most = ends.map(|ends| left(ends[0]).max(left(ends[1])));
    match most.is_some_and(|most| most < bound) && !comparison.basis.is_apart {
        true => Outlook::Refuted,
        false if point < bound => Outlook::LooksGone,
        false => Outlook::Present,
    }
}

/// A comparison of versions as findings see it.
pub struct Compared<'a> {
    pub finding: SeriesFinding,
    pub verdict: Verdict,
    /// Whether there was anything to judge by.
    pub is_judged: bool,
    pub is_confirmed: bool,
    pub standing: &'a [Standing],
    /// Findings of the series that were suspected until now.
    pub suspected: &'a [OpenFinding],
}

/// What comparisons change about findings: regressions that were confirmed now, what is suspected from now on, and what
/// ends. Of several versions the later one says whether a regression is refuted: they come in this order.
pub fn changes(all: &[Compared]) -> FindingChanges {
    let mut changes = FindingChanges::default();
    let mut refuted: BTreeMap<i64, bool> = BTreeMap::new();
    let mut looked_again: BTreeSet<i64> = BTreeSet::new();
    for one in all {
        for standing in one.standing {
            refuted.insert(standing.open.id, standing.outlook == Outlook::Refuted);
        }
        let is_known = |it: &Standing| !it.is_in_baseline && it.outlook != Outlook::Refuted;
        let is_new = !one.standing.iter().any(is_known);
        match one.verdict {
            Verdict::Regression if one.is_confirmed && is_new => {
                changes.found.push(SeriesFinding {
                    is_confirmed: true,
                    ..one.finding.clone()
                });
            }
            Verdict::Suspected => changes.found.push(one.finding.clone()),
            _ => {}
        }
        let is_same = |open: &&OpenFinding| {
            one.verdict == Verdict::Suspected && open.finding.keys == one.finding.keys
        };
        let others = one.suspected.iter().filter(|open| !is_same(open));
        looked_again.extend(others.filter(|_| one.is_judged).map(|open| open.id));
    }
    changes
        .found
        .retain(|found| found.shift.is_finite() && found.shift != 0.0);
    let refuted = refuted.into_iter().filter(|(_, is_refuted)| *is_refuted);
    changes.ended.extend(refuted.map(|(id, _)| id));
    changes.ended.extend(looked_again);
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sample::Better;
    use crate::judge::verdict::{Question, compare_values};

    #[test]
    fn a_regression_is_refuted_where_half_of_it_is_excluded() {
        let check = |candidate: f64, is_in_baseline: bool, noise: f64, expected: Outlook| {
            let side = |level: f64| -> Vec<f64> {
                (0..8)
                    .map(|i| level * (1.0 + noise * (f64::from(i % 4) - 1.5)))
                    .collect()
            };
            let question = Question::new(Better::Lower, 0.02);
            let comparison = compare_values(&side(100.0), &side(candidate), &question);
            let told = outlook(1.1f64.ln(), is_in_baseline, &comparison, 0.02);
            assert_eq!(told, expected, "{candidate} {is_in_baseline} {noise}");
        };
        // Against the good version: 10 % more, nothing left, and too noisy to tell.
        check(110.0, false, 0.005, Outlook::Present);
        check(100.0, false, 0.005, Outlook::Refuted);
        check(100.0, false, 0.1, Outlook::LooksGone);
        check(106.0, false, 0.005, Outlook::Present);
        // Against a version that has it: the same means that it is still there.
        check(100.0, true, 0.005, Outlook::Present);
        check(91.0, true, 0.005, Outlook::Refuted);
        check(97.0, true, 0.005, Outlook::Present);
    }
}
