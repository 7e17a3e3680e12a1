//! Conversions to half precision in one rounding.
//!
//! Going through f32 would round twice. Rounding the first step *to odd* makes the second one exact: an inexact
//! f32 keeps its last bit set, so it is never mistaken for a tie (Boldo and Melquiond, "Emulation of FMA and
//! correctly rounded sums: proved algorithms using rounding to odd", 2008; needs 24 ≥ 11 + 2 bits).

use half::{bf16, f16};

/// The f16 nearest to `value`, ties to even.
#[must_use]
pub fn f64_to_f16(value: f64) -> f16 {
    f16::from_f32(f64_to_f32_odd(value))
}

/// The bf16 nearest to `value`, ties to even.
#[must_use]
pub fn f64_to_bf16(value: f64) -> bf16 {
    bf16::from_f32(f64_to_f32_odd(value))
}

/// The f16 nearest to `value`, ties to even.
#[must_use]
pub fn i64_to_f16(value: i64) -> f16 {
    f64_to_f16(i64_to_f64_odd(value))
}

/// The bf16 nearest to `value`, ties to even.
#[must_use]
pub fn i64_to_bf16(value: i64) -> bf16 {
    f64_to_bf16(i64_to_f64_odd(value))
}

/// `value` rounded to odd: the neighbour whose last bit is set, unless f32 holds it exactly.
fn f64_to_f32_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    if back == value || value.is_nan() {
        return nearest;
    }
    // The magnitude bits count up from zero, so one less is the next value towards zero.
    let towards_zero = nearest.to_bits() - u32::from(back.abs() > value.abs());
    f32::from_bits(towards_zero | 1)
}

fn i64_to_f64_odd(value: i64) -> f64 {
    let nearest = value as f64;
    // i128 holds both exactly; `nearest` can be 2^63.
    let (exact, rounded) = (i128::from(value), nearest as i128);
    if exact == rounded {
        return nearest;
    }
    let towards_zero = nearest.to_bits() - u64::from(rounded.abs() > exact.abs());
    f64::from_bits(towards_zero | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every midpoint of two neighbouring f16, nudged by the smallest f64 step, must go to the near side.
    #[test]
    fn a_nudged_midpoint_goes_to_the_near_side() {
        for bits in 0..0x7bff_u16 {
            let (low, high) = (f16::from_bits(bits), f16::from_bits(bits + 1));
            let middle = (low.to_f64() + high.to_f64()) / 2.0;
            let even = if bits % 2 == 0 { low } else { high };
            for sign in [1.0, -1.0] {
                let signed = |x: f16| if sign < 0.0 { -x } else { x };
                assert_eq!(f64_to_f16(sign * middle), signed(even));
                assert_eq!(f64_to_f16(sign * middle.next_down()), signed(low));
                assert_eq!(f64_to_f16(sign * middle.next_up()), signed(high));
                assert_eq!(f64_to_f16(sign * low.to_f64()).to_bits(), signed(low).to_bits());
            }
        }
    }

    #[test]
    fn limits_and_specials() {
        assert_eq!(f64_to_f16(65520.0), f16::INFINITY);
        assert_eq!(f64_to_f16(65520f64.next_down()), f16::MAX);
        assert_eq!(f64_to_bf16(f64::MAX), bf16::INFINITY);
        assert!(f64_to_f16(f64::NAN).is_nan());
        assert_eq!(f64_to_f16(5e-324).to_bits(), 0);
        assert_eq!(f64_to_bf16(-0.0).to_bits(), 0x8000);
    }

    #[test]
    fn an_integer_rounds_once() {
        // 2^62 + 2^54 is a tie between two bf16; one more decides it. Through f64 the one is lost.
        let tie = (1_i64 << 62) + (1 << 54);
        assert_eq!(i64_to_bf16(tie).to_f64(), 2f64.powi(62));
        assert_eq!(i64_to_bf16(tie + 1).to_f64(), 2f64.powi(62) + 2f64.powi(55));
        assert_eq!(i64_to_bf16(i64::MIN).to_f64(), -(2f64.powi(63)));
        assert_eq!(i64_to_f16(2049).to_f64(), 2048.0);
        assert_eq!(i64_to_f16(i64::MAX), f16::INFINITY);
    }
}
