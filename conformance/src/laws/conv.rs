//! Convolutions: transposes, shifts, groups and layouts, on data that makes every order exact.

use congruent::ops::ConvOptions;
use congruent::{AnyBackend, DType, Result, Tensor};

use super::{Backend, FLOATS, differ, make, scalars};
use crate::values::Class;

/// Options, x and weight, the last sizes all different.
const GEOMETRIES: [(ConvOptions, &[usize], &[usize]); 3] = [
    (ConvOptions { stride: [2; 3], padding: [[2, 1]; 3], dilation: [3; 3], groups: 1 }, &[2, 3, 31], &[5, 3, 4]),
    (
        ConvOptions { stride: [2, 1, 1], padding: [[0, 1], [2, 0], [0; 2]], dilation: [1, 2, 1], groups: 2 },
        &[2, 4, 13, 9],
        &[6, 2, 3, 2],
    ),
    (
        ConvOptions { stride: [1, 2, 3], padding: [[1, 0], [0, 2], [1, 1]], dilation: [1; 3], groups: 3 },
        &[1, 3, 6, 7, 8],
        &[3, 1, 2, 3, 3],
    ),
];

pub(super) fn adjoint(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        for (options, x, weight) in GEOMETRIES {
            let (x, weight) = (whole(backend, dtype, x, seed)?, whole(backend, dtype, weight, seed + 1)?);
            let conv = x.conv(&weight, None, options)?;
            let y = whole(backend, dtype, conv.shape(), seed + 2)?;
            let products = [
                (inner(&conv, &y)?, "conv"),
                (inner(&x, &y.conv_grad_input(&weight, x.shape(), options)?)?, "conv_transpose"),
                (inner(&weight, &x.conv_grad_weight(&y, weight.shape(), options)?)?, "conv_grad_weight"),
            ];
            for (product, name) in products {
                if product != products[0].0 {
                    return Ok(Some(format!("{dtype}, {options:?}: {} by conv, {product} by {name}", products[0].0)));
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn delta(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        let x = make(backend, dtype, Class::WideExponent, &[2, 3, 8, 9], seed)?;
        let hot = Tensor::arange(backend, 0..6, DType::I64)?.eq(4)?.cast(dtype)?.reshape([1, 1, 2, 3])?;
        // One channel after the other; tap [1, 1] is that of the one.
        let options = ConvOptions { groups: 3, ..ConvOptions::default() };
        let shifted = x.conv(&hot.expand([3, 1, 2, 3])?, None, options)?;
        if let Some(found) = differ(&shifted, &x.i((.., .., 1.., 1..8))?.contiguous()?, true)? {
            return Ok(Some(format!("{dtype}: {found}")));
        }
    }
    Ok(None)
}

pub(super) fn groups(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        let options = ConvOptions { stride: [2; 3], padding: [[1; 2]; 3], ..ConvOptions::default() };
        let (x, weight) = (whole(backend, dtype, &[3, 6, 10], seed)?, whole(backend, dtype, &[4, 3, 3], seed + 1)?);
        let bias = whole(backend, dtype, &[4], seed + 2)?;
        let together = x.conv(&weight, Some(&bias), ConvOptions { groups: 2, ..options })?;
        let first = x.i((.., ..3))?.conv(&weight.i(..2)?, Some(&bias.i(..2)?), options)?;
        let second = x.i((.., 3..))?.conv(&weight.i(2..)?, Some(&bias.i(2..)?), options)?;
        if let Some(found) = differ(&together, &Tensor::cat(&[&first, &second], 1)?, true)? {
            return Ok(Some(format!("{dtype}: {found}")));
        }
    }
    Ok(None)
}

pub(super) fn channels_last(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        // All sizes equal: the layout is in the strides alone.
        let make = |seed| whole(backend, dtype, &[4, 4, 4, 4], seed)?.permute([0, 3, 1, 2]);
        let (x, weight) = (make(seed)?, make(seed + 1)?);
        let options = ConvOptions { padding: [[1, 2]; 3], ..ConvOptions::default() };
        let copies = x.contiguous()?.conv(&weight.contiguous()?, None, options)?;
        if let Some(found) = differ(&x.conv(&weight, None, options)?, &copies, true)? {
            return Ok(Some(format!("{dtype}: {found}")));
        }
    }
    Ok(None)
}

/// Whole numbers, so small that their products and sums are exact.
fn whole(backend: &Backend, dtype: DType, shape: &[usize], seed: u64) -> Result<Tensor<AnyBackend>> {
    let numbers = make(backend, dtype, Class::SmallInts, shape, seed)?;
    // −1 to 1: a bf16 holds their sums.
    numbers.rem(2)
}

/// The inner product, on the host.
fn inner(a: &Tensor<AnyBackend>, b: &Tensor<AnyBackend>) -> Result<f64> {
    let (a, b) = (scalars(a)?, scalars(b)?);
    Ok(a.iter().zip(&b).map(|(a, b)| a.to_f64() * b.to_f64()).sum())
}
