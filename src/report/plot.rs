//! Plots of text: the levels of a series with its changes, and the samples of a side as a strip.

use std::fmt::Write as _;

use crate::base::units::show_value;
use crate::judge::stats::median;

/// Lines of a plot of levels.
const HEIGHT: usize = 8;
/// Columns of a plot at the most; of more points several share a column.
const COLUMNS_MAX: usize = 120;
/// Bars by how many samples they stand for.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The last points of a series over a scale: `•` is a point, `─` the median between changes, `▲` the first point after a
/// change. A gap is a blank. Nothing where there are fewer than two values.
pub fn levels(values: &[Option<f64>], changes: &[usize], unit: &str, width: usize) -> String {
    let known: Vec<f64> = values.iter().flatten().copied().collect();
    let (low, high) = span(&known);
    if known.len() < 2 || !(high - low).is_finite() {
        return String::new();
    }
    let labels = [high, low].map(|level| show_value(level, unit));
    let margin = labels
        .iter()
        .map(|it| it.chars().count())
        .max()
        .unwrap_or(0);
    let columns = width.saturating_sub(margin + 2).clamp(1, COLUMNS_MAX);
    let skipped = values.len().saturating_sub(columns);
    let columns = values.len() - skipped;
    let mut grid = vec![vec![' '; columns]; HEIGHT];
    let line = |value: f64| match high > low {
        true => ((high - value) / (high - low) * (HEIGHT - 1) as f64).round() as usize,
        false => HEIGHT / 2,
    };
    let mut begin = 0;
    for end in changes.iter().copied().chain([values.len()]) {
        let end = end.clamp(begin, values.len());
        let own: Vec<f64> = values[begin..end].iter().flatten().copied().collect();
        if let Some(level) = median(&own) {
            for column in begin.max(skipped)..end {
                grid[line(level)][column - skipped] = '─';
            }
        }
        begin = end;
    }
    for (column, value) in values[skipped..].iter().enumerate() {
        if let Some(value) = value {
            grid[line(*value)][column] = '•';
        }
    }
    let mut out = String::new();
    for (number, row) in grid.iter().enumerate() {
        let label = match number {
            0 => labels[0].as_str(),
            _ if number == HEIGHT - 1 => &labels[1],
            _ => "",
        };
        let row: String = row.iter().collect();
        let pad = margin - label.chars().count();
        let _ = writeln!(out, "{}", format!("{:pad$}{label} │{row}", "").trim_end());
    }
    let marks: String = (skipped..values.len())
        .map(|at| if changes.contains(&at) { '▲' } else { ' ' })
        .collect();
    if !marks.trim().is_empty() {
        let _ = writeln!(out, "{:margin$}  {}", "", marks.trim_end());
    }
    out
}

/// The smallest and the largest of some values; both infinite where there is none.
pub fn span(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low, high)
}

/// Samples as a strip from `low` to `high`: the higher the bar the more samples, so that modes are seen.
pub fn strip(values: &[f64], (low, high): (f64, f64), width: usize) -> String {
    let mut counts = vec![0usize; width.max(1)];
    for value in values {
        let share = match high > low {
            true => (value - low) / (high - low),
            false => 0.5,
        };
        let at = (share.clamp(0.0, 1.0) * (counts.len() - 1) as f64).round() as usize;
        counts[at] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let bar = |count: usize| BARS[(count * (BARS.len() - 1)).div_ceil(most)];
    let text: String = counts.into_iter().map(bar).collect();
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_level_is_seen() {
        let values: Vec<Option<f64>> = (0..12)
            .map(|at| (at != 3).then_some(if at < 6 { 100.0 } else { 80.0 }))
            .collect();
        let plot = levels(&values, &[6], "", 60);
        let lines: Vec<&str> = plot.lines().collect();
        assert_eq!(lines.len(), HEIGHT + 1);
        assert_eq!(lines[0], "100.0 │•••─••");
        assert_eq!(lines[HEIGHT - 1], "80.00 │      ••••••");
        assert_eq!(lines[HEIGHT], format!("{:13}▲", ""));
        assert_eq!(levels(&[Some(1.0)], &[], "", 60), "");
        // A change that scrolled out still ends its level.
        let long = levels(&values, &[6], "", 8);
        assert!(long.lines().all(|line| line.chars().count() <= 8), "{long}");
    }

    #[test]
    fn modes_are_seen() {
        let values = [1.0, 1.0, 1.0, 1.0, 9.0, 9.0, 5.0];
        assert_eq!(strip(&values, (1.0, 9.0), 9), "█   ▂   ▄");
        assert_eq!(strip(&[3.0], (3.0, 3.0), 3), " █");
        assert_eq!(strip(&[], (0.0, 1.0), 3), "");
    }
}
