//! Scans; the kernels, and how a block walks along its rows, are in `scan.cu`.

use congruent_backend_api::ops::scan::Scan;
use congruent_backend_api::{DType, Op, Result, ScanOps};

use crate::device::Cuda;
use crate::kernels::{Kernel, Pass};
use crate::launch::{ScanParameter, THREADS};
use crate::nest::DeviceNest;
use crate::storage::{CudaStorage, DevicePointer};

/// No carry in `scan.cu` is larger.
const LARGEST_CARRY: usize = 24;

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl ScanOps for Cuda {
    fn scan(&self, plan: &Scan, x: &CudaStorage, out: &mut CudaStorage) -> Result<()> {
        plan.check(x, out)?;
        let op = Op::Scan(plan.op());
        self.order(op.name(), [x], out)?;
        let rows = DeviceNest::from(plan.rows());
        if rows.count == 0 {
            return Ok(());
        }
        let schedule = Schedule::new(&rows, plan, self.device.multiprocessors() as usize);
        let [out_stride, x_stride] = plan.strides();
        let mut parameter = ScanParameter {
            rows,
            x: x.at(plan.rows().offset(1)),
            out: out.at(plan.rows().offset(0)),
            partial: DevicePointer::NULL,
            len: plan.len() as u64,
            run: schedule.run as u64,
            splits: schedule.splits as u64,
            out_stride: out_stride as i64,
            x_stride: x_stride as i64,
            lanes: schedule.lanes as u32,
            outputs: (THREADS / schedule.lanes) as u32,
            columns: schedule.columns.into(),
            exclusive: plan.exclusive().into(),
        };
        let blocks = schedule.tiles.saturating_mul(schedule.splits);
        let kernel = Kernel::new(op, plan.dtype());
        if schedule.splits == 1 {
            // SAFETY: the plan was checked against these storages, which are this device's; `out` is borrowed mutably, and
            // with one split the kernel does not use `partial`.
            return unsafe { self.device.launch(kernel, blocks, &parameter) };
        }
        let bytes = rows.count as usize * schedule.splits * LARGEST_CARRY;
        // Freed at the end of this function, which the stream orders after both passes.
        let partial = CudaStorage::alloc(&self.device, DType::U8, bytes)?;
        parameter.partial = partial.at(0);
        // SAFETY: as above, and `partial` holds a carry for each row and split.
        unsafe { self.device.launch(kernel, blocks, &parameter) }?;
        // SAFETY: as above; this pass reads what the first one wrote, after it on the stream.
        unsafe { self.device.launch(Kernel { pass: Pass::Finish, ..kernel }, blocks, &parameter) }
    }
}

/// How a scan is spread over threads; see `scan.cu`. It depends on the shape and the device alone, so that the order of
/// additions does too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Schedule {
    columns: bool,
    lanes: usize,
    tiles: usize,
    splits: usize,
    /// The length of a split, a whole number of steps.
    run: usize,
}

impl Schedule {
    fn new(rows: &DeviceNest<2>, plan: &Scan, multiprocessors: usize) -> Self {
        // Fewer steps than this do not pay for a block of their own.
        const PER_SPLIT: usize = 4;
        let (count, len) = (rows.count as usize, plan.len());
        // The last axis is the one of neighbouring rows.
        let neighbours = (rows.rank as usize).checked_sub(1).map(|axis| rows.axis(1, axis));
        let across = plan.strides()[1].unsigned_abs() as u64;
        let columns = neighbours.is_some_and(|(size, stride)| size >= 16 && stride.unsigned_abs() < across);
        let size = plan.dtype().size();
        // K in `scan.cu`.
        let items = if size < 4 { 16 / size } else { 32 / size };
        let lanes = if columns {
            // Half a warp of columns still reads whole sectors, and makes twice as many blocks.
            if count < 128 * multiprocessors { 16 } else { 8 }
        } else {
            len.div_ceil(items).next_power_of_two().clamp(1, THREADS)
        };
        let (tiles, step) = (count.div_ceil(THREADS / lanes), lanes * items);
        let wanted = if tiles >= multiprocessors { 1 } else { (4 * multiprocessors).div_ceil(tiles) };
        let splits = wanted.min(len / (PER_SPLIT * step)).max(1);
        let run = len.div_ceil(splits).next_multiple_of(step);
        Self { columns, lanes, tiles, splits: len.div_ceil(run), run }
    }
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::ops::scan::{ScanOp, ScanRange};
    use congruent_backend_api::{Layout, Shape, View};

    use super::*;

    fn schedule(shape: &[usize], along: isize) -> Schedule {
        let layout = Layout::contiguous(Shape::new("test", shape).unwrap());
        let view = View { dtype: DType::F32, layout: &layout };
        let plan = Scan::new(ScanOp::Sum, view, along, ScanRange::default(), view).unwrap();
        Schedule::new(&DeviceNest::from(plan.rows()), &plan, 100)
    }

    #[test]
    fn the_shape_decides() {
        // Many rows: one pass, a block each.
        let plain = Schedule { columns: false, lanes: 256, tiles: 8192, splits: 1, run: 8192 };
        assert_eq!(schedule(&[8192, 8192], 1), plain);
        // Columns: neighbouring threads on neighbouring columns.
        let columns = Schedule { columns: true, lanes: 16, tiles: 512, splits: 1, run: 8192 };
        assert_eq!(schedule(&[8192, 8192], 0), columns);
        // One long row: many blocks, in whole steps.
        let long = schedule(&[1 << 24], 0);
        assert_eq!((long.lanes, long.tiles, long.splits, long.run % 2048), (256, 1, 391, 0));
        assert!(long.run * long.splits >= 1 << 24 && long.run * (long.splits - 1) < 1 << 24);
        // Short rows: several to a warp.
        assert_eq!(schedule(&[1000, 7], 1), Schedule { columns: false, lanes: 1, tiles: 4, splits: 1, run: 8 });
        assert_eq!(schedule(&[5, 1], 1), Schedule { columns: false, lanes: 1, tiles: 1, splits: 1, run: 8 });
    }
}
