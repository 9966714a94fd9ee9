//! What is known of a session: when it ran, with which preset, seed and command line.

use rusqlite::{Row, params};

use super::{Store, StoreError};
use crate::base::key::Key;

/// A session as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    pub id: i64,
    /// Milliseconds since 1970-01-01 UTC.
    pub started_ms: i64,
    /// None: it runs, or it died.
    pub ended_ms: Option<i64>,
    /// Empty where none was named.
    pub preset: String,
    pub seed: u64,
    /// The command line.
    pub arguments: String,
    pub program_version: String,
    /// Such as `ok` or `interrupted`.
    pub outcome: Option<String>,
}

const COLUMNS: &str = "id, started_ms, ended_ms, preset, seed, arguments, program_version, outcome";

impl Store {
    /// The latest sessions of a matrix under a preset, the latest first. `presets`: both its names (one that was not named is
    /// recorded as an empty one).
    pub fn latest_sessions(
        &self,
        matrix: &str,
        presets: [&str; 2],
        max: u32,
    ) -> Result<Vec<SessionRecord>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM session WHERE matrix = ?1 AND preset IN (?2, ?3) ORDER BY id DESC LIMIT ?4"
        );
        let read = || {
            self.db
                .prepare_cached(&sql)?
                .query_map(params![matrix, presets[0], presets[1], max], record)?
                .collect()
        };
        self.sqlite(read())
    }

    /// The machines that measured something in a session, with what they were like at last.
    pub fn machines_of(&self, session: i64) -> Result<Vec<(String, Key)>, StoreError> {
        let read = || {
            self.db
                .prepare_cached(
                    "SELECT machine, environment, max(id) FROM attempt
                     WHERE session = ?1 AND kind = 'run' AND environment IS NOT NULL
                     GROUP BY machine ORDER BY machine",
                )?
                .query_map([session], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        };
        self.sqlite(read())
    }
}

fn record(row: &Row) -> rusqlite::Result<SessionRecord> {
    Ok(SessionRecord {
        id: row.get(0)?,
        started_ms: row.get(1)?,
        ended_ms: row.get(2)?,
        preset: row.get(3)?,
        seed: row.get::<_, i64>(4)?.cast_unsigned(),
        arguments: row.get(5)?,
        program_version: row.get(6)?,
        outcome: row.get(7)?,
    })
}
