//! Owns the plan: steps, what they depend on, what is stored and what is to be done.
//! Does not know how a step is carried out nor where results are kept.

use std::collections::HashMap;
use std::time::Duration;

pub use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};

use super::cell::{self, Cells, Choice};
use super::order::Weight;
use super::projection::{Numbering, Projection};
use super::steps::{Digests, Maker, NONE, Steps, Subject, placeholders};
use crate::config::matrix::{Matrix, Repeat};
use crate::words::diag::Diagnostic;
use crate::words::key::Key;

/// Cells that are compared along one axis: the groups that differ in nothing else.
#[derive(Clone, Debug)]
pub struct ComparePlan {
    /// Index into `matrix.compares`.
    pub rule: usize,
    pub axis: usize,
    /// The value that the others are compared with.
    pub baseline: u16,
    /// Cell → group; [`NONE`] where there is nothing to compare with.
    pub of_cell: Vec<u32>,
    pub groups: usize,
}

/// What a matrix expands to.
pub struct Plan<'a> {
    pub matrix: &'a Matrix,
    pub cells: Cells,
    pub steps: Steps,
    pub compares: Vec<ComparePlan>,
    pub repeat: &'a Repeat,
    pub seconds: f64,
    /// Samples that are older are measured again.
    pub max_age: Option<Duration>,
}

/// Expands a matrix into steps. All problems are returned, not the first.
pub fn plan<'a>(
    matrix: &'a Matrix,
    choice: &Choice,
    digests: &dyn Digests,
) -> Result<Plan<'a>, Vec<Diagnostic>> {
    let preset = cell::preset(matrix, choice).map_err(|problem| vec![problem])?;
    let repeat = preset
        .and_then(|preset| preset.repeat.as_ref())
        .unwrap_or(&matrix.run.repeat);
    let seconds = preset
        .and_then(|preset| preset.seconds)
        .unwrap_or(matrix.run.seconds);
    let max_age = preset
        .and_then(|preset| preset.max_age)
        .or(matrix.run.max_age);
    let cells = cell::expand(matrix, choice)?;
    let placeholders = placeholders(matrix, seconds);
    let maker = Maker::new(matrix, &cells, digests, &placeholders);
    let steps = maker.steps().map_err(|problem| vec![problem])?;
    let compares = compares(matrix, &cells, choice)?;
    Ok(Plan {
        matrix,
        cells,
        steps,
        compares,
        repeat,
        seconds,
        max_age,
    })
}

fn compares(
    matrix: &Matrix,
    cells: &Cells,
    choice: &Choice,
) -> Result<Vec<ComparePlan>, Vec<Diagnostic>> {
    let mut plans = Vec::new();
    for (rule, compare) in matrix.compares.iter().enumerate() {
        let Some(axis) = cells.axis(&compare.axis.value) else {
            continue;
        };
        let labels = &cells.axes[axis].labels;
        let wanted = match &choice.against {
            Some(against) if compare.axis.value == "version" => Some(against.clone()),
            _ => compare
                .baseline
                .as_ref()
                .map(|baseline| baseline.value.label()),
        };
        // A preset may leave the baseline out: then there is nothing to compare with.
        let baseline = match wanted {
            Some(label) => labels.iter().position(|known| *known == label),
            None => Some(0),
        };
        let Some(baseline) = baseline else { continue };
        let others = (0..cells.axes.len())
            .filter(|&other| other != axis)
            .collect();
        let projection = Projection::new(others, &cells.sizes());
        // A group is a comparison only if it has the baseline and something beside it.
        let mut candidates = Numbering::new(projection.clone());
        let mut members: Vec<[bool; 2]> = Vec::new();
        for cell in cells.iter() {
            let (group, is_new) = candidates.number(cell);
            if is_new {
                members.push([false; 2]);
            }
            let is_baseline = usize::from(cell[axis]) == baseline;
            members[group as usize][usize::from(is_baseline)] = true;
        }
        let mut groups = Numbering::new(projection);
        let of_cell: Vec<u32> = cells
            .iter()
            .map(|cell| {
                let candidate = candidates.known(cell).unwrap_or(NONE);
                match members.get(candidate as usize) {
                    Some([true, true]) => groups.number(cell).0,
                    _ => NONE,
                }
            })
            .collect();
        plans.push(ComparePlan {
            rule,
            axis,
            baseline: baseline as u16,
            of_cell,
            groups: groups.len(),
        });
    }
    Ok(plans)
}

