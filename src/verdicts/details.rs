//! What lets a report stand by itself: its session, commits, machines, logs of failures, and how to measure a cell by hand.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::base::diag::Diagnostic;
use crate::base::key::Key;
use crate::base::printable::printable_bytes;
use crate::base::secret::mask_secrets;
use crate::edge::store::{KnownCommit, SeriesId, Store, StoreError};
use crate::machine::environment::Environment;
use crate::plan::commands::{Places, SetupCommands, Words, show_words};
use crate::plan::dag::Plan;
use crate::plan::steps::NONE;
use crate::resolve::prepare::Machines;
use crate::resolve::versions::Versions;
use crate::verdicts::history::preset_name;
use crate::verdicts::parts::{
    CommitRow, MachineRow, ReproduceCommand, ReproduceRow, SessionRow, UnmeasuredRow,
};
use crate::verdicts::records::{Records, RecordsError};
use crate::verdicts::report::Report;

/// Cells whose commands are told.
const REPRODUCE_MAX: usize = 50;
/// Failures whose logs are told.
const LOGS_MAX: usize = 50;
/// Lines and characters of a log that are told.
const LOG_LINES_MAX: usize = 15;
const LOG_LINE_CHARS_MAX: usize = 400;
/// Of a log so much of its end is looked at.
const LOG_TAIL_BYTES_MAX: usize = 64 << 10;
/// Words by which a line names an error.
const ERROR_WORDS: [&str; 12] = [
    "error",
    "fatal",
    "failed",
    "failure",
    "cannot",
    "can't",
    "could not",
    "no such",
    "not found",
    "denied",
    "panicked",
    "undefined",
];

/// Adds what every report has: session, commits, machines, what was not measured, what is new. `preset`: as it was asked for.
pub fn add(
    report: &mut Report,
    plan: &Plan,
    store: &Store,
    versions: &Versions,
    preset: Option<&str>,
) -> Result<(), StoreError> {
    let matrix = plan.matrix;
    report.preset = preset_name(matrix, preset).to_owned();
    let own = preset_name(matrix, None);
    let unnamed = if report.preset == own {
        ""
    } else {
        &report.preset
    };
    let sessions = store.latest_sessions(&matrix.name, [&report.preset, unnamed], 2)?;
    let mut sessions = sessions.into_iter();
    report.session = sessions.next().map(SessionRow::of);
    report.session_before = sessions.next().map(|session| session.id);
    report.machines = match &report.session {
        Some(session) => machines(store, session.id)?,
        None => Vec::new(),
    };
    let known = store.known_commits(&matrix.name)?;
    add_commits(report, &known, versions, store)?;
    report.unmeasured = unmeasured(report, plan);
    Ok(())
}

fn machines(store: &Store, session: i64) -> Result<Vec<MachineRow>, StoreError> {
    let mut rows = Vec::new();
    for (machine, key) in store.machines_of(session)? {
        // One of a newer version of the program cannot be read.
        let json = store.environment(key)?;
        let environment = json.and_then(|json| Environment::from_json(&json).ok());
        rows.extend(environment.map(|environment| MachineRow {
            machine,
            environment: key.to_string(),
            values: environment.values,
        }));
    }
    Ok(rows)
}

