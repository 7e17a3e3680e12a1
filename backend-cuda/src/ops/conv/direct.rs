//! The kernels of `conv.cu`, and what they take.

use congruent_backend_api::ops::conv::{Conv, ConvOp};
use congruent_backend_api::ops::linear::Activation;
use congruent_backend_api::{DType, Layout, Op, Result, View};

use super::library::Frame;
use crate::device::Cuda;
use crate::kernels::{Kernel, Pass};
use crate::launch::{ConvCheckParameter, ConvParameter, SharedMemory, THREADS};
use crate::nest::DeviceNest;
use crate::storage::{CudaStorage, DevicePointer};

/// Elements of a column that a thread computes, `ROWS` in `conv.cu`.
const ROWS: usize = 8;

impl Cuda {
    /// Makes the sums of a transpose again where its weight is not finite, which the device alone knows.
    #[expect(
        clippy::needless_pass_by_ref_mut,
        reason = "the device writes through the address: the caller must own it"
    )]
    pub(super) fn sum_again_beside_infinity(
        &self,
        plan: &Conv,
        operands: [&CudaStorage; 2],
        bias: Option<&CudaStorage>,
        out: &mut CudaStorage,
    ) -> Result<()> {
        let mut flag = CudaStorage::alloc(&self.device, DType::U32, 1)?;
        flag.clear(plan.op().name())?;
        let parameter = ConvParameter { flag: flag.at(0), ..parameter(plan, operands, bias, out, 1) };
        let kernel = |pass| Kernel { op: Op::Conv(plan.op()), dtype: plan.dtype(), pass };
        // SAFETY: the op has checked the plan against these storages; the flag is memory for one u32.
        unsafe { self.device.launch(kernel(Pass::Check), plan.weight().count().div_ceil(THREADS), &parameter) }?;
        // As many blocks as run at once: there is probably nothing to do.
        let blocks =
            (parameter.places.count as usize).div_ceil(THREADS).min(4 * self.device.multiprocessors() as usize);
        // SAFETY: as above, and `out` is borrowed mutably.
        unsafe { self.device.start(kernel(Pass::Main), blocks, SharedMemory::NONE, &parameter) }
    }

    /// Makes the sums of a gradient by the weight again where an operand is not finite; `seen` are the elements that cuDNN read.
    #[expect(
        clippy::needless_pass_by_ref_mut,
        reason = "the device writes through the address: the caller must own it"
    )]
    pub(super) fn sum_weight_again(
        &self,
        plan: &Conv,
        operands: [&CudaStorage; 2],
        (dtype, seen): (DType, [(DevicePointer, usize); 2]),
        out: &mut CudaStorage,
    ) -> Result<()> {
        let mut flag = CudaStorage::alloc(&self.device, DType::U32, 1)?;
        flag.clear(plan.op().name())?;
        let kernel = |dtype, pass| Kernel { op: Op::Conv(plan.op()), dtype, pass };
        let most = 8 * self.device.multiprocessors() as usize;
        let check = ConvCheckParameter {
            flag: flag.at(0),
            starts: seen.map(|(start, _)| start),
            counts: seen.map(|(_, count)| count as u64),
        };
        let blocks = (seen[0].1 + seen[1].1).div_ceil(8 * THREADS).min(most);
        // SAFETY: these are the operands as cuDNN read them, aligned and packed; the flag is memory for one u32.
        unsafe { self.device.launch(kernel(dtype, Pass::Check), blocks, &check) }?;
        let parameter = ConvParameter { flag: flag.at(0), ..grad_weight_parameter(plan, operands, out) };
        // A warp for each element, and as many blocks as run at once: there is probably nothing to do.
        let blocks = (parameter.places.count as usize).div_ceil(THREADS / 32).min(most);
        // SAFETY: the op has checked the plan against these storages, and `out` is borrowed mutably.
        unsafe { self.device.start(kernel(plan.dtype(), Pass::Main), blocks, SharedMemory::NONE, &parameter) }
    }

    /// Runs a plan in `conv.cu`.
    pub(super) fn direct(
        &self,
        plan: &Conv,
        [a, b]: [&CudaStorage; 2],
        bias: Option<&CudaStorage>,
        out: &mut CudaStorage,
    ) -> Result<()> {
        let (dtype, [left, right, result]) = (plan.dtype(), plan.operands());
        let pass = pass(plan);
        // Neighbouring threads read neighbours of a row.
        let run = left.strides()[left.rank() - 1] == 1 || left.shape()[left.rank() - 1] == 1;
        if pass != Pass::Main && !run {
            let input = self.packed(a, (dtype, left), &Frame::around(left), dtype, false)?;
            let Some(memory) = &input.memory else { return Ok(()) };
            let (compact, over) = (Layout::contiguous(*left.shape()), |layout| View { dtype, layout });
            let inner =
                Conv::new(plan.op(), over(&compact), over(right), plan.bias().map(over), plan.options(), over(result))?;
            return self.direct(&inner.with_activation(plan.activation())?, [memory, b], bias, out);
        }
        let parameter = parameter(plan, [a, b], bias, out, if pass == Pass::Main { 1 } else { ROWS });
        let kernel = Kernel { op: Op::Conv(plan.op()), dtype, pass };
        let blocks = (parameter.places.count as usize).div_ceil(THREADS);
        // SAFETY: the op has checked the plan against these storages, which are of this device, or the input is a copy that the
        // caller owns; `out` is borrowed mutably.
        unsafe { self.device.start(kernel, blocks, SharedMemory::NONE, &parameter) }
    }
}

