//! Convolutions and their gradients.
//!
//! The output is cut into pieces of channels that lie together in memory; a piece is one thread's. It goes over blocks of
//! positions so small that their windows stay in the cache: for each it copies the windows, a row for each tap of each
//! input channel (`columns.rs`), and multiplies. A transpose multiplies first and adds the windows to the elements they cover. How
//! the work is cut depends on the sizes alone, so that the threads have no say in the result.
//!
//! Where each channel of the output meets one of the input, rows of it are added up as they are (`depthwise.rs`). A kernel of
//! one tap is a product of matrices already.

mod columns;
mod depthwise;

use congruent_backend_api::ops::conv::{Conv, ConvOp, compose};
use congruent_backend_api::ops::copy::Copy;
use congruent_backend_api::ops::linear::Activation;
use congruent_backend_api::ops::unary::Unary;
use congruent_backend_api::{Backend, ConvOps, CopyOps, Error, Layout, Result, Source, UnaryOps, View, match_float};
use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, Axis, LinalgScalar, Slice};
use rayon::prelude::*;

use crate::backend::Cpu;
use crate::lane::Lane;
use crate::math::Real;
use crate::storage::CpuStorage;
use columns::Geometry;

/// About how many elements of windows a block has: half of a second-level cache in f32.
const BLOCK: usize = 1 << 17;

/// Pieces that are enough for the threads of most machines.
const PIECES: usize = 16;

/// Rows below which a piece would copy windows for too little work.
const ROWS: usize = 32;

#[deny(clippy::missing_trait_methods)]
impl ConvOps for Cpu {
    fn conv(
        &self,
        plan: &Conv,
        a: &CpuStorage,
        b: &CpuStorage,
        bias: Option<&CpuStorage>,
        out: &mut CpuStorage,
    ) -> Result<()> {
        plan.check(a, b, bias, out)?;
        let (dtype, [left, right, result]) = (plan.dtype(), plan.operands());
        let empty = [left, right, result].iter().any(|layout| layout.count() == 0);
        let product = plan.is_pointwise() && plan.op() != ConvOp::ConvGradWeight;
        // An activation of half types must come before they are rounded.
        let in_f32 = plan.activation() != Activation::Identity && dtype.size() == 2;
        if empty || product || in_f32 {
            return compose(self, plan, a, b, bias, out);
        }
        // Rows of the operands are runs, and the output has no gaps.
        let is_run = |layout: &Layout| layout.strides().last() == Some(&1) || layout.shape().last() == Some(&1);
        if !(is_run(left) && is_run(right) && result.is_contiguous()) {
            let over = |layout| View { dtype, layout };
            let compact = |layout: &Layout| if is_run(layout) { *layout } else { Layout::contiguous(*layout.shape()) };
            let (a_layout, b_layout, target) = (compact(left), compact(right), Layout::contiguous(*result.shape()));
            let moved = |storage, from: &Layout, to: &Layout| -> Result<Option<CpuStorage>> {
                if is_run(from) {
                    return Ok(None);
                }
                let mut memory = self.alloc(dtype, to.count())?;
                let copy = Copy::new(View { dtype, layout: from }, View { dtype, layout: to })?;
                self.copy(&copy, storage, &mut memory).map(|()| Some(memory))
            };
            let (a_memory, b_memory) = (moved(a, left, &a_layout)?, moved(b, right, &b_layout)?);
            let (a, b) = (a_memory.as_ref().unwrap_or(a), b_memory.as_ref().unwrap_or(b));
            let plan_into = |out| {
                let inner =
                    Conv::new(plan.op(), over(&a_layout), over(&b_layout), plan.bias().map(over), plan.options(), out)?;
                inner.with_activation(plan.activation())
            };
            if result.is_contiguous() {
                return self.conv(&plan_into(over(result))?, a, b, bias, out);
            }
            let mut memory = self.alloc(dtype, target.count())?;
            self.conv(&plan_into(over(&target))?, a, b, bias, &mut memory)?;
            return self.copy(&Copy::new(over(&target), over(result))?, &memory, out);
        }
        match_float!(dtype, T => run::<T>(plan, a, b, bias, out),
            else => return Err(Error::unsupported("cpu", plan.op().name(), dtype)));
        let Some(function) = plan.activation().function() else { return Ok(()) };
        self.unary(&Unary::new(function, Source::Output, View { dtype, layout: result })?, None, out)
    }
}

