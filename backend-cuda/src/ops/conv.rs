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

use congruent_backend_api::ops::conv::{Conv, ConvOp, compose};
use congruent_backend_api::ops::copy::Copy;
use congruent_backend_api::ops::linear::Activation;
use congruent_backend_api::ops::unary::{Unary, UnaryOp};
use congruent_backend_api::{
    ConvOps, CopyOps, DType, Layout, Op, Result, Scalar, Shape, Slice, Source, UnaryOps, View,
};

use super::linear::Finish;
use crate::cudnn::{AXES, Addresses, Graph, order};
use crate::device::Cuda;
use crate::kernels::{Kernel, Pass};
use crate::launch::{ConvCheckParameter, ConvParameter, SharedMemory, THREADS};
use crate::nest::DeviceNest;
use crate::storage::{CudaStorage, DevicePointer};

/// Elements of a column that a thread computes, `ROWS` in `conv.cu`.
const ROWS: usize = 8;

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

/// What cuDNN computes, and what is left to do.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// Of the operands as cuDNN gets them, and of what it writes.
    dtype: DType,
    out_dtype: DType,
    /// Whether it adds the bias, if there is one, and nothing but relu is left.
    fused: bool,
}

/// The sizes of a tensor as cuDNN has it, and where in it the tensor of the plan begins: zeros may lie around that.
struct Frame {
    sizes: Vec<usize>,
    starts: Vec<usize>,
}

impl Frame {
    /// Nothing around.
    fn around(layout: &Layout) -> Self {
        Self { sizes: layout.shape().to_vec(), starts: vec![0; layout.rank()] }
    }

    fn count(&self) -> usize {
        self.sizes.iter().product()
    }

    /// The plan's tensor in packed memory of the frame.
    fn inner(&self, layout: &Layout, channels_last: bool) -> Result<Layout> {
        let mut inner = packed_layout(&self.sizes, channels_last)?;
        for (axis, (&start, &size)) in self.starts.iter().zip(&**layout.shape()).enumerate() {
            let there = Slice { start: Some(start as isize), stop: Some((start + size) as isize), step: 1 };
            inner = inner.slice(axis as isize, there)?;
        }
        Ok(inner)
    }

    /// Whether cuDNN can take a view as it is. Strides of axes of one element have no meaning.
    fn fits(&self, storage: &CudaStorage, layout: &Layout, channels_last: bool) -> bool {
        let packed = packed_layout(&self.sizes, channels_last);
        let steps = packed.is_ok_and(|packed| {
            let mut steps = layout.shape().iter().zip(layout.strides()).zip(packed.strides());
            steps.all(|((&size, stride), packed)| size <= 1 || stride == packed)
        });
        steps && self.sizes == **layout.shape() && storage.at(layout.offset()).is_aligned()
    }
}

/// The frames of x, weight and y.
struct Frames {
    x: Frame,
    weight: Frame,
    y: Frame,
}

impl Frames {
    /// Many engines know one padding for both sides of an axis: the rest of the larger one lies around x.
    fn new(plan: &Conv) -> Result<Self> {
        let options = plan.options();
        let mut frames =
            Self { x: Frame::around(plan.x()), weight: Frame::around(plan.weight()), y: Frame::around(plan.y()) };
        for (axis, &[before, after]) in options.padding[..plan.x().rank() - 2].iter().enumerate() {
            frames.x.starts[2 + axis] = before.saturating_sub(after);
            frames.x.sizes[2 + axis] = frames.x.sizes[2 + axis].saturating_add(before.abs_diff(after));
        }
        // Its count does not overflow.
        Shape::new("conv", &frames.x.sizes)?;
        Ok(frames)
    }
}

/// A tensor as cuDNN reads or writes it: the memory of the call, or memory of its own.
struct Packed {
    address: DevicePointer,
    memory: Option<CudaStorage>,
}

