//! All samples of a matrix, one after the other, with what belongs to each.

use rusqlite::params;

use super::{Store, StoreError};

/// A stored sample in plain words. What is not known is empty.
#[derive(Clone, Debug)]
pub struct ExportedSample {
    pub session: i64,
    /// As it was recorded.
    pub cell: String,
    pub machine: String,
    pub version: String,
    pub commit: String,
    /// Start of the run, ISO 8601, UTC.
    pub taken_at: String,
    pub round: u32,
    pub metric: String,
    pub unit: String,
    pub value: f64,
    /// 32 hexadecimal digits.
    pub environment: String,
    /// Why it is to be read with care: `noisy: …`, `knob: …`.
    pub marks: String,
}

impl Store {
    /// The names of the cells that a matrix has run, and its last attempt: how far [`Store::export`] is to read.
    pub fn exported_cells(&self, matrix: &str) -> Result<(Vec<String>, i64), StoreError> {
        let read = || -> rusqlite::Result<(Vec<String>, i64)> {
            let mut statement = self.db.prepare(
                "SELECT attempt.cell, max(attempt.id) FROM session
                 JOIN attempt ON attempt.session = session.id AND attempt.kind = 'run'
                 WHERE session.matrix = ?1 GROUP BY attempt.cell ORDER BY min(attempt.id)",
            )?;
            let mut rows = statement.query(params![matrix])?;
            let (mut cells, mut last) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                cells.push(row.get(0)?);
                last = last.max(row.get(1)?);
            }
            Ok((cells, last))
        };
        self.sqlite(read())
    }

    /// Calls `on_sample` with each sample of a matrix up to an attempt, by session and attempt, until it says false.
    pub fn export(
        &self,
        matrix: &str,
        last: i64,
        mut on_sample: impl FnMut(ExportedSample) -> bool,
    ) -> Result<(), StoreError> {
        let mut read = || -> rusqlite::Result<()> {
            // The order of the joins is that of the result: nothing is sorted.
            let mut statement = self.db.prepare(
                "SELECT attempt.session, attempt.cell, attempt.machine, attempt.version,
                        coalesce(version_commit.commit_id, ''),
                        coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', attempt.started_ms / 1000.0, 'unixepoch'), ''),
                        sample.round, metric.name, metric.unit, sample.value,
                        coalesce(lower(hex(attempt.environment)), ''),
                        coalesce((SELECT group_concat(mark.kind || ': ' || mark.what, '; ') FROM mark
                                  WHERE mark.attempt = attempt.id), '')
                 FROM session
                 CROSS JOIN attempt ON attempt.session = session.id AND attempt.kind = 'run'
                 CROSS JOIN sample ON sample.key = attempt.key AND sample.round = attempt.round
                                  AND sample.attempt = attempt.id
                 CROSS JOIN metric ON metric.id = sample.metric
                 LEFT JOIN version_commit ON version_commit.session = attempt.session
                                         AND version_commit.version = attempt.version
                 WHERE session.matrix = ?1 AND attempt.id <= ?2
                 ORDER BY session.id, attempt.id",
            )?;
            let mut rows = statement.query(params![matrix, last])?;
            while let Some(row) = rows.next()? {
                let sample = ExportedSample {
                    session: row.get(0)?,
                    cell: row.get(1)?,
                    machine: row.get(2)?,
                    version: row.get(3)?,
                    commit: row.get(4)?,
                    taken_at: row.get(5)?,
                    round: row.get(6)?,
                    metric: row.get(7)?,
                    unit: row.get(8)?,
                    value: row.get(9)?,
                    environment: row.get(10)?,
                    marks: row.get(11)?,
                };
                if !on_sample(sample) {
                    break;
                }
            }
            Ok(())
        };
        self.sqlite(read())
    }
}
