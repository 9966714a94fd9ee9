//! What a step's commands are once every name stands for something: folders, programs, values.

use std::time::Duration;

use super::dag::Plan;
use super::key::render;
use super::scope::Scope;
use super::steps::Subject;
use crate::base::diag::Diagnostic;
use crate::config::matrix::{Argv, Monitor, SummaryRule};
use crate::config::template::{Context, Template};

/// Where steps of one machine live.
#[derive(Clone, Debug)]
pub struct Places {
    /// The folder under which each step has its own.
    pub work: String,
    /// The folder that has a folder for each set of programs that are not built.
    pub installed: String,
    /// The folder that has a folder for each artifact.
    pub artifacts: String,
}

impl Places {
    /// The folder in which a slot of a machine measures: each measurement finds it empty.
    pub fn run_dir(&self, slot: usize) -> String {
        format!("{}/run-{slot}", self.work)
    }
}

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
        self.argv(&self.matrix.run.command, cell, &context)
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

    /// The parser's name for each declared metric in a cell, in the order of the file.
    pub fn metric_names(&self, cell: u32) -> Result<Vec<String>, Diagnostic> {
        let context = Context::default();
        let metrics = self.matrix.metrics.iter();
        metrics
            .map(|metric| self.text(&metric.from, cell, &context))
            .collect()
    }

    /// The commands of a build step. `jobs`: processors of the machine.
    pub fn build_commands(
        &self,
        build: u32,
        src: &str,
        dir: &str,
        jobs: usize,
    ) -> Result<Vec<Words>, Diagnostic> {
        let cell = self.steps.builds.steps[build as usize].cell;
        let mut context = Context::default();
        context.set("src", src);
        context.set("dir", dir);
        context.set("jobs", jobs);
        let commands = self.matrix.build.iter().flat_map(|build| &build.run);
        commands
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
        set_seconds(&mut context, self.seconds);
        for (setup, step) in self.setups_of(cell) {
            let name = &self.matrix.setups[setup].name.value;
            context.set_field(name, "dir", self.setup_dir(setup, step, places));
        }
        context
    }

    fn argv(&self, argv: &Argv, cell: u32, context: &Context) -> Result<Words, Diagnostic> {
        argv.words
            .iter()
            .map(|word| self.text(word, cell, context))
            .collect()
    }

    fn text(
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
