//! Owns the order of a run: a state machine from events to the next action on each machine. Pure.
//! Does not know how an action is carried out, nor what time it is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::config::matrix::Scope;
use crate::plan::dag::{Plan, Todo};

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
pub enum Done {
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
        outcome: Outcome,
    },
    GaveUp {
        run: u32,
        round: u32,
    },
}

/// What came of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A sample was taken; `enough` says whether the repetition rule is satisfied.
    Sample { enough: bool },
    /// No sample; the cell is not tried again.
    Failed,
    /// No sample, because we were told to stop.
    Interrupted,
}

/// How a machine stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It can be asked for its next action.
    Idle,
    /// An action is under way.
    Busy,
}

/// A set-up that is there at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Live {
    setup: usize,
    step: u32,
    round: u32,
    /// Run steps measured since it was made.
    used: bool,
}

/// The rounds that a run step still wants.
#[derive(Clone, Debug, Default)]
struct Wanted {
    /// Rounds that are stored.
    have: BTreeSet<u32>,
    /// All rounds below this one are wanted.
    target: u32,
}

/// One machine: its visits of a round in order, one after the other.
struct Lane {
    runs: Vec<u32>,
    state: State,
    round: u32,
    queue: VecDeque<u32>,
    /// A stack in the order of the file.
    live: Vec<Live>,
}

impl Lane {
    /// A visit is over. It is the first of the queue.
    fn visited(&mut self, run: u32) {
        if self.queue.front() == Some(&run) {
            self.queue.pop_front();
        }
    }
}

/// The whole run. Machines are lanes, by their number on the `machine` axis.
pub struct Dispatch<'p> {
    plan: &'p Plan<'p>,
    seed: u64,
    lanes: BTreeMap<u16, Lane>,
    wanted: BTreeMap<u32, Wanted>,
    /// Run steps that failed in this session.
    failed: BTreeSet<u32>,
    /// Set-up steps that could not be made in this session, with the reason.
    broken: BTreeMap<(usize, u32), String>,
    stopping: bool,
}

impl<'p> Dispatch<'p> {
    /// `have(run)` are the rounds of a run step that are stored.
    pub fn new(
        plan: &'p Plan<'p>,
        todo: &Todo,
        seed: u64,
        have: &dyn Fn(usize) -> Vec<u32>,
    ) -> Self {
        let mut lanes: BTreeMap<u16, Lane> = BTreeMap::new();
        let mut wanted = BTreeMap::new();
        let machine = plan.cells.axis("machine").unwrap_or(0);
        for (run, rounds) in todo.rounds.iter().enumerate() {
            if *rounds == 0 {
                continue;
            }
            let lane = lanes.entry(plan.cell_of(run)[machine]).or_insert(Lane {
                runs: Vec::new(),
                state: State::Idle,
                round: 0,
                queue: VecDeque::new(),
                live: Vec::new(),
            });
            lane.runs.push(run as u32);
            let have: BTreeSet<u32> = have(run).into_iter().collect();
            // `rounds` more than there are: the gaps first, then rounds after the last one.
            let mut target = 0;
            let mut missing = *rounds;
            while missing > 0 {
                missing -= u32::from(!have.contains(&target));
                target += 1;
            }
            wanted.insert(run as u32, Wanted { have, target });
        }
        for lane in lanes.values_mut() {
            fill(plan, seed, lane, &wanted);
        }
        Dispatch {
            plan,
            seed,
            lanes,
            wanted,
            failed: BTreeSet::new(),
            broken: BTreeMap::new(),
            stopping: false,
        }
    }

    /// The machines with something to do, as numbers on the `machine` axis.
    pub fn machines(&self) -> Vec<u16> {
        self.lanes.keys().copied().collect()
    }

    /// The next action of a machine, which is then under way; None while one is, or when all is done.
    pub fn next(&mut self, machine: u16) -> Option<Action> {
        let lane = self.lanes.get_mut(&machine)?;
        if lane.state == State::Busy {
            return None;
        }
        let action = if self.stopping {
            lane.live.last().map(|live| Action::Undo {
                setup: live.setup,
                step: live.step,
            })
        } else {
            next_action(self.plan, lane, &self.broken)
        };
        if action.is_some() {
            lane.state = State::Busy;
        }
        action
    }

