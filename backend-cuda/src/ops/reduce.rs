//! Reductions; the kernels, and how a block shares its work, are in `reduce.cu`.

use congruent_backend_api::ops::reduce::{ArgReduce, Reduce};
use congruent_backend_api::{DType, Op, ReduceOps, Result};

use crate::device::Cuda;
use crate::kernels::{Kernel, Pass};
use crate::launch::{ReduceParameter, SharedMemory, THREADS};
use crate::nest::DeviceNest;
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
        let address = x.at(offsets[1]);
        let count = reduced.count;
        let schedule = Schedule::new(&kept, &reduced, address.address(), dtype.size(), self.device.multiprocessors());
        let mut parameter = ReduceParameter {
            x: address,
            out: out.at(offsets[0]),
            partial: DevicePointer::NULL,
            count,
            results: kept.count,
            splits: schedule.splits as u64,
            run: schedule.run,
            out_step: schedule.out_step,
            lanes: schedule.lanes as u32,
            slots: (THREADS / schedule.lanes) as u32,
            columns: schedule.columns as u32,
            packed: schedule.packed.into(),
            finish_lanes: schedule.finish_lanes as u32,
            kept: schedule.kept,
            reduced: schedule.reduced,
        };
        let blocks = schedule.tiles.saturating_mul(schedule.splits);
        let kernel = Kernel::new(op, dtype);
        if schedule.splits == 1 {
            // SAFETY: both callers have checked their plan against these storages, which are this device's; `out` is
            // borrowed mutably, and with one split the kernel doesn't use `partial`.
            return unsafe { self.device.start(kernel, blocks, SharedMemory::NONE, &parameter) };
        }
        let bytes = kept.count as usize * schedule.splits * LARGEST_ACCUMULATOR;
        // Its release at the end of this function is ordered after both passes.
        let partial = CudaStorage::alloc(&self.device, DType::U8, bytes)?;
        parameter.partial = partial.at(0);
        // SAFETY: as above, and `partial` holds an accumulator for each result and split.
        unsafe { self.device.start(kernel, blocks, SharedMemory::NONE, &parameter) }?;
        let blocks = (kept.count as usize).div_ceil(THREADS / schedule.finish_lanes);
        // SAFETY: as above; this pass reads what the first one wrote, after it on the stream.
        unsafe { self.device.start(Kernel { pass: Pass::Finish, ..kernel }, blocks, SharedMemory::NONE, &parameter) }
    }
}

/// How a reduction is spread over threads; see `reduce.cu`. It depends on the shape, the alignment and the device alone,
/// so that the order of additions does too.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    kept: DeviceNest<2>,
    reduced: DeviceNest<1>,
    out_step: i64,
    columns: usize,
    packed: bool,
    lanes: usize,
    tiles: usize,
    splits: usize,
    run: u64,
    finish_lanes: usize,
}

impl Schedule {
    fn new(kept: &DeviceNest<2>, reduced: &DeviceNest<1>, address: u64, size: usize, multiprocessors: u32) -> Self {
        // Fewer accesses than this do not pay for a thread of their own, and fewer not for a block of their own.
        const PER_LANE: usize = 8;
        const PER_SPLIT_LANE: usize = 16;
        let pack = 16 / size;
        let (kept, closest) = closest_last(kept);
        let along =
            reduced.rank.checked_sub(1).map_or(u64::MAX, |axis| reduced.axis(0, axis as usize).1.unsigned_abs());
        let mut schedule = Self {
            kept,
            reduced: *reduced,
            out_step: 0,
            columns: 0,
            packed: false,
            lanes: 1,
            tiles: 1,
            splits: 1,
            run: 0,
            finish_lanes: THREADS,
        };
        let (count, results) = (reduced.count as usize, kept.count as usize);
        let is_even = |by: usize| {
            let even = move |(_, stride): (u64, i64)| stride.unsigned_abs().is_multiple_of(by as u64);
            (address.is_multiple_of((by * size) as u64), even)
        };
        // The visits of a result, and how many of them are one access.
        let (mut visits, mut access) = (count, 1);
        if closest < along {
            let width = if size == 1 { 8 } else { pack };
            let (aligned, even) = is_even(width);
            let last = kept.rank as usize - 1;
            let wide = aligned
                && kept.axis(1, last).1 == 1
                && kept.axis(1, last).0.is_multiple_of(width as u64)
                && (0..last).all(|axis| even(kept.axis(1, axis)))
                && (0..reduced.rank as usize).all(|axis| even(reduced.axis(0, axis)));
            schedule.columns = if wide { width } else { 1 };
            schedule.out_step = kept.axis(0, last).1;
            schedule.kept = in_groups(&kept, schedule.columns);
            let groups = results / schedule.columns;
            // A warp reads 32 neighbours, or all that there are.
            let most = THREADS / groups.next_power_of_two().clamp(1, 32);
            schedule.lanes = count.div_ceil(PER_LANE).next_power_of_two().clamp(1, most);
            schedule.tiles = groups.div_ceil(THREADS / schedule.lanes);
        } else {
            // A search may walk its axis backwards, which packs do not.
            if reduced.rank == 1 && reduced.axis(0, 0).1 == 1 {
                (schedule.packed, access) = (true, pack);
            } else if reduced.rank > 1 {
                let (aligned, even) = is_even(pack);
                let last = reduced.rank as usize - 1;
                schedule.packed = aligned
                    && along == 1
                    && reduced.axis(0, last).0.is_multiple_of(pack as u64)
                    && (0..last).all(|axis| even(reduced.axis(0, axis)))
                    && (0..kept.rank as usize).all(|axis| even(kept.axis(1, axis)));
                if schedule.packed {
                    schedule.reduced = in_groups(reduced, pack);
                    visits = count / pack;
                }
            }
            schedule.lanes = visits.div_ceil(PER_LANE * access).next_power_of_two().clamp(1, THREADS);
            schedule.tiles = results.div_ceil(THREADS / schedule.lanes);
        }
        let fill = 4 * multiprocessors as usize;
        // A second pass costs more than a device that three of eight blocks leave idle.
        let wanted = if 8 * schedule.tiles < 3 * fill { (2 * fill).div_ceil(schedule.tiles) } else { 1 };
        schedule.splits = wanted.min(visits.div_ceil(schedule.lanes * access * PER_SPLIT_LANE)).max(1);
        schedule.run = visits.div_ceil(schedule.splits).next_multiple_of(access) as u64;
        schedule.finish_lanes = THREADS / results.next_power_of_two().clamp(1, 32);
        schedule
    }
}

