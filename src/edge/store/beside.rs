//! What was beside a measurement: marks of doubtful samples, outputs and values of monitors.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use rusqlite::{Connection, OptionalExtension, params};

use super::{AttemptId, Store, StoreError, logs};
use crate::base::key::Key;
use crate::base::sample::Sample;

/// Values of all monitors of one attempt.
pub const MONITOR_VALUES_MAX: usize = 10_000;

// Statements of `for_keys`.

const MARKS: &str = "SELECT done.key, mark.kind, mark.what
     FROM done CROSS JOIN mark ON mark.attempt = done.attempt
     WHERE done.key BETWEEN ?1 AND ?2 ORDER BY done.key, done.round";

const VALUES: &str =
    "SELECT done.key, monitor.name, done.round, attempt.session, monitor_value.value
     FROM done CROSS JOIN attempt ON attempt.id = done.attempt
          CROSS JOIN monitor_value ON monitor_value.attempt = done.attempt
          CROSS JOIN monitor ON monitor.id = monitor_value.monitor
     WHERE done.key BETWEEN ?1 AND ?2 ORDER BY done.key, done.round";

/// Between what is said of one mark.
pub const MARK_SEPARATOR: &str = "; ";

/// All that was beside one attempt.
#[derive(Clone, Debug, Default)]
pub struct SampleContext {
    /// At most one of each kind counts.
    pub marks: Vec<SampleMark>,
    pub monitors: Vec<Monitored>,
}

/// Why a sample is to be read with care.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleMark {
    pub kind: MarkKind,
    /// For people.
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MarkKind {
    /// The machine was not quiet just before.
    Noisy,
    /// Somebody changed a knob of the profile.
    Knob,
}

impl MarkKind {
    pub fn name(self) -> &'static str {
        match self {
            MarkKind::Noisy => "noisy",
            MarkKind::Knob => "knob",
        }
    }
}

/// What one monitor gave during one measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Monitored {
    pub name: String,
    /// What it printed; kept compressed, where there is any.
    pub output: Vec<u8>,
    /// Means, by a name that is the same in all measurements: `vmstat.cs`.
    pub values: Vec<(String, f64)>,
}

impl Store {
    /// Calls `on_mark` with each mark of the finished rounds of the keys, which must ascend strictly.
    pub fn for_each_mark(
        &self,
        keys: &[Key],
        mut on_mark: impl FnMut(Key, SampleMark),
    ) -> Result<(), StoreError> {
        self.for_keys(keys, MARKS, |index, row| {
            let (kind, what) = (row.get(1)?, row.get(2)?);
            on_mark(keys[index], SampleMark { kind, what });
            Ok(())
        })
    }

    /// Calls `on_value` with each monitor's name and value in the finished rounds of the keys, which
    /// must ascend strictly.
    pub fn for_each_monitor_value(
        &self,
        keys: &[Key],
        mut on_value: impl FnMut(Key, String, Sample),
    ) -> Result<(), StoreError> {
        self.for_keys(keys, VALUES, |index, row| {
            let sample = Sample {
                round: row.get(2)?,
                session: row.get(3)?,
                value: row.get(4)?,
            };
            on_value(keys[index], row.get(1)?, sample);
            Ok(())
        })
    }
}

/// Compressed outputs, made before the transaction: that is slow.
pub(super) fn compress(beside: &SampleContext) -> std::io::Result<Vec<Vec<u8>>> {
    let outputs = beside.monitors.iter().map(|monitor| &monitor.output);
    outputs.map(|output| logs::compress(output)).collect()
}

pub(super) fn insert(
    db: &Connection,
    AttemptId(attempt): AttemptId,
    beside: &SampleContext,
    outputs: &[Vec<u8>],
) -> rusqlite::Result<()> {
    for mark in &beside.marks {
        db.prepare_cached("INSERT OR IGNORE INTO mark (attempt, kind, what) VALUES (?1, ?2, ?3)")?
            .execute(params![attempt, mark.kind.name(), mark.what])?;
    }
    for (monitor, output) in beside.monitors.iter().zip(outputs) {
        if !monitor.output.is_empty() {
            db.prepare_cached(
                "INSERT INTO monitor_output (attempt, name, gzip) VALUES (?1, ?2, ?3)",
            )?
            .execute(params![attempt, monitor.name, output])?;
        }
        for (name, value) in &monitor.values {
            let id = monitor_id(db, name)?;
            db.prepare_cached(
                "INSERT OR IGNORE INTO monitor_value (attempt, monitor, value) VALUES (?1, ?2, ?3)",
            )?
            .execute(params![attempt, id, value])?;
        }
    }
    Ok(())
}

fn monitor_id(db: &Connection, name: &str) -> rusqlite::Result<i64> {
    let known = db
        .prepare_cached("SELECT id FROM monitor WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()?;
    match known {
        Some(id) => Ok(id),
        None => db
            .prepare_cached("INSERT INTO monitor (name) VALUES (?1) RETURNING id")?
            .query_row([name], |row| row.get(0)),
    }
}

impl FromSql for MarkKind {
    fn column_result(value: ValueRef) -> FromSqlResult<MarkKind> {
        let name = value.as_str()?;
        let kinds = [MarkKind::Noisy, MarkKind::Knob];
        let found = kinds.into_iter().find(|kind| kind.name() == name);
        found.ok_or(FromSqlError::InvalidType)
    }
}
