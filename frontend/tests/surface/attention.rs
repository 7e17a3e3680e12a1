//! Attention: heads, masks, queries that see nothing, and bad input.

use congruent::ops::AttentionOptions;
use congruent::{DType, ErrorKind, Result, Tensor};

use crate::{AnyTensor, cpu, f32s};

const PLAIN: AttentionOptions = AttentionOptions { scale: None, causal: false };

#[test]
fn masks_hide_keys_and_what_sees_none_is_zero() -> Result<()> {
    let (q, k) = (f32s(&[0.0; 3], [1, 1, 3, 1]), f32s(&[0.0; 2], [1, 1, 2, 1]));
    let v = f32s(&[2.0, 4.0], [1, 1, 2, 1]);
    let seen = Tensor::from_slice(&cpu(), &[true, false, false, false, true, true], [3, 2])?;
    assert_eq!(q.attention(&k, &v, Some(&seen), PLAIN)?.to_vec::<f32>()?, [2.0, 0.0, 3.0]);
    let added = f32s(&[0.0, f32::NEG_INFINITY], [2]);
    assert_eq!(q.attention(&k, &v, Some(&added), PLAIN)?.to_vec::<f32>()?, [2.0; 3]);
    // Three queries, two keys: the first query stands before every key.
    let causal = AttentionOptions { causal: true, ..PLAIN };
    assert_eq!(q.attention(&k, &v, None, causal)?.to_vec::<f32>()?, [0.0, 2.0, 3.0]);
    let none = AnyTensor::zeros(&cpu(), [1, 1, 0, 1], DType::F32)?;
    assert_eq!(q.attention(&none, &none, None, PLAIN)?.to_vec::<f32>()?, [0.0; 3]);
    Ok(())
}

#[test]
fn neighbouring_heads_share_keys() -> Result<()> {
    let (q, k) = (f32s(&[1.0; 4], [1, 4, 1, 1]), f32s(&[1.0; 2], [1, 2, 1, 1]));
    let v = f32s(&[5.0, 7.0], [1, 2, 1, 1]);
    assert_eq!(q.attention(&k, &v, None, PLAIN)?.to_vec::<f32>()?, [5.0, 5.0, 7.0, 7.0]);
    let mut out = AnyTensor::zeros(&cpu(), [1, 4, 1, 1], DType::F32)?;
    q.attention_into(&k, &v, None, PLAIN, &mut out)?;
    assert_eq!(out.to_vec::<f32>()?, [5.0, 5.0, 7.0, 7.0]);
    Ok(())
}

#[test]
fn what_does_not_fit_is_named() -> Result<()> {
    let of = |shape: [usize; 4]| AnyTensor::zeros(&cpu(), shape, DType::F32);
    let kind = |result: Result<AnyTensor>| result.unwrap_err().kind();
    let (q, k) = (of([1, 4, 3, 2])?, of([1, 2, 5, 2])?);
    assert_eq!(kind(q.attention(&of([1, 3, 5, 2])?, &of([1, 3, 5, 2])?, None, PLAIN)), ErrorKind::Shape);
    assert_eq!(kind(q.attention(&k, &of([1, 2, 4, 2])?, None, PLAIN)), ErrorKind::Shape);
    assert_eq!(kind(q.attention(&of([1, 2, 5, 3])?, &k, None, PLAIN)), ErrorKind::Shape);
    assert_eq!(kind(q.attention(&k, &k, Some(&of([1, 4, 3, 4])?), PLAIN)), ErrorKind::Shape);
    assert_eq!(kind(q.attention(&k, &k.cast(DType::F64)?, None, PLAIN)), ErrorKind::DType);
    assert_eq!(kind(q.attention(&k, &k, Some(&of([1, 1, 3, 5])?.cast(DType::F16)?), PLAIN)), ErrorKind::DType);
    let scale = AttentionOptions { scale: Some(f64::NAN), ..PLAIN };
    assert_eq!(kind(q.attention(&k, &k, None, scale)), ErrorKind::Argument);
    Ok(())
}
