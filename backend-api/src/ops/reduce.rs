//! Reductions over any set of axes: [`ReduceOp`], the positions of extremes ([`ArgReduceOp`]), and [statistics] that
//! are composed from other ops.
//!
//! [statistics]: crate::ops::statistic

use crate::backend::{Backend, Storage};
use crate::dtype::DType;
use crate::elementwise::{View, check_domain, check_dtype, check_output, check_shape, check_storage};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::nest::Nest;
use crate::ops::Op;
use crate::shape::{MAX_RANK, Shape, axis};

/// A reduction over any set of axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Whether all elements are nonzero (NaN is); the result is bool, of nothing true.
    All,
    /// Whether any element is nonzero (NaN is); the result is bool, of nothing false.
    Any,
    /// The greatest element; NaN if any is; −0 < +0; of nothing an error.
    Max,
    /// Sum divided by count; of nothing NaN. Integers sum exactly and truncate the quotient; of nothing an error.
    Mean,
    /// The least element; NaN if any is; −0 < +0; of nothing an error.
    Min,
    /// The product; integers wrap; of nothing 1.
    Prod,
    /// The sum; integers wrap; of nothing 0.
    Sum,
}

impl ReduceOp {
    /// Every op of the family.
    pub const ALL: &[Self] = &[Self::All, Self::Any, Self::Max, Self::Mean, Self::Min, Self::Prod, Self::Sum];

    /// The op's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Any => "any",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::Min => "min",
            Self::Prod => "prod",
            Self::Sum => "sum",
        }
    }

    /// Whether the op is defined for `dtype`.
    #[must_use]
    pub fn accepts(self, dtype: DType) -> bool {
        matches!(self, Self::All | Self::Any) || dtype.is_number()
    }

    /// The dtype of the result for an input of `dtype`.
    #[must_use]
    pub fn out_dtype(self, dtype: DType) -> DType {
        if matches!(self, Self::All | Self::Any) { DType::Bool } else { dtype }
    }

    /// Whether the op has a result for no elements of `dtype`.
    fn accepts_nothing(self, dtype: DType) -> bool {
        match self {
            Self::All | Self::Any | Self::Prod | Self::Sum => true,
            Self::Mean => dtype.is_float(),
            Self::Max | Self::Min => false,
        }
    }
}

/// The longest chain of roundings through which a term of a float sum or mean of `count` terms may pass: runs of 64
/// added one after another, their sums added pairwise. The error bound of `sum` and `mean` is γ of this depth.
///
/// # Example
/// ```
/// use congruent_backend_api::ops::reduce::summation_depth;
/// assert_eq!(summation_depth(3), 2);
/// assert_eq!(summation_depth(1 << 20), 63 + 14);
/// ```
#[must_use]
pub fn summation_depth(count: usize) -> usize {
    const RUN: usize = 64;
    let runs = count.div_ceil(RUN).max(1);
    count.min(RUN).saturating_sub(1) + runs.next_power_of_two().ilog2() as usize
}

/// A validated call of a [`ReduceOp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    op: ReduceOp,
    dtype: DType,
    kept: Nest<2>,
    reduced: Nest<1>,
    min_lens: [usize; 2],
}

impl Reduce {
    /// The shape of the result; `axes` may count from the end, `None` names all.
    ///
    /// # Errors
    /// `Axis` when an axis does not exist or is named twice.
    pub fn shape(op: ReduceOp, x: &[usize], axes: Option<&[isize]>, keepdim: bool) -> Result<Shape> {
        let shape = Shape::new(op.name(), x)?;
        Ok(shape.reduced(&shape.axis_mask(op.name(), axes)?, keepdim))
    }

    /// Plans `out = op(x)` over `axes`; `out` has the shape with or without the reduced axes.
    ///
    /// # Errors
    /// `DType` when the op is not defined for `x` or `out` has another dtype than the result; `Axis`; `Shape` when
    /// `out` has another shape than the result; `Argument` when an output that has elements would reduce nothing
    /// although the op has no value for that, or when `out` overlaps itself.
    pub fn new(op: ReduceOp, x: View<'_>, axes: Option<&[isize]>, out: View<'_>) -> Result<Self> {
        let name = op.name();
        check_domain(Op::Reduce(op), x.dtype)?;
        check_dtype(name, out.dtype, op.out_dtype(x.dtype))?;
        let mask = x.layout.shape().axis_mask(name, axes)?;
        let (kept, reduced) = split(name, &forwards(x.layout, &mask)?, &mask, out.layout)?;
        let reduced = reduced.layout(name, 0)?;
        if reduced.count() == 0 && out.layout.count() > 0 && !op.accepts_nothing(x.dtype) {
            return Err(nothing(name, x.layout.shape()));
        }
        let min_lens = [out.layout.min_len(), x.layout.min_len()];
        Ok(Self { op, dtype: x.dtype, kept: Nest::new([out.layout, &kept]), reduced: Nest::new([&reduced]), min_lens })
    }

