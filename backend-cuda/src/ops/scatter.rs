//! Scatters; the kernels are in `index.cu`.
//!
//! - `scatter` finds the last source of each row with an atomic maximum of positions, then writes the winners.
//! - Integers of 32 and 64 bits are added and compared by atomics: their order has no influence.
//! - The rest sorts the sources by row and sums runs of them in order, so that the bits are the same in every run.

use congruent_backend_api::ops::index::{Scatter, ScatterOp};
use congruent_backend_api::{DType, Op, Result};

use super::index::{NONE, index_type, strides};
use crate::device::Cuda;
use crate::kernels::{Kernel, Pass, has_atomics};
use crate::launch::{ScatterParameter, THREADS};
use crate::nest::DeviceNest;
use crate::storage::CudaStorage;

/// No accumulator in `index.cu` is larger.
const LARGEST_ACCUMULATOR: usize = 16;

impl Cuda {
    /// Runs a scatter whose storages are checked.
    #[expect(
        clippy::needless_pass_by_ref_mut,
        reason = "the device writes through the address: the caller must own it"
    )]
    pub(super) fn run_scatter(
        &self,
        plan: &Scatter,
        index: &CudaStorage,
        src: &CudaStorage,
        out: &mut CudaStorage,
    ) -> Result<()> {
        let (kept, dtype, op) = (plan.kept(), plan.dtype(), plan.op());
        if kept.count() == 0 || plan.count() == 0 {
            return Ok(());
        }
        // Along the outer axes the index differs, along the inner ones it is shared.
        let part = |shared: bool| {
            let axes = (0..kept.rank()).filter(move |&axis| (kept.strides(1)[axis] == 0) == shared);
            DeviceNest::new(axes.map(|axis| (kept.sizes()[axis], strides(kept, axis))))
        };
        let (outer, inner): (DeviceNest<3>, DeviceNest<3>) = (part(false), part(true));
        let (to, from) = (out.at(kept.offset(0)), src.at(kept.offset(2)));
        let pack = 16 / dtype.size();
        let whole = |strides: [isize; 3]| [0, 2].iter().all(|&x| strides[x].unsigned_abs().is_multiple_of(pack));
        let vector = inner.rank == 1
            && [0, 2].iter().all(|&operand| inner.axis(operand, 0).1 == 1)
            && (inner.count as usize).is_multiple_of(pack)
            && to.is_aligned()
            && from.is_aligned()
            && whole(plan.strides())
            && (0..kept.rank()).filter(|&axis| kept.strides(1)[axis] != 0).all(|axis| whole(strides(kept, axis)));
        let parameter = ScatterParameter {
            outer,
            inner,
            out: to,
            index: index.at(kept.offset(1)),
            src: from,
            flag: self.device.index_flag(),
            items: NONE,
            spare: NONE,
            counts: NONE,
            heads: NONE,
            tails: NONE,
            count: plan.count() as u64,
            len: plan.len() as u64,
            strides: plan.strides().map(|stride| stride as i64),
            chunk: 0,
            chunks: 0,
            position_bits: 0,
            shift: 0,
            index_type: index_type(plan.index_dtype()),
            vector: vector.into(),
        };
        let kernel = Kernel::new(Op::Scatter(op), dtype);
        let atomic = dtype.is_int() || (op == ScatterOp::Add && self.device.atomic_scatter());
        match op {
            ScatterOp::Set => self.scatter_last(kernel, parameter),
            _ if atomic && has_atomics(dtype) => {
                let blocks = (kept.count() * plan.count()).div_ceil(THREADS);
                // SAFETY: the plan was checked against these storages, which are this device's, and `out` is borrowed
                // mutably; the kernel writes at indices below `len` only.
                unsafe { self.device.launch(Kernel { pass: Pass::Atomic, ..kernel }, blocks, &parameter) }
            }
            _ => self.scatter_runs(kernel, parameter),
        }
    }

    /// The last source of each row, whatever their number; the storages are checked.
    fn scatter_last(&self, kernel: Kernel, mut parameter: ScatterParameter) -> Result<()> {
        let rows = (parameter.outer.count * parameter.len) as usize;
        let items = (parameter.outer.count * parameter.count) as usize;
        let mut winners = CudaStorage::alloc(&self.device, DType::I64, rows)?;
        winners.clear(kernel.op.name())?;
        parameter.counts = winners.at(0);
        let claim = Kernel { pass: Pass::Claim, ..kernel };
        // SAFETY: the index was checked against the plan; `counts` has a cleared number for each row.
        unsafe { self.device.launch(claim, items.div_ceil(THREADS), &parameter) }?;
        let threads =
            items * parameter.inner.count as usize / if parameter.vector == 1 { 16 / kernel.dtype.size() } else { 1 };
        // SAFETY: the plan was checked against index, source and output, which the caller borrows mutably; the kernel writes
        // at indices below `len` only, and reads what the first pass wrote before.
        unsafe { self.device.launch(kernel, threads.div_ceil(THREADS), &parameter) }
    }

    /// Sorts the sources by row and takes the runs of each row in order; the storages are checked.
    fn scatter_runs(&self, kernel: Kernel, mut parameter: ScatterParameter) -> Result<()> {
        let (items, rows) = (parameter.outer.count * parameter.count, parameter.outer.count * parameter.len);
        parameter.position_bits = bits(parameter.count - 1);
        if bits(rows) + parameter.position_bits > u64::BITS {
            return self.scatter_halves(kernel, parameter);
        }
        let numbers = || CudaStorage::alloc(&self.device, DType::I64, items as usize);
        let (mut sorted, mut spare) = (numbers()?, numbers()?);
        parameter.items = sorted.at(0);
        let grouping = |pass| Kernel { pass, ..Kernel::new(Op::Nonzero, DType::Bool) };
        let blocks = (items as usize).div_ceil(THREADS);
        // SAFETY: the index was checked against the plan, and `items` has a number for each of its elements.
        unsafe { self.device.launch(grouping(Pass::Keys), blocks, &parameter) }?;
        let blocks = blocks.div_ceil(8).min(2 * self.device.multiprocessors() as usize);
        let counts = CudaStorage::alloc(&self.device, DType::I64, 256 * blocks + 1)?;
        parameter.counts = counts.at(0);
        for digit in 0..bits(rows).div_ceil(8) {
            let step = ScatterParameter {
                items: sorted.at(0),
                spare: spare.at(0),
                chunk: items.div_ceil(blocks as u64),
                shift: parameter.position_bits + 8 * digit,
                ..parameter
            };
            // SAFETY: `items` has the numbers that the pass before wrote, `counts` room for 256 of each block.
            unsafe { self.device.launch(grouping(Pass::Histogram), blocks, &step) }?;
            self.running_offsets(&counts, 256 * blocks)?;
            // SAFETY: as above; `counts` says where each digit of each block goes, which is inside `spare`.
            unsafe { self.device.launch(grouping(Pass::Move), blocks, &step) }?;
            std::mem::swap(&mut sorted, &mut spare);
        }
        parameter.items = sorted.at(0);
        let width = parameter.inner.count / if parameter.vector == 1 { (16 / kernel.dtype.size()) as u64 } else { 1 };
        parameter.chunk = chunk(items, width);
        parameter.chunks = items.div_ceil(parameter.chunk);
        let parts = (parameter.chunks * parameter.inner.count) as usize * LARGEST_ACCUMULATOR;
        let heads = CudaStorage::alloc(&self.device, DType::U8, parts)?;
        let tails = CudaStorage::alloc(&self.device, DType::U8, parts)?;
        (parameter.heads, parameter.tails) = (heads.at(0), tails.at(0));
        let blocks = ((parameter.chunks * width) as usize).div_ceil(THREADS);
        // SAFETY: the plan was checked against source and output, which the caller borrows mutably; `items` names rows below
        // `len` and positions below `count`, or marks what is out of range; the parts have room for each chunk and column.
        unsafe { self.device.launch(kernel, blocks, &parameter) }?;
        // SAFETY: as above; this pass reads what the first one wrote, after it on the stream.
        unsafe { self.device.launch(Kernel { pass: Pass::Merge, ..kernel }, blocks, &parameter) }
    }

    /// The first half of the positions, then the second, where row and position do not fit into one number.
    fn scatter_halves(&self, kernel: Kernel, parameter: ScatterParameter) -> Result<()> {
        let half = parameter.count / 2;
        self.scatter_runs(kernel, ScatterParameter { count: half, ..parameter })?;
        let moved = |pointer: crate::storage::DevicePointer, stride: i64, dtype| {
            pointer.offset((half as i64 * stride) as isize, dtype)
        };
        let index_dtype = [DType::I64, DType::I32, DType::U32, DType::U8][parameter.index_type as usize];
        let rest = ScatterParameter {
            count: parameter.count - half,
            index: moved(parameter.index, parameter.strides[1], index_dtype),
            src: moved(parameter.src, parameter.strides[2], kernel.dtype),
            ..parameter
        };
        self.scatter_runs(kernel, rest)
    }
}

/// How many bits a number takes.
fn bits(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

/// How many sources of a row a thread takes in turn: enough threads first, then short chains of parts. It depends on the
/// shape alone, so that the order of additions does too.
fn chunk(items: u64, width: u64) -> u64 {
    const THREADS_WANTED: u64 = 1 << 17;
    (items.saturating_mul(width) / THREADS_WANTED).clamp(16, items.isqrt().max(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_short_while_there_are_threads_to_fill() {
        assert_eq!(chunk(1 << 16, 256), 128);
        assert_eq!(chunk(1 << 24, 1), 128);
        assert_eq!(chunk(1 << 16, 1 << 12), 256);
        assert_eq!(chunk(5, 1), 16);
        assert_eq!((bits(0), bits(1), bits(255), bits(256)), (0, 1, 8, 9));
    }
}
