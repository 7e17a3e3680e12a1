//! Linear layers: a product, a bias and an activation in one call. Part of the `matmul` family.
//!
//! The composition is the reference that a new backend inherits; a backend overrides [`LinearOps::linear`] for speed.
//! f16 and bf16 are widened to f32 first and rounded once at the end.

use crate::backend::Storage;
use crate::dtype::{DType, Scalar};
use crate::elementwise::{Source, View, check_domain, check_dtype, check_output, check_shape, check_storage};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::ops::Op;
use crate::ops::binary::{Binary, BinaryOp, BinaryOps};
use crate::ops::copy::{Copy, CopyOps};
use crate::ops::matmul::{Matmul, MatmulOps};
use crate::ops::unary::{Unary, UnaryOp, UnaryOps};
use crate::shape::Shape;

const OP: &str = "linear";

/// What a linear layer applies to its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Nothing.
    Identity,
    /// max(x, 0); NaN stays.
    Relu,
    /// x·Φ(x), exact.
    Gelu,
    /// The approximation of `gelu` by tanh.
    GeluTanh,
}

impl Activation {
    /// Every activation.
    pub const ALL: &[Self] = &[Self::Identity, Self::Relu, Self::Gelu, Self::GeluTanh];

    /// The activation's name, which is that of the function.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.function().map_or("identity", UnaryOp::name)
    }

    /// The function of one operand that it is; `None` for the identity.
    #[must_use]
    pub fn function(self) -> Option<UnaryOp> {
        match self {
            Self::Identity => None,
            Self::Relu => Some(UnaryOp::Relu),
            Self::Gelu => Some(UnaryOp::Gelu),
            Self::GeluTanh => Some(UnaryOp::GeluTanh),
        }
    }
}

/// A validated `out = activation(x @ weightᵀ + bias)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Linear {
    activation: Activation,
    product: Matmul,
    x: Layout,
    weight: Layout,
    bias: Option<Layout>,
    out: Layout,
}

impl Linear {
    /// The shape of the result: that of `x` with its last axis replaced by the rows of `weight`.
    ///
    /// # Errors
    /// `Shape` unless `weight` has rank 2, `x` has an axis, and their last axes agree.
    pub fn shape(x: &[usize], weight: &[usize]) -> Result<Shape> {
        let fail = |rule: &str| Error::new(ErrorKind::Shape, OP, format!("shapes {x:?} and {weight:?}: {rule}"));
        let &[features, inputs] = weight else { return Err(fail("the weight must be [outputs, inputs]")) };
        match x.split_last() {
            None => Err(fail("the input has no axis to multiply along")),
            Some((&last, _)) if last != inputs => {
                Err(fail(&format!("the last axis of the input ({last}) must equal that of the weight ({inputs})")))
            }
            Some((_, batch)) => Shape::new(OP, &[batch, &[features]].concat()),
        }
    }

    /// Plans `out = activation(x @ weightᵀ + bias)`: `weight` is \[outputs, inputs\], `bias` \[outputs\].
    ///
    /// # Errors
    /// `DType` unless all are one float dtype; `Shape` as for [`shape`](Self::shape), for a bias that is not \[outputs\],
    /// and when `out` has another shape; `Argument` when `out` overlaps itself.
    pub fn new(
        x: View<'_>,
        weight: View<'_>,
        bias: Option<View<'_>>,
        activation: Activation,
        out: View<'_>,
    ) -> Result<Self> {
        check_domain(Op::Linear, out.dtype)?;
        for operand in [Some(x), Some(weight), bias].into_iter().flatten() {
            check_dtype(OP, operand.dtype, out.dtype)?;
        }
        let shape = Self::shape(x.layout.shape(), weight.layout.shape())?;
        check_shape(OP, "the output", out.layout.shape(), &shape)?;
        check_output(OP, out.layout)?;
        if let Some(bias) = bias {
            check_shape(OP, "the bias", bias.layout.shape(), &weight.layout.shape()[..1])?;
        }
        let columns = weight.layout.permute(&[1, 0])?;
        let weight_columns = View { dtype: weight.dtype, layout: &columns };
        let product = Matmul::new(x, weight_columns, Scalar::Float(1.0), Scalar::Float(0.0), out)?;
        let bias = bias.map(|bias| *bias.layout);
        Ok(Self { activation, product, x: *x.layout, weight: *weight.layout, bias, out: *out.layout })
    }

