//! Opening the database file: is it ours, is it whole, is its schema current.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::error::{StoreError, StoreErrorKind};

/// Entry `i` brings a database from version `i` to `i + 1`. Entries are never edited, only added.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("schema_1.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
    include_str!("schema_5.sql"),
    include_str!("schema_6.sql"),
    include_str!("schema_7.sql"),
    include_str!("schema_8.sql"),
    include_str!("schema_9.sql"),
    include_str!("schema_10.sql"),
    include_str!("schema_11.sql"),
];

/// `mtrx`, in the header of the file: tells our database from that of another program.
const APPLICATION_ID: i32 = 0x6d74_7278;

/// How long a writer waits for another one. A transaction of ours takes milliseconds.
const BUSY_MS_MAX: u64 = 10_000;

/// Who may read what we make: command lines and outputs of programs may hold what others must not see.
/// SQLite gives its files beside the database the same mode.
const MODE: u32 = 0o600;

const STATEMENTS_CACHED_MAX: usize = 64;

/// Pages kept in memory, taken as they are read. SQLite's own 2 MiB make every look-up by a random
/// key of a large database a read of the file.
pub(super) const CACHE_KIB_MAX: i64 = 128 << 10;

/// Problems listed by an integrity check at the most.
const PROBLEMS_MAX: u32 = 10;

pub(super) fn open(
    file: &Path,
    create: bool,
    migrations: &[&str],
) -> Result<Connection, StoreError> {
    if !create && !file.exists() {
        let detail = "the file does not exist";
        return Err(StoreError::new(file, StoreErrorKind::Missing, detail));
    }
    refuse_lost_database(file)?;
    let failed = |error| StoreError::sqlite(file, error);
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if create {
        make_private(file).map_err(|error| StoreError::io(file, error))?;
        flags |= OpenFlags::SQLITE_OPEN_CREATE;
    }
    let mut db = Connection::open_with_flags(file, flags).map_err(failed)?;
    db.busy_timeout(Duration::from_millis(BUSY_MS_MAX))
        .map_err(failed)?;
    // SQLite opens a file that it may not write read-only, without a word.
    if db.is_readonly("main").map_err(failed)? {
        if create {
            let detail = "it can only be read";
            return Err(StoreError::new(file, StoreErrorKind::ReadOnly, detail));
        }
        return open_to_read(file, migrations);
    }
    let version = version_of_ours(&db, file)?;
    if version > migrations.len() {
        return Err(newer(file, version, migrations.len()));
    }
    set_up(&db, file)?;
    if version < migrations.len() {
        migrate(&mut db, file, migrations)?;
    }
    refuse_commits_when_lost(&mut db, file)?;
    Ok(db)
}

/// Makes an empty file where there is none: SQLite takes it for a new database.
fn make_private(file: &Path) -> io::Result<()> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(file);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// From now on a commit fails when the file at the path is not the one that is open: SQLite goes on writing to
/// a file that was removed, and nobody would find the results.
fn refuse_commits_when_lost(db: &mut Connection, file: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::io(file, error);
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let path = std::path::absolute(file).map_err(failed)?;
    let opened = fs::metadata(&path).map(identity).map_err(failed)?;
    let is_lost = move || fs::metadata(&path).map(identity).ok() != Some(opened);
    db.commit_hook(Some(is_lost))
        .map_err(|error| StoreError::sqlite(file, error))
}

/// Copies a database whose file was removed or replaced to a new file beside the path that it had; returns that
/// file. What was committed is in it.
pub(super) fn rescue(db: &Connection, file: &Path) -> Result<PathBuf, StoreError> {
    const NAMES_MAX: usize = 1000;
    let failed = |error| StoreError::io(file, error);
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    for number in 1..NAMES_MAX {
        let copy = beside(file, &format!(".rescued-{number}"));
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(&copy);
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            made => drop(made.map_err(failed)?),
        }
        vacuum_into(db, &copy)?;
        return Ok(copy);
    }
    let detail = "too many rescued copies are beside it";
    Err(StoreError::new(file, StoreErrorKind::Io, detail))
}

