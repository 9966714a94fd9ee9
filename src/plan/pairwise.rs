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

use std::cell::Cell;

/// Axes of one array at the most; the counters of [`Uncovered`] are bytes.
pub const AXES_MAX: usize = 128;
/// Values of all axes together at the most; memory grows with the square.
pub const VALUES_MAX: usize = 2048;
/// The two longest axes give at least as many rows as the product of their lengths.
pub const ROWS_LEAST_MAX: usize = 20_000;
/// Search nodes of one call at the most, for all questions of feasibility together.
pub const SEARCH_STEPS_MAX: u64 = 2_000_000;
/// Combinations of a rule whose answers are remembered at the most; beyond, it is asked each time.
const MEMO_MAX: usize = 1 << 20;
/// Candidates for each row at the most.
const CANDIDATES_MAX: usize = 200;
/// Counter updates that one call may spend on candidates, about.
const WORK_MAX: usize = 60_000_000;

/// Combinations of values of some axes that no row may have.
pub struct Forbidden<'a> {
    /// Positions in `sizes`, each at most once.
    pub axes: Vec<usize>,
    /// Told the values of these axes in this order. Asked lazily, and once for each combination
    /// unless there are very many; must always answer the same.
    pub is_forbidden: Box<dyn Fn(&[u16]) -> bool + 'a>,
}

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
    check_limits(sizes, rules)?;
    if sizes.contains(&0) {
        return Ok(Vec::new());
    }
    // With a second axis of one value, the pairs of a single axis are its values.
    let mut padded = sizes.to_vec();
    padded.resize(sizes.len().max(2), 1);
    let space = Space::new(&padded, rules);
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

/// An axis of a partial row that has no value yet. No value is that large: see [`VALUES_MAX`].
const UNSET: u16 = u16::MAX;

/// A rule with its remembered answers.
struct Rule<'a> {
    forbidden: &'a Forbidden<'a>,
    /// Indexed by the mixed-radix number of the combination; empty if there would be too many.
    memo: Vec<Cell<Option<bool>>>,
}

/// The axes and what the rules allow.
struct Space<'a> {
    sizes: &'a [usize],
    rules: Vec<Rule<'a>>,
    /// For each axis, the rules that name it.
    rules_of: Vec<Vec<usize>>,
    /// Axes joined by rules, directly or through others. Axes that no rule names are in none.
    components: Vec<Vec<usize>>,
    /// For each axis, its place among the components.
    component_of: Vec<Option<usize>>,
    steps: Cell<u64>,
}

