//! The contract's arithmetic on single values. Floats are computed in f64, which leaves f32, f16 and bf16 correctly
//! rounded where the contract asks for it, and rounded at the end by [`encode`].

use std::cmp::Ordering;

use congruent_backend_api::ops::binary::BinaryOp;
use congruent_backend_api::ops::compare::CompareOp;
use congruent_backend_api::ops::random::{Draw, Random, philox};
use congruent_backend_api::ops::reduce::ReduceOp;
use congruent_backend_api::ops::scan::ScanOp;
use congruent_backend_api::ops::unary::UnaryOp;
use congruent_backend_api::{DType, Scalar, bf16, f16};
use core_math as cr;

/// The value of an element's bits.
pub(crate) fn decode(dtype: DType, bits: u64) -> Scalar {
    match dtype {
        DType::F64 => f64::from_bits(bits).into(),
        DType::F32 => f32::from_bits(bits as u32).into(),
        DType::F16 => f16::from_bits(bits as u16).into(),
        DType::BF16 => bf16::from_bits(bits as u16).into(),
        DType::I64 => bits.cast_signed().into(),
        DType::I32 => (bits as u32).cast_signed().into(),
        DType::U32 => (bits as u32).into(),
        DType::U8 => (bits as u8).into(),
        DType::Bool => (bits != 0).into(),
    }
}

/// The bits of a computed value: halves are rounded to f32 first, as the contract has them computed; integers wrap.
pub(crate) fn encode(dtype: DType, value: Scalar) -> u64 {
    let single = value.to_f64() as f32;
    match dtype {
        DType::F64 => value.to_f64().to_bits(),
        DType::F32 => single.to_bits().into(),
        DType::F16 => f16::from_f32(single).to_bits().into(),
        DType::BF16 => bf16::from_f32(single).to_bits().into(),
        DType::I64 => value.to_i64().cast_unsigned(),
        DType::I32 | DType::U32 => u64::from(value.to_i64() as u32),
        DType::U8 => u64::from(value.to_i64() as u8),
        DType::Bool => value.to_bool().into(),
    }
}

/// A value in another dtype, rounded once.
pub(crate) fn cast(to: DType, value: Scalar) -> Scalar {
    let number = match value {
        Scalar::Bool(truth) => Scalar::Int(truth.into()),
        number => number,
    };
    let range = match to {
        DType::I32 => i32::MIN.into()..=i32::MAX.into(),
        DType::U32 => 0..=u32::MAX.into(),
        DType::U8 => 0..=u8::MAX.into(),
        _ => i64::MIN..=i64::MAX,
    };
    match number {
        _ if to == DType::Bool => Scalar::Bool(value.to_bool()),
        // From numbers to floats a scalar converts as an element does.
        _ if to.is_float() => number.to_dtype("cast", to).unwrap_or(number),
        Scalar::Float(_) => Scalar::Int(number.to_i64().clamp(*range.start(), *range.end())),
        integer => integer,
    }
}

