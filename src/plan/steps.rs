//! Owns which steps there are: what each depends on, which cells share it, its key.
//! Does not know what is stored, nor how a step is carried out.

use std::collections::HashMap;

use super::cell::Cells;
use super::key::{InputTexts, Inputs};
use super::projection::{Memo, Numbering, Projection};
use super::resolve::set_seconds;
use super::scope::Scope;
use crate::config::matrix::{INSTALLED, Matrix};
use crate::config::template::Context;
use crate::words::diag::Diagnostic;
use crate::words::key::Key;

/// Digests that come from the world, given to the planner as values.
pub trait Digests {
    /// Declared tools of a machine by content, and whatever else there is in every result of it.
    fn tools(&self, machine: &str) -> Vec<(String, Key)>;
    /// The installed programs of the subject.
    fn installed(&self, machine: &str) -> Key;
    /// The programs of a version that is a folder, not something to build: by label and content.
    fn folder(&self, _machine: &str, _version: &str) -> Option<Key> {
        None
    }
    /// A part of the sources of a version: what the rule `[[affects]]` of this number names, or what
    /// none of them does.
    fn source(&self, version: &str, affects: Option<usize>) -> Key;
    /// What a build gave, if that is stored.
    fn artifact(&self, build: Key) -> Option<Key>;
}

/// Digests for trying things out: nothing has content, each build gives what it is made of.
pub struct NoDigests;

impl Digests for NoDigests {
    fn tools(&self, _: &str) -> Vec<(String, Key)> {
        Vec::new()
    }
    fn installed(&self, machine: &str) -> Key {
        Key::of(machine.as_bytes())
    }
    fn source(&self, version: &str, _: Option<usize>) -> Key {
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

/// The input that stands for what `{{ bin }}` holds.
pub const SUBJECT: &str = "subject";
/// What the names of inputs begin with that are a part of the sources of a version.
pub const SOURCES: &str = "sources";
/// What the names of inputs of a build begin with, but for its sources.
pub const BUILD: &str = "build";

/// No step.
pub const NONE: u32 = u32::MAX;

/// What `{{ bin }}` holds in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The machine's own programs, by content.
    Installed(Key),
    /// What a build gave, by content: the same for all versions that cannot differ in this cell.
    Artifact(Key),
    /// Nothing yet: the key of the inputs that can affect this cell.
    Unbuilt(Key),
}

impl Subject {
    fn text(self) -> String {
        match self {
            Subject::Installed(key) => format!("installed {key}"),
            Subject::Artifact(key) => format!("artifact {key}"),
            // Found nowhere, so what depends on it is to be done.
            Subject::Unbuilt(key) => format!("unbuilt {key}"),
        }
    }
}

/// What `{{ bin }}` holds in each cell, by projection.
#[derive(Clone, Debug)]
pub struct Subjects(Memo<Subject>);

impl Subjects {
    pub fn of(&self, cell: &[u16]) -> Subject {
        self.0
            .known(cell)
            .unwrap_or(Subject::Installed(Key::default()))
    }
}

/// All steps of a plan but the comparisons.
#[derive(Clone, Debug)]
pub struct Steps {
    pub builds: Shared,
    pub subjects: Subjects,
    /// One for each `[[setup]]`, in the order of the file.
    pub setups: Vec<Shared>,
    /// Run steps, sorted by key; cells with the same key share one.
    pub runs: Shared,
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

/// The inputs of all kinds of steps over one set of cells.
pub struct Maker<'a> {
    matrix: &'a Matrix,
    cells: &'a Cells,
    digests: &'a dyn Digests,
    placeholders: &'a Context,
    machine: Vec<usize>,
    version: Vec<usize>,
}

impl<'a> Maker<'a> {
    pub fn new(
        matrix: &'a Matrix,
        cells: &'a Cells,
        digests: &'a dyn Digests,
        placeholders: &'a Context,
    ) -> Self {
        let axis = |name: &str| cells.axis(name).into_iter().collect();
        Maker {
            matrix,
            cells,
            digests,
            placeholders,
            machine: axis("machine"),
            version: axis("version"),
        }
    }

