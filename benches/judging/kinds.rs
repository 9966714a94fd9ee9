//! Protocol KINDS: one version against itself under kinds of noise that are not Gauss', and the power under those that are.

use matrix::base::sample::{Better, Sample};
use matrix::judge::verdict::{Comparison, Question, compare, decide};

use crate::data::Random;
use crate::figure;

/// Comparisons of a night.
const FAMILY: usize = 1000;

const QUESTION: Question = Question::new(Better::Lower, 0.0);

/// A kind of noise: values of both sides in the order of time, interleaved A B, B A, …
type Kind = (&'static str, fn(&mut Random, usize, usize) -> [Vec<f64>; 2]);

const KINDS: [Kind; 18] = [
    ("gauss", |r, n, m| {
        apart(n, m, &mut || level(0.02 * r.gauss()))
    }),
    ("t3", |r, n, m| {
        apart(n, m, &mut || level(0.02 * student(r, 3)))
    }),
    ("spikes", |r, n, m| apart(n, m, &mut || level(spiked(r)))),
    ("skewed", |r, n, m| {
        apart(n, m, &mut || level(0.05 * exponential(r)))
    }),
    ("modes 50:50", |r, n, m| {
        apart(n, m, &mut || level(mode(r, 0.5)))
    }),
    ("modes 80:20", |r, n, m| {
        apart(n, m, &mut || level(mode(r, 0.2)))
    }),
    ("modes 95:5", |r, n, m| {
        apart(n, m, &mut || level(mode(r, 0.05)))
    }),
    ("sticky modes", sticky),
    ("integers", |r, n, m| {
        apart(n, m, &mut || (50.0 + r.gauss()).round())
    }),
    ("integers, few", |r, n, m| {
        apart(n, m, &mut || (10.0 + 0.5 * r.gauss()).round())
    }),
    ("fio buckets 0.5%", |r, n, m| {
        apart(n, m, &mut || bucket(0.005 * r.gauss()))
    }),
    ("fio buckets 2%", |r, n, m| {
        apart(n, m, &mut || bucket(0.02 * r.gauss()))
    }),
    ("rare counts", |r, n, m| {
        apart(n, m, &mut || poisson(r, 0.5))
    }),
    ("zero in 20%", |r, n, m| {
        apart(n, m, &mut || zero_or(r, 0.2))
    }),
    ("zero in 70%", |r, n, m| {
        apart(n, m, &mut || zero_or(r, 0.7))
    }),
    ("AR(1) 0.7", |r, n, m| {
        let mut last = r.gauss();
        apart(n, m, &mut || {
            last = 0.7 * last + (1.0f64 - 0.49).sqrt() * r.gauss();
            level(0.02 * last)
        })
    }),
    ("spreads 5:1", |r, n, m| {
        let side = |r: &mut Random, n, s| (0..n).map(|_| level(s * r.gauss())).collect();
        [side(r, n, 0.05), side(r, m, 0.01)]
    }),
    ("spreads 1:5", |r, n, m| {
        let side = |r: &mut Random, n, s| (0..n).map(|_| level(s * r.gauss())).collect();
        [side(r, n, 0.01), side(r, m, 0.05)]
    }),
];

/// Numbers of samples; the rounds of the smaller side are some of the larger one's.
const SIZES: [(usize, usize); 7] = [(2, 2), (3, 3), (5, 5), (10, 10), (20, 20), (5, 1), (5, 37)];

pub fn run(quick: bool) {
    let trials = if quick { 4_000 } else { 40_000 };
    for (name, kind) in KINDS {
        for (n, m) in SIZES {
            let mut random = Random(7);
            let mut draw = || {
                let [a, b] = kind(&mut random, n, m);
                compare(&side(&a, 0, 1), &side(&b, 0, 1), &QUESTION)
            };
            let all: Vec<Comparison> = (0..trials).map(|_| draw()).collect();
            row(&format!("A/A {name}, {n}+{m}"), all);
        }
    }
    let mut random = Random(11);
    let night = |random: &mut Random| two_nights(random, 2.0);
    let all = (0..trials).map(|_| {
        let [a, b] = night(&mut random);
        compare(&a, &b, &QUESTION)
    });
    row(
        "A/A two nights 2 sigma apart, 5 and 2 beside 5",
        all.collect(),
    );
    power(trials / 4);
}

fn row(name: &str, mut all: Vec<Comparison>) {
    let trials = all.len() as f64;
    let below = |level: f64| {
        let found = all.iter().filter(|c| c.p.is_some_and(|p| p <= level));
        found.count() as f64 / trials
    };
    let rates = [0.05, 0.01, 0.001].map(below);
    let intervals: Vec<[f64; 2]> = all.iter().filter_map(|c| c.ci95).collect();
    let held = intervals
        .iter()
        .filter(|ci| ci[0] <= 1.0 && 1.0 <= ci[1])
        .count();
    let held = held as f64 / intervals.len().max(1) as f64;
    let mut nights = 0;
    let mut words = 0;
    let mut with_word = 0;
    for night in all.chunks_exact_mut(FAMILY) {
        let mut family: Vec<(Question, Comparison)> =
            night.iter().map(|c| (QUESTION, c.clone())).collect();
        decide(&mut family);
        let found = family.iter().filter(|(_, c)| c.verdict.is_change()).count();
        (nights, words) = (nights + 1, words + found);
        with_word += usize::from(found > 0);
    }
    figure(
        name,
        format!(
            "{:.4} / {:.4} / {:.5}; intervals hold {held:.3}; {words} words in {nights} nights ({with_word} with one)",
            rates[0], rates[1], rates[2]
        ),
        "at most 0.06 / / 0.003; 1 in 20",
    );
}

fn power(trials: usize) {
    for (name, at) in [
        ("gauss", 0),
        ("t3", 1),
        ("spikes", 2),
        ("skewed", 3),
        ("AR(1) 0.7", 15),
    ] {
        for (n, sigmas, asked) in [
            (5, 2.0, "at least 0.70"),
            (10, 1.5, "at least 0.83"),
            (20, 1.0, "at least 0.82"),
        ] {
            let mut random = Random(3);
            let mut found = [0; 2];
            for _ in 0..trials {
                let [a, b] = KINDS[at].1(&mut random, n, n);
                let b: Vec<f64> = b.iter().map(|x| x * (0.02f64 * sigmas).exp()).collect();
                let p = compare(&side(&a, 0, 1), &side(&b, 0, 1), &QUESTION).p;
                for (found, level) in found.iter_mut().zip([0.05, 0.001]) {
                    *found += usize::from(p.is_some_and(|p| p <= level));
                }
            }
            let [five, one] = found.map(|found| found as f64 / trials as f64);
            figure(
                &format!("power, {name}, {n}+{n}, {sigmas} sigma, at 0.05 / 0.001"),
                format!("{five:.3} / {one:.3}"),
                if at == 0 { asked } else { "" },
            );
        }
    }
}

fn side(values: &[f64], first: u32, session: i64) -> Vec<Sample> {
    let sample = |(round, value): (u32, &f64)| Sample {
        round,
        session,
        value: *value,
    };
    (first..).zip(values).map(sample).collect()
}

/// The baseline's five rounds of another night, two beside the five of the candidate.
fn two_nights(random: &mut Random, sigmas: f64) -> [Vec<Sample>; 2] {
    let nights = [0, 1].map(|_| 0.02 * sigmas * random.gauss());
    let mut of = |n: usize, night: usize, first: u32| {
        let values: Vec<f64> = (0..n)
            .map(|_| level(0.02 * random.gauss() + nights[night]))
            .collect();
        side(&values, first, night as i64)
    };
    let mut base = of(5, 0, 0);
    base.extend(of(2, 1, 5));
    [base, of(5, 1, 0)]
}

fn level(log: f64) -> f64 {
    100.0 * log.exp()
}

/// Both sides of a source in the order of time: A B, B A, …
fn apart(n: usize, m: usize, next: &mut dyn FnMut() -> f64) -> [Vec<f64>; 2] {
    let mut sides = [Vec::new(), Vec::new()];
    for round in 0..n.max(m) {
        for turn in 0..2 {
            let value = next();
            let at = (round + turn) % 2;
            if sides[at].len() < [n, m][at] {
                sides[at].push(value);
            }
        }
    }
    sides
}

fn exponential(random: &mut Random) -> f64 {
    -random.uniform().ln()
}

fn student(random: &mut Random, degrees: usize) -> f64 {
    let chi: f64 = (0..degrees).map(|_| random.gauss().powi(2)).sum();
    random.gauss() / (chi / degrees as f64).sqrt()
}

fn spiked(random: &mut Random) -> f64 {
    let spike = if random.uniform() < 0.1 {
        0.3 * exponential(random)
    } else {
        0.0
    };
    0.02 * random.gauss() + spike
}

/// Two modes 10 % apart, 20 of their sigma.
fn mode(random: &mut Random, upper: f64) -> f64 {
    let mode = if random.uniform() < upper { 0.1 } else { 0.0 };
    mode + 0.005 * random.gauss()
}

/// A mode that is left once in ten runs.
fn sticky(random: &mut Random, n: usize, m: usize) -> [Vec<f64>; 2] {
    let mut mode = 0.0;
    apart(n, m, &mut || {
        if random.uniform() < 0.1 {
            mode = 0.1 - mode;
        }
        level(mode + 0.01 * random.gauss())
    })
}

/// fio's latency histogram: 64 buckets an octave.
fn bucket(log: f64) -> f64 {
    let value = 200_000.0 * log.exp();
    let width = value.log2().floor().exp2() / 64.0;
    (value / width).floor() * width + width / 2.0
}

fn poisson(random: &mut Random, mean: f64) -> f64 {
    let (mut count, mut product) = (0.0, random.uniform());
    while product > (-mean).exp() {
        count += 1.0;
        product *= random.uniform();
    }
    count
}

fn zero_or(random: &mut Random, zeros: f64) -> f64 {
    match random.uniform() < zeros {
        true => 0.0,
        false => level(0.05 * random.gauss()),
    }
}
