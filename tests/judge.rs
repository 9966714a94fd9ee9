//! The tests of comparisons and verdicts as a caller sees them.

use matrix::base::sample::{Better, Sample};
use matrix::judge::stats::{POOLED_MIN, Prior, pooled};
use matrix::judge::verdict::*;

use proptest::prelude::*;

const HIGHER: Question = Question::new(Better::Higher, 0.02);
const LOWER: Question = Question {
    better: Better::Lower,
    ..HIGHER
};

/// One sample a round, all of one session.
fn rounds(values: &[f64]) -> Vec<Sample> {
    let sample = |(round, value): (usize, &f64)| Sample {
        round: round as u32,
        session: 1,
        value: *value,
    };
    values.iter().enumerate().map(sample).collect()
}

fn judge(base: &[f64], cand: &[f64], question: &Question) -> Comparison {
    compare(&rounds(base), &rounds(cand), question)
}

#[test]
fn each_trap_gets_its_word() {
    let nan = f64::NAN;
    let check = |base: &[f64], cand: &[f64], verdict, ratio: Option<f64>, note: &str| {
        // What is said to be deterministic is declared so.
        let question = Question {
            deterministic: note.starts_with("deterministic"),
            ..LOWER
        };
        let got = judge(base, cand, &question);
        let what = format!("{base:?} {cand:?}: {got:?}");
        assert_eq!(got.verdict, verdict, "{what}");
        assert_eq!(got.ratio.is_some(), ratio.is_some(), "{what}");
        let off = got
            .ratio
            .zip(ratio)
            .map_or(0.0, |(a, b): (f64, f64)| (a - b).abs());
        assert!(off < 1e-12, "{what}");
        let said = got.note.as_deref().unwrap_or("");
        assert!(
            said.contains(note) && note.is_empty() == said.is_empty(),
            "{what}"
        );
    };
    use Verdict::*;
    check(&[], &[], NothingMeasured, None, "neither side");
    check(&[], &[1.0], NothingMeasured, None, "the baseline");
    check(&[1.0], &[nan], NothingMeasured, None, "1 sample left out");
    check(&[100.0], &[101.0], Inconclusive, Some(1.01), "too few");
    // Deterministic metrics.
    check(&[7.0; 3], &[7.0; 3], Same, Some(1.0), "deterministic");
    check(
        &[100.0; 3],
        &[105.0; 3],
        Regression,
        Some(1.05),
        "deterministic",
    );
    check(
        &[100.0; 3],
        &[50.0; 3],
        Improvement,
        Some(0.5),
        "deterministic",
    );
    check(
        &[1000.0; 2],
        &[1001.0; 2],
        Same,
        Some(1.001),
        "deterministic",
    );
    // Zeros.
    check(&[0.0; 5], &[0.0; 5], Same, Some(1.0), "deterministic");
    check(&[0.0; 5], &[3.0; 5], Regression, None, "new from zero");
    check(&[3.0; 5], &[0.0; 5], Improvement, Some(0.0), "gone to zero");
    // Equal values by coincidence.
    check(&[7.0; 2], &[8.0; 2], Inconclusive, Some(8.0 / 7.0), "");
    check(&[7.0; 5], &[8.0], Inconclusive, Some(8.0 / 7.0), "too few");
    check(
        &[0.0; 5],
        &[3.0, 4.0, 3.5, 5.0, 4.2],
        Regression,
        None,
        "new from zero",
    );
    check(&[0.0], &[3.0], Inconclusive, None, "new from zero");
    // Negative values: the verdict follows the value, the ratio says how the size changed.
    check(
        &[-36.0; 3],
        &[-48.0; 3],
        Improvement,
        Some(48.0 / 36.0),
        "deterministic",
    );
    check(&[-1.0; 5], &[1.0; 5], Regression, None, "sign changed");
}

#[test]
fn exactly_two_percent_is_an_effect() {
    let declared = |question| Question {
        deterministic: true,
        ..question
    };
    let check = |cand: f64, question, verdict| {
        let got = judge(&[100.0; 5], &[cand; 5], &declared(question));
        assert_eq!(got.verdict, verdict, "{got:?}");
    };
    check(100.0 / 1.02, HIGHER, Verdict::Regression);
    check(102.0, LOWER, Verdict::Regression);
    check(101.9, LOWER, Verdict::Same);
}

/// A/A samples of two modes, for which the exact permutation test says 0.21, and of three ticks.
#[test]
fn modes_and_ticks_are_no_finding() {
    let check = |base: &[f64], cand: &[f64], least: f64| {
        let got = judge(base, cand, &LOWER);
        assert_eq!(got.verdict, Verdict::Inconclusive, "{got:?}");
        assert!(got.p.unwrap() >= least, "{got:?}");
        assert!(
            got.ci95.is_some_and(|[low, high]| low < 1.0 && 1.0 < high),
            "{got:?}"
        );
    };
    let base = [99.9, 109.5, 99.7, 99.7, 99.6];
    check(&base, &[110.1, 99.8, 110.3, 109.9, 110.4], 0.08);
    check(
        &[11.0, 11.0, 10.0, 11.0, 11.0],
        &[10.0, 11.0, 10.0, 9.0, 10.0],
        0.05,
    );
}

