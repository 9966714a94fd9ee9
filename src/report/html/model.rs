//! A report as a page needs it: rows with the samples of both sides, and the axes that they vary in.

use std::collections::HashMap;

use crate::base::sample::Better;
use crate::judge::verdict::Verdict;
use crate::verdicts::cells::{CellName, CellRow, SampleRow};
use crate::verdicts::report::{Report, VerdictRow};
use crate::verdicts::series::Course;

/// The value of an axis that a row does not have.
pub const NO_VALUE: u32 = u32::MAX;

/// How a row is shown: by colour, by sign and by word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tone {
    Worse,
    Suspected,
    Better,
    Inconclusive,
    Nothing,
    Same,
    /// Measured, and compared with nothing.
    Plain,
}

impl Tone {
    pub const ALL: [Tone; 7] = [
        Tone::Worse,
        Tone::Suspected,
        Tone::Better,
        Tone::Inconclusive,
        Tone::Nothing,
        Tone::Same,
        Tone::Plain,
    ];

    /// The class of its elements in `page.css`.
    pub fn class(self) -> &'static str {
        match self {
            Tone::Worse => "worse",
            Tone::Suspected => "suspected",
            Tone::Better => "better",
            Tone::Inconclusive => "unsure",
            Tone::Nothing => "nothing",
            Tone::Same => "same",
            Tone::Plain => "plain",
        }
    }

    /// A sign for those who see no colours.
    pub fn sign(self) -> &'static str {
        match self {
            Tone::Worse => "▼",
            Tone::Suspected => "!",
            Tone::Better => "▲",
            Tone::Inconclusive => "?",
            Tone::Nothing => "∅",
            Tone::Same => "=",
            Tone::Plain => "·",
        }
    }

    fn of(verdict: Verdict) -> Tone {
        match verdict {
            Verdict::Regression => Tone::Worse,
            Verdict::Improvement => Tone::Better,
            Verdict::Suspected => Tone::Suspected,
            Verdict::Same => Tone::Same,
            Verdict::Inconclusive => Tone::Inconclusive,
            Verdict::NothingMeasured => Tone::Nothing,
        }
    }
}

/// An axis with the values that rows have, in the order of the matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageAxis {
    pub name: String,
    pub values: Vec<String>,
}

/// One comparison of one metric, or one metric of one cell where nothing is compared.
#[derive(Debug)]
pub struct PageRow<'a> {
    /// For each axis the number of the value, or [`NO_VALUE`].
    pub values: Vec<u32>,
    pub metric: usize,
    pub tone: Tone,
    pub verdict: Option<&'a VerdictRow>,
    /// Of a row that is compared with nothing.
    pub median: Option<f64>,
    /// The samples of baseline and candidate, in the order of the rounds.
    pub samples: [Vec<f64>; 2],
    /// The number of its series in `Report::history`.
    pub series: Option<usize>,
}

/// What a page shows.
#[derive(Debug)]
pub struct PageModel<'a> {
    pub axes: Vec<PageAxis>,
    /// Name, unit, and which direction is better.
    pub metrics: Vec<(String, String, Better)>,
    pub rows: Vec<PageRow<'a>>,
}

/// Axes and their values by number, as they come.
#[derive(Default)]
struct Numbers {
    axes: Vec<PageAxis>,
    known: Vec<HashMap<String, u32>>,
    metrics: Vec<(String, String, Better)>,
}

impl Numbers {
    fn axis(&mut self, name: &str) -> usize {
        let found = self.axes.iter().position(|axis| axis.name == name);
        found.unwrap_or_else(|| {
            self.axes.push(PageAxis {
                name: name.to_owned(),
                values: Vec::new(),
            });
            self.known.push(HashMap::new());
            self.axes.len() - 1
        })
    }

    fn value(&mut self, axis: usize, value: &str) -> u32 {
        if let Some(number) = self.known[axis].get(value) {
            return *number;
        }
        let values = &mut self.axes[axis].values;
        let number = values.len() as u32;
        values.push(value.to_owned());
        self.known[axis].insert(value.to_owned(), number);
        number
    }

    fn cell(&mut self, cell: &CellName) -> Vec<u32> {
        let mut numbers = vec![NO_VALUE; self.axes.len()];
        for (name, value) in cell.axes() {
            let axis = self.axis(name);
            numbers.resize(self.axes.len(), NO_VALUE);
            numbers[axis] = self.value(axis, value);
        }
        numbers
    }

    fn metric(&mut self, name: &str, unit: &str, better: Better) -> usize {
        let mut known = self.metrics.iter();
        let found = known.position(|known| (&*known.0, &*known.1, known.2) == (name, unit, better));
        found.unwrap_or_else(|| {
            self.metrics
                .push((name.to_owned(), unit.to_owned(), better));
            self.metrics.len() - 1
        })
    }
}

