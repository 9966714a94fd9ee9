//! Processes that hide: with a clean environment, in a session of their own, without a parent.

use std::fs;

use super::lab::{Lab, need, shell};

/// Starts a daemon that drops its environment, session and parent, and notes its number in `pids`.
const DAEMON: &str =
    "env -i setsid -f sh -c 'echo $$ >> DIR/pids; exec sleep 8642 >/dev/null 2>&1'";

fn daemon(lab: &Lab) -> String {
    DAEMON.replace("DIR", &lab.path("").display().to_string())
}

fn alive(lab: &Lab) -> Vec<String> {
    let pids = fs::read_to_string(lab.path("pids")).unwrap_or_default();
    // A zombie, which only its new parent can reap, has no command line.
    let line = |pid: &&str| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let alive = |pid: &&str| !line(pid).is_empty();
    pids.lines().filter(alive).map(str::to_owned).collect()
}

#[test]
fn a_daemon_with_a_clean_environment_ends_with_its_step_and_is_told() {
    need("setsid", "util-linux");
    let lab = Lab::new("");
    let setups = r#"
        [axes]
        size = [1, 2]
        [[setup]]
        name = "server"
        run  = ['''sh -c "DAEMON; while ! test -s $TMPDIR/pids; do sleep 0.01; done"''', "true {{ size }}"]
    "#;
    // The measurement leaves one too.
    let line = format!(
        "for pid in $(cat $TMPDIR/pids); do kill -0 $pid && exit 7; done; {}; echo v={{{{ size }}}}",
        daemon(&lab)
    );
    lab.write(&(setups.replace("DAEMON", &daemon(&lab)) + &shell(&line)));
    let ran = lab.run();
    ran.assert_code(0);
    assert_eq!(alive(&lab), Vec::<String>::new());
    let told = ran.events("note");
    let told = told.iter().filter_map(|event| event["what"].as_str());
    let told: Vec<&str> = told
        .filter(|what| what.contains("left processes"))
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("set-up `server` left processes behind, which were ended: `"));
    lab.assert_clean();
}

/// A run is killed whose set-up has such a daemon as its service; the next one ends it. `before` is a shell command
/// run first, in a mount namespace of its own.
fn killed(before: &str) {
    need("setsid", "util-linux");
    need("unshare", "util-linux");
    let lab = Lab::new("");
    let setups = r#"
        [[setup]]
        name = "server"
        service = ["sh", "-c", "DAEMON; exec sleep 8642"]
        ready = ["sh", "-c", "test -s $TMPDIR/pids"]
    "#;
    let line = "test -e $TMPDIR/go || { touch $TMPDIR/measuring; exec sleep 8642; }; echo v=1";
    lab.write(&(setups.replace("DAEMON", &daemon(&lab)) + &shell(line)));
    let script = format!("{before}; exec \"$0\" run matrix.toml");
    let mut command = std::process::Command::new("unshare");
    command
        .args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_matrix")])
        .current_dir(lab.path(""))
        .env("MATRIX_LOCK", lab.path("lock"))
        .env("TMPDIR", lab.path(""));
    let mut child = command.spawn().unwrap();
    lab.wait_for("measuring");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(alive(&lab).len(), 1);
    lab.touch("go");
    let ran = lab.run();
    ran.assert_code(0);
    // The daemon of the second run has ended with it.
    assert_eq!(alive(&lab), Vec::<String>::new());
    lab.assert_clean();
    let left = fs::read_dir(lab.path("lock.state/running")).unwrap();
    assert_eq!(left.count(), 0);
}

#[test]
fn a_killed_run_leaves_no_daemon_where_there_are_cgroups() {
    killed("true");
}

#[test]
fn a_killed_run_leaves_no_daemon_where_there_are_none() {
    killed("mount -t tmpfs none /sys/fs/cgroup");
}

#[test]
fn a_probe_that_somebody_else_answers_is_refused() {
    need("python3", "python3");
    // It stands for a server of before, which has the port; the new one lives on without it.
    let old = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = old.local_addr().unwrap().port();
    std::thread::sleep(std::time::Duration::from_millis(50));
    let setups = format!(
        r#"
        [[setup]]
        name = "server"
        service = ["sleep", "8642"]
        ready = ["python3", "-c", "import socket; socket.create_connection(('127.0.0.1', {port}))"]
    "#
    );
    let lab = Lab::new(&(setups + &shell("echo v=1")));
    let ran = lab.run();
    ran.assert_code(3);
    let failed = ran.failed();
    let reason = failed.values().next().unwrap();
    let us = format!("(pid {}) listens on port {port}", std::process::id());
    assert!(
        reason.contains("somebody else answered") && reason.contains(&us),
        "{reason}"
    );
    lab.assert_clean();
}
