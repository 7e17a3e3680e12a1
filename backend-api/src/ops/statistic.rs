//! Reductions composed from other ops: var, std, logsumexp, norm. Part of the `reduce` family.
//!
//! The composition is the reference that a new backend inherits; a backend overrides
//! [`StatisticOps::statistic`] for speed. f16 and bf16 are cast to f32 first and rounded once at the end.

use crate::backend::Storage;
use crate::dtype::{DType, Scalar};
use crate::elementwise::{Source, View, check_domain, check_dtype, check_output, check_shape, check_storage};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::ops::Op;
use crate::ops::binary::{Binary, BinaryOp, BinaryOps};
use crate::ops::compare::{Compare, CompareOp, CompareOps, Where};
use crate::ops::copy::{Copy, CopyOps};
use crate::ops::reduce::{Reduce, ReduceOp, ReduceOps};
use crate::ops::unary::{Unary, UnaryOp, UnaryOps};
use crate::shape::{MAX_RANK, Shape};

/// A reduction that is composed from other ops. Floats only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatisticOp {
    /// ln Σ eˣ, without overflow; of nothing −∞.
    LogSumExp,
    /// (Σ |x|^p)^(1/p), without overflow. p = 0 counts nonzero elements, p = ±∞ is the greatest or least |x|.
    /// Of nothing 0, an error for p = ±∞ and for p < 0.
    Norm,
    /// The square root of the variance, without overflow.
    Std,
    /// Σ (x − mean)² / max(n − correction, 0), in two passes.
    Var,
}

impl StatisticOp {
    /// Every op of the family.
    pub const ALL: &[Self] = &[Self::LogSumExp, Self::Norm, Self::Std, Self::Var];

    /// The op's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LogSumExp => "logsumexp",
            Self::Norm => "norm",
            Self::Std => "std",
            Self::Var => "var",
        }
    }
}

/// A validated call of a [`StatisticOp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Statistic {
    op: StatisticOp,
    parameter: Scalar,
    dtype: DType,
    x: Layout,
    mask: [bool; MAX_RANK],
    out: Layout,
}

impl Statistic {
    /// Plans `out = op(x)` over `axes`; `out` has the shape with or without the reduced axes. `parameter` is the
    /// correction of `Var` and `Std` and the p of `Norm`; `LogSumExp` ignores it.
    ///
    /// # Errors
    /// `DType` when `x` is not a float or `out` has another dtype; `Axis`; `Shape` when `out` has another shape than
    /// the result; `Argument` for a NaN parameter, for a norm of nothing that has no value, or when `out` overlaps.
    pub fn new(op: StatisticOp, parameter: f64, x: View<'_>, axes: Option<&[isize]>, out: View<'_>) -> Result<Self> {
        let name = op.name();
        check_domain(Op::Statistic(op), x.dtype)?;
        check_dtype(name, out.dtype, x.dtype)?;
        let mask = x.layout.shape().axis_mask(name, axes)?;
        let expected = x.layout.shape().reduced(&mask, out.layout.rank() == x.layout.rank());
        check_shape(name, "the output", out.layout.shape(), &expected)?;
        check_output(name, out.layout)?;
        let plan =
            Self { op, parameter: Scalar::Float(parameter), dtype: x.dtype, x: *x.layout, mask, out: *out.layout };
        if parameter.is_nan() {
            return Err(Error::new(ErrorKind::Argument, name, "the parameter is NaN; it must be a number"));
        }
        let of_nothing = plan.reduced_count() == 0 && out.layout.count() > 0;
        if op == StatisticOp::Norm && of_nothing && (parameter < 0.0 || parameter.is_infinite()) {
            let message =
                format!("no elements in shape {:?}, and the norm of order {parameter} has no value", x.layout.shape());
            return Err(Error::new(ErrorKind::Argument, name, message));
        }
        Ok(plan)
    }

    /// The statistic.
    #[must_use]
    pub fn op(&self) -> StatisticOp {
        self.op
    }

