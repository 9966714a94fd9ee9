//! The order of a run: a state machine from events to the next action on each machine. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::config::matrix::{Repeat, SetupScope};
use crate::plan::dag::{Plan, StoredRounds, Todo};

/// What a machine is to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a set-up step, in the folder that is its own.
    SetUp {
        setup: usize,
        step: u32,
    },
    /// Undo a set-up step.
    Undo {
        setup: usize,
        step: u32,
    },
    Measure {
        run: u32,
        round: u32,
    },
    /// A set-up that the run step needs cannot be made: it fails without being tried.
    GiveUp {
        run: u32,
        round: u32,
        reason: String,
    },
}

/// What came of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completed {
    SetUp {
        setup: usize,
        step: u32,
        error: Option<String>,
    },
    Undo {
        setup: usize,
        step: u32,
    },
    Measured {
        run: u32,
        round: u32,
        outcome: MeasureOutcome,
    },
    GaveUp {
        run: u32,
        round: u32,
    },
}

/// What came of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeasureOutcome {
    /// A sample was taken; `enough` says whether the repetition rule is satisfied.
    Sample { enough: bool },
    /// No sample; the cell is not tried again.
    Failed,
    /// No sample, because we were told to stop.
    Interrupted,
}

/// A set-up that is there at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LiveStep {
    setup: usize,
    step: u32,
    round: u32,
    /// Run steps measured since it was made.
    used: bool,
}

/// The rounds that a run step still wants.
#[derive(Clone, Debug, Default)]
struct WantedRounds {
    /// All rounds below this one are stored.
    first: u32,
    /// Rounds above it that are stored.
    have: BTreeSet<u32>,
    /// All rounds below this one are wanted.
    target: u32,
    /// Adaptive repetition does not go beyond this one; other repetition does not go beyond what is
    /// wanted at first.
    max: u32,
    /// It failed in this session, or a slot is at it: it is not to be picked.
    is_out: bool,
}

impl WantedRounds {
    /// `rounds` more than there are: the gaps from `begin` on first, then rounds after the last one.
    fn new(have: StoredRounds, rounds: u32, repeat: &Repeat) -> WantedRounds {
        let mut wanted = WantedRounds {
            first: have.begin,
            have: have.rounds.into_iter().collect(),
            ..WantedRounds::default()
        };
        wanted.target = wanted.first;
        wanted.skip();
        let mut missing = rounds;
        while missing > 0 {
            missing -= u32::from(!wanted.has(wanted.target));
            wanted.target += 1;
        }
        let max = repeat.max.saturating_sub(have.counted);
        wanted.max = match repeat.until {
            Some(_) => have.begin.saturating_add(max),
            None => wanted.target,
        };
        wanted
    }

    fn has(&self, round: u32) -> bool {
        round < self.first || self.have.contains(&round)
    }

    fn add(&mut self, round: u32) {
        self.have.insert(round);
        self.skip();
    }

    fn skip(&mut self) {
        while self.have.remove(&self.first) {
            self.first += 1;
        }
    }

    /// The next round to measure.
    fn next(&self) -> Option<u32> {
        (self.first < self.target).then_some(self.first)
    }
}

/// One of the measurements that a machine carries out at the same time.
#[derive(Default)]
struct Slot {
    /// An action is under way.
    is_busy: bool,
    /// The run step and the round that it is at.
    visit: Option<(u32, u32)>,
    /// A stack in the order of the file.
    live: Vec<LiveStep>,
}

/// One machine: its visits of a round in order, which its slots share.
struct MachineLane {
    runs: Vec<u32>,
    round: u32,
    queue: VecDeque<u32>,
    /// Nothing can be put into the queue until something has ended.
    is_exhausted: bool,
    slots: Vec<Slot>,
}

/// Visits of the queue that are looked at for one that a slot can take beside the others: those that
/// share a set-up stand together.
const LOOK_AHEAD: usize = 64;

/// The whole run. Machines are lanes, by their number on the `machine` axis.
///
/// A set-up belongs to one slot at a time: cells that share one are measured one after the other, also
/// where a machine has several slots.
pub struct Dispatch<'p> {
    plan: &'p Plan<'p>,
    seed: u64,
    lanes: BTreeMap<u16, MachineLane>,
    /// By run step.
    wanted: Vec<WantedRounds>,
    /// Set-up steps that could not be made in this session, with the reason.
    broken: BTreeMap<(usize, u32), String>,
    stopping: bool,
}

