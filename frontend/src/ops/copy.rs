//! Filling, copying and casting, whole tensors or parts.

use std::sync::Arc;

use congruent_backend_api::ops::copy::{Copy, Fill};
use congruent_backend_api::{CopyOps, DType, Layout, Result, Scalar, Shape, View};

use crate::index::{Indices, index, picker};
use crate::operand::{Operand, no_value, same_backend};
use crate::tensor::Tensor;

impl<B: CopyOps + ?Sized> Tensor<B> {
    /// A contiguous copy in a storage of its own.
    ///
    /// # Errors
    /// `Unsupported`; `OutOfMemory`.
    pub fn copy(&self) -> Result<Self> {
        self.copy_as(self.dtype())
    }

    /// The elements in another dtype; the tensor itself when it has that dtype already.
    ///
    /// # Errors
    /// `Unsupported`; `OutOfMemory`.
    pub fn cast(&self, dtype: DType) -> Result<Self> {
        if dtype == self.dtype() { Ok(self.clone()) } else { self.copy_as(dtype) }
    }

    /// The elements, cast to the dtype of `out` and broadcast into it; its shape stays.
    ///
    /// # Errors
    /// `Shape` when this tensor does not broadcast to `out`; `Argument` for tensors of two backends; `Unsupported`;
    /// `OutOfMemory`.
    pub fn copy_into(&self, out: &mut Self) -> Result<()> {
        same_backend("copy", out.backend(), &[Operand::Tensor(self)])?;
        out.overwrite(
            |_, out| Copy::new(self.view(), out),
            |plan, _, out| self.backend().copy(plan, self.storage(), out),
        )
    }

    /// Sets every element to `value`.
    ///
    /// # Errors
    /// `DType` or `Argument` when the value does not fit the dtype; `Unsupported`; `OutOfMemory`.
    pub fn fill(&mut self, value: impl Into<Scalar>) -> Result<()> {
        let (backend, value) = (self.backend().clone(), value.into());
        self.overwrite(|_, out| Fill::new(value, out), |plan, _, out| backend.fill(plan, out))
    }

    /// Writes `value`, a tensor that is cast and broadcast or a scalar, to the part of this tensor that `indices` take
    /// (see [`i`](Self::i)); in place unless another tensor shares the elements.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{DType, Tensor};
    /// # let device = congruent::backend("cpu")?;
    /// let mut x = Tensor::zeros(&device, [2, 3], DType::I32)?;
    /// x.assign((.., 1..), &Tensor::from_slice(&device, &[7, 8], [2])?)?;
    /// x.assign((0, 0), 5)?;
    /// assert_eq!(x.to_vec::<i32>()?, [5, 7, 8, 0, 7, 8]);
    /// let mask = x.eq(7)?;
    /// x.assign(&mask, -1)?;
    /// assert_eq!(x.to_vec::<i32>()?, [5, -1, 8, 0, -1, 8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Of several positions that a tensor names more than once, the last in row-major order gets its value. A mask alone with
    /// a scalar does not synchronise.
    ///
    /// # Errors
    /// As [`i`](Self::i), [`copy_into`](Self::copy_into) and [`fill`](Self::fill); `Argument` for
    /// [`Operand::Output`].
    pub fn assign<'a>(&mut self, indices: impl Indices<'a, B>, value: impl Into<Operand<'a, B>>) -> Result<()>
    where
        B: 'a,
    {
        const OP: &str = "assign";
        let value = value.into();
        same_backend(OP, self.backend(), &[value])?;
        indices.with(|indices| match picker(indices) {
            Some(picker) => (picker.assign)(self, indices, value),
            None => self.assign_part(value, |x| Ok(index(OP, x, indices)?.0)),
        })
    }

    /// Writes a value to a part of this tensor, given as a layout of its storage.
    pub(crate) fn assign_part(
        &mut self,
        value: Operand<'_, B>,
        part: impl FnOnce(&Layout) -> Result<Layout>,
    ) -> Result<()> {
        let backend = self.backend().clone();
        match value {
            Operand::Tensor(value) => self.modify(
                |x| Copy::new(value.view(), View { layout: &part(x.layout)?, ..x }),
                |plan, out| backend.copy(plan, value.storage(), out),
            ),
            Operand::Scalar(value) => self.modify(
                |x| Fill::new(value, View { layout: &part(x.layout)?, ..x }),
                |plan, out| backend.fill(plan, out),
            ),
            Operand::Output => Err(no_value()),
        }
    }

    /// A new tensor put together from parts: each view is copied to its place. Whatever no part covers is `background`.
    pub(crate) fn assemble(
        backend: &Arc<B>,
        dtype: DType,
        shape: Shape,
        background: Option<Scalar>,
        parts: impl FnOnce(&Layout) -> Result<Vec<(Self, Layout)>>,
    ) -> Result<Self> {
        Self::produce(
            backend,
            dtype,
            shape,
            |out| {
                let fill = background.map(|value| Fill::new(value, out)).transpose()?;
                let place = |(part, layout): (Self, Layout)| {
                    Ok((Copy::new(part.view(), View { layout: &layout, ..out })?, part))
                };
                Ok((fill, parts(out.layout)?.into_iter().map(place).collect::<Result<Vec<_>>>()?))
            },
            |(fill, parts), out| {
                if let Some(fill) = fill {
                    backend.fill(fill, out)?;
                }
                parts.iter().try_for_each(|(plan, part)| backend.copy(plan, part.storage(), out))
            },
        )
    }

    pub(crate) fn filled(backend: &Arc<B>, value: Scalar, shape: Shape, dtype: DType) -> Result<Self> {
        Self::produce(backend, dtype, shape, |out| Fill::new(value, out), |plan, out| backend.fill(plan, out))
    }

    fn copy_as(&self, dtype: DType) -> Result<Self> {
        Self::produce(
            self.backend(),
            dtype,
            *self.layout().shape(),
            |out| Copy::new(self.view(), out),
            |plan, out| self.backend().copy(plan, self.storage(), out),
        )
    }
}
