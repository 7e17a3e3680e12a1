//! Sorting and searching along an axis.
//!
//! Elements are compared by [keys](Ordered::key): unsigned integers whose order is the contract's, complemented for a
//! descending order. A row that is not contiguous is gathered first; how one is ordered is in `order.rs`.

use congruent_backend_api::ops::sort::{SearchSorted, Sort, SortOp};
use congruent_backend_api::{Result, SortOps, match_number};
use ndarray::{ArrayView1, ArrayViewD, ArrayViewMutD, Axis, IxDyn, ShapeBuilder, Zip};

use super::order::{Key, Ordered, Position, reserve, select, sort_items};
use crate::backend::Cpu;
use crate::lane::Lane;
use crate::loops::{GRAIN, both, invalid_view, view, view_mut};
use crate::storage::CpuStorage;

#[deny(clippy::missing_trait_methods)]
impl SortOps for Cpu {
    fn sort(&self, plan: &Sort, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
        plan.check(x, out)?;
        if plan.rows().count() == 0 || plan.taken() == 0 {
            return Ok(());
        }
        // A bool is ordered as the byte 0 or 1.
        match_number!(plan.dtype(), T => sort::<T>(plan, x, out), else => sort::<u8>(plan, x, out))
    }

    fn search_sorted(
        &self,
        plan: &SearchSorted,
        sorted: &CpuStorage,
        values: &CpuStorage,
        out: &mut CpuStorage,
    ) -> Result<()> {
        plan.check(sorted, values, out)?;
        match_number!(plan.dtype(), T => search::<T>(plan, sorted, values, out),
            else => search::<u8>(plan, sorted, values, out))
    }
}

fn sort<T: Ordered>(plan: &Sort, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
    let flip = if plan.descending() { T::Key::ALL_BITS } else { T::Key::ZERO };
    let x = rows_view(plan, x.as_slice::<T>())?;
    if plan.op() == SortOp::Sort {
        let key = |x: &T| x.key() ^ flip;
        return for_each_row(x, rows_view_mut(plan, out.as_mut_slice())?, &|x: &[T], out: &mut [T], spare| {
            out.copy_from_slice(x);
            sort_items(out, spare, &key)
        });
    }
    let out = rows_view_mut(plan, out.as_mut_slice())?;
    match (u32::try_from(plan.len()), plan.op()) {
        (Ok(_), SortOp::Topk) => topk::<T, u32>(x, out, flip),
        (Err(_), SortOp::Topk) => topk::<T, u64>(x, out, flip),
        (Ok(_), _) => argsort::<T, u32>(x, out, flip),
        (Err(_), _) => argsort::<T, u64>(x, out, flip),
    }
}

fn argsort<T: Ordered, P: Position>(x: ArrayViewD<'_, T>, out: ArrayViewMutD<'_, i64>, flip: T::Key) -> Result<()> {
    for_each_row(x, out, &|x: &[T], out: &mut [i64], (items, spare): &mut (Vec<_>, Vec<_>)| {
        reserve(items, x.len())?;
        items.clear();
        items.extend(x.iter().enumerate().map(|(index, x)| (x.key() ^ flip, P::new(index))));
        sort_items(items, spare, &|item: &(T::Key, P)| item.0)?;
        for (out, item) in out.iter_mut().zip(items) {
            *out = item.1.index();
        }
        Ok(())
    })
}

fn topk<T: Ordered, P: Position>(x: ArrayViewD<'_, T>, out: ArrayViewMutD<'_, i64>, flip: T::Key) -> Result<()> {
    for_each_row(x, out, &|x: &[T], out: &mut [i64], _: &mut ()| {
        let mut best = select::<T, P>(x, 0, out.len(), flip)?;
        best.sort_unstable();
        for (out, item) in out.iter_mut().zip(best) {
            *out = item.1.index();
        }
        Ok(())
    })
}

