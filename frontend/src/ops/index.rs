//! Reading and writing at positions that are data. Indices are i64, i32, u32 or u8 tensors of any layout.
//!
//! An index value that is negative or not less than its axis reads 0, or writes nothing; the next synchronising call
//! ([`to_vec`](Tensor::to_vec), [`synchronize`](Tensor::synchronize)) then returns `IndexOutOfRange`. In these tensors
//! negative values do not count from the end.

use congruent_backend_api::ops::index::{Gather, Nonzero, Scatter, ScatterOp};
use congruent_backend_api::{
    BinaryOps, CompareOps, CopyOps, DType, Error, ErrorKind, IndexOps, Layout, ReduceOps, Result, Scalar, Shape, axis,
};

use crate::operand::{Operand, same_backend};
use crate::tensor::Tensor;

impl<B: IndexOps + ?Sized> Tensor<B> {
    /// `out[…, j, …] = x[…, index[…, j, …], …]` along one axis: NumPy's `take_along_axis`. The index has this tensor's
    /// rank; on the other axes the two broadcast.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::Tensor;
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::from_slice(&device, &[1.0_f32, 2.0, 3.0, 4.0], [2, 2])?;
    /// let index = Tensor::from_slice(&device, &[0_i64, 1, 1, 0], [2, 2])?;
    /// assert_eq!(x.gather(1, &index)?.to_vec::<f32>()?, [1.0, 2.0, 4.0, 3.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `DType` when the index is not of an integer dtype; `Axis`; `Shape` when ranks differ or sizes do not broadcast;
    /// `Argument` for tensors of two backends; `Unsupported`; `OutOfMemory`.
    pub fn gather(&self, axis: isize, index: &Self) -> Result<Self> {
        same_backend("gather", self.backend(), &[Operand::Tensor(index)])?;
        Self::produce(
            self.backend(),
            self.dtype(),
            Gather::shape(self.shape(), axis, index.shape())?,
            |out| Gather::new(self.view(), axis, index.view(), out),
            |plan, out| self.backend().gather(plan, self.storage(), index.storage(), out),
        )
    }

    /// [`gather`](Self::gather) into `out`, to whose shape the index broadcasts.
    ///
    /// # Errors
    /// As [`gather`](Self::gather), and `Shape` or `DType` when the result does not fit `out`.
    pub fn gather_into(&self, axis: isize, index: &Self, out: &mut Self) -> Result<()> {
        same_backend("gather", out.backend(), &[Operand::Tensor(self), Operand::Tensor(index)])?;
        out.overwrite(
            |_, out| Gather::new(self.view(), axis, index.view(), out),
            |plan, _, out| self.backend().gather(plan, self.storage(), index.storage(), out),
        )
    }

    /// The positions of one axis that a vector of indices names: `out[…, j, …] = x[…, index[j], …]`.
    ///
    /// # Errors
    /// As [`gather`](Self::gather), and `Shape` when the index is not of rank 1.
    pub fn index_select(&self, along: isize, index: &Self) -> Result<Self> {
        let along = axis("index_select", along, self.rank())?;
        self.gather(along as isize, &index.spread("index_select", along, self.rank())?)
    }

    /// The rows of this table that an index of any shape names: shape `index.shape ++ table.shape[1..]`.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{DType, Tensor};
    /// # let device = congruent::backend("cpu")?;
    /// let table = Tensor::arange(&device, 0..6, DType::I32)?.reshape([3, 2])?;
    /// let tokens = Tensor::from_slice(&device, &[2_u8, 0], [1, 2])?;
    /// let rows = table.embedding(&tokens)?;
    /// assert_eq!((rows.shape(), rows.to_vec::<i32>()?), (&[1, 2, 2][..], vec![4, 5, 0, 1]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`gather`](Self::gather), and `Axis` when the table has rank 0.
    pub fn embedding(&self, index: &Self) -> Result<Self> {
        axis("embedding", 0, self.rank())?;
        if index.rank() == 0 {
            return self.embedding(&index.unsqueeze(0)?)?.squeeze(0);
        }
        let mut rows = self.clone();
        for _ in 1..index.rank() {
            rows = rows.unsqueeze(1)?;
        }
        let mut index = index.clone();
        for _ in 1..self.rank() {
            index = index.unsqueeze(-1)?;
        }
        rows.gather(0, &index)
    }

