//! The tables that a terminal shows: they fit its width.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::ops::Deref;

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};

use crate::base::printable::{Mark, line, marked, styled};
use crate::base::sample::Better;
use crate::base::units::{FACTOR_MIN, count, show_factor, show_ratio, show_value};
use crate::judge::verdict::Verdict;
use crate::verdicts::context::MonitorsRow;
use crate::verdicts::parts::CommitRow;
use crate::verdicts::report::{AcceptedRow, Report, VerdictRow};

/// Rows of one table; the rest is counted.
const ROWS_MAX: usize = 60;

/// Differences of two environments that are shown.
const DIFFERENCES_MAX: usize = 12;

/// Blanks left and right of each column.
const PADDING: (u16, u16) = (0, 2);

/// A blank of no width, where a name may be broken; never printed.
pub const BREAK: char = '\u{200b}';

/// A column that breaks its lines gets at least this width before another column goes.
const WRAPPED_MIN: u16 = 20;

/// How a terminal wants its text.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub color: bool,
    /// Columns of the terminal; None where lines may be as long as they are, as in a file.
    pub width: Option<u16>,
    /// All rows, however many they are.
    pub all: bool,
}

/// A table with a header; numbers of the columns from `right` on stand to the right.
pub fn table(style: Style, header: &[&str], right: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    match style.width {
        Some(width) => table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    // Colours are marks in the text: whoever prints it knows whether there are any.
    table.force_no_tty();
    table.set_header(header.iter().map(|title| marked(Mark::Bold, title)));
    for column in right..header.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for column in table.column_iter_mut() {
        column.set_padding(PADDING);
    }
    table
}

/// A name that a table may break after each comma.
pub fn breakable(name: &str) -> String {
    name.replace(',', &format!(",{BREAK}"))
}

/// Makes a table fit a terminal: only columns in `wrap` break their lines, those of names where [`breakable`] allows
/// it, others at blanks. Where that is not enough, the columns in `drop` go, in this order. Returns whether it fits.
pub fn fit(table: &mut Table, style: Style, wrap: &[(usize, char)], drop: &[usize]) -> bool {
    let Some(width) = style.width else {
        return true;
    };
    let mut widths: Vec<u16> = table
        .column_max_content_widths()
        .iter()
        .map(|width| width + PADDING.0 + PADDING.1)
        .collect();
    for (index, column) in table.column_iter_mut().enumerate() {
        match wrap.iter().find(|(wrapped, _)| *wrapped == index) {
            Some((_, at)) => {
                widths[index] = widths[index].min(WRAPPED_MIN);
                column.set_delimiter(*at);
            }
            None => {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
    }
    for dropped in drop {
        if widths.iter().sum::<u16>() <= width {
            break;
        }
        widths[*dropped] = 0;
        if let Some(column) = table.column_mut(*dropped) {
            column.set_constraint(ColumnConstraint::Hidden);
        }
    }
    widths.iter().sum::<u16>() <= width
}

/// What to say of the columns in `drop` that [`fit`] has taken away; nothing where all are there.
pub fn dropped(table: &Table, drop: &[usize]) -> String {
    let titles = drop.iter().filter_map(|index| {
        let is_hidden = table.column(*index)?.constraint() == Some(&ColumnConstraint::Hidden);
        let title = table.header()?.cell_iter().nth(*index)?.content();
        is_hidden.then_some(styled(&title, false).into_owned())
    });
    match titles.collect::<Vec<_>>() {
        titles if titles.is_empty() => String::new(),
        titles => format!(
            "terminal too narrow for: {} (`--json` has all)\n",
            titles.join(", ")
        ),
    }
}

/// Text whose long lines are broken at blanks; what follows is indented.
fn wrapped(text: &str, style: Style) -> String {
    let Some(width) = style.width.map(usize::from) else {
        return text.to_owned();
    };
    let mut out = String::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        out.push_str(&line[..indent]);
        let mut column = indent;
        for (index, word) in line[indent..].split(' ').enumerate() {
            let length = word.chars().count();
            if index > 0 && column + 1 + length > width {
                let _ = write!(out, "\n{:1$}", "", indent + 2);
                column = indent + 2;
            } else if index > 0 {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += length;
        }
        out.push('\n');
    }
    out
}

/// Lines without trailing blanks.
pub fn lines(table: &Table) -> String {
    let mut out = String::new();
    for line in table.lines() {
        out.push_str(line.replace(BREAK, "").trim_end());
        out.push('\n');
    }
    out
}

/// The whole result.
pub fn report(report: &Report, style: Style) -> String {
    let mut out = String::new();
    match report.verdicts.is_empty() {
        true => cells(report, style, &mut out),
        false => verdicts(report, style, &mut out),
    }
    let mut below = String::new();
    standing(report, &mut below);
    if !report.failed.is_empty() {
        failures(report, &mut below);
    }
    if let Some(left_out) = report.left_out.filter(|it| it.cells > 0) {
        let _ = writeln!(below, "\n{left_out}");
    }
    beside(report, &mut below);
    versions(report, &mut below);
    since_last(report, &mut below);
    let _ = writeln!(below, "\n{}", summary(report));
    out.push_str(&wrapped(&below, style));
    out
}

/// Commits that are told below a table.
const COMMITS_MAX: usize = 20;
/// Findings of a kind that are told.
const FINDINGS_MAX: usize = 10;

/// What the versions are that were compared, the latest commit last.
fn versions(report: &Report, out: &mut String) {
    let sides = report.verdicts.iter().filter(|row| row.axis == "version");
    let compared: BTreeSet<&String> = sides.flat_map(|row| row.commits.iter().flatten()).collect();
    let commits = report
        .commits
        .iter()
        .filter(|it| compared.contains(&it.hash));
    let commits: Vec<&CommitRow> = commits.collect();
    if commits.is_empty() {
        return;
    }
    out.push_str("\ncommits:\n");
    let skipped = commits.len().saturating_sub(COMMITS_MAX);
    if skipped > 0 {
        let _ = writeln!(out, "  … {} before these", count(skipped, "commit"));
    }
    for commit in &commits[skipped..] {
        let _ = writeln!(out, "  {}", commit_line(commit));
    }
}

/// `v2 = 1a2b3c4d5e6f block: write numbers (A, 2026-11-30)`; of a version that is called by its hash without the name.
pub fn commit_line(commit: &CommitRow) -> String {
    let names = commit
        .versions
        .iter()
        .filter(|name| !commit.hash.starts_with(name.as_str()));
    let names: Vec<&str> = names.map(String::as_str).collect();
    let name = match names.is_empty() {
        true => String::new(),
        false => format!("{} = ", names.join(", ")),
    };
    let by = match commit.author.is_empty() {
        true => String::new(),
        false => {
            let day = commit.date.split('T').next().unwrap_or("");
            format!(" ({}, {day})", commit.author)
        }
    };
    line(&format!("{name}{} {}{by}", commit.short(), commit.subject))
}

/// What is new, still there and gone since the session before.
fn since_last(report: &Report, out: &mut String) {
    let Some(since) = &report.since_last else {
        return;
    };
    let kinds = [
        ("new", &since.new),
        ("still there", &since.still),
        ("gone", &since.gone),
    ];
    let any = kinds.iter().any(|(_, rows)| !rows.is_empty());
    let Some(session) = since.session.filter(|_| any) else {
        return;
    };
    let told: Vec<String> = kinds
        .iter()
        .filter(|(_, rows)| !rows.is_empty())
        .map(|(word, rows)| format!("{} {word}", rows.len()))
        .collect();
    let _ = writeln!(
        out,
        "\nchanges since session {session}: {}",
        told.join(", ")
    );
    for (word, rows) in kinds.iter().filter(|(word, _)| *word != "still there") {
        for row in rows.iter().take(FINDINGS_MAX) {
            let change = row.ratio.map_or("-".to_owned(), show_ratio);
            let cell = match row.cell.is_empty() {
                true => String::new(),
                false => format!(" of {}", row.cell),
            };
            let _ = writeln!(
                out,
                "  {word}: {} {change}{cell} ({} → {})",
                row.metric, row.baseline, row.candidate
            );
        }
        if rows.len() > FINDINGS_MAX {
            let _ = writeln!(out, "  … and {} more {word}", rows.len() - FINDINGS_MAX);
        }
    }
}

/// Regressions of earlier sessions that stand.
fn standing(report: &Report, out: &mut String) {
    let total = report.open_regressions.len();
    if total == 0 {
        return;
    }
    let verb = if total == 1 { "stands" } else { "stand" };
    let _ = writeln!(
        out,
        "\n{} {verb}, confirmed earlier:",
        count(total, "regression")
    );
    for row in report.open_regressions.iter().take(ROWS_MAX) {
        let cell = match row.cell.0.as_str() {
            "" => String::new(),
            cell => format!(" of {cell}"),
        };
        let day = row.confirmed_at.split('T').next().unwrap_or_default();
        let _ = writeln!(
            out,
            "  {}{cell}: {} in {} against {}, confirmed on {day}, still there in {}",
            row.metric,
            show_ratio(row.ratio),
            row.candidate,
            row.baseline,
            row.now
        );
    }
    more(total, ROWS_MAX, out);
}

fn failures(report: &Report, out: &mut String) {
    let _ = writeln!(out, "\n{} failed:", count(report.failed.len(), "cell"));
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for failed in &report.failed {
        let index = *known.entry(&failed.reason).or_insert(reasons.len());
        if index == reasons.len() {
            reasons.push((&failed.reason, Vec::new()));
        }
        reasons[index].1.push(&failed.cell);
    }
    for (reason, cells) in reasons.iter().take(ROWS_MAX) {
        let others = match cells.len() - 1 {
            0 => String::new(),
            n => format!(" and {}", count(n, "more cell")),
        };
        let _ = writeln!(out, "  {}{others}", cells[0]);
        for line in reason.lines().take(4) {
            let _ = writeln!(out, "    {line}");
        }
    }
    more(reasons.len(), ROWS_MAX, out);
}

/// What was beside the samples, where it may matter.
fn beside(report: &Report, out: &mut String) {
    for row in &report.environments {
        let [a, b] = &row.between;
        let verdicts = count(row.verdicts, "comparison");
        let _ = writeln!(
            out,
            "\nthe machine differed between {a} and {b} ({verdicts}):"
        );
        for difference in row.differences.iter().take(DIFFERENCES_MAX) {
            let _ = writeln!(out, "  {difference}");
        }
        if row.differences.len() > DIFFERENCES_MAX {
            let more = row.differences.len() - DIFFERENCES_MAX;
            let _ = writeln!(out, "  … and {more} more (`--json` has all)");
        }
    }
    for row in &report.monitors {
        let MonitorsRow {
            axis,
            baseline,
            candidate,
            ..
        } = row;
        let metrics = row.metrics.join(", ");
        let of = count(row.monitors, "monitor");
        let cell = match row.cell.as_str() {
            "" => String::new(),
            cell => format!(", {cell}"),
        };
        let _ = writeln!(
            out,
            "\nmoved with {metrics} ({axis}: {baseline} → {candidate}{cell}), of {of}:"
        );
        for moved in &row.moved {
            let change = moved.ratio.map_or("-".to_owned(), show_ratio);
            let (a, b) = (
                show_value(moved.baseline, ""),
                show_value(moved.candidate, ""),
            );
            let _ = writeln!(out, "  {}: {a} → {b} ({change})", moved.monitor);
        }
        if row.moved.is_empty() {
            let _ = writeln!(out, "  none");
        }
    }
    for row in &report.marks {
        let why = match row.kind {
            "knob" => "somebody had changed the profile",
            _ => "the machine was not quiet, such as",
        };
        let samples = count(row.samples, "measurement");
        let _ = writeln!(out, "\nnote: in {samples} {why}: {}", row.example);
    }
}

/// One line: `2 improvements, 30 same (BH …)`.
pub fn summary(report: &Report) -> String {
    let counts = report.counts;
    if report.verdicts.is_empty() {
        let cells = count(report.cells.cells(), "cell");
        let measured = format!("{cells} measured, nothing compared");
        return match report.failed.len() {
            0 => measured,
            n => format!("{measured}, {} failed", count(n, "cell")),
        };
    }
    let mut parts = changes(report);
    let plain = [
        (counts.suspected, "suspected"),
        (counts.accepted, "accepted"),
        (counts.same, "same"),
        (counts.inconclusive, "inconclusive"),
        (counts.nothing_measured, "nothing measured"),
    ];
    parts.extend(
        plain
            .iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, word)| format!("{n} {word}")),
    );
    if !report.open_regressions.is_empty() {
        let stand = if report.open_regressions.len() == 1 {
            "stands"
        } else {
            "stand"
        };
        parts.push(format!("{} {stand}", report.open_regressions.len()));
    }
    if !report.failed.is_empty() {
        parts.push(format!("{} failed", count(report.failed.len(), "cell")));
    }
    parts.join(", ")
}

/// `583 regressions, 177 of them gate`, and the changes on axes that do not gate in their own words.
fn changes(report: &Report) -> Vec<String> {
    let mut words: BTreeMap<&str, usize> = BTreeMap::new();
    let mut gating = 0;
    for row in report.verdicts.iter().filter(|row| !row.is_accepted) {
        if row.comparison.verdict.is_change() {
            *words.entry(row.verdict_name()).or_default() += 1;
            gating += usize::from(row.rank() == 0);
        }
    }
    let mut of = |word: &str| words.remove(word).unwrap_or(0);
    let (regressions, improvements) = (of("regression"), of("improvement"));
    let all = count(regressions, "regression");
    let regressions = match (gating, regressions) {
        (0, _) => all,
        (gating, all) if gating == all && all == 1 => "1 regression that gates".to_owned(),
        (gating, total) if gating == total => format!("{all}, all of them gate"),
        (gating, _) => format!("{all}, {gating} of them gate"),
    };
    let others = words.into_iter().map(|(word, n)| format!("{n} {word}"));
    let any_others = others.len() > 0;
    let any_gates = report.verdicts.iter().any(|row| row.axis_gates);
    let all = [regressions, count(improvements, "improvement")].into_iter();
    let all = all.filter(|_| any_gates || !any_others);
    all.chain(others).collect()
}

fn verdicts(report: &Report, style: Style, out: &mut String) {
    // One baseline for all is said once.
    let sides = |row: &VerdictRow| (row.axis.clone(), row.baseline.clone());
    let common = report
        .verdicts
        .first()
        .map(sides)
        .filter(|first| report.verdicts.iter().all(|row| sides(row) == *first));
    let compared = common.as_ref().map_or("compared", |(axis, _)| axis);
    let header = [
        "verdict",
        "cell",
        compared,
        "metric",
        "baseline",
        "candidate",
        "change",
        "95% interval",
        "n",
    ];
    let mut table = table(style, &header, 4);
    let names = report.verdicts.iter().map(|row| row.cell.deref());
    let failed = report.failed.iter().map(|failed| failed.cell.as_str());
    let shared = shared_parts(names.chain(failed));
    let rows = rows_shown(&report.verdicts, style);
    for row in &rows {
        let (change, interval) = in_one_unit(row.comparison.ratio, row.comparison.ci95);
        table.add_row(vec![
            verdict_cell(row),
            Cell::new(breakable(&line(&without(&row.cell, &shared)))),
            Cell::new(line(&match &common {
                Some(_) => row.candidate.clone(),
                None => format!("{}: {} → {}", row.axis, row.baseline, row.candidate),
            })),
            Cell::new(format!("{} {}", line(&row.metric), arrow(row.better))),
            Cell::new(value(row.baseline_median, &row.unit)),
            Cell::new(value(row.candidate_median, &row.unit)),
            Cell::new(change),
            Cell::new(interval),
            Cell::new(format!("{}+{}", row.comparison.n[0], row.comparison.n[1])),
        ]);
    }
    let is_one = report.failed.is_empty() && is_one(report.verdicts.iter().map(|row| &*row.cell));
    heading(&shared, common, is_one, out);
    let is_named = |row: &VerdictRow| !without(&row.cell, &shared).is_empty();
    if !report.verdicts.iter().any(is_named)
        && let Some(cell) = table.column_mut(1)
    {
        cell.set_constraint(ColumnConstraint::Hidden);
    }
    const DROPPED: [usize; 4] = [8, 7, 4, 5];
    let fits = fit(&mut table, style, &[(1, BREAK), (2, ' ')], &DROPPED);
    let mut below = dropped(&table, &DROPPED);
    if fits {
        out.push_str(&lines(&table));
    } else {
        below_names(table, &rows, &shared, out);
    }
    hidden(&report.verdicts, &rows, out);
    notes(report, &mut below);
    out.push_str(&wrapped(&below, style));
}

/// The rows that a terminal is shown: where they are too many, those that say least are left out first.
fn rows_shown(rows: &[VerdictRow], style: Style) -> Vec<&VerdictRow> {
    let max = if style.all { usize::MAX } else { ROWS_MAX };
    let says = |row: &VerdictRow| match row.comparison.verdict {
        _ if row.rank() < 2 => 0,
        Verdict::Regression | Verdict::Improvement => 1,
        Verdict::Suspected => 2,
        Verdict::NothingMeasured => 3,
        Verdict::Inconclusive => 4,
        Verdict::Same => 5,
    };
    let mut chosen: Vec<usize> = (0..rows.len()).collect();
    chosen.sort_by_key(|at| (says(&rows[*at]), *at));
    chosen.truncate(max);
    chosen.sort_unstable();
    chosen.into_iter().map(|at| &rows[at]).collect()
}

/// Says what was left out: how many of each verdict.
fn hidden(rows: &[VerdictRow], shown: &[&VerdictRow], out: &mut String) {
    if shown.len() == rows.len() {
        return;
    }
    let mut left: BTreeMap<String, isize> = BTreeMap::new();
    for row in rows {
        *left.entry(row.words()).or_default() += 1;
    }
    for row in shown {
        *left.entry(row.words()).or_default() -= 1;
    }
    let left = left.into_iter().filter(|(_, n)| *n > 0);
    let left: Vec<String> = left.map(|(words, n)| format!("{n} {words}")).collect();
    let more = rows.len() - shown.len();
    let _ = writeln!(
        out,
        "… and {more} more: {} (`--all` shows them)",
        left.join(", ")
    );
}

/// For narrow terminals: each cell's name has a line of its own, its rows stand below.
fn below_names(mut table: Table, rows: &[&VerdictRow], shared: &[String], out: &mut String) {
    for column in table.column_iter_mut() {
        if column.constraint() != Some(&ColumnConstraint::Hidden) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    if let Some(cell) = table.column_mut(1) {
        cell.set_constraint(ColumnConstraint::Hidden);
    }
    let text = lines(&table);
    let mut lines = text.lines();
    let _ = writeln!(out, "  {}", lines.next().unwrap_or(""));
    let mut last = None;
    for (line, row) in lines.zip(rows) {
        if last.replace(&row.cell) != Some(&row.cell) {
            let _ = writeln!(out, "{}", without(&row.cell, shared));
        }
        let _ = writeln!(out, "  {line}");
    }
}

/// Whether all names are the same.
fn is_one<'a>(mut names: impl Iterator<Item = &'a str>) -> bool {
    let first = names.next();
    names.all(|name| Some(name) == first)
}

fn cells(report: &Report, style: Style, out: &mut String) {
    let rows = &report.cells;
    let mut table = table(style, &["cell", "metric", "median", "n"], 2);
    let failed = report.failed.iter().map(|failed| failed.cell.clone());
    let shared = shared_parts(rows.iter().map(|row| row.cell.0).chain(failed));
    for row in rows.iter().take(ROWS_MAX) {
        table.add_row(vec![
            Cell::new(breakable(&without(&row.cell, &shared))),
            Cell::new(format!("{} {}", row.metric, arrow(row.better))),
            Cell::new(show_value(row.median, row.unit)),
            Cell::new(row.n),
        ]);
    }
    fit(&mut table, style, &[(0, BREAK)], &[]);
    heading(
        &shared,
        None,
        report.failed.is_empty() && rows.cells() == 1,
        out,
    );
    out.push_str(&lines(&table));
    more(rows.len(), ROWS_MAX, out);
}

/// What is said once instead of in each row: parts of cells' names, and the axis with the baseline's value.
fn heading(shared: &[String], common: Option<(String, String)>, is_one: bool, out: &mut String) {
    if !shared.is_empty() {
        let cells = if is_one { "cell" } else { "all cells" };
        let _ = writeln!(out, "{cells}: {}", shared.join(","));
    }
    if let Some((axis, baseline)) = &common {
        let _ = writeln!(out, "compared with: {axis}={baseline}");
    }
    if !shared.is_empty() || common.is_some() {
        out.push('\n');
    }
}

/// Whether the change has another sign than the medians, as it may where rounds drift.
fn medians_mislead(row: &VerdictRow) -> bool {
    let (Some(baseline), Some(candidate), Some(ratio)) = (
        row.baseline_median,
        row.candidate_median,
        row.comparison.ratio,
    ) else {
        return false;
    };
    (candidate > baseline && ratio < 1.0) || (candidate < baseline && ratio > 1.0)
}

/// What the numbers alone do not say.
fn notes(report: &Report, out: &mut String) {
    if report.verdicts.iter().any(medians_mislead) {
        out.push_str(
            "\nchange is estimated from differences within rounds, not from the two medians beside it\n",
        );
    }
    let with_note = report
        .verdicts
        .iter()
        .filter(|row| row.comparison.note.is_some());
    let mut notes: Vec<(&str, usize)> = Vec::new();
    for row in with_note {
        let note = row.comparison.note.as_deref().unwrap_or("");
        match notes.iter_mut().find(|(known, _)| *known == note) {
            Some((_, n)) => *n += 1,
            None => notes.push((note, 1)),
        }
    }
    let undecided = report
        .verdicts
        .iter()
        .filter(|row| row.comparison.verdict == Verdict::Inconclusive);
    let more = undecided.filter_map(|row| row.comparison.more).max();
    if let Some(more) = more {
        let _ = writeln!(
            out,
            "\ninconclusive: up to {} a side would probably settle each of them",
            count(more as usize, "more repetition")
        );
    }
    for (note, n) in notes.iter().take(5) {
        let _ = writeln!(out, "note ({n}): {note}");
    }
    let reruns = report
        .verdicts
        .iter()
        .filter(|row| row.confirmed == Some(false));
    let refuted = reruns.count();
    if refuted > 0 {
        let findings = count(refuted, "finding");
        let _ = writeln!(out, "measured again and not confirmed: {findings}");
    }
    for accepted in report.accepted.iter().take(ROWS_MAX) {
        let _ = writeln!(out, "{}", accepted_line(accepted));
    }
}

/// `accepted 3: bs=4k from v2 on: safer (somebody, 2026-11-30T10:00:00Z)`.
pub fn accepted_line(accepted: &AcceptedRow) -> String {
    let undone = accepted.undone.as_ref();
    format!(
        "accepted {}: {} from {} on: {} ({}, {}){}",
        accepted.id,
        accepted.what,
        accepted.versions.join(", "),
        accepted.reason,
        accepted.author,
        accepted.at,
        undone.map_or(String::new(), |at| format!(", taken back {at}"))
    )
}

/// What is said below `total` rows of which `shown_max` are shown.
pub(super) fn more(total: usize, shown_max: usize, out: &mut String) {
    if total > shown_max {
        let _ = writeln!(out, "… and {} more (`--json` has all)", total - shown_max);
    }
}

fn verdict_cell(row: &VerdictRow) -> Cell {
    let verdict = row.comparison.verdict;
    let words = row.words();
    Cell::new(match verdict {
        Verdict::Regression => marked(Mark::Red, &words),
        Verdict::Improvement => marked(Mark::Green, &words),
        Verdict::Suspected | Verdict::NothingMeasured => marked(Mark::Yellow, &words),
        Verdict::Inconclusive | Verdict::Same => words,
    })
}

/// A change and its interval in one unit: percent, or factors where any of them is large.
pub(super) fn in_one_unit(ratio: Option<f64>, ci95: Option<[f64; 2]>) -> (String, String) {
    let all = ratio.into_iter().chain(ci95.into_iter().flatten());
    let show = match all.fold(0.0, f64::max) >= FACTOR_MIN {
        true => show_factor,
        false => show_ratio,
    };
    (
        ratio.map_or("-".to_owned(), show),
        ci95.map_or("-".to_owned(), |[low, high]| {
            format!("{} … {}", show(low), show(high))
        }),
    )
}

pub(super) fn value(value: Option<f64>, unit: &str) -> String {
    value.map_or("-".to_owned(), |value| show_value(value, unit))
}

pub(super) fn arrow(better: Better) -> &'static str {
    match better {
        Better::Higher => "↑",
        Better::Lower => "↓",
    }
}

