//! Elementwise arithmetic of two operands.

use congruent_backend_api::ops::binary::{Binary, BinaryOp};
use congruent_backend_api::{BinaryOps, Result, Source};

use crate::operand::{Operand, common, same_backend};
use crate::tensor::Tensor;

impl<B: BinaryOps + ?Sized> Tensor<B> {
    /// `op(a, b)` of operands that broadcast; either may be a scalar.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{Tensor, ops::BinaryOp};
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::from_slice(&device, &[1.0_f32, 2.0, 3.0], [3])?;
    /// assert_eq!(Tensor::binary(BinaryOp::Pow, 2.0, &x)?.to_vec::<f32>()?, [2.0, 4.0, 8.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `DType` when dtypes differ or the op is not defined for them; `Shape` when shapes do not broadcast; `Argument`
    /// for a scalar that does not fit, two scalars, or tensors of two backends; `Unsupported`; `OutOfMemory`.
    pub fn binary<'a>(op: BinaryOp, a: impl Into<Operand<'a, B>>, b: impl Into<Operand<'a, B>>) -> Result<Self>
    where
        B: 'a,
    {
        let (a, b) = (a.into(), b.into());
        let (first, shape) = common(op.name(), &[a, b])?;
        Self::produce(
            first.backend(),
            first.dtype(),
            shape,
            // `common` admits no operand that stands for the output.
            |out| Binary::new(op, a.source(Source::Output), b.source(Source::Output), out),
            |plan, out| first.backend().binary(plan, a.storage(None), b.storage(None), out),
        )
    }

    /// `op(a, b)`, broadcast into `out`, whose shape and dtype stay; [`Operand::Output`] reads its old value.
    ///
    /// # Errors
    /// As [`binary`](Self::binary), and `Shape` when the result does not fit `out`.
    pub fn binary_into<'a>(
        op: BinaryOp,
        a: impl Into<Operand<'a, B>>,
        b: impl Into<Operand<'a, B>>,
        out: &mut Self,
    ) -> Result<()>
    where
        B: 'a,
    {
        let (a, b) = (a.into(), b.into());
        same_backend(op.name(), out.backend(), &[a, b])?;
        let backend = out.backend().clone();
        out.overwrite(
            |old, out| Binary::new(op, a.source(old), b.source(old), out),
            |plan, old, out| backend.binary(plan, a.storage(old), b.storage(old), out),
        )
    }

    /// Replaces this tensor by `op(self, b)`; its shape stays.
    ///
    /// # Errors
    /// As [`binary_into`](Self::binary_into).
    pub fn binary_assign<'a>(&mut self, op: BinaryOp, b: impl Into<Operand<'a, B>>) -> Result<()>
    where
        B: 'a,
    {
        Self::binary_into(op, Operand::Output, b, self)
    }
}

/// Names have no generic form: one method per op, and one that works in place.
macro_rules! methods {
    ($($op:ident $name:ident $assign:ident: $doc:literal;)*) => {
        impl<B: BinaryOps + ?Sized> Tensor<B> {$(
            #[doc = $doc]
            ///
            /// # Errors
            /// As [`binary`](Self::binary).
            pub fn $name<'a>(&'a self, b: impl Into<Operand<'a, B>>) -> Result<Self> {
                Self::binary(BinaryOp::$op, self, b)
            }

            #[doc = concat!("[`", stringify!($name), "`](Self::", stringify!($name), ") in place.")]
            ///
            /// # Errors
            /// As [`binary_into`](Self::binary_into).
            pub fn $assign<'a>(&mut self, b: impl Into<Operand<'a, B>>) -> Result<()>
            where
                B: 'a,
            {
                self.binary_assign(BinaryOp::$op, b)
            }
        )*}
    };
}

methods! {
    Add add add_assign: "self + b.";
    Atan2 atan2 atan2_assign: "The angle of the point (x = b, y = self).";
    BitwiseAnd bitwise_and bitwise_and_assign: "Bitwise and; for bool the logical and. Also the operator `&`.";
    BitwiseOr bitwise_or bitwise_or_assign: "Bitwise or; for bool the logical or. Also the operator `|`.";
    BitwiseXor bitwise_xor bitwise_xor_assign: "Bitwise exclusive or. Also the operator `^`.";
    Div div div_assign: "self / b; integers truncate towards zero.";
    Maximum maximum maximum_assign: "The greater operand; NaN if either is.";
    Minimum minimum minimum_assign: "The smaller operand; NaN if either is.";
    Modulo modulo modulo_assign: "The remainder with the sign of b (Python's `%`).";
    Mul mul mul_assign: "self · b.";
    Pow pow pow_assign: "self to the power b.";
    Rem rem rem_assign: "The remainder with the sign of self. Also the operator `%`, as in Rust.";
    Shl shl shl_assign: "self shifted left by b bits. Also the operator `<<`.";
    Shr shr shr_assign: "self shifted right by b bits, arithmetically when signed. Also the operator `>>`.";
    Sub sub sub_assign: "self − b.";
}
