//! Elementary functions of f32 and f64, within the error bounds of the contract.
//!
//! [`pxfm`] is used throughout. Against correctly rounded references, over all magnitudes, its functions of one
//! operand were never off by more than the rounding; what it gets wrong is corrected here: f64 `sinh` and `atan2` lose
//! the sign of a zero result, and `pow` loses it too, returns NaN for a NaN to the power 0, and NaN or 0 for exponents
//! ±1/2 and ±2 of large bases. The other formulas are the stable forms of functions that it does not have.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use crate::lane::Number;

/// A float with its elementary functions.
pub(crate) trait Real: Number {
    /// |x|.
    fn abs(self) -> Self;
    /// −x.
    fn neg(self) -> Self;
    /// √x.
    fn sqrt(self) -> Self;
    /// 1/x.
    fn recip(self) -> Self;
    /// x².
    fn square(self) -> Self;
    /// −1, 1, or x itself where it is zero or NaN.
    fn sign(self) -> Self;
    /// max(x, 0), NaN kept.
    fn relu(self) -> Self;
    /// Next integral value below.
    fn floor(self) -> Self;
    /// Next integral value above.
    fn ceil(self) -> Self;
    /// Integral value towards zero.
    fn trunc(self) -> Self;
    /// Nearest integral value, ties to even.
    fn round(self) -> Self;
    /// Whether the sign bit is set.
    fn is_negative(self) -> bool;
    /// Whether x is ±∞.
    fn is_infinite(self) -> bool;
    /// Whether x is neither infinite nor NaN.
    fn is_finite(self) -> bool;
    /// a + b.
    fn add(self, b: Self) -> Self;
    /// a − b.
    fn sub(self, b: Self) -> Self;
    /// a · b.
    fn mul(self, b: Self) -> Self;
    /// a / b.
    fn div(self, b: Self) -> Self;
    /// a − b·trunc(a/b) with the sign of a.
    fn rem(self, b: Self) -> Self;
    /// a − b·⌊a/b⌋ with the sign of b.
    fn modulo(self, b: Self) -> Self;
    /// Arc cosine.
    fn acos(self) -> Self;
    /// Area cosine.
    fn acosh(self) -> Self;
    /// Arc sine.
    fn asin(self) -> Self;
    /// Area sine.
    fn asinh(self) -> Self;
    /// Arc tangent.
    fn atan(self) -> Self;
    /// Angle of the point (b, a).
    fn atan2(self, b: Self) -> Self;
    /// Area tangent.
    fn atanh(self) -> Self;
    /// Cosine.
    fn cos(self) -> Self;
    /// Hyperbolic cosine.
    fn cosh(self) -> Self;
    /// Error function.
    fn erf(self) -> Self;
    /// Its complement.
    fn erfc(self) -> Self;
    /// eˣ.
    fn exp(self) -> Self;
    /// 2ˣ.
    fn exp2(self) -> Self;
    /// eˣ − 1.
    fn expm1(self) -> Self;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// Decimal logarithm.
    fn log10(self) -> Self;
    /// ln(1 + x).
    fn log1p(self) -> Self;
    /// Binary logarithm.
    fn log2(self) -> Self;
    /// aᵇ.
    fn pow(self, b: Self) -> Self;
    /// Sine.
    fn sin(self) -> Self;
    /// Hyperbolic sine.
    fn sinh(self) -> Self;
    /// Tangent.
    fn tan(self) -> Self;
    /// Hyperbolic tangent.
    fn tanh(self) -> Self;
    /// 1/(1 + e^(−x)).
    fn sigmoid(self) -> Self;
    /// x · sigmoid(x).
    fn silu(self) -> Self;
    /// ln(1 + eˣ).
    fn softplus(self) -> Self;
    /// x · Φ(x).
    fn gelu(self) -> Self;
    /// The tanh form of GELU.
    fn gelu_tanh(self) -> Self;
}

