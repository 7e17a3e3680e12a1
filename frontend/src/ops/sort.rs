//! Sorting along an axis, the first k, searches in sorted rows, distinct elements, and quantiles.

use congruent_backend_api::ops::sort::{SearchSorted, Sort, SortOp};
use congruent_backend_api::{
    BinaryOps, CompareOps, CopyOps, DType, Error, ErrorKind, IndexOps, ReduceOps, Result, Shape, SortOps, UnaryOps,
    axis,
};

use crate::operand::{Operand, same_backend};
use crate::tensor::Tensor;

impl<B: SortOps + ?Sized> Tensor<B> {
    /// The elements in order along an axis: stable, NaN above +∞, −0 equal to +0.
    ///
    /// # Errors
    /// `Axis`; `Unsupported`; `OutOfMemory`.
    pub fn sort(&self, axis: isize, descending: bool) -> Result<Self> {
        self.ordered(SortOp::Sort, *self.layout().shape(), axis, descending)
    }

    /// The positions, as i64, of the elements in the order of [`sort`](Self::sort).
    ///
    /// # Errors
    /// As [`sort`](Self::sort).
    pub fn argsort(&self, axis: isize, descending: bool) -> Result<Self> {
        self.ordered(SortOp::Argsort, *self.layout().shape(), axis, descending)
    }

    /// `op` along an axis into `out`, which has the shape of this tensor; for [`SortOp::Topk`] it has k elements along the
    /// axis.
    ///
    /// # Errors
    /// As [`sort`](Self::sort); `Shape` or `DType` when the result does not fit `out`; `Argument` when k is too large.
    pub fn sort_into(&self, op: SortOp, axis: isize, descending: bool, out: &mut Self) -> Result<()> {
        same_backend(op.name(), out.backend(), &[Operand::Tensor(self)])?;
        out.overwrite(
            |_, out| Sort::new(op, self.view(), axis, descending, out),
            |plan, _, out| self.backend().sort(plan, self.storage(), out),
        )
    }

    fn ordered(&self, op: SortOp, shape: Shape, axis: isize, descending: bool) -> Result<Self> {
        Self::produce(
            self.backend(),
            op.out_dtype(self.dtype()),
            shape,
            |out| Sort::new(op, self.view(), axis, descending, out),
            |plan, out| self.backend().sort(plan, self.storage(), out),
        )
    }

    /// For each of `values`, how many elements of its row of this tensor are less, or with `right` less or equal: the
    /// place, as i64, at which the value keeps the row sorted. Rows are the last axis; the others broadcast to those of
    /// `values`, so that one row serves values of any shape.
    ///
    /// # Errors
    /// `DType` when the dtypes differ; `Axis` for a tensor of rank 0; `Shape` when the rows do not broadcast;
    /// `Argument` for tensors of two backends; `Unsupported`; `OutOfMemory`.
    pub fn searchsorted(&self, values: &Self, right: bool) -> Result<Self> {
        same_backend("searchsorted", self.backend(), &[Operand::Tensor(values)])?;
        Self::produce(
            self.backend(),
            DType::I64,
            *values.layout().shape(),
            |out| SearchSorted::new(self.view(), values.view(), right, out),
            |plan, out| self.backend().search_sorted(plan, self.storage(), values.storage(), out),
        )
    }

    /// [`searchsorted`](Self::searchsorted) into `out`, which is i64 and has the shape of `values`.
    ///
    /// # Errors
    /// As [`searchsorted`](Self::searchsorted), and `Shape` or `DType` when the result does not fit `out`.
    pub fn searchsorted_into(&self, values: &Self, right: bool, out: &mut Self) -> Result<()> {
        same_backend("searchsorted", out.backend(), &[Operand::Tensor(self), Operand::Tensor(values)])?;
        out.overwrite(
            |_, out| SearchSorted::new(self.view(), values.view(), right, out),
            |plan, _, out| self.backend().search_sorted(plan, self.storage(), values.storage(), out),
        )
    }
}

impl<B: SortOps + IndexOps + ?Sized> Tensor<B> {
    /// The `k` greatest elements along an axis, or the least without `largest`, in order, and their positions as i64; of
    /// equal elements the first ones. NaN counts as the greatest.
    ///
    /// # Errors
    /// `Argument` when the axis has fewer than `k` elements; otherwise as [`sort`](Self::sort).
    pub fn topk(&self, k: usize, axis: isize, largest: bool) -> Result<(Self, Self)> {
        let shape = Sort::topk_shape(self.shape(), k, axis)?;
        let positions = self.ordered(SortOp::Topk, shape, axis, largest)?;
        Ok((self.gather(axis, &positions)?, positions))
    }
}

impl<B: SortOps + IndexOps + ReduceOps + UnaryOps + BinaryOps + CompareOps + CopyOps + ?Sized> Tensor<B> {
    /// The distinct elements in ascending order: NaN once, and of equal elements (zeros of both signs) the one that comes
    /// first in row-major order. Synchronises once, to learn how many there are.
    ///
    /// # Errors
    /// What the data of an earlier op caused; `Unsupported`; `OutOfMemory`.
    pub fn unique(&self) -> Result<Self> {
        distinct(&self.flatten()?.sort(0, false)?)
    }

