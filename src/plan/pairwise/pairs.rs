//! The pairs: which are possible, which are not covered yet, which rows nobody needs.

use super::PairwiseError;
use super::space::{Space, UNSET};

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
#[derive(Clone)]
pub(super) struct Uncovered {
    pub(super) first: Vec<usize>,
    pub(super) total: usize,
    matrix: Vec<u8>,
    /// For each value, the sum of its line.
    pub(super) degree: Vec<usize>,
}

impl Uncovered {
    /// All pairs that some allowed row has. `allowed` is one such row.
    pub(super) fn feasible(space: &Space, allowed: &[u16]) -> Result<Self, PairwiseError> {
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
                let component = space.component_of[a];
                let joined = component.is_some() && component == space.component_of[b];
                for (va, vb) in product(space.sizes[a], space.sizes[b]) {
                    let (g, h) = (pairs.first[a] + va, pairs.first[b] + vb);
                    if !possible[g] || !possible[h] || pairs.line(g)[h] == 1 {
                        continue;
                    }
                    if !joined {
                        pairs.set(g, h, 1);
                        continue;
                    }
                    let mut partial = vec![UNSET; axes];
                    (partial[a], partial[b]) = (va as u16, vb as u16);
                    if let Some(row) = space.complete(&partial, allowed)? {
                        // The row proves all its pairs, not only this one.
                        for (g, h) in pairs.of_row(&row) {
                            pairs.set(g, h, 1);
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

    /// For each value, 1 where its pair with `value` is uncovered.
    pub(super) fn line(&self, value: usize) -> &[u8] {
        &self.matrix[value * self.total..][..self.total]
    }

    /// Takes note that there is a row.
    pub(super) fn cover(&mut self, row: &[u16]) {
        for (g, h) in self.of_row(row) {
            if self.line(g)[h] == 1 {
                self.set(g, h, 0);
                self.degree[g] -= 1;
                self.degree[h] -= 1;
            }
        }
    }

    fn set(&mut self, g: usize, h: usize, to: u8) {
        self.matrix[g * self.total + h] = to;
        self.matrix[h * self.total + g] = to;
    }

    fn of_row(&self, row: &[u16]) -> Vec<(usize, usize)> {
        pairs_of_row(&self.first, row)
    }
}

fn product(m: usize, n: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..m).flat_map(move |i| (0..n).map(move |j| (i, j)))
}

/// All pairs of a row's values, by their numbers.
fn pairs_of_row(first: &[usize], row: &[u16]) -> Vec<(usize, usize)> {
    let value = |axis: usize| first[axis] + usize::from(row[axis]);
    (0..row.len())
        .flat_map(|a| (0..a).map(move |b| (value(a), value(b))))
        .collect()
}

/// Leaves out each row whose pairs are all in others that stay.
pub(super) fn drop_redundant(space: &Space, rows: &mut Vec<Vec<u16>>) {
    let (first, total) = numbering(space.sizes);
    let mut times = vec![0u32; total * total];
    for row in rows.iter() {
        for (g, h) in pairs_of_row(&first, row) {
            times[g * total + h] += 1;
        }
    }
    rows.retain(|row| {
        let pairs = pairs_of_row(&first, row);
        let needed = pairs.iter().any(|(g, h)| times[g * total + h] == 1);
        if !needed {
            for (g, h) in pairs {
                times[g * total + h] -= 1;
            }
        }
        needed
    });
}