/// The nest with the axis along which the input lies closest together as the last, and the input's stride there.
fn closest_last(kept: &DeviceNest<2>) -> (DeviceNest<2>, u64) {
    let rank = kept.rank as usize;
    let stride = |axis: usize| kept.axis(1, axis).1.unsigned_abs();
    let closest = (0..rank).rev().filter(|&axis| stride(axis) > 0).min_by_key(|&axis| stride(axis));
    let Some(closest) = closest.or(rank.checked_sub(1)) else { return (*kept, u64::MAX) };
    if closest + 1 == rank {
        return (*kept, stride(closest));
    }
    let order = (0..rank).filter(|&axis| axis != closest).chain([closest]);
    let axis = |axis: usize| {
        let ((size, out), (_, x)) = (kept.axis(0, axis), kept.axis(1, axis));
        (size as usize, [out as isize, x as isize])
    };
    (DeviceNest::new(order.map(axis)), stride(closest))
}

/// The nest with groups of `width` along its last axis.
fn in_groups<const N: usize>(nest: &DeviceNest<N>, width: usize) -> DeviceNest<N> {
    let last = (nest.rank as usize).saturating_sub(1);
    DeviceNest::new(nest.axes().enumerate().map(|(axis, (size, strides))| {
        if axis == last { (size / width, strides.map(|stride| stride * width as isize)) } else { (size, strides) }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// columns, packed, lanes, tiles, splits of f32 on 100 multiprocessors.
    fn schedule(kept: &[(usize, isize)], reduced: &[(usize, isize)]) -> (usize, bool, usize, usize, usize) {
        let kept = DeviceNest::new(kept.iter().map(|&(size, stride)| (size, [stride; 2])));
        let reduced = DeviceNest::new(reduced.iter().map(|&(size, stride)| (size, [stride])));
        let schedule = Schedule::new(&kept, &reduced, 0, 4, 100);
        (schedule.columns, schedule.packed, schedule.lanes, schedule.tiles, schedule.splits)
    }

    #[test]
    fn the_shape_decides() {
        // All to one: the block's threads on neighbouring packs, and many blocks.
        assert_eq!(schedule(&[], &[(1 << 24, 1)]), (0, true, 256, 1, 800));
        // Short rows: several results per warp.
        assert_eq!(schedule(&[(10_000, 8)], &[(8, 1)]), (0, true, 1, 40, 1));
        // Long rows: a block each, and no second pass.
        assert_eq!(schedule(&[(8192, 8192)], &[(8192, 1)]), (0, true, 256, 8192, 1));
        // Two reduced axes in packs, unless rows of packs are broken.
        assert_eq!(schedule(&[(512, 64)], &[(64, 32768), (64, 1)]), (0, true, 128, 256, 1));
        assert_eq!(schedule(&[(512, 63)], &[(64, 32256), (63, 1)]), (0, false, 256, 512, 1));
        // Columns: neighbouring threads on neighbouring groups of results.
        assert_eq!(schedule(&[(4096, 1)], &[(4096, 4096)]), (4, false, 8, 32, 25));
        assert_eq!(schedule(&[(4097, 1)], &[(4096, 4097)]), (1, false, 8, 129, 7));
        // Two columns: the other threads of a block share their elements.
        assert_eq!(schedule(&[(2, 1)], &[(1 << 20, 2)]), (1, false, 128, 1, 512));
        // Nothing to reduce, or only one element each.
        assert_eq!(schedule(&[(5, 1)], &[(0, 0)]), (0, false, 1, 1, 1));
        assert_eq!(schedule(&[(5, 1)], &[]), (1, false, 1, 1, 1));
    }

    #[test]
    fn columns_follow_the_input() {
        // The output is walked [8, 16], the input lies as [16, 8].
        let kept = DeviceNest::new([(8, [16, 1]), (16, [1, 8])].into_iter());
        let (turned, closest) = closest_last(&kept);
        assert_eq!((turned.axis(1, 1), turned.axis(0, 1), closest), ((8, 1), (8, 16), 1));
    }
}
