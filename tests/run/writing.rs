//! What a matrix file writes, and what commands and results make of it: values, programs, units, failures.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::lab::{Lab, repeated, shell};

/// A script beside the matrix.
fn script(lab: &Lab, name: &str, text: &str) {
    let path = lab.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A matrix whose command is this list, with the metric `v` and what else is given.
fn matrix(command: &str, more: &str) -> String {
    format!(
        "[run]\ncommand = {command}\nparser = {{ kind = \"regex\", pattern = '(?P<name>\\w+)=(?P<value>\\S+)' }}\nrepeat = 1\n[metrics.v]\nbetter = \"higher\"\n{more}"
    )
}

#[test]
fn values_arrive_as_they_are_written() {
    let axes = "[axes]\ndirect = [true, false]\nx = [{ on = true, n = 1.5 }, { on = false, n = -2 }]\n\
                range = [\"4k-16k\"]\ndict = [7]\n[axes.derived]\nsame = \"direct == true\"\n";
    let line = "echo {{ direct }} {{ same }} {{ x.on }} {{ x.n }} {{ range }} {{ dict }} {{ direct | string }} >> $TMPDIR/log; echo v=1";
    let lab = Lab::new(&(axes.to_owned() + &shell(line)));
    lab.run().assert_code(0);
    let mut log = lab.log();
    log.sort();
    let expected = [
        "false false false -2 4k-16k 7 false",
        "false false true 1.5 4k-16k 7 false",
        "true true false -2 4k-16k 7 true",
        "true true true 1.5 4k-16k 7 true",
    ];
    assert_eq!(log, expected);
}

#[test]
fn programs_that_commands_begin_with_and_files_that_they_name_count_by_content() {
    let check = |command: &str, file: &str, counts: bool| {
        let lab = Lab::new("");
        script(&lab, "bench.sh", "echo v=1");
        script(&lab, "data/one", "1");
        script(&lab, "data/.hidden", "1");
        let command = command.replace("HERE", lab.path("").to_str().unwrap().trim_end_matches('/'));
        lab.write(&matrix(&command, ""));
        lab.run().assert_code(0);
        assert_eq!(lab.run().measured(), [], "{command}");
        script(&lab, file, "echo v=2");
        let again = lab.run();
        again.assert_code(0);
        assert_eq!(
            again.measured().len(),
            usize::from(counts),
            "{command}: {file}"
        );
    };
    check("['HERE/bench.sh']", "bench.sh", true);
    check("['{{ here }}/bench.sh']", "bench.sh", true);
    check("['sh', '{{ here }}/bench.sh']", "bench.sh", true);
    check(
        "['sh', '-c', '. \"{{ here }}/bench.sh\"; ls {{ here }}/data']",
        "bench.sh",
        true,
    );
    check(
        "['sh', '-c', 'ls {{ here }}/data; echo v=1']",
        "data/one",
        true,
    );
    check(
        "['sh', '-c', 'ls {{ here }}/data; echo v=1']",
        "data/.hidden",
        false,
    );
    check(
        "['sh', '-c', 'ls {{ here }}/data; echo v=1']",
        "bench.sh",
        false,
    );
}

#[test]
fn a_required_file_is_there_and_counts_by_content() {
    let require = |name: &str| format!("[requires]\ncommands = ['{name}']\n");
    let run = matrix("['sh', '-c', 'echo v=1']", "");
    for name in ["/nonexist", "./nonexist", "some/nonexist"] {
        let lab = Lab::new(&(require(name) + &run));
        let ran = lab.run();
        ran.assert_code(2);
        let errors = ran.errors().join("\n");
        assert!(
            errors.contains(&format!("machine `local` has no {name}")),
            "{errors}"
        );
    }
    for name in ["./bench.sh", "tools/bench.sh"] {
        let lab = Lab::new(&(require(name) + &run));
        script(&lab, name, "1");
        lab.run().assert_code(0);
        assert_eq!(lab.run().measured(), []);
        script(&lab, name, "2");
        assert_eq!(lab.run().measured().len(), 1, "{name}");
    }
}

#[test]
fn a_file_below_here_that_is_not_there_is_told_before_anything_starts() {
    let lab = Lab::new(&matrix("['sh', '{{ here }}/no.sh']", ""));
    let ran = lab.run();
    ran.assert_code(2);
    assert!(
        ran.errors()[0].contains("machine `local` has no ./no.sh"),
        "{:?}",
        ran.errors()
    );
}

const DD: &str = r#"
    [axes]
    v = ["old", "new"]
    [run]
    command = ["sh", "-c", "test $1 = old && echo OLD || echo NEW", "sh", "{{ v }}"]
    parser = { kind = "regex", pattern = "(?P<value>[\\d.]+) (?P<unit>\\S+)" }
    repeat = 5
    [metrics.value]
    better = "higher"
    [[compare]]
    axis = "v"
    baseline = "old"
"#;

#[test]
fn readings_in_several_units_are_one_metric() {
    let lab = Lab::new(&DD.replace("OLD", "990 MB/s").replace("NEW", "1.2 GB/s"));
    let ran = lab.run();
    ran.assert_code(0);
    let row = &ran.document["verdicts"][0];
    assert_eq!(
        (&row["unit"], &row["baseline_median"]),
        (&"bytes/s".into(), &990e6.into())
    );
    assert_eq!(row["candidate_median"], 1.2e9);
    assert_eq!(row["verdict"], "improvement");
    // Another unit is a matter of showing, not of measuring.
    let text = DD.replace("OLD", "990 MB/s").replace("NEW", "1.2 GB/s");
    lab.write(&text.replace("[[compare]]", "unit = 'MB/s'\n[[compare]]"));
    let ran = lab.run();
    assert_eq!(ran.measured(), []);
    let row = &ran.document["verdicts"][0];
    assert_eq!(
        (&row["unit"], &row["candidate_median"]),
        (&"MB/s".into(), &1200.0.into())
    );
}

#[test]
fn a_reading_that_is_no_measurement_is_refused() {
    let check = |old: &str, unit: &str, part: &str| {
        let text = DD
            .replace("OLD", old)
            .replace("NEW", old)
            .replace("[\\\\d.]", "[-\\\\d.]");
        let lab = Lab::new(&text.replace("[[compare]]", &format!("{unit}\n[[compare]]")));
        let ran = lab.run();
        ran.assert_code(3);
        let reason = &ran.failed()["v=old"];
        assert!(reason.contains(part), "{reason}");
    };
    check("-5 ms", "", "a duration is not negative");
    check("-5 frogs", "unit = 's'", "cannot be converted");
    check("5 frogs", "", "a unit that is not known");
    check("5 ms", "unit = 'MB/s'", "cannot be converted");
}

#[test]
fn a_metric_may_be_of_some_cells_only_or_optional() {
    let metrics = "[metrics.w]\nbetter = \"lower\"\nwhen = \"size == 2\"\n[metrics.o]\nbetter = \"lower\"\noptional = true\n";
    let line = "echo v={{ size }}; test {{ size }} = 2 && echo w=5; test {{ round }} = 0 && echo o=7; true";
    let lab = Lab::new(&format!(
        "[axes]\nsize = [1, 2]\n{}{metrics}",
        repeated("2", line)
    ));
    lab.run().assert_code(0);
    let count = |metric: &str| {
        lab.count(&format!(
            "SELECT count(*) FROM samples WHERE metric = '{metric}'"
        ))
    };
    assert_eq!(["v", "w", "o"].map(count), [4, 2, 2]);
    assert_eq!(lab.run().measured(), []);
}

#[test]
fn arguments_need_not_be_utf8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let lab = Lab::new(&shell("echo v=1"));
    let name = OsStr::from_bytes(b"n\xe9.toml");
    fs::copy(lab.path("matrix.toml"), lab.path("").join(name)).unwrap();
    let state = OsStr::from_bytes(b"st\xe9te");
    for words in [
        &["run"][..],
        &["plan"],
        &["compare"],
        &["log"],
        &["history"],
    ] {
        let mut command = lab.matrix(words);
        command.arg(name).arg("--state").arg(state);
        if words == ["log"] {
            command.arg("machine=local");
        }
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("panicked"), "{words:?}: {stderr}");
        assert!(
            matches!(output.status.code(), Some(0..=4)),
            "{words:?}: {stderr}"
        );
    }
}

