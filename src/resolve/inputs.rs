//! What steps depended on when they were run: kept at each run, told by `plan --why`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::base::diag::Diagnostic;
use crate::base::input::{InputTexts, OldInputs, value_in};
use crate::base::key::Key;
use crate::edge::git::Oid;
use crate::edge::store::{Store, StoreError};
use crate::plan::dag::{Plan, Todo};
use crate::plan::steps::{Maker, placeholders};
use crate::plan::why::{Before, Reason, SourceChange, why};
use crate::resolve::lookup::{Known, LookupError, failures};
use crate::resolve::selection::{Again, Chosen};
use crate::resolve::versions::{Version, World};

/// Not an input, but kept with them: which commit a version's label meant.
const COMMIT: &str = "commit";

/// Keeps the inputs of all steps that are about to run in a session.
pub fn record(
    plan: &Plan,
    todo: &Todo,
    world: &World,
    store: &Store,
    session: i64,
) -> Result<Result<(), StoreError>, Diagnostic> {
    let placeholders = placeholders(plan.matrix, plan.seconds);
    let maker = Maker::new(plan.matrix, &plan.cells, world, &placeholders);
    let due = |cell: usize| todo.rounds[plan.steps.runs.of_cell[cell] as usize] > 0;
    let mut texts = maker.input_texts(&plan.steps, &due)?;
    let old = match store.inputs(&plan.matrix.name) {
        Ok(old) => old,
        Err(error) => return Ok(Err(error)),
    };
    let stale = stale(&old, &texts);
    for version in &world.versions.list {
        if let Some(commit) = &version.commit {
            let place = format!("version={}", version.label);
            texts.insert((place, COMMIT.to_owned()), commit.id.to_string());
        }
    }
    texts.retain(|input, value| {
        let old = old.get(input).and_then(|values| value_in(values, None));
        old != Some(value.as_str())
    });
    Ok(store.put_inputs(&plan.matrix.name, session, &texts, &stale))
}

/// What no step depends on any more: inputs that are gone, or that depend on other axes now.
fn stale(old: &OldInputs, new: &InputTexts) -> Vec<(String, String)> {
    fn axes(place: &str) -> Vec<&str> {
        let parts = place.split(',').filter_map(|part| part.split_once('='));
        parts.map(|(axis, _)| axis).collect()
    }
    let now: HashMap<&str, Vec<&str>> = new
        .keys()
        .map(|(place, name)| (name.as_str(), axes(place)))
        .collect();
    let is_stale = |(place, name): &&(String, String)| {
        name != COMMIT && now.get(name.as_str()) != Some(&axes(place))
    };
    let latest = old
        .iter()
        .filter(|(_, values)| value_in(values, None).is_some());
    latest
        .map(|(input, _)| input)
        .filter(is_stale)
        .cloned()
        .collect()
}

/// Why each run step is to be done.
pub fn reasons(
    plan: &Plan,
    chosen: &Chosen,
    world: &World,
    store: Option<&Store>,
) -> Result<Vec<Reason>, ReasonError> {
    let known = &chosen.known;
    let mut old = match store {
        Some(store) => store.inputs(&plan.matrix.name)?,
        None => OldInputs::new(),
    };
    let commits: OldInputs = old.extract_if(|(_, name), _| name == COMMIT).collect();
    let sessions = match store {
        Some(store) => sessions(plan, &known.todo, &old, store)?,
        None => HashMap::new(),
    };
    let failed = match store {
        Some(store) => failures(plan, store)?,
        None => HashMap::new(),
    };
    let broken = match store {
        Some(store) => broken_builds(plan, known, store)?,
        None => HashMap::new(),
    };
    let placeholders = placeholders(plan.matrix, plan.seconds);
    let maker = Maker::new(plan.matrix, &plan.cells, world, &placeholders);
    let differences = Differences::new(plan, world, &commits);
    let past = Before {
        inputs: &old,
        session: &|run| sessions.get(&run).copied(),
        again: &|run| chosen.again.get(&run).map(Again::to_string),
        rounds: &|run| known.rounds.count(run),
        failure: &|run| failed.get(&run).cloned(),
        broken: &|run| broken.get(&run).cloned(),
        files: &|cell, session| differences.of(cell, session),
    };
    Ok(why(
        plan,
        &known.todo,
        &maker.all_inputs(&plan.steps),
        &past,
    )?)
}

/// The session in which the cell of each run step that is due was last run.
fn sessions(
    plan: &Plan,
    todo: &Todo,
    old: &OldInputs,
    store: &Store,
) -> Result<HashMap<usize, i64>, StoreError> {
    let mut sessions = HashMap::new();
    // Where every input has had one value only it does not matter which session saw it.
    if old
        .values()
        .all(|values| matches!(values.as_slice(), [one] if one.ended.is_none()))
    {
        return Ok(sessions);
    }
    let label = |run: usize, axis: &str| {
        let axis = plan.cells.axis(axis);
        let label = axis.map_or("", |axis| plan.cells.label(plan.cell_of(run), axis));
        label.to_owned()
    };
    let due = (0..plan.steps.runs.len()).filter(|run| todo.rounds[*run] > 0);
    let mut due: HashMap<(String, String, String), usize> = due
        .map(|run| {
            let cell = plan.cells.name(plan.cell_of(run));
            ((cell, label(run, "machine"), label(run, "version")), run)
        })
        .collect();
    store.for_each_run(&plan.matrix.name, |cell, machine, version, session| {
        let name = (cell.to_owned(), machine.to_owned(), version.to_owned());
        sessions.extend(due.remove(&name).map(|run| (run, session)));
        !due.is_empty()
    })?;
    Ok(sessions)
}

