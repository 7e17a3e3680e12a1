//! Copies, casts, transposes, fills, joins.

use congruent::{DType, Result, Scalar, Tensor, step};

use super::{COMMON, FLAT, SIDES, huge};
use crate::case::{Case, T, data, sizes};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in COMMON {
        for count in FLAT {
            flat(&mut cases, dtype, count);
        }
        for side in SIDES {
            square(&mut cases, dtype, side);
        }
    }
    let casts = [(DType::F32, DType::F64), (DType::F32, DType::I32), (DType::I64, DType::F32)];
    for (from, to) in casts {
        cases.extend(FLAT.map(|count| cast(from, to, count)));
    }
    for dtype in [DType::F64, DType::U8] {
        cases.extend(SIDES.map(|side| transpose(dtype, side)));
    }
    cases
}

fn one(op: &str, dtype: DType, shape: &[usize], bytes: usize, call: fn(&T) -> Result<T>) -> Case {
    let case = Case::new(("copy", op), dtype, [data(shape)], move |inputs| call(&inputs.x[0]));
    let large = huge(case.elements);
    case.bytes(bytes).huge(large)
}

fn cast(from: DType, to: DType, count: usize) -> Case {
    let bytes = count * (from.size() + to.size());
    let inputs = [data(&[count])];
    Case::new(("copy", &format!("cast_{to}")), from, inputs, move |inputs| inputs.x[0].cast(to))
        .bytes(bytes)
        .huge(huge(count))
}

fn flat(cases: &mut Vec<Case>, dtype: DType, count: usize) {
    let size = dtype.size();
    cases.push(one("copy", dtype, &[count], 2 * count * size, |x| x.copy()));
    cases.extend(COMMON.into_iter().filter(|&to| to != dtype).map(|to| cast(dtype, to, count)));
    let fill = Case::new(("copy", "fill"), dtype, [], move |inputs| {
        Tensor::full(&inputs.backend, Scalar::Float(1.0), [count], dtype)
    });
    cases.push(fill.count(count).bytes(count * size).huge(huge(count)));
    let half = [data(&[count / 2]), data(&[count / 2])];
    let cat = Case::new(("copy", "cat"), dtype, half, |inputs| Tensor::cat(&[&inputs.x[0], &inputs.x[1]], 0));
    cases.push(cat.bytes(2 * count * size).huge(huge(count)));
    // Lines of the cache hold what lies between, and are read whole.
    cases.push(one("strided", dtype, &[count], 3 * count / 2 * size, |x| x.slice(0, step(.., 2))?.copy()));
}

fn transpose(dtype: DType, side: usize) -> Case {
    one("transpose_copy", dtype, &[side, side], 2 * side * side * dtype.size(), |x| x.t()?.copy())
}

fn square(cases: &mut Vec<Case>, dtype: DType, side: usize) {
    cases.push(transpose(dtype, side));
    // Heads and positions change places.
    let shape = [side / 128, 128, side / 128, 128];
    let heads = one("permute_copy", dtype, &shape, 2 * side * side * dtype.size(), |x| x.permute([0, 2, 1, 3])?.copy());
    cases.push(heads.named(sizes(&[side, side])));
}