/// Parts of cell names that all cells have: said once above the table.
fn shared_parts(mut names: impl Iterator<Item = impl AsRef<str>>) -> Vec<String> {
    let first = names.next();
    let first = first.iter().flat_map(|name| name.as_ref().split(','));
    let mut shared: Vec<String> = first.map(str::to_owned).collect();
    shared.retain(|part| !part.is_empty());
    for name in names {
        if shared.is_empty() {
            break;
        }
        shared.retain(|part| name.as_ref().split(',').any(|other| other == part));
    }
    shared
}

fn without(name: &str, shared: &[String]) -> String {
    let is_shared = |part: &&str| shared.iter().any(|shared| shared == part);
    let parts: Vec<&str> = name.split(',').filter(|part| !is_shared(part)).collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_at_blanks() {
        let check = |text: &str, width: Option<u16>, expected: &str| {
            let color = false;
            assert_eq!(
                wrapped(
                    text,
                    Style {
                        color,
                        width,
                        all: false
                    }
                ),
                expected
            );
        };
        let text = "  one two three\n\na-word-that-is-too-long x\n";
        check(text, None, text);
        check(
            text,
            Some(10),
            "  one two\n    three\n\na-word-that-is-too-long\n  x\n",
        );
        check("12345 7890\n", Some(10), "12345 7890\n");
    }

    #[test]
    fn a_column_that_goes_is_named() {
        let style = |width: u16| Style {
            color: false,
            width: Some(width),
            all: false,
        };
        let check = |width: u16, expected: &str| {
            let mut table = table(style(width), &["verdict", "median", "n"], 1);
            table.add_row(["improvement", "33.13k", "5+5"]);
            fit(&mut table, style(width), &[], &[2, 1]);
            assert_eq!(dropped(&table, &[2, 1]), expected, "{width}");
        };
        check(80, "");
        check(24, "terminal too narrow for: n (`--json` has all)\n");
        check(
            15,
            "terminal too narrow for: n, median (`--json` has all)\n",
        );
    }

    #[test]
    fn a_table_fits_or_says_so() {
        let name = "aio=io_uring,rw=randwrite,load=jobs:4+iodepth:4";
        let check = |width: Option<u16>, fits: bool, expected: &[&str]| {
            let style = Style {
                color: false,
                width,
                all: false,
            };
            let mut table = table(style, &["verdict", "cell", "median", "n"], 2);
            table.add_row(["improvement", &breakable(name), "33.13k", "5+5"]);
            assert_eq!(
                fit(&mut table, style, &[(1, BREAK)], &[3]),
                fits,
                "{width:?}"
            );
            if fits {
                let text = lines(&table);
                let lines: Vec<&str> = text.lines().skip(1).collect();
                assert_eq!(lines, expected, "{width:?}");
            }
        };
        let whole = [&*format!("improvement  {name}  33.13k  5+5")];
        check(None, true, &whole);
        check(Some(80), true, &whole);
        check(
            Some(60),
            true,
            &[
                "improvement  aio=io_uring,               33.13k  5+5",
                "             rw=randwrite,",
                "             load=jobs:4+iodepth:4",
            ],
        );
        check(
            Some(44),
            true,
            &[
                "improvement  aio=io_uring,          33.13k",
                "             rw=randwrite,",
                "             load=jobs:4+iodepth:4",
            ],
        );
        check(Some(40), false, &[]);
    }
}
