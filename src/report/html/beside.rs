//! What stands beside verdicts: environments, monitors, doubtful samples, failures, what was not measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::base::units::{count, show_ratio, show_si};
use crate::report::html::escape::{cut, escaped};
use crate::report::html::section;
use crate::verdicts::report::Report;

/// Rows of each list that are shown.
const ROWS_MAX: usize = 40;
/// Cells that one reason of failures names.
const CELLS_MAX: usize = 5;
/// Values of a machine that are shown.
const VALUES_MAX: usize = 200;
/// Letters of a reason in its heading.
const REASON_MAX: usize = 200;

pub fn all(report: &Report, out: &mut String) {
    failures(report, out);
    not_measured(report, out);
    environments(report, out);
    monitors(report, out);
    machines(report, out);
    marks(report, out);
    accepted(report, out);
    out.push_str("</main><footer><p>Made by <code>matrix report</code> from stored samples. A verdict needs an effect beyond the smallest that matters and significance over all comparisons (Benjamini-Hochberg); intervals are of 95%.</p></footer>");
}

fn failures(report: &Report, out: &mut String) {
    let failed = &report.failed;
    if failed.is_empty() {
        return;
    }
    section("failed", "What failed", out);
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for failure in failed {
        reasons
            .entry(&failure.reason)
            .or_default()
            .push(&failure.cell);
    }
    let mut reasons: Vec<(&str, Vec<&str>)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, cells)| usize::MAX - cells.len());
    for (reason, cells) in reasons.iter().take(ROWS_MAX) {
        let first = reason.lines().next().unwrap_or_default();
        let _ = write!(
            out,
            "<article class=\"card\"><h3>{}: {}</h3><ul>",
            count(cells.len(), "cell"),
            escaped(&cut(first, REASON_MAX))
        );
        for cell in cells.iter().take(CELLS_MAX) {
            let _ = write!(out, "<li><code>{}</code></li>", escaped(cell));
        }
        if cells.len() > CELLS_MAX {
            let _ = write!(out, "<li>and {} more</li>", cells.len() - CELLS_MAX);
        }
        out.push_str("</ul>");
        if reason.lines().count() > 1 {
            let _ = write!(out, "<pre tabindex=\"0\">{}</pre>", escaped(reason));
        }
        let mut with_log = failed.iter().filter(|it| it.reason == **reason);
        if let Some(failure) = with_log.find(|it| !it.log.is_empty()) {
            let _ = write!(
                out,
                "<details><summary>The end of what {} printed</summary><pre tabindex=\"0\">{}</pre></details>",
                escaped(&failure.cell),
                escaped(&failure.log.join("\n"))
            );
        }
        out.push_str("</article>");
    }
    more(reasons.len(), "reason", out);
    out.push_str("</section>");
}

fn more(n: usize, one: &str, out: &mut String) {
    if n > ROWS_MAX {
        let _ = write!(
            out,
            "<p>{} not shown.</p>",
            count(n - ROWS_MAX, &format!("more {one}"))
        );
    }
}

fn not_measured(report: &Report, out: &mut String) {
    if report.unmeasured.is_empty() {
        return;
    }
    section("missing", "What was not measured", out);
    out.push_str("<ul>");
    for row in report.unmeasured.iter().take(ROWS_MAX) {
        let example = row.example.as_ref().map_or(String::new(), |cell| {
            format!(", such as <code>{}</code>", escaped(cell))
        });
        let _ = write!(
            out,
            "<li>{}{example}: {}</li>",
            count(row.cells, "cell"),
            escaped(&row.why)
        );
    }
    out.push_str("</ul></section>");
}

/// What was true of each machine in the session.
fn machines(report: &Report, out: &mut String) {
    if report.machines.is_empty() {
        return;
    }
    section("machines", "Machines", out);
    for row in report.machines.iter().take(ROWS_MAX) {
        let _ = write!(
            out,
            "<details><summary>{}</summary><table><tbody>",
            escaped(&row.machine)
        );
        for (name, value) in row.values.iter().take(VALUES_MAX) {
            let _ = write!(
                out,
                "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
                escaped(name),
                escaped(value)
            );
        }
        out.push_str("</tbody></table></details>");
    }
    out.push_str("</section>");
}

