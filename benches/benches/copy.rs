//! Copies: cast, transposed, permuted.

use congruent::DType;
use congruent_benches::{compare, random};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn copy(criterion: &mut Criterion) {
    for side in [256, 4096] {
        let case = |name: &str| format!("copy/{name}/{side}x{side}");
        let bytes = |size: usize| Throughput::Bytes((size * side * side) as u64);
        for (from, to) in [
            (DType::F32, DType::BF16),
            (DType::F32, DType::F16),
            (DType::BF16, DType::F32),
            (DType::F32, DType::F64),
            (DType::F32, DType::I32),
            (DType::I64, DType::F32),
        ] {
            let make = |backend: &_| random(backend, DType::F32, &[side, side])?.cast(from);
            compare(criterion, &case(&format!("cast_{from}_{to}")), bytes(from.size() + to.size()), make, |x| {
                x.cast(to).map(drop)
            });
        }
        for dtype in [DType::F64, DType::F32, DType::BF16, DType::U8] {
            let make = |backend: &_| random(backend, dtype, &[side, side])?.t();
            compare(criterion, &case(&format!("transposed_{dtype}")), bytes(2 * dtype.size()), make, |x| {
                x.contiguous().map(drop)
            });
        }
        let make = |backend: &_| random(backend, DType::F32, &[side / 64, 64, 64, side / 64])?.permute([0, 2, 1, 3]);
        compare(criterion, &case("heads_f32"), bytes(8), make, |x| x.contiguous().map(drop));
    }
}

criterion_group!(benches, copy);
criterion_main!(benches);
