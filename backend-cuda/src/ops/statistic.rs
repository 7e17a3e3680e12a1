//! var, std, logsumexp and norm: one kernel for rows, `statistic.cu`. Columns, a few very long rows, and norms of another
//! order than 2 are left to the composition that `backend-api` provides.

use congruent_backend_api::ops::reduce::{Reduce, ReduceOp};
use congruent_backend_api::ops::statistic::{self, Statistic, StatisticOp};
use congruent_backend_api::{Op, Result, StatisticOps, View};

use super::norm::{CACHED, lanes};
use crate::device::Cuda;
use crate::kernels::Kernel;
use crate::launch::{RowsParameter, THREADS};
use crate::nest::DeviceNest;
use crate::storage::{CudaStorage, DevicePointer};

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl StatisticOps for Cuda {
    fn statistic(&self, plan: &Statistic, x: &CudaStorage, out: &mut CudaStorage) -> Result<()> {
        plan.check(x, out)?;
        let (op, dtype) = (plan.op(), plan.dtype());
        // A reduction of the same axes knows how they lie.
        let axes: Vec<isize> =
            (0..plan.x().rank()).filter(|&axis| plan.mask()[axis]).map(|axis| axis as isize).collect();
        let view = |layout| View { dtype, layout };
        let reduce = Reduce::new(ReduceOp::Sum, view(plan.x()), Some(&axes), view(plan.out()))?;
        let (kept, reduced) = (DeviceNest::from(reduce.kept()), DeviceNest::from(reduce.reduced()));
        let (rows, width) = (kept.count as usize, reduced.count as usize);
        let has_kernel = op != StatisticOp::Norm || plan.parameter() == 2.0;
        if rows == 0 {
            return Ok(());
        }
        if width == 0 || !has_kernel || !lies_in_rows(&kept, &reduced) || self.is_idle_with(rows, width) {
            return statistic::compose(self, plan, x, out);
        }
        self.order(op.name(), [x], out)?;
        let memory = x.at(reduce.kept().offset(1) + reduce.reduced().offset(0));
        let run = 16 / dtype.size() as u64;
        let is_run = reduced.rank == 1 && reduced.axis(0, 0).1 == 1 && reduced.count.is_multiple_of(run);
        let even = |axis: u32| kept.axis(1, axis as usize).1.unsigned_abs().is_multiple_of(run);
        let packed = is_run && memory.is_aligned() && (0..kept.rank).all(even);
        let parameter = RowsParameter {
            kept: DeviceNest::new(kept.axes().map(|(size, [out, x])| (size, [out, x, 0, 0]))),
            row: DeviceNest::new(reduced.axes().map(|(size, [x])| (size, [0, x, 0, 0]))),
            out: out.at(reduce.kept().offset(0)),
            inputs: [memory, DevicePointer::NULL, DevicePointer::NULL],
            parameter: plan.degrees_of_freedom(),
            lanes: lanes(width) as u32,
            packed: u32::from(packed) << 1,
            cached: u32::from(packed && width <= CACHED),
        };
        let blocks = rows.div_ceil(THREADS / lanes(width));
        // SAFETY: the plan was checked against these storages, which are this device's, and `out` is borrowed mutably.
        unsafe { self.device.launch(Kernel::new(Op::Statistic(op), dtype), blocks, &parameter) }
    }
}

/// Whether the elements of a row lie closer together than neighbouring rows.
fn lies_in_rows(kept: &DeviceNest<2>, row: &DeviceNest<1>) -> bool {
    let closest =
        (0..kept.rank).map(|axis| kept.axis(1, axis as usize).1.unsigned_abs()).filter(|&stride| stride > 0).min();
    let along = (0..row.rank).map(|axis| row.axis(0, axis as usize).1.unsigned_abs()).min();
    closest.is_none_or(|closest| along.is_none_or(|along| along <= closest))
}