impl<'p> Dispatch<'p> {
    /// `have(run)` is what is stored of a run step, `slots(machine)` how many measurements a machine
    /// carries out at the same time.
    pub fn new(
        plan: &'p Plan<'p>,
        todo: &Todo,
        seed: u64,
        have: &dyn Fn(usize) -> StoredRounds,
        slots: &dyn Fn(u16) -> usize,
    ) -> Self {
        let mut lanes: BTreeMap<u16, MachineLane> = BTreeMap::new();
        let mut wanted = vec![WantedRounds::default(); todo.rounds.len()];
        let machine = plan.cells.axis("machine").unwrap_or(0);
        for (run, rounds) in todo.rounds.iter().enumerate() {
            if *rounds == 0 {
                continue;
            }
            let machine = plan.cell_of(run)[machine];
            let lane = lanes.entry(machine).or_insert_with(|| MachineLane {
                runs: Vec::new(),
                round: 0,
                queue: VecDeque::new(),
                is_exhausted: false,
                slots: (0..slots(machine).max(1))
                    .map(|_| Slot::default())
                    .collect(),
            });
            lane.runs.push(run as u32);
            wanted[run] = WantedRounds::new(have(run), *rounds, plan.repeat);
        }
        Dispatch {
            plan,
            seed,
            lanes,
            wanted,
            broken: BTreeMap::new(),
            stopping: false,
        }
    }

    /// The machines with something to do, as numbers on the `machine` axis.
    pub fn machines(&self) -> Vec<u16> {
        self.lanes.keys().copied().collect()
    }

    /// The next action of a machine and the slot that is then at it; None while all are, or when there
    /// is nothing that a free one could do.
    pub fn next(&mut self, machine: u16) -> Option<(usize, Action)> {
        let slots = self.lanes.get(&machine)?.slots.len();
        (0..slots).find_map(|slot| Some((slot, self.next_of(machine, slot)?)))
    }

    fn next_of(&mut self, machine: u16, slot: usize) -> Option<Action> {
        let lane = self.lanes.get_mut(&machine)?;
        if lane.slots[slot].is_busy {
            return None;
        }
        if self.stopping {
            if let Some((run, _)) = lane.slots[slot].visit.take() {
                self.wanted[run as usize].is_out = false;
            }
        } else if lane.slots[slot].visit.is_none() {
            let visit = pick(self.plan, self.seed, lane, slot, &mut self.wanted);
            lane.slots[slot].visit = visit;
        }
        let slot = &mut lane.slots[slot];
        let action = match slot.visit {
            Some((run, round)) => Some(next_action(self.plan, slot, run, round, &self.broken)),
            None => slot.live.last().map(undo),
        };
        slot.is_busy = action.is_some();
        action
    }

    /// Takes in what came of an action of a machine's slot.
    pub fn on(&mut self, machine: u16, slot: usize, done: Completed) {
        let Some(lane) = self.lanes.get_mut(&machine) else {
            return;
        };
        lane.is_exhausted = false;
        let slot = &mut lane.slots[slot];
        slot.is_busy = false;
        match done {
            Completed::SetUp {
                setup,
                step,
                error: None,
            } => slot.live.push(LiveStep {
                setup,
                step,
                round: slot.visit.map_or(0, |(_, round)| round),
                used: false,
            }),
            Completed::SetUp {
                setup,
                step,
                error: Some(reason),
            } => {
                self.broken.insert((setup, step), reason);
            }
            Completed::Undo { setup, step } => slot
                .live
                .retain(|live| (live.setup, live.step) != (setup, step)),
            Completed::Measured {
                run,
                round,
                outcome,
            } => {
                slot.visit = None;
                slot.live.iter_mut().for_each(|live| live.used = true);
                match outcome {
                    MeasureOutcome::Sample { enough } => self.sampled(run, round, enough),
                    MeasureOutcome::Failed => {
                        // What it measured on may be the reason: the next cell gets a new one.
                        slot.live.iter_mut().for_each(|live| live.round = u32::MAX);
                    }
                    MeasureOutcome::Interrupted => self.stopping = true,
                }
            }
            Completed::GaveUp { .. } => slot.visit = None,
        }
    }

    /// Stop after the actions that are under way, and undo what was set up.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Measurements that a run step would still have had.
    pub fn outstanding(&self, run: u32) -> u64 {
        self.wanted.get(run as usize).map_or(0, |wanted| {
            (wanted.first..wanted.target)
                .filter(|round| !wanted.has(*round))
                .count() as u64
        })
    }

    /// Run steps and measurements that were not come to, now that all has ended.
    pub fn left(&self) -> (usize, u64) {
        let runs = (0..self.wanted.len() as u32).filter(|run| !self.wanted[*run as usize].is_out);
        let left = runs.map(|run| self.outstanding(run)).filter(|n| *n > 0);
        left.fold((0, 0), |(cells, all), n| (cells + 1, all + n))
    }

    fn sampled(&mut self, run: u32, round: u32, enough: bool) {
        let Some(wanted) = self.wanted.get_mut(run as usize) else {
            return;
        };
        wanted.is_out = false;
        wanted.add(round);
        if enough {
            wanted.target = wanted.target.min(round + 1);
        } else if round + 1 >= wanted.target && wanted.target < wanted.max {
            wanted.target += 1;
        }
    }
}

