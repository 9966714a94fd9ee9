//! The text of a calibration.

use std::fmt::Write as _;

use super::text::{Style, dropped, fit, lines, table};
use crate::base::units::count;
use crate::verdicts::calibration::Calibration;

/// Changes of which are told: beyond, a metric is too noisy to say anything.
const EFFECT_SHOWN_MAX: f64 = 10.0;

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
    use crate::verdicts::calibration::metric_row;

    #[test]
    fn a_narrow_terminal_is_told_what_is_hidden() {
        let calibration = Calibration {
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
                all: false,
            };
            let shown = text(&calibration, style);
            let told = shown
                .lines()
                .find(|line| line.starts_with("terminal too narrow"));
            told.map(str::to_owned)
        };
        assert_eq!(told(200), None);
        let expected = "terminal too narrow for: worst, worst (`--json` has all)";
        assert_eq!(told(30).as_deref(), Some(expected));
    }
}
