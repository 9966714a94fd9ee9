//! The detector of change points: where the level of a series moved.

use std::array::from_fn;

use schemars::JsonSchema;
use serde::Serialize;

use super::noise::{SeriesNoise, modes, step_sigma, vet};
use super::place::{Place, locate};
use super::{stats, trend};

/// Points of a series that are looked at; of more, the last ones.
pub const POINTS_MAX: usize = 100_000;

/// Fewer points tell nothing of their noise.
const POINTS_MIN: usize = 6;

/// Candidate levels at the most; beyond, their grid gets coarser.
const LEVELS_MAX: usize = 256;

/// Levels that are worked on at once.
const LANES: usize = 8;

/// Grid of candidate levels in sigma: a level off by an eighth costs 0.016 sigma² a point.
const LEVEL_STEP: f64 = 0.25;

/// Fewest points before or after a change, however large it is.
const SHORTEST: usize = 2;

/// Sigma that two, three and four points at an end of a series must be away to be a level, and how much more of them is
/// asked where the noise is known from few points: 1 + `UNSURE`/n times.
const CLEAR: [f64; 3] = [8.0, 6.5, 5.5];
const UNSURE: f64 = 4.0;

/// Rounds of segmenting and learning the noise anew; most series need one.
const PASSES_MAX: usize = 8;

/// Points on either side of a change that its size is estimated from.
const NEIGHBOURS_MAX: usize = 50;

/// How changes are looked for. The defaults suit nightly benchmark series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DetectorOptions {
    /// Fewest points between two changes: what is shorter is a spike, not a level.
    pub min_segment: usize,
    /// Cost of a change, times ln n·sigma².
    pub penalty: f64,
    /// Deviations beyond so many sigma cost no more.
    pub clip: f64,
    /// Changes of level below this fraction are not told.
    pub min_effect: f64,
    /// Whether seasons are taken out first, and straight lines weighed against levels.
    pub trends: bool,
}

impl DetectorOptions {
    pub const DEFAULT: DetectorOptions = DetectorOptions {
        min_segment: 5,
        penalty: 3.0,
        clip: 2.0,
        min_effect: 0.0,
        trends: true,
    };
}

impl Default for DetectorOptions {
    fn default() -> Self {
        DetectorOptions::DEFAULT
    }
}

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Level,
    /// Straight lines describe the series: one of them ends here, in a bend or a jump.
    Bend,
}

/// A place where the level moved, or the trend.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    /// Index of the most likely first point after the change, in the series as given (gaps count).
    pub index: usize,
    /// How likely that is.
    pub probability: f64,
    /// Indexes that hold 95 % of the posterior together, ascending ([`locate`]).
    pub set: Vec<usize>,
    pub kind: ChangeKind,
    /// Level after / level before; None where a level is zero or the sign changed, and of a bend: a drift that is
    /// mended has the worse points after it.
    pub ratio: Option<f64>,
    /// 95 % interval of the ratio.
    pub ci95: Option<[f64; 2]>,
    /// Levels before and after: medians of the points between this change and its neighbours.
    pub before: f64,
    pub after: f64,
}

