//! Elementwise functions of one operand: every op's exact or ULP-bounded oracle.

use congruent_backend_api::DType;
use congruent_backend_api::ops::unary::UnaryOp;
use core_math as cr;
use proptest::prelude::*;

use crate::case::{Call, Case, Input, poisoned};
use crate::dd::Dd;
use crate::expect::Expect;
use crate::host::encode_int;
use crate::model::ErrorModel;
use crate::ops::{elementwise, host, layout, operand};
use crate::round::exp2;
use crate::spec::{Draw, Placement, TensorSpec};
use crate::values::Class;

const CLASSES: &[Class] = &[
    Class::Uniform,
    Class::Specials,
    Class::Specials,
    Class::WideExponent,
    Class::FullRange,
    Class::Tiny,
    Class::Large,
    Class::SmallInts,
];

/// Generated cases.
pub fn cases(op: UnaryOp, dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    elementwise(move || Call::Unary(op), vec![dtype], op.out_dtype(dtype), CLASSES, false, draw)
}

/// All 65,536 values of a 16-bit float in one case.
#[must_use]
pub fn exhaustive(op: UnaryOp, dtype: DType) -> Case {
    let placement = Placement { order: Vec::new(), steps: Vec::new(), offset: 0 };
    let out = poisoned(op.out_dtype(dtype), layout(&placement, &[1 << 16]), 0);
    let spec = TensorSpec { placement, broadcast: 0, class: Class::Exhaustive };
    Case { call: Call::Unary(op), inputs: vec![Input::Tensor(host(&spec, dtype, &[1 << 16], 0, 0))], out }
}

/// `count` values of f32, by their bits from `first` on.
#[must_use]
pub fn f32_values(op: UnaryOp, first: u64, count: usize) -> Case {
    let placement = Placement { order: Vec::new(), steps: Vec::new(), offset: 0 };
    let place = |dtype| poisoned(dtype, layout(&placement, &[count]), 0);
    let mut x = place(DType::F32);
    for (index, at) in crate::host::positions(&x.layout).into_iter().enumerate() {
        x.set_bits(at, first + index as u64);
    }
    Case { call: Call::Unary(op), inputs: vec![Input::Tensor(x)], out: place(op.out_dtype(DType::F32)) }
}

/// What each element may be.
#[must_use]
pub fn expect(op: UnaryOp, case: &Case) -> Vec<Expect> {
    let dtype = case.dtype();
    let values = operand(case, 0, dtype);
    if dtype.is_float() {
        values.into_iter().map(|x| float(op, dtype, x.to_f64())).collect()
    } else {
        values.into_iter().map(|x| Expect::Bits(integer(op, dtype, x.to_i64().into()))).collect()
    }
}

fn integer(op: UnaryOp, dtype: DType, x: i128) -> u64 {
    match op {
        UnaryOp::Abs => encode_int(dtype, x.abs()),
        UnaryOp::Neg => encode_int(dtype, -x),
        UnaryOp::Relu => encode_int(dtype, x.max(0)),
        UnaryOp::Sign => encode_int(dtype, x.signum()),
        UnaryOp::Square => encode_int(dtype, x * x),
        UnaryOp::BitwiseNot if dtype != DType::Bool => encode_int(dtype, !x),
        // Logical negation; the plans admit no other op here.
        _ => u64::from(x == 0),
    }
}

/// How exactly a function must agree. The limits hold what was measured of glibc and of CUDA's library, with room.
#[must_use]
pub fn model(op: UnaryOp, dtype: DType) -> ErrorModel {
    if !dtype.is_float() {
        return ErrorModel::Exact;
    }
    match op {
        UnaryOp::Recip | UnaryOp::Sqrt | UnaryOp::Square => ErrorModel::Rounded,
        UnaryOp::Abs
        | UnaryOp::BitwiseNot
        | UnaryOp::Ceil
        | UnaryOp::Floor
        | UnaryOp::IsFinite
        | UnaryOp::IsInf
        | UnaryOp::IsNan
        | UnaryOp::LogicalNot
        | UnaryOp::Neg
        | UnaryOp::Relu
        | UnaryOp::Round
        | UnaryOp::Sign
        | UnaryOp::Trunc => ErrorModel::Exact,
        UnaryOp::Exp
        | UnaryOp::Exp2
        | UnaryOp::Expm1
        | UnaryOp::Ln
        | UnaryOp::Log10
        | UnaryOp::Log1p
        | UnaryOp::Log2
        | UnaryOp::Rsqrt => ErrorModel::Ulp(if dtype == DType::F64 { 4.0 } else { 3.0 }),
        UnaryOp::Cos | UnaryOp::Cosh | UnaryOp::Erf | UnaryOp::Sin | UnaryOp::Sinh | UnaryOp::Tanh => {
            ErrorModel::Ulp(4.0)
        }
        UnaryOp::Acos
        | UnaryOp::Acosh
        | UnaryOp::Asin
        | UnaryOp::Asinh
        | UnaryOp::Atan
        | UnaryOp::Atanh
        | UnaryOp::Tan => ErrorModel::Ulp(5.0),
        UnaryOp::Erfc => ErrorModel::Ulp(6.0),
        UnaryOp::Sigmoid | UnaryOp::Silu | UnaryOp::Softplus => ErrorModel::Ulp(8.0),
        UnaryOp::Gelu | UnaryOp::GeluTanh => ErrorModel::ConditionedUlp(8.0),
    }
}

