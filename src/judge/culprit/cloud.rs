//! What is unknown of a search, as weighted particles: both levels, the scale, tails and modes of the
//! noise, and a drift.
//!
//! The particles are drawn anew by their weights and moved by Metropolis steps when few of them carry the weight
//! (Chopin, 2002, "A sequential particle filter method for static models").

use std::f64::consts::PI;

use statrs::function::gamma::ln_gamma;

use crate::base::random::Random;
use crate::judge::stats;

/// Samples of an end without which nothing can be said.
pub const END_SAMPLES_MIN: usize = 3;

pub const PARTICLES: usize = 1000;
/// Metropolis steps of a move; whole steps and small ones take turns.
const STEPS: usize = 4;
const STEP_SIZES: [f64; 2] = [0.9, 0.4];
/// Degrees of freedom that the noise may have, equally likely beforehand.
const TAILS: [f64; 7] = [1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 30.0];
/// A shift is Cauchy beforehand, with so many scales for its own.
const SHIFT_SCALES: f64 = 2.0;
/// The scale is at least this share of the shift at the ends: values that agree to the last digit do not make
/// one measurement worth more than that.
const SCALE_MIN: f64 = 0.01;
/// Where there is a drift its slope is Cauchy beforehand, with so many scales a run for its own.
const SLOPE_SCALES: f64 = 0.03;
/// How often a step lets a drift come or go.
const DRIFT_TURNS: f64 = 0.3;
/// The probability that the noise has two modes. The second one has at most half of the samples, and its distance from the
/// first is Cauchy beforehand, with so many scales for its own.
const MODES: f64 = 0.25;
const SHARE_MAX: f64 = 0.5;
const GAP_SCALES: f64 = 5.0;
/// How often a step lets a second mode come or go.
const MODE_TURNS: f64 = 0.3;
/// A proposed distance is that of two samples of a commit, give or take so many scales; so many pairs are looked at.
const GAP_WIDTH: f64 = 0.7;
const PAIRS_MAX: usize = 64;
/// Steps of the distance, in scales, and of the share.
const GAP_STEP: f64 = 0.3;
const SHARE_STEP: f64 = 0.05;

/// What is assumed before the first measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assumptions {
    /// The probability that no commit moved the level.
    pub none: f64,
    /// The probability that the level drifts while it is measured.
    pub drift: f64,
    /// A smaller shift counts as none. On the scale of the values.
    pub shift_min: f64,
}

/// When a sample was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// In this search, after all that were added before.
    Now,
    /// Before it. A bad end that is of the past may be so for another reason than a commit.
    Past,
}

/// A sample of a commit.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    pub at: usize,
    pub value: f64,
    pub age: Age,
    /// Runs of this search before it.
    pub time: f64,
}

/// What the particles stand for: assumptions and samples.
pub struct Evidence {
    pub assumptions: Assumptions,
    /// Of each commit before any measurement; the first is the good end's, 0.
    pub prior: Vec<f64>,
    pub observed: Vec<Observed>,
}

/// One guess of what is unknown.
#[derive(Clone, Copy, Debug)]
pub struct Particle {
    pub good: f64,
    pub bad: f64,
    pub ln_scale: f64,
    /// A run's change of all levels; 0 without a drift.
    pub slope: f64,
    /// Index into [`TAILS`].
    tails: usize,
    /// Where the second mode of the noise is, from the first; 0 where there is only one.
    gap: f64,
    /// The share of samples in the second mode.
    share: f64,
    pub ln_weight: f64,
}

/// A measured commit: the log-likelihood of its samples at either level, for each particle.
pub struct Position {
    pub at: usize,
    good: Vec<f64>,
    bad: Vec<f64>,
}

/// Particles, and what each says of each measured commit.
pub struct Cloud {
    pub particles: Vec<Particle>,
    pub positions: Vec<Position>,
    scale_min: f64,
    random: Random,
}

impl Evidence {
    /// The samples of a commit.
    pub fn samples(&self, at: usize) -> impl Iterator<Item = f64> {
        let own = self.observed.iter().filter(move |sample| sample.at == at);
        own.map(|sample| sample.value)
    }

