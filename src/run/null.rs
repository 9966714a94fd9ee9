//! The samples of a `null` machine: generated from a seed, the same for the same seed.

use crate::base::key::{Key, KeyHasher};

/// A value of a metric in a round: a level that follows from the cell without its version, so that
/// versions do not differ, spread log-normally with one sigma of `noise`.
pub fn value(cell: &str, metric: &str, version: &str, round: u32, seed: u64, noise: f64) -> f64 {
    let level = KeyHasher::new("level").str(cell).str(metric).finish();
    let draw = KeyHasher::new("draw")
        .key(level)
        .str(version)
        .bytes(&round.to_le_bytes())
        .bytes(&seed.to_le_bytes())
        .finish();
    let level = 1_000.0 * (1.0 + 9.0 * uniforms(level).0);
    // Box and Muller, 1958.
    let (u, v) = uniforms(draw);
    let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
    level * (noise * normal).exp()
}

/// Two numbers from a key, each above 0 and at most 1.
fn uniforms(key: Key) -> (f64, f64) {
    let number = u128::from_be_bytes(key.0);
    let unit = |bits: u64| ((bits >> 11) + 1) as f64 / (1u64 << 53) as f64;
    (unit((number >> 64) as u64), unit(number as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_samples() {
        let sample = |round, seed| value("bs=4k", "iops", "a", round, seed, 0.01);
        assert_eq!(sample(3, 7), sample(3, 7));
        assert_ne!(sample(3, 7), sample(4, 7));
        assert_ne!(sample(3, 7), sample(3, 8));
    }

    #[test]
    fn the_spread_is_as_declared() {
        let logs: Vec<f64> = (0..2000)
            .map(|round| value("c", "m", "v", round, 1, 0.05).ln())
            .collect();
        let mean = logs.iter().sum::<f64>() / 2000.0;
        let variance = logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1999.0;
        assert!(
            (0.045..0.055).contains(&variance.sqrt()),
            "{}",
            variance.sqrt()
        );
    }
}
