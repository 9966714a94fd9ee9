//! A result as one HTML page: it needs no network, and no script to be read.

mod beside;
mod changes;
pub mod chart;
mod data;
pub mod escape;
mod findings;
pub mod heat;
mod model;
pub mod site;
mod table;

use std::fmt::Write as _;

use crate::base::units::show_time;
use crate::report::headline::headline;
use crate::report::html::escape::escaped;
use crate::report::html::heat::HeatLayout;
use crate::report::html::model::{PageModel, Tone};
use crate::verdicts::report::Report;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Heat maps that are there without a script; with one there is a choice.
const MAPS_MAX: usize = 6;

/// No request leaves the page, whatever it shows.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// All that a page shows.
#[derive(Debug)]
pub struct PageInput<'a> {
    pub report: &'a Report,
    /// A command that explains a cell whose name is appended: `matrix explain m.toml`.
    pub command: &'a str,
    /// HTML before all else: links to the pages beside it.
    pub navigation: &'a str,
}

/// The page.
pub fn page(input: &PageInput) -> String {
    let model = PageModel::of(input.report);
    let layout = HeatLayout::of(&model);
    let mut body = input.navigation.to_owned();
    summary(input.report, &model, &mut body);
    changes::news(input.report, &mut body);
    changes::causes(input.report, &mut body);
    map(&model, &layout, &mut body);
    findings::cards(input, &model, &mut body);
    table::table(&model, &mut body);
    beside::all(input.report, &mut body);
    let data = data::data(input, &model, &layout);
    let _ = write!(
        body,
        "<script type=\"application/json\" id=\"data\">{data}</script><script>{SCRIPT}</script>"
    );
    document(&input.report.matrix, &body)
}

/// A whole document of what is in its body.
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"generator\" content=\"matrix\"><title>{}</title><style>{STYLE}</style></head>\n\
         <body>{body}</body></html>\n",
        escaped(title)
    )
}

/// A section with its heading.
pub fn section(id: &str, title: &str, out: &mut String) {
    let _ = write!(
        out,
        "<section id=\"{id}\" aria-labelledby=\"{id}-title\"><h2 id=\"{id}-title\">{}</h2>",
        escaped(title)
    );
}

fn summary(report: &Report, model: &PageModel, out: &mut String) {
    let _ = write!(
        out,
        "<a class=\"skip\" href=\"#verdicts\">To the table</a><header><p class=\"name\">{}</p>",
        escaped(&report.matrix)
    );
    let told = headline(report);
    let mut told = told.iter();
    if let Some(first) = told.next() {
        let _ = write!(out, "<h1>{}</h1>", escaped(first));
    }
    for sentence in told {
        let _ = write!(out, "<p class=\"more\">{}</p>", escaped(sentence));
    }
    if !report.about.is_empty() {
        let _ = write!(out, "<p class=\"about\">{}</p>", escaped(&report.about));
    }
    let common = model.common();
    if !common.is_empty() {
        let _ = write!(
            out,
            "<p class=\"about\">All of it with {}.</p>",
            escaped(&common.join(", "))
        );
    }
    if let Some(session) = &report.session {
        let ended = session.ended.as_ref();
        let ended = ended.map_or(String::new(), |at| format!(" to {}", show_time(at)));
        let _ = write!(
            out,
            "<p class=\"about\">Session {}, {}{}, preset {}, seed {}: <code>{}</code></p>",
            session.id,
            escaped(&show_time(&session.began)),
            escaped(&ended),
            escaped(match &*session.preset {
                "" => "none",
                preset => preset,
            }),
            session.seed,
            escaped(&session.command)
        );
    }
    out.push_str("</header><main><ul class=\"counts\" aria-label=\"Verdicts\">");
    let counts = &report.counts;
    let gating = report.verdicts.iter().filter(|row| row.rank() == 0).count();
    let worse = match gating {
        0 => "worse".to_owned(),
        n => format!("worse ({n} gate)"),
    };
    for (tone, n, word) in [
        (Tone::Worse, counts.regression, &*worse),
        (Tone::Suspected, counts.suspected, "suspected"),
        (Tone::Better, counts.improvement, "better"),
        (Tone::Inconclusive, counts.inconclusive, "inconclusive"),
        (Tone::Nothing, counts.nothing_measured, "not measured"),
        (Tone::Same, counts.same, "the same"),
    ] {
        if n > 0 {
            let _ = write!(
                out,
                "<li class=\"{0}\"><a href=\"#tone={0}\"><span aria-hidden=\"true\">{1}</span> <b>{n}</b> {word}</a></li>",
                tone.class(),
                tone.sign()
            );
        }
    }
    out.push_str("</ul>");
}

fn map(model: &PageModel, layout: &HeatLayout, out: &mut String) {
    if model.rows.is_empty() || model.varying().is_empty() {
        return;
    }
    section("map", "The matrix", out);
    out.push_str("<p class=\"legend\">");
    for (tone, word) in [
        (Tone::Worse, "worse"),
        (Tone::Better, "better"),
        (Tone::Suspected, "suspected"),
        (Tone::Inconclusive, "inconclusive"),
        (Tone::Same, "the same"),
        (Tone::Nothing, "nothing measured"),
    ] {
        let _ = write!(
            out,
            "<span class=\"{}\">{}</span> {word} ",
            tone.class(),
            tone.sign()
        );
    }
    out.push_str(
        "Where several comparisons share a place, the worst is shown, with how many are so.</p>",
    );
    let (maps, left) = heat::maps(model, layout, MAPS_MAX);
    let _ = write!(out, "<div id=\"heat\">{maps}");
    if left > 0 {
        let _ = write!(
            out,
            "<p>{left} more of such tables: with a script there is a choice.</p>"
        );
    }
    out.push_str("</div></section>");
}
