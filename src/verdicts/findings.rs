//! What is new, still there and gone since the session before: each change from the session that found it first.

use std::collections::HashMap;

use crate::edge::store::{FINDINGS_MAX, FindingId, FindingNote, Store, StoreError, StoredFinding};
use crate::judge::verdict::Verdict;
use crate::verdicts::parts::{FindingRow, FindingStanding, SinceLast};
use crate::verdicts::report::{Report, VerdictRow};

/// The axis whose values differ from night to night.
const VERSION: &str = "version";

/// What a row's change is known by from one session to the next.
fn id(row: &VerdictRow) -> FindingId {
    FindingId {
        axis: row.axis.clone(),
        cell: row.cell.0.clone(),
        metric: row.metric.clone(),
        sides: match row.axis == VERSION {
            true => String::new(),
            false => format!("{} → {}", row.baseline, row.candidate),
        },
    }
}

fn is_finding(row: &VerdictRow) -> bool {
    row.comparison.verdict.is_change() && !row.is_accepted
}

/// Notes what the latest session of the report found, and what it did not find any more. Of several versions that were
/// compared the last one counts. `preset`: its name.
pub fn note(report: &Report, store: &Store) -> Result<(), StoreError> {
    let Some(session) = &report.session else {
        return Ok(());
    };
    let version = report.axes.iter().find(|axis| axis.name == VERSION);
    let place = |row: &VerdictRow| {
        let values = version.iter().flat_map(|axis| &axis.values);
        let mut values = values.enumerate();
        values
            .find(|(_, value)| **value == row.candidate)
            .map(|it| it.0)
    };
    let mut last: HashMap<FindingId, (Option<usize>, &VerdictRow)> = HashMap::new();
    for row in &report.verdicts {
        let place = (row.axis == VERSION).then(|| place(row)).flatten();
        let known = last.entry(id(row)).or_insert((place, row));
        if place >= known.0 {
            *known = (place, row);
        }
    }
    let open = store.findings(&report.matrix, &report.preset, session.id)?;
    let open = open.iter().filter(|finding| finding.gone.is_none());
    let open: HashMap<&FindingId, &StoredFinding> = open.map(|it| (&it.id, it)).collect();
    let mut notes: Vec<FindingNote> = Vec::new();
    // In the order of the report.
    for row in &report.verdicts {
        let id = id(row);
        let Some((_, row)) = last.remove(&id) else {
            continue;
        };
        if is_finding(row) {
            notes.push(FindingNote::Found(StoredFinding {
                id,
                is_regression: row.comparison.verdict == Verdict::Regression,
                since: session.id,
                seen: session.id,
                gone: None,
                baseline: row.baseline.clone(),
                candidate: row.candidate.clone(),
                ratio: row.comparison.ratio,
                level: row.baseline_median,
            }));
        } else if open.get(&id).is_some_and(|finding| is_gone(finding, row)) {
            notes.push(FindingNote::Gone(id));
        }
    }
    notes.truncate(FINDINGS_MAX);
    store.note_findings(&report.matrix, &report.preset, session.id, &notes)
}

/// Whether a row that is no change says that a finding is not there any more: it was compared with the same baseline, or
/// is back at the level of before. What was compared with a later baseline says nothing: that may have the change too.
fn is_gone(finding: &StoredFinding, row: &VerdictRow) -> bool {
    if row.is_accepted {
        return true;
    }
    let is_back = || {
        let moved = (row.candidate_median? / finding.level?).ln().abs();
        Some(2.0 * moved < finding.ratio?.ln().abs())
    };
    row.comparison.verdict == Verdict::Same
        && (row.baseline == finding.baseline || is_back().unwrap_or(false))
}

/// Fills in what is new, still there and gone as of the latest session.
pub fn add(report: &mut Report, store: &Store) -> Result<(), StoreError> {
    let Some(session) = report.session.as_ref().map(|session| session.id) else {
        return Ok(());
    };
    let findings = store.findings(&report.matrix, &report.preset, session)?;
    let standing = |finding: &StoredFinding| match (finding.gone, finding.since == session) {
        (Some(_), _) => FindingStanding::Gone,
        (None, true) => FindingStanding::New,
        (None, false) => FindingStanding::Still,
    };
    let known: HashMap<&FindingId, &StoredFinding> = findings
        .iter()
        .filter(|it| it.gone.is_none())
        .map(|it| (&it.id, it))
        .collect();
    for row in report.verdicts.iter_mut().filter(|row| is_finding(row)) {
        let is_regression = row.comparison.verdict == Verdict::Regression;
        let found = known.get(&id(row));
        if let Some(found) = found.filter(|it| it.is_regression == is_regression) {
            row.standing = Some(standing(found));
            row.since = Some(found.since);
        }
    }
    let of = |wanted: FindingStanding| {
        let findings = findings.iter().filter(|it| standing(it) == wanted);
        findings.map(row).collect::<Vec<FindingRow>>()
    };
    report.since_last = Some(SinceLast {
        session: report.session_before,
        new: of(FindingStanding::New),
        still: of(FindingStanding::Still),
        gone: of(FindingStanding::Gone),
    });
    Ok(())
}

fn row(finding: &StoredFinding) -> FindingRow {
    let verdict = match finding.is_regression {
        true => Verdict::Regression,
        false => Verdict::Improvement,
    };
    FindingRow {
        axis: finding.id.axis.clone(),
        cell: finding.id.cell.clone().into(),
        metric: finding.id.metric.clone(),
        verdict,
        baseline: finding.baseline.clone(),
        candidate: finding.candidate.clone(),
        ratio: finding.ratio,
        since: finding.since,
        seen: finding.seen,
    }
}
