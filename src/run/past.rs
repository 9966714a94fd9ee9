//! Owns the past of a matrix: its series over versions, the noise in them, what was accepted.
//! Does not know where a series changed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use crate::config::matrix::Matrix;
use crate::edge::store::{
    Acceptance, AcceptedFrom, AttemptId, Position, SeriesId, Span, Store, StoreError, Unsaved,
};
use crate::judge::stats::median;
use crate::judge::verdict::Noise;
use crate::words::key::Key;

/// Sessions that the noise of a cell is learned from, the latest ones.
pub const NOISE_SESSIONS_MAX: u32 = 30;
/// A noise level that rests on fewer degrees of freedom is not used.
const NOISE_DEGREES_MIN: f64 = 4.0;
/// All sessions.
pub const ALL_SESSIONS: u32 = i32::MAX as u32;

/// What was measured of one state of the subject.
#[derive(Clone, Debug)]
pub struct Point {
    pub key: Key,
    pub version: Rc<str>,
    pub session: i64,
    /// Milliseconds since 1970-01-01 UTC.
    pub started_ms: i64,
    pub position: Position,
    /// The last attempt at it in this session.
    pub attempt: AttemptId,
    pub values: Vec<f64>,
    pub environment: Option<Key>,
}

impl Point {
    pub fn level(&self) -> Option<f64> {
        median(&self.values)
    }
}

/// One metric of one cell over all its versions.
#[derive(Clone, Debug)]
pub struct PastSeries {
    pub unit: String,
    /// By their positions; where these are the same as they were first measured.
    pub points: Vec<Point>,
    /// What was measured again in a later session: a control, of which only the surroundings can
    /// have changed.
    pub again: Vec<Point>,
}

impl PastSeries {
    pub fn levels(&self) -> Vec<Option<f64>> {
        self.points.iter().map(Point::level).collect()
    }

    pub fn position(&self, key: Key) -> Option<usize> {
        self.points.iter().position(|point| point.key == key)
    }

    fn add(&mut self, new: Point) {
        match self.position(new.key) {
            None => self.points.push(new),
            Some(_) => self.again.push(new),
        }
    }
}

/// All series of a matrix under one preset.
#[derive(Debug, Default)]
pub struct Past {
    pub series: BTreeMap<SeriesId, PastSeries>,
    /// The last attempt seen.
    pub until: Option<AttemptId>,
    /// What the store reads in one piece from now on, if it is given this.
    pub unsaved: Unsaved,
}

impl Past {
    /// Reads the last so many sessions.
    pub fn read(
        store: &Store,
        matrix: &Matrix,
        preset: &str,
        sessions: u32,
    ) -> Result<Past, StoreError> {
        // By name: the same metric may have been recorded with another unit.
        let (mut names, mut units) = (Vec::new(), HashMap::new());
        for metric in store.metrics()? {
            let known = names.iter().position(|name| *name == metric.name);
            let number = known.unwrap_or(names.len());
            if known.is_none() {
                names.push(metric.name);
            }
            units.insert(metric.id, (number, metric.unit));
        }
        let own = matrix.preset.as_ref().map_or("", |preset| &preset.value);
        let unnamed = if preset == own { "" } else { preset };
        let span = Span {
            matrix: &matrix.name,
            presets: [preset, unnamed],
            sessions,
        };
        let mut positions: HashMap<i64, HashMap<String, Position>> = HashMap::new();
        for commit in store.commits(&matrix.name)? {
            let of_session = positions.entry(commit.session).or_default();
            of_session.insert(commit.version, commit.position);
        }
        let mut past = Past::default();
        let mut all: Vec<(SeriesId, PastSeries)> = Vec::new();
        let mut places: HashMap<(String, String), usize> = HashMap::new();
        let mut of_place: HashMap<(usize, usize), usize> = HashMap::new();
        // Of the session that is being read: by cell its place (where there are several machines it names its own),
        // and the version of the last point.
        let (mut session, mut cells) = (None, HashMap::new());
        let mut version: Rc<str> = Rc::from("");
        past.unsaved = store.past(&span, |point| {
            let Some((name, unit)) = units.get(&point.metric) else {
                return;
            };
            past.until = past.until.max(Some(point.attempt));
            if session != Some(point.session) {
                session = Some(point.session);
                cells.clear();
            }
            let place = *cells.entry(point.cell_number).or_insert_with(|| {
                let cell = without_version(point.cell, point.machine);
                let next = places.len();
                *places
                    .entry((cell, point.machine.to_owned()))
                    .or_insert(next)
            });
            let number = *of_place.entry((place, *name)).or_insert_with(|| {
                let id = SeriesId {
                    machine: point.machine.to_owned(),
                    cell: without_version(point.cell, point.machine),
                    metric: names[*name].clone(),
                };
                let series = PastSeries {
                    unit: unit.clone(),
                    points: Vec::new(),
                    again: Vec::new(),
                };
                all.push((id, series));
                all.len() - 1
            });
            if *version != *point.version {
                version = Rc::from(point.version);
            }
            let of_session = positions.get(&point.session);
            let of_commit = of_session.and_then(|it| it.get(point.version)).copied();
            let measured = Position {
                ms: point.started_ms,
                depth: 0,
            };
            all[number].1.add(Point {
                key: point.key,
                version: version.clone(),
                session: point.session,
                started_ms: point.started_ms,
                position: of_commit.unwrap_or(measured),
                attempt: point.attempt,
                values: point.values.to_vec(),
                environment: point.environment,
            });
        })?;
        past.series = all.into_iter().collect();
        for series in past.series.values_mut() {
            series.points.sort_by_key(|point| point.position);
        }
        Ok(past)
    }

