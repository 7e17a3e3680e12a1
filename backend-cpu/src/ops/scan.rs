//! Scans along an axis.
//!
//! A row is scanned from its beginning with an accumulator ([`running`]) that is as good as a tree of additions. Where
//! an element's neighbour belongs to another row (a scan down the columns), a group of rows is scanned at once, position
//! by position. A few long rows are cut into chunks: their totals come first, then each chunk starts from the totals
//! before it. What is cut depends on the shape alone, so the bits do not depend on the threads.

mod running;

use congruent_backend_api::ops::scan::{Scan, ScanOp};
use congruent_backend_api::{DType, Error, Result, ScanOps, bf16, f16};
use ndarray::{ArrayView1, ArrayView2, ArrayViewD, ArrayViewMut1, ArrayViewMut2, ArrayViewMutD, Axis, Ix1, Ix2, IxDyn};
use ndarray::{ShapeBuilder, Slice, StrideShape};

use self::running::{FloatProd, FloatSum, Greatest, IntProd, IntSum, Least, LogSumExp, Running};
use crate::backend::Cpu;
use crate::lane::{BLOCK, Int, Lane};
use crate::loops::{GRAIN, invalid_view, join};
use crate::math::Real;
use crate::storage::CpuStorage;

/// The length of the chunks of a long row.
const CHUNK: usize = 1 << 16;
/// From this many rows on, threads share rows and not chunks.
const MANY: usize = 16;
/// Rows that are scanned at once: their accumulators stay in the L1 cache.
const GROUP: usize = 512;
/// Fewer rows than this are not worth scanning at once.
const FEW: usize = 8;

#[deny(clippy::missing_trait_methods)]
impl ScanOps for Cpu {
    fn scan(&self, plan: &Scan, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
        plan.check(x, out)?;
        match plan.dtype() {
            DType::F64 => float::<f64>(plan, x, out),
            DType::F32 => float::<f32>(plan, x, out),
            DType::F16 => float::<f16>(plan, x, out),
            DType::BF16 => float::<bf16>(plan, x, out),
            DType::I64 => int::<i64>(plan, x, out),
            DType::I32 => int::<i32>(plan, x, out),
            DType::U32 => int::<u32>(plan, x, out),
            DType::U8 => int::<u8>(plan, x, out),
            DType::Bool => Err(Error::unsupported("cpu", plan.op().name(), plan.dtype())),
        }
    }
}

fn float<T: Lane<Wide: Real>>(plan: &Scan, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
    match plan.op() {
        ScanOp::LogSumExp => scan::<T, LogSumExp>(plan, x, out),
        ScanOp::Max => scan::<T, Greatest<T::Wide>>(plan, x, out),
        ScanOp::Min => scan::<T, Least<T::Wide>>(plan, x, out),
        ScanOp::Prod => scan::<T, FloatProd>(plan, x, out),
        ScanOp::Sum => scan::<T, FloatSum>(plan, x, out),
    }
}

fn int<T: Int>(plan: &Scan, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
    match plan.op() {
        ScanOp::LogSumExp => Err(Error::unsupported("cpu", plan.op().name(), plan.dtype())),
        ScanOp::Max => scan::<T, Greatest<T>>(plan, x, out),
        ScanOp::Min => scan::<T, Least<T>>(plan, x, out),
        ScanOp::Prod => scan::<T, IntProd>(plan, x, out),
        ScanOp::Sum => scan::<T, IntSum>(plan, x, out),
    }
}

fn scan<T: Lane, A: Running<T::Wide>>(plan: &Scan, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
    let rows = plan.rows().count();
    if rows == 0 {
        return Ok(());
    }
    let columns = columns(plan);
    let (low, shape) = stride_shape(plan, 1, columns);
    let x = ArrayViewD::from_shape(shape, &x.as_slice::<T>()[low..]).map_err(invalid_view)?;
    let (low, shape) = stride_shape(plan, 0, columns);
    let out = ArrayViewMutD::from_shape(shape, &mut out.as_mut_slice::<T>()[low..]).map_err(invalid_view)?;
    let job =
        Job { exclusive: plan.exclusive(), columns: columns.is_some(), long: plan.len() > 4 * CHUNK && rows < MANY };
    job.run::<T, A>(x, out);
    Ok(())
}

