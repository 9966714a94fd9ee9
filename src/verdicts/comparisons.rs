//! The comparisons that a plan asks for, and their answers as one family.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::base::diag::Diagnostic;
use crate::base::key::Key;
use crate::base::sample::{Better, Sample};
use crate::edge::store::{
    Acceptance, AcceptedFrom, Confirmation, FindingChanges, OpenFinding, Pair, Position,
    SeriesFinding, SeriesId, Store, StoreError,
};
use crate::judge::compare::Basis;
use crate::judge::confirm::{EVIDENCE_MIN, Finding, Policy, confirmed, decide, is_open};
use crate::judge::stats::{MAD_TO_SIGMA, Prior, mad, mean, median, pooled, stddev};
use crate::judge::verdict::{
    Comparison, LEVEL, Noise, Question, Summary, Verdict, compare, evidence, noise_within,
};
use crate::plan::dag::{Plan, groups};
use crate::resolve::environment_match::{EnvironmentMatch, MatchedSides};
use crate::resolve::samples::{OwnSeries, Samples};
use crate::verdicts::history::{
    NOISE_SESSIONS_MAX, Past, What, accepted, metrics_of, preset_name, without_version,
};
use crate::verdicts::standing::{self, Compared, Outlook, Standing, outlook};

/// What is known beside the samples of the plan itself.
#[derive(Debug, Default)]
pub struct ComparisonContext {
    /// Answers have the samples that they rest on.
    pub keeps_samples: bool,
    past: Past,
    pub acceptances: Vec<Acceptance>,
    confirmations: HashMap<Pair, Confirmation>,
    /// What was accepted, by series, with its samples.
    accepted: HashMap<SeriesId, (i64, AcceptedFrom, OwnSeries)>,
    alike: EnvironmentMatch,
    /// What earlier sessions found, confirmed and suspected.
    confirmed: HashMap<SeriesId, Vec<OpenFinding>>,
    suspected: HashMap<SeriesId, Vec<OpenFinding>>,
    /// When something was first measured, and where it stands in its series, where that matters.
    first: HashMap<Key, (i64, Position)>,
}

/// One comparison of one metric.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Index into the plan's compares.
    pub compare: usize,
    /// Cells.
    pub baseline: u32,
    pub candidate: u32,
    /// Index into the matrix's metrics.
    pub metric: usize,
    pub unit: String,
    /// Medians of both sides, of the samples that the comparison rests on, as all that follows.
    pub levels: [Option<f64>; 2],
    pub sides: [Option<Summary>; 2],
    /// The samples themselves, where [`ComparisonContext::keeps_samples`].
    pub samples: [Vec<Sample>; 2],
    /// The latest environments in which the sides differ.
    pub differing: Option<[Key; 2]>,
    pub pair: Pair,
    pub question: Question,
    pub comparison: Comparison,
    /// What a rerun said, if there was one.
    pub confirmed: Option<bool>,
    /// The rerun, if there is one, and what it says once a look was reached.
    pub again: Option<Rerun>,
    fresh: Option<Comparison>,
    /// How promising it is to measure the comparison again, or further, where it asks for that.
    pub promise: Option<f64>,
    pub accepted: Option<AcceptedBy>,
    /// Confirmed regressions of earlier sessions that bear on it; of comparisons of versions.
    pub standing: Vec<Standing>,
}

/// Fewer steps from session to session do not tell how far apart sessions lie.
const SESSION_STEPS_MIN: usize = 6;

/// What one comparison says by itself.
struct Judged {
    screen: Comparison,
    fresh: Option<Comparison>,
    again: Option<Rerun>,
    /// The rounds that are told.
    rounds: Range<u32>,
}

/// How far a comparison was measured again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rerun {
    pub noted: Confirmation,
    /// Fresh rounds of both sides.
    pub rounds: u32,
}

/// An acceptance that bears on a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedBy {
    pub id: i64,
    pub version: String,
    /// The candidate came later and is compared with the accepted version; else it is that one.
    pub moved: bool,
}

