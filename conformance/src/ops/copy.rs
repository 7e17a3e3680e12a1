//! Filling, copying and casting: all exact.

use congruent_backend_api::{DType, Scalar};
use proptest::prelude::*;

use crate::case::{Call, Case, Input, poisoned};
use crate::expect::Expect;
use crate::host::{decode, encode, encode_float, encode_int};
use crate::model::ErrorModel;
use crate::ops::{host, layout, operand_bits};
use crate::round::Format;
use crate::spec::{Draw, placement, shape, tensor};
use crate::values::{Class, element};

const CLASSES: &[Class] = &[
    Class::Specials,
    Class::FullRange,
    Class::Uniform,
    Class::SmallInts,
    Class::Tiny,
    Class::WideExponent,
    Class::WideInts,
];

/// Generated fills.
pub fn fills(dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    (shape(draw, 6), placement(), prop::sample::select(CLASSES), any::<u64>().no_shrink())
        .prop_map(move |(shape, placement, class, seed)| {
            let value = decode(dtype, element(dtype, class, seed, &[], 0));
            Case { call: Call::Fill(value), inputs: Vec::new(), out: poisoned(dtype, layout(&placement, &shape), seed) }
        })
        .boxed()
}

/// Generated copies from one dtype to another, or the same.
pub fn copies(from: DType, to: DType, draw: Draw) -> BoxedStrategy<Case> {
    (shape(draw, 6), tensor(draw, CLASSES), placement(), any::<u64>().no_shrink())
        .prop_map(move |(shape, spec, placement, seed)| Case {
            call: Call::Copy,
            inputs: vec![Input::Tensor(host(&spec, from, &spec.shape(&shape), seed, 0))],
            out: poisoned(to, layout(&placement, &shape), seed),
        })
        .boxed()
}

/// How exactly a cast must agree: it rounds where the dtype has fewer digits.
#[must_use]
pub fn model(from: DType, to: DType) -> ErrorModel {
    // Digits of a significand, and of an integer.
    let digits = |dtype: DType| Format::of(dtype).map_or(8 * dtype.size() as i32, |format| format.precision);
    // Of the formats of 16 bits each has numbers that the other has not.
    let rounds = to.is_float() && (digits(to) < digits(from) || (from, to) == (DType::BF16, DType::F16));
    if rounds { ErrorModel::Rounded } else { ErrorModel::Exact }
}

/// What each element of a fill may be.
#[must_use]
pub fn expect_fill(value: Scalar, case: &Case) -> Vec<Expect> {
    let dtype = case.out.dtype;
    let expect = match value {
        Scalar::Float(value) if value.is_nan() => Expect::Nan,
        _ => Expect::Bits(encode(dtype, value)),
    };
    vec![expect; case.out.layout.count()]
}

/// What each element of a copy may be: the same bits, or the value cast.
#[must_use]
pub fn expect_copy(case: &Case) -> Vec<Expect> {
    let (from, to) = (case.dtype(), case.out.dtype);
    operand_bits(case, 0, from).into_iter().map(|bits| copied(from, bits, to)).collect()
}

/// What the copy of an element to a dtype may be.
pub(crate) fn copied(from: DType, bits: u64, to: DType) -> Expect {
    if from == to { Expect::Bits(bits) } else { cast(decode(from, bits), to) }
}

fn cast(value: Scalar, to: DType) -> Expect {
    if to == DType::Bool {
        return Expect::Bits(value.to_bool().into());
    }
    match value {
        Scalar::Float(value) if to.is_float() => Expect::exact(to, value),
        Scalar::Float(value) => Expect::Bits(encode_int(to, saturate(value, to))),
        Scalar::Int(value) => integer(value.into(), to),
        Scalar::Bool(value) => integer(value.into(), to),
    }
}

fn integer(value: i128, to: DType) -> Expect {
    Expect::Bits(match Format::of(to) {
        Some(format) => encode_float(to, format.round_int(value)),
        None => encode_int(to, value),
    })
}

/// Truncation towards zero, limited to the range of an integer dtype; NaN gives 0.
fn saturate(value: f64, to: DType) -> i128 {
    let bits = 8 * to.size() as u32;
    let (low, high) = match to {
        DType::I64 | DType::I32 => (-(1_i128 << (bits - 1)), (1 << (bits - 1)) - 1),
        _ => (0, (1 << bits) - 1),
    };
    if value.is_nan() { 0 } else { (value.trunc() as i128).clamp(low, high) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_follow_the_contract() {
        let bits = |value: f64, to| cast(Scalar::Float(value), to);
        assert_eq!(bits(f64::NAN, DType::I64), Expect::Bits(0));
        assert_eq!(bits(3e9, DType::I32), Expect::Bits(0x7fff_ffff));
        assert_eq!(bits(-1.0, DType::U8), Expect::Bits(0));
        assert_eq!(bits(300.0, DType::U8), Expect::Bits(255));
        assert_eq!(bits(f64::NAN, DType::Bool), Expect::Bits(1));
        assert_eq!(bits(-0.0, DType::Bool), Expect::Bits(0));
        assert_eq!(cast(Scalar::Int(-1), DType::U8), Expect::Bits(255));
        assert_eq!(cast(Scalar::Int((1 << 32) + 5), DType::I32), Expect::Bits(5));
        assert_eq!(cast(Scalar::Bool(true), DType::F32), Expect::Bits(1_f32.to_bits().into()));
    }
}
