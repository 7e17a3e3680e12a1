//! How exactly each op must agree, as data: the class of its error bound, and the limits of elementary functions.
//!
//! Each file of [`ops`](crate::ops) states the models of its family beside the oracle, which takes its limits from them;
//! reports print them.

use std::fmt;

/// What bounds the error of an op for a dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ErrorModel {
    /// Nothing is rounded: equal bits, but for which NaN a computed NaN is.
    Exact,
    /// The exact result, rounded once; f16 and bf16 by way of f32, in which they are computed.
    Rounded,
    /// Within this many units in the last place of the format in which the dtype is computed: f64's own, else f32's.
    Ulp(f64),
    /// Within this many units, and more where the argument makes the function ill-conditioned: the first is the limit where
    /// it does not.
    ConditionedUlp(f64),
    /// γₙ·Σ|terms| with n the roundings that a term can pass through in the declared order of evaluation.
    Accumulated,
    /// The bounds of the steps, one put into the other.
    Composed,
}

impl ErrorModel {
    /// The limit in units in the last place, of the models that have one.
    #[must_use]
    pub fn limit(self) -> Option<f64> {
        match self {
            Self::Ulp(limit) | Self::ConditionedUlp(limit) => Some(limit),
            Self::Exact | Self::Rounded | Self::Accumulated | Self::Composed => None,
        }
    }
}

impl fmt::Display for ErrorModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.pad("exact"),
            Self::Rounded => f.pad("rounded once"),
            Self::Ulp(limit) => f.pad(&format!("{limit} ULP")),
            Self::ConditionedUlp(limit) => f.pad(&format!("{limit}+ ULP")),
            Self::Accumulated => f.pad("γₙ·Σ|terms|"),
            Self::Composed => f.pad("composed"),
        }
    }
}
