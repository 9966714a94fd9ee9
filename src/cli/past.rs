//! What verbs about the past share: a matrix's series by the names that people use.

use std::collections::{BTreeMap, BTreeSet};

use super::load::{Loaded, load};
use super::show::Stop;
use super::{Common, Exit};
use crate::base::diag::{Diagnostic, Sources};
use crate::base::sample::Better;
use crate::edge::store::{Acceptance, SeriesId, Store};
use crate::plan::cell::Cells;
use crate::resolve::versions::{VERSIONS_MAX, VersionError, label_of};
use crate::verdicts::changes::{MovedSeries, look};
use crate::verdicts::comparisons::series_of;
use crate::verdicts::history::{ALL_SESSIONS, Past, PastSeries, What, accepted, preset_name};
use crate::verdicts::report::time;
use crate::verdicts::series::{CellChange, VersionPlace, direction};

/// A metric of the matrix, as a series knows it.
#[derive(Clone, Debug)]
pub struct Named {
    pub metric: String,
    pub unit: Option<String>,
    pub better: Option<Better>,
}

/// A matrix with its past. Neither machines nor versions are looked at.
pub struct Records {
    pub matrix: String,
    pub preset: String,
    pub store: Store,
    pub past: Past,
    /// The series that the matrix has cells and metrics for; others refer to nothing any more.
    pub names: BTreeMap<SeriesId, Named>,
    pub cells: Cells,
    pub acceptances: Vec<Acceptance>,
    /// The versions that are asked for, each of a series; None where none is.
    pub versions: Option<BTreeSet<(SeriesId, String)>>,
}

impl Records {
    /// `is_kept`: what is told is noted ([`crate::verdicts::changes::tell`]).
    pub fn read(common: &Common, is_kept: bool, sources: &mut Sources) -> Result<Records, Stop> {
        let loaded = load(common, sources)?;
        let store = loaded.store()?.ok_or_else(|| nothing_stored(&loaded))?;
        let labels = versions(common, &loaded, &store)?;
        let plan = loaded.plan_of_names(common, labels.clone().unwrap_or_default())?;
        let axis = plan.cells.axis("version").filter(|_| labels.is_some());
        let mut versions = BTreeSet::new();
        let mut names = BTreeMap::new();
        for cell in 0..plan.cells.len() as u32 {
            let from = plan.metric_names(cell)?.into_iter();
            for (from, metric) in from.zip(&loaded.matrix.metrics) {
                let named = Named {
                    metric: metric.name.clone(),
                    unit: metric.unit.clone(),
                    better: metric.better,
                };
                let id = series_of(&plan, cell, &from);
                versions.extend(axis.map(|axis| {
                    let label = plan.cells.label(plan.cells.cell(cell as usize), axis);
                    (id.clone(), label.to_owned())
                }));
                names.insert(id, named);
            }
        }
        let preset = preset_name(&loaded.matrix, common.preset.as_deref());
        let what = What {
            sessions: ALL_SESSIONS,
            metrics: &names.keys().map(|id| id.metric.clone()).collect(),
            is_kept,
        };
        Ok(Records {
            matrix: loaded.matrix.name.clone(),
            preset: preset.to_owned(),
            past: Past::read(&store, &loaded.matrix, preset, what, &|_| true)?,
            acceptances: store.acceptances(&loaded.matrix.name)?,
            names,
            cells: plan.cells.clone(),
            store,
            versions: labels.map(|_| versions),
        })
    }

    /// As [`Records::read`], for a verb that tells of all versions.
    pub fn of_all_versions(
        common: &Common,
        is_kept: bool,
        sources: &mut Sources,
    ) -> Result<Records, Stop> {
        let records = Records::read(common, is_kept, sources)?;
        match records.versions {
            None => Ok(records),
            Some(_) => Err(Stop::message(
                "a series goes over all versions: leave `--version` out, and `version` in `--only`",
            )),
        }
    }

    /// The change points of series that the matrix has.
    pub fn changes(
        &self,
        wanted: &dyn Fn(&SeriesId) -> bool,
        deeply: bool,
    ) -> Result<Vec<MovedSeries>, Stop> {
        let wanted = |id: &SeriesId| self.names.contains_key(id) && wanted(id);
        let place = (self.matrix.as_str(), self.preset.as_str());
        Ok(look(&self.store, &self.past, place, &wanted, deeply)?)
    }

