//! What a step's commands are once every name stands for something: folders, programs, values.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::dag::Plan;
use super::key::render;
use super::projection::{Memo, Projection};
use super::scope::Scope;
use super::steps::Subject;
use crate::base::diag::Diagnostic;
use crate::config::matrix::{Argv, MetricDecl, Monitor, SLOTS_MAX, SummaryRule};
use crate::config::template::{Context, Template, words_of};

/// Where steps of one machine live.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The folder under which each step has its own.
    pub work: String,
    /// The folder that has a folder for each set of programs that are not built.
    pub installed: String,
    /// The folder that has a folder for each artifact.
    pub artifacts: String,
    /// Processors of the machine.
    pub cpus: usize,
    /// TCP ports on which somebody listens, ascending.
    pub used_ports: Vec<u16>,
    /// Which commits the versions are, by label.
    pub commits: BTreeMap<String, CommitName>,
}

/// What recipes and commands can say of a commit. It is a name, no input: commits with the same sources share
/// what was built of one of them.
#[derive(Clone, Debug, Default)]
pub struct CommitName {
    /// The whole hash.
    pub id: String,
    /// The committer's, as `2026-01-31T12:00:00Z`.
    pub date: String,
}

impl CommitName {
    fn put_into(&self, context: &mut Context) {
        context.set("commit", self.id.as_str());
        context.set("commit_date", self.date.as_str());
    }
}

/// Where and of what a build is made.
pub struct BuildPlace<'a> {
    pub src: &'a str,
    pub dir: &'a str,
    /// Processors that it may use.
    pub jobs: usize,
    pub commit: &'a CommitName,
    /// The `[[build.variant]]` of the commit, by number.
    pub variant: Option<usize>,
}

/// Where `{{ free_port }}` looks: above the ports that Linux hands out by itself.
const PORTS: std::ops::RangeInclusive<u16> = 61_000..=65_500;

impl Places {
    /// A port that nobody used when the machine was looked at; another one for each number.
    fn free_port(&self, number: usize) -> u16 {
        let free = PORTS.filter(|port| self.used_ports.binary_search(port).is_err());
        let count = free.clone().count().max(1);
        free.clone().nth(number % count).unwrap_or(*PORTS.start())
    }

    /// The folder in which a slot of a machine measures: each measurement finds it empty.
    pub fn run_dir(&self, slot: usize) -> String {
        format!("{}/run-{slot}", self.work)
    }
}

/// Ports kept for the measurements themselves, one a slot.
const RUN_PORTS: usize = SLOTS_MAX as usize;

/// A command ready to run.
pub type Words = Vec<String>;

/// A monitor ready to watch.
pub enum MonitorWords {
    Command(Words),
    File {
        path: String,
        every: Duration,
        summary: SummaryRule,
    },
}

