//! How a view's elements lie in its storage: shape, signed strides, offset.
//!
//! Element `i` of a view is element `offset + Σ i[d]·strides[d]` of its storage. Every constructor proves that
//! all of them are at or after 0 and below `isize::MAX`, so index arithmetic on a layout cannot overflow.

use crate::error::{Error, ErrorKind, Result};
use crate::shape::{MAX_RANK, Shape, axis};

/// Shape, signed strides (in elements) and offset of a view. Plain data, rank at most [`MAX_RANK`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Shape,
    // Entries past the rank are 0, so that equal layouts have equal fields.
    strides: [isize; MAX_RANK],
    offset: usize,
}

/// What [`Layout::slice`] takes from one axis, with NumPy's rules for negative and out-of-range bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// First index; `None` is the first in walking order.
    pub start: Option<isize>,
    /// Index before which to stop; `None` goes to the end.
    pub stop: Option<isize>,
    /// Distance between taken indices; negative walks backwards, 0 is an error.
    pub step: isize,
}

impl Slice {
    /// The whole axis.
    pub const FULL: Self = Self { start: None, stop: None, step: 1 };
}

impl Layout {
    /// The row-major layout of `shape`, from offset 0.
    #[must_use]
    pub fn contiguous(shape: Shape) -> Self {
        let mut strides = [0; MAX_RANK];
        let mut step = 1_isize;
        for (stride, &size) in strides.iter_mut().zip(&*shape).rev() {
            *stride = step;
            // `Shape` bounds the product with sizes of 0 counted as 1.
            step *= size.max(1) as isize;
        }
        Self { shape, strides, offset: 0 }
    }

    /// A layout of any strides.
    ///
    /// # Errors
    /// `Shape` when the numbers of sizes and strides differ, or when an element would lie before the storage's
    /// start or beyond `isize::MAX`.
    pub fn new(op: &'static str, shape: &[usize], strides: &[isize], offset: usize) -> Result<Self> {
        let shape = Shape::new(op, shape)?;
        if strides.len() != shape.rank() {
            let message =
                format!("shape {shape:?} needs {} strides, but {strides:?} has {}", shape.rank(), strides.len());
            return Err(Error::new(ErrorKind::Shape, op, message));
        }
        let mut layout = Self { shape, strides: [0; MAX_RANK], offset };
        layout.strides[..strides.len()].copy_from_slice(strides);
        let fits = |(low, high): (i128, i128)| low >= 0 && high < isize::MAX as i128;
        if shape.count() > 0 && !fits(layout.extent()) {
            let (low, high) = layout.extent();
            let message = format!(
                "shape {shape:?} with strides {strides:?} from offset {offset} spans elements {low}..={high} of its storage; \
                 it must stay in 0..2^63 - 1"
            );
            return Err(Error::new(ErrorKind::Shape, op, message));
        }
        Ok(layout)
    }

