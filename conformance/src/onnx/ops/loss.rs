//! Losses of classification: the score of the target class, picked by a comparison with every class.

use congruent_backend_api::DType;
use congruent_backend_api::ops::binary::BinaryOp::{Div, Mul};
use congruent_backend_api::ops::compare::CompareOp::Eq;
use congruent_backend_api::ops::norm::NormalizeOp;
use congruent_backend_api::ops::reduce::ReduceOp;
use congruent_backend_api::ops::unary::UnaryOp;

use super::Outputs;
use crate::onnx::node::{Lowered, Node};
use crate::onnx::trace::{Tensor, Trace};

pub(super) fn lower(trace: &Trace, node: &Node<'_>) -> Outputs {
    match node.op() {
        "NegativeLogLikelihoodLoss" => Ok(Some(vec![likelihood(trace, node, node.input(0)?)?])),
        "SoftmaxCrossEntropyLoss" => {
            let x = node.input(0)?;
            let scores = trace.normalize((NormalizeOp::LogSoftmax, 0.0), x, &[1], [None; 2])?;
            Ok(Some(vec![likelihood(trace, node, &scores)?, scores]))
        }
        _ => Ok(None),
    }
}

/// −Σ wₜ·xₜ over the targets t, divided by Σ wₜ for the mean; an ignored target has weight 0. Classes are axis 1.
fn likelihood(trace: &Trace, node: &Node<'_>, x: &Tensor) -> Lowered<Tensor> {
    let target = trace.cast(node.input(1)?, DType::I64)?;
    let &[_, classes, ..] = x.shape() else { return Err(node.not_covered("of rank below 2")) };
    let mut shape = vec![1; x.rank()];
    shape[1] = classes;
    let numbers = Tensor::arange(node.backend(), 0..classes as i64, DType::I64)?.reshape(&shape)?;
    let chosen = trace.compare(Eq, &numbers, &target.unsqueeze(1)?)?;
    let pick = |x: &Tensor| trace.reduce(ReduceOp::Sum, &trace.choose(&chosen, x, 0.0)?, Some(&[1]), false);
    let weights = match node.optional(2) {
        Some(weights) => weights.reshape(&shape)?,
        None => Tensor::ones(node.backend(), &shape, x.dtype())?,
    };
    let mut weight = pick(&weights)?;
    // Outside the classes no score is picked, and so no weight either.
    if let Some(ignored) = node.given("ignore_index") {
        weight = trace.choose(&trace.compare(Eq, &target, ignored)?, 0.0, &weight)?;
    }
    let loss = trace.unary(UnaryOp::Neg, &trace.binary(Mul, &pick(x)?, &weight)?)?;
    let sum = |x: &Tensor| trace.reduce(ReduceOp::Sum, x, None, false);
    match node.text("reduction", "mean").as_str() {
        "none" => Ok(loss),
        "sum" => sum(&loss),
        _ => trace.binary(Div, &sum(&loss)?, &sum(&weight)?),
    }
}
