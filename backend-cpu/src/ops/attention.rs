//! Attention and its gradients, in tiles of rows.
//!
//! Rows are queries where the result has theirs, and keys for the gradients by keys and values; columns are the others.
//! What the columns enter with is first copied to wide elements: for products with the positions innermost, for sums with
//! the features, so that both run along memory. A tile of rows then takes its scores against every column that it sees
//! (a block of columns at a time stays in the cache while the rows pass over it), makes weights of them (`weights.rs`), and
//! adds up weighted rows. Memory beside the copies is one or two tiles of scores a thread. A row is computed by one thread,
//! always in the same order.

mod weights;

use std::ops::Range;

use bytemuck::allocation::try_zeroed_vec;
use congruent_backend_api::ops::attention::{Attention, AttentionInputs, AttentionOp};
use congruent_backend_api::{AttentionOps, Error, ErrorKind, Layout, Result, match_float};

use crate::backend::Cpu;
use crate::lane::Lane;
use crate::loops::{GRAIN, join};
use crate::math::Real;
use crate::simd::heavy;
use crate::storage::CpuStorage;
use weights::Weights;

/// Rows that share a pass over the columns.
const ROWS: usize = 16;

/// Columns or features whose sums are kept in registers.
const LANES: usize = 32;

/// Columns whose rows of features stay in the cache while the rows of a tile pass over them.
const COLUMNS: usize = 128;

#[deny(clippy::missing_trait_methods)]
impl AttentionOps for Cpu {
    fn attention(&self, plan: &Attention, inputs: AttentionInputs<&CpuStorage>, out: &mut CpuStorage) -> Result<()> {
        plan.check(inputs, out)?;
        let inputs = inputs.to_array();
        match_float!(plan.dtype(), T => match plan.op() {
            AttentionOp::LogSumExp => run::<T, <T as Lane>::Wide>(plan, inputs, out),
            _ => run::<T, T>(plan, inputs, out),
        }, else => Err(Error::unsupported("cpu", plan.op().name(), plan.dtype())))
    }
}

/// Which operands are what, by their numbers in the plan.
struct Roles {
    /// Whether rows are queries.
    by_query: bool,
    /// The rows' own and the columns' features, whose products are the scores.
    scored: [usize; 2],
    /// The same for the gradients of the weights.
    second: Option<[usize; 2]>,
    /// The columns' features that are added up.
    summed: Option<usize>,
}

impl Roles {
    fn of(op: AttentionOp) -> Self {
        let (by_query, second, summed) = match op {
            AttentionOp::Output => (true, None, Some(3)),
            AttentionOp::LogSumExp => (true, None, None),
            AttentionOp::GradQuery => (true, Some([7, 3]), Some(2)),
            AttentionOp::GradKey => (false, Some([3, 7]), Some(1)),
            AttentionOp::GradValue => (false, None, Some(7)),
        };
        Self { by_query, scored: if by_query { [1, 2] } else { [2, 1] }, second, summed }
    }
}

fn run<T: Lane<Wide: Real>, O: Lane<Wide = T::Wide>>(
    plan: &Attention,
    inputs: [Option<&CpuStorage>; 9],
    out: &mut CpuStorage,
) -> Result<()> {
    let layout = match plan.op() {
        AttentionOp::LogSumExp => plan.layout(0).unsqueeze(-1)?,
        _ => *plan.layout(0),
    };
    if layout.count() == 0 {
        return Ok(());
    }
    let roles = Roles::of(plan.op());
    let copy = |operand: Option<usize>, across: bool| {
        operand.map_or(Ok(Vec::new()), |operand| {
            let layout = plan.layout(operand);
            let [batch, heads, positions, features] = sizes(layout);
            let mut wide = zeros::<T::Wide>([batch * heads, positions, features])?;
            if let Some(storage) = inputs[operand - 1] {
                widen(storage.as_slice::<T>(), layout, across, &mut wide);
            }
            Ok(wide)
        })
    };
    let rows = |operand: Option<usize>| {
        let operand = operand.unwrap_or(roles.scored[0]);
        let data = inputs[operand - 1].map_or(&[][..], |storage| storage.as_slice::<T>());
        Rows { data, layout: plan.layout(operand) }
    };
    let job = Job {
        plan,
        by_query: roles.by_query,
        rows: [rows(Some(roles.scored[0])), rows(roles.second.map(|[own, _]| own))],
        columns: [copy(Some(roles.scored[1]), true)?, copy(roles.second.map(|[_, other]| other), true)?],
        second: roles.second.is_some(),
        summed: copy(roles.summed, false)?,
        weights: Weights::new(plan, inputs),
        width: sizes(&layout)[3],
    };
    let target = out.as_mut_slice::<O>();
    if layout.is_contiguous() {
        job.compute(0, &mut target[layout.offset()..][..layout.count()]);
        return Ok(());
    }
    let mut results = zeros::<O>([layout.count(), 1, 1])?;
    job.compute(0, &mut results);
    let [_, heads, positions, width] = sizes(&layout);
    for (row, results) in results.chunks_exact(width).enumerate() {
        let start = at(&layout, [row / positions / heads, row / positions % heads, row % positions, 0]);
        for (index, &result) in results.iter().enumerate() {
            target[start.wrapping_add_signed(index as isize * layout.strides()[3])] = result;
        }
    }
    Ok(())
}

