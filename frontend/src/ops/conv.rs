//! Convolutions over one to three spatial axes, and their gradients. Floats only.
//!
//! Tensors are \[batch, channels, spatial…\] and weights \[output channels, input channels / groups, kernel…\], by their axes:
//! in memory they may lie in any order. A batch of channels-last images is `x.permute([0, 3, 1, 2])`, without a copy, and gives
//! such a batch: layers of channels-last images need no copies between them.

use congruent_backend_api::ops::conv::{Conv, ConvOp, ConvOptions, MAX_SPATIAL};
use congruent_backend_api::ops::linear::Activation;
use congruent_backend_api::{ConvOps, Error, ErrorKind, Layout, Result, Shape};

use crate::operand::{Operand, same_backend};
use crate::tensor::Tensor;

impl<B: ConvOps + ?Sized> Tensor<B> {
    /// The convolution with `weight` (the kernel is not flipped), plus `bias` for each output channel.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{Tensor, ops::ConvOptions};
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::from_slice(&device, &[1.0_f32, 2.0, 4.0, 8.0], [1, 1, 4])?;
    /// let weight = Tensor::from_slice(&device, &[1.0_f32, 0.0, -1.0], [1, 1, 3])?;
    /// let options = ConvOptions { padding: [[1; 2]; 3], ..ConvOptions::default() };
    /// let y = x.conv(&weight, None, options)?;
    /// assert_eq!((y.shape(), y.to_vec::<f32>()?), (&[1, 1, 4][..], vec![-2.0, -3.0, -6.0, 4.0]));
    /// assert_eq!(x.conv(&weight, None, options.causal(&[3]))?.to_vec::<f32>()?, [-1.0, -2.0, -3.0, -6.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Shape` when the ranks are not equal and 3 to 5, the channels do not fit, the groups do not divide them, or the kernel
    /// is larger than the padded input; `DType` unless all are one float dtype; `Argument` for a stride, dilation or number
    /// of groups of 0, or tensors of two backends; `Unsupported`; `OutOfMemory`.
    pub fn conv(&self, weight: &Self, bias: Option<&Self>, options: ConvOptions) -> Result<Self> {
        let shape = Conv::shape(self.shape(), weight.shape(), &options)?;
        self.convolve(ConvOp::Conv, weight, bias, options, Activation::Identity, shape)
    }

    /// [`conv`](Self::conv) and an activation in one call: what a layer of an image network computes.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{Tensor, ops::{Activation, ConvOptions}};
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::from_slice(&device, &[1.0_f32, 2.0, 4.0, 8.0], [1, 1, 4])?;
    /// let weight = Tensor::from_slice(&device, &[2.0_f32, -1.0], [1, 1, 2])?;
    /// let bias = Tensor::from_slice(&device, &[-1.0_f32], [1])?;
    /// let y = x.conv_activated(&weight, Some(&bias), ConvOptions::default(), Activation::Relu)?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 0.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`conv`](Self::conv).
    pub fn conv_activated(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        options: ConvOptions,
        activation: Activation,
    ) -> Result<Self> {
        let shape = Conv::shape(self.shape(), weight.shape(), &options)?;
        self.convolve(ConvOp::Conv, weight, bias, options, activation, shape)
    }

    /// The transpose of [`conv`](Self::conv), which takes what that gives: its gradient by the input, also known as a
    /// deconvolution, plus `bias` for each channel of the result.
    ///
    /// Several input sizes give `conv` the same output size, all that lie within one stride; `output_padding` says how much
    /// larger than the least of them the result is.
    ///
    /// # Errors
    /// As [`conv`](Self::conv), and `Shape` when the padding leaves a negative size.
    pub fn conv_transpose(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        options: ConvOptions,
        output_padding: [usize; MAX_SPATIAL],
    ) -> Result<Self> {
        let shape = Conv::transpose_shape(self.shape(), weight.shape(), &options, output_padding)?;
        self.convolve(ConvOp::ConvTranspose, weight, bias, options, Activation::Identity, shape)
    }

