//! Pooling: gradients as adjoints, constants, windows of one element, and maxima by their positions.

use congruent::ops::{Divisor, PoolOp, PoolOptions};
use congruent::{AnyBackend, DType, Result, Tensor};

use super::{Backend, FLOATS, differ, make, scalars};
use crate::values::Class;

/// Options and the shape of x, the last sizes all different.
const GEOMETRIES: [(PoolOptions, &[usize]); 3] = [
    (
        PoolOptions {
            kernel: [4; 3],
            stride: [2; 3],
            padding: [[2, 1]; 3],
            dilation: [3; 3],
            ceil: true,
            divisor: Divisor::Fixed(1),
        },
        &[2, 3, 31],
    ),
    (
        PoolOptions {
            kernel: [3, 2, 1],
            stride: [2, 1, 1],
            padding: [[0, 1], [1, 0], [0; 2]],
            dilation: [1, 2, 1],
            ceil: false,
            divisor: Divisor::Fixed(1),
        },
        &[2, 4, 13, 9],
    ),
    (
        PoolOptions {
            kernel: [2, 3, 3],
            stride: [1, 2, 3],
            padding: [[1, 0], [0, 2], [1, 1]],
            dilation: [1; 3],
            ceil: true,
            divisor: Divisor::Fixed(1),
        },
        &[1, 3, 6, 7, 8],
    ),
];

/// Of sums, and of maxima where the gradient is sent to their positions, whatever it is applied to.
pub(super) fn adjoint(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        for (options, shape) in GEOMETRIES {
            let x = whole(backend, dtype, shape, seed)?;
            let (sums, maxima) = (x.avg_pool(options)?, x.max_pool(options)?);
            let y = whole(backend, dtype, sums.shape(), seed + 1)?;
            let indices = x.argmax_pool(options)?;
            let pairs = [
                (inner(&sums, &y)?, inner(&x, &y.avg_pool_grad(shape, options)?)?),
                (inner(&maxima, &y)?, inner(&x, &y.max_pool_grad(&indices, shape, options)?)?),
            ];
            if let Some((forward, back)) = pairs.into_iter().find(|(forward, back)| forward != back) {
                return Ok(Some(format!("{dtype}, {options:?}: {forward} forward, {back} by the gradient")));
            }
        }
    }
    Ok(None)
}

pub(super) fn constant(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        for (options, shape) in GEOMETRIES {
            // A whole number: sums of it are exact.
            let value = (seed % 5) as f64 + 1.0;
            let x = Tensor::full(backend, value, shape, dtype)?;
            let options = PoolOptions { divisor: Divisor::Elements, ..options };
            let average = x.avg_pool(options)?;
            let expected = Tensor::full(backend, value, average.shape(), dtype)?;
            if let Some(found) = differ(&average, &expected, false)? {
                return Ok(Some(format!("{dtype}, {options:?}: {found}")));
            }
        }
    }
    Ok(None)
}

pub(super) fn single(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let one = PoolOptions::new([1; 3]);
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_number()) {
        let x = make(backend, dtype, Class::FullRange, &[2, 3, 4, 5], seed)?;
        if let Some(found) = differ(&x.max_pool(one)?, &x, false)? {
            return Ok(Some(format!("max_pool, {dtype}: {found}")));
        }
        if dtype.is_float()
            && let Some(found) = differ(&x.avg_pool(one)?, &x, true)?
        {
            return Ok(Some(format!("avg_pool, {dtype}: {found}")));
        }
    }
    Ok(None)
}

pub(super) fn positions(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_number()) {
        for (options, shape) in GEOMETRIES {
            let x = make(backend, dtype, Class::Ties, shape, seed)?;
            let (maxima, indices) = x.max_pool_with_indices(options)?;
            let planes = |x: &Tensor<AnyBackend>| x.reshape([shape[0], shape[1], x.count() / shape[0] / shape[1]]);
            let picked = planes(&x)?.gather(2, &planes(&indices)?)?;
            if let Some(found) = differ(&picked, &planes(&maxima)?, true)? {
                return Ok(Some(format!("{dtype}, {options:?}: {found}")));
            }
        }
    }
    Ok(None)
}

pub(super) fn whole_input(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        let x = whole(backend, dtype, &[2, 3, 16, 8], seed)?;
        let all = PoolOptions::new([16, 8, 1]);
        let pairs = [(x.max_pool(all)?, x.max([2, 3], true)?), (x.avg_pool(all)?, x.mean([2, 3], true)?)];
        for (pooled, reduced) in pairs {
            if let Some(found) = differ(&pooled, &reduced, true)? {
                return Ok(Some(format!("{dtype}: {found}")));
            }
        }
    }
    Ok(None)
}

pub(super) fn layouts(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        let options = PoolOptions { stride: [2; 3], padding: [[1; 2]; 3], ..PoolOptions::new([3; 3]) };
        let last = make(backend, dtype, Class::Uniform, &[4, 5, 5, 5], seed)?.permute([0, 3, 1, 2])?;
        let copy = last.contiguous()?;
        for op in [PoolOp::MaxPool, PoolOp::ArgmaxPool, PoolOp::AvgPool] {
            if let Some(found) = differ(&last.pool(op, options)?, &copy.pool(op, options)?, false)? {
                return Ok(Some(format!("{}, {dtype}: {found}", op.name())));
            }
        }
    }
    Ok(None)
}

/// Whole numbers, so small that their products and sums are exact.
fn whole(backend: &Backend, dtype: DType, shape: &[usize], seed: u64) -> Result<Tensor<AnyBackend>> {
    make(backend, dtype, Class::SmallInts, shape, seed)?.rem(3)
}

/// The inner product, on the host.
fn inner(a: &Tensor<AnyBackend>, b: &Tensor<AnyBackend>) -> Result<f64> {
    let (a, b) = (scalars(a)?, scalars(b)?);
    Ok(a.iter().zip(&b).map(|(a, b)| a.to_f64() * b.to_f64()).sum())
}
