//! What a number of repetitions can show: the smallest effect, the repetitions that one needs.

use super::stats::student_quantile;

/// A change of the size told is found with this probability.
pub const POWER: f64 = 0.8;
/// More repetitions are never suggested.
pub const REPETITIONS_MAX: u32 = 100_000;

/// The smallest change, as a fraction, that `n` repetitions a side find with probability [`POWER`] at
/// the level `alpha`, where one sample's logarithm has the standard deviation `sigma_log`:
/// ln(1 + e) = (t(α/2) + t(1 − power))·σ·√(2/n) on 2(n − 1) degrees of freedom (Cohen, 1988,
/// section 2.4, for logarithms). None below two repetitions.
pub fn smallest_effect(sigma_log: f64, n: u32, alpha: f64) -> Option<f64> {
    let df = 2.0 * (f64::from(n) - 1.0);
    if n < 2 || !sigma_log.is_finite() || sigma_log < 0.0 {
        return None;
    }
    let error = sigma_log * (2.0 / f64::from(n)).sqrt();
    let quantiles = student_quantile(alpha, df) + student_quantile(2.0 * (1.0 - POWER), df);
    Some((quantiles * error).exp_m1())
}

/// The fewest repetitions a side that find a change of `effect` (0.02 is 2 %), see [`smallest_effect`].
/// None where more than [`REPETITIONS_MAX`] would be needed.
pub fn repetitions(sigma_log: f64, effect: f64, alpha: f64) -> Option<u32> {
    let suffices = |n: u32| smallest_effect(sigma_log, n, alpha).is_some_and(|e| e <= effect);
    if !suffices(REPETITIONS_MAX) {
        return None;
    }
    // The smallest effect falls with n.
    let (mut low, mut high) = (1, REPETITIONS_MAX);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match suffices(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    Some(high)
}
