//! The order of steps that wait for each other: the ready one with the longest way to the end first.
//!
//! List scheduling by the critical path (Graham, 1966; Hu, 1961): with *m* slots no schedule that keeps
//! all slots busy where it can takes longer than `work / m + (1 - 1 / m) * critical path`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use petgraph::Direction;
use petgraph::algo::toposort;
use petgraph::graph::{DiGraph, NodeIndex};

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
    /// Edges go to what waits; a step weighs what it takes from its beginning to the end of all.
    graph: DiGraph<Duration, ()>,
    /// How many steps have to be done before each.
    waits: Vec<usize>,
    ready: BinaryHeap<(Duration, Reverse<u32>)>,
}

impl Order {
    /// `edges` go from a step to one that waits for it. None where steps wait for each other in a ring.
    pub fn new(weights: &[Weight], edges: &[(u32, u32)]) -> Option<Order> {
        let mut graph = DiGraph::with_capacity(weights.len(), edges.len());
        for weight in weights {
            graph.add_node(weight.after);
        }
        graph.extend_with_edges(edges);
        for step in toposort(&graph, None).ok()?.into_iter().rev() {
            let after = graph.neighbors(step).map(|next| graph[next]).max();
            let longest = after.unwrap_or_default().max(graph[step]);
            graph[step] = weights[step.index()].own + longest;
        }
        let before = |step| graph.neighbors_directed(step, Direction::Incoming).count();
        let mut order = Order {
            waits: graph.node_indices().map(before).collect(),
            graph,
            ready: BinaryHeap::new(),
        };
        for step in order.graph.node_indices() {
            order.offer(step);
        }
        Some(order)
    }

    /// A step is ready if it waits for nothing.
    fn offer(&mut self, step: NodeIndex) {
        if self.waits[step.index()] == 0 {
            let number = step.index() as u32;
            self.ready.push((self.graph[step], Reverse(number)));
        }
    }

    /// The ready step with the longest way to the end, the first of equals; it is not given again.
    pub fn pick(&mut self) -> Option<u32> {
        self.ready.pop().map(|(_, Reverse(step))| step)
    }

    /// A step is done: those that have waited for nothing else are ready.
    pub fn done(&mut self, step: u32) {
        let mut next = self.graph.neighbors(step.into()).detach();
        while let Some(next) = next.next_node(&self.graph) {
            self.waits[next.index()] -= 1;
            self.offer(next);
        }
    }

    /// From the beginning of a step to the end of all.
    pub fn way_to_end(&self, step: u32) -> Duration {
        self.graph[NodeIndex::from(step)]
    }
}

#[cfg(test)]
mod tests;