    /// The reduction.
    #[must_use]
    pub fn op(&self) -> ReduceOp {
        self.op
    }

    /// The dtype of the input.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dtype of the result.
    #[must_use]
    pub fn out_dtype(&self) -> DType {
        self.op.out_dtype(self.dtype)
    }

    /// The kept axes: operand 0 is the output, operand 1 the input at the first reduced element.
    #[must_use]
    pub fn kept(&self) -> &Nest<2> {
        &self.kept
    }

    /// The reduced axes of the input, relative to an element of [`kept`](Self::kept); strides are not negative.
    #[must_use]
    pub fn reduced(&self) -> &Nest<1> {
        &self.reduced
    }

    /// Checks the storages of a call.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan.
    pub fn check<S: Storage>(&self, x: &S, out: &S) -> Result<()> {
        check_storage(self.op.name(), "the output", self.out_dtype(), self.min_lens[0], out)?;
        check_storage(self.op.name(), "the input", self.dtype, self.min_lens[1], x)
    }
}

/// The position of an extreme along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArgReduceOp {
    /// The first position of the greatest element, NaN being greater than all, −0 equal to +0.
    Argmax,
    /// The first position of the least element; the first NaN if there is one; −0 equal to +0.
    Argmin,
}

impl ArgReduceOp {
    /// Every op of the family.
    pub const ALL: &[Self] = &[Self::Argmax, Self::Argmin];

    /// The op's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Argmax => "argmax",
            Self::Argmin => "argmin",
        }
    }
}

/// A validated call of an [`ArgReduceOp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArgReduce {
    op: ArgReduceOp,
    dtype: DType,
    kept: Nest<2>,
    len: usize,
    stride: isize,
    min_lens: [usize; 2],
}

impl ArgReduce {
    /// Plans the positions along `along` into `out`, which is i64 and has the shape with or without that axis.
    ///
    /// # Errors
    /// `DType` for bool or when `out` is not i64; `Axis`; `Shape` when `out` has another shape than the result;
    /// `Argument` when an output that has elements would search nothing, or overlaps itself.
    pub fn new(op: ArgReduceOp, x: View<'_>, along: isize, out: View<'_>) -> Result<Self> {
        let name = op.name();
        check_domain(Op::ArgReduce(op), x.dtype)?;
        check_dtype(name, out.dtype, DType::I64)?;
        let along = axis(name, along, x.layout.rank())?;
        let mut mask = [false; MAX_RANK];
        mask[along] = true;
        let (kept, _) = split(name, x.layout, &mask, out.layout)?;
        let len = x.layout.shape()[along];
        // Without a next position the layout's stride may be any number.
        let stride = if x.layout.count() == 0 || len == 1 { 1 } else { x.layout.strides()[along] };
        if len == 0 && out.layout.count() > 0 {
            return Err(nothing(name, x.layout.shape()));
        }
        let min_lens = [out.layout.min_len(), x.layout.min_len()];
        Ok(Self { op, dtype: x.dtype, kept: Nest::new([out.layout, &kept]), len, stride, min_lens })
    }

    /// Which extreme.
    #[must_use]
    pub fn op(&self) -> ArgReduceOp {
        self.op
    }

    /// The dtype of the input.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The kept axes: operand 0 is the output, operand 1 the input at position 0.
    #[must_use]
    pub fn kept(&self) -> &Nest<2> {
        &self.kept
    }

    /// The number of positions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no positions, which only an empty output allows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The input's stride from one position to the next; 1 when there is no next.
    #[must_use]
    pub fn stride(&self) -> isize {
        self.stride
    }

    /// Checks the storages of a call.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan.
    pub fn check<S: Storage>(&self, x: &S, out: &S) -> Result<()> {
        check_storage(self.op.name(), "the output", DType::I64, self.min_lens[0], out)?;
        check_storage(self.op.name(), "the input", self.dtype, self.min_lens[1], x)
    }
}

/// Reductions over any set of axes.
pub trait ReduceOps: Backend {
    /// Writes the reduction of `x` into `out`.
    ///
    /// # Contract
    /// - Every element of the planned output view is written, nothing else; reducing no axis applies the op to
    ///   single elements.
    /// - f16 and bf16 accumulate in f32 and round once; a float sum is no deeper than [`summation_depth`]; the mean
    ///   is that sum divided once. A float product may be formed in any order.
    /// - Integer sums and products wrap; integer means do not.
    /// - The same input gives the same bits in every run.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, and what the device reports.
    fn reduce(&self, plan: &Reduce, x: &Self::Storage, out: &mut Self::Storage) -> Result<()>;

    /// Writes the positions of the extremes of `x` into `out`.
    ///
    /// # Contract
    /// - The first position wins a tie; the first NaN wins over every number.
    /// - Every element of the planned output view is written, nothing else.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, and what the device reports.
    fn arg_reduce(&self, plan: &ArgReduce, x: &Self::Storage, out: &mut Self::Storage) -> Result<()>;
}

