//! Elementwise functions of one operand.

use crate::backend::{Backend, Storage};
use crate::dtype::DType;
use crate::elementwise::{Elementwise, Source, View, check_domain, check_dtype};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::Op;

/// A function of one operand. Where a formula is given, the result is that formula's, computed without the
/// overflow, underflow or cancellation that the naive form has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// |x|; the smallest signed integer is its own absolute value.
    Abs,
    /// Inverse cosine.
    Acos,
    /// Inverse hyperbolic cosine.
    Acosh,
    /// Inverse sine.
    Asin,
    /// Inverse hyperbolic sine.
    Asinh,
    /// Inverse tangent.
    Atan,
    /// Inverse hyperbolic tangent.
    Atanh,
    /// Every bit flipped; for bool the logical negation.
    BitwiseNot,
    /// Smallest integral value not below x.
    Ceil,
    /// Cosine of x radians.
    Cos,
    /// Hyperbolic cosine.
    Cosh,
    /// 2/√π · ∫₀ˣ e^(−t²) dt.
    Erf,
    /// 1 − erf(x).
    Erfc,
    /// eˣ.
    Exp,
    /// 2ˣ.
    Exp2,
    /// eˣ − 1.
    Expm1,
    /// Greatest integral value not above x.
    Floor,
    /// x · Φ(x) = x/2 · erfc(−x/√2); at −∞ the limit, −0.
    Gelu,
    /// x · sigmoid(2·√(2/π)·(x + 0.044715·x³)), the tanh form of GELU; at −∞ the limit, −0.
    GeluTanh,
    /// Whether x is neither infinite nor NaN; the result is bool.
    IsFinite,
    /// Whether x is +∞ or −∞; the result is bool.
    IsInf,
    /// Whether x is NaN; the result is bool.
    IsNan,
    /// Natural logarithm.
    Ln,
    /// Decimal logarithm.
    Log10,
    /// ln(1 + x).
    Log1p,
    /// Binary logarithm.
    Log2,
    /// Whether a bool is false.
    LogicalNot,
    /// −x; integers wrap.
    Neg,
    /// 1/x.
    Recip,
    /// max(x, 0) with NaN kept; relu(−0) is +0.
    Relu,
    /// Nearest integral value, ties to even; keeps the sign of zero.
    Round,
    /// 1/√x.
    Rsqrt,
    /// 1/(1 + e^(−x)).
    Sigmoid,
    /// −1, 0 or 1; floats keep NaN and the sign of zero.
    Sign,
    /// x · sigmoid(x); at −∞ the limit, −0.
    Silu,
    /// Sine of x radians.
    Sin,
    /// Hyperbolic sine.
    Sinh,
    /// ln(1 + eˣ).
    Softplus,
    /// √x.
    Sqrt,
    /// x²; integers wrap.
    Square,
    /// Tangent of x radians.
    Tan,
    /// Hyperbolic tangent.
    Tanh,
    /// The integral part of x.
    Trunc,
}

impl UnaryOp {
    /// Every op of the family.
    pub const ALL: &[Self] = &[
        Self::Abs,
        Self::Acos,
        Self::Acosh,
        Self::Asin,
        Self::Asinh,
        Self::Atan,
        Self::Atanh,
        Self::BitwiseNot,
        Self::Ceil,
        Self::Cos,
        Self::Cosh,
        Self::Erf,
        Self::Erfc,
        Self::Exp,
        Self::Exp2,
        Self::Expm1,
        Self::Floor,
        Self::Gelu,
        Self::GeluTanh,
        Self::IsFinite,
        Self::IsInf,
        Self::IsNan,
        Self::Ln,
        Self::Log10,
        Self::Log1p,
        Self::Log2,
        Self::LogicalNot,
        Self::Neg,
        Self::Recip,
        Self::Relu,
        Self::Round,
        Self::Rsqrt,
        Self::Sigmoid,
        Self::Sign,
        Self::Silu,
        Self::Sin,
        Self::Sinh,
        Self::Softplus,
        Self::Sqrt,
        Self::Square,
        Self::Tan,
        Self::Tanh,
        Self::Trunc,
    ];

