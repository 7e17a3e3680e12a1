//! Elementwise arithmetic: into a buffer that is kept, with broadcasting, transposed, and the cost of a small op.

use congruent::api::ops::binary::BinaryOp;
use congruent::{DType, Tensor};
use congruent_benches::{compare, random};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn binary(criterion: &mut Criterion) {
    for (dtype, shape) in
        [(DType::F32, [2, 2]), (DType::F32, [256, 256]), (DType::F32, [4096, 4096]), (DType::BF16, [4096, 4096])]
    {
        let bytes = Throughput::Bytes((3 * dtype.size() * shape[0] * shape[1]) as u64);
        let size = format!("{}x{}", shape[0], shape[1]);
        let case = |name: &str| format!("binary/{name}/{dtype}/{size}");
        compare(
            criterion,
            &case("add"),
            bytes.clone(),
            |backend| Ok((random(backend, dtype, &shape)?, random(backend, dtype, &shape)?)),
            |(a, b)| a.add(&*b).map(drop),
        );
        compare(
            criterion,
            &case("add_into"),
            bytes.clone(),
            |backend| {
                let make = || random(backend, dtype, &shape);
                Ok((make()?, make()?, make()?))
            },
            |(a, b, out)| Tensor::binary_into(BinaryOp::Add, &*a, &*b, out),
        );
        compare(
            criterion,
            &case("add_row"),
            Throughput::Bytes((2 * dtype.size() * shape[0] * shape[1]) as u64),
            |backend| Ok((random(backend, dtype, &shape)?, random(backend, dtype, &shape[1..])?)),
            |(a, row)| a.add(&*row).map(drop),
        );
        compare(
            criterion,
            &case("add_transposed"),
            bytes,
            |backend| Ok((random(backend, dtype, &shape)?, random(backend, dtype, &[shape[1], shape[0]])?.t()?)),
            |(a, b)| a.add(&*b).map(drop),
        );
    }
}

criterion_group!(benches, binary);
criterion_main!(benches);
