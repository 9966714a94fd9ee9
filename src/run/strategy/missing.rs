//! The strategy that measures what a plan lacks: rounds that are missing, too old, forced, or not settled yet.

use std::collections::{BTreeMap, BTreeSet};

use super::{Knowledge, Next, Strategy, confirm};
use crate::plan::dag::{Plan, Todo};
use crate::resolve::inputs;
use crate::resolve::lookup::{self, machine_of};
use crate::resolve::repeat::Repetition;
use crate::resolve::selection::{Chosen, Out, SelectionOptions, choose_again};
use crate::run::command::now_ms;
use crate::run::dispatch::{Adjustment, RunRequest};
use crate::run::event::Event;
use crate::run::execute::{CellResult, RunError};

/// Measures each machine's missing rounds, once.
pub struct Missing {
    selection: SelectionOptions,
    out: Out,
    /// Cells and measurements by machine, as they were announced.
    planned: BTreeMap<String, (usize, u64)>,
    begun: BTreeSet<String>,
    /// What was chosen last, by machine.
    chosen: BTreeMap<String, Chosen>,
}

impl Missing {
    /// `out`: cells that are not measured; `planned`: what was announced of each machine.
    pub fn new(
        selection: SelectionOptions,
        out: Out,
        planned: BTreeMap<String, (usize, u64)>,
    ) -> Missing {
        Missing {
            selection,
            out,
            planned,
            begun: BTreeSet::new(),
            chosen: BTreeMap::new(),
        }
    }
}

impl Strategy for Missing {
    fn next(&mut self, machine: &str, known: &Knowledge) -> Result<Next, RunError> {
        if self.begun.contains(machine) {
            return Ok(Next::Nothing);
        }
        let plan = known.plan;
        let store = known.site.store.borrow();
        let stored = lookup::known(plan, known.repeat, Some(&store), known.artifacts)?;
        let (machines, out) = (known.site.machines, &self.out);
        let chosen = choose_again(
            plan,
            stored,
            &store,
            &self.selection,
            machines,
            out,
            now_ms(),
        )?;
        let due = runs_of(plan, machine).filter(|run| chosen.known.todo.rounds[*run as usize] > 0);
        let requests: Vec<RunRequest> = due
            .map(|run| RunRequest {
                run,
                rounds: chosen.missing(run as usize),
            })
            .collect();
        drop(store);
        self.chosen.insert(machine.to_owned(), chosen);
        if requests.is_empty() {
            self.begun(machine, &[], known)?;
            return Ok(Next::Nothing);
        }
        Ok(Next::Measure(requests))
    }

    fn begun(
        &mut self,
        machine: &str,
        requests: &[RunRequest],
        known: &Knowledge,
    ) -> Result<(), RunError> {
        self.begun.insert(machine.to_owned());
        let Some(chosen) = self.chosen.get(machine) else {
            return Ok(());
        };
        let todo = &chosen.known.todo;
        note_use(todo, known)?;
        let (_, planned) = self.planned.get(machine).copied().unwrap_or_default();
        tell_spared(machine, planned, requests, known);
        let is_new = |run: usize| chosen.again.contains_key(&run) && todo.rounds[run] > 0;
        let store = known.site.store.borrow();
        confirm::forget(known.plan, machine, &is_new, &store)?;
        Ok(())
    }

    fn on(
        &mut self,
        machine: &str,
        result: &CellResult,
        known: &Knowledge,
    ) -> Result<Vec<Adjustment>, RunError> {
        let CellResult { run, round, sample } = result;
        let (Some(chosen), Ok(values)) = (self.chosen.get_mut(machine), sample) else {
            return Ok(Vec::new());
        };
        // Where the number of rounds is fixed nobody asks for the samples.
        if known.repeat.until.is_none() {
            return Ok(Vec::new());
        }
        let (run, round) = (*run, *round);
        let repetition: &mut Repetition = &mut chosen.known.repetition;
        repetition.add(run, known.site.session, round, values);
        let is_enough = repetition.is_enough(known.plan, run);
        if is_enough.map_err(RunError::Template)? {
            return Ok(vec![Adjustment::Enough { run }]);
        }
        if repetition.count(run) >= known.repeat.min as usize {
            let cell = known.plan.cells.name(known.plan.cell_of(run as usize));
            known.site.tell(Event::Repeats { cell });
        }
        Ok(vec![Adjustment::OneMore { run, round }])
    }

    fn is_required(&self) -> bool {
        true
    }
}

/// The run steps of a machine.
pub(super) fn runs_of<'p>(plan: &'p Plan<'p>, machine: &'p str) -> impl Iterator<Item = u32> + 'p {
    let runs = 0..plan.steps.runs.len() as u32;
    runs.filter(move |run| machine_of(plan, *run as usize) == Some(machine))
}

/// Keeps what the steps that are due depend on, and which artifacts the plan uses.
pub(super) fn note_use(todo: &Todo, known: &Knowledge) -> Result<(), RunError> {
    let (plan, world) = (known.plan, known.world()?);
    let store = known.site.store.borrow();
    let recorded = inputs::record(plan, todo, &world, &store, known.site.session);
    recorded.map_err(|problem| RunError::Template(problem.message))??;
    let artifacts = plan.steps.subjects.artifacts();
    store.put_artifacts_in_use(&plan.matrix.name, &artifacts)?;
    Ok(())
}

/// Says how many of the measurements that were announced are not needed.
pub(super) fn tell_spared(machine: &str, planned: u64, requests: &[RunRequest], known: &Knowledge) {
    let asked: u64 = requests.iter().map(|it| it.rounds.len() as u64).sum();
    if asked < planned {
        known.site.tell(Event::Spared {
            machine: machine.to_owned(),
            measurements: planned - asked,
        });
    }
}
