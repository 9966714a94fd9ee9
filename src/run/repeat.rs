//! Owns the repetition rule: whether a cell was measured often enough.
//! Does not know how a cell is measured.

use std::collections::HashMap;

use crate::config::template::Context;
use crate::judge::compare::relative_half_width;
use crate::plan::dag::Plan;

/// Values of declared metrics so far: run step → metric → values.
#[derive(Debug, Default)]
pub struct Repetition {
    values: HashMap<u32, Vec<Vec<f64>>>,
}

impl Repetition {
    /// Takes in one round's values, in the order of the matrix's metrics.
    pub fn add(&mut self, run: u32, metrics: &[f64]) {
        let values = self.values.entry(run).or_default();
        values.resize(metrics.len(), Vec::new());
        for (list, value) in values.iter_mut().zip(metrics) {
            list.push(*value);
        }
    }

    /// Whether the rule `min`, `max`, `until` is satisfied. `until` sees `n`, and as `ci95` the
    /// widest of the metrics' intervals: half its width, relative to the metric's level.
    /// The error is an expression that cannot be computed.
    pub fn is_enough(&self, plan: &Plan, run: u32) -> Result<bool, String> {
        let none = Vec::new();
        let values = self.values.get(&run).unwrap_or(&none);
        let n = values.first().map_or(0, Vec::len) as u32;
        let repeat = plan.repeat;
        let Some(until) = &repeat.until else {
            return Ok(n >= repeat.max);
        };
        if n < repeat.min || n >= repeat.max {
            return Ok(n >= repeat.max);
        }
        let widths = values
            .iter()
            .map(|list| relative_half_width(list).unwrap_or(f64::INFINITY));
        let mut context = Context::default();
        context.set("ci95", widths.fold(0.0, f64::max));
        context.set("n", n);
        plan.matrix.engine.test(until, &context)
    }
}