impl Plan<'_> {
    pub fn scope(&self) -> Scope<'_> {
        Scope {
            matrix: self.matrix,
            axes: &self.cells.axes,
        }
    }

    /// The folder of a set-up step: named after it and its key, with a number where steps that only
    /// their probes or their undoing tell apart have the same one.
    pub fn setup_dir(&self, setup: usize, step: u32, places: &Places) -> String {
        let (earlier, rest) = self.steps.setups[setup].steps.split_at(step as usize);
        let key = rest[0].key;
        let name = &self.matrix.setups[setup].name.value;
        let folder = format!("{}/{name}-{}", places.work, key.short());
        match earlier.iter().filter(|other| other.key == key).count() {
            0 => folder,
            twins => format!("{folder}-{}", twins + 1),
        }
    }

    /// What `{{ free_port }}` is in a set-up step: the set-ups of one plan each have their own.
    fn setup_port(&self, setup: usize, step: u32, places: &Places) -> u16 {
        let before = self.steps.setups[..setup].iter();
        let before: usize = before.map(|shared| shared.steps.len()).sum();
        places.free_port(RUN_PORTS + before + step as usize)
    }

    /// The commands of a set-up step.
    pub fn setup_commands(
        &self,
        setup: usize,
        step: u32,
        places: &Places,
    ) -> Result<SetupCommands, Diagnostic> {
        let cell = self.steps.setups[setup].steps[step as usize].cell;
        let mut context = self.base_context(cell, places);
        context.set("dir", self.setup_dir(setup, step, places));
        context.set("free_port", self.setup_port(setup, step, places));
        let declared = &self.matrix.setups[setup];
        let all = |list: &[Argv]| {
            list.iter()
                .map(|argv| self.argv(argv, cell, &context))
                .collect::<Result<Vec<Words>, Diagnostic>>()
        };
        let one = |argv: &Option<Argv>| {
            argv.as_ref()
                .map(|a| self.argv(a, cell, &context))
                .transpose()
        };
        Ok(SetupCommands {
            run: all(&declared.run)?,
            service: one(&declared.service)?,
            ready: one(&declared.ready)?,
            undo: all(&declared.undo)?,
        })
    }

    /// The measuring command of a cell in a round.
    pub fn run_command(
        &self,
        cell: u32,
        round: u32,
        seed: u64,
        slot: usize,
        places: &Places,
    ) -> Result<Words, Diagnostic> {
        let context = self.run_context(cell, round, seed, slot, places);
        let case = &self.matrix.run.cases[self.case_of(cell)?];
        self.argv(&case.command, cell, &context)
    }

    /// The commands before each measurement of a cell.
    pub fn prepare_commands(
        &self,
        cell: u32,
        round: u32,
        seed: u64,
        slot: usize,
        places: &Places,
    ) -> Result<Vec<Words>, Diagnostic> {
        let context = self.run_context(cell, round, seed, slot, places);
        let case = &self.matrix.run.cases[self.case_of(cell)?];
        let commands = case.prepare.iter();
        commands
            .map(|argv| self.argv(argv, cell, &context))
            .collect()
    }

    /// Which `[[run]]` a cell has, by number.
    pub fn case_of(&self, cell: u32) -> Result<usize, Diagnostic> {
        case_of(self.scope(), self.cells.cell(cell as usize))
    }

    /// All monitors beside it, in the order of the file.
    pub fn monitors(
        &self,
        cell: u32,
        round: u32,
        seed: u64,
        slot: usize,
        places: &Places,
    ) -> Result<Vec<MonitorWords>, Diagnostic> {
        let context = self.run_context(cell, round, seed, slot, places);
        let words = |monitor: &Monitor| match monitor {
            Monitor::Command { command, .. } => {
                let argv = self.argv(command, cell, &context)?;
                Ok(MonitorWords::Command(argv))
            }
            Monitor::File {
                path,
                every,
                summary,
            } => Ok(MonitorWords::File {
                path: self.text(path, cell, &context)?,
                every: *every,
                summary: *summary,
            }),
        };
        self.matrix.monitors.iter().map(words).collect()
    }

    fn run_context(
        &self,
        cell: u32,
        round: u32,
        seed: u64,
        slot: usize,
        places: &Places,
    ) -> Context {
        let mut context = self.base_context(cell, places);
        context.set("dir", places.run_dir(slot));
        context.set("free_port", places.free_port(slot));
        context.set("cell", self.cells.name(self.cells.cell(cell as usize)));
        context.set("round", round);
        context.set("seed", seed);
        context
    }

    /// Environment variables of the commands of a cell.
    pub fn environment(&self, cell: u32) -> Result<Vec<(String, String)>, Diagnostic> {
        let context = Context::default();
        let env = self.matrix.env.iter();
        env.map(|(name, template)| Ok((name.clone(), self.text(template, cell, &context)?)))
            .collect()
    }

    /// The parser's name for each declared metric in a cell, in the order of the file; empty where the
    /// cell does not have the metric.
    pub fn metric_names(&self, cell: u32) -> Result<Vec<String>, Diagnostic> {
        let values = self.cells.cell(cell as usize);
        let metrics = self.matrix.metrics.iter();
        metrics
            .map(|metric| self.metric_name(metric, values))
            .collect()
    }

    fn metric_name(&self, metric: &MetricDecl, cell: &[u16]) -> Result<String, Diagnostic> {
        let scope = self.scope();
        if let Some(when) = &metric.when
            && !scope.test(when, cell, &scope.axes_of(&when.mentions))?
        {
            return Ok(String::new());
        }
        let axes = scope.axes_of(&metric.from.mentions);
        render(scope, &metric.from, cell, &axes, &Context::default())
    }

    /// The units that metrics are declared in, by the parser's names for them.
    pub fn metric_units(&self) -> Result<HashMap<String, String>, Diagnostic> {
        let sizes = self.cells.sizes();
        let mut units = HashMap::new();
        for metric in &self.matrix.metrics {
            let Some(unit) = &metric.unit else { continue };
            let scope = self.scope();
            let mut axes = scope.axes_of(&metric.from.mentions);
            let when = metric
                .when
                .iter()
                .flat_map(|when| scope.axes_of(&when.mentions));
            axes.extend(when);
            let mut seen = Memo::new(Projection::new(axes, &sizes));
            for cell in self.cells.iter() {
                seen.get(cell, || {
                    units.insert(self.metric_name(metric, cell)?, unit.clone());
                    Ok::<_, Diagnostic>(())
                })?;
            }
        }
        Ok(units)
    }

    /// The commands of a build step.
    pub fn build_commands(&self, build: u32, place: &BuildPlace) -> Result<Vec<Words>, Diagnostic> {
        let cell = self.steps.builds.steps[build as usize].cell;
        let mut context = Context::default();
        context.set("src", place.src);
        context.set("dir", place.dir);
        context.set("jobs", place.jobs);
        context.set("here", self.matrix.here.as_str());
        context.set("cpus", place.jobs);
        place.commit.put_into(&mut context);
        let declared = self.matrix.build.as_ref();
        let commands = declared.map_or(&[][..], |build| build.recipe(place.variant));
        if commands.is_empty() {
            return Err(Diagnostic::error(
                "no `[[build.variant]]` is for this commit, and `[build]` has no `run`",
            ));
        }
        commands
            .iter()
            .map(|argv| self.argv(argv, cell, &context))
            .collect()
    }

    fn base_context(&self, cell: u32, places: &Places) -> Context {
        let mut context = Context::default();
        let bin = match self.subject_of(cell as usize) {
            Subject::Installed(key) => format!("{}/{}", places.installed, key.short()),
            Subject::Artifact(digest) => format!("{}/{digest}", places.artifacts),
            Subject::Unbuilt(build) => format!("{}/(build {})", places.artifacts, build.short()),
        };
        context.set("bin", bin);
        context.set("here", self.matrix.here.as_str());
        context.set("cpus", places.cpus);
        let version = self.cells.axis("version");
        let label = version.map(|axis| self.cells.label(self.cells.cell(cell as usize), axis));
        let commit = label.and_then(|label| places.commits.get(label));
        commit
            .unwrap_or(&CommitName::default())
            .put_into(&mut context);
        set_seconds(&mut context, self.seconds);
        for (setup, step) in self.setups_of(cell) {
            let name = &self.matrix.setups[setup].name.value;
            context.set_field(name, "dir", self.setup_dir(setup, step, places));
            context.set_field(name, "port", self.setup_port(setup, step, places));
        }
        context
    }

    fn argv(&self, argv: &Argv, cell: u32, context: &Context) -> Result<Words, Diagnostic> {
        let mut words = Vec::with_capacity(argv.words.len());
        for word in &argv.words {
            words.extend(words_of(self.rendered(word, cell, context)?));
        }
        match words.is_empty() {
            true => Err(Diagnostic::error("no word of this command is left")
                .at(argv.span, "here")
                .help(format!(
                    "in the cell {}",
                    self.cells.name(self.cells.cell(cell as usize))
                ))),
            false => Ok(words),
        }
    }

    fn text(
        &self,
        template: &Template,
        cell: u32,
        context: &Context,
    ) -> Result<String, Diagnostic> {
        let text = self.rendered(template, cell, context)?;
        Ok(words_of(text).join(" "))
    }

    fn rendered(
        &self,
        template: &Template,
        cell: u32,
        context: &Context,
    ) -> Result<String, Diagnostic> {
        let scope = self.scope();
        let axes = scope.axes_of(&template.mentions);
        render(
            scope,
            template,
            self.cells.cell(cell as usize),
            &axes,
            context,
        )
    }
}

