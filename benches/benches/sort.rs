//! Sorts of one long row and of many rows, the first 50 of each, and searches.

use congruent::DType;
use congruent_benches::{compare, random};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn sort(criterion: &mut Criterion) {
    for shape in [[1, 1 << 20], [1024, 1024], [1024, 8192]] {
        let bytes = Throughput::Bytes((4 * shape[0] * shape[1]) as u64);
        let case = |op: &str| format!("sort/{op}/f32/{}x{}", shape[0], shape[1]);
        let make = |backend: &_| random(backend, DType::F32, &shape);
        compare(criterion, &case("sort"), bytes.clone(), make, |x| x.sort(-1, false).map(drop));
        compare(criterion, &case("argsort"), bytes.clone(), make, |x| x.argsort(-1, false).map(drop));
        compare(criterion, &case("topk50"), bytes, make, |x| x.topk(50, -1, true).map(drop));
    }
    let make = |backend: &_| {
        Ok((random(backend, DType::F32, &[4096])?.sort(0, false)?, random(backend, DType::F32, &[1 << 20])?))
    };
    let bytes = Throughput::Bytes(4 << 20);
    compare(criterion, "sort/searchsorted/f32/4096,1048576", bytes, make, |(row, values)| {
        row.searchsorted(values, false).map(drop)
    });
}

criterion_group!(benches, sort);
criterion_main!(benches);