    /// A vector of indices as a view of rank `rank` that lies along one axis.
    fn spread(&self, op: &'static str, along: usize, rank: usize) -> Result<Self> {
        if self.rank() != 1 {
            let message = format!("the index has shape {:?}, it must have rank 1; `flatten` it", self.shape());
            return Err(Error::new(ErrorKind::Shape, op, message));
        }
        let (mut sizes, mut strides) = (vec![1; rank], vec![0; rank]);
        (sizes[along], strides[along]) = (self.shape()[0], self.layout().strides()[0]);
        Ok(self.with_layout(Layout::new(op, &sizes, &strides, self.layout().offset())?))
    }
}

impl<B: IndexOps + CopyOps + ?Sized> Tensor<B> {
    /// The elements at flat, row-major positions: NumPy's `take` without an axis. The result has the index's shape.
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    pub fn take(&self, index: &Self) -> Result<Self> {
        self.flatten()?.embedding(index)
    }

    /// This tensor after `out[…, index[…, j, …], …] ∘= src[…, j, …]` along one axis, where `op` says what is made of the old
    /// value and the source. Index and source broadcast to one shape, which is this tensor's but for the axis.
    ///
    /// # Errors
    /// `DType` when the op is not defined for this tensor, the source has another dtype, or the index is not of an integer
    /// dtype; `Axis`; `Shape` when ranks differ or sizes do not broadcast; `Argument` for tensors of two backends;
    /// `Unsupported`; `OutOfMemory`.
    pub fn scatter_with(&self, op: ScatterOp, axis: isize, index: &Self, src: &Self) -> Result<Self> {
        let mut out = self.clone();
        out.scatter_assign(op, axis, index, src)?;
        Ok(out)
    }

    /// [`scatter_with`](Self::scatter_with) in place.
    ///
    /// # Errors
    /// As [`scatter_with`](Self::scatter_with).
    pub fn scatter_assign(&mut self, op: ScatterOp, axis: isize, index: &Self, src: &Self) -> Result<()> {
        let backend = self.backend().clone();
        same_backend(op.name(), &backend, &[Operand::Tensor(index), Operand::Tensor(src)])?;
        self.modify(
            |out| Scatter::new(op, axis, index.view(), src.view(), out),
            |plan, out| backend.scatter(plan, index.storage(), src.storage(), out),
        )
    }

    /// This tensor with elements replaced by sources; of several for one element the last in row-major order stays.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{DType, Tensor};
    /// # let device = congruent::backend("cpu")?;
    /// let index = Tensor::from_slice(&device, &[2_i32, 0, 2], [3])?;
    /// let src = Tensor::from_slice(&device, &[1.0_f32, 2.0, 3.0], [3])?;
    /// let x = Tensor::ones(&device, [3], DType::F32)?;
    /// assert_eq!(x.scatter(0, &index, &src)?.to_vec::<f32>()?, [2.0, 1.0, 3.0]);
    /// assert_eq!(x.scatter_add(0, &index, &src)?.to_vec::<f32>()?, [3.0, 1.0, 5.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`scatter_with`](Self::scatter_with).
    pub fn scatter(&self, axis: isize, index: &Self, src: &Self) -> Result<Self> {
        self.scatter_with(ScatterOp::Set, axis, index, src)
    }

    /// This tensor with all sources of an element added to it, in an order that is the same in every run.
    ///
    /// # Errors
    /// As [`scatter_with`](Self::scatter_with).
    pub fn scatter_add(&self, axis: isize, index: &Self, src: &Self) -> Result<Self> {
        self.scatter_with(ScatterOp::Add, axis, index, src)
    }

    /// The greatest of each element and its sources; NaN if any is.
    ///
    /// # Errors
    /// As [`scatter_with`](Self::scatter_with).
    pub fn scatter_max(&self, axis: isize, index: &Self, src: &Self) -> Result<Self> {
        self.scatter_with(ScatterOp::Max, axis, index, src)
    }

    /// The least of each element and its sources; NaN if any is.
    ///
    /// # Errors
    /// As [`scatter_with`](Self::scatter_with).
    pub fn scatter_min(&self, axis: isize, index: &Self, src: &Self) -> Result<Self> {
        self.scatter_with(ScatterOp::Min, axis, index, src)
    }

    /// Adds the parts of `src` to the positions of one axis that a vector of indices names:
    /// `x[…, index[j], …] += src[…, j, …]`.
    ///
    /// # Errors
    /// As [`scatter_with`](Self::scatter_with), and `Shape` when the index is not of rank 1.
    pub fn index_add(&self, along: isize, index: &Self, src: &Self) -> Result<Self> {
        let mut out = self.clone();
        out.index_add_assign(along, index, src)?;
        Ok(out)
    }

