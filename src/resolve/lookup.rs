//! What the store knows of a plan: finished rounds, samples, durations, failures.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::key::Key;
use crate::base::sample::Sample;
use crate::config::matrix::Repeat;
use crate::edge::artifact::Artifacts;
use crate::edge::store::{Finished, StepKind, Store, StoreError};
use crate::plan::dag::{Durations, Plan, Todo};
use crate::plan::steps::Subject;
use crate::resolve::repeat::Repetition;
use crate::resolve::samples::Samples;

/// Time that a run step takes beside the measurement itself, where nothing is known.
const RUN_OVERHEAD: Duration = Duration::from_millis(500);
/// A set-up of which nothing is known.
const SETUP_GUESS: Duration = Duration::from_millis(300);
/// A build of which nothing is known.
const BUILD_GUESS: Duration = Duration::from_secs(60);

/// What is stored of a plan's run steps.
pub struct Known {
    pub rounds: Finished,
    pub todo: Todo,
    /// Artifacts of the plan that are there.
    kept: HashSet<Key>,
    pub repetition: Repetition,
}

impl Known {
    /// Whether what a run step measures is there.
    pub fn is_built(&self, plan: &Plan, run: usize) -> bool {
        let cell = plan.steps.runs.cells[run] as usize;
        plan.is_there(cell, &|digest| self.kept.contains(&digest))
    }

    /// Whether a run step was measured and is to be measured again: what it takes is known.
    pub fn is_partly_done(&self, run: usize) -> bool {
        self.todo.rounds[run] > 0 && self.rounds.count(run) > 0
    }

    /// Whether an artifact of the plan is there.
    pub fn is_kept(&self, digest: Key) -> bool {
        self.kept.contains(&digest)
    }

    /// Artifacts that are to be measured and are not there any more.
    pub fn gone(&self, plan: &Plan) -> BTreeSet<Key> {
        let runs = (0..plan.steps.runs.len()).filter(|run| self.todo.rounds[*run] > 0);
        let gone = runs.filter(|run| !self.is_built(plan, *run));
        gone.filter_map(
            |run| match plan.subject_of(plan.steps.runs.cells[run] as usize) {
                Subject::Artifact(digest) => Some(digest),
                Subject::Installed(_) | Subject::Unbuilt(_) => None,
            },
        )
        .collect()
    }

    /// Leaves nothing to do on other machines than these.
    pub fn keep_only(&mut self, plan: &Plan, names: &BTreeSet<String>) {
        let mut rounds = self.todo.rounds.clone();
        for (run, rounds) in rounds.iter_mut().enumerate() {
            if machine_of(plan, run).is_some_and(|name| !names.contains(name)) {
                *rounds = 0;
            }
        }
        self.todo = plan.todo(rounds, &|digest| self.kept.contains(&digest));
    }

    /// Makes so many rounds of every run step what is to be done, with the builds that they need.
    pub fn measure_all(&mut self, plan: &Plan, rounds: u32) {
        let rounds = vec![rounds; plan.steps.runs.len()];
        self.todo = plan.todo(rounds, &|digest| self.kept.contains(&digest));
    }

    /// Names of the machines on which there is something to do, or of `all`.
    pub fn machines(&self, plan: &Plan, all: bool) -> BTreeSet<String> {
        let runs = self.todo.rounds.iter().enumerate();
        runs.filter(|(_, rounds)| all || **rounds > 0)
            .filter_map(|(run, _)| machine_of(plan, run).map(str::to_owned))
            .collect()
    }
}

/// The machine of a run step.
pub fn machine_of<'p>(plan: &'p Plan, run: usize) -> Option<&'p str> {
    let axis = plan.cells.axis("machine")?;
    Some(plan.cells.label(plan.cell_of(run), axis))
}

/// Looks a plan up whose cells are measured as often as `repeat` says. The error is a store that cannot be read, or an `until` that cannot be computed.
pub fn known(
    plan: &Plan,
    repeat: &Repeat,
    store: Option<&Store>,
    artifacts: &Artifacts,
) -> Result<Known, LookupError> {
    let keys = &plan.steps.runs.keys;
    let rounds = match store {
        Some(store) => store.finished(keys)?,
        None => Finished::nothing(keys.len()),
    };
    let mut repetition = Repetition::of(plan, repeat);
    if let (Some(store), true) = (store, repeat.until.is_some()) {
        let samples = Samples::of(plan, store)?;
        for run in 0..keys.len() as u32 {
            for round in by_round(plan, &samples, run).map_err(LookupError::Template)? {
                let Some(first) = round.iter().flatten().next() else {
                    continue;
                };
                let values: Vec<Option<f64>> =
                    round.iter().map(|it| Some(it.as_ref()?.value)).collect();
                repetition.add(run, first.session, first.round, &values);
            }
        }
    }
    let mut missing = Vec::with_capacity(keys.len());
    for run in 0..keys.len() {
        // Rounds of a step that was begun beside others do not begin at 0.
        let had = u32::try_from(rounds.count(run)).unwrap_or(u32::MAX);
        missing.push(match repeat.min.saturating_sub(had) {
            0 if repeat.until.is_some() => {
                let enough = repetition.is_enough(plan, run as u32);
                u32::from(!enough.map_err(LookupError::Template)?)
            }
            least => least,
        });
    }
    let all = plan.steps.subjects.artifacts().into_iter();
    let kept: HashSet<Key> = all.filter(|digest| artifacts.has(*digest)).collect();
    Ok(Known {
        todo: plan.todo(missing, &|digest| kept.contains(&digest)),
        kept,
        rounds,
        repetition,
    })
}

