//! The question put to two sides of a metric, and the word for its answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compare::{Basis, Scale, Spreads};
pub use super::compare::{
    Summary, compare, compare_summaries, compare_values, evidence, noise_within,
    relative_half_width,
};
use super::stats::{self, Prior};
use crate::base::sample::Better;

/// Further repetitions that are ever suggested; where more would be needed none are.
pub const MORE_MAX: u32 = 1000;

/// The false-discovery rate of a family.
pub const LEVEL: f64 = 0.05;

/// An improvement by this factor or more asks whether the work was done at all.
pub const SUSPICIOUS_FACTOR: f64 = 10.0;

/// Samples of a history that show that a metric has no noise.
const EXACT_SAMPLES_MIN: f64 = 10.0;

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
    /// The variance of a session's level, of logarithms; for sides that were not measured in one session.
    pub between: Option<Prior>,
    /// Declared to give the same value each time.
    pub deterministic: bool,
}

impl Question {
    /// Asked at the usual level, where nothing is known beforehand.
    pub const fn new(better: Better, min_effect: f64) -> Question {
        Question {
            better,
            min_effect,
            level: LEVEL,
            noise: None,
            between: None,
            deterministic: false,
        }
    }

    /// Whether equal values are no coincidence: it is declared, or shown by history.
    pub fn is_exact(&self) -> bool {
        let shown =
            |noise: Noise| noise.sigma_log <= 0.0 && 2.0 * noise.degrees + 1.0 >= EXACT_SAMPLES_MIN;
        self.noise.map_or(self.deterministic, |noise| {
            shown(noise) || self.deterministic && noise.sigma_log <= 0.0
        })
    }
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
    /// Looks changed, and is not confirmed: it gates nothing.
    Suspected,
    /// The 90 % interval lies within ±`min_effect` (two one-sided tests at 5 %: Schuirmann, 1987).
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
            Verdict::Suspected => "suspected",
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
    /// 95 % interval of the ratio; it holds 1 where there is no difference at 5 %.
    pub ci95: Option<[f64; 2]>,
    /// Candidate − baseline, in the metric's unit.
    pub difference: Option<f64>,
    /// p-value of "it is no more than `min_effect`", two-sided, for this comparison alone.
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
    #[serde(skip)]
    pub basis: Basis,
}

/// Adjusts the p-values of a family by [`stats::benjamini_hochberg`] and gives each comparison its
/// final verdict:
/// - regression or improvement: q ≤ level, of the p-value of "it is no more than `min_effect`", and the ratio lies beyond
///   that: at or above 1 + `min_effect`, or at or below 1/(1 + `min_effect`);
/// - same: the whole 90 % interval lies within these two bounds;
/// - inconclusive else, with the repetitions that would settle it.
///
/// Comparisons without a p-value (nothing measured, single samples) do not count in the family.
pub fn decide(family: &mut [(Question, Comparison)]) {
    let spreads = Spreads::of(family.iter().map(|(_, comparison)| &comparison.basis));
    decide_among(family, &spreads);
}

/// As [`decide`], of comparisons whose cells are some of those that the spreads are of.
pub fn decide_among(family: &mut [(Question, Comparison)], spreads: &Spreads) {
    let mut tested = Vec::new();
    let mut p = Vec::new();
    for (index, (_, comparison)) in family.iter_mut().enumerate() {
        let share = spreads.share(&comparison.basis);
        comparison.p =
            (comparison.p).and_then(|given| p_of(&comparison.basis, share).or(Some(given)));
        if let Some(own) = comparison.p {
            tested.push((index, share));
            p.push(own);
        }
    }
    let q = stats::benjamini_hochberg(&p);
    let levels = tested.iter().map(|(index, _)| family[*index].0.level);
    let found = q
        .iter()
        .zip(levels)
        .filter(|(q, level)| **q <= *level)
        .count();
    for ((index, share), q) in tested.into_iter().zip(q) {
        let (question, comparison) = &mut family[index];
        comparison.q = Some(q);
        // What a p-value has to get below to count, as the family stands.
        let threshold = question.level * found.max(1) as f64 / p.len() as f64;
        settle(comparison, question, threshold, share);
    }
}

fn p_of(basis: &Basis, share: f64) -> Option<f64> {
    basis.analysis.map(|analysis| analysis.beyond.p(share))
}

