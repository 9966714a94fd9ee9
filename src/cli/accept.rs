//! `matrix accept`: whose changes are accepted, by whom and why.

use std::collections::BTreeSet;

use clap::Args;

use super::past;
use super::show::{self, Stop};
use super::{Common, Exit};
use crate::base::diag::{Diagnostic, Sources};
use crate::base::units::count;
use crate::edge::git::user_name;
use crate::edge::store::{Acceptance, AcceptedFrom, SeriesId};
use crate::report::text::accepted_line;
use crate::run::command::now_ms;
use crate::run::progress::say;
use crate::verdicts::document::{Acceptances, Document};
use crate::verdicts::history::Point;
use crate::verdicts::records::Records;
use crate::verdicts::report::AcceptedRow;
use crate::verdicts::series::causes;

#[derive(Debug, Args)]
pub struct AcceptArgs {
    #[command(flatten)]
    common: Common,
    /// Accept a cell as its latest version was last measured
    #[arg(conflicts_with_all = ["change", "undo", "list"])]
    cell: Option<String>,
    /// Accept a change point, by its number in `matrix changes`, with all cells that it moved
    #[arg(long, value_name = "ID", conflicts_with_all = ["undo", "list"])]
    change: Option<i64>,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Who; git's `user.name` or USER otherwise
    #[arg(long, value_name = "NAME")]
    author: Option<String>,
    /// Take an acceptance back
    #[arg(long, value_name = "ID", conflicts_with = "list")]
    undo: Option<i64>,
    /// List all acceptances, also those taken back
    #[arg(long)]
    list: bool,
}

pub fn accept(args: AcceptArgs) -> Exit {
    let mut sources = Sources::default();
    match carry_out(&args, &mut sources) {
        Ok(rows) => {
            if args.common.json {
                show::document(&Document::Acceptances(Acceptances { accepted: rows }));
            } else if rows.is_empty() {
                say("nothing is accepted");
            } else {
                let lines: Vec<String> = rows.iter().map(accepted_line).collect();
                show::out(&format!("{}\n", lines.join("\n")));
            }
            Exit::Fine
        }
        Err(stop) => show::stopped(&stop, &sources, args.common.json),
    }
}

fn carry_out(args: &AcceptArgs, sources: &mut Sources) -> Result<Vec<AcceptedRow>, Stop> {
    let records = past::read(&args.common, false, sources)?;
    let now = now_ms();
    if args.list {
        return Ok(records
            .acceptances
            .iter()
            .map(AcceptedRow::of_any)
            .collect());
    }
    let id = match args.undo {
        Some(id) if records.store.undo_acceptance(&records.matrix, id, now)? => id,
        Some(id) => {
            return Err(Stop::message(format!(
                "there is no acceptance {id} that holds; `--list` shows all"
            )));
        }
        None => {
            let acceptance = wanted(args, &records, now)?;
            records.store.accept(&records.matrix, &acceptance)?
        }
    };
    let all = records.store.acceptances(&records.matrix)?;
    let own = all.iter().filter(|acceptance| acceptance.id == id);
    Ok(own.map(AcceptedRow::of_any).collect())
}

