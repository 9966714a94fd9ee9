//! The tests of the dispatcher: logs of what a machine is told, in order.

use std::cell::Cell;
use std::collections::BTreeSet;

use super::*;
use crate::config::decode::tests::read;
use crate::config::matrix::Matrix;
use crate::plan::cell::CellChoice;
use crate::plan::dag;
use crate::plan::steps::NoDigests;

/// A matrix with the given `[[setup]]` tables and repetition.
fn matrix(setups: &str, repeat: &str) -> Matrix {
    read(&format!(
        r#"
        [matrix]
        name = "m"
        [axes]
        cache = ["none", "writeback"]
        bs    = ["4k", "64k"]
        {setups}
        [run]
        command = "x {{{{ cache }}}} {{{{ bs }}}}"
        parser  = "json"
        repeat  = {repeat}
        [metrics.iops]
    "#
    ))
}

fn setup(name: &str, axis: &str, scope: &str) -> String {
    format!(
        "[[setup]]\nname = \"{name}\"\nrun = [\"make {{{{ {axis} }}}}\"]\nscope = \"{scope}\"\n"
    )
}

/// The answer when all goes well.
fn good(action: &Action) -> Completed {
    match *action {
        Action::SetUp { setup, step } => Completed::SetUp {
            setup,
            step,
            error: None,
        },
        Action::Undo { setup, step } => Completed::Undo { setup, step },
        Action::Measure { run, round } => Completed::Measured {
            run,
            round,
            outcome: MeasureOutcome::Sample,
        },
        Action::GiveUp { run, round, .. } => Completed::GaveUp { run, round },
    }
}

/// The rounds of the matrix for each run step of a machine, but for those of which `have(run)` has some.
fn requests(plan: &Plan, machine: u16, have: &dyn Fn(usize) -> Vec<u32>) -> Vec<RunRequest> {
    let axis = plan.cells.axis("machine").unwrap();
    let runs = 0..plan.steps.runs.len();
    let own = runs.filter(|run| plan.cell_of(*run)[axis] == machine);
    let request = |run: usize| RunRequest {
        run: run as u32,
        rounds: (0..plan.matrix.run.repeat.min)
            .filter(|round| !have(run).contains(round))
            .collect(),
    };
    own.map(request).collect()
}

/// A run without an executor. `log` holds one line for each action.
struct Bench<'p> {
    plan: &'p Plan<'p>,
    /// By machine.
    dispatch: Vec<Dispatch<'p>>,
    log: Vec<String>,
}

impl<'p> Bench<'p> {
    fn new(plan: &'p Plan<'p>) -> Self {
        Bench::with(plan, &|_| Vec::new())
    }

    /// `have(run)`: rounds that are stored.
    fn with(plan: &'p Plan<'p>, have: &dyn Fn(usize) -> Vec<u32>) -> Self {
        let axis = plan.cells.axis("machine").unwrap();
        let machines = 0..plan.cells.axes[axis].labels.len() as u16;
        let dispatch = machines.map(|machine| {
            let mut dispatch = Dispatch::new(plan, 7, 1);
            dispatch.want(&requests(plan, machine, have));
            dispatch
        });
        Bench {
            plan,
            dispatch: dispatch.collect(),
            log: Vec::new(),
        }
    }

    fn is_finished(&self) -> bool {
        let mut all = self.dispatch.iter();
        all.all(|it| it.is_idle() && it.slots.iter().all(|slot| slot.live.is_empty()))
    }

    fn name(&self, cell: u32, axes: &[usize]) -> String {
        let visible: Vec<usize> = (axes.iter().copied())
            .filter(|&axis| !self.plan.cells.axes[axis].silent)
            .collect();
        self.plan
            .scope()
            .name_of(self.plan.cells.cell(cell as usize), &visible)
    }

    fn setup(&self, setup: usize, step: u32) -> String {
        let shared = &self.plan.steps.setups[setup];
        let name = &self.plan.matrix.setups[setup].name.value;
        let cell = shared.steps[step as usize].cell;
        format!("{name} {}", self.name(cell, &shared.axes))
            .trim_end()
            .to_owned()
    }