impl Cuda {
    /// Writes the result by cuDNN; `false`, and nothing is written, when it does not take the plan.
    fn by_cudnn(
        &self,
        plan: &Conv,
        operands: [&CudaStorage; 2],
        bias: Option<&CudaStorage>,
        out: &mut CudaStorage,
    ) -> Result<bool> {
        self.device.bind(plan.op().name())?;
        let Some(mut cudnn) = self.device.cudnn()? else { return Ok(false) };
        let dtype = plan.dtype();
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let relu = plan.activation() == Activation::Relu;
        let mut attempts = Vec::new();
        let adds = plan.op() == ConvOp::Conv && dtype.size() > 2;
        if (relu || plan.activation() == Activation::Identity) && (bias.is_none() || adds) {
            attempts.push(Attempt { dtype, out_dtype: dtype, fused: true });
        }
        attempts.push(Attempt { dtype, out_dtype: wide, fused: false });
        attempts.push(Attempt { dtype: wide, out_dtype: wide, fused: false });
        let orders = if dtype.size() == 2 { [true, false] } else { [false, true] };
        let mut chosen = None;
        for (attempt, channels_last) in attempts.into_iter().flat_map(|attempt| orders.map(|order| (attempt, order))) {
            let Some(graph) = graph(plan, &attempt, channels_last, attempt.fused && bias.is_some()) else { continue };
            if cudnn.takes(&self.device, &graph)? {
                chosen = Some((attempt, graph));
                break;
            }
        }
        let Some((attempt, graph)) = chosen else { return Ok(false) };
        let frames = Frames::new(plan)?;
        let last = graph.channels_last;
        let [a, b, result] = plan.operands();
        let [of_a, of_b, of_result] = match plan.op() {
            ConvOp::Conv => [&frames.x, &frames.weight, &frames.y],
            ConvOp::ConvTranspose => [&frames.y, &frames.weight, &frames.x],
            ConvOp::ConvGradWeight => [&frames.x, &frames.y, &frames.weight],
        };
        let pack = |storage, layout, frame: &Frame| self.packed(storage, (dtype, layout), frame, attempt.dtype, last);
        let (a, b) = (pack(operands[0], a, of_a)?, pack(operands[1], b, of_b)?);
        let addend = match (bias, plan.bias()) {
            (Some(bias), Some(layout)) if graph.bias => Some(pack(bias, layout, &Frame::around(layout))?),
            _ => None,
        };
        let to = if attempt.out_dtype == dtype && of_result.fits(out, result, last) {
            Packed { address: out.at(result.offset()), memory: None }
        } else {
            let memory = CudaStorage::alloc(&self.device, attempt.out_dtype, of_result.count())?;
            Packed { address: memory.at(0), memory: Some(memory) }
        };
        let [x, weight, y] = match plan.op() {
            ConvOp::Conv => [&a, &b, &to],
            ConvOp::ConvTranspose => [&to, &b, &a],
            ConvOp::ConvGradWeight => [&a, &to, &b],
        };
        let addend = addend.as_ref().map_or(DevicePointer::NULL, |addend| addend.address);
        let addresses = Addresses([x.address, weight.address, y.address, addend]);
        // SAFETY: the op has checked the plan against these storages, and `out` is borrowed mutably; the rest is packed copies
        // that live until the end of this function, their release ordered after the work.
        let ran = unsafe { cudnn.run(&self.device, &graph, addresses) }?;
        drop(cudnn);
        if !ran {
            return Ok(false);
        }
        let sums = to.memory.as_ref().map(|memory| Ok((memory, of_result.inner(result, last)?))).transpose()?;
        if !attempt.fused {
            let addend = match (bias, plan.bias()) {
                (Some(bias), Some(layout)) => Some((bias.at(0), across(layout, result)?)),
                _ => None,
            };
            let sums = sums.as_ref().map_or((out.at(0), *result), |(memory, layout)| (memory.at(0), *layout));
            let finish = Finish { sums, addend, factor: Scalar::Float(1.0), activation: plan.activation() };
            self.finish(dtype, result, out, &finish)?;
        } else if let Some((memory, layout)) = sums {
            let view = View { dtype, layout: &layout };
            self.copy(&Copy::new(view, View { dtype, layout: result })?, memory, out)?;
        }
        if attempt.fused && relu {
            let view = View { dtype, layout: result };
            self.unary(&Unary::new(UnaryOp::Relu, Source::Output, view)?, None, out)?;
        }
        match plan.op() {
            ConvOp::Conv => {}
            ConvOp::ConvTranspose => self.sum_again_beside_infinity(plan, operands, bias, out)?,
            ConvOp::ConvGradWeight => {
                let seen = [(a.address, of_a.count()), (b.address, of_b.count())];
                self.sum_weight_again(plan, operands, (attempt.dtype, seen), out)?;
            }
        }
        Ok(true)
    }

