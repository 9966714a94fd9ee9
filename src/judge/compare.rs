//! The comparison of two sides of a metric: shift, interval and p-value.

use std::collections::{BTreeMap, BTreeSet};

use super::permutation::{self, Chance};
use super::stats::{self, Estimate, Moments, Prior};
use super::verdict::{self, Comparison, Question};
use crate::base::sample::Sample;
use crate::base::units::count;

/// Samples a side that a comparison looks at; of more, the last ones.
pub const SAMPLES_MAX: usize = 1000;

/// Pairs from which on a paired test is tried without a noise level from history; with fewer, its
/// one or two degrees of freedom only cost the other tests.
const PAIRS_MIN: usize = 4;

/// A noise level from history counts for so many degrees of freedom at the most. Real noise has far
/// more wild samples than Gauss': a t-test that trusted a long history fully would take two of
/// them in five for a change.
const NOISE_DEGREES_MAX: f64 = 4.0;

/// Samples a side from which on both are taken to have one variance.
const POOLED_MIN: usize = 5;

/// What choosing among the analyses costs: they agree so much that the least p-value of three is hardly more often small
/// than that of two. Measured on protocol KINDS.
const CHOICE_TIMES: f64 = 1.7;

/// A p-value above this finds nothing, whatever else is said of it.
const UNCERTAIN: f64 = 0.2;

/// Sides whose median absolute deviations lie further apart are not taken to have one spread.
const ALIKE_MAX: f64 = 3.0;

/// A shift of so many of a history's standard deviations is none of the modes that it knows.
const HISTORY_REACH: f64 = 6.0;

/// Pairing may cut the noise of a difference to this share of the variance at the best: a handful
/// of pairs that happen to agree is no proof of no noise at all.
const PAIRED_VARIANCE_MIN: f64 = 1e-3;

/// Compares two sides of one metric, as a family of one; [`decide`](super::verdict::decide) judges a family.
///
/// Values are compared by logarithms where all are above zero, else by differences relative to the
/// baseline's mean. Up to three analyses look at the shift, as the numbers of samples allow:
/// - the moderated two-sample t-test of means (Smyth, 2004); Welch's where the numbers of samples lie far apart;
/// - the same of differences within rounds, where at least four rounds are paired: takes out drift;
/// - the trimmed t-test (Yuen & Dixon, 1973) from five samples a side on: takes out wild samples.
///
/// They agree so much that twice the least p-value pays for choosing among them, and intervals at 1 − 0.05/2. None may
/// be more certain than chance allows ([`permutation`]): where the sides overlap than the exact permutation test,
/// where they do not than two modes, see [`Basis`]. The interval is widened to agree.
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
        return verdict::told(Basis::default(), n, notes, question);
    }
    if question.is_exact() && is_constant(&base) && is_constant(&cand) {
        return exact(base[0].value, cand[0].value, n, notes, question);
    }
    let sides = Sides::of(&base, &cand, &mut notes);
    let n = sides.values.each_ref().map(Vec::len);
    verdict::told(sides.basis(question), n, notes, question)
}

/// As [`compare`], of bare values of one time that belong to no rounds.
pub fn compare_values(baseline: &[f64], candidate: &[f64], question: &Question) -> Comparison {
    let side = |values: &[f64], first: u32| -> Vec<Sample> {
        let sample = |(round, value): (u32, &f64)| Sample {
            round,
            session: 0,
            value: *value,
        };
        (first..).zip(values).map(sample).collect()
    };
    let second = side(candidate, baseline.len() as u32);
    compare(&side(baseline, 0), &second, question)
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
    let [base, cand] = together(&usable(baseline).0, &usable(candidate).0);
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
    let [base, cand] = together(&usable(baseline).0, &usable(candidate).0);
    let (scale, values) = scaled(&base, &cand);
    let (a, b) = values.split_at(base.len());
    stats::wild_noise(&[a, b]).filter(|_| scale == Scale::Log)
}

