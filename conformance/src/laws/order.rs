//! Order, logic and choice: comparisons, extremes, searches, `where`, idempotent ops.

use congruent::ops::BinaryOp;
use congruent::{AnyBackend, DType, Result, Tensor};

use super::{Backend, FLOATS, bits, differ, make};
use crate::values::Class;

pub(super) fn trichotomy(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        let (a, b) = (
            make(backend, dtype, Class::Specials, &[1000], seed)?,
            make(backend, dtype, Class::Ties, &[1000], seed + 1)?,
        );
        let one = a.lt(&b)?.logical_xor(&a.eq(&b)?)?.logical_xor(&a.gt(&b)?)?;
        let nan = a.is_nan()?.logical_or(&b.is_nan()?)?;
        if !one.ne(&nan)?.all((), false)?.item::<bool>()? || differ(&a.lt(&b)?, &b.gt(&a)?, false)?.is_some() {
            return Ok(Some(format!("{dtype}: the comparisons contradict each other")));
        }
    }
    Ok(None)
}

pub(super) fn max_of_parts(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let x = make(backend, DType::F32, Class::Specials, &[3, 300], seed)?;
    let parts = x.i((.., ..123))?.max(-1, false)?.maximum(&x.i((.., 123..))?.max(-1, false)?)?;
    differ(&x.max(-1, false)?, &parts, false)
}

pub(super) fn reversal(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let x = make(backend, DType::F32, Class::SmallInts, &[65, 257], seed)?;
    let flipped = x.flip([0, 1])?;
    for axis in [0, 1] {
        let back = |y: Tensor<AnyBackend>| y.flip([0]);
        let pairs = [
            (x.sum(axis, false)?, back(flipped.sum(axis, false)?)?),
            (x.max(axis, false)?, back(flipped.max(axis, false)?)?),
        ];
        for (plain, reversed) in pairs {
            if let Some(found) = differ(&plain, &reversed, true)? {
                return Ok(Some(format!("axis {axis}: {found}")));
            }
        }
    }
    Ok(None)
}

