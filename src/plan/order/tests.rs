//! The tests of the order: simulated schedules against what no schedule can be shorter than.

use proptest::prelude::*;

use super::*;

fn weights(seconds: &[u64]) -> Vec<Weight> {
    let weight = |s: &u64| Weight {
        own: Duration::from_secs(*s),
        after: Duration::ZERO,
    };
    seconds.iter().map(weight).collect()
}

/// All steps as a single slot meets them.
fn order(seconds: &[u64], edges: &[(u32, u32)]) -> Option<Vec<u32>> {
    let mut order = Order::new(&weights(seconds), edges)?;
    let next = || {
        let step = order.pick()?;
        order.done(step);
        Some(step)
    };
    Some(std::iter::from_fn(next).collect())
}

#[test]
fn the_longest_way_goes_first() {
    let check = |seconds: &[u64], edges: &[(u32, u32)], expected: Option<&[u32]>| {
        assert_eq!(order(seconds, edges).as_deref(), expected);
    };
    check(&[], &[], Some(&[]));
    check(&[1, 3, 2], &[], Some(&[1, 2, 0]));
    check(&[2, 2, 2], &[], Some(&[0, 1, 2]));
    // 0 is short, but a long one waits for it.
    check(&[1, 3, 9], &[(0, 2)], Some(&[0, 2, 1]));
    check(&[1, 1, 1], &[(2, 1), (1, 0)], Some(&[2, 1, 0]));
    check(&[1, 1, 1], &[(0, 1), (1, 2), (2, 1)], None);
    check(&[1], &[(0, 0)], None);
}

#[test]
fn what_comes_after_the_order_counts() {
    let mut steps = weights(&[5, 1]);
    steps[1].after = Duration::from_secs(9);
    let mut order = Order::new(&steps, &[]).unwrap();
    assert_eq!(
        (order.pick(), order.pick(), order.pick()),
        (Some(1), Some(0), None)
    );
    assert_eq!(order.way_to_end(1), Duration::from_secs(10));
}

/// When all is done with so many slots, as a dispatcher that never lets a slot wait would do it.
fn makespan(steps: &[Weight], edges: &[(u32, u32)], slots: usize) -> Duration {
    let mut order = Order::new(steps, edges).unwrap();
    let mut busy: BinaryHeap<Reverse<(Duration, u32)>> = BinaryHeap::new();
    let mut now = Duration::ZERO;
    loop {
        while busy.len() < slots
            && let Some(step) = order.pick()
        {
            busy.push(Reverse((now + steps[step as usize].own, step)));
        }
        let Some(Reverse((end, step))) = busy.pop() else {
            return now;
        };
        now = end;
        order.done(step);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Every step once, none before one that it waits for, and never longer than Graham's bound.
    #[test]
    fn schedules_are_whole_and_short(
        seconds in prop::collection::vec(1u64..1000, 1..60),
        pairs in prop::collection::vec((0u32..60, 0u32..60), 0..120),
        slots in 1usize..6,
    ) {
        let n = seconds.len() as u32;
        let forward = pairs.iter().map(|(a, b)| (a % n, b % n)).filter(|(a, b)| a < b);
        let edges: Vec<(u32, u32)> = forward.collect();
        let picked = order(&seconds, &edges).unwrap();
        let mut place = vec![usize::MAX; seconds.len()];
        picked.iter().enumerate().for_each(|(index, step)| place[*step as usize] = index);
        prop_assert_eq!(picked.len(), seconds.len());
        prop_assert!(edges.iter().all(|(a, b)| place[*a as usize] < place[*b as usize]));

        let steps = weights(&seconds);
        let order = Order::new(&steps, &edges).unwrap();
        let critical = (0..n).map(|step| order.way_to_end(step)).max().unwrap();
        let work: Duration = steps.iter().map(|step| step.own).sum();
        let taken = makespan(&steps, &edges, slots);
        prop_assert!(taken >= critical.max(work / slots as u32));
        prop_assert!(taken * slots as u32 <= work + critical * (slots as u32 - 1));
    }
}
