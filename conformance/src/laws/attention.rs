//! Attention: queries that see one key, and causality as a mask.

use congruent::ops::AttentionOptions;
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
        let got = unit.attention(&unit, &v, None, AttentionOptions { scale: Some(scale), causal: false })?;
        if let Some(found) = differ(&got, &v, true)? {
            return Ok(Some(format!("{dtype}: {found}")));
        }
    }
    Ok(None)
}

/// With equal scores and whole numbers the sums are exact, whatever the mask skips.
pub(super) fn causal(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        for (queries, keys) in [(7, 7), (5, 70), (70, 40)] {
            let q = Tensor::zeros(backend, [1, 2, queries, 4], dtype)?;
            let k = make(backend, dtype, Class::Uniform, &[1, 1, keys, 4], seed)?;
            let v = make(backend, dtype, Class::SmallInts, &[1, 1, keys, 9], seed)?;
            let seen: Vec<bool> = (0..queries * keys).map(|at| at % keys + queries <= at / keys + keys).collect();
            let mask = Tensor::from_slice(backend, &seen, [queries, keys])?;
            let masked = q.attention(&k, &v, Some(&mask), AttentionOptions::default())?;
            let causal = q.attention(&k, &v, None, AttentionOptions { scale: None, causal: true })?;
            if let Some(found) = differ(&masked, &causal, true)? {
                return Ok(Some(format!("{dtype}, {queries} queries, {keys} keys: {found}")));
            }
        }
    }
    Ok(None)
}
