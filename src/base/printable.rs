//! Text as a terminal may be given it: control characters are shown, never sent.
//!
//! Names, commit subjects, outputs of programs and snippets of files come from others. An escape sequence among them could
//! retitle a window or hide a line; a bidirectional override could show a name as another one. Colours of our own are
//! marks in the text, which [`styled`] alone turns into escape sequences.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A colour or weight of our own. The marks are characters that take no columns and that nobody types (Unicode's tags).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Bold,
    Red,
    Green,
    Yellow,
    Dim,
}

const MARKS: [(Mark, char, &str); 5] = [
    (Mark::Bold, '\u{e0062}', "\x1b[1m"),
    (Mark::Red, '\u{e0072}', "\x1b[1;31m"),
    (Mark::Green, '\u{e0067}', "\x1b[1;32m"),
    (Mark::Yellow, '\u{e0079}', "\x1b[33m"),
    (Mark::Dim, '\u{e0064}', "\x1b[2m"),
];

/// Ends what any mark began.
const END: char = '\u{e007f}';

/// `text` between a mark and its end, for [`styled`].
pub fn marked(mark: Mark, text: &str) -> String {
    let begin = MARKS.iter().find(|known| known.0 == mark);
    match begin {
        Some((_, begin, _)) => format!("{begin}{text}{END}"),
        None => text.to_owned(),
    }
}

/// Whether a character would act on a terminal, or hide, instead of being seen. Line feeds and tabs are no such ones.
fn acts(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            true
        }
        '\u{200b}' | '\u{2060}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' => true,
        '\u{e0000}'..='\u{e007f}' => true,
        c => c.is_control(),
    }
}

fn escape(c: char, out: &mut String) {
    let code = u32::from(c);
    let _ = match code {
        0x0d => write!(out, "\\r"),
        0..0x80 => write!(out, "\\x{code:02x}"),
        _ => write!(out, "\\u{{{code:x}}}"),
    };
}

/// The text with each character that would act on a terminal escaped: `\x1b`, `\r`, `\u{202e}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match acts(c) {
            true => escape(c, &mut out),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Characters of one line of a message.
const LINE_CHARS_MAX: usize = 2_000;

/// A message whose long lines have lost their middle: a name or an argument in it may be of any length.
pub fn without_long_lines(text: &str) -> Cow<'_, str> {
    if text.lines().all(|line| line.len() <= LINE_CHARS_MAX) {
        return Cow::Borrowed(text);
    }
    let lines = text.split('\n').map(|line| {
        let chars = line.chars().count();
        if chars <= LINE_CHARS_MAX {
            return Cow::Borrowed(line);
        }
        let at = |n: usize| line.char_indices().nth(n).map_or(line.len(), |(at, _)| at);
        let (begin, end) = (at(LINE_CHARS_MAX / 2), at(chars - LINE_CHARS_MAX / 4));
        let left_out = chars - LINE_CHARS_MAX / 4 - LINE_CHARS_MAX / 2;
        let begin = &line[..begin];
        Cow::Owned(format!("{begin}… {left_out} characters …{}", &line[end..]))
    });
    Cow::Owned(lines.collect::<Vec<_>>().join("\n"))
}

/// As [`printable`], on one line: line feeds and tabs are shown too.
pub fn line(text: &str) -> String {
    let shown = printable(text);
    match shown.contains(['\n', '\t']) {
        true => shown.replace('\n', "\\n").replace('\t', "\\t"),
        false => shown.into_owned(),
    }
}

/// As [`printable`], of bytes: those that are not UTF-8 are shown as `\xff`.
pub fn printable_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(&printable(chunk.valid()));
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// As [`printable`], with marks turned into escape sequences, or left out where there is no `color`.
pub fn styled(text: &str, color: bool) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if c == END {
            out.push_str(if color { "\x1b[0m" } else { "" });
        } else if let Some((_, _, sequence)) = MARKS.iter().find(|known| known.1 == c) {
            out.push_str(if color { sequence } else { "" });
        } else if acts(c) {
            escape(c, &mut out);
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// A JSON document whose strings would act on a terminal, with these characters escaped as JSON does it: the same document.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    if !json.contains(acts) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match acts(c) {
            true => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_lose_their_middle() {
        let check = |text: &str, expected: &str| assert_eq!(without_long_lines(text), expected);
        check("a\nb\n", "a\nb\n");
        let long = |n| "é".repeat(n);
        check(&long(2_000), &long(2_000));
        let cut = format!("a\n{}… 1501 characters …{}\nb", long(1_000), long(500));
        check(&format!("a\n{}\nb", long(3_001)), &cut);
    }

    #[test]
    fn what_acts_is_shown() {
        let check = |text: &str, expected: &str| assert_eq!(printable(text), expected);
        check(
            "plain žluť ±→ 4k\n\tindented",
            "plain žluť ±→ 4k\n\tindented",
        );
        check("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m");
        check("\x1b]0;title\x07", "\\x1b]0;title\\x07");
        check("a\rb\x08\x7f\0", "a\\rb\\x08\\x7f\\x00");
        check("\u{9b}31m", "\\u{9b}31m");
        check("abc\u{202e}txt\u{2069}", "abc\\u{202e}txt\\u{2069}");
        check("\u{e0072}", "\\u{e0072}");
    }

    #[test]
    fn bytes_that_are_no_text_are_shown() {
        assert_eq!(printable_bytes(b"a\xff\x1bb\xc3"), "a\\xff\\x1bb\\xc3");
    }

    #[test]
    fn marks_become_colours_where_there_are_any() {
        let text = format!("{} \x1b[2J", marked(Mark::Red, "worse"));
        assert_eq!(styled(&text, true), "\x1b[1;31mworse\x1b[0m \\x1b[2J");
        assert_eq!(styled(&text, false), "worse \\x1b[2J");
    }

    #[test]
    fn json_stays_the_same_document() {
        let text = "\u{202e}\u{7f}\u{e0072}ž";
        let json = serde_json::to_string(text).unwrap();
        let shown = printable_json(&json);
        assert_eq!(shown, "\"\\u202e\\u007f\\udb40\\udc72ž\"");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
    }
}
