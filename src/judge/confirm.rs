//! The second look: which findings are measured again, for how long, and what both looks say together.

use super::compare::{Basis, Bounded, Spreads};
use super::verdict::{self, Comparison, Question, Verdict};

/// Measured again, and further, is what has so much [`evidence`](verdict::evidence) at least: two levels make
/// the samples seven times likelier than one. Wide on purpose, see [`decide`].
pub const EVIDENCE_MIN: f64 = 2.0;

/// The stages of a confirmation: fresh rounds after each, and the share of what is left of the budget
/// that it may use: what finds most on protocol AA.
const STAGES: [(u32, f64); 10] = [
    (1, 0.32),
    (2, 0.25),
    (3, 0.20),
    (4, 0.16),
    (6, 0.22),
    (8, 0.25),
    (12, 0.33),
    (16, 0.5),
    (24, 0.5),
    (32, 1.0),
];

/// Fresh rounds after which findings are judged, and at the end. After four only what is far beyond the noise of all cells
/// can be found: chance alone orders four rounds once in eight.
const LOOKS: [u32; 3] = [4, 8, 16];

/// Fresh rounds that are ever made of a finding.
pub const ROUNDS_MAX: u32 = STAGES[STAGES.len() - 1].0;

/// So many findings are afforded to the end, however small a matrix is.
const FINDINGS_MIN: f64 = 4.0;

/// How findings are confirmed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Fresh rounds of a finding at the most, interleaved.
    pub rounds: u32,
    /// The runs spent on all of them at the most, as a share of those already made.
    pub budget: f64,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            rounds: ROUNDS_MAX,
            budget: 0.10,
        }
    }
}

/// One step of a confirmation: all that is still promising gets a few fresh rounds more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    /// Fresh rounds of a finding before and after it.
    pub from: u32,
    pub to: u32,
    /// Whether findings are judged after it.
    pub is_look: bool,
    /// Share of what is left of the budget.
    share: f64,
}

impl Policy {
    /// The stages up to [`Policy::rounds`], the last of which is a look.
    pub fn stages(&self) -> Vec<Stage> {
        let rounds = self.rounds.min(ROUNDS_MAX);
        let before = STAGES.into_iter().filter(|stage| stage.0 < rounds);
        let ends: Vec<(u32, f64)> = before
            .chain((rounds > 0).then_some((rounds, 1.0)))
            .collect();
        let stage = |i: usize| Stage {
            from: if i == 0 { 0 } else { ends[i - 1].0 },
            to: ends[i].0,
            is_look: LOOKS.contains(&ends[i].0) || ends[i].0 == rounds,
            share: ends[i].1,
        };
        (0..ends.len()).map(stage).collect()
    }

    /// Runs that the confirmation of a family may make for which `made` runs were made.
    pub fn runs(&self, made: usize) -> f64 {
        match self.budget > 0.0 {
            true => (made as f64 * self.budget).max(2.0 * FINDINGS_MIN * f64::from(self.rounds)),
            false => 0.0,
        }
    }
}

/// Whether a comparison may be measured again, or further: it is neither shown to be the same nor deterministic, where a
/// rerun would tell nothing new.
pub fn is_open(comparison: &Comparison) -> bool {
    comparison.p.is_some() && comparison.verdict != Verdict::Same && !is_exact(comparison)
}

/// Whether both sides are known to have no noise.
fn is_exact(comparison: &Comparison) -> bool {
    comparison.ci95.is_some_and(|[low, high]| low == high)
}

/// The findings that a stage affords, as indices into their [`verdict::evidence`] of all samples so far: the most
/// promising first. `left` is what is left of [`Policy::runs`] and is charged for them.
///
/// A budget halved over and over among ever fewer candidates is how the best of many are found with few
/// measurements (Karnin, Koren & Somekh, 2013). Giving a finding up can only withhold it, so
/// this costs [`confirmed`] nothing of its validity.
pub fn afforded(evidence: &[f64], stage: Stage, left: &mut f64) -> Vec<usize> {
    let each = 2.0 * f64::from(stage.to - stage.from);
    let mut order: Vec<usize> = (0..evidence.len())
        .filter(|i| evidence[*i] >= EVIDENCE_MIN)
        .collect();
    order.sort_by(|a, b| evidence[*b].total_cmp(&evidence[*a]));
    order.truncate((*left * stage.share / each) as usize);
    *left -= each * order.len() as f64;
    order
}

