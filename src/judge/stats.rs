//! Estimators, intervals and tests on slices of numbers.

use statrs::function::beta::beta_reg;
use statrs::function::erf::{erf_inv, erfc};
use statrs::function::gamma::digamma;

/// The median absolute deviation of Gaussian noise times this is its standard deviation:
/// 1/Φ⁻¹(3/4) (Hampel, 1974).
pub const MAD_TO_SIGMA: f64 = 1.4826;

/// A Hodges-Lehmann estimate of Gaussian noise has this many times the standard error of the mean:
/// √(π/3) (Hodges & Lehmann, 1963).
const HODGES_LEHMANN_ERROR: f64 = 1.0233;

/// Rank tests use exact null distributions up to this many samples a side, the normal one beyond.
const EXACT_MAX: usize = 30;

/// The samples in ascending order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// The `q`-quantile (0 ≤ q ≤ 1) by linear interpolation between order statistics: type 7 of
/// Hyndman & Fan (1996). None of an empty slice.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    quantile_of_sorted(&sorted(values), q)
}

fn quantile_of_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = q.clamp(0.0, 1.0) * last as f64;
    let low = position.floor() as usize;
    let high = (low + 1).min(last);
    let share = position - low as f64;
    // Not `low + share * (high - low)`: that overflows for huge values of opposite sign.
    Some(sorted[low] * (1.0 - share) + sorted[high] * share)
}

/// The middle value, or the mean of the two middle ones. None of an empty slice.
pub fn median(values: &[f64]) -> Option<f64> {
    median_in(&mut values.to_vec())
}

/// The median by selection, which is linear; changes the order.
fn median_in(values: &mut [f64]) -> Option<f64> {
    let middle = values.len() / 2;
    let odd = values.len() % 2 == 1;
    if values.is_empty() {
        return None;
    }
    let (below, high, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if odd {
        return Some(*high);
    }
    let low = below.iter().copied().max_by(f64::total_cmp)?;
    Some(low / 2.0 + *high / 2.0)
}

/// The arithmetic mean. None of an empty slice.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Σ(x − mean)².
pub fn squares_about_mean(values: &[f64]) -> f64 {
    let centre = mean(values).unwrap_or(0.0);
    values.iter().map(|value| (value - centre).powi(2)).sum()
}

/// The standard deviation with n − 1. None of fewer than two samples.
pub fn stddev(values: &[f64]) -> Option<f64> {
    (values.len() >= 2).then(|| (squares_about_mean(values) / (values.len() - 1) as f64).sqrt())
}

/// The median absolute deviation from the median, not scaled (Hampel, 1974); see
/// [`MAD_TO_SIGMA`]. None of an empty slice.
pub fn mad(values: &[f64]) -> Option<f64> {
    let centre = median(values)?;
    let deviations: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    median(&deviations)
}

/// The Walsh averages (xᵢ + xⱼ)/2, i ≤ j.
fn walsh_averages(values: &[f64]) -> Vec<f64> {
    let mut averages = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (i, a) in values.iter().enumerate() {
        averages.extend(values[i..].iter().map(|b| a / 2.0 + b / 2.0));
    }
    averages
}

/// All differences of an `a` from a `b` (b − a).
fn differences(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter()
        .flat_map(|a| b.iter().map(move |b| b - a))
        .collect()
}

/// One-sample location: the median of the Walsh averages (Hodges & Lehmann, 1963).
/// Quadratic in the number of samples. None of an empty slice.
pub fn hodges_lehmann(values: &[f64]) -> Option<f64> {
    median_in(&mut walsh_averages(values))
}

/// Two-sample shift of `b` against `a`: the median of all differences b − a (Hodges & Lehmann,
/// 1963). None where a side is empty.
pub fn hodges_lehmann_shift(a: &[f64], b: &[f64]) -> Option<f64> {
    median_in(&mut differences(a, b))
}

/// P(|T| ≥ |t|) for Student's t with `df` degrees of freedom, not necessarily whole:
/// I(df/(df + t²); df/2, 1/2) (Student, 1908), accurate in the far tail. 1 where `t` is no number.
pub fn student_p(t: f64, df: f64) -> f64 {
    if t.is_nan() || df <= 0.0 {
        return 1.0;
    }
    let x = df / (df + t * t);
    if x <= 0.0 {
        return 0.0;
    }
    beta_reg(df / 2.0, 0.5, x.min(1.0))
}

/// The t > 0 with P(|T| ≥ t) = `p`: the secant method on ln p against ln t, which is close to a
/// straight line in the tail.
pub fn student_quantile(p: f64, df: f64) -> f64 {
    let goal = p.clamp(1e-300, 1.0 - 1e-9).ln();
    let miss = |u: f64| student_p(u.exp(), df).max(1e-300).ln() - goal;
    let (mut u0, mut u1) = (0.0, 1.0);
    let (mut miss0, mut miss1) = (miss(u0), miss(u1));
    for _ in 0..100 {
        if miss1.abs() < 1e-13 || miss0 == miss1 {
            break;
        }
        let step = (miss1 * (u1 - u0) / (miss1 - miss0)).clamp(-5.0, 5.0);
        (u0, miss0) = (u1, miss1);
        u1 -= step;
        miss1 = miss(u1);
    }
    u1.exp()
}

/// P(|Z| ≥ |z|) for the standard normal.
pub fn normal_p(z: f64) -> f64 {
    erfc(z.abs() / std::f64::consts::SQRT_2)
}

/// The z ≥ 0 with P(|Z| ≥ z) = `p`.
pub fn normal_quantile(p: f64) -> f64 {
    erf_inv(1.0 - p.clamp(1e-15, 1.0)) * std::f64::consts::SQRT_2
}

/// A shift with its interval and the p-value of "there is no shift" (two-sided).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub shift: f64,
    pub low: f64,
    pub high: f64,
    pub p: f64,
}

