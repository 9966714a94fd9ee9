//! A bisection of a line of commits: what to measure next, and what has been found. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::base::sample::{Better, Sample};
use crate::judge::culprit::{Age, Assumptions, Belief, CulpritSearch};
use crate::judge::stats;
use crate::judge::verdict::{Comparison, Question, Verdict, compare};

/// Fresh samples of each end before anything is concluded.
const END_SAMPLES: usize = 5;
/// Rounds of the proof: after each of these the comparison may end it.
const PROOF_ROUNDS: [usize; 3] = [5, 10, 20];
/// How often a search goes on after a proof that failed.
const PROOFS_MAX: usize = 3;
/// The probability of no culprit, where the ends are measured in the search, and where they were before it.
const NONE_FRESH: f64 = 0.1;
const NONE_PAST: f64 = 0.2;
/// The probability of a drift.
const DRIFT: f64 = 0.1;
/// A measurement is tried so often before its commit counts as untestable.
const TRIES: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BisectSettings {
    /// A smaller relative change is none.
    pub min_effect: f64,
    pub seed: u64,
    /// Measurements of the whole search.
    pub runs_max: usize,
}

/// What is wanted of the caller.
#[derive(Clone, Debug, PartialEq)]
pub enum BisectStep {
    /// One measurement of this commit of the line; 0 is the good end.
    Measure(usize),
    /// The search is over.
    Answer(Box<BisectAnswer>),
    /// An end cannot be measured.
    Stuck(usize),
}

/// What came of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct BisectAnswer {
    /// The commits among which the culprit is; empty where there is none.
    pub set: Vec<usize>,
    /// Of the answer.
    pub probability: f64,
    /// Whether that is enough; not where the measurements were used up.
    pub is_settled: bool,
    /// Bad end / good end, with its 95 % interval; None where that means nothing.
    pub ratio: Option<f64>,
    pub ci95: Option<[f64; 2]>,
    /// The last commit of the set against the one before the first, in turn.
    pub proof: Option<Comparison>,
    /// The probability that the level drifted during the search.
    pub drift: f64,
}

impl BisectAnswer {
    /// Whether the proof shows a difference.
    pub fn is_proved(&self) -> bool {
        self.proof.as_ref().is_some_and(shows_difference)
    }
}

fn shows_difference(comparison: &Comparison) -> bool {
    matches!(
        comparison.verdict,
        Verdict::Regression | Verdict::Improvement
    )
}

/// A measured value.
#[derive(Clone, Copy, Debug)]
struct Measured {
    at: usize,
    value: f64,
    age: Age,
}

/// A comparison of two neighbours in turn.
struct Proof {
    set: Vec<usize>,
    baseline: Vec<Sample>,
    candidate: Vec<Sample>,
}

impl Proof {
    fn compared(&self) -> Comparison {
        let question = Question::new(Better::Lower, 0.0);
        compare(&self.baseline, &self.candidate, &question)
    }
}

/// One search. The same readings in the same order give the same steps.
pub struct Bisection {
    commits: usize,
    settings: BisectSettings,
    search: CulpritSearch,
    /// Whether values are compared by logarithms: while all are above zero.
    is_log: bool,
    measured: Vec<Measured>,
    untestable: BTreeSet<usize>,
    /// Pairs of commits that are the same bytes.
    alike: BTreeSet<(usize, usize)>,
    /// Failures in a row.
    failures: BTreeMap<usize, u32>,
    built: BTreeSet<usize>,
    /// Seconds of the first measurement of a commit, and of later ones.
    first_s: Vec<f64>,
    again_s: Vec<f64>,
    planned: VecDeque<usize>,
    runs: usize,
    proof: Option<Proof>,
    proofs: usize,
}

