//! Owns the model of a result: every face (text, template, JSON) shows this and nothing else.
//! Does not know how a face looks.

use std::collections::BTreeMap;

use serde::Serialize;

use super::beside::{EnvironmentsRow, MarksRow, MonitorsRow};
use crate::judge::stats::median;
use crate::judge::verdict::{Comparison, Question, Verdict, compare, decide};
use crate::plan::dag::Plan;
use crate::plan::steps::NONE;
use crate::run::execute::Failed;
use crate::run::lookup::{Samples, Series};
use crate::words::diag::Diagnostic;
use crate::words::sample::Better;

/// Version of every JSON document that the program prints.
pub const FORMAT: u32 = 1;
/// The false-discovery rate of a comparison.
pub const LEVEL: f64 = 0.05;

/// All that is told about a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub format: u32,
    pub matrix: String,
    pub about: String,
    /// Regressions first, then improvements, each by the size of the change.
    pub verdicts: Vec<Row>,
    pub failed: Vec<Failed>,
    pub counts: Counts,
    /// Median of each metric of each cell, for matrices that compare nothing too.
    pub cells: Vec<CellRow>,
    /// What else differed between the sides of comparisons. This and what follows is filled in by
    /// report/beside.
    pub environments: Vec<EnvironmentsRow>,
    pub marks: Vec<MarksRow>,
    /// Only where it was asked for.
    pub monitors: Vec<MonitorsRow>,
}

/// How many verdicts of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub regression: usize,
    pub improvement: usize,
    pub same: usize,
    pub inconclusive: usize,
    pub nothing_measured: usize,
}

/// One comparison of one metric.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the cell without the compared axis.
    pub cell: String,
    pub metric: String,
    pub unit: String,
    pub better: Better,
    pub axis: String,
    /// A regression here makes the exit status 1.
    pub gate: bool,
    pub baseline: String,
    pub candidate: String,
    pub baseline_median: Option<f64>,
    pub candidate_median: Option<f64>,
    #[serde(flatten)]
    pub comparison: Comparison,
    /// Run steps of baseline and candidate.
    #[serde(skip)]
    pub runs: [u32; 2],
}

/// What one cell measured.
#[derive(Clone, Debug, Serialize)]
pub struct CellRow {
    pub cell: String,
    pub metric: String,
    pub unit: String,
    pub better: Better,
    pub median: f64,
    pub n: usize,
}

/// Judges all declared comparisons of a plan over the samples that there are.
pub fn report(plan: &Plan, samples: &Samples, failed: Vec<Failed>) -> Result<Report, Diagnostic> {
    let (mut rows, questions) = rows(plan, samples)?;
    let mut family: Vec<(Question, Comparison)> = Vec::with_capacity(rows.len());
    for (row, question) in rows.iter().zip(questions) {
        family.push((question, row.comparison.clone()));
    }
    decide(&mut family);
    let mut counts = Counts::default();
    for (row, (_, comparison)) in rows.iter_mut().zip(family) {
        *match comparison.verdict {
            Verdict::Regression => &mut counts.regression,
            Verdict::Improvement => &mut counts.improvement,
            Verdict::Same => &mut counts.same,
            Verdict::Inconclusive => &mut counts.inconclusive,
            Verdict::NothingMeasured => &mut counts.nothing_measured,
        } += 1;
        row.comparison = comparison;
    }
    rows.sort_by(|a, b| {
        rank(a)
            .0
            .cmp(&rank(b).0)
            .then(rank(b).1.total_cmp(&rank(a).1))
    });
    Ok(Report {
        format: FORMAT,
        matrix: plan.matrix.name.clone(),
        about: plan.matrix.about.clone(),
        verdicts: rows,
        failed,
        counts,
        cells: cells(plan, samples)?,
        environments: Vec::new(),
        marks: Vec::new(),
        monitors: Vec::new(),
    })
}

/// Order of verdicts, and the size of the change within one.
fn rank(row: &Row) -> (u8, f64) {
    let order = match row.comparison.verdict {
        Verdict::Regression => 0,
        Verdict::Improvement => 1,
        Verdict::NothingMeasured => 2,
        Verdict::Inconclusive => 3,
        Verdict::Same => 4,
    };
    (
        order,
        row.comparison.ratio.map_or(0.0, |ratio| ratio.ln().abs()),
    )
}

