//! Ball arithmetic: a value with a bound of its error, carried through the steps of a computation.
//!
//! Each operation adds what one rounding of a backend's own arithmetic can do to it (Higham, *Accuracy and Stability of
//! Numerical Algorithms*, 2nd ed., ch. 3), so that a composed op has a sound bound without a formula of its own. Midpoints
//! are double-double, hence far more exact than any backend. A ball of infinite radius says that nothing is known.

use crate::dd::Dd;
use crate::round::{Format, exp2, gamma};

/// A value and how far a backend's may be from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ball {
    /// The exact result of the exact steps.
    pub value: Dd,
    /// The largest error.
    pub error: f64,
}

impl Ball {
    /// A number without an error.
    #[must_use]
    pub fn exact(value: f64) -> Self {
        Self { value: value.into(), error: 0.0 }
    }

    /// The largest magnitude in the ball.
    #[must_use]
    pub fn magnitude(self) -> f64 {
        self.value.hi.abs() + self.error
    }

    /// The same with another error.
    #[must_use]
    pub fn with_error(self, error: f64) -> Self {
        Self { error, ..self }
    }

    fn is_zero(self) -> bool {
        self.value.hi == 0.0 && self.error == 0.0
    }
}

/// The arithmetic of a backend that computes in a format.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    format: Format,
    unit: f64,
    tiny: f64,
}

/// What the oracle's own steps may be off by, relative to their result.
const OWN: f64 = 1.0 / (1_u64 << 51) as f64;