fn run<T: Lane<Wide: Real + LinalgScalar>>(
    plan: &Conv,
    a: &CpuStorage,
    b: &CpuStorage,
    bias: Option<&CpuStorage>,
    out: &mut CpuStorage,
) {
    let geometry = Geometry::new(plan);
    let (a, b) = (a.as_slice::<T>(), b.as_slice::<T>());
    let bias = bias.zip(plan.bias()).map(|(bias, layout)| {
        let (bias, stride) = (bias.as_slice::<T>(), layout.strides()[0]);
        let channel = |channel: usize| bias[layout.offset().wrapping_add_signed(channel as isize * stride)].wide();
        (0..layout.count()).map(channel).collect::<Vec<_>>()
    });
    let [left, right, result] = plan.operands();
    let target = &mut out.as_mut_slice::<T>()[result.offset()..][..result.count()];
    let operands = [(a, left), (b, right)];
    match plan.op() {
        ConvOp::ConvGradWeight => return grad_weight(&geometry, operands, target),
        ConvOp::Conv | ConvOp::ConvTranspose => {}
    }
    let weight = packed::<T>(b, right);
    let job = Job { geometry: &geometry, input: operands[0], weight: &weight, bias: bias.as_deref() };
    let back = plan.op() == ConvOp::ConvTranspose;
    // Rows leave padding out, which only finite weights allow.
    if geometry.is_depthwise(back) && (back || weight.iter().all(|weight| weight.is_finite())) {
        job.depthwise(back, target);
    } else if back {
        job.transpose(target);
    } else {
        job.forward(target);
    }
}

/// The elements of a view in order, in the wide type.
fn packed<T: Lane>(data: &[T], layout: &Layout) -> Vec<T::Wide> {
    let mut elements = Vec::with_capacity(layout.count());
    let (last, rows) = (layout.rank() - 1, layout.count() / layout.shape()[layout.rank() - 1]);
    let mut index = vec![0; last];
    for _ in 0..rows {
        let steps = index.iter().zip(layout.strides());
        let start =
            steps.fold(layout.offset(), |at, (&index, &stride)| at.wrapping_add_signed(index as isize * stride));
        let at = |place: usize| start.wrapping_add_signed(place as isize * layout.strides()[last]);
        elements.extend((0..layout.shape()[last]).map(|place| data[at(place)].wide()));
        for (index, &size) in index.iter_mut().zip(&**layout.shape()).rev() {
            *index += 1;
            if *index < size {
                break;
            }
            *index = 0;
        }
    }
    elements
}

/// How many of `channels` rows of a result a piece has, when there are `others` times as many.
fn rows_of_piece(channels: usize, others: usize) -> usize {
    let wanted = PIECES.div_ceil(others.max(1));
    let fits = |rows: &usize| channels.is_multiple_of(*rows) && channels / rows <= wanted;
    (ROWS..channels).find(fits).unwrap_or(channels)
}

/// `conv` or `conv_transpose`.
struct Job<'a, T: Lane> {
    geometry: &'a Geometry,
    input: (&'a [T], &'a Layout),
    /// [M, C / groups · taps].
    weight: &'a [T::Wide],
    bias: Option<&'a [T::Wide]>,
}

