//! The tests of change points and of what a night adds to them, as a caller sees them.

use matrix::judge::changepoint::{ChangeKind, DetectorOptions, changes, modes_of};
use matrix::judge::history::{append, review};
use matrix::judge::stats::student_quantile;
use proptest::prelude::*;

/// Noise of about ±1 % without a pattern.
fn noise(i: usize) -> f64 {
    1.0 + 0.02 * (((i * 7919 + i * i * 104_729) % 1000) as f64 / 1000.0 - 0.5)
}

fn series(n: usize, level: impl Fn(usize) -> f64) -> Vec<Option<f64>> {
    (0..n).map(|i| Some(level(i) * noise(i))).collect()
}

fn indices(series: &[Option<f64>]) -> Vec<usize> {
    changes(series, &DetectorOptions::default())
        .iter()
        .map(|change| change.index)
        .collect()
}

#[test]
fn steps_are_found_and_spikes_are_not() {
    let check = |level: fn(usize) -> f64, expected: &[usize]| {
        assert_eq!(indices(&series(120, level)), expected)
    };
    check(|_| 50.0, &[]);
    check(|i| if i < 70 { 50.0 } else { 52.0 }, &[70]);
    check(|i| if i < 70 { 50.0 } else { 25.0 }, &[70]);
    check(
        |i| if (40..80).contains(&i) { 52.0 } else { 50.0 },
        &[40, 80],
    );
    // One, two and three wild points are no level.
    check(|i| if i == 60 { 5e6 } else { 50.0 }, &[]);
    check(|i| if (60..63).contains(&i) { 90.0 } else { 50.0 }, &[]);
    // Values of zero and below are looked at as they are.
    check(|i| if i < 70 { -50.0 } else { -60.0 }, &[70]);
}

#[test]
fn short_constant_and_exact_series() {
    let check = |values: &[f64], expected: &[usize]| {
        let series: Vec<Option<f64>> = values.iter().copied().map(Some).collect();
        assert_eq!(indices(&series), expected, "{values:?}");
    };
    check(&[], &[]);
    check(&[1.0], &[]);
    check(&[1.0, 9.0], &[]);
    check(&[7.0; 50], &[]);
    check(&[0.0; 50], &[]);
    // An instruction count that moved by a millionth.
    let exact: Vec<f64> = (0..40)
        .map(|i| if i < 25 { 1e6 } else { 1e6 + 1.0 })
        .collect();
    check(&exact, &[25]);
    check(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY], &[]);
}

#[test]
fn gaps_are_passed_over_and_counted() {
    let mut all = series(120, |i| if i < 70 { 50.0 } else { 53.0 });
    for gap in (0..120).filter(|i| i % 7 == 3 || (60..70).contains(i)) {
        all[gap] = None;
    }
    assert_eq!(indices(&all), [70]);
}

#[test]
fn a_change_tells_its_size() {
    let found = changes(
        &series(200, |i| if i < 90 { 50.0 } else { 55.0 }),
        &DetectorOptions::default(),
    );
    let [low, high] = found[0].ci95.unwrap();
    assert!(low < 1.1 && 1.1 < high && high - low < 0.01, "{found:?}");
    assert!((found[0].before - 50.0).abs() < 0.3 && (found[0].after - 55.0).abs() < 0.3);
    let across = changes(
        &series(80, |i| if i < 40 { -5.0 } else { 5.0 }),
        &DetectorOptions::default(),
    );
    assert_eq!((across[0].index, across[0].ratio), (40, None));
}

#[test]
fn changes_too_small_to_matter_are_left_out() {
    let all = series(300, |i| [100.0, 103.0, 120.0][i / 100]);
    let options = DetectorOptions {
        min_effect: 0.05,
        ..DetectorOptions::default()
    };
    assert_eq!(indices(&all), [100, 200]);
    let found = changes(&all, &options);
    assert_eq!(found.iter().map(|c| c.index).collect::<Vec<_>>(), [200]);
}

