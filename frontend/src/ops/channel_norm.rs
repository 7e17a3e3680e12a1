//! Norms of images: batch, group and instance normalisation of \[batch, channels, …\]. Composed: each is a layer norm over
//! other axes, whose gradients are those of [`normalize_grad`](Tensor::normalize_grad).

use congruent_backend_api::ops::norm::NormalizeOp;
use congruent_backend_api::{BinaryOps, CopyOps, DType, Error, ErrorKind, NormOps, Result, StatisticOps, UnaryOps};

use crate::tensor::Tensor;

impl<B: NormOps + CopyOps + ?Sized> Tensor<B> {
    /// Each channel by mean and variance of the whole batch, times `weight` plus `bias`, which have an element for each channel.
    ///
    /// # Errors
    /// `Shape` when there are no channels, or weight or bias have another number of them; as [`normalize`](Self::normalize).
    pub fn batch_norm(&self, epsilon: f64, weight: Option<&Self>, bias: Option<&Self>) -> Result<Self> {
        let (weight, bias) = self.affine("batch_norm", weight, bias)?;
        self.layer_norm(&self.axes_but_channels("batch_norm")?[..], epsilon, weight.as_ref(), bias.as_ref())
    }

    /// The gradient of [`batch_norm`](Self::batch_norm) by its input, this tensor, for the gradient `grad` of its result.
    ///
    /// # Errors
    /// As [`batch_norm`](Self::batch_norm), and `Shape` when `grad` has another shape.
    pub fn batch_norm_grad(&self, epsilon: f64, grad: &Self, weight: Option<&Self>) -> Result<Self> {
        let (weight, _) = self.affine("batch_norm", weight, None)?;
        let axes = self.axes_but_channels("batch_norm")?;
        self.normalize_grad(NormalizeOp::LayerNorm, epsilon, &axes[..], grad, weight.as_ref())
    }

    /// Each group of neighbouring channels of each batch by its own mean and variance, then each channel times `weight` plus
    /// `bias`.
    ///
    /// # Errors
    /// `Shape` when there are no channels, the groups do not divide them, or weight or bias have another number of them; as
    /// [`normalize`](Self::normalize).
    pub fn group_norm(&self, groups: usize, epsilon: f64, weight: Option<&Self>, bias: Option<&Self>) -> Result<Self> {
        self.axes_but_channels("group_norm")?;
        let (batch, channels) = (self.shape()[0], self.shape()[1]);
        if groups == 0 || !channels.is_multiple_of(groups) {
            let message = format!("{groups} groups do not divide the {channels} channels of {:?}", self.shape());
            return Err(Error::new(ErrorKind::Shape, "group_norm", message));
        }
        let split = [&[batch, groups, channels / groups], &self.shape()[2..]].concat();
        let (weight, bias) = self.affine("group_norm", weight, bias)?;
        let of_groups = |x: Option<Self>| {
            let shape = [&[groups, channels / groups], &vec![1; self.rank() - 2][..]].concat();
            x.map(|x| x.reshape(shape)).transpose()
        };
        let (weight, bias) = (of_groups(weight)?, of_groups(bias)?);
        let axes: Vec<isize> = (2..split.len() as isize).collect();
        let normal = self.reshape(&split)?.layer_norm(&axes[..], epsilon, weight.as_ref(), bias.as_ref())?;
        normal.reshape(self.shape())
    }

    /// Each channel of each batch by its own mean and variance, times `weight` plus `bias`.
    ///
    /// # Errors
    /// `Shape` when there are no axes after the channels, or weight or bias have another number of channels; as
    /// [`normalize`](Self::normalize).
    pub fn instance_norm(&self, epsilon: f64, weight: Option<&Self>, bias: Option<&Self>) -> Result<Self> {
        if self.rank() < 3 {
            let message = format!("shape {:?} has no axes after batch and channels", self.shape());
            return Err(Error::new(ErrorKind::Shape, "instance_norm", message));
        }
        let (weight, bias) = self.affine("instance_norm", weight, bias)?;
        let axes: Vec<isize> = (2..self.rank() as isize).collect();
        self.layer_norm(&axes[..], epsilon, weight.as_ref(), bias.as_ref())
    }

