//! Linear layers: a product, a bias and an activation in one call. Part of the `matmul` family; floats only.

use congruent_backend_api::ops::linear::{Activation, Linear};
use congruent_backend_api::{LinearOps, Result};

use crate::operand::{Operand, same_backend};
use crate::tensor::Tensor;

impl<B: LinearOps + ?Sized> Tensor<B> {
    /// `activation(self @ weightᵀ + bias)` over the last axis: `weight` is \[outputs, inputs\], `bias` \[outputs\].
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{Tensor, ops::Activation};
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::from_slice(&device, &[1.0_f32, 2.0], [2])?;
    /// let weight = Tensor::from_slice(&device, &[3.0_f32, 4.0, -5.0, 0.0, 0.0, 1.0], [3, 2])?;
    /// let bias = Tensor::from_slice(&device, &[0.5_f32, 1.0, -4.0], [3])?;
    /// assert_eq!(x.linear(&weight, Some(&bias), Activation::Relu)?.to_vec::<f32>()?, [11.5, 0.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Shape` when the shapes do not fit; `DType` unless all are one float dtype; `Argument` for tensors of two
    /// backends; `Unsupported`; `OutOfMemory`.
    pub fn linear(&self, weight: &Self, bias: Option<&Self>, activation: Activation) -> Result<Self> {
        self.same(weight, bias)?;
        Self::produce(
            self.backend(),
            self.dtype(),
            Linear::shape(self.shape(), weight.shape())?,
            |out| Linear::new(self.view(), weight.view(), bias.map(Self::view), activation, out),
            |plan, out| {
                let bias = bias.map(|bias| bias.storage().as_ref());
                self.backend().linear(plan, self.storage(), weight.storage(), bias, out)
            },
        )
    }

    /// [`linear`](Self::linear) into `out`.
    ///
    /// # Errors
    /// As [`linear`](Self::linear), and `Shape` or `DType` when the result does not fit `out`.
    pub fn linear_into(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        activation: Activation,
        out: &mut Self,
    ) -> Result<()> {
        self.same(weight, bias)?;
        same_backend("linear", out.backend(), &[Operand::Tensor(self)])?;
        out.overwrite(
            |_, out| Linear::new(self.view(), weight.view(), bias.map(Self::view), activation, out),
            |plan, _, out| {
                let bias = bias.map(|bias| bias.storage().as_ref());
                self.backend().linear(plan, self.storage(), weight.storage(), bias, out)
            },
        )
    }

    fn same(&self, weight: &Self, bias: Option<&Self>) -> Result<()> {
        let others = [Operand::Tensor(weight), Operand::Tensor(bias.unwrap_or(weight))];
        same_backend("linear", self.backend(), &others)
    }
}