/// Says of each version of the report which commit it is.
fn add_commits(
    report: &mut Report,
    known: &[KnownCommit],
    versions: &Versions,
    store: &Store,
) -> Result<(), StoreError> {
    // What a label means now; else what it meant last.
    let mut by_label: HashMap<&str, &str> = HashMap::new();
    for known in known {
        by_label.insert(&known.version, &known.commit);
    }
    let now = versions.list.iter();
    let now = now.filter_map(|it| Some((it.cell_label(), it.commit.as_ref()?.id.as_str())));
    let now: Vec<(String, &str)> = now.collect();
    for (label, id) in &now {
        by_label.insert(label, id);
    }
    for row in report
        .verdicts
        .iter_mut()
        .filter(|row| row.axis == "version")
    {
        let of = |label: &str| by_label.get(label).map(|id| (*id).to_owned());
        row.commits = [of(&row.baseline), of(&row.candidate)];
    }
    for row in &mut report.verdicts {
        // Both sides of another axis are of one version.
        if row.axis != "version" {
            let version = row.cell.axes().find(|(axis, _)| *axis == "version");
            let commit = version.and_then(|(_, label)| by_label.get(label));
            row.commits = [0, 1].map(|_| commit.map(|id| (*id).to_owned()));
        }
    }
    let named = report.axes.iter().filter(|axis| axis.name == "version");
    let named = named.flat_map(|axis| &axis.values);
    let of_plan = named.filter_map(|label| Some((label.as_str(), *by_label.get(label.as_str())?)));
    let of_rows = report.verdicts.iter().filter(|row| row.axis == "version");
    let of_rows = of_rows.flat_map(|row| {
        let labels = [row.baseline.as_str(), row.candidate.as_str()];
        labels
            .into_iter()
            .zip(row.commits.iter().map(Option::as_deref))
    });
    let of_rows = of_rows.filter_map(|(label, id)| Some((label, id?)));
    let wanted: BTreeSet<(&str, &str)> = of_plan.chain(of_rows).collect();
    let wanted: Vec<(String, String)> = wanted
        .into_iter()
        .map(|(label, id)| (label.to_owned(), id.to_owned()))
        .collect();
    report.commits = commit_rows(&wanted, known, store)?;
    Ok(())
}

/// A row for each commit of these (version, commit), in the order of the commits.
pub fn commit_rows(
    wanted: &[(String, String)],
    known: &[KnownCommit],
    store: &Store,
) -> Result<Vec<CommitRow>, StoreError> {
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (label, id) in wanted {
        labels.entry(id).or_default().insert(label);
    }
    let mut texts = store.commit_texts(labels.keys().copied())?;
    let mut rows: Vec<CommitRow> = labels
        .into_iter()
        .map(|(id, labels)| CommitRow {
            versions: labels.into_iter().map(str::to_owned).collect(),
            ..CommitRow::of(id, texts.remove(id))
        })
        .collect();
    sort_commits(&mut rows, known);
    Ok(rows)
}

/// In the order of the commits. What has no place yet comes last: it is the newest.
fn sort_commits(rows: &mut [CommitRow], known: &[KnownCommit]) {
    let positions = known
        .iter()
        .filter_map(|it| Some((it.commit.as_str(), it.position?)));
    let positions: HashMap<&str, _> = positions.collect();
    rows.sort_by_key(|row| {
        let position = positions.get(row.hash.as_str());
        (position.is_none(), position.copied())
    });
}

fn unmeasured(report: &Report, plan: &Plan) -> Vec<UnmeasuredRow> {
    let rules = plan.matrix.excludes.iter().zip(&plan.cells.excluded);
    let excluded = rules.filter(|(_, cells)| **cells > 0).map(|(rule, cells)| {
        let reason = rule.reason.as_deref().unwrap_or("no reason is given");
        UnmeasuredRow {
            cells: *cells,
            example: None,
            why: format!("excluded by `{}`: {reason}", rule.when.text),
        }
    });
    let mut rows: Vec<UnmeasuredRow> = excluded.collect();
    let mut is_known = vec![false; plan.cells.len()];
    for cell in report.cells.indexes() {
        is_known[cell as usize] = true;
    }
    for failed in &report.failed {
        if let Some(cell) = find(plan, &failed.cell) {
            is_known[cell as usize] = true;
        }
    }
    let mut missing = (0..plan.cells.len()).filter(|cell| !is_known[*cell]);
    if let Some(first) = missing.next() {
        rows.push(UnmeasuredRow {
            cells: 1 + missing.count(),
            example: Some(plan.cells.name(plan.cells.cell(first))),
            why: "nothing is stored: `matrix run` measures it".to_owned(),
        });
    }
    rows
}

