//! The strict reader of TOML tables: wrong types and unknown keys become diagnostics.

use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::base::diag::{At, Diagnostic, SourceId, Span, suggest};
use crate::base::units::{duration_from_secs, parse_duration, parse_percent};

/// Bytes of one configuration file.
pub const FILE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Values, tables and lines of one configuration file: the reader holds some 250 bytes for each.
const PARTS_MAX: usize = 150_000;
/// Syntax errors of one file that are shown: later ones are mostly echoes of the first.
const CASCADE_MAX: usize = 3;

/// Where readers put what they find wrong.
#[derive(Debug, Default)]
pub struct Problems(pub Vec<Diagnostic>);

impl Problems {
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// The value, or None after noting the problem.
    pub fn note<T>(&mut self, result: Result<T, Diagnostic>) -> Option<T> {
        result.map_err(|diagnostic| self.push(diagnostic)).ok()
    }
}

/// Parses a file; None where its syntax is broken (the reasons are then noted).
pub fn parse<'a>(
    source: SourceId,
    text: &'a str,
    problems: &mut Problems,
) -> Option<Spanned<DeTable<'a>>> {
    let whole = Span::new(source, 0..text.len().min(1));
    if text.len() > FILE_BYTES_MAX {
        problems.push(
            Diagnostic::error(format!(
                "the file has {} bytes; at most {FILE_BYTES_MAX} are read",
                text.len()
            ))
            .at(whole, "this file")
            .help("split it: `[matrix] import = [\"shared.toml\"]` brings in shared tables"),
        );
        return None;
    }
    let parts = text.bytes().filter(|byte| b",=[{\n".contains(byte)).count();
    if parts > PARTS_MAX {
        problems.push(
            Diagnostic::error(format!(
                "the file has more than {PARTS_MAX} values and lines, too many to be read"
            ))
            .at(whole, "this file")
            .help("write axes and `[[exclude]]` rather than cell by cell; `[matrix] import` brings in shared tables"),
        );
        return None;
    }
    let (table, mut errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Some(table);
    }
    errors.sort_by_key(|error| error.span().map_or(0, |span| span.start));
    let more = errors.len().saturating_sub(CASCADE_MAX);
    for error in errors.into_iter().take(CASCADE_MAX) {
        let span = error.span().map_or(whole, |range| {
            let end = range.end.max(range.start + 1).min(text.len());
            Span::new(source, range.start.min(end)..end)
        });
        problems.push(syntax_error(error.message(), text, span));
    }
    if more > 0
        && let Some(last) = problems.0.last_mut()
    {
        last.help = Some(format!(
            "{more} more after this one, which may go away with it"
        ));
    }
    None
}

fn syntax_error(message: &str, text: &str, span: Span) -> Diagnostic {
    let found = text
        .get(span.start as usize..span.end as usize)
        .unwrap_or("");
    // The parser takes `null` for the beginning of `nan`, `fio` for that of `false`.
    let is_value = [
        "string values must be quoted",
        "invalid float",
        "invalid boolean",
    ]
    .iter()
    .any(|start| message.starts_with(start));
    let is_word = |text: &str| {
        text.contains(char::is_alphabetic)
            && !text.contains(|c: char| c.is_whitespace() || c == '"')
    };
    match message {
        "duplicate key" => Diagnostic::error(format!("not TOML: `{found}` is there twice"))
            .at(span, "here again")
            .help("a key or `[table]` is written once; several of a kind are `[[table]]`"),
        _ if is_value && is_word(found) => Diagnostic::error("not TOML: a string without quotes")
            .at(span, "here")
            .help(format!("write `\"{found}\"`")),
        _ => Diagnostic::error(format!("not TOML: {message}")).at(span, "here"),
    }
}

