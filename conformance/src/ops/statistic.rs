//! var, std, logsumexp and norm: bounds composed step by step from those of the ops they are made of.
//!
//! Formulas after Higham, *Accuracy and Stability of Numerical Algorithms*, ch. 3, with u the unit roundoff of the
//! accumulator, κ the ULP limit of an elementary function (one ULP is at most 2u), d the depth of a sum.

use congruent_backend_api::DType;
use congruent_backend_api::ops::reduce::summation_depth;
use congruent_backend_api::ops::statistic::StatisticOp;
use core_math as cr;
use proptest::prelude::*;

use crate::case::{Call, Case, Input, poisoned};
use crate::dd::Dd;
use crate::expect::Expect;
use crate::ops::reduce::{Sum, axes, groups, named, reduced_shape};
use crate::ops::{host, layout};
use crate::round::{Format, exp2, gamma};
use crate::spec::{Draw, placement, shape, tensor};
use crate::values::Class;

const CLASSES: &[Class] = &[
    Class::Uniform,
    Class::Positive,
    Class::Constant,
    Class::SmallInts,
    Class::Cancelling,
    Class::Shifted,
    Class::Large,
    Class::WideExponent,
    Class::Specials,
    Class::Tiny,
];

/// Generated statistics.
pub fn cases(op: StatisticOp, dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    let parameter = match op {
        StatisticOp::Norm => {
            prop::sample::select(&[2.0, 1.0, 0.0, 3.0, 0.5, -1.0, f64::INFINITY, f64::NEG_INFINITY][..]).boxed()
        }
        StatisticOp::LogSumExp => Just(0.0).boxed(),
        StatisticOp::Std | StatisticOp::Var => prop::sample::select(&[1.0, 0.0, 2.0][..]).boxed(),
    };
    (
        shape(draw.scaled(2), 5),
        axes(),
        any::<bool>(),
        tensor(draw, CLASSES),
        placement(),
        parameter,
        any::<u64>().no_shrink(),
    )
        .prop_map(move |(mut shape, mask, keepdim, spec, placement, parameter, seed)| {
            let axes = named(mask, shape.len());
            if op == StatisticOp::Norm && (parameter < 0.0 || parameter.is_infinite()) {
                shape.iter_mut().for_each(|size| *size = (*size).max(1));
            }
            let out = poisoned(dtype, layout(&placement, &reduced_shape(&shape, axes.as_deref(), keepdim)), seed);
            let x = host(&spec, dtype, &shape, seed, 0);
            Case { call: Call::Statistic { op, parameter, axes }, inputs: vec![Input::Tensor(x)], out }
        })
        .boxed()
}

/// What each element may be.
#[must_use]
pub fn expect(op: StatisticOp, parameter: f64, axes: Option<&[isize]>, case: &Case) -> Vec<Expect> {
    let Some(x) = case.tensor(0) else { return Vec::new() };
    groups(x, axes)
        .into_iter()
        .map(|group| {
            let values: Vec<f64> = group.iter().map(|x| x.to_f64()).collect();
            if values.iter().any(|x| x.is_nan()) && !(op == StatisticOp::Norm && parameter == 0.0) {
                return Expect::Nan;
            }
            match op {
                StatisticOp::LogSumExp => logsumexp(x.dtype, &values),
                StatisticOp::Norm => norm(x.dtype, &values, parameter),
                StatisticOp::Std | StatisticOp::Var => variance(op, x.dtype, &values, parameter),
            }
        })
        .collect()
}

fn logsumexp(dtype: DType, values: &[f64]) -> Expect {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max.is_infinite() {
        return Expect::exact(dtype, max);
    }
    let terms: Vec<f64> = values.iter().map(|x| cr::exp(x - max)).collect();
    let sum = Sum::of(DType::F64, &terms).value.to_f64();
    // Rounding x − max moves its exponential by u·|x − max|, weighted by its share of the sum.
    let shifts: f64 =
        terms.iter().zip(values).map(|(term, x)| if *term > 0.0 { term * (x - max).abs() } else { 0.0 }).sum();
    log_of_terms(dtype, max, sum, shifts, values.len(), summation_depth(values.len()) as f64)
}

/// ln Σ e^(x − max) + max over `count` terms: `sum` is Σ e^(x − max), `shifts` Σ |x − max| e^(x − max), and a term passes
/// through as many `roundings`.
pub(super) fn log_of_terms(dtype: DType, max: f64, sum: f64, shifts: f64, count: usize, roundings: f64) -> Expect {
    let format = Format::of(dtype).map_or(Format::F64, Format::accumulator);
    let (u, tiny) = (format.unit(), format.tiny());
    let relative = u * shifts / sum + 2.0 * EXP * u + gamma(roundings, u) + count as f64 * tiny;
    let log = cr::log(sum);
    let y = log + max;
    let bound = relative + 2.0 * LOG * u * (log.abs() + relative) + u * (y.abs() + relative) + tiny;
    Expect::near(y.into(), (bound + exp2(-50) * (y.abs() + log.abs())) * SECOND_ORDER)
}