/// The change points of a series in ascending order; None is a gap and is passed over.
///
/// Minimises Σ over segments of Σ min((xᵢ − μ)², K²) + β per change, over all partitions into segments
/// of at least `min_segment` points: optimal partitioning (Jackson et al., 2005) of the biweight loss
/// (Fearnhead & Rigaill, 2019). β = penalty·ln n·σ²·f, K² = (clip·σ)²·√f, where f = (1 + ρ)/(1 − ρ) is the
/// growth of a mean's variance by autocorrelation (Bartlett, 1946) with ρ the lag-1
/// autocorrelation within segments: σ, ρ and the segments are found in turn until they agree.
/// √f lets a long excursion of a slowly wandering series count, as its β is higher. x is the
/// logarithm where all values are above zero. With `trends` a season is taken out first
/// ([`trend::without_season`]), and straight lines may describe the series better than levels do
/// ([`trend::bends`]): then the changes are their ends. Same input, same bytes out: no randomness, no
/// parallel sums.
pub fn changes(series: &[Option<f64>], options: &DetectorOptions) -> Vec<Change> {
    let Points {
        places,
        mut x,
        centre,
        logs,
    } = Points::of(series);
    let Some(sigma) = step_sigma(&x).filter(|_| x.len() >= POINTS_MIN) else {
        return Vec::new();
    };
    if options.trends {
        x = trend::without_season(&x, &places, sigma).unwrap_or(x);
    }
    let mut levels = Levels::of(&x, sigma, options);
    if !levels.starts.is_empty()
        && let Some(modes) = modes(&x, levels.ends)
    {
        levels.starts = modes.kept(levels.starts, 1.5 * options.penalty);
        if levels.starts.is_empty() {
            x = modes.taken_out(&x);
            levels = Levels::of(&x, step_sigma(&x).unwrap_or(sigma), options);
        }
    }
    let Levels {
        medians,
        mut starts,
        noise,
        ..
    } = levels;
    vet(&x, &mut starts, noise, options);
    at_ends(&x, &mut starts, sigma, options);
    let mut found = locate_all(&x, &starts, &noise);
    starts = found.iter().map(|place| place.index).collect();
    let bends = || trend::bends(&x, &medians, sigma, &starts, options);
    let kind = match options.trends.then(bends).flatten() {
        Some(bends) => {
            found = bends;
            ChangeKind::Bend
        }
        None => {
            if drop_small(&x, &mut starts, centre, logs, options.min_effect) {
                found = locate_all(&x, &starts, &noise);
            }
            ChangeKind::Level
        }
    };
    let starts: Vec<usize> = found.iter().map(|place| place.index).collect();
    let describe = |i: usize| {
        let end = starts.get(i + 1).copied().unwrap_or(x.len());
        let begin = if i == 0 { 0 } else { starts[i - 1] };
        let (before, after) = (&x[begin..starts[i]], &x[starts[i]..end]);
        let at = found[i].mapped(&places);
        let change = describe(at, [before, after], centre, logs, &noise);
        match kind {
            ChangeKind::Level => change,
            ChangeKind::Bend => Change {
                kind,
                ratio: None,
                ci95: None,
                ..change
            },
        }
    };
    (0..starts.len()).map(describe).collect()
}

/// The points of a series that are no gaps.
struct Points {
    /// Their indexes.
    places: Vec<usize>,
    /// Logarithms where all values are above zero, less their median: small numbers leave the search more of its 24 bits.
    x: Vec<f64>,
    centre: f64,
    logs: bool,
}

impl Points {
    /// The last [`POINTS_MAX`].
    fn of(series: &[Option<f64>]) -> Points {
        let is_point = |i: &usize| series[*i].is_some_and(f64::is_finite);
        let mut places: Vec<usize> = (0..series.len()).filter(is_point).collect();
        places.drain(..places.len().saturating_sub(POINTS_MAX));
        let mut x: Vec<f64> = places.iter().filter_map(|i| series[*i]).collect();
        let logs = x.iter().all(|value| *value > 0.0);
        if logs {
            x.iter_mut().for_each(|value| *value = value.ln());
        }
        let centre = stats::median(&x).unwrap_or(0.0);
        x.iter_mut().for_each(|value| *value -= centre);
        Points {
            places,
            x,
            centre,
            logs,
        }
    }
}

/// Where a change that is known to be near `at` is, of a series without another one ([`locate`]). None where there are not
/// two points on either side of it.
pub fn place_of(series: &[Option<f64>], at: usize) -> Option<Place> {
    let Points { places, x, .. } = Points::of(series);
    let near = places.partition_point(|place| *place < at);
    let sigma = step_sigma(&x).filter(|_| SHORTEST <= near && near + SHORTEST <= x.len())?;
    let noise = SeriesNoise::within(&x, &[near], sigma);
    let found = locate(&x, [0, x.len()], near, &noise, SHORTEST);
    Some(found.mapped(&places))
}

