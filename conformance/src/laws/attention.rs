//! Attention: queries that see one key, bands as masks, parts of the keys, dropout, and gradients that are products.

use congruent::ops::{
    Alignment, AttentionGradient, AttentionInputs, AttentionOp, AttentionOptions, Dropout, Generator,
};
use congruent::{DType, Result, Tensor};

use super::{Backend, FLOATS, differ, make};
use crate::values::Class;

/// [batch, heads, queries, features] and the heads of keys, with one key.
pub(super) fn one_key(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        let q = make(backend, dtype, Class::Uniform, &[2, 6, 5, 33], seed)?;
        let k = make(backend, dtype, Class::Large, &[2, 3, 1, 33], seed)?;
        let v = make(backend, dtype, Class::WideExponent, &[2, 3, 1, 7], seed)?;
        let got = q.attention(&k, &v, None, AttentionOptions::default())?;
        // Heads 2h and 2h + 1 read key head h.
        let row = v.reshape([2, 3, 1, 1, 7])?.expand([2, 3, 2, 5, 7])?.reshape([2, 6, 5, 7])?;
        if let Some(found) = differ(&got, &row, true)? {
            return Ok(Some(format!("{dtype}: {found}")));
        }
    }
    Ok(None)
}

/// Query i and key j are unit vectors, so that the score of i = j lies further above the others than exp reaches.
pub(super) fn dominating(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        let unit: Vec<f32> = (0..40 * 40).map(|index| f32::from(u8::from(index % 41 == 0))).collect();
        let unit = Tensor::from_slice(backend, &unit, [1, 1, 40, 40])?.cast(dtype)?;
        let v = make(backend, dtype, Class::WideExponent, &[1, 1, 40, 19], seed)?;
        let scale = if dtype == DType::F64 { 1024.0 } else { 256.0 };
        let got = unit.attention(&unit, &v, None, AttentionOptions { scale: Some(scale), ..Default::default() })?;
        if let Some(found) = differ(&got, &v, true)? {
            return Ok(Some(format!("{dtype}: {found}")));
        }
    }
    Ok(None)
}

/// So many keys that a backend may split them, for few queries and for many: one key in each head dominates, wherever it is,
/// and keys of equal scores count alike (whole numbers, of which there is a power of two, have an exact mean).
pub(super) fn many_keys(backend: &Backend, seed: u64) -> Result<Option<String>> {
    const KEYS: usize = 1024;
    const HOT: [usize; 4] = [0, 300, 700, KEYS - 1];
    for (dtype, queries, features) in FLOATS.into_iter().flat_map(|dtype| [(dtype, 3, 64), (dtype, 20, 96)]) {
        let v = make(backend, dtype, Class::SmallInts, &[1, HOT.len(), KEYS, features], seed)?;
        let mut keys = vec![0.0_f32; HOT.len() * KEYS * features];
        HOT.iter().enumerate().for_each(|(head, hot)| keys[(head * KEYS + hot) * features] = 1.0);
        let k = Tensor::from_slice(backend, &keys, [1, HOT.len(), KEYS, features])?.cast(dtype)?;
        let scale = if dtype == DType::F64 { 1024.0 } else { 256.0 };
        let options = AttentionOptions { scale: Some(scale), ..Default::default() };
        let q = Tensor::ones(backend, [1, HOT.len(), queries, features], dtype)?;
        let rows = HOT.iter().enumerate().map(|(head, &hot)| v.i((0, head, hot))).collect::<Result<Vec<_>>>()?;
        let rows = Tensor::stack(&rows.iter().collect::<Vec<_>>(), 0)?;
        let wide = if dtype == DType::F64 { dtype } else { DType::F32 };
        let means = v.cast(wide)?.mean(2, false)?.i(0)?.cast(dtype)?;
        let zeros = Tensor::zeros(backend, [1, HOT.len(), queries, features], dtype)?;
        for (q, each) in [(&q, rows), (&zeros, means)] {
            let expected = each.unsqueeze(1)?.expand([HOT.len(), queries, features])?.unsqueeze(0)?;
            if let Some(found) = differ(&q.attention(&k, &v, None, options)?, &expected, true)? {
                return Ok(Some(format!("{dtype}, {queries} queries: {found}")));
            }
        }
    }
    Ok(None)
}

