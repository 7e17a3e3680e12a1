//! Attention and its gradients, by the first of three ways that takes a plan:
//!
//! - the output in half precision on tensor cores (`attention_tensor.cuh`, from compute capability 8.0 on): 64 or 128 features
//!   of keys and of values that lie side by side, rows that are aligned to 16 bytes; no mask, slopes, soft cap or dropout, a
//!   positive scale;
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

/// Query rows, keys and threads of a block on tensor cores, as in `attention_tensor.cuh`.
const TENSOR_ROWS: usize = 128;
const TENSOR_KEYS: usize = 64;
const TENSOR_THREADS: usize = 128;

/// The most features, `FEATURES` in `attention.cu`.
const FEATURES: usize = 128;

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl AttentionOps for Cuda {
    fn attention(&self, plan: &Attention, inputs: AttentionInputs<&CudaStorage>, out: &mut CudaStorage) -> Result<()> {
        plan.check(inputs, out)?;
        let columns = plan.depth().max(plan.width()).next_multiple_of(8);
        let tensor = self.tensor_cores(plan, inputs, out);
        let shared = if tensor.is_some() { tensor_memory(plan) } else { shared_memory(plan, columns) };
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
        };
        let rows = if tensor.is_some() {
            plan.heads() * plan.queries().div_ceil(TENSOR_ROWS)
        } else if by_key(plan.op()) {
            plan.kv_heads() * plan.keys().div_ceil(TILE)
        } else {
            plan.heads() * plan.queries().div_ceil(TILE)
        };
        let pass = tensor.unwrap_or(Pass::Main);
        let (kernel, blocks) =
            (Kernel { op: Op::Attention(plan.op()), dtype: plan.dtype(), pass }, plan.batch() * rows);
        // SAFETY: the plan was checked against these storages, which are this device's, and `out` is borrowed mutably; the
        // shared memory is what the kernel's tiles take.
        unsafe { self.device.launch_with(kernel, blocks, shared, &parameter) }
    }
}

impl Cuda {
    /// The kernel on tensor cores that takes a plan, if one does.
    fn tensor_cores(&self, plan: &Attention, inputs: AttentionInputs<&CudaStorage>, out: &CudaStorage) -> Option<Pass> {
        let pass = match (plan.dtype(), plan.depth(), plan.width()) {
            (DType::F16 | DType::BF16, 64, 64) => Pass::Features64,
            (DType::F16 | DType::BF16, 128, 128) => Pass::Features128,
            _ => return None,
        };
        let masked = plan.mask().is_some() || plan.operand(5).is_some() || plan.soft_cap().is_some();
        // A row is read in pieces of 16 bytes, eight elements.
        let aligned = |operand: usize, storage: &CudaStorage| {
            let (layout, [others @ .., last]) = (plan.layout(operand), plan.layout(operand).strides()) else {
                return false;
            };
            *last == 1 && others.iter().all(|stride| stride % 8 == 0) && storage.at(layout.offset()).is_aligned()
        };
        let operands = [out, inputs.q, inputs.k, inputs.v];
        (plan.op() == AttentionOp::Output
            && self.device.arch() >= 80
            && !masked
            && plan.dropout().is_none()
            && plan.scale() as f32 * std::f32::consts::LOG2_E >= f32::MIN_POSITIVE
            && tensor_memory(plan).bytes <= self.device.shared_memory()
            && operands.into_iter().enumerate().all(|(operand, storage)| aligned(operand, storage)))
        .then_some(pass)
    }
}

/// Rows of queries, of keys and of values, in half precision.
fn tensor_memory(plan: &Attention) -> SharedMemory {
    SharedMemory { threads: TENSOR_THREADS, bytes: (TENSOR_ROWS + 2 * TENSOR_KEYS) * plan.depth() * 2 }
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
