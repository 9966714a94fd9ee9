//! Reading text by a regular expression with named groups.

use std::collections::BTreeMap;

use ::regex::{Captures, Regex, RegexBuilder};

use super::text::{NotNumber, number, shorten, strip_escapes};
use super::{Found, READINGS_MAX};
use crate::base::sample::Reading;
use crate::base::unit;

/// Memory of a compiled expression.
pub const COMPILED_BYTES_MAX: usize = 1 << 20;

/// What is shown to somebody who gave no pattern.
const EXAMPLE: &str = r"(?P<name>\w+): (?P<value>[0-9.]+)";

/// A regular expression of one of two forms:
/// - a group `value`, and perhaps `name` (without one the reading is called `value`) and `unit`:
///   each match is a reading;
/// - other named groups only: each is a reading of that name.
#[derive(Clone, Debug)]
pub struct NamedPattern {
    regex: Regex,
    /// The names of the groups of the second form; empty in the first.
    names: Vec<String>,
}

impl NamedPattern {
    /// Err says in one line what is wrong with the pattern.
    pub fn new(pattern: Option<&str>) -> Result<NamedPattern, String> {
        let Some(pattern) = pattern else {
            return Err(format!(
                "parser `regex` needs a `pattern`, such as `{EXAMPLE}`"
            ));
        };
        let regex = RegexBuilder::new(pattern)
            .size_limit(COMPILED_BYTES_MAX)
            .build()
            .map_err(|error| format!("`pattern` is no regular expression: {}", one_line(&error)))?;
        let mut names: Vec<String> = regex.capture_names().flatten().map(str::to_owned).collect();
        let is_reserved = |name: &String| ["value", "name", "unit"].contains(&name.as_str());
        if names.is_empty() {
            return Err(format!(
                "`pattern` has no named group: name what is to be read, as in `{EXAMPLE}`"
            ));
        }
        if let Some(other) = names.iter().find(|name| !is_reserved(name))
            && names.iter().any(is_reserved)
        {
            return Err(format!(
                "`pattern` mixes the group `{other}` with `value`, `name` or `unit`: either one \
                 `value` a match, or only groups that are named like the metrics"
            ));
        }
        if names.iter().all(is_reserved) {
            if !names.iter().any(|name| name == "value") {
                return Err("`pattern` has no group `value`: name the number so".to_owned());
            }
            names.clear();
        }
        Ok(NamedPattern { regex, names })
    }

    /// Reads all matches, after terminal escapes are stripped. Of several values for one name the
    /// last counts, with a warning: programs print progress first and results at the end. A value
    /// that is no number (`n/a`) is left out with a warning; one that may have a decimal comma
    /// refuses the whole output.
    pub fn parse(&self, text: &str, found: &mut Found) -> Result<(), String> {
        let text = strip_escapes(text);
        let mut readings: BTreeMap<String, Reading> = BTreeMap::new();
        let mut repeated: BTreeMap<String, usize> = BTreeMap::new();
        let mut skipped = 0;
        let mut first_skipped = None;
        let mut has_matched = false;
        for captures in self.regex.captures_iter(&text) {
            has_matched = true;
            for (name, value, unit) in self.values(&captures) {
                let value = match number(value.trim()) {
                    Ok(value) => value,
                    Err(NotNumber::Comma) => return Err(NotNumber::refusal(value)),
                    Err(NotNumber::Other) => {
                        skipped += 1;
                        first_skipped.get_or_insert_with(|| {
                            format!("{} = {}", shorten(name), shorten(value))
                        });
                        continue;
                    }
                };
                let (value, unit) = in_standard_unit(value, unit.trim());
                let reading = Reading {
                    name: name.to_owned(),
                    value,
                    unit: unit.to_owned(),
                    better: None,
                };
                if readings.insert(name.to_owned(), reading).is_some() {
                    *repeated.entry(name.to_owned()).or_insert(1) += 1;
                } else if readings.len() > READINGS_MAX {
                    return Err(format!(
                        "the pattern matches more than {READINGS_MAX} names: make it narrower"
                    ));
                }
            }
        }
        if let Some(first) = first_skipped {
            found.warn(format!(
                "{} left out, no number: `{first}`",
                crate::base::units::count(skipped, "match")
            ));
        }
        for (name, count) in repeated {
            found.warn(format!(
                "`{}` was matched {count} times: the last value is used",
                shorten(&name)
            ));
        }
        if readings.is_empty() {
            return Err(match has_matched {
                true => "the pattern matches, but nothing that is a number".to_owned(),
                false => format!("the pattern `{}` matches nothing", self.regex.as_str()),
            });
        }
        found.metrics.extend(readings.into_values());
        Ok(())
    }

