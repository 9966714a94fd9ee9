//! The past of a matrix: its series over versions, the noise in them, what was accepted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use crate::base::key::Key;
use crate::config::matrix::Matrix;
use crate::edge::store::{
    Acceptance, AcceptedFrom, AttemptId, Metric, MetricId, Position, SeriesId, SessionSpan, Store,
    StoreError, Unsaved,
};
use crate::judge::stats::median;
use crate::judge::verdict::Noise;
use crate::plan::dag::Plan;

/// Sessions that the noise of a cell is learned from, the latest ones.
pub const NOISE_SESSIONS_MAX: u32 = 30;
/// A noise level that rests on fewer degrees of freedom is not used.
const NOISE_DEGREES_MIN: f64 = 4.0;
/// Samples that are held at a time, of the latest sessions.
const PAST_SAMPLES_MAX: usize = 20_000_000;
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

    /// `seen`: of each key so far its first half, close together: a series has many points.
    fn add(&mut self, new: Point, seen: &mut Vec<u64>) {
        let half = u128::from_le_bytes(new.key.0) as u64;
        match seen.contains(&half) && self.position(new.key).is_some() {
            true => self.again.push(new),
            false => {
                seen.push(half);
                self.points.push(new);
            }
        }
    }
}

/// What of a matrix's past is read.
#[derive(Clone, Copy, Debug)]
pub struct What<'a> {
    /// Only the last so many sessions.
    pub sessions: u32,
    /// By the names that parsers give them; programs print more than a matrix asks for.
    pub metrics: &'a BTreeSet<String>,
    /// Whether sessions are kept in one piece when changes are told.
    pub is_kept: bool,
}

