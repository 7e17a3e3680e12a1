//! Views: a result depends on the elements, not on how they lie.

use congruent::ops::{BinaryOp, ReduceOp};
use congruent::{DType, Result, Tensor, step};

use super::{Backend, differ, make};
use crate::values::Class;

pub(super) fn layout_invariance(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::I64, DType::U8] {
        let x = make(backend, dtype, Class::SmallInts, &[6, 34, 10], seed)?;
        for view in [x.permute([2, 0, 1])?, x.i((.., step(.., -3), 1..8))?, x.i((.., 3..4))?.expand([6, 5, 10])?] {
            let dense = view.contiguous()?;
            let pairs = [
                (view.add(&view)?, dense.add(&dense)?),
                (view.square()?, dense.square()?),
                (view.max(1, true)?, dense.max(1, true)?),
                (view.cast(DType::Bool)?, dense.cast(DType::Bool)?),
            ];
            for (strided, dense) in pairs {
                if let Some(found) = differ(&strided, &dense, false)? {
                    return Ok(Some(format!("{dtype}, {:?}: {found}", view.layout())));
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn there_and_back(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in DType::ALL {
        let x = make(backend, dtype, Class::FullRange, &[5, 7, 9, 11], seed)?;
        let axes = [2, 0, 3, 1];
        let inverse = [1, 3, 0, 2];
        let pairs = [
            ("two reversals", x.flip([0, 2])?.contiguous()?.flip([0, 2])?),
            ("a permutation and its inverse", x.permute(axes)?.contiguous()?.permute(inverse)?),
            ("parts put together", Tensor::cat(&[&x.i((.., .., ..4))?, &x.i((.., .., 4..))?], 2)?),
        ];
        for (name, back) in pairs {
            if let Some(found) = differ(&back.contiguous()?, &x, false)? {
                return Ok(Some(format!("{name}, {dtype}: {found}")));
            }
        }
    }
    Ok(None)
}

pub(super) fn equivariance(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F32, DType::F16, DType::I64, DType::U8] {
        let x = make(backend, dtype, Class::SmallInts, &[37, 6, 50], seed)?;
        // The rows in another order: rotated, and backwards.
        let rotated = Tensor::cat(&[&x.i(11..)?, &x.i(..11)?], 0)?;
        for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Any, ReduceOp::All] {
            let plain = x.reduce(op, 2, false)?;
            let expected = Tensor::cat(&[&plain.i(11..)?, &plain.i(..11)?], 0)?;
            let kept = differ(&rotated.reduce(op, 2, false)?, &expected, true)?;
            // Along the reduced axis the order has no influence.
            let reduced = differ(&rotated.reduce(op, 0, false)?, &x.reduce(op, 0, false)?, true)?;
            let backwards = differ(&x.flip([0])?.reduce(op, 0, false)?, &x.reduce(op, 0, false)?, true)?;
            if let Some(found) = kept.or(reduced).or(backwards) {
                return Ok(Some(format!("{} {dtype}: {found}", op.name())));
            }
        }
    }
    Ok(None)
}

pub(super) fn broadcast(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32, DType::BF16, DType::I64, DType::U8] {
        let row = make(backend, dtype, Class::SmallInts, &[1, 33], seed)?;
        let column = make(backend, dtype, Class::SmallInts, &[33, 1], seed + 1)?;
        // Put together without broadcasting.
        let (rows, columns) = (Tensor::cat(&[&row; 33], 0)?, Tensor::cat(&[&column; 33], 1)?);
        let batch = make(backend, dtype, Class::SmallInts, &[4, 3, 5], seed + 2)?;
        let one = make(backend, dtype, Class::SmallInts, &[5, 2], seed + 3)?;
        let ones = Tensor::cat(&[&one.unsqueeze(0)?; 4], 0)?;
        let scalar = Tensor::full(backend, 3, [], dtype)?;
        let pairs = [
            ("sub", row.sub(&column)?, rows.sub(&columns)?),
            ("maximum", column.maximum(&row)?, columns.maximum(&rows)?),
            ("lt", row.lt(&column)?, rows.lt(&columns)?),
            ("where", row.lt(&column)?.where_cond(&row, &column)?, rows.lt(&columns)?.where_cond(&rows, &columns)?),
            ("matmul", batch.matmul(&one)?, batch.matmul(&ones)?),
            ("a tensor of rank 0", row.mul(&scalar)?, row.mul(3)?),
            ("sum", row.expand([33, 33])?.sum(0, false)?, rows.sum(0, false)?),
        ];
        for (name, left, right) in pairs {
            if let Some(found) = differ(&left, &right, true)? {
                return Ok(Some(format!("{name} {dtype}: {found}")));
            }
        }
        let scalars = Tensor::binary(BinaryOp::Sub, 3, &row)?;
        if let Some(found) = differ(&scalars, &Tensor::full(backend, 3, [1, 33], dtype)?.sub(&row)?, false)? {
            return Ok(Some(format!("a scalar on the left, {dtype}: {found}")));
        }
    }
    Ok(None)
}