    /// Name, value and unit of each reading of one match.
    fn values<'a>(&'a self, captures: &'a Captures) -> Vec<(&'a str, &'a str, &'a str)> {
        let group = |name: &str| captures.name(name).map(|group| group.as_str());
        if self.names.is_empty() {
            let value = group("value").map(|value| {
                let name = group("name").unwrap_or("value").trim();
                (name, value, group("unit").unwrap_or_default())
            });
            return value.into_iter().collect();
        }
        self.names
            .iter()
            .filter_map(|name| Some((name.as_str(), group(name)?, "")))
            .collect()
    }
}

/// `990 MB/s` and `1.2 GB/s` of one program, or of two versions of it, are values in one unit.
fn in_standard_unit(value: f64, text: &str) -> (f64, &str) {
    let standard = unit::parse(text).map_or(text, |unit| unit.standard);
    unit::convert(value, text, standard).map_or((value, text), |value| (value, standard))
}

/// The last line of a syntax error is what is wrong; the others draw the place.
pub fn one_line(error: &::regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    type SeenMatches = (Result<(), String>, Vec<(String, f64, String)>, Vec<String>);

    fn read(pattern: &str, text: &str) -> SeenMatches {
        let mut found = Found::default();
        let result = NamedPattern::new(Some(pattern))
            .unwrap()
            .parse(text, &mut found);
        let metrics = found.metrics.into_iter();
        let metrics = metrics.map(|m| (m.name, m.value, m.unit)).collect();
        (result, metrics, found.warnings)
    }

    const LINES: &str = r"(?m)^(?P<name>\w+): +(?P<value>\S+)(?: (?P<unit>\S+))?$";

    #[test]
    fn matches_become_readings() {
        let check = |pattern, text, expected: &[(&str, f64, &str)]| {
            let (result, metrics, warnings) = read(pattern, text);
            let mut expected = expected.to_vec();
            expected.sort_by_key(|(name, ..)| *name);
            let metrics: Vec<_> = metrics
                .iter()
                .map(|(name, value, unit)| (name.as_str(), *value, unit.as_str()))
                .collect();
            assert_eq!((result, metrics), (Ok(()), expected), "{text}");
            assert_eq!(warnings, Vec::<String>::new(), "{text}");
        };
        check(
            LINES,
            "tps: 12.5 1/s\nlat: 3\nnoise\n",
            &[("tps", 12.5, "1/s"), ("lat", 3.0, "")],
        );
        check(
            r"bench: +(?P<value>[0-9.,]+) ns",
            "bench: \u{1b}[1m 18,794.12\u{1b}[0m ns/iter",
            &[("value", 18_794.12, "")],
        );
        check(
            r"min=(?P<min>\d+), max=(?P<max>\d+)(, x=(?P<x>\d+))?",
            "min=1, max=9",
            &[("min", 1.0, ""), ("max", 9.0, "")],
        );
    }

    #[test]
    fn what_is_odd_is_told() {
        let check = |text, metrics: usize, warnings: &[&str]| {
            let (result, found, warned) = read(LINES, text);
            assert_eq!((result, found.len()), (Ok(()), metrics), "{text}");
            assert_eq!(warned, warnings, "{text}");
        };
        check(
            "a: 1\na: 2\na: 3\n",
            1,
            &["`a` was matched 3 times: the last value is used"],
        );
        check(
            "a: 1\nb: n/a\n",
            1,
            &["1 match left out, no number: `b = n/a`"],
        );
        assert_eq!(read(LINES, "a: 1\na: 3\n").1[0].1, 3.0);
    }

    #[test]
    fn nothing_is_guessed() {
        let check = |text, reason: &str| {
            assert_eq!(read(LINES, text).0, Err(reason.to_owned()), "{text}");
        };
        check(
            "a: 1\nb: 3,5\n",
            "`3,5` may have a decimal comma, which is not guessed: run the program with LC_ALL=C",
        );
        check(
            "a: x\n",
            "the pattern matches, but nothing that is a number",
        );
        check("a\n", &format!("the pattern `{LINES}` matches nothing"));
    }

    #[test]
    fn patterns_are_checked() {
        let check = |pattern, problem: &str| {
            assert_eq!(
                NamedPattern::new(Some(pattern)).err().as_deref(),
                Some(problem)
            );
        };
        check(
            "(?P<value>",
            "`pattern` is no regular expression: unclosed group",
        );
        check(
            "(?P<name>x)",
            "`pattern` has no group `value`: name the number so",
        );
        check(
            "(?P<value>x) (?P<iops>y)",
            "`pattern` mixes the group `iops` with `value`, `name` or `unit`: either one `value` a \
             match, or only groups that are named like the metrics",
        );
        check(
            r"\d+",
            r"`pattern` has no named group: name what is to be read, as in `(?P<name>\w+): (?P<value>[0-9.]+)`",
        );
        let problem = NamedPattern::new(Some(r"(?P<value>\w{1000}){1000}")).err();
        assert!(problem.is_some_and(|text| text.contains("size limit")));
    }
}
