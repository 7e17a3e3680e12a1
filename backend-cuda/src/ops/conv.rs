//! Convolutions: by cuDNN (`cudnn.rs`), by kernels of our own (`conv.cu`), or as the products of matrices that `backend-api`
//! provides.
//!
//! - Where a channel of the result meets one channel, in depthwise convolutions above all, `conv.cu` is bound by memory.
//! - A kernel of one tap is a product already.
//! - The rest is cuDNN's. It takes packed tensors in one order of axes, so what lies otherwise is copied; half-precision
//!   operands have their channels last, which is how tensor cores read them. It adds a bias while it writes; relu, which rounding
//!   does not disturb, is one more pass over the output (its own drops NaN). Another activation is one over sums that were
//!   not rounded yet, and so is a bias in half precision, before which an engine of cuDNN 9 rounds (seen on an H200).
//! - The products are for what cuDNN does not take, and for a machine without it.
//!
//! cuDNN computes a transpose as a convolution over `y` with zeros around and between its elements. The contract has no terms
//! there, which an infinite weight would turn to NaN. In the gradient by the weight cuDNN 9 lost a NaN, and made one of an
//! infinite element that meets no term (both seen on an H200). So what is not finite is found on the device, and `conv.cu` sums
//! again. On tensor cores cuDNN computes groups as one convolution whose other weights are zero, so that an infinite element
//! reaches other groups: those are not for it. Nor are sums rounded to f16, where one that overflowed came back as 0 (seen on an
//! H200), but for transposes, nor are transposes that leave gaps, for which a heuristic of cuDNN 9 divides by zero.

mod direct;
mod library;

use congruent_backend_api::ops::conv::{Conv, ConvOp, compose};
use congruent_backend_api::ops::linear::Activation;
use congruent_backend_api::{ConvOps, Result};

use crate::device::Cuda;
use crate::storage::CudaStorage;

/// Above this many taps a product of matrices is worth its windows.
const TAPS: usize = 128;

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl ConvOps for Cuda {
    fn conv(
        &self,
        plan: &Conv,
        a: &CudaStorage,
        b: &CudaStorage,
        bias: Option<&CudaStorage>,
        out: &mut CudaStorage,
    ) -> Result<()> {
        plan.check(a, b, bias, out)?;
        self.order(plan.op().name(), [a, b].into_iter().chain(bias), out)?;
        if [plan.x(), plan.weight(), plan.y()].iter().any(|layout| layout.count() == 0) {
            return compose(self, plan, a, b, bias, out);
        }
        if is_direct(plan) {
            return self.direct(plan, [a, b], bias, out);
        }
        let plain = bias.is_none() && plan.activation() == Activation::Identity;
        let product = plan.op() != ConvOp::ConvGradWeight && plan.is_pointwise() && plain;
        if !product && self.by_cudnn(plan, [a, b], bias, out)? {
            return Ok(());
        }
        compose(self, plan, a, b, bias, out)
    }
}

/// Whether each element of the result has few terms, and they lie in one channel.
fn is_direct(plan: &Conv) -> bool {
    let (weight, groups) = (plan.weight().shape(), plan.options().groups);
    let one = match plan.op() {
        ConvOp::Conv => weight[1] == 1,
        ConvOp::ConvTranspose => weight[0] == groups,
        ConvOp::ConvGradWeight => false,
    };
    one && weight[2..].iter().product::<usize>() <= TAPS
}