impl Estimate {
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// A variance known beforehand: `variance` with the weight of `degrees` degrees of freedom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prior {
    pub variance: f64,
    pub degrees: f64,
}

/// The moderated t-interval and test of a `shift`, 1 − `alpha` wide:
/// s² = (d₀s₀² + SS)/(d₀ + d), t = shift / (s·√`weight`·1.0233) on d₀ + d degrees of freedom (Smyth, 2004; the
/// factor is the Hodges-Lehmann estimate's). `squares` is SS about the means, `df` its degrees d,
/// `weight` is 1/n, or 1/n + 1/m. Non-robust scale under a robust location: an outlier widens it.
/// None where there is no degree of freedom at all.
pub fn moderated_t(
    shift: f64,
    squares: f64,
    df: f64,
    weight: f64,
    prior: Option<Prior>,
    alpha: f64,
) -> Option<Estimate> {
    let (prior_squares, prior_df) =
        prior.map_or((0.0, 0.0), |p| (p.variance * p.degrees, p.degrees));
    let total_df = df + prior_df;
    if total_df <= 0.0 {
        return None;
    }
    let error = ((prior_squares + squares) / total_df * weight).sqrt() * HODGES_LEHMANN_ERROR;
    Some(from_t(shift, error, total_df, alpha))
}

/// The t-interval and test of a shift with its standard error.
fn from_t(shift: f64, error: f64, df: f64, alpha: f64) -> Estimate {
    let half = student_quantile(alpha, df) * error;
    Estimate {
        shift,
        low: shift - half,
        high: shift + half,
        p: match (shift == 0.0, error == 0.0) {
            (true, _) => 1.0,
            (false, true) => 0.0,
            (false, false) => student_p(shift / error, df),
        },
    }
}

/// Share of samples that [`trimmed_t`] cuts off at either end of a side.
const TRIM: f64 = 0.2;

/// The squared error of a trimmed mean is at least this share of the plain mean's: when the middle
/// samples agree to the last digit, that is the resolution of the clock and no lack of noise.
const TRIMMED_ERROR_MIN: f64 = 0.01;

/// Two-sample trimmed t-interval and test of the shift b − a, 1 − `alpha` wide (Yuen, 1974):
/// trimmed means with g = ⌊0.2·n⌋ cut at either end, h = n − 2g, their error from the Winsorised
/// squares SSD_w/(h(h − 1)) of both sides, on h_a + h_b − 2 degrees of freedom. Neither location nor scale
/// notices g outliers a side. A prior adds σ₀²(1/h_a + 1/h_b) with its degrees, as in
/// [`moderated_t`]. None where a side has fewer than five samples: then nothing can be cut.
pub fn trimmed_t(a: &[f64], b: &[f64], prior: Option<Prior>, alpha: f64) -> Option<Estimate> {
    if a.len().min(b.len()) < 5 {
        return None;
    }
    let (mean_a, error_a, h_a) = trimmed(a);
    let (mean_b, error_b, h_b) = trimmed(b);
    let df = h_a + h_b - 2.0;
    let (prior_error, prior_df) = prior.map_or((0.0, 0.0), |p| {
        (p.variance * (1.0 / h_a + 1.0 / h_b), p.degrees)
    });
    let error = (prior_df * prior_error + df * (error_a + error_b)) / (prior_df + df);
    Some(from_t(mean_b - mean_a, error.sqrt(), df + prior_df, alpha))
}

