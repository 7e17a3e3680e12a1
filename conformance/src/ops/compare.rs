//! Comparisons, the choice between two operands, and clamping: all exact.

use congruent_backend_api::ops::compare::CompareOp;
use congruent_backend_api::{DType, Scalar};
use proptest::prelude::*;

use crate::case::{Call, Case};
use crate::expect::Expect;
use crate::host::{encode, encode_int};
use crate::ops::binary::extreme;
use crate::ops::{elementwise, operand, operand_bits};
use crate::spec::Draw;
use crate::values::Class;

const CLASSES: &[Class] =
    &[Class::Ties, Class::Specials, Class::SmallInts, Class::Uniform, Class::FullRange, Class::Constant];

/// Generated comparisons.
pub fn comparisons(op: CompareOp, dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    elementwise(move || Call::Compare(op), vec![dtype; 2], DType::Bool, CLASSES, true, draw)
}

/// Generated choices between two operands of `dtype`.
pub fn choices(dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    elementwise(|| Call::Where, vec![DType::Bool, dtype, dtype], dtype, CLASSES, true, draw)
}

/// Generated clamps: bounds absent, equal, crossed, and NaN.
pub fn clamps(dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    let bound = move || {
        prop::option::weighted(
            0.8,
            prop::sample::select(&[-2.0, -0.0, 0.0, 0.5, 1.0, 3.0, f64::NAN, f64::INFINITY][..]),
        )
        .prop_map(move |bound| {
            bound.map(
                |bound| if dtype.is_float() { Scalar::Float(bound) } else { Scalar::Int((bound as i64).clamp(0, 9)) },
            )
        })
    };
    (bound(), bound())
        .prop_flat_map(move |(min, max)| {
            elementwise(move || Call::Clamp { min, max }, vec![dtype], dtype, CLASSES, false, draw)
        })
        .boxed()
}

/// What each element of a comparison may be.
#[must_use]
pub fn expect_comparison(op: CompareOp, case: &Case) -> Vec<Expect> {
    let dtype = case.dtype();
    let pairs = operand(case, 0, dtype).into_iter().zip(operand(case, 1, dtype));
    pairs
        .map(|(a, b)| {
            let order = match dtype.is_float() {
                true => a.to_f64().partial_cmp(&b.to_f64()),
                false => Some(a.to_i64().cmp(&b.to_i64())),
            };
            let truth = match op {
                CompareOp::Eq => order.is_some_and(|order| order.is_eq()),
                CompareOp::Ge => order.is_some_and(|order| order.is_ge()),
                CompareOp::Gt => order.is_some_and(|order| order.is_gt()),
                CompareOp::Le => order.is_some_and(|order| order.is_le()),
                CompareOp::Lt => order.is_some_and(|order| order.is_lt()),
                CompareOp::Ne => !order.is_some_and(|order| order.is_eq()),
                CompareOp::LogicalAnd => a.to_bool() && b.to_bool(),
                CompareOp::LogicalOr => a.to_bool() || b.to_bool(),
                CompareOp::LogicalXor => a.to_bool() != b.to_bool(),
            };
            Expect::Bits(truth.into())
        })
        .collect()
}

/// What each element of a choice may be: the chosen bits.
#[must_use]
pub fn expect_choice(case: &Case) -> Vec<Expect> {
    let dtype = case.out.dtype;
    let condition = operand(case, 0, DType::Bool);
    let (a, b) = (operand_bits(case, 1, dtype), operand_bits(case, 2, dtype));
    condition
        .into_iter()
        .zip(a.into_iter().zip(b))
        .map(|(c, (a, b))| Expect::Bits(if c.to_bool() { a } else { b }))
        .collect()
}

/// What each element of a clamp may be.
#[must_use]
pub fn expect_clamp(min: Option<Scalar>, max: Option<Scalar>, case: &Case) -> Vec<Expect> {
    let dtype = case.out.dtype;
    let rounded = |bound: Option<Scalar>| bound.map(|bound| crate::host::decode(dtype, encode(dtype, bound)));
    let (min, max) = (rounded(min), rounded(max));
    operand(case, 0, dtype)
        .into_iter()
        .map(|x| {
            if dtype.is_float() {
                let low = min.map_or(x.to_f64(), |min| extreme(x.to_f64(), min.to_f64(), true));
                Expect::exact(dtype, max.map_or(low, |max| extreme(low, max.to_f64(), false)))
            } else {
                let low = min.map_or(x.to_i64(), |min| x.to_i64().max(min.to_i64()));
                Expect::Bits(encode_int(dtype, max.map_or(low, |max| low.min(max.to_i64())).into()))
            }
        })
        .collect()
}
