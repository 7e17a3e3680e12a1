//! Reductions over all elements, over the first axis and over the last.

use congruent::{Axes, DType};
use congruent_benches::{compare, random};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn reduce(criterion: &mut Criterion) {
    for shape in [[256, 256], [4096, 4096]] {
        for (name, axes) in [("all", Axes::from(())), ("axis0", Axes::from(0)), ("axis1", Axes::from(1))] {
            let bytes = Throughput::Bytes((4 * shape[0] * shape[1]) as u64);
            let case = |op: &str| format!("reduce/{op}_{name}/f32/{}x{}", shape[0], shape[1]);
            let make = |backend: &_| random(backend, DType::F32, &shape);
            compare(criterion, &case("sum"), bytes.clone(), make, |x| x.sum(axes.clone(), false).map(drop));
            compare(criterion, &case("max"), bytes, make, |x| x.max(axes.clone(), false).map(drop));
        }
    }
}

criterion_group!(benches, reduce);
criterion_main!(benches);
