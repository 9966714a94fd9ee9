//! The declared matrix: what a matrix file says, with the place of each thing.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::hook::HookDecl;
use super::night::{MailDecl, NightlyDecl};
use super::ssh::SshTarget;
use super::template::{Engine, Expr, Template};
use super::value::AxisValue;
use crate::base::diag::{At, Span};
use crate::base::pattern::Pattern;
use crate::base::sample::Better;

/// Relative spread of the samples of a `null` machine that declares none.
pub const NULL_NOISE: f64 = 0.01;
/// Axes of a matrix, `machine` and `version` included.
pub const AXES_MAX: usize = 60;
/// Values of one axis.
pub const VALUES_MAX: usize = 60_000;
/// Set-ups, metrics, compares, presets, rules: each list of a file.
pub const LIST_MAX: usize = 1_000;
/// Repetitions of one cell.
pub const REPEAT_MAX: u64 = 10_000;
/// Runs of a command before it is measured.
pub const WARMUP_MAX: u64 = 1_000;
/// Most measurements or builds at the same time on one machine.
pub const SLOTS_MAX: u64 = 64;
/// The label of the version when no `--version` is given.
pub const INSTALLED: &str = "installed";

/// A matrix file, imports merged. Presets are applied by the planner.
#[derive(Debug)]
pub struct Matrix {
    pub name: String,
    pub about: String,
    /// The preset that is used when none is asked for.
    pub preset: Option<At<String>>,
    pub subject: SubjectDecl,
    /// Which cells a part of the sources can affect; what no rule names can affect all.
    pub affects: Vec<Affects>,
    pub build: Option<Build>,
    pub requires: Requires,
    /// In the order of the file. Never empty: without `[machines]` there is `local`.
    pub machines: Vec<MachineDecl>,
    /// In the order of the file; `machine` and `version` come first where the file has none.
    pub axes: Vec<Axis>,
    /// In an order in which each needs only earlier ones.
    pub derived: Vec<DerivedAxis>,
    pub excludes: Vec<Exclude>,
    pub includes: Vec<Include>,
    pub presets: Vec<Preset>,
    pub setups: Vec<Setup>,
    pub run: Run,
    pub metrics: Vec<MetricDecl>,
    pub monitors: Vec<Monitor>,
    /// In the order of the file.
    pub hooks: Vec<HookDecl>,
    pub nightly: NightlyDecl,
    /// None: nobody is mailed.
    pub mail: Option<MailDecl>,
    pub compares: Vec<Compare>,
    /// Environment variables of every command.
    pub env: Vec<(String, Template)>,
    /// What `{{ here }}` stands for: the absolute path of the folder that the file is in.
    pub here: String,
    /// Compiles and runs the templates above.
    pub engine: Engine,
}

impl Matrix {
    pub fn axis(&self, name: &str) -> Option<usize> {
        self.axes.iter().position(|axis| axis.name == name)
    }

    pub fn machine(&self, name: &str) -> Option<&MachineDecl> {
        self.machines.iter().find(|machine| machine.name == name)
    }

    /// Measures on these machines only. One that is not declared yet is added; of one that is, what it is is kept, but
    /// not where.
    pub fn place_machines(&mut self, places: &[MachinePlace]) {
        for place in places {
            let (via, ssh) = match &place.target {
                Some(target) => (Via::Ssh, Some(target.clone())),
                None => (Via::Local, None),
            };
            let declared = self.machines.iter_mut().find(|it| it.name == place.name);
            match declared {
                Some(machine) => (machine.via, machine.ssh) = (via, ssh),
                None => self.machines.push(MachineDecl {
                    via,
                    ssh,
                    ..MachineDecl::local(&place.name)
                }),
            }
        }
        let Some(axis) = self.axes.iter_mut().find(|axis| axis.name == "machine") else {
            return;
        };
        let values = places.iter();
        let values: Vec<At<AxisValue>> = values
            .map(|place| At::new(AxisValue::text(&place.name), axis.span))
            .collect();
        if !values.is_empty() {
            axis.values = values;
            let is_placed = |machine: &MachineDecl| places.iter().any(|it| it.name == machine.name);
            self.machines.retain(is_placed);
            self.includes.retain(|include| {
                include
                    .values
                    .iter()
                    .all(|(name, _)| name.value != "machine")
            });
            for preset in &mut self.presets {
                preset.axes.retain(|(name, _)| name.value != "machine");
            }
        }
    }
}