    /// What is applied to the sums.
    #[must_use]
    pub fn activation(&self) -> Activation {
        self.activation
    }

    /// The dtype of operands and result.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.product.dtype()
    }

    /// The product `out = x @ weightᵀ` alone.
    #[must_use]
    pub fn product(&self) -> &Matmul {
        &self.product
    }

    /// The layout of the input.
    #[must_use]
    pub fn x(&self) -> &Layout {
        &self.x
    }

    /// The layout of the weight, [outputs, inputs].
    #[must_use]
    pub fn weight(&self) -> &Layout {
        &self.weight
    }

    /// The layout of the bias, \[outputs\].
    #[must_use]
    pub fn bias(&self) -> Option<&Layout> {
        self.bias.as_ref()
    }

    /// The layout of the output.
    #[must_use]
    pub fn out(&self) -> &Layout {
        &self.out
    }

    /// Checks the storages of a call.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, or a bias is missing or too many.
    pub fn check<S: Storage>(&self, x: &S, weight: &S, bias: Option<&S>, out: &S) -> Result<()> {
        let dtype = self.dtype();
        check_storage(OP, "the output", dtype, self.out.min_len(), out)?;
        check_storage(OP, "the input", dtype, self.x.min_len(), x)?;
        check_storage(OP, "the weight", dtype, self.weight.min_len(), weight)?;
        match (bias, self.bias) {
            (Some(bias), Some(layout)) => check_storage(OP, "the bias", dtype, layout.min_len(), bias),
            (None, None) => Ok(()),
            (Some(_), None) => Err(Error::new(ErrorKind::Argument, OP, "a bias was given, the plan has none")),
            (None, Some(_)) => Err(Error::new(ErrorKind::Argument, OP, "the plan has a bias, none was given")),
        }
    }
}

/// Linear layers.
pub trait LinearOps: MatmulOps + UnaryOps + BinaryOps + CopyOps {
    /// Writes `activation(x @ weightᵀ + bias)` into `out`.
    ///
    /// # Contract
    /// - Every element of the planned output view is written, nothing else.
    /// - The sums are those of [`MatmulOps::matmul`]; the bias is added before the activation is applied, with a rounding
    ///   or as one more term.
    /// - The activation is as accurate as [`UnaryOps::unary`] has it.
    /// - f16 and bf16 are computed in f32 and rounded once.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, `OutOfMemory` for temporaries, and what the
    /// device reports.
    fn linear(
        &self,
        plan: &Linear,
        x: &Self::Storage,
        weight: &Self::Storage,
        bias: Option<&Self::Storage>,
        out: &mut Self::Storage,
    ) -> Result<()> {
        plan.check(x, weight, bias, out)?;
        if plan.out.count() == 0 {
            return Ok(());
        }
        let dtype = plan.dtype();
        if dtype.size() > 2 {
            self.matmul(&plan.product, x, weight, out)?;
            return finish(self, plan, dtype, bias.zip(plan.bias), &plan.out, out);
        }
        let widen = |storage: &Self::Storage, layout: &Layout| {
            let compact = Layout::contiguous(*layout.shape());
            let mut wide = self.alloc(DType::F32, compact.count())?;
            let plan = Copy::new(View { dtype, layout }, View { dtype: DType::F32, layout: &compact })?;
            self.copy(&plan, storage, &mut wide)?;
            Ok((wide, compact))
        };
        let over = |layout| View { dtype: DType::F32, layout };
        let (wide_x, x) = widen(x, &plan.x)?;
        let (wide_weight, weight) = widen(weight, &plan.weight.permute(&[1, 0])?)?;
        let compact = Layout::contiguous(*plan.out.shape());
        let mut sums = self.alloc(DType::F32, compact.count())?;
        let (one, zero) = (Scalar::Float(1.0), Scalar::Float(0.0));
        let product = Matmul::new(over(&x), over(&weight), one, zero, over(&compact))?;
        self.matmul(&product, &wide_x, &wide_weight, &mut sums)?;
        let bias = match (bias, plan.bias) {
            (Some(bias), Some(layout)) => Some(widen(bias, &layout)?),
            _ => None,
        };
        let bias = bias.as_ref().map(|(bias, layout)| (bias, *layout));
        finish(self, plan, DType::F32, bias, &compact, &mut sums)?;
        self.copy(&Copy::new(over(&compact), View { dtype, layout: &plan.out })?, &sums, out)
    }
}