/// Why the builds of run steps failed, by run step.
fn broken_builds(
    plan: &Plan,
    known: &Known,
    store: &Store,
) -> Result<HashMap<usize, String>, StoreError> {
    let builds = &plan.steps.builds.steps;
    let mut keys: Vec<Key> = builds.iter().map(|step| step.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let reasons: HashMap<Key, String> = store
        .failures(&keys)?
        .into_iter()
        .map(|failure| (failure.key, failure.reason))
        .collect();
    let mut broken = HashMap::new();
    if reasons.is_empty() {
        return Ok(broken);
    }
    for (run, cell) in plan.steps.runs.cells.iter().enumerate() {
        let build = plan
            .build_of(*cell as usize)
            .filter(|_| !known.is_built(plan, run));
        let reason = build.and_then(|build| reasons.get(&builds[build as usize].key));
        broken.extend(reason.map(|reason| (run, reason.clone())));
    }
    Ok(broken)
}

/// A version, by its place on the axis, and the session that it is compared with.
type VersionAt = (u16, Option<i64>);

/// What differs between versions, asked of git once for each pair.
struct Differences<'a> {
    plan: &'a Plan<'a>,
    world: &'a World<'a>,
    /// What labels meant before.
    commits: &'a OldInputs,
    /// By version, in the order of the axis, and session.
    known: RefCell<HashMap<VersionAt, Option<Rc<SourceDifference>>>>,
}

struct SourceDifference {
    version: String,
    subject: Option<String>,
    since: Option<String>,
    /// Sorted.
    files: Vec<String>,
}

impl<'a> Differences<'a> {
    fn new(plan: &'a Plan, world: &'a World, commits: &'a OldInputs) -> Self {
        Differences {
            plan,
            world,
            commits,
            known: RefCell::default(),
        }
    }

    /// What can have changed the result of a cell since a session.
    fn of(&self, cell: &[u16], session: Option<i64>) -> Result<Option<SourceChange>, Diagnostic> {
        let Some(axis) = self.plan.cells.axis("version") else {
            return Ok(None);
        };
        let mut known = self.known.borrow_mut();
        let entry = known.entry((cell[axis], session));
        let difference = entry.or_insert_with(|| self.find(axis, cell[axis], session).map(Rc::new));
        let Some(difference) = difference.clone() else {
            return Ok(None);
        };
        let mut files = Vec::new();
        for file in &difference.files {
            if self.counts(file, cell)? {
                files.push(file.clone());
            }
        }
        Ok(Some(SourceChange {
            version: difference.version.clone(),
            subject: difference.subject.clone(),
            since: difference.since.clone(),
            files,
        }))
    }

    /// A version's label is compared with what it meant before; a new one with the version before it.
    fn find(&self, axis: usize, value: u16, session: Option<i64>) -> Option<SourceDifference> {
        let labels = &self.plan.cells.axes[axis].labels;
        let version = self.world.versions.get(&labels[usize::from(value)])?;
        let commit = version.commit.as_ref()?;
        let place = (format!("version={}", version.label), COMMIT.to_owned());
        let meant = self.commits.get(&place);
        let (since, before) = match meant.and_then(|values| value_in(values, session)) {
            Some(id) => (None, Oid::parse(id)?),
            None => {
                // Beside what was merged, the version before it is no parent.
                let all = &self.world.versions.list;
                let is = |it: &Version, id: &Oid| it.commit.as_ref().is_some_and(|it| it.id == *id);
                let parent = commit.parents.first();
                let before = match parent.and_then(|id| all.iter().find(|it| is(it, id))) {
                    Some(parent) => parent,
                    None => {
                        let before = &labels[usize::from(value).checked_sub(1)?];
                        self.world.versions.get(before)?
                    }
                };
                (
                    Some(before.label.clone()),
                    before.commit.as_ref()?.id.clone(),
                )
            }
        };
        let repository = self.world.versions.repository()?.borrow();
        Some(SourceDifference {
            version: version.label.clone(),
            subject: (version.label == commit.id.short()).then(|| commit.subject.clone()),
            since,
            // A commit that is gone cannot be compared with: then the digests must do.
            files: repository
                .changed_paths(&before, &commit.id)
                .unwrap_or_default(),
        })
    }

    /// Whether a file can change the result of a cell.
    fn counts(&self, file: &str, cell: &[u16]) -> Result<bool, Diagnostic> {
        let matrix = self.plan.matrix;
        let mut is_ruled = false;
        for rule in &matrix.affects {
            if rule.paths.iter().any(|pattern| pattern.matches(file)) {
                is_ruled = true;
                let scope = self.plan.scope();
                if scope.test(&rule.when, cell, &scope.axes_of(&rule.when.mentions))? {
                    return Ok(true);
                }
            }
        }
        let paths = matrix.subject.git.iter().flat_map(|git| &git.paths);
        let is_all = paths.clone().next().is_none();
        Ok(!is_ruled && (is_all || paths.into_iter().any(|pattern| pattern.matches(file))))
    }
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
