//! Rows of a table, sums into rows, single elements, and what a mask selects.

use congruent::ops::ScatterOp;
use congruent::{AnyBackend, DType, Result, Tensor};
use congruent_benches::{compare, random};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::sync::Arc;

/// Indices below `len` without a pattern.
fn indices(backend: &Arc<AnyBackend>, count: usize, len: usize) -> Result<Tensor<AnyBackend>> {
    let values: Vec<i64> =
        (0..count as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as i64 % len as i64).collect();
    Tensor::from_slice(backend, &values, [count])
}

fn rows(criterion: &mut Criterion) {
    for (tokens, classes, width) in [(4096, 8192, 256), (1 << 16, 50_257, 1024)] {
        let bytes = Throughput::Bytes((8 * tokens * width) as u64);
        let name = |op: &str| format!("index/{op}/f32/{tokens}x{width}");
        let make =
            |backend: &_| Ok((random(backend, DType::F32, &[classes, width])?, indices(backend, tokens, classes)?));
        compare(criterion, &name("embedding"), bytes.clone(), make, |(table, index)| table.embedding(index).map(drop));
        let make = |backend: &_| {
            let table = Tensor::zeros(backend, [classes, width], DType::F32)?;
            Ok((table, indices(backend, tokens, classes)?, random(backend, DType::F32, &[tokens, width])?))
        };
        compare(criterion, &name("index_add"), bytes, make, |(table, index, src)| {
            table.index_add_assign(0, index, src)
        });
    }
}

fn elements(criterion: &mut Criterion) {
    let count = 1 << 22;
    let bytes = Throughput::Bytes(8 * count as u64);
    let make = |backend: &_| Ok((random(backend, DType::F32, &[count])?, indices(backend, count, count)?));
    compare(criterion, "index/take/f32/4194304", bytes.clone(), make, |(x, index)| x.take(index).map(drop));
    for op in [ScatterOp::Set, ScatterOp::Add] {
        let make = |backend: &_| {
            let x = random(backend, DType::F32, &[count])?;
            Ok((x.copy()?, indices(backend, count, count)?, x))
        };
        let name = format!("index/{}/f32/{count}", op.name());
        compare(criterion, &name, bytes.clone(), make, |(out, index, src)| out.scatter_assign(op, 0, index, src));
    }
    let make = |backend: &_| indices(backend, count, 256);
    compare(criterion, "index/bincount/i64/4194304", bytes.clone(), make, |x| x.bincount(256).map(drop));
    let make = |backend: &_| {
        let x = random(backend, DType::F32, &[count])?;
        Ok((x.gt(0.0)?, x))
    };
    compare(criterion, "index/masked_select/f32/4194304", bytes, make, |(mask, x)| x.masked_select(mask).map(drop));
}

criterion_group!(benches, rows, elements);
criterion_main!(benches);