fn rows(plan: &Plan, samples: &Samples) -> Result<(Vec<Row>, Vec<Question>), Diagnostic> {
    let (mut rows, mut questions) = (Vec::new(), Vec::new());
    let none = Series::default();
    for compare_plan in &plan.compares {
        let rule = &plan.matrix.compares[compare_plan.rule];
        let axis = compare_plan.axis;
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let in_groups = compare_plan.of_cell.iter().enumerate();
        for (cell, group) in in_groups.filter(|(_, group)| **group != NONE) {
            groups.entry(*group).or_default().push(cell as u32);
        }
        for cells in groups.into_values() {
            let value = |cell: u32| plan.cells.cell(cell as usize)[axis];
            let Some(&baseline) = cells
                .iter()
                .find(|cell| value(**cell) == compare_plan.baseline)
            else {
                continue;
            };
            for &candidate in cells.iter().filter(|cell| **cell != baseline) {
                let names = plan
                    .metric_names(baseline)?
                    .into_iter()
                    .zip(plan.metric_names(candidate)?);
                for ((from_baseline, from_candidate), metric) in names.zip(&plan.matrix.metrics) {
                    let series = |cell: u32, name: String| {
                        let run = plan.steps.runs.of_cell[cell as usize];
                        samples
                            .get(&(run, name))
                            .filter(|_| run != NONE)
                            .unwrap_or(&none)
                    };
                    let (a, b) = (
                        series(baseline, from_baseline),
                        series(candidate, from_candidate),
                    );
                    let known = if a.samples.is_empty() { b } else { a };
                    let question = Question {
                        better: metric.better.or(known.better).unwrap_or(Better::Higher),
                        min_effect: metric.min_effect.unwrap_or(rule.min_effect),
                        level: LEVEL,
                        noise: None,
                    };
                    rows.push(Row {
                        cell: plan
                            .cells
                            .name_without(plan.cells.cell(baseline as usize), &[axis]),
                        metric: metric.name.clone(),
                        unit: metric.unit.clone().unwrap_or_else(|| known.unit.clone()),
                        better: question.better,
                        axis: plan.cells.axes[axis].name.clone(),
                        gate: rule.gate,
                        baseline: plan
                            .cells
                            .label(plan.cells.cell(baseline as usize), axis)
                            .to_owned(),
                        candidate: plan
                            .cells
                            .label(plan.cells.cell(candidate as usize), axis)
                            .to_owned(),
                        baseline_median: median_of(a),
                        candidate_median: median_of(b),
                        comparison: compare(&a.samples, &b.samples, &question),
                        runs: [baseline, candidate]
                            .map(|cell| plan.steps.runs.of_cell[cell as usize]),
                    });
                    questions.push(question);
                }
            }
        }
    }
    Ok((rows, questions))
}

fn cells(plan: &Plan, samples: &Samples) -> Result<Vec<CellRow>, Diagnostic> {
    let mut rows = Vec::new();
    for (index, cell) in plan.cells.iter().enumerate() {
        let run = plan.steps.runs.of_cell[index];
        for (name, metric) in plan
            .metric_names(index as u32)?
            .into_iter()
            .zip(&plan.matrix.metrics)
        {
            let Some(series) = samples.get(&(run, name)) else {
                continue;
            };
            let Some(median) = median_of(series) else {
                continue;
            };
            rows.push(CellRow {
                cell: plan.cells.name(cell),
                metric: metric.name.clone(),
                unit: metric.unit.clone().unwrap_or_else(|| series.unit.clone()),
                better: metric.better.or(series.better).unwrap_or(Better::Higher),
                median,
                n: series.samples.len(),
            });
        }
    }
    Ok(rows)
}

fn median_of(series: &Series) -> Option<f64> {
    median(
        &series
            .samples
            .iter()
            .map(|sample| sample.value)
            .collect::<Vec<_>>(),
    )
}

impl Report {
    /// A regression that must not pass.
    pub fn has_gating_regression(&self) -> bool {
        let mut rows = self.verdicts.iter();
        rows.any(|row| row.gate && row.comparison.verdict == Verdict::Regression)
    }

    /// Samples were found for anything at all.
    pub fn measured_anything(&self) -> bool {
        !self.cells.is_empty()
    }
}
