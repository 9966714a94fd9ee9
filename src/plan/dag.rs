//! Owns the plan: steps, what they depend on, what is stored and what is to be done.
//! Does not know how a step is carried out nor where results are kept.

use std::collections::HashMap;
use std::time::Duration;

pub use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};

use super::cell::{self, Cells, Choice};
use super::key::{Inputs, number};
use super::projection::Projection;
use super::resolve::set_seconds;
use super::scope::Scope;
use crate::config::matrix::{INSTALLED, Matrix, Repeat};
use crate::config::template::Context;
use crate::words::diag::Diagnostic;
use crate::words::key::{Key, KeyHasher};

/// Digests that come from the world, given to the planner as values.
pub trait Digests {
    /// What a machine brings into every result: its declared tools and its profile.
    fn machine(&self, machine: &str) -> Key;
    /// The installed programs of the subject.
    fn installed(&self, machine: &str) -> Key;
    /// The sources of a version: what is below the subject's paths.
    fn source(&self, version: &str) -> Key;
    /// What a build gave, if it is stored.
    fn artifact(&self, build: Key) -> Option<Key>;
}

/// Digests for trying things out: nothing is installed, nothing was built.
pub struct NoDigests;

impl Digests for NoDigests {
    fn machine(&self, machine: &str) -> Key {
        Key::of(machine.as_bytes())
    }
    fn installed(&self, machine: &str) -> Key {
        Key::of(machine.as_bytes())
    }
    fn source(&self, version: &str) -> Key {
        Key::of(version.as_bytes())
    }
    fn artifact(&self, build: Key) -> Option<Key> {
        Some(build)
    }
}

/// A step that several cells may share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// One of the cells that it is for.
    pub cell: u32,
    pub key: Key,
}

/// Steps of one kind, and which of them each cell uses.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    pub steps: Vec<Step>,
    /// Cell → step; [`NONE`] where a cell needs none.
    pub of_cell: Vec<u32>,
    /// The axes that tell the steps apart.
    pub axes: Vec<usize>,
}

/// No step.
pub const NONE: u32 = u32::MAX;

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
    pub builds: Shared,
    /// One for each `[[setup]]`, in the order of the file.
    pub setups: Vec<Shared>,
    /// Run steps, sorted by key; cells with the same key share one.
    pub runs: Shared,
    pub compares: Vec<ComparePlan>,
    pub repeat: &'a Repeat,
    pub seconds: f64,
}

/// What names of steps and folders stand for in keys: themselves.
pub fn placeholders(matrix: &Matrix, seconds: f64) -> Context {
    let mut context = Context::default();
    for name in ["cell", "dir", "bin", "src", "jobs", "round", "seed"] {
        context.set(name, format!("\u{1}{name}"));
    }
    set_seconds(&mut context, seconds);
    for setup in &matrix.setups {
        let name = &setup.name.value;
        context.set_field(name, "dir", format!("\u{1}{name}.dir"));
    }
    context
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
    let cells = cell::expand(matrix, choice)?;
    let placeholders = placeholders(matrix, seconds);
    let steps = steps(matrix, &cells, digests, &placeholders).map_err(|problem| vec![problem])?;
    let compares = compares(matrix, &cells, choice)?;
    Ok(Plan {
        matrix,
        cells,
        builds: steps.builds,
        setups: steps.setups,
        runs: steps.runs,
        compares,
        repeat,
        seconds,
    })
}

struct Steps {
    builds: Shared,
    setups: Vec<Shared>,
    runs: Shared,
}

