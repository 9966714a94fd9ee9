//! The noise of a series: how wide it is and how alike neighbours are, its modes, and whether changes stand out of it.

use super::changepoint::DetectorOptions;
use super::stats;
use super::trend::criterion;

/// The autocorrelation that is believed at the most.
const RHO_MAX: f64 = 0.9;

/// What is left of a series about its levels.
#[derive(Clone, Copy)]
pub struct SeriesNoise {
    pub sigma: f64,
    /// Lag-1 autocorrelation, 0 to 0.9.
    pub rho: f64,
}

impl SeriesNoise {
    /// From residuals about segment medians.
    pub fn within(x: &[f64], starts: &[usize], fallback: f64) -> Self {
        SeriesNoise::of(&residuals(x, starts), fallback)
    }

    /// Sigma by MAD, ρ of residuals clipped at 3 sigma.
    pub fn of(residuals: &[f64], fallback: f64) -> Self {
        let sigma = stats::mad(residuals).unwrap_or(0.0) * stats::MAD_TO_SIGMA;
        let sigma = if sigma > 0.0 { sigma } else { fallback };
        let clipped: Vec<f64> = residuals
            .iter()
            .map(|r| r.clamp(-3.0 * sigma, 3.0 * sigma))
            .collect();
        let products: f64 = clipped.windows(2).map(|pair| pair[0] * pair[1]).sum();
        let squares: f64 = clipped.iter().map(|r| r * r).sum();
        let rho = if squares > 0.0 {
            products / squares
        } else {
            0.0
        };
        SeriesNoise {
            sigma,
            rho: rho.clamp(0.0, RHO_MAX),
        }
    }

    /// f of [`changes`].
    pub fn inflation(&self) -> f64 {
        (1.0 + self.rho) / (1.0 - self.rho)
    }
}

/// Sigma of the noise from steps between neighbours, which a change of level hardly touches:
/// quantiles of |xᵢ₊₁ − xᵢ|/√2 (Rice, 1984, made robust). The median, or the first higher quantile
/// that is not zero where the resolution is coarse; for a series of exact levels half its smallest
/// step. None where nothing ever changes.
pub fn step_sigma(x: &[f64]) -> Option<f64> {
    let mut steps: Vec<f64> = x.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    // Quantile and the standard normal's quantile at that share of |z|.
    let by_quantile = [(0.5, 0.6745), (0.75, 1.1503), (0.9, 1.6449)]
        .into_iter()
        .filter(|_| x.len() > 1)
        .map(|(q, z)| {
            let at = (q * steps.len() as f64) as usize;
            *steps.select_nth_unstable_by(at, f64::total_cmp).1 / z
        })
        .find(|sigma| *sigma > 0.0);
    let smallest = || {
        let moved = steps.iter().copied().filter(|step| *step > 0.0);
        moved.min_by(f64::total_cmp).map(|step| step / 2.0)
    };
    by_quantile
        .or_else(smallest)
        .map(|sigma| sigma / std::f64::consts::SQRT_2)
}

/// Points whose spread is taken together, where it changes along a series.
const BLOCK: usize = 40;

/// Spreads of blocks within this factor of that of the whole series are the same.
const SAME_SPREAD: f64 = 1.6;

/// No noise explains a step of so many sigma.
const LARGE: f64 = 8.0;

/// Sigma of a normal distribution / its mean deviation: √(π/2).
const MEAN_TO_SIGMA: f64 = 1.2533;

/// Noise whose neighbours are so alike wanders, and a series whose points are is a walk.
const RHO_MIN: f64 = 0.4;
const RHO_WALK: f64 = 0.95;

