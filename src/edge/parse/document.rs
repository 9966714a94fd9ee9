//! Finding JSON documents in text that holds other lines too.

use serde_json::{Deserializer, Value};

use super::Found;
use super::text::shorten;

/// Attempts to repair raw control characters in one text: each costs a pass over the rest of it.
const REPAIRS_MAX: usize = 16;

/// Values of one text that are read in any case; beyond it, as many as keep what is held of a text below ten
/// times its length.
const VALUES_MIN: usize = 200_000;
/// Bytes held for one value: a member of an object, with its name, in a node that is not full.
const VALUE_BYTES: usize = 160;

/// Places inside lines that are tried when no line begins with a document.
const TRIES_MAX: usize = 1000;

/// The last complete document of a text, or in one line why there is none.
///
/// A document begins where a line begins with one of `opening` (or where another document has
/// just ended), so that pieces of a broken document are never taken for a document; only if there
/// is none of these, a brace inside a line counts. A document that is cut off by the end of the
/// text, or is broken, is a warning when a complete one is there and the reason when not.
pub fn last(text: &str, opening: &[char], found: &mut Found) -> Result<Value, String> {
    let values_max = VALUES_MIN.max(text.len() / VALUE_BYTES * 9);
    let values = text.bytes().filter(|byte| b",[{".contains(byte)).count();
    if values > values_max {
        return Err(format!(
            "the output has about {values} values in JSON, too many to be read: at most {values_max} in {} bytes; let the program print less",
            text.len()
        ));
    }
    let mut scan = Scan {
        text,
        opening,
        repairs: 0,
        is_repaired: false,
        documents: 0,
        last: None,
        trouble: None,
    };
    scan.lines();
    if scan.last.is_none() && scan.trouble.is_none() {
        scan.inside_lines();
    }
    let trouble = scan.trouble.map(|trouble| trouble.describe(text));
    let Some(value) = scan.last else {
        return Err(match trouble {
            Some(trouble) => format!("no complete JSON document: {trouble}"),
            None => "no JSON document in the output".to_owned(),
        });
    };
    if scan.documents > 1 {
        found.warn(format!(
            "the output has {} JSON documents: the last is read",
            scan.documents
        ));
    }
    if scan.is_repaired {
        found.warn("the JSON has raw control characters in strings: they were escaped");
    }
    if let Some(trouble) = trouble {
        found.warn(format!("{trouble}; the last complete document is used"));
    }
    Ok(value)
}

struct Scan<'a> {
    text: &'a str,
    opening: &'a [char],
    repairs: usize,
    is_repaired: bool,
    /// Complete ones.
    documents: usize,
    last: Option<Value>,
    /// The last document that did not come to its end.
    trouble: Option<Trouble>,
}

/// Why a document is not complete. Places are byte offsets in the text.
#[derive(Clone, Copy)]
enum Trouble {
    /// The text ends before the document does, which began here.
    Cut(usize),
    /// This place is no JSON.
    Broken(usize),
}

impl Trouble {
    fn describe(self, text: &str) -> String {
        let line = |at: usize| text[..at].matches('\n').count() + 1;
        match self {
            Trouble::Cut(start) => {
                format!("the document of line {} is cut off at its end", line(start))
            }
            Trouble::Broken(at) => {
                let before = text[..at].rsplit('\n').next().unwrap_or_default();
                let shown = shorten(before.trim());
                format!(
                    "the document is broken at line {}, after `{shown}`",
                    line(at)
                )
            }
        }
    }
}

impl Scan<'_> {
    /// Tries each line that begins with an opening character.
    fn lines(&mut self) {
        let mut at = 0;
        while at < self.text.len() {
            if self.text[at..].starts_with(self.opening) {
                at = self.document(at);
                while let Some(next) = self.next_on_line(at) {
                    at = self.document(next);
                }
            }
            at = match self.text[at..].find(['\n', '\r']) {
                Some(end) => at + end + 1,
                None => self.text.len(),
            };
        }
    }

    /// Where another document begins on the line on which one has just ended.
    fn next_on_line(&self, at: usize) -> Option<usize> {
        let next = self.text[at..].trim_start_matches(' ');
        let is_next = self.text[..at].ends_with('}') && next.starts_with('{');
        is_next.then(|| self.text.len() - next.len())
    }

    /// Tries the first brace of each line.
    fn inside_lines(&mut self) {
        let mut at = 0;
        for _ in 0..TRIES_MAX {
            let Some(brace) = self.text[at..].find('{') else {
                return;
            };
            let end = self.document(at + brace);
            if self.last.is_none() && self.trouble.is_some() {
                return;
            }
            at = match self.text[end..].find('\n') {
                Some(line_end) => end + line_end + 1,
                None => return,
            };
        }
    }

    /// Tries a document at `start`; returns where to go on, always behind `start`.
    fn document(&mut self, start: usize) -> usize {
        let rest = &self.text[start..];
        let mut stream = Deserializer::from_str(rest).into_iter::<Value>();
        let error = match stream.next() {
            Some(Ok(value)) => {
                let end = start + stream.byte_offset();
                // `[12] done` is a line of a log.
                let ends_line = || {
                    self.text[end..]
                        .trim_start_matches(' ')
                        .starts_with(['\n', '\r'])
                };
                if value.is_object() || end == self.text.len() || ends_line() {
                    self.documents += 1;
                    self.last = Some(value);
                }
                return end;
            }
            Some(Err(error)) => error,
            None => return start + 1,
        };
        if error.is_eof() {
            self.trouble = Some(Trouble::Cut(start));
            return self.text.len();
        }
        if error.to_string().starts_with("control character") && self.repairs < REPAIRS_MAX {
            self.repairs += 1;
            if let Some((repaired, length)) = repair(rest)
                && let Ok(value) = serde_json::from_str(&repaired)
            {
                self.is_repaired = true;
                self.documents += 1;
                self.last = Some(value);
                return start + length;
            }
        }
        let end = start + offset(rest, error.line(), error.column());
        if looks_like_json(rest) {
            self.trouble = Some(Trouble::Broken(end));
        }
        end.max(start + 1)
    }
}

