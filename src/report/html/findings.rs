//! The comparisons that changed, each with its samples, its course and the commands that repeat it.

use std::fmt::Write as _;

use crate::base::units::{count, show_ratio, show_value};
use crate::report::html::escape::escaped;
use crate::report::html::model::{PageModel, PageRow, Tone};
use crate::report::html::{PageInput, chart, section};
use crate::verdicts::report::VerdictRow;
use crate::verdicts::series::Course;

/// Comparisons that are shown in full.
const CARDS_MAX: usize = 12;
/// Values of one side that stand in the table below a chart.
const VALUES_MAX: usize = 100;

/// The comparisons that changed, each with its samples, its course and what reproduces it.
pub fn cards(input: &PageInput, model: &PageModel, out: &mut String) {
    let is_shown =
        |row: &&PageRow| matches!(row.tone, Tone::Worse | Tone::Better | Tone::Suspected);
    let mut rows: Vec<&PageRow> = model.rows.iter().filter(is_shown).collect();
    // Changes between versions are news. The order is kept otherwise: what gates comes first.
    rows.sort_by_key(|row| {
        let verdict = row.verdict;
        let is_version = verdict.is_some_and(|verdict| verdict.axis == "version");
        (verdict.map_or(2, VerdictRow::rank), !is_version)
    });
    if rows.is_empty() {
        return;
    }
    section("findings", "What changed", out);
    let varying = model.varying();
    out.push_str("<div class=\"cards\">");
    for row in rows.iter().take(CARDS_MAX) {
        if let Some(verdict) = row.verdict {
            card(input, model, row, verdict, &varying, out);
        }
    }
    out.push_str("</div>");
    if rows.len() > CARDS_MAX {
        let _ = write!(
            out,
            "<p>{}: the table has them all, and each row opens its samples.</p>",
            count(rows.len() - CARDS_MAX, "more change")
        );
    }
    out.push_str("</section>");
}

fn card(
    input: &PageInput,
    model: &PageModel,
    row: &PageRow,
    verdict: &VerdictRow,
    varying: &[usize],
    out: &mut String,
) {
    let comparison = &verdict.comparison;
    let change = match comparison.ratio {
        Some(ratio) => show_ratio(ratio),
        None => comparison.difference.map_or(String::new(), |it| {
            format!("by {}", show_value(it, &verdict.unit))
        }),
    };
    let _ = write!(
        out,
        "<article class=\"card\"><h3><span class=\"{}\">{}</span> {} {} <small>{}</small></h3><p class=\"cell\">{}</p><p>",
        row.tone.class(),
        row.tone.sign(),
        escaped(&verdict.metric),
        escaped(&change),
        escaped(&match verdict.standing {
            Some(standing) => format!("{}, {}", verdict.words(), standing.name()),
            None => verdict.words(),
        }),
        escaped(&model.name(row, varying))
    );
    let side = |label: &str, median: Option<f64>| {
        let median = median.map_or("nothing".to_owned(), |it| show_value(it, &verdict.unit));
        format!("{label}: {median}")
    };
    let _ = write!(
        out,
        "{} → {}",
        escaped(&side(&verdict.baseline, verdict.baseline_median)),
        escaped(&side(&verdict.candidate, verdict.candidate_median))
    );
    if let Some(ci) = comparison.ci95 {
        let [low, high] = ci.map(show_ratio);
        let _ = write!(out, "; 95% interval {low} to {high}");
    }
    let _ = write!(out, "; {} and {} samples", comparison.n[0], comparison.n[1]);
    if let Some(q) = comparison.q {
        let _ = write!(out, "; q {q:.2e}");
    }
    let _ = write!(out, " ({} is better).</p>", verdict.better.name());
    if let Some(note) = &comparison.note {
        let _ = write!(out, "<p class=\"note\">{}</p>", escaped(note));
    }
    samples(row, verdict, out);
    if let Some(series) = row.series.and_then(|at| input.report.history.get(at))
        && series.points.len() > 2
    {
        course(series, out);
    }
    let cell = format!("{},{}={}", verdict.cell.0, verdict.axis, verdict.candidate);
    reproduce(input, &cell, out);
    out.push_str("</article>");
}

fn samples(row: &PageRow, verdict: &VerdictRow, out: &mut String) {
    let names = [&*verdict.baseline, &*verdict.candidate];
    let strip = chart::strip(names, &row.samples, &verdict.unit, verdict.comparison.ci95);
    if strip.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "<figure>{strip}<figcaption>Samples of both sides with their medians"
    );
    if verdict.comparison.ci95.is_some() {
        out.push_str(
            "; the shaded band is the 95% interval of the change, from the baseline's median",
        );
    }
    out.push_str("</figcaption></figure><details><summary>Samples as a table</summary><table>");
    for (name, values) in names.iter().zip(&row.samples) {
        let shown: Vec<String> = values
            .iter()
            .take(VALUES_MAX)
            .map(|value| show_value(*value, &verdict.unit))
            .collect();
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
            escaped(name),
            escaped(&shown.join(", "))
        );
    }
    out.push_str("</table></details>");
}

/// The course of a series, and its table.
pub fn course(series: &Course, out: &mut String) {
    let chart = chart::course(series);
    if chart.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "<figure>{chart}<figcaption>{} over versions; a band is where a change may be (95%)</figcaption></figure>\
         <details><summary>Course as a table</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Course\"><table>\
         <thead><tr><th scope=\"col\">version</th><th scope=\"col\">measured</th><th scope=\"col\">median</th><th scope=\"col\">n</th><th scope=\"col\">environment</th></tr></thead><tbody>",
        escaped(&series.metric)
    );
    let from = series.points.len().saturating_sub(chart::POINTS_MAX);
    for point in &series.points[from..] {
        let value = point
            .value
            .map_or("–".to_owned(), |it| show_value(it, &series.unit));
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&point.version),
            escaped(&point.at),
            escaped(&value),
            point.n,
            escaped(&point.differences.join("; "))
        );
    }
    out.push_str("</tbody></table></div></details>");
}

fn reproduce(input: &PageInput, cell: &str, out: &mut String) {
    let cell = cell.trim_start_matches(',');
    let _ = write!(
        out,
        "<details class=\"reproduce\"><summary>Reproduce by hand</summary><pre tabindex=\"0\">{} '{}'",
        escaped(input.command),
        escaped(cell)
    );
    let sorted = |name: &str| {
        let mut words: Vec<&str> = name.split(',').collect();
        words.sort_unstable();
        words.join(",")
    };
    let found = input.report.reproduce.iter();
    let known = found.filter(|known| sorted(&known.cell) == sorted(cell));
    for command in known.flat_map(|known| &known.commands) {
        let _ = write!(
            out,
            "\n# {}\n{}",
            escaped(command.role),
            escaped(&command.line)
        );
    }
    out.push_str("</pre></details>");
}
