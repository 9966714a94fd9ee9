//! Owns the logs of attempts: gzip files beside the database.
//! Does not know what is in them.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use rusqlite::{OptionalExtension, ToSql};

use super::{AttemptId, Store, StoreError, StoreErrorKind};
use crate::words::key::Key;

/// Longest log that is kept whole: 16 MiB. Of a longer one the first and the last half of that are.
pub const LOG_BYTES_MAX: usize = 16 << 20;

/// Room for the line that stands for what was left out.
const NOTICE_BYTES_MAX: usize = 100;

/// Logs in one folder: folders of 10^6 files are slow to list and to copy.
const LOGS_PER_FOLDER: i64 = 1000;

impl Store {
    /// The log of an attempt, None where it has none.
    pub fn read_log(&self, attempt: AttemptId) -> Result<Option<Vec<u8>>, StoreError> {
        let has_log = self.find_log(
            "SELECT id FROM attempt WHERE id = ?1 AND has_log",
            &[&attempt],
        )?;
        match has_log {
            Some(attempt) => read(&self.state, attempt).map(Some),
            None => Ok(None),
        }
    }

    /// The latest attempt at a key that has a log.
    pub fn latest_log(&self, key: Key) -> Result<Option<AttemptId>, StoreError> {
        self.find_log(
            "SELECT id FROM attempt WHERE key = ?1 AND has_log ORDER BY id DESC LIMIT 1",
            &[&key],
        )
    }

    fn find_log(&self, sql: &str, with: &[&dyn ToSql]) -> Result<Option<AttemptId>, StoreError> {
        let read = || {
            self.db
                .prepare_cached(sql)?
                .query_row(with, |row| row.get(0))
                .optional()
        };
        self.sqlite(read())
    }
}

fn folder_of(state: &Path, AttemptId(id): AttemptId) -> PathBuf {
    state
        .join("logs")
        .join(format!("{:06}", id / LOGS_PER_FOLDER))
}

fn path_of(state: &Path, attempt: AttemptId) -> PathBuf {
    folder_of(state, attempt).join(format!("{}.gz", attempt.0))
}

pub(super) fn compress(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    if text.len() <= LOG_BYTES_MAX {
        encoder.write_all(text)?;
    } else {
        let half = LOG_BYTES_MAX / 2;
        let left_out = text.len() - 2 * half;
        encoder.write_all(&text[..half])?;
        write!(encoder, "\n[… {left_out} bytes left out …]\n")?;
        encoder.write_all(&text[text.len() - half..])?;
    }
    encoder.finish()
}

/// After a crash either the whole file is there under its name, or none.
pub(super) fn write(state: &Path, attempt: AttemptId, log: &[u8]) -> Result<(), StoreError> {
    let path = path_of(state, attempt);
    let partial = path.with_extension("partial");
    let folder = folder_of(state, attempt);
    let write = || {
        fs::create_dir_all(&folder)?;
        let mut file = File::create(&partial)?;
        file.write_all(log)?;
        file.sync_all()?;
        fs::rename(&partial, &path)?;
        // The new name is in the folder.
        File::open(&folder)?.sync_all()
    };
    write().map_err(|error| {
        // What was written of it takes room on a full disk; the next attempt writes it anew.
        let _ = fs::remove_file(&partial);
        StoreError::io(&path, error)
    })
}

fn read(state: &Path, attempt: AttemptId) -> Result<Vec<u8>, StoreError> {
    let path = path_of(state, attempt);
    let damaged = |detail: &str| StoreError::new(&path, StoreErrorKind::Io, detail);
    let file = File::open(&path).map_err(|error| StoreError::io(&path, error))?;
    let bytes_max = LOG_BYTES_MAX + NOTICE_BYTES_MAX;
    let mut text = Vec::new();
    GzDecoder::new(file)
        .take(bytes_max as u64 + 1)
        .read_to_end(&mut text)
        .map_err(|error| damaged(&error.to_string()))?;
    if text.len() > bytes_max {
        return Err(damaged("it is longer than any log that is written"));
    }
    Ok(text)
}
