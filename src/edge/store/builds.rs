//! What the store knows of builds, and of the inputs that steps had.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, params};

use super::{Store, StoreError};
use crate::base::input::{InputTexts, OldInputs, OldValue};
use crate::base::key::Key;

/// Rows of inputs of one matrix that are read.
const INPUTS_MAX: i64 = 2_000_000;

/// Values of one input in one place that are kept, the latest ones.
const VALUES_KEPT_MAX: u32 = 16;

impl Store {
    /// What each build gave, by the key of its inputs.
    pub fn artifacts(&self) -> Result<HashMap<Key, Key>, StoreError> {
        let read = || {
            self.db
                .prepare_cached("SELECT key, digest FROM artifact")?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        };
        self.sqlite(read())
    }

    /// Notes what builds gave, by the keys that stand for it; a key that is there keeps what it has.
    pub fn put_artifacts(
        &self,
        artifacts: &[(Key, Key)],
        version: &str,
        built_ms: i64,
    ) -> Result<(), StoreError> {
        self.check_name("version", version)?;
        let write = || {
            let transaction = self.db.unchecked_transaction()?;
            for (key, digest) in artifacts {
                transaction.execute(
                    "INSERT INTO artifact (key, digest, version, built_ms) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT DO NOTHING",
                    params![key, digest, version, built_ms],
                )?;
            }
            transaction.commit()
        };
        self.sqlite(write())
    }

    /// The version that gave an artifact first.
    pub fn version_of_artifact(&self, digest: Key) -> Result<Option<String>, StoreError> {
        let read = || {
            self.db
                .prepare_cached(
                    "SELECT version FROM artifact WHERE digest = ?1 ORDER BY built_ms LIMIT 1",
                )?
                .query_row([digest], |row| row.get(0))
                .optional()
        };
        self.sqlite(read())
    }

    /// Forgets artifacts that are not kept any more. Their builds are made again when needed.
    pub fn forget_artifacts(
        &self,
        digests: impl IntoIterator<Item = Key>,
    ) -> Result<(), StoreError> {
        let write = || {
            let transaction = self.db.unchecked_transaction()?;
            for digest in digests {
                transaction.execute("DELETE FROM artifact WHERE digest = ?1", [digest])?;
            }
            transaction.commit()
        };
        self.sqlite(write())
    }

    /// Artifacts that the last session of some matrix measured or compared with.
    pub fn artifacts_in_use(&self) -> Result<Vec<Key>, StoreError> {
        let read = || {
            self.db
                .prepare_cached("SELECT DISTINCT digest FROM used")?
                .query_map([], |row| row.get(0))?
                .collect()
        };
        self.sqlite(read())
    }

    /// Notes which artifacts a session of a matrix uses, instead of those of the session before.
    pub fn put_artifacts_in_use(&self, matrix: &str, digests: &[Key]) -> Result<(), StoreError> {
        self.check_name("matrix", matrix)?;
        let write = || {
            let transaction = self.db.unchecked_transaction()?;
            transaction.execute("DELETE FROM used WHERE matrix = ?1", [matrix])?;
            for digest in digests {
                transaction.execute(
                    "INSERT INTO used (matrix, digest) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                    params![matrix, digest],
                )?;
            }
            transaction.commit()
        };
        self.sqlite(write())
    }

    /// The inputs that the steps of a matrix had in its sessions.
    pub fn inputs(&self, matrix: &str) -> Result<OldInputs, StoreError> {
        let read = || {
            let mut inputs = OldInputs::new();
            let mut statement = self.db.prepare_cached(
                "SELECT projection, name, since, ended, value FROM input WHERE matrix = ?1
                 ORDER BY projection, name, since LIMIT ?2",
            )?;
            let mut rows = statement.query(params![matrix, INPUTS_MAX])?;
            while let Some(row) = rows.next()? {
                let values = inputs.entry((row.get(0)?, row.get(1)?)).or_default();
                values.push(OldValue {
                    since: row.get(2)?,
                    ended: row.get(3)?,
                    value: row.get(4)?,
                });
            }
            Ok(inputs)
        };
        self.sqlite(read())
    }

    /// Notes the inputs that are other than before from a session on, and which of the old ones do
    /// not hold any more. Those of the last few sessions that changed one are kept.
    pub fn put_inputs(
        &self,
        matrix: &str,
        session: i64,
        new: &InputTexts,
        stale: &[(String, String)],
    ) -> Result<(), StoreError> {
        self.check_name("matrix", matrix)?;
        let write = || {
            let transaction = self.db.unchecked_transaction()?;
            {
                let mut end = transaction.prepare_cached(
                    "UPDATE input SET ended = ?4
                     WHERE matrix = ?1 AND projection = ?2 AND name = ?3 AND ended IS NULL",
                )?;
                let mut insert = transaction.prepare_cached(
                    "INSERT INTO input (matrix, projection, name, since, value)
                     VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT DO UPDATE SET value = excluded.value, ended = NULL",
                )?;
                let mut forget = transaction.prepare_cached(
                    "DELETE FROM input WHERE matrix = ?1 AND projection = ?2 AND name = ?3
                         AND since < (SELECT since FROM input
                             WHERE matrix = ?1 AND projection = ?2 AND name = ?3
                             ORDER BY since DESC LIMIT 1 OFFSET ?4)",
                )?;
                for (projection, name) in stale.iter().chain(new.keys()) {
                    end.execute(params![matrix, projection, name, session])?;
                }
                for ((projection, name), value) in new {
                    insert.execute(params![matrix, projection, name, session, value])?;
                    forget.execute(params![matrix, projection, name, VALUES_KEPT_MAX - 1])?;
                }
            }
            transaction.commit()
        };
        self.sqlite(write())
    }

    /// Calls `on_run(cell, machine, version, session)` for the run steps that were tried in a
    /// matrix's sessions, the latest session first, until it returns false.
    pub fn for_each_run(
        &self,
        matrix: &str,
        mut on_run: impl FnMut(&str, &str, &str, i64) -> bool,
    ) -> Result<(), StoreError> {
        let mut read = || {
            let snapshot = self.db.unchecked_transaction()?;
            let mut statement = snapshot.prepare_cached(
                "SELECT attempt.cell, attempt.machine, attempt.version, session.id
                 FROM session CROSS JOIN attempt ON attempt.session = session.id
                 WHERE session.matrix = ?1 AND attempt.kind = 'run'
                       AND attempt.outcome <> 'interrupted'
                 ORDER BY session.id DESC",
            )?;
            let mut rows = statement.query([matrix])?;
            while let Some(row) = rows.next()? {
                let text = |index| Ok::<_, rusqlite::Error>(row.get_ref(index)?.as_str()?);
                if !on_run(text(0)?, text(1)?, text(2)?, row.get(3)?) {
                    break;
                }
            }
            Ok(())
        };
        self.sqlite(read())
    }
}
