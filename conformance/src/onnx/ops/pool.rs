//! Pooling.

use congruent_backend_api::DType;
use congruent_backend_api::ops::conv::MAX_SPATIAL;
use congruent_backend_api::ops::index::ScatterOp;
use congruent_backend_api::ops::pool::{Divisor, PoolOp, PoolOptions};
use congruent_backend_api::ops::statistic::StatisticOp;

use super::conv::{counts, fill, halves, spatial};
use super::{Outputs, one};
use crate::onnx::node::{Lowered, Node, integers, sizes};
use crate::onnx::trace::{Tensor, Trace};

pub(super) fn lower(trace: &Trace, node: &Node<'_>) -> Outputs {
    match node.op() {
        "AveragePool" => {
            let divisor = if node.flag("count_include_pad", false) { Divisor::Padded } else { Divisor::Elements };
            one(trace.pool(PoolOp::AvgPool, node.input(0)?, PoolOptions { divisor, ..options(node)? })?)
        }
        "GlobalLpPool" => {
            let order = node.int("p", 2) as f64;
            let space: Vec<isize> = (2..node.input(0)?.rank() as isize).collect();
            one(trace.statistic((StatisticOp::Norm, order), node.input(0)?, Some(&space), true)?)
        }
        "LpPool" => one(trace.compose(node.input(0)?.lp_pool(node.int("p", 2) as f64, options(node)?))?),
        "MaxPool" => max(trace, node),
        "MaxUnpool" => one(unpool(trace, node)?),
        _ => Ok(None),
    }
}

fn options(node: &Node<'_>) -> Lowered<PoolOptions> {
    let x = node.input(0)?;
    if !(3..=2 + MAX_SPATIAL).contains(&x.rank()) {
        return Err(node.not_covered(&format!("of rank {}", x.rank())));
    }
    let axes = x.rank() - 2;
    let mut options = PoolOptions { stride: [1; MAX_SPATIAL], ..PoolOptions::new([1; MAX_SPATIAL]) };
    fill(&mut options.kernel, axes, &counts(&node.ints("kernel_shape").unwrap_or_default())?)?;
    spatial(node, axes, &mut options.stride, &mut options.dilation, &mut options.padding)?;
    options.ceil = node.flag("ceil_mode", false);
    let pad = node.text("auto_pad", "NOTSET");
    if pad.starts_with("SAME") {
        for (axis, &size) in x.shape()[2..].iter().enumerate() {
            // As many windows as strides begin in the input.
            let (stride, span) = (options.stride[axis].max(1), options.kernel[axis].saturating_sub(1));
            let extent = options.dilation[axis] * span + 1;
            let needed = size.div_ceil(stride).saturating_sub(1) * stride + extent;
            options.padding[axis] = halves(needed.saturating_sub(size), pad == "SAME_UPPER");
        }
    }
    Ok(options)
}

/// Positions count through the whole tensor, within a channel by rows or, with `storage_order` 1, by columns.
fn max(trace: &Trace, node: &Node<'_>) -> Outputs {
    let (x, options, columns) = (node.input(0)?, options(node)?, node.flag("storage_order", false));
    let maxima = trace.pool(PoolOp::MaxPool, x, options)?;
    if node.outputs() < 2 {
        return one(maxima);
    }
    let space: usize = x.shape()[2..].iter().product();
    let mut indices = trace.pool(PoolOp::ArgmaxPool, x, options)?;
    if columns {
        let &[.., rows, size] = x.shape() else { return Err(node.not_covered("of rank 1")) };
        if x.rank() != 4 {
            return Err(node.not_covered("by columns of another rank than 4"));
        }
        let (row, column) = (indices.div(size as i64)?, indices.rem(size as i64)?);
        indices = column.mul(rows as i64)?.add(&row)?;
    }
    let mut planes = vec![1; x.rank()];
    planes[..2].copy_from_slice(&x.shape()[..2]);
    let first = Tensor::arange(node.backend(), 0..planes.iter().product::<usize>() as i64, DType::I64)?;
    Ok(Some(vec![maxima, indices.add(&first.mul(space as i64)?.reshape(planes)?)?]))
}

/// Elements back to the positions in a whole tensor of the size of the pooled one, or a given one.
fn unpool(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let (x, named, options) = (node.input(0)?, node.input(1)?, options(node)?);
    let size = |axis: usize| {
        let [before, after] = options.padding[axis];
        ((x.shape()[2 + axis].saturating_sub(1)) * options.stride[axis] + options.kernel[axis])
            .saturating_sub(before + after)
    };
    let own: Vec<usize> = x.shape()[..2].iter().copied().chain((0..x.rank() - 2).map(size)).collect();
    let shape = match node.optional(2) {
        Some(shape) => sizes(&integers(shape)?)?,
        None => own.clone(),
    };
    let mut place = named.clone();
    if shape != own {
        // The positions are those of the smaller tensor.
        let (mut rest, mut step) = (named.clone(), 1_i64);
        place = named.mul(0)?;
        for (&small, &large) in own.iter().zip(&shape).rev() {
            place = place.add(&rest.rem(small as i64)?.mul(step)?)?;
            (rest, step) = (rest.div(small as i64)?, step * large as i64);
        }
    }
    let zeros = Tensor::zeros(node.backend(), [shape.iter().product()], x.dtype())?;
    Ok(trace.scatter(ScatterOp::Set, &zeros, 0, &place.flatten()?, &x.flatten()?)?.reshape(shape)?)
}
