//! Scans along either axis of a matrix, and of one long row.

use congruent::DType;
use congruent::ops::{ScanOp, ScanRange};
use congruent_benches::{compare, random};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn scan(criterion: &mut Criterion) {
    for (shape, axis) in [(&[256, 256][..], 1), (&[8192, 8192], 1), (&[8192, 8192], 0), (&[1 << 26], 0)] {
        let count: usize = shape.iter().product();
        for op in [ScanOp::Sum, ScanOp::Max] {
            let sizes: Vec<_> = shape.iter().map(usize::to_string).collect();
            let case = format!("scan/{}_axis{axis}/f32/{}", op.name(), sizes.join("x"));
            let make = |backend: &_| Ok((random(backend, DType::F32, shape)?, random(backend, DType::F32, shape)?));
            // Into a given output, as a copy does; every element is read and written.
            compare(criterion, &case, Throughput::Bytes(8 * count as u64), make, |(x, out)| {
                x.scan_into(op, axis, ScanRange::default(), out)
            });
        }
    }
}

criterion_group!(benches, scan);
criterion_main!(benches);
