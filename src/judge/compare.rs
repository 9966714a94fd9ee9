//! The comparison of two sides of a metric: shift, interval and p-value.

use std::collections::BTreeMap;

use super::stats::{self, Estimate, Prior};
use super::verdict::{Comparison, Noise, Question, Verdict, settle};
use crate::base::sample::Sample;
use crate::base::units::count;

/// Samples a side that a comparison looks at; of more, the last ones. The estimators are quadratic.
pub const SAMPLES_MAX: usize = 1000;

/// Pairs from which on a paired test is tried without a noise level from history; with fewer, its
/// one or two degrees of freedom only cost the other tests.
const PAIRS_MIN: usize = 4;

/// A noise level from history counts for so many degrees of freedom at the most. Real noise has far
/// more wild samples than Gauss': a t-test that trusted a long history fully would take two of
/// them in five for a change.
const NOISE_DEGREES_MAX: f64 = 4.0;

/// Pairing may cut the noise of a difference to this share of the variance at the best: a handful
/// of pairs that happen to agree is no proof of no noise at all.
const PAIRED_VARIANCE_MIN: f64 = 1e-3;

/// Compares two sides of one metric, as a family of one; [`decide`] judges a family.
///
/// Values are compared by logarithms where all are above zero, else by differences relative to the
/// baseline's median. Up to four analyses look at the shift, as the numbers of samples allow:
/// - the two-sample moderated t of all samples (Smyth, 2004) about the Hodges-Lehmann shift;
/// - the same of differences within rounds, where at least four rounds are paired: takes out drift;
/// - the trimmed t (Yuen, 1974) from five samples a side on: takes out wild samples;
/// - rank sums (Mann & Whitney, 1947), where they can be significant at all.
///
/// With k of them each gets an interval at 1 − 0.05/k and its p-value times k (Bonferroni): all k
/// intervals hold together, so that any may be chosen afterwards. That with the smallest p
/// is, when it finds a difference, else the narrowest.
pub fn compare(baseline: &[Sample], candidate: &[Sample], question: &Question) -> Comparison {
    let (base, base_dropped) = usable(baseline);
    let (cand, cand_dropped) = usable(candidate);
    let n = [base.len(), cand.len()];
    let mut notes = Vec::new();
    if base_dropped + cand_dropped > 0 {
        let dropped = count(base_dropped + cand_dropped, "sample");
        notes.push(format!(
            "{dropped} left out: not finite, or beyond the limit of {SAMPLES_MAX}"
        ));
    }
    if base.is_empty() || cand.is_empty() {
        let missing = match (base.is_empty(), cand.is_empty()) {
            (true, true) => "neither side has a sample",
            (true, false) => "the baseline has no sample",
            _ => "the candidate has no sample",
        };
        notes.push(missing.to_owned());
        return finish(Shift::nothing(n), question, notes);
    }
    let base_values: Vec<f64> = base.iter().map(|sample| sample.value).collect();
    let cand_values: Vec<f64> = cand.iter().map(|sample| sample.value).collect();
    let shift = match deterministic(&base_values, &cand_values, question.noise) {
        true => exact(base_values[0], cand_values[0], n, &mut notes),
        false => estimated(&base, &cand, question.noise, &mut notes),
    };
    finish(shift, question, notes)
}

/// As [`compare`], of bare values that belong to no rounds.
pub fn compare_values(baseline: &[f64], candidate: &[f64], question: &Question) -> Comparison {
    let side = |values: &[f64], session| -> Vec<Sample> {
        let sample = |(round, value): (usize, &f64)| Sample {
            round: round as u32,
            session,
            value: *value,
        };
        values.iter().enumerate().map(sample).collect()
    };
    compare(&side(baseline, 0), &side(candidate, 1), question)
}

/// A history, or the noise of others, counts for so many samples in [`evidence`] at the most: there its tails are allowed for.
const EVIDENCE_DEGREES_MAX: f64 = 16.0;

/// How promising it is to measure a comparison again: [`stats::evidence`] for two levels, and half of that of the
/// differences within rounds beside it, which drift does not hide; on the scale that [`compare`] uses. Where
/// the cell has no history, `others` says what noise is to be expected: [`stats::pooled`] of [`noise_within`].
pub fn evidence(
    baseline: &[Sample],
    candidate: &[Sample],
    question: &Question,
    others: Option<Prior>,
) -> f64 {
    let (base, cand) = (usable(baseline).0, usable(candidate).0);
    let (scale, values) = scaled(&base, &cand);
    let (a, b) = values.split_at(base.len());
    let pairs = paired_differences(&base, &cand, scale);
    let own = question.noise.map(|noise| Prior {
        variance: (noise.core_log / stats::MAD_TO_SIGMA / stats::WILD_MAD).powi(2),
        degrees: noise.degrees,
    });
    let prior = own.or(others).filter(|_| scale == Scale::Log);
    let prior = prior.map(|prior| Prior {
        degrees: prior.degrees.min(EVIDENCE_DEGREES_MAX),
        ..prior
    });
    // A difference has the variance of two samples, and there are half as many.
    let of_pairs = prior.map(|prior| Prior {
        variance: 2.0 * prior.variance,
        degrees: prior.degrees / 2.0,
    });
    stats::evidence(&[a, b], prior) + stats::evidence(&[&pairs], of_pairs) / 2.0
}