/// How much of a plan is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub total: usize,
    pub run: usize,
    pub stored: usize,
}

impl Count {
    fn of(total: usize, run: usize) -> Self {
        Count {
            total,
            run,
            stored: total - run,
        }
    }
}

/// What is to be done of a plan.
#[derive(Clone, Debug)]
pub struct Todo {
    /// Run step → rounds that are missing (at least; adaptive repetition may add some).
    pub rounds: Vec<u32>,
    pub builds: Vec<bool>,
    /// Set-up → step → needed.
    pub setups: Vec<Vec<bool>>,
    /// Compare rule → group → some of its cells are to be measured.
    pub compares: Vec<Vec<bool>>,
}

impl Plan<'_> {
    /// The cell that a run step is for.
    pub fn cell_of(&self, run: usize) -> &[u16] {
        self.cells.cell(self.steps.runs.steps[run].cell as usize)
    }

    /// What a cell's results are stored under.
    pub fn key_of(&self, cell: u32) -> Key {
        let run = self.steps.runs.of_cell[cell as usize];
        self.steps.runs.steps[run as usize].key
    }

    /// What `{{ bin }}` holds in a cell.
    pub fn subject_of(&self, cell: usize) -> Subject {
        self.steps.subjects.of(self.cells.cell(cell))
    }

    /// The artifacts that its cells measure, each once.
    pub fn artifacts(&self) -> Vec<Key> {
        let subjects = (0..self.cells.len()).map(|cell| self.subject_of(cell));
        let mut artifacts: Vec<Key> = subjects
            .filter_map(|subject| match subject {
                Subject::Artifact(digest) => Some(digest),
                Subject::Installed(_) | Subject::Unbuilt(_) => None,
            })
            .collect();
        artifacts.sort_unstable();
        artifacts.dedup();
        artifacts
    }

    /// The build step of a cell.
    pub fn build_of(&self, cell: usize) -> Option<u32> {
        let step = self.steps.builds.of_cell.get(cell).copied();
        step.filter(|step| *step != NONE)
    }

    /// The set-up steps of a cell, in the order of the file.
    pub fn setups_of(&self, cell: u32) -> impl Iterator<Item = (usize, u32)> {
        let steps = self
            .steps
            .setups
            .iter()
            .map(move |setup| setup.of_cell[cell as usize]);
        steps.enumerate().filter(|(_, step)| *step != NONE)
    }

    /// What follows from the rounds that each run step misses. A build is needed where no artifact
    /// is known that cannot differ from it in the cell, or where that one is not kept any more.
    pub fn todo(&self, rounds: Vec<u32>, is_kept: &dyn Fn(Key) -> bool) -> Todo {
        let mut todo = Todo {
            builds: vec![false; self.steps.builds.steps.len()],
            setups: self
                .steps
                .setups
                .iter()
                .map(|setup| vec![false; setup.steps.len()])
                .collect(),
            compares: self
                .compares
                .iter()
                .map(|compare| vec![false; compare.groups])
                .collect(),
            rounds,
        };
        // Of cells that share a run step only the one that it is carried out for needs anything.
        for (step, rounds) in self.steps.runs.steps.iter().zip(&todo.rounds) {
            if *rounds == 0 {
                continue;
            }
            let is_there = match self.subject_of(step.cell as usize) {
                Subject::Installed(_) => true,
                Subject::Artifact(digest) => is_kept(digest),
                Subject::Unbuilt(_) => false,
            };
            if let Some(build) = self.build_of(step.cell as usize).filter(|_| !is_there) {
                todo.builds[build as usize] = true;
            }
            for (setup, step) in self.setups_of(step.cell) {
                todo.setups[setup][step as usize] = true;
            }
        }
        for cell in 0..self.cells.len() {
            if todo.rounds[self.steps.runs.of_cell[cell] as usize] == 0 {
                continue;
            }
            for (compare, groups) in self.compares.iter().zip(&mut todo.compares) {
                if let Some(group) = groups.get_mut(compare.of_cell[cell] as usize) {
                    *group = true;
                }
            }
        }
        todo
    }
}

