//! Owns what steps depended on when they were run: kept at each run, told by `plan --why`.
//! Does not know how a reason is found (plan/why does).

use std::collections::HashMap;

use super::lookup::{Known, LookupError, failures};
use super::versions::World;
use crate::config::matrix::Matrix;
use crate::edge::git::Oid;
use crate::edge::store::{Inputs, Store, StoreError};
use crate::plan::dag::{Plan, Todo};
use crate::plan::steps::{Maker, placeholders};
use crate::plan::why::{Past, Reason, why};
use crate::words::diag::Diagnostic;

/// Not an input, but kept with them: which commit a version's label meant.
const COMMIT: &str = "commit";

/// Keeps the inputs of all steps that are about to run.
pub fn record(
    plan: &Plan,
    todo: &Todo,
    world: &World,
    store: &Store,
) -> Result<Result<(), StoreError>, Diagnostic> {
    let placeholders = placeholders(plan.matrix, plan.seconds);
    let maker = Maker::new(plan.matrix, &plan.cells, world, &placeholders);
    let due = |cell: usize| todo.rounds[plan.steps.runs.of_cell[cell] as usize] > 0;
    let mut texts: Inputs = maker.input_texts(&plan.steps, &due)?;
    for version in &world.versions.list {
        if let Some(commit) = &version.commit {
            let place = format!("version={}", version.label);
            texts.insert((place, COMMIT.to_owned()), commit.id.to_string());
        }
    }
    Ok(store.put_inputs(&plan.matrix.name, &texts))
}

/// Why each run step is to be done.
pub fn reasons(
    plan: &Plan,
    known: &Known,
    world: &World,
    store: Option<&Store>,
) -> Result<Vec<Reason>, ReasonError> {
    let mut old = match store {
        Some(store) => store.inputs(&plan.matrix.name)?,
        None => Inputs::new(),
    };
    let mut commits = HashMap::new();
    old.retain(|(place, name), value| {
        let is_commit = name == COMMIT;
        if is_commit {
            commits.insert(place.clone(), value.clone());
        }
        !is_commit
    });
    let failed = match store {
        Some(store) => failures(plan, store)?,
        None => HashMap::new(),
    };
    let placeholders = placeholders(plan.matrix, plan.seconds);
    let maker = Maker::new(plan.matrix, &plan.cells, world, &placeholders);
    let files = |label: &str| {
        let before = commits
            .get(&format!("version={label}"))
            .and_then(|id| Oid::parse(id));
        before.map_or(Vec::new(), |before| {
            changed_files(plan.matrix, world, label, &before)
        })
    };
    let past = Past {
        inputs: &old,
        rounds: &|run| known.rounds[run].count(),
        failure: &|run| failed.get(&run).cloned(),
        files: &files,
    };
    Ok(why(
        plan,
        &known.todo,
        &maker.all_inputs(&plan.steps),
        &past,
    )?)
}

/// Files that can change a result and differ between a commit and what a label means now.
fn changed_files(matrix: &Matrix, world: &World, label: &str, before: &Oid) -> Vec<String> {
    let version = world.versions.get(label);
    let (Some(commit), Some(repository), Some(git)) = (
        version.and_then(|version| version.commit.as_ref()),
        world.versions.repository(),
        &matrix.subject.git,
    ) else {
        return Vec::new();
    };
    // A commit that is gone cannot be compared with: then the digests must do.
    let changed = repository
        .borrow()
        .changed_paths(before, &commit.id)
        .unwrap_or_default();
    let ruled = matrix.affects.iter().flat_map(|rule| &rule.paths);
    let patterns: Vec<_> = git.paths.iter().chain(ruled).collect();
    let counts = |path: &String| git.paths.is_empty() || patterns.iter().any(|p| p.matches(path));
    changed.into_iter().filter(counts).collect()
}

/// Reasons could not be found.
#[derive(Debug, thiserror::Error)]
pub enum ReasonError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error("{}", .0.message)]
    Template(Diagnostic),
}

impl From<Diagnostic> for ReasonError {
    fn from(diagnostic: Diagnostic) -> Self {
        ReasonError::Template(diagnostic)
    }
}
