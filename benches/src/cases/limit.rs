//! What the machine can do: copies of all sizes, products at the peak, the cost of a call.

use congruent::api::ops::binary::BinaryOp;
use congruent::{DType, Tensor};

use super::huge;
use crate::case::{Case, data};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for count in [1 << 12, 1 << 15, 1 << 18, 1 << 21, 1 << 24, 1 << 26] {
        let inputs = [data(&[count]), data(&[count])];
        let copy = Case::into_last(("limit", "copy_into"), DType::F32, inputs, |x, out| x[0].copy_into(out));
        cases.push(copy.bytes(8 * count).huge(huge(count)));
    }
    let products = [(DType::F64, 1024), (DType::F32, 1024), (DType::F16, 512), (DType::BF16, 512)];
    for (dtype, side) in products.into_iter().chain(products.map(|(dtype, _)| (dtype, 8192))) {
        let inputs = [data(&[side, side]), data(&[side, side])];
        let case = Case::new(("limit", "matmul"), dtype, inputs, |inputs| inputs.x[0].matmul(&inputs.x[1]));
        cases.push(case.flops(2 * side * side * side).huge(side > 4096));
    }
    let four = || data(&[4]);
    cases.push(Case::new(("limit", "add"), DType::F32, [four(), four()], |i| i.x[0].add(&i.x[1])));
    cases.push(Case::into_last(("limit", "add_into"), DType::F32, [four(), four(), four()], |x, out| {
        Tensor::binary_into(BinaryOp::Add, &x[0], &x[1], out)
    }));
    cases
}
