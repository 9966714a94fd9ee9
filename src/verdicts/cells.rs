//! What each cell measured, in little room: a name is made when it is shown.

use serde::{Serialize, Serializer};

use crate::base::diag::Diagnostic;
use crate::base::sample::Better;
use crate::plan::cell::Cells;
use crate::plan::dag::Plan;
use crate::resolve::samples::Samples;
use crate::verdicts::comparisons::level;

/// What one cell measured of one metric.
#[derive(Clone, Debug, Serialize)]
pub struct CellRow<'a> {
    pub cell: String,
    pub metric: &'a str,
    pub unit: &'a str,
    pub better: Better,
    pub median: f64,
    pub n: usize,
}

/// What all cells measured, in the order of the cells.
#[derive(Clone, Debug, Default)]
pub struct CellRows {
    /// None where there are no rows.
    cells: Option<Cells>,
    /// Metrics as they are shown: few, which all rows share.
    metrics: Vec<(String, String, Better)>,
    rows: Vec<Median>,
}

#[derive(Clone, Copy, Debug)]
struct Median {
    cell: u32,
    metric: u32,
    n: u32,
    median: f64,
}

impl CellRows {
    /// A row for each cell of the plan and each declared metric that has samples. Err where the name of a metric
    /// cannot be rendered for a cell.
    pub fn of(plan: &Plan, samples: &Samples) -> Result<CellRows, Diagnostic> {
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
                all.rows.push(Median {
                    cell,
                    metric,
                    n: series.samples.len() as u32,
                    median,
                });
            }
        }
        all.cells = Some(plan.cells.clone()).filter(|_| !all.rows.is_empty());
        Ok(all)
    }

    fn metric(&mut self, name: &str, unit: &str, better: Better) -> u32 {
        let mut known = self.metrics.iter();
        let at = known.position(|known| (&*known.0, &*known.1, known.2) == (name, unit, better));
        let at = at.unwrap_or_else(|| {
            self.metrics
                .push((name.to_owned(), unit.to_owned(), better));
            self.metrics.len() - 1
        });
        at as u32
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Cells of which there is any row.
    pub fn cells(&self) -> usize {
        self.rows.chunk_by(|a, b| a.cell == b.cell).count()
    }

    pub fn iter(&self) -> impl Iterator<Item = CellRow<'_>> {
        let cells = self.cells.iter();
        cells.flat_map(|cells| {
            self.rows.iter().map(|row| {
                let (metric, unit, better) = &self.metrics[row.metric as usize];
                CellRow {
                    cell: cells.name(cells.cell(row.cell as usize)),
                    metric,
                    unit,
                    better: *better,
                    median: row.median,
                    n: row.n as usize,
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
