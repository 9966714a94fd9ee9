//! The parts of a report beside its verdicts: session, commits, machines, failures, what was not measured, how to do it by hand.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::edge::git::CommitText;
use crate::edge::store::SessionRecord;
use crate::judge::verdict::Verdict;
use crate::resolve::lookup::Failed;
use crate::verdicts::cells::{CellName, NamedCell};
use crate::verdicts::time::time;

/// An invocation of `matrix run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SessionRow {
    pub id: i64,
    /// ISO 8601, UTC.
    pub began: String,
    /// Null where it runs, or died.
    pub ended: Option<String>,
    pub preset: String,
    pub seed: u64,
    /// The command line.
    pub command: String,
    /// Version of the program.
    pub program: String,
    /// `ok`, `failed`, `interrupted` or `error`; null where it runs, or died.
    pub outcome: Option<String>,
}

impl SessionRow {
    pub fn of(record: SessionRecord) -> SessionRow {
        SessionRow {
            id: record.id,
            began: time(record.started_ms),
            ended: record.ended_ms.map(time),
            preset: record.preset,
            seed: record.seed,
            command: record.arguments,
            program: record.program_version,
            outcome: record.outcome,
        }
    }
}

/// A commit of which something was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CommitRow {
    pub hash: String,
    /// The names of versions that were this commit, as cell names have them.
    pub versions: Vec<String>,
    /// Empty, as all that follows, where a session of an older program measured it.
    pub subject: String,
    /// The whole message.
    pub message: String,
    pub author: String,
    pub author_email: String,
    /// Of the author: ISO 8601, UTC.
    pub date: String,
    pub committer: String,
    pub committer_email: String,
}

impl CommitRow {
    pub fn of(hash: &str, text: Option<CommitText>) -> CommitRow {
        let unknown = CommitRow {
            hash: hash.to_owned(),
            ..CommitRow::default()
        };
        let Some(text) = text else { return unknown };
        CommitRow {
            subject: text.message.lines().next().unwrap_or("").to_owned(),
            message: text.message,
            author: text.author,
            author_email: text.author_email,
            date: time(text.authored_s.saturating_mul(1000)),
            committer: text.committer,
            committer_email: text.committer_email,
            ..unknown
        }
    }

    /// Twelve digits, as git shows them.
    pub fn short(&self) -> &str {
        &self.hash[..self.hash.floor_char_boundary(12)]
    }

    /// The values of a trailer such as `Reviewed-by`, whatever its case.
    pub fn trailers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.message.lines().skip(1).filter_map(move |line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// A machine as it was in the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MachineRow {
    pub machine: String,
    /// Hash of what follows.
    pub environment: String,
    /// What was true of it, such as `kernel` and `cpu.model`.
    pub values: BTreeMap<String, String>,
}

/// A cell of which no sample was taken, though it was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FailureRow {
    pub cell: String,
    pub reason: String,
    /// The last lines of its log, from the one on that names the error; nothing where they were not asked for.
    pub log: Vec<String>,
}

impl From<Failed> for FailureRow {
    fn from(failed: Failed) -> FailureRow {
        FailureRow {
            cell: failed.cell,
            reason: failed.reason,
            log: Vec::new(),
        }
    }
}

/// Cells that were not measured, with one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnmeasuredRow {
    pub cells: usize,
    /// One of them, where they have names.
    pub example: Option<String>,
    pub why: String,
}

/// The commands that measure a cell by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReproduceRow {
    pub cell: String,
    /// In the order in which they are run.
    pub commands: Vec<ReproduceCommand>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReproduceCommand {
    /// `set-up`, `service` (it goes on in the background), `ready` (until it succeeds), `environment`, `measure` or `undo`.
    pub role: &'static str,
    /// As it is typed into a shell.
    pub line: String,
}

/// How a change compares with the sessions before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingStanding {
    /// The latest session found it first.
    New,
    /// An earlier session found it.
    Still,
    /// An earlier session found it, the latest one looked and did not.
    Gone,
}

impl FindingStanding {
    pub fn name(self) -> &'static str {
        match self {
            FindingStanding::New => "new",
            FindingStanding::Still => "still there",
            FindingStanding::Gone => "gone",
        }
    }
}

/// A change that a session found.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FindingRow {
    pub axis: String,
    /// Without the compared axis.
    #[serde(flatten)]
    #[schemars(with = "NamedCell")]
    pub cell: CellName,
    pub metric: String,
    /// `regression` or `improvement`.
    pub verdict: Verdict,
    /// As they were when it was seen last.
    pub baseline: String,
    pub candidate: String,
    pub ratio: Option<f64>,
    /// The sessions that found it first and last.
    pub since: i64,
    pub seen: i64,
}

/// The changes of the latest session beside those of the sessions before.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SinceLast {
    /// The session before; null where there is none.
    pub session: Option<i64>,
    /// Found first by the latest session.
    pub new: Vec<FindingRow>,
    /// Found earlier, and not refuted since: the latest session need not have looked.
    pub still: Vec<FindingRow>,
    /// Found earlier, and not any more by the latest session.
    pub gone: Vec<FindingRow>,
}
