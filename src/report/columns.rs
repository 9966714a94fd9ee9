//! Comparisons in the columns of LKP and mmtests, each row with our own verdict beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::table::{LKP_HEADING, Side, lkp_row, mmtests_cell, mmtests_percent};
use crate::base::printable::line;
use crate::judge::verdict::LEVEL;
use crate::judge::verdict::Summary;
use crate::verdicts::report::{Report, VerdictRow};

/// Decimals of an mmtests value.
const DECIMALS: usize = 2;

/// Rows that compare the same two sides of the same cell stand together.
fn blocks(report: &Report) -> BTreeMap<(&str, &str, &str, &str), Vec<&VerdictRow>> {
    let mut blocks: BTreeMap<_, Vec<&VerdictRow>> = BTreeMap::new();
    for row in &report.verdicts {
        let block = (&*row.cell, &*row.axis, &*row.baseline, &*row.candidate);
        blocks.entry(block).or_default().push(row);
    }
    blocks
}

/// As LKP's `compare` prints it: the parameters of the job, the two commits, then a mean ± relative standard deviation,
/// the change, and the same of the other side; last the monitors that moved.
pub fn lkp(report: &Report) -> String {
    let mut out = String::new();
    for ((cell, axis, baseline, candidate), rows) in blocks(report) {
        let parts: Vec<(&str, &str)> = cell
            .split(',')
            .filter_map(|part| part.split_once('='))
            .collect();
        let names: Vec<String> = parts.iter().map(|part| line(part.0)).collect();
        let values: Vec<String> = parts.iter().map(|part| line(part.1)).collect();
        if !parts.is_empty() {
            let _ = writeln!(out, "{:=<89}", "");
            let _ = writeln!(out, "{}:\n  {}\n", names.join("/"), values.join("/"));
        }
        let commits = rows.first().map(|row| &row.commits);
        let commits = commits.into_iter().flatten().flatten();
        let commits = commits
            .filter_map(|hash| report.commit(hash))
            .filter(|_| axis == "version");
        let commits: Vec<String> = commits
            .map(|it| format!("  {} (\"{}\")\n", it.short(), line(&it.subject)))
            .collect();
        if !commits.is_empty() {
            let _ = writeln!(out, "commit:\n{}", commits.concat());
        }
        let [baseline_shown, candidate_shown, axis_shown] = [baseline, candidate, axis].map(line);
        let _ = writeln!(
            out,
            "{baseline_shown:>16} {candidate_shown:>27}   ({axis_shown})"
        );
        let _ = writeln!(out, "{:-<16} {:-<27}", "", "");
        let _ = writeln!(out, "{LKP_HEADING}");
        for row in rows {
            let (metric, verdict) = (line(&row.metric), row.words());
            match row.sides.map(|side| side.map(lkp_side)) {
                [Some(base), Some(new)] => {
                    let _ = writeln!(out, "{}   # {verdict}", lkp_row(&metric, base, new));
                }
                _ => {
                    let _ = writeln!(out, "{:>54}  {metric}   # {verdict}", "");
                }
            }
        }
        let beside = report.monitors.iter().filter(|it| {
            (&*it.cell, &*it.axis, &*it.baseline, &*it.candidate)
                == (cell, axis, baseline, candidate)
        });
        for moved in beside.flat_map(|it| &it.moved) {
            let [base, new] = [moved.baseline, moved.candidate].map(|mean| Side {
                mean,
                relative_stddev: None,
            });
            let _ = writeln!(out, "{}", lkp_row(&line(&moved.monitor), base, new));
        }
        out.push('\n');
    }
    out
}

fn lkp_side(summary: Summary) -> Side {
    let relative = summary.stddev / summary.mean.abs();
    Side {
        mean: summary.mean,
        relative_stddev: (summary.n > 1 && relative.is_finite()).then_some(relative),
    }
}

/// The least width of mmtests' columns.
const COLUMN_MIN: usize = 24;

