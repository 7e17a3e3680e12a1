//! Elementwise arithmetic of two operands, each a broadcasting view, a scalar, or the output itself.

use crate::backend::{Backend, Storage};
use crate::dtype::DType;
use crate::elementwise::{Elementwise, Source, View, check_domain};
use crate::error::Result;
use crate::ops::Op;

/// Arithmetic of a left operand a and a right operand b.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// a + b.
    Add,
    /// The angle of the point (x = b, y = a), with IEEE 754's special cases.
    Atan2,
    /// Bitwise and; for bool the logical and.
    BitwiseAnd,
    /// Bitwise or; for bool the logical or.
    BitwiseOr,
    /// Bitwise exclusive or; for bool the logical one.
    BitwiseXor,
    /// a / b; integers truncate towards zero, MIN / −1 wraps to MIN, x / 0 gives 0 and marks the backend.
    Div,
    /// The greater operand; NaN if either is; −0 < +0.
    Maximum,
    /// The smaller operand; NaN if either is; −0 < +0.
    Minimum,
    /// a − b·⌊a/b⌋, exact before one rounding, with the sign of b, zero too; integers as for `Div`.
    Modulo,
    /// a · b.
    Mul,
    /// a to the power b, with IEEE 754's special cases. Integers are exact and wrap; a negative exponent truncates
    /// the fraction (so only ±1 stay), and 0 to a negative exponent gives 0 and marks the backend.
    Pow,
    /// a − b·trunc(a/b), exact, with the sign of a, zero too; integers as for `Div`.
    Rem,
    /// a shifted left; a count below 0 or of the width and more gives 0.
    Shl,
    /// a shifted right, arithmetically when signed; a count below 0 or of the width and more leaves the sign fill.
    Shr,
    /// a − b.
    Sub,
}

impl BinaryOp {
    /// Every op of the family.
    pub const ALL: &[Self] = &[
        Self::Add,
        Self::Atan2,
        Self::BitwiseAnd,
        Self::BitwiseOr,
        Self::BitwiseXor,
        Self::Div,
        Self::Maximum,
        Self::Minimum,
        Self::Modulo,
        Self::Mul,
        Self::Pow,
        Self::Rem,
        Self::Shl,
        Self::Shr,
        Self::Sub,
    ];

    /// The op's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Atan2 => "atan2",
            Self::BitwiseAnd => "bitwise_and",
            Self::BitwiseOr => "bitwise_or",
            Self::BitwiseXor => "bitwise_xor",
            Self::Div => "div",
            Self::Maximum => "maximum",
            Self::Minimum => "minimum",
            Self::Modulo => "modulo",
            Self::Mul => "mul",
            Self::Pow => "pow",
            Self::Rem => "rem",
            Self::Shl => "shl",
            Self::Shr => "shr",
            Self::Sub => "sub",
        }
    }

    /// Whether the op is defined for `dtype`.
    #[must_use]
    pub fn accepts(self, dtype: DType) -> bool {
        match self {
            Self::Atan2 => dtype.is_float(),
            Self::BitwiseAnd | Self::BitwiseOr | Self::BitwiseXor => !dtype.is_float(),
            Self::Shl | Self::Shr => dtype.is_int(),
            _ => dtype.is_number(),
        }
    }
}

/// A validated call of a [`BinaryOp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binary {
    op: BinaryOp,
    elementwise: Elementwise<3>,
}

impl Binary {
    /// Plans `out = op(a, b)` in the dtype of `out`; views broadcast to `out`'s shape.
    ///
    /// # Errors
    /// `DType` when the op is not defined for the dtype or an operand has another; `Shape` when a view does not
    /// broadcast to `out`; `Argument` for a scalar that does not fit or an output that overlaps itself.
    pub fn new(op: BinaryOp, a: Source<'_>, b: Source<'_>, out: View<'_>) -> Result<Self> {
        check_domain(Op::Binary(op), out.dtype)?;
        Ok(Self { op, elementwise: Elementwise::new(op.name(), &[(a, out.dtype), (b, out.dtype)], out)? })
    }

    /// The arithmetic.
    #[must_use]
    pub fn op(&self) -> BinaryOp {
        self.op
    }

    /// The dtype of operands and result.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.elementwise.out_dtype()
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

/// Elementwise arithmetic of two operands.
pub trait BinaryOps: Backend {
    /// Writes `op(a, b)` into `out`.
    ///
    /// # Contract
    /// - Every element of the planned output view is written, nothing else.
    /// - An operand is `None` exactly when the plan reads it from a scalar or from the output.
    /// - `add sub mul div` are correctly rounded, `rem` and `maximum minimum` exact, `modulo` rounded once; `pow` and
    ///   `atan2` are within the [error bounds](crate#elementary-functions) of the crate docs.
    /// - Integers wrap. A zero divisor gives 0 there and `DivisionByZero` at the next synchronising call.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, and what the device reports.
    fn binary(
        &self,
        plan: &Binary,
        a: Option<&Self::Storage>,
        b: Option<&Self::Storage>,
        out: &mut Self::Storage,
    ) -> Result<()>;
}
