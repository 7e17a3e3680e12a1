//! Writing at positions that are data.
//!
//! The output is seen as matrices, whose rows are the positions of the scattered axis and whose columns share an index.
//! It is cut between threads, each of which reads all sources of its part in row-major order: an element is written by
//! one thread, so the number of threads changes no bit. Float sums take the sources of one row after another, and carry
//! the errors of their roundings along (Knuth's TwoSum), so that a sum is nearly the correctly rounded one.

use std::sync::atomic::{AtomicBool, Ordering};

use congruent_backend_api::ops::index::{Scatter, ScatterOp};
use congruent_backend_api::{DType, Result, match_float, match_number};
use ndarray::{ArrayViewMut2, ArrayViewMutD, Axis, Ix2, IxDyn, ShapeBuilder};

use super::index::Indices;
use crate::lane::{BLOCK, Lane, Number};
use crate::loops::{GRAIN, invalid_view, join};
use crate::storage::CpuStorage;

/// Runs a scatter; says whether an index was out of range.
pub(crate) fn run(plan: &Scatter, index: &CpuStorage, src: &CpuStorage, out: &mut CpuStorage) -> Result<bool> {
    match plan.op() {
        ScatterOp::Add if plan.dtype().is_float() => match_float!(plan.dtype(), T =>
            scatter::<T>(plan, index, src, out, sum_rows::<T>), else => Ok(false)),
        ScatterOp::Add => match_number!(plan.dtype(), T =>
            each::<T>(plan, index, src, out, |old, x| T::from_i64(old.cast::<i64>().wrapping_add(x.cast()))),
            else => Ok(false)),
        ScatterOp::Max => {
            match_number!(plan.dtype(), T => each::<T>(plan, index, src, out, maximum), else => Ok(false))
        }
        ScatterOp::Min => {
            match_number!(plan.dtype(), T => each::<T>(plan, index, src, out, minimum), else => Ok(false))
        }
        // Bits are moved as they are, so only their size counts.
        ScatterOp::Set => match plan.dtype() {
            DType::F64 | DType::I64 => each::<i64>(plan, index, src, out, |_, x| x),
            DType::F32 | DType::I32 | DType::U32 => each::<u32>(plan, index, src, out, |_, x| x),
            DType::F16 | DType::BF16 => each::<congruent_backend_api::f16>(plan, index, src, out, |_, x| x),
            DType::U8 | DType::Bool => each::<u8>(plan, index, src, out, |_, x| x),
        },
    }
}

fn maximum<T: Lane>(old: T, x: T) -> T {
    T::narrow(old.wide().maximum(x.wide()))
}

fn minimum<T: Lane>(old: T, x: T) -> T {
    T::narrow(old.wide().minimum(x.wide()))
}

/// A scatter whose sources are taken one by one.
fn each<T: Lane>(
    plan: &Scatter,
    index: &CpuStorage,
    src: &CpuStorage,
    out: &mut CpuStorage,
    f: impl Fn(T, T) -> T + Sync,
) -> Result<bool> {
    scatter::<T>(plan, index, src, out, |out, targets, sources| {
        for &mut (row, position) in targets {
            sources.apply(out, row, position, &f);
        }
    })
}

/// The sources of one matrix.
struct Sources<'a, T> {
    data: &'a [T],
    start: usize,
    /// From one position to the next, and from one column to the next.
    strides: [isize; 2],
}

impl<'a, T: Lane> Sources<'a, T> {
    fn at(&self, position: usize, column: usize) -> T {
        let steps = position as isize * self.strides[0] + column as isize * self.strides[1];
        self.data[self.start.wrapping_add_signed(steps)]
    }

    /// The columns at a position, where they are one run of memory.
    fn run(&self, position: usize, columns: usize) -> Option<&'a [T]> {
        let start = self.start.wrapping_add_signed(position as isize * self.strides[0]);
        (self.strides[1] == 1).then(|| &self.data[start..start + columns])
    }

    fn apply(&self, out: &mut ArrayViewMut2<'_, T>, row: usize, position: usize, f: impl Fn(T, T) -> T) {
        let columns = out.ncols();
        if columns == 1 {
            let out = &mut out[[row, 0]];
            *out = f(*out, self.at(position, 0));
            return;
        }
        let mut out = out.row_mut(row);
        match (out.as_slice_mut(), self.run(position, columns)) {
            (Some(out), Some(run)) => out.iter_mut().zip(run).for_each(|(out, &x)| *out = f(*out, x)),
            _ => (out.iter_mut().enumerate()).for_each(|(column, out)| *out = f(*out, self.at(position, column))),
        }
    }
}

