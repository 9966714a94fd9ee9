//! End-to-end tests of `matrix export`: other programs read the samples that the store has.

#[allow(dead_code)]
#[path = "run/lab.rs"]
mod lab;

use std::fs;
use std::process::Command;

use lab::Lab;
use serde_json::Value;

const MATRIX: &str = r#"
[machines.x]
via = "null"
[axes]
machine = ["x"]
bs = ["4k", "64k"]
opt = ["=1+1", "-O2"]
[run]
command = "x {{ bs }} {{ opt }}"
parser  = "fio"
repeat  = 3
[metrics.lat]
better = "lower"
"#;

fn text(lab: &Lab, more: &[&str], exit: i32) -> String {
    let arguments = [&["export", "matrix.toml"], more].concat();
    let output = lab.matrix(&arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(exit), "{told}");
    String::from_utf8(output.stdout).unwrap()
}

fn sum_of_lines(text: &str) -> (usize, f64) {
    let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let values: Vec<f64> = rows
        .map(|row: Value| row["value"].as_f64().unwrap())
        .collect();
    (values.len(), values.iter().sum())
}

#[test]
fn python_and_serde_read_what_the_store_has() {
    let lab = Lab::new(MATRIX);
    lab.run();
    let sql = "SELECT count(*), sum(value) FROM samples";
    let stored: (usize, f64) = lab
        .store()
        .query_row(sql, [], |row| {
            Ok((row.get::<_, i64>(0)? as usize, row.get(1)?))
        })
        .unwrap();
    assert_eq!(stored.0, 12);
    let same = |got: (usize, f64)| {
        assert_eq!(got.0, stored.0);
        assert!(
            (got.1 - stored.1).abs() <= 1e-9 * stored.1.abs(),
            "{got:?} {stored:?}"
        );
    };
    same(sum_of_lines(&text(&lab, &["--format", "jsonl"], 0)));

    fs::write(lab.path("out.csv"), text(&lab, &[], 0)).unwrap();
    let script = "import csv, json\n\
        rows = list(csv.DictReader(open('out.csv', newline='')))\n\
        print(json.dumps([len(rows), sum(float(r['value']) for r in rows), sorted({r['opt'] for r in rows}), sorted({r['bs'] for r in rows})]))";
    let python = Command::new("python3")
        .args(["-c", script])
        .current_dir(lab.path(""))
        .output()
        .unwrap();
    let read: Value = serde_json::from_slice(&python.stdout).unwrap();
    same((
        read[0].as_u64().unwrap() as usize,
        read[1].as_f64().unwrap(),
    ));
    assert_eq!(read[2], serde_json::json!(["%3D1%2B1", "'-O2"]));
    assert_eq!(read[3], serde_json::json!(["4k", "64k"]));

    let narrow = [
        "--format",
        "jsonl",
        "--only",
        "bs == '4k'",
        "--metric",
        "lat",
    ];
    let narrow = text(&lab, &narrow, 0);
    assert_eq!(sum_of_lines(&narrow).0, 6);
    assert!(narrow.lines().all(|line| line.contains(r#""bs":"4k""#)));
    assert_eq!(
        text(&lab, &["--format", "jsonl", "--metric", "nope"], 4),
        ""
    );
    let version = ["--format", "jsonl", "--version"];
    assert_eq!(text(&lab, &[&version[..], &["v9"]].concat(), 4), "");
    same(sum_of_lines(&text(
        &lab,
        &[&version[..], &["installed"]].concat(),
        0,
    )));
}
