//! Wrong matrix products.

use congruent_backend_api::{DType, Op, Scalar};

use super::{narrow, pairwise, rotated, short};
use crate::faults::{Element, Fault, Special};

const MATMUL: &[&str] = &["matmul"];

pub(super) const FAULTS: &[Fault] = &[
    Fault::function(
        "the last term of inner products is left out",
        MATMUL,
        |op, _| op == Op::Matmul,
        |element| product(element, |pairs| pairs.truncate(pairs.len().saturating_sub(1))),
    )
    .number(4),
    Fault::function(
        "the last term of inner products counts twice",
        MATMUL,
        |op, _| op == Op::Matmul,
        |element| product(element, |pairs| pairs.extend_from_within(pairs.len().saturating_sub(1)..)),
    )
    .number(5),
    Fault::function(
        "a term at the edge of a tile is read off by one",
        MATMUL,
        |op, _| op == Op::Matmul,
        |element| {
            product(element, |pairs| {
                if pairs.len() > 32 {
                    pairs[31].0 = pairs[32].0;
                }
            })
        },
    )
    .number(6),
    Fault::function(
        "β = 0 reads the old output",
        MATMUL,
        |op, dtype| op == Op::Matmul && dtype.is_float(),
        |element| (element.factors.1 == 0.0).then(|| Scalar::Float(element.new.to_f64() + 0.0 * element.old.to_f64())),
    )
    .number(17),
    Fault::function(
        "with α = 0 the old output is lost",
        MATMUL,
        |op, _| op == Op::Matmul,
        |element| {
            let zero = if element.out.is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) };
            (element.factors.0 == 0.0).then_some(zero)
        },
    ),
    Fault::function(
        "float products are added in another order at every call",
        MATMUL,
        |op, dtype| op == Op::Matmul && dtype == DType::F32,
        |element| {
            let terms: Vec<f64> = element.values(0).iter().zip(element.values(1)).map(|(a, b)| a * b).collect();
            (element.factors == (1.0, 0.0)).then(|| Scalar::Float(rotated(&terms, element.calls)))
        },
    )
    .laws_only()
    .number(24),
    Fault::function(
        "inner products of f16 accumulate in f16",
        MATMUL,
        |op, dtype| op == Op::Matmul && dtype == DType::F16,
        |element| {
            let terms = element.values(0).into_iter().zip(element.values(1)).map(|(a, b)| a * b);
            (element.factors == (1.0, 0.0)).then(|| Scalar::Float(narrow(DType::F16, terms)))
        },
    )
    .number(25),
    Fault::function(
        "two halves of an inner product are rounded to bf16 and added",
        MATMUL,
        |op, dtype| op == Op::Matmul && dtype == DType::BF16,
        |element| {
            let terms: Vec<f64> = element.values(0).iter().zip(element.values(1)).map(|(a, b)| a * b).collect();
            let (left, right) = terms.split_at(terms.len() / 2);
            let halves = [left, right].map(|half| half.iter().sum::<f64>());
            (element.factors == (1.0, 0.0)).then(|| Scalar::Float(narrow(DType::BF16, halves)))
        },
    )
    .number(26),
    Fault::function(
        "operands of f32 products are TF32",
        MATMUL,
        |op, dtype| op == Op::Matmul && dtype == DType::F32,
        |element| {
            product(element, |pairs| {
                for (a, b) in pairs {
                    (*a, *b) = (Scalar::Float(short(a.to_f64(), 11)), Scalar::Float(short(b.to_f64(), 11)));
                }
            })
        },
    )
    .number(27),
    Fault::special("the bias of a layer is left out", MATMUL, Special::BiasLost).on(linear),
    Fault::special("the bias is added after the activation", MATMUL, Special::BiasLate).on(linear),
    Fault::special("sums of a half-precision layer are rounded before the bias is added", MATMUL, Special::SumsRounded)
        .on(|op, dtype| linear(op, dtype) && dtype.size() == 2),
    Fault::special("the activation of a layer is left out", MATMUL, Special::ActivationLost).on(linear),
    Fault::special("gelu of a layer is the approximation by tanh", MATMUL, Special::GeluByTanh).on(linear),
];

fn linear(op: Op, _: DType) -> bool {
    op == Op::Linear
}

/// α·Σ a·b + β·c over the pairs after a change, otherwise correct; calls with α = 0 stay as they are.
pub(super) fn product(element: &Element<'_>, change: impl FnOnce(&mut Vec<(Scalar, Scalar)>)) -> Option<Scalar> {
    let (alpha, beta) = element.factors;
    let mut pairs: Vec<_> = element.operands[0].iter().copied().zip(element.operands[1].iter().copied()).collect();
    change(&mut pairs);
    let value = if element.dtype.is_float() {
        let terms: Vec<f64> = pairs.iter().map(|(a, b)| a.to_f64() * b.to_f64()).collect();
        let kept = if beta == 0.0 { 0.0 } else { beta * element.old.to_f64() };
        Scalar::Float(alpha * pairwise(&terms, |a, b| a + b) + kept)
    } else {
        let terms = pairs.iter().map(|(a, b)| a.to_i64().wrapping_mul(b.to_i64()));
        let total = terms.fold(0_i64, i64::wrapping_add);
        let kept = (beta as i64).wrapping_mul(element.old.to_i64());
        Scalar::Int((alpha as i64).wrapping_mul(total).wrapping_add(kept))
    };
    (alpha != 0.0).then_some(value)
}