pub(crate) fn unary(op: UnaryOp, dtype: DType, value: Scalar) -> Scalar {
    let Scalar::Float(x) = value else {
        let x = value.to_i64();
        return Scalar::Int(match op {
            UnaryOp::Abs => x.wrapping_abs(),
            UnaryOp::Neg => x.wrapping_neg(),
            UnaryOp::Relu => x.max(0),
            UnaryOp::Sign => x.signum(),
            UnaryOp::Square => x.wrapping_mul(x),
            _ if dtype == DType::Bool => (x == 0).into(),
            _ => !x,
        });
    };
    Scalar::Float(match op {
        UnaryOp::Abs => x.abs(),
        UnaryOp::Acos => cr::acos(x),
        UnaryOp::Acosh => cr::acosh(x),
        UnaryOp::Asin => cr::asin(x),
        UnaryOp::Asinh => cr::asinh(x),
        UnaryOp::Atan => cr::atan(x),
        UnaryOp::Atanh => cr::atanh(x),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Cos => cr::cos(x),
        UnaryOp::Cosh => cr::cosh(x),
        UnaryOp::Erf => cr::erf(x),
        UnaryOp::Erfc => cr::erfc(x),
        UnaryOp::Exp => cr::exp(x),
        UnaryOp::Exp2 => cr::exp2(x),
        UnaryOp::Expm1 => cr::expm1(x),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Gelu if x == f64::NEG_INFINITY => -0.0,
        UnaryOp::Gelu => x / 2.0 * cr::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        // 2√(2/π)
        UnaryOp::GeluTanh => gated(x, 1.595_769_121_605_730_8 * (x + 0.044_715 * x * x * x)),
        UnaryOp::Ln => cr::log(x),
        UnaryOp::Log10 => cr::log10(x),
        UnaryOp::Log1p => cr::log1p(x),
        UnaryOp::Log2 => cr::log2(x),
        UnaryOp::Neg => -x,
        UnaryOp::Recip => 1.0 / x,
        UnaryOp::Relu => {
            if x > 0.0 || x.is_nan() {
                x
            } else {
                0.0
            }
        }
        UnaryOp::Round => x.round_ties_even(),
        UnaryOp::Rsqrt => cr::rsqrt(x),
        UnaryOp::Sigmoid => sigmoid(x),
        UnaryOp::Sign => {
            if x == 0.0 || x.is_nan() {
                x
            } else {
                x.signum()
            }
        }
        UnaryOp::Silu => gated(x, x),
        UnaryOp::Sin => cr::sin(x),
        UnaryOp::Sinh => cr::sinh(x),
        UnaryOp::Softplus if x > 0.0 => x + cr::log1p(cr::exp(-x)),
        UnaryOp::Softplus => cr::log1p(cr::exp(x)),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Square => x * x,
        UnaryOp::Tan => cr::tan(x),
        UnaryOp::Tanh => cr::tanh(x),
        UnaryOp::Trunc => x.trunc(),
        UnaryOp::IsFinite => return x.is_finite().into(),
        UnaryOp::IsInf => return x.is_infinite().into(),
        UnaryOp::IsNan => return x.is_nan().into(),
        // Bit operations take no floats.
        UnaryOp::BitwiseNot | UnaryOp::LogicalNot => x,
    })
}

/// 1/(1 + e^(−t)) in the form whose exponential does not overflow.
fn sigmoid(t: f64) -> f64 {
    if t < 0.0 { cr::exp(t) / (1.0 + cr::exp(t)) } else { 1.0 / (1.0 + cr::exp(-t)) }
}

/// x·sigmoid(t), with e^t as a square, whose root does not underflow before the result does.
fn gated(x: f64, t: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        return -0.0;
    }
    let root = cr::exp(t / 2.0);
    if t < 0.0 { x * root * (root / (1.0 + root * root)) } else { x * sigmoid(t) }
}

/// `None` for an integer divided by zero.
pub(crate) fn binary(op: BinaryOp, dtype: DType, a: Scalar, b: Scalar) -> Option<Scalar> {
    match (op, a, b) {
        (BinaryOp::Maximum, ..) => Some(extreme(a, b, true)),
        (BinaryOp::Minimum, ..) => Some(extreme(a, b, false)),
        (_, Scalar::Float(a), Scalar::Float(b)) => Some(Scalar::Float(float(op, a, b))),
        _ => integer(op, dtype, a.to_i64(), b.to_i64()).map(Scalar::Int),
    }
}

fn float(op: BinaryOp, a: f64, b: f64) -> f64 {
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Atan2 => cr::atan2(a, b),
        BinaryOp::Pow => cr::pow(a, b),
        BinaryOp::Modulo => match a % b {
            0.0 => 0_f64.copysign(b),
            rest if (rest < 0.0) != (b < 0.0) => rest + b,
            rest => rest,
        },
        // Bit operations take no floats.
        _ => a % b,
    }
}

fn integer(op: BinaryOp, dtype: DType, a: i64, b: i64) -> Option<i64> {
    let within = (0..8 * dtype.size() as i64).contains(&b);
    Some(match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div | BinaryOp::Rem | BinaryOp::Modulo if b == 0 => return None,
        BinaryOp::Div => a.wrapping_div(b),
        BinaryOp::Rem => a.wrapping_rem(b),
        BinaryOp::Modulo => match a.wrapping_rem(b) {
            rest if rest != 0 && (rest < 0) != (b < 0) => rest + b,
            rest => rest,
        },
        BinaryOp::Pow => match (a, b) {
            (0, ..0) => return None,
            (1, ..0) => 1,
            (-1, ..0) => {
                if b % 2 == 0 {
                    1
                } else {
                    -1
                }
            }
            (_, ..0) => 0,
            _ => (0..64 - b.leading_zeros()).rev().fold(1_i64, |power, bit| {
                let square = power.wrapping_mul(power);
                if b >> bit & 1 == 1 { square.wrapping_mul(a) } else { square }
            }),
        },
        BinaryOp::BitwiseAnd => a & b,
        BinaryOp::BitwiseOr => a | b,
        BinaryOp::Shl => {
            if within {
                a << b
            } else {
                0
            }
        }
        BinaryOp::Shr => a >> if within { b } else { 63 },
        _ => a ^ b,
    })
}

