//! Why a step runs: which of its inputs changed since it was last run, from what to what.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::dag::{Plan, Todo};
use super::key::Inputs;
use super::steps::{BUILD, SOURCES, SUBJECT, Subject};
use crate::base::diag::Diagnostic;
use crate::base::input::{InputTexts, OldInputs, value_in};

/// Characters of a value that are shown.
const VALUE_CHARS_MAX: usize = 60;

/// Run steps with one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Reason {
    pub why: String,
    pub steps: usize,
    /// One of the cells.
    pub example: String,
    /// The first of its cells, by its place in the plan.
    #[serde(skip)]
    first: u32,
}

/// How the sources of a version differ from earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceChange {
    pub version: String,
    /// The commit's, where the version has no name but its hash.
    pub subject: Option<String>,
    /// The version before it in the plan; None: what its own label meant before.
    pub since: Option<String>,
    pub files: Vec<String>,
}

impl SourceChange {
    fn text(&self) -> String {
        let SourceChange { version, files, .. } = self;
        let subject = self.subject.iter().map(|subject| format!(" \"{subject}\""));
        let subject: String = subject.collect();
        let since = self.since.iter().map(|since| format!(" since {since}"));
        let since: String = since.collect();
        format!("sources of {version}{subject}{since}: {}", listed(files))
    }
}

/// What differs in the sources of a cell's version since a session, if that is known.
pub type SourcesOf<'a> =
    dyn Fn(&[u16], Option<i64>) -> Result<Option<SourceChange>, Diagnostic> + 'a;

/// What is known beside the inputs.
pub struct Before<'a> {
    pub inputs: &'a OldInputs,
    /// The session in which a run step's cell was last run; None: it is compared with the latest inputs.
    pub session: &'a dyn Fn(usize) -> Option<i64>,
    /// Why a run step is measured again though it is stored.
    pub again: &'a dyn Fn(usize) -> Option<String>,
    /// Rounds that are stored for a run step.
    pub rounds: &'a dyn Fn(usize) -> usize,
    /// Why a run step failed the last time.
    pub failure: &'a dyn Fn(usize) -> Option<String>,
    /// Why a cell's build cannot be made.
    pub broken: &'a dyn Fn(usize) -> Option<String>,
    /// Files that can change a cell's result and differ between the sources of its version and what
    /// they are compared with: an earlier meaning of its label, or the version before it.
    pub files: &'a SourcesOf<'a>,
}

/// The reason for each run step that is to be done, grouped so that one cause is one line: in the order of the
/// plan, in which commits stand in their own order.
pub fn why(
    plan: &Plan,
    todo: &Todo,
    inputs: &[Inputs],
    past: &Before,
) -> Result<Vec<Reason>, Diagnostic> {
    let due: HashSet<usize> = plan
        .steps
        .runs
        .cells
        .iter()
        .zip(&todo.rounds)
        .filter(|(_, rounds)| **rounds > 0)
        .map(|(cell, _)| *cell as usize)
        .collect();
    let mut texts = InputTexts::new();
    for inputs in inputs {
        inputs.tell(&plan.cells, &|cell| due.contains(&cell), &mut texts)?;
    }
    let changes = Changes::between(plan, inputs, past.inputs, &texts);
    let mut reasons: BTreeMap<String, Reason> = BTreeMap::new();
    for (run, _) in todo
        .rounds
        .iter()
        .enumerate()
        .filter(|(_, rounds)| **rounds > 0)
    {
        let cell = plan.cell_of(run);
        let stored = (past.rounds)(run);
        let first_line = |text: &str| text.lines().next().unwrap_or("").to_owned();
        let why = match ((past.broken)(run), (past.failure)(run)) {
            (Some(broken), _) => {
                let broken = first_line(&broken);
                format!("its build failed: {broken} (`--failed` tries again)")
            }
            (None, Some(failure)) => format!("failed last time: {}", first_line(&failure)),
            _ if let Some(again) = (past.again)(run) => again,
            _ if stored > 0 => format!("{stored} of its rounds are stored, more are wanted"),
            _ => changes.of(cell, (past.session)(run), past.files)?,
        };
        let reason = reasons.entry(why.clone()).or_insert_with(|| Reason {
            why,
            steps: 0,
            example: plan.cells.name(cell),
            first: u32::MAX,
        });
        let cell_number = plan.steps.runs.cells[run];
        if cell_number < reason.first {
            reason.first = cell_number;
            reason.example = plan.cells.name(cell);
        }
        reason.steps += 1;
    }
    let mut reasons: Vec<Reason> = reasons.into_values().collect();
    reasons.sort_by_key(|reason| reason.first);
    Ok(reasons)
}