#[test]
fn a_change_near_an_end_is_told_where_it_is() {
    let check = |values: &[f64], expected: &[usize]| {
        let series: Vec<Option<f64>> = values.iter().copied().map(Some).collect();
        assert_eq!(indices(&series), expected, "{values:?}");
    };
    check(
        &[100.0, 101.0, 99.0, 50.0, 51.0, 50.0, 49.0, 50.0, 51.0, 50.0],
        &[3],
    );
    check(&[100.0, 101.0, 99.0, 50.0, 51.0, 50.0, 49.0], &[3]);
    let few = [
        10.1, 9.9, 10.0, 10.2, 9.8, 101.0, 99.0, 100.0, 102.0, 98.0, 99.0, 101.0, 100.0,
    ];
    check(&few, &[5]);
    // Two or three wild points at an end are a level, unless such were seen before.
    let ends = |wild: &[usize]| {
        let mut values: Vec<f64> = (0..40).map(|i| 100.0 * noise(i)).collect();
        wild.iter().for_each(|at| values[*at] *= 1.2);
        values
    };
    check(&ends(&[38, 39]), &[38]);
    check(&ends(&[0, 1]), &[2]);
    check(&ends(&[39]), &[]);
    check(&ends(&[10, 38, 39]), &[]);
    check(&ends(&[10, 11, 37, 38, 39]), &[]);
}

#[test]
fn a_level_of_four_points_begins_with_the_first_of_them() {
    // With 4 points after a jump of 8 % in Gaussian noise of 0.5 %.
    let mut state = 5u64;
    let mut share = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as f64 + 0.5) / 2f64.powi(31)
    };
    let mut gauss = || (-2.0 * share().ln()).sqrt() * (std::f64::consts::TAU * share()).cos();
    let mut told = 0;
    for _ in 0..200 {
        let noise: Vec<f64> = (0..60).map(|_| 0.5 * gauss()).collect();
        let found = changes(&step(&noise, 56, 8.0), &DetectorOptions::default());
        let last = found.last().filter(|change| change.index >= 50);
        assert!(last.is_none_or(|change| change.set == [56]), "{found:?}");
        told += usize::from(last.is_some());
    }
    assert!(told >= 198, "{told}");
}

#[test]
fn modes_are_told_and_are_no_changes() {
    // Stays in a mode for 3 to 9 points.
    let is_high = |i: usize| {
        [3, 12, 15, 24, 28, 37, 40, 46]
            .iter()
            .filter(|at| i % 50 >= **at)
            .count()
            % 2
            == 1
    };
    let level = |i: usize| if is_high(i) { 55.0 } else { 50.0 };
    let all = series(200, level);
    assert_eq!(indices(&all), [0; 0]);
    let [low, high] = modes_of(&all).unwrap();
    assert!((low - 50.0).abs() < 0.2 && (high - 55.0).abs() < 0.2);
    // A change of both modes, and one of how often they come.
    let both = series(200, |i| level(i) * if i < 120 { 1.0 } else { 1.03 });
    assert_eq!(indices(&both), [120]);
    let [often] = indices(&series(400, |i| if i < 120 { level(i) } else { 50.0 }))[..] else {
        panic!("one change");
    };
    assert!(often.abs_diff(120) <= 10, "{often}");
    // There and back again are changes.
    let back = series(120, |i| if (40..80).contains(&i) { 55.0 } else { 50.0 });
    assert_eq!((indices(&back), modes_of(&back)), (vec![40, 80], None));
}

fn levels_only(series: &[Option<f64>]) -> Vec<usize> {
    let options = DetectorOptions {
        trends: false,
        ..DetectorOptions::default()
    };
    let found = changes(series, &options);
    found.iter().map(|change| change.index).collect()
}

#[test]
fn a_trend_that_bends_is_one_change_and_not_a_flight_of_steps() {
    let check = |level: fn(f64) -> f64, at: &[usize]| {
        let all = series(240, |i| level(i as f64));
        let found = indices(&all);
        let near = |(found, at): (&usize, &usize)| found.abs_diff(*at) <= 5;
        let is_right = found.len() == at.len() && found.iter().zip(at).all(near);
        assert!(is_right, "{found:?}, not {at:?}");
        let steps = levels_only(&all);
        assert!(steps.len() >= at.len(), "{steps:?}");
    };
    // Slower night by night, until somebody mends it; a recovery that ends; a step within a trend.
    check(|i| 100.0 + 0.2 * (i - 120.0).max(0.0), &[120]);
    check(|i| 100.0 + 0.3 * (90.0 - i).max(0.0), &[90]);
    check(
        |i| 100.0 + 0.1 * i + if i < 150.0 { 0.0 } else { 12.0 },
        &[150],
    );
}

