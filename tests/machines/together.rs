//! Several machines in one session.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::machines::{Machines, exists, printed};

/// Each measurement prints where it ran, and when it began and ended on the clock that all machines here share.
const MATRIX: &str = r#"
[matrix]
name = "together"
[machines.lab1]
via = "ssh"
host = "lab1"
[machines.lab2]
via = "ssh"
host = "root@lab2"
[machines.lab3]
via = "ssh"
host = "lab3"
state = "/root/elsewhere"
[axes]
n = [1, 2, 3]
[run]
command = ["sh", "-c", '''
a=$(cut -d" " -f1 /proc/uptime); sleep 0.3; b=$(cut -d" " -f1 /proc/uptime)
echo "n={{ n }} begin=$a end=$b host=$(hostname | tr -d lab)"''']
parser = { kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }
repeat = 4
[metrics.begin]
better = "lower"
[metrics.end]
better = "lower"
[metrics.host]
better = "lower"
"#;

#[test]
#[ignore = "needs root: tests/all.sh runs it"]
fn machines_are_measured_side_by_side_and_one_thing_at_a_time() {
    let machines = Machines::start(3);
    machines.write_matrix(MATRIX);
    let ran = machines.run();
    assert!(ran.status.success(), "{}", printed(&ran));

    let store = machines.store();
    let mut rows = store
        .prepare(
            "SELECT attempt.machine, max(CASE metric.name WHEN 'host' THEN value END), \
             max(CASE metric.name WHEN 'begin' THEN value END), max(CASE metric.name WHEN 'end' THEN value END) \
             FROM sample JOIN attempt ON attempt.id = sample.attempt JOIN metric ON metric.id = sample.metric \
             GROUP BY attempt.id ORDER BY 1, 3",
        )
        .unwrap();
    type Row = (String, f64, f64, f64);
    let rows: Vec<Row> = rows
        .query_map([], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(rows.len(), 3 * 3 * 4);
    for (machine, host, _, _) in &rows {
        assert_eq!(machine, &format!("lab{host}"));
    }
    for pair in rows.windows(2) {
        let ((one, _, _, end), (next, _, begin, _)) = (&pair[0], &pair[1]);
        assert!(one != next || end <= begin, "{pair:?} overlap");
    }
    let overlaps = |a: &Row, b: &Row| a.0 != b.0 && a.2 < b.3 && b.2 < a.3;
    let beside = rows
        .iter()
        .filter(|a| rows.iter().any(|b| overlaps(a, b)))
        .count();
    assert!(
        beside > 12,
        "{beside} of {} ran beside another machine's",
        rows.len()
    );

    for machine in 1..=3 {
        machines.assert_idle(machine);
    }
    // The program was copied once, and nothing else of ours is in a home.
    let copy = |machine| {
        let folder = match machine {
            3 => machines.home(3).join("elsewhere/agent"),
            other => machines.home(other).join(".cache/matrix/agent"),
        };
        let mut files = fs::read_dir(folder).unwrap().map(Result::unwrap);
        let file = files.next().unwrap();
        assert!(files.next().is_none());
        file.metadata().unwrap().ino()
    };
    let before: Vec<u64> = (1..=3).map(copy).collect();
    let ran = machines.run();
    assert!(ran.status.success(), "{}", printed(&ran));
    assert_eq!((1..=3).map(copy).collect::<Vec<u64>>(), before);
    assert_eq!(
        machines.count("SELECT count(*) FROM attempt WHERE kind = 'run'"),
        36
    );
}

#[test]
#[ignore = "needs root: tests/all.sh runs it"]
fn versions_are_built_on_each_machine() {
    let machines = Machines::start(2);
    let repo = machines.file("repo");
    fs::create_dir(&repo).unwrap();
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=T", "-c", "user.email=t@example.org"]);
        let ran = git.arg("-C").arg(&repo).args(words).output().unwrap();
        assert!(ran.status.success(), "{words:?}: {ran:?}");
    };
    git(&["init", "-q", "-b", "main"]);
    for value in [1, 2] {
        fs::write(repo.join("tool"), format!("#!/bin/sh\necho v={value}\n")).unwrap();
        git(&["add", "."]);
        git(&["commit", "-q", "-m", "value"]);
        git(&["tag", &format!("v{value}")]);
    }
    machines.write_matrix(&format!(
        r#"
[matrix]
name = "built"
[subject.git]
repo = "{}"
[build]
run = ["sh -c 'hostname > {{{{ src }}}}/../built-on; cp {{{{ src }}}}/tool tool; chmod 755 tool'"]
artifacts = ["tool"]
[machines.lab1]
via = "ssh"
host = "lab1"
[machines.lab2]
via = "ssh"
host = "lab2"
[run]
command = ["{{{{ bin }}}}/tool"]
parser = {{ kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }}
repeat = 2
[metrics.v]
better = "lower"
"#,
        repo.display()
    ));
    let words = ["run", "MATRIX", "--version", "v1", "--version", "v2"];
    let ran = machines.matrix(&words).output().unwrap();
    assert!(ran.status.success(), "{}", printed(&ran));
    let sql = "SELECT count(*) FROM sample JOIN attempt ON attempt.id = sample.attempt WHERE 'v' || CAST(value AS INTEGER) = version";
    assert_eq!(machines.count(sql), 8);
    for machine in 1..=2 {
        let found = machines.inside(machine, "cat $(find /root/.cache -name built-on)");
        assert_eq!(found.trim(), format!("lab{machine}"));
        machines.assert_idle(machine);
    }
    assert!(!exists(&machines.file(".matrix/build")));
}
