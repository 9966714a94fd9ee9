//! Checking the fio parser, against the installed fio and small documents.

use super::super::{Input, Parser};
use super::*;
use crate::base::sample::{Ended, Parsed};

/// What the installed fio prints, run where it can do no harm.
fn fio(arguments: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let output = std::process::Command::new("fio")
        .args(arguments)
        .current_dir(dir.path())
        .output()
        .expect("no fio; install it: apt-get install fio");
    String::from_utf8(output.stdout).unwrap()
}

/// A null job of a megabyte, with more arguments.
fn null_job(arguments: &[&str]) -> String {
    let mut all = vec!["--name=j", "--ioengine=null", "--size=1m"];
    if !arguments.iter().any(|a| a.starts_with("--output-format")) {
        all.push("--output-format=json");
    }
    all.extend(arguments);
    fio(&all)
}

fn parse(stdout: &str, stderr: &str, ended: Ended) -> Parsed {
    let input = Input {
        stdout: stdout.as_bytes(),
        stderr: stderr.as_bytes(),
        ended,
        duration: None,
    };
    Parser::new("fio", &[]).unwrap().parse(&input)
}

struct Readings {
    metrics: Vec<Reading>,
    warnings: Vec<String>,
}

impl Readings {
    fn of(stdout: &str) -> Readings {
        match parse(stdout, "", Ended::Exit(0)) {
            Parsed::Readings { metrics, warnings } => Readings { metrics, warnings },
            refused => panic!("{refused:?} of {stdout}"),
        }
    }

    fn get(&self, name: &str) -> Option<f64> {
        let found = self.metrics.iter().find(|metric| metric.name == name);
        found.map(|metric| metric.value)
    }

    fn has(&self, part: &str) -> bool {
        self.metrics.iter().any(|metric| metric.name.contains(part))
    }
}

fn refusal(stdout: &str) -> String {
    match parse(stdout, "", Ended::Exit(0)) {
        Parsed::Refused { reason } => reason,
        readings => panic!("{readings:?}"),
    }
}

/// A document with the given jobs, `'` for `"`.
fn document(version: &str, jobs: &str) -> String {
    format!("{{'fio version': '{version}', 'jobs': [{jobs}]}}").replace('\'', "\"")
}

#[test]
fn readings_have_unit_and_direction() {
    let found = Readings::of(&null_job(&["--rw=randrw"]));
    let check = |name: &str, unit, better| {
        let reading = found.metrics.iter().find(|metric| metric.name == name);
        let reading = reading.unwrap_or_else(|| panic!("no {name}"));
        assert_eq!((reading.unit.as_str(), reading.better), (unit, better));
        assert!(reading.value > 0.0, "{reading:?}");
    };
    for direction in ["read", "write"] {
        check(&format!("{direction}.iops"), "1/s", Some(Better::Higher));
        check(&format!("{direction}.bw"), "bytes/s", Some(Better::Higher));
        check(&format!("{direction}.io_bytes"), "bytes", None);
        for latency in [
            "lat_mean",
            "clat_mean",
            "clat_p50",
            "clat_p99",
            "clat_p99.9",
        ] {
            check(&format!("{direction}.{latency}"), "ns", Some(Better::Lower));
        }
    }
    assert!(!found.has("trim") && !found.has("sync") && !found.has("group"));
    assert_eq!(found.warnings, Vec::<String>::new());
    let bytes = ["read.io_bytes", "write.io_bytes"].map(|name| found.get(name).unwrap());
    assert_eq!(bytes.iter().sum::<f64>(), f64::from(1 << 20));
}