/// Writes a whole copy to an empty file, durably. The file stays empty where that fails.
fn vacuum_into(db: &Connection, copy: &Path) -> Result<(), StoreError> {
    let name = copy.to_str().ok_or_else(|| {
        let detail = "its path is not UTF-8, so that no copy can be made there";
        StoreError::new(copy, StoreErrorKind::CannotOpen, detail)
    })?;
    db.execute("VACUUM INTO ?1", [name])
        .map_err(|error| StoreError::sqlite(copy, error))?;
    fs::File::open(copy)
        .and_then(|copied| copied.sync_all())
        .map_err(|error| StoreError::io(copy, error))
}

/// Opens a database that nobody can write, as on a medium that is mounted read-only: SQLite then needs no
/// files beside it. What is stored can be read; whoever writes is told that it cannot be.
fn open_to_read(file: &Path, migrations: &[&str]) -> Result<Connection, StoreError> {
    let read_only = |detail: &str| StoreError::new(file, StoreErrorKind::ReadOnly, detail);
    let wal = fs::metadata(beside(file, "-wal")).map_or(0, |metadata| metadata.len());
    if wal > 0 {
        return Err(read_only(
            "it can only be read, and results in its write-ahead log are not in it yet",
        ));
    }
    let path = file
        .to_str()
        .ok_or_else(|| read_only("it can only be read, and its path is not UTF-8"))?;
    let escaped = path
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let failed = |error| StoreError::sqlite(file, error);
    let db = Connection::open_with_flags(format!("file:{escaped}?immutable=1"), flags)
        .map_err(failed)?;
    match version_of_ours(&db, file)? {
        version if version > migrations.len() => Err(newer(file, version, migrations.len())),
        version if version < migrations.len() => Err(read_only(
            "it can only be read, and is of an older version that must be brought up to date first",
        )),
        _ => {
            db.pragma_update(None, "cache_size", -CACHE_KIB_MAX)
                .map_err(failed)?;
            db.set_prepared_statement_cache_capacity(STATEMENTS_CACHED_MAX);
            Ok(db)
        }
    }
}

/// SQLite takes an empty file with a write-ahead log beside it for a new database and deletes the
/// log, which may hold all that is left of the results.
fn refuse_lost_database(file: &Path) -> Result<(), StoreError> {
    let length = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
    let wal = beside(file, "-wal");
    if length(file) == 0 && length(&wal) > 0 {
        let detail = format!("it is empty, but `{}` is not", wal.display());
        return Err(StoreError::new(file, StoreErrorKind::Damaged, detail));
    }
    Ok(())
}

/// The version of the schema, 0 for an empty database.
fn version_of_ours(db: &Connection, file: &Path) -> Result<usize, StoreError> {
    // One statement, so that it sees one state while another process creates the database.
    let (application, version, tables): (i32, i64, i64) = db
        .query_row(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
             FROM pragma_application_id, pragma_user_version",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .map_err(|error| StoreError::sqlite(file, error))?;
    if application != APPLICATION_ID && (application, version, tables) != (0, 0, 0) {
        let detail = "it belongs to another program";
        return Err(StoreError::new(file, StoreErrorKind::NotADatabase, detail));
    }
    usize::try_from(version).map_err(|_| {
        let detail = format!("its version is {version}");
        StoreError::new(file, StoreErrorKind::Damaged, detail)
    })
}

fn newer(file: &Path, found: usize, known: usize) -> StoreError {
    let detail = format!("its version is {found}, this program knows versions up to {known}");
    StoreError::new(file, StoreErrorKind::Newer, detail)
}

fn set_up(db: &Connection, file: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::sqlite(file, error);
    let mode = write_ahead(db).map_err(failed)?;
    if mode != "wal" {
        let detail = format!("its folder allows no write-ahead log, only `{mode}`");
        return Err(StoreError::new(file, StoreErrorKind::CannotOpen, detail));
    }
    // FULL: a commit returns when it is on the disk, not merely in the kernel's memory.
    db.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA cell_size_check = ON;
         PRAGMA trusted_schema = OFF;",
    )
    .map_err(failed)?;
    db.pragma_update(None, "cache_size", -CACHE_KIB_MAX)
        .map_err(failed)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS_CACHED_MAX);
    Ok(())
}

