//! Series: the samples of one metric of one cell over all its versions, and where versions stand.

use std::collections::{BTreeSet, HashMap};

use rusqlite::{Connection, OptionalExtension, params};

use super::points::{SessionPoint, SessionPoints};
use super::{AttemptId, MetricId, Store, StoreError};
use crate::base::key::Key;

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub struct SessionSpan<'a> {
    pub matrix: &'a str,
    /// A preset that was not named is recorded as an empty one.
    pub presets: [&'a str; 2],
    pub metrics: &'a BTreeSet<MetricId>,
    /// Only the last so many sessions of them.
    pub sessions: u32,
    /// Of these the latest that have no more samples together.
    pub samples_max: usize,
    /// Whether what is read row by row is returned, for [`Store::save_points`]; of sessions that have ended only.
    pub is_kept: bool,
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

/// What one session measured of one metric of one run step.
#[derive(Clone, Debug, PartialEq)]
pub struct PastPoint<'a> {
    /// The last one.
    pub attempt: AttemptId,
    /// As it was recorded, with its version where there were several.
    pub cell: &'a str,
    /// Points of a session with the same number are of the same cell.
    pub cell_number: usize,
    pub machine: &'a str,
    pub version: &'a str,
    pub metric: MetricId,
    pub key: Key,
    pub session: i64,
    /// When the first run was started: milliseconds since 1970-01-01 UTC.
    pub started_ms: i64,
    /// In the order in which they were taken.
    pub values: Vec<f64>,
    /// Of the first one that tells it; for [`Store::environment`].
    pub environment: Option<Key>,
}

/// The points of sessions that have ended and were read row by row, for [`Store::save_points`].
#[derive(Debug, Default)]
pub struct Unsaved(Vec<(i64, Vec<u8>)>);

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

    /// What a matrix's sessions measured, each in the order of its runs. Only what was run for a cell itself: what it
    /// shares with others by key is theirs. A session that was read before is read in one piece.
    pub fn past(
        &self,
        span: &SessionSpan,
        mut on_point: impl FnMut(PastPoint),
    ) -> Result<Unsaved, StoreError> {
        let mut read = || -> rusqlite::Result<Unsaved> {
            // One snapshot for all.
            let snapshot = self.db.unchecked_transaction()?;
            let [preset, other] = span.presets;
            let mut statement = snapshot.prepare_cached(
                "SELECT session.id, session.ended_ms IS NOT NULL, session_points.points
                 FROM (SELECT id, ended_ms FROM session
                       WHERE matrix = ?1 AND preset IN (?2, ?3) ORDER BY id DESC LIMIT ?4) AS session
                 LEFT JOIN session_points ON session_points.session = session.id
                 ORDER BY session.id DESC",
            )?;
            let mut rows = statement.query(params![span.matrix, preset, other, span.sessions])?;
            let mut unsaved = Unsaved::default();
            let (mut latest, mut samples) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                let (session, has_ended): (i64, bool) = (row.get(0)?, row.get(1)?);
                let saved = row.get_ref(2)?.as_blob_or_null()?;
                let saved = saved.and_then(SessionPoints::decode);
                let mut all = match saved.filter(|all| all.metrics.is_superset(span.metrics)) {
                    Some(all) => all,
                    None => {
                        let all = points_of_session(&snapshot, session, span.metrics)?;
                        // Nothing is added to one that has ended.
                        if has_ended && span.is_kept {
                            unsaved.0.push((session, all.encode()));
                        }
                        all
                    }
                };
                all.points
                    .retain(|point| span.metrics.contains(&point.metric));
                samples += all.points.iter().map(|it| it.values.len()).sum::<usize>();
                if samples > span.samples_max {
                    break;
                }
                latest.push((session, all));
            }
            while let Some((session, all)) = latest.pop() {
                let text = |n: u32| all.texts[n as usize].as_str();
                for point in all.points {
                    on_point(PastPoint {
                        attempt: point.attempt,
                        cell: text(point.cell),
                        cell_number: point.cell as usize,
                        machine: text(point.machine),
                        version: text(point.version),
                        metric: point.metric,
                        key: point.key,
                        session,
                        started_ms: point.started_ms,
                        values: point.values,
                        environment: point.environment,
                    });
                }
            }
            Ok(unsaved)
        };
        self.sqlite(read())
    }

    /// Keeps what was read row by row, so that it is read in one piece the next time. What cannot be kept is read row
    /// by row again: nothing is lost.
    pub fn save_points(&self, unsaved: &Unsaved) {
        let write = || {
            let transaction = self.db.unchecked_transaction()?;
            for (session, points) in &unsaved.0 {
                let insert = "INSERT OR REPLACE INTO session_points VALUES (?1, ?2)";
                // A piece may be larger than SQLite allows: the others are kept.
                let _ = transaction
                    .prepare_cached(insert)?
                    .execute(params![session, points]);
            }
            transaction.commit()
        };
        let _: rusqlite::Result<()> = write();
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

/// The points of a session, from its samples.
fn points_of_session(
    db: &Connection,
    session: i64,
    metrics: &BTreeSet<MetricId>,
) -> rusqlite::Result<SessionPoints> {
    let mut statement = db.prepare_cached(
        "SELECT attempt.id, attempt.cell, attempt.machine, attempt.version, sample.metric,
                attempt.key, attempt.started_ms, sample.value, attempt.environment
         FROM attempt
         CROSS JOIN sample ON sample.key = attempt.key AND sample.round = attempt.round
                          AND sample.attempt = attempt.id
         WHERE attempt.session = ?1 AND attempt.kind = 'run'
         ORDER BY attempt.id",
    )?;
    let mut all = SessionPoints {
        metrics: metrics.clone(),
        ..SessionPoints::default()
    };
    let mut numbers: HashMap<String, u32> = HashMap::new();
    let mut places: HashMap<(u32, u32, Key, MetricId), usize> = HashMap::new();
    let mut rows = statement.query([session])?;
    while let Some(row) = rows.next()? {
        let (metric, key): (MetricId, Key) = (row.get(4)?, row.get(5)?);
        if !metrics.contains(&metric) {
            continue;
        }
        let mut number = |column| -> rusqlite::Result<u32> {
            let text = row.get_ref(column)?.as_str()?;
            if let Some(number) = numbers.get(text) {
                return Ok(*number);
            }
            let number = numbers.len() as u32;
            numbers.insert(text.to_owned(), number);
            all.texts.push(text.to_owned());
            Ok(number)
        };
        let (cell, machine, version) = (number(1)?, number(2)?, number(3)?);
        let place = places.entry((cell, machine, key, metric));
        let place = *place.or_insert(all.points.len());
        if place == all.points.len() {
            all.points.push(SessionPoint {
                cell,
                machine,
                version,
                metric,
                key,
                started_ms: row.get(6)?,
                attempt: row.get(0)?,
                environment: None,
                values: Vec::new(),
            });
        }
        let point = &mut all.points[place];
        point.attempt = row.get(0)?;
        point.environment = point.environment.or(row.get(8)?);
        point.values.push(row.get(7)?);
    }
    Ok(all)
}
