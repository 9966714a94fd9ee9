//! Runs whose machine is served by `matrix agent`: what it does when nobody asks any more.

use std::fs;

use super::lab::{Lab, need, repeated, wait_until};

const SWAPPINESS: &str = "/proc/sys/vm/swappiness";

/// A mount, a service and a measurement that waits for `go`.
fn matrix() -> String {
    let setups = r#"
        [axes]
        size = [1, 2]
        [[setup]]
        name = "place"
        run  = ["mkdir {{ dir }}/m", "mount -t tmpfs -o size=64k none {{ dir }}/m"]
        undo = ["umount {{ dir }}/m"]
        [[setup]]
        name    = "service"
        service = ["env", "-i", "sh", "-c", "cd {{ place.dir }}/m; exec sleep 1000"]
    "#;
    let line = "test {{ size }} = 1 || { touch $TMPDIR/measuring; while ! test -e $TMPDIR/go; do sleep 0.01; done; }; \
                echo v={{ size }}";
    setups.to_owned() + &repeated("2", line)
}

#[test]
fn it_puts_the_machine_back_when_the_orchestrator_is_killed() {
    need("mount", "mount");
    let mut lab = Lab::new(&matrix());
    lab.through_agent = true;
    for _ in 0..3 {
        let running = lab.start();
        lab.wait_for("measuring");
        assert_eq!(lab.mounts_in(".matrix").len(), 1);
        running.kill();
        // No other run is needed for it.
        wait_until("the machine to be put back", || {
            lab.noted().is_empty() && lab.processes().is_empty()
        });
        assert_eq!(lab.mounts_in(".matrix"), Vec::<String>::new());
        wait_until("the lock to be free", || lab_is_unlocked(&lab));
        fs::remove_file(lab.path("measuring")).unwrap();
    }
    lab.touch("go");
    let ran = lab.run();
    ran.assert_code(0);
    let samples = lab.samples();
    assert_eq!(samples.len(), 4);
    assert!(samples.values().all(|count| *count == 1), "{samples:?}");
    lab.assert_clean();
}

fn lab_is_unlocked(lab: &Lab) -> bool {
    let lock = fs::File::open(lab.path("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Changes a knob of this machine for a moment.
#[test]
#[ignore = "sets vm.swappiness: run as root, with --ignored"]
fn it_puts_knobs_back_when_the_orchestrator_is_killed() {
    let profile = "[machines.local]\nvia = \"local\"\nprofile = \"quiet\"\n";
    let mut lab = Lab::new(&(profile.to_owned() + &matrix()));
    lab.through_agent = true;
    let before = fs::read_to_string(SWAPPINESS).unwrap();
    let wanted = if before.trim() == "61" { "62" } else { "61" };
    fs::create_dir(lab.path("profiles")).unwrap();
    let text = format!("sysctl \"vm.swappiness\" {wanted}\n");
    fs::write(lab.path("profiles/quiet.kdl"), text).unwrap();
    let running = lab.start();
    lab.wait_for("measuring");
    assert_eq!(fs::read_to_string(SWAPPINESS).unwrap().trim(), wanted);
    running.kill();
    wait_until("the knob to be put back", || {
        fs::read_to_string(SWAPPINESS).unwrap() == before
    });
    wait_until("the lock to be free", || lab_is_unlocked(&lab));
    assert!(!lab.path("lock.profile.json").exists());
}
