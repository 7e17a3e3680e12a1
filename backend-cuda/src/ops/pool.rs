//! Pooling; the kernels are in `pool.cu`, a thread for each element of the output.

use congruent_backend_api::ops::conv::MAX_SPATIAL;
use congruent_backend_api::ops::pool::{Divisor, Pool, Windows};
use congruent_backend_api::{Layout, Op, PoolOps, Result};

use crate::device::Cuda;
use crate::kernels::Kernel;
use crate::launch::{PoolParameter, THREADS, WindowsParameter};
use crate::nest::{DeviceNest, Mode};
use crate::storage::{CudaStorage, DevicePointer};

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl PoolOps for Cuda {
    fn pool(
        &self,
        plan: &Pool,
        input: &CudaStorage,
        indices: Option<&CudaStorage>,
        out: &mut CudaStorage,
    ) -> Result<()> {
        plan.check(input, indices, out)?;
        self.order(plan.op().name(), [Some(input), indices].into_iter().flatten(), out)?;
        let [given, result] = plan.operands();
        if result.count() == 0 {
            return Ok(());
        }
        let positions = plan.indices().unwrap_or(given);
        let operands = [result, given, positions];
        let missing = MAX_SPATIAL + 2 - result.rank();
        // Axes of space that there are not come before those that there are, so that threads run along memory.
        let axis = |layout: &Layout, axis: usize| match axis {
            0 | 1 => (layout.shape()[axis], layout.strides()[axis]),
            _ if axis < 2 + missing => (1, 0),
            _ => (layout.shape()[axis - missing], layout.strides()[axis - missing]),
        };
        let strides = |index: usize| operands.map(|layout| axis(layout, index).1);
        let nest = DeviceNest::new((0..MAX_SPATIAL + 2).map(|index| (axis(result, index).0, strides(index))));
        let mut windows = *plan.windows();
        windows.rotate_right(missing);
        let (divisor, counted) = match plan.options().divisor {
            Divisor::Fixed(divisor) => (divisor, 0),
            Divisor::Elements => (1, 1),
            Divisor::Padded => (1, 2),
        };
        let narrow =
            nest.mode == Mode::Narrow && operands.into_iter().all(is_narrow) && windows.iter().all(reaches_little);
        let parameter = PoolParameter {
            nest,
            out: out.at(result.offset()),
            input: input.at(given.offset()),
            positions: indices.map_or(DevicePointer::NULL, |indices| indices.at(positions.offset())),
            windows: windows.map(WindowsParameter::from),
            divisor: divisor as i64,
            counted,
            narrow: narrow.into(),
        };
        let blocks = result.count().div_ceil(THREADS);
        // SAFETY: the plan was checked against these storages, which are this device's, `out` is borrowed mutably, and the
        // windows reach no further than the input's sizes.
        unsafe { self.device.launch(Kernel::new(Op::Pool(plan.op()), plan.dtype()), blocks, &parameter) }
    }
}

/// Whether 32 bits hold the distance of any two elements.
fn is_narrow(layout: &Layout) -> bool {
    let span = |(&size, stride): (&usize, &isize)| (size.max(1) as u128 - 1) * stride.unsigned_abs() as u128;
    let (span, count) = (layout.shape().iter().zip(layout.strides()).map(span).sum::<u128>(), layout.count());
    span <= i32::MAX as u128 && count <= i32::MAX as usize
}

/// Whether 32 bits hold every place of an axis, and one step past it.
fn reaches_little(axis: &Windows) -> bool {
    let places = [axis.before, axis.size, axis.after, axis.stride, axis.dilation.saturating_mul(axis.kernel)];
    places.into_iter().fold(0, usize::saturating_add) <= (i32::MAX / 2) as usize
}
