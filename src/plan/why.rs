//! Owns why a step runs: which of its inputs changed since it was last run, from what to what.
//! Does not know where the old inputs are kept.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::dag::{Plan, Todo};
use super::key::{InputTexts, Inputs};
use super::steps::{BUILD, SOURCES, SUBJECT};
use crate::words::diag::Diagnostic;

/// Characters of a value that are shown.
const VALUE_CHARS_MAX: usize = 60;

/// Run steps with one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    pub why: String,
    pub steps: usize,
    /// One of the cells.
    pub example: String,
}

/// How the sources of a version differ from earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    pub version: String,
    /// The version before it in the plan; None: what its own label meant before.
    pub since: Option<String>,
    pub files: Vec<String>,
}

impl Sources {
    fn text(&self) -> String {
        let Sources { version, files, .. } = self;
        let since = self.since.iter().map(|since| format!(" since {since}"));
        let since: String = since.collect();
        format!("sources of {version}{since}: {}", listed(files))
    }
}

/// The changed sources of a cell, if any did.
pub type SourcesOf<'a> = dyn Fn(&[u16]) -> Result<Option<Sources>, Diagnostic> + 'a;

/// What is known beside the inputs.
pub struct Past<'a> {
    /// Inputs of when steps were last run.
    pub inputs: &'a InputTexts,
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

/// The reason for each run step that is to be done, grouped so that one cause is one line; the most
/// steps first.
pub fn why(
    plan: &Plan,
    todo: &Todo,
    inputs: &[Inputs],
    past: &Past,
) -> Result<Vec<Reason>, Diagnostic> {
    let due: HashSet<usize> = plan
        .steps
        .runs
        .steps
        .iter()
        .zip(&todo.rounds)
        .filter(|(_, rounds)| **rounds > 0)
        .map(|(step, _)| step.cell as usize)
        .collect();
    let mut texts = InputTexts::new();
    for inputs in inputs {
        inputs.tell(&plan.cells, &|cell| due.contains(&cell), &mut texts)?;
    }
    let changes = Changes::between(past.inputs, &texts);
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
            _ if stored > 0 => format!("{stored} of its rounds are stored, more are wanted"),
            _ => {
                let sources = (past.files)(cell)?.filter(|sources| !sources.files.is_empty());
                changes.of(plan, inputs, cell, sources.as_ref())?
            }
        };
        let reason = reasons.entry(why.clone()).or_insert_with(|| Reason {
            why,
            steps: 0,
            example: plan.cells.name(cell),
        });
        reason.steps += 1;
    }
    let mut reasons: Vec<Reason> = reasons.into_values().collect();
    reasons.sort_by(|a, b| b.steps.cmp(&a.steps).then_with(|| a.why.cmp(&b.why)));
    Ok(reasons)
}

/// Old value (None: it is new) and new value (None: it is gone).
type Change<'a> = (Option<&'a str>, Option<&'a str>);

/// Nothing is known of an earlier run.
const NEW: &str = "new: nothing of this matrix was measured yet";

/// Differences of inputs: name → projection → old value (None: it is new) and new value (None: it is
/// gone).
struct Changes<'a> {
    by_name: HashMap<&'a str, HashMap<&'a str, Change<'a>>>,
    /// Projections that were there before, by input name.
    before: HashMap<&'a str, Vec<&'a str>>,
    now: HashMap<&'a str, HashSet<&'a str>>,
}

impl<'a> Changes<'a> {
    fn between(old: &'a InputTexts, new: &'a InputTexts) -> Self {
        let mut changes = Changes {
            by_name: HashMap::new(),
            before: HashMap::new(),
            now: HashMap::new(),
        };
        for ((place, name), value) in new {
            let before = old.get(&(place.clone(), name.clone()));
            if before != Some(value) {
                let by_place = changes.by_name.entry(name.as_str()).or_default();
                by_place.insert(
                    place.as_str(),
                    (before.map(String::as_str), Some(value.as_str())),
                );
            }
            changes
                .now
                .entry(name.as_str())
                .or_default()
                .insert(place.as_str());
        }
        for ((place, name), value) in old {
            changes
                .before
                .entry(name.as_str())
                .or_default()
                .push(place.as_str());
            // A word that the command does not have any more; other projections of it may just not
            // be part of this plan.
            if !changes.now.contains_key(name.as_str()) {
                let by_place = changes.by_name.entry(name.as_str()).or_default();
                by_place.insert(place.as_str(), (Some(value.as_str()), None));
            }
        }
        changes
            .before
            .values_mut()
            .for_each(|places| places.sort_unstable());
        changes
    }

