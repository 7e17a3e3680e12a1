//! Wrong functions of single elements: rounding, special values, casts, integers, approximations.

use congruent_backend_api::ops::binary::BinaryOp;
use congruent_backend_api::ops::compare::CompareOp;
use congruent_backend_api::ops::unary::UnaryOp;
use congruent_backend_api::{DType, Op, Scalar};

use super::{ARITHMETIC, float, map, short};
use crate::faults::Fault;
use crate::host::encode_int;
use crate::round::{Format, exp2};

const UNARY: &[&str] = &["unary"];
const BINARY: &[&str] = &["binary"];
const COMPARE: &[&str] = &["compare"];
const COPY: &[&str] = &["copy"];

pub(super) const FAULTS: &[Fault] = &[
    Fault::output("results pass through f16's significand", ARITHMETIC, |written| {
        map(written, |_, new| short(new, 11));
    })
    .on(wide)
    .number(28),
    Fault::output("results keep 20 bits of significand", ARITHMETIC, |written| map(written, |_, new| short(new, 20)))
        .on(wide)
        .number(29),
    Fault::output("subnormal results are flushed to zero", ARITHMETIC, |written| {
        let smallest = Format::of(written.after.dtype).map_or(0.0, |format| exp2(format.min_exponent));
        map(written, |_, new| if new.abs() < smallest { 0.0_f64.copysign(new) } else { new });
    })
    .on(float)
    .number(30),
    Fault::output("NaN becomes 0", ARITHMETIC, |written| map(written, |_, new| if new.is_nan() { 0.0 } else { new }))
        .on(float),
    Fault::output("infinity becomes the greatest number", ARITHMETIC, |written| {
        let max = Format::of(written.after.dtype).map_or(0.0, Format::max);
        map(written, |_, new| new.clamp(-max, max));
    })
    .on(float),
    Fault::output("the sign of zero is lost", &["unary", "binary"], |written| {
        map(written, |_, new| if new == 0.0 { 0.0 } else { new });
    })
    .on(float),
    Fault::function("maximum of two drops NaN", BINARY, extremes, |element| {
        let (a, b) = (element.value(0), element.value(1));
        (a.is_nan() != b.is_nan()).then(|| Scalar::Float(if a.is_nan() { b } else { a }))
    })
    .number(31),
    Fault::function("the extreme of −0 and +0 is the left one", BINARY, extremes, |element| {
        let (a, b) = (element.value(0), element.value(1));
        (a == 0.0 && b == 0.0).then_some(Scalar::Float(a))
    })
    .number(32),
    Fault::unary(UnaryOp::Neg, "neg is 0 − x", |x| 0.0 - x).number(32),
    Fault::integer(BinaryOp::Add, "u8 sums do not wrap", |dtype, a, b| {
        if dtype == DType::U8 { (a + b).min(255) } else { a.wrapping_add(b) }
    })
    .number(40),
    Fault::integer(BinaryOp::Add, "addition saturates", |dtype, a, b| {
        (i128::from(a) + i128::from(b)).clamp(least(dtype), greatest(dtype)) as i64
    }),
    Fault::integer(BinaryOp::Div, "division floors", |_, a, b| if b == 0 { 0 } else { a.wrapping_div_euclid(b) })
        .number(41),
    Fault::integer(
        BinaryOp::Modulo,
        "modulo has the sign of the dividend",
        |_, a, b| if b == 0 { 0 } else { a.wrapping_rem(b) },
    )
    .number(41),
    Fault::integer(BinaryOp::Rem, "rem has the sign of the divisor", |_, a, b| {
        if b == 0 { 0 } else { a.wrapping_rem(b).wrapping_add(b).wrapping_rem(b) }
    })
    .number(41),
    Fault::integer(BinaryOp::Div, "division by zero gives −1", |_, a, b| if b == 0 { -1 } else { a.wrapping_div(b) })
        .number(42),
    Fault::integer(BinaryOp::Div, "MIN / −1 saturates", |dtype, a, b| match (a, b) {
        (_, 0) => 0,
        (_, -1) => (-i128::from(a)).min(greatest(dtype)) as i64,
        _ => a / b,
    })
    .number(42),
    Fault::integer(BinaryOp::Shl, "counts of a left shift are masked", |dtype, a, b| a.wrapping_shl(masked(dtype, b)))
        .number(43),
    Fault::integer(BinaryOp::Shr, "counts of a right shift are masked", |dtype, a, b| a.wrapping_shr(masked(dtype, b)))
        .number(43),
    Fault::integer(BinaryOp::Pow, "powers go through f64", |_, a, b| (a as f64).powf(b as f64) as i64),
    Fault::function(
        "NaN is cast to the least integer",
        COPY,
        |op, dtype| to_int(op) && dtype.is_float(),
        |element| element.value(0).is_nan().then(|| Scalar::Int(least(element.out) as i64)),
    )
    .number(44),
    Fault::function(
        "casts from float to u8 wrap",
        COPY,
        |op, dtype| op == Op::Cast(DType::U8) && dtype.is_float(),
        |element| Some(Scalar::Int(element.value(0) as i64 & 0xff)),
    )
    .number(45),
    Fault::function(
        "casts to bf16 truncate",
        COPY,
        |op, dtype| op == Op::Cast(DType::BF16) && dtype == DType::F32,
        |element| {
            let bits = (element.value(0) as f32).to_bits() & 0xffff_0000;
            element.value(0).is_finite().then(|| Scalar::Float(f32::from_bits(bits).into()))
        },
    )
    .number(46),
    Fault::function(
        "casts from f64 to half precision pass through f32",
        COPY,
        |op, dtype| dtype == DType::F64 && to_half(op),
        |element| Some(Scalar::Float((element.value(0) as f32).into())),
    )
    .number(47),
    Fault::function(
        "casts from i64 to f32 pass through f64",
        COPY,
        |op, dtype| dtype == DType::I64 && matches!(op, Op::Cast(DType::F32 | DType::BF16)),
        |element| Some(Scalar::Float(element.value(0))),
    )
    .number(48),
    Fault::unary(UnaryOp::Round, "round takes halves away from zero", f64::round).number(50),
    Fault::function(
        "NaN is not unequal",
        COMPARE,
        |op, dtype| op == Op::Compare(CompareOp::Ne) && dtype.is_float(),
        |element| {
            let (a, b) = (element.value(0), element.value(1));
            (a.is_nan() || b.is_nan()).then_some(Scalar::Bool(false))
        },
    )
    .number(51),
    Fault::function(
        "less-or-equal is not-greater",
        COMPARE,
        |op, dtype| op == Op::Compare(CompareOp::Le) && dtype.is_float(),
        |element| {
            let greater = element.value(0) > element.value(1);
            Some(Scalar::Bool(!greater))
        },
    )
    .number(51),
    Fault::function(
        "greater compares as f64",
        COMPARE,
        |op, dtype| op == Op::Compare(CompareOp::Gt) && dtype == DType::I64,
        |element| Some(Scalar::Bool(element.value(0) > element.value(1))),
    )
    .number(38),
    Fault::output("true is false", COMPARE, |written| {
        for &at in written.positions {
            written.after.set_bits(at, 1 - written.after.bits(at));
        }
    })
    .on(|op, _| matches!(op, Op::Compare(_))),
    Fault::function(
        "the logical or is exclusive",
        COMPARE,
        |op, _| op == Op::Compare(CompareOp::LogicalOr),
        |element| Some(Scalar::Bool(element.operands[0] != element.operands[1])),
    ),
    Fault::function(
        "where blends by c·a + (1 − c)·b",
        COMPARE,
        |op, dtype| op == Op::Where && dtype.is_float(),
        |element| {
            let (c, a, b) = (element.value(0), element.value(1), element.value(2));
            Some(Scalar::Float(c * a + (1.0 - c) * b))
        },
    )
    .number(52),
    Fault::function(
        "clamp takes NaN for the bound",
        COMPARE,
        |op, dtype| op == Op::Clamp && dtype.is_float(),
        |element| element.value(0).is_nan().then_some(Scalar::Float(0.0)),
    )
    .number(31),
    Fault::unary(UnaryOp::Sqrt, "sqrt is off by one unit", |x| f64::from((x.sqrt() as f32).next_up())).number(53),
    Fault::function(
        "division multiplies by the reciprocal",
        BINARY,
        |op, dtype| op == Op::Binary(BinaryOp::Div) && dtype == DType::F32,
        |element| {
            let (a, b) = (element.value(0) as f32, element.value(1) as f32);
            Some(Scalar::Float((a * (1.0 / b)).into()))
        },
    )
    .number(53),
    Fault::unary(UnaryOp::Sin, "sin does not reduce large arguments", |x| {
        if x.abs() > 100.0 {
            (x - (x / std::f64::consts::TAU).round() * f64::from(std::f32::consts::TAU)).sin()
        } else {
            x.sin()
        }
    })
    .number(54),
    Fault::function(
        "exp is 2 to the power x·log₂e in f32",
        UNARY,
        |op, dtype| op == Op::Unary(UnaryOp::Exp) && dtype == DType::F32,
        |element| {
            let power = element.value(0) as f32 * std::f32::consts::LOG2_E;
            Some(Scalar::Float(core_math::exp2(power.into())))
        },
    )
    .number(55),
    Fault::unary(UnaryOp::Relu, "relu drops NaN", |x| x.max(0.0)).number(31),
    Fault::unary(UnaryOp::Sign, "sign of NaN is 1", |x| if x == 0.0 { x } else { 1.0_f64.copysign(x) }),
    Fault::unary(UnaryOp::Sigmoid, "sigmoid is 1/(1 + exp(−x)) in f32", |x| (1.0 / (1.0 + (-x as f32).exp())).into()),
    Fault::unary(UnaryOp::Softplus, "softplus is ln(1 + exp(x))", |x| (1.0 + x.exp()).ln()),
    Fault::unary(UnaryOp::Silu, "silu is x/(1 + exp(−x)) in f32", |x| (x as f32 / (1.0 + (-x as f32).exp())).into()),
    Fault::unary(UnaryOp::Gelu, "gelu is x/2·(1 + erf(x/√2))", |x| {
        x / 2.0 * (1.0 + core_math::erf(x * std::f64::consts::FRAC_1_SQRT_2))
    }),
    Fault::unary(UnaryOp::Asinh, "asinh is ln(x + √(x² + 1)) in f32", |x| {
        let x = x as f32;
        (x + (x * x + 1.0).sqrt()).ln().into()
    }),
    Fault::unary(UnaryOp::Atanh, "atanh is ln((1 + x)/(1 − x))/2 in f32", |x| {
        let x = x as f32;
        (0.5 * ((1.0 + x) / (1.0 - x)).ln()).into()
    }),
    Fault::unary(UnaryOp::Expm1, "expm1 is exp(x) − 1", |x| x.exp() - 1.0),
    Fault::unary(UnaryOp::Tanh, "tanh is a short series below 1/2", |x| {
        if x.abs() < 0.5 { x - x.powi(3) / 3.0 + 2.0 / 15.0 * x.powi(5) } else { x.tanh() }
    }),
    Fault::unary(UnaryOp::Tanh, "tanh exceeds 1 by a unit", |x| {
        if x.abs() > 30.0 { 1.0_f64.copysign(x) * (1.0 + exp2(-7)) } else { x.tanh() }
    }),
    Fault::unary(UnaryOp::Cos, "cos of a negative argument is off", |x| {
        if x < 0.0 { core_math::cos(x) * (1.0 + exp2(-6)) } else { core_math::cos(x) }
    }),
];

