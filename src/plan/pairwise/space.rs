//! Which rows the rules allow, and the search for an allowed row with given values.

use std::cell::Cell;

use super::PairwiseError;

/// Values tried by one call at the most, in all its searches for allowed rows together.
pub const SEARCH_STEPS_MAX: u64 = 50_000_000;
/// Combinations of a rule whose answers are remembered at the most; beyond, it is asked each time.
const MEMO_MAX: usize = 1 << 20;

/// Combinations of values of some axes that no row may have.
pub struct Forbidden<'a> {
    /// Positions in `sizes`, each at most once.
    pub axes: Vec<usize>,
    /// Told the values of these axes in this order. Asked lazily, and once for each combination
    /// unless there are very many; must always answer the same.
    pub is_forbidden: Predicate<'a>,
}

/// A question about some values.
pub type Predicate<'a> = Box<dyn Fn(&[u16]) -> bool + 'a>;

/// An axis of a partial row that has no value yet. No value is that large: see [`super::VALUES_MAX`].
pub(super) const UNSET: u16 = u16::MAX;

/// A rule with its remembered answers.
struct ForbiddenRule<'a> {
    forbidden: &'a Forbidden<'a>,
    /// Indexed by the mixed-radix number of the combination; empty if there would be too many.
    memo: Vec<Cell<Option<bool>>>,
}

/// The axes and what the rules allow.
pub(super) struct Space<'a> {
    pub(super) sizes: &'a [usize],
    rules: Vec<ForbiddenRule<'a>>,
    /// For each axis, the rules that name it.
    rules_of: Vec<Vec<usize>>,
    /// Axes joined by rules, directly or through others. Axes that no rule names are in none.
    components: Vec<Vec<usize>>,
    /// For each axis, its place among the components.
    pub(super) component_of: Vec<Option<usize>>,
    /// Values tried so far.
    pub(super) steps: Cell<u64>,
    steps_max: u64,
}

impl<'a> Space<'a> {
    pub(super) fn new(sizes: &'a [usize], forbidden: &'a [Forbidden<'a>], steps_max: u64) -> Self {
        let rules: Vec<ForbiddenRule> = forbidden
            .iter()
            .map(|forbidden| {
                let combinations = forbidden.axes.iter().try_fold(1usize, |product, &axis| {
                    Some(product * sizes[axis]).filter(|n| *n <= MEMO_MAX)
                });
                ForbiddenRule {
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
            steps_max,
        }
    }

    /// Whether a rule forbids what the row has; never while one of the rule's axes is unset.
    fn violates(&self, rule: &ForbiddenRule, row: &[u16]) -> bool {
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
    pub(super) fn fits(&self, axis: usize, row: &[u16]) -> bool {
        self.rules_of[axis]
            .iter()
            .all(|&rule| !self.violates(&self.rules[rule], row))
    }

    /// An allowed full row that has what `partial` has, the rest as in `hint` where it can be.
    pub(super) fn complete(
        &self,
        partial: &[u16],
        hint: &[u16],
    ) -> Result<Option<Vec<u16>>, PairwiseError> {
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

    /// Sets the unset ones of `axes`, the axis with the fewest values left first; false, and none
    /// set, if that cannot be.
    fn solve(&self, axes: &[usize], row: &mut [u16], hint: &[u16]) -> Result<bool, PairwiseError> {
        if self.steps.get() > self.steps_max {
            return Err(PairwiseError::TooEntangled);
        }
        let mut fewest: Option<(usize, Vec<u16>)> = None;
        for &axis in axes {
            if row[axis] != UNSET {
                continue;
            }
            self.steps.set(self.steps.get() + self.sizes[axis] as u64);
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
