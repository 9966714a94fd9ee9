//! What a program's output says: bytes in, readings or a refusal out.

mod columns;
mod document;
mod fio;
mod json;
mod perf;
mod reader;
mod regex;
mod settle;
mod text;

use std::time::Duration;

pub use reader::{Reader, fail_pattern};
pub use settle::settle;

use crate::base::diag::suggest;
use crate::base::sample::{Better, Ended, Parsed, Reading};

/// The parsers that a matrix may name.
pub const KINDS: [&str; 6] = ["fio", "json", "regex", "columns", "perf", "time"];

/// The one reading of the parser `time`.
const REAL: &str = "real";

/// Longest stream that is parsed.
pub const OUTPUT_BYTES_MAX: usize = 64 << 20;

/// Readings kept from one output.
pub const READINGS_MAX: usize = 10_000;

/// Longest value of an option.
pub const OPTION_BYTES_MAX: usize = 4096;

/// What a program printed and how it ended.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub stdout: &'a [u8],
    pub stderr: &'a [u8],
    pub ended: Ended,
    /// From its start to its end; None where nobody was there to time it.
    pub duration: Option<Duration>,
}

/// A way to read one program's output, as declared in a matrix.
#[derive(Clone, Debug)]
pub struct Parser {
    kind: ParserKind,
    stream: Stream,
}

#[derive(Clone, Debug)]
enum ParserKind {
    Fio,
    Json,
    Regex(regex::NamedPattern),
    Columns(columns::Columns),
    Perf,
    /// What the program prints does not matter.
    Time,
}

/// The stream that holds the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Stdout,
    /// `perf stat` and `time` print there.
    Stderr,
}

impl Parser {
    /// The parser `kind` (one of [`KINDS`]) with the options that a matrix gives it:
    ///
    /// | kind | option | value |
    /// |---|---|---|
    /// | `regex` | `pattern` | required, a regular expression with named groups |
    /// | `columns` | `skip` | rows to leave out at the start of each table, 0 when not given |
    /// | all but `fio` and `time` | `stream` | `stdout` or `stderr`; when not given, `stderr` for `perf` |
    ///
    /// Err holds every problem, each in one line with its remedy.
    pub fn new(kind: &str, options: &[(String, String)]) -> Result<Parser, Vec<String>> {
        let allowed: &[&str] = match kind {
            "fio" | "time" => &[],
            "json" | "perf" => &["stream"],
            "regex" => &["pattern", "stream"],
            "columns" => &["skip", "stream"],
            _ => {
                let hint = suggest(kind, KINDS);
                return Err(vec![format!("there is no parser `{kind}`; {hint}")]);
            }
        };
        let mut problems = unfit_options(kind, options, allowed);
        let get = |wanted: &str| {
            let found = options.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.as_str())
        };
        let stream = match get("stream") {
            None if kind == "perf" => Stream::Stderr,
            None | Some("stdout") => Stream::Stdout,
            Some("stderr") => Stream::Stderr,
            Some(other) => {
                problems.push(format!(
                    "`stream` is `stdout` or `stderr`, not `{}`",
                    text::shorten(other)
                ));
                Stream::Stdout
            }
        };
        let kind = match kind {
            "regex" => regex::NamedPattern::new(get("pattern")).map(ParserKind::Regex),
            "columns" => columns::Columns::new(get("skip")).map(ParserKind::Columns),
            "json" => Ok(ParserKind::Json),
            "perf" => Ok(ParserKind::Perf),
            "time" => Ok(ParserKind::Time),
            _ => Ok(ParserKind::Fio),
        };
        match kind {
            Ok(kind) if problems.is_empty() => Ok(Parser { kind, stream }),
            Ok(_) => Err(problems),
            Err(problem) => {
                problems.push(problem);
                Err(problems)
            }
        }
    }

    /// Which direction of a reading is better, by its name, as far as this parser knows. The name may be a
    /// template: the part behind its last dot counts.
    pub fn better(&self, name: &str) -> Option<Better> {
        match self.kind {
            ParserKind::Fio => fio::better(name),
            ParserKind::Time => (name == REAL).then_some(Better::Lower),
            ParserKind::Json | ParserKind::Regex(_) | ParserKind::Columns(_) | ParserKind::Perf => {
                None
            }
        }
    }

    /// Reads an output. Each reading's name is there once; `Refused` when the program failed,
    /// printed nothing, or printed something else than this parser reads.
    pub fn parse(&self, input: &Input) -> Parsed {
        let bytes = match self.stream {
            Stream::Stdout => input.stdout,
            Stream::Stderr => input.stderr,
        };
        if !input.ended.is_success() {
            let details = match complaint(input) {
                lines if lines.is_empty() && matches!(self.kind, ParserKind::Fio) => {
                    fio::job_errors(bytes)
                }
                lines => lines,
            };
            return refused(&input.ended.to_string(), &details);
        }
        if let ParserKind::Time = self.kind {
            return time(input.duration);
        }
        if bytes.len() > OUTPUT_BYTES_MAX {
            return Parsed::refused(format!(
                "the output is {} MiB long, more than the {} MiB that are parsed: make the \
                 program print less",
                bytes.len() >> 20,
                OUTPUT_BYTES_MAX >> 20
            ));
        }
        if bytes.trim_ascii().is_empty() {
            let details = match self.stream {
                Stream::Stdout => complaint(input),
                Stream::Stderr => Vec::new(),
            };
            return refused("no output", &details);
        }
        let mut found = Found::default();
        let text = text::decode(bytes, &mut found);
        let result = match &self.kind {
            ParserKind::Fio => fio::parse(&text, input, &mut found),
            ParserKind::Json => json::parse(&text, &mut found),
            ParserKind::Regex(pattern) => pattern.parse(&text, &mut found),
            ParserKind::Columns(columns) => columns.parse(&text, &mut found),
            ParserKind::Perf => perf::parse(&text, &mut found),
            ParserKind::Time => Err("`time` reads no text".to_owned()),
        };
        match result {
            Ok(()) => Parsed::Readings {
                metrics: found.metrics,
                warnings: found.warnings,
            },
            Err(reason) => refused(&reason, &complaint_beside(input, &self.kind)),
        }
    }
}