    /// For each hypothesis that samples tell apart (between two neighbouring positions; none as the last) and
    /// particle: prior times likelihood, as a logarithm.
    pub fn joint(&self, positions: &[Position]) -> Vec<Vec<f64>> {
        let free = 1.0 - self.assumptions.none;
        let all: f64 = self.prior.iter().sum();
        let mut rows = Vec::with_capacity(positions.len());
        let mut sums = vec![0.0; PARTICLES];
        for position in positions {
            add(&mut sums, &position.bad, 1.0);
        }
        for pair in positions.windows(2) {
            add(&mut sums, &pair[0].bad, -1.0);
            add(&mut sums, &pair[0].good, 1.0);
            let prior: f64 = self.prior[pair[0].at + 1..=pair[1].at].iter().sum();
            let ln_prior = if all > 0.0 {
                (free * prior / all).ln()
            } else {
                f64::NEG_INFINITY
            };
            rows.push(sums.iter().map(|sum| sum + ln_prior).collect());
        }
        if let Some(last) = positions.last() {
            add(&mut sums, &last.bad, -1.0);
            add(&mut sums, &last.good, 1.0);
        }
        let ln_none = if all > 0.0 {
            self.assumptions.none.ln()
        } else {
            0.0
        };
        rows.push(sums.iter().map(|sum| sum + ln_none).collect());
        rows
    }

    /// The logarithm of each particle's likelihood, over all hypotheses.
    fn likelihoods(&self, positions: &[Position]) -> Vec<f64> {
        let rows = self.joint(positions);
        let of_one = |particle: usize| {
            let max = rows
                .iter()
                .map(|row| row[particle])
                .fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = rows.iter().map(|row| (row[particle] - max).exp()).sum();
            max + sum.ln()
        };
        (0..PARTICLES).map(of_one).collect()
    }

    fn sums(&self, particles: &[Particle]) -> Vec<Position> {
        let mut positions = Vec::new();
        for sample in &self.observed {
            include(&mut positions, particles, sample);
        }
        positions
    }

    /// The density of the slope: none, or Cauchy.
    fn ln_prior_slope(&self, particle: &Particle) -> f64 {
        let drift = self.assumptions.drift;
        match particle.slope == 0.0 {
            true => (1.0 - drift).ln(),
            false => drift.ln() + ln_cauchy(particle.slope, SLOPE_SCALES * particle.ln_scale.exp()),
        }
    }
}

impl Cloud {
    /// The first particles: about the ends' medians, wider than these are known, weighted by prior over proposal.
    /// None while an end has fewer than [`END_SAMPLES_MIN`].
    pub fn new(evidence: &Evidence, seed: u64) -> Option<Cloud> {
        let last = evidence.prior.len() - 1;
        let ends = [0, last].map(|end| evidence.samples(end).collect::<Vec<f64>>());
        if ends.iter().any(|end| end.len() < END_SAMPLES_MIN) {
            return None;
        }
        let levels = [stats::median(&ends[0])?, stats::median(&ends[1])?];
        let residuals = ends.iter().zip(levels);
        let residuals: Vec<f64> = residuals
            .flat_map(|(end, level)| end.iter().map(move |value| (value - level).abs()))
            .collect();
        let n = residuals.len() as f64;
        let mean_square = residuals.iter().map(|r| r * r).sum::<f64>() / n;
        let largest = levels[0].abs().max(levels[1].abs());
        let scale_min = (SCALE_MIN * (levels[1] - levels[0]).abs())
            .max(largest * 1e-9)
            .max(f64::MIN_POSITIVE);
        let scale = (stats::MAD_TO_SIGMA * stats::median(&residuals)?)
            .max(0.3 * mean_square.sqrt())
            .max(scale_min)
            * (n / (n - 2.0)).sqrt();
        let mut cloud = Cloud {
            particles: Vec::with_capacity(PARTICLES),
            positions: Vec::new(),
            scale_min,
            random: Random(seed),
        };
        let error = ends.map(|end| 1.5 * scale / (end.len() as f64).sqrt());
        let ln_student_4 = |z: f64| -2.5 * (z * z / 4.0).ln_1p();
        for _ in 0..PARTICLES {
            let random = &mut cloud.random;
            let (a, b, e) = (random.student_4(), random.student_4(), random.gauss());
            let ln_scale = (0.9 * scale).ln() + 0.4 * e;
            let slope = match random.uniform() < evidence.assumptions.drift {
                true => SLOPE_SCALES * ln_scale.exp() * random.cauchy(),
                false => 0.0,
            };
            let mut particle = Particle {
                good: levels[0] + error[0] * a,
                bad: levels[1] + error[1] * b,
                ln_scale,
                slope,
                tails: random.below(TAILS.len()),
                gap: 0.0,
                share: 0.0,
                ln_weight: 0.0,
            };
            let proposed = ln_student_4(a) + ln_student_4(b) - 0.5 * e * e;
            // The slope is drawn of its own prior.
            particle.ln_weight = cloud.ln_prior(&particle) - proposed;
            cloud.particles.push(particle);
        }
        cloud.positions = evidence.sums(&cloud.particles);
        Some(cloud)
    }