/// Each side in a mode of its own: how often that happens by chance is told by the other cells.
#[test]
fn two_modes_are_told_by_the_spread_of_the_other_cells() {
    let (low, high) = (
        [100.0, 100.1, 99.9, 100.2, 99.8],
        [110.0, 110.1, 109.9, 110.2, 109.8],
    );
    let among = |others: &[f64]| {
        let apart = judge(&low, &high, &LOWER);
        let other = judge(others, &low, &LOWER);
        let mut family = vec![(LOWER, apart)];
        family.extend(vec![(LOWER, other); 199]);
        decide(&mut family);
        family.swap_remove(0).1
    };
    let alone = judge(&low, &high, &LOWER);
    assert!((alone.p.unwrap() - 2.0 / 1024.0).abs() < 1e-9, "{alone:?}");
    assert_eq!(alone.verdict, Verdict::Regression);
    assert_eq!(
        among(&[99.8, 100.2, 100.1, 99.9, 100.0]).verdict,
        Verdict::Regression
    );
    let modal = among(&[100.0, 110.0, 100.1, 109.9, 100.2]);
    assert_eq!(modal.verdict, Verdict::Inconclusive, "{modal:?}");
}

#[test]
fn rounds_of_another_time_and_sessions_of_their_own_do_not_count_as_a_difference() {
    let of = |session, first: u32, values: &[f64]| -> Vec<Sample> {
        let sample = |(round, value): (u32, &f64)| Sample {
            round,
            session,
            value: *value,
        };
        (first..).zip(values).map(sample).collect()
    };
    let five = [100.0, 101.0, 99.0, 100.5, 99.5];
    // 32 later and slower rounds of the baseline.
    let mut base = of(1, 0, &five);
    base.extend(of(1, 5, &[140.0, 141.0, 139.0, 142.0].repeat(8)));
    let got = compare(&base, &of(1, 0, &five.map(|x| x * 1.001)), &LOWER);
    assert_eq!((got.verdict, got.n), (Verdict::Same, [5, 5]), "{got:?}");
    // Another night is 10 % slower; two rounds beside the candidate say that it is not the candidate.
    let slower = five.map(|x| x * 1.1);
    let mut base = of(1, 0, &five);
    let apart = compare(&base, &of(2, 0, &slower), &LOWER);
    assert_eq!(apart.verdict, Verdict::Suspected, "{apart:?}");
    base.extend(of(2, 5, &[110.5, 109.5]));
    let beside = compare(&base, &of(2, 0, &slower), &LOWER);
    assert!((beside.ratio.unwrap() - 1.0).abs() < 0.001, "{beside:?}");
    // Where it is known how far sessions lie apart, that is part of the error.
    let between = Some(Prior {
        variance: 0.05f64.powi(2),
        degrees: 50.0,
    });
    let known = Question { between, ..LOWER };
    let apart = compare(&of(1, 0, &five), &of(2, 0, &slower), &known);
    assert_eq!(apart.verdict, Verdict::Inconclusive, "{apart:?}");
}

#[test]
fn what_got_far_better_asks_whether_it_works() {
    let base = [54.0, 54.2, 53.9, 54.1, 54.0];
    let told = |cand: &[f64]| judge(&base, cand, &LOWER).note.unwrap_or_default();
    assert!(told(&[2.0, 2.01, 1.99, 2.02, 2.0]).contains("suspicious: 27 times better"));
    assert_eq!(told(&base.map(|x| x * 27.0)), "");
    assert_eq!(told(&base.map(|x| x / 5.0)), "");
}

#[test]
fn a_drift_that_hits_both_sides_is_taken_out_by_pairing() {
    let base = [100.0, 120.0, 145.0, 170.0, 205.0, 250.0];
    let cand = [110.5, 131.0, 160.0, 187.5, 225.0, 276.0];
    let got = judge(&base, &cand, &LOWER);
    assert_eq!((got.verdict, got.paired), (Verdict::Regression, true));
    assert!((got.ratio.unwrap() - 1.1).abs() < 0.01, "{got:?}");
    let unpaired = compare_values(&base, &cand, &LOWER);
    assert_eq!(
        (unpaired.verdict, unpaired.paired),
        (Verdict::Inconclusive, false)
    );
}

#[test]
fn a_tiny_but_significant_change_is_the_same() {
    let base = [100.0, 100.01, 99.99, 100.02, 99.98, 100.0];
    let cand = base.map(|x| x * 1.002);
    let got = judge(&base, &cand, &LOWER);
    assert!(got.p.unwrap() > 0.5, "{got:?}");
    assert!(got.ci95.unwrap()[0] > 1.0, "{got:?}");
    assert_eq!(got.verdict, Verdict::Same);
}

#[test]
fn one_wild_sample_does_not_hide_a_clear_change() {
    let base = [100.0, 101.0, 99.0, 100.5, 99.5];
    let cand = [110.0, 111.0, 109.0, 110.5, 400.0];
    let got = judge(&base, &cand, &LOWER);
    assert_eq!(got.verdict, Verdict::Regression, "{got:?}");
    assert!(got.ratio.unwrap() < 1.15, "{got:?}");
}

