//! Transfers, writing in place, sharing, and memory that is used again.

use congruent::ops::{BinaryOp, UnaryOp};
use congruent::{DType, Operand, Result, Tensor};

use super::{Backend, differ, make};
use crate::values::{Class, hash};

pub(super) fn round_trip(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in DType::ALL {
        let bytes: Vec<u8> =
            (0..4096).map(|at| hash(seed, at) as u8 & if dtype == DType::Bool { 1 } else { 0xff }).collect();
        let mut storage = backend.alloc(dtype, bytes.len() / dtype.size())?;
        backend.write(&bytes, &mut storage, 0)?;
        let mut back = vec![0; bytes.len()];
        backend.download(&storage, 0, &mut back)?;
        if back != bytes {
            return Ok(Some(format!("{dtype}: the bytes that came back differ")));
        }
    }
    Ok(None)
}

pub(super) fn transfer_offsets(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in DType::ALL {
        let size = dtype.size();
        let random = |seed: u64, count: usize| -> Vec<u8> {
            let mask = if dtype == DType::Bool { 1 } else { 0xff };
            (0..count * size).map(|at| hash(seed, at as u64) as u8 & mask).collect()
        };
        let (mut bytes, part) = (random(seed, 100), random(seed + 1, 23));
        let mut storage = backend.alloc(dtype, 100)?;
        backend.write(&bytes, &mut storage, 0)?;
        backend.write(&part, &mut storage, 41)?;
        bytes[41 * size..64 * size].copy_from_slice(&part);
        let mut back = vec![0; 30 * size];
        backend.download(&storage, 37, &mut back)?;
        if back != bytes[37 * size..67 * size] {
            return Ok(Some(format!("{dtype}: elements 37..67 are not those that were written")));
        }
        let mut whole = vec![0; 100 * size];
        backend.download(&storage, 0, &mut whole)?;
        let outside =
            backend.write(&part, &mut storage, 78).is_ok() || backend.download(&storage, 71, &mut back).is_ok();
        if whole != bytes || outside {
            return Ok(Some(format!("{dtype}: a transfer reached outside its elements, or past the end")));
        }
    }
    Ok(None)
}

pub(super) fn bool_bytes(backend: &Backend, _: u64) -> Result<Option<String>> {
    let mut storage = backend.alloc(DType::Bool, 6)?;
    backend.write(&[0, 1, 2, 3, 128, 255], &mut storage, 0)?;
    let mut back = [9; 6];
    backend.download(&storage, 0, &mut back)?;
    Ok((back != [0, 1, 1, 1, 1, 1]).then(|| format!("the bytes 0, 1, 2, 3, 128, 255 became {back:?}")))
}

pub(super) fn copy_on_write(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let x = make(backend, DType::F32, Class::Uniform, &[40, 3], seed)?;
    let before = x.to_vec::<f32>()?;
    let (mut clone, mut view) = (x.clone(), x.t()?);
    clone.add_assign(1.0)?;
    view.neg_assign()?;
    let mut own = x.contiguous()?;
    own.mul_assign(&x)?;
    Ok((x.to_vec::<f32>()? != before).then(|| "the original changed".to_owned()))
}

pub(super) fn in_place(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F32, DType::BF16, DType::I32, DType::Bool] {
        let x = make(backend, dtype, Class::FullRange, &[9, 65], seed)?;
        let y = make(backend, dtype, Class::SmallInts, &[65], seed + 1)?;
        for &op in UnaryOp::ALL.iter().filter(|op| op.accepts(dtype) && op.out_dtype(dtype) == dtype) {
            let mut own = x.copy()?;
            own.unary_assign(op)?;
            if let Some(found) = differ(&own, &x.unary(op)?, false)? {
                return Ok(Some(format!("{} {dtype}: {found}", op.name())));
            }
        }
        // Divisors and exponents that no integer op objects to.
        let safe = if dtype.is_int() { y.square()?.add(1)? } else { y };
        for &op in BinaryOp::ALL.iter().filter(|op| op.accepts(dtype)) {
            let mut left = x.copy()?;
            left.binary_assign(op, &safe)?;
            let mut right = safe.expand([9, 65])?.contiguous()?;
            Tensor::binary_into(op, &x, Operand::Output, &mut right)?;
            let expected = Tensor::binary(op, &x, &safe)?;
            let found = differ(&left, &expected, false)?.or(differ(&right, &expected, false)?);
            if let Some(found) = found {
                return Ok(Some(format!("{} {dtype}: {found}", op.name())));
            }
        }
    }
    Ok(None)
}