pub(crate) fn compare(op: CompareOp, a: Scalar, b: Scalar) -> bool {
    let order = order(a, b);
    match op {
        CompareOp::Eq => order == Some(Ordering::Equal),
        CompareOp::Ne => order != Some(Ordering::Equal),
        CompareOp::Lt => order == Some(Ordering::Less),
        CompareOp::Gt => order == Some(Ordering::Greater),
        CompareOp::Le => order.is_some_and(Ordering::is_le),
        CompareOp::Ge => order.is_some_and(Ordering::is_ge),
        CompareOp::LogicalAnd => a.to_bool() && b.to_bool(),
        CompareOp::LogicalOr => a.to_bool() || b.to_bool(),
        CompareOp::LogicalXor => a.to_bool() != b.to_bool(),
    }
}

fn order(a: Scalar, b: Scalar) -> Option<Ordering> {
    match (a, b) {
        (Scalar::Float(a), Scalar::Float(b)) => a.partial_cmp(&b),
        _ => Some(a.to_i64().cmp(&b.to_i64())),
    }
}

/// The greater or smaller of two values; NaN wins, −0 is less than +0.
pub(crate) fn extreme(a: Scalar, b: Scalar, greatest: bool) -> Scalar {
    let a_wins = match order(a, b) {
        None => a.to_f64().is_nan(),
        Some(Ordering::Equal) => a.to_f64().is_sign_positive() == greatest,
        Some(order) => order.is_gt() == greatest,
    };
    if a_wins { a } else { b }
}

/// Whether a search prefers `new`: it is more extreme, or the first NaN.
pub(crate) fn better(new: Scalar, best: Scalar, greatest: bool) -> bool {
    let wanted = if greatest { Ordering::Greater } else { Ordering::Less };
    match order(new, best) {
        None => !best.to_f64().is_nan(),
        order => order == Some(wanted),
    }
}

/// The order of a sort: NaN is the greatest.
pub(crate) fn sort_order(a: Scalar, b: Scalar) -> Ordering {
    order(a, b).unwrap_or_else(|| a.to_f64().is_nan().cmp(&b.to_f64().is_nan()))
}

pub(crate) fn accumulate(op: ReduceOp, dtype: DType, values: &[Scalar]) -> Scalar {
    let floats = || values.iter().map(|x| x.to_f64()).collect::<Vec<_>>();
    let integers = || values.iter().map(|x| x.to_i64());
    let count = values.len();
    match op {
        ReduceOp::All => values.iter().all(|x| x.to_bool()).into(),
        ReduceOp::Any => values.iter().any(|x| x.to_bool()).into(),
        ReduceOp::Max | ReduceOp::Min => {
            let extreme = values.iter().copied().reduce(|a, b| extreme(a, b, op == ReduceOp::Max));
            extreme.unwrap_or(Scalar::Int(0))
        }
        ReduceOp::Mean if dtype.is_float() => Scalar::Float(pairwise(&floats()) / count as f64),
        ReduceOp::Prod if dtype.is_float() => Scalar::Float(floats().iter().product()),
        ReduceOp::Sum if dtype.is_float() => Scalar::Float(pairwise(&floats())),
        ReduceOp::Mean => Scalar::Int((integers().map(i128::from).sum::<i128>() / count.max(1) as i128) as i64),
        ReduceOp::Prod => Scalar::Int(integers().fold(1, i64::wrapping_mul)),
        ReduceOp::Sum => Scalar::Int(integers().fold(0, i64::wrapping_add)),
    }
}

