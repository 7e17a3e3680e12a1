//! Convolutions in which a channel of the result meets one channel, and no others: whole rows, times a weight, are added to rows
//! of the result, tap by tap.

use ndarray::LinalgScalar;
use rayon::prelude::*;

use super::Job;
use super::columns::{spatial, start};
use crate::lane::Lane;
use crate::math::Real;

/// The elements of a row of the result and of the input that a tap joins.
struct Reach {
    /// Along the first two axes.
    tap: [usize; 2],
    weight: usize,
    to: usize,
    from: usize,
    len: usize,
}

impl<T: Lane<Wide: Real + LinalgScalar>> Job<'_, T> {
    /// A piece is a channel of a batch. Padding is left out: its terms are zeros, where weights are finite.
    pub(super) fn depthwise(&self, back: bool, out: &mut [T]) {
        let geometry = self.geometry;
        let (size, in_group) =
            if back { (geometry.space(), geometry.inputs) } else { (geometry.positions(), geometry.outputs) };
        let channels = geometry.groups * in_group;
        let width = if back { geometry.x[2] } else { geometry.y[2] };
        let taps = geometry.taps();
        let reaches: Vec<Reach> = (geometry.kernel().enumerate())
            .filter_map(|(weight, tap)| {
                let columns = geometry.reach(2, tap[2]);
                let place = geometry.meet(2, columns.start, tap[2]).filter(|_| !columns.is_empty())?;
                let (to, from) = if back { (place, columns.start) } else { (columns.start, place) };
                Some(Reach { tap: [tap[0], tap[1]], weight, to, from, len: columns.len() })
            })
            .collect();
        out.par_chunks_exact_mut(size).enumerate().for_each_init(Vec::new, |sums, (piece, out)| {
            let (batch, channel) = geometry.piece(piece, channels);
            let weight = &self.weight[channel * taps..][..taps];
            let bias = self.bias.map_or(T::Wide::default(), |bias| bias[channel]);
            let input = start(self.input.1, [batch, channel / in_group]);
            sums.resize(width, bias);
            for (row, out) in out.chunks_exact_mut(width).enumerate() {
                sums.fill(bias);
                self.row(back, row, input, weight, &reaches, sums);
                out.iter_mut().zip(&*sums).for_each(|(out, &sum)| *out = T::narrow(sum));
            }
        });
    }

    /// Adds up a row of the result.
    fn row(&self, back: bool, row: usize, input: usize, weight: &[T::Wide], reaches: &[Reach], sums: &mut [T::Wide]) {
        let (geometry, (data, layout)) = (self.geometry, self.input);
        let (strides, stride) = (spatial(layout), geometry.stride[2]);
        let rows = if back { geometry.x[1] } else { geometry.y[1] };
        let row = [row / rows, row % rows];
        // From one element of the result, and of the input, to the next.
        let step = if back { stride } else { 1 };
        let apart = if back { strides[2] } else { strides[2].wrapping_mul(stride.cast_signed()) };
        for &Reach { tap, weight: at, to, from, len } in reaches {
            let meets = [0, 1].map(|axis| {
                if back { geometry.met(axis, row[axis], tap[axis]) } else { geometry.meet(axis, row[axis], tap[axis]) }
            });
            let [Some(a), Some(b)] = meets else { continue };
            let weight = weight[at];
            let first = input
                .wrapping_add_signed(a as isize * strides[0] + b as isize * strides[1] + from as isize * strides[2]);
            if step == 1 && apart == 1 {
                let from = &data[first..][..len];
                sums[to..][..len].iter_mut().zip(from).for_each(|(sum, x)| *sum = *sum + weight * x.wide());
                continue;
            }
            for (place, sum) in sums[to..].iter_mut().step_by(step).take(len).enumerate() {
                let x = data[first.wrapping_add_signed((place as isize).wrapping_mul(apart))].wide();
                *sum = *sum + weight * x;
            }
        }
    }
}