#[test]
fn cells_have_commands_and_parsers_of_their_own() {
    let two = r#"
    [axes]
    tool = ["a", "b"]
    [[run]]
    name = "json"
    when = "tool == 'a'"
    command = ["sh", "-c", "echo '{\"v\": 1}'", "{{ tool }}"]
    parser = "json"
    repeat = 2
    [[run]]
    command = ["sh", "-c", "echo v=2 w=3", "{{ tool }}"]
    parser = ["time", { kind = "regex", pattern = 'v=(?P<v>\d+)' }]
    [metrics.v]
    better = "lower"
    [metrics.real]
    when = "tool == 'b'"
    "#;
    let lab = Lab::new(two);
    let ran = lab.run();
    ran.assert_code(0);
    assert_eq!(ran.measured().len(), 4);
    assert_eq!(
        lab.count("SELECT count(*) FROM samples WHERE metric = 'real'"),
        2
    );
    // The one is not touched by an edit of the other, nor by being the only one.
    lab.write(&two.replace("echo v=2 w=3", "echo v=4 w=3"));
    assert_eq!(lab.run().cells(), ["tool=b"]);
    lab.write(&two.replace("when = \"tool == 'a'\"", "when = \"tool != 'b'\""));
    assert!(lab.run().cells().is_empty(), "what was measured before");
    // Each cell needs one.
    lab.write(&two.replacen(
        "[[run]]\n    command",
        "[[run]]\n    when = \"tool == 'c'\"\n    command",
        1,
    ));
    let ran = lab.run();
    ran.assert_code(2);
    assert!(
        ran.errors()[0].contains("no `[[run]]` is for some of the cells"),
        "{:?}",
        ran.errors()
    );
}

