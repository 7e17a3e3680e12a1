//! Elementwise arithmetic of two operands.

use congruent_backend_api::DType;
use congruent_backend_api::ops::binary::BinaryOp;
use core_math as cr;
use proptest::prelude::*;

use crate::case::{Call, Case};
use crate::expect::Expect;
use crate::host::encode_int;
use crate::model::ErrorModel;
use crate::ops::{elementwise, operand};
use crate::spec::Draw;
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
    Class::Ties,
    Class::Cancelling,
];

/// Generated cases: tensors that broadcast, scalars on either side, in place.
pub fn cases(op: BinaryOp, dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    elementwise(move || Call::Binary(op), vec![dtype; 2], dtype, CLASSES, true, draw)
}

/// What each element may be.
#[must_use]
pub fn expect(op: BinaryOp, case: &Case) -> Vec<Expect> {
    let dtype = case.out.dtype;
    operand(case, 0, dtype)
        .into_iter()
        .zip(operand(case, 1, dtype))
        .map(|(a, b)| match dtype.is_float() {
            true => float(op, dtype, a.to_f64(), b.to_f64()),
            false => Expect::Bits(encode_int(dtype, integer(op, dtype, a.to_i64().into(), b.to_i64().into()))),
        })
        .collect()
}

/// Whether some element divides by zero.
#[must_use]
pub fn divides_by_zero(op: BinaryOp, case: &Case) -> bool {
    let dtype = case.out.dtype;
    let pairs = || operand(case, 0, dtype).into_iter().zip(operand(case, 1, dtype));
    dtype.is_int()
        && match op {
            BinaryOp::Div | BinaryOp::Modulo | BinaryOp::Rem => pairs().any(|(_, b)| b.to_i64() == 0),
            BinaryOp::Pow => pairs().any(|(a, b)| a.to_i64() == 0 && b.to_i64() < 0),
            _ => false,
        }
}

/// How exactly an op must agree.
#[must_use]
pub fn model(op: BinaryOp, dtype: DType) -> ErrorModel {
    match op {
        _ if !dtype.is_float() => ErrorModel::Exact,
        BinaryOp::Maximum | BinaryOp::Minimum | BinaryOp::Rem => ErrorModel::Exact,
        BinaryOp::Atan2 => ErrorModel::Ulp(6.0),
        BinaryOp::Pow => ErrorModel::Ulp(16.0),
        _ => ErrorModel::Rounded,
    }
}

fn float(op: BinaryOp, dtype: DType, a: f64, b: f64) -> Expect {
    let exact = |value: f64| Expect::computed(dtype, value);
    let limit = model(op, dtype).limit().unwrap_or(0.0);
    // For f64 the oracle itself is off by up to half a unit.
    let ulps = |value: f64| Expect::ulps(dtype, value.into(), limit + if dtype == DType::F64 { 0.5 } else { 0.0 });
    match op {
        // The sum of two f32 need not be exact in f64; what f64 drops decides only exact ties of f32.
        BinaryOp::Add => exact(sum(dtype, a, b)),
        BinaryOp::Sub => exact(sum(dtype, a, -b)),
        BinaryOp::Mul => exact(a * b),
        BinaryOp::Div => exact(a / b),
        BinaryOp::Rem => exact(a % b),
        BinaryOp::Modulo => {
            let rest = a % b;
            if rest == 0.0 {
                exact(0_f64.copysign(b))
            } else if (rest < 0.0) != (b < 0.0) && !rest.is_nan() {
                exact(sum(dtype, rest, b))
            } else {
                exact(rest)
            }
        }
        BinaryOp::Maximum => exact(extreme(a, b, true)),
        BinaryOp::Minimum => exact(extreme(a, b, false)),
        BinaryOp::Atan2 => ulps(cr::atan2(a, b)),
        BinaryOp::Pow => ulps(cr::pow(a, b)),
        // Bit operations take no floats.
        _ => Expect::Any,
    }
}

/// a + b in f64, rounded to odd where the result is narrower, so that the next rounding is the only one.
fn sum(dtype: DType, a: f64, b: f64) -> f64 {
    let sum = crate::dd::Dd::sum(a, b);
    if dtype == DType::F64 || sum.lo == 0.0 || !sum.hi.is_finite() || sum.hi.to_bits() & 1 == 1 {
        return sum.hi;
    }
    // `hi` is even and inexact: the odd neighbour on the side of the exact sum.
    if sum.lo > 0.0 { sum.hi.next_up() } else { sum.hi.next_down() }
}