/// The two levels between which a series goes to and fro, where it does ([`modes`]).
pub fn modes_of(series: &[Option<f64>]) -> Option<[f64; 2]> {
    let Points {
        x, centre, logs, ..
    } = Points::of(series);
    let medians = running_medians(&x, DetectorOptions::DEFAULT.min_segment);
    let ends = |pick: fn(f64, f64) -> f64, from| medians.iter().copied().fold(from, pick);
    let found = modes(
        &x,
        [
            ends(f64::min, f64::INFINITY),
            ends(f64::max, f64::NEG_INFINITY),
        ],
    )?;
    let value = |x: f64| if logs { (x + centre).exp() } else { x + centre };
    Some(found.levels.map(value))
}

/// The levels of a series.
struct Levels {
    medians: Vec<f64>,
    /// The lowest and the highest of these.
    ends: [f64; 2],
    /// Starts of all segments but the first.
    starts: Vec<usize>,
    noise: SeriesNoise,
}

impl Levels {
    fn of(x: &[f64], sigma: f64, options: &DetectorOptions) -> Levels {
        let medians = running_medians(x, options.min_segment.max(1));
        let grid = ordered(&medians);
        let mut starts = segment(x, &grid, sigma, 1.0, options);
        let mut noise = SeriesNoise::within(x, &starts, sigma);
        for _ in 0..PASSES_MAX {
            let before = std::mem::take(&mut starts);
            starts = segment(x, &grid, noise.sigma, noise.inflation(), options);
            if starts == before {
                break;
            }
            noise = SeriesNoise::within(x, &starts, sigma);
        }
        Levels {
            medians,
            ends: [grid.first(), grid.last()].map(|end| end.copied().unwrap_or(0.0)),
            starts,
            noise,
        }
    }
}

/// Adds a change near either end that has fewer points behind it than a segment has, but is so large that they suffice:
/// see [`short_level`].
fn at_ends(x: &[f64], starts: &mut Vec<usize>, sigma: f64, options: &DetectorOptions) {
    let last = starts.last().copied().unwrap_or(0);
    let found = short_level(x[last..].iter().rev().copied(), sigma, options);
    starts.extend(found.map(|points| x.len() - points));
    let first = starts.first().copied().unwrap_or(x.len());
    let found = short_level(x[..first].iter().copied(), sigma, options);
    starts.splice(0..0, found);
}

/// How many points at the beginning of a segment have a level of their own, where these are fewer than a segment has: they
/// lie together, [`CLEAR`] sigma or more from the median of the rest, and the rest has not been half-way there for as
/// long, less one point. `sigma` is that of steps.
fn short_level(
    points: impl ExactSizeIterator<Item = f64>,
    sigma: f64,
    options: &DetectorOptions,
) -> Option<usize> {
    let near: Vec<f64> = points.take(2 * NEIGHBOURS_MAX).collect();
    let unsure = 1.0 + UNSURE / near.len().max(1) as f64;
    let strict = options.penalty / DetectorOptions::DEFAULT.penalty;
    let is_level = |count: &usize| {
        let Some((own, rest)) = near
            .split_at_checked(*count)
            .filter(|it| it.1.len() > *count)
        else {
            return false;
        };
        let [to, from] = [own, rest].map(|points| stats::median(points).unwrap_or(0.0));
        let away = |x: &f64| (x - from) * (to - from).signum();
        let size = (to - from).abs();
        let is_seen = |x: &f64| away(x) > size / 2.0;
        let runs = rest.chunk_by(|a, b| is_seen(a) == is_seen(b));
        let seen = runs.filter(|run| is_seen(&run[0])).map(<[f64]>::len).max();
        if size < CLEAR[count - SHORTEST] * sigma || seen.unwrap_or(0) + 2 > *count {
            return false;
        }
        let noise = SeriesNoise::within(&near, &[*count], sigma);
        let unit = noise.sigma * noise.inflation().sqrt().sqrt() * unsure * strict;
        let least = CLEAR[count - SHORTEST] * unit;
        own.iter()
            .all(|x| away(x) >= least && (x - to).abs() <= size / 4.0)
    };
    (SHORTEST..options.min_segment.min(SHORTEST + CLEAR.len())).find(is_level)
}

