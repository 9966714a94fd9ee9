//! The time of a pick among 230,000 ready steps, and how far simulated schedules are from the shortest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use matrix::plan::order::{Order, Weight};

const READY: usize = 230_000;
const DAGS: u64 = 1000;

fn main() {
    picks();
    for slots in [2, 4, 16] {
        for tail in [1.5, 2.5] {
            makespans(slots, tail);
        }
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Pareto from one second on.
    fn weight(&mut self, tail: f64) -> Weight {
        let unit = ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        Weight {
            own: Duration::from_secs_f64(unit.powf(-1.0 / tail).min(1e5)),
            after: Duration::ZERO,
        }
    }
}

fn picks() {
    let mut random = Random(1);
    let weights: Vec<Weight> = (0..READY).map(|_| random.weight(1.5)).collect();
    let began = Instant::now();
    let Some(mut order) = Order::new(&weights, &[]) else {
        return;
    };
    let made = began.elapsed();
    let (mut worst, mut n) = (Duration::ZERO, 0);
    let began = Instant::now();
    loop {
        let one = Instant::now();
        let Some(step) = order.pick() else { break };
        order.done(step);
        worst = worst.max(one.elapsed());
        n += 1;
    }
    let each = began.elapsed().as_nanos() as f64 / f64::from(n) / 1e3;
    println!(
        "{n} steps ready at once: made in {made:.0?}; {each:.2} us a pick (at most 10), the longest {worst:.0?}"
    );
}

/// A DAG as plans have them: builds, set-ups that need one, and runs that need a set-up; or layers with
/// random edges.
fn dag(random: &mut Random, tail: f64) -> (Vec<Weight>, Vec<(u32, u32)>) {
    let n = 100 + random.below(900);
    let weights: Vec<Weight> = (0..n).map(|_| random.weight(tail)).collect();
    let mut edges = Vec::new();
    let (builds, setups) = (1 + n / 50, 1 + n / 10);
    let layered = random.below(2) == 0;
    for step in builds..n {
        let (from, to) = match step < builds + setups {
            _ if layered => (step.saturating_sub(n / 5), step),
            true => (0, builds),
            false => (builds, builds + setups),
        };
        let needs = if layered { random.below(3) } else { 1 };
        for _ in 0..needs {
            edges.push(((from + random.below(to - from)) as u32, step as u32));
        }
    }
    (weights, edges)
}

fn makespan(weights: &[Weight], edges: &[(u32, u32)], slots: usize) -> Option<[Duration; 3]> {
    let mut order = Order::new(weights, edges)?;
    let ways = (0..weights.len() as u32).map(|step| order.way_to_end(step));
    let critical = ways.max()?;
    let work: Duration = weights.iter().map(|weight| weight.own).sum();
    let mut busy: BinaryHeap<Reverse<(Duration, u32)>> = BinaryHeap::new();
    let mut now = Duration::ZERO;
    loop {
        while busy.len() < slots
            && let Some(step) = order.pick()
        {
            busy.push(Reverse((now + weights[step as usize].own, step)));
        }
        let Some(Reverse((end, step))) = busy.pop() else {
            return Some([now, critical, work / slots as u32]);
        };
        now = end;
        order.done(step);
    }
}

fn makespans(slots: usize, tail: f64) {
    let mut random = Random(slots as u64 * 1000 + tail as u64);
    let mut ratios: Vec<f64> = (0..DAGS)
        .filter_map(|_| {
            let (weights, edges) = dag(&mut random, tail);
            let [taken, critical, work] = makespan(&weights, &edges, slots)?;
            Some(taken.as_secs_f64() / critical.max(work).as_secs_f64())
        })
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| ratios[((ratios.len() - 1) as f64 * part) as usize];
    let within = ratios.iter().filter(|ratio| **ratio <= 1.05).count();
    println!(
        "{slots:2} slots, Pareto {tail}: makespan / max(critical path, work / slots) over {} DAGs: \
         median {:.4}, 90 % {:.4}, 99 % {:.4}, most {:.4}; at most 1.05 in {within}",
        ratios.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
}