fn steps(
    matrix: &Matrix,
    cells: &Cells,
    digests: &dyn Digests,
    placeholders: &Context,
) -> Result<Steps, Diagnostic> {
    let scope = Scope {
        matrix,
        axes: &cells.axes,
    };
    let axis = |name: &str| cells.axis(name).into_iter().collect::<Vec<_>>();
    let (machine, version) = (axis("machine"), axis("version"));
    let label = |cell: &[u16], axes: &[usize]| {
        axes.first()
            .map(|&axis| cells.label(cell, axis))
            .unwrap_or("")
    };

    // Builds. A version from git is built; `installed` is not, unless there is nothing but a recipe.
    let mut builds = Shared::default();
    let is_built = |cell: &[u16]| {
        matrix.build.is_some()
            && (matrix.subject.git.is_none() || label(cell, &version) != INSTALLED)
    };
    if let Some(build) = &matrix.build {
        let mut inputs = Inputs::new(scope);
        for argv in &build.run {
            inputs.words("`[build]`", argv, placeholders);
        }
        let artifacts =
            build
                .artifacts
                .iter()
                .fold(KeyHasher::new("artifacts"), |mut hasher, artifact| {
                    hasher.str(&artifact.value);
                    hasher
                });
        inputs.constant("artifacts", artifacts.finish());
        environment(matrix, &mut inputs, placeholders);
        let (m, v) = (machine.clone(), version.clone());
        inputs.add("machine", machine.clone(), move |cell| {
            Ok(named("machine", Key::of(label(cell, &m).as_bytes())))
        });
        if matrix.subject.git.is_some() {
            inputs.add("source", version.clone(), move |cell| {
                Ok(named("source", digests.source(label(cell, &v))))
            });
        }
        builds = shared(cells, &mut inputs, is_built)?;
    }
    // What `{{ bin }}` holds, for each cell: the artifact, or the installed programs.
    let mut subject_axes: Vec<usize> = machine
        .iter()
        .chain(&version)
        .copied()
        .chain(builds.axes.clone())
        .collect();
    subject_axes.sort_unstable();
    subject_axes.dedup();
    let by_subject = Projection::new(subject_axes.clone(), &cells.sizes());
    let mut subjects: HashMap<u64, u128> = HashMap::new();
    for (index, cell) in cells.iter().enumerate() {
        subjects.entry(by_subject.index(cell)).or_insert_with(|| {
            match builds.of_cell.get(index).copied().unwrap_or(NONE) {
                NONE => named("installed", digests.installed(label(cell, &machine))),
                step => {
                    let build = builds.steps[step as usize].key;
                    // Not built yet: such a key is found nowhere, so what depends on it is to be done.
                    let artifact = digests.artifact(build);
                    artifact.map_or_else(
                        || named("unbuilt", build),
                        |digest| named("artifact", digest),
                    )
                }
            }
        });
    }
    let subject = |cell: &[u16]| Ok(subjects.get(&by_subject.index(cell)).copied().unwrap_or(0));

    let mut setups: Vec<Shared> = Vec::new();
    for setup in &matrix.setups {
        let mut inputs = Inputs::new(scope);
        let commands = setup.run.iter().chain(&setup.service);
        let templates = || {
            commands
                .clone()
                .chain(&setup.ready)
                .chain(&setup.undo)
                .flat_map(|argv| &argv.words)
        };
        for argv in commands.clone() {
            inputs.words(&setup.name.value, argv, placeholders);
        }
        // Probes and undoing do not change a result, but the axes they use tell the steps apart.
        let elsewhere: Vec<usize> = templates()
            .flat_map(|word| scope.axes_of(&word.mentions))
            .collect();
        inputs.add("where", elsewhere, |_| Ok(0));
        inputs.constant("scope", Key::of(&[setup.scope as u8]));
        let mentions = |name: &str| templates().any(|word| word.mentions.iter().any(|m| m == name));
        machine_input(&mut inputs, digests, &machine, label);
        if mentions("bin") {
            inputs.add("subject", subject_axes.clone(), subject);
        }
        environment(matrix, &mut inputs, placeholders);
        for (earlier, of_it) in matrix.setups.iter().zip(&setups) {
            if mentions(&format!("{}.dir", earlier.name.value)) {
                depend_on(&mut inputs, &earlier.name.value, of_it, cells);
            }
        }
        let made = shared(cells, &mut inputs, |_| true)?;
        drop(inputs);
        setups.push(made);
    }

    let mut inputs = Inputs::new(scope);
    inputs.words("`[run]` command", &matrix.run.command, placeholders);
    inputs.parser(&matrix.run.parser);
    environment(matrix, &mut inputs, placeholders);
    machine_input(&mut inputs, digests, &machine, label);
    inputs.add("subject", subject_axes.clone(), subject);
    for (setup, of_it) in matrix.setups.iter().zip(&setups) {
        depend_on(&mut inputs, &setup.name.value, of_it, cells);
    }
    let runs = runs(cells, &mut inputs)?;
    drop(inputs);
    Ok(Steps {
        builds,
        setups,
        runs,
    })
}