/// Nothing is known of an earlier run.
const NEW: &str = "new: nothing of this matrix was measured yet";

/// Inputs then and now.
struct Changes<'a> {
    plan: &'a Plan<'a>,
    inputs: &'a [Inputs<'a>],
    old: &'a OldInputs,
    new: &'a InputTexts,
    /// Inputs that differ in some cell, are new or are gone.
    changed: BTreeSet<&'a str>,
    /// The axes that each input depended on.
    axes: HashMap<&'a str, BTreeSet<Vec<usize>>>,
    /// Values that each axis had, as far as inputs depended on it.
    values: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> Changes<'a> {
    fn between(
        plan: &'a Plan<'a>,
        inputs: &'a [Inputs<'a>],
        old: &'a OldInputs,
        new: &'a InputTexts,
    ) -> Self {
        let mut changed = BTreeSet::new();
        let names: HashSet<&str> = new.keys().map(|(_, name)| name.as_str()).collect();
        for (key, value) in new {
            let old = old.get(key).map_or(&[][..], Vec::as_slice);
            if !matches!(old, [old] if old.value == *value && old.ended.is_none()) {
                changed.insert(key.1.as_str());
            }
        }
        let mut axes: HashMap<&str, BTreeSet<Vec<usize>>> = HashMap::new();
        let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for ((place, name), values_there) in old {
            if !names.contains(name.as_str()) {
                changed.insert(name.as_str());
            }
            let parts = place.split(',').filter_map(|part| part.split_once('='));
            let mut of_name = Vec::new();
            let is_latest = value_in(values_there, None).is_some();
            for (axis, value) in parts {
                if is_latest {
                    values.entry(axis).or_default().insert(value);
                }
                of_name.extend(plan.cells.axis(axis));
            }
            axes.entry(name.as_str()).or_default().insert(of_name);
        }
        Changes {
            plan,
            inputs,
            old,
            new,
            changed,
            axes,
            values,
        }
    }

    /// What changed for a cell since a session. `sources`: what differs in those of its version.
    fn of(
        &self,
        cell: &[u16],
        session: Option<i64>,
        sources: &SourcesOf,
    ) -> Result<String, Diagnostic> {
        let sources = sources(cell, session)?.filter(|sources| !sources.files.is_empty());
        // All else follows from a version that is new.
        if let Some(sources) = sources.as_ref().filter(|sources| sources.since.is_some()) {
            return Ok(sources.text());
        }
        Ok(self.text(cell, session, sources.as_ref()))
    }

    fn text(&self, cell: &[u16], session: Option<i64>, sources: Option<&SourceChange>) -> String {
        if self.old.is_empty() {
            return NEW.to_owned();
        }
        let then = |name: &str| self.then(name, cell, session);
        let now = |name: &str| self.now(name, cell);
        if let Some(new) = self.new_value(cell).filter(|_| session.is_none()) {
            return new;
        }
        let mut parts: BTreeMap<&str, String> = BTreeMap::new();
        for name in &self.changed {
            let command = name.rsplit_once(", word ").map(|(command, _)| command);
            let told = match command {
                Some(command) if parts.contains_key(command) => None,
                Some(command) => {
                    let (old, new) = (words(command, &then), words(command, &now));
                    (old != new).then(|| (command, words_changed(command, &old, &new)))
                }
                None => match (then(name), now(name)) {
                    (Some(old), Some(new)) if old == new => None,
                    (None, None) => None,
                    (None, Some(_)) => Some((*name, format!("{name} is new"))),
                    (Some(old), new) => {
                        let new = new.unwrap_or("(gone)");
                        Some((*name, format!("{name}: {}", from_to(old, new))))
                    }
                },
            };
            parts.extend(told);
        }
        // The files tell more than the digest of them.
        let has_sources = parts.keys().any(|name| name.starts_with(SOURCES));
        if let Some(sources) = sources.filter(|_| has_sources || parts.contains_key(SUBJECT)) {
            parts.retain(|name, _| !name.starts_with(SOURCES));
            parts.insert(SOURCES, sources.text());
        }
        // So does what an artifact is built from; the inputs of builds come first.
        let is_built = !matches!(self.plan.steps.subjects.of(cell), Subject::Installed(_));
        let of_build = |name: &&str| {
            let is_input = self
                .inputs
                .first()
                .and_then(|build| build.place_of(name, cell));
            name.starts_with(BUILD) || name.starts_with(SOURCES) || is_input.is_some()
        };
        if is_built && parts.keys().any(of_build) {
            parts.remove(SUBJECT);
        }
        let parts: Vec<String> = parts.into_values().collect();
        match parts.is_empty() {
            true => "not measured yet, though its inputs are known".to_owned(),
            false => parts.join("; "),
        }
    }

    /// A value of an axis that is new explains all that follows from it.
    fn new_value(&self, cell: &[u16]) -> Option<String> {
        self.values.iter().find_map(|(name, old)| {
            let axis = self.plan.cells.axis(name)?;
            let value = self.plan.cells.label(cell, axis);
            if old.contains(value) {
                return None;
            }
            let labels = self.plan.cells.axes[axis].labels.iter();
            let now: BTreeSet<&str> = labels.map(String::as_str).collect();
            let gone: Vec<&&str> = old.difference(&now).collect();
            Some(match (gone.as_slice(), now.difference(old).count()) {
                ([old], 1) => format!("axis {name}: {old} → {value}"),
                _ => format!("axis {name}: {value} is new"),
            })
        })
    }

    /// The value that an input had in a cell.
    fn then(&self, name: &str, cell: &[u16], session: Option<i64>) -> Option<&'a str> {
        let axes = self.axes.get(name)?;
        axes.iter().find_map(|axes| {
            let place = self.plan.scope().name_of(cell, axes);
            value_in(self.old.get(&(place, name.to_owned()))?, session)
        })
    }

    /// The value that it has now.
    fn now(&self, name: &str, cell: &[u16]) -> Option<&'a str> {
        let place = self
            .inputs
            .iter()
            .find_map(|inputs| inputs.place_of(name, cell))?;
        self.new.get(&(place, name.to_owned())).map(String::as_str)
    }
}

