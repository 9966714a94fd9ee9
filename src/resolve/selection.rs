//! Which steps are measured though they are stored, and which are left out though they are not.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::key::{Key, KeyHasher};
use crate::base::units::{count, show_duration};
use crate::edge::store::{Store, StoreError};
use crate::machine::environment::{Environment, in_short};
use crate::plan::dag::{ComparePlan, Durations, Plan, Todo, groups};
use crate::plan::steps::{NONE, Subject};
use crate::resolve::environment_match::EnvironmentMatch;
use crate::resolve::lookup::{Known, LookupError, StepTimes, failures, machine_of};
use crate::resolve::prepare::Machines;

/// What the user asks for beside what is missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct SelectionOptions {
    /// Measure again whatever is stored.
    pub fresh: bool,
    /// Only what failed last time.
    pub failed: bool,
    /// Older samples are measured again.
    pub max_age: Option<Duration>,
    /// How long it all may take.
    pub budget: Option<Duration>,
}

/// What a budget has no room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LeftOut {
    pub cells: usize,
    pub measurements: u64,
    pub estimate_s: f64,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let time = Duration::try_from_secs_f64(self.estimate_s).unwrap_or_default();
        write!(
            f,
            "left out, as the budget has no room: {}, {}, about {}",
            count(self.cells, "cell"),
            count(self.measurements as usize, "measurement"),
            show_duration(time)
        )
    }
}

impl LeftOut {
    /// Adds what another part has left out.
    pub fn add(&mut self, other: LeftOut) {
        self.cells += other.cells;
        self.measurements += other.measurements;
        self.estimate_s += other.estimate_s;
    }
}

/// How far clocks of machines may differ, in milliseconds.
const CLOCK_MS_MAX: i64 = 3_600_000;

/// Why a run step is measured though it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Again {
    Forced,
    TooOld {
        age: Duration,
        max_age: Duration,
    },
    /// A clock was wrong when it was measured: its age is not known.
    FromTheFuture {
        ahead: Duration,
    },
    /// What it is compared with is measured now, and the machine is not what it was: how it differs.
    Elsewhere(Rc<str>),
    /// What it is compared with is measured for the first time: sessions differ, so both sides are measured in one.
    Beside,
}

/// Rounds of a stored side beside a new one.
const BESIDE_ROUNDS: u32 = 2;

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Again::Forced => f.write_str("measured again: `--fresh`"),
            Again::TooOld { age, max_age } => {
                write!(f, "too old ({} > {})", show_age(*age), show_age(*max_age))
            }
            Again::FromTheFuture { ahead } => {
                write!(f, "measured {} from now, by its clock", show_age(*ahead))
            }
            Again::Elsewhere(shifts) => write!(f, "environment differs: {shifts}"),
            Again::Beside => f.write_str("measured beside what is new, as sessions differ"),
        }
    }
}

/// A plan looked up, and what of it is to be done.
pub struct Chosen {
    pub known: Known,
    /// The first round that counts, by run step, where that is not all that is stored.
    begins: BTreeMap<usize, u32>,
    /// Run steps that miss something and are out.
    pub put_out: usize,
    /// By run step.
    pub again: BTreeMap<usize, Again>,
    pub out: Out,
}

/// Cells that are not measured, whatever is missing of them. It holds for other plans of the same cells
/// too: builds change keys, not cells.
#[derive(Clone, Debug, Default)]
pub struct Out {
    /// By cell; empty where none is out.
    cells: Vec<bool>,
    pub left_out: LeftOut,
}

impl Chosen {
    /// The rounds that a run step misses, ascending: the gaps between those that it has first, then rounds after
    /// the last one.
    pub fn missing(&self, run: usize) -> Vec<u32> {
        let begin = self.begins.get(&run).copied().unwrap_or(0);
        if self.again.get(&run) == Some(&Again::Beside) {
            let least = self.known.repetition.repeat.min;
            return spread_rounds(begin, least, self.known.todo.rounds[run]);
        }
        let had = self.known.rounds.rounds(run).collect();
        missing_rounds(begin, &had, self.known.todo.rounds[run])
    }
}

