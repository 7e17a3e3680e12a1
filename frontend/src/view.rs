//! Views: other layouts of the same elements. Nothing is copied, except by [`Tensor::reshape`] where no strides fit.

use congruent_backend_api::{Backend, CopyOps, Error, ErrorKind, Result, axis};

use crate::index::{Indices, IntoSlice, index, picker};
use crate::tensor::Tensor;

impl<B: Backend + ?Sized> Tensor<B> {
    /// The part that `indices` take of the leading axes: positions drop an axis, ranges keep it; both give a view.
    ///
    /// Tensors among the indices pick elements into a new tensor, as in NumPy. One of integers stands for an axis, whose
    /// positions it names; a mask of bool stands for as many axes as it has, and picks where it is true, in row-major order,
    /// for which it synchronises once. Several broadcast against each other, a mask with as many positions as it has true
    /// elements. Their shape takes the place of the axes that they stand for, or comes first where a range, a new axis or
    /// an ellipsis stands between them (positions count as tensors there).
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{DType, Index, Tensor, step};
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::arange(&device, 0..12, DType::I64)?.reshape([3, 4])?;
    /// assert_eq!(x.i(-1)?.to_vec::<i64>()?, [8, 9, 10, 11]);
    /// assert_eq!(x.i((.., 1))?.to_vec::<i64>()?, [1, 5, 9]);
    /// assert_eq!(x.i((1.., step(.., -2)))?.to_vec::<i64>()?, [7, 5, 11, 9]);
    /// assert_eq!(x.i((0, Index::NewAxis, ..=1))?.shape(), [1, 2]);
    /// assert_eq!(x.i((Index::Ellipsis, 0))?.to_vec::<i64>()?, [0, 4, 8]);
    /// let rows = Tensor::from_slice(&device, &[2, 0], [2])?;
    /// assert_eq!(x.i((&rows, 1..3))?.to_vec::<i64>()?, [9, 10, 1, 2]);
    /// assert_eq!(x.i(&x.gt(8)?)?.to_vec::<i64>()?, [9, 10, 11]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Axis` for more indices than axes; `IndexOutOfRange` for a position outside its axis; `Argument` for a step of 0,
    /// two ellipses or tensors of two backends; `DType` for a tensor of floats; `Shape` for a mask that does not have the
    /// sizes of its axes, or tensors that do not broadcast. A position in a tensor that is outside its axis (negative
    /// ones are) is `IndexOutOfRange` of the next synchronising call.
    pub fn i<'a>(&self, indices: impl Indices<'a, B>) -> Result<Self>
    where
        B: 'a,
    {
        indices.with(|indices| match picker(indices) {
            Some(picker) => (picker.take)(self, indices),
            None => Ok(self.with_layout(index("i", self.layout(), indices)?.0)),
        })
    }

    /// A range of one axis; bounds are clipped as in NumPy.
    ///
    /// # Errors
    /// `Axis`; `Argument` for a step of 0.
    pub fn slice(&self, axis: isize, range: impl IntoSlice) -> Result<Self> {
        Ok(self.with_layout(self.layout().slice(axis, range.into_slice())?))
    }

    /// `length` positions of one axis from `start` on, all of which must exist.
    ///
    /// # Errors
    /// `Axis`; `IndexOutOfRange` when the range reaches past the end.
    pub fn narrow(&self, along: isize, start: usize, length: usize) -> Result<Self> {
        let resolved = axis("narrow", along, self.rank())?;
        let size = self.shape()[resolved];
        match start.checked_add(length).filter(|&end| end <= size) {
            Some(end) => self.slice(along, start..end),
            None => {
                let message =
                    format!("{length} positions from {start} reach past the end of axis {resolved} of size {size}");
                Err(Error::new(ErrorKind::IndexOutOfRange, "narrow", message))
            }
        }
    }

    /// One position of one axis, which is dropped; a negative position counts from the end.
    ///
    /// # Errors
    /// `Axis`; `IndexOutOfRange`.
    pub fn select(&self, axis: isize, position: isize) -> Result<Self> {
        Ok(self.with_layout(self.layout().select(axis, position)?))
    }

    /// The tensor whose axis `i` is axis `axes[i]` of this one.
    ///
    /// # Errors
    /// `Axis` when `axes` is not a permutation of the axes.
    pub fn permute(&self, axes: impl AsRef<[isize]>) -> Result<Self> {
        Ok(self.with_layout(self.layout().permute(axes.as_ref())?))
    }

    /// Exchanges two axes.
    ///
    /// # Errors
    /// `Axis`.
    pub fn transpose(&self, a: isize, b: isize) -> Result<Self> {
        let (a, b) = (axis("transpose", a, self.rank())?, axis("transpose", b, self.rank())?);
        let mut axes: Vec<isize> = (0..self.rank() as isize).collect();
        axes.swap(a, b);
        self.permute(axes)
    }

    /// The matrix transpose: exchanges the last two axes.
    ///
    /// # Errors
    /// `Axis` when there are fewer than two axes.
    pub fn t(&self) -> Result<Self> {
        self.transpose(-2, -1)
    }

    /// Moves the axis `from` so that it becomes axis `to`; the others keep their order.
    ///
    /// # Errors
    /// `Axis`.
    pub fn moveaxis(&self, from: isize, to: isize) -> Result<Self> {
        let (from, to) = (axis("moveaxis", from, self.rank())?, axis("moveaxis", to, self.rank())?);
        let mut axes: Vec<isize> = (0..self.rank() as isize).collect();
        let moved = axes.remove(from);
        axes.insert(to, moved);
        self.permute(axes)
    }

    /// Consecutive parts of these sizes along an axis, as views.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{DType, Tensor};
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::arange(&device, 0..5, DType::I64)?;
    /// let parts = x.split([2, 3], 0)?;
    /// assert_eq!(parts[1].to_vec::<i64>()?, [2, 3, 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Axis`; `Argument` unless the sizes add up to that of the axis.
    pub fn split(&self, sizes: impl AsRef<[usize]>, along: isize) -> Result<Vec<Self>> {
        let (sizes, resolved) = (sizes.as_ref(), axis("split", along, self.rank())?);
        let size = self.shape()[resolved];
        if sizes.iter().try_fold(0_usize, |total, &part| total.checked_add(part)) != Some(size) {
            let message = format!("parts of sizes {sizes:?} do not add up to the size {size} of axis {resolved}");
            return Err(Error::new(ErrorKind::Argument, "split", message));
        }
        let mut start = 0;
        let part = |&size: &usize| {
            start += size;
            self.narrow(along, start - size, size)
        };
        sizes.iter().map(part).collect()
    }

    /// At most `chunks` parts along an axis, as views: all of size ⌈size / chunks⌉ but the last, as PyTorch's `chunk`.
    /// There are fewer where the axis ends earlier; an axis of size 0 gives `chunks` empty parts.
    ///
    /// # Errors
    /// `Axis`; `Argument` for no chunks.
    pub fn chunk(&self, chunks: usize, along: isize) -> Result<Vec<Self>> {
        let size = self.shape()[axis("chunk", along, self.rank())?];
        if chunks == 0 {
            return Err(Error::new(ErrorKind::Argument, "chunk", "0 chunks asked for; at least one is needed"));
        }
        let length = size.div_ceil(chunks);
        let starts = if length == 0 { vec![0; chunks] } else { (0..size).step_by(length).collect() };
        starts.into_iter().map(|start| self.narrow(along, start, length.min(size - start))).collect()
    }

    /// The tensor in `shape` by NumPy's broadcasting: new axes and axes of size 1 repeat their elements.
    ///
    /// # Errors
    /// `Shape` when the shapes do not fit.
    pub fn expand(&self, shape: impl AsRef<[usize]>) -> Result<Self> {
        Ok(self.with_layout(self.layout().broadcast_to("expand", shape.as_ref())?))
    }

    /// Reverses the given axes.
    ///
    /// # Errors
    /// `Axis`.
    pub fn flip(&self, axes: impl AsRef<[isize]>) -> Result<Self> {
        Ok(self.with_layout(self.layout().flip(axes.as_ref())?))
    }

    /// Drops an axis of size 1.
    ///
    /// # Errors
    /// `Axis`; `Shape` when its size is not 1.
    pub fn squeeze(&self, axis: isize) -> Result<Self> {
        Ok(self.with_layout(self.layout().squeeze(axis)?))
    }

    /// Adds an axis of size 1 before axis `axis`; -1 adds it last.
    ///
    /// # Errors
    /// `Axis`; `Shape` when there are eight axes already.
    pub fn unsqueeze(&self, axis: isize) -> Result<Self> {
        Ok(self.with_layout(self.layout().unsqueeze(axis)?))
    }
}

impl<B: CopyOps + ?Sized> Tensor<B> {
    /// The elements, in row-major order, in another shape: a view where strides allow it, else a copy.
    ///
    /// # Errors
    /// `Shape` when the numbers of elements differ; `OutOfMemory`.
    pub fn reshape(&self, shape: impl AsRef<[usize]>) -> Result<Self> {
        if let Some(layout) = self.layout().reshape(shape.as_ref())? {
            return Ok(self.with_layout(layout));
        }
        self.contiguous()?.reshape(shape)
    }

    /// All elements along one axis.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn flatten(&self) -> Result<Self> {
        self.reshape([self.count()])
    }

    /// The tensor with its elements one after another in row-major order; itself when they are already.
    ///
    /// # Errors
    /// `Unsupported`; `OutOfMemory`.
    pub fn contiguous(&self) -> Result<Self> {
        if self.is_contiguous() { Ok(self.clone()) } else { self.copy() }
    }
}
