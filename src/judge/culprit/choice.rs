//! What a search for a culprit measures next: the most information per cost (Lindley, 1956, "On a measure of the
//! information provided by an experiment").

use std::collections::BTreeSet;
use std::f64::consts::LN_2;

use super::CulpritSearch;
use super::cloud::{Cloud, Particle};

/// An end is measured again while a level, or their difference, is known worse than this share of the difference.
const UNKNOWN_MAX: f64 = 0.4;
/// A shift of fewer scales is taken for one of so many: to look is worth something.
const SCALES_MIN: f64 = 0.3;
/// Runs of one build that are considered.
const RUNS_AT_ONCE: [usize; 7] = [1, 2, 3, 4, 6, 8, 12];
/// Where in the posterior a commit is looked for.
const SHARES: [f64; 7] = [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8];

/// What to measure next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    pub at: usize,
    /// At least 1.
    pub runs: usize,
}

impl CulpritSearch {
    /// What to measure next, as of the last [`CulpritSearch::belief`]. `build_cost` says what a commit costs before its first run,
    /// in runs: 0 for what is built already.
    pub fn wish(&self, build_cost: &dyn Fn(usize) -> f64) -> Wish {
        let last = self.last();
        let Some(cloud) = self.cloud.as_ref().filter(|_| !self.weights.is_empty()) else {
            let samples = |end| self.evidence.samples(end).count();
            let at = if samples(0) <= samples(last) { 0 } else { last };
            return Wish { at, runs: 1 };
        };
        let shift = cloud.mean(&self.weights, |p| p.bad - p.good).abs();
        let of_shift = cloud.variance(&self.weights, |p| p.bad - p.good);
        let time = self.runs as f64;
        let of_good = cloud.variance(&self.weights, |p| p.good + p.slope * time);
        let of_bad = cloud.variance(&self.weights, |p| p.bad + p.slope * time);
        let drifts = cloud.particles.iter().any(|p| p.slope != 0.0);
        let of_present = if drifts { of_good.max(of_bad) } else { 0.0 };
        if of_shift.max(of_present).sqrt() > UNKNOWN_MAX * shift {
            let at = if of_good > of_bad { 0 } else { last };
            return Wish { at, runs: 1 };
        }
        let scales = |p: &Particle| (p.bad - p.good) / p.ln_scale.exp();
        let scales = cloud.mean(&self.weights, scales).abs();
        let mut upto = self.mass.clone();
        for at in 1..=last {
            upto[at] += upto[at - 1];
        }
        let mut best = (0.0, Wish { at: last, runs: 1 });
        for at in self.promising(cloud, &upto) {
            let build = build_cost(at);
            let hope = self.hope(cloud, at);
            for runs in RUNS_AT_ONCE {
                let told = information(scales.max(SCALES_MIN) * (runs as f64).sqrt(), upto[at]);
                let value = hope * told / (runs as f64 + build);
                if value > best.0 {
                    best = (value, Wish { at, runs });
                }
                if build <= 0.0 {
                    break;
                }
            }
        }
        best.1
    }

    /// What may be worth measuring: what has been measured, and the commits next to some shares of the posterior.
    fn promising(&self, cloud: &Cloud, upto: &[f64]) -> BTreeSet<usize> {
        let last = self.last();
        let can = |at: &usize| !self.untestable.contains(at);
        let measured = cloud.positions.iter().map(|position| position.at);
        let mut found: BTreeSet<usize> = measured.filter(|at| *at > 0 && can(at)).collect();
        for share in SHARES {
            let after = upto
                .partition_point(|sum| *sum < share * upto[last])
                .clamp(1, last);
            found.extend((after..=last).find(can));
            found.extend((1..after).rev().find(can));
        }
        found
    }

    /// The chance that a commit can be measured: commits that cannot come in rows.
    fn hope(&self, cloud: &Cloud, at: usize) -> f64 {
        let is_measured = cloud.positions.iter().any(|position| position.at == at);
        let below = self
            .untestable
            .range(..at)
            .next_back()
            .map(|other| at - other);
        let above = self.untestable.range(at..).next().map(|other| other - at);
        match below.into_iter().chain(above).min() {
            Some(distance) if !is_measured => 1.0 - 0.5_f64.powi(distance.min(60) as i32),
            _ => 1.0,
        }
    }
}

/// Bits that a run tells of a yes-or-no question with prior `p`, whose answers lie `d` scales apart: the mutual
/// information under Student's t with five degrees of freedom, by the midpoint rule.
fn information(d: f64, p: f64) -> f64 {
    const STEP: f64 = 0.5;
    const REACH: f64 = 12.0;
    // Beyond that each run answers the question.
    let d = d.min(30.0);
    if !(p > 0.0 && p < 1.0) {
        return 0.0;
    }
    let density = |x: f64| 0.379_606_689_822_494_4 * (1.0 + x * x / 5.0).powi(-3);
    let points = ((d + 2.0 * REACH) / STEP) as usize;
    let sum: f64 = (0..points)
        .map(|i| {
            let x = (i as f64 + 0.5) * STEP - REACH;
            let (no, yes) = (density(x), density(x - d));
            let any = (1.0 - p) * no + p * yes;
            (1.0 - p) * no * (no / any).ln() + p * yes * (yes / any).ln()
        })
        .sum();
    (sum * STEP / LN_2).max(0.0)
}