impl<T: Lane<Wide: Real + LinalgScalar>> Job<'_, T> {
    /// A piece is some output channels of a group at all positions of a batch.
    fn forward(&self, out: &mut [T]) {
        let geometry = self.geometry;
        let (positions, terms) = (geometry.positions(), geometry.terms());
        let rows = rows_of_piece(geometry.outputs, geometry.batch * geometry.groups);
        let block = geometry.block(BLOCK);
        out.par_chunks_exact_mut(rows * positions).enumerate().for_each_init(Vec::new, |columns, (piece, out)| {
            let (batch, channel) = geometry.piece(piece * rows, geometry.outputs * geometry.groups);
            let group = channel / geometry.outputs;
            let weight = matrix(&self.weight[channel * terms..], rows, terms);
            let mut sums = vec![T::Wide::default(); rows * block];
            columns.resize(terms * block, T::Wide::default());
            for (start, segments) in geometry.blocks(block) {
                let width = (positions - start).min(block);
                let windows = &mut columns[..terms * width];
                geometry.windows(self.input, batch, group, &segments, windows);
                let sums = &mut sums[..rows * width];
                multiply(&weight, &matrix(windows, terms, width), T::Wide::default(), sums);
                for (row, sums) in sums.chunks_exact(width).enumerate() {
                    let bias = self.bias.map_or(T::Wide::default(), |bias| bias[channel + row]);
                    let out = &mut out[row * positions + start..][..width];
                    out.iter_mut().zip(sums).for_each(|(out, &sum)| *out = T::narrow(sum + bias));
                }
            }
        });
    }

    /// A piece is some input channels of a group at all places of a batch.
    fn transpose(&self, out: &mut [T]) {
        let geometry = self.geometry;
        let (space, taps, terms) = (geometry.space(), geometry.taps(), geometry.terms());
        let rows = rows_of_piece(geometry.inputs, geometry.batch * geometry.groups);
        let (outputs, block) = (geometry.outputs, geometry.block(BLOCK));
        out.par_chunks_exact_mut(rows * space).enumerate().for_each_init(Vec::new, |windows, (piece, out)| {
            let (batch, channel) = geometry.piece(piece * rows, geometry.inputs * geometry.groups);
            let (group, first) = (channel / geometry.inputs, channel % geometry.inputs);
            let weight = matrix(&self.weight[group * outputs * terms..], outputs, terms);
            let weight = weight.slice_axis(Axis(1), Slice::from(first * taps..(first + rows) * taps));
            let mut sums = vec![T::Wide::default(); rows * space];
            for (row, sums) in sums.chunks_exact_mut(space).enumerate() {
                sums.fill(self.bias.map_or(T::Wide::default(), |bias| bias[channel + row]));
            }
            let mut values = vec![T::Wide::default(); outputs * block];
            windows.resize(rows * taps * block, T::Wide::default());
            for (start, segments) in geometry.blocks(block) {
                let width = (geometry.positions() - start).min(block);
                let values = &mut values[..outputs * width];
                geometry.values(self.input, batch, group * outputs, &segments, values);
                let windows = &mut windows[..rows * taps * width];
                multiply(&weight.t(), &matrix(values, outputs, width), T::Wide::default(), windows);
                geometry.put_back(windows, width, &segments, &mut sums);
            }
            out.iter_mut().zip(&sums).for_each(|(out, &sum)| *out = T::narrow(sum));
        });
    }
}

/// A piece is some output channels of a group.
fn grad_weight<T: Lane<Wide: Real + LinalgScalar>>(geometry: &Geometry, [x, y]: [(&[T], &Layout); 2], out: &mut [T]) {
    let (positions, terms) = (geometry.positions(), geometry.terms());
    let rows = rows_of_piece(geometry.outputs, geometry.groups);
    let block = geometry.block(BLOCK);
    out.par_chunks_exact_mut(rows * terms).enumerate().for_each(|(piece, out)| {
        let (channel, group) = (piece * rows, piece * rows / geometry.outputs);
        let mut sums = vec![T::Wide::default(); rows * terms];
        let mut columns = vec![T::Wide::default(); terms * block];
        let mut values = vec![T::Wide::default(); rows * block];
        for batch in 0..geometry.batch {
            for (start, segments) in geometry.blocks(block) {
                let width = (positions - start).min(block);
                let (windows, values) = (&mut columns[..terms * width], &mut values[..rows * width]);
                geometry.windows(x, batch, group, &segments, windows);
                geometry.values(y, batch, channel, &segments, values);
                let (values, windows) = (matrix(values, rows, width), matrix(windows, terms, width));
                multiply(&values, &windows.t(), T::Wide::from_i64(1), &mut sums);
            }
        }
        out.iter_mut().zip(&sums).for_each(|(out, &sum)| *out = T::narrow(sum));
    });
}

fn matrix<W>(elements: &[W], rows: usize, columns: usize) -> ArrayView2<'_, W> {
    ArrayView2::from_shape((rows, columns), &elements[..rows * columns]).expect("as many elements as that")
}

/// c = a @ b + beta · c
fn multiply<W: LinalgScalar>(a: &ArrayView2<'_, W>, b: &ArrayView2<'_, W>, beta: W, c: &mut [W]) {
    let shape = (a.nrows(), b.ncols());
    let mut c = ArrayViewMut2::from_shape(shape, c).expect("as many elements as that");
    general_mat_mul(W::one(), a, b, beta, &mut c);
}
