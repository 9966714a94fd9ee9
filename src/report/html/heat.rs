//! The matrix as a heat map: axes in rows and columns, the worst verdict where several comparisons share a place.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::base::units::{show_ratio, show_value};
use crate::report::html::escape::escaped;
use crate::report::html::model::{NO_VALUE, PageModel, PageRow};

/// Columns and rows of a map that nobody has laid out.
const COLUMNS_MAX: usize = 12;
const ROWS_MAX: usize = 60;

/// Which axes are rows and which are columns; of the others the worst is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatLayout {
    pub rows: Vec<usize>,
    pub columns: Vec<usize>,
}

impl HeatLayout {
    /// The last axes become columns, those before them rows, as long as there is room for all their values.
    pub fn of(model: &PageModel) -> HeatLayout {
        let mut left = model.varying();
        let size = |axis: &usize| model.axes[*axis].values.len().max(1);
        let mut take = |max: usize, all: bool| {
            let mut taken = Vec::new();
            let mut product = 1;
            while let Some(axis) = left.last().filter(|axis| product * size(axis) <= max) {
                product *= size(axis);
                taken.insert(0, *axis);
                left.pop();
                if !all && left.len() <= 1 {
                    break;
                }
            }
            taken
        };
        let columns = take(COLUMNS_MAX, false);
        let rows = take(ROWS_MAX, true);
        HeatLayout { rows, columns }
    }
}

/// The worst of the rows of one place, and how many there are of its kind.
fn worst<'a, 'b>(rows: &[&'b PageRow<'a>]) -> Option<(&'b PageRow<'a>, usize)> {
    let effect = |row: &PageRow| row.verdict.map_or(0.0, |verdict| verdict.effect());
    let worst = rows
        .iter()
        .min_by(|a, b| a.tone.cmp(&b.tone).then(effect(b).total_cmp(&effect(a))))?;
    let same = rows.iter().filter(|row| row.tone == worst.tone);
    Some((worst, same.count()))
}

/// What stands in a place of the map: the sign and the change.
pub fn told(row: &PageRow, unit: &str) -> String {
    let sign = row.tone.sign();
    let comparison = row.verdict.map(|verdict| &verdict.comparison);
    match (comparison.and_then(|it| it.ratio), row.median) {
        (Some(ratio), _) => format!("{sign} {}", show_ratio(ratio)),
        (None, Some(median)) => show_value(median, unit),
        (None, None) => sign.to_owned(),
    }
}

/// A table for each metric and pair of values that is compared, at most `max` of them: the map without a script.
pub fn maps(model: &PageModel, layout: &HeatLayout, max: usize) -> (String, usize) {
    let mut pairs: BTreeMap<(usize, &str, &str, &str), Vec<&PageRow>> = BTreeMap::new();
    for row in &model.rows {
        let pair = row.verdict.map_or(("", "", ""), |verdict| {
            (&*verdict.axis, &*verdict.baseline, &*verdict.candidate)
        });
        pairs
            .entry((row.metric, pair.0, pair.1, pair.2))
            .or_default()
            .push(row);
    }
    let left = pairs.len().saturating_sub(max);
    let mut pairs: Vec<_> = pairs.into_iter().collect();
    // Between versions first, then the worst.
    pairs.sort_by_key(|((_, axis, ..), rows)| {
        (*axis != "version", rows.iter().map(|row| row.tone).min())
    });
    let mut out = String::new();
    for ((metric, axis, baseline, candidate), rows) in pairs.into_iter().take(max) {
        let (name, unit, better) = &model.metrics[metric];
        let compared = match axis {
            "" => String::new(),
            "version" | "side" => format!(", {candidate} against {baseline}"),
            _ => format!(", {axis}={candidate} against {axis}={baseline}"),
        };
        let caption = format!("{name} ({} is better){compared}", better.name());
        let _ = write!(
            out,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table class=\"heat\"><caption>{0}</caption>",
            escaped(&caption)
        );
        let has = |axis: &usize| rows.iter().any(|row| row.values[*axis] != NO_VALUE);
        let present = |axes: &[usize]| axes.iter().copied().filter(has).collect();
        let layout = HeatLayout {
            rows: present(&layout.rows),
            columns: present(&layout.columns),
        };
        table(model, &layout, &rows, unit, &mut out);
        out.push_str("</table></div>");
    }
    (out, left)
}

fn table(model: &PageModel, layout: &HeatLayout, rows: &[&PageRow], unit: &str, out: &mut String) {
    let place = |row: &PageRow, axes: &[usize]| -> Vec<u32> {
        axes.iter().map(|axis| row.values[*axis]).collect()
    };
    let mut places: BTreeMap<(Vec<u32>, Vec<u32>), Vec<&PageRow>> = BTreeMap::new();
    for row in rows {
        let at = (place(row, &layout.rows), place(row, &layout.columns));
        places.entry(at).or_default().push(row);
    }
    let mut columns: Vec<&Vec<u32>> = places.keys().map(|(_, column)| column).collect();
    columns.sort();
    columns.dedup();
    let mut lines: Vec<&Vec<u32>> = places.keys().map(|(row, _)| row).collect();
    lines.dedup();
    let label = |axes: &[usize], values: &[u32]| -> String {
        let words = axes.iter().zip(values).map(|(axis, value)| match *value {
            NO_VALUE => "–".to_owned(),
            value => model.axes[*axis].values[value as usize].clone(),
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let names = |axes: &[usize]| -> String {
        let names = axes.iter().map(|axis| &*model.axes[*axis].name);
        names.collect::<Vec<_>>().join(" ")
    };
    let _ = write!(
        out,
        "<thead><tr><th scope=\"col\">{} \\ {}</th>",
        escaped(&names(&layout.rows)),
        escaped(&names(&layout.columns))
    );
    for column in &columns {
        let label = match column.is_empty() {
            true => "all".to_owned(),
            false => escaped(&label(&layout.columns, column)),
        };
        let _ = write!(out, "<th scope=\"col\">{label}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for line in lines {
        let title = match line.is_empty() {
            true => "all".to_owned(),
            false => escaped(&label(&layout.rows, line)),
        };
        let _ = write!(out, "<tr><th scope=\"row\">{title}</th>");
        for column in &columns {
            let found = places.get(&(line.clone(), (*column).clone()));
            match found.and_then(|rows| Some((worst(rows)?, rows.len()))) {
                Some(((row, same), all)) => {
                    let several = match all {
                        1 => String::new(),
                        _ => format!(" <small>{same}/{all}</small>"),
                    };
                    let _ = write!(
                        out,
                        "<td class=\"{}\">{}{several}</td>",
                        row.tone.class(),
                        escaped(&told(row, unit))
                    );
                }
                None => out.push_str("<td></td>"),
            }
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody>");
}
