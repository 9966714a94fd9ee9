//! Owns finding JSON documents in text that holds other lines too.
//! Does not know what a document means.

use serde_json::{Deserializer, Value};

use super::Found;
use super::text::shorten;

/// Documents with raw control characters that are repaired in one text: each costs a pass over
/// the rest of the text.
const REPAIRS_MAX: usize = 16;

/// Places inside lines that are tried when no line begins with a document.
const TRIES_MAX: usize = 1000;

/// The last complete document of a text, or in one line why there is none.
///
/// A document begins where a line begins with one of `opening` (or where another document has
/// just ended), so that pieces of a broken document are never taken for a document; only if there
/// is none of these, a brace inside a line counts. A document that is cut off by the end of the
/// text, or is broken, is a warning when a complete one is there and the reason when not.
pub fn last(text: &str, opening: &[char], found: &mut Found) -> Result<Value, String> {
    let mut scan = Scan {
        text,
        opening,
        repairs: 0,
        last: None,
        trouble: Vec::new(),
    };
    scan.lines();
    if scan.last.is_none() && scan.trouble.is_empty() {
        scan.inside_lines();
    }
    let Some(value) = scan.last else {
        return Err(match scan.trouble.pop() {
            Some(trouble) => format!("no complete JSON document: {trouble}"),
            None => "no JSON document in the output".to_owned(),
        });
    };
    if scan.repairs > 0 {
        found.warn("the JSON has raw control characters in strings: they were escaped");
    }
    for trouble in scan.trouble {
        found.warn(format!("{trouble}; the last complete document is used"));
    }
    Ok(value)
}

struct Scan<'a> {
    text: &'a str,
    opening: &'a [char],
    repairs: usize,
    last: Option<Value>,
    /// Documents that did not come to their end, each in one line.
    trouble: Vec<String>,
}

impl Scan<'_> {
    /// Tries each line that begins with an opening character.
    fn lines(&mut self) {
        let mut at = 0;
        while at < self.text.len() {
            if self.text[at..].starts_with(self.opening) {
                at = self.document(at);
            }
            // Another document may follow on the same line.
            let rest = &self.text[at..];
            let blank = rest.len() - rest.trim_start().len();
            if blank < rest.len() && at > 0 && self.text.as_bytes()[at - 1] == b'}' {
                if rest[blank..].starts_with('{') {
                    at = self.document(at + blank);
                    continue;
                }
            }
            at = match rest.find(['\n', '\r']) {
                Some(end) => at + end + 1,
                None => self.text.len(),
            };
        }
    }

    /// Tries the first brace of each line.
    fn inside_lines(&mut self) {
        let mut at = 0;
        for _ in 0..TRIES_MAX {
            let Some(brace) = self.text[at..].find('{') else {
                return;
            };
            let end = self.document(at + brace);
            if self.last.is_none() && !self.trouble.is_empty() {
                return;
            }
            at = match self.text[end..].find('\n') {
                Some(line) if end == at + brace + 1 => end + line + 1,
                _ => end,
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
                let line_end = self.text[end..].lines().next().unwrap_or_default();
                if value.is_object() || line_end.trim().is_empty() {
                    self.last = Some(value);
                }
                return end;
            }
            Some(Err(error)) => error,
            None => return start + 1,
        };
        if error.to_string().starts_with("control character") && self.repairs < REPAIRS_MAX {
            self.repairs += 1;
            if let Some((repaired, end)) = repair(rest)
                && let Ok(value) = serde_json::from_str(&repaired)
            {
                self.last = Some(value);
                return start + end;
            }
            self.repairs -= 1;
        }
        if error.is_eof() {
            let line = line_number(self.text, start);
            self.trouble
                .push(format!("the document of line {line} is cut off at its end"));
            return self.text.len();
        }
        let end = start + offset(rest, error.line(), error.column());
        if looks_like_json(rest) {
            let line = line_number(self.text, end);
            let around = self.text[..end].rsplit('\n').next().unwrap_or_default();
            self.trouble.push(format!(
                "the document is broken at line {line}, after `{}`",
                shorten(around.trim())
            ));
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

fn line_number(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
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
        check("{\"a\": 1}\n{\"a\": 2}\n", r#"{"a":2}"#);
        check("{\"a\": 1}{\"a\": 2} {\"a\": 3}", r#"{"a":3}"#);
        check("[2026-01-01] start\n{note} x\n[1]\n[12] done\n", "[1]");
        check("progress\r{\"a\": 1}\r\n", r#"{"a":1}"#);
        check("text {\"a\": {\"b\": 1}} more\n", r#"{"a":{"b":1}}"#);
        check("  {\n \"a\": 1}\n", r#"{"a":1}"#);
        check("{\"a\": 1, \"a\": 2}", r#"{"a":2}"#);
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
