//! Linear layers against the composition of the backend's own ops, bit for bit where both round alike.

use congruent_backend_api::ops::linear::{Activation, Linear};
use congruent_backend_api::{Element, Layout, LinearOps, bf16, f16};
use congruent_backend_cuda::Cuda;

use crate::support::{Tensor, cuda, layout};

/// Small integers, so that sums are exact; `out` has the layer's shape.
fn check<T: Element>(cuda: &Cuda, from: fn(f64) -> T, to: fn(T) -> f64, x: Layout, outputs: usize, out: Layout) {
    let inputs = x.shape()[x.rank() - 1];
    let number = |at: usize, seed: usize| ((at * 7 + seed) % 5) as f64 - 2.0;
    let tensor = |layout: Layout, seed: usize| {
        Tensor::from_fn(cuda, &[layout.min_len() + 3], |at| from(number(at, seed))).with(|_| layout)
    };
    let (x, weight) = (tensor(x, 1), tensor(layout(&[outputs, inputs]), 2));
    let rows = out.count() / outputs;
    let (xs, weights) = (x.to_vec::<T>(cuda), weight.to_vec::<T>(cuda));
    for bias in [None, Some(layout(&[outputs])), Some(layout(&[outputs]).flip(&[0]).unwrap())] {
        let bias = bias.map(|layout| tensor(layout, 3));
        let biases = bias.as_ref().map(|bias| bias.to_vec::<T>(cuda));
        for &activation in Activation::ALL {
            let mut result = tensor(out, 4);
            let plan = Linear::new(x.view(), weight.view(), bias.as_ref().map(Tensor::view), activation, result.view());
            let plan = plan.unwrap();
            let bias = bias.as_ref().map(|bias| &bias.storage);
            cuda.linear(&plan, &x.storage, &weight.storage, bias, &mut result.storage).unwrap();
            for (index, got) in result.to_vec::<T>(cuda).into_iter().enumerate() {
                let (row, output) = (index / outputs, index % outputs);
                let sum: f64 = (0..inputs).map(|i| to(xs[row * inputs + i]) * to(weights[output * inputs + i])).sum();
                let sum = sum + biases.as_ref().map_or(0.0, |biases| to(biases[output]));
                let expected = match activation {
                    Activation::Identity => sum,
                    Activation::Relu => sum.max(0.0),
                    Activation::Gelu => sum / 2.0 * core_math::erfc(-sum / 2_f64.sqrt()),
                    Activation::GeluTanh => {
                        let t = (2.0 / std::f64::consts::PI).sqrt() * (sum + 0.044_715 * sum.powi(3));
                        sum / 2.0 * (1.0 + t.tanh())
                    }
                };
                let (got, near) = (to(got), to(from(expected)));
                let exact = matches!(activation, Activation::Identity | Activation::Relu);
                let close = (got - near).abs() <= if exact { 0.0 } else { 0.01 * near.abs() + 1e-6 };
                assert!(close, "{} row {row} of {rows}, output {output}: {got}, not {near}", T::DTYPE);
            }
        }
    }
}

fn check_all(cuda: &Cuda, x: Layout, outputs: usize, out: Layout) {
    check::<f64>(cuda, |x| x, |x| x, x, outputs, out);
    check::<f32>(cuda, |x| x as f32, f64::from, x, outputs, out);
    check::<f16>(cuda, f16::from_f64, f16::to_f64, x, outputs, out);
    check::<bf16>(cuda, bf16::from_f64, bf16::to_f64, x, outputs, out);
}

#[test]
fn layers_of_every_form() {
    let Some(cuda) = cuda() else { return };
    for (batch, inputs, outputs) in
        [(&[5][..], 7, 3), (&[64], 32, 64), (&[2, 3], 16, 8), (&[1], 9, 4), (&[6], 8, 1), (&[3], 0, 2)]
    {
        let shape = |last: usize| [batch, &[last]].concat();
        check_all(cuda, layout(&shape(inputs)), outputs, layout(&shape(outputs)));
    }
    check_all(cuda, layout(&[8]), 4, layout(&[4]));
    // Outputs transposed, with batch axes exchanged, and reversed.
    check_all(cuda, layout(&[12, 16]), 8, layout(&[8, 12]).permute(&[1, 0]).unwrap());
    check_all(cuda, layout(&[2, 3, 4, 16]), 8, layout(&[3, 2, 4, 8]).permute(&[1, 0, 2, 3]).unwrap());
    check_all(cuda, layout(&[12, 16]).flip(&[0]).unwrap(), 8, layout(&[12, 8]).flip(&[1]).unwrap());
}
