//! Pooling, plane by plane: one batch and channel at a time, copied to wide elements.
//!
//! A row of windows folds the input rows that it holds into one, element by element, and then that one along itself: the
//! first runs along memory, the second is a fraction of the work. The gradient of an average goes the other way. Positions
//! and their gradient take the elements of the kernel one after another. Planes are spread over threads; a plane is
//! computed by one thread, always in the same order.

use bytemuck::Pod;
use bytemuck::allocation::try_zeroed_vec;
use congruent_backend_api::ops::conv::MAX_SPATIAL;
use congruent_backend_api::ops::pool::{Pool, PoolOp, Window, Windows};
use congruent_backend_api::{Error, ErrorKind, Layout, PoolOps, Result, match_float, match_number};

use crate::backend::Cpu;
use crate::lane::{BLOCK, Lane, Number};
use crate::loops::{GRAIN, join};
use crate::math::Real;
use crate::storage::CpuStorage;

#[deny(clippy::missing_trait_methods)]
impl PoolOps for Cpu {
    fn pool(&self, plan: &Pool, input: &CpuStorage, indices: Option<&CpuStorage>, out: &mut CpuStorage) -> Result<()> {
        plan.check(input, indices, out)?;
        let unsupported = || Err(Error::unsupported("cpu", plan.op().name(), plan.dtype()));
        match plan.op() {
            PoolOp::MaxPool => match_number!(plan.dtype(), T => maxima::<T>(plan, input, out), else => unsupported()),
            PoolOp::ArgmaxPool => {
                match_number!(plan.dtype(), T => positions::<T>(plan, input, out), else => unsupported())
            }
            PoolOp::AvgPool => match_float!(plan.dtype(), T => averages::<T>(plan, input, out), else => unsupported()),
            PoolOp::MaxPoolGrad | PoolOp::AvgPoolGrad => {
                match_float!(plan.dtype(), T => gradient::<T>(plan, input, indices, out), else => unsupported())
            }
        }
    }
}

fn maxima<T: Lane>(plan: &Pool, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
    let job = Job::new(plan);
    let x = Planes::new(plan.x(), x.as_slice::<T>());
    planes(plan, out, |plane, results: &mut [T], scratch: &mut Scratch<T::Wide>| {
        x.widen(plane, &mut scratch.plane);
        let fold = |a: T::Wide, b| a.maximum(b);
        job.fold(scratch, T::Wide::LEAST, fold, |at, value| results[at] = T::narrow(value));
    })
}

fn averages<T: Lane<Wide: Real>>(plan: &Pool, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
    let job = Job::new(plan);
    let (x, divisors) = (Planes::new(plan.x(), x.as_slice::<T>()), job.divisors());
    planes(plan, out, |plane, results: &mut [T], scratch: &mut Scratch<T::Wide>| {
        x.widen(plane, &mut scratch.plane);
        let store = |at: usize, sum: T::Wide| results[at] = T::narrow(sum.div(divisors[at]));
        job.fold(scratch, T::Wide::default(), T::Wide::add, store);
    })
}

fn positions<T: Lane>(plan: &Pool, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
    let job = Job::new(plan);
    let x = Planes::new(plan.x(), x.as_slice::<T>());
    planes(plan, out, |plane, results: &mut [i64], scratch: &mut Scratch<T::Wide>| {
        x.widen(plane, &mut scratch.plane);
        job.search(scratch, results);
    })
}

fn gradient<T: Lane<Wide: Real>>(
    plan: &Pool,
    grad: &CpuStorage,
    indices: Option<&CpuStorage>,
    out: &mut CpuStorage,
) -> Result<()> {
    let job = Job::new(plan);
    let (grad, divisors) = (Planes::new(plan.y(), grad.as_slice::<T>()), job.divisors());
    let indices = indices.zip(plan.indices()).map(|(indices, layout)| Planes::new(layout, indices.as_slice::<i64>()));
    planes(plan, out, |plane, results: &mut [T], scratch: &mut Scratch<T::Wide>| {
        grad.widen(plane, &mut scratch.plane);
        scratch.sums.clear();
        scratch.sums.resize(results.len(), T::Wide::default());
        if let Some(indices) = &indices {
            indices.widen(plane, &mut scratch.indices);
            job.send(scratch);
        } else {
            scratch.plane.iter_mut().zip(&divisors).for_each(|(grad, &divisor)| *grad = grad.div(divisor));
            job.spread(scratch);
        }
        results.iter_mut().zip(&scratch.sums).for_each(|(result, &sum)| *result = T::narrow(sum));
    })
}