fn search<T: Ordered>(
    plan: &SearchSorted,
    sorted: &CpuStorage,
    values: &CpuStorage,
    out: &mut CpuStorage,
) -> Result<()> {
    let nest = plan.nest();
    let mut out = view_mut(nest, 0, out.as_mut_slice::<i64>())?;
    if plan.is_empty() {
        out.fill(0);
        return Ok(());
    }
    if nest.count() == 0 {
        return Ok(());
    }
    let values = view(nest, 1, values.as_slice::<T>())?;
    let (sizes, strides) = with_row(nest.sizes(), nest.strides(2), plan.len(), plan.stride());
    let data = &sorted.as_slice::<T>()[lowest(&sizes, &strides, nest.offset(2))..];
    let rows = ArrayViewD::from_shape(IxDyn(&sizes).strides(IxDyn(&unsigned_strides(&strides))), data)
        .map_err(invalid_view)?;
    search_rows(out, values, rows, plan.right());
    Ok(())
}

fn search_rows<T: Ordered>(
    mut out: ArrayViewMutD<'_, i64>,
    values: ArrayViewD<'_, T>,
    rows: ArrayViewD<'_, T>,
    right: bool,
) {
    if out.len() > GRAIN / 8
        && let Some(axis) = out.shape().iter().position(|&size| size > 1)
    {
        let at = out.shape()[axis] / 2;
        let axis = Axis(axis);
        let (out, values, rows) = (out.split_at(axis, at), values.split_at(axis, at), rows.split_at(axis, at));
        both(|| search_rows(out.0, values.0, rows.0, right), || search_rows(out.1, values.1, rows.1, right));
        return;
    }
    let last = Axis(rows.ndim() - 1);
    Zip::from(&mut out).and(&values).and(rows.lanes(last)).for_each(|out, value, row| {
        *out = places_before(row, value.key(), right) as i64;
    });
}

/// How many elements of a sorted row come before a key.
fn places_before<T: Ordered>(row: ArrayView1<'_, T>, key: T::Key, right: bool) -> usize {
    let before = |x: &T| x.key() < key || right && x.key() == key;
    if let Some(row) = row.as_slice() {
        return row.partition_point(before);
    }
    let (mut low, mut high) = (0, row.len());
    while low < high {
        let middle = low.midpoint(high);
        if before(&row[middle]) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Calls `f` with each row of `x` and of `out`, in parallel, with scratch memory that one thread keeps.
fn for_each_row<T: Lane, R: Lane, S: Default>(
    x: ArrayViewD<'_, T>,
    mut out: ArrayViewMutD<'_, R>,
    f: &(impl Fn(&[T], &mut [R], &mut S) -> Result<()> + Sync),
) -> Result<()> {
    let last = x.ndim() - 1;
    if x.len() > GRAIN
        && let Some(axis) = x.shape()[..last].iter().position(|&size| size > 1)
    {
        let at = x.shape()[axis] / 2;
        let (x, out) = (x.split_at(Axis(axis), at), out.split_at(Axis(axis), at));
        let (left, right) = both(|| for_each_row(x.0, out.0, f), || for_each_row(x.1, out.1, f));
        return left.and(right);
    }
    let (mut scratch, mut gathered, mut results) = (S::default(), Vec::new(), Vec::new());
    for (x, mut out) in x.lanes(Axis(last)).into_iter().zip(out.lanes_mut(Axis(last))) {
        let x = match x.as_slice() {
            Some(x) => x,
            None => {
                reserve(&mut gathered, x.len())?;
                gathered.clear();
                gathered.extend(x.iter().copied());
                &gathered
            }
        };
        if let Some(out) = out.as_slice_mut() {
            f(x, out, &mut scratch)?;
            continue;
        }
        reserve(&mut results, out.len())?;
        results.resize(out.len(), R::default());
        f(x, &mut results, &mut scratch)?;
        out.iter_mut().zip(&results).for_each(|(out, &result)| *out = result);
    }
    Ok(())
}

/// The input of a plan: the axes of its rows, then their elements.
fn rows_view<'a, T>(plan: &Sort, data: &'a [T]) -> Result<ArrayViewD<'a, T>> {
    let nest = plan.rows();
    let (sizes, strides) = with_row(nest.sizes(), nest.strides(1), plan.len(), plan.strides()[1]);
    let data = &data[lowest(&sizes, &strides, nest.offset(1))..];
    ArrayViewD::from_shape(IxDyn(&sizes).strides(IxDyn(&unsigned_strides(&strides))), data).map_err(invalid_view)
}

