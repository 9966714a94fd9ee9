//! Reading text as programs print it: encodings, escapes, lines, numbers.

use super::Found;

/// Lines of a program's own words that a refusal shows.
const COMPLAINT_LINES_MAX: usize = 5;

/// Characters of a line that is shown.
const SHOWN_CHARS_MAX: usize = 200;

/// The end of a stream in which last lines are looked for.
const TAIL_BYTES_MAX: usize = 16 << 10;

/// The bytes as text with `\n` line ends and no byte order mark; what is no UTF-8 is replaced,
/// with a warning.
pub fn decode(bytes: &[u8], found: &mut Found) -> String {
    let text = String::from_utf8_lossy(bytes);
    if let std::borrow::Cow::Owned(_) = text {
        found.warn("the output has bytes that are no UTF-8: they were replaced");
    }
    text.trim_start_matches('\u{feff}').replace("\r\n", "\n")
}

/// Text without terminal escapes: colours and cursor moves (ECMA-48 control sequences), titles
/// (operating system commands), and two-character escapes.
pub fn strip_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            plain.push(c);
            continue;
        }
        match chars.next() {
            // Parameters and intermediates are below `@`; the first from there on is the last.
            Some('[') => while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
            Some(']') => {
                while let Some(c) = chars.next() {
                    if c == '\u{7}' || c == '\u{1b}' && chars.next_if_eq(&'\\').is_some() {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    plain
}

/// The start of a line or a name, short enough to be shown, without characters that would move
/// the cursor.
pub fn shorten(text: &str) -> String {
    let shown: String = text
        .chars()
        .take(SHOWN_CHARS_MAX)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    match text.chars().nth(SHOWN_CHARS_MAX) {
        Some(_) => shown + "…",
        None => shown,
    }
}

/// The last lines with something on them for which `wanted` holds, shortened.
pub fn last_lines(bytes: &[u8], wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let tail = &bytes[bytes.len().saturating_sub(TAIL_BYTES_MAX)..];
    let text = strip_escapes(&String::from_utf8_lossy(tail));
    let mut lines: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && wanted(line))
        .rev()
        .take(COMPLAINT_LINES_MAX)
        .map(shorten)
        .collect();
    lines.reverse();
    lines
}

/// What stands before the first line that begins with a brace: there JSON begins.
pub fn before_json(bytes: &[u8]) -> &[u8] {
    let mut end = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if line.trim_ascii_start().starts_with(b"{") {
            break;
        }
        end += line.len();
    }
    &bytes[..end]
}

/// Why a text is not taken for a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNumber {
    /// The comma may be a decimal one: `3,5`, `1.234,5`.
    Comma,
    Other,
}

impl NotNumber {
    /// Why an output that holds `text` in the place of a number is refused.
    pub fn refusal(text: &str) -> String {
        format!(
            "`{}` may have a decimal comma, which is not guessed: run the program with LC_ALL=C",
            shorten(text)
        )
    }
}

/// Reads a decimal number, also with an exponent (`1e-3`) and with commas between thousands
/// (`18,794.12`). NaN and infinities are none.
pub fn number(text: &str) -> Result<f64, NotNumber> {
    let is_plain = |b: u8| b.is_ascii_digit() || b"+-.eE".contains(&b);
    if !text.bytes().any(|b| b.is_ascii_digit()) || !text.bytes().all(|b| is_plain(b) || b == b',')
    {
        return Err(NotNumber::Other);
    }
    if !text.contains(',') {
        let value = text.parse().map_err(|_| NotNumber::Other)?;
        return f64::is_finite(value)
            .then_some(value)
            .ok_or(NotNumber::Other);
    }
    let unsigned = text.trim_start_matches(['+', '-']);
    let whole = unsigned.split('.').next().unwrap_or_default();
    let mut groups = whole.split(',');
    let first = groups.next().unwrap_or_default();
    // Nobody writes 0,794 for 794: there the comma is a decimal one.
    let is_grouped = (1..=3).contains(&first.len())
        && !first.starts_with('0')
        && whole.contains(',')
        && groups.all(|group| group.len() == 3);
    match text.replace(',', "").parse() {
        Ok(value) if is_grouped && !unsigned[whole.len()..].contains(',') => Ok(value),
        _ => Err(NotNumber::Comma),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_not_guessed() {
        use NotNumber::{Comma, Other};
        let check = |text, value| assert_eq!(number(text), value, "{text}");
        check("12", Ok(12.0));
        check("-1.5e3", Ok(-1500.0));
        check(".5", Ok(0.5));
        check("18,794.12", Ok(18_794.12));
        check("-1,234,567", Ok(-1_234_567.0));
        check("1,234", Ok(1234.0));
        check("3,5", Err(Comma));
        check("0,794", Err(Comma));
        check("1.234,56", Err(Comma));
        check("1234,567", Err(Comma));
        check("1,23,456", Err(Comma));
        check("1,234.5,678", Err(Comma));
        check("nan", Err(Other));
        check("inf", Err(Other));
        check("1e999", Err(Other));
        check("0x10", Err(Other));
        check("1-2", Err(Other));
        check("e", Err(Other));
        check("", Err(Other));
    }

    #[test]
    fn escapes_are_stripped() {
        let check = |text, plain| assert_eq!(strip_escapes(text), plain);
        check("\u{1b}[1;32m12\u{1b}[0m.5", "12.5");
        check("\u{1b}]0;title\u{7}a\u{1b}]8;;x\u{1b}\\b", "ab");
        check("a\u{1b}", "a");
        check("a\u{1b}[", "a");
    }
}