#[test]
fn what_was_not_measured_is_absent() {
    let check = |arguments: &[&str], present: &[&str], absent: &[&str]| {
        let found = Readings::of(&null_job(arguments));
        for part in present {
            assert!(found.has(part), "{part} of {arguments:?}");
        }
        for part in absent {
            assert!(!found.has(part), "{part} of {arguments:?}");
        }
        assert!(found.metrics.iter().all(|m| m.value > 0.0 || m.unit == "%"));
    };
    check(&["--rw=read"], &["read.iops"], &["write", "trim", "slat"]);
    check(&["--rw=read", "--gtod_reduce=1"], &["read.iops"], &["lat"]);
    check(
        &["--rw=read", "--percentile_list=50:99.95"],
        &["clat_p50", "clat_p99.95"],
        &["clat_p99_", "clat_p90"],
    );
    check(
        &["--rw=read", "--lat_percentiles=1", "--clat_percentiles=0"],
        &[".lat_p99"],
        &["clat_p99"],
    );
    check(
        &["--rw=randrw", "--unified_rw_reporting=mixed"],
        &["mixed.iops", "mixed.clat_p99"],
        &["read", "write"],
    );
}

#[test]
fn fsync_has_a_latency_of_its_own() {
    let arguments = ["--name=j", "--rw=write", "--size=16k", "--fsync=1"];
    let found = Readings::of(&fio(&[&arguments[..], &["--output-format=json"]].concat()));
    assert!(found.get("sync.lat_mean").is_some_and(|ns| ns > 0.0));
    assert!(found.get("sync.lat_p99").is_some());
    assert_eq!(found.get("sync.iops"), None);
}

#[test]
fn jobs_of_a_group_are_added_up() {
    let alone = null_job(&["--rw=read", "--numjobs=3"]);
    let found = Readings::of(&alone);
    assert_eq!(found.get("read.io_bytes"), Some(3.0 * f64::from(1 << 20)));
    assert!(found.has("read.clat_mean") && !found.has("read.clat_p"));
    assert_eq!(found.warnings.len(), 1, "{:?}", found.warnings);
    assert!(found.warnings[0].contains("--group_reporting"));

    let grouped = Readings::of(&null_job(&[
        "--rw=read",
        "--numjobs=3",
        "--group_reporting",
    ]));
    assert!(grouped.has("read.clat_p99"));
    assert_eq!(grouped.warnings, Vec::<String>::new());

    let found = Readings::of(&document(
        "fio-3.33",
        "{'jobname': 'a', 'read': {'iops': 10, 'bw': 40, 'total_ios': 100,
            'lat_ns': {'mean': 1000}}},
         {'jobname': 'a', 'read': {'iops': 30, 'bw': 120, 'total_ios': 300,
            'lat_ns': {'mean': 2000}}}",
    ));
    assert_eq!(found.get("read.iops"), Some(40.0));
    assert_eq!(found.get("read.bw"), Some(160.0 * 1024.0));
    assert_eq!(found.get("read.lat_mean"), Some(1750.0));
}

#[test]
fn histograms_give_fios_own_percentiles() {
    // Twice the same job: the joined histogram has the same percentiles.
    let text = null_job(&["--rw=read", "--output-format=json+", "--size=4m"]);
    let one = Readings::of(&text);
    let mut value: Value = serde_json::from_str(&text).unwrap();
    let jobs = value["jobs"].as_array_mut().unwrap();
    jobs.push(jobs[0].clone());
    let two = Readings::of(&value.to_string());
    assert_eq!(two.warnings, Vec::<String>::new());
    let of = |found: &Readings| -> Vec<(String, f64)> {
        let percentiles = found.metrics.iter().filter(|m| m.name.contains("clat_p"));
        percentiles.map(|m| (m.name.clone(), m.value)).collect()
    };
    assert!(of(&one).len() > 10);
    assert_eq!(of(&one), of(&two));
    assert_eq!(one.get("read.clat_mean"), two.get("read.clat_mean"));
    assert_eq!(
        two.get("read.iops"),
        one.get("read.iops").map(|iops| 2.0 * iops)
    );
}

#[test]
fn groups_are_never_added_up() {
    let text = fio(&[
        "--ioengine=null",
        "--size=1m",
        "--output-format=json",
        "--name=fill",
        "--rw=write",
        "--name=load",
        "--rw=read",
        "--stonewall",
    ]);
    let found = Readings::of(&text);
    assert!(found.has("group0.write.iops") && found.has("group1.read.iops"));
    assert!(found.metrics.iter().all(|m| m.name.starts_with("group")));
    let [warning] = found.warnings.as_slice() else {
        panic!("{:?}", found.warnings)
    };
    assert!(
        warning.contains("group0 is `fill`, group1 is `load`"),
        "{warning}"
    );
}

