//! The report of a bisection as text, and the log that git can replay.

use std::fmt::Write;

use crate::base::units::{count, show_ratio, show_si};

/// Rows of the curve that are printed; beyond it those nearest to the answer.
const CURVE_ROWS_MAX: usize = 40;
/// Characters of the curve's widest row.
const CURVE_WIDTH: usize = 40;
/// Files of the culprit that are named.
const FILES_MAX: usize = 20;
/// Commits of a set that are named.
const SET_MAX: usize = 20;

/// A commit as a report tells it.
#[derive(Clone, Debug, Default)]
pub struct BisectCommit {
    pub id: String,
    /// Empty where there is no repository to ask.
    pub subject: String,
    pub author: String,
    /// RFC 3339.
    pub date: String,
    pub files: Vec<String>,
}

/// A measured commit of the line.
#[derive(Clone, Debug)]
pub struct CurvePoint {
    pub commit: BisectCommit,
    pub median: f64,
    pub n: usize,
    /// Its place on the line.
    pub at: usize,
    pub is_good: bool,
}

/// What a bisection found, as it is shown.
#[derive(Clone, Debug)]
pub struct BisectReport {
    /// Commits on the line, after the good end.
    pub commits: usize,
    pub set: Vec<BisectCommit>,
    pub probability: f64,
    pub is_settled: bool,
    pub ratio: Option<f64>,
    pub ci95: Option<[f64; 2]>,
    /// Rounds of the proof, and whether it shows the difference.
    pub proof: Option<(usize, bool)>,
    pub min_effect: f64,
    pub drift: f64,
    pub runs: usize,
    pub builds: usize,
    pub curve: Vec<CurvePoint>,
    /// Commits that could not be measured, and why.
    pub skipped: Vec<(BisectCommit, String)>,
    /// Where the culprit came in by a merge.
    pub merge: Option<BisectCommit>,
    /// What a reader must know beside.
    pub notes: Vec<String>,
    /// Where the log for `git bisect replay` is, where there is a repository.
    pub log: Option<String>,
}

/// The report.
pub fn text(report: &BisectReport) -> String {
    let mut text = String::new();
    let percent = format!("{:.1} %", 100.0 * report.probability);
    let effect = effect(report);
    match (&report.set[..], report.is_settled) {
        (_, false) => {
            let _ = writeln!(
                text,
                "not settled: the measurements were used up; the likeliest answer has {percent}"
            );
            set(&mut text, &report.set);
        }
        ([], true) => {
            let _ = writeln!(
                text,
                "no change found ({percent}): the bad end is {effect} of the good one; a change of {:.1} % or more would have been seen",
                100.0 * report.min_effect
            );
        }
        ([one], true) => {
            let _ = writeln!(text, "{} is the culprit ({percent}): {effect}", one.id);
            commit(&mut text, one);
        }
        (many, true) => {
            let unmeasured = many.len() - 1;
            let _ = writeln!(
                text,
                "the culprit is one of these {} ({percent}); {unmeasured} of them cannot be measured: {effect}",
                many.len()
            );
            set(&mut text, many);
        }
    }
    if let Some(merge) = &report.merge {
        let _ = writeln!(
            text,
            "It came in by the merge {} {}",
            short(&merge.id),
            merge.subject
        );
    }
    if let Some((rounds, is_proved)) = report.proof {
        let rounds = count(rounds, "round");
        let _ = match is_proved {
            true => writeln!(
                text,
                "proved: against the commit before it, in turn, {rounds}"
            ),
            false => writeln!(
                text,
                "not proved: against the commit before it, in turn, {rounds} do not show the difference"
            ),
        };
    }
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    if report.drift > 0.5 {
        let _ = writeln!(
            text,
            "note: the level drifted while it was measured; this is allowed for"
        );
    }
    curve(&mut text, report);
    if !report.skipped.is_empty() {
        let _ = writeln!(text, "\nskipped:");
        for (commit, why) in &report.skipped {
            let _ = writeln!(text, "  {}  {why}", name(commit));
        }
    }
    let _ = writeln!(
        text,
        "\n{} of {}, {}",
        count(report.builds, "commit"),
        report.commits,
        count(report.runs, "measurement")
    );
    if let Some(log) = &report.log {
        let _ = writeln!(text, "replay it: git bisect replay {log}");
    }
    text
}

