//! The question put to two sides of a metric, and the word for its answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::compare::{
    Summary, compare, compare_summaries, compare_values, evidence, noise_within,
    relative_half_width,
};
use super::stats;
use crate::base::sample::Better;

/// Further repetitions that are ever suggested; where more would be needed none are.
pub const MORE_MAX: u32 = 1000;

/// The false-discovery rate of a family.
pub const LEVEL: f64 = 0.05;

/// What is asked about one metric of one cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    pub better: Better,
    /// The smallest change that matters, as a fraction: 0.02 is 2 %.
    pub min_effect: f64,
    /// The false discovery rate of the family, 0.05 as a rule.
    pub level: f64,
    /// What the cell's history says about its noise.
    pub noise: Option<Noise>,
}

/// The noise of single samples within a session, learned from a cell's history.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Standard deviation of the natural logarithm of a sample: 0.01 is about 1 %.
    pub sigma_log: f64,
    /// The same without its tails: 1.4826·MAD. Wild samples widen `sigma_log`, not this.
    pub core_log: f64,
    /// How many degrees of freedom that figure rests on.
    pub degrees: f64,
}

impl Noise {
    /// Learns the noise from earlier sessions, each a slice of repetitions of one version; None
    /// where no session has two samples above zero.
    ///
    /// Residuals r of ln x about their session's median, widened by √(n/(n − 1)); σ₀ = 1.4826·MAD(r);
    /// σ² = mean of min(r², (3σ₀)²), a Winsorised variance (Tukey, 1962). Half of Σ(n − 1) is taken
    /// for its degrees of freedom: with heavy tails a variance is known less well.
    pub fn from_sessions(sessions: &[Vec<f64>]) -> Option<Noise> {
        let mut residuals = Vec::new();
        let mut df = 0;
        for session in sessions {
            let logs: Vec<f64> = session
                .iter()
                .filter(|x| **x > 0.0)
                .map(|x| x.ln())
                .collect();
            let Some(centre) = stats::median(&logs).filter(|_| logs.len() >= 2) else {
                continue;
            };
            let n = logs.len() as f64;
            let widen = (n / (n - 1.0)).sqrt();
            residuals.extend(logs.iter().map(|x| (x - centre) * widen));
            df += logs.len() - 1;
        }
        let sizes: Vec<f64> = residuals.iter().map(|r| r.abs()).collect();
        let core_log = stats::MAD_TO_SIGMA * stats::median(&sizes)?;
        let limit = (3.0 * core_log).max(stats::quantile(&sizes, 0.9)?);
        let squares: Vec<f64> = residuals
            .iter()
            .map(|r| r.abs().min(limit).powi(2))
            .collect();
        Some(Noise {
            sigma_log: stats::mean(&squares)?.sqrt(),
            core_log,
            degrees: df as f64 / 2.0,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Regression,
    Improvement,
    /// The interval lies within ±`min_effect`.
    Same,
    /// Neither is shown: too few samples, or too noisy ones.
    Inconclusive,
    /// A side has no sample: never a success.
    NothingMeasured,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Regression => "regression",
            Verdict::Improvement => "improvement",
            Verdict::Same => "same",
            Verdict::Inconclusive => "inconclusive",
            Verdict::NothingMeasured => "nothing measured",
        }
    }

    /// A regression or an improvement.
    pub fn is_change(self) -> bool {
        matches!(self, Verdict::Regression | Verdict::Improvement)
    }
}

/// The outcome of comparing a candidate with a baseline.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    /// Candidate / baseline of the metric as measured; None where the baseline is zero, where the
    /// sign differs, or where nothing was measured.
    pub ratio: Option<f64>,
    /// 95 % interval of the ratio.
    pub ci95: Option<[f64; 2]>,
    /// Candidate − baseline, in the metric's unit.
    pub difference: Option<f64>,
    /// p-value of "no difference", two-sided, for this comparison alone.
    pub p: Option<f64>,
    /// `p` adjusted for the whole family; filled in by [`decide`].
    pub q: Option<f64>,
    /// Finite samples of the baseline and of the candidate.
    pub n: [usize; 2],
    /// Whether the result rests on differences within rounds.
    pub paired: bool,
    pub verdict: Verdict,
    /// What a reader must know beside the word.
    pub note: Option<String>,
    /// Further repetitions a side that would probably settle an inconclusive comparison.
    pub more: Option<u32>,
}

