//! `matrix show`: the plain results that are stored, axes in rows and columns.

use std::collections::BTreeSet;

use clap::Args;

use super::load::load;
use super::run::{block_on, stored_failures, tell_versions};
use super::show::{self, Stop};
use super::{Common, Exit};
use crate::base::diag::{Sources, suggest};
use crate::report::pivot::{Layout, results};
use crate::report::rows;
use crate::resolve::samples::Samples;
use crate::run::progress::say;
use crate::verdicts::context;
use crate::verdicts::document::Document;
use crate::verdicts::metric_check::unmatched;
use crate::verdicts::report::{self, AxisRow, Report};

#[derive(Debug, Args)]
pub struct ShowArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    layout: LayoutOptions,
    /// Only this metric; may be repeated
    #[arg(long, value_name = "NAME")]
    metric: Vec<String>,
    /// `text`, or `csv`: a line for each cell and metric
    #[arg(long, value_enum, default_value_t = TableFormat::Text)]
    format: TableFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TableFormat {
    Text,
    Csv,
}

/// Which axes are rows and which are columns.
#[derive(Clone, Debug, Default, Args)]
pub struct LayoutOptions {
    /// Axes to put in rows, such as `cache,aio`; by default what fits the terminal with the fewest rows
    #[arg(long, value_name = "AXIS,…", value_delimiter = ',')]
    rows: Option<Vec<String>>,
    /// Axes to put in columns
    #[arg(
        long,
        visible_alias = "columns",
        value_name = "AXIS,…",
        value_delimiter = ','
    )]
    cols: Option<Vec<String>>,
}

impl LayoutOptions {
    pub fn is_given(&self) -> bool {
        self.rows.is_some() || self.cols.is_some()
    }

    /// Err where there is no such axis, or one is named twice. `more`: axes beside those of the cells.
    pub fn layout(&self, axes: &[AxisRow], more: &[&str]) -> Result<Layout, Stop> {
        let names = self.rows.iter().chain(&self.cols).flatten();
        let mut seen = BTreeSet::new();
        for name in names {
            let mut known = axes
                .iter()
                .map(|axis| axis.name.as_str())
                .chain(more.iter().copied());
            if !known.any(|known| known == name) {
                let known = axes.iter().map(|axis| axis.name.as_str());
                let help = suggest(name, known);
                return Err(Stop::message(format!("there is no axis `{name}`; {help}")));
            }
            if !seen.insert(name) {
                return Err(Stop::message(format!(
                    "axis `{name}` is named twice: an axis is in rows or in columns"
                )));
            }
        }
        Ok(Layout {
            rows: self.rows.clone(),
            columns: self.cols.clone(),
        })
    }
}

pub fn show(args: ShowArgs) -> Exit {
    let mut sources = Sources::default();
    let json = args.common.json;
    let shown = block_on(stored(&args, &mut sources)).and_then(|report| {
        let layout = args.layout.layout(&report.axes, &[])?;
        Ok((report, layout))
    });
    match shown {
        Ok((report, layout)) => {
            match args.format {
                _ if json => show::document(&Document::Report(&report)),
                TableFormat::Csv => show::out(&rows::cells(&report)),
                TableFormat::Text => show::out(&results(&report, &layout, show::style())),
            }
            match report.cells.is_empty() {
                true => Exit::Nothing,
                false => Exit::Fine,
            }
        }
        Err(stop) => show::stopped(&stop, &sources, json),
    }
}

async fn stored(args: &ShowArgs, sources: &mut Sources) -> Result<Report, Stop> {
    let loaded = load(&args.common, sources)?;
    let metrics = loaded
        .matrix
        .metrics
        .iter()
        .map(|metric| metric.name.as_str());
    for name in &args.metric {
        if !metrics.clone().any(|metric| metric == name) {
            let help = suggest(name, metrics);
            return Err(Stop::message(format!(
                "there is no metric `{name}`; {help}"
            )));
        }
    }
    let looked = loaded.look(&args.common).await?;
    let store = loaded.store()?;
    let world = loaded.world(&looked, store.as_ref())?;
    let plan = loaded.plan(&args.common, &looked, &world)?;
    let failed = stored_failures(&plan, store.as_ref())?;
    let Some(store) = store else {
        return Ok(report::results(&plan, Samples::default(), failed)?);
    };
    let samples = Samples::of(&plan, &store)?;
    for line in unmatched(&plan, &samples)? {
        say(&format!("warning: {line}"));
    }
    let mut report = report::results(&plan, samples, failed)?;
    context::add(&mut report, &plan, &store, false)?;
    if !args.metric.is_empty() {
        report.cells.keep_metrics(&args.metric);
    }
    if report.cells.is_empty() {
        tell_versions(&store, &loaded.matrix.name)?;
    }
    Ok(report)
}
