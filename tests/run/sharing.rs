//! Two `matrix run` at one time: they take turns, and nothing is measured twice.

use super::lab::{Lab, Ran, repeated, shell, wait_until};

#[test]
fn two_of_one_matrix_measure_each_cell_once() {
    let axes = "[axes]\nsize = [1, 2, 3, 4]\n".to_owned();
    let line = "mkdir $TMPDIR/alone && sleep 0.02 && rmdir $TMPDIR/alone; echo v={{ size }}";
    let lab = Lab::new(&(axes + &repeated("5", line)));
    let both = ["events-1", "events-2"].map(|events| lab.start_with("matrix.toml", events, &[]));
    let both = both.map(|running| running.wait());
    both.iter().for_each(|ran| ran.assert_code(0));
    let taken: Vec<(String, u64)> = both.iter().flat_map(Ran::measured).collect();
    assert_eq!(taken.len(), 20, "{taken:?}");
    let samples = lab.samples();
    assert_eq!(samples.len(), 20);
    assert!(samples.values().all(|count| *count == 1), "{samples:?}");
    assert!(both.iter().all(|ran| !ran.stderr.contains("File exists")));
    lab.assert_clean();
}

#[test]
fn the_second_waits_and_says_for_whom() {
    let lab = Lab::new(&shell(
        "touch $TMPDIR/measuring; while ! test -e $TMPDIR/go; do sleep 0.01; done; echo v=1",
    ));
    lab.write_as("other.toml", &shell("test -e $TMPDIR/go && echo v=2"));
    let first = lab.start();
    lab.wait_for("measuring");
    let mut same = lab.start_with("matrix.toml", "events-2", &[]);
    let mut other = lab.start_with("other.toml", "events-3", &["--state", "other"]);
    let holder = format!("held by pid {} ", first.child.id());
    for waiting in [&mut same, &mut other] {
        waiting.wait_for("waiting", |event| {
            let told = event["holder"].as_str().unwrap_or_default();
            event["event"] == "waiting" && told.contains(&holder) && told.contains("matrix `e2e`")
        });
    }
    lab.touch("go");
    let (first, same, other) = (first.wait(), same.wait(), other.wait());
    [&first, &same, &other]
        .iter()
        .for_each(|ran| ran.assert_code(0));
    assert_eq!(first.measured().len(), 1);
    // What the first one has measured meanwhile is not measured again.
    assert_eq!(same.measured().len(), 0);
    assert_eq!(other.measured().len(), 1);
    lab.assert_clean();
}

/// Two names of this machine, which have their turns.
const TWICE: &str = "[machines.a]\nvia = \"local\"\n[machines.b]\nvia = \"local\"\n\
                     [axes]\nmachine = [\"a\", \"b\"]\nsize = [1, 2, 3, 4]\n";

#[test]
fn two_names_for_this_machine_take_turns() {
    let machines = "[machines.a]\nvia = \"local\"\n[machines.b]\nvia = \"local\"\n\
                    [axes]\nmachine = [\"a\", \"b\"]\n";
    let command = "echo begin >> $TMPDIR/log; sleep 0.1; echo end >> $TMPDIR/log; echo v=1";
    let lab = Lab::new(&(machines.to_owned() + &shell(command)));
    let ran = lab.run();
    ran.assert_code(0);
    assert_eq!(ran.cells(), ["machine=a", "machine=b"]);
    assert_eq!(lab.log(), ["begin", "end", "begin", "end"]);
}

#[test]
fn a_budget_is_for_all_turns() {
    let lab = Lab::new(&(TWICE.to_owned() + &repeated("1", "sleep 0.6; echo v={{ size }}")));
    for budget in ["7s", "2s"] {
        let ran = lab
            .start_with("matrix.toml", "events", &["--fresh", "--budget", budget])
            .wait();
        ran.assert_code(0);
        let told = ran.events("left_out").into_iter();
        let told: u64 = told.map(|event| event["cells"].as_u64().unwrap()).sum();
        assert_eq!(ran.document["left_out"]["cells"], told);
        assert_eq!(told + ran.measured().len() as u64, 8, "{budget}");
        assert_eq!(ran.events("finished").len(), 1);
    }
}

#[test]
fn an_error_in_one_turn_does_not_stop_the_next() {
    let lab = Lab::new(&(TWICE.to_owned() + &repeated("1", "echo v={{ size }}")));
    lab.run().assert_code(0);
    let sql = "CREATE TRIGGER refuse BEFORE INSERT ON attempt WHEN NEW.cell LIKE 'machine=a%' \
               BEGIN SELECT RAISE(FAIL, 'refused'); END";
    lab.store().execute_batch(sql).unwrap();
    let ran = lab.start_with("matrix.toml", "events", &["--fresh"]).wait();
    ran.assert_code(2);
    let errors = ran.errors().join("\n");
    assert!(
        errors.starts_with("machine `a`: ") && errors.contains("refused"),
        "{errors}"
    );
    assert_eq!(ran.measured().len(), 4);
    assert_eq!(ran.events("finished").len(), 1);
    assert_eq!(ran.events.last().unwrap()["event"], "finished");
    assert_eq!(ran.events("finished")[0]["measured"], 4);
}

#[test]
fn a_budget_ends_waiting_too() {
    let lab = Lab::new(&shell("echo v=1"));
    lab.touch("lock");
    let held = std::fs::File::open(lab.path("lock")).unwrap();
    held.lock().unwrap();
    let mut running = lab.start_with("matrix.toml", "events", &["--budget", "3s"]);
    wait_until("the end", || running.child.try_wait().unwrap().is_some());
    let ran = running.wait();
    assert_eq!(ran.measured(), []);
    assert_eq!(ran.document["left_out"]["cells"], 1, "{}", ran.document);
}
