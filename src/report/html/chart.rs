//! Charts as SVG, each with a title for those who cannot see it: samples of two sides, the course of a series, an interval.

use std::fmt::Write as _;

use crate::base::units::{show_ratio, show_value};
use crate::judge::stats::median;
use crate::report::html::escape::escaped;
use crate::verdicts::series::Course;

/// Dots of one side that are drawn.
const DOTS_MAX: usize = 400;
/// Points of a series that are drawn, the latest ones.
pub const POINTS_MAX: usize = 400;

const WIDTH: f64 = 720.0;
/// Room for the names on the left, or for the values of a level axis.
const LEFT: f64 = 116.0;
const RIGHT: f64 = 16.0;
/// Letters of a name on the left.
const NAME_MAX: usize = 15;

/// A linear scale from values to places.
#[derive(Clone, Copy, Debug)]
struct ChartScale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl ChartScale {
    /// With a margin of 4 % on both sides. None without values.
    fn of(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<ChartScale> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            return None;
        }
        let margin = match high - low {
            span if span > 0.0 => 0.04 * span,
            _ if low == 0.0 => 1.0,
            _ => 0.02 * low.abs(),
        };
        Some(ChartScale {
            low: low - margin,
            high: high + margin,
            from,
            to,
        })
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Three to six round values.
    fn ticks(&self) -> Vec<f64> {
        let span = self.high - self.low;
        let rough = 10f64.powf((span / 5.0).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * rough);
        let step = steps.into_iter().find(|step| span / step <= 5.0);
        let step = step.unwrap_or(span);
        let first = (self.low / step).ceil() as i64;
        let ticks = (first..first + 7).map(|number| number as f64 * step);
        ticks.filter(|tick| *tick <= self.high).collect()
    }
}