impl Steps {
    /// Computation in `format`.
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self { format, unit: format.unit(), tiny: format.tiny() }
    }

    /// The unit roundoff.
    #[must_use]
    pub fn unit(self) -> f64 {
        self.unit
    }

    /// The smallest positive number.
    #[must_use]
    pub fn tiny(self) -> f64 {
        self.tiny
    }

    /// A constant that a backend rounds to its format.
    #[must_use]
    pub fn constant(self, value: f64) -> Ball {
        let error = if self.format.round(value) == value { 0.0 } else { self.unit * value.abs() + self.tiny };
        Ball { value: value.into(), error }
    }

    /// One rounding of a result whose error so far is `error`.
    #[must_use]
    pub fn round(self, value: Dd, error: f64) -> Ball {
        let magnitude = value.hi.abs() + error;
        self.unless_overflow(value, error + self.unit * magnitude, magnitude)
    }

    /// a + b
    #[must_use]
    pub fn add(self, a: Ball, b: Ball) -> Ball {
        if a.is_zero() || b.is_zero() {
            return if a.is_zero() { b } else { a };
        }
        let value = a.value + b.value;
        // Equal exact numbers cancel without a rounding.
        if value.hi == 0.0 && a.error == 0.0 && b.error == 0.0 {
            return Ball::exact(0.0);
        }
        self.round(value, a.error + b.error)
    }

    /// a − b
    #[must_use]
    pub fn sub(self, a: Ball, b: Ball) -> Ball {
        self.add(a, Ball { value: -b.value, error: b.error })
    }

    /// a · b
    #[must_use]
    pub fn mul(self, a: Ball, b: Ball) -> Ball {
        if a.is_zero() && b.magnitude().is_finite() || b.is_zero() && a.magnitude().is_finite() {
            return Ball::exact(0.0);
        }
        let (x, y) = (a.value.hi.abs(), b.value.hi.abs());
        self.round(a.value * b.value, x * b.error + y * a.error + a.error * b.error + self.tiny)
    }

    /// a / b; nothing is known where b may be 0.
    #[must_use]
    pub fn div(self, a: Ball, b: Ball) -> Ball {
        let least = b.value.hi.abs() - b.error;
        let value = quotient(a.value, b.value);
        if value.hi.is_nan() || least <= 0.0 || least.is_nan() {
            return Ball { value, error: f64::INFINITY };
        }
        self.round(value, (a.error + value.hi.abs() * b.error) / least + self.tiny)
    }

    /// eᵃ, within `ulps` units in the last place of an exact argument.
    #[must_use]
    pub fn exp(self, a: Ball, ulps: f64) -> Ball {
        let e = core_math::exp(a.value.hi);
        let value = Dd::product(e, 1.0) + Dd::product(e, a.value.lo);
        let above = e * a.error.exp();
        self.function(value, e * a.error.exp_m1(), above, ulps)
    }

    /// ln a; nothing is known where a may be 0 or less.
    #[must_use]
    pub fn ln(self, a: Ball, ulps: f64) -> Ball {
        let least = a.value.hi - a.error;
        let log = core_math::log(a.value.hi);
        let value = Dd::sum(log, a.value.lo / a.value.hi);
        let moved = if least > 0.0 { a.error / least } else { f64::INFINITY };
        self.function(value, moved, log.abs() + moved, ulps)
    }

    /// tanh a, within `ulps` units in the last place of an exact argument.
    #[must_use]
    pub fn tanh(self, a: Ball, ulps: f64) -> Ball {
        if a.is_zero() {
            return a;
        }
        let tanh = core_math::tanh(a.value.hi);
        let value = Dd::sum(tanh, a.value.lo * (1.0 - tanh * tanh));
        // The steepest place of the ball is the one nearest to 0; 4·exp(−2x) bounds the derivative from above too.
        let nearest = (a.value.hi.abs() - a.error).max(0.0);
        let moved = (a.error * (4.0 * (-2.0 * nearest).exp()).min(1.0)).min(2.0);
        self.function(value, moved, (tanh.abs() + moved).min(1.0), ulps)
    }

    /// √a of a ≥ 0, rounded correctly.
    #[must_use]
    pub fn sqrt(self, a: Ball) -> Ball {
        if a.is_zero() {
            return a;
        }
        let root = a.value.hi.sqrt();
        let value = if root > 0.0 && root.is_finite() {
            let rest = a.value + -Dd::product(root, root);
            Dd::sum(root, rest.hi / (2.0 * root))
        } else {
            root.into()
        };
        let below = (a.value.hi - a.error).max(0.0).sqrt();
        let above = (a.value.hi + a.error).sqrt();
        self.round(value, (root - below).max(above - root) + OWN * root)
    }

    /// 1/√a; nothing is known where a may be 0.
    #[must_use]
    pub fn rsqrt(self, a: Ball, ulps: f64) -> Ball {
        let least = a.value.hi - a.error;
        let value = quotient(1.0.into(), Self::sqrt(self, Ball { error: 0.0, ..a }).value);
        if least <= 0.0 || least.is_nan() {
            return Ball { value, error: f64::INFINITY };
        }
        let above = least.sqrt().recip();
        self.function(value, above - value.hi, above, ulps)
    }

    /// Σ of terms, each of which passes through at most `depth` roundings.
    #[must_use]
    pub fn sum(self, terms: &[Ball], depth: usize) -> Ball {
        let (mut value, mut error, mut magnitude) = (Dd::default(), 0.0, 0.0);
        for term in terms {
            value = value + term.value;
            error += term.error;
            magnitude += term.magnitude();
        }
        self.unless_overflow(value, error + gamma(depth as f64, self.unit) * magnitude, magnitude)
    }

    /// A function whose argument moves it by `moved`, whose magnitude is at most `most`, and that is off by `ulps`.
    fn function(self, value: Dd, moved: f64, most: f64, ulps: f64) -> Ball {
        let error = moved + (2.0 * ulps * self.unit + OWN) * most + self.tiny;
        self.unless_overflow(value, error, most)
    }

    /// What reaches the largest number, or is none, may be anything.
    fn unless_overflow(self, value: Dd, error: f64, magnitude: f64) -> Ball {
        Ball { value, error: if magnitude < self.format.max() { error } else { f64::INFINITY } }
    }
}