/// With equal scores and whole numbers the sums are exact, whatever the mask skips.
pub(super) fn bands(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let bands = [(true, None, Alignment::Last), (true, Some(3), Alignment::First), (false, Some(20), Alignment::Last)];
    for dtype in FLOATS {
        for (queries, keys) in [(7, 7), (5, 70), (70, 40)] {
            let q = Tensor::zeros(backend, [1, 2, queries, 4], dtype)?;
            let k = make(backend, dtype, Class::Uniform, &[1, 1, keys, 4], seed)?;
            let v = make(backend, dtype, Class::SmallInts, &[1, 1, keys, 9], seed)?;
            for (causal, window, alignment) in bands {
                let seen = (0..queries * keys).map(|at| {
                    let shift = if alignment == Alignment::Last { keys as isize - queries as isize } else { 0 };
                    let (place, key) = ((at / keys) as isize + shift, (at % keys) as isize);
                    (!causal || key <= place) && window.is_none_or(|window| place.abs_diff(key) < window)
                });
                let mask = Tensor::from_slice(backend, &seen.collect::<Vec<_>>(), [queries, keys])?;
                let options = AttentionOptions { causal, window, alignment, ..Default::default() };
                for op in [AttentionOp::Output, AttentionOp::LogSumExp] {
                    let inputs = AttentionInputs::new(&q, &k, &v);
                    let banded = Tensor::attention_with(op, inputs, options)?;
                    let inputs = AttentionInputs { mask: Some(&mask), ..inputs };
                    let masked = Tensor::attention_with(op, inputs, AttentionOptions::default())?;
                    if let Some(found) = differ(&masked, &banded, true)? {
                        let name = op.name();
                        return Ok(Some(format!(
                            "{name}, {dtype}, {queries} queries, {keys} keys, {options:?}: {found}"
                        )));
                    }
                }
            }
        }
    }
    Ok(None)
}

/// Halves of equal scores have the same log-sum-exp, and so the same weight; their sums are exact on whole numbers.
pub(super) fn chunks(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        let q = Tensor::zeros(backend, [2, 2, 5, 8], dtype)?;
        let k = make(backend, dtype, Class::Uniform, &[2, 1, 64, 8], seed)?;
        let v = make(backend, dtype, Class::SmallInts, &[2, 1, 64, 6], seed)?;
        let of = |op: AttentionOp, k: &Tensor<_>, v: &Tensor<_>| {
            Tensor::attention_with(op, AttentionInputs::new(&q, k, v), AttentionOptions::default())
        };
        let mut parts = Vec::new();
        for start in [0, 32] {
            let (k, v) = (k.narrow(2, start, 32)?, v.narrow(2, start, 32)?);
            parts.push((of(AttentionOp::Output, &k, &v)?, of(AttentionOp::LogSumExp, &k, &v)?));
        }
        let [(first, first_sum), (second, second_sum)] = &parts[..] else { return Ok(None) };
        if let Some(found) = differ(first_sum, second_sum, true)? {
            return Ok(Some(format!("log-sum-exp of equal scores, {dtype}: {found}")));
        }
        let whole = of(AttentionOp::Output, &k, &v)?;
        if let Some(found) = differ(&whole, &((first + second)? * 0.5)?, true)? {
            return Ok(Some(format!("{dtype}: {found}")));
        }
    }
    Ok(None)
}

