//! The changes that comparisons of a matrix found, each from the session that found it first until it was gone.

use rusqlite::{Row, params};

use super::{Store, StoreError};

/// Findings that one session may note.
pub const FINDINGS_MAX: usize = 100_000;

/// What a change is known by from one session to the next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FindingId {
    pub axis: String,
    /// Without the compared axis.
    pub cell: String,
    pub metric: String,
    /// `baseline → candidate`; empty on the axis `version`, where each night has other versions.
    pub sides: String,
}

/// A change that a comparison found.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredFinding {
    pub id: FindingId,
    /// Else an improvement.
    pub is_regression: bool,
    /// The session that found it first, the last one that did, and the one that did not any more.
    pub since: i64,
    pub seen: i64,
    pub gone: Option<i64>,
    /// As they were when it was seen last.
    pub baseline: String,
    pub candidate: String,
    /// Candidate / baseline.
    pub ratio: Option<f64>,
    /// The median of the baseline.
    pub level: Option<f64>,
}

/// What a session has to say of one finding.
#[derive(Clone, Debug)]
pub enum FindingNote {
    /// It was found.
    Found(StoredFinding),
    /// It was looked for, and not found.
    Gone(FindingId),
}

const COLUMNS: &str =
    "axis, cell, metric, sides, verdict, since, seen, gone, baseline, candidate, ratio, level";

impl Store {
    /// The findings of a matrix that stand, and those that a session found gone.
    pub fn findings(
        &self,
        matrix: &str,
        preset: &str,
        gone_in: i64,
    ) -> Result<Vec<StoredFinding>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM finding WHERE matrix = ?1 AND preset = ?2 AND (gone IS NULL OR gone = ?3) ORDER BY id"
        );
        let read = || {
            self.db
                .prepare_cached(&sql)?
                .query_map(params![matrix, preset, gone_in], stored)?
                .collect()
        };
        self.sqlite(read())
    }

    /// Notes what a session found of a matrix. A change in the other direction than before is a new finding.
    pub fn note_findings(
        &self,
        matrix: &str,
        preset: &str,
        session: i64,
        notes: &[FindingNote],
    ) -> Result<(), StoreError> {
        if notes.len() > FINDINGS_MAX {
            return Err(self.invalid(format!("more than {FINDINGS_MAX} findings in one session")));
        }
        const WHERE: &str =
            "matrix = ?1 AND preset = ?2 AND axis = ?3 AND cell = ?4 AND metric = ?5
                             AND sides = ?6 AND gone IS NULL";
        let end = format!("UPDATE finding SET gone = ?7 WHERE {WHERE} AND verdict <> ?8");
        let renew = format!(
            "UPDATE finding SET seen = ?7, baseline = ?8, candidate = ?9, ratio = ?10, level = ?11 WHERE {WHERE}"
        );
        let write = || {
            let transaction = self.db.unchecked_transaction()?;
            for note in notes {
                let (id, found) = match note {
                    FindingNote::Found(found) => (&found.id, Some(found)),
                    FindingNote::Gone(id) => (id, None),
                };
                let FindingId {
                    axis,
                    cell,
                    metric,
                    sides,
                } = id;
                let verdict = found.map_or("", |found| verdict(found.is_regression));
                transaction.prepare_cached(&end)?.execute(params![
                    matrix, preset, axis, cell, metric, sides, session, verdict
                ])?;
                let Some(found) = found else { continue };
                let StoredFinding {
                    baseline,
                    candidate,
                    ratio,
                    level,
                    ..
                } = found;
                let renewed = transaction.prepare_cached(&renew)?.execute(params![
                    matrix, preset, axis, cell, metric, sides, session, baseline, candidate, ratio,
                    level
                ])?;
                if renewed == 0 {
                    transaction
                        .prepare_cached(
                            "INSERT INTO finding (matrix, preset, axis, cell, metric, sides, verdict, since, seen,
                                                  baseline, candidate, ratio, level)
                             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9, ?10, ?11, ?12)",
                        )?
                        .execute(params![
                            matrix, preset, axis, cell, metric, sides, verdict, session, baseline,
                            candidate, ratio, level
                        ])?;
                }
            }
            transaction.commit()
        };
        self.sqlite(write())
    }
}

fn verdict(is_regression: bool) -> &'static str {
    match is_regression {
        true => "regression",
        false => "improvement",
    }
}

fn stored(row: &Row) -> rusqlite::Result<StoredFinding> {
    Ok(StoredFinding {
        id: FindingId {
            axis: row.get(0)?,
            cell: row.get(1)?,
            metric: row.get(2)?,
            sides: row.get(3)?,
        },
        is_regression: row.get::<_, String>(4)? == "regression",
        since: row.get(5)?,
        seen: row.get(6)?,
        gone: row.get(7)?,
        baseline: row.get(8)?,
        candidate: row.get(9)?,
        ratio: row.get(10)?,
        level: row.get(11)?,
    })
}
