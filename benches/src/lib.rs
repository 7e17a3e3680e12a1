//! What the benchmarks share: the backends present, data, and a measurement that ends with a synchronisation.
//!
//! Each case runs on every backend in one process, under the name `family/op/dtype/shape/backend`:
//!
//! ```sh
//! cargo bench -p congruent-benches -- matmul                    # the CPU
//! cargo bench -p congruent-benches --features cuda -- matmul    # and every CUDA device, side by side
//! ```
//!
//! `src/bin/cuda_table` makes the table in `results`: the CUDA backend beside PyTorch and the limit of the device's memory.

use std::sync::Arc;

use congruent::{AnyBackend, DType, Result, Tensor};
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, measurement::WallTime};

/// Random data in (−1, 1), which is nowhere zero or subnormal, so that no shortcut applies.
///
/// # Errors
/// What the backend returns.
pub fn random(backend: &Arc<AnyBackend>, dtype: DType, shape: &[usize]) -> Result<Tensor<AnyBackend>> {
    let mut state = 0x9e37_79b9_u32;
    let values: Vec<f32> = (0..shape.iter().product())
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let magnitude = 0.1 + 0.9 * (state >> 9) as f32 / (1 << 23) as f32;
            if state & 256 == 0 { magnitude } else { -magnitude }
        })
        .collect();
    Tensor::from_slice(backend, &values, shape)?.cast(dtype)
}

/// Times `run` on every backend present; `make` prepares its inputs.
///
/// # Panics
/// When a backend returns an error: there is nothing to time then.
pub fn compare<T>(
    criterion: &mut Criterion,
    case: &str,
    throughput: Throughput,
    make: impl Fn(&Arc<AnyBackend>) -> Result<T>,
    run: impl Fn(&mut T) -> Result<()>,
) {
    let mut group: BenchmarkGroup<'_, WallTime> = criterion.benchmark_group(case);
    group.throughput(throughput);
    for backend in congruent::backends() {
        let mut data = make(&backend).unwrap_or_else(|error| panic!("{case} on {}: {error}", backend.name()));
        group.bench_function(BenchmarkId::from_parameter(backend.name()), |bencher| {
            bencher.iter(|| run(&mut data).and_then(|()| backend.synchronize()).expect("the inputs are valid"));
        });
    }
    group.finish();
}