    fn line(&self, action: &Action) -> String {
        let run = |run: u32| self.plan.cells.name(self.plan.cell_of(run as usize));
        match action {
            Action::SetUp { setup, step } => format!("make {}", self.setup(*setup, *step)),
            Action::Undo { setup, step } => format!("undo {}", self.setup(*setup, *step)),
            Action::Measure { run: of, round } => format!("{round}: {}", run(*of)),
            Action::GiveUp {
                run: of, reason, ..
            } => format!("give up {}: {reason}", run(*of)),
        }
    }

    /// One action of a machine; false when it has none.
    fn step(
        &mut self,
        machine: usize,
        answer: &mut impl FnMut(&str, Completed) -> Completed,
    ) -> bool {
        let Some((slot, action)) = self.dispatch[machine].next_action() else {
            return false;
        };
        assert_eq!(
            self.dispatch[machine].next_action(),
            None,
            "one action at a time"
        );
        let line = self.line(&action);
        let done = answer(&line, good(&action));
        self.log.push(line);
        self.dispatch[machine].on(slot, done);
        true
    }

    /// Runs to the end, one machine after the other; what is not changed by `answer` goes well.
    fn run(mut self, mut answer: impl FnMut(&str, Completed) -> Completed) -> Vec<String> {
        for machine in 0..self.dispatch.len() {
            while self.step(machine, &mut answer) {}
        }
        assert!(self.is_finished(), "{:#?}", self.log);
        self.log
    }
}

fn log(matrix: &Matrix) -> Vec<String> {
    let plan = dag::plan(matrix, &CellChoice::default(), &NoDigests).unwrap();
    Bench::new(&plan).run(|_, done| done)
}

/// What was measured in a round, in order.
fn round(log: &[String], round: u32) -> Vec<&str> {
    let start = format!("{round}: ");
    log.iter()
        .filter_map(|line| line.strip_prefix(&start))
        .collect()
}

fn sorted(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names
}

const CELLS: [&str; 4] = [
    "cache=none,bs=4k",
    "cache=none,bs=64k",
    "cache=writeback,bs=4k",
    "cache=writeback,bs=64k",
];

#[test]
fn each_round_visits_each_cell_once_in_an_order_of_its_own() {
    let log = log(&matrix("", "20"));
    let orders: BTreeSet<Vec<&str>> = (0..20).map(|n| round(&log, n)).collect();
    assert!(orders.iter().all(|order| sorted(order.clone()) == CELLS));
    assert!(orders.len() > 10, "20 rounds in {} orders", orders.len());
    // Rounds follow each other.
    let rounds: Vec<&str> = log
        .iter()
        .map(|line| line.split(':').next().unwrap())
        .collect();
    assert!(
        rounds
            .chunks(4)
            .all(|four| four.iter().all(|round| *round == four[0]))
    );
}

#[test]
fn a_session_set_up_is_made_once_and_undone_at_the_end() {
    let log = log(&matrix(&setup("image", "machine", "session"), "2"));
    assert_eq!(log.len(), 1 + 8 + 1);
    assert_eq!((&log[0][..], &log[9][..]), ("make image", "undo image"));
}

#[test]
fn a_round_set_up_is_made_anew_in_each_round() {
    let log = log(&matrix(&setup("nbd", "machine", "round"), "2"));
    let kinds: Vec<&str> = log
        .iter()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    let of_a_round = |n| ["make", n, n, n, n, "undo"];
    assert_eq!(kinds, [of_a_round("0:"), of_a_round("1:")].concat());
}

#[test]
fn a_run_set_up_is_made_anew_for_each_measurement() {
    let log = log(&matrix(&setup("nbd", "machine", "run"), "1"));
    let kinds: Vec<&str> = log
        .iter()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(kinds, ["make", "0:", "undo"].repeat(4));
}

#[test]
fn cells_that_share_a_set_up_stand_together() {
    let log = log(&matrix(&setup("nbd", "cache", "round"), "6"));
    let made = log.iter().filter(|line| line.starts_with("make")).count();
    assert_eq!(made, 2 * 6, "{log:#?}");
}

