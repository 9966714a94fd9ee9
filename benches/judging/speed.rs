//! The speed figures: many long series analysed anew, and one night appended.

use std::time::Instant;

use matrix::judge::changepoint::{DetectorOptions, changes};
use matrix::judge::history::append;

use crate::data::{Pool, Random, blocks, pools};
use crate::figure;

const POINTS: usize = 1000;
const THREADS: usize = 2;

pub fn run(quick: bool) {
    let (pools, _) = pools();
    let count = if quick { 1000 } else { 10_000 };
    let mut random = Random(3);
    let series: Vec<Vec<Option<f64>>> = (0..count).map(|_| draw(&pools, &mut random)).collect();
    let options = DetectorOptions::default();
    let full = timed(&series, |series| changes(series, &options).len());
    let reported: Vec<(&Vec<Option<f64>>, Vec<usize>)> = series
        .iter()
        .map(|series| {
            (
                series,
                changes(series, &options).iter().map(|c| c.index).collect(),
            )
        })
        .collect();
    let levels = DetectorOptions {
        trends: false,
        ..options
    };
    let plain = timed(&series, |series| changes(series, &levels).len());
    let night = timed(&reported, |(series, reported)| {
        append(series, reported, &options).len()
    });
    figure(
        &format!("speed: {count} series of {POINTS} points anew, {THREADS} threads"),
        format!(
            "{:.2} s ({:.2} s of processor time), {} changes, peak memory {}",
            full.wall,
            full.processor,
            full.found,
            peak_memory()
        ),
        "10,000 in 2 s and 200 MB",
    );
    figure(
        "speed: the same, levels alone",
        format!("{:.2} s of processor time", plain.processor),
        "",
    );
    figure(
        &format!("speed: one night appended to {count} series"),
        format!(
            "{:.3} s ({:.2} s of processor time)",
            night.wall, night.processor
        ),
        "10,000 in 0.1 s",
    );
}

/// Two steps of three sigma in noise of one percent, 2 % gaps.
fn draw(pools: &[Pool], random: &mut Random) -> Vec<Option<f64>> {
    let noise = blocks(&pools[random.below(pools.len())], POINTS, random);
    let places = [random.below(POINTS), random.below(POINTS)];
    let level = |i: usize| 3.0 * places.iter().filter(|place| i >= **place).count() as f64;
    let value = |i: usize| 100.0 * (0.01 * (noise[i] + level(i))).exp();
    (0..POINTS)
        .map(|i| (random.below(50) > 0).then(|| value(i)))
        .collect()
}

struct Timed {
    wall: f64,
    /// Of all threads: what a machine without other work needs is half of it.
    processor: f64,
    /// The sum of what the work returned.
    found: usize,
}

fn timed<T: Sync>(items: &[T], work: impl Fn(&T) -> usize + Sync) -> Timed {
    let (start, before) = (Instant::now(), processor_seconds());
    let found = std::thread::scope(|scope| {
        let threads: Vec<_> = items
            .chunks(items.len().div_ceil(THREADS))
            .map(|chunk| scope.spawn(|| chunk.iter().map(&work).sum::<usize>()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(0))
            .sum()
    });
    Timed {
        wall: start.elapsed().as_secs_f64(),
        processor: processor_seconds() - before,
        found,
    }
}

/// User time of this process; the kernel counts it in hundredths of a second.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or("");
    let ticks: Option<f64> = after_name
        .split_whitespace()
        .nth(11)
        .and_then(|t| t.parse().ok());
    ticks.unwrap_or(0.0) / 100.0
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let kib: Option<f64> = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    kib.map_or("unknown".to_owned(), |kib| {
        format!("{:.0} MiB", kib / 1024.0)
    })
}
