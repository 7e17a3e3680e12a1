//! Softmax, layer norm and attention over rows, new result each time.

use congruent::DType;
use congruent::ops::AttentionOptions;
use congruent_benches::{compare, random};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn norm(criterion: &mut Criterion) {
    for (dtype, side) in [(DType::F32, 256), (DType::F32, 4096), (DType::BF16, 256), (DType::F64, 256)] {
        let elements = Throughput::Elements((side * side) as u64);
        let case = |name: &str| format!("norm/{name}/{dtype}/{side}x{side}");
        let make = |backend: &_| random(backend, dtype, &[side, side]);
        compare(criterion, &case("softmax"), elements.clone(), make, |x| x.softmax(-1).map(drop));
        compare(criterion, &case("log_softmax"), elements.clone(), make, |x| x.log_softmax(-1).map(drop));
        compare(criterion, &case("logsumexp"), elements.clone(), make, |x| x.logsumexp(-1, false).map(drop));
        let make = |backend: &_| {
            let vector = || random(backend, dtype, &[side]);
            Ok((random(backend, dtype, &[side, side])?, vector()?, vector()?))
        };
        compare(criterion, &case("layer_norm"), elements, make, |(x, weight, bias)| {
            x.layer_norm(-1, 1e-5, Some(weight), Some(bias)).map(drop)
        });
    }
}

/// Scaled dot-product attention of 32 heads with 64 features.
fn attention(criterion: &mut Criterion) {
    let (heads, positions, features) = (32, 512, 64);
    let case = format!("norm/attention/f32/{heads}x{positions}x{features}");
    let flops = Throughput::Elements((4 * heads * positions * positions * features) as u64);
    let make = |backend: &_| {
        let tensor = || random(backend, DType::F32, &[1, heads, positions, features]);
        Ok((tensor()?, tensor()?, tensor()?))
    };
    compare(criterion, &case, flops, make, |(q, k, v)| q.attention(k, v, None, AttentionOptions::default()).map(drop));
}

criterion_group!(benches, norm, attention);
criterion_main!(benches);
