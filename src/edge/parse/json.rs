//! Reading any JSON document: each number is a reading, named by its path.

use serde_json::Value;

use super::text::shorten;
use super::{Found, READINGS_MAX, document};
use crate::base::sample::Reading;
use crate::base::units::count;

/// Every number of the last complete document, by its path: `results[0].mean`. A key with other
/// than the usual characters of a name is quoted: `percentile["99.000000"]`. Numbers in strings,
/// true and false are no numbers.
pub fn parse(text: &str, found: &mut Found) -> Result<(), String> {
    let value = document::last(text, &['{', '['], found)?;
    if let Some(failure) = own_failure(&value) {
        return Err(failure);
    }
    let mut path = String::new();
    let complete = flatten(&value, &mut path, &mut found.metrics);
    if !complete {
        found.warn(format!(
            "the document holds more than {READINGS_MAX} numbers: the first {READINGS_MAX} are read"
        ));
    }
    match found.metrics.is_empty() {
        true => Err("no number in the JSON document".to_owned()),
        false => Ok(()),
    }
}

/// What a program says of its own failure beside its numbers: `error` (iperf3 and many others), and the exit
/// statuses of the commands that hyperfine has timed.
fn own_failure(value: &Value) -> Option<String> {
    let error = match value.get("error") {
        Some(Value::String(error)) if !error.trim().is_empty() => shorten(error),
        Some(Value::Object(error)) if !error.is_empty() => {
            let message = error.get("message").and_then(Value::as_str);
            message.map_or_else(
                || shorten(&Value::Object(error.clone()).to_string()),
                shorten,
            )
        }
        Some(Value::Bool(true)) => "true".to_owned(),
        _ => return failed_runs(value),
    };
    Some(format!("the program reports an error: {error}"))
}

fn failed_runs(value: &Value) -> Option<String> {
    let results = value.get("results")?.as_array()?;
    results.iter().find_map(|result| {
        let statuses = result.get("exit_codes")?.as_array()?;
        // A command that a signal has ended has none.
        let failed: Vec<&Value> = statuses
            .iter()
            .filter(|status| status.as_i64() != Some(0))
            .collect();
        let first = match failed.first()? {
            Value::Null => "a signal".to_owned(),
            status => format!("exit status {status}"),
        };
        let command = result.get("command").and_then(Value::as_str).unwrap_or("?");
        Some(format!(
            "{} of {} of `{}` failed: {first}",
            failed.len(),
            count(statuses.len(), "run"),
            shorten(command)
        ))
    })
}

/// False when there are too many. Depth is limited by the reader of the document.
fn flatten(value: &Value, path: &mut String, readings: &mut Vec<Reading>) -> bool {
    let length = path.len();
    match value {
        Value::Number(number) => {
            if readings.len() == READINGS_MAX {
                return false;
            }
            if let Some(value) = number.as_f64() {
                readings.push(Reading {
                    name: path.clone(),
                    value,
                    unit: String::new(),
                    better: None,
                });
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                path.push_str(&format!("[{i}]"));
                let complete = flatten(item, path, readings);
                path.truncate(length);
                if !complete {
                    return false;
                }
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                push_key(path, key);
                let complete = flatten(member, path, readings);
                path.truncate(length);
                if !complete {
                    return false;
                }
            }
        }
        Value::String(_) | Value::Bool(_) | Value::Null => {}
    }
    true
}

fn push_key(path: &mut String, key: &str) {
    let is_name = !key.is_empty() && !key.contains(['.', '[', ']', '"']);
    match (is_name, path.is_empty()) {
        (true, true) => path.push_str(key),
        (true, false) => {
            path.push('.');
            path.push_str(key);
        }
        (false, _) => path.push_str(&format!("[{}]", Value::from(key))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Seen = (Result<(), String>, Vec<(String, f64)>, Vec<String>);

    fn read(text: &str) -> Seen {
        let mut found = Found::default();
        let result = parse(text, &mut found);
        let metrics = found.metrics.into_iter().map(|m| (m.name, m.value));
        (result, metrics.collect(), found.warnings)
    }

    #[test]
    fn every_number_is_named_by_its_path() {
        let check = |text: &str, expected: &[(&str, f64)]| {
            let (result, metrics, _) = read(text);
            assert_eq!(result, Ok(()), "{text}");
            let metrics: Vec<_> = metrics.iter().map(|(n, v)| (n.as_str(), *v)).collect();
            assert_eq!(metrics, expected, "{text}");
        };
        check(
            r#"{"a": {"b": [{"c": 1.5}, {"c": -2}]}, "s": "3", "t": true, "n": null}"#,
            &[("a.b[0].c", 1.5), ("a.b[1].c", -2.0)],
        );
        check("[[1], 2]", &[("[0][0]", 1.0), ("[1]", 2.0)]);
        check(
            r#"{"a": {"99.0": 1, "": 2, "x y": 3}, "a.99": 4}"#,
            &[
                (r#"a["99.0"]"#, 1.0),
                (r#"a[""]"#, 2.0),
                ("a.x y", 3.0),
                (r#"["a.99"]"#, 4.0),
            ],
        );
        check(
            "log\n{\"a\": 1}\n{\"a\": 18446744073709551615}",
            &[("a", 18_446_744_073_709_551_615.0)],
        );
    }

    #[test]
    fn no_number_is_refused() {
        let check = |text, reason: &str| assert_eq!(read(text).0, Err(reason.to_owned()));
        check(r#"{"a": "1"}"#, "no number in the JSON document");
        check(
            r#"{"error": "unable to connect", "end": {}}"#,
            "the program reports an error: unable to connect",
        );
        check("a: 1", "no JSON document in the output");
        check(
            r#"{"a": NaN}"#,
            "no complete JSON document: the document is broken at line 1, after `{\"a\": N`",
        );
    }

    #[test]
    fn a_program_that_reports_its_own_failure_is_refused() {
        let check = |text: &str, reason: Option<&str>| {
            let reason = reason.map_or(Ok(()), |reason| Err(reason.to_owned()));
            assert_eq!(read(text).0, reason, "{text}");
        };
        let lost = "the program reports an error: lost";
        check(r#"{"error": "lost", "a": 1}"#, Some(lost));
        check(r#"{"error": {"message": "lost"}, "a": 1}"#, Some(lost));
        check(
            r#"{"error": true, "a": 1}"#,
            Some("the program reports an error: true"),
        );
        check(r#"{"error": "", "a": 1}"#, None);
        check(r#"{"error": null, "a": 1}"#, None);
        check(r#"{"error": 0.5, "a": 1}"#, None);
        let hyperfine = |codes| {
            format!(r#"{{"results": [{{"command": "x", "mean": 1, "exit_codes": {codes}}}]}}"#)
        };
        check(&hyperfine("[0, 0]"), None);
        check(
            &hyperfine("[0, 3]"),
            Some("1 of 2 runs of `x` failed: exit status 3"),
        );
        check(
            &hyperfine("[null]"),
            Some("1 of 1 run of `x` failed: a signal"),
        );
    }

    #[test]
    fn readings_are_limited() {
        let text = format!("[{}1]", "1,".repeat(READINGS_MAX));
        let (result, metrics, warnings) = read(&text);
        assert_eq!((result, metrics.len()), (Ok(()), READINGS_MAX));
        assert_eq!(warnings.len(), 1);
    }
}
