//! Series as they are reported: their course, their change points, and one cause for changes that happened together.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::sample::Better;
use crate::edge::store::Position;
use crate::judge::changepoint::Change;
use crate::judge::history::ChangeStanding;
use crate::judge::place::credible;
use crate::judge::stats::median;
use crate::judge::verdict::Verdict;
use crate::verdicts::cells::{CellName, NamedCell};
use crate::verdicts::parts::CommitRow;
use crate::verdicts::report::AcceptedRow;

/// Change points of the series of a file.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FileChanges {
    pub series: Vec<FileSeries>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FileSeries {
    pub name: String,
    /// Points that are no gaps.
    pub points: usize,
    /// Two levels between which it goes to and fro, where it does: not each step is a change.
    pub modes: Option<[f64; 2]>,
    pub changes: Vec<FileChange>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FileChange {
    /// Of the most likely first point after the change.
    pub revision: String,
    /// Revisions that hold 95 % of the probability together.
    #[serde(rename = "revisions")]
    pub set: Vec<String>,
    #[serde(flatten)]
    pub change: Change,
}

/// Change points of a matrix: one cause is one line.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MatrixChanges {
    pub matrix: String,
    pub preset: String,
    /// The commits that the causes name, in their order.
    pub commits: Vec<CommitRow>,
    /// The latest first.
    pub causes: Vec<Cause>,
    pub accepted: Vec<AcceptedRow>,
}

/// What happened to some cells at one commit, as far as can be told.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Cause {
    /// For `matrix accept --change`.
    pub id: Option<i64>,
    pub machines: Vec<String>,
    /// It is after `from`, at `to` at the latest, and most likely at `most_likely`.
    pub from: String,
    pub to: String,
    pub most_likely: String,
    /// The hash of the commit that the most likely version is.
    pub commit: Option<String>,
    /// How likely that is, by all cells together; None where the change is gone.
    pub probability: Option<f64>,
    /// Versions that hold 95 % of the probability together, in their order.
    pub set: Vec<String>,
    /// The hashes of the commits that these are.
    pub commits: Vec<Option<String>>,
    /// When the most likely version was measured: ISO 8601, UTC.
    pub at: String,
    /// That of most changes.
    pub verdict: Verdict,
    /// What it did to each metric.
    pub effects: Vec<Effect>,
    pub surroundings: Vec<String>,
    /// The acceptance that all cells are under.
    pub accepted: Option<i64>,
    pub cells: Vec<CellChange>,
}

/// What a cause did to a metric.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Effect {
    pub metric: String,
    /// Level after / level before, median over the cells.
    pub ratio: Option<f64>,
    pub cells: usize,
}

/// A place where a change may be: after one version of a series and at the next at the latest.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionPlace {
    pub after: Position,
    pub at: Position,
    /// The labels of both, and when the second was measured.
    pub before: String,
    pub version: String,
    pub measured: String,
    /// The hash of the commit that the second is.
    pub commit: Option<String>,
    /// Of the posterior of this series.
    pub share: f64,
}

/// A change point of one series.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CellChange {
    pub id: Option<i64>,
    #[serde(flatten)]
    #[schemars(with = "NamedCell")]
    pub cell: CellName,
    pub machine: String,
    pub metric: String,
    pub unit: String,
    /// Of the most likely first point after the change, and how likely that is; None where it is gone.
    pub index: usize,
    pub probability: Option<f64>,
    /// Indexes that hold 95 % of the probability together, ascending.
    pub set: Vec<usize>,
    /// The last version before all of these, the last one of these, and the most likely one.
    pub from: String,
    pub to: String,
    pub most_likely: String,
    /// The hash of the commit that the most likely one is.
    pub commit: Option<String>,
    /// The version at which it was told first, where that was another one.
    pub told_at: Option<String>,
    /// Where it may be; nothing where it is gone.
    #[serde(skip)]
    pub places: Vec<VersionPlace>,
    /// When the most likely first point was measured.
    pub at: String,
    pub verdict: Verdict,
    pub ratio: Option<f64>,
    pub ci95: Option<[f64; 2]>,
    pub before: Option<f64>,
    pub after: Option<f64>,
    /// What a fresh look at the whole series says of one that was told before.
    pub standing: Option<ChangeStanding>,
    pub surroundings: Vec<String>,
    pub accepted: Option<i64>,
}

