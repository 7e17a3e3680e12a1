//! Elementwise arithmetic of two operands; the kernels are in `binary.cu`.

use congruent_backend_api::ops::binary::Binary;
use congruent_backend_api::{BinaryOps, Op, Result};

use super::Extra;
use crate::device::Cuda;
use crate::storage::CudaStorage;

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl BinaryOps for Cuda {
    fn binary(
        &self,
        plan: &Binary,
        a: Option<&CudaStorage>,
        b: Option<&CudaStorage>,
        out: &mut CudaStorage,
    ) -> Result<()> {
        self.elementwise(Op::Binary(plan.op()), plan.dtype(), plan.elementwise(), &[a, b], out, Extra::default())
    }
}
