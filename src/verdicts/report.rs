//! The model of a result: every face (text, template, JSON) shows this and nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::diag::Diagnostic;
use crate::base::key::Key;
use crate::base::sample::Better;
use crate::edge::store::{Acceptance, FindingChanges};
use crate::judge::verdict::{Comparison, Summary, Verdict};
use crate::plan::cell::PlanAxis;
use crate::plan::dag::Plan;
use crate::resolve::lookup::Failed;
use crate::resolve::samples::Samples;
use crate::resolve::selection::LeftOut;
use crate::verdicts::cells::{CellName, CellRow, CellRows, NamedCell, SampleRow};
use crate::verdicts::comparisons::{Answer, ComparisonContext, answers};
use crate::verdicts::context::{EnvironmentsRow, MarksRow, MonitorsRow};
use crate::verdicts::parts::{
    CommitRow, FailureRow, FindingStanding, MachineRow, ReproduceRow, SessionRow, SinceLast,
    UnmeasuredRow,
};
use crate::verdicts::series::{Cause, Course};
use crate::verdicts::standing::{OpenRegressionRow, Outlook};
use crate::verdicts::time::time;

/// All that is told about a comparison.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    pub matrix: String,
    pub about: String,
    /// The preset, under its name.
    pub preset: String,
    /// The latest session of the matrix under this preset, as all that follows of what was noted; null where there is none.
    pub session: Option<SessionRow>,
    /// The session before.
    #[serde(skip)]
    pub session_before: Option<i64>,
    /// What versions were, in the order of the commits.
    pub commits: Vec<CommitRow>,
    /// The axes in the order of the matrix, each with its values.
    pub axes: Vec<AxisRow>,
    /// Regressions that gate first, then confirmed changes, each by the size of the change; then cell by cell.
    pub verdicts: Vec<VerdictRow>,
    /// Regressions that an earlier session confirmed, that stand, and that no row of `verdicts` tells.
    pub open_regressions: Vec<OpenRegressionRow>,
    /// What a session changes about findings.
    #[serde(skip)]
    pub finding_changes: FindingChanges,
    /// What is new since the session before; null where no session has compared anything.
    pub since_last: Option<SinceLast>,
    pub failed: Vec<FailureRow>,
    /// What was not measured, and why.
    pub unmeasured: Vec<UnmeasuredRow>,
    /// What a budget had no room for, where a run was given one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    pub counts: VerdictCounts,
    /// Changes that somebody accepted, and that hold.
    pub accepted: Vec<AcceptedRow>,
    /// Median of each metric of each cell, for matrices that compare nothing too.
    #[schemars(with = "Vec<CellRow>")]
    pub cells: CellRows,
    /// What else differed between the sides of comparisons. This and what follows is filled in by
    /// [`crate::verdicts::context::add`].
    pub environments: Vec<EnvironmentsRow>,
    pub marks: Vec<MarksRow>,
    /// Only where it was asked for.
    pub monitors: Vec<MonitorsRow>,
    /// The machines of the session.
    pub machines: Vec<MachineRow>,
    /// What follows is filled in where a report is to stand by itself: see [`crate::verdicts::details`].
    /// The course of each cell over its versions.
    pub history: Vec<Course>,
    /// Change points, one cause each, the latest first.
    pub changes: Vec<Cause>,
    /// How the cells of changes and failures are measured by hand.
    pub reproduce: Vec<ReproduceRow>,
}

/// An axis of the cells.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AxisRow {
    pub name: String,
    pub values: Vec<String>,
}

/// How many verdicts of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VerdictCounts {
    pub regression: usize,
    pub improvement: usize,
    pub same: usize,
    /// Look changed, and are not confirmed.
    pub suspected: usize,
    pub inconclusive: usize,
    pub nothing_measured: usize,
    /// Regressions and improvements that somebody accepted, not counted above.
    pub accepted: usize,
}

