//! The order of a run: a state machine from events to the next action on each machine. Pure.

use std::collections::{BTreeMap, VecDeque};

use crate::config::matrix::SetupScope;
use crate::plan::dag::Plan;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureOutcome {
    /// A sample was taken.
    Sample,
    /// No sample; the cell is not tried again unless it is asked for again.
    Failed,
    /// No sample, because we were told to stop.
    Interrupted,
}

/// Rounds that are wanted of a run step of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRequest {
    pub run: u32,
    /// Ascending.
    pub rounds: Vec<u32>,
}

/// A change of mind about what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjustment {
    /// No further rounds of this run step.
    Enough { run: u32 },
    /// One round after `round` of this run step, unless others are still to come.
    OneMore { run: u32, round: u32 },
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
    /// Ascending.
    rounds: VecDeque<u32>,
    /// It failed, or a slot is at it: it is not to be picked.
    is_out: bool,
}

impl WantedRounds {
    fn want(&mut self, rounds: &[u32]) {
        let mut all: Vec<u32> = self.rounds.iter().chain(rounds).copied().collect();
        all.sort_unstable();
        all.dedup();
        self.rounds = all.into();
    }

    /// The next round to measure.
    fn next(&self) -> Option<u32> {
        self.rounds.front().copied()
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

/// Visits of the queue that are looked at for one that a slot can take beside the others: those that
/// share a set-up stand together.
const LOOK_AHEAD: usize = 64;

/// What one machine does for one plan. More rounds may be asked for at any time.
///
/// A set-up belongs to one slot at a time: cells that share one are measured one after the other, also
/// where a machine has several slots.
pub struct Dispatch<'p> {
    plan: &'p Plan<'p>,
    seed: u64,
    /// By run step.
    wanted: BTreeMap<u32, WantedRounds>,
    round: u32,
    /// The visits of a round in order, which the slots share.
    queue: VecDeque<u32>,
    /// Nothing can be put into the queue until something has ended.
    is_exhausted: bool,
    slots: Vec<Slot>,
    /// Set-up steps that could not be made, with the reason.
    broken: BTreeMap<(usize, u32), String>,
    stopping: bool,
}

impl<'p> Dispatch<'p> {
    /// `slots`: how many measurements the machine carries out at the same time.
    pub fn new(plan: &'p Plan<'p>, seed: u64, slots: usize) -> Self {
        Dispatch {
            plan,
            seed,
            wanted: BTreeMap::new(),
            round: 0,
            queue: VecDeque::new(),
            is_exhausted: false,
            slots: (0..slots.max(1)).map(|_| Slot::default()).collect(),
            broken: BTreeMap::new(),
            stopping: false,
        }
    }

    /// Adds rounds of run steps of this machine; those that failed before are tried again.
    pub fn want(&mut self, requests: &[RunRequest]) {
        for RunRequest { run, rounds } in requests {
            let at_it = |slot: &Slot| slot.visit.is_some_and(|(other, _)| other == *run);
            let is_out = self.slots.iter().any(at_it);
            let wanted = self.wanted.entry(*run).or_default();
            if wanted.is_out && !is_out {
                // It failed: what it was to have then is given up.
                wanted.rounds.clear();
            }
            wanted.want(rounds);
            wanted.is_out = is_out;
        }
        self.is_exhausted = false;
        // What is asked for may come before what is queued.
        self.queue.clear();
    }

    /// Takes in a change of mind.
    pub fn adjust(&mut self, adjustment: Adjustment) {
        match adjustment {
            Adjustment::Enough { run } => {
                if let Some(wanted) = self.wanted.get_mut(&run) {
                    wanted.rounds.clear();
                }
            }
            Adjustment::OneMore { run, round } => {
                let wanted = self.wanted.entry(run).or_default();
                if wanted.rounds.is_empty() {
                    wanted.rounds.push_back(round + 1);
                }
            }
        }
    }

