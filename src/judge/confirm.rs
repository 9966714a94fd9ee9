//! The second look: which findings are measured again, for how long, and what both looks say together.

use std::collections::BTreeMap;

use super::verdict::{self, Comparison, Question, Verdict};

/// Measured again, and further, is what has so much [`evidence`](verdict::evidence) at least: two levels make
/// the samples seven times likelier than one. Wide on purpose, see [`decide`].
const EVIDENCE_MIN: f64 = 2.0;

/// The stages of a confirmation: fresh rounds after each, and the share of what is left of the budget
/// that it may use: what finds most on protocol AA.
const STAGES: [(u32, f64); 10] = [
    (1, 0.32),
    (2, 0.25),
    (3, 0.20),
    (4, 0.16),
    (6, 0.22),
    (8, 0.25),
    (12, 0.33),
    (16, 0.5),
    (24, 0.5),
    (32, 1.0),
];

/// Fresh rounds after which findings are judged, and at the end.
const LOOKS: [u32; 2] = [8, 16];

/// Fresh rounds that are ever made of a finding.
pub const ROUNDS_MAX: u32 = STAGES[STAGES.len() - 1].0;

/// So many findings are afforded to the end, however small a matrix is.
const FINDINGS_MIN: f64 = 4.0;

/// How findings are confirmed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Fresh rounds of a finding at the most, interleaved.
    pub rounds: u32,
    /// The runs spent on all of them at the most, as a share of those already made.
    pub budget: f64,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            rounds: ROUNDS_MAX,
            budget: 0.10,
        }
    }
}

/// One step of a confirmation: all that is still promising gets a few fresh rounds more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    /// Fresh rounds of a finding before and after it.
    pub from: u32,
    pub to: u32,
    /// Whether findings are judged after it.
    pub is_look: bool,
    /// Share of what is left of the budget.
    share: f64,
}

impl Policy {
    /// The stages up to [`Policy::rounds`], the last of which is a look.
    pub fn stages(&self) -> Vec<Stage> {
        let rounds = self.rounds.min(ROUNDS_MAX);
        let before = STAGES.into_iter().filter(|stage| stage.0 < rounds);
        let ends: Vec<(u32, f64)> = before
            .chain((rounds > 0).then_some((rounds, 1.0)))
            .collect();
        let stage = |i: usize| Stage {
            from: if i == 0 { 0 } else { ends[i - 1].0 },
            to: ends[i].0,
            is_look: LOOKS.contains(&ends[i].0) || ends[i].0 == rounds,
            share: ends[i].1,
        };
        (0..ends.len()).map(stage).collect()
    }

    /// Runs that the confirmation of a family may make for which `made` runs were made.
    pub fn runs(&self, made: usize) -> f64 {
        match self.budget > 0.0 {
            true => (made as f64 * self.budget).max(2.0 * FINDINGS_MIN * f64::from(self.rounds)),
            false => 0.0,
        }
    }
}

/// Whether a comparison may be measured again, or further: it is neither shown to be the same nor deterministic, where a
/// rerun would tell nothing new.
pub fn is_open(comparison: &Comparison) -> bool {
    let exact = comparison.ci95.is_some_and(|[low, high]| low == high);
    comparison.p.is_some() && comparison.verdict != Verdict::Same && !exact
}

/// The findings that a stage affords, as indices into their [`verdict::evidence`] of all samples so far: the most
/// promising first. `left` is what is left of [`Policy::runs`] and is charged for them.
///
/// A budget halved over and over among ever fewer candidates is how the best of many are found with few
/// measurements (Karnin, Koren & Somekh, 2013). Giving a finding up can only withhold it, so
/// this costs [`confirmed`] nothing of its validity.
pub fn afforded(evidence: &[f64], stage: Stage, left: &mut f64) -> Vec<usize> {
    let each = 2.0 * f64::from(stage.to - stage.from);
    let mut order: Vec<usize> = (0..evidence.len())
        .filter(|i| evidence[*i] >= EVIDENCE_MIN)
        .collect();
    order.sort_by(|a, b| evidence[*b].total_cmp(&evidence[*a]));
    order.truncate((*left * stage.share / each) as usize);
    *left -= each * order.len() as f64;
    order
}

/// What is told of a finding that was measured again, given what the screen said and the comparisons of all its
/// fresh rounds at each look so far, before [`decide`].
///
/// p = looks · the least p′ of the looks, where a look that points the other way than the screen has 1. Under "no
/// difference" the fresh rounds do not depend on the screen, and the number of looks that there can be pays for
/// choosing among them (Bonferroni); as directions must agree there is a factor of two to spare. No sample counts
/// twice. Ratio and interval are the last look's: the screen's are biased, being chosen for their
/// size. None without a look.
pub fn confirmed(screen: &Comparison, looks: &[Comparison], policy: &Policy) -> Option<Comparison> {
    let direction = |comparison: &Comparison| comparison.difference.unwrap_or(0.0);
    let agrees = |look: &&Comparison| direction(screen) * direction(look) > 0.0;
    let last = looks.last()?;
    let least = looks.iter().filter(agrees).filter_map(|look| look.p);
    let count = policy.stages().iter().filter(|stage| stage.is_look).count();
    let p = match agrees(&last) {
        true => least.fold(f64::INFINITY, f64::min) * count as f64,
        false => 1.0,
    };
    Some(Comparison {
        // Where the rerun gave nothing to judge by, that is the word for the whole.
        p: last.p.map(|_| p.min(1.0)),
        ..last.clone()
    })
}

/// What is told of a finding that was given up, from the comparison of all its samples: no change.
pub fn given_up(all: &Comparison) -> Comparison {
    Comparison {
        p: all.p.map(|_| 1.0),
        ..all.clone()
    }
}

/// Judges comparisons of which some were measured again, and say so by [`confirmed`] or [`given_up`]. `stages` tells
/// which: comparisons of equal stages are a family.
///
/// Those measured again were chosen by samples that their p-values do not depend on: they are a family by themselves.
/// So are those that were to be, but had no place in the budget, and those that never are. In one family many
/// true effects among the last, each of them a discovery, would raise the threshold for the others, which may
/// all be nulls.
///
/// What was found may be lost: where another metric of the same cells is still open it is measured further too, and a
/// later look that points the other way takes it back.
pub fn decide<S: Ord>(comparisons: &mut [(Question, Comparison)], stages: &[S]) {
    let mut families: BTreeMap<&S, Vec<usize>> = BTreeMap::new();
    for (index, stage) in stages.iter().enumerate() {
        families.entry(stage).or_default().push(index);
    }
    for members in families.into_values() {
        let mut family: Vec<_> = members.iter().map(|i| comparisons[*i].clone()).collect();
        verdict::decide(&mut family);
        for (i, decided) in members.into_iter().zip(family) {
            comparisons[i] = decided;
        }
    }
}