/// One comparison of one metric.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VerdictRow {
    /// Name of the cell without the compared axis.
    #[serde(flatten)]
    #[schemars(with = "NamedCell")]
    pub cell: CellName,
    pub metric: String,
    pub unit: String,
    pub better: Better,
    pub axis: String,
    /// A regression here makes the exit status 1.
    pub gate: bool,
    /// As the matrix declares it: an accepted change does not gate, though its axis does.
    #[serde(skip)]
    pub axis_gates: bool,
    pub baseline: String,
    pub candidate: String,
    pub baseline_median: Option<f64>,
    pub candidate_median: Option<f64>,
    /// Hashes of the commits that baseline and candidate are; see [`Report::commit`].
    pub commits: [Option<String>; 2],
    /// Whether the latest session found this change first; null of what is no change, or was not found by a session.
    pub standing: Option<FindingStanding>,
    /// The session that found the change first.
    pub since: Option<i64>,
    /// The samples of both sides that the comparison rests on; nothing where they were not asked for.
    #[serde(skip_serializing_if = "no_samples")]
    pub samples: [Vec<SampleRow>; 2],
    /// For faces with columns of their own.
    #[serde(skip)]
    pub sides: [Option<Summary>; 2],
    #[serde(flatten)]
    pub comparison: Comparison,
    /// What a rerun said of a finding; None where there was none.
    pub confirmed: Option<bool>,
    /// The acceptance that bears on this: it moved the baseline, or is about the candidate.
    pub accepted: Option<i64>,
    /// This very change was accepted: it does not gate and is counted as accepted.
    pub is_accepted: bool,
    /// Run steps of baseline and candidate.
    #[serde(skip)]
    pub runs: [u32; 2],
    /// What the machine was like for the samples of each, where that differs.
    #[serde(skip)]
    pub differing: Option<[Key; 2]>,
}

fn no_samples(samples: &[Vec<SampleRow>; 2]) -> bool {
    samples.iter().all(Vec::is_empty)
}

/// A change that somebody accepted.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AcceptedRow {
    pub id: i64,
    pub what: String,
    /// From which version on.
    pub versions: Vec<String>,
    /// Series, each a metric of a cell.
    pub series: usize,
    pub reason: String,
    pub author: String,
    /// ISO 8601, UTC.
    pub at: String,
    pub undone: Option<String>,
}

impl AcceptedRow {
    /// None for one that was taken back.
    pub fn of(acceptance: &Acceptance) -> Option<AcceptedRow> {
        let row = AcceptedRow::of_any(acceptance);
        row.undone.is_none().then_some(row)
    }

    pub fn of_any(acceptance: &Acceptance) -> AcceptedRow {
        let versions: BTreeSet<&String> = acceptance.series.iter().map(|s| &s.version).collect();
        AcceptedRow {
            id: acceptance.id,
            what: acceptance.what.clone(),
            versions: versions.into_iter().cloned().collect(),
            series: acceptance.series.len(),
            reason: acceptance.reason.clone(),
            author: acceptance.author.clone(),
            at: time(acceptance.accepted_ms),
            undone: acceptance.undone_ms.map(time),
        }
    }
}

/// Judges all declared comparisons of a plan over the samples that there are.
pub fn report(
    plan: &Plan,
    samples: Samples,
    beside: &ComparisonContext,
    failed: Vec<Failed>,
) -> Result<Report, Diagnostic> {
    let answers = answers(plan, &samples, beside)?;
    let findings = beside.finding_changes(plan, &answers);
    let standing = standing(plan, &answers, &findings);
    let rows = answers.into_iter().map(|answer| row(plan, answer));
    let mut report = Report::of(&plan.matrix.name, &plan.matrix.about, rows.collect());
    report.failed = failed.into_iter().map(FailureRow::from).collect();
    (report.open_regressions, report.finding_changes) = (standing, findings);
    report.accepted = beside
        .acceptances
        .iter()
        .filter_map(AcceptedRow::of)
        .collect();
    report.cells = CellRows::of(plan, samples)?;
    report.axes = axes(plan);
    Ok(report)
}

/// Confirmed regressions that stand, each as the last version says that it bears on; without those of which a row says so.
fn standing(plan: &Plan, answers: &[Answer], findings: &FindingChanges) -> Vec<OpenRegressionRow> {
    let mut rows: BTreeMap<i64, Option<OpenRegressionRow>> = BTreeMap::new();
    for answer in answers {
        let compare = &plan.compares[answer.compare];
        let rule = &plan.matrix.compares[compare.rule];
        let tuple = |cell: u32| plan.cells.cell(cell as usize);
        for it in &answer.standing {
            let is_told = !it.is_in_baseline
                && it.outlook == Outlook::Present
                && answer.comparison.verdict == Verdict::Regression;
            let [baseline, candidate] = it.open.finding.versions.clone();
            let row = OpenRegressionRow {
                cell: plan
                    .cells
                    .name_without(tuple(answer.candidate), &[compare.axis])
                    .into(),
                metric: plan.matrix.metrics[answer.metric].name.clone(),
                baseline,
                candidate,
                ratio: it.open.finding.shift.exp(),
                session: it.open.session,
                confirmed_at: time(it.open.found_ms),
                now: plan
                    .cells
                    .label(tuple(answer.candidate), compare.axis)
                    .to_owned(),
                gate: rule.gate,
            };
            rows.insert(it.open.id, Some(row).filter(|_| !is_told));
        }
    }
    rows.retain(|id, _| !findings.ended.contains(id));
    rows.into_values().flatten().collect()
}

