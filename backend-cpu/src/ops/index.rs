//! Reading at positions that are data. Scatters are in `scatter.rs`.
//!
//! A gather is cut along the output, in parallel while it is large. What an index shares with a contiguous run of the
//! input and the output, such as a row of a table, is copied in one piece.

use std::sync::atomic::{AtomicBool, Ordering};

use bytemuck::Pod;
use congruent_backend_api::ops::index::{Gather, Nonzero, Scatter};
use congruent_backend_api::{DType, IndexOps, Result, Storage};
use ndarray::{ArrayViewMut1, ArrayViewMutD, Axis};

use crate::backend::Cpu;
use crate::loops::{GRAIN, join, view_mut};
use crate::ops::scatter;
use crate::storage::CpuStorage;

#[deny(clippy::missing_trait_methods)]
impl IndexOps for Cpu {
    fn gather(&self, plan: &Gather, x: &CpuStorage, index: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
        plan.check(x, index, out)?;
        // Elements are moved as they are, so only their size counts.
        let outside = match plan.dtype().size() {
            1 => gather::<u8>(plan, x, index, out),
            2 => gather::<u16>(plan, x, index, out),
            4 => gather::<u32>(plan, x, index, out),
            _ => gather::<u64>(plan, x, index, out),
        }?;
        self.mark_indices(outside);
        Ok(())
    }

    fn scatter(&self, plan: &Scatter, index: &CpuStorage, src: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
        plan.check(index, src, out)?;
        let outside = scatter::run(plan, index, src, out)?;
        self.mark_indices(outside);
        Ok(())
    }

    fn nonzero(&self, plan: &Nonzero, mask: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
        plan.check(mask, out)?;
        nonzero(plan, mask.as_slice(), out.as_mut_slice());
        Ok(())
    }
}

