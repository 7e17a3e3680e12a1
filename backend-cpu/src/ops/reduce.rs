//! Reductions over any set of axes.
//!
//! The results are computed in the order of the kept axes. Where an element's neighbour belongs to another result
//! (a sum of columns), or a result has few elements, a group of results is folded at once, row by row; otherwise each
//! result on its own.

use congruent_backend_api::ops::reduce::{ArgReduce, Reduce, ReduceOp};
use congruent_backend_api::{DType, Error, ErrorKind, Nest, ReduceOps, Result, bf16, f16, match_number};
use ndarray::{ArrayViewD, ArrayViewMutD, IxDyn, ShapeBuilder};

use super::arg_reduce::arg_reduce;
use super::fold::{
    AllNonzero, AnyNonzero, Axes, ExactSum, FloatProd, FloatSum, Fold, Greatest, IntProd, IntSum, Least, Scratch,
    fold_columns, fold_row,
};
use crate::backend::Cpu;
use crate::lane::{Int, Lane};
use crate::loops::{GRAIN, invalid_view, join};
use crate::math::Real;
use crate::storage::CpuStorage;

/// The most results that are folded at once: their accumulators stay in the L1 cache.
const GROUP: usize = 512;

#[deny(clippy::missing_trait_methods)]
impl ReduceOps for Cpu {
    fn reduce(&self, plan: &Reduce, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
        plan.check(x, out)?;
        match plan.dtype() {
            DType::F64 => float::<f64>(plan, x, out),
            DType::F32 => float::<f32>(plan, x, out),
            DType::F16 => float::<f16>(plan, x, out),
            DType::BF16 => float::<bf16>(plan, x, out),
            DType::I64 => int::<i64>(plan, x, out),
            DType::I32 => int::<i32>(plan, x, out),
            DType::U32 => int::<u32>(plan, x, out),
            // Plans leave only `any` and `all` for bool, and these ask for nonzero bytes.
            DType::U8 | DType::Bool => int::<u8>(plan, x, out),
        }
    }

    fn arg_reduce(&self, plan: &ArgReduce, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
        plan.check(x, out)?;
        match_number!(plan.dtype(), T => arg_reduce::<T>(plan, x, out),
            else => Err(Error::unsupported("cpu", plan.op().name(), plan.dtype())))
    }
}

fn float<T: Lane<Wide: Real>>(plan: &Reduce, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
    let count = Axes::new(plan.reduced().sizes(), plan.reduced().strides(0)).count();
    match plan.op() {
        ReduceOp::Mean => reduce::<T, FloatSum, T>(plan, x, out, |sum| {
            // In f64 neither the count nor the quotient is rounded before the one rounding to `T`.
            T::from_f64(sum.cast::<f64>() / count as f64)
        }),
        ReduceOp::Prod => reduce::<T, FloatProd, T>(plan, x, out, T::narrow),
        ReduceOp::Sum if count == 0 => reduce::<T, FloatSum, T>(plan, x, out, |_| T::default()),
        ReduceOp::Sum => reduce::<T, FloatSum, T>(plan, x, out, T::narrow),
        ReduceOp::All | ReduceOp::Any | ReduceOp::Max | ReduceOp::Min => ordered::<T>(plan, x, out),
    }
}

fn int<T: Int>(plan: &Reduce, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
    match plan.op() {
        ReduceOp::Mean => {
            // Without elements there are no results either, and nothing is divided.
            let count = plan.reduced().count().max(1) as i128;
            reduce::<T, ExactSum, T>(plan, x, out, |sum| T::from_i64((sum / count) as i64))
        }
        ReduceOp::Prod => reduce::<T, IntProd, T>(plan, x, out, T::from_i64),
        ReduceOp::Sum => reduce::<T, IntSum, T>(plan, x, out, T::from_i64),
        ReduceOp::All | ReduceOp::Any | ReduceOp::Max | ReduceOp::Min => ordered::<T>(plan, x, out),
    }
}

/// The reductions that only order elements or compare them with zero.
fn ordered<T: Lane>(plan: &Reduce, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
    match plan.op() {
        ReduceOp::All => reduce::<T, AllNonzero, u8>(plan, x, out, u8::from),
        ReduceOp::Any => reduce::<T, AnyNonzero, u8>(plan, x, out, u8::from),
        ReduceOp::Max => reduce::<T, Greatest, T>(plan, x, out, T::narrow),
        ReduceOp::Min => reduce::<T, Least, T>(plan, x, out, T::narrow),
        ReduceOp::Mean | ReduceOp::Prod | ReduceOp::Sum => {
            Err(Error::unsupported("cpu", plan.op().name(), plan.dtype()))
        }
    }
}

