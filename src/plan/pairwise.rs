<<<<<<< HEAD
//! Owns pairwise covering arrays.
//! Does not know what an axis value means.
pub fn placeholder() {}
=======
//! Owns pairwise covering arrays: few rows in which every two values of two axes meet that can.
//! Does not know what an axis value means, nor who wrote a rule.
//!
//! Rows are built one at a time, each the best of many random greedy ones (AETG: Cohen, Dalal,
//! Fredman, Patton 1997, "The AETG system", IEEE TSE 23(7)), and each is then improved one value at
//! a time until no change of a single value covers more. Rules are part of the building, as in PICT
//! (Czerwonka 2006, "Pairwise testing in the real world"), but feasibility is decided exactly: a
//! backtracking search with forward checking and the smallest domain first (Haralick, Elliott 1980,
//! "Increasing tree search efficiency for constraint satisfaction problems"). Growing axis by axis
//! (IPO: Lei, Tai 1998, "In-parameter-order") is faster but gives more rows for equal axes.

mod pairs;
mod space;

use pairs::{Uncovered, drop_redundant};
pub use space::{Forbidden, Predicate, SEARCH_STEPS_MAX};
use space::{Space, UNSET};

/// Axes of one array at the most; the counters of [`Uncovered`] are bytes.
pub const AXES_MAX: usize = 128;
/// Values of all axes together at the most; memory grows with the square.
pub const VALUES_MAX: usize = 2048;
/// The two longest axes give at least as many rows as the product of their lengths.
pub const ROWS_LEAST_MAX: usize = 20_000;
/// Search steps that one call may spend before a row gets one candidate only.
const SEARCH_STEPS_CHEAP: u64 = 1_000_000;
/// Candidates for each row at the most.
const CANDIDATES_MAX: usize = 200;
/// Counter updates that one call may spend on candidates, about.
const WORK_MAX: usize = 15_000_000;

/// Why there is no array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairwiseError {
    #[error("{0} axes are too many for a pairwise sample (at most {AXES_MAX}): leave axes out")]
    TooManyAxes(usize),
    #[error(
        "the axes have {0} values together, too many for a pairwise sample (at most \
         {VALUES_MAX}): leave values out"
    )]
    TooManyValues(usize),
    #[error(
        "a pairwise sample needs at least {0} rows, the product of the two longest axes (at most \
         {ROWS_LEAST_MAX}): leave values out of them"
    )]
    TooManyRows(usize),
    #[error("rule {rule} names axis {axis}, which is not there or is named twice")]
    BadAxis { rule: usize, axis: usize },
    #[error(
        "the rules are too entangled to find which pairs are possible (more than \
         {SEARCH_STEPS_MAX} steps): write rules over fewer axes"
    )]
    TooEntangled,
}

/// A covering array of strength two for axes with `sizes` values, as rows of one value for each
/// axis. Every row is allowed by all rules; every pair of values that some allowed row has is in
/// some row of the result, and so is every single value; no row can be left out. The same
/// arguments give the same rows. No row is allowed, or an axis has no value: no rows. No axis: the
/// one empty row.
pub fn pairwise(
    sizes: &[usize],
    rules: &[Forbidden],
    seed: u64,
) -> Result<Vec<Vec<u16>>, PairwiseError> {
    pairwise_within(SEARCH_STEPS_MAX, sizes, rules, seed)
}

fn pairwise_within(
    steps_max: u64,
    sizes: &[usize],
    rules: &[Forbidden],
    seed: u64,
) -> Result<Vec<Vec<u16>>, PairwiseError> {
    check_limits(sizes, rules)?;
    if sizes.contains(&0) {
        return Ok(Vec::new());
    }
    // With another axis of one value, the pairs of a single axis are its values.
    let mut padded = sizes.to_vec();
    padded.resize(sizes.len().max(2), 1);
    let space = Space::new(&padded, rules, steps_max);
    let Some(first) = space.complete(&vec![UNSET; padded.len()], &vec![0; padded.len()])? else {
        return Ok(Vec::new());
    };
    let mut builder = Builder {
        uncovered: Uncovered::feasible(&space, &first)?,
        space: &space,
        random: Random(seed),
    };
    let mut rows = builder.rows()?;
    drop_redundant(&space, &mut rows);
    for row in &mut rows {
        row.truncate(sizes.len());
    }
    rows.truncate(if sizes.is_empty() { 1 } else { rows.len() });
    Ok(rows)
}

