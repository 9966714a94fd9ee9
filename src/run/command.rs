//! Small things that every step does with a host: commands, folders, logs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::edge::parse::OUTPUT_BYTES_MAX;
use crate::machine::host::{Command, FileOp, Host, HostError, Output};
use crate::plan::commands::{Words, show_words};

/// Bytes of a log's part that are kept.
const LOG_PART_BYTES_MAX: usize = 1 << 20;

pub(super) fn command(
    argv: &Words,
    dir: &str,
    env: &[(String, String)],
    timeout: Duration,
) -> Command {
    Command {
        argv: argv.clone(),
        dir: dir.into(),
        env: env.to_vec(),
        stdin: Vec::new(),
        timeout,
        output_bytes_max: OUTPUT_BYTES_MAX,
    }
}

pub(super) async fn make_dir(host: &dyn Host, dir: &str) -> Result<(), HostError> {
    one(host, FileOp::MakeDir { path: dir.into() }).await
}

pub(super) async fn remove(host: &dyn Host, dir: &str) -> Result<(), HostError> {
    one(host, FileOp::Remove { path: dir.into() }).await
}

pub(super) async fn one(host: &dyn Host, op: FileOp) -> Result<(), HostError> {
    host.files(vec![op])
        .await
        .pop()
        .map_or(Ok(()), |reply| reply.map(|_| ()))
}

/// What a program said of its failure, for a message: `: the line that names the error`, else its last lines.
pub(super) fn last_words(output: &Output) -> String {
    let [err, out] = [&output.stderr, &output.stdout].map(|text| String::from_utf8_lossy(text));
    match naming_lines(&err, &out).as_str() {
        "" => String::new(),
        words => format!(": {words}"),
    }
}

/// The line that names an error, of standard error before standard output; else the last lines of the one that has any.
/// What a build tool says of its own recipe (`make: *** […] Error 1`) names nothing.
fn naming_lines(err: &str, out: &str) -> String {
    const LINES_MAX: usize = 3;
    const BYTES_MAX: usize = 400;
    let of_recipe = |line: &str| {
        let tools = [
            "make: ***",
            "make: ",
            "gmake",
            "ninja: build stopped",
            "collect2: error:",
        ];
        let is_nested_make = line.starts_with("make[") && line.contains("]: ");
        is_nested_make
            || tools.iter().any(|tool| line.starts_with(tool))
            || (line.starts_with("FAILED: ") && line.contains(".o"))
    };
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.trim().to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    };
    let [err, out] = [lines(err), lines(out)];
    // Compilers name the cause first and end with remarks; most others end with the cause.
    let names_error = |line: &&String| {
        let line = line.to_ascii_lowercase();
        ["error:", "error[", "fatal:", "undefined reference"]
            .iter()
            .any(|word| line.contains(word))
    };
    let mut all = err.iter().chain(&out);
    let mut words = match all.find(|line| names_error(line) && !of_recipe(line)) {
        Some(line) => line.clone(),
        None => {
            let text = if err.is_empty() { &out } else { &err };
            let telling: Vec<&str> = text
                .iter()
                .map(String::as_str)
                .filter(|line| !of_recipe(line))
                .collect();
            match telling.is_empty() {
                // Then that is all there is.
                true => text.last().cloned().unwrap_or_default(),
                false => telling[telling.len().saturating_sub(LINES_MAX)..].join("; "),
            }
        }
    };
    let mut start = words.len().saturating_sub(BYTES_MAX);
    while !words.is_char_boundary(start) {
        start += 1;
    }
    words.split_off(start)
}

/// Milliseconds since 1970-01-01 UTC.
pub fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_millis() as i64)
}

/// The log of an attempt: commands and what they printed.
#[derive(Default)]
pub(super) struct Log(pub(super) Vec<u8>);

impl Log {
    pub(super) fn command(&mut self, argv: &Words) {
        let line = show_words(argv);
        self.0.extend_from_slice(format!("$ {line}\n").as_bytes());
    }

    pub(super) fn note(&mut self, text: &str) {
        self.0.extend_from_slice(format!("# {text}\n").as_bytes());
    }

    pub(super) fn output(&mut self, output: &Output) {
        for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            if !bytes.is_empty() {
                self.0.extend_from_slice(format!("--- {name}\n").as_bytes());
                self.0
                    .extend_from_slice(&bytes[..bytes.len().min(LOG_PART_BYTES_MAX)]);
                if bytes.len() > LOG_PART_BYTES_MAX {
                    self.0.extend_from_slice(b"\n(cut)");
                }
                self.0.push(b'\n');
            }
        }
        self.0
            .extend_from_slice(format!("--- {}\n", output.ended).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_names_the_error_is_told() {
        let check = |err: &str, out: &str, expected: &str| {
            assert_eq!(naming_lines(err, out), expected);
        };
        check("", "", "");
        check("a\nb\nc\nd\n", "", "b; c; d");
        check("", "only this\n", "only this");
        check(
            "x.c: In function 'f':\nx.c:3:1: error: expected ';'\n  3 | }\nmake: *** [Makefile:2: x] Error 1\n",
            "",
            "x.c:3:1: error: expected ';'",
        );
        // The recipe's own line is no cause.
        check(
            "sh: 1: frobnicate: not found\nmake: *** [Makefile:2: all] Error 127\n",
            "",
            "sh: 1: frobnicate: not found",
        );
        check(
            "make[1]: *** [Makefile:7: sub] Error 2\nmake: *** [all] Error 2\n",
            "",
            "make: *** [all] Error 2",
        );
        check(
            "/usr/bin/ld: x.o: undefined reference to `g'\ncollect2: error: ld returned 1 exit status\n",
            "",
            "/usr/bin/ld: x.o: undefined reference to `g'",
        );
        // ninja passes the compiler's words on, on standard output.
        check(
            "warning: old\n",
            "[1/2] cc\nFAILED: x.o\nx.c:1:1: error: no\nninja: build stopped: subcommand failed.\n",
            "x.c:1:1: error: no",
        );
        check("fatal: bad object\n", "", "fatal: bad object");
    }
}