/// Letters that have room on the left.
fn short(name: &str) -> String {
    match name.chars().count() > NAME_MAX {
        true => name.chars().take(NAME_MAX - 1).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

/// A shift that keeps equal values apart, from -1 to 1, the same each time.
fn jitter(index: usize) -> f64 {
    (index as f64 * 0.618_034).fract() * 2.0 - 1.0
}

/// The samples of two sides as dots, each with its median; `interval`: where the candidate's median would be, 95 %.
pub fn strip(
    names: [&str; 2],
    samples: &[Vec<f64>; 2],
    unit: &str,
    ci95: Option<[f64; 2]>,
) -> String {
    let medians = [0, 1].map(|side| median(&samples[side]));
    let interval = ci95
        .zip(medians[0])
        .map(|(ci, base)| ci.map(|ratio| ratio * base));
    let all = samples.iter().flatten().copied();
    let Some(scale) = ChartScale::of(all, LEFT, WIDTH - RIGHT) else {
        return String::new();
    };
    let side_words = |side: usize| {
        let median =
            medians[side].map_or("no sample".to_owned(), |median| show_value(median, unit));
        format!("{}: {median} (n={})", names[side], samples[side].len())
    };
    let sides: Vec<usize> = (0..2).filter(|side| !samples[*side].is_empty()).collect();
    let title = sides.iter().map(|side| side_words(*side));
    let title = format!("Samples of {}", title.collect::<Vec<_>>().join("; "));
    let height = 30.0 + 34.0 * sides.len() as f64;
    let mut out = format!(
        "<svg class=\"chart strip\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\"><title>{}</title>",
        escaped(&title)
    );
    axis_below(&mut out, &scale, unit, height);
    for (row, side) in sides.into_iter().enumerate() {
        let y = 20.0 + 34.0 * row as f64;
        let class = ["base", "cand"][side];
        let _ = write!(
            out,
            "<text x=\"0\" y=\"{:.1}\">{}</text>",
            y + 4.0,
            escaped(&short(names[side]))
        );
        if let Some([low, high]) = interval.filter(|_| side == 1) {
            let (low, high) = (scale.at(low), scale.at(high));
            let _ = write!(
                out,
                "<rect class=\"ci\" x=\"{low:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"28\"/>",
                y - 14.0,
                (high - low).max(1.0)
            );
        }
        for (index, value) in samples[side].iter().take(DOTS_MAX).enumerate() {
            let _ = write!(
                out,
                "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>",
                scale.at(*value),
                y + 9.0 * jitter(index)
            );
        }
        if let Some(median) = medians[side] {
            let x = scale.at(median);
            let _ = write!(
                out,
                "<path class=\"median {class}\" d=\"M{x:.1} {:.1}V{:.1}\"/>",
                y - 14.0,
                y + 14.0
            );
        }
    }
    out.push_str("</svg>");
    out
}

fn axis_below(out: &mut String, scale: &ChartScale, unit: &str, height: f64) {
    let y = height - 18.0;
    let _ = write!(
        out,
        "<path class=\"axis\" d=\"M{LEFT} {y}H{}\"/>",
        WIDTH - RIGHT
    );
    for tick in scale.ticks() {
        let x = scale.at(tick);
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{x:.1} 4V{y}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{}\">{}</text>",
            height - 4.0,
            escaped(&show_value(tick, unit))
        );
    }
}

/// The course of a series: a point a version, the levels between changes, and where each change may be.
pub fn course(course: &Course) -> String {
    let from = course.points.len().saturating_sub(POINTS_MAX);
    let points = &course.points[from..];
    let values = points.iter().filter_map(|point| point.value);
    const HEIGHT: f64 = 190.0;
    let (top, bottom) = (30.0, HEIGHT - 26.0);
    let Some(scale) = ChartScale::of(values, bottom, top) else {
        return String::new();
    };
    let step = (WIDTH - RIGHT - LEFT) / (points.len().max(2) - 1) as f64;
    let place = |index: f64| {
        let x = LEFT + (index - from as f64) * step;
        x.clamp(LEFT - 4.0, WIDTH - RIGHT + 4.0)
    };
    let changes = course.changes.iter().filter(|change| change.index > from);
    let changes: Vec<_> = changes
        .filter(|change| change.probability.is_some())
        .collect();
    let title = format!(
        "Course of {} over {} versions, {} where its level moved",
        course.metric,
        points.len(),
        changes.len()
    );
    let mut out = format!(
        "<svg class=\"chart course\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\"><title>{}</title>",
        escaped(&title)
    );
    for tick in scale.ticks() {
        let y = scale.at(tick);
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{}\"/><text x=\"0\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT,
            y + 4.0,
            escaped(&show_value(tick, &course.unit))
        );
    }
    for change in &changes {
        let ends = change.set.first().zip(change.set.last());
        if let Some((first, last)) = ends {
            // It happened between two points.
            let (low, high) = (place(*first as f64 - 1.0), place(*last as f64));
            let _ = write!(
                out,
                "<rect class=\"set\" x=\"{low:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                high - low,
                bottom - top
            );
        }
        let x = place(change.index as f64 - 0.5);
        let words = match change.ratio {
            Some(ratio) => format!("{} {}", show_ratio(ratio), change.most_likely),
            None => change.most_likely.clone(),
        };
        let anchor = if x > WIDTH * 0.7 { "end" } else { "start" };
        let _ = write!(
            out,
            "<path class=\"change\" d=\"M{x:.1} {top}V{bottom}\"/><text class=\"told\" x=\"{x:.1}\" y=\"20\" text-anchor=\"{anchor}\">{}</text>",
            escaped(&words)
        );
    }
    let bounds: Vec<usize> = [from]
        .into_iter()
        .chain(changes.iter().map(|change| change.index))
        .chain([course.points.len()])
        .collect();
    for pair in bounds.windows(2) {
        let level = course.points.get(pair[0]..pair[1]).unwrap_or_default();
        let values: Vec<f64> = level.iter().filter_map(|point| point.value).collect();
        if let Some(level) = median(&values) {
            let y = scale.at(level);
            let ends = [pair[0] as f64 - 0.4, pair[1] as f64 - 0.6].map(place);
            let _ = write!(
                out,
                "<path class=\"level\" d=\"M{:.1} {y:.1}H{:.1}\"/>",
                ends[0], ends[1]
            );
        }
    }
    for (index, point) in points.iter().enumerate() {
        if let Some(value) = point.value {
            let _ = write!(
                out,
                "<circle class=\"cand\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"><title>{}: {}</title></circle>",
                place((from + index) as f64),
                scale.at(value),
                escaped(&point.version),
                escaped(&show_value(value, &course.unit))
            );
        }
    }
    if let Some((first, last)) = points.first().zip(points.last()) {
        let y = HEIGHT - 6.0;
        let _ = write!(
            out,
            "<text x=\"{LEFT}\" y=\"{y}\">{}</text>",
            escaped(&short(&first.version))
        );
        if points.len() > 1 {
            let _ = write!(
                out,
                "<text x=\"{}\" y=\"{y}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                escaped(&short(&last.version))
            );
        }
    }
    out.push_str("</svg>");
    out
}

/// An interval of a ratio beside no change, on a scale of logarithms from -`span` to `span`.
pub fn interval(ratio: f64, ci95: [f64; 2], span: f64, class: &str) -> String {
    let place = |ratio: f64| {
        let log = if ratio > 0.0 { ratio.ln() } else { -span };
        60.0 + (log / span).clamp(-1.0, 1.0) * 56.0
    };
    let [low, high] = ci95.map(place);
    format!(
        "<svg class=\"forest {class}\" viewBox=\"0 0 120 20\" aria-hidden=\"true\"><path class=\"zero\" d=\"M60 1V19\"/><path class=\"line\" d=\"M{low:.1} 10H{high:.1}\"/><circle cx=\"{:.1}\" cy=\"10\" r=\"3.5\"/></svg>",
        place(ratio)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_round() {
        let check = |low: f64, high: f64, expected: &[f64]| {
            let scale = ChartScale {
                low,
                high,
                from: 0.0,
                to: 1.0,
            };
            assert_eq!(scale.ticks(), expected, "{low} {high}");
        };
        check(0.0, 10.0, &[0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        check(931.0, 1049.0, &[950.0, 1000.0]);
        check(-1.0, 1.0, &[-1.0, -0.5, 0.0, 0.5, 1.0]);
    }

    #[test]
    fn equal_samples_and_no_samples_can_be_drawn() {
        let chart = strip(["a", "b"], &[vec![5.0; 3], vec![5.0; 3]], "s", None);
        assert_eq!(chart.matches("<circle").count(), 6);
        assert!(!chart.contains("NaN"), "{chart}");
        assert_eq!(strip(["a", "b"], &[vec![], vec![]], "s", None), "");
    }
}