/// The first `n` rounds from `begin` on that are not there.
fn missing_rounds(begin: u32, had: &BTreeSet<u32>, n: u32) -> Vec<u32> {
    let rounds = begin..=u32::MAX;
    let missing = rounds.filter(|round| !had.contains(round));
    missing.take(n as usize).collect()
}

/// `n` of the `of` rounds from `begin` on, as far apart as they go.
fn spread_rounds(begin: u32, of: u32, n: u32) -> Vec<u32> {
    let last = of.saturating_sub(1);
    let gaps = n.saturating_sub(1).max(1);
    (0..n).map(|i| begin + i * last / gaps).collect()
}

/// Chooses of a plan that was looked up, on the machines of these names or on all. `now_ms`: milliseconds
/// since 1970-01-01 UTC.
pub fn choose(
    plan: &Plan,
    known: Known,
    store: Option<&Store>,
    asked: &SelectionOptions,
    machines: &Machines,
    names: Option<&BTreeSet<String>>,
    now_ms: i64,
) -> Result<Chosen, LookupError> {
    let mut chosen = renew(plan, known, store, asked, machines, now_ms)?;
    if let Some(names) = names {
        chosen.known.keep_only(plan, names);
    }
    if asked.failed {
        let failed = match store {
            Some(store) => failed(plan, &chosen.known, store)?,
            None => HashSet::new(),
        };
        chosen.put_out(plan, |run| !failed.contains(&run));
    }
    if let Some(budget) = asked.budget {
        let rounds = &chosen.known.todo.rounds;
        let past = StepTimes::of(plan, store, &|run| rounds[run] > 0)?;
        let (left_out, runs) = past.with(|durations| chosen.beyond(plan, durations, budget));
        chosen.out.left_out = left_out;
        chosen.put_out(plan, |run| runs.contains(&run));
    }
    Ok(chosen)
}

/// As [`choose`], with cells left out that an earlier plan of the same cells has chosen.
pub fn choose_again(
    plan: &Plan,
    known: Known,
    store: &Store,
    asked: &SelectionOptions,
    machines: &Machines,
    out: &Out,
    now_ms: i64,
) -> Result<Chosen, LookupError> {
    let mut chosen = renew(plan, known, Some(store), asked, machines, now_ms)?;
    chosen.out = out.clone();
    chosen.leave_out(plan);
    Ok(chosen)
}