/// The axis of rows whose elements lie closer together than those of one row, if there are enough of them.
fn columns(plan: &Scan) -> Option<usize> {
    let (rows, [_, along]) = (plan.rows(), plan.strides());
    let closer = |axis: &usize| {
        let stride = rows.strides(1)[*axis].unsigned_abs();
        rows.sizes()[*axis] >= FEW && stride != 0 && stride < along.unsigned_abs()
    };
    (0..rows.rank()).filter(closer).min_by_key(|&axis| rows.strides(1)[axis].unsigned_abs())
}

/// The lowest element of an operand, and its axes: the other rows, then the scanned axis, then the columns.
fn stride_shape(plan: &Scan, operand: usize, columns: Option<usize>) -> (usize, StrideShape<IxDyn>) {
    let rows = plan.rows();
    let axis = |axis: usize| (rows.sizes()[axis], rows.strides(operand)[axis]);
    let others = (0..rows.rank()).filter(|&axis| Some(axis) != columns);
    let scanned = (plan.len(), plan.strides()[operand]);
    let axes: Vec<_> = others.map(axis).chain([scanned]).chain(columns.map(axis)).collect();
    let low = axes.iter().fold(rows.offset(operand), |low, &(size, stride)| {
        low.wrapping_add_signed((size as isize - 1) * stride.min(0))
    });
    let sizes: Vec<usize> = axes.iter().map(|axis| axis.0).collect();
    // ndarray takes a negative stride as its two's complement.
    let strides: Vec<usize> = axes.iter().map(|axis| axis.1.cast_unsigned()).collect();
    (low, IxDyn(&sizes).strides(IxDyn(&strides)))
}

/// How the rows are walked.
#[derive(Clone, Copy)]
struct Job {
    exclusive: bool,
    /// Whether the last axis is one of rows and the scanned one is before it.
    columns: bool,
    /// Whether rows are cut into chunks.
    long: bool,
}

impl Job {
    /// Shares the rows among threads while they are many.
    fn run<T: Lane, A: Running<T::Wide>>(self, x: ArrayViewD<'_, T>, out: ArrayViewMutD<'_, T>) {
        let scanned = out.ndim() - 1 - usize::from(self.columns);
        let widest = (0..out.ndim()).filter(|&axis| axis != scanned).max_by_key(|&axis| out.len_of(Axis(axis)));
        let splits = |axis: usize| out.len_of(Axis(axis)) > if axis > scanned { 64 } else { 1 };
        match widest.filter(|&axis| !self.long && out.len() > GRAIN && splits(axis)) {
            Some(axis) => {
                let half = out.len_of(Axis(axis)) / 2;
                // Columns are cut at a cache line, which keeps threads apart.
                let at = if axis > scanned { half.next_multiple_of(32) } else { half };
                let (x, out) = (x.split_at(Axis(axis), at), out.split_at(Axis(axis), at));
                join((x.0, out.0), (x.1, out.1), |(x, out)| self.run::<T, A>(x, out));
            }
            None => self.walk::<T, A>(x, out, &mut Scratch::new()),
        }
    }

    fn walk<T: Lane, A: Running<T::Wide>>(
        self,
        x: ArrayViewD<'_, T>,
        mut out: ArrayViewMutD<'_, T>,
        scratch: &mut Scratch<T>,
    ) {
        if out.ndim() > 1 + usize::from(self.columns) {
            for (x, out) in x.outer_iter().zip(out.axis_iter_mut(Axis(0))) {
                self.walk::<T, A>(x, out, scratch);
            }
        } else if self.columns {
            let (Ok(x), Ok(out)) = (x.into_dimensionality::<Ix2>(), out.into_dimensionality::<Ix2>()) else { return };
            self.scan_columns::<T, A>(&x, out, scratch);
        } else {
            let (Ok(x), Ok(out)) = (x.into_dimensionality::<Ix1>(), out.into_dimensionality::<Ix1>()) else { return };
            if self.long {
                self.scan_chunks::<T, A>(&x, out);
            } else {
                self.scan_row(A::start(), &x, out, scratch);
            }
        }
    }

