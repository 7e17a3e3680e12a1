//! The accumulators of scans.
//!
//! Floats are added in f64 with the error of each addition kept (Knuth's TwoSum), so that a row of any length is summed
//! as well as by a tree; the additions that wait for one another are no more than without it. Exponentials are added
//! relative to the greatest exponent so far.

use crate::lane::{Int, Number};
use crate::math::Real;

/// What the elements before a position amount to.
pub(super) trait Running<T>: Copy + Send + Sync {
    /// Of no elements.
    fn start() -> Self;

    /// Takes in the next element.
    fn push(&mut self, x: T);

    /// Takes in the elements of an accumulator that follow.
    fn append(&mut self, later: &Self);

    /// The result.
    fn value(&self) -> T;
}

/// A sum and the error of its roundings.
#[derive(Clone, Copy)]
pub(super) struct FloatSum {
    sum: f64,
    error: f64,
}

impl FloatSum {
    fn add(&mut self, x: f64) {
        let sum = self.sum + x;
        let added = sum - self.sum;
        self.error += (self.sum - (sum - added)) + (x - added);
        self.sum = sum;
    }

    fn scale(&mut self, factor: f64) {
        self.sum *= factor;
        self.error *= factor;
    }

    fn total(&self) -> f64 {
        // Once the sum is infinite or NaN, the error means nothing.
        if self.error.is_finite() { self.sum + self.error } else { self.sum }
    }
}

impl<T: Real> Running<T> for FloatSum {
    fn start() -> Self {
        Self { sum: 0.0, error: 0.0 }
    }

    fn push(&mut self, x: T) {
        self.add(x.cast());
    }

    fn append(&mut self, later: &Self) {
        self.add(later.sum);
        self.error += later.error;
    }

    fn value(&self) -> T {
        T::from_f64(self.total())
    }
}

/// A product.
#[derive(Clone, Copy)]
pub(super) struct FloatProd(f64);

impl<T: Real> Running<T> for FloatProd {
    fn start() -> Self {
        Self(1.0)
    }

    fn push(&mut self, x: T) {
        self.0 *= x.cast::<f64>();
    }

    fn append(&mut self, later: &Self) {
        self.0 *= later.0;
    }

    fn value(&self) -> T {
        T::from_f64(self.0)
    }
}

/// Σ e^(x − max), with the greatest x.
#[derive(Clone, Copy)]
pub(super) struct LogSumExp {
    max: f64,
    sum: FloatSum,
}

impl LogSumExp {
    /// Makes room for a term at `max`; returns the factor of that term.
    fn rise(&mut self, max: f64) -> f64 {
        if max > self.max {
            self.sum.scale((self.max - max).exp());
            self.max = max;
            1.0
        } else if max == self.max {
            1.0
        } else if max < self.max {
            (max - self.max).exp()
        } else {
            // A NaN stays the maximum: nothing is greater or less.
            self.max = f64::NAN;
            f64::NAN
        }
    }
}

impl<T: Real> Running<T> for LogSumExp {
    fn start() -> Self {
        Self { max: f64::NEG_INFINITY, sum: FloatSum { sum: 0.0, error: 0.0 } }
    }

    fn push(&mut self, x: T) {
        let x = x.cast::<f64>();
        if x != f64::NEG_INFINITY {
            let term = self.rise(x);
            self.sum.add(term);
        }
    }

    fn append(&mut self, later: &Self) {
        if later.max != f64::NEG_INFINITY {
            let factor = self.rise(later.max);
            self.sum.add(later.sum.sum * factor);
            self.sum.error += later.sum.error * factor;
        }
    }

    fn value(&self) -> T {
        let empty = self.max == f64::NEG_INFINITY;
        T::from_f64(if empty { self.max } else { self.max + Real::ln(self.sum.total()) })
    }
}

/// The greatest element.
#[derive(Clone, Copy)]
pub(super) struct Greatest<T>(T);

impl<T: Number> Running<T> for Greatest<T> {
    fn start() -> Self {
        Self(T::LEAST)
    }

    fn push(&mut self, x: T) {
        self.0 = self.0.maximum(x);
    }

    fn append(&mut self, later: &Self) {
        self.push(later.0);
    }

    fn value(&self) -> T {
        self.0
    }
}

/// The least element.
#[derive(Clone, Copy)]
pub(super) struct Least<T>(T);

impl<T: Number> Running<T> for Least<T> {
    fn start() -> Self {
        Self(T::GREATEST)
    }

    fn push(&mut self, x: T) {
        self.0 = self.0.minimum(x);
    }

    fn append(&mut self, later: &Self) {
        self.push(later.0);
    }

    fn value(&self) -> T {
        self.0
    }
}

/// A sum modulo 2⁶⁴.
#[derive(Clone, Copy)]
pub(super) struct IntSum(i64);

impl<T: Int> Running<T> for IntSum {
    fn start() -> Self {
        Self(0)
    }

    fn push(&mut self, x: T) {
        self.0 = self.0.wrapping_add(x.to_i64());
    }

    fn append(&mut self, later: &Self) {
        self.0 = self.0.wrapping_add(later.0);
    }

    fn value(&self) -> T {
        T::from_i64(self.0)
    }
}

/// A product modulo 2⁶⁴.
#[derive(Clone, Copy)]
pub(super) struct IntProd(i64);

impl<T: Int> Running<T> for IntProd {
    fn start() -> Self {
        Self(1)
    }

    fn push(&mut self, x: T) {
        self.0 = self.0.wrapping_mul(x.to_i64());
    }

    fn append(&mut self, later: &Self) {
        self.0 = self.0.wrapping_mul(later.0);
    }

    fn value(&self) -> T {
        T::from_i64(self.0)
    }
}