#[test]
fn units_follow_the_version() {
    let check = |version, latency, io_bytes: Option<f64>, mean| {
        let job = format!(
            "{{'read': {{'iops': 5, 'bw': 20, 'io_bytes': 40, '{latency}':
               {{'mean': 2.5, 'percentile': {{'99.000000': 3, '0.00': 0, '0.00': 0}}}}}}}}"
        );
        let found = Readings::of(&document(version, &job));
        assert_eq!(found.get("read.io_bytes"), io_bytes, "{version}");
        assert_eq!(found.get("read.clat_mean"), Some(mean), "{version}");
        assert_eq!(found.get("read.bw"), Some(20_480.0), "{version}");
        assert!(!found.has("clat_p0"), "{version}");
        found
    };
    check("fio-2.1.10", "clat", Some(40_960.0), 2500.0);
    check("fio-2.20", "clat", Some(40_960.0), 2500.0);
    check("fio-2.21", "clat", Some(40.0), 2500.0);
    check("fio-3.26-19-ge7e53", "clat_ns", Some(40.0), 2.5);
    check("ours", "clat_ns", None, 2.5);
    let future = check("fio-4.0", "clat_ns", Some(40.0), 2.5);
    assert!(future.warnings[0].contains("newer"));
    assert_eq!(future.get("read.clat_p99"), Some(3.0));
}

#[test]
fn what_did_not_work_is_refused() {
    let check = |stdout: &str, reason: &str| assert_eq!(refusal(stdout), reason);
    check(
        &null_job(&["--rw=read", "--create_only=1"]),
        "no data: fio did no I/O",
    );
    check(
        &null_job(&["--rw=read", "--output-format=terse"]),
        "terse output: ask for --output-format=json",
    );
    check(
        &null_job(&["--rw=read", "--output-format=normal"]),
        "output for people: ask for --output-format=json",
    );
    check(
        "fio: pid=1, err=84/file:io_u.c:2141, error=Invalid\n",
        "no JSON document in the output\n  fio: pid=1, err=84/file:io_u.c:2141, error=Invalid",
    );
    check(
        "{\"a\": 1}",
        "JSON that is not fio's: it has no `jobs`; is the parser the right one for this command?",
    );
    // The cpuio engine counts one I/O of no bytes.
    let used = "'read': {'iops': 0, 'io_bytes': 0, 'total_ios': 1, 'lat_ns': {'mean': 5}}";
    check(
        &document("fio-3.42", &format!("{{{used}}}")),
        "no data: fio did no I/O",
    );
    check(
        &document("fio-3.42", "{'read': {'iops': 0, 'io_bytes': 4096}}"),
        "fio gives bytes but no IOPS for read: it ran shorter than its clock counts, or is of \
         an unknown version",
    );
    let good = "'jobname': 'j', 'read': {'iops': 9}";
    check(
        &document("fio-3.42", &format!("{{{good}}}, {{{good}, 'error': 28}}")),
        "fio's job `j` failed: error 28 (No space left on device)",
    );
    check(
        &document("fio-3.33", &format!("{{{good}, 'error': 4294967295}}")),
        "fio's job `j` failed: error -1 (unknown)",
    );
    check(
        &document("fio-3.33", &format!("{{{good}, 'total_err': 3}}")),
        "fio's job `j` had 3 errors",
    );
}

#[test]
fn what_fio_says_beside_its_result_is_a_warning_unless_it_says_so_always() {
    let good = document(
        "fio-3.33",
        "{'jobname': 'j', 'read': {'iops': 9, 'total_ios': 9}}",
    );
    let stderr = "fio: connected to NBD server\nfio: clock is odd\n";
    let Parsed::Readings { warnings, .. } = parse(&good, stderr, Ended::Exit(0)) else {
        panic!("refused");
    };
    assert_eq!(warnings, ["fio: clock is odd"]);
}

