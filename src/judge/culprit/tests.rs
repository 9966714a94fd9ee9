//! Searches on small worlds with a known answer.

use super::*;
use crate::base::random::Random;

const ASSUMED: Assumptions = Assumptions {
    none: 0.1,
    drift: 0.1,
    shift_min: 0.0,
};

struct Found {
    belief: Belief,
    runs: usize,
    tested: BTreeSet<usize>,
}

/// Measures until the search is settled, at the most 300 times beside the ends' ten each; `value` is told the commit and the run.
fn find(
    mut search: CulpritSearch,
    untestable: &[usize],
    mut value: impl FnMut(usize, usize) -> f64,
) -> Found {
    let last = search.last();
    let mut runs = 0;
    let mut tested = BTreeSet::new();
    for round in 0..10 {
        for at in [[0, last], [last, 0]][round % 2] {
            search.add(at, value(at, runs), Age::Now);
            runs += 1;
        }
    }
    loop {
        let belief = search.belief().unwrap();
        if belief.is_settled() || runs > 320 {
            let runs = runs - 20;
            return Found {
                belief,
                runs,
                tested,
            };
        }
        let wish = search.wish(&|_| 0.0);
        if untestable.contains(&wish.at) {
            search.set_untestable(wish.at);
            continue;
        }
        tested.insert(wish.at);
        for _ in 0..wish.runs {
            search.add(wish.at, value(wish.at, runs), Age::Now);
            runs += 1;
        }
    }
}

fn noisy(culprit: usize, shift: f64, seed: u64) -> impl FnMut(usize, usize) -> f64 {
    let mut random = Random(seed);
    move |at, _| random.gauss() + if at >= culprit { shift } else { 0.0 }
}

fn search(candidates: usize) -> CulpritSearch {
    CulpritSearch::new(candidates, ASSUMED, 1)
}

#[test]
fn a_step_without_noise_is_halved_to_its_commit() {
    for (candidates, culprit) in [(1, 1), (2, 1), (2, 2), (100, 1), (100, 37), (100, 100)] {
        let steps = |at: usize, _: usize| if at >= culprit { 108.0 } else { 100.0 };
        let found = find(search(candidates), &[], steps);
        assert_eq!(found.belief.set, [culprit], "{candidates}");
        assert!(found.runs <= 12, "{candidates}: {} runs", found.runs);
        assert!(
            (found.belief.shift - 8.0).abs() < 0.2,
            "{}",
            found.belief.shift
        );
    }
}

#[test]
fn a_noisy_step_is_found_as_often_as_stated() {
    let right = (0..40).filter(|seed| {
        let culprit = 1 + (*seed as usize * 37) % 200;
        let found = find(search(200), &[], noisy(culprit, 3.0, *seed));
        found.belief.set == [culprit]
    });
    let right = right.count();
    assert!(right >= 36, "{right} of 40");
}

#[test]
fn ends_that_do_not_differ_have_no_culprit() {
    let wanted = Assumptions {
        shift_min: 1.5,
        ..ASSUMED
    };
    for seed in 0..10 {
        let search = CulpritSearch::new(64, wanted, seed);
        let found = find(search, &[], noisy(100, 0.0, seed));
        assert!(found.belief.none >= CERTAIN, "{:?}", found.belief);
    }
}

#[test]
fn what_cannot_be_measured_is_answered_as_a_set() {
    let found = find(search(64), &[30, 31, 32], noisy(31, 6.0, 5));
    assert_eq!(found.belief.set, [30, 31, 32, 33]);
    assert!(!found.tested.contains(&31));
}

#[test]
fn the_same_bytes_are_no_culprit() {
    let mut same = search(64);
    same.set_alike(20, 40);
    let found = find(same, &[], noisy(41, 6.0, 3));
    assert_eq!(found.belief.set, [41]);
    assert!(
        found.tested.iter().all(|at| !(21..40).contains(at)),
        "{:?}",
        found.tested
    );
    let mut all = search(64);
    all.set_alike(0, 64);
    let found = find(all, &[], noisy(41, 6.0, 3));
    assert!(
        found.belief.none >= CERTAIN && found.runs == 0,
        "{:?}",
        found.belief
    );
}

#[test]
fn a_drift_is_no_step() {
    for seed in 0..6 {
        let mut steps = noisy(700, 4.0, seed);
        let drifting = move |at, run| steps(at, run) + 0.12 * run as f64;
        let found = find(search(1024), &[], drifting);
        assert_eq!(found.belief.set, [700], "{seed}: {:?}", found.belief);
        assert!(found.belief.drift > 0.5, "{seed}: {:?}", found.belief);
    }
}

#[test]
fn a_second_mode_is_no_step() {
    // A fifth of the runs is as slow at the good level as most are at the bad one.
    let right = (0..20).filter(|seed| {
        let mut random = Random(100 + seed);
        let modes = |at: usize, _: usize| {
            let mode = if random.uniform() < 0.2 { 2.4 } else { 0.0 };
            let level = if at >= 40 { 2.4 } else { 0.0 };
            level + mode + 0.3 * random.gauss()
        };
        find(search(128), &[], modes).belief.set == [40]
    });
    let right = right.count();
    assert!(right >= 17, "{right} of 20");
}

#[test]
fn a_seed_repeats_a_search() {
    let once = || find(search(100), &[7], noisy(70, 2.0, 9));
    let (a, b) = (once(), once());
    assert_eq!(a.belief, b.belief);
    assert_eq!(a.tested, b.tested);
}

#[test]
fn too_few_samples_say_nothing() {
    let mut few = search(10);
    for _ in 0..END_SAMPLES_MIN {
        few.add(0, 1.0, Age::Now);
    }
    few.add(10, f64::NAN, Age::Now);
    assert_eq!(few.belief(), None);
    assert_eq!(few.wish(&|_| 0.0), Wish { at: 10, runs: 1 });
}

#[test]
fn a_dear_build_is_run_several_times() {
    let mut dear = search(64);
    let mut value = noisy(20, 2.0, 1);
    for run in 0..20 {
        let at = if run % 2 == 0 { 0 } else { 64 };
        dear.add(at, value(at, run), Age::Now);
    }
    let build_cost = |at: usize| if at.is_multiple_of(64) { 0.0 } else { 50.0 };
    for run in 20.. {
        dear.belief();
        assert_eq!(dear.wish(&|_| 0.0).runs, 1);
        let wish = dear.wish(&build_cost);
        if !wish.at.is_multiple_of(64) {
            assert!(wish.runs > 3, "{wish:?}");
            break;
        }
        dear.add(wish.at, value(wish.at, run), Age::Now);
    }
}
