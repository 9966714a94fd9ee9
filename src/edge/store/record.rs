//! Writing: sessions, attempts with their samples, environments.

use std::time::Duration;

use rusqlite::{
    Connection, OptionalExtension, ToSql, TransactionBehavior, params,
    types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef},
};
use serde::de::IgnoredAny;

use super::{
    AttemptId, AttemptOutcome, NewAttempt, NewReading, Recorded, SessionStart, StepKind, Store,
    StoreError,
};
use super::{MONITOR_VALUES_MAX, MetricId, SampleContext, beside, logs};
use crate::base::key::{Key, KeyHasher};
use crate::base::sample::Better;
use crate::base::secret::mask_secrets;

/// Longest name of a cell, machine, version, metric, …
pub const NAME_BYTES_MAX: usize = 4096;
/// Longest free text (reason, command line); what is longer is cut.
pub const NOTE_BYTES_MAX: usize = 16 << 10;
/// Most readings of one attempt.
pub const READINGS_MAX: usize = 10_000;
/// Largest description of an environment, in JSON.
pub const ENVIRONMENT_BYTES_MAX: usize = 1 << 20;

impl Store {
    /// Returns the session's id.
    pub fn begin_session(&self, start: &SessionStart) -> Result<i64, StoreError> {
        self.check_name("matrix", start.matrix)?;
        self.check_name("preset", start.preset)?;
        self.check_name("program version", start.program_version)?;
        self.check_name("process", start.process)?;
        self.sqlite(self.db.execute(
            "INSERT INTO session
                 (started_ms, matrix, preset, seed, arguments, program_version, process)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                start.started_ms,
                start.matrix,
                start.preset,
                start.seed.cast_signed(),
                cut(start.arguments),
                start.program_version,
                start.process
            ],
        ))?;
        Ok(self.db.last_insert_rowid())
    }

    /// `outcome` is a word or two for people. A session without an end is running, or died.
    pub fn end_session(&self, id: i64, ended_ms: i64, outcome: &str) -> Result<(), StoreError> {
        self.check_name("outcome", outcome)?;
        let changed = self.sqlite(self.db.execute(
            "UPDATE session SET ended_ms = ?2, outcome = ?3 WHERE id = ?1",
            params![id, ended_ms, outcome],
        ))?;
        match changed {
            0 => Err(self.invalid(format!("there is no session {id}"))),
            _ => Ok(()),
        }
    }

    /// Records an attempt with its log and readings: all of it or, on an error, nothing. When this
    /// returns it is on the disk. Costs the same however much is stored.
    pub fn record(
        &mut self,
        attempt: &NewAttempt,
        readings: &[NewReading],
    ) -> Result<Recorded, StoreError> {
        let record = self.prepare(attempt, readings, SampleContext::default())?;
        let mut recorded = self.record_all(std::slice::from_ref(&record))?;
        Ok(recorded.remove(0))
    }

    /// Checks an attempt and what belongs to it, and makes it fit for being sent to a [`super::Writer`].
    pub fn prepare(
        &self,
        attempt: &NewAttempt,
        readings: &[NewReading],
        beside: SampleContext,
    ) -> Result<Record, StoreError> {
        self.check_attempt(attempt, readings)?;
        self.check_beside(&beside)?;
        let owned = |reading: &NewReading| OwnReading {
            metric: reading.metric.to_owned(),
            value: reading.value,
            unit: reading.unit.to_owned(),
            better: reading.better,
        };
        Ok(Record {
            session: attempt.session,
            kind: attempt.kind,
            key: attempt.key,
            round: attempt.round,
            cell: attempt.cell.to_owned(),
            machine: attempt.machine.to_owned(),
            version: attempt.version.to_owned(),
            started_ms: attempt.started_ms,
            duration: attempt.duration,
            outcome: attempt.outcome,
            reason: cut(attempt.reason),
            environment: attempt.environment,
            log: attempt.log.map(<[u8]>::to_vec),
            readings: readings.iter().map(owned).collect(),
            beside,
        })
    }

    /// Records several attempts with one sync: all of them or, on an error, none. When this returns
    /// they are on the disk.
    pub fn record_all(&mut self, records: &[Record]) -> Result<Vec<Recorded>, StoreError> {
        let pack = |record: &Record| -> std::io::Result<_> {
            let log = record.log.as_deref().map(logs::pack).transpose()?;
            Ok((log, beside::compress(&record.beside)?))
        };
        // Before the transaction: it is slow, and others wait for the lock.
        let packed: Vec<_> = records
            .iter()
            .map(pack)
            .collect::<std::io::Result<_>>()
            .map_err(|error| StoreError::io(&self.state, error))?;
        let file = &self.file;
        let failed = |error| StoreError::sqlite(file, error);
        // The write lock comes first: a reader that becomes a writer fails when another was faster.
        let transaction = self
            .db
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(failed)?;
        let mut recorded = Vec::with_capacity(records.len());
        for (record, (log, outputs)) in records.iter().zip(&packed) {
            let one = || {
                if record.outcome == AttemptOutcome::Ok && is_done(&transaction, record)? {
                    return Ok(Recorded::AlreadyDone);
                }
                let id = insert(&transaction, record)?;
                beside::insert(&transaction, id, &record.beside, outputs)?;
                if let Some(log) = log {
                    logs::insert(&transaction, id, log)?;
                }
                Ok(Recorded::New(id))
            };
            recorded.push(one().map_err(failed)?);
        }
        transaction.commit().map_err(failed)?;
        Ok(recorded)
    }

    /// Keeps a description of an environment (JSON) and returns its content hash.
    pub fn put_environment(&self, json: &str) -> Result<Key, StoreError> {
        if json.len() > ENVIRONMENT_BYTES_MAX {
            let size = json.len();
            return Err(self.invalid(format!(
                "an environment of {size} bytes; the limit is {ENVIRONMENT_BYTES_MAX}"
            )));
        }
        serde_json::from_str::<IgnoredAny>(json)
            .map_err(|error| self.invalid(format!("an environment that is not JSON: {error}")))?;
        let id = KeyHasher::new("environment").str(json).finish();
        self.sqlite(self.db.execute(
            "INSERT OR IGNORE INTO environment (id, json) VALUES (?1, ?2)",
            params![id, json],
        ))?;
        Ok(id)
    }

    /// The JSON that was put; None for an unknown id.
    pub fn environment(&self, id: Key) -> Result<Option<String>, StoreError> {
        self.sqlite(
            self.db
                .query_row("SELECT json FROM environment WHERE id = ?1", [id], |row| {
                    row.get(0)
                })
                .optional(),
        )
    }

    fn check_attempt(
        &self,
        attempt: &NewAttempt,
        readings: &[NewReading],
    ) -> Result<(), StoreError> {
        self.check_name("cell", attempt.cell)?;
        self.check_name("machine", attempt.machine)?;
        self.check_name("version", attempt.version)?;
        if readings.len() > READINGS_MAX {
            let count = readings.len();
            return Err(self.invalid(format!("{count} readings; the limit is {READINGS_MAX}")));
        }
        if attempt.outcome != AttemptOutcome::Ok && !readings.is_empty() {
            return Err(self.invalid("readings of an attempt that is not ok"));
        }
        for reading in readings {
            self.check_name("metric", reading.metric)?;
            self.check_name("unit", reading.unit)?;
            if !reading.value.is_finite() {
                let NewReading { metric, value, .. } = reading;
                return Err(self.invalid(format!("`{metric}` is {value}")));
            }
        }
        Ok(())
    }

    fn check_beside(&self, beside: &SampleContext) -> Result<(), StoreError> {
        let mut count = 0;
        for monitor in &beside.monitors {
            self.check_name("monitor", &monitor.name)?;
            for (name, value) in &monitor.values {
                self.check_name("monitor", name)?;
                if !value.is_finite() {
                    return Err(self.invalid(format!("`{name}` is {value}")));
                }
            }
            count += monitor.values.len();
        }
        match count > MONITOR_VALUES_MAX {
            true => Err(self.invalid(format!(
                "{count} values of monitors; the limit is {MONITOR_VALUES_MAX}"
            ))),
            false => Ok(()),
        }
    }

    pub(super) fn check_name(&self, what: &str, name: &str) -> Result<(), StoreError> {
        if name.len() <= NAME_BYTES_MAX {
            return Ok(());
        }
        let size = name.len();
        Err(self.invalid(format!(
            "a {what} of {size} bytes; the limit is {NAME_BYTES_MAX}"
        )))
    }
}

