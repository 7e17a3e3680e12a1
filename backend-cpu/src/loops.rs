//! The elementwise driver: hands kernels blocks of contiguous elements, whatever the layouts are.
//!
//! A job is halved until it fits a block, in parallel while it is large. A block that is contiguous is passed to the
//! kernel where it lies; a strided one is gathered into, or scattered from, a buffer that stays in the L1 cache. So a
//! kernel is one tight loop over slices, and each exists once.

use std::ops::Range;

use bytemuck::Pod;
use congruent_backend_api::{Elementwise, Error, ErrorKind, Nest, Operand, Result};
use ndarray::{ArrayView1, ArrayViewD, ArrayViewMutD, Axis, Ix1, Ix2, IxDyn, ShapeBuilder, Slice};

use crate::lane::{BLOCK, Lane};
use crate::storage::CpuStorage;

/// Work on fewer elements than this is not worth waking another thread.
pub(crate) const GRAIN: usize = 1 << 16;

/// Runs `kernel` over an input and the output.
pub(crate) fn map1<X: Lane, R: Lane>(
    plan: &Elementwise<2>,
    x: Option<&CpuStorage>,
    out: &mut CpuStorage,
    kernel: impl Fn(&[X], &mut [R]) + Sync,
) -> Result<()> {
    plan.check(&[x], out)?;
    if let Some(x) = block(plan, 1, x) {
        kernel(x, target(plan, out));
        return Ok(());
    }
    let Some(mut job) = Job::<X::Bits, X::Bits, R::Bits, 0>::new(plan, out)? else { return Ok(()) };
    job.first = input::<X, 2>(plan, 1, x)?;
    job.run(&|x, [], out| kernel(bytemuck::cast_slice(x), bytemuck::cast_slice_mut(out)));
    Ok(())
}

/// Runs `kernel` over two inputs and the output.
pub(crate) fn map2<X: Lane, R: Lane>(
    plan: &Elementwise<3>,
    [a, b]: [Option<&CpuStorage>; 2],
    out: &mut CpuStorage,
    kernel: impl Fn(&[X], &[X], &mut [R]) + Sync,
) -> Result<()> {
    plan.check(&[a, b], out)?;
    if let (Some(a), Some(b)) = (block(plan, 1, a), block(plan, 2, b)) {
        kernel(a, b, target(plan, out));
        return Ok(());
    }
    let Some(mut job) = Job::<X::Bits, X::Bits, R::Bits, 1>::new(plan, out)? else { return Ok(()) };
    job.first = input::<X, 3>(plan, 1, a)?;
    job.rest = [input::<X, 3>(plan, 2, b)?];
    job.run(&|a, [b], out| {
        kernel(bytemuck::cast_slice(a), bytemuck::cast_slice(b), bytemuck::cast_slice_mut(out));
    });
    Ok(())
}

/// The elements of an input where it and the output are one block of memory each: what a small op needs no job for.
fn block<'a, T: Lane, const N: usize>(
    plan: &Elementwise<N>,
    operand: usize,
    storage: Option<&'a CpuStorage>,
) -> Option<&'a [T]> {
    let nest = plan.nest();
    let (start, count) = (nest.offset(operand), nest.count());
    let flat = count <= BLOCK && nest.is_contiguous(0) && nest.is_contiguous(operand);
    storage.filter(|_| flat).map(|storage| &storage.as_slice()[start..start + count])
}

/// The elements of a contiguous output.
fn target<'a, T: Lane, const N: usize>(plan: &Elementwise<N>, out: &'a mut CpuStorage) -> &'a mut [T] {
    let start = plan.nest().offset(0);
    &mut out.as_mut_slice()[start..start + plan.nest().count()]
}

/// Runs `kernel` over a bool condition, two inputs and the output.
pub(crate) fn map3<X: Lane>(
    plan: &Elementwise<4>,
    [condition, a, b]: [Option<&CpuStorage>; 3],
    out: &mut CpuStorage,
    kernel: impl Fn(&[u8], &[X::Bits], &[X::Bits], &mut [X::Bits]) + Sync,
) -> Result<()> {
    plan.check(&[condition, a, b], out)?;
    let Some(mut job) = Job::<u8, X::Bits, X::Bits, 2>::new(plan, out)? else { return Ok(()) };
    job.first = input::<u8, 4>(plan, 1, condition)?;
    job.rest = [input::<X, 4>(plan, 2, a)?, input::<X, 4>(plan, 3, b)?];
    job.run(&|condition, [a, b], out| kernel(condition, a, b, out));
    Ok(())
}