/// What is stored but is to be measured again: all of it, or what is too old, or what would be compared with what
/// is measured now though the machine is another one since.
fn renew(
    plan: &Plan,
    mut known: Known,
    store: Option<&Store>,
    asked: &SelectionOptions,
    machines: &Machines,
    now_ms: i64,
) -> Result<Chosen, LookupError> {
    let runs = plan.steps.runs.len();
    let mut again = BTreeMap::new();
    let mut young_ones: BTreeMap<usize, u32> = BTreeMap::new();
    let mut missing = known.todo.rounds.clone();
    let least = known.repetition.repeat.min;
    // When the oldest rounds that count were taken.
    let mut oldest_ms = i64::MIN;
    if asked.fresh {
        for (run, missing) in missing.iter_mut().enumerate() {
            if known.rounds.count(run) > 0 {
                *missing = least;
                again.insert(run, Again::Forced);
            }
        }
    } else if let (Some(max_age), Some(store)) = (asked.max_age.or(plan.max_age), store) {
        let age_ms = i64::try_from(max_age.as_millis()).unwrap_or(i64::MAX);
        oldest_ms = now_ms.saturating_sub(age_ms);
        let latest_ms = now_ms.saturating_add(age_ms.min(CLOCK_MS_MAX));
        let mut ahead_ms = BTreeMap::new();
        let mut taken: Vec<Vec<i64>> = vec![Vec::new(); runs];
        store.for_each_round(&plan.steps.runs.keys, |run, started_ms, _| {
            let is_ahead = started_ms > latest_ms;
            if is_ahead {
                ahead_ms.insert(run, started_ms.saturating_sub(now_ms));
            }
            taken[run].push(match is_ahead {
                true => i64::MIN,
                false => started_ms,
            });
        })?;
        for (run, mut taken) in taken.into_iter().enumerate() {
            taken.sort_unstable_by(|a, b| b.cmp(a));
            taken.truncate(least as usize);
            let young = taken.iter().filter(|taken| **taken >= oldest_ms).count() as u32;
            let Some(oldest) = taken.last().filter(|oldest| **oldest < oldest_ms) else {
                continue;
            };
            let millis = |ms: i64| Duration::from_millis(ms.max(0) as u64);
            let reason = match ahead_ms.get(&run) {
                Some(ahead) => Again::FromTheFuture {
                    ahead: millis(*ahead),
                },
                None => Again::TooOld {
                    age: millis(now_ms.saturating_sub(*oldest)),
                    max_age,
                },
            };
            missing[run] = least.saturating_sub(young).max(1);
            young_ones.insert(run, young);
            again.insert(run, reason);
        }
    }
    if let (false, Some(store)) = (asked.fresh, store) {
        let found = elsewhere(plan, &known, &missing, store, machines, oldest_ms)?;
        for (run, (young, shifts)) in found {
            again.entry(run).or_insert(Again::Elsewhere(shifts));
            missing[run] = least.saturating_sub(young).max(1);
            young_ones.insert(run, young);
        }
    }
    if let (false, Some(store)) = (asked.fresh, store) {
        let repeat = &known.repetition.repeat;
        let rounds = match repeat.until {
            // The interval decides, and that is of both sides.
            Some(_) => least,
            None => least.min(BESIDE_ROUNDS),
        };
        for run in beside(plan, &known, &missing, store)? {
            again.insert(run, Again::Beside);
            missing[run] = rounds;
        }
    }
    // All begin together, also what was never measured, so that rounds pair.
    let last = again
        .keys()
        .filter_map(|run| known.rounds.rounds(*run).last());
    let first = last.max().map_or(0, |last| last + 1);
    let mut begins = BTreeMap::new();
    if !again.is_empty() {
        let never = (0..runs).filter(|run| known.rounds.count(*run) == 0);
        begins.extend(never.map(|run| (run, first)));
    }
    for &run in again.keys() {
        let young = young_ones.get(&run).copied().unwrap_or(0);
        known.repetition.keep_last(run as u32, young as usize);
        begins.insert(run, first);
    }
    if !again.is_empty() {
        known.todo = plan.todo(missing, &|digest| known.is_kept(digest));
    }
    Ok(Chosen {
        known,
        begins,
        again,
        put_out: 0,
        out: Out::default(),
    })
}

/// Run steps that are stored, not due, and compared on an axis that is confirmed with one that is measured for the first
/// time.
fn beside(
    plan: &Plan,
    known: &Known,
    missing: &[u32],
    store: &Store,
) -> Result<BTreeSet<usize>, StoreError> {
    let mut found = BTreeSet::new();
    let is_new = |run: usize| missing[run] > 0 && known.rounds.count(run) == 0;
    let is_stored = |run: usize| missing[run] == 0 && known.rounds.count(run) > 0;
    if !(0..missing.len()).any(is_new) || !(0..missing.len()).any(is_stored) {
        return Ok(found);
    }
    // These are not measured.
    let broken = broken(plan, known, store)?;
    let is_new = |run: usize| is_new(run) && !broken.contains(&(run as u32));
    let confirms = |compare: &&ComparePlan| plan.matrix.compares[compare.rule].confirm;
    for compare in plan.compares.iter().filter(confirms) {
        for (baseline, candidates) in groups(plan, compare) {
            let run_of = |cell: u32| {
                let run = plan.steps.runs.of_cell[cell as usize];
                (run != NONE).then_some(run as usize)
            };
            let Some(baseline) = run_of(baseline) else {
                continue;
            };
            for candidate in candidates.into_iter().filter_map(run_of) {
                let same_machine = machine_of(plan, baseline) == machine_of(plan, candidate);
                if same_machine && is_new(candidate) && is_stored(baseline) {
                    found.insert(baseline);
                } else if same_machine && is_new(baseline) && is_stored(candidate) {
                    found.insert(candidate);
                }
            }
        }
    }
    Ok(found)
}

