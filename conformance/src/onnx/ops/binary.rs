//! Arithmetic of two or more operands.

use congruent_backend_api::Scalar;
use congruent_backend_api::ops::binary::BinaryOp;

use super::{Outputs, one};
use crate::onnx::node::{Lowered, Node, Stop};
use crate::onnx::trace::{Tensor, Trace};

pub(super) fn lower(trace: &Trace, node: &Node<'_>) -> Outputs {
    let op = match node.op() {
        "Add" => BinaryOp::Add,
        "BitShift" if node.text("direction", "") == "LEFT" => BinaryOp::Shl,
        "BitShift" => BinaryOp::Shr,
        "BitwiseAnd" => BinaryOp::BitwiseAnd,
        "BitwiseOr" => BinaryOp::BitwiseOr,
        "BitwiseXor" => BinaryOp::BitwiseXor,
        "Div" => BinaryOp::Div,
        "Max" => return one(fold(trace, node, BinaryOp::Maximum)?),
        "Mean" => return one(mean(trace, node)?),
        "Min" => return one(fold(trace, node, BinaryOp::Minimum)?),
        "Mod" if node.flag("fmod", false) => BinaryOp::Rem,
        "Mod" => BinaryOp::Modulo,
        "Mul" => BinaryOp::Mul,
        "Pow" => return one(pow(trace, node)?),
        "Sub" => BinaryOp::Sub,
        "Sum" => return one(fold(trace, node, BinaryOp::Add)?),
        _ => return Ok(None),
    };
    one(trace.binary(op, node.input(0)?, node.input(1)?)?)
}

/// Any number of operands, one after another.
fn fold(trace: &Trace, node: &Node<'_>, op: BinaryOp) -> Lowered<Tensor> {
    let operands = node.all();
    let (&first, rest) =
        operands.split_first().ok_or_else(|| Stop::Malformed(format!("{} without operands", node.op())))?;
    rest.iter().try_fold(first.clone(), |sum, &operand| trace.binary(op, &sum, operand))
}

fn mean(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let sum = fold(trace, node, BinaryOp::Add)?;
    trace.binary(BinaryOp::Div, &sum, Scalar::Int(node.all().len() as i64))
}

/// The result has the dtype of the base; in between, a fractional exponent of an integer needs its own.
fn pow(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let (base, exponent) = (node.input(0)?, node.input(1)?);
    if exponent.dtype().is_float() && !base.dtype().is_float() {
        let power = trace.binary(BinaryOp::Pow, &trace.cast(base, exponent.dtype())?, exponent)?;
        return trace.cast(&power, base.dtype());
    }
    trace.binary(BinaryOp::Pow, base, &trace.cast(exponent, base.dtype())?)
}