/// A log line may begin with `{` or `[`; an object begins with a quoted name, and nobody's log
/// does.
fn looks_like_json(text: &str) -> bool {
    let inner = text.trim_start_matches('[').trim_start();
    inner
        .strip_prefix('{')
        .is_some_and(|inner| inner.trim_start().starts_with('"'))
}

/// The byte offset of a place that serde_json names by line and column (bytes, both from 1).
fn offset(text: &str, line: usize, column: usize) -> usize {
    let line_start: usize = text
        .split_inclusive('\n')
        .take(line.saturating_sub(1))
        .map(str::len)
        .sum();
    let mut at = (line_start + column).min(text.len());
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// The document at the start of `text` with control characters inside strings escaped, and where
/// it ends in `text`; None when brackets do not close.
fn repair(text: &str) -> Option<(String, usize)> {
    let mut repaired = String::new();
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (at, c) in text.char_indices() {
        if in_string && c < ' ' {
            repaired.push_str(&format!("\\u{:04x}", c as u32));
            escaped = false;
            continue;
        }
        repaired.push(c);
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ if in_string => {}
            '{' | '[' => depth += 1,
            '}' | ']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some((repaired, at + 1));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn find(text: &str) -> (Result<String, String>, Vec<String>) {
        let mut found = Found::default();
        let value = last(text, &['{', '['], &mut found);
        (value.map(|value| value.to_string()), found.warnings)
    }

    #[test]
    fn the_last_complete_document_is_found() {
        let check = |text: &str, document: &str| {
            assert_eq!(find(text), (Ok(document.to_owned()), vec![]), "{text}");
        };
        check("{\"a\": 1}", r#"{"a":1}"#);
        check("note: x >= [1]\n{\"a\": 1}\ntrailer\n", r#"{"a":1}"#);
        check("[2026-01-01] start\n{note} x\n[1]\n[12] done\n", "[1]");
        check("progress\r{\"a\": 1}\r\n", r#"{"a":1}"#);
        check("text {\"a\": {\"b\": 1}} more\n", r#"{"a":{"b":1}}"#);
        check("  {\n \"a\": 1}\n", r#"{"a":1}"#);
        check("{\"a\": 1, \"a\": 2}", r#"{"a":2}"#);
    }

    #[test]
    fn of_several_documents_the_last_is_read_and_the_others_are_told() {
        let check = |text: &str, document: &str, count: usize| {
            let told = format!("the output has {count} JSON documents: the last is read");
            assert_eq!(find(text), (Ok(document.to_owned()), vec![told]), "{text}");
        };
        check("{\"a\": 1}\n{\"a\": 2}\n", r#"{"a":2}"#, 2);
        check("{\"a\": 1}{\"a\": 2} {\"a\": 3}", r#"{"a":3}"#, 3);
    }

    #[test]
    fn trouble_is_told() {
        let check = |text: &str, document: Result<&str, &str>, warnings: &[&str]| {
            let (value, warned) = find(text);
            assert_eq!(value.as_deref().map_err(String::as_str), document, "{text}");
            assert_eq!(warned, warnings, "{text}");
        };
        check("nothing", Err("no JSON document in the output"), &[]);
        check(
            "x\n{\n\"a\": [{\n\"b\": 1}\n",
            Err("no complete JSON document: the document of line 2 is cut off at its end"),
            &[],
        );
        check(
            "{\"a\": 1}\n{\"a\": ",
            Ok(r#"{"a":1}"#),
            &["the document of line 2 is cut off at its end; the last complete document is used"],
        );
        check(
            "{\n  \"a\": nan,\n  \"b\": [\n  {\"c\": 1}\n]}",
            Err("no complete JSON document: the document is broken at line 2, after `\"a\": na`"),
            &[],
        );
        check(
            "{\"name\": \"a\tb\", \"c\": \"\\\\\"}",
            Ok(r#"{"name":"a\tb","c":"\\"}"#),
            &["the JSON has raw control characters in strings: they were escaped"],
        );
        let deep = "[".repeat(1000) + &"]".repeat(1000);
        let (value, _) = find(&deep);
        assert!(value.is_err(), "{value:?}");
    }

    proptest! {
        /// A cut document never gives a document, nor a piece of itself.
        #[test]
        fn a_cut_document_is_no_document(cut in 1usize..60) {
            let whole = "{\n  \"a\" : [\n    {\n      \"b\" : 1\n    }\n  ],\n  \"c\" : { \"d\" : \"x\" }\n}";
            prop_assume!(cut < whole.len());
            prop_assert!(find(&whole[..cut]).0.is_err());
            prop_assert_eq!(find(&format!("{whole}\n{}", &whole[..cut])).0, find(whole).0);
        }
    }
}