/// The greater or smaller of two floats; NaN wins, −0 is less than +0.
#[must_use]
pub fn extreme(a: f64, b: f64, greater: bool) -> f64 {
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    let a_wins = if a == b { a.is_sign_positive() == greater } else { (a > b) == greater };
    if a_wins { a } else { b }
}

fn integer(op: BinaryOp, dtype: DType, a: i128, b: i128) -> i128 {
    let bits = 8 * dtype.size() as i128;
    let logical = dtype == DType::Bool;
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div | BinaryOp::Rem | BinaryOp::Modulo if b == 0 => 0,
        BinaryOp::Div => a / b,
        BinaryOp::Rem => a % b,
        BinaryOp::Modulo => ((a % b) + b) % b,
        BinaryOp::Maximum => a.max(b),
        BinaryOp::Minimum => a.min(b),
        BinaryOp::BitwiseAnd => a & b,
        BinaryOp::BitwiseOr => a | b,
        BinaryOp::BitwiseXor if logical => i128::from(a != b),
        BinaryOp::BitwiseXor => a ^ b,
        BinaryOp::Shl => {
            if (0..bits).contains(&b) {
                a << b
            } else {
                0
            }
        }
        BinaryOp::Shr => a >> if (0..bits).contains(&b) { b } else { 127 },
        BinaryOp::Pow => power(a, b),
        // The angle takes no integers.
        BinaryOp::Atan2 => 0,
    }
}

/// The power modulo 2^64; a negative exponent truncates.
fn power(base: i128, exponent: i128) -> i128 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 => {
                if exponent % 2 == 0 {
                    1
                } else {
                    -1
                }
            }
            _ => 0,
        };
    }
    // Modulo 2^64, which every dtype divides; a product of two residues fits u128.
    let modulus = 1_u128 << 64;
    let (mut result, mut square, mut rest) = (1_u128, base as u128 % modulus, exponent as u128);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result * square % modulus;
        }
        square = square * square % modulus;
        rest >>= 1;
    }
    result as i128
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_powers_wrap_exactly() {
        assert_eq!(power(3, 39), 4_052_555_153_018_976_267);
        assert_eq!(encode_int(DType::U8, power(3, 20)), 3_486_784_401 & 0xff);
        assert_eq!(encode_int(DType::I64, power(-2, 63)), 1 << 63);
        assert_eq!((power(-1, -3), power(2, -1), power(0, 0), power(1, -5)), (-1, 0, 1, 1));
    }

    #[test]
    fn division_family() {
        let value = |op, a, b| integer(op, DType::I32, a, b);
        assert_eq!(
            [value(BinaryOp::Rem, -3, 2), value(BinaryOp::Modulo, -3, 2), value(BinaryOp::Modulo, 3, -2)],
            [-1, 1, -1]
        );
        assert_eq!(encode_int(DType::I32, value(BinaryOp::Div, i32::MIN.into(), -1)), 1 << 31);
        assert_eq!(
            [value(BinaryOp::Shl, 1, 32), value(BinaryOp::Shr, -8, 99), value(BinaryOp::Shr, 8, -1)],
            [0, -1, 0]
        );
    }

    #[test]
    fn float_modulo_and_extremes() {
        let exact = |value| Expect::exact(DType::F64, value);
        assert_eq!(float(BinaryOp::Modulo, DType::F64, -1.0, 3.0), exact(2.0));
        assert_eq!(float(BinaryOp::Modulo, DType::F64, -4.0, 2.0), exact(0.0));
        assert_eq!(float(BinaryOp::Modulo, DType::F64, 4.0, -2.0), exact(-0.0));
        assert_eq!(float(BinaryOp::Rem, DType::F64, -4.0, 2.0), exact(-0.0));
        assert_eq!(float(BinaryOp::Maximum, DType::F64, -0.0, 0.0), exact(0.0));
        assert_eq!(float(BinaryOp::Minimum, DType::F32, 1.0, f64::NAN), Expect::Nan);
    }

    #[test]
    fn a_narrow_sum_is_rounded_once() {
        // 1 + 2^-24 is a tie of f32; 2^-80 more decides it, and f64 alone would drop that.
        let (tie, more) = (1.0 + crate::round::exp2(-24), crate::round::exp2(-80));
        assert_eq!(sum(DType::F32, tie, more) as f32, 1.0 + f32::EPSILON);
    }
}