    /// The noise within sessions, without the samples of the `judged` keys, which speak for
    /// themselves. None where there is not enough to tell.
    pub fn noise(&self, id: &SeriesId, judged: &HashSet<Key>) -> Option<Noise> {
        let series = self.series.get(id)?;
        let all = series.points.iter().chain(&series.again);
        let earlier = all.filter(|point| !judged.contains(&point.key));
        let sessions: Vec<Vec<f64>> = earlier.map(|point| point.values.clone()).collect();
        Noise::from_sessions(&sessions).filter(|noise| noise.degrees >= NOISE_DEGREES_MIN)
    }
}

/// The preset that a run uses, by name; empty where there is none.
pub fn preset_name<'a>(matrix: &'a Matrix, asked: Option<&'a str>) -> &'a str {
    let own = matrix.preset.as_ref().map(|preset| preset.value.as_str());
    asked.or(own).unwrap_or("")
}

/// A cell's recorded name without its version: versions come and go, their series stays.
pub fn without_version(cell: &str, machine: &str) -> String {
    let parts = cell.split(',').filter(|part| !part.starts_with("version="));
    let name = parts.collect::<Vec<_>>().join(",");
    match name.is_empty() {
        true => format!("machine={machine}"),
        false => name,
    }
}

/// What holds of acceptances: for each series the latest one.
pub fn accepted(acceptances: &[Acceptance]) -> HashMap<SeriesId, (&Acceptance, &AcceptedFrom)> {
    let holding = acceptances.iter().filter(|a| a.undone_ms.is_none());
    holding
        .flat_map(|acceptance| acceptance.series.iter().map(move |from| (acceptance, from)))
        .map(|(acceptance, from)| (from.series.clone(), (acceptance, from)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(key: &str, session: i64, values: &[f64]) -> Point {
        Point {
            key: Key::of(key.as_bytes()),
            version: key.into(),
            session,
            started_ms: 0,
            position: Position::default(),
            attempt: AttemptId(0),
            values: values.to_vec(),
            environment: None,
        }
    }

    fn series(points: &[(&str, i64, &[f64])]) -> PastSeries {
        let mut series = PastSeries {
            unit: String::new(),
            points: Vec::new(),
            again: Vec::new(),
        };
        for (key, session, values) in points {
            series.add(point(key, *session, values));
        }
        series
    }

    #[test]
    fn a_point_is_what_the_first_session_measured_of_a_state() {
        let series = series(&[
            ("a", 1, &[1.0, 3.0]),
            ("b", 1, &[2.0, 4.0]),
            ("c", 2, &[9.0]),
            ("a", 2, &[50.0, 60.0]),
        ]);
        assert_eq!(series.levels(), [Some(2.0), Some(3.0), Some(9.0)]);
        assert_eq!(series.again.len(), 1);
        assert_eq!(series.again[0].level(), Some(55.0));
    }

    #[test]
    fn names_lose_their_version_and_are_never_empty() {
        let check = |cell, expected| assert_eq!(without_version(cell, "here"), expected);
        check("machine=here,version=v1,bs=4k", "machine=here,bs=4k");
        check("bs=4k", "bs=4k");
        check("version=v1", "machine=here");
    }

    #[test]
    fn noise_is_learned_from_what_is_not_judged() {
        let old: Vec<f64> = (0..40).map(|i| 100.0 + f64::from(i % 3)).collect();
        let new: Vec<f64> = (0..5).map(|i| 500.0 * f64::from(1 + i)).collect();
        let id = SeriesId {
            machine: "here".into(),
            cell: "bs=4k".into(),
            metric: "iops".into(),
        };
        let past = Past {
            series: [(id.clone(), series(&[("old", 1, &old), ("new", 2, &new)]))].into(),
            ..Past::default()
        };
        let judged = |key: &str| HashSet::from([Key::of(key.as_bytes())]);
        let noise = past.noise(&id, &judged("new")).unwrap();
        assert!((0.005..0.015).contains(&noise.sigma_log), "{noise:?}");
        assert_eq!(
            past.noise(&id, &judged("old")),
            None,
            "five samples tell too little"
        );
    }
}
