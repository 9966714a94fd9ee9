//! The rerun of findings: which pairs are measured again, and with which rounds.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::key::Key;
use crate::config::matrix::Repeat;
use crate::edge::store::{Pair, Store, StoreError};
use crate::judge::confirm::{Stage, afforded};
use crate::plan::dag::StoredRounds;
use crate::plan::dag::groups;
use crate::plan::dag::{Plan, Todo};
use crate::plan::steps::NONE;
use crate::resolve::lookup::machine_of;
use crate::resolve::repeat::Repetition;
use crate::resolve::samples::Samples;
use crate::run::event::Event;
use crate::run::execute::{self, Job, RunError, Stops, Tally};
use crate::verdicts::comparisons::{Answer, ComparisonContext, Rerun, answers, policy};

/// Run steps of both sides of a finding.
type RunPair = [u32; 2];

/// The first fresh round, where there is one, and what is measured.
type RerunCandidate = (Option<u32>, RunPair);

/// Measures again, interleaved and stage by stage, what comparisons found. What was interrupted goes on first; then
/// nothing new is begun. Where nothing was found nothing is done. Only the `machines` at hand take part. Returns
/// what came of the measurements.
pub async fn confirm(
    job: &Job<'_>,
    preset: Option<&str>,
    machines: &BTreeSet<String>,
    is_built: &dyn Fn(u32) -> bool,
    stops: &Stops,
) -> Result<Tally, RunError> {
    let plan = job.plan;
    let policy = policy(plan);
    let mut total = Tally::default();
    if !is_wanted(plan) {
        return Ok(total);
    }
    let is_ours = |run: u32| machine_of(plan, run as usize).is_none_or(|it| machines.contains(it));
    let is_there = |run: u32| is_ours(run) && is_built(run);
    let mut answers = eligible(job, preset, &is_there)?;
    let mut is_begun = answers.iter().any(|answer| begun(answer).is_some());
    let mut left = policy.runs(made(job, &answers, &is_ours)?);
    for stage in policy.stages() {
        let promise = promise(plan, &answers, is_begun, stage);
        let (candidates, promise): (Vec<RerunCandidate>, Vec<f64>) = promise.into_iter().unzip();
        // By first round: what was begun apart goes on side by side, out of one budget.
        let mut chosen: BTreeMap<Option<u32>, BTreeSet<RunPair>> = BTreeMap::new();
        for index in afforded(&promise, stage, &mut left) {
            let (first, runs) = candidates[index];
            chosen.entry(first).or_default().insert(runs);
        }
        if chosen.is_empty() {
            break;
        }
        is_begun = true;
        for (first, chosen) in chosen {
            let first = match first {
                Some(first) => first,
                None => begin(job, &answers, &chosen)?,
            };
            let runs = chosen.into_iter().flatten().collect();
            let rounds = (first + stage.from, first + stage.to);
            let summary = extra_rounds(job, &runs, rounds, stops).await?;
            total.add(summary);
            if total.interrupted || total.late.is_some() {
                return Ok(total);
            }
        }
        answers = eligible(job, preset, &is_there)?;
    }
    // Of the machines at hand all of them, those too that cannot be measured any more: accepted since, without a
    // build, or of a metric that is gone. Other machines may have their turn later.
    let store = job.site.store.borrow();
    let mut done = unfinished(plan, &store)?;
    let ours = plan.steps.runs.keys.iter().zip(0..);
    let ours: BTreeSet<&Key> = ours
        .filter(|(_, run)| is_ours(*run))
        .map(|it| it.0)
        .collect();
    done.retain(|pair| ours.contains(&pair.0) && ours.contains(&pair.1));
    store.confirmed(&done)?;
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

/// Forgets what was confirmed of comparisons that a machine takes part in and both sides of which are to be measured anew:
/// from now on all their samples count, however far the measurements come.
pub fn forget(
    plan: &Plan,
    machine: &str,
    is_new: &dyn Fn(usize) -> bool,
    store: &Store,
) -> Result<(), StoreError> {
    let runs = plan.steps.runs.keys.iter().enumerate();
    // By key: whether it is of this machine.
    let new: BTreeMap<&Key, bool> = runs
        .filter(|(run, _)| is_new(*run))
        .map(|(run, key)| (key, machine_of(plan, run) == Some(machine)))
        .collect();
    if new.is_empty() {
        return Ok(());
    }
    let mut pairs: Vec<Pair> = store.confirmations()?.into_keys().collect();
    pairs.retain(|(baseline, candidate, _)| {
        let sides = (new.get(baseline), new.get(candidate));
        matches!(sides, (Some(a), Some(b)) if *a || *b)
    });
    store.forget_confirmations(&pairs)
}

/// Comparisons that a plan wants to be confirmed, and of which further rounds may be wanted.
fn unfinished(plan: &Plan, store: &Store) -> Result<Vec<Pair>, StoreError> {
    let mut all = store.confirmations()?;
    all.retain(|_, noted| !noted.finished);
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let mut asked = BTreeSet::new();
    for compare in &plan.compares {
        if plan.matrix.compares[compare.rule].confirm {
            for (baseline, candidates) in groups(plan, compare) {
                let pair = |candidate| (plan.key_of(baseline), plan.key_of(candidate));
                asked.extend(candidates.into_iter().map(pair));
            }
        }
    }
    all.retain(|pair, _| asked.contains(&(pair.0, pair.1)));
    Ok(all.into_keys().collect())
}

/// Answers of comparisons that ask for it and can be measured.
fn eligible(
    job: &Job,
    preset: Option<&str>,
    is_built: &dyn Fn(u32) -> bool,
) -> Result<Vec<Answer>, RunError> {
    let plan = job.plan;
    let store = job.site.store.borrow();
    let samples = Samples::of(plan, &store)?;
    let beside = ComparisonContext::read(plan, &store, &samples, preset)?;
    let mut answers = answers(plan, &samples, &beside)
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

fn runs_of(plan: &Plan, answer: &Answer) -> RunPair {
    [answer.baseline, answer.candidate].map(|cell| plan.steps.runs.of_cell[cell as usize])
}

/// How far a confirmation is that has begun and not ended.
fn begun(answer: &Answer) -> Option<Rerun> {
    answer.again.filter(|again| !again.noted.finished)
}

/// Measurements that the screen of our machines rests on.
fn made(job: &Job, answers: &[Answer], is_ours: &dyn Fn(u32) -> bool) -> Result<usize, RunError> {
    let mut first: BTreeMap<u32, u32> = BTreeMap::new();
    for (answer, again) in answers.iter().filter_map(|it| Some((it, begun(it)?))) {
        for run in runs_of(job.plan, answer) {
            let first = first.entry(run).or_insert(again.noted.first_round);
            *first = (*first).min(again.noted.first_round);
        }
    }
    let compares = job.plan.compares.iter();
    let cells =
        compares.flat_map(|compare| job.plan.steps.runs.of_cell.iter().zip(&compare.of_cell));
    let compared = cells.filter(|(_, group)| **group != NONE);
    let compared = compared.map(|(run, _)| *run);
    let runs: BTreeSet<u32> = compared.filter(|run| is_ours(*run)).collect();
    let screen = |(run, rounds): (u32, Vec<u32>)| {
        let is_screen = |round: &&u32| first.get(&run).is_none_or(|first| *round < first);
        rounds.iter().filter(is_screen).count()
    };
    Ok(finished(job, &runs)?.into_iter().map(screen).sum())
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

/// How promising each candidate for a stage is: as much as its most promising metric. Where a confirmation is
/// begun only what takes part in one.
fn promise(
    plan: &Plan,
    answers: &[Answer],
    is_begun: bool,
    stage: Stage,
) -> BTreeMap<RerunCandidate, f64> {
    let mut promise: BTreeMap<RerunCandidate, f64> = BTreeMap::new();
    for answer in answers {
        let again = begun(answer);
        let own = match again.map(|again| again.rounds) {
            None if is_begun || answer.again.is_some() => None,
            // Measured before an interruption: in any case, and first.
            Some(rounds) if rounds >= stage.to => Some(f64::INFINITY),
            Some(rounds) if rounds < stage.from => None,
            _ => answer.promise,
        };
        if let Some(own) = own {
            let first = again.map(|again| again.noted.first_round);
            let candidate = (first, runs_of(plan, answer));
            let best = promise.entry(candidate).or_insert(own);
            *best = best.max(own);
        }
    }
    promise
}

/// Notes which comparisons are measured again, all open metrics of the chosen runs; returns their first round: one
/// that no run step has.
fn begin(job: &Job, answers: &[Answer], chosen: &BTreeSet<RunPair>) -> Result<u32, RunError> {
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
) -> Result<Tally, RunError> {
    let finished = finished(job, runs)?;
    let missing_of = |run: u32| {
        let had = finished.get(&run)?;
        Some((from..to).filter(|round| !had.contains(round)).count() as u32)
    };
    let steps = 0..job.plan.steps.runs.len() as u32;
    let missing: Vec<u32> = steps.map(|run| missing_of(run).unwrap_or(0)).collect();
    let cells = missing.iter().filter(|missing| **missing > 0).count();
    if cells == 0 {
        return Ok(Tally::default());
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
    let have = |run: usize| StoredRounds {
        begin: from,
        counted: 0,
        rounds: finished.get(&(run as u32)).cloned().unwrap_or_default(),
    };
    execute::run(&job, &todo, &have, Repetition::default(), stops).await
}
