//! Shapes: up to [`MAX_RANK`] sizes kept inline, with checked counts, axes and broadcasting.

use std::fmt;
use std::ops::Deref;

use crate::error::{Error, ErrorKind, Result};

/// The largest rank.
pub const MAX_RANK: usize = 8;

/// The sizes of a tensor's axes. Dereferences to `[usize]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    rank: u8,
    // Entries past the rank are 1, so that equal shapes have equal fields.
    sizes: [usize; MAX_RANK],
}

impl Shape {
    /// The shape of a single element.
    pub const SCALAR: Self = Self { rank: 0, sizes: [1; MAX_RANK] };

    /// A shape of these sizes.
    ///
    /// # Errors
    /// `Shape` when there are more than [`MAX_RANK`], or when the element count exceeds `isize::MAX` (sizes of 0
    /// counted as 1, so that strides cannot overflow either).
    pub fn new(op: &'static str, sizes: &[usize]) -> Result<Self> {
        if sizes.len() > MAX_RANK {
            let message = format!("rank {} of shape {sizes:?} exceeds the largest rank, {MAX_RANK}", sizes.len());
            return Err(Error::new(ErrorKind::Shape, op, message));
        }
        let count = sizes.iter().try_fold(1_usize, |count, &size| count.checked_mul(size.max(1)));
        if count.is_none_or(|count| isize::try_from(count).is_err()) {
            let message = format!("the element count of shape {sizes:?} overflows; the most is 2^63 - 1");
            return Err(Error::new(ErrorKind::Shape, op, message));
        }
        let mut shape = Self { rank: sizes.len() as u8, ..Self::SCALAR };
        shape.sizes[..sizes.len()].copy_from_slice(sizes);
        Ok(shape)
    }

    /// The number of axes.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank.into()
    }

    /// The number of elements.
    #[must_use]
    pub fn count(&self) -> usize {
        self.iter().product()
    }

    /// The shape to which all of `shapes` broadcast by NumPy's rule: aligned at the last axis, sizes are equal or 1.
    ///
    /// # Errors
    /// `Shape`, naming every shape, when two sizes differ and neither is 1.
    pub fn broadcast(op: &'static str, shapes: &[&[usize]]) -> Result<Self> {
        let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
        let mut sizes = [1; MAX_RANK];
        if rank > MAX_RANK {
            return Self::new(op, shapes.iter().find(|shape| shape.len() == rank).copied().unwrap_or(&[]));
        }
        for shape in shapes {
            for (size, &given) in sizes[rank - shape.len()..rank].iter_mut().zip(*shape) {
                if *size == 1 {
                    *size = given;
                } else if given != 1 && given != *size {
                    let list: Vec<_> = shapes.iter().map(|shape| format!("{shape:?}")).collect();
                    let message = format!(
                        "shapes {} do not broadcast: aligned at the last axis, sizes must be equal or 1, but {size} meets {given}",
                        list.join(" and ")
                    );
                    return Err(Error::new(ErrorKind::Shape, op, message));
                }
            }
        }
        Self::new(op, &sizes[..rank])
    }

    /// The axes named by `axes` (negative ones count from the end) as a mask; `None` names all.
    ///
    /// # Errors
    /// `Axis` when one is out of range or named twice.
    pub fn axis_mask(&self, op: &'static str, axes: Option<&[isize]>) -> Result<[bool; MAX_RANK]> {
        let mut mask = [false; MAX_RANK];
        let Some(axes) = axes else {
            mask[..self.rank()].fill(true);
            return Ok(mask);
        };
        for &given in axes {
            let axis = axis(op, given, self.rank())?;
            if std::mem::replace(&mut mask[axis], true) {
                let message = format!("axis {given} is named twice in {axes:?} (rank {})", self.rank);
                return Err(Error::new(ErrorKind::Axis, op, message));
            }
        }
        Ok(mask)
    }

    /// The shape after reducing the axes of `mask`: size 1 when `keepdim`, else dropped.
    #[must_use]
    pub fn reduced(&self, mask: &[bool; MAX_RANK], keepdim: bool) -> Self {
        let mut shape = Self::SCALAR;
        for (axis, &size) in self.iter().enumerate() {
            if !mask[axis] || keepdim {
                shape.sizes[shape.rank()] = if mask[axis] { 1 } else { size };
                shape.rank += 1;
            }
        }
        shape
    }
}

/// `axis` counted from the front; a negative one counts from the end.
///
/// # Errors
/// `Axis` when it is not in `-rank..rank`.
pub fn axis(op: &'static str, axis: isize, rank: usize) -> Result<usize> {
    let resolved = if axis < 0 { axis.checked_add_unsigned(rank) } else { Some(axis) };
    resolved.and_then(|axis| usize::try_from(axis).ok()).filter(|&axis| axis < rank).ok_or_else(|| {
        let rule = match rank {
            0 => "a tensor of rank 0 has no axis".to_owned(),
            _ => format!("rank {rank} has axes -{rank}..={}", rank - 1),
        };
        Error::new(ErrorKind::Axis, op, format!("axis {axis} does not exist: {rule}"))
    })
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.sizes[..self.rank()]
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_follows_numpy() {
        let cases: [(&[&[usize]], &[usize]); 5] = [
            (&[&[2, 3], &[3]], &[2, 3]),
            (&[&[2, 1], &[1, 3]], &[2, 3]),
            (&[&[], &[4]], &[4]),
            (&[&[0, 3], &[1, 3]], &[0, 3]),
            (&[&[2, 0], &[2, 1]], &[2, 0]),
        ];
        for (shapes, expected) in cases {
            assert_eq!(&*Shape::broadcast("add", shapes).unwrap(), expected);
        }
        let error = Shape::broadcast("add", &[&[2, 3], &[2, 4]]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Shape);
        assert!(error.message().contains("[2, 3] and [2, 4]") && error.message().contains("3 meets 4"), "{error}");
        assert!(Shape::broadcast("add", &[&[2, 0], &[2, 2]]).is_err());
    }

    #[test]
    fn counts_that_overflow_and_ranks_too_large_are_errors() {
        assert!(Shape::new("zeros", &[1 << 32, 1 << 32]).is_err());
        assert!(Shape::new("zeros", &[0, 1 << 32, 1 << 32]).is_err());
        assert!(Shape::new("zeros", &[1; 9]).is_err());
        assert!(Shape::broadcast("add", &[&[1; 9], &[1]]).is_err());
        assert_eq!(Shape::new("zeros", &[1 << 40]).unwrap().count(), 1 << 40);
    }

    #[test]
    fn axes_resolve_from_both_ends() {
        assert_eq!(axis("sum", -1, 3).unwrap(), 2);
        for (given, rank) in [(3, 3), (-4, 3), (0, 0), (isize::MIN, 3), (isize::MAX, 3)] {
            assert_eq!(axis("sum", given, rank).unwrap_err().kind(), ErrorKind::Axis);
        }
        let shape = Shape::new("sum", &[2, 3, 4]).unwrap();
        let mask = shape.axis_mask("sum", Some(&[-1, 0])).unwrap();
        assert_eq!((&*shape.reduced(&mask, true), &*shape.reduced(&mask, false)), (&[1, 3, 1][..], &[3][..]));
        assert!(shape.axis_mask("sum", Some(&[0, -3])).is_err());
    }
}
