//! The store's errors: which file, what is wrong with it, and the remedy.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// The store could not do what it was asked to do. Nothing was changed, and nothing is ever
/// deleted because of an error.
#[derive(Clone, Debug, thiserror::Error)]
#[error("`{}`: {kind} ({detail}); {}", .file.display(), .kind.remedy())]
pub struct StoreError {
    pub file: PathBuf,
    pub kind: StoreErrorKind,
    /// In the words of SQLite or of the operating system where it is theirs.
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreErrorKind {
    #[error("the disk is full")]
    DiskFull,
    #[error("cannot be written")]
    ReadOnly,
    #[error("is locked by another process")]
    Locked,
    #[error("is not a database of results")]
    NotADatabase,
    #[error("the database is damaged")]
    Damaged,
    #[error("was written by a newer version of this program")]
    Newer,
    #[error("there is no database of results")]
    Missing,
    #[error("cannot be opened")]
    CannotOpen,
    /// Found when something was to be committed: it was not.
    #[error("was removed or replaced while it was in use")]
    Lost,
    #[error("input or output failed")]
    Io,
    /// The caller handed in what must not be stored.
    #[error("refused to store what is not valid")]
    Invalid,
}

impl StoreErrorKind {
    /// What a user can do about it, as the end of a sentence.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::DiskFull => "free some space and run again: what was acknowledged is kept",
            Self::ReadOnly => {
                "make the file and its folder writable for this user, or choose another state folder"
            }
            Self::Locked => {
                "wait for the other process, or end it; \
                 a folder on a network file system cannot be shared"
            }
            Self::NotADatabase => {
                "choose another state folder, or move the file away to begin anew"
            }
            Self::Damaged => {
                "nothing was deleted: keep a copy of the file with its `-wal`, then restore a \
                 backup, or try `sqlite3 FILE .recover | sqlite3 NEW`, or move both away to begin anew"
            }
            Self::Newer => "use that version of the program, or choose another state folder",
            Self::Missing => "run a matrix first, or name the right state folder",
            Self::CannotOpen => {
                "check that the folder exists and that this user may read and write it"
            }
            Self::Lost => "put the file or its folder back, and leave it alone while `matrix` runs",
            Self::Io => "look at the disk and the kernel's log, then run again",
            Self::Invalid => "this is a mistake in the program: please report it",
        }
    }
}

impl StoreError {
    /// An error of a database file; `detail` says what happened.
    pub fn new(file: &Path, kind: StoreErrorKind, detail: impl Into<String>) -> Self {
        StoreError {
            file: file.to_owned(),
            kind,
            detail: detail.into(),
        }
    }

    pub(super) fn sqlite(file: &Path, error: rusqlite::Error) -> Self {
        StoreError::new(file, kind_of(&error), error.to_string())
    }

    pub(super) fn io(file: &Path, error: io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreErrorKind::DiskFull,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                StoreErrorKind::ReadOnly
            }
            _ => StoreErrorKind::Io,
        };
        StoreError::new(file, kind, error.to_string())
    }
}

fn kind_of(error: &rusqlite::Error) -> StoreErrorKind {
    use rusqlite::Error as E;
    match error {
        E::SqliteFailure(failure, _) => match (failure.code, failure.extended_code) {
            (ErrorCode::DiskFull, _) => StoreErrorKind::DiskFull,
            // The index of the write-ahead log could not grow: there is no other cause for it.
            (_, rusqlite::ffi::SQLITE_IOERR_SHMSIZE) => StoreErrorKind::DiskFull,
            (ErrorCode::ReadOnly | ErrorCode::PermissionDenied, _) => StoreErrorKind::ReadOnly,
            (
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed,
                _,
            ) => StoreErrorKind::Locked,
            (ErrorCode::NotADatabase, _) => StoreErrorKind::NotADatabase,
            // Statements are fixed: one that is wrong means that a table is not what it should be.
            (ErrorCode::DatabaseCorrupt | ErrorCode::Unknown, _) => StoreErrorKind::Damaged,
            (ErrorCode::CannotOpen, _) => StoreErrorKind::CannotOpen,
            (_, rusqlite::ffi::SQLITE_CONSTRAINT_COMMITHOOK) => StoreErrorKind::Lost,
            (ErrorCode::ConstraintViolation | ErrorCode::TooBig, _) => StoreErrorKind::Invalid,
            _ => StoreErrorKind::Io,
        },
        E::SqlInputError { .. } => StoreErrorKind::Damaged,
        // A value of a type or range that was never written.
        E::FromSqlConversionFailure(..)
        | E::IntegralValueOutOfRange(..)
        | E::InvalidColumnType(..)
        | E::Utf8Error(..) => StoreErrorKind::Damaged,
        E::InvalidPath(_) | E::NulError(_) => StoreErrorKind::CannotOpen,
        _ => StoreErrorKind::Io,
    }
}