fn named(name: &str, key: Key) -> u128 {
    number(KeyHasher::new(name).key(key).finish())
}

fn machine_input<'a>(
    inputs: &mut Inputs<'a>,
    digests: &'a dyn Digests,
    machine: &'a [usize],
    label: impl Fn(&[u16], &[usize]) -> &'a str + 'a,
) {
    inputs.add("machine", machine.to_vec(), move |cell| {
        Ok(named("machine", digests.machine(label(cell, machine))))
    });
}

fn environment<'a>(matrix: &'a Matrix, inputs: &mut Inputs<'a>, placeholders: &'a Context) {
    for (name, template) in &matrix.env {
        inputs.text(
            format!("environment variable {name}"),
            name,
            0,
            template,
            placeholders,
        );
    }
}

/// The key of a set-up is an input of what uses it.
fn depend_on(inputs: &mut Inputs, name: &str, setup: &Shared, cells: &Cells) {
    let projection = Projection::new(setup.axes.clone(), &cells.sizes());
    let mut keys: HashMap<u64, u128> = HashMap::new();
    for step in &setup.steps {
        let key = number(KeyHasher::new("set-up").str(name).key(step.key).finish());
        keys.insert(projection.index(cells.cell(step.cell as usize)), key);
    }
    inputs.add(
        format!("set-up `{name}`"),
        setup.axes.clone(),
        move |cell| Ok(keys.get(&projection.index(cell)).copied().unwrap_or(0)),
    );
}

/// One step for each projection onto the axes of the inputs.
fn shared(
    cells: &Cells,
    inputs: &mut Inputs,
    needed: impl Fn(&[u16]) -> bool,
) -> Result<Shared, Diagnostic> {
    let axes = inputs.axes();
    let projection = Projection::new(axes.clone(), &cells.sizes());
    let mut seen: HashMap<u64, u32> = HashMap::new();
    let mut shared = Shared {
        axes,
        of_cell: Vec::with_capacity(cells.len()),
        steps: Vec::new(),
    };
    for (index, cell) in cells.iter().enumerate() {
        if !needed(cell) {
            shared.of_cell.push(NONE);
            continue;
        }
        let step = match seen.get(&projection.index(cell)) {
            Some(&step) => step,
            None => {
                let step = shared.steps.len() as u32;
                seen.insert(projection.index(cell), step);
                shared.steps.push(Step {
                    cell: index as u32,
                    key: inputs.key(cell)?,
                });
                step
            }
        };
        shared.of_cell.push(step);
    }
    Ok(shared)
}