/// An attempt that may be recorded, with all that belongs to it.
#[derive(Clone, Debug)]
pub struct Record {
    session: i64,
    kind: StepKind,
    key: Key,
    round: u32,
    cell: String,
    machine: String,
    version: String,
    started_ms: i64,
    duration: Duration,
    outcome: AttemptOutcome,
    reason: String,
    environment: Option<Key>,
    log: Option<Vec<u8>>,
    readings: Vec<OwnReading>,
    beside: SampleContext,
}

impl Record {
    /// Of what is large: the log and the monitors' outputs.
    pub(super) fn bytes(&self) -> usize {
        let monitors = self.beside.monitors.iter();
        let outputs: usize = monitors.map(|monitor| monitor.output.len()).sum();
        self.log.as_ref().map_or(0, Vec::len) + outputs
    }
}

#[derive(Clone, Debug)]
struct OwnReading {
    metric: String,
    value: f64,
    unit: String,
    better: Option<Better>,
}

fn is_done(db: &Connection, record: &Record) -> rusqlite::Result<bool> {
    db.prepare_cached("SELECT 1 FROM done WHERE key = ?1 AND round = ?2")?
        .exists(params![record.key, record.round])
}

fn insert(db: &Connection, record: &Record) -> rusqlite::Result<AttemptId> {
    let Record { key, round, .. } = record;
    db.prepare_cached(
        "INSERT INTO attempt
             (session, kind, key, round, cell, machine, version, started_ms, duration_us,
              outcome, reason, has_log, environment)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?
    .execute(params![
        record.session,
        record.kind.name(),
        key,
        round,
        record.cell,
        record.machine,
        record.version,
        record.started_ms,
        // Saturates after 292,000 years.
        i64::try_from(record.duration.as_micros()).unwrap_or(i64::MAX),
        record.outcome.name(),
        record.reason,
        record.log.is_some(),
        record.environment,
    ])?;
    let id = db.last_insert_rowid();
    if record.outcome == AttemptOutcome::Ok {
        db.prepare_cached("INSERT INTO done (key, round, attempt) VALUES (?1, ?2, ?3)")?
            .execute(params![key, round, id])?;
    }
    for reading in &record.readings {
        let metric = metric_id(db, reading)?;
        db.prepare_cached(
            "INSERT INTO sample (key, round, metric, value, attempt) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![key, round, metric, reading.value, id])?;
    }
    Ok(AttemptId(id))
}

fn metric_id(db: &Connection, reading: &OwnReading) -> rusqlite::Result<MetricId> {
    let name = params![reading.metric, reading.unit, Direction(reading.better)];
    let known = db
        .prepare_cached("SELECT id FROM metric WHERE name = ?1 AND unit = ?2 AND better = ?3")?
        .query_row(name, |row| row.get(0))
        .optional()?;
    match known {
        Some(id) => Ok(id),
        None => db
            .prepare_cached(
                "INSERT INTO metric (name, unit, better) VALUES (?1, ?2, ?3) RETURNING id",
            )?
            .query_row(name, |row| row.get(0)),
    }
}

/// The text up to [`NOTE_BYTES_MAX`], cut at a character.
fn cut(text: &str) -> String {
    let mut text = mask_secrets(text).into_owned();
    text.truncate(text.floor_char_boundary(NOTE_BYTES_MAX));
    text
}

impl ToSql for Key {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(&self.0)))
    }
}

impl FromSql for Key {
    fn column_result(value: ValueRef) -> FromSqlResult<Key> {
        <[u8; 16]>::try_from(value.as_blob()?)
            .map(Key)
            .map_err(|error| FromSqlError::Other(Box::new(error)))
    }
}

impl ToSql for MetricId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for MetricId {
    fn column_result(value: ValueRef) -> FromSqlResult<MetricId> {
        u32::column_result(value).map(MetricId)
    }
}

impl ToSql for AttemptId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for AttemptId {
    fn column_result(value: ValueRef) -> FromSqlResult<AttemptId> {
        i64::column_result(value).map(AttemptId)
    }
}

/// A direction as the database has it.
pub(super) struct Direction(pub(super) Option<Better>);

impl ToSql for Direction {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.map_or("unknown", Better::name).into())
    }
}

impl FromSql for Direction {
    fn column_result(value: ValueRef) -> FromSqlResult<Direction> {
        match value.as_str()? {
            "higher" => Ok(Direction(Some(Better::Higher))),
            "lower" => Ok(Direction(Some(Better::Lower))),
            "unknown" => Ok(Direction(None)),
            _ => Err(FromSqlError::InvalidType),
        }
    }
}
