//! The first sentence of a report: what changed, where, by how much, since which commit.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::units::{count, show_ratio};
use crate::judge::history::ChangeStanding;
use crate::judge::stats::median;
use crate::judge::verdict::Verdict;
use crate::verdicts::report::{Report, VerdictRow};
use crate::verdicts::series::Cause;

/// Metrics that a sentence names.
const METRICS_MAX: usize = 3;
/// Axes that a sentence names.
const AXES_MAX: usize = 3;

/// Changes with one axis, one pair of its values and one direction.
struct ChangeGroup<'a> {
    rows: Vec<&'a VerdictRow>,
}

/// A few sentences: the most important change, then what else there is.
pub fn headline(report: &Report) -> Vec<String> {
    let groups = groups(report);
    let mut told: Vec<String> = groups
        .iter()
        .take(2)
        .map(|group| group.sentence(report))
        .collect();
    if groups.len() > 2 {
        let rows: usize = groups[2..].iter().map(|group| group.rows.len()).sum();
        let axes: BTreeSet<&str> = groups[2..]
            .iter()
            .map(|group| &*group.rows[0].axis)
            .collect();
        let axes: Vec<&str> = axes.into_iter().collect();
        told.push(format!(
            "{} between values of {}.",
            count(rows, "more change"),
            axes.join(", ")
        ));
    }
    let counts = &report.counts;
    if told.is_empty() {
        told.push(match () {
            () if report.verdicts.is_empty() && report.cells.is_empty() => {
                "Nothing is measured yet.".to_owned()
            }
            () if report.verdicts.is_empty() => format!(
                "{} measured; nothing is compared.",
                count(report.cells.cells(), "cell")
            ),
            () if counts.same == 0 => "Nothing is shown to have changed.".to_owned(),
            () => format!(
                "Nothing changed: {} the same.",
                is_are(counts.same, "comparison")
            ),
        });
    }
    let mut doubts = Vec::new();
    for (n, word) in [
        (counts.suspected, "suspected, not confirmed"),
        (counts.inconclusive, "inconclusive"),
        (counts.nothing_measured, "not measured"),
        (counts.accepted, "accepted before"),
    ] {
        if n > 0 {
            doubts.push(format!("{n} {word}"));
        }
    }
    if !report.failed.is_empty() {
        doubts.push(format!("{} failed", count(report.failed.len(), "cell")));
    }
    if !doubts.is_empty() {
        told.push(format!("Also: {}.", doubts.join(", ")));
    }
    told
}

fn is_are(n: usize, one: &str) -> String {
    let verb = if n == 1 { "is" } else { "are" };
    format!("{} {verb}", count(n, one))
}

/// What gates first, then the worse before the better, then the largest.
fn groups(report: &Report) -> Vec<ChangeGroup<'_>> {
    let mut groups: BTreeMap<(&str, &str, &str, bool), Vec<&VerdictRow>> = BTreeMap::new();
    let changed = report.verdicts.iter();
    for row in changed.filter(|row| row.comparison.verdict.is_change() && !row.is_accepted) {
        let is_worse = row.comparison.verdict == Verdict::Regression;
        let key = (&*row.axis, &*row.baseline, &*row.candidate, is_worse);
        groups.entry(key).or_default().push(row);
    }
    let mut groups: Vec<ChangeGroup> = groups
        .into_values()
        .map(|rows| ChangeGroup { rows })
        .collect();
    groups.sort_by_key(|group| {
        let first = group.rows[0];
        let gates = group.rows.iter().any(|row| row.gate);
        let is_worse = first.comparison.verdict == Verdict::Regression;
        // A change between versions is news; one between two settings is a fact about them.
        let is_version = first.axis == "version";
        let rows = usize::MAX - group.rows.len();
        (!(gates && is_worse), !is_version, !is_worse, rows)
    });
    groups
}

