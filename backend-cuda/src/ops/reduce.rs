//! Reductions; the kernels, and how a block shares its work, are in `reduce.cu`. Statistics are the composition that
//! `backend-api` provides.

use congruent_backend_api::ops::reduce::{ArgReduce, Reduce};
use congruent_backend_api::{DType, Op, ReduceOps, Result};

use crate::device::Cuda;
use crate::kernels::{Kernel, Pass};
use crate::launch::{DeviceNest, ReduceParameter, THREADS};
use crate::storage::{CudaStorage, DevicePointer};

/// No accumulator in `reduce.cu` is larger.
const LARGEST_ACCUMULATOR: usize = 16;

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl ReduceOps for Cuda {
    fn reduce(&self, plan: &Reduce, x: &CudaStorage, out: &mut CudaStorage) -> Result<()> {
        plan.check(x, out)?;
        let (kept, reduced) = (DeviceNest::from(plan.kept()), DeviceNest::from(plan.reduced()));
        let offsets = [plan.kept().offset(0), plan.kept().offset(1) + plan.reduced().offset(0)];
        self.run(Op::Reduce(plan.op()), plan.dtype(), kept, reduced, x, out, offsets)
    }

    fn arg_reduce(&self, plan: &ArgReduce, x: &CudaStorage, out: &mut CudaStorage) -> Result<()> {
        plan.check(x, out)?;
        let reduced = DeviceNest::new(std::iter::once((plan.len(), [plan.stride()])));
        let offsets = [plan.kept().offset(0), plan.kept().offset(1)];
        self.run(Op::ArgReduce(plan.op()), plan.dtype(), plan.kept().into(), reduced, x, out, offsets)
    }
}

impl Cuda {
    #[expect(clippy::too_many_arguments, reason = "the parts that the two plans have in common")]
    fn run(
        &self,
        op: Op,
        dtype: DType,
        kept: DeviceNest<2>,
        reduced: DeviceNest<1>,
        x: &CudaStorage,
        out: &mut CudaStorage,
        offsets: [usize; 2],
    ) -> Result<()> {
        self.order(op.name(), [x], out)?;
        if kept.count == 0 {
            return Ok(());
        }
        let schedule = Schedule::new(&kept, &reduced, self.device.multiprocessors() as usize);
        let mut parameter = ReduceParameter {
            kept,
            reduced,
            x: x.at(offsets[1]),
            out: out.at(offsets[0]),
            partial: DevicePointer::NULL,
            splits: schedule.splits as u64,
            lanes: schedule.lanes as u32,
            outputs: (THREADS / schedule.lanes) as u32,
            columns: schedule.columns.into(),
        };
        let blocks = schedule.tiles.saturating_mul(schedule.splits);
        let kernel = Kernel::new(op, dtype);
        if schedule.splits == 1 {
            // SAFETY: both callers have checked their plan against these storages, which are this device's; `out` is
            // borrowed mutably, and with one split the kernel doesn't use `partial`.
            return unsafe { self.device.launch(kernel, blocks, &parameter) };
        }
        let bytes = kept.count as usize * schedule.splits * LARGEST_ACCUMULATOR;
        // Its release at the end of this function is ordered after both passes.
        let partial = CudaStorage::alloc(&self.device, DType::U8, bytes)?;
        parameter.partial = partial.at(0);
        // SAFETY: as above, and `partial` holds an accumulator for each result and split.
        unsafe { self.device.launch(kernel, blocks, &parameter) }?;
        // SAFETY: as above; this pass reads what the first one wrote, after it on the stream.
        unsafe { self.device.launch(Kernel { pass: Pass::Finish, ..kernel }, kept.count as usize, &parameter) }
    }
}

/// How a reduction is spread over threads; see `reduce.cu`. It depends on the shape and the device alone, so that the
/// order of additions does too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Schedule {
    columns: bool,
    lanes: usize,
    tiles: usize,
    splits: usize,
}

impl Schedule {
    fn new(kept: &DeviceNest<2>, reduced: &DeviceNest<1>, multiprocessors: usize) -> Self {
        // Fewer elements than this do not pay for a thread of their own.
        const PER_LANE: usize = 8;
        // Nor do fewer than this for a block of their own.
        const PER_SPLIT_LANE: usize = 32;
        let (count, results) = (reduced.count as usize, kept.count as usize);
        let closest = |nest: Option<(u64, i64)>| nest.map_or(u64::MAX, |(_, stride)| stride.unsigned_abs());
        let last = |rank: u32| (rank as usize).checked_sub(1);
        let across = closest(last(kept.rank).map(|axis| kept.axis(1, axis)));
        let along = closest(last(reduced.rank).map(|axis| reduced.axis(0, axis)));
        let columns = across < along;
        // A warp of columns reads 32 neighbours, or all that there are; a row may have the whole block.
        let most = if columns { THREADS / results.next_power_of_two().clamp(1, 32) } else { THREADS };
        let lanes = count.div_ceil(PER_LANE).next_power_of_two().clamp(1, most);
        let tiles = results.div_ceil(THREADS / lanes);
        let wanted = (8 * multiprocessors).div_ceil(tiles);
        let splits = wanted.min(count.div_ceil(lanes * PER_SPLIT_LANE)).max(1);
        Self { columns, lanes, tiles, splits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(kept: &[(usize, isize)], reduced: &[(usize, isize)]) -> Schedule {
        let kept = DeviceNest::new(kept.iter().map(|&(size, stride)| (size, [stride; 2])));
        let reduced = DeviceNest::new(reduced.iter().map(|&(size, stride)| (size, [stride])));
        Schedule::new(&kept, &reduced, 100)
    }

    #[test]
    fn the_shape_decides() {
        // All to one: the block's threads on neighbouring elements, and many blocks.
        assert_eq!(schedule(&[], &[(1 << 24, 1)]), Schedule { columns: false, lanes: 256, tiles: 1, splits: 800 });
        // Short rows: several results per warp.
        assert_eq!(schedule(&[(10_000, 8)], &[(8, 1)]), Schedule { columns: false, lanes: 1, tiles: 40, splits: 1 });
        // Columns: neighbouring threads on neighbouring results.
        assert_eq!(
            schedule(&[(4096, 1)], &[(4096, 4096)]),
            Schedule { columns: true, lanes: 8, tiles: 128, splits: 7 }
        );
        // Two columns: the other threads of a block share their elements.
        assert_eq!(schedule(&[(2, 1)], &[(1 << 20, 2)]), Schedule { columns: true, lanes: 128, tiles: 1, splits: 256 });
        // Nothing to reduce, or only one element each.
        assert_eq!(schedule(&[(5, 1)], &[(0, 0)]), Schedule { columns: false, lanes: 1, tiles: 1, splits: 1 });
        assert_eq!(schedule(&[(5, 1)], &[]), Schedule { columns: true, lanes: 1, tiles: 1, splits: 1 });
    }
}
