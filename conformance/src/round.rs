//! Rounding to a float format, written from the definition and sharing no code with a backend.

use congruent_backend_api::DType;

/// A binary float format.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Bits of the significand, the leading one included.
    pub precision: i32,
    /// Exponent of the smallest normal number.
    pub min_exponent: i32,
    /// Exponent of the largest binade.
    pub max_exponent: i32,
}

impl Format {
    /// IEEE 754 binary64.
    pub const F64: Self = Self { precision: 53, min_exponent: -1022, max_exponent: 1023 };
    /// IEEE 754 binary32.
    pub const F32: Self = Self { precision: 24, min_exponent: -126, max_exponent: 127 };
    /// IEEE 754 binary16.
    pub const F16: Self = Self { precision: 11, min_exponent: -14, max_exponent: 15 };
    /// bfloat16.
    pub const BF16: Self = Self { precision: 8, min_exponent: -126, max_exponent: 127 };

    /// The format of a float dtype; integers and bool have none.
    #[must_use]
    pub fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F64 => Some(Self::F64),
            DType::F32 => Some(Self::F32),
            DType::F16 => Some(Self::F16),
            DType::BF16 => Some(Self::BF16),
            _ => None,
        }
    }

    /// The format in which a backend computes and accumulates results of this one.
    #[must_use]
    pub fn accumulator(self) -> Self {
        if self.precision == Self::F64.precision { self } else { Self::F32 }
    }

    /// The unit roundoff, 2^-precision.
    #[must_use]
    pub fn unit(self) -> f64 {
        exp2(-self.precision)
    }

    /// The largest finite number.
    #[must_use]
    pub fn max(self) -> f64 {
        (2.0 - exp2(1 - self.precision)) * exp2(self.max_exponent)
    }

    /// The smallest positive number.
    #[must_use]
    pub fn tiny(self) -> f64 {
        exp2(self.min_exponent) * exp2(1 - self.precision)
    }

    /// The unit in the last place of the binade of `value`; exponents are not limited above.
    #[must_use]
    pub fn ulp(self, value: f64) -> f64 {
        exp2(exponent(value).max(self.min_exponent)) * exp2(1 - self.precision)
    }

    /// The number of this format nearest to `value`, ties to even.
    #[must_use]
    pub fn round(self, value: f64) -> f64 {
        if self.precision == Self::F64.precision || value == 0.0 || !value.is_finite() {
            return value;
        }
        // Powers of two scale exactly, so this rounds once.
        let unit = self.ulp(value);
        let rounded = (value / unit).round_ties_even() * unit;
        if rounded.abs() > self.max() { f64::INFINITY.copysign(value) } else { rounded.copysign(value) }
    }

    /// The number of this format nearest to an integer, ties to even.
    #[must_use]
    pub fn round_int(self, value: i128) -> f64 {
        let magnitude = value.unsigned_abs();
        let width = 128 - magnitude.leading_zeros() as i32;
        let drop = (width - self.precision).max(0) as u32;
        let (kept, rest) = (magnitude >> drop, magnitude & ((1 << drop) - 1));
        let half = if drop == 0 { 1 } else { 1_u128 << (drop - 1) };
        let up = rest > half || (rest == half && kept & 1 == 1);
        // At most 54 bits and a power of two: exact in f64.
        let rounded = (kept + u128::from(up)) as f64 * exp2(drop as i32);
        let rounded = if rounded > self.max() { f64::INFINITY } else { rounded };
        if value < 0 { -rounded } else { rounded }
    }
}

/// 2^e as f64, for exponents down to the smallest subnormal.
#[must_use]
pub fn exp2(e: i32) -> f64 {
    match e {
        1024.. => f64::INFINITY,
        -1022..1024 => f64::from_bits(((e + 1023) as u64) << 52),
        -1074..-1022 => f64::from_bits(1 << (e + 1074)),
        _ => 0.0,
    }
}

/// The exponent e of a finite nonzero value: 2^e ≤ |value| < 2^(e+1). Very small for zero.
#[must_use]
pub fn exponent(value: f64) -> i32 {
    let bits = value.abs().to_bits();
    match (bits >> 52) as i32 {
        0 if bits == 0 => i32::MIN / 2,
        0 => 63 - bits.leading_zeros() as i32 - 1074,
        biased => biased - 1023,
    }
}

