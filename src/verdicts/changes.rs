//! The change points of a matrix's series: what was told stands, what is new, what else changed there.

use std::collections::{BTreeMap, HashMap};

use crate::base::key::Key;
use crate::base::sample::Better;
use crate::base::units::show_ratio;
use crate::edge::store::{AttemptId, SeriesId, Store, StoreError, ToldChange};
use crate::judge::changepoint::{DetectorOptions, changes};
use crate::judge::compare::compare_values;
use crate::judge::history::{ChangeStanding, TAIL_MAX, append, review};
use crate::judge::verdict::Question;
use crate::machine::environment::Environment;
use crate::verdicts::history::{Past, PastSeries, Point};

/// Points on either side of a change that its size is taken from.
const NEIGHBOURS_MAX: usize = 50;
/// Differences of two environments that are told.
const DIFFERENCES_MAX: usize = 8;

/// A place where a series moved.
#[derive(Clone, Debug)]
pub struct MovedSeries {
    pub series: SeriesId,
    /// The number under which it was told; None while it was not.
    pub id: Option<i64>,
    /// Of the first point after the change.
    pub index: usize,
    pub key: Key,
    /// Level after / level before.
    pub ratio: Option<f64>,
    pub ci95: Option<[f64; 2]>,
    pub before: Option<f64>,
    pub after: Option<f64>,
    /// What a fresh look at the whole series says of one that was told.
    pub standing: Option<ChangeStanding>,
    /// What else changed at this place.
    pub surroundings: Vec<String>,
}

/// Levels only, whenever a series is looked at: the points of a trend that a first look tells as one bend would be told as
/// steps by the next.
const OPTIONS: DetectorOptions = DetectorOptions {
    trends: false,
    ..DetectorOptions::DEFAULT
};

/// The change points of one series, in its order. `deeply`: what was told is compared with a look at the whole.
fn of_series(
    id: &SeriesId,
    series: &PastSeries,
    told: &[ToldChange],
    until: Option<AttemptId>,
    deeply: bool,
) -> Vec<MovedSeries> {
    let levels = series.levels();
    let mut known: BTreeMap<usize, &ToldChange> = BTreeMap::new();
    for told in told {
        // A point that is not stored any more takes its change with it.
        known.extend(series.position(told.key).map(|index| (index, told)));
    }
    let reported: Vec<usize> = known.keys().copied().collect();
    let is_new = |point: &Point| until.is_none_or(|until| point.attempt > until);
    // As a rule all that is new is at the end. Commits that were measured belatedly stand elsewhere: each stretch
    // between changes is looked at as if it were the end.
    let mut all = reported.clone();
    let mut begin = 0;
    for (number, end) in reported.iter().copied().chain([levels.len()]).enumerate() {
        if let Some(new) = series.points[begin..end].iter().position(is_new) {
            let (told, stretch) = (&reported[..number], &levels[..end]);
            let found = match until.is_some() && end - begin - new <= TAIL_MAX / 2 {
                true => append(stretch, told, &OPTIONS),
                // Too much is new for a look at the tail.
                false => changes(stretch, &OPTIONS),
            };
            let found = found.into_iter().map(|change| change.index);
            all.extend(found.filter(|index| *index > begin));
        }
        begin = end;
    }
    all.sort_unstable();
    let mut standings: BTreeMap<usize, ChangeStanding> = BTreeMap::new();
    if deeply || is_filled_in(series, told) {
        let fresh = changes(&levels, &OPTIONS);
        let reviewed = review(&reported, &fresh, &OPTIONS);
        standings.extend(reported.iter().copied().zip(reviewed));
        for (&index, told) in &known {
            let standing = standings[&index];
            let before = reported.partition_point(|at| *at < index).checked_sub(1);
            let begin = before.map_or(0, |before| reported[before]);
            let filled_in = || {
                let places = fresh.iter().rev().map(|change| change.index);
                let mut places = places.skip_while(|at| *at >= index);
                places
                    .next()
                    .filter(|at| *at > begin && is_told_as(series, *at, index, told))
            };
            let place = match standing {
                ChangeStanding::Stands => None,
                ChangeStanding::Moved { to } => Some(to),
                ChangeStanding::Gone => filled_in(),
            };
            if let Some(to) = place {
                standings.insert(index, ChangeStanding::Moved { to });
                // It is known by its number already.
                let is_same = |at: &usize| at.abs_diff(to) <= OPTIONS.min_segment;
                all.retain(|at| known.contains_key(at) || !is_same(at));
            }
        }
    }
    let describe = |at: usize| {
        let index = all[at];
        let begin = if at == 0 { 0 } else { all[at - 1] };
        let end = all.get(at + 1).copied().unwrap_or(levels.len());
        let (before, after) = (&levels[begin..index], &levels[index..end]);
        let before: Vec<f64> = before.iter().flatten().copied().collect();
        let after: Vec<f64> = after.iter().flatten().copied().collect();
        let before = &before[before.len().saturating_sub(NEIGHBOURS_MAX)..];
        let after = &after[..after.len().min(NEIGHBOURS_MAX)];
        let sides = compare_values(before, after, &QUESTION);
        MovedSeries {
            series: id.clone(),
            id: known.get(&index).map(|told| told.id),
            index,
            key: series.points[index].key,
            ratio: sides.ratio,
            ci95: sides.ci95,
            before: crate::judge::stats::median(before),
            after: crate::judge::stats::median(after),
            standing: standings.get(&index).copied(),
            surroundings: Vec::new(),
        }
    };
    (0..all.len()).map(describe).collect()
}