impl Bisection {
    /// Of a line of `commits` after the good end. `past` was measured before: commit and value.
    pub fn new(commits: usize, settings: BisectSettings, past: &[(usize, f64)]) -> Self {
        let past = past.iter().filter(|(_, value)| value.is_finite());
        let measured: Vec<Measured> = past
            .map(|(at, value)| Measured {
                at: *at,
                value: *value,
                age: Age::Past,
            })
            .collect();
        let mut bisection = Bisection {
            commits,
            settings,
            search: CulpritSearch::new(1, NO_ASSUMPTIONS, 0),
            is_log: true,
            measured,
            untestable: BTreeSet::new(),
            alike: BTreeSet::new(),
            failures: BTreeMap::new(),
            built: BTreeSet::new(),
            first_s: Vec::new(),
            again_s: Vec::new(),
            planned: VecDeque::new(),
            runs: 0,
            proof: None,
            proofs: 0,
        };
        bisection.start();
        bisection
    }

    /// Begins the search anew with all that is known.
    fn start(&mut self) {
        self.is_log = self.measured.iter().all(|one| one.value > 0.0);
        let good: Vec<f64> = self.values(0).collect();
        let level = stats::median(&good).unwrap_or(0.0).abs();
        let shift_min = match self.is_log {
            true => self.settings.min_effect.ln_1p(),
            false => self.settings.min_effect * level,
        };
        let assumptions = Assumptions {
            none: if self.has_past_ends() {
                NONE_PAST
            } else {
                NONE_FRESH
            },
            drift: DRIFT,
            shift_min,
        };
        self.search = CulpritSearch::new(self.commits, assumptions, self.settings.seed);
        for one in &self.measured {
            self.search
                .add(one.at, scaled(one.value, self.is_log), one.age);
        }
        for at in &self.untestable {
            self.search.set_untestable(*at);
        }
        for (a, b) in &self.alike {
            self.search.set_alike(*a, *b);
        }
    }

    fn values(&self, at: usize) -> impl Iterator<Item = f64> {
        let own = self.measured.iter().filter(move |one| one.at == at);
        own.map(|one| one.value)
    }

    fn has_past_ends(&self) -> bool {
        let past = |end| {
            let own = self.measured.iter().filter(|one| one.at == end);
            own.filter(|one| one.age == Age::Past).count()
        };
        past(0) >= END_SAMPLES && past(self.commits) >= END_SAMPLES
    }

    /// Measurements so far, also those that failed.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// Commits that were measured, or tried.
    pub fn builds(&self) -> usize {
        self.built.len()
    }

    /// The values of each measured commit, in the order of the line.
    pub fn curve(&self) -> BTreeMap<usize, Vec<f64>> {
        let mut curve = BTreeMap::new();
        for one in &self.measured {
            let values: &mut Vec<f64> = curve.entry(one.at).or_default();
            values.push(one.value);
        }
        curve
    }

    pub fn untestable(&self) -> &BTreeSet<usize> {
        &self.untestable
    }

    /// A measurement of a commit came to this value, after so many seconds.
    pub fn on_value(&mut self, at: usize, value: f64, seconds: f64) {
        self.on_run(at, Some(seconds));
        self.failures.remove(&at);
        let age = Age::Now;
        self.measured.push(Measured { at, value, age });
        if self.is_log && value <= 0.0 {
            self.start();
        } else {
            self.search.add(at, scaled(value, self.is_log), age);
        }
        let Some(proof) = &mut self.proof else {
            return;
        };
        let side = match proof.set.last() {
            Some(last) if *last == at => &mut proof.candidate,
            _ => &mut proof.baseline,
        };
        side.push(Sample {
            round: side.len() as u32,
            session: 0,
            value,
        });
    }

    /// A measurement failed. Returns whether it will be tried again.
    pub fn on_failure(&mut self, at: usize) -> bool {
        self.on_run(at, None);
        let failures = self.failures.entry(at).or_default();
        *failures += 1;
        if *failures < TRIES {
            self.planned.push_front(at);
            return true;
        }
        self.give_up(at);
        false
    }

    /// The commit said itself that it cannot be measured.
    pub fn on_untestable(&mut self, at: usize) {
        self.on_run(at, None);
        self.give_up(at);
    }

