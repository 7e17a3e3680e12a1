//! Elementwise functions, arithmetic with broadcasting, comparisons.

use congruent::api::ops::binary::BinaryOp;
use congruent::api::ops::unary::UnaryOp;
use congruent::{DType, Result, Tensor};

use super::{COMMON, FLAT, SIDES, huge};
use crate::case::{Case, Input, T, data, sizes};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in COMMON {
        unary(&mut cases, dtype);
        binary(&mut cases, dtype);
        broadcast(&mut cases, dtype);
        compare(&mut cases, dtype);
    }
    for count in FLAT {
        cases.extend([UnaryOp::Exp, UnaryOp::Tanh].map(|op| function(op, DType::F64, count)));
        cases.push(two(("binary", "add"), DType::F64, count, |a, b| a.add(b)));
    }
    // The whole way from what a call costs to what memory costs.
    for count in [1 << 10, 1 << 13, 1 << 18, 1 << 20, 1 << 22] {
        cases.push(function(UnaryOp::Exp, DType::F32, count));
        cases.push(two(("binary", "add"), DType::F32, count, |a, b| a.add(b)));
        cases.push(add_into(DType::F32, count));
    }
    cases
}

fn function(op: UnaryOp, dtype: DType, count: usize) -> Case {
    Case::new(("unary", op.name()), dtype, [data(&[count])], move |inputs| inputs.x[0].unary(op))
        .bytes(2 * count * dtype.size())
        .huge(huge(count))
}

fn unary(cases: &mut Vec<Case>, dtype: DType) {
    use UnaryOp::{
        Abs, Cos, Erf, Exp, Expm1, Gelu, GeluTanh, Ln, Relu, Round, Sigmoid, Silu, Sin, Softplus, Sqrt, Tanh,
    };
    let all = [Exp, Tanh, Gelu, GeluTanh, Relu, Silu, Sigmoid, Abs, Sqrt, Ln, Sin, Cos, Erf, Expm1, Softplus, Round];
    let most = if dtype == DType::F32 { all.len() } else { 6 };
    for &op in &all[..most] {
        cases.extend(FLAT.map(|count| function(op, dtype, count)));
    }
}

fn two(name: (&str, &str), dtype: DType, count: usize, call: fn(&T, &T) -> Result<T>) -> Case {
    Case::new(name, dtype, [data(&[count]), data(&[count])], move |inputs| call(&inputs.x[0], &inputs.x[1]))
        .bytes(3 * count * dtype.size())
        .huge(huge(count))
}

fn add_into(dtype: DType, count: usize) -> Case {
    let inputs = vec![data(&[count]); 3];
    Case::into_last(("binary", "add_into"), dtype, inputs, |x, out| {
        Tensor::binary_into(BinaryOp::Add, &x[0], &x[1], out)
    })
    .bytes(3 * count * dtype.size())
    .huge(huge(count))
}

fn binary(cases: &mut Vec<Case>, dtype: DType) {
    for count in FLAT {
        cases.push(two(("binary", "add"), dtype, count, |a, b| a.add(b)));
        cases.push(add_into(dtype, count));
        cases.push(
            Case::new(("binary", "mul_scalar"), dtype, [data(&[count])], |inputs| inputs.x[0].mul(2.0))
                .bytes(2 * count * dtype.size())
                .huge(huge(count)),
        );
    }
}

fn broadcast(cases: &mut Vec<Case>, dtype: DType) {
    for side in SIDES {
        let count = side * side;
        let mut square = |op, operands: usize, other: &[usize], call: fn(&T, &T) -> Result<T>| {
            let inputs = [data(&[side, side]), data(other)];
            let case = Case::new(("binary", op), dtype, inputs, move |inputs| call(&inputs.x[0], &inputs.x[1]));
            cases.push(case.bytes(operands * count * dtype.size()).named(sizes(&[side, side])).huge(huge(count)));
        };
        square("add_row", 2, &[side], |a, b| a.add(b));
        square("add_col", 2, &[side, 1], |a, b| a.add(b));
        square("add_t", 2, &[1], |a, _| a.add(&a.t()?));
        square("add_bt", 3, &[side, side], |a, b| a.add(&b.t()?));
    }
}

fn compare(cases: &mut Vec<Case>, dtype: DType) {
    for count in FLAT {
        cases.push(two(("compare", "gt"), dtype, count, |a, b| a.gt(b)).bytes(count * (2 * dtype.size() + 1)));
        let inputs = [data(&[count]), data(&[count]), Input::Mask { shape: vec![count] }];
        cases.push(
            Case::new(("compare", "where"), dtype, inputs, |inputs| inputs.x[2].where_cond(&inputs.x[0], &inputs.x[1]))
                .bytes(count * (3 * dtype.size() + 1))
                .huge(huge(count)),
        );
    }
}
