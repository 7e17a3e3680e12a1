//! Normalizations: the frontend's, and what else ONNX has, composed of moments and arithmetic.

use congruent_backend_api::DType;
use congruent_backend_api::ops::binary::BinaryOp::{Add, Div, Mul, Sub};
use congruent_backend_api::ops::compare::CompareOp::Eq;
use congruent_backend_api::ops::norm::NormalizeOp::{LayerNorm, RmsNorm};
use congruent_backend_api::ops::reduce::ReduceOp;
use congruent_backend_api::ops::statistic::StatisticOp;
use congruent_backend_api::ops::unary::UnaryOp;

use super::{Outputs, one};
use crate::onnx::node::{Lowered, Node};
use crate::onnx::trace::{Tensor, Trace};

pub(super) fn lower(trace: &Trace, node: &Node<'_>) -> Outputs {
    match node.op() {
        "BatchNormalization" => Ok(Some(batch(trace, node)?)),
        "GroupNormalization" => one(group(trace, node)?),
        "InstanceNormalization" => one(instance(trace, node)?),
        "LayerNormalization" => Ok(Some(layer(trace, node)?)),
        "LpNormalization" => one(lp(trace, node)?),
        "MeanVarianceNormalization" => one(mean_variance(trace, node)?),
        "RMSNormalization" => one(rms(trace, node)?),
        _ => Ok(None),
    }
}

/// Mean and 1/√(variance + ε).
struct Moments {
    mean: Tensor,
    scale: Tensor,
}

impl Moments {
    fn of(trace: &Trace, x: &Tensor, axes: &[isize], epsilon: f64) -> Lowered<Self> {
        let mean = trace.reduce(ReduceOp::Mean, x, Some(axes), true)?;
        let variance = trace.statistic((StatisticOp::Var, 0.0), x, Some(axes), true)?;
        Ok(Self { mean, scale: inverse_root(trace, &variance, epsilon)? })
    }

    fn normalize(&self, trace: &Trace, x: &Tensor) -> Lowered<Tensor> {
        trace.binary(Mul, &trace.binary(Sub, x, &self.mean)?, &self.scale)
    }
}

fn inverse_root(trace: &Trace, variance: &Tensor, epsilon: f64) -> Lowered<Tensor> {
    trace.unary(UnaryOp::Rsqrt, &trace.binary(Add, variance, epsilon)?)
}

/// x · scale + bias, one of each for a channel: axis 1.
fn affine(trace: &Trace, x: &Tensor, scale: &Tensor, bias: &Tensor) -> Lowered<Tensor> {
    let (scale, bias) = (per_channel(scale, x.rank())?, per_channel(bias, x.rank())?);
    trace.binary(Add, &trace.binary(Mul, x, &scale)?, &bias)
}

fn per_channel(x: &Tensor, rank: usize) -> Lowered<Tensor> {
    let mut shape = vec![1; rank.saturating_sub(1).max(1)];
    shape[0] = x.count();
    Ok(x.reshape(shape)?)
}

fn epsilon(node: &Node<'_>) -> f64 {
    node.float("epsilon", 1e-5)
}

fn batch(trace: &Trace, node: &Node<'_>) -> Lowered<Vec<Tensor>> {
    let (x, scale, bias) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let (old_mean, old_variance) = (node.input(3)?, node.input(4)?);
    let (epsilon, momentum) = (epsilon(node), node.float("momentum", 0.9));
    let normalize = |mean: &Tensor, variance: &Tensor| {
        let (mean, variance) = (per_channel(mean, x.rank())?, per_channel(variance, x.rank())?);
        let moments = Moments { mean, scale: inverse_root(trace, &variance, epsilon)? };
        affine(trace, &moments.normalize(trace, x)?, scale, bias)
    };
    if !node.flag("training_mode", false) {
        return Ok(vec![normalize(old_mean, old_variance)?]);
    }
    let axes: Vec<isize> = (0..x.rank() as isize).filter(|&axis| axis != 1).collect();
    let mean = trace.reduce(ReduceOp::Mean, x, Some(&axes), false)?;
    let variance = trace.statistic((StatisticOp::Var, 0.0), x, Some(&axes), false)?;
    let running = |old: &Tensor, new: &Tensor| {
        trace.binary(Add, &trace.binary(Mul, old, momentum)?, &trace.binary(Mul, new, 1.0 - momentum)?)
    };
    Ok(vec![normalize(&mean, &variance)?, running(old_mean, &mean)?, running(old_variance, &variance)?])
}