/// `real`, as the shell's `time` calls it.
fn time(duration: Option<Duration>) -> Parsed {
    let Some(duration) = duration else {
        return Parsed::refused(
            "nothing that is printed is read by `time`: it times `[run] command`",
        );
    };
    Parsed::Readings {
        metrics: vec![Reading {
            name: REAL.to_owned(),
            value: duration.as_secs_f64(),
            unit: "s".to_owned(),
            better: Some(Better::Lower),
        }],
        warnings: Vec::new(),
    }
}

/// Options that the kind does not have, that are there twice or too long.
fn unfit_options(kind: &str, options: &[(String, String)], allowed: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    for (i, (name, value)) in options.iter().enumerate() {
        if !allowed.contains(&name.as_str()) {
            let hint = suggest(name, allowed.iter().copied());
            problems.push(format!("parser `{kind}` has no option `{name}`; {hint}"));
        } else if options[..i].iter().any(|(before, _)| before == name) {
            problems.push(format!("option `{name}` is given twice: keep one"));
        } else if value.len() > OPTION_BYTES_MAX {
            problems.push(format!(
                "option `{name}` is longer than {OPTION_BYTES_MAX} bytes: shorten it"
            ));
        }
    }
    problems
}

/// Readings and warnings as they are found.
#[derive(Default)]
struct Found {
    metrics: Vec<Reading>,
    warnings: Vec<String>,
}

impl Found {
    fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }
}

fn refused(reason: &str, details: &[String]) -> Parsed {
    let mut lines = vec![reason.to_owned()];
    lines.extend(details.iter().map(|line| format!("  {line}")));
    Parsed::refused(lines.join("\n"))
}

/// The program's own last words: of stderr, or else of what stands before a JSON document in
/// stdout (fio before 2026 prints its errors there).
fn complaint(input: &Input) -> Vec<String> {
    match text::last_lines(input.stderr, |_| true) {
        lines if lines.is_empty() => text::last_lines(text::before_json(input.stdout), |_| true),
        lines => lines,
    }
}