    /// An operand as cuDNN takes it: itself, or a copy in a frame of zeros, in another dtype if need be.
    fn packed(
        &self,
        storage: &CudaStorage,
        (dtype, layout): (DType, &Layout),
        frame: &Frame,
        to: DType,
        channels_last: bool,
    ) -> Result<Packed> {
        if dtype == to && frame.fits(storage, layout, channels_last) {
            return Ok(Packed { address: storage.at(layout.offset()), memory: None });
        }
        let mut memory = CudaStorage::alloc(&self.device, to, frame.count())?;
        if frame.count() > layout.count() {
            memory.clear("conv")?;
        }
        let inner = frame.inner(layout, channels_last)?;
        self.copy(&Copy::new(View { dtype, layout }, View { dtype: to, layout: &inner })?, storage, &mut memory)?;
        Ok(Packed { address: memory.at(0), memory: Some(memory) })
    }

    /// Makes the sums of a transpose again where its weight is not finite, which the device alone knows.
    #[expect(
        clippy::needless_pass_by_ref_mut,
        reason = "the device writes through the address: the caller must own it"
    )]
    fn sum_again_beside_infinity(
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
    fn sum_weight_again(
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
    fn direct(
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

/// A plan for cuDNN; `None` for what it cannot express or index.
fn graph(plan: &Conv, attempt: &Attempt, channels_last: bool, bias: bool) -> Option<Graph> {
    let (options, rank) = (plan.options(), plan.x().rank());
    let small = |size: usize| i32::try_from(size).ok().map(i64::from);
    if attempt.out_dtype == DType::F16 && plan.op() != ConvOp::ConvTranspose
        || options.groups > 1 && attempt.dtype.size() == 2
        || plan.op() == ConvOp::ConvTranspose && leaves_gaps(plan)
    {
        return None;
    }
    // The transpose of a larger output is none of cuDNN's.
    let whole = Conv::shape(plan.x().shape(), plan.weight().shape(), options);
    if !whole.is_ok_and(|shape| shape == *plan.y().shape()) {
        return None;
    }
    let axes = rank.max(4);
    let frames = Frames::new(plan).ok()?;
    let mut sizes = [[1; AXES]; 3];
    for (sizes, frame) in sizes.iter_mut().zip([&frames.x, &frames.weight, &frames.y]) {
        small(frame.count())?;
        for (axis, &size) in frame.sizes.iter().enumerate() {
            // A second spatial axis comes first.
            sizes[if axis < 2 { axis } else { axis + axes - rank }] = small(size)?;
        }
    }
    let along = |value: &dyn Fn(usize) -> usize, default: i64| -> Option<[i64; 3]> {
        let mut along = [default; 3];
        for axis in 0..rank - 2 {
            along[axis + axes - rank] = small(value(axis))?;
        }
        Some(along)
    };
    Some(Graph {
        op: plan.op(),
        dtype: attempt.dtype,
        out_dtype: attempt.out_dtype,
        axes,
        sizes,
        channels_last,
        stride: along(&|axis| options.stride[axis], 1)?,
        dilation: along(&|axis| options.dilation[axis], 1)?,
        padding: along(&|axis| options.padding[axis][0].min(options.padding[axis][1]), 0)?,
        bias,
    })
}

/// Whether there are places in x between those that taps reach.
fn leaves_gaps(plan: &Conv) -> bool {
    let (options, taps) = (plan.options(), &plan.weight().shape()[2..]);
    let gap = |(axis, &taps): (usize, &usize)| {
        options.stride[axis] > taps || options.stride[axis] > 1 && options.dilation[axis] > 1
    };
    taps.iter().enumerate().any(gap)
}

/// The layout of a packed tensor: axes in the order of the shape, or the channels last.
fn packed_layout(sizes: &[usize], channels_last: bool) -> Result<Layout> {
    let mut strides = vec![1; sizes.len()];
    let mut step = 1;
    for axis in order(sizes.len(), channels_last && sizes.len() > 2).collect::<Vec<_>>().into_iter().rev() {
        strides[axis] = step;
        step *= sizes[axis] as isize;
    }
    Layout::new("conv", sizes, &strides, 0)
}

/// The bias at every element of the result.
fn across(bias: &Layout, result: &Layout) -> Result<Layout> {
    let mut channels = *bias;
    for _ in 2..result.rank() {
        channels = channels.unsqueeze(-1)?;
    }
    channels.broadcast_to("conv", result.shape())
}