/// The place of each change between the one before and the start of the next segment.
fn locate_all(x: &[f64], starts: &[usize], noise: &SeriesNoise) -> Vec<Place> {
    let mut begin = 0;
    let mut found = Vec::with_capacity(starts.len());
    for i in 0..starts.len() {
        let end = starts.get(i + 1).copied().unwrap_or(x.len());
        let place = locate(x, [begin, end], starts[i], noise, SHORTEST);
        begin = place.index;
        found.push(place);
    }
    found
}

/// Medians of `window` neighbouring points.
fn running_medians(x: &[f64], window: usize) -> Vec<f64> {
    let count = (x.len() + 1).saturating_sub(window);
    let mut medians = Vec::with_capacity(count);
    let mut columns = vec![[0.0; LANES]; window];
    for begin in (0..count).step_by(LANES) {
        for (j, column) in columns.iter_mut().enumerate() {
            *column = from_fn(|i| x[(begin + j + i).min(x.len() - 1)]);
        }
        // The largest to the end, as often as the middle needs: windows side by side, on vectors.
        for end in (window / 2 + 1..=window).rev() {
            for j in 1..end {
                let (a, b) = (columns[j - 1], columns[j]);
                columns[j - 1] = from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] });
                columns[j] = from_fn(|i| if a[i] < b[i] { b[i] } else { a[i] });
            }
        }
        medians.extend(&columns[window / 2][..LANES.min(count - begin)]);
    }
    medians
}

/// Where a level can be: each median once, in ascending order.
fn ordered(medians: &[f64]) -> Vec<f64> {
    let mut ordered = medians.to_vec();
    // Neighbouring windows often have the same median.
    ordered.dedup();
    ordered.sort_unstable_by(f64::total_cmp);
    ordered
}

/// Levels that are worked on at once, and what is known of each so far.
struct Lane {
    levels: [f32; LANES],
    /// Losses of the last `min_segment` points.
    recent: [f32; LANES],
    /// Least cost of a partition whose last segment lies at the level, and where that segment starts.
    best: [f32; LANES],
    start: [u32; LANES],
}

/// Candidate levels: `medians` in units of sigma, on a grid, in ascending order; the last one is
/// repeated up to a whole number of lanes.
fn lanes(medians: &[f64], sigma: f64) -> Vec<Lane> {
    let mut step = LEVEL_STEP;
    let mut cells: Vec<f64> = Vec::with_capacity(medians.len());
    loop {
        cells.clear();
        cells.extend(medians.iter().map(|m| (m / sigma / step).round()));
        cells.dedup();
        if cells.len() <= LEVELS_MAX {
            break;
        }
        step *= 2.0;
    }
    let lane = |cells: &[f64]| Lane {
        levels: from_fn(|i| (cells[i.min(cells.len() - 1)] * step) as f32),
        recent: [0.0; LANES],
        best: [f32::INFINITY; LANES],
        start: [0; LANES],
    };
    cells.chunks(LANES).map(lane).collect()
}

