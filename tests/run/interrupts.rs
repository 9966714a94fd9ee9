//! SIGINT and SIGTERM: what still ends, what is undone, what is not called a failure.

use rustix::process::Signal;

use super::lab::{Lab, Ran, Running, repeated, shell};

const SETUP: &str = r#"
    [axes]
    size = [1, 2, 3]
    [[setup]]
    name    = "service"
    run     = [["sh", "-c", "echo up >> $TMPDIR/log"]]
    service = ["sleep", "1000"]
    undo    = [["sh", "-c", "echo down >> $TMPDIR/log"]]
    [[compare]]
    axis = "size"
"#;

/// A measurement that waits for the file `go`.
const MEASURE: &str =
    "touch $TMPDIR/measuring; while ! test -e $TMPDIR/go; do sleep 0.01; done; echo v={{ size }}";

/// Sends the signal and waits until it is known to have come.
fn interrupt(running: &mut Running, signal: Signal, at_once: bool) {
    running.send(signal);
    running.wait_for("an interrupt", |event| {
        event["event"] == "interrupted" && event["at_once"] == at_once
    });
}

/// Nothing is told as failed, and nothing is told of what was not come to.
fn assert_interrupted(lab: &Lab, ran: &Ran) {
    ran.assert_code(130);
    assert!(!ran.stderr.contains("failed"), "{}", ran.stderr);
    assert_eq!(ran.document["counts"]["nothing_measured"], 0);
    let verdicts = ran.document["verdicts"].as_array().unwrap();
    assert!(
        verdicts
            .iter()
            .all(|row| row["verdict"] != "nothing_measured"),
        "{verdicts:?}"
    );
    assert_eq!(ran.failed(), Default::default());
    assert_eq!(ran.events("failed"), Vec::<&serde_json::Value>::new());
    let failures = "SELECT count(*) FROM attempt WHERE outcome NOT IN ('ok', 'interrupted')";
    assert_eq!(lab.count(failures), 0);
    lab.assert_clean();
}

#[test]
fn once_ends_after_the_current_step() {
    for signal in [Signal::INT, Signal::TERM] {
        let lab = Lab::new(&(SETUP.to_owned() + &shell(MEASURE)));
        let mut running = lab.start();
        lab.wait_for("measuring");
        interrupt(&mut running, signal, false);
        lab.touch("go");
        let ran = running.wait();
        assert_interrupted(&lab, &ran);
        assert_eq!(ran.measured().len(), 1);
        assert_eq!(lab.log(), ["up", "down"]);
        let rest = lab.run();
        rest.assert_code(0);
        assert_eq!(rest.measured().len(), 2);
    }
}

#[test]
fn twice_ends_at_once_and_still_undoes() {
    for signal in [Signal::INT, Signal::TERM] {
        let lab = Lab::new(&(SETUP.to_owned() + &shell(MEASURE)));
        let mut running = lab.start();
        lab.wait_for("measuring");
        interrupt(&mut running, signal, false);
        interrupt(&mut running, signal, true);
        let ran = running.wait();
        assert_interrupted(&lab, &ran);
        assert_eq!(ran.measured(), []);
        assert_eq!(lab.log(), ["up", "down"]);
        lab.touch("go");
        assert_eq!(lab.run().measured().len(), 3);
    }
}

#[test]
fn during_a_setup_it_is_no_failure() {
    let setup = r#"
        [[setup]]
        name = "slow"
        run  = [["sh", "-c", "touch $TMPDIR/setting; while ! test -e $TMPDIR/go; do sleep 0.01; done"]]
        undo = [["sh", "-c", "echo down >> $TMPDIR/log"]]
    "#;
    for twice in [false, true] {
        let lab = Lab::new(&(setup.to_owned() + &shell("echo v=1")));
        let mut running = lab.start();
        lab.wait_for("setting");
        interrupt(&mut running, Signal::INT, false);
        if twice {
            interrupt(&mut running, Signal::INT, true);
        } else {
            lab.touch("go");
        }
        let ran = running.wait();
        assert_interrupted(&lab, &ran);
        assert_eq!(ran.measured(), []);
        assert_eq!(lab.log(), ["down"]);
        lab.touch("go");
        lab.run().assert_code(0);
    }
}

#[test]
fn while_a_service_is_awaited_it_is_no_failure() {
    let setup = r#"
        [[setup]]
        name    = "service"
        service = ["sleep", "1000"]
        ready   = ["sh", "-c", "touch $TMPDIR/probed; test -e $TMPDIR/go"]
        undo    = [["sh", "-c", "echo down >> $TMPDIR/log"]]
    "#;
    let lab = Lab::new(&(setup.to_owned() + &shell("echo v=1")));
    let mut running = lab.start();
    lab.wait_for("probed");
    interrupt(&mut running, Signal::INT, false);
    interrupt(&mut running, Signal::INT, true);
    let ran = running.wait();
    assert_interrupted(&lab, &ran);
    assert_eq!(lab.log(), ["down"]);
}

