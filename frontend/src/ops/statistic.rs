//! Reductions composed from other ops: var, std, logsumexp, norm. Part of the `reduce` family; floats only.

use congruent_backend_api::ops::statistic::{Statistic, StatisticOp};
use congruent_backend_api::{Result, StatisticOps};

use crate::operand::{Axes, Operand, same_backend};
use crate::tensor::Tensor;

impl<B: StatisticOps + ?Sized> Tensor<B> {
    /// `op` over `axes`; `parameter` is the correction of `Var` and `Std`, the order of `Norm`, and else ignored.
    ///
    /// # Errors
    /// `DType` unless the tensor is a float; `Axis`; `Argument` for a NaN parameter or a norm of nothing that has no
    /// value; `Unsupported`; `OutOfMemory`.
    pub fn statistic(&self, op: StatisticOp, parameter: f64, axes: impl Into<Axes>, keepdim: bool) -> Result<Self> {
        let axes = axes.into();
        let mask = self.layout().shape().axis_mask(op.name(), axes.as_slice())?;
        Self::produce(
            self.backend(),
            self.dtype(),
            self.layout().shape().reduced(&mask, keepdim),
            |out| Statistic::new(op, parameter, self.view(), axes.as_slice(), out),
            |plan, out| self.backend().statistic(plan, self.storage(), out),
        )
    }

    /// `op` over `axes` into `out`, which has the shape with or without the reduced axes.
    ///
    /// # Errors
    /// As [`statistic`](Self::statistic), and `Shape` or `DType` when the result does not fit `out`.
    pub fn statistic_into(&self, op: StatisticOp, parameter: f64, axes: impl Into<Axes>, out: &mut Self) -> Result<()> {
        same_backend(op.name(), out.backend(), &[Operand::Tensor(self)])?;
        let axes = axes.into();
        out.overwrite(
            |_, out| Statistic::new(op, parameter, self.view(), axes.as_slice(), out),
            |plan, _, out| self.backend().statistic(plan, self.storage(), out),
        )
    }

    /// The variance Σ (x − mean)² / max(n − correction, 0).
    ///
    /// # Errors
    /// As [`statistic`](Self::statistic).
    pub fn var(&self, correction: f64, axes: impl Into<Axes>, keepdim: bool) -> Result<Self> {
        self.statistic(StatisticOp::Var, correction, axes, keepdim)
    }

    /// The square root of the [variance](Self::var).
    ///
    /// # Errors
    /// As [`statistic`](Self::statistic).
    pub fn std(&self, correction: f64, axes: impl Into<Axes>, keepdim: bool) -> Result<Self> {
        self.statistic(StatisticOp::Std, correction, axes, keepdim)
    }

    /// ln Σ eˣ, without overflow.
    ///
    /// # Errors
    /// As [`statistic`](Self::statistic).
    pub fn logsumexp(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Self> {
        self.statistic(StatisticOp::LogSumExp, 0.0, axes, keepdim)
    }

    /// The norm (Σ |x|^ord)^(1/ord), without overflow; 0 counts nonzero elements, ±∞ is the greatest or least |x|.
    ///
    /// # Errors
    /// As [`statistic`](Self::statistic).
    pub fn norm(&self, ord: f64, axes: impl Into<Axes>, keepdim: bool) -> Result<Self> {
        self.statistic(StatisticOp::Norm, ord, axes, keepdim)
    }
}
