//! What the arguments of ops accept: tensors or scalars ([`Operand`]), optional bounds ([`Bound`]), axes ([`Axes`]).

use std::fmt;
use std::ops::RangeFull;
use std::sync::Arc;

use congruent_backend_api::{Backend, Error, ErrorKind, Result, Scalar, Shape, Source, bf16, f16};

use crate::index::Position;
use crate::tensor::Tensor;

/// An operand of an elementwise op. References to tensors and all element types convert into it.
pub enum Operand<'a, B: Backend + ?Sized> {
    /// A tensor; it broadcasts against the others.
    Tensor(&'a Tensor<B>),
    /// One value for every element, rounded once to the op's dtype.
    Scalar(Scalar),
    /// The old value of the output of an `_into` call: `binary_into(BinaryOp::Sub, 1.0, Operand::Output, &mut x)`
    /// sets x to 1 − x, in place where possible.
    Output,
}

impl<B: Backend + ?Sized> Clone for Operand<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend + ?Sized> Copy for Operand<'_, B> {}

impl<B: Backend + ?Sized> fmt::Debug for Operand<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tensor(tensor) => tensor.fmt(f),
            Self::Scalar(scalar) => scalar.fmt(f),
            Self::Output => f.write_str("Output"),
        }
    }
}

impl<'a, B: Backend + ?Sized> From<&'a Tensor<B>> for Operand<'a, B> {
    fn from(tensor: &'a Tensor<B>) -> Self {
        Self::Tensor(tensor)
    }
}

/// An optional bound of [`Tensor::clamp`]: a scalar, or `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bound(pub Option<Scalar>);

impl From<Option<Scalar>> for Bound {
    fn from(bound: Option<Scalar>) -> Self {
        Self(bound)
    }
}

/// A blanket impl over `Into<Scalar>` would leave open whether `Result` or `Option` are scalars, which the operators
/// on results must exclude; so each type is named.
macro_rules! from_scalars {
    ($($T:ty)*) => {$(
        impl<B: Backend + ?Sized> From<$T> for Operand<'_, B> {
            fn from(value: $T) -> Self {
                Self::Scalar(value.into())
            }
        }

        impl From<$T> for Bound {
            fn from(value: $T) -> Self {
                Self(Some(value.into()))
            }
        }
    )*};
}

from_scalars!(Scalar f64 f32 f16 bf16 i64 i32 u32 u8 bool);

impl<'a, B: Backend + ?Sized> Operand<'a, B> {
    /// The operand in a plan, where `output` stands for the old value of the output.
    pub(crate) fn source<'s>(self, output: Source<'s>) -> Source<'s>
    where
        'a: 's,
    {
        match self {
            Self::Tensor(tensor) => Source::View(tensor.view()),
            Self::Scalar(scalar) => Source::Scalar(scalar),
            Self::Output => output,
        }
    }

    /// The operand in a call, where `output` holds the old value of the output unless the op works in place.
    pub(crate) fn storage<'s>(self, output: Option<&'s B::Storage>) -> Option<&'s B::Storage>
    where
        'a: 's,
    {
        match self {
            Self::Tensor(tensor) => Some(tensor.storage()),
            Self::Scalar(_) => None,
            Self::Output => output,
        }
    }

    /// The tensor, if it is one.
    pub(crate) fn tensor(self) -> Option<&'a Tensor<B>> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            Self::Scalar(_) | Self::Output => None,
        }
    }
}

/// The first tensor among the operands of an op without a given output, and the shape to which all broadcast.
pub(crate) fn common<'a, B: Backend + ?Sized>(
    op: &'static str,
    operands: &[Operand<'a, B>],
) -> Result<(&'a Tensor<B>, Shape)> {
    if operands.iter().any(|operand| matches!(operand, Operand::Output)) {
        let message = "`Operand::Output` needs an output; use the `_into` form";
        return Err(Error::new(ErrorKind::Argument, op, message));
    }
    let Some(first) = operands.iter().find_map(|operand| operand.tensor()) else {
        let message = "all operands are scalars; at least one must be a tensor (see `Tensor::full`)";
        return Err(Error::new(ErrorKind::Argument, op, message));
    };
    same_backend(op, first.backend(), operands)?;
    let mut shape = *first.layout().shape();
    for tensor in operands.iter().filter_map(|operand| operand.tensor()) {
        // Equal shapes are the common case, and need no broadcasting.
        if *tensor.layout().shape() != shape {
            let shapes: Vec<&[usize]> =
                operands.iter().filter_map(|operand| operand.tensor()).map(Tensor::shape).collect();
            shape = Shape::broadcast(op, &shapes)?;
            break;
        }
    }
    Ok((first, shape))
}

/// Fails unless every tensor among the operands lives on `backend`.
pub(crate) fn same_backend<B: Backend + ?Sized>(
    op: &'static str,
    backend: &Arc<B>,
    operands: &[Operand<'_, B>],
) -> Result<()> {
    for tensor in operands.iter().filter_map(|operand| operand.tensor()) {
        if !Arc::ptr_eq(backend, tensor.backend()) {
            let (left, right) = (backend.name(), tensor.backend().name());
            let apart = if left == right { "two backends that were created apart" } else { "different backends" };
            let message = format!("tensors of {apart} meet: `{left}` and `{right}`; move one with `to_backend`");
            return Err(Error::new(ErrorKind::Argument, op, message));
        }
    }
    Ok(())
}

/// The axes of a reduction: `()` or `..` for all, one axis, or several; negative ones count from the end.
///
/// ```
/// # fn main() -> congruent::Result<()> {
/// # let device = congruent::backend("cpu")?;
/// # let x = congruent::Tensor::ones(&device, [2, 3, 4], congruent::DType::F32)?;
/// assert_eq!(x.sum((), false)?.item::<f32>()?, 24.0);
/// assert_eq!(x.sum(-1, false)?.shape(), [2, 3]);
/// assert_eq!(x.sum([0, 2], true)?.shape(), [1, 3, 1]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Axes(Option<Vec<isize>>);

impl Axes {
    /// The axes by number; `None` is all.
    #[must_use]
    pub fn as_slice(&self) -> Option<&[isize]> {
        self.0.as_deref()
    }
}

impl From<()> for Axes {
    fn from((): ()) -> Self {
        Self(None)
    }
}

impl From<RangeFull> for Axes {
    fn from(_: RangeFull) -> Self {
        Self(None)
    }
}

impl<P: Position> From<P> for Axes {
    fn from(axis: P) -> Self {
        Self(Some(vec![axis.to_isize()]))
    }
}

impl<P: Position, const N: usize> From<[P; N]> for Axes {
    fn from(axes: [P; N]) -> Self {
        Self(Some(axes.map(P::to_isize).to_vec()))
    }
}

impl From<&[isize]> for Axes {
    fn from(axes: &[isize]) -> Self {
        Self(Some(axes.to_vec()))
    }
}

impl From<Option<&[isize]>> for Axes {
    fn from(axes: Option<&[isize]>) -> Self {
        Self(axes.map(<[isize]>::to_vec))
    }
}

/// The error of an assignment of an output to itself.
pub(crate) fn no_value() -> Error {
    let message = "`Operand::Output` is no value; clone the tensor first and assign a part of the clone";
    Error::new(ErrorKind::Argument, "assign", message)
}