    /// Two commits are the same bytes: nothing between them moved the level.
    pub fn set_alike(&mut self, a: usize, b: usize) {
        if self.alike.insert((a, b)) {
            self.search.set_alike(a, b);
        }
    }

    fn on_run(&mut self, at: usize, seconds: Option<f64>) {
        self.runs += 1;
        let is_first = self.built.insert(at);
        if let Some(seconds) = seconds {
            let own = if is_first {
                &mut self.first_s
            } else {
                &mut self.again_s
            };
            own.push(seconds);
        }
    }

    fn give_up(&mut self, at: usize) {
        self.untestable.insert(at);
        self.search.set_untestable(at);
        self.planned.retain(|planned| *planned != at);
        self.proof = None;
    }

    /// What a build costs, in runs: by how much the first measurement of a commit takes longer than later ones.
    fn build_cost(&self) -> f64 {
        match (stats::median(&self.first_s), stats::median(&self.again_s)) {
            (Some(first), Some(again)) if again > 0.0 => ((first - again) / again).max(0.0),
            _ => 0.0,
        }
    }

    /// What to do next.
    pub fn next_step(&mut self) -> BisectStep {
        loop {
            let ends = [0, self.commits];
            if let Some(end) = ends.into_iter().find(|end| self.untestable.contains(end)) {
                return BisectStep::Stuck(end);
            }
            if self.runs >= self.settings.runs_max {
                let belief = self.search.belief();
                return BisectStep::Answer(Box::new(self.answer(belief, None)));
            }
            if let Some(at) = self.planned.pop_front() {
                return BisectStep::Measure(at);
            }
            let ends_are_known = self.has_past_ends()
                || ends
                    .iter()
                    .all(|end| self.values(*end).count() >= END_SAMPLES);
            let belief = match self.search.belief() {
                Some(belief) if ends_are_known => belief,
                // In turn: what drifts hits both alike.
                _ => {
                    let round = self.values(0).count() + self.values(self.commits).count();
                    let turn = if (round / 2).is_multiple_of(2) {
                        [0, self.commits]
                    } else {
                        [self.commits, 0]
                    };
                    self.planned.extend(turn);
                    continue;
                }
            };
            if let Some(answer) = self.conclude(&belief) {
                return BisectStep::Answer(Box::new(answer));
            }
            if self.planned.is_empty() {
                let cost = self.build_cost();
                let wish = self
                    .search
                    .wish(&|at| if self.built.contains(&at) { 0.0 } else { cost });
                self.planned.extend(std::iter::repeat_n(wish.at, wish.runs));
            }
        }
    }

    /// The answer, where it is known and proved; plans the proof where it is only known.
    fn conclude(&mut self, belief: &Belief) -> Option<BisectAnswer> {
        if !belief.is_settled() {
            self.proof = None;
            return None;
        }
        if belief.none > belief.probability {
            return Some(self.answer(Some(belief.clone()), None));
        }
        if self
            .proof
            .as_ref()
            .is_some_and(|proof| proof.set != belief.set)
        {
            self.proof = None;
        }
        let (first, last) = (*belief.set.first()?, *belief.set.last()?);
        let proof = self.proof.get_or_insert_with(|| {
            self.proofs += 1;
            Proof {
                set: belief.set.clone(),
                baseline: Vec::new(),
                candidate: Vec::new(),
            }
        });
        let rounds = proof.baseline.len().min(proof.candidate.len());
        let comparison = proof.compared();
        let is_over = PROOF_ROUNDS.contains(&rounds) && shows_difference(&comparison);
        let more = PROOF_ROUNDS.into_iter().find(|goal| *goal > rounds);
        match more.filter(|_| !is_over && self.proofs <= PROOFS_MAX) {
            Some(goal) => {
                for round in rounds..goal {
                    let turn = if round % 2 == 0 {
                        [first - 1, last]
                    } else {
                        [last, first - 1]
                    };
                    self.planned.extend(turn);
                }
                None
            }
            None => Some(self.answer(Some(belief.clone()), Some(comparison))),
        }
    }