/// Trimmed mean, its squared standard error, and the number of samples that it rests on.
fn trimmed(values: &[f64]) -> (f64, f64, f64) {
    let ordered = sorted(values);
    let g = (TRIM * values.len() as f64) as usize;
    let kept = &ordered[g..ordered.len() - g];
    let h = kept.len() as f64;
    let winsorised: Vec<f64> = ordered
        .iter()
        .map(|value| value.clamp(kept[0], kept[kept.len() - 1]))
        .collect();
    let n = values.len() as f64;
    let plain = squares_about_mean(&ordered) / (n * (n - 1.0));
    let error = squares_about_mean(&winsorised) / (h * (h - 1.0));
    let error = error.max(TRIMMED_ERROR_MIN * plain);
    (kept.iter().sum::<f64>() / h, error, h)
}

/// Degrees of freedom of the noise that [`evidence`] assumes: far wilder than Gauss'.
const WILD_DEGREES: f64 = 2.0;

/// The upper quartile of |t| with [`WILD_DEGREES`]: its MAD for a scale of 1.
pub const WILD_MAD: f64 = 0.8165;

/// Steps of the fit; what is left after them is far below what noise does to it.
const FIT_STEPS: usize = 15;

/// The squared scale of a fit is at least this share of the mean square: values that agree to the last
/// digit show the resolution of the clock.
const FIT_SCALE_MIN: f64 = 1e-4;

/// Fewer variances say too little of how far they lie apart, see [`pooled`].
pub const POOLED_MIN: usize = 30;

const NO_PRIOR: Prior = Prior {
    variance: 0.0,
    degrees: 0.0,
};

/// How much better two levels describe two groups than one level, or a level one group than none: the logarithm
/// of the ratio of the largest likelihoods under Student's t with two degrees of freedom, fitted by
/// reweighting (Lange, Little & Taylor, 1989). A score to rank by, not a test. `prior` is the squared scale of
/// that noise, with the weight of so many samples. 0 where a group is empty or nothing varies.
pub fn evidence(groups: &[&[f64]], prior: Option<Prior>) -> f64 {
    let together = groups.concat();
    let squares: f64 = groups.iter().map(|group| squares_about_mean(group)).sum();
    let prior = prior.unwrap_or(NO_PRIOR);
    let least = FIT_SCALE_MIN * (squares / together.len() as f64).max(prior.variance);
    if groups.iter().any(|group| group.is_empty()) || least <= 0.0 {
        return 0.0;
    }
    let simpler = match groups.len() {
        1 => fit(groups, false, least, prior),
        _ => fit(&[&together], true, least, prior),
    };
    (fit(groups, true, least, prior).0 - simpler.0).max(0.0)
}

/// The largest log-likelihood of groups with a scale in common, but for a constant, and the squared scale; where
/// levels are not free they are 0.
fn fit(groups: &[&[f64]], is_free: bool, least: f64, prior: Prior) -> (f64, f64) {
    let n: usize = groups.iter().map(|group| group.len()).sum();
    let weight = |x: f64, level: f64, scale: f64| {
        (WILD_DEGREES + 1.0) / (WILD_DEGREES + (x - level).powi(2) / scale)
    };
    let level = |group: &&[f64]| if is_free { median(group) } else { Some(0.0) };
    let mut levels: Vec<f64> = groups.iter().filter_map(level).collect();
    let mut deviations: Vec<f64> = groups
        .iter()
        .zip(&levels)
        .flat_map(|(group, level)| group.iter().map(move |x| (x - level).abs()))
        .collect();
    let mad = median_in(&mut deviations).unwrap_or(0.0);
    let mut scale = (MAD_TO_SIGMA * mad).powi(2).max(least);
    for _ in 0..FIT_STEPS {
        let mut squares = prior.degrees * prior.variance;
        for (group, level) in groups.iter().zip(&mut levels) {
            let (mut weights, mut sum) = (0.0, 0.0);
            for x in *group {
                let w = weight(*x, *level, scale);
                (weights, sum) = (weights + w, sum + w * x);
            }
            let before = *level;
            if is_free {
                *level = sum / weights;
            }
            squares += group
                .iter()
                .map(|x| weight(*x, before, scale) * (x - *level).powi(2))
                .sum::<f64>();
        }
        scale = (squares / (n as f64 + prior.degrees)).max(least);
    }
    let loss = |x: f64, level: f64| ((x - level).powi(2) / scale / WILD_DEGREES).ln_1p();
    let losses: f64 = groups
        .iter()
        .zip(&levels)
        .flat_map(|(group, level)| group.iter().map(move |x| loss(*x, *level)))
        .sum();
    let likelihood = -(n as f64 + prior.degrees) / 2.0 * scale.ln()
        - (WILD_DEGREES + 1.0) / 2.0 * losses
        - prior.degrees * prior.variance / scale / 2.0;
    (likelihood, scale)
}