    fn scan_row<T: Lane, A: Running<T::Wide>>(
        self,
        mut running: A,
        x: &ArrayView1<'_, T>,
        mut out: ArrayViewMut1<'_, T>,
        scratch: &mut Scratch<T>,
    ) {
        for start in (0..x.len()).step_by(BLOCK) {
            let block = Slice::from(start..(start + BLOCK).min(x.len()));
            let x = x.slice_axis(Axis(0), block);
            let x = T::widen_block(fetch(&x, &mut scratch.x), &mut scratch.wide);
            store(out.slice_axis_mut(Axis(0), block), &mut scratch.out, |out| {
                T::narrow_block(out, &mut scratch.narrow, |out| {
                    for (out, &x) in out.iter_mut().zip(x) {
                        *out = step(&mut running, x, self.exclusive);
                    }
                });
            });
        }
    }

    /// Scans the columns of a matrix.
    fn scan_columns<T: Lane, A: Running<T::Wide>>(
        self,
        x: &ArrayView2<'_, T>,
        mut out: ArrayViewMut2<'_, T>,
        scratch: &mut Scratch<T>,
    ) {
        for start in (0..x.ncols()).step_by(GROUP) {
            let group = Slice::from(start..(start + GROUP).min(x.ncols()));
            let (x, mut out) = (x.slice_axis(Axis(1), group), out.slice_axis_mut(Axis(1), group));
            let mut running = vec![A::start(); x.ncols()];
            for (x, out) in x.rows().into_iter().zip(out.rows_mut()) {
                let x = T::widen_block(fetch(&x, &mut scratch.x), &mut scratch.wide);
                store(out, &mut scratch.out, |out| {
                    T::narrow_block(out, &mut scratch.narrow, |out| {
                        for ((out, &x), running) in out.iter_mut().zip(x).zip(&mut running) {
                            *out = step(running, x, self.exclusive);
                        }
                    });
                });
            }
        }
    }

    /// Scans a long row in two passes over its chunks.
    fn scan_chunks<T: Lane, A: Running<T::Wide>>(self, x: &ArrayView1<'_, T>, out: ArrayViewMut1<'_, T>) {
        let mut starts = vec![A::start(); x.len().div_ceil(CHUNK)];
        totals(x.view(), &mut starts);
        let mut running = A::start();
        for start in &mut starts {
            let total = std::mem::replace(start, running);
            running.append(&total);
        }
        self.spread(x.view(), out, &starts);
    }

    /// Scans chunks that start where `starts` say.
    fn spread<T: Lane, A: Running<T::Wide>>(self, x: ArrayView1<'_, T>, out: ArrayViewMut1<'_, T>, starts: &[A]) {
        if let [start] = starts {
            return self.scan_row(*start, &x, out, &mut Scratch::new());
        }
        let half = starts.len() / 2;
        let (x, out) = (x.split_at(Axis(0), half * CHUNK), out.split_at(Axis(0), half * CHUNK));
        let (left, right) = starts.split_at(half);
        join((x.0, out.0, left), (x.1, out.1, right), |(x, out, starts)| self.spread(x, out, starts));
    }
}

/// The result at a position, and the accumulator after it.
fn step<W, A: Running<W>>(running: &mut A, x: W, exclusive: bool) -> W {
    let before = *running;
    running.push(x);
    if exclusive { before.value() } else { running.value() }
}

/// What the chunks of a row add up to.
fn totals<T: Lane, A: Running<T::Wide>>(x: ArrayView1<'_, T>, totals_of_chunks: &mut [A]) {
    if let [total] = totals_of_chunks {
        let mut scratch = Scratch::<T>::new();
        for start in (0..x.len()).step_by(BLOCK) {
            let block = x.slice_axis(Axis(0), Slice::from(start..(start + BLOCK).min(x.len())));
            for &x in T::widen_block(fetch(&block, &mut scratch.x), &mut scratch.wide) {
                total.push(x);
            }
        }
        return;
    }
    let half = totals_of_chunks.len() / 2;
    let x = x.split_at(Axis(0), half * CHUNK);
    let (left, right) = totals_of_chunks.split_at_mut(half);
    join((x.0, left), (x.1, right), |(x, chunks)| totals(x, chunks));
}

/// The buffers of one thread.
struct Scratch<T: Lane> {
    x: Vec<T>,
    out: Vec<T>,
    wide: T::Buffer,
    narrow: T::Buffer,
}

