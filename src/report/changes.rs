//! The text of series: their change points, one cause one line, and their course.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, ColumnConstraint};

use super::plot::levels;
use super::text::{
    BREAK, Style, accepted_line, arrow, breakable, commit_line, dropped, fit, in_one_unit, lines,
    more, table, value,
};
use crate::base::printable::line;
use crate::base::units::{count, show_ratio};
use crate::judge::changepoint::ChangeKind;
use crate::judge::history::ChangeStanding;
use crate::judge::verdict::Verdict;
use crate::verdicts::parts::CommitRow;
use crate::verdicts::report::AcceptedRow;
use crate::verdicts::series::{
    Cause, CellChange, Course, Effect, FileChange, FileChanges, History, MatrixChanges,
};

/// Rows and lines that a terminal is shown; the rest is counted.
const LINES_MAX: usize = 200;
/// A place that is so likely is told without a probability.
const CERTAIN: f64 = 0.95;
/// Cells of one cause that are named.
const CELLS_MAX: usize = 3;

/// The change points of a file as text.
pub fn file_text(found: &FileChanges, style: Style) -> String {
    let mut out = String::new();
    let header = [
        "series",
        "revision",
        "likely",
        "among",
        "change",
        "95% interval",
    ];
    let mut rows = table(style, &header, 2);
    let changed = found
        .series
        .iter()
        .filter(|series| !series.changes.is_empty());
    let all = changed
        .clone()
        .flat_map(|s| s.changes.iter().map(move |c| (&s.name, c)));
    let total = all.clone().count();
    for (name, change) in all.take(LINES_MAX) {
        let FileChange {
            revision,
            set,
            change,
        } = change;
        let (mut moved, interval) = in_one_unit(change.ratio, change.ci95);
        if change.kind == ChangeKind::Bend {
            moved = "bend".to_owned();
        }
        let among = match &set[..] {
            [first, .., last] => format!("{first}..={last}"),
            _ => String::new(),
        };
        rows.add_row(vec![
            Cell::new(breakable(name)),
            Cell::new(revision),
            Cell::new(format!("{:.0} %", 100.0 * change.probability)),
            Cell::new(among),
            Cell::new(moved),
            Cell::new(interval),
        ]);
    }
    fit(&mut rows, style, &[(0, BREAK), (1, ' ')], &[]);
    if total > 0 {
        out.push_str(&lines(&rows));
    }
    more(total, LINES_MAX, &mut out);
    for series in &found.series {
        if let Some([low, high]) = series.modes {
            let [low, high] = [low, high].map(|level| value(Some(level), ""));
            let name = &series.name;
            let _ = writeln!(
                out,
                "{name} goes to and fro between two modes, {low} and {high}"
            );
        }
    }
    let _ = writeln!(
        out,
        "{} in {} of {} series",
        count(total, "change"),
        changed.count(),
        found.series.len()
    );
    out
}

/// The causes of a matrix as text.
pub fn causes_text(found: &MatrixChanges, style: Style) -> String {
    let mut out = String::new();
    if found.causes.is_empty() {
        out.push_str("no change points (one needs five points on either side, a large one two: `matrix history` shows them)\n");
    }
    let header = ["id", "", "versions", "machine", "change", "cells", "since"];
    let mut rows = table(style, &header, 7);
    for cause in found.causes.iter().take(LINES_MAX) {
        rows.add_row(vec![
            Cell::new(cause.id.map_or("-".to_owned(), |id| id.to_string())),
            Cell::new(word(cause.verdict, cause.accepted)),
            Cell::new(versions(
                &cause.from,
                &cause.to,
                &cause.most_likely,
                cause.probability,
            )),
            Cell::new(cause.machines.join(" ")),
            Cell::new(effects(cause)),
            Cell::new(breakable(&cells_of(cause))),
            Cell::new(&cause.at),
        ]);
    }
    const DROPPED: [usize; 1] = [6];
    fit(&mut rows, style, &[(5, BREAK), (2, ' ')], &DROPPED);
    if !found.causes.is_empty() {
        out.push_str(&lines(&rows));
        out.push_str(&dropped(&rows, &DROPPED));
    }
    more(found.causes.len(), LINES_MAX, &mut out);
    for cause in found.causes.iter().take(LINES_MAX) {
        told_commit(&cause.commit, &found.commits, &mut out);
        for told in &cause.surroundings {
            let id = cause.id.map_or("-".to_owned(), |id| id.to_string());
            let _ = writeln!(out, "change {id}: possible cause: {told}");
        }
        for cell in &cause.cells {
            standing(cell, &mut out);
        }
    }
    accepted(&found.accepted, &mut out);
    out
}

/// Metrics of one cause that are named.
const EFFECTS_MAX: usize = 4;

