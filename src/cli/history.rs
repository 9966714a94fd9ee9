//! `matrix history` and `matrix changes`.

use std::path::PathBuf;

use clap::Args;

use super::files;
use super::past;
use super::pivot::TableFormat;
use super::show::{self, Stop};
use super::{Common, Exit};
use crate::base::diag::{Sources, suggest};
use crate::edge::csv::read_series;
use crate::edge::store::SeriesId;
use crate::judge::changepoint::{DetectorOptions, changes as change_points, modes_of};
use crate::report::changes::{causes_text, file_text, history_text};
use crate::report::rows;
use crate::run::command::now_ms;
use crate::verdicts::changes::tell;
use crate::verdicts::document::Document;
use crate::verdicts::series::{FileChange, FileChanges, FileSeries, History, MatrixChanges};

#[derive(Debug, Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    common: Common,
    /// The cell's name, without a version; all cells otherwise
    cell: Option<String>,
    /// Only this metric
    #[arg(long)]
    metric: Option<String>,
    /// `text`, or `csv`: a line a point
    #[arg(long, value_enum, default_value_t = TableFormat::Text)]
    format: TableFormat,
}

#[derive(Debug, Args)]
pub struct ChangesArgs {
    #[command(flatten)]
    common: Common,
    /// Look at a file instead of a matrix: first column a revision, each other column a series
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Look at the whole of each series again, and say which reported change would now be elsewhere or gone
    #[arg(long)]
    review: bool,
    /// `text`, or `csv`: a line for each cell of each change
    #[arg(long, value_enum, default_value_t = TableFormat::Text, conflicts_with = "csv")]
    format: TableFormat,
}

pub fn history(args: HistoryArgs) -> Exit {
    let mut sources = Sources::default();
    match course(&args, &mut sources) {
        Ok(history) => {
            match args.common.json {
                true => show::document(&Document::History(&history)),
                false if args.format == TableFormat::Csv => show::out(&rows::history(&history)),
                false => show::out(&history_text(&history, show::style())),
            }
            match history.series.is_empty() {
                true => Exit::Nothing,
                false => Exit::Fine,
            }
        }
        Err(stop) => show::stopped(&stop, &sources, args.common.json),
    }
}

pub fn changes(args: ChangesArgs) -> Exit {
    let mut sources = Sources::default();
    let json = args.common.json;
    let done = match (&args.csv, args.common.matrix.as_os_str().is_empty()) {
        (Some(file), true) => of_file(file).map(|found| match json {
            true => show::document(&Document::FileChanges(&found)),
            false => show::out(&file_text(&found, show::style())),
        }),
        (None, false) => of_matrix(&args, &mut sources).map(|found| match json {
            true => show::document(&Document::Changes(&found)),
            false if args.format == TableFormat::Csv => show::out(&rows::changes(&found)),
            false => show::out(&causes_text(&found, show::style())),
        }),
        _ => Err(Stop::message(
            "`matrix changes` looks at a matrix or, with `--csv FILE`, at a file: give one of them",
        )),
    };
    match done {
        Ok(()) => Exit::Fine,
        Err(stop) => show::stopped(&stop, &sources, json),
    }
}

fn of_file(file: &std::path::Path) -> Result<FileChanges, Stop> {
    let name = file.display().to_string();
    let (text, bytes) = files::open(file)
        .map_err(|error| Stop::message(format!("`{name}`: {}", files::in_words(error))))?;
    let table =
        read_series(&name, bytes, text).map_err(|error| Stop::message(error.to_string()))?;
    let told = |(name, points): (String, Vec<Option<f64>>)| FileSeries {
        name,
        points: points.iter().flatten().count(),
        modes: modes_of(&points),
        changes: change_points(&points, &DetectorOptions::default())
            .into_iter()
            .map(|change| FileChange {
                revision: table.revisions[change.index].clone(),
                set: change
                    .set
                    .iter()
                    .map(|at| table.revisions[*at].clone())
                    .collect(),
                change,
            })
            .collect(),
    };
    Ok(FileChanges {
        series: table.series.into_iter().map(told).collect(),
    })
}

fn of_matrix(args: &ChangesArgs, sources: &mut Sources) -> Result<MatrixChanges, Stop> {
    // With a filter not all is looked at: then nothing counts as told.
    let is_whole = args.common.only.is_empty();
    let records = past::of_all_versions(&args.common, is_whole, sources)?;
    let mut moved = records.changes(&|_| true, args.review)?;
    let place = (records.matrix.as_str(), records.preset.as_str());
    if is_whole {
        tell(&records.store, &records.past, place, &mut moved, now_ms())?;
    }
    Ok(records.causes(&moved)?)
}

fn course(args: &HistoryArgs, sources: &mut Sources) -> Result<History, Stop> {
    let records = past::of_all_versions(&args.common, false, sources)?;
    let cell = args
        .cell
        .as_deref()
        .map(|name| records.cell(name))
        .transpose()?;
    if let Some(metric) = &args.metric
        && !records.names.values().any(|named| named.metric == *metric)
    {
        let known = records.names.values().map(|named| named.metric.as_str());
        let help = suggest(metric, known);
        return Err(Stop::message(format!(
            "there is no metric `{metric}`; {help}"
        )));
    }
    let wanted = |id: &SeriesId| {
        let named = records.names.get(id);
        cell.as_ref().is_none_or(|cell| id.cell == *cell)
            && named.is_some_and(|n| {
                args.metric
                    .as_ref()
                    .is_none_or(|metric| n.metric == *metric)
            })
    };
    let moved = records.changes(&wanted, cell.is_some())?;
    Ok(records.history(&wanted, &moved)?)
}