fn effect(report: &BisectReport) -> String {
    match (report.ratio, report.ci95) {
        (Some(ratio), Some([low, high])) => format!(
            "{} [{}, {}]",
            show_ratio(ratio),
            show_ratio(low),
            show_ratio(high)
        ),
        (Some(ratio), None) => show_ratio(ratio),
        _ => "of unknown size".to_owned(),
    }
}

fn commit(text: &mut String, commit: &BisectCommit) {
    if commit.subject.is_empty() {
        return;
    }
    let _ = writeln!(text, "  {}", commit.subject);
    let _ = writeln!(text, "  {}, {}", commit.author, commit.date);
    for file in commit.files.iter().take(FILES_MAX) {
        let _ = writeln!(text, "    {file}");
    }
    if let Some(more) = commit
        .files
        .len()
        .checked_sub(FILES_MAX)
        .filter(|more| *more > 0)
    {
        let _ = writeln!(text, "    and {more} more");
    }
}

fn set(text: &mut String, commits: &[BisectCommit]) {
    for commit in commits.iter().take(SET_MAX) {
        let _ = writeln!(text, "  {}", name(commit));
    }
    if let Some(more) = commits.len().checked_sub(SET_MAX).filter(|more| *more > 0) {
        let _ = writeln!(text, "  and {more} more");
    }
}

fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

fn name(commit: &BisectCommit) -> String {
    format!("{} {}", short(&commit.id), commit.subject)
        .trim_end()
        .to_owned()
}

/// One row a measured commit, oldest first: its median as a mark between the smallest and the largest.
fn curve(text: &mut String, report: &BisectReport) {
    let medians = || report.curve.iter().map(|point| point.median);
    let low = medians().fold(f64::INFINITY, f64::min);
    let high = medians().fold(f64::NEG_INFINITY, f64::max);
    if report.curve.is_empty() {
        return;
    }
    let answer = report
        .curve
        .iter()
        .position(|point| !point.is_good)
        .unwrap_or(0);
    let first = answer
        .saturating_sub(CURVE_ROWS_MAX / 2)
        .min(report.curve.len().saturating_sub(CURVE_ROWS_MAX));
    let shown = report.curve.iter().skip(first).take(CURVE_ROWS_MAX);
    let _ = writeln!(
        text,
        "\nmeasured, oldest first ({} to {}):",
        show_si(low),
        show_si(high)
    );
    for point in shown {
        let share = if high > low {
            (point.median - low) / (high - low)
        } else {
            0.0
        };
        let place = (share * (CURVE_WIDTH - 1) as f64).round() as usize;
        let mark = if point.is_good { 'o' } else { '*' };
        let row = format!("{}{mark}", " ".repeat(place));
        let _ = writeln!(
            text,
            "{:>6} {row:<CURVE_WIDTH$} {:>8} ×{:<3} {}",
            point.at,
            show_si(point.median),
            point.n,
            name(&point.commit)
        );
    }
    if report.curve.len() > CURVE_ROWS_MAX {
        let left_out = count(report.curve.len() - CURVE_ROWS_MAX, "commit");
        let _ = writeln!(text, "       {left_out} farther away left out");
    }
}

/// What `git bisect replay` accepts: marks of commits, good ends and bad ends first. Each mark is a commit, its subject, and whether it is
/// `good`, `bad` or cannot be measured (`skip`).
pub fn replay_log(marks: &[(&str, &BisectCommit)], is_first_parent: bool) -> String {
    let options = if is_first_parent {
        " '--first-parent'"
    } else {
        ""
    };
    let mut text = format!("git bisect start{options}\n");
    for (mark, commit) in marks {
        let _ = writeln!(text, "# {mark}: [{}] {}", commit.id, commit.subject);
        let _ = writeln!(text, "git bisect {mark} {}", commit.id);
    }
    text
}
