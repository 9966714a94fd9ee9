//! What is measured beside what is missing: `--fresh`, `--failed`, `--max-age`, `--budget`.

use serde_json::Value;

use super::lab::{Lab, Ran, repeated};

const SIZES: &str = "[axes]\nsize = [1, 2, 3]\n";
const DAY_MS: i64 = 86_400_000;

fn run(lab: &Lab, words: &[&str]) -> Ran {
    lab.start_with("matrix.toml", "events", words).wait()
}

/// Reasons with their steps.
fn why(lab: &Lab, words: &[&str]) -> Vec<(String, u64)> {
    let words = [&["plan", "matrix.toml", "--json", "--why"], words].concat();
    let output = lab.matrix(&words).output().unwrap();
    let document: Value = super::lab::schema::document(&output);
    let reasons = document["why"].as_array().unwrap().iter();
    reasons
        .map(|reason| {
            let why = reason["why"].as_str().unwrap().to_owned();
            (why, reason["steps"].as_u64().unwrap())
        })
        .collect()
}

/// Makes the rounds of a cell older.
fn age(lab: &Lab, cell: &str, days: i64) {
    let sql = "UPDATE attempt SET started_ms = started_ms - ?1 WHERE cell = ?2";
    let changed = lab.store().execute(sql, (days * DAY_MS, cell)).unwrap();
    assert!(changed > 0);
}

#[test]
fn what_is_too_old_is_measured_again() {
    let lab = Lab::new(&(SIZES.to_owned() + &repeated("2", "echo v={{ size }}")));
    run(&lab, &[]).assert_code(0);
    age(&lab, "size=1", 31);
    age(&lab, "size=3", 20);
    assert_eq!(why(&lab, &[]), []);
    let told = [("too old (31 d > 30 d)".to_owned(), 1)];
    assert_eq!(why(&lab, &["--max-age", "30d"]), told);
    let ran = run(&lab, &["--max-age", "30d"]);
    ran.assert_code(0);
    let rounds = [("size=1".to_owned(), 2), ("size=1".to_owned(), 3)];
    assert_eq!(ran.measured(), rounds);
    assert_eq!(why(&lab, &["--max-age", "30d"]), []);
    // One of the latest two rounds is young: one more is wanted.
    let sql = "UPDATE attempt SET started_ms = started_ms - ?1 WHERE cell = 'size=1' AND round = 3";
    lab.store().execute(sql, [40 * DAY_MS]).unwrap();
    assert_eq!(
        run(&lab, &["--max-age", "30d"]).measured(),
        [("size=1".to_owned(), 4)]
    );
    // The matrix may say so too, and the command line goes before.
    let text = SIZES.to_owned() + &repeated("2", "echo v={{ size }}");
    lab.write(&text.replace("repeat  = 2", "repeat  = 2\nmax_age = \"10d\""));
    assert_eq!(why(&lab, &[]), [("too old (20 d > 10 d)".to_owned(), 1)]);
    assert_eq!(why(&lab, &["--max-age", "30d"]), []);
    assert_eq!(run(&lab, &[]).cells(), ["size=3"]);
}

#[test]
fn what_a_wrong_clock_dated_into_the_future_is_measured_again_once() {
    let lab = Lab::new(&(SIZES.to_owned() + &repeated("2", "echo v={{ size }}")));
    run(&lab, &[]).assert_code(0);
    age(&lab, "size=2", -400);
    assert_eq!(why(&lab, &[]), []);
    let told = [("measured 400 d from now, by its clock".to_owned(), 1)];
    assert_eq!(why(&lab, &["--max-age", "30d"]), told);
    assert_eq!(run(&lab, &["--max-age", "30d"]).cells(), ["size=2"]);
    assert_eq!(why(&lab, &["--max-age", "30d"]), []);
}