    fn axes_but_channels(&self, op: &'static str) -> Result<Vec<isize>> {
        if self.rank() < 2 {
            let message = format!("shape {:?} has no channels: it must be [batch, channels, …]", self.shape());
            return Err(Error::new(ErrorKind::Shape, op, message));
        }
        Ok((0..self.rank() as isize).filter(|&axis| axis != 1).collect())
    }

    /// Weight and bias, so that they broadcast over all but the channels.
    fn affine(
        &self,
        op: &'static str,
        weight: Option<&Self>,
        bias: Option<&Self>,
    ) -> Result<(Option<Self>, Option<Self>)> {
        let each = |x: Option<&Self>| x.map(|x| self.per_channel(op, x)).transpose();
        Ok((each(weight)?, each(bias)?))
    }

    fn per_channel(&self, op: &'static str, x: &Self) -> Result<Self> {
        if self.rank() < 2 || x.shape() != &self.shape()[1..2] {
            let message = format!("shape {:?} must have an element for each channel of {:?}", x.shape(), self.shape());
            return Err(Error::new(ErrorKind::Shape, op, message));
        }
        x.reshape([x.shape(), &vec![1; self.rank() - 2][..]].concat())
    }
}

impl<B: NormOps + StatisticOps + BinaryOps + UnaryOps + CopyOps + ?Sized> Tensor<B> {
    /// [`batch_norm`](Self::batch_norm) as in training: mean and variance of the batch also move the running ones,
    /// old · (1 − momentum) + new · momentum, the variance with Bessel's correction.
    ///
    /// # Errors
    /// As [`batch_norm`](Self::batch_norm), and `Shape` or `DType` when running values do not fit.
    pub fn batch_norm_train(
        &self,
        running: (&mut Self, &mut Self),
        momentum: f64,
        epsilon: f64,
        weight: Option<&Self>,
        bias: Option<&Self>,
    ) -> Result<Self> {
        let axes = self.axes_but_channels("batch_norm")?;
        let normal = self.batch_norm(epsilon, weight, bias)?;
        let batch = (self.mean(&axes[..], false)?, self.var(1.0, &axes[..], false)?);
        for (running, batch) in [(running.0, batch.0), (running.1, batch.1)] {
            running.mul_assign(1.0 - momentum)?;
            running.add_assign(&batch.mul(momentum)?)?;
        }
        Ok(normal)
    }

    /// Each channel by a mean and a variance that are given, as after training: (x − mean)/√(variance + ε)·weight + bias. f16
    /// and bf16 are computed in f32 and rounded once.
    ///
    /// # Errors
    /// `Shape` unless all have an element for each channel; `DType` unless all are of one float dtype; `Unsupported`;
    /// `OutOfMemory`.
    pub fn batch_norm_inference(
        &self,
        (mean, variance): (&Self, &Self),
        epsilon: f64,
        weight: Option<&Self>,
        bias: Option<&Self>,
    ) -> Result<Self> {
        for other in [Some(mean), Some(variance), weight, bias].into_iter().flatten() {
            if other.dtype() != self.dtype() || !self.dtype().is_float() {
                let message =
                    format!("dtypes {} and {} meet; all must be one float dtype", self.dtype(), other.dtype());
                return Err(Error::new(ErrorKind::DType, "batch_norm", message));
            }
        }
        let wide = if self.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let channel = |x: &Self| self.per_channel("batch_norm", x)?.cast(wide);
        let mut scale = channel(variance)?.add(epsilon)?.rsqrt()?;
        if let Some(weight) = weight {
            scale.mul_assign(&channel(weight)?)?;
        }
        let mut y = self.cast(wide)?.sub(&channel(mean)?)?.mul(&scale)?;
        if let Some(bias) = bias {
            y.add_assign(&channel(bias)?)?;
        }
        y.cast(self.dtype())
    }
}