pub(super) fn first_extreme(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32, DType::BF16, DType::I64, DType::U8] {
        // The last shape holds its extreme beyond 16 bits, and lets positions grow.
        for (class, shape) in [(Class::Ties, [40, 97]), (Class::Specials, [97, 40]), (Class::Sparse, [2, 70_001])] {
            let mut x = make(backend, dtype, class, &shape, seed)?;
            if class == Class::Sparse {
                let last = Tensor::full(backend, 9, [2, 1], dtype)?;
                x.assign((.., 70_000..), &last)?;
            }
            let positions = Tensor::arange(backend, 0..shape[1] as i64, DType::I64)?;
            for greatest in [true, false] {
                let extreme = if greatest { x.max(1, true)? } else { x.min(1, true)? };
                let mut here = x.eq(&extreme)?;
                if dtype.is_float() {
                    // The extreme of a row with a NaN is NaN, which equals nothing: its place is that of the first NaN.
                    here = here.logical_or(&x.is_nan()?)?;
                }
                let first = here.where_cond(&positions, i64::MAX)?.min(1, false)?;
                let found = if greatest { x.argmax(1, false)? } else { x.argmin(1, false)? };
                if let Some(found) = differ(&found, &first, false)? {
                    let name = if greatest { "argmax" } else { "argmin" };
                    return Ok(Some(format!("{name} {dtype} {shape:?}: {found}")));
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn idempotence(backend: &Backend, seed: u64) -> Result<Option<String>> {
    type Function = fn(&Tensor<AnyBackend>) -> Result<Tensor<AnyBackend>>;
    let functions: [(&str, Function); 9] = [
        ("abs", |x| x.abs()),
        ("relu", |x| x.relu()),
        ("sign", |x| x.sign()),
        ("clamp", |x| x.clamp(-0.5, 1.5)),
        ("round", |x| x.round()),
        ("floor", |x| x.floor()),
        ("ceil", |x| x.ceil()),
        ("trunc", |x| x.trunc()),
        ("a cast to bool", |x| x.cast(DType::Bool)?.cast(x.dtype())),
    ];
    for dtype in FLOATS {
        for class in [Class::Specials, Class::FullRange, Class::Uniform] {
            let x = make(backend, dtype, class, &[5, 129], seed)?;
            for (name, function) in functions {
                let once = function(&x)?;
                if let Some(found) = differ(&function(&once)?, &once, false)? {
                    return Ok(Some(format!("{name} {dtype}: {found}")));
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn choice(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::U8] {
        let condition = make(backend, DType::Bool, Class::FullRange, &[7, 65], seed)?;
        let a = make(backend, dtype, Class::Specials, &[7, 65], seed + 1)?;
        let b = make(backend, dtype, Class::Specials, &[7, 65], seed + 2)?;
        let chosen = bits(&condition.where_cond(&a, &b)?)?;
        let (condition, a, b) = (bits(&condition)?, bits(&a)?, bits(&b)?);
        let wrong = (0..chosen.len()).find(|&at| chosen[at] != if condition[at] == 0 { b[at] } else { a[at] });
        if let Some(at) = wrong {
            return Ok(Some(format!("{dtype}: element {at} has the bits {:#x}, which were not chosen", chosen[at])));
        }
    }
    Ok(None)
}

pub(super) fn logic(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let a = make(backend, DType::Bool, Class::FullRange, &[1000], seed)?;
    let b = make(backend, DType::Bool, Class::FullRange, &[1000], seed + 1)?;
    let (not_a, not_b) = (a.logical_not()?, b.logical_not()?);
    let mut pairs = vec![
        ("¬¬a = a", not_a.logical_not()?, a.copy()?),
        ("¬(a ∧ b) = ¬a ∨ ¬b", a.logical_and(&b)?.logical_not()?, not_a.logical_or(&not_b)?),
        ("¬(a ∨ b) = ¬a ∧ ¬b", a.logical_or(&b)?.logical_not()?, not_a.logical_and(&not_b)?),
        ("a ⊕ b = (a ≠ b)", a.logical_xor(&b)?, a.ne(&b)?),
        ("any = ¬ all ¬", a.any((), false)?, not_a.all((), false)?.logical_not()?),
    ];
    // One truth among many, and that the last.
    let late = Tensor::arange(backend, 0..1000, DType::I64)?.eq(999)?;
    pairs.extend([
        ("any = the greatest", late.any((), false)?, late.cast(DType::U8)?.max((), false)?.cast(DType::Bool)?),
        ("all = the least", a.all((), false)?, a.cast(DType::U8)?.min((), false)?.cast(DType::Bool)?),
    ]);
    for dtype in [DType::I64, DType::I32, DType::U32, DType::U8] {
        let x = make(backend, dtype, Class::FullRange, &[1000], seed)?;
        let y = make(backend, dtype, Class::FullRange, &[1000], seed + 1)?;
        let (not_x, not_y) = (x.bitwise_not()?, y.bitwise_not()?);
        pairs.extend([
            ("¬¬x = x, bitwise", not_x.bitwise_not()?, x.copy()?),
            ("¬(x ∧ y) = ¬x ∨ ¬y, bitwise", x.bitwise_and(&y)?.bitwise_not()?, not_x.bitwise_or(&not_y)?),
            ("x ⊕ y ⊕ y = x", x.bitwise_xor(&y)?.bitwise_xor(&y)?, x.copy()?),
        ]);
    }
    for (name, left, right) in pairs {
        if let Some(found) = differ(&left, &right, false)? {
            return Ok(Some(format!("{name}, {}: {found}", left.dtype())));
        }
    }
    Ok(None)
}

pub(super) fn commutative(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::U8] {
        for class in [Class::Ties, Class::Specials] {
            let a = make(backend, dtype, class, &[9, 111], seed)?;
            let b = make(backend, dtype, class, &[9, 111], seed + 1)?;
            for op in [BinaryOp::Add, BinaryOp::Mul, BinaryOp::Maximum, BinaryOp::Minimum] {
                let (left, right) = (Tensor::binary(op, &a, &b)?, Tensor::binary(op, &b, &a)?);
                if let Some(found) = differ(&left, &right, false)? {
                    return Ok(Some(format!("{} {dtype}: {found}", op.name())));
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn mirrored_extremes(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        let infinite = Tensor::full(backend, f64::NEG_INFINITY, [1, 70], dtype)?;
        let negative = make(backend, dtype, Class::Positive, &[3, 70], seed)?.neg()?;
        let specials = make(backend, dtype, Class::Specials, &[9, 70], seed)?;
        let x = Tensor::cat(&[&infinite, &negative, &specials, &infinite.neg()?], 0)?;
        for axis in [0, 1] {
            if let Some(found) = differ(&x.max(axis, false)?, &x.neg()?.min(axis, false)?.neg()?, false)? {
                return Ok(Some(format!("{dtype}, axis {axis}: {found}")));
            }
        }
    }
    Ok(None)
}