/// Index values of any index dtype.
#[derive(Clone, Copy)]
pub(crate) enum Indices<'a> {
    I64(&'a [i64]),
    I32(&'a [i32]),
    U32(&'a [u32]),
    U8(&'a [u8]),
}

impl<'a> Indices<'a> {
    /// The elements of a storage, whose dtype a plan has checked.
    pub(crate) fn new(storage: &'a CpuStorage) -> Self {
        match storage.dtype() {
            DType::I64 => Self::I64(storage.as_slice()),
            DType::I32 => Self::I32(storage.as_slice()),
            DType::U32 => Self::U32(storage.as_slice()),
            _ => Self::U8(storage.as_slice()),
        }
    }

    /// The index in element `at`, if it is one of `len` positions.
    pub(crate) fn get(self, at: usize, len: usize) -> Option<usize> {
        let index = match self {
            Self::I64(values) => values[at],
            Self::I32(values) => values[at].into(),
            Self::U32(values) => values[at].into(),
            Self::U8(values) => values[at].into(),
        };
        usize::try_from(index).ok().filter(|&index| index < len)
    }
}

/// A part of a gather.
struct Part<'a, T> {
    out: ArrayViewMutD<'a, T>,
    /// Where the first index and its element at position 0 lie.
    starts: [usize; 2],
}

/// What all parts of a gather share.
struct Shared<'a, T> {
    x: &'a [T],
    indices: Indices<'a>,
    strides: [&'a [isize]; 2],
    len: usize,
    stride: isize,
    outside: AtomicBool,
}

/// Runs a gather; says whether an index was out of range.
fn gather<T: Pod + Send + Sync>(
    plan: &Gather,
    x: &CpuStorage,
    index: &CpuStorage,
    out: &mut CpuStorage,
) -> Result<bool> {
    let nest = plan.nest();
    if nest.count() == 0 {
        return Ok(false);
    }
    let shared = Shared {
        x: x.as_slice::<T>(),
        indices: Indices::new(index),
        strides: [nest.strides(1), nest.strides(2)],
        len: plan.len(),
        stride: plan.stride(),
        outside: AtomicBool::new(false),
    };
    let part = Part { out: view_mut(nest, 0, out.as_mut_slice())?, starts: [nest.offset(1), nest.offset(2)] };
    shared.run(part);
    Ok(shared.outside.into_inner())
}

impl<T: Pod + Send + Sync> Shared<'_, T> {
    fn run(&self, part: Part<'_, T>) {
        let axis = part.out.shape().iter().position(|&size| size > 1).unwrap_or(0);
        if part.out.len() <= GRAIN / size_of::<T>() || part.out.ndim() == 0 {
            return self.run_here(part.out, part.starts, 0);
        }
        let half = part.out.len_of(Axis(axis)) / 2;
        let starts = self.moved(part.starts, axis, half);
        let (left, right) = part.out.split_at(Axis(axis), half);
        join(Part { out: left, starts: part.starts }, Part { out: right, starts }, |part| self.run(part));
    }

    fn moved(&self, starts: [usize; 2], axis: usize, steps: usize) -> [usize; 2] {
        [0, 1].map(|operand| starts[operand].wrapping_add_signed(steps as isize * self.strides[operand][axis]))
    }

    /// `axis` is the first axis of the plan's nest that `out` still has.
    fn run_here(&self, mut out: ArrayViewMutD<'_, T>, starts: [usize; 2], axis: usize) {
        match out.ndim() {
            0 => out.iter_mut().for_each(|out| self.element(out, starts)),
            1 => match out.into_dimensionality() {
                Ok(row) => self.row(row, starts, axis),
                Err(_) => unreachable!("the view has one axis"),
            },
            _ => {
                for (step, out) in out.outer_iter_mut().enumerate() {
                    self.run_here(out, self.moved(starts, axis, step), axis + 1);
                }
            }
        }
    }

    fn row(&self, mut out: ArrayViewMut1<'_, T>, starts: [usize; 2], axis: usize) {
        let [steps, stride] = [0, 1].map(|operand| self.strides[operand][axis]);
        if steps != 0 {
            let at = |step: usize| self.moved(starts, axis, step);
            return out.iter_mut().enumerate().for_each(|(step, out)| self.element(out, at(step)));
        }
        let Some(first) = self.find(starts) else {
            return out.fill(T::zeroed());
        };
        match (out.as_slice_mut(), stride) {
            (Some(out), 1) => out.copy_from_slice(&self.x[first..first + out.len()]),
            (Some(out), 0) => out.fill(self.x[first]),
            _ => {
                for (step, out) in out.iter_mut().enumerate() {
                    *out = self.x[first.wrapping_add_signed(step as isize * stride)];
                }
            }
        }
    }

    fn element(&self, out: &mut T, starts: [usize; 2]) {
        *out = self.find(starts).map_or_else(T::zeroed, |at| self.x[at]);
    }

    /// The element of the input that an index names.
    fn find(&self, [index, first]: [usize; 2]) -> Option<usize> {
        let position = self.indices.get(index, self.len);
        if position.is_none() {
            self.outside.store(true, Ordering::Relaxed);
        }
        position.map(|position| first.wrapping_add_signed(position as isize * self.stride))
    }
}

fn nonzero(plan: &Nonzero, mask: &[u8], out: &mut [i64]) {
    let nest = plan.nest();
    let mut slots = (0..plan.count()).map(|slot| plan.offset().wrapping_add_signed(slot as isize * plan.stride()));
    let row = nest.sizes().last().copied().unwrap_or(1);
    let step = nest.strides(1).last().copied().unwrap_or(0);
    let rows = nest.count().checked_div(row).unwrap_or(0);
    'search: for index in 0..rows {
        let (mut at, mut rest) = (nest.offset(1), index);
        for axis in (0..nest.rank().saturating_sub(1)).rev() {
            at = at.wrapping_add_signed((rest % nest.sizes()[axis]) as isize * nest.strides(1)[axis]);
            rest /= nest.sizes()[axis];
        }
        for position in 0..row {
            if mask[at.wrapping_add_signed(position as isize * step)] != 0 {
                let Some(slot) = slots.next() else { break 'search };
                out[slot] = (index * row + position) as i64;
            }
        }
    }
    slots.for_each(|slot| out[slot] = -1);
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::ops::index::ScatterOp;
    use congruent_backend_api::{Backend, ErrorKind, Layout, f16};

    use super::*;
    use crate::testing::{Tensor, on_any_threads, output, tensor};

    fn gather_into(cpu: &Cpu, x: &Tensor, along: isize, index: &Tensor, out: &mut Tensor) {
        let plan = Gather::new(x.view(), along, index.view(), out.view()).unwrap();
        cpu.gather(&plan, &x.storage, &index.storage, &mut out.storage).unwrap();
    }

    fn scatter_into(cpu: &Cpu, op: ScatterOp, along: isize, index: &Tensor, src: &Tensor, out: &mut Tensor) {
        let plan = Scatter::new(op, along, index.view(), src.view(), out.view()).unwrap();
        cpu.scatter(&plan, &index.storage, &src.storage, &mut out.storage).unwrap();
    }

    #[test]
    fn rows_and_elements_of_every_index_dtype() {
        let cpu = Cpu::new();
        let x = tensor(&[3, 2], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        for index in [
            tensor(&[4, 1], &[2_i64, 0, 2, 1]),
            tensor(&[4, 1], &[2_i32, 0, 2, 1]),
            tensor(&[4, 1], &[2_u32, 0, 2, 1]),
            tensor(&[4, 1], &[2_u8, 0, 2, 1]),
        ] {
            let mut out = output(DType::F32, &[4, 2]);
            gather_into(&cpu, &x, 0, &index, &mut out);
            assert_eq!(out.elements::<f32>(), [5.0, 6.0, 1.0, 2.0, 5.0, 6.0, 3.0, 4.0]);
        }
        let mut out = output(DType::F32, &[3, 3]).with(|out| out.permute(&[1, 0]));
        gather_into(&cpu, &x, 1, &tensor(&[3, 3], &[0_u8, 1, 0, 1, 1, 1, 0, 0, 1]), &mut out);
        assert_eq!(out.elements::<f32>(), [1.0, 2.0, 1.0, 4.0, 4.0, 4.0, 5.0, 5.0, 6.0]);
        cpu.synchronize().unwrap();
    }

    #[test]
    fn an_index_out_of_range_is_reported_once_and_touches_nothing() {
        let cpu = Cpu::new();
        let x = tensor(&[3], &[7_i64, 8, 9]);
        for bad in [-1, 3, i64::MIN, i64::MAX] {
            let (index, mut out) = (tensor(&[3], &[2, bad, 0]), output(DType::I64, &[3]));
            gather_into(&cpu, &x, 0, &index, &mut out);
            assert_eq!(cpu.synchronize().unwrap_err().kind(), ErrorKind::IndexOutOfRange);
            assert_eq!(out.elements::<i64>(), [9, 0, 7]);
            let mut sum = tensor(&[3], &[10_i64, 20, 30]);
            scatter_into(&cpu, ScatterOp::Add, 0, &index, &x, &mut sum);
            let mut bytes = [0; 24];
            let error = cpu.download(&sum.storage, 0, &mut bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::IndexOutOfRange);
            assert_eq!(sum.elements::<i64>(), [19, 20, 37]);
        }
        let (index, mut out) = (tensor(&[2], &[0_u8, 1]), output(DType::I64, &[2]));
        gather_into(&cpu, &tensor::<i64>(&[0], &[]), 0, &index, &mut out);
        assert_eq!(cpu.synchronize().unwrap_err().kind(), ErrorKind::IndexOutOfRange);
        assert_eq!(out.elements::<i64>(), [0, 0]);
    }

    #[test]
    fn duplicates_follow_the_contract() {
        let cpu = Cpu::new();
        let index = tensor(&[5], &[1_i32, 0, 1, 1, 0]);
        let src = tensor(&[5], &[1.0_f64, 2.0, f64::NAN, 4.0, -0.0]);
        let run = |op| {
            let mut out = tensor(&[3], &[0.0_f64, 0.5, 9.0]);
            scatter_into(&cpu, op, 0, &index, &src, &mut out);
            out.elements::<f64>().iter().map(|x| x.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(run(ScatterOp::Set), ["-0", "4", "9"]);
        assert_eq!(run(ScatterOp::Add), ["2", "NaN", "9"]);
        assert_eq!(run(ScatterOp::Max), ["2", "NaN", "9"]);
        assert_eq!(run(ScatterOp::Min), ["-0", "NaN", "9"]);
        let mut out = tensor(&[1], &[250_u8]);
        scatter_into(&cpu, ScatterOp::Add, 0, &tensor(&[3], &[0_u8; 3]), &tensor(&[3], &[3_u8; 3]), &mut out);
        assert_eq!(out.elements::<u8>(), [3]);
    }

    #[test]
    fn long_sums_of_halves_round_once() {
        let cpu = Cpu::new();
        let count = 1 << 16;
        let index = tensor(&[count], &vec![0_u8; count]);
        let ones = tensor(&[count], &vec![f16::from_f32(0.25); count]);
        let mut out = tensor(&[1], &[f16::ONE]);
        scatter_into(&cpu, ScatterOp::Add, 0, &index, &ones, &mut out);
        assert_eq!(out.elements::<f16>(), [f16::from_f64(16384.0)]);
        let tenths = tensor(&[count], &vec![0.1_f32; count]);
        let mut out = tensor(&[1], &[0.0_f32]);
        scatter_into(&cpu, ScatterOp::Add, 0, &index, &tenths, &mut out);
        assert_eq!(out.elements::<f32>(), [(f64::from(0.1_f32) * count as f64) as f32]);
    }

    #[test]
    fn results_do_not_depend_on_threads() {
        let (rows, width) = (700, 301);
        let index: Vec<i64> = (0..rows as i64).map(|row| row * row % 37).collect();
        let src: Vec<f32> = (0..rows * width).map(|at| (at as f32).sin()).collect();
        let (index, src) = (tensor(&[rows, 1], &index), tensor(&[rows, width], &src));
        for op in [ScatterOp::Add, ScatterOp::Set, ScatterOp::Max] {
            let sum = on_any_threads(|| {
                let mut out = tensor(&[40, width], &vec![0.5_f32; 40 * width]);
                scatter_into(&Cpu::new(), op, 0, &index, &src, &mut out);
                out.elements::<f32>()
            });
            let mut back = output(DType::F32, &[rows, width]);
            gather_into(&Cpu::new(), &tensor(&[40, width], &sum), 0, &index, &mut back);
            let last = &back.elements::<f32>()[(rows - 1) * width..];
            if op == ScatterOp::Set {
                assert_eq!(last, &src.elements::<f32>()[(rows - 1) * width..]);
            }
        }
    }

    #[test]
    fn positions_of_true_elements_in_row_major_order() {
        let mask = tensor(&[2, 3], &[true, false, true, false, true, true]).with(|mask| mask.permute(&[1, 0]));
        let run = |room: usize| {
            let mut out = output(DType::I64, &[room]);
            let plan = Nonzero::new(mask.view(), out.view()).unwrap();
            Cpu::new().nonzero(&plan, &mask.storage, &mut out.storage).unwrap();
            out.elements::<i64>()
        };
        assert_eq!(run(4), [0, 3, 4, 5]);
        assert_eq!((run(2), run(5)), (vec![0, 3], vec![0, 3, 4, 5, -1]));
        let mut out = output(DType::I64, &[8]);
        out.layout = Layout::new("test", &[2], &[-3], 5).unwrap();
        let plan = Nonzero::new(mask.view(), out.view()).unwrap();
        Cpu::new().nonzero(&plan, &mask.storage, &mut out.storage).unwrap();
        assert_eq!(out.elements::<i64>(), [0, 3]);
    }
}