#[test]
fn clear_effects_on_a_noisy_disk_are_found_among_a_hundred() {
    // Coefficient of variation about 30 %, thirtyfold change of one cell among 100.
    let noise = [0.8, 1.3, 1.0, 0.7, 1.5, 1.1, 0.6, 1.2, 0.9, 1.4];
    let base: Vec<f64> = noise[..5].iter().map(|x| x * 400.0).collect();
    let cand: Vec<f64> = noise[5..].iter().map(|x| x * 400.0).collect();
    let fast: Vec<f64> = cand.iter().map(|x| x * 30.0).collect();
    let mut family = vec![(HIGHER, judge(&base, &cand, &HIGHER)); 99];
    family.push((HIGHER, judge(&base, &fast, &HIGHER)));
    decide(&mut family);
    assert_eq!(
        family[99].1.verdict,
        Verdict::Improvement,
        "{:?}",
        family[99].1
    );
    assert!(
        family[..99]
            .iter()
            .all(|(_, c)| c.verdict == Verdict::Inconclusive)
    );
}

#[test]
fn the_family_raises_the_bar() {
    const ANY: Question = Question::new(Better::Lower, 0.0);
    let base = [100.0, 103.0, 98.0, 101.0, 99.0];
    let cand = [104.0, 107.0, 101.0, 106.0, 103.0];
    let alone = judge(&base, &cand, &ANY);
    assert_eq!(alone.verdict, Verdict::Regression, "{alone:?}");
    let mut family = vec![(ANY, alone)];
    let quiet = judge(&base, &[99.0, 103.5, 98.0, 100.0, 101.0], &ANY);
    family.extend(vec![(ANY, quiet); 999]);
    decide(&mut family);
    let among = &family[0].1;
    assert_eq!(among.verdict, Verdict::Inconclusive, "{among:?}");
    assert!(among.more.is_some_and(|more| more < 40), "{among:?}");
    assert!(among.q.unwrap() > among.p.unwrap());
}

#[test]
fn history_makes_two_samples_worth_something() {
    let noise = Some(Noise {
        sigma_log: 0.01,
        core_log: 0.01,
        degrees: 50.0,
    });
    let known = Question { noise, ..LOWER };
    let (base, cand) = ([100.0, 100.5], [110.0, 110.3]);
    assert_eq!(judge(&base, &cand, &known).verdict, Verdict::Regression);
    assert_eq!(judge(&base, &cand, &LOWER).verdict, Verdict::Inconclusive);
    assert_eq!(
        judge(&base[..1], &cand, &known).verdict,
        Verdict::Inconclusive
    );
    // A metric known to be noisy is not deterministic because two samples agree.
    assert_eq!(
        judge(&[100.0; 2], &[101.9; 2], &known).verdict,
        Verdict::Inconclusive
    );
}

#[test]
fn noise_is_learned_within_sessions_and_past_wild_samples() {
    let sessions = |level: [f64; 3], wild: f64| -> Vec<Vec<f64>> {
        let around = |level: f64| [0.98, 0.99, 1.0, 1.01, 1.02].map(|x| x * level).to_vec();
        let mut all = level.map(around).to_vec();
        all[0][4] *= wild;
        all
    };
    let sigma = |sessions: &[Vec<f64>]| Noise::from_sessions(sessions).unwrap().sigma_log;
    let quiet = sigma(&sessions([100.0; 3], 1.0));
    assert!((0.012..0.020).contains(&quiet), "{quiet}");
    // A new level is no noise.
    assert!((sigma(&sessions([100.0, 200.0, 50.0], 1.0)) - quiet).abs() < 1e-9);
    assert!(sigma(&sessions([100.0; 3], 10.0)) < 2.0 * quiet);
    assert_eq!(
        Noise::from_sessions(&[vec![1.0], vec![0.0, -1.0], vec![]]),
        None
    );
}

#[test]
fn half_width_of_a_cell() {
    let check = |values: &[f64], expected: Option<f64>| {
        let got = relative_half_width(values);
        let near = got
            .zip(expected)
            .is_none_or(|(a, b)| (a - b).abs() < 0.1 * b + 1e-12);
        assert!(
            got.is_some() == expected.is_some() && near,
            "{values:?}: {got:?}"
        );
    };
    check(&[], None);
    check(&[1.0], None);
    check(&[5.0; 4], Some(0.0));
    check(&[1.0, f64::NAN, 1.0], None);
    check(&[-1.0, 1.0], None);
    check(&[99.0, 100.0, 101.0, 100.0, 100.0], Some(0.0113));
    check(&[0.0, 0.0], Some(0.0));
}

fn positive(n: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(0.1..1e3f64, n)
}

/// Values that bring every trap: zeros, negatives, repeated and infinite ones.
fn anything() -> impl Strategy<Value = Vec<f64>> {
    let value = prop_oneof![
        4 => -10.0..10.0f64,
        2 => Just(0.0),
        2 => Just(5.0),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(1e300),
        1 => Just(-1e-300),
    ];
    prop::collection::vec(value, 0..8)
}