/// What the machine was like when a run step was measured.
#[derive(Default)]
struct Taken {
    /// How many of the last rounds count: of the present environment and not too old.
    young: u32,
    /// How the machine differs from what it was in one of them.
    differs: Option<Rc<str>>,
    /// Some round is of the present environment.
    is_here: bool,
    environments: Vec<Key>,
}

/// Run steps that were measured when their machine was another one, and that are part of a comparison of which something
/// is measured now, or the other side of which was measured since: how many of their last rounds count nevertheless, those
/// from `oldest_ms` on at the most, and how the machine differs.
fn elsewhere(
    plan: &Plan,
    known: &Known,
    missing: &[u32],
    store: &Store,
    machines: &Machines,
    oldest_ms: i64,
) -> Result<BTreeMap<usize, (u32, Rc<str>)>, StoreError> {
    let is_due = |run: &usize| missing[*run] > 0;
    let is_stored = |run: &usize| known.rounds.count(*run) > 0;
    let mut found = BTreeMap::new();
    let is_there = machines
        .iter()
        .any(|(_, machine)| machine.view().environment.is_some());
    if !is_there || !(0..missing.len()).any(|run| is_stored(&run)) {
        return Ok(found);
    }
    let mut wanted: BTreeSet<usize> = BTreeSet::new();
    // Both sides are stored, and none is due.
    let mut stored: BTreeSet<[usize; 2]> = BTreeSet::new();
    for compare in &plan.compares {
        let cells = (0..)
            .zip(&compare.of_cell)
            .filter(|(_, group)| **group != NONE);
        let cells = cells.filter_map(|(cell, group)| {
            let run = Some(plan.steps.runs.of_cell[cell]).filter(|run| *run != NONE)?;
            let is_baseline = plan.cells.cell(cell)[compare.axis] == compare.baseline;
            Some((*group as usize, is_baseline, run as usize))
        });
        // By group: whether the baseline is due, and whether a candidate is.
        let mut due = vec![[false; 2]; compare.groups];
        let mut baselines = vec![None; compare.groups];
        for (group, is_baseline, run) in cells.clone() {
            due[group][usize::from(!is_baseline)] |= is_due(&run);
            if is_baseline {
                baselines[group] = Some(run);
            }
        }
        for (group, is_baseline, run) in cells.filter(|(_, _, run)| is_stored(run)) {
            let [of_baseline, of_candidate] = due[group];
            // One of a pair is due: then the other one is looked at.
            if of_baseline || is_due(&run) || is_baseline && of_candidate {
                wanted.insert(run);
            }
            let baseline = baselines[group].filter(|baseline| {
                let machine = |run| machine_of(plan, run);
                is_stored(baseline) && *baseline != run && machine(*baseline) == machine(run)
            });
            if let (Some(baseline), false) = (baseline, of_baseline || is_due(&run)) {
                stored.insert([baseline, run]);
            }
        }
    }
    let looked: BTreeSet<usize> = stored.iter().flatten().chain(&wanted).copied().collect();
    let least = known.repetition.repeat.min;
    let taken = look_back(plan, &looked, store, machines, oldest_ms, least)?;
    let is_differing = |run: &usize| taken.get(run).is_some_and(|it| it.differs.is_some());
    let again = wanted.into_iter().filter(is_differing);
    let mut again: BTreeSet<usize> = again.collect();
    let sides = |pair: &[usize; 2]| Some([taken.get(&pair[0])?, taken.get(&pair[1])?]);
    stored.retain(|pair| sides(pair).is_some_and(|[a, b]| a.is_here != b.is_here));
    let of_pairs = stored.iter().filter_map(sides).flatten();
    let alike = EnvironmentMatch::read(
        store,
        of_pairs.flat_map(|it| it.environments.iter().copied()),
    )?;
    for pair in &stored {
        // Only one of them was measured since, beside something else or when there was no room for the other.
        if let Some([a, b]) = sides(pair)
            && alike.is_apart(&a.environments, &b.environments)
        {
            again.insert(if a.is_here { pair[1] } else { pair[0] });
        }
    }
    for run in again {
        let taken = taken.get(&run);
        let it = taken.and_then(|taken| Some((taken.young, taken.differs.clone()?)));
        found.extend(it.map(|it| (run, it)));
    }
    Ok(found)
}