/// The output of a plan, likewise.
fn rows_view_mut<'a, T>(plan: &Sort, data: &'a mut [T]) -> Result<ArrayViewMutD<'a, T>> {
    let nest = plan.rows();
    let (sizes, strides) = with_row(nest.sizes(), nest.strides(0), plan.taken(), plan.strides()[0]);
    let data = &mut data[lowest(&sizes, &strides, nest.offset(0))..];
    ArrayViewMutD::from_shape(IxDyn(&sizes).strides(IxDyn(&unsigned_strides(&strides))), data).map_err(invalid_view)
}

fn with_row(sizes: &[usize], strides: &[isize], len: usize, stride: isize) -> (Vec<usize>, Vec<isize>) {
    ([sizes, &[len]].concat(), [strides, &[stride]].concat())
}

/// ndarray takes a negative stride as its two's complement.
fn unsigned_strides(strides: &[isize]) -> Vec<usize> {
    strides.iter().map(|stride| stride.cast_unsigned()).collect()
}

/// The first element of its storage that a view touches.
fn lowest(sizes: &[usize], strides: &[isize], offset: usize) -> usize {
    sizes
        .iter()
        .zip(strides)
        .fold(offset, |low, (&size, &stride)| low.wrapping_add_signed((size as isize - 1) * stride.min(0)))
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::{DType, Layout, Slice, View, bf16};

    use super::*;
    use crate::testing::{Tensor, on_any_threads, output, tensor, vector};

    fn run(op: SortOp, x: &Tensor, along: isize, descending: bool, k: usize) -> Tensor {
        let mut shape = x.shape();
        let axis = along.rem_euclid(shape.len() as isize) as usize;
        shape[axis] = if op == SortOp::Topk { k } else { shape[axis] };
        let mut out = output(op.out_dtype(x.view().dtype), &shape);
        let plan = Sort::new(op, x.view(), along, descending, out.view()).unwrap();
        Cpu::new().sort(&plan, &x.storage, &mut out.storage).unwrap();
        out
    }

    #[test]
    fn nan_is_greatest_zeros_are_equal_and_bits_are_kept() {
        let nan = f32::from_bits(0xffc0_0123);
        let x = vector(&[0.0, nan, -1.0, -0.0, f32::INFINITY, f32::NAN, f32::NEG_INFINITY]);
        assert_eq!(run(SortOp::Argsort, &x, 0, false, 0).elements::<i64>(), [6, 2, 0, 3, 4, 1, 5]);
        assert_eq!(run(SortOp::Argsort, &x, 0, true, 0).elements::<i64>(), [1, 5, 4, 0, 3, 2, 6]);
        assert_eq!(run(SortOp::Topk, &x, 0, true, 3).elements::<i64>(), [1, 5, 4]);
        let sorted: Vec<u32> =
            run(SortOp::Sort, &x, 0, true, 0).elements::<f32>().iter().map(|x| x.to_bits()).collect();
        assert_eq!((sorted[0], sorted[3], sorted[4]), (0xffc0_0123, 0, 1 << 31));
    }

    /// Every way to sort a row, against a stable sort of the standard library.
    #[test]
    fn all_lengths_and_directions_agree_with_a_plain_sort() {
        for len in [1, 2, 63, 700, 5000, 300_000] {
            let x: Vec<i32> = (0..len).map(|i: i32| (i.wrapping_mul(-1_640_531_527) >> 8) % 1000).collect();
            for descending in [false, true] {
                let mut order: Vec<i64> = (0..i64::from(len)).collect();
                let key = |&at: &i64| if descending { !x[at as usize] } else { x[at as usize] };
                order.sort_by_key(key);
                let tensor = vector(&x);
                let found = on_any_threads(|| run(SortOp::Argsort, &tensor, 0, descending, 0).elements::<i64>());
                assert!(found == order, "{len} {descending}");
                let sorted: Vec<i32> = order.iter().map(|&at| x[at as usize]).collect();
                assert!(run(SortOp::Sort, &tensor, 0, descending, 0).elements::<i32>() == sorted);
                for k in [0, 1, len as usize / 9, len as usize / 2, len as usize] {
                    let found = on_any_threads(|| run(SortOp::Topk, &tensor, 0, descending, k).elements::<i64>());
                    assert!(found == order[..k], "{len} {descending} {k}");
                }
            }
        }
    }

    #[test]
    fn every_axis_and_stride() {
        let x: Vec<bf16> = (0..24).map(|i| bf16::from_f32(((i * 7) % 24) as f32)).collect();
        let x = tensor(&[4, 6], &x).with(|x| x.slice(1, Slice { step: -2, ..Slice::FULL }));
        for (axis, shape) in [(0, [4, 3]), (1, [4, 3])] {
            let mut out = output(DType::BF16, &[3, 4]).with(|out| out.permute(&[1, 0])?.flip(&[0]));
            let plan = Sort::new(SortOp::Sort, x.view(), axis, false, out.view()).unwrap();
            Cpu::new().sort(&plan, &x.storage, &mut out.storage).unwrap();
            let sorted: Vec<f32> = out.elements::<bf16>().iter().map(|x| x.to_f32()).collect();
            let step = if axis == 0 { shape[1] } else { 1 };
            let last = |at: usize| if axis == 0 { at / 3 == 3 } else { at % 3 == 2 };
            assert!((0..12).all(|at| last(at) || sorted[at] <= sorted[at + step]), "{axis} {sorted:?}");
        }
        let mut values = x.elements::<bf16>();
        values.sort_by(bf16::total_cmp);
        let mut sorted = run(SortOp::Sort, &x, 0, true, 0).elements::<bf16>();
        sorted.sort_by(bf16::total_cmp);
        assert_eq!(sorted, values);
    }

    #[test]
    fn searches_count_what_comes_before() {
        let places = |sorted: &Tensor, values: &Tensor, right| {
            let mut out = output(DType::I64, &values.shape());
            let plan = SearchSorted::new(sorted.view(), values.view(), right, out.view()).unwrap();
            Cpu::new().search_sorted(&plan, &sorted.storage, &values.storage, &mut out.storage).unwrap();
            out.elements::<i64>()
        };
        let sorted = vector(&[-1.0, -0.0, 0.0, 2.0, f32::NAN]);
        let values = vector(&[-2.0, 0.0, 2.0, f32::INFINITY, f32::NAN]);
        assert_eq!(places(&sorted, &values, false), [0, 1, 3, 4, 4]);
        assert_eq!(places(&sorted, &values, true), [0, 3, 4, 4, 5]);
        let rows = tensor(&[2, 2], &[1_i64, 3, 2, 4]).with(|rows| rows.permute(&[1, 0]));
        assert_eq!(places(&rows, &tensor(&[2, 2], &[2_i64, 9, 3, 4]), false), [1, 2, 0, 1]);
        let nothing = tensor::<u8>(&[0], &[]);
        assert_eq!(places(&nothing, &vector(&[7_u8, 0]), true), [0, 0]);
    }

    #[test]
    fn empty_and_zero_taken_rows_write_nothing() {
        let none = tensor::<f64>(&[2, 0], &[]);
        assert_eq!(run(SortOp::Sort, &none, 1, false, 0).elements::<f64>(), []);
        assert_eq!(run(SortOp::Sort, &none, 0, false, 0).elements::<f64>(), []);
        let layout = Layout::new("test", &[3], &[0], 0).unwrap();
        let repeated = Tensor { layout, ..vector(&[1_u32]) };
        let view = View { dtype: DType::U32, layout: &repeated.layout };
        assert_eq!(view.layout.count(), 3);
        assert_eq!(run(SortOp::Argsort, &repeated, 0, true, 0).elements::<i64>(), [0, 1, 2]);
    }
}