/// Adds sources to their rows: all of a row's together, in their order.
fn sum_rows<T: Lane>(out: &mut ArrayViewMut2<'_, T>, targets: &mut [(usize, usize)], sources: &Sources<'_, T>) {
    // Positions ascend, and the sort is stable.
    targets.sort_by_key(|&(row, _)| row);
    let columns = out.ncols();
    let mut sums = vec![[0.0_f64; 2]; columns.min(BLOCK)];
    for group in targets.chunk_by(|a, b| a.0 == b.0) {
        let row = group[0].0;
        if let [(_, position)] = *group {
            sources.apply(out, row, position, |old, x| T::from_f64(old.cast::<f64>() + x.cast::<f64>()));
            continue;
        }
        let mut row = out.row_mut(row);
        for first in (0..columns).step_by(BLOCK) {
            let sums = &mut sums[..BLOCK.min(columns - first)];
            for (column, sum) in sums.iter_mut().enumerate() {
                *sum = [row[first + column].cast(), 0.0];
            }
            for &(_, position) in group {
                match sources.run(position, columns) {
                    Some(run) => sums.iter_mut().zip(&run[first..]).for_each(|(sum, x)| add(sum, x.cast())),
                    None => (sums.iter_mut().enumerate())
                        .for_each(|(column, sum)| add(sum, sources.at(position, first + column).cast())),
                }
            }
            for (column, [sum, error]) in sums.iter().enumerate() {
                // Once the sum is infinite or NaN, the error means nothing.
                row[first + column] = T::from_f64(if error.is_finite() { sum + error } else { *sum });
            }
        }
    }
}

fn add([sum, error]: &mut [f64; 2], x: f64) {
    let total = *sum + x;
    let shift = total - *sum;
    *error += (*sum - (total - shift)) + (x - shift);
    *sum = total;
}

/// What all parts of a scatter share.
struct Shared<'a, T, K> {
    kernel: K,
    indices: Indices<'a>,
    src: &'a [T],
    /// Strides of index and source along the axes of a part's output; not used along its rows.
    strides: [Vec<isize>; 2],
    count: usize,
    len: usize,
    /// Of index and source along the axis.
    steps: [isize; 2],
    outside: AtomicBool,
}

/// A part of the output: matrices whose rows are positions.
struct Part<'a, T> {
    out: ArrayViewMutD<'a, T>,
    /// Where index and source of the first element lie, at position 0.
    starts: [usize; 2],
    /// Which position is the first row.
    first_row: usize,
    /// Into how many parts it should be cut.
    pieces: usize,
}

fn scatter<T: Lane>(
    plan: &Scatter,
    index: &CpuStorage,
    src: &CpuStorage,
    out: &mut CpuStorage,
    kernel: impl Fn(&mut ArrayViewMut2<'_, T>, &mut [(usize, usize)], &Sources<'_, T>) + Sync,
) -> Result<bool> {
    let (kept, [row_step, index_step, src_step]) = (plan.kept(), plan.strides());
    let work = kept.count().saturating_mul(plan.count());
    if work == 0 {
        return Ok(false);
    }
    if plan.is_empty() {
        return Ok(true);
    }
    // The innermost axis that shares an index is that of the columns.
    let rank = kept.rank();
    let column = (0..rank).rev().find(|&axis| kept.strides(1)[axis] == 0);
    let lead: Vec<usize> = (0..rank).filter(|&axis| Some(axis) != column).collect();
    let all = |lead_values: &dyn Fn(usize) -> isize, row: isize, last: isize| {
        lead.iter().map(|&axis| lead_values(axis)).chain([row, column.map_or(last, lead_values)]).collect::<Vec<_>>()
    };
    let sizes: Vec<usize> =
        all(&|axis| kept.sizes()[axis] as isize, plan.len() as isize, 1).iter().map(|&size| size as usize).collect();
    let out_strides = all(&|axis| kept.strides(0)[axis], row_step, 1);
    let strides = [1, 2].map(|operand| all(&|axis| kept.strides(operand)[axis], 0, 0));
    // ndarray takes a negative stride as its two's complement, and data from the lowest element on.
    let low = sizes
        .iter()
        .zip(&out_strides)
        .fold(kept.offset(0), |low, (&size, &stride)| low.wrapping_add_signed((size as isize - 1) * stride.min(0)));
    let unsigned: Vec<usize> = out_strides.iter().map(|stride| stride.cast_unsigned()).collect();
    let shape = IxDyn(&sizes).strides(IxDyn(&unsigned));
    let data = &mut bytemuck::cast_slice_mut::<T::Bits, T>(out.as_mut_slice())[low..];
    let shared = Shared {
        kernel,
        indices: Indices::new(index),
        src: bytemuck::cast_slice::<T::Bits, T>(src.as_slice()),
        strides,
        count: plan.count(),
        len: plan.len(),
        steps: [index_step, src_step],
        outside: AtomicBool::new(false),
    };
    // More parts than threads even out rows that are hit more often than others.
    let pieces = if work > GRAIN { (4 * rayon::current_num_threads()).min(work / GRAIN + 1) } else { 1 };
    let out = ArrayViewMutD::from_shape(shape, data).map_err(invalid_view)?;
    shared.run(Part { out, starts: [kept.offset(1), kept.offset(2)], first_row: 0, pieces });
    Ok(shared.outside.into_inner())
}

