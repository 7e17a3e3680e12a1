//! Batch, group and instance normalisation.

use congruent::{DType, ErrorKind};

use crate::{AnyTensor, count, f32s};

fn values(x: &AnyTensor) -> Vec<f32> {
    x.to_vec().unwrap()
}

fn image() -> AnyTensor {
    count([2, 4, 3, 2]).rem(5).unwrap().cast(DType::F32).unwrap()
}

fn close(a: &[f32], b: &[f32]) {
    assert!(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5), "{a:?} {b:?}");
}

/// (x − mean)/√(var + ε) over axes, by the statistics.
fn plain(x: &AnyTensor, axes: &[isize]) -> AnyTensor {
    let variance = x.var(0.0, axes, true).unwrap();
    ((x - x.mean(axes, true).unwrap()).unwrap() * variance.add(1e-5).unwrap().rsqrt().unwrap()).unwrap()
}

#[test]
fn each_norm_is_that_of_its_axes() {
    let x = image();
    let (weight, bias) = (f32s(&[1.0, 2.0, 3.0, 4.0], [4]), f32s(&[0.5, 0.0, -0.5, 1.0], [4]));
    let per_channel = |x: &AnyTensor| x.reshape([4, 1, 1]).unwrap();
    let affine = |x: AnyTensor| ((x * per_channel(&weight)).unwrap() + per_channel(&bias)).unwrap();
    let (w, b) = (Some(&weight), Some(&bias));
    close(&values(&x.batch_norm(1e-5, w, b).unwrap()), &values(&affine(plain(&x, &[0, 2, 3]))));
    close(&values(&x.instance_norm(1e-5, w, b).unwrap()), &values(&affine(plain(&x, &[2, 3]))));
    let grouped = plain(&x.reshape([2, 2, 2, 3, 2]).unwrap(), &[2, 3, 4]).reshape([2, 4, 3, 2]).unwrap();
    close(&values(&x.group_norm(2, 1e-5, w, b).unwrap()), &values(&affine(grouped)));
    close(&values(&x.group_norm(4, 1e-5, None, None).unwrap()), &values(&x.instance_norm(1e-5, None, None).unwrap()));
}

#[test]
fn training_moves_the_running_values_and_inference_takes_them() {
    let x = image();
    let (mut mean, mut variance) = (f32s(&[0.0; 4], [4]), f32s(&[1.0; 4], [4]));
    let trained = x.batch_norm_train((&mut mean, &mut variance), 1.0, 1e-5, None, None).unwrap();
    close(&values(&trained), &values(&plain(&x, &[0, 2, 3])));
    close(&values(&mean), &values(&x.mean([0, 2, 3], false).unwrap()));
    close(&values(&variance), &values(&x.var(1.0, [0, 2, 3], false).unwrap()));
    x.batch_norm_train((&mut mean, &mut variance), 0.0, 1e-5, None, None).unwrap();
    let biased = x.var(0.0, [0, 2, 3], false).unwrap();
    close(&values(&x.batch_norm_inference((&mean, &biased), 1e-5, None, None).unwrap()), &values(&trained));
}

/// By differences of the loss Σ y·g, in f64.
#[test]
fn the_gradient_of_batch_norm_is_its_slope() {
    let x = image().cast(DType::F64).unwrap();
    let grad = count([2, 4, 3, 2]).rem(3).unwrap().cast(DType::F64).unwrap();
    let weight = f32s(&[1.0, 2.0, 3.0, 4.0], [4]).cast(DType::F64).unwrap();
    let loss = |x: &AnyTensor| {
        let y = x.batch_norm(1e-5, Some(&weight), None).unwrap();
        (y * &grad).unwrap().sum((), false).unwrap().item::<f64>().unwrap()
    };
    let slope = x.batch_norm_grad(1e-5, &grad, Some(&weight)).unwrap().to_vec::<f64>().unwrap();
    for at in [0, 7, 20, 47] {
        let one = count([48]).eq(at as i64).unwrap().cast(DType::F64).unwrap().reshape([2, 4, 3, 2]).unwrap();
        let step = (one * 1e-5).unwrap();
        let by_difference = (loss(&(&x + &step).unwrap()) - loss(&(&x - &step).unwrap())) / 2e-5;
        assert!((slope[at] - by_difference).abs() < 1e-6, "{} {by_difference}", slope[at]);
    }
}

#[test]
fn channels_must_fit() {
    let (x, three) = (image(), f32s(&[1.0; 3], [3]));
    let kind = |result: congruent::Result<AnyTensor>| result.unwrap_err().kind();
    assert_eq!(kind(x.batch_norm(1e-5, Some(&three), None)), ErrorKind::Shape);
    assert_eq!(kind(x.group_norm(3, 1e-5, None, None)), ErrorKind::Shape);
    assert_eq!(kind(x.group_norm(0, 1e-5, None, None)), ErrorKind::Shape);
    assert_eq!(kind(three.batch_norm(1e-5, None, None)), ErrorKind::Shape);
    assert_eq!(kind(f32s(&[1.0; 4], [2, 2]).instance_norm(1e-5, None, None)), ErrorKind::Shape);
    let four = three.cast(DType::F64).unwrap();
    assert_eq!(kind(x.batch_norm_inference((&four, &four), 1e-5, None, None)), ErrorKind::DType);
    let empty = x.narrow(0, 0, 0).unwrap();
    assert_eq!(empty.group_norm(2, 1e-5, None, None).unwrap().shape(), [0, 4, 3, 2]);
}
