//! Filling, and copying between any two layouts and dtypes.

use crate::backend::{Backend, Storage};
use crate::dtype::{DType, Scalar};
use crate::elementwise::{Elementwise, Source, View};
use crate::error::Result;

/// A validated fill with one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fill {
    value: Scalar,
    elementwise: Elementwise<1>,
}

impl Fill {
    /// Plans `out = value`.
    ///
    /// # Errors
    /// `DType` or `Argument` when the value does not fit the dtype of `out`; `Argument` when `out` overlaps itself.
    pub fn new(value: Scalar, out: View<'_>) -> Result<Self> {
        let value = value.to_dtype("fill", out.dtype)?;
        Ok(Self { value, elementwise: Elementwise::new("fill", &[], out)? })
    }

    /// The value, rounded to the dtype.
    #[must_use]
    pub fn value(&self) -> Scalar {
        self.value
    }

    /// The dtype.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.elementwise.out_dtype()
    }

    /// The output and its loop nest.
    #[must_use]
    pub fn elementwise(&self) -> &Elementwise<1> {
        &self.elementwise
    }

    /// Checks the storage of a call; see [`Elementwise::check`].
    ///
    /// # Errors
    /// `Argument` when the storage does not fit the plan.
    pub fn check<S: Storage>(&self, out: &S) -> Result<()> {
        self.elementwise.check(&[], out)
    }
}

/// A validated copy; where the dtypes differ it is a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Copy {
    dtype: DType,
    elementwise: Elementwise<2>,
}

impl Copy {
    /// Plans `out = x` in the dtype of `out`; `x` broadcasts to `out`'s shape.
    ///
    /// # Errors
    /// `Shape` when `x` does not broadcast to `out`; `Argument` when `out` overlaps itself.
    pub fn new(x: View<'_>, out: View<'_>) -> Result<Self> {
        let name = if x.dtype == out.dtype { "copy" } else { "cast" };
        Ok(Self { dtype: x.dtype, elementwise: Elementwise::new(name, &[(Source::View(x), x.dtype)], out)? })
    }

    /// The dtype of the input.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dtype of the output.
    #[must_use]
    pub fn out_dtype(&self) -> DType {
        self.elementwise.out_dtype()
    }

    /// The operands and their loop nest.
    #[must_use]
    pub fn elementwise(&self) -> &Elementwise<2> {
        &self.elementwise
    }

    /// Checks the storages of a call; see [`Elementwise::check`].
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan.
    pub fn check<S: Storage>(&self, x: &S, out: &S) -> Result<()> {
        self.elementwise.check(&[Some(x)], out)
    }
}

/// Filling and copying.
pub trait CopyOps: Backend {
    /// Writes the plan's value into `out`.
    ///
    /// # Contract
    /// - Every element of the planned output view is written, nothing else.
    ///
    /// # Errors
    /// `Argument` when the storage does not fit the plan, `Unsupported`, and what the device reports.
    fn fill(&self, plan: &Fill, out: &mut Self::Storage) -> Result<()>;

    /// Writes `x`, cast to the output's dtype, into `out`.
    ///
    /// # Contract
    /// - Between equal dtypes bits are copied unchanged, NaN payloads too.
    /// - To a float: rounded once to nearest, ties to even; overflow gives ±∞, NaN stays NaN.
    /// - Float to integer: truncated, saturated at the ends of the range, NaN gives 0.
    /// - Integer to integer: wraps, keeping the low bits.
    /// - To bool: anything but zero is true, NaN too. From bool: 0 and 1.
    /// - Every element of the planned output view is written, nothing else.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, and what the device reports.
    fn copy(&self, plan: &Copy, x: &Self::Storage, out: &mut Self::Storage) -> Result<()>;
}