/// The squared scale of the noise that [`evidence`] assumes, about the levels of groups, with the degrees of freedom
/// that it is known by: (f + 1)·ν/(ν + 3) for f samples beyond one a group. So much less than under Gauss' noise
/// says a sample of Student's with ν (Lange, Little & Taylor, 1989); the 1 is what simulation says of few samples.
/// None where nothing varies, or a group is so small that the fit goes through its samples.
pub fn wild_noise(groups: &[&[f64]]) -> Option<Prior> {
    let n = groups.iter().map(|group| group.len()).sum::<usize>() as f64;
    let free = n - groups.len() as f64;
    let squares: f64 = groups.iter().map(|group| squares_about_mean(group)).sum();
    let least = FIT_SCALE_MIN * squares / n;
    let is_known = least > 0.0 && groups.iter().all(|group| group.len() >= 3);
    is_known.then(|| Prior {
        variance: fit(groups, true, least, NO_PRIOR).1 * n / free,
        degrees: (free + 1.0) * WILD_DEGREES / (WILD_DEGREES + 3.0),
    })
}

/// What variances of many say of one more: their typical size s₀², with the more weight d₀ the more alike they
/// are (empirical Bayes: `fitFDist` of Smyth, 2004, section 6.2). With e = ln s² − ψ(d/2) + ln(d/2), Winsorised at three
/// robust deviations from their median: ψ′(d₀/2) = var(e) − mean ψ′(d/2), where ψ and ψ′ are digamma and trigamma;
/// ln s₀² = mean(e) + ψ(d₀/2) − ln(d₀/2). d₀ is infinite where they differ no more than by chance.
/// None of fewer than [`POOLED_MIN`] variances.
pub fn pooled(variances: &[Prior]) -> Option<Prior> {
    if variances.len() < POOLED_MIN {
        return None;
    }
    // What the logarithm of χ²/d is on average.
    let mean_log = |degrees: f64| digamma(degrees / 2.0) - (degrees / 2.0).ln();
    let log = |own: &Prior| own.variance.ln() - mean_log(own.degrees);
    // Sorted, so that sums do not depend on the order.
    let logs = sorted(&variances.iter().map(log).collect::<Vec<_>>());
    let (centre, reach) = (median(&logs)?, 3.0 * MAD_TO_SIGMA * mad(&logs)?);
    let held = |log: &f64| log.clamp(centre - reach, centre + reach);
    let logs: Vec<f64> = logs.iter().map(held).collect();
    let by_chance = variances.iter().map(|own| trigamma(own.degrees / 2.0));
    let by_chance = mean(&sorted(&by_chance.collect::<Vec<_>>()))?;
    let degrees = 2.0 * inverse_trigamma(stddev(&logs)?.powi(2) - by_chance);
    let below = if degrees.is_finite() {
        mean_log(degrees)
    } else {
        0.0
    };
    Some(Prior {
        variance: (mean(&logs)? + below).exp(),
        degrees,
    })
}

/// The derivative of digamma: by ψ′(x) = ψ′(x + 1) + 1/x² up to 6, from there by its asymptotic series (Abramowitz &
/// Stegun, 1964, 6.4.6 and 6.4.12).
fn trigamma(x: f64) -> f64 {
    if x < 6.0 {
        return trigamma(x + 1.0) + x.powi(-2);
    }
    let y = x.powi(-2);
    (1.0 + (0.5 + (1.0 / 6.0 - (1.0 / 30.0 - y / 42.0) * y) / x) / x) / x
}