/// The course of series.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct History {
    pub matrix: String,
    pub preset: String,
    /// The commits of the points, in their order.
    pub commits: Vec<CommitRow>,
    pub series: Vec<Course>,
    pub accepted: Vec<AcceptedRow>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Course {
    #[serde(flatten)]
    #[schemars(with = "NamedCell")]
    pub cell: CellName,
    pub machine: String,
    pub metric: String,
    pub unit: String,
    pub better: Better,
    /// Two levels between which it goes to and fro, where it does: not each step is a change.
    pub modes: Option<[f64; 2]>,
    pub points: Vec<CoursePoint>,
    pub changes: Vec<CellChange>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CoursePoint {
    pub version: String,
    /// The hash of the commit that it is.
    pub commit: Option<String>,
    /// ISO 8601, UTC.
    pub at: String,
    pub session: i64,
    /// Median of the samples.
    pub value: Option<f64>,
    pub n: usize,
    /// Hash of what was true of the machine.
    pub environment: Option<String>,
    /// How that differs from the point before.
    pub differences: Vec<String>,
}

/// The word for a change of level.
pub fn direction(ratio: Option<f64>, difference: f64, better: Better) -> Verdict {
    let up = ratio.map_or(difference > 0.0, |ratio| ratio > 1.0);
    match up == (better == Better::Higher) {
        true => Verdict::Improvement,
        false => Verdict::Regression,
    }
}

/// Outside its credible set a change is so likely for each place; no cell alone may rule a place out.
const ELSEWHERE: f64 = 0.01;

/// Gathers changes whose credible sets have a place in common: they have one cause. The latest first. What is gone is
/// by itself.
pub fn causes(mut changes: Vec<CellChange>) -> Vec<Cause> {
    // The best known first: what is known less well joins it.
    changes.sort_by_key(|change| (change.places.len(), change.id.unwrap_or(i64::MAX)));
    let mut groups: Vec<(Vec<VersionPlace>, Vec<CellChange>)> = Vec::new();
    for change in changes {
        let common = |places: &[VersionPlace]| -> Vec<VersionPlace> {
            let of_both = places
                .iter()
                .filter(|place| share(&change.places, place) > 0.0);
            of_both.cloned().collect()
        };
        let mut known = groups.iter_mut();
        match known.find_map(|group| {
            Some(common(&group.0))
                .filter(|it| !it.is_empty())
                .zip(Some(group))
        }) {
            Some((places, group)) => {
                group.0 = places;
                group.1.push(change);
            }
            None => groups.push((change.places.clone(), vec![change])),
        }
    }
    let mut causes: Vec<Cause> = groups
        .into_iter()
        .filter_map(|group| cause(group.1))
        .collect();
    causes.sort_by(|a, b| b.at.cmp(&a.at).then(a.id.cmp(&b.id)));
    causes
}

/// The share of a change's posterior at the place of another series; 0 where that is none of its places.
fn share(places: &[VersionPlace], other: &VersionPlace) -> f64 {
    let own = places
        .iter()
        .find(|own| is_same(own, other) || own.after < other.at && other.at <= own.at);
    own.map_or(0.0, |own| own.share)
}

/// Whether two series name the same pair of versions. What is no commit stands where it was first measured, and cells are
/// measured one after the other: the times of one pair differ from series to series.
fn is_same(a: &VersionPlace, b: &VersionPlace) -> bool {
    let names = |place: &VersionPlace| (place.before.clone(), place.version.clone());
    a.at == b.at || names(a) == names(b) && a.after < b.at && b.after < a.at
}

/// The places of a cause with their joint posterior, in their order: the product over cells. Metrics of one cell are measured
/// together and count as one, their geometric mean.
fn joint(cells: &[CellChange]) -> Vec<VersionPlace> {
    let mut of_cell: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for change in cells {
        *of_cell.entry((&change.machine, &change.cell)).or_default() += 1.0;
    }
    let mut places: Vec<VersionPlace> = cells
        .iter()
        .flat_map(|change| change.places.clone())
        .collect();
    places.sort_by_key(|place| place.at);
    places.dedup_by(|a, b| is_same(a, b));
    let log = |place: &VersionPlace| -> f64 {
        let of_change = |change: &CellChange| {
            let metrics = of_cell.get(&(&*change.machine, &*change.cell)).copied();
            share(&change.places, place).max(ELSEWHERE).ln() / metrics.unwrap_or(1.0)
        };
        cells.iter().map(of_change).sum()
    };
    let logs: Vec<f64> = places.iter().map(log).collect();
    let known = credible(&logs, 0);
    let shares = known.set.iter().zip(known.shares);
    shares
        .filter_map(|(at, share)| {
            Some(VersionPlace {
                share,
                ..places.get(*at)?.clone()
            })
        })
        .collect()
}

fn cause(cells: Vec<CellChange>) -> Option<Cause> {
    let first = cells.first()?.clone();
    let worse = cells
        .iter()
        .filter(|cell| cell.verdict == Verdict::Regression);
    let (mut surroundings, mut machines): (Vec<String>, Vec<String>) = Default::default();
    let mut ratios: BTreeMap<&str, Vec<Option<f64>>> = BTreeMap::new();
    for cell in &cells {
        surroundings.extend(cell.surroundings.clone());
        machines.push(cell.machine.clone());
        ratios.entry(&cell.metric).or_default().push(cell.ratio);
    }
    let mut seen = BTreeSet::new();
    surroundings.retain(|told| seen.insert(told.clone()));
    machines.sort();
    machines.dedup();
    let effects = ratios.into_iter().map(|(metric, ratios)| Effect {
        metric: metric.to_owned(),
        cells: ratios.len(),
        ratio: median(&ratios.into_iter().flatten().collect::<Vec<f64>>()),
    });
    let places = joint(&cells);
    let most_likely = places.iter().max_by(|a, b| a.share.total_cmp(&b.share));
    let all_accepted = cells.iter().all(|cell| cell.accepted.is_some());
    Some(Cause {
        id: cells.iter().filter_map(|cell| cell.id).min(),
        machines,
        from: places
            .first()
            .map_or(first.from, |place| place.before.clone()),
        to: places
            .last()
            .map_or(first.to, |place| place.version.clone()),
        most_likely: most_likely.map_or(first.most_likely, |place| place.version.clone()),
        commit: most_likely.map_or(first.commit, |place| place.commit.clone()),
        commits: places.iter().map(|place| place.commit.clone()).collect(),
        probability: most_likely.map(|place| place.share),
        set: places.iter().map(|place| place.version.clone()).collect(),
        at: most_likely.map_or(first.at, |place| place.measured.clone()),
        verdict: match 2 * worse.count() >= cells.len() {
            true => Verdict::Regression,
            false => Verdict::Improvement,
        },
        effects: effects.collect(),
        surroundings,
        accepted: first.accepted.filter(|_| all_accepted),
        cells,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change of a cell at one of `places`: (the commit, its share).
    fn change(cell: &str, metric: &str, places: &[(i64, f64)], ratio: f64) -> CellChange {
        let position = |ms| Position { ms, depth: 0 };
        let place = |(at, share): &(i64, f64)| VersionPlace {
            after: position(at - 1),
            at: position(*at),
            before: format!("c{}", at - 1),
            version: format!("c{at}"),
            measured: format!("2026-01-{at:02}T00:00:00Z"),
            commit: None,
            share: *share,
        };
        CellChange {
            id: Some(places[0].0),
            cell: cell.to_owned().into(),
            machine: "here".into(),
            metric: metric.into(),
            unit: String::new(),
            index: 9,
            probability: Some(1.0),
            set: vec![9],
            from: String::new(),
            to: String::new(),
            most_likely: String::new(),
            commit: None,
            places: places.iter().map(place).collect(),
            told_at: None,
            at: String::new(),
            verdict: direction(Some(ratio), 0.0, Better::Higher),
            ratio: Some(ratio),
            ci95: None,
            before: None,
            after: None,
            standing: None,
            surroundings: vec!["kernel".into()],
            accepted: None,
        }
    }

    #[test]
    fn changes_whose_sets_overlap_are_one_cause_that_is_known_better() {
        let found = causes(vec![
            change("a", "iops", &[(10, 0.3), (11, 0.4), (12, 0.25)], 0.9),
            change("b", "iops", &[(11, 0.5), (12, 0.2), (13, 0.25)], 0.8),
            change("b", "lat", &[(11, 0.5), (12, 0.45)], 1.5),
            change("a", "iops", &[(20, 1.0)], 1.1),
        ]);
        let told: Vec<_> = found
            .iter()
            .map(|it| (&*it.most_likely, it.cells.len(), it.verdict))
            .collect();
        let expected = [
            ("c20", 1, Verdict::Improvement),
            ("c11", 3, Verdict::Regression),
        ];
        assert_eq!(told, expected);
        let both = &found[1];
        assert_eq!(
            (&*both.from, &*both.to, &both.set[..]),
            ("c10", "c12", &["c11".to_owned(), "c12".to_owned()][..])
        );
        assert!(both.probability > Some(0.6), "{both:?}");
        let effects: Vec<_> = both
            .effects
            .iter()
            .map(|it| (&*it.metric, it.cells))
            .collect();
        assert_eq!(effects, [("iops", 2), ("lat", 1)]);
        assert!((both.effects[0].ratio.unwrap() - 0.85).abs() < 1e-12);
        assert_eq!(both.surroundings, ["kernel"]);
    }

    #[test]
    fn versions_that_are_no_commits_are_one_place_whenever_a_cell_was_measured() {
        let mut later = change("b", "iops", &[(20, 1.0)], 0.9);
        for place in &mut later.places {
            (place.after.ms, place.at.ms) = (1_950, 2_050);
        }
        let mut sooner = change("a", "iops", &[(20, 1.0)], 0.9);
        for place in &mut sooner.places {
            (place.after.ms, place.at.ms) = (1_900, 2_000);
        }
        for changes in [[sooner.clone(), later.clone()], [later, sooner]] {
            let found = causes(changes.into());
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].set, ["c20"]);
        }
    }

    #[test]
    fn sets_that_only_touch_are_two_causes() {
        let found = causes(vec![
            change("a", "iops", &[(10, 0.6), (11, 0.35)], 0.9),
            change("b", "iops", &[(12, 0.6), (13, 0.35)], 0.9),
        ]);
        assert_eq!(found.len(), 2);
    }
}
