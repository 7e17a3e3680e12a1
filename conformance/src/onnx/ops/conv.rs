//! Convolutions.

use congruent_backend_api::ops::conv::{ConvOptions, MAX_SPATIAL};
use congruent_backend_api::ops::unary::UnaryOp;

use super::{Outputs, one};
use crate::onnx::node::{Lowered, Node, Stop};
use crate::onnx::trace::{Tensor, Trace};

pub(super) fn lower(trace: &Trace, node: &Node<'_>) -> Outputs {
    match node.op() {
        "CausalConvWithState" => causal(trace, node),
        "Conv" => one(conv(trace, node)?),
        "ConvTranspose" => one(transpose(trace, node)?),
        _ => Ok(None),
    }
}

/// The attributes that both have, and how padding that is not given is found.
fn options(node: &Node<'_>) -> Lowered<(ConvOptions, String)> {
    let (x, weight) = (node.input(0)?, node.input(1)?);
    if !(3..=2 + MAX_SPATIAL).contains(&x.rank()) || weight.rank() != x.rank() {
        return Err(node.not_covered(&format!("of rank {}", x.rank())));
    }
    let axes = x.rank() - 2;
    let kernel: Vec<_> = weight.shape()[2..].iter().map(|&size| size as isize).collect();
    if node.ints("kernel_shape").is_some_and(|given| given != kernel) {
        return Err(Stop::Malformed(format!("`kernel_shape` is not that of the weight, {:?}", weight.shape())));
    }
    let mut options = ConvOptions { groups: counts(&[node.size("group", 1)])?[0], ..ConvOptions::default() };
    spatial(node, axes, &mut options.stride, &mut options.dilation, &mut options.padding)?;
    Ok((options, node.text("auto_pad", "NOTSET")))
}

pub(super) fn counts(values: &[isize]) -> Lowered<Vec<usize>> {
    let counts = values.iter().map(|&value| usize::try_from(value)).collect::<Result<_, _>>();
    counts.map_err(|_| Stop::NotCovered(format!("negative numbers in {values:?}")))
}

/// Reads the attributes that say where windows lie; those that are not there change nothing.
pub(super) fn spatial(
    node: &Node<'_>,
    axes: usize,
    stride: &mut [usize; MAX_SPATIAL],
    dilation: &mut [usize; MAX_SPATIAL],
    padding: &mut [[usize; 2]; MAX_SPATIAL],
) -> Lowered<()> {
    if let Some(strides) = node.ints("strides") {
        fill(stride, axes, &counts(&strides)?)?;
    }
    if let Some(dilations) = node.ints("dilations") {
        fill(dilation, axes, &counts(&dilations)?)?;
    }
    if let Some(pads) = node.ints("pads") {
        let pads = counts(&pads)?;
        let (before, after) = pads.split_at(pads.len() / 2);
        let pairs: Vec<_> = before.iter().zip(after).map(|(&before, &after)| [before, after]).collect();
        fill(padding, axes, &pairs)?;
    }
    Ok(())
}

pub(super) fn fill<T: Copy>(to: &mut [T; MAX_SPATIAL], axes: usize, values: &[T]) -> Lowered<()> {
    if values.len() != axes {
        return Err(Stop::Malformed(format!("{} values for {axes} spatial axes", values.len())));
    }
    to[..axes].copy_from_slice(values);
    Ok(())
}

/// Zeros on both sides; an odd one goes after, or before.
pub(super) fn halves(total: usize, after: bool) -> [usize; 2] {
    let (less, more) = (total / 2, total - total / 2);
    if after { [less, more] } else { [more, less] }
}

/// What the kernel spans on an axis.
fn extent(options: &ConvOptions, weight: &Tensor, axis: usize) -> usize {
    options.dilation[axis] * weight.shape()[2 + axis].saturating_sub(1) + 1
}

fn conv(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let (x, weight) = (node.input(0)?, node.input(1)?);
    let (mut options, pad) = options(node)?;
    if pad.starts_with("SAME") {
        for (axis, &size) in x.shape()[2..].iter().enumerate() {
            // As many outputs as strides begin in the input.
            let stride = options.stride[axis].max(1);
            let needed = size.div_ceil(stride).saturating_sub(1) * stride + extent(&options, weight, axis);
            options.padding[axis] = halves(needed.saturating_sub(size), pad == "SAME_UPPER");
        }
    }
    trace.conv(x, weight, node.optional(2), options)
}

fn transpose(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let (x, weight) = (node.input(0)?, node.input(1)?);
    let (mut options, pad) = options(node)?;
    let axes = x.rank() - 2;
    let mut more = [0; MAX_SPATIAL];
    if let Some(given) = node.ints("output_padding") {
        fill(&mut more, axes, &counts(&given)?)?;
    }
    let wanted = match node.ints("output_shape") {
        Some(wanted) => Some(counts(&wanted)?),
        None if pad.starts_with("SAME") => {
            Some((0..axes).map(|axis| x.shape()[2 + axis] * options.stride[axis]).collect())
        }
        None => None,
    };
    // The padding follows from the output; what it would have to add is output padding.
    for (axis, wanted) in wanted.into_iter().flatten().enumerate().take(axes) {
        let reach = options.stride[axis] * x.shape()[2 + axis].saturating_sub(1) + extent(&options, weight, axis);
        let have = reach + more[axis];
        options.padding[axis] = halves(have.saturating_sub(wanted), pad == "SAME_UPPER");
        more[axis] += wanted.saturating_sub(have);
    }
    trace.conv_transpose(x, weight, node.optional(2), options, more)
}

/// A depthwise convolution that goes on from the end of the input before.
fn causal(trace: &Trace, node: &Node<'_>) -> Outputs {
    let (x, weight) = (node.input(0)?, node.input(1)?);
    let (&[batch, channels, _], &[_, _, taps]) = (x.shape(), weight.shape()) else {
        return Err(node.not_covered("of another rank than 3"));
    };
    let before = taps.saturating_sub(1);
    let state = match node.optional(3) {
        Some(state) => state.clone(),
        None => Tensor::zeros(node.backend(), [batch, channels, before], x.dtype())?,
    };
    let whole = Tensor::cat(&[&state, x], 2)?;
    let options = ConvOptions { groups: channels, ..ConvOptions::default() };
    let sums = trace.conv(&whole, weight, node.optional(2), options)?;
    let y = match &*node.text("activation", "none") {
        "none" => sums,
        "silu" | "swish" => trace.unary(UnaryOp::Silu, &sums)?,
        other => return Err(node.not_covered(&format!("with the activation {other}"))),
    };
    let end = whole.shape()[2] as isize;
    Ok(Some(vec![y, whole.slice(2, end - before as isize..end)?]))
}
