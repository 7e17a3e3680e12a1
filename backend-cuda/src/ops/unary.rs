//! Elementwise functions of one operand; the kernels are in `unary.cu`.

use congruent_backend_api::ops::unary::Unary;
use congruent_backend_api::{Op, Result, UnaryOps};

use super::Extra;
use crate::device::Cuda;
use crate::storage::CudaStorage;

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl UnaryOps for Cuda {
    fn unary(&self, plan: &Unary, x: Option<&CudaStorage>, out: &mut CudaStorage) -> Result<()> {
        self.elementwise(Op::Unary(plan.op()), plan.dtype(), plan.elementwise(), &[x], out, Extra::default())
    }
}