/// Writes one value to every element of the output.
pub(crate) fn fill<R: Lane>(plan: &Elementwise<1>, value: R, out: &mut CpuStorage) -> Result<()> {
    plan.check(&[], out)?;
    let Some(mut job) = Job::<R::Bits, R::Bits, R::Bits, 0>::new(plan, out)? else { return Ok(()) };
    job.first = Input::Constant(bytemuck::cast(value));
    job.run(&|value, [], out| out.copy_from_slice(value));
    Ok(())
}

/// Calls `f` with both arguments, on two threads where another one is idle.
pub(crate) fn join<T: Send>(left: T, right: T, f: impl Fn(T) + Sync) {
    both(|| f(left), || f(right));
}

/// Calls both functions, on two threads where another one is idle.
pub(crate) fn both<R: Send>(left: impl FnOnce() -> R + Send, right: impl FnOnce() -> R + Send) -> (R, R) {
    /// rayon's machinery, compiled once and not for every pair of closures.
    fn both_dyn(left: &mut (dyn FnMut() + Send), right: &mut (dyn FnMut() + Send)) {
        rayon::join(left, right);
    }
    let (mut left, mut right) = (Some(left), Some(right));
    let (mut first, mut second) = (None, None);
    both_dyn(&mut || first = left.take().map(|f| f()), &mut || second = right.take().map(|f| f()));
    first.zip(second).expect("both functions were called")
}

/// A view of one operand of a nest.
pub(crate) fn view<'a, T, const N: usize>(nest: &Nest<N>, operand: usize, data: &'a [T]) -> Result<ArrayViewD<'a, T>> {
    let (low, shape) = stride_shape(nest, operand);
    ArrayViewD::from_shape(shape, data.get(low..).unwrap_or_default()).map_err(invalid_view)
}

/// A view of one operand of a nest for writing; its elements do not overlap.
pub(crate) fn view_mut<'a, T, const N: usize>(
    nest: &Nest<N>,
    operand: usize,
    data: &'a mut [T],
) -> Result<ArrayViewMutD<'a, T>> {
    let (low, shape) = stride_shape(nest, operand);
    ArrayViewMutD::from_shape(shape, data.get_mut(low..).unwrap_or_default()).map_err(invalid_view)
}

fn stride_shape<const N: usize>(nest: &Nest<N>, operand: usize) -> (usize, ndarray::StrideShape<IxDyn>) {
    // ndarray takes a negative stride as its two's complement, and data from the lowest element on.
    let strides: Vec<usize> = nest.strides(operand).iter().map(|stride| stride.cast_unsigned()).collect();
    let low = nest.extent(operand).map_or(0, |(low, _)| low);
    (low, IxDyn(nest.sizes()).strides(IxDyn(&strides)))
}

pub(crate) fn invalid_view(error: ndarray::ShapeError) -> Error {
    Error::new(ErrorKind::Argument, "view", "a planned view does not fit its storage").with_source(error)
}

/// An input of a job.
#[derive(Clone)]
enum Input<'a, T> {
    Slice(&'a [T]),
    View(ArrayViewD<'a, T>),
    Constant(T),
    Output,
}

impl<T: Pod> Input<'_, T> {
    fn part(&self, axis: Axis, start: usize, end: usize) -> Self {
        match self {
            Self::Slice(slice) => Self::Slice(&slice[start..end]),
            Self::View(view) => {
                let mut view = view.clone();
                view.slice_axis_inplace(axis, Slice::from(start..end));
                Self::View(view)
            }
            Self::Constant(value) => Self::Constant(*value),
            Self::Output => Self::Output,
        }
    }

    /// Whether [`fetch`](Self::fetch) can take any part.
    fn is_flat(&self) -> bool {
        !matches!(self, Self::View(_))
    }

    /// The elements `at` of a slice, or all of a view, in `buffer` unless they are contiguous already; `old` reads those
    /// of the output.
    fn fetch<'s>(&'s self, at: Range<usize>, old: impl FnOnce(&mut [T]), buffer: &'s mut Vec<T>) -> &'s [T] {
        if let Self::Slice(slice) = self {
            return &slice[at];
        }
        if let Self::View(view) = self
            && let Some(slice) = view.as_slice()
        {
            return slice;
        }
        let len = at.len();
        if buffer.len() < len {
            // A constant input has a buffer of its own, so what an earlier block wrote is the constant.
            buffer.resize(len, if let Self::Constant(value) = self { *value } else { T::zeroed() });
        }
        let block = &mut buffer[..len];
        match self {
            Self::View(view) => gather(view, block),
            Self::Output => old(block),
            Self::Slice(_) | Self::Constant(_) => {}
        }
        block
    }
}