    /// A change point in the words of a report.
    pub fn told(&self, moved: &MovedSeries) -> Option<CellChange> {
        let series = self.past.series.get(&moved.series)?;
        let named = self.names.get(&moved.series)?;
        let version = |index: usize| Some(series.points.get(index)?.version.to_string());
        let first = series.points.get(moved.index)?;
        let (begin, end) = (*moved.set.first()?, *moved.set.last()?);
        let most_likely = version(moved.index)?;
        let told_at = version(series.position(moved.key)?);
        let difference = moved.after? - moved.before?;
        let holding = accepted(&self.acceptances);
        let by = holding
            .get(&moved.series)
            .filter(|(_, from)| series.position(from.key) >= Some(moved.index));
        Some(CellChange {
            id: moved.id,
            cell: moved.series.cell.clone().into(),
            machine: moved.series.machine.clone(),
            metric: named.metric.clone(),
            unit: self.unit(&moved.series),
            index: moved.index,
            set: moved.set.clone(),
            probability: moved.probability,
            from: version(begin.checked_sub(1)?)?,
            to: version(end)?,
            told_at: told_at.filter(|told| *told != most_likely),
            most_likely,
            places: places(series, moved),
            at: time(first.started_ms),
            verdict: direction(moved.ratio, difference, self.better(&moved.series)),
            ratio: moved.ratio,
            ci95: moved.ci95,
            before: moved.before,
            after: moved.after,
            standing: moved.standing,
            surroundings: moved.surroundings.clone(),
            accepted: by.map(|(acceptance, _)| acceptance.id),
        })
    }

    pub fn better(&self, id: &SeriesId) -> Better {
        let declared = self.names.get(id).and_then(|named| named.better);
        declared.unwrap_or(Better::Higher)
    }

    pub fn unit(&self, id: &SeriesId) -> String {
        let declared = self.names.get(id).and_then(|named| named.unit.clone());
        let known = self.past.series.get(id).map(|series| series.unit.clone());
        declared.or(known).unwrap_or_default()
    }

    /// The name that a cell's series have: complete, and without its version.
    pub fn cell(&self, name: &str) -> Result<String, Stop> {
        let parts = name.split(',').filter(|part| !part.starts_with("version="));
        let tuple = self.cells.parse(&parts.collect::<Vec<_>>().join(","))?;
        Ok(self.cells.name(&tuple))
    }
}

/// Where a change may be, in the order of the series; nowhere where it is gone.
fn places(series: &PastSeries, moved: &MovedSeries) -> Vec<VersionPlace> {
    let known = moved.set.iter().zip(&moved.shares);
    let place = |(index, share): (&usize, &f64)| {
        let (before, point) = (
            series.points.get(index.checked_sub(1)?)?,
            series.points.get(*index)?,
        );
        Some(VersionPlace {
            after: before.position,
            at: point.position,
            before: before.version.to_string(),
            version: point.version.to_string(),
            measured: time(point.started_ms),
            share: *share,
        })
    };
    match moved.probability {
        Some(_) => known.filter_map(place).collect(),
        None => Vec::new(),
    }
}

/// The versions that `--version` names, or all that are stored where `--only` asks for some.
fn versions(common: &Common, loaded: &Loaded, store: &Store) -> Result<Option<Vec<String>>, Stop> {
    if common.against.is_some() {
        return Err(Stop::message(
            "nothing is compared here: leave `--against` out",
        ));
    }
    let labels = common.versions.iter().map(|text| label_of(text));
    let labels: Result<Vec<String>, VersionError> = labels.collect();
    let labels = labels.map_err(|error| Stop::message(error.to_string()))?;
    let mut mentions = loaded.only.iter().flat_map(|only| &only.mentions);
    Ok(match labels.is_empty() {
        false => Some(labels),
        true if mentions.any(|name| name == "version") => {
            Some(store.versions(&loaded.matrix.name, VERSIONS_MAX as u32)?)
        }
        true => None,
    })
}

fn nothing_stored(loaded: &Loaded) -> Stop {
    let message = format!("nothing of `{}` is stored", loaded.matrix.name);
    Stop {
        diagnostics: vec![
            Diagnostic::error(message).help("`matrix run` measures; `--state` names its store"),
        ],
        exit: Exit::Nothing,
    }
}