/// What is stored, compared with nothing.
pub fn results(plan: &Plan, samples: Samples, failed: Vec<Failed>) -> Result<Report, Diagnostic> {
    let mut report = Report::of(&plan.matrix.name, &plan.matrix.about, Vec::new());
    report.failed = failed.into_iter().map(FailureRow::from).collect();
    report.cells = CellRows::of(plan, samples)?;
    report.axes = axes(plan);
    Ok(report)
}

impl VerdictRow {
    /// 0 of what gates, 1 of a confirmed change, 2 of all else.
    pub fn rank(&self) -> u8 {
        match self.comparison.verdict {
            Verdict::Regression if self.gate => 0,
            verdict if verdict.is_change() && self.confirmed == Some(true) => 1,
            _ => 2,
        }
    }

    /// The size of the change: |ln ratio|, infinite where there is a difference but no ratio.
    pub fn effect(&self) -> f64 {
        match (self.comparison.ratio, self.comparison.difference) {
            (Some(ratio), _) if ratio > 0.0 => ratio.ln().abs(),
            (_, Some(difference)) if difference != 0.0 => f64::INFINITY,
            _ => 0.0,
        }
    }

    /// The word for the verdict. On an axis that does not gate a change is no regression: it is faster or slower, and
    /// better or worse where the metric is neither a time nor a rate.
    pub fn verdict_name(&self) -> &'static str {
        let is_speed = self.unit.is_empty()
            || self.unit.ends_with("/s")
            || ["s", "ms", "us", "µs", "ns"].contains(&self.unit.as_str());
        match (self.comparison.verdict, self.axis_gates, is_speed) {
            (Verdict::Regression, false, true) => "slower",
            (Verdict::Regression, false, false) => "worse",
            (Verdict::Improvement, false, true) => "faster",
            (Verdict::Improvement, false, false) => "better",
            (verdict, ..) => verdict.name(),
        }
    }

    /// The verdict, and what became of it: `regression, confirmed`.
    pub fn words(&self) -> String {
        let verdict = self.verdict_name();
        match self.confirmed {
            _ if self.is_accepted => format!("{verdict}, accepted"),
            Some(true) => format!("{verdict}, confirmed"),
            _ => verdict.to_owned(),
        }
    }
}

impl Report {
    /// A report of rows that are judged.
    pub fn of(name: &str, about: &str, mut rows: Vec<VerdictRow>) -> Report {
        sort(&mut rows);
        let mut report = Report {
            matrix: name.to_owned(),
            about: about.to_owned(),
            preset: String::new(),
            session: None,
            session_before: None,
            commits: Vec::new(),
            since_last: None,
            unmeasured: Vec::new(),
            machines: Vec::new(),
            history: Vec::new(),
            changes: Vec::new(),
            reproduce: Vec::new(),
            axes: Vec::new(),
            verdicts: rows,
            open_regressions: Vec::new(),
            finding_changes: FindingChanges::default(),
            failed: Vec::new(),
            left_out: None,
            counts: VerdictCounts::default(),
            accepted: Vec::new(),
            cells: CellRows::default(),
            environments: Vec::new(),
            marks: Vec::new(),
            monitors: Vec::new(),
        };
        report.count();
        report
    }

    /// Counts the verdicts anew.
    pub fn count(&mut self) {
        let mut counts = VerdictCounts::default();
        for row in &self.verdicts {
            *match row.comparison.verdict {
                _ if row.is_accepted => &mut counts.accepted,
                Verdict::Regression => &mut counts.regression,
                Verdict::Improvement => &mut counts.improvement,
                Verdict::Same => &mut counts.same,
                Verdict::Suspected => &mut counts.suspected,
                Verdict::Inconclusive => &mut counts.inconclusive,
                Verdict::NothingMeasured => &mut counts.nothing_measured,
            } += 1;
        }
        self.counts = counts;
    }
}