/// One table, its keys in the order in which they were written. Asking for a key marks it as
/// known; [`Table::finish`] reports the others.
pub struct Table<'a> {
    /// As a user would write it: `[run]`.
    pub title: String,
    pub span: Span,
    /// The whole file.
    text: &'a str,
    entries: Vec<(At<&'a str>, &'a Spanned<DeValue<'a>>)>,
    known: Vec<&'static str>,
}

impl<'a> Table<'a> {
    pub fn new(
        title: impl Into<String>,
        source: SourceId,
        text: &'a str,
        span: Span,
        table: &'a DeTable<'a>,
    ) -> Self {
        let mut entries: Vec<_> = table
            .iter()
            .map(|(key, value)| {
                let name: &str = key.get_ref();
                (At::new(name, Span::new(source, key.span())), value)
            })
            .collect();
        entries.sort_by_key(|(key, _)| key.span.start);
        Table {
            title: title.into(),
            span,
            text,
            entries,
            known: Vec::new(),
        }
    }

    /// The title in a sentence: what stands in the file between backticks, words without.
    fn named(&self) -> String {
        match self.title.starts_with('[') || !self.title.contains(' ') {
            true => format!("`{}`", self.title),
            false => self.title.clone(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn get(&mut self, key: &'static str) -> Option<TomlNode<'a>> {
        self.known.push(key);
        self.entries
            .iter()
            .find(|(name, _)| name.value == key)
            .map(|(name, value)| self.node(*name, value))
    }

    pub fn require(&mut self, key: &'static str, problems: &mut Problems) -> Option<TomlNode<'a>> {
        let node = self.get(key);
        if node.is_none() {
            problems.push(
                Diagnostic::error(format!("{} has no `{key}`", self.named()))
                    .at(self.span, format!("`{key}` is needed here")),
            );
        }
        node
    }

    /// All keys with their values, for tables whose keys are the user's own names.
    pub fn all(&self) -> Vec<(At<&'a str>, TomlNode<'a>)> {
        self.entries
            .iter()
            .map(|(name, value)| (*name, self.node(*name, value)))
            .collect()
    }

    /// The keys that were not asked for, with their values.
    pub fn rest(&self) -> Vec<(At<&'a str>, TomlNode<'a>)> {
        self.all()
            .into_iter()
            .filter(|(name, _)| !self.known.contains(&name.value))
            .collect()
    }

    /// Reports each key that nobody asked for.
    pub fn finish(self, problems: &mut Problems) {
        for (name, _) in self.rest() {
            problems.push(
                Diagnostic::error(format!("unknown key `{}` in {}", name.value, self.named()))
                    .at(name.span, "not known here")
                    .help(suggest(name.value, self.known.iter().copied())),
            );
        }
    }

    fn node(&self, name: At<&'a str>, value: &'a Spanned<DeValue<'a>>) -> TomlNode<'a> {
        TomlNode {
            what: name.value.to_owned(),
            source: name.span.source,
            text: self.text,
            key: name.span,
            span: Span::new(name.span.source, value.span()),
            value: value.get_ref(),
        }
    }
}

/// One value and its name in messages.
pub struct TomlNode<'a> {
    pub what: String,
    source: SourceId,
    text: &'a str,
    /// Where its key stands; for an element of an array the element itself.
    pub key: Span,
    pub span: Span,
    pub value: &'a DeValue<'a>,
}

impl<'a> TomlNode<'a> {
    /// The value as the file writes it.
    pub fn written(&self) -> &'a str {
        self.text
            .get(self.span.start as usize..self.span.end as usize)
            .unwrap_or("")
    }

    /// Notes that the value is not what it should be.
    pub fn wrong(&self, wanted: &str, problems: &mut Problems) {
        let found = match self.value {
            DeValue::Integer(number) => number.as_str().to_owned(),
            DeValue::Array(array) if array.is_empty() => "empty".to_owned(),
            DeValue::Table(table) if table.is_empty() => "empty".to_owned(),
            value => with_article(value.type_str()),
        };
        problems.push(
            Diagnostic::error(format!("`{}` must be {wanted}", self.what))
                .at(self.span, format!("this is {found}")),
        );
    }

    pub fn string(&self, problems: &mut Problems) -> Option<At<String>> {
        match self.value.as_str() {
            Some(text) => Some(At::new(text.to_owned(), self.span)),
            None => {
                self.wrong("a string", problems);
                None
            }
        }
    }

    pub fn boolean(&self, problems: &mut Problems) -> Option<bool> {
        let value = self.value.as_bool();
        if value.is_none() {
            self.wrong("`true` or `false`", problems);
        }
        value
    }

    /// An integer from `min` to `max`.
    pub fn integer(&self, min: u64, max: u64, problems: &mut Problems) -> Option<u64> {
        let value = self
            .value
            .as_integer()
            .and_then(|i| u64::from_str_radix(i.as_str(), i.radix()).ok())
            .filter(|value| (min..=max).contains(value));
        if value.is_none() {
            self.wrong(&format!("a whole number from {min} to {max}"), problems);
        }
        value
    }

    /// A number of seconds.
    pub fn seconds(&self, problems: &mut Problems) -> Option<f64> {
        self.duration(problems).map(|d| d.as_secs_f64())
    }

    /// `"2h30m"`, or a number of seconds.
    pub fn duration(&self, problems: &mut Problems) -> Option<Duration> {
        let value = match self.value {
            DeValue::String(text) => parse_duration(text),
            DeValue::Integer(i) => i.as_str().parse().ok().and_then(duration_from_secs),
            DeValue::Float(f) => f.as_str().parse().ok().and_then(duration_from_secs),
            _ => None,
        };
        if value.is_none() {
            self.wrong("a duration such as \"2h30m\", \"90s\" or 90", problems);
        }
        value
    }

    /// `"2%"` as 0.02.
    pub fn percent(&self, problems: &mut Problems) -> Option<f64> {
        let value = self
            .value
            .as_str()
            .and_then(parse_percent)
            .filter(|value| (0.0..=10.0).contains(value));
        if value.is_none() {
            self.wrong("a percentage such as \"2%\"", problems);
        }
        value
    }

    /// The elements of an array of `what`.
    pub fn array(&self, what: &str, problems: &mut Problems) -> Option<Vec<TomlNode<'a>>> {
        match self.value.as_array() {
            Some(array) => Some(
                array
                    .iter()
                    .map(|element| {
                        let span = Span::new(self.source, element.span());
                        TomlNode {
                            what: self.what.clone(),
                            source: self.source,
                            text: self.text,
                            key: span,
                            span,
                            value: element.get_ref(),
                        }
                    })
                    .collect(),
            ),
            None => {
                self.wrong(&format!("an array of {what}"), problems);
                None
            }
        }
    }

    pub fn strings(&self, problems: &mut Problems) -> Vec<At<String>> {
        let nodes = self.array("strings", problems).unwrap_or_default();
        nodes
            .iter()
            .filter_map(|node| node.string(problems))
            .collect()
    }

    pub fn table(&self, title: impl Into<String>, problems: &mut Problems) -> Option<Table<'a>> {
        match self.value.as_table() {
            Some(table) => Some(Table::new(title, self.source, self.text, self.key, table)),
            None => {
                self.wrong("a table", problems);
                None
            }
        }
    }

    /// The tables of a `[[name]]` array.
    pub fn tables(&self, title: &str, problems: &mut Problems) -> Vec<Table<'a>> {
        if self.value.as_array().is_none() {
            problems.push(
                Diagnostic::error(format!("`{}` must be an array of tables", self.what))
                    .at(self.key, format!("write it as `{title}`")),
            );
            return Vec::new();
        }
        let nodes = self.array("tables", problems).unwrap_or_default();
        nodes
            .iter()
            .filter_map(|node| node.table(title, problems))
            .collect()
    }
}

fn with_article(kind: &str) -> String {
    match kind.chars().next() {
        Some('a' | 'e' | 'i' | 'o' | 'u') => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}