#[test]
fn fresh_rounds_are_added_and_pair() {
    let lab = Lab::new(&(SIZES.to_owned() + &repeated("2", "echo v={{ size }}")));
    run(&lab, &["--only", "size == 1"]).assert_code(0);
    let ran = run(&lab, &["--fresh"]);
    ran.assert_code(0);
    let rounds: Vec<u64> = ran.measured().into_iter().map(|(_, round)| round).collect();
    // Those that were never measured too.
    assert_eq!(rounds, [2, 2, 2, 3, 3, 3], "all begin together");
    assert_eq!(ran.events("finished")[0]["measured"], 6);
    assert_eq!(run(&lab, &[]).measured(), [], "no gap is filled");
    let ran = run(&lab, &["--fresh"]);
    let rounds: Vec<u64> = ran.measured().into_iter().map(|(_, round)| round).collect();
    assert_eq!(rounds, [4, 4, 4, 5, 5, 5], "all begin together");
    let samples = lab.samples();
    assert_eq!(samples.len(), 6 + 4 + 4);
    assert!(samples.values().all(|count| *count == 1));
    assert_eq!(run(&lab, &[]).measured(), []);
}

/// As if the two cells had been compared and measured again.
fn confirm(lab: &Lab) {
    let sql = "INSERT INTO confirmation (baseline, candidate, metric, first_round, finished)
               SELECT min(key), max(key), 'v', 1, 1 FROM done";
    assert_eq!(lab.store().execute(sql, []).unwrap(), 1);
}

const CONFIRMED: &str = "SELECT count(*) FROM confirmation";

