//! Pooling over one to three spatial axes, and its gradients. Maxima of all numbers, averages of floats.
//!
//! Tensors are \[batch, channels, spatial…\], by their axes: in memory they may lie in any order.

use congruent_backend_api::ops::pool::{Divisor, Pool, PoolOp, PoolOptions};
use congruent_backend_api::{BinaryOps, CopyOps, Error, ErrorKind, PoolOps, ReduceOps, Result, Shape, UnaryOps};

use crate::operand::{Axes, Operand, same_backend};
use crate::tensor::Tensor;

impl<B: PoolOps + ?Sized> Tensor<B> {
    /// What `op`, which is no gradient, makes of the windows.
    ///
    /// # Errors
    /// `Shape` when the rank is not 3 to 5, or a window does not fit into the padded input, or lies in the padding alone;
    /// `DType` when the op is not defined for the dtype; `Argument` for a kernel, stride, dilation or divisor of 0, or a
    /// gradient; `Unsupported`; `OutOfMemory`.
    pub fn pool(&self, op: PoolOp, options: PoolOptions) -> Result<Self> {
        Self::produce(
            self.backend(),
            op.out_dtype(self.dtype()),
            Pool::shape(op, self.shape(), &options)?,
            |out| Pool::new(op, self.view(), None, &options, out),
            |plan, out| self.backend().pool(plan, self.storage(), None, out),
        )
    }

    /// `op` of this tensor, which for a gradient is that of the result, into `out`; `indices` are what
    /// [`max_pool_grad`](Self::max_pool_grad) takes.
    ///
    /// # Errors
    /// As [`pool`](Self::pool), and `Shape` or `DType` when the result does not fit `out`.
    pub fn pool_into(&self, op: PoolOp, indices: Option<&Self>, options: PoolOptions, out: &mut Self) -> Result<()> {
        same_backend(op.name(), out.backend(), &[self, indices.unwrap_or(self)].map(Operand::Tensor))?;
        out.overwrite(
            |_, out| Pool::new(op, self.view(), indices.map(Self::view), &options, out),
            |plan, _, out| {
                let indices = indices.map(|indices| indices.storage().as_ref());
                self.backend().pool(plan, self.storage(), indices, out)
            },
        )
    }

    /// The greatest element of each window; NaN if it holds one.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{Tensor, ops::PoolOptions};
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::from_slice(&device, &[1, 5, 2, 8, 3, 0], [1, 1, 6])?;
    /// let pairs = PoolOptions::new([2; 3]);
    /// assert_eq!(x.max_pool(pairs)?.to_vec::<i32>()?, [5, 8, 3]);
    /// let triples = PoolOptions { stride: [2; 3], padding: [[1; 2]; 3], ..PoolOptions::new([3; 3]) };
    /// let (maxima, indices) = x.max_pool_with_indices(triples)?;
    /// assert_eq!((maxima.to_vec::<i32>()?, indices.to_vec::<i64>()?), (vec![5, 8, 8], vec![1, 3, 3]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`pool`](Self::pool).
    pub fn max_pool(&self, options: PoolOptions) -> Result<Self> {
        self.pool(PoolOp::MaxPool, options)
    }

    /// Where the first greatest element of each window lies: its row-major position among the spatial axes, i64.
    ///
    /// # Errors
    /// As [`pool`](Self::pool).
    pub fn argmax_pool(&self, options: PoolOptions) -> Result<Self> {
        self.pool(PoolOp::ArgmaxPool, options)
    }

    /// [`max_pool`](Self::max_pool) and [`argmax_pool`](Self::argmax_pool).
    ///
    /// # Errors
    /// As [`pool`](Self::pool).
    pub fn max_pool_with_indices(&self, options: PoolOptions) -> Result<(Self, Self)> {
        Ok((self.max_pool(options)?, self.argmax_pool(options)?))
    }

    /// The gradient of [`max_pool`](Self::max_pool) by its input, which had `shape`; this tensor is the gradient of its
    /// output, `indices` what [`argmax_pool`](Self::argmax_pool) gave. Where windows overlap, it is the sum.
    ///
    /// # Errors
    /// As [`pool`](Self::pool), `Shape` when the shapes do not fit together, `DType` when this is no float or the indices
    /// are not i64, and `Argument` for tensors of two backends.
    pub fn max_pool_grad(&self, indices: &Self, shape: impl AsRef<[usize]>, options: PoolOptions) -> Result<Self> {
        self.pool_grad(PoolOp::MaxPoolGrad, Some(indices), shape.as_ref(), options)
    }

    /// The average of each window.
    ///
    /// # Errors
    /// As [`pool`](Self::pool).
    pub fn avg_pool(&self, options: PoolOptions) -> Result<Self> {
        self.pool(PoolOp::AvgPool, options)
    }

    /// The gradient of [`avg_pool`](Self::avg_pool) by its input, which had `shape`; this tensor is the gradient of its output.
    ///
    /// # Errors
    /// As [`pool`](Self::pool), and `Shape` when the shapes do not fit together.
    pub fn avg_pool_grad(&self, shape: impl AsRef<[usize]>, options: PoolOptions) -> Result<Self> {
        self.pool_grad(PoolOp::AvgPoolGrad, None, shape.as_ref(), options)
    }