/// The noise of logarithms about both sides' levels, see [`stats::wild_noise`]; None where there is none to tell.
pub fn noise_within(baseline: &[Sample], candidate: &[Sample]) -> Option<Prior> {
    let (base, cand) = (usable(baseline).0, usable(candidate).0);
    let (scale, values) = scaled(&base, &cand);
    let (a, b) = values.split_at(base.len());
    stats::wild_noise(&[a, b]).filter(|_| scale == Scale::Log)
}

/// All values, the baseline's first, on the scale that they are compared on.
fn scaled(base: &[Sample], cand: &[Sample]) -> (Scale, Vec<f64>) {
    let raw: Vec<f64> = base.iter().chain(cand).map(|sample| sample.value).collect();
    let scale = Scale::of(&raw);
    (scale, raw.iter().map(|value| scale.apply(*value)).collect())
}

/// A side of which only its summary is known, as printed tables and some tools' files give it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub mean: f64,
    /// In the unit of the mean.
    pub stddev: f64,
    pub n: usize,
}

/// As [`compare`], of summaries: the pooled two-sample t-test (Student, 1908) of logarithms where both
/// means are above zero, with stddev/mean for the standard deviation of a logarithm (the delta
/// method), else of the values themselves.
pub fn compare_summaries(base: &Summary, cand: &Summary, question: &Question) -> Comparison {
    let n = [base.n, cand.n];
    let mut notes = Vec::new();
    if base.n == 0 || cand.n == 0 || !(base.mean.is_finite() && cand.mean.is_finite()) {
        notes.push("a side has no mean".to_owned());
        return finish(Shift::nothing([0, 0]), question, notes);
    }
    let scale = Scale::of(&[base.mean, cand.mean]);
    let variance = |side: &Summary| match scale {
        Scale::Log => (side.stddev / side.mean).powi(2),
        Scale::Linear => side.stddev.powi(2),
    };
    let degrees = |side: &Summary| side.n.saturating_sub(1) as f64;
    let squares = degrees(base) * variance(base) + degrees(cand) * variance(cand);
    let df = degrees(base) + degrees(cand);
    let weight = 1.0 / base.n as f64 + 1.0 / cand.n as f64;
    let shift = scale.apply(cand.mean) - scale.apply(base.mean);
    let estimate = stats::moderated_t(shift, squares, df, weight, None, 0.05);
    let result = unscaled(estimate, shift, scale, base.mean, &mut notes);
    finish(Shift { n, ..result }, question, notes)
}

/// Half the width of the 95 % interval of a cell's level, relative to it: for `until = "ci95 < 2%"`.
///
/// On logarithms where all values are above zero: exp(h) − 1 with h from the narrower of the
/// t-interval and the signed-rank interval about the Hodges-Lehmann estimate, each at 97.5 %.
/// None for fewer than two samples, a value that is not finite, or a level of zero.
pub fn relative_half_width(values: &[f64]) -> Option<f64> {
    let values = &values[values.len().saturating_sub(SAMPLES_MAX)..];
    if values.len() < 2 || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let scale = Scale::of(values);
    let values: Vec<f64> = values.iter().map(|value| scale.apply(*value)).collect();
    let n = values.len() as f64;
    let centre = stats::hodges_lehmann(&values)?;
    let squares = stats::squares_about_mean(&values);
    let t = stats::moderated_t(centre, squares, n - 1.0, 1.0 / n, None, 0.025)?;
    let ranks = stats::signed_rank(&values, 0.025);
    let half = ranks.map_or(t.half_width(), |r| r.half_width().min(t.half_width()));
    match scale {
        Scale::Log => Some(half.exp_m1()),
        Scale::Linear if half == 0.0 => Some(0.0),
        Scale::Linear => (centre != 0.0).then(|| half / centre.abs()),
    }
    .filter(|width| width.is_finite())
}

/// What came out of a comparison before it gets a word.
struct Shift {
    ratio: Option<f64>,
    ci95: Option<[f64; 2]>,
    difference: Option<f64>,
    p: Option<f64>,
    n: [usize; 2],
    paired: bool,
}