    /// The [distinct](Self::unique) elements, and for each how often it occurs, as i64.
    ///
    /// # Errors
    /// As [`unique`](Self::unique).
    pub fn unique_counts(&self) -> Result<(Self, Self)> {
        let sorted = self.flatten()?.sort(0, false)?;
        let unique = distinct(&sorted)?;
        let counts = sorted.searchsorted(&unique, true)?.sub(&sorted.searchsorted(&unique, false)?)?;
        Ok((unique, counts))
    }

    /// The [distinct](Self::unique) elements, and for each element of this tensor, in its shape, the position of the one
    /// that equals it, as i64.
    ///
    /// # Errors
    /// As [`unique`](Self::unique).
    pub fn unique_inverse(&self) -> Result<(Self, Self)> {
        let unique = self.unique()?;
        let inverse = unique.searchsorted(self, false)?;
        Ok((unique, inverse))
    }
}

/// The elements of a sorted vector that differ from the one before.
fn distinct<B>(sorted: &Tensor<B>) -> Result<Tensor<B>>
where
    B: SortOps + IndexOps + ReduceOps + UnaryOps + BinaryOps + CompareOps + CopyOps + ?Sized,
{
    let Some(pairs) = sorted.count().checked_sub(1).filter(|&pairs| pairs > 0) else { return Ok(sorted.clone()) };
    let (before, after) = (sorted.narrow(0, 0, pairs)?, sorted.narrow(0, 1, pairs)?);
    let mut new = before.ne(&after)?;
    if sorted.dtype().is_float() {
        // After a NaN there are only more of them.
        new = new.logical_and(&before.is_nan()?.logical_not()?)?;
    }
    let first = Tensor::ones(sorted.backend(), [1], DType::Bool)?;
    sorted.masked_select(&Tensor::cat(&[&first, &new], 0)?)
}

impl<B: SortOps + UnaryOps + BinaryOps + CompareOps + CopyOps + ?Sized> Tensor<B> {
    /// The quantile `q` along `along`, or of all elements for `None`: at position q·(n − 1) of the sorted elements,
    /// interpolated linearly between neighbours. NaN if any element is NaN.
    ///
    /// # Errors
    /// `Argument` unless 0 ≤ q ≤ 1, and for the quantile of nothing; `DType` unless the tensor is a float; `Axis`;
    /// `Unsupported`; `OutOfMemory`.
    pub fn quantile(&self, q: f64, along: impl Into<Option<isize>>, keepdim: bool) -> Result<Self> {
        const OP: &str = "quantile";
        if !self.dtype().is_float() {
            let message = format!("`quantile` is not defined for {}, only for floats; cast first", self.dtype());
            return Err(Error::new(ErrorKind::DType, OP, message));
        }
        if !(0.0..=1.0).contains(&q) {
            return Err(Error::new(ErrorKind::Argument, OP, format!("q is {q}; it must be between 0 and 1")));
        }
        let Some(along) = along.into() else {
            let quantile = self.flatten()?.quantile(q, 0, false)?;
            return if keepdim { quantile.reshape(vec![1; self.rank()]) } else { Ok(quantile) };
        };
        let along = axis(OP, along, self.rank())?;
        let size = self.shape()[along];
        let mut mask = [false; congruent_backend_api::MAX_RANK];
        mask[along] = true;
        let shape = self.layout().shape().reduced(&mask, keepdim);
        if size == 0 && shape.count() > 0 {
            let message =
                format!("no elements along axis {along} of shape {:?}, and nothing has no quantile", self.shape());
            return Err(Error::new(ErrorKind::Argument, OP, message));
        }
        if shape.count() == 0 {
            return Self::zeros(self.backend(), &*shape, self.dtype());
        }
        let sorted = self.sort(along as isize, false)?;
        let wide = if self.dtype().size() < 4 { DType::F32 } else { self.dtype() };
        let at = |position: usize| {
            let layout = sorted.layout().select(along as isize, position as isize)?;
            sorted.with_layout(layout).cast(wide)
        };
        let place = q * (size - 1) as f64;
        let (below, part) = (place.floor() as usize, place.fract());
        let (low, last) = (at(below)?, at(size - 1)?);
        let value = if part == 0.0 {
            low
        } else {
            let high = at(below + 1)?;
            // Two weights, since the difference of the neighbours may overflow; between equal ones, infinities too,
            // there is nothing to round.
            let between = low.mul(1.0 - part)?.add(&high.mul(part)?)?;
            low.eq(&high)?.where_cond(&low, &between)?
        };
        last.is_nan()?.where_cond(&last, &value)?.cast(self.dtype())?.reshape(&*shape)
    }

    /// The median along `along`, or of all elements for `None`: the middle one, or the mean of the two in the middle.
    /// NaN if any element is NaN.
    ///
    /// # Errors
    /// As [`quantile`](Self::quantile).
    pub fn median(&self, along: impl Into<Option<isize>>, keepdim: bool) -> Result<Self> {
        self.quantile(0.5, along, keepdim)
    }
}
