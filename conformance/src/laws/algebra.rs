//! Products and sums: equalities that are exact on integers, permutations and powers of two.

use congruent::{DType, Result, Tensor};

use super::{Backend, FLOATS, differ, make, scalars};
use crate::values::Class;

pub(super) fn product_transposed(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::U32, DType::U8] {
        let (a, b) = (
            make(backend, dtype, Class::Ties, &[33, 17], seed)?,
            make(backend, dtype, Class::Ties, &[17, 65], seed + 1)?,
        );
        let (left, right) = (a.matmul(&b)?.t()?, b.t()?.matmul(&a.t()?)?);
        // Ties holds −0; a product of zeros may have either sign, an integer sum of them has none.
        if let Some(found) = differ(&left.add(&left)?, &right.add(&right)?, dtype.is_float())? {
            return Ok(Some(format!("{dtype}: {found}")));
        }
    }
    Ok(None)
}

pub(super) fn permutation_matrix(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        let a = make(backend, dtype, Class::WideExponent, &[19, 40], seed)?;
        let eye = Tensor::arange(backend, 0..40, DType::I64)?;
        // Column j of the permutation picks column 39 − j.
        let hot = eye.unsqueeze(-1)?.eq(&eye.flip([0])?)?.cast(dtype)?;
        if let Some(found) = differ(&a.matmul(&hot)?, &a.flip([1])?, false)? {
            return Ok(Some(format!("{dtype}: {found}")));
        }
    }
    Ok(None)
}

