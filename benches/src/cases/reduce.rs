//! Reductions over all elements, over the first axis, the last and others; statistics; scans.

use congruent::ops::{ScanOp, ScanRange};
use congruent::{DType, Result};

use super::{COMMON, FLAT, SIDES, huge};
use crate::case::{Case, T, data, sizes};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in COMMON {
        for count in FLAT {
            cases.push(one("sum", dtype, &[count], |x| x.sum((), false)));
            cases.push(one("max", dtype, &[count], |x| x.max((), false)));
        }
        for side in SIDES {
            square(&mut cases, dtype, side);
        }
    }
    // The whole way from what a call costs to what memory costs.
    for count in [1 << 10, 1 << 13, 1 << 18, 1 << 20, 1 << 22] {
        cases.push(one("sum", DType::F32, &[count], |x| x.sum((), false)));
    }
    for side in SIDES {
        for axis in [0, 1] {
            cases.extend([ScanOp::Sum, ScanOp::Max].map(|op| scan(op, axis, side)));
        }
    }
    cases
}

/// Reads all once; the result is small.
fn one(op: &str, dtype: DType, shape: &[usize], call: fn(&T) -> Result<T>) -> Case {
    let case = Case::new(("reduce", op), dtype, [data(shape)], move |inputs| call(&inputs.x[0]));
    let count = case.elements;
    case.bytes(count * dtype.size()).huge(huge(count))
}

fn square(cases: &mut Vec<Case>, dtype: DType, side: usize) {
    let count = side * side;
    let shape = &[side, side];
    cases.push(one("sum_first", dtype, shape, |x| x.sum(0, false)));
    cases.push(one("sum_last", dtype, shape, |x| x.sum(1, false)));
    cases.push(one("max_last", dtype, shape, |x| x.max(1, false)));
    cases.push(one("argmax_last", dtype, shape, |x| x.argmax(1, false)));
    cases.push(one("argmax_first", dtype, shape, |x| x.argmax(0, false)));
    cases.push(one("sum_last_128", dtype, &[count / 128, 128], |x| x.sum(1, false)));
    let cube = &[side / 16, 16, side];
    cases.push(one("mean_outer", dtype, cube, |x| x.mean([0, 2], false)).named(sizes(cube)));
    cases.push(one("sum_middle", dtype, &[16, side / 16, side], |x| x.sum(1, false)));
    cases.push(one("var_last", dtype, shape, |x| x.var(1.0, 1, false)));
    cases.push(one("logsumexp_last", dtype, shape, |x| x.logsumexp(1, false)));
}

/// Into a given output, as a copy does; every element is read and written.
fn scan(op: ScanOp, axis: isize, side: usize) -> Case {
    let inputs = [data(&[side, side]), data(&[side, side])];
    let name = format!("{}_{}", op.name(), if axis == 0 { "first" } else { "last" });
    Case::into_last(("scan", &name), DType::F32, inputs, move |x, out| {
        x[0].scan_into(op, axis, ScanRange::default(), out)
    })
    .bytes(8 * side * side)
    .huge(huge(side * side))
}