impl<T: Lane> Scratch<T> {
    fn new() -> Self {
        Self { x: Vec::new(), out: Vec::new(), wide: T::buffer(), narrow: T::buffer() }
    }
}

/// The elements of a view, in `buffer` unless they lie one after another.
fn fetch<'s, T: Lane>(view: &'s ArrayView1<'_, T>, buffer: &'s mut Vec<T>) -> &'s [T] {
    if let Some(slice) = view.as_slice() {
        return slice;
    }
    buffer.clear();
    buffer.extend(view.iter());
    buffer
}

/// Lets `write` fill a view, through `buffer` unless its elements lie one after another.
fn store<T: Lane>(mut view: ArrayViewMut1<'_, T>, buffer: &mut Vec<T>, write: impl FnOnce(&mut [T])) {
    if let Some(slice) = view.as_slice_mut() {
        return write(slice);
    }
    buffer.resize(view.len(), T::default());
    write(buffer);
    view.iter_mut().zip(buffer).for_each(|(to, from)| *to = *from);
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::ops::scan::ScanRange;
    use congruent_backend_api::{Element, Layout};

    use super::*;
    use crate::testing::{Tensor, on_any_threads, output, tensor, vector};

    const RANGES: [ScanRange; 4] = [
        ScanRange { exclusive: false, reverse: false },
        ScanRange { exclusive: true, reverse: false },
        ScanRange { exclusive: false, reverse: true },
        ScanRange { exclusive: true, reverse: true },
    ];

    fn scan_into(op: ScanOp, x: &Tensor, along: isize, range: ScanRange, out: &mut Tensor) {
        let plan = Scan::new(op, x.view(), along, range, out.view()).unwrap();
        Cpu::new().scan(&plan, &x.storage, &mut out.storage).unwrap();
    }

    fn scan<T: Element>(op: ScanOp, x: &Tensor, along: isize, range: ScanRange) -> Vec<T> {
        let mut out = output(T::DTYPE, &x.shape());
        scan_into(op, x, along, range, &mut out);
        out.elements()
    }

    fn row<T: Element>(op: ScanOp, x: &[T], range: ScanRange) -> Vec<T> {
        scan(op, &vector(x), 0, range)
    }

    #[test]
    fn small_scans_by_hand() {
        let [plain, exclusive, reverse, both] = RANGES;
        let x = [3_i32, -1, 4, 0];
        assert_eq!(row(ScanOp::Sum, &x, plain), [3, 2, 6, 6]);
        assert_eq!(row(ScanOp::Sum, &x, exclusive), [0, 3, 2, 6]);
        assert_eq!(row(ScanOp::Sum, &x, reverse), [6, 3, 4, 0]);
        assert_eq!(row(ScanOp::Sum, &x, both), [3, 4, 0, 0]);
        assert_eq!(row(ScanOp::Prod, &x, exclusive), [1, 3, -3, -12]);
        assert_eq!(row(ScanOp::Max, &x, exclusive), [i32::MIN, 3, 3, 4]);
        assert_eq!(row(ScanOp::Min, &x, reverse), [-1, -1, 0, 0]);
        assert_eq!(row(ScanOp::Sum, &[200_u8, 100], plain), [200, 44]);
        assert_eq!(row(ScanOp::Max, &[-0.0, 0.0], plain).map_bits(), [1 << 63, 0]);
        assert_eq!(scan::<f32>(ScanOp::Sum, &tensor::<f32>(&[2, 0], &[]), 1, plain), []);
    }

    trait MapBits {
        fn map_bits(&self) -> Vec<u64>;
    }

    impl MapBits for Vec<f64> {
        fn map_bits(&self) -> Vec<u64> {
            self.iter().map(|x| x.to_bits()).collect()
        }
    }

    #[test]
    fn nan_stays_from_its_position_on() {
        let x = [1.0_f32, f32::INFINITY, 2.0, f32::NAN, 3.0];
        for op in ScanOp::ALL {
            let nan: Vec<bool> = row(*op, &x, RANGES[0]).iter().map(|x| x.is_nan()).collect();
            assert_eq!(nan, [false, false, false, true, true], "{op:?}");
            let nan: Vec<bool> = row(*op, &x, RANGES[3]).iter().map(|x| x.is_nan()).collect();
            assert_eq!(nan, [true, true, true, false, false], "{op:?}");
        }
    }

    /// Every layout, axis and range, by the definition and on any number of threads.
    #[test]
    fn every_layout_and_axis_is_scanned() {
        let sizes = [3, 70, 4, 133];
        let elements: Vec<i64> = (0..sizes.iter().product::<usize>()).map(|i| ((i * 7919) % 1013) as i64).collect();
        let contiguous = tensor(&sizes, &elements);
        for (permutation, flipped) in [([0, 1, 2, 3], &[][..]), ([3, 2, 1, 0], &[1]), ([2, 0, 3, 1], &[0, 3])] {
            let layout = contiguous.layout.permute(&permutation).unwrap().flip(flipped).unwrap();
            let x = tensor(&sizes, &elements).with(|_| Ok(layout));
            let (values, shape) = (x.elements::<i64>(), x.shape());
            for along in 0..4 {
                let step: usize = shape[along + 1..].iter().product();
                for range in RANGES {
                    let got = on_any_threads(|| scan::<i64>(ScanOp::Sum, &x, along as isize, range));
                    for (at, &got) in got.iter().enumerate() {
                        let position = at / step % shape[along];
                        let base = at - position * step;
                        let mut enters = if range.reverse { position..shape[along] } else { 0..position + 1 };
                        match (range.exclusive, range.reverse) {
                            (true, true) => enters.start += 1,
                            (true, false) => enters.end -= 1,
                            _ => {}
                        }
                        let expected: i64 = enters.map(|position| values[base + position * step]).sum();
                        assert_eq!(got, expected, "{layout:?} along {along} at {at}, {range:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn long_rows_are_cut_without_a_trace() {
        let count = 5 * CHUNK + 77;
        let x: Vec<i64> = (0..count as i64).map(|i| i * i % 1009 - 500).collect();
        let expected: Vec<i64> = x
            .iter()
            .scan(0, |sum, &x| {
                *sum += x;
                Some(*sum)
            })
            .collect();
        assert_eq!(on_any_threads(|| row(ScanOp::Sum, &x, RANGES[0])), expected);
        let shifted = row(ScanOp::Sum, &x, RANGES[1]);
        assert_eq!((shifted[0], &shifted[1..]), (0, &expected[..count - 1]));
        let floats: Vec<f64> = x.iter().map(|&x| 1.0 / x as f64).map(|x| if x.is_finite() { x } else { 0.1 }).collect();
        on_any_threads(|| row(ScanOp::LogSumExp, &floats, RANGES[0]));
    }

    #[test]
    fn sums_of_any_length_are_accurate() {
        let sum = row(ScanOp::Sum, &vec![0.1_f32; 10_000_000], RANGES[0]);
        for at in [9_999_999, 123_456] {
            assert!((f64::from(sum[at]) / (0.1_f32 as f64 * (at + 1) as f64) - 1.0).abs() < 6e-8, "{at}");
        }
        let sum = row(ScanOp::Sum, &vec![0.1; 1_000_000], RANGES[0]);
        assert!((sum[999_999] - 100_000.0).abs() < 1e-10, "{}", sum[999_999]);
        let logs = row(ScanOp::LogSumExp, &[f64::NEG_INFINITY, 0.0, 1000.0, 999.0, -1e308], RANGES[0]);
        let last = 1000.0 + (1.0 + (-1_f64).exp()).ln();
        assert_eq!((logs[0], logs[1], logs[2]), (f64::NEG_INFINITY, 0.0, 1000.0));
        assert!((logs[3] - last).abs() < 1e-12 && logs[3] == logs[4]);
    }

    #[test]
    fn outputs_may_be_strided_and_inputs_broadcast() {
        let x = tensor(&[1, 3], &[1.0_f32, 2.0, 3.0]).with(|x| x.broadcast_to("test", &[9, 3]));
        let mut out = output(DType::F32, &[64]);
        out.layout = Layout::new("test", &[9, 3], &[-7, 2], 57).unwrap();
        scan_into(ScanOp::Sum, &x, 0, RANGES[0], &mut out);
        assert_eq!(out.elements::<f32>()[24..], [9.0, 18.0, 27.0]);
    }
}
