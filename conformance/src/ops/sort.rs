//! Sorting, the first k, and searches in sorted rows: all exact.
//!
//! The oracle is the stable insertion sort of a row by the contract's order, written as the standard library's stable
//! sort with a comparison of values, and a count of the elements before a value.

use std::cmp::Ordering;

use congruent_backend_api::ops::sort::SortOp;
use congruent_backend_api::{DType, Scalar};
use proptest::prelude::*;

use crate::case::{Call, Case, Input, poisoned};
use crate::expect::Expect;
use crate::host::{HostTensor, decode, positions};
use crate::ops::{host, layout};
use crate::spec::{Draw, placement, shape, size, tensor};
use crate::values::Class;

const CLASSES: &[Class] = &[
    // The covering array runs them in this order: what breaks most backends comes first.
    Class::Ties,
    Class::Specials,
    Class::Uniform,
    Class::FullRange,
    Class::Rising,
    Class::Constant,
    Class::SmallInts,
    Class::Sparse,
    Class::Tiny,
    Class::WideExponent,
    Class::Cancelling,
];

/// Generated sorts.
pub fn sorts(op: SortOp, dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    let numbers = (any::<u8>(), any::<bool>(), any::<u64>().no_shrink(), 0..=4_usize);
    (shape(draw.scaled(4), 5), tensor(draw, CLASSES), placement(), numbers)
        .prop_map(move |(mut shape, spec, placement, (axis, descending, seed, quarters))| {
            if shape.is_empty() {
                shape.push(3);
            }
            let axis = usize::from(axis) % shape.len();
            let x = host(&spec, dtype, &shape, seed, 0);
            if op == SortOp::Topk {
                // None, about some quarters, all; of long rows also few.
                let len = shape[axis];
                shape[axis] = if quarters == 1 { len.min(5) } else { len * quarters / 4 };
            }
            let out = poisoned(op.out_dtype(dtype), layout(&placement, &shape), seed);
            // Every other axis is counted from the end.
            let axis = axis as isize - if axis % 2 == 1 { shape.len() as isize } else { 0 };
            Case { call: Call::Sort { op, axis, descending }, inputs: vec![Input::Tensor(x)], out }
        })
        .boxed()
}

/// Generated searches.
pub fn searches(dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    let operands = (tensor(draw, CLASSES), tensor(draw, CLASSES));
    (shape(draw, 4), size(), operands, placement(), any::<bool>(), any::<bool>(), any::<u64>().no_shrink())
        .prop_map(move |(shape, len, (rows, spec), placement, shared, right, seed)| {
            let batch = rows.shape(&shape[..shape.len().saturating_sub(1)]);
            let sizes = if shared { vec![len] } else { [&batch[..], &[len]].concat() };
            let mut sorted = host(&rows, dtype, &sizes, seed, 0);
            sort_rows(&mut sorted);
            // The values come from the same hash as the rows, so that some are equal.
            let values = host(&spec, dtype, &shape, seed, 0);
            let out = poisoned(DType::I64, layout(&placement, &shape), seed);
            Case { call: Call::SearchSorted { right }, inputs: vec![Input::Tensor(sorted), Input::Tensor(values)], out }
        })
        .boxed()
}

/// What each element of a sort may be.
#[must_use]
pub fn expect(op: SortOp, axis: isize, descending: bool, case: &Case) -> Vec<Expect> {
    let Some(x) = case.tensor(0) else { return Vec::new() };
    let axis = axis.rem_euclid(x.layout.rank() as isize) as usize;
    let rows: Vec<Vec<u64>> = rows(x, axis)
        .into_iter()
        .map(|row| {
            let mut order: Vec<usize> = (0..row.len()).collect();
            order.sort_by(|&a, &b| {
                let order = compare(decode(x.dtype, row[a]), decode(x.dtype, row[b]));
                if descending { order.reverse() } else { order }
            });
            let bits = |at: usize| if op == SortOp::Sort { row[at] } else { at as u64 };
            order.into_iter().map(bits).collect()
        })
        .collect();
    let shape = case.out.layout.shape();
    let inner: usize = shape[axis + 1..].iter().product();
    (0..shape.count())
        .map(|index| {
            let (place, row) = (index / inner % shape[axis], index / inner / shape[axis] * inner + index % inner);
            Expect::Bits(rows[row][place])
        })
        .collect()
}

/// What each place found may be.
#[must_use]
pub fn expect_places(right: bool, case: &Case) -> Vec<Expect> {
    let (Some(sorted), Some(values)) = (case.tensor(0), case.tensor(1)) else { return Vec::new() };
    let (rank, shape) = (sorted.layout.rank(), values.layout.shape());
    let rows = rows(sorted, rank - 1);
    let last = shape.last().copied().unwrap_or(1).max(1);
    values
        .view_bits()
        .into_iter()
        .enumerate()
        .map(|(index, bits)| {
            let value = decode(values.dtype, bits);
            let row = &rows[row_of(&sorted.layout.shape()[..rank - 1], shape, index / last)];
            let before = |&&x: &&u64| match compare(decode(sorted.dtype, x), value) {
                Ordering::Less => true,
                Ordering::Equal => right,
                Ordering::Greater => false,
            };
            Expect::Bits(row.iter().filter(before).count() as u64)
        })
        .collect()
}