/// The output of a job.
enum Target<'a, T> {
    Slice(&'a mut [T]),
    View(ArrayViewMutD<'a, T>),
}

impl<T> Target<'_, T> {
    fn len(&self) -> usize {
        match self {
            Self::Slice(slice) => slice.len(),
            Self::View(view) => view.len(),
        }
    }

    fn split(self, axis: Axis, at: usize) -> (Self, Self) {
        match self {
            Self::Slice(slice) => {
                let (left, right) = slice.split_at_mut(at);
                (Self::Slice(left), Self::Slice(right))
            }
            Self::View(view) => {
                let (left, right) = view.split_at(axis, at);
                (Self::View(left), Self::View(right))
            }
        }
    }
}

/// An elementwise op on one input of type `A`, `M` inputs of type `B` and an output of type `R`.
struct Job<'a, A, B, R, const M: usize> {
    out: Target<'a, R>,
    first: Input<'a, A>,
    rest: [Input<'a, B>; M],
    /// Whether some input runs fast along another axis than the output, so that blocks should be square.
    crossed: bool,
}

type Kernel<'k, A, B, R, const M: usize> = &'k (dyn Fn(&[A], [&[B]; M], &mut [R]) + Sync);

impl<'a, A, B, R, const M: usize> Job<'a, A, B, R, M>
where
    A: Pod + Send + Sync,
    B: Pod + Send + Sync,
    R: Pod + Send + Sync,
{
    /// A job without inputs yet; `None` when there is nothing to do.
    fn new<const N: usize>(plan: &Elementwise<N>, out: &'a mut CpuStorage) -> Result<Option<Self>> {
        let nest = plan.nest();
        if nest.count() == 0 {
            return Ok(None);
        }
        let data = out.as_mut_slice();
        let out = if nest.is_contiguous(0) {
            let start = nest.offset(0);
            Target::Slice(&mut data[start..start + nest.count()])
        } else {
            Target::View(view_mut(nest, 0, data)?)
        };
        let crossed = (1..N).any(|operand| {
            let strides = nest.strides(operand);
            let last = strides.last().map_or(0, |stride| stride.unsigned_abs());
            strides.iter().any(|&stride| stride != 0 && stride.unsigned_abs() < last)
        });
        Ok(Some(Self { out, first: Input::Output, rest: [const { Input::Output }; M], crossed }))
    }

    fn run(self, kernel: Kernel<'_, A, B, R, M>) {
        if self.out.len() > GRAIN {
            let (left, right) = self.split();
            join(left, right, |job| job.run(kernel));
        } else {
            self.run_here(kernel, &mut Scratch::new());
        }
    }

    fn run_here(self, kernel: Kernel<'_, A, B, R, M>, scratch: &mut Scratch<A, B, R, M>) {
        let len = self.out.len();
        let flat = self.first.is_flat() && self.rest.iter().all(Input::is_flat);
        match self.out {
            Target::Slice(out) if flat || len <= BLOCK => {
                for (index, out) in out.chunks_mut(BLOCK).enumerate() {
                    let start = index * BLOCK;
                    let at = start..start + out.len();
                    let first = self.first.fetch(at.clone(), |block| copy_bits(out, block), &mut scratch.first);
                    let mut buffers = scratch.rest.iter_mut();
                    let rest = self.rest.each_ref().map(|input| match buffers.next() {
                        Some(buffer) => input.fetch(at.clone(), |block| copy_bits(out, block), buffer),
                        None => &[],
                    });
                    kernel(first, rest, out);
                }
            }
            Target::View(mut view) if len <= BLOCK => {
                let old = |block: &mut [R]| gather(&view.view(), block);
                let first = self.first.fetch(0..len, |block| old(bytemuck::cast_slice_mut(block)), &mut scratch.first);
                let mut buffers = scratch.rest.iter_mut();
                let rest = self.rest.each_ref().map(|input| match buffers.next() {
                    Some(buffer) => input.fetch(0..len, |block| old(bytemuck::cast_slice_mut(block)), buffer),
                    None => &[],
                });
                if let Some(slice) = view.as_slice_mut() {
                    return kernel(first, rest, slice);
                }
                scratch.out.resize(scratch.out.len().max(len), R::zeroed());
                let block = &mut scratch.out[..len];
                kernel(first, rest, block);
                scatter(block, &mut view);
            }
            out => {
                let (left, right) = Self { out, ..self }.split();
                left.run_here(kernel, scratch);
                right.run_here(kernel, scratch);
            }
        }
    }

    fn split(self) -> (Self, Self) {
        let (axis, size) = match &self.out {
            Target::Slice(slice) => (0, slice.len()),
            Target::View(view) => {
                let sizes = view.shape();
                let axis = if self.crossed {
                    (0..sizes.len()).max_by_key(|&axis| sizes[axis])
                } else {
                    sizes.iter().position(|&size| size > 1)
                };
                axis.map_or((0, 1), |axis| (axis, sizes[axis]))
            }
        };
        // Halves that end at a cache line keep threads apart.
        let half = size / 2;
        let at = if half > 64 { half & !63 } else { half };
        let axis = Axis(axis);
        let first = [self.first.part(axis, 0, at), self.first.part(axis, at, size)];
        let left = self.rest.each_ref().map(|input| input.part(axis, 0, at));
        let right = self.rest.each_ref().map(|input| input.part(axis, at, size));
        let (out_left, out_right) = self.out.split(axis, at);
        let [first_left, first_right] = first;
        let crossed = self.crossed;
        (
            Self { out: out_left, first: first_left, rest: left, crossed },
            Self { out: out_right, first: first_right, rest: right, crossed },
        )
    }
}

