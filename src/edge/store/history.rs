//! Owns series: the samples of one metric of one cell over all its versions, and where versions stand.
//! Does not know what a change point is, nor git.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, params};

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

/// Where a state of the subject stands in a series: a commit by its place in the subject's history, all else
/// when it was first measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Milliseconds since 1970-01-01 UTC; of a commit its date, never before that of its first parent.
    pub ms: i64,
    /// Commits on its first-parent line; 0 of what is none.
    pub depth: i64,
}

/// What a version's label meant in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionCommit {
    pub session: i64,
    pub version: String,
    pub commit: String,
    pub position: Position,
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

    /// When something was first measured, in milliseconds since 1970-01-01 UTC, and where it stands in its series.
    pub fn first_measured(&self, key: Key) -> Result<Option<(i64, Position)>, StoreError> {
        let sql = "SELECT started_ms, coalesce(position_ms, started_ms), coalesce(depth, 0)
                   FROM attempt LEFT JOIN version_commit USING (session, version)
                   WHERE key = ?1 AND outcome = 'ok' ORDER BY id LIMIT 1";
        let read = || {
            let mut statement = self.db.prepare_cached(sql)?;
            let row = statement.query_row([key], |row| {
                let (ms, depth) = (row.get(1)?, row.get(2)?);
                Ok((row.get(0)?, Position { ms, depth }))
            });
            row.optional()
        };
        self.sqlite(read())
    }

    /// Which commits the versions of a matrix's sessions were, where that was noted and is placed.
    pub fn commits(&self, matrix: &str) -> Result<Vec<VersionCommit>, StoreError> {
        let read = || {
            self.db
                .prepare_cached(
                    "SELECT session, version, commit_id, position_ms, depth
                     FROM version_commit JOIN session ON session.id = session
                     WHERE matrix = ?1 AND position_ms IS NOT NULL",
                )?
                .query_map([matrix], |row| {
                    Ok(VersionCommit {
                        session: row.get(0)?,
                        version: row.get(1)?,
                        commit: row.get(2)?,
                        position: Position {
                            ms: row.get(3)?,
                            depth: row.get(4)?,
                        },
                    })
                })?
                .collect()
        };
        self.sqlite(read())
    }

    /// Notes which commits the versions of a session are, by label, and where they stand. Earlier ones of which that
    /// was not known are given their place too.
    pub fn put_commits(
        &self,
        session: i64,
        versions: &[(&str, &str)],
        positions: &HashMap<String, Position>,
    ) -> Result<(), StoreError> {
        for (label, _) in versions {
            self.check_name("version", label)?;
        }
        let write = || {
            let transaction = self.db.unchecked_transaction()?;
            for (label, commit) in versions {
                transaction
                    .prepare_cached(
                        "INSERT INTO version_commit (session, version, commit_id) VALUES (?1, ?2, ?3)",
                    )?
                    .execute(params![session, label, commit])?;
            }
            let open: Vec<String> = transaction
                .prepare_cached(
                    "SELECT DISTINCT commit_id FROM version_commit WHERE position_ms IS NULL",
                )?
                .query_map([], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            for commit in open {
                if let Some(Position { ms, depth }) = positions.get(&commit) {
                    transaction
                        .prepare_cached(
                            "UPDATE version_commit SET position_ms = ?2, depth = ?3
                             WHERE commit_id = ?1 AND position_ms IS NULL",
                        )?
                        .execute(params![commit, ms, depth])?;
                }
            }
            transaction.commit()
        };
        self.sqlite(write())
    }
}
