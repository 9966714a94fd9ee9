//! Seeded random numbers and the residuals of real series that noise is drawn from.

use std::path::PathBuf;

use matrix::judge::stats;

/// SplitMix64 (Steele, Lea & Flood, 2014): small, and the same on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `n` - 1.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Above 0, at most 1.
    pub fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal (Box & Muller, 1958).
    pub fn gauss(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Noise of one cell: residuals in the order of time, in units of its robust sigma.
pub type Pool = Vec<f64>;

/// Length of the blocks that keep neighbours together.
const BLOCK: usize = 8;

/// `n` residuals in blocks.
pub fn blocks(pool: &Pool, n: usize, random: &mut Random) -> Vec<f64> {
    let mut drawn = Vec::with_capacity(n + BLOCK);
    while drawn.len() < n {
        let start = random.below(pool.len() - BLOCK + 1);
        drawn.extend_from_slice(&pool[start..start + BLOCK]);
    }
    drawn.truncate(n);
    drawn
}

/// The folder of shared data, if it is there.
pub fn shared() -> Option<PathBuf> {
    let path = PathBuf::from("../shared/data/series");
    let other = PathBuf::from("../../shared/data/series");
    [path, other].into_iter().find(|path| path.is_dir())
}

/// A pool for each series of the machine `i7`: logarithm minus running median of 21, divided by
/// 1.4826 MAD. Where the data is not there: Student's t with 4 degrees of freedom and an
/// autocorrelation of 0.1, so that the bench still runs.
pub fn pools() -> (Vec<Pool>, &'static str) {
    match pools_of("machine-i7") {
        pools if pools.is_empty() => (synthetic_pools(), "synthetic: no shared data"),
        pools => (pools, "residuals of asv-numpy"),
    }
}

/// A pool for each series of a machine; none where the data is not there.
pub fn pools_of(machine: &str) -> Vec<Pool> {
    let read = |folder: PathBuf| read_pools(&folder.join("asv-numpy"), machine);
    shared().and_then(read).unwrap_or_default()
}

fn read_pools(folder: &std::path::Path, machine: &str) -> Option<Vec<Pool>> {
    let index = std::fs::read_to_string(folder.join("numpy_series_index.csv")).ok()?;
    let wanted: Vec<&str> = index
        .lines()
        .filter(|line| line.contains(machine))
        .filter_map(|line| line.split(',').next())
        .collect();
    let wide = std::fs::read_to_string(folder.join("numpy_series_wide.csv")).ok()?;
    let mut lines = wide.lines();
    let names: Vec<&str> = lines.next()?.split(',').collect();
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
    for line in lines {
        for (column, text) in columns.iter_mut().zip(line.split(',')) {
            column.extend(text.parse::<f64>().ok().filter(|value| *value > 0.0));
        }
    }
    let pools = names
        .iter()
        .zip(columns)
        .filter(|(name, _)| wanted.contains(name))
        .filter_map(|(_, column)| residuals(&column));
    Some(pools.collect())
}

fn residuals(values: &[f64]) -> Option<Pool> {
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let residual = |i: usize| {
        let window = &logs[i.saturating_sub(10)..(i + 11).min(logs.len())];
        Some(logs[i] - stats::median(window)?)
    };
    let residuals: Vec<f64> = (0..logs.len()).filter_map(residual).collect();
    let sigma = stats::MAD_TO_SIGMA * stats::mad(&residuals)?;
    let usable = sigma > 0.0 && residuals.len() >= 100;
    usable.then(|| residuals.iter().map(|residual| residual / sigma).collect())
}

fn synthetic_pools() -> Vec<Pool> {
    let mut random = Random(1);
    let pool = |_| {
        let mut last = 0.0;
        let step = |_| {
            let chi: f64 = (0..4).map(|_| random.gauss().powi(2)).sum();
            last = 0.1 * last + random.gauss() / (chi / 4.0).sqrt();
            last / 1.1
        };
        (0..500).map(step).collect()
    };
    (0..50).map(pool).collect()
}