/// What the machines were like when run steps were measured; `least`: rounds that are wanted of each.
fn look_back(
    plan: &Plan,
    runs: &BTreeSet<usize>,
    store: &Store,
    machines: &Machines,
    oldest_ms: i64,
    least: u32,
) -> Result<BTreeMap<usize, Taken>, StoreError> {
    // Run steps are sorted by key.
    let keys: Vec<Key> = runs.iter().map(|run| plan.steps.runs.keys[*run]).collect();
    let mut rounds: Vec<Vec<(i64, Option<Key>)>> = vec![Vec::new(); runs.len()];
    store.for_each_round(&keys, |at, started_ms, environment| {
        rounds[at].push((started_ms, environment));
    })?;
    // By machine and environment: how the machine differs from it, if it does.
    let mut shifts: HashMap<(&str, Key), Option<Rc<str>>> = HashMap::new();
    let mut all = BTreeMap::new();
    for (run, mut rounds) in runs.iter().zip(rounds) {
        let name = machine_of(plan, *run).unwrap_or("");
        let Some(machine) = machines
            .get(name)
            .filter(|it| it.view().environment.is_some())
        else {
            continue;
        };
        rounds.sort_unstable_by_key(|(started_ms, _)| Reverse(*started_ms));
        let mut taken = Taken::default();
        for (at, (started_ms, key)) in rounds.into_iter().enumerate() {
            let shifted = match key {
                Some(key) => match shifts.get(&(name, key)) {
                    Some(known) => known.clone(),
                    None => {
                        // One of a newer program cannot be compared.
                        let text = store.environment(key)?;
                        let before = text.and_then(|text| Environment::from_json(&text).ok());
                        let found = before.map_or(Vec::new(), |it| machine.shifts_since(&it));
                        let found = (!found.is_empty()).then(|| in_short(&found).into());
                        shifts.insert((name, key), found.clone());
                        found
                    }
                },
                None => None,
            };
            taken.is_here |= shifted.is_none();
            if let Some(key) = key.filter(|key| !taken.environments.contains(key)) {
                taken.environments.push(key);
            }
            if at < least as usize {
                taken.young += u32::from(shifted.is_none() && started_ms >= oldest_ms);
                taken.differs = taken.differs.or(shifted);
            }
        }
        all.insert(*run, taken);
    }
    Ok(all)
}

/// Run steps whose last attempt, or whose build's, failed.
fn failed(plan: &Plan, known: &Known, store: &Store) -> Result<HashSet<u32>, StoreError> {
    let mut failed = broken(plan, known, store)?;
    failed.extend(failures(plan, store)?.keys().map(|run| *run as u32));
    Ok(failed)
}