pub(super) fn batch_is_loop(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F32, DType::BF16, DType::I32] {
        let a = make(backend, dtype, Class::SmallInts, &[3, 1, 5, 7], seed)?;
        let b = make(backend, dtype, Class::SmallInts, &[2, 7, 9], seed + 1)?;
        let batched = a.matmul(&b)?;
        for outer in 0..3 {
            for inner in 0..2 {
                let one = a.i((outer, 0))?.matmul(&b.i(inner)?)?;
                if let Some(found) = differ(&batched.i((outer, inner))?, &one, true)? {
                    return Ok(Some(format!("{dtype}, batch [{outer}, {inner}]: {found}")));
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn split_inner(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let a = make(backend, DType::F32, Class::SmallInts, &[20, 130], seed)?;
    let b = make(backend, DType::F32, Class::SmallInts, &[130, 11], seed + 1)?;
    let parts = (a.i((.., ..77))?.matmul(&b.i(..77)?)? + a.i((.., 77..))?.matmul(&b.i(77..)?)?)?;
    differ(&a.matmul(&b)?, &parts, true)
}

pub(super) fn sum_of_sums(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32, DType::I64, DType::I32, DType::U8] {
        let x = make(backend, dtype, Class::SmallInts, &[7, 33, 129], seed)?;
        if let Some(found) = differ(&x.sum([0, 2], false)?, &x.sum(2, false)?.sum(0, false)?, true)? {
            return Ok(Some(format!("{dtype}: {found}")));
        }
    }
    Ok(None)
}

pub(super) fn power_of_two(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let a = make(backend, DType::F32, Class::Uniform, &[31, 70], seed)?;
    let b = make(backend, DType::F32, Class::Uniform, &[70, 12], seed + 1)?;
    let scaled = a.mul(1024.0)?;
    if let Some(found) = differ(&scaled.matmul(&b)?, &a.matmul(&b)?.mul(1024.0)?, false)? {
        return Ok(Some(format!("matmul: {found}")));
    }
    differ(&scaled.sum(-1, false)?, &a.sum(-1, false)?.mul(1024.0)?, false)
}

pub(super) fn long_sums(backend: &Backend, _: u64) -> Result<Option<String>> {
    let tenth = Tensor::full(backend, 0.1, [1], DType::F32)?.expand([10_000_000])?;
    let sum = f64::from(tenth.sum((), false)?.item::<f32>()?);
    let ones = Tensor::ones(backend, [1, 1], DType::F32)?.expand([1 << 25, 2])?;
    let means = ones.mean(0, false)?.to_vec::<f32>()?;
    let exact = 1e7 * f64::from(0.1_f32);
    let wrong = (sum / exact - 1.0).abs() > 1e-6 || means != [1.0, 1.0];
    Ok(wrong.then(|| format!("10⁷ × 0.1 sums to {sum}, the mean of 2²⁵ ones is {means:?}")))
}

pub(super) fn factors(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        let a = make(backend, dtype, Class::Uniform, &[9, 40], seed)?;
        let b = make(backend, dtype, Class::Uniform, &[40, 21], seed + 1)?;
        let mut out = Tensor::full(backend, f64::NAN, [9, 21], dtype)?;
        Tensor::matmul_into(&a, &b, 1, 0, &mut out)?;
        if let Some(found) = differ(&out, &a.matmul(&b)?, false)? {
            return Ok(Some(format!("{dtype}, β = 0 over NaN: {found}")));
        }
        let nan = Tensor::full(backend, f64::NAN, [9, 40], dtype)?;
        let old = make(backend, dtype, Class::Uniform, &[9, 21], seed + 2)?;
        for (beta, expected) in [(1.0, old.copy()?), (0.0, Tensor::zeros(backend, [9, 21], dtype)?)] {
            let mut out = old.copy()?;
            Tensor::matmul_into(&nan, &b, 0.0, beta, &mut out)?;
            if let Some(found) = differ(&out, &expected, true)? {
                return Ok(Some(format!("{dtype}, α = 0 with NaN operands, β = {beta}: {found}")));
            }
        }
    }
    Ok(None)
}

pub(super) fn accumulated(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32, DType::I64, DType::I32, DType::U8] {
        let a = make(backend, dtype, Class::SmallInts, &[9, 40], seed)?;
        let b = make(backend, dtype, Class::SmallInts, &[40, 21], seed + 1)?;
        let old = make(backend, dtype, Class::SmallInts, &[9, 21], seed + 2)?;
        let mut out = old.copy()?;
        Tensor::matmul_into(&a, &b, 2, 3, &mut out)?;
        if let Some(found) = differ(&out, &(a.matmul(&b)?.mul(2)? + old.mul(3)?)?, true)? {
            return Ok(Some(format!("{dtype}: {found}")));
        }
    }
    Ok(None)
}

pub(super) fn mean_of_equals(backend: &Backend, _: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        for count in [1_usize, 64, 256, 1 << 16] {
            // Seven bits: every partial sum is exact in the accumulator.
            let term = Tensor::full(backend, -1.640_625, [1, 1], dtype)?.expand([3, count])?;
            for x in [term.contiguous()?, term] {
                let means = x.mean(1, false)?;
                if let Some(found) = differ(&means, &x.i((.., 0))?.contiguous()?, false)? {
                    return Ok(Some(format!("{dtype}, {count} terms: {found}")));
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn mean_is_sum_divided(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32] {
        let x = make(backend, dtype, Class::SmallInts, &[33, 1024], seed)?;
        if let Some(found) = differ(&x.mean(1, false)?, &x.sum(1, false)?.div(1024.0)?, true)? {
            return Ok(Some(format!("{dtype}: {found}")));
        }
    }
    Ok(None)
}

pub(super) fn logsumexp_shift(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for (dtype, unit) in [(DType::F64, f64::EPSILON), (DType::F32, f64::from(f32::EPSILON))] {
        // Eighths: both shifts are exact.
        let x = make(backend, dtype, Class::SmallInts, &[9, 200], seed)?.div(8.0)?;
        let plain = scalars(&x.logsumexp(1, false)?)?;
        for shift in [1024.0, -1024.0] {
            let shifted = scalars(&x.add(shift)?.logsumexp(1, false)?)?;
            for (plain, shifted) in plain.iter().zip(&shifted) {
                let error = (shifted.to_f64() - (plain.to_f64() + shift)).abs();
                // Two units of the shifted result, and the error of the sum, which is far below one of them.
                if error.is_nan() || error > 2.0 * unit * shift.abs() {
                    return Ok(Some(format!("{dtype}: {plain} becomes {shifted} when {shift} is added")));
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn many_rows(backend: &Backend, seed: u64) -> Result<Option<String>> {
    const ROWS: usize = 70_001;
    let x = make(backend, DType::I32, Class::SmallInts, &[ROWS, 2], seed)?;
    let (left, right) = (x.i((.., 0))?.contiguous()?, x.i((.., 1))?.contiguous()?);
    let sums = left.add(&right)?;
    let ones = Tensor::ones(backend, [2, 1], DType::I32)?;
    let pairs = [
        ("sum", x.sum(1, false)?),
        ("matmul", x.unsqueeze(1)?.matmul(&ones)?.flatten()?),
        ("a strided add", x.i((.., 0))?.add(&x.i((.., 1))?)?),
        ("a transposed copy", x.t()?.contiguous()?.i(0)?.add(&right)?),
    ];
    for (name, result) in pairs {
        if let Some(found) = differ(&result, &sums, false)? {
            return Ok(Some(format!("{name}: {found}")));
        }
    }
    Ok(None)
}
