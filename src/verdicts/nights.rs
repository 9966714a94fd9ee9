//! What nights have found: causes, each with its commits and cells, from the night that found it to the one that saw it gone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::judge::verdict::Verdict;
use crate::verdicts::report::{Report, VerdictRow};

/// Nights that are remembered of a matrix.
pub const NIGHTS_MAX: usize = 400;
/// Causes that are remembered of a matrix, open ones always.
pub const CAUSES_MAX: usize = 1000;

/// The nights of a matrix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Nights {
    pub matrix: String,
    /// The commit that was measured last, with which the next ones are compared.
    pub tip: Option<String>,
    /// The latest last.
    pub nights: Vec<NightRecord>,
    /// In the order in which they were found.
    pub causes: Vec<NightCause>,
}

/// A night that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NightRecord {
    /// ISO 8601, UTC.
    pub began: String,
    pub ended: String,
    /// The exit status.
    pub exit: u8,
    /// What came of it, in one line.
    pub line: String,
}

/// What a commit did to some cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NightCause {
    pub id: u64,
    /// The last commit at which the cells were as before.
    pub before: String,
    /// The change is at one of these, oldest first; nothing more is known.
    pub commits: Vec<String>,
    /// Regressions first, then by the size of the change.
    pub effects: Vec<NightEffect>,
    /// ISO 8601, UTC.
    pub since: String,
    /// None while it stands.
    pub closed: Option<CauseEnd>,
    /// Something that nobody was told of yet.
    pub has_news: bool,
    /// Something that the tracker was not told of yet.
    #[serde(default)]
    pub is_untracked: bool,
    /// The issue that the tracker has for it, as its hook named it.
    #[serde(default)]
    pub issue: Option<String>,
    pub thread: Option<MailThread>,
}

/// What a tracker is told of a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CauseNews {
    /// Of the cause, within its matrix.
    pub id: u64,
    /// `open`, `recovered` or `accepted`.
    pub state: &'static str,
    /// What the hook printed when it was told first; null: there is no issue yet.
    pub issue: Option<String>,
    pub title: String,
    /// Markdown.
    pub body: String,
}

/// How a cause ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseEnd {
    pub how: EndKind,
    /// The tip at which that was seen.
    pub commit: String,
    /// ISO 8601, UTC.
    pub at: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndKind {
    /// All cells are as before.
    Recovered,
    /// Somebody accepted it.
    Accepted,
}

/// What was mailed about a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailThread {
    pub subject: String,
    /// Message ids, the first one of the thread first.
    pub ids: Vec<String>,
    pub to: Vec<String>,
    pub cc: Vec<String>,
}

/// A commit that a cause may be at, as people read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuspectCommit {
    pub hash: String,
    pub author: String,
    pub author_email: String,
    pub committer_email: String,
    /// ISO 8601, UTC.
    pub authored: String,
    /// Its first line is the subject.
    pub message: String,
}

impl SuspectCommit {
    pub fn subject(&self) -> &str {
        self.message.lines().next().unwrap_or("")
    }

    /// The addresses of trailers such as `Reviewed-by: Somebody <somebody@example.org>`, whatever their case.
    pub fn trailers<'a>(&'a self, names: &'a [&str]) -> impl Iterator<Item = &'a str> {
        let lines = self.message.lines().skip(1);
        lines.filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_one = names.iter().any(|it| it.eq_ignore_ascii_case(name));
            let (_, address) = value.rsplit_once('<').filter(|_| is_one)?;
            Some(address.split_once('>')?.0)
        })
    }
}

/// What a cause did to a metric of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NightEffect {
    /// Without the version.
    pub cell: String,
    pub metric: String,
    pub unit: String,
    pub is_regression: bool,
    pub ratio: Option<f64>,
    pub ci95: Option<[f64; 2]>,
    pub before: Option<f64>,
    pub after: Option<f64>,
}

impl NightEffect {
    fn of(row: &VerdictRow) -> NightEffect {
        NightEffect {
            cell: row.cell.to_string(),
            metric: row.metric.clone(),
            unit: row.unit.clone(),
            is_regression: row.comparison.verdict == Verdict::Regression,
            ratio: row.comparison.ratio,
            ci95: row.comparison.ci95,
            before: row.baseline_median,
            after: row.candidate_median,
        }
    }

    fn size(&self) -> f64 {
        self.ratio.map_or(f64::INFINITY, |ratio| ratio.ln().abs())
    }

    fn is_of(&self, row: &VerdictRow) -> bool {
        self.cell == *row.cell && self.metric == row.metric
    }
}