/// Only ratio and interval are asked for: they have no better direction.
const QUESTION: Question = Question {
    better: Better::Higher,
    min_effect: 0.0,
    level: crate::judge::verdict::LEVEL,
    noise: None,
};

/// Looks at series as far as they are new. `deeply`: at the whole of each again, to say whether what was
/// told still stands.
pub fn look(
    store: &Store,
    past: &Past,
    (matrix, preset): (&str, &str),
    wanted: &dyn Fn(&SeriesId) -> bool,
    deeply: bool,
) -> Result<Vec<MovedSeries>, StoreError> {
    let (told, until) = store.told(matrix, preset)?;
    let mut by_series: HashMap<SeriesId, Vec<ToldChange>> = HashMap::new();
    for told in told {
        let of_series = by_series.entry(told.series.clone()).or_default();
        of_series.push(told);
    }
    let mut all = Vec::new();
    for (id, series) in past.series.iter().filter(|(id, _)| wanted(id)) {
        let told = by_series.get(id).map_or(&[][..], Vec::as_slice);
        let mut found = of_series(id, series, told, until, deeply);
        for moved in &mut found {
            moved.surroundings = surroundings(store, series, moved)?;
        }
        all.extend(found);
    }
    Ok(all)
}

/// Whether something that stands before a change was first measured after that was told.
fn is_filled_in(series: &PastSeries, told: &[ToldChange]) -> bool {
    told.iter().any(|told| {
        let index = series.position(told.key).unwrap_or(0);
        let mut before = series.points[..index].iter();
        before.any(|point| point.started_ms > told.reported_ms)
    })
}

/// Whether a change at `at` could only be told at `index` then: nearly all between was measured after that.
fn is_told_as(series: &PastSeries, at: usize, index: usize, told: &ToldChange) -> bool {
    let between = series.points[at..index].iter();
    let were_known = between.filter(|point| point.started_ms <= told.reported_ms);
    were_known.count() <= OPTIONS.min_segment
}

/// Notes what is told now, and gives each its number.
pub fn tell(
    store: &Store,
    past: &Past,
    (matrix, preset): (&str, &str),
    moved: &mut [MovedSeries],
    now_ms: i64,
) -> Result<(), StoreError> {
    let Some(until) = past.until else {
        return Ok(());
    };
    let points: Vec<(SeriesId, Key)> = moved.iter().map(|m| (m.series.clone(), m.key)).collect();
    let ids = store.tell(matrix, preset, &points, until, now_ms)?;
    store.save_points(&past.unsaved);
    for (moved, id) in moved.iter_mut().zip(ids) {
        moved.id = Some(id);
    }
    Ok(())
}

/// What else changed at a change point: the environment, and what controls say: states of the
/// subject that were measured on both sides of it.
fn surroundings(
    store: &Store,
    series: &PastSeries,
    moved: &MovedSeries,
) -> Result<Vec<String>, StoreError> {
    let mut told = Vec::new();
    let after = &series.points[moved.index];
    if let Some(before) = moved
        .index
        .checked_sub(1)
        .map(|index| &series.points[index])
    {
        told.extend(differences(store, before, after)?);
    }
    let control = series
        .again
        .iter()
        .find(|again| again.session >= after.session);
    let original = control.and_then(|again| {
        let index = series
            .position(again.key)
            .filter(|index| *index < moved.index)?;
        Some((&series.points[index], again))
    });
    if let (Some((old, again)), Some(ratio)) = (original, moved.ratio)
        && old.session < after.session
        && let Some(words) = control_says(old, again, ratio)
    {
        told.push(words);
    }
    Ok(told)
}

/// How the environments of two points differ, in words.
pub fn differences(
    store: &Store,
    before: &Point,
    after: &Point,
) -> Result<Vec<String>, StoreError> {
    let read = |point: &Point| -> Result<Option<Environment>, StoreError> {
        let Some(key) = point.environment else {
            return Ok(None);
        };
        // One that a newer program wrote is none that can be compared.
        let text = store.environment(key)?;
        Ok(text.and_then(|text| Environment::from_json(&text).ok()))
    };
    if before.environment == after.environment {
        return Ok(Vec::new());
    }
    let (Some(before), Some(after)) = (read(before)?, read(after)?) else {
        return Ok(Vec::new());
    };
    let differences = before.differences(&after);
    let mut told: Vec<String> = differences
        .iter()
        .take(DIFFERENCES_MAX)
        .map(ToString::to_string)
        .collect();
    if differences.len() > DIFFERENCES_MAX {
        told.push(format!(
            "and {} more differences",
            differences.len() - DIFFERENCES_MAX
        ));
    }
    Ok(told)
}

