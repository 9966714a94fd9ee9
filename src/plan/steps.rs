//! Which steps there are: what each depends on, which cells share it, its key.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::rc::Rc;

use super::cell::Cells;
use super::commands::{case_of, set_seconds};
use super::key::{Inputs, render};
use super::programs::{WordPlace, has_names, names_in};
use super::projection::{Memo, Numbering, Projection};
use super::scope::Scope;
use crate::base::diag::Diagnostic;
use crate::base::input::InputTexts;
use crate::base::key::Key;
use crate::config::matrix::{Argv, Build, INSTALLED, Matrix, ParserDecl, Setup};
use crate::config::template::{Context, Template};

/// Digests that come from the world, given to the planner as values.
pub trait Digests {
    /// Declared tools of a machine by content, and whatever else there is in every result of it.
    fn tools(&self, machine: &str) -> Vec<(String, Key)>;
    /// What the profile of a machine sets, by name and value: what [`Digests::tools`] has one digest of.
    fn settings(&self, _machine: &str) -> Vec<(String, String)> {
        Vec::new()
    }
    /// The installed programs of the subject.
    fn installed(&self, machine: &str) -> Key;
    /// The programs of a version that is a folder, not something to build: by label and content.
    fn folder(&self, _machine: &str, _version: &str) -> Option<Key> {
        None
    }
    /// A part of the sources of a version: what the rule `[[affects]]` of this number names, or what
    /// none of them does.
    fn source(&self, version: &str, affects: Option<usize>) -> Key;
    /// The number of the `[[build.variant]]` that is for a version, if one is.
    fn variant(&self, _version: &str) -> Option<usize> {
        None
    }
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
#[derive(Clone, Debug)]
pub struct Shared {
    pub steps: Vec<Step>,
    /// The axes that tell the steps apart.
    pub axes: Vec<usize>,
    /// Step by projection; [`NONE`] where a cell needs none.
    numbers: Memo<u32>,
}

impl Shared {
    fn none() -> Shared {
        Shared {
            steps: Vec::new(),
            axes: Vec::new(),
            numbers: Memo::new(Projection::new(Vec::new(), &[])),
        }
    }

    /// The step of a cell of the plan, if it needs one.
    pub fn of(&self, cell: &[u16]) -> Option<u32> {
        self.numbers.known(cell).filter(|step| *step != NONE)
    }
}

/// Run steps, ascending by key; cells with the same key share one.
#[derive(Clone, Debug)]
pub struct Runs {
    pub keys: Vec<Key>,
    /// Step → the first of the cells that it is for.
    pub cells: Vec<u32>,
    /// Cell → step.
    pub of_cell: Vec<u32>,
}

impl Runs {
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
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

