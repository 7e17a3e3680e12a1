//! Attention, in tiles of query rows.
//!
//! Keys and values are first copied to wide elements: keys with the positions innermost, values with the features, so that
//! both products run along memory. A tile of rows then takes its scores against every key that it sees (a block of keys at
//! a time stays in the cache while the rows pass over it), the softmax in two passes, and the sums of values. Memory beside
//! the copies is one tile of scores a thread. A row is computed by one thread, always in the same order.

use bytemuck::allocation::try_zeroed_vec;
use congruent_backend_api::ops::attention::Attention;
use congruent_backend_api::{AttentionOps, DType, Error, ErrorKind, Layout, Result, match_float};

use crate::backend::Cpu;
use crate::lane::{Lane, Number};
use crate::loops::{GRAIN, join};
use crate::math::Real;
use crate::ops::norm::sum;
use crate::storage::CpuStorage;

/// Query rows that share a pass over the keys.
const ROWS: usize = 16;

/// Keys or features whose sums are kept in registers.
const LANES: usize = 32;

/// Keys whose values stay in the cache while the rows of a tile pass over them.
const KEYS: usize = 128;

#[deny(clippy::missing_trait_methods)]
impl AttentionOps for Cpu {
    fn attention(
        &self,
        plan: &Attention,
        q: &CpuStorage,
        k: &CpuStorage,
        v: &CpuStorage,
        mask: Option<&CpuStorage>,
        out: &mut CpuStorage,
    ) -> Result<()> {
        plan.check([q, k, v], mask, out)?;
        match_float!(plan.dtype(), T => run::<T>(plan, [q, k, v], mask, out),
            else => Err(Error::unsupported("cpu", "attention", plan.dtype())))
    }
}