    /// The gradient of [`conv`](Self::conv) by its input, which had `shape`; this tensor is the gradient of its output.
    ///
    /// # Errors
    /// As [`conv`](Self::conv), and `Shape` when the input and this gradient do not fit together.
    pub fn conv_grad_input(&self, weight: &Self, shape: impl AsRef<[usize]>, options: ConvOptions) -> Result<Self> {
        let shape = Shape::new(ConvOp::ConvTranspose.name(), shape.as_ref())?;
        let output = Conv::shape(&shape, weight.shape(), &options)?;
        if self.shape() != &*output {
            let message =
                format!("the gradient has shape {:?}, but `conv` of {shape:?} gives {output:?}", self.shape());
            return Err(Error::new(ErrorKind::Shape, "conv_grad_input", message));
        }
        self.convolve(ConvOp::ConvTranspose, weight, None, options, Activation::Identity, shape)
    }

    /// The gradient of [`conv`](Self::conv) by its weight, which had `shape`; this tensor is the input, `grad` the gradient
    /// of the output. That by the bias is `grad.sum(…)` over all axes but the channels.
    ///
    /// # Errors
    /// As [`conv`](Self::conv), and `Shape` when `grad` is not what `conv` gives.
    pub fn conv_grad_weight(&self, grad: &Self, shape: impl AsRef<[usize]>, options: ConvOptions) -> Result<Self> {
        let shape = Shape::new(ConvOp::ConvGradWeight.name(), shape.as_ref())?;
        self.convolve(ConvOp::ConvGradWeight, grad, None, options, Activation::Identity, shape)
    }

    /// `op` of this tensor and `other` into `out`, whose shape takes the place of output padding and of the shapes that the
    /// gradients are given.
    ///
    /// # Errors
    /// As [`conv`](Self::conv), and `Shape` or `DType` when the result does not fit `out`.
    pub fn conv_into(
        &self,
        op: ConvOp,
        other: &Self,
        bias: Option<&Self>,
        options: ConvOptions,
        out: &mut Self,
    ) -> Result<()> {
        let operands = [self, other, bias.unwrap_or(other)].map(Operand::Tensor);
        same_backend(op.name(), out.backend(), &operands)?;
        out.overwrite(
            |_, out| Conv::new(op, self.view(), other.view(), bias.map(Self::view), &options, out),
            |plan, _, out| {
                let bias = bias.map(|bias| bias.storage().as_ref());
                self.backend().conv(plan, self.storage(), other.storage(), bias, out)
            },
        )
    }

    fn convolve(
        &self,
        op: ConvOp,
        other: &Self,
        bias: Option<&Self>,
        options: ConvOptions,
        activation: Activation,
        shape: Shape,
    ) -> Result<Self> {
        let others = [other, bias.unwrap_or(other)].map(Operand::Tensor);
        same_backend(op.name(), self.backend(), &others)?;
        let layout = if op != ConvOp::ConvGradWeight && is_channels_last(self.layout()) {
            channels_last(op, &shape)?
        } else {
            Layout::contiguous(shape)
        };
        Self::produce_in(
            self.backend(),
            self.dtype(),
            layout,
            |out| {
                let plan = Conv::new(op, self.view(), other.view(), bias.map(Self::view), &options, out)?;
                plan.with_activation(activation)
            },
            |plan, out| {
                let bias = bias.map(|bias| bias.storage().as_ref());
                self.backend().conv(plan, self.storage(), other.storage(), bias, out)
            },
        )
    }
}

/// Whether the elements lie packed with the channels innermost.
fn is_channels_last(layout: &Layout) -> bool {
    let order: Vec<isize> = (0..layout.rank() as isize).filter(|&axis| axis != 1).chain([1]).collect();
    !layout.is_contiguous() && layout.permute(&order).is_ok_and(|layout| layout.is_contiguous())
}

/// The packed layout of a shape whose channels are innermost.
fn channels_last(op: ConvOp, shape: &Shape) -> Result<Layout> {
    let sizes: Vec<usize> = shape.iter().enumerate().filter(|&(axis, _)| axis != 1).map(|(_, &size)| size).collect();
    let packed = Layout::contiguous(Shape::new(op.name(), &[&sizes[..], &[shape[1]]].concat())?);
    let order: Vec<isize> = [0, -1].into_iter().chain(1..shape.rank() as isize - 1).collect();
    packed.permute(&order)
}
