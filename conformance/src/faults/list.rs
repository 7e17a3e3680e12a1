//! The faults.

use congruent_backend_api::ops::binary::BinaryOp;
use congruent_backend_api::ops::unary::UnaryOp;
use congruent_backend_api::{DType, Scalar};

use super::{Fault, Kind, Special, Written};
use crate::host::{decode, encode_float, encode_int};
use crate::round::{Format, exp2, exponent};

const ALL: &[&str] = &["unary", "binary", "compare", "copy", "reduce", "matmul"];
const ELEMENTWISE: &[&str] = &["unary", "binary", "compare", "copy"];
const ARITHMETIC: &[&str] = &["unary", "binary", "reduce", "matmul"];

const fn output(name: &'static str, families: &'static [&'static str], spoil: fn(&mut Written<'_>)) -> Fault {
    Fault { name, families, kind: Kind::Output(spoil) }
}

const fn input(name: &'static str, change: fn(&mut [isize], &mut usize)) -> Fault {
    Fault { name, families: ELEMENTWISE, kind: Kind::Input(change) }
}

const fn unary(name: &'static str, op: UnaryOp, function: fn(f64) -> f64) -> Fault {
    Fault { name, families: &["unary"], kind: Kind::Unary(op, function) }
}

const fn integer(name: &'static str, op: BinaryOp, function: fn(DType, i64, i64) -> i64) -> Fault {
    Fault { name, families: &["binary"], kind: Kind::Integer(op, function) }
}

