//! Protocol AA: one version against itself, and with a few true shifts among many.

use std::collections::BTreeMap;
use std::ops::Range;

use matrix::base::sample::{Better, Sample};
use matrix::judge::confirm::{self, Finding, Policy};
use matrix::judge::stats::{self, Prior};
use matrix::judge::verdict::{
    Comparison, Noise, Question, Verdict, compare, decide, evidence, noise_within,
};

use statrs::function::beta::beta_reg;

use crate::data::{Pool, Random, blocks, pools};
use crate::figure;

/// Comparisons in a family.
const FAMILY: usize = 10_000;

/// True shifts of what asks for no confirmation.
const BESIDE_SIGMA: f64 = 30.0;

/// One sigma of a sample's noise, as a fraction.
const SIGMA: f64 = 0.01;

/// How far sigmas of real benchmarks lie apart: standard deviation of their logarithms.
const SPREAD: f64 = 1.0;

/// Sessions and rounds that a cell's noise is learned from.
const HISTORY: (usize, usize) = (8, 5);

struct Setup {
    rounds: usize,
    history: bool,
    min_effect: f64,
    /// Share of true shifts, and their size in sigma.
    shifts: (f64, f64),
    /// Standard deviation of the logarithm of a cell's sigma about [`SIGMA`].
    spread: f64,
    /// Share of comparisons that ask for no confirmation, and are clearly shifted.
    beside: f64,
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
    println!("| noise: {} pools, {what} | | |", pools.len());
    let setups = [(5, false), (5, true), (10, false), (10, true)];
    std::thread::scope(|scope| {
        let pools = &pools;
        let started = setups.map(|(rounds, history)| {
            scope.spawn(move || protocol(pools, rounds, history, if quick { 4 } else { 50 }))
        });
        for rows in started {
            for (name, measured, asked) in rows.join().unwrap_or_default() {
                figure(&name, measured, asked);
            }
        }
    });
}

type Row = (String, String, &'static str);

/// `quiet` nights, and fewer with shifts of each size.
fn protocol(pools: &[Pool], rounds: usize, history: bool, quiet: usize) -> Vec<Row> {
    let setup = |shifts| Setup {
        rounds,
        history,
        min_effect: 0.0,
        shifts,
        spread: 0.0,
        beside: 0.0,
    };
    let known = if history { "with" } else { "without" };
    let name = format!("AA {rounds}+{rounds} {known} history");
    let found = measure(pools, quiet, &setup((0.0, 0.0)));
    let mut rows = vec![(
        format!("{name}: alarms in {quiet} quiet nights, screen alone / confirmed"),
        alarms(&found, quiet),
        "confirmed: at most 1 in 50",
    )];
    for (size, spread, nights, asked) in [
        (1.0, 0.0, quiet.div_ceil(5), "at most 0.05"),
        (2.0, 0.0, quiet.div_ceil(5), "at most 0.05"),
        (3.0, 0.0, quiet.div_ceil(2), "at most 0.05 / at least 0.90"),
        (3.0, SPREAD, quiet.div_ceil(2), "at most 0.05"),
    ] {
        // What a past tells does not depend on other cells.
        if spread > 0.0 && history {
            continue;
        }
        let shifts = setup((0.01, size));
        let found = measure(pools, nights, &Setup { spread, ..shifts });
        let of = if spread > 0.0 {
            " where sigmas differ"
        } else {
            ""
        };
        let right = |tally: [usize; 3]| tally[1] - tally[0];
        rows.push((
            format!("{name}: 1% shifts of {size} sigma{of}, false discoveries / power"),
            format!(
                "{} / {} (screen alone {:.3} / {:.3}; extra runs {:.1}%)",
                share(found.confirmed[0], found.confirmed[1]),
                share(right(found.confirmed), found.truths),
                found.screen[0] as f64 / found.screen[1].max(1) as f64,
                right(found.screen) as f64 / found.truths as f64,
                extra(&found),
            ),
            asked,
        ));
    }
    let beside = Setup {
        beside: 0.2,
        ..setup((0.0, 0.0))
    };
    let found = measure(pools, quiet, &beside);
    rows.push((
        format!("{name}: alarms in {quiet} quiet nights beside 20% unconfirmed true effects, screen alone / confirmed"),
        alarms(&found, quiet),
        "confirmed: at most 1 in 20 nights",
    ));
    rows
}

/// What is found in nights where there is nothing to be found.
fn alarms(found: &Outcome, nights: usize) -> String {
    format!(
        "{} / {} (nights with one: {}; extra runs {:.1}%)",
        found.screen[1],
        found.confirmed[1],
        share(found.confirmed[2], nights),
        extra(found)
    )
}

/// A share with its 95 % interval (Clopper & Pearson, 1934).
fn share(part: usize, whole: usize) -> String {
    let (k, n) = (part as f64, whole as f64);
    // Where the beta distribution reaches `p`, by halving.
    let quantile = |a: f64, b: f64, p: f64| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            match beta_reg(a, b, middle) < p {
                true => low = middle,
                false => high = middle,
            }
        }
        low
    };
    let low = if part == 0 {
        0.0
    } else {
        quantile(k, n - k + 1.0, 0.025)
    };
    let high = if part == whole {
        1.0
    } else {
        quantile(k + 1.0, n - k, 0.975)
    };
    format!("{:.3} [{low:.3}, {high:.3}]", k / n.max(1.0))
}

