//! Faces made by templates that a user may change: Markdown and whatever else is in `hooks/`.

use std::borrow::Cow;
use std::error::Error as _;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

use super::text::{in_one_unit, summary};
use crate::base::printable::line;
use crate::base::units::{show_ratio, show_value};
use crate::config::template_bounds;
use crate::judge::verdict::Verdict;
use crate::verdicts::report::{Report, VerdictRow};

/// Bytes of one template.
pub const TEMPLATE_BYTES_MAX: usize = 1 << 20;
/// Bytes that a template may write.
pub const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// Bytes of the shipped Markdown: GitHub refuses comments of more than 65,536 characters.
pub const MARKDOWN_BYTES_MAX: usize = 60_000;
/// Steps that one rendering may take.
const FUEL_MAX: u64 = 50_000_000;

/// The template that `--format markdown` uses where `hooks/` has none.
pub const MARKDOWN: &str = include_str!("../../hooks/compare.md.jinja");

/// The shipped Markdown, with as many rows as fit into [`MARKDOWN_BYTES_MAX`].
pub fn markdown(report: &Report) -> Result<String, String> {
    let mut rows_max = report.verdicts.len().max(report.cells.len());
    loop {
        let text = render(MARKDOWN, report, rows_max)?;
        if text.len() <= MARKDOWN_BYTES_MAX || rows_max == 0 {
            return Ok(cut(text));
        }
        rows_max = (rows_max * MARKDOWN_BYTES_MAX / text.len()).min(rows_max - 1);
    }
}

/// What is still too long without any row is cut at a line.
fn cut(mut text: String) -> String {
    if text.len() > MARKDOWN_BYTES_MAX {
        text.truncate(text.floor_char_boundary(MARKDOWN_BYTES_MAX));
        text.truncate(text.rfind('\n').unwrap_or(0));
        text.push_str("\n\n… and more: `matrix report` has all\n");
    }
    text
}

/// Characters of a text that stands in one line.
const LINE_CHARS_MAX: usize = 1000;

fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(LINE_CHARS_MAX) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Text that does not act in Markdown, on one line and in a table cell.
fn one_line(text: &str) -> String {
    let mut out = String::new();
    for c in line(&shortened(text)).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // Nobody is called.
            '@' => out.push_str("&#64;"),
            '|' | '`' | '*' | '_' | '[' | ']' | '!' | '~' | '\\' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

/// A code span that holds any text, also in a table cell.
fn code(text: &str) -> String {
    let text = line(&shortened(text)).replace('|', "\\|");
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    match (longest, text.trim().is_empty()) {
        (_, true) => String::new(),
        (0, _) => format!("`{text}`"),
        (n, _) => format!("{0} {text} {0}", "`".repeat(n + 1)),
    }
}

/// The rows that there is room for: what changed, and the others, which are folded where anything changed.
#[derive(Clone, Debug, Serialize)]
struct RowGroup {
    fold: bool,
    rows: Vec<usize>,
}

fn groups(report: &Report, rows_max: usize) -> Vec<RowGroup> {
    let is_told = |at: &usize| {
        let verdict = report.verdicts[*at].comparison.verdict;
        !matches!(verdict, Verdict::Same | Verdict::Inconclusive)
    };
    let all = 0..report.verdicts.len().min(rows_max);
    let (changed, others): (Vec<usize>, Vec<usize>) = all.partition(is_told);
    let fold = !changed.is_empty();
    let groups = [(false, changed), (fold, others)].into_iter();
    groups
        .filter(|(_, rows)| !rows.is_empty())
        .map(|(fold, rows)| RowGroup { fold, rows })
        .collect()
}

/// Fills a template with a report. Beside minijinja's own there are `words` (the verdict of each row as a person says it),
/// `rows_max` (how many rows there is room for), `groups` (the numbers of these rows: what changed, then what is to be
/// folded away), the function `change(ratio, ci95)` (both as texts in one unit), and the
/// filters `ratio` (a change in percent), `value(unit)` (a number with its unit), `one_line` (safe in a table cell) and
/// `code` (a code span). The error says what is wrong, with its line.
pub fn render(template: &str, report: &Report, rows_max: usize) -> Result<String, String> {
    if template.len() > TEMPLATE_BYTES_MAX {
        return Err(format!(
            "the template has {} bytes; at most {TEMPLATE_BYTES_MAX} are allowed",
            template.len()
        ));
    }
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_fuel(Some(FUEL_MAX));
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    env.set_syntax(syntax.build().map_err(|error| error.to_string())?);
    env.add_filter("ratio", |ratio: Option<f64>| {
        ratio.map_or("-".to_owned(), show_ratio)
    });
    env.add_function("change", |ratio: Option<f64>, ci95: Option<Vec<f64>>| {
        let ci95 = ci95.and_then(|ci95| <[f64; 2]>::try_from(ci95).ok());
        let (change, interval) = in_one_unit(ratio, ci95);
        vec![change, interval]
    });
    env.add_filter("value", |value: Option<f64>, unit: &str| {
        value.map_or("-".to_owned(), |value| show_value(value, unit))
    });
    env.add_filter("one_line", |text: &str| one_line(text));
    env.add_filter("code", |text: &str| code(text));
    let words: Vec<String> = report.verdicts.iter().map(VerdictRow::words).collect();
    let groups = groups(report, rows_max);
    let context = minijinja::context! {
        report => Serde(report),
        summary => summary(report),
        words => words,
        rows_max => rows_max,
        groups => Serde(groups),
    };
    template_bounds::limit(&mut env);
    let limited = template_bounds::with_limits(template)?;
    let mut written = template_bounds::LimitedOutput::new(OUTPUT_BYTES_MAX);
    env.template_from_str(&limited)
        .and_then(|compiled| compiled.render_captured_to(context, &mut written).map(drop))
        .map_err(|error| {
            let line = error
                .line()
                .map(|line| format!("line {line}: "))
                .unwrap_or_default();
            let detail = error
                .detail()
                .map(|detail| format!(": {detail}"))
                .unwrap_or_default();
            let source = error.source().map(|source| format!(": {source}"));
            let source = source.unwrap_or_default();
            format!("{line}{}{detail}{source}", error.kind())
        })?;
    String::from_utf8(written.bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_does_not_act_in_markdown() {
        let check = |text: &str, plain: &str, as_code: &str| {
            assert_eq!((&*one_line(text), &*code(text)), (plain, as_code));
        };
        check("4k", "4k", "`4k`");
        check("<b>", "&lt;b&gt;", "`<b>`");
        check("a|b", "a\\|b", "`a\\|b`");
        check("x``y", "x\\`\\`y", "``` x``y ```");
        check("@all\n# x", "&#64;all\\\\n# x", "`@all\\n# x`");
        check(
            "\x1b[2J\u{202e}",
            "\\\\x1b\\[2J\\\\u{202e}",
            "`\\x1b[2J\\u{202e}`",
        );
    }

    #[test]
    fn a_template_that_writes_too_much_or_is_broken_is_an_error_with_its_line() {
        let report = Report::of("m", "", Vec::new());
        let check = |template: &str, expected: &str| {
            let error = render(template, &report, 0).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        let much = "x\n{% for i in range(9999) %}{{ 'y' * 9999 }}{% endfor %}";
        check(much, "");
        let many = format!(
            "{{% for i in range(99999) %}}{}{{% endfor %}}",
            "y".repeat(999)
        );
        check(&many, "it writes more than 16777216 bytes");
        check("one\n{{ report.nothing }}", "line 2: ");
        check("one\n{% if %}", "line 2: ");
    }
}