fn zeros<T: bytemuck::Pod>(sizes: [usize; 3]) -> Result<Vec<T>> {
    let count = sizes.into_iter().try_fold(1_usize, usize::checked_mul);
    count.and_then(|count| try_zeroed_vec(count).ok()).ok_or_else(|| {
        let message = format!("a temporary of {sizes:?} elements could not be allocated");
        Error::new(ErrorKind::OutOfMemory, "attention", message)
    })
}

/// Copies [batch, heads, positions, features] to wide elements, with the last two axes exchanged if
/// `across`.
fn widen<T: Lane>(data: &[T], layout: &Layout, across: bool, wide: &mut [T::Wide]) {
    let [_, heads, positions, features] = sizes(layout);
    if wide.is_empty() {
        return;
    }
    let (rows, row_stride, size, stride) = match across {
        true => (features, layout.strides()[3], positions, layout.strides()[2]),
        false => (positions, layout.strides()[2], features, layout.strides()[3]),
    };
    for (index, row) in wide.chunks_exact_mut(size).enumerate() {
        let (pair, line) = (index / rows, index % rows);
        let start = at(layout, [pair / heads, pair % heads, 0, 0]).wrapping_add_signed(line as isize * row_stride);
        for (index, wide) in row.iter_mut().enumerate() {
            *wide = data[start.wrapping_add_signed(index as isize * stride)].wide();
        }
    }
}

fn sizes(layout: &Layout) -> [usize; 4] {
    std::array::from_fn(|axis| layout.shape()[axis])
}

/// Where an element lies in its storage.
fn at(layout: &Layout, index: [usize; 4]) -> usize {
    index.iter().zip(layout.strides()).fold(layout.offset(), |place, (&index, &stride)| {
        place.wrapping_add_signed((index as isize).wrapping_mul(stride))
    })
}

/// An operand that is read by the rows of tiles.
struct Rows<'a, T> {
    data: &'a [T],
    layout: &'a Layout,
}

impl<T: Lane> Rows<'_, T> {
    /// Copies the features of neighbouring positions of a head to wide elements.
    fn load(&self, [batch, head, first]: [usize; 3], rows: usize, wide: &mut [T::Wide]) {
        let (features, stride) = (self.layout.shape()[3], self.layout.strides()[3]);
        for row in 0..rows {
            let start = at(self.layout, [batch, head, first + row, 0]);
            for (feature, wide) in wide[row * features..][..features].iter_mut().enumerate() {
                *wide = self.data[start.wrapping_add_signed(feature as isize * stride)].wide();
            }
        }
    }
}

struct Job<'a, T: Lane> {
    plan: &'a Attention,
    by_query: bool,
    /// What rows have of the scores, and of the gradients of the weights.
    rows: [Rows<'a, T>; 2],
    /// What columns have of them, as [batch · heads, features, positions].
    columns: [Vec<T::Wide>; 2],
    /// Whether the op needs the gradients of the weights.
    second: bool,
    /// What is added up, as [batch · heads, positions, features].
    summed: Vec<T::Wide>,
    weights: Weights<'a, T>,
    /// The features of a row of the result.
    width: usize,
}

/// What the tiles of a thread share.
struct Scratch<W> {
    rows: [Vec<W>; 2],
    scores: [Vec<W>; 2],
    sums: Vec<W>,
    totals: [W; ROWS],
    slope: Vec<W>,
}

