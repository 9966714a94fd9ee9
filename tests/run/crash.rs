//! `kill -9` at any moment: the next run puts away what is left and goes on.

use std::hash::{BuildHasher, RandomState};
use std::process::Command;
use std::time::Duration;

use super::lab::{Lab, need, repeated, shell};

const KILLS: u64 = 20;

/// A mount, a service with a socket, and a measurement that leaves a session of its own behind.
fn matrix() -> String {
    let setups = r#"
        [axes]
        size = [1, 2, 3, 4]
        [[setup]]
        name = "place"
        run  = ["mkdir {{ dir }}/m", "mount -t tmpfs -o size=64k none {{ dir }}/m"]
        undo = ["umount {{ dir }}/m"]
        [[setup]]
        name    = "service"
        service = ["python3", "-c", "import socket,sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); [s.accept() for _ in iter(int, 1)]", "{{ place.dir }}/m/socket"]
        ready   = ["test", "-S", "{{ place.dir }}/m/socket"]
        scope   = "round"
        [[setup]]
        name  = "socket"
        run   = ["test -S {{ place.dir }}/m/socket"]
        undo  = ["rm {{ place.dir }}/m/socket"]
        scope = "round"
    "#;
    let line = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & sleep 0.02; echo v={{ size }}";
    setups.to_owned() + &repeated("20", line)
}

#[test]
fn kill_at_any_moment() {
    need("python3", "python3");
    need("setsid", "util-linux");
    need("mount", "mount");
    let lab = Lab::new(&matrix());
    for kill in 0..KILLS {
        let random = RandomState::new().hash_one(kill);
        let running = lab.start();
        std::thread::sleep(Duration::from_millis(20 + random % 600));
        running.kill();
    }
    let taken = lab.samples().len();
    println!("{taken} samples after {KILLS} kills");
    let ran = lab.run();
    ran.assert_code(0);
    assert_eq!(ran.failed(), Default::default());
    let samples = lab.samples();
    assert_eq!(samples.len(), 4 * 20);
    assert!(samples.values().all(|count| *count == 1), "{samples:?}");
    let ok = "SELECT count(*) FROM attempt WHERE kind = 'run' AND outcome = 'ok'";
    assert_eq!(lab.count(ok), 4 * 20);
    lab.assert_clean();
}

#[test]
fn what_a_dead_run_left_is_put_away_and_told() {
    let matrix = r#"
        [[setup]]
        name = "place"
        run  = ["mkdir {{ dir }}/m", "mount -t tmpfs -o size=64k none {{ dir }}/m"]
        undo = ["umount {{ dir }}/m"]
    "#;
    let line = "test -e $TMPDIR/go || { touch $TMPDIR/measuring; sleep 1000; }; echo v=1";
    let lab = Lab::new(&(matrix.to_owned() + &shell(line)));
    let running = lab.start();
    lab.wait_for("measuring");
    running.kill();
    lab.touch("go");
    let ran = lab.run();
    ran.assert_code(0);
    let cleaned = ran.events("cleaned");
    let what: Vec<&str> = cleaned
        .iter()
        .filter_map(|event| event["what"].as_str())
        .collect();
    // Its processes may have been ended by any `matrix` of this machine meanwhile.
    assert!(
        what.iter().any(|what| what.starts_with("set-up in ")),
        "{what:?}"
    );
    lab.assert_clean();
}

#[test]
fn what_is_left_of_a_measurement_is_put_away_where_nothing_is_to_be_done() {
    let lab = Lab::new(&shell("echo v=1"));
    lab.run().assert_code(0);
    let folder = lab.path(".matrix/work/run-0/deep");
    std::fs::create_dir_all(&folder).unwrap();
    let ran = lab.run();
    ran.assert_code(0);
    assert_eq!(ran.measured(), []);
    lab.assert_clean();
}

