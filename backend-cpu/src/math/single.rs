//! Elementary functions of f32 that SIMD computes side by side: no branches, no tables, no calls.
//!
//! Every value passes through the same additions, multiplications, divisions and selections, so a loop over one of these
//! functions is vectorised at any width. Nothing is contracted: all widths, and none, give the same bits.
//!
//! - eˣ = 2ⁿ·eʳ with n = ⌊x/ln 2⌉ and |r| ≤ ln 2 / 2, where eʳ = 1 + r + r²·p(r). The multiple of ln 2 is subtracted in two
//!   parts, the first exactly. 2ⁿ is multiplied last and as two factors: a subnormal result is rounded once more and not
//!   computed from a rounded one, and 2¹²⁸ needs no number of its own.
//! - ln x = n·ln 2 + f − f²/2 + f³·p(f) with x = 2ⁿ(1 + f) and 1 + f in [√½, √2).
//! - Φ(−z) = e^(−z²/2)·Q(z), the normal distribution function, with (z + 4)·Q(z) a polynomial of (z − 4)/(z + 4): a
//!   minimax fit on [0, 15] with relative error 2⁻²⁶; Φ(−15) is below the least number. erf(x) = 1 − 2Φ(−√2·x).
//!
//! The polynomials of eʳ, ln and tanh are those of Cephes (S. L. Moshier, *Methods and Programs for Mathematical Functions*).

use std::f32::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E, LOG10_2, LOG10_E, SQRT_2};

/// Added to a small number and subtracted again, it leaves the nearest integer, which its low bits then hold.
const ROUND: f32 = 12_582_912.0;

/// ln 2 in two parts; the first has nine bits, so that multiples of it are exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// `m · s · t`, to be multiplied from the left.
struct Scaled {
    m: f32,
    s: f32,
    t: f32,
}

impl Scaled {
    #[inline(always)]
    fn value(self) -> f32 {
        self.m * self.s * self.t
    }
}

/// c₀ + c₁·x + c₂·x² + …
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[N - 1];
    for coefficient in coefficients[..N - 1].iter().rev() {
        sum = sum * x + coefficient;
    }
    sum
}

/// The smaller one, or `x` if it is NaN.
#[inline(always)]
fn at_most(x: f32, bound: f32) -> f32 {
    if x > bound { bound } else { x }
}

/// The greater one, or `x` if it is NaN.
#[inline(always)]
fn at_least(x: f32, bound: f32) -> f32 {
    if x < bound { bound } else { x }
}

/// eʳ − 1 for |r| ≤ ln 2 / 2.
#[inline(always)]
fn near_one(r: f32) -> f32 {
    r + r * r * polynomial(r, [0.5, 0.166_666_66, 4.166_579_6e-2, 8.333_452e-3, 1.398_2e-3, 1.987_569_1e-4])
}

/// `m` times 2 to the power that [`ROUND`] was added to, between −256 and 255.
#[inline(always)]
fn scaled(m: f32, shifted: f32) -> Scaled {
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits() - 256);
    let half = n >> 1;
    // A biased exponent k + 127, where k + 128 is given.
    let power = |n: u32| f32::from_bits(n.wrapping_sub(1) << 23);
    Scaled { m, s: power(half), t: power(n.wrapping_sub(half)) }
}

/// ⌊x/ln 2⌉ + [`ROUND`], and the rest of x.
#[inline(always)]
fn reduce(x: f32) -> (f32, f32) {
    let shifted = x * LOG2_E + ROUND;
    let n = shifted - ROUND;
    (shifted, x - n * LN_2_HIGH - n * LN_2_LOW)
}

/// eˣ for x in [−120, 89].
#[inline(always)]
fn exp_scaled(x: f32) -> Scaled {
    let (shifted, r) = reduce(x);
    scaled(1.0 + near_one(r), shifted)
}

#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    exp_scaled(at_least(at_most(x, 89.0), -120.0)).value()
}

#[inline(always)]
pub(super) fn exp2(x: f32) -> f32 {
    let x = at_least(at_most(x, 129.0), -160.0);
    let shifted = x + ROUND;
    scaled(1.0 + near_one((x - (shifted - ROUND)) * LN_2), shifted).value()
}

#[inline(always)]
pub(super) fn expm1(x: f32) -> f32 {
    // 2ⁿ·(eʳ − 1) + (2ⁿ − 1), halved until the end, as 2¹²⁸ is no number. From −80 down the result is −1.
    let (shifted, r) = reduce(at_least(at_most(x, 89.0), -80.0));
    let half = Scaled { m: 1.0, ..scaled(1.0, shifted - 1.0) }.value();
    let value = 2.0 * (half * near_one(r) + (half - 0.5));
    // Keeps −0 and the bits of subnormals; x²/2 is below the rounding.
    if x.abs() < 1e-8 { x } else { value }
}

/// n and f, and ln(1 + f) − f, where x = 2ⁿ(1 + f), for positive finite x.
#[inline(always)]
fn logarithm(x: f32) -> (f32, f32, f32) {
    let subnormal = x < f32::MIN_POSITIVE;
    let bits = (if subnormal { x * 8_388_608.0 } else { x }).to_bits();
    let n = bits.wrapping_sub(FRAC_1_SQRT_2.to_bits()).cast_signed() >> 23;
    let f = f32::from_bits(bits.wrapping_sub(n.cast_unsigned() << 23)) - 1.0;
    let p = polynomial(
        f,
        [
            0.333_333_3,
            -0.249_999_94,
            0.200_007_15,
            -0.166_680_58,
            0.142_493_23,
            -0.124_201_41,
            0.116_769_99,
            -0.115_146_1,
            7.037_683_6e-2,
        ],
    );
    let square = f * f;
    (n as f32 - if subnormal { 23.0 } else { 0.0 }, f, f * square * p - 0.5 * square)
}

