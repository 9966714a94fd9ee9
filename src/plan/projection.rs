//! Projections: a cell seen through some of its axes, as one number; and tables over them.

use std::collections::HashMap;

/// Entries of a table that are kept in a plain array; larger ones go into a hash map.
const DENSE_MAX: u64 = 1 << 22;

/// Some axes of a cell, and how their values become one number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    /// Ascending indices of axes.
    pub axes: Vec<usize>,
    strides: Vec<u64>,
    /// Number of different projections, saturating.
    pub size: u64,
}

impl Projection {
    /// `sizes[axis]` is the number of values of that axis.
    pub fn new(mut axes: Vec<usize>, sizes: &[usize]) -> Self {
        axes.sort_unstable();
        axes.dedup();
        let mut size = 1u64;
        let mut strides = Vec::with_capacity(axes.len());
        for &axis in &axes {
            strides.push(size);
            size = size.saturating_mul(sizes[axis].max(1) as u64);
        }
        Projection {
            axes,
            strides,
            size,
        }
    }

    /// The number of the cell's projection, below [`Projection::size`]. Where the size saturates
    /// numbers wrap, but stay the same for the same values.
    pub fn index(&self, cell: &[u16]) -> u64 {
        let mut index = 0u64;
        for (&axis, &stride) in self.axes.iter().zip(&self.strides) {
            index = index.wrapping_add(stride.wrapping_mul(u64::from(cell[axis])));
        }
        index
    }

    /// Calls `each` with a cell of every projection; axes outside of it are 0.
    pub fn for_each(&self, sizes: &[usize], mut each: impl FnMut(&[u16])) {
        let mut cell = vec![0u16; sizes.len()];
        loop {
            each(&cell);
            let mut place = self.axes.len();
            loop {
                if place == 0 {
                    return;
                }
                place -= 1;
                let axis = self.axes[place];
                cell[axis] += 1;
                if usize::from(cell[axis]) < sizes[axis] {
                    break;
                }
                cell[axis] = 0;
            }
        }
    }
}

/// Values by projection, each computed when it is first asked for.
#[derive(Clone, Debug)]
pub struct Memo<T> {
    pub projection: Projection,
    dense: Vec<Option<T>>,
    sparse: HashMap<u64, T>,
}

impl<T: Copy> Memo<T> {
    /// The value of the cell's projection, if it was computed.
    pub fn known(&self, cell: &[u16]) -> Option<T> {
        let index = self.projection.index(cell);
        match self.dense.get(index as usize) {
            Some(slot) => *slot,
            None => self.sparse.get(&index).copied(),
        }
    }

    /// All values that were computed.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.dense.iter().flatten().chain(self.sparse.values())
    }

    pub fn new(projection: Projection) -> Self {
        let dense = match projection.size <= DENSE_MAX {
            true => vec![None; projection.size as usize],
            false => Vec::new(),
        };
        Memo {
            projection,
            dense,
            sparse: HashMap::new(),
        }
    }

    /// The value of the cell's projection, from `compute` the first time.
    pub fn get<E>(&mut self, cell: &[u16], compute: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let index = self.projection.index(cell);
        if let Some(slot) = self.dense.get_mut(index as usize) {
            return match slot {
                Some(value) => Ok(*value),
                None => Ok(*slot.insert(compute()?)),
            };
        }
        if let Some(value) = self.sparse.get(&index) {
            return Ok(*value);
        }
        let value = compute()?;
        self.sparse.insert(index, value);
        Ok(value)
    }
}

/// Numbers projections 0, 1, 2, … in the order in which they are first seen.
#[derive(Clone, Debug)]
pub struct Numbering {
    numbers: Memo<u32>,
    count: u32,
}

impl Numbering {
    pub fn new(projection: Projection) -> Self {
        Numbering {
            numbers: Memo::new(projection),
            count: 0,
        }
    }

    /// The number of the cell's projection, and whether it was given just now.
    pub fn number(&mut self, cell: &[u16]) -> (u32, bool) {
        let next = self.count;
        let number = self
            .numbers
            .get(cell, || Ok::<_, std::convert::Infallible>(next));
        let Ok(number) = number;
        self.count += u32::from(number == next);
        (number, number == next)
    }

    /// The number of a projection that was seen before.
    pub fn known(&self, cell: &[u16]) -> Option<u32> {
        self.numbers.known(cell)
    }

    /// How many projections were seen.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_projection_has_its_own_number() {
        let sizes = [3, 4, 5];
        let projection = Projection::new(vec![2, 0], &sizes);
        let mut seen = Vec::new();
        projection.for_each(&sizes, |cell| seen.push(projection.index(cell)));
        seen.sort_unstable();
        assert_eq!(seen, (0..15).collect::<Vec<_>>());
    }

    #[test]
    fn an_empty_projection_has_one_value() {
        let projection = Projection::new(vec![], &[3, 4]);
        let mut calls = 0;
        projection.for_each(&[3, 4], |_| calls += 1);
        assert_eq!(
            (projection.size, calls, projection.index(&[2, 3])),
            (1, 1, 0)
        );
    }

    #[test]
    fn a_memo_computes_once() {
        let mut memo = Memo::new(Projection::new(vec![0], &[2]));
        let mut calls = 0;
        for cell in [[0u16], [1], [0], [1]] {
            let value = memo.get(&cell, || {
                calls += 1;
                Ok::<_, ()>(cell[0] + 10)
            });
            assert_eq!(value, Ok(cell[0] + 10));
        }
        assert_eq!(calls, 2);
    }
}
