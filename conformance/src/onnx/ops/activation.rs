//! Activations that the frontend has no method for: what users write from those that it has.

use congruent_backend_api::ops::binary::BinaryOp::{Add, Div, Mul, Sub};
use congruent_backend_api::ops::compare::CompareOp::{Eq, Ge, Gt, Lt};
use congruent_backend_api::ops::norm::NormalizeOp;
use congruent_backend_api::ops::reduce::ArgReduceOp;
use congruent_backend_api::ops::unary::UnaryOp;
use congruent_backend_api::{DType, Scalar, axis};

use super::{Outputs, one};
use crate::onnx::node::{Lowered, Node};
use crate::onnx::trace::{Tensor, Trace};

pub(super) fn lower(trace: &Trace, node: &Node<'_>) -> Outputs {
    let x = || node.input(0);
    one(match node.op() {
        "Celu" => {
            let alpha = node.float("alpha", 1.0);
            let tail = trace.binary(Mul, &trace.unary(UnaryOp::Expm1, &trace.binary(Div, x()?, alpha)?)?, alpha)?;
            trace.choose(&trace.compare(Ge, x()?, 0.0)?, x()?, &tail)?
        }
        "Elu" => elu(trace, x()?, node.float("alpha", 1.0))?,
        "HardSigmoid" => hard_sigmoid(trace, x()?, node.float("alpha", 0.2), node.float("beta", 0.5))?,
        "HardSwish" => trace.binary(Mul, x()?, &hard_sigmoid(trace, x()?, 1.0 / 6.0, 0.5)?)?,
        "Hardmax" => hardmax(trace, node)?,
        "LeakyRelu" => {
            let tail = trace.binary(Mul, x()?, node.float("alpha", 0.01))?;
            trace.choose(&trace.compare(Ge, x()?, 0.0)?, x()?, &tail)?
        }
        "LogSoftmax" => softmax(trace, node, NormalizeOp::LogSoftmax)?,
        "Mish" => {
            let gate = trace.unary(UnaryOp::Tanh, &trace.unary(UnaryOp::Softplus, x()?)?)?;
            trace.binary(Mul, x()?, &gate)?
        }
        "PRelu" => {
            let tail = trace.binary(Mul, x()?, node.input(1)?)?;
            trace.choose(&trace.compare(Ge, x()?, 0.0)?, x()?, &tail)?
        }
        "Selu" => {
            let (alpha, gamma) = (node.float("alpha", 1.673_263_2), node.float("gamma", 1.050_701));
            trace.binary(Mul, &elu(trace, x()?, alpha)?, gamma)?
        }
        "Shrink" => shrink(trace, x()?, node.float("lambd", 0.5), node.float("bias", 0.0))?,
        "Softmax" => softmax(trace, node, NormalizeOp::Softmax)?,
        "Softsign" => {
            let scale = trace.binary(Add, &trace.unary(UnaryOp::Abs, x()?)?, 1.0)?;
            trace.binary(Div, x()?, &scale)?
        }
        "Swish" => {
            let gate = trace.unary(UnaryOp::Sigmoid, &trace.binary(Mul, x()?, node.float("alpha", 1.0))?)?;
            trace.binary(Mul, x()?, &gate)?
        }
        "ThresholdedRelu" => trace.choose(&trace.compare(Gt, x()?, node.float("alpha", 1.0))?, x()?, 0.0)?,
        _ => return Ok(None),
    })
}

fn softmax(trace: &Trace, node: &Node<'_>, op: NormalizeOp) -> Lowered<Tensor> {
    trace.normalize((op, 0.0), node.input(0)?, &[node.size("axis", -1)], [None; 2])
}

fn elu(trace: &Trace, x: &Tensor, alpha: f64) -> Lowered<Tensor> {
    let tail = trace.binary(Mul, &trace.unary(UnaryOp::Expm1, x)?, alpha)?;
    trace.choose(&trace.compare(Ge, x, 0.0)?, x, &tail)
}

fn hard_sigmoid(trace: &Trace, x: &Tensor, alpha: f64, beta: f64) -> Lowered<Tensor> {
    let line = trace.binary(Add, &trace.binary(Mul, x, alpha)?, beta)?;
    trace.clamp(&line, Some(Scalar::Float(0.0)), Some(Scalar::Float(1.0)))
}

/// One at the first greatest element, else zero.
fn hardmax(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let x = node.input(0)?;
    let along = node.size("axis", -1);
    let first = trace.position(ArgReduceOp::Argmax, x, along, true)?;
    let at = axis("Hardmax", along, x.rank())?;
    let mut shape = vec![1; x.rank()];
    shape[at] = x.shape()[at];
    let positions = Tensor::arange(node.backend(), 0..shape[at] as i64, DType::I64)?.reshape(shape)?;
    trace.cast(&trace.compare(Eq, &positions, &first)?, x.dtype())
}

fn shrink(trace: &Trace, x: &Tensor, lambda: f64, bias: f64) -> Lowered<Tensor> {
    let (low, high) = (trace.compare(Lt, x, -lambda)?, trace.compare(Gt, x, lambda)?);
    let upper = trace.choose(&high, &trace.binary(Sub, x, bias)?, 0.0)?;
    trace.choose(&low, &trace.binary(Add, x, bias)?, &upper)
}