    /// [`index_add`](Self::index_add) in place.
    ///
    /// # Errors
    /// As [`index_add`](Self::index_add).
    pub fn index_add_assign(&mut self, along: isize, index: &Self, src: &Self) -> Result<()> {
        let along = axis("index_add", along, self.rank())?;
        let index = index.spread("index_add", along, self.rank())?;
        self.scatter_assign(ScatterOp::Add, along as isize, &index, src)
    }

    /// The gradient of [`embedding`](Self::embedding) with respect to a table of `rows` rows, where `self` is the gradient
    /// of its result: each row gets the sum of the gradients at the places where the index names it.
    ///
    /// # Errors
    /// As [`scatter_with`](Self::scatter_with), and `Shape` when the gradient's shape does not begin with the index's.
    pub fn embedding_grad(&self, index: &Self, rows: usize) -> Result<Self> {
        const OP: &str = "embedding_grad";
        let Some(row) = self.shape().strip_prefix(index.shape()) else {
            let message =
                format!("the gradient's shape {:?} does not begin with the index's, {:?}", self.shape(), index.shape());
            return Err(Error::new(ErrorKind::Shape, OP, message));
        };
        let mut table = Self::zeros(self.backend(), [&[rows], row].concat(), self.dtype())?;
        let gradient = self.reshape([&[index.count()], row].concat())?;
        table.index_add_assign(0, &index.flatten()?, &gradient)?;
        Ok(table)
    }

    /// This tensor with the elements at flat, row-major positions replaced: NumPy's `put`. `src` broadcasts to the index.
    ///
    /// # Errors
    /// As [`scatter_with`](Self::scatter_with).
    pub fn put(&self, index: &Self, src: &Self) -> Result<Self> {
        let src = src.expand(index.shape())?.flatten()?;
        self.flatten()?.scatter(0, &index.flatten()?, &src)?.reshape(self.shape())
    }

    /// For each index a row of `classes` elements, 1 at the index and 0 elsewhere: shape `index.shape ++ [classes]`.
    ///
    /// # Errors
    /// `DType` when this tensor is not of an integer dtype; `Shape`; `Unsupported`; `OutOfMemory`.
    pub fn one_hot(&self, classes: usize, dtype: DType) -> Result<Self> {
        let shape = [self.shape(), &[classes]].concat();
        let one = Self::ones(self.backend(), vec![1; shape.len()], dtype)?;
        let mut out = Self::zeros(self.backend(), shape, dtype)?;
        out.scatter_assign(ScatterOp::Set, -1, &self.unsqueeze(-1)?, &one)?;
        Ok(out)
    }

    /// How often each of the numbers below `bins` occurs, as i64. An element outside them is `IndexOutOfRange` from the
    /// next synchronising call.
    ///
    /// # Errors
    /// `DType` when this tensor is not of an integer dtype; `Unsupported`; `OutOfMemory`.
    pub fn bincount(&self, bins: usize) -> Result<Self> {
        let one = Self::ones(self.backend(), [1], DType::I64)?;
        let mut counts = Self::zeros(self.backend(), [bins], DType::I64)?;
        counts.scatter_assign(ScatterOp::Add, 0, &self.flatten()?, &one)?;
        Ok(counts)
    }

    /// The flat, row-major positions of the first `room` nonzero elements as i64; what is left becomes −1. It does not
    /// synchronise, as [`flatnonzero`](Self::flatnonzero) must to learn how many there are.
    ///
    /// # Errors
    /// `Unsupported`; `OutOfMemory`.
    pub fn flatnonzero_static(&self, room: usize) -> Result<Self> {
        let mask = self.cast(DType::Bool)?;
        Self::produce(
            self.backend(),
            DType::I64,
            Shape::new("nonzero", &[room])?,
            |out| Nonzero::new(mask.view(), out),
            |plan, out| self.backend().nonzero(plan, mask.storage(), out),
        )
    }
}

impl<B: IndexOps + CopyOps + ReduceOps + ?Sized> Tensor<B> {
    /// The flat, row-major positions of the nonzero elements (NaN is one), ascending, as i64. Synchronises once, to learn
    /// how many there are.
    ///
    /// # Errors
    /// What the data of an earlier op caused; `Unsupported`; `OutOfMemory`.
    pub fn flatnonzero(&self) -> Result<Self> {
        let mask = self.cast(DType::Bool)?;
        mask.flatnonzero_static(mask.count_true()?)
    }

