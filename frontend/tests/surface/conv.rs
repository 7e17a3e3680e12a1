//! Convolutions and their gradients.

use congruent::ops::{ConvOp, ConvOptions};
use congruent::{DType, ErrorKind, Tensor, bf16};

use crate::{AnyTensor, cpu, f32s};

const PLAIN: ConvOptions = ConvOptions { stride: [1; 3], padding: [[0; 2]; 3], dilation: [1; 3], groups: 1 };

fn ones(shape: impl AsRef<[usize]>) -> AnyTensor {
    Tensor::ones(&cpu(), shape, DType::F32).unwrap()
}

#[test]
fn images_in_groups_with_a_bias() {
    let x = Tensor::arange(&cpu(), 0..18, DType::F32).unwrap().reshape([1, 2, 3, 3]).unwrap();
    let weight = f32s(&[1.0, 0.0, 0.0, 1.0, 0.0, 2.0, 0.0, 0.0], [2, 1, 2, 2]);
    let (bias, options) = (f32s(&[0.5, -1.0], [2]), ConvOptions { groups: 2, ..PLAIN });
    let y = x.conv(&weight, Some(&bias), options).unwrap();
    assert_eq!(y.shape(), [1, 2, 2, 2]);
    assert_eq!(y.to_vec::<f32>().unwrap(), [4.5, 6.5, 10.5, 12.5, 19.0, 21.0, 25.0, 27.0]);
    // Channels last, in memory and in the result.
    let last = x.permute([0, 2, 3, 1]).unwrap().contiguous().unwrap().permute([0, 3, 1, 2]).unwrap();
    let mut out = ones([1, 2, 2, 2]).permute([0, 3, 1, 2]).unwrap();
    last.conv_into(ConvOp::Conv, &weight, Some(&bias), options, &mut out).unwrap();
    assert_eq!(out.to_vec::<f32>().unwrap(), y.to_vec::<f32>().unwrap());
    let out = last.conv(&weight, Some(&bias), options).unwrap();
    assert!(out.permute([0, 2, 3, 1]).unwrap().is_contiguous());
    assert_eq!(out.to_vec::<f32>().unwrap(), y.to_vec::<f32>().unwrap());
    assert!(y.is_contiguous());
}

#[test]
fn transposes_and_gradients() {
    let (y, weight) = (f32s(&[1.0, 2.0], [1, 1, 2]), f32s(&[1.0, 10.0, 100.0], [1, 1, 3]));
    let options = ConvOptions { stride: [2; 3], ..PLAIN };
    let bias = f32s(&[0.5], [1]);
    let x = y.conv_transpose(&weight, Some(&bias), options, [2, 0, 0]).unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.5, 10.5, 102.5, 20.5, 200.5, 0.5, 0.5]);
    let gradient = y.conv_grad_input(&weight, [1, 1, 6], options).unwrap();
    assert_eq!(gradient.to_vec::<f32>().unwrap(), [1.0, 10.0, 102.0, 20.0, 200.0, 0.0]);
    assert_eq!(y.conv_grad_input(&weight, [1, 1, 7], options).unwrap_err().kind(), ErrorKind::Shape);
    let by_weight = gradient.conv_grad_weight(&y, [1, 1, 3], options).unwrap();
    assert_eq!(by_weight.to_vec::<f32>().unwrap(), [205.0, 50.0, 502.0]);
    // f16 and bf16 round once: 256 + 1 + 1 in bf16.
    let narrow = |values: &[f32], shape: &[usize]| f32s(values, shape).cast(DType::BF16).unwrap();
    let sums = narrow(&[1.0, 1.0, 1.0], &[1, 3, 1]).conv_transpose(
        &narrow(&[256.0, 1.0, 1.0], &[3, 1, 1]),
        None,
        PLAIN,
        [0; 3],
    );
    assert_eq!(sums.unwrap().to_vec::<bf16>().unwrap(), [bf16::from_f32(258.0)]);
}

#[test]
fn nothing_has_a_shape_and_what_does_not_fit_an_error() {
    let bias = f32s(&[1.0, 2.0], [2]);
    let of_nothing = ones([1, 0, 2]).conv(&ones([2, 0, 2]), Some(&bias), PLAIN).unwrap();
    assert_eq!(of_nothing.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!(ones([0, 3, 5, 5]).conv(&ones([4, 3, 3, 3]), None, PLAIN).unwrap().shape(), [0, 4, 3, 3]);
    assert_eq!(
        ones([0, 1, 4]).conv_grad_weight(&ones([0, 1, 3]), [1, 1, 2], PLAIN).unwrap().to_vec::<f32>().unwrap(),
        [0.0; 2]
    );
    let kind = |x: AnyTensor, weight, options| x.conv(&weight, None, options).unwrap_err().kind();
    assert_eq!(kind(ones([1, 1, 2]), ones([1, 1, 3]), PLAIN), ErrorKind::Shape);
    assert_eq!(kind(ones([1, 2, 3]), ones([3, 1, 1]), ConvOptions { groups: 2, ..PLAIN }), ErrorKind::Shape);
    assert_eq!(kind(ones([1, 1, 2]), ones([1, 1, 1]), ConvOptions { stride: [0; 3], ..PLAIN }), ErrorKind::Argument);
    let integers = ones([1, 1, 2]).cast(DType::I32).unwrap();
    assert_eq!(kind(integers.clone(), integers, PLAIN), ErrorKind::DType);
}
