//! The tests of verdicts from end to end: real runs of `matrix` on `null` machines, and plain files.

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Output};

use matrix::base::key::Key;
use matrix::base::sample::Better;
use matrix::edge::store::{AttemptOutcome, NewAttempt, NewReading, SessionStart, StepKind, Store};
use matrix::machine::environment::Environment;
use serde_json::Value;
use tempfile::TempDir;

#[path = "schema/mod.rs"]
mod schema;

/// A folder in which `matrix` runs.
struct Lab {
    folder: TempDir,
}

/// A matrix of two cells and two metrics on a `null` machine; `head` are keys of its machine, `run` of `[run]`.
fn matrix(head: &str, run: &str) -> String {
    format!(
        "[matrix]\nname = \"m\"\n[machines.x]\nvia = \"null\"\n{head}\n\
         [axes]\nmachine = [\"x\"]\nbs = [\"4k\", \"1M\"]\n\
         [run]\ncommand = \"x {{{{ bs }}}}\"\nparser = \"fio\"\n{run}\n\
         [metrics.lat]\nbetter = \"lower\"\n[metrics.iops]\nbetter = \"higher\"\n\
         [[compare]]\naxis = \"version\"\n"
    )
}

impl Lab {
    fn new(matrix: &str) -> Lab {
        let lab = Lab {
            folder: TempDir::new().unwrap(),
        };
        lab.write("m.toml", matrix);
        lab
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn matrix(&self, arguments: &[&str]) -> Output {
        // A version is a folder; on a `null` machine only its name matters.
        for version in arguments.iter().filter(|argument| argument.ends_with('/')) {
            fs::create_dir_all(self.folder.path().join(version)).unwrap();
        }
        Command::new(env!("CARGO_BIN_EXE_matrix"))
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("USER", "somebody")
            .env("COLUMNS", "160")
            .env("MATRIX_LOCK", self.folder.path().join("lock"))
            .output()
            .unwrap()
    }

    /// The JSON document and the exit status.
    fn json(&self, arguments: &[&str]) -> (Value, i32) {
        let output = self.matrix(&[arguments, &["--json"]].concat());
        let document = schema::document(&output);
        (document, output.status.code().unwrap())
    }

    fn run(&self, versions: &[&str]) -> (Value, i32) {
        let mut arguments = vec!["run", "m.toml"];
        for version in versions {
            arguments.extend(["--version", version]);
        }
        self.json(&arguments)
    }

    /// One run for each version, night after night.
    fn nights(&self, nights: std::ops::Range<usize>) {
        for night in nights {
            self.run(&[&format!("n{night}/")]);
        }
    }

    fn store(&self) -> Store {
        Store::open(&self.folder.path().join(".matrix")).unwrap()
    }
}

fn verdicts(report: &Value) -> Vec<(String, String, Value)> {
    let rows = report["verdicts"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    rows.map(|row| {
        (
            text(&row["metric"]),
            text(&row["verdict"]),
            row["confirmed"].clone(),
        )
    })
    .collect()
}

/// Effects of the nights from `first` on, as a machine declares them.
fn effects(first: usize, last: usize) -> String {
    let mut text = "effects = { ".to_owned();
    for night in first..=last {
        let comma = if night == first { "" } else { ", " };
        let _ = write!(text, "{comma}n{night} = \"+6%\"");
    }
    text + " }"
}

#[test]
fn findings_are_measured_again_before_they_count_as_confirmed() {
    let lab = Lab::new(&matrix("effects = { v2 = \"+6%\" }", "repeat = 5"));
    let (report, status) = lab.run(&["v1/", "v2/"]);
    assert_eq!(status, 1);
    for (metric, verdict, confirmed) in verdicts(&report) {
        let expected = if metric == "lat" {
            "regression"
        } else {
            "improvement"
        };
        assert_eq!((verdict.as_str(), confirmed), (expected, Value::Bool(true)));
    }
    // Only fresh rounds speak for a finding: four or eight a side suffice, beside the five that found it.
    let rows = report["verdicts"].as_array().unwrap();
    let is_few = |n: &Value| [4, 8].iter().any(|few| *n == serde_json::json!([few, few]));
    assert!(rows.iter().all(|row| is_few(&row["n"])));
    assert!(
        report["cells"]
            .as_array()
            .unwrap()
            .iter()
            .all(|cell| cell["n"] == 9 || cell["n"] == 13)
    );
    // What was confirmed stays so, without another rerun.
    let (again, _) = lab.run(&["v1/", "v2/"]);
    assert_eq!(again["verdicts"], report["verdicts"]);
}

/// Medians of the rounds in `rounds` of each version, by metric and cell.
fn medians(lab: &Lab, rounds: std::ops::Range<u32>) -> Vec<(String, String, [f64; 2])> {
    let file = lab.folder.path().join(".matrix/matrix.db");
    let database = rusqlite::Connection::open(file).unwrap();
    let mut statement = database
        .prepare("SELECT cell, metric, value, version FROM samples WHERE round BETWEEN ?1 AND ?2 ORDER BY value")
        .unwrap();
    let read = |row: &rusqlite::Row| {
        Ok((
            row.get::<_, String>(0)?,
            row.get::<_, String>(1)?,
            row.get::<_, f64>(2)?,
            row.get::<_, String>(3)?,
        ))
    };
    let rows = statement
        .query_map([rounds.start, rounds.end - 1], read)
        .unwrap();
    let mut values: std::collections::BTreeMap<(String, String), [Vec<f64>; 2]> =
        Default::default();
    for (cell, metric, value, version) in rows.map(Result::unwrap) {
        let cell = cell.replace(&format!("version={version},"), "");
        let sides = values.entry((cell, metric)).or_default();
        sides[usize::from(version == "v2")].push(value);
    }
    let middle = |side: &Vec<f64>| (side[(side.len() - 1) / 2] + side[side.len() / 2]) / 2.0;
    let all = values.into_iter();
    all.map(|((cell, metric), sides)| (cell, metric, [middle(&sides[0]), middle(&sides[1])]))
        .collect()
}

#[test]
fn all_of_a_row_is_told_of_the_same_samples_also_after_fresh_ones() {
    let lab = Lab::new(&matrix("effects = { v2 = \"+6%\" }", "repeat = 5"));
    let check = |report: &Value| {
        let rows = report["verdicts"].as_array().unwrap();
        assert_eq!(rows.len(), 4);
        let rounds = |key: &str| {
            let file = lab.folder.path().join(".matrix/matrix.db");
            let database = rusqlite::Connection::open(file).unwrap();
            let query = format!("SELECT {key}(first_round) FROM confirmation");
            database
                .query_row(&query, [], |row| row.get::<_, u32>(0))
                .unwrap()
        };
        let first = rounds("max");
        for row in rows {
            assert_eq!(row["confirmed"], true);
            let n = row["n"][0].as_u64().unwrap() as u32;
            assert_eq!(row["n"][0], row["n"][1]);
            let expected = medians(&lab, first..first + n);
            let mut expected = expected.into_iter();
            let own = expected.find(|it| row["cell"] == *it.0 && row["metric"] == *it.1);
            let [base, cand] = own.unwrap().2;
            let near = |name: &str, value: f64| {
                let told = row[name].as_f64().unwrap();
                assert!((told / value - 1.0).abs() < 1e-9, "{name}: {told} {value}");
            };
            near("baseline_median", base);
            near("candidate_median", cand);
        }
    };
    let (report, _) = lab.run(&["v1/", "v2/"]);
    check(&report);
    // Measured again, and confirmed again by rounds of its own.
    let (fresh, _) = lab.json(&[
        "run",
        "m.toml",
        "--fresh",
        "--version",
        "v1/",
        "--version",
        "v2/",
    ]);
    check(&fresh);
}

#[test]
fn an_interrupted_confirmation_goes_on_with_the_next_run() {
    let lab = Lab::new(&matrix("effects = { v2 = \"+6%\" }", "repeat = 5"));
    let (whole, _) = lab.run(&["v1/", "v2/"]);
    // As if the power had failed in the fourth fresh round: one side has it, the other has not.
    let file = lab.folder.path().join(".matrix/matrix.db");
    let database = rusqlite::Connection::open(file).unwrap();
    let odd = "(round > 8 OR round = 8 AND key < (SELECT max(key) FROM done))";
    for statement in [
        format!("DELETE FROM sample WHERE {odd}"),
        format!("DELETE FROM done WHERE {odd}"),
        "UPDATE confirmation SET finished = 0".to_owned(),
    ] {
        database.execute(&statement, []).unwrap();
    }
    drop(database);
    let (again, status) = lab.run(&["v1/", "v2/"]);
    assert_eq!(status, 1);
    let told = |report: &Value| -> Vec<Value> {
        let rows = report["verdicts"].as_array().unwrap().iter();
        rows.map(|row| serde_json::json!([row["verdict"], row["confirmed"]]))
            .collect()
    };
    assert_eq!(told(&again), told(&whole));
    // Then there is nothing left to go on with.
    let output = lab.matrix(&["run", "m.toml", "--version", "v1/", "--version", "v2/"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("nothing to do"), "{said}");
}

/// As if the power had failed after three fresh rounds of each confirmation.
fn interrupt_confirmations(lab: &Lab) {
    let file = lab.folder.path().join(".matrix/matrix.db");
    let database = rusqlite::Connection::open(file).unwrap();
    for table in ["sample", "done"] {
        let late = format!(
            "DELETE FROM {table} WHERE round >= 3 + (SELECT min(first_round) FROM confirmation
             WHERE baseline = {table}.key OR candidate = {table}.key)"
        );
        assert!(database.execute(&late, []).unwrap() > 0);
    }
    let unfinished = "UPDATE confirmation SET finished = 0";
    assert!(database.execute(unfinished, []).unwrap() > 0);
}

/// Runs once, and then again when there must be nothing left to do.
fn run_to_the_end(lab: &Lab) -> Value {
    let (report, _) = lab.run(&["v1/", "v2/"]);
    let output = lab.matrix(&["run", "m.toml", "--version", "v1/", "--version", "v2/"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("nothing to do"), "{said}");
    report
}

#[test]
fn a_confirmation_ends_though_some_of_it_cannot_be_measured_any_more() {
    let text = matrix("effects = { v2 = \"+6%\" }", "repeat = 5");
    let check = |change: &dyn Fn(&Lab)| {
        let lab = Lab::new(&text);
        lab.run(&["v1/", "v2/"]);
        interrupt_confirmations(&lab);
        change(&lab);
        run_to_the_end(&lab)
    };
    let report = check(&|lab| {
        let accept = ["accept", "m.toml", "bs=4k", "--reason", "wanted"];
        assert_eq!(lab.json(&accept).1, 0);
    });
    for row in report["verdicts"].as_array().unwrap() {
        // What is accepted is measured no more; the rest goes on.
        let goes_on = row["accepted"].is_null();
        assert_eq!(row["confirmed"] == true, goes_on, "{row}");
        assert_eq!(row["note"].is_null(), goes_on, "{row}");
    }
    let fewer = text.replace("[metrics.iops]\nbetter = \"higher\"\n", "");
    check(&|lab| lab.write("m.toml", &fewer));
}

#[test]
fn confirmations_that_began_apart_go_on_together() {
    let text = |repeat: u32| matrix("effects = { v2 = \"+6%\" }", &format!("repeat = {repeat}"));
    let lab = Lab::new(&text(8));
    for (repeat, only) in [(8, "bs == '4k'"), (5, "bs == '1M'")] {
        lab.write("m.toml", &text(repeat));
        let versions = ["--version", "v1/", "--version", "v2/"];
        lab.json(&[&["run", "m.toml", "--only", only], &versions[..]].concat());
    }
    interrupt_confirmations(&lab);
    let report = run_to_the_end(&lab);
    for row in report["verdicts"].as_array().unwrap() {
        assert_eq!(row["confirmed"], true, "{row}");
        assert_eq!(row["n"], serde_json::json!([4, 4]));
    }
}

#[test]
fn a_confirmation_may_cost_a_share_of_what_its_own_machines_measured() {
    let sizes: Vec<String> = (1..=20).map(|size| format!("\"{size}k\"")).collect();
    let text = |confirm: &str| {
        let run = format!("repeat = 5\nconfirm = {confirm}");
        let head = "effects = { v2 = \"+6%\" }";
        let other = format!("{head}\n[machines.y]\nvia = \"null\"\n{head}");
        matrix(&other, &run)
            .replace("[\"x\"]", "[\"x\", \"y\"]")
            .replace("\"4k\", \"1M\"", &sizes.join(", "))
    };
    let lab = Lab::new(&text("false"));
    let versions = ["--version", "v1/", "--version", "v2/"];
    let only = ["run", "m.toml", "--only", "machine == 'x'"];
    lab.json(&[&only[..], &versions[..]].concat());
    // Now only the other machine has something to do: 200 measurements, so 20 more at the most. Of these 32 % are for
    // the first fresh round of as many pairs of cells as that affords: three.
    lab.write("m.toml", &text("{ rounds = 2, max = \"10%\" }"));
    let (report, _) = lab.run(&["v1/", "v2/"]);
    let cells = report["cells"].as_array().unwrap().iter();
    let again = cells.filter(|cell| cell["metric"] == "lat" && cell["n"] != 5);
    assert_eq!(again.count(), 2 * 3);
}

/// Of a hundred comparisons of equal versions fewer look promising when all of them say what noise is to be expected than
/// in parts that are too small for it.
#[test]
fn comparisons_of_a_metric_say_together_what_noise_is() {
    let again = |sizes: std::ops::RangeInclusive<u32>| {
        let sizes: Vec<String> = sizes.map(|size| format!("\"{size}k\"")).collect();
        let run = "repeat = 3\nconfirm = { rounds = 2, max = \"100%\" }";
        let lab = Lab::new(&matrix("", run).replace("\"4k\", \"1M\"", &sizes.join(", ")));
        let (report, _) = lab.run(&["v1/", "v2/"]);
        let cells = report["cells"].as_array().unwrap().iter();
        let cells = cells.filter(|cell| cell["metric"] == "lat" && cell["n"] != 3);
        cells.count() / 2
    };
    let together = again(1..=100);
    let in_parts: usize = (0..4)
        .map(|part| again(25 * part + 1..=25 * part + 25))
        .sum();
    assert!(
        together < in_parts && together > 0,
        "{together} and {in_parts}"
    );
}

#[test]
fn confirmation_is_left_out_where_a_matrix_says_so() {
    let head = "effects = { v2 = \"+6%\" }";
    let lab = Lab::new(&matrix(head, "repeat = 6\nconfirm = false"));
    let (report, _) = lab.run(&["v1/", "v2/"]);
    assert!(
        verdicts(&report)
            .iter()
            .all(|(_, _, confirmed)| confirmed.is_null())
    );
    assert!(
        report["cells"]
            .as_array()
            .unwrap()
            .iter()
            .all(|cell| cell["n"] == 6)
    );

    // Other axes are compared, but their findings are no news.
    let text = matrix("", "repeat = 6").replace("axis = \"version\"", "axis = \"bs\"");
    let (report, _) = Lab::new(&text).run(&[]);
    assert!(
        verdicts(&report)
            .iter()
            .all(|(_, _, confirmed)| confirmed.is_null())
    );
    let (report, _) = Lab::new(&(text + "confirm = true\n")).run(&[]);
    assert!(
        verdicts(&report)
            .iter()
            .all(|(_, _, confirmed)| *confirmed == Value::Bool(true))
    );
}

#[test]
fn a_version_does_not_differ_from_itself() {
    for seed in ["1", "2", "3", "4", "5"] {
        let lab = Lab::new(&matrix("noise = \"3%\"", "repeat = 5"));
        let versions = ["--version", "a/", "--version", "b/", "--seed", seed];
        let (report, status) = lab.json(&[&["run", "m.toml"][..], &versions].concat());
        assert_eq!(status, 0, "seed {seed}: {report}");
    }
}

#[test]
fn an_until_rule_looks_at_the_comparison_where_there_is_one() {
    let until = "repeat = { min = 4, max = 200, until = \"ci95 < 1%\" }\nconfirm = false";
    let count = |versions: &[&str]| {
        let lab = Lab::new(&matrix("noise = \"2%\"", until));
        let (report, _) = lab.run(versions);
        let cells = report["cells"].as_array().unwrap().clone();
        let n = cells.iter().map(|cell| cell["n"].as_u64().unwrap());
        (n.clone().min().unwrap(), n.max().unwrap(), report)
    };
    let (_, alone, _) = count(&["a/"]);
    let (least, most, report) = count(&["a/", "b/"]);
    assert!(
        alone < least,
        "a difference is less certain than a level: {alone} {least}"
    );
    assert!(most < 200, "{most}");
    for row in report["verdicts"].as_array().unwrap() {
        let [low, high] = [0, 1].map(|end| row["ci95"][end].as_f64().unwrap());
        assert!((high / low).sqrt() - 1.0 < 0.012, "{row}");
    }
}

#[test]
fn noise_is_learned_from_earlier_nights() {
    // Two repetitions say little of their own noise.
    let lab = Lab::new(&matrix("", "repeat = 2\nconfirm = false"));
    let widths = |lab: &Lab| {
        let (report, _) = lab.run(&["v1/", "v2/"]);
        let rows = report["verdicts"].as_array().unwrap().clone();
        let width =
            |row: &Value| row["ci95"][1].as_f64().unwrap() - row["ci95"][0].as_f64().unwrap();
        rows.iter().map(width).sum::<f64>()
    };
    let without = widths(&lab);
    lab.nights(10..20);
    let with = widths(&lab);
    assert!(with < 0.8 * without, "{with} {without}");
}

#[test]
fn a_change_is_told_once_for_all_cells_and_stands_in_the_history() {
    let lab = Lab::new(&matrix(&effects(20, 40), "repeat = 5"));
    let (nothing, status) = lab.json(&["changes", "m.toml"]);
    assert_eq!(status, 4, "{nothing}");
    lab.nights(10..30);
    let (changes, status) = lab.json(&["changes", "m.toml"]);
    assert_eq!(status, 0);
    let causes = changes["causes"].as_array().unwrap();
    // One commit moved both metrics of both cells: one cause.
    assert_eq!(causes.len(), 1, "{changes}");
    let cause = &causes[0];
    assert_eq!(
        (&cause["from"], &cause["to"]),
        (&"n19".into(), &"n20".into())
    );
    assert_eq!(cause["cells"].as_array().unwrap().len(), 4);
    let effects = cause["effects"].as_array().unwrap();
    assert_eq!(effects.len(), 2, "{changes}");
    for effect in effects {
        assert_eq!(effect["cells"], 2);
        let ratio = effect["ratio"].as_f64().unwrap();
        assert!((1.05..1.07).contains(&ratio), "{ratio}");
    }
    // More nights: the same numbers, the same places.
    lab.nights(30..33);
    let (later, _) = lab.json(&["changes", "m.toml", "--review"]);
    let places = |changes: &Value| -> Vec<(Value, Value)> {
        let causes = changes["causes"].as_array().unwrap().iter();
        causes
            .map(|cause| (cause["id"].clone(), cause["to"].clone()))
            .collect()
    };
    assert_eq!(places(&changes), places(&later));
    assert_eq!(later["causes"][0]["cells"][0]["standing"], "stands");

    let (history, _) = lab.json(&["history", "m.toml", "bs=4k,machine=x", "--metric", "lat"]);
    let series = history["series"].as_array().unwrap();
    assert_eq!(series.len(), 1);
    assert_eq!(series[0]["points"].as_array().unwrap().len(), 23);
    assert_eq!(series[0]["points"][10]["version"], "n20");
    assert_eq!(series[0]["changes"][0]["index"], 10);
    assert_eq!(series[0]["changes"][0]["verdict"], "regression");
    let text = lab.matrix(&["history", "m.toml", "bs=4k"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("n19..n20: regression"), "{text}");
    let (_, status) = lab.json(&["history", "m.toml", "bs=4k", "--metric", "lot"]);
    assert_eq!(status, 2);
}

#[test]
fn an_accepted_change_moves_the_baseline_until_it_is_taken_back() {
    let lab = Lab::new(&matrix(&effects(20, 40), "repeat = 5\nconfirm = false"));
    lab.nights(10..30);
    lab.json(&["changes", "m.toml"]);
    let compare = [
        "compare",
        "m.toml",
        "--against",
        "n10/",
        "--version",
        "n20/",
        "--version",
        "n25/",
    ];
    let (before, status) = lab.json(&compare);
    assert_eq!(
        (status, before["counts"]["regression"].as_u64()),
        (1, Some(4))
    );

    let causes = || {
        let (changes, _) = lab.json(&["changes", "m.toml"]);
        let all = changes["causes"].as_array().unwrap().clone();
        all.into_iter()
            .map(|cause| (cause["id"].to_string(), cause["accepted"].clone()))
            .collect::<Vec<_>>()
    };
    let told = causes();
    assert!(told.iter().all(|(_, accepted)| accepted.is_null()));
    let number = told[0].0.clone();
    let accept = ["accept", "m.toml", "--change", &number];
    assert_eq!(lab.json(&accept).1, 2, "a reason is needed");
    let (rows, status) = lab.json(&[&accept[..], &["--reason", "safer"]].concat());
    assert_eq!(status, 0, "{rows}");
    assert_eq!(rows["accepted"][0]["author"], "somebody");
    for (number, _) in &told[1..] {
        let accept = ["accept", "m.toml", "--change", number, "--reason", "safer"];
        assert_eq!(lab.json(&accept).1, 0);
    }

    let (after, status) = lab.json(&compare);
    assert_eq!(status, 0, "{after}");
    assert_eq!(after["accepted"][0]["reason"], "safer");
    let counts = &after["counts"];
    assert_eq!(
        (&counts["regression"], &counts["accepted"]),
        (&0.into(), &4.into())
    );
    // Without versions there is nothing: what there is instead is said.
    let without = lab.matrix(&["compare", "m.toml"]);
    let told = String::from_utf8(without.stderr).unwrap();
    assert_eq!(without.status.code(), Some(4), "{told}");
    assert!(told.contains("stored are versions n29, n28, "), "{told}");
    // Each face says so.
    for (format, accepted) in [
        ("text", "\nregression, accepted "),
        ("markdown", "\n| regression, accepted |"),
        ("lkp", "# regression, accepted\n"),
        ("mmtests", "# regression, accepted\n"),
    ] {
        let face = lab.matrix(&[&compare[..], &["--format", format]].concat());
        let face = String::from_utf8(face.stdout).unwrap();
        assert_eq!(face.matches(accepted).count(), 2, "{face}");
        let is_told_why = ["text", "markdown"].contains(&format);
        assert_eq!(face.contains("safer (somebody"), is_told_why, "{face}");
    }
    for row in after["verdicts"].as_array().unwrap() {
        let moved = row["candidate"] == "n25";
        assert_eq!(row["baseline"], if moved { "n20" } else { "n10" });
        assert!(!row["accepted"].is_null());
    }
    assert!(causes().iter().all(|(_, accepted)| !accepted.is_null()));

    let (list, _) = lab.json(&["accept", "m.toml", "--list"]);
    for row in list["accepted"].as_array().unwrap() {
        let undo = ["accept", "m.toml", "--undo", &row["id"].to_string()];
        assert_eq!(lab.json(&undo).1, 0, "{list}");
    }
    assert_eq!(lab.json(&["accept", "m.toml", "--undo", "1"]).1, 2);
    assert_eq!(lab.json(&compare).0["verdicts"], before["verdicts"]);
    let (list, _) = lab.json(&["accept", "m.toml", "--list"]);
    assert!(!list["accepted"][0]["undone"].is_null());

    // A cell, or those of an expression, from their last point on.
    let (cell, status) = lab.json(&["accept", "m.toml", "bs=4k", "--reason", "known"]);
    assert_eq!(
        (status, cell["accepted"][0]["series"].as_u64()),
        (0, Some(2))
    );
    let only = [
        "accept",
        "m.toml",
        "--only",
        "bs in ['4k', '1M']",
        "--reason",
        "known",
    ];
    assert_eq!(
        lab.json(&only).0["accepted"][0]["versions"],
        serde_json::json!(["n29"])
    );
    assert_eq!(lab.json(&["accept", "m.toml", "--reason", "what"]).1, 2);
    assert_eq!(
        lab.json(&["accept", "m.toml", "--change", "99", "--reason", "what"])
            .1,
        2
    );
}

/// Twenty nights, from the tenth on slower and with another kernel, and a control measured again then.
fn nights_with_environments(lab: &Lab, control: f64) {
    let mut store = lab.store();
    for night in 0..20u32 {
        let moved = night >= 10;
        let session = store
            .begin_session(&SessionStart {
                started_ms: i64::from(night),
                matrix: "m",
                preset: "",
                seed: 1,
                arguments: "",
                program_version: "",
                process: "",
            })
            .unwrap();
        let mut environment = Environment::from_json("{\"version\":1,\"values\":{}}").unwrap();
        let kernel = if moved { "6.5" } else { "6.1" };
        environment.values.insert("kernel".into(), kernel.into());
        let environment = store.put_environment(&environment.to_json()).unwrap();
        let mut measure = |version: u32, first_round: u32, level: f64| {
            for round in first_round..first_round + 6 {
                let version = format!("n{version}");
                let attempt = NewAttempt {
                    session,
                    kind: StepKind::Run,
                    key: Key::of(version.as_bytes()),
                    round,
                    cell: &format!("version={version},machine=x,bs=4k"),
                    machine: "x",
                    version: &version,
                    started_ms: i64::from(night) * 1000 + i64::from(round),
                    duration: std::time::Duration::ZERO,
                    outcome: AttemptOutcome::Ok,
                    reason: "",
                    environment: Some(environment),
                    log: None,
                };
                let reading = NewReading {
                    metric: "lat",
                    value: level * (1.0 + 0.001 * f64::from((round * 7 + night * 3) % 5)),
                    unit: "ns",
                    better: Some(Better::Lower),
                };
                store.record(&attempt, &[reading]).unwrap();
            }
        };
        measure(night, 0, if moved { 110.0 } else { 100.0 });
        if night == 10 {
            measure(3, 6, control);
        }
    }
}

#[test]
fn surroundings_that_changed_at_the_same_place_are_named() {
    let check = |control, expected: &str| {
        let lab = Lab::new(&matrix("", "repeat = 6"));
        nights_with_environments(&lab, control);
        let (changes, _) = lab.json(&["changes", "m.toml"]);
        let cause = &changes["causes"][0];
        assert_eq!(cause["to"], "n10", "{changes}");
        let told = cause["surroundings"].to_string();
        assert!(told.contains("kernel: `6.1` → `6.5`"), "{told}");
        assert!(told.contains(expected), "{told}");
    };
    check(110.0, "moved too (+9.96%): not the commit");
    check(100.0, "did not move: not the surroundings");
}

#[test]
fn calibration_tells_noise_and_what_is_seen_through_it() {
    let head = "noise = \"2%\"";
    let text = matrix(head, "repeat = 5") + "[presets.nightly]\nrun = { repeat = 10 }\n";
    let lab = Lab::new(&text);
    let calibrate = ["calibrate", "m.toml", "--machine", "x", "--rounds", "40"];
    let (found, status) = lab.json(&calibrate);
    assert_eq!(status, 0, "{found}");
    assert_eq!(
        (&found["judged_for"], &found["repetitions"]),
        (&"nightly".into(), &10.into())
    );
    assert_eq!(found["false_alarms"], 0);
    for metric in found["metrics"].as_array().unwrap() {
        let noise = metric["noise"].as_f64().unwrap();
        assert!((0.015..0.025).contains(&noise), "{metric}");
        let needed: Vec<u64> = (0..3)
            .map(|i| {
                metric["repetitions_for"][i]["repetitions"]
                    .as_u64()
                    .unwrap()
            })
            .collect();
        assert!(needed[0] > needed[1] && needed[1] > needed[2], "{metric}");
    }
    // Rounds of a calibration are those of nobody else: a run takes its own where it has none.
    let (report, _) = lab.run(&[]);
    assert!(
        report["cells"]
            .as_array()
            .unwrap()
            .iter()
            .all(|cell| cell["n"] == 40)
    );
    let wrong = lab.matrix(&["calibrate", "m.toml", "--machine", "y"]);
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(said.contains("there is no machine `y`"), "{said}");
    assert!(!said.contains("--only"), "{said}");
}

#[test]
fn series_of_a_plain_file() {
    let lab = Lab::new("");
    let mut file = "revision,step,flat\n".to_owned();
    for i in 0..60 {
        let noise = 1.0 + 0.01 * f64::from((i * 37 + i * i * 11) % 17) / 17.0;
        let step = noise * if i < 35 { 100.0 } else { 108.0 };
        let flat = if i % 9 == 4 {
            String::new()
        } else {
            format!("{}", 5.0 * noise)
        };
        let _ = writeln!(file, "r{i},{step},{flat}");
    }
    lab.write("s.csv", &file);
    let (found, status) = lab.json(&["changes", "--csv", "s.csv"]);
    assert_eq!(status, 0);
    let step = &found["series"][0];
    assert_eq!(
        (&step["name"], &step["points"]),
        (&"step".into(), &60.into())
    );
    assert_eq!(step["changes"].as_array().unwrap().len(), 1);
    assert_eq!(step["changes"][0]["index"], 35);
    assert_eq!(step["changes"][0]["revision"], "r35");
    assert!(step["changes"][0]["ci95"].is_array());
    assert_eq!(found["series"][1]["points"], 53);
    assert_eq!(found["series"][1]["changes"], serde_json::json!([]));
    let text = lab.matrix(&["changes", "--csv", "s.csv"]);
    assert!(
        String::from_utf8(text.stdout)
            .unwrap()
            .contains("1 change in 1 of 2 series")
    );

    lab.write("bad.csv", "revision,a\nr1,x\n");
    let (error, status) = lab.json(&["changes", "--csv", "bad.csv"]);
    assert_eq!(status, 2);
    let message = error["errors"][0]["message"].as_str().unwrap();
    assert!(
        message.starts_with("`bad.csv`, line 2, column 2: `x`"),
        "{message}"
    );
    assert_eq!(lab.json(&["changes"]).1, 2);
    assert_eq!(lab.json(&["changes", "m.toml", "--csv", "s.csv"]).1, 2);
}

#[test]
fn sides_of_a_plain_file() {
    let lab = Lab::new("");
    let mut file = "cell,metric,side,round,value\n".to_owned();
    for round in 0..8 {
        let noise = 1.0 + 0.01 * f64::from((round * 7) % 5);
        for (side, factor) in [("old", 1.0), ("new", 1.2)] {
            let _ = writeln!(file, "c,time,{side},{round},{}", 10.0 * noise * factor);
            let _ = writeln!(file, "c,size,{side},{round},4096");
        }
    }
    lab.write("c.csv", &file);
    let compare = ["compare", "--csv", "c.csv", "--better", "lower"];
    let (report, status) = lab.json(&compare);
    assert_eq!(status, 1);
    let rows = verdicts(&report);
    assert_eq!(rows[0].1, "regression");
    assert_eq!(rows[1].1, "same");
    assert_eq!(report["verdicts"][0]["baseline"], "old");
    assert_eq!(
        lab.json(&["compare", "--csv", "c.csv"]).0["counts"]["improvement"],
        1
    );
    let (lenient, status) = lab.json(&[&compare[..], &["--min-effect", "50%"]].concat());
    assert_eq!((status, &lenient["counts"]["regression"]), (0, &0.into()));

    let face = |format| {
        let output = lab.matrix(&[&compare[..], &["--format", format]].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    let lkp = face("lkp");
    assert!(lkp.contains("%stddev     %change         %stddev"), "{lkp}");
    assert!(lkp.contains("+20.0%"), "{lkp}");
    assert!(lkp.contains("time   # regression"), "{lkp}");
    let mmtests = face("mmtests");
    assert!(mmtests.contains("*  -20.00%*"), "{mmtests}");
    assert!(mmtests.contains("(    0.00%)   # same"), "{mmtests}");
}

#[test]
fn a_version_may_be_a_folder() {
    let lab = Lab::new(&matrix("", "repeat = 2"));
    let (report, _) = lab.run(&["one=a/", "a/"]);
    let names = (
        &report["verdicts"][0]["baseline"],
        &report["verdicts"][0]["candidate"],
    );
    assert_eq!(names, (&"one".into(), &"a".into()));
    let message = |version: &str| {
        let output = lab.matrix(&["run", "m.toml", &format!("--version={version}")]);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(message("b=missing/").contains("there is no folder `missing/`"));
    assert!(message("installed=a/").contains("is no name for a version"));
    let remedy = |version| format!("has a `/` at its end, `--version {version}/`");
    fs::create_dir_all(lab.folder.path().join("sub")).unwrap();
    for version in ["a", "b=a", "b=./a", "sub/../a"] {
        assert!(
            message(version).contains(&remedy(version)),
            "{}",
            message(version)
        );
    }
}