fn check_limits(sizes: &[usize], rules: &[Forbidden]) -> Result<(), PairwiseError> {
    if sizes.len() > AXES_MAX {
        return Err(PairwiseError::TooManyAxes(sizes.len()));
    }
    let values = sizes.iter().fold(0usize, |sum, n| sum.saturating_add(*n));
    if values > VALUES_MAX {
        return Err(PairwiseError::TooManyValues(values));
    }
    let mut longest = sizes.to_vec();
    longest.sort_unstable();
    let rows = longest.iter().rev().take(2).product();
    if rows > ROWS_LEAST_MAX {
        return Err(PairwiseError::TooManyRows(rows));
    }
    for (rule, forbidden) in rules.iter().enumerate() {
        for (i, &axis) in forbidden.axes.iter().enumerate() {
            if axis >= sizes.len() || forbidden.axes[..i].contains(&axis) {
                return Err(PairwiseError::BadAxis { rule, axis });
            }
        }
    }
    Ok(())
}

/// SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators").
struct Random(u64);

impl Random {
    /// Nearly uniform in `0..n`; `n` is not 0.
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((u128::from(z) * n as u128) >> 64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

struct Builder<'a> {
    space: &'a Space<'a>,
    uncovered: Uncovered,
    random: Random,
}

/// A row in the making: it is always full and allowed, but only its fixed values count.
struct Draft {
    row: Vec<u16>,
    fixed: Vec<bool>,
    /// For each value, the uncovered pairs that it makes with the fixed values.
    gain: Vec<u8>,
}

impl Builder<'_> {
    /// Rows until nothing is uncovered.
    fn rows(&mut self) -> Result<Vec<Vec<u16>>, PairwiseError> {
        let axes = self.space.sizes.len();
        let mut longest = self.space.sizes.to_vec();
        longest.sort_unstable();
        let rows_about = 2 * longest[axes - 1] * longest[axes - 2];
        let candidates = WORK_MAX / (rows_about * axes * self.uncovered.total);
        let candidates = candidates.clamp(1, CANDIDATES_MAX);
        let mut rows = Vec::new();
        loop {
            let most = self.uncovered.degree.iter().copied().max().unwrap_or(0);
            if most == 0 {
                return Ok(rows);
            }
            let mut best: (usize, Vec<u16>) = (0, Vec::new());
            let cheap = self.space.steps.get() < SEARCH_STEPS_CHEAP;
            for _ in 0..if cheap { candidates } else { 1 } {
                let mut draft = self.draft(most)?;
                self.climb(&mut draft);
                let gain = (0..axes)
                    .map(|axis| usize::from(draft.gain[self.value(axis, draft.row[axis])]))
                    .sum();
                if gain > best.0 {
                    best = (gain, draft.row);
                }
            }
            self.uncovered.cover(&best.1);
            rows.push(best.1);
        }
    }

    /// The number of an axis's value among all values.
    fn value(&self, axis: usize, value: u16) -> usize {
        self.uncovered.first[axis] + usize::from(value)
    }

