//! Values by class: a function of (class, seed, tensor, coordinates), so that shrinking a size keeps the values that
//! remain.

use congruent_backend_api::DType;

use crate::host::{encode_float, encode_int};
use crate::round::{Format, exp2};

/// What kind of values a tensor holds. Integer and bool dtypes read each class in their own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub enum Class {
    /// Integers in −8..=8: sums and products are exact.
    SmallInts,
    /// Uniform in (−1, 1).
    Uniform,
    /// Uniform in (0, 1].
    Positive,
    /// One value everywhere, which is not exact in binary.
    Constant,
    /// Either sign, magnitudes from 2⁻¹² to 2¹².
    WideExponent,
    /// Any finite bit pattern.
    FullRange,
    /// Zeros, infinities, NaN, extremes and near-ties among ordinary values.
    Specials,
    /// Subnormal and barely normal numbers.
    Tiny,
    /// Neighbours that cancel except for their last bits.
    Cancelling,
    /// A large mean with a small spread.
    Shifted,
    /// Magnitudes from 10 to 100, where exponentials overflow and saturate.
    Large,
    /// Few distinct values, so that ties are common.
    Ties,
    /// Integers that fill the significand of the accumulator.
    WideInts,
    /// One nonzero value in a run of eight.
    Sparse,
    /// Rising along the view, in row-major order.
    Rising,
    /// Every bit pattern of a 16-bit dtype in turn; in other dtypes like `FullRange`.
    Exhaustive,
}

/// A 64-bit hash of a seed and a counter (the finaliser of SplitMix64; Steele, Lea and Flood, 2014).
#[must_use]
pub fn hash(seed: u64, counter: u64) -> u64 {
    let mut z = seed ^ counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The bits of the element at `index` (in row-major order, for classes that follow it) and `coordinates`.
#[must_use]
pub fn element(dtype: DType, class: Class, seed: u64, coordinates: &[usize], index: usize) -> u64 {
    let key = coordinates.iter().fold(hash(seed, 0x5eed), |key, &i| hash(key, i as u64 + 1));
    match Format::of(dtype) {
        Some(_) if class == Class::Exhaustive && dtype.size() == 2 => index as u64 & 0xffff,
        Some(format) => encode_float(dtype, float(format, class, key, seed, index)),
        None if dtype == DType::Bool => boolean(class, key),
        None if class == Class::Rising => encode_int(dtype, index as i128),
        None => encode_int(dtype, integer(dtype, class, key)),
    }
}

fn float(format: Format, class: Class, key: u64, seed: u64, index: usize) -> f64 {
    // 53 uniform bits in [0, 1), independent of the low bits used for choices.
    let unit = (key >> 11) as f64 * exp2(-53);
    let sign = if key & 1 == 0 { 1.0 } else { -1.0 };
    let choice = (key >> 1) & 0x3ff;
    match class {
        Class::SmallInts => (choice % 17) as f64 - 8.0,
        Class::Uniform => 2.0 * unit - 1.0,
        Class::Positive => 1.0 - unit,
        Class::Constant => 0.1,
        Class::WideExponent => sign * (1.0 + unit) * exp2((choice % 25) as i32 - 12),
        Class::FullRange | Class::Exhaustive => {
            let span = format.max_exponent - format.min_exponent + format.precision;
            let exponent = format.min_exponent - format.precision + 1 + (key >> 40) as i32 % span;
            sign * (1.0 + hash(key, 1) as f64 * exp2(-64)) * exp2(exponent.max(-1074))
        }
        Class::Specials if choice.is_multiple_of(3) => special(format, sign, (key >> 20) as usize),
        Class::Specials => 4.0 * (2.0 * unit - 1.0),
        Class::Tiny => sign * unit * exp2(format.min_exponent + (choice % 3) as i32 - 1),
        Class::Cancelling => {
            let pair = hash(seed, index as u64 / 2);
            let value = 1.0 + (pair >> 11) as f64 * exp2(-53);
            if index.is_multiple_of(2) {
                value
            } else {
                -value * (1.0 + (choice % 8) as f64 * exp2(1 - format.precision))
            }
        }
        Class::Shifted => 1000.0 + unit,
        Class::Large => sign * (10.0 + 90.0 * unit),
        Class::Ties => [-1.0, -0.0, 0.0, 1.0, 2.0][choice as usize % 5],
        Class::WideInts => (unit * exp2(format.precision - 6)).floor() * sign,
        Class::Rising => index as f64,
        Class::Sparse if index % 8 == (seed % 8) as usize => sign * (1.0 + unit),
        Class::Sparse => 0.0,
    }
}

fn special(format: Format, sign: f64, choice: usize) -> f64 {
    let smallest_normal = exp2(format.min_exponent);
    let values = [
        0.0,
        1.0,
        f64::INFINITY,
        f64::NAN,
        format.max(),
        smallest_normal,
        format.tiny(),
        smallest_normal - format.tiny(),
        0.5,
        1.5,
        2.5,
        2.0,
        1.0 - exp2(-format.precision),
        1.0 + exp2(1 - format.precision),
        format.max() / 2.0,
        3.0e9,
        255.0,
        256.0,
        exp2(31),
        exp2(63),
        // Half way between two numbers of a narrower format, and a last bit: two roundings are one too many.
        1.0 + exp2(-8) + exp2(1 - format.precision),
        1.0 + exp2(-11) + exp2(1 - format.precision),
        1.0 + exp2(-24) + exp2(1 - format.precision),
    ];
    sign * values[choice % values.len()]
}

fn integer(dtype: DType, class: Class, key: u64) -> i128 {
    let signed = matches!(dtype, DType::I64 | DType::I32);
    let bits = 8 * dtype.size() as u32;
    let (low, high) = if signed { (-(1_i128 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1_i128 << bits) - 1) };
    let choice = key >> 7;
    match class {
        Class::SmallInts | Class::Uniform | Class::Positive | Class::Cancelling | Class::Shifted => {
            let value = (choice % 17) as i128;
            if signed && class != Class::Positive { value - 8 } else { value }
        }
        Class::Constant => 3,
        Class::Ties => (choice % 3) as i128,
        Class::Sparse => {
            if choice.is_multiple_of(8) {
                1
            } else {
                0
            }
        }
        Class::Specials => {
            // The last ones lie half way between two numbers of f32 and of bf16, and one above.
            let ties = [(1 << 60) + (1 << 36) + 1, (1 << 60) + (1 << 52) + 1];
            let values = [low, low + 1, high, high - 1, 0, 1, 2, 7, 8, 31, 32, 33, 63, 64, 65, 255, -1, -2, -64];
            let values = [&values[..], &ties].concat();
            values[choice as usize % values.len()].max(low).min(high)
        }
        _ => hash(key, 3).cast_signed().into(),
    }
}

fn boolean(class: Class, key: u64) -> u64 {
    match class {
        Class::Constant => 1,
        Class::Sparse => u64::from(key.is_multiple_of(8)),
        _ => key >> 9 & 1,
    }
}