/// What the planes of a thread share.
#[derive(Default)]
struct Scratch<W> {
    /// The input of a plane.
    plane: Vec<W>,
    /// A row of the input, folded or spread.
    line: Vec<W>,
    /// A row of windows.
    row: Vec<W>,
    /// The positions of a plane.
    indices: Vec<i64>,
    /// The result of a plane, before it is rounded.
    sums: Vec<W>,
}

/// Computes each plane of the output; what is not dense goes through a temporary.
fn planes<W: Default, R: Pod + Send>(
    plan: &Pool,
    out: &mut CpuStorage,
    compute: impl Fn(usize, &mut [R], &mut Scratch<W>) + Sync,
) -> Result<()> {
    let [input, layout] = plan.operands();
    let count = layout.count();
    if count == 0 {
        return Ok(());
    }
    let size: usize = layout.shape()[2..].iter().product();
    // What a plane reads, and all its windows hold.
    let work = input.shape()[2..].iter().product::<usize>().max(size);
    let target = out.as_mut_slice::<R>();
    if layout.is_contiguous() {
        split(0, &mut target[layout.offset()..][..count], size, work, &compute);
        return Ok(());
    }
    let mut results: Vec<R> = try_zeroed_vec(count).map_err(|()| {
        let message = format!("a temporary of {count} results could not be allocated");
        Error::new(ErrorKind::OutOfMemory, plan.op().name(), message)
    })?;
    split(0, &mut results, size, work, &compute);
    scatter(&results, layout.shape(), layout.strides(), layout.offset(), target);
    Ok(())
}

fn split<W: Default, R: Send>(
    first: usize,
    results: &mut [R],
    size: usize,
    work: usize,
    compute: &(impl Fn(usize, &mut [R], &mut Scratch<W>) + Sync),
) {
    let count = results.len() / size;
    if count > 1 && count.saturating_mul(work) > GRAIN {
        let (left, right) = results.split_at_mut(count / 2 * size);
        join((first, left), (first + count / 2, right), |(first, results)| split(first, results, size, work, compute));
        return;
    }
    let mut scratch = Scratch::default();
    for (plane, results) in results.chunks_exact_mut(size).enumerate() {
        compute(first + plane, results, &mut scratch);
    }
}

/// Copies dense elements to a view.
fn scatter<R: Copy>(results: &[R], sizes: &[usize], strides: &[isize], offset: usize, target: &mut [R]) {
    let Some((&size, sizes)) = sizes.split_first() else {
        target[offset] = results[0];
        return;
    };
    for (index, part) in results.chunks_exact(results.len() / size).enumerate() {
        let offset = offset.wrapping_add_signed(index as isize * strides[0]);
        scatter(part, sizes, &strides[1..], offset, target);
    }
}

/// A tensor whose first two axes are those of planes, of three axes each.
struct Planes<'a, T> {
    data: &'a [T],
    offset: usize,
    channels: usize,
    outer: [isize; 2],
    sizes: [usize; MAX_SPATIAL],
    strides: [isize; MAX_SPATIAL],
}

impl<'a, T: Lane> Planes<'a, T> {
    fn new(layout: &Layout, data: &'a [T]) -> Self {
        let (shape, all) = (layout.shape(), layout.strides());
        let (mut sizes, mut strides) = ([1; MAX_SPATIAL], [0; MAX_SPATIAL]);
        let missing = MAX_SPATIAL + 2 - shape.rank();
        sizes[missing..].copy_from_slice(&shape[2..]);
        strides[missing..].copy_from_slice(&all[2..]);
        Self { data, offset: layout.offset(), channels: shape[1], outer: [all[0], all[1]], sizes, strides }
    }

