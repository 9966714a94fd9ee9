//! What a bisection has measured, in a file: an interrupted one goes on from there.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::line::{FILE_BYTES_MAX, LineCommit};
use crate::base::diag::Diagnostic;
use crate::base::key::Key;
use crate::cli::show::Stop;
use crate::machine::host::local::blocking;
use crate::machine::host::{FileOp, FileReply, Host, HostErrorKind};

/// A line of the state: how one measurement ended, or what was found out beside.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Entry {
    pub commit: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The command said that this commit cannot be measured.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_untestable: bool,
    #[serde(default)]
    pub seconds: f64,
    /// No measurement: this commit is the same bytes as `commit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alike: Option<String>,
    /// No measurement: what a matrix has stored up to this session was known when the bisection began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_until: Option<i64>,
}

/// What was measured so far, in a file of its own for each question.
#[derive(Default)]
pub struct Journal {
    pub path: PathBuf,
    pub text: String,
    /// What is not told to the search yet.
    pub stored: VecDeque<Entry>,
}

impl Journal {
    pub async fn open(
        host: &dyn Host,
        state: &Path,
        measure: &str,
        seed: u64,
        line: &[LineCommit],
    ) -> Result<Journal, Stop> {
        let ids: Vec<&str> = line.iter().map(|commit| commit.id.as_str()).collect();
        let question = format!("{}\0{}\0{}", measure, seed, ids.join("\0"));
        let name = format!("bisect-{}.jsonl", Key::of(question.as_bytes()).short());
        let path = state.join(name);
        let ops = vec![
            FileOp::MakeDir {
                path: state.to_owned(),
            },
            FileOp::Read {
                path: path.clone(),
                bytes_max: FILE_BYTES_MAX,
            },
        ];
        let mut replies = host.files(ops).await.into_iter();
        if let Some(Err(error)) = replies.next() {
            return Err(error.into());
        }
        let text = match replies.next() {
            Some(Ok(FileReply::Bytes(bytes))) => String::from_utf8_lossy(&bytes).into_owned(),
            Some(Err(error)) if error.kind != HostErrorKind::NotFound => return Err(error.into()),
            _ => String::new(),
        };
        let mut stored = VecDeque::new();
        for (number, line) in (1..).zip(text.lines()) {
            let entry = serde_json::from_str(line).map_err(|error| {
                Diagnostic::error(format!("`{}`, line {number}: {error}", path.display()))
                    .help("remove the file to begin anew")
            })?;
            stored.push_back(entry);
        }
        Ok(Journal { path, text, stored })
    }

    /// Durable before it is believed.
    pub async fn add(&mut self, host: &dyn Host, entry: &Entry) -> Result<(), Stop> {
        self.append(entry)?;
        write(host, &self.path, &self.text).await
    }

    /// As [`Journal::add`], on this machine and this thread.
    pub fn add_here(&mut self, entry: &Entry) -> Result<(), Stop> {
        self.append(entry)?;
        blocking::file(replaced(&self.path, &self.text))?;
        Ok(())
    }

    fn append(&mut self, entry: &Entry) -> Result<(), Stop> {
        let line = serde_json::to_string(entry)
            .map_err(|error| Stop::message(format!("a measurement cannot be kept: {error}")))?;
        self.text.push_str(&line);
        self.text.push('\n');
        Ok(())
    }

    /// The session up to which what a matrix has stored counts as known before; `latest` where the bisection begins.
    pub fn known_until(&mut self, latest: i64) -> Result<i64, Stop> {
        if let Some(known) = self.stored.front().and_then(|entry| entry.known_until) {
            self.stored.pop_front();
            return Ok(known);
        }
        self.add_here(&Entry {
            known_until: Some(latest),
            ..Entry::default()
        })?;
        Ok(latest)
    }
}

pub async fn write(host: &dyn Host, path: &Path, text: &str) -> Result<(), Stop> {
    match host.files(vec![replaced(path, text)]).await.pop() {
        Some(Err(error)) => Err(error.into()),
        _ => Ok(()),
    }
}

fn replaced(path: &Path, text: &str) -> FileOp {
    FileOp::Replace {
        path: path.to_owned(),
        bytes: text.as_bytes().to_vec(),
    }
}