/// γₙ = n·u / (1 − n·u) of Higham, ch. 3; infinite where it is not defined.
#[must_use]
pub fn gamma(n: f64, unit: f64) -> f64 {
    let nu = n * unit;
    if nu < 1.0 { nu / (1.0 - nu) } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;
    use congruent_backend_api::{bf16, f16};

    #[test]
    fn rounding_is_the_identity_on_the_format() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (f16::from_bits(bits).to_f64(), bf16::from_bits(bits).to_f64());
            if half.is_finite() {
                assert_eq!(Format::F16.round(half).to_bits(), half.to_bits());
            }
            if brain.is_finite() {
                assert_eq!(Format::BF16.round(brain).to_bits(), brain.to_bits());
            }
        }
    }

    #[test]
    fn f32_rounding_is_the_machine_s() {
        let mut bits = 1_u64;
        for _ in 0..100_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Exponents in and around the f32 range.
            let value = f64::from_bits((bits & !(0x7ff << 52)) | ((850 + (bits >> 20) % 320) << 52));
            assert_eq!(Format::F32.round(value).to_bits(), f64::from(value as f32).to_bits(), "{value:e}");
        }
    }

    #[test]
    fn gamma_is_its_formula() {
        assert_eq!((gamma(0.0, 0.5), gamma(1.0, 0.25), gamma(2.0, 0.25)), (0.0, 1.0 / 3.0, 1.0));
        assert_eq!((gamma(4.0, 0.25), gamma(5.0, 0.25)), (f64::INFINITY, f64::INFINITY));
    }

    #[test]
    fn ties_limits_and_integers() {
        assert_eq!(Format::F16.round(2049.0), 2048.0);
        assert_eq!(Format::F16.round(2051.0), 2052.0);
        assert_eq!(Format::F16.round(65520.0), f64::INFINITY);
        assert_eq!(Format::F16.round(65519.0), Format::F16.max());
        assert_eq!(Format::F16.tiny(), f16::from_bits(1).to_f64());
        assert_eq!(Format::F64.tiny(), f64::from_bits(1));
        assert_eq!(Format::BF16.round_int((1 << 62) + (1 << 54)), exp2(62));
        assert_eq!(Format::BF16.round_int((1 << 62) + (1 << 54) + 1), exp2(62) + exp2(55));
        for value in [i64::MIN, i64::MAX, 16_777_217, -16_777_219, 0, 5] {
            assert_eq!(Format::F32.round_int(value.into()), f64::from(value as f32));
            assert_eq!(Format::F64.round_int(value.into()), value as f64);
        }
        assert_eq!((Format::F64.unit(), Format::F32.unit()), (f64::EPSILON / 2.0, exp2(-24)));
        assert_eq!(exponent(f64::from_bits(1)), -1074);
        for format in [Format::F32, Format::F16, Format::F64] {
            assert!(format.round(f64::INFINITY) == f64::INFINITY && format.round(f64::NAN).is_nan());
            assert_eq!(format.round(-0.0).to_bits(), (-0.0_f64).to_bits());
        }
        let (mut up, mut down) = (1.0, 1.0);
        for e in 0..1080 {
            assert_eq!((exp2(e), exp2(-e)), (up, down), "{e}");
            (up, down) = (up * 2.0, down / 2.0);
        }
        assert_eq!((exponent(1.0), exponent(-7.9)), (0, 2));
        // Zero has the exponent of no number, so that its unit is the smallest one.
        assert!(exponent(0.0) < -1_000_000_000 && exponent(0.0) > i32::MIN);
        assert_eq!(Format::F32.ulp(0.0), Format::F32.tiny());
        // An integer beyond the largest number is infinite, that number itself is not.
        assert_eq!(Format::F16.round_int(65_504), 65_504.0);
        assert_eq!((Format::F16.round_int(65_520), Format::F16.round_int(-65_520)), (f64::INFINITY, f64::NEG_INFINITY));
        assert_eq!(Format::F32.round_int(0).to_bits(), 0);
    }
}