fn reduce<T: Lane, F: Fold<T::Wide>, R: Lane>(
    plan: &Reduce,
    x: &CpuStorage,
    out: &mut CpuStorage,
    finish: impl Fn(F::Acc) -> R + Sync,
) -> Result<()> {
    let x = x.as_slice::<T>();
    let axes = Axes::new(plan.reduced().sizes(), plan.reduced().strides(0));
    let order = KeptOrder::new(plan.kept(), axes.grouping_stride());
    order.for_each_group(axes.count(), out, Scratch::<T>::new, &|start, stride, results, scratch| {
        if let [result] = results {
            *result = finish(fold_row::<T, F>(x, start, &axes, scratch));
            return;
        }
        let mut accs = vec![F::identity(); results.len()];
        fold_columns::<T, F>(x, start, stride, &axes, &mut accs, scratch);
        for (result, acc) in results.iter_mut().zip(accs) {
            *result = finish(acc);
        }
    })
}

/// Computes the results of a group; see [`KeptOrder::for_each_group`].
pub(super) type Compute<'f, R, S> = &'f (dyn Fn(usize, isize, &mut [R], &mut S) + Sync);

/// The kept axes of a reduction in the order in which results are computed.
pub(super) struct KeptOrder {
    sizes: Vec<usize>,
    out_strides: Vec<isize>,
    x_strides: Vec<isize>,
    out_offset: usize,
    x_offset: usize,
    /// Whether the results along the last axis are computed in groups.
    grouped: bool,
}

impl KeptOrder {
    /// Groups are results less than `grouping_stride` apart.
    pub(super) fn new(kept: &Nest<2>, grouping_stride: usize) -> Self {
        let mut axes: Vec<_> =
            (0..kept.rank()).map(|axis| (kept.sizes()[axis], kept.strides(0)[axis], kept.strides(1)[axis])).collect();
        let close = |stride: isize| stride != 0 && stride.unsigned_abs() < grouping_stride;
        let closest =
            (0..axes.len()).filter(|&axis| close(axes[axis].2)).min_by_key(|&axis| axes[axis].2.unsigned_abs());
        if let Some(axis) = closest {
            let axis = axes.remove(axis);
            axes.push(axis);
        }
        Self {
            sizes: axes.iter().map(|axis| axis.0).collect(),
            out_strides: axes.iter().map(|axis| axis.1).collect(),
            x_strides: axes.iter().map(|axis| axis.2).collect(),
            out_offset: kept.offset(0),
            x_offset: kept.offset(1),
            grouped: closest.is_some(),
        }
    }

    /// Calls `compute(start, stride, results, scratch)` for groups of results, the first of which begins at element
    /// `start` of the input and the next ones `stride` further each; writes the results to `out`. Each result takes
    /// `work` elements.
    pub(super) fn for_each_group<R: Lane, S>(
        &self,
        work: usize,
        out: &mut CpuStorage,
        scratch: fn() -> S,
        // Behind a pointer, so that the parallel loops exist once per type and not once per reduction.
        compute: Compute<'_, R, S>,
    ) -> Result<()> {
        let count: usize = self.sizes.iter().product();
        if count == 0 {
            return Ok(());
        }
        let out = out.as_mut_slice::<R>();
        if self.is_contiguous() {
            self.compute(work, 0, &mut out[self.out_offset..self.out_offset + count], scratch, compute);
            return Ok(());
        }
        let mut results = bytemuck::allocation::try_zeroed_vec(count).map_err(|()| {
            Error::new(
                ErrorKind::OutOfMemory,
                "reduce",
                format!("a temporary of {count} results could not be allocated"),
            )
        })?;
        self.compute(work, 0, &mut results, scratch, compute);
        let strides: Vec<usize> = self.out_strides.iter().map(|stride| stride.cast_unsigned()).collect();
        let shape = IxDyn(&self.sizes).strides(IxDyn(&strides));
        let results = ArrayViewD::from_shape(IxDyn(&self.sizes), &results).map_err(invalid_view)?;
        ArrayViewMutD::from_shape(shape, &mut out[self.out_offset..]).map_err(invalid_view)?.assign(&results);
        Ok(())
    }

    /// Computes the results from number `first` on.
    fn compute<R: Lane, S>(
        &self,
        work: usize,
        first: usize,
        results: &mut [R],
        scratch: fn() -> S,
        compute: Compute<'_, R, S>,
    ) {
        let (width, stride) = match (self.grouped, self.sizes.last(), self.x_strides.last()) {
            (true, Some(&size), Some(&stride)) => (size, stride),
            _ => (1, 0),
        };
        // Halves are whole rows, or whole groups of one row.
        let unit = if results.len() > width { width } else { GROUP };
        let count = results.len().div_ceil(unit);
        if count > 1 && results.len().saturating_mul(work) > GRAIN {
            let at = count / 2 * unit;
            let (left, right) = results.split_at_mut(at);
            join((first, left), (first + at, right), |(first, results)| {
                self.compute(work, first, results, scratch, compute);
            });
            return;
        }
        let mut scratch = scratch();
        let rows = results.chunks_mut(width).enumerate();
        for (row, results) in rows {
            let first = first + row * width;
            let start = self.start(first / width).wrapping_add_signed((first % width) as isize * stride);
            for (group, results) in results.chunks_mut(GROUP).enumerate() {
                let start = start.wrapping_add_signed((group * GROUP) as isize * stride);
                compute(start, stride, results, &mut scratch);
            }
        }
    }

