//! Which of a line of commits moved a level, or none: the posterior under noise, and what to measure next.
//!
//! The commits are numbered 1 to n; 0 is the good end, and commit n the bad one. Under "commit k" all before k are at
//! the good level and all from k on at the bad one; under "none" all are at the good level. Noise is Student's t, of
//! one mode or two; both levels, its scale, degrees of freedom and modes, and a drift are unknown and integrated over.

mod choice;
mod cloud;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub use choice::Wish;
pub use cloud::{Age, Assumptions, END_SAMPLES_MIN};
use cloud::{Cloud, Evidence, Observed, PARTICLES, Particle};

/// What is known with this probability is known.
pub const CERTAIN: f64 = 0.95;
/// Commits of a search.
pub const CANDIDATES_MAX: usize = 20_000;

/// Fewer equal particles than this are worth no more: they are drawn and moved anew.
const PARTICLES_EQUAL_MIN: f64 = PARTICLES as f64 / 3.0;
/// Moves of the first particles, which have yet to find where the noise has modes.
const FIRST_MOVES: usize = 3;

/// What is known at present.
#[derive(Clone, Debug, PartialEq)]
pub struct Belief {
    /// The probability that no commit moved the level by the smallest shift of interest.
    pub none: f64,
    /// The commits that are the likeliest together, of those that measuring cannot tell apart.
    pub set: Vec<usize>,
    /// Of the set.
    pub probability: f64,
    /// The good level as it was at the first run.
    pub good: f64,
    /// Bad level − good level: the median, and the ends of the 95 % interval.
    pub shift: f64,
    pub shift_ci95: [f64; 2],
    /// The probability that the level drifted during the search.
    pub drift: f64,
}

impl Belief {
    /// Whether the answer is known: a set, or none.
    pub fn is_settled(&self) -> bool {
        self.none.max(self.probability) >= CERTAIN
    }
}

/// A search for one culprit. The same calls with the same seed give the same answers.
pub struct CulpritSearch {
    evidence: Evidence,
    untestable: BTreeSet<usize>,
    /// Samples of this search.
    runs: usize,
    /// None while an end has too few samples.
    cloud: Option<Cloud>,
    /// Samples at the last move of the cloud.
    moved_at: usize,
    /// The probability of each commit, and the particles' weights, at the last reading.
    mass: Vec<f64>,
    weights: Vec<f64>,
    seed: u64,
}

impl CulpritSearch {
    /// Of `candidates` commits, at least 1 and at most [`CANDIDATES_MAX`].
    pub fn new(candidates: usize, assumptions: Assumptions, seed: u64) -> Self {
        let candidates = candidates.clamp(1, CANDIDATES_MAX);
        let mut prior = vec![1.0; candidates + 1];
        prior[0] = 0.0;
        CulpritSearch {
            evidence: Evidence {
                assumptions,
                prior,
                observed: Vec::new(),
            },
            untestable: BTreeSet::new(),
            runs: 0,
            cloud: None,
            moved_at: 0,
            mass: Vec::new(),
            weights: Vec::new(),
            seed,
        }
    }

    fn is_measured(&self, at: usize) -> bool {
        self.evidence.samples(at).next().is_some()
    }

    fn last(&self) -> usize {
        self.evidence.prior.len() - 1
    }

    /// A sample of a commit. One that is not finite says nothing.
    pub fn add(&mut self, at: usize, value: f64, age: Age) {
        if !value.is_finite() || at > self.last() {
            return;
        }
        let sample = Observed {
            at,
            value,
            age,
            time: self.runs as f64,
        };
        self.runs += usize::from(age == Age::Now);
        self.evidence.observed.push(sample);
        if let Some(cloud) = &mut self.cloud {
            cloud.include(&sample);
        }
    }

    /// A commit that cannot be measured any more. One that never was is told apart from none of its neighbours.
    pub fn set_untestable(&mut self, at: usize) {
        self.untestable.insert(at);
    }

    /// Two commits that are the same bytes: nothing between them moved the level.
    pub fn set_alike(&mut self, a: usize, b: usize) {
        let last = self.last();
        let between = a.min(b) + 1..=a.max(b).min(last);
        if !between.is_empty() {
            self.evidence.prior[between].fill(0.0);
        }
    }

