//! The change points of a matrix's series: what was told stands, what is new, what else changed there.

use std::collections::HashMap;

use crate::base::key::Key;
use crate::base::sample::Better;
use crate::base::units::show_ratio;
use crate::edge::store::{AttemptId, SeriesId, Store, StoreError, StoreErrorKind, ToldChange};
use crate::judge::changepoint::{Change, DetectorOptions, changes, place_of};
use crate::judge::compare::compare_values;
use crate::judge::history::{ChangeStanding, TAIL_MAX, append, is_provisional, review};
use crate::judge::place::Place;
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
    /// Of the most likely first point after the change.
    pub index: usize,
    /// How likely that is; None where it is gone.
    pub probability: Option<f64>,
    /// Indexes that hold 95 % of the posterior together, ascending, and the share of each.
    pub set: Vec<usize>,
    pub shares: Vec<f64>,
    /// Of the point under which it is told: the most likely first one when that was done first.
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

/// A change point of a series while it is looked at.
struct Found<'a> {
    /// Where it was told, or found now.
    index: usize,
    told: Option<&'a ToldChange>,
    standing: Option<ChangeStanding>,
}

/// The change points of one series, in its order. `deeply`: what was told is compared with a look at the whole.
fn of_series(
    id: &SeriesId,
    series: &PastSeries,
    told: &[ToldChange],
    until: Option<AttemptId>,
    deeply: bool,
) -> Vec<MovedSeries> {
    let levels = series.levels();
    // A point that is not stored any more takes its change with it.
    let known = told.iter().filter_map(|told| {
        Some(Found {
            index: series.position(told.key)?,
            told: Some(told),
            standing: None,
        })
    });
    let mut all: Vec<Found> = known.collect();
    all.sort_by_key(|found| found.index);
    all.dedup_by_key(|found| found.index);
    if deeply || all.iter().any(|found| is_uncertain(series, found)) {
        let fresh = changes(&levels, &OPTIONS);
        let mut begin = 0;
        for found in &mut all {
            let place = fresh_place(series, found, begin, &fresh);
            found.index = place.unwrap_or(found.index);
            found.standing = Some(match place {
                Some(_) => ChangeStanding::Stands,
                None => ChangeStanding::Gone,
            });
            begin = found.index;
        }
        all.sort_by_key(|found| found.index);
    }
    let is_gone = |found: &Found| found.standing == Some(ChangeStanding::Gone);
    let told: Vec<usize> = all
        .iter()
        .filter(|it| !is_gone(it))
        .map(|it| it.index)
        .collect();
    all.extend(added(series, &levels, &told, until));
    all.sort_by_key(|found| found.index);
    let holding: Vec<usize> = all
        .iter()
        .filter(|it| !is_gone(it))
        .map(|it| it.index)
        .collect();
    let mut begin = 0;
    let describe = |found: &Found| {
        let next = holding.partition_point(|at| *at <= found.index);
        let end = holding.get(next).copied().unwrap_or(levels.len());
        let place = place_of(&levels[begin..end], found.index.saturating_sub(begin));
        let place = place.filter(|_| !is_gone(found)).map(|place| Place {
            index: begin + place.index,
            set: place.set.iter().map(|index| begin + index).collect(),
            ..place
        });
        let index = place.as_ref().map_or(found.index, |place| place.index);
        let (before, after) = (
            &levels[begin.min(index)..index],
            &levels[index..end.max(index)],
        );
        if !is_gone(found) {
            begin = index;
        }
        let before: Vec<f64> = before.iter().flatten().copied().collect();
        let after: Vec<f64> = after.iter().flatten().copied().collect();
        let before = &before[before.len().saturating_sub(NEIGHBOURS_MAX)..];
        let after = &after[..after.len().min(NEIGHBOURS_MAX)];
        let sides = compare_values(before, after, &QUESTION);
        let told_key = found.told.map(|told| told.key);
        MovedSeries {
            series: id.clone(),
            id: found.told.map(|told| told.id),
            index,
            probability: place.as_ref().map(|place| place.probability),
            shares: place
                .as_ref()
                .map_or(vec![1.0], |place| place.shares.clone()),
            set: place.map_or(vec![index], |place| place.set),
            key: told_key.unwrap_or(series.points[index].key),
            ratio: sides.ratio,
            ci95: sides.ci95,
            before: crate::judge::stats::median(before),
            after: crate::judge::stats::median(after),
            standing: found.standing,
            surroundings: Vec::new(),
        }
    };
    all.iter().map(describe).collect()
}

