//! What was said about series: change points told, changes accepted, findings measured again.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, params};

use super::{AttemptId, Store, StoreError};
use crate::base::key::Key;

/// The samples of one metric of one cell over all its versions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesId {
    pub machine: String,
    /// Its name without the version.
    pub cell: String,
    /// The parser's name for it.
    pub metric: String,
}

/// A change point that was told to somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldChange {
    pub id: i64,
    pub series: SeriesId,
    /// Of the first point after the change.
    pub key: Key,
    /// When it was told: milliseconds since 1970-01-01 UTC.
    pub reported_ms: i64,
}

/// A change that somebody accepts: its series count from one of their points on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    pub id: i64,
    /// As the user named it.
    pub what: String,
    pub reason: String,
    pub author: String,
    /// Milliseconds since 1970-01-01 UTC.
    pub accepted_ms: i64,
    /// None while it holds.
    pub undone_ms: Option<i64>,
    pub series: Vec<AcceptedFrom>,
}

/// From where on a series counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedFrom {
    pub series: SeriesId,
    /// Of the first point that counts.
    pub key: Key,
    pub version: String,
    /// When that was first measured: milliseconds since 1970-01-01 UTC.
    pub since_ms: i64,
}

/// A comparison: the keys of both sides and the parser's name for the metric.
pub type Pair = (Key, Key, String);

/// That a comparison is measured again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// The first round that was measured to confirm what the rounds before it showed.
    pub first_round: u32,
    /// No more rounds are wanted.
    pub finished: bool,
}

impl Store {
    /// The change points told, in the order in which they were told, and the attempt up to which the series were
    /// looked through, if ever.
    pub fn told(
        &self,
        matrix: &str,
        preset: &str,
    ) -> Result<(Vec<ToldChange>, Option<AttemptId>), StoreError> {
        let read = || {
            let told = self
                .db
                .prepare_cached(
                    "SELECT id, key, machine, cell, metric, reported_ms FROM change_point
                     WHERE matrix = ?1 AND preset = ?2 ORDER BY id",
                )?
                .query_map([matrix, preset], |row| {
                    Ok(ToldChange {
                        id: row.get(0)?,
                        key: row.get(1)?,
                        reported_ms: row.get(5)?,
                        series: SeriesId {
                            machine: row.get(2)?,
                            cell: row.get(3)?,
                            metric: row.get(4)?,
                        },
                    })
                })?
                .collect::<rusqlite::Result<_>>()?;
            let until = self
                .db
                .prepare_cached(
                    "SELECT attempt FROM looked_through WHERE matrix = ?1 AND preset = ?2",
                )?
                .query_row([matrix, preset], |row| row.get(0))
                .optional()?;
            Ok((told, until))
        };
        self.sqlite(read())
    }

    /// Notes change points that are told now, and how far the series were looked through. Returns
    /// the number of each; one that was told before keeps its own.
    pub fn tell(
        &self,
        matrix: &str,
        preset: &str,
        points: &[(SeriesId, Key)],
        until: AttemptId,
        now_ms: i64,
    ) -> Result<Vec<i64>, StoreError> {
        let write = || {
            let transaction = self.db.unchecked_transaction()?;
            let mut ids = Vec::with_capacity(points.len());
            for (series, key) in points {
                // The update changes nothing; without it there would be no row to return.
                let id = transaction
                    .prepare_cached(
                        "INSERT INTO change_point
                             (matrix, preset, machine, cell, metric, key, reported_ms)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                         ON CONFLICT DO UPDATE SET matrix = excluded.matrix RETURNING id",
                    )?
                    .query_row(
                        params![
                            matrix,
                            preset,
                            series.machine,
                            series.cell,
                            series.metric,
                            key,
                            now_ms
                        ],
                        |row| row.get(0),
                    )?;
                ids.push(id);
            }
            transaction.execute(
                "INSERT INTO looked_through (matrix, preset, attempt) VALUES (?1, ?2, ?3)
                 ON CONFLICT DO UPDATE SET attempt = excluded.attempt",
                params![matrix, preset, until],
            )?;
            transaction.commit()?;
            Ok(ids)
        };
        self.sqlite(write())
    }

    /// Records an acceptance and returns its number; that of `acceptance` is not looked at.
    pub fn accept(&self, matrix: &str, acceptance: &Acceptance) -> Result<i64, StoreError> {
        self.check_name("reason", &acceptance.reason)?;
        self.check_name("author", &acceptance.author)?;
        let write = || {
            let transaction = self.db.unchecked_transaction()?;
            transaction.execute(
                "INSERT INTO acceptance (matrix, what, reason, author, accepted_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
                params![
                    matrix,
                    acceptance.what,
                    acceptance.reason,
                    acceptance.author,
                    acceptance.accepted_ms
                ],
            )?;
            let id = transaction.last_insert_rowid();
            for from in &acceptance.series {
                transaction
                    .prepare_cached(
                        "INSERT INTO accepted_series
                             (acceptance, machine, cell, metric, key, version, since_ms)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                    )?
                    .execute(params![
                        id,
                        from.series.machine,
                        from.series.cell,
                        from.series.metric,
                        from.key,
                        from.version,
                        from.since_ms
                    ])?;
            }
            transaction.commit()?;
            Ok(id)
        };
        self.sqlite(write())
    }