/// The samples of the sessions that both sides have; all where there are none.
fn together(base: &[Sample], cand: &[Sample]) -> [Vec<Sample>; 2] {
    let shared = shared_sessions(base, cand);
    let is_here = |sample: &&Sample| shared.is_empty() || shared.contains(&sample.session);
    [base, cand].map(|side| side.iter().filter(is_here).copied().collect())
}

fn shared_sessions(base: &[Sample], cand: &[Sample]) -> BTreeSet<i64> {
    let of_session = |side: &[Sample]| side.iter().map(|s| s.session).collect::<BTreeSet<_>>();
    &of_session(base) & &of_session(cand)
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
    let mut notes = Vec::new();
    if base.n == 0 || cand.n == 0 || !(base.mean.is_finite() && cand.mean.is_finite()) {
        notes.push("a side has no mean".to_owned());
        return verdict::told(Basis::default(), [0, 0], notes, question);
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
    let levels = [base.mean, cand.mean];
    let mut basis = Basis::of(scale, levels, shift);
    let estimate = stats::moderated_t(shift, squares, df, weight, None);
    basis.analysis = estimate.map(|estimate| {
        let beyond = basis.bound(question);
        Analysis::of(estimate, 1.0, beyond, false, |_| NO_BOUND)
    });
    verdict::told(basis, [base.n, cand.n], notes, question)
}

/// Half the width of the 95 % interval of a cell's level, relative to it: for `until = "ci95 < 2%"`.
///
/// On logarithms where all values are above zero: exp(h) − 1 with h from the narrower of the t-interval of the mean and
/// that of the trimmed mean (Tukey & McLaughlin, 1963), each at 97.5 %.
/// None for fewer than two samples, a value that is not finite, or a level of zero.
pub fn relative_half_width(values: &[f64]) -> Option<f64> {
    let values = &values[values.len().saturating_sub(SAMPLES_MAX)..];
    if values.len() < 2 || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let scale = Scale::of(values);
    let values: Vec<f64> = values.iter().map(|value| scale.apply(*value)).collect();
    let n = values.len() as f64;
    let centre = stats::mean(&values)?;
    let squares = stats::squares_about_mean(&values);
    let t = stats::moderated_t(centre, squares, n - 1.0, 1.0 / n, None)?.half_width(0.025);
    let trimmed = stats::trimmed_mean(&values).map(|mean| mean.half_width(0.025));
    let half = trimmed.map_or(t, |trimmed| trimmed.min(t));
    match scale {
        Scale::Log => Some(half.exp_m1()),
        Scale::Linear if half == 0.0 => Some(0.0),
        Scale::Linear => (centre != 0.0).then(|| half / centre.abs()),
    }
    .filter(|width| width.is_finite())
}

/// On which scale differences are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Scale {
    #[default]
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

/// What a comparison rests on: all that is needed to judge it again among others.
///
/// Where the sides do not overlap, two modes could do the same: with a probability of [`Analysis::modes`] where a cell has them.
/// A share of all cells does; a family tells it by the spread of its sides ([`Spreads`]), and p is never below
/// modes × share. A comparison that stands alone knows no others: then the share is 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Basis {
    pub scale: Scale,
    /// Means of both sides, on the metric's own scale; of logarithms those of geometric means.
    pub levels: [f64; 2],
    /// How far the candidate lies above the baseline, on the scale: None where nothing was measured.
    pub shift: Option<f64>,
    /// None where there is no noise to judge by.
    pub analysis: Option<Analysis>,
    /// Largest minus smallest value of each side, and of the differences within rounds; relative to the level on the linear scale.
    pub spreads: [f64; 2],
    pub pair_spread: Option<f64>,
    pub is_paired: bool,
    /// The sides have no session in common, and how far sessions lie apart is not known.
    pub is_apart: bool,
    /// A share of modes by the cell's own history, at most 1.
    pub modes_by_history: f64,
}