/// To about 100 bits.
fn quotient(a: Dd, b: Dd) -> Dd {
    let first = a.quotient(b.hi);
    if b.lo == 0.0 || !first.hi.is_finite() {
        return first;
    }
    // 1/(hi + lo) = (1 − lo/hi)/hi to first order; what is left is of the second.
    first + -(first * Dd::from(b.lo).quotient(b.hi)) + Dd::from(first.hi * (b.lo / b.hi) * (b.lo / b.hi))
}

/// Room for the products of errors that a first-order formula leaves out.
pub const SECOND_ORDER: f64 = 1.0 + 1.0 / 1024.0;

/// 2⁻⁴⁰: what the bounds' own evaluation in f64 may lose.
#[must_use]
pub fn evaluated(error: f64) -> f64 {
    error * (1.0 + exp2(-40))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ball(value: f64, error: f64) -> Ball {
        Ball { value: value.into(), error }
    }

    /// A number in the ball, as a backend might have it.
    fn inside(ball: Ball, at: f64) -> f32 {
        let x = (ball.value.hi + at * ball.error) as f32;
        // The cast may have left a narrow ball.
        if (f64::from(x) - ball.value.hi).abs() <= ball.error { x } else { ball.value.hi as f32 }
    }

    fn numbers() -> impl Strategy<Value = f64> {
        (-12..12_i32, -1.0..1.0_f64).prop_map(|(exponent, x)| f64::from((x * exp2(exponent)) as f32))
    }

    proptest! {
        /// Whatever the operands are inside their balls, f32 arithmetic on them stays inside the result's.
        #[test]
        fn results_stay_inside(a in numbers(), b in numbers(), errors in (0.0..1e-3_f64, 0.0..1e-3_f64),
                               at in (-1.0..1.0_f64, -1.0..1.0_f64)) {
            let steps = Steps::new(Format::F32);
            let (a, b) = (ball(a, errors.0 * a.abs()), ball(b, errors.1 * b.abs()));
            let (x, y) = (inside(a, at.0), inside(b, at.1));
            let holds = |ball: Ball, got: f32| (f64::from(got) - ball.value.hi).abs() <= evaluated(ball.error);
            prop_assert!(holds(steps.add(a, b), x + y));
            prop_assert!(holds(steps.sub(a, b), x - y));
            prop_assert!(holds(steps.mul(a, b), x * y));
            prop_assert!(y == 0.0 || holds(steps.div(a, b), x / y));
            let (positive, root) = (ball(a.value.hi.abs() + 1e-3, a.error), x.abs() + 1e-3);
            let positive = positive.with_error(positive.error + 1e-9);
            prop_assert!(holds(steps.sqrt(positive), root.sqrt()));
            prop_assert!(holds(steps.rsqrt(positive, 3.0), root.sqrt().recip()));
            prop_assert!(holds(steps.ln(positive, 3.0), root.ln()));
            let small = ball(a.value.hi / 4096.0, a.error / 4096.0);
            prop_assert!(holds(steps.exp(small, 3.0), (x / 4096.0).exp()));
            prop_assert!(holds(steps.tanh(a, 4.0), x.tanh()));
            let terms = [a, b, a, b];
            prop_assert!(holds(steps.sum(&terms, 3), x + y + x + y));
        }
    }

    #[test]
    fn what_is_not_known_is_infinite() {
        let steps = Steps::new(Format::F32);
        assert!(steps.div(Ball::exact(1.0), ball(1.0, 1.0)).error.is_infinite());
        assert!(steps.mul(Ball::exact(1e30), Ball::exact(1e30)).error.is_infinite());
        assert!(steps.rsqrt(ball(1e-3, 1e-3), 3.0).error.is_infinite());
        assert_eq!(steps.sub(Ball::exact(0.1), Ball::exact(0.1)), Ball::exact(0.0));
        assert_eq!(steps.mul(Ball::exact(0.0), ball(3.0, 1.0)), Ball::exact(0.0));
    }
}