#[test]
fn while_another_has_the_machine() {
    let lab = Lab::new(&shell("echo v=1"));
    lab.touch("lock");
    let held = std::fs::File::open(lab.path("lock")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mut running = lab.start();
    running.wait_for("waiting", |event| event["event"] == "waiting");
    running.send(Signal::INT);
    let ran = running.wait();
    assert_interrupted(&lab, &ran);
    drop(held);
    lab.run().assert_code(0);
}

#[test]
fn while_a_finding_is_measured_again() {
    let axes = "[axes]\nsize = [1, 2]\n[[compare]]\naxis = \"size\"\nconfirm = true\n";
    let line = "echo x >> $TMPDIR/log; n=$(wc -l < $TMPDIR/log); \
                test $n -le 12 || { touch $TMPDIR/again; while ! test -e $TMPDIR/go; do sleep 0.01; done; }; \
                echo v=$(({{ size }} * 100000 + n * 7919 % 1000))";
    let lab = Lab::new(&(axes.to_owned() + &repeated("6", line)));
    let mut running = lab.start();
    lab.wait_for("again");
    interrupt(&mut running, Signal::INT, false);
    interrupt(&mut running, Signal::INT, true);
    let ran = running.wait();
    assert_interrupted(&lab, &ran);
    assert_eq!(ran.measured().len(), 12);
    let told = |ran: &Ran| {
        let row = &ran.document["verdicts"][0];
        (row["verdict"].clone(), row["confirmed"].clone())
    };
    assert_eq!(told(&ran), ("suspected".into(), serde_json::Value::Null));
    lab.touch("go");
    let ran = lab.run();
    ran.assert_code(0);
    assert_eq!(told(&ran), ("improvement".into(), true.into()));
}

/// The last line that `matrix run` says, and its exit status, when it is interrupted while it measures.
fn hint(lab: &Lab, words: &[&str]) -> (String, Option<i32>) {
    for mark in ["measuring", "go"] {
        let _ = std::fs::remove_file(lab.path(mark));
    }
    let words = [&["run", "matrix.toml"], words].concat();
    let child = lab.matrix(&words).spawn().unwrap();
    lab.wait_for("measuring");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::INT).unwrap();
    lab.touch("go");
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let line = stderr.lines().find(|line| line.contains("   # ")).unwrap();
    let (_, line) = line.split_once(" run ").unwrap();
    (line.to_owned(), output.status.code())
}

#[test]
fn the_hint_says_how_to_go_on() {
    let axes = "[axes]\nsize = [1, 2, 3]\n";
    // Slow enough that the signal comes before the last one.
    let lab = Lab::new(&(axes.to_owned() + &shell(&format!("{MEASURE}; sleep 0.3"))));
    let check = |words: &[&str], expected: &str| {
        assert_eq!(hint(&lab, words), (expected.to_owned(), Some(130)));
    };
    check(
        &["--budget", "90min"],
        "matrix.toml --budget 90m   # goes on",
    );
    lab.touch("go");
    assert_eq!(lab.run().measured().len(), 2);
    // What it has measured is kept, and does not count for the next one.
    check(&["--fresh"], "matrix.toml --fresh   # begins anew");
    lab.touch("go");
    let fresh = lab.start_with("matrix.toml", "events", &["--fresh"]).wait();
    assert_eq!(fresh.measured().len(), 3);
    assert_eq!(lab.run().measured().len(), 0);
}

#[test]
fn a_fetch_ends_with_the_program() {
    use std::os::unix::fs::PermissionsExt;
    let git = r#"
        [subject.git]
        repo = "https://localhost:1/none.git"
        paths = ["**"]
        [build]
        run = ["true"]
        artifacts = ["x"]
    "#;
    let lab = Lab::new(&(git.to_owned() + &shell("echo v=1")));
    // A git whose server does not answer.
    std::fs::create_dir(lab.path("bin")).unwrap();
    let script = "#!/bin/sh\ncase \"$*\" in *fetch*|*clone*|*ls-remote*) touch $TMPDIR/fetching; exec sleep 1000;; esac\n\
                  PATH=${PATH#*:} exec git \"$@\"\n";
    std::fs::write(lab.path("bin/git"), script).unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(lab.path("bin/git"), mode).unwrap();
    let path = format!(
        "{}:{}",
        lab.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let child = lab
        .matrix(&["run", "matrix.toml", "--version", "v1"])
        .env("PATH", path)
        .spawn()
        .unwrap();
    lab.wait_for("fetching");
    let began = std::time::Instant::now();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    println!("ended {:.1?} after the signal", began.elapsed());
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(lab.processes(), Vec::<String>::new());
}

/// By Ctrl-Z: the pause of the one who waits is none of the program's.
#[test]
fn a_measurement_in_which_it_is_stopped_is_repeated() {
    let line = "echo x >> $TMPDIR/log; touch $TMPDIR/measuring; sleep 1";
    let lab = Lab::new(&format!(
        "[run]\ncommand = [\"sh\", \"-c\", \"{line}\"]\nparser = \"time\"\nrepeat = 1\ntimeout = \"6s\"\n\
         [metrics.v]\nfrom = \"real\"\n"
    ));
    let running = lab.start();
    lab.wait_for("measuring");
    running.send(Signal::TSTP);
    // Longer than the limit of the program.
    std::thread::sleep(std::time::Duration::from_secs(8));
    running.send(Signal::CONT);
    let ran = running.wait();
    ran.assert_code(0);
    assert_eq!(lab.log(), ["x", "x"]);
    let value = ran.events("run_done")[0]["metrics"][0][1].as_f64().unwrap();
    assert!((1.0..6.0).contains(&value), "{value}");
    let noted = ran.events("note");
    let is_told =
        |event: &&serde_json::Value| event["what"].as_str().unwrap().contains("was stopped");
    assert_eq!(noted.into_iter().filter(is_told).count(), 1);
}
