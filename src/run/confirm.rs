//! Owns the rerun of findings: which pairs are measured again, and with which rounds.
//! Does not know what both looks say together (judge/confirm does), nor how a round is measured.

use std::collections::BTreeSet;

use super::event::Event;
use super::execute::{self, Interrupts, Job, RunError, Summary};
use super::family::{Answer, Beside, answers, policy};
use super::lookup::{Samples, samples};
use super::repeat::Repetition;
use crate::config::matrix::Repeat;
use crate::edge::store::Pair;
use crate::judge::confirm::{Policy, candidates, worth_the_rest};
use crate::judge::verdict::{Comparison, Question, compare};
use crate::plan::dag::{Plan, Todo};
use crate::words::sample::Sample;

/// So many findings are afforded however small a matrix is.
const FINDINGS_MIN: usize = 4;

/// A finding that is looked at again.
struct Finding {
    /// Run steps of both sides.
    runs: [u32; 2],
    pair: Pair,
    question: Question,
    screen: Comparison,
}

/// Measures again, interleaved, what a comparison found; a rerun that points nowhere is given up early. Where
/// nothing was found nothing is done. Returns what came of the measurements.
pub async fn confirm(
    job: &Job<'_>,
    preset: Option<&str>,
    is_built: &dyn Fn(u32) -> bool,
    interrupts: &mut Interrupts,
) -> Result<Summary, RunError> {
    let plan = job.plan;
    let policy = policy(plan);
    let findings = findings(job, preset, is_built, &policy)?;
    let mut total = Summary::default();
    if findings.is_empty() {
        return Ok(total);
    }
    let first = next_round(
        job,
        &findings.iter().flat_map(|finding| finding.runs).collect(),
    )?;
    let pairs: Vec<Pair> = findings
        .iter()
        .map(|finding| finding.pair.clone())
        .collect();
    job.site.store.borrow().confirming(&pairs, first)?;
    let mut again: Vec<&Finding> = findings.iter().collect();
    let stages = [
        (first, policy.look),
        (first + policy.look, policy.rounds - policy.look),
    ];
    for (begin, rounds) in stages {
        let summary = measure(job, &again, begin, rounds, interrupts).await?;
        total.measured += summary.measured;
        total.failed.extend(summary.failed);
        total.interrupted |= summary.interrupted;
        if total.interrupted {
            break;
        }
        let samples = samples(plan, &job.site.store.borrow())?;
        again.retain(|finding| finding.deserves_the_rest(&samples, first));
    }
    Ok(total)
}

/// What is measured again: findings of comparisons that ask for it, which were not before.
fn findings(
    job: &Job,
    preset: Option<&str>,
    is_built: &dyn Fn(u32) -> bool,
    policy: &Policy,
) -> Result<Vec<Finding>, RunError> {
    let plan = job.plan;
    let asks = |compare: &crate::plan::dag::ComparePlan| {
        plan.matrix.compares[compare.rule].confirm && compare.groups > 0
    };
    if policy.rounds == 0 || !plan.compares.iter().any(asks) {
        return Ok(Vec::new());
    }
    let store = job.site.store.borrow();
    let beside = Beside::read(plan, &store, preset)?;
    let answers = answers(plan, &samples(plan, &store)?, &beside)
        .map_err(|diagnostic| RunError::Template(diagnostic.message))?;
    let run_of = |cell: u32| plan.steps.runs.of_cell[cell as usize];
    let eligible = |answer: &Answer| {
        asks(&plan.compares[answer.compare])
            && answer.confirmed.is_none()
            && answer.accepted.is_none()
            // The same bytes are one version: there is nothing to interleave.
            && answer.pair.0 != answer.pair.1
            // An old baseline's build may be gone.
            && is_built(run_of(answer.baseline))
            && is_built(run_of(answer.candidate))
    };
    let eligible: Vec<Answer> = answers.into_iter().filter(eligible).collect();
    let family: Vec<(Question, Comparison)> = eligible
        .iter()
        .map(|answer| (answer.question, answer.comparison.clone()))
        .collect();
    let generous = Policy {
        budget: f64::INFINITY,
        ..*policy
    };
    let all = candidates(&family, &generous);
    let afforded = candidates(&family, policy).len().max(FINDINGS_MIN);
    let runs = |index: usize| [eligible[index].baseline, eligible[index].candidate].map(run_of);
    let measured: BTreeSet<[u32; 2]> = all.iter().take(afforded).map(|i| runs(*i)).collect();
    // Other metrics of the same runs cost nothing more.
    let chosen = all
        .into_iter()
        .filter(|index| measured.contains(&runs(*index)));
    let finding = |index: usize| {
        let answer = &eligible[index];
        Finding {
            runs: runs(index),
            pair: answer.pair.clone(),
            question: answer.question,
            screen: answer.comparison.clone(),
        }
    };
    Ok(chosen.map(finding).collect())
}

/// The first round that none of the run steps has: all begin there together.
pub fn next_round(job: &Job, runs: &BTreeSet<u32>) -> Result<u32, RunError> {
    // Run steps are sorted by key, so these ascend.
    let keys: Vec<_> = runs
        .iter()
        .map(|run| job.plan.steps.runs.keys[*run as usize])
        .collect();
    let finished = job.site.store.borrow().finished(&keys)?;
    let next = (0..keys.len()).filter_map(|key| finished.rounds(key).last());
    Ok(next.max().map_or(0, |last| last + 1))
}

/// Rounds from `first` on of all runs that the findings are about.
async fn measure(
    job: &Job<'_>,
    findings: &[&Finding],
    first: u32,
    rounds: u32,
    interrupts: &mut Interrupts,
) -> Result<Summary, RunError> {
    let runs = findings.iter().flat_map(|finding| finding.runs);
    extra_rounds(job, &runs.collect(), first, rounds, interrupts).await
}

/// Measures rounds `first`, `first + 1`, … of some run steps, whatever their repetition rule says.
pub async fn extra_rounds(
    job: &Job<'_>,
    runs: &BTreeSet<u32>,
    first: u32,
    rounds: u32,
    interrupts: &mut Interrupts,
) -> Result<Summary, RunError> {
    if runs.is_empty() || rounds == 0 {
        return Ok(Summary::default());
    }
    let repeat = Repeat::times(rounds);
    let plan = Plan {
        repeat: &repeat,
        cells: job.plan.cells.clone(),
        steps: job.plan.steps.clone(),
        compares: job.plan.compares.clone(),
        ..*job.plan
    };
    let wanted = |run: usize| {
        if runs.contains(&(run as u32)) {
            rounds
        } else {
            0
        }
    };
    let missing = (0..plan.steps.runs.len()).map(wanted).collect();
    // What was measured is there: builds are kept while they are in use.
    let todo: Todo = plan.todo(missing, &|_| true);
    job.site.tell(Event::Again {
        cells: runs.len(),
        measurements: todo.measurements(),
    });
    let job = Job {
        plan: &plan,
        ..*job
    };
    let have = |_: usize| (0..first).collect();
    execute::run(&job, &todo, &have, Repetition::default(), interrupts).await
}

impl Finding {
    fn deserves_the_rest(&self, samples: &Samples, first: u32) -> bool {
        let fresh = |run: u32| -> Vec<Sample> {
            let series = samples.get(&(run, self.pair.2.clone()));
            let all = series.iter().flat_map(|series| &series.samples);
            all.copied()
                .filter(|sample| sample.round >= first)
                .collect()
        };
        let [base, cand] = self.runs.map(fresh);
        worth_the_rest(&self.screen, &compare(&base, &cand, &self.question))
    }
}
