//! Filling, copying and casting, whole tensors or parts.

use std::sync::Arc;

use congruent_backend_api::ops::copy::{Copy, Fill};
use congruent_backend_api::{CopyOps, DType, Result, Scalar, Shape, View};

use crate::index::{Indices, index};
use crate::operand::{Operand, same_backend};
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

    /// Writes `value`, cast and broadcast, to the part of this tensor that `indices` take (see [`i`](Self::i)).
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{DType, Tensor};
    /// # let device = congruent::backend("cpu")?;
    /// let mut x = Tensor::zeros(&device, [2, 3], DType::I32)?;
    /// x.slice_assign((.., 1..), &Tensor::from_slice(&device, &[7, 8], [2])?)?;
    /// assert_eq!(x.to_vec::<i32>()?, [0, 7, 8, 0, 7, 8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`i`](Self::i) and [`copy_into`](Self::copy_into).
    pub fn slice_assign(&mut self, indices: impl Indices, value: &Self) -> Result<()> {
        same_backend("slice_assign", self.backend(), &[Operand::Tensor(value)])?;
        let backend = self.backend().clone();
        indices.with(|indices| {
            self.modify(
                |x| Copy::new(value.view(), View { layout: &index(x.layout, indices)?, ..x }),
                |plan, out| backend.copy(plan, value.storage(), out),
            )
        })
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