/// The analysis that was chosen, and what its p-values may not be below.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Analysis {
    pub estimate: Estimate,
    /// p-values are multiplied by this: what choosing and looking more than once cost.
    pub times: f64,
    /// For "there is no shift", and for "it is at most the smallest that matters".
    pub none: Bounded,
    pub beyond: Bounded,
}

/// A p-value with its bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounded {
    /// Already at least the permutation test's where the sides overlap.
    own: f64,
    /// How often two modes do the same; 0 where the sides overlap.
    modes: f64,
}

const NO_BOUND: Bounded = Bounded {
    own: 0.0,
    modes: 0.0,
};

impl Bounded {
    pub const NEVER: Bounded = Bounded {
        own: 1.0,
        modes: 0.0,
    };

    pub fn times(self, times: f64) -> Bounded {
        Bounded {
            own: self.own * times,
            modes: self.modes * times,
        }
    }

    /// Where a `share` of all cells has modes that far apart.
    pub fn p(&self, share: f64) -> f64 {
        self.own.max(self.modes * share).min(1.0)
    }
}

impl Analysis {
    /// `least` gives the bounds for a shift of at most its argument.
    /// With `is_exact` the permutation test's p-value may stand for the estimate's, where it is smaller.
    fn of(
        estimate: Estimate,
        times: f64,
        beyond: f64,
        is_exact: bool,
        least: impl Fn(f64) -> Bounded,
    ) -> Self {
        let bounded = |beyond: f64| {
            let bounds = least(beyond);
            let own = match is_exact && bounds.own > 0.0 {
                true => estimate.p(beyond).min(bounds.own),
                false => estimate.p(beyond),
            };
            let own = (own * times).max(bounds.own);
            Bounded {
                own: own.min(1.0),
                ..bounds
            }
        };
        Analysis {
            estimate,
            times,
            none: bounded(0.0),
            beyond: bounded(beyond),
        }
    }

    /// The interval of the shift that agrees with the p-value of "no shift".
    pub fn half_width(&self, alpha: f64, share: f64) -> f64 {
        let Estimate { shift, df, .. } = self.estimate;
        let own = self.estimate.half_width(alpha / self.times);
        // That two modes may do the same makes a shift less certain, but no less exactly known.
        let p = match self.none.p(share) {
            p if p <= 0.05 => self.none.own,
            p => p,
        };
        // A smaller p-value than the estimate's narrows the interval only where it is small.
        let is_told = p <= UNCERTAIN || p > self.estimate.p(0.0) * self.times;
        // Twice the error where p says that the shift is half as many of them.
        match p > 0.0 && is_told && shift != 0.0 {
            true => {
                let told = stats::student_quantile((p / self.times).min(0.9), df);
                stats::student_quantile(alpha / self.times, df) * shift.abs() / told
            }
            false => own,
        }
    }
}

impl Basis {
    fn of(scale: Scale, levels: [f64; 2], shift: f64) -> Basis {
        Basis {
            scale,
            levels,
            shift: Some(shift),
            modes_by_history: 1.0,
            ..Basis::default()
        }
    }

    /// The smallest shift that matters, on the scale. Where the baseline is zero it is relative to the other side.
    pub fn bound(&self, question: &Question) -> f64 {
        let least = question.min_effect.max(0.0);
        match self.scale {
            Scale::Log => least.ln_1p(),
            Scale::Linear => least * self.level(),
        }
    }

    /// What differences on the linear scale are relative to.
    fn level(&self) -> f64 {
        let [base, cand] = self.levels.map(f64::abs);
        if base > 0.0 { base } else { cand }
    }

    /// The size of the shift, as a fraction.
    pub fn size(&self) -> f64 {
        let size = self.shift.unwrap_or(0.0).abs();
        match self.scale {
            Scale::Log => size,
            Scale::Linear if size == 0.0 => 0.0,
            Scale::Linear => size / self.level(),
        }
    }
}

