//! Text of others as HTML and JSON: nothing of it is markup, nothing in it acts or hides.

use std::fmt::Write as _;

use crate::base::printable::printable;

/// Characters of one name, message or note that are shown; the rest is counted.
pub const TEXT_MAX: usize = 4000;

/// Text for the content or a quoted attribute of an element: markup is escaped, control and direction characters are shown.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in printable(&cut(text, TEXT_MAX)).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A JSON string, that no `</script>` can end.
pub fn json_string(text: &str) -> String {
    let text = printable(&cut(text, TEXT_MAX)).into_owned();
    serde_json::Value::String(text)
        .to_string()
        .replace('<', "\\u003c")
}

/// At most `max` characters; what is left out is counted.
pub fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some((end, _)) => {
            let left = text[end..].chars().count();
            format!("{}… ({left} more characters)", &text[..end])
        }
    }
}

/// Six significant digits, as JSON; `null` of what is no number.
pub fn json_number(value: f64) -> String {
    if !value.is_finite() {
        return "null".to_owned();
    }
    if value == value.trunc() && value.abs() < 1e6 {
        return format!("{value:.0}");
    }
    let rounded: f64 = format!("{value:.5e}").parse().unwrap_or(value);
    match rounded.abs() {
        1e-4..1e9 => rounded.to_string(),
        _ => format!("{rounded:e}"),
    }
}

/// As [`json_number`]; `null` of what is not there.
pub fn json_option(value: Option<f64>) -> String {
    value.map_or_else(|| "null".to_owned(), json_number)
}

/// A JSON list of what is JSON already.
pub fn json_list(items: impl IntoIterator<Item = String>) -> String {
    let mut out = String::from("[");
    for (index, item) in items.into_iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(out, "{comma}{item}");
    }
    out.push(']');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_others_is_markup() {
        let check = |text: &str, expected: &str| assert_eq!(escaped(text), expected, "{text:?}");
        check("bs=4k", "bs=4k");
        check(
            "<script>alert('x')</script>",
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;",
        );
        check("\" onload=\"x", "&quot; onload=&quot;x");
        check("a\u{202e}b\x1b[31m", "a\\u{202e}b\\x1b[31m");
        let long = escaped(&"x".repeat(10_000_000));
        assert!(
            long.len() < TEXT_MAX + 100 && long.ends_with("(9996000 more characters)"),
            "{}",
            &long[TEXT_MAX..]
        );
    }

    #[test]
    fn json_cannot_end_its_script() {
        assert_eq!(json_string("</script>"), r#""\u003c/script>""#);
        assert_eq!(json_string("a\"\u{2028}"), r#""a\"\\u{2028}""#);
    }

    #[test]
    fn numbers_are_short_and_valid_json() {
        let check = |value: f64, expected: &str| {
            assert_eq!(json_number(value), expected);
            serde_json::from_str::<Option<f64>>(expected).unwrap();
        };
        check(0.0, "0");
        check(1234.56789, "1234.57");
        check(-12.0, "-12");
        check(1.0 / 3.0, "0.333333");
        check(123_456_789_012.0, "1.23457e11");
        check(f64::NAN, "null");
    }
}