/// Element `index` of a random tensor.
pub(crate) fn random(plan: &Random, index: u64) -> Scalar {
    let word = |further: u64| {
        let at = plan.offset().wrapping_add(index.wrapping_mul(plan.words())).wrapping_add(further);
        u64::from(philox([(at / 4) as u32, (at >> 34) as u32, 0, 0], plan.seed())[(at % 4) as usize])
    };
    let long = || word(0) | word(1) << 32;
    // The top bits as an integer, and how many there are.
    let top = |bits: u32| if plan.words() == 2 { long() >> (64 - bits) } else { word(0) >> (32 - bits) };
    match plan.draw() {
        Draw::Bernoulli { threshold } => Scalar::Bool(word(0) < threshold),
        Draw::Bits => Scalar::Int(word(0) as i64),
        Draw::Integer { low, span } => {
            Scalar::Int(low.wrapping_add_unsigned(((u128::from(long()) * u128::from(span)) >> 64) as u64))
        }
        Draw::Normal => {
            let bits = if plan.words() == 2 { 52 } else { 32 };
            Scalar::Float(quantile((top(bits) as f64 + 0.5) / (bits as f64).exp2()))
        }
        Draw::Permutation => Scalar::Int(plan.permutation().at(index) as i64),
        Draw::Uniform => {
            let bits = match plan.dtype() {
                DType::F64 => 53,
                DType::F16 => 11,
                DType::BF16 => 8,
                _ => 24,
            };
            Scalar::Float(top(bits) as f64 / f64::from(bits).exp2())
        }
    }
}

/// The normal quantile, by bisection on the smaller tail.
fn quantile(p: f64) -> f64 {
    let (tail, sign) = if p < 0.5 { (p, -1.0) } else { (1.0 - p, 1.0) };
    let root = std::f64::consts::SQRT_2;
    let (mut low, mut high) = (0.0, 40.0);
    for _ in 0..100 {
        let z = f64::midpoint(low, high);
        let excess = if z < 0.5 { 0.5 - tail - cr::erf(z / root) / 2.0 } else { cr::erfc(z / root) / 2.0 - tail };
        if excess > 0.0 {
            low = z;
        } else {
            high = z;
        }
    }
    sign * low
}

/// The result of a scan where these values enter.
pub(crate) fn scan(op: ScanOp, dtype: DType, values: &[Scalar]) -> Scalar {
    let float = dtype.is_float();
    let limits = match dtype {
        DType::I64 => [i64::MIN, i64::MAX],
        DType::I32 => [i32::MIN.into(), i32::MAX.into()],
        DType::U32 => [0, u32::MAX.into()],
        _ => [0, u8::MAX.into()],
    };
    match op {
        ScanOp::Max if values.is_empty() && float => Scalar::Float(f64::NEG_INFINITY),
        ScanOp::Min if values.is_empty() && float => Scalar::Float(f64::INFINITY),
        ScanOp::Max if values.is_empty() => Scalar::Int(limits[0]),
        ScanOp::Min if values.is_empty() => Scalar::Int(limits[1]),
        ScanOp::Max => accumulate(ReduceOp::Max, dtype, values),
        ScanOp::Min => accumulate(ReduceOp::Min, dtype, values),
        ScanOp::Prod => accumulate(ReduceOp::Prod, dtype, values),
        ScanOp::Sum => accumulate(ReduceOp::Sum, dtype, values),
        ScanOp::LogSumExp => {
            let values = values.iter().copied();
            let max = values.clone().reduce(|a, b| extreme(a, b, true)).map_or(f64::NEG_INFINITY, |max| max.to_f64());
            let terms: Vec<f64> = values.map(|x| (x.to_f64() - max).exp()).collect();
            Scalar::Float(if max.is_finite() { max + pairwise(&terms).ln() } else { max })
        }
    }
}

/// A sum as deep as the contract allows: runs of 64, then pairwise.
fn pairwise(values: &[f64]) -> f64 {
    if values.len() <= 64 {
        return values.iter().fold(0.0, |sum, x| sum + x);
    }
    let (left, right) = values.split_at(values.len().div_ceil(64).div_ceil(2) * 64);
    pairwise(left) + pairwise(right)
}

/// α·Σ ab + β·old; `old` has no influence where β is 0.
pub(crate) fn product(
    dtype: DType,
    terms: impl Iterator<Item = (Scalar, Scalar)>,
    alpha: Scalar,
    beta: Scalar,
    old: Scalar,
) -> Scalar {
    if !dtype.is_float() {
        let sum = terms.fold(0_i64, |sum, (a, b)| sum.wrapping_add(a.to_i64().wrapping_mul(b.to_i64())));
        let kept = beta.to_i64().wrapping_mul(old.to_i64());
        return Scalar::Int(alpha.to_i64().wrapping_mul(sum).wrapping_add(kept));
    }
    // Without terms the product is zero whatever α is.
    let sum = terms.map(|(a, b)| a.to_f64() * b.to_f64()).reduce(|sum, term| sum + term);
    let scaled = sum.map_or(0.0, |sum| alpha.to_f64() * sum);
    Scalar::Float(if beta.to_f64() == 0.0 { scaled } else { scaled + beta.to_f64() * old.to_f64() })
}