/// What the points since the last look add to the changes `told`.
fn added<'a>(
    series: &PastSeries,
    levels: &[Option<f64>],
    told: &[usize],
    until: Option<AttemptId>,
) -> Vec<Found<'a>> {
    let is_new = |point: &Point| until.is_none_or(|until| point.attempt > until);
    let mut all: Vec<Found> = Vec::new();
    // As a rule all that is new is at the end. Commits that were measured belatedly stand elsewhere: each stretch
    // between changes is looked at as if it were the end.
    let mut begin = 0;
    for (number, end) in told.iter().copied().chain([levels.len()]).enumerate() {
        if let Some(new) = series.points[begin..end].iter().position(is_new) {
            let (told, stretch) = (&told[..number], &levels[..end]);
            let found = match until.is_some() && end - begin - new <= TAIL_MAX / 2 {
                true => append(stretch, told, &OPTIONS),
                // Too much is new for a look at the tail.
                false => changes(stretch, &OPTIONS),
            };
            // What is known by its number already is no news.
            let is_told = |at: &usize| {
                told.iter()
                    .any(|told| at.abs_diff(*told) <= OPTIONS.min_segment)
            };
            let found = found.into_iter().map(|change| change.index);
            all.extend(
                found
                    .filter(|at| *at > begin && !is_told(at))
                    .map(|index| Found {
                        index,
                        told: None,
                        standing: None,
                    }),
            );
        }
        begin = end;
    }
    all
}

/// Whether a look at the whole series has to say if a told change is still there: it was told when few points were
/// behind it, or something before it was first measured since.
fn is_uncertain(series: &PastSeries, found: &Found) -> bool {
    let Some(told) = found.told else {
        return false;
    };
    let (before, after) = series.points.split_at(found.index);
    let were_known = after
        .iter()
        .filter(|point| point.started_ms <= told.reported_ms);
    is_provisional(were_known.count(), &OPTIONS)
        || before
            .iter()
            .any(|point| point.started_ms > told.reported_ms)
}

/// The place of a told change in a fresh look at its series; `begin` is that of the change before it. None where it is
/// not found again.
fn fresh_place(
    series: &PastSeries,
    found: &Found,
    begin: usize,
    fresh: &[Change],
) -> Option<usize> {
    let told = found.told?;
    // It could only be told here then, where nearly all between was measured after that.
    let is_told_as = |at: &usize| {
        let between = series.points[*at..found.index].iter();
        let were_known = between.filter(|point| point.started_ms <= told.reported_ms);
        were_known.count() <= OPTIONS.min_segment
    };
    let earlier = || {
        let mut places = fresh.iter().rev().map(|change| change.index);
        let earlier = places.find(|at| *at < found.index);
        earlier.filter(|at| *at > begin && is_told_as(at))
    };
    review(found.index, fresh, &OPTIONS).or_else(earlier)
}

/// Only ratio and interval are asked for: they have no better direction.
const QUESTION: Question = Question::new(Better::Higher, 0.0);

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
    let ids = match store.tell(matrix, preset, &points, until, now_ms) {
        // What cannot be numbered is told without a number.
        Err(error) if error.kind == StoreErrorKind::ReadOnly => return Ok(()),
        ids => ids?,
    };
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
    // It may be anywhere in the set: what changed between its ends counts.
    let ends = moved.set.first().zip(moved.set.last());
    if let Some((first, last)) = ends
        && let Some(before) = first.checked_sub(1)
    {
        let (before, last) = (&series.points[before], &series.points[*last]);
        told.extend(differences(store, before, last)?);
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
            let stands = Some(ChangeStanding::Stands);
            check(20, 18..26, 26, &[(20, stands)]);
            check(23, 18..26, 26, &[(23, stands)]);
            check(26, 18..26, 26, &[(26, stands)]);
            // Nothing was measured between: it is not the same.
            let gone = (26, Some(ChangeStanding::Gone));
            let both = [gone, (45, None)];
            check(
                45,
                18..26,
                26,
                if until == 100 { &both } else { &both[..1] },
            );
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