/// Run steps whose build failed last time.
fn broken(plan: &Plan, known: &Known, store: &Store) -> Result<HashSet<u32>, StoreError> {
    let builds = &plan.steps.builds.steps;
    let mut keys: Vec<Key> = builds.iter().map(|step| step.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let failures = store.failures(&keys)?;
    let broken: HashSet<Key> = failures.iter().map(|failure| failure.key).collect();
    let is_broken = |(run, cell): &(u32, &u32)| {
        let build = plan.build_of(**cell as usize);
        let build = build.filter(|_| !known.is_built(plan, *run as usize));
        build.is_some_and(|build| broken.contains(&builds[build as usize].key))
    };
    let runs = (0..).zip(&plan.steps.runs.cells);
    Ok(runs.filter(is_broken).map(|(run, _)| run).collect())
}

impl Chosen {
    /// Puts the cells of run steps out.
    fn put_out(&mut self, plan: &Plan, is_out: impl Fn(u32) -> bool) {
        let of_cell = &plan.steps.runs.of_cell;
        self.out.cells.resize(of_cell.len(), false);
        for (out, run) in self.out.cells.iter_mut().zip(of_cell) {
            *out |= is_out(*run);
        }
        self.leave_out(plan);
    }

    /// Takes what is out from what is to be done.
    fn leave_out(&mut self, plan: &Plan) {
        let todo = &self.known.todo;
        let mut rounds = vec![0; todo.rounds.len()];
        // A step that cells share is out when all of them are.
        let cells = plan.steps.runs.of_cell.iter().zip(&self.out.cells);
        for (run, _) in cells.filter(|(_, is_out)| !**is_out) {
            rounds[*run as usize] = todo.rounds[*run as usize];
        }
        let missed = todo.rounds.iter().zip(&rounds);
        let put_out = missed.filter(|(before, now)| *before > *now).count();
        if !self.out.cells.is_empty() {
            self.put_out += put_out;
            self.known.todo = plan.todo(rounds, &|digest| self.known.is_kept(digest));
        }
    }

    /// What a budget has no room for. What tells most comes first: what was never measured, then what is
    /// too old, the oldest first, or not settled, then the rest. Cells that are compared with each other
    /// stand together, the baseline first: without it the others tell nothing. Groups of them come in an
    /// order that spreads over the matrix.
    fn beyond(
        &self,
        plan: &Plan,
        durations: &Durations,
        budget: Duration,
    ) -> (LeftOut, HashSet<u32>) {
        let todo = &self.known.todo;
        let mut compared: HashSet<usize> = plan.compares.iter().map(|it| it.axis).collect();
        compared.extend(plan.cells.axis("version"));
        let group = |run: u32| {
            let mut group = KeyHasher::new("spread");
            for (axis, value) in plan.cell_of(run as usize).iter().enumerate() {
                if !compared.contains(&axis) {
                    group.bytes(&value.to_le_bytes());
                }
            }
            group.finish()
        };
        let worth = |run: u32| {
            let again = self.again.get(&(run as usize));
            let age = match again {
                Some(Again::TooOld { age, .. }) => *age,
                _ => Duration::ZERO,
            };
            let is_stored = self.known.rounds.count(run as usize) > 0;
            let is_settled = again == Some(&Again::Forced);
            (is_stored, is_settled, Reverse(age))
        };
        let mut wanted: Vec<u32> = (0..todo.rounds.len() as u32).collect();
        wanted.retain(|run| todo.rounds[*run as usize] > 0);
        // What is measured again only beside others is worth as much as these.
        let is_beside = |run: u32| {
            let again = self.again.get(&(run as usize));
            matches!(again, Some(Again::Elsewhere(_) | Again::Beside))
        };
        let mut best = HashMap::new();
        for run in wanted.iter().copied().filter(|run| !is_beside(*run)) {
            let best = best.entry(group(run)).or_insert(worth(run));
            *best = worth(run).min(*best);
        }
        let rank = |run: &u32| {
            let group = group(*run);
            let worth = match is_beside(*run) {
                // The others are stored, and tell nothing without it.
                true => best.get(&group).copied().unwrap_or_default(),
                false => worth(*run),
            };
            let cell = plan.cell_of(*run as usize);
            let is_other = |it: &&ComparePlan| cell[it.axis] != it.baseline;
            let others = plan.compares.iter().filter(is_other).count();
            (worth, group, others)
        };
        wanted.sort_by_cached_key(rank);
        let mut spent = Spent::new(plan, todo);
        let mut left_out = LeftOut::default();
        wanted.retain(|run| !spent.add(*run, durations, budget));
        // What never fits is done where a machine would have nothing else to do, one in a session: it would wait
        // for ever, and its time is only a guess until then.
        if budget > Duration::ZERO {
            wanted.retain(|run| !spent.add_first(*run, durations));
        }
        for run in &wanted {
            let rounds = todo.rounds[*run as usize];
            let each = (durations.run)(plan.steps.runs.keys[*run as usize]);
            left_out.cells += 1;
            left_out.measurements += u64::from(rounds);
            left_out.estimate_s += (each * rounds).as_secs_f64();
        }
        (left_out, wanted.into_iter().collect())
    }
}

/// The time that what was chosen takes, by machine.
struct Spent<'a> {
    plan: &'a Plan<'a>,
    todo: &'a Todo,
    machine: usize,
    slots: Vec<u32>,
    by_machine: BTreeMap<u16, Duration>,
    builds: HashSet<u32>,
    setups: HashSet<(usize, u32)>,
}

