//! Wrong scans.

use congruent_backend_api::ops::scan::ScanOp;
use congruent_backend_api::{DType, Op, Scalar};

use super::functions::{greatest, least};
use super::{narrow, pairwise};
use crate::faults::{Element, Fault};

const SCAN: &[&str] = &["scan"];

pub(super) const FAULTS: &[Fault] = &[
    Fault::function(
        "an exclusive scan takes in its own element",
        SCAN,
        |_, _| true,
        |element| (element.factors.0 == 1.0).then(|| result(element, &element.operands[0])),
    ),
    Fault::function(
        "a scan leaves out its own element",
        SCAN,
        |_, _| true,
        |element| {
            let values = &element.operands[0];
            (element.factors.0 == 0.0).then(|| result(element, &values[..values.len() - 1]))
        },
    ),
    Fault::function(
        "a scan starts again at every 256th element",
        SCAN,
        |_, _| true,
        |element| {
            scan(element, |values| {
                let start = values.len().saturating_sub(1) / 256 * 256;
                values.drain(..start);
            })
        },
    ),
    Fault::function(
        "the carry into a tile lacks the last element of the one before",
        SCAN,
        |_, _| true,
        |element| {
            scan(element, |values| {
                let start = values.len().saturating_sub(1) / 32 * 32;
                if start > 0 {
                    values.remove(start - 1);
                }
            })
        },
    ),
    Fault::function(
        "cummax and cummin drop NaN",
        SCAN,
        |op, dtype| matches!(op, Op::Scan(ScanOp::Max | ScanOp::Min)) && dtype.is_float(),
        |element| scan(element, |values| values.retain(|x| !x.to_f64().is_nan())),
    ),
    Fault::function(
        "cummax starts at 0",
        SCAN,
        |op, dtype| op == Op::Scan(ScanOp::Max) && dtype.is_float(),
        |element| (element.new.to_f64() < 0.0).then_some(Scalar::Float(0.0)),
    ),
    Fault::function(
        "NaN is added as 0",
        SCAN,
        |op, dtype| op == Op::Scan(ScanOp::Sum) && dtype.is_float(),
        |element| element.new.to_f64().is_nan().then(|| scan(element, |x| x.retain(|x| !x.to_f64().is_nan())))?,
    ),
    Fault::function(
        "running sums of f32 and f16 accumulate in f16",
        SCAN,
        |op, dtype| op == Op::Scan(ScanOp::Sum) && matches!(dtype, DType::F32 | DType::F16),
        |element| {
            let values = element.values(0).into_iter().take(entering(element));
            Some(Scalar::Float(narrow(DType::F16, values)))
        },
    ),
    Fault::function(
        "running sums of integers saturate",
        SCAN,
        |op, dtype| op == Op::Scan(ScanOp::Sum) && dtype.is_int(),
        |element| {
            let values = element.operands[0].iter().take(entering(element));
            let total: i128 = values.map(|x| i128::from(x.to_i64())).sum();
            Some(Scalar::Int(total.clamp(least(element.out), greatest(element.out)) as i64))
        },
    ),
    Fault::function(
        "running products of i64 go through f64",
        SCAN,
        |op, dtype| op == Op::Scan(ScanOp::Prod) && dtype == DType::I64,
        |element| Some(Scalar::Int(element.values(0).into_iter().take(entering(element)).product::<f64>() as i64)),
    ),
    Fault::function(
        "logcumsumexp does not subtract the maximum",
        SCAN,
        |op, dtype| op == Op::Scan(ScanOp::LogSumExp) && dtype == DType::F32,
        |element| {
            let terms = element.values(0).into_iter().take(entering(element));
            let total: f32 = terms.map(|x| core_math::exp(x) as f32).sum();
            Some(Scalar::Float(core_math::log(total.into())))
        },
    ),
    Fault::function(
        "logcumsumexp of −∞ is NaN",
        SCAN,
        |op, _| op == Op::Scan(ScanOp::LogSumExp),
        |element| (element.new.to_f64() == f64::NEG_INFINITY).then_some(Scalar::Float(f64::NAN)),
    ),
];

/// How many of the values up to the element enter.
fn entering(element: &Element<'_>) -> usize {
    element.operands[0].len() - usize::from(element.factors.0 == 1.0)
}

/// The scan after a change of the values that enter, otherwise correct.
pub(super) fn scan(element: &Element<'_>, change: impl FnOnce(&mut Vec<Scalar>)) -> Option<Scalar> {
    let mut values = element.operands[0][..entering(element)].to_vec();
    change(&mut values);
    Some(result(element, &values))
}

fn result(element: &Element<'_>, values: &[Scalar]) -> Scalar {
    let Op::Scan(op) = element.op else { return element.new };
    if element.dtype.is_float() {
        let values: Vec<f64> = values.iter().map(|x| x.to_f64()).collect();
        return Scalar::Float(float(op, &values));
    }
    let values = values.iter().map(|x| x.to_i64());
    Scalar::Int(match op {
        ScanOp::Max => values.fold(least(element.out) as i64, i64::max),
        ScanOp::Min => values.fold(greatest(element.out) as i64, i64::min),
        ScanOp::Prod => values.fold(1, i64::wrapping_mul),
        ScanOp::LogSumExp | ScanOp::Sum => values.fold(0, i64::wrapping_add),
    })
}

fn float(op: ScanOp, values: &[f64]) -> f64 {
    let extreme =
        |start: f64, greater: bool| values.iter().fold(start, |best, &x| crate::ops::binary::extreme(best, x, greater));
    match op {
        ScanOp::LogSumExp => {
            let max = extreme(f64::NEG_INFINITY, true);
            if !max.is_finite() {
                return max;
            }
            let terms: Vec<f64> = values.iter().map(|x| core_math::exp(x - max)).collect();
            core_math::log(pairwise(&terms, |a, b| a + b)) + max
        }
        ScanOp::Max => extreme(f64::NEG_INFINITY, true),
        ScanOp::Min => extreme(f64::INFINITY, false),
        ScanOp::Prod => values.iter().product(),
        ScanOp::Sum => pairwise(values, |a, b| a + b),
    }
}
