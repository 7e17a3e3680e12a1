//! Double-double arithmetic: sums and products to about 106 bits (Ogita, Rump and Oishi, "Accurate sum and dot
//! product", 2005; Dekker 1971).

use std::ops::{Add, Mul, Neg};

/// The unevaluated sum `hi + lo` with |lo| ≤ ulp(hi)/2.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dd {
    /// The sum rounded to f64.
    pub hi: f64,
    /// What rounding left.
    pub lo: f64,
}

impl Dd {
    /// The exact sum of two f64.
    #[must_use]
    pub fn sum(a: f64, b: f64) -> Self {
        let hi = a + b;
        let back = hi - a;
        Self::new(hi, (a - (hi - back)) + (b - back))
    }

    /// The exact product of two f64, short of underflow.
    #[must_use]
    pub fn product(a: f64, b: f64) -> Self {
        let hi = a * b;
        Self::new(hi, a.mul_add(b, -hi))
    }

    /// The quotient by an f64, to about 100 bits.
    #[must_use]
    pub fn quotient(self, b: f64) -> Self {
        let quotient = self.hi / b;
        if quotient == 0.0 || !quotient.is_finite() {
            return quotient.into();
        }
        let rest = self + -Self::product(quotient, b);
        Self::fast(quotient, rest.hi / b)
    }

    /// The nearest f64.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        // The remainder is at most half a unit, so that it cannot move the sum to another f64.
        self.hi
    }

    /// Infinities and NaN have no remainder.
    fn new(hi: f64, lo: f64) -> Self {
        Self { hi, lo: if hi.is_finite() { lo } else { 0.0 } }
    }

    fn fast(hi: f64, lo: f64) -> Self {
        let sum = hi + lo;
        Self::new(sum, lo - (sum - hi))
    }
}

impl From<f64> for Dd {
    fn from(hi: f64) -> Self {
        Self { hi, lo: 0.0 }
    }
}

impl Add for Dd {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let high = Self::sum(self.hi, other.hi);
        if !high.hi.is_finite() {
            return high;
        }
        let low = Self::sum(self.lo, other.lo);
        let sum = Self::fast(high.hi, high.lo + low.hi);
        Self::fast(sum.hi, sum.lo + low.lo)
    }
}

impl Mul for Dd {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let high = Self::product(self.hi, other.hi);
        // Zero keeps its sign, infinities and NaN have no remainder.
        if high.hi == 0.0 || !high.hi.is_finite() {
            return high.hi.into();
        }
        Self::fast(high.hi, high.lo + (self.hi * other.lo + self.lo * other.hi))
    }
}

impl Neg for Dd {
    type Output = Self;

    fn neg(self) -> Self {
        Self { hi: -self.hi, lo: -self.lo }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_f64_drops() {
        let sum = [1e16, 1.0, -1e16, 1e-8].into_iter().fold(Dd::default(), |sum, x| sum + x.into());
        assert_eq!(sum.to_f64(), 1.0 + 1e-8);
        let product = Dd::from(1.0 + f64::EPSILON) * Dd::from(1.0 - f64::EPSILON);
        assert_eq!((product + Dd::from(-1.0)).to_f64(), -f64::EPSILON * f64::EPSILON);
        let third = Dd::from(1.0).quotient(3.0);
        assert!((third * Dd::from(3.0) + Dd::from(-1.0)).to_f64().abs() < 1e-31);
        let remainder = Dd { hi: 1.0, lo: f64::EPSILON / 256.0 };
        assert_eq!(remainder + remainder, Dd { hi: 2.0, lo: f64::EPSILON / 128.0 });
        // What is left of remainders of different size when the rest cancels.
        let (large, small) = (crate::round::exp2(-54), crate::round::exp2(-110));
        assert_eq!(Dd { hi: 1.0, lo: large } + Dd { hi: -1.0, lo: small }, Dd { hi: large, lo: small });
        let (infinity, one) = (Dd::from(f64::INFINITY), Dd::from(1.0));
        assert_eq!([infinity + one, infinity * one, infinity.quotient(2.0)].map(Dd::to_f64), [f64::INFINITY; 3]);
        assert!((infinity + -infinity).to_f64().is_nan());
        assert!((Dd::from(-0.0) * one).to_f64().is_sign_negative());
    }
}