impl Shift {
    fn nothing(n: [usize; 2]) -> Self {
        Shift {
            ratio: None,
            ci95: None,
            difference: None,
            p: None,
            n,
            paired: false,
        }
    }
}

/// On which scale differences are taken.
#[derive(Clone, Copy, PartialEq)]
enum Scale {
    Log,
    Linear,
}

impl Scale {
    fn of(values: &[f64]) -> Self {
        match values.iter().all(|value| *value > 0.0) {
            true => Scale::Log,
            false => Scale::Linear,
        }
    }

    fn apply(self, value: f64) -> f64 {
        match self {
            Scale::Log => value.ln(),
            Scale::Linear => value,
        }
    }
}

/// The finite samples, at most the last [`SAMPLES_MAX`], and how many others there are.
fn usable(samples: &[Sample]) -> (Vec<Sample>, usize) {
    let mut kept: Vec<Sample> = samples
        .iter()
        .copied()
        .filter(|sample| sample.value.is_finite())
        .collect();
    kept.drain(..kept.len().saturating_sub(SAMPLES_MAX));
    let dropped = samples.len() - kept.len();
    (kept, dropped)
}

/// Whether repetitions give the same value each time, on both sides: an instruction count, a size.
/// A cell whose history shows noise is not taken for one because a few repetitions agree.
fn deterministic(base: &[f64], cand: &[f64], noise: Option<Noise>) -> bool {
    let constant = |side: &[f64]| side.len() >= 2 && side.iter().all(|value| *value == side[0]);
    let quiet = noise.is_none_or(|noise| noise.sigma_log <= 0.0);
    constant(base) && constant(cand) && quiet
}

/// The comparison of two numbers that have no noise.
fn exact(base: f64, cand: f64, n: [usize; 2], notes: &mut Vec<String>) -> Shift {
    notes.push("deterministic: each repetition gave the same value".to_owned());
    let ratio = match base == cand {
        true => Some(1.0),
        false => ratio(base, cand, notes),
    };
    Shift {
        ratio,
        ci95: ratio.map(|ratio| [ratio, ratio]),
        difference: Some(cand - base),
        p: Some(if base == cand { 1.0 } else { 0.0 }),
        n,
        paired: false,
    }
}

/// cand/base where that says anything: both of one sign, or from something to zero.
fn ratio(base: f64, cand: f64, notes: &mut Vec<String>) -> Option<f64> {
    if base == 0.0 {
        if cand != 0.0 {
            notes.push("new from zero".to_owned());
        }
        return None;
    }
    if cand == 0.0 {
        notes.push("gone to zero".to_owned());
    } else if (base > 0.0) != (cand > 0.0) {
        notes.push("the sign changed".to_owned());
        return None;
    }
    Some(cand / base).filter(|ratio| ratio.is_finite())
}

fn estimated(
    base: &[Sample],
    cand: &[Sample],
    noise: Option<Noise>,
    notes: &mut Vec<String>,
) -> Shift {
    let n = [base.len(), cand.len()];
    let (scale, values) = scaled(base, cand);
    let (a, b) = values.split_at(n[0]);
    let pairs = paired_differences(base, cand, scale);
    let prior = noise
        // A level of history says nothing about differences on the linear scale.
        .filter(|noise| scale == Scale::Log && noise.degrees > 0.0)
        .map(|noise| Prior {
            variance: noise.sigma_log.powi(2),
            degrees: noise.degrees.min(NOISE_DEGREES_MAX),
        });
    let analyses = analyse(a, b, &pairs, prior);
    let (estimate, paired) = choose(&analyses).unzip();
    let shift = stats::hodges_lehmann_shift(a, b).unwrap_or(0.0);
    let raw: Vec<f64> = base.iter().map(|sample| sample.value).collect();
    let centre = stats::median(&raw).unwrap_or(0.0);
    Shift {
        n,
        paired: paired.unwrap_or(false),
        ..unscaled(estimate, shift, scale, centre, notes)
    }
}

/// Brings an estimate back to the metric's own scale, about the baseline's `centre`. Where there was no
/// estimate, only the `shift` is told.
fn unscaled(
    estimate: Option<Estimate>,
    shift: f64,
    scale: Scale,
    centre: f64,
    notes: &mut Vec<String>,
) -> Shift {
    if estimate.is_none() {
        notes.push("too few samples for an interval".to_owned());
    }
    let shift = estimate.map_or(shift, |estimate| estimate.shift);
    let (ratio, difference) = match scale {
        Scale::Log => (Some(shift.exp()), centre * shift.exp_m1()),
        Scale::Linear => {
            notes.push("values of zero or below: compared by differences".to_owned());
            (ratio(centre, centre + shift, notes), shift)
        }
    };
    let at = |shift: f64| match scale {
        Scale::Log => shift.exp(),
        Scale::Linear => (centre + shift) / centre,
    };
    let interval = |estimate: Estimate| {
        let ends = [at(estimate.low), at(estimate.high)];
        // A negative baseline turns the ends round.
        [ends[0].min(ends[1]), ends[0].max(ends[1])]
    };
    let ratio = ratio.filter(|ratio| ratio.is_finite());
    let finite = |ends: &[f64; 2]| ends.iter().all(|end| end.is_finite());
    Shift {
        ratio,
        ci95: ratio.and(estimate).map(interval).filter(finite),
        difference: Some(difference).filter(|difference| difference.is_finite()),
        p: estimate.map(|estimate| estimate.p),
        n: [0, 0],
        paired: false,
    }
}

