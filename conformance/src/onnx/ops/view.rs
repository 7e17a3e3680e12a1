//! Other layouts of the same elements.

use congruent_backend_api::{Slice, axis};

use super::{Outputs, one};
use crate::onnx::node::{Lowered, Node, integers, sizes};
use crate::onnx::trace::{Tensor, Trace};

pub(super) fn lower(_: &Trace, node: &Node<'_>) -> Outputs {
    one(match node.op() {
        "DepthToSpace" => depth_to_space(node)?,
        "Expand" => expand(node)?,
        "Flatten" => flatten(node)?,
        "Reshape" => reshape(node)?,
        "Slice" => slice(node)?,
        "SpaceToDepth" => space_to_depth(node)?,
        "Squeeze" => squeeze(node)?,
        "Transpose" => transpose(node)?,
        "Unsqueeze" => unsqueeze(node)?,
        _ => return Ok(None),
    })
}

fn blocks(node: &Node<'_>) -> Lowered<([usize; 4], usize)> {
    let block = node.int("blocksize", 1).max(1) as usize;
    let shape = <[usize; 4]>::try_from(node.input(0)?.shape());
    shape.map(|shape| (shape, block)).map_err(|_| node.not_covered("of another rank than 4"))
}

fn depth_to_space(node: &Node<'_>) -> Lowered<Tensor> {
    let ([n, c, h, w], b) = blocks(node)?;
    let x = node.input(0)?;
    let blocks = if node.text("mode", "DCR") == "CRD" {
        x.reshape([n, c / (b * b), b, b, h, w])?.permute([0, 1, 4, 2, 5, 3])?
    } else {
        x.reshape([n, b, b, c / (b * b), h, w])?.permute([0, 3, 4, 1, 5, 2])?
    };
    Ok(blocks.reshape([n, c / (b * b), h * b, w * b])?)
}

fn space_to_depth(node: &Node<'_>) -> Lowered<Tensor> {
    let ([n, c, h, w], b) = blocks(node)?;
    let blocks = node.input(0)?.reshape([n, c, h / b, b, w / b, b])?;
    let blocks = if node.text("mode", "DCR") == "CRD" {
        blocks.permute([0, 1, 3, 5, 2, 4])?
    } else {
        blocks.permute([0, 3, 5, 1, 2, 4])?
    };
    Ok(blocks.reshape([n, c * b * b, h / b, w / b])?)
}

/// Broadcasts both ways: a size of 1 keeps the tensor's own.
fn expand(node: &Node<'_>) -> Lowered<Tensor> {
    let (x, mut shape) = (node.input(0)?, sizes(&integers(node.input(1)?)?)?);
    let rank = shape.len().max(x.rank());
    let missing = rank - shape.len();
    shape.splice(..0, vec![1; missing]);
    for (size, &own) in shape[rank - x.rank()..].iter_mut().zip(x.shape()) {
        *size = if *size == 1 { own } else { *size };
    }
    Ok(x.expand(shape)?)
}

fn flatten(node: &Node<'_>) -> Lowered<Tensor> {
    let x = node.input(0)?;
    // The axis may also be the one after the last, from which negative ones count.
    let rank = x.rank() as isize;
    let at = match node.size("axis", 1) {
        last if last == rank => x.rank(),
        along => axis("Flatten", along, x.rank())?,
    };
    let (outer, inner) = x.shape().split_at(at);
    Ok(x.reshape([outer.iter().product(), inner.iter().product()])?)
}

/// −1 is what remains, 0 the old size.
fn reshape(node: &Node<'_>) -> Lowered<Tensor> {
    let x = node.input(0)?;
    let keep_zero = node.flag("allowzero", false);
    let mut shape = node.operand_or_attribute(1, "shape")?.unwrap_or_default();
    for (axis, size) in shape.iter_mut().enumerate() {
        if *size == 0 && !keep_zero {
            *size = x.shape().get(axis).map_or(0, |&own| own as isize);
        }
    }
    let known = shape.iter().filter(|&&size| size != -1).fold(1_isize, |known, &size| known.saturating_mul(size));
    for size in shape.iter_mut().filter(|size| **size == -1) {
        *size = x.count() as isize / known.max(1);
    }
    Ok(x.reshape(sizes(&shape)?)?)
}

fn slice(node: &Node<'_>) -> Lowered<Tensor> {
    let mut x = node.input(0)?.clone();
    let required = |index, name| node.operand_or_attribute(index, name).map(Option::unwrap_or_default);
    let (starts, ends) = (required(1, "starts")?, required(2, "ends")?);
    let axes = node.operand_or_attribute(3, "axes")?.unwrap_or_else(|| (0..starts.len() as isize).collect());
    let steps = node.operand_or_attribute(4, "steps")?.unwrap_or_else(|| vec![1; starts.len()]);
    for (((start, stop), axis), step) in starts.into_iter().zip(ends).zip(axes).zip(steps) {
        x = x.slice(axis, Slice { start: Some(start), stop: Some(stop), step })?;
    }
    Ok(x)
}

fn squeeze(node: &Node<'_>) -> Lowered<Tensor> {
    let x = node.input(0)?;
    let ones = || (0..x.rank()).filter(|&axis| x.shape()[axis] == 1).map(|axis| axis as isize).collect();
    let axes: Vec<isize> = node.operand_or_attribute(1, "axes")?.unwrap_or_else(ones);
    Ok(from_front("Squeeze", &axes, x.rank())?.into_iter().rev().try_fold(x.clone(), |x, axis| x.squeeze(axis))?)
}

fn unsqueeze(node: &Node<'_>) -> Lowered<Tensor> {
    let x = node.input(0)?;
    let axes = node.operand_or_attribute(1, "axes")?.unwrap_or_default();
    let rank = x.rank() + axes.len();
    Ok(from_front("Unsqueeze", &axes, rank)?.into_iter().try_fold(x.clone(), |x, axis| x.unsqueeze(axis))?)
}

/// The axes in order, none of them negative.
fn from_front(op: &'static str, axes: &[isize], rank: usize) -> Lowered<Vec<isize>> {
    let mut axes = axes.iter().map(|&given| Ok(axis(op, given, rank)? as isize)).collect::<Lowered<Vec<_>>>()?;
    axes.sort_unstable();
    Ok(axes)
}

fn transpose(node: &Node<'_>) -> Lowered<Tensor> {
    let x = node.input(0)?;
    let reversed = || (0..x.rank() as isize).rev().collect();
    Ok(x.permute(node.ints("perm").unwrap_or_else(reversed))?)
}
