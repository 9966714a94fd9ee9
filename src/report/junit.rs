//! A comparison as JUnit XML, which CI systems show: a test case a comparison.

use std::collections::BTreeMap;

use quick_junit::{
    NonSuccessKind, Report as JunitReport, SerializeError, TestCase, TestCaseStatus, TestSuite,
};

use super::text::in_one_unit;
use crate::base::printable::printable;
use crate::base::units::show_value;
use crate::judge::verdict::Verdict;
use crate::verdicts::report::{Report, VerdictRow};

/// What gates is a failure; what failed to run an error; what is not decided is skipped. One suite an axis.
/// Err only where the text cannot be written as XML.
pub fn junit(report: &Report) -> Result<String, SerializeError> {
    let mut whole = JunitReport::new(shown(&report.matrix));
    let mut suites: BTreeMap<&str, Vec<&VerdictRow>> = BTreeMap::new();
    for row in &report.verdicts {
        suites.entry(&row.axis).or_default().push(row);
    }
    for (axis, rows) in suites {
        let mut suite = TestSuite::new(shown(axis));
        for row in rows {
            suite.add_test_case(case(report, row));
        }
        whole.add_test_suite(suite);
    }
    if !report.failed.is_empty() {
        let mut suite = TestSuite::new("failed");
        for failed in &report.failed {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_message(shown(&failed.reason));
            status.set_type("failed");
            status.set_description(shown(&failed.log.join("\n")));
            let mut case = TestCase::new(shown(&failed.cell), status);
            case.set_classname(shown(&report.matrix));
            suite.add_test_case(case);
        }
        whole.add_test_suite(suite);
    }
    whole.to_string()
}

fn case(report: &Report, row: &VerdictRow) -> TestCase {
    let (change, interval) = in_one_unit(row.comparison.ratio, row.comparison.ci95);
    let words = row.words();
    let level = |value: Option<f64>| value.map_or("-".to_owned(), |it| show_value(it, &row.unit));
    let told = format!(
        "{words}: {} {} → {}, {change} ({interval}), n = {}+{}",
        row.metric,
        level(row.baseline_median),
        level(row.candidate_median),
        row.comparison.n[0],
        row.comparison.n[1]
    );
    let mut status = match row.comparison.verdict {
        _ if row.rank() == 0 => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_type("regression");
            status
        }
        Verdict::Suspected | Verdict::Inconclusive | Verdict::NothingMeasured => {
            TestCaseStatus::skipped()
        }
        Verdict::Regression | Verdict::Improvement | Verdict::Same => TestCaseStatus::success(),
    };
    let is_success = matches!(status, TestCaseStatus::Success { .. });
    if !is_success {
        status.set_message(shown(&told));
    }
    let commits = row.commits.iter().flatten();
    let commits = commits.filter_map(|hash| report.commit(hash));
    let commits = commits.map(|it| format!("{} {}\n", it.short(), it.subject));
    let note = row.comparison.note.iter().map(|note| format!("{note}\n"));
    let below: String = [format!("{told}\n")]
        .into_iter()
        .chain(note)
        .chain(commits)
        .collect();
    let name = match row.cell.is_empty() {
        true => row.metric.clone(),
        false => format!("{} {}", row.metric, row.cell),
    };
    let name = format!("{name} ({} → {})", row.baseline, row.candidate);
    let mut case = TestCase::new(shown(&name), status);
    case.set_classname(shown(&format!("{}.{}", report.matrix, row.axis)));
    case.set_system_out(shown(&below));
    case
}

/// Characters that act are shown; those that XML cannot hold are among them.
fn shown(text: &str) -> String {
    printable(text).into_owned()
}