/// A comparison as a family of one.
pub(super) fn told(
    basis: Basis,
    n: [usize; 2],
    mut notes: Vec<String>,
    question: &Question,
) -> Comparison {
    let mut ratio = None;
    let mut difference = None;
    if let Some(shift) = basis.shift {
        let base = basis.levels[0];
        let (level, by) = match basis.scale {
            Scale::Log => (base * shift.exp(), base * shift.exp_m1()),
            Scale::Linear => (base + shift, shift),
        };
        difference = Some(by).filter(|by| by.is_finite());
        if basis.scale == Scale::Linear {
            notes.push("values of zero or below: compared by differences".to_owned());
        }
        ratio = ratio_of(base, level, &mut notes);
        if basis.analysis.is_none() {
            notes.push("too few samples: a verdict needs two a side".to_owned());
        }
        let better = match question.better {
            Better::Higher => ratio,
            Better::Lower => ratio.map(|ratio| 1.0 / ratio),
        };
        if let Some(times) = better.filter(|times| *times >= SUSPICIOUS_FACTOR) {
            notes.push(match times.is_finite() {
                true => format!("suspicious: {times:.0} times better; does it still do its work?"),
                false => "suspicious: nothing is left of it; does it still do its work?".to_owned(),
            });
        }
        if basis.is_apart {
            notes.push("the sides were measured in different sessions, and how far sessions lie apart is not known".to_owned());
        }
    }
    let share = Spreads::default().share(&basis);
    let mut comparison = Comparison {
        ratio,
        ci95: None,
        difference,
        p: p_of(&basis, share),
        q: None,
        n,
        paired: basis.is_paired,
        verdict: Verdict::NothingMeasured,
        note: (!notes.is_empty()).then(|| notes.join("; ")),
        more: None,
        basis,
    };
    if n[0] > 0 && n[1] > 0 {
        settle(&mut comparison, question, question.level, share);
    }
    comparison
}

/// cand/base where that says anything: both of one sign, or from something to zero.
fn ratio_of(base: f64, cand: f64, notes: &mut Vec<String>) -> Option<f64> {
    if base == 0.0 {
        if cand != 0.0 {
            notes.push("new from zero".to_owned());
            return None;
        }
        return Some(1.0);
    }
    if cand == 0.0 {
        notes.push("gone to zero".to_owned());
    } else if (base > 0.0) != (cand > 0.0) {
        notes.push("the sign changed".to_owned());
        return None;
    }
    Some(cand / base).filter(|ratio| ratio.is_finite())
}

/// The interval of the ratio that holds it with probability 1 − `alpha`.
pub(super) fn interval(basis: &Basis, alpha: f64, share: f64) -> Option<[f64; 2]> {
    let analysis = basis.analysis?;
    let half = analysis.half_width(alpha, share);
    let base = basis.levels[0];
    let at = |shift: f64| match basis.scale {
        Scale::Log => shift.exp(),
        Scale::Linear if shift == 0.0 => 1.0,
        Scale::Linear => (base + shift) / base,
    };
    let shift = analysis.estimate.shift;
    let ends = [at(shift - half), at(shift + half)];
    // A negative baseline turns the ends round.
    let ends = [ends[0].min(ends[1]), ends[0].max(ends[1])];
    ends.iter().all(|end| end.is_finite()).then_some(ends)
}

/// Gives interval, verdict and `more`; `threshold` is what the p-value must not exceed, `share` that of modes.
fn settle(comparison: &mut Comparison, question: &Question, threshold: f64, share: f64) {
    let basis = &comparison.basis;
    let bound = basis.bound(question);
    let shift = basis.shift.unwrap_or(0.0);
    comparison.ci95 = interval(basis, 0.05, share).filter(|_| comparison.ratio.is_some());
    let significant = comparison.p.is_some_and(|p| p <= threshold);
    // The last bits of ln(1.02) must not decide a change of exactly 2 %.
    let slack = 1e-9 * bound + 1e-12;
    let is_beyond = shift != 0.0 && shift.abs() >= bound - slack;
    let is_within = |half: f64| shift.abs() + half <= bound + slack;
    let half = basis
        .analysis
        .map(|analysis| analysis.half_width(0.10, share));
    comparison.verdict = match significant && is_beyond {
        true if basis.is_apart => Verdict::Suspected,
        true if (shift > 0.0) == (question.better == Better::Higher) => Verdict::Improvement,
        true => Verdict::Regression,
        false if half.is_some_and(is_within) => Verdict::Same,
        false => Verdict::Inconclusive,
    };
    comparison.more = match comparison.verdict {
        Verdict::Inconclusive => further(comparison, bound, threshold, share),
        _ => None,
    };
}

/// Further repetitions a side that would probably settle it: the standard error falls with √n; to show a change it must
/// reach (|shift| − bound)/(z(threshold) + 1), to show sameness (bound − |shift|)/2.5.
fn further(comparison: &Comparison, bound: f64, threshold: f64, share: f64) -> Option<u32> {
    let n = comparison.n[0].min(comparison.n[1]) as f64;
    let Some(analysis) = comparison.basis.analysis else {
        // No interval yet: as many as make one possible.
        return Some(5u32.saturating_sub(n as u32).max(1));
    };
    let size = analysis.estimate.shift.abs();
    let error = analysis.half_width(0.05, share) / 2.0;
    let target = match size > bound {
        true => (size - bound) / (stats::normal_quantile(threshold) + 1.0),
        false => (bound - size) / 2.5,
    };
    // A change close to the bound would take for ever.
    let target = target.max(size.max(bound) / 20.0);
    let more = (n * ((error / target).powi(2) - 1.0)).ceil().max(1.0);
    (more <= f64::from(MORE_MAX)).then_some(more as u32)
}
