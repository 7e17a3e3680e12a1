//! Filling, copying and casting; the kernels are in `copy.cu`.

use congruent_backend_api::ops::copy::{Copy, Fill};
use congruent_backend_api::{CopyOps, Op, Result};

use super::Extra;
use crate::device::Cuda;
use crate::storage::CudaStorage;

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl CopyOps for Cuda {
    fn fill(&self, plan: &Fill, out: &mut CudaStorage) -> Result<()> {
        let extra = Extra { scalars: [Some(plan.value()), None], ..Extra::default() };
        self.elementwise(Op::Fill, plan.dtype(), plan.elementwise(), &[], out, extra)
    }

    fn copy(&self, plan: &Copy, x: &CudaStorage, out: &mut CudaStorage) -> Result<()> {
        let op = if plan.dtype() == plan.out_dtype() { Op::Copy } else { Op::Cast(plan.out_dtype()) };
        self.elementwise(op, plan.dtype(), plan.elementwise(), &[Some(x)], out, Extra::default())
    }
}