/// Adds the bias to the sums in `out` and applies the activation, both in place.
fn finish<B: LinearOps + ?Sized>(
    backend: &B,
    plan: &Linear,
    dtype: DType,
    bias: Option<(&B::Storage, Layout)>,
    layout: &Layout,
    out: &mut B::Storage,
) -> Result<()> {
    let view = View { dtype, layout };
    if let Some((bias, bias_layout)) = bias {
        let rows = bias_layout.broadcast_to(OP, view.layout.shape())?;
        let bias_view = View { dtype, layout: &rows };
        let add = Binary::new(BinaryOp::Add, Source::Output, Source::View(bias_view), view)?;
        backend.binary(&add, None, Some(bias), out)?;
    }
    if let Some(function) = plan.activation.function() {
        backend.unary(&Unary::new(function, Source::Output, view)?, None, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DTYPE: DType = DType::F32;

    fn contiguous(sizes: &[usize]) -> Layout {
        Layout::contiguous(Shape::new("test", sizes).unwrap())
    }

    fn plan(x: &Layout, weight: &Layout, bias: Option<&Layout>, out: &Layout) -> Result<Linear> {
        let view = |layout| View { dtype: DTYPE, layout };
        Linear::new(view(x), view(weight), bias.map(view), Activation::Relu, view(out))
    }

    #[test]
    fn rows_of_a_batch_are_rows_of_one_product() {
        let (x, weight, out) = (contiguous(&[3, 4, 5]), contiguous(&[6, 5]), contiguous(&[3, 4, 6]));
        let all = *plan(&x, &weight, None, &out).unwrap().product();
        assert_eq!((all.m(), all.n(), all.k(), all.batch().count()), (12, 6, 5, 1));
        // One row each, and a batch that does not follow evenly.
        let single = *plan(&contiguous(&[4, 1, 5]), &weight, None, &contiguous(&[4, 1, 6])).unwrap().product();
        assert_eq!((single.m(), single.matrices()[1].row, single.batch().rank()), (4, 5, 0));
        let turned = contiguous(&[4, 3, 6]).permute(&[1, 0, 2]).unwrap();
        let apart = *plan(&x, &weight, None, &turned).unwrap().product();
        assert_eq!((apart.m(), apart.batch().count()), (4, 3));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (x, weight, out) = (contiguous(&[2, 5]), contiguous(&[3, 5]), contiguous(&[2, 3]));
        assert!(plan(&x, &weight, Some(&contiguous(&[3])), &out).is_ok());
        for (x, weight, bias, out) in [
            (&x, &weight, contiguous(&[5]), &out),
            (&x, &weight, contiguous(&[1]), &out),
            (&x, &weight, contiguous(&[2, 3]), &out),
            (&x, &x, contiguous(&[3]), &out),
            (&x, &out, contiguous(&[3]), &out),
            (&x, &weight, contiguous(&[3]), &x),
            (&contiguous(&[]), &weight, contiguous(&[3]), &out),
            (&x, &contiguous(&[1, 3, 5]), contiguous(&[3]), &out),
        ] {
            assert_eq!(plan(x, weight, Some(&bias), out).unwrap_err().kind(), ErrorKind::Shape);
        }
        let view = |dtype| View { dtype, layout: &x };
        let of = |dtype| Linear::new(view(dtype), view(dtype), None, Activation::Identity, view(dtype)).unwrap_err();
        assert_eq!(of(DType::I32).kind(), ErrorKind::DType);
    }
}
