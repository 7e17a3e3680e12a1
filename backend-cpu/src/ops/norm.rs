//! Normalisation and its gradients, row by row.
//!
//! A row is gathered into a wide buffer, normalised there in a few passes over memory that stays in the cache, and
//! rounded into the output. Rows are spread over threads; a row is computed by one thread, always in the same order.

use bytemuck::allocation::try_zeroed_vec;
use congruent_backend_api::ops::norm::{Normalize, NormalizeOp, Rows};
use congruent_backend_api::{Error, ErrorKind, NormOps, Result, match_float};
use ndarray::{ArrayViewD, ArrayViewMutD, IxDyn, ShapeBuilder};

use crate::backend::Cpu;
use crate::lane::{BLOCK, Lane};
use crate::loops::{GRAIN, invalid_view, join};
use crate::math::Real;
use crate::ops::fold::{FloatSum, Fold, GreatestNumber, LEAF, fold_leaf};
use crate::simd::{heavy, light};
use crate::storage::CpuStorage;

#[deny(clippy::missing_trait_methods)]
impl NormOps for Cpu {
    fn normalize(
        &self,
        plan: &Normalize,
        x: &CpuStorage,
        weight: Option<&CpuStorage>,
        bias: Option<&CpuStorage>,
        out: &mut CpuStorage,
    ) -> Result<()> {
        run(plan, [Some(x), weight, bias], out)
    }

    fn normalize_grad(
        &self,
        plan: &Normalize,
        x: &CpuStorage,
        grad: &CpuStorage,
        weight: Option<&CpuStorage>,
        out: &mut CpuStorage,
    ) -> Result<()> {
        run(plan, [Some(x), Some(grad), weight], out)
    }
}

fn run(plan: &Normalize, inputs: [Option<&CpuStorage>; 3], out: &mut CpuStorage) -> Result<()> {
    plan.check(inputs, out)?;
    match_float!(plan.dtype(), T => rows::<T>(plan, inputs, out),
        else => Err(Error::unsupported("cpu", plan.full_op().name(), plan.dtype())))
}

fn rows<T: Lane<Wide: Real>>(plan: &Normalize, inputs: [Option<&CpuStorage>; 3], out: &mut CpuStorage) -> Result<()> {
    let count = plan.layout(0).count();
    if count == 0 {
        return Ok(());
    }
    let rows = plan.rows();
    let job = Job { plan, rows, inputs: inputs.map(|input| input.map(CpuStorage::as_slice::<T>)) };
    let target = &mut out.as_mut_slice::<T>()[rows.start(0)..];
    if is_dense(rows) {
        job.compute(0, &mut target[..count]);
        return Ok(());
    }
    let mut results: Vec<T> = try_zeroed_vec(count).map_err(|()| {
        let message = format!("a temporary of {count} results could not be allocated");
        Error::new(ErrorKind::OutOfMemory, plan.full_op().name(), message)
    })?;
    job.compute(0, &mut results);
    let sizes = [rows.kept().sizes(), rows.row().sizes()].concat();
    let strides = [rows.kept().strides(0), rows.row().strides(0)].concat();
    let strides: Vec<usize> = strides.iter().map(|stride| stride.cast_unsigned()).collect();
    let results = ArrayViewD::from_shape(IxDyn(&sizes), &results).map_err(invalid_view)?;
    let shape = IxDyn(&sizes).strides(IxDyn(&strides));
    ArrayViewMutD::from_shape(shape, target).map_err(invalid_view)?.assign(&results);
    Ok(())
}

/// Whether the output's rows lie one after another, each as one run.
fn is_dense(rows: &Rows) -> bool {
    let mut step = 1;
    [rows.row(), rows.kept()].into_iter().all(|nest| {
        nest.sizes().iter().zip(nest.strides(0)).rev().all(|(&size, &stride)| {
            let fits = stride == step;
            step *= size as isize;
            fits
        })
    })
}

struct Job<'a, T> {
    plan: &'a Normalize,
    rows: &'a Rows,
    inputs: [Option<&'a [T]>; 3],
}

/// A row of each input, and one more.
struct Scratch<W> {
    inputs: [Vec<W>; 3],
    product: Vec<W>,
    /// Whether an input that all rows share has been read.
    shared: [bool; 3],
}