pub(super) fn aliases(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32, DType::I64, DType::U8] {
        let x = make(backend, dtype, Class::SmallInts, &[47, 47], seed)?;
        let (mut twice, mut transposed, mut product) = (x.copy()?, x.copy()?, x.copy()?);
        Tensor::binary_into(BinaryOp::Add, Operand::Output, Operand::Output, &mut twice)?;
        let mirror = transposed.t()?;
        transposed.sub_assign(&mirror)?;
        let (left, right) = (product.clone(), product.t()?);
        Tensor::matmul_into(&left, &right, 1, 1, &mut product)?;
        let pairs = [
            ("x += x", twice, x.mul(2)?),
            ("x −= xᵀ", transposed, x.sub(&x.t()?.contiguous()?)?),
            ("x += x·xᵀ", product, x.matmul(&x.t()?.contiguous()?)?.add(&x)?),
        ];
        for (name, found, expected) in pairs {
            if let Some(found) = differ(&found, &expected, true)? {
                return Ok(Some(format!("{name}, {dtype}: {found}")));
            }
        }
    }
    Ok(None)
}

pub(super) fn overlapping_views(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let x = make(backend, DType::I32, Class::SmallInts, &[10, 30], seed)?;
    let before = x.to_vec::<i32>()?;
    let (mut left, mut right) = (x.i((.., ..20))?, x.i((.., 10..))?);
    left.mul_assign(&right)?;
    right.neg_assign()?;
    // The second view still held the old elements when it was read, and only the view itself changed.
    let (a, b) = (x.i((.., ..20))?.contiguous()?, x.i((.., 10..))?.contiguous()?);
    let found = differ(&left, &a.mul(&b)?, false)?.or(differ(&right, &b.neg()?, false)?);
    if found.is_some() || x.to_vec::<i32>()? != before {
        return Ok(Some(found.unwrap_or_else(|| "the base changed".to_owned())));
    }
    // A part of a tensor that nobody shares is written where it lies.
    let mut own = x.copy()?;
    own.assign((2..5, congruent::step(.., 3)), &Tensor::full(backend, 77, [3, 10], DType::I32)?)?;
    let inside = |row: usize, column: usize| (2..5).contains(&row) && column.is_multiple_of(3);
    let expected: Vec<i32> =
        (before.iter().enumerate()).map(|(at, &x)| if inside(at / 30, at % 30) { 77 } else { x }).collect();
    Ok((own.to_vec::<i32>()? != expected).then(|| "a slice was not written, or more than the slice".to_owned()))
}

pub(super) fn memory_reuse(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let x = make(backend, DType::F32, Class::SmallInts, &[4096], seed)?;
    let mut results = Vec::new();
    for round in 0..16 {
        let (a, b) = (x.add(f64::from(round))?, x.mul(f64::from(round))?);
        let sum = a.add(&b)?;
        // The operands go while the op may still be queued, and their memory is asked for again at once.
        if round % 2 == 0 {
            drop((a, b));
        } else {
            drop((b, a));
        }
        let noise = Tensor::full(backend, -1000.0, [4096], DType::F32)?;
        let more = noise.square()?;
        results.push((sum, more));
    }
    let before = x.to_vec::<f32>()?;
    for (round, (sum, more)) in (0_u8..).zip(results) {
        let round = f32::from(round);
        let expected: Vec<f32> = before.iter().map(|x| x + round + x * round).collect();
        if sum.to_vec::<f32>()? != expected || more.to_vec::<f32>()?.iter().any(|&x| x != 1e6) {
            return Ok(Some(format!("round {round}: a result changed after its operands were freed")));
        }
    }
    Ok(None)
}