/// Turns the write-ahead log on and returns the mode that is now in force. SQLite does not wait
/// here when another process does the same to a new file, so this does.
fn write_ahead(db: &Connection) -> rusqlite::Result<String> {
    let deadline = Instant::now() + Duration::from_millis(BUSY_MS_MAX);
    loop {
        match db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}

/// Brings the schema up to date in one transaction, after a copy of the older database is kept.
fn migrate(db: &mut Connection, file: &Path, migrations: &[&str]) -> Result<(), StoreError> {
    let failed = |error| StoreError::sqlite(file, error);
    let transaction = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    // Another process may have done it while this one waited for the lock.
    let version = version_of_ours(&transaction, file)?;
    if version > migrations.len() {
        return Err(newer(file, version, migrations.len()));
    }
    if version > 0 && version < migrations.len() {
        keep_copy(file, version)?;
    }
    for migration in &migrations[version..] {
        transaction.execute_batch(migration).map_err(failed)?;
    }
    transaction
        .pragma_update(None, "application_id", APPLICATION_ID)
        .map_err(failed)?;
    transaction
        .pragma_update(None, "user_version", migrations.len() as i64)
        .map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// Where the copy of a database of `version` is kept when it is migrated.
pub(super) fn copy_of(file: &Path, version: usize) -> PathBuf {
    beside(file, &format!(".version-{version}"))
}

/// The caller holds the write lock, so the copy, made by a second connection, is what is migrated.
fn keep_copy(file: &Path, version: usize) -> Result<(), StoreError> {
    let copy = copy_of(file, version);
    let partial = beside(&copy, ".partial");
    // One that a killed process or a full disk left.
    let remove_partial = || match fs::remove_file(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    let io_failed = |error| StoreError::io(&partial, error);
    remove_partial().map_err(io_failed)?;
    make_private(&partial).map_err(io_failed)?;
    let reader = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .map_err(|error| StoreError::sqlite(file, error))?;
    if let Err(error) = vacuum_into(&reader, &partial) {
        remove_partial().map_err(io_failed)?;
        return Err(error);
    }
    fs::rename(&partial, &copy).map_err(io_failed)?;
    // Written by a program that let everybody read it.
    let _ = fs::set_permissions(file, fs::Permissions::from_mode(MODE));
    Ok(())
}

/// `file` with `suffix` at the end of its name.
fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Reads the whole database: its pages, its references, and that what is done was done.
/// The error lists the first problems.
pub(super) fn integrity(db: &Connection, file: &Path) -> Result<(), StoreError> {
    let problems = problems(db).map_err(|error| StoreError::sqlite(file, error))?;
    if problems.is_empty() {
        return Ok(());
    }
    let detail = problems.join("; ");
    Err(StoreError::new(file, StoreErrorKind::Damaged, detail))
}

fn problems(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut problems: Vec<String> = db
        .prepare(&format!("PRAGMA integrity_check({PROBLEMS_MAX})"))?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    problems.retain(|line| line != "ok");
    if !problems.is_empty() {
        // What follows would only repeat it.
        return Ok(problems);
    }
    let mut checks = |sql: &str| -> rusqlite::Result<()> {
        let mut statement = db.prepare(&format!("{sql} LIMIT {PROBLEMS_MAX}"))?;
        for line in statement.query_map([], |row| row.get(0))? {
            problems.push(line?);
        }
        Ok(())
    };
    checks(
        "SELECT 'a row of `' || \"table\" || '` refers to nothing in `' || parent || '`'
         FROM pragma_foreign_key_check",
    )?;
    checks(
        "SELECT 'attempt ' || attempt || ' is marked done but was not'
         FROM done JOIN attempt ON attempt.id = done.attempt
         WHERE attempt.outcome <> 'ok' OR attempt.key <> done.key OR attempt.round <> done.round",
    )?;
    checks(
        "SELECT 'a sample of attempt ' || sample.attempt || ' belongs to nothing that is done'
         FROM sample LEFT JOIN done ON done.key = sample.key AND done.round = sample.round
         WHERE done.attempt IS NOT sample.attempt",
    )?;
    Ok(problems)
}
