//! Owns series: the samples of one metric of one cell over all its versions, in the order of time.
//! Does not know what a change point is.

use rusqlite::params;

use super::{AttemptId, MetricId, Store, StoreError};
use crate::words::key::Key;

/// Samples that one look at a matrix's past reads, the latest ones.
pub const PAST_SAMPLES_MAX: u32 = 20_000_000;

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    pub matrix: &'a str,
    /// A preset that was not named is recorded as an empty one.
    pub presets: [&'a str; 2],
    /// Only the last so many sessions of them.
    pub sessions: u32,
}

/// One sample of the past, borrowed from the row that it stands in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PastSample<'a> {
    pub attempt: AttemptId,
    /// As it was recorded, with its version where there were several.
    pub cell: &'a str,
    pub machine: &'a str,
    pub version: &'a str,
    pub metric: MetricId,
    pub key: Key,
    pub session: i64,
    /// When its run was started: milliseconds since 1970-01-01 UTC.
    pub started_ms: i64,
    pub value: f64,
    /// For [`Store::environment`].
    pub environment: Option<Key>,
}

impl Store {
    /// The versions of which anything of a matrix was run lately, the latest first.
    pub fn versions(&self, matrix: &str, max: u32) -> Result<Vec<String>, StoreError> {
        let read = || -> rusqlite::Result<Vec<String>> {
            let mut statement = self.db.prepare(
                "SELECT attempt.version FROM session
                 JOIN attempt ON attempt.session = session.id AND attempt.kind = 'run'
                 WHERE session.matrix = ?1 GROUP BY attempt.version ORDER BY max(attempt.id) DESC LIMIT ?2",
            )?;
            statement
                .query_map(params![matrix, max], |row| row.get(0))?
                .collect()
        };
        self.sqlite(read())
    }

    /// All samples of a matrix in the order in which they were taken.
    /// Only what was run for a cell itself: what it shares with others by key is theirs.
    pub fn past(
        &self,
        span: &Span,
        mut on_sample: impl FnMut(PastSample),
    ) -> Result<(), StoreError> {
        let mut read = || -> rusqlite::Result<()> {
            let [preset, other] = span.presets;
            let wanted = params![span.matrix, preset, other, span.sessions, PAST_SAMPLES_MAX];
            let mut statement = self.db.prepare_cached(
                "SELECT attempt.id, attempt.cell, attempt.machine, attempt.version, sample.metric,
                        attempt.key, attempt.session, attempt.started_ms, sample.value,
                        attempt.environment
                 FROM (SELECT id FROM session
                       WHERE matrix = ?1 AND preset IN (?2, ?3) ORDER BY id DESC LIMIT ?4) AS session
                 CROSS JOIN attempt ON attempt.session = session.id AND attempt.kind = 'run'
                 CROSS JOIN sample ON sample.key = attempt.key AND sample.round = attempt.round
                                  AND sample.attempt = attempt.id
                 ORDER BY attempt.id
                 LIMIT ?5",
            )?;
            let mut rows = statement.query(wanted)?;
            while let Some(row) = rows.next()? {
                on_sample(PastSample {
                    attempt: row.get(0)?,
                    cell: row.get_ref(1)?.as_str()?,
                    machine: row.get_ref(2)?.as_str()?,
                    version: row.get_ref(3)?.as_str()?,
                    metric: row.get(4)?,
                    key: row.get(5)?,
                    session: row.get(6)?,
                    started_ms: row.get(7)?,
                    value: row.get(8)?,
                    environment: row.get(9)?,
                });
            }
            Ok(())
        };
        self.sqlite(read())
    }

    /// When something was first measured: milliseconds since 1970-01-01 UTC.
    pub fn first_measured(&self, key: Key) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT min(started_ms) FROM attempt WHERE key = ?1 AND outcome = 'ok'";
        let read = || {
            self.db
                .prepare_cached(sql)?
                .query_row([key], |row| row.get(0))
        };
        self.sqlite(read())
    }
}