/// Starts of all segments but the first, by dynamic programming over (point, level):
/// best(t, μ) = min(best(t − 1, μ), F(t − m) + β + the m − 1 losses before) + loss(xₜ, μ),
/// F(t) = min over μ. Costs are in units of sigma² and need no more than 24 bits.
fn segment(
    x: &[f64],
    medians: &[f64],
    sigma: f64,
    inflation: f64,
    options: &DetectorOptions,
) -> Vec<usize> {
    let m = options.min_segment.max(1);
    let n = x.len();
    let beta = (options.penalty * (n as f64).ln() * inflation) as f32;
    let limit = (options.clip.powi(2) * inflation.sqrt()) as f32;
    let mut lanes = lanes(medians, sigma);
    // Losses of the last m points at each level, as a ring.
    let mut ring = vec![[0.0f32; LANES]; m * lanes.len()];
    // F and the start of the last segment, by number of points.
    let mut total = vec![f32::INFINITY; n + 1];
    let mut last = vec![0u32; n + 1];
    total[0] = -beta;
    for t in 1..=n {
        let value = (x[t - 1] / sigma) as f32;
        let opened = t
            .checked_sub(m)
            .map_or(f32::INFINITY, |at| total[at] + beta);
        let from = t.saturating_sub(m) as u32;
        let slot = (t % m) * lanes.len();
        let old = ring[slot..].iter_mut();
        let (mut costs, mut starts) = ([f32::INFINITY; LANES], [0; LANES]);
        for (lane, old) in lanes.iter_mut().zip(old) {
            let square = lane.levels.map(|level| (value - level) * (value - level));
            let loss = square.map(|square| least(square, limit));
            let recent: [f32; LANES] = from_fn(|i| lane.recent[i] + (loss[i] - old[i]));
            let stay: [f32; LANES] = from_fn(|i| lane.best[i] + loss[i]);
            let open = recent.map(|recent| opened + recent);
            lane.start = from_fn(|i| select(open[i] < stay[i], from, lane.start[i]));
            lane.best = from_fn(|i| least(open[i], stay[i]));
            starts = from_fn(|i| select(lane.best[i] < costs[i], lane.start[i], starts[i]));
            costs = from_fn(|i| least(lane.best[i], costs[i]));
            (lane.recent, *old) = (recent, loss);
        }
        for i in 0..LANES {
            if costs[i] < total[t] {
                (total[t], last[t]) = (costs[i], starts[i]);
            }
        }
    }
    let mut segments = vec![n];
    let mut end = n;
    while last[end] > 0 {
        end = last[end] as usize;
        segments.push(end);
    }
    segments.reverse();
    segments.pop();
    segments
}

