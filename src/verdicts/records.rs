//! A matrix's series by the names that people use, their course and their change points.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::diag::Diagnostic;
use crate::base::sample::Better;
use crate::edge::store::{Acceptance, KnownCommit, SeriesId, Store, StoreError};
use crate::judge::changepoint::modes_of;
use crate::plan::cell::Cells;
use crate::plan::dag::Plan;
use crate::verdicts::changes::{MovedSeries, differences, look};
use crate::verdicts::comparisons::series_of;
use crate::verdicts::details::commit_rows;
use crate::verdicts::history::{ALL_SESSIONS, Past, PastSeries, What, accepted, preset_name};
use crate::verdicts::parts::CommitRow;
use crate::verdicts::report::AcceptedRow;
use crate::verdicts::series::{
    CellChange, Course, CoursePoint, History, MatrixChanges, VersionPlace, causes, direction,
};
use crate::verdicts::time::time;

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
    /// What the versions of each session were, by session and version.
    pub commits: Vec<KnownCommit>,
    /// The versions that are asked for, each of a series; None where none is.
    pub versions: Option<BTreeSet<(SeriesId, String)>>,
}

impl Records {
    /// `plan`: of names; `is_kept`: what is told is noted ([`crate::verdicts::changes::tell`]); `are_asked`: the plan's
    /// versions were asked for.
    pub fn read(
        plan: &Plan,
        store: Store,
        preset: Option<&str>,
        is_kept: bool,
        are_asked: bool,
    ) -> Result<Records, RecordsError> {
        let matrix = plan.matrix;
        let axis = plan.cells.axis("version").filter(|_| are_asked);
        let mut versions = BTreeSet::new();
        let mut names = BTreeMap::new();
        for cell in 0..plan.cells.len() as u32 {
            let from = plan.metric_names(cell)?.into_iter();
            for (from, metric) in from.zip(&matrix.metrics) {
                let named = Named {
                    metric: metric.name.clone(),
                    unit: metric.unit.clone(),
                    better: metric.better,
                };
                let id = series_of(plan, cell, &from);
                versions.extend(axis.map(|axis| {
                    let label = plan.cells.label(plan.cells.cell(cell as usize), axis);
                    (id.clone(), label.to_owned())
                }));
                names.insert(id, named);
            }
        }
        let preset = preset_name(matrix, preset);
        let what = What {
            sessions: ALL_SESSIONS,
            metrics: &names.keys().map(|id| id.metric.clone()).collect(),
            is_kept,
        };
        Ok(Records {
            matrix: matrix.name.clone(),
            preset: preset.to_owned(),
            past: Past::read(&store, matrix, preset, what, &|_| true)?,
            acceptances: store.acceptances(&matrix.name)?,
            commits: store.known_commits(&matrix.name)?,
            names,
            cells: plan.cells.clone(),
            store,
            versions: are_asked.then_some(versions),
        })
    }

