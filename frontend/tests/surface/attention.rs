//! Attention: heads, masks, queries that see nothing, and bad input.

use congruent::ops::{Alignment, AttentionGradient, AttentionInputs, AttentionOp, AttentionOptions, Dropout};
use congruent::{DType, ErrorKind, Result, Tensor};

use crate::{AnyTensor, cpu, f32s};

const PLAIN: AttentionOptions = AttentionOptions {
    scale: None,
    causal: false,
    alignment: Alignment::Last,
    window: None,
    soft_cap: None,
    dropout: None,
};

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

/// The gradients of attention agree with differences of Σ weights ⊙ output, in f64, with every option at once.
#[test]
fn gradients_are_slopes() -> Result<()> {
    let numbers = |shape: [usize; 4], step: usize| {
        let numbers = (0..shape.iter().product::<usize>()).map(|at| ((at * step) % 13) as f64 / 7.0 - 0.8);
        Tensor::from_slice(&cpu(), &numbers.collect::<Vec<_>>(), shape)
    };
    let (q, k, v) = (numbers([2, 4, 5, 3], 5)?, numbers([2, 2, 6, 3], 7)?, numbers([2, 2, 6, 2], 3)?);
    let weights = numbers([2, 4, 5, 2], 11)?;
    let slopes = Tensor::from_slice(&cpu(), &[0.5, 0.25, 0.125, 0.0625], [4])?;
    let lengths = Tensor::from_slice(&cpu(), &[6_i64, 4], [2])?;
    let mask = Tensor::from_slice(&cpu(), &[true, true, false, true, true, true], [6])?;
    let dropout = Some(Dropout { probability: 0.25, seed: 3, offset: 1 });
    let options =
        AttentionOptions { causal: true, window: Some(4), soft_cap: Some(1.5), dropout, ..AttentionOptions::default() };
    let extras = AttentionInputs {
        mask: Some(&mask),
        slopes: Some(&slopes),
        lengths: Some(&lengths),
        ..AttentionInputs::new(&q, &k, &v)
    };
    let output = Tensor::attention_with(AttentionOp::Output, extras, options)?;
    let logsumexp = Tensor::attention_with(AttentionOp::LogSumExp, extras, options)?;
    let gradients = Tensor::attention_grads(extras, options, &weights, &output, &logsumexp)?;
    for (operand, (x, gradient)) in [&q, &k, &v].into_iter().zip(&gradients).enumerate() {
        let loss = |at: usize, step: f64| -> Result<f64> {
            let mut moved = x.to_vec::<f64>()?;
            moved[at] += step;
            let moved = Tensor::from_slice(&cpu(), &moved, x.shape())?;
            let mut inputs = extras;
            *[&mut inputs.q, &mut inputs.k, &mut inputs.v][operand] = &moved;
            let output = Tensor::attention_with(AttentionOp::Output, inputs, options)?;
            (output * &weights)?.sum(.., false)?.item::<f64>()
        };
        for (at, gradient) in gradient.to_vec::<f64>()?.into_iter().enumerate() {
            let slope = (loss(at, 1e-5)? - loss(at, -1e-5)?) / 2e-5;
            assert!((slope - gradient).abs() < 1e-8, "operand {operand}, element {at}: {slope} and {gradient}");
        }
    }
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
    let dropout = |probability| Some(Dropout { probability, seed: 0, offset: 0 });
    for options in [
        AttentionOptions { scale: Some(f64::NAN), ..PLAIN },
        AttentionOptions { soft_cap: Some(0.0), ..PLAIN },
        AttentionOptions { window: Some(0), ..PLAIN },
        AttentionOptions { dropout: dropout(1.0), ..PLAIN },
        AttentionOptions { dropout: dropout(-0.1), ..PLAIN },
        AttentionOptions { dropout: dropout(f64::NAN), ..PLAIN },
    ] {
        assert_eq!(kind(q.attention(&k, &k, None, options)), ErrorKind::Argument);
    }
    let with = |inputs| kind(Tensor::attention_with(AttentionOp::Output, inputs, PLAIN));
    let (plain, short) = (AttentionInputs::new(&q, &k, &k), AnyTensor::zeros(&cpu(), [2], DType::I64)?);
    let (narrow, few) = (short.cast(DType::I32)?, short.cast(DType::F32)?);
    assert_eq!(with(AttentionInputs { lengths: Some(&short), ..plain }), ErrorKind::Shape);
    assert_eq!(with(AttentionInputs { lengths: Some(&narrow), ..plain }), ErrorKind::DType);
    assert_eq!(with(AttentionInputs { slopes: Some(&few), ..plain }), ErrorKind::Shape);
    let gradient = AttentionGradient { grad: &q, logsumexp: &q, delta: &q };
    assert_eq!(with(AttentionInputs { gradient: Some(gradient), ..plain }), ErrorKind::Argument);
    assert_eq!(kind(Tensor::attention_with(AttentionOp::GradKey, plain, PLAIN)), ErrorKind::Argument);
    Ok(())
}