    /// Where the input begins for a row of results; without groups each result is a row.
    fn start(&self, mut row: usize) -> usize {
        let rank = self.sizes.len() - usize::from(self.grouped);
        let mut start = self.x_offset;
        for axis in (0..rank).rev() {
            let index = row % self.sizes[axis];
            row /= self.sizes[axis];
            start = start.wrapping_add_signed(index as isize * self.x_strides[axis]);
        }
        start
    }

    fn is_contiguous(&self) -> bool {
        let mut step = 1;
        self.sizes.iter().zip(&self.out_strides).rev().all(|(&size, &stride)| {
            let fits = stride == step;
            step *= size as isize;
            fits
        })
    }
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::Layout;
    use congruent_backend_api::ops::reduce::ArgReduceOp;

    use super::*;
    use crate::testing::{arg_reduce, on_any_threads, output, reduce, reduce_into, tensor, vector};

    #[test]
    fn small_reductions_by_hand() {
        let x = tensor(&[2, 3], &[1, 5, 3, -4, 2, 6]);
        let over = |op, axes: &[isize]| reduce(op, &x, Some(axes)).elements::<i32>();
        assert_eq!(over(ReduceOp::Sum, &[0]), [-3, 7, 9]);
        assert_eq!(over(ReduceOp::Sum, &[1]), [9, 4]);
        assert_eq!(over(ReduceOp::Sum, &[0, 1]), [13]);
        assert_eq!(over(ReduceOp::Sum, &[]), [1, 5, 3, -4, 2, 6]);
        assert_eq!(over(ReduceOp::Prod, &[1]), [15, -48]);
        assert_eq!(over(ReduceOp::Max, &[0]), [1, 5, 6]);
        assert_eq!(over(ReduceOp::Min, &[1]), [1, -4]);
        assert_eq!(over(ReduceOp::Mean, &[0]), [-1, 3, 4]);
        assert_eq!(reduce(ReduceOp::Mean, &vector(&[i64::MAX, i64::MAX]), None).elements::<i64>(), [i64::MAX]);
        assert_eq!(reduce(ReduceOp::Sum, &vector(&[200_u8, 100]), None).elements::<u8>(), [44]);
        assert_eq!(reduce(ReduceOp::Prod, &vector(&[u32::MAX, 3]), None).elements::<u32>(), [u32::MAX - 2]);
    }

    #[test]
    fn empty_reductions_have_their_identity() {
        let empty = tensor::<f32>(&[2, 0], &[]);
        let of = |op| reduce(op, &empty, Some(&[1])).elements::<f32>();
        assert_eq!((of(ReduceOp::Sum), of(ReduceOp::Prod)), (vec![0.0; 2], vec![1.0; 2]));
        assert!(of(ReduceOp::Sum)[0].is_sign_positive() && of(ReduceOp::Mean)[0].is_nan());
        assert_eq!(reduce(ReduceOp::Any, &empty, Some(&[1])).elements::<bool>(), [false; 2]);
        assert_eq!(reduce(ReduceOp::All, &empty, Some(&[1])).elements::<bool>(), [true; 2]);
        assert!(reduce(ReduceOp::Max, &empty, Some(&[0])).elements::<f32>().is_empty());
    }

    #[test]
    fn extremes_and_truth_follow_the_order_of_the_contract() {
        let zeros = vector(&[0.0, -0.0]);
        assert_eq!(reduce(ReduceOp::Max, &zeros, None).elements::<f64>()[0].to_bits(), 0);
        assert_eq!(reduce(ReduceOp::Min, &zeros, None).elements::<f64>()[0].to_bits(), 1 << 63);
        for position in 0..40 {
            let mut x = [1.0_f32; 40];
            x[position] = f32::NAN;
            assert!(reduce(ReduceOp::Max, &vector(&x), None).elements::<f32>()[0].is_nan());
            assert!(reduce(ReduceOp::Min, &tensor(&[40, 1], &x), Some(&[0])).elements::<f32>()[0].is_nan());
            assert_eq!(arg_reduce(ArgReduceOp::Argmin, &vector(&x), 0), [position as i64]);
        }
        let x = tensor(&[2, 2], &[f16::NAN, f16::NEG_ZERO, f16::ZERO, f16::ZERO]);
        assert_eq!(reduce(ReduceOp::Any, &x, Some(&[1])).elements::<bool>(), [true, false]);
        assert_eq!(reduce(ReduceOp::All, &x, Some(&[0])).elements::<bool>(), [false, false]);
        assert_eq!(reduce(ReduceOp::All, &vector(&[true, false]), None).elements::<bool>(), [false]);
    }