fn effects(cause: &Cause) -> String {
    let one = |effect: &Effect| {
        let ratio = effect.ratio.map_or("-".to_owned(), show_ratio);
        format!("{} {ratio}", effect.metric)
    };
    let mut told: Vec<String> = cause.effects.iter().take(EFFECTS_MAX).map(one).collect();
    let more = cause.effects.len() - told.len();
    told.extend((more > 0).then(|| format!("and {more} more")));
    told.join(", ")
}

fn cells_of(cause: &Cause) -> String {
    let mut names: Vec<&str> = cause.cells.iter().map(|cell| &*cell.cell).collect();
    names.sort_unstable();
    names.dedup();
    match names.len() {
        n if n <= CELLS_MAX => names.join(" "),
        n => format!(
            "{} and {} more",
            names[..CELLS_MAX - 1].join(" "),
            n + 1 - CELLS_MAX
        ),
    }
}

/// Columns of a sparkline where there is no terminal.
const WIDTH_ELSEWHERE: u16 = 160;

/// The course of series as text: of one cell with every point, of many a line each.
pub fn history_text(history: &History, style: Style) -> String {
    let mut out = String::new();
    if history.series.is_empty() {
        out.push_str("nothing is stored of it\n");
    }
    let width = usize::from(style.width.unwrap_or(WIDTH_ELSEWHERE)).saturating_sub(4);
    let is_one_cell = history
        .series
        .windows(2)
        .all(|pair| pair[0].cell == pair[1].cell);
    for course in history.series.iter().take(LINES_MAX) {
        let values: Vec<Option<f64>> = course.points.iter().map(|point| point.value).collect();
        let last = values.iter().rev().flatten().next();
        let _ = writeln!(
            out,
            "{} {} {}: {}, last {}",
            course.cell,
            course.metric,
            arrow(course.better),
            count(values.len(), "point"),
            value(last.copied(), &course.unit),
        );
        let at: Vec<usize> = course.changes.iter().map(|change| change.index).collect();
        let plot = match is_one_cell {
            true => levels(&values, &at, &course.unit, width),
            false => String::new(),
        };
        match plot.is_empty() {
            true => {
                let _ = writeln!(out, "  {}", sparkline(&values, width));
            }
            false => plot.lines().for_each(|row| {
                let _ = writeln!(out, "  {row}");
            }),
        }
        if let Some([low, high]) = course.modes {
            let [low, high] = [low, high].map(|level| value(Some(level), &course.unit));
            let _ = writeln!(out, "  goes to and fro between two modes, {low} and {high}");
        }
        for change in &course.changes {
            change_line(change, &mut out);
            told_commit(&change.commit, &history.commits, &mut out);
        }
        if is_one_cell {
            points(course, &history.commits, style, &mut out);
        }
    }
    more(history.series.len(), LINES_MAX, &mut out);
    accepted(&history.accepted, &mut out);
    out
}

fn change_line(change: &CellChange, out: &mut String) {
    let (moved, interval) = in_one_unit(change.ratio, change.ci95);
    let _ = writeln!(
        out,
        "  {}{}: {} at {}, {moved} ({interval})",
        change
            .id
            .map_or(String::new(), |id| format!("change {id}, ")),
        versions(
            &change.from,
            &change.to,
            &change.most_likely,
            change.probability
        ),
        word(change.verdict, change.accepted),
        change.at,
    );
    for told in &change.surroundings {
        let _ = writeln!(out, "    possible cause: {told}");
    }
    standing(change, out);
}

/// The commit at which a change most likely is.
fn told_commit(hash: &Option<String>, commits: &[CommitRow], out: &mut String) {
    let commit = hash
        .as_ref()
        .and_then(|hash| commits.iter().find(|it| it.hash == *hash));
    if let Some(commit) = commit {
        let _ = writeln!(out, "    {}", commit_line(commit));
    }
}

/// Characters of a commit's subject in a table.
const SUBJECT_CHARS_MAX: usize = 50;

