//! Casts, constants, and what puts tensors together or takes them apart.

use congruent::ops::Pad;
use congruent_backend_api::ops::binary::BinaryOp;
use congruent_backend_api::ops::compare::CompareOp;
use congruent_backend_api::{DType, Scalar, axis};

use super::{Outputs, one};
use crate::onnx::graph::upload;
use crate::onnx::node::{Lowered, Node, Numbers, Stop, integers, only, sizes};
use crate::onnx::tensor::{dtype, host};
use crate::onnx::trace::{Tensor, Trace};

pub(super) fn lower(trace: &Trace, node: &Node<'_>) -> Outputs {
    match node.op() {
        "Cast" => {
            let to = dtype(node.int("to", 0) as i32)?;
            one(cast(trace, node, to)?)
        }
        "CastLike" => one(cast(trace, node, node.input(1)?.dtype())?),
        "Concat" => one(Tensor::cat(&node.all(), node.size("axis", 0))?),
        "Constant" => one(constant(node)?),
        "ConstantOfShape" => one(constant_of_shape(node)?),
        "Dropout" => dropout(node),
        "EyeLike" => one(eye_like(node)?),
        "Identity" => one(node.input(0)?.clone()),
        "OneHot" => one(one_hot(trace, node)?),
        "Pad" => one(pad(node)?),
        "Range" => one(range(node)?),
        "Shape" => one(shape(node)?),
        "Size" => one(Tensor::full(node.backend(), node.input(0)?.count() as i64, [], DType::I64)?),
        "Split" => Ok(Some(split(node)?)),
        "Tile" => one(tile(node)?),
        "Trilu" => one(trilu(trace, node)?),
        _ => Ok(None),
    }
}

fn cast(trace: &Trace, node: &Node<'_>, to: DType) -> Lowered<Tensor> {
    // Both concern casts to formats of 8 bits only.
    node.flag("saturate", true);
    node.text("round_mode", "up");
    trace.cast(node.input(0)?, to)
}

fn constant(node: &Node<'_>) -> Lowered<Tensor> {
    if let Some(value) = node.tensor("value") {
        return upload(node.backend(), &host(value)?);
    }
    let backend = node.backend();
    let numbers = ["value_int", "value_ints", "value_float", "value_floats"].into_iter();
    match numbers.filter_map(|name| node.numbers(name)).next() {
        Some(Numbers::Ints(values, listed)) => Ok(Tensor::from_slice(backend, values, axes(listed, values.len()))?),
        Some(Numbers::Floats(values, listed)) => Ok(Tensor::from_slice(backend, values, axes(listed, values.len()))?),
        None => Err(node.not_covered("of strings or sparse")),
    }
}

fn axes(listed: bool, size: usize) -> Vec<usize> {
    if listed { vec![size] } else { Vec::new() }
}

fn constant_of_shape(node: &Node<'_>) -> Lowered<Tensor> {
    let shape = sizes(&integers(node.input(0)?)?)?;
    match node.tensor("value") {
        Some(value) => Ok(upload(node.backend(), &host(value)?)?.reshape([])?.expand(shape)?),
        None => Ok(Tensor::zeros(node.backend(), shape, DType::F32)?),
    }
}

/// In inference nothing is dropped.
fn dropout(node: &Node<'_>) -> Outputs {
    let x = node.input(0)?;
    if node.scalar(2)?.is_some_and(Scalar::to_bool) {
        return Err(node.not_covered("in training"));
    }
    // Neither matters in inference.
    node.optional(1);
    node.int("seed", 0);
    node.float("ratio", 0.5);
    Ok(Some(vec![x.clone(), Tensor::ones(node.backend(), x.shape(), DType::Bool)?]))
}

/// Column minus row of each element of a matrix.
fn diagonals(trace: &Trace, node: &Node<'_>, rows: usize, columns: usize) -> Lowered<Tensor> {
    let indices = |size: usize| Tensor::arange(node.backend(), 0..size as i64, DType::I64);
    trace.binary(BinaryOp::Sub, &indices(columns)?, &indices(rows)?.unsqueeze(1)?)
}

fn eye_like(node: &Node<'_>) -> Lowered<Tensor> {
    let x = node.input(0)?;
    let (k, to) = (node.size("k", 0), node.int("dtype", 0));
    let &[rows, columns] = x.shape() else { return Err(node.not_covered("of another rank than 2")) };
    let dtype = if to == 0 { x.dtype() } else { dtype(to as i32)? };
    Ok(Tensor::eye(node.backend(), rows, columns, k, dtype)?)
}