/// A mount and a loop device that a dead run of one matrix has left, with another state and another name of the machine
/// than those of whoever comes next.
fn leave_mount(lab: &Lab) {
    let matrix = r#"
        [machines.first]
        via = "local"
        [axes]
        machine = ["first"]
        [[setup]]
        name = "place"
        run  = [
          "mkdir {{ dir }}/m", "truncate -s 1M {{ dir }}/image", "mount -t tmpfs -o size=64k none {{ dir }}/m",
          ["sh", "-c", "losetup -f --show {{ dir }}/image > {{ dir }}/device"],
        ]
        undo = ["umount {{ dir }}/m", ["sh", "-c", "losetup -d $(cat {{ dir }}/device)"]]
    "#;
    let line = "touch $TMPDIR/measuring; sleep 1000; echo v=1";
    lab.write_as("dying.toml", &(matrix.to_owned() + &shell(line)));
    let running = lab.start_with("dying.toml", "events-dying", &["--state", "dying"]);
    lab.wait_for("measuring");
    running.kill();
    assert_eq!(loop_devices(lab).len(), 1);
    assert_eq!(lab.noted().len(), 1);
}

/// Loop devices on files of the lab.
fn loop_devices(lab: &Lab) -> Vec<String> {
    let listed = Command::new("losetup")
        .args(["-l", "-n", "-O", "BACK-FILE"])
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let folder = lab.path("").display().to_string();
    let of_lab = listed.lines().filter(|line| line.starts_with(&folder));
    of_lab.map(str::to_owned).collect()
}

#[test]
fn any_matrix_undoes_what_a_dead_run_left_on_the_machine() {
    need("losetup", "mount");
    let lab = Lab::new(&shell("echo v=1"));
    // One that has something to measure, one that has nothing, and one that only reverts.
    for way in ["run", "run", "revert"] {
        leave_mount(&lab);
        match way {
            "run" => lab.run().assert_code(0),
            _ => {
                let reverted = lab.matrix(&["machine", "revert"]).output().unwrap();
                let said = String::from_utf8(reverted.stdout).unwrap();
                assert!(said.contains("set-up in "), "{said}");
                assert_eq!(reverted.status.code(), Some(0));
            }
        }
        assert_eq!(loop_devices(&lab), Vec::<String>::new());
        assert_eq!(lab.mounts_in("dying"), Vec::<String>::new());
        lab.assert_clean();
        std::fs::remove_file(lab.path("measuring")).unwrap();
    }
}

#[test]
fn what_cannot_be_undone_is_told_and_stays_until_it_can() {
    let setup = r#"
        [[setup]]
        name = "place"
        run  = ["true"]
        undo = [["sh", "-c", "test -e $TMPDIR/go"]]
    "#;
    let lab = Lab::new(&(setup.to_owned() + &shell("echo v=1")));
    let ran = lab.run();
    ran.assert_code(3);
    assert_eq!(ran.measured().len(), 1);
    let undone = ran.events("undone");
    assert!(
        undone[0]["error"]
            .as_str()
            .unwrap()
            .contains("exit status 1"),
        "{undone:?}"
    );
    // Nothing to measure: what is left is told again.
    let ran = lab.run();
    ran.assert_code(3);
    assert_eq!(ran.events("left_behind").len(), 1);
    assert!(ran.stderr.contains("left behind on"), "{}", ran.stderr);
    assert_eq!(lab.noted().len(), 1);
    let reverted = lab.matrix(&["machine", "revert"]).output().unwrap();
    assert_eq!(reverted.status.code(), Some(3));
    lab.touch("go");
    let ran = lab.run();
    ran.assert_code(0);
    lab.assert_clean();
    // Or it was put away by hand.
    std::fs::remove_file(lab.path("go")).unwrap();
    lab.write(
        &std::fs::read_to_string(lab.path("matrix.toml"))
            .unwrap()
            .replace("[matrix]\nname = \"e2e\"\n", "")
            .replace("v=1", "v=2"),
    );
    lab.run().assert_code(3);
    let forgotten = lab
        .matrix(&["machine", "revert", "--forget"])
        .output()
        .unwrap();
    assert_eq!(forgotten.status.code(), Some(0));
    assert_eq!(lab.noted().len(), 0);
}