#[test]
fn a_command_is_prepared_and_warmed_up() {
    let line = "echo run >> $TMPDIR/log; ls; echo v=1";
    let more = "prepare = [[\"sh\", \"-c\", \"echo prepare >> $TMPDIR/log\"], \"touch x\"]\nwarmup = 2\n[metrics.v]";
    let lab = Lab::new(&repeated("1", line).replacen("[metrics.v]", more, 1));
    lab.run().assert_code(0);
    assert_eq!(
        lab.log(),
        ["prepare", "run", "prepare", "run", "prepare", "run"]
    );
    // What prepares is part of what is measured.
    assert_eq!(lab.run().measured(), []);
    lab.write(&repeated("1", line).replacen("[metrics.v]", &more.replace("touch x", "touch y"), 1));
    assert_eq!(lab.run().measured().len(), 1);
    // One that fails costs the sample.
    lab.write(&repeated("1", line).replacen("[metrics.v]", &more.replace("touch x", "false"), 1));
    let ran = lab.run();
    ran.assert_code(3);
    let reason = ran.failed().into_values().next().unwrap();
    assert!(
        reason.contains("`false` failed before the measurement: exit status 1"),
        "{reason}"
    );
}

#[test]
fn what_a_program_says_of_its_own_failure_refuses_the_sample() {
    let check = |fail: &str, code: i32, part: &str| {
        let text = repeated("1", "echo v=1 errors=3; echo half done >&2");
        let lab = Lab::new(&text.replacen("[metrics.v]", &format!("{fail}\n[metrics.v]"), 1));
        let ran = lab.run();
        ran.assert_code(code);
        let reasons = ran.failed().into_values().collect::<String>();
        assert!(reasons.contains(part), "{reasons}");
    };
    check("fail = 'half'", 3, "`fail` matches: half done");
    check(
        "fail = { when = 'errors > 2' }",
        3,
        "`fail` holds: errors > 2",
    );
    check("fail = { pattern = 'panic', when = 'errors > 3' }", 0, "");
}

#[test]
fn repetitions_and_seconds_of_the_command_line_go_before() {
    let lab = Lab::new(&repeated(
        "5",
        "echo {{ seconds }} >> $TMPDIR/log; echo v=1",
    ));
    let run = |words: &[&str]| lab.start_with("matrix.toml", "events", words).wait();
    assert_eq!(
        run(&["--repeat", "2", "--seconds", "500ms"])
            .measured()
            .len(),
        2
    );
    assert_eq!(lab.log(), ["0.5", "0.5"]);
    assert_eq!(
        run(&["--repeat", "3", "--seconds", "500ms"])
            .measured()
            .len(),
        1
    );
}

#[test]
fn much_output_of_a_timed_program_is_dropped() {
    let lab = Lab::new(
        "[run]\ncommand = 'head -c 80000000 /dev/zero'\nparser = 'time'\nrepeat = 1\n[metrics.real]\n",
    );
    lab.run().assert_code(0);
    assert!(fs::metadata(lab.path(".matrix/matrix.db")).unwrap().len() < 1 << 20);
}

#[test]
fn of_many_errors_the_first_are_told() {
    let tables: String = (0..5000).map(|n| format!("[wrong{n}]\n")).collect();
    let lab = Lab::new(&(shell("echo v=1") + &tables));
    let output = lab
        .matrix(&["plan", "matrix.toml", "--json"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let errors = document["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 21);
    assert_eq!(errors[20]["message"], "… and 4980 more");
}