    /// Copies a plane to wide elements.
    fn widen(&self, plane: usize, wide: &mut Vec<T::Wide>) {
        let [planes, rows, size] = self.sizes;
        wide.clear();
        wide.reserve(planes * rows * size);
        let at = |start: usize, index: usize, stride: isize| start.wrapping_add_signed(index as isize * stride);
        let start = at(self.offset, plane / self.channels, self.outer[0]);
        let start = at(start, plane % self.channels, self.outer[1]);
        let mut buffer = T::buffer();
        for index in 0..planes * rows {
            let row = at(at(start, index / rows, self.strides[0]), index % rows, self.strides[1]);
            if self.strides[2] == 1 {
                for block in self.data[row..][..size].chunks(BLOCK) {
                    wide.extend_from_slice(T::widen_block(block, &mut buffer));
                }
            } else {
                wide.extend((0..size).map(|index| self.data[at(row, index, self.strides[2])].wide()));
            }
        }
    }
}

/// The windows of a plane, outermost axis first.
struct Job<'p> {
    plan: &'p Pool,
    windows: [Windows; MAX_SPATIAL],
    /// What each window holds, by axis.
    held: [Vec<Window>; MAX_SPATIAL],
}

impl<'p> Job<'p> {
    fn new(plan: &'p Pool) -> Self {
        let mut windows = *plan.windows();
        // Axes that there are not come first, so that rows are long.
        windows.rotate_right(MAX_SPATIAL + 2 - plan.x().rank());
        let held = windows.map(|axis| (0..axis.count).map(|window| axis.window(window)).collect());
        Self { plan, windows, held }
    }

    /// What the sum over each window is divided by.
    fn divisors<W: Lane>(&self) -> Vec<W> {
        let mut divisors = Vec::new();
        for &a in &self.held[0] {
            for &b in &self.held[1] {
                divisors.extend(self.held[2].iter().map(|&c| W::from_f64(self.plan.divisor([a, b, c]) as f64)));
            }
        }
        divisors
    }

    /// For each row of windows, its number and the input rows that it holds.
    fn rows(&self) -> impl Iterator<Item = (usize, impl Iterator<Item = usize> + '_)> {
        let [outer, inner, _] = self.windows;
        (0..outer.count * inner.count).map(move |row| {
            let (a, b) = (self.held[0][row / inner.count], self.held[1][row % inner.count]);
            let at = |window: Window, step: usize| (0..window.count).map(move |index| window.first + index * step);
            let rows = at(a, outer.dilation).flat_map(move |a| at(b, inner.dilation).map(move |b| a * inner.size + b));
            (row, rows)
        })
    }

    /// Folds the elements of each window in the plane, and stores the results by the window's number.
    fn fold<W: Number>(
        &self,
        scratch: &mut Scratch<W>,
        first: W,
        fold: impl Fn(W, W) -> W + Copy,
        mut store: impl FnMut(usize, W),
    ) {
        let along = self.windows[2];
        let Scratch { plane, line, row: folded, .. } = scratch;
        for (row, rows) in self.rows() {
            line.clear();
            line.resize(along.size, first);
            for input in rows {
                let input = &plane[input * along.size..][..along.size];
                line.iter_mut().zip(input).for_each(|(folded, &x)| *folded = fold(*folded, x));
            }
            folded.clear();
            folded.resize(along.count, first);
            if along.kernel > along.count {
                // Long windows, few of them.
                for (folded, window) in folded.iter_mut().zip(&self.held[2]) {
                    let held = line[window.first..].iter().step_by(along.dilation).take(window.count);
                    *folded = held.fold(*folded, |folded, &x| fold(folded, x));
                }
            } else {
                for tap in 0..along.kernel {
                    let (range, from) = along.of_tap(tap);
                    let (windows, held) = (&mut folded[range], line.get(from..).unwrap_or_default());
                    if along.stride == 1 {
                        windows.iter_mut().zip(held).for_each(|(folded, &x)| *folded = fold(*folded, x));
                    } else {
                        let held = held.iter().step_by(along.stride);
                        windows.iter_mut().zip(held).for_each(|(folded, &x)| *folded = fold(*folded, x));
                    }
                }
            }
            folded.iter().enumerate().for_each(|(index, &value)| store(row * along.count + index, value));
        }
    }