/// As mmtests' `compare-mmtests.pl` prints it: a table for each metric and baseline with a column for each candidate and a
/// row for each cell; arithmetic means, the change with "positive is better" in brackets, or between stars where it is
/// significant.
pub fn mmtests(report: &Report) -> String {
    let mut tables: BTreeMap<(&str, &str, &str), Vec<&VerdictRow>> = BTreeMap::new();
    for row in &report.verdicts {
        let table = (&*row.axis, &*row.metric, &*row.baseline);
        tables.entry(table).or_default().push(row);
    }
    let mut out = String::new();
    for ((axis, metric, baseline), rows) in tables {
        mmtests_table(report, (axis, metric, baseline), &rows, &mut out);
    }
    out
}

fn mmtests_table(
    report: &Report,
    (axis, metric, baseline): (&str, &str, &str),
    rows: &[&VerdictRow],
    out: &mut String,
) {
    let order = report.axes.iter().find(|known| known.name == axis);
    let place = |value: &str| {
        let mut values = order.iter().flat_map(|axis| &axis.values);
        values.position(|known| known == value)
    };
    let mut candidates: Vec<&str> = rows.iter().map(|row| &*row.candidate).collect();
    candidates.sort_by_key(|value| (place(value), *value));
    candidates.dedup();
    let mut cells: Vec<&str> = Vec::new();
    let mut seen = BTreeSet::new();
    cells.extend(
        rows.iter()
            .map(|row| &*row.cell.0)
            .filter(|cell| seen.insert(*cell)),
    );
    let shared: Vec<&str> = match cells.split_first() {
        Some((first, others)) if !others.is_empty() => first
            .split(',')
            .filter(|part| {
                others
                    .iter()
                    .all(|cell| cell.split(',').any(|it| it == *part))
            })
            .collect(),
        Some((first, _)) => first.split(',').collect(),
        None => Vec::new(),
    };
    // What a row is called: the values of the axes that tell it from the others.
    let label = |cell: &str| {
        let own = cell.split(',').filter(|part| !shared.contains(part));
        let values = own.map(|part| part.split_once('=').map_or(part, |it| it.1));
        line(&values.collect::<Vec<_>>().join("-"))
    };
    cells.sort_by_key(|cell| natural(&label(cell)));
    let rows: BTreeMap<(&str, &str), &&VerdictRow> = rows
        .iter()
        .map(|row| ((&*row.cell.0, &*row.candidate), row))
        .collect();
    let labels = cells.iter().map(|cell| label(cell).chars().count());
    let named = labels.max().unwrap_or(0).max(8);
    let titles = candidates.iter().chain([&baseline]);
    let width = titles
        .map(|title| title.chars().count() + 2)
        .max()
        .unwrap_or(0);
    let width = width.max(COLUMN_MIN);
    let _ = writeln!(
        out,
        "{}   ({})\n",
        line(&shared.join(",")),
        line(&format!("{axis}: {metric}"))
    );
    let _ = write!(out, "{:named$}       {:>width$}", "", line(baseline));
    for candidate in &candidates {
        let _ = write!(out, " {:>width$}", line(candidate));
    }
    out.push('\n');
    for cell in cells {
        let of_cell: Vec<Option<&&&VerdictRow>> =
            candidates.iter().map(|it| rows.get(&(cell, *it))).collect();
        let base = of_cell.iter().flatten().find_map(|row| row.sides[0]);
        let base_shown = base.map_or("-".to_owned(), |base| {
            mmtests_cell(base.mean, 0.0, false, DECIMALS)
        });
        let _ = write!(out, "Amean {:<named$} {base_shown:>width$}", label(cell));
        let mut words = Vec::new();
        for row in &of_cell {
            let shown = row.and_then(|row| {
                let [Some(base), Some(new)] = row.sides else {
                    return None;
                };
                let percent = mmtests_percent(row.better, base.mean, new.mean);
                let is_significant = row.comparison.q.is_some_and(|q| q <= LEVEL);
                Some(mmtests_cell(new.mean, percent, is_significant, DECIMALS))
            });
            let _ = write!(out, " {:>width$}", shown.unwrap_or_else(|| "-".to_owned()));
            words.push(row.map_or("-".to_owned(), |row| row.words()));
        }
        let _ = writeln!(out, "   # {}", words.join("; "));
    }
    out.push('\n');
}

/// Texts with numbers in the order of the numbers: `2` before `16`.
fn natural(text: &str) -> Vec<(u64, String)> {
    let mut parts: Vec<(u64, String)> = Vec::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        parts.push((digits.parse().unwrap_or(0), part[digits.len()..].to_owned()));
    }
    parts
}