/// What a function of one float may give.
pub(super) fn float(op: UnaryOp, dtype: DType, x: f64) -> Expect {
    let exact = |value: f64| Expect::computed(dtype, value);
    let truth = |value: bool| Expect::Bits(value.into());
    let limit = model(op, dtype).limit().unwrap_or(0.0);
    // For f64 the oracle itself is off by up to half a unit.
    let ulps = |value: f64| Expect::ulps(dtype, value.into(), limit + if dtype == DType::F64 { 0.5 } else { 0.0 });
    match op {
        UnaryOp::Abs => exact(x.abs()),
        UnaryOp::Ceil => exact(x.ceil()),
        UnaryOp::Floor => exact(x.floor()),
        UnaryOp::Neg => exact(-x),
        UnaryOp::Recip => exact(1.0 / x),
        UnaryOp::Relu => exact(if x > 0.0 || x.is_nan() { x } else { 0.0 }),
        UnaryOp::Round => exact(x.round_ties_even()),
        UnaryOp::Sign => exact(if x == 0.0 || x.is_nan() { x } else { x.signum() }),
        UnaryOp::Sqrt => exact(x.sqrt()),
        UnaryOp::Square => exact(x * x),
        UnaryOp::Trunc => exact(x.trunc()),
        UnaryOp::IsFinite => truth(x.is_finite()),
        UnaryOp::IsInf => truth(x.is_infinite()),
        UnaryOp::IsNan => truth(x.is_nan()),
        UnaryOp::Acos => ulps(cr::acos(x)),
        UnaryOp::Acosh => ulps(cr::acosh(x)),
        UnaryOp::Asin => ulps(cr::asin(x)),
        UnaryOp::Asinh => ulps(cr::asinh(x)),
        UnaryOp::Atan => ulps(cr::atan(x)),
        UnaryOp::Atanh => ulps(cr::atanh(x)),
        UnaryOp::Cos => ulps(cr::cos(x)),
        UnaryOp::Cosh => ulps(cr::cosh(x)),
        UnaryOp::Erf => ulps(cr::erf(x)),
        UnaryOp::Erfc => ulps(cr::erfc(x)),
        UnaryOp::Exp => ulps(cr::exp(x)),
        UnaryOp::Exp2 => ulps(cr::exp2(x)),
        UnaryOp::Expm1 => ulps(cr::expm1(x)),
        UnaryOp::Ln => ulps(cr::log(x)),
        UnaryOp::Log10 => ulps(cr::log10(x)),
        UnaryOp::Log1p => ulps(cr::log1p(x)),
        UnaryOp::Log2 => ulps(cr::log2(x)),
        UnaryOp::Rsqrt => ulps(cr::rsqrt(x)),
        UnaryOp::Sin => ulps(cr::sin(x)),
        UnaryOp::Sinh => ulps(cr::sinh(x)),
        UnaryOp::Tan => ulps(cr::tan(x)),
        UnaryOp::Tanh => ulps(cr::tanh(x)),
        UnaryOp::Sigmoid => Expect::ulps(dtype, sigmoid(Dd::from(x)), limit + ORACLE),
        UnaryOp::Silu => gate(dtype, x, gated(x, Dd::from(x)), limit),
        UnaryOp::Softplus => Expect::ulps(dtype, softplus(x).into(), limit + ORACLE),
        UnaryOp::Gelu => gate(dtype, x, Dd::from(x) * normal(x), limit + 2.0 * x.min(0.0).powi(2)),
        UnaryOp::GeluTanh => {
            let t = gelu_argument(x);
            gate(dtype, x, gated(x, t), limit + 8.0 * (-t.hi).max(0.0))
        }
        // Bit operations take no floats.
        UnaryOp::BitwiseNot | UnaryOp::LogicalNot => Expect::Any,
    }
}

/// Units in the last place by which the composed oracle functions below may themselves be off in f64; they matter
/// only where f64 is under test.
const ORACLE: f64 = 4.0;