impl<T: Lane<Wide: Real>> Job<'_, T> {
    /// The heads and positions of rows, and the positions of columns.
    fn sizes(&self) -> [usize; 3] {
        let plan = self.plan;
        match self.by_query {
            true => [plan.heads(), plan.queries(), plan.keys()],
            false => [plan.kv_heads(), plan.keys(), plan.queries()],
        }
    }

    /// Computes the rows of the result from number `first` on.
    fn compute<O: Lane<Wide = T::Wide>>(&self, first: usize, results: &mut [O]) {
        let (width, [_, positions, columns]) = (self.width, self.sizes());
        let count = results.len() / width;
        let features = (self.plan.depth() + self.plan.width()).max(1);
        if count > ROWS && count.saturating_mul(columns.max(1)).saturating_mul(features) > GRAIN {
            let half = (count / 2).next_multiple_of(ROWS);
            let (left, right) = results.split_at_mut(half * width);
            join((first, left), (first + half, right), |(first, results)| self.compute(first, results));
            return;
        }
        let room = |size: usize| vec![T::Wide::default(); size];
        let second = usize::from(self.second);
        let mut scratch = Scratch {
            rows: [0, 1].map(|which| room(ROWS * self.rows[which].layout.shape()[3])),
            scores: [room(ROWS * columns), room(ROWS * columns * second)],
            sums: room(ROWS * width),
            totals: [T::Wide::default(); ROWS],
            slope: room(columns * second),
        };
        let mut rest = results;
        let mut row = first;
        while !rest.is_empty() {
            // A tile ends where its head does.
            let rows = ROWS.min(positions - row % positions).min(rest.len() / width);
            let (tile, after) = std::mem::take(&mut rest).split_at_mut(rows * width);
            self.tile(row, rows, &mut scratch, tile);
            (rest, row) = (after, row + rows);
        }
    }

    fn tile<O: Lane<Wide = T::Wide>>(
        &self,
        first: usize,
        rows: usize,
        scratch: &mut Scratch<T::Wide>,
        results: &mut [O],
    ) {
        let (plan, [heads, positions, columns]) = (self.plan, self.sizes());
        let (batch, head, position) = (first / positions / heads, first / positions % heads, first % positions);
        for which in 0..=usize::from(self.second) {
            self.rows[which].load([batch, head, position], rows, &mut scratch.rows[which]);
        }
        scratch.sums.fill(T::Wide::default());
        // The heads of the columns: one key head for a query, each head that reads it for a key.
        let (others, count) = match self.by_query {
            true => (batch * plan.kv_heads() + head / plan.group(), 1),
            false => {
                let group = plan.heads() / plan.kv_heads();
                (batch * plan.heads() + head * group, group)
            }
        };
        for other in others..others + count {
            let query_head = if self.by_query { head } else { other % plan.heads() };
            let seen = |row: usize| self.weights.seen(self.by_query, batch, position + row);
            // Rows further on see columns further on, up to the last that there is in the batch item.
            let last = self.weights.present(self.by_query, batch, position, rows);
            let all = seen(0).start..seen(last).end;
            for which in 0..=usize::from(self.second) {
                let features = self.rows[which].layout.shape()[3];
                let across = &self.columns[which][other * features * columns..][..features * columns];
                let (own, scores) = (&scratch.rows[which], &mut scratch.scores[which]);
                for block in all.clone().step_by(LANES) {
                    let size = LANES.min(all.end - block);
                    for row in 0..rows {
                        let own = &own[row * features..][..features];
                        let across = across.get(block..).unwrap_or_default();
                        products(own, across, columns, &mut scores[row * columns + block..][..size]);
                    }
                }
            }
            for row in 0..rows {
                let seen = seen(row);
                let [scores, second] = &mut scratch.scores;
                let scores = &mut scores[row * columns..][seen.clone()];
                let second = if self.second { &mut second[row * columns..][seen.clone()] } else { &mut [] };
                let slope = scratch.slope.get_mut(..scores.len()).unwrap_or_default();
                let place = [batch, query_head, position + row, seen.start];
                scratch.totals[row] = self.weights.make(self.by_query, place, scores, second, slope);
            }
            if plan.op() != AttentionOp::LogSumExp {
                let summed = &self.summed[other * columns * self.width..][..columns * self.width];
                self.add_up(all, rows, &scratch.scores[0], summed, seen, &mut scratch.sums);
            }
        }
        let scale = T::Wide::from_f64(plan.scale());
        for (row, results) in results.chunks_exact_mut(self.width).enumerate() {
            let (sums, total) = (&scratch.sums[row * self.width..], scratch.totals[row]);
            for (result, &sum) in results.iter_mut().zip(sums) {
                *result = O::narrow(match plan.op() {
                    AttentionOp::Output if total == T::Wide::default() => total,
                    AttentionOp::Output => sum.div(total),
                    AttentionOp::LogSumExp => total,
                    AttentionOp::GradQuery | AttentionOp::GradKey => sum.mul(scale),
                    AttentionOp::GradValue => sum,
                });
            }
        }
    }

    /// Adds the weighted rows of the columns that each row of the tile sees.
    fn add_up(
        &self,
        all: Range<usize>,
        rows: usize,
        weights: &[T::Wide],
        summed: &[T::Wide],
        seen: impl Fn(usize) -> Range<usize>,
        sums: &mut [T::Wide],
    ) {
        let (width, columns) = (self.width, self.sizes()[2]);
        for block in all.step_by(COLUMNS) {
            for row in 0..rows {
                let seen = seen(row);
                let part = seen.start.max(block)..seen.end.min(block + COLUMNS);
                if !part.is_empty() {
                    let weights = &weights[row * columns..][part.clone()];
                    accumulate(weights, &summed[part.start * width..], &mut sums[row * width..][..width]);
                }
            }
        }
    }
}