fn group(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let x = node.input(0)?;
    let groups = node.int("num_groups", 1).max(1) as usize;
    stash(node);
    let batch = x.shape().first().copied().unwrap_or(1);
    let grouped = x.reshape([batch, groups, x.count() / (batch * groups).max(1)])?;
    let normal = trace.normalize((LayerNorm, epsilon(node)), &grouped, &[-1], [None; 2])?;
    affine(trace, &normal.reshape(x.shape())?, node.input(1)?, node.input(2)?)
}

fn instance(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let x = node.input(0)?;
    let space: Vec<isize> = (2..x.rank() as isize).collect();
    let (scale, bias) = (per_channel(node.input(1)?, x.rank())?, per_channel(node.input(2)?, x.rank())?);
    trace.normalize((LayerNorm, epsilon(node)), x, &space, [Some(&scale), Some(&bias)])
}

/// The dtype of the moments is f32 unless `stash_type` is another; f16 and bf16 are widened for it.
fn stash(node: &Node<'_>) -> bool {
    const FLOAT: i64 = 1;
    node.int("stash_type", FLOAT) == FLOAT
}

fn widened(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let x = node.input(0)?;
    let narrow = matches!(x.dtype(), DType::F16 | DType::BF16);
    if stash(node) && narrow { trace.cast(x, DType::F32) } else { Ok(x.clone()) }
}

/// The axes from `axis` to the last.
fn trailing(node: &Node<'_>, rank: usize) -> Vec<isize> {
    let (axis, rank) = (node.size("axis", -1), rank as isize);
    (if axis < 0 { axis + rank } else { axis }..rank).collect()
}

fn layer(trace: &Trace, node: &Node<'_>) -> Lowered<Vec<Tensor>> {
    let x = widened(trace, node)?;
    let (axes, epsilon) = (trailing(node, x.rank()), epsilon(node));
    let moments = Moments::of(trace, &x, &axes, epsilon)?;
    let (scale, bias) = (node.input(1)?, node.optional(2));
    let y = if x.dtype() == scale.dtype() {
        trace.normalize((LayerNorm, epsilon), &x, &axes, [Some(scale), bias])?
    } else {
        // What is normalised in f32 is rounded before it is scaled.
        let normal = trace.cast(&moments.normalize(trace, &x)?, scale.dtype())?;
        let scaled = trace.binary(Mul, &normal, scale)?;
        bias.map_or(Ok(scaled.clone()), |bias| trace.binary(Add, &scaled, bias))?
    };
    Ok(vec![y, moments.mean, moments.scale])
}

fn rms(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let x = widened(trace, node)?;
    let normal = trace.normalize((RmsNorm, epsilon(node)), &x, &trailing(node, x.rank()), [None; 2])?;
    trace.binary(Mul, &trace.cast(&normal, node.input(0)?.dtype())?, node.input(1)?)
}

fn lp(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let x = node.input(0)?;
    let order = node.int("p", 2) as f64;
    let norm = trace.statistic((StatisticOp::Norm, order), x, Some(&[node.size("axis", -1)]), true)?;
    // What has no length stays zero.
    trace.choose(&trace.compare(Eq, &norm, 0.0)?, 0.0, &trace.binary(Div, x, &norm)?)
}

fn mean_variance(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    const EPSILON: f64 = 1e-9;
    let x = node.input(0)?;
    let axes = node.ints("axes").unwrap_or_else(|| vec![0, 2, 3]);
    let mean = trace.reduce(ReduceOp::Mean, x, Some(&axes), true)?;
    let deviation = trace.statistic((StatisticOp::Std, 0.0), x, Some(&axes), true)?;
    let scale = trace.binary(Add, &deviation, EPSILON)?;
    trace.binary(Div, &trace.binary(Sub, x, &mean)?, &scale)
}