    /// The density of levels, logarithm of the scale, and modes, but for a constant: a flat good level, a Cauchy shift, a
    /// scale that is as likely in each decade, one mode or two.
    fn ln_prior(&self, particle: &Particle) -> f64 {
        let is_possible = particle.gap == 0.0 || (0.0..SHARE_MAX).contains(&particle.share);
        if particle.ln_scale < self.scale_min.ln() || !is_possible {
            return f64::NEG_INFINITY;
        }
        let scale = particle.ln_scale.exp();
        let shift = (particle.bad - particle.good) / (SHIFT_SCALES * scale);
        let modes = match particle.gap == 0.0 {
            true => (1.0 - MODES).ln(),
            false => MODES.ln() - SHARE_MAX.ln() + ln_cauchy(particle.gap, GAP_SCALES * scale),
        };
        -(shift * shift).ln_1p() - particle.ln_scale + modes
    }

    /// Takes a sample into account.
    pub fn include(&mut self, sample: &Observed) {
        include(&mut self.positions, &self.particles, sample);
    }

    /// Draws particles by their weights, and moves each by steps that keep the posterior as it is (Metropolis).
    pub fn make_moves(&mut self, evidence: &Evidence) {
        let known = evidence.likelihoods(&self.positions);
        let weights: Vec<f64> = (self.particles.iter().zip(known))
            .map(|(particle, known)| particle.ln_weight + known)
            .collect();
        let mut particles = self.drawn(&weights);
        let root = root_of_covariance(&particles);
        let density = |cloud: &Self, particles: &[Particle]| -> Vec<f64> {
            let known = evidence.likelihoods(&evidence.sums(particles));
            let one = |(particle, known)| {
                known + cloud.ln_prior(particle) + evidence.ln_prior_slope(particle)
            };
            particles.iter().zip(known).map(one).collect()
        };
        let mut now = density(self, &particles);
        let distances = self.distances(evidence);
        for step in 0..STEPS {
            let slopes = particles.iter().map(|particle| particle.slope);
            let slopes: Vec<f64> = slopes.filter(|slope| *slope != 0.0).collect();
            let spread = stats::stddev(&slopes).filter(|spread| *spread > 0.0);
            let typical = particles[0].ln_scale.exp() * SLOPE_SCALES;
            let spread = spread.unwrap_or(typical);
            let mut moved = particles.clone();
            let mut ways_back = Vec::with_capacity(PARTICLES);
            for particle in &mut moved {
                self.step(particle, STEP_SIZES[step % 2], &root);
                if step % 2 == 1 {
                    particle.tails = self.random.below(TAILS.len());
                }
                let turn = self.random.uniform();
                let turns_mode = turn < MODE_TURNS && !distances.is_empty();
                let turns_drift = evidence.assumptions.drift > 0.0 && turn > 1.0 - DRIFT_TURNS;
                ways_back.push(match (turns_mode, turns_drift) {
                    (true, _) => self.turn_mode(particle, &distances),
                    (false, true) => self.turn_drift(particle, spread),
                    (false, false) => 0.0,
                });
            }
            let then = density(self, &moved);
            for i in 0..PARTICLES {
                if self.random.uniform().ln() < then[i] - now[i] + ways_back[i] {
                    (particles[i], now[i]) = (moved[i], then[i]);
                }
            }
        }
        self.positions = evidence.sums(&particles);
        let known = evidence.likelihoods(&self.positions);
        for (particle, known) in particles.iter_mut().zip(known) {
            // They are of the posterior: with the likelihood, which reading adds, all weigh the same.
            particle.ln_weight = -known;
        }
        self.particles = particles;
    }

