//! Sorting; the kernels are in `sort.cu`.

use congruent_backend_api::ops::sort::{SearchSorted, Sort, SortOp};
use congruent_backend_api::{DType, Op, Result, SortOps};

use crate::device::Cuda;
use crate::kernels::{Kernel, Pass};
use crate::launch::{SearchParameter, SharedMemory, SortParameter, THREADS};
use crate::nest::DeviceNest;
use crate::storage::{CudaStorage, DevicePointer};

/// `TILE`, `SELECTED`, `DIGITS` and `ROW_THREADS` of `sort.cu`.
const TILE: usize = 4096;
const SELECTED: usize = 1024;
const DIGITS: usize = 256;
const ROW_THREADS: usize = 512;

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl SortOps for Cuda {
    fn sort(&self, plan: &Sort, x: &CudaStorage, out: &mut CudaStorage) -> Result<()> {
        plan.check(x, out)?;
        self.order(plan.op().name(), [x], out)?;
        let rows = DeviceNest::from(plan.rows());
        if rows.count == 0 || plan.taken() == 0 {
            return Ok(());
        }
        let [out_stride, x_stride] = plan.strides();
        let mut parameter = SortParameter {
            rows,
            x: x.at(plan.rows().offset(1)),
            out: out.at(plan.rows().offset(0)),
            keys: [DevicePointer::NULL; 2],
            positions: [DevicePointer::NULL; 2],
            counts: DevicePointer::NULL,
            totals: DevicePointer::NULL,
            len: plan.len() as u64,
            taken: plan.taken() as u64,
            tiles: plan.len().div_ceil(TILE) as u64,
            out_stride: out_stride as i64,
            x_stride: x_stride as i64,
            phase: Phase::Rank as u32,
            pass: 0,
            descending: plan.descending().into(),
            elements: u32::from(plan.op() == SortOp::Sort),
            wide: u32::from(u32::try_from(plan.len()).is_err()),
            unused: 0,
        };
        let count = rows.count as usize;
        let kernel = Kernel::new(Op::Sort(SortOp::Sort), plan.dtype());
        let held = held(self.device.shared_memory(), plan.dtype());
        match Path::new(plan, count, held, self.device.multiprocessors() as usize) {
            Path::Rank => {
                let blocks = count.div_ceil(TILE / plan.len());
                // SAFETY: the plan was checked against these storages, which are this device's; `out` is borrowed mutably,
                // and only the passes over long rows use the temporaries.
                unsafe { self.device.launch(kernel, blocks, &parameter) }
            }
            Path::Select => {
                let kernel = Kernel::new(Op::Sort(SortOp::Topk), plan.dtype());
                // SAFETY: as above.
                unsafe { self.device.launch(kernel, count, &parameter) }
            }
            Path::Row => {
                let shared = SharedMemory { threads: ROW_THREADS, bytes: shared_bytes(plan.len(), plan.dtype()) };
                // SAFETY: as above.
                unsafe { self.device.launch_with(Kernel { pass: Pass::Finish, ..kernel }, count, shared, &parameter) }
            }
            Path::Tiles => self.sort_tiles(plan, kernel, &mut parameter),
        }
    }

    fn search_sorted(
        &self,
        plan: &SearchSorted,
        sorted: &CudaStorage,
        values: &CudaStorage,
        out: &mut CudaStorage,
    ) -> Result<()> {
        plan.check(sorted, values, out)?;
        self.order(Op::SearchSorted.name(), [sorted, values], out)?;
        let nest = plan.nest();
        let parameter = SearchParameter {
            nest: nest.into(),
            sorted: sorted.at(nest.offset(2)),
            values: values.at(nest.offset(1)),
            out: out.at(nest.offset(0)),
            len: plan.len() as u64,
            stride: plan.stride() as i64,
            right: plan.right().into(),
        };
        let count = parameter.nest.count as usize;
        if count == 0 {
            return Ok(());
        }
        let kernel = Kernel::new(Op::SearchSorted, plan.dtype());
        // SAFETY: the plan was checked against these storages, which are this device's, and `out` is borrowed mutably.
        unsafe { self.device.launch(kernel, count.div_ceil(THREADS), &parameter) }
    }
}

