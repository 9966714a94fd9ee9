//! Trends and seasons of a series: straight lines between bends, and what comes back with a period.

use super::changepoint::DetectorOptions;
use super::noise::SeriesNoise;
use super::place::{Place, credible};
use super::stats;

/// Fewest points that a season is looked for in, and fewest periods among them.
const SEASON_POINTS_MIN: usize = 40;
const SEASONS_MIN: usize = 4;

/// The longest period that is looked for.
const PERIOD_MAX: usize = 60;

/// A season has at least this autocorrelation of steps, and a longer period so much more than a shorter one.
const SEASON_MIN: f64 = 0.5;
const SEASON_BETTER: f64 = 0.05;

/// Steps, residuals and innovations beyond so many sigma are clipped.
const CLIP: f64 = 3.0;

/// Bends are looked for at so many places at first, and then about those found.
const PLACES_MAX: usize = 100;

/// Rounds of finding lines and learning their noise anew.
const PASSES_MAX: usize = 8;

/// A line has a slope beside the level and the place of a segment: three numbers instead of two.
const NUMBERS: f64 = 1.5;

/// A straight line through a series with a trend leaves at most this share of its squares. SeriesNoise that wanders, and comes
/// back, leaves more: with 0.9 there are twice as many false points in quiet series (protocol CP).
const TREND_LEAVES: f64 = 0.75;

/// Lines are believed where their [`criterion`] is so much lower: strong evidence (Kass & Raftery, 1995).
const EVIDENCE_MIN: f64 = 6.0;

/// Innovations are at least this share of the steps between neighbours: what a line fits better is no noise.
const INNOVATION_MIN: f64 = 0.01;

/// The series without its season: medians of what is left of a moving average over one period, phase by phase
/// (Macaulay, 1931, made robust). None where no period stands out in the autocorrelation of steps, clipped at 3 sigma
/// of the noise of points. `places` tell the phase: gaps count.
pub fn without_season(x: &[f64], places: &[usize], sigma: f64) -> Option<Vec<f64>> {
    let period = period(x, places, sigma)?;
    let (first, last) = (*places.first()?, *places.last()?);
    let index = |place: usize| places.partition_point(|it| *it < place);
    let mut phases = vec![Vec::new(); period];
    for (value, place) in x.iter().zip(places) {
        let begin = place.saturating_sub(period / 2);
        let begin = begin.max(first).min(last + 1 - period);
        let around = &x[index(begin)..index(begin + period)];
        phases[place % period].push(value - stats::mean(around)?);
    }
    // A phase may have no point at all.
    let season: Vec<Option<f64>> = phases.iter().map(|rests| stats::median(rests)).collect();
    let centre = stats::mean(&season.iter().copied().flatten().collect::<Vec<f64>>())?;
    let plain = |(value, place): (&f64, &usize)| Some(value - (season[place % period]? - centre));
    x.iter().zip(places).map(plain).collect()
}

/// The shortest period that stands out, in places: a peak of the autocorrelation of steps. A step after a gap is that
/// from the last point before it; pairs of places of which one is a gap are left out.
fn period(x: &[f64], places: &[usize], sigma: f64) -> Option<usize> {
    let (first, span) = (places.first()?, places.last()? - places.first()? + 1);
    let longest = (span / SEASONS_MIN).min(PERIOD_MAX);
    let steps: Vec<f64> = x.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let centre = stats::median(&steps)?;
    let limit = CLIP * std::f64::consts::SQRT_2 * sigma;
    let clip = |step: &f64| (step - centre).clamp(-limit, limit);
    if x.len() < SEASON_POINTS_MIN || !limit.is_finite() {
        return None;
    }
    let (mut by_place, mut known) = (vec![0.0; span - 1], vec![0.0; span - 1]);
    for (place, step) in places[1..].iter().zip(&steps) {
        by_place[place - first - 1] = clip(step);
        known[place - first - 1] = 1.0;
    }
    let mean_product = |lag: usize| -> f64 {
        let pairs = match span == x.len() {
            true => (steps.len() - lag) as f64,
            false => products(&known, lag),
        };
        // Few pairs correlate by chance.
        let enough = 2.0 * pairs >= steps.len() as f64;
        if enough {
            products(&by_place, lag) / pairs
        } else {
            0.0
        }
    };
    let all: Vec<f64> = (0..=longest + 1).map(mean_product).collect();
    let mut found = None;
    let mut least = SEASON_MIN;
    for lag in 3..=longest {
        let is_peak = all[lag] > all[lag - 1] && all[lag] >= all[lag + 1];
        if is_peak && all[lag] / all[0] >= least {
            (found, least) = (Some(lag), all[lag] / all[0] + SEASON_BETTER);
        }
    }
    found
}

