//! Faces made by templates that a user may change: Markdown and whatever else is in `hooks/`.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};

use super::text::{in_one_unit, summary};
use crate::base::units::{show_ratio, show_value};
use crate::config::template_bounds;
use crate::verdicts::report::Report;

/// Bytes of one template.
pub const TEMPLATE_BYTES_MAX: usize = 1 << 20;
/// Steps that one rendering may take.
const FUEL_MAX: u64 = 50_000_000;

/// The template that `--format markdown` uses where `hooks/` has none.
pub const MARKDOWN: &str = include_str!("../../hooks/compare.md.jinja");

/// Fills a template with a report. Beside minijinja's own there are the function `change(ratio, ci95)` (both as texts
/// in one unit), and the filters `ratio` (a change in
/// percent), `value(unit)` (a number with its unit) and `one_line` (safe in a table cell).
/// The error says what is wrong, with its line.
pub fn render(template: &str, report: &Report) -> Result<String, String> {
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
    env.add_filter("one_line", |text: &str| {
        let plain: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        plain.replace('|', "\\|")
    });
    let context = minijinja::context! {
        report => Serde(report),
        summary => summary(report),
    };
    template_bounds::limit(&mut env);
    let limited = template_bounds::with_limits(template)?;
    env.template_from_str(&limited)
        .and_then(|compiled| compiled.render(context))
        .map_err(|error| {
            let line = error
                .line()
                .map(|line| format!("line {line}: "))
                .unwrap_or_default();
            let detail = error
                .detail()
                .map(|detail| format!(": {detail}"))
                .unwrap_or_default();
            format!("{line}{}{detail}", error.kind())
        })
}
