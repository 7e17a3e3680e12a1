//! Comparisons, the choice between two operands, and clamping.

use crate::backend::{Backend, Storage};
use crate::dtype::{DType, Scalar};
use crate::elementwise::{Elementwise, Source, View, check_domain, check_dtype};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::Op;

/// A comparison of a left operand a and a right operand b; the result is bool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompareOp {
    /// a = b.
    Eq,
    /// a ≥ b.
    Ge,
    /// a > b.
    Gt,
    /// a ≤ b.
    Le,
    /// Both are true; bool only.
    LogicalAnd,
    /// At least one is true; bool only.
    LogicalOr,
    /// Exactly one is true; bool only.
    LogicalXor,
    /// a < b.
    Lt,
    /// a ≠ b.
    Ne,
}

impl CompareOp {
    /// Every op of the family.
    pub const ALL: &[Self] = &[
        Self::Eq,
        Self::Ge,
        Self::Gt,
        Self::Le,
        Self::LogicalAnd,
        Self::LogicalOr,
        Self::LogicalXor,
        Self::Lt,
        Self::Ne,
    ];

    /// The op's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Eq => "eq",
            Self::Ge => "ge",
            Self::Gt => "gt",
            Self::Le => "le",
            Self::LogicalAnd => "logical_and",
            Self::LogicalOr => "logical_or",
            Self::LogicalXor => "logical_xor",
            Self::Lt => "lt",
            Self::Ne => "ne",
        }
    }

    /// Whether the op is defined for `dtype`; false orders before true.
    #[must_use]
    pub fn accepts(self, dtype: DType) -> bool {
        match self {
            Self::LogicalAnd | Self::LogicalOr | Self::LogicalXor => dtype == DType::Bool,
            _ => true,
        }
    }
}

/// A validated call of a [`CompareOp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Compare {
    op: CompareOp,
    dtype: DType,
    elementwise: Elementwise<3>,
}

impl Compare {
    /// Plans `out = a op b`, where `dtype` is that of the operands and `out` is bool.
    ///
    /// # Errors
    /// `DType` when the op is not defined for `dtype`, an operand has another, or `out` is not bool; `Shape` when a
    /// view does not broadcast to `out`; `Argument` for a scalar that does not fit or an output that overlaps itself.
    pub fn new(op: CompareOp, dtype: DType, a: Source<'_>, b: Source<'_>, out: View<'_>) -> Result<Self> {
        check_domain(Op::Compare(op), dtype)?;
        check_dtype(op.name(), out.dtype, DType::Bool)?;
        Ok(Self { op, dtype, elementwise: Elementwise::new(op.name(), &[(a, dtype), (b, dtype)], out)? })
    }

    /// The comparison.
    #[must_use]
    pub fn op(&self) -> CompareOp {
        self.op
    }

    /// The dtype of the operands.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The operands and their loop nest.
    #[must_use]
    pub fn elementwise(&self) -> &Elementwise<3> {
        &self.elementwise
    }

    /// Checks the storages of a call; see [`Elementwise::check`].
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan.
    pub fn check<S: Storage>(&self, a: Option<&S>, b: Option<&S>, out: &S) -> Result<()> {
        self.elementwise.check(&[a, b], out)
    }
}

/// A validated `where`: operand 1 is the bool condition, operands 2 and 3 are chosen where it is true and false.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Where {
    elementwise: Elementwise<4>,
}

impl Where {
    /// Plans `out = condition ? a : b`; `condition` is bool, `a` and `b` have the dtype of `out`.
    ///
    /// # Errors
    /// `DType` when dtypes differ or the condition is not bool; `Shape` when a view does not broadcast to `out`;
    /// `Argument` for a scalar that does not fit or an output that overlaps itself.
    pub fn new(condition: Source<'_>, a: Source<'_>, b: Source<'_>, out: View<'_>) -> Result<Self> {
        let sources = [(condition, DType::Bool), (a, out.dtype), (b, out.dtype)];
        Ok(Self { elementwise: Elementwise::new("where", &sources, out)? })
    }