impl ComparisonContext {
    pub fn read(
        plan: &Plan,
        store: &Store,
        samples: &Samples,
        preset: Option<&str>,
    ) -> Result<ComparisonContext, StoreError> {
        let preset = preset_name(plan.matrix, preset);
        // What is judged speaks for itself.
        let is_earlier = |key: Key| plan.steps.runs.keys.binary_search(&key).is_err();
        let past = match plan.compares.is_empty() {
            false => {
                let what = What {
                    sessions: NOISE_SESSIONS_MAX,
                    metrics: &metrics_of(plan),
                    is_kept: false,
                };
                Past::read(store, plan.matrix, preset, what, &is_earlier)?
            }
            true => Past::default(),
        };
        let mut beside = ComparisonContext {
            past,
            acceptances: store.acceptances(&plan.matrix.name)?,
            confirmations: store.confirmations()?,
            ..ComparisonContext::default()
        };
        for open in store.open_findings(&plan.matrix.name, preset)? {
            let kind = match open.finding.is_confirmed {
                true => &mut beside.confirmed,
                false => &mut beside.suspected,
            };
            let own = kind.entry(open.finding.series.clone()).or_default();
            own.push(open);
        }
        let holding = accepted(&beside.acceptances);
        if holding.is_empty() && beside.confirmed.is_empty() {
            beside.alike = EnvironmentMatch::read(store, samples.environments())?;
            return Ok(beside);
        }
        let names: HashMap<_, _> = store
            .metrics()?
            .into_iter()
            .map(|m| (m.id, m.name))
            .collect();
        let mut by_series = HashMap::new();
        for (series, (acceptance, from)) in holding {
            let stored = store.samples(&[from.key])?.into_iter();
            let mut own = OwnSeries::default();
            for stored in stored.filter(|s| names.get(&s.metric) == Some(&series.metric)) {
                own.add(&stored);
            }
            by_series.insert(series, (acceptance.id, from.clone(), own));
        }
        let of_accepted = by_series.values();
        let of_accepted = of_accepted.flat_map(|(_, _, own)| own.series().environments);
        let of_accepted = of_accepted.map(|(_, key)| *key);
        beside.alike = EnvironmentMatch::read(store, samples.environments().chain(of_accepted))?;
        let known = by_series.keys().chain(beside.confirmed.keys());
        let cells: HashSet<&str> = known.map(|id| id.cell.as_str()).collect();
        let accepted = by_series.values().map(|(_, from, _)| from.key);
        let found = beside.confirmed.values().flatten();
        let found = found.flat_map(|open| open.finding.keys);
        let mut first = HashMap::new();
        for key in accepted.chain(found) {
            first.extend(store.first_measured(key)?.map(|at| (key, at)));
        }
        for (index, tuple) in plan.cells.iter().enumerate() {
            let (machine, cell) = place(plan, tuple);
            if cells.contains(without_version(&cell, &machine).as_str()) {
                let key = plan.key_of(index as u32);
                first.extend(store.first_measured(key)?.map(|at| (key, at)));
            }
        }
        drop(cells);
        (beside.accepted, beside.first) = (by_series, first);
        Ok(beside)
    }

    /// What the answers of a session change about findings.
    pub fn finding_changes(&self, plan: &Plan, answers: &[Answer]) -> FindingChanges {
        let mut answers: Vec<&Answer> = answers
            .iter()
            .filter(|answer| is_of_versions(plan, answer.compare) && answer.accepted.is_none())
            .collect();
        answers.sort_by_key(|answer| self.place(&answer.pair.1));
        let compared = answers.into_iter().map(|answer| {
            let series = series_of(plan, answer.candidate, &answer.pair.2);
            let label = |cell: u32| {
                let axis = plan.compares[answer.compare].axis;
                let tuple = plan.cells.cell(cell as usize);
                plan.cells.label(tuple, axis).to_owned()
            };
            Compared {
                verdict: answer.comparison.verdict,
                is_judged: answer.comparison.p.is_some(),
                is_confirmed: answer.confirmed == Some(true),
                standing: &answer.standing,
                suspected: self.suspected.get(&series).map_or(&[], Vec::as_slice),
                finding: SeriesFinding {
                    series,
                    keys: [answer.pair.0, answer.pair.1],
                    versions: [label(answer.baseline), label(answer.candidate)],
                    is_confirmed: false,
                    shift: answer.comparison.ratio.map_or(0.0, f64::ln),
                },
            }
        });
        standing::changes(&compared.collect::<Vec<_>>())
    }

    fn place(&self, key: &Key) -> Option<Position> {
        self.first.get(key).map(|(_, position)| *position)
    }
}