#[test]
fn a_bend_has_no_ratio_and_no_smallest_size() {
    let all = series(240, |i| 100.0 + 0.3 * (i as f64 - 180.0).abs());
    let options = DetectorOptions {
        min_effect: 0.5,
        ..DetectorOptions::default()
    };
    let found = changes(&all, &options);
    let told: Vec<_> = found.iter().map(|c| (c.kind, c.ratio, c.ci95)).collect();
    let is_bend = |it: &_| *it == (ChangeKind::Bend, None, None);
    assert!(!told.is_empty() && told.iter().all(is_bend), "{told:?}");
    let levels = changes(&series(100, |i| if i < 50 { 1.0 } else { 2.0 }), &options);
    assert_eq!(
        levels.iter().map(|c| c.kind).collect::<Vec<_>>(),
        [ChangeKind::Level]
    );
}

#[test]
fn a_drift_without_a_bend_is_told_as_steps() {
    let all = series(240, |i| 100.0 + 0.1 * i as f64);
    assert_eq!(indices(&all), levels_only(&all));
    assert!(!indices(&all).is_empty());
}

#[test]
fn a_step_is_found_in_a_season() {
    let weekly = |i: usize| [1.0, 1.03, 1.05, 1.03, 1.0, 0.96, 0.93][i % 7];
    let all = series(210, |i| weekly(i) * if i < 140 { 100.0 } else { 102.0 });
    assert_eq!(indices(&all), [140]);
    assert!(levels_only(&all).is_empty());
    // Two weeks and one night missing: the days stay the same days.
    let mut gaps = all.clone();
    gaps[90] = None;
    gaps[57..71].fill(None);
    assert_eq!(indices(&gaps), [140]);
    assert!(indices(&series(210, |i| 100.0 * weekly(i))).is_empty());
    // Never measured on the fourth day.
    let mut fewer = all.clone();
    let fourth = fewer.iter_mut().skip(3).step_by(7);
    fourth.for_each(|point| *point = None);
    assert_eq!(indices(&fewer), [140]);
}

proptest! {
    #[test]
    fn units_do_not_matter(step in 1.05..2.0f64, scale in 1e-3..1e3f64, at in 30usize..90) {
        let one = series(120, |i| if i < at { 50.0 } else { 50.0 * step });
        let other: Vec<Option<f64>> = one.iter().map(|x| x.map(|x| x * scale)).collect();
        prop_assert_eq!(indices(&one), indices(&other));
        prop_assert_eq!(indices(&one), vec![at]);
    }

    #[test]
    fn any_input_gives_ordered_changes_and_finite_numbers(
        values in prop::collection::vec(prop_oneof![
            4 => (-1e3..1e3f64).prop_map(Some),
            1 => Just(None),
            1 => Just(Some(0.0)),
            1 => Just(Some(1e300)),
            1 => Just(Some(-1e-300)),
        ], 0..80),
    ) {
        let found = changes(&values, &DetectorOptions::default());
        prop_assert!(found.windows(2).all(|pair| pair[0].index + 2 <= pair[1].index));
        for change in &found {
            prop_assert!(values[change.index].is_some());
            prop_assert!(change.set.contains(&change.index) && change.set.is_sorted());
            prop_assert!(0.0 < change.probability && change.probability <= 1.0);
            prop_assert!(change.before.is_finite() && change.after.is_finite());
            let numbers = change.ratio.into_iter().chain(change.ci95.into_iter().flatten());
            prop_assert!(numbers.into_iter().all(f64::is_finite), "{change:?}");
        }
        prop_assert_eq!(format!("{found:?}"), format!("{:?}", changes(&values, &DetectorOptions::default())));
    }
}

/// A series of 100 with steps by factors.
fn stepped(n: usize, steps: &[(usize, f64)]) -> Vec<Option<f64>> {
    let factor = |i: usize| -> f64 { steps.iter().filter(|s| i >= s.0).map(|s| s.1).product() };
    series(n, |i| 100.0 * factor(i))
}

