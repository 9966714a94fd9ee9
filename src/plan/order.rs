//! The order of steps that wait for each other: the ready one with the longest way to the end first.
//!
//! List scheduling by the critical path (Graham, 1966; Hu, 1961): with *m* slots no schedule that keeps
//! all slots busy where it can takes longer than `work / m + (1 - 1 / m) * critical path`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// What is known of a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weight {
    /// How long it takes.
    pub own: Duration,
    /// How long what comes after it takes, beside the steps of the order.
    pub after: Duration,
}

/// Steps, by number, of which the ready ones are picked.
#[derive(Debug)]
pub struct Order {
    /// Steps that have to be done before.
    waits: Vec<u32>,
    /// Step `s` is followed by `followers[starts[s]..starts[s + 1]]`.
    starts: Vec<u32>,
    followers: Vec<u32>,
    /// From the beginning of a step to the end of all.
    way: Vec<Duration>,
    ready: BinaryHeap<(Duration, Reverse<u32>)>,
}

impl Order {
    /// `edges` go from a step to one that waits for it. None where steps wait for each other in a ring.
    pub fn new(weights: &[Weight], edges: &[(u32, u32)]) -> Option<Order> {
        let n = weights.len();
        let mut starts = vec![0u32; n + 1];
        let mut waits = vec![0u32; n];
        for &(before, after) in edges {
            starts[before as usize + 1] += 1;
            waits[after as usize] += 1;
        }
        for step in 0..n {
            starts[step + 1] += starts[step];
        }
        let mut free = starts.clone();
        let mut followers = vec![0; edges.len()];
        for &(before, after) in edges {
            followers[free[before as usize] as usize] = after;
            free[before as usize] += 1;
        }
        let mut order = Order {
            waits,
            starts,
            followers,
            way: Vec::new(),
            ready: BinaryHeap::new(),
        };
        let sorted = order.sorted()?;
        order.way = weights.iter().map(|weight| weight.after).collect();
        for &step in sorted.iter().rev() {
            let ways = order.followers_of(step).iter();
            let after = ways.map(|next| order.way[*next as usize]).max();
            let longest = after.unwrap_or_default().max(order.way[step as usize]);
            order.way[step as usize] = weights[step as usize].own + longest;
        }
        let first = (0..n as u32).filter(|step| order.waits[*step as usize] == 0);
        let ready: Vec<_> = first.map(|step| order.rank(step)).collect();
        order.ready = ready.into();
        Some(order)
    }

    fn followers_of(&self, step: u32) -> &[u32] {
        let range = self.starts[step as usize]..self.starts[step as usize + 1];
        &self.followers[range.start as usize..range.end as usize]
    }

    fn rank(&self, step: u32) -> (Duration, Reverse<u32>) {
        (self.way[step as usize], Reverse(step))
    }

    /// All steps, each after those that it waits for (Kahn, 1962).
    fn sorted(&self) -> Option<Vec<u32>> {
        let mut waits = self.waits.clone();
        let mut sorted: Vec<u32> = (0..waits.len() as u32)
            .filter(|step| waits[*step as usize] == 0)
            .collect();
        let mut at = 0;
        while let Some(&step) = sorted.get(at) {
            for &next in self.followers_of(step) {
                waits[next as usize] -= 1;
                if waits[next as usize] == 0 {
                    sorted.push(next);
                }
            }
            at += 1;
        }
        (sorted.len() == waits.len()).then_some(sorted)
    }

    /// The ready step with the longest way to the end, the first of equals; it is not given again.
    pub fn pick(&mut self) -> Option<u32> {
        self.ready.pop().map(|(_, Reverse(step))| step)
    }

    /// A step is done: those that have waited for nothing else are ready.
    pub fn done(&mut self, step: u32) {
        let range = self.starts[step as usize]..self.starts[step as usize + 1];
        for index in range {
            let next = self.followers[index as usize];
            self.waits[next as usize] -= 1;
            if self.waits[next as usize] == 0 {
                self.ready.push(self.rank(next));
            }
        }
    }

    /// From the beginning of a step to the end of all.
    pub fn way_to_end(&self, step: u32) -> Duration {
        self.way[step as usize]
    }
}

#[cfg(test)]
mod tests;
