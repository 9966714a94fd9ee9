//! An axis value: what a user wrote, and its label in cell names.

use toml::de::DeValue;

use super::read::{Problems, TomlNode};
use super::template::is_reserved;
use crate::base::diag::{At, Diagnostic};

/// Fields of a zipped value.
pub const FIELDS_MAX: usize = 16;
/// Bytes of one label.
pub const LABEL_BYTES_MAX: usize = 200;

/// A value without fields.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Scalar::Text(text) => f.write_str(text),
            Scalar::Integer(number) => write!(f, "{number}"),
            Scalar::Float(number) => write!(f, "{number}"),
            Scalar::Boolean(value) => write!(f, "{value}"),
        }
    }
}

impl From<&Scalar> for minijinja::Value {
    fn from(scalar: &Scalar) -> Self {
        match scalar {
            Scalar::Text(text) => minijinja::Value::from(text.as_str()),
            Scalar::Integer(number) => minijinja::Value::from(*number),
            Scalar::Float(number) => minijinja::Value::from(*number),
            Scalar::Boolean(value) => minijinja::Value::from(*value),
        }
    }
}

/// One value of an axis: a scalar, or several values zipped together (`{ jobs = 1, iodepth = 4 }`).
#[derive(Clone, Debug, PartialEq)]
pub enum AxisValue {
    Scalar(Scalar),
    Zipped(Vec<(String, Scalar)>),
}

impl AxisValue {
    pub fn text(text: impl Into<String>) -> Self {
        AxisValue::Scalar(Scalar::Text(text.into()))
    }

    /// The value in a cell name: everything but letters, digits and `._-@~` is written as `%XX`, so
    /// that a name is one shell word and one file name, and no two values share a label. Fields of a
    /// zipped value are written `jobs:1+iodepth:4`.
    pub fn label(&self) -> String {
        match self {
            AxisValue::Scalar(scalar) => escape(&scalar.to_string()),
            AxisValue::Zipped(fields) => fields
                .iter()
                .map(|(name, value)| format!("{}:{}", escape(name), escape(&value.to_string())))
                .collect::<Vec<_>>()
                .join("+"),
        }
    }
}

impl From<&AxisValue> for minijinja::Value {
    fn from(value: &AxisValue) -> Self {
        match value {
            AxisValue::Scalar(scalar) => scalar.into(),
            AxisValue::Zipped(fields) => fields
                .iter()
                .map(|(name, value)| (name.clone(), minijinja::Value::from(value)))
                .collect::<std::collections::BTreeMap<_, _>>()
                .into(),
        }
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'@' | b'~' => {
                out.push(byte as char)
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    // An empty text needs a label too; `%` alone is written by nothing else.
    if out.is_empty() { "%".to_owned() } else { out }
}

/// Reads one axis value, or notes why it is none.
pub fn read(node: &TomlNode, problems: &mut Problems) -> Option<At<AxisValue>> {
    let value = match node.value {
        DeValue::Table(_) => {
            let table = node.table(format!("a value of {}", node.what), problems)?;
            let fields = table.all();
            if fields.is_empty() || fields.len() > FIELDS_MAX {
                node.wrong(&format!("a table of 1 to {FIELDS_MAX} fields"), problems);
                return None;
            }
            let mut zipped = Vec::new();
            for (name, field) in fields {
                zipped.push((name.value.to_owned(), scalar(&field, problems)?));
            }
            AxisValue::Zipped(zipped)
        }
        _ => AxisValue::Scalar(scalar(node, problems)?),
    };
    if value.label().len() > LABEL_BYTES_MAX {
        problems.push(
            Diagnostic::error(format!(
                "this value's label in cell names has {} bytes; at most {LABEL_BYTES_MAX} are allowed",
                value.label().len()
            ))
            .at(node.span, "too long")
            .help("give a short name here and choose the long text in a template or derived axis"),
        );
        return None;
    }
    Some(At::new(value, node.span))
}

fn scalar(node: &TomlNode, problems: &mut Problems) -> Option<Scalar> {
    match node.value {
        DeValue::String(text) if text.contains(is_reserved) => {
            node.wrong(
                "a text without the control characters U+0001 to U+0003",
                problems,
            );
            None
        }
        DeValue::String(text) => Some(Scalar::Text(text.to_string())),
        DeValue::Boolean(value) => Some(Scalar::Boolean(*value)),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) => as_written(node, number, problems).map(Scalar::Integer),
            Err(_) => {
                node.wrong("a whole number that fits into 64 bits", problems);
                None
            }
        },
        DeValue::Float(float) => match float.as_str().parse::<f64>() {
            Ok(number) if number.is_finite() => {
                as_written(node, number, problems).map(Scalar::Float)
            }
            _ => {
                node.wrong("a finite number", problems);
                None
            }
        },
        DeValue::Datetime(date) => {
            problems.push(
                Diagnostic::error("an axis value cannot be a date")
                    .at(node.span, "this is a date in TOML")
                    .help(format!("write it as a string: \"{date}\"")),
            );
            None
        }
        _ => {
            node.wrong("a string, a number or a boolean", problems);
            None
        }
    }
}

/// The number, if commands would get it as the file writes it: `0xff`, `1_000` and `1.50` would not.
fn as_written<T: std::fmt::Display>(
    node: &TomlNode,
    number: T,
    problems: &mut Problems,
) -> Option<T> {
    let written = node.written();
    if number.to_string() == written {
        return Some(number);
    }
    problems.push(
        Diagnostic::error(format!(
            "this number would be read as {number}, not as it is written"
        ))
        .at(node.span, "a number")
        .help(format!("write it as a string: \"{written}\"")),
    );
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_one_word_and_distinct() {
        let check = |text: &str, label| assert_eq!(AxisValue::text(text).label(), label);
        check("4k", "4k");
        check("a b/c", "a%20b%2Fc");
        check("1,2=3", "1%2C2%3D3");
        check("100%", "100%25");
        check("", "%");
        check("é", "%C3%A9");
    }

    #[test]
    fn zipped_values_show_their_fields() {
        let value = AxisValue::Zipped(vec![
            ("jobs".into(), Scalar::Integer(10)),
            ("iodepth".into(), Scalar::Integer(4)),
        ]);
        assert_eq!(value.label(), "jobs:10+iodepth:4");
    }
}