/// The buffers of one thread, grown when a block first needs them.
struct Scratch<A, B, R, const M: usize> {
    first: Vec<A>,
    rest: [Vec<B>; M],
    out: Vec<R>,
}

impl<A, B, R, const M: usize> Scratch<A, B, R, M> {
    fn new() -> Self {
        Self { first: Vec::new(), rest: [const { Vec::new() }; M], out: Vec::new() }
    }
}

fn input<'a, T: Lane, const N: usize>(
    plan: &Elementwise<N>,
    operand: usize,
    storage: Option<&'a CpuStorage>,
) -> Result<Input<'a, T::Bits>> {
    let nest = plan.nest();
    Ok(match (plan.operand(operand), storage) {
        (Operand::Scalar(scalar), _) => Input::Constant(bytemuck::cast(T::from_scalar(scalar))),
        (Operand::Output, _) | (Operand::Storage { .. }, None) => Input::Output,
        (Operand::Storage { .. }, Some(storage)) => {
            let (data, start) = (storage.as_slice::<T::Bits>(), nest.offset(operand));
            if nest.is_constant(operand) {
                Input::Constant(data[start])
            } else if nest.is_contiguous(operand) {
                Input::Slice(&data[start..start + nest.count()])
            } else {
                Input::View(view(nest, operand, data)?)
            }
        }
    })
}

fn gather<T: Pod>(view: &ArrayViewD<'_, T>, block: &mut [T]) {
    if view.ndim() > 2 {
        let rows = view.len_of(Axis(0)).max(1);
        for (view, block) in view.outer_iter().zip(block.chunks_mut(block.len() / rows)) {
            gather(&view, block);
        }
    } else if let Ok(matrix) = view.view().into_dimensionality::<Ix2>() {
        for (from, to) in matrix.rows().into_iter().zip(block.chunks_mut(matrix.ncols().max(1))) {
            copy_row(&from, to);
        }
    } else if let Ok(row) = view.view().into_dimensionality::<Ix1>() {
        copy_row(&row, block);
    }
}

fn copy_row<T: Pod>(from: &ArrayView1<'_, T>, to: &mut [T]) {
    match from.as_slice() {
        Some(from) => to.copy_from_slice(from),
        None if from.strides()[0] == 0 => to.fill(from[0]),
        None => to.iter_mut().zip(from).for_each(|(to, &from)| *to = from),
    }
}

/// Copies between types of the same size.
fn copy_bits<T: Pod, R: Pod>(from: &[T], to: &mut [R]) {
    bytemuck::cast_slice_mut(to).copy_from_slice(from);
}

fn scatter<T: Pod>(block: &[T], view: &mut ArrayViewMutD<'_, T>) {
    let block = ArrayViewD::from_shape(view.raw_dim(), block).expect("a block has the size of its view");
    view.assign(&block);
}
