//! Pooling of image networks: 2×2 and 3×3 with stride 2, their positions, averages and gradients.

use congruent::DType;
use congruent::ops::PoolOptions;
use congruent_benches::{compare, random};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const SHAPE: [usize; 4] = [8, 64, 112, 112];

fn pool(criterion: &mut Criterion) {
    for dtype in [DType::F32, DType::BF16] {
        for (name, kernel, padding) in [("2x2s2", 2, 0), ("3x3s2", 3, 1)] {
            let options = PoolOptions { stride: [2; 3], padding: [[padding; 2]; 3], ..PoolOptions::new([kernel; 3]) };
            // The input once and a quarter of it, whichever way.
            let bytes = SHAPE.iter().product::<usize>() * dtype.size() * 5 / 4;
            let bytes = || Throughput::Bytes(bytes as u64);
            let case = |op: &str| format!("pool/{op}{name}/{dtype}/{}", SHAPE.map(|size| size.to_string()).join("x"));
            let make = |backend: &_| random(backend, dtype, &SHAPE);
            compare(criterion, &case("max_pool"), bytes(), make, |x| x.max_pool(options).map(drop));
            compare(criterion, &case("argmax_pool"), bytes(), make, |x| x.argmax_pool(options).map(drop));
            compare(criterion, &case("avg_pool"), bytes(), make, |x| x.avg_pool(options).map(drop));
            let half = [SHAPE[0], SHAPE[1], SHAPE[2] / 2, SHAPE[3] / 2];
            let make = |backend: &_| {
                Ok((random(backend, dtype, &half)?, random(backend, dtype, &SHAPE)?.argmax_pool(options)?))
            };
            compare(criterion, &case("max_pool_grad"), bytes(), make, |(grad, indices)| {
                grad.max_pool_grad(indices, SHAPE, options).map(drop)
            });
            compare(criterion, &case("avg_pool_grad"), bytes(), make, |(grad, _)| {
                grad.avg_pool_grad(SHAPE, options).map(drop)
            });
        }
    }
}

criterion_group!(benches, pool);
criterion_main!(benches);