    fn answer(&self, belief: Option<Belief>, proof: Option<Comparison>) -> BisectAnswer {
        let Some(belief) = belief else {
            return BisectAnswer {
                set: Vec::new(),
                probability: 0.0,
                is_settled: false,
                ratio: None,
                ci95: None,
                proof,
                drift: 0.0,
            };
        };
        let is_none = belief.none > belief.probability;
        let ratio = |shift: f64| match self.is_log {
            true => shift.exp(),
            false => (belief.good + shift) / belief.good,
        };
        let mut ci95 = belief.shift_ci95.map(ratio);
        ci95.sort_by(f64::total_cmp);
        // Measured in turn, and not chosen for its size.
        let proved = proof.as_ref().filter(|proof| shows_difference(proof));
        BisectAnswer {
            probability: belief.none.max(belief.probability),
            is_settled: belief.is_settled(),
            ratio: proved
                .and_then(|proof| proof.ratio)
                .or(Some(ratio(belief.shift)).filter(|ratio| ratio.is_finite())),
            ci95: proved
                .and_then(|proof| proof.ci95)
                .or(Some(ci95).filter(|ends| ends.iter().all(|end| end.is_finite()))),
            set: if is_none { Vec::new() } else { belief.set },
            proof,
            drift: belief.drift,
        }
    }
}

const NO_ASSUMPTIONS: Assumptions = Assumptions {
    none: NONE_FRESH,
    drift: DRIFT,
    shift_min: 0.0,
};

fn scaled(value: f64, is_log: bool) -> f64 {
    if is_log { value.ln() } else { value }
}

