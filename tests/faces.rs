//! The faces of a report: what others write does no harm in any of them, and other programs can read them.

use matrix::base::printable::{printable_json, styled};
use matrix::base::sample::Better;
use matrix::judge::verdict::{Comparison, Summary, Verdict};
use matrix::plan::steps::NONE;
use matrix::report::{changes, columns, junit, rows, samples, template, text};
use matrix::verdicts::cells::SampleRow;
use matrix::verdicts::context::MonitorsRow;
use matrix::verdicts::document::Document;
use matrix::verdicts::parts::{CommitRow, FailureRow, FindingRow, SinceLast};
use matrix::verdicts::report::{AxisRow, Report, VerdictRow};
use matrix::verdicts::series::{Course, CoursePoint, History};

/// What somebody else may write: in a commit, a name, an output.
const HOSTILE: [&str; 8] = [
    "<script>alert(1)</script>",
    "\x1b]0;owned\x07\x1b[2J",
    "a\u{202e}txt.exe\u{2066}",
    "x\r\nBcc: everybody@example.org\n\n## heading\n| a | b |",
    "=HYPERLINK(\"http://example.org\")",
    "]]>&quot;'\"<!--",
    "`code` **bold** [link](http://example.org) ![x](y) @all",
    "\u{0}\u{8}\u{fffe}\u{feff}",
];

fn style() -> text::Style {
    text::Style {
        color: false,
        width: Some(100),
        all: true,
    }
}

fn row(cell: &str, candidate: &str, values: [f64; 2], verdict: Verdict) -> VerdictRow {
    let [a, b] = values;
    let side = |mean: f64| Summary {
        mean,
        stddev: mean / 20.0,
        n: 4,
    };
    let samples = |value: f64| {
        let sample = |round| SampleRow {
            session: 1,
            round,
            value: value + f64::from(round),
        };
        (0..4).map(sample).collect::<Vec<_>>()
    };
    VerdictRow {
        cell: cell.to_owned().into(),
        metric: "iops".into(),
        unit: "1/s".into(),
        better: Better::Higher,
        axis: "version".into(),
        gate: true,
        axis_gates: true,
        baseline: "base".into(),
        candidate: candidate.into(),
        baseline_median: Some(a),
        candidate_median: Some(b),
        commits: [None, Some("1".repeat(40))],
        standing: None,
        since: None,
        samples: [samples(a), samples(b)],
        sides: [Some(side(a)), Some(side(b))],
        comparison: Comparison {
            ratio: Some(b / a),
            ci95: Some([b / a - 0.01, b / a + 0.01]),
            difference: Some(b - a),
            p: Some(0.001),
            q: Some(if verdict == Verdict::Same { 0.7 } else { 0.002 }),
            n: [4, 4],
            paired: false,
            verdict,
            note: None,
            more: None,
            basis: Default::default(),
        },
        confirmed: None,
        accepted: None,
        is_accepted: false,
        runs: [NONE; 2],
        differing: None,
    }
}

fn hostile_report(text: &str) -> Report {
    let mut bad = row(
        &format!("bs={text}"),
        text,
        [100.0, 80.0],
        Verdict::Regression,
    );
    bad.metric = text.to_owned();
    bad.baseline = text.to_owned();
    bad.comparison.note = Some(text.to_owned());
    let mut report = Report::of(text, text, vec![bad]);
    report.commits = vec![CommitRow {
        hash: "1".repeat(40),
        versions: vec![text.to_owned()],
        subject: text.lines().next().unwrap_or("").to_owned(),
        message: text.to_owned(),
        author: text.to_owned(),
        date: "2026-01-01T00:00:00Z".into(),
        ..CommitRow::default()
    }];
    report.failed = vec![FailureRow {
        cell: text.to_owned(),
        reason: text.to_owned(),
        log: vec![text.to_owned()],
    }];
    let finding = FindingRow {
        axis: "version".into(),
        cell: text.to_owned().into(),
        metric: text.to_owned(),
        verdict: Verdict::Regression,
        baseline: text.to_owned(),
        candidate: text.to_owned(),
        ratio: Some(0.8),
        since: 2,
        seen: 2,
    };
    report.since_last = Some(SinceLast {
        session: Some(1),
        new: vec![finding.clone()],
        still: Vec::new(),
        gone: vec![finding],
    });
    report.monitors = vec![MonitorsRow {
        cell: text.to_owned(),
        axis: "version".into(),
        baseline: text.to_owned(),
        candidate: text.to_owned(),
        metrics: vec![text.to_owned()],
        monitors: 1,
        moved: Vec::new(),
    }];
    report
}

