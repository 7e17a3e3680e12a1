//! A small convolutional network: twice convolution, relu and the greatest of each 2×2, then a layer.

use std::sync::Arc;

use congruent::ops::{ConvOptions, PoolOptions};
use congruent::{AllOps, DType, Result, Tensor};

use super::models::{Layer, Model, uniform};
use super::scans::{CLASSES, SIDE};

/// Channels after each convolution.
const CHANNELS: [usize; 2] = [16, 32];
const KERNEL: [usize; 2] = [3; 2];

fn pairs() -> PoolOptions {
    PoolOptions::new([2; 3])
}

/// The greatest of each 2×2 of relu(x ∗ weight + bias), as large as x before.
struct Stage<B: AllOps + ?Sized> {
    weight: Tensor<B>,
    bias: Tensor<B>,
    options: ConvOptions,
}

/// What the gradient of a stage needs.
pub(super) struct Seen<B: AllOps + ?Sized> {
    input: Tensor<B>,
    active: Tensor<B>,
    indices: Tensor<B>,
}

impl<B: AllOps + ?Sized> Stage<B> {
    fn new(device: &Arc<B>, inputs: usize, outputs: usize, seed: u64) -> Result<Self> {
        let taps: usize = KERNEL.iter().product();
        let weight = uniform(device, &[outputs, inputs, KERNEL[0], KERNEL[1]], (inputs + outputs) * taps, seed)?;
        let bias = Tensor::zeros(device, [outputs], DType::F32)?;
        Ok(Self { weight, bias, options: ConvOptions::default().same(&KERNEL) })
    }

    fn forward(&self, x: &Tensor<B>) -> Result<(Tensor<B>, Seen<B>)> {
        let active = x.conv(&self.weight, Some(&self.bias), self.options)?.relu()?;
        let (greatest, indices) = active.max_pool_with_indices(pairs())?;
        Ok((greatest, Seen { input: x.clone(), active, indices }))
    }

    /// A step of gradient descent; returns the gradient with respect to the input of the convolution, before the step.
    fn step(&mut self, seen: &Seen<B>, gradient: &Tensor<B>, rate: f64) -> Result<Tensor<B>> {
        let back = gradient.max_pool_grad(&seen.indices, seen.active.shape(), pairs())?;
        let back = (back * seen.active.gt(0.0)?.cast(DType::F32)?)?;
        let input = back.conv_grad_input(&self.weight, seen.input.shape(), self.options)?;
        let weight = seen.input.conv_grad_weight(&back, self.weight.shape(), self.options)?;
        self.weight.sub_assign(&(weight * rate)?)?;
        self.bias.sub_assign(&(back.sum([0, 2, 3], false)? * rate)?)?;
        Ok(input)
    }
}

pub(super) struct Network<B: AllOps + ?Sized> {
    stages: [Stage<B>; 2],
    last: Layer<B>,
}

impl<B: AllOps + ?Sized> Network<B> {
    pub(super) fn new(device: &Arc<B>, seed: u64) -> Result<Self> {
        let [first, second] = CHANNELS;
        let stages = [Stage::new(device, 1, first, seed)?, Stage::new(device, first, second, seed + 1)?];
        // Each stage halves the sides.
        let features = second * (SIDE / 4) * (SIDE / 4);
        Ok(Self { stages, last: Layer::new(device, features, CLASSES, seed + 2)? })
    }
}

impl<B: AllOps + ?Sized> Model<B> for Network<B> {
    type Seen = ([Seen<B>; 2], Tensor<B>);

    fn forward(&self, x: &Tensor<B>) -> Result<(Tensor<B>, Self::Seen)> {
        let [first, second] = &self.stages;
        let (x, before) = first.forward(&x.reshape([x.shape()[0], 1, SIDE, SIDE])?)?;
        let (x, after) = second.forward(&x)?;
        let features = x.reshape([x.shape()[0], x.count() / x.shape()[0]])?;
        Ok((self.last.forward(&features)?, ([before, after], features)))
    }

    fn step(&mut self, _: &Tensor<B>, seen: &Self::Seen, gradient: &Tensor<B>, rate: f64) -> Result<()> {
        let ([before, after], features) = seen;
        let [first, second] = &mut self.stages;
        let back = self.last.backward(gradient)?.reshape(after.indices.shape())?;
        self.last.step(features, gradient, rate)?;
        let back = second.step(after, &back, rate)?;
        first.step(before, &back, rate)?;
        Ok(())
    }
}
