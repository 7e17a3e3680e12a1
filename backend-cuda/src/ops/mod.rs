//! The op families, one `.rs` and one `.cu` each, and what the elementwise ones share.

mod binary;
mod compare;
mod copy;
mod index;
mod linear;
mod matmul;
mod norm;
mod reduce;
mod scan;
mod scatter;
mod sort;
mod statistic;
mod unary;

use congruent_backend_api::convert::{f64_to_bf16, f64_to_f16};
use congruent_backend_api::{DType, Elementwise, Op, Operand, Result, Scalar};

use crate::device::Cuda;
use crate::kernels::Kernel;
use crate::launch::{DeviceNest, DeviceSource, ElementwiseParameter, Mode, THREADS};
use crate::storage::{CudaStorage, DevicePointer};

/// The memory of one element, as kernels take it: `value` is in the range of `dtype`.
fn scalar_bits(value: Scalar, dtype: DType) -> u64 {
    match (value, dtype) {
        (Scalar::Bool(value), _) => value.into(),
        (value, DType::F64) => value.to_f64().to_bits(),
        (value, DType::F32) => (value.to_f64() as f32).to_bits().into(),
        (value, DType::F16) => f64_to_f16(value.to_f64()).to_bits().into(),
        (value, DType::BF16) => f64_to_bf16(value.to_f64()).to_bits().into(),
        (value, _) => value.to_i64().cast_unsigned(),
    }
}

/// What an elementwise kernel takes beside the operands of its plan.
#[derive(Clone, Copy, Default)]
struct Extra {
    options: u32,
    /// Scalars after the plan's operands.
    scalars: [Option<Scalar>; 2],
}

impl Cuda {
    /// Runs an elementwise kernel; `inputs` are the plan's operands from 1, and `dtype` is that of its scalars.
    fn elementwise<const N: usize>(
        &self,
        op: Op,
        dtype: DType,
        plan: &Elementwise<N>,
        inputs: &[Option<&CudaStorage>],
        out: &mut CudaStorage,
        extra: Extra,
    ) -> Result<()> {
        plan.check(inputs, out)?;
        self.order(op.name(), inputs.iter().copied().flatten(), out)?;
        let mut nest = DeviceNest::from(plan.nest());
        if nest.count == 0 {
            return Ok(());
        }
        let target = out.at(plan.nest().offset(0));
        let mut sources = [DeviceSource::NONE; 3];
        let (mut widest, mut constant) = (plan.out_dtype().size(), 0);
        let mut vector = nest.is_contiguous(0) && target.is_aligned();
        for operand in 1..N {
            let storage = match plan.operand(operand) {
                Operand::Scalar(value) => {
                    sources[operand - 1].bits = scalar_bits(value, dtype);
                    continue;
                }
                Operand::Storage { dtype, .. } => {
                    widest = widest.max(dtype.size());
                    inputs[operand - 1].unwrap_or(&*out)
                }
                Operand::Output => &*out,
            };
            let memory = storage.at(plan.nest().offset(operand));
            sources[operand - 1].memory = memory;
            if nest.is_constant(operand) {
                constant |= 1 << operand;
            } else {
                vector &= nest.is_contiguous(operand) && memory.is_aligned();
            }
        }
        for (source, scalar) in sources[N - 1..].iter_mut().zip(extra.scalars) {
            source.bits = scalar.map_or(0, |scalar| scalar_bits(scalar, dtype));
        }
        let mut threads = nest.count;
        if vector {
            nest.mode = Mode::Vector;
            // At least one thread for each element after the last whole vector.
            threads = (nest.count / (16 / widest as u64)).max(16);
        } else {
            nest = nest.tiled();
        }
        let parameter = ElementwiseParameter {
            nest,
            out: target,
            flag: self.device.flag(),
            sources,
            options: extra.options,
            constant,
        };
        let blocks = (threads as usize).div_ceil(THREADS);
        // SAFETY: the plan was checked against these storages, which are this device's, and `out` is borrowed mutably.
        unsafe { self.device.launch(Kernel::new(op, dtype), blocks, &parameter) }
    }

    /// Copies elements along `axes` (size, stride of the output, stride of the input).
    ///
    /// # Safety
    /// What the axes reach from the two addresses lies in memory of this device that holds elements of `dtype`, and
    /// nothing but this stream uses the output.
    unsafe fn move_elements(
        &self,
        dtype: DType,
        axes: impl Iterator<Item = (usize, [isize; 2])>,
        from: DevicePointer,
        to: DevicePointer,
    ) -> Result<()> {
        let nest = DeviceNest::new(axes).tiled();
        let mut sources = [DeviceSource::NONE; 3];
        sources[0].memory = from;
        let parameter =
            ElementwiseParameter { nest, out: to, flag: self.device.flag(), sources, options: 0, constant: 0 };
        let blocks = (nest.count as usize).div_ceil(THREADS);
        // SAFETY: the caller's promise is the one asked for.
        unsafe { self.device.launch(Kernel::new(Op::Copy, dtype), blocks, &parameter) }
    }
}
