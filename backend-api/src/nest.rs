//! The canonical loop nest: how a backend walks several views of one shape at once.
//!
//! Axes of size 1 are dropped, axes are ordered so that operand 0 is walked with falling strides, an axis that
//! operand 0 walks backwards is reversed in every operand, and neighbouring axes that every operand crosses in one
//! even step are merged. The elements visited together stay together; only the order of visits changes. Two
//! contiguous operands always end as one axis of stride 1.

use crate::layout::Layout;
use crate::shape::MAX_RANK;

/// Sizes, and for each of `N` operands strides and an offset, in elements. By convention operand 0 is the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nest<const N: usize> {
    rank: usize,
    sizes: [usize; MAX_RANK],
    strides: [[isize; MAX_RANK]; N],
    offsets: [usize; N],
}

impl<const N: usize> Nest<N> {
    /// The canonical nest over `layouts`, which must have one shape; without elements the nest is one axis of size 0.
    pub(crate) fn new(layouts: [&Layout; N]) -> Self {
        let shape = layouts[0].shape();
        debug_assert!(layouts.iter().all(|layout| layout.shape() == shape));
        let mut nest =
            Self { rank: 0, sizes: [1; MAX_RANK], strides: [[0; MAX_RANK]; N], offsets: layouts.map(Layout::offset) };
        if shape.count() == 0 {
            // The offset of an empty layout may be anything; nobody may add to it, and equal plans must stay equal.
            (nest.rank, nest.sizes[0], nest.offsets) = (1, 0, [0; N]);
            return nest;
        }
        for (axis, &size) in shape.iter().enumerate().filter(|&(_, &size)| size > 1) {
            nest.sizes[nest.rank] = size;
            for (strides, layout) in nest.strides.iter_mut().zip(layouts) {
                strides[nest.rank] = layout.strides()[axis];
            }
            nest.rank += 1;
        }
        nest.walk_forwards();
        nest.sort();
        nest.merge();
        nest
    }

    /// The nest over `count` > 1 elements of operands that each begin somewhere and move by an even step, 1 for operand 0.
    pub(crate) fn flat(count: usize, starts: [(usize, isize); N]) -> Self {
        let mut sizes = [1; MAX_RANK];
        sizes[0] = count;
        let strides = starts.map(|(_, step)| [step, 0, 0, 0, 0, 0, 0, 0]);
        Self { rank: 1, sizes, strides, offsets: starts.map(|(start, _)| start) }
    }

    /// The number of axes.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The sizes of the axes, outermost first.
    #[must_use]
    pub fn sizes(&self) -> &[usize] {
        &self.sizes[..self.rank]
    }

    /// The strides of an operand.
    #[must_use]
    pub fn strides(&self, operand: usize) -> &[isize] {
        &self.strides[operand][..self.rank]
    }

    /// Where an operand's first element lies in its storage.
    #[must_use]
    pub fn offset(&self, operand: usize) -> usize {
        self.offsets[operand]
    }

