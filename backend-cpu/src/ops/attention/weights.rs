//! From the products of a row to its weights: soft cap, slopes, mask, exponentials, dropout, and what gradients make of them.

use std::ops::Range;

use congruent_backend_api::ops::attention::{Attention, AttentionOp};
use congruent_backend_api::ops::random::philox;
use congruent_backend_api::{DType, Layout};

use super::at;
use crate::lane::{Lane, Number};
use crate::math::Real;
use crate::ops::norm::sum;
use crate::storage::CpuStorage;

#[derive(Clone, Copy)]
enum Mask<'a, T> {
    None,
    /// Nonzero where a query sees a key.
    Seen(&'a [u8]),
    Added(&'a [T]),
}

/// Operands that have no features.
pub(super) struct Weights<'a, T: Lane> {
    plan: &'a Attention,
    mask: Mask<'a, T>,
    slopes: &'a [T::Wide],
    lengths: &'a [i64],
    logsumexp: &'a [T::Wide],
    delta: &'a [T::Wide],
}

impl<'a, T: Lane<Wide: Real>> Weights<'a, T> {
    pub(super) fn new(plan: &'a Attention, inputs: [Option<&'a CpuStorage>; 9]) -> Self {
        let wide = |operand: usize| inputs[operand - 1].map_or(&[][..], |storage| storage.as_slice::<T::Wide>());
        let mask = match (inputs[3], plan.mask()) {
            (Some(mask), Some(DType::Bool)) => Mask::Seen(mask.as_slice::<u8>()),
            (Some(mask), _) => Mask::Added(mask.as_slice::<T>()),
            (None, _) => Mask::None,
        };
        let lengths = inputs[5].map_or(&[][..], |storage| storage.as_slice::<i64>());
        Self { plan, mask, slopes: wide(5), lengths, logsumexp: wide(8), delta: wide(9) }
    }

    fn keys(&self, batch: usize) -> usize {
        let layout = self.plan.layout(6);
        if self.plan.operand(6).is_none() {
            return self.plan.keys();
        }
        let length = self.lengths[layout.offset().wrapping_add_signed(batch as isize * layout.strides()[0])];
        length.clamp(0, self.plan.keys() as i64) as usize
    }

    /// The columns that a row sees, but for the mask.
    pub(super) fn seen(&self, by_query: bool, batch: usize, row: usize) -> Range<usize> {
        let (band, keys) = (self.plan.band(), self.keys(batch));
        if by_query { band.keys(row, keys) } else { band.queries(row, keys) }
    }

    /// The last of `rows` rows from `first` on that is a query or a key of its batch item; 0 where none is.
    pub(super) fn present(&self, by_query: bool, batch: usize, first: usize, rows: usize) -> usize {
        let count = if by_query { self.plan.queries() } else { self.keys(batch) };
        count.saturating_sub(first).clamp(1, rows) - 1
    }

    /// Makes the products of a row, from a column on, into what weights the columns. Returns the sum of the exponentials,
    /// or the log-sum-exp where that is asked for. `second` has the gradients of the weights, `slope` is room.
    pub(super) fn make(
        &self,
        by_query: bool,
        [batch, head, row, first]: [usize; 4],
        scores: &mut [T::Wide],
        second: &mut [T::Wide],
        slope: &mut [T::Wide],
    ) -> T::Wide {
        let (plan, zero) = (self.plan, T::Wide::default());
        let place = |column: usize| if by_query { [row, first + column] } else { [first + column, row] };
        let scale = T::Wide::from_f64(plan.scale());
        scores.iter_mut().for_each(|score| *score = score.mul(scale));
        if let Some(cap) = plan.soft_cap() {
            let cap = T::Wide::from_f64(cap);
            scores.iter_mut().for_each(|score| *score = score.div(cap).tanh());
            slope.iter_mut().zip(&*scores).for_each(|(slope, tanh)| *slope = T::Wide::from_f64(1.0).sub(tanh.square()));
            scores.iter_mut().for_each(|score| *score = score.mul(cap));
        }
        if plan.operand(5).is_some() {
            let (layout, shift) = (plan.layout(5), plan.band().shift(self.keys(batch)));
            let at = [batch, head].into_iter().zip(layout.strides()).map(|(index, stride)| index as isize * stride);
            let slope = self.slopes[layout.offset().wrapping_add_signed(at.sum())];
            for (column, score) in scores.iter_mut().enumerate() {
                let [query, key] = place(column);
                let distance = (query as isize + shift).abs_diff(key as isize);
                *score = score.sub(slope.mul(T::Wide::from_i64(distance as i64)));
            }
        }
        self.apply_mask([batch, head], place, scores);
        let of_query = |values: &[T::Wide], operand: usize, column: usize| {
            let layout = plan.layout(operand);
            let index = [batch, head, place(column)[0]].into_iter().zip(layout.strides());
            values[layout.offset().wrapping_add_signed(index.map(|(index, stride)| index as isize * stride).sum())]
        };
        if plan.op().is_gradient() {
            for (column, score) in scores.iter_mut().enumerate() {
                let logsumexp = of_query(self.logsumexp, 8, column);
                let blind = logsumexp == T::Wide::LEAST;
                *score = if blind { T::Wide::LEAST } else { score.sub(logsumexp) };
            }
            scores.iter_mut().for_each(|score| *score = score.exp());
            if plan.op() == AttentionOp::GradValue {
                self.drop_out([batch, head], place, scores);
                return zero;
            }
            self.drop_out([batch, head], place, second);
            for (column, (score, second)) in scores.iter_mut().zip(second).enumerate() {
                *score = score.mul(second.sub(of_query(self.delta, 9, column)));
            }
            if plan.soft_cap().is_some() {
                scores.iter_mut().zip(slope).for_each(|(score, slope)| *score = score.mul(*slope));
            }
            return zero;
        }
        // NaN is skipped by the search for the maximum, but what is subtracted from NaN stays NaN.
        let max = scores.iter().fold(T::Wide::LEAST, |max, &score| if score > max { score } else { max });
        let shift = if max == T::Wide::LEAST { zero } else { max };
        scores.iter_mut().for_each(|score| *score = score.sub(shift).exp());
        let total = sum(scores);
        if plan.op() == AttentionOp::LogSumExp {
            return total.ln().add(shift);
        }
        self.drop_out([batch, head], place, scores);
        total
    }

    fn apply_mask(&self, [batch, head]: [usize; 2], place: impl Fn(usize) -> [usize; 2], scores: &mut [T::Wide]) {
        let layout: &Layout = self.plan.layout(4);
        let start = || {
            let [query, key] = place(0);
            at(layout, [batch, head, query, key])
        };
        let stride = || {
            let [[query, key], [next_query, next_key]] = [place(0), place(1)];
            let (queries, keys) = ((next_query - query) as isize, (next_key - key) as isize);
            queries * layout.strides()[2] + keys * layout.strides()[3]
        };
        match self.mask {
            Mask::None => {}
            Mask::Seen(seen) => {
                let (start, stride) = (start(), stride());
                for (column, score) in scores.iter_mut().enumerate() {
                    if seen[start.wrapping_add_signed(column as isize * stride)] == 0 {
                        *score = T::Wide::LEAST;
                    }
                }
            }
            Mask::Added(addends) => {
                let (start, stride) = (start(), stride());
                for (column, score) in scores.iter_mut().enumerate() {
                    *score = score.add(addends[start.wrapping_add_signed(column as isize * stride)].wide());
                }
            }
        }
    }

    /// Multiplies what belongs to the columns of a row with what dropout makes of their weights.
    fn drop_out(&self, [batch, head]: [usize; 2], place: impl Fn(usize) -> [usize; 2], columns: &mut [T::Wide]) {
        let Some(dropout) = self.plan.dropout() else { return };
        let kept = T::Wide::from_f64(1.0 / (1.0 - dropout.probability));
        let threshold = (dropout.probability * 4_294_967_296.0).round_ties_even() as u64;
        let (mut block, mut words) = (None, [0; 4]);
        for (column, value) in columns.iter_mut().enumerate() {
            let [query, key] = place(column);
            let row = ((batch * self.plan.heads() + head) * self.plan.queries() + query) as u64;
            let word = dropout.offset.wrapping_add(row.wrapping_mul(self.plan.keys() as u64)).wrapping_add(key as u64);
            let counter = word / 4;
            if block != Some(counter) {
                (block, words) = (Some(counter), philox([counter as u32, (counter >> 32) as u32, 0, 0], dropout.seed));
            }
            let left_out = u64::from(words[(word % 4) as usize]) < threshold;
            *value = if left_out { T::Wide::default() } else { value.mul(kept) };
        }
    }
}
