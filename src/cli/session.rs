//! The command line of a session: what is selected, the settings, signals.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Common;
use super::load::Loaded;
use super::show::Stop;
use crate::base::units::{exact_duration, parse_duration};
use crate::edge::store::Store;
use crate::plan::dag::Plan;
use crate::resolve::lookup;
use crate::resolve::planner::PlanError;
use crate::resolve::prepare::Machines;
use crate::resolve::selection::{Chosen, SelectionOptions, choose};
use crate::run::command::now_ms;
use crate::run::execute::RunError;
use crate::run::hooks::Hooks;
use crate::run::session::{SessionError, SessionSettings, writer_thread};
use clap::Args;

/// What is measured beside what is missing, or instead of it.
#[derive(Clone, Debug, Default, Args)]
pub struct SelectionArgs {
    /// Measure again whatever is stored; new rounds are added to those that there are
    #[arg(long)]
    pub fresh: bool,
    /// Only what failed last time: measurements, and builds, which are not tried again otherwise
    #[arg(long)]
    pub failed: bool,
    /// Measure again what is older than this, such as `30d`, instead of the matrix's `max_age`
    #[arg(long, value_name = "AGE", value_parser = duration)]
    pub max_age: Option<Duration>,
    /// Stop after this time, such as `2h`: what was never measured first, then what is too old or not
    /// settled, then the rest
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,
    /// Where anything is to be measured, all is: both sides in one session.
    #[arg(skip)]
    pub side_by_side: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "a duration such as `2h30m` or `30d`".to_owned())
}

impl SelectionArgs {
    pub fn options(&self) -> SelectionOptions {
        SelectionOptions {
            fresh: self.fresh,
            failed: self.failed,
            max_age: self.max_age,
            budget: self.budget,
        }
    }

    /// The options that choose the same once more.
    pub fn words(&self) -> Vec<String> {
        let flags = [("--fresh", self.fresh), ("--failed", self.failed)];
        let flags = flags.into_iter().filter(|(_, given)| *given);
        let times = [("--max-age", self.max_age), ("--budget", self.budget)];
        let times = times
            .into_iter()
            .filter_map(|(name, time)| Some([name.to_owned(), exact_duration(time?)]));
        let flags = flags.map(|(name, _)| name.to_owned());
        flags.chain(times.flatten()).collect()
    }

    /// What of a plan is to be done, on the machines of these names or on all.
    pub fn choose(
        &self,
        plan: &Plan,
        loaded: &Loaded,
        machines: &Machines,
        store: Option<&Store>,
        names: Option<&BTreeSet<String>>,
    ) -> Result<Chosen, Stop> {
        let known = lookup::known(plan, &loaded.repeat, store, &loaded.artifacts)?;
        let asked = self.options();
        Ok(choose(
            plan,
            known,
            store,
            &asked,
            machines,
            names,
            now_ms(),
        )?)
    }
}

impl From<RunError> for Stop {
    fn from(error: RunError) -> Stop {
        match error {
            RunError::Plan(PlanError::Matrix(problems)) => Stop::usage(problems),
            error => Stop::message(error.to_string()),
        }
    }
}

impl From<SessionError> for Stop {
    fn from(SessionError { machine, error }: SessionError) -> Stop {
        match machine {
            Some(machine) => Stop::from(error).on(&machine),
            None => error.into(),
        }
    }
}

/// How a session of this command line works.
pub fn settings<'a>(
    common: &'a Common,
    selection: &SelectionOptions,
    loaded: &'a Loaded,
    hooks: &'a Hooks,
) -> SessionSettings<'a> {
    let arguments: Vec<String> = std::env::args_os()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    SessionSettings {
        preset: common.preset.as_deref(),
        seed: common.seed,
        retries_builds: selection.failed,
        arguments: arguments.join(" "),
        readers: &loaded.readers,
        monitors: &loaded.monitors,
        hooks,
        profiles: &loaded.profiles,
        writer: writer_thread,
    }
}
