//! Comparisons, choices and limits.

use congruent_backend_api::ops::compare::CompareOp;

use super::{Outputs, one};
use crate::onnx::node::Node;
use crate::onnx::trace::Trace;

pub(super) fn lower(trace: &Trace, node: &Node<'_>) -> Outputs {
    let op = match node.op() {
        "And" => CompareOp::LogicalAnd,
        "Clip" => return one(trace.clamp(node.input(0)?, node.scalar(1)?, node.scalar(2)?)?),
        "Equal" => CompareOp::Eq,
        "Greater" => CompareOp::Gt,
        "GreaterOrEqual" => CompareOp::Ge,
        "Less" => CompareOp::Lt,
        "LessOrEqual" => CompareOp::Le,
        "Or" => CompareOp::LogicalOr,
        "Where" => return one(trace.choose(node.input(0)?, node.input(1)?, node.input(2)?)?),
        "Xor" => CompareOp::LogicalXor,
        _ => return Ok(None),
    };
    one(trace.compare(op, node.input(0)?, node.input(1)?)?)
}