fn hostile_history(text: &str) -> History {
    let point = |value: f64| CoursePoint {
        version: text.to_owned(),
        commit: Some("1".repeat(40)),
        at: "2026-01-01T00:00:00Z".into(),
        session: 1,
        value: Some(value),
        n: 3,
        environment: None,
        differences: vec![text.to_owned()],
    };
    History {
        matrix: text.to_owned(),
        preset: String::new(),
        commits: hostile_report(text).commits,
        series: vec![Course {
            cell: text.to_owned().into(),
            machine: text.to_owned(),
            metric: text.to_owned(),
            unit: String::new(),
            better: Better::Lower,
            modes: None,
            points: vec![point(1.0), point(2.0)],
            changes: Vec::new(),
        }],
        accepted: Vec::new(),
    }
}

/// Characters that would act on a terminal.
fn acts(c: char) -> bool {
    let bidi = ['\u{200e}', '\u{200f}', '\u{feff}'];
    c.is_control() && c != '\n'
        || bidi.contains(&c)
        || ('\u{202a}'..='\u{202e}').contains(&c)
        || ('\u{2066}'..='\u{2069}').contains(&c)
}

#[test]
fn what_others_write_is_seen_and_does_not_act() {
    for hostile in HOSTILE {
        let report = hostile_report(hostile);
        let history = hostile_history(hostile);
        // As the program prints them.
        let terminal = [
            ("text", text::report(&report, style())),
            ("lkp", columns::lkp(&report)),
            ("mmtests", columns::mmtests(&report)),
            ("samples", samples::strips(&report, "version=base", style())),
            ("history", changes::history_text(&history, style())),
            ("markdown", template::markdown(&report).unwrap()),
            ("csv", rows::verdicts(&report)),
            ("history csv", rows::history(&history)),
        ];
        for (face, printed) in &terminal {
            let printed = styled(printed, false).replace("\r\n", "\n");
            assert!(
                !printed.contains(acts),
                "{face} of {hostile:?}: {printed:?}"
            );
        }
        let document = serde_json::to_string(&Document::Report(&report).printed()).unwrap();
        assert!(!printable_json(&document).contains(acts), "{hostile:?}");
        let read: serde_json::Value = serde_json::from_str(&printable_json(&document)).unwrap();
        assert_eq!(read["matrix"], hostile);

        let markdown = &terminal[5].1;
        for tag in ["<script", "<!--", "\n## heading", "\n| a |"] {
            assert!(!outside_code(markdown).contains(tag), "{tag}: {markdown}");
        }
        for (_, csv) in &terminal[6..] {
            let formula = |field: &str| field.trim_matches('"').starts_with(['=', '@', '+']);
            assert!(!csv.split([',', '\n']).any(formula), "{csv}");
            // A line a record.
            assert!(csv.lines().count() <= 3, "{csv}");
        }
        let xml = junit::junit(&report).unwrap();
        assert!(!xml.contains("<script"), "{xml}");
        assert!(!xml.contains(|c| acts(c) && c != '\r'), "{xml:?}");
    }
}

/// Markdown without its code spans and the tags of its own.
fn outside_code(markdown: &str) -> String {
    markdown
        .lines()
        .map(|line| line.split('`').step_by(2).collect::<String>() + "\n")
        .collect::<String>()
        .replace("<details><summary>", "")
}

#[test]
fn a_line_of_ten_megabytes_is_cut_where_there_is_a_limit() {
    let long = "x".repeat(10 << 20);
    let mut report = Report::of(
        "m",
        "",
        vec![row("bs=4k", "new", [100.0, 80.0], Verdict::Same)],
    );
    report.failed = vec![FailureRow {
        cell: "bs=4k".into(),
        reason: long,
        log: Vec::new(),
    }];
    let markdown = template::markdown(&report).unwrap();
    assert!(
        markdown.len() <= template::MARKDOWN_BYTES_MAX + 100,
        "{}",
        markdown.len()
    );
    assert!(markdown.contains("`bs=4k`"));
}