/// The axes that names mention.
fn axes(plan: &Plan) -> Vec<AxisRow> {
    let axes = plan.cells.axes.iter().filter(|axis| !axis.silent);
    let row = |axis: &PlanAxis| AxisRow {
        name: axis.name.clone(),
        values: axis.labels.clone(),
    };
    axes.map(row).collect()
}

/// What gates first, then what was confirmed, each by the size of the change; then the rows of each cell together, in
/// the order of the plan.
fn sort(rows: &mut [VerdictRow]) {
    let mut cells: HashMap<String, usize> = HashMap::new();
    for row in rows.iter() {
        let next = cells.len();
        cells.entry(row.cell.0.clone()).or_insert(next);
    }
    rows.sort_by_cached_key(|row| match row.rank() {
        2 => (2, cells[&row.cell.0], 0),
        // Positive numbers ascend as their bits do.
        rank => (rank, 0, u64::MAX - row.effect().to_bits()),
    });
}

fn row(plan: &Plan, answer: Answer) -> VerdictRow {
    let compare = &plan.compares[answer.compare];
    let axis = compare.axis;
    let rule = &plan.matrix.compares[compare.rule];
    let tuple = |cell: u32| plan.cells.cell(cell as usize);
    let label = |cell: u32| plan.cells.label(tuple(cell), axis).to_owned();
    let accepted = answer.accepted.as_ref();
    let is_about_candidate = accepted.is_some_and(|accepted| !accepted.moved);
    let moved = accepted.filter(|accepted| accepted.moved);
    let baseline = moved.map(|accepted| accepted.version.clone());
    VerdictRow {
        cell: plan
            .cells
            .name_without(tuple(answer.baseline), &[axis])
            .into(),
        metric: plan.matrix.metrics[answer.metric].name.clone(),
        unit: answer.unit,
        better: answer.question.better,
        axis: plan.cells.axes[axis].name.clone(),
        // What somebody accepted does not fail a second time.
        gate: rule.gate && !is_about_candidate,
        axis_gates: rule.gate,
        is_accepted: is_about_candidate && answer.comparison.verdict.is_change(),
        baseline: baseline.unwrap_or_else(|| label(answer.baseline)),
        candidate: label(answer.candidate),
        baseline_median: answer.levels[0],
        candidate_median: answer.levels[1],
        commits: [None, None],
        standing: None,
        since: None,
        samples: answer
            .samples
            .map(|side| side.iter().map(SampleRow::of).collect()),
        sides: answer.sides,
        comparison: answer.comparison,
        confirmed: answer.confirmed,
        accepted: answer.accepted.map(|accepted| accepted.id),
        runs: [answer.baseline, answer.candidate]
            .map(|cell| plan.steps.runs.of_cell[cell as usize]),
        differing: answer.differing,
    }
}

impl Report {
    /// The commit of this hash.
    pub fn commit(&self, hash: &str) -> Option<&CommitRow> {
        self.commits.iter().find(|commit| commit.hash == hash)
    }

    /// Leaves out the comparisons that an interrupted run has not reached.
    pub fn leave_out_unmeasured(&mut self) {
        self.verdicts
            .retain(|row| row.comparison.verdict != Verdict::NothingMeasured);
        self.counts.nothing_measured = 0;
    }

    /// The rows with the largest changes first.
    pub fn sort_by_effect(&mut self) {
        self.verdicts
            .sort_by(|a, b| b.effect().total_cmp(&a.effect()));
    }

    /// A regression that must not pass.
    pub fn has_gating_regression(&self) -> bool {
        let mut rows = self.verdicts.iter();
        rows.any(|row| row.gate && row.comparison.verdict == Verdict::Regression)
            || self.open_regressions.iter().any(|row| row.gate)
    }

    /// A regression that must not pass, and that no earlier session found.
    pub fn has_new_regression(&self) -> bool {
        let mut rows = self.verdicts.iter();
        rows.any(|row| row.rank() == 0 && row.standing != Some(FindingStanding::Still))
    }

    /// Samples were found for anything at all.
    pub fn measured_anything(&self) -> bool {
        let measured = |row: &VerdictRow| row.comparison.verdict != Verdict::NothingMeasured;
        !self.cells.is_empty() || self.verdicts.iter().any(measured)
    }
}
