//! The table of verdicts: the first rows as they are, which `page.js` replaces by all of them.

use std::fmt::Write as _;

use crate::base::units::{show_ratio, show_value};
use crate::report::html::escape::escaped;
use crate::report::html::model::{PageModel, PageRow, Tone};
use crate::report::html::{chart, section};

/// Rows that are there without a script.
const ROWS_MAX: usize = 200;

/// The logarithm that an interval's picture goes to on both sides: of most changes, at least 5 %.
const SPAN_MIN: f64 = 0.05;
/// What is beyond is drawn at the edge.
const SPAN_MAX: f64 = 0.3;

pub fn table(model: &PageModel, out: &mut String) {
    if model.rows.is_empty() {
        return;
    }
    let is_compared = model.rows.iter().any(|row| row.verdict.is_some());
    let title = if is_compared {
        "All comparisons"
    } else {
        "All results"
    };
    section("verdicts", title, out);
    let varying = model.varying();
    out.push_str("<div id=\"filters\"></div><div id=\"rows\"><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Rows\"><table class=\"rows\"><thead><tr>");
    let columns: &[&str] = match is_compared {
        true => &[
            "verdict",
            "cell",
            "metric",
            "baseline",
            "candidate",
            "change",
            "95% interval",
            "",
            "n",
        ],
        false => &["", "cell", "metric", "median", "n"],
    };
    for name in columns {
        match name.is_empty() {
            true => out.push_str("<td></td>"),
            false => {
                let _ = write!(out, "<th scope=\"col\">{name}</th>");
            }
        }
    }
    out.push_str("</tr></thead><tbody>");
    // What changed must be among them.
    let changed = |row: &&PageRow| row.tone < Tone::Inconclusive;
    let rows = model.rows.iter().filter(changed);
    let rows = rows.chain(model.rows.iter().filter(|row| !changed(row)));
    let span = span(model);
    for row in rows.take(ROWS_MAX) {
        line(model, row, &varying, span, out);
    }
    out.push_str("</tbody></table></div>");
    if model.rows.len() > ROWS_MAX {
        let _ = write!(
            out,
            "<p>These are {ROWS_MAX} of {} rows, what changed first. With JavaScript all of them can be sorted and filtered; `matrix compare --all` prints them.</p>",
            model.rows.len()
        );
    }
    out.push_str("</div></section>");
}

/// How far an interval's picture goes.
fn span(model: &PageModel) -> f64 {
    let ratios = model
        .rows
        .iter()
        .filter_map(|row| row.verdict?.comparison.ratio);
    let mut logs: Vec<f64> = ratios
        .filter(|ratio| *ratio > 0.0)
        .map(|ratio| ratio.ln().abs())
        .collect();
    logs.sort_by(f64::total_cmp);
    let most = logs.get(logs.len().saturating_sub(1) * 95 / 100);
    most.map_or(SPAN_MIN, |log| (log * 1.5).clamp(SPAN_MIN, SPAN_MAX))
}

fn line(model: &PageModel, row: &PageRow, varying: &[usize], span: f64, out: &mut String) {
    let (metric, unit, _) = &model.metrics[row.metric];
    let name = escaped(&model.name(row, varying));
    let class = row.tone.class();
    let value =
        |value: Option<f64>| value.map_or("–".to_owned(), |it| escaped(&show_value(it, unit)));
    let Some(verdict) = row.verdict else {
        let _ = write!(
            out,
            "<tr><td class=\"{class}\">{}</td><td>{name}</td><td>{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td></tr>",
            row.tone.sign(),
            escaped(metric),
            value(row.median),
            row.samples[1].len()
        );
        return;
    };
    let comparison = &verdict.comparison;
    let change = comparison.ratio.map(show_ratio).unwrap_or_default();
    let interval = comparison.ci95.map_or(String::new(), |ci| {
        let [low, high] = ci.map(show_ratio);
        format!("{low} … {high}")
    });
    let forest = comparison.ratio.zip(comparison.ci95);
    let forest = forest.map_or(String::new(), |(ratio, ci)| {
        chart::interval(ratio, ci, span, class)
    });
    let _ = write!(
        out,
        "<tr><td class=\"{class}\">{} {}</td><td>{name}</td><td>{}</td><td class=\"num\">{} <small>{}</small></td><td class=\"num\">{} <small>{}</small></td><td class=\"num\">{change}</td><td class=\"num\">{interval}</td><td>{forest}</td><td class=\"num\">{}, {}</td></tr>",
        row.tone.sign(),
        escaped(&verdict.words()),
        escaped(metric),
        value(verdict.baseline_median),
        escaped(&verdict.baseline),
        value(verdict.candidate_median),
        escaped(&verdict.candidate),
        comparison.n[0],
        comparison.n[1]
    );
}