    /// The change points of series that the matrix has.
    pub fn changes(
        &self,
        wanted: &dyn Fn(&SeriesId) -> bool,
        deeply: bool,
    ) -> Result<Vec<MovedSeries>, StoreError> {
        let wanted = |id: &SeriesId| self.names.contains_key(id) && wanted(id);
        let place = (self.matrix.as_str(), self.preset.as_str());
        look(&self.store, &self.past, place, &wanted, deeply)
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
        let commit = series.points.get(moved.index);
        let commit = commit.and_then(|point| self.commit(point.session, &point.version));
        Some(CellChange {
            id: moved.id,
            commit: commit.map(str::to_owned),
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
            places: self.places(series, moved),
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
    pub fn cell(&self, name: &str) -> Result<String, Diagnostic> {
        let parts = name.split(',').filter(|part| !part.starts_with("version="));
        let tuple = self.cells.parse(&parts.collect::<Vec<_>>().join(","))?;
        Ok(self.cells.name(&tuple))
    }

    /// The commit that a version of a session was.
    pub fn commit(&self, session: i64, version: &str) -> Option<&str> {
        let place =
            |known: &KnownCommit| (known.session, known.version.as_str()).cmp(&(session, version));
        let at = self.commits.binary_search_by(place).ok()?;
        Some(&self.commits[at].commit)
    }

    /// Where a change may be, in the order of the series; nowhere where it is gone.
    fn places(&self, series: &PastSeries, moved: &MovedSeries) -> Vec<VersionPlace> {
        let known = moved.set.iter().zip(&moved.shares);
        let place = |(index, share): (&usize, &f64)| {
            let (before, point) = (
                series.points.get(index.checked_sub(1)?)?,
                series.points.get(*index)?,
            );
            let commit = self.commit(point.session, &point.version);
            Some(VersionPlace {
                after: before.position,
                at: point.position,
                before: before.version.to_string(),
                version: point.version.to_string(),
                commit: commit.map(str::to_owned),
                measured: time(point.started_ms),
                share: *share,
            })
        };
        match moved.probability {
            Some(_) => known.filter_map(place).collect(),
            None => Vec::new(),
        }
    }

    /// What was accepted of series that are wanted, and holds.
    fn accepted(&self, wanted: &dyn Fn(&SeriesId) -> bool) -> Vec<AcceptedRow> {
        let of_wanted = |it: &&Acceptance| it.series.iter().any(|series| wanted(&series.series));
        let accepted = self.acceptances.iter().filter(of_wanted);
        accepted.filter_map(AcceptedRow::of).collect()
    }

    /// The course of the series that are wanted, with their change points.
    pub fn history(
        &self,
        wanted: &dyn Fn(&SeriesId) -> bool,
        moved: &[MovedSeries],
    ) -> Result<History, StoreError> {
        let mut series = Vec::new();
        for (id, past) in self.past.series.iter().filter(|(id, _)| wanted(id)) {
            let changes = moved.iter().filter(|moved| moved.series == *id);
            let named = self.names.get(id);
            series.push(Course {
                cell: id.cell.clone().into(),
                machine: id.machine.clone(),
                metric: named.map_or(String::new(), |named| named.metric.clone()),
                unit: self.unit(id),
                better: self.better(id),
                modes: modes_of(&past.levels()),
                points: self.points(past)?,
                changes: changes.filter_map(|moved| self.told(moved)).collect(),
            });
        }
        let points = series.iter().flat_map(|course: &Course| &course.points);
        let points = points.filter_map(|point| Some((&point.version, point.commit.as_ref()?)));
        Ok(History {
            matrix: self.matrix.clone(),
            preset: self.preset.clone(),
            commits: self.commit_rows(points)?,
            series,
            accepted: self.accepted(wanted),
        })
    }

    /// Change points, one cause each.
    pub fn causes(&self, moved: &[MovedSeries]) -> Result<MatrixChanges, StoreError> {
        let causes = causes(moved.iter().filter_map(|it| self.told(it)).collect());
        let places = causes
            .iter()
            .flat_map(|cause| cause.set.iter().zip(&cause.commits));
        let places = places.filter_map(|(version, commit)| Some((version, commit.as_ref()?)));
        Ok(MatrixChanges {
            commits: self.commit_rows(places)?,
            causes,
            accepted: self
                .acceptances
                .iter()
                .filter_map(AcceptedRow::of)
                .collect(),
            matrix: self.matrix.clone(),
            preset: self.preset.clone(),
        })
    }

    fn commit_rows<'a>(
        &self,
        wanted: impl Iterator<Item = (&'a String, &'a String)>,
    ) -> Result<Vec<CommitRow>, StoreError> {
        let wanted: BTreeSet<(&String, &String)> = wanted.collect();
        let wanted = wanted.into_iter();
        let wanted = wanted.map(|(version, id)| (version.clone(), id.clone()));
        commit_rows(&wanted.collect::<Vec<_>>(), &self.commits, &self.store)
    }

    fn points(&self, series: &PastSeries) -> Result<Vec<CoursePoint>, StoreError> {
        let mut points = Vec::with_capacity(series.points.len());
        for (index, point) in series.points.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| &series.points[before]);
            let differences = match before {
                Some(before) => differences(&self.store, before, point)?,
                None => Vec::new(),
            };
            let commit = self.commit(point.session, &point.version);
            points.push(CoursePoint {
                version: point.version.to_string(),
                commit: commit.map(str::to_owned),
                at: time(point.started_ms),
                session: point.session,
                value: point.level(),
                n: point.values.len(),
                environment: point.environment.map(|key| key.to_string()),
                differences,
            });
        }
        Ok(points)
    }
}

/// A past could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The name of a metric cannot be made for a cell.
    #[error("{}", .0.message)]
    Matrix(Diagnostic),
}

impl From<Diagnostic> for RecordsError {
    fn from(diagnostic: Diagnostic) -> RecordsError {
        RecordsError::Matrix(diagnostic)
    }
}
