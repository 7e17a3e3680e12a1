//! Matrix products and linear layers, new result each time.

use congruent::DType;
use congruent::ops::Activation;
use congruent_benches::{compare, random};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn matmul(criterion: &mut Criterion) {
    for (dtype, m, k, n) in [
        (DType::F32, 256, 256, 256),
        (DType::F32, 1024, 1024, 1024),
        (DType::F64, 512, 512, 512),
        (DType::BF16, 512, 512, 512),
        (DType::F32, 1, 4096, 4096),
    ] {
        let case = format!("matmul/matmul/{dtype}/{m}x{k}x{n}");
        let flops = Throughput::Elements((2 * m * k * n) as u64);
        compare(
            criterion,
            &case,
            flops,
            |backend| Ok((random(backend, dtype, &[m, k])?, random(backend, dtype, &[k, n])?)),
            |(a, b)| a.matmul(b).map(drop),
        );
    }
}

/// A layer of 4096 features with bias, on a batch of 512.
fn linear(criterion: &mut Criterion) {
    let (rows, features) = (512, 4096);
    for dtype in [DType::F32, DType::BF16] {
        for &activation in Activation::ALL {
            let case = format!("matmul/linear_{}/{dtype}/{rows}x{features}x{features}", activation.name());
            let flops = Throughput::Elements((2 * rows * features * features) as u64);
            compare(
                criterion,
                &case,
                flops,
                |backend| {
                    let make = |shape: &[usize]| random(backend, dtype, shape);
                    Ok((make(&[rows, features])?, make(&[features, features])?, make(&[features])?))
                },
                |(x, weight, bias)| x.linear(weight, Some(bias), activation).map(drop),
            );
        }
    }
}

criterion_group!(benches, matmul, linear);
criterion_main!(benches);