fn environments(report: &Report, out: &mut String) {
    if report.environments.is_empty() {
        return;
    }
    section("environments", "What else differed", out);
    for row in report.environments.iter().take(ROWS_MAX) {
        let _ = write!(
            out,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Differences of the machine\"><table><caption>The machine, {} against {}: of {}</caption><thead><tr><th scope=\"col\">what</th><th scope=\"col\">before</th><th scope=\"col\">after</th><th scope=\"col\">it may explain</th></tr></thead><tbody>",
            escaped(&row.between[0]),
            escaped(&row.between[1]),
            count(row.verdicts, "comparison")
        );
        for difference in row.differences.iter().take(ROWS_MAX) {
            let value = |value: &Option<String>| escaped(value.as_deref().unwrap_or("–"));
            let _ = write!(
                out,
                "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>",
                escaped(&difference.name),
                value(&difference.before),
                value(&difference.after),
                escaped(difference.may_explain)
            );
        }
        out.push_str("</tbody></table></div>");
        more(row.differences.len(), "difference", out);
    }
    more(report.environments.len(), "pair", out);
    out.push_str("</section>");
}

fn monitors(report: &Report, out: &mut String) {
    let moved = report.monitors.iter().filter(|row| !row.moved.is_empty());
    let moved: Vec<_> = moved.collect();
    if moved.is_empty() {
        return;
    }
    section("monitors", "Monitors that moved", out);
    for row in moved.iter().take(ROWS_MAX) {
        let _ = write!(
            out,
            "<details><summary>{} ({}): {} of {} moved</summary><table><caption>{} → {}, {}</caption><thead><tr><th scope=\"col\">monitor</th><th scope=\"col\">baseline</th><th scope=\"col\">candidate</th><th scope=\"col\">change</th><th scope=\"col\">q</th></tr></thead><tbody>",
            escaped(&row.cell),
            escaped(&row.metrics.join(", ")),
            row.moved.len(),
            count(row.monitors, "monitor"),
            escaped(&row.baseline),
            escaped(&row.candidate),
            escaped(&row.axis)
        );
        for moved in row.moved.iter().take(ROWS_MAX) {
            let _ = write!(
                out,
                "<tr><th scope=\"row\">{}</th><td class=\"num\">{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td><td class=\"num\">{:.1e}</td></tr>",
                escaped(&moved.monitor),
                show_si(moved.baseline),
                show_si(moved.candidate),
                moved.ratio.map(show_ratio).unwrap_or_default(),
                moved.q
            );
        }
        out.push_str("</tbody></table></details>");
    }
    more(moved.len(), "comparison", out);
    out.push_str("</section>");
}

fn marks(report: &Report, out: &mut String) {
    if report.marks.is_empty() {
        return;
    }
    section("marks", "Samples to be read with care", out);
    out.push_str("<ul>");
    for row in &report.marks {
        let what = match row.kind {
            "noisy" => "the machine was not quiet",
            _ => "somebody changed what the profile had set",
        };
        let _ = write!(
            out,
            "<li>{}: {what}, such as: {}</li>",
            count(row.samples, "measurement"),
            escaped(&row.example)
        );
    }
    out.push_str("</ul></section>");
}

fn accepted(report: &Report, out: &mut String) {
    if report.accepted.is_empty() {
        return;
    }
    section("accepted", "Accepted changes", out);
    out.push_str("<ul>");
    for row in report.accepted.iter().take(ROWS_MAX) {
        let _ = write!(
            out,
            "<li>#{} {}, from <code>{}</code> on: “{}” ({}, {})</li>",
            row.id,
            escaped(&row.what),
            escaped(&row.versions.join(", ")),
            escaped(&row.reason),
            escaped(&row.author),
            escaped(&row.at)
        );
    }
    out.push_str("</ul>");
    more(report.accepted.len(), "acceptance", out);
    out.push_str("</section>");
}