/// Sum of the products of values that are `lag` apart.
fn products(values: &[f64], lag: usize) -> f64 {
    // Sums side by side run on vectors; one sum would not.
    let (late, early) = (&values[lag..], &values[..values.len() - lag]);
    let mut sums = [0.0; 8];
    for (a, b) in late.chunks_exact(8).zip(early.chunks_exact(8)) {
        sums = std::array::from_fn(|i| sums[i] + a[i] * b[i]);
    }
    let rest = late.len() / 8 * 8;
    let rest = late[rest..].iter().zip(&early[rest..]).map(|(a, b)| a * b);
    sums.iter().sum::<f64>() + rest.sum::<f64>()
}

/// Where straight lines end in a bend or a jump, where such lines describe the series better than the segments that
/// begin at `levels` do, and there is a bend at all; else None. `medians` are those of windows of
/// `min_segment` points, `sigma` is the noise of steps.
///
/// As [`changes`](super::changepoint::changes) finds levels, with squares instead of clipped losses, at 1.5 times its
/// penalty, with lines of at least twice its points; wild points are first drawn to within 3 sigma of their
/// neighbours' median. Without a trend in the whole there are none. Which describes the series better is told by [`criterion`].
pub fn bends(
    x: &[f64],
    medians: &[f64],
    sigma: f64,
    levels: &[usize],
    options: &DetectorOptions,
) -> Option<Vec<Place>> {
    let shortest = 2 * options.min_segment.max(1);
    let n = x.len();
    if n < 2 * shortest {
        return None;
    }
    let last = medians.len() - 1;
    let tame = |(i, value): (usize, &f64)| {
        let median = medians[i.saturating_sub(options.min_segment / 2).min(last)];
        value.max(median - CLIP * sigma).min(median + CLIP * sigma)
    };
    let lines = Lines::of(x.iter().enumerate().map(tame).collect());
    let whole = lines.fit(0, n);
    // Squares that overflow are no numbers, and no trend.
    let has_trend = whole.about_line <= TREND_LEAVES * whole.about_mean;
    if !has_trend {
        return None;
    }
    let mut noise = lines.noise(sigma)?;
    let mut starts = Vec::new();
    for _ in 0..PASSES_MAX {
        let beta = NUMBERS * options.penalty * (n as f64).ln();
        let beta = beta * noise.inflation() * noise.sigma.powi(2);
        let before = std::mem::replace(&mut starts, lines.segment(beta, shortest));
        if starts == before {
            break;
        }
        noise = SeriesNoise::of(&lines.residuals(&starts, true), noise.sigma);
    }
    let least = INNOVATION_MIN * sigma;
    if starts.is_empty() {
        return None;
    }
    let of_lines = criterion(&lines.residuals(&starts, true), 3 * starts.len() + 2, least);
    let of_levels = criterion(&lines.residuals(levels, false), 2 * levels.len() + 1, least);
    (of_lines + EVIDENCE_MIN <= of_levels).then(|| lines.locate(&starts, &noise, shortest))
}

/// n·ln s² + k·ln n (Schwarz, 1978) of residuals with autoregression of the order 0, 1 or 2 that gives the least:
/// s² is the mean square of the innovations, clipped at 3 sigma and at least `least`², k counts `numbers` and the
/// order. SeriesNoise that wanders is no reason for more lines, nor is a bow that two coefficients follow.
pub fn criterion(residuals: &[f64], numbers: usize, least: f64) -> f64 {
    let n = residuals.len() as f64;
    let product = |a: usize, b: usize| -> f64 {
        let end = residuals.len();
        let pairs = residuals[2 - a..end - a]
            .iter()
            .zip(&residuals[2 - b..end - b]);
        pairs.map(|(a, b)| a * b).sum()
    };
    let (p11, p12, p22) = (product(1, 1), product(1, 2), product(2, 2));
    let (p01, p02) = (product(0, 1), product(0, 2));
    let det = p11 * p22 - p12 * p12;
    let fits = [
        (0.0, 0.0),
        (p01 / p11, 0.0),
        ((p01 * p22 - p02 * p12) / det, (p02 * p11 - p01 * p12) / det),
    ];
    let one = |(order, (a, b)): (usize, (f64, f64))| {
        let innovations: Vec<f64> = residuals
            .windows(3)
            .map(|w| w[2] - a * w[1] - b * w[0])
            .collect();
        let sigma = stats::MAD_TO_SIGMA * stats::mad(&innovations).unwrap_or(0.0);
        let limit = CLIP * sigma.max(least);
        let squares: Vec<f64> = innovations
            .iter()
            .map(|e| e.abs().min(limit).powi(2))
            .collect();
        let square = stats::mean(&squares).unwrap_or(0.0).max(least * least);
        n * square.ln() + (numbers + order) as f64 * n.ln()
    };
    let all = fits.into_iter().enumerate().map(one);
    // A fit that cannot be made is no number, and f64::min passes it over.
    all.fold(f64::INFINITY, f64::min)
}