impl ChangeGroup<'_> {
    fn sentence(&self, report: &Report) -> String {
        let first = self.rows[0];
        let word = match first.comparison.verdict {
            Verdict::Regression => "worse",
            _ => "better",
        };
        let axis = match &*first.axis {
            "version" | "side" => String::new(),
            axis => format!("{axis}="),
        };
        let cells: BTreeSet<&str> = self.rows.iter().map(|row| &*row.cell.0).collect();
        let compared: BTreeSet<&str> = self.compared(report).map(|row| &*row.cell.0).collect();
        let cells = match (cells.len(), compared.len()) {
            (1, 1) => String::new(),
            (n, all) if n == all => format!(", in all {}", count(all, "cell")),
            (n, all) => format!(", in {n} of {}", count(all, "cell")),
        };
        format!(
            "{axis}{} is {word} than {axis}{}: {}{cells}{}{}.",
            first.candidate,
            first.baseline,
            self.metrics(),
            self.place(report),
            self.since(report),
        )
    }

    /// All comparisons of this pair.
    fn compared<'a>(&'a self, report: &'a Report) -> impl Iterator<Item = &'a VerdictRow> {
        let first = self.rows[0];
        report.verdicts.iter().filter(move |row| {
            (&row.axis, &row.baseline, &row.candidate)
                == (&first.axis, &first.baseline, &first.candidate)
        })
    }

    /// `iops -9.1% (down to -14.0%)`.
    fn metrics(&self) -> String {
        let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for row in &self.rows {
            let of_metric = ratios.entry(&row.metric).or_default();
            of_metric.extend(row.comparison.ratio);
        }
        let mut list: Vec<(&str, Vec<f64>)> = ratios.into_iter().collect();
        list.sort_by_key(|(_, ratios)| usize::MAX - ratios.len());
        let words = list.iter().take(METRICS_MAX).map(|(metric, ratios)| {
            let Some(middle) = median(ratios) else {
                return (*metric).to_owned();
            };
            let far = |ratio: &&f64| ratio.ln().abs();
            let extreme = ratios.iter().max_by(|a, b| far(a).total_cmp(&far(b)));
            match extreme.filter(|_| ratios.len() > 1) {
                Some(extreme) => format!(
                    "{metric} {} (at most {})",
                    show_ratio(middle),
                    show_ratio(*extreme)
                ),
                None => format!("{metric} {}", show_ratio(middle)),
            }
        });
        let mut words: Vec<String> = words.collect();
        if list.len() > METRICS_MAX {
            words.push(count(list.len() - METRICS_MAX, "more metric"));
        }
        words.join(", ")
    }

    /// The values that all changed cells share, and others do not: `, all with cache=none`.
    fn place(&self, report: &Report) -> String {
        let first = self.rows[0];
        let shared = first.cell.axes().filter(|(name, value)| {
            let has = |row: &VerdictRow| row.cell.axes().any(|axis| axis == (*name, *value));
            self.rows.iter().all(|row| has(row)) && !self.compared(report).all(has)
        });
        let shared: Vec<String> = shared
            .take(AXES_MAX)
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        match (shared.is_empty(), self.rows.len()) {
            (true, _) => String::new(),
            (false, 1) => format!(", with {}", shared.join(", ")),
            (false, _) => format!(", all with {}", shared.join(", ")),
        }
    }

    /// The commit, where changes between versions have one cause that still stands.
    fn since(&self, report: &Report) -> String {
        let first = self.rows[0];
        let moved = |cause: &&Cause| {
            cause.verdict == first.comparison.verdict
                && cause.cells.iter().any(|change| {
                    change.standing != Some(ChangeStanding::Gone)
                        && self.rows.iter().any(|row| {
                            let mut axes = row.cell.axes();
                            row.metric == change.metric
                                && axes.all(|axis| {
                                    axis.0 == "machine" || change.cell.axes().any(|of| of == axis)
                                })
                        })
                })
        };
        let cause = report
            .changes
            .iter()
            .find(moved)
            .filter(|_| first.axis == "version");
        let Some(cause) = cause else {
            return String::new();
        };
        let commit = cause.commit.as_ref().and_then(|hash| report.commit(hash));
        let commit = commit.filter(|commit| !commit.subject.is_empty());
        let commit = commit.map_or(String::new(), |commit| {
            format!(" “{}” by {}", commit.subject, commit.author)
        });
        match cause.probability {
            Some(p) if p < 0.95 => format!(
                ", most likely since {}{commit} ({:.0}%), and at {} at the latest",
                cause.most_likely,
                p * 100.0,
                cause.to
            ),
            _ => format!(", since {}{commit}", cause.most_likely),
        }
    }
}
