//! Owns the second look: which findings are measured again, and what both looks say together.
//! Does not know how a rerun is made.

use super::verdict::{Comparison, Question, Verdict};

/// Share of the candidates that are expected to be [`worth_the_rest`].
const REST_SHARE: f64 = 0.25;

/// How findings are confirmed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Comparisons with a p-value up to this are measured again.
    pub screen_level: f64,
    /// Fresh rounds for each of them, interleaved.
    pub rounds: u32,
    /// After so many of them a rerun that points nowhere is given up, see [`worth_the_rest`].
    pub look: u32,
    /// The runs spent on it at the most, as a share of those already made.
    pub budget: f64,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            screen_level: 0.10,
            rounds: 20,
            look: 6,
            budget: 0.10,
        }
    }
}

/// The comparisons of a family to be measured again with [`Policy::rounds`] fresh rounds a side, the
/// most significant first, as many as the budget allows.
///
/// That is each with p ≤ `screen_level` that is not shown to be the same, except what is
/// deterministic: a rerun would tell nothing new. The level is not adjusted for the family: the
/// screen is meant to be wide, see [`merge`].
pub fn candidates(family: &[(Question, Comparison)], policy: &Policy) -> Vec<usize> {
    let screened = |comparison: &Comparison| {
        let exact = comparison.ci95.is_some_and(|[low, high]| low == high);
        comparison.p.is_some_and(|p| p <= policy.screen_level)
            && comparison.verdict != Verdict::Same
            && !exact
    };
    let mut found: Vec<usize> = (0..family.len())
        .filter(|index| screened(&family[*index].1))
        .collect();
    let p = |index: &usize| family[*index].1.p.unwrap_or(1.0);
    found.sort_by(|a, b| p(a).total_cmp(&p(b)));
    let runs: usize = family.iter().map(|(_, c)| c.n[0] + c.n[1]).sum();
    let rest = f64::from(policy.rounds.saturating_sub(policy.look));
    let each = 2.0 * (f64::from(policy.look.max(1)) + rest * REST_SHARE);
    found.truncate((runs as f64 * policy.budget.max(0.0) / each) as usize);
    found
}

/// Whether a rerun of which only [`Policy::look`] rounds are made deserves the rest: its shift points
/// where the screen's does, with any significance at all.
///
/// Giving up early can only withhold findings, so it costs [`merge`] nothing of its validity.
pub fn worth_the_rest(screen: &Comparison, so_far: &Comparison) -> bool {
    agreeing_p(screen, so_far).is_some_and(|p| p < 1.0)
}

/// What a screening comparison and its confirmation from fresh samples say together; give the
/// result to [`super::verdict::decide`] with the rest of the family.
///
/// p = α·p′, where α is the screen's level and p′ the confirmation's p-value, 1 if it points the other
/// way. Under "no difference" p′ is independent of the screen, hence P(p ≤ t) ≤
/// P(screened)·P(p′ ≤ t/α) ≤ t: a proper p-value of the whole procedure (with a factor of two to spare, as
/// directions must agree), so that the family stays what it was, and no sample counts twice.
/// Ratio and interval are the confirmation's alone: the screen's are biased, being chosen for
/// their size.
pub fn merge(screen: &Comparison, confirmation: &Comparison, policy: &Policy) -> Comparison {
    match agreeing_p(screen, confirmation) {
        Some(p) => Comparison {
            p: Some(policy.screen_level * p),
            ..confirmation.clone()
        },
        // The rerun gave nothing to judge by: that is the word for the whole.
        None => confirmation.clone(),
    }
}

/// The confirmation's p-value, 1 where it points the other way.
fn agreeing_p(screen: &Comparison, confirmation: &Comparison) -> Option<f64> {
    let direction = |comparison: &Comparison| comparison.difference.unwrap_or(0.0);
    let agrees = direction(screen) * direction(confirmation) > 0.0;
    confirmation.p.map(|p| if agrees { p } else { 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::verdict::{compare_values, decide};
    use crate::words::sample::Better;

    const QUESTION: Question = Question {
        better: Better::Lower,
        min_effect: 0.02,
        level: 0.05,
        noise: None,
    };
    const BASE: [f64; 6] = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2];

    fn times(factor: f64) -> Comparison {
        compare_values(&BASE, &BASE.map(|x| x * factor), &QUESTION)
    }

    fn family(factors: &[f64]) -> Vec<(Question, Comparison)> {
        factors
            .iter()
            .map(|factor| (QUESTION, times(*factor)))
            .collect()
    }

    #[test]
    fn what_looks_changed_is_looked_at_again_within_the_budget() {
        let mut all = family(&[1.0; 200]);
        all[7].1 = times(1.05);
        all[9].1 = times(1.5);
        // Deterministic: a rerun would tell nothing new.
        all[11].1 = compare_values(&[5.0; 6], &[6.0; 6], &QUESTION);
        assert_eq!(candidates(&all, &Policy::default()), [9, 7]);
        let poor = Policy {
            budget: 0.01,
            ..Policy::default()
        };
        assert_eq!(candidates(&all, &poor), [9]);
        let none = Policy {
            budget: 0.0,
            ..Policy::default()
        };
        assert!(candidates(&all, &none).is_empty());
    }

    #[test]
    fn a_rerun_confirms_refutes_or_says_nothing() {
        let policy = Policy::default();
        let screen = times(1.1);
        let merged = |rerun: &Comparison| {
            let mut all = family(&[1.0; 500]);
            all[0].1 = merge(&screen, rerun, &policy);
            decide(&mut all);
            all.swap_remove(0).1
        };
        let check = |rerun: Comparison, going_on: bool, verdict: Verdict| {
            assert_eq!(worth_the_rest(&screen, &rerun), going_on, "{rerun:?}");
            assert_eq!(merged(&rerun).verdict, verdict, "{rerun:?}");
        };
        check(times(1.1), true, Verdict::Regression);
        check(times(1.0), false, Verdict::Same);
        // As clear, but the other way round: refuted, not a new finding.
        check(times(0.9), false, Verdict::Inconclusive);
        check(
            compare_values(&[], &[], &QUESTION),
            false,
            Verdict::NothingMeasured,
        );
        // The screen's ratio is forgotten.
        assert_eq!(merged(&times(1.05)).ratio, times(1.05).ratio);
    }
}