fn points(course: &Course, commits: &[CommitRow], style: Style, out: &mut String) {
    let header = ["  ", "version", "measured", "median", "n", "commit"];
    let mut rows = table(style, &header, 3);
    if let Some(column) = rows.column_mut(5) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    let subject = |hash: &Option<String>| {
        let commit = commits.iter().find(|it| Some(&it.hash) == hash.as_ref())?;
        let subject = line(&commit.subject);
        let subject: String = match subject.chars().nth(SUBJECT_CHARS_MAX) {
            Some(_) => subject
                .chars()
                .take(SUBJECT_CHARS_MAX)
                .chain(['…'])
                .collect(),
            None => subject,
        };
        Some(format!("{} {subject}", commit.short()))
    };
    if course.points.iter().all(|point| point.commit.is_none())
        && let Some(column) = rows.column_mut(5)
    {
        column.set_constraint(ColumnConstraint::Hidden);
    }
    let skipped = course.points.len().saturating_sub(LINES_MAX);
    for (index, point) in course.points.iter().enumerate().skip(skipped) {
        let changed = course.changes.iter().any(|change| change.index == index);
        rows.add_row(vec![
            Cell::new(if changed { "  *" } else { "" }),
            Cell::new(&point.version),
            Cell::new(&point.at),
            Cell::new(value(point.value, &course.unit)),
            Cell::new(point.n),
            Cell::new(subject(&point.commit).unwrap_or_default()),
        ]);
        for told in &point.differences {
            rows.add_row(vec![Cell::new(""), Cell::new(""), Cell::new(told)]);
        }
    }
    fit(&mut rows, style, &[(2, ' '), (5, ' ')], &[5]);
    out.push_str(&lines(&rows));
}

fn standing(change: &CellChange, out: &mut String) {
    let words = match (change.standing, &change.told_at) {
        (Some(ChangeStanding::Gone), _) => "is not found any more".to_owned(),
        (_, Some(version)) => format!("was told at `{version}` first"),
        _ => return,
    };
    let id = change.id.map_or("-".to_owned(), |id| id.to_string());
    let _ = writeln!(
        out,
        "    change {id} of {} {}: {words}",
        change.cell, change.metric
    );
}

fn accepted(rows: &[AcceptedRow], out: &mut String) {
    for row in rows {
        let _ = writeln!(out, "{}", accepted_line(row));
    }
}

fn word(verdict: Verdict, accepted: Option<i64>) -> String {
    match accepted {
        Some(id) => format!("{}, accepted {id}", verdict.name()),
        None => verdict.name().to_owned(),
    }
}

/// `a..b`, and where it may be any of several the most likely one.
fn versions(from: &str, to: &str, most_likely: &str, probability: Option<f64>) -> String {
    let range = match from == to {
        true => to.to_owned(),
        false => format!("{from}..{to}"),
    };
    match probability.filter(|p| *p < CERTAIN) {
        Some(p) => format!("{range}, most likely {most_likely} ({:.0} %)", 100.0 * p),
        None => range,
    }
}

/// The last `width` points as bars between the smallest and the largest; a gap is a blank.
pub fn sparkline(values: &[Option<f64>], width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let values = &values[values.len().saturating_sub(width)..];
    let known = values.iter().flatten().copied();
    let low = known.clone().fold(f64::INFINITY, f64::min);
    let high = known.fold(f64::NEG_INFINITY, f64::max);
    let bar = |value: f64| match high > low {
        true => BARS[((value - low) / (high - low) * 7.0).round() as usize],
        false => BARS[3],
    };
    values.iter().map(|value| value.map_or(' ', bar)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_is_told_what_is_hidden() {
        let cause = Cause {
            id: Some(1),
            machines: vec!["here".to_owned()],
            set: vec!["v2".to_owned()],
            from: "v1".to_owned(),
            to: "v2".to_owned(),
            most_likely: "v2".to_owned(),
            commit: None,
            commits: vec![None],
            probability: Some(1.0),
            at: "2026-01-01T00:00:00Z".to_owned(),
            verdict: Verdict::Regression,
            effects: vec![Effect {
                metric: "iops".to_owned(),
                ratio: Some(0.9),
                cells: 1,
            }],
            surroundings: Vec::new(),
            accepted: None,
            cells: Vec::new(),
        };
        let found = MatrixChanges {
            matrix: "m".to_owned(),
            preset: "quick".to_owned(),
            commits: Vec::new(),
            causes: vec![cause],
            accepted: Vec::new(),
        };
        let told = |width| {
            let style = Style {
                color: false,
                width: Some(width),
                all: false,
            };
            let shown = causes_text(&found, style);
            let told = shown
                .lines()
                .find(|line| line.starts_with("terminal too narrow"));
            told.map(str::to_owned)
        };
        assert_eq!(told(200), None);
        let expected = "terminal too narrow for: since (`--json` has all)";
        assert_eq!(told(60).as_deref(), Some(expected));
    }

    #[test]
    fn sparklines_span_the_values() {
        let check = |values: &[Option<f64>], width, expected| {
            assert_eq!(sparkline(values, width), expected);
        };
        check(&[Some(1.0), None, Some(8.0)], 9, "▁ █");
        check(&[Some(1.0), Some(2.0), Some(9.0)], 2, "▁█");
        check(&[Some(5.0), Some(5.0)], 9, "▄▄");
        check(&[], 9, "");
    }
}
