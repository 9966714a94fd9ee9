//! Owns what the store knows of builds, and of the inputs that steps had.
//! Does not know how a build is made.

use std::collections::HashMap;

use rusqlite::params;

use super::{Store, StoreError};
use crate::words::key::Key;

/// Rows of inputs of one matrix that are read.
const INPUTS_MAX: i64 = 2_000_000;

/// An input of a step: `(projection, name)` → value.
pub type Inputs = HashMap<(String, String), String>;

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

    /// The inputs that the steps of a matrix had when they were last run.
    pub fn inputs(&self, matrix: &str) -> Result<Inputs, StoreError> {
        let read = || {
            self.db
                .prepare_cached(
                    "SELECT projection, name, value FROM input WHERE matrix = ?1 LIMIT ?2",
                )?
                .query_map(params![matrix, INPUTS_MAX], |row| {
                    Ok(((row.get(0)?, row.get(1)?), row.get(2)?))
                })?
                .collect()
        };
        self.sqlite(read())
    }

    /// Replaces inputs, and leaves those of other cells as they are.
    pub fn put_inputs(&self, matrix: &str, inputs: &Inputs) -> Result<(), StoreError> {
        self.check_name("matrix", matrix)?;
        let write = || {
            let transaction = self.db.unchecked_transaction()?;
            {
                let mut insert = transaction.prepare_cached(
                    "INSERT INTO input (matrix, projection, name, value) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT DO UPDATE SET value = excluded.value",
                )?;
                for ((projection, name), value) in inputs {
                    insert.execute(params![matrix, projection, name, value])?;
                }
            }
            transaction.commit()
        };
        self.sqlite(write())
    }
}