/// Whether a comparison is one of versions, whose findings outlive a session.
fn is_of_versions(plan: &Plan, compare: usize) -> bool {
    let rule = &plan.matrix.compares[plan.compares[compare].rule];
    rule.axis.value == "version"
}

/// A cell's machine and name.
fn place(plan: &Plan, tuple: &[u16]) -> (String, String) {
    let machine = plan.cells.axis("machine");
    let machine = machine.map_or("", |axis| plan.cells.label(tuple, axis));
    (machine.to_owned(), plan.cells.name(tuple))
}

/// The series that a metric of a cell belongs to.
pub fn series_of(plan: &Plan, cell: u32, metric: &str) -> SeriesId {
    let (machine, name) = place(plan, plan.cells.cell(cell as usize));
    SeriesId {
        cell: without_version(&name, &machine),
        machine,
        metric: metric.to_owned(),
    }
}

/// How findings of a plan are confirmed.
pub fn policy(plan: &Plan) -> Policy {
    let declared = &plan.matrix.run.confirm;
    Policy {
        rounds: declared.rounds,
        budget: declared.max,
    }
}

/// Answers all declared comparisons of a plan over the samples that there are.
pub fn answers(
    plan: &Plan,
    samples: &Samples,
    beside: &ComparisonContext,
) -> Result<Vec<Answer>, Diagnostic> {
    let asker = Asker {
        plan,
        samples,
        beside,
        policy: policy(plan),
    };
    let mut asked = Vec::new();
    for compare in 0..plan.compares.len() {
        asker.ask(compare, &mut asked)?;
    }
    asker.rank(&mut asked);
    let mut answers: Vec<Answer> = asked.into_iter().map(|(answer, _)| answer).collect();
    let finding = |answer: &Answer| {
        let rule = plan.compares[answer.compare].rule;
        Finding {
            question: answer.question,
            screen: answer.comparison.clone(),
            confirms: plan.matrix.compares[rule].confirm && policy(plan).rounds > 0,
            is_again: answer.again.is_some(),
            fresh: answer.fresh.clone(),
        }
    };
    let findings: Vec<Finding> = answers.iter().map(finding).collect();
    for (answer, decision) in answers.iter_mut().zip(decide(&findings)) {
        let is_change = decision.comparison.verdict.is_change();
        answer.promise = answer.promise.filter(|_| !is_change);
        if let Some(again) = answer.again {
            let is_told = is_change || again.noted.finished;
            answer.confirmed = decision.is_confirmed.filter(|_| is_told);
        }
        answer.comparison = decision.comparison;
        answer.standing = asker.standing(answer, &answer.comparison);
        tell_standing(answer);
    }
    Ok(answers)
}

/// What looks changed, and was confirmed by an earlier session, is confirmed.
fn tell_standing(answer: &mut Answer) {
    let mut standing = answer.standing.iter();
    let known = standing.find(|it| it.is_direct() && it.outlook == Outlook::Present);
    let is_worse = answer
        .comparison
        .ratio
        .is_some_and(|ratio| match answer.question.better {
            Better::Lower => ratio > 1.0,
            Better::Higher => ratio < 1.0,
        });
    if let (Some(known), Verdict::Suspected, true) = (known, answer.comparison.verdict, is_worse) {
        answer.comparison.verdict = Verdict::Regression;
        answer.confirmed = Some(true);
        let since = &known.open.finding.versions[1];
        let session = known.open.session;
        let told = format!("confirmed in session {session} as of {since}, still there");
        let note = answer.comparison.note.take().into_iter().chain([told]);
        answer.comparison.note = Some(note.collect::<Vec<_>>().join("; "));
    }
}

struct Asker<'a> {
    plan: &'a Plan<'a>,
    samples: &'a Samples,
    beside: &'a ComparisonContext,
    policy: Policy,
}

/// All samples of the baseline and of the candidate.
type Both<'a> = [Cow<'a, [Sample]>; 2];

