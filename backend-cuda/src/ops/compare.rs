//! Comparisons, choice and clamping; the kernels are in `compare.cu`.

use congruent_backend_api::ops::compare::{Clamp, Compare, Where};
use congruent_backend_api::{CompareOps, Op, Result};

use super::Extra;
use crate::device::Cuda;
use crate::storage::CudaStorage;

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl CompareOps for Cuda {
    fn compare(
        &self,
        plan: &Compare,
        a: Option<&CudaStorage>,
        b: Option<&CudaStorage>,
        out: &mut CudaStorage,
    ) -> Result<()> {
        self.elementwise(Op::Compare(plan.op()), plan.dtype(), plan.elementwise(), &[a, b], out, Extra::default())
    }

    fn choose(
        &self,
        plan: &Where,
        condition: Option<&CudaStorage>,
        a: Option<&CudaStorage>,
        b: Option<&CudaStorage>,
        out: &mut CudaStorage,
    ) -> Result<()> {
        self.elementwise(Op::Where, plan.dtype(), plan.elementwise(), &[condition, a, b], out, Extra::default())
    }

    fn clamp(&self, plan: &Clamp, x: Option<&CudaStorage>, out: &mut CudaStorage) -> Result<()> {
        // The kernel reads a bound only when its bit is set.
        let options = u32::from(plan.min().is_some()) | u32::from(plan.max().is_some()) << 1;
        let extra = Extra { options, scalars: [plan.min(), plan.max()] };
        let op = Op::Clamp;
        self.elementwise(op, plan.dtype(), plan.elementwise(), &[x], out, extra)
    }
}
