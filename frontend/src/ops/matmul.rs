//! Matrix products.

use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::{CopyOps, MatmulOps, Result, Scalar};

use crate::operand::{Operand, same_backend};
use crate::tensor::Tensor;

impl<B: MatmulOps + ?Sized> Tensor<B> {
    /// The matrix product over the last two axes; the axes before them broadcast. A tensor of rank 1 is a row on the
    /// left and a column on the right.
    ///
    /// # Errors
    /// `Shape` when the shapes do not fit; `DType` for bool or dtypes that differ; `Argument` for tensors of two
    /// backends; `Unsupported`; `OutOfMemory`.
    pub fn matmul(&self, b: &Self) -> Result<Self> {
        same_backend("matmul", self.backend(), &[Operand::Tensor(b)])?;
        Self::produce(
            self.backend(),
            self.dtype(),
            Matmul::shape(self.shape(), b.shape())?,
            |out| Matmul::new(self.view(), b.view(), Scalar::Int(1), Scalar::Int(0), out),
            |plan, out| self.backend().matmul(plan, self.storage(), b.storage(), out),
        )
    }
}

impl<B: MatmulOps + CopyOps + ?Sized> Tensor<B> {
    /// `out = alpha · a @ b + beta · out`; with `beta` 0 the old value of `out` has no influence.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::Tensor;
    /// # let device = congruent::backend("cpu")?;
    /// let a = Tensor::from_slice(&device, &[1.0_f32, 2.0], [1, 2])?;
    /// let mut sum = Tensor::from_slice(&device, &[10.0_f32], [1, 1])?;
    /// Tensor::matmul_into(&a, &a.t()?, 2, 1, &mut sum)?;
    /// assert_eq!(sum.item::<f32>()?, 20.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`matmul`](Self::matmul); `Shape` or `DType` when the result does not fit `out`; `DType` or `Argument` for a
    /// factor that does not fit the dtype.
    pub fn matmul_into(
        a: &Self,
        b: &Self,
        alpha: impl Into<Scalar>,
        beta: impl Into<Scalar>,
        out: &mut Self,
    ) -> Result<()> {
        same_backend("matmul", out.backend(), &[Operand::Tensor(a), Operand::Tensor(b)])?;
        let (alpha, beta) = (alpha.into(), beta.into());
        let run = |plan: &Matmul, out: &mut B::Storage| a.backend().matmul(plan, a.storage(), b.storage(), out);
        if beta.to_bool() {
            return out.modify(|out| Matmul::new(a.view(), b.view(), alpha, beta, out), run);
        }
        out.overwrite(|_, out| Matmul::new(a.view(), b.view(), alpha, beta, out), |plan, _, out| run(plan, out))
    }
}
