//! Operators on tensors, scalars and results.
//!
//! Each yields a `Result`, and takes one wherever the orphan rule lets it stand beside a tensor.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Shl, Shr, Sub};

use congruent_backend_api::ops::binary::BinaryOp;
use congruent_backend_api::{BinaryOps, Result, Scalar, UnaryOps};

use crate::operand::Operand;
use crate::tensor::Tensor;

/// The standard operator traits have no common generic form, so one macro writes the same impls for each.
macro_rules! operators {
    ($($Trait:ident $method:ident $op:ident;)*) => {$(
        impl<'a, B: BinaryOps + ?Sized, R: Into<Operand<'a, B>>> $Trait<R> for &'a Tensor<B> {
            type Output = Result<Tensor<B>>;

            fn $method(self, right: R) -> Self::Output {
                Tensor::binary(BinaryOp::$op, self, right)
            }
        }

        impl<'a, B: BinaryOps + ?Sized + 'a, R: Into<Operand<'a, B>>> $Trait<R> for Tensor<B> {
            type Output = Result<Self>;

            fn $method(self, right: R) -> Self::Output {
                // As an operand its lifetime can shrink to that of the owned `self`.
                let right: Operand<'a, B> = right.into();
                Self::binary(BinaryOp::$op, &self, right)
            }
        }

        impl<B: BinaryOps + ?Sized> $Trait<Tensor<B>> for &Tensor<B> {
            type Output = Result<Tensor<B>>;

            fn $method(self, right: Tensor<B>) -> Self::Output {
                Tensor::binary(BinaryOp::$op, self, &right)
            }
        }

        impl<B: BinaryOps + ?Sized> $Trait<Self> for Tensor<B> {
            type Output = Result<Self>;

            fn $method(self, right: Self) -> Self::Output {
                Self::binary(BinaryOp::$op, &self, &right)
            }
        }

        impl<B: BinaryOps + ?Sized> $Trait<Result<Tensor<B>>> for &Tensor<B> {
            type Output = Result<Tensor<B>>;

            fn $method(self, right: Result<Tensor<B>>) -> Self::Output {
                Tensor::binary(BinaryOp::$op, self, &right?)
            }
        }

        impl<B: BinaryOps + ?Sized> $Trait<Result<Self>> for Tensor<B> {
            type Output = Result<Self>;

            fn $method(self, right: Result<Self>) -> Self::Output {
                Self::binary(BinaryOp::$op, &self, &right?)
            }
        }

        impl<B: BinaryOps + ?Sized> $Trait<&Tensor<B>> for Result<Tensor<B>> {
            type Output = Self;

            fn $method(self, right: &Tensor<B>) -> Self::Output {
                Tensor::binary(BinaryOp::$op, &self?, right)
            }
        }

        impl<B: BinaryOps + ?Sized> $Trait<Tensor<B>> for Result<Tensor<B>> {
            type Output = Self;

            fn $method(self, right: Tensor<B>) -> Self::Output {
                Tensor::binary(BinaryOp::$op, &self?, &right)
            }
        }

        scalar_left! { $Trait $method $op: Scalar f64 i64 bool }
    )*};
}

/// One type of each kind: with a second one the type of a literal, and with it that of the result, would be unknown
/// in `(2.0 - &x)?.exp()`.
macro_rules! scalar_left {
    ($Trait:ident $method:ident $op:ident: $($S:ty)*) => {$(
        impl<B: BinaryOps + ?Sized> $Trait<&Tensor<B>> for $S {
            type Output = Result<Tensor<B>>;

            fn $method(self, right: &Tensor<B>) -> Self::Output {
                Tensor::binary(BinaryOp::$op, self, right)
            }
        }

        impl<B: BinaryOps + ?Sized> $Trait<Tensor<B>> for $S {
            type Output = Result<Tensor<B>>;

            fn $method(self, right: Tensor<B>) -> Self::Output {
                Tensor::binary(BinaryOp::$op, self, &right)
            }
        }
    )*};
}

operators! {
    Add add Add;
    BitAnd bitand BitwiseAnd;
    BitOr bitor BitwiseOr;
    BitXor bitxor BitwiseXor;
    Div div Div;
    Mul mul Mul;
    Rem rem Rem;
    Shl shl Shl;
    Shr shr Shr;
    Sub sub Sub;
}

impl<B: UnaryOps + ?Sized> Neg for &Tensor<B> {
    type Output = Result<Tensor<B>>;

    fn neg(self) -> Self::Output {
        Tensor::neg(self)
    }
}

impl<B: UnaryOps + ?Sized> Neg for Tensor<B> {
    type Output = Result<Self>;

    fn neg(self) -> Self::Output {
        Self::neg(&self)
    }
}

impl<B: UnaryOps + ?Sized> Not for &Tensor<B> {
    type Output = Result<Tensor<B>>;

    fn not(self) -> Self::Output {
        self.bitwise_not()
    }
}

impl<B: UnaryOps + ?Sized> Not for Tensor<B> {
    type Output = Result<Self>;

    fn not(self) -> Self::Output {
        self.bitwise_not()
    }
}