#[test]
fn nights_add_changes_and_never_move_reported_ones() {
    let all = stepped(400, &[(60, 1.1), (150, 0.95), (320, 1.08)]);
    let mut reported: Vec<usize> = Vec::new();
    for night in 1..=all.len() {
        let new = append(&all[..night], &reported, &DetectorOptions::default());
        assert!(
            new.iter()
                .all(|change| reported.iter().all(|old| change.index > *old))
        );
        reported.extend(new.iter().map(|change| change.index));
    }
    assert_eq!(reported, [60, 150, 320]);
    let fresh = changes(&all, &DetectorOptions::default());
    let again = |told: &usize| review(*told, &fresh, &DetectorOptions::default());
    let again: Vec<Option<usize>> = reported.iter().map(again).collect();
    assert_eq!(again, [Some(60), Some(150), Some(320)]);
}

#[test]
fn a_review_says_what_moved_and_what_went() {
    let fresh = changes(&stepped(200, &[(100, 1.2)]), &DetectorOptions::default());
    let check = |told, expected| {
        let got = review(told, &fresh, &DetectorOptions::default());
        assert_eq!(got, expected, "{told}");
    };
    check(40, None);
    check(98, Some(100));
    check(100, Some(100));
}

#[test]
fn an_empty_series_and_a_report_beyond_its_end_are_fine() {
    assert_eq!(append(&[], &[], &DetectorOptions::default()), []);
    assert_eq!(
        append(&stepped(30, &[]), &[50], &DetectorOptions::default()),
        []
    );
}

/// The points of all nights, each appended to what was reported before.
fn night_by_night(series: &[Option<f64>]) -> Vec<usize> {
    let mut reported: Vec<usize> = Vec::new();
    for night in 1..=series.len() {
        let new = append(&series[..night], &reported, &DetectorOptions::default());
        reported.extend(new.iter().map(|change| change.index));
    }
    reported
}

/// A step upwards at `at`, in units of the noise.
fn step(noise: &[f64], at: usize, size: f64) -> Vec<Option<f64>> {
    let level = |i: usize| if i < at { 0.0 } else { size };
    let value = |(i, noise): (usize, &f64)| Some(100.0 * (0.01 * (noise + level(i))).exp());
    noise.iter().enumerate().map(value).collect()
}

#[test]
fn a_point_beyond_the_clip_belongs_to_the_nearer_level() {
    let check = |wild: &[(usize, f64)], told: usize| {
        let mut noise: Vec<f64> = (0..60).map(|i| 100.0 * (noise(i) - 1.0)).collect();
        wild.iter().for_each(|(at, x)| noise[*at] = *x);
        let series = step(&noise, 20, 20.0);
        assert_eq!(indices(&series), [told], "{wild:?}");
        assert_eq!(night_by_night(&series), [told], "{wild:?}, night by night");
    };
    check(&[], 20);
    // Too low before the step, too high before it, and so much that it is of the other level.
    check(&[(19, -4.0)], 20);
    check(&[(19, 8.0)], 20);
    check(&[(19, 12.0)], 19);
    check(&[(20, 4.0)], 20);
    check(&[(20, -8.0)], 20);
    check(&[(20, -12.0)], 21);
    check(&[(18, -4.0), (19, -5.0), (20, 5.0), (21, 4.0)], 20);
    check(&[(18, 5.0), (19, 4.0)], 20);
}

proptest! {
    #[test]
    fn a_clear_step_is_told_where_it_is(
        shares in prop::collection::vec(1e-4..0.9999f64, 60),
        at in 20usize..40,
        size in 9.0..40.0f64,
    ) {
        // Student's t with heavy tails, whose robust sigma is 1.13: the step is of 8 sigma or more.
        let noise: Vec<f64> = shares.iter().map(|p| student_quantile(*p, 3.0)).collect();
        let of_other_level = |i: &usize| match *i < at {
            true => noise[*i] > size / 2.0,
            false => noise[*i] < -size / 2.0,
        };
        prop_assume!(!(at - 5..at + 5).any(|i| of_other_level(&i)));
        let series = step(&noise, at, size);
        prop_assert!(indices(&series).contains(&at), "{:?}", indices(&series));
        let reported = night_by_night(&series);
        prop_assert!(reported.contains(&at), "night by night {:?}", reported);
    }
}
