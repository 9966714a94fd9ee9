//! The rounds of a calibration: each cell is measured so many times more.

use std::collections::{BTreeMap, BTreeSet};

use super::confirm::next_round;
use super::missing::{note_use, runs_of, tell_spared};
use super::{Knowledge, Next, Strategy};
use crate::run::dispatch::RunRequest;
use crate::run::event::Event;
use crate::run::execute::RunError;

/// Measures more rounds of every run step, all of a machine from the same round on.
pub struct Calibrate {
    rounds: u32,
    /// Measurements by machine, as they were announced.
    planned: BTreeMap<String, (usize, u64)>,
    begun: BTreeSet<String>,
}

impl Calibrate {
    /// `rounds` of each run step; `planned`: cells and measurements that were announced of each machine.
    pub fn new(rounds: u32, planned: BTreeMap<String, (usize, u64)>) -> Calibrate {
        Calibrate {
            rounds,
            planned,
            begun: BTreeSet::new(),
        }
    }
}

impl Strategy for Calibrate {
    fn next(&mut self, machine: &str, known: &Knowledge) -> Result<Next, RunError> {
        let runs: BTreeSet<u32> = runs_of(known.plan, machine).collect();
        if self.begun.contains(machine) || runs.is_empty() {
            return Ok(Next::Nothing);
        }
        let first = next_round(known, &runs)?;
        let rounds: Vec<u32> = (first..first + self.rounds).collect();
        let request = |run| RunRequest {
            run,
            rounds: rounds.clone(),
        };
        Ok(Next::Measure(runs.into_iter().map(request).collect()))
    }

    fn begun(
        &mut self,
        machine: &str,
        requests: &[RunRequest],
        known: &Knowledge,
    ) -> Result<(), RunError> {
        self.begun.insert(machine.to_owned());
        let mut rounds = vec![0; known.plan.steps.runs.len()];
        for request in requests {
            rounds[request.run as usize] = request.rounds.len() as u32;
        }
        let todo = known
            .plan
            .todo(rounds, &|digest| known.artifacts.has(digest));
        note_use(&todo, known)?;
        let (_, planned) = self.planned.get(machine).copied().unwrap_or_default();
        tell_spared(machine, planned, requests, known);
        if !requests.is_empty() {
            known.site.tell(Event::Again {
                cells: requests.len(),
                measurements: todo.measurements(),
            });
        }
        Ok(())
    }
}