/// How much the sides of many comparisons spread, and their differences within rounds: each sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spreads {
    sides: Vec<f64>,
    pairs: Vec<f64>,
}

/// Modes that lie a shift apart make a side spread by so much of it at least.
const MODES_SPREAD_MIN: f64 = 0.8;

impl Spreads {
    pub fn of<'a>(all: impl Iterator<Item = &'a Basis>) -> Spreads {
        let mut spreads = Spreads::default();
        for basis in all.filter(|basis| basis.analysis.is_some()) {
            spreads.sides.extend(basis.spreads);
            spreads.pairs.extend(basis.pair_spread);
        }
        for list in [&mut spreads.sides, &mut spreads.pairs] {
            list.sort_unstable_by(f64::total_cmp);
        }
        spreads
    }

    /// The share of sides that may have modes as far apart as a shift: those that spread as much, and one more that was not seen.
    pub fn share(&self, basis: &Basis) -> f64 {
        let list = if basis.is_paired {
            &self.pairs
        } else {
            &self.sides
        };
        let reach = MODES_SPREAD_MIN * basis.size();
        let wide = list.len() - list.partition_point(|spread| *spread < reach);
        let by_others = (wide + 1) as f64 / (list.len() + 1) as f64;
        by_others.min(basis.modes_by_history)
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

fn is_constant(side: &[Sample]) -> bool {
    side.len() >= 2 && side.iter().all(|sample| sample.value == side[0].value)
}

/// The comparison of two numbers that are known to have no noise.
fn exact(
    base: f64,
    cand: f64,
    n: [usize; 2],
    mut notes: Vec<String>,
    question: &Question,
) -> Comparison {
    notes.push("deterministic: each repetition gave the same value".to_owned());
    let scale = Scale::of(&[base, cand]);
    let shift = scale.apply(cand) - scale.apply(base);
    let mut basis = Basis::of(scale, [base, cand], shift);
    let estimate = Estimate {
        shift,
        error: 0.0,
        df: f64::INFINITY,
    };
    // The last bits of ln(1.02) must not decide a change of exactly 2 %.
    let beyond = basis.bound(question) * (1.0 - 1e-9);
    basis.analysis = Some(Analysis::of(estimate, 1.0, beyond, false, |_| NO_BOUND));
    verdict::told(basis, n, notes, question)
}

/// Both sides, ready to be compared.
struct Sides {
    scale: Scale,
    /// What is compared, on the scale; what sessions have in common is taken out.
    values: [Vec<f64>; 2],
    /// The same with what other sessions tell of the noise.
    moments: [Moments; 2],
    /// Differences of the rounds that both sides have.
    pairs: Vec<f64>,
    /// Sessions of each side.
    sessions: [usize; 2],
    is_apart: bool,
}

impl Sides {
    /// Sessions that both sides have are compared; others tell only of the noise. Where the numbers of samples lie far
    /// apart only what lies between rounds in common is: the others are of another time.
    fn of(base: &[Sample], cand: &[Sample], notes: &mut Vec<String>) -> Sides {
        let raw: Vec<f64> = base.iter().chain(cand).map(|sample| sample.value).collect();
        let scale = Scale::of(&raw);
        let of_session = |side: &[Sample]| side.iter().map(|s| s.session).collect::<BTreeSet<_>>();
        let all = [of_session(base), of_session(cand)];
        let shared = shared_sessions(base, cand);
        let is_apart = shared.is_empty();
        let is_here = |sample: &&Sample| is_apart || shared.contains(&sample.session);
        let mut here = [base, cand]
            .map(|side| -> Vec<Sample> { side.iter().filter(is_here).copied().collect() });
        let elsewhere = [base, cand].map(|side| -> Vec<Sample> {
            side.iter()
                .filter(|sample| !is_here(sample))
                .copied()
                .collect()
        });
        if is_uneven(&here) {
            let rounds = |side: &[Sample]| side.iter().map(round_of).collect::<BTreeSet<_>>();
            let both: BTreeSet<_> = (rounds(&here[0]).intersection(&rounds(&here[1])))
                .copied()
                .collect();
            let fewer = here[0].len().min(here[1].len());
            if both.len() >= 2 && both.len() >= fewer {
                let mut spans: BTreeMap<i64, [u32; 2]> = BTreeMap::new();
                for (session, round) in both {
                    spans.entry(session).or_insert([round; 2])[1] = round;
                }
                let is_of_time = |sample: &Sample| {
                    let span = spans.get(&sample.session);
                    span.is_some_and(|[from, to]| (*from..=*to).contains(&sample.round))
                };
                let before = here[0].len() + here[1].len();
                for side in &mut here {
                    side.retain(&is_of_time);
                }
                let alone = before - here[0].len() - here[1].len();
                if alone > 0 {
                    notes.push(format!(
                        "{} left out: the other side has none of that time",
                        count(alone, "sample")
                    ));
                }
            }
        }
        let pairs = paired_differences(&here[0], &here[1], scale);
        let levels = match is_apart {
            true => BTreeMap::new(),
            false => session_levels(&here, &shared, scale),
        };
        let middle = stats::mean(&levels.values().copied().collect::<Vec<_>>()).unwrap_or(0.0);
        let value = |sample: &Sample| {
            let level = levels.get(&sample.session);
            scale.apply(sample.value) - level.map_or(0.0, |level| level - middle)
        };
        let values = here
            .each_ref()
            .map(|side| side.iter().map(value).collect::<Vec<_>>());
        let moments = [0, 1].map(|at| {
            let mut own = Moments {
                mean: stats::mean(&values[at]).unwrap_or(0.0),
                n: values[at].len() as f64,
                squares: 0.0,
                df: 0.0,
            };
            let compared: Vec<Vec<f64>> = match is_apart {
                true => by_session(&here[at], scale),
                false => vec![values[at].clone()],
            };
            for values in compared
                .into_iter()
                .chain(by_session(&elsewhere[at], scale))
            {
                own.squares += stats::squares_about_mean(&values);
                own.df += values.len() as f64 - 1.0;
            }
            own
        });
        Sides {
            scale,
            values,
            moments,
            pairs,
            sessions: match is_apart {
                true => all.map(|sessions| sessions.len()),
                false => [shared.len(); 2],
            },
            is_apart,
        }
    }

    fn basis(&self, question: &Question) -> Basis {
        let [a, b] = &self.moments;
        let back = |mean: f64| match self.scale {
            Scale::Log => mean.exp(),
            Scale::Linear => mean,
        };
        let shift = b.mean - a.mean;
        let mut basis = Basis::of(self.scale, [back(a.mean), back(b.mean)], shift);
        let unit = match self.scale {
            Scale::Log => 1.0,
            Scale::Linear => basis.level().max(f64::MIN_POSITIVE),
        };
        let spread = |values: &[f64]| stats::spread(values) / unit;
        basis.spreads = self.values.each_ref().map(|side| spread(side));
        basis.pair_spread = (self.pairs.len() >= PAIRS_MIN).then(|| spread(&self.pairs));
        // A level of history says nothing about differences on the linear scale.
        let known = question.noise.filter(|_| self.scale == Scale::Log);
        if let Some(noise) = known.filter(|noise| basis.size() > HISTORY_REACH * noise.sigma_log) {
            basis.modes_by_history = 1.0 / (1.0 + noise.degrees);
        }
        let between = question.between.filter(|_| self.scale == Scale::Log);
        basis.is_apart = self.is_apart && between.is_none();
        if self.values.iter().any(|side| side.len() < 2) {
            return basis;
        }
        let prior = known
            .filter(|noise| noise.degrees > 0.0)
            .map(|noise| Prior {
                variance: noise.sigma_log.powi(2),
                degrees: noise.degrees.min(NOISE_DEGREES_MAX),
            });
        let beyond = basis.bound(question);
        let analyses = self.analyses(prior, between.filter(|_| self.is_apart));
        let times = if analyses.len() > 1 {
            CHOICE_TIMES
        } else {
            1.0
        };
        let analysis = |(estimate, kind): &(Estimate, Kind)| {
            let least = |beyond: f64| self.least(estimate, *kind, beyond);
            let is_exact = *kind == Kind::Trimmed && !self.is_apart;
            let analysis = Analysis::of(*estimate, times, beyond, is_exact, least);
            (analysis, *kind == Kind::Pairs)
        };
        let analyses: Vec<(Analysis, bool)> = analyses.iter().map(analysis).collect();
        let chosen = choose(&analyses);
        basis.is_paired = chosen.is_some_and(|(_, is_paired)| is_paired);
        basis.analysis = chosen.map(|(analysis, _)| analysis);
        basis.shift = Some(basis.analysis.map_or(shift, |it| it.estimate.shift));
        basis
    }

    /// The analyses that the numbers of samples allow.
    fn analyses(&self, prior: Option<Prior>, between: Option<Prior>) -> Vec<(Estimate, Kind)> {
        let [a, b] = &self.moments;
        let shift = b.mean - a.mean;
        // Each session in common but one has a level of its own.
        let lost = if self.is_apart {
            0
        } else {
            self.sessions[0] - 1
        };
        let (squares, df) = (a.squares + b.squares, a.df + b.df - lost as f64);
        let is_uneven = is_uneven(&self.values);
        // So few samples cannot make up for a spread that is not the same.
        let is_small = self.values.iter().any(|side| side.len() < POOLED_MIN);
        let mads = self
            .values
            .each_ref()
            .map(|side| stats::mad(side).unwrap_or(0.0));
        let is_alike = mads[0].max(mads[1]) <= ALIKE_MAX * mads[0].min(mads[1]);
        let all = match is_uneven || !is_alike || is_small && prior.is_none() {
            true => stats::welch_t(a, b),
            false => stats::moderated_t(shift, squares, df, 1.0 / a.n + 1.0 / b.n, prior),
        };
        let trimmed = stats::trimmed_t(&self.values[0], &self.values[1], prior);
        let apart = |estimate: Estimate| match between {
            Some(between) => with_sessions(estimate, between, self.sessions),
            None => estimate,
        };
        let trimmed = trimmed.filter(|_| !is_uneven && is_alike);
        let unpaired = [
            all.map(|it| (it, Kind::Means)),
            trimmed.map(|it| (it, Kind::Trimmed)),
        ];
        let unpaired = unpaired.into_iter().flatten();
        let mut analyses: Vec<_> = unpaired.map(|(it, kind)| (apart(it), kind)).collect();
        let k = self.pairs.len() as f64;
        if self.pairs.len() >= PAIRS_MIN {
            let least = PAIRED_VARIANCE_MIN * 2.0 * squares / df * (k - 1.0);
            let squares = stats::squares_about_mean(&self.pairs).max(least);
            // The variance of a difference is that of two samples.
            let prior = prior.map(|prior| Prior {
                variance: 2.0 * prior.variance,
                ..prior
            });
            let shift = stats::mean(&self.pairs).unwrap_or(0.0);
            let paired = stats::moderated_t(shift, squares, k - 1.0, 1.0 / k, prior);
            analyses.extend(paired.map(|it| (it, Kind::Pairs)));
        }
        analyses
    }

    /// What p-values of an analysis may not be below, for "the shift is at most `beyond`".
    fn least(&self, estimate: &Estimate, kind: Kind, beyond: f64) -> Bounded {
        // Only what claims to be certain has to prove it.
        if estimate.p(beyond) > UNCERTAIN {
            return NO_BOUND;
        }
        let up = estimate.shift.signum();
        let mut bounds = NO_BOUND;
        for against in [beyond, -beyond] {
            let less = |values: &[f64], by: f64| -> Vec<f64> {
                values.iter().map(|value| up * value - by).collect()
            };
            let chance = match kind {
                Kind::Pairs => permutation::signs(&less(&self.pairs, against)),
                Kind::Means | Kind::Trimmed => {
                    let [a, b] = &self.values;
                    permutation::two_sides(&less(a, 0.0), &less(b, against))
                }
            };
            match chance {
                Chance::Overlapping(p) => bounds.own += p,
                Chance::Apart(p) => bounds.modes += p,
            }
        }
        // Where no value differs from another one of its side, chance says how often that is so.
        if estimate.error == 0.0 {
            let [n, m] = self.values.each_ref().map(Vec::len);
            bounds.own = bounds.own.max(2.0 / permutation::ways(n, m));
        }
        bounds
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Means,
    Trimmed,
    Pairs,
}

/// Whether one side has more than half as many samples more than the other one.
fn is_uneven<T>(sides: &[Vec<T>; 2]) -> bool {
    let [n, m] = sides.each_ref().map(Vec::len);
    2 * n.max(m) > 3 * n.min(m)
}

fn round_of(sample: &Sample) -> (i64, u32) {
    (sample.session, sample.round)
}

fn by_session(side: &[Sample], scale: Scale) -> Vec<Vec<f64>> {
    let mut sessions: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for sample in side {
        let own = sessions.entry(sample.session).or_default();
        own.push(scale.apply(sample.value));
    }
    sessions.into_values().collect()
}

/// The level of each session: the mean of both sides' means.
fn session_levels(
    sides: &[Vec<Sample>; 2],
    sessions: &BTreeSet<i64>,
    scale: Scale,
) -> BTreeMap<i64, f64> {
    let level = |session: &i64| {
        let means = sides.each_ref().map(|side| {
            let own = side.iter().filter(|sample| sample.session == *session);
            let own: Vec<f64> = own.map(|sample| scale.apply(sample.value)).collect();
            stats::mean(&own)
        });
        Some((*session, (means[0]? + means[1]?) / 2.0))
    };
    sessions.iter().filter_map(level).collect()
}

/// The estimate with the variance of sessions that the sides do not share (Satterthwaite, 1946).
fn with_sessions(own: Estimate, between: Prior, sessions: [usize; 2]) -> Estimate {
    let weight: f64 = sessions.iter().map(|n| 1.0 / (*n).max(1) as f64).sum();
    let (within, between_error) = (own.error.powi(2), between.variance * weight);
    let df = (within + between_error).powi(2)
        / (within.powi(2) / own.df + between_error.powi(2) / between.degrees);
    Estimate {
        error: (within + between_error).sqrt(),
        df: if df.is_finite() { df } else { own.df },
        ..own
    }
}

/// Differences candidate − baseline of each round that both sides have; a side's repetitions within
/// one round are averaged first.
fn paired_differences(base: &[Sample], cand: &[Sample], scale: Scale) -> Vec<f64> {
    let rounds = |side: &[Sample]| {
        let mut rounds: BTreeMap<(i64, u32), Vec<f64>> = BTreeMap::new();
        for sample in side {
            let round = rounds.entry(round_of(sample)).or_default();
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

/// The analysis with the least p where that finds a difference, else the narrowest; as far as a comparison alone can tell.
fn choose(analyses: &[(Analysis, bool)]) -> Option<(Analysis, bool)> {
    let least = |key: &dyn Fn(&Analysis) -> f64| {
        let by = |a: &&(Analysis, bool), b: &&(Analysis, bool)| key(&a.0).total_cmp(&key(&b.0));
        analyses.iter().min_by(by).copied()
    };
    least(&|analysis| analysis.none.p(1.0))
        .filter(|(analysis, _)| analysis.none.p(1.0) <= 0.05)
        .or_else(|| least(&|analysis| analysis.half_width(0.05, 1.0)))
}
