//! The store: sessions, attempts, samples and logs in one state folder, durable once recorded.
//!
//! The state folder holds `matrix.db` (SQLite, with its `-wal` and `-shm`). The tables are in
//! `schema_*.sql`, the view for people in `docs/store.md`. Calls block; a call that writes returns when
//! the data is on the disk. A [`Writer`] does the same on a thread of its own, many results a sync.

mod beside;
mod builds;
mod commits;
mod error;
mod export;
mod findings;
mod history;
mod logs;
mod lookup;
mod open;
mod open_findings;
mod points;
mod record;
mod sessions;
mod standing;
#[cfg(test)]
mod tests;
mod writer;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;

use crate::base::key::Key;
use crate::base::sample::{Better, Sample};

pub use beside::{
    MARK_SEPARATOR, MONITOR_VALUES_MAX, MarkKind, Monitored, SampleContext, SampleMark,
};
pub use commits::KnownCommit;
pub use error::{StoreError, StoreErrorKind};
pub use export::ExportedSample;
pub use findings::{FINDINGS_MAX, FindingId, FindingNote, StoredFinding};
pub use history::{PastPoint, Position, SessionSpan, Unsaved, VersionCommit};
pub use logs::LOG_BYTES_MAX;
pub use lookup::{Failure, Finished};
pub use open_findings::{FindingChanges, OpenFinding, SeriesFinding};
pub use record::{ENVIRONMENT_BYTES_MAX, NAME_BYTES_MAX, NOTE_BYTES_MAX, READINGS_MAX, Record};
pub use sessions::SessionRecord;
pub use standing::{Acceptance, AcceptedFrom, Confirmation, Pair, SeriesId, ToldChange};
pub use writer::{RESULTS_PER_SYNC_MAX, Writer, Written};

/// One open state folder.
pub struct Store {
    db: Connection,
    state: PathBuf,
    /// The database file, for errors.
    file: PathBuf,
}

/// An invocation of `matrix` that runs something.
#[derive(Clone, Debug)]
pub struct SessionStart<'a> {
    /// Milliseconds since 1970-01-01 UTC.
    pub started_ms: i64,
    pub matrix: &'a str,
    pub preset: &'a str,
    pub seed: u64,
    /// The command line, as a person would type it.
    pub arguments: &'a str,
    pub program_version: &'a str,
    /// Whatever the caller needs to tell later whether this session still lives.
    pub process: &'a str,
}

/// The kind of step that an attempt was made at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepKind {
    Build,
    Setup,
    Run,
}

impl StepKind {
    pub const ALL: [StepKind; 3] = [StepKind::Build, StepKind::Setup, StepKind::Run];

    pub fn name(self) -> &'static str {
        match self {
            StepKind::Build => "build",
            StepKind::Setup => "setup",
            StepKind::Run => "run",
        }
    }
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptOutcome {
    /// It is done; its readings became samples.
    Ok,
    /// The program ended well, but its output must not be used.
    Refused,
    Failed,
    Timeout,
    /// Stopped by the user, or by something around the step, such as a program that was killed: no fault of the step.
    Interrupted,
}

impl AttemptOutcome {
    pub const ALL: [AttemptOutcome; 5] = [
        AttemptOutcome::Ok,
        AttemptOutcome::Refused,
        AttemptOutcome::Failed,
        AttemptOutcome::Timeout,
        AttemptOutcome::Interrupted,
    ];

    pub fn name(self) -> &'static str {
        match self {
            AttemptOutcome::Ok => "ok",
            AttemptOutcome::Refused => "refused",
            AttemptOutcome::Failed => "failed",
            AttemptOutcome::Timeout => "timeout",
            AttemptOutcome::Interrupted => "interrupted",
        }
    }
}

/// Row of an attempt; later attempts have larger ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub i64);

