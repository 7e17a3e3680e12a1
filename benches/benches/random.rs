//! Random numbers into a given tensor, beside a fill of as many elements.

use congruent::ops::Distribution;
use congruent::{DType, Generator, Tensor};
use congruent_benches::compare;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const COUNT: usize = 1 << 26;

fn random(criterion: &mut Criterion) {
    let elements = || Throughput::Elements(COUNT as u64);
    for (name, distribution, dtype) in [
        ("philox", Distribution::Bits, DType::U32),
        ("uniform", Distribution::Uniform, DType::F32),
        ("uniform", Distribution::Uniform, DType::F64),
        ("normal", Distribution::Normal, DType::F32),
        ("randint", Distribution::Integer { low: 0, high: 1000 }, DType::I32),
        ("bernoulli", Distribution::Bernoulli { probability: 0.5 }, DType::Bool),
        ("randperm", Distribution::Permutation, DType::I64),
    ] {
        let generator = Generator::new(1);
        let make = |backend: &_| Tensor::zeros(backend, [COUNT], dtype);
        compare(criterion, &format!("random/{name}/{dtype}/{COUNT}"), elements(), make, |x| {
            x.fill_random(distribution, &generator)
        });
    }
    let make = |backend: &_| Tensor::zeros(backend, [COUNT], DType::F32);
    compare(criterion, &format!("random/fill/f32/{COUNT}"), elements(), make, |x| x.fill(1.0));
}

criterion_group!(benches, random);
criterion_main!(benches);