    /// What the samples say; None while an end has fewer than [`END_SAMPLES_MIN`].
    pub fn belief(&mut self) -> Option<Belief> {
        let samples = self.evidence.observed.len();
        let mut cloud = match self.cloud.take() {
            Some(cloud) => cloud,
            None => Cloud::new(&self.evidence, self.seed)?,
        };
        let mut belief = None;
        if samples * 2 <= self.moved_at * 3 {
            let read = self.read(&cloud);
            let squares: f64 = self.weights.iter().map(|weight| weight * weight).sum();
            let is_stale = 1.0 / squares < PARTICLES_EQUAL_MIN || read.is_settled();
            belief = Some(read).filter(|_| !is_stale || samples == self.moved_at);
        }
        // Settled is what still is so with other particles: the luck of these is no evidence.
        let belief = belief.unwrap_or_else(|| {
            let moves = if self.moved_at == 0 { FIRST_MOVES } else { 1 };
            for _ in 0..moves {
                cloud.make_moves(&self.evidence);
            }
            self.moved_at = samples;
            self.read(&cloud)
        });
        self.cloud = Some(cloud);
        Some(belief)
    }

    /// Sums the particles up.
    fn read(&mut self, cloud: &Cloud) -> Belief {
        let Evidence {
            prior, assumptions, ..
        } = &self.evidence;
        let mut rows = self.evidence.joint(&cloud.positions);
        for row in &mut rows {
            for (value, particle) in row.iter_mut().zip(&cloud.particles) {
                *value += particle.ln_weight;
            }
        }
        let max = rows
            .iter()
            .flatten()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = rows.iter().flatten().map(|value| (value - max).exp()).sum();
        let is_small =
            |particle: &Particle| (particle.bad - particle.good).abs() < assumptions.shift_min;
        self.mass = vec![0.0; prior.len()];
        self.weights = vec![0.0; PARTICLES];
        for (row, pair) in rows.iter().zip(cloud.positions.windows(2)) {
            let mut probability = 0.0;
            for ((value, particle), weight) in
                row.iter().zip(&cloud.particles).zip(&mut self.weights)
            {
                let own = (value - max).exp() / total;
                *weight += own;
                probability += if is_small(particle) { 0.0 } else { own };
            }
            let between = pair[0].at + 1..=pair[1].at;
            let all: f64 = prior[between.clone()].iter().sum();
            for at in between.filter(|_| all > 0.0) {
                self.mass[at] = probability * prior[at] / all;
            }
        }
        let sum: f64 = self.weights.iter().sum();
        match sum > 0.0 {
            true => self.weights.iter_mut().for_each(|weight| *weight /= sum),
            false => self.weights.fill(1.0 / PARTICLES as f64),
        }
        let (set, probability) = self.likeliest();
        let shift = |particle: &Particle| particle.bad - particle.good;
        let drifts = |particle: &Particle| f64::from(u8::from(particle.slope != 0.0));
        let [low, middle, high] = cloud.quantiles(&self.weights, shift, [0.025, 0.5, 0.975]);
        let [good] = cloud.quantiles(&self.weights, |particle| particle.good, [0.5]);
        Belief {
            none: (1.0 - self.mass.iter().sum::<f64>()).max(0.0),
            set,
            probability,
            good,
            shift: middle,
            shift_ci95: [low, high],
            drift: cloud.mean(&self.weights, drifts),
        }
    }

    /// The likeliest set between two neighbours that can be measured.
    fn likeliest(&self) -> (Vec<usize>, f64) {
        let mut best = (Vec::new(), 0.0);
        let (mut set, mut sum) = (Vec::new(), 0.0);
        for at in 1..=self.last() {
            if self.evidence.prior[at] > 0.0 {
                set.push(at);
                sum += self.mass[at];
            }
            if !self.untestable.contains(&at) || self.is_measured(at) {
                if sum > best.1 {
                    best = (std::mem::take(&mut set), sum);
                }
                set.clear();
                sum = 0.0;
            }
        }
        best
    }
}