fn trilu(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let x = node.input(0)?;
    let k = node.scalar(1)?.unwrap_or(Scalar::Int(0));
    let side = if node.flag("upper", true) { CompareOp::Ge } else { CompareOp::Le };
    let &[.., rows, columns] = x.shape() else { return Err(node.not_covered("of rank below 2")) };
    let kept = trace.compare(side, &diagonals(trace, node, rows, columns)?, k)?;
    trace.choose(&kept, x, zero(x.dtype()))
}

fn zero(dtype: DType) -> Scalar {
    if dtype == DType::Bool { Scalar::Bool(false) } else { Scalar::Int(0) }
}

/// A negative index counts from the end; one outside chooses nothing.
fn one_hot(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let (indices, values) = (trace.cast(node.input(0)?, DType::I64)?, node.input(2)?);
    let depth = only(node.input(1)?)?.to_i64();
    let along = node.size("axis", -1);
    let mut shape = vec![1; indices.rank() + 1];
    let at = axis("OneHot", along, shape.len())?;
    shape[at] = usize::try_from(depth).unwrap_or(0);
    let classes = Tensor::arange(node.backend(), 0..depth, DType::I64)?.reshape(shape)?;
    let indices = indices.unsqueeze(along)?;
    let from_front = trace.compare(CompareOp::Eq, &classes, &indices)?;
    let from_end = trace.compare(CompareOp::Eq, &trace.binary(BinaryOp::Sub, &classes, depth)?, &indices)?;
    let chosen = trace.compare(CompareOp::LogicalOr, &from_front, &from_end)?;
    trace.choose(&chosen, &values.select(0, 1)?, &values.select(0, 0)?)
}

/// A border, of all axes or those that are named; a negative width cuts off.
fn pad(node: &Node<'_>) -> Lowered<Tensor> {
    let x = node.input(0)?;
    let value = node.scalar(2)?.unwrap_or_else(|| zero(x.dtype()));
    let mode = match node.text("mode", "constant").as_str() {
        "constant" => Pad::Constant(value),
        "edge" => Pad::Replicate,
        "reflect" => Pad::Reflect,
        "wrap" => Pad::Circular,
        mode => return Err(node.not_covered(&format!("with `mode` {mode}"))),
    };
    let widths = integers(node.input(1)?)?;
    let all = || (0..x.rank() as isize).collect();
    let axes: Vec<isize> = node.optional(3).map_or_else(|| Ok(all()), integers)?;
    if widths.len() != 2 * axes.len() {
        return Err(Stop::Malformed(format!("{} widths for the edges of {} axes", widths.len(), axes.len())));
    }
    let mut pads = vec![[0; 2]; x.rank()];
    for (index, &along) in axes.iter().enumerate() {
        pads[axis("Pad", along, x.rank())?] = [widths[index], widths[index + axes.len()]];
    }
    Ok(x.pad(pads, mode)?)
}

/// start + i·delta.
fn range(node: &Node<'_>) -> Lowered<Tensor> {
    let [start, limit, delta] = [only(node.input(0)?)?, only(node.input(1)?)?, only(node.input(2)?)?];
    Ok(Tensor::arange_step(node.backend(), start, limit, delta, node.input(0)?.dtype())?)
}

fn shape(node: &Node<'_>) -> Lowered<Tensor> {
    let sizes: Vec<i64> = node.input(0)?.shape().iter().map(|&size| size as i64).collect();
    let shape = Tensor::from_slice(node.backend(), &sizes, [sizes.len()])?;
    let (start, end) = (node.size("start", 0), node.size("end", i64::MAX));
    Ok(shape.slice(0, start..end)?)
}

fn split(node: &Node<'_>) -> Lowered<Vec<Tensor>> {
    let x = node.input(0)?;
    let along = node.size("axis", 0);
    let size = x.shape()[axis("Split", along, x.rank())?];
    let pieces = node.int("num_outputs", node.outputs() as i64).clamp(0, node.outputs() as i64) as usize;
    let lengths = match node.operand_or_attribute(1, "split")? {
        Some(lengths) => sizes(&lengths)?,
        None => {
            let length = size.div_ceil(pieces.max(1));
            (0..pieces).map(|piece| length.min(size.saturating_sub(piece * length))).collect()
        }
    };
    Ok(x.split(lengths, along)?)
}

fn tile(node: &Node<'_>) -> Lowered<Tensor> {
    Ok(node.input(0)?.tile(sizes(&integers(node.input(1)?)?)?)?)
}
