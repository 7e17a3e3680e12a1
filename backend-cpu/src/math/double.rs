//! eˣ of f64 that SIMD computes side by side; see [`single`](super::single).

use std::f64::consts::LOG2_E;

/// Added to a small number and subtracted again, it leaves the nearest integer, which its low bits then hold.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// ln 2 in two parts; the first ends in 21 zeros, so that the multiples in question are exact.
const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
const LN_2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);

/// 1/k!; the next term is below 2⁻⁵⁷ for |r| ≤ ln 2 / 2.
const COEFFICIENTS: [f64; 12] = [
    1.0 / 2.0,
    1.0 / 6.0,
    1.0 / 24.0,
    1.0 / 120.0,
    1.0 / 720.0,
    1.0 / 5_040.0,
    1.0 / 40_320.0,
    1.0 / 362_880.0,
    1.0 / 3_628_800.0,
    1.0 / 39_916_800.0,
    1.0 / 479_001_600.0,
    1.0 / 6_227_020_800.0,
];

#[inline(always)]
pub(super) fn exp(x: f64) -> f64 {
    // The bounds keep NaN.
    let x = if x > 710.0 { 710.0 } else { x };
    let x = if x < -760.0 { -760.0 } else { x };
    let shifted = x * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN_2_HIGH - n * LN_2_LOW;
    let mut sum = COEFFICIENTS[11];
    for coefficient in COEFFICIENTS[..11].iter().rev() {
        sum = sum * r + coefficient;
    }
    // n + 2048 in two halves, each a biased exponent less 1.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits() - 2048);
    let half = n >> 1;
    let power = |n: u64| f64::from_bits(n.wrapping_sub(1) << 52);
    (1.0 + (r + r * r * sum)) * power(half) * power(n.wrapping_sub(half))
}