impl<'a> Asker<'a> {
    fn ask(&self, compare: usize, asked: &mut Vec<(Answer, Both<'a>)>) -> Result<(), Diagnostic> {
        for (baseline, candidates) in groups(self.plan, &self.plan.compares[compare]) {
            for candidate in candidates {
                let names = self.plan.metric_names(baseline)?.into_iter();
                let names = names.zip(self.plan.metric_names(candidate)?);
                // A metric that neither side has is not asked for.
                let names = names
                    .enumerate()
                    .filter(|(_, (base, candidate))| !base.is_empty() || !candidate.is_empty());
                for (metric, names) in names {
                    asked.push(self.answer(compare, baseline, candidate, metric, names));
                }
            }
        }
        Ok(())
    }

    fn answer(
        &self,
        compare: usize,
        baseline: u32,
        candidate: u32,
        metric: usize,
        (from_baseline, from_candidate): (String, String),
    ) -> (Answer, Both<'a>) {
        let plan = self.plan;
        let rule = &plan.matrix.compares[plan.compares[compare].rule];
        let declared = &plan.matrix.metrics[metric];
        let of = |cell: u32, name: &str| {
            let run = plan.steps.runs.of_cell[cell as usize];
            self.samples.get(run, name)
        };
        let (a, b) = (of(baseline, &from_baseline), of(candidate, &from_candidate));
        let known = if a.samples.is_empty() { b } else { a };
        let own = series_of(plan, candidate, &from_candidate);
        let other = series_of(plan, baseline, &from_baseline);
        let question = Question {
            better: declared.better.or(known.better).unwrap_or(Better::Higher),
            min_effect: declared.min_effect.unwrap_or(rule.min_effect),
            level: LEVEL,
            noise: self.noise(&own, &other),
            between: self.between(&own),
            deterministic: declared.deterministic,
        };
        let mut pair = (
            plan.key_of(baseline),
            plan.key_of(candidate),
            from_candidate,
        );
        let mut a = a;
        let mut accepted = None;
        if rule.axis.value == "version"
            && let Some((id, from, series)) = self.beside.accepted.get(&own)
            && let Some(moved) = self.moved(&pair, from)
        {
            accepted = Some(AcceptedBy {
                id: *id,
                version: from.version.clone(),
                moved,
            });
            if moved {
                (pair.0, a) = (from.key, series.series());
            }
        }
        let MatchedSides {
            samples: [base, cand],
            differing,
            differ,
        } = self.beside.alike.sides(a, b);
        let Judged {
            mut screen,
            mut fresh,
            again,
            rounds,
        } = self.compared(&pair, &base, &cand, &question);
        if let Some(differ) = differ.filter(|_| pair.0 != pair.1) {
            for comparison in [Some(&mut screen), fresh.as_mut()].into_iter().flatten() {
                let note = comparison.note.take().into_iter().chain([differ.clone()]);
                comparison.note = Some(note.collect::<Vec<_>>().join("; "));
            }
        }
        let judged = [&base, &cand].map(|side| of_rounds(side, &rounds));
        let answer = Answer {
            compare,
            baseline,
            candidate,
            metric,
            unit: declared
                .unit
                .clone()
                .unwrap_or_else(|| known.unit.to_owned()),
            levels: [0, 1].map(|side| level(&judged[side])),
            sides: [0, 1].map(|side| summary(&judged[side])),
            samples: match self.beside.keeps_samples {
                true => judged.map(Cow::into_owned),
                false => Default::default(),
            },
            differing,
            pair,
            question,
            comparison: screen,
            confirmed: None,
            again,
            fresh,
            promise: None,
            accepted,
            standing: Vec::new(),
        };
        (answer, [base, cand])
    }

    /// The confirmed regressions of earlier sessions that bear on an answer, with what a comparison of its sides says of each.
    fn standing(&self, answer: &Answer, comparison: &Comparison) -> Vec<Standing> {
        let series = series_of(self.plan, answer.candidate, &answer.pair.2);
        let open = self.beside.confirmed.get(&series);
        let open = open.filter(|_| is_of_versions(self.plan, answer.compare));
        let place = |key: &Key| self.beside.place(key);
        let is_before =
            |a: &Key, b: &Key| matches!((place(a), place(b)), (Some(a), Some(b)) if a < b);
        let accepted = self
            .beside
            .accepted
            .get(&series)
            .map(|(_, from, _)| from.key);
        let bears = |open: &&OpenFinding| {
            let since = &open.finding.keys[1];
            !is_before(&answer.pair.1, since)
                && accepted.is_none_or(|accepted| is_before(&accepted, since))
        };
        let told = |open: &OpenFinding| {
            let [good, since] = &open.finding.keys;
            let base = &answer.pair.0;
            let is_in_baseline = base != good && place(base).is_some() && !is_before(base, since);
            let least = answer.question.min_effect;
            Standing {
                is_same_pair: answer.pair.0 == *good && answer.pair.1 == *since,
                outlook: outlook(open.finding.shift, is_in_baseline, comparison, least),
                open: open.clone(),
                is_in_baseline,
            }
        };
        open.into_iter().flatten().filter(bears).map(told).collect()
    }

    /// How far a cell's level moves from one session to the next as a rule, of logarithms: half the variance of their differences
    /// (von Neumann, 1941), by the median absolute deviation, since a few of them are changes. Known by half as many
    /// degrees of freedom as there are differences.
    fn between(&self, id: &SeriesId) -> Option<Prior> {
        let levels = self.beside.past.series.get(id)?.levels();
        let logs: Vec<f64> = (levels.into_iter().flatten())
            .filter(|level| *level > 0.0)
            .map(f64::ln)
            .collect();
        let steps: Vec<f64> = logs.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let sigma = MAD_TO_SIGMA * mad(&steps)?;
        (steps.len() >= SESSION_STEPS_MIN && sigma > 0.0).then(|| Prior {
            variance: sigma.powi(2) / 2.0,
            degrees: steps.len() as f64 / 2.0,
        })
    }

    /// Where both sides have a past, that with more noise.
    fn noise(&self, own: &SeriesId, other: &SeriesId) -> Option<Noise> {
        let mut ids = vec![own, other];
        ids.dedup();
        let known = ids.into_iter().filter_map(|id| self.beside.past.noise(id));
        known.max_by(|a, b| a.sigma_log.total_cmp(&b.sigma_log))
    }

    /// Whether an acceptance moves the baseline of a pair, or is about its candidate; None where it
    /// does not bear on it: both sides are older, or both newer. A baseline that was measured later than what
    /// was accepted may be of another text of the cell.
    fn moved(&self, (baseline, candidate, _): &Pair, from: &AcceptedFrom) -> Option<bool> {
        if *candidate == from.key {
            return Some(false);
        }
        let first = |key: &Key| self.beside.first.get(key).copied();
        let (measured, position) = first(baseline)?;
        let (_, accepted) = first(&from.key)?;
        let is_between = *baseline != from.key
            && measured < from.since_ms
            && position < accepted
            && accepted < first(candidate)?.1;
        is_between.then_some(true)
    }

    /// The comparison of the first rounds, that of the fresh ones, and the rounds that the row rests on.
    fn compared(
        &self,
        pair: &Pair,
        base: &[Sample],
        cand: &[Sample],
        question: &Question,
    ) -> Judged {
        let alone = |screen: Comparison| Judged {
            screen,
            fresh: None,
            again: None,
            rounds: 0..u32::MAX,
        };
        if pair.0 == pair.1 && !base.is_empty() {
            return alone(same_artifact(base.len()));
        }
        let Some(noted) = self.beside.confirmations.get(pair) else {
            return alone(compare(base, cand, question));
        };
        let first = noted.first_round;
        let of = |rounds: Range<u32>| {
            let [base, cand] = [base, cand].map(|side| of_rounds(side, &rounds));
            compare(&base, &cand, question)
        };
        let reach = |side: &[Sample]| side.iter().map(|s| s.round + 1).max().unwrap_or(0);
        let reached = reach(base).min(reach(cand)).saturating_sub(first);
        let stages = self.policy.stages().into_iter();
        let looks: Vec<Range<u32>> = stages
            .filter(|stage| stage.is_look && stage.to <= reached)
            .map(|stage| first..first + stage.to)
            .collect();
        let rounds = looks.last().cloned().unwrap_or(0..first);
        let looks: Vec<Comparison> = looks.into_iter().map(of).collect();
        let mut screen = of(0..first);
        let fresh = confirmed(&screen, &looks, &self.policy);
        if fresh.is_none() {
            let why = match noted.finished {
                true => "measured again, and given up before it was decided",
                false => "still to be measured again: run the matrix once more",
            };
            let note = screen.note.take().into_iter().chain([why.to_owned()]);
            screen.note = Some(note.collect::<Vec<_>>().join("; "));
        }
        Judged {
            screen,
            fresh,
            again: Some(Rerun {
                noted: *noted,
                rounds: reached,
            }),
            rounds,
        }
    }

    /// Fills in [`Answer::promise`], of all samples. The comparisons of a metric say together what noise one without
    /// a past is likely to have.
    fn rank(&self, asked: &mut [(Answer, Both)]) {
        let open: Vec<usize> = (0..asked.len())
            .filter(|at| self.is_open(&asked[*at].0, &asked[*at].1))
            .collect();
        let metrics: HashSet<usize> = open.iter().map(|at| asked[*at].0.metric).collect();
        let others = |metric: usize| {
            let of_metric = asked.iter().filter(|(answer, _)| answer.metric == metric);
            // The same bytes are measured once: their samples would count twice.
            let apart = of_metric.filter(|(answer, _)| answer.pair.0 != answer.pair.1);
            let within: Vec<Prior> = apart
                .filter_map(|(_, [base, cand])| noise_within(base, cand))
                .collect();
            (metric, pooled(&within))
        };
        let others: HashMap<usize, Option<Prior>> = metrics.into_iter().map(others).collect();
        for at in open {
            let (answer, [base, cand]) = &mut asked[at];
            let promise = evidence(base, cand, &answer.question, others[&answer.metric]);
            let series = series_of(self.plan, answer.candidate, &answer.pair.2);
            let is_known = |known: &HashMap<SeriesId, Vec<OpenFinding>>| {
                known.contains_key(&series) && is_of_versions(self.plan, answer.compare)
            };
            // What is known to be there need not be found again, unless it looks gone or the same pair is measured anew.
            let standing = match is_known(&self.beside.confirmed) {
                true => self.standing(answer, &compare(base, cand, &answer.question)),
                false => Vec::new(),
            };
            let has = |outlook: Outlook| {
                let mut direct = standing.iter().filter(|it| it.is_direct());
                direct.any(|it| it.outlook == outlook)
            };
            answer.promise = match promise {
                _ if has(Outlook::Present) => None,
                _ if has(Outlook::LooksGone) => Some(f64::MAX),
                // What an earlier session suspected has the first turn, if it looks changed again.
                promise if promise >= EVIDENCE_MIN && is_known(&self.beside.suspected) => {
                    Some(f64::MAX)
                }
                promise => Some(promise),
            };
        }
    }

    /// Whether a comparison asks to be measured again, or further, and there is something to learn from it.
    fn is_open(&self, answer: &Answer, [base, cand]: &Both) -> bool {
        let rule = &self.plan.matrix.compares[self.plan.compares[answer.compare].rule];
        let asks = rule.confirm && answer.comparison.p.is_some();
        asks && match answer.again {
            None => is_open(&answer.comparison),
            Some(again) => !again.noted.finished && is_open(&compare(base, cand, &answer.question)),
        }
    }
}

fn of_rounds<'s>(samples: &'s [Sample], rounds: &Range<u32>) -> Cow<'s, [Sample]> {
    if samples.iter().all(|sample| rounds.contains(&sample.round)) {
        return Cow::Borrowed(samples);
    }
    let own = samples.iter().copied();
    own.filter(|sample| rounds.contains(&sample.round))
        .collect()
}