    /// The artifacts, ascending, each once.
    pub fn artifacts(&self) -> Vec<Key> {
        let artifacts = self.0.values().filter_map(|subject| match subject {
            Subject::Artifact(digest) => Some(*digest),
            Subject::Installed(_) | Subject::Unbuilt(_) => None,
        });
        let mut artifacts: Vec<Key> = artifacts.collect();
        artifacts.sort_unstable();
        artifacts.dedup();
        artifacts
    }
}

/// All steps of a plan but the comparisons.
#[derive(Clone, Debug)]
pub struct Steps {
    pub builds: Shared,
    pub subjects: Subjects,
    /// One for each `[[setup]]`, in the order of the file.
    pub setups: Vec<Rc<Shared>>,
    pub runs: Runs,
}

/// What names of steps and folders stand for in keys: themselves.
pub fn placeholders(matrix: &Matrix, seconds: f64) -> Context {
    let mut context = Context::default();
    for name in [
        "cell",
        "dir",
        "bin",
        "src",
        "jobs",
        "round",
        "seed",
        "here",
        "cpus",
        "free_port",
        "commit",
        "commit_date",
    ] {
        context.set(name, format!("\u{1}{name}"));
    }
    set_seconds(&mut context, seconds);
    for setup in &matrix.setups {
        let name = &setup.name.value;
        context.set_field(name, "dir", format!("\u{1}{name}.dir"));
        context.set_field(name, "port", format!("\u{1}{name}.port"));
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
        let builds = self.builds()?;
        let subjects = self.subjects()?;
        let mut setups = Vec::new();
        for index in 0..self.matrix.setups.len() {
            let made = self.setup(index, &setups, &subjects)?;
            setups.push(Rc::new(made));
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
        let setups = (0..self.matrix.setups.len()).map(|index| {
            self.setup_inputs(index, &steps.setups[..index], &steps.subjects)
                .0
        });
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
        self.recipes(&mut inputs, build);
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

    /// The commands of a build. Each version has one recipe, so that names need not tell them apart: a recipe that
    /// becomes a variant keeps what it built.
    fn recipes(&self, inputs: &mut Inputs<'a>, build: &'a Build) {
        let (cells, digests) = (self.cells, self.digests);
        let version = self.version.first().copied();
        let label = move |cell: &[u16]| version.map_or("", |axis| cells.label(cell, axis));
        let more: &[usize] = match build.variants.is_empty() {
            true => &[],
            false => &self.version,
        };
        let is_only = build.variants.is_empty();
        let variants = std::iter::once(None).chain((0..build.variants.len()).map(Some));
        for variant in variants {
            let is_of = move |cell: &[u16]| Ok(is_only || digests.variant(label(cell)) == variant);
            for (index, argv) in build.recipe(variant).iter().enumerate() {
                let what = format!("{BUILD} command {}", index + 1);
                inputs.words_where(&what, argv, self.placeholders, more, is_of);
                self.content_where(inputs, &what, argv, WordPlace::Later, more, is_of);
            }
        }
    }

    fn subjects(&self) -> Result<Subjects, Diagnostic> {
        // Where nothing is built, what `[[affects]]` tells apart is the same.
        let axes = self.machine.iter().chain(&self.version).copied().collect();
        let mut built = self.memo(axes);
        let is_any_built = self.cells.iter().any(|cell| {
            let Ok(is_built) = built.get(cell, || Ok::<_, Infallible>(self.is_built(cell)));
            is_built
        });
        let mut inputs = self.build_inputs(true).filter(|_| is_any_built);
        let mut axes: Vec<usize> = self.machine.iter().chain(&self.version).copied().collect();
        axes.extend(inputs.iter().flat_map(Inputs::axes));
        let mut subjects = self.memo(axes);
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

    /// The inputs of a set-up, and the axes that its own texts mention.
    fn setup_inputs(
        &self,
        index: usize,
        earlier: &[Rc<Shared>],
        subjects: &Subjects,
    ) -> (Inputs<'a>, Vec<usize>) {
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
            let what = format!("set-up {name}, command {}", index + 1);
            self.content(&mut inputs, &what, argv, WordPlace::First);
        }
        if let Some(service) = &setup.service {
            inputs.words(
                &format!("set-up {name}, service"),
                service,
                self.placeholders,
            );
            let what = format!("set-up {name}, service");
            self.content(&mut inputs, &what, service, WordPlace::First);
        }
        // Probes and undoing do not change a result, but the axes they use tell the steps apart.
        let elsewhere = words(setup).flat_map(|word| scope.axes_of(&word.mentions));
        inputs.step(format!("set-up {name}, axes"), elsewhere.collect(), |_| {
            Key::default()
        });
        inputs.constant(
            &format!("set-up {name}, scope"),
            format!("{:?}", setup.scope),
        );
        self.machine_name(&mut inputs);
        self.environment(&mut inputs);
        let own = inputs.axes();
        if mentions(setup, "bin") {
            self.subject(&mut inputs, subjects);
        }
        for (other, steps) in self.needs(setup, earlier) {
            self.depend_on(&mut inputs, &other.name.value, steps);
        }
        (inputs, own)
    }

    /// The set-ups whose folders a later one uses.
    fn needs<'b>(
        &self,
        setup: &'a Setup,
        earlier: &'b [Rc<Shared>],
    ) -> impl Iterator<Item = (&'a Setup, &'b Rc<Shared>)> {
        let all = self.matrix.setups.iter().zip(earlier);
        all.filter(|(other, _)| mentions(setup, &format!("{}.dir", other.name.value)))
    }

    fn run_inputs(&self, setups: &[Rc<Shared>], subjects: &Subjects) -> Inputs<'a> {
        let mut inputs = Inputs::new(self.scope());
        for index in 0..self.matrix.run.cases.len() {
            self.case(&mut inputs, index);
        }
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
        let label = |cell: &[u16], machine: &[usize]| {
            machine.first().map_or("", |&axis| cells.label(cell, axis))
        };
        let digest = move |cell: &[u16], machine: &[usize], tool: &str| {
            let tools = digests.tools(label(cell, machine));
            let found = tools.iter().find(|(name, _)| name == tool);
            found.map_or(String::new(), |(_, key)| key.to_string())
        };
        for tool in tools {
            let machine = self.machine.clone();
            inputs.add(format!("tool {tool}"), self.machine.clone(), move |cell| {
                Ok(digest(cell, &machine, tool))
            });
        }
        let machine = self.machine.clone();
        inputs.whole("tool profile", self.machine.clone(), move |cell| {
            digest(cell, &machine, "profile")
        });
        let machines = self
            .machine
            .iter()
            .flat_map(|&axis| &cells.axes[axis].labels);
        let settings = machines.flat_map(|machine| digests.settings(machine));
        let names: BTreeSet<String> = settings.map(|(name, _)| name).collect();
        for name in names {
            let machine = self.machine.clone();
            inputs.part(
                format!("profile {name}"),
                self.machine.clone(),
                move |cell| {
                    let settings = digests.settings(label(cell, &machine));
                    let found = settings.into_iter().find(|(known, _)| *known == name);
                    found.map_or(String::new(), |(_, value)| value)
                },
            );
        }
        self.subject(&mut inputs, subjects);
        for (setup, steps) in self.matrix.setups.iter().zip(setups) {
            self.depend_on(&mut inputs, &setup.name.value, steps);
        }
        inputs
    }

    /// The inputs of one `[[run]]`, which only its cells have. Each cell has one of them, so that names need
    /// not tell them apart: what moves to a `[[run]]` of its own keeps its results.
    fn case(&self, inputs: &mut Inputs<'a>, index: usize) {
        let (matrix, scope) = (self.matrix, self.scope());
        let case = &matrix.run.cases[index];
        let is_only = matrix.run.cases.len() == 1 && case.when.is_none();
        let whens = matrix.run.cases[..=index].iter();
        let whens = whens.filter_map(|case| case.when.as_ref());
        let axes: Vec<usize> = match is_only {
            true => Vec::new(),
            false => whens
                .flat_map(|when| scope.axes_of(&when.mentions))
                .collect(),
        };
        let is_of = move |cell: &[u16]| Ok(is_only || case_of(scope, cell)? == index);
        let commands = [("run command".to_owned(), &case.command)];
        let prepare = case.prepare.iter().enumerate();
        let prepare =
            prepare.map(|(number, argv)| (format!("prepare command {}", number + 1), argv));
        for (what, argv) in commands.into_iter().chain(prepare) {
            inputs.words_where(&what, argv, self.placeholders, &axes, is_of);
            self.content_where(inputs, &what, argv, WordPlace::First, &axes, is_of);
        }
        let mut constants = vec![("parser", parsers_text(&case.parsers))];
        if case.warmup > 0 {
            constants.push(("warmup", case.warmup.to_string()));
        }
        for (name, value) in constants {
            inputs.add_optional(name, axes.clone(), move |cell| {
                Ok(is_of(cell)?.then(|| value.clone()))
            });
        }
    }

    /// The content of the programs and files that a command names, as far as `[requires]` does not name
    /// them anyway. `first`: what its first word is taken for.
    fn content(&self, inputs: &mut Inputs<'a>, what: &str, argv: &'a Argv, first: WordPlace) {
        self.content_where(inputs, what, argv, first, &[], |_| Ok(true));
    }

    /// As [`Maker::content`], in the cells for which `is_of` holds, which depends on `more` axes.
    fn content_where(
        &self,
        inputs: &mut Inputs<'a>,
        what: &str,
        argv: &'a Argv,
        first: WordPlace,
        more: &[usize],
        is_of: impl Fn(&[u16]) -> Result<bool, Diagnostic> + Copy + 'a,
    ) {
        let scope = self.scope();
        for (index, word) in argv.words.iter().enumerate() {
            let place = if index == 0 { first } else { WordPlace::Later };
            if !has_names(word, place) {
                continue;
            }
            let own = scope.axes_of(&word.mentions);
            let axes = self.machine.iter().chain(&own).chain(more);
            let axes = axes.copied().collect();
            let (cells, digests, placeholders) = (self.cells, self.digests, self.placeholders);
            let machine = self.machine.clone();
            let required = &self.matrix.requires.commands;
            let name = match place {
                WordPlace::First => format!("{what}, program"),
                WordPlace::Later => format!("{what}, file of word {}", index + 1),
            };
            inputs.add_optional(name, axes, move |cell| {
                if !is_of(cell)? {
                    return Ok(None);
                }
                let text = render(scope, word, cell, &own, placeholders)?;
                let label = machine.first().map_or("", |&axis| cells.label(cell, axis));
                let tools = digests.tools(label);
                let names = names_in(&text, place).into_iter();
                let contents = names.filter_map(|name| {
                    let is_required = required.iter().any(|tool| tool.value == name);
                    let (_, key) = tools
                        .iter()
                        .find(|(known, _)| *known == name && !is_required)?;
                    Some(format!("{name} {key}"))
                });
                let contents: Vec<String> = contents.collect();
                Ok(Some(contents.join(" ")).filter(|text| !text.is_empty()))
            });
        }
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
    fn depend_on(&self, inputs: &mut Inputs<'a>, name: &str, setup: &Rc<Shared>) {
        let steps = Rc::clone(setup);
        inputs.step(format!("set-up {name}"), setup.axes.clone(), move |cell| {
            let step = steps.of(cell);
            step.map_or(Key::default(), |step| steps.steps[step as usize].key)
        });
    }

    fn memo<T: Copy>(&self, axes: Vec<usize>) -> Memo<T> {
        Memo::new(Projection::new(axes, &self.cells.sizes()))
    }

    /// One build for each projection onto the axes of its inputs.
    fn builds(&self) -> Result<Shared, Diagnostic> {
        let Some(mut inputs) = self.build_inputs(false) else {
            return Ok(Shared::none());
        };
        let axes = inputs.axes();
        // Whether anything is built depends on the version, also where the recipe does not.
        let version = self.version.iter().copied();
        let mut numbers = self.memo(axes.iter().copied().chain(version).collect());
        let mut own = Numbering::new(Projection::new(axes.clone(), &self.cells.sizes()));
        let mut steps = Vec::new();
        for (cell, values) in (0..).zip(self.cells.iter()) {
            numbers.get(values, || {
                if !self.is_built(values) {
                    return Ok(NONE);
                }
                let (step, is_new) = own.number(values);
                if is_new {
                    let key = inputs.key(values)?;
                    steps.push(Step { cell, key });
                }
                Ok::<_, Diagnostic>(step)
            })?;
        }
        Ok(Shared {
            steps,
            axes,
            numbers,
        })
    }

    /// One set-up for each key, as far as the same probes and undoing go with it.
    fn setup(
        &self,
        index: usize,
        earlier: &[Rc<Shared>],
        subjects: &Subjects,
    ) -> Result<Shared, Diagnostic> {
        let setup = &self.matrix.setups[index];
        let (mut inputs, own) = self.setup_inputs(index, earlier, subjects);
        let beside = setup.ready.iter().chain(&setup.undo);
        let beside = beside.flat_map(|argv| &argv.words);
        let beside = beside.flat_map(|word| self.scope().axes_of(&word.mentions));
        let beside = Projection::new(beside.collect(), &self.cells.sizes());
        let needs: Vec<&Rc<Shared>> = self.needs(setup, earlier).map(|(_, steps)| steps).collect();
        let mut known: HashMap<(Key, u64, Vec<Option<u32>>), u32> = HashMap::new();
        let mut numbers = self.memo(inputs.axes());
        let mut steps = Vec::new();
        // A cell of each projection, with its step.
        let mut seen: Vec<(u32, u32)> = Vec::new();
        for (cell, values) in (0..).zip(self.cells.iter()) {
            numbers.get(values, || {
                let key = inputs.key(values)?;
                let needs = needs.iter().map(|steps| steps.of(values)).collect();
                let identity = (key, beside.index(values), needs);
                let step = *known.entry(identity).or_insert_with(|| {
                    steps.push(Step { cell, key });
                    steps.len() as u32 - 1
                });
                seen.push((cell, step));
                Ok::<_, Diagnostic>(step)
            })?;
        }
        // Axes that come with the artifact or an earlier set-up may make no difference here.
        let mut axes = inputs.axes();
        for axis in inputs.axes() {
            if own.contains(&axis) {
                continue;
            }
            let rest: Vec<usize> = axes.iter().copied().filter(|a| *a != axis).collect();
            let mut without = self.memo(rest.clone());
            let is_same = seen.iter().all(|(cell, step)| {
                let values = self.cells.cell(*cell as usize);
                without.get(values, || Ok::<_, Infallible>(*step)) == Ok(*step)
            });
            if is_same {
                (axes, numbers) = (rest, without);
            }
        }
        Ok(Shared {
            steps,
            axes,
            numbers,
        })
    }

    /// One step for each key, ascending by key.
    fn runs(&self, inputs: &mut Inputs) -> Result<Runs, Diagnostic> {
        let mut keyed: Vec<Step> = Vec::with_capacity(self.cells.len());
        for (cell, values) in (0..).zip(self.cells.iter()) {
            let key = inputs.key(values)?;
            keyed.push(Step { cell, key });
        }
        keyed.sort_unstable_by_key(|step| (step.key, step.cell));
        let mut runs = Runs {
            keys: Vec::with_capacity(keyed.len()),
            cells: Vec::with_capacity(keyed.len()),
            of_cell: vec![NONE; keyed.len()],
        };
        for Step { cell, key } in keyed {
            if runs.keys.last() != Some(&key) {
                runs.keys.push(key);
                runs.cells.push(cell);
            }
            runs.of_cell[cell as usize] = runs.keys.len() as u32 - 1;
        }
        Ok(runs)
    }
}

/// Parsers and their options as they stand in keys.
fn parsers_text(parsers: &[ParserDecl]) -> String {
    let text = |parser: &ParserDecl| {
        let options = parser.options.iter();
        let options = options.map(|(name, value)| format!(" {}={value}", name.value));
        parser.kind.value.clone() + &options.collect::<String>()
    };
    parsers.iter().map(text).collect::<Vec<_>>().join("; ")
}

/// All texts of a set-up.
fn words(setup: &Setup) -> impl Iterator<Item = &Template> {
    let commands = setup.run.iter().chain(&setup.service);
    let all = commands.chain(&setup.ready).chain(&setup.undo);
    all.flat_map(|argv| &argv.words)
}

fn mentions(setup: &Setup, wanted: &str) -> bool {
    words(setup).any(|word| word.mentions.iter().any(|mention| mention == wanted))
}