/// Where a machine is, said beside the matrix file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachinePlace {
    pub name: String,
    /// None: the machine that `matrix` runs on.
    pub target: Option<SshTarget>,
}

/// As it is parsed.
impl fmt::Display for MachinePlace {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match &self.target {
            Some(target) => write!(f, "{}={target}", self.name),
            None => write!(f, "{}=local", self.name),
        }
    }
}

impl MachinePlace {
    /// Reads `NAME=ssh://[user@]host[:port]` or `NAME=local`. Err says what is wrong.
    pub fn parse(text: &str) -> Result<MachinePlace, String> {
        let (name, place) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| "write `NAME=ssh://user@host` or `NAME=local`".to_owned())?;
        let target = match place {
            "local" => None,
            place => Some(SshTarget::parse(place)?),
        };
        Ok(MachinePlace {
            name: name.to_owned(),
            target,
        })
    }
}

/// The software under test.
#[derive(Clone, Debug, Default)]
pub struct SubjectDecl {
    /// Programs of the machine itself: the version `installed`.
    pub installed: Vec<At<String>>,
    pub git: Option<GitSubject>,
}

/// Where versions are built from.
#[derive(Clone, Debug)]
pub struct GitSubject {
    pub repo: At<String>,
    /// What can change a result; empty means everything.
    pub paths: Vec<Pattern>,
    /// Submodules that are checked out, by path, each with the address or path of its repository. Those under
    /// [`GitSubject::paths`] are too, from where the commit itself says.
    pub submodules: BTreeMap<String, At<String>>,
}

/// A part of the sources that can change only some cells.
#[derive(Clone, Debug)]
pub struct Affects {
    pub paths: Vec<Pattern>,
    pub when: Expr,
}

/// How a version is built.
#[derive(Clone, Debug)]
pub struct Build {
    /// The recipe of commits that no variant is for.
    pub run: Vec<Argv>,
    /// Recipes of commits: the first one that is for a commit counts.
    pub variants: Vec<BuildVariant>,
    /// Paths below the build directory that are kept.
    pub artifacts: Vec<At<String>>,
    /// Regular expressions of what differs from build to build and changes no result, such as a
    /// version string: left out when artifacts are compared.
    pub volatile: Vec<At<String>>,
    pub timeout: Duration,
    /// Each build begins in an empty directory.
    pub clean: bool,
    pub span: Span,
}

/// A recipe of some commits. All that is declared must hold.
#[derive(Clone, Debug)]
pub struct BuildVariant {
    /// For this commit and those that contain it.
    pub since: Option<At<String>>,
    /// For this commit and those that do not contain it.
    pub until: Option<At<String>>,
    /// Of the files of the commit: `has('meson.build')`.
    pub when: Option<Expr>,
    pub run: Vec<Argv>,
    pub span: Span,
}

impl Build {
    /// The recipe of a variant, by number; None: where no variant is for a commit.
    pub fn recipe(&self, variant: Option<usize>) -> &[Argv] {
        match variant {
            Some(variant) => self.variants.get(variant).map_or(&[], |it| &it.run),
            None => &self.run,
        }
    }

    /// The commands of all recipes.
    pub fn commands(&self) -> impl Iterator<Item = &Argv> {
        let variants = self.variants.iter().flat_map(|variant| &variant.run);
        self.run.iter().chain(variants)
    }
}

/// What a machine must have before anything starts.
#[derive(Clone, Debug, Default)]
pub struct Requires {
    pub commands: Vec<At<String>>,
    /// Package manager → packages.
    pub packages: BTreeMap<String, Vec<String>>,
}

/// How steps reach a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// The machine that `matrix` runs on.
    Local,
    /// Another machine, by the user's own `ssh`.
    Ssh,
    /// Nothing runs; samples are generated from a seed.
    Null,
}