/// ULP limits of exp, ln and pow in the contract (those of f64, which contain the others).
const EXP: f64 = 4.0;
const LOG: f64 = 4.0;
const POW: f64 = 16.0;

/// Room for the products of two errors that the first-order formulas leave out.
const SECOND_ORDER: f64 = 1.0 + 1.0 / 1024.0;

fn norm(dtype: DType, values: &[f64], p: f64) -> Expect {
    let format = Format::of(dtype).map_or(Format::F64, Format::accumulator);
    let (u, tiny) = (format.unit(), format.tiny());
    let magnitudes: Vec<f64> = values.iter().map(|x| x.abs()).collect();
    let max = magnitudes.iter().copied().fold(0.0, f64::max);
    let min = magnitudes.iter().copied().fold(f64::INFINITY, f64::min);
    if p == f64::INFINITY {
        return Expect::exact(dtype, max);
    }
    if p == f64::NEG_INFINITY {
        return Expect::exact(dtype, min);
    }
    if p == 0.0 {
        let ones: Vec<f64> = magnitudes.iter().map(|&x| f64::from(u8::from(x != 0.0))).collect();
        let sum = Sum::of(dtype, &ones);
        return sum.expect(sum.value, sum.bound());
    }
    if p == 1.0 {
        let sum = Sum::of(dtype, &magnitudes);
        return sum.expect(sum.value, sum.bound());
    }
    if values.is_empty() {
        return Expect::exact(dtype, 0.0);
    }
    // Of an infinite element a positive order makes ∞; a negative one makes it nothing, and a zero everything.
    let unit = if p > 0.0 { max } else { min };
    if unit == 0.0 || unit.is_infinite() {
        return Expect::near(unit.into(), 0.0);
    }
    let powers: Vec<f64> = magnitudes.iter().map(|x| cr::pow(x / unit, p)).collect();
    let total = Sum::of(DType::F64, &powers).value.to_f64();
    let y = unit * cr::pow(total, 1.0 / p);
    let depth = gamma(summation_depth(values.len()) as f64, u);
    // Each quotient is off by u, each power by κ; the sum by its depth. The root divides that by |p|, and the rounding
    // of 1/p moves it by u·|ln total|/|p|.
    let power = p.abs() * u + 2.0 * POW * u + depth + values.len() as f64 * tiny;
    let root = power / p.abs() + 2.0 * POW * u + u * cr::log(total).abs() / p.abs();
    let bound = y * (root + 2.0 * u + exp2(-45)) * SECOND_ORDER + tiny;
    if y >= format.max() / 2.0 { Expect::Any } else { Expect::near(y.into(), bound) }
}

fn variance(op: StatisticOp, dtype: DType, values: &[f64], correction: f64) -> Expect {
    let count = values.len() as f64;
    let freedom = (count - correction).max(0.0);
    if values.is_empty() || values.iter().any(|x| x.is_infinite()) {
        return Expect::Nan;
    }
    let sum = Sum::of(dtype, values);
    let (format, u, tiny) = (sum.format, sum.format.unit(), sum.format.tiny());
    let mean = sum.value.quotient(count);
    let depth = summation_depth(values.len()) as f64;
    // δμ: error of the mean; then each deviation c is off by δ = δμ + u·|c|.
    let mean_error = sum.bound() / count + gamma(2.0, u) * (mean.hi.abs() + sum.bound() / count) + tiny;
    let mut squares = Dd::default();
    let (mut spread, mut error) = (0.0, 0.0);
    for &x in values {
        let deviation = Dd::from(x) + -mean;
        let c = deviation.hi.abs();
        let delta = mean_error + u * (c + mean_error);
        squares = squares + deviation * deviation;
        spread += (c + delta) * (c + delta);
        error += 2.0 * c * delta + delta * delta + tiny;
    }
    let error = error + gamma(depth + 2.0, u) * spread;
    if sum.magnitude >= format.max() / 2.0 || (op == StatisticOp::Var && spread >= format.max() / 2.0) {
        return Expect::Any;
    }
    let (low, high) = ((squares.hi - error).max(0.0), squares.hi + error);
    if freedom == 0.0 {
        // The mean of 2ⁿ equal terms is that term, and 0/0 is NaN. Otherwise rounding may leave a deviation or lose it.
        let equal = values.len().is_power_of_two() && values.iter().all(|&x| x == values[0]);
        return match (equal, low > 0.0) {
            (true, _) => Expect::Nan,
            (false, true) => Expect::exact(dtype, f64::INFINITY),
            (false, false) => Expect::Any,
        };
    }
    if op == StatisticOp::Var {
        let y = squares.quotient(freedom);
        return Expect::near(y, (error / freedom + gamma(2.0, u) * high / freedom) * SECOND_ORDER + tiny);
    }
    let y = (squares.hi / freedom).sqrt();
    // The scaled norm rounds the quotient, the square, the root, the product, and the divisor √freedom.
    let bound = ((high / freedom).sqrt() - y).max(y - (low / freedom).sqrt()) + gamma(8.0, u) * (high / freedom).sqrt();
    Expect::near(y.into(), (bound + exp2(-50) * y) * SECOND_ORDER + tiny)
}
