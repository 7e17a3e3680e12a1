//! Normalisation over any set of axes, and its gradients. Floats only.

use congruent_backend_api::ops::norm::{Normalize, NormalizeOp};
use congruent_backend_api::{NormOps, Result};

use crate::operand::{Axes, Operand, same_backend};
use crate::tensor::Tensor;

impl<B: NormOps + ?Sized> Tensor<B> {
    /// `op` over `axes`, with a weight and a bias that broadcast to the tensor; the softmaxes take neither, and ignore
    /// `epsilon`.
    ///
    /// # Errors
    /// `DType` unless every operand is of one float dtype; `Axis`; `Shape` when the weight or the bias do not broadcast;
    /// `Argument` for a bad `epsilon`, a bias without a weight, a weight of a softmax, or tensors of two backends;
    /// `Unsupported`; `OutOfMemory`.
    pub fn normalize(
        &self,
        op: NormalizeOp,
        epsilon: f64,
        axes: impl Into<Axes>,
        weight: Option<&Self>,
        bias: Option<&Self>,
    ) -> Result<Self> {
        let axes = axes.into();
        for other in [weight, bias].into_iter().flatten() {
            same_backend(op.name(), self.backend(), &[Operand::Tensor(other)])?;
        }
        Self::produce(
            self.backend(),
            self.dtype(),
            *self.layout().shape(),
            |out| {
                let (weight, bias) = (weight.map(Self::view), bias.map(Self::view));
                Normalize::new(op, epsilon, axes.as_slice(), self.view(), weight, bias, out)
            },
            |plan, out| {
                let (weight, bias) = (weight.map(|x| &**x.storage()), bias.map(|x| &**x.storage()));
                self.backend().normalize(plan, self.storage(), weight, bias, out)
            },
        )
    }

    /// As [`normalize`](Self::normalize), into `out`, which has the shape of the tensor.
    ///
    /// # Errors
    /// As [`normalize`](Self::normalize), and `Shape` or `DType` when the result does not fit `out`.
    pub fn normalize_into(
        &self,
        op: NormalizeOp,
        epsilon: f64,
        axes: impl Into<Axes>,
        weight: Option<&Self>,
        bias: Option<&Self>,
        out: &mut Self,
    ) -> Result<()> {
        let axes = axes.into();
        for other in [Some(self), weight, bias].into_iter().flatten() {
            same_backend(op.name(), out.backend(), &[Operand::Tensor(other)])?;
        }
        out.overwrite(
            |_, out| {
                let (weight, bias) = (weight.map(Self::view), bias.map(Self::view));
                Normalize::new(op, epsilon, axes.as_slice(), self.view(), weight, bias, out)
            },
            |plan, _, out| {
                let (weight, bias) = (weight.map(|x| &**x.storage()), bias.map(|x| &**x.storage()));
                self.backend().normalize(plan, self.storage(), weight, bias, out)
            },
        )
    }

    /// The gradient of [`normalize`](Self::normalize) with respect to its input, for the gradient `grad` of its result.
    /// The tensor is the input, but for the softmaxes the result.
    ///
    /// # Errors
    /// As [`normalize`](Self::normalize); `Shape` when `grad` has another shape.
    pub fn normalize_grad(
        &self,
        op: NormalizeOp,
        epsilon: f64,
        axes: impl Into<Axes>,
        grad: &Self,
        weight: Option<&Self>,
    ) -> Result<Self> {
        let axes = axes.into();
        for other in [Some(grad), weight].into_iter().flatten() {
            same_backend(op.grad_name(), self.backend(), &[Operand::Tensor(other)])?;
        }
        Self::produce(
            self.backend(),
            self.dtype(),
            *self.layout().shape(),
            |out| {
                let weight = weight.map(Self::view);
                Normalize::gradient(op, epsilon, axes.as_slice(), self.view(), grad.view(), weight, out)
            },
            |plan, out| {
                let weight = weight.map(|x| &**x.storage());
                self.backend().normalize_grad(plan, self.storage(), grad.storage(), weight, out)
            },
        )
    }

    /// exp(x − max x) / Σ exp(x − max x) over `axes`.
    ///
    /// # Example
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// let x = congruent::Tensor::from_slice(&congruent::backend("cpu")?, &[0.0_f32, 0.0, 1000.0, 0.0], [2, 2])?;
    /// assert_eq!(x.softmax(1)?.to_vec::<f32>()?, [0.5, 0.5, 1.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`normalize`](Self::normalize).
    pub fn softmax(&self, axes: impl Into<Axes>) -> Result<Self> {
        self.normalize(NormalizeOp::Softmax, 0.0, axes, None, None)
    }

    /// ln [`softmax`](Self::softmax), without rounding in between.
    ///
    /// # Errors
    /// As [`normalize`](Self::normalize).
    pub fn log_softmax(&self, axes: impl Into<Axes>) -> Result<Self> {
        self.normalize(NormalizeOp::LogSoftmax, 0.0, axes, None, None)
    }

    /// (x − mean)/√(variance + ε) over `axes`, times `weight`, plus `bias`.
    ///
    /// # Errors
    /// As [`normalize`](Self::normalize).
    pub fn layer_norm(
        &self,
        axes: impl Into<Axes>,
        epsilon: f64,
        weight: Option<&Self>,
        bias: Option<&Self>,
    ) -> Result<Self> {
        self.normalize(NormalizeOp::LayerNorm, epsilon, axes, weight, bias)
    }

    /// x/√(mean x² + ε) over `axes`, times `weight`.
    ///
    /// # Errors
    /// As [`normalize`](Self::normalize).
    pub fn rms_norm(&self, axes: impl Into<Axes>, epsilon: f64, weight: Option<&Self>) -> Result<Self> {
        self.normalize(NormalizeOp::RmsNorm, epsilon, axes, weight, None)
    }

    /// x/max(‖x‖₂, ε) over `axes`.
    ///
    /// # Errors
    /// As [`normalize`](Self::normalize).
    pub fn l2_normalize(&self, axes: impl Into<Axes>, epsilon: f64) -> Result<Self> {
        self.normalize(NormalizeOp::L2Normalize, epsilon, axes, None, None)
    }
}
