//! What is trained: layers of products, with gradients written by hand.

use std::sync::Arc;

use congruent::{AllOps, DType, Result, Tensor};

use super::scans::{CLASSES, PIXELS, hash};

/// Scores for each class, and the gradients.
pub(super) trait Model<B: AllOps + ?Sized> {
    /// What the gradients need of the way to the scores.
    type Seen;

    /// The scores of scans [n, pixels].
    fn forward(&self, x: &Tensor<B>) -> Result<(Tensor<B>, Self::Seen)>;

    /// A step of gradient descent, given the gradient with respect to the scores.
    fn step(&mut self, x: &Tensor<B>, seen: &Self::Seen, gradient: &Tensor<B>, rate: f64) -> Result<()>;
}

/// Numbers uniform in ±√(6 / fans), where `fans` are inputs and outputs of an element (Glorot and Bengio, 2010).
pub(super) fn uniform<B: AllOps + ?Sized>(
    device: &Arc<B>,
    shape: &[usize],
    fans: usize,
    seed: u64,
) -> Result<Tensor<B>> {
    let limit = (6.0 / fans as f64).sqrt();
    let weights: Vec<f32> = (0..shape.iter().product())
        .map(|index: usize| {
            let unit = (hash(seed, index as u64) >> 11) as f64 / (1_u64 << 53) as f64;
            (limit * (2.0 * unit - 1.0)) as f32
        })
        .collect();
    Tensor::from_slice(device, &weights, shape)
}

/// A layer x·W + b.
pub(super) struct Layer<B: AllOps + ?Sized> {
    weight: Tensor<B>,
    bias: Tensor<B>,
}

impl<B: AllOps + ?Sized> Layer<B> {
    /// Weights uniform in ±√(6 / (inputs + outputs)) (Glorot and Bengio, 2010).
    pub(super) fn new(device: &Arc<B>, inputs: usize, outputs: usize, seed: u64) -> Result<Self> {
        let weight = uniform(device, &[inputs, outputs], inputs + outputs, seed)?;
        Ok(Self { weight, bias: Tensor::zeros(device, [outputs], DType::F32)? })
    }

    pub(super) fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.matmul(&self.weight)? + &self.bias
    }

    /// The gradient with respect to the input, given that of the output.
    pub(super) fn backward(&self, gradient: &Tensor<B>) -> Result<Tensor<B>> {
        gradient.matmul(&self.weight.t()?)
    }

    /// A step of gradient descent, added to the weights by the product itself.
    pub(super) fn step(&mut self, x: &Tensor<B>, gradient: &Tensor<B>, rate: f64) -> Result<()> {
        Tensor::matmul_into(&x.t()?, gradient, -rate, 1, &mut self.weight)?;
        self.bias.sub_assign(&(gradient.sum(0, false)? * rate)?)
    }
}

/// A softmax classifier, or with a hidden layer a perceptron.
pub(super) struct Perceptron<B: AllOps + ?Sized> {
    first: Option<Layer<B>>,
    last: Layer<B>,
}

impl<B: AllOps + ?Sized> Perceptron<B> {
    pub(super) fn new(device: &Arc<B>, hidden: Option<usize>, seed: u64) -> Result<Self> {
        let first = hidden.map(|hidden| Layer::new(device, PIXELS, hidden, seed)).transpose()?;
        Ok(Self { first, last: Layer::new(device, hidden.unwrap_or(PIXELS), CLASSES, seed + 1)? })
    }
}

impl<B: AllOps + ?Sized> Model<B> for Perceptron<B> {
    /// The hidden layer.
    type Seen = Option<Tensor<B>>;

    fn forward(&self, x: &Tensor<B>) -> Result<(Tensor<B>, Self::Seen)> {
        let hidden = self.first.as_ref().map(|layer| layer.forward(x)?.relu()).transpose()?;
        Ok((self.last.forward(hidden.as_ref().unwrap_or(x))?, hidden))
    }

    fn step(&mut self, x: &Tensor<B>, hidden: &Self::Seen, gradient: &Tensor<B>, rate: f64) -> Result<()> {
        if let (Some(first), Some(hidden)) = (&mut self.first, hidden) {
            let inner = (self.last.backward(gradient)? * hidden.gt(0.0)?.cast(DType::F32)?)?;
            first.step(x, &inner, rate)?;
        }
        self.last.step(hidden.as_ref().unwrap_or(x), gradient, rate)
    }
}