impl Cuda {
    /// Sorts rows that no block can hold, one digit after another; the parameter is complete but for the temporaries.
    fn sort_tiles(&self, plan: &Sort, kernel: Kernel, parameter: &mut SortParameter) -> Result<()> {
        let (count, tiles, passes) = (parameter.rows.count as usize, parameter.tiles as usize, plan.dtype().size());
        let elements = count * plan.len();
        let position = if parameter.wide == 1 { DType::I64 } else { DType::U32 };
        // Between two passes the elements wait in one buffer; with a pass in the middle there are two.
        let mut held = Vec::new();
        for buffer in 0..(passes - 1).min(2) {
            let keys = CudaStorage::alloc(&self.device, DType::U8, elements * passes)?;
            let positions = CudaStorage::alloc(&self.device, position, elements)?;
            (parameter.keys[buffer], parameter.positions[buffer]) = (keys.at(0), positions.at(0));
            held.extend([keys, positions]);
        }
        let counts = CudaStorage::alloc(&self.device, DType::I64, count * DIGITS * tiles)?;
        let totals = CudaStorage::alloc(&self.device, DType::I64, count * DIGITS)?;
        (parameter.counts, parameter.totals) = (counts.at(0), totals.at(0));
        for pass in 0..passes {
            parameter.pass = pass as u32;
            let phases = [(Phase::Count, count * tiles), (Phase::Sum, count * DIGITS), (Phase::Move, count * tiles)];
            for (phase, blocks) in phases {
                parameter.phase = phase as u32;
                // SAFETY: `sort` has checked the plan's storages; the temporaries hold an element for each of the rows,
                // a count for each digit and tile, and a total for each digit. They are freed in the order of the stream.
                unsafe { self.device.launch(kernel, blocks, parameter) }?;
            }
        }
        Ok(())
    }
}

/// What the kernel `sort` does, as in `sort.cu`.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Phase {
    Rank = 0,
    Count = 1,
    Sum = 2,
    Move = 3,
}

/// How a sort is spread over blocks; see `sort.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    Rank,
    Row,
    Select,
    Tiles,
}

impl Path {
    /// `held` is the longest row that fits shared memory.
    fn new(plan: &Sort, rows: usize, held: usize, multiprocessors: usize) -> Self {
        /// Up to here counting beats moving.
        const SHORT: usize = 256;
        /// Up to here one block reads a row as fast as many blocks sort it.
        const ONE_BLOCK: usize = 1 << 16;
        let len = plan.len();
        let selects = plan.taken() <= SELECTED && plan.taken() <= len / 4;
        if len <= SHORT {
            Self::Rank
        } else if plan.op() == SortOp::Topk
            && selects
            && u32::try_from(len).is_ok()
            && (len <= ONE_BLOCK || rows >= multiprocessors)
        {
            Self::Select
        } else if len <= held {
            Self::Row
        } else {
            Self::Tiles
        }
    }
}

/// The shared memory of `sort_finish`: keys and 16-bit positions twice, and a 16-bit count for each warp and digit.
fn shared_bytes(len: usize, dtype: DType) -> usize {
    len.next_multiple_of(8) * (2 * dtype.size() + 4) + ROW_THREADS / 32 * DIGITS * 2
}

/// The longest row for which a block may have that much shared memory.
fn held(shared: usize, dtype: DType) -> usize {
    // A kernel has some of its own, and positions have 16 bits.
    let free = shared.saturating_sub(1024 + shared_bytes(0, dtype));
    (free / (2 * dtype.size() + 4) / 8 * 8).min(u16::MAX.into())
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::{Layout, Shape, View};

    use super::*;

    fn path(op: SortOp, shape: &[usize], taken: usize) -> Path {
        let layout = |shape: &[usize]| Layout::contiguous(Shape::new("test", shape).unwrap());
        let (x, out) = (layout(shape), layout(&[shape[0], taken]));
        let view = |dtype, layout| View { dtype, layout };
        let plan = Sort::new(op, view(DType::F32, &x), 1, false, view(op.out_dtype(DType::F32), &out)).unwrap();
        Path::new(&plan, shape[0], held(232_448, DType::F32), 132)
    }

    #[test]
    fn the_shape_decides() {
        assert_eq!(path(SortOp::Sort, &[1000, 16], 16), Path::Rank);
        assert_eq!(path(SortOp::Argsort, &[1024, 8192], 8192), Path::Row);
        assert_eq!(path(SortOp::Topk, &[1024, 8192], 50), Path::Select);
        assert_eq!(path(SortOp::Topk, &[1024, 8192], 5000), Path::Row);
        assert_eq!(path(SortOp::Topk, &[1, 1 << 20], 50), Path::Tiles);
        assert_eq!(path(SortOp::Topk, &[500, 1 << 20], 50), Path::Select);
        assert_eq!(path(SortOp::Sort, &[1, 1 << 20], 1 << 20), Path::Tiles);
    }

    #[test]
    fn rows_fit_into_shared_memory() {
        for dtype in DType::ALL {
            for shared in [48 << 10, 64 << 10, 99 << 10, 227 << 10] {
                let held = held(shared, dtype);
                assert!(held > 256 && held <= 65_535 && shared_bytes(held, dtype) + 1024 <= shared, "{dtype} {shared}");
            }
        }
    }
}