/// A change between two commits, as the comparisons of one night show it.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundCause {
    /// Index of the last commit that was as before.
    pub before: usize,
    /// Indexes of the commits that it may be at, ascending.
    pub commits: Vec<usize>,
    pub effects: Vec<NightEffect>,
}

/// Changes of a report on the axis `version`. `line`: the labels of all commits, oldest first, the baseline at 0; `report`
/// compares some of them with it. A change counts where its verdict still holds at the last commit that was measured: it
/// is after the last commit whose verdict is `same`, and at the first of those after it that look changed at the latest.
/// Changes that may be at one and the same commit are one cause.
pub fn found(report: &Report, line: &[String]) -> Vec<FoundCause> {
    let place: BTreeMap<&str, usize> = (0..)
        .zip(line)
        .map(|(at, label)| (label.as_str(), at))
        .collect();
    let mut series: BTreeMap<(&str, &str), BTreeMap<usize, &VerdictRow>> = BTreeMap::new();
    for row in report.verdicts.iter().filter(|row| row.axis == "version") {
        let ends = place
            .get(row.baseline.as_str())
            .zip(place.get(row.candidate.as_str()));
        if let Some((0, at)) = ends {
            let of_cell = series.entry((&row.cell, &row.metric)).or_default();
            of_cell.insert(*at, row);
        }
    }
    let singles = series.values().filter_map(single);
    let mut causes: Vec<FoundCause> = Vec::new();
    let mut singles: Vec<FoundCause> = singles.collect();
    // The narrowest first: the others are told apart by them.
    singles.sort_by_key(|cause| (cause.commits.len(), cause.commits[0]));
    for single in singles {
        let shared = |cause: &FoundCause| -> Vec<usize> {
            let both = single.commits.iter().copied();
            both.filter(|at| cause.commits.contains(at)).collect()
        };
        match causes.iter_mut().find(|cause| !shared(cause).is_empty()) {
            Some(cause) => {
                cause.commits = shared(cause);
                cause.before = cause.before.max(single.before);
                cause.effects.extend(single.effects);
            }
            None => causes.push(single),
        }
    }
    for cause in &mut causes {
        sort(&mut cause.effects);
    }
    causes.sort_by_key(|cause| cause.commits[0]);
    causes
}

fn sort(effects: &mut [NightEffect]) {
    effects.sort_by(|a, b| {
        let by_size = b.size().total_cmp(&a.size());
        b.is_regression.cmp(&a.is_regression).then(by_size)
    });
}

/// The change of one series, if there is one that lasts.
fn single(rows: &BTreeMap<usize, &VerdictRow>) -> Option<FoundCause> {
    let verdict = |row: &VerdictRow| row.comparison.verdict;
    let measured = rows
        .iter()
        .filter(|(_, row)| verdict(row) != Verdict::NothingMeasured);
    let (_, last) = measured.clone().next_back()?;
    let is_changed = |row: &VerdictRow| verdict(row) == verdict(last) && !row.is_accepted;
    if !verdict(last).is_change() || !is_changed(last) {
        return None;
    }
    let before = measured
        .clone()
        .rev()
        .find(|(_, row)| verdict(row) == Verdict::Same);
    let before = before.map_or(0, |(at, _)| *at);
    let first = measured
        .clone()
        .find(|(at, row)| **at > before && is_changed(row))?;
    Some(FoundCause {
        before,
        commits: (before + 1..=*first.0).collect(),
        effects: vec![NightEffect::of(last)],
    })
}

/// What a report, which compares the tip with the commit before a cause, says of the cause. None: it stands, or that cannot
/// be told.
pub fn end_of(cause: &NightCause, report: &Report) -> Option<EndKind> {
    let rows = cause.effects.iter().map(|effect| {
        let mut rows = report.verdicts.iter();
        let row = rows.find(|row| row.axis == "version" && effect.is_of(row))?;
        let is_opposite = match effect.is_regression {
            true => Verdict::Improvement,
            false => Verdict::Regression,
        };
        match row.comparison.verdict {
            _ if row.is_accepted => Some(EndKind::Accepted),
            Verdict::Same => Some(EndKind::Recovered),
            verdict if verdict == is_opposite => Some(EndKind::Recovered),
            _ => None,
        }
    });
    let ends: Option<Vec<EndKind>> = rows.collect();
    let ends = ends.filter(|ends| !ends.is_empty())?;
    match ends.contains(&EndKind::Recovered) {
        true => Some(EndKind::Recovered),
        false => Some(EndKind::Accepted),
    }
}

impl NightCause {
    fn has_changed(&mut self) {
        self.has_news = true;
        self.is_untracked = true;
    }

