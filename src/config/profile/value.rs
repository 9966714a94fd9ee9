//! How one KDL value is read as a text, number, list; says what was expected instead.

use std::ops::RangeInclusive;

use kdl::KdlValue;

use super::CpuList;
use super::read::ProfileReader;
use crate::base::diag::{At, Diagnostic, suggest};
use crate::config::profile::kdl_lexer::LexedNode;

/// A text (value, pattern, name) at the most.
const TEXT_BYTES_MAX: usize = 512;

impl ProfileReader {
    pub(super) fn cpus(&mut self, arg: &At<KdlValue>) -> Option<CpuList> {
        let text = self.value(arg)?;
        match CpuList::parse(&text) {
            Ok(cpus) => Some(cpus),
            Err(reason) => {
                self.problem(
                    Diagnostic::error("this is not a list of CPUs")
                        .at(arg.span, reason)
                        .help("a list is written \"0-3,8\""),
                );
                None
            }
        }
    }

    pub(super) fn one_of(
        &mut self,
        arg: &At<KdlValue>,
        allowed: &'static [&'static str],
    ) -> Option<String> {
        let text = self.text(arg)?;
        if !allowed.contains(&text.as_str()) {
            let help = suggest(&text, allowed.iter().copied());
            self.problem(
                Diagnostic::error(format!("`{text}` is not a value for this knob"))
                    .at(arg.span, "unknown")
                    .help(help),
            );
            return None;
        }
        Some(text)
    }

    /// What is written into a file: a text, an integer, or #true and #false as 1 and 0.
    pub(super) fn value(&mut self, arg: &At<KdlValue>) -> Option<String> {
        match &arg.value {
            KdlValue::String(_) => self.text(arg),
            KdlValue::Integer(number) => Some(number.to_string()),
            KdlValue::Bool(on) => Some(u8::from(*on).to_string()),
            KdlValue::Float(_) | KdlValue::Null => {
                self.wrong(arg, "a text or an integer");
                None
            }
        }
    }

    pub(super) fn text(&mut self, arg: &At<KdlValue>) -> Option<String> {
        let KdlValue::String(text) = &arg.value else {
            self.wrong(arg, "a text in quotes");
            return None;
        };
        if text.trim().is_empty() || text.len() > TEXT_BYTES_MAX || text.contains(['\n', '\0']) {
            self.wrong(arg, &format!("one line of 1 to {TEXT_BYTES_MAX} bytes"));
            return None;
        }
        Some(text.clone())
    }

    pub(super) fn bool(&mut self, arg: &At<KdlValue>) -> Option<bool> {
        let value = arg.value.as_bool();
        if value.is_none() {
            self.wrong(arg, "#true or #false");
        }
        value
    }

    pub(super) fn number(
        &mut self,
        arg: &At<KdlValue>,
        range: RangeInclusive<i128>,
    ) -> Option<i128> {
        let number = arg.value.as_integer().filter(|n| range.contains(n));
        if number.is_none() {
            let wanted = format!("an integer from {} to {}", range.start(), range.end());
            self.wrong(arg, &wanted);
        }
        number
    }

    pub(super) fn flag(&mut self, node: &LexedNode, name: &str) -> Option<bool> {
        let (_, value) = node.props.iter().find(|(prop, _)| prop.value == name)?;
        self.bool(value)
    }

    pub(super) fn wrong(&mut self, arg: &At<KdlValue>, wanted: &str) {
        self.problem(
            Diagnostic::error(format!("expected {wanted}")).at(arg.span, kind(&arg.value)),
        );
    }
}

/// What a value is, for the words under it.
fn kind(value: &KdlValue) -> &'static str {
    match value {
        KdlValue::String(_) => "this text",
        KdlValue::Integer(_) => "this integer",
        KdlValue::Float(_) => "this number",
        KdlValue::Bool(_) => "this keyword",
        KdlValue::Null => "nothing",
    }
}
