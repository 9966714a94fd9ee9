//! Seeded random numbers: the same on every machine, so that a seed repeats what was drawn.

use std::f64::consts::{PI, TAU};

/// SplitMix64 (Steele, Lea & Flood, 2014, "Fast splittable pseudorandom number generators").
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Nearly uniform in `0..n`; `n` is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// Above 0, at most 1.
    pub fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal (Box & Muller, 1958).
    pub fn gauss(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (TAU * self.uniform()).cos()
    }

    /// Student's t with four degrees of freedom: χ² with four is −2 ln of a product of two uniforms.
    pub fn student_4(&mut self) -> f64 {
        let chi_squared = -2.0 * (self.uniform().ln() + self.uniform().ln());
        self.gauss() / (chi_squared / 4.0).sqrt()
    }

    /// Standard Cauchy, by its quantiles.
    pub fn cauchy(&mut self) -> f64 {
        (PI * (self.uniform() - 0.5)).tan()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_from_the_distributions_that_are_named() {
        let quartiles = |draw: &mut dyn FnMut() -> f64| {
            let mut drawn: Vec<f64> = (0..40_000).map(|_| draw()).collect();
            drawn.sort_by(f64::total_cmp);
            [drawn[10_000], drawn[20_000], drawn[30_000]]
        };
        let mut random = Random(1);
        let mut check = |draw: fn(&mut Random) -> f64, expected: f64| {
            let [low, middle, high] = quartiles(&mut || draw(&mut random));
            for (found, expected) in [(low, -expected), (middle, 0.0), (high, expected)] {
                assert!((found - expected).abs() < 0.03, "{found} {expected}");
            }
        };
        check(|random| random.uniform() - 0.5, 0.25);
        check(Random::gauss, 0.6745);
        check(Random::student_4, 0.7407);
        check(Random::cauchy, 1.0);
        assert_eq!(Random(7).below(1000), Random(7).below(1000));
    }
}
