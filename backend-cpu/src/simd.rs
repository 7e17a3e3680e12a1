//! Which instructions a loop is compiled for, chosen at run time.
//!
//! A loop inside [`light`] or [`heavy`] is compiled once for each level of instructions that the function knows, and
//! runs on the highest that the processor has. Everything it calls must be inlined into it, or stays at the target's
//! baseline. Levels do not change results: nothing is contracted, and no loop sums in an order that its width decides.
//!
//! `CONGRUENT_SIMD=baseline` or `=avx2` in the environment lowers the level of a process.

use std::sync::LazyLock;

use fearless_simd::Level;
#[cfg(target_arch = "x86_64")]
use fearless_simd::Simd;

/// What the processor has, unless the environment lowers it.
fn level() -> Level {
    static LEVEL: LazyLock<Level> =
        LazyLock::new(|| match (std::env::var("CONGRUENT_SIMD").as_deref(), levels().as_slice()) {
            (Ok("baseline"), [baseline, ..]) => *baseline,
            (Ok("avx2"), [_, avx2, ..]) => *avx2,
            _ => Level::new(),
        });
    #[cfg(test)]
    if let Some(level) = tests::FORCED.get() {
        return level;
    }
    *LEVEL
}

/// The levels of the processor that differ here: the target's baseline, AVX2 and AVX-512.
fn levels() -> Vec<Level> {
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut, reason = "only x86 has levels beyond the baseline"))]
    let mut levels = vec![Level::baseline()];
    #[cfg(target_arch = "x86_64")]
    {
        levels.extend(Level::new().as_avx2().map(Level::Avx2));
        levels.extend(Level::new().as_avx512().map(Level::Avx512));
    }
    levels
}

/// Runs a loop that memory bounds, or nearly: wider instructions than those of AVX2 gain nothing there.
#[inline(always)]
pub(crate) fn light<R>(run: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = level().as_avx2() {
        return avx2.vectorize(run);
    }
    run()
}

/// Runs a loop that arithmetic bounds.
#[inline(always)]
pub(crate) fn heavy<R>(run: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx512) = level().as_avx512() {
        return avx512.vectorize(run);
    }
    light(run)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use congruent_backend_api::ops::binary::BinaryOp;
    use congruent_backend_api::ops::reduce::ReduceOp;
    use congruent_backend_api::ops::unary::UnaryOp;
    use congruent_backend_api::{DType, Element, bf16, f16};

    use super::*;
    use crate::testing::{binary, copy_into, output, reduce, unary, vector};

    thread_local! {
        pub(super) static FORCED: Cell<Option<Level>> = const { Cell::new(None) };
    }

    /// Runs `f` at each level of the processor and demands equal results.
    fn at_each_level<R: PartialEq + std::fmt::Debug>(f: impl Fn() -> R) {
        let results: Vec<R> = levels()
            .into_iter()
            .map(|level| {
                FORCED.set(Some(level));
                let result = f();
                FORCED.set(None);
                result
            })
            .collect();
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{results:?}");
    }

    fn bits<T: Element>(op: UnaryOp, x: &[T]) -> Vec<u64> {
        let result = unary(op, &vector(x));
        let mut wide = output(DType::F64, &[x.len()]);
        copy_into(&result, &mut wide);
        wide.elements::<f64>().into_iter().map(f64::to_bits).collect()
    }

    #[test]
    fn levels_do_not_change_results() {
        let bit_patterns = (0..1000_u32).map(|i| i.wrapping_mul(0x9e37_79b9));
        let singles: Vec<f32> = bit_patterns.map(f32::from_bits).filter(|x| !x.is_nan()).collect();
        let doubles: Vec<f64> = singles.iter().map(|&x| f64::from(x) * 1.000_000_1).collect();
        let halves: Vec<f16> = singles.iter().map(|&x| f16::from_f32(x)).collect();
        let brains: Vec<bf16> = singles.iter().map(|&x| bf16::from_f32(x)).collect();
        for &op in UnaryOp::ALL.iter().filter(|op| op.accepts(DType::F32)) {
            at_each_level(|| (bits(op, &singles), bits(op, &doubles), bits(op, &halves), bits(op, &brains)));
        }
        for op in [BinaryOp::Add, BinaryOp::Div, BinaryOp::Maximum, BinaryOp::Mul, BinaryOp::Sub] {
            let other: Vec<f32> = singles.iter().rev().copied().collect();
            at_each_level(|| binary(op, &singles, &other).into_iter().map(f32::to_bits).collect::<Vec<_>>());
        }
        let small: Vec<f32> = (0..999).map(|i| 1.0 / (1.0 + i as f32)).collect();
        at_each_level(|| reduce(ReduceOp::Sum, &vector(&small), None).elements::<f32>());
    }
}