/// Steps by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub build: Count,
    pub setup: Count,
    pub run: Count,
    pub compare: Count,
}

impl Todo {
    pub fn counts(&self) -> Counts {
        let flags = |lists: &[Vec<bool>]| {
            let all = lists.iter().flatten();
            Count::of(all.clone().count(), all.filter(|needed| **needed).count())
        };
        let run = self.rounds.iter().filter(|rounds| **rounds > 0).count();
        Counts {
            build: flags(std::slice::from_ref(&self.builds)),
            setup: flags(&self.setups),
            run: Count::of(self.rounds.len(), run),
            compare: flags(&self.compares),
        }
    }

    /// Measurements to take.
    pub fn measurements(&self) -> u64 {
        self.rounds.iter().map(|rounds| u64::from(*rounds)).sum()
    }

    pub fn is_nothing(&self) -> bool {
        self.rounds.iter().all(|rounds| *rounds == 0)
    }
}

/// Past durations, or guesses.
pub struct Durations<'a> {
    pub build: &'a dyn Fn(Key) -> Duration,
    pub setup: &'a dyn Fn(Key) -> Duration,
    pub run: &'a dyn Fn(Key) -> Duration,
}

/// A node of the graph of what is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    Build(u32),
    /// Set-up and step.
    Setup(u16, u32),
    Run(u32),
    /// Compare plan and group.
    Compare(u16, u32),
}

/// What is to be done as a graph: an edge goes from a step to one that needs it.
pub type Graph = DiGraph<Node, (), u32>;

/// The graph of what is to be done; what is stored does not become a node.
pub fn graph(plan: &Plan, todo: &Todo) -> Graph {
    let mut graph = Graph::default();
    let mut add = |needed: bool, node: Node| needed.then(|| graph.add_node(node));
    let builds: Vec<Option<NodeIndex>> = (0..)
        .zip(&todo.builds)
        .map(|(step, needed)| add(*needed, Node::Build(step)))
        .collect();
    let setups: Vec<Vec<Option<NodeIndex>>> = (0..)
        .zip(&todo.setups)
        .map(|(setup, steps)| {
            let numbered = (0..).zip(steps);
            numbered
                .map(|(step, needed)| add(*needed, Node::Setup(setup, step)))
                .collect()
        })
        .collect();
    // In the order of the cells: that of the keys would tell a person nothing.
    let mut runs: Vec<Option<NodeIndex>> = vec![None; todo.rounds.len()];
    for &run in &plan.steps.runs.of_cell {
        let node = &mut runs[run as usize];
        *node = node.or_else(|| add(todo.rounds[run as usize] > 0, Node::Run(run)));
    }
    let compares: Vec<Vec<Option<NodeIndex>>> = (0..)
        .zip(&todo.compares)
        .map(|(rule, groups)| {
            let numbered = (0..).zip(groups);
            numbered
                .map(|(group, needed)| add(*needed, Node::Compare(rule, group)))
                .collect()
        })
        .collect();
    let build_of = |cell: usize| {
        let step = plan.build_of(cell)?;
        builds.get(step as usize).copied().flatten()
    };
    for (setup, shared) in plan.steps.setups.iter().enumerate() {
        for (step, node) in setups[setup].iter().enumerate() {
            let Some(node) = *node else { continue };
            let cell = shared.steps[step].cell;
            if let Some(build) = build_of(cell as usize) {
                graph.add_edge(build, node, ());
            }
            for (earlier, step) in plan.setups_of(cell).filter(|(earlier, _)| *earlier < setup) {
                if let Some(earlier) = setups[earlier][step as usize] {
                    graph.add_edge(earlier, node, ());
                }
            }
        }
    }
    for node in graph.node_indices() {
        let Node::Run(run) = graph[node] else {
            continue;
        };
        let cell = plan.steps.runs.steps[run as usize].cell;
        let mut has_setup = false;
        for (setup, step) in plan.setups_of(cell) {
            if let Some(setup) = setups[setup][step as usize] {
                graph.add_edge(setup, node, ());
                has_setup = true;
            }
        }
        if let Some(build) = build_of(cell as usize).filter(|_| !has_setup) {
            graph.add_edge(build, node, ());
        }
    }
    for cell in 0..plan.cells.len() {
        let Some(run) = runs[plan.steps.runs.of_cell[cell] as usize] else {
            continue;
        };
        for (compare, nodes) in plan.compares.iter().zip(&compares) {
            if let Some(Some(node)) = nodes.get(compare.of_cell[cell] as usize) {
                graph.add_edge(run, *node, ());
            }
        }
    }
    graph
}