    /// The number of visits.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sizes().iter().product()
    }

    /// Whether an operand is walked one element after another.
    #[must_use]
    pub fn is_contiguous(&self, operand: usize) -> bool {
        match self.rank {
            0 => true,
            1 => self.strides[operand][0] == 1 || self.sizes[0] <= 1,
            _ => false,
        }
    }

    /// Whether an operand stays at one element.
    #[must_use]
    pub fn is_constant(&self, operand: usize) -> bool {
        self.strides(operand).iter().all(|&stride| stride == 0)
    }

    /// The least and greatest element of its storage that an operand touches; `None` without visits.
    #[must_use]
    pub fn extent(&self, operand: usize) -> Option<(usize, usize)> {
        (self.count() > 0).then(|| {
            let start = self.offsets[operand];
            self.sizes().iter().zip(self.strides(operand)).fold((start, start), |(low, high), (&size, &stride)| {
                let span = (size as isize - 1) * stride;
                (low.wrapping_add_signed(span.min(0)), high.wrapping_add_signed(span.max(0)))
            })
        })
    }

    /// Takes out the innermost axis that `fits`, given its size and strides, and returns its size.
    pub(crate) fn take_axis(&mut self, mut fits: impl FnMut(usize, [isize; N]) -> bool) -> Option<usize> {
        let taken =
            (0..self.rank).rev().find(|&axis| fits(self.sizes[axis], self.strides.map(|strides| strides[axis])))?;
        let size = self.sizes[taken];
        self.sizes[taken..].rotate_left(1);
        for strides in &mut self.strides {
            strides[taken..].rotate_left(1);
            strides[MAX_RANK - 1] = 0;
        }
        self.sizes[MAX_RANK - 1] = 1;
        self.rank -= 1;
        Some(size)
    }

    fn walk_forwards(&mut self) {
        for axis in 0..self.rank {
            if self.strides[0][axis] < 0 {
                for (strides, offset) in self.strides.iter_mut().zip(&mut self.offsets) {
                    *offset = offset.wrapping_add_signed((self.sizes[axis] as isize - 1) * strides[axis]);
                    strides[axis] = -strides[axis];
                }
            }
        }
    }

    fn sort(&mut self) {
        // Insertion sort: stable, in place, and at most eight axes.
        for end in 1..self.rank {
            for axis in (1..=end).rev() {
                let order = |axis: usize| self.strides.map(|strides| strides[axis].unsigned_abs());
                if order(axis - 1) >= order(axis) {
                    break;
                }
                self.sizes.swap(axis - 1, axis);
                for strides in &mut self.strides {
                    strides.swap(axis - 1, axis);
                }
            }
        }
    }

    fn merge(&mut self) {
        let mut kept = 0;
        for axis in 1..self.rank {
            let size = self.sizes[axis] as isize;
            let even = |strides: &[isize; MAX_RANK]| strides[axis].checked_mul(size) == Some(strides[kept]);
            if self.strides.iter().all(even) {
                self.sizes[kept] *= self.sizes[axis];
            } else {
                kept += 1;
                self.sizes[kept] = self.sizes[axis];
            }
            for strides in &mut self.strides {
                strides[kept] = strides[axis];
            }
        }
        let rank = if self.rank == 0 { 0 } else { kept + 1 };
        self.sizes[rank..].fill(1);
        for strides in &mut self.strides {
            strides[rank..].fill(0);
        }
        self.rank = rank;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Slice;
    use crate::shape::Shape;

    fn contiguous(sizes: &[usize]) -> Layout {
        Layout::contiguous(Shape::new("test", sizes).unwrap())
    }

    /// The pairs of elements a nest visits, sorted.
    fn pairs(nest: &Nest<2>) -> Vec<[usize; 2]> {
        let mut pairs: Vec<_> = (0..nest.count())
            .map(|visit| {
                let mut at = [nest.offset(0), nest.offset(1)];
                let mut rest = visit;
                for axis in (0..nest.rank()).rev() {
                    let index = (rest % nest.sizes()[axis]) as isize;
                    rest /= nest.sizes()[axis];
                    for (operand, at) in at.iter_mut().enumerate() {
                        *at = at.wrapping_add_signed(index * nest.strides(operand)[axis]);
                    }
                }
                at
            })
            .collect();
        pairs.sort_unstable();
        pairs
    }

    #[test]
    fn contiguous_operands_merge_to_one_axis() {
        let layout = contiguous(&[2, 1, 3, 4]);
        let nest = Nest::new([&layout, &layout]);
        assert_eq!((nest.sizes(), nest.strides(0), nest.is_contiguous(1)), (&[24][..], &[1][..], true));
        let flipped = layout.flip(&[0, 2, 3]).unwrap();
        assert!(Nest::new([&flipped, &flipped]).is_contiguous(0));
        let transposed = layout.permute(&[3, 2, 1, 0]).unwrap();
        assert!(Nest::new([&transposed, &transposed]).is_contiguous(0));
        assert_eq!(Nest::new([&contiguous(&[]), &contiguous(&[])]).rank(), 0);
        let constant = Layout::new("test", &[], &[], 0).unwrap().broadcast_to("test", &[2, 1, 3, 4]).unwrap();
        assert_eq!(Nest::new([&layout, &constant]), Nest::flat(24, [(0, 1), (0, 0)]));
    }

    #[test]
    fn visits_are_those_of_the_layouts() {
        let out = contiguous(&[3, 4, 5]).flip(&[1]).unwrap();
        let rows = contiguous(&[3, 1, 5]).broadcast_to("test", &[3, 4, 5]).unwrap();
        let stepped = contiguous(&[5, 4, 6]).permute(&[2, 1, 0]).unwrap();
        let stepped = stepped.slice(0, Slice { step: -2, ..Slice::FULL }).unwrap();
        for x in [rows, stepped, out] {
            let plain = Nest::<2> {
                rank: 3,
                sizes: [3, 4, 5, 1, 1, 1, 1, 1],
                strides: [out, x].map(|layout| {
                    let mut strides = [0; MAX_RANK];
                    strides[..3].copy_from_slice(layout.strides());
                    strides
                }),
                offsets: [out.offset(), x.offset()],
            };
            let nest = Nest::new([&out, &x]);
            assert_eq!(pairs(&nest), pairs(&plain));
            assert_eq!(nest.extent(1).map(|(_, high)| high + 1), Some(x.min_len()));
        }
    }

    #[test]
    fn an_empty_nest_has_no_visits() {
        let empty = contiguous(&[2, 0, 3]);
        let nest = Nest::new([&empty, &empty]);
        assert_eq!((nest.count(), nest.extent(0)), (0, None));
    }
}