/// Takes a visit out of the queue, the first one that needs no set-up that another slot has.
fn pick(
    plan: &Plan,
    seed: u64,
    lane: &mut MachineLane,
    slot: usize,
    wanted: &mut [WantedRounds],
) -> Option<(u32, u32)> {
    if lane.queue.is_empty() && !lane.is_exhausted {
        fill(plan, seed, lane, wanted);
    }
    let round = lane.round;
    let mut index = 0;
    while let Some(&run) = lane.queue.get(index).filter(|_| index < LOOK_AHEAD) {
        let own = &mut wanted[run as usize];
        // It may have become enough since the queue was filled.
        if own.is_out || own.next() != Some(round) {
            lane.queue.remove(index);
            continue;
        }
        let others = lane.slots.iter().enumerate();
        let others = others.filter(|(other, _)| *other != slot);
        let is_taken = others.clone().next().is_some()
            && setups_of(plan, run).any(|need| others.clone().any(|(_, s)| s.has(plan, need)));
        if !is_taken {
            lane.queue.remove(index);
            own.is_out = true;
            return Some((run, round));
        }
        index += 1;
    }
    None
}

impl Slot {
    /// Whether a set-up step is made here, or will be.
    fn has(&self, plan: &Plan, need: (usize, u32)) -> bool {
        self.live.iter().any(|live| (live.setup, live.step) == need)
            || self
                .visit
                .is_some_and(|(run, _)| setups_of(plan, run).any(|own| own == need))
    }
}

/// Set-up and step of all that a run step needs, in the order of the file.
fn setups_of<'a>(plan: &'a Plan, run: u32) -> impl Iterator<Item = (usize, u32)> + 'a {
    plan.setups_of(plan.steps.runs.cells[run as usize])
}

/// Fills the queue with the visits of the first round in which anything is missing that no slot is at.
fn fill(plan: &Plan, seed: u64, lane: &mut MachineLane, wanted: &[WantedRounds]) {
    let next = |run: &u32| {
        Some(&wanted[*run as usize])
            .filter(|own| !own.is_out)?
            .next()
    };
    let Some(round) = lane.runs.iter().filter_map(next).min() else {
        lane.is_exhausted = true;
        return;
    };
    let visits = lane.runs.iter().copied();
    let mut visits: Vec<u32> = visits.filter(|run| next(run) == Some(round)).collect();
    visits.sort_by_cached_key(|run| visit_key(plan, seed, round, *run));
    lane.round = round;
    lane.queue = visits.into();
}

/// The order of a round: random, but cells that share a set-up stand together, so that it is made
/// once; within them the versions stand in turn A B, then B A in the next round, so that drift hits
/// both alike; within a version the cells are in the same random order for each.
fn visit_key(plan: &Plan, seed: u64, round: u32, run: u32) -> (Vec<u64>, u16, u64) {
    let cell = plan.cell_of(run as usize);
    let version = plan.cells.axis("version");
    let random = |salt: u64, axes: &[usize]| {
        let start = mix(seed ^ mix(u64::from(round) ^ mix(salt)));
        let kept = axes.iter().filter(|axis| Some(**axis) != version);
        kept.fold(start, |hash, &axis| {
            mix(hash ^ ((axis as u64) << 16 | u64::from(cell[axis])))
        })
    };
    let groups = plan.steps.setups.iter().enumerate();
    let groups = groups
        .map(|(index, setup)| random(index as u64 + 1, &setup.axes))
        .collect();
    let turn = match version.map(|axis| cell[axis]).unwrap_or(0) {
        value if round.is_multiple_of(2) => value,
        value => u16::MAX - value,
    };
    let all: Vec<usize> = (0..cell.len()).collect();
    (groups, turn, random(0, &all))
}

/// SplitMix64's finaliser (Steele, Lea and Flood, 2014).
fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn undo(live: &LiveStep) -> Action {
    Action::Undo {
        setup: live.setup,
        step: live.step,
    }
}

/// What a slot does next for its visit.
fn next_action(
    plan: &Plan,
    slot: &Slot,
    run: u32,
    round: u32,
    broken: &BTreeMap<(usize, u32), String>,
) -> Action {
    let needed: Vec<(usize, u32)> = setups_of(plan, run).collect();
    if let Some(reason) = needed.iter().find_map(|need| broken.get(need)) {
        return Action::GiveUp {
            run,
            round,
            reason: reason.clone(),
        };
    }
    // The stack is right up to the first set-up that is another one or too old.
    let fits = |live: &LiveStep, need: &(usize, u32)| {
        let old = match plan.matrix.setups[live.setup].scope {
            SetupScope::Session => live.round == u32::MAX,
            SetupScope::Round => live.round != round,
            SetupScope::Run => live.used || live.round == u32::MAX,
        };
        (live.setup, live.step) == *need && !old
    };
    let right = slot
        .live
        .iter()
        .zip(&needed)
        .take_while(|(live, need)| fits(live, need))
        .count();
    match (slot.live.get(right..), needed.get(right)) {
        (Some([.., last]), _) => undo(last),
        (_, Some(&(setup, step))) => Action::SetUp { setup, step },
        (_, None) => Action::Measure { run, round },
    }
}

#[cfg(test)]
mod tests;
