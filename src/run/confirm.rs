//! Owns the rerun of findings: which pairs are measured again, and with which rounds.
//! Does not know what both looks say together (judge/confirm does), nor how a round is measured.

use std::collections::{BTreeMap, BTreeSet};

use super::dispatch::Stored;
use super::event::Event;
use super::execute::{self, Job, RunError, Stops, Summary};
use super::family::{Answer, Beside, answers, policy};
use super::lookup::samples;
use super::repeat::Repetition;
use crate::config::matrix::Repeat;
use crate::edge::store::{Pair, Store, StoreError};
use crate::judge::confirm::{Stage, afforded};
use crate::plan::dag::{Plan, Todo};
use crate::plan::steps::NONE;
use crate::words::key::Key;

/// Run steps of both sides of a finding.
type Runs = [u32; 2];

/// Measures again, interleaved and stage by stage, what comparisons found. What was interrupted goes on first; then
/// nothing new is begun. Where nothing was found nothing is done. Returns what came of the measurements.
pub async fn confirm(
    job: &Job<'_>,
    preset: Option<&str>,
    is_built: &dyn Fn(u32) -> bool,
    stops: &Stops,
) -> Result<Summary, RunError> {
    let plan = job.plan;
    let policy = policy(plan);
    let mut total = Summary::default();
    if !is_wanted(plan) {
        return Ok(total);
    }
    let mut answers = eligible(job, preset, is_built)?;
    let mut first = begun(&answers);
    let mut left = policy.runs(made(job, first)?);
    for stage in policy.stages() {
        let promise = promise(plan, &answers, first, stage);
        let (runs, promise): (Vec<Runs>, Vec<f64>) = promise.into_iter().unzip();
        let chosen: BTreeSet<Runs> = afforded(&promise, stage, &mut left)
            .into_iter()
            .map(|index| runs[index])
            .collect();
        if chosen.is_empty() {
            break;
        }
        let first = match first {
            Some(first) => first,
            None => *first.insert(begin(job, &answers, &chosen)?),
        };
        let runs = chosen.into_iter().flatten().collect();
        let rounds = (first + stage.from, first + stage.to);
        let summary = extra_rounds(job, &runs, rounds, stops).await?;
        total.add(summary);
        if total.interrupted || total.late.is_some() {
            return Ok(total);
        }
        answers = eligible(job, preset, is_built)?;
    }
    // Only those of the machines at hand: others may have their turn later.
    let unfinished = answers
        .iter()
        .filter(|answer| answer.again.is_some_and(|again| !again.noted.finished));
    let done: Vec<Pair> = unfinished.map(|answer| answer.pair.clone()).collect();
    job.site.store.borrow().confirmed(&done)?;
    Ok(total)
}

fn is_wanted(plan: &Plan) -> bool {
    let mut rules = plan
        .compares
        .iter()
        .map(|compare| &plan.matrix.compares[compare.rule]);
    policy(plan).rounds > 0 && rules.any(|rule| rule.confirm)
}

/// Whether there is a confirmation to go on with, that was interrupted.
pub fn is_begun(plan: &Plan, store: &Store) -> Result<bool, StoreError> {
    Ok(is_wanted(plan) && !unfinished(plan, store)?.is_empty())
}

/// Comparisons of a plan of which further rounds may be wanted.
fn unfinished(plan: &Plan, store: &Store) -> Result<Vec<Pair>, StoreError> {
    let here = |key: &Key| plan.steps.runs.keys.binary_search(key).is_ok();
    let all = store.confirmations()?.into_iter();
    let unfinished = all.filter(|(pair, noted)| !noted.finished && here(&pair.0) && here(&pair.1));
    Ok(unfinished.map(|(pair, _)| pair).collect())
}

/// Answers of comparisons that ask for it and can be measured.
fn eligible(
    job: &Job,
    preset: Option<&str>,
    is_built: &dyn Fn(u32) -> bool,
) -> Result<Vec<Answer>, RunError> {
    let plan = job.plan;
    let store = job.site.store.borrow();
    let beside = Beside::read(plan, &store, preset)?;
    let mut answers = answers(plan, &samples(plan, &store)?, &beside)
        .map_err(|diagnostic| RunError::Template(diagnostic.message))?;
    answers.retain(|answer| {
        let compare = &plan.compares[answer.compare];
        plan.matrix.compares[compare.rule].confirm
            && answer.accepted.is_none()
            // The same bytes are one version: there is nothing to interleave.
            && answer.pair.0 != answer.pair.1
            // An old baseline's build may be gone.
            && runs_of(plan, answer).into_iter().all(is_built)
    });
    Ok(answers)
}

fn runs_of(plan: &Plan, answer: &Answer) -> Runs {
    [answer.baseline, answer.candidate].map(|cell| plan.steps.runs.of_cell[cell as usize])
}

