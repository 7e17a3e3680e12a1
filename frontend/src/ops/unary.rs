//! Elementwise functions of one operand.

use congruent_backend_api::ops::unary::{Unary, UnaryOp};
use congruent_backend_api::{Result, Source, UnaryOps};

use crate::operand::{Operand, same_backend};
use crate::tensor::Tensor;

impl<B: UnaryOps + ?Sized> Tensor<B> {
    /// `op` of each element.
    ///
    /// # Errors
    /// `DType` when the op is not defined for the dtype; `Unsupported`; `OutOfMemory`.
    pub fn unary(&self, op: UnaryOp) -> Result<Self> {
        Self::produce(
            self.backend(),
            op.out_dtype(self.dtype()),
            *self.layout().shape(),
            |out| Unary::new(op, Source::View(self.view()), out),
            |plan, out| self.backend().unary(plan, Some(self.storage()), out),
        )
    }

    /// `op` of each element, broadcast into `out`, whose shape and dtype stay.
    ///
    /// # Errors
    /// As [`unary`](Self::unary), and `Shape` or `DType` when the result does not fit `out`.
    pub fn unary_into(&self, op: UnaryOp, out: &mut Self) -> Result<()> {
        same_backend(op.name(), out.backend(), &[Operand::Tensor(self)])?;
        out.overwrite(
            |_, out| Unary::new(op, Source::View(self.view()), out),
            |plan, _, out| self.backend().unary(plan, Some(self.storage()), out),
        )
    }

    /// Replaces each element by `op` of it.
    ///
    /// # Errors
    /// As [`unary`](Self::unary), and `DType` when the result has another dtype.
    pub fn unary_assign(&mut self, op: UnaryOp) -> Result<()> {
        let backend = self.backend().clone();
        self.overwrite(|x, out| Unary::new(op, x, out), |plan, x, out| backend.unary(plan, x, out))
    }
}

/// Names have no generic form: one method per op, and where the dtype stays one that works in place.
macro_rules! methods {
    ($($op:ident $name:ident $assign:ident: $doc:literal;)*) => {
        impl<B: UnaryOps + ?Sized> Tensor<B> {$(
            #[doc = $doc]
            ///
            /// # Errors
            /// As [`unary`](Self::unary).
            pub fn $name(&self) -> Result<Self> {
                self.unary(UnaryOp::$op)
            }

            #[doc = concat!("[`", stringify!($name), "`](Self::", stringify!($name), ") in place.")]
            ///
            /// # Errors
            /// As [`unary_assign`](Self::unary_assign).
            pub fn $assign(&mut self) -> Result<()> {
                self.unary_assign(UnaryOp::$op)
            }
        )*}
    };
}

methods! {
    Abs abs abs_assign: "|x|; the smallest signed integer is its own absolute value.";
    Acos acos acos_assign: "Inverse cosine.";
    Acosh acosh acosh_assign: "Inverse hyperbolic cosine.";
    Asin asin asin_assign: "Inverse sine.";
    Asinh asinh asinh_assign: "Inverse hyperbolic sine.";
    Atan atan atan_assign: "Inverse tangent.";
    Atanh atanh atanh_assign: "Inverse hyperbolic tangent.";
    BitwiseNot bitwise_not bitwise_not_assign: "Every bit flipped; for bool the logical negation.";
    Ceil ceil ceil_assign: "Smallest integral value not below x.";
    Cos cos cos_assign: "Cosine of x radians.";
    Cosh cosh cosh_assign: "Hyperbolic cosine.";
    Erf erf erf_assign: "The error function.";
    Erfc erfc erfc_assign: "1 − erf(x), without cancellation.";
    Exp exp exp_assign: "eˣ.";
    Exp2 exp2 exp2_assign: "2ˣ.";
    Expm1 expm1 expm1_assign: "eˣ − 1, without cancellation.";
    Floor floor floor_assign: "Greatest integral value not above x.";
    Gelu gelu gelu_assign: "x · Φ(x), with the exact normal distribution function.";
    GeluTanh gelu_tanh gelu_tanh_assign: "The tanh form of GELU.";
    Ln ln ln_assign: "Natural logarithm.";
    Log10 log10 log10_assign: "Decimal logarithm.";
    Log1p log1p log1p_assign: "ln(1 + x), without cancellation.";
    Log2 log2 log2_assign: "Binary logarithm.";
    LogicalNot logical_not logical_not_assign: "Whether a bool is false.";
    Neg neg neg_assign: "−x; integers wrap. Also the operator `-`.";
    Recip recip recip_assign: "1/x.";
    Relu relu relu_assign: "max(x, 0) with NaN kept.";
    Round round round_assign: "Nearest integral value, ties to even.";
    Rsqrt rsqrt rsqrt_assign: "1/√x.";
    Sigmoid sigmoid sigmoid_assign: "1/(1 + e^(−x)).";
    Sign sign sign_assign: "−1, 0 or 1; floats keep NaN and the sign of zero.";
    Silu silu silu_assign: "x · sigmoid(x).";
    Sin sin sin_assign: "Sine of x radians.";
    Sinh sinh sinh_assign: "Hyperbolic sine.";
    Softplus softplus softplus_assign: "ln(1 + eˣ), without overflow.";
    Sqrt sqrt sqrt_assign: "√x.";
    Square square square_assign: "x²; integers wrap.";
    Tan tan tan_assign: "Tangent of x radians.";
    Tanh tanh tanh_assign: "Hyperbolic tangent.";
    Trunc trunc trunc_assign: "The integral part of x.";
}

impl<B: UnaryOps + ?Sized> Tensor<B> {
    /// Whether x is neither infinite nor NaN; the result is bool.
    ///
    /// # Errors
    /// As [`unary`](Self::unary).
    pub fn is_finite(&self) -> Result<Self> {
        self.unary(UnaryOp::IsFinite)
    }

    /// Whether x is +∞ or −∞; the result is bool.
    ///
    /// # Errors
    /// As [`unary`](Self::unary).
    pub fn is_inf(&self) -> Result<Self> {
        self.unary(UnaryOp::IsInf)
    }

    /// Whether x is NaN; the result is bool.
    ///
    /// # Errors
    /// As [`unary`](Self::unary).
    pub fn is_nan(&self) -> Result<Self> {
        self.unary(UnaryOp::IsNan)
    }
}