    /// Takes up what another look has found of it.
    fn learn(&mut self, commits: Vec<String>, before: &str, effects: Vec<NightEffect>) {
        let many = self.commits.len();
        self.commits.retain(|commit| commits.contains(commit));
        if self.commits.len() < many {
            self.has_changed();
            if self.commits.first() == commits.first() {
                self.before = before.to_owned();
            }
        }
        for effect in effects {
            let is_same = |it: &&mut NightEffect| {
                it.cell == effect.cell
                    && it.metric == effect.metric
                    && it.is_regression == effect.is_regression
            };
            match self.effects.iter_mut().find(is_same) {
                Some(known) => *known = effect,
                None => {
                    self.effects.push(effect);
                    self.has_changed();
                }
            }
        }
        sort(&mut self.effects);
    }
}

impl Nights {
    /// Takes up what a night has found between commits (`line` as for [`found`], as whole hashes); what only undoes a cause
    /// that ended this night is no news. Returns how many causes are new.
    pub fn take_up(&mut self, found: Vec<FoundCause>, line: &[String], now: &str) -> usize {
        let ended: Vec<(String, String, bool)> = self
            .causes
            .iter()
            .filter(|cause| cause.closed.as_ref().is_some_and(|end| end.at == now))
            .flat_map(|cause| &cause.effects)
            .map(|it| (it.cell.clone(), it.metric.clone(), it.is_regression))
            .collect();
        let mut new = 0;
        for mut cause in found {
            cause.effects.retain(|it| {
                let undone = (it.cell.clone(), it.metric.clone(), !it.is_regression);
                !ended.contains(&undone)
            });
            if cause.effects.is_empty() {
                continue;
            }
            let commits: Vec<String> = cause.commits.iter().map(|at| line[*at].clone()).collect();
            let mut open = self.causes.iter_mut().filter(|it| it.closed.is_none());
            if let Some(known) = open.find(|it| it.commits.iter().any(|it| commits.contains(it))) {
                known.learn(commits, &line[cause.before], cause.effects);
                continue;
            }
            new += 1;
            let id = self.causes.last().map_or(1, |last| last.id + 1);
            self.causes.push(NightCause {
                id,
                before: line[cause.before].clone(),
                commits,
                effects: cause.effects,
                since: now.to_owned(),
                closed: None,
                has_news: true,
                is_untracked: true,
                issue: None,
                thread: None,
            });
        }
        new
    }

    /// Causes that stand.
    pub fn open(&self) -> impl Iterator<Item = &NightCause> {
        self.causes.iter().filter(|cause| cause.closed.is_none())
    }