/// A value y = x·g with a gate g in [0, 1], which is −0 at −∞.
fn gate(dtype: DType, x: f64, y: Dd, ulps: f64) -> Expect {
    if x == f64::NEG_INFINITY {
        return Expect::exact(dtype, -0.0);
    }
    if x == 0.0 || !y.hi.is_finite() {
        return Expect::exact(dtype, y.hi);
    }
    // A product that underflows to zero keeps the sign of x.
    let y = if y.hi == 0.0 { Dd::from(exp2(-1074).copysign(x)) } else { y };
    // Beyond this many units the result has underflowed even in f64.
    let expect = Expect::ulps(dtype, y, ulps.min(3000.0) + ORACLE);
    match expect {
        // A gate below the normal range of f64 has lost bits in the oracle itself.
        Expect::Near { value, bound, .. } => {
            let bound = bound + x.abs() * exp2(-1074);
            Expect::Near { value, bound, likely: bound, signed: true }
        }
        exact => exact,
    }
}

/// x·sigmoid(t); where the exponential would lose bits to underflow it enters as a square.
fn gated(x: f64, t: Dd) -> Dd {
    if t.hi > -600.0 {
        return Dd::from(x) * sigmoid(t);
    }
    let root = cr::exp(t.hi / 2.0);
    Dd::from(x * root * root * (1.0 + t.lo))
}

/// 1/(1 + e^(−t)) = e^t/(1 + e^t): the form whose exponential does not overflow. The low part of t enters to first
/// order: e^(hi + lo) = e^hi·(1 + lo).
fn sigmoid(t: Dd) -> Dd {
    let e = cr::exp(-t.hi.abs());
    let corrected = e * (1.0 + if t.hi < 0.0 { t.lo } else { -t.lo });
    if t.hi < 0.0 { Dd::from(corrected / (1.0 + corrected)) } else { Dd::from(1.0 / (1.0 + corrected)) }
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + cr::log1p(cr::exp(-x.abs())) + if x.is_nan() { x } else { 0.0 }
}

/// Φ(x) = erfc(−x/√2)/2, with the rounding of the argument corrected by the derivative −2/√π·e^(−t²).
fn normal(x: f64) -> Dd {
    // 1/√2 to 106 bits.
    let root = Dd { hi: std::f64::consts::FRAC_1_SQRT_2, lo: -4.833_646_656_726_457e-17 };
    let t = -(Dd::from(x) * root);
    let slope = -std::f64::consts::FRAC_2_SQRT_PI * cr::exp(-t.hi * t.hi);
    let value = cr::erfc(t.hi) + if t.lo == 0.0 || slope == 0.0 { 0.0 } else { slope * t.lo };
    Dd::from(value / 2.0)
}

/// 2√(2/π)·(x + 0.044715·x³).
fn gelu_argument(x: f64) -> Dd {
    let x = Dd::from(x);
    let inner = x + x * x * x * Dd::from(0.044_715);
    // 2√(2/π) to 106 bits.
    inner * Dd { hi: 1.595_769_121_605_730_8, lo: -9.969_308_809_110_92e-17 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::judge;
    use crate::host::encode_float;

    fn accepts(op: UnaryOp, x: f64, y: f64) -> bool {
        judge(DType::F64, encode_float(DType::F64, y), &float(op, DType::F64, x)).accepted
    }

    /// Values computed with mpmath 1.3 at 50 digits.
    #[test]
    fn composed_oracles_match_known_values() {
        for (op, x, y) in [
            (UnaryOp::Gelu, 1.0, 0.841_344_746_068_542_9),
            (UnaryOp::Gelu, -7.2, -2.167_652_146_404_552_4e-12),
            (UnaryOp::Gelu, -30.0, -1.472_014_178_144_456e-196),
            (UnaryOp::GeluTanh, 1.0, 0.841_191_990_608_276_7),
            (UnaryOp::Silu, -90.0, -7.374_611_361_591_464e-38),
            (UnaryOp::Softplus, -20.0, 2.061_153_620_314_381e-9),
            (UnaryOp::Sigmoid, -90.0, 8.194_012_623_990_515e-40),
        ] {
            assert!(accepts(op, x, y), "{op:?} {x}");
            assert!(!accepts(op, x, y * (1.0 + 1e-12)), "{op:?} {x} is not sharp");
        }
    }

    #[test]
    fn specials() {
        assert!(accepts(UnaryOp::Relu, -0.0, 0.0) && !accepts(UnaryOp::Relu, -0.0, -0.0));
        assert!(accepts(UnaryOp::Relu, f64::NAN, f64::NAN) && !accepts(UnaryOp::Relu, f64::NAN, 0.0));
        assert!(accepts(UnaryOp::Round, 2.5, 2.0) && accepts(UnaryOp::Round, -0.3, -0.0));
        assert!(
            accepts(UnaryOp::Silu, f64::NEG_INFINITY, -0.0) && accepts(UnaryOp::Silu, f64::INFINITY, f64::INFINITY)
        );
        assert!(accepts(UnaryOp::Sign, -0.0, -0.0) && accepts(UnaryOp::Softplus, f64::NEG_INFINITY, 0.0));
        assert!(!accepts(UnaryOp::Softplus, f64::NAN, 0.0));
    }
}