    /// Writes the position of the first greatest element of each window; NaN is the greatest.
    fn search<W: Number>(&self, scratch: &mut Scratch<W>, results: &mut [i64]) {
        let along = self.windows[2];
        let Scratch { plane, row: best, .. } = scratch;
        for (row, rows) in self.rows() {
            let results = &mut results[row * along.count..][..along.count];
            let mut rows = rows.peekable();
            best.clear();
            best.resize(along.count, W::LEAST);
            // What nothing exceeds is at the first element.
            let start = rows.peek().map_or(0, |&first| first * along.size);
            results.iter_mut().zip(&self.held[2]).for_each(|(result, held)| *result = (start + held.first) as i64);
            for input in rows {
                let start = input * along.size;
                for tap in 0..along.kernel {
                    let (range, from) = along.of_tap(tap);
                    let places = (start + from..).step_by(along.stride);
                    for ((result, best), place) in results[range.clone()].iter_mut().zip(&mut best[range]).zip(places) {
                        let new = plane[place];
                        if (new > *best || new.is_nan()) && !best.is_nan() {
                            (*result, *best) = (place as i64, new);
                        }
                    }
                }
            }
        }
    }

    /// Adds the gradient of each window to the element at its position, if the window holds it.
    fn send<W: Real>(&self, scratch: &mut Scratch<W>) {
        let [outer, inner, along] = &self.windows;
        let Scratch { plane, indices, sums, .. } = scratch;
        for (window, (&grad, &index)) in plane.iter().zip(indices.iter()).enumerate() {
            let Some((at, sum)) = usize::try_from(index).ok().and_then(|at| Some((at, sums.get_mut(at)?))) else {
                continue;
            };
            let (row, rest) = (window / along.count, at / along.size);
            let held = along.holds(window % along.count, at % along.size)
                && inner.holds(row % inner.count, rest % inner.size)
                && outer.holds(row / inner.count, rest / inner.size);
            if held {
                *sum = sum.add(grad);
            }
        }
    }