/// Differences candidate − baseline of each round that both sides have; a side's repetitions within
/// one round are averaged first.
fn paired_differences(base: &[Sample], cand: &[Sample], scale: Scale) -> Vec<f64> {
    let rounds = |side: &[Sample]| {
        let mut rounds: BTreeMap<(i64, u32), Vec<f64>> = BTreeMap::new();
        for sample in side {
            let round = rounds.entry((sample.session, sample.round)).or_default();
            round.push(scale.apply(sample.value));
        }
        rounds
    };
    let cand = rounds(cand);
    rounds(base)
        .iter()
        .filter_map(|(round, values)| Some(stats::mean(cand.get(round)?)? - stats::mean(values)?))
        .collect()
}

/// The analyses that the numbers of samples allow, each at its share of 5 %, with p adjusted for
/// their number; `true` for those on pairs.
fn analyse(a: &[f64], b: &[f64], pairs: &[f64], prior: Option<Prior>) -> Vec<(Estimate, bool)> {
    let (n, m, k) = (a.len() as f64, b.len() as f64, pairs.len() as f64);
    let squares = stats::squares_about_mean(a) + stats::squares_about_mean(b);
    let df = n + m - 2.0;
    let all = |alpha: f64| {
        let shift = stats::hodges_lehmann_shift(a, b)?;
        stats::moderated_t(shift, squares, df, 1.0 / n + 1.0 / m, prior, alpha)
    };
    let within_rounds = |alpha: f64| {
        let shift = stats::hodges_lehmann(pairs).filter(|_| pairs.len() >= PAIRS_MIN)?;
        let least = PAIRED_VARIANCE_MIN * 2.0 * squares / df * (k - 1.0);
        let squares = stats::squares_about_mean(pairs).max(least);
        // The variance of a difference is that of two samples.
        let prior = prior.map(|prior| Prior {
            variance: 2.0 * prior.variance,
            ..prior
        });
        stats::moderated_t(shift, squares, k - 1.0, 1.0 / k, prior, alpha)
    };
    let made = |alpha: f64| {
        [
            (all(alpha), false),
            (within_rounds(alpha), true),
            (stats::trimmed_t(a, b, prior, alpha), false),
            (stats::rank_sum(a, b, alpha), false),
        ]
    };
    // Those take part that the numbers allow even at the smallest share.
    let allowed = made(0.05 / 4.0).map(|(estimate, _)| estimate.is_some());
    let parts = allowed.iter().filter(|allowed| **allowed).count() as f64;
    let adjusted = |(estimate, paired): (Option<Estimate>, bool)| {
        let estimate = estimate?;
        let p = (estimate.p * parts).min(1.0);
        Some((Estimate { p, ..estimate }, paired))
    };
    made(0.05 / parts)
        .into_iter()
        .zip(allowed)
        .filter(|(_, allowed)| *allowed)
        .filter_map(|(analysis, _)| adjusted(analysis))
        .collect()
}

fn choose(analyses: &[(Estimate, bool)]) -> Option<(Estimate, bool)> {
    let least = |key: fn(&Estimate) -> f64| {
        let by = |a: &&(Estimate, bool), b: &&(Estimate, bool)| key(&a.0).total_cmp(&key(&b.0));
        analyses.iter().min_by(by).copied()
    };
    least(|estimate| estimate.p)
        .filter(|(estimate, _)| estimate.p <= 0.05)
        .or_else(|| least(Estimate::half_width))
}

fn finish(shift: Shift, question: &Question, notes: Vec<String>) -> Comparison {
    let mut comparison = Comparison {
        ratio: shift.ratio,
        ci95: shift.ci95,
        difference: shift.difference,
        p: shift.p,
        q: None,
        n: shift.n,
        paired: shift.paired,
        verdict: Verdict::NothingMeasured,
        note: (!notes.is_empty()).then(|| notes.join("; ")),
        more: None,
    };
    if shift.n[0] > 0 && shift.n[1] > 0 {
        settle(&mut comparison, question, question.level);
    }
    comparison
}