fn find(plan: &Plan, name: &str) -> Option<u32> {
    let tuple = plan.cells.parse(name).ok()?;
    plan.cells.find(&tuple).map(|cell| cell as u32)
}

/// Adds the course of the cells and their change points.
pub fn add_history(report: &mut Report, plan: &Plan, store: Store) -> Result<(), RecordsError> {
    let records = Records::read(plan, store, Some(&report.preset), false, false)?;
    let wanted = |id: &SeriesId| records.names.contains_key(id);
    let moved = records.changes(&wanted, false)?;
    let history = records.history(&wanted, &moved)?;
    let causes = records.causes(&moved)?;
    (report.history, report.changes) = (history.series, causes.causes);
    for commit in history.commits.into_iter().chain(causes.commits) {
        match report.commits.iter_mut().find(|it| it.hash == commit.hash) {
            Some(known) => {
                known.versions.extend(commit.versions);
                known.versions.sort();
                known.versions.dedup();
            }
            None => report.commits.push(commit),
        }
    }
    sort_commits(&mut report.commits, &records.commits);
    Ok(())
}

/// Adds what only some faces show: the ends of the logs of failures, and the commands of cells that changed or failed.
pub fn add_by_hand(
    report: &mut Report,
    plan: &Plan,
    store: &Store,
    machines: &Machines,
) -> Result<(), Diagnostic> {
    let problem = |error: StoreError| Diagnostic::error(error.to_string());
    for failed in report.failed.iter_mut().take(LOGS_MAX) {
        if let Some(cell) = find(plan, &failed.cell)
            && let Some(log) = failing_log(plan, store, cell).map_err(problem)?
        {
            failed.log = end_of_log(&log);
        }
    }
    let changed = report.verdicts.iter().filter(|row| {
        let verdict = row.comparison.verdict;
        verdict.is_change() || verdict == crate::judge::verdict::Verdict::Suspected
    });
    let changed = changed.flat_map(|row| row.runs).filter(|run| *run != NONE);
    let changed = changed.map(|run| plan.steps.runs.cells[run as usize]);
    let failed = report.failed.iter();
    let failed = failed.filter_map(|failed| find(plan, &failed.cell));
    let mut cells = BTreeSet::new();
    let mut rows = Vec::new();
    for cell in changed.chain(failed) {
        if rows.len() < REPRODUCE_MAX && cells.insert(cell) {
            rows.extend(reproduce(plan, cell, machines)?);
        }
    }
    report.reproduce = rows;
    Ok(())
}

