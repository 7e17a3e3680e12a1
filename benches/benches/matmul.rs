//! Matrix products, new result each time.

use congruent::DType;
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

criterion_group!(benches, matmul);
criterion_main!(benches);