#[test]
fn what_was_confirmed_is_judged_anew_however_far_the_fresh_rounds_come() {
    let line = "touch $TMPDIR/measuring; while ! test -e $TMPDIR/go; do sleep 0.01; done; echo v={{ size }}";
    let text = "[axes]\nsize = [1, 2]\n".to_owned() + &repeated("2", line);
    let lab = Lab::new(&text);
    lab.touch("go");
    run(&lab, &[]).assert_code(0);
    confirm(&lab);
    // A calibration measures too, and what is too old, but compares nothing.
    lab.write(&text.replace("repeat  = 2", "repeat  = 2\nmax_age = \"10d\""));
    age(&lab, "size=1", 11);
    age(&lab, "size=2", 11);
    let words = [
        "calibrate",
        "matrix.toml",
        "--machine",
        "local",
        "--rounds",
        "4",
    ];
    let output = lab.matrix(&words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(lab.count(CONFIRMED), 1);
    std::fs::remove_file(lab.path("go")).unwrap();
    std::fs::remove_file(lab.path("measuring")).unwrap();
    let fresh = lab.start_with("matrix.toml", "events", &["--fresh"]);
    lab.wait_for("measuring");
    fresh.kill();
    assert_eq!(lab.count(CONFIRMED), 0);
}

#[test]
fn what_was_confirmed_across_machines_is_judged_anew_too() {
    let null = |name| format!("[machines.{name}]\nvia = \"null\"\n");
    let axes = "[axes]\nmachine = [\"x\", \"y\"]\n";
    let run_part =
        "[run]\ncommand = \"x\"\nparser = \"fio\"\nrepeat = 2\n[metrics.v]\nbetter = \"higher\"\n";
    let lab = Lab::new(&(null("x") + &null("y") + axes + run_part));
    run(&lab, &[]).assert_code(0);
    confirm(&lab);
    run(&lab, &["--fresh", "--only", "machine == 'x'"]).assert_code(0);
    assert_eq!(lab.count(CONFIRMED), 1, "one side is as it was");
    run(&lab, &["--fresh"]).assert_code(0);
    assert_eq!(lab.count(CONFIRMED), 0);
}

#[test]
fn what_is_too_old_and_what_is_new_pair() {
    let lab = Lab::new(&(SIZES.to_owned() + &repeated("2", "echo v={{ size }}")));
    run(&lab, &["--only", "size == 1"]).assert_code(0);
    age(&lab, "size=1", 31);
    let ran = run(&lab, &["--max-age", "30d"]);
    let rounds: Vec<u64> = ran.measured().into_iter().map(|(_, round)| round).collect();
    assert_eq!(rounds, [2, 2, 2, 3, 3, 3]);
    assert_eq!(run(&lab, &["--max-age", "30d"]).measured(), []);
}

#[test]
fn fresh_rounds_are_repeated_until_they_are_enough() {
    let adaptive = "{ min = 2, max = 4, until = \"n >= 3\" }";
    let lab = Lab::new(&(SIZES.to_owned() + &repeated(adaptive, "echo v={{ size }}")));
    for words in [&[][..], &["--fresh"]] {
        let ran = run(&lab, words);
        assert_eq!(ran.measured().len(), 9);
        assert_eq!(ran.events("started")[0]["measurements"], 6);
        // So many the progress was wrong by.
        assert_eq!(ran.events("repeats").len(), 3, "{words:?}");
    }
    assert_eq!(run(&lab, &[]).measured().len(), 0);
}

#[test]
fn only_what_failed() {
    let line = "test {{ size }} = 1 -o -e $TMPDIR/good || exit 3; echo v={{ size }}";
    let lab = Lab::new(&(SIZES.to_owned() + &repeated("2", line)));
    assert_eq!(
        run(&lab, &["--failed"]).measured(),
        [],
        "nothing has failed yet"
    );
    run(&lab, &["--only", "size <= 2"]).assert_code(3);
    lab.touch("good");
    let reasons = why(&lab, &["--failed"]);
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(reasons[0].0.starts_with("failed last time") && reasons[0].1 == 1);
    let ran = run(&lab, &["--failed"]);
    ran.assert_code(0);
    assert_eq!(ran.cells(), ["size=2"]);
    assert_eq!(run(&lab, &[]).cells(), ["size=3"]);
}

#[test]
fn a_budget_ends_by_the_clock_too() {
    let axes = "[axes]\nsize = [1, 2, 3, 4, 5, 6, 7, 8, 9]\n";
    let lab = Lab::new(&(axes.to_owned() + &repeated("1", "sleep 0.6; echo v={{ size }}")));
    // It is thought to take 1.5 s for each: three have room, and the clock ends it before the third.
    let ran = run(&lab, &["--budget", "5s"]);
    ran.assert_code(0);
    let (measured, left_out) = (ran.measured().len(), &ran.document["left_out"]);
    assert!((1..=3).contains(&measured), "{measured}");
    assert_eq!(left_out["cells"], 9 - measured);
    assert_eq!(left_out["measurements"], 9 - measured);
    // Now they are known to be shorter, and the rest does not fit by the clock.
    let slow = repeated("1", "sleep {{ size }}; echo v={{ size }} ");
    lab.write(&(axes.to_owned() + &slow));
    let ran = run(&lab, &["--budget", "4s"]);
    ran.assert_code(0);
    let told = ran.events("left_out");
    let left: u64 = told
        .iter()
        .map(|event| event["cells"].as_u64().unwrap())
        .sum();
    assert_eq!(left + ran.measured().len() as u64, 9, "{told:?}");
    assert_eq!(ran.document["left_out"]["cells"], left);
    lab.assert_clean();
}

#[test]
fn a_metric_that_no_measurement_gave_is_told() {
    let lab = Lab::new(&(SIZES.to_owned() + &repeated("1", "echo v={{ size }} w=2")));
    run(&lab, &[]).assert_code(0);
    let text = SIZES.to_owned() + &repeated("1", "echo v={{ size }} w=2");
    lab.write(&(text + "[metrics.wide]\nfrom = \"ww\"\nbetter = \"lower\"\n"));
    let ran = run(&lab, &[]);
    let told = "metric `wide` is taken from `ww`, which no measurement gave; did you mean `w`?";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
}