impl<T: Lane<Wide: Real>> Job<'_, T> {
    /// Computes the rows from number `first` on into `results`, where they lie one after another.
    fn compute(&self, first: usize, results: &mut [T]) {
        let width = self.rows.row().count();
        let count = results.len() / width;
        if count > 1 && results.len() > GRAIN {
            let (left, right) = results.split_at_mut(count / 2 * width);
            join((first, left), (first + count / 2, right), |(first, results)| self.compute(first, results));
            return;
        }
        let row = || vec![T::Wide::default(); width];
        let mut scratch = Scratch {
            inputs: std::array::from_fn(|input| if self.inputs[input].is_some() { row() } else { Vec::new() }),
            product: row(),
            shared: [false; 3],
        };
        for (index, result) in results.chunks_exact_mut(width).enumerate() {
            self.load(first + index, &mut scratch);
            let [x, second, third] = &mut scratch.inputs;
            let epsilon = T::Wide::from_f64(self.plan.epsilon());
            if self.plan.is_gradient() {
                gradient(self.plan.op(), epsilon, [x, second, &mut scratch.product], third);
                store(second, result);
            } else {
                forward(self.plan.op(), epsilon, [x, &mut scratch.product], second, third);
                store(x, result);
            }
        }
    }

    fn load(&self, row: usize, scratch: &mut Scratch<T::Wide>) {
        let kept = self.rows.kept();
        for (input, data) in self.inputs.iter().enumerate() {
            let Some(data) = data else { continue };
            let operand = input + 1;
            // The rows of the first input, and of the gradient, are overwritten while they are used.
            let lasting = input > usize::from(self.plan.is_gradient());
            if std::mem::replace(&mut scratch.shared[input], lasting && kept.is_constant(operand)) {
                continue;
            }
            let (mut rest, mut start) = (row, self.rows.start(operand));
            for (&size, &stride) in kept.sizes().iter().zip(kept.strides(operand)).rev() {
                start = start.wrapping_add_signed((rest % size) as isize * stride);
                rest /= size;
            }
            let nest = self.rows.row();
            gather(data, start, nest.sizes(), nest.strides(operand), &mut scratch.inputs[input]);
        }
    }
}

/// Reads the elements of a row in the order of its nest.
fn gather<T: Lane>(data: &[T], start: usize, sizes: &[usize], strides: &[isize], row: &mut [T::Wide]) {
    match (sizes, strides) {
        ([], _) | (_, []) => row[0] = data[start].wide(),
        ([size], [1]) => {
            let mut buffer = T::buffer();
            for (block, wide) in data[start..start + size].chunks(BLOCK).zip(row.chunks_mut(BLOCK)) {
                wide.copy_from_slice(T::widen_block(block, &mut buffer));
            }
        }
        ([_], [stride]) => {
            for (index, wide) in row.iter_mut().enumerate() {
                *wide = data[start.wrapping_add_signed(index as isize * stride)].wide();
            }
        }
        ([size, sizes @ ..], [stride, strides @ ..]) => {
            let part = row.len() / size;
            for (index, row) in row.chunks_exact_mut(part).enumerate() {
                gather(data, start.wrapping_add_signed(index as isize * stride), sizes, strides, row);
            }
        }
    }
}

fn store<T: Lane>(row: &[T::Wide], to: &mut [T]) {
    let mut buffer = T::buffer();
    for (wide, block) in row.chunks(BLOCK).zip(to.chunks_mut(BLOCK)) {
        T::narrow_block(block, &mut buffer, |out| out.copy_from_slice(wide));
    }
}

/// Normalises `x` in place; `weight` and `bias` are empty when there are none.
fn forward<W: Real>(op: NormalizeOp, epsilon: W, [x, product]: [&mut [W]; 2], weight: &[W], bias: &[W]) {
    match op {
        NormalizeOp::Softmax => {
            shift(x);
            exps(x);
            let total = sum(x);
            each(x, |x| x.div(total));
        }
        NormalizeOp::LogSoftmax => {
            shift(x);
            product.copy_from_slice(x);
            exps(product);
            let log = sum(product).ln();
            each(x, |x| x.sub(log));
        }
        NormalizeOp::L2Normalize | NormalizeOp::LayerNorm | NormalizeOp::RmsNorm => {
            unit_row(op, epsilon, x, product);
            zip(x, weight, W::mul);
            zip(x, bias, W::add);
        }
    }
}

