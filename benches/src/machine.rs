//! What the processor can do at the most, by loops that are no library's.
//!
//! Its entry for a copy is a copy on all threads, each of its own buffers, which are kept. Its entry for a product is as
//! many multiply-adds as the product has, in registers: arithmetic without memory.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use fearless_simd::{Level, Simd, dispatch, prelude::*};

use crate::case::Case;
use crate::runner::{Batch, Identity, MACHINE, Refusal, Runner};

/// All threads of the processor.
#[derive(Debug)]
pub struct Machine {
    identity: Identity,
    threads: usize,
    buffers: Vec<[Vec<f32>; 2]>,
}

impl Default for Machine {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let identity = Identity {
            library: MACHINE.to_owned(),
            device: "cpu".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            note: format!("{}, {threads} threads", level()),
        };
        Self { identity, threads, buffers: Vec::new() }
    }
}

/// The name of the instructions that the loops use.
fn level() -> String {
    let level = format!("{:?}", Level::new());
    level.split('(').next().unwrap_or_default().to_owned()
}

/// What one thread does in one call.
enum Work {
    Copy,
    Single(usize),
    Double(usize),
}

impl Machine {
    fn work(&self, case: &Case) -> Option<Work> {
        let flops = case.flops.unwrap_or(0) / self.threads;
        match (case.spec.family.as_str(), case.spec.op.as_str(), case.spec.dtype.as_str()) {
            ("limit", "copy_into", _) => Some(Work::Copy),
            ("limit", "matmul", "f32") => Some(Work::Single(flops)),
            ("limit", "matmul", "f64") => Some(Work::Double(flops)),
            _ => None,
        }
    }
}

impl Runner for Machine {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn prepare(&mut self, case: &Case) -> Result<(), Refusal> {
        let work = self.work(case);
        let work = work.ok_or_else(|| Refusal::Unsupported("only copies and multiply-adds are measured".to_owned()))?;
        let count = if matches!(work, Work::Copy) { case.elements.div_ceil(self.threads) } else { 0 };
        self.buffers = (0..self.threads).map(|_| [vec![1.0; count], vec![2.0; count]]).collect();
        Ok(())
    }

    fn run(&mut self, case: &Case, calls: u32) -> Result<Batch, Refusal> {
        let Some(work) = self.work(case) else { return Err(Refusal::Unsupported(case.spec.name())) };
        // The clock runs from the first thread's start to the last one's end.
        let (start, work) = (&Barrier::new(self.buffers.len()), &work);
        let spans: Vec<[Instant; 2]> = std::thread::scope(|scope| {
            let threads = self.buffers.iter_mut().map(|[from, to]| {
                scope.spawn(move || {
                    start.wait();
                    let started = Instant::now();
                    for _ in 0..calls {
                        one(work, from, to);
                    }
                    [started, Instant::now()]
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let (first, last) = (spans.iter().map(|span| span[0]).min(), spans.iter().map(|span| span[1]).max());
        let seconds = first.zip(last).map_or(f64::NAN, |(first, last)| (last - first).as_secs_f64());
        Ok(Batch { seconds, returned: seconds })
    }

    fn release(&mut self) {
        self.buffers.clear();
    }
}

fn one(work: &Work, from: &[f32], to: &mut [f32]) {
    match *work {
        Work::Copy => to.copy_from_slice(black_box(from)),
        Work::Single(flops) => _ = black_box(dispatch!(Level::new(), simd => singles(simd, black_box(flops)))),
        Work::Double(flops) => _ = black_box(dispatch!(Level::new(), simd => doubles(simd, black_box(flops)))),
    }
    black_box(to);
}

/// Sums that wait for each other's multiply-adds, enough to fill two pipes of four stages.
const CHAINS: usize = 12;

#[inline(always)]
fn singles<S: Simd>(simd: S, flops: usize) -> f32 {
    let (factor, term) = (S::f32s::splat(simd, 0.99), S::f32s::splat(simd, 0.01));
    let mut chains = [term; CHAINS];
    for _ in 0..flops / (2 * CHAINS * S::f32s::LEN) {
        for chain in &mut chains {
            *chain = chain.mul_add(factor, term);
        }
    }
    chains.iter().map(|chain| chain.as_slice()[0]).sum()
}

#[inline(always)]
fn doubles<S: Simd>(simd: S, flops: usize) -> f64 {
    let (factor, term) = (S::f64s::splat(simd, 0.99), S::f64s::splat(simd, 0.01));
    let mut chains = [term; CHAINS];
    for _ in 0..flops / (2 * CHAINS * S::f64s::LEN) {
        for chain in &mut chains {
            *chain = chain.mul_add(factor, term);
        }
    }
    chains.iter().map(|chain| chain.as_slice()[0]).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    #[test]
    fn copies_and_products_are_measured_and_nothing_else() {
        let mut machine = Machine::default();
        let mut done = 0;
        for case in cases::limits().iter().filter(|case| case.elements < 1 << 16) {
            match machine.prepare(case) {
                Ok(()) => {
                    assert!(machine.run(case, 2).unwrap().seconds > 0.0);
                    done += 1;
                }
                Err(refusal) => assert!(matches!(refusal, Refusal::Unsupported(_))),
            }
        }
        assert!(done >= 2, "{done}");
        assert!(machine.prepare(&cases::all()[0]).is_err());
    }

    #[test]
    fn chains_converge() {
        // x → 0.99 x + 0.01 tends to 1.
        let sum = dispatch!(Level::new(), simd => singles(simd, 1 << 22));
        assert!((sum - CHAINS as f32).abs() < 1e-3, "{sum}");
        let sum = dispatch!(Level::new(), simd => doubles(simd, 1 << 22));
        assert!((sum - CHAINS as f64).abs() < 1e-9, "{sum}");
    }
}
