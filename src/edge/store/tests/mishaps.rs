//! The tests of mishaps: what is acknowledged is kept, errors name the file and the remedy.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rusqlite::Connection;

use super::*;

#[test]
fn two_connections_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = |first: u32| {
        let state = folder.path().to_owned();
        std::thread::spawn(move || {
            let mut store = Store::open(&state).unwrap();
            let session = session(&store);
            (first..first + 30)
                .filter(|n| {
                    let new = attempt(session, key(*n), 0);
                    store.record(&new, &[iops(1.0)]).unwrap() != Recorded::AlreadyDone
                })
                .count()
        })
    };
    // Both create the store at once, and twenty keys are of both.
    let threads = [recorder(0), recorder(10)];
    let recorded: usize = threads.map(|thread| thread.join().unwrap()).iter().sum();
    assert_eq!(recorded, 40);
    let store = Store::open_existing(folder.path()).unwrap();
    assert_eq!(count(&store, "sample"), 40);
    store.integrity().unwrap();
}

/// Names the state folder for the child process of the test below.
const CHILD_STATE: &str = "MATRIX_TEST_STORE_CHILD";

/// Records until it is killed, and tells each round that was acknowledged. A test of its own
/// only so that the test program can be started with it.
#[test]
fn child_that_records_until_killed() {
    let Some(state) = std::env::var_os(CHILD_STATE) else {
        return;
    };
    let mut store = Store::open(Path::new(&state)).unwrap();
    let session = session(&store);
    for round in 0.. {
        let new = NewAttempt {
            log: Some(b"some output"),
            ..attempt(session, key(1), round)
        };
        if store.record(&new, &[iops(round.into())]).unwrap() != Recorded::AlreadyDone {
            let mut out = std::io::stdout().lock();
            writeln!(out, "\nrecorded {round}").unwrap();
            out.flush().unwrap();
        }
    }
}

