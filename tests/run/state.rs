//! A state folder that is full, may not be written, or is damaged.

use std::fs;
use std::process::Command;

use super::lab::{Lab, need, repeated, shell};

fn mount(lab: &Lab, options: &str) {
    need("mount", "mount");
    let state = lab.path(".matrix");
    fs::create_dir_all(&state).unwrap();
    let status = Command::new("mount")
        .args(["-t", "tmpfs", "-o", options, "none"])
        .arg(&state)
        .status();
    assert!(status.unwrap().success(), "mounting needs root");
}

/// Each measurement's log takes about 100 KB even compressed.
fn noisy() -> String {
    let axes = "[axes]\nsize = [1, 2, 3, 4]\n".to_owned();
    let line = "head -c 75000 /dev/urandom | base64 >&2; echo v={{ size }}";
    axes + &repeated("8", line)
}

#[test]
fn a_full_disk() {
    let lab = Lab::new(&noisy());
    mount(&lab, "size=1536k");
    let full = lab.run();
    full.assert_code(2);
    let errors = full.errors().join("\n");
    assert!(errors.contains("the disk is full"), "{errors}");
    assert!(errors.contains("free some space and run again"), "{errors}");
    // What was told as measured is there.
    assert_eq!(lab.samples().len(), full.measured().len());
    let check = lab
        .store()
        .query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
    assert_eq!(check.unwrap(), "ok");

    mount(&lab, "remount,size=64M");
    let rest = lab.run();
    rest.assert_code(0);
    assert_eq!(full.measured().len() + rest.measured().len(), 4 * 8);
    let samples = lab.samples();
    assert_eq!(samples.len(), 4 * 8);
    assert!(samples.values().all(|count| *count == 1), "{samples:?}");
    lab.assert_clean();
}

#[test]
fn a_state_that_may_only_be_read() {
    let matrix = |sizes: &str| format!("[axes]\nsize = {sizes}\n{}", shell("echo v={{ size }}"));
    let lab = Lab::new(&matrix("[1]"));
    mount(&lab, "size=4M");
    lab.run().assert_code(0);
    mount(&lab, "remount,ro");
    lab.write(&matrix("[1, 2]"));
    let ran = lab.run();
    ran.assert_code(2);
    let errors = ran.errors().join("\n");
    assert!(errors.contains("cannot be written"), "{errors}");
    assert!(errors.contains("choose another state folder"), "{errors}");
    assert_eq!(ran.measured(), []);
    // What is stored can be looked at.
    lab.write(&matrix("[1]"));
    for verb in ["compare", "history", "changes", "plan"] {
        let output = lab
            .matrix(&[verb, "matrix.toml", "--json"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!text.contains("cannot be written"), "{verb}: {text}");
        assert_ne!(output.status.code(), Some(2), "{verb}: {text}");
    }
}

#[test]
fn a_damaged_state_is_left_as_it_is() {
    let lab = Lab::new(&shell("touch $TMPDIR/ran; echo v=1"));
    fs::create_dir_all(lab.path(".matrix")).unwrap();
    let file = lab.path(".matrix/matrix.db");
    fs::write(&file, "no database at all").unwrap();
    let ran = lab.run();
    ran.assert_code(2);
    let errors = ran.errors().join("\n");
    assert!(
        errors.contains("matrix.db") && errors.contains("move the file away"),
        "{errors}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "no database at all");
    assert!(!lab.path("ran").exists());
    fs::remove_file(&file).unwrap();
    lab.run().assert_code(0);

    // All pages but the first, as a dying disk may leave them.
    let mut bytes = fs::read(&file).unwrap();
    bytes[4096..].fill(0xa5);
    fs::write(&file, &bytes).unwrap();
    let ran = lab.run();
    ran.assert_code(2);
    let errors = ran.errors().join("\n");
    assert!(
        errors.contains("damaged") && errors.contains("nothing was deleted"),
        "{errors}"
    );
}
