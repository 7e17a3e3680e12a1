//! Gather and the positions of true elements; the kernels are in `index.cu`, scatters in `scatter.rs`.

use congruent_backend_api::ops::index::{Gather, Nonzero, Scatter};
use congruent_backend_api::{DType, IndexOps, Nest, Op, Result};

use crate::device::Cuda;
use crate::kernels::{Kernel, Pass};
use crate::launch::{GatherParameter, MaskParameter, OffsetsParameter, THREADS};
use crate::nest::DeviceNest;
use crate::storage::{CudaStorage, DevicePointer};

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl IndexOps for Cuda {
    fn gather(&self, plan: &Gather, x: &CudaStorage, index: &CudaStorage, out: &mut CudaStorage) -> Result<()> {
        plan.check(x, index, out)?;
        self.order("gather", [x, index], out)?;
        let (nest, dtype) = (plan.nest(), plan.dtype());
        if nest.count() == 0 {
            return Ok(());
        }
        // The last axis is a row when its elements share an index.
        let last = nest.rank().checked_sub(1).filter(|&last| nest.strides(1)[last] == 0);
        let (width, steps) =
            last.map_or((1, [1; 2]), |last| (nest.sizes()[last], [0, 2].map(|x| nest.strides(x)[last])));
        let axes = (0..nest.rank()).filter(|&axis| Some(axis) != last);
        let outer = DeviceNest::new(axes.clone().map(|axis| (nest.sizes()[axis], strides(nest, axis))));
        let (from, to) = (x.at(nest.offset(2)), out.at(nest.offset(0)));
        let pack = 16 / dtype.size();
        let whole = |stride: isize| stride.unsigned_abs().is_multiple_of(pack);
        let vector = steps == [1; 2]
            && width.is_multiple_of(pack)
            && from.is_aligned()
            && to.is_aligned()
            && (plan.len() <= 1 || whole(plan.stride()))
            && axes.clone().all(|axis| whole(nest.strides(0)[axis]) && whole(nest.strides(2)[axis]));
        let parameter = GatherParameter {
            outer,
            x: from,
            index: index.at(nest.offset(1)),
            out: to,
            flag: self.device.index_flag(),
            len: plan.len() as u64,
            stride: plan.stride() as i64,
            width: (if vector { width / pack } else { width }) as u64,
            steps: steps.map(|step| step as i64),
            index_type: index_type(plan.index_dtype()),
            vector: vector.into(),
        };
        // A thread moves two elements or packs.
        let blocks = (outer.count as usize * parameter.width as usize).div_ceil(2 * THREADS);
        // SAFETY: the plan was checked against these storages, which are this device's, `out` is borrowed mutably, and the
        // kernel reads the input only at indices below `len`.
        unsafe { self.device.launch(Kernel::new(Op::Gather, dtype), blocks, &parameter) }
    }

    fn scatter(&self, plan: &Scatter, index: &CudaStorage, src: &CudaStorage, out: &mut CudaStorage) -> Result<()> {
        plan.check(index, src, out)?;
        self.order(plan.op().name(), [index, src], out)?;
        self.run_scatter(plan, index, src, out)
    }

    fn nonzero(&self, plan: &Nonzero, mask: &CudaStorage, out: &mut CudaStorage) -> Result<()> {
        plan.check(mask, out)?;
        self.order("nonzero", [mask], out)?;
        if plan.count() == 0 {
            return Ok(());
        }
        let (nest, memory) = (plan.nest(), mask.at(plan.nest().offset(1)));
        // Each block counts the elements of its share before any position is known.
        let tile = 16 * THREADS;
        let blocks = nest.count().div_ceil(tile).clamp(1, 8 * self.device.multiprocessors() as usize);
        let counts = CudaStorage::alloc(&self.device, DType::I64, blocks + 1)?;
        let parameter = MaskParameter {
            nest: nest.into(),
            mask: memory,
            out: out.at(plan.offset()),
            counts: counts.at(0),
            stride: plan.stride() as i64,
            room: plan.count() as u64,
            share: (nest.count().div_ceil(blocks * tile) * tile) as u64,
            vector: (nest.is_contiguous(1) && memory.is_aligned()).into(),
        };
        let kernel = |pass| Kernel { pass, ..Kernel::new(Op::Nonzero, DType::Bool) };
        // SAFETY: the plan was checked against the mask, which is this device's, and `counts` holds a number for each block.
        unsafe { self.device.launch(kernel(Pass::Count), blocks, &parameter) }?;
        self.running_offsets(&counts, blocks)?;
        // SAFETY: as above; `out` is borrowed mutably and has `room` elements, and the kernel writes no more.
        unsafe { self.device.launch(kernel(Pass::Main), blocks, &parameter) }
    }
}

impl Cuda {
    /// Replaces each of `count` numbers by the sum of those before it; the sum of all follows the last.
    pub(super) fn running_offsets(&self, values: &CudaStorage, count: usize) -> Result<()> {
        let parameter = OffsetsParameter { values: values.at(0), count: count as u64 };
        let kernel = Kernel { pass: Pass::Scan, ..Kernel::new(Op::Nonzero, DType::Bool) };
        // SAFETY: both callers have allocated `count + 1` numbers on this device, which nobody else knows.
        unsafe { self.device.launch(kernel, 1, &parameter) }
    }
}

/// The strides of all operands along an axis.
pub(super) fn strides<const N: usize>(nest: &Nest<N>, axis: usize) -> [isize; N] {
    std::array::from_fn(|operand| nest.strides(operand)[axis])
}

/// `INDEX_…` of `index.cu`.
pub(super) fn index_type(dtype: DType) -> u32 {
    match dtype {
        DType::I64 => 0,
        DType::I32 => 1,
        DType::U32 => 2,
        _ => 3,
    }
}

/// No memory, for a pass that does not use it.
pub(super) const NONE: DevicePointer = DevicePointer::NULL;
