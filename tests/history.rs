//! End-to-end tests of what is remembered: the order of versions, machines that changed, what is accepted.

#[allow(dead_code)]
#[path = "run/lab.rs"]
mod lab;
#[allow(dead_code)]
#[path = "versions/repo.rs"]
mod repo;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use lab::{Lab, Ran};
use repo::Repo;

/// Commits of the series; from `MOVED` on it is slower.
const COMMITS: usize = 40;
const MOVED: usize = 22;
/// What was left out at first.
const BELATED: std::ops::Range<usize> = 20..26;

/// One cell on a machine where nothing runs, slower from the commit `MOVED` on.
fn null_matrix() -> String {
    let effects = (MOVED..COMMITS).map(|i| format!("c{i} = \"+20%\""));
    format!(
        r#"
        [subject.git]
        repo = "nowhere"
        [machines.x]
        via = "null"
        effects = {{ {} }}
        [axes]
        machine = ["x"]
        [run]
        command = "x {{{{ version }}}}"
        parser  = "fio"
        repeat  = 3
        [metrics.lat]
        better = "lower"
        "#,
        effects.collect::<Vec<_>>().join(", ")
    )
}

fn documents(lab: &Lab, arguments: &[&str]) -> Value {
    let output = lab.matrix(&[arguments, &["--json"]].concat()).output();
    let output = output.unwrap();
    lab::schema::document(&output)
}