/// Takes out changes that wandering noise, or noise that is wider there, explains as well; the least clear one first.
///
/// A change stands where its gain is `penalty`·ln n or more, each point between its neighbours in units of the spread of
/// its block. Where neighbours are hardly alike, the gain is what clipped squares about two levels are less than about
/// one, as [`changes`](super::changepoint::changes) has it; else by how much autoregression about two levels describes
/// the points better than autoregression about one ([`criterion`]). A walk that never comes back explains everything, and
/// takes out nothing.
pub fn vet(x: &[f64], starts: &mut Vec<usize>, mut noise: SeriesNoise, options: &DetectorOptions) {
    while !starts.is_empty() {
        let residuals = residuals(x, starts);
        let blocks = residuals.chunks(BLOCK);
        let spreads: Vec<f64> = blocks.map(|block| spread(block, noise.sigma)).collect();
        let wanders = noise.rho >= RHO_MIN;
        if !wanders && spreads.iter().all(|spread| *spread == noise.sigma) {
            return;
        }
        let gain = |i: usize| {
            let begin = if i == 0 { 0 } else { starts[i - 1] };
            let end = starts.get(i + 1).copied().unwrap_or(x.len());
            let rests = |starts: &[usize]| -> Vec<f64> {
                let rests = self::residuals(&x[begin..end], starts).into_iter();
                let rests = rests.zip(begin..);
                rests.map(|(rest, at)| rest / spreads[at / BLOCK]).collect()
            };
            let level = |points: &[f64]| stats::median(points).unwrap_or(0.0);
            let size = (level(&x[starts[i]..end]) - level(&x[begin..starts[i]])).abs();
            let widest = spreads[begin / BLOCK..=(end - 1) / BLOCK].iter().copied();
            if size >= LARGE * widest.fold(0.0, f64::max) {
                return f64::INFINITY;
            }
            let (one, two) = (rests(&[]), rests(&[starts[i] - begin]));
            if wanders {
                let products: f64 = one.windows(2).map(|pair| pair[0] * pair[1]).sum();
                let squares: f64 = one.iter().map(|rest| rest * rest).sum();
                let is_walk = products > RHO_WALK * squares;
                let better = criterion(&one, 1, LEAST) - criterion(&two, 3, LEAST);
                // The criterion counts two numbers, the level and the place, at ln n each.
                let own = 2.0 * ((end - begin) as f64).ln();
                return if is_walk { f64::INFINITY } else { better + own };
            }
            let limit = options.clip.powi(2) * noise.inflation().sqrt();
            let loss = |rests: &[f64]| {
                rests
                    .iter()
                    .map(|rest| (rest * rest).min(limit))
                    .sum::<f64>()
            };
            (loss(&one) - loss(&two)) / noise.inflation()
        };
        let gains = (0..starts.len()).map(|i| (i, gain(i)));
        let least = gains.min_by(|a, b| a.1.total_cmp(&b.1));
        match least.filter(|(_, gain)| *gain < options.penalty * (x.len() as f64).ln()) {
            Some((i, _)) => starts.remove(i),
            None => return,
        };
        noise = SeriesNoise::within(x, starts, noise.sigma);
    }
}

/// Innovations are at least this share of the spread.
const LEAST: f64 = 0.01;

/// That of a block, or of the whole where they are alike or the block is too short to tell.
fn spread(block: &[f64], whole: f64) -> f64 {
    let is_other = |own: f64| own * SAME_SPREAD < whole || own > whole * SAME_SPREAD;
    let mean = block.iter().map(|rest| rest.abs()).sum::<f64>() / block.len() as f64;
    // The mean needs no sorting, and as a rule that is all.
    if 2 * block.len() < BLOCK || !is_other(mean * MEAN_TO_SIGMA) {
        return whole;
    }
    let absolute: Vec<f64> = block.iter().map(|rest| rest.abs()).collect();
    let own = stats::MAD_TO_SIGMA * stats::median(&absolute).unwrap_or(0.0);
    if is_other(own) && own > 0.0 {
        own
    } else {
        whole
    }
}

/// What is left of points about the medians of their segments.
fn residuals(x: &[f64], starts: &[usize]) -> Vec<f64> {
    let mut residuals = Vec::with_capacity(x.len());
    let mut begin = 0;
    for end in starts.iter().copied().chain([x.len()]) {
        let level = stats::median(&x[begin..end]).unwrap_or(0.0);
        residuals.extend(x[begin..end].iter().map(|value| value - level));
        begin = end;
    }
    residuals
}

/// Modes are so many sigma apart at least, and the series goes from one to the other so often.
const GAP_MIN: f64 = 5.0;
const SWITCHES_MIN: usize = 4;

/// This share of the points at least is of each of them beside its longest stay.
const VISITS_MIN: f64 = 0.1;

/// At most this share of the points lies in the middle third between them.
const VALLEY_MAX: f64 = 0.15;

/// Two levels between which a series goes to and fro.
pub struct Modes {
    pub levels: [f64; 2],
    /// Whether each point is of the higher one.
    is_high: Vec<bool>,
}

