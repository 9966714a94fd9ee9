//! What was found about series: it stands from session to session until something ends it.

use rusqlite::params;

use super::{SeriesId, Store, StoreError};
use crate::base::key::Key;

/// A change of a series between two versions.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesFinding {
    pub series: SeriesId,
    /// Keys of baseline and candidate.
    pub keys: [Key; 2],
    /// Their names.
    pub versions: [String; 2],
    /// Else it is suspected.
    pub is_confirmed: bool,
    /// ln(candidate / baseline).
    pub shift: f64,
}

/// A finding that no later session has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenFinding {
    pub id: i64,
    pub finding: SeriesFinding,
    /// The session that found it, and when that began: milliseconds since 1970-01-01 UTC.
    pub session: i64,
    pub found_ms: i64,
}

/// What a session changes about findings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FindingChanges {
    pub found: Vec<SeriesFinding>,
    /// Open findings that end, by number.
    pub ended: Vec<i64>,
}

impl Store {
    /// The open findings about a matrix under one preset, the oldest first.
    pub fn open_findings(
        &self,
        matrix: &str,
        preset: &str,
    ) -> Result<Vec<OpenFinding>, StoreError> {
        let read = || {
            self.db
                .prepare_cached(
                    "SELECT finding.id, machine, cell, metric, baseline, candidate, baseline_version,
                            candidate_version, confirmed, shift, session, started_ms
                     FROM series_finding AS finding JOIN session ON session.id = finding.session
                     WHERE finding.matrix = ?1 AND finding.preset = ?2 AND ended IS NULL
                     ORDER BY finding.id",
                )?
                .query_map([matrix, preset], |row| {
                    let finding = SeriesFinding {
                        series: SeriesId {
                            machine: row.get(1)?,
                            cell: row.get(2)?,
                            metric: row.get(3)?,
                        },
                        keys: [row.get(4)?, row.get(5)?],
                        versions: [row.get(6)?, row.get(7)?],
                        is_confirmed: row.get(8)?,
                        shift: row.get(9)?,
                    };
                    Ok(OpenFinding {
                        id: row.get(0)?,
                        finding,
                        session: row.get(10)?,
                        found_ms: row.get(11)?,
                    })
                })?
                .collect()
        };
        self.sqlite(read())
    }

    /// Notes what the last session of a matrix has found and ended. What it found once is not found again.
    pub fn note_open_findings(
        &self,
        matrix: &str,
        preset: &str,
        changes: &FindingChanges,
    ) -> Result<(), StoreError> {
        let write = || {
            let transaction = self.db.unchecked_transaction()?;
            for id in &changes.ended {
                transaction
                    .prepare_cached(
                        "UPDATE series_finding SET ended = (SELECT max(id) FROM session WHERE matrix = ?2)
                         WHERE id = ?1",
                    )?
                    .execute(params![id, matrix])?;
            }
            for found in &changes.found {
                let SeriesId {
                    machine,
                    cell,
                    metric,
                } = &found.series;
                transaction
                    .prepare_cached(
                        "INSERT OR IGNORE INTO series_finding
                             (matrix, preset, machine, cell, metric, baseline, candidate,
                              baseline_version, candidate_version, confirmed, shift, session)
                         SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, max(id)
                         FROM session WHERE matrix = ?1 HAVING max(id) IS NOT NULL",
                    )?
                    .execute(params![
                        matrix,
                        preset,
                        machine,
                        cell,
                        metric,
                        found.keys[0],
                        found.keys[1],
                        found.versions[0],
                        found.versions[1],
                        found.is_confirmed,
                        found.shift,
                    ])?;
            }
            transaction.commit()
        };
        self.sqlite(write())
    }
}
