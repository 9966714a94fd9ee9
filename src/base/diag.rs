//! The diagnostic: what is wrong, where, and what to do about it.

use std::ops::Range;

/// Index into [`Sources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

/// A byte range in one source text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub source: SourceId,
    pub start: u32,
    pub end: u32,
}

impl Span {
    pub fn new(source: SourceId, range: Range<usize>) -> Self {
        // Sources are limited to far less than 4 GiB by the readers.
        Span {
            source,
            start: range.start as u32,
            end: range.end as u32,
        }
    }

    /// The part of this span at `range`, counted in bytes from its start.
    pub fn slice(self, range: Range<usize>) -> Self {
        Span {
            source: self.source,
            start: (self.start + range.start as u32).min(self.end),
            end: (self.start + range.end as u32).min(self.end),
        }
    }
}

/// A value with the place it was written at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct At<T> {
    pub value: T,
    pub span: Span,
}

impl<T> At<T> {
    pub fn new(value: T, span: Span) -> Self {
        At { value, span }
    }
}

/// The texts that spans point into, with the names that a user knows them by.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<(String, String)>,
}

impl Sources {
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> SourceId {
        self.files.push((name.into(), text.into()));
        SourceId(self.files.len() as u32 - 1)
    }

    pub fn name(&self, id: SourceId) -> &str {
        self.files.get(id.0 as usize).map_or("", |file| &file.0)
    }

    pub fn text(&self, id: SourceId) -> &str {
        self.files.get(id.0 as usize).map_or("", |file| &file.1)
    }

    /// One-based line and column (in characters) of the start of a span.
    pub fn line_column(&self, span: Span) -> (usize, usize) {
        let text = self.text(span.source);
        let mut start = (span.start as usize).min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let before = &text[..start];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        (line, column)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    Error,
    Warning,
}

/// One problem. A core function returns all that it finds, not the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    pub message: String,
    /// The place, and a few words to stand under the underlined text.
    pub label: Option<(Span, String)>,
    /// Other places that have to do with it.
    pub related: Vec<(Span, String)>,
    /// The remedy.
    pub help: Option<String>,
}

impl Diagnostic {
    pub fn error(message: impl Into<String>) -> Self {
        Diagnostic {
            severity: Severity::Error,
            message: message.into(),
            label: None,
            related: Vec::new(),
            help: None,
        }
    }

    pub fn warning(message: impl Into<String>) -> Self {
        Diagnostic {
            severity: Severity::Warning,
            ..Diagnostic::error(message)
        }
    }

    pub fn at(mut self, span: Span, label: impl Into<String>) -> Self {
        self.label = Some((span, label.into()));
        self
    }

    pub fn also(mut self, span: Span, label: impl Into<String>) -> Self {
        self.related.push((span, label.into()));
        self
    }

    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// The name nearest to `wrong`, when one is near enough to be meant.
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    names
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(wrong, name), name))
        .filter(|(distance, name)| *distance <= (name.chars().count().max(3) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// "did you mean `x`?", or the list of what is allowed when nothing is near.
pub fn suggest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(wrong, names.clone()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => {
            let all: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
            match all.len() {
                0 => "there is none".to_owned(),
                1..=SUGGESTIONS_MAX => format!("there are: {}", all.join(", ")),
                n => format!(
                    "there are {n}, among them: {}",
                    all[..SUGGESTIONS_MAX].join(", ")
                ),
            }
        }
    }
}

/// Names listed in a hint at the most.
const SUGGESTIONS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_takes_a_slip_but_not_another_word() {
        assert_eq!(nearest("chache", ["cache", "aio"]), Some("cache"));
        assert_eq!(nearest("oai", ["cache", "aio"]), None);
        assert_eq!(nearest("ai", ["cache", "aio"]), Some("aio"));
        assert_eq!(nearest("machine", ["cache", "aio"]), None);
    }

    #[test]
    fn line_and_column_count_characters() {
        let mut sources = Sources::default();
        let id = sources.add("a", "x = 1\nžluť = 2\n");
        let at = |start: usize| sources.line_column(Span::new(id, start..start + 1));
        assert_eq!(at(0), (1, 1));
        assert_eq!(at("x = 1\nžluť".len()), (2, 5));
    }
}