    /// As many particles, each as often as its weight says (systematic resampling: Carpenter, Clifford & Fearnhead, 1999).
    fn drawn(&mut self, ln_weights: &[f64]) -> Vec<Particle> {
        let max = ln_weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = ln_weights
            .iter()
            .map(|weight| (weight - max).exp())
            .collect();
        let each = weights.iter().sum::<f64>() / PARTICLES as f64;
        let mut goal = self.random.uniform() * each;
        let (mut sum, mut drawn) = (0.0, Vec::with_capacity(PARTICLES));
        for (particle, weight) in self.particles.iter().zip(weights) {
            sum += weight;
            while goal <= sum && drawn.len() < PARTICLES {
                drawn.push(*particle);
                goal += each;
            }
        }
        drawn.resize(PARTICLES, self.particles[PARTICLES - 1]);
        drawn
    }

    /// Proposes another place for a particle, as likely as the way back.
    fn step(&mut self, particle: &mut Particle, size: f64, root: &[[f64; 4]; 4]) {
        let normal = [(); 4].map(|()| size * self.random.gauss());
        let along = |row: &[f64; 4]| row.iter().zip(normal).map(|(a, b)| a * b).sum::<f64>();
        particle.good += along(&root[0]);
        particle.bad += along(&root[1]);
        particle.ln_scale += along(&root[2]);
        if particle.slope != 0.0 {
            particle.slope += along(&root[3]);
        }
        if particle.gap != 0.0 {
            particle.gap += size * GAP_STEP * particle.ln_scale.exp() * self.random.gauss();
            particle.share += size * SHARE_STEP * self.random.gauss();
        }
    }

    /// Proposes that a particle has a drift, or has none; returns the logarithm of how much likelier the way back is.
    fn turn_drift(&mut self, particle: &mut Particle, width: f64) -> f64 {
        let before = particle.slope;
        if before == 0.0 {
            particle.slope = width * self.random.cauchy();
            return -ln_cauchy(particle.slope, width);
        }
        particle.slope = 0.0;
        ln_cauchy(before, width)
    }

    /// Differences of two samples of one commit, some of all.
    fn distances(&mut self, evidence: &Evidence) -> Vec<f64> {
        let samples = &evidence.observed;
        let drawn = (0..20 * PAIRS_MAX).map(|_| {
            let of = [(); 2].map(|()| samples[self.random.below(samples.len())]);
            (of[0].at == of[1].at).then(|| of[1].value - of[0].value)
        });
        let apart = drawn.flatten().filter(|distance| *distance != 0.0);
        apart.take(PAIRS_MAX).collect()
    }

    /// Proposes that the noise has two modes, or one; returns the logarithm of how much likelier the way back is. Half of
    /// the proposals keep the mean where it is and let the scale of a mode be e times smaller than that of all.
    fn turn_mode(&mut self, particle: &mut Particle, distances: &[f64]) -> f64 {
        let keeps_mean = self.random.uniform() < 0.5;
        let narrow = |particle: &mut Particle, sign: f64| {
            if keeps_mean {
                particle.good -= sign * particle.share * particle.gap;
                particle.bad -= sign * particle.share * particle.gap;
                particle.ln_scale -= sign;
            }
        };
        let ln_proposed = |particle: &Particle, ln_scale: f64| {
            let width = GAP_WIDTH * ln_scale.exp();
            let one = |distance: &f64| (-0.5 * ((particle.gap - distance) / width).powi(2)).exp();
            let sum: f64 = distances.iter().map(one).sum();
            let density = sum / distances.len() as f64 / width / (2.0 * PI).sqrt();
            density.max(f64::MIN_POSITIVE).ln() - SHARE_MAX.ln()
        };
        if particle.gap == 0.0 {
            let ln_scale = particle.ln_scale - if keeps_mean { 1.0 } else { 0.0 };
            let near = distances[self.random.below(distances.len())];
            particle.gap = near + GAP_WIDTH * ln_scale.exp() * self.random.gauss();
            particle.share = SHARE_MAX * self.random.uniform();
            narrow(particle, 1.0);
            return -ln_proposed(particle, ln_scale);
        }
        let way_back = ln_proposed(particle, particle.ln_scale);
        narrow(particle, -1.0);
        (particle.gap, particle.share) = (0.0, 0.0);
        way_back
    }

    pub fn mean(&self, weights: &[f64], of: impl Fn(&Particle) -> f64) -> f64 {
        let each = self.particles.iter().zip(weights);
        each.map(|(particle, weight)| weight * of(particle)).sum()
    }