    /// Remembers a night, and forgets the oldest ones beyond the limits.
    pub fn add_night(&mut self, night: NightRecord) {
        self.nights.push(night);
        let many = self.nights.len().saturating_sub(NIGHTS_MAX);
        self.nights.drain(..many);
        let mut many = self.causes.len().saturating_sub(CAUSES_MAX);
        self.causes.retain(|cause| {
            let goes = many > 0 && cause.closed.is_some() && !cause.has_news && !cause.is_untracked;
            many -= usize::from(goes);
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sample::Better;
    use crate::judge::verdict::{Question, compare};

    /// `same`, `REG`, `imp`, `?`, `-` by candidate, from 1 on.
    fn report(cells: &[(&str, &str)]) -> Report {
        let mut rows = Vec::new();
        for (cell, verdicts) in cells {
            for (at, word) in (1..).zip(verdicts.split(' ')) {
                let mut comparison = compare(&[], &[], &Question::new(Better::Higher, 0.02));
                comparison.verdict = match word {
                    "REG" | "acc" => Verdict::Regression,
                    "imp" => Verdict::Improvement,
                    "same" => Verdict::Same,
                    "?" => Verdict::Suspected,
                    _ => Verdict::NothingMeasured,
                };
                rows.push(VerdictRow {
                    runs: [0; 2],
                    differing: None,
                    baseline_median: None,
                    candidate_median: None,
                    commits: [None, None],
                    standing: None,
                    since: None,
                    samples: Default::default(),
                    sides: [None, None],
                    cell: (*cell).to_owned().into(),
                    metric: "v".to_owned(),
                    unit: String::new(),
                    better: Better::Higher,
                    axis: "version".to_owned(),
                    gate: true,
                    axis_gates: true,
                    baseline: "c0".to_owned(),
                    candidate: format!("c{at}"),
                    comparison,
                    confirmed: None,
                    accepted: None,
                    is_accepted: word == "acc",
                });
            }
        }
        Report::of("m", "", rows)
    }

    fn line() -> Vec<String> {
        (0..10).map(|at| format!("c{at}")).collect()
    }

    #[test]
    fn changes_are_told_with_the_commits_that_they_may_be_at() {
        let check = |cells: &[(&str, &str)], expected: &[(usize, &[usize], usize)]| {
            let found = found(&report(cells), &line());
            let found: Vec<(usize, &[usize], usize)> = found
                .iter()
                .map(|it| (it.before, &it.commits[..], it.effects.len()))
                .collect();
            assert_eq!(found, expected);
        };
        check(&[("a", "same same same")], &[]);
        check(&[("a", "same REG REG")], &[(1, &[2], 1)]);
        check(&[("a", "REG REG REG")], &[(0, &[1], 1)]);
        // It does not build, or is not shown.
        check(&[("a", "same - REG")], &[(1, &[2, 3], 1)]);
        check(&[("a", "same ? REG REG")], &[(1, &[2, 3], 1)]);
        check(&[("a", "same REG -")], &[(1, &[2], 1)]);
        // Gone again before the end: nobody is told.
        check(&[("a", "same REG same")], &[]);
        check(&[("a", "REG same REG")], &[(2, &[3], 1)]);
        check(&[("a", "same REG ?")], &[]);
        check(&[("a", "same acc acc")], &[]);
        // One cause, as narrow as both allow; another commit is another cause.
        check(
            &[("a", "same ? REG REG"), ("b", "same same imp imp")],
            &[(2, &[3], 2)],
        );
        check(
            &[("a", "same REG REG REG"), ("b", "same same same REG")],
            &[(1, &[2], 1), (3, &[4], 1)],
        );
    }

    fn nights(cells: &[(&str, &str)]) -> Nights {
        let mut nights = Nights::default();
        let found = found(&report(cells), &line());
        nights.take_up(found, &line(), "day 1");
        nights
    }

    #[test]
    fn a_cause_ends_when_all_its_cells_are_as_before() {
        let nights = nights(&[("a", "REG"), ("b", "imp")]);
        assert_eq!(nights.causes.len(), 1);
        let check = |cells: &[(&str, &str)], expected: Option<EndKind>| {
            assert_eq!(end_of(&nights.causes[0], &report(cells)), expected);
        };
        check(&[("a", "REG"), ("b", "imp")], None);
        check(&[("a", "same"), ("b", "imp")], None);
        check(&[("a", "same"), ("b", "?")], None);
        check(&[("a", "same")], None);
        check(&[("a", "same"), ("b", "same")], Some(EndKind::Recovered));
        check(&[("a", "imp"), ("b", "REG")], Some(EndKind::Recovered));
        check(&[("a", "acc"), ("b", "acc")], Some(EndKind::Accepted));
    }

    #[test]
    fn what_is_known_is_no_news() {
        let mut nights = nights(&[("a", "same ? REG")]);
        nights.causes[0].has_news = false;
        let look = |nights: &mut Nights, cells: &[(&str, &str)]| {
            let new = nights.take_up(found(&report(cells), &line()), &line(), "day 2");
            let cause = &nights.causes[0];
            (
                new,
                cause.has_news,
                cause.commits.join(" "),
                cause.before.clone(),
            )
        };
        let told = |has_news, commits: &str, before: &str| {
            (0, has_news, commits.to_owned(), before.to_owned())
        };
        let same = look(&mut nights.clone(), &[("a", "same ? REG REG")]);
        assert_eq!(same, told(false, "c2 c3", "c1"));
        let more = look(
            &mut nights.clone(),
            &[("a", "same ? REG"), ("b", "same same REG")],
        );
        assert_eq!(more, told(true, "c3", "c2"));
        let narrower = look(&mut nights, &[("a", "same same REG REG")]);
        assert_eq!(narrower, told(true, "c3", "c2"));
    }

    #[test]
    fn a_fix_is_no_improvement() {
        let mut nights = nights(&[("a", "REG")]);
        nights.causes[0].closed = Some(CauseEnd {
            how: EndKind::Recovered,
            commit: "c3".to_owned(),
            at: "day 2".to_owned(),
        });
        let fix = found(&report(&[("a", "imp"), ("b", "same")]), &line());
        assert_eq!(nights.clone().take_up(fix.clone(), &line(), "day 2"), 0);
        assert_eq!(nights.clone().take_up(fix, &line(), "day 3"), 1);
        let more = found(&report(&[("a", "imp"), ("b", "imp")]), &line());
        assert_eq!(nights.take_up(more, &line(), "day 2"), 1);
        assert_eq!(nights.causes[1].effects.len(), 1);
    }
}