/// Whether a control moved with the series. None where it cannot tell.
fn control_says(old: &Point, again: &Point, ratio: f64) -> Option<String> {
    let control = compare_values(&old.values, &again.values, &QUESTION);
    let [low, high] = control.ci95?;
    let holds = |value: f64| low <= value && value <= high;
    let version = &old.version;
    match (holds(ratio), holds(1.0)) {
        (true, false) => Some(format!(
            "control `{version}`, measured before and after, moved too ({}): not the commit",
            show_ratio(control.ratio?)
        )),
        (false, true) => Some(format!(
            "control `{version}`, measured before and after, did not move: not the surroundings"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::store::Position;

    /// Commits of a series; it is slower from `moved` on. Those of `belated` were measured after the change was told.
    fn series(moved: usize, belated: &std::ops::Range<usize>) -> PastSeries {
        let point = |i: usize| {
            let is_late = belated.contains(&i);
            let level = if i < moved { 100.0 } else { 120.0 };
            Point {
                key: Key::of(&i.to_le_bytes()),
                version: format!("c{i}").into(),
                session: 1 + i64::from(is_late),
                started_ms: if is_late { 2000 } else { 0 },
                position: Position::default(),
                attempt: AttemptId(i as i64 + if is_late { 1000 } else { 0 }),
                values: vec![level + (i * 7 % 5) as f64 * 0.1],
                environment: None,
            }
        };
        PastSeries {
            unit: String::new(),
            points: (0..60).map(point).collect(),
            again: Vec::new(),
        }
    }

    #[test]
    fn a_change_that_was_told_too_late_keeps_its_number() {
        let id = SeriesId {
            machine: "x".into(),
            cell: "machine=x".into(),
            metric: "lat".into(),
        };
        // The second look is of a later night: then nothing is new.
        for until in [100, 10_000] {
            let check =
                |moved, belated, told_at: usize, expected: &[(usize, Option<ChangeStanding>)]| {
                    let series = series(moved, &belated);
                    let told = ToldChange {
                        id: 1,
                        series: id.clone(),
                        key: series.points[told_at].key,
                        reported_ms: 1000,
                    };
                    let found = of_series(&id, &series, &[told], Some(AttemptId(until)), false);
                    let found: Vec<_> = found.iter().map(|it| (it.index, it.standing)).collect();
                    assert_eq!(found, expected, "{moved} {belated:?} {until}");
                };
            let moved = |to| Some(ChangeStanding::Moved { to });
            check(20, 18..26, 26, &[(26, moved(20))]);
            check(23, 18..26, 26, &[(26, moved(23))]);
            check(26, 18..26, 26, &[(26, Some(ChangeStanding::Stands))]);
            // Nothing was measured between: it is not the same.
            check(45, 18..26, 26, &[(26, Some(ChangeStanding::Gone))]);
        }
    }

    #[test]
    fn a_trend_is_told_as_levels_at_first_and_the_night_after() {
        let noise = |i: usize| 0.02 * (((i * 7919 + i * i * 104_729) % 1000) as f64 / 1000.0 - 0.5);
        let point = |i: usize| Point {
            key: Key([i as u8; 16]),
            version: "v".into(),
            session: i as i64,
            started_ms: i as i64,
            position: Position::default(),
            attempt: AttemptId(i as i64),
            values: vec![(100.0 + 0.3 * (i as f64 - 120.0).max(0.0)) * (1.0 + noise(i))],
            environment: None,
        };
        let mut series = PastSeries {
            unit: String::new(),
            points: (0..240).map(point).collect(),
            again: Vec::new(),
        };
        let id = SeriesId {
            machine: "here".into(),
            cell: "x=a".into(),
            metric: "time".into(),
        };
        let first = of_series(&id, &series, &[], None, false);
        // Each has a direction of its own: a drift upwards.
        assert!(
            first.len() > 1 && first.iter().all(|it| it.ratio > Some(1.0)),
            "{first:?}"
        );
        let told = first.iter().zip(1..).map(|(it, id)| ToldChange {
            id,
            series: it.series.clone(),
            key: it.key,
            reported_ms: 240,
        });
        let told: Vec<ToldChange> = told.collect();
        series.points.push(point(240));
        let next = of_series(&id, &series, &told, Some(AttemptId(239)), false);
        let indices = |all: &[MovedSeries]| all.iter().map(|it| it.index).collect::<Vec<_>>();
        assert_eq!(indices(&next), indices(&first));
    }
}