/// Measurements and builds that a search of so many commits takes on average for a change of `sigma` times the noise, with
/// the ends and the proof: ends, (log₂ n + log₂ 20) / information of a run (Dereniowski & others, 2021), proof.
pub fn expected(commits: usize, sigma: f64) -> (usize, usize) {
    let bits = (commits.max(1) as f64).log2();
    // Bits a run, of a run at the middle under Gauss' noise: .161, .486, .760, .975 at 1, 2, 3, 5 sigma.
    let information = 1.0 - (-0.17 * sigma.powi(2)).exp().min(0.99);
    let search = ((bits + 20_f64.log2()) / information).ceil() as usize;
    let builds = 2 + (bits.ceil() as usize + 2).min(commits.saturating_sub(1));
    (2 * END_SAMPLES + search + 2 * PROOF_ROUNDS[0], builds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    const SETTINGS: BisectSettings = BisectSettings {
        min_effect: 0.01,
        seed: 1,
        runs_max: 400,
    };

    struct World<'a> {
        commits: usize,
        past: &'a [(usize, f64)],
        /// None where a measurement fails.
        value: &'a mut dyn FnMut(usize) -> Option<f64>,
    }

    fn bisect(world: World) -> (BisectAnswer, Bisection) {
        let mut bisection = Bisection::new(world.commits, SETTINGS, world.past);
        loop {
            match bisection.next_step() {
                BisectStep::Measure(at) => match (world.value)(at) {
                    Some(value) => bisection.on_value(at, value, 1.0),
                    None => {
                        bisection.on_failure(at);
                    }
                },
                BisectStep::Answer(answer) => return (*answer, bisection),
                BisectStep::Stuck(end) => panic!("the end {end} cannot be measured"),
            }
        }
    }

    fn slower_from(culprit: usize, factor: f64, seed: u64) -> impl FnMut(usize) -> Option<f64> {
        let mut random = Random(seed);
        move |at| {
            let level = if at >= culprit { 100.0 * factor } else { 100.0 };
            Some(level * (1.0 + 0.02 * random.gauss()))
        }
    }

    #[test]
    fn a_regression_is_found_and_proved() {
        for seed in 0..8 {
            let culprit = 20 + 17 * seed as usize;
            let (answer, bisection) = bisect(World {
                commits: 200,
                past: &[],
                value: &mut slower_from(culprit, 1.08, seed),
            });
            assert_eq!(answer.set, [culprit], "{answer:?}");
            assert!(answer.is_proved() && answer.is_settled, "{answer:?}");
            let [low, high] = answer.ci95.unwrap();
            assert!(low < 1.08 && 1.08 < high + 0.02, "{answer:?}");
            assert!(bisection.runs() < 60, "{}", bisection.runs());
        }
    }

    #[test]
    fn nothing_is_found_where_the_ends_do_not_differ() {
        let (answer, bisection) = bisect(World {
            commits: 200,
            past: &[],
            value: &mut slower_from(1000, 1.0, 3),
        });
        assert!(answer.set.is_empty(), "{answer:?}");
        assert!(answer.is_settled);
        assert!(bisection.builds() <= 4, "{:?}", bisection.built);
    }

    #[test]
    fn a_past_saves_the_ends() {
        let past = [
            (0, 100.0),
            (64, 110.0),
            (0, 101.0),
            (64, 109.0),
            (0, 99.0),
            (64, 111.0),
        ];
        let more = [(0, 100.5), (64, 110.5), (0, 99.5), (64, 109.5)];
        let past: Vec<(usize, f64)> = past.into_iter().chain(more).collect();
        let (answer, bisection) = bisect(World {
            commits: 64,
            past: &past,
            value: &mut slower_from(40, 1.1, 3),
        });
        assert_eq!(answer.set, [40]);
        assert!(bisection.runs() <= 25, "{}", bisection.runs());
    }

    #[test]
    fn what_fails_twice_is_untestable() {
        let mut steps = slower_from(31, 1.5, 3);
        let mut flaky = BTreeSet::from([0, 32]);
        let (answer, bisection) = bisect(World {
            commits: 64,
            past: &[],
            value: &mut |at| match at {
                30 | 31 => None,
                at if flaky.remove(&at) => None,
                at => steps(at),
            },
        });
        assert_eq!(answer.set, [30, 31, 32]);
        let skipped: Vec<usize> = bisection.untestable().iter().copied().collect();
        assert!(
            skipped.iter().all(|at| [30, 31].contains(at)),
            "{skipped:?}"
        );
    }

    #[test]
    fn values_of_zero_and_below_are_compared_by_differences() {
        let mut random = Random(1);
        let (answer, _) = bisect(World {
            commits: 64,
            past: &[],
            value: &mut |at| Some(random.gauss() + if at >= 9 { 20.0 } else { 0.0 }),
        });
        assert_eq!(answer.set, [9], "{answer:?}");
    }

    #[test]
    fn an_end_that_cannot_be_measured_stops_the_search() {
        let mut bisection = Bisection::new(8, SETTINGS, &[]);
        for _ in 0..2 {
            assert_eq!(bisection.next_step(), BisectStep::Measure(0));
            bisection.on_failure(0);
        }
        assert_eq!(bisection.next_step(), BisectStep::Stuck(0));
    }

    #[test]
    fn the_budget_ends_the_search_with_what_is_known() {
        let budget = BisectSettings {
            runs_max: 12,
            ..SETTINGS
        };
        let mut bisection = Bisection::new(500, budget, &[]);
        let mut value = slower_from(77, 1.06, 1);
        for _ in 0..12 {
            let BisectStep::Measure(at) = bisection.next_step() else {
                panic!("it ended before its budget");
            };
            bisection.on_value(at, value(at).unwrap(), 1.0);
        }
        let BisectStep::Answer(answer) = bisection.next_step() else {
            panic!("it went on beyond its budget");
        };
        assert!(!answer.is_settled);
    }

    #[test]
    fn expectations_are_of_the_size_that_is_measured() {
        assert_eq!(expected(1024, 3.0), (20 + 19, 14));
        assert_eq!(expected(1, 3.0).1, 2);
    }
}
