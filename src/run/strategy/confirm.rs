//! The rerun of findings: which pairs are measured again, and with which rounds.

use std::collections::{BTreeMap, BTreeSet};

use super::{Knowledge, Next, Strategy};
use crate::base::key::Key;
use crate::edge::store::{Pair, Store, StoreError};
use crate::judge::confirm::{Stage, afforded};
use crate::plan::dag::{Plan, groups};
use crate::plan::steps::NONE;
use crate::resolve::lookup::machine_of;
use crate::resolve::samples::Samples;
use crate::run::dispatch::RunRequest;
use crate::run::event::Event;
use crate::run::execute::RunError;
use crate::verdicts::comparisons::{Answer, ComparisonContext, Rerun, answers, policy};

/// Run steps of both sides of a finding.
type RunPair = [u32; 2];

/// The first fresh round, where there is one, and what is measured.
type RerunCandidate = (Option<u32>, RunPair);

/// Measures again, interleaved and stage by stage, what comparisons found on the machines that take part. What was
/// interrupted goes on first; then nothing new is begun.
pub struct Confirm {
    preset: Option<String>,
    progress: Option<Stages>,
    is_over: bool,
}

/// How far a confirmation is.
struct Stages {
    /// Of the plan that run steps are numbers of.
    plan_number: u32,
    /// The stage that comes next.
    next: usize,
    /// Measurements that may still be made.
    left: f64,
    is_begun: bool,
    /// What the machines are to measure in the present stage.
    asked: BTreeMap<String, Vec<RunRequest>>,
}

impl Confirm {
    pub fn new(preset: Option<&str>) -> Confirm {
        Confirm {
            preset: preset.map(str::to_owned),
            progress: None,
            is_over: false,
        }
    }
}

impl Strategy for Confirm {
    fn next(&mut self, machine: &str, known: &Knowledge) -> Result<Next, RunError> {
        if self.is_over || known.is_flawed || !is_wanted(known.plan) {
            return Ok(Next::Nothing);
        }
        self.progress
            .take_if(|stages| stages.plan_number != known.plan_number);
        let asked = self.progress.as_ref().map(|stages| &stages.asked);
        let is_asked = asked.is_some_and(|asked| !asked.is_empty());
        if !is_asked {
            // Findings are one family: all that was asked for is measured before they are looked at.
            if known.others_at_work {
                return Ok(Next::Wait);
            }
            self.go_on(known)?;
        }
        let asked = self.progress.as_ref().map(|stages| &stages.asked);
        Ok(match asked.and_then(|asked| asked.get(machine)) {
            Some(requests) => Next::Measure(requests.clone()),
            None if self.is_over => Next::Nothing,
            None => Next::Wait,
        })
    }

    fn begun(
        &mut self,
        machine: &str,
        _requests: &[RunRequest],
        _known: &Knowledge,
    ) -> Result<(), RunError> {
        if let Some(stages) = &mut self.progress {
            stages.asked.remove(machine);
        }
        Ok(())
    }
}

impl Confirm {
    /// Fills the next stage in which anything is to be measured; it is over where there is none.
    fn go_on(&mut self, known: &Knowledge) -> Result<(), RunError> {
        let plan = known.plan;
        let policy = policy(plan);
        let all_stages: Vec<Stage> = policy.stages().into_iter().collect();
        let is_ours =
            |run: u32| machine_of(plan, run as usize).is_none_or(|it| known.machines.contains(it));
        let is_kept = |digest: Key| known.artifacts.has(digest);
        let is_built = |run: u32| {
            let cell = plan.steps.runs.cells[run as usize] as usize;
            plan.is_there(cell, &is_kept)
        };
        let is_there = |run: u32| is_ours(run) && is_built(run);
        let answers = eligible(known, self.preset.as_deref(), &is_there)?;
        let stages = match &mut self.progress {
            Some(stages) => stages,
            None => self.progress.insert(Stages {
                plan_number: known.plan_number,
                next: 0,
                left: policy.runs(made(known, &answers, &is_ours)?),
                is_begun: answers.iter().any(|answer| begun(answer).is_some()),
                asked: BTreeMap::new(),
            }),
        };
        while let Some(stage) = all_stages.get(stages.next).copied() {
            stages.next += 1;
            let promise = promise(plan, &answers, stages.is_begun, stage);
            let (candidates, promise): (Vec<RerunCandidate>, Vec<f64>) =
                promise.into_iter().unzip();
            // By first round: what was begun apart goes on side by side, out of one budget.
            let mut chosen: BTreeMap<Option<u32>, BTreeSet<RunPair>> = BTreeMap::new();
            for index in afforded(&promise, stage, &mut stages.left) {
                let (first, runs) = candidates[index];
                chosen.entry(first).or_default().insert(runs);
            }
            if chosen.is_empty() {
                break;
            }
            stages.is_begun = true;
            let mut wanted: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
            for (first, chosen) in chosen {
                let first = match first {
                    Some(first) => first,
                    None => begin(known, &answers, &chosen)?,
                };
                let rounds = first + stage.from..first + stage.to;
                for run in chosen.into_iter().flatten() {
                    wanted.entry(run).or_default().extend(rounds.clone());
                }
            }
            stages.asked = extra_rounds(known, wanted)?;
            if !stages.asked.is_empty() {
                return Ok(());
            }
        }
        self.is_over = true;
        end(known, &is_ours)
    }
}

