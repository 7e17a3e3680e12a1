//! Pooling, and what is made of it.

use congruent::ops::{Divisor, PoolOp, PoolOptions};
use congruent::{DType, ErrorKind, Tensor};

use crate::{AnyTensor, count, cpu, f32s, parts};

fn image() -> AnyTensor {
    count([1, 1, 4, 4])
}

fn close(x: &AnyTensor, expected: &[f32]) {
    let got = x.to_vec::<f32>().unwrap();
    assert!(got.len() == expected.len() && got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{got:?}");
}

#[test]
fn maxima_and_their_gradient() {
    let options = PoolOptions { stride: [2; 3], padding: [[1; 2]; 3], ..PoolOptions::new([3; 3]) };
    let (maxima, indices) = image().max_pool_with_indices(options).unwrap();
    assert_eq!(parts(&maxima), (vec![1, 1, 2, 2], vec![5, 7, 13, 15]));
    assert_eq!(parts(&indices), parts(&maxima));
    let grad = f32s(&[1.0, 10.0, 100.0, 1000.0], [1, 1, 2, 2]);
    let back = grad.max_pool_grad(&indices, [1, 1, 4, 4], options).unwrap().to_vec::<f32>().unwrap();
    assert_eq!((back[5], back[7], back[13], back[15], back.iter().sum()), (1.0, 10.0, 100.0, 1000.0, 1111.0));
    let mut out = Tensor::zeros(&cpu(), [1, 1, 2, 2], DType::I64).unwrap();
    image().pool_into(PoolOp::MaxPool, None, options, &mut out).unwrap();
    assert_eq!(parts(&out), parts(&maxima));
}

#[test]
fn averages_sums_and_norms() {
    let x = f32s(&[1.0, 2.0, 3.0, 4.0], [1, 1, 4]);
    let wide = PoolOptions { stride: [2; 3], padding: [[1; 2]; 3], ..PoolOptions::new([3; 3]) };
    close(&x.avg_pool(wide).unwrap(), &[1.0, 3.0]);
    close(&x.avg_pool(PoolOptions { divisor: Divisor::Elements, ..wide }).unwrap(), &[1.5, 3.0]);
    close(&x.avg_pool(PoolOptions { divisor: Divisor::Fixed(2), ..wide }).unwrap(), &[1.5, 4.5]);
    close(&f32s(&[3.0, 6.0], [1, 1, 2]).avg_pool_grad([1, 1, 4], wide).unwrap(), &[1.0, 3.0, 2.0, 2.0]);
    let pairs = PoolOptions::new([2; 3]);
    close(&f32s(&[3.0, -4.0, 0.0, 5.0], [1, 1, 4]).lp_pool(2.0, pairs).unwrap(), &[5.0, 5.0]);
    close(&f32s(&[3.0, -4.0, 0.0, 5.0], [1, 1, 4]).lp_pool(1.0, pairs).unwrap(), &[7.0, 5.0]);
    close(&f32s(&[1.0, -2.0, 2.0, 0.0], [1, 1, 4]).lp_pool(3.0, pairs).unwrap(), &[9.0_f32.cbrt(), 2.0]);
    assert_eq!(x.lp_pool(0.0, pairs).unwrap_err().kind(), ErrorKind::Argument);
}

#[test]
fn global_and_adaptive_windows() {
    let x = image().cast(DType::F32).unwrap();
    close(&x.global_avg_pool().unwrap(), &[7.5]);
    assert_eq!(parts(&image().global_max_pool().unwrap()), (vec![1, 1, 1, 1], vec![15]));
    assert_eq!(parts(&image().adaptive_max_pool([2, 4]).unwrap()), (vec![1, 1, 2, 4], (4..8).chain(12..16).collect()));
    // Windows of three: rows 0..2, 1..3 and 2..4.
    assert_eq!(parts(&image().adaptive_max_pool([3, 1]).unwrap()), (vec![1, 1, 3, 1], vec![7, 11, 15]));
    close(&x.adaptive_avg_pool([3, 1]).unwrap(), &[3.5, 7.5, 11.5]);
    close(&x.adaptive_avg_pool([1, 1]).unwrap(), &[7.5]);
    // More windows than elements.
    let pair = f32s(&[1.0, 5.0], [1, 1, 2]);
    close(&pair.adaptive_avg_pool([3]).unwrap(), &[1.0, 3.0, 5.0]);
    assert_eq!(pair.adaptive_avg_pool([0]).unwrap().shape(), [1, 1, 0]);
    assert_eq!(pair.adaptive_avg_pool([1, 1]).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(f32s(&[], [1, 1, 0]).adaptive_max_pool([2]).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(f32s(&[1.0], [1, 1]).global_max_pool().unwrap_err().kind(), ErrorKind::Shape);
}

#[test]
fn nothing_is_well_shaped_and_what_does_not_fit_is_an_error() {
    let two = PoolOptions::new([2; 3]);
    let zeros = |shape: [usize; 4]| Tensor::zeros(&cpu(), shape, DType::F32).unwrap();
    assert_eq!(zeros([0, 3, 4, 4]).max_pool(two).unwrap().shape(), [0, 3, 2, 2]);
    assert_eq!(zeros([2, 0, 4, 4]).avg_pool(two).unwrap().shape(), [2, 0, 2, 2]);
    let error = zeros([1, 1, 4, 1]).max_pool(two).unwrap_err();
    assert!(error.kind() == ErrorKind::Shape && error.message().contains("0 + 1 + 0 = 1"), "{error}");
    assert_eq!(image().avg_pool(two).unwrap_err().kind(), ErrorKind::DType);
    assert_eq!(zeros([1, 1, 2, 2]).pool(PoolOp::MaxPoolGrad, two).unwrap_err().kind(), ErrorKind::Shape);
}
