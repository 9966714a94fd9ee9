//! The rounds of a calibration: each cell is measured so many times more.

use std::collections::BTreeSet;

use crate::plan::dag::Todo;
use crate::run::execute::{Job, RunError, Stops, Tally};
use crate::run::strategy::confirm::{extra_rounds, next_round};

/// Measures `rounds` more rounds of every run step with something to do.
pub async fn measure(
    job: &Job<'_>,
    todo: &Todo,
    rounds: u32,
    stops: &Stops,
) -> Result<Tally, RunError> {
    let runs = (0..).zip(&todo.rounds);
    let runs = runs.filter(|(_, rounds)| **rounds > 0);
    let runs: BTreeSet<u32> = runs.map(|(run, _)| run).collect();
    let first = next_round(job, &runs)?;
    extra_rounds(job, &runs, (first, first + rounds), stops).await
}