#[test]
fn what_was_acknowledged_survives_sigkill() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for kill_after in [1, 7, 40] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("edge::store::tests::mishaps::child_that_records_until_killed")
            .env(CHILD_STATE, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut of_child = 0;
        // What it still managed to say after the kill counts too.
        for line in lines.map_while(Result::ok) {
            let Some(round) = line.strip_prefix("recorded ") else {
                continue;
            };
            acknowledged.push(round.parse::<u32>().unwrap());
            of_child += 1;
            if of_child == kill_after {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(of_child >= kill_after, "the child died by itself");

        let store = Store::open_existing(folder.path()).unwrap();
        store.integrity().unwrap();
        let finished = store.finished(&[key(1)]).unwrap();
        let finished: Vec<u32> = finished.rounds(0).collect();
        assert!(acknowledged.iter().all(|round| finished.contains(round)));
        for found in store.samples(&[key(1)]).unwrap() {
            assert_eq!(found.sample.value, f64::from(found.sample.round));
        }
        let log = store.latest_log(key(1)).unwrap().unwrap();
        assert_eq!(store.read_log(log).unwrap().unwrap(), b"some output");
    }
}

#[test]
fn a_full_disk_is_told_and_loses_nothing() {
    let (_folder, mut store) = new_store();
    let session = session(&store);
    let pages: i64 = store
        .db
        .pragma_query_value(None, "page_count", |row| row.get(0))
        .unwrap();
    let limit = |store: &Store, pages: i64| {
        store
            .db
            .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
            .unwrap();
    };
    limit(&store, pages + 2);
    let long = "x".repeat(NAME_BYTES_MAX);
    let mut recorded = Vec::new();
    let error = loop {
        let round = recorded.len() as u32;
        let new = NewAttempt {
            cell: &long,
            ..attempt(session, key(1), round)
        };
        match store.record(&new, &[iops(1.0)]) {
            Ok(_) => recorded.push(round),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, StoreErrorKind::DiskFull);
    assert_eq!(
        store
            .finished(&[key(1)])
            .unwrap()
            .rounds(0)
            .collect::<Vec<_>>(),
        recorded
    );
    store.integrity().unwrap();
    limit(&store, pages + 100);
    record(
        &mut store,
        &attempt(session, key(1), recorded.len() as u32),
        1.0,
    );
}

/// The next version as it might be.
const NEXT: &str = "ALTER TABLE session ADD COLUMN note TEXT NOT NULL DEFAULT 'none';";

#[test]
fn an_older_database_is_migrated_and_a_copy_kept() {
    let (folder, mut store) = new_store();
    let session = session(&store);
    record(&mut store, &attempt(session, key(1), 0), 5.0);
    // Not dropped: what is migrated is partly in the write-ahead log of another connection.
    let next = [open::MIGRATIONS, &[NEXT]].concat();
    let migrated = Store::open_with(folder.path(), false, &next).unwrap();
    let note: String = migrated
        .db
        .query_row("SELECT note FROM session", [], |row| row.get(0))
        .unwrap();
    assert_eq!(note, "none");
    assert_eq!(migrated.samples(&[key(1)]).unwrap()[0].sample.value, 5.0);
    migrated.integrity().unwrap();
    drop((store, migrated));

    let error = Store::open(folder.path()).err().unwrap();
    assert_eq!(error.kind, StoreErrorKind::Newer);
    let shown = error.to_string();
    let file = folder.path().join("matrix.db");
    assert_eq!(
        shown,
        format!(
            "`{}`: was written by a newer version of this program (its version is {}, this program \
             knows versions up to {}); use that version of the program, or choose another state \
             folder",
            file.display(),
            next.len(),
            open::MIGRATIONS.len()
        )
    );

    let copy = open::copy_of(&file, open::MIGRATIONS.len());
    std::fs::rename(copy, &file).unwrap();
    let store = Store::open(folder.path()).unwrap();
    assert_eq!(store.samples(&[key(1)]).unwrap()[0].sample.value, 5.0);
}

#[test]
fn commits_of_before_they_were_noted_are_of_the_last_session_that_had_them() {
    let check = |since: i64, ended: Option<i64>, expected: &[i64]| {
        let folder = tempfile::tempdir().unwrap();
        let mut old = Store::open_with(folder.path(), true, &open::MIGRATIONS[..7]).unwrap();
        for n in 0..4 {
            let of_session = session(&old);
            record(&mut old, &attempt(of_session, key(n), 0), 1.0);
        }
        let insert = "INSERT INTO input (matrix, projection, name, since, ended, value)
                      SELECT 'm', 'version=' || version, 'commit', ?1, ?2, 'c0ffee'
                      FROM attempt LIMIT 1";
        old.db
            .execute(insert, rusqlite::params![since, ended])
            .unwrap();
        drop(old);
        let store = Store::open(folder.path()).unwrap();
        let read = "SELECT session FROM version_commit ORDER BY session";
        let mut read = store.db.prepare(read).unwrap();
        let found = read.query_map([], |row| row.get(0)).unwrap();
        let found: Vec<i64> = found.map(Result::unwrap).collect();
        assert_eq!(found, expected, "{since} {ended:?}");
    };
    check(2, None, &[2, 3, 4]);
    check(2, Some(4), &[2, 3]);
    check(0, None, &[4]);
    check(0, Some(3), &[2]);
}

#[test]
fn a_failed_migration_changes_nothing() {
    let (folder, store) = new_store();
    session(&store);
    drop(store);
    let broken = [open::MIGRATIONS, &[NEXT, "ALTER TABLE nowhere ADD x;"]].concat();
    assert!(Store::open_with(folder.path(), false, &broken).is_err());
    let store = Store::open(folder.path()).unwrap();
    assert_eq!(count(&store, "session"), 1);
    assert_eq!(
        count(&store, "pragma_table_info('session') WHERE name = 'note'"),
        0
    );
}

#[test]
fn a_database_that_is_not_ours_or_not_whole_is_left_alone() {
    let check = |spoil: &dyn Fn(&Path), kind: StoreErrorKind| {
        let (folder, mut store) = new_store();
        let session = session(&store);
        for round in 0..50 {
            record(&mut store, &attempt(session, key(1), round), 1.0);
        }
        drop(store);
        let file = folder.path().join("matrix.db");
        spoil(&file);
        let before = std::fs::read(&file).ok();
        let opened = Store::open_existing(folder.path());
        let error = opened.and_then(|store| store.integrity()).unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert_eq!(error.file, file);
        assert_eq!(std::fs::read(&file).ok(), before);
    };
    check(
        &|file| std::fs::remove_file(file).unwrap(),
        StoreErrorKind::Missing,
    );
    check(
        &|file| std::fs::write(file, "these are my notes\n".repeat(100)).unwrap(),
        StoreErrorKind::NotADatabase,
    );
    check(
        &|file| {
            std::fs::remove_file(file).unwrap();
            let other = Connection::open(file).unwrap();
            other.execute_batch("CREATE TABLE shopping (item)").unwrap();
        },
        StoreErrorKind::NotADatabase,
    );
    // The page of the schema is whole, the others are not.
    check(
        &|file| {
            let mut bytes = std::fs::read(file).unwrap();
            bytes[8192..].fill(0x5a);
            std::fs::write(file, bytes).unwrap();
        },
        StoreErrorKind::Damaged,
    );
    check(
        &|file| {
            let bytes = std::fs::read(file).unwrap();
            std::fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
        },
        StoreErrorKind::Damaged,
    );
    check(
        &|file| {
            std::fs::write(file, "").unwrap();
            std::fs::write(file.with_extension("db-wal"), "all that is left").unwrap();
        },
        StoreErrorKind::Damaged,
    );
    check(
        &|file| {
            std::fs::remove_file(file).unwrap();
            std::fs::create_dir(file).unwrap();
        },
        StoreErrorKind::CannotOpen,
    );
}

#[test]
fn integrity_finds_what_pages_cannot_show() {
    let check = |sql: &str, detail: &str| {
        let (_folder, mut store) = new_store();
        let session = session(&store);
        record(&mut store, &attempt(session, key(1), 0), 1.0);
        store.integrity().unwrap();
        store
            .db
            .execute_batch(&format!("PRAGMA foreign_keys = OFF; {sql}"))
            .unwrap();
        let error = store.integrity().unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Damaged);
        assert!(error.detail.contains(detail), "{error}");
    };
    check(
        "DELETE FROM session",
        "`attempt` refers to nothing in `session`",
    );
    check(
        "UPDATE attempt SET outcome = 'failed'",
        "attempt 1 is marked done",
    );
    check(
        "DELETE FROM done",
        "a sample of attempt 1 belongs to nothing",
    );
    check("DROP TABLE done", "no such table");
}

#[test]
fn a_locked_database_is_told() {
    let (folder, mut store) = new_store();
    let session = session(&store);
    let other = Connection::open(folder.path().join("matrix.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    store.db.busy_timeout(Duration::from_millis(1)).unwrap();
    let error = store
        .record(&attempt(session, key(1), 0), &[iops(1.0)])
        .unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Locked);
    // Reading goes on meanwhile.
    assert_eq!(store.finished(&[key(1)]).unwrap().count(0), 0);
    other.execute_batch("COMMIT").unwrap();
    record(&mut store, &attempt(session, key(1), 0), 1.0);
}

#[test]
fn results_of_a_removed_or_replaced_file_are_saved_beside_it() {
    use std::fs;
    let replace = |file: &Path| {
        fs::rename(file, file.with_extension("old")).unwrap();
        fs::write(file, "another").unwrap();
    };
    let mishaps: [fn(&Path); 2] = [
        |file| fs::remove_dir_all(file.parent().unwrap()).unwrap(),
        replace,
    ];
    for mishap in mishaps {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let mut store = Store::open(&state).unwrap();
        let session = session(&store);
        record(&mut store, &attempt(session, key(1), 0), 1.0);
        let writer = store.writer().unwrap();
        let file = state.join("matrix.db");
        mishap(&file);

        // Nobody is told that something is stored which nobody will find.
        let error = store.end_session(session, 1, "done").unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Lost, "{error}");
        let new = attempt(session, key(1), 1);
        let prepared = store.prepare(&new, &[iops(2.0)], SampleContext::default());
        let (sender, written) = std::sync::mpsc::channel();
        writer.write(prepared.unwrap(), true, move |written| {
            sender.send(written).unwrap()
        });
        let error = written.recv().unwrap().unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Lost, "{error}");
        let saved = state.join("matrix.db.rescued-1");
        assert!(
            error.to_string().contains(saved.to_str().unwrap()),
            "{error}"
        );

        let again = folder.path().join("again");
        fs::create_dir(&again).unwrap();
        fs::rename(saved, again.join("matrix.db")).unwrap();
        let store = Store::open_existing(&again).unwrap();
        store.integrity().unwrap();
        let finished = store.finished(&[key(1)]).unwrap();
        assert_eq!(finished.rounds(0).collect::<Vec<_>>(), [0, 1]);
    }
}

#[test]
fn others_cannot_read_a_database() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, mut store) = new_store();
    let session = session(&store);
    record(&mut store, &attempt(session, key(1), 0), 1.0);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{:?}", entry.path());
    }
}

#[test]
fn passwords_are_not_stored() {
    let (_folder, store) = new_store();
    let arguments = "matrix run m.toml --repo https://me:secret@host/x";
    let start = SessionStart {
        started_ms: 0,
        matrix: "m",
        preset: "quick",
        seed: 0,
        arguments,
        program_version: "0.1.0",
        process: "42",
    };
    store.begin_session(&start).unwrap();
    let stored: String = store
        .db
        .query_row("SELECT max(arguments) FROM session", [], |row| row.get(0))
        .unwrap();
    assert!(stored.contains("me:***@host"), "{stored}");
}