#[test]
fn set_ups_are_a_stack() {
    let setups = setup("image", "machine", "session") + &setup("nbd", "cache", "round");
    let log = log(&matrix(&setups, "1"));
    let steps: Vec<&str> = log
        .iter()
        .map(String::as_str)
        .filter(|line| !line.starts_with("0:"))
        .collect();
    let (first, second) = match steps[1] {
        "make nbd cache=none" => ("cache=none", "cache=writeback"),
        _ => ("cache=writeback", "cache=none"),
    };
    let nbd = |what: &str, value: &str| format!("{what} nbd {value}");
    let expected = [
        "make image".to_owned(),
        nbd("make", first),
        nbd("undo", first),
        nbd("make", second),
        nbd("undo", second),
        "undo image".to_owned(),
    ];
    assert_eq!(steps, expected);
}

#[test]
fn a_set_up_below_one_that_is_made_anew_is_made_anew_too() {
    let setups = setup("nbd", "machine", "round") + &setup("mount", "machine", "session");
    let log = log(&matrix(&setups, "2"));
    let steps: Vec<&str> = log
        .iter()
        .map(String::as_str)
        .filter(|line| !line.contains(':'))
        .collect();
    assert_eq!(
        steps,
        ["make nbd", "make mount", "undo mount", "undo nbd"].repeat(2)
    );
}

