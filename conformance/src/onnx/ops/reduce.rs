//! Reductions and searches.

use congruent_backend_api::ops::binary::BinaryOp;
use congruent_backend_api::ops::reduce::{ArgReduceOp, ReduceOp};
use congruent_backend_api::ops::statistic::StatisticOp;
use congruent_backend_api::ops::unary::UnaryOp;
use congruent_backend_api::{DType, axis};

use super::{Outputs, one};
use crate::onnx::node::{Lowered, Node};
use crate::onnx::trace::{Tensor, Trace};

pub(super) fn lower(trace: &Trace, node: &Node<'_>) -> Outputs {
    match node.op() {
        "ArgMax" => one(position(trace, node, ArgReduceOp::Argmax)?),
        "ArgMin" => one(position(trace, node, ArgReduceOp::Argmin)?),
        "GlobalAveragePool" => one(global(trace, node, ReduceOp::Mean)?),
        "GlobalMaxPool" => one(global(trace, node, ReduceOp::Max)?),
        name if name.starts_with("Reduce") => reduction(trace, node),
        _ => Ok(None),
    }
}

fn reduction(trace: &Trace, node: &Node<'_>) -> Outputs {
    let x = node.input(0)?;
    let axes = node.operand_or_attribute(1, "axes")?;
    let (keepdim, noop) = (node.flag("keepdims", true), node.flag("noop_with_empty_axes", false));
    // No axes mean all, unless they mean none.
    let axes = axes.filter(|axes| !axes.is_empty()).or(noop.then(Vec::new));
    let axes = axes.as_deref();
    let statistic = |op, parameter| trace.statistic((op, parameter), x, axes, keepdim);
    let sum = |x: &Tensor| trace.reduce(ReduceOp::Sum, x, axes, keepdim);
    one(match (node.op(), x.dtype()) {
        ("ReduceL1", _) => statistic(StatisticOp::Norm, 1.0)?,
        ("ReduceL2", _) => statistic(StatisticOp::Norm, 2.0)?,
        ("ReduceLogSum", _) => trace.unary(UnaryOp::Ln, &sum(x)?)?,
        ("ReduceLogSumExp", _) => statistic(StatisticOp::LogSumExp, 0.0)?,
        ("ReduceMax", DType::Bool) => trace.reduce(ReduceOp::Any, x, axes, keepdim)?,
        ("ReduceMax", _) => extreme(trace, node, ReduceOp::Max, axes, keepdim)?,
        ("ReduceMean", _) => trace.reduce(ReduceOp::Mean, x, axes, keepdim)?,
        ("ReduceMin", DType::Bool) => trace.reduce(ReduceOp::All, x, axes, keepdim)?,
        ("ReduceMin", _) => extreme(trace, node, ReduceOp::Min, axes, keepdim)?,
        ("ReduceProd", _) => trace.reduce(ReduceOp::Prod, x, axes, keepdim)?,
        ("ReduceSum", _) => sum(x)?,
        ("ReduceSumSquare", _) => sum(&trace.unary(UnaryOp::Square, x)?)?,
        _ => return Ok(None),
    })
}

/// ONNX has a greatest element of nothing, which here is an error.
fn extreme(trace: &Trace, node: &Node<'_>, op: ReduceOp, axes: Option<&[isize]>, keepdim: bool) -> Lowered<Tensor> {
    let x = node.input(0)?;
    if x.count() == 0 {
        return Err(node.not_covered("of nothing, by contract an error"));
    }
    trace.reduce(op, x, axes, keepdim)
}

/// The last extreme is the first one from behind.
fn position(trace: &Trace, node: &Node<'_>, op: ArgReduceOp) -> Lowered<Tensor> {
    let x = node.input(0)?;
    let (along, keepdim) = (node.size("axis", 0), node.flag("keepdims", true));
    if !node.flag("select_last_index", false) {
        return trace.position(op, x, along, keepdim);
    }
    let from_behind = trace.position(op, &x.flip([along])?, along, keepdim)?;
    let size = x.shape()[axis(op.name(), along, x.rank())?];
    trace.binary(BinaryOp::Sub, size as i64 - 1, &from_behind)
}

fn global(trace: &Trace, node: &Node<'_>, op: ReduceOp) -> Lowered<Tensor> {
    let x = node.input(0)?;
    let space: Vec<isize> = (2..x.rank() as isize).collect();
    trace.reduce(op, x, Some(&space), true)
}