    /// The correction, or the order of the norm.
    #[must_use]
    pub fn parameter(&self) -> f64 {
        self.parameter.to_f64()
    }

    /// The dtype of input and result.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The layout of the input.
    #[must_use]
    pub fn x(&self) -> &Layout {
        &self.x
    }

    /// Which axes are reduced.
    #[must_use]
    pub fn mask(&self) -> &[bool; MAX_RANK] {
        &self.mask
    }

    /// The layout of the output.
    #[must_use]
    pub fn out(&self) -> &Layout {
        &self.out
    }

    /// The number of elements that are reduced to one.
    #[must_use]
    pub fn reduced_count(&self) -> usize {
        (0..self.x.rank()).filter(|&axis| self.mask[axis]).map(|axis| self.x.shape()[axis]).product()
    }

    /// Checks the storages of a call.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan.
    pub fn check<S: Storage>(&self, x: &S, out: &S) -> Result<()> {
        check_storage(self.op.name(), "the output", self.dtype, self.out.min_len(), out)?;
        check_storage(self.op.name(), "the input", self.dtype, self.x.min_len(), x)
    }
}

/// Reductions composed from other ops.
pub trait StatisticOps: ReduceOps + UnaryOps + BinaryOps + CompareOps + CopyOps {
    /// Writes the statistic of `x` into `out`.
    ///
    /// # Contract
    /// - Every element of the planned output view is written, nothing else.
    /// - f16 and bf16 are computed in f32 and rounded once.
    /// - NaN in, NaN out; no overflow where the result itself has none.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, `OutOfMemory` for temporaries, and what the
    /// device reports.
    fn statistic(&self, plan: &Statistic, x: &Self::Storage, out: &mut Self::Storage) -> Result<()> {
        plan.check(x, out)?;
        if plan.out.count() == 0 {
            return Ok(());
        }
        let compose = Compose { backend: self, plan };
        let result = compose.run(x)?;
        let copy = Copy::new(result.view(), View { dtype: plan.dtype, layout: &plan.out })?;
        self.copy(&copy, &result.storage, out)
    }
}

/// A temporary: a contiguous tensor of the composition.
struct Temporary<S> {
    storage: S,
    dtype: DType,
    layout: Layout,
}

impl<S> Temporary<S> {
    fn view(&self) -> View<'_> {
        View { dtype: self.dtype, layout: &self.layout }
    }
}

/// The ops of the composition, each into a new temporary or in place.
struct Compose<'a, B: ?Sized> {
    backend: &'a B,
    plan: &'a Statistic,
}