/// A series to lay lines through.
struct Lines {
    x: Vec<f64>,
    /// Sums of the points before each place, of their squares and of their products with the place.
    sums: Vec<[f64; 3]>,
}

/// The line by least squares through some neighbouring points.
struct Fit {
    mean: f64,
    slope: f64,
    /// Sums of squares about the mean and about the line.
    about_mean: f64,
    about_line: f64,
}

impl Lines {
    fn of(x: Vec<f64>) -> Self {
        let mut sums = vec![[0.0; 3]];
        let mut sum = [0.0; 3];
        for (i, value) in x.iter().enumerate() {
            sum = [
                sum[0] + value,
                sum[1] + value * value,
                sum[2] + value * i as f64,
            ];
            sums.push(sum);
        }
        Lines { x, sums }
    }

    fn fit(&self, begin: usize, end: usize) -> Fit {
        let sum = |i: usize| self.sums[end][i] - self.sums[begin][i];
        let n = (end - begin) as f64;
        let mean = sum(0) / n;
        let product = sum(2) - (begin + end - 1) as f64 / 2.0 * sum(0);
        let slope = 12.0 * product / (n * (n * n - 1.0)).max(1.0);
        let about_mean = (sum(1) - sum(0) * mean).max(0.0);
        Fit {
            mean,
            slope,
            about_mean,
            about_line: (about_mean - slope * product).max(0.0),
        }
    }

    /// The noise by second differences, which trends hardly touch: they have six times the variance of a point.
    fn noise(&self, fallback: f64) -> Option<SeriesNoise> {
        let bows: Vec<f64> = self
            .x
            .windows(3)
            .map(|w| w[0] - 2.0 * w[1] + w[2])
            .collect();
        let sigma = stats::MAD_TO_SIGMA * stats::mad(&bows)? / 6.0f64.sqrt();
        let sigma = if sigma > 0.0 { sigma } else { fallback };
        Some(SeriesNoise { sigma, rho: 0.0 })
    }

    /// Starts of all lines but the first at the least Σ of squares + `beta` per bend: by dynamic programming over
    /// evenly spaced places, and then about each bend.
    fn segment(&self, beta: f64, shortest: usize) -> Vec<usize> {
        let n = self.x.len();
        let spacing = n.div_ceil(PLACES_MAX);
        let places: Vec<usize> = (0..n).step_by(spacing).chain([n]).collect();
        let mut total = vec![f64::INFINITY; places.len()];
        let mut last = vec![0; places.len()];
        total[0] = -beta;
        for (at, end) in places.iter().enumerate() {
            let begins = places.iter().take_while(|begin| *begin + shortest <= *end);
            for (from, begin) in begins.enumerate() {
                let cost = total[from] + beta + self.fit(*begin, *end).about_line;
                if cost < total[at] {
                    (total[at], last[at]) = (cost, from);
                }
            }
        }
        let mut starts = Vec::new();
        let mut at = places.len() - 1;
        while last[at] > 0 {
            at = last[at];
            starts.push(places[at]);
        }
        starts.reverse();
        for i in 0..starts.len() {
            let begin = if i == 0 { 0 } else { starts[i - 1] };
            let end = starts.get(i + 1).copied().unwrap_or(n);
            let low = (starts[i] + 1 - spacing).max(begin + shortest);
            let high = (starts[i] + spacing - 1).min(end - shortest);
            let cost = |at: &usize| self.fit(begin, *at).about_line + self.fit(*at, end).about_line;
            let best = (low..=high).min_by(|a, b| cost(a).total_cmp(&cost(b)));
            starts[i] = best.unwrap_or(starts[i]);
        }
        starts
    }

    /// The place of each bend between its neighbours: the posterior of Gaussian noise about two lines, of which
    /// neighbours that are alike say less ([`locate`](super::place::locate)).
    fn locate(&self, starts: &[usize], noise: &SeriesNoise, shortest: usize) -> Vec<Place> {
        let mut begin = 0;
        let unit = 2.0 * noise.sigma.powi(2) * noise.inflation().sqrt();
        let mut found = Vec::with_capacity(starts.len());
        for i in 0..starts.len() {
            let end = starts.get(i + 1).copied().unwrap_or(self.x.len());
            let squares = |at| self.fit(begin, at).about_line + self.fit(at, end).about_line;
            let places = begin + shortest..=end - shortest;
            let logs: Vec<f64> = places.map(|at| -squares(at) / unit).collect();
            let place = credible(&logs, begin + shortest);
            begin = place.index;
            found.push(place);
        }
        found
    }

