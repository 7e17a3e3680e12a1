//! Indexing: what [`Tensor::i`](crate::Tensor::i) accepts, with NumPy's rules for negative and out-of-range bounds.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use congruent_backend_api::{Error, ErrorKind, Layout, Result, Slice};

/// What is taken of one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Index {
    /// One position; the axis is dropped. A negative one counts from the end.
    At(isize),
    /// A range with a step; the axis stays.
    Slice(Slice),
    /// A new axis of size 1 before the next one.
    NewAxis,
    /// All of the axes that the other indices leave, NumPy's `...`; at most once.
    Ellipsis,
}

/// An integer that names a position or an axis: isize, i32 or usize. Negative ones count from the end.
pub trait Position: Copy {
    /// The position as isize; one too large for it becomes the largest, which is outside every tensor as well.
    fn to_isize(self) -> isize;
}

impl Position for isize {
    fn to_isize(self) -> isize {
        self
    }
}

// Untyped literals fall back to i32.
impl Position for i32 {
    fn to_isize(self) -> isize {
        isize::try_from(self).unwrap_or(if self < 0 { isize::MIN } else { isize::MAX })
    }
}

impl Position for usize {
    fn to_isize(self) -> isize {
        isize::try_from(self).unwrap_or(isize::MAX)
    }
}

/// A range of positions; negative bounds count from the end.
///
/// Clippy takes a literal `1..-1` for an empty range and rejects it; [`Slice`] says the same without the warning.
pub trait IntoSlice {
    /// The range as a [`Slice`].
    fn into_slice(self) -> Slice;
}

impl IntoSlice for Slice {
    fn into_slice(self) -> Slice {
        self
    }
}

impl IntoSlice for RangeFull {
    fn into_slice(self) -> Slice {
        Slice::FULL
    }
}

impl<P: Position> IntoSlice for Range<P> {
    fn into_slice(self) -> Slice {
        Slice { start: Some(self.start.to_isize()), stop: Some(self.end.to_isize()), step: 1 }
    }
}

impl<P: Position> IntoSlice for RangeFrom<P> {
    fn into_slice(self) -> Slice {
        Slice { start: Some(self.start.to_isize()), ..Slice::FULL }
    }
}

impl<P: Position> IntoSlice for RangeTo<P> {
    fn into_slice(self) -> Slice {
        Slice { stop: Some(self.end.to_isize()), ..Slice::FULL }
    }
}

impl<P: Position> IntoSlice for RangeInclusive<P> {
    fn into_slice(self) -> Slice {
        Slice { start: Some(self.start().to_isize()), stop: after(*self.end()), step: 1 }
    }
}

impl<P: Position> IntoSlice for RangeToInclusive<P> {
    fn into_slice(self) -> Slice {
        Slice { stop: after(self.end), ..Slice::FULL }
    }
}

/// The bound after the last position of a range; after −1, the last of all, there is none.
fn after<P: Position>(last: P) -> Option<isize> {
    match last.to_isize() {
        -1 => None,
        last => Some(last.saturating_add(1)),
    }
}

/// Every `step`-th position of a range, NumPy's `start:stop:step`; a negative step walks backwards.
///
/// ```
/// # fn main() -> congruent::Result<()> {
/// # use congruent::{DType, Tensor, step};
/// # let device = congruent::backend("cpu")?;
/// let x = Tensor::arange(&device, 0..10, DType::I32)?;
/// assert_eq!(x.i(step(1.., 3))?.to_vec::<i32>()?, [1, 4, 7]);
/// assert_eq!(x.i(step(.., -4))?.to_vec::<i32>()?, [9, 5, 1]);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn step(range: impl IntoSlice, step: isize) -> Slice {
    Slice { step, ..range.into_slice() }
}

impl From<isize> for Index {
    fn from(position: isize) -> Self {
        Self::At(position)
    }
}

impl From<i32> for Index {
    fn from(position: i32) -> Self {
        Self::At(position.to_isize())
    }
}

impl From<usize> for Index {
    fn from(position: usize) -> Self {
        Self::At(position.to_isize())
    }
}

impl<R: IntoSlice> From<R> for Index {
    fn from(range: R) -> Self {
        Self::Slice(range.into_slice())
    }
}

/// Indices for the leading axes: one index, a tuple of up to eight, or a slice of [`Index`].
pub trait Indices {
    /// Calls `f` with the indices in order.
    fn with<T>(self, f: impl FnOnce(&[Index]) -> T) -> T;
}

impl<I: Into<Index>> Indices for I {
    fn with<T>(self, f: impl FnOnce(&[Index]) -> T) -> T {
        f(&[self.into()])
    }
}

impl Indices for &[Index] {
    fn with<T>(self, f: impl FnOnce(&[Index]) -> T) -> T {
        f(self)
    }
}

/// Tuples have no generic form.
macro_rules! tuples {
    ($(($($I:ident $i:ident),*))*) => {$(
        impl<$($I: Into<Index>),*> Indices for ($($I,)*) {
            fn with<T>(self, f: impl FnOnce(&[Index]) -> T) -> T {
                let ($($i,)*) = self;
                f(&[$($i.into()),*])
            }
        }
    )*};
}

tuples! {
    (A a)
    (A a, B b)
    (A a, B b, C c)
    (A a, B b, C c, D d)
    (A a, B b, C c, D d, E e)
    (A a, B b, C c, D d, E e, F g)
    (A a, B b, C c, D d, E e, F g, G h)
    (A a, B b, C c, D d, E e, F g, G h, H i)
}

/// The layout of the part of `layout` that `indices` take; `op` is named in errors.
pub(crate) fn index(op: &'static str, layout: &Layout, indices: &[Index]) -> Result<Layout> {
    let rest = remaining(op, layout, indices)?;
    let (mut layout, mut axis) = (*layout, 0);
    for &index in indices {
        match index {
            Index::At(position) => layout = layout.select(axis, position)?,
            Index::Slice(slice) => {
                layout = layout.slice(axis, slice)?;
                axis += 1;
            }
            Index::NewAxis => {
                layout = layout.unsqueeze(axis)?;
                axis += 1;
            }
            Index::Ellipsis => axis += rest as isize,
        }
    }
    Ok(layout)
}

/// The number of axes that no index names.
fn remaining(op: &'static str, layout: &Layout, indices: &[Index]) -> Result<usize> {
    if indices.iter().filter(|&&index| index == Index::Ellipsis).count() > 1 {
        let message =
            "more than one ellipsis is given; which axes each stands for is unclear, use `..` for single axes";
        return Err(Error::new(ErrorKind::Argument, op, message));
    }
    let named = indices.iter().filter(|index| matches!(index, Index::At(_) | Index::Slice(_))).count();
    layout.rank().checked_sub(named).ok_or_else(|| {
        let message = format!("{named} indices for the {} axes of shape {:?}", layout.rank(), layout.shape());
        Error::new(ErrorKind::Axis, op, message)
    })
}
