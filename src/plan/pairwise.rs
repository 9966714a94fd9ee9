//! Pairwise covering arrays: few rows in which every two values of two axes meet that can.
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
#[cfg(test)]
mod tests;

use crate::base::random::Random;
use pairs::{Uncovered, drop_redundant};
pub use space::{Forbidden, Predicate, SEARCH_STEPS_MAX};
use space::{Space, UNSET};

/// Axes of one array at the most; the counters of uncovered pairs are bytes.
pub const AXES_MAX: usize = 128;
/// Values of all axes together at the most; memory grows with the square.
pub const VALUES_MAX: usize = 2048;
/// The two longest axes give at least as many rows as the product of their lengths.
pub const ROWS_LEAST_MAX: usize = 20_000;
/// Search steps that one call may spend before a row gets one candidate only.
const SEARCH_STEPS_CHEAP: u64 = 1_000_000;
/// Candidates for each row at the most: beyond, another whole array is worth more than a better row.
const CANDIDATES_MAX: usize = 50;
/// Whole arrays, of which the smallest is taken, at the most.
const ARRAYS_MAX: usize = 8;
/// Counter updates that one call may spend on candidates, about.
const WORK_MAX: usize = 10_000_000;

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
    let mut rows = fewest_rows(&space, &Uncovered::feasible(&space, &first)?, seed)?;
    for row in &mut rows {
        row.truncate(sizes.len());
    }
    Ok(rows)
}

/// Makes as many arrays as the work allows and takes the smallest.
fn fewest_rows(
    space: &Space,
    feasible: &Uncovered,
    seed: u64,
) -> Result<Vec<Vec<u16>>, PairwiseError> {
    let rows_least = rows_least(space.sizes);
    // Equal axes need about twice the least. A candidate adds one line of counters for each axis.
    let work = 2 * rows_least * space.sizes.len() * feasible.total;
    let candidates = (WORK_MAX / work).clamp(1, CANDIDATES_MAX);
    let arrays = (WORK_MAX / (work * candidates)).clamp(1, ARRAYS_MAX);
    let mut builder = ArrayBuilder {
        space,
        uncovered: feasible.clone(),
        random: Random(seed),
    };
    let mut fewest = builder.rows(candidates)?;
    for _ in 1..arrays {
        if fewest.len() <= rows_least || space.steps.get() > SEARCH_STEPS_CHEAP {
            break;
        }
        builder.uncovered = feasible.clone();
        let rows = builder.rows(candidates)?;
        if rows.len() < fewest.len() {
            fewest = rows;
        }
    }
    Ok(fewest)
}

/// The product of the two longest axes: all their pairs need a row each, if no rule forbids some.
fn rows_least(sizes: &[usize]) -> usize {
    let mut longest = sizes.to_vec();
    longest.sort_unstable();
    longest.iter().rev().take(2).product()
}

fn check_limits(sizes: &[usize], rules: &[Forbidden]) -> Result<(), PairwiseError> {
    if sizes.len() > AXES_MAX {
        return Err(PairwiseError::TooManyAxes(sizes.len()));
    }
    let values = sizes.iter().fold(0usize, |sum, n| sum.saturating_add(*n));
    if values > VALUES_MAX {
        return Err(PairwiseError::TooManyValues(values));
    }
    let rows = rows_least(sizes);
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

struct ArrayBuilder<'a> {
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

impl ArrayBuilder<'_> {
    /// Rows until nothing is uncovered, each the best of some candidates.
    fn rows(&mut self, candidates: usize) -> Result<Vec<Vec<u16>>, PairwiseError> {
        let axes = self.space.sizes.len();
        let mut rows = Vec::new();
        loop {
            let most = self.uncovered.degree.iter().copied().max().unwrap_or(0);
            if most == 0 {
                drop_redundant(self.space, &mut rows);
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
            // Not reached: `Uncovered::feasible` found an allowed row with each of its pairs.
            .ok_or(PairwiseError::TooEntangled)?;
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