impl<'a> Space<'a> {
    fn new(sizes: &'a [usize], forbidden: &'a [Forbidden<'a>]) -> Self {
        let rules: Vec<Rule> = forbidden
            .iter()
            .map(|forbidden| {
                let combinations = forbidden.axes.iter().try_fold(1usize, |product, &axis| {
                    Some(product * sizes[axis]).filter(|n| *n <= MEMO_MAX)
                });
                Rule {
                    forbidden,
                    memo: vec![Cell::new(None); combinations.unwrap_or(0)],
                }
            })
            .collect();
        let mut rules_of = vec![Vec::new(); sizes.len()];
        for (i, rule) in rules.iter().enumerate() {
            for &axis in &rule.forbidden.axes {
                rules_of[axis].push(i);
            }
        }
        let mut components: Vec<Vec<usize>> = Vec::new();
        let mut component_of = vec![None; sizes.len()];
        for start in 0..sizes.len() {
            if component_of[start].is_some() || rules_of[start].is_empty() {
                continue;
            }
            component_of[start] = Some(components.len());
            let mut axes = vec![start];
            let mut next = 0;
            while next < axes.len() {
                for &rule in &rules_of[axes[next]] {
                    for &axis in &rules[rule].forbidden.axes {
                        if component_of[axis].is_none() {
                            component_of[axis] = Some(components.len());
                            axes.push(axis);
                        }
                    }
                }
                next += 1;
            }
            components.push(axes);
        }
        Space {
            sizes,
            rules,
            rules_of,
            components,
            component_of,
            steps: Cell::new(0),
        }
    }

    /// Whether a rule forbids what the row has; never while one of the rule's axes is unset.
    fn violates(&self, rule: &Rule, row: &[u16]) -> bool {
        let axes = &rule.forbidden.axes;
        let mut index = 0;
        for &axis in axes {
            if row[axis] == UNSET {
                return false;
            }
            index = index * self.sizes[axis] + usize::from(row[axis]);
            if rule.memo.is_empty() {
                index = 0;
            }
        }
        let memo = rule.memo.get(index);
        if let Some(answer) = memo.and_then(Cell::get) {
            return answer;
        }
        let values: Vec<u16> = axes.iter().map(|&axis| row[axis]).collect();
        let answer = (rule.forbidden.is_forbidden)(&values);
        if let Some(memo) = memo {
            memo.set(Some(answer));
        }
        answer
    }

    /// Whether no rule that names the axis forbids what the row has.
    fn fits(&self, axis: usize, row: &[u16]) -> bool {
        self.rules_of[axis]
            .iter()
            .all(|&rule| !self.violates(&self.rules[rule], row))
    }

    /// An allowed full row that has what `partial` has, the rest as in `hint` where it can be.
    fn complete(&self, partial: &[u16], hint: &[u16]) -> Result<Option<Vec<u16>>, PairwiseError> {
        if self.rules.iter().any(|rule| self.violates(rule, partial)) {
            return Ok(None);
        }
        let mut row = partial.to_vec();
        // Components do not touch each other: a dead end in one is never searched again for
        // each solution of another.
        for axes in &self.components {
            if !self.solve(axes, &mut row, hint)? {
                return Ok(None);
            }
        }
        for (value, &hint) in row.iter_mut().zip(hint) {
            if *value == UNSET {
                *value = hint;
            }
        }
        Ok(Some(row))
    }

    /// Sets the unset ones of `axes`; false, and none set, if that cannot be.
    fn solve(&self, axes: &[usize], row: &mut [u16], hint: &[u16]) -> Result<bool, PairwiseError> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > SEARCH_STEPS_MAX {
            return Err(PairwiseError::TooEntangled);
        }
        let mut fewest: Option<(usize, Vec<u16>)> = None;
        for &axis in axes
            .iter()
            .filter(|axis| row[**axis] == UNSET)
            .collect::<Vec<_>>()
        {
            let mut values = Vec::new();
            for value in 0..self.sizes[axis] as u16 {
                row[axis] = value;
                if self.fits(axis, row) {
                    values.push(value);
                }
            }
            row[axis] = UNSET;
            if fewest.as_ref().is_none_or(|(_, f)| values.len() < f.len()) {
                fewest = Some((axis, values));
            }
        }
        let Some((axis, mut values)) = fewest else {
            return Ok(true);
        };
        if let Some(hinted) = values.iter().position(|value| *value == hint[axis]) {
            values.swap(0, hinted);
        }
        for value in values {
            row[axis] = value;
            if self.solve(axes, row, hint)? {
                return Ok(true);
            }
        }
        row[axis] = UNSET;
        Ok(false)
    }
}

/// Values of all axes numbered through: value `v` of axis `a` is `first[a] + v`.
fn numbering(sizes: &[usize]) -> (Vec<usize>, usize) {
    let mut total = 0;
    let first = sizes
        .iter()
        .map(|size| {
            total += size;
            total - size
        })
        .collect();
    (first, total)
}

/// The pairs that no row has yet, as a symmetric matrix of 0 and 1 over all values; two values of
/// one axis are no pair. Bytes, not bits: adding whole lines of it is what the time goes into.
struct Uncovered {
    first: Vec<usize>,
    total: usize,
    matrix: Vec<u8>,
    /// For each value, the sum of its line.
    degree: Vec<usize>,
}

impl Uncovered {
    /// All pairs that some allowed row has. `allowed` is one such row.
    fn feasible(space: &Space, allowed: &[u16]) -> Result<Self, PairwiseError> {
        let (first, total) = numbering(space.sizes);
        let mut pairs = Uncovered {
            matrix: vec![0; total * total],
            degree: vec![0; total],
            first,
            total,
        };
        let axes = space.sizes.len();
        // Which values are possible at all. An axis that no rule names takes any.
        let mut possible = vec![false; total];
        for axis in 0..axes {
            for value in 0..space.sizes[axis] {
                let mut partial = vec![UNSET; axes];
                partial[axis] = value as u16;
                possible[pairs.first[axis] + value] = space.component_of[axis].is_none()
                    || space.complete(&partial, allowed)?.is_some();
            }
        }
        for a in 0..axes {
            for b in 0..a {
                // Only axes joined by rules can refuse a pair of possible values.
                let joined = space.component_of[a].is_some()
                    && space.component_of[a] == space.component_of[b];
                for va in 0..space.sizes[a] {
                    for vb in 0..space.sizes[b] {
                        let (g, h) = (pairs.first[a] + va, pairs.first[b] + vb);
                        if !possible[g] || !possible[h] || pairs.matrix[g * total + h] == 1 {
                            continue;
                        }
                        if !joined {
                            pairs.set(g, h, 1);
                            continue;
                        }
                        let mut partial = vec![UNSET; axes];
                        (partial[a], partial[b]) = (va as u16, vb as u16);
                        if let Some(row) = space.complete(&partial, allowed)? {
                            // The row proves all its pairs.
                            pairs.set_row(&row, 1);
                        }
                    }
                }
            }
        }
        for g in 0..total {
            pairs.degree[g] = pairs.line(g).iter().map(|pair| usize::from(*pair)).sum();
        }
        Ok(pairs)
    }