    pub fn steps(&self) -> Result<Steps, Diagnostic> {
        let builds = match self.build_inputs(false) {
            Some(mut inputs) => self.shared(&mut inputs, |cell| self.is_built(cell))?,
            None => Shared::default(),
        };
        let subjects = self.subjects()?;
        let mut setups = Vec::new();
        for index in 0..self.matrix.setups.len() {
            let made = self.shared(&mut self.setup_inputs(index, &setups, &subjects), |_| true)?;
            setups.push(made);
        }
        let runs = self.runs(&mut self.run_inputs(&setups, &subjects))?;
        Ok(Steps {
            builds,
            subjects,
            setups,
            runs,
        })
    }

    /// The inputs of all steps that cells need for which `wanted` holds.
    pub fn input_texts(
        &self,
        steps: &Steps,
        wanted: &dyn Fn(usize) -> bool,
    ) -> Result<InputTexts, Diagnostic> {
        let mut texts = InputTexts::new();
        for inputs in self.all_inputs(steps) {
            inputs.tell(self.cells, wanted, &mut texts)?;
        }
        Ok(texts)
    }

    /// The inputs of builds (as far as a cell can see them), set-ups and run steps.
    pub fn all_inputs(&self, steps: &Steps) -> Vec<Inputs<'a>> {
        let setups = (0..self.matrix.setups.len())
            .map(|index| self.setup_inputs(index, &steps.setups[..index], &steps.subjects));
        let builds = self.build_inputs(true).into_iter();
        builds
            .chain(setups)
            .chain([self.run_inputs(&steps.setups, &steps.subjects)])
            .collect()
    }