    /// What is left of the points by the line of each segment, or by its mean.
    fn residuals(&self, starts: &[usize], sloped: bool) -> Vec<f64> {
        let mut residuals = Vec::with_capacity(self.x.len());
        let mut begin = 0;
        for end in starts.iter().copied().chain([self.x.len()]) {
            let Fit { mean, slope, .. } = self.fit(begin, end);
            let slope = if sloped { slope } else { 0.0 };
            let middle = (begin + end - 1) as f64 / 2.0;
            let level = |i: usize| mean + slope * (i as f64 - middle);
            residuals.extend((begin..end).map(|i| self.x[i] - level(i)));
            begin = end;
        }
        residuals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Squares about the line by least squares, point by point.
    fn squares(x: &[f64]) -> f64 {
        let place = |i: usize| i as f64 - (x.len() - 1) as f64 / 2.0;
        let mean = stats::mean(x).unwrap();
        let products: f64 = (0..x.len()).map(|i| place(i) * x[i]).sum();
        let places: f64 = (0..x.len()).map(|i| place(i).powi(2)).sum();
        let slope = products / places.max(1.0);
        (0..x.len())
            .map(|i| (x[i] - mean - slope * place(i)).powi(2))
            .sum()
    }

    #[test]
    fn the_longest_seasons_are_sixty_places_and_a_fourth_of_the_series() {
        let hash = |i: usize| ((i * 7919 + i * i * 104_729) % 1000) as f64 / 1000.0;
        let check = |period: usize, n: usize, is_found: bool| {
            let value = |i: usize| 10.0 * hash(i % period + 500) + hash(i);
            let x: Vec<f64> = (0..n).map(value).collect();
            let places: Vec<usize> = (0..n).collect();
            let found = super::period(&x, &places, 1.0);
            assert_eq!(found, is_found.then_some(period), "{period} in {n}");
        };
        check(12, 48, true);
        check(13, 48, false);
        check(60, 240, true);
    }

    proptest! {
        #[test]
        fn no_other_lines_cost_less(
            x in prop::collection::vec(-3.0..3.0f64, 12..60),
            bend in 0usize..60,
            slope in -0.5..0.5f64,
            beta in 5.0..60.0f64,
        ) {
            let n = x.len();
            let shape = |i: usize| slope * i.saturating_sub(bend.min(n)) as f64;
            let x: Vec<f64> = x.iter().enumerate().map(|(i, x)| x + shape(i)).collect();
            let shortest = 4;
            let mut total = vec![f64::INFINITY; n + 1];
            total[0] = -beta;
            for end in shortest..=n {
                for begin in 0..=end - shortest {
                    total[end] = total[end].min(total[begin] + beta + squares(&x[begin..end]));
                }
            }
            let lines = Lines::of(x.clone());
            let starts = lines.segment(beta, shortest);
            let mut begin = 0;
            let mut got = beta * starts.len() as f64;
            for end in starts.iter().copied().chain([n]) {
                prop_assert!(end - begin >= shortest);
                got += squares(&x[begin..end]);
                begin = end;
            }
            prop_assert!((got - total[n]).abs() < 1e-6, "{:?}: {}, not {}", starts, got, total[n]);
        }

        /// Beyond [`PLACES_MAX`] points bends are looked for on a grid, and then about those found.
        #[test]
        fn lines_from_a_grid_cost_little_more(
            x in prop::collection::vec(-3.0..3.0f64, 101..260),
            bend in 0usize..260,
            slope in -0.5..0.5f64,
            beta in 30.0..60.0f64,
        ) {
            let n = x.len();
            let shape = |i: usize| slope * i.saturating_sub(bend.min(n)) as f64;
            let x: Vec<f64> = x.iter().enumerate().map(|(i, x)| x + shape(i)).collect();
            let shortest = 10;
            let lines = Lines::of(x);
            let cost = |begin, end| beta + lines.fit(begin, end).about_line;
            let mut total = vec![f64::INFINITY; n + 1];
            total[0] = -beta;
            for end in shortest..=n {
                for begin in 0..=end - shortest {
                    total[end] = total[end].min(total[begin] + cost(begin, end));
                }
            }
            let starts = lines.segment(beta, shortest);
            let begins = std::iter::once(0).chain(starts.iter().copied());
            let got: f64 = begins.zip(starts.iter().copied().chain([n])).map(|(b, e)| cost(b, e)).sum();
            let (got, best) = (got - beta, total[n]);
            prop_assert!(best - 1e-6 <= got && got <= 1.03 * best, "{starts:?}: {got}, not {best}");
        }
    }
}