    /// Starts from a random uncovered pair of a value that has `most` of them, then gives the axes in
    /// random order the value with the highest gain that leaves an allowed row.
    fn draft(&mut self, most: usize) -> Result<Draft, PairwiseError> {
        let Self {
            space,
            uncovered,
            random,
        } = self;
        let axes = space.sizes.len();
        let axis_of = |value: usize| uncovered.first.partition_point(|first| *first <= value) - 1;
        let mut partial = vec![UNSET; axes];
        let start: Vec<usize> = (0..uncovered.total)
            .filter(|value| uncovered.degree[*value] == most)
            .collect();
        let g = start[random.below(start.len())];
        let partners: Vec<usize> = (0..uncovered.total)
            .filter(|h| uncovered.line(g)[*h] == 1)
            .collect();
        let h = partners[random.below(partners.len())];
        for value in [g, h] {
            let axis = axis_of(value);
            partial[axis] = (value - uncovered.first[axis]) as u16;
        }
        let hint: Vec<u16> = space
            .sizes
            .iter()
            .map(|size| random.below(*size) as u16)
            .collect();
        let row = space
            .complete(&partial, &hint)?
            .expect("`Uncovered::feasible` found an allowed row with each of its pairs");
        let mut draft = Draft {
            row,
            fixed: vec![false; axes],
            gain: vec![0; uncovered.total],
        };
        let mut order: Vec<usize> = (0..axes).filter(|axis| partial[*axis] == UNSET).collect();
        random.shuffle(&mut order);
        for value in [g, h] {
            draft.fixed[axis_of(value)] = true;
            add(&mut draft.gain, uncovered.line(value));
        }
        for axis in order {
            self.fix(&mut draft, axis)?;
        }
        Ok(draft)
    }

    /// Gives an axis the value with the highest gain that leaves an allowed row.
    fn fix(&mut self, draft: &mut Draft, axis: usize) -> Result<(), PairwiseError> {
        let size = self.space.sizes[axis];
        let first = self.uncovered.first[axis];
        draft.fixed[axis] = true;
        let mut refused = Vec::new();
        // Ends at the latest with the value that the row has: the row is allowed.
        loop {
            let mut value = None;
            let start = self.random.below(size);
            for candidate in (start..size).chain(0..start) {
                let better =
                    value.is_none_or(|v| draft.gain[first + candidate] > draft.gain[first + v]);
                if better && !refused.contains(&candidate) {
                    value = Some(candidate);
                }
            }
            let Some(value) = value else { break };
            let before = std::mem::replace(&mut draft.row[axis], value as u16);
            if value == usize::from(before) || self.space.fits(axis, &draft.row) {
                break;
            }
            let partial: Vec<u16> = (draft.row.iter().zip(&draft.fixed))
                .map(|(value, fixed)| if *fixed { *value } else { UNSET })
                .collect();
            if let Some(row) = self.space.complete(&partial, &draft.row)? {
                draft.row = row;
                break;
            }
            draft.row[axis] = before;
            refused.push(value);
        }
        let value = self.value(axis, draft.row[axis]);
        add(&mut draft.gain, self.uncovered.line(value));
        Ok(())
    }

    /// Changes single values of a full draft as long as that covers more.
    fn climb(&mut self, draft: &mut Draft) {
        let axes = draft.row.len();
        let mut axis = self.random.below(axes);
        let mut unchanged = 0;
        while unchanged < axes {
            unchanged += 1;
            let before = draft.row[axis];
            let mut best = before;
            for value in 0..self.space.sizes[axis] as u16 {
                if draft.gain[self.value(axis, value)] > draft.gain[self.value(axis, best)] {
                    draft.row[axis] = value;
                    if self.space.fits(axis, &draft.row) {
                        best = value;
                    }
                }
            }
            draft.row[axis] = best;
            if best != before {
                subtract(
                    &mut draft.gain,
                    self.uncovered.line(self.value(axis, before)),
                );
                add(&mut draft.gain, self.uncovered.line(self.value(axis, best)));
                unchanged = 0;
            }
            axis = (axis + 1) % axes;
        }
    }
}

fn add(gain: &mut [u8], line: &[u8]) {
    for (gain, pair) in gain.iter_mut().zip(line) {
        *gain += pair;
    }
}

fn subtract(gain: &mut [u8], line: &[u8]) {
    for (gain, pair) in gain.iter_mut().zip(line) {
        *gain -= pair;
    }
}

#[cfg(test)]
mod tests {
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
}
>>>>>>> pairwise
