//! What is measured next: each strategy is asked whenever a machine idles, and told each result.

pub mod bisect;
pub mod calibrate;
pub mod commits;
pub mod confirm;
pub mod missing;

use std::collections::BTreeSet;

use crate::config::matrix::Repeat;
use crate::edge::artifact::Artifacts;
use crate::edge::store::StoreError;
use crate::plan::dag::Plan;
use crate::resolve::versions::{Versions, World};
use crate::run::dispatch::{Adjustment, RunRequest};
use crate::run::execute::{CellResult, RunError, Site};

/// A rule that says what is measured next. One is shared by all machines of a session.
pub trait Strategy {
    /// What a machine that idles measures next. Where builds are needed for it, they are made first and the strategy is
    /// asked again: what they gave may be stored already.
    fn next(&mut self, machine: &str, known: &Knowledge) -> Result<Next, RunError>;

    /// The rounds that a machine begins with now: what `next` said last, but for cells without a build.
    fn begun(
        &mut self,
        _machine: &str,
        _requests: &[RunRequest],
        _known: &Knowledge,
    ) -> Result<(), RunError> {
        Ok(())
    }

    /// Told of each result of what it has asked for. The answer takes effect before the machine's next step.
    fn on(
        &mut self,
        _machine: &str,
        _result: &CellResult,
        _known: &Knowledge,
    ) -> Result<Vec<Adjustment>, RunError> {
        Ok(Vec::new())
    }

    /// Whether cells that the time did not suffice for count as left out.
    fn is_required(&self) -> bool {
        false
    }
}

/// What a strategy wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Rounds of run steps of this machine, at least one.
    Measure(Vec<RunRequest>),
    /// Versions, by label, that the plan of the strategy lacks: it gets them, and the strategy is asked again.
    Versions(Vec<String>),
    /// It depends on what other machines are at: it is asked again when one of them idles.
    Wait,
    /// Nothing more on this machine, as things are.
    Nothing,
}

/// What strategies know when they are asked.
pub struct Knowledge<'k> {
    pub site: &'k Site<'k>,
    pub versions: &'k Versions,
    /// The plan that run steps are numbers of.
    pub plan: &'k Plan<'k>,
    /// Tells plans apart: run steps of another one have other numbers.
    pub plan_number: u32,
    pub artifacts: &'k Artifacts,
    /// How often the matrix wants its cells to be measured.
    pub repeat: &'k Repeat,
    /// Machines that take part.
    pub machines: &'k BTreeSet<String>,
    /// Others of them are still at work: results are to come.
    pub others_at_work: bool,
    /// Something went wrong on one of them: not all that was wanted is measured.
    pub is_flawed: bool,
}

impl Knowledge<'_> {
    /// The digests that plans are made from, as they stand now.
    pub fn world(&self) -> Result<World<'_>, StoreError> {
        Ok(World {
            machines: self.site.machines,
            versions: self.versions,
            built: self.site.store.borrow().artifacts()?,
            artifacts: self.artifacts,
        })
    }
}
