//! Results as CSV: a line a row, a column an axis.

use std::collections::BTreeMap;

use super::csv::Table;
use crate::base::sample::Better;
use crate::verdicts::cells::CellName;
use crate::verdicts::report::Report;
use crate::verdicts::series::{History, MatrixChanges};

/// The columns of these cells' axes: those of the matrix in its order, then others as they come.
fn axes<'a>(report: &Report, cells: impl Iterator<Item = &'a CellName>) -> Vec<String> {
    let known = report.axes.iter().map(|axis| axis.name.clone());
    named(known.collect(), cells)
}

fn named<'a>(mut axes: Vec<String>, cells: impl Iterator<Item = &'a CellName>) -> Vec<String> {
    for cell in cells {
        for (axis, _) in cell.axes() {
            if !axes.iter().any(|known| known == axis) {
                axes.push(axis.to_owned());
            }
        }
    }
    axes
}

/// The value of each axis, empty where the name does not mention it.
fn values(cell: &CellName, axes: &[String]) -> Vec<String> {
    let of: BTreeMap<&str, &str> = cell.axes().collect();
    let value = |axis: &String| of.get(axis.as_str()).copied().unwrap_or("").to_owned();
    axes.iter().map(value).collect()
}

fn number(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

fn better(better: Better) -> String {
    better.name().to_owned()
}

/// What each cell measured.
pub fn cells(report: &Report) -> String {
    let names: Vec<CellName> = report.cells.iter().map(|row| row.cell).collect();
    let axes = axes(report, names.iter());
    let mut table = Table::new(
        &axes,
        &["metric", "unit", "better", "median", "stddev", "n", "noisy"],
    );
    for row in report.cells.iter() {
        let mut line = values(&row.cell, &axes);
        line.extend([
            row.metric.to_owned(),
            row.unit.to_owned(),
            better(row.better),
            row.median.to_string(),
            number(row.stddev),
            row.n.to_string(),
            row.noisy.to_string(),
        ]);
        table.row(&line);
    }
    table.text()
}

/// The verdicts of a comparison.
pub fn verdicts(report: &Report) -> String {
    let compared: Vec<&str> = report
        .verdicts
        .iter()
        .map(|row| row.axis.as_str())
        .collect();
    let mut axes = axes(report, report.verdicts.iter().map(|row| &row.cell));
    // Of what is compared each row has both sides.
    axes.retain(|axis| !compared.iter().all(|compared| compared == axis));
    let mut table = Table::new(
        &axes,
        &[
            "metric",
            "unit",
            "better",
            "axis",
            "baseline",
            "candidate",
            "verdict",
            "gate",
            "confirmed",
            "accepted",
            "baseline_median",
            "candidate_median",
            "ratio",
            "ci95_low",
            "ci95_high",
            "p",
            "q",
            "baseline_n",
            "candidate_n",
        ],
    );
    for row in &report.verdicts {
        let of = &row.comparison;
        let mut line = values(&row.cell, &axes);
        line.extend([
            row.metric.clone(),
            row.unit.clone(),
            better(row.better),
            row.axis.clone(),
            row.baseline.clone(),
            row.candidate.clone(),
            of.verdict.name().to_owned(),
            row.gate.to_string(),
            row.confirmed.map_or(String::new(), |it| it.to_string()),
            row.is_accepted.to_string(),
            number(row.baseline_median),
            number(row.candidate_median),
            number(of.ratio),
            number(of.ci95.map(|it| it[0])),
            number(of.ci95.map(|it| it[1])),
            number(of.p),
            number(of.q),
            of.n[0].to_string(),
            of.n[1].to_string(),
        ]);
        table.row(&line);
    }
    table.text()
}

/// The points of series.
pub fn history(history: &History) -> String {
    let axes = named(Vec::new(), history.series.iter().map(|series| &series.cell));
    let mut table = Table::new(
        &axes,
        &[
            "metric",
            "unit",
            "better",
            "version",
            "at",
            "session",
            "value",
            "n",
            "environment",
        ],
    );
    for series in &history.series {
        for point in &series.points {
            let mut line = values(&series.cell, &axes);
            line.extend([
                series.metric.clone(),
                series.unit.clone(),
                better(series.better),
                point.version.clone(),
                point.at.clone(),
                point.session.to_string(),
                number(point.value),
                point.n.to_string(),
                point.environment.clone().unwrap_or_default(),
            ]);
            table.row(&line);
        }
    }
    table.text()
}

/// The change points of a matrix, each cell of each cause.
pub fn changes(changes: &MatrixChanges) -> String {
    let all = || changes.causes.iter().flat_map(|cause| &cause.cells);
    let axes = named(Vec::new(), all().map(|cell| &cell.cell));
    let mut table = Table::new(
        &axes,
        &[
            "id",
            "metric",
            "unit",
            "from",
            "to",
            "at",
            "verdict",
            "ratio",
            "ci95_low",
            "ci95_high",
            "before",
            "after",
            "accepted",
        ],
    );
    for cell in all() {
        let mut line = values(&cell.cell, &axes);
        line.extend([
            cell.id.map_or(String::new(), |id| id.to_string()),
            cell.metric.clone(),
            cell.unit.clone(),
            cell.from.clone(),
            cell.to.clone(),
            cell.at.clone(),
            cell.verdict.name().to_owned(),
            number(cell.ratio),
            number(cell.ci95.map(|it| it[0])),
            number(cell.ci95.map(|it| it[1])),
            number(cell.before),
            number(cell.after),
            cell.accepted.map_or(String::new(), |id| id.to_string()),
        ]);
        table.row(&line);
    }
    table.text()
}