#[test]
fn versions_take_turns_a_b_b_a() {
    let built = "[subject.git]\nrepo = \"r\"\n[build]\nrun = [\"make\"]\n";
    let matrix = matrix(built, "4");
    let choice = CellChoice {
        versions: vec!["a".into(), "b".into()],
        ..CellChoice::default()
    };
    let plan = dag::plan(&matrix, &choice, &NoDigests).unwrap();
    let log = Bench::new(&plan).run(|_, done| done);
    for n in 0..4 {
        let visits: Vec<(&str, &str)> = (round(&log, n).into_iter())
            .map(|name| name.split_once(',').unwrap())
            .collect();
        let (first, second) = visits.split_at(4);
        let turn = if n % 2 == 0 {
            ["version=a", "version=b"]
        } else {
            ["version=b", "version=a"]
        };
        assert!(
            first.iter().all(|(version, _)| *version == turn[0]),
            "{visits:?}"
        );
        assert!(
            second.iter().all(|(version, _)| *version == turn[1]),
            "{visits:?}"
        );
        let cells = |half: &[(&str, &str)]| {
            half.iter()
                .map(|(_, cell)| cell.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            cells(first),
            cells(second),
            "both versions meet the cells in the same order"
        );
    }
}

#[test]
fn a_set_up_that_fails_gives_up_its_cells_and_no_others() {
    let matrix = matrix(&setup("nbd", "cache", "round"), "2");
    let plan = dag::plan(&matrix, &CellChoice::default(), &NoDigests).unwrap();
    let log = Bench::new(&plan).run(|line, done| match (line, done) {
        ("make nbd cache=none", Completed::SetUp { setup, step, .. }) => Completed::SetUp {
            setup,
            step,
            error: Some("no such mode".into()),
        },
        (_, done) => done,
    });
    let given_up: Vec<&str> = log
        .iter()
        .filter_map(|line| line.strip_prefix("give up "))
        .collect();
    assert_eq!(
        sorted(given_up),
        [
            "cache=none,bs=4k: no such mode",
            "cache=none,bs=64k: no such mode"
        ]
    );
    let tried = log
        .iter()
        .filter(|line| *line == "make nbd cache=none")
        .count();
    assert_eq!(tried, 1, "it is not tried again");
    assert_eq!(sorted(round(&log, 0)), CELLS[2..]);
    assert_eq!(sorted(round(&log, 1)), CELLS[2..]);
}

#[test]
fn a_cell_that_fails_is_not_tried_again_and_the_next_gets_a_new_set_up() {
    let matrix = matrix(&setup("image", "machine", "session"), "2");
    let plan = dag::plan(&matrix, &CellChoice::default(), &NoDigests).unwrap();
    let mut failed = None;
    let log = Bench::new(&plan).run(|line, done| match done {
        Completed::Measured { run, round, .. } if failed.is_none() => {
            failed = Some(line.to_owned());
            Completed::Measured {
                run,
                round,
                outcome: MeasureOutcome::Failed,
            }
        }
        done => done,
    });
    let failed = failed.unwrap();
    assert_eq!(log[1], failed);
    assert_eq!(log[2..4], ["undo image", "make image"]);
    assert_eq!(round(&log, 1).len(), 3);
    assert!(!round(&log, 1).contains(&failed.strip_prefix("0: ").unwrap()));
}

#[test]
fn told_to_stop_it_undoes_what_is_set_up_and_nothing_more() {
    let setups = setup("image", "machine", "session") + &setup("nbd", "cache", "round");
    let matrix = matrix(&setups, "5");
    let plan = dag::plan(&matrix, &CellChoice::default(), &NoDigests).unwrap();
    let mut bench = Bench::new(&plan);
    for _ in 0..3 {
        assert!(bench.step(0, &mut |_, done| done));
    }
    bench.dispatch[0].stop();
    assert!(!bench.is_finished());
    let log = bench.run(|_, done| done);
    let made = log[1].strip_prefix("make ").unwrap();
    assert_eq!(log[3..], [format!("undo {made}"), "undo image".to_owned()]);
}

#[test]
fn an_interrupted_measurement_stops_the_run() {
    let matrix = matrix(&setup("image", "machine", "session"), "5");
    let plan = dag::plan(&matrix, &CellChoice::default(), &NoDigests).unwrap();
    let log = Bench::new(&plan).run(|_, done| match done {
        Completed::Measured { run, round, .. } => Completed::Measured {
            run,
            round,
            outcome: MeasureOutcome::Interrupted,
        },
        done => done,
    });
    assert_eq!(log.len(), 3, "{log:#?}");
    assert_eq!(log[2], "undo image");
}

#[test]
fn adaptive_repetition_ends_for_each_cell_by_itself() {
    let matrix = matrix("", "2");
    let plan = dag::plan(&matrix, &CellChoice::default(), &NoDigests).unwrap();
    // How many rounds each cell needs.
    let needs = [1, 2, 3, 5];
    let mut dispatch = Dispatch::new(&plan, 7, 1);
    dispatch.want(&requests(&plan, 0, &|_| Vec::new()));
    let mut visits = [0; 4];
    while let Some((slot, action)) = dispatch.next_action() {
        dispatch.on(slot, good(&action));
        if let Action::Measure { run, round } = action {
            visits[run as usize] += 1;
            dispatch.adjust(match round + 1 >= needs[run as usize] {
                true => Adjustment::Enough { run },
                // It changes nothing while others are still to come.
                false => Adjustment::OneMore { run, round },
            });
        }
    }
    assert_eq!(visits, needs);
}

#[test]
fn more_is_asked_for_while_set_ups_stand() {
    let matrix = matrix(&setup("image", "machine", "session"), "1");
    let plan = dag::plan(&matrix, &CellChoice::default(), &NoDigests).unwrap();
    let mut bench = Bench::new(&plan);
    let request = |rounds: &[u32]| RunRequest {
        run: plan.steps.runs.of_cell[0],
        rounds: rounds.to_vec(),
    };
    for asked in [&[4, 5][..], &[2, 3]] {
        while !bench.dispatch[0].is_idle() {
            bench.step(0, &mut |_, done| done);
        }
        bench.dispatch[0].want(&[request(asked)]);
    }
    let log = bench.run(|_, done| done);
    let own = |round: u32| format!("{round}: cache=none,bs=4k");
    assert_eq!((&log[0][..], log.len()), ("make image", 1 + 4 + 4 + 1));
    assert_eq!(log[5..9], [4, 5, 2, 3].map(own));
    assert_eq!(log[9], "undo image");
}

#[test]
fn what_failed_is_tried_again_when_it_is_asked_for_again() {
    let matrix = matrix("", "3");
    let plan = dag::plan(&matrix, &CellChoice::default(), &NoDigests).unwrap();
    let mut dispatch = Dispatch::new(&plan, 7, 1);
    let rounds = |rounds: &[u32]| RunRequest {
        run: 1,
        rounds: rounds.to_vec(),
    };
    dispatch.want(&[rounds(&[0, 1, 2])]);
    let mut tried = Vec::new();
    for _ in 0..2 {
        while let Some((slot, action)) = dispatch.next_action() {
            let Action::Measure { run, round } = action else {
                panic!("{action:?}");
            };
            tried.push(round);
            let outcome = match round {
                0 => MeasureOutcome::Failed,
                _ => MeasureOutcome::Sample,
            };
            dispatch.on(
                slot,
                Completed::Measured {
                    run,
                    round,
                    outcome,
                },
            );
        }
        assert!(dispatch.is_idle());
        dispatch.want(&[rounds(&[7])]);
    }
    assert_eq!(tried, [0, 7], "what it was to have before is given up");
}

#[test]
fn rounds_that_are_stored_are_not_taken_again() {
    let matrix = matrix("", "4");
    let plan = dag::plan(&matrix, &CellChoice::default(), &NoDigests).unwrap();
    let gap = plan.steps.runs.of_cell[0] as usize;
    let have = |run: usize| {
        if run == gap {
            vec![0, 2]
        } else {
            vec![0, 1, 2, 3]
        }
    };
    let log = Bench::with(&plan, &have).run(|_, done| done);
    assert_eq!(log, ["1: cache=none,bs=4k", "3: cache=none,bs=4k"]);
}

#[test]
fn machines_go_on_side_by_side() {
    let machines =
        "machine = [\"a\", \"b\"]\n[machines.a]\nvia = \"null\"\n[machines.b]\nvia = \"null\"\n";
    let matrix = matrix(
        &(machines.to_owned() + &setup("image", "machine", "session")),
        "1",
    );
    let plan = dag::plan(&matrix, &CellChoice::default(), &NoDigests).unwrap();
    let mut bench = Bench::new(&plan);
    assert_eq!(bench.dispatch.len(), 2);
    // One of them hangs in its first action; the other gets all of its own.
    let hanging = bench.dispatch[0].next_action();
    while bench.step(1, &mut |_, done| done) {}
    assert!(hanging.is_some());
    assert_eq!(bench.log.len(), 1 + 4 + 1);
    assert!(bench.log.iter().all(|line| line.contains("machine=b")));
    assert!(!bench.is_finished());
}

/// Carries a run out on one machine with several slots, which end in an order that `seed` gives. At each
/// time it is checked that nothing is used by two. Returns how many actions were under way at the most,
/// and the rounds of each run step in order.
fn in_slots(matrix: &Matrix, slots: usize, seed: u64) -> (usize, BTreeMap<u32, Vec<u32>>) {
    in_slots_with(matrix, slots, seed, &good, usize::MAX)
}

/// The same with what comes of each action, and told to stop after so many of them.
fn in_slots_with(
    matrix: &Matrix,
    slots: usize,
    seed: u64,
    answer: &dyn Fn(&Action) -> Completed,
    stop_after: usize,
) -> (usize, BTreeMap<u32, Vec<u32>>) {
    let plan = dag::plan(matrix, &CellChoice::default(), &NoDigests).unwrap();
    let mut dispatch = Dispatch::new(&plan, 7, slots);
    dispatch.want(&requests(&plan, 0, &|_| Vec::new()));
    let mut under_way: Vec<(usize, Action)> = Vec::new();
    let mut up: BTreeMap<(usize, u32), usize> = BTreeMap::new();
    let mut rounds: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let (mut most, mut random) = (0, seed);
    for ended in 0.. {
        if ended == stop_after {
            dispatch.stop();
        }
        while let Some((slot, action)) = dispatch.next_action() {
            assert!(ended < stop_after || matches!(action, Action::Undo { .. }));
            assert!(under_way.iter().all(|(other, _)| *other != slot));
            if let Action::Measure { run, .. } = action {
                let same = |(_, other): &(usize, Action)| matches!(other, Action::Measure { run: other, .. } if *other == run);
                assert!(
                    !under_way.iter().any(same),
                    "two rounds of one cell at a time"
                );
                assert!(setups_of(&plan, run).all(|need| up.get(&need) == Some(&slot)));
            }
            if let Action::SetUp { setup, step } = action {
                assert_eq!(up.insert((setup, step), slot), None, "made twice");
            }
            under_way.push((slot, action));
        }
        most = most.max(under_way.len());
        if under_way.is_empty() {
            break;
        }
        random = mix(random);
        let (slot, action) = under_way.swap_remove(random as usize % under_way.len());
        match action {
            Action::Undo { setup, step } => assert_eq!(up.remove(&(setup, step)), Some(slot)),
            Action::Measure { run, round } => rounds.entry(run).or_default().push(round),
            _ => {}
        }
        let done = answer(&action);
        if let Completed::SetUp {
            setup,
            step,
            error: Some(_),
        } = done
        {
            up.remove(&(setup, step));
        }
        dispatch.on(slot, done);
    }
    assert!(up.is_empty(), "{up:?} is left");
    (most, rounds)
}

#[test]
fn slots_share_the_work_and_never_a_set_up() {
    let check = |setups: &str, slots: usize, most: usize| {
        let matrix = matrix(setups, "3");
        for seed in 0..50 {
            let (found, rounds) = in_slots(&matrix, slots, seed);
            assert_eq!(found, most, "{setups}");
            assert_eq!(rounds.len(), 4);
            assert!(
                rounds.values().all(|rounds| *rounds == [0, 1, 2]),
                "{rounds:?}"
            );
        }
    };
    check("", 1, 1);
    check("", 2, 2);
    check("", 9, 4);
    check(&setup("nbd", "cache", "session"), 3, 2);
    check(&setup("nbd", "cache", "round"), 2, 2);
    check(&setup("nbd", "bs", "run"), 2, 2);
    check(&setup("image", "machine", "session"), 4, 1);
    // Both stacks cross: nobody may wait for what another has, for ever.
    let crossed = setup("a", "cache", "session") + &setup("b", "bs", "session");
    check(&crossed, 2, 2);
    check(&crossed, 4, 2);
}

#[test]
fn in_slots_a_set_up_that_fails_is_not_tried_again_and_costs_its_cells_only() {
    let matrix = matrix(&setup("nbd", "cache", "round"), "3");
    for seed in 0..50 {
        let tried = Cell::new(0);
        let answer = |action: &Action| match *action {
            Action::SetUp { setup, step: 0 } => {
                tried.set(tried.get() + 1);
                let error = Some("no room".to_owned());
                Completed::SetUp {
                    setup,
                    step: 0,
                    error,
                }
            }
            _ => good(action),
        };
        let (_, rounds) = in_slots_with(&matrix, 2, seed, &answer, usize::MAX);
        assert_eq!(tried.get(), 1);
        assert_eq!(rounds.len(), 2, "{rounds:?}");
        assert!(
            rounds.values().all(|rounds| *rounds == [0, 1, 2]),
            "{rounds:?}"
        );
    }
}

#[test]
fn in_slots_a_cell_that_fails_is_not_tried_again_and_costs_no_other() {
    for setups in [String::new(), setup("nbd", "cache", "session")] {
        let matrix = matrix(&setups, "3");
        for seed in 0..50 {
            let answer = |action: &Action| match *action {
                Action::Measure { run: 1, round: 1 } => Completed::Measured {
                    run: 1,
                    round: 1,
                    outcome: MeasureOutcome::Failed,
                },
                _ => good(action),
            };
            let (_, rounds) = in_slots_with(&matrix, 3, seed, &answer, usize::MAX);
            let expected = |run| if run == 1 { vec![0, 1] } else { vec![0, 1, 2] };
            let expected: BTreeMap<u32, Vec<u32>> =
                (0..4).map(|run| (run, expected(run))).collect();
            assert_eq!(rounds, expected);
        }
    }
}

#[test]
fn in_slots_a_stop_begins_nothing_and_undoes_all() {
    let crossed = setup("a", "cache", "session") + &setup("b", "bs", "round");
    for setups in [String::new(), setup("nbd", "cache", "session"), crossed] {
        let matrix = matrix(&setups, "2");
        for (seed, stop_after) in (0..).zip(0..20) {
            let (_, rounds) = in_slots_with(&matrix, 3, seed, &good, stop_after);
            // Those under way may end.
            assert!(rounds.values().flatten().count() <= stop_after + 3);
        }
    }
}
