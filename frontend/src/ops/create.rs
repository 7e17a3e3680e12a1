//! Tensors from nothing: constants, ranges, the identity, grids. Part of the `copy` family.

use std::ops::Range;
use std::sync::Arc;

use congruent_backend_api::ops::copy::Fill;
use congruent_backend_api::{CopyOps, DType, Element, Error, ErrorKind, Layout, Result, Scalar, Shape, View};

use crate::operand::{Operand, same_backend};
use crate::tensor::Tensor;

impl<B: CopyOps + ?Sized> Tensor<B> {
    /// A tensor whose elements all are `value`.
    ///
    /// # Errors
    /// `DType` or `Argument` when `value` does not fit `dtype`; `Shape`; `OutOfMemory`.
    pub fn full(backend: &Arc<B>, value: impl Into<Scalar>, shape: impl AsRef<[usize]>, dtype: DType) -> Result<Self> {
        let shape = Shape::new("full", shape.as_ref())?;
        Self::filled(backend, value.into(), shape, dtype)
    }

    /// A tensor of zeros (`false` for bool).
    ///
    /// # Errors
    /// `Shape`; `OutOfMemory`.
    pub fn zeros(backend: &Arc<B>, shape: impl AsRef<[usize]>, dtype: DType) -> Result<Self> {
        Self::full(backend, unit(dtype, false), shape, dtype)
    }

    /// A tensor of ones (`true` for bool).
    ///
    /// # Errors
    /// `Shape`; `OutOfMemory`.
    pub fn ones(backend: &Arc<B>, shape: impl AsRef<[usize]>, dtype: DType) -> Result<Self> {
        Self::full(backend, unit(dtype, true), shape, dtype)
    }

    /// The integers of `range`, cast to `dtype`.
    ///
    /// # Errors
    /// `Shape`; `OutOfMemory`.
    pub fn arange(backend: &Arc<B>, range: Range<i64>, dtype: DType) -> Result<Self> {
        Self::arange_step(backend, range.start, range.end, 1, dtype)
    }

    /// start + i·step for i = 0, 1, … before `stop`, cast to `dtype`. Between integers this is exact; with a float it is
    /// computed in f64 with one rounding, and `stop` itself may appear where (stop − start) / step is rounded up:
    /// [`linspace`](Self::linspace) fixes the number of elements.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{DType, Tensor};
    /// # let device = congruent::backend("cpu")?;
    /// assert_eq!(Tensor::arange_step(&device, 9, 0, -4, DType::I64)?.to_vec::<i64>()?, [9, 5, 1]);
    /// assert_eq!(Tensor::arange_step(&device, 0, 1.0, 0.25, DType::F32)?.to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.75]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Argument` for a step of 0 or bounds that are not finite; `DType` for bool bounds; `Shape`; `OutOfMemory`.
    pub fn arange_step(
        backend: &Arc<B>,
        start: impl Into<Scalar>,
        stop: impl Into<Scalar>,
        step: impl Into<Scalar>,
        dtype: DType,
    ) -> Result<Self> {
        const OP: &str = "arange";
        let (start, stop, step) = (start.into(), stop.into(), step.into());
        match (start, stop, step) {
            (_, _, Scalar::Int(0)) => Err(Error::new(ErrorKind::Argument, OP, "the step is 0; it must not be")),
            (Scalar::Int(start), Scalar::Int(stop), Scalar::Int(step)) => {
                let distance = i128::from(stop) - i128::from(start);
                let step = i128::from(step);
                let steps = (distance * step.signum()).max(0).unsigned_abs().div_ceil(step.unsigned_abs());
                // A number of steps that overflows is past every limit that `Shape` knows.
                let count = usize::try_from(steps).unwrap_or(usize::MAX);
                // No element lies beyond `stop`, so the sum wraps back into range.
                let element = |index: usize| start.wrapping_add((index as i64).wrapping_mul(step as i64));
                Self::generate(backend, OP, count, element)?.cast(dtype)
            }
            (Scalar::Bool(_), _, _) | (_, Scalar::Bool(_), _) | (_, _, Scalar::Bool(_)) => {
                let message = format!("the bounds {start}, {stop} and the step {step} must be numbers");
                Err(Error::new(ErrorKind::DType, OP, message))
            }
            _ => {
                let (start, stop, step) = (start.to_f64(), stop.to_f64(), step.to_f64());
                let steps = ((stop - start) / step).ceil();
                if !steps.is_finite() || !start.is_finite() || !step.is_finite() {
                    let message =
                        format!("from {start} to {stop} in steps of {step} there is no finite number of elements");
                    return Err(Error::new(ErrorKind::Argument, OP, message));
                }
                Self::generate(backend, OP, steps as usize, |index| step.mul_add(index as f64, start))?.cast(dtype)
            }
        }
    }

