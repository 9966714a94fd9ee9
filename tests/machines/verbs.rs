//! `matrix machine` and `--machine` on machines that are reached over ssh; what crosses the link.

use std::time::Duration;

use crate::machines::{Machines, exists, in_one_line, printed};

const MATRIX: &str = r#"
[matrix]
name = "verbs"
[machines.here]
via = "local"
[machines.far]
via = "ssh"
host = "lab1"
facts = { disk = "nvme" }
[run]
command = ["sh", "-c", "touch /root/begun; sleep 3; rm /root/begun; echo v=$(hostname | tr -d lab)"]
parser = { kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }
[[monitor]]
command = ["vmstat", "-n", "1"]
parser = "columns"
[metrics.v]
better = "lower"
"#;

#[test]
#[ignore = "needs root: tests/all.sh runs it"]
fn machines_are_looked_at_and_tuned_by_name() {
    let machines = Machines::start(1);
    machines.write_matrix(MATRIX);
    let run = |words: &[&str]| {
        let words: Vec<&str> = ["machine", "--file", "MATRIX"]
            .iter()
            .chain(words)
            .copied()
            .collect();
        let ran = machines.matrix(&words).output().unwrap();
        (ran.status.code(), in_one_line(&printed(&ran)))
    };
    let listed = "here: local far: ssh://lab1, disk = nvme";
    assert_eq!(run(&["list"]), (Some(0), listed.to_owned()));
    let id = machines.inside(1, "cat /etc/machine-id");
    assert!(!id.trim().is_empty());
    let (code, told) = run(&["facts", "far"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("cpus = "), "{told}");
    let (code, told) = run(&["facts", "ssh://root@lab1:22"]);
    assert_eq!(code, Some(0), "{told}");
    let (code, told) = run(&["status", "far"]);
    assert_eq!((code, told.as_str()), (Some(0), "no profile is in force"));
    let (code, told) = run(&["facts", "fra"]);
    assert_ne!(code, Some(0));
    assert!(
        told.contains("declares no machine `fra`") && told.contains("`far`"),
        "{told}"
    );

    // A knob of the machine's own: its network's.
    let knob = "/proc/sys/net/ipv4/tcp_fin_timeout";
    let profile = machines.file("p.kdl");
    std::fs::write(&profile, "sysctl \"net.ipv4.tcp_fin_timeout\" 47\n").unwrap();
    let value = || machines.inside(1, &format!("cat {knob}")).trim().to_owned();
    let before = value();
    assert_ne!(before, "47");
    let (code, told) = run(&["tune", profile.to_str().unwrap(), "far"]);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(value(), "47");
    let (_, told) = run(&["status", "far"]);
    assert!(told.contains("`47`"), "{told}");
    let (code, told) = run(&["revert", "far"]);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(value(), before);
    machines.assert_idle(1);
}

#[test]
#[ignore = "needs root: tests/all.sh runs it"]
fn a_machine_is_tried_without_editing() {
    let machines = Machines::start(1);
    machines.write_matrix(&MATRIX.replace("sleep 3; ", ""));
    let ran = machines.matrix(&["run", "MATRIX", "--machine", "new=ssh://root@lab1:22"]);
    let ran = { ran }.output().unwrap();
    assert!(ran.status.success(), "{}", printed(&ran));
    let sql = "SELECT count(*) FROM sample JOIN attempt ON attempt.id = sample.attempt WHERE machine = 'new'";
    assert!(machines.count(sql) > 0);
    assert_eq!(
        machines.count(
            &sql.replace('=', "<>")
                .replace("<> sample.attempt", "= sample.attempt")
        ),
        0
    );
    let bad = machines
        .matrix(&["run", "MATRIX", "--machine", "new"])
        .output()
        .unwrap();
    assert!(
        printed(&bad).contains("NAME=ssh://user@host"),
        "{}",
        printed(&bad)
    );
}

#[test]
#[ignore = "needs root: tests/all.sh runs it"]
fn nothing_crosses_the_link_while_a_machine_measures() {
    let machines = Machines::start(1);
    machines.write_matrix(MATRIX);
    let far = ["run", "MATRIX", "--only", "machine == 'far'"];
    let mut running = machines.matrix(&far).spawn().unwrap();
    let begun = machines.home(1).join("begun");
    let mut windows = 0;
    while running.try_wait().unwrap().is_none() {
        if !exists(&begun) {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        // The last acknowledgement is on its way.
        std::thread::sleep(Duration::from_millis(500));
        let before = machines.script("packets", &["1"]);
        std::thread::sleep(Duration::from_millis(1200));
        let after = machines.script("packets", &["1"]);
        if exists(&begun) {
            assert_eq!(before, after);
            windows += 1;
        }
        while exists(&begun) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    assert!(running.wait().unwrap().success());
    assert!(windows > 0);
}