/// `x` with its reduced axes walked forwards: their offsets from a kept element are then never negative.
fn forwards(x: &Layout, mask: &[bool; MAX_RANK]) -> Result<Layout> {
    let backwards = (0..x.rank()).filter(|&axis| mask[axis] && x.strides()[axis] < 0);
    x.flip(&backwards.map(|axis| axis as isize).collect::<Vec<_>>())
}

/// Splits `x` into the layout of its kept axes in `out`'s shape, and its reduced axes relative to that.
fn split(op: &'static str, x: &Layout, mask: &[bool; MAX_RANK], out: &Layout) -> Result<(Layout, Axes)> {
    // Both forms are accepted; of equal rank only when nothing is reduced, and then they are the same.
    let keepdim = out.rank() == x.rank();
    check_shape(op, "the output", out.shape(), &x.shape().reduced(mask, keepdim))?;
    check_output(op, out)?;
    // Without elements nothing is read, and strides may be anything.
    let stride = |axis: usize| if x.count() == 0 { 0 } else { x.strides()[axis] };
    let (mut kept, mut reduced) = (Axes::default(), Axes::default());
    for (axis, &size) in x.shape().iter().enumerate() {
        if mask[axis] {
            reduced.push(size, stride(axis));
        }
        if !mask[axis] || keepdim {
            kept.push(if mask[axis] { 1 } else { size }, stride(axis));
        }
    }
    let offset = if x.count() == 0 { 0 } else { x.offset() };
    Ok((kept.layout(op, offset)?, reduced))
}

/// Sizes and strides of some axes of a layout.
#[derive(Default)]
struct Axes {
    rank: usize,
    sizes: [usize; MAX_RANK],
    strides: [isize; MAX_RANK],
}

impl Axes {
    fn push(&mut self, size: usize, stride: isize) {
        (self.sizes[self.rank], self.strides[self.rank]) = (size, stride);
        self.rank += 1;
    }

    fn layout(&self, op: &'static str, offset: usize) -> Result<Layout> {
        Layout::new(op, &self.sizes[..self.rank], &self.strides[..self.rank], offset)
    }
}

fn nothing(op: &'static str, shape: &Shape) -> Error {
    Error::new(
        ErrorKind::Argument,
        op,
        format!("no elements to reduce in shape {shape:?}, and `{op}` of nothing has no value"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Slice;

    fn layout(sizes: &[usize]) -> Layout {
        Layout::contiguous(Shape::new("test", sizes).unwrap())
    }

    /// A reduction may walk its axes in any order; a search may not.
    #[test]
    fn a_reversed_axis_is_walked_forwards_only_where_order_does_not_matter() {
        let x = layout(&[2, 3]).flip(&[1]).unwrap();
        let out = layout(&[2]);
        let view = View { dtype: DType::F32, layout: &x };
        let sum = Reduce::new(ReduceOp::Sum, view, Some(&[1]), View { dtype: DType::F32, layout: &out }).unwrap();
        assert_eq!((sum.kept().offset(1), sum.reduced().strides(0)), (0, &[1][..]));
        let search = ArgReduce::new(ArgReduceOp::Argmax, view, 1, View { dtype: DType::I64, layout: &out }).unwrap();
        assert_eq!((search.kept().offset(1), search.stride(), search.len()), (2, -1, 3));
    }

    #[test]
    fn nothing_to_reduce_is_an_error_only_where_a_result_is_asked_for() {
        let view = |layout, dtype| View { dtype, layout };
        let (none, three, zero) = (layout(&[3, 0]), layout(&[3]), layout(&[0]));
        let max = |axes, out| Reduce::new(ReduceOp::Max, view(&none, DType::F32), Some(axes), view(out, DType::F32));
        assert_eq!(max(&[1], &three).unwrap_err().kind(), ErrorKind::Argument);
        assert!(max(&[0], &zero).is_ok());
        let mean = |dtype| Reduce::new(ReduceOp::Mean, view(&none, dtype), Some(&[1]), view(&three, dtype));
        assert!(mean(DType::F32).is_ok() && mean(DType::I32).is_err());
    }

    #[test]
    fn shapes_with_and_without_the_reduced_axes() {
        let x = layout(&[2, 3, 4]).slice(2, Slice { step: 2, ..Slice::FULL }).unwrap();
        let view = View { dtype: DType::F32, layout: &x };
        for (shape, fits) in [(&[3][..], true), (&[1, 3, 1], true), (&[3, 1], false), (&[2, 3, 2], false)] {
            let out = layout(shape);
            let plan = Reduce::new(ReduceOp::Sum, view, Some(&[0, -1]), View { dtype: DType::F32, layout: &out });
            assert_eq!(plan.is_ok(), fits, "{shape:?}");
        }
        assert_eq!(*Reduce::shape(ReduceOp::Sum, &[2, 3], None, true).unwrap(), [1, 1]);
    }
}