    fn scope(&self) -> Scope<'a> {
        Scope {
            matrix: self.matrix,
            axes: &self.cells.axes,
        }
    }

    fn label(&self, cell: &[u16], axes: &[usize]) -> &'a str {
        axes.first()
            .map_or("", |&axis| self.cells.label(cell, axis))
    }

    fn folder(&self, cell: &[u16]) -> Option<Key> {
        let machine = self.label(cell, &self.machine);
        self.digests
            .folder(machine, self.label(cell, &self.version))
    }

    /// A version from git is built; a folder is not, nor is `installed`, unless there is nothing but a
    /// recipe.
    fn is_built(&self, cell: &[u16]) -> bool {
        if self.folder(cell).is_some() {
            return false;
        }
        let is_installed = self.label(cell, &self.version) == INSTALLED;
        self.matrix.build.is_some() && (self.matrix.subject.git.is_none() || !is_installed)
    }

    /// What a build depends on: all sources, or only the part that can affect the cell.
    fn build_inputs(&self, only_affecting: bool) -> Option<Inputs<'a>> {
        let matrix = self.matrix;
        let build = matrix.build.as_ref()?;
        let mut inputs = Inputs::new(self.scope());
        for (index, argv) in build.run.iter().enumerate() {
            inputs.words(
                &format!("{BUILD} command {}", index + 1),
                argv,
                self.placeholders,
            );
        }
        let artifacts: Vec<&str> = build.artifacts.iter().map(|a| a.value.as_str()).collect();
        inputs.constant(&format!("{BUILD} artifacts"), artifacts.join(" "));
        let volatile: Vec<&str> = build.volatile.iter().map(|v| v.value.as_str()).collect();
        inputs.constant(&format!("{BUILD} volatile"), volatile.join(" "));
        self.environment(&mut inputs);
        self.machine_name(&mut inputs);
        if matrix.subject.git.is_none() {
            return Some(inputs);
        }
        let scope = self.scope();
        let cells = self.cells;
        let digests = self.digests;
        let version = self.version.clone();
        let source = move |cell: &[u16], part| {
            let label = version.first().map_or("", |&axis| cells.label(cell, axis));
            digests.source(label, part).to_string()
        };
        let base = source.clone();
        inputs.add(SOURCES, self.version.clone(), move |cell| {
            Ok(base(cell, None))
        });
        for (index, affects) in matrix.affects.iter().enumerate() {
            let when = scope.axes_of(&affects.when.mentions);
            let mut axes = self.version.clone();
            if only_affecting {
                axes.extend(&when);
            }
            let source = source.clone();
            inputs.add(
                format!("{SOURCES} of rule {}", index + 1),
                axes,
                move |cell| {
                    let counts = !only_affecting || scope.test(&affects.when, cell, &when)?;
                    Ok(if counts {
                        source(cell, Some(index))
                    } else {
                        String::new()
                    })
                },
            );
        }
        Some(inputs)
    }

    fn subjects(&self) -> Result<Subjects, Diagnostic> {
        // Where nothing is built, what `[[affects]]` tells apart is the same.
        let is_any_built = self.cells.iter().any(|cell| self.is_built(cell));
        let mut inputs = self.build_inputs(true).filter(|_| is_any_built);
        let mut axes: Vec<usize> = self.machine.iter().chain(&self.version).copied().collect();
        axes.extend(inputs.iter().flat_map(Inputs::axes));
        let mut subjects = Memo::new(Projection::new(axes, &self.cells.sizes()));
        for cell in self.cells.iter() {
            subjects.get(cell, || match &mut inputs {
                Some(inputs) if self.is_built(cell) => {
                    let build = inputs.key(cell)?;
                    let artifact = self.digests.artifact(build);
                    Ok(artifact.map_or(Subject::Unbuilt(build), Subject::Artifact))
                }
                _ => {
                    let machine = self.label(cell, &self.machine);
                    let programs = self.folder(cell);
                    let programs = programs.unwrap_or_else(|| self.digests.installed(machine));
                    Ok::<_, Diagnostic>(Subject::Installed(programs))
                }
            })?;
        }
        Ok(Subjects(subjects))
    }

    fn setup_inputs(&self, index: usize, earlier: &[Shared], subjects: &Subjects) -> Inputs<'a> {
        let setup = &self.matrix.setups[index];
        let name = &setup.name.value;
        let scope = self.scope();
        let mut inputs = Inputs::new(scope);
        for (index, argv) in setup.run.iter().enumerate() {
            inputs.words(
                &format!("set-up {name}, command {}", index + 1),
                argv,
                self.placeholders,
            );
        }
        if let Some(service) = &setup.service {
            inputs.words(
                &format!("set-up {name}, service"),
                service,
                self.placeholders,
            );
        }
        let commands = setup.run.iter().chain(&setup.service);
        let all = commands.chain(&setup.ready).chain(&setup.undo);
        let templates: Vec<_> = all.flat_map(|argv| &argv.words).collect();
        // Probes and undoing do not change a result, but the axes they use tell the steps apart.
        let elsewhere = templates
            .iter()
            .flat_map(|word| scope.axes_of(&word.mentions));
        inputs.step(format!("set-up {name}, axes"), elsewhere.collect(), |_| {
            Key::default()
        });
        inputs.constant(
            &format!("set-up {name}, scope"),
            format!("{:?}", setup.scope),
        );
        self.machine_name(&mut inputs);
        self.environment(&mut inputs);
        let mentions = |wanted: &str| {
            templates
                .iter()
                .any(|word| word.mentions.iter().any(|m| m == wanted))
        };
        if mentions("bin") {
            self.subject(&mut inputs, subjects);
        }
        for (other, steps) in self.matrix.setups.iter().zip(earlier) {
            if mentions(&format!("{}.dir", other.name.value)) {
                self.depend_on(&mut inputs, &other.name.value, steps);
            }
        }
        inputs
    }

    fn run_inputs(&self, setups: &[Shared], subjects: &Subjects) -> Inputs<'a> {
        let mut inputs = Inputs::new(self.scope());
        inputs.words("run command", &self.matrix.run.command, self.placeholders);
        inputs.parser(&self.matrix.run.parser);
        self.environment(&mut inputs);
        self.machine_name(&mut inputs);
        let (cells, digests) = (self.cells, self.digests);
        let tools: Vec<&str> = self
            .matrix
            .requires
            .commands
            .iter()
            .map(|c| c.value.as_str())
            .collect();
        for tool in tools.into_iter().chain(["profile"]) {
            let machine = self.machine.clone();
            inputs.add(format!("tool {tool}"), self.machine.clone(), move |cell| {
                let label = machine.first().map_or("", |&axis| cells.label(cell, axis));
                let tools = digests.tools(label);
                let found = tools.iter().find(|(name, _)| name == tool);
                Ok(found.map_or(String::new(), |(_, key)| key.to_string()))
            });
        }
        self.subject(&mut inputs, subjects);
        for (setup, steps) in self.matrix.setups.iter().zip(setups) {
            self.depend_on(&mut inputs, &setup.name.value, steps);
        }
        inputs
    }

    fn machine_name(&self, inputs: &mut Inputs<'a>) {
        let (cells, machine) = (self.cells, self.machine.clone());
        inputs.add("machine", self.machine.clone(), move |cell| {
            Ok(machine
                .first()
                .map_or("", |&axis| cells.label(cell, axis))
                .to_owned())
        });
    }

    fn environment(&self, inputs: &mut Inputs<'a>) {
        for (name, template) in &self.matrix.env {
            inputs.text(format!("env {name}"), template, self.placeholders);
        }
    }

    fn subject(&self, inputs: &mut Inputs<'a>, subjects: &Subjects) {
        let own = subjects.clone();
        let axes = subjects.0.projection.axes.clone();
        inputs.add(SUBJECT, axes, move |cell| Ok(own.of(cell).text()));
    }

    /// The key of a set-up is an input of what uses it.
    fn depend_on(&self, inputs: &mut Inputs<'a>, name: &str, setup: &Shared) {
        let projection = Projection::new(setup.axes.clone(), &self.cells.sizes());
        let keys: HashMap<u64, Key> = setup
            .steps
            .iter()
            .map(|step| {
                (
                    projection.index(self.cells.cell(step.cell as usize)),
                    step.key,
                )
            })
            .collect();
        inputs.step(format!("set-up {name}"), setup.axes.clone(), move |cell| {
            keys.get(&projection.index(cell))
                .copied()
                .unwrap_or_default()
        });
    }

    /// One step for each projection onto the axes of the inputs.
    fn shared(
        &self,
        inputs: &mut Inputs,
        needed: impl Fn(&[u16]) -> bool,
    ) -> Result<Shared, Diagnostic> {
        let axes = inputs.axes();
        let mut numbering = Numbering::new(Projection::new(axes.clone(), &self.cells.sizes()));
        let mut shared = Shared {
            axes,
            of_cell: Vec::with_capacity(self.cells.len()),
            steps: Vec::new(),
        };
        for (index, cell) in self.cells.iter().enumerate() {
            if !needed(cell) {
                shared.of_cell.push(NONE);
                continue;
            }
            let (step, is_new) = numbering.number(cell);
            if is_new {
                shared.steps.push(Step {
                    cell: index as u32,
                    key: inputs.key(cell)?,
                });
            }
            shared.of_cell.push(step);
        }
        Ok(shared)
    }

    /// One step for each key, sorted by key.
    fn runs(&self, inputs: &mut Inputs) -> Result<Shared, Diagnostic> {
        let mut keyed: Vec<Step> = Vec::with_capacity(self.cells.len());
        for (index, cell) in self.cells.iter().enumerate() {
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
            axes: (0..self.cells.axes.len()).collect(),
        })
    }
}
