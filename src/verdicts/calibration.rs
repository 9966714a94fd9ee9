//! Calibration: each cell against itself, its noise, and the changes that can be seen through it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::diag::Diagnostic;
use crate::base::sample::{Better, Sample};
use crate::judge::power::{repetitions, smallest_effect};
use crate::judge::stats::quantile;
use crate::judge::verdict::LEVEL;
use crate::judge::verdict::{Comparison, Noise, Question, Verdict, compare, decide};
use crate::plan::dag::Plan;
use crate::resolve::samples::Samples;
use crate::verdicts::comparisons::series_of;
use crate::verdicts::history::Past;

/// Effects for which the repetitions needed are told.
pub const EFFECTS: [f64; 3] = [0.01, 0.02, 0.05];

/// What is known of one metric of one cell.
#[derive(Clone, Debug)]
pub struct Calibrated {
    pub cell: u32,
    /// Index into the matrix's metrics.
    pub metric: usize,
    pub noise: Option<Noise>,
    /// The cell against itself, over the rounds of this calibration.
    pub against_itself: Comparison,
    /// The smallest effect that the preset's repetitions see, as a fraction.
    pub smallest_effect: Option<f64>,
    /// Repetitions a side for each of [`EFFECTS`].
    pub repetitions: [Option<u32>; 3],
}

/// Judges each cell against itself over the samples of `session`, and takes its noise from all that is
/// stored of it. `n`: repetitions a side whose smallest effect is told.
pub fn calibrated(
    plan: &Plan,
    samples: &Samples,
    past: &Past,
    session: i64,
    n: u32,
) -> Result<Vec<Calibrated>, Diagnostic> {
    let mut found = Vec::new();
    let mut family = Vec::new();
    for (run, cell) in (0..).zip(&plan.steps.runs.cells) {
        let names = plan.metric_names(*cell)?.into_iter().enumerate();
        for (metric, name) in names.filter(|(_, name)| !name.is_empty()) {
            let series = samples.get(run, &name);
            let all = series.samples.iter().copied();
            let own: Vec<Sample> = all.filter(|sample| sample.session == session).collect();
            let declared = &plan.matrix.metrics[metric];
            let better = declared.better.or(series.better).unwrap_or(Better::Higher);
            let question = Question::new(better, declared.min_effect.unwrap_or(0.0));
            let (a, b) = halves(&own);
            family.push((question, compare(&a, &b, &question)));
            let noise = past.noise(&series_of(plan, *cell, &name));
            found.push((*cell, metric, noise));
        }
    }
    decide(&mut family);
    // What a single finding has to get below among so many.
    let alpha = LEVEL / found.len().max(1) as f64;
    let one = |((cell, metric, noise), (_, against_itself)): ((u32, usize, Option<Noise>), _)| {
        let sigma = noise.map(|noise| noise.sigma_log);
        Calibrated {
            cell,
            metric,
            noise,
            against_itself,
            smallest_effect: sigma.and_then(|sigma| smallest_effect(sigma, n, alpha)),
            repetitions: EFFECTS
                .map(|effect| sigma.and_then(|sigma| repetitions(sigma, effect, alpha))),
        }
    };
    Ok(found.into_iter().zip(family).map(one).collect())
}