    /// The dtype of the chosen operands and of the result.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.elementwise.out_dtype()
    }

    /// The operands and their loop nest.
    #[must_use]
    pub fn elementwise(&self) -> &Elementwise<4> {
        &self.elementwise
    }

    /// Checks the storages of a call; see [`Elementwise::check`].
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan.
    pub fn check<S: Storage>(&self, condition: Option<&S>, a: Option<&S>, b: Option<&S>, out: &S) -> Result<()> {
        self.elementwise.check(&[condition, a, b], out)
    }
}

/// A validated `clamp` to bounds that are scalars or absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Clamp {
    min: Option<Scalar>,
    max: Option<Scalar>,
    elementwise: Elementwise<2>,
}

impl Clamp {
    /// Plans `out = minimum(maximum(x, min), max)`, so that `max` wins where `min > max`.
    ///
    /// # Errors
    /// `DType` for bool, for dtypes that differ, or a bound of another kind than the dtype; `Shape` when `x` does not
    /// broadcast to `out`; `Argument` for a bound that does not fit, a scalar operand, or an output that overlaps.
    pub fn new(min: Option<Scalar>, max: Option<Scalar>, x: Source<'_>, out: View<'_>) -> Result<Self> {
        check_domain(Op::Clamp, out.dtype)?;
        if let Source::Scalar(scalar) = x {
            let message = format!("the operand is the scalar {scalar}; fill the output instead");
            return Err(Error::new(ErrorKind::Argument, "clamp", message));
        }
        let bound = |bound: Option<Scalar>| bound.map(|bound| bound.to_dtype("clamp", out.dtype)).transpose();
        let elementwise = Elementwise::new("clamp", &[(x, out.dtype)], out)?;
        Ok(Self { min: bound(min)?, max: bound(max)?, elementwise })
    }

    /// The lower bound, rounded to the dtype.
    #[must_use]
    pub fn min(&self) -> Option<Scalar> {
        self.min
    }

    /// The upper bound, rounded to the dtype.
    #[must_use]
    pub fn max(&self) -> Option<Scalar> {
        self.max
    }

    /// The dtype of operand and result.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.elementwise.out_dtype()
    }

    /// The operands and their loop nest.
    #[must_use]
    pub fn elementwise(&self) -> &Elementwise<2> {
        &self.elementwise
    }

    /// Checks the storages of a call; see [`Elementwise::check`].
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan.
    pub fn check<S: Storage>(&self, x: Option<&S>, out: &S) -> Result<()> {
        self.elementwise.check(&[x], out)
    }
}

/// Comparisons, the choice between two operands, and clamping.
pub trait CompareOps: Backend {
    /// Writes the bool `a op b` into `out`.
    ///
    /// # Contract
    /// - Every comparison with NaN is false, but `ne` is true; −0 equals +0.
    /// - Every element of the planned output view is written, with 0 or 1, nothing else.
    /// - An operand is `None` exactly when the plan reads it from a scalar or from the output.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, and what the device reports.
    fn compare(
        &self,
        plan: &Compare,
        a: Option<&Self::Storage>,
        b: Option<&Self::Storage>,
        out: &mut Self::Storage,
    ) -> Result<()>;

    /// Writes `a` where `condition` is true and `b` where it is false into `out`.
    ///
    /// # Contract
    /// - Bits are copied unchanged, and the operand not chosen has no influence, NaN and ∞ included.
    /// - Every element of the planned output view is written, nothing else.
    /// - An operand is `None` exactly when the plan reads it from a scalar or from the output.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, and what the device reports.
    fn choose(
        &self,
        plan: &Where,
        condition: Option<&Self::Storage>,
        a: Option<&Self::Storage>,
        b: Option<&Self::Storage>,
        out: &mut Self::Storage,
    ) -> Result<()>;

    /// Writes `x` limited to the plan's bounds into `out`.
    ///
    /// # Contract
    /// - A NaN element or a NaN bound gives NaN; −0 < +0; where `min > max` the result is `max`.
    /// - Every element of the planned output view is written, nothing else.
    /// - `x` is `None` exactly when the plan works in place.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, and what the device reports.
    fn clamp(&self, plan: &Clamp, x: Option<&Self::Storage>, out: &mut Self::Storage) -> Result<()>;
}
