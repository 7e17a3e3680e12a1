//! Softmax and norms over rows.

use congruent::{DType, Result};

use super::{COMMON, SIDES, huge};
use crate::case::{Case, T, data};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in COMMON {
        for side in SIDES {
            rows(&mut cases, dtype, side * side, side);
        }
    }
    // Short rows, and the dtype that no other library has a kernel of its own for.
    rows(&mut cases, DType::F32, 1 << 23, 128);
    rows(&mut cases, DType::F64, 1 << 16, 256);
    cases
}

fn rows(cases: &mut Vec<Case>, dtype: DType, count: usize, width: usize) {
    let mut push = |op, call: fn(&T, &T, &T) -> Result<T>| {
        let inputs = [data(&[count / width, width]), data(&[width]), data(&[width])];
        let case = Case::new(("norm", op), dtype, inputs, move |inputs| call(&inputs.x[0], &inputs.x[1], &inputs.x[2]));
        cases.push(case.bytes(2 * count * dtype.size()).huge(huge(count)));
    };
    push("softmax", |x, _, _| x.softmax(1));
    push("log_softmax", |x, _, _| x.log_softmax(1));
    push("layer_norm", |x, weight, bias| x.layer_norm(1, 1e-5, Some(weight), Some(bias)));
    push("rms_norm", |x, weight, _| x.rms_norm(1, 1e-5, Some(weight)));
}