/// Rounds in turn A B B A, as two versions would have had them; two neighbours are a pair.
fn halves(samples: &[Sample]) -> (Vec<Sample>, Vec<Sample>) {
    let first = samples.iter().map(|sample| sample.round).min().unwrap_or(0);
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for sample in samples {
        let turn = sample.round - first;
        let half = if matches!(turn % 4, 0 | 3) {
            &mut a
        } else {
            &mut b
        };
        half.push(Sample {
            round: turn / 2,
            ..*sample
        });
    }
    (a, b)
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Calibration {
    pub matrix: String,
    pub machine: String,
    /// Under which it was measured.
    pub preset: String,
    /// Whose repetitions the smallest effect is told for, and how many they are.
    pub judged_for: String,
    pub repetitions: u32,
    pub rounds: u32,
    /// Cells that were found to differ from themselves: false alarms.
    pub false_alarms: usize,
    pub metrics: Vec<MetricRow>,
    pub cells: Vec<CalibrationRow>,
}

/// One metric over all cells.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MetricRow {
    pub metric: String,
    pub cells: usize,
    /// One standard deviation of a sample, as a fraction: of the middle cell, and of the noisiest.
    pub noise: Option<f64>,
    pub noise_worst: Option<f64>,
    pub smallest_effect: Option<f64>,
    pub smallest_effect_worst: Option<f64>,
    pub repetitions_for: Vec<RepetitionsFor>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RepetitionsFor {
    /// As a fraction.
    pub effect: f64,
    /// A side, in the middle cell; None: more than anybody would make.
    pub repetitions: Option<u32>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CalibrationRow {
    pub cell: String,
    pub metric: String,
    pub noise: Option<f64>,
    /// Degrees of freedom that it rests on.
    pub degrees: Option<f64>,
    pub smallest_effect: Option<f64>,
    pub repetitions_for: Vec<RepetitionsFor>,
    pub against_itself: Comparison,
}

impl Calibration {
    /// Fills in `metrics`, `cells` and `false_alarms`.
    pub fn add(&mut self, plan: &Plan, found: &[Calibrated]) {
        let name = |one: &Calibrated| plan.matrix.metrics[one.metric].name.clone();
        for (index, metric) in plan.matrix.metrics.iter().enumerate() {
            let own: Vec<&Calibrated> = found.iter().filter(|one| one.metric == index).collect();
            self.metrics.push(metric_row(&metric.name, &own));
        }
        self.cells = found
            .iter()
            .map(|one| CalibrationRow {
                cell: plan.cells.name(plan.cells.cell(one.cell as usize)),
                metric: name(one),
                noise: one.noise.map(|noise| noise.sigma_log),
                degrees: one.noise.map(|noise| noise.degrees),
                smallest_effect: one.smallest_effect,
                repetitions_for: needed(one.repetitions),
                against_itself: one.against_itself.clone(),
            })
            .collect();
        let alarms = found
            .iter()
            .filter(|one| one.against_itself.verdict.is_change());
        self.false_alarms = alarms.count();
    }

    /// Anything was measured at all.
    pub fn is_something(&self) -> bool {
        let nothing = Verdict::NothingMeasured;
        self.cells
            .iter()
            .any(|cell| cell.against_itself.verdict != nothing)
    }
}

/// What the cells' calibrations say of one metric together.
pub fn metric_row(name: &str, own: &[&Calibrated]) -> MetricRow {
    let noise: Vec<f64> = own
        .iter()
        .filter_map(|one| Some(one.noise?.sigma_log))
        .collect();
    let effects: Vec<f64> = own.iter().filter_map(|one| one.smallest_effect).collect();
    let middle = |index: usize| {
        // A cell that no number of repetitions settles counts as the most.
        let needed = own.iter().filter(|one| one.noise.is_some());
        let needed: Vec<f64> = needed
            .map(|one| one.repetitions[index].map_or(f64::INFINITY, f64::from))
            .collect();
        let middle = quantile(&needed, 0.5).filter(|n| n.is_finite());
        middle.map(|n| n.ceil() as u32)
    };
    MetricRow {
        metric: name.to_owned(),
        cells: own.len(),
        noise: quantile(&noise, 0.5),
        noise_worst: quantile(&noise, 1.0),
        smallest_effect: quantile(&effects, 0.5),
        smallest_effect_worst: quantile(&effects, 1.0),
        repetitions_for: needed([0, 1, 2].map(middle)),
    }
}

fn needed(repetitions: [Option<u32>; 3]) -> Vec<RepetitionsFor> {
    let pairs = EFFECTS.into_iter().zip(repetitions);
    pairs
        .map(|(effect, repetitions)| RepetitionsFor {
            effect,
            repetitions,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_alternate_between_the_halves() {
        let sample = |round| Sample {
            round,
            session: 1,
            value: f64::from(round),
        };
        let (a, b) = halves(&(10..18).map(sample).collect::<Vec<_>>());
        let values = |half: &[Sample]| half.iter().map(|s| (s.round, s.value)).collect::<Vec<_>>();
        assert_eq!(values(&a), [(0, 10.0), (1, 13.0), (2, 14.0), (3, 17.0)]);
        assert_eq!(values(&b), [(0, 11.0), (1, 12.0), (2, 15.0), (3, 16.0)]);
    }
}
