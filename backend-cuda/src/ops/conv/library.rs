//! Convolutions by cuDNN: what it is asked for, how its operands are packed, and what is left to do after it.

use congruent_backend_api::ops::conv::{Conv, ConvOp};
use congruent_backend_api::ops::copy::Copy;
use congruent_backend_api::ops::linear::Activation;
use congruent_backend_api::ops::unary::{Unary, UnaryOp};
use congruent_backend_api::{CopyOps, DType, Layout, Result, Scalar, Shape, Slice, Source, UnaryOps, View};

use crate::cudnn::{AXES, Addresses, Graph, order};
use crate::device::Cuda;
use crate::ops::linear::Finish;
use crate::storage::{CudaStorage, DevicePointer};

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
pub(super) struct Frame {
    sizes: Vec<usize>,
    starts: Vec<usize>,
}

impl Frame {
    /// Nothing around.
    pub(super) fn around(layout: &Layout) -> Self {
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
pub(super) struct Packed {
    address: DevicePointer,
    pub(super) memory: Option<CudaStorage>,
}

impl Cuda {
    /// Writes the result by cuDNN; `false`, and nothing is written, when it does not take the plan.
    pub(super) fn by_cudnn(
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
    pub(super) fn packed(
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