    /// Adds the value of each window to all elements that it holds.
    fn spread<W: Real>(&self, scratch: &mut Scratch<W>) {
        let along = self.windows[2];
        let Scratch { plane, line, sums, .. } = scratch;
        for (row, rows) in self.rows() {
            let values = &plane[row * along.count..][..along.count];
            line.clear();
            line.resize(along.size, W::default());
            for tap in 0..along.kernel {
                let (range, from) = along.of_tap(tap);
                let held = line.iter_mut().skip(from).step_by(along.stride);
                held.zip(&values[range]).for_each(|(sum, &value)| *sum = sum.add(value));
            }
            for input in rows {
                let sums = &mut sums[input * along.size..][..along.size];
                sums.iter_mut().zip(&*line).for_each(|(sum, &value)| *sum = sum.add(value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::ops::pool::{Divisor, PoolOptions};
    use congruent_backend_api::{DType, Slice, View, bf16};

    use super::*;
    use crate::testing::{Tensor, on_any_threads, output, tensor};

    fn pool(op: PoolOp, x: &Tensor, options: PoolOptions) -> Tensor {
        let out = output(op.out_dtype(x.view().dtype), &Pool::shape(op, &x.shape(), &options).unwrap());
        pool_into(op, x, None, options, out)
    }

    fn pool_into(op: PoolOp, x: &Tensor, indices: Option<&Tensor>, options: PoolOptions, mut out: Tensor) -> Tensor {
        let target = View { dtype: out.view().dtype, layout: &out.layout };
        let plan = Pool::new(op, x.view(), indices.map(Tensor::view), &options, target).unwrap();
        Cpu::new().pool(&plan, &x.storage, indices.map(|indices| &indices.storage), &mut out.storage).unwrap();
        out
    }

    const THREE: PoolOptions = PoolOptions {
        kernel: [3; 3],
        stride: [2; 3],
        padding: [[1; 2]; 3],
        dilation: [1; 3],
        ceil: false,
        divisor: Divisor::Padded,
    };

    #[test]
    fn the_first_of_the_greatest_and_nan_before_all() {
        let x = tensor(&[1, 1, 2, 4], &[f32::NEG_INFINITY, 1.0, 1.0, f32::NAN, f32::NEG_INFINITY, 1.0, 7.0, f32::NAN]);
        let two = PoolOptions::new([2, 1, 1]);
        assert_eq!(pool(PoolOp::ArgmaxPool, &x, two).elements::<i64>(), [0, 1, 6, 3]);
        let maxima = pool(PoolOp::MaxPool, &x, two).elements::<f32>();
        assert!(maxima[3].is_nan() && maxima[..3] == [f32::NEG_INFINITY, 1.0, 7.0]);
        let zeros = tensor(&[1, 1, 2], &[-0.0_f32, 0.0]);
        assert_eq!(pool(PoolOp::ArgmaxPool, &zeros, PoolOptions::new([2; 3])).elements::<i64>(), [0]);
        assert!(pool(PoolOp::MaxPool, &zeros, PoolOptions::new([2; 3])).elements::<f32>()[0].is_sign_positive());
        let negative = tensor(&[1, 1, 3], &[-5_i64, -7, i64::MIN]);
        assert_eq!(pool(PoolOp::MaxPool, &negative, THREE).elements::<i64>(), [-5, -7]);
    }

    #[test]
    fn averages_of_halves_are_rounded_once() {
        let x = tensor(&[1, 1, 1024], &[bf16::from_f32(1.0); 1024]);
        assert_eq!(pool(PoolOp::AvgPool, &x, PoolOptions::new([1024; 3])).elements::<bf16>(), [bf16::ONE]);
        let sums = PoolOptions { divisor: Divisor::Fixed(1), ..PoolOptions::new([512; 3]) };
        assert_eq!(pool(PoolOp::AvgPool, &x, sums).elements::<bf16>(), [bf16::from_f32(512.0); 2]);
    }

    #[test]
    fn gradients_add_where_windows_overlap_and_reach_any_layout() {
        let (grad, indices) = (tensor(&[1, 1, 2], &[1.0_f32, 10.0]), tensor(&[1, 1, 2], &[1_i64, 1]));
        let out = |size| output(DType::F32, &[1, 1, size]).with(|layout| layout.flip(&[2]));
        let sent = pool_into(PoolOp::MaxPoolGrad, &grad, Some(&indices), THREE, out(4));
        assert_eq!(sent.elements::<f32>(), [0.0, 11.0, 0.0, 0.0]);
        // The second window starts at 1; the first ends there.
        let indices = tensor(&[1, 1, 2], &[2_i64, 0]);
        let sent = pool_into(PoolOp::MaxPoolGrad, &grad, Some(&indices), THREE, out(4));
        assert_eq!(sent.elements::<f32>(), [0.0; 4]);
        let grad = tensor(&[1, 1, 2], &[3.0_f32, 30.0]);
        let spread = pool_into(PoolOp::AvgPoolGrad, &grad, None, THREE, out(4));
        assert_eq!(spread.elements::<f32>(), [1.0, 11.0, 10.0, 10.0]);
    }

    #[test]
    fn the_same_bits_on_any_number_of_threads_and_from_any_layout() {
        let numbers: Vec<f32> = (0..3 * 40 * 33 * 30).map(|index| ((index * 7) % 23) as f32 / 8.0 - 1.0).collect();
        let x = tensor(&[3, 40, 33, 30], &numbers);
        let whole: Vec<f32> = on_any_threads(|| pool(PoolOp::AvgPool, &x, THREE).elements());
        let reversed = x.with(|layout| layout.slice(1, Slice { step: -1, ..Slice::FULL }));
        let mut planes: Vec<_> = whole.chunks_exact(17 * 15).collect();
        planes.chunks_exact_mut(40).for_each(<[_]>::reverse);
        assert_eq!(pool(PoolOp::AvgPool, &reversed, THREE).elements::<f32>(), planes.concat());
    }
}
