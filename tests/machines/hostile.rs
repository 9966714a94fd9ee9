//! Machines that are set up badly or broken: a clear error with a remedy, or a right result.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::machines::{Machines, in_one_line, printed};

fn matrix(table: &str) -> String {
    format!(
        r#"
[matrix]
name = "hostile"
[machines.far]
via = "ssh"
{table}
[run]
command = ["sh", "-c", 'echo "v=$(hostname | tr -d lab).5"; LC_ALL= locale >&2']
parser = {{ kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }}
repeat = 2
[metrics.v]
better = "lower"
"#
    )
}

/// A run that must end with an error that holds these words.
fn refused(machines: &Machines, table: &str, expected: &[&str]) {
    machines.write_matrix(&matrix(table));
    let ran = machines.run();
    let told = in_one_line(&printed(&ran));
    assert!(!ran.status.success(), "{told}");
    for words in expected {
        assert!(told.contains(words), "`{words}` is not in: {told}");
    }
    assert!(told.len() < 800, "{told}");
    machines.assert_idle(1);
}

/// A run that must give its two samples all the same.
fn measured(machines: &Machines, table: &str) {
    let _ = fs::remove_dir_all(machines.file(".matrix"));
    machines.write_matrix(&matrix(table));
    let ran = machines.run();
    assert!(ran.status.success(), "{}", printed(&ran));
    assert_eq!(
        machines.count("SELECT count(*) FROM sample WHERE value = 1.5"),
        2
    );
    machines.assert_idle(1);
}

const HOST: &str = "host = 'lab1'";

#[test]
#[ignore = "needs root: tests/all.sh runs it"]
fn what_ssh_refuses() {
    let machines = Machines::start(1);
    let known_hosts = machines.file("known_hosts");
    let good = fs::read_to_string(&known_hosts).unwrap();

    fs::write(&known_hosts, "").unwrap();
    let words = ["host key", "accept it once with `ssh lab1`"];
    refused(&machines, HOST, &words);

    let other = fs::read_to_string(machines.file("key.pub")).unwrap();
    fs::write(&known_hosts, format!("lab1 {other}")).unwrap();
    let words = ["has changed", "`ssh-keygen -R lab1`"];
    refused(&machines, HOST, &words);
    fs::write(&known_hosts, good).unwrap();

    let keys = machines.file("authorized_keys");
    let accepted = fs::read_to_string(&keys).unwrap();
    fs::write(&keys, "").unwrap();
    refused(
        &machines,
        HOST,
        &["Permission denied (publickey)", "`ssh-copy-id lab1`"],
    );
    fs::write(&keys, accepted).unwrap();

    refused(
        &machines,
        "host = 'lab1'\nport = 9",
        &["Connection refused", "is the port right?"],
    );
    refused(
        &machines,
        "host = 'nowhere.invalid'",
        &["Could not resolve hostname", "see `host`"],
    );

    let config = machines.file("ssh_config");
    let own = fs::read_to_string(&config).unwrap();
    let long = format!("ControlPath /tmp/{}\n{own}", "x".repeat(120));
    fs::write(&config, long).unwrap();
    refused(&machines, HOST, &["`ControlPath`", "`~/.ssh/%C` is short"]);
    fs::write(&config, own).unwrap();

    machines.script("cut", &["1"]);
    refused(&machines, HOST, &["unreachable", "is it switched on"]);
    machines.script("restore", &["1"]);
    measured(&machines, HOST);
}

#[test]
#[ignore = "needs root: tests/all.sh runs it"]
fn shells_that_say_more_or_less_than_they_should() {
    let machines = Machines::start(1);
    let rc = machines.home(1).join(".bashrc");
    fs::write(&rc, "echo Welcome; printf 'no newline'; echo beware >&2\n").unwrap();
    measured(&machines, HOST);
    fs::write(&rc, "sleep 3\n").unwrap();
    measured(&machines, HOST);
    fs::write(&rc, "echo 'closed for maintenance'; exit 0\n").unwrap();
    refused(
        &machines,
        HOST,
        &["its login shell started no `sh`", "`ssh lab1 true`"],
    );
    fs::write(&rc, "exec cat /dev/zero\n").unwrap();
    refused(
        &machines,
        HOST,
        &["its login shell started no `sh`", "`ssh lab1 true`"],
    );
}

#[test]
#[ignore = "needs root: tests/all.sh runs it"]
fn homes_that_cannot_take_the_program() {
    let machines = Machines::start(1);
    let home = machines.home(1);
    machines.inside(
        1,
        "mkdir /root/.cache /root/free && mount -t tmpfs -o size=64k none /root/.cache",
    );
    refused(
        &machines,
        HOST,
        &["No space left on device", "`state = \"/PATH\"`"],
    );
    assert!(!machines.inside(1, "find /root/.cache").contains("matrix-"));
    machines.inside(1, "mount -o remount,ro /root/.cache");
    refused(
        &machines,
        HOST,
        &["Read-only file system", "`state = \"/PATH\"`"],
    );
    // The remedy works.
    measured(&machines, "host = 'lab1'\nstate = '/root/free'");

    machines.inside(1, "mount -o remount,rw,noexec,size=1g /root/.cache");
    refused(
        &machines,
        HOST,
        &["Permission denied", "noexec", "`state = \"/PATH\"`"],
    );

    let agent = home.join("own-matrix");
    fs::copy(env!("CARGO_BIN_EXE_matrix"), &agent).unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    measured(&machines, "host = 'lab1'\nagent = '/root/own-matrix'");
    let table = "host = 'lab1'\nagent = '/root/none'";
    refused(&machines, table, &["it has no program `/root/none`"]);
    fs::write(&agent, "#!/bin/sh\necho matrix-agent 999\n").unwrap();
    refused(
        &machines,
        "host = 'lab1'\nagent = '/root/own-matrix'",
        &["version 999 of the protocol", "use the same `matrix`"],
    );
}

#[test]
#[ignore = "needs root: tests/all.sh runs it"]
fn a_user_without_rights() {
    let machines = Machines::start(1);
    machines.inside(
        1,
        "cp /etc/passwd /root/passwd; echo 'tester:x:4242:4242::/home/tester:/bin/sh' >> /root/passwd; \
         mount --bind /root/passwd /etc/passwd; mount -t tmpfs none /home; mkdir /home/tester; chown 4242 /home/tester",
    );
    measured(&machines, "host = 'tester@lab1'");
}

#[test]
#[ignore = "needs root: tests/all.sh runs it"]
fn a_slow_link() {
    let machines = Machines::start(1);
    machines.script("delay", &["1", "1000"]);
    // The copy alone would take minutes.
    let agent = machines.home(1).join("matrix");
    fs::copy(env!("CARGO_BIN_EXE_matrix"), &agent).unwrap();
    measured(&machines, "host = 'lab1'\nagent = '/root/matrix'");
}