/// Adjusts the p-values of a family by [`stats::benjamini_hochberg`] and gives each comparison its
/// final verdict:
/// - regression or improvement: q ≤ level **and** the ratio lies beyond `min_effect`, that is
///   at or above 1 + `min_effect`, or at or below 1/(1 + `min_effect`);
/// - same: the whole 95 % interval lies within these two bounds;
/// - inconclusive else, with the repetitions that would settle it.
///
/// Comparisons without a p-value (nothing measured, single samples) do not count in the family.
pub fn decide(family: &mut [(Question, Comparison)]) {
    let tested: Vec<usize> = (0..family.len())
        .filter(|index| family[*index].1.p.is_some())
        .collect();
    let p: Vec<f64> = tested.iter().filter_map(|i| family[*i].1.p).collect();
    let q = stats::benjamini_hochberg(&p);
    let found = tested
        .iter()
        .zip(&q)
        .filter(|(i, q)| **q <= family[**i].0.level)
        .count();
    for (index, q) in tested.iter().zip(q) {
        let (question, comparison) = &mut family[*index];
        comparison.q = Some(q);
        // What a p-value has to get below to count, as the family stands.
        let threshold = question.level * found.max(1) as f64 / p.len() as f64;
        settle(comparison, question, threshold);
    }
}

/// Gives the verdict and `more`; `threshold` is what the p-value must not exceed.
pub(super) fn settle(comparison: &mut Comparison, question: &Question, threshold: f64) {
    let bound = question.min_effect.max(0.0).ln_1p();
    // Beyond every bound: from or to zero, or across it.
    let log = |ratio: f64| {
        if ratio > 0.0 {
            ratio.ln()
        } else {
            f64::NEG_INFINITY
        }
    };
    let effect = match (comparison.ratio, comparison.difference) {
        (Some(ratio), _) => log(ratio).abs(),
        (None, Some(0.0)) => 0.0,
        _ => f64::INFINITY,
    };
    let difference = comparison.difference.unwrap_or(0.0);
    let significant = comparison.p.is_some_and(|p| p <= threshold);
    // The last bits of ln(1.02) must not decide a change of exactly 2 %.
    let slack = 1e-12;
    let within = |[low, high]: [f64; 2]| log(low) >= -bound - slack && log(high) <= bound + slack;
    comparison.verdict = if significant && difference != 0.0 && effect >= bound - slack {
        match (difference > 0.0) == (question.better == Better::Higher) {
            true => Verdict::Improvement,
            false => Verdict::Regression,
        }
    } else if comparison.ci95.is_some_and(within) {
        Verdict::Same
    } else {
        Verdict::Inconclusive
    };
    comparison.more = match comparison.verdict {
        Verdict::Inconclusive => further(comparison, effect, bound, threshold),
        _ => None,
    };
}

/// Further repetitions a side that would probably settle it: the standard error falls with √n, and
/// must reach effect/(z(threshold) + 1) to show a change, (bound − effect)/2 to show sameness.
fn further(comparison: &Comparison, effect: f64, bound: f64, threshold: f64) -> Option<u32> {
    let n = comparison.n[0].min(comparison.n[1]) as f64;
    let Some([low, high]) = comparison.ci95.filter(|[low, _]| *low > 0.0) else {
        // No interval yet: as many as make one possible.
        return Some(5u32.saturating_sub(n as u32).max(1));
    };
    let error = (high / low).ln() / 4.0;
    let target = match effect >= bound {
        true => effect / (stats::normal_quantile(threshold) + 1.0),
        // A change just below the bound would take for ever.
        false => ((bound - effect) / 2.0).max(bound / 20.0),
    };
    let more = (n * ((error / target).powi(2) - 1.0)).ceil().max(1.0);
    (more <= f64::from(MORE_MAX)).then_some(more as u32)
}