fn extra(outcome: &Outcome) -> f64 {
    100.0 * outcome.extra as f64 / outcome.runs as f64
}

fn measure(pools: &[Pool], families: usize, setup: &Setup) -> Outcome {
    let mut random = Random(42);
    let mut outcome = Outcome::default();
    for _ in 0..families {
        let cells: Vec<Cell> = (0..FAMILY)
            .map(|_| Cell::drawn(pools, setup, &mut random))
            .collect();
        let mut family: Vec<(Question, Comparison)> = cells
            .iter()
            .map(|cell| (cell.question, cell.screen.clone()))
            .collect();
        decide(&mut family);
        add(&mut outcome.screen, tally(&cells, &family));
        let truths = cells
            .iter()
            .filter(|cell| cell.confirms && cell.shift != 0.0);
        outcome.truths += truths.count();
        outcome.runs += 2 * setup.rounds * FAMILY;
        outcome.extra += measure_again(&cells, &mut family, setup, &mut random);
        add(&mut outcome.confirmed, tally(&cells, &family));
    }
    outcome
}

/// False alarms, alarms, and whether there is any, of comparisons that ask for confirmation.
fn tally(cells: &[Cell], family: &[(Question, Comparison)]) -> [usize; 3] {
    let wrong = |i: &usize| match family[*i].1.verdict {
        Verdict::Regression => cells[*i].shift <= 0.0,
        _ => cells[*i].shift >= 0.0,
    };
    let alarms: Vec<usize> = (0..FAMILY)
        .filter(|i| cells[*i].confirms && family[*i].1.verdict.is_change())
        .collect();
    let false_alarms = alarms.iter().filter(|i| wrong(i)).count();
    [false_alarms, alarms.len(), usize::from(!alarms.is_empty())]
}

/// The confirmation of a family, as the program does it; returns the runs made for it.
fn measure_again(
    cells: &[Cell],
    family: &mut [(Question, Comparison)],
    setup: &Setup,
    random: &mut Random,
) -> usize {
    let policy = Policy::default();
    let mut left = policy.runs(2 * setup.rounds * FAMILY);
    let mut extra = 0;
    let mut fresh: BTreeMap<usize, Fresh> = BTreeMap::new();
    let mut open: Vec<usize> = (0..FAMILY)
        .filter(|i| cells[*i].confirms && confirm::is_open(&family[*i].1))
        .collect();
    // Where each has a history nobody asks the others.
    let mut within: Vec<Option<Prior>> = (cells.iter())
        .filter(|_| !setup.history)
        .map(|cell| noise_within(&cell.sides.0, &cell.sides.1))
        .collect();
    for stage in policy.stages() {
        let all = |i: &usize| cells[*i].with(fresh.get(i));
        open.retain(|i| stage.from == 0 || confirm::is_open(&cells[*i].compared(&all(i))));
        let others = stats::pooled(&within.iter().flatten().copied().collect::<Vec<_>>());
        let promise: Vec<f64> = open
            .iter()
            .map(|i| {
                let (base, cand) = all(i);
                evidence(&base, &cand, &cells[*i].question, others)
            })
            .collect();
        let chosen = confirm::afforded(&promise, stage, &mut left);
        open = chosen.into_iter().map(|at| open[at]).collect();
        for i in &open {
            let again = fresh.entry(*i).or_default();
            let more = stage.to - stage.from;
            let Cell { noise, shift, .. } = cells[*i];
            let first = setup.rounds as u32 + stage.from;
            let sides = draw(noise, first..first + more, shift, random);
            extra += sides.0.len() + sides.1.len();
            again.sides.0.extend(sides.0);
            again.sides.1.extend(sides.1);
            if !setup.history {
                let (base, cand) = cells[*i].with(Some(again));
                within[*i] = noise_within(&base, &cand);
            }
            if stage.is_look {
                again.looks.push(cells[*i].compared(&again.sides));
            }
        }
        if stage.is_look {
            judge(cells, family, &fresh);
            open.retain(|i| !family[*i].1.verdict.is_change());
        }
    }
    judge(cells, family, &fresh);
    extra
}

