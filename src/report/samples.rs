//! The samples of both sides of comparisons as strips over one scale, so that modes are seen.

use std::fmt::Write as _;

use super::plot::{span, strip};
use super::text::{Style, arrow, in_one_unit, value};
use crate::base::printable::line;
use crate::verdicts::cells::SampleRow;
use crate::verdicts::report::{Report, VerdictRow};

/// Columns of a strip where there is no terminal, and the least that says anything.
const WIDTH_ELSEWHERE: usize = 80;
const WIDTH_MIN: usize = 20;
/// Comparisons that are shown.
const ROWS_MAX: usize = 50;

/// The comparisons of a cell, then what it measured where it is compared with nothing.
pub fn strips(report: &Report, cell: &str, style: Style) -> String {
    let width = style.width.map_or(WIDTH_ELSEWHERE, usize::from);
    let mut out = String::new();
    let of_cell = report.verdicts.iter().filter(|row| is_of(row, cell));
    let rows: Vec<&VerdictRow> = of_cell.take(ROWS_MAX).collect();
    for row in &rows {
        comparison(row, width, &mut out);
    }
    for row in report
        .cells
        .iter()
        .filter(|row| rows.is_empty() && row.cell.0 == cell)
    {
        let values: Vec<f64> = row.samples.iter().map(|sample| sample.value).collect();
        let _ = writeln!(out, "\n{} {}", line(row.metric), arrow(row.better));
        side("", &values, span(&values), row.unit, width, &mut out);
    }
    out
}

/// Whether a cell is one of the two sides.
fn is_of(row: &VerdictRow, cell: &str) -> bool {
    let parts = || cell.split(',');
    let own = parts()
        .filter_map(|part| part.split_once('='))
        .find(|it| it.0 == row.axis);
    let rest: Vec<&str> = parts()
        .filter(|part| part.split('=').next() != Some(&row.axis))
        .collect();
    let is_side = own.is_some_and(|(_, value)| value == row.baseline || value == row.candidate);
    is_side && rest.join(",") == row.cell.0
}

fn comparison(row: &VerdictRow, width: usize, out: &mut String) {
    let (change, interval) = in_one_unit(row.comparison.ratio, row.comparison.ci95);
    let _ = writeln!(
        out,
        "\n{} {}: {}, {change} ({interval})",
        line(&row.metric),
        arrow(row.better),
        row.words()
    );
    let values = |samples: &[SampleRow]| samples.iter().map(|it| it.value).collect::<Vec<f64>>();
    let [base, candidate] = [&row.samples[0], &row.samples[1]].map(|side| values(side));
    let both = [&base[..], &candidate[..]].concat();
    side(&row.baseline, &base, span(&both), &row.unit, width, out);
    side(
        &row.candidate,
        &candidate,
        span(&both),
        &row.unit,
        width,
        out,
    );
}

/// A strip between the ends of its scale, with the median and the number of samples below it.
fn side(name: &str, values: &[f64], scale: (f64, f64), unit: &str, width: usize, out: &mut String) {
    let n = values.len();
    let name = line(name);
    if values.is_empty() {
        let _ = writeln!(out, "  {name}  no samples");
        return;
    }
    let [low, high] = [scale.0, scale.1].map(|end| value(Some(end), unit));
    let taken = 2 + low.chars().count() + high.chars().count() + 4;
    let columns = width.saturating_sub(taken).max(WIDTH_MIN);
    let middle = value(crate::judge::stats::median(values), unit);
    let shown = strip(values, scale, columns);
    let _ = writeln!(out, "  {low} │{shown:<columns$}│ {high}");
    let _ = writeln!(
        out,
        "  {:1$}  {name}  median {middle}, n = {n}",
        "",
        low.chars().count()
    );
}