    /// Nothing is under way and nothing more is wanted; set-ups may still be there.
    pub fn is_idle(&self) -> bool {
        let is_free = |slot: &Slot| !slot.is_busy && slot.visit.is_none();
        let mut wanted = self.wanted.values();
        self.slots.iter().all(is_free)
            && (self.stopping || wanted.all(|own| own.is_out || own.rounds.is_empty()))
    }

    /// The next action and the slot that is then at it; None while all are, or when there is nothing
    /// that a free one could do.
    pub fn next_action(&mut self) -> Option<(usize, Action)> {
        (0..self.slots.len()).find_map(|slot| Some((slot, self.next_of(slot)?)))
    }

    fn next_of(&mut self, slot: usize) -> Option<Action> {
        if self.slots[slot].is_busy {
            return None;
        }
        if self.stopping {
            let visit = self.slots[slot].visit.take();
            if let Some(wanted) = visit.and_then(|(run, _)| self.wanted.get_mut(&run)) {
                wanted.is_out = false;
            }
        } else if self.slots[slot].visit.is_none() {
            self.slots[slot].visit = self.pick(slot);
        }
        let slot = &mut self.slots[slot];
        let action = match slot.visit {
            Some((run, round)) => Some(next_action(self.plan, slot, run, round, &self.broken)),
            None => slot.live.last().map(undo),
        };
        slot.is_busy = action.is_some();
        action
    }

    /// Takes in what came of an action of a slot.
    pub fn on(&mut self, slot: usize, done: Completed) {
        self.is_exhausted = false;
        let slot = &mut self.slots[slot];
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
                    MeasureOutcome::Sample => {
                        if let Some(wanted) = self.wanted.get_mut(&run) {
                            wanted.is_out = false;
                            wanted.rounds.retain(|other| *other != round);
                        }
                    }
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
        let wanted = self.wanted.get(&run);
        wanted.map_or(0, |wanted| wanted.rounds.len() as u64)
    }

    /// Run steps and measurements that were not reached, now that all has ended.
    pub fn left(&self) -> (usize, u64) {
        let wanted = self.wanted.values().filter(|own| !own.is_out);
        let left = wanted.map(|own| own.rounds.len() as u64).filter(|n| *n > 0);
        left.fold((0, 0), |(cells, all), n| (cells + 1, all + n))
    }

    /// Takes a visit out of the queue, the first one that needs no set-up that another slot has.
    fn pick(&mut self, slot: usize) -> Option<(u32, u32)> {
        if self.queue.is_empty() && !self.is_exhausted {
            self.fill();
        }
        let (plan, round) = (self.plan, self.round);
        let mut index = 0;
        while let Some(&run) = self.queue.get(index).filter(|_| index < LOOK_AHEAD) {
            let own = self.wanted.entry(run).or_default();
            // It may have become enough since the queue was filled.
            if own.is_out || own.next() != Some(round) {
                self.queue.remove(index);
                continue;
            }
            let others = self.slots.iter().enumerate();
            let others = others.filter(|(other, _)| *other != slot);
            let is_taken = others.clone().next().is_some()
                && setups_of(plan, run).any(|need| others.clone().any(|(_, s)| s.has(plan, need)));
            if !is_taken {
                self.queue.remove(index);
                own.is_out = true;
                return Some((run, round));
            }
            index += 1;
        }
        None
    }

    /// Fills the queue with the visits of the first round in which anything is missing that no slot is at.
    fn fill(&mut self) {
        let (plan, seed) = (self.plan, self.seed);
        let next = |(run, own): (&u32, &WantedRounds)| Some((*run, own.next()?));
        let open = self.wanted.iter().filter(|(_, own)| !own.is_out);
        let open = open.filter_map(next);
        let Some(round) = open.clone().map(|(_, round)| round).min() else {
            self.is_exhausted = true;
            return;
        };
        let visits = open.filter(|(_, next)| *next == round);
        let mut visits: Vec<u32> = visits.map(|(run, _)| run).collect();
        visits.sort_by_cached_key(|run| visit_key(plan, seed, round, *run));
        self.round = round;
        self.queue = visits.into();
    }
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