    fn pool_grad(&self, op: PoolOp, indices: Option<&Self>, shape: &[usize], options: PoolOptions) -> Result<Self> {
        same_backend(op.name(), self.backend(), &[Operand::Tensor(indices.unwrap_or(self))])?;
        Self::produce(
            self.backend(),
            self.dtype(),
            Shape::new(op.name(), shape)?,
            |out| Pool::new(op, self.view(), indices.map(Self::view), &options, out),
            |plan, out| {
                let indices = indices.map(|indices| indices.storage().as_ref());
                self.backend().pool(plan, self.storage(), indices, out)
            },
        )
    }
}

impl<B: PoolOps + UnaryOps + BinaryOps + ?Sized> Tensor<B> {
    /// (Σ |x|ᵖ)^(1/p) over each window, whose divisor is ignored; f16 and bf16 round after each step.
    ///
    /// # Errors
    /// As [`pool`](Self::pool), and `Argument` unless `p` is above 0.
    pub fn lp_pool(&self, p: f64, options: PoolOptions) -> Result<Self> {
        if p.is_nan() || p <= 0.0 {
            return Err(Error::new(ErrorKind::Argument, "lp_pool", format!("the order is {p}; it must be above 0")));
        }
        let sums = PoolOptions { divisor: Divisor::Fixed(1), ..options };
        if p == 1.0 {
            return self.abs()?.avg_pool(sums);
        }
        if p == 2.0 {
            return self.square()?.avg_pool(sums)?.sqrt();
        }
        self.abs()?.pow(p)?.avg_pool(sums)?.pow(p.recip())
    }
}

impl<B: ReduceOps + CopyOps + ?Sized> Tensor<B> {
    /// The greatest element of each channel, with spatial axes of size 1.
    ///
    /// # Errors
    /// `Shape` when there are no spatial axes; `Argument` when one is empty; as [`max`](Self::max).
    pub fn global_max_pool(&self) -> Result<Self> {
        self.max(self.spatial_axes("global_max_pool")?, true)
    }

    /// The average of each channel, with spatial axes of size 1.
    ///
    /// # Errors
    /// `Shape` when there are no spatial axes; as [`mean`](Self::mean).
    pub fn global_avg_pool(&self) -> Result<Self> {
        self.mean(self.spatial_axes("global_avg_pool")?, true)
    }

    /// The greatest element of as many windows as `output` has on each spatial axis: window i of n over m elements goes from
    /// ⌊i·m/n⌋ to ⌈(i + 1)·m/n⌉.
    ///
    /// # Errors
    /// `Shape` unless `output` has a size for each spatial axis, and no axis that is asked for windows is empty; as
    /// [`max`](Self::max).
    pub fn adaptive_max_pool(&self, output: impl AsRef<[usize]>) -> Result<Self> {
        self.adaptive("adaptive_max_pool", output.as_ref(), |part, axis| part.max(axis, true))
    }

    /// The average of the windows of [`adaptive_max_pool`](Self::adaptive_max_pool), one spatial axis after another.
    ///
    /// # Errors
    /// As [`adaptive_max_pool`](Self::adaptive_max_pool) and [`mean`](Self::mean).
    pub fn adaptive_avg_pool(&self, output: impl AsRef<[usize]>) -> Result<Self> {
        self.adaptive("adaptive_avg_pool", output.as_ref(), |part, axis| part.mean(axis, true))
    }

    fn spatial_axes(&self, op: &'static str) -> Result<Axes> {
        if self.rank() < 3 {
            let message = format!("shape {:?} has no axes after batch and channels", self.shape());
            return Err(Error::new(ErrorKind::Shape, op, message));
        }
        Ok((2..self.rank() as isize).collect::<Vec<_>>()[..].into())
    }

    /// Windows are boxes, so that they are reduced along one axis after another.
    fn adaptive(
        &self,
        op: &'static str,
        output: &[usize],
        reduce: impl Fn(&Self, isize) -> Result<Self>,
    ) -> Result<Self> {
        if self.rank() < 3 || output.len() != self.rank() - 2 {
            let message =
                format!("{output:?} must have a size for each axis of {:?} after the first two", self.shape());
            return Err(Error::new(ErrorKind::Shape, op, message));
        }
        let mut x = self.clone();
        for (axis, &count) in output.iter().enumerate() {
            let (axis, size) = (axis + 2, x.shape()[axis + 2]);
            if size == 0 && count > 0 {
                let message = format!("axis {axis} has no elements, of which {count} windows were to be made");
                return Err(Error::new(ErrorKind::Shape, op, message));
            }
            let along = axis as isize;
            if count > 0 && size.is_multiple_of(count) {
                // Windows of one size: an axis of its own.
                let mut split = x.shape().to_vec();
                split.splice(axis..=axis, [count, size / count]);
                x = reduce(&x.reshape(split)?, along + 1)?.squeeze(along + 1)?;
                continue;
            }
            let bound = |window: usize| window as u128 * size as u128;
            let parts = (0..count).map(|window| {
                let start = (bound(window) / count as u128) as usize;
                let stop = bound(window + 1).div_ceil(count as u128) as usize;
                reduce(&x.narrow(along, start, stop - start)?, along)
            });
            let parts = parts.collect::<Result<Vec<_>>>()?;
            x = if parts.is_empty() {
                x.narrow(along, 0, 0)?
            } else {
                Self::cat(&parts.iter().collect::<Vec<_>>(), along)?
            };
        }
        Ok(x)
    }
}
