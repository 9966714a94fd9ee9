//! What chance alone does to two sides whose labels may be exchanged: exact permutation tests.
//!
//! Rounds in random order make the labels of the sides exchangeable where nothing differs (Fisher, 1935). Values are held
//! within two robust deviations of all of them and put on a grid, both without a look at the labels, so that
//! the tests stay exact; sums on a grid are counted instead of drawn (Pagano & Tritchler, 1983).

use super::stats::{MAD_TO_SIGMA, mad, median};

/// Steps of the grid. Coarse on purpose: which value of a mode is the larger one is no evidence.
const GRID: usize = 16;

/// Values are held within so many robust deviations: spikes then cost little power.
const REACH: f64 = 2.0;

/// Additions that one test may cost.
const WORK_MAX: usize = 4_000_000;

/// How likely chance alone shows as much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Chance {
    /// The sides overlap: the permutation test's p-value, one-sided.
    Overlapping(f64),
    /// They do not: two modes, each side by chance in one of them, do the same this often at the most.
    Apart(f64),
}

/// Whether `high` lies as far above `low` by chance: the share of all ways to deal the labels that show means at
/// least as far apart. Of sides that lie apart: (n/N)ⁿ·(m/N)ᵐ with N = n + m, the largest probability that
/// all of one side fall into one mode and all of the other into another one.
pub fn two_sides(low: &[f64], high: &[f64]) -> Chance {
    let (n, m) = (low.len() as f64, high.len() as f64);
    let least = |side: &[f64]| side.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |side: &[f64]| side.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if least(high) > most(low) {
        let total = n + m;
        return Chance::Apart((n * (n / total).ln() + m * (m / total).ln()).exp());
    }
    let all: Vec<f64> = low.iter().chain(high).copied().collect();
    // Counted are the sums of the smaller side: large ones of `high`, small ones of `low`.
    let is_high = high.len() <= low.len();
    let smaller = low.len().min(high.len());
    let Some(scores) = on_grid(&all, all.len() * smaller * smaller) else {
        return Chance::Overlapping(0.0);
    };
    let (of_low, of_high) = scores.split_at(low.len());
    let own = if is_high { of_high } else { of_low };
    let top = scores.iter().copied().max().unwrap_or(0);
    let turned = |score: &usize| if is_high { *score } else { top - score };
    let observed: usize = own.iter().map(turned).sum();
    // ways[k · width + s]: how many choices of k values have the sum s.
    let largest = scores.iter().map(turned).max().unwrap_or(0);
    let width = smaller * largest + 1;
    let mut ways = vec![0.0; (smaller + 1) * width];
    ways[0] = 1.0;
    for (seen, score) in scores.iter().map(turned).enumerate() {
        for k in (1..=smaller.min(seen + 1)).rev() {
            let (before, after) = ways.split_at_mut(k * width);
            let before = &before[(k - 1) * width..];
            for (to, from) in after[score..width].iter_mut().zip(before) {
                *to += from;
            }
        }
    }
    let sums = &ways[smaller * width..];
    Chance::Overlapping(share_from(sums, observed))
}

/// Whether differences within rounds lie as far above zero by chance: the share of all ways to turn their signs that
/// have at least their sum. Where all are above zero that is 2⁻ʳ.
pub fn signs(differences: &[f64]) -> Chance {
    if differences.iter().all(|d| *d > 0.0) {
        return Chance::Apart(0.5f64.powi(differences.len() as i32));
    }
    let r = differences.len();
    // Zero is on the grid, so that signs turn about it.
    let both: Vec<f64> = differences.iter().flat_map(|d| [*d, -d]).collect();
    let Some(scores) = on_grid(&both, r * r) else {
        return Chance::Overlapping(0.0);
    };
    let doubled: Vec<(usize, usize)> = scores
        .chunks_exact(2)
        .map(|pair| (pair[0], pair[1]))
        .collect();
    let observed: usize = doubled.iter().map(|pair| pair.0).sum();
    let width: usize = doubled.iter().map(|pair| pair.0.max(pair.1)).sum::<usize>() + 1;
    let mut ways = vec![0.0; width];
    ways[0] = 1.0;
    for (one, other) in doubled {
        let mut next = vec![0.0; width];
        for step in [one, other] {
            for (to, from) in next[step..].iter_mut().zip(&ways) {
                *to += from;
            }
        }
        ways = next;
    }
    Chance::Overlapping(share_from(&ways, observed))
}

/// In how many ways labels of n and m samples can be dealt: C(n + m, n).
pub fn ways(n: usize, m: usize) -> f64 {
    (1..=n.min(m)).fold(1.0, |ways, i| ways * (n.max(m) + i) as f64 / i as f64)
}

/// The share of sums that are at least as large as the observed one.
fn share_from(ways: &[f64], observed: usize) -> f64 {
    let total: f64 = ways.iter().sum();
    ways[observed.min(ways.len())..].iter().sum::<f64>() / total
}

/// Values as steps from 0 to [`GRID`], held within [`REACH`] of their median; None where a test on them
/// would cost more than [`WORK_MAX`], which is `work` for each step: so many samples need none.
fn on_grid(values: &[f64], work: usize) -> Option<Vec<usize>> {
    let centre = median(values)?;
    let reach = REACH * MAD_TO_SIGMA * mad(values)?;
    let held = |value: &f64| match reach > 0.0 {
        true => (value - centre).clamp(-reach, reach),
        false => value - centre,
    };
    let held: Vec<f64> = values.iter().map(held).collect();
    let low = held.iter().copied().fold(f64::INFINITY, f64::min);
    let high = held.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let unit = if high > low {
        (high - low) / GRID as f64
    } else {
        1.0
    };
    let score = |value: &f64| ((value - low) / unit).round() as usize;
    (work * GRID <= WORK_MAX).then(|| held.iter().map(score).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_cases_agree_with_enumeration() {
        let check = |low: &[f64], high: &[f64], expected: Chance| {
            let got = two_sides(low, high);
            let near = match (got, expected) {
                (Chance::Overlapping(a), Chance::Overlapping(b)) => (a - b).abs() < 1e-12,
                (Chance::Apart(a), Chance::Apart(b)) => (a - b).abs() < 1e-12,
                _ => false,
            };
            assert!(near, "{low:?} {high:?}: {got:?}");
        };
        // Four of five in the upper mode against one of five: (25 + 1) of 252 ways.
        check(
            &[0.0, 0.0, 0.0, 0.0, 1.0],
            &[0.0, 1.0, 1.0, 1.0, 1.0],
            Chance::Overlapping(26.0 / 252.0),
        );
        check(&[1.0; 3], &[1.0; 2], Chance::Overlapping(1.0));
        // The two smallest of five against the rest, the other way round: every way is as high.
        check(&[3.0, 4.0, 5.0], &[1.0, 2.0], Chance::Overlapping(1.0));
        // {3, 5} of {1, …, 5}: 8 or more have {3, 5} and {4, 5}.
        check(
            &[1.0, 2.0, 4.0],
            &[3.0, 5.0],
            Chance::Overlapping(2.0 / 10.0),
        );
        check(&[1.0, 2.0], &[3.0, 4.0], Chance::Apart(1.0 / 16.0));
        assert_eq!(signs(&[1.0, 2.0, 3.0]), Chance::Apart(0.125));
        // −1, 2, 3: sums of 4 or more are 4 and 6.
        assert_eq!(signs(&[-1.0, 2.0, 3.0]), Chance::Overlapping(2.0 / 8.0));
        assert_eq!(signs(&[0.0, 0.0]), Chance::Overlapping(1.0));
    }
}
