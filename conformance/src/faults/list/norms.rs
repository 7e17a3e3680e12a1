//! Wrong normalisations and gradients of them.

use congruent_backend_api::ops::norm::NormalizeOp;
use congruent_backend_api::{DType, Op, Scalar};

use super::narrow;
use crate::faults::{Element, Fault};
use crate::host::{decode, encode_float};

const NORM: &[&str] = &["norm"];

pub(super) const FAULTS: &[Fault] = &[
    Fault::function(
        "softmax does not subtract the maximum",
        NORM,
        |op, dtype| op == Op::Normalize(NormalizeOp::Softmax) && dtype == DType::F32,
        |element| {
            let exp = |x: f64| f64::from(core_math::exp(x) as f32);
            let total: f64 = element.values(0).into_iter().map(exp).sum();
            Some(Scalar::Float(exp(element.value(1)) / f64::from(total as f32)))
        },
    )
    .number(56),
    Fault::function(
        "the exponentials of softmax are kept in f16",
        NORM,
        |op, dtype| op == Op::Normalize(NormalizeOp::Softmax) && dtype == DType::F32,
        |element| {
            let max = element.values(0).into_iter().fold(f64::NEG_INFINITY, f64::max);
            let exp = |x: f64| decode(DType::F16, encode_float(DType::F16, core_math::exp(x - max))).to_f64();
            Some(Scalar::Float(exp(element.value(1)) / element.values(0).into_iter().map(exp).sum::<f64>()))
        },
    ),
    Fault::function(
        "log_softmax is the logarithm of a rounded softmax",
        NORM,
        |op, dtype| op == Op::Normalize(NormalizeOp::LogSoftmax) && dtype == DType::F32,
        |element| {
            let softmax = core_math::exp(element.new.to_f64()) as f32;
            Some(Scalar::Float(core_math::log(softmax.into())))
        },
    ),
    Fault::function(
        "layer norm takes the mean of squares less the square of the mean",
        NORM,
        |op, dtype| op == Op::Normalize(NormalizeOp::LayerNorm) && dtype == DType::F32,
        |element| {
            let row = element.values(0);
            let mean = |of: fn(f64) -> f64| row.iter().map(|&x| of(x) as f32).sum::<f32>() / row.len() as f32;
            let (plain, square) = (mean(|x| x), mean(|x| x * x));
            let factor = (square - plain * plain + element.factors.0 as f32).sqrt().recip();
            affine(element, f64::from((element.value(rows(element)) as f32 - plain) * factor))
        },
    )
    .number(58),
    Fault::function(
        "layer norm divides by n − 1",
        NORM,
        |op, _| op == Op::Normalize(NormalizeOp::LayerNorm),
        |element| {
            let (mean, square) = moments(element);
            let count = element.operands[0].len() as f64;
            let variance = square * count / (count - 1.0);
            (count > 1.0)
                .then(|| (element.value(rows(element)) - mean) / (variance + element.factors.0).sqrt())
                .and_then(|y| affine(element, y))
        },
    )
    .number(59),
    Fault::function(
        "layer norm adds ε outside the root",
        NORM,
        |op, _| op == Op::Normalize(NormalizeOp::LayerNorm),
        |element| {
            let (mean, square) = moments(element);
            affine(element, (element.value(rows(element)) - mean) / (square.sqrt() + element.factors.0))
        },
    )
    .number(59),
    Fault::function(
        "RMS norm leaves ε out",
        NORM,
        |op, _| op == Op::Normalize(NormalizeOp::RmsNorm),
        |element| {
            let row = element.values(0);
            let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
            affine(element, element.value(rows(element)) / mean.sqrt())
        },
    ),
    Fault::function(
        "RMS norm sums f16 squares in f16",
        NORM,
        |op, dtype| op == Op::Normalize(NormalizeOp::RmsNorm) && dtype == DType::F16,
        |element| {
            let row = element.values(0);
            let mean = narrow(DType::F16, row.iter().map(|x| x * x)) / row.len() as f64;
            affine(element, element.value(rows(element)) / (mean + element.factors.0).sqrt())
        },
    )
    .number(25),
    Fault::function(
        "the bias of a norm is left out",
        NORM,
        |op, _| matches!(op, Op::Normalize(op) if op.is_affine()),
        |element| (rows(element) == 3).then(|| Scalar::Float(element.new.to_f64() - element.value(5))),
    ),
    Fault::function(
        "ε of l2_normalize is added instead of bounding",
        NORM,
        |op, _| op == Op::Normalize(NormalizeOp::L2Normalize),
        |element| {
            let norm = element.values(0).iter().map(|x| x * x).sum::<f64>().sqrt();
            affine(element, element.value(rows(element)) / (norm + element.factors.0))
        },
    ),
    Fault::function(
        "the gradient of softmax leaves out the sum",
        NORM,
        |op, _| op == Op::NormalizeGrad(NormalizeOp::Softmax),
        |element| Some(Scalar::Float(element.value(2) * element.value(3))),
    ),
    Fault::function(
        "the gradient of layer norm takes the mean for a constant",
        NORM,
        |op, _| op == Op::NormalizeGrad(NormalizeOp::LayerNorm),
        |element| {
            let count = element.operands[0].len() as f64;
            let (_, square) = moments(element);
            let grads = element.values(1);
            let weights = (rows(element) == 3).then(|| element.values(2));
            let weighted = |index: usize| grads[index] * weights.as_ref().map_or(1.0, |weights| weights[index]);
            let mean = (0..grads.len()).map(weighted).sum::<f64>() / count;
            Some(Scalar::Float(element.new.to_f64() + mean / (square + element.factors.0).sqrt()))
        },
    ),
];

/// How many inputs the call has: operands of this number on are single elements.
fn rows(element: &Element<'_>) -> usize {
    element.operands.len() / 2
}

/// The mean and the biased variance of the row.
fn moments(element: &Element<'_>) -> (f64, f64) {
    let row = element.values(0);
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    (mean, row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / row.len() as f64)
}

/// x̂ with the weight and the bias of the element.
fn affine(element: &Element<'_>, unit: f64) -> Option<Scalar> {
    let own = rows(element);
    let weight = if own > 1 { element.value(own + 1) } else { 1.0 };
    let bias = if own > 2 { element.value(own + 2) } else { 0.0 };
    Some(Scalar::Float(unit * weight + bias))
}