proptest! {
    #[test]
    fn numbers_are_always_numbers(base in anything(), cand in anything()) {
        let got = judge(&base, &cand, &HIGHER);
        let numbers = [got.ratio, got.difference, got.p].into_iter().flatten();
        prop_assert!(numbers.chain(got.ci95.into_iter().flatten()).all(f64::is_finite), "{:?}", got);
        prop_assert!(got.p.is_none_or(|p| (0.0..=1.0).contains(&p)));
        prop_assert!(got.ci95.is_none_or(|[low, high]| low <= high));
        let nothing = got.n[0] == 0 || got.n[1] == 0;
        prop_assert_eq!(got.verdict == Verdict::NothingMeasured, nothing);
    }

    #[test]
    fn units_do_not_matter(base in positive(2..9), cand in positive(2..9), scale in 1e-3..1e3f64) {
        let times = |side: &[f64]| -> Vec<f64> { side.iter().map(|x| x * scale).collect() };
        let one = judge(&base, &cand, &HIGHER);
        let other = judge(&times(&base), &times(&cand), &HIGHER);
        prop_assert_eq!(one.verdict, other.verdict);
        prop_assert!((one.ratio.unwrap() / other.ratio.unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn swapping_the_sides_inverts_ratio_and_verdict(base in positive(2..9), cand in positive(2..9)) {
        let one = judge(&base, &cand, &HIGHER);
        let other = judge(&cand, &base, &HIGHER);
        let inverse = match one.verdict {
            Verdict::Regression => Verdict::Improvement,
            Verdict::Improvement => Verdict::Regression,
            same => same,
        };
        prop_assert_eq!(other.verdict, inverse);
        prop_assert!((one.ratio.unwrap() * other.ratio.unwrap() - 1.0).abs() < 1e-9);
        if let (Some([low, high]), Some([other_low, other_high])) = (one.ci95, other.ci95) {
            prop_assert!((low * other_high - 1.0).abs() < 1e-6, "{low} {other_high}");
            prop_assert!((high * other_low - 1.0).abs() < 1e-6, "{high} {other_low}");
        }
    }

    #[test]
    fn an_interval_leaves_one_out_exactly_when_there_is_a_difference(
        base in positive(2..12), cand in positive(2..12)
    ) {
        let got = judge(&base, &cand, &Question::new(Better::Lower, 0.0));
        if let (Some(p), Some([low, high])) = (got.p, got.ci95) {
            prop_assert!((p - 0.05).abs() < 1e-6 || (p < 0.05) == (low > 1.0 || high < 1.0), "{:?}", got);
        }
    }

    #[test]
    fn the_direction_turns_the_verdict_only(base in positive(2..9), cand in positive(2..9)) {
        let higher = judge(&base, &cand, &HIGHER);
        let lower = judge(&base, &cand, &LOWER);
        prop_assert_eq!(higher.verdict.is_change(), lower.verdict.is_change());
        prop_assert_eq!(higher.verdict.is_change(), higher.verdict != lower.verdict);
        prop_assert_eq!(higher.ci95, lower.ci95);
    }

    #[test]
    fn the_order_of_samples_does_not_matter(base in positive(2..9), cand in positive(2..9)) {
        let mut turned = (rounds(&base), rounds(&cand));
        turned.0.reverse();
        turned.1.reverse();
        let got = compare(&turned.0, &turned.1, &HIGHER);
        let expected = judge(&base, &cand, &HIGHER);
        prop_assert_eq!(got.verdict, expected.verdict);
        prop_assert!((got.ratio.unwrap() / expected.ratio.unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn evidence_knows_neither_units_nor_sides(
        base in positive(2..9), cand in positive(2..9), scale in 1e-3..1e3f64
    ) {
        let others = Prior { variance: 1e-4, degrees: 3.0 };
        let of = |a: &[f64], b: &[f64]| {
            let (a, b) = (rounds(a), rounds(b));
            evidence(&a, &b, &LOWER, None) + evidence(&a, &b, &LOWER, Some(others))
        };
        let scaled = |side: &[f64]| side.iter().map(|x| x * scale).collect::<Vec<_>>();
        let one = of(&base, &cand);
        prop_assert!(one.is_finite() && one >= 0.0);
        let near = |other: f64| (other - one).abs() <= 1e-6 * (1.0 + one);
        prop_assert!(near(of(&cand, &base)));
        prop_assert!(near(of(&scaled(&base), &scaled(&cand))));
    }

    #[test]
    fn noise_within_knows_neither_units_nor_sides(
        base in positive(3..9), cand in positive(3..9), scale in 1e-3..1e3f64
    ) {
        let of = |a: &[f64], b: &[f64]| noise_within(&rounds(a), &rounds(b));
        let scaled = |side: &[f64]| side.iter().map(|x| x * scale).collect::<Vec<_>>();
        let one = of(&base, &cand).unwrap();
        for other in [of(&cand, &base), of(&scaled(&base), &scaled(&cand))] {
            let other = other.unwrap();
            prop_assert!((other.variance / one.variance - 1.0).abs() < 1e-6);
            prop_assert_eq!(other.degrees, one.degrees);
        }
    }

    #[test]
    fn pooled_noise_knows_neither_units_nor_order(
        logs in prop::collection::vec(-4.0..4.0f64, POOLED_MIN..60), scale in 1e-3..1e3f64
    ) {
        let of = |scale: f64| logs.iter().map(|log| own(scale * log.exp())).collect::<Vec<_>>();
        let one = pooled(&of(1.0)).unwrap();
        let mut turned = of(1.0);
        turned.reverse();
        prop_assert_eq!(pooled(&turned), Some(one));
        let scaled = pooled(&of(scale)).unwrap();
        prop_assert!((scaled.variance / scale / one.variance - 1.0).abs() < 1e-6);
        prop_assert!(scaled.degrees == one.degrees || (scaled.degrees / one.degrees - 1.0).abs() < 1e-6);
    }
}

/// A variance with four degrees of freedom: digamma(2) = 1 − γ, trigamma(2) = π²/6 − 1.
fn own(variance: f64) -> Prior {
    Prior {
        variance,
        degrees: 4.0,
    }
}

#[test]
fn pooled_noise_weighs_as_much_as_noises_are_alike() {
    // Half the logarithms are a below, half a above that of 3: a variance of a²·n/(n − 1).
    let n = 40;
    let of = |a: f64| {
        let variance = |i: usize| own(3.0 * [a, -a][i % 2].exp());
        pooled(&(0..n).map(variance).collect::<Vec<_>>()).unwrap()
    };
    let check = |a: f64, variance: f64, degrees: f64| {
        let got = of(a);
        let near = |x: f64, y: f64| x == y || (x / y - 1.0).abs() < 1e-5;
        assert!(
            near(got.variance, variance) && near(got.degrees, degrees),
            "{a}: {got:?}"
        );
    };
    // By hand: ln s₀² = ln 3 − (1 − γ − ln 2) + digamma(d₀/2) − ln(d₀/2), and trigamma(d₀/2) = what chance leaves.
    let (gamma, by_chance) = (
        0.577_215_664_901_532_9,
        std::f64::consts::PI.powi(2) / 6.0 - 1.0,
    );
    let apart = |beyond: f64| ((beyond + by_chance) * (n - 1) as f64 / n as f64).sqrt();
    let own_bias: f64 = 1.0 - gamma - 2f64.ln();
    let level = |bias: f64| (3f64.ln() - own_bias + bias).exp();
    let trigamma_1 = std::f64::consts::PI.powi(2) / 6.0;
    check(apart(trigamma_1 - 1.0), level(own_bias), 4.0);
    check(apart(trigamma_1), level(-gamma), 2.0);
    let trigamma_half = std::f64::consts::PI.powi(2) / 2.0;
    check(apart(trigamma_half), level(-gamma - 2f64.ln()), 1.0);
    // No further apart than by chance: all the weight there is. Far apart: none to speak of.
    check(apart(-0.01), level(0.0), f64::INFINITY);
    check(0.0, level(0.0), f64::INFINITY);
    assert!(of(20.0).degrees < 0.11, "{:?}", of(20.0));

    let few = vec![own(1.0); POOLED_MIN - 1];
    assert_eq!(pooled(&few), None);
    // Two that are wild beyond measure are held back.
    let mut wild: Vec<Prior> = (0..n).map(|i| own(1.0 + i as f64 / 20.0)).collect();
    let calm = pooled(&wild).unwrap();
    wild.extend([own(1e12), own(1e-12)]);
    let held = pooled(&wild).unwrap();
    assert!(held.degrees > 4.0, "{calm:?} {held:?}");
}

#[test]
fn evidence_ranks_clear_shifts_before_wild_samples() {
    let base = [100.0, 101.0, 99.0, 100.5, 99.5];
    let of = |cand: &[f64]| evidence(&rounds(&base), &rounds(cand), &LOWER, None);
    let same = of(&[100.2, 99.1, 100.9, 99.6, 100.4]);
    let wild = of(&[100.2, 99.1, 180.0, 99.6, 100.4]);
    let shifted = of(&[103.2, 102.1, 103.9, 102.6, 103.4]);
    assert!(
        same < 1.0 && wild < 2.0 && shifted > 5.0,
        "{same} {wild} {shifted}"
    );
    assert_eq!(of(&[]), 0.0);
    assert_eq!(
        evidence(&rounds(&[5.0; 4]), &rounds(&[5.0; 4]), &LOWER, None),
        0.0
    );
}

mod confirmation {
    use matrix::base::sample::Better;
    use matrix::judge::confirm::*;
    use matrix::judge::verdict::{Comparison, Question, Verdict, compare_values};

    const QUESTION: Question = Question::new(Better::Lower, 0.02);
    const BASE: [f64; 6] = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2];

    fn times(factor: f64) -> Comparison {
        compare_values(&BASE, &BASE.map(|x| x * factor), &QUESTION)
    }

    #[test]
    fn stages_end_with_the_declared_rounds_and_a_look() {
        let check = |rounds, ends: &[u32], looks: &[u32]| {
            let policy = Policy {
                rounds,
                ..Policy::default()
            };
            let stages = policy.stages();
            let got: Vec<u32> = stages.iter().map(|stage| stage.to).collect();
            assert_eq!(got, ends);
            let got = stages.iter().filter(|stage| stage.is_look);
            assert_eq!(got.map(|stage| stage.to).collect::<Vec<_>>(), looks);
        };
        check(0, &[], &[]);
        check(1, &[1], &[1]);
        check(10, &[1, 2, 3, 4, 6, 8, 10], &[4, 8, 10]);
        check(32, &[1, 2, 3, 4, 6, 8, 12, 16, 24, 32], &[4, 8, 16, 32]);
        check(1000, &[1, 2, 3, 4, 6, 8, 12, 16, 24, 32], &[4, 8, 16, 32]);
    }

    #[test]
    fn the_most_promising_are_measured_again_within_the_budget() {
        let policy = Policy::default();
        let stages = policy.stages();
        let mut left = policy.runs(1000);
        assert_eq!(left, 256.0, "four findings to the end, of a small matrix");
        let evidence = [0.5, 9.0, 2.0, 40.0];
        assert_eq!(afforded(&evidence, stages[0], &mut left), [3, 1, 2]);
        assert_eq!(left, 250.0);
        left = 13.0;
        assert_eq!(afforded(&evidence, stages[0], &mut left), [3, 1]);
        // Four findings are afforded in each stage.
        left = policy.runs(0);
        for stage in stages {
            assert_eq!(afforded(&[5.0; 4], stage, &mut left).len(), 4);
        }
        assert_eq!(left, 0.0);
        let none = Policy {
            budget: 0.0,
            ..policy
        };
        assert_eq!(none.runs(1_000_000), 0.0);
    }

    #[test]
    fn what_is_the_same_or_exact_is_not_measured_again() {
        let declared = Question {
            deterministic: true,
            ..QUESTION
        };
        let exact = compare_values(&[5.0; 6], &[6.0; 6], &declared);
        assert_eq!(
            [
                times(1.0),
                exact,
                times(1.5),
                compare_values(&[], &BASE, &QUESTION)
            ]
            .map(|c| is_open(&c)),
            [false, false, true, false]
        );
    }

    fn finding(screen: Comparison, confirms: bool) -> Finding {
        Finding {
            question: QUESTION,
            screen,
            confirms,
            is_again: false,
            fresh: None,
        }
    }

    fn again(screen: Comparison, looks: &[Comparison]) -> Finding {
        let fresh = confirmed(&screen, looks, &Policy::default());
        Finding {
            is_again: true,
            fresh,
            ..finding(screen, true)
        }
    }

    #[test]
    fn a_rerun_confirms_refutes_or_says_nothing() {
        let merged = |looks: &[Comparison]| {
            let mut all = vec![finding(times(1.0), true); 500];
            all[0] = again(times(1.1), looks);
            for one in &mut all[1..20] {
                *one = again(times(1.0), &[times(1.0)]);
            }
            decide(&all).swap_remove(0)
        };
        let check = |looks: &[Comparison], verdict: Verdict, is_confirmed: Option<bool>| {
            let got = merged(looks);
            assert_eq!(
                (got.comparison.verdict, got.is_confirmed),
                (verdict, is_confirmed),
                "{looks:?}"
            );
        };
        check(&[times(1.1)], Verdict::Regression, Some(true));
        // What an earlier look has shown a later one does not take back, unless it points elsewhere.
        let looks = [times(1.1), times(1.03)];
        check(&looks, Verdict::Regression, Some(true));
        let looks = [times(1.1), times(0.97)];
        check(&looks, Verdict::Inconclusive, Some(false));
        check(&[times(1.0)], Verdict::Same, Some(false));
        // As clear, but the other way round: refuted, not a new finding.
        check(&[times(0.9)], Verdict::Inconclusive, Some(false));
        check(
            &[compare_values(&[], &[], &QUESTION)],
            Verdict::NothingMeasured,
            Some(false),
        );
        // The screen's ratio is forgotten.
        assert_eq!(merged(&[times(1.05)]).comparison.ratio, times(1.05).ratio);
    }

    #[test]
    fn what_is_not_confirmed_is_suspected_at_the_most() {
        let verdict = |one: Finding| {
            let all = [vec![one], vec![finding(times(1.0), true); 20]].concat();
            let decision = decide(&all).swap_remove(0);
            (decision.comparison.verdict, decision.is_confirmed)
        };
        assert_eq!(
            verdict(finding(times(1.1), true)),
            (Verdict::Suspected, None)
        );
        // Given up before a look: not refuted.
        assert_eq!(verdict(again(times(1.1), &[])), (Verdict::Suspected, None));
        assert_eq!(
            verdict(finding(times(1.1), false)),
            (Verdict::Regression, None)
        );
        // The interval of what was chosen for its size is that for a choice of one of 21.
        let all = [
            vec![again(times(1.1), &[])],
            vec![finding(times(1.0), true); 20],
        ];
        let told = decide(&all.concat()).swap_remove(0).comparison;
        let (own, wide) = (times(1.1).ci95.unwrap(), told.ci95.unwrap());
        assert!(wide[0] < own[0] && own[1] < wide[1], "{own:?} {wide:?}");
    }

    #[test]
    fn findings_that_were_not_measured_again_do_not_help_those_that_were() {
        // Of a thousand comparisons 200 are found for sure and never confirmed; 20 others were measured again and
        // came to little: p-values of 0.01 to 0.05.
        let mut all = vec![finding(times(1.0), false); 1000];
        for one in &mut all[..200] {
            one.screen = times(1.1);
        }
        let weak = |p: f64| Comparison {
            p: Some(p),
            basis: Default::default(),
            ..times(1.1)
        };
        let after = |with: &[Finding]| {
            let told = decide(with);
            let of = told.iter().map(|decision| decision.comparison.verdict);
            of.filter(|verdict| verdict.is_change()).count()
        };
        let before = after(&all);
        assert_eq!(before, 200);
        for i in 0..20 {
            let mut one = again(times(1.1), &[times(1.1)]);
            one.fresh = Some(weak(0.011 + 0.002 * f64::from(i)));
            all.push(one);
        }
        assert_eq!(after(&all), before);
    }
}

mod monitors {
    use matrix::base::sample::Sample;
    use matrix::judge::monitors::*;

    const MONITORS: usize = 200;
    const TRIALS: u64 = 100;
    const ROUNDS: u32 = 10;

    /// xorshift64* (Vigna, 2016), and from it a normal deviate (Box & Muller, 1958).
    struct Random(u64);

    impl Random {
        fn uniform(&mut self) -> f64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
            (bits as f64 + 0.5) / (1u64 << 53) as f64
        }

        fn normal(&mut self) -> f64 {
            let radius = (-2.0 * self.uniform().ln()).sqrt();
            radius * (std::f64::consts::TAU * self.uniform()).cos()
        }

        /// Rounds of a monitor about a level, with a spread of 5 %.
        fn side(&mut self, level: f64) -> Vec<Sample> {
            let sample = |round| Sample {
                round,
                session: 1,
                value: level * (0.05 * self.normal()).exp(),
            };
            (0..ROUNDS).map(sample).collect()
        }
    }

    #[test]
    fn of_200_monitors_the_two_that_move_are_named() {
        let names: Vec<String> = (0..MONITORS).map(|n| format!("m{n}")).collect();
        let (mut missed, mut others) = (0, 0);
        for seed in 1..=TRIALS {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let sides: Vec<[Vec<Sample>; 2]> = (0..MONITORS)
                .map(|n| {
                    let factor = match n {
                        17 => 1.3,
                        111 => 0.7,
                        _ => 1.0,
                    };
                    [random.side(100.0), random.side(100.0 * factor)]
                })
                .collect();
            let watched = names.iter().zip(&sides).map(|(name, [a, b])| Watched {
                name,
                baseline: a,
                candidate: b,
            });
            let found = moved(&watched.collect::<Vec<_>>());
            let named = |name: &str| found.iter().any(|moved| moved.monitor == name);
            missed += usize::from(!named("m17")) + usize::from(!named("m111"));
            let is_other =
                |moved: &&MovedMonitor| !["m17", "m111"].contains(&moved.monitor.as_str());
            others += found.iter().filter(is_other).count();
        }
        assert_eq!(missed, 0);
        assert!(others <= 1, "{others} others");
    }

    #[test]
    fn few_samples_and_constants_say_nothing() {
        let mut random = Random(7);
        let (a, b) = (random.side(1.0), random.side(9.0));
        let zero: Vec<Sample> = a.iter().map(|s| Sample { value: 0.0, ..*s }).collect();
        let watched = |baseline, candidate| Watched {
            name: "m",
            baseline,
            candidate,
        };
        assert_eq!(moved(&[watched(&a[..2], &b[..2])]), []);
        assert_eq!(moved(&[watched(&zero, &zero)]), []);
        assert_eq!(moved(&[watched(&a, &a)]), []);
        assert_eq!(moved(&[watched(&a, &b)]).len(), 1);
    }
}

mod power {
    use matrix::judge::power::*;

    #[test]
    fn textbook_sample_size() {
        // Cohen's table 2.4.1: d = 0.5, α = 0.05 two-sided, power 0.80 needs 64 a group.
        let n = repetitions(0.02, 0.01f64.exp_m1(), 0.05).unwrap();
        assert!((63..=66).contains(&n), "{n}");
    }

    #[test]
    fn more_repetitions_see_smaller_effects() {
        let effects: Vec<f64> = (2..60)
            .map(|n| smallest_effect(0.01, n, 1e-4).unwrap())
            .collect();
        assert!(effects.windows(2).all(|pair| pair[1] < pair[0]));
        for effect in [0.01, 0.02, 0.05] {
            let n = repetitions(0.03, effect, 1e-3).unwrap();
            assert!(smallest_effect(0.03, n, 1e-3).unwrap() <= effect);
            assert!(smallest_effect(0.03, n - 1, 1e-3).unwrap() > effect);
        }
    }

    #[test]
    fn what_cannot_be_told() {
        assert_eq!(smallest_effect(0.01, 1, 0.05), None);
        assert_eq!(smallest_effect(f64::NAN, 5, 0.05), None);
        assert_eq!(repetitions(10.0, 0.001, 0.05), None);
        assert_eq!(repetitions(0.0, 0.01, 0.05), Some(2));
    }
}

mod table {
    use matrix::base::sample::Better;
    use matrix::judge::verdict::Verdict;
    use matrix::report::table::*;

    #[test]
    fn lkp_columns() {
        let check =
            |metric, base, new, expected| assert_eq!(lkp_change(metric, base, new), expected);
        check("ops", 200.0, 150.0, "-25.0%");
        check("ops", 2.0, 2000.0, "+99900.0%");
        check("ops", 2.0, 20_000.0, "+1.0e+06%");
        check("ops", 0.0, 12.0, "+1.2e+103%");
        check("ops", 0.0, 0.0, "+0.0%");
        check("ops", 4.0, 0.0, "-100.0%");
        // A negative base: further from zero prints as an increase.
        check("nr.min", -10.0, -15.0, "+50.0%");
        check("cpu.idle%", 30.0, 27.5, "-2.5");
        check("perf-profile.children.memcpy", 0.5, 0.9, "+0.4");
        let numbers = [
            0.0,
            -1.234,
            999.0,
            1000.4,
            99_999_999.0,
            123_456_789.0,
            1.5e11,
        ];
        let printed = [
            "0.00",
            "-1.23",
            "999.00",
            "1000",
            "99999999",
            "1.235e+08",
            "1.5e+11",
        ];
        assert_eq!(numbers.map(lkp_number), printed);
        let side = |mean, relative_stddev| Side {
            mean,
            relative_stddev,
        };
        assert_eq!(
            lkp_row("ops", side(200.0, Some(0.021)), side(150.0, Some(0.01))),
            "    200.00 ±  2%     -25.0%     150.00        ops"
        );
    }

    #[test]
    fn mmtests_columns() {
        let check = |better, base, new, star, expected: &str| {
            let percent = mmtests_percent(better, base, new);
            assert_eq!(mmtests_cell(new, percent, star, 2), expected);
        };
        check(Better::Lower, 50.0, 60.0, true, "60.00 *  -20.00%*");
        check(Better::Higher, 50.0, 60.0, false, "60.00 (   20.00%)");
        check(Better::Higher, 0.0, 60.0, false, "60.00 (    0.00%)");
        check(Better::Lower, 60.0, 60.0, false, "60.00 (    0.00%)");
        check(
            Better::Lower,
            1e5,
            100_001.0,
            false,
            "100001.00 (   -0.00%)",
        );
        assert_eq!(mmtests_verdict(-0.2, true, 0.02), Verdict::Same);
        assert_eq!(mmtests_verdict(-20.0, true, 0.02), Verdict::Regression);
        assert_eq!(mmtests_verdict(20.0, false, 0.02), Verdict::Inconclusive);
    }
}

mod stats {
    use matrix::judge::stats::*;
    use proptest::prelude::*;

    fn near(a: f64, b: f64, tolerance: f64) {
        assert!((a - b).abs() <= tolerance, "{a} is not near {b}");
    }

    #[test]
    fn order_statistics() {
        let check = |values: &[f64], q, expected| assert_eq!(quantile(values, q), expected);
        check(&[], 0.5, None);
        check(&[3.0], 0.9, Some(3.0));
        check(&[4.0, 1.0, 3.0, 2.0], 0.5, Some(2.5));
        check(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25, Some(2.0));
        check(&[f64::MAX, -f64::MAX], 0.5, Some(0.0));
        assert_eq!(mad(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]), Some(1.0));
        assert_eq!(stddev(&[1.0]), None);
    }

    #[test]
    fn trimmed_means_do_not_notice_one_outlier_in_five() {
        let mean = trimmed_mean(&[1.0, 2.0, 3.0, 4.0, 1e6]).unwrap();
        assert_eq!(mean.shift, 3.0);
        let shift = trimmed_t(
            &[1.0, 2.0, 3.0, 4.0, 5.0],
            &[11.0, 12.0, 13.0, 14.0, 1e6],
            None,
        );
        assert_eq!(shift.unwrap().shift, 10.0);
        assert_eq!(trimmed_t(&[1.0; 4], &[1.0; 5], None), None);
    }

    #[test]
    fn t_tests_agree_with_textbooks() {
        let estimate = Estimate {
            shift: 2.306,
            error: 1.0,
            df: 8.0,
        };
        near(estimate.p(0.0), 0.05, 1e-4);
        near(estimate.half_width(0.05), 2.306, 1e-3);
        // At the bound itself half of the tail, far beyond it one tail.
        near(estimate.p(2.306), 0.5, 0.01);
        near(
            Estimate {
                shift: 102.306,
                ..estimate
            }
            .p(100.0),
            0.025,
            1e-4,
        );
        // Welch (1947): variances of 1 and 9, of 5 and 10 samples.
        let side = |mean: f64, n: f64, variance: f64| Moments {
            mean,
            n,
            squares: variance * (n - 1.0),
            df: n - 1.0,
        };
        let welch = welch_t(&side(0.0, 5.0, 1.0), &side(1.0, 10.0, 9.0)).unwrap();
        near(welch.error, 1.1f64.sqrt(), 1e-12);
        near(welch.df, 1.21 / (0.04 / 4.0 + 0.81 / 9.0), 1e-9);
    }

    #[test]
    fn student_agrees_with_tables() {
        let check = |t, df, p: f64| near(student_p(t, df), p, p * 2e-3);
        check(2.776, 4.0, 0.05);
        check(2.306, 8.0, 0.05);
        check(12.706, 1.0, 0.05);
        check(10.215, 15.0, 3.77e-8);
        near(student_quantile(0.05, 8.0), 2.306, 1e-3);
        near(student_quantile(0.05, 1e6), 1.960, 1e-3);
        near(student_quantile(0.9, 4.0), 0.1338, 1e-3);
        near(student_quantile(1e-9, 2.5) / 4604.53, 1.0, 1e-5);
        near(normal_quantile(0.05), 1.960, 1e-3);
    }

    #[test]
    fn adjusted_p_values() {
        assert_eq!(
            benjamini_hochberg(&[0.04, 0.01, 0.03, 0.5]),
            vec![0.16 / 3.0, 0.04, 0.16 / 3.0, 0.5]
        );
    }

    fn samples(n: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(-1e3..1e3f64, n)
    }

    proptest! {
        #[test]
        fn estimates_move_and_scale_with_the_data(
            a in samples(5..12), b in samples(5..12), offset in -1e3..1e3f64, scale in 0.1..10.0f64
        ) {
            let moved: Vec<f64> = a.iter().map(|x| x * scale + offset).collect();
            near(trimmed_mean(&moved).unwrap().shift, trimmed_mean(&a).unwrap().shift * scale + offset, 1e-6);
            let shift = hodges_lehmann_shift(&a, &b).unwrap();
            near(hodges_lehmann_shift(&b, &a).unwrap(), -shift, 1e-6);
        }
    }
}
