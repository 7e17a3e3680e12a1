//! Normalisation: sums of one, and rows moved or scaled exactly.

use congruent::Result;
use congruent::ops::NormalizeOp;

use super::{Backend, FLOATS, differ, make, scalars};
use crate::round::{Format, gamma};
use crate::values::Class;

pub(super) fn distribution(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        for width in [1, 7, 64, 1000] {
            let y = make(backend, dtype, Class::Large, &[3, width], seed)?.softmax(1)?;
            let unit = Format::of(dtype).unwrap_or(Format::F64).unit();
            for row in scalars(&y)?.chunks(width) {
                let total: f64 = row.iter().map(|y| y.to_f64()).sum();
                // Each quotient is rounded to the dtype once; their sum before that is 1 within γ of the row.
                if row.iter().any(|y| y.to_f64() < 0.0) || (total - 1.0).abs() > gamma(width as f64 + 16.0, unit) {
                    return Ok(Some(format!("{dtype}, {width} elements: the sum is {total}")));
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn shift(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        let x = make(backend, dtype, Class::SmallInts, &[4, 129], seed)?;
        let moved = (&x + 16.0)?;
        for op in [NormalizeOp::Softmax, NormalizeOp::LogSoftmax] {
            let (plain, shifted) = (x.normalize(op, 0.0, 1, None, None)?, moved.normalize(op, 0.0, 1, None, None)?);
            if let Some(found) = differ(&plain, &shifted, false)? {
                return Ok(Some(format!("{} {dtype}: {found}", op.name())));
            }
        }
    }
    Ok(None)
}

pub(super) fn rescaled(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in FLOATS {
        // Of 128 small integers the mean is exact, and so is everything up to the root.
        let x = make(backend, dtype, Class::SmallInts, &[4, 128], seed)?;
        let plain = x.layer_norm(1, 0.0, None, None)?;
        for (change, changed) in [("x + 8", (&x + 8.0)?), ("4·x", (&x * 4.0)?)] {
            let changed = changed.layer_norm(1, 0.0, None, None)?;
            if let Some(found) = differ(&plain, &changed, false)? {
                return Ok(Some(format!("{change} {dtype}: {found}")));
            }
        }
    }
    Ok(None)
}
