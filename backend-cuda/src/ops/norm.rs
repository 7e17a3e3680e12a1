//! Normalisation and its gradients; the kernels are in `norm.cu`, how threads share a row in `rows.cuh`.
//!
//! A few very long rows would leave most of the device idle: they are left to the composition that `backend-api` provides.

use congruent_backend_api::ops::norm::{self, Normalize};
use congruent_backend_api::{NormOps, Result};

use crate::device::Cuda;
use crate::kernels::Kernel;
use crate::launch::{RowsParameter, THREADS};
use crate::nest::DeviceNest;
use crate::storage::{CudaStorage, DevicePointer};

/// Elements of a row that a lane holds in registers, `PER_LANE` in `rows.cuh`.
const PER_LANE: usize = 32;

/// Above this width a row is worth several blocks.
const LONG: usize = 1 << 16;

/// The widest row that is held in registers.
pub(super) const CACHED: usize = THREADS * PER_LANE;

/// The threads of a row.
pub(super) fn lanes(width: usize) -> usize {
    if width <= 32 * PER_LANE { 32 } else { THREADS }
}

impl Cuda {
    /// Whether a few long rows would leave most of the device idle.
    pub(super) fn is_idle_with(&self, rows: usize, width: usize) -> bool {
        width > LONG && rows < self.device.multiprocessors() as usize
    }
}

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl NormOps for Cuda {
    fn normalize(
        &self,
        plan: &Normalize,
        x: &CudaStorage,
        weight: Option<&CudaStorage>,
        bias: Option<&CudaStorage>,
        out: &mut CudaStorage,
    ) -> Result<()> {
        self.rows(plan, [Some(x), weight, bias], out)
    }

    fn normalize_grad(
        &self,
        plan: &Normalize,
        x: &CudaStorage,
        grad: &CudaStorage,
        weight: Option<&CudaStorage>,
        out: &mut CudaStorage,
    ) -> Result<()> {
        self.rows(plan, [Some(x), Some(grad), weight], out)
    }
}

impl Cuda {
    fn rows(&self, plan: &Normalize, inputs: [Option<&CudaStorage>; 3], out: &mut CudaStorage) -> Result<()> {
        plan.check(inputs, out)?;
        let op = plan.full_op();
        self.order(op.name(), inputs.into_iter().flatten(), out)?;
        let (kept, row) = (DeviceNest::from(plan.rows().kept()), DeviceNest::from(plan.rows().row()));
        let (rows, width) = (kept.count as usize, row.count as usize);
        if rows * width == 0 {
            return Ok(());
        }
        if self.is_idle_with(rows, width) {
            return norm::compose(self, plan, inputs, out);
        }
        let at = |operand: usize, storage: &CudaStorage| storage.at(plan.rows().start(operand));
        let target = at(0, out);
        let mut parameter = RowsParameter {
            kept,
            row,
            out: target,
            inputs: [DevicePointer::NULL; 3],
            parameter: plan.epsilon(),
            lanes: lanes(width) as u32,
            packed: u32::from(is_packed(plan, 0, target)),
            cached: 0,
        };
        for (input, storage) in inputs.into_iter().enumerate() {
            let Some(storage) = storage else { continue };
            let memory = at(input + 1, storage);
            parameter.inputs[input] = memory;
            parameter.packed |= u32::from(is_packed(plan, input + 1, memory)) << (input + 1);
        }
        let read = if plan.is_gradient() { 0b111 } else { 0b11 };
        parameter.cached = u32::from(width <= CACHED && parameter.packed & read == read);
        let blocks = rows.div_ceil(THREADS / parameter.lanes as usize);
        // SAFETY: the plan was checked against these storages, which are this device's, and `out` is borrowed mutably.
        unsafe { self.device.launch(Kernel::new(op, plan.dtype()), blocks, &parameter) }
    }
}

/// Whether each row of an operand is one run that can be read 16 bytes at a time.
fn is_packed(plan: &Normalize, operand: usize, memory: DevicePointer) -> bool {
    let lane = 16 / plan.dtype().size();
    let (row, kept) = (plan.rows().row(), plan.rows().kept());
    let run = row.rank() == 1 && row.strides(operand)[0] == 1 && row.count().is_multiple_of(lane);
    run && memory.is_aligned() && kept.strides(operand).iter().all(|&stride| stride % lane as isize == 0)
}