/// How long a plan takes: steps of one machine one after the other, machines side by side; and the
/// longest chain of steps that need each other.
pub struct Estimate {
    pub total: Duration,
    pub critical_path: Vec<(Node, Duration)>,
}

fn duration_of(plan: &Plan, todo: &Todo, durations: &Durations, node: Node) -> Duration {
    match node {
        Node::Build(step) => (durations.build)(plan.steps.builds.steps[step as usize].key),
        Node::Setup(setup, step) => {
            (durations.setup)(plan.steps.setups[setup as usize].steps[step as usize].key)
        }
        Node::Run(run) => {
            (durations.run)(plan.steps.runs.steps[run as usize].key) * todo.rounds[run as usize]
        }
        Node::Compare(..) => Duration::ZERO,
    }
}

/// How long each build takes, and the longest chain of steps after it, by the number of its step; zero
/// for builds that are not needed.
pub fn build_weights(plan: &Plan, todo: &Todo, durations: &Durations) -> Vec<Weight> {
    let graph = graph(plan, todo);
    let mut after = vec![Duration::ZERO; graph.node_count()];
    let mut weights = vec![Weight::default(); plan.steps.builds.steps.len()];
    // Edges only go forward.
    for node in graph.node_indices().rev() {
        let own = duration_of(plan, todo, durations, graph[node]);
        if let Node::Build(step) = graph[node] {
            let after = after[node.index()];
            weights[step as usize] = Weight { own, after };
        }
        let way = own + after[node.index()];
        for before in graph.neighbors_directed(node, Direction::Incoming) {
            after[before.index()] = after[before.index()].max(way);
        }
    }
    weights
}

pub fn estimate(plan: &Plan, todo: &Todo, graph: &Graph, durations: &Durations) -> Estimate {
    let duration_of = |node| duration_of(plan, todo, durations, node);
    let cell_of = |node: Node| match node {
        Node::Build(step) => Some(plan.steps.builds.steps[step as usize].cell),
        Node::Setup(setup, step) => {
            Some(plan.steps.setups[setup as usize].steps[step as usize].cell)
        }
        Node::Run(run) => Some(plan.steps.runs.steps[run as usize].cell),
        Node::Compare(..) => None,
    };
    let machine = plan.cells.axis("machine").unwrap_or(0);
    let mut by_machine: HashMap<u16, Duration> = HashMap::new();
    for node in graph.node_weights() {
        if let Some(cell) = cell_of(*node) {
            let machine = plan.cells.cell(cell as usize)[machine];
            *by_machine.entry(machine).or_default() += duration_of(*node);
        }
    }
    // Longest path: nodes were added in an order in which edges only go forward, by kind and, among
    // set-ups, by their place in the file.
    let mut longest: Vec<(Duration, Option<NodeIndex>)> =
        vec![(Duration::ZERO, None); graph.node_count()];
    for node in graph.node_indices() {
        longest[node.index()].0 += duration_of(graph[node]);
        let reached = longest[node.index()].0;
        for next in graph.neighbors(node) {
            let slot = &mut longest[next.index()];
            if reached > slot.0 || slot.1.is_none() {
                *slot = (reached, Some(node));
            }
        }
    }
    // The first of those that are equally long; a comparison, which takes no time, ends a chain.
    let last = graph.node_indices().rev().max_by_key(|node| {
        (
            longest[node.index()].0,
            matches!(graph[*node], Node::Compare(..)),
        )
    });
    let mut critical_path: Vec<(Node, Duration)> =
        std::iter::successors(last, |node| longest[node.index()].1)
            .map(|node| (graph[node], duration_of(graph[node])))
            .collect();
    critical_path.reverse();
    Estimate {
        total: by_machine.into_values().max().unwrap_or_default(),
        critical_path,
    }
}

#[cfg(test)]
mod tests;
