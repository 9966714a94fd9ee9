//! The figures of the search for a culprit: worlds with one culprit or none, measured until the search is settled.

use std::collections::BTreeSet;
use std::thread;

use matrix::judge::culprit::{Age, Assumptions, CulpritSearch};

use super::data::Random;
use super::figure;

/// Commits on the line.
const CANDIDATES: usize = 1024;
/// A search that takes more is given up.
const RUNS_MAX: usize = 1000;
const FRESH: Assumptions = Assumptions {
    none: 0.1,
    drift: 0.1,
    shift_min: 0.0,
};

#[derive(Clone, Copy)]
struct World {
    /// Shift in sigma, of which 0.6745 is the upper quartile of the noise.
    shift: f64,
    noise: Noise,
    /// Twenty samples an end of the past, instead of ten fresh ones.
    is_past: bool,
    has_culprit: bool,
    /// In runs.
    build_cost: f64,
    /// Share of commits that cannot be measured, in rows of 1 to 5.
    untestable: f64,
    /// Sigma a run.
    drift: f64,
    /// In sigma.
    shift_min: f64,
}

const WORLD: World = World {
    shift: 2.0,
    noise: Noise::Gauss,
    is_past: false,
    has_culprit: true,
    build_cost: 0.0,
    untestable: 0.0,
    drift: 0.0,
    shift_min: 0.0,
};

#[derive(Clone, Copy)]
enum Noise {
    Gauss,
    Student(f64),
    /// 3 % of samples with eightfold sigma.
    Heavy,
    /// Two modes, the second one with this share, with a distance so that the standard deviation is 1.
    Modes(f64),
}

/// χ² with `degrees`, by Marsaglia & Tsang (2000).
fn chi_squared(degrees: f64, random: &mut Random) -> f64 {
    let shape = degrees / 2.0 + 1.0;
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = random.gauss();
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && random.uniform().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return 2.0 * d * v * random.uniform().powf(2.0 / degrees);
        }
    }
}

impl Noise {
    fn draw(self, random: &mut Random) -> f64 {
        match self {
            Noise::Gauss => random.gauss(),
            Noise::Student(degrees) => {
                let t = random.gauss() / (chi_squared(degrees, random) / degrees).sqrt();
                // The upper quartile of |t|.
                let quartile = if degrees < 2.0 { 0.8865 } else { 0.7649 };
                t * 0.6745 / quartile
            }
            Noise::Heavy if random.uniform() < 0.03 => 8.0 * random.gauss(),
            Noise::Heavy => random.gauss(),
            Noise::Modes(share) => {
                let within = 0.3;
                let distance = ((1.0 - within * within) / (share * (1.0 - share))).sqrt();
                let mode = f64::from(u8::from(random.uniform() < share));
                distance * (mode - share) + within * random.gauss()
            }
        }
    }
}

struct Outcome {
    /// The culprit alone was named, or none where there is none.
    is_right: bool,
    is_in_set: bool,
    /// A set was answered.
    is_named: bool,
    /// The first commit after a row of untestable ones was blamed alone.
    blames_the_first: bool,
    size: usize,
    stated: f64,
    runs: usize,
    builds: usize,
}

fn search(world: World, seed: u64) -> Outcome {
    let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let culprit = 1 + random.below(CANDIDATES);
    let mut untestable = BTreeSet::new();
    while (untestable.len() as f64) < world.untestable * CANDIDATES as f64 {
        let first = 1 + random.below(CANDIDATES - 1);
        let row = first..first + 1 + random.below(5);
        untestable.extend(row.filter(|at| *at < CANDIDATES));
    }
    let none = if world.is_past { 0.2 } else { FRESH.none };
    let assumptions = Assumptions {
        none,
        shift_min: world.shift_min,
        ..FRESH
    };
    let mut search = CulpritSearch::new(CANDIDATES, assumptions, seed);
    let mut time = 0.0;
    let mut measure = |at: usize, random: &mut Random, drifts: bool| {
        let is_bad = world.has_culprit && at >= culprit;
        let level = if is_bad { world.shift } else { 0.0 };
        time += f64::from(u8::from(drifts));
        world.noise.draw(random) + level + world.drift * time
    };
    for round in 0..if world.is_past { 20 } else { 10 } {
        for at in [[0, CANDIDATES], [CANDIDATES, 0]][round % 2] {
            let mut value = measure(at, &mut random, !world.is_past);
            if world.is_past && at > 0 && !world.has_culprit {
                // A false alarm of the past: it was bad then for another reason.
                value += world.shift;
            }
            let age = if world.is_past { Age::Past } else { Age::Now };
            search.add(at, value, age);
        }
    }
    let mut built = BTreeSet::from([0, CANDIDATES]);
    let (mut runs, mut builds) = (0, 0);
    loop {
        let belief = search.belief().expect("both ends are measured");
        if belief.is_settled() || runs >= RUNS_MAX {
            let is_none = belief.none > belief.probability;
            let is_named = belief.is_settled() && !is_none;
            let is_in_set = is_named && world.has_culprit && belief.set.contains(&culprit);
            let alone = if let [at] = belief.set[..] {
                Some(at)
            } else {
                None
            };
            return Outcome {
                is_right: match is_none {
                    true => !world.has_culprit && belief.is_settled(),
                    false => is_in_set && alone.is_some(),
                },
                is_in_set,
                is_named,
                blames_the_first: is_named
                    && alone.is_some_and(|at| untestable.contains(&(at - 1))),
                size: belief.set.len(),
                stated: belief.probability,
                runs,
                builds,
            };
        }
        let cost = |at: usize| {
            if built.contains(&at) {
                0.0
            } else {
                world.build_cost
            }
        };
        let wish = search.wish(&cost);
        builds += usize::from(built.insert(wish.at));
        if untestable.contains(&wish.at) {
            search.set_untestable(wish.at);
            continue;
        }
        for _ in 0..wish.runs {
            let value = measure(wish.at, &mut random, true);
            search.add(wish.at, value, Age::Now);
        }
        runs += wish.runs;
    }
}

