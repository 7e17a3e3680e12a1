//! Scaled dot-product attention and its gradients. Floats only.

use congruent_backend_api::ops::attention::{
    Attention, AttentionGradient, AttentionInputs, AttentionOp, AttentionOptions,
};
use congruent_backend_api::ops::binary::BinaryOps;
use congruent_backend_api::ops::copy::CopyOps;
use congruent_backend_api::ops::reduce::ReduceOps;
use congruent_backend_api::{AttentionOps, Result, Shape};

use crate::operand::{Operand, same_backend};
use crate::tensor::Tensor;

impl<B: AttentionOps + ?Sized> Tensor<B> {
    /// softmax(scale · q @ kᵀ + mask) @ v, where the tensor is q, [batch, heads, n, d], `k` is [batch, kv_heads, m, d] and
    /// `v` is [batch, kv_heads, m, e]; the result is [batch, heads, n, e].
    ///
    /// Query head h reads key head h / (heads / kv_heads). The mask broadcasts to [batch, heads, n, m]: a bool mask is true
    /// where a query sees a key, another is added to the scores. Causal attention lets query i see the keys up to
    /// i + (m − n). A query that sees no key gives zeros. What else there is, windows, soft caps, dropout, is said by the
    /// [`options`](AttentionOptions).
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
    /// the mask possibly bool; `Argument` for options out of their range or tensors of two backends; `Unsupported`;
    /// `OutOfMemory`.
    pub fn attention(&self, k: &Self, v: &Self, mask: Option<&Self>, options: AttentionOptions) -> Result<Self> {
        let inputs = AttentionInputs { mask, ..AttentionInputs::new(self, k, v) };
        Self::attention_with(AttentionOp::Output, inputs, options)
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
        let inputs = AttentionInputs { mask, ..AttentionInputs::new(self, k, v) };
        Self::attention_with_into(AttentionOp::Output, inputs, options, out)
    }

    /// Attention with every [operand](AttentionInputs) that there is: also slopes (ALiBi) and the number of keys of each
    /// batch item; or its log-sum-exp, or one of its gradients.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{Tensor, ops::{AttentionInputs, AttentionOp, AttentionOptions}};
    /// # let device = congruent::backend("cpu")?;
    /// let q = Tensor::from_slice(&device, &[0.0_f32, 0.0], [2, 1, 1, 1])?;
    /// let v = Tensor::from_slice(&device, &[1.0_f32, 3.0, 1.0, 3.0], [2, 1, 2, 1])?;
    /// let lengths = Tensor::from_slice(&device, &[2_i64, 1], [2])?;
    /// let inputs = AttentionInputs { lengths: Some(&lengths), ..AttentionInputs::new(&q, &v, &v) };
    /// let y = Tensor::attention_with(AttentionOp::Output, inputs, AttentionOptions::default())?;
    /// assert_eq!(y.to_vec::<f32>()?, [2.0, 1.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`attention`](Self::attention), and `Argument` when the operands of the gradient are missing, or are given to what
    /// is none.
    pub fn attention_with(op: AttentionOp, inputs: AttentionInputs<&Self>, options: AttentionOptions) -> Result<Self> {
        let q = inputs.q;
        on_one_backend(op, inputs)?;
        let dtype = if op == AttentionOp::LogSumExp { Attention::wide(q.dtype()) } else { q.dtype() };
        Self::produce(
            q.backend(),
            dtype,
            shape(op, inputs)?,
            |out| Attention::new(op, inputs.map(Self::view), options, out),
            |plan, out| q.backend().attention(plan, inputs.map(|input| input.storage().as_ref()), out),
        )
    }

    /// [`attention_with`](Self::attention_with) into `out`.
    ///
    /// # Errors
    /// As [`attention_with`](Self::attention_with), and `Shape` or `DType` when the result does not fit `out`.
    pub fn attention_with_into(
        op: AttentionOp,
        inputs: AttentionInputs<&Self>,
        options: AttentionOptions,
        out: &mut Self,
    ) -> Result<()> {
        on_one_backend(op, inputs)?;
        same_backend(op.name(), out.backend(), &[Operand::Tensor(inputs.q)])?;
        let q = inputs.q;
        out.overwrite(
            |_, out| Attention::new(op, inputs.map(Self::view), options, out),
            |plan, _, out| q.backend().attention(plan, inputs.map(|input| input.storage().as_ref()), out),
        )
    }

    /// The gradients of attention by q, k and v: `grad` is that of the output, `output` is what attention gave for the
    /// same operands and options, `logsumexp` its [`LogSumExp`](AttentionOp::LogSumExp). Memory is linear in the number
    /// of queries and keys.
    ///
    /// # Errors
    /// As [`attention_with`](Self::attention_with).
    pub fn attention_grads(
        inputs: AttentionInputs<&Self>,
        options: AttentionOptions,
        grad: &Self,
        output: &Self,
        logsumexp: &Self,
    ) -> Result<[Self; 3]>
    where
        B: BinaryOps + CopyOps + ReduceOps,
    {
        let wide = Attention::wide(grad.dtype());
        let delta = (&grad.cast(wide)? * &output.cast(wide)?)?.sum(-1, false)?;
        let gradient = AttentionGradient { grad, logsumexp, delta: &delta };
        let inputs = AttentionInputs { gradient: Some(gradient), ..inputs };
        let of = |op: AttentionOp| Self::attention_with(op, inputs, options);
        Ok([of(AttentionOp::GradQuery)?, of(AttentionOp::GradKey)?, of(AttentionOp::GradValue)?])
    }
}

fn shape<B: AttentionOps + ?Sized>(op: AttentionOp, inputs: AttentionInputs<&Tensor<B>>) -> Result<Shape> {
    Attention::shape(op, inputs.q.shape(), inputs.k.shape(), inputs.v.shape())
}

fn on_one_backend<B: AttentionOps + ?Sized>(op: AttentionOp, inputs: AttentionInputs<&Tensor<B>>) -> Result<()> {
    let operands: Vec<_> = inputs.to_array().into_iter().flatten().map(Operand::Tensor).collect();
    same_backend(op.name(), inputs.q.backend(), &operands)
}
