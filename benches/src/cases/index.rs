//! Rows of a table, sums into rows, single elements, and what a mask selects.

use congruent::DType;
use congruent::ops::ScatterOp;

use super::{FLAT, huge};
use crate::case::{Case, Input, data, sizes};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // Rows drawn, rows of the table, their width.
    for (rows, classes, width) in [(256, 512, 64), (4096, 8192, 256), (1 << 16, 1 << 16, 1 << 10)] {
        let index = || Input::Index { shape: vec![rows], below: classes };
        let count = rows * width;
        // Each row is read and written, beside its number.
        let (bytes, shape) = (8 * count + 8 * rows, sizes(&[rows, width]));
        let embedding = Case::new(("index", "embedding"), DType::F32, [data(&[classes, width]), index()], |inputs| {
            inputs.x[0].embedding(&inputs.x[1])
        });
        cases.push(embedding.bytes(bytes).named(&shape).huge(huge(count)));
        // The table is written once, and each of its rows that is met read.
        let grad = Case::new(("index", "embedding_grad"), DType::F32, [data(&[rows, width]), index()], move |inputs| {
            inputs.x[0].embedding_grad(&inputs.x[1], classes)
        });
        let bytes = 4 * (count + classes * width) + 8 * rows;
        cases.push(grad.arg("rows", classes).bytes(bytes).named(&shape).huge(huge(count)));
    }
    for count in FLAT {
        elements(&mut cases, count);
    }
    cases
}

fn elements(cases: &mut Vec<Case>, count: usize) {
    let index = || Input::Index { shape: vec![count], below: count };
    let mut push = |case: Case, bytes: usize| cases.push(case.bytes(bytes * count).huge(huge(count)));
    let take = Case::new(("index", "take"), DType::F32, [data(&[count]), index()], |i| i.x[0].take(&i.x[1]));
    push(take, 16);
    for op in [ScatterOp::Set, ScatterOp::Add] {
        let name = if op == ScatterOp::Set { "scatter" } else { "scatter_add" };
        let inputs = [data(&[count]), index(), data(&[count])];
        let case =
            Case::into_last(("index", name), DType::F32, inputs, move |x, out| out.scatter_assign(op, 0, &x[1], &x[0]));
        push(case, 16);
    }
    let numbers = Input::Index { shape: vec![count], below: 256 };
    push(Case::new(("index", "bincount"), DType::I64, [numbers], |inputs| inputs.x[0].bincount(256)), 8);
    let inputs = [data(&[count]), Input::Mask { shape: vec![count] }];
    push(Case::new(("index", "masked_select"), DType::F32, inputs, |i| i.x[0].masked_select(&i.x[1])), 7);
}
