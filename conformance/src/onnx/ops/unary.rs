//! Functions of one operand.

use congruent_backend_api::ops::binary::BinaryOp;
use congruent_backend_api::ops::compare::CompareOp;
use congruent_backend_api::ops::unary::UnaryOp;

use super::{Outputs, one};
use crate::onnx::node::{Lowered, Node};
use crate::onnx::trace::{Tensor, Trace};

pub(super) fn lower(trace: &Trace, node: &Node<'_>) -> Outputs {
    let op = match node.op() {
        "Abs" => UnaryOp::Abs,
        "Acos" => UnaryOp::Acos,
        "Acosh" => UnaryOp::Acosh,
        "Asin" => UnaryOp::Asin,
        "Asinh" => UnaryOp::Asinh,
        "Atan" => UnaryOp::Atan,
        "Atanh" => UnaryOp::Atanh,
        "BitwiseNot" => UnaryOp::BitwiseNot,
        "Ceil" => UnaryOp::Ceil,
        "Cos" => UnaryOp::Cos,
        "Cosh" => UnaryOp::Cosh,
        "Erf" => UnaryOp::Erf,
        "Exp" => UnaryOp::Exp,
        "Floor" => UnaryOp::Floor,
        "Gelu" => match node.text("approximate", "none").as_str() {
            "none" => UnaryOp::Gelu,
            "tanh" => UnaryOp::GeluTanh,
            _ => return Err(node.not_covered("with another `approximate` than none and tanh")),
        },
        "IsInf" => return one(is_inf(trace, node)?),
        "IsNaN" => UnaryOp::IsNan,
        "Log" => UnaryOp::Ln,
        "Neg" => UnaryOp::Neg,
        "Not" => UnaryOp::LogicalNot,
        "Reciprocal" => UnaryOp::Recip,
        "Relu" => UnaryOp::Relu,
        "Round" => UnaryOp::Round,
        "Sigmoid" => UnaryOp::Sigmoid,
        "Sign" => UnaryOp::Sign,
        "Sin" => UnaryOp::Sin,
        "Sinh" => UnaryOp::Sinh,
        "Softplus" => UnaryOp::Softplus,
        "Sqrt" => UnaryOp::Sqrt,
        "Tan" => UnaryOp::Tan,
        "Tanh" => UnaryOp::Tanh,
        _ => return Ok(None),
    };
    one(trace.unary(op, node.input(0)?)?)
}

/// Each sign can be left out.
fn is_inf(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let x = node.input(0)?;
    let infinite = trace.unary(UnaryOp::IsInf, x)?;
    let side = match (node.flag("detect_negative", true), node.flag("detect_positive", true)) {
        (true, true) => return Ok(infinite),
        (false, true) => trace.compare(CompareOp::Gt, x, 0.0)?,
        (true, false) => trace.compare(CompareOp::Lt, x, 0.0)?,
        (false, false) => trace.compare(CompareOp::Ne, &infinite, &infinite)?,
    };
    trace.binary(BinaryOp::BitwiseAnd, &infinite, &side)
}