impl<B: StatisticOps + ?Sized> Compose<'_, B> {
    /// The statistic with the reduced axes kept at size 1, or dropped when the plan's output has none.
    fn run(&self, x: &B::Storage) -> Result<Temporary<B::Storage>> {
        let x = self.widen(x)?;
        match self.plan.op {
            StatisticOp::LogSumExp => self.logsumexp(x),
            StatisticOp::Norm => self.norm(x),
            StatisticOp::Std => {
                let mut std = self.power_norm(self.deviation(x)?, 2.0)?;
                self.scale(BinaryOp::Div, &mut std, self.degrees_of_freedom().sqrt())?;
                Ok(std)
            }
            StatisticOp::Var => {
                let mut square = self.deviation(x)?;
                self.unary(UnaryOp::Square, &mut square)?;
                let mut var = self.reduce(ReduceOp::Sum, &square)?;
                self.scale(BinaryOp::Div, &mut var, self.degrees_of_freedom())?;
                Ok(var)
            }
        }
    }

    fn logsumexp(&self, mut x: Temporary<B::Storage>) -> Result<Temporary<B::Storage>> {
        if self.plan.reduced_count() == 0 {
            let mut sum = self.reduce(ReduceOp::Sum, &x)?;
            self.unary(UnaryOp::Ln, &mut sum)?;
            return Ok(sum);
        }
        // An infinite maximum must not be subtracted: ∞ − ∞ is NaN, but the sum itself is right without a shift.
        let shift = self.finite_or(&self.reduce(ReduceOp::Max, &x)?, 0.0, UnaryOp::IsFinite)?;
        self.binary(BinaryOp::Sub, &mut x, &shift)?;
        self.unary(UnaryOp::Exp, &mut x)?;
        let mut sum = self.reduce(ReduceOp::Sum, &x)?;
        self.unary(UnaryOp::Ln, &mut sum)?;
        self.binary(BinaryOp::Add, &mut sum, &shift)?;
        Ok(sum)
    }

    fn norm(&self, mut x: Temporary<B::Storage>) -> Result<Temporary<B::Storage>> {
        let order = self.plan.parameter();
        self.unary(UnaryOp::Abs, &mut x)?;
        if order == f64::INFINITY {
            self.reduce(ReduceOp::Max, &x)
        } else if order == f64::NEG_INFINITY {
            self.reduce(ReduceOp::Min, &x)
        } else if order == 0.0 {
            let nonzero = self.compare(CompareOp::Ne, &x, 0.0)?;
            let ones = self.cast(&nonzero.storage, nonzero.view(), x.dtype)?;
            self.reduce(ReduceOp::Sum, &ones)
        } else if order == 1.0 {
            self.reduce(ReduceOp::Sum, &x)
        } else {
            self.power_norm(x, order)
        }
    }

    /// (Σ |x|^p)^(1/p) of elements divided by their extreme, times that extreme: no power overflows.
    fn power_norm(&self, mut x: Temporary<B::Storage>, order: f64) -> Result<Temporary<B::Storage>> {
        if self.plan.reduced_count() == 0 {
            return self.reduce(ReduceOp::Sum, &x);
        }
        self.unary(UnaryOp::Abs, &mut x)?;
        let extreme = self.reduce(if order > 0.0 { ReduceOp::Max } else { ReduceOp::Min }, &x)?;
        // Dividing by 0, ∞ or NaN would lose what the plain formula gets right.
        let finite = self.finite_or(&extreme, 1.0, UnaryOp::IsFinite)?;
        let positive = self.compare(CompareOp::Gt, &finite, 0.0)?;
        let unit = self.choose(&positive, &finite, 1.0)?;
        self.binary(BinaryOp::Div, &mut x, &unit)?;
        let square = order == 2.0;
        if square {
            self.unary(UnaryOp::Square, &mut x)?;
        } else {
            self.scale(BinaryOp::Pow, &mut x, order)?;
        }
        let mut sum = self.reduce(ReduceOp::Sum, &x)?;
        if square {
            self.unary(UnaryOp::Sqrt, &mut sum)?;
        } else {
            self.scale(BinaryOp::Pow, &mut sum, order.recip())?;
        }
        self.binary(BinaryOp::Mul, &mut sum, &unit)?;
        Ok(sum)
    }

    fn deviation(&self, mut x: Temporary<B::Storage>) -> Result<Temporary<B::Storage>> {
        let mean = self.reduce(ReduceOp::Mean, &x)?;
        self.binary(BinaryOp::Sub, &mut x, &mean)?;
        Ok(x)
    }

    fn degrees_of_freedom(&self) -> f64 {
        (self.plan.reduced_count() as f64 - self.plan.parameter()).max(0.0)
    }

    /// A contiguous copy of the input in the dtype of the computation.
    fn widen(&self, x: &B::Storage) -> Result<Temporary<B::Storage>> {
        let wide = if self.plan.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        self.cast(x, View { dtype: self.plan.dtype, layout: &self.plan.x }, wide)
    }

    fn cast(&self, x: &B::Storage, view: View<'_>, dtype: DType) -> Result<Temporary<B::Storage>> {
        let mut out = self.temporary(dtype, *view.layout.shape())?;
        let plan = Copy::new(view, out.view())?;
        self.backend.copy(&plan, x, &mut out.storage)?;
        Ok(out)
    }

    fn unary(&self, op: UnaryOp, x: &mut Temporary<B::Storage>) -> Result<()> {
        let plan = Unary::new(op, Source::Output, x.view())?;
        self.backend.unary(&plan, None, &mut x.storage)
    }

    /// `x = op(x, y)`, where `y` broadcasts to `x`.
    fn binary(&self, op: BinaryOp, x: &mut Temporary<B::Storage>, y: &Temporary<B::Storage>) -> Result<()> {
        let y_layout = self.against(y, x)?;
        let y_view = View { dtype: y.dtype, layout: &y_layout };
        let plan = Binary::new(op, Source::Output, Source::View(y_view), x.view())?;
        self.backend.binary(&plan, None, Some(&y.storage), &mut x.storage)
    }

    /// `x = op(x, y)` with a number.
    fn scale(&self, op: BinaryOp, x: &mut Temporary<B::Storage>, y: f64) -> Result<()> {
        let plan = Binary::new(op, Source::Output, Source::Scalar(Scalar::Float(y)), x.view())?;
        self.backend.binary(&plan, None, None, &mut x.storage)
    }

    fn compare(&self, op: CompareOp, x: &Temporary<B::Storage>, y: f64) -> Result<Temporary<B::Storage>> {
        let mut out = self.temporary(DType::Bool, *x.layout.shape())?;
        let (a, b) = (Source::View(x.view()), Source::Scalar(Scalar::Float(y)));
        let plan = Compare::new(op, x.dtype, a, b, out.view())?;
        self.backend.compare(&plan, Some(&x.storage), None, &mut out.storage)?;
        Ok(out)
    }

    /// `x` where `condition`, else `other`.
    fn choose(
        &self,
        condition: &Temporary<B::Storage>,
        x: &Temporary<B::Storage>,
        other: f64,
    ) -> Result<Temporary<B::Storage>> {
        let mut out = self.temporary(x.dtype, *x.layout.shape())?;
        let other = Source::Scalar(Scalar::Float(other));
        let plan = Where::new(Source::View(condition.view()), Source::View(x.view()), other, out.view())?;
        self.backend.choose(&plan, Some(&condition.storage), Some(&x.storage), None, &mut out.storage)?;
        Ok(out)
    }

    fn finite_or(&self, x: &Temporary<B::Storage>, other: f64, test: UnaryOp) -> Result<Temporary<B::Storage>> {
        let mut condition = self.temporary(DType::Bool, *x.layout.shape())?;
        let plan = Unary::new(test, Source::View(x.view()), condition.view())?;
        self.backend.unary(&plan, Some(&x.storage), &mut condition.storage)?;
        self.choose(&condition, x, other)
    }

    /// Reduces the plan's axes to size 1.
    fn reduce(&self, op: ReduceOp, x: &Temporary<B::Storage>) -> Result<Temporary<B::Storage>> {
        let keepdim = self.plan.out.rank() == self.plan.x.rank();
        let axes: Vec<isize> =
            (0..self.plan.x.rank()).filter(|&axis| self.plan.mask[axis]).map(|axis| axis as isize).collect();
        let mut out = self.temporary(x.dtype, x.layout.shape().reduced(&self.plan.mask, keepdim))?;
        let plan = Reduce::new(op, x.view(), Some(&axes), out.view())?;
        self.backend.reduce(&plan, &x.storage, &mut out.storage)?;
        Ok(out)
    }

    /// The layout of `y` with the reduced axes put back, when `x` still has them.
    fn against(&self, y: &Temporary<B::Storage>, x: &Temporary<B::Storage>) -> Result<Layout> {
        if x.layout.rank() == y.layout.rank() {
            return Ok(y.layout);
        }
        let kept = self.plan.x.shape().reduced(&self.plan.mask, true);
        Ok(Layout::contiguous(kept))
    }

    fn temporary(&self, dtype: DType, shape: Shape) -> Result<Temporary<B::Storage>> {
        let layout = Layout::contiguous(shape);
        Ok(Temporary { storage: self.backend.alloc(dtype, layout.count())?, dtype, layout })
    }
}
