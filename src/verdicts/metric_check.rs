//! Metrics that take a name which the parser never gave: what is stored has others.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::diag::{Diagnostic, suggest};
use crate::plan::dag::Plan;
use crate::resolve::samples::Samples;

/// Run steps that are looked at.
const RUNS_MAX: usize = 1000;

/// A line about each metric of which no measured cell has a sample, though there are samples.
pub fn unmatched(plan: &Plan, samples: &Samples) -> Result<Vec<String>, Diagnostic> {
    let mut given: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for (run, name, _) in samples.iter() {
        if given.len() == RUNS_MAX && !given.contains_key(&run) {
            break;
        }
        given.entry(run).or_default().insert(name);
    }
    let metrics = &plan.matrix.metrics;
    // What each metric was looked for as, in the first cell that has it not; None where one has it.
    let mut wanted: Vec<Option<(String, &BTreeSet<&str>)>> = vec![None; metrics.len()];
    let mut is_found = vec![false; metrics.len()];
    for (run, given) in &given {
        let names = plan.metric_names(plan.steps.runs.cells[*run as usize])?;
        let names = names.into_iter().enumerate();
        for (metric, name) in names.filter(|(_, name)| !name.is_empty()) {
            is_found[metric] |= given.contains(name.as_str());
            wanted[metric].get_or_insert((name, given));
        }
    }
    let mut lines = Vec::new();
    for ((metric, wanted), is_found) in metrics.iter().zip(wanted).zip(is_found) {
        if let Some((name, given)) = wanted.filter(|_| !is_found && !metric.optional) {
            lines.push(format!(
                "metric `{}` is taken from `{name}`, which no measurement gave; {}",
                metric.name,
                suggest(&name, given.iter().copied())
            ));
        }
    }
    Ok(lines)
}
