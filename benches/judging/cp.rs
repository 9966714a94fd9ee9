//! Protocol CP: one step in real noise, found or not, and false points in quiet series.

use matrix::judge::changepoint::{DetectorOptions, changes};
use matrix::judge::history::{append, is_provisional, review};

use crate::data::{Pool, Random, blocks, pools};
use crate::figure;

/// Points of a series, and how near to the true place a change must be found.
const POINTS: usize = 200;
pub const MARGIN: usize = 5;

/// Nearest that a step comes to an end of the series.
const EDGE: usize = 20;

const SIGMA: f64 = 0.01;

pub fn run(quick: bool) {
    let series = if quick { 500 } else { 1000 };
    protocol(
        "CP",
        series,
        found,
        [
            "at most 0.02",
            "at least 0.55",
            "at least 0.90",
            "at least 0.90",
        ],
    );
    protocol("CP night by night", series / 5, nightly, [""; 4]);
}

fn protocol(name: &str, series: usize, find: fn(&[Option<f64>]) -> Vec<usize>, asked: [&str; 4]) {
    let (pools, _) = pools();
    let mut random = Random(7);
    let quiet: usize = (0..series)
        .map(|_| find(&draw(&pools, None, &mut random)).len())
        .sum();
    figure(
        &format!("{name}: false points a quiet series ({series} series of {POINTS})"),
        format!("{:.3}", quiet as f64 / series as f64),
        asked[0],
    );
    for (size, asked) in [(1.0, asked[1]), (2.0, asked[2]), (3.0, asked[3]), (5.0, "")] {
        let (mut hits, mut reported) = (0, 0);
        for _ in 0..series {
            let place = EDGE + random.below(POINTS - 2 * EDGE + 1);
            let places = find(&draw(&pools, Some((place, size)), &mut random));
            hits += usize::from(places.iter().any(|at| at.abs_diff(place) <= MARGIN));
            reported += places.len();
        }
        let precision = hits as f64 / reported.max(1) as f64;
        let recall = hits as f64 / series as f64;
        figure(
            &format!("{name}: F1 at {size} sigma"),
            format!(
                "{:.2} (precision {precision:.2}, recall {recall:.2})",
                f1(precision, recall)
            ),
            asked,
        );
    }
}

/// Every night from the first on is appended to what was told before: as the program runs. What was told of few points is
/// withdrawn where a later look does not find it again.
fn nightly(series: &[Option<f64>]) -> Vec<usize> {
    let options = DetectorOptions::default();
    // Indexes, and points behind each when it was told.
    let mut told: Vec<(usize, usize)> = Vec::new();
    for night in 1..=series.len() {
        let series = &series[..night];
        if told
            .iter()
            .any(|(_, behind)| is_provisional(*behind, &options))
        {
            let fresh = changes(series, &options);
            let stands = |index| review(index, &fresh, &options).is_some();
            told.retain(|(index, behind)| !is_provisional(*behind, &options) || stands(*index));
        }
        let indexes: Vec<usize> = told.iter().map(|told| told.0).collect();
        let new = append(series, &indexes, &options);
        told.extend(
            new.iter()
                .map(|change| (change.index, night - change.index)),
        );
    }
    told.into_iter().map(|told| told.0).collect()
}

pub fn f1(precision: f64, recall: f64) -> f64 {
    match precision + recall > 0.0 {
        true => 2.0 * precision * recall / (precision + recall),
        false => 0.0,
    }
}

pub fn draw(pools: &[Pool], step: Option<(usize, f64)>, random: &mut Random) -> Vec<Option<f64>> {
    let noise = blocks(&pools[random.below(pools.len())], POINTS, random);
    let (place, size) = step.unwrap_or((POINTS, 0.0));
    let level = |i: usize| if i >= place { size } else { 0.0 };
    let value = |i: usize| Some(100.0 * (SIGMA * (noise[i] + level(i))).exp());
    (0..POINTS).map(value).collect()
}

fn found(series: &[Option<f64>]) -> Vec<usize> {
    changes(series, &DetectorOptions::default())
        .iter()
        .map(|change| change.index)
        .collect()
}