fn wanted(args: &AcceptArgs, records: &Records, now: i64) -> Result<Acceptance, Stop> {
    let reason = args
        .reason
        .as_deref()
        .map(str::trim)
        .filter(|reason| !reason.is_empty());
    let Some(reason) = reason else {
        return Err(Stop::message("say why it is accepted: `--reason TEXT`"));
    };
    let named = &args.common.versions;
    let of_versions = |what: String| match named.is_empty() {
        true => what,
        false => format!("{what} of {}", named.join(", ")),
    };
    let (what, series) = match (&args.cell, args.change, args.common.only.is_empty()) {
        (None, Some(id), true) if named.is_empty() => {
            (format!("change {id}"), of_change(records, id)?)
        }
        (None, Some(_), _) => {
            return Err(Stop::message(
                "a change is accepted with all that it moved: leave `--only` and `--version` out",
            ));
        }
        (Some(cell), None, true) => {
            let mut parts = cell.split(',');
            let version = parts.find_map(|part| part.strip_prefix("version="));
            let own = records.cell(cell)?;
            let is_it = |point: &Point| version.is_none_or(|version| *point.version == *version);
            let series = latest(records, &|id, point| id.cell == own && is_it(point));
            (of_versions(cell.clone()), series)
        }
        (None, None, false) => {
            let only = args.common.only.join(" and ");
            (of_versions(only), latest(records, &|_, _| true))
        }
        _ => {
            return Err(Stop::message(
                "name what is accepted by one of: a cell, `--only EXPR`, `--change ID`",
            ));
        }
    };
    if series.is_empty() {
        let message = format!("nothing is stored of {what}");
        return Err(Stop {
            diagnostics: vec![Diagnostic::error(message)],
            exit: Exit::Nothing,
        });
    }
    say(&format!("accepted: {}", count(series.len(), "metric")));
    Ok(Acceptance {
        id: 0,
        what,
        reason: reason.to_owned(),
        author: args
            .author
            .clone()
            .or_else(user)
            .unwrap_or_else(|| "?".to_owned()),
        accepted_ms: now,
        undone_ms: None,
        series,
    })
}

/// The series of a change point's cause, each from the last place where the change may be on: no commit before the change
/// becomes the baseline.
fn of_change(records: &Records, id: i64) -> Result<Vec<AcceptedFrom>, Stop> {
    let moved = records.changes(&|_| true, false)?;
    let told = causes(
        moved
            .iter()
            .filter_map(|moved| records.told(moved))
            .collect(),
    );
    let has = |number: Option<i64>| number == Some(id);
    let cause = told
        .into_iter()
        .find(|cause| cause.cells.iter().any(|cell| has(cell.id)));
    let Some(cause) = cause else {
        return Err(Stop::message(format!(
            "there is no change {id}; `matrix changes` lists them with their numbers"
        )));
    };
    let numbers: Vec<Option<i64>> = cause.cells.iter().map(|cell| cell.id).collect();
    let own = moved
        .iter()
        .filter(|moved| moved.id.is_some() && numbers.contains(&moved.id));
    Ok(own
        .filter_map(|moved| from(records, &moved.series, *moved.set.last()?))
        .collect())
}

/// Series from their latest version, of those that are asked for, as it was measured last. Where another one was
/// measured after that, belatedly, this is said.
fn latest(records: &Records, wanted: &dyn Fn(&SeriesId, &Point) -> bool) -> Vec<AcceptedFrom> {
    let of_version = |id: &SeriesId, point: &Point| {
        let versions = records.versions.as_ref();
        versions.is_none_or(|versions| versions.contains(&(id.clone(), point.version.to_string())))
    };
    let mut belated = BTreeSet::new();
    let own = records.names.keys().filter_map(|id| {
        let series = records.past.series.get(id)?;
        let points = series.points.iter().chain(&series.again);
        let own: Vec<&Point> = points
            .filter(|point| wanted(id, point) && of_version(id, point))
            .collect();
        let last = own
            .iter()
            .max_by_key(|point| (point.position, point.session))?;
        let measured = own
            .iter()
            .max_by_key(|point| (point.session, point.position))?;
        if measured.version != last.version {
            belated.insert((last.version.clone(), measured.version.clone()));
        }
        from(records, id, series.position(last.key)?)
    });
    let own = own.collect();
    for (last, measured) in belated {
        say(&format!(
            "note: accepted as of `{last}`, its latest version; measured last was `{measured}`: \
             `--version {measured}` accepts that"
        ));
    }
    own
}

fn from(records: &Records, id: &SeriesId, index: usize) -> Option<AcceptedFrom> {
    let point = records.past.series.get(id)?.points.get(index)?;
    Some(AcceptedFrom {
        series: id.clone(),
        key: point.key,
        version: point.version.to_string(),
        since_ms: point.started_ms,
    })
}

/// Git's `user.name`, else the login name.
fn user() -> Option<String> {
    let name = std::env::current_dir()
        .ok()
        .and_then(|folder| user_name(&folder));
    name.or_else(|| std::env::var("USER").ok())
        .filter(|name| !name.is_empty())
}
