//! False change points, and changes found, in noise that protocol CP does not have: autocorrelation, modes, changing spread.

use matrix::judge::changepoint::{DetectorOptions, changes};

use crate::cp::{MARGIN, f1};
use crate::data::Random;
use crate::figure;

/// A standard deviation (of the kinds that have one) in units of the value.
const SIGMA: f64 = 0.01;

/// Points of a series with a step, and how near to an end the step may lie.
const POINTS: usize = 200;
const EDGE: usize = 20;

type Kind = fn(usize, &mut Random) -> Vec<f64>;

/// Kinds of noise in units of sigma, and the false points a quiet series of 200 that are asked at most.
const KINDS: [(&str, Kind, &str); 18] = [
    ("Gauss", gauss, ""),
    (
        "Student's t, 3 degrees of freedom",
        |n, r| student(n, 3, r),
        "",
    ),
    ("AR .3", |n, r| autoregressive(n, 0.3, r), ""),
    ("AR .6", |n, r| autoregressive(n, 0.6, r), "0.02"),
    ("AR .9", |n, r| autoregressive(n, 0.9, r), "0.05"),
    ("random walk of .1 sigma a point beside noise", walk, ""),
    (
        "random modes, 50:50, 10 sigma apart",
        |n, r| modes(n, 0.5, r),
        "0.05",
    ),
    (
        "random modes, 80:20, 10 sigma apart",
        |n, r| modes(n, 0.2, r),
        "0.05",
    ),
    (
        "random modes, 50:50, 5 sigma apart",
        |n, r| gapped(n, 0.5, 5.0, r),
        "0.05",
    ),
    (
        "sticky modes, 5 points, 10 sigma apart",
        |n, r| sticky(n, 0.2, r),
        "0.05",
    ),
    (
        "sticky modes, 10 points, 10 sigma apart",
        |n, r| sticky(n, 0.1, r),
        "0.05",
    ),
    (
        "sticky modes, 20 points, 10 sigma apart",
        |n, r| sticky(n, 0.05, r),
        "",
    ),
    (
        "rounded to 1 sigma",
        |n, r| gauss(n, r).iter().map(|x| x.round()).collect(),
        "",
    ),
    ("rounded to 3 sigma", rounded, ""),
    (
        "sigma 3 times as large in the second half",
        |n, r| spread(n, 2, r),
        "0.05",
    ),
    (
        "sigma 3 times as large in the last quarter",
        |n, r| spread(n, 4, r),
        "0.05",
    ),
    ("10 % spikes of 20 sigma", spikes, ""),
    ("drift of 3 sigma", drift, ""),
];

pub fn run(quick: bool) {
    let series = if quick { 200 } else { 1000 };
    let mut random = Random(11);
    for (name, kind, asked) in KINDS {
        let mut told = Vec::new();
        for points in [10, 30, 60, POINTS, 1000] {
            let series = if points > POINTS { series / 4 } else { series };
            let found = (0..series).map(|_| found(&kind(points, &mut random)).len());
            told.push(format!(
                "{:.3}",
                found.sum::<usize>() as f64 / series as f64
            ));
        }
        let asked = match asked {
            "" => String::new(),
            most => format!("at most {most} of 200 points"),
        };
        figure(
            &format!("noise {name}: false points a quiet series of 10 / 30 / 60 / 200 / 1000"),
            told.join(" / "),
            &asked,
        );
        let scores: Vec<String> = [2.0, 3.0, 5.0]
            .map(|size| score(kind, size, series, &mut random))
            .into();
        figure(
            &format!("noise {name}: F1 at 2 / 3 / 5 sigma"),
            scores.join(" / "),
            "",
        );
    }
}

fn score(kind: Kind, size: f64, series: usize, random: &mut Random) -> String {
    let (mut hits, mut reported) = (0, 0);
    for _ in 0..series {
        let mut x = kind(POINTS, random);
        let place = EDGE + random.below(POINTS - 2 * EDGE + 1);
        let size = if random.below(2) == 0 { size } else { -size };
        x[place..].iter_mut().for_each(|value| *value += size);
        let places = found(&x);
        hits += usize::from(places.iter().any(|at| at.abs_diff(place) <= MARGIN));
        reported += places.len();
    }
    let precision = hits as f64 / reported.max(1) as f64;
    format!("{:.2}", f1(precision, hits as f64 / series as f64))
}

fn found(noise: &[f64]) -> Vec<usize> {
    let series: Vec<Option<f64>> = noise
        .iter()
        .map(|x| Some(100.0 * (SIGMA * x).exp()))
        .collect();
    let found = changes(&series, &DetectorOptions::default());
    found.iter().map(|change| change.index).collect()
}

fn gauss(n: usize, random: &mut Random) -> Vec<f64> {
    (0..n).map(|_| random.gauss()).collect()
}

/// Scaled to the quartiles of a normal distribution.
fn student(n: usize, degrees: usize, random: &mut Random) -> Vec<f64> {
    let mut one = || {
        let chi: f64 = (0..degrees).map(|_| random.gauss().powi(2)).sum();
        random.gauss() / (chi / degrees as f64).sqrt() / 0.7649 * 0.6745
    };
    (0..n).map(|_| one()).collect()
}

fn autoregressive(n: usize, rho: f64, random: &mut Random) -> Vec<f64> {
    let mut x = random.gauss();
    let mut one = || {
        let now = x;
        x = rho * x + (1.0 - rho * rho).sqrt() * random.gauss();
        now
    };
    (0..n).map(|_| one()).collect()
}

fn walk(n: usize, random: &mut Random) -> Vec<f64> {
    let mut level = 0.0;
    let mut one = || {
        level += 0.1 * random.gauss();
        level + random.gauss()
    };
    (0..n).map(|_| one()).collect()
}

fn modes(n: usize, share: f64, random: &mut Random) -> Vec<f64> {
    gapped(n, share, 10.0, random)
}

fn gapped(n: usize, share: f64, gap: f64, random: &mut Random) -> Vec<f64> {
    let mut one = || random.gauss() + if random.uniform() < share { gap } else { 0.0 };
    (0..n).map(|_| one()).collect()
}

/// Two modes, each left with a probability of `leave` a point.
fn sticky(n: usize, leave: f64, random: &mut Random) -> Vec<f64> {
    let mut is_high = random.below(2) == 0;
    let mut one = || {
        is_high ^= random.uniform() < leave;
        random.gauss() + if is_high { 10.0 } else { 0.0 }
    };
    (0..n).map(|_| one()).collect()
}

fn rounded(n: usize, random: &mut Random) -> Vec<f64> {
    let mut one = || 3.0 * (random.gauss() / 3.0 + random.uniform() - 0.5).round();
    (0..n).map(|_| one()).collect()
}

/// Noise that is three times as large in the last 1/`part` of the points.
fn spread(n: usize, part: usize, random: &mut Random) -> Vec<f64> {
    let sigma = |i: usize| if i < n - n / part { 1.0 } else { 3.0 };
    (0..n).map(|i| sigma(i) * random.gauss()).collect()
}

fn spikes(n: usize, random: &mut Random) -> Vec<f64> {
    let mut one = || {
        let spike = if random.uniform() < 0.1 {
            -20.0 * random.uniform().ln()
        } else {
            0.0
        };
        random.gauss() + spike
    };
    (0..n).map(|_| one()).collect()
}

fn drift(n: usize, random: &mut Random) -> Vec<f64> {
    (0..n)
        .map(|i| random.gauss() + 3.0 * i as f64 / n as f64)
        .collect()
}