/// All trials of a world, by two threads.
fn trials(world: World, quick: bool) -> Vec<Outcome> {
    let count = if quick { 40 } else { 400 };
    let half = move |first: u64| -> Vec<Outcome> {
        let seeds = (1000 + first..1000 + count).step_by(2);
        seeds.map(|seed| search(world, seed)).collect()
    };
    thread::scope(|scope| {
        let other = scope.spawn(move || half(1));
        let mut all = half(0);
        all.extend(other.join().expect("a trial came to its end"));
        all
    })
}

fn row(name: &str, world: World, asked: &str, quick: bool) {
    let all = trials(world, quick);
    let mean = |of: &dyn Fn(&Outcome) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    let share = |of: &dyn Fn(&Outcome) -> bool| mean(&|one| f64::from(u8::from(of(one))));
    let named: Vec<&Outcome> = all.iter().filter(|one| one.is_named).collect();
    let of_named = |of: &dyn Fn(&Outcome) -> f64| {
        named.iter().map(|one| of(one)).sum::<f64>() / named.len().max(1) as f64
    };
    let mut runs: Vec<usize> = all.iter().map(|one| one.runs).collect();
    runs.sort_unstable();
    let mut cells = vec![format!("right {:.3}", share(&|one| one.is_right))];
    if world.has_culprit {
        let observed = of_named(&|one| f64::from(u8::from(one.is_in_set)));
        let stated = of_named(&|one| one.stated);
        cells.push(format!("stated {stated:.3}, observed {observed:.3}"));
    } else {
        cells.push(format!("names a commit {:.3}", share(&|one| one.is_named)));
    }
    if world.untestable > 0.0 {
        let size = of_named(&|one| one.size as f64);
        let blamed = share(&|one| one.blames_the_first);
        cells.push(format!(
            "in the set {:.3}, of {size:.1} on average, first after untestable ones blamed alone {blamed:.3}",
            share(&|one| one.is_in_set)
        ));
    }
    cells.push(format!(
        "runs {:.1} (95 %: {}), builds {:.1}",
        mean(&|one| one.runs as f64),
        runs[runs.len() * 95 / 100],
        mean(&|one| one.builds as f64)
    ));
    figure(name, cells.join("; "), asked);
}

pub fn run(quick: bool) {
    let of = |noise: Noise, shift: f64| World {
        noise,
        shift,
        ..WORLD
    };
    let past = |world: World| World {
        is_past: true,
        ..world
    };
    let kinds = [
        ("Gauss", Noise::Gauss, 3.0, ["at least .99 in 16", "16"]),
        ("Gauss", Noise::Gauss, 2.0, ["at least .97 in 27", "28"]),
        ("heavy", Noise::Heavy, 2.0, ["at least .97 in 31", "34"]),
        ("Gauss", Noise::Gauss, 1.0, ["at least .95 in 110", "125"]),
    ];
    for (name, noise, shift, [of_past, of_fresh]) in kinds {
        let world = of(noise, shift);
        let name = |start: &str| format!("BIS {start}, {name}, {shift} sigma");
        row(&name("ends of the past"), past(world), of_past, quick);
        row(
            &name("fresh ends"),
            world,
            &format!("as above, in {of_fresh}"),
            quick,
        );
    }
    let others = [
        ("t3", Noise::Student(3.0)),
        ("t1.5", Noise::Student(1.5)),
        ("two modes, 50:50", Noise::Modes(0.5)),
        ("two modes, 80:20", Noise::Modes(0.2)),
    ];
    for (name, noise) in others {
        for shift in [3.0, 2.0, 1.0] {
            let asked = if shift > 1.0 {
                "observed .93 to .97"
            } else {
                "within .04"
            };
            row(
                &format!("BIS fresh ends, {name}, {shift} sigma"),
                of(noise, shift),
                asked,
                quick,
            );
        }
    }
    for shift in [3.0, 2.0] {
        let none = World {
            has_culprit: false,
            shift_min: shift / 2.0,
            ..of(Noise::Gauss, shift)
        };
        let asked = "names at most .01, in 12";
        row(
            &format!("BIS no culprit, ends of the past said {shift} sigma"),
            past(none),
            asked,
            quick,
        );
        row(
            &format!("BIS no culprit, fresh ends, looking for {shift} sigma"),
            none,
            asked,
            quick,
        );
        let builds = World {
            build_cost: 50.0,
            ..of(Noise::Gauss, shift)
        };
        let asked = if shift > 2.0 {
            "50 runs, 11 builds"
        } else {
            "85 runs, 11 builds"
        };
        row(
            &format!("BIS a build costs 50 runs, {shift} sigma"),
            builds,
            asked,
            quick,
        );
        let untestable = World {
            untestable: 0.3,
            ..of(Noise::Gauss, shift)
        };
        row(
            &format!("BIS 30 % untestable, {shift} sigma"),
            untestable,
            "in the set at least .97",
            quick,
        );
        // Over as many runs as the search takes without it.
        let drift = World {
            drift: 2.0 / if shift > 2.0 { 16.0 } else { 28.0 },
            ..of(Noise::Gauss, shift)
        };
        let asked = "within .03 of the same without";
        row(
            &format!("BIS drift of 2 sigma, fresh ends, {shift} sigma"),
            drift,
            asked,
            quick,
        );
        row(
            &format!("BIS drift of 2 sigma, ends of the past, {shift} sigma"),
            past(drift),
            asked,
            quick,
        );
    }
}
