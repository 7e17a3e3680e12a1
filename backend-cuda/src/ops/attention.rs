//! Attention and its gradients, by the first of three ways that takes a plan:
//!
//! - the output by tiles, from compute capability 8.0 on, in half precision on tensor cores (`attention_tensor.cuh`), in f32
//!   from registers (`attention_fma.cuh`): up to 128 features that lie side by side, rows of whole pieces of 16 bytes; no
//!   mask, slopes, soft cap or dropout, a positive scale. Where that gives few blocks, the keys are split between several
//!   (`attention_tiles.cuh`);
//! - any op with up to 128 features, in f32 (f64 for f64) and any strides (`attention.cu`);
//! - the composition that `backend-api` provides.

use congruent_backend_api::ops::attention::{self, Attention, AttentionInputs, AttentionOp};
use congruent_backend_api::{AttentionOps, DType, Op, Result};

use crate::device::Cuda;
use crate::kernels::{Kernel, Pass};
use crate::launch::{AttentionParameter, SharedMemory, THREADS};
use crate::storage::{CudaStorage, DevicePointer};

/// Rows and columns of a tile, `ROWS` and `COLUMNS` in `attention.cu`.
const TILE: usize = 32;

/// Queries of a block of tiles, or of one for few, and keys, `TILE_KEYS` in `attention_tiles.cuh`.
const QUERIES: usize = 128;
const FEW: usize = 16;
const KEYS: usize = 64;

/// The most features, `FEATURES` in `attention.cu`.
const FEATURES: usize = 128;

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl AttentionOps for Cuda {
    fn attention(&self, plan: &Attention, inputs: AttentionInputs<&CudaStorage>, out: &mut CudaStorage) -> Result<()> {
        plan.check(inputs, out)?;
        let columns = plan.depth().max(plan.width()).next_multiple_of(8);
        let tiled = self.by_tiles(plan, inputs, out);
        let shared = tiled.as_ref().map_or_else(|| shared_memory(plan, columns), |tiled| tiled.shared);
        if columns > FEATURES || shared.bytes > self.device.shared_memory() {
            return attention::compose(self, plan, inputs, out);
        }
        let inputs = inputs.to_array();
        self.order(plan.op().name(), inputs.into_iter().flatten(), out)?;
        if plan.layout(0).count() == 0 {
            return Ok(());
        }
        let at = |operand: usize, storage: &CudaStorage| storage.at(plan.layout(operand).offset());
        let strides = |operand: usize| {
            let mut strides = [0; 4];
            for (to, &stride) in strides.iter_mut().zip(plan.layout(operand).strides()) {
                *to = stride as i64;
            }
            strides
        };
        let input = |index: usize| inputs[index].map_or(DevicePointer::NULL, |storage| at(index + 1, storage));
        let (band, dropout) = (plan.band(), plan.dropout());
        let splits = tiled.as_ref().map_or(1, |tiled| tiled.splits);
        let lines = plan.batch() * plan.heads() * plan.queries();
        let partial = match &tiled {
            Some(tiled) if splits > 1 => {
                Some(CudaStorage::alloc(&self.device, DType::F32, lines * splits * (tiled.features + 2))?)
            }
            _ => None,
        };
        let parameter = AttentionParameter {
            out: at(0, out),
            inputs: std::array::from_fn(input),
            strides: std::array::from_fn(strides),
            batch: plan.batch() as u64,
            heads: plan.heads() as u64,
            kv_heads: plan.kv_heads() as u64,
            group: plan.heads().checked_div(plan.kv_heads()).unwrap_or(1) as u64,
            queries: plan.queries() as u64,
            keys: plan.keys() as u64,
            window: band.window as i64,
            scale: plan.scale(),
            soft_cap: plan.soft_cap().unwrap_or(0.0),
            kept: dropout.map_or(1.0, |dropout| 1.0 / (1.0 - dropout.probability)),
            threshold: dropout.map_or(0, |dropout| (dropout.probability * 4_294_967_296.0).round_ties_even() as u64),
            seed: dropout.map_or(0, |dropout| dropout.seed),
            offset: dropout.map_or(0, |dropout| dropout.offset),
            depth: plan.depth() as u32,
            width: plan.width() as u32,
            columns: columns as u32,
            causal: u32::from(band.causal),
            first: u32::from(band.alignment == attention::Alignment::First),
            boolean: u32::from(plan.mask() == Some(DType::Bool)),
            splits: splits as u64,
            partial: partial.as_ref().map_or(DevicePointer::NULL, |partial| partial.at(0)),
        };
        let rows = if let Some(tiled) = &tiled {
            plan.heads() * plan.queries().div_ceil(tiled.queries) * splits
        } else if by_key(plan.op()) {
            plan.kv_heads() * plan.keys().div_ceil(TILE)
        } else {
            plan.heads() * plan.queries().div_ceil(TILE)
        };
        let kernel = |pass| Kernel { op: Op::Attention(plan.op()), dtype: plan.dtype(), pass };
        let pass = tiled.as_ref().map_or(Pass::Main, |tiled| tiled.pass);
        // SAFETY: the plan was checked against these storages, which are this device's, and `out` is borrowed mutably; the
        // shared memory is what the kernel's tiles take, and there is room for what each split leaves.
        unsafe { self.device.launch_with(kernel(pass), plan.batch() * rows, shared, &parameter) }?;
        let Some(tiled) = tiled.filter(|_| splits > 1) else { return Ok(()) };
        // SAFETY: as above; the splits were written by the launch before.
        unsafe { self.device.launch(kernel(tiled.combine), lines.div_ceil(THREADS / 32), &parameter) }
    }
}