/// Implements [`Real`] for a float type from its methods, its functions in `pxfm`, and its composed functions.
macro_rules! real {
    (
        $T:ty;
        $($name:ident = $function:ident),*;
        $($binary:ident = $function_of_two:expr),*;
        $($composed:ident = $composition:expr),*
    ) => {
        impl Real for $T {
            fn abs(self) -> Self {
                self.abs()
            }

            fn neg(self) -> Self {
                -self
            }

            fn sqrt(self) -> Self {
                self.sqrt()
            }

            fn recip(self) -> Self {
                1.0 / self
            }

            fn square(self) -> Self {
                self * self
            }

            fn sign(self) -> Self {
                if self > 0.0 {
                    1.0
                } else if self < 0.0 {
                    -1.0
                } else {
                    self
                }
            }

            fn relu(self) -> Self {
                if self > 0.0 || self.is_nan() { self } else { 0.0 }
            }

            fn floor(self) -> Self {
                let nearest = Real::round(self);
                (if nearest > self { nearest - 1.0 } else { nearest }).copysign(self)
            }

            fn ceil(self) -> Self {
                let nearest = Real::round(self);
                (if nearest < self { nearest + 1.0 } else { nearest }).copysign(self)
            }

            fn trunc(self) -> Self {
                Real::floor(self.abs()).copysign(self)
            }

            fn round(self) -> Self {
                // From here on numbers have no fraction; added to it, smaller ones lose theirs, to nearest, ties to
                // even. Unlike calls of the library these two additions are vectorised.
                const WHOLE: $T = 1.0 / <$T>::EPSILON;
                let magnitude = self.abs();
                let rounded = magnitude + WHOLE - WHOLE;
                (if magnitude < WHOLE { rounded } else { magnitude }).copysign(self)
            }

            fn is_negative(self) -> bool {
                self.is_sign_negative()
            }

            fn is_infinite(self) -> bool {
                self.is_infinite()
            }

            fn is_finite(self) -> bool {
                self.is_finite()
            }

            fn add(self, b: Self) -> Self {
                self + b
            }

            fn sub(self, b: Self) -> Self {
                self - b
            }

            fn mul(self, b: Self) -> Self {
                self * b
            }

            fn div(self, b: Self) -> Self {
                self / b
            }

            fn rem(self, b: Self) -> Self {
                self % b
            }

            fn modulo(self, b: Self) -> Self {
                let rest = self % b;
                if rest == 0.0 {
                    rest.copysign(b)
                } else if (rest < 0.0) != (b < 0.0) {
                    rest + b
                } else {
                    rest
                }
            }

            $(fn $binary(self, b: Self) -> Self {
                let function: fn($T, $T) -> $T = $function_of_two;
                function(self, b)
            })*

            $(fn $name(self) -> Self {
                pxfm::$function(self)
            })*

            $(fn $composed(self) -> Self {
                let composition: fn($T) -> $T = $composition;
                composition(self)
            })*
        }
    };
}

// Some composed functions of f32 run in f64: an intermediate there neither underflows nor costs accuracy.
real! {
    f32;
    acos = f_acosf, acosh = f_acoshf, asin = f_asinf, asinh = f_asinhf, atan = f_atanf, atanh = f_atanhf,
    cos = f_cosf, cosh = f_coshf, erf = f_erff, erfc = f_erfcf, exp = f_expf, exp2 = f_exp2f, expm1 = f_expm1f,
    ln = f_logf, log10 = f_log10f, log1p = f_log1pf, log2 = f_log2f, sin = f_sinf, sinh = f_sinhf, tan = f_tanf;
    atan2 = pxfm::f_atan2f, pow = |a, b| pow(a, b, pxfm::f_powf);
    tanh = tanh, sigmoid = sigmoid, softplus = softplus, silu = |x| silu(x.into()) as f32,
    gelu = |x| gelu(x, (f64::from(-x) * FRAC_1_SQRT_2) as f32), gelu_tanh = |x| gelu_tanh(x.into()) as f32
}

real! {
    f64;
    acos = f_acos, acosh = f_acosh, asin = f_asin, asinh = f_asinh, atan = f_atan, atanh = f_atanh,
    cos = f_cos, cosh = f_cosh, erf = f_erf, erfc = f_erfc, exp = f_exp, exp2 = f_exp2, expm1 = f_expm1,
    ln = f_log, log10 = f_log10, log1p = f_log1p, log2 = f_log2, sin = f_sin, tan = f_tan,
    tanh = f_tanh;
    atan2 = |a, b| pxfm::f_atan2(a, b).copysign(a), pow = |a, b| pow(a, b, pxfm::f_pow);
    sinh = |x| pxfm::f_sinh(x).copysign(x), sigmoid = sigmoid, silu = silu, softplus = softplus, gelu = |x| gelu(x, -x * FRAC_1_SQRT_2), gelu_tanh = gelu_tanh
}

