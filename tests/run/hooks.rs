//! Hooks: called at their moments with JSON, reported where they fail, harmless unless they are required.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::lab::{Lab, repeated};

/// Writes what it read to `NAME.json`, a line a call.
fn recorder(lab: &Lab, moment: &str) {
    script(lab, moment, r#"cat >> "$MATRIX_HOOK.json""#);
}

fn script(lab: &Lab, moment: &str, line: &str) {
    fs::create_dir_all(lab.path("hooks")).unwrap();
    let path = lab.path(&format!("hooks/{moment}"));
    fs::write(&path, format!("#!/bin/sh\n{line}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// What a recorder was told.
fn told(lab: &Lab, moment: &str) -> Vec<Value> {
    let text = fs::read_to_string(lab.path(&format!("{moment}.json"))).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

fn matrix(more: &str) -> String {
    let run = repeated("2", "echo v=1 {{ x }}");
    format!("{more}\n[axes]\nx = [1, 2]\n[[setup]]\nname = \"up\"\nrun = [\"true\"]\n{run}")
}

#[test]
fn each_moment_has_its_json() {
    let lab = Lab::new(&matrix(""));
    let steps = ["pre-setup", "post-setup", "pre-run", "post-run"];
    let ends = ["pre-compare", "post-compare", "on-end"];
    let silent = ["on-regression", "on-failure", "pre-build"];
    for moment in [&steps[..], &ends, &silent].concat() {
        recorder(&lab, moment);
    }
    lab.run().assert_code(0);
    for (moment, calls) in steps.iter().zip([1, 1, 4, 4]) {
        let told = told(&lab, moment);
        assert_eq!(told.len(), calls, "{moment}");
        for call in told {
            assert_eq!(call["kind"], "hook");
            assert_eq!(call["moment"], *moment);
            assert_eq!(call["matrix"], "e2e");
            assert!(call["session"].is_i64(), "{call}");
        }
    }
    assert_eq!(told(&lab, "post-run")[0]["event"]["metrics"][0][1], 1.0);
    assert_eq!(told(&lab, "pre-run")[0]["event"]["event"], "run_started");
    for moment in ends {
        assert_eq!(told(&lab, moment).len(), 1, "{moment}");
    }
    let report = &told(&lab, "post-compare")[0]["report"];
    assert_eq!(report["cells"].as_array().unwrap().len(), 2, "{report}");
    for moment in silent {
        assert_eq!(told(&lab, moment).len(), 0, "{moment}");
    }
    // Nothing is measured: nobody is called.
    lab.run().assert_code(0);
    assert_eq!(told(&lab, "on-end").len(), 1);
}

#[test]
fn a_failing_hook_is_told_and_harms_nothing() {
    let lab = Lab::new(&matrix(
        "[[hook]]\nat = \"on-end\"\ncommand = \"sleep 60\"\ntimeout = \"200ms\"\n",
    ));
    script(&lab, "pre-run", "echo no such lamp >&2; exit 7");
    let ran = lab.run();
    ran.assert_code(0);
    assert_eq!(ran.measured().len(), 4);
    let calls = ran.events("hook");
    assert_eq!(calls.len(), 5);
    assert_eq!(calls[0]["output"], "no such lamp\n");
    let errors: Vec<&str> = calls
        .iter()
        .map(|it| it["error"].as_str().unwrap())
        .collect();
    assert_eq!(errors[0], "exit status 7: no such lamp");
    assert_eq!(errors[4], "ended after 200ms");
    lab.assert_clean();
}

#[test]
fn a_required_hook_decides() {
    let hook = |moment: &str, command: &str| {
        let text = format!("[[hook]]\nat = {moment:?}\ncommand = {command:?}\nrequired = true\n");
        Lab::new(&matrix(&text))
    };
    let lab = hook("pre-run", "sh -c 'grep -q \"\\\"cell\\\":\\\"x=1\\\"\"'");
    let ran = lab.run();
    ran.assert_code(3);
    assert_eq!(ran.cells(), ["x=1"]);
    assert_eq!(ran.failed()["x=2"], "hook `pre-run`: exit status 1");

    let lab = hook("post-run", "false");
    let ran = lab.run();
    ran.assert_code(3);
    assert_eq!(ran.measured().len(), 0);

    let lab = hook("pre-setup", "false");
    let ran = lab.run();
    ran.assert_code(3);
    let reason = &ran.failed()["x=1"];
    assert_eq!(reason, "set-up `up`: hook `pre-setup`: exit status 1");
    lab.assert_clean();

    let lab = hook("on-end", "false");
    let ran = lab.run();
    ran.assert_code(3);
    assert_eq!(ran.measured().len(), 4);
}
