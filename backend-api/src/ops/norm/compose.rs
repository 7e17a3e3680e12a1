//! The provided composition: each step of a norm is an op of the backend.

use super::{NormOps, Normalize, NormalizeOp};
use crate::compose::{Composer, Temporary};
use crate::elementwise::View;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::binary::BinaryOp;
use crate::ops::compare::CompareOp;
use crate::ops::copy::Copy;
use crate::ops::reduce::ReduceOp;
use crate::ops::unary::UnaryOp;

/// Runs a plan as a composition of other ops: what the provided methods do, for a backend whose own method leaves some
/// plans to it.
///
/// # Errors
/// As [`NormOps::normalize`].
pub fn compose<B: NormOps + ?Sized>(
    backend: &B,
    plan: &Normalize,
    inputs: [Option<&B::Storage>; 3],
    out: &mut B::Storage,
) -> Result<()> {
    plan.check(inputs, out)?;
    if plan.layouts[0].count() == 0 {
        return Ok(());
    }
    let compose = Compose { ops: Composer { backend, mask: plan.mask }, plan, inputs };
    let result = if plan.gradient { compose.gradient()? } else { compose.forward()? };
    let copy = Copy::new(result.view(), View { dtype: plan.dtype, layout: &plan.layouts[0] })?;
    backend.copy(&copy, &result.storage, out)
}

/// The composition of a plan.
struct Compose<'a, B: NormOps + ?Sized> {
    ops: Composer<'a, B>,
    plan: &'a Normalize,
    inputs: [Option<&'a B::Storage>; 3],
}

