//! Every case of the report in criterion, under the name `family/op/dtype/shape/backend`.

use std::cell::OnceCell;

use congruent_benches::cases;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn all(criterion: &mut Criterion) {
    let backends = congruent::backends();
    for case in cases::all() {
        let name = case.spec.name();
        let mut group = criterion.benchmark_group(&name);
        match (case.flops, case.bytes) {
            (Some(flops), _) => _ = group.throughput(Throughput::Elements(flops as u64)),
            (None, Some(bytes)) => _ = group.throughput(Throughput::Bytes(bytes as u64)),
            (None, None) => {}
        }
        for backend in backends.iter().filter(|backend| !case.huge || backend.name() != "cpu") {
            // Made once, and only when a filter lets the case through.
            let mut inputs = OnceCell::new();
            group.bench_function(BenchmarkId::from_parameter(backend.name()), |bencher| {
                inputs.get_or_init(|| case.make(backend).unwrap_or_else(|error| panic!("{name}: {error}")));
                let Some(inputs) = inputs.get_mut() else { return };
                bencher.iter(|| {
                    case.call(inputs).and_then(|()| backend.synchronize()).expect("the inputs are valid");
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, all);
criterion_main!(benches);
