//! Convolutions of image networks, [batch, channels, height, width] in rows, and their gradients.

use congruent::ops::{Activation, ConvOptions};
use congruent::{DType, Result};

use crate::case::{Case, T, data, sizes};

/// Name, input, weight, stride, padding, groups.
struct Layer(&'static str, [usize; 4], [usize; 4], usize, usize, usize);

impl Layer {
    fn options(&self) -> ConvOptions {
        let Self(.., stride, padding, groups) = *self;
        ConvOptions { stride: [stride; 3], padding: [[padding; 2]; 3], groups, ..ConvOptions::default() }
    }

    /// The side of the output.
    fn side(&self) -> usize {
        let Self(_, x, weight, stride, padding, _) = self;
        (x[2] + 2 * padding - weight[2]) / stride + 1
    }

    fn case(
        &self,
        op: &str,
        dtype: DType,
        inputs: [[usize; 4]; 2],
        call: fn(&T, &T, ConvOptions) -> Result<T>,
    ) -> Case {
        let Self(name, x, weight, stride, padding, groups) = self;
        let options = self.options();
        let inputs = inputs.map(|shape| data(&shape));
        let case = Case::new(("conv", &format!("{op}{name}")), dtype, inputs, move |inputs| {
            call(&inputs.x[0], &inputs.x[1], options)
        });
        let out = x[0] * weight[0] * self.side().pow(2);
        let count = |shape: &[usize; 4]| shape.iter().product::<usize>();
        case.arg("stride", *stride)
            .arg("padding", *padding)
            .arg("groups", *groups)
            .flops(2 * out * count(weight) / weight[0])
            .bytes((count(x) + count(weight) + out) * dtype.size())
            .named(sizes(x))
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::BF16] {
        for batch in [1, 8, 32] {
            image(&mut cases, dtype, batch);
        }
        // Small enough for a call's own cost to show.
        let small = Layer("3x3", [1, 16, 14, 14], [16, 16, 3, 3], 1, 1, 1);
        cases.push(small.case("conv", dtype, [small.1, small.2], |x, w, options| x.conv(w, None, options)));
    }
    cases
}

fn image(cases: &mut Vec<Case>, dtype: DType, batch: usize) {
    let same = Layer("3x3", [batch, 64, 56, 56], [64, 64, 3, 3], 1, 1, 1);
    let layers = [
        Layer("7x7s2", [batch, 3, 224, 224], [64, 3, 7, 7], 2, 3, 1),
        Layer("1x1", [batch, 64, 56, 56], [256, 64, 1, 1], 1, 0, 1),
        Layer("3x3_depthwise", [batch, 256, 56, 56], [256, 1, 3, 3], 1, 1, 256),
    ];
    for layer in [&same].into_iter().chain(&layers) {
        cases.push(layer.case("conv", dtype, [layer.1, layer.2], |x, w, options| x.conv(w, None, options)));
    }
    cases.push(same.case("conv_relu", dtype, [same.1, same.2], |x, w, options| {
        x.conv_activated(w, Some(&w.i((.., 0, 0, 0))?), options, Activation::Relu)
    }));
    let last = [[batch, 56, 56, 64], [64, 3, 3, 64]];
    cases.push(same.case("conv_nhwc", dtype, last, |x, w, options| {
        x.permute([0, 3, 1, 2])?.conv(&w.permute([0, 3, 1, 2])?, None, options)
    }));
    // As many channels come as go, at stride 1: an image is also a gradient of the output.
    for layer in [&same, &layers[2]] {
        cases.push(layer.case("conv_grad_input", dtype, [layer.1, layer.2], |y, w, options| {
            y.conv_grad_input(w, y.shape(), options)
        }));
    }
    cases.push(
        same.case("conv_grad_weight", dtype, [same.1, same.2], |x, w, options| {
            x.conv_grad_weight(x, w.shape(), options)
        }),
    );
}