/// What is told of a finding that was measured again, given what the screen said and the comparisons of all its
/// fresh rounds at each look so far, before [`decide`].
///
/// p = looks/2 · the least p′ of the looks, where a look that points the other way than the screen has 1. Under "no
/// difference" the fresh rounds do not depend on the screen, so that directions agree half of the time, and the
/// number of looks that there can be pays for choosing among them (Bonferroni). No sample counts
/// twice. Ratio and interval are the last look's: the screen's are biased, being chosen for their
/// size. None without a look.
pub fn confirmed(screen: &Comparison, looks: &[Comparison], policy: &Policy) -> Option<Comparison> {
    let direction = |comparison: &Comparison| comparison.difference.unwrap_or(0.0);
    let agrees = |look: &&Comparison| direction(screen) * direction(look) > 0.0;
    let mut last = looks.last()?.clone();
    let stages = policy.stages();
    let times = (stages.iter().filter(|stage| stage.is_look).count() as f64 / 2.0).max(1.0);
    let p = |look: &&Comparison| look.p.unwrap_or(1.0);
    let agreeing = looks.iter().filter(agrees);
    let least = agreeing.min_by(|a, b| p(a).total_cmp(&p(b)));
    let least = least.filter(|_| agrees(&&last));
    // Where the rerun gave nothing to judge by, that is the word for the whole.
    if last.p.is_some() {
        last.p = Some(least.map_or(1.0, |look| (p(&look) * times).min(1.0)));
    }
    let of_least = least.and_then(|look| look.basis.analysis);
    if let Some(analysis) = &mut last.basis.analysis {
        match of_least {
            Some(of_least) => analysis.beyond = of_least.beyond.times(times),
            None => analysis.beyond = Bounded::NEVER,
        }
    }
    Some(last)
}

/// A comparison as it is known before [`decide`].
#[derive(Clone, Debug)]
pub struct Finding {
    pub question: Question,
    /// Of the first rounds.
    pub screen: Comparison,
    /// Whether it counts only once it is confirmed.
    pub confirms: bool,
    /// Whether it was measured again.
    pub is_again: bool,
    /// What [`confirmed`] says, where a look was reached.
    pub fresh: Option<Comparison>,
}

/// What is told of a [`Finding`].
#[derive(Clone, Debug)]
pub struct Decision {
    pub comparison: Comparison,
    /// Whether a change was found again; None where no look was reached.
    pub is_confirmed: Option<bool>,
}

/// Judges comparisons of which some were measured again.
///
/// Those measured again were chosen by samples that their p-values do not depend on: they are a family by themselves, in
/// which those that were given up before a look have p = 1. First rounds are two families: of what is to be confirmed and of what never is.
/// In one family many true effects among the last, each of them a discovery, would raise the threshold for the
/// others, which may all be nulls. How cells spread is told by all first rounds together.
///
/// What is to be confirmed and was not gets no more than [`Verdict::Suspected`], but for what has no noise: fresh rounds of
/// that would tell nothing new. It is also the verdict of what was given up, which refutes nothing. Its
/// interval is that of its first rounds, at the level that holds for what was chosen (1 − 0.05·R/m for R chosen of
/// m: Benjamini & Yekutieli, 2005). What was found may be lost: where another metric of the same cells is still open it is
/// measured further too, and a later look that points the other way takes it back.
pub fn decide(findings: &[Finding]) -> Vec<Decision> {
    let spreads = Spreads::of(findings.iter().map(|finding| &finding.screen.basis));
    let members = |is_of: &dyn Fn(&Finding) -> bool| -> Vec<usize> {
        (0..findings.len())
            .filter(|i| is_of(&findings[*i]))
            .collect()
    };
    let judged = |members: &[usize], told: &dyn Fn(&Finding) -> Comparison| {
        let own = members
            .iter()
            .map(|i| (findings[*i].question, told(&findings[*i])));
        let mut family: Vec<(Question, Comparison)> = own.collect();
        verdict::decide_among(&mut family, &spreads);
        family.into_iter().map(|(_, comparison)| comparison)
    };
    let mut decisions: Vec<Option<Decision>> = vec![None; findings.len()];
    for confirms in [false, true] {
        let family = members(&|finding| finding.confirms == confirms);
        let again = family.iter().filter(|i| findings[**i].is_again).count();
        let alpha = 0.05 * again as f64 / family.len().max(1) as f64;
        let screens = judged(&family, &|finding| finding.screen.clone());
        for (i, mut comparison) in family.iter().zip(screens) {
            if confirms && comparison.verdict.is_change() && !is_exact(&comparison) {
                comparison.verdict = Verdict::Suspected;
            }
            if findings[*i].is_again {
                let share = spreads.share(&comparison.basis);
                comparison.ci95 = verdict::interval(&comparison.basis, alpha, share);
            }
            let is_confirmed = None;
            decisions[*i] = Some(Decision {
                comparison,
                is_confirmed,
            });
        }
    }
    let again = members(&|finding| finding.is_again);
    let fresh = |finding: &Finding| match &finding.fresh {
        Some(fresh) => fresh.clone(),
        None => given_up(&finding.screen),
    };
    for (i, comparison) in again.iter().zip(judged(&again, &fresh)) {
        if findings[*i].fresh.is_some() {
            let is_confirmed = Some(comparison.verdict.is_change());
            decisions[*i] = Some(Decision {
                comparison,
                is_confirmed,
            });
        }
    }
    decisions.into_iter().flatten().collect()
}

/// A finding that counts in its family, and is never found.
fn given_up(screen: &Comparison) -> Comparison {
    let mut told = screen.clone();
    told.p = told.p.map(|_| 1.0);
    told.basis = Basis::default();
    told
}
