//! Linear layers: the product by a library, the rest by one elementwise kernel, `linear` in `matmul.cu`.
//!
//! cuBLASLt can add a bias while it writes the product. In half precision many of its kernels round the product first, and
//! then again (seen on an H200), so that is for f32 and f64. Its activations are not used: nothing promises that its relu
//! keeps NaN, or its gelu, the approximation by tanh, the digits of small results. Every other layer has its sums in f32 or f64 (of
//! these two in the output itself) and one pass over them.

use congruent_backend_api::ops::binary::{Binary, BinaryOp};
use congruent_backend_api::ops::linear::{Activation, Linear};
use congruent_backend_api::{DType, Layout, LinearOps, Op, Result, Scalar, Source, View};

use super::matmul::Product;
use super::scalar_bits;
use crate::device::Cuda;
use crate::kernels::Kernel;
use crate::nest::DeviceNest;
use crate::storage::{CudaStorage, DevicePointer};

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl LinearOps for Cuda {
    fn linear(
        &self,
        plan: &Linear,
        x: &CudaStorage,
        weight: &CudaStorage,
        bias: Option<&CudaStorage>,
        out: &mut CudaStorage,
    ) -> Result<()> {
        plan.check(x, weight, bias, out)?;
        self.order("linear", [x, weight].into_iter().chain(bias), out)?;
        if plan.out().count() == 0 {
            return Ok(());
        }
        let product = Product::new(plan.product(), out, x, weight);
        let bias = bias.zip(plan.bias());
        let wide = plan.dtype().size() > 2;
        if plan.activation() == Activation::Identity {
            let Some((bias, layout)) = bias else { return self.product(&product) };
            let plain = wide && layout.strides()[0] == 1;
            let fused = if plain { product.with_bias(bias.at(layout.offset())) } else { None };
            if let Some(fused) = fused
                && self.blas(&fused)?
            {
                return Ok(());
            }
        }
        let layout = product.layout()?;
        let addend = match bias {
            Some((bias, rows)) => Some((bias.at(0), rows.broadcast_to("linear", layout.shape())?)),
            None => None,
        };
        let finish = |sums| Finish { sums, addend, factor: Scalar::Float(1.0), activation: plan.activation() };
        if wide {
            self.product(&product)?;
            let sums = (out.at(0), layout);
            return self.finish(plan.dtype(), &layout, out, &finish(sums));
        }
        let memory = self.sums(&product)?;
        let sums = (memory.at(0), Layout::contiguous(*layout.shape()));
        self.finish(plan.dtype(), &layout, out, &finish(sums))
    }
}

/// `activation(sums + factor · addend)`; each operand is a storage's start and a layout of the output's shape.
pub(super) struct Finish {
    pub(super) sums: (DevicePointer, Layout),
    pub(super) addend: Option<(DevicePointer, Layout)>,
    pub(super) factor: Scalar,
    pub(super) activation: Activation,
}

impl Cuda {
    /// Writes the result into `out`, whose layout the caller's plan has checked; so it has those of the operands.
    #[expect(
        clippy::needless_pass_by_ref_mut,
        reason = "the device writes through the address: the caller must own it"
    )]
    pub(super) fn finish(&self, dtype: DType, layout: &Layout, out: &mut CudaStorage, finish: &Finish) -> Result<()> {
        // The loops of an addition; dtypes do not enter them.
        let over = |layout| View { dtype, layout };
        let addend =
            finish.addend.as_ref().map_or(Source::Scalar(Scalar::Float(0.0)), |(_, layout)| Source::View(over(layout)));
        let loops = Binary::new(BinaryOp::Add, Source::View(over(&finish.sums.1)), addend, over(layout))?;
        let loops = loops.elementwise().nest();
        let compute = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let memory = [
            Some((out.at(loops.offset(0)), dtype)),
            Some((finish.sums.0.offset(loops.offset(1) as isize, compute), compute)),
            finish.addend.map(|(start, _)| (start.offset(loops.offset(2) as isize, dtype), dtype)),
        ];
        let bits = [0, 0, scalar_bits(finish.factor, compute)];
        let options = match finish.activation {
            Activation::Identity => 0,
            Activation::Relu => 1,
            Activation::Gelu => 2,
            Activation::GeluTanh => 3,
        };
        // SAFETY: the op has checked the output and the addend against its plan, and the sums are in the output or in
        // memory that the caller owns, with an element for each of the output's. `out` is borrowed mutably.
        unsafe {
            self.walk(Kernel::new(Op::Linear, dtype), compute.size(), DeviceNest::from(loops), memory, bits, options)
        }
    }
}
