//! Reductions over any set of axes, and the positions of extremes.

use congruent_backend_api::ops::reduce::{ArgReduce, ArgReduceOp, Reduce, ReduceOp};
use congruent_backend_api::{CopyOps, DType, ReduceOps, Result};

use crate::operand::{Axes, Operand, same_backend};
use crate::tensor::Tensor;

impl<B: ReduceOps + ?Sized> Tensor<B> {
    /// `op` over `axes`, which keep size 1 with `keepdim` and are dropped without.
    ///
    /// # Errors
    /// `DType` when the op is not defined for the dtype; `Axis`; `Argument` when nothing is reduced and the op has no
    /// value for that; `Unsupported`; `OutOfMemory`.
    pub fn reduce(&self, op: ReduceOp, axes: impl Into<Axes>, keepdim: bool) -> Result<Self> {
        let axes = axes.into();
        Self::produce(
            self.backend(),
            op.out_dtype(self.dtype()),
            Reduce::shape(op, self.shape(), axes.as_slice(), keepdim)?,
            |out| Reduce::new(op, self.view(), axes.as_slice(), out),
            |plan, out| self.backend().reduce(plan, self.storage(), out),
        )
    }

    /// `op` over `axes` into `out`, which has the shape with or without the reduced axes.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce), and `Shape` or `DType` when the result does not fit `out`.
    pub fn reduce_into(&self, op: ReduceOp, axes: impl Into<Axes>, out: &mut Self) -> Result<()> {
        same_backend(op.name(), out.backend(), &[Operand::Tensor(self)])?;
        let axes = axes.into();
        out.overwrite(
            |_, out| Reduce::new(op, self.view(), axes.as_slice(), out),
            |plan, _, out| self.backend().reduce(plan, self.storage(), out),
        )
    }

    /// The sum; integers keep their dtype and wrap, of nothing it is 0.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn sum(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Self> {
        self.reduce(ReduceOp::Sum, axes, keepdim)
    }

    /// The product; integers keep their dtype and wrap, of nothing it is 1.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn prod(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Self> {
        self.reduce(ReduceOp::Prod, axes, keepdim)
    }

    /// The greatest element; NaN if any is.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn max(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Self> {
        self.reduce(ReduceOp::Max, axes, keepdim)
    }

    /// The least element; NaN if any is.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn min(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Self> {
        self.reduce(ReduceOp::Min, axes, keepdim)
    }

    /// The mean; integers truncate, of nothing it is NaN.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn mean(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Self> {
        self.reduce(ReduceOp::Mean, axes, keepdim)
    }

    /// Whether any element is not zero; the result is bool.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn any(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Self> {
        self.reduce(ReduceOp::Any, axes, keepdim)
    }

    /// Whether no element is zero; the result is bool.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn all(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Self> {
        self.reduce(ReduceOp::All, axes, keepdim)
    }

    /// The positions, as i64, of the extremes along `axis` into `out`, which has the shape with or without that axis.
    ///
    /// # Errors
    /// As [`arg_reduce`](Self::arg_reduce), and `Shape` or `DType` when the result does not fit `out`.
    pub fn arg_reduce_into(&self, op: ArgReduceOp, axis: isize, out: &mut Self) -> Result<()> {
        same_backend(op.name(), out.backend(), &[Operand::Tensor(self)])?;
        out.overwrite(
            |_, out| ArgReduce::new(op, self.view(), axis, out),
            |plan, _, out| self.backend().arg_reduce(plan, self.storage(), out),
        )
    }
}

impl<B: ReduceOps + CopyOps + ?Sized> Tensor<B> {
    /// The positions, as i64, of the extremes along `axis`, or in the flattened tensor for `None`.
    ///
    /// # Errors
    /// `DType` for bool; `Axis`; `Argument` when there is nothing to search; `Unsupported`; `OutOfMemory`.
    pub fn arg_reduce(&self, op: ArgReduceOp, axis: impl Into<Option<isize>>, keepdim: bool) -> Result<Self> {
        let Some(axis) = axis.into() else {
            let position = self.flatten()?.arg_reduce(op, 0, false)?;
            return if keepdim { position.reshape(vec![1; self.rank()]) } else { Ok(position) };
        };
        let mask = self.layout().shape().axis_mask(op.name(), Some(&[axis]))?;
        let shape = self.layout().shape().reduced(&mask, keepdim);
        Self::produce(
            self.backend(),
            DType::I64,
            shape,
            |out| ArgReduce::new(op, self.view(), axis, out),
            |plan, out| self.backend().arg_reduce(plan, self.storage(), out),
        )
    }

    /// The first position of the greatest element along `axis`, or in the flattened tensor for `None`; NaN counts as
    /// the greatest.
    ///
    /// # Errors
    /// As [`arg_reduce`](Self::arg_reduce).
    pub fn argmax(&self, axis: impl Into<Option<isize>>, keepdim: bool) -> Result<Self> {
        self.arg_reduce(ArgReduceOp::Argmax, axis, keepdim)
    }

    /// The first position of the least element along `axis`, or in the flattened tensor for `None`; NaN counts as
    /// the least.
    ///
    /// # Errors
    /// As [`arg_reduce`](Self::arg_reduce).
    pub fn argmin(&self, axis: impl Into<Option<isize>>, keepdim: bool) -> Result<Self> {
        self.arg_reduce(ArgReduceOp::Argmin, axis, keepdim)
    }
}