/// Not f32::min: its care for NaN keeps a loop from running on vectors.
fn least(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// One or the other by bits: a condition would keep a loop from running on vectors.
fn select(condition: bool, yes: u32, no: u32) -> u32 {
    let mask = u32::from(condition).wrapping_neg();
    (yes & mask) | (no & !mask)
}

/// Takes out changes below `min_effect`, the smallest first. True where there were any.
fn drop_small(
    x: &[f64],
    starts: &mut Vec<usize>,
    centre: f64,
    logs: bool,
    min_effect: f64,
) -> bool {
    let count = starts.len();
    let level = |begin: usize, end: usize| centre + stats::median(&x[begin..end]).unwrap_or(0.0);
    while min_effect > 0.0 && !starts.is_empty() {
        let size = |i: usize| {
            let begin = if i == 0 { 0 } else { starts[i - 1] };
            let end = starts.get(i + 1).copied().unwrap_or(x.len());
            let (before, after) = (level(begin, starts[i]), level(starts[i], end));
            match logs {
                true => (after - before).abs().exp_m1(),
                false => (after - before).abs() / before.abs().min(after.abs()),
            }
        };
        let sizes: Vec<f64> = (0..starts.len()).map(size).collect();
        let smallest = (0..sizes.len()).min_by(|a, b| sizes[*a].total_cmp(&sizes[*b]));
        match smallest.filter(|i| sizes[*i] < min_effect) {
            Some(i) => starts.remove(i),
            None => break,
        };
    }
    starts.len() < count
}

fn describe(
    at: Place,
    [before, after]: [&[f64]; 2],
    centre: f64,
    logs: bool,
    noise: &SeriesNoise,
) -> Change {
    let near_before = &before[before.len().saturating_sub(NEIGHBOURS_MAX)..];
    let near_after = &after[..after.len().min(NEIGHBOURS_MAX)];
    let shift = stats::hodges_lehmann_shift(near_before, near_after).unwrap_or(0.0);
    let weight = 1.0 / near_before.len() as f64 + 1.0 / near_after.len() as f64;
    let half =
        1.96 * noise.sigma * (weight * noise.inflation() * std::f64::consts::FRAC_PI_3).sqrt();
    let level = |points: &[f64]| {
        let level = centre + stats::median(points).unwrap_or(0.0);
        if logs { level.exp() } else { level }
    };
    let (before, after) = (level(before), level(after));
    let ratio = |shift: f64| match logs {
        true => shift.exp(),
        false => (before + shift) / before,
    };
    let comparable = logs || before * (before + shift) > 0.0;
    let ends = [ratio(shift - half), ratio(shift + half)];
    Change {
        index: at.index,
        probability: at.probability,
        set: at.set,
        kind: ChangeKind::Level,
        ratio: comparable.then(|| ratio(shift)),
        ci95: comparable.then(|| [ends[0].min(ends[1]), ends[0].max(ends[1])]),
        before,
        after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Between -1 and 1, without a pattern.
    fn noise(i: usize) -> f64 {
        ((i * 7919 + i * i * 104_729) % 1000) as f64 / 500.0 - 1.0
    }

    /// The least cost of all partitions, as [`changes`] defines it: tried one by one.
    fn least_cost(x: &[f64], levels: &[f64], beta: f64, limit: f64, m: usize) -> f64 {
        let mut total = vec![f64::INFINITY; x.len() + 1];
        total[0] = -beta;
        for end in m..=x.len() {
            for begin in 0..=end - m {
                let cost = cost(&x[begin..end], levels, limit);
                total[end] = total[end].min(total[begin] + beta + cost);
            }
        }
        total[x.len()]
    }

    fn cost(segment: &[f64], levels: &[f64], limit: f64) -> f64 {
        let loss = |level: f64| -> f64 {
            let losses = segment.iter().map(|x| (x - level).powi(2).min(limit));
            losses.sum()
        };
        levels
            .iter()
            .map(|level| loss(*level))
            .fold(f64::INFINITY, f64::min)
    }

    proptest! {
        #[test]
        fn no_partition_costs_less(
            steps in prop::collection::vec((1usize..25, -6.0..6.0f64), 1..5),
            wild in prop::collection::vec((0usize..100, -50.0..50.0f64), 0..5),
            inflation in 1.0..4.0f64,
            min_segment in 1usize..8,
        ) {
            let mut x: Vec<f64> = steps.iter().flat_map(|(n, level)| vec![*level; *n]).collect();
            x.iter_mut().enumerate().for_each(|(i, x)| *x += noise(i));
            let n = x.len();
            prop_assume!(n >= 2 * min_segment);
            wild.iter().for_each(|(at, size)| x[at % n] = *size);
            let options = DetectorOptions { min_segment, ..DetectorOptions::default() };
            let medians = running_medians(&x, min_segment);
            let grid = ordered(&medians);
            let by_sorting: Vec<f64> = x.windows(min_segment).map(|w| stats::sorted(w)[min_segment / 2]).collect();
            prop_assert!(by_sorting.iter().all(|median| medians.contains(median)));
            prop_assert!(medians.iter().all(|median| by_sorting.contains(median)));
            let starts = segment(&x, &grid, 1.0, inflation, &options);
            let levels: Vec<f64> = lanes(&grid, 1.0)
                .iter()
                .flat_map(|lane| lane.levels.map(f64::from))
                .collect();
            let beta = options.penalty * (n as f64).ln() * inflation;
            let limit = options.clip.powi(2) * inflation.sqrt();
            let mut begin = 0;
            let mut got = beta * starts.len() as f64;
            for end in starts.iter().copied().chain([n]) {
                prop_assert!(end - begin >= min_segment);
                got += cost(&x[begin..end], &levels, limit);
                begin = end;
            }
            let best = least_cost(&x, &levels, beta, limit, min_segment);
            prop_assert!((got - best).abs() <= 1e-4 * (1.0 + best), "{starts:?}: {got}, not {best}");
        }
    }
}