/// Two versions that are the same bytes, measured once: no difference, and nothing to be compared.
fn same_artifact(n: usize) -> Comparison {
    Comparison {
        ratio: None,
        ci95: None,
        difference: None,
        p: None,
        q: None,
        n: [n, n],
        paired: false,
        verdict: Verdict::Same,
        note: Some(
            "same inputs: the versions differ in nothing that this cell depends on, measured once"
                .to_owned(),
        ),
        more: None,
        basis: Basis::default(),
    }
}

/// The median; None of no sample.
pub fn level(samples: &[Sample]) -> Option<f64> {
    let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    median(&values)
}

/// Mean and standard deviation, 0 of a single sample; None of no sample.
pub fn summary(samples: &[Sample]) -> Option<Summary> {
    let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    Some(Summary {
        mean: mean(&values)?,
        stddev: stddev(&values).unwrap_or(0.0),
        n: values.len(),
    })
}

#[cfg(test)]
mod tests {
    use crate::config::matrix::Confirm;
    use crate::judge::confirm::Policy;

    #[test]
    fn what_a_matrix_gets_by_default_is_the_policy_that_was_measured() {
        let Confirm { rounds, max } = Confirm::default();
        let declared = Policy {
            rounds,
            budget: max,
        };
        assert_eq!(declared, Policy::default());
    }
}