fn run<T: Lane<Wide: Real>>(
    plan: &Attention,
    [q, k, v]: [&CpuStorage; 3],
    mask: Option<&CpuStorage>,
    out: &mut CpuStorage,
) -> Result<()> {
    let layout = plan.layout(0);
    if layout.count() == 0 {
        return Ok(());
    }
    let (keys, depth, width) = (plan.keys(), plan.depth(), plan.width());
    let pairs = plan.batch() * plan.kv_heads();
    let mut columns = zeros::<T::Wide>([pairs, depth, keys])?;
    let mut values = zeros::<T::Wide>([pairs, keys, width])?;
    widen(k.as_slice::<T>(), plan.layout(2), true, &mut columns);
    widen(v.as_slice::<T>(), plan.layout(3), false, &mut values);
    let mask = match (mask, plan.mask()) {
        (Some(mask), Some(DType::Bool)) => Mask::Seen(mask.as_slice::<u8>()),
        (Some(mask), _) => Mask::Added(mask.as_slice::<T>()),
        (None, _) => Mask::None,
    };
    let job = Job { plan, q: q.as_slice::<T>(), columns: &columns, values: &values, mask };
    let target = out.as_mut_slice::<T>();
    if layout.is_contiguous() {
        job.compute(0, &mut target[layout.offset()..][..layout.count()]);
        return Ok(());
    }
    let mut results = zeros::<T>([layout.count(), 1, 1])?;
    job.compute(0, &mut results);
    for (row, results) in results.chunks_exact(width).enumerate() {
        let start = job.start(0, row);
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

/// Copies keys or values of [batch, heads, positions, features] to wide elements, with the last two axes exchanged if
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

#[derive(Clone, Copy)]
enum Mask<'a, T> {
    None,
    /// Nonzero where a query sees a key.
    Seen(&'a [u8]),
    Added(&'a [T]),
}

struct Job<'a, T: Lane> {
    plan: &'a Attention,
    q: &'a [T],
    /// Keys as [batch · kv_heads, depth, keys].
    columns: &'a [T::Wide],
    /// Values as [batch · kv_heads, keys, width].
    values: &'a [T::Wide],
    mask: Mask<'a, T>,
}

impl<T: Lane<Wide: Real>> Job<'_, T> {
    /// Computes the rows of the result from number `first` on; a row is one query of one head.
    fn compute(&self, first: usize, results: &mut [T]) {
        let (queries, width) = (self.plan.queries(), self.plan.width());
        let count = results.len() / width;
        let work = count.saturating_mul(self.plan.keys().max(1)).saturating_mul(self.plan.depth() + width);
        if count > ROWS && work > GRAIN {
            let half = (count / 2).next_multiple_of(ROWS);
            let (left, right) = results.split_at_mut(half * width);
            join((first, left), (first + half, right), |(first, results)| self.compute(first, results));
            return;
        }
        let mut scratch = Scratch {
            query: vec![T::Wide::default(); ROWS * self.plan.depth()],
            scores: vec![T::Wide::default(); ROWS * self.plan.keys()],
            sums: vec![T::Wide::default(); ROWS * width],
        };
        let mut rest = results;
        let mut row = first;
        while !rest.is_empty() {
            // A tile ends where its head does.
            let rows = ROWS.min(queries - row % queries).min(rest.len() / width);
            let (tile, after) = std::mem::take(&mut rest).split_at_mut(rows * width);
            self.tile(row, rows, &mut scratch, tile);
            (rest, row) = (after, row + rows);
        }
    }

    /// Where the first element of a row lies in the storage of an operand that has the rows of the result.
    fn start(&self, operand: usize, row: usize) -> usize {
        let (heads, queries) = (self.plan.heads(), self.plan.queries());
        at(self.plan.layout(operand), [row / queries / heads, row / queries % heads, row % queries, 0])
    }

    fn tile(&self, first: usize, rows: usize, scratch: &mut Scratch<T::Wide>, results: &mut [T]) {
        let plan = self.plan;
        let (keys, depth, width) = (plan.keys(), plan.depth(), plan.width());
        let (head, query) = (first / plan.queries(), first % plan.queries());
        let pair = head / plan.heads() * plan.kv_heads() + head % plan.heads() / plan.group();
        let columns = &self.columns[pair * depth * keys..][..depth * keys];
        let values = &self.values[pair * keys * width..][..keys * width];
        let stride = plan.layout(1).strides()[3];
        for row in 0..rows {
            let start = self.start(1, first + row);
            for feature in 0..depth {
                let place = start.wrapping_add_signed(feature as isize * stride);
                scratch.query[row * depth + feature] = self.q[place].wide();
            }
        }
        let reach = |row: usize| plan.reach(query + row);
        // The last row sees the most.
        let most = reach(rows - 1);
        for block in (0..most).step_by(LANES) {
            let size = LANES.min(most - block);
            for row in 0..rows {
                let query = &scratch.query[row * depth..][..depth];
                products(
                    query,
                    columns.get(block..).unwrap_or_default(),
                    keys,
                    &mut scratch.scores[row * keys + block..][..size],
                );
            }
        }
        for row in 0..rows {
            let scores = &mut scratch.scores[row * keys..][..reach(row)];
            self.finish_scores(first + row, scores);
        }
        let sums = &mut scratch.sums[..rows * width];
        sums.fill(T::Wide::default());
        for block in (0..most).step_by(KEYS) {
            for row in 0..rows {
                let end = reach(row).min(block + KEYS);
                if block < end {
                    let weights = &scratch.scores[row * keys..][block..end];
                    accumulate(weights, &values[block * width..], &mut sums[row * width..][..width]);
                }
            }
        }
        for (row, (sums, results)) in sums.chunks_exact(width).zip(results.chunks_exact_mut(width)).enumerate() {
            let total = sum(&scratch.scores[row * keys..][..reach(row)]);
            let blind = total == T::Wide::default();
            for (result, &sum) in results.iter_mut().zip(sums) {
                *result = if blind { T::default() } else { T::narrow(sum.div(total)) };
            }
        }
    }

    /// Scales and masks the products of a row, and takes the exponentials less their maximum. NaN is skipped by the search
    /// for it, but what is subtracted from NaN stays NaN.
    fn finish_scores(&self, row: usize, scores: &mut [T::Wide]) {
        let scale = T::Wide::from_f64(self.plan.scale());
        scores.iter_mut().for_each(|score| *score = score.mul(scale));
        let (start, stride) = (self.start(4, row), self.plan.layout(4).strides()[3]);
        let place = |key: usize| start.wrapping_add_signed(key as isize * stride);
        match self.mask {
            Mask::None => {}
            Mask::Seen(seen) => {
                for (key, score) in scores.iter_mut().enumerate() {
                    if seen[place(key)] == 0 {
                        *score = T::Wide::LEAST;
                    }
                }
            }
            Mask::Added(addends) => {
                for (key, score) in scores.iter_mut().enumerate() {
                    *score = score.add(addends[place(key)].wide());
                }
            }
        }
        let max = scores.iter().fold(T::Wide::LEAST, |max, &score| if score > max { score } else { max });
        let shift = if max == T::Wide::LEAST { T::Wide::default() } else { max };
        scores.iter_mut().for_each(|score| *score = score.sub(shift).exp());
    }
}

/// What the tiles of a thread share.
struct Scratch<W> {
    query: Vec<W>,
    scores: Vec<W>,
    sums: Vec<W>,
}

/// The products of a query with at most [`LANES`] neighbouring keys; the keys of a feature lie `stride` apart.
fn products<W: Real>(query: &[W], columns: &[W], stride: usize, scores: &mut [W]) {
    let mut sums = [W::default(); LANES];
    for (feature, &x) in query.iter().enumerate() {
        let keys = &columns[feature * stride..][..scores.len()];
        if let Ok(keys) = <&[W; LANES]>::try_from(keys) {
            sums.iter_mut().zip(keys).for_each(|(sum, &y)| *sum = sum.add(x.mul(y)));
        } else {
            sums.iter_mut().zip(keys).for_each(|(sum, &y)| *sum = sum.add(x.mul(y)));
        }
    }
    scores.copy_from_slice(&sums[..scores.len()]);
}

/// Adds the weighted rows of values to `sums`.
fn accumulate<W: Real>(weights: &[W], values: &[W], sums: &mut [W]) {
    let width = sums.len();
    for (block, sums) in sums.chunks_mut(LANES).enumerate() {
        let mut lanes = [W::default(); LANES];
        lanes[..sums.len()].copy_from_slice(sums);
        for (key, &weight) in weights.iter().enumerate() {
            let row = &values[key * width + block * LANES..][..sums.len()];
            if let Ok(row) = <&[W; LANES]>::try_from(row) {
                lanes.iter_mut().zip(row).for_each(|(sum, &y)| *sum = sum.add(weight.mul(y)));
            } else {
                lanes.iter_mut().zip(row).for_each(|(sum, &y)| *sum = sum.add(weight.mul(y)));
            }
        }
        sums.copy_from_slice(&lanes[..sums.len()]);
    }
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::ops::attention::AttentionOptions;
    use congruent_backend_api::{View, bf16};

    use congruent_backend_api::Storage as _;

    use super::*;
    use crate::testing::{Tensor, on_any_threads, output, tensor};

    fn attend(q: &Tensor, k: &Tensor, v: &Tensor, options: AttentionOptions) -> Tensor {
        let shape = Attention::shape(&q.shape(), &k.shape(), &v.shape()).unwrap();
        let mut out = output(q.storage.dtype(), &shape);
        let target = View { dtype: q.storage.dtype(), layout: &out.layout };
        let plan = Attention::new(q.view(), k.view(), v.view(), None, options, target).unwrap();
        Cpu::new().attention(&plan, &q.storage, &k.storage, &v.storage, None, &mut out.storage).unwrap();
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
        let options = AttentionOptions { causal: true, scale: None };
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
