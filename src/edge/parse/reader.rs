//! Reading one output with all that a `[[run]]` says of it: its parsers one after the other, and `fail`.

use ::regex::{Regex, RegexBuilder};

use super::regex::{COMPILED_BYTES_MAX, one_line};
use super::text::shorten;
use super::{Input, Parser};
use crate::base::sample::{Better, Parsed};
use crate::config::template::{Context, Engine, Expr};

/// How the output of one `[[run]]` is read.
#[derive(Debug)]
pub struct Reader {
    pub parsers: Vec<Parser>,
    /// What the program prints when it has failed, whatever its exit status.
    pub fail_pattern: Option<Regex>,
    /// Holds when readings tell that it has failed.
    pub fail_when: Option<Expr>,
}

impl Reader {
    /// The readings of all parsers; the first one counts of several with one name. Refused where any of the
    /// parsers refuses, or where a `fail` rule says so.
    pub fn read(&self, input: &Input, engine: &Engine) -> Parsed {
        if let Some(reason) = self.fail_pattern.as_ref().and_then(|it| found(it, input)) {
            return Parsed::refused(reason);
        }
        let (mut metrics, mut warnings) = (Vec::new(), Vec::new());
        for parser in &self.parsers {
            match parser.parse(input) {
                Parsed::Readings {
                    metrics: more,
                    warnings: told,
                } => {
                    for reading in more {
                        let known = metrics
                            .iter()
                            .any(|it: &crate::base::sample::Reading| it.name == reading.name);
                        match known && self.parsers.len() > 1 {
                            true => warnings.push(format!(
                                "two parsers give `{}`: that of the first is used",
                                shorten(&reading.name)
                            )),
                            false => metrics.push(reading),
                        }
                    }
                    warnings.extend(told);
                }
                refused => return refused,
            }
        }
        let Some(when) = &self.fail_when else {
            return Parsed::Readings { metrics, warnings };
        };
        let mut context = Context::default();
        let fields = metrics
            .iter()
            .map(|reading| (reading.name.clone(), reading.value));
        context.set(
            "readings",
            fields.collect::<std::collections::BTreeMap<_, _>>(),
        );
        for reading in &metrics {
            context.set(&reading.name, reading.value);
        }
        match engine.test(when, &context) {
            Ok(false) => Parsed::Readings { metrics, warnings },
            Ok(true) => Parsed::refused(format!("`fail` holds: {}", shorten(&when.text))),
            Err(reason) => Parsed::refused(format!("`fail` cannot be computed: {reason}")),
        }
    }

    /// Which direction of a reading is better, as far as one of the parsers knows.
    pub fn better(&self, name: &str) -> Option<Better> {
        self.parsers.iter().find_map(|parser| parser.better(name))
    }
}

/// What `fail` of a matrix says as a regular expression; else why it is none.
pub fn fail_pattern(text: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(text)
        .size_limit(COMPILED_BYTES_MAX)
        .build();
    built.map_err(|error| format!("`fail` is no regular expression: {}", one_line(&error)))
}

/// The line that tells of a failure, as a reason.
fn found(pattern: &Regex, input: &Input) -> Option<String> {
    [input.stdout, input.stderr].into_iter().find_map(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let found = pattern.find(&text)?;
        let start = text[..found.start()].rfind('\n').map_or(0, |at| at + 1);
        let end = text[found.end()..]
            .find('\n')
            .map_or(text.len(), |at| found.end() + at);
        Some(format!(
            "`fail` matches: {}",
            shorten(text[start..end].trim())
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::diag::{SourceId, Span};
    use crate::base::sample::Ended;

    #[test]
    fn parsers_are_joined_and_failures_refused() {
        let engine = Engine::default();
        let parser = |kind: &str, pattern: &str| {
            let options = [("pattern".to_owned(), pattern.to_owned())];
            let options = if pattern.is_empty() {
                &[][..]
            } else {
                &options
            };
            Parser::new(kind, options).unwrap()
        };
        let check =
            |pattern: Option<&str>, when: Option<&str>, expected: Result<&[(&str, f64)], &str>| {
                let span = Span::new(SourceId(0), 0..1);
                let reader = Reader {
                    parsers: vec![
                        parser("time", ""),
                        parser("regex", r"n=(?P<n>\d+) errors=(?P<errors>\d+)"),
                    ],
                    fail_pattern: pattern.map(|it| Regex::new(it).unwrap()),
                    fail_when: when.map(|it| engine.expr(it, span).unwrap()),
                };
                let input = Input {
                    stdout: b"n=3 errors=2\nWARNING: half done\n",
                    stderr: b"disk is slow",
                    ended: Ended::Exit(0),
                    duration: Some(std::time::Duration::from_secs(2)),
                };
                let found = match reader.read(&input, &engine) {
                    Parsed::Readings { metrics, .. } => Ok(metrics),
                    Parsed::Refused { reason } => Err(reason),
                };
                let found = found.map(|it| it.into_iter().map(|it| (it.name, it.value)).collect());
                let own = |list: &[(&str, f64)]| {
                    list.iter()
                        .map(|(name, value)| (name.to_string(), *value))
                        .collect::<Vec<_>>()
                };
                assert_eq!(found, expected.map(own).map_err(str::to_owned));
            };
        let all: &[(&str, f64)] = &[("real", 2.0), ("errors", 2.0), ("n", 3.0)];
        check(None, None, Ok(all));
        check(Some("panic"), Some("errors > 5"), Ok(all));
        check(
            Some("half"),
            None,
            Err("`fail` matches: WARNING: half done"),
        );
        check(Some("slow$"), None, Err("`fail` matches: disk is slow"));
        check(None, Some("errors > 1"), Err("`fail` holds: errors > 1"));
        check(
            None,
            Some("readings['errors'] / n > 0.5"),
            Err("`fail` holds: readings['errors'] / n > 0.5"),
        );
    }
}