/// aᵇ from `power`, which is only asked for bases that are not negative; the sign is decided here.
fn pow<T: Real>(a: T, b: T, power: fn(T, T) -> T) -> T {
    let [half, one, two] = [0.5, 1.0, 2.0].map(T::from_f64);
    if !b.is_nonzero() || a == one {
        return one;
    }
    let base = a.abs();
    let magnitude = if b == half {
        base.sqrt()
    } else if b == half.neg() {
        base.sqrt().recip()
    } else if b == two {
        base.square()
    } else if b == two.neg() {
        base.recip().square()
    } else {
        power(base, b)
    };
    let whole = b.trunc() == b;
    if a.is_negative() && whole && b.rem(two).abs() == one {
        magnitude.neg()
    } else if a < T::default() && a.is_finite() && !whole {
        T::from_f64(f64::NAN)
    } else {
        magnitude
    }
}

/// (e²ˣ − 1)/(e²ˣ + 1), with an error of two ULP; three times as fast as the function of [`pxfm`].
fn tanh(x: f32) -> f32 {
    // From 10 on the result is 1.
    let magnitude = if x.abs() > 10.0 { 10.0 } else { x.abs() };
    let e = pxfm::f_expm1f(2.0 * magnitude);
    (e / (e + 2.0)).copysign(x)
}

fn sigmoid<T: Real>(x: T) -> T {
    // The exponential of a negative number neither overflows nor cancels.
    let (zero, one) = (T::default(), T::from_f64(1.0));
    let e = x.abs().neg().exp();
    let numerator = if x < zero { e } else { one };
    numerator.div(one.add(e))
}

fn silu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        return -0.0;
    }
    if x < -700.0 {
        // eˣ is subnormal and x would magnify its error; its root is not.
        let root = pxfm::f_exp(x / 2.0);
        return x * root * root;
    }
    x * sigmoid(x)
}

fn softplus<T: Real>(x: T) -> T {
    x.maximum(T::default()).add(x.abs().neg().exp().log1p())
}

/// x/2 · erfc(z) for z = −x/√2, which the caller rounds once.
fn gelu<T: Real>(x: T, z: T) -> T {
    if x == T::LEAST {
        return T::default().neg();
    }
    x.mul(T::from_f64(0.5)).mul(z.erfc())
}

