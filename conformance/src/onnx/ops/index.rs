//! Reading and writing at positions that are data. ONNX's negative indices count from the end, those of tensors here do
//! not: they are moved into the axis first.

use congruent_backend_api::ops::index::ScatterOp;
use congruent_backend_api::{DType, axis};

use super::{Outputs, one};
use crate::onnx::node::{Lowered, Node};
use crate::onnx::trace::{Tensor, Trace};

pub(super) fn lower(trace: &Trace, node: &Node<'_>) -> Outputs {
    one(match node.op() {
        "Compress" => compress(node)?,
        "Gather" => gather(trace, node)?,
        "GatherElements" => gather_elements(trace, node)?,
        "NonZero" => node.input(0)?.nonzero()?.t()?,
        "ScatterElements" => scatter_elements(trace, node)?,
        _ => return Ok(None),
    })
}

/// The indices, those from the end as positions from the front.
fn positions(index: &Tensor, size: usize) -> Lowered<Tensor> {
    let index = index.cast(DType::I64)?;
    Ok(index.lt(0_i64)?.where_cond(&index.add(size as i64)?, &index)?)
}

fn along(node: &Node<'_>, x: &Tensor) -> Lowered<usize> {
    Ok(axis("axis", node.size("axis", 0), x.rank())?)
}

/// Without an axis the elements are taken from the flattened tensor; a short condition leaves out the rest.
fn compress(node: &Node<'_>) -> Lowered<Tensor> {
    let (x, condition) = (node.input(0)?, node.input(1)?);
    let chosen = condition.flatnonzero()?;
    match node.given("axis") {
        Some(_) => Ok(x.index_select(along(node, x)? as isize, &chosen)?),
        None => Ok(x.take(&chosen)?),
    }
}

fn gather(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let (x, index) = (node.input(0)?, node.input(1)?);
    let at = along(node, x)?;
    let mut shape = x.shape().to_vec();
    shape.splice(at..=at, index.shape().iter().copied());
    let mut spread = vec![1; x.rank()];
    spread[at] = index.count();
    let index = positions(index, x.shape()[at])?.reshape(spread)?;
    Ok(trace.gather(x, at as isize, &index)?.reshape(shape)?)
}

fn gather_elements(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let (x, index) = (node.input(0)?, node.input(1)?);
    let at = along(node, x)?;
    trace.gather(x, at as isize, &positions(index, x.shape()[at])?)
}

fn scatter_elements(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let (x, index, src) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let at = along(node, x)?;
    let op = match node.text("reduction", "none").as_str() {
        "none" => ScatterOp::Set,
        "add" => ScatterOp::Add,
        "max" => ScatterOp::Max,
        "min" => ScatterOp::Min,
        other => return Err(node.not_covered(&format!("with reduction {other}"))),
    };
    if (0..x.rank()).any(|axis| axis != at && index.shape()[axis] != x.shape()[axis]) {
        return Err(node.not_covered("into a part of the other axes"));
    }
    trace.scatter(op, x, at as isize, &positions(index, x.shape()[at])?, src)
}
