//! Owns the second look: which findings are measured again, and what both looks say together.
//! Does not know how a rerun is made.

use super::verdict::{Comparison, Question, Verdict};

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
            screen_level: 0.04,
            rounds: 16,
            look: 5,
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
    let each = 2 * policy.rounds.max(1) as usize;
    found.truncate((runs as f64 * policy.budget.max(0.0)) as usize / each);
    found
}

/// Whether a rerun of which only [`Policy::look`] rounds are made deserves the rest: its shift points
/// where the screen's does, with a one-sided p of at most a quarter.
///
/// Giving up early can only withhold findings, so it costs [`merge`] nothing of its validity.
pub fn worth_the_rest(screen: &Comparison, so_far: &Comparison) -> bool {
    one_sided(screen, so_far).is_some_and(|p| p < 0.5)
}

/// What a screening comparison and its confirmation from fresh samples say together; give the
/// result to [`super::verdict::decide`] with the rest of the family.
///
/// p = α·p₁, where α is the screen's level and p₁ the confirmation's p-value for a shift in the
/// direction that the screen saw (one-sided). Under "no difference" p₁ is independent of the
/// screen, hence P(p ≤ t) = P(screened)·P(p₁ ≤ t/α) ≤ t: a proper p-value of the whole procedure, so
/// that the family stays what it was, and no sample counts twice. Ratio and interval are the
/// confirmation's alone: the screen's are biased, being chosen for their size.
pub fn merge(screen: &Comparison, confirmation: &Comparison, policy: &Policy) -> Comparison {
    match one_sided(screen, confirmation) {
        Some(p) => Comparison {
            p: Some(policy.screen_level * p),
            ..confirmation.clone()
        },
        // The rerun gave nothing to judge by: that is the word for the whole.
        None => confirmation.clone(),
    }
}

/// The confirmation's p-value for a shift in the direction that the screen saw.
fn one_sided(screen: &Comparison, confirmation: &Comparison) -> Option<f64> {
    let direction = |comparison: &Comparison| comparison.difference.unwrap_or(0.0);
    let agrees = direction(screen) * direction(confirmation) > 0.0;
    let p = confirmation.p?;
    Some(if agrees { p / 2.0 } else { 1.0 - p / 2.0 })
}
