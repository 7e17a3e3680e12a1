//! The op families, one `.rs` and one `.cu` each, and what the elementwise ones share.

mod attention;
mod binary;
mod compare;
mod conv;
mod copy;
mod elementwise;
mod index;
mod linear;
mod matmul;
mod norm;
mod pool;
mod random;
mod reduce;
mod scan;
mod scatter;
mod sort;
mod statistic;
mod unary;

use congruent_backend_api::convert::{f64_to_bf16, f64_to_f16};
use congruent_backend_api::{DType, Scalar};

use elementwise::Extra;

/// The memory of one element, as kernels take it: `value` is in the range of `dtype`.
fn scalar_bits(value: Scalar, dtype: DType) -> u64 {
    match (value, dtype) {
        (Scalar::Bool(value), _) => value.into(),
        (value, DType::F64) => value.to_f64().to_bits(),
        (value, DType::F32) => (value.to_f64() as f32).to_bits().into(),
        (value, DType::F16) => f64_to_f16(value.to_f64()).to_bits().into(),
        (value, DType::BF16) => f64_to_bf16(value.to_f64()).to_bits().into(),
        (value, _) => value.to_i64().cast_unsigned(),
    }
}
