//! Plans of one choice of cells: a new one only when it is known of more builds what they gave.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use crate::base::diag::Diagnostic;
use crate::base::key::Key;
use crate::config::matrix::{Matrix, Repeat};
use crate::edge::artifact::Artifacts;
use crate::edge::store::{Store, StoreError};
use crate::plan::cell::CellChoice;
use crate::plan::dag::{self, Plan};
use crate::plan::steps::Digests;
use crate::resolve::prepare::Machines;
use crate::resolve::versions::{Versions, World};

/// Makes the plans of a session.
pub struct Planner<'a> {
    pub matrix: &'a Matrix,
    pub machines: &'a Machines,
    pub versions: &'a Versions,
    pub artifacts: &'a Artifacts,
    choice: RefCell<CellChoice<'a>>,
    current: RefCell<Option<CurrentPlan<'a>>>,
    made: Cell<u32>,
    told: Cell<u32>,
}

/// The latest plan.
struct CurrentPlan<'a> {
    plan: Rc<Plan<'a>>,
    /// What it rests on: the builds that it asked about, and what they gave.
    builds: HashMap<Key, Option<Key>>,
}

impl CurrentPlan<'_> {
    fn holds(&self, built: &HashMap<Key, Key>) -> bool {
        let mut builds = self.builds.iter();
        builds.all(|(build, artifact)| built.get(build) == artifact.as_ref())
    }
}

/// A plan could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{}", first_message(.0))]
    Matrix(Vec<Diagnostic>),
}

fn first_message(problems: &[Diagnostic]) -> &str {
    problems.first().map_or("", |problem| &problem.message)
}

impl<'a> Planner<'a> {
    pub fn new(
        matrix: &'a Matrix,
        machines: &'a Machines,
        versions: &'a Versions,
        artifacts: &'a Artifacts,
        choice: CellChoice<'a>,
    ) -> Planner<'a> {
        Planner {
            matrix,
            machines,
            versions,
            artifacts,
            choice: RefCell::new(choice),
            current: RefCell::default(),
            made: Cell::new(0),
            told: Cell::new(0),
        }
    }

    /// The digests that a plan is made from, as they stand now.
    pub fn world(&self, store: Option<&Store>) -> Result<World<'a>, StoreError> {
        Ok(World {
            machines: self.machines,
            versions: self.versions,
            built: store.map(Store::artifacts).transpose()?.unwrap_or_default(),
            artifacts: self.artifacts,
        })
    }

    /// The plan as things stand now: the last one again where nothing that it rests on has changed.
    pub fn plan(&self, store: Option<&Store>) -> Result<Rc<Plan<'a>>, PlanError> {
        let world = self.world(store)?;
        if let Some(current) = &*self.current.borrow()
            && current.holds(&world.built)
        {
            return Ok(Rc::clone(&current.plan));
        }
        let digests = NotedDigests {
            world: &world,
            builds: RefCell::default(),
        };
        let choice = self.choice.borrow();
        let plan = dag::plan(self.matrix, &choice, &digests).map_err(PlanError::Matrix)?;
        let plan = Rc::new(plan);
        self.made.set(self.made.get() + 1);
        *self.current.borrow_mut() = Some(CurrentPlan {
            plan: Rc::clone(&plan),
            builds: digests.builds.into_inner(),
        });
        Ok(plan)
    }

    /// Adds versions that were resolved, by label; whether any of them was missing.
    pub fn add_versions(&self, labels: &[String]) -> bool {
        let mut choice = self.choice.borrow_mut();
        let before = choice.versions.len();
        for label in labels {
            let is_known = self.versions.get(label).is_some();
            if is_known && !choice.versions.contains(label) {
                choice.versions.push(label.clone());
            }
        }
        let is_more = choice.versions.len() > before;
        if is_more {
            *self.current.borrow_mut() = None;
        }
        is_more
    }

    /// The next plan is made anew: what it rests on was looked at again.
    pub fn forget(&self) {
        *self.current.borrow_mut() = None;
    }

    /// Whether a plan was made since this was asked last.
    pub fn is_news(&self) -> bool {
        self.told.replace(self.made.get()) != self.made.get()
    }

    /// How often cells are measured.
    pub fn repeat(&self) -> &'a Repeat {
        self.matrix.repeat(self.choice.borrow().preset)
    }

    /// How many plans were made.
    pub fn made(&self) -> u32 {
        self.made.get()
    }
}

/// The world's digests, with a note of what was asked about builds.
struct NotedDigests<'a> {
    world: &'a World<'a>,
    builds: RefCell<HashMap<Key, Option<Key>>>,
}

impl Digests for NotedDigests<'_> {
    fn tools(&self, machine: &str) -> Vec<(String, Key)> {
        self.world.tools(machine)
    }

    fn settings(&self, machine: &str) -> Vec<(String, String)> {
        self.world.settings(machine)
    }

    fn installed(&self, machine: &str) -> Key {
        self.world.installed(machine)
    }

    fn folder(&self, machine: &str, version: &str) -> Option<Key> {
        self.world.folder(machine, version)
    }

    fn source(&self, version: &str, affects: Option<usize>) -> Key {
        self.world.source(version, affects)
    }

    fn variant(&self, version: &str) -> Option<usize> {
        self.world.variant(version)
    }

    fn artifact(&self, build: Key) -> Option<Key> {
        let artifact = self.world.artifact(build);
        self.builds.borrow_mut().insert(build, artifact);
        artifact
    }
}