const fn special(name: &'static str, families: &'static [&'static str], fault: Special) -> Fault {
    Fault { name, families, kind: Kind::Special(fault) }
}

/// Every fault.
pub const FAULTS: &[Fault] = &[
    output("the last element of a count not divisible by 32 is not written", ALL, |written| {
        if written.positions.len() % 32 != 0 {
            restore(written, written.positions.len() - 1);
        }
    }),
    output("the tail of a count of 128·n + 1 is skipped", ALL, |written| {
        if written.positions.len() % 128 == 1 {
            restore(written, written.positions.len() - 1);
        }
    }),
    output("the last element repeats the one before", ALL, |written| {
        if let [.., before, last] = *written.positions {
            written.after.set_bits(last, written.after.bits(before));
        }
    }),
    output("the result is written into a clone", ALL, |written| written.after.bytes.clone_from(&written.before.bytes)),
    output("the result is added to the old output", ARITHMETIC, |written| {
        map(written, |old, new| if old == 0.0 { new } else { old + new });
    }),
    output("every eighth call leaves one element unwritten", ALL, |written| {
        if written.calls % 8 == 7 && !written.positions.is_empty() {
            restore(written, 0);
        }
    }),
    output("one element after the view is overwritten", ALL, |written| {
        if let Some(&last) = written.positions.last().filter(|&&last| last + 1 < written.after.storage_len()) {
            written.after.set_bits(last + 1, written.after.bits(last + 1) ^ 1);
        }
    }),
    output("gaps between strided elements are overwritten", ALL, |written| {
        if let Some(pair) = written.positions.windows(2).find(|pair| pair[1] > pair[0] + 1) {
            written.after.set_bits(pair[0] + 1, written.after.bits(pair[0] + 1) ^ 1);
        }
    }),
    output("results keep 20 bits of significand", ARITHMETIC, |written| shorten(written, 20)),
    output("results pass through f16's significand", ARITHMETIC, |written| shorten(written, 11)),
    output("subnormal results are flushed to zero", ARITHMETIC, |written| {
        let smallest = Format::of(written.after.dtype).map_or(0.0, |format| exp2(format.min_exponent));
        map(written, |_, new| if new.abs() < smallest { 0.0_f64.copysign(new) } else { new });
    }),
    output("NaN becomes 0", ARITHMETIC, |written| map(written, |_, new| if new.is_nan() { 0.0 } else { new })),
    output("infinity becomes the greatest number", ARITHMETIC, |written| {
        let max = Format::of(written.after.dtype).map_or(0.0, Format::max);
        map(written, |_, new| new.clamp(-max, max));
    }),
    output("the sign of zero is lost", &["unary", "binary"], |written| {
        map(written, |_, new| if new == 0.0 { 0.0 } else { new });
    }),
    output("true is 2", &["compare"], |written| {
        for &at in written.positions {
            if written.after.dtype == DType::Bool {
                written.after.set_bits(at, 1 - written.after.bits(at));
            }
        }
    }),
    input("the offset is ignored", |_, offset| *offset = 0),
    input("strides are ignored", |strides, _| {
        if let [.., last] = strides {
            *last = last.signum();
        }
    }),
    input("stride 0 is read as stride 1", |strides, _| {
        strides.iter_mut().filter(|stride| **stride == 0).for_each(|stride| *stride = 1);
    }),
    input("negative strides are taken absolutely", |strides, _| {
        strides.iter_mut().for_each(|stride| *stride = stride.abs());
    }),
    unary("round takes halves away from zero", UnaryOp::Round, f64::round),
    unary("relu drops NaN", UnaryOp::Relu, |x| x.max(0.0)),
    unary("sign of NaN is 1", UnaryOp::Sign, |x| if x == 0.0 { x } else { 1.0_f64.copysign(x) }),
    unary("sigmoid is 1/(1 + exp(−x))", UnaryOp::Sigmoid, |x| (1.0 / (1.0 + (-x as f32).exp())).into()),
    unary("softplus is ln(1 + exp(x))", UnaryOp::Softplus, |x| (1.0 + x.exp()).ln()),
    unary("silu is x/(1 + exp(−x))", UnaryOp::Silu, |x| (x as f32 / (1.0 + (-x as f32).exp())).into()),
    unary("gelu is x/2·(1 + erf(x/√2))", UnaryOp::Gelu, |x| {
        x / 2.0 * (1.0 + core_math::erf(x * std::f64::consts::FRAC_1_SQRT_2))
    }),
    unary("asinh is Rust's formula in f32", UnaryOp::Asinh, |x| (x as f32).asinh().into()),
    unary("atanh is Rust's formula in f32", UnaryOp::Atanh, |x| (x as f32).atanh().into()),
    unary("expm1 is exp(x) − 1", UnaryOp::Expm1, |x| x.exp() - 1.0),
    unary("sin does not reduce large arguments", UnaryOp::Sin, |x| {
        if x.abs() > 100.0 {
            (x - (x / std::f64::consts::TAU).round() * f64::from(std::f32::consts::TAU)).sin()
        } else {
            x.sin()
        }
    }),
    unary("sqrt is off by one unit", UnaryOp::Sqrt, |x| f64::from((x.sqrt() as f32).next_up())),
    integer("addition saturates", BinaryOp::Add, |dtype, a, b| {
        let sum = i128::from(a) + i128::from(b);
        let high = (1_i128 << (8 * dtype.size() - usize::from(matches!(dtype, DType::I64 | DType::I32)))) - 1;
        sum.min(high) as i64
    }),
    integer("division floors", BinaryOp::Div, |_, a, b| if b == 0 { 0 } else { a.wrapping_div_euclid(b) }),
    integer(
        "modulo has the sign of the dividend",
        BinaryOp::Modulo,
        |_, a, b| if b == 0 { 0 } else { a.wrapping_rem(b) },
    ),
    integer("rem has the sign of the divisor", BinaryOp::Rem, |_, a, b| {
        if b == 0 { 0 } else { a.wrapping_rem(b).wrapping_add(b).wrapping_rem(b) }
    }),
    integer("shift counts are masked", BinaryOp::Shl, |dtype, a, b| {
        a.wrapping_shl((b & (8 * dtype.size() as i64 - 1)) as u32)
    }),
    integer("powers go through f64", BinaryOp::Pow, |_, a, b| (a as f64).powf(b as f64) as i64),
    special("a division by zero is not reported", &["binary"], Special::SilentDivision),
    special("supports() denies what runs", ALL, Special::Denies),
    special("the last reduced element is left out", &["reduce"], Special::ReduceDropsLast),
    special("f32 sums accumulate in f16", &["reduce"], Special::HalfSum),
    special("argmax takes the last tie", &["reduce"], Special::LastTie),
    special("β = 0 reads the old output", &["matmul"], Special::BetaReadsOutput),
    special("the last term of inner products is left out", &["matmul"], Special::InnerDropsLast),
    special("f32 products accumulate in f16", &["matmul"], Special::HalfProduct),
    special("operands of f32 products are TF32", &["matmul"], Special::ShortOperands),
];

fn restore(written: &mut Written<'_>, index: usize) {
    if let Some(&at) = written.positions.get(index) {
        written.after.set_bits(at, written.before.bits(at));
    }
}

/// Replaces each float of the view by a function of the old and the new value.
fn map(written: &mut Written<'_>, function: impl Fn(f64, f64) -> f64) {
    let dtype = written.after.dtype;
    for &at in written.positions.iter().filter(|_| dtype.is_float()) {
        let (old, new) = (decode(dtype, written.before.bits(at)), decode(dtype, written.after.bits(at)));
        let changed = function(old.to_f64(), new.to_f64());
        if changed.to_bits() != new.to_f64().to_bits() {
            written.after.set_bits(at, encode_float(dtype, changed));
        }
    }
}

fn shorten(written: &mut Written<'_>, bits: i32) {
    map(written, |_, new| short(new, bits));
}

/// A value with a significand of fewer bits.
pub(super) fn short(value: f64, bits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let unit = exp2((exponent(value) - bits + 1).max(-1074));
    (value / unit).round_ties_even() * unit
}

/// The bits of an element after a function on floats, or on integers.
pub(super) fn encode(dtype: DType, value: Scalar) -> u64 {
    match value {
        Scalar::Float(value) => encode_float(dtype, value),
        value => encode_int(dtype, value.to_i64().into()),
    }
}
