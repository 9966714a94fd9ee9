//! Owns the change points of a matrix's series: what was told stands, what is new, what else changed there.
//! Does not know how a change point is found (judge does), nor how it is shown.

use std::collections::{BTreeMap, HashMap};

use super::past::{Past, PastSeries, Point};
use crate::edge::environment::Environment;
use crate::edge::store::{AttemptId, SeriesId, Store, StoreError};
use crate::judge::changepoint::{Options, changes};
use crate::judge::compare::compare_values;
use crate::judge::history::{Standing, TAIL_MAX, append, review};
use crate::judge::verdict::Question;
use crate::words::key::Key;
use crate::words::sample::Better;
use crate::words::units::show_ratio;

/// Points on either side of a change that its size is taken from.
const NEIGHBOURS_MAX: usize = 50;
/// Differences of two environments that are told.
const DIFFERENCES_MAX: usize = 8;

/// A place where a series moved.
#[derive(Clone, Debug)]
pub struct Moved {
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
    pub standing: Option<Standing>,
    /// What else changed at this place.
    pub surroundings: Vec<String>,
}

/// The change points of one series, in its order.
pub fn of_series(
    id: &SeriesId,
    series: &PastSeries,
    told: &[(i64, Key)],
    until: Option<AttemptId>,
) -> Vec<Moved> {
    let options = Options::default();
    let levels = series.levels();
    let mut known: BTreeMap<usize, i64> = BTreeMap::new();
    for (number, key) in told {
        // A point that is not stored any more takes its change with it.
        known.extend(series.position(*key).map(|index| (index, *number)));
    }
    let reported: Vec<usize> = known.keys().copied().collect();
    let new = series
        .points
        .iter()
        .filter(|p| until.is_none_or(|until| p.attempt > until));
    let found: Vec<usize> = match new.count() {
        0 => Vec::new(),
        n if until.is_some() && n <= TAIL_MAX / 2 => append(&levels, &reported, &options)
            .into_iter()
            .map(|change| change.index)
            .collect(),
        // Too much is new for a look at the tail.
        _ => {
            let last = reported.last().copied().unwrap_or(0);
            let fresh = changes(&levels, &options).into_iter();
            fresh
                .map(|change| change.index)
                .filter(|index| *index > last)
                .collect()
        }
    };
    let all: Vec<usize> = reported.iter().chain(&found).copied().collect();
    let describe = |at: usize| {
        let index = all[at];
        let begin = if at == 0 { 0 } else { all[at - 1] };
        let end = all.get(at + 1).copied().unwrap_or(levels.len());
        let (before, after) = (&levels[begin..index], &levels[index..end]);
        let before: Vec<f64> = before.iter().flatten().copied().collect();
        let after: Vec<f64> = after.iter().flatten().copied().collect();
        let before = &before[before.len().saturating_sub(NEIGHBOURS_MAX)..];
        let after = &after[..after.len().min(NEIGHBOURS_MAX)];
        let sides = compare_values(before, after, &question(series.better));
        Moved {
            series: id.clone(),
            id: known.get(&index).copied(),
            index,
            key: series.points[index].key,
            ratio: sides.ratio,
            ci95: sides.ci95,
            before: crate::judge::stats::median(before),
            after: crate::judge::stats::median(after),
            standing: None,
            surroundings: Vec::new(),
        }
    };
    (0..all.len()).map(describe).collect()
}

fn question(better: Better) -> Question {
    Question {
        better,
        min_effect: 0.0,
        level: super::family::LEVEL,
        noise: None,
    }
}

/// Looks at series as far as they are new. `deeply`: at the whole of each again, to say whether what was
/// told still stands.
pub fn look(
    store: &Store,
    past: &Past,
    (matrix, preset): (&str, &str),
    wanted: &dyn Fn(&SeriesId) -> bool,
    deeply: bool,
) -> Result<Vec<Moved>, StoreError> {
    let (told, until) = store.told(matrix, preset)?;
    let mut by_series: HashMap<SeriesId, Vec<(i64, Key)>> = HashMap::new();
    for told in told {
        by_series
            .entry(told.series)
            .or_default()
            .push((told.id, told.key));
    }
    let mut all = Vec::new();
    for (id, series) in past.series.iter().filter(|(id, _)| wanted(id)) {
        let told = by_series.get(id).map_or(&[][..], Vec::as_slice);
        let mut found = of_series(id, series, told, until);
        if deeply {
            let old: Vec<usize> = found
                .iter()
                .filter(|m| m.id.is_some())
                .map(|m| m.index)
                .collect();
            let fresh = changes(&series.levels(), &Options::default());
            let standings = review(&old, &fresh, &Options::default());
            for (moved, standing) in found.iter_mut().zip(standings) {
                moved.standing = Some(standing);
            }
        }
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
    moved: &mut [Moved],
    now_ms: i64,
) -> Result<(), StoreError> {
    let Some(until) = past.until else {
        return Ok(());
    };
    let points: Vec<(SeriesId, Key)> = moved.iter().map(|m| (m.series.clone(), m.key)).collect();
    let ids = store.tell(matrix, preset, &points, until, now_ms)?;
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
    moved: &Moved,
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
        && let Some(words) = control_says(old, again, ratio, series.better)
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
fn control_says(old: &Point, again: &Point, ratio: f64, better: Better) -> Option<String> {
    let control = compare_values(&old.values, &again.values, &question(better));
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