    /// Takes an acceptance back; it stays on record. False: there is none of this number that holds.
    pub fn undo_acceptance(&self, matrix: &str, id: i64, now_ms: i64) -> Result<bool, StoreError> {
        let changed = self.sqlite(self.db.execute(
            "UPDATE acceptance SET undone_ms = ?3
             WHERE id = ?2 AND matrix = ?1 AND undone_ms IS NULL",
            params![matrix, id, now_ms],
        ))?;
        Ok(changed == 1)
    }

    /// All acceptances of a matrix, also those taken back, in the order in which they were made.
    pub fn acceptances(&self, matrix: &str) -> Result<Vec<Acceptance>, StoreError> {
        let read = || {
            let mut list: Vec<Acceptance> = self
                .db
                .prepare_cached(
                    "SELECT id, what, reason, author, accepted_ms, undone_ms FROM acceptance
                     WHERE matrix = ?1 ORDER BY id",
                )?
                .query_map([matrix], |row| {
                    Ok(Acceptance {
                        id: row.get(0)?,
                        what: row.get(1)?,
                        reason: row.get(2)?,
                        author: row.get(3)?,
                        accepted_ms: row.get(4)?,
                        undone_ms: row.get(5)?,
                        series: Vec::new(),
                    })
                })?
                .collect::<rusqlite::Result<_>>()?;
            for acceptance in &mut list {
                acceptance.series = self
                    .db
                    .prepare_cached(
                        "SELECT machine, cell, metric, key, version, since_ms
                         FROM accepted_series WHERE acceptance = ?1",
                    )?
                    .query_map([acceptance.id], |row| {
                        Ok(AcceptedFrom {
                            series: SeriesId {
                                machine: row.get(0)?,
                                cell: row.get(1)?,
                                metric: row.get(2)?,
                            },
                            key: row.get(3)?,
                            version: row.get(4)?,
                            since_ms: row.get(5)?,
                        })
                    })?
                    .collect::<rusqlite::Result<_>>()?;
            }
            Ok(list)
        };
        self.sqlite(read())
    }

    /// Notes which comparisons are measured again, with rounds from `first_round` on.
    pub fn confirming(&self, pairs: &[Pair], first_round: u32) -> Result<(), StoreError> {
        self.note_confirmations(
            pairs,
            "INSERT INTO confirmation (baseline, candidate, metric, first_round, finished)
             VALUES (?1, ?2, ?3, ?4, 0)
             ON CONFLICT DO UPDATE SET first_round = excluded.first_round, finished = 0",
            Some(first_round),
        )
    }

    /// Notes that no more rounds of these comparisons are wanted.
    pub fn confirmed(&self, pairs: &[Pair]) -> Result<(), StoreError> {
        self.note_confirmations(
            pairs,
            "UPDATE confirmation SET finished = 1
             WHERE baseline = ?1 AND candidate = ?2 AND metric = ?3 AND ?4 IS NULL",
            None,
        )
    }

    /// Forgets that comparisons were measured again: their samples are judged anew, all of them.
    pub fn forget_confirmations(&self, pairs: &[Pair]) -> Result<(), StoreError> {
        let write = || {
            let transaction = self.db.unchecked_transaction()?;
            for (baseline, candidate, metric) in pairs {
                transaction
                    .prepare_cached(
                        "DELETE FROM confirmation
                         WHERE baseline = ?1 AND candidate = ?2 AND metric = ?3",
                    )?
                    .execute(params![baseline, candidate, metric])?;
            }
            transaction.commit()
        };
        self.sqlite(write())
    }

    fn note_confirmations(
        &self,
        pairs: &[Pair],
        statement: &str,
        first_round: Option<u32>,
    ) -> Result<(), StoreError> {
        let write = || {
            let transaction = self.db.unchecked_transaction()?;
            for (baseline, candidate, metric) in pairs {
                transaction.prepare_cached(statement)?.execute(params![
                    baseline,
                    candidate,
                    metric,
                    first_round
                ])?;
            }
            transaction.commit()
        };
        self.sqlite(write())
    }

    /// What was measured again, by comparison.
    pub fn confirmations(&self) -> Result<HashMap<Pair, Confirmation>, StoreError> {
        let read = || {
            self.db
                .prepare_cached(
                    "SELECT baseline, candidate, metric, first_round, finished FROM confirmation",
                )?
                .query_map([], |row| {
                    let confirmation = Confirmation {
                        first_round: row.get(3)?,
                        finished: row.get(4)?,
                    };
                    Ok(((row.get(0)?, row.get(1)?, row.get(2)?), confirmation))
                })?
                .collect()
        };
        self.sqlite(read())
    }
}
