//! The logs of attempts: compressed in the database, in files beside it where they are older.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use rusqlite::{Connection, OptionalExtension, ToSql, params};

use super::{AttemptId, Store, StoreError, StoreErrorKind};
use crate::base::key::Key;

/// Longest log that is kept whole: 16 MiB. Of a longer one the first and the last half of that are.
pub const LOG_BYTES_MAX: usize = 16 << 20;

/// Room for the line that stands for what was left out.
const NOTICE_BYTES_MAX: usize = 100;

/// Older logs in one folder.
const LOGS_PER_FOLDER: i64 = 1000;

/// A shorter text is kept as it is: compressing costs more than it saves.
const PLAIN_BYTES_MAX: usize = 1 << 10;

impl Store {
    /// The log of an attempt, None where it has none.
    pub fn read_log(&self, attempt: AttemptId) -> Result<Option<Vec<u8>>, StoreError> {
        let has_log = self.find_log(
            "SELECT id FROM attempt WHERE id = ?1 AND has_log",
            &[&attempt],
        )?;
        let Some(attempt) = has_log else {
            return Ok(None);
        };
        let kept = || {
            self.db
                .prepare_cached("SELECT is_gzip, text FROM log WHERE attempt = ?1")?
                .query_row([attempt], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
        };
        match self.sqlite(kept())? {
            Some((true, gzip)) => {
                let gzip: Vec<u8> = gzip;
                unpack(&gzip[..]).map_err(|detail| {
                    let detail = format!("the log of attempt {}: {detail}", attempt.0);
                    StoreError::new(&self.file, StoreErrorKind::Damaged, detail)
                })
            }
            Some((false, text)) => Ok(text),
            None => read_file(&self.state, attempt),
        }
        .map(Some)
    }

    /// The latest attempt at a key that has a log.
    pub fn latest_log(&self, key: Key) -> Result<Option<AttemptId>, StoreError> {
        self.find_log(
            "SELECT id FROM attempt WHERE key = ?1 AND has_log ORDER BY id DESC LIMIT 1",
            &[&key],
        )
    }

    /// The latest attempt at a round of a key that has a log.
    pub fn log_of_round(&self, key: Key, round: u32) -> Result<Option<AttemptId>, StoreError> {
        self.find_log(
            "SELECT id FROM attempt WHERE key = ?1 AND round = ?2 AND has_log ORDER BY id DESC LIMIT 1",
            &[&key, &round],
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

/// A log as it is kept.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    is_gzip: bool,
    text: Vec<u8>,
}

pub(super) fn pack(text: &[u8]) -> io::Result<Packed> {
    let is_gzip = text.len() > PLAIN_BYTES_MAX;
    Ok(Packed {
        is_gzip,
        text: if is_gzip {
            compress(text)?
        } else {
            text.to_vec()
        },
    })
}

pub(super) fn insert(db: &Connection, attempt: AttemptId, log: &Packed) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT INTO log (attempt, is_gzip, text) VALUES (?1, ?2, ?3)")?
        .execute(params![attempt, log.is_gzip, log.text])?;
    Ok(())
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

fn path_of(state: &Path, AttemptId(id): AttemptId) -> PathBuf {
    let folder = format!("{:06}", id / LOGS_PER_FOLDER);
    state.join("logs").join(folder).join(format!("{id}.gz"))
}

fn read_file(state: &Path, attempt: AttemptId) -> Result<Vec<u8>, StoreError> {
    let path = path_of(state, attempt);
    let file = File::open(&path).map_err(|error| StoreError::io(&path, error))?;
    unpack(file).map_err(|detail| StoreError::new(&path, StoreErrorKind::Io, detail))
}

fn unpack(gzip: impl Read) -> Result<Vec<u8>, String> {
    let bytes_max = LOG_BYTES_MAX + NOTICE_BYTES_MAX;
    let mut text = Vec::new();
    GzDecoder::new(gzip)
        .take(bytes_max as u64 + 1)
        .read_to_end(&mut text)
        .map_err(|error| error.to_string())?;
    match text.len() > bytes_max {
        true => Err("it is longer than any log that is written".to_owned()),
        false => Ok(text),
    }
}
