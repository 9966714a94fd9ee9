//! Where a change of level is: the posterior of its place, and the credible set of places.

use super::noise::SeriesNoise;
use super::stats;

/// The share of the posterior that a credible set holds.
pub const CREDIBLE: f64 = 0.95;

/// Points on either side of a change that its levels are taken from, and that its place is looked for among.
const REACH: usize = 100;

/// Degrees of freedom of Student's t that the noise is taken for: real noise has heavy tails.
const DEGREES: f64 = 3.0;

/// Squares of deviations in sigma are cut here, so that no number overflows.
const FAR: f64 = 1e30;

/// Rounds of finding the place and taking the levels anew.
const ROUNDS_MAX: usize = 4;

/// Where a change is.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The most likely first point after the change, and how likely it is.
    pub index: usize,
    pub probability: f64,
    /// The fewest places that hold [`CREDIBLE`] of the posterior together, ascending, and the share of each.
    pub set: Vec<usize>,
    pub shares: Vec<f64>,
}

impl Place {
    /// The same where point i is the `indexes[i]`th of a series.
    pub fn mapped(&self, indexes: &[usize]) -> Place {
        Place {
            index: indexes[self.index],
            probability: self.probability,
            set: self.set.iter().map(|point| indexes[*point]).collect(),
            shares: self.shares.clone(),
        }
    }
}

/// The place of the only change among the points `begin..end`, known to be near `at`, with at least `shortest` points on
/// either side.
///
/// P(τ) ∝ Π over i < τ of t((xᵢ − a)/σ) · Π over i ≥ τ of t((xᵢ − b)/σ), to the power of 1/√f: neighbours that are alike
/// say that much less (f as in [`changes`](super::changepoint::changes); by the whole of f sets hold .97 to .98). a and b
/// are medians of the points before and after the most likely place, t is Student's density ([`DEGREES`]), all places are
/// as likely beforehand.
pub fn locate(
    x: &[f64],
    [begin, end]: [usize; 2],
    at: usize,
    noise: &SeriesNoise,
    shortest: usize,
) -> Place {
    let mut index = at;
    let mut posterior = Vec::new();
    let (low, high) = (begin + shortest, end - shortest);
    let (low, high) = (low.max(at.saturating_sub(REACH)), high.min(at + REACH));
    for _ in 0..ROUNDS_MAX {
        let level = |points: &[f64]| stats::median(points).unwrap_or(0.0);
        let before = level(&x[begin.max(index.saturating_sub(REACH))..index]);
        let after = level(&x[index..end.min(index + REACH)]);
        let weight = (DEGREES + 1.0) / 2.0 / noise.inflation().sqrt();
        let term = |level: f64, i: usize| DEGREES + ((x[i] - level) / noise.sigma).powi(2).min(FAR);
        // Of the first place 0: each further one has one more point before it.
        let mut log = 0.0;
        let logs = (low..=high).map(|place| {
            if place > low {
                log += weight * (term(after, place - 1) / term(before, place - 1)).ln();
            }
            log
        });
        posterior = logs.collect();
        let most = (0..posterior.len()).max_by(|a, b| posterior[*a].total_cmp(&posterior[*b]));
        let most = low + most.unwrap_or(0);
        if std::mem::replace(&mut index, most) == most {
            break;
        }
    }
    credible(&posterior, low)
}

/// The set of a posterior, given as logarithms of anything proportional to it, of the places from `first` on.
pub fn credible(logs: &[f64], first: usize) -> Place {
    let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // What is no number (squares that overflow) tells no place from another.
    let share = |log: &f64| {
        if top.is_finite() {
            (log - top).exp().max(0.0)
        } else {
            1.0
        }
    };
    let shares: Vec<f64> = logs.iter().map(share).collect();
    let total: f64 = shares.iter().sum();
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|a, b| shares[*b].total_cmp(&shares[*a]).then(a.cmp(b)));
    let mut sum = 0.0;
    let mut set = Vec::new();
    for i in &order {
        set.push(first + i);
        sum += shares[*i] / total;
        if sum >= CREDIBLE {
            break;
        }
    }
    let index = set.first().copied().unwrap_or(first);
    set.sort_unstable();
    Place {
        index,
        probability: order.first().map_or(0.0, |i| shares[*i] / total),
        shares: set.iter().map(|i| shares[i - first] / total).collect(),
        set,
    }
}
