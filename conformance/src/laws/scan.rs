//! Scans: what a result has to do with its neighbours, on data that makes every order exact.

use congruent::ops::{ReduceOp, ScanOp, ScanRange};
use congruent::{AnyBackend, DType, Result, Tensor};

use super::{Backend, differ, make};
use crate::values::Class;

const DTYPES: [DType; 6] = [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::U8];

/// Short rows, rows beyond any tile, and few rows so long that they are shared among threads.
const SHAPES: [[usize; 2]; 4] = [[40, 97], [3, 8193], [1, 300_001], [5000, 3]];

fn range(exclusive: bool, reverse: bool) -> ScanRange {
    ScanRange { exclusive, reverse }
}

/// Whole numbers, whose running sums are exact.
fn whole(backend: &Backend, dtype: DType, shape: &[usize], seed: u64) -> Result<Tensor<AnyBackend>> {
    make(backend, dtype, Class::SmallInts, shape, seed)
}

pub(super) fn last_is_whole(backend: &Backend, seed: u64) -> Result<Option<String>> {
    let pairs = [(ScanOp::Sum, ReduceOp::Sum), (ScanOp::Max, ReduceOp::Max), (ScanOp::Min, ReduceOp::Min)];
    for dtype in DTYPES {
        for shape in SHAPES {
            let x = whole(backend, dtype, &shape, seed)?;
            for axis in [0, 1] {
                for (scan, reduction) in pairs {
                    let scanned = x.scan(scan, axis, ScanRange::default())?;
                    let last = if axis == 0 { scanned.i(-1)? } else { scanned.i((.., -1))? };
                    if let Some(found) = differ(&last.contiguous()?, &x.reduce(reduction, axis, false)?, true)? {
                        return Ok(Some(format!("{} {dtype} {shape:?}, axis {axis}: {found}", scan.name())));
                    }
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn reverse(backend: &Backend, seed: u64) -> Result<Option<String>> {
    each(backend, seed, |x, op, axis| {
        let flipped = x.flip([axis])?.scan(op, axis, range(false, false))?.flip([axis])?;
        differ(&x.scan(op, axis, range(false, true))?, &flipped.contiguous()?, true)
    })
}

pub(super) fn exclusive(backend: &Backend, seed: u64) -> Result<Option<String>> {
    each(backend, seed, |x, op, axis| {
        let (shifted, plain) = (x.scan(op, axis, range(true, false))?, x.scan(op, axis, range(false, false))?);
        let (after, before) =
            if axis == 0 { (shifted.i(1..)?, plain.i(..-1)?) } else { (shifted.i((.., 1..))?, plain.i((.., ..-1))?) };
        differ(&after.contiguous()?, &before.contiguous()?, true)
    })
}

pub(super) fn parts(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::I64, DType::I32, DType::U8] {
        for (shape, cut) in [([7, 300], 129_isize), ([1, 300_001], 65_537)] {
            let x = make(backend, dtype, Class::SmallInts, &shape, seed)?;
            let (head, tail) = (x.i((.., ..cut))?.cumsum(1)?, x.i((.., cut..))?.cumsum(1)?);
            let tail = tail.add(&head.i((.., -1..))?)?;
            if let Some(found) = differ(&Tensor::cat(&[&head, &tail], 1)?, &x.cumsum(1)?, true)? {
                return Ok(Some(format!("{dtype}, {shape:?}: {found}")));
            }
        }
    }
    Ok(None)
}

/// Every scan that is exact, of every shape and along both axes.
fn each(
    backend: &Backend,
    seed: u64,
    test: impl Fn(&Tensor<AnyBackend>, ScanOp, isize) -> Result<Option<String>>,
) -> Result<Option<String>> {
    for dtype in DTYPES {
        for shape in SHAPES {
            let x = whole(backend, dtype, &shape, seed)?;
            for axis in [0, 1] {
                for op in [ScanOp::Sum, ScanOp::Max, ScanOp::Min] {
                    if let Some(found) = test(&x, op, axis)? {
                        return Ok(Some(format!("{} {dtype} {shape:?}, axis {axis}: {found}", op.name())));
                    }
                }
            }
        }
    }
    Ok(None)
}
