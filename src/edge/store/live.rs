//! The journal of set-ups that are up: what has to be undone if this process dies.

use rusqlite::params;

use super::{Store, StoreError};

/// Largest description of what has to be undone.
pub const LIVE_BYTES_MAX: usize = 1 << 20;

/// A set-up that was begun and not torn down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSetup {
    pub id: i64,
    pub session: i64,
    /// [`super::SessionStart::process`] of the session: tells whether it is alive.
    pub process: String,
    pub machine: String,
    /// As given to [`Store::live_begin`]: JSON with undo commands and folders.
    pub what: String,
}

impl Store {
    /// Notes, before a set-up is begun, what will undo it. Returns the entry's id.
    pub fn live_begin(&self, session: i64, machine: &str, what: &str) -> Result<i64, StoreError> {
        self.check_name("machine", machine)?;
        if what.len() > LIVE_BYTES_MAX {
            let size = what.len();
            return Err(self.invalid(format!(
                "{size} bytes to undo a set-up; the limit is {LIVE_BYTES_MAX}"
            )));
        }
        self.sqlite(self.db.execute(
            "INSERT INTO live (session, machine, what) VALUES (?1, ?2, ?3)",
            params![session, machine, what],
        ))?;
        Ok(self.db.last_insert_rowid())
    }

    /// The set-up is torn down. Fine when the entry is gone already.
    pub fn live_end(&self, id: i64) -> Result<(), StoreError> {
        self.sqlite(self.db.execute("DELETE FROM live WHERE id = ?1", [id]))?;
        Ok(())
    }

    /// The set-ups of sessions for which `is_dead(session, process)`, the latest first: the order in
    /// which to undo them.
    pub fn live_left_by(
        &self,
        is_dead: impl Fn(i64, &str) -> bool,
    ) -> Result<Vec<LiveSetup>, StoreError> {
        let read = || -> rusqlite::Result<Vec<LiveSetup>> {
            self.db
                .prepare_cached(
                    "SELECT live.id, live.session, session.process, live.machine, live.what
                     FROM live JOIN session ON session.id = live.session
                     ORDER BY live.id DESC",
                )?
                .query_map([], |row| {
                    Ok(LiveSetup {
                        id: row.get(0)?,
                        session: row.get(1)?,
                        process: row.get(2)?,
                        machine: row.get(3)?,
                        what: row.get(4)?,
                    })
                })?
                .collect()
        };
        let mut left = self.sqlite(read())?;
        left.retain(|live| is_dead(live.session, &live.process));
        Ok(left)
    }
}