    fn of(
        &self,
        plan: &Plan,
        inputs: &[Inputs],
        cell: &[u16],
        sources: Option<&Sources>,
    ) -> Result<String, Diagnostic> {
        // All else follows from a version that is new.
        if let Some(sources) = sources.filter(|sources| sources.since.is_some()) {
            return Ok(sources.text());
        }
        if self.before.is_empty() {
            return Ok(NEW.to_owned());
        }
        let mut parts: BTreeMap<&str, String> = BTreeMap::new();
        let mut commands: BTreeMap<&str, Vec<WordChange>> = BTreeMap::new();
        let name_of_cell = plan.cells.name(cell);
        for (name, by_place) in &self.by_name {
            let here = inputs.iter().find_map(|inputs| inputs.place_of(name, cell));
            let here = match &here {
                Some(place) => by_place.get_key_value(place.as_str()),
                // Gone: it counted here if its part of the cell is part of this one.
                None => by_place
                    .iter()
                    .find(|(place, _)| is_part(place, &name_of_cell)),
            };
            let Some((place, &(old, new))) = here else {
                continue;
            };
            match (name.rsplit_once(", word "), old) {
                (Some((command, number)), _) if self.was_there(command, &name_of_cell) => {
                    let number = number.parse().unwrap_or(0);
                    commands
                        .entry(command)
                        .or_default()
                        .push((number, old, new));
                }
                (_, None) => {
                    parts.extend(self.new_value(plan, name, place).map(|new| (*name, new)));
                }
                (_, Some(old)) => {
                    let new = new.unwrap_or("(gone)");
                    parts.insert(name, format!("{name}: {} → {}", short(old), short(new)));
                }
            }
        }
        for (command, words) in commands {
            parts.insert(command, words_changed(command, words));
        }
        // A new value of an axis explains all that follows from it.
        if let Some(new) = parts.values().find(|part| part.starts_with("axis ")) {
            return Ok(new.clone());
        }
        // The files tell more than the digest of them.
        let has_sources = parts.keys().any(|name| name.starts_with(SOURCES));
        if let Some(sources) = sources.filter(|_| has_sources || parts.contains_key(SUBJECT)) {
            parts.retain(|name, _| !name.starts_with(SOURCES));
            parts.insert(SOURCES, sources.text());
        }
        // So does what an artifact is built from.
        if parts
            .keys()
            .any(|name| name.starts_with(BUILD) || name.starts_with(SOURCES))
        {
            parts.remove(SUBJECT);
        }
        let parts: Vec<String> = parts.into_values().collect();
        Ok(match parts.is_empty() {
            true => "not measured yet, though its inputs are known".to_owned(),
            false => parts.join("; "),
        })
    }

    /// Whether some word of a command was known in this cell before.
    fn was_there(&self, command: &str, cell: &str) -> bool {
        let first = format!("{command}, word 1");
        self.before
            .get(first.as_str())
            .is_some_and(|places| places.iter().any(|place| is_part(place, cell)))
    }

    /// An input without a past: a value of an axis is new, perhaps instead of one that is gone.
    fn new_value(&self, plan: &Plan, name: &str, place: &str) -> Option<String> {
        let before = self.before.get(name)?;
        for part in place.split(',').filter(|part| !part.is_empty()) {
            let (axis, value) = part.split_once('=')?;
            let parts = before.iter().flat_map(|place| place.split(','));
            let values = parts.filter_map(|part| part.strip_prefix(axis)?.strip_prefix('='));
            let old: HashSet<&str> = values.collect();
            if old.contains(value) {
                continue;
            }
            let axis_of = &plan.cells.axes[plan.cells.axis(axis)?];
            let now: HashSet<&str> = axis_of.labels.iter().map(String::as_str).collect();
            let mut gone: Vec<&&str> = old.difference(&now).collect();
            gone.sort();
            let added = now.difference(&old).count();
            return Some(match (gone.as_slice(), added) {
                ([old], 1) => format!("axis {axis}: {old} → {value}"),
                _ => format!("axis {axis}: {value} is new"),
            });
        }
        Some(format!("{name} is new"))
    }
}

/// The number of a word, what it was and what it is.
type WordChange<'a> = (usize, Option<&'a str>, Option<&'a str>);

/// Only the words between the first and the last that differ.
fn words_changed(command: &str, mut words: Vec<WordChange>) -> String {
    words.sort_unstable();
    if let [(number, Some(old), Some(new))] = words[..] {
        return format!("{command}, word {number}: {} → {}", short(old), short(new));
    }
    let side = |pick: &dyn Fn(&WordChange) -> Option<String>| -> Vec<String> {
        words.iter().filter_map(pick).collect()
    };
    let old = side(&|word| word.1.map(str::to_owned));
    let new = side(&|word| word.2.map(str::to_owned));
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let ends = old[start..].iter().rev().zip(new[start..].iter().rev());
    let end = ends.take_while(|(a, b)| a == b).count();
    let middle = |words: &[String]| match &words[start..words.len() - end] {
        [] => "(nothing)".to_owned(),
        words => words.join(" "),
    };
    format!(
        "{command}: {} → {}",
        short(&middle(&old)),
        short(&middle(&new))
    )
}

/// Whether each part of a projection's name is part of a cell's name.
fn is_part(place: &str, cell: &str) -> bool {
    let mut parts = place.split(',').filter(|part| !part.is_empty());
    parts.all(|part| cell.split(',').any(|known| known == part))
}

fn short(text: &str) -> String {
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
    fn an_inserted_word_is_told_alone() {
        let check = |old: &[&str], new: &[&str], told: &str| {
            let words = (0..old.len().max(new.len()))
                .map(|i| (i + 1, old.get(i).copied(), new.get(i).copied()))
                .filter(|(_, old, new)| old != new)
                .collect();
            assert_eq!(words_changed("run command", words), told);
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
    }
}
