//! Estimators and tests on slices of numbers.

use statrs::function::beta::beta_reg;
use statrs::function::erf::erf_inv;
use statrs::function::gamma::digamma;

/// The median absolute deviation of Gaussian noise times this is its standard deviation:
/// 1/Φ⁻¹(3/4) (Hampel, 1974).
pub const MAD_TO_SIGMA: f64 = 1.4826;

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

/// The largest minus the smallest value; 0 of an empty slice.
pub fn spread(values: &[f64]) -> f64 {
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    (high - low).max(0.0)
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

/// All differences of an `a` from a `b` (b − a).
fn differences(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter()
        .flat_map(|a| b.iter().map(move |b| b - a))
        .collect()
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

/// The z ≥ 0 with P(|Z| ≥ z) = `p`.
pub fn normal_quantile(p: f64) -> f64 {
    erf_inv(1.0 - p.clamp(1e-15, 1.0)) * std::f64::consts::SQRT_2
}

/// A shift with its standard error and the degrees of freedom that the error is known by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub shift: f64,
    pub error: f64,
    pub df: f64,
}

impl Estimate {
    /// Half the width of the interval that holds the true shift with probability 1 − `alpha`.
    pub fn half_width(&self, alpha: f64) -> f64 {
        match self.error > 0.0 {
            true => student_quantile(alpha, self.df) * self.error,
            false => 0.0,
        }
    }

    /// The p-value of "the true shift is at most `bound` in size", two-sided: the tails of t beyond (|shift| − bound)/error and
    /// (|shift| + bound)/error (TREAT: McCarthy & Smyth, 2009). Student's own test for a bound of 0.
    pub fn p(&self, bound: f64) -> f64 {
        let size = self.shift.abs();
        if self.error <= 0.0 {
            return if size > bound { 0.0 } else { 1.0 };
        }
        let tail = |t: f64| match t < 0.0 {
            true => 1.0 - student_p(t, self.df) / 2.0,
            false => student_p(t, self.df) / 2.0,
        };
        (tail((size - bound) / self.error) + tail((size + bound) / self.error)).min(1.0)
    }
}

/// A variance known beforehand: `variance` with the weight of `degrees` degrees of freedom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prior {
    pub variance: f64,
    pub degrees: f64,
}

/// One side of a comparison by its mean, of `n` samples, and the squares about means that tell its noise, with
/// their degrees of freedom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    pub mean: f64,
    pub n: f64,
    pub squares: f64,
    pub df: f64,
}

/// The moderated t-test of a `shift`: s² = (d₀s₀² + SS)/(d₀ + d), error s·√`weight`, on d₀ + d degrees of freedom (Smyth, 2004).
/// `squares` is SS about the means, `df` its degrees d, `weight` is 1/n, or 1/n + 1/m. None where there is no
/// degree of freedom at all.
pub fn moderated_t(
    shift: f64,
    squares: f64,
    df: f64,
    weight: f64,
    prior: Option<Prior>,
) -> Option<Estimate> {
    let prior = prior.unwrap_or(NO_PRIOR);
    let df_all = df + prior.degrees;
    let error = ((prior.variance * prior.degrees + squares) / df_all * weight).sqrt();
    (df_all > 0.0).then_some(Estimate {
        shift,
        error,
        df: df_all,
    })
}

/// The t-test of sides with a variance each: error² = s_a²/n_a + s_b²/n_b on (error²)²/Σ (s²/n)²/d degrees of freedom (Welch, 1947).
/// None where a side has no degree of freedom.
pub fn welch_t(a: &Moments, b: &Moments) -> Option<Estimate> {
    let part = |side: &Moments| side.squares / side.df / side.n;
    let (of_a, of_b) = (part(a), part(b));
    let df = (of_a + of_b).powi(2) / (of_a.powi(2) / a.df + of_b.powi(2) / b.df);
    (a.df > 0.0 && b.df > 0.0).then_some(Estimate {
        shift: b.mean - a.mean,
        error: (of_a + of_b).sqrt(),
        df: if df.is_finite() { df } else { a.df + b.df },
    })
}

/// Share of samples that [`trimmed_t`] cuts off at either end of a side.
const TRIM: f64 = 0.2;

/// Winsorised squares count for at least this share of the plain ones: when the middle samples agree to the last digit, that
/// is the resolution of the clock and no lack of noise. Modes and ticks are for the permutation test to see.
const WINSORISED_MIN: f64 = 0.001;

/// The same where there is no permutation test beside it.
const PLAIN_MIN: f64 = 0.3;

/// The two-sample trimmed t-test of the shift b − a with a common variance (Yuen & Dixon, 1973): trimmed means with g = ⌊0.2·n⌋
/// cut at either end, h = n − 2g; s² = (SSD_a + SSD_b)/(h_a + h_b − 2) of Winsorised squares, error² = s²(1/h_a + 1/h_b).
/// Neither location nor scale notices g outliers a side. None where a side has fewer than five samples:
/// then nothing can be cut.
pub fn trimmed_t(a: &[f64], b: &[f64], prior: Option<Prior>) -> Option<Estimate> {
    if a.len().min(b.len()) < 5 {
        return None;
    }
    let (a, b) = (trimmed(a, WINSORISED_MIN), trimmed(b, WINSORISED_MIN));
    let squares = a.squares + b.squares;
    moderated_t(
        b.mean - a.mean,
        squares,
        a.df + b.df,
        1.0 / a.n + 1.0 / b.n,
        prior,
    )
}

/// A trimmed mean with its standard error (Tukey & McLaughlin, 1963), cut as in [`trimmed_t`].
pub fn trimmed_mean(values: &[f64]) -> Option<Estimate> {
    let own = (values.len() >= 5).then(|| trimmed(values, PLAIN_MIN))?;
    moderated_t(own.mean, own.squares, own.df, 1.0 / own.n, None)
}

/// The trimmed mean of a side, the number of samples that it rests on, and the Winsorised squares.
fn trimmed(values: &[f64], least: f64) -> Moments {
    let ordered = sorted(values);
    let g = (TRIM * values.len() as f64) as usize;
    let kept = &ordered[g..ordered.len() - g];
    let h = kept.len() as f64;
    let (low, high) = (kept[0], kept[kept.len() - 1]);
    let winsorised: Vec<f64> = ordered.iter().map(|value| value.clamp(low, high)).collect();
    let least = least * squares_about_mean(&ordered) * h / values.len() as f64;
    Moments {
        mean: kept.iter().sum::<f64>() / h,
        n: h,
        squares: squares_about_mean(&winsorised).max(least),
        df: h - 1.0,
    }
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
}