/// The products of a query with at most [`LANES`] neighbouring keys; the keys of a feature lie `stride` apart.
fn products<W: Real>(query: &[W], columns: &[W], stride: usize, scores: &mut [W]) {
    heavy(
        #[inline(always)]
        || {
            if let Ok(scores) = <&mut [W; LANES]>::try_from(&mut *scores) {
                let mut sums = [W::default(); LANES];
                for (keys, &x) in columns.chunks(stride.max(1)).zip(query) {
                    for (sum, &y) in sums.iter_mut().zip(&keys[..LANES]) {
                        *sum = sum.add(x.mul(y));
                    }
                }
                *scores = sums;
                return;
            }
            scores.fill(W::default());
            for (keys, &x) in columns.chunks(stride.max(1)).zip(query) {
                for (sum, &y) in scores.iter_mut().zip(keys) {
                    *sum = sum.add(x.mul(y));
                }
            }
        },
    );
}

/// Adds the weighted rows of values to `sums`.
fn accumulate<W: Real>(weights: &[W], values: &[W], sums: &mut [W]) {
    let width = sums.len();
    heavy(
        #[inline(always)]
        || {
            let (blocks, rest) = sums.as_chunks_mut::<LANES>();
            for (block, sums) in blocks.iter_mut().enumerate() {
                let mut lanes = *sums;
                for (row, &weight) in values.chunks(width.max(1)).zip(weights) {
                    for (sum, &y) in lanes.iter_mut().zip(&row[block * LANES..][..LANES]) {
                        *sum = sum.add(weight.mul(y));
                    }
                }
                *sums = lanes;
            }
            if !rest.is_empty() {
                for (row, &weight) in values.chunks(width.max(1)).zip(weights) {
                    for (sum, &y) in rest.iter_mut().zip(&row[width - width % LANES..]) {
                        *sum = sum.add(weight.mul(y));
                    }
                }
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::ops::attention::AttentionOptions;
    use congruent_backend_api::{View, bf16};

    use congruent_backend_api::Storage as _;

    use super::*;
    use crate::testing::{Tensor, on_any_threads, output, tensor};

    fn attend(q: &Tensor, k: &Tensor, v: &Tensor, options: AttentionOptions) -> Tensor {
        let op = AttentionOp::Output;
        let shape = Attention::shape(op, &q.shape(), &k.shape(), &v.shape()).unwrap();
        let mut out = output(q.storage.dtype(), &shape);
        let target = View { dtype: q.storage.dtype(), layout: &out.layout };
        let inputs = AttentionInputs::new(q, k, v);
        let plan = Attention::new(op, inputs.map(|tensor| tensor.view()), options, target).unwrap();
        Cpu::new().attention(&plan, inputs.map(|tensor| &tensor.storage), &mut out.storage).unwrap();
        out
    }

    fn numbers(shape: [usize; 4], step: usize) -> Tensor {
        let count = shape.iter().product();
        let numbers: Vec<f32> = (0..count).map(|index| ((index * step) % 23) as f32 / 8.0 - 1.0).collect();
        tensor(&shape, &numbers)
    }

    #[test]
    fn the_same_bits_on_any_number_of_threads() {
        let (q, k, v) = (numbers([2, 4, 70, 33], 7), numbers([2, 2, 90, 33], 5), numbers([2, 2, 90, 40], 11));
        let options = AttentionOptions { causal: true, ..Default::default() };
        let got: Vec<f32> = on_any_threads(|| attend(&q, &k, &v, options).elements());
        assert!(got.iter().all(|y| y.is_finite()));
    }

    #[test]
    fn scores_and_exponentials_of_halves_are_not_rounded() {
        // A sum of ones in bf16 would stop at 256.
        let (q, k) = (tensor(&[1, 1, 1, 1], &[bf16::ZERO]), tensor(&[1, 1, 1024, 1], &[bf16::ONE; 1024]));
        let v = tensor(&[1, 1, 1024, 1], &[bf16::ONE; 1024]);
        assert_eq!(attend(&q, &k, &v, AttentionOptions::default()).elements::<bf16>(), [bf16::ONE]);
    }
}