/// The order of the contract.
pub(crate) fn compare(a: Scalar, b: Scalar) -> Ordering {
    match (a, b) {
        (Scalar::Float(a), Scalar::Float(b)) => {
            a.is_nan().cmp(&b.is_nan()).then_with(|| a.partial_cmp(&b).unwrap_or(Ordering::Equal))
        }
        (a, b) => a.to_i64().cmp(&b.to_i64()),
    }
}

/// The bits of each row along an axis, the rows in row-major order.
fn rows(x: &HostTensor, axis: usize) -> Vec<Vec<u64>> {
    let shape = x.layout.shape();
    let inner: usize = shape[axis + 1..].iter().product();
    let count: usize = shape[..axis].iter().product::<usize>() * inner;
    let mut rows = vec![Vec::new(); count];
    for (index, bits) in x.view_bits().into_iter().enumerate() {
        rows[index / inner / shape[axis] * inner + index % inner].push(bits);
    }
    rows
}

/// The number of the row that broadcasts to a batch of the values.
fn row_of(rows: &[usize], values: &[usize], mut batch: usize) -> usize {
    let (mut row, mut step) = (0, 1);
    let batches = &values[..values.len().saturating_sub(1)];
    let missing = batches.len().saturating_sub(rows.len());
    for axis in (0..batches.len()).rev() {
        let coordinate = batch % batches[axis];
        batch /= batches[axis];
        if axis >= missing {
            let size = rows[axis - missing];
            row += if size == 1 { 0 } else { coordinate * step };
            step *= size;
        }
    }
    row
}

/// Sorts a tensor along its last axis, where its elements lie.
pub(crate) fn sort_rows(x: &mut HostTensor) {
    let len = x.layout.shape().last().copied().unwrap_or(0).max(1);
    for row in positions(&x.layout).chunks(len) {
        let mut bits: Vec<u64> = row.iter().map(|&at| x.bits(at)).collect();
        bits.sort_by(|&a, &b| compare(decode(x.dtype, a), decode(x.dtype, b)));
        for (&at, bits) in row.iter().zip(bits) {
            x.set_bits(at, bits);
        }
    }
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::{Layout, Shape};

    use super::*;

    fn tensor(sizes: &[usize], values: &[f32]) -> HostTensor {
        let layout = Layout::contiguous(Shape::new("test", sizes).unwrap());
        HostTensor { dtype: DType::F32, layout, bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect() }
    }

    fn case(inputs: &[HostTensor], out: &[usize]) -> Case {
        let layout = Layout::contiguous(Shape::new("test", out).unwrap());
        let out = poisoned(DType::I64, (layout, layout.count()), 0);
        Case { call: Call::Copy, inputs: inputs.iter().cloned().map(Input::Tensor).collect(), out }
    }

    fn places(expected: Vec<Expect>) -> Vec<u64> {
        expected.into_iter().map(|expect| if let Expect::Bits(bits) = expect { bits } else { u64::MAX }).collect()
    }

    #[test]
    fn orders_are_stable_in_both_directions() {
        let x = tensor(&[5, 1], &[0.0, f32::NAN, -0.0, -1.0, f32::INFINITY]);
        let order =
            |descending, k| places(expect(SortOp::Argsort, 0, descending, &case(std::slice::from_ref(&x), &[k, 1])));
        assert_eq!(order(false, 5), [3, 0, 2, 4, 1]);
        assert_eq!(order(true, 5), [1, 4, 0, 2, 3]);
        assert_eq!(order(true, 2), [1, 4]);
    }

    #[test]
    fn every_axis_has_its_rows() {
        let x = tensor(&[2, 3], &[3.0, 1.0, 2.0, 0.0, 5.0, 1.0]);
        let order = |axis| places(expect(SortOp::Argsort, axis, false, &case(std::slice::from_ref(&x), &[2, 3])));
        assert_eq!(order(0), [1, 0, 1, 0, 1, 0]);
        assert_eq!(order(-1), [1, 2, 0, 0, 2, 1]);
    }

    #[test]
    fn places_are_counts_in_the_row_of_the_batch() {
        let rows = tensor(&[2, 1, 3], &[1.0, 2.0, 2.0, 0.0, 5.0, f32::NAN]);
        let values = tensor(&[2, 2, 1], &[2.0, f32::NAN, 5.0, f32::NAN]);
        let found = |right| places(expect_places(right, &case(&[rows.clone(), values.clone()], &[2, 2, 1])));
        assert_eq!(found(false), [1, 3, 1, 2]);
        assert_eq!(found(true), [3, 3, 2, 3]);
    }
}
