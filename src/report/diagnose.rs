//! How diagnostics look: file, line, the text underlined, the remedy.

use std::borrow::Cow;
use std::fmt::Write as _;

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, MietteError,
    MietteSpanContents, Report, SourceCode, SourceSpan, SpanContents,
};

use crate::base::diag::{Diagnostic, Severity, Sources, Span};
use crate::base::printable::{printable, without_long_lines};

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
    let mut shown = MietteDiagnostic::new(message(&diagnostic.message)).with_severity(
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
    let (mut labels, mut ends) = (Vec::new(), Vec::new());
    // One picture shows one file; places in others are named in words.
    for (span, label) in diagnostic.label.iter().chain(&diagnostic.related) {
        if Some(span.source) == place {
            labels.push(printable(label).into_owned());
            ends.push(at(span.start));
            ends.push(at(span.end));
        } else {
            help.push(format!("{label}: {}", position(sources, *span)));
        }
    }
    let (shown_text, cuts) = cut_lines(&shown_text, &mut ends);
    for (label, ends) in labels.into_iter().zip(ends.chunks(2)) {
        shown = shown.and_label(LabeledSpan::new(Some(label), ends[0], ends[1] - ends[0]));
    }
    if !help.is_empty() {
        shown = shown.with_help(message(&help.join("\n")));
    }
    let report = Report::new(shown);
    let report = match place {
        Some(source) => report.with_source_code(SourceFile {
            name: printable(sources.name(source)).into_owned(),
            text: shown_text.into_owned(),
            cuts,
        }),
        None => report,
    };
    if handler.render_report(out, report.as_ref()).is_err() {
        let _ = writeln!(out, "{}", printable(&diagnostic.message));
    }
}

fn message(text: &str) -> String {
    without_long_lines(&printable(text)).into_owned()
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

/// Characters of a line that are shown; the rest is cut off around the place.
const LINE_CHARS_MAX: usize = 160;
/// Lines that are shown of one place.
const LINES_MAX: usize = 10;

/// A line whose beginning is not shown.
struct Cut {
    /// Where the line begins in the text that is shown.
    start: usize,
    /// How many characters more its beginning had than what is shown for it.
    chars: usize,
}

/// Cuts long lines around the places in them. `ends` are the starts and ends of places in the text; they
/// move with it. A place of many lines ends with the last one that is shown.
fn cut_lines<'a>(text: &'a str, ends: &mut [usize]) -> (Cow<'a, str>, Vec<Cut>) {
    for place in ends.chunks_mut(2) {
        let lines = text[place[0]..place[1]].split_inclusive('\n');
        place[1] = place[0] + lines.take(LINES_MAX).map(str::len).sum::<usize>();
    }
    if text.lines().all(|line| line.len() <= LINE_CHARS_MAX) {
        return (Cow::Borrowed(text), Vec::new());
    }
    let (mut shown, mut cuts) = (String::new(), Vec::new());
    let mut moved = ends.to_vec();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let range = start..start + line.len();
        start = range.end;
        let is_here =
            |end: &usize| range.contains(end) || *end == range.end && range.end == text.len();
        let body = line.trim_end_matches(['\n', '\r']);
        let chars = body.chars().count();
        let line_start = shown.len();
        let focus = ends.iter().find(|end| is_here(end));
        let focus = focus.map_or(0, |end| line[..end - range.start].chars().count());
        // A window that holds the place, with as much before it as behind it.
        let from = match chars > LINE_CHARS_MAX {
            true => focus
                .saturating_sub(LINE_CHARS_MAX / 2)
                .min(chars - LINE_CHARS_MAX),
            false => 0,
        };
        let byte = |n: usize| body.char_indices().nth(n).map_or(body.len(), |(at, _)| at);
        let window = byte(from)..byte(from + LINE_CHARS_MAX);
        if from > 0 {
            shown.push('…');
            cuts.push(Cut {
                start: line_start,
                chars: from - 1,
            });
        }
        let window_start = shown.len();
        shown.push_str(&body[window.clone()]);
        if window.end < body.len() {
            shown.push('…');
        }
        for (end, moved) in ends.iter().zip(&mut moved).filter(|(end, _)| is_here(end)) {
            let within = (end - range.start).clamp(window.start, window.end);
            *moved = window_start + within - window.start;
        }
        shown.push_str(&line[body.len()..]);
    }
    ends.copy_from_slice(&moved);
    (Cow::Owned(shown), cuts)
}

/// A text whose columns are counted in characters, as [`Sources::line_column`] does; miette counts bytes.
struct SourceFile {
    name: String,
    text: String,
    cuts: Vec<Cut>,
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
        let line = before.rsplit('\n').next().unwrap_or("");
        let start = before.len() - line.len();
        let cut = self.cuts.iter().find(|cut| cut.start == start);
        let is_whole_line = line.is_empty();
        let cut = cut.filter(|_| !is_whole_line).map_or(0, |cut| cut.chars);
        let column = line.chars().count() + cut;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::diag::Span;

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let check = |text: &str, at: usize, expected: &str, column: usize| {
            let mut sources = Sources::default();
            let source = sources.add("m.toml", text);
            let problem = Diagnostic::error("wrong").at(Span::new(source, at..at + 1), "here");
            let shown = render(&[problem], &sources, false, 100);
            assert!(shown.contains(&format!("m.toml:1:{column}")), "{shown}");
            assert!(shown.contains(expected), "{shown}");
            let longest = shown.lines().map(|line| line.chars().count()).max();
            assert!(longest < Some(LINE_CHARS_MAX + 20), "{shown}");
        };
        let long = "é".repeat(100_000);
        check("a = 1", 4, "a = 1", 5);
        check(&format!("a = {long}"), 0, "a = éé", 1);
        check(&format!("{long} = 1\nb = 2"), 200_001, "é = 1\n", 100_002);
        check(&format!("{long}=1{long}"), 200_000, "éé=1éé", 100_001);
    }

    #[test]
    fn a_place_of_many_lines_is_not_shown_whole() {
        let mut sources = Sources::default();
        let text = "a = 1\n".repeat(1000);
        let source = sources.add("m.toml", text.as_str());
        let problem = Diagnostic::error("wrong").at(Span::new(source, 0..text.len()), "here");
        let shown = render(&[problem], &sources, false, 100);
        assert!(shown.lines().count() < 2 * LINES_MAX, "{shown}");
    }
}