/// Notes that the confirmations of the machines at hand have ended: all of them, those too that cannot be measured
/// any more (accepted since, without a build, or of a metric that is gone). Other machines may have their turn later.
fn end(known: &Knowledge, is_ours: &dyn Fn(u32) -> bool) -> Result<(), RunError> {
    let plan = known.plan;
    let store = known.site.store.borrow();
    let mut done = unfinished(plan, &store)?;
    let ours = plan.steps.runs.keys.iter().zip(0..);
    let ours: BTreeSet<&Key> = ours
        .filter(|(_, run)| is_ours(*run))
        .map(|it| it.0)
        .collect();
    done.retain(|pair| ours.contains(&pair.0) && ours.contains(&pair.1));
    Ok(store.confirmed(&done)?)
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
    known: &Knowledge,
    preset: Option<&str>,
    is_built: &dyn Fn(u32) -> bool,
) -> Result<Vec<Answer>, RunError> {
    let plan = known.plan;
    let store = known.site.store.borrow();
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
fn made(
    known: &Knowledge,
    answers: &[Answer],
    is_ours: &dyn Fn(u32) -> bool,
) -> Result<usize, RunError> {
    let mut first: BTreeMap<u32, u32> = BTreeMap::new();
    for (answer, again) in answers.iter().filter_map(|it| Some((it, begun(it)?))) {
        for run in runs_of(known.plan, answer) {
            let first = first.entry(run).or_insert(again.noted.first_round);
            *first = (*first).min(again.noted.first_round);
        }
    }
    let compares = known.plan.compares.iter();
    let cells =
        compares.flat_map(|compare| known.plan.steps.runs.of_cell.iter().zip(&compare.of_cell));
    let compared = cells.filter(|(_, group)| **group != NONE);
    let compared = compared.map(|(run, _)| *run);
    let runs: BTreeSet<u32> = compared.filter(|run| is_ours(*run)).collect();
    let screen = |(run, rounds): (u32, Vec<u32>)| {
        let is_screen = |round: &&u32| first.get(&run).is_none_or(|first| *round < first);
        rounds.iter().filter(is_screen).count()
    };
    Ok(ended(known, &runs)?.into_iter().map(screen).sum())
}

/// The rounds of run steps that are stored.
fn ended(known: &Knowledge, runs: &BTreeSet<u32>) -> Result<BTreeMap<u32, Vec<u32>>, RunError> {
    // Run steps are sorted by key, so these ascend.
    let keys: Vec<_> = runs
        .iter()
        .map(|run| known.plan.steps.runs.keys[*run as usize])
        .collect();
    let stored = known.site.store.borrow().finished(&keys)?;
    let rounds = runs
        .iter()
        .enumerate()
        .map(|(at, run)| (*run, stored.rounds(at).collect()));
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
fn begin(
    known: &Knowledge,
    answers: &[Answer],
    chosen: &BTreeSet<RunPair>,
) -> Result<u32, RunError> {
    let first = next_round(known, &chosen.iter().flatten().copied().collect())?;
    let open = answers.iter().filter(|answer| {
        answer.again.is_none()
            && answer.promise.is_some()
            && chosen.contains(&runs_of(known.plan, answer))
    });
    let pairs: Vec<Pair> = open.map(|answer| answer.pair.clone()).collect();
    known.site.store.borrow().confirming(&pairs, first)?;
    Ok(first)
}

/// The first round that none of the run steps has: all begin there together.
pub fn next_round(known: &Knowledge, runs: &BTreeSet<u32>) -> Result<u32, RunError> {
    let stored = ended(known, runs)?;
    let last = stored.values().flatten().max();
    Ok(last.map_or(0, |last| last + 1))
}

/// Of the rounds that are wanted of run steps those that they do not have, by machine; says so.
pub(super) fn extra_rounds(
    known: &Knowledge,
    wanted: BTreeMap<u32, BTreeSet<u32>>,
) -> Result<BTreeMap<String, Vec<RunRequest>>, RunError> {
    let had = ended(known, &wanted.keys().copied().collect())?;
    let mut requests: BTreeMap<String, Vec<RunRequest>> = BTreeMap::new();
    let (mut cells, mut measurements) = (0, 0);
    for (run, rounds) in wanted {
        let had = had.get(&run).map_or(&[][..], Vec::as_slice);
        let missing = rounds.into_iter().filter(|round| !had.contains(round));
        let rounds: Vec<u32> = missing.collect();
        if !rounds.is_empty() {
            cells += 1;
            measurements += rounds.len() as u64;
            let machine = machine_of(known.plan, run as usize).unwrap_or("");
            let own = requests.entry(machine.to_owned()).or_default();
            own.push(RunRequest { run, rounds });
        }
    }
    if cells > 0 {
        known.site.tell(Event::Again {
            cells,
            measurements,
        });
    }
    Ok(requests)
}
