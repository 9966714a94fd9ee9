//! The tests of pairwise covering arrays: against the whole product where that is small.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn rule<'a>(axes: &[usize], is_forbidden: impl Fn(&[u16]) -> bool + 'a) -> Forbidden<'a> {
    Forbidden {
        axes: axes.to_vec(),
        is_forbidden: Box::new(is_forbidden),
    }
}

fn product(sizes: &[usize]) -> Vec<Vec<u16>> {
    sizes.iter().fold(vec![Vec::new()], |rows, size| {
        rows.iter()
            .flat_map(|row| (0..*size as u16).map(|v| [&row[..], &[v]].concat()))
            .collect()
    })
}

/// Positions and values of all pairs of a row; with one axis, its value twice.
fn pairs(row: &[u16]) -> Vec<(usize, u16, usize, u16)> {
    let apart = usize::from(row.len() > 1);
    (0..row.len())
        .flat_map(|a| (a + apart..row.len()).map(move |b| (a, row[a], b, row[b])))
        .collect()
}

/// Holds the result against the whole product; returns the number of rows.
fn check(sizes: &[usize], rules: &[Forbidden], seed: u64) -> usize {
    let rows = pairwise(sizes, rules, seed).unwrap();
    let allowed: BTreeSet<Vec<u16>> = product(sizes)
        .into_iter()
        .filter(|row| {
            !rules.iter().any(|rule| {
                let values: Vec<u16> = rule.axes.iter().map(|axis| row[*axis]).collect();
                (rule.is_forbidden)(&values)
            })
        })
        .collect();
    let all = |rows: &mut dyn Iterator<Item = &Vec<u16>>| -> BTreeSet<_> {
        rows.flat_map(|row| pairs(row)).collect()
    };
    assert!(rows.iter().all(|row| allowed.contains(row)), "{rows:?}");
    let covered = all(&mut rows.iter());
    assert_eq!(covered, all(&mut allowed.iter()));
    assert_eq!(rows.is_empty(), allowed.is_empty());
    for left_out in 0..rows.len() {
        let mut rest = rows.iter().enumerate().filter(|(i, _)| *i != left_out);
        let fewer = all(&mut rest.by_ref().map(|(_, row)| row));
        assert!(
            rows.len() == 1 || fewer != covered,
            "{left_out} of {rows:?}"
        );
    }
    rows.len()
}

#[test]
fn no_more_rows_than_pict() {
    let check = |axes, values, rows_max| {
        let rows = pairwise(&vec![values; axes], &[], 1).unwrap().len();
        assert!(rows <= rows_max, "{axes} x {values}: {rows} rows");
    };
    check(10, 4, 31);
    check(20, 5, 58);
    check(10, 10, 166);
    check(50, 4, 50);
}

#[test]
fn small_spaces() {
    assert_eq!(check(&[], &[], 0), 1);
    assert_eq!(check(&[3], &[], 0), 3);
    assert_eq!(check(&[3, 0], &[], 0), 0);
    assert_eq!(check(&[1, 1, 1], &[], 0), 1);
    assert_eq!(check(&[2, 3], &[], 0), 6);
    assert_eq!(check(&[3], &[rule(&[0], |v| v[0] == 1)], 0), 2);
    assert_eq!(check(&[3, 2], &[rule(&[], |_| true)], 0), 0);
    assert_eq!(check(&[3, 2], &[rule(&[], |_| false)], 0), 6);
}

#[test]
fn pairs_that_several_rules_make_impossible_are_not_asked_for() {
    // 0 = 1 and 1 = 2, hence 0 = 2: no rule says so by itself.
    let rules = [
        rule(&[0, 1], |v| v[0] != v[1]),
        rule(&[1, 2], |v| v[0] != v[1]),
    ];
    assert_eq!(check(&[4, 4, 4, 2], &rules, 0), 8);
}

#[test]
fn a_rule_over_too_many_combinations_to_remember_still_holds() {
    let sizes = [8; 7];
    let axes: Vec<usize> = (0..7).collect();
    let odd = [rule(&axes, |v| v.iter().sum::<u16>() % 2 == 1)];
    let rows = pairwise(&sizes, &odd, 0).unwrap();
    assert!(rows.iter().all(|row| row.iter().sum::<u16>() % 2 == 0));
    let covered: BTreeSet<_> = rows.iter().flat_map(|row| pairs(row)).collect();
    assert_eq!(covered.len(), 21 * 64);
}

#[test]
fn a_seed_gives_the_same_rows_again() {
    let sizes = [3, 4, 5, 2, 6];
    let rows = |seed| pairwise(&sizes, &[rule(&[0, 4], |v| v[0] == 1 && v[1] > 2)], seed);
    assert_eq!(rows(7), rows(7));
    assert_ne!(rows(7), rows(8));
}

#[test]
fn limits() {
    let check = |sizes: &[usize], rules: &[Forbidden], error| {
        assert_eq!(pairwise(sizes, rules, 0), Err(error));
    };
    check(&[1; 129], &[], PairwiseError::TooManyAxes(129));
    check(&[100; 21], &[], PairwiseError::TooManyValues(2100));
    check(&[2, 200, 101], &[], PairwiseError::TooManyRows(20_200));
    let bad = |axes: &[usize]| [rule(axes, |_| false)];
    check(
        &[2, 2],
        &bad(&[0, 2]),
        PairwiseError::BadAxis { rule: 0, axis: 2 },
    );
    check(
        &[2, 2],
        &bad(&[1, 1]),
        PairwiseError::BadAxis { rule: 0, axis: 1 },
    );
}

#[test]
fn a_search_that_does_not_end_is_given_up() {
    // Twelve pigeons in eleven holes.
    let pigeons: Vec<Forbidden> = (0..12)
        .flat_map(|a| (0..a).map(move |b| rule(&[a, b], |v| v[0] == v[1])))
        .collect();
    let result = pairwise_within(100_000, &[11; 12], &pigeons, 0);
    assert_eq!(result, Err(PairwiseError::TooEntangled));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_possible_pairs_and_only_allowed_rows(
        sizes in prop::collection::vec(1usize..5, 1..6),
        drawn in prop::collection::vec((any::<[bool; 5]>(), any::<u64>(), 1u64..8), 0..6),
        seed: u64,
    ) {
        let rules: Vec<Forbidden> = drawn
            .iter()
            .map(|(named, salt, one_in)| {
                let axes: Vec<usize> = (0..sizes.len()).filter(|axis| named[*axis]).collect();
                rule(&axes, move |values| {
                    let mixed = values.iter().fold(*salt, |sum, value| {
                        (sum ^ u64::from(*value)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1
                    });
                    (mixed >> 20).is_multiple_of(*one_in)
                })
            })
            .collect();
        check(&sizes, &rules, seed);
    }
}
