//! Scaled dot-product attention. Floats only.

use congruent_backend_api::ops::attention::{Attention, AttentionOptions};
use congruent_backend_api::{AttentionOps, Result};

use crate::operand::{Operand, same_backend};
use crate::tensor::Tensor;

impl<B: AttentionOps + ?Sized> Tensor<B> {
    /// softmax(scale · q @ kᵀ + mask) @ v, where the tensor is q, [batch, heads, n, d], `k` is [batch, kv_heads, m, d] and
    /// `v` is [batch, kv_heads, m, e]; the result is [batch, heads, n, e].
    ///
    /// Query head h reads key head h / (heads / kv_heads). The mask broadcasts to [batch, heads, n, m]: a bool mask is true
    /// where a query sees a key, another is added to the scores. Causal attention lets query i see the keys up to
    /// i + (m − n). A query that sees no key gives zeros.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{Tensor, ops::AttentionOptions};
    /// # let device = congruent::backend("cpu")?;
    /// let q = Tensor::from_slice(&device, &[0.0_f32, 0.0], [1, 1, 2, 1])?;
    /// let v = Tensor::from_slice(&device, &[1.0_f32, 3.0], [1, 1, 2, 1])?;
    /// let y = q.attention(&q, &v, None, AttentionOptions { causal: true, ..Default::default() })?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Shape` when the shapes do not fit or kv_heads does not divide heads; `DType` unless all are of one float dtype,
    /// the mask possibly bool; `Argument` for a scale that is not finite or tensors of two backends; `Unsupported`;
    /// `OutOfMemory`.
    pub fn attention(&self, k: &Self, v: &Self, mask: Option<&Self>, options: AttentionOptions) -> Result<Self> {
        same_backend("attention", self.backend(), &[k, v, mask.unwrap_or(v)].map(Operand::Tensor))?;
        Self::produce(
            self.backend(),
            self.dtype(),
            Attention::shape(self.shape(), k.shape(), v.shape())?,
            |out| Attention::new(self.view(), k.view(), v.view(), mask.map(Self::view), options, out),
            |plan, out| {
                let mask = mask.map(|mask| mask.storage().as_ref());
                self.backend().attention(plan, self.storage(), k.storage(), v.storage(), mask, out)
            },
        )
    }

    /// [`attention`](Self::attention) into `out`.
    ///
    /// # Errors
    /// As [`attention`](Self::attention), and `Shape` or `DType` when the result does not fit `out`.
    pub fn attention_into(
        &self,
        k: &Self,
        v: &Self,
        mask: Option<&Self>,
        options: AttentionOptions,
        out: &mut Self,
    ) -> Result<()> {
        same_backend("attention", out.backend(), &[self, k, v, mask.unwrap_or(v)].map(Operand::Tensor))?;
        out.overwrite(
            |_, out| Attention::new(self.view(), k.view(), v.view(), mask.map(Self::view), options, out),
            |plan, _, out| {
                let mask = mask.map(|mask| mask.storage().as_ref());
                self.backend().attention(plan, self.storage(), k.storage(), v.storage(), mask, out)
            },
        )
    }
}