/// The values of the declared metrics in one round, in the order of the file.
type RoundValues = Vec<Option<Sample>>;

/// Samples of the declared metrics of a run step, by round; a round without one that it should have does
/// not count.
fn by_round(plan: &Plan, samples: &Samples, run: u32) -> Result<Vec<RoundValues>, String> {
    let cell = plan.steps.runs.cells[run as usize];
    let names = plan
        .metric_names(cell)
        .map_err(|diagnostic| diagnostic.message)?;
    let series: Vec<&[Sample]> = names
        .iter()
        .map(|name| samples.get(run, name).samples)
        .collect();
    let mut rounds: BTreeMap<(i64, u32), RoundValues> = BTreeMap::new();
    for (metric, samples) in series.iter().enumerate() {
        for sample in *samples {
            let place = (sample.session, sample.round);
            let round = rounds.entry(place);
            round.or_insert_with(|| vec![None; series.len()])[metric] = Some(*sample);
        }
    }
    let may_lack = |metric: usize| names[metric].is_empty() || plan.matrix.metrics[metric].optional;
    rounds.retain(|_, round| {
        let mut values = round.iter().enumerate();
        values.all(|(metric, value)| value.is_some() || may_lack(metric))
    });
    Ok(rounds.into_values().collect())
}

/// A cell of which no sample was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Failed {
    pub cell: String,
    pub reason: String,
}

/// Why a run step failed the last time, by number.
pub fn failures(plan: &Plan, store: &Store) -> Result<HashMap<usize, String>, StoreError> {
    let keys = &plan.steps.runs.keys;
    let failures = store.failures(keys)?;
    let by_run = failures
        .into_iter()
        .filter_map(|failure| Some((keys.binary_search(&failure.key).ok()?, failure.reason)));
    Ok(by_run.collect())
}

/// How long steps took, or may take.
pub struct StepTimes {
    durations: HashMap<Key, Duration>,
    typical: [Duration; 3],
}

impl StepTimes {
    /// Of builds, set-ups and the run steps for which `is_wanted`.
    pub fn of(
        plan: &Plan,
        store: Option<&Store>,
        is_wanted: &dyn Fn(usize) -> bool,
    ) -> Result<StepTimes, StoreError> {
        let guess = Duration::try_from_secs_f64(plan.seconds).unwrap_or_default() + RUN_OVERHEAD;
        let mut past = StepTimes {
            durations: HashMap::new(),
            typical: [BUILD_GUESS, SETUP_GUESS, guess],
        };
        let Some(store) = store else { return Ok(past) };
        let steps = &plan.steps;
        let shared = steps
            .setups
            .iter()
            .map(Rc::as_ref)
            .chain([&steps.builds])
            .flat_map(|shared| &shared.steps);
        let runs = steps.runs.keys.iter().enumerate();
        let runs = runs.filter(|(run, _)| is_wanted(*run)).map(|(_, key)| *key);
        let mut keys: Vec<Key> = shared.map(|step| step.key).chain(runs).collect();
        keys.sort_unstable();
        keys.dedup();
        for (key, duration) in keys.iter().zip(store.durations(&keys)?) {
            past.durations
                .extend(duration.map(|duration| (*key, duration)));
        }
        // A declared duration of this preset says more than what other presets took, but not of a machine where
        // nothing runs.
        let runs_nothing = plan.null_machines().iter().all(|is_null| *is_null);
        let mut words = plan.matrix.run.commands().flat_map(|argv| &argv.words);
        let declared = words.any(|word| word.mentions.iter().any(|name| name == "seconds"));
        for (kind, typical) in StepKind::ALL.into_iter().zip(&mut past.typical) {
            if kind == StepKind::Run && declared && !runs_nothing {
                continue;
            }
            if let Some(known) = store.typical_duration(&plan.matrix.name, kind)? {
                *typical = known;
            }
        }
        Ok(past)
    }

    /// Calls `with` with look-ups for the planner.
    pub fn with<T>(&self, with: impl FnOnce(&Durations) -> T) -> T {
        let of = |typical: Duration| {
            move |key: Key| self.durations.get(&key).copied().unwrap_or(typical)
        };
        let [build, setup, run] = self.typical;
        with(&Durations {
            build: &of(build),
            setup: &of(setup),
            run: &of(run),
        })
    }
}

/// A plan could not be looked up.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Template(String),
}
