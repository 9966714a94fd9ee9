//! What each cell measured: medians and samples, held compactly; a cell's name is made when it is shown.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Deref;

use schemars::JsonSchema;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::base::diag::Diagnostic;
use crate::base::sample::{Better, Sample};
use crate::judge::stats::stddev;
use crate::plan::cell::Cells;
use crate::plan::dag::Plan;
use crate::resolve::samples::Samples;
use crate::verdicts::comparisons::level;

/// The name of a cell, such as `machine=here,bs=4k`. Flattened into a row of JSON it is two keys: `cell`, and `axes` with
/// the value of each axis that the name mentions.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellName(pub String);

/// How a [`CellName`] is written.
#[derive(JsonSchema)]
#[allow(dead_code)]
pub struct NamedCell {
    /// The cell's name.
    cell: String,
    /// The value of each axis that the name mentions.
    axes: BTreeMap<String, String>,
}

impl CellName {
    /// Axes and values, in the order of the name.
    pub fn axes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.split(',').filter_map(|part| part.split_once('='))
    }
}

impl Deref for CellName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CellName {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for CellName {
    fn from(name: String) -> CellName {
        CellName(name)
    }
}

impl Serialize for CellName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Axes<'a>(&'a CellName);
        impl Serialize for Axes<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.axes())
            }
        }
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("cell", &self.0)?;
        map.serialize_entry("axes", &Axes(self))?;
        map.end()
    }
}

/// What one cell measured of one metric.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CellRow<'a> {
    #[serde(flatten)]
    #[schemars(with = "NamedCell")]
    pub cell: CellName,
    pub metric: &'a str,
    pub unit: &'a str,
    pub better: Better,
    pub median: f64,
    /// Standard deviation of the samples, in `unit`; null of a single sample.
    pub stddev: Option<f64>,
    pub n: usize,
    /// Measurements to be read with care: the machine was not quiet, or its profile was changed by somebody.
    pub noisy: u32,
    /// In the order of the rounds.
    #[schemars(with = "Vec<SampleRow>")]
    #[serde(serialize_with = "sample_rows")]
    pub samples: &'a [Sample],
}

/// One measured value.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct SampleRow {
    /// The invocation of `matrix run` that took it.
    pub session: i64,
    /// Counted from 0.
    pub round: u32,
    pub value: f64,
}

impl SampleRow {
    pub fn of(sample: &Sample) -> SampleRow {
        SampleRow {
            session: sample.session,
            round: sample.round,
            value: sample.value,
        }
    }
}

fn sample_rows<S: Serializer>(samples: &[Sample], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(samples.iter().map(SampleRow::of))
}

/// What all cells measured, in the order of the cells.
#[derive(Debug, Default)]
pub struct CellRows {
    /// None where there are no rows.
    cells: Option<Cells>,
    samples: Samples,
    /// Metrics as they are shown: few, which all rows share.
    metrics: Vec<(String, String, Better)>,
    /// The parsers' names for them.
    names: Vec<String>,
    rows: Vec<Median>,
    /// Marked measurements by run step, where there are any.
    noisy: HashMap<u32, u32>,
}

#[derive(Clone, Copy, Debug)]
struct Median {
    cell: u32,
    run: u32,
    metric: u16,
    name: u16,
    n: u32,
    median: f64,
}

impl CellRows {
    /// A row for each cell of the plan and each declared metric that has samples. Err where the name of a metric
    /// cannot be rendered for a cell.
    pub fn of(plan: &Plan, samples: Samples) -> Result<CellRows, Diagnostic> {
        let mut all = CellRows::default();
        for (cell, run) in (0..).zip(&plan.steps.runs.of_cell) {
            let names = plan.metric_names(cell)?;
            for (name, metric) in names.iter().zip(&plan.matrix.metrics) {
                let series = samples.get(*run, name);
                let Some(median) = level(series.samples) else {
                    continue;
                };
                let unit = metric.unit.as_deref().unwrap_or(series.unit);
                let better = metric.better.or(series.better).unwrap_or(Better::Higher);
                let metric = all.metric(&metric.name, unit, better);
                let name = all.name(name);
                all.rows.push(Median {
                    cell,
                    run: *run,
                    metric,
                    name,
                    n: series.samples.len() as u32,
                    median,
                });
            }
        }
        all.cells = Some(plan.cells.clone()).filter(|_| !all.rows.is_empty());
        all.samples = samples;
        Ok(all)
    }

    fn metric(&mut self, name: &str, unit: &str, better: Better) -> u16 {
        let mut known = self.metrics.iter();
        let at = known.position(|known| (&*known.0, &*known.1, known.2) == (name, unit, better));
        let at = at.unwrap_or_else(|| {
            self.metrics
                .push((name.to_owned(), unit.to_owned(), better));
            self.metrics.len() - 1
        });
        at as u16
    }

    fn name(&mut self, name: &str) -> u16 {
        let at = self.names.iter().position(|known| known == name);
        let at = at.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        at as u16
    }

    /// Notes a measurement of a run step that is to be read with care.
    pub fn note_mark(&mut self, run: u32) {
        *self.noisy.entry(run).or_default() += 1;
    }

    /// Leaves out all other metrics.
    pub fn keep_metrics(&mut self, names: &[String]) {
        let metrics = &self.metrics;
        self.rows
            .retain(|row| names.contains(&metrics[usize::from(row.metric)].0));
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// The numbers of the cells of which there is any row, some more than once.
    pub fn indexes(&self) -> impl Iterator<Item = u32> {
        self.rows.iter().map(|row| row.cell)
    }

    /// Cells of which there is any row.
    pub fn cells(&self) -> usize {
        self.rows.chunk_by(|a, b| a.cell == b.cell).count()
    }

    pub fn iter(&self) -> impl Iterator<Item = CellRow<'_>> {
        let cells = self.cells.iter();
        cells.flat_map(|cells| {
            self.rows.iter().map(|row| {
                let (metric, unit, better) = &self.metrics[usize::from(row.metric)];
                let name = &self.names[usize::from(row.name)];
                let samples = self.samples.get(row.run, name).samples;
                let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
                CellRow {
                    cell: CellName(cells.name(cells.cell(row.cell as usize))),
                    metric,
                    unit,
                    better: *better,
                    median: row.median,
                    stddev: stddev(&values),
                    n: row.n as usize,
                    noisy: self.noisy.get(&row.run).copied().unwrap_or(0),
                    samples,
                }
            })
        })
    }
}

impl Serialize for CellRows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_written_with_its_axes() {
        let check = |name: &str, expected: &str| {
            let name = CellName(name.to_owned());
            assert_eq!(serde_json::to_string(&name).unwrap(), expected);
        };
        check("", r#"{"cell":"","axes":{}}"#);
        check(
            "machine=here,load=jobs:1+iodepth:2,opt=a=b",
            r#"{"cell":"machine=here,load=jobs:1+iodepth:2,opt=a=b","axes":{"machine":"here","load":"jobs:1+iodepth:2","opt":"a=b"}}"#,
        );
    }
}
