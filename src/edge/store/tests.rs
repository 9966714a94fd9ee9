//! The tests of what the store keeps and finds.

mod mishaps;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const IOPS: &str = "iops";

fn key(n: u32) -> Key {
    Key::of(&n.to_le_bytes())
}

fn new_store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    (folder, store)
}

fn session(store: &Store) -> i64 {
    store
        .begin_session(&SessionStart {
            started_ms: 1_700_000_000_000,
            matrix: "m",
            preset: "quick",
            seed: u64::MAX,
            arguments: "matrix run m.toml",
            program_version: "0.1.0",
            process: "42",
        })
        .unwrap()
}

fn attempt(session: i64, key: Key, round: u32) -> NewAttempt<'static> {
    NewAttempt {
        session,
        kind: StepKind::Run,
        key,
        round,
        cell: "bs=4k",
        machine: "here",
        version: "v1",
        started_ms: 1_700_000_000_123,
        duration: Duration::from_millis(2_000),
        outcome: AttemptOutcome::Ok,
        reason: "",
        environment: None,
        log: None,
    }
}

fn iops(value: f64) -> NewReading<'static> {
    NewReading {
        metric: IOPS,
        value,
        unit: "1/s",
        better: Some(Better::Higher),
    }
}

fn failed(session: i64, key: Key, reason: &'static str) -> NewAttempt<'static> {
    NewAttempt {
        outcome: AttemptOutcome::Failed,
        reason,
        ..attempt(session, key, 0)
    }
}

fn record(store: &mut Store, attempt: &NewAttempt, value: f64) -> AttemptId {
    let readings = [iops(value)];
    let readings = match attempt.outcome {
        AttemptOutcome::Ok => &readings[..],
        _ => &[],
    };
    match store.record(attempt, readings).unwrap() {
        Recorded::New(id) => id,
        Recorded::AlreadyDone => panic!("already done"),
    }
}

fn sorted(keys: impl IntoIterator<Item = Key>) -> Vec<Key> {
    let mut keys: Vec<Key> = keys.into_iter().collect();
    keys.sort();
    keys.dedup();
    keys
}

fn count(store: &Store, table: &str) -> i64 {
    store
        .db
        .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
            row.get(0)
        })
        .unwrap()
}