/// How a plan goes by tiles.
struct Tiled {
    pass: Pass,
    combine: Pass,
    shared: SharedMemory,
    /// Queries of a tile.
    queries: usize,
    /// How many a row has room for.
    features: usize,
    /// Blocks that share the keys of a tile.
    splits: usize,
}

impl Cuda {
    /// The kernel that takes a plan by tiles, if one does.
    fn by_tiles(&self, plan: &Attention, inputs: AttentionInputs<&CudaStorage>, out: &CudaStorage) -> Option<Tiled> {
        let masked = plan.mask().is_some() || plan.operand(5).is_some() || plan.soft_cap().is_some();
        let features = if plan.depth().max(plan.width()) <= 64 { 64 } else { 128 };
        // A row is read in pieces of 16 bytes.
        let piece = 16 / plan.dtype().size();
        let aligned = |operand: usize, storage: &CudaStorage| {
            let (layout, [others @ .., last]) = (plan.layout(operand), plan.layout(operand).strides()) else {
                return false;
            };
            *last == 1
                && others.iter().all(|stride| stride.unsigned_abs().is_multiple_of(piece))
                && storage.at(layout.offset()).is_aligned()
        };
        let operands = [out, inputs.q, inputs.k, inputs.v];
        let fits = plan.op() == AttentionOp::Output
            && plan.dtype() != DType::F64
            && self.device.arch() >= 80
            && !masked
            && plan.dropout().is_none()
            && plan.scale() as f32 * std::f32::consts::LOG2_E >= f32::MIN_POSITIVE
            && [plan.depth(), plan.width()].iter().all(|&size| size <= 128 && size > 0 && size.is_multiple_of(piece))
            && operands.into_iter().enumerate().all(|(operand, storage)| aligned(operand, storage));
        if !fits {
            return None;
        }
        let few = plan.queries() <= FEW;
        let (pass, combine) = match (features, few) {
            (64, false) => (Pass::Features64, Pass::Combine64),
            (64, true) => (Pass::Few64, Pass::Combine64),
            (_, false) => (Pass::Features128, Pass::Combine128),
            (_, true) => (Pass::Few128, Pass::Combine128),
        };
        let queries = if few { FEW } else { QUERIES };
        let shared = if plan.dtype() == DType::F32 {
            // Queries, keys, values and weights, in rows that are four elements longer.
            let elements = (queries + 2 * KEYS) * (features + 4) + queries * (KEYS + 4);
            SharedMemory { threads: THREADS, bytes: elements * 4 }
        } else {
            SharedMemory { threads: if few { 32 } else { 128 }, bytes: (queries + 2 * KEYS) * features * 2 }
        };
        let memory = self.device.shared_memory();
        if shared.bytes > memory {
            return None;
        }
        let blocks = plan.batch() * plan.heads() * plan.queries().div_ceil(queries);
        let room = self.device.multiprocessors() as usize * (memory / shared.bytes).min(12);
        // A split of a few tiles of keys is worth its sums.
        let splits = (room / blocks.max(1)).min(plan.keys().div_ceil(4 * KEYS)).max(1);
        Some(Tiled { pass, combine, shared, queries, features, splits })
    }
}

fn by_key(op: AttentionOp) -> bool {
    matches!(op, AttentionOp::GradKey | AttentionOp::GradValue)
}

/// The features of a tile's rows, those of its columns, and the weights; each row has an odd length, so that columns fall in
/// all banks. The gradients by queries and keys need the rows' other features too.
fn shared_memory(plan: &Attention, columns: usize) -> SharedMemory {
    let tiles = if matches!(plan.op(), AttentionOp::GradQuery | AttentionOp::GradKey) { 3 } else { 2 };
    let size = if plan.dtype() == DType::F64 { 8 } else { 4 };
    SharedMemory { threads: THREADS, bytes: (tiles * TILE * (columns + 1) + TILE * (TILE + 1)) * size }
}