impl<B: NormOps + ?Sized> Compose<'_, B> {
    /// An input in the dtype of the computation and the shape of the output.
    fn input(&self, index: usize) -> Result<Option<Temporary<B::Storage>>> {
        let view = View { dtype: self.plan.dtype, layout: &self.plan.layouts[index + 1] };
        self.inputs[index].map(|storage| self.ops.widen(storage, view)).transpose()
    }

    /// An input that the plan's constructor asks for.
    fn required(&self, index: usize) -> Result<Temporary<B::Storage>> {
        self.input(index)?.ok_or_else(|| Error::new(ErrorKind::Argument, self.plan.op.name(), "an input is missing"))
    }

    fn forward(&self) -> Result<Temporary<B::Storage>> {
        let mut x = self.required(0)?;
        if !self.plan.op.is_affine() {
            let max = self.ops.reduce(ReduceOp::Max, &x)?;
            self.ops.binary(BinaryOp::Sub, &mut x, &max)?;
            if self.plan.op == NormalizeOp::Softmax {
                self.ops.unary(UnaryOp::Exp, &mut x)?;
                let sum = self.ops.reduce(ReduceOp::Sum, &x)?;
                self.ops.binary(BinaryOp::Div, &mut x, &sum)?;
                return Ok(x);
            }
            let mut exponentials = self.ops.copy(&x)?;
            self.ops.unary(UnaryOp::Exp, &mut exponentials)?;
            let mut sum = self.ops.reduce(ReduceOp::Sum, &exponentials)?;
            self.ops.unary(UnaryOp::Ln, &mut sum)?;
            self.ops.binary(BinaryOp::Sub, &mut x, &sum)?;
            return Ok(x);
        }
        self.unit_rows(&mut x)?;
        if let Some(weight) = self.input(1)? {
            self.ops.binary(BinaryOp::Mul, &mut x, &weight)?;
        }
        if let Some(bias) = self.input(2)? {
            self.ops.binary(BinaryOp::Add, &mut x, &bias)?;
        }
        Ok(x)
    }

    fn gradient(&self) -> Result<Temporary<B::Storage>> {
        let (mut x, mut grad) = (self.required(0)?, self.required(1)?);
        match self.plan.op {
            NormalizeOp::Softmax => {
                let mut product = self.ops.copy(&grad)?;
                self.ops.binary(BinaryOp::Mul, &mut product, &x)?;
                let sum = self.ops.reduce(ReduceOp::Sum, &product)?;
                self.ops.binary(BinaryOp::Sub, &mut grad, &sum)?;
                self.ops.binary(BinaryOp::Mul, &mut grad, &x)?;
                return Ok(grad);
            }
            NormalizeOp::LogSoftmax => {
                let sum = self.ops.reduce(ReduceOp::Sum, &grad)?;
                self.ops.unary(UnaryOp::Exp, &mut x)?;
                self.ops.binary(BinaryOp::Mul, &mut x, &sum)?;
                self.ops.binary(BinaryOp::Sub, &mut grad, &x)?;
                return Ok(grad);
            }
            NormalizeOp::L2Normalize | NormalizeOp::LayerNorm | NormalizeOp::RmsNorm => {}
        }
        let scale = self.unit_rows(&mut x)?;
        if let Some(weight) = self.input(2)? {
            self.ops.binary(BinaryOp::Mul, &mut grad, &weight)?;
        }
        let mut product = self.ops.copy(&grad)?;
        self.ops.binary(BinaryOp::Mul, &mut product, &x)?;
        if self.plan.op == NormalizeOp::L2Normalize {
            let sum = self.ops.reduce(ReduceOp::Sum, &product)?;
            // Below ε the divisor is constant.
            let varies = self.ops.compare(CompareOp::Gt, &scale, self.plan.epsilon())?;
            let sum = self.ops.choose(&varies, &sum, 0.0)?;
            self.ops.binary(BinaryOp::Mul, &mut x, &sum)?;
            self.ops.binary(BinaryOp::Sub, &mut grad, &x)?;
            self.ops.binary(BinaryOp::Div, &mut grad, &scale)?;
            return Ok(grad);
        }
        let along = self.ops.reduce(ReduceOp::Mean, &product)?;
        self.ops.binary(BinaryOp::Mul, &mut x, &along)?;
        if self.plan.op == NormalizeOp::LayerNorm {
            let mean = self.ops.reduce(ReduceOp::Mean, &grad)?;
            self.ops.binary(BinaryOp::Sub, &mut grad, &mean)?;
        }
        self.ops.binary(BinaryOp::Sub, &mut grad, &x)?;
        self.ops.binary(BinaryOp::Mul, &mut grad, &scale)?;
        Ok(grad)
    }

    /// Turns `x` into x̂; returns the factor r of each row, or for the L2 norm its divisor.
    fn unit_rows(&self, x: &mut Temporary<B::Storage>) -> Result<Temporary<B::Storage>> {
        if self.plan.op == NormalizeOp::LayerNorm {
            let mean = self.ops.reduce(ReduceOp::Mean, x)?;
            self.ops.binary(BinaryOp::Sub, x, &mean)?;
        }
        let mut square = self.ops.copy(x)?;
        self.ops.unary(UnaryOp::Square, &mut square)?;
        let epsilon = self.plan.epsilon();
        if self.plan.op == NormalizeOp::L2Normalize {
            let mut norm = self.ops.reduce(ReduceOp::Sum, &square)?;
            self.ops.unary(UnaryOp::Sqrt, &mut norm)?;
            self.ops.scale(BinaryOp::Maximum, &mut norm, epsilon)?;
            self.ops.binary(BinaryOp::Div, x, &norm)?;
            return Ok(norm);
        }
        let mut factor = self.ops.reduce(ReduceOp::Sum, &square)?;
        self.ops.scale(BinaryOp::Div, &mut factor, self.plan.width() as f64)?;
        self.ops.scale(BinaryOp::Add, &mut factor, epsilon)?;
        self.ops.unary(UnaryOp::Rsqrt, &mut factor)?;
        self.ops.binary(BinaryOp::Mul, x, &factor)?;
        Ok(factor)
    }
}