    /// How many elements of a bool tensor are true. Synchronises once.
    pub(crate) fn count_true(&self) -> Result<usize> {
        /// What is added up in bytes, which hold it, before numbers of eight bytes are: memory is read and written less.
        const IN_BYTES: usize = 128;
        let bytes = self.cast(DType::U8)?.flatten()?;
        let columns = bytes.count() / IN_BYTES;
        let whole = IN_BYTES * columns;
        let sums = bytes.narrow(0, 0, whole)?.reshape([IN_BYTES, columns])?.sum(0, false)?;
        let sums = Self::cat(&[&sums, &bytes.narrow(0, whole, bytes.count() - whole)?], 0)?;
        Ok(sums.cast(DType::I64)?.sum((), false)?.item::<i64>()? as usize)
    }

    /// The elements where a bool mask is true, in row-major order; the two broadcast. Synchronises once, to learn how many
    /// there are.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::Tensor;
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::from_slice(&device, &[3.0_f32, -1.0, 2.0], [3])?;
    /// assert_eq!(x.masked_select(&x.gt(0.0)?)?.to_vec::<f32>()?, [3.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `DType` when the mask is not bool; `Shape` when the two do not broadcast; what the data of an earlier op caused;
    /// `Unsupported`; `OutOfMemory`.
    pub fn masked_select(&self, mask: &Self) -> Result<Self> {
        const OP: &str = "masked_select";
        same_backend(OP, self.backend(), &[Operand::Tensor(mask)])?;
        check_mask(OP, mask.dtype())?;
        let shape = Shape::broadcast(OP, &[self.shape(), mask.shape()])?;
        self.expand(&shape[..])?.take(&mask.expand(&shape[..])?.flatnonzero()?)
    }
}

impl<B: IndexOps + CopyOps + ReduceOps + BinaryOps + ?Sized> Tensor<B> {
    /// The coordinates of the nonzero elements (NaN is one) in row-major order, one row each: i64 of shape `[n, rank]`.
    /// Synchronises once, to learn how many there are.
    ///
    /// # Errors
    /// What the data of an earlier op caused; `Unsupported`; `OutOfMemory`.
    pub fn nonzero(&self) -> Result<Self> {
        let flat = self.flatnonzero()?;
        let mut out = Self::zeros(self.backend(), [flat.count(), self.rank()], DType::I64)?;
        let mut rest = flat;
        for axis in (0..self.rank()).rev() {
            let size = self.shape()[axis].max(1) as i64;
            out.assign((.., axis), &rest.modulo(size)?)?;
            rest = rest.div(size)?;
        }
        Ok(out)
    }
}

impl<B: CompareOps + ?Sized> Tensor<B> {
    /// This tensor with `value` where a bool mask is true; the two broadcast.
    ///
    /// # Errors
    /// As [`where_cond`](Self::where_cond).
    pub fn masked_fill(&self, mask: &Self, value: impl Into<Scalar>) -> Result<Self> {
        check_mask("masked_fill", mask.dtype())?;
        mask.where_cond(value.into(), self)
    }

    /// [`masked_fill`](Self::masked_fill) in place; the mask broadcasts to this tensor.
    ///
    /// # Errors
    /// As [`where_cond_into`](Self::where_cond_into).
    pub fn masked_fill_assign(&mut self, mask: &Self, value: impl Into<Scalar>) -> Result<()> {
        check_mask("masked_fill", mask.dtype())?;
        mask.where_cond_into(value.into(), Operand::Output, self)
    }
}

impl<B: CompareOps + BinaryOps + CopyOps + ?Sized> Tensor<B> {
    /// The matrices of the last two axes with zeros above diagonal `k` (0 is the main one, 1 the one above it).
    ///
    /// # Errors
    /// `Axis` when there are fewer than two axes; `Unsupported`; `OutOfMemory`.
    pub fn tril(&self, k: i64) -> Result<Self> {
        self.triangle("tril", k, true)
    }

    /// The matrices of the last two axes with zeros below diagonal `k` (0 is the main one, 1 the one above it).
    ///
    /// # Errors
    /// `Axis` when there are fewer than two axes; `Unsupported`; `OutOfMemory`.
    pub fn triu(&self, k: i64) -> Result<Self> {
        self.triangle("triu", k, false)
    }