    /// The op's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Abs => "abs",
            Self::Acos => "acos",
            Self::Acosh => "acosh",
            Self::Asin => "asin",
            Self::Asinh => "asinh",
            Self::Atan => "atan",
            Self::Atanh => "atanh",
            Self::BitwiseNot => "bitwise_not",
            Self::Ceil => "ceil",
            Self::Cos => "cos",
            Self::Cosh => "cosh",
            Self::Erf => "erf",
            Self::Erfc => "erfc",
            Self::Exp => "exp",
            Self::Exp2 => "exp2",
            Self::Expm1 => "expm1",
            Self::Floor => "floor",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu_tanh",
            Self::IsFinite => "is_finite",
            Self::IsInf => "is_inf",
            Self::IsNan => "is_nan",
            Self::Ln => "ln",
            Self::Log10 => "log10",
            Self::Log1p => "log1p",
            Self::Log2 => "log2",
            Self::LogicalNot => "logical_not",
            Self::Neg => "neg",
            Self::Recip => "recip",
            Self::Relu => "relu",
            Self::Round => "round",
            Self::Rsqrt => "rsqrt",
            Self::Sigmoid => "sigmoid",
            Self::Sign => "sign",
            Self::Silu => "silu",
            Self::Sin => "sin",
            Self::Sinh => "sinh",
            Self::Softplus => "softplus",
            Self::Sqrt => "sqrt",
            Self::Square => "square",
            Self::Tan => "tan",
            Self::Tanh => "tanh",
            Self::Trunc => "trunc",
        }
    }

    /// Whether the op is defined for `dtype`.
    #[must_use]
    pub fn accepts(self, dtype: DType) -> bool {
        match self {
            Self::Abs | Self::Neg | Self::Relu | Self::Sign | Self::Square => dtype.is_number(),
            Self::BitwiseNot => !dtype.is_float(),
            Self::LogicalNot => dtype == DType::Bool,
            _ => dtype.is_float(),
        }
    }

    /// The dtype of the result for an operand of `dtype`.
    #[must_use]
    pub fn out_dtype(self, dtype: DType) -> DType {
        match self {
            Self::IsFinite | Self::IsInf | Self::IsNan => DType::Bool,
            _ => dtype,
        }
    }
}

/// A validated call of a [`UnaryOp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unary {
    op: UnaryOp,
    dtype: DType,
    elementwise: Elementwise<2>,
}

impl Unary {
    /// Plans `out = op(x)`; `x` is a view that broadcasts to `out`, or the output itself.
    ///
    /// # Errors
    /// `DType` when the op is not defined for the operand or `out` has another dtype than the result; `Shape` when
    /// the shapes do not fit; `Argument` for a scalar operand or an output that overlaps itself.
    pub fn new(op: UnaryOp, x: Source<'_>, out: View<'_>) -> Result<Self> {
        let dtype = match x {
            Source::View(view) => view.dtype,
            Source::Output => out.dtype,
            Source::Scalar(scalar) => {
                let message = format!("the operand is the scalar {scalar}; fill the output instead");
                return Err(Error::new(ErrorKind::Argument, op.name(), message));
            }
        };
        check_domain(Op::Unary(op), dtype)?;
        check_dtype(op.name(), out.dtype, op.out_dtype(dtype))?;
        Ok(Self { op, dtype, elementwise: Elementwise::new(op.name(), &[(x, dtype)], out)? })
    }

    /// The function.
    #[must_use]
    pub fn op(&self) -> UnaryOp {
        self.op
    }

    /// The operand's dtype.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
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

/// Elementwise functions of one operand.
pub trait UnaryOps: Backend {
    /// Writes `op(x)` into `out`.
    ///
    /// # Contract
    /// - Every element of the planned output view is written, nothing else.
    /// - `x` is `None` exactly when the plan works in place.
    /// - `abs neg sign square recip sqrt relu floor ceil round trunc`, the bit operations and the predicates are
    ///   correctly rounded, the rest within the [error bounds](crate#elementary-functions) of the crate docs.
    /// - NaN in, NaN out (`abs` and `neg` may change its sign).
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, and what the device reports.
    fn unary(&self, plan: &Unary, x: Option<&Self::Storage>, out: &mut Self::Storage) -> Result<()>;
}