impl<T: Lane, K> Shared<'_, T, K>
where
    K: Fn(&mut ArrayViewMut2<'_, T>, &mut [(usize, usize)], &Sources<'_, T>) + Sync,
{
    fn run(&self, part: Part<'_, T>) {
        /// Columns that a part keeps at least: less would cut cache lines.
        const COLUMNS: usize = 128;
        let rows = part.out.ndim() - 2;
        let sizes = part.out.shape();
        let lead = (0..rows).find(|&axis| sizes[axis] > 1);
        let wide = (sizes[rows + 1] >= 2 * COLUMNS).then_some(rows + 1);
        let Some(axis) = lead.or(wide).or((sizes[rows] > 1).then_some(rows)).filter(|_| part.pieces > 1) else {
            return self.run_here(part.out, part.starts, part.first_row);
        };
        let half = if axis > rows { sizes[axis] / 2 / 64 * 64 } else { sizes[axis] / 2 };
        let (left, right) = part.out.split_at(Axis(axis), half);
        let pieces = part.pieces / 2;
        let starts = self.moved(part.starts, axis, half);
        let first_row = part.first_row + if axis == rows { half } else { 0 };
        join(
            Part { out: left, pieces: part.pieces - pieces, ..part },
            Part { out: right, starts, first_row, pieces },
            |part| self.run(part),
        );
    }

    fn moved(&self, starts: [usize; 2], axis: usize, steps: usize) -> [usize; 2] {
        [0, 1].map(|operand| starts[operand].wrapping_add_signed(steps as isize * self.strides[operand][axis]))
    }

    fn run_here(&self, mut out: ArrayViewMutD<'_, T>, starts: [usize; 2], first_row: usize) {
        let lead: Vec<usize> = out.shape()[..out.ndim() - 2].to_vec();
        let mut targets = Targets::default();
        for matrix in 0..lead.iter().product() {
            let (mut at, mut rest) = (starts, matrix);
            let mut view = out.view_mut();
            let mut coordinates = vec![0; lead.len()];
            for axis in (0..lead.len()).rev() {
                coordinates[axis] = rest % lead[axis];
                at = self.moved(at, axis, coordinates[axis]);
                rest /= lead[axis];
            }
            for &coordinate in &coordinates {
                view = view.index_axis_move(Axis(0), coordinate);
            }
            let Ok(mut view) = view.into_dimensionality::<Ix2>() else { unreachable!("rows and columns are left") };
            self.find(&mut targets, at[0], first_row, view.nrows());
            let sources =
                Sources { data: self.src, start: at[1], strides: [self.steps[1], self.strides[1][lead.len() + 1]] };
            (self.kernel)(&mut view, &mut targets.pairs, &sources);
        }
    }

    /// The rows and positions of the sources that hit a part, in the order of the positions.
    fn find(&self, targets: &mut Targets, start: usize, first_row: usize, rows: usize) {
        if targets.start == Some(start) {
            // Neighbouring matrices share their indices where the index broadcasts.
            return;
        }
        targets.start = Some(start);
        targets.pairs.clear();
        let mut outside = false;
        for position in 0..self.count {
            let at = start.wrapping_add_signed(position as isize * self.steps[0]);
            match self.indices.get(at, self.len) {
                Some(row) if (first_row..first_row + rows).contains(&row) => {
                    targets.pairs.push((row - first_row, position));
                }
                Some(_) => {}
                None => outside = true,
            }
        }
        if outside {
            self.outside.store(true, Ordering::Relaxed);
        }
    }
}

/// What the indices of a matrix say.
#[derive(Default)]
struct Targets {
    /// Where its indices lie.
    start: Option<usize>,
    /// Row and position of each source.
    pairs: Vec<(usize, usize)>,
}
