//! The model and the text of a calibration.

use std::fmt::Write as _;

use serde::Serialize;

use super::text::{Style, dropped, fit, lines, table};
use crate::base::units::count;
use crate::judge::stats::quantile;
use crate::judge::verdict::{Comparison, Verdict};
use crate::plan::dag::Plan;
use crate::run::strategy::calibrate::{Calibrated, EFFECTS};

/// Changes of which are told: beyond, a metric is too noisy to say anything.
const EFFECT_SHOWN_MAX: f64 = 10.0;

#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    pub format: u32,
    pub matrix: String,
    pub machine: String,
    /// Under which it was measured.
    pub preset: String,
    /// Whose repetitions the smallest effect is told for, and how many they are.
    pub judged_for: String,
    pub repetitions: u32,
    pub rounds: u32,
    /// Cells that were found to differ from themselves: false alarms.
    pub false_alarms: usize,
    pub metrics: Vec<MetricRow>,
    pub cells: Vec<CalibrationRow>,
}

/// One metric over all cells.
#[derive(Clone, Debug, Serialize)]
pub struct MetricRow {
    pub metric: String,
    pub cells: usize,
    /// One standard deviation of a sample, as a fraction: of the middle cell, and of the noisiest.
    pub noise: Option<f64>,
    pub noise_worst: Option<f64>,
    pub smallest_effect: Option<f64>,
    pub smallest_effect_worst: Option<f64>,
    pub repetitions_for: Vec<RepetitionsFor>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RepetitionsFor {
    /// As a fraction.
    pub effect: f64,
    /// A side, in the middle cell; None: more than anybody would make.
    pub repetitions: Option<u32>,
}

#[derive(Clone, Debug, Serialize)]
pub struct CalibrationRow {
    pub cell: String,
    pub metric: String,
    pub noise: Option<f64>,
    /// Degrees of freedom that it rests on.
    pub degrees: Option<f64>,
    pub smallest_effect: Option<f64>,
    pub repetitions_for: Vec<RepetitionsFor>,
    pub against_itself: Comparison,
}

impl Calibration {
    /// Fills in `metrics`, `cells` and `false_alarms`.
    pub fn add(&mut self, plan: &Plan, found: &[Calibrated]) {
        let name = |one: &Calibrated| plan.matrix.metrics[one.metric].name.clone();
        for (index, metric) in plan.matrix.metrics.iter().enumerate() {
            let own: Vec<&Calibrated> = found.iter().filter(|one| one.metric == index).collect();
            self.metrics.push(metric_row(&metric.name, &own));
        }
        self.cells = found
            .iter()
            .map(|one| CalibrationRow {
                cell: plan.cells.name(plan.cells.cell(one.cell as usize)),
                metric: name(one),
                noise: one.noise.map(|noise| noise.sigma_log),
                degrees: one.noise.map(|noise| noise.degrees),
                smallest_effect: one.smallest_effect,
                repetitions_for: needed(one.repetitions),
                against_itself: one.against_itself.clone(),
            })
            .collect();
        let alarms = found
            .iter()
            .filter(|one| one.against_itself.verdict.is_change());
        self.false_alarms = alarms.count();
    }

    /// Anything was measured at all.
    pub fn is_something(&self) -> bool {
        let nothing = Verdict::NothingMeasured;
        self.cells
            .iter()
            .any(|cell| cell.against_itself.verdict != nothing)
    }
}

fn metric_row(name: &str, own: &[&Calibrated]) -> MetricRow {
    let noise: Vec<f64> = own
        .iter()
        .filter_map(|one| Some(one.noise?.sigma_log))
        .collect();
    let effects: Vec<f64> = own.iter().filter_map(|one| one.smallest_effect).collect();
    let middle = |index: usize| {
        // A cell that no number of repetitions settles counts as the most.
        let needed = own.iter().filter(|one| one.noise.is_some());
        let needed: Vec<f64> = needed
            .map(|one| one.repetitions[index].map_or(f64::INFINITY, f64::from))
            .collect();
        let middle = quantile(&needed, 0.5).filter(|n| n.is_finite());
        middle.map(|n| n.ceil() as u32)
    };
    MetricRow {
        metric: name.to_owned(),
        cells: own.len(),
        noise: quantile(&noise, 0.5),
        noise_worst: quantile(&noise, 1.0),
        smallest_effect: quantile(&effects, 0.5),
        smallest_effect_worst: quantile(&effects, 1.0),
        repetitions_for: needed([0, 1, 2].map(middle)),
    }
}

fn needed(repetitions: [Option<u32>; 3]) -> Vec<RepetitionsFor> {
    let pairs = EFFECTS.into_iter().zip(repetitions);
    pairs
        .map(|(effect, repetitions)| RepetitionsFor {
            effect,
            repetitions,
        })
        .collect()
}

pub fn text(calibration: &Calibration, style: Style) -> String {
    let percent = |value: Option<f64>| match value {
        Some(value) if value > EFFECT_SHOWN_MAX => "> 1000 %".to_owned(),
        Some(value) => format!("{:.2} %", value * 100.0),
        None => "-".to_owned(),
    };
    let seen = format!("seen by {}", calibration.judged_for);
    let header = [
        "metric", "cells", "noise", "worst", &seen, "worst", "for 1 %", "for 2 %", "for 5 %",
    ];
    let mut rows = table(style, &header, 1);
    for metric in &calibration.metrics {
        let mut row = vec![
            metric.metric.clone(),
            metric.cells.to_string(),
            percent(metric.noise),
            percent(metric.noise_worst),
            percent(metric.smallest_effect),
            percent(metric.smallest_effect_worst),
        ];
        let needed = metric.repetitions_for.iter();
        row.extend(needed.map(|n| n.repetitions.map_or("-".to_owned(), |n| n.to_string())));
        rows.add_row(row);
    }
    const DROPPED: [usize; 2] = [5, 3];
    fit(&mut rows, style, &[(0, ' ')], &DROPPED);
    let mut out = lines(&rows);
    out.push_str(&dropped(&rows, &DROPPED));
    let _ = writeln!(
        out,
        "\nnoise: one sigma of a sample. seen: the smallest change that {} a side find four times of five among \
         {}. for …: repetitions a side.",
        count(calibration.repetitions as usize, "repetition"),
        count(calibration.cells.len(), "comparison"),
    );
    let _ = writeln!(
        out,
        "each cell against itself, {}: {}",
        count(calibration.rounds as usize, "round"),
        count(calibration.false_alarms, "false alarm"),
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_is_told_what_is_hidden() {
        let calibration = Calibration {
            format: 1,
            matrix: "m".to_owned(),
            machine: "here".to_owned(),
            preset: "quick".to_owned(),
            judged_for: "quick".to_owned(),
            repetitions: 5,
            rounds: 5,
            false_alarms: 0,
            metrics: vec![metric_row("iops", &[])],
            cells: Vec::new(),
        };
        let told = |width| {
            let style = Style {
                color: false,
                width: Some(width),
            };
            let shown = text(&calibration, style);
            let told = shown.lines().find(|line| line.starts_with("not shown"));
            told.map(str::to_owned)
        };
        assert_eq!(told(200), None);
        let expected = "not shown, for want of width: worst, worst (`--json` has all)";
        assert_eq!(told(30).as_deref(), Some(expected));
    }
}
