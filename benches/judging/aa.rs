//! Owns protocol AA: one version against itself, and with a few true shifts among many.
//! Does not know how a verdict is reached.

use matrix::judge::confirm::{self, Policy};
use matrix::judge::verdict::{Comparison, Noise, Question, Verdict, compare, decide};
use matrix::words::sample::{Better, Sample};

use crate::data::{Pool, Random, blocks, pools};
use crate::figure;

/// Comparisons in a family.
const FAMILY: usize = 10_000;

/// Standard deviation of a sample, as a fraction.
const SIGMA: f64 = 0.01;

/// Sessions and rounds that a cell's noise is learned from.
const HISTORY: (usize, usize) = (8, 5);

struct Setup {
    rounds: usize,
    history: bool,
    min_effect: f64,
    /// Share of true shifts, and their size in sigma.
    shifts: (f64, f64),
}

#[derive(Default)]
struct Outcome {
    /// Families with an alarm, alarms, and those among them that are true, by the screen alone.
    screen: [usize; 3],
    /// The same after confirmation.
    confirmed: [usize; 3],
    truths: usize,
    runs: usize,
    extra: usize,
}

pub fn run(quick: bool) {
    let (pools, what) = pools();
    let families = if quick { 4 } else { 50 };
    println!("| noise: {} pools, {what} | | |", pools.len());
    for rounds in [5, 10] {
        for history in [false, true] {
            let setup = |shifts, min_effect| Setup {
                rounds,
                history,
                min_effect,
                shifts,
            };
            let known = if history {
                "with history"
            } else {
                "without history"
            };
            let name = format!("AA {rounds}+{rounds} {known}");
            let quiet = measure(&pools, families, &setup((0.0, 0.0), 0.0));
            figure(
                &format!("{name}: alarms in {families} quiet nights, screen alone / confirmed"),
                format!(
                    "{} / {} (extra runs {:.1}%)",
                    quiet.screen[1],
                    quiet.confirmed[1],
                    extra(&quiet)
                ),
                "confirmed: at most 1 in 50",
            );
            for size in [1.0, 2.0, 3.0] {
                let found = measure(&pools, families.div_ceil(5), &setup((0.01, size), 0.0));
                figure(
                    &format!("{name}: 1% shifts of {size} sigma, false discoveries / power"),
                    format!(
                        "{:.3} / {:.2} (screen alone {:.3} / {:.2}; extra runs {:.1}%)",
                        found.confirmed[0] as f64 / found.confirmed[1].max(1) as f64,
                        (found.confirmed[1] - found.confirmed[0]) as f64 / found.truths as f64,
                        found.screen[0] as f64 / found.screen[1].max(1) as f64,
                        (found.screen[1] - found.screen[0]) as f64 / found.truths as f64,
                        extra(&found),
                    ),
                    if size == 3.0 {
                        "at most 0.05 / at least 0.90"
                    } else {
                        "at most 0.05"
                    },
                );
            }
        }
    }
}

fn extra(outcome: &Outcome) -> f64 {
    100.0 * outcome.extra as f64 / outcome.runs as f64
}

fn measure(pools: &[Pool], families: usize, setup: &Setup) -> Outcome {
    let mut random = Random(42);
    let mut outcome = Outcome::default();
    let policy = Policy::default();
    for _ in 0..families {
        let mut cells = Vec::with_capacity(FAMILY);
        let mut family: Vec<(Question, Comparison)> = Vec::with_capacity(FAMILY);
        for _ in 0..FAMILY {
            let pool = random.below(pools.len());
            let shifted = random.uniform() <= setup.shifts.0;
            let sign = if random.below(2) == 0 { 1.0 } else { -1.0 };
            let shift = if shifted { sign * setup.shifts.1 } else { 0.0 };
            let question = Question {
                better: Better::Lower,
                min_effect: setup.min_effect,
                level: 0.05,
                noise: setup
                    .history
                    .then(|| learn(&pools[pool], &mut random))
                    .flatten(),
            };
            let sides = draw(&pools[pool], setup.rounds as u32, shift, 1, &mut random);
            family.push((question, compare(&sides.0, &sides.1, &question)));
            cells.push((pool, shift));
        }
        decide(&mut family);
        let wrong = |i: usize, verdict: Verdict| match verdict {
            Verdict::Regression => cells[i].1 <= 0.0,
            _ => cells[i].1 >= 0.0,
        };
        let tally = |family: &[(Question, Comparison)]| {
            let alarms: Vec<usize> = (0..FAMILY)
                .filter(|i| family[*i].1.verdict.is_change())
                .collect();
            let false_alarms = alarms
                .iter()
                .filter(|i| wrong(**i, family[**i].1.verdict))
                .count();
            [false_alarms, alarms.len(), usize::from(!alarms.is_empty())]
        };
        add(&mut outcome.screen, tally(&family));
        outcome.truths += cells.iter().filter(|cell| cell.1 != 0.0).count();
        outcome.runs += 2 * setup.rounds * FAMILY;
        for index in confirm::candidates(&family, &policy) {
            let (pool, shift) = cells[index];
            let (question, screen) = &family[index];
            let mut sides = draw(&pools[pool], policy.look, shift, 2, &mut random);
            let mut confirmation = compare(&sides.0, &sides.1, question);
            if confirm::worth_the_rest(screen, &confirmation) {
                let rest = policy.rounds - policy.look;
                let more = draw(&pools[pool], rest, shift, 3, &mut random);
                sides.0.extend(more.0);
                sides.1.extend(more.1);
                confirmation = compare(&sides.0, &sides.1, question);
            }
            outcome.extra += sides.0.len() + sides.1.len();
            family[index].1 = confirm::merge(screen, &confirmation, &policy);
        }
        decide(&mut family);
        add(&mut outcome.confirmed, tally(&family));
    }
    outcome
}

fn add(sum: &mut [usize; 3], more: [usize; 3]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more;
    }
}

/// Interleaved rounds A B, B A, … of consecutive noise.
fn draw(
    pool: &Pool,
    rounds: u32,
    shift: f64,
    session: i64,
    random: &mut Random,
) -> (Vec<Sample>, Vec<Sample>) {
    let rounds = rounds as usize;
    let noise = blocks(pool, 2 * rounds, random);
    let sample = |round: usize, at: usize, shift: f64| Sample {
        round: round as u32,
        session,
        value: 100.0 * (SIGMA * (noise[2 * round + at] + shift)).exp(),
    };
    let first = |round: usize| round % 2;
    let a = (0..rounds)
        .map(|round| sample(round, first(round), 0.0))
        .collect();
    let b = (0..rounds)
        .map(|round| sample(round, 1 - first(round), shift))
        .collect();
    (a, b)
}

fn learn(pool: &Pool, random: &mut Random) -> Option<Noise> {
    let session = |_| -> Vec<f64> {
        let noise = blocks(pool, HISTORY.1, random);
        noise.iter().map(|x| 100.0 * (SIGMA * x).exp()).collect()
    };
    Noise::from_sessions(&(0..HISTORY.0).map(session).collect::<Vec<_>>())
}