impl<'a> Spent<'a> {
    fn new(plan: &'a Plan, todo: &'a Todo) -> Spent<'a> {
        Spent {
            plan,
            todo,
            machine: plan.cells.axis("machine").unwrap_or(0),
            slots: plan.slots(),
            by_machine: BTreeMap::new(),
            builds: HashSet::new(),
            setups: HashSet::new(),
        }
    }

    /// Adds a run step with what it needs, if nothing is to be done on its machine.
    fn add_first(&mut self, run: u32, durations: &Durations) -> bool {
        let cell = self.plan.run_step(run).cell as usize;
        let machine = self.plan.cells.cell(cell)[self.machine];
        let is_idle = self.by_machine.get(&machine).is_none_or(Duration::is_zero);
        is_idle && self.add(run, durations, Duration::MAX)
    }

    /// Adds a run step with what it needs, if there is room.
    fn add(&mut self, run: u32, durations: &Durations, budget: Duration) -> bool {
        let Spent { plan, todo, .. } = *self;
        let step = plan.run_step(run);
        let machine = plan.cells.cell(step.cell as usize)[self.machine];
        let slots = self.slots[usize::from(machine)];
        let mut cost = (durations.run)(step.key) * todo.rounds[run as usize] / slots;
        let is_built = !matches!(plan.subject_of(step.cell as usize), Subject::Unbuilt(_));
        let build = plan.build_of(step.cell as usize).filter(|build| {
            !is_built && todo.builds[*build as usize] && !self.builds.contains(build)
        });
        if let Some(build) = build {
            cost += (durations.build)(plan.steps.builds.steps[build as usize].key);
        }
        let setups = plan.setups_of(step.cell);
        let setups: Vec<(usize, u32)> = setups.filter(|it| !self.setups.contains(it)).collect();
        for (setup, step) in &setups {
            let key = plan.steps.setups[*setup].steps[*step as usize].key;
            cost += (durations.setup)(key) / slots;
        }
        let spent = self.by_machine.entry(machine).or_default();
        let total = spent.saturating_add(cost);
        if total > budget {
            return false;
        }
        *spent = total;
        self.builds.extend(build);
        self.setups.extend(setups);
        true
    }
}

/// In the largest unit of which there are two: cells of about one age are told together.
fn show_age(age: Duration) -> String {
    const UNITS: [(f64, &str); 3] = [(86_400.0, "d"), (3_600.0, "h"), (60.0, "min")];
    let seconds = age.as_secs_f64();
    let unit = UNITS.iter().find(|(unit, _)| seconds >= 2.0 * unit);
    let (unit, name) = unit.unwrap_or(&(1.0, "s"));
    format!("{:.0} {name}", seconds / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_beside_span_the_others() {
        assert_eq!(spread_rounds(5, 5, 2), [5, 9]);
        assert_eq!(spread_rounds(3, 1, 1), [3]);
        assert_eq!(spread_rounds(0, 4, 4), [0, 1, 2, 3]);
        assert_eq!(spread_rounds(7, 2, 2), [7, 8]);
    }

    #[test]
    fn gaps_are_filled_first() {
        let check = |begin: u32, had: &[u32], n: u32, expected: &[u32]| {
            let had = had.iter().copied().collect();
            assert_eq!(missing_rounds(begin, &had, n), expected);
        };
        check(0, &[], 3, &[0, 1, 2]);
        check(0, &[0, 2], 3, &[1, 3, 4]);
        // It began beside others that had more rounds: only what is missing.
        check(0, &[5, 6], 1, &[0]);
        // Those before the beginning do not count.
        check(7, &[0, 1, 8], 2, &[7, 9]);
        check(0, &[0, 1], 0, &[]);
    }
}
