//! The plan: steps, what they depend on, what is stored and what is to be done.

use std::collections::BTreeMap;

use std::cmp::Reverse;
use std::time::Duration;

pub use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};

use super::cell::{self, CellChoice, Cells};
use super::order::Weight;
use super::projection::{Numbering, Projection};
use super::steps::{Digests, Maker, NONE, Step, Steps, Subject, placeholders};
use crate::base::diag::Diagnostic;
use crate::base::key::Key;
use crate::config::matrix::{Matrix, Via};
use crate::config::value::AxisValue;

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
    pub seconds: f64,
    /// Samples that are older are measured again.
    pub max_age: Option<Duration>,
}

/// Expands a matrix into steps. All problems are returned, not the first.
pub fn plan<'a>(
    matrix: &'a Matrix,
    choice: &CellChoice,
    digests: &dyn Digests,
) -> Result<Plan<'a>, Vec<Diagnostic>> {
    let preset = cell::preset(matrix, choice).map_err(|problem| vec![problem])?;
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
        seconds,
        max_age,
    })
}

fn compares(
    matrix: &Matrix,
    cells: &Cells,
    choice: &CellChoice,
) -> Result<Vec<ComparePlan>, Vec<Diagnostic>> {
    let mut plans = Vec::new();
    for (rule, compare) in matrix.compares.iter().enumerate() {
        let Some(axis) = cells.axis(&compare.axis.value) else {
            continue;
        };
        let labels = &cells.axes[axis].labels;
        let wanted = match &choice.against {
            Some(against) if compare.axis.value == "version" => {
                Some(AxisValue::text(against).label())
            }
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
        // A group is a comparison only if it has the baseline and something beside it.
        let mut candidates = Numbering::new(Projection::new(others, &cells.sizes()));
        let mut members: Vec<[bool; 2]> = Vec::new();
        let mut of_cell = Vec::with_capacity(cells.len());
        for cell in cells.iter() {
            let (candidate, is_new) = candidates.number(cell);
            if is_new {
                members.push([false; 2]);
            }
            let is_baseline = usize::from(cell[axis]) == baseline;
            members[candidate as usize][usize::from(is_baseline)] = true;
            of_cell.push(candidate);
        }
        let mut groups = 0;
        let groups_of: Vec<u32> = members
            .iter()
            .map(|members| match members {
                [true, true] => {
                    groups += 1;
                    groups - 1
                }
                _ => NONE,
            })
            .collect();
        for group in &mut of_cell {
            *group = groups_of[*group as usize];
        }
        plans.push(ComparePlan {
            rule,
            axis,
            baseline: baseline as u16,
            of_cell,
            groups: groups as usize,
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
    pub fn run_step(&self, run: u32) -> Step {
        Step {
            cell: self.steps.runs.cells[run as usize],
            key: self.steps.runs.keys[run as usize],
        }
    }

    /// The cell that a run step is for.
    pub fn cell_of(&self, run: usize) -> &[u16] {
        self.cells.cell(self.steps.runs.cells[run] as usize)
    }

    /// What a cell's results are stored under.
    pub fn key_of(&self, cell: u32) -> Key {
        let run = self.steps.runs.of_cell[cell as usize];
        self.steps.runs.keys[run as usize]
    }

    /// Measurements at the same time of each machine, by its number on the axis.
    pub fn slots(&self) -> Vec<u32> {
        let labels = self
            .cells
            .axis("machine")
            .map(|axis| &self.cells.axes[axis].labels);
        let slots = |name: &String| self.matrix.machine(name).map_or(1, |it| it.slots);
        labels.map_or(vec![1], |labels| labels.iter().map(slots).collect())
    }

    /// What `{{ bin }}` holds in a cell.
    pub fn subject_of(&self, cell: usize) -> Subject {
        self.steps.subjects.of(self.cells.cell(cell))
    }

    /// Whether what a cell measures is there, given which artifacts are kept.
    pub fn is_there(&self, cell: usize, is_kept: &dyn Fn(Key) -> bool) -> bool {
        match self.subject_of(cell) {
            Subject::Installed(_) => true,
            Subject::Artifact(digest) => is_kept(digest) || self.runs_nothing(cell),
            Subject::Unbuilt(_) => false,
        }
    }

    /// On a `null` machine there are no files, and none are needed.
    fn runs_nothing(&self, cell: usize) -> bool {
        let axis = self.cells.axis("machine");
        let name = axis.map(|axis| self.cells.label(self.cells.cell(cell), axis));
        let machine = name.and_then(|name| self.matrix.machine(name));
        machine.is_some_and(|machine| machine.via == Via::Null)
    }

    /// Of each value of the axis `machine`, whether it is a `null` machine.
    pub fn null_machines(&self) -> Vec<bool> {
        let axis = self
            .cells
            .axis("machine")
            .map(|axis| &self.cells.axes[axis]);
        let names = axis.into_iter().flat_map(|axis| &axis.labels);
        let machines = names.map(|name| self.matrix.machine(name));
        machines
            .map(|machine| machine.is_some_and(|machine| machine.via == Via::Null))
            .collect()
    }

    /// The build step of a cell.
    pub fn build_of(&self, cell: usize) -> Option<u32> {
        self.steps.builds.of(self.cells.cell(cell))
    }

    /// The set-up steps of a cell, in the order of the file.
    pub fn setups_of(&self, cell: u32) -> impl Iterator<Item = (usize, u32)> {
        let values = self.cells.cell(cell as usize);
        let setups = self.steps.setups.iter().enumerate();
        setups.filter_map(move |(index, setup)| Some((index, setup.of(values)?)))
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
        for (cell, &run) in (0..).zip(&self.steps.runs.of_cell) {
            if todo.rounds[run as usize] == 0 {
                continue;
            }
            for (compare, groups) in self.compares.iter().zip(&mut todo.compares) {
                if let Some(group) = groups.get_mut(compare.of_cell[cell] as usize) {
                    *group = true;
                }
            }
            // Of cells that share a run step only the one that it is carried out for needs anything.
            if self.steps.runs.cells[run as usize] as usize != cell {
                continue;
            }
            let is_there = self.is_there(cell, is_kept);
            if let Some(build) = self.build_of(cell).filter(|_| !is_there) {
                todo.builds[build as usize] = true;
            }
            for (setup, step) in self.setups_of(cell as u32) {
                todo.setups[setup][step as usize] = true;
            }
        }
        todo
    }
}

/// Steps by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCounts {
    pub build: Count,
    pub setup: Count,
    pub run: Count,
    pub compare: Count,
}

impl Todo {
    pub fn counts(&self) -> StepCounts {
        let flags = |lists: &[Vec<bool>]| {
            let all = lists.iter().flatten();
            Count::of(all.clone().count(), all.filter(|needed| **needed).count())
        };
        let run = self.rounds.iter().filter(|rounds| **rounds > 0).count();
        StepCounts {
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
        let cell = plan.steps.runs.cells[run as usize];
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

/// How long a plan takes: steps of one machine one after the other but for its slots, machines side by side;
/// and the longest chain of steps that need each other.
#[derive(Clone, Debug, Default)]
pub struct TimeEstimate {
    pub total: Duration,
    pub critical_path: Vec<(Node, Duration)>,
}

/// How long each build takes, and the longest chain of steps after it, by the number of its step; zero
/// for builds that are not needed.
pub fn build_weights(plan: &Plan, todo: &Todo, durations: &Durations) -> Vec<Weight> {
    let graph = graph(plan, todo);
    let chains = Chains {
        plan,
        todo,
        durations,
        builds: Vec::new(),
        setups: Vec::new(),
    };
    let mut after = vec![Duration::ZERO; graph.node_count()];
    let mut weights = vec![Weight::default(); plan.steps.builds.steps.len()];
    // Edges only go forward.
    for node in graph.node_indices().rev() {
        let own = chains.duration(graph[node]);
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

/// When a chain ends, its comparison (the first of equals counts) and its run step.
type Longest = (Duration, Reverse<(u16, u32)>, u32);

pub fn estimate(plan: &Plan, todo: &Todo, durations: &Durations) -> TimeEstimate {
    let steps = &plan.steps;
    let machine = plan.cells.axis("machine").unwrap_or(0);
    let mut by_machine = vec![Duration::ZERO; plan.cells.axes[machine].values.len()];
    let slots = plan.slots();
    let mut add = |cell: u32, duration: Duration, is_build: bool| {
        let machine = usize::from(plan.cells.cell(cell as usize)[machine]);
        let slots = if is_build { 1 } else { slots[machine] };
        by_machine[machine] += duration / slots;
    };
    let mut chains = Chains {
        plan,
        todo,
        durations,
        builds: Vec::new(),
        setups: Vec::new(),
    };
    for (build, step) in (0..).zip(&steps.builds.steps) {
        let duration = chains.duration(Node::Build(build));
        chains.builds.push(duration);
        add(step.cell, duration, true);
    }
    for (setup, shared) in (0..).zip(&steps.setups) {
        let mut ends = Vec::with_capacity(shared.steps.len());
        for (step, Step { cell, .. }) in (0..).zip(&shared.steps) {
            let duration = chains.duration(Node::Setup(setup, step));
            ends.push(chains.before(*cell, usize::from(setup)).0 + duration);
            add(*cell, duration, false);
        }
        chains.setups.push(ends);
    }
    // Of the chains that are equally long the one that ends in the first comparison, else the first.
    let mut longest: Option<Longest> = None;
    for (cell, &run) in (0..).zip(&steps.runs.of_cell) {
        if todo.rounds[run as usize] == 0 {
            continue;
        }
        let duration = chains.duration(Node::Run(run));
        let first = steps.runs.cells[run as usize];
        if first == cell {
            add(cell, duration, false);
        }
        let end = chains.before(first, steps.setups.len()).0 + duration;
        let compares = (0..).zip(&plan.compares);
        let group = compares
            .map(|(rule, compare)| (rule, compare.of_cell[cell as usize]))
            .find(|(_, group)| *group != NONE);
        let group = Reverse(group.unwrap_or((u16::MAX, NONE)));
        if longest.is_none_or(|(longest, of, _)| (longest, of) < (end, group)) {
            longest = Some((end, group, run));
        }
    }
    TimeEstimate {
        total: by_machine.into_iter().max().unwrap_or_default(),
        critical_path: match longest {
            Some((_, Reverse(compare), run)) => chains.up_to(run, compare),
            None => Vec::new(),
        },
    }
}

/// The longest chains of steps that are to be done and need each other: when each ends.
struct Chains<'a> {
    plan: &'a Plan<'a>,
    todo: &'a Todo,
    durations: &'a Durations<'a>,
    builds: Vec<Duration>,
    /// Set-up → step; those whose ends are known yet.
    setups: Vec<Vec<Duration>>,
}

impl Chains<'_> {
    /// How long a step takes; nothing where it is not to be done.
    fn duration(&self, node: Node) -> Duration {
        let (steps, todo) = (&self.plan.steps, self.todo);
        match node {
            Node::Build(step) if todo.builds[step as usize] => {
                (self.durations.build)(steps.builds.steps[step as usize].key)
            }
            Node::Setup(setup, step) if todo.setups[usize::from(setup)][step as usize] => {
                (self.durations.setup)(steps.setups[usize::from(setup)].steps[step as usize].key)
            }
            Node::Run(run) => {
                let rounds = todo.rounds[run as usize];
                (self.durations.run)(steps.runs.keys[run as usize]) * rounds
            }
            _ => Duration::ZERO,
        }
    }

    /// What a step of a cell waits for the longest, and until when: its build and the set-ups below
    /// this number.
    fn before(&self, cell: u32, below: usize) -> (Duration, Option<Node>) {
        let todo = self.todo;
        let build = self.plan.build_of(cell as usize);
        let build = build
            .filter(|build| todo.builds[*build as usize])
            .map(|build| (self.builds[build as usize], Some(Node::Build(build))));
        let setups = self.plan.setups_of(cell).take_while(|(at, _)| *at < below);
        let setups = setups
            .filter(|(setup, step)| todo.setups[*setup][*step as usize])
            .map(|(setup, step)| {
                let end = self.setups[setup][step as usize];
                (end, Some(Node::Setup(setup as u16, step)))
            });
        let later =
            |last: (Duration, Option<Node>), next: (Duration, Option<Node>)| match last.1.is_none()
                || next.0 > last.0
            {
                true => next,
                false => last,
            };
        build
            .into_iter()
            .chain(setups)
            .fold((Duration::ZERO, None), later)
    }

    /// The chain that ends in a run step and a comparison of it.
    fn up_to(&self, run: u32, compare: (u16, u32)) -> Vec<(Node, Duration)> {
        let steps = &self.plan.steps;
        let mut chain = Vec::new();
        if compare.1 != NONE {
            chain.push((Node::Compare(compare.0, compare.1), Duration::ZERO));
        }
        let mut next = Some(Node::Run(run));
        while let Some(node) = next {
            chain.push((node, self.duration(node)));
            next = match node {
                Node::Run(run) => {
                    self.before(steps.runs.cells[run as usize], steps.setups.len())
                        .1
                }
                Node::Setup(setup, step) => {
                    let setup = usize::from(setup);
                    self.before(steps.setups[setup].steps[step as usize].cell, setup)
                        .1
                }
                Node::Build(_) | Node::Compare(..) => None,
            };
        }
        chain.reverse();
        chain
    }
}

/// Cells of each group that is compared, the baseline first.
pub fn groups(plan: &Plan, compare: &ComparePlan) -> Vec<(u32, Vec<u32>)> {
    let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let in_groups = (0..).zip(&compare.of_cell);
    for (cell, group) in in_groups.filter(|(_, group)| **group != NONE) {
        groups.entry(*group).or_default().push(cell);
    }
    let is_baseline =
        |cell: &u32| plan.cells.cell(*cell as usize)[compare.axis] == compare.baseline;
    let split = |cells: Vec<u32>| {
        let (baseline, others): (Vec<u32>, Vec<u32>) = cells.into_iter().partition(is_baseline);
        Some((*baseline.first()?, others))
    };
    groups.into_values().filter_map(split).collect()
}

#[cfg(test)]
mod tests;
