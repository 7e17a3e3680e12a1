//! The positions of extremes. Part of the `reduce` family.

use congruent_backend_api::Result;
use congruent_backend_api::ops::reduce::{ArgReduce, ArgReduceOp};

use super::fold::{Fold, Greatest, Least, Scratch, fetch_row, fold_leaf, grouping_stride};
use super::reduce::KeptOrder;
use crate::lane::{Lane, Number};
use crate::loops::{GRAIN, join};
use crate::storage::CpuStorage;

/// The elements whose extreme is found before any position is.
const BLOCK: usize = 512;

pub(super) fn arg_reduce<T: Lane>(plan: &ArgReduce, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
    match plan.op() {
        ArgReduceOp::Argmax => search::<T, Greatest>(plan, x, out),
        ArgReduceOp::Argmin => search::<T, Least>(plan, x, out),
    }
}

/// The extreme whose position is searched.
trait Extreme<T: Number>: Fold<T, Acc = T> {
    /// Whether an element goes before one that precedes it.
    fn wins(new: T, best: T) -> bool;
}

impl<T: Number> Extreme<T> for Greatest {
    fn wins(new: T, best: T) -> bool {
        (new > best || new.is_nan()) && !best.is_nan()
    }
}

impl<T: Number> Extreme<T> for Least {
    fn wins(new: T, best: T) -> bool {
        (new < best || new.is_nan()) && !best.is_nan()
    }
}

fn search<T: Lane, F: Extreme<T::Wide>>(plan: &ArgReduce, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
    let x = x.as_slice::<T>();
    let (len, along) = (plan.len(), plan.stride());
    let order = KeptOrder::new(plan.kept(), grouping_stride(len, along.unsigned_abs()));
    order.for_each_group(len, out, Scratch::<T>::new, &|start, stride, results: &mut [i64], scratch| {
        if let [result] = results {
            let row = Row { x, start, stride: along };
            *result = row.search::<F>(0, len, scratch).1 as i64;
            return;
        }
        let mut best = fetch_row(x, start, stride, results.len(), scratch).to_vec();
        results.fill(0);
        for position in 1..len {
            let row = start.wrapping_add_signed(position as isize * along);
            let row = fetch_row(x, row, stride, results.len(), scratch);
            for ((result, best), &new) in results.iter_mut().zip(&mut best).zip(row) {
                if F::wins(new, *best) {
                    (*result, *best) = (position as i64, new);
                }
            }
        }
    })
}

/// The elements of one search.
struct Row<'a, T: Lane> {
    x: &'a [T],
    start: usize,
    stride: isize,
}

impl<T: Lane> Row<'_, T> {
    /// The extreme among positions `from..to`, of which there is one at least, and its first position.
    fn search<F: Extreme<T::Wide>>(&self, from: usize, to: usize, scratch: &mut Scratch<T>) -> (T::Wide, usize) {
        if to - from > GRAIN {
            let middle = from.midpoint(to);
            let mut found = [(T::Wide::default(), 0); 2];
            let [left, right] = &mut found;
            join((from, middle, left), (middle, to, right), |(from, to, found)| {
                *found = self.search::<F>(from, to, &mut Scratch::new());
            });
            let [left, right] = found;
            return if F::wins(right.0, left.0) { right } else { left };
        }
        let mut best = (self.extreme::<F>(from, to, scratch), from);
        let mut at = from + BLOCK;
        while at < to && !best.0.is_nan() {
            let extreme = self.extreme::<F>(at, to, scratch);
            if F::wins(extreme, best.0) {
                best = (extreme, at);
            }
            at += BLOCK;
        }
        let block = self.block(best.1, to, scratch);
        let first = block.iter().position(|&x| x == best.0 || x.is_nan()).unwrap_or(0);
        (best.0, best.1 + first)
    }

    /// The extreme of the block at `from`; NaN if there is one.
    fn extreme<F: Extreme<T::Wide>>(&self, from: usize, to: usize, scratch: &mut Scratch<T>) -> T::Wide {
        fold_leaf::<_, F>(self.block(from, to, scratch))
    }

    fn block<'s>(&'s self, from: usize, to: usize, scratch: &'s mut Scratch<T>) -> &'s [T::Wide] {
        let start = self.start.wrapping_add_signed(from as isize * self.stride);
        fetch_row(self.x, start, self.stride, BLOCK.min(to - from), scratch)
    }
}
