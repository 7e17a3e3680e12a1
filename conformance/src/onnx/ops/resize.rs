//! Images of another size, and columns back to images.

use congruent::ops::{ConvOptions, Coordinates, Interpolation, Rounding};
use congruent_backend_api::DType;

use super::conv::spatial;
use super::{Outputs, one};
use crate::onnx::node::{Lowered, Node, integers, sizes};
use crate::onnx::trace::{Tensor, Trace};

pub(super) fn lower(trace: &Trace, node: &Node<'_>) -> Outputs {
    match node.op() {
        "Col2Im" => one(columns(trace, node)?),
        "Resize" => one(resize(trace, node)?),
        "Upsample" => one(by(trace, node, node.optional(1), (nearest(Rounding::Floor), Coordinates::Asymmetric))?),
        _ => Ok(None),
    }
}

fn nearest(rounding: Rounding) -> Interpolation {
    Interpolation::Nearest(rounding)
}

fn resize(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let mode = node.text("mode", "nearest");
    let rounding = match &*node.text("nearest_mode", "round_prefer_floor") {
        "round_prefer_ceil" => Rounding::HalfUp,
        "floor" => Rounding::Floor,
        "ceil" => Rounding::Ceil,
        _ => Rounding::HalfDown,
    };
    let slope = node.float("cubic_coeff_a", -0.75);
    let interpolation = match &*mode {
        "linear" => Interpolation::Linear,
        "cubic" => Interpolation::Cubic(slope),
        _ => nearest(rounding),
    };
    let coordinates = match &*node.text("coordinate_transformation_mode", "half_pixel") {
        "half_pixel" => Coordinates::HalfPixel,
        "align_corners" => Coordinates::AlignCorners,
        "asymmetric" => Coordinates::Asymmetric,
        other => return Err(node.not_covered(&format!("with {other} coordinates"))),
    };
    if let Some(wanted) = node.optional(3).map(integers).transpose()? {
        let x = node.input(0)?;
        if node.text("keep_aspect_ratio_policy", "stretch") != "stretch" {
            return Err(node.not_covered("that keeps the aspect ratio"));
        }
        let mut shape = x.shape().to_vec();
        for (axis, size) in axes(node, x.rank()).into_iter().zip(sizes(&wanted)?) {
            shape[axis] = size;
        }
        return trace.compose(x.resize(shape, interpolation, coordinates));
    }
    by(trace, node, node.optional(2), (interpolation, coordinates))
}

fn by(
    trace: &Trace,
    node: &Node<'_>,
    scales: Option<&Tensor>,
    (interpolation, coordinates): (Interpolation, Coordinates),
) -> Lowered<Tensor> {
    let (x, Some(scales)) = (node.input(0)?, scales) else { return Err(node.not_covered("without sizes")) };
    let mode = node.text("mode", "nearest");
    if node.op() == "Upsample" && mode != "nearest" {
        return Err(node.not_covered(&format!("of mode {mode}")));
    }
    let mut factors = vec![1.0; x.rank()];
    for (axis, scale) in axes(node, x.rank()).into_iter().zip(scales.cast(DType::F64)?.to_vec::<f64>()?) {
        factors[axis] = scale;
    }
    trace.compose(x.resize_by(factors, interpolation, coordinates))
}

fn axes(node: &Node<'_>, rank: usize) -> Vec<usize> {
    let given = node.ints("axes").unwrap_or_else(|| (0..rank as isize).collect());
    given.into_iter().map(|axis| axis.rem_euclid(rank.max(1) as isize) as usize).collect()
}

fn columns(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let (shape, kernel) = (sizes(&integers(node.input(1)?)?)?, sizes(&integers(node.input(2)?)?)?);
    let (axes, mut options) = (shape.len(), ConvOptions::default());
    if axes > options.stride.len() {
        return Err(node.not_covered(&format!("of {axes} spatial axes")));
    }
    spatial(node, axes, &mut options.stride, &mut options.dilation, &mut options.padding)?;
    trace.compose(node.input(0)?.fold(shape, kernel, options))
}