/// What the last attempt printed: at the build or set-up that failed where one did, else at the cell's run step.
pub fn failing_log(plan: &Plan, store: &Store, cell: u32) -> Result<Option<Vec<u8>>, StoreError> {
    let setups: Vec<_> = plan.setups_of(cell).collect();
    let setups = setups
        .iter()
        .rev()
        .map(|(setup, step)| plan.steps.setups[*setup].steps[*step as usize].key);
    let builds = plan.build_of(cell as usize);
    let builds = builds.map(|build| plan.steps.builds.steps[build as usize].key);
    let before: Vec<Key> = setups.chain(builds).collect();
    let mut keys = before.clone();
    keys.sort_unstable();
    keys.dedup();
    let mut failed = store.failures(&keys)?;
    failed.sort_by_key(|failure| failure.attempt);
    let failed = failed.into_iter().rev().map(|failure| failure.key);
    for key in failed.chain([plan.key_of(cell)]).chain(before) {
        if let Some(attempt) = store.latest_log(key)?
            && let Some(bytes) = store.read_log(attempt)?
        {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// The last lines of a log, from the first one on that names an error; all as it may be shown.
fn end_of_log(log: &[u8]) -> Vec<String> {
    let tail = &log[log.len().saturating_sub(LOG_TAIL_BYTES_MAX)..];
    let tail = printable_bytes(tail);
    let lines: Vec<&str> = tail
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let names_error = |line: &&str| {
        let line = line.to_lowercase();
        ERROR_WORDS.iter().any(|word| line.contains(word))
    };
    let last = lines.len().saturating_sub(LOG_LINES_MAX);
    // An error that scrolled away says more than what came after it.
    let begin = match lines[last..].iter().any(names_error) {
        true => last,
        false => lines.iter().rposition(names_error).unwrap_or(last),
    };
    let shown = lines[begin..].iter().take(LOG_LINES_MAX);
    let cut = |line: &&str| match line.chars().nth(LOG_LINE_CHARS_MAX) {
        Some(_) => line.chars().take(LOG_LINE_CHARS_MAX).chain(['…']).collect(),
        None => (*line).to_owned(),
    };
    shown.map(cut).collect()
}

/// The commands that measure a cell; None on a machine where nothing runs.
fn reproduce(
    plan: &Plan,
    cell: u32,
    machines: &Machines,
) -> Result<Option<ReproduceRow>, Diagnostic> {
    let tuple = plan.cells.cell(cell as usize);
    let machine = plan.cells.axis("machine");
    let machine = machine.and_then(|axis| machines.get(plan.cells.label(tuple, axis)));
    let Some(machine) = machine.filter(|machine| machine.host.is_some()) else {
        return Ok(None);
    };
    let view = machine.view();
    let places: &Places = &view.places;
    let mut commands = Vec::new();
    let mut push = |role: &'static str, line: String| {
        commands.push(ReproduceCommand {
            role,
            line: mask_secrets(&line).into_owned(),
        });
    };
    for (name, value) in plan.environment(cell)? {
        push(
            "environment",
            format!("export {name}={}", show_words(&[value])),
        );
    }
    let mut undo: Vec<Words> = Vec::new();
    for (setup, step) in plan.setups_of(cell) {
        let folder = plan.setup_dir(setup, step, places);
        push("set-up", show_words(&words(&["mkdir", "-p", &folder])));
        push("set-up", show_words(&words(&["cd", &folder])));
        let SetupCommands {
            run,
            service,
            ready,
            undo: own,
        } = plan.setup_commands(setup, step, places)?;
        for argv in run {
            push("set-up", show_words(&argv));
        }
        if let Some(argv) = service {
            push("service", format!("{} &", show_words(&argv)));
        }
        if let Some(argv) = ready {
            push(
                "ready",
                format!("until {}; do sleep 0.1; done", show_words(&argv)),
            );
        }
        undo.splice(0..0, own);
    }
    let folder = places.run_dir(0);
    push("measure", show_words(&words(&["mkdir", "-p", &folder])));
    push("measure", show_words(&words(&["cd", &folder])));
    for argv in plan.prepare_commands(cell, 0, 0, 0, places)? {
        push("measure", show_words(&argv));
    }
    push(
        "measure",
        show_words(&plan.run_command(cell, 0, 0, 0, places)?),
    );
    for argv in undo {
        push("undo", show_words(&argv));
    }
    Ok(Some(ReproduceRow {
        cell: plan.cells.name(tuple),
        commands,
    }))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_names_the_error() {
        let check = |log: &[u8], first: &str, lines: usize| {
            let end = end_of_log(log);
            assert_eq!((end[0].as_str(), end.len()), (first, lines));
        };
        check(b"one\n\ntwo\n", "one", 2);
        check(b"\x1b[31merror: x\xff\n", "\\x1b[31merror: x\\xff", 1);
        let recipe = "recipe line\n".repeat(100);
        let log = format!("start\nx.c:1: Error: no semicolon\n{recipe}");
        check(log.as_bytes(), "x.c:1: Error: no semicolon", LOG_LINES_MAX);
        check(recipe.as_bytes(), "recipe line", LOG_LINES_MAX);
        let long = "x".repeat(10 << 20);
        assert_eq!(
            end_of_log(long.as_bytes())[0].chars().count(),
            LOG_LINE_CHARS_MAX + 1
        );
    }
}
