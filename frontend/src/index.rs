//! Indexing: what [`Tensor::i`] and [`Tensor::assign`] accept, with NumPy's rules for negative and out-of-range bounds.

use std::fmt;
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use congruent_backend_api::{
    Backend, BinaryOps, CompareOps, CopyOps, DType, Error, ErrorKind, IndexOps, Layout, ReduceOps, Result, Slice,
};

use crate::operand::Operand;
use crate::pick;
use crate::tensor::Tensor;

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

/// One of the indices of [`Tensor::i`] and [`Tensor::assign`]: a part of an axis, or a tensor of positions, or a mask.
pub enum Subscript<'a, B: Backend + ?Sized> {
    /// What a view takes.
    View(Index),
    /// Positions as integers, or a mask as bool; made by `From`.
    Tensor(Picker<'a, B>),
}

type Take<B> = fn(&Tensor<B>, &[Subscript<'_, B>]) -> Result<Tensor<B>>;
type Assign<B> = fn(&mut Tensor<B>, &[Subscript<'_, B>], Operand<'_, B>) -> Result<()>;

/// A tensor as an index. It brings along what indexing with it needs of the backend, so that indices without tensors need
/// nothing.
pub struct Picker<'a, B: Backend + ?Sized> {
    pub(crate) tensor: &'a Tensor<B>,
    pub(crate) take: Take<B>,
    pub(crate) assign: Assign<B>,
}

impl<B: Backend + ?Sized> Clone for Picker<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend + ?Sized> Copy for Picker<'_, B> {}

impl<B: Backend + ?Sized> Clone for Subscript<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend + ?Sized> Copy for Subscript<'_, B> {}

impl<B: Backend + ?Sized> fmt::Debug for Picker<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tensor.fmt(f)
    }
}

impl<B: Backend + ?Sized> fmt::Debug for Subscript<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::View(index) => index.fmt(f),
            Self::Tensor(picker) => picker.fmt(f),
        }
    }
}

impl<'a, B> From<&'a Tensor<B>> for Subscript<'a, B>
where
    B: IndexOps + BinaryOps + CompareOps + CopyOps + ReduceOps + ?Sized,
{
    fn from(tensor: &'a Tensor<B>) -> Self {
        Self::Tensor(Picker { tensor, take: pick::take, assign: pick::assign })
    }
}

impl<B: Backend + ?Sized> From<Index> for Subscript<'_, B> {
    fn from(index: Index) -> Self {
        Self::View(index)
    }
}

/// A blanket impl over [`Position`] would overlap with that over ranges.
macro_rules! from_positions {
    ($($T:ty)*) => {$(
        impl<B: Backend + ?Sized> From<$T> for Subscript<'_, B> {
            fn from(position: $T) -> Self {
                Self::View(Index::At(position.to_isize()))
            }
        }
    )*};
}

from_positions!(isize i32 usize);

impl<B: Backend + ?Sized, R: IntoSlice> From<R> for Subscript<'_, B> {
    fn from(range: R) -> Self {
        Self::View(Index::Slice(range.into_slice()))
    }
}

/// Indices for the leading axes: one index, a tuple of up to eight, or a slice of [`Index`] or [`Subscript`].
pub trait Indices<'a, B: Backend + ?Sized> {
    /// Calls `f` with the indices in order.
    fn with<T>(self, f: impl FnOnce(&[Subscript<'a, B>]) -> T) -> T;
}

impl<'a, B: Backend + ?Sized + 'a, I: Into<Subscript<'a, B>>> Indices<'a, B> for I {
    fn with<T>(self, f: impl FnOnce(&[Subscript<'a, B>]) -> T) -> T {
        f(&[self.into()])
    }
}

impl<'a, B: Backend + ?Sized + 'a> Indices<'a, B> for &[Subscript<'a, B>] {
    fn with<T>(self, f: impl FnOnce(&[Subscript<'a, B>]) -> T) -> T {
        f(self)
    }
}

impl<'a, B: Backend + ?Sized + 'a> Indices<'a, B> for &[Index] {
    fn with<T>(self, f: impl FnOnce(&[Subscript<'a, B>]) -> T) -> T {
        f(&self.iter().map(|&index| index.into()).collect::<Vec<_>>())
    }
}

/// Tuples have no generic form.
macro_rules! tuples {
    ($(($($I:ident $i:ident),*))*) => {$(
        impl<'a, Be: Backend + ?Sized + 'a, $($I: Into<Subscript<'a, Be>>),*> Indices<'a, Be> for ($($I,)*) {
            fn with<T>(self, f: impl FnOnce(&[Subscript<'a, Be>]) -> T) -> T {
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

/// The first tensor among the indices.
pub(crate) fn picker<'a, B: Backend + ?Sized>(indices: &[Subscript<'a, B>]) -> Option<Picker<'a, B>> {
    indices.iter().find_map(|index| match index {
        Subscript::Tensor(picker) => Some(*picker),
        Subscript::View(_) => None,
    })
}

/// The layout of the part of `layout` that `indices` take, and the first axis in it that each tensor among them picks
/// from; those axes are whole. `op` is named in errors.
pub(crate) fn index<B: Backend + ?Sized>(
    op: &'static str,
    layout: &Layout,
    indices: &[Subscript<'_, B>],
) -> Result<(Layout, Vec<usize>)> {
    let rest = remaining(op, layout, indices)?;
    let (mut layout, mut axis, mut picked) = (*layout, 0, Vec::new());
    for &index in indices {
        match index {
            Subscript::View(Index::At(position)) => layout = layout.select(axis, position)?,
            Subscript::View(Index::Slice(slice)) => {
                layout = layout.slice(axis, slice)?;
                axis += 1;
            }
            Subscript::View(Index::NewAxis) => {
                layout = layout.unsqueeze(axis)?;
                axis += 1;
            }
            Subscript::View(Index::Ellipsis) => axis += rest as isize,
            Subscript::Tensor(picker) => {
                picked.push(axis as usize);
                axis += picker.axes() as isize;
            }
        }
    }
    Ok((layout, picked))
}

impl<B: Backend + ?Sized> Picker<'_, B> {
    /// How many axes the tensor stands for: a mask for as many as it has.
    pub(crate) fn axes(&self) -> usize {
        if self.tensor.dtype() == DType::Bool { self.tensor.rank() } else { 1 }
    }
}

/// The number of axes that no index names.
fn remaining<B: Backend + ?Sized>(op: &'static str, layout: &Layout, indices: &[Subscript<'_, B>]) -> Result<usize> {
    if indices.iter().filter(|index| matches!(index, Subscript::View(Index::Ellipsis))).count() > 1 {
        let message =
            "more than one ellipsis is given; which axes each stands for is unclear, use `..` for single axes";
        return Err(Error::new(ErrorKind::Argument, op, message));
    }
    let named = indices.iter().map(|index| match index {
        Subscript::View(Index::At(_) | Index::Slice(_)) => 1,
        Subscript::View(Index::NewAxis | Index::Ellipsis) => 0,
        Subscript::Tensor(picker) => picker.axes(),
    });
    let named: usize = named.sum();
    layout.rank().checked_sub(named).ok_or_else(|| {
        let message = format!("{named} indices for the {} axes of shape {:?}", layout.rank(), layout.shape());
        Error::new(ErrorKind::Axis, op, message)
    })
}