    #[test]
    fn positions_are_the_first_in_every_layout() {
        let x = tensor(&[2, 4], &[1, 7, 7, 0, 9, 3, 9, 3]);
        assert_eq!(arg_reduce(ArgReduceOp::Argmax, &x, 1), [1, 0]);
        assert_eq!(arg_reduce(ArgReduceOp::Argmin, &x, 0), [0, 1, 0, 0]);
        assert_eq!(arg_reduce(ArgReduceOp::Argmax, &vector(&[-0.0, 0.0]), 0), [0]);
        assert_eq!(arg_reduce(ArgReduceOp::Argmin, &vector(&[0.0, -0.0]), 0), [0]);
        let flipped = x.with(|x| x.flip(&[1])).with(|x| x.permute(&[1, 0]));
        assert_eq!(arg_reduce(ArgReduceOp::Argmax, &flipped, 0), [1, 1]);
    }

    #[test]
    fn sums_are_accurate() {
        let tenths = vector(&vec![0.1_f32; 10_000_000]);
        let sum = on_any_threads(|| reduce(ReduceOp::Sum, &tenths, None).elements::<f32>()[0]);
        assert!((f64::from(sum) / 1e6 - 1.0).abs() < 1e-6, "{sum}");
        let ones = tensor(&[1 << 25, 2], &vec![1_f32; 1 << 26]);
        assert_eq!(reduce(ReduceOp::Mean, &ones, Some(&[0])).elements::<f32>(), [1.0, 1.0]);
        // The sum overflows f16, the mean does not.
        let large = vector(&[f16::from_f32(60000.0); 100]);
        assert_eq!(reduce(ReduceOp::Mean, &large, None).elements::<f16>(), [f16::from_f32(60000.0)]);
        assert_eq!(reduce(ReduceOp::Sum, &vector(&[-0.0, -0.0]), None).elements::<f64>()[0].to_bits(), 1 << 63);
    }

    /// Whole numbers make every order of summation exact.
    #[test]
    fn every_layout_and_set_of_axes_is_reduced() {
        let sizes = [3, 70, 4, 33];
        let count: usize = sizes.iter().product();
        let elements: Vec<f64> = (0..count).map(|i| ((i * 7919) % 1013) as f64).collect();
        let contiguous = tensor(&sizes, &elements);
        for permutation in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            for flipped in [&[][..], &[1], &[0, 3]] {
                let layout = contiguous.layout.permute(&permutation).unwrap().flip(flipped).unwrap();
                let x = tensor(&sizes, &elements).with(|_| Ok(layout));
                let (values, shape) = (x.elements::<f64>(), x.shape());
                for mask in 0..16_usize {
                    let axes: Vec<isize> = (0..4).filter(|axis| mask >> axis & 1 == 1).collect();
                    let kept: Vec<usize> = (0..4).filter(|axis| mask >> axis & 1 == 0).collect();
                    let mut expected = vec![0.0; kept.iter().map(|&axis| shape[axis]).product()];
                    for (index, value) in values.iter().enumerate() {
                        let (mut rest, mut digits) = (index, [0; 4]);
                        for axis in (0..4).rev() {
                            (digits[axis], rest) = (rest % shape[axis], rest / shape[axis]);
                        }
                        expected[kept.iter().fold(0, |at, &axis| at * shape[axis] + digits[axis])] += value;
                    }
                    let sum = on_any_threads(|| reduce(ReduceOp::Sum, &x, Some(&axes)).elements::<f64>());
                    assert_eq!(sum, expected, "{layout:?} over {axes:?}");
                }
            }
        }
    }

    #[test]
    fn outputs_may_be_strided_and_inputs_broadcast() {
        let x = tensor(&[1, 3], &[1.0_f32, 2.0, 3.0]).with(|x| x.broadcast_to("test", &[4, 3]));
        let mut out = output(DType::F32, &[8]);
        out.layout = Layout::new("test", &[3], &[-2], 5).unwrap();
        reduce_into(ReduceOp::Sum, &x, Some(&[0]), &mut out);
        assert_eq!(out.elements::<f32>(), [4.0, 8.0, 12.0]);
        out.layout = Layout::new("test", &[4, 1], &[2, 1], 0).unwrap();
        reduce_into(ReduceOp::Sum, &x, Some(&[1]), &mut out);
        assert_eq!(out.elements::<f32>(), [6.0; 4]);
    }
}