/// All words of a command.
fn words<'a>(command: &str, value: &dyn Fn(&str) -> Option<&'a str>) -> Vec<&'a str> {
    (1..)
        .map_while(|word| value(&format!("{command}, word {word}")))
        .collect()
}

/// Only the words between the first and the last that differ.
fn words_changed(command: &str, old: &[&str], new: &[&str]) -> String {
    let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let ends = old[start..].iter().rev().zip(new[start..].iter().rev());
    let end = ends.take_while(|(a, b)| a == b).count();
    let middle = |words: &[&str]| match &words[start..words.len() - end] {
        [] => "(nothing)".to_owned(),
        words => words.join(" "),
    };
    let word = match (old.len() - start - end, new.len() - start - end) {
        (1, 1) => format!(", word {}", start + 1),
        _ => String::new(),
    };
    format!("{command}{word}: {}", from_to(&middle(old), &middle(new)))
}

/// Where two long texts begin alike, the part that does not is shown.
fn from_to(old: &str, new: &str) -> String {
    let same = old.chars().zip(new.chars()).take_while(|(a, b)| a == b);
    let skipped = match same.count() {
        same if same > VALUE_CHARS_MAX / 2 => same - VALUE_CHARS_MAX / 4,
        _ => 0,
    };
    let rest = |text: &str| {
        let dots = if skipped > 0 { "…" } else { "" };
        dots.to_owned() + &text.chars().skip(skipped).collect::<String>()
    };
    format!("{} → {}", short(&rest(old)), short(&rest(new)))
}

/// In one line.
fn short(text: &str) -> String {
    let text = text.replace('\n', "\\n");
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}

fn listed(files: &[String]) -> String {
    const FILES_MAX: usize = 4;
    let shown = files[..files.len().min(FILES_MAX)].join(", ");
    match files.len() {
        n if n > FILES_MAX => format!("{shown} and {} more", n - FILES_MAX),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_words_that_differ_are_told() {
        let check = |old: &[&str], new: &[&str], told: &str| {
            assert_eq!(words_changed("run command", old, new), told);
        };
        check(&["a", "b"], &["a", "c"], "run command, word 2: `b` → `c`");
        check(
            &["a", "b"],
            &["a", "x", "b"],
            "run command: `(nothing)` → `x`",
        );
        check(
            &["a", "x", "b"],
            &["a", "b"],
            "run command: `x` → `(nothing)`",
        );
        check(&["a", "a"], &["a"], "run command: `a` → `(nothing)`");
        check(&[], &["a", "b"], "run command: `(nothing)` → `a b`");
        check(&["a\nb"], &["a"], "run command, word 1: `a\\nb` → `a`");
        let long = |end: &str| format!("{}{end}", "0123456789".repeat(10));
        let (old, new) = (long("old"), long("new"));
        check(
            &[&old],
            &[&new],
            "run command, word 1: `…567890123456789old` → `…567890123456789new`",
        );
    }
}