/// The x with ψ′(x) = `value`, by halving; infinite for a value that none exceeds.
fn inverse_trigamma(value: f64) -> f64 {
    if value < 1e-6 {
        return f64::INFINITY;
    }
    // 1/x < ψ′(x) < 1/x + 1/x².
    let (mut low, mut high) = (1.0 / value, 1.0 / value + 1.0 / value.sqrt());
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match trigamma(middle) > value {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

/// Two-sample rank analysis of the shift b − a: Mann-Whitney's U as the number of differences
/// below zero (ties count half), and the interval between order statistics of the
/// differences (Mann & Whitney, 1947; Moses, 1965). None where a side is empty or where no result
/// could be significant at `alpha`.
pub fn rank_sum(a: &[f64], b: &[f64], alpha: f64) -> Option<Estimate> {
    let (n, m) = (a.len(), b.len());
    if n == 0 || m == 0 {
        return None;
    }
    let variance = (n * m * (n + m + 1)) as f64 / 12.0;
    let null = match n.max(m) <= EXACT_MAX {
        true => Null::Exact(mann_whitney_null(n, m)),
        false => Null::Normal(variance.sqrt()),
    };
    from_ordered(&sorted(&differences(a, b)), &null, alpha)
}

/// One-sample rank analysis of paired differences: Wilcoxon's signed rank as the number of Walsh
/// averages below zero, and the interval between their order statistics (Wilcoxon, 1945; Tukey,
/// 1949). None where there is no sample or where no result could be significant at `alpha`.
pub fn signed_rank(values: &[f64], alpha: f64) -> Option<Estimate> {
    let n = values.len();
    let variance = (n * (n + 1) * (2 * n + 1)) as f64 / 24.0;
    let null = match n <= EXACT_MAX {
        true => Null::Exact(signed_rank_null(n)),
        false => Null::Normal(variance.sqrt()),
    };
    from_ordered(&sorted(&walsh_averages(values)), &null, alpha)
}

/// The null distribution of a count between 0 and its maximum, symmetric about the middle.
enum Null {
    /// P(count ≤ k) at index k.
    Exact(Vec<f64>),
    /// Its standard deviation.
    Normal(f64),
}

impl Null {
    /// P(count ≤ k) for a count whose maximum is `max`.
    fn cdf(&self, k: usize, max: usize) -> f64 {
        match self {
            Null::Exact(cdf) => cdf[k.min(cdf.len() - 1)],
            Null::Normal(sd) => {
                // Half a step of continuity correction.
                let z = (k as f64 + 0.5 - max as f64 / 2.0) / sd;
                let tail = normal_p(z) / 2.0;
                if z < 0.0 { tail } else { 1.0 - tail }
            }
        }
    }
}

fn from_ordered(ordered: &[f64], null: &Null, alpha: f64) -> Option<Estimate> {
    let max = ordered.len();
    let shift = quantile_of_sorted(ordered, 0.5)?;
    // The interval leaves out `cut` values at either end: one more than the largest count that
    // rejects at alpha.
    let cut = (0..max / 2)
        .take_while(|k| 2.0 * null.cdf(*k, max) <= alpha)
        .count();
    if cut == 0 {
        return None;
    }
    let below = ordered.partition_point(|value| *value < 0.0);
    let above = max - ordered.partition_point(|value| *value <= 0.0);
    // Ties count half, rounded against significance.
    let minority = below.min(above) + (max - below - above).div_ceil(2);
    Some(Estimate {
        shift,
        low: ordered[cut - 1],
        high: ordered[max - cut],
        p: (2.0 * null.cdf(minority, max)).min(1.0),
    })
}

/// P(U ≤ k) without ties: coefficients of the Gaussian binomial Π (1 − x^(n+i))/(1 − x^i).
fn mann_whitney_null(n: usize, m: usize) -> Vec<f64> {
    let mut counts = vec![0.0; n * m + 1];
    counts[0] = 1.0;
    for i in 1..=m {
        for k in (n + i..counts.len()).rev() {
            counts[k] -= counts[k - n - i];
        }
        for k in i..counts.len() {
            counts[k] += counts[k - i];
        }
    }
    cumulative(counts)
}

/// P(W ≤ k) without ties: coefficients of Π (1 + x^i).
fn signed_rank_null(n: usize) -> Vec<f64> {
    let mut counts = vec![0.0; n * (n + 1) / 2 + 1];
    counts[0] = 1.0;
    for i in 1..=n {
        for k in (i..counts.len()).rev() {
            counts[k] += counts[k - i];
        }
    }
    cumulative(counts)
}

fn cumulative(counts: Vec<f64>) -> Vec<f64> {
    let total: f64 = counts.iter().sum();
    let mut sum = 0.0;
    counts
        .into_iter()
        .map(|count| {
            sum += count;
            sum / total
        })
        .collect()
}

/// Adjusted p-values that control the false discovery rate: q₍ᵢ₎ = min over j ≥ i of m·p₍ⱼ₎/j
/// (Benjamini & Hochberg, 1995). In the order of the input.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut least: f64 = 1.0;
    for (rank, index) in order.into_iter().enumerate().rev() {
        least = least.min(p[index] * p.len() as f64 / (rank + 1) as f64);
        adjusted[index] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, tolerance: f64) {
        assert!((a - b).abs() <= tolerance, "{a} is not near {b}");
    }

    /// Uniform numbers between 0 and 1: SplitMix64 (Steele, Lea & Flood, 2014).
    fn uniforms(seed: u64) -> impl Iterator<Item = f64> {
        (1..).map(move |i: u64| {
            let mut z = (seed << 32 | i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        })
    }

    #[test]
    fn wild_noise_is_known_as_well_as_it_says() {
        // Student's t with two degrees of freedom, by its quantiles.
        let wild = |u: f64| (2.0 * u - 1.0) / (2.0 * u * (1.0 - u)).sqrt();
        for n in [3, 5, 10, 20] {
            let all: Vec<f64> = uniforms(n as u64).take(2000 * 2 * n).map(wild).collect();
            let told = all.chunks_exact(2 * n).map(|sides| {
                let (a, b) = sides.split_at(n);
                wild_noise(&[a, b]).unwrap()
            });
            let told: Vec<Prior> = told.collect();
            let logs: Vec<f64> = told.iter().map(|own| own.variance.ln()).collect();
            let half = told[0].degrees / 2.0;
            near(mean(&logs).unwrap(), digamma(half) - half.ln(), 0.15);
            near(stddev(&logs).unwrap() / trigamma(half).sqrt(), 1.0, 0.1);
        }
        let of = |side: &[f64]| wild_noise(&[side, side]);
        assert_eq!(of(&[1.0, 2.0]), None);
        assert_eq!(of(&[1.0; 5]), None);
        assert_eq!(wild_noise(&[]), None);
    }

    #[test]
    fn trigamma_agrees_with_tables() {
        let pi_squared = std::f64::consts::PI.powi(2);
        for (x, expected) in [
            (0.5, pi_squared / 2.0),
            (1.0, pi_squared / 6.0),
            (2.0, pi_squared / 6.0 - 1.0),
            (10.0, 0.105_166_335_681_685_75),
        ] {
            near(trigamma(x), expected, 1e-7);
            near(inverse_trigamma(expected), x, 1e-5);
        }
        for x in [1e-4, 0.01, 0.3, 40.0, 1e5] {
            near(inverse_trigamma(trigamma(x)) / x, 1.0, 1e-9);
        }
        assert_eq!(inverse_trigamma(-1.0), f64::INFINITY);
    }

    #[test]
    fn rank_tests_agree_with_tables() {
        let low = [1.0, 2.0, 3.0, 4.0, 5.0];
        let high = [6.0, 7.0, 8.0, 9.0, 10.0];
        // 2 of the 252 ways to deal ten ranks.
        near(rank_sum(&low, &high, 0.05).unwrap().p, 2.0 / 252.0, 1e-12);
        // 3 + 3 samples cannot be significant at 5 %.
        assert_eq!(rank_sum(&low[..3], &high[..3], 0.05), None);
        // Neither can five pairs; six can: 2 of 64 signs.
        assert_eq!(signed_rank(&low, 0.05), None);
        near(
            signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0.05)
                .unwrap()
                .p,
            2.0 / 64.0,
            1e-12,
        );
        // Critical value for n = m = 10 at 5 %, two-sided: U = 23.
        let null = mann_whitney_null(10, 10);
        assert!(2.0 * null[23] <= 0.05 && 2.0 * null[24] > 0.05);
    }
}
