//! Owns the past of a matrix: its series over versions, the noise in them, what was accepted.
//! Does not know where a series changed.

use std::collections::{BTreeMap, HashMap};

use crate::config::matrix::Matrix;
use crate::edge::store::{Acceptance, AcceptedFrom, AttemptId, SeriesId, Span, Store, StoreError};
use crate::judge::stats::median;
use crate::judge::verdict::Noise;
use crate::words::key::Key;
use crate::words::sample::Better;

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
    pub version: String,
    pub session: i64,
    /// Milliseconds since 1970-01-01 UTC.
    pub started_ms: i64,
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
    pub better: Better,
    /// In the order in which they were first measured.
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
        let same = |point: &&mut Point| point.key == new.key && point.session == new.session;
        // Rounds come mixed with those of other versions of the same session, which is the last one.
        let mut latest = self
            .again
            .iter_mut()
            .rev()
            .chain(self.points.iter_mut().rev());
        if let Some(point) = latest.find(same) {
            point.values.extend(new.values);
            point.attempt = new.attempt;
            return;
        }
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
}

impl Past {
    /// Reads the last so many sessions; of what `is_wanted`, by key.
    pub fn read(
        store: &Store,
        matrix: &Matrix,
        preset: &str,
        sessions: u32,
        is_wanted: &dyn Fn(Key) -> bool,
    ) -> Result<Past, StoreError> {
        let own = matrix.preset.as_ref().map_or("", |preset| &preset.value);
        let unnamed = if preset == own { "" } else { preset };
        let span = Span {
            matrix: &matrix.name,
            presets: [preset, unnamed],
            sessions,
        };
        Past::of(store, &span, is_wanted)
    }

    fn of(store: &Store, span: &Span, is_wanted: &dyn Fn(Key) -> bool) -> Result<Past, StoreError> {
        let metrics: HashMap<_, _> = store
            .metrics()?
            .into_iter()
            .map(|metric| (metric.id, metric))
            .collect();
        let mut past = Past::default();
        store.past(span, |sample| {
            if !is_wanted(sample.key) {
                return;
            }
            // A metric whose direction nobody knows is kept, but cannot be judged.
            let Some(metric) = metrics.get(&sample.metric) else {
                return;
            };
            let Some(better) = metric.better else {
                return;
            };
            let id = SeriesId {
                machine: sample.machine.to_owned(),
                cell: without_version(sample.cell, sample.machine),
                metric: metric.name.clone(),
            };
            past.until = Some(sample.attempt);
            let series = past.series.entry(id).or_insert_with(|| PastSeries {
                unit: metric.unit.clone(),
                better,
                points: Vec::new(),
                again: Vec::new(),
            });
            series.add(Point {
                key: sample.key,
                version: sample.version.to_owned(),
                session: sample.session,
                started_ms: sample.started_ms,
                attempt: sample.attempt,
                values: vec![sample.value],
                environment: sample.environment,
            });
        })?;
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
    use crate::edge::store::{Kind, NewAttempt, NewReading, Outcome, SessionStart};

    fn point(key: &str, session: i64, value: f64) -> Point {
        Point {
            key: Key::of(key.as_bytes()),
            version: key.to_owned(),
            session,
            started_ms: 0,
            attempt: AttemptId(0),
            values: vec![value],
            environment: None,
        }
    }

    fn series(points: &[(&str, i64, f64)]) -> PastSeries {
        let mut series = PastSeries {
            unit: String::new(),
            better: Better::Higher,
            points: Vec::new(),
            again: Vec::new(),
        };
        for (key, session, value) in points {
            series.add(point(key, *session, *value));
        }
        series
    }

    #[test]
    fn a_point_is_what_the_first_session_measured_of_a_state() {
        let rounds = [
            ("a", 1, 1.0),
            ("b", 1, 2.0),
            ("b", 1, 4.0),
            ("a", 1, 3.0),
            ("c", 2, 9.0),
            ("a", 2, 50.0),
            ("a", 2, 60.0),
        ];
        let series = series(&rounds);
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
                kind: Kind::Run,
                key: Key::of(version.as_bytes()),
                round: round as u32,
                cell: "bs=4k",
                machine: "here",
                version,
                started_ms: 0,
                duration: Duration::ZERO,
                outcome: Outcome::Ok,
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
        let span = Span {
            matrix: "m",
            presets: ["", ""],
            sessions: ALL_SESSIONS,
        };
        let noise_without = |version: &str| {
            let left_out = Key::of(version.as_bytes());
            let past = Past::of(&store, &span, &|key| key != left_out).unwrap();
            past.noise(&id)
        };
        let noise = noise_without("new").unwrap();
        assert!((0.005..0.015).contains(&noise.sigma_log), "{noise:?}");
        let told = noise_without("old");
        assert_eq!(told, None, "five samples tell too little");
    }
}
