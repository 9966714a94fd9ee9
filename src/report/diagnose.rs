//! How diagnostics look: file, line, the text underlined, the remedy.

use std::borrow::Cow;
use std::fmt::Write as _;

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, MietteError,
    MietteSpanContents, Report, SourceCode, SourceSpan, SpanContents,
};

use crate::base::diag::{Diagnostic, Severity, Sources, Span};
use crate::base::printable::printable;

/// Diagnostics as text for a person. `color`: with ANSI colours.
pub fn render(diagnostics: &[Diagnostic], sources: &Sources, color: bool, width: usize) -> String {
    let theme = match color {
        true => GraphicalTheme::unicode(),
        false => GraphicalTheme::unicode_nocolor(),
    };
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_width(width.clamp(40, 160))
        .with_links(false);
    let mut out = String::new();
    for (index, diagnostic) in diagnostics.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        render_one(&handler, diagnostic, sources, &mut out);
    }
    out
}

fn render_one(
    handler: &GraphicalReportHandler,
    diagnostic: &Diagnostic,
    sources: &Sources,
    out: &mut String,
) {
    let mut shown = MietteDiagnostic::new(printable(&diagnostic.message)).with_severity(
        match diagnostic.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        },
    );
    let place = diagnostic.label.as_ref().map(|(span, _)| span.source);
    let text = place.map_or("", |source| sources.text(source));
    // Where a byte of the text is in what is shown of it.
    let shown_text = printable_source(text);
    let at = |byte: u32| match &shown_text {
        Cow::Borrowed(_) => byte as usize,
        Cow::Owned(shown) => {
            let before = text.get(..byte as usize).unwrap_or(text);
            printable_source(before).len().min(shown.len())
        }
    };
    let mut help: Vec<String> = diagnostic.help.iter().cloned().collect();
    // One picture shows one file; places in others are named in words.
    for (span, label) in diagnostic.label.iter().chain(&diagnostic.related) {
        if Some(span.source) == place {
            shown = shown.and_label(LabeledSpan::new(
                Some(printable(label).into_owned()),
                at(span.start),
                at(span.end) - at(span.start),
            ));
        } else {
            help.push(format!("{label}: {}", position(sources, *span)));
        }
    }
    if !help.is_empty() {
        shown = shown.with_help(printable(&help.join("\n")));
    }
    let report = Report::new(shown);
    let report = match place {
        Some(source) => report.with_source_code(SourceFile {
            name: printable(sources.name(source)).into_owned(),
            text: shown_text.into_owned(),
        }),
        None => report,
    };
    if handler.render_report(out, report.as_ref()).is_err() {
        let _ = writeln!(out, "{}", printable(&diagnostic.message));
    }
}

/// A file as it is shown. Its line ends stay as they are.
fn printable_source(text: &str) -> Cow<'_, str> {
    if !text.contains('\r') {
        return printable(text);
    }
    let lines = text.split_inclusive('\n');
    let shown: String = lines
        .map(|line| match line.strip_suffix("\r\n") {
            Some(line) => format!("{}\r\n", printable(line)),
            None => printable(line).into_owned(),
        })
        .collect();
    match shown == text {
        true => Cow::Borrowed(text),
        false => Cow::Owned(shown),
    }
}

/// A text whose columns are counted in characters, as [`Sources::line_column`] does; miette counts bytes.
struct SourceFile {
    name: String,
    text: String,
}

impl SourceCode for SourceFile {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        lines_before: usize,
        lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let found = self.text.read_span(span, lines_before, lines_after)?;
        let before = self.text.get(..found.span().offset()).unwrap_or("");
        let column = before.rsplit('\n').next().unwrap_or("").chars().count();
        Ok(Box::new(MietteSpanContents::new_named(
            self.name.clone(),
            found.data(),
            *found.span(),
            found.line(),
            column,
            found.line_count(),
        )))
    }
}

/// `file:line:column`.
pub fn position(sources: &Sources, span: Span) -> String {
    let (line, column) = sources.line_column(span);
    format!("{}:{line}:{column}", sources.name(span.source))
}