fn points(lab: &Lab) -> Vec<String> {
    let history = documents(lab, &["history", "matrix.toml"]);
    let points = history["series"][0]["points"].as_array().unwrap().iter();
    points
        .map(|point| point["version"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn commits_stand_in_their_order_whenever_they_are_measured() {
    let repo = Repo::new();
    // All commits have the same date, as those of a rebase have.
    let commits: Vec<String> = (0..COMMITS)
        .map(|i| {
            repo.write("file", &i.to_string());
            repo.commit("c")
        })
        .collect();
    let lab = Lab::new(&null_matrix());
    let measure = |which: &mut dyn Iterator<Item = usize>| {
        let versions = which.flat_map(|i| ["--version".to_owned(), format!("c{i}={}", commits[i])]);
        let versions: Vec<String> = versions.collect();
        let mut more = vec!["--repo".to_owned(), repo.path()];
        more.extend(versions);
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        lab.start_with("matrix.toml", "events", &more)
            .wait()
            .assert_code(0);
    };
    let label = |i: usize| format!("c{i}");
    measure(&mut (0..BELATED.start).chain(BELATED.end..COMMITS));
    let told = || {
        let changes = documents(&lab, &["changes", "matrix.toml"]);
        let causes = changes["causes"].as_array().unwrap().iter();
        let mut told: Vec<(i64, String, Value)> = causes
            .map(|cause| {
                let at = cause["most_likely"].as_str().unwrap().to_owned();
                let cell = &cause["cells"][0];
                (cause["id"].as_i64().unwrap(), at, cell["told_at"].clone())
            })
            .collect();
        told.sort_by_key(|told| told.0);
        told
    };
    assert_eq!(told(), [(1, label(BELATED.end), Value::Null)]);

    // What was left out is measured belatedly: it stands where it belongs.
    measure(&mut BELATED.rev());
    assert_eq!(points(&lab), (0..COMMITS).map(label).collect::<Vec<_>>());
    // What was told moves to where it is, and keeps its number.
    let told_at = Value::from(label(BELATED.end));
    assert_eq!(told(), [(1, label(MOVED), told_at)]);
    let text = lab.matrix(&["changes", "matrix.toml"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    let words = format!("was told at `{}` first", label(BELATED.end));
    assert!(text.contains(&words), "{text}");

    // The cell is accepted as its latest commit is, not as what was measured last, which is said.
    let output = accept_command(&lab, &["--only", "machine == 'x'"]).output();
    let output = output.unwrap();
    let document: Value = lab::schema::document(&output);
    assert_eq!(document["accepted"][0]["versions"], json!(["c39"]));
    let said = String::from_utf8(output.stderr).unwrap();
    let words = format!(
        "`c39`, its latest version; measured last was `c{}`",
        BELATED.end - 1
    );
    assert!(said.contains(&words), "{said}");

    // Neither the repository nor its mirror is needed for that.
    drop(repo);
    let _ = fs::remove_dir_all(lab.path(".matrix/mirrors"));
    assert_eq!(points(&lab), (0..COMMITS).map(label).collect::<Vec<_>>());
}

#[test]
fn a_change_among_commits_measured_belatedly_is_told() {
    let repo = Repo::new();
    let commits: Vec<String> = (0..80)
        .map(|i| {
            repo.write("file", &i.to_string());
            repo.commit("c")
        })
        .collect();
    // Slower at 24, back again at 60.
    let effects = (24..60).map(|i| format!("c{i} = \"+20%\""));
    let effects = effects.collect::<Vec<_>>().join(", ");
    let from = null_matrix();
    let from = from.lines().find(|line| line.contains("effects")).unwrap();
    let lab = Lab::new(&null_matrix().replace(from, &format!("effects = {{ {effects} }}")));
    let measure = |which: std::ops::Range<usize>| {
        let mut more = vec!["--repo".to_owned(), repo.path()];
        for i in which {
            more.extend(["--version".to_owned(), format!("c{i}={}", commits[i])]);
        }
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        lab.start_with("matrix.toml", "events", &more)
            .wait()
            .assert_code(0);
    };
    let told = || {
        let changes = documents(&lab, &["changes", "matrix.toml"]);
        let causes = changes["causes"].as_array().unwrap().iter();
        let told = causes.map(|cause| {
            let cell = &cause["cells"][0];
            json!([cause["most_likely"], cell["standing"], cell["told_at"]])
        });
        let mut told: Vec<Value> = told.collect();
        told.sort_by_key(ToString::to_string);
        Value::from(told)
    };
    measure(40..80);
    // That the past cannot be kept in one piece stops nothing.
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON session_points
                  BEGIN SELECT RAISE(ABORT, 'refused'); END";
    lab.store().execute(refuse, []).unwrap();
    assert_eq!(told(), json!([["c60", null, null]]));
    measure(0..40);
    // The one that is new has nothing to be compared with; as of the second look it was told.
    let old = json!(["c60", "stands", null]);
    assert_eq!(told(), json!([["c24", null, null], old]));
    assert_eq!(told()[1], old);
}

#[test]
fn a_history_that_cannot_be_walked_stops_no_run() {
    let repo = Repo::new();
    let commits: Vec<String> = (0..3)
        .map(|i| {
            repo.write("file", &i.to_string());
            repo.commit("c")
        })
        .collect();
    let (folder, rest) = commits[0].split_at(2);
    fs::remove_file(format!("{}/.git/objects/{folder}/{rest}", repo.path())).unwrap();
    let lab = Lab::new(&null_matrix());
    let version = format!("c2={}", commits[2]);
    let arguments = [
        "run",
        "matrix.toml",
        "--repo",
        &repo.path(),
        "--version",
        &version,
    ];
    let output = lab.matrix(&arguments).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("note: it is not known where the versions stand"),
        "{said}"
    );
    assert_eq!(points(&lab), ["c2"]);
    // A later run can place it.
    let noted = "SELECT count(*) FROM version_commit WHERE position_ms IS NULL";
    assert_eq!(lab.count(noted), 1);
}

/// Programs of three versions, measured on this machine.
fn programs() -> Lab {
    let lab = Lab::new(
        r#"
        [subject]
        installed = ["prog"]
        [run]
        command = ["{{ bin }}/prog"]
        parser  = { kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }
        repeat  = 3
        confirm = false
        [metrics.v]
        better = "higher"
        [[compare]]
        axis = "version"
        gate = false
        "#,
    );
    for (name, value) in [("a", 100), ("b", 110), ("c", 120)] {
        let program = lab.path(&format!("{name}/prog"));
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, format!("#!/bin/sh\necho v={value}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    lab
}

fn versions<'a>(names: &[&'a str]) -> Vec<&'a str> {
    names.iter().flat_map(|name| ["--version", name]).collect()
}

fn run(lab: &Lab, names: &[&str]) -> Ran {
    lab.start_with("matrix.toml", "events", &versions(names))
        .wait()
}

/// As if all samples until now had been taken with another kernel.
fn of_another_kernel(lab: &Lab) {
    let db = lab.store();
    let read = "SELECT json FROM environment";
    let text: String = db.query_row(read, [], |row| row.get(0)).unwrap();
    let mut environment: Value = serde_json::from_str(&text).unwrap();
    environment["values"]["kernel"] = "5.10.0 #1 SMP".into();
    let id = [7u8; 16];
    let add = "INSERT INTO environment (id, json) VALUES (?1, ?2)";
    db.execute(add, rusqlite::params![id, environment.to_string()])
        .unwrap();
    db.execute("UPDATE attempt SET environment = ?1", [id])
        .unwrap();
}

fn rounds(ran: &Ran, name: &str) -> Vec<u64> {
    let of = ran.measured().into_iter();
    of.filter(|(cell, _)| cell.contains(&format!("version={name}")))
        .map(|(_, round)| round)
        .collect()
}

#[test]
fn a_baseline_of_another_environment_is_measured_again_beside_the_candidate() {
    let lab = programs();
    run(&lab, &["a/", "b/"]).assert_code(0);
    of_another_kernel(&lab);
    // Nothing new is to be compared: nothing is measured for its own sake.
    assert_eq!(run(&lab, &["a/", "b/"]).measured(), []);

    let plan = documents(
        &lab,
        &[
            &["plan", "matrix.toml", "--why"],
            &versions(&["a/", "c/"])[..],
        ]
        .concat(),
    );
    let why = plan["why"].as_array().unwrap().iter();
    let why: Vec<&Value> = why
        .filter(|it| it["example"].to_string().contains("version=a"))
        .collect();
    let [why] = &why[..] else { panic!("{plan}") };
    let told = why["why"].as_str().unwrap();
    assert!(
        told.starts_with("environment differs: kernel: `5.10.0 #1 SMP` → `"),
        "{told}"
    );
    assert_eq!(plan["measurements"], 6);

    let ran = run(&lab, &["a/", "c/"]);
    ran.assert_code(0);
    // In the same rounds, so that they pair; and only these are compared.
    assert_eq!(rounds(&ran, "a"), [3, 4, 5]);
    assert_eq!(rounds(&ran, "c"), [3, 4, 5]);
    let row = &ran.document["verdicts"][0];
    let note = row["note"].as_str().unwrap_or_default();
    assert_eq!(
        (&row["n"], note.contains("environment")),
        (&json!([3, 3]), false),
        "{row}"
    );
    assert_eq!(ran.document["environments"], json!([]));
    // That was all: the next night compares with what is there.
    assert_eq!(run(&lab, &["a/", "c/"]).measured(), []);
    // What both had then is still compared.
    let old = documents(
        &lab,
        &[&["compare", "matrix.toml"], &versions(&["a/", "b/"])[..]].concat(),
    );
    assert_eq!(old["verdicts"][0]["n"], json!([3, 3]));
    assert_eq!(old["environments"], json!([]));
}

#[test]
fn what_a_baseline_of_another_environment_lacks_is_made_up_for() {
    let lab = programs();
    run(&lab, &["a/", "b/"]).assert_code(0);
    of_another_kernel(&lab);
    run(&lab, &["c/"]).assert_code(0);
    // The candidate is stored: without the baseline it tells nothing.
    let ran = run(&lab, &["a/", "c/"]);
    ran.assert_code(0);
    assert_eq!(
        (rounds(&ran, "a"), rounds(&ran, "c")),
        (vec![3, 4, 5], vec![])
    );
    assert_eq!(ran.document["environments"], json!([]));
    assert_eq!(run(&lab, &["a/", "c/"]).measured(), []);
    // These have something in common, though one of them was measured since.
    assert_eq!(run(&lab, &["a/", "b/"]).measured(), []);
}

#[test]
fn a_budget_has_room_for_the_baseline_of_another_environment_first() {
    let lab = programs();
    run(&lab, &["a/"]).assert_code(0);
    of_another_kernel(&lab);
    // So long is thought to be needed for each: there is room for two of three cells.
    let long = "UPDATE attempt SET duration_us = 10000000";
    lab.store().execute(long, []).unwrap();
    let budget = [&versions(&["a/", "b/", "c/"])[..], &["--budget", "65s"]].concat();
    let ran = lab.start_with("matrix.toml", "events", &budget).wait();
    ran.assert_code(0);
    assert_eq!(rounds(&ran, "a"), [3, 4, 5]);
    assert_eq!(ran.measured().len(), 6);
}

#[test]
fn rounds_of_another_environment_do_not_count_however_young_they_are() {
    let lab = programs();
    run(&lab, &["a/"]).assert_code(0);
    of_another_kernel(&lab);
    let old = "UPDATE attempt SET started_ms = started_ms - 31 * 86400000 WHERE round = 0";
    lab.store().execute(old, []).unwrap();
    let max_age = [&versions(&["a/", "c/"])[..], &["--max-age", "30d"]].concat();
    let ran = lab.start_with("matrix.toml", "events", &max_age).wait();
    ran.assert_code(0);
    assert_eq!(rounds(&ran, "a"), [3, 4, 5]);
}

#[test]
fn sides_without_a_common_environment_say_so() {
    let lab = programs();
    run(&lab, &["b/"]).assert_code(0);
    of_another_kernel(&lab);
    run(&lab, &["c/"]).assert_code(0);
    let apart = documents(
        &lab,
        &[&["compare", "matrix.toml"], &versions(&["b/", "c/"])[..]].concat(),
    );
    let note = apart["verdicts"][0]["note"].as_str().unwrap();
    assert!(
        note.contains(
            "the sides were measured in different environments: kernel: `5.10.0 #1 SMP` → `"
        ),
        "{note}"
    );
    assert_eq!(apart["environments"].as_array().unwrap().len(), 1);
}

#[test]
fn a_confirmed_regression_stands_until_it_is_refuted_or_accepted() {
    let lab = programs();
    let matrix = fs::read_to_string(lab.path("matrix.toml")).unwrap();
    let matrix = matrix.replace("confirm = false", "confirm = { rounds = 16 }");
    let matrix = matrix.replace("gate = false", "");
    fs::write(lab.path("matrix.toml"), matrix).unwrap();
    for (name, value) in [("a", 1000), ("b", 800), ("c", 800), ("d", 1000)] {
        let program = lab.path(&format!("{name}/prog"));
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        // Some noise.
        let text = format!("#!/bin/sh\n# {name}\necho v=$(({value} + $$ % 7))\n");
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let standing = |ran: &Ran| ran.document["open_regressions"].as_array().unwrap().clone();
    run(&lab, &["a/"]).assert_code(0);
    let first = run(&lab, &["a/", "b/"]);
    first.assert_code(1);
    assert_eq!(first.document["verdicts"][0]["confirmed"], true);
    assert_eq!(standing(&first), [] as [Value; 0]);

    // Another version with the same slowdown: two rounds of the baseline beside it, and no confirmation.
    let still = run(&lab, &["a/", "c/"]);
    still.assert_code(1);
    assert_eq!(
        (rounds(&still, "a").len(), rounds(&still, "c").len()),
        (2, 3)
    );

    // Against the last version, which is as slow.
    let last = run(&lab, &["b/", "c/"]);
    last.assert_code(1);
    let rows = standing(&last);
    assert_eq!(rows.len(), 1, "{}", last.document);
    let row = &rows[0];
    let told = [&row["baseline"], &row["candidate"], &row["now"]];
    assert_eq!(told, ["a", "b", "c"], "{row}");
    assert_eq!((&row["gate"], &row["session"]), (&json!(true), &json!(2)));

    accept(&lab, &["machine=local", "--version", "c/"]);
    let accepted = run(&lab, &["b/", "c/"]);
    accepted.assert_code(0);
    assert_eq!(standing(&accepted), [] as [Value; 0]);
    let undo = ["accept", "matrix.toml", "--undo", "1"];
    assert!(lab.matrix(&undo).status().unwrap().success());
    run(&lab, &["b/", "c/"]).assert_code(1);

    let gone = run(&lab, &["a/", "d/"]);
    gone.assert_code(0);
    assert_eq!(standing(&gone), [] as [Value; 0]);
    assert_eq!(
        lab.count("SELECT count(*) FROM series_finding WHERE ended IS NULL"),
        0
    );
}

fn accept_command(lab: &Lab, arguments: &[&str]) -> Command {
    let own = ["accept", "matrix.toml", "--reason", "x", "--json"];
    lab.matrix(&[&own, arguments].concat())
}

fn accept(lab: &Lab, arguments: &[&str]) -> (Option<i32>, Value) {
    let output = accept_command(lab, arguments)
        .stderr(Stdio::null())
        .output();
    let output = output.unwrap();
    let document: Value = lab::schema::document(&output);
    (output.status.code(), document)
}

#[test]
fn what_is_accepted_is_of_the_versions_that_are_named() {
    let lab = programs();
    for name in ["a/", "b/", "c/"] {
        run(&lab, &[name]).assert_code(0);
    }
    let check = |arguments: &[&str], expected: &str| {
        let (code, document) = accept(&lab, arguments);
        assert_eq!(code, Some(0), "{document}");
        let versions = &document["accepted"][0]["versions"];
        assert_eq!(*versions, json!([expected]), "{arguments:?}");
    };
    check(&["--only", "machine == 'local'"], "c");
    check(&["--only", "version == 'b'"], "b");
    check(&["--only", "machine == 'local'", "--version", "a/"], "a");
    check(&["machine=local", "--version", "b"], "b");
    check(&["machine=local,version=a"], "a");
    let refused = |arguments: &[&str], code| assert_eq!(accept(&lab, arguments).0, Some(code));
    refused(&["--only", "version == 'd'"], 4);
    refused(&["--only", "machine == 'local'", "--version", "a..b"], 2);
    refused(&["--change", "1", "--version", "a/"], 2);
    refused(&["machine=local", "--against", "a/"], 2);
    // A series goes over all versions.
    for verb in ["history", "changes"] {
        for narrow in [["--version", "a/"], ["--only", "version == 'a'"]] {
            let output = lab
                .matrix(&[&[verb, "matrix.toml"], &narrow[..]].concat())
                .output();
            let output = output.unwrap();
            assert_eq!(output.status.code(), Some(2));
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains("leave `--version` out"), "{said}");
        }
    }
}

#[test]
fn what_is_accepted_is_what_was_measured_last() {
    let lab = programs();
    let text = fs::read_to_string(lab.path("matrix.toml")).unwrap();
    let with = |word: &str| {
        let changed = text.replace(
            "{{ bin }}/prog\"",
            &format!("{{{{ bin }}}}/prog\", \"{word}\""),
        );
        fs::write(lab.path("matrix.toml"), changed).unwrap();
    };
    with("one");
    run(&lab, &["a/"]).assert_code(0);
    with("two");
    run(&lab, &["a/"]).assert_code(0);
    // Back to the first text, whose samples are older.
    with("one");
    let fresh = [&versions(&["a/"])[..], &["--fresh"]].concat();
    lab.start_with("matrix.toml", "events", &fresh)
        .wait()
        .assert_code(0);
    assert_eq!(accept(&lab, &["machine=local"]).0, Some(0));
    let is_last = "SELECT count(*) FROM accepted_series
                   WHERE key = (SELECT key FROM attempt ORDER BY id DESC LIMIT 1)";
    assert_eq!(lab.count(is_last), 1);
}
