//! Convolutions of image networks: 3×3, 7×7 with stride 2, depthwise, 1×1, and the gradients of the first.

use congruent::DType;
use congruent::ops::ConvOptions;
use congruent_benches::{compare, random};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Name, x, weight, stride, padding, groups.
type Case = (&'static str, [usize; 4], [usize; 4], usize, usize, usize);

const CASES: [Case; 4] = [
    ("3x3", [8, 64, 56, 56], [64, 64, 3, 3], 1, 1, 1),
    ("7x7s2", [8, 3, 224, 224], [64, 3, 7, 7], 2, 3, 1),
    ("1x1", [8, 64, 56, 56], [256, 64, 1, 1], 1, 0, 1),
    ("depthwise3x3", [8, 256, 56, 56], [256, 1, 3, 3], 1, 1, 256),
];

fn conv(criterion: &mut Criterion) {
    for dtype in [DType::F32, DType::BF16] {
        for (name, x, weight, stride, padding, groups) in CASES {
            let options =
                ConvOptions { stride: [stride; 3], padding: [[padding; 2]; 3], groups, ..ConvOptions::default() };
            let out = (x[2] + 2 * padding - weight[2]) / stride + 1;
            let flops = Throughput::Elements((2 * x[0] * out * out * weight.iter().product::<usize>()) as u64);
            let sizes = x.map(|size| size.to_string()).join("x");
            let make = |backend: &_| Ok((random(backend, dtype, &x)?, random(backend, dtype, &weight)?));
            compare(criterion, &format!("conv/conv{name}/{dtype}/{sizes}"), flops.clone(), make, |(x, weight)| {
                x.conv(weight, None, options).map(drop)
            });
            if name != "3x3" {
                continue;
            }
            let make = |backend: &_| {
                let y = random(backend, dtype, &[x[0], weight[0], out, out])?;
                Ok((random(backend, dtype, &x)?, random(backend, dtype, &weight)?, y))
            };
            let case = |op: &str| format!("conv/{op}{name}/{dtype}/{sizes}");
            compare(criterion, &case("conv_grad_input"), flops.clone(), make, |(x, weight, y)| {
                y.conv_grad_input(weight, x.shape(), options).map(drop)
            });
            compare(criterion, &case("conv_grad_weight"), flops, make, |(x, weight, y)| {
                x.conv_grad_weight(y, weight.shape(), options).map(drop)
            });
        }
    }
}

criterion_group!(benches, conv);
criterion_main!(benches);
