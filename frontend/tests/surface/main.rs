//! The surface of the crate as users meet it, on the CPU backend chosen at run time unless a test says otherwise.

#![cfg(feature = "cpu")]
#![expect(clippy::unwrap_used, reason = "the lint spares the tests themselves, but not their helpers")]

mod attention;
mod backends;
mod channel_norm;
mod conv;
mod conversion;
mod create;
mod display;
mod einsum;
mod errors;
mod io;
mod norm;
mod operators;
mod ops;
mod pick;
mod pool;
mod random;
mod rearrange;
mod resize;
mod sharing;
mod sort;
mod transformer;
mod views;

use std::sync::Arc;

use congruent::{AnyBackend, DType, Tensor, backend};

type AnyTensor = Tensor<AnyBackend>;

fn cpu() -> Arc<AnyBackend> {
    backend("cpu").unwrap()
}

fn f32s(elements: &[f32], shape: impl AsRef<[usize]>) -> AnyTensor {
    Tensor::from_slice(&cpu(), elements, shape).unwrap()
}

fn i64s(elements: &[i64], shape: impl AsRef<[usize]>) -> AnyTensor {
    Tensor::from_slice(&cpu(), elements, shape).unwrap()
}

/// 0, 1, 2 … in `shape`, as i64.
fn count(shape: impl AsRef<[usize]>) -> AnyTensor {
    let count = shape.as_ref().iter().product::<usize>() as i64;
    Tensor::arange(&cpu(), 0..count, DType::I64).unwrap().reshape(shape).unwrap()
}

/// The shape and the elements in row-major order.
fn parts(x: &AnyTensor) -> (Vec<usize>, Vec<i64>) {
    (x.shape().to_vec(), x.to_vec().unwrap())
}
