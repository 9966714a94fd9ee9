//! What happens when somebody closes the streams that `matrix` writes to.

use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

const MATRIX: &str = r#"
[matrix]
name = "streams"
[machines.nowhere]
via = "null"
[axes]
x = ["a", "b"]
[run]
command = "echo {{ x }}"
parser  = "fio"
[metrics.m]
better = "higher"
"#;

/// A stream whose reader is gone.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    Stdio::from(OwnedFd::from(writer))
}

#[test]
fn a_result_that_cannot_be_written_is_no_success() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("streams.toml");
    std::fs::write(&file, MATRIX).unwrap();
    for arguments in [&["plan"][..], &["plan", "--json"], &["run"]] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_matrix"))
            .args(arguments)
            .arg(&file)
            .env("MATRIX_LOCK", dir.path().join("lock"))
            .stdout(full)
            .output()
            .unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains("standard output cannot be written"), "{told}");
    }
}

#[test]
fn a_run_goes_on_when_nobody_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("streams.toml");
    std::fs::write(&file, MATRIX).unwrap();
    // The second run has nothing to do, and says so.
    for _ in 0..2 {
        let status = Command::new(env!("CARGO_BIN_EXE_matrix"))
            .arg("run")
            .arg(&file)
            .env("MATRIX_LOCK", dir.path().join("lock"))
            .stdout(closed())
            .stderr(closed())
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(0));
    }
}