/// One step for each key, sorted by key.
fn runs(cells: &Cells, inputs: &mut Inputs) -> Result<Shared, Diagnostic> {
    let mut keyed: Vec<Step> = Vec::with_capacity(cells.len());
    for (index, cell) in cells.iter().enumerate() {
        keyed.push(Step {
            cell: index as u32,
            key: inputs.key(cell)?,
        });
    }
    keyed.sort_unstable_by_key(|step| (step.key, step.cell));
    let mut of_cell = vec![NONE; keyed.len()];
    let mut steps = 0;
    for index in 0..keyed.len() {
        let step = keyed[index];
        if steps == 0 || keyed[steps - 1].key != step.key {
            keyed[steps] = step;
            steps += 1;
        }
        of_cell[step.cell as usize] = steps as u32 - 1;
    }
    keyed.truncate(steps);
    Ok(Shared {
        steps: keyed,
        of_cell,
        axes: (0..cells.axes.len()).collect(),
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
        let mut members: HashMap<u64, (bool, bool)> = HashMap::new();
        for cell in cells.iter() {
            let (has_baseline, has_other) = members.entry(projection.index(cell)).or_default();
            match usize::from(cell[axis]) == baseline {
                true => *has_baseline = true,
                false => *has_other = true,
            }
        }
        let mut seen: HashMap<u64, u32> = HashMap::new();
        let of_cell: Vec<u32> = cells
            .iter()
            .map(|cell| {
                let group = projection.index(cell);
                if members.get(&group) != Some(&(true, true)) {
                    return NONE;
                }
                let next = seen.len() as u32;
                *seen.entry(group).or_insert(next)
            })
            .collect();
        plans.push(ComparePlan {
            rule,
            axis,
            baseline: baseline as u16,
            of_cell,
            groups: seen.len(),
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
        self.cells.cell(self.runs.steps[run].cell as usize)
    }

    /// The set-up steps of a cell, in the order of the file.
    pub fn setups_of(&self, cell: u32) -> impl Iterator<Item = (usize, u32)> {
        let steps = self
            .setups
            .iter()
            .map(move |setup| setup.of_cell[cell as usize]);
        steps.enumerate().filter(|(_, step)| *step != NONE)
    }

    /// What follows from the rounds that each run step misses. `built` tells which builds are stored.
    pub fn todo(&self, rounds: Vec<u32>, built: &dyn Fn(Key) -> bool) -> Todo {
        let mut todo = Todo {
            builds: vec![false; self.builds.steps.len()],
            setups: self
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
        for cell in 0..self.cells.len() {
            if todo.rounds[self.runs.of_cell[cell] as usize] == 0 {
                continue;
            }
            if let Some(&build) = self.builds.of_cell.get(cell)
                && build != NONE
            {
                todo.builds[build as usize] = true;
            }
            for (setup, step) in self.setups_of(cell as u32) {
                todo.setups[setup][step as usize] = true;
            }
            for (compare, groups) in self.compares.iter().zip(&mut todo.compares) {
                if let Some(group) = groups.get_mut(compare.of_cell[cell] as usize) {
                    *group = true;
                }
            }
        }
        for (step, needed) in self.builds.steps.iter().zip(&mut todo.builds) {
            *needed &= !built(step.key);
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
    for &run in &plan.runs.of_cell {
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
        let step = plan.builds.of_cell.get(cell).copied().unwrap_or(NONE);
        builds.get(step as usize).copied().flatten()
    };
    for (setup, shared) in plan.setups.iter().enumerate() {
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
        let cell = plan.runs.steps[run as usize].cell;
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
        let Some(run) = runs[plan.runs.of_cell[cell] as usize] else {
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

pub fn estimate(plan: &Plan, todo: &Todo, graph: &Graph, durations: &Durations) -> Estimate {
    let duration_of = |node: Node| match node {
        Node::Build(step) => (durations.build)(plan.builds.steps[step as usize].key),
        Node::Setup(setup, step) => {
            (durations.setup)(plan.setups[setup as usize].steps[step as usize].key)
        }
        Node::Run(run) => {
            (durations.run)(plan.runs.steps[run as usize].key) * todo.rounds[run as usize]
        }
        Node::Compare(..) => Duration::ZERO,
    };
    let cell_of = |node: Node| match node {
        Node::Build(step) => Some(plan.builds.steps[step as usize].cell),
        Node::Setup(setup, step) => Some(plan.setups[setup as usize].steps[step as usize].cell),
        Node::Run(run) => Some(plan.runs.steps[run as usize].cell),
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
