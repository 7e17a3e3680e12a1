//! Wrong sums, extremes, searches and statistics.

use congruent_backend_api::ops::reduce::{ArgReduceOp, ReduceOp};
use congruent_backend_api::ops::statistic::StatisticOp;
use congruent_backend_api::{DType, Op, Scalar};

use super::functions::{greatest, least};
use super::{narrow, pairwise, rotated};
use crate::faults::{Element, Fault};
use crate::host::{decode, encode_int};
use crate::round::Format;

const REDUCE: &[&str] = &["reduce"];

pub(super) const FAULTS: &[Fault] = &[
    Fault::function("the last term of sums is left out", REDUCE, sums, |element| {
        sum(element, |values| values.truncate(values.len().saturating_sub(1)))
    })
    .number(4),
    Fault::function(
        "float sums are added in another order at every call",
        REDUCE,
        |op, dtype| op == Op::Reduce(ReduceOp::Sum) && dtype == DType::F32,
        |element| Some(Scalar::Float(rotated(&element.values(0), element.calls))),
    )
    .laws_only()
    .number(24),
    Fault::function(
        "sums of f32 and f16 accumulate in f16",
        REDUCE,
        |op, dtype| op == Op::Reduce(ReduceOp::Sum) && matches!(dtype, DType::F32 | DType::F16),
        |element| Some(Scalar::Float(narrow(DType::F16, element.values(0)))),
    )
    .number(25),
    Fault::function("max and min drop NaN", REDUCE, extremes, |element| {
        let numbers = element.values(0).into_iter().filter(|x| !x.is_nan());
        let extreme = if is(element, ReduceOp::Max) { numbers.reduce(f64::max) } else { numbers.reduce(f64::min) };
        element.new.to_f64().is_nan().then(|| Scalar::Float(extreme.unwrap_or(f64::NAN)))
    })
    .number(31),
    Fault::function(
        "max starts at 0",
        REDUCE,
        |op, _| op == Op::Reduce(ReduceOp::Max),
        |element| {
            (element.new.to_f64() < 0.0)
                .then(|| if element.out.is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) })
        },
    )
    .number(31),
    Fault::function(
        "max starts at the least finite number",
        REDUCE,
        |op, dtype| op == Op::Reduce(ReduceOp::Max) && dtype.is_float(),
        |element| {
            let least = Format::of(element.out).map_or(0.0, |format| -format.max());
            (element.new.to_f64() == f64::NEG_INFINITY).then_some(Scalar::Float(least))
        },
    )
    .number(31),
    Fault::function("argmax takes the last tie", REDUCE, searches, |element| {
        let values = element.values(0);
        let last = values.iter().rposition(|x| *x == values[element.new.to_i64() as usize]);
        last.map(|at| Scalar::Int(at as i64))
    })
    .number(33),
    Fault::function(
        "argmax ignores NaN",
        REDUCE,
        |op, dtype| searches(op, dtype) && dtype.is_float(),
        |element| {
            let values = element.values(0);
            let mut best = 0;
            for at in 1..values.len() {
                if values[at] > values[best] || values[best].is_nan() && !values[at].is_nan() {
                    best = at;
                }
            }
            Some(Scalar::Int(best as i64))
        },
    )
    .number(34),
    Fault::function(
        "integer sums saturate",
        REDUCE,
        |op, dtype| sums(op, dtype) && dtype.is_int(),
        |element| {
            let total: i128 = element.operands[0].iter().map(|x| i128::from(x.to_i64())).sum();
            Some(Scalar::Int(total.clamp(least(element.out), greatest(element.out)) as i64))
        },
    )
    .number(37),
    Fault::function(
        "sums of i64 accumulate in f64",
        REDUCE,
        |op, dtype| sums(op, dtype) && dtype == DType::I64,
        |element| Some(Scalar::Int(element.values(0).into_iter().sum::<f64>() as i64)),
    )
    .number(38),
    Fault::function(
        "positions are truncated to 16 bits",
        REDUCE,
        |op, _| matches!(op, Op::ArgReduce(_)),
        |element| Some(Scalar::Int(element.new.to_i64() & 0xffff)),
    )
    .laws_only()
    .number(39),
    Fault::function(
        "logsumexp does not subtract the maximum",
        REDUCE,
        |op, dtype| statistic(op, StatisticOp::LogSumExp) && dtype == DType::F32,
        |element| {
            let total: f32 = element.values(0).into_iter().map(|x| core_math::exp(x) as f32).sum();
            Some(Scalar::Float(core_math::log(total.into())))
        },
    )
    .number(56),
    Fault::function(
        "the variance is the mean of squares less the square of the mean",
        REDUCE,
        |op, dtype| statistic(op, StatisticOp::Var) && dtype == DType::F32,
        |element| {
            let values = element.values(0);
            let count = values.len() as f32;
            let mean = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x as f32).sum::<f32>() / count;
            let (square, plain) = (mean(&mut values.iter().map(|x| x * x)), mean(&mut values.iter().copied()));
            let freedom = (count - element.factors.0 as f32).max(0.0);
            Some(Scalar::Float(((square - plain * plain) * count / freedom).into()))
        },
    )
    .number(58),
    Fault::function(
        "the variance ignores its correction",
        REDUCE,
        |op, _| statistic(op, StatisticOp::Var) || statistic(op, StatisticOp::Std),
        |element| {
            let count = element.operands[0].len() as f64;
            let factor = (count - element.factors.0).max(0.0) / count;
            let factor = if statistic(element.op, StatisticOp::Std) { factor.sqrt() } else { factor };
            Some(Scalar::Float(element.new.to_f64() * factor))
        },
    )
    .number(59),
    Fault::function(
        "a mean divides by a padded count",
        REDUCE,
        |op, dtype| op == Op::Reduce(ReduceOp::Mean) && dtype.is_float(),
        |element| {
            let count = element.operands[0].len();
            let padded = count.next_multiple_of(8) as f64;
            (count > 0).then(|| Scalar::Float(element.new.to_f64() * count as f64 / padded))
        },
    )
    .number(60),
    Fault::function("a sum starts again at every 256th element", REDUCE, sums, |element| {
        sum(element, |values| {
            let start = values.len().saturating_sub(1) / 256 * 256;
            values.drain(..start);
        })
    })
    .number(67),
    Fault::function(
        "the norm of order 2 overflows in between",
        REDUCE,
        |op, dtype| statistic(op, StatisticOp::Norm) && dtype == DType::F32,
        |element| {
            let total: f32 = element.values(0).into_iter().map(|x| (x as f32) * (x as f32)).sum();
            (element.factors.0 == 2.0).then(|| Scalar::Float(total.sqrt().into()))
        },
    ),
    Fault::function(
        "any sees only the first 32 elements",
        REDUCE,
        |op, _| op == Op::Reduce(ReduceOp::Any),
        |element| Some(Scalar::Bool(element.operands[0].iter().take(32).any(|x| x.to_bool()))),
    ),
    Fault::function(
        "integer means wrap",
        REDUCE,
        |op, dtype| op == Op::Reduce(ReduceOp::Mean) && dtype.is_int(),
        |element| {
            let total: i128 = element.operands[0].iter().map(|x| i128::from(x.to_i64())).sum();
            let wrapped = decode(element.out, encode_int(element.out, total)).to_i64();
            Some(Scalar::Int(wrapped.wrapping_div(element.operands[0].len().max(1) as i64)))
        },
    ),
];

pub(super) fn sums(op: Op, _: DType) -> bool {
    op == Op::Reduce(ReduceOp::Sum)
}

fn extremes(op: Op, dtype: DType) -> bool {
    matches!(op, Op::Reduce(ReduceOp::Max | ReduceOp::Min)) && dtype.is_float()
}

fn searches(op: Op, _: DType) -> bool {
    op == Op::ArgReduce(ArgReduceOp::Argmax)
}

fn statistic(op: Op, wanted: StatisticOp) -> bool {
    op == Op::Statistic(wanted)
}

fn is(element: &Element<'_>, op: ReduceOp) -> bool {
    element.op == Op::Reduce(op)
}

/// The sum of the values after a change, otherwise correct.
pub(super) fn sum(element: &Element<'_>, change: impl FnOnce(&mut Vec<Scalar>)) -> Option<Scalar> {
    let mut values = element.operands[0].clone();
    change(&mut values);
    Some(if element.dtype.is_float() {
        Scalar::Float(pairwise(&values.iter().map(|x| x.to_f64()).collect::<Vec<_>>(), |a, b| a + b))
    } else {
        Scalar::Int(values.iter().fold(0, |sum, x| sum.wrapping_add(x.to_i64())))
    })
}