#[test]
fn a_failed_fio_says_why() {
    let check = |stdout: &str, stderr, reason: &str| {
        let parsed = parse(stdout, stderr, Ended::Exit(1));
        assert_eq!(parsed, Parsed::refused(reason));
    };
    let failed = document(
        "fio-3.33",
        "{'jobname': 'j', 'error': 5, 'read': {'iops': 9}}",
    );
    check(
        &failed,
        "",
        "exit status 1\n  job `j` failed: error 5 (Input/output error)",
    );
    check(&failed, "fio: io error\n", "exit status 1\n  fio: io error");
    let noted = format!("fio: pid=1, err=5\n{failed}");
    check(&noted, "", "exit status 1\n  fio: pid=1, err=5");
    // A failed connection ends with status 0 and a document without I/O.
    let idle = null_job(&["--rw=read", "--create_only=1"]);
    assert_eq!(
        parse(
            &idle,
            "fio: nbd_connect_uri: No such file\n",
            Ended::Exit(0)
        ),
        Parsed::refused("no data: fio did no I/O\n  fio: nbd_connect_uri: No such file"),
    );
}

#[test]
fn odd_things_are_warnings() {
    let check = |stdout: &str, iops: f64, part: &str| {
        let found = Readings::of(stdout);
        assert_eq!(found.get("read.iops"), Some(iops), "{part}");
        let mut warnings = found.warnings;
        // Of several documents the others are told too.
        warnings.retain(|it| !it.contains("JSON documents") || part.contains("JSON documents"));
        assert_eq!(warnings.len(), 1, "{part}: {warnings:?}");
        assert!(warnings[0].contains(part), "{warnings:?}");
    };
    let job = |iops: u32, more: &str| {
        document(
            "fio-3.33",
            &format!("{{'jobname': 'j', 'read': {{'iops': {iops}}}{more}}}"),
        )
    };
    check(
        &format!("fio: set norandommap=1\n{}", job(7, "")),
        7.0,
        "norandommap",
    );
    check(
        &job(7, ", 'job options': {'ramp_time': '5'}"),
        7.0,
        "ended within its ramp_time",
    );
    check(
        &job(7, ", 'steadystate': {'attained': 0}"),
        7.0,
        "steady state",
    );
    check(&job(7, ", 'x': 'a\tb'"), 7.0, "control characters");
    for (key, part) in [
        (
            "short_ios",
            "3 of the read I/Os transferred less than was asked for",
        ),
        ("drop_ios", "3 of the read I/Os were dropped"),
    ] {
        let job = document(
            "fio-3.33",
            &format!("{{'jobname': 'j', 'read': {{'iops': 7, '{key}': 3}}}}"),
        );
        check(&job, 7.0, part);
    }
    // --status-interval prints a document each time; the last may be cut.
    let (one, two) = (job(7, ""), job(8, ""));
    check(&format!("{one}\n{two}\n{}", &one[..40]), 8.0, "cut off");
    assert_eq!(
        Readings::of(&format!("{one}\n{two}\n")).get("read.iops"),
        Some(8.0)
    );
    assert!(refusal(&one[..40]).contains("cut off"));
}

#[test]
fn clients_are_added_up_once() {
    let client = |name: &str, iops: u32| {
        format!("{{'jobname': '{name}', 'groupid': 0, 'read': {{'iops': {iops}}}}}")
    };
    let clients = [client("a", 1), client("b", 2), client("All clients", 3)].join(",");
    let text = document("fio-3.42", &clients).replace("\"jobs\"", "\"client_stats\"");
    assert_eq!(Readings::of(&text).get("read.iops"), Some(3.0));
}

/// A cut output is never read as a whole one.
#[test]
fn every_cut_is_refused() {
    let text = null_job(&["--rw=randrw", "--output-format=json+"]);
    let text = text.trim_end();
    for end in (1..text.len()).step_by(499).chain([text.len() - 1]) {
        assert!(refusal(&text[..end]).contains("cut off"), "{end}");
    }
}