#[test]
fn markdown_folds_what_did_not_change_and_fits_a_comment() {
    let same = (0..2000).map(|at| row(&format!("n={at}"), "new", [100.0, 100.0], Verdict::Same));
    let bad = row("bs=4k", "new", [100.0, 80.0], Verdict::Regression);
    let mut slower = row("bs=8k", "new", [100.0, 80.0], Verdict::Regression);
    (slower.gate, slower.axis_gates) = (false, false);
    let report = Report::of("m", "", [bad, slower].into_iter().chain(same).collect());
    let markdown = template::markdown(&report).unwrap();
    assert!(
        markdown.len() <= template::MARKDOWN_BYTES_MAX,
        "{}",
        markdown.len()
    );
    let (open, folded) = markdown.split_once("<details>").unwrap();
    assert!(open.contains("| regression | `bs=4k`"), "{open}");
    assert!(open.contains("| slower | `bs=8k`"), "{open}");
    assert!(
        folded.contains("`n=0`") && folded.contains("more comparisons"),
        "{folded}"
    );
    assert!(!folded.contains("`n=1999`"));
}

#[test]
fn junit_has_a_case_a_comparison() {
    let mut report = Report::of(
        "m",
        "",
        vec![
            row("bs=4k", "new", [100.0, 80.0], Verdict::Regression),
            row("bs=8k", "new", [100.0, 100.0], Verdict::Same),
            row("bs=16k", "new", [100.0, 101.0], Verdict::Inconclusive),
        ],
    );
    report.failed = vec![FailureRow {
        cell: "bs=32k".into(),
        reason: "exit 1".into(),
        log: vec!["error: x".into()],
    }];
    let xml = junit::junit(&report).unwrap();
    let read = quick_junit::Report::deserialize_from_str(&xml).unwrap();
    assert_eq!((read.tests, read.failures, read.errors), (4, 1, 1));
    let suite = &read.test_suites[0];
    assert_eq!((suite.tests, suite.failures), (3, 1));
    assert_eq!(xml.matches("<skipped").count(), 1);
    let name = suite.test_cases[0].name.as_str();
    assert_eq!(name, "iops bs=4k (base → new)");
    assert!(xml.contains("-20.00%"), "{xml}");
}

#[test]
fn lkp_tells_the_parameters_of_the_job_and_the_commits() {
    let mut report = Report::of(
        "m",
        "",
        vec![row(
            "bs=4k,rw=read",
            "new",
            [100.0, 80.0],
            Verdict::Regression,
        )],
    );
    report.commits = vec![CommitRow {
        hash: "1".repeat(40),
        versions: vec!["new".into()],
        subject: "make it slow".into(),
        ..CommitRow::default()
    }];
    let expected = "\
=========================================================================================
bs/rw:
  4k/read

commit:
  111111111111 (\"make it slow\")

            base                         new   (version)
---------------- ---------------------------
         %stddev     %change         %stddev
             \\          |                \\  
    100.00 ±  5%     -20.0%      80.00 ±  5%  iops   # regression

";
    assert_eq!(columns::lkp(&report), expected);
}

#[test]
fn mmtests_has_a_column_a_candidate_and_a_row_a_cell() {
    let of = |clients: u32, candidate: &str, new: f64, verdict| {
        let mut row = row(
            &format!("machine=here,clients={clients}"),
            candidate,
            [64.29, new],
            verdict,
        );
        row.better = Better::Lower;
        row
    };
    let rows = vec![
        of(16, "bad", 73.11, Verdict::Regression),
        of(2, "bad", 64.29, Verdict::Same),
        of(2, "good", 60.0, Verdict::Improvement),
        of(16, "good", 64.29, Verdict::Same),
    ];
    let mut report = Report::of("m", "", rows);
    report.axes = vec![AxisRow {
        name: "version".into(),
        values: ["base", "good", "bad"].map(str::to_owned).into(),
    }];
    let expected = "\
machine=here   (version: iops)

                                   base                     good                      bad
Amean 2               64.29 (    0.00%)        60.00 *    6.67%*        64.29 (    0.00%)   # improvement; same
Amean 16              64.29 (    0.00%)        64.29 (    0.00%)        73.11 *  -13.72%*   # same; regression

";
    assert_eq!(columns::mmtests(&report), expected);
}
