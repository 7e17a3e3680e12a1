//! Softmax and the norms: values, axes, affine operands, gradients and bad input.

use congruent::ops::NormalizeOp;
use congruent::{DType, ErrorKind, Result, Tensor};

use crate::{AnyTensor, cpu, f32s};

#[test]
fn rows_and_columns() -> Result<()> {
    let x = f32s(&[0.0, 0.0, 3.0, 3.0, f32::NEG_INFINITY, 5.0], [3, 2]);
    assert_eq!(x.softmax(1)?.to_vec::<f32>()?, [0.5, 0.5, 0.5, 0.5, 0.0, 1.0]);
    assert_eq!(x.i((..2, ..))?.layer_norm(0, 0.0, None, None)?.to_vec::<f32>()?, [-1.0, -1.0, 1.0, 1.0]);
    let (weight, bias) = (f32s(&[2.0, 3.0], [2]), f32s(&[1.0], [1]));
    let y = f32s(&[1.0, 3.0], [1, 2]).layer_norm(-1, 0.0, Some(&weight), Some(&bias))?;
    assert_eq!(y.to_vec::<f32>()?, [-1.0, 4.0]);
    assert_eq!(f32s(&[3.0, 4.0], [2]).l2_normalize(0, 1e-12)?.to_vec::<f32>()?, [0.6, 0.8]);
    assert_eq!(f32s(&[2.0, -2.0], [2]).rms_norm(0, 0.0, None)?.to_vec::<f32>()?, [1.0, -1.0]);
    assert_eq!(AnyTensor::zeros(&cpu(), [0, 3], DType::F32)?.softmax(1)?.shape(), [0, 3]);
    Ok(())
}

/// Against differences of the function itself, in f64.
#[test]
fn gradients_are_those_of_the_function() -> Result<()> {
    let cpu = cpu();
    let values = [0.3, -1.2, 0.7, 2.0, 0.1, -0.4];
    let x = Tensor::from_slice(&cpu, &values, [2, 3])?;
    let grad = Tensor::from_slice(&cpu, &[0.5, -0.25, 1.0, 2.0, -1.0, 0.75], [2, 3])?;
    let weight = Tensor::from_slice(&cpu, &[1.5, -2.0, 0.5], [3])?;
    for &op in NormalizeOp::ALL {
        let weight = op.is_affine().then_some(&weight);
        let loss = |x: &AnyTensor| -> Result<f64> {
            let y = x.normalize(op, 1e-3, 1, weight, None)?;
            (&y * &grad)?.sum(.., false)?.item::<f64>()
        };
        let first = if op.is_affine() { x.clone() } else { x.normalize(op, 0.0, 1, None, None)? };
        let got = first.normalize_grad(op, 1e-3, 1, &grad, weight)?.to_vec::<f64>()?;
        for (index, got) in got.into_iter().enumerate() {
            let moved = |step: f64| {
                let mut values = values;
                values[index] += step;
                loss(&Tensor::from_slice(&cpu, &values, [2, 3])?)
            };
            let slope = (moved(1e-5)? - moved(-1e-5)?) / 2e-5;
            assert!((slope - got).abs() < 1e-8, "{} at {index}: {got}, by differences {slope}", op.name());
        }
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_named() -> Result<()> {
    let (x, weight) = (f32s(&[1.0; 6], [2, 3]), f32s(&[1.0; 2], [2]));
    let kind = |result: Result<AnyTensor>| result.unwrap_err().kind();
    assert_eq!(kind(x.softmax(2)), ErrorKind::Axis);
    assert_eq!(kind(x.layer_norm(1, 1e-5, Some(&weight), None)), ErrorKind::Shape);
    assert_eq!(kind(x.layer_norm(1, -1.0, None, None)), ErrorKind::Argument);
    assert_eq!(kind(x.layer_norm(1, 1e-5, None, Some(&x))), ErrorKind::Argument);
    assert_eq!(kind(x.normalize(NormalizeOp::Softmax, 0.0, 1, Some(&x), None)), ErrorKind::Argument);
    assert_eq!(kind(x.cast(DType::I32)?.softmax(1)), ErrorKind::DType);
    assert_eq!(kind(x.normalize_grad(NormalizeOp::Softmax, 0.0, 1, &weight, None)), ErrorKind::Shape);
    Ok(())
}
