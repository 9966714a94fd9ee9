//! Several things at once: slots of a machine, builds side by side, machines that do not wait.

use rustix::process::Signal;

use super::lab::{Lab, repeated, wait_until};

const SLOTS: &str = "[machines.here]\nvia = \"local\"\nslots = 2\n[axes]\nmachine = [\"here\"]\nsize = [1, 2, 3, 4, 5, 6]\n";

/// A measurement that notes its begin and end, and lasts until the file `go` is there.
const MEASURE: &str = "echo begin {{ size }} >> $TMPDIR/log; while ! test -e $TMPDIR/go; do sleep 0.01; done; \
                       echo end {{ size }} >> $TMPDIR/log; echo v={{ size }}";

fn begun(lab: &Lab) -> usize {
    let log = lab.log();
    log.iter().filter(|line| line.starts_with("begin")).count()
}

/// How many were under way at the most.
fn most(lab: &Lab) -> i32 {
    let mut now = 0;
    let log = lab.log();
    let steps = log
        .iter()
        .map(|line| if line.starts_with("begin") { 1 } else { -1 });
    steps
        .map(|step| {
            now += step;
            now
        })
        .max()
        .unwrap_or(0)
}

#[test]
fn two_slots_measure_two_cells_at_a_time() {
    let lab = Lab::new(&(SLOTS.to_owned() + &repeated("2", MEASURE)));
    let running = lab.start();
    wait_until("two measurements", || begun(&lab) == 2);
    lab.touch("go");
    let ran = running.wait();
    ran.assert_code(0);
    assert_eq!(ran.measured().len(), 12);
    assert_eq!(most(&lab), 2, "{:?}", lab.log());
    assert_eq!(lab.samples().len(), 12);
    assert_eq!(ran.events("finished").len(), 1);
    assert_eq!(ran.events("finished")[0]["measured"], 12);
    lab.assert_clean();
}

#[test]
fn killed_with_several_in_flight_only_these_are_lost() {
    // Notes each step that has come to its end.
    let line = "sleep 0.0{{ size }}; setsid sleep 1000 </dev/null >/dev/null 2>&1 & \
                echo end >> $TMPDIR/log; echo v={{ size }}";
    let lab = Lab::new(&(SLOTS.replace("slots = 2", "slots = 3") + &repeated("20", line)));
    let mut kills = 0;
    while lab
        .path(".matrix/matrix.db")
        .exists()
        .then(|| lab.samples().len())
        != Some(120)
    {
        let mut running = lab.start();
        let mut is_over = false;
        for _ in 0..40 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            is_over = is_over || running.child.try_wait().unwrap().is_some();
        }
        let told = running.told();
        if !is_over {
            running.kill();
        }
        kills += 1;
        let samples = lab.samples();
        let lost: Vec<_> = told
            .iter()
            .filter(|it| !samples.contains_key(*it))
            .collect();
        assert!(lost.is_empty(), "told as measured, and not there: {lost:?}");
        assert!(kills < 100, "{} of 120", samples.len());
    }
    lab.run().assert_code(0);
    let samples = lab.samples();
    assert!(samples.values().all(|count| *count == 1), "{samples:?}");
    // Of each slot the one in flight, and one that is being written while the next is measured.
    let lost = lab.log().len() - samples.len();
    assert!(
        lost <= 2 * 3 * kills,
        "{lost} ended and were lost in {kills} kills"
    );
    lab.assert_clean();
}

/// Runs; of the six cells just this one has no sample then.
fn assert_only_failed(lab: &Lab, cell: &str) {
    let ran = lab.run();
    ran.assert_code(3);
    assert_eq!(ran.failed().keys().collect::<Vec<_>>(), [cell]);
    assert_eq!(lab.samples().len(), 5);
    lab.assert_clean();
}

#[test]
fn an_interrupt_ends_both_slots_and_a_time_limit_only_its_own() {
    let lab = Lab::new(&(SLOTS.to_owned() + &repeated("1", MEASURE)));
    let mut running = lab.start();
    wait_until("two measurements", || begun(&lab) == 2);
    for at_once in [false, true] {
        running.send(Signal::INT);
        running.wait_for("an interrupt", |event| {
            event["event"] == "interrupted" && event["at_once"] == at_once
        });
    }
    let ran = running.wait();
    ran.assert_code(130);
    assert_eq!(ran.failed(), Default::default());
    assert_eq!(lab.samples().len(), 0);
    lab.assert_clean();

    let line = "test {{ size }} != 3 || sleep 1000; echo v={{ size }}";
    let text = (SLOTS.to_owned() + &repeated("1", line)).replace("\"60s\"", "\"1s\"");
    lab.write(&text);
    assert_only_failed(&lab, "machine=here,size=3");
}

#[test]
fn a_service_that_dies_spoils_the_cell_of_its_own_slot_only() {
    let setup = r#"
        [[setup]]
        name    = "service"
        service = ["sh", "-c", "test {{ size }} = 2 && exec sleep 0.3; exec sleep 1000"]
    "#;
    let lab = Lab::new(&(SLOTS.to_owned() + setup + &repeated("1", "sleep 0.6; echo v=1")));
    assert_only_failed(&lab, "machine=here,size=2");
}

#[test]
fn a_machine_does_not_wait_for_another_one() {
    let machines = "[machines.here]\nvia = \"local\"\n[machines.nowhere]\nvia = \"null\"\n\
                    [axes]\nmachine = [\"here\", \"nowhere\"]\n";
    let lab = Lab::new(&(machines.to_owned() + &repeated("2", "echo v=1")));
    lab.touch("lock");
    let held = std::fs::File::open(lab.path("lock")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mut running = lab.start();
    running.wait_for("waiting", |event| event["event"] == "waiting");
    running.wait_for("the other machine", |event| {
        event["event"] == "run_done" && event["cell"] == "machine=nowhere" && event["round"] == 1
    });
    drop(held);
    let ran = running.wait();
    ran.assert_code(0);
    assert_eq!(ran.measured().len(), 4);
    assert_eq!(ran.events("finished").len(), 1);
}

#[test]
fn a_set_up_that_fails_is_told_once_with_its_cells() {
    let setup = "[axes]\nsize = [1, 2, 3, 4]\n[[setup]]\nname = \"image\"\nrun = [\"false\"]\n";
    let lab = Lab::new(&(setup.to_owned() + &repeated("2", "echo v={{ size }}")));
    let output = lab.matrix(&["run", "matrix.toml"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.matches("set-up `image`").count(), 1, "{stderr}");
    // It is for all cells: there is none to name.
    assert!(stderr.contains("failed: set-up `image`: "), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(stdout.matches("set-up `image`").count(), 1, "{stdout}");
    assert!(
        stdout.contains("4 cells failed:") && stdout.contains("and 3 more cells"),
        "{stdout}"
    );
}