/// A log-sum-exp of 0 makes weights of 1 of scores of 0; then the gradients are products, exact on whole numbers.
pub(super) fn gradients(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let (batch, heads, kv_heads, queries, keys, depth, width) = (2, 4, 2, 7, 37, 5, 3);
    for dtype in FLOATS {
        let ints = |shape: &[usize], which: u64| make(backend, dtype, Class::SmallInts, shape, seed + which);
        let (grad, v) = (ints(&[batch, heads, queries, width], 1)?, ints(&[batch, kv_heads, keys, width], 2)?);
        let zeros = |heads, positions| Tensor::zeros(backend, [batch, heads, positions, depth], dtype);
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let logsumexp = Tensor::zeros(backend, [batch, heads, queries], wide)?;
        let delta = ints(&[batch, heads, queries], 3)?.cast(wide)?;
        let gradient = AttentionGradient { grad: &grad, logsumexp: &logsumexp, delta: &delta };
        let options = AttentionOptions { scale: Some(1.0), ..Default::default() };
        let of = |op: AttentionOp, q: &Tensor<_>, k: &Tensor<_>| {
            let inputs = AttentionInputs { gradient: Some(gradient), ..AttentionInputs::new(q, k, &v) };
            Tensor::attention_with(op, inputs, options)?.cast(DType::F64)
        };
        // Heads that share a key head, on an axis of their own.
        let grouped = |x: &Tensor<_>| {
            let sizes = [batch, kv_heads, heads / kv_heads, queries, x.shape()[3]];
            x.cast(DType::F64)?.reshape(sizes)
        };
        let each = |x: &Tensor<_>| x.cast(DType::F64)?.unsqueeze(2);
        let change = grouped(&grad)?.matmul(&each(&v)?.permute([0, 1, 2, 4, 3])?)?;
        let change = (change - grouped(&delta.unsqueeze(-1)?)?)?;
        let (q, k) = (ints(&[batch, heads, queries, depth], 4)?, ints(&[batch, kv_heads, keys, depth], 5)?);
        let (no_q, no_k) = (zeros(heads, queries)?, zeros(kv_heads, keys)?);
        let expected = [
            (AttentionOp::GradQuery, &no_q, &k, change.matmul(&each(&k)?)?.reshape([batch, heads, queries, depth])?),
            (AttentionOp::GradKey, &q, &no_k, change.permute([0, 1, 2, 4, 3])?.matmul(&grouped(&q)?)?.sum(2, false)?),
            (AttentionOp::GradValue, &q, &no_k, grouped(&grad)?.sum([2, 3], false)?.unsqueeze(2)?),
        ];
        for (op, q, k, expected) in expected {
            let got = of(op, q, k)?;
            // What halves hold of the results is rounded.
            let expected = expected.cast(dtype)?.cast(DType::F64)?.expand(got.shape())?;
            if let Some(found) = differ(&got, &expected, true)? {
                return Ok(Some(format!("{}, {dtype}: {found}", op.name())));
            }
        }
    }
    Ok(None)
}

/// With equal scores, whole numbers and a probability of ½, what is left is an exact sum.
pub(super) fn dropout(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let (batch, heads, queries, keys) = (2, 3, 5, 32);
    for dtype in FLOATS {
        let q = Tensor::zeros(backend, [batch, heads, queries, 4], dtype)?;
        let k = make(backend, dtype, Class::Uniform, &[batch, heads, keys, 4], seed)?;
        let v = make(backend, dtype, Class::SmallInts, &[batch, heads, keys, 6], seed)?;
        let offset = 7;
        let dropout = Some(Dropout { probability: 0.5, seed, offset });
        let got = q.attention(&k, &v, None, AttentionOptions { dropout, ..Default::default() })?;
        let shape = [batch, heads, queries, keys];
        let left_out = Tensor::bernoulli(backend, 0.5, shape, &Generator::at(seed, offset))?;
        let weights = ((left_out.logical_not()?.cast(dtype)? * 2.0)? / keys as f64)?;
        if let Some(found) = differ(&got, &weights.matmul(&v)?, true)? {
            return Ok(Some(format!("{dtype}: {found}")));
        }
    }
    Ok(None)
}