/// The kernel that takes a plan.
fn pass(plan: &Conv) -> Pass {
    let (options, taps) = (plan.options(), &plan.weight().shape()[2..]);
    let plane = |layout: &Layout| layout.shape()[2..].iter().all(|&size| size < 1 << 28);
    let even = |values: &[usize; 3]| values[0] == values[1];
    let near = options.padding[..2].as_flattened().iter().all(|&padding| padding < 1 << 28);
    let strides = if plan.op() == ConvOp::Conv { 1..=2 } else { 1..=1 };
    let fits = taps.len() == 2
        && plane(plan.x())
        && plane(plan.y())
        && near
        && (even(&options.stride) && strides.contains(&options.stride[0]))
        && (even(&options.dilation) && options.dilation[0] == 1);
    match taps {
        [3, 3] if fits => Pass::Three,
        [5, 5] if fits => Pass::Five,
        _ => Pass::Main,
    }
}

/// Values of spatial axes as the kernels take them: axes that there are not come first.
fn along(values: &[usize], default: i64) -> [i64; 3] {
    let mut along = [default; 3];
    along.iter_mut().rev().zip(values.iter().rev()).for_each(|(to, &value)| *to = value as i64);
    along
}

/// The sizes of the spatial axes.
fn sizes(layout: &Layout) -> [i64; 3] {
    along(&layout.shape()[2..], 1)
}

/// The strides of the first two axes, and of the spatial ones.
fn strides(layout: &Layout) -> [i64; 5] {
    let mut strides = [0; 5];
    let space = layout.strides()[2..].iter().rev();
    strides.iter_mut().rev().zip(space).for_each(|(to, &stride)| *to = stride as i64);
    strides[..2].iter_mut().zip(layout.strides()).for_each(|(to, &stride)| *to = stride as i64);
    strides
}

/// What the kernels take; `rows` of the output are summed by one thread.
fn parameter(
    plan: &Conv,
    [a, b]: [&CudaStorage; 2],
    bias: Option<&CudaStorage>,
    out: &CudaStorage,
    rows: usize,
) -> ConvParameter {
    let ([input, _, result], weight, options) = (plan.operands(), plan.weight(), plan.options());
    // Padding has a value for each of three axes, of which the first count.
    let space = result.rank() - 2;
    let (outputs, inputs) = (weight.shape()[0] / options.groups, weight.shape()[1]);
    let of_weight = strides(weight);
    let (group_out, group_in, steps) = match plan.op() {
        ConvOp::ConvTranspose => (inputs, outputs, [of_weight[1], of_weight[0]]),
        _ => (outputs, inputs, [of_weight[0], of_weight[1]]),
    };
    let out_size = sizes(result);
    let [depth, height, width] = out_size.map(|size| size as usize);
    let places = [result.shape()[0], options.groups, group_out, depth, height.div_ceil(rows), width];
    let bias = bias.zip(plan.bias());
    ConvParameter {
        places: DeviceNest::new(places.into_iter().map(|size| (size, [0]))),
        out: out.at(result.offset()),
        input: a.at(input.offset()),
        weight: b.at(weight.offset()),
        bias: bias.map_or(DevicePointer::NULL, |(bias, layout)| bias.at(layout.offset())),
        flag: DevicePointer::NULL,
        group_in: group_in as u64,
        out_strides: strides(result),
        in_strides: strides(input),
        weight_strides: [outputs as i64 * of_weight[0], steps[0], steps[1], of_weight[2], of_weight[3], of_weight[4]],
        bias_stride: bias.map_or(0, |(_, layout)| layout.strides()[0] as i64),
        out_size,
        in_size: sizes(input),
        kernel: sizes(weight),
        stride: along(&options.stride[..space], 1),
        dilation: along(&options.dilation[..space], 1),
        before: along(&options.padding.map(|[before, _]| before)[..space], 0),
        activation: match plan.activation() {
            Activation::Identity => 0,
            Activation::Relu => 1,
            Activation::Gelu => 2,
            Activation::GeluTanh => 3,
        },
    }
}

/// What the kernel of the gradient by the weight takes: x as the input, y in the place of the weight, whose extent in space
/// is walked as taps are, and the batch as the channels that are summed over.
fn grad_weight_parameter(plan: &Conv, [x, y]: [&CudaStorage; 2], out: &CudaStorage) -> ConvParameter {
    let (weight, options, space) = (plan.weight(), plan.options(), plan.x().rank() - 2);
    let [depth, height, width] = sizes(weight).map(|size| size as usize);
    let (outputs, inputs) = (weight.shape()[0] / options.groups, weight.shape()[1]);
    let of_y = strides(plan.y());
    ConvParameter {
        places: DeviceNest::new(
            [options.groups, outputs, inputs, depth, height, width].into_iter().map(|size| (size, [0])),
        ),
        out: out.at(weight.offset()),
        input: x.at(plan.x().offset()),
        weight: y.at(plan.y().offset()),
        bias: DevicePointer::NULL,
        flag: DevicePointer::NULL,
        group_in: plan.x().shape()[0] as u64,
        out_strides: strides(weight),
        in_strides: strides(plan.x()),
        weight_strides: [0, of_y[1], of_y[0], of_y[2], of_y[3], of_y[4]],
        bias_stride: 0,
        out_size: sizes(weight),
        in_size: sizes(plan.x()),
        kernel: sizes(plan.y()),
        stride: along(&options.stride[..space], 1),
        dilation: along(&options.dilation[..space], 1),
        before: along(&options.padding.map(|[before, _]| before)[..space], 0),
        activation: 0,
    }
}