/// The modes of a series: two means (Lloyd, 1982) from two levels on, told by medians. None where they are not [`GAP_MIN`]
/// robust sigma apart, or hardly ever follow each other: a few such switches are changes.
pub fn modes(x: &[f64], [low, high]: [f64; 2]) -> Option<Modes> {
    // Most series have no valley, and are done with here.
    let third = (high - low) / 3.0;
    let in_valley = x
        .iter()
        .filter(|x| (low + third..high - third).contains(*x))
        .count();
    if third <= 0.0 || in_valley as f64 > VALLEY_MAX * x.len() as f64 {
        return None;
    }
    let mut levels = [low, high];
    let mut is_high = Vec::new();
    for _ in 0..ROUNDS {
        let middle = (levels[0] + levels[1]) / 2.0;
        is_high = x.iter().map(|value| *value > middle).collect();
        let of = |high: bool| -> Vec<f64> {
            let own = x.iter().zip(&is_high).filter(|point| *point.1 == high);
            own.map(|point| *point.0).collect()
        };
        levels = [stats::median(&of(false))?, stats::median(&of(true))?];
    }
    let switches = is_high.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let rest = |(value, high): (&f64, &bool)| value - levels[usize::from(*high)];
    let rests: Vec<f64> = x.iter().zip(&is_high).map(rest).collect();
    let sigma = stats::MAD_TO_SIGMA * stats::mad(&rests)?;
    // A level and some spikes as high are no modes: each is visited more than once.
    let visits = |mode: bool| {
        let runs = is_high.chunk_by(|a, b| a == b).filter(|run| run[0] == mode);
        let (all, longest) = runs.fold((0, 0), |(all, longest), run| {
            (all + run.len(), longest.max(run.len()))
        });
        (all - longest) as f64 >= VISITS_MIN * x.len() as f64
    };
    let are_modes = switches >= SWITCHES_MIN
        && visits(false)
        && visits(true)
        && levels[1] - levels[0] >= GAP_MIN * sigma;
    are_modes.then_some(Modes { levels, is_high })
}

/// Rounds of parting the points and taking the levels anew.
const ROUNDS: usize = 4;

impl Modes {
    /// The series as if all of it were of the lower mode.
    pub fn taken_out(&self, x: &[f64]) -> Vec<f64> {
        let gap = self.levels[1] - self.levels[0];
        let plain = |(value, high): (&f64, &bool)| if *high { value - gap } else { *value };
        x.iter().zip(&self.is_high).map(plain).collect()
    }

    /// Of some changes those at which it changes how often the modes follow each other: twice the logarithm of the
    /// likelihood of a Markov chain on either side, less that of one on both (Anderson & Goodman, 1957), is
    /// `penalty`·ln n or more. The least clear one goes first. (A chain has two rates where a level is one number.)
    pub fn kept(&self, mut starts: Vec<usize>, penalty: f64) -> Vec<usize> {
        let likelihood = |[begin, end]: [usize; 2]| -> f64 {
            let mut counts = [[0.0f64; 2]; 2];
            for pair in self.is_high[begin..end].windows(2) {
                counts[usize::from(pair[0])][usize::from(pair[1])] += 1.0;
            }
            let term = |count: &f64, sum: f64| {
                if *count > 0.0 {
                    count * (count / sum).ln()
                } else {
                    0.0
                }
            };
            let of_row = |row: &[f64; 2]| {
                row.iter()
                    .map(|count| term(count, row[0] + row[1]))
                    .sum::<f64>()
            };
            counts.iter().map(of_row).sum()
        };
        let n = self.is_high.len();
        loop {
            let gain = |i: usize| {
                let begin = if i == 0 { 0 } else { starts[i - 1] };
                let (at, end) = (starts[i], starts.get(i + 1).copied().unwrap_or(n));
                let apart = likelihood([begin, at]) + likelihood([at, end]);
                2.0 * (apart - likelihood([begin, end]))
            };
            let gains = (0..starts.len()).map(|i| (i, gain(i)));
            let least = gains.min_by(|a, b| a.1.total_cmp(&b.1));
            match least.filter(|(_, gain)| *gain < penalty * (n as f64).ln()) {
                Some((i, _)) => starts.remove(i),
                None => return starts,
            };
        }
    }
}
