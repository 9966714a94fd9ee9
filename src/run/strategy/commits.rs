//! The strategy that measures one cell at the commits that a search asks for, one round at a time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::{Knowledge, Next, Strategy};
use crate::plan::dag::Plan;
use crate::resolve::lookup::machine_of;
use crate::run::dispatch::{Adjustment, RunRequest};
use crate::run::execute::{CellResult, RunError};

/// Who says which commit is measured next. Commits are places on a line.
pub trait CommitSearch {
    /// The commit to measure now; None when the search is over.
    fn next(&mut self) -> Option<usize>;

    /// Commits that stand for the same measurement: neighbours on the line, by what is known of builds now.
    fn set_alike(&mut self, a: usize, b: usize);

    /// A round came to these values of the matrix's metrics, or failed.
    fn on(&mut self, at: usize, sample: &Result<Vec<Option<f64>>, String>);

    /// The commit's build failed; `of_version`: because of what it is, not of what was around it.
    fn on_build_failure(&mut self, at: usize, of_version: bool);
}

/// Measures a line of commits in one cell.
pub struct Commits {
    search: Rc<RefCell<dyn CommitSearch>>,
    machine: String,
    /// The label of each commit's version.
    labels: Vec<String>,
    /// The commit that was asked for and has no result yet, with its round.
    pending: Option<(usize, Option<u32>)>,
    /// The plan in which alike commits were looked for.
    looked_at: Option<u32>,
    /// The next round by the key of a run step, of those that were asked for.
    rounds: BTreeMap<crate::base::key::Key, u32>,
}

impl Commits {
    /// The plans must have one cell of each version.
    pub fn new(
        search: Rc<RefCell<dyn CommitSearch>>,
        machine: String,
        labels: Vec<String>,
    ) -> Commits {
        Commits {
            search,
            machine,
            labels,
            pending: None,
            looked_at: None,
            rounds: BTreeMap::new(),
        }
    }

    fn find_alike(&mut self, known: &Knowledge) {
        if self.looked_at.replace(known.plan_number) == Some(known.plan_number) {
            return;
        }
        let runs = runs_of_labels(known.plan, &self.labels);
        let mut last: BTreeMap<u32, usize> = BTreeMap::new();
        for (at, run) in runs.into_iter().enumerate() {
            let Some(run) = run else { continue };
            if let Some(before) = last.insert(run, at) {
                self.search.borrow_mut().set_alike(before, at);
            }
        }
    }
}

/// The run step of each version, in the order of the labels.
pub fn runs_of_labels(plan: &Plan, labels: &[String]) -> Vec<Option<u32>> {
    let Some(axis) = plan.cells.axis("version") else {
        return vec![None; labels.len()];
    };
    let by_label: BTreeMap<&str, u32> = plan
        .cells
        .iter()
        .zip(&plan.steps.runs.of_cell)
        .map(|(cell, run)| (plan.cells.label(cell, axis), *run))
        .collect();
    let run = |label: &String| by_label.get(label.as_str()).copied();
    labels.iter().map(run).collect()
}

impl Strategy for Commits {
    fn next(&mut self, machine: &str, known: &Knowledge) -> Result<Next, RunError> {
        if machine != self.machine {
            return Ok(Next::Nothing);
        }
        self.find_alike(known);
        let at = match self.pending {
            Some((at, _)) => at,
            None => match self.search.borrow_mut().next() {
                Some(at) => at,
                None => return Ok(Next::Nothing),
            },
        };
        self.pending = Some((at, None));
        let label = &self.labels[at..=at];
        let Some(run) = runs_of_labels(known.plan, label)[0] else {
            return Ok(Next::Nothing);
        };
        let key = known.plan.steps.runs.keys[run as usize];
        let stored = known.site.store.borrow().finished(&[key])?;
        let first = stored.rounds(0).last().map_or(0, |last| last + 1);
        // A round that failed is not stored, and is not asked for again.
        let round = first.max(self.rounds.get(&key).copied().unwrap_or(0));
        debug_assert_eq!(machine_of(known.plan, run as usize), Some(machine));
        Ok(Next::Measure(vec![RunRequest {
            run,
            rounds: vec![round],
        }]))
    }

    fn begun(
        &mut self,
        _machine: &str,
        requests: &[RunRequest],
        known: &Knowledge,
    ) -> Result<(), RunError> {
        match (requests.first(), self.pending) {
            (Some(request), Some((at, _))) => {
                let round = request.rounds.first().copied();
                self.pending = Some((at, round));
                let key = known.plan.steps.runs.keys[request.run as usize];
                self.rounds.insert(key, round.unwrap_or(0) + 1);
            }
            (None, Some((at, _))) => {
                self.pending = None;
                let of_version = self.is_build_failure_stored(at, known)?;
                self.search.borrow_mut().on_build_failure(at, of_version);
            }
            _ => {}
        }
        Ok(())
    }

    fn on(
        &mut self,
        _machine: &str,
        result: &CellResult,
        _known: &Knowledge,
    ) -> Result<Vec<Adjustment>, RunError> {
        if let Some((at, Some(round))) = self.pending
            && round == result.round
        {
            self.pending = None;
            self.search.borrow_mut().on(at, &result.sample);
        }
        Ok(Vec::new())
    }
}

impl Commits {
    /// A failure that is stored is the version's own.
    fn is_build_failure_stored(&self, at: usize, known: &Knowledge) -> Result<bool, RunError> {
        let plan = known.plan;
        let Some(run) = runs_of_labels(plan, &self.labels[at..=at])[0] else {
            return Ok(false);
        };
        let cell = plan.steps.runs.cells[run as usize] as usize;
        let Some(build) = plan.build_of(cell) else {
            return Ok(false);
        };
        let key = plan.steps.builds.steps[build as usize].key;
        Ok(!known.site.store.borrow().failures(&[key])?.is_empty())
    }
}
