//! Calibration: each cell against itself, in rounds of its own, and what that says of its noise.

use std::collections::BTreeSet;

use crate::base::diag::Diagnostic;
use crate::base::sample::{Better, Sample};
use crate::judge::power::{repetitions, smallest_effect};
use crate::judge::verdict::LEVEL;
use crate::judge::verdict::{Comparison, Noise, Question, compare, decide};
use crate::plan::dag::{Plan, Todo};
use crate::resolve::samples::Samples;
use crate::run::execute::{Job, RunError, Stops, Tally};
use crate::run::strategy::confirm::{extra_rounds, next_round};
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
        let names = plan.metric_names(*cell)?.into_iter();
        for (metric, name) in names.enumerate() {
            let series = samples.get(run, &name);
            let all = series.samples.iter().copied();
            let own: Vec<Sample> = all.filter(|sample| sample.session == session).collect();
            let declared = &plan.matrix.metrics[metric];
            let question = Question {
                better: declared.better.or(series.better).unwrap_or(Better::Higher),
                min_effect: declared.min_effect.unwrap_or(0.0),
                level: LEVEL,
                noise: None,
            };
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
