//! The rows of a page as compact JSON, for its script: words and values by number, samples to six digits.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::judge::verdict::Verdict;
use crate::report::html::PageInput;
use crate::report::html::escape::{json_list, json_number, json_option, json_string};
use crate::report::html::heat::HeatLayout;
use crate::report::html::model::{NO_VALUE, PageModel, PageRow, Tone};
use crate::verdicts::series::{CellChange, Course};

/// Samples of one side of a row, and points of all series, that a page holds.
const SAMPLES_MAX: usize = 200;
const POINTS_MAX: usize = 100_000;

/// Words by number.
#[derive(Default)]
struct Words {
    list: Vec<String>,
    known: HashMap<String, usize>,
}

impl Words {
    fn number(&mut self, word: &str) -> String {
        if let Some(number) = self.known.get(word) {
            return number.to_string();
        }
        self.known.insert(word.to_owned(), self.list.len());
        self.list.push(word.to_owned());
        (self.list.len() - 1).to_string()
    }
}

/// The document of `page.js`, which says what each place holds.
pub fn data(input: &PageInput, model: &PageModel, layout: &HeatLayout) -> String {
    let mut words = Words::default();
    let strings = |list: &[String]| json_list(list.iter().map(|word| json_string(word)));
    let axes = model.axes.iter().map(|axis| {
        let name = json_string(&axis.name);
        json_list([name, strings(&axis.values)])
    });
    let metrics = model
        .metrics
        .iter()
        .map(|(name, unit, better)| json_list([name, unit, better.name()].map(json_string)));
    let tones = Tone::ALL.map(|tone| json_list([tone.class(), tone.sign()].map(json_string)));
    let rows = json_list(model.rows.iter().map(|row| line(row, model, &mut words)));
    // Where there is no room for all, those without a change are left out.
    let history = &input.report.history;
    let mut shown = vec![false; history.len()];
    let mut room = POINTS_MAX;
    for is_wanted in [true, false] {
        for (series, shown) in history.iter().zip(&mut shown) {
            let moved = !series.changes.is_empty();
            if moved == is_wanted && (2..=room).contains(&series.points.len()) {
                room -= series.points.len();
                *shown = true;
            }
        }
    }
    let series = json_list(
        history
            .iter()
            .zip(shown)
            .map(|(series, shown)| match shown {
                true => course(series, &mut words),
                false => "null".to_owned(),
            }),
    );
    let mut out = String::from("{");
    let numbers = |list: &[usize]| json_list(list.iter().map(usize::to_string));
    let fields = [
        ("axes", json_list(axes)),
        ("metrics", json_list(metrics)),
        ("tones", json_list(tones)),
        ("varying", numbers(&model.varying())),
        ("rowAxes", numbers(&layout.rows)),
        ("columnAxes", numbers(&layout.columns)),
        ("command", json_string(input.command)),
        ("rows", rows),
        ("series", series),
        ("words", strings(&words.list)),
    ];
    for (index, (name, value)) in fields.into_iter().enumerate() {
        let comma = if index == 0 { "" } else { ",\n" };
        let _ = write!(out, "{comma}\"{name}\":{value}");
    }
    out.push('}');
    out
}

fn line(row: &PageRow, model: &PageModel, words: &mut Words) -> String {
    let values = row.values.iter().map(|value| match *value {
        NO_VALUE => "-1".to_owned(),
        value => value.to_string(),
    });
    let samples = row.samples.each_ref().map(|side| {
        json_list(
            side.iter()
                .take(SAMPLES_MAX)
                .map(|value| json_number(*value)),
        )
    });
    let tone = Tone::ALL.iter().position(|tone| *tone == row.tone);
    let number = |at: Option<usize>| at.map_or("-1".to_owned(), |at| at.to_string());
    let mut fields = vec![
        json_list(values),
        row.metric.to_string(),
        number(tone),
        number(row.series),
    ];
    fields.extend(samples);
    match row.verdict {
        None => fields.push(json_option(row.median)),
        Some(verdict) => {
            let comparison = &verdict.comparison;
            let axis = model.axes.iter().position(|axis| axis.name == verdict.axis);
            let [low, high] = comparison.ci95.map_or([None, None], |ci| ci.map(Some));
            // Of what is not there a page needs no difference: only where there is no ratio.
            let difference = comparison.difference.filter(|_| comparison.ratio.is_none());
            fields.extend([
                json_option(verdict.candidate_median),
                json_option(verdict.baseline_median),
                number(axis),
                words.number(&verdict.baseline),
                words.number(&verdict.candidate),
                words.number(&verdict.words()),
                json_option(comparison.ratio),
                json_option(low),
                json_option(high),
                json_option(comparison.q.or(comparison.p)),
                u8::from(verdict.gate && comparison.verdict == Verdict::Regression).to_string(),
                comparison
                    .note
                    .as_ref()
                    .map_or("-1".to_owned(), |note| words.number(note)),
                comparison.more.map_or("null".to_owned(), |n| n.to_string()),
                json_option(difference),
                json_list(comparison.n.map(|n| n.to_string())),
            ]);
        }
    }
    json_list(fields)
}

fn course(course: &Course, words: &mut Words) -> String {
    let points = course.points.iter().map(|point| {
        json_list([
            words.number(&point.version),
            json_option(point.value),
            point.n.to_string(),
            words.number(point.at.get(..10).unwrap_or(&point.at)),
        ])
    });
    let points = json_list(points);
    let told = |change: &CellChange| {
        let set = [change.set.first(), change.set.last()];
        let ends = set.map(|at| at.map_or(change.index, |at| *at).to_string());
        json_list([
            change.index.to_string(),
            json_list(ends),
            json_option(change.ratio),
            words.number(&change.most_likely),
            json_option(change.probability),
        ])
    };
    let standing = course.changes.iter();
    let standing = standing.filter(|change| change.probability.is_some());
    json_list([points, json_list(standing.map(told))])
}
