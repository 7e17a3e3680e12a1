//! Reductions composed from other ops: var, std, logsumexp, norm. Part of the `reduce` family.
//!
//! The composition is the reference that a new backend inherits; a backend overrides
//! [`StatisticOps::statistic`] for speed. f16 and bf16 are cast to f32 first and rounded once at the end.

use crate::backend::Storage;
use crate::compose::{Composer, Temporary};
use crate::dtype::{DType, Scalar};
use crate::elementwise::{View, check_domain, check_dtype, check_output, check_shape, check_storage};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::ops::Op;
use crate::ops::binary::{BinaryOp, BinaryOps};
use crate::ops::compare::{CompareOp, CompareOps};
use crate::ops::copy::{Copy, CopyOps};
use crate::ops::reduce::{ReduceOp, ReduceOps};
use crate::ops::unary::{UnaryOp, UnaryOps};
use crate::shape::MAX_RANK;

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

    /// What the sum of squares is divided by for a variance: the count less the correction, at least 0.
    #[must_use]
    pub fn degrees_of_freedom(&self) -> f64 {
        (self.reduced_count() as f64 - self.parameter()).max(0.0)
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
        compose(self, plan, x, out)
    }
}

/// The composition: what [`StatisticOps::statistic`] does where a backend does not override it, and for the calls that its
/// override leaves to it.
///
/// # Errors
/// As for the method.
pub fn compose<B: StatisticOps + ?Sized>(
    backend: &B,
    plan: &Statistic,
    x: &B::Storage,
    out: &mut B::Storage,
) -> Result<()> {
    plan.check(x, out)?;
    if plan.out.count() == 0 {
        return Ok(());
    }
    let compose = Compose { ops: Composer { backend, mask: plan.mask }, plan };
    let result = compose.run(x)?;
    // The composition keeps the reduced axes at size 1; the output may lack them.
    let kept = result.layout.reshape(plan.out.shape())?.unwrap_or(result.layout);
    let copy = Copy::new(View { layout: &kept, ..result.view() }, View { dtype: plan.dtype, layout: &plan.out })?;
    backend.copy(&copy, &result.storage, out)
}

/// The composition of a plan, with the reduced axes kept at size 1.
struct Compose<'a, B: ?Sized> {
    ops: Composer<'a, B>,
    plan: &'a Statistic,
}

impl<B: StatisticOps + ?Sized> Compose<'_, B> {
    fn run(&self, x: &B::Storage) -> Result<Temporary<B::Storage>> {
        let x = self.ops.widen(x, View { dtype: self.plan.dtype, layout: &self.plan.x })?;
        match self.plan.op {
            StatisticOp::LogSumExp => self.logsumexp(x),
            StatisticOp::Norm => self.norm(x),
            StatisticOp::Std => {
                let mut std = self.power_norm(self.deviation(x)?, 2.0)?;
                self.ops.scale(BinaryOp::Div, &mut std, self.plan.degrees_of_freedom().sqrt())?;
                Ok(std)
            }
            StatisticOp::Var => {
                let mut square = self.deviation(x)?;
                self.ops.unary(UnaryOp::Square, &mut square)?;
                let mut var = self.ops.reduce(ReduceOp::Sum, &square)?;
                self.ops.scale(BinaryOp::Div, &mut var, self.plan.degrees_of_freedom())?;
                Ok(var)
            }
        }
    }

    fn logsumexp(&self, mut x: Temporary<B::Storage>) -> Result<Temporary<B::Storage>> {
        if self.plan.reduced_count() == 0 {
            let mut sum = self.ops.reduce(ReduceOp::Sum, &x)?;
            self.ops.unary(UnaryOp::Ln, &mut sum)?;
            return Ok(sum);
        }
        // An infinite maximum must not be subtracted: ∞ − ∞ is NaN, but the sum itself is right without a shift.
        let shift = self.finite_or(&self.ops.reduce(ReduceOp::Max, &x)?, 0.0)?;
        self.ops.binary(BinaryOp::Sub, &mut x, &shift)?;
        self.ops.unary(UnaryOp::Exp, &mut x)?;
        let mut sum = self.ops.reduce(ReduceOp::Sum, &x)?;
        self.ops.unary(UnaryOp::Ln, &mut sum)?;
        self.ops.binary(BinaryOp::Add, &mut sum, &shift)?;
        Ok(sum)
    }

    fn norm(&self, mut x: Temporary<B::Storage>) -> Result<Temporary<B::Storage>> {
        let order = self.plan.parameter();
        self.ops.unary(UnaryOp::Abs, &mut x)?;
        if order == f64::INFINITY {
            self.ops.reduce(ReduceOp::Max, &x)
        } else if order == f64::NEG_INFINITY {
            self.ops.reduce(ReduceOp::Min, &x)
        } else if order == 0.0 {
            let nonzero = self.ops.compare(CompareOp::Ne, &x, 0.0)?;
            let ones = self.ops.cast(&nonzero.storage, nonzero.view(), x.dtype)?;
            self.ops.reduce(ReduceOp::Sum, &ones)
        } else if order == 1.0 {
            self.ops.reduce(ReduceOp::Sum, &x)
        } else {
            self.power_norm(x, order)
        }
    }

    /// (Σ |x|^p)^(1/p) of elements divided by their extreme, times that extreme: no power overflows.
    fn power_norm(&self, mut x: Temporary<B::Storage>, order: f64) -> Result<Temporary<B::Storage>> {
        if self.plan.reduced_count() == 0 {
            return self.ops.reduce(ReduceOp::Sum, &x);
        }
        self.ops.unary(UnaryOp::Abs, &mut x)?;
        let extreme = self.ops.reduce(if order > 0.0 { ReduceOp::Max } else { ReduceOp::Min }, &x)?;
        // Dividing by 0, ∞ or NaN would lose what the plain formula gets right.
        let finite = self.finite_or(&extreme, 1.0)?;
        let positive = self.ops.compare(CompareOp::Gt, &finite, 0.0)?;
        let unit = self.ops.choose(&positive, &finite, 1.0)?;
        self.ops.binary(BinaryOp::Div, &mut x, &unit)?;
        let square = order == 2.0;
        if square {
            self.ops.unary(UnaryOp::Square, &mut x)?;
        } else {
            self.ops.scale(BinaryOp::Pow, &mut x, order)?;
        }
        let mut sum = self.ops.reduce(ReduceOp::Sum, &x)?;
        if square {
            self.ops.unary(UnaryOp::Sqrt, &mut sum)?;
        } else {
            self.ops.scale(BinaryOp::Pow, &mut sum, order.recip())?;
        }
        self.ops.binary(BinaryOp::Mul, &mut sum, &unit)?;
        Ok(sum)
    }

    fn deviation(&self, mut x: Temporary<B::Storage>) -> Result<Temporary<B::Storage>> {
        let mean = self.ops.reduce(ReduceOp::Mean, &x)?;
        self.ops.binary(BinaryOp::Sub, &mut x, &mean)?;
        Ok(x)
    }

    fn finite_or(&self, x: &Temporary<B::Storage>, other: f64) -> Result<Temporary<B::Storage>> {
        self.ops.choose(&self.ops.test(UnaryOp::IsFinite, x)?, x, other)
    }
}