    fn line(&self, value: usize) -> &[u8] {
        &self.matrix[value * self.total..][..self.total]
    }

    fn set(&mut self, g: usize, h: usize, to: u8) {
        self.matrix[g * self.total + h] = to;
        self.matrix[h * self.total + g] = to;
    }

    fn set_row(&mut self, row: &[u16], to: u8) {
        let values: Vec<usize> = (0..row.len())
            .map(|axis| self.first[axis] + usize::from(row[axis]))
            .collect();
        for (i, &g) in values.iter().enumerate() {
            for &h in &values[..i] {
                if self.matrix[g * self.total + h] != to {
                    self.set(g, h, to);
                    if to == 0 {
                        self.degree[g] -= 1;
                        self.degree[h] -= 1;
                    }
                }
            }
        }
    }
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
            for _ in 0..candidates {
                let mut draft = self.draft(most)?;
                self.climb(&mut draft);
                let gain = (0..axes)
                    .map(|axis| usize::from(draft.gain[self.value(axis, draft.row[axis])]))
                    .sum();
                if gain > best.0 {
                    best = (gain, draft.row);
                }
            }
            self.uncovered.set_row(&best.1, 0);
            rows.push(best.1);
        }
    }

    fn value(&self, axis: usize, value: u16) -> usize {
        self.uncovered.first[axis] + usize::from(value)
    }

    /// Starts from a random uncovered pair of a value with `most` of them, then gives the axes in
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
        let Some(row) = space.complete(&partial, &hint)? else {
            unreachable!("only pairs of some allowed row are kept in `uncovered`")
        };
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
        let gain = &draft.gain[self.uncovered.first[axis]..][..size];
        let mut values: Vec<u16> = (0..size as u16).collect();
        values.rotate_left(self.random.below(size));
        values.sort_by_key(|value| std::cmp::Reverse(gain[usize::from(*value)]));
        draft.fixed[axis] = true;
        for value in values {
            let before = std::mem::replace(&mut draft.row[axis], value);
            if value == before || self.space.fits(axis, &draft.row) {
                break;
            }
            let partial: Vec<u16> = (draft.row.iter().zip(&draft.fixed))
                .map(|(value, fixed)| if *fixed { *value } else { UNSET })
                .collect();
            match self.space.complete(&partial, &draft.row)? {
                Some(row) => {
                    draft.row = row;
                    break;
                }
                None => draft.row[axis] = before,
            }
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

/// Leaves out each row whose pairs are all in others that stay.
fn drop_redundant(space: &Space, rows: &mut Vec<Vec<u16>>) {
    let (first, total) = numbering(space.sizes);
    let pairs = |row: &[u16]| -> Vec<usize> {
        let values: Vec<usize> = (row.iter().zip(&first))
            .map(|(value, first)| first + usize::from(*value))
            .collect();
        let lines = values.iter().enumerate();
        lines
            .flat_map(|(i, g)| values[..i].iter().map(move |h| g * total + h))
            .collect()
    };
    let mut times = vec![0u32; total * total];
    for row in rows.iter() {
        pairs(row).into_iter().for_each(|pair| times[pair] += 1);
    }
    rows.retain(|row| {
        let pairs = pairs(row);
        let redundant = pairs.iter().all(|pair| times[*pair] > 1);
        if redundant {
            pairs.into_iter().for_each(|pair| times[pair] -= 1);
        }
        !redundant
    });
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
        // Ten pigeons in nine holes: every search has to try all ways.
        let pigeons: Vec<Forbidden> = (0..12)
            .flat_map(|a| (0..a).map(move |b| rule(&[a, b], |v| v[0] == v[1])))
            .collect();
        check(&[11; 12], &pigeons, PairwiseError::TooEntangled);
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
