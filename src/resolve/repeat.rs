//! The repetition rule: whether a cell was measured often enough.

use std::collections::HashMap;

use crate::base::sample::{Better, Sample};
use crate::config::matrix::Repeat;
use crate::config::template::Context;
use crate::judge::compare::{compare, relative_half_width};
use crate::judge::verdict::Question;
use crate::plan::dag::Plan;
use crate::plan::steps::NONE;

use crate::plan::dag::groups;

/// Samples of declared metrics so far: run step → metric → samples.
#[derive(Debug)]
pub struct Repetition {
    pub repeat: Repeat,
    samples: HashMap<u32, Vec<Vec<Sample>>>,
    /// Run step → rounds; a metric may lack some.
    rounds: HashMap<u32, usize>,
    /// Run step → the pairs of run steps that it is compared in.
    pairs: HashMap<u32, Vec<[u32; 2]>>,
}

impl Repetition {
    /// Knows what a plan compares with what, and no sample yet.
    pub fn of(plan: &Plan, repeat: &Repeat) -> Self {
        let mut pairs: HashMap<u32, Vec<[u32; 2]>> = HashMap::new();
        // Nobody asks for an interval where the number of rounds is fixed.
        let asked = plan.compares.iter().filter(|_| repeat.until.is_some());
        let run_of = |cell: u32| plan.steps.runs.of_cell[cell as usize];
        for compare in asked {
            for (baseline, candidates) in groups(plan, compare) {
                for candidate in candidates {
                    let pair = [run_of(baseline), run_of(candidate)];
                    if pair[0] != pair[1] && !pair.contains(&NONE) {
                        for run in pair {
                            pairs.entry(run).or_default().push(pair);
                        }
                    }
                }
            }
        }
        Repetition {
            repeat: repeat.clone(),
            samples: HashMap::new(),
            rounds: HashMap::new(),
            pairs,
        }
    }

    /// Takes in one round's values, in the order of the matrix's metrics; None where there is none.
    pub fn add(&mut self, run: u32, session: i64, round: u32, metrics: &[Option<f64>]) {
        let samples = self.samples.entry(run).or_default();
        samples.resize(metrics.len(), Vec::new());
        for (list, value) in samples.iter_mut().zip(metrics) {
            list.extend(value.map(|value| Sample {
                session,
                round,
                value,
            }));
        }
        *self.rounds.entry(run).or_default() += 1;
    }

    /// Only the last `n` samples of a run step count from now on.
    pub fn keep_last(&mut self, run: u32, n: usize) {
        let rounds = self.rounds.entry(run).or_default();
        let left_out = rounds.saturating_sub(n);
        *rounds -= left_out;
        for list in self.samples.entry(run).or_default() {
            list.drain(..list.len().saturating_sub(n));
        }
    }

    /// Whether the rule `min`, `max`, `until` is satisfied. `until` sees `n`, and as `ci95` the
    /// widest of the metrics' intervals, as half its width relative to the level: those of the
    /// comparisons that the cell is part of, else of the cell itself.
    /// The error is an expression that cannot be computed.
    pub fn is_enough(&self, plan: &Plan, run: u32) -> Result<bool, String> {
        let n = self.count(run) as u32;
        let repeat = &self.repeat;
        let Some(until) = &repeat.until else {
            return Ok(n >= repeat.max);
        };
        if n < repeat.min || n >= repeat.max {
            return Ok(n >= repeat.max);
        }
        let width = match self.pairs.get(&run) {
            Some(pairs) => pairs
                .iter()
                .map(|pair| self.pair_width(*pair))
                .fold(0.0, f64::max),
            None => self.own_width(run),
        };
        let mut context = Context::default();
        context.set("ci95", width);
        context.set("n", n);
        plan.matrix.engine.test(until, &context)
    }

    /// Samples of a run step that count.
    pub fn count(&self, run: u32) -> usize {
        self.rounds.get(&run).copied().unwrap_or(0)
    }

    fn own_width(&self, run: u32) -> f64 {
        let metrics = self.samples.get(&run).into_iter().flatten();
        let widths = metrics.map(|list| {
            let values: Vec<f64> = list.iter().map(|sample| sample.value).collect();
            relative_half_width(&values).unwrap_or(f64::INFINITY)
        });
        widths.fold(0.0, f64::max)
    }

    /// Of the rounds that both sides have: so both stop for the same reason, the one that is measured
    /// first in a round one round later than the other.
    fn pair_width(&self, pair: [u32; 2]) -> f64 {
        let both = self.count(pair[0]).min(self.count(pair[1]));
        let [Some(base), Some(cand)] = pair.map(|run| self.samples.get(&run)) else {
            return f64::INFINITY;
        };
        let widths = base.iter().zip(cand).map(|(base, cand)| {
            let question = Question::new(Better::Higher, 0.0);
            let comparison = compare(&base[..both], &cand[..both], &question);
            match comparison.ci95 {
                Some([low, high]) if low > 0.0 => (high / low).sqrt() - 1.0,
                Some([low, high]) if low == high => 0.0,
                _ if comparison.difference == Some(0.0) => 0.0,
                _ => f64::INFINITY,
            }
        });
        widths.fold(0.0, f64::max)
    }
}