#[test]
fn what_is_recorded_is_there_after_reopening() {
    let (folder, mut store) = new_store();
    let session = session(&store);
    let environment = store.put_environment(r#"{"kernel":"6.12"}"#).unwrap();
    let new = NewAttempt {
        environment: Some(environment),
        log: Some(b"fio says hello"),
        ..attempt(session, key(1), 0)
    };
    let latency = NewReading {
        metric: "clat_p99",
        value: 1234.5,
        unit: "ns",
        better: Some(Better::Lower),
    };
    let recorded = store.record(&new, &[iops(1000.0), latency]).unwrap();
    let Recorded::New(id) = recorded else {
        panic!("{recorded:?}")
    };
    store
        .end_session(session, 1_700_000_009_000, "done")
        .unwrap();
    drop(store);

    let store = Store::open_existing(folder.path()).unwrap();
    store.integrity().unwrap();
    let metrics = store.metrics().unwrap();
    assert_eq!(
        metrics
            .iter()
            .map(|metric| (&*metric.name, &*metric.unit, metric.better))
            .collect::<Vec<_>>(),
        [
            (IOPS, "1/s", Some(Better::Higher)),
            ("clat_p99", "ns", Some(Better::Lower))
        ]
    );
    let stored = |metric: &Metric, value| StoredSample {
        key: key(1),
        metric: metric.id,
        sample: Sample {
            round: 0,
            session,
            value,
        },
        environment: Some(environment),
    };
    assert_eq!(
        store.samples(&[key(1)]).unwrap(),
        [stored(&metrics[0], 1000.0), stored(&metrics[1], 1234.5)]
    );
    assert_eq!(
        store.environment(environment).unwrap().as_deref(),
        Some(r#"{"kernel":"6.12"}"#)
    );
    assert_eq!(store.environment(key(9)).unwrap(), None);
    assert_eq!(store.read_log(id).unwrap().unwrap(), b"fio says hello");
}

#[test]
fn a_round_that_is_done_stays_as_it_is() {
    let (_folder, mut store) = new_store();
    let session = session(&store);
    record(&mut store, &attempt(session, key(1), 0), 1.0);
    let again = store.record(&attempt(session, key(1), 0), &[iops(2.0)]);
    assert_eq!(again.unwrap(), Recorded::AlreadyDone);
    assert_eq!(count(&store, "attempt"), 1);
    assert_eq!(store.samples(&[key(1)]).unwrap()[0].sample.value, 1.0);
    // A failure is noted though, and the next round is another thing.
    record(&mut store, &failed(session, key(1), "boom"), 0.0);
    record(&mut store, &attempt(session, key(1), 1), 3.0);
    assert_eq!(store.finished(&[key(1)]).unwrap().count(0), 2);
    store.integrity().unwrap();
}

#[test]
fn a_log_is_read_back_or_cut_in_the_middle() {
    let (folder, mut store) = new_store();
    let session = session(&store);
    let with_log = |log| NewAttempt {
        log: Some(log),
        ..attempt(session, key(1), 0)
    };
    record(&mut store, &attempt(session, key(1), 0), 1.0);
    let first = NewAttempt {
        round: 1,
        ..with_log(b"")
    };
    let first = record(&mut store, &first, 1.0);
    assert_eq!(store.read_log(first).unwrap().unwrap(), b"");

    let mut long = vec![b'a'; LOG_BYTES_MAX + 5];
    long[0] = b'A';
    *long.last_mut().unwrap() = b'Z';
    let second = NewAttempt {
        round: 2,
        ..with_log(&long)
    };
    let second = record(&mut store, &second, 1.0);
    let text = store.read_log(second).unwrap().unwrap();
    let notice = "\n[… 5 bytes left out …]\n";
    assert_eq!(text.len(), LOG_BYTES_MAX + notice.len());
    assert_eq!((text[0], *text.last().unwrap()), (b'A', b'Z'));

    record(&mut store, &failed(session, key(1), "no log"), 0.0);
    assert_eq!(store.latest_log(key(1)).unwrap(), Some(second));
    assert_eq!(store.latest_log(key(2)).unwrap(), None);
    assert_eq!(store.read_log(AttemptId(1)).unwrap(), None);

    // As attempts of before have it.
    let kept: Vec<u8> = logs::compress(b"an older log").unwrap();
    store.db.execute("DELETE FROM log", []).unwrap();
    let path = folder.path().join("logs/000000/3.gz");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, kept).unwrap();
    assert_eq!(store.read_log(second).unwrap().unwrap(), b"an older log");
    std::fs::write(&path, b"no gzip").unwrap();
    let error = store.read_log(second).unwrap_err();
    assert_eq!(error.file, path);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(store.read_log(second).unwrap_err().file, path);
}

#[test]
fn results_of_a_writer_are_there_when_they_are_told() {
    let (folder, mut store) = new_store();
    let session = session(&store);
    record(&mut store, &attempt(session, key(0), 0), 0.5);
    let writer = store.writer().unwrap();
    let (told, results) = std::sync::mpsc::channel();
    let n = 3 * RESULTS_PER_SYNC_MAX as u32;
    for number in 0..n {
        let new = NewAttempt {
            log: Some(b"said"),
            ..attempt(session, key(number), 0)
        };
        let new = store.prepare(&new, &[iops(f64::from(number))], SampleContext::default());
        let told = told.clone();
        // Some are waited for, most are not.
        writer.write(new.unwrap(), number % 100 == 0, move |written| {
            told.send((number, written)).unwrap();
        });
    }
    let reader = Store::open_existing(folder.path()).unwrap();
    for expected in 0..n {
        let (number, written) = results.recv().unwrap();
        assert_eq!(number, expected, "in order");
        assert_eq!(written.unwrap() == Recorded::AlreadyDone, number == 0);
        assert_eq!(reader.finished(&[key(number)]).unwrap().count(0), 1);
    }
    // What is not told yet when it is dropped is written all the same.
    let new = store.prepare(
        &attempt(session, key(0), 1),
        &[iops(1.0)],
        SampleContext::default(),
    );
    writer.write(new.unwrap(), false, |_| {});
    drop(writer);
    assert_eq!(store.finished(&[key(0)]).unwrap().count(0), 2);
    store.integrity().unwrap();
}

#[test]
fn a_group_that_cannot_be_written_is_told_as_such() {
    let (_folder, store) = new_store();
    let session = session(&store);
    let writer = store.writer().unwrap();
    let (told, results) = std::sync::mpsc::channel();
    let nobody = [session, 77];
    for of in nobody {
        let new = store.prepare(
            &attempt(of, key(1), of as u32),
            &[],
            SampleContext::default(),
        );
        let told = told.clone();
        writer.write(new.unwrap(), of == 77, move |written| {
            told.send(written).unwrap()
        });
    }
    let errors: Vec<StoreError> = (0..2)
        .map(|_| results.recv().unwrap().unwrap_err())
        .collect();
    assert!(
        errors
            .iter()
            .all(|error| error.kind == StoreErrorKind::Invalid)
    );
    assert_eq!(count(&store, "attempt"), 0);
}

#[test]
fn those_who_wait_are_told_where_the_thread_panics() {
    let (_folder, store) = new_store();
    let session = session(&store);
    let writer = store.writer().unwrap();
    let (told, results) = std::sync::mpsc::channel();
    for round in 0..3 {
        let new = store.prepare(
            &attempt(session, key(1), round),
            &[],
            SampleContext::default(),
        );
        let told = told.clone();
        writer.write(new.unwrap(), round == 2, move |written| {
            assert!(round > 0, "as if writing had panicked");
            told.send(written).unwrap();
        });
    }
    drop(told);
    let results: Vec<_> = results.iter().map(|it| it.unwrap_err().kind).collect();
    assert_eq!(results, [StoreErrorKind::Io; 2]);
}

#[test]
fn a_failure_counts_until_a_later_success() {
    let (_folder, mut store) = new_store();
    let session = session(&store);
    let interrupted = NewAttempt {
        outcome: AttemptOutcome::Interrupted,
        ..attempt(session, key(3), 0)
    };
    record(&mut store, &failed(session, key(1), "first"), 0.0);
    let last = record(&mut store, &failed(session, key(1), "last"), 0.0);
    record(&mut store, &failed(session, key(2), "healed"), 0.0);
    record(&mut store, &attempt(session, key(2), 0), 1.0);
    record(&mut store, &interrupted, 0.0);
    let interrupted = NewAttempt {
        key: key(1),
        ..interrupted
    };
    record(&mut store, &interrupted, 0.0);
    let failures = store.failures(&sorted((0..5).map(key))).unwrap();
    assert_eq!(
        failures,
        [Failure {
            key: key(1),
            attempt: last,
            reason: "last".to_owned(),
            started_ms: 1_700_000_000_123
        }]
    );
    record(&mut store, &failed(session, key(2), "again"), 0.0);
    assert_eq!(store.failures(&[key(2)]).unwrap()[0].reason, "again");
}

#[test]
fn durations_are_means_of_what_was_ok() {
    let (_folder, mut store) = new_store();
    let session = session(&store);
    let took = |n, round, seconds| NewAttempt {
        duration: Duration::from_secs(seconds),
        ..attempt(session, key(n), round)
    };
    record(&mut store, &took(1, 0, 2), 1.0);
    record(&mut store, &took(1, 1, 4), 1.0);
    record(&mut store, &took(2, 0, 9), 1.0);
    let slow_failure = NewAttempt {
        duration: Duration::from_secs(1000),
        ..failed(session, key(1), "timeout")
    };
    record(&mut store, &slow_failure, 0.0);
    let keys = sorted((1..4).map(key));
    let durations: BTreeMap<Key, Option<Duration>> = keys
        .iter()
        .copied()
        .zip(store.durations(&keys).unwrap())
        .collect();
    assert_eq!(durations[&key(1)], Some(Duration::from_secs(3)));
    assert_eq!(durations[&key(2)], Some(Duration::from_secs(9)));
    assert_eq!(durations[&key(3)], None);
    let typical = |matrix, kind| store.typical_duration(matrix, kind).unwrap();
    assert_eq!(typical("m", StepKind::Run), Some(Duration::from_secs(5)));
    assert_eq!(typical("m", StepKind::Build), None);
    assert_eq!(typical("other", StepKind::Run), None);
}

#[test]
fn the_past_is_told_in_order_of_time_and_for_the_sessions_asked_for() {
    let (_folder, mut store) = new_store();
    let (first, second) = (session(&store), session(&store));
    let at = |session, n: u32, version, cell| NewAttempt {
        version,
        cell,
        ..attempt(session, key(n), 0)
    };
    record(&mut store, &at(first, 1, "v1", "bs=4k,version=v1"), 10.0);
    record(&mut store, &at(first, 2, "v1", "bs=1M,version=v1"), 99.0);
    record(&mut store, &at(second, 3, "v2", "bs=4k,version=v2"), 20.0);
    let check_max =
        |store: &Store, samples_max, matrix, presets, sessions, expected: &[(&str, f64)]| {
            let span = SessionSpan {
                matrix,
                presets,
                metrics: &store.metrics().unwrap().iter().map(|it| it.id).collect(),
                sessions,
                samples_max,
                is_kept: true,
            };
            let mut found = Vec::new();
            let mut take = |it: PastPoint| found.push((it.cell.to_owned(), it.values[0]));
            let unsaved = store.past(&span, &mut take).unwrap();
            let found: Vec<(&str, f64)> = found.iter().map(|(c, v)| (c.as_str(), *v)).collect();
            assert_eq!(found, expected);
            unsaved
        };
    let check = |matrix, presets, sessions, expected: &[(&str, f64)]| {
        check_max(&store, 3, matrix, presets, sessions, expected)
    };
    let all = [
        ("bs=4k,version=v1", 10.0),
        ("bs=1M,version=v1", 99.0),
        ("bs=4k,version=v2", 20.0),
    ];
    let saved = |store: &Store| {
        let count = "SELECT count(*) FROM session_points";
        let count = store.db.query_row(count, [], |row| row.get::<_, i64>(0));
        count.unwrap()
    };
    store.end_session(first, 1, "ok").unwrap();
    let unsaved = check("m", ["quick", "quick"], 9, &all);
    store.save_points(&unsaved);
    // Not of the other one: it has not ended.
    assert_eq!(saved(&store), 1);
    // In one piece it is the same; one of another program is read row by row.
    check("m", ["quick", "quick"], 9, &all);
    let spoil = "UPDATE session_points SET points = x'07'";
    store.db.execute(spoil, []).unwrap();
    check("m", ["quick", "quick"], 9, &all);
    check("m", ["", "quick"], 1, &all[2..]);
    // Of too many samples the latest sessions.
    check_max(&store, 2, "m", ["quick", ""], 9, &all[2..]);
    check("m", ["nightly", ""], 9, &[]);
    check("other", ["quick", ""], 9, &[]);
    let position = |ms, depth| Position { ms, depth };
    let first_of = |store: &Store, n| store.first_measured(key(n)).unwrap();
    let measured = 1_700_000_000_123;
    let here = Some((measured, position(measured, 0)));
    assert_eq!(first_of(&store, 1), here);
    assert_eq!(first_of(&store, 9), None);

    // Commits stand where their repository says, also where it says so later.
    let v1 = ("v1", "c0ffee");
    store.put_commits(first, &[v1], &HashMap::new()).unwrap();
    assert_eq!(first_of(&store, 1), here);
    assert_eq!(store.commits("m").unwrap(), []);
    let positions = HashMap::from([("c0ffee".to_owned(), position(5, 7))]);
    store.put_commits(second, &[v1], &positions).unwrap();
    assert_eq!(first_of(&store, 1), Some((measured, position(5, 7))));
    assert_eq!(first_of(&store, 3), here);
    let commits = store.commits("m").unwrap();
    assert_eq!(commits.len(), 2);
    assert!(commits.iter().all(|it| it.position == position(5, 7)));
    assert_eq!(store.commits("other").unwrap(), []);
}

#[test]
fn what_is_said_about_series_is_kept() {
    let (_folder, store) = new_store();
    let series = |cell: &str| SeriesId {
        machine: "here".into(),
        cell: cell.into(),
        metric: IOPS.into(),
    };
    let tell = |points: &[(SeriesId, Key)], until| {
        store
            .tell("m", "quick", points, AttemptId(until), 1)
            .unwrap()
    };
    assert_eq!(store.told("m", "quick").unwrap(), (vec![], None));
    assert_eq!(tell(&[(series("bs=4k"), key(1))], 5), [1]);
    assert_eq!(
        tell(&[(series("bs=1M"), key(1)), (series("bs=4k"), key(1))], 9),
        [2, 1]
    );
    let (told, until) = store.told("m", "quick").unwrap();
    assert_eq!(told.iter().map(|told| told.id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(until, Some(AttemptId(9)));
    assert_eq!(store.told("m", "nightly").unwrap(), (vec![], None));

    let mut acceptance = Acceptance {
        id: 0,
        what: "bs=4k".into(),
        reason: "safer".into(),
        author: "somebody".into(),
        accepted_ms: 7,
        undone_ms: None,
        series: vec![AcceptedFrom {
            series: series("bs=4k"),
            key: key(1),
            version: "v2".into(),
            since_ms: 3,
        }],
    };
    acceptance.id = store.accept("m", &acceptance).unwrap();
    assert_eq!(store.acceptances("m").unwrap(), [acceptance.clone()]);
    assert_eq!(store.acceptances("other").unwrap(), []);
    assert!(!store.undo_acceptance("other", acceptance.id, 8).unwrap());
    assert!(store.undo_acceptance("m", acceptance.id, 8).unwrap());
    assert!(!store.undo_acceptance("m", acceptance.id, 9).unwrap());
    assert_eq!(store.acceptances("m").unwrap()[0].undone_ms, Some(8));

    let pair = || (key(1), key(2), IOPS.to_owned());
    store.confirming(&[pair()], 5).unwrap();
    store.confirming(&[pair()], 11).unwrap();
    let noted = |finished| Confirmation {
        first_round: 11,
        finished,
    };
    assert_eq!(store.confirmations().unwrap()[&pair()], noted(false));
    store.confirmed(&[pair()]).unwrap();
    assert_eq!(store.confirmations().unwrap()[&pair()], noted(true));
}

#[test]
fn the_view_for_people_has_a_row_for_each_sample() {
    let (_folder, mut store) = new_store();
    let session = session(&store);
    record(&mut store, &attempt(session, key(1), 0), 1000.0);
    let row: (String, String, f64, String, f64, String) = store
        .db
        .query_row(
            "SELECT matrix, metric, value, taken_at, duration_s, key FROM samples",
            [],
            |row| {
                Ok((
                    row.get(0)?,
                    row.get(1)?,
                    row.get(2)?,
                    row.get(3)?,
                    row.get(4)?,
                    row.get(5)?,
                ))
            },
        )
        .unwrap();
    let expected = (
        "m".to_owned(),
        IOPS.to_owned(),
        1000.0,
        "2023-11-14T22:13:20.123Z".to_owned(),
        2.0,
        key(1).to_string(),
    );
    assert_eq!(row, expected);
}

#[test]
fn what_must_not_be_stored_is_refused() {
    let (_folder, mut store) = new_store();
    let session = session(&store);
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    let ok = attempt(session, key(1), 0);
    let mut check = |attempt: &NewAttempt, readings: &[NewReading], detail: &str| {
        let error = store.record(attempt, readings).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Invalid, "{error}");
        assert!(error.detail.contains(detail), "{error}");
        assert_eq!(count(&store, "attempt"), 0);
    };
    check(&ok, &[iops(f64::NAN)], "`iops` is NaN");
    check(&ok, &[iops(1.0), iops(2.0)], "UNIQUE");
    check(&failed(session, key(1), ""), &[iops(1.0)], "not ok");
    check(&ok, &vec![iops(1.0); READINGS_MAX + 1], "10001 readings");
    let too_long = NewAttempt {
        cell: &long,
        ..ok.clone()
    };
    check(&too_long, &[], "a cell of 4097 bytes");
    let nobody = NewAttempt { session: 77, ..ok };
    check(&nobody, &[], "FOREIGN KEY");

    let unsorted = store.finished(&[key(1), key(1)]).unwrap_err();
    assert_eq!(unsorted.kind, StoreErrorKind::Invalid);
    assert!(store.put_environment("{").is_err());
    assert!(store.end_session(77, 0, "done").is_err());
}

#[test]
fn the_schema_knows_every_kind_and_outcome() {
    let (_folder, mut store) = new_store();
    let session = session(&store);
    let pairs = StepKind::ALL
        .into_iter()
        .flat_map(|kind| AttemptOutcome::ALL.map(|outcome| (kind, outcome)));
    for (round, (kind, outcome)) in (0..).zip(pairs) {
        let new = NewAttempt {
            kind,
            outcome,
            ..attempt(session, key(1), round)
        };
        record(&mut store, &new, 1.0);
    }
    assert_eq!(count(&store, "attempt"), 15);
}

#[test]
fn a_long_reason_is_cut_at_a_character() {
    let (_folder, mut store) = new_store();
    let session = session(&store);
    let long = "é".repeat(NOTE_BYTES_MAX);
    let new = NewAttempt {
        outcome: AttemptOutcome::Refused,
        reason: &long,
        ..attempt(session, key(1), 0)
    };
    record(&mut store, &new, 0.0);
    let reason = &store.failures(&[key(1)]).unwrap()[0].reason;
    assert_eq!(reason.len(), NOTE_BYTES_MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The scan and the look-ups agree with a plain model, with gaps, strangers and any order.
    #[test]
    fn finished_and_samples_agree_with_a_model(
        done in prop::collection::btree_map((0u32..20, 0u32..6), -1e9..1e9f64, 0..60),
        asked in prop::collection::btree_set(0u32..25, 0..25),
    ) {
        let (_folder, mut store) = new_store();
        store.db.pragma_update(None, "synchronous", "OFF").unwrap();
        let session = session(&store);
        for (&(n, round), &value) in done.iter().rev() {
            record(&mut store, &attempt(session, key(n), round), value);
        }
        let keys = sorted(asked.iter().copied().map(key));
        let finished = store.finished(&keys).unwrap();
        let samples = store.samples(&keys).unwrap();
        let mut model = Vec::new();
        for (at, wanted) in keys.iter().enumerate() {
            let of_key = done.iter().filter(|((n, _), _)| key(*n) == *wanted);
            let rounds: Vec<u32> = of_key.clone().map(|((_, round), _)| *round).collect();
            prop_assert_eq!(finished.rounds(at).collect::<Vec<_>>(), rounds.clone());
            prop_assert_eq!(finished.count(at), rounds.len());
            model.extend(of_key.map(|((_, round), value)| (*wanted, *round, *value)));
        }
        let samples: Vec<_> = samples
            .iter()
            .map(|found| (found.key, found.sample.round, found.sample.value))
            .collect();
        prop_assert_eq!(samples, model);
    }
}

#[test]
fn look_ups_read_indexes_only() {
    let (_folder, store) = new_store();
    let check = |sql: &str, index: &str| {
        let plan: Vec<String> = store
            .db
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap()
            .query_map([key(1), key(2)], |row| row.get(3))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let plan = plan.join("; ");
        assert!(plan.contains(index) && !plan.contains("TEMP"), "{plan}");
    };
    for (sql, index) in lookup::STATEMENTS {
        check(sql, index);
    }
}