/// Which `[[run]]` a cell has: the first whose `when` holds.
pub fn case_of(scope: Scope, cell: &[u16]) -> Result<usize, Diagnostic> {
    let all: Vec<usize> = (0..cell.len()).collect();
    let run = &scope.matrix.run;
    for (index, case) in run.cases.iter().enumerate() {
        let is_for = match &case.when {
            None => true,
            Some(when) => scope.test(when, cell, &scope.axes_of(&when.mentions))?,
        };
        if is_for {
            return Ok(index);
        }
    }
    Err(Diagnostic::error("no `[[run]]` is for some of the cells")
        .at(run.span, "the first of them")
        .help(format!(
            "such as {}: exclude it, or add a `[[run]]` without `when`",
            scope.name_of(cell, &all)
        )))
}

/// A whole number of seconds is written without a point: not every program reads `1.0`.
pub fn set_seconds(context: &mut Context, seconds: f64) {
    match seconds.fract() == 0.0 {
        true => context.set("seconds", seconds as u64),
        false => context.set("seconds", seconds),
    }
}

/// A command as a person would type it into a shell.
pub fn show_words(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+=./:,@%".contains(c);
    let quoted = words
        .iter()
        .map(|word| match word.chars().all(plain) && !word.is_empty() {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        });
    quoted.collect::<Vec<_>>().join(" ")
}

/// What a set-up does, in this order, and how it is undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupCommands {
    pub run: Vec<Words>,
    pub service: Option<Words>,
    pub ready: Option<Words>,
    pub undo: Vec<Words>,
}