/// `value` for positive finite x, and the limits and NaN of a logarithm elsewhere.
#[inline(always)]
fn logarithm_or_limit(x: f32, value: f32) -> f32 {
    let negative = if x < 0.0 { f32::NAN } else { x };
    let limit = if x == 0.0 { f32::NEG_INFINITY } else { negative };
    if x > 0.0 && x < f32::INFINITY { value } else { limit }
}

#[inline(always)]
pub(super) fn ln(x: f32) -> f32 {
    let (n, f, rest) = logarithm(x);
    logarithm_or_limit(x, n * LN_2_LOW + rest + f + n * LN_2_HIGH)
}

#[inline(always)]
pub(super) fn log2(x: f32) -> f32 {
    // log₂ e = 1 + 0.44…: of the greater part the product is exact.
    const REST: f32 = 0.442_695_04;
    let (n, f, rest) = logarithm(x);
    logarithm_or_limit(x, (f + rest) * REST + rest + f + n)
}

#[inline(always)]
pub(super) fn log10(x: f32) -> f32 {
    let (n, f, rest) = logarithm(x);
    logarithm_or_limit(x, (f + rest) * LOG10_E + n * LOG10_2)
}

#[inline(always)]
pub(super) fn log1p(x: f32) -> f32 {
    // What 1 + x loses is added to its logarithm.
    let sum = 1.0 + x;
    let lost = (x - (sum - 1.0)) / sum;
    let value = ln(sum) + if x > -1.0 && x < f32::INFINITY { lost } else { 0.0 };
    if x == 0.0 { x } else { value }
}

#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let square = x * x;
    let p = polynomial(square, [-0.333_332_8, 0.133_314_42, -5.373_971_6e-2, 2.063_908_8e-2, -5.704_988_7e-3]);
    // From 10 on the result is 1.
    let far = 1.0 - 2.0 / (exp_scaled(2.0 * at_most(x.abs(), 10.0)).value() + 1.0);
    (if x.abs() < 0.625 { x + x * square * p } else { far }).copysign(x)
}

/// x / (1 + e^(−t)) for an x that is at least −20 where t is negative.
#[inline(always)]
fn gated(x: f32, t: f32) -> f32 {
    // The exponential of a negative number neither overflows nor cancels. Where it is subnormal x would magnify its error,
    // so x is multiplied before the powers of two are.
    let Scaled { m, s, t: u } = exp_scaled(at_least(-t.abs(), -120.0));
    let denominator = 1.0 + m * s * u;
    let (near, far) = (x / denominator, x * m / denominator * s * u);
    if t < 0.0 { far } else { near }
}

#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    gated(1.0, x)
}

#[inline(always)]
pub(super) fn silu(x: f32) -> f32 {
    gated(at_least(x, -120.0), x)
}

#[inline(always)]
pub(super) fn gelu_tanh(x: f32) -> f32 {
    // 2·√(2/π)
    const FACTOR: f32 = 1.595_769;
    // At −20 the result is −0 already.
    let x = at_least(x, -20.0);
    gated(x, FACTOR * (x + 0.044_715 * (x * x * x)))
}

#[inline(always)]
pub(super) fn softplus(x: f32) -> f32 {
    at_least(x, 0.0) + log1p(exp_scaled(at_least(-x.abs(), -120.0)).value())
}

/// Φ(−z) for z in [0, 15].
#[inline(always)]
fn normal_tail(z: f32) -> Scaled {
    let reciprocal = 1.0 / (z + 4.0);
    let p = polynomial(
        (z - 4.0) * reciprocal,
        [
            0.755_285_14,
            -0.607_896_57,
            0.387_136_9,
            -0.186_523_66,
            6.040_349e-2,
            -7.524_004e-3,
            -3.510_209_5e-3,
            1.568_408_2e-3,
            1.746_572_7e-4,
            -1.341_974_3e-4,
        ],
    );
    let Scaled { m, s, t } = exp_scaled(-0.5 * (z * z));
    Scaled { m: m * (p * reciprocal), s, t }
}

#[inline(always)]
pub(super) fn gelu(x: f32) -> f32 {
    let Scaled { m, s, t } = normal_tail(at_most(x.abs(), 15.0));
    // As in `gated`, x is multiplied before the powers of two are.
    let far = at_least(x, -15.0) * m * s * t;
    if x < 0.0 { far } else { x * (1.0 - m * s * t) }
}

#[inline(always)]
pub(super) fn erf(x: f32) -> f32 {
    let square = x * x;
    let p = polynomial(
        square,
        // Less 1, so that the leading coefficient is exact.
        [0.128_379_17, -0.376_126_26, 0.112_835_85, -2.685_381_2e-2, 5.188_327_6e-3, -8.010_193e-4, 7.853_859e-5],
    );
    // From 4 on the result is 1.
    let far = 1.0 - 2.0 * normal_tail(SQRT_2 * at_most(x.abs(), 5.0)).value();
    if x.abs() < 1.0 { x + x * p } else { far.copysign(x) }
}
