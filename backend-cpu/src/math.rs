//! Elementary functions of f32 and f64, within the error bounds of the contract.
//!
//! Those that models call most are free of branches ([`single`] and [`double`]), so that loops over them are vectorised;
//! [`pxfm`] computes the others. Against correctly rounded references, over all magnitudes, its functions of one
//! operand were never off by more than the rounding; what it gets wrong is corrected here: f64 `sinh` and `atan2` lose
//! the sign of a zero result, and `pow` loses it too, returns NaN for a NaN to the power 0, and NaN or 0 for exponents
//! ±1/2 and ±2 of large bases. The other formulas are the stable forms of functions that it does not have.

mod double;
mod single;
#[cfg(test)]
mod tests;

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
        $($composed:ident = $composition:path),*
    ) => {
        impl Real for $T {
            #[inline(always)]
            fn abs(self) -> Self {
                self.abs()
            }

            #[inline(always)]
            fn neg(self) -> Self {
                -self
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                self.sqrt()
            }

            #[inline(always)]
            fn recip(self) -> Self {
                1.0 / self
            }

            #[inline(always)]
            fn square(self) -> Self {
                self * self
            }

            #[inline(always)]
            fn sign(self) -> Self {
                if self > 0.0 {
                    1.0
                } else if self < 0.0 {
                    -1.0
                } else {
                    self
                }
            }

            #[inline(always)]
            fn relu(self) -> Self {
                if self > 0.0 || self.is_nan() { self } else { 0.0 }
            }

            #[inline(always)]
            fn floor(self) -> Self {
                let nearest = Real::round(self);
                (if nearest > self { nearest - 1.0 } else { nearest }).copysign(self)
            }

            #[inline(always)]
            fn ceil(self) -> Self {
                let nearest = Real::round(self);
                (if nearest < self { nearest + 1.0 } else { nearest }).copysign(self)
            }

            #[inline(always)]
            fn trunc(self) -> Self {
                Real::floor(self.abs()).copysign(self)
            }

            #[inline(always)]
            fn round(self) -> Self {
                // From here on numbers have no fraction; added to it, smaller ones lose theirs, to nearest, ties to
                // even. Unlike calls of the library these two additions are vectorised.
                const WHOLE: $T = 1.0 / <$T>::EPSILON;
                let magnitude = self.abs();
                let rounded = magnitude + WHOLE - WHOLE;
                (if magnitude < WHOLE { rounded } else { magnitude }).copysign(self)
            }

            #[inline(always)]
            fn is_negative(self) -> bool {
                self.is_sign_negative()
            }

            #[inline(always)]
            fn is_infinite(self) -> bool {
                self.is_infinite()
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                self.is_finite()
            }

            #[inline(always)]
            fn add(self, b: Self) -> Self {
                self + b
            }

            #[inline(always)]
            fn sub(self, b: Self) -> Self {
                self - b
            }

            #[inline(always)]
            fn mul(self, b: Self) -> Self {
                self * b
            }

            #[inline(always)]
            fn div(self, b: Self) -> Self {
                self / b
            }

            #[inline(always)]
            fn rem(self, b: Self) -> Self {
                self % b
            }

            #[inline(always)]
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

            $(#[inline(always)]
            fn $binary(self, b: Self) -> Self {
                let function: fn($T, $T) -> $T = $function_of_two;
                function(self, b)
            })*

            $(#[inline(always)]
            fn $name(self) -> Self {
                pxfm::$function(self)
            })*

            $(#[inline(always)]
            fn $composed(self) -> Self {
                $composition(self)
            })*
        }
    };
}

real! {
    f32;
    acos = f_acosf, acosh = f_acoshf, asin = f_asinf, asinh = f_asinhf, atan = f_atanf, atanh = f_atanhf,
    cos = f_cosf, cosh = f_coshf, erfc = f_erfcf, sin = f_sinf, sinh = f_sinhf, tan = f_tanf;
    atan2 = pxfm::f_atan2f, pow = |a, b| pow(a, b, pxfm::f_powf);
    erf = single::erf, exp = single::exp, exp2 = single::exp2, expm1 = single::expm1, ln = single::ln,
    log10 = single::log10, log1p = single::log1p, log2 = single::log2, tanh = single::tanh, sigmoid = single::sigmoid,
    softplus = single::softplus, silu = single::silu, gelu = single::gelu, gelu_tanh = single::gelu_tanh
}

real! {
    f64;
    acos = f_acos, acosh = f_acosh, asin = f_asin, asinh = f_asinh, atan = f_atan, atanh = f_atanh,
    cos = f_cos, cosh = f_cosh, erf = f_erf, erfc = f_erfc, exp2 = f_exp2, expm1 = f_expm1,
    ln = f_log, log10 = f_log10, log1p = f_log1p, log2 = f_log2, sin = f_sin, tan = f_tan,
    tanh = f_tanh;
    atan2 = |a, b| pxfm::f_atan2(a, b).copysign(a), pow = |a, b| pow(a, b, pxfm::f_pow);
    exp = double::exp, sinh = sinh, sigmoid = sigmoid, silu = silu, softplus = softplus,
    gelu = gelu, gelu_tanh = gelu_tanh
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

fn sinh(x: f64) -> f64 {
    pxfm::f_sinh(x).copysign(x)
}

#[inline(always)]
fn sigmoid(x: f64) -> f64 {
    // The exponential of a negative number neither overflows nor cancels.
    let e = double::exp(-x.abs());
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

fn silu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        return -0.0;
    }
    if x < -700.0 {
        // eˣ is subnormal and x would magnify its error; its root is not.
        let root = double::exp(x / 2.0);
        return x * root * root;
    }
    x * sigmoid(x)
}

fn softplus(x: f64) -> f64 {
    Number::maximum(x, 0.0) + pxfm::f_log1p(double::exp(-x.abs()))
}

fn gelu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        return -0.0;
    }
    x * 0.5 * pxfm::f_erfc(-x * FRAC_1_SQRT_2)
}

fn gelu_tanh(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        return -0.0;
    }
    // 2·√(2/π) = √2 · 2/√π, and √2 = 2 · 1/√2.
    let factor = 2.0 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI;
    x * sigmoid(factor * (x + 0.044715 * (x * x * x)))
}