    /// Takes in what came of a machine's action.
    pub fn on(&mut self, machine: u16, done: Done) {
        let Some(lane) = self.lanes.get_mut(&machine) else {
            return;
        };
        lane.state = State::Idle;
        match done {
            Done::SetUp {
                setup,
                step,
                error: None,
            } => lane.live.push(Live {
                setup,
                step,
                round: lane.round,
                used: false,
            }),
            Done::SetUp {
                setup,
                step,
                error: Some(reason),
            } => {
                self.broken.insert((setup, step), reason);
            }
            Done::Undo { setup, step } => lane
                .live
                .retain(|live| (live.setup, live.step) != (setup, step)),
            Done::Measured {
                run,
                round,
                outcome,
            } => {
                lane.visited(run);
                lane.live.iter_mut().for_each(|live| live.used = true);
                match outcome {
                    Outcome::Sample { enough } => self.sampled(run, round, enough),
                    Outcome::Failed => {
                        self.failed.insert(run);
                        // What it measured on may be the reason: the next cell gets a new one.
                        lane.live.iter_mut().for_each(|live| live.round = u32::MAX);
                    }
                    Outcome::Interrupted => self.stopping = true,
                }
            }
            Done::GaveUp { run, .. } => {
                lane.visited(run);
                self.failed.insert(run);
            }
        }
        self.refill(machine);
    }

    /// Stop after the actions that are under way, and undo what was set up.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// All machines are done and nothing is left set up.
    pub fn is_finished(&self) -> bool {
        self.lanes.values().all(|lane| {
            lane.state == State::Idle
                && lane.live.is_empty()
                && (self.stopping || lane.queue.is_empty())
        })
    }

    /// Measurements that a run step would still have had.
    pub fn outstanding(&self, run: u32) -> u64 {
        self.wanted.get(&run).map_or(0, |wanted| {
            (0..wanted.target)
                .filter(|round| !wanted.have.contains(round))
                .count() as u64
        })
    }

    fn sampled(&mut self, run: u32, round: u32, enough: bool) {
        let max = self.plan.repeat.max;
        let Some(wanted) = self.wanted.get_mut(&run) else {
            return;
        };
        wanted.have.insert(round);
        if enough {
            wanted.target = wanted.target.min(round + 1);
        } else if round + 1 >= wanted.target && wanted.target < max {
            wanted.target += 1;
        }
    }

    /// Goes on to the next round of a machine in which anything is missing.
    fn refill(&mut self, machine: u16) {
        let Some(lane) = self.lanes.get_mut(&machine) else {
            return;
        };
        if lane.queue.is_empty() {
            lane.runs.retain(|run| !self.failed.contains(run));
            lane.round += 1;
            fill(self.plan, self.seed, lane, &self.wanted);
        }
    }
}

/// Fills the queue with the visits of the lane's round, or of the next one that has any.
fn fill(plan: &Plan, seed: u64, lane: &mut Lane, wanted: &BTreeMap<u32, Wanted>) {
    let end = lane
        .runs
        .iter()
        .filter_map(|run| wanted.get(run))
        .map(|w| w.target)
        .max()
        .unwrap_or(0);
    while lane.round < end {
        let round = lane.round;
        let visits = lane.runs.iter().copied().filter(|run| {
            wanted
                .get(run)
                .is_some_and(|w| round < w.target && !w.have.contains(&round))
        });
        let mut visits: Vec<u32> = visits.collect();
        if !visits.is_empty() {
            visits.sort_by_cached_key(|run| visit_key(plan, seed, round, *run));
            lane.queue = visits.into();
            return;
        }
        lane.round += 1;
    }
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

fn next_action(
    plan: &Plan,
    lane: &Lane,
    broken: &BTreeMap<(usize, u32), String>,
) -> Option<Action> {
    let undo = |live: &Live| Action::Undo {
        setup: live.setup,
        step: live.step,
    };
    let Some(&run) = lane.queue.front() else {
        return lane.live.last().map(undo);
    };
    let cell = plan.steps.runs.cells[run as usize];
    let needed: Vec<(usize, u32)> = plan.setups_of(cell).collect();
    for need in &needed {
        if let Some(reason) = broken.get(need) {
            return Some(Action::GiveUp {
                run,
                round: lane.round,
                reason: reason.clone(),
            });
        }
    }
    // The stack is right up to the first set-up that is another one or too old.
    let fits = |live: &Live, need: &(usize, u32)| {
        let old = match plan.matrix.setups[live.setup].scope {
            Scope::Session => live.round == u32::MAX,
            Scope::Round => live.round != lane.round,
            Scope::Run => live.used || live.round == u32::MAX,
        };
        (live.setup, live.step) == *need && !old
    };
    let right = lane
        .live
        .iter()
        .zip(&needed)
        .take_while(|(live, need)| fits(live, need))
        .count();
    match (lane.live.len() > right, needed.get(right)) {
        (true, _) => lane.live.last().map(undo),
        (false, Some(&(setup, step))) => Some(Action::SetUp { setup, step }),
        (false, None) => Some(Action::Measure {
            run,
            round: lane.round,
        }),
    }
}

#[cfg(test)]
mod tests;
