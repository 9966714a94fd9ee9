//! Owns series: the samples of one metric of one cell in the order of time.
//! Does not know what a change point is.

use rusqlite::params;

use super::{MetricId, Store, StoreError};
use crate::words::key::Key;
use crate::words::sample::Sample;

/// Most points of one series, the latest ones.
pub const HISTORY_POINTS_MAX: u32 = 100_000;

/// Which series.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    pub matrix: &'a str,
    pub machine: &'a str,
    /// As it was recorded.
    pub cell: &'a str,
    pub metric: MetricId,
}

/// One sample of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// When its run was started: milliseconds since 1970-01-01 UTC.
    pub started_ms: i64,
    pub version: String,
    pub sample: Sample,
    /// For [`Store::environment`].
    pub environment: Option<Key>,
}

impl Store {
    /// The points of a series, the oldest first, at most the latest [`HISTORY_POINTS_MAX`].
    /// Only what was run for this very cell: what it shares with others by key is theirs.
    pub fn history(&self, series: &Series) -> Result<Vec<Point>, StoreError> {
        let read = || -> rusqlite::Result<Vec<Point>> {
            self.db
                .prepare_cached(
                    "SELECT attempt.started_ms, attempt.version, sample.round, attempt.session,
                            sample.value, attempt.environment
                     FROM attempt
                     CROSS JOIN session ON session.id = attempt.session
                     CROSS JOIN sample ON sample.key = attempt.key
                                      AND sample.round = attempt.round
                                      AND sample.attempt = attempt.id
                     WHERE attempt.cell = ?1 AND attempt.machine = ?2
                           AND session.matrix = ?3 AND sample.metric = ?4
                     ORDER BY attempt.started_ms DESC, attempt.id DESC
                     LIMIT ?5",
                )?
                .query_map(
                    params![
                        series.cell,
                        series.machine,
                        series.matrix,
                        series.metric,
                        HISTORY_POINTS_MAX
                    ],
                    |row| {
                        Ok(Point {
                            started_ms: row.get(0)?,
                            version: row.get(1)?,
                            sample: Sample {
                                round: row.get(2)?,
                                session: row.get(3)?,
                                value: row.get(4)?,
                            },
                            environment: row.get(5)?,
                        })
                    },
                )?
                .collect()
        };
        let mut points = self.sqlite(read())?;
        points.reverse();
        Ok(points)
    }
}
