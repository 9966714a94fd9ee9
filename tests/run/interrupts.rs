//! Owns SIGINT and SIGTERM: what still ends, what is undone, what is not called a failure.
//! Does not know kills that cannot be answered.

use rustix::process::Signal;

use super::lab::{Lab, Ran, Running, shell};

const SETUP: &str = r#"
    [axes]
    size = [1, 2, 3]
    [[setup]]
    name    = "service"
    run     = [["sh", "-c", "echo up >> $TMPDIR/log"]]
    service = ["sleep", "1000"]
    undo    = [["sh", "-c", "echo down >> $TMPDIR/log"]]
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

fn assert_interrupted(lab: &Lab, ran: &Ran) {
    ran.assert_code(130);
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
        assert!(!ran.stderr.contains("failed"), "{}", ran.stderr);
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
    assert!(!ran.stderr.contains("failed"), "{}", ran.stderr);
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