/// One execution of a step, to be recorded when it has ended.
#[derive(Clone, Debug)]
pub struct NewAttempt<'a> {
    pub session: i64,
    pub kind: StepKind,
    pub key: Key,
    /// Counted from 0; 0 for what is not repeated.
    pub round: u32,
    /// The cell, machine and version for which it was run. Other cells with the same key share
    /// the result.
    pub cell: &'a str,
    pub machine: &'a str,
    pub version: &'a str,
    /// Milliseconds since 1970-01-01 UTC.
    pub started_ms: i64,
    pub duration: Duration,
    pub outcome: AttemptOutcome,
    /// Why it is not ok, else empty. Cut to [`NOTE_BYTES_MAX`].
    pub reason: &'a str,
    /// From [`Store::put_environment`].
    pub environment: Option<Key>,
    /// What the programs printed; kept compressed, its middle left out beyond [`LOG_BYTES_MAX`].
    pub log: Option<&'a [u8]>,
}

/// One value of an attempt that is ok, under the matrix's name for the metric.
#[derive(Clone, Debug, PartialEq)]
pub struct NewReading<'a> {
    pub metric: &'a str,
    /// Finite.
    pub value: f64,
    pub unit: &'a str,
    /// None where nobody has said.
    pub better: Option<Better>,
}

/// What became of a recorded attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is on the disk.
    New(AttemptId),
    /// That round of that key was done before: nothing was changed.
    AlreadyDone,
}

/// Row of a metric. The same name with another unit or direction is another metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetricId(pub u32);

/// What was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    pub id: MetricId,
    pub name: String,
    pub unit: String,
    /// None where nobody had said.
    pub better: Option<Better>,
}

/// A sample with what it belongs to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoredSample {
    pub key: Key,
    pub metric: MetricId,
    pub sample: Sample,
    /// For [`Store::environment`].
    pub environment: Option<Key>,
}

impl Store {
    /// Opens the store of a state folder; makes both where there is none.
    /// Errors: see [`StoreErrorKind`]. A database that cannot be opened is left as it is.
    pub fn open(state: &Path) -> Result<Store, StoreError> {
        fs::create_dir_all(state).map_err(|error| StoreError::io(state, error))?;
        Store::open_with(state, true, open::MIGRATIONS)
    }

    /// Opens the store of a state folder; `StoreErrorKind::Missing` where there is none.
    pub fn open_existing(state: &Path) -> Result<Store, StoreError> {
        Store::open_with(state, false, open::MIGRATIONS)
    }

    fn open_with(state: &Path, create: bool, migrations: &[&str]) -> Result<Store, StoreError> {
        let file = state.join("matrix.db");
        Ok(Store {
            db: open::open(&file, create, migrations)?,
            state: state.to_owned(),
            file,
        })
    }

    /// A writer for this store, with a connection of its own.
    pub fn writer(&self) -> Result<Writer, StoreError> {
        Writer::start(self.another()?).map_err(|error| StoreError::io(&self.state, error))
    }

    /// The same store through another connection.
    pub fn another(&self) -> Result<Store, StoreError> {
        Store::open_existing(&self.state)
    }

    /// Reads the whole database and reports the first problems as `StoreErrorKind::Damaged`.
    /// Slow: some 20 s for 10^6 attempts (360 MB).
    pub fn integrity(&self) -> Result<(), StoreError> {
        open::integrity(&self.db, &self.file)
    }

    /// Saves what is open as another file, after [`StoreErrorKind::Lost`], and these results with it; returns
    /// the error to tell.
    fn rescue(&self, lost: StoreError, records: &[Record]) -> StoreError {
        let saved = open::rescue(&self.db, &self.file).and_then(|file| {
            let mut store = Store {
                db: open::open(&file, false, open::MIGRATIONS)?,
                state: self.state.clone(),
                file: file.clone(),
            };
            store.record_all(records)?;
            Ok(file)
        });
        let detail = match saved {
            Ok(file) => format!("its results were saved as `{}`", file.display()),
            Err(error) => format!("its results could not be saved: {error}"),
        };
        StoreError { detail, ..lost }
    }

    fn sqlite<T>(&self, result: rusqlite::Result<T>) -> Result<T, StoreError> {
        result.map_err(|error| StoreError::sqlite(&self.file, error))
    }

    fn invalid(&self, detail: impl Into<String>) -> StoreError {
        StoreError::new(&self.file, StoreErrorKind::Invalid, detail)
    }
}