fn gelu_tanh(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        return -0.0;
    }
    // 2·√(2/π) = √2 · 2/√π, and √2 = 2 · 1/√2.
    let factor = 2.0 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI;
    x * sigmoid(factor * (x + 0.044715 * (x * x * x)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INF: f64 = f64::INFINITY;
    const NAN: f64 = f64::NAN;

    /// The result must have these bits, or be NaN too.
    fn same(given: f64, expected: f64) -> bool {
        given.to_bits() == expected.to_bits() || (given.is_nan() && expected.is_nan())
    }

    type Function<T> = fn(T) -> T;
    type Specials = (&'static str, Function<f32>, Function<f64>, [f64; 6]);

    #[test]
    fn special_values() {
        let x = [0.0, -0.0, INF, -INF, NAN, 2.0];
        let ignored = -1234.5;
        let cases: [Specials; 27] = [
            ("exp", Real::exp, Real::exp, [1.0, 1.0, INF, 0.0, NAN, ignored]),
            ("exp2", Real::exp2, Real::exp2, [1.0, 1.0, INF, 0.0, NAN, 4.0]),
            ("expm1", Real::expm1, Real::expm1, [0.0, -0.0, INF, -1.0, NAN, ignored]),
            ("ln", Real::ln, Real::ln, [-INF, -INF, INF, NAN, NAN, ignored]),
            ("log2", Real::log2, Real::log2, [-INF, -INF, INF, NAN, NAN, 1.0]),
            ("log10", Real::log10, Real::log10, [-INF, -INF, INF, NAN, NAN, ignored]),
            ("log1p", Real::log1p, Real::log1p, [0.0, -0.0, INF, NAN, NAN, ignored]),
            ("sin", Real::sin, Real::sin, [0.0, -0.0, NAN, NAN, NAN, ignored]),
            ("cos", Real::cos, Real::cos, [1.0, 1.0, NAN, NAN, NAN, ignored]),
            ("tan", Real::tan, Real::tan, [0.0, -0.0, NAN, NAN, NAN, ignored]),
            ("asin", Real::asin, Real::asin, [0.0, -0.0, NAN, NAN, NAN, NAN]),
            ("acos", Real::acos, Real::acos, [ignored, ignored, NAN, NAN, NAN, NAN]),
            ("atan", Real::atan, Real::atan, [0.0, -0.0, ignored, ignored, NAN, ignored]),
            ("sinh", Real::sinh, Real::sinh, [0.0, -0.0, INF, -INF, NAN, ignored]),
            ("cosh", Real::cosh, Real::cosh, [1.0, 1.0, INF, INF, NAN, ignored]),
            ("tanh", Real::tanh, Real::tanh, [0.0, -0.0, 1.0, -1.0, NAN, ignored]),
            ("asinh", Real::asinh, Real::asinh, [0.0, -0.0, INF, -INF, NAN, ignored]),
            ("acosh", Real::acosh, Real::acosh, [NAN, NAN, INF, NAN, NAN, ignored]),
            ("atanh", Real::atanh, Real::atanh, [0.0, -0.0, NAN, NAN, NAN, NAN]),
            ("erf", Real::erf, Real::erf, [0.0, -0.0, 1.0, -1.0, NAN, ignored]),
            ("erfc", Real::erfc, Real::erfc, [1.0, 1.0, 0.0, 2.0, NAN, ignored]),
            ("sigmoid", Real::sigmoid, Real::sigmoid, [0.5, 0.5, 1.0, 0.0, NAN, ignored]),
            ("silu", Real::silu, Real::silu, [0.0, -0.0, INF, -0.0, NAN, ignored]),
            ("gelu", Real::gelu, Real::gelu, [0.0, -0.0, INF, -0.0, NAN, ignored]),
            ("gelu_tanh", Real::gelu_tanh, Real::gelu_tanh, [0.0, -0.0, INF, -0.0, NAN, ignored]),
            ("softplus", Real::softplus, Real::softplus, [ignored, ignored, INF, 0.0, NAN, ignored]),
            ("sqrt", Real::sqrt, Real::sqrt, [0.0, -0.0, INF, NAN, NAN, ignored]),
        ];
        for (name, single, double, expected) in cases {
            for (x, expected) in x.into_iter().zip(expected).filter(|&(_, expected)| expected != ignored) {
                assert!(same(double(x), expected), "f64 {name}({x}) = {}, not {expected}", double(x));
                let single = f64::from(single(x as f32));
                assert!(same(single, expected), "f32 {name}({x}) = {single}, not {expected}");
            }
        }
    }

    /// f64 is accurate enough to judge f32; the largest error must be within the contract's.
    #[test]
    fn f32_is_within_the_bounds() {
        let cases: [(&str, Function<f32>, Function<f64>, f64); 26] = [
            ("exp", Real::exp, Real::exp, 3.0),
            ("exp2", Real::exp2, Real::exp2, 3.0),
            ("expm1", Real::expm1, Real::expm1, 3.0),
            ("ln", Real::ln, Real::ln, 3.0),
            ("log2", Real::log2, Real::log2, 3.0),
            ("log10", Real::log10, Real::log10, 3.0),
            ("log1p", Real::log1p, Real::log1p, 3.0),
            ("sin", Real::sin, Real::sin, 4.0),
            ("cos", Real::cos, Real::cos, 4.0),
            ("tan", Real::tan, Real::tan, 5.0),
            ("asin", Real::asin, Real::asin, 5.0),
            ("acos", Real::acos, Real::acos, 5.0),
            ("atan", Real::atan, Real::atan, 5.0),
            ("sinh", Real::sinh, Real::sinh, 4.0),
            ("cosh", Real::cosh, Real::cosh, 4.0),
            ("tanh", Real::tanh, Real::tanh, 4.0),
            ("asinh", Real::asinh, Real::asinh, 5.0),
            ("acosh", Real::acosh, Real::acosh, 5.0),
            ("atanh", Real::atanh, Real::atanh, 5.0),
            ("erf", Real::erf, Real::erf, 4.0),
            ("erfc", Real::erfc, Real::erfc, 6.0),
            ("sigmoid", Real::sigmoid, Real::sigmoid, 8.0),
            ("silu", Real::silu, Real::silu, 8.0),
            ("softplus", Real::softplus, Real::softplus, 8.0),
            ("gelu", Real::gelu, Real::gelu, 8.0),
            ("gelu_tanh", Real::gelu_tanh, Real::gelu_tanh, 8.0),
        ];
        for (name, single, double, bound) in cases {
            for x in (0..u32::MAX).step_by(99_991).map(f32::from_bits).filter(|x| !x.is_nan()) {
                let (given, exact) = (single(x), double(f64::from(x)));
                let nearest = exact as f32;
                let unit = f64::from(nearest.abs().next_up()) - f64::from(nearest.abs());
                let condition = match (name, f64::from(x).min(0.0)) {
                    ("gelu", x) => x * x,
                    ("gelu_tanh", x) => 6.4 * (x + 0.044715 * x * x * x).abs(),
                    _ => 0.0,
                };
                let close = (f64::from(given) - exact).abs() <= (bound + condition) * unit;
                let alike = given.to_bits() == nearest.to_bits() || (given.is_nan() && exact.is_nan());
                assert!(alike || close, "{name}({x:e}) = {given:e}, not {exact:e}");
            }
        }
    }

    #[test]
    fn f64_at_known_values() {
        let cases = [
            (1.0.exp(), std::f64::consts::E),
            (Real::erf(1.0), 0.842_700_792_949_714_9),
            (Real::erfc(10.0), 2.088_487_583_762_545e-45),
            (Real::asinh(1e300), 691.468_675_078_773_7),
            (Real::acosh(1e300), 691.468_675_078_773_7),
            (Real::asinh(-1e-20), -1e-20),
            (Real::sin(1e22), -0.852_200_849_767_188_8),
            (Real::silu(-744.0), -5.706e-321),
            (Real::softplus(-50.0), 1.928_749_847_963_918e-22),
            (Real::softplus(50.0), 50.0),
            (Real::gelu_tanh(1e200), 1e200),
            (Real::sigmoid(-750.0), 0.0),
        ];
        assert!((Real::gelu(-10.0) / -7.619_853_024_160_526e-23 - 1.0_f64).abs() < 108.0 * f64::EPSILON);
        for (index, (given, expected)) in cases.into_iter().enumerate() {
            let error = (given - expected).abs();
            assert!(error <= 4.0 * f64::EPSILON * expected.abs() + 5e-323, "case {index}: {given:e}, not {expected:e}");
        }
    }

    #[test]
    fn functions_of_two_at_special_values() {
        let cases = [
            (NAN, 0.0, 1.0),
            (1.0, NAN, 1.0),
            (NAN, 1.0, NAN),
            (-0.0, -3.0, -INF),
            (-0.0, 3.0, -0.0),
            (-0.0, -2.0, INF),
            (-0.0, 0.5, 0.0),
            (-0.0, INF, 0.0),
            (-INF, 3.0, -INF),
            (-INF, -3.0, -0.0),
            (-INF, 0.5, INF),
            (-1.0, INF, 1.0),
            (-2.0, 3.0, -8.0),
            (-2.0, 0.5, NAN),
            (-8.0, 1.0 / 3.0, NAN),
            (0.5, INF, 0.0),
            (2.0, -INF, 0.0),
        ];
        for (a, b, expected) in cases {
            assert!(same(Real::pow(a, b), expected), "{a} ^ {b} = {}", Real::pow(a, b));
            let single = f64::from(Real::pow(a as f32, b as f32));
            assert!(same(single, expected), "f32 {a} ^ {b} = {single}");
        }
        assert!((Real::pow(f64::MAX, -0.5) / 7.458_340_731_200_207e-155 - 1.0).abs() < 4.0 * f64::EPSILON);
        assert!((Real::pow(1e160, -2.0) - 1e-320).abs() <= 5e-324);
        assert_eq!(Real::pow(-1e-20_f64, 27.0).to_bits(), 1 << 63);
        for (y, x, expected) in [(-0.0, 1.0, -0.0), (-5e-324, 1e300, -0.0), (0.0, -0.0, std::f64::consts::PI)] {
            assert!(same(Real::atan2(y, x), expected));
        }
        assert!(Real::atan2(INF, INF) == std::f64::consts::FRAC_PI_4 && Real::atan2(NAN, 1.0).is_nan());
    }
}