    /// The shape.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The strides, in elements.
    #[must_use]
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.shape.rank()]
    }

    /// Where element `[0, 0, …]` lies in the storage.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of axes.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// The number of elements.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shape.count()
    }

    /// Whether the elements lie one after another in row-major order (axes of size 1 have no say).
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        let mut step = 1;
        self.count() == 0
            || self.shape.iter().zip(self.strides()).rev().all(|(&size, &stride)| {
                let fits = size == 1 || stride == step;
                step *= size as isize;
                fits
            })
    }

    /// The least storage length that holds every element.
    #[must_use]
    pub fn min_len(&self) -> usize {
        match self.count() {
            0 => 0,
            count if self.is_contiguous() => self.offset + count,
            _ => self.extent().1 as usize + 1,
        }
    }

    /// Whether no two indices share an element, so that the view can be written.
    ///
    /// Decides by sorted strides: each must step over everything that the smaller ones reach. That accepts every
    /// layout made by slicing, permuting and flipping a contiguous one.
    #[must_use]
    pub fn is_injective(&self) -> bool {
        let mut axes: Vec<(usize, usize)> = (self.shape.iter().zip(self.strides()))
            .filter(|&(&size, _)| size > 1)
            .map(|(&size, stride)| (stride.unsigned_abs(), size))
            .collect();
        axes.sort_unstable();
        let mut reach = 0_u128;
        self.count() == 0
            || axes.into_iter().all(|(stride, size)| {
                let clear = stride as u128 > reach;
                reach += stride as u128 * (size as u128 - 1);
                clear
            })
    }

    /// The layout whose axis `i` is axis `axes[i]` of this one.
    ///
    /// # Errors
    /// `Axis` when `axes` is not a permutation of the axes.
    pub fn permute(&self, axes: &[isize]) -> Result<Self> {
        let mask = self.shape.axis_mask("permute", Some(axes))?;
        if mask.iter().filter(|&&named| named).count() != self.rank() {
            let message =
                format!("axes {axes:?} must name each of the {} axes of shape {:?} once", self.rank(), self.shape);
            return Err(Error::new(ErrorKind::Axis, "permute", message));
        }
        let (mut sizes, mut strides) = ([1; MAX_RANK], [0; MAX_RANK]);
        for (to, &from) in axes.iter().enumerate() {
            let from = axis("permute", from, self.rank())?;
            (sizes[to], strides[to]) = (self.shape[from], self.strides[from]);
        }
        Ok(Self { shape: Shape::new("permute", &sizes[..axes.len()])?, strides, offset: self.offset })
    }

    /// The layout in `shape` by NumPy's broadcasting: new and size-1 axes get stride 0.
    ///
    /// # Errors
    /// `Shape` when a size differs from the target's and is not 1, or the target has fewer axes.
    pub fn broadcast_to(&self, op: &'static str, shape: &[usize]) -> Result<Self> {
        if **self.shape() == *shape {
            return Ok(*self);
        }
        let target = Shape::new(op, shape)?;
        let missing = target.rank().checked_sub(self.rank());
        let fits =
            |missing: usize| self.shape.iter().zip(&target[missing..]).all(|(&from, &to)| from == to || from == 1);
        let Some(missing) = missing.filter(|&missing| fits(missing)) else {
            let message = format!(
                "shape {:?} does not broadcast to {shape:?}: aligned at the last axis, each size must be equal or 1",
                self.shape
            );
            return Err(Error::new(ErrorKind::Shape, op, message));
        };
        let mut strides = [0; MAX_RANK];
        for (axis, (&size, &stride)) in self.shape.iter().zip(self.strides()).enumerate() {
            strides[missing + axis] = if size == 1 && target[missing + axis] != 1 { 0 } else { stride };
        }
        Ok(Self { shape: target, strides, offset: self.offset })
    }

    /// Takes a [`Slice`] of one axis; bounds are clipped to the axis as in NumPy.
    ///
    /// # Errors
    /// `Axis` for an axis that does not exist, `Argument` for a step of 0.
    pub fn slice(&self, along: isize, slice: Slice) -> Result<Self> {
        let along = axis("slice", along, self.rank())?;
        let size = self.shape[along] as isize;
        if slice.step == 0 {
            return Err(Error::new(
                ErrorKind::Argument,
                "slice",
                format!("the step of axis {along} is 0; it must not be"),
            ));
        }
        // Walking backwards the bounds live in -1..size, forwards in 0..=size.
        let (low, high) = if slice.step < 0 { (-1, size - 1) } else { (0, size) };
        let clip = |bound: isize| (if bound < 0 { bound.saturating_add(size) } else { bound }).clamp(low, high);
        let start = slice.start.map_or(if slice.step < 0 { high } else { low }, clip);
        let stop = slice.stop.map_or(if slice.step < 0 { low } else { high }, clip);
        let distance = if slice.step < 0 { start - stop } else { stop - start };
        let taken = if distance <= 0 { 0 } else { (distance as usize - 1) / slice.step.unsigned_abs() + 1 };
        let mut sizes = [1; MAX_RANK];
        sizes[..self.rank()].copy_from_slice(&self.shape);
        sizes[along] = taken;
        let mut layout = Self { shape: Shape::new("slice", &sizes[..self.rank()])?, ..*self };
        if layout.count() == 0 {
            return Ok(layout);
        }
        layout.offset = self.offset.wrapping_add_signed(start * self.strides[along]);
        // With one element left the stride has no meaning, and step times stride could overflow.
        layout.strides[along] = if taken > 1 { self.strides[along] * slice.step } else { self.strides[along] };
        Ok(layout)
    }

    /// Element `index` of axis `along`, which is dropped; a negative index counts from the end.
    ///
    /// # Errors
    /// `Axis` for an axis that does not exist, `IndexOutOfRange` for an index outside it.
    pub fn select(&self, along: isize, index: isize) -> Result<Self> {
        let along = axis("select", along, self.rank())?;
        let size = self.shape[along];
        let resolved = if index < 0 { index.checked_add_unsigned(size) } else { Some(index) };
        let Some(start) = resolved.filter(|&index| index >= 0 && (index as usize) < size) else {
            let message = format!("index {index} is outside axis {along} of size {size}");
            return Err(Error::new(ErrorKind::IndexOutOfRange, "select", message));
        };
        let one = Slice { start: Some(start), stop: Some(start + 1), step: 1 };
        self.slice(along as isize, one)?.squeeze(along as isize)
    }

    /// Reverses the given axes.
    ///
    /// # Errors
    /// `Axis` when one does not exist or is named twice.
    pub fn flip(&self, axes: &[isize]) -> Result<Self> {
        let mask = self.shape.axis_mask("flip", Some(axes))?;
        let backwards = Slice { start: None, stop: None, step: -1 };
        (0..self.rank())
            .filter(|&axis| mask[axis])
            .try_fold(*self, |layout, axis| layout.slice(axis as isize, backwards))
    }

    /// Drops an axis of size 1.
    ///
    /// # Errors
    /// `Axis` when it does not exist, `Shape` when its size is not 1.
    pub fn squeeze(&self, along: isize) -> Result<Self> {
        let along = axis("squeeze", along, self.rank())?;
        if self.shape[along] != 1 {
            let message = format!(
                "axis {along} of shape {:?} has size {}; only size 1 can be dropped",
                self.shape, self.shape[along]
            );
            return Err(Error::new(ErrorKind::Shape, "squeeze", message));
        }
        let mut mask = [false; MAX_RANK];
        mask[along] = true;
        let mut strides = self.strides;
        strides.copy_within(along + 1.., along);
        strides[MAX_RANK - 1] = 0;
        Ok(Self { shape: self.shape.reduced(&mask, false), strides, offset: self.offset })
    }

    /// Adds an axis of size 1 before axis `along`; -1 adds it last.
    ///
    /// # Errors
    /// `Axis` when `along` is outside `-rank-1..=rank`, `Shape` when the rank would exceed [`MAX_RANK`].
    pub fn unsqueeze(&self, along: isize) -> Result<Self> {
        let rank = self.rank();
        let along = axis("unsqueeze", along, rank + 1)?;
        let mut sizes = self.shape.to_vec();
        sizes.insert(along, 1);
        let shape = Shape::new("unsqueeze", &sizes)?;
        let mut strides = self.strides;
        strides.copy_within(along..rank, along + 1);
        strides[along] = 1;
        Ok(Self { shape, strides, offset: self.offset })
    }

    /// This view in another shape without moving elements; `None` when the strides do not allow it.
    ///
    /// # Errors
    /// `Shape` when the element counts differ.
    pub fn reshape(&self, shape: &[usize]) -> Result<Option<Self>> {
        let shape = Shape::new("reshape", shape)?;
        if shape.count() != self.count() {
            let message = format!(
                "shape {:?} has {} elements, {shape:?} has {}; they must be equal",
                self.shape,
                self.count(),
                shape.count()
            );
            return Err(Error::new(ErrorKind::Shape, "reshape", message));
        }
        if shape.count() == 0 || self.is_contiguous() {
            return Ok(Some(Self { offset: self.offset, ..Self::contiguous(shape) }));
        }
        let old: Vec<_> =
            self.shape.iter().copied().zip(self.strides().iter().copied()).filter(|axis| axis.0 != 1).collect();
        let mut strides = [0; MAX_RANK];
        let (mut from, mut to) = (0, 0);
        // Each round matches the smallest runs of old and new axes that hold equally many elements.
        while from < old.len() {
            let (first, mut have) = (from, old[from].0);
            let (start, mut want) = (to, 1);
            while want != have {
                if want < have {
                    want *= shape[to];
                    to += 1;
                } else {
                    from += 1;
                    have *= old[from].0;
                }
            }
            from += 1;
            // The old run must itself be dense: each stride spans the axes after it.
            if old[first..from].windows(2).any(|pair| pair[1].1.checked_mul(pair[1].0 as isize) != Some(pair[0].1)) {
                return Ok(None);
            }
            let mut step = old[from - 1].1;
            for axis in (start..to).rev() {
                strides[axis] = step;
                // The product past the first axis of the run is not used, and may overflow.
                step = step.wrapping_mul(shape[axis] as isize);
            }
        }
        Ok(Some(Self { shape, strides, offset: self.offset }))
    }

    /// The first and last element of the storage that a non-empty view touches.
    fn extent(&self) -> (i128, i128) {
        let offset = self.offset as i128;
        self.shape.iter().zip(self.strides()).fold((offset, offset), |(low, high), (&size, &stride)| {
            let span = (size as i128 - 1) * stride as i128;
            (low + span.min(0), high + span.max(0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contiguous(sizes: &[usize]) -> Layout {
        Layout::contiguous(Shape::new("test", sizes).unwrap())
    }

    /// The storage elements of a view in row-major order, by the definition at the head of this file.
    fn elements(layout: &Layout) -> Vec<usize> {
        (0..layout.count())
            .map(|mut index| {
                let mut at = layout.offset() as isize;
                for (&size, &stride) in layout.shape().iter().zip(layout.strides()).rev() {
                    at += (index % size) as isize * stride;
                    index /= size;
                }
                at as usize
            })
            .collect()
    }

    #[test]
    fn slices_follow_numpy() {
        let row = contiguous(&[5]);
        let slice = |start, stop, step| elements(&row.slice(0, Slice { start, stop, step }).unwrap());
        assert_eq!(slice(None, None, -1), [4, 3, 2, 1, 0]);
        assert_eq!(slice(Some(1), Some(-1), 2), [1, 3]);
        assert_eq!(slice(Some(-2), None, 1), [3, 4]);
        assert_eq!(slice(Some(10), Some(-10), -2), [4, 2, 0]);
        assert_eq!(slice(Some(3), Some(1), 1), []);
        assert_eq!(slice(Some(isize::MIN), Some(isize::MAX), isize::MAX), [0]);
        assert_eq!(slice(Some(isize::MAX), Some(isize::MIN), isize::MIN), [4]);
        assert_eq!(row.slice(0, Slice { step: 0, ..Slice::FULL }).unwrap_err().kind(), ErrorKind::Argument);
        assert_eq!(row.select(0, -5).unwrap().offset(), 0);
        assert_eq!(row.select(0, 5).unwrap_err().kind(), ErrorKind::IndexOutOfRange);
    }

    #[test]
    fn views_of_views_address_the_right_elements() {
        let view = contiguous(&[2, 3, 4]).permute(&[2, 0, 1]).unwrap();
        assert_eq!(view.strides(), [1, 12, 4]);
        let view = view.flip(&[0, -1]).unwrap().slice(0, Slice { step: 2, ..Slice::FULL }).unwrap();
        assert_eq!(elements(&view), [11, 7, 3, 23, 19, 15, 9, 5, 1, 21, 17, 13]);
        assert!(view.is_injective() && !view.is_contiguous());
        let wide = view.unsqueeze(1).unwrap().broadcast_to("test", &[2, 3, 2, 3]).unwrap();
        assert!(!wide.is_injective());
        assert_eq!(wide.min_len(), 24);
        assert_eq!(elements(&wide)[..6], elements(&wide)[6..12]);
        assert!(view.permute(&[0, 1]).is_err() && view.permute(&[0, 1, 1]).is_err());
    }

    #[test]
    fn reshape_keeps_the_order_or_declines() {
        let cases: [(Layout, &[usize], bool); 6] = [
            (contiguous(&[2, 3, 4]), &[4, 6], true),
            (contiguous(&[4, 6]).slice(1, Slice { step: 2, ..Slice::FULL }).unwrap(), &[2, 2, 1, 3], true),
            (contiguous(&[4, 6]).permute(&[1, 0]).unwrap(), &[24], false),
            (contiguous(&[4, 6]).permute(&[1, 0]).unwrap(), &[2, 3, 4], true),
            (contiguous(&[6]).flip(&[0]).unwrap(), &[1, 2, 3], true),
            (contiguous(&[1, 3]).broadcast_to("test", &[4, 3]).unwrap(), &[12], false),
        ];
        for (layout, shape, possible) in cases {
            let view = layout.reshape(shape).unwrap();
            assert_eq!(view.is_some(), possible, "{layout:?} as {shape:?}");
            if let Some(view) = view {
                assert_eq!(elements(&view), elements(&layout));
            }
        }
        assert_eq!(contiguous(&[2, 3]).reshape(&[5]).unwrap_err().kind(), ErrorKind::Shape);
    }

    #[test]
    fn a_layout_outside_its_storage_is_an_error() {
        assert!(Layout::new("test", &[2, 3], &[3, -1], 1).is_err());
        assert!(Layout::new("test", &[2, 3], &[3, -1], 2).is_ok());
        assert!(Layout::new("test", &[2, 3], &[1], 0).is_err());
        assert!(Layout::new("test", &[3], &[isize::MAX], 0).is_err());
        assert!(Layout::new("test", &[0, 3], &[isize::MIN, isize::MAX], usize::MAX).is_ok());
        assert_eq!(Layout::new("test", &[], &[], 7).unwrap().min_len(), 8);
    }

    #[test]
    fn empty_and_unit_axes() {
        let empty = contiguous(&[2, 0, 3]);
        assert_eq!((empty.count(), empty.min_len()), (0, 0));
        assert!(empty.is_contiguous() && empty.is_injective());
        assert!(empty.reshape(&[3, 0]).unwrap().is_some());
        let unit = Layout::new("test", &[1, 3], &[99, 1], 0).unwrap();
        assert!(unit.is_contiguous());
        assert_eq!(unit.squeeze(0).unwrap().strides(), [1]);
        assert_eq!(unit.squeeze(1).unwrap_err().kind(), ErrorKind::Shape);
        assert_eq!(contiguous(&[3]).unsqueeze(-1).unwrap().shape()[..], [3, 1]);
        assert!(contiguous(&[1; 8]).unsqueeze(0).is_err());
    }
}