/// What the cells of a plan ask for, by the names that parsers give.
pub fn metrics_of(plan: &Plan) -> BTreeSet<String> {
    // What cannot be named is nowhere stored.
    let of_cell = |cell| plan.metric_names(cell).unwrap_or_default();
    (0..plan.cells.len() as u32).flat_map(of_cell).collect()
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
    /// Reads what `is_wanted`, by key.
    pub fn read(
        store: &Store,
        matrix: &Matrix,
        preset: &str,
        what: What,
        is_wanted: &dyn Fn(Key) -> bool,
    ) -> Result<Past, StoreError> {
        let own = matrix.preset.as_ref().map_or("", |preset| &preset.value);
        let unnamed = if preset == own { "" } else { preset };
        let mut metrics = store.metrics()?;
        metrics.retain(|metric| what.metrics.contains(&metric.name));
        let ids: BTreeSet<MetricId> = metrics.iter().map(|metric| metric.id).collect();
        let span = SessionSpan {
            matrix: &matrix.name,
            presets: [preset, unnamed],
            metrics: &ids,
            sessions: what.sessions,
            samples_max: PAST_SAMPLES_MAX,
            is_kept: what.is_kept,
        };
        Past::of(store, &span, &metrics, is_wanted)
    }

    fn of(
        store: &Store,
        span: &SessionSpan,
        metrics: &[Metric],
        is_wanted: &dyn Fn(Key) -> bool,
    ) -> Result<Past, StoreError> {
        // By name: the same metric may have been recorded with another unit.
        let (mut numbers, mut units) = (HashMap::new(), HashMap::new());
        let names: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        for (number, metric) in metrics.iter().enumerate() {
            let number = *numbers.entry(&metric.name).or_insert(number);
            units.insert(metric.id, (number, &metric.unit));
        }
        let mut positions: HashMap<i64, HashMap<String, Position>> = HashMap::new();
        for commit in store.commits(span.matrix)? {
            let of_session = positions.entry(commit.session).or_default();
            of_session.insert(commit.version, commit.position);
        }
        let mut past = Past::default();
        let mut all: Vec<(SeriesId, PastSeries, Vec<u64>)> = Vec::new();
        let mut places: HashMap<(String, String), usize> = HashMap::new();
        let mut of_place: HashMap<(usize, usize), usize> = HashMap::new();
        // Of the session that is being read: by cell its place (where there are several machines it names its own),
        // and the version of the last point.
        let (mut session, mut cells) = (None, HashMap::new());
        let mut version: Rc<str> = Rc::from("");
        past.unsaved = store.past(span, |point| {
            if !is_wanted(point.key) {
                return;
            }
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
                    metric: names[*name].to_owned(),
                };
                let series = PastSeries {
                    unit: (*unit).clone(),
                    points: Vec::new(),
                    again: Vec::new(),
                };
                all.push((id, series, Vec::new()));
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
            let new = Point {
                key: point.key,
                version: version.clone(),
                session: point.session,
                started_ms: point.started_ms,
                position: of_commit.unwrap_or(measured),
                attempt: point.attempt,
                values: point.values,
                environment: point.environment,
            };
            let (_, series, seen) = &mut all[number];
            series.add(new, seen);
        })?;
        let all = all.into_iter().map(|(id, series, _)| (id, series));
        past.series = all.collect();
        for series in past.series.values_mut() {
            series.points.sort_by_key(|point| point.position);
        }
        Ok(past)
    }

    /// The noise within sessions. None where there is not enough to tell.
    pub fn noise(&self, id: &SeriesId) -> Option<Noise> {
        let series = self.series.get(id)?;
        let all = series.points.iter().chain(&series.again);
        let sessions: Vec<Vec<f64>> = all.map(|point| point.values.clone()).collect();
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
    use std::time::Duration;

    use super::*;
    use crate::base::sample::Better;
    use crate::edge::store::{AttemptOutcome, NewAttempt, NewReading, SessionStart, StepKind};

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
        let mut seen = Vec::new();
        for (key, session, values) in points {
            series.add(point(key, *session, values), &mut seen);
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
    fn noise_is_learned_from_what_is_wanted() {
        let rounds = (0..40)
            .map(|i| ("old", i, 100.0 + f64::from(i % 3)))
            .chain((0..5).map(|i| ("new", i, 500.0 * f64::from(1 + i))));
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path()).unwrap();
        let start = SessionStart {
            started_ms: 0,
            matrix: "m",
            preset: "",
            seed: 1,
            arguments: "",
            program_version: "1",
            process: "1",
        };
        let session = store.begin_session(&start).unwrap();
        for (version, round, value) in rounds {
            let attempt = NewAttempt {
                session,
                kind: StepKind::Run,
                key: Key::of(version.as_bytes()),
                round: round as u32,
                cell: "bs=4k",
                machine: "here",
                version,
                started_ms: 0,
                duration: Duration::ZERO,
                outcome: AttemptOutcome::Ok,
                reason: "",
                environment: None,
                log: None,
            };
            let reading = NewReading {
                metric: "iops",
                value,
                unit: "",
                better: Some(Better::Higher),
            };
            store.record(&attempt, &[reading]).unwrap();
        }
        let id = SeriesId {
            machine: "here".into(),
            cell: "bs=4k".into(),
            metric: "iops".into(),
        };
        let metrics = store.metrics().unwrap();
        let span = SessionSpan {
            matrix: "m",
            presets: ["", ""],
            metrics: &metrics.iter().map(|metric| metric.id).collect(),
            sessions: ALL_SESSIONS,
            samples_max: 1000,
            is_kept: false,
        };
        let noise_without = |version: &str| {
            let left_out = Key::of(version.as_bytes());
            let past = Past::of(&store, &span, &metrics, &|key| key != left_out).unwrap();
            past.noise(&id)
        };
        let noise = noise_without("new").unwrap();
        assert!((0.005..0.015).contains(&noise.sigma_log), "{noise:?}");
        let told = noise_without("old");
        assert_eq!(told, None, "five samples tell too little");
    }
}