/// What to show beside a refused output of a program that claims to have succeeded. Only fio is
/// known to fail with exit status 0; what others print on stderr need not have to do with it.
fn complaint_beside(input: &Input, kind: &ParserKind) -> Vec<String> {
    let is_error = |line: &str| {
        ["fio: ", "rror", "failed"]
            .iter()
            .any(|word| line.contains(word))
    };
    match kind {
        ParserKind::Fio if input.stderr.trim_ascii().is_empty() => {
            text::last_lines(text::before_json(input.stdout), is_error)
        }
        ParserKind::Fio => text::last_lines(input.stderr, |_| true),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn new(kind: &str, options: &[(&str, &str)]) -> Result<Parser, Vec<String>> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Parser::new(kind, &options.iter().map(own).collect::<Vec<_>>())
    }

    fn refusal(kind: &str, stdout: &str, stderr: &str, ended: Ended) -> String {
        let input = Input {
            stdout: stdout.as_bytes(),
            stderr: stderr.as_bytes(),
            ended,
            duration: None,
        };
        match new(kind, &[]).unwrap().parse(&input) {
            Parsed::Refused { reason } => reason,
            readings => panic!("{readings:?}"),
        }
    }

    #[test]
    fn declarations_are_checked_whole() {
        let check = |kind, options: &[(&str, &str)], problems: &[&str]| {
            let found = new(kind, options).err().unwrap_or_default();
            assert_eq!(found, problems, "{kind} {options:?}");
        };
        check("fio", &[], &[]);
        check("json", &[("stream", "stderr")], &[]);
        check("regex", &[("pattern", r"(?P<value>\d+)")], &[]);
        check("columns", &[("skip", "1")], &[]);
        check("perf", &[("stream", "stdout")], &[]);
        check("fo", &[], &["there is no parser `fo`; did you mean `fio`?"]);
        check(
            "fio",
            &[("pattern", "x")],
            &["parser `fio` has no option `pattern`; there is none"],
        );
        check(
            "regex",
            &[("patern", "x"), ("stream", "both")],
            &[
                "parser `regex` has no option `patern`; did you mean `pattern`?",
                "`stream` is `stdout` or `stderr`, not `both`",
                "parser `regex` needs a `pattern`, such as `(?P<name>\\w+): (?P<value>[0-9.]+)`",
            ],
        );
        check(
            "columns",
            &[("skip", "1"), ("skip", "2")],
            &["option `skip` is given twice: keep one"],
        );
        check(
            "columns",
            &[("skip", "-1")],
            &["`skip` is a number of rows from 0 to 1000, not `-1`"],
        );
    }

    #[test]
    fn failures_are_refused_with_the_programs_own_words() {
        let check = |stdout, stderr, ended, reason| {
            assert_eq!(refusal("json", stdout, stderr, ended), reason);
        };
        check("{\"a\": 1}", "", Ended::Exit(1), "exit status 1");
        check("", "", Ended::Signal(9), "killed (signal 9)");
        check(
            "{\"a\": 1}",
            "\x1b[31mone\x1b[0m\n\ntwo\n",
            Ended::TimedOut,
            "timed out\n  one\n  two",
        );
        check(
            "disk full\n{\"a\": 1}\n",
            " \n",
            Ended::Exit(1),
            "exit status 1\n  disk full",
        );
        check(" \n", "", Ended::Exit(0), "no output");
        check(
            "",
            "no such file\n",
            Ended::Exit(0),
            "no output\n  no such file",
        );
    }

    #[test]
    fn a_long_complaint_is_cut() {
        let stderr = "x".repeat(100_000) + "\n" + &"y\n".repeat(1000);
        let reason = refusal("json", "", &stderr, Ended::Exit(1));
        assert_eq!(reason, "exit status 1\n  y\n  y\n  y\n  y\n  y");
        let reason = refusal("json", "", &"ž".repeat(100_000), Ended::Exit(1));
        assert!(reason.len() < 1000, "{}", reason.len());
    }

    #[test]
    fn a_program_that_prints_nothing_is_timed() {
        let time = |duration, ended| {
            new("time", &[]).unwrap().parse(&Input {
                stdout: b"",
                stderr: b"",
                ended,
                duration,
            })
        };
        let Parsed::Readings { metrics, .. } =
            time(Some(Duration::from_millis(1500)), Ended::Exit(0))
        else {
            panic!()
        };
        let [real] = metrics.as_slice() else { panic!() };
        assert_eq!((real.name.as_str(), real.value), ("real", 1.5));
        let refused = |duration, ended| matches!(time(duration, ended), Parsed::Refused { .. });
        assert!(refused(None, Ended::Exit(0)));
        assert!(refused(Some(Duration::from_secs(1)), Ended::Exit(1)));
    }

    #[test]
    fn the_stream_is_chosen() {
        let input = Input {
            stdout: b"1",
            stderr: b"took 2 s",
            ended: Ended::Exit(0),
            duration: None,
        };
        let options = [("pattern", r"(?P<value>\d+)"), ("stream", "stderr")];
        let Parsed::Readings { metrics, .. } = new("regex", &options).unwrap().parse(&input) else {
            panic!()
        };
        assert_eq!(metrics[0].value, 2.0);
    }

    proptest! {
        /// Whatever a program prints: no panic, every value finite, every name once.
        #[test]
        fn any_output_is_survived(
            bytes in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..200),
                "[\\[\\]{}\",:0-9a-c.\\\\ \t\r\n\u{1b}m;e-]{0,200}".prop_map(String::into_bytes),
            ],
        ) {
            let input = Input { stdout: &bytes, stderr: b"", ended: Ended::Exit(0), duration: None };
            let pattern = [("pattern", r"(?P<name>[a-c]+) *(?P<value>\S+)")];
            for parser in [new("fio", &[]), new("json", &[]), new("regex", &pattern), new("columns", &[]), new("perf", &[("stream", "stdout")])] {
                if let Parsed::Readings { metrics, .. } = parser.unwrap().parse(&input) {
                    prop_assert!(!metrics.is_empty());
                    let mut names: Vec<&str> = metrics.iter().map(|m| m.name.as_str()).collect();
                    names.sort_unstable();
                    names.dedup();
                    prop_assert_eq!(names.len(), metrics.len());
                    prop_assert!(metrics.iter().all(|m| m.value.is_finite()));
                }
            }
        }
    }
}
