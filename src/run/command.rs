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

/// What a program said last, for a message: `: its last lines`.
pub(super) fn last_words(output: &Output) -> String {
    const LINES_MAX: usize = 3;
    const BYTES_MAX: usize = 400;
    let text = match output.stderr.iter().all(u8::is_ascii_whitespace) {
        true => String::from_utf8_lossy(&output.stdout),
        false => String::from_utf8_lossy(&output.stderr),
    };
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines.collect();
    // Compilers name the cause first and end with remarks; most others end with the cause.
    let is_error = |line: &&&str| line.to_ascii_lowercase().contains("error:");
    let last = match lines.iter().find(is_error) {
        Some(error) => (*error).to_owned(),
        None => lines[lines.len().saturating_sub(LINES_MAX)..].join("; "),
    };
    let mut start = last.len().saturating_sub(BYTES_MAX);
    while !last.is_char_boundary(start) {
        start += 1;
    }
    match &last[start..] {
        "" => String::new(),
        last => format!(": {last}"),
    }
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

    pub(super) fn contains(&self, words: &str) -> bool {
        let words = words.as_bytes();
        self.0.windows(words.len()).any(|window| window == words)
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