/// Turns the gradient `grad` of the result into that of the input.
fn gradient<W: Real>(op: NormalizeOp, epsilon: W, [x, grad, product]: [&mut [W]; 3], weight: &[W]) {
    let multiply = |product: &mut [W], x: &[W], grad: &[W]| {
        product.copy_from_slice(x);
        zip(product, grad, W::mul);
    };
    match op {
        NormalizeOp::Softmax => {
            multiply(product, x, grad);
            let total = sum(product);
            zip(grad, x, |g, y| y.mul(g.sub(total)));
            return;
        }
        NormalizeOp::LogSoftmax => {
            let total = sum(grad);
            zip(grad, x, |g, y| g.sub(y.exp().mul(total)));
            return;
        }
        NormalizeOp::L2Normalize | NormalizeOp::LayerNorm | NormalizeOp::RmsNorm => {}
    }
    let factor = unit_row(op, epsilon, x, product);
    zip(grad, weight, W::mul);
    multiply(product, x, grad);
    let along = sum(product);
    if op == NormalizeOp::L2Normalize {
        // Below ε the divisor is constant.
        let along = if factor > epsilon || factor.is_nan() { along } else { W::default() };
        zip(grad, x, |g, x| g.sub(x.mul(along)).div(factor));
        return;
    }
    let count = W::from_i64(x.len() as i64);
    let along = along.div(count);
    if op == NormalizeOp::LayerNorm {
        let mean = sum(grad).div(count);
        each(grad, |g| g.sub(mean));
    }
    zip(grad, x, |g, x| g.sub(x.mul(along)).mul(factor));
}

/// Turns `x` into x̂; returns the factor r of the row, or for the L2 norm its divisor.
fn unit_row<W: Real>(op: NormalizeOp, epsilon: W, x: &mut [W], product: &mut [W]) -> W {
    let count = W::from_i64(x.len() as i64);
    if op == NormalizeOp::LayerNorm {
        let mean = sum(x).div(count);
        each(x, |x| x.sub(mean));
    }
    map(product, x, W::square);
    let squares = sum(product);
    if op == NormalizeOp::L2Normalize {
        let norm = squares.sqrt().maximum(epsilon);
        each(x, |x| x.div(norm));
        return norm;
    }
    let factor = squares.div(count).add(epsilon).sqrt().recip();
    each(x, |x| x.mul(factor));
    factor
}

/// Subtracts the greatest element. NaN, which is skipped by the search, stays NaN when something is subtracted from it, and
/// so does the sum of the exponentials.
fn shift<W: Real>(x: &mut [W]) {
    let parts = x.chunks(LEAF).map(fold_leaf::<W, GreatestNumber>);
    let max = parts.fold(W::LEAST, <GreatestNumber as Fold<W>>::combine);
    each(x, |x| x.sub(max));
}

/// The sum of a row.
pub(super) fn sum<W: Real>(x: &[W]) -> W {
    if x.len() > LEAF {
        let (left, right) = x.split_at((x.len() / 2).next_multiple_of(LEAF));
        return sum(left).add(sum(right));
    }
    fold_leaf::<W, FloatSum>(x)
}

/// Replaces each element by its exponential.
fn exps<W: Real>(x: &mut [W]) {
    heavy(
        #[inline(always)]
        || {
            for x in x {
                *x = x.exp();
            }
        },
    );
}

/// Replaces each element by a function of it.
fn each<W: Real>(x: &mut [W], f: impl Fn(W) -> W) {
    light(
        #[inline(always)]
        || {
            for x in x {
                *x = f(*x);
            }
        },
    );
}

/// Sets each element of `to` to a function of that of `x` at its place.
fn map<W: Real>(to: &mut [W], x: &[W], f: impl Fn(W) -> W) {
    light(
        #[inline(always)]
        || {
            for (to, &x) in to.iter_mut().zip(x) {
                *to = f(x);
            }
        },
    );
}

/// Replaces each element of `x` by a function of it and of that of `other` at its place.
fn zip<W: Real>(x: &mut [W], other: &[W], f: impl Fn(W, W) -> W) {
    light(
        #[inline(always)]
        || {
            for (x, &other) in x.iter_mut().zip(other) {
                *x = f(*x, other);
            }
        },
    );
}