    pub fn variance(&self, weights: &[f64], of: impl Fn(&Particle) -> f64) -> f64 {
        let mean = self.mean(weights, &of);
        self.mean(weights, |particle| (of(particle) - mean).powi(2))
    }

    pub fn quantiles<const N: usize>(
        &self,
        weights: &[f64],
        of: impl Fn(&Particle) -> f64,
        shares: [f64; N],
    ) -> [f64; N] {
        let each = self.particles.iter().map(of).zip(weights);
        let mut each: Vec<(f64, f64)> = each.map(|(value, weight)| (value, *weight)).collect();
        each.sort_by(|a, b| a.0.total_cmp(&b.0));
        shares.map(|share| {
            let mut sum = 0.0;
            let found = each.iter().find(|(_, weight)| {
                sum += weight;
                sum >= share
            });
            found.or(each.last()).map_or(f64::NAN, |(value, _)| *value)
        })
    }
}

fn add(sums: &mut [f64], values: &[f64], factor: f64) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += factor * value;
    }
}

/// Adds a sample to its position, which is made where it is missing.
fn include(positions: &mut Vec<Position>, particles: &[Particle], sample: &Observed) {
    let i = positions.partition_point(|position| position.at < sample.at);
    if positions
        .get(i)
        .is_none_or(|position| position.at != sample.at)
    {
        let zeros = vec![0.0; particles.len()];
        let at = sample.at;
        let position = Position {
            at,
            good: zeros.clone(),
            bad: zeros,
        };
        positions.insert(i, position);
    }
    let constants = TAILS.map(|degrees| {
        ln_gamma((degrees + 1.0) / 2.0) - ln_gamma(degrees / 2.0) - 0.5 * (degrees * PI).ln()
    });
    let Position { good, bad, .. } = &mut positions[i];
    for ((particle, good), bad) in particles.iter().zip(good).zip(bad) {
        let degrees = TAILS[particle.tails];
        let drifted = if sample.age == Age::Now {
            particle.slope * sample.time
        } else {
            0.0
        };
        let value = sample.value - drifted;
        let scale = particle.ln_scale.exp();
        let of_mode = |level: f64| {
            let z = (value - level) / scale;
            constants[particle.tails]
                - particle.ln_scale
                - (degrees + 1.0) / 2.0 * (z * z / degrees).ln_1p()
        };
        let ln_density = |level: f64| match particle.gap == 0.0 {
            true => of_mode(level),
            false => {
                let first = (1.0 - particle.share).ln() + of_mode(level);
                let second = particle.share.ln() + of_mode(level + particle.gap);
                first.max(second) + (-(first - second).abs()).exp().ln_1p()
            }
        };
        let at_bad = ln_density(particle.bad);
        *bad += at_bad;
        // What was bad in the past is bad under "none" too.
        let is_bound = sample.age == Age::Now || sample.at == 0;
        *good += if is_bound {
            ln_density(particle.good)
        } else {
            at_bad
        };
    }
}

fn ln_cauchy(x: f64, width: f64) -> f64 {
    -(x / width).powi(2).ln_1p() - (PI * width).ln()
}

/// L with LLᵀ the particles' covariance of (good, bad, ln scale, slope), by Cholesky.
fn root_of_covariance(particles: &[Particle]) -> [[f64; 4]; 4] {
    let n = particles.len() as f64;
    let rows = particles
        .iter()
        .map(|p| [p.good, p.bad, p.ln_scale, p.slope]);
    let rows: Vec<[f64; 4]> = rows.collect();
    let mean = |i: usize| rows.iter().map(|row| row[i]).sum::<f64>() / n;
    let means = [mean(0), mean(1), mean(2), mean(3)];
    let covariance = |i: usize, j: usize| {
        let products = rows
            .iter()
            .map(|row| (row[i] - means[i]) * (row[j] - means[j]));
        products.sum::<f64>() / n
    };
    let mut root = [[0.0; 4]; 4];
    for i in 0..4 {
        for j in 0..=i {
            let rest = covariance(i, j) - (0..j).map(|k| root[i][k] * root[j][k]).sum::<f64>();
            root[i][j] = match i == j {
                true => rest.max(1e-12 * covariance(i, i)).sqrt(),
                false if root[j][j] > 0.0 => rest / root[j][j],
                false => 0.0,
            };
        }
    }
    root
}