/// A cell without trailing axes that it does not have: so that axes found later make no difference.
fn trimmed(mut values: Vec<u32>) -> Vec<u32> {
    while values.last() == Some(&NO_VALUE) {
        values.pop();
    }
    values
}

impl<'a> PageModel<'a> {
    pub fn of(report: &'a Report) -> PageModel<'a> {
        let mut numbers = Numbers::default();
        for axis in &report.axes {
            let at = numbers.axis(&axis.name);
            for value in &axis.values {
                numbers.value(at, value);
            }
        }
        let series = series_by_cell(report, &mut numbers);
        let mut rows: Vec<PageRow> = Vec::new();
        let version = numbers.axes.iter().position(|axis| axis.name == "version");
        let without_version = |values: &[u32]| {
            let mut values = values.to_vec();
            if let Some(number) = version.and_then(|at| values.get_mut(at)) {
                *number = NO_VALUE;
            }
            trimmed(values)
        };
        let cells = report.cells.iter();
        for cell in cells.filter(|_| report.verdicts.is_empty()) {
            let CellRow {
                metric,
                unit,
                better,
                median,
                ..
            } = cell;
            let values = numbers.cell(&cell.cell);
            let samples = cell.samples.iter().map(|sample| sample.value).collect();
            rows.push(PageRow {
                series: series
                    .get(&(without_version(&values), metric.to_owned()))
                    .copied(),
                values,
                metric: numbers.metric(metric, unit, better),
                tone: Tone::Plain,
                verdict: None,
                median: Some(median),
                samples: [Vec::new(), samples],
            });
        }
        for row in &report.verdicts {
            let values = numbers.cell(&row.cell);
            let axis = numbers.axis(&row.axis);
            let mut candidate = values.clone();
            candidate.resize(numbers.axes.len(), NO_VALUE);
            candidate[axis] = numbers.value(axis, &row.candidate);
            let of_candidate = without_version(&candidate);
            let values_of =
                |side: &Vec<SampleRow>| side.iter().map(|sample| sample.value).collect();
            let samples = row.samples.each_ref().map(values_of);
            rows.push(PageRow {
                series: series.get(&(of_candidate, row.metric.clone())).copied(),
                values,
                metric: numbers.metric(&row.metric, &row.unit, row.better),
                tone: Tone::of(row.comparison.verdict),
                verdict: Some(row),
                median: None,
                samples,
            });
        }
        let axes = numbers.axes.len();
        for row in &mut rows {
            row.values.resize(axes, NO_VALUE);
        }
        PageModel {
            axes: numbers.axes,
            metrics: numbers.metrics,
            rows,
        }
    }

    /// The axes in which rows differ, by number.
    pub fn varying(&self) -> Vec<usize> {
        let differs = |axis: &usize| {
            let first = self.rows.first().map(|row| row.values[*axis]);
            self.rows.iter().any(|row| Some(row.values[*axis]) != first)
        };
        (0..self.axes.len()).filter(differs).collect()
    }

    /// What all rows have in common: `machine=here`.
    pub fn common(&self) -> Vec<String> {
        let varying = self.varying();
        let of_all = |axis: usize| {
            let value = self.rows.first()?.values[axis];
            let value = self.axes[axis].values.get(value as usize)?;
            Some(format!("{}={value}", self.axes[axis].name))
        };
        (0..self.axes.len())
            .filter(|axis| !varying.contains(axis))
            .filter_map(of_all)
            .collect()
    }

    /// A row's cell in the axes that vary: `cache=none bs=4k`; of a single cell its whole name.
    pub fn name(&self, row: &PageRow, varying: &[usize]) -> String {
        let all: Vec<usize> = (0..self.axes.len()).collect();
        let shown = if varying.is_empty() {
            &all[..]
        } else {
            varying
        };
        let word = |axis: &usize| {
            let value = self.axes[*axis].values.get(row.values[*axis] as usize)?;
            Some(format!("{}={value}", self.axes[*axis].name))
        };
        let words: Vec<String> = shown.iter().filter_map(word).collect();
        words.join(" ")
    }
}

/// Series by cell (without its version) and metric.
fn series_by_cell(report: &Report, numbers: &mut Numbers) -> HashMap<(Vec<u32>, String), usize> {
    let machine = numbers.axes.iter().position(|axis| axis.name == "machine");
    let mut list = HashMap::new();
    for (number, course) in report.history.iter().enumerate() {
        let Course { cell, metric, .. } = course;
        let mut values = numbers.cell(cell);
        // The name of a series may leave its machine out.
        if let Some(machine) = machine.filter(|at| values[*at] == NO_VALUE) {
            values[machine] = numbers.value(machine, &course.machine);
        }
        list.insert((trimmed(values), metric.clone()), number);
    }
    list
}
