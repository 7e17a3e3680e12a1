//! Random numbers; the kernels are in `random.cu`.

use congruent_backend_api::ops::random::{Draw, Random};
use congruent_backend_api::{Op, RandomOps, Result};

use crate::device::Cuda;
use crate::kernels::Kernel;
use crate::launch::{RandomParameter, THREADS};
use crate::nest::DeviceNest;
use crate::storage::CudaStorage;

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl RandomOps for Cuda {
    fn random(&self, plan: &Random, out: &mut CudaStorage) -> Result<()> {
        plan.check(out)?;
        self.order(plan.op().name(), [], out)?;
        let nest = plan.nest();
        let device_nest = DeviceNest::from(&nest);
        if device_nest.count == 0 {
            return Ok(());
        }
        let target = out.at(nest.offset(0));
        let vector = nest.is_contiguous(0) && nest.is_contiguous(1) && target.is_aligned();
        let (low, span) = match plan.draw() {
            Draw::Bernoulli { threshold } => (0, threshold),
            Draw::Integer { low, span } => (low, span),
            Draw::Permutation => (0, plan.count() as u64),
            Draw::Bits | Draw::Normal | Draw::Uniform => (0, 0),
        };
        let (bits, keys) = match plan.draw() {
            Draw::Permutation => (plan.permutation().bits, plan.permutation().keys),
            _ => (0, round_keys(plan.seed())),
        };
        let parameter = RandomParameter {
            nest: device_nest,
            out: target,
            offset: plan.offset(),
            first: nest.offset(1) as u64,
            low,
            span,
            keys,
            bits,
            vector: vector.into(),
        };
        let threads = plan.count() / if vector { 16 / plan.dtype().size() } else { 1 };
        let blocks = threads.max(16).div_ceil(THREADS);
        let kernel = Kernel::new(Op::Random(plan.op()), plan.dtype());
        // SAFETY: the plan was checked against this storage, which is this device's and borrowed mutably.
        unsafe { self.device.launch(kernel, blocks, &parameter) }
    }
}

/// The keys of Philox's ten rounds, two each.
fn round_keys(seed: u64) -> [u32; 24] {
    let mut keys = [0; 24];
    for (round, keys) in (0..10).zip(keys.chunks_exact_mut(2)) {
        keys[0] = (seed as u32).wrapping_add(0x9e37_79b9_u32.wrapping_mul(round));
        keys[1] = ((seed >> 32) as u32).wrapping_add(0xbb67_ae85_u32.wrapping_mul(round));
    }
    keys
}