#[derive(Clone, Debug)]
pub struct MachineDecl {
    pub name: String,
    pub via: Via,
    /// Of a machine that is reached over ssh.
    pub ssh: Option<SshTarget>,
    /// The name of a host profile.
    pub profile: Option<At<String>>,
    /// Facts for expressions: `facts.disk == 'nvme'`.
    pub facts: BTreeMap<String, String>,
    /// Relative spread (one sigma) of the samples of a `null` machine.
    pub noise: f64,
    /// What the samples of a version are multiplied by on a `null` machine, by its label.
    pub effects: BTreeMap<String, f64>,
    /// How long a measurement waits for the machine to be quiet; zero measures at once.
    pub quiet_wait: Duration,
    /// Measurements at the same time.
    pub slots: u32,
    /// Builds at the same time.
    pub build_slots: u32,
    pub span: Option<Span>,
}

impl MachineDecl {
    /// The machine that `matrix` runs on, with nothing special about it.
    pub fn local(name: &str) -> MachineDecl {
        MachineDecl {
            name: name.to_owned(),
            via: Via::Local,
            ssh: None,
            profile: None,
            facts: BTreeMap::new(),
            noise: NULL_NOISE,
            effects: BTreeMap::new(),
            quiet_wait: Duration::ZERO,
            slots: 1,
            build_slots: 1,
            span: None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Axis {
    pub name: String,
    pub values: Vec<At<AxisValue>>,
    /// Written in the file; otherwise it is left out of cell names while it has one value.
    pub declared: bool,
    pub span: Span,
}

/// An axis whose value follows from others.
#[derive(Clone, Debug)]
pub struct DerivedAxis {
    pub name: At<String>,
    pub expr: Expr,
}

/// Cells of the product that are left out.
#[derive(Clone, Debug)]
pub struct Exclude {
    pub when: Expr,
    pub reason: Option<String>,
}

/// Cells beside the product: the named axes take the given values, the others all of theirs.
/// Added after all `exclude` rules, which do not touch them.
#[derive(Clone, Debug)]
pub struct Include {
    pub values: Vec<(At<String>, Vec<At<AxisValue>>)>,
    pub reason: Option<String>,
    pub span: Span,
}

/// A named way to run a matrix.
#[derive(Clone, Debug)]
pub struct Preset {
    pub name: At<String>,
    /// Axes that take other values than declared.
    pub axes: Vec<(At<String>, Vec<At<AxisValue>>)>,
    pub repeat: Option<Repeat>,
    pub seconds: Option<f64>,
    pub max_age: Option<Duration>,
    pub sampling: Sampling,
}

/// Which cells of the product are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sampling {
    #[default]
    Product,
    /// A covering array: each pair of values of two axes is in at least one cell.
    Pairwise,
}

/// How often a cell is measured.
#[derive(Clone, Debug)]
pub struct Repeat {
    pub min: u32,
    pub max: u32,
    /// Enough, between `min` and `max`: an expression over `ci95` (relative half width) and `n`.
    pub until: Option<Expr>,
}

impl Matrix {
    /// How often cells are measured with the preset of this name, or with the matrix's own.
    pub fn repeat(&self, preset: Option<&str>) -> &Repeat {
        let own = self.preset.as_ref().map(|preset| preset.value.as_str());
        let name = preset.or(own);
        let mut presets = self.presets.iter();
        let preset = presets.find(|preset| Some(preset.name.value.as_str()) == name);
        let repeat = preset.and_then(|preset| preset.repeat.as_ref());
        repeat.unwrap_or(&self.run.repeat)
    }
}

impl Repeat {
    pub fn times(n: u32) -> Self {
        Repeat {
            min: n,
            max: n,
            until: None,
        }
    }
}

/// A command: words, each a template, run without a shell.
#[derive(Clone, Debug)]
pub struct Argv {
    pub words: Vec<Template>,
    pub span: Span,
}

/// How long a set-up lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, PartialOrd, Ord)]
pub enum SetupScope {
    /// Until the last cell that needs it is done.
    #[default]
    Session,
    /// Made anew in each round.
    Round,
    /// Made anew for each run step.
    Run,
}

/// Something that must be there while a run step measures.
#[derive(Clone, Debug)]
pub struct Setup {
    pub name: At<String>,
    /// Commands, one after the other, before the service starts.
    pub run: Vec<Argv>,
    /// A command that stays while cells are measured.
    pub service: Option<Argv>,
    /// A probe that succeeds once the service really answers.
    pub ready: Option<Argv>,
    /// Commands that undo `run`, in the order given, after the service has ended.
    pub undo: Vec<Argv>,
    pub scope: SetupScope,
    /// For each command, and for the service to become ready.
    pub timeout: Duration,
    pub span: Span,
}

/// How cells are measured.
#[derive(Clone, Debug)]
pub struct Run {
    /// Each `[[run]]`; a cell has the first whose `when` holds. Never empty.
    pub cases: Vec<RunCase>,
    /// The longest of theirs.
    pub timeout: Duration,
    pub repeat: Repeat,
    /// What `{{ seconds }}` stands for: how long one measurement lasts.
    pub seconds: f64,
    /// Samples that are older are measured again.
    pub max_age: Option<Duration>,
    pub confirm: Confirm,
    pub span: Span,
}

impl Run {
    /// All that is run to measure cells.
    pub fn commands(&self) -> impl Iterator<Item = &Argv> {
        let cases = self.cases.iter();
        cases.flat_map(|case| case.prepare.iter().chain([&case.command]))
    }
}

/// One way of measuring: a command and how its output is read.
#[derive(Clone, Debug)]
pub struct RunCase {
    pub name: Option<String>,
    /// The cells that it is for; all that no earlier one is for where it is not said.
    pub when: Option<Expr>,
    pub command: Argv,
    /// Never empty.
    pub parsers: Vec<ParserDecl>,
    /// Commands before each measurement and each warm-up, in the same folder.
    pub prepare: Vec<Argv>,
    /// How often the command is run before it is measured.
    pub warmup: u32,
    pub timeout: Duration,
    pub fail: FailRules,
    /// What it prints on standard output is read and dropped.
    pub is_silent: bool,
    pub span: Span,
}

/// What tells that a program has failed, whatever its exit status.
#[derive(Clone, Debug, Default)]
pub struct FailRules {
    /// A regular expression of what it prints.
    pub pattern: Option<At<String>>,
    /// An expression over its readings.
    pub when: Option<Expr>,
}

/// How findings are measured again before they are reported as confirmed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confirm {
    /// Fresh rounds of a finding at the most; 0: none is.
    pub rounds: u32,
    /// The measurements spent on it at the most, as a share of those already made.
    pub max: f64,
}

impl Default for Confirm {
    fn default() -> Self {
        Confirm {
            rounds: 32,
            max: 0.10,
        }
    }
}

/// A parser by name with its options; `edge/parse` knows which there are.
#[derive(Clone, Debug)]
pub struct ParserDecl {
    pub kind: At<String>,
    pub options: Vec<(At<String>, String)>,
}

/// A metric of ours and the parser's name for it.
#[derive(Clone, Debug)]
pub struct MetricDecl {
    pub name: String,
    pub from: Template,
    pub better: Option<Better>,
    pub unit: Option<String>,
    /// The smallest change that matters, as a fraction; before that of `[[compare]]`.
    pub min_effect: Option<f64>,
    /// The cells that have it; all where it is not said.
    pub when: Option<Expr>,
    /// An output without it costs this reading, not the others.
    pub optional: bool,
    /// The same version always gives the same value: one difference is a change.
    pub deterministic: bool,
    pub span: Span,
}

/// A side measurement during a run.
#[derive(Clone, Debug)]
pub enum Monitor {
    /// A program that prints until it is ended.
    Command { command: Argv, parser: ParserDecl },
    /// A file of numbers that have names, read before, after, and `every` so often meanwhile.
    File {
        path: Template,
        every: Duration,
        summary: SummaryRule,
    },
}

/// What is made of the readings of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum SummaryRule {
    /// Of a counter: by how much it grew, per second.
    Rate,
    /// Of a level: the mean.
    Mean,
}

/// Cells that differ only in one axis are compared with each other.
#[derive(Clone, Debug)]
pub struct Compare {
    pub axis: At<String>,
    /// The value that the others are compared with; the first one of the axis by default.
    pub baseline: Option<At<AxisValue>>,
    /// The smallest change that matters, as a fraction.
    pub min_effect: f64,
    /// A regression makes the program's exit status 1.
    pub gate: bool,
    /// Findings are measured again.
    pub confirm: bool,
    pub span: Span,
}