/// The first round of a confirmation that was interrupted.
fn begun(answers: &[Answer]) -> Option<u32> {
    let begun = answers.iter().filter_map(|answer| answer.again);
    let unfinished = begun.filter(|again| !again.noted.finished);
    unfinished.map(|again| again.noted.first_round).max()
}

/// Measurements that the screen rests on.
fn made(job: &Job, first: Option<u32>) -> Result<usize, RunError> {
    let compares = job.plan.compares.iter();
    let cells =
        compares.flat_map(|compare| job.plan.steps.runs.of_cell.iter().zip(&compare.of_cell));
    let compared = cells.filter(|(_, group)| **group != NONE);
    let runs: BTreeSet<u32> = compared.map(|(run, _)| *run).collect();
    let finished = finished(job, &runs)?;
    let screen = |round: &&u32| first.is_none_or(|first| **round < first);
    Ok(finished
        .values()
        .map(|rounds| rounds.iter().filter(screen).count())
        .sum())
}

/// The finished rounds of run steps.
fn finished(job: &Job, runs: &BTreeSet<u32>) -> Result<BTreeMap<u32, Vec<u32>>, RunError> {
    // Run steps are sorted by key, so these ascend.
    let keys: Vec<_> = runs
        .iter()
        .map(|run| job.plan.steps.runs.keys[*run as usize])
        .collect();
    let finished = job.site.store.borrow().finished(&keys)?;
    let rounds = runs
        .iter()
        .enumerate()
        .map(|(at, run)| (*run, finished.rounds(at).collect()));
    Ok(rounds.collect())
}

/// How promising each pair of run steps is that takes part in a stage: as much as its most promising metric.
fn promise(
    plan: &Plan,
    answers: &[Answer],
    first: Option<u32>,
    stage: Stage,
) -> BTreeMap<Runs, f64> {
    let mut promise: BTreeMap<Runs, f64> = BTreeMap::new();
    for answer in answers {
        let own = match (first, answer.again) {
            (None, None) => answer.promise,
            (Some(first), Some(again))
                if !again.noted.finished && again.noted.first_round == first =>
            {
                match again.rounds {
                    // Measured before an interruption: in any case, and first.
                    rounds if rounds >= stage.to => Some(f64::INFINITY),
                    rounds if rounds >= stage.from => answer.promise,
                    _ => None,
                }
            }
            _ => None,
        };
        if let Some(own) = own {
            let best = promise.entry(runs_of(plan, answer)).or_insert(own);
            *best = best.max(own);
        }
    }
    promise
}

/// Notes which comparisons are measured again, all open metrics of the chosen runs; returns their first round: one
/// that no run step has.
fn begin(job: &Job, answers: &[Answer], chosen: &BTreeSet<Runs>) -> Result<u32, RunError> {
    let first = next_round(job, &chosen.iter().flatten().copied().collect())?;
    let open = answers.iter().filter(|answer| {
        answer.again.is_none()
            && answer.promise.is_some()
            && chosen.contains(&runs_of(job.plan, answer))
    });
    let pairs: Vec<Pair> = open.map(|answer| answer.pair.clone()).collect();
    job.site.store.borrow().confirming(&pairs, first)?;
    Ok(first)
}

/// The first round that none of the run steps has: all begin there together.
pub fn next_round(job: &Job, runs: &BTreeSet<u32>) -> Result<u32, RunError> {
    let finished = finished(job, runs)?;
    let last = finished.values().flatten().max();
    Ok(last.map_or(0, |last| last + 1))
}

/// Measures the rounds from `from` to before `to` that some run steps do not have, whatever their repetition
/// rule says.
pub async fn extra_rounds(
    job: &Job<'_>,
    runs: &BTreeSet<u32>,
    (from, to): (u32, u32),
    stops: &Stops,
) -> Result<Summary, RunError> {
    let finished = finished(job, runs)?;
    let missing_of = |run: u32| {
        let had = finished.get(&run)?;
        Some((from..to).filter(|round| !had.contains(round)).count() as u32)
    };
    let steps = 0..job.plan.steps.runs.len() as u32;
    let missing: Vec<u32> = steps.map(|run| missing_of(run).unwrap_or(0)).collect();
    let cells = missing.iter().filter(|missing| **missing > 0).count();
    if cells == 0 {
        return Ok(Summary::default());
    }
    let repeat = Repeat::times(to - from);
    let plan = Plan {
        repeat: &repeat,
        cells: job.plan.cells.clone(),
        steps: job.plan.steps.clone(),
        compares: job.plan.compares.clone(),
        ..*job.plan
    };
    // What was measured is there: builds are kept while they are in use.
    let todo: Todo = plan.todo(missing, &|_| true);
    job.site.tell(Event::Again {
        cells,
        measurements: todo.measurements(),
    });
    let job = Job {
        plan: &plan,
        ..*job
    };
    let have = |run: usize| Stored {
        begin: from,
        counted: 0,
        rounds: finished.get(&(run as u32)).cloned().unwrap_or_default(),
    };
    execute::run(&job, &todo, &have, Repetition::default(), stops).await
}