fn judge(cells: &[Cell], family: &mut [(Question, Comparison)], fresh: &BTreeMap<usize, Fresh>) {
    let finding = |(i, cell): (usize, &Cell)| {
        let again = fresh.get(&i);
        let looks = again.map_or(&[][..], |again| &again.looks);
        Finding {
            question: cell.question,
            screen: cell.screen.clone(),
            confirms: cell.confirms,
            is_again: again.is_some(),
            fresh: confirm::confirmed(&cell.screen, looks, &Policy::default()),
        }
    };
    let findings: Vec<Finding> = cells.iter().enumerate().map(finding).collect();
    for ((_, told), decision) in family.iter_mut().zip(confirm::decide(&findings)) {
        *told = decision.comparison;
    }
}

type Sides = (Vec<Sample>, Vec<Sample>);

/// What was measured again of a cell.
#[derive(Default)]
struct Fresh {
    sides: Sides,
    looks: Vec<Comparison>,
}

/// Where a cell's noise comes from: its residuals, and what one sigma is as a fraction.
type Source<'a> = (&'a Pool, f64);

struct Cell<'a> {
    noise: Source<'a>,
    confirms: bool,
    /// In sigma.
    shift: f64,
    question: Question,
    sides: Sides,
    screen: Comparison,
}

impl<'a> Cell<'a> {
    fn drawn(pools: &'a [Pool], setup: &Setup, random: &mut Random) -> Self {
        let pool = &pools[random.below(pools.len())];
        let noise = match setup.spread > 0.0 {
            true => (pool, SIGMA * (setup.spread * random.gauss()).exp()),
            false => (pool, SIGMA),
        };
        let shifted = random.uniform() <= setup.shifts.0;
        let sign = if random.below(2) == 0 { 1.0 } else { -1.0 };
        let confirms = setup.beside == 0.0 || random.uniform() > setup.beside;
        let shift = match (confirms, shifted) {
            (false, _) => sign * BESIDE_SIGMA,
            (true, true) => sign * setup.shifts.1,
            (true, false) => 0.0,
        };
        let question = Question {
            noise: setup.history.then(|| learn(noise, random)).flatten(),
            ..Question::new(Better::Lower, setup.min_effect)
        };
        let sides = draw(noise, 0..setup.rounds as u32, shift, random);
        Cell {
            noise,
            confirms,
            shift,
            question,
            screen: compare(&sides.0, &sides.1, &question),
            sides,
        }
    }

    fn compared(&self, sides: &Sides) -> Comparison {
        compare(&sides.0, &sides.1, &self.question)
    }

    /// All samples.
    fn with(&self, fresh: Option<&Fresh>) -> Sides {
        let mut sides = self.sides.clone();
        if let Some(again) = fresh {
            sides.0.extend(&again.sides.0);
            sides.1.extend(&again.sides.1);
        }
        sides
    }
}

fn add(sum: &mut [usize; 3], more: [usize; 3]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more;
    }
}

/// Interleaved rounds A B, B A, … of consecutive noise.
fn draw((pool, sigma): Source, rounds: Range<u32>, shift: f64, random: &mut Random) -> Sides {
    let noise = blocks(pool, 2 * rounds.len(), random);
    let mut sides = (Vec::new(), Vec::new());
    for (round, noise) in rounds.zip(noise.chunks_exact(2)) {
        let sample = |at: usize, shift: f64| Sample {
            round,
            session: 1,
            value: 100.0 * (sigma * (noise[at] + shift)).exp(),
        };
        let first = round as usize % 2;
        sides.0.push(sample(first, 0.0));
        sides.1.push(sample(1 - first, shift));
    }
    sides
}

fn learn((pool, sigma): Source, random: &mut Random) -> Option<Noise> {
    let session = |_| -> Vec<f64> {
        let noise = blocks(pool, HISTORY.1, random);
        noise.iter().map(|x| 100.0 * (sigma * x).exp()).collect()
    };
    Noise::from_sessions(&(0..HISTORY.0).map(session).collect::<Vec<_>>())
}