    fn triangle(&self, op: &'static str, k: i64, lower: bool) -> Result<Self> {
        let [row, column] =
            [axis(op, -2, self.rank())?, axis(op, -1, self.rank())?].map(|axis| self.shape()[axis] as i64);
        let rows = Self::arange(self.backend(), 0..row, DType::I64)?.unsqueeze(-1)?;
        let columns = Self::arange(self.backend(), 0..column, DType::I64)?;
        // Past either corner every diagonal is the same, and the sum below cannot overflow.
        let last = rows.add(k.clamp(-row - 1, column + 1))?;
        let kept = if lower { columns.le(&last)? } else { columns.ge(&last)? };
        let zero = if self.dtype() == DType::Bool { Scalar::Bool(false) } else { Scalar::Int(0) };
        kept.where_cond(self, zero)
    }
}

impl<B: IndexOps + CompareOps + BinaryOps + CopyOps + crate::UnaryOps + ?Sized> Tensor<B> {
    /// How many elements lie in each of `bins` equal parts of `low..=high`, as i64; the last part includes `high`. What lies
    /// outside, NaN too, is not counted. An element next to an edge may be counted beyond it, as the place of an element is
    /// computed in its dtype.
    ///
    /// # Errors
    /// `DType` when the elements are not floats; `Argument` unless there is a bin and `low < high`; `Unsupported`;
    /// `OutOfMemory`.
    pub fn histogram(&self, bins: usize, low: f64, high: f64) -> Result<Self> {
        const OP: &str = "histogram";
        let width = (high - low) / bins as f64;
        if !(width > 0.0 && width.is_finite()) {
            let message =
                format!("{bins} bins between {low} and {high} given; needed are at least one, and low < high");
            return Err(Error::new(ErrorKind::Argument, OP, message));
        }
        let inside = self.ge(low)?.logical_and(&self.le(high)?)?;
        let place = self.sub(low)?.div(width)?.floor()?.cast(DType::I64)?.clamp(0_i64, bins as i64 - 1)?;
        // What lies outside goes to a bin of its own.
        inside.where_cond(&place, bins as i64)?.bincount(bins + 1)?.slice(0, ..bins)
    }
}

impl<B: congruent_backend_api::Backend + ?Sized> Tensor<B> {
    /// A view of diagonal `k` of two axes, as the last axis of the result: elements `[…, i, …, i + k, …]`.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{DType, Tensor};
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::arange(&device, 0..6, DType::I32)?.reshape([2, 3])?;
    /// assert_eq!(x.diagonal(1, 0, 1)?.to_vec::<i32>()?, [1, 5]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Axis` when an axis does not exist, or both are the same.
    pub fn diagonal(&self, k: isize, first: isize, second: isize) -> Result<Self> {
        const OP: &str = "diagonal";
        let (row, column) = (axis(OP, first, self.rank())?, axis(OP, second, self.rank())?);
        if row == column {
            let message = format!("both axes are {row}; a diagonal needs two");
            return Err(Error::new(ErrorKind::Axis, OP, message));
        }
        let skip = k.unsigned_abs();
        let (skipped, other) = if k < 0 { (row, column) } else { (column, row) };
        let layout = self.layout();
        let length = layout.shape()[skipped].saturating_sub(skip).min(layout.shape()[other]);
        let others = || (0..self.rank()).filter(|&axis| axis != row && axis != column);
        let sizes: Vec<usize> = others().map(|axis| layout.shape()[axis]).chain([length]).collect();
        let step = layout.strides()[row].wrapping_add(layout.strides()[column]);
        // Of one element at most no step is taken, and the strides of a size-1 axis may be anything.
        let strides = others().map(|axis| layout.strides()[axis]).chain([if length > 1 { step } else { 1 }]);
        let strides: Vec<isize> = strides.collect();
        let empty = sizes.contains(&0);
        let offset =
            if empty { 0 } else { layout.offset().wrapping_add_signed(skip as isize * layout.strides()[skipped]) };
        Ok(self.with_layout(Layout::new(OP, &sizes, &strides, offset)?))
    }
}

fn check_mask(op: &'static str, dtype: DType) -> Result<()> {
    if dtype == DType::Bool {
        return Ok(());
    }
    let message = format!("the mask is {dtype}, it must be bool; compare, as in `mask.ne(0)`");
    Err(Error::new(ErrorKind::DType, op, message))
}
