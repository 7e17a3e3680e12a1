//! Attention and rotary embedding.

use congruent::ops::{Alignment, AttentionInputs, AttentionOp, AttentionOptions, Pairing};
use congruent::{DType, Tensor as Any};
use congruent_backend_api::ops::binary::BinaryOp::{Add, Div, Mul};
use congruent_backend_api::ops::norm::NormalizeOp;
use congruent_backend_api::ops::unary::UnaryOp;

use super::{Outputs, one};
use crate::onnx::node::{Lowered, Node};
use crate::onnx::trace::{Tensor, Trace};

pub(super) fn lower(trace: &Trace, node: &Node<'_>) -> Outputs {
    match node.op() {
        "Attention" => Ok(Some(attention(trace, node)?)),
        "RotaryEmbedding" => one(rotary(trace, node)?),
        _ => Ok(None),
    }
}

/// [batch, positions, heads · features] as [batch, heads, positions, features]; of four axes it is that already.
fn split(node: &Node<'_>, x: &Tensor, heads: &str) -> Lowered<Tensor> {
    let heads = node.int(heads, 1).max(1) as usize;
    match *x.shape() {
        [batch, positions, features] => {
            Ok(x.reshape([batch, positions, heads, features / heads])?.permute([0, 2, 1, 3])?)
        }
        _ => Ok(x.clone()),
    }
}

fn merge(x: &Tensor) -> Lowered<Tensor> {
    let [batch, heads, positions, features] = [0, 1, 2, 3].map(|axis| x.shape()[axis]);
    Ok(x.permute([0, 2, 1, 3])?.reshape([batch, positions, heads * features])?)
}

/// y, the keys and values with those of the past, and the scores where they are asked for.
fn attention(trace: &Trace, node: &Node<'_>) -> Lowered<Vec<Tensor>> {
    let flat = node.input(0)?.rank() == 3;
    let q = split(node, node.input(0)?, "q_num_heads")?;
    let (mut k, mut v) = (split(node, node.input(1)?, "kv_num_heads")?, split(node, node.input(2)?, "kv_num_heads")?);
    let added = k.shape()[2];
    if let (Some(keys), Some(values)) = (node.optional(4), node.optional(5)) {
        (k, v) = (Any::cat(&[keys, &k], 2)?, Any::cat(&[values, &v], 2)?);
    }
    let (queries, keys) = (q.shape()[2], k.shape()[2]);
    let causal = node.flag("is_causal", false);
    // Query i stands behind the past: at key i without one, and at the end where as many keys as queries are new.
    let alignment = if keys == added { Alignment::First } else { Alignment::Last };
    if causal && keys != added && added != queries {
        return Err(node.not_covered("causal, with a past and other numbers of new keys and queries"));
    }
    let mask = node.optional(3).map(|mask| padded(mask, keys)).transpose()?;
    let lengths = node.optional(6).map(|lengths| trace.cast(lengths, DType::I64)).transpose()?;
    // Its arithmetic is that of f32 at least.
    node.given("softmax_precision");
    let positive = |x: f64| (x > 0.0).then_some(x);
    let (scale, soft_cap) = (positive(node.float("scale", 0.0)), positive(node.float("softcap", 0.0)));
    let options = AttentionOptions { scale, causal, alignment, soft_cap, ..AttentionOptions::default() };
    let inputs = AttentionInputs { mask: mask.as_ref(), lengths: lengths.as_ref(), ..AttentionInputs::new(&q, &k, &v) };
    let mode = node.int("qk_matmul_output_mode", 0);
    let mut outputs = Vec::new();
    if node.outputs() > 3 {
        if causal && mode > 1 || lengths.is_some() {
            return Err(node.not_covered("with masked scores as an output"));
        }
        outputs.push(scores(trace, inputs, options, mode)?);
    }
    let y = trace.attention(AttentionOp::Output, inputs, options)?;
    let y = if flat { merge(&y)? } else { y };
    Ok([y, k, v].into_iter().chain(outputs).collect())
}

/// A mask of fewer keys hides the others.
fn padded(mask: &Tensor, keys: usize) -> Lowered<Tensor> {
    let mut shape = mask.shape().to_vec();
    let Some(last) = shape.last_mut() else { return Ok(mask.clone()) };
    if *last >= keys {
        return Ok(mask.clone());
    }
    *last = keys - *last;
    let rest = match mask.dtype() {
        DType::Bool => Any::zeros(mask.backend(), shape, DType::Bool)?,
        dtype => Any::full(mask.backend(), f64::NEG_INFINITY, shape, dtype)?,
    };
    Ok(Any::cat(&[mask, &rest], -1)?)
}

/// The scores after the soft cap, with the mask in mode 2, as weights in mode 3.
fn scores(trace: &Trace, inputs: AttentionInputs<&Tensor>, options: AttentionOptions, mode: i64) -> Lowered<Tensor> {
    let (q, k) = (inputs.q, inputs.k);
    let &[batch, heads, queries, features] = q.shape() else { return Ok(q.clone()) };
    let (kv_heads, keys) = (k.shape()[1], k.shape()[2]);
    let grouped = q.reshape([batch, kv_heads, heads / kv_heads, queries, features])?;
    let columns = k.unsqueeze(2)?.permute([0, 1, 2, 4, 3])?;
    let scale = options.scale.unwrap_or_else(|| 1.0 / (features as f64).sqrt());
    let mut scores =
        trace.matmul(&trace.binary(Mul, &grouped, scale)?, &columns)?.reshape([batch, heads, queries, keys])?;
    if let Some(cap) = options.soft_cap {
        scores = trace.binary(Mul, &trace.unary(UnaryOp::Tanh, &trace.binary(Div, &scores, cap)?)?, cap)?;
    }
    if mode < 2 {
        return Ok(scores);
    }
    if let Some(mask) = inputs.mask {
        scores = match mask.dtype() {
            DType::Bool => trace.choose(mask, &scores, f64::NEG_INFINITY)?,
            _ => trace.binary(Add, &scores, mask)?,
        };
    }
    if mode < 3 { Ok(scores) } else { trace.normalize((NormalizeOp::Softmax, 0.0), &scores, &[-1], [None; 2]) }
}

/// Angles are rows of tables, by position or one for each.
fn rotary(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let flat = node.input(0)?.rank() == 3;
    let x = split(node, node.input(0)?, "num_heads")?;
    let angles = |index: usize| -> Lowered<Tensor> {
        let table = node.input(index)?;
        // [batch, positions, pairs], the same for every head.
        let rows = match node.optional(3) {
            Some(positions) => table.embedding(positions)?,
            None => table.clone(),
        };
        Ok(rows.unsqueeze(1)?)
    };
    let pairing = if node.flag("interleaved", false) { Pairing::Neighbours } else { Pairing::Halves };
    // The tables say how many features turn.
    node.given("rotary_embedding_dim");
    let y = trace.compose(x.rotary(&angles(1)?, &angles(2)?, pairing))?;
    if flat { merge(&y) } else { Ok(y) }
}