/// Floats whose significand the cut can show.
fn wide(op: Op, dtype: DType) -> bool {
    // Results that are bool stay.
    matches!(dtype, DType::F64 | DType::F32) && !matches!(op, Op::Compare(_))
}

fn extremes(op: Op, dtype: DType) -> bool {
    matches!(op, Op::Binary(BinaryOp::Maximum | BinaryOp::Minimum)) && dtype.is_float()
}

fn to_int(op: Op) -> bool {
    matches!(op, Op::Cast(to) if to.is_int())
}

fn to_half(op: Op) -> bool {
    matches!(op, Op::Cast(DType::F16 | DType::BF16))
}

fn signed(dtype: DType) -> bool {
    matches!(dtype, DType::I64 | DType::I32)
}

/// The least number of an integer dtype.
pub(super) fn least(dtype: DType) -> i128 {
    if signed(dtype) { -(1 << (8 * dtype.size() - 1)) } else { 0 }
}

/// The greatest number of an integer dtype.
pub(super) fn greatest(dtype: DType) -> i128 {
    (1 << (8 * dtype.size() - usize::from(signed(dtype)))) - 1
}

fn masked(dtype: DType, count: i64) -> u32 {
    encode_int(dtype, i128::from(count & (8 * dtype.size() as i64 - 1))) as u32
}
