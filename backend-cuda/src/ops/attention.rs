//! Attention; the kernel is in `attention.cu`. It takes up to 128 features, any strides, and no memory of its own; more
//! features are left to the composition that `backend-api` provides.

use congruent_backend_api::ops::attention::{self, Attention};
use congruent_backend_api::{AttentionOps, DType, Op, Result};

use crate::device::Cuda;
use crate::kernels::Kernel;
use crate::launch::{AttentionParameter, SharedMemory, THREADS};
use crate::storage::{CudaStorage, DevicePointer};

/// Query rows and keys of a tile, `ROWS` and `KEYS` in `attention.cu`.
const TILE: usize = 32;

/// The most features, `FEATURES` in `attention.cu`.
const FEATURES: usize = 128;

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl AttentionOps for Cuda {
    fn attention(
        &self,
        plan: &Attention,
        q: &CudaStorage,
        k: &CudaStorage,
        v: &CudaStorage,
        mask: Option<&CudaStorage>,
        out: &mut CudaStorage,
    ) -> Result<()> {
        plan.check([q, k, v], mask, out)?;
        if plan.depth().max(plan.width()) > FEATURES {
            return attention::compose(self, plan, [q, k, v], mask, out);
        }
        self.order("attention", [q, k, v].into_iter().chain(mask), out)?;
        if plan.layout(0).count() == 0 {
            return Ok(());
        }
        let at = |operand: usize, storage: &CudaStorage| storage.at(plan.layout(operand).offset());
        let strides = |operand: usize| {
            let strides = plan.layout(operand).strides();
            std::array::from_fn(|axis| strides[axis] as i64)
        };
        let columns = plan.depth().max(plan.width()).next_multiple_of(8);
        let parameter = AttentionParameter {
            out: at(0, out),
            q: at(1, q),
            k: at(2, k),
            v: at(3, v),
            mask: mask.map_or(DevicePointer::NULL, |mask| at(4, mask)),
            strides: std::array::from_fn(strides),
            batch: plan.batch() as u64,
            heads: plan.heads() as u64,
            group: plan.group() as u64,
            queries: plan.queries() as u64,
            keys: plan.keys() as u64,
            scale: plan.scale(),
            depth: plan.depth() as u32,
            width: plan.width() as u32,
            columns: columns as u32,
            causal: u32::from(plan.causal()),
            boolean: u32::from(plan.mask() == Some(DType::Bool)),
            unused: 0,
        };
        let blocks = plan.batch() * plan.heads() * plan.queries().div_ceil(TILE);
        let size = if plan.dtype() == DType::F64 { 8 } else { 4 };
        // Rows of queries, of keys or values, and of weights; each has an odd length, so that columns fall in all banks.
        let bytes = (2 * TILE * (columns + 1) + TILE * (TILE + 1)) * size;
        let shared = SharedMemory { threads: THREADS, bytes };
        // SAFETY: the plan was checked against these storages, which are this device's, and `out` is borrowed mutably; the
        // shared memory is what the kernel's tiles take.
        unsafe { self.device.launch_with(Kernel::new(Op::Attention, plan.dtype()), blocks, shared, &parameter) }
    }
}