    /// `count` values at equal distances from `start` to `stop`, both included; of one value it is `start`. Computed in
    /// f64 with one rounding per element after that of the distance, then cast to `dtype`.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{DType, Tensor};
    /// # let device = congruent::backend("cpu")?;
    /// assert_eq!(Tensor::linspace(&device, 1.0, -1.0, 5, DType::F32)?.to_vec::<f32>()?, [1.0, 0.5, 0.0, -0.5, -1.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `DType` unless `dtype` is a float; `Shape`; `OutOfMemory`.
    pub fn linspace(backend: &Arc<B>, start: f64, stop: f64, count: usize, dtype: DType) -> Result<Self> {
        if !dtype.is_float() {
            let message = format!("{dtype} would truncate the values; make floats, then `round` and `cast` them");
            return Err(Error::new(ErrorKind::DType, "linspace", message));
        }
        let last = count.saturating_sub(1);
        // Each bound on its own: their difference may overflow.
        let step = stop / last as f64 - start / last as f64;
        let element = |index: usize| match index {
            0 => start,
            _ if index == last => stop,
            _ => step.mul_add(index as f64, start),
        };
        Self::generate(backend, "linspace", count, element)?.cast(dtype)
    }

    /// Ones on a diagonal of a matrix of zeros: at [i, i + k].
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{DType, Tensor};
    /// # let device = congruent::backend("cpu")?;
    /// assert_eq!(Tensor::eye(&device, 2, 3, 1, DType::U8)?.to_vec::<u8>()?, [0, 1, 0, 0, 0, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Shape`; `OutOfMemory`.
    pub fn eye(backend: &Arc<B>, rows: usize, columns: usize, k: isize, dtype: DType) -> Result<Self> {
        const OP: &str = "eye";
        let shape = Shape::new(OP, &[rows, columns])?;
        let (below, right) = if k < 0 { (k.unsigned_abs(), 0) } else { (0, k.unsigned_abs()) };
        let length = rows.saturating_sub(below).min(columns.saturating_sub(right));
        // Where the diagonal is empty its offset has no meaning, and could overflow.
        let offset = if length == 0 { 0 } else { below * columns + right };
        let diagonal = Layout::new(OP, &[length], &[columns as isize + 1], offset)?;
        Self::produce(
            backend,
            dtype,
            shape,
            |out| {
                let zeros = Fill::new(unit(dtype, false), out)?;
                Ok((zeros, Fill::new(unit(dtype, true), View { layout: &diagonal, ..out })?))
            },
            |(zeros, ones), out| {
                backend.fill(zeros, out)?;
                backend.fill(ones, out)
            },
        )
    }

    /// Of tensors of rank 1 the coordinates of their grid, as views: result i, of all their sizes, varies along axis i
    /// only. This is NumPy's `indexing="ij"`.
    ///
    /// # Errors
    /// `Argument` for no tensors or tensors of two backends; `Shape` for a tensor of another rank than 1 or more than
    /// eight tensors.
    pub fn meshgrid(tensors: &[&Self]) -> Result<Vec<Self>> {
        const OP: &str = "meshgrid";
        let Some(first) = tensors.first() else {
            return Err(Error::new(ErrorKind::Argument, OP, "no tensors given; at least one is needed"));
        };
        for &tensor in tensors {
            same_backend(OP, first.backend(), &[Operand::Tensor(tensor)])?;
            if tensor.rank() != 1 {
                let message = format!("shape {:?} is not of rank 1; `flatten` the tensor first", tensor.shape());
                return Err(Error::new(ErrorKind::Shape, OP, message));
            }
        }
        let sizes: Vec<usize> = tensors.iter().map(|tensor| tensor.count()).collect();
        let shape = Shape::new(OP, &sizes)?;
        let grid = |(axis, tensor): (usize, &&Self)| {
            let mut column = vec![1; sizes.len()];
            column[axis] = sizes[axis];
            tensor.reshape(column)?.expand(&*shape)
        };
        tensors.iter().enumerate().map(grid).collect()
    }

    /// A tensor of rank 1 whose elements the host computes, in pieces: a number that the backend can't hold would else
    /// first exhaust the host.
    fn generate<T: Element>(
        backend: &Arc<B>,
        op: &'static str,
        count: usize,
        element: impl Fn(usize) -> T,
    ) -> Result<Self> {
        const PIECE: usize = 1 << 16;
        let layout = Layout::contiguous(Shape::new(op, &[count])?);
        let mut storage = backend.alloc(T::DTYPE, count)?;
        for start in (0..count).step_by(PIECE) {
            let piece: Vec<T> = (start..count.min(start + PIECE)).map(&element).collect();
            backend.write(T::as_bytes(&piece), &mut storage, start)?;
        }
        Self::from_parts(backend, Arc::new(storage), layout)
    }
}

/// Zero or one as a scalar of the dtype's kind.
fn unit(dtype: DType, one: bool) -> Scalar {
    if dtype == DType::Bool { Scalar::Bool(one) } else { Scalar::Int(one.into()) }
}
