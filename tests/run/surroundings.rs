//! What is around a run: missing programs, closed streams, colours, a bare environment.

use std::process::Stdio;

use super::lab::{Lab, need, repeated, shell};

#[test]
fn a_missing_program_is_told_before_anything_starts() {
    let requires = r#"
        [requires]
        commands = ["sh", "no-such-benchmark"]
        packages = { apt = ["some-benchmarks"], dnf = ["some-benchmarks"] }
    "#;
    let matrix = requires.to_owned() + &shell("touch $TMPDIR/ran; echo v=1");
    let lab = Lab::new(&matrix);
    let ran = lab.run();
    ran.assert_code(2);
    let errors = ran.errors().join("\n");
    assert!(errors.contains("has no no-such-benchmark"), "{errors}");
    assert!(errors.contains("--install"), "{errors}");
    assert!(!lab.path("ran").exists());
    assert!(!lab.path(".matrix").exists());
    // Where it could install nothing, `--install` is not what helps.
    lab.write(&matrix.replace("packages =", "# packages ="));
    let errors = lab.run().errors().join("\n");
    assert!(errors.contains("install it yourself"), "{errors}");
    assert!(!errors.contains("--install"), "{errors}");
}

/// Five cells, and a set-up that must be undone.
fn matrix() -> String {
    let axes = r#"
        [axes]
        size = [1, 2, 3, 4, 5]
        [[compare]]
        axis = "size"
        gate = false
        [[setup]]
        name = "place"
        run  = ["true"]
        undo = [["sh", "-c", "echo down >> $TMPDIR/log"]]
    "#;
    axes.to_owned() + &repeated("3", "echo v={{ size }}")
}

#[test]
fn nobody_reads_what_is_printed() {
    for closed in [[true, false], [false, true], [true, true]] {
        let lab = Lab::new(&matrix());
        let mut child = lab.matrix(&["run", "matrix.toml"]).spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut kept = Vec::new();
        for (pipe, is_closed) in [
            (stdout.map(Stdio::from), closed[0]),
            (stderr.map(Stdio::from), closed[1]),
        ] {
            if !is_closed {
                kept.push(pipe);
            }
        }
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "stdout, stderr closed: {closed:?}");
        assert_eq!(lab.samples().len(), 15);
        assert_eq!(lab.log(), ["down"]);
        lab.assert_clean();
    }
}

#[test]
fn colour_on_a_terminal_only() {
    need("python3", "python3");
    // Standard output is a terminal, or a pipe.
    let terminal = "import os, pty, subprocess, sys\n\
        main, side = pty.openpty()\n\
        subprocess.run(sys.argv[1:], stdout=side, stderr=subprocess.DEVNULL)\n\
        os.close(side)\n\
        try:\n\
        \x20   while data := os.read(main, 4096): os.write(1, data)\n\
        except OSError: pass\n";
    let lab = Lab::new(&matrix());
    lab.run().assert_code(0);
    let check = |in_terminal: bool, no_color: bool, expected: bool| {
        let matrix = lab.matrix(&["run", "matrix.toml"]);
        let mut command = lab.matrix(&[]);
        if in_terminal {
            command = std::process::Command::new("python3");
            command.args(["-c", terminal]).arg(matrix.get_program());
            command
                .current_dir(lab.path(""))
                .env("MATRIX_LOCK", lab.path("lock"));
        }
        command.args(matrix.get_args()).env("TERM", "xterm");
        command.env_remove("NO_COLOR");
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let output = command.stdout(Stdio::piped()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("improvement"), "{text}");
        assert_eq!(
            text.contains("\x1b["),
            expected,
            "{in_terminal} {no_color}: {text:?}"
        );
    };
    check(true, false, true);
    check(true, true, false);
    check(false, false, false);
}

#[test]
fn a_bare_environment() {
    let lab = Lab::new(&matrix());
    let mut command = lab.matrix(&["run", "matrix.toml", "--json"]);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("MATRIX_LOCK", lab.path("lock"))
        .env("TMPDIR", lab.path(""));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(lab.samples().len(), 15);
    assert_eq!(lab.log(), ["down"]);
}

#[test]
fn events_tell_of_this_run_only() {
    let lab = Lab::new(&matrix());
    lab.run().assert_code(0);
    let events = lab.path("events");
    assert!(std::fs::metadata(&events).unwrap().len() > 0);
    let command = lab
        .matrix(&["run", "matrix.toml", "--events", "events"])
        .output();
    assert_eq!(command.unwrap().status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&events).unwrap(), "");
}

/// So it is in most containers: the session's leader is outside of the pid namespace and has no number in it.
#[test]
fn a_session_that_began_outside_of_the_pid_namespace() {
    need("unshare", "util-linux");
    // Each step leaves one that has ended and one that lives, both in sessions of their own.
    let lab = Lab::new(&repeated(
        "3",
        "(setsid true &); (setsid sleep 60 &); sleep 0.1; echo v=1",
    ));
    let matrix = lab.matrix(&["run", "matrix.toml"]);
    let mut command = std::process::Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command
        .args(["--pid", "--fork", "--mount-proc"])
        .arg(matrix.get_program())
        .args(matrix.get_args())
        .current_dir(lab.path(""))
        .env("MATRIX_LOCK", lab.path("lock"))
        .env_remove("MATRIX_STATE");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(lab.samples().len(), 3);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("`sleep`"), "{told}");
}
