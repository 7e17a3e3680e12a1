//! Batched matrix products with any strides.
//!
//! A matrix times [a few vectors](few) is read once, as it lies. Else f32 and f64 go to `matrixmultiply` through ndarray,
//! straight into the output. f16, bf16 and the integers are multiplied tile by tile: operands are widened into contiguous
//! blocks, the sum over the whole of k is kept in the wide type, and each element of the output is rounded once.

mod few;

use congruent_backend_api::ops::matmul::{Matmul, MatrixStrides};
use congruent_backend_api::{Error, MatmulOps, Nest, Result, bf16, f16, match_number};
use ndarray::linalg::general_mat_mul;
use ndarray::{
    Array2, ArrayView2, ArrayViewD, ArrayViewMut2, ArrayViewMutD, Axis, Ix2, IxDyn, ShapeBuilder, Slice, StrideShape,
    Zip,
};

use self::few::Form;
use crate::backend::Cpu;
use crate::lane::{BLOCK, Int, Lane, Number};
use crate::loops::{invalid_view, join};
use crate::storage::CpuStorage;

/// Multiplications that are worth another thread where each costs a pass through memory or a conversion.
const GRAIN: usize = 1 << 18;

/// Rows and columns of the tiles in which widened products are computed.
const TILE: usize = 256;

/// How much of k is widened at once.
const DEPTH: usize = 1024;

#[deny(clippy::missing_trait_methods)]
impl MatmulOps for Cpu {
    fn matmul(&self, plan: &Matmul, a: &CpuStorage, b: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
        plan.check(a, b, out)?;
        match_number!(plan.dtype(), T => matmul::<T>(plan, a, b, out),
            else => Err(Error::unsupported("cpu", "matmul", plan.dtype())))
    }
}

fn matmul<T: Gemm>(plan: &Matmul, a: &CpuStorage, b: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
    let (m, n, k) = (plan.m(), plan.n(), plan.k());
    if plan.batch().count() * m * n == 0 {
        return Ok(());
    }
    let shape = |operand, rows, columns| {
        stacked(plan.batch(), operand, [rows, columns], plan.matrices()[operand], plan.batch().offset(operand))
    };
    let (low, out_shape) = shape(0, m, n);
    let c = ArrayViewMutD::from_shape(out_shape, &mut out.as_mut_slice::<T>()[low..]).map_err(invalid_view)?;
    let (low, a_shape) = shape(1, m, k);
    let a = ArrayViewD::from_shape(a_shape, &a.as_slice::<T>()[low..]).map_err(invalid_view)?;
    let (low, b_shape) = shape(2, k, n);
    let b = ArrayViewD::from_shape(b_shape, &b.as_slice::<T>()[low..]).map_err(invalid_view)?;
    let [_, left, right] = *plan.matrices();
    // Decided before the work is split, or a last piece of one row would be summed in another way.
    let form = Form::new::<T>([m, n, k], left, right);
    // Without terms the product is zero, also where α is ∞ or negative.
    let alpha = if k == 0 { T::default() } else { T::from_scalar(plan.alpha()) };
    let scale = Scale { alpha, beta: T::from_scalar(plan.beta()) };
    let grain = if form.is_some() { GRAIN } else { T::GRAIN };
    let small = c.len().saturating_mul(k) <= grain;
    let pieces = match if small { 1 } else { rayon::current_num_threads() } {
        1 => 1,
        // Memory bounds these, and the longer what is read in one go, the better.
        threads if form.is_some() => threads,
        // A few pieces per thread even out what the threads are given.
        threads => threads * 4,
    };
    product(scale, form, grain, a, b, c, pieces);
    Ok(())
}

/// The factors of the product and of the old output.
#[derive(Clone, Copy)]
struct Scale<T> {
    alpha: T,
    beta: T,
}

impl<T: Lane<Wide: Accumulate>> Scale<T> {
    /// The new value of an element, rounded once.
    fn apply(self, sum: T::Wide, old: T) -> T {
        let product = self.alpha.wide().times(sum);
        // A factor of 0 means that the old value, NaN perhaps, is not read.
        let kept = if self.beta.is_nonzero() { product.plus(self.beta.wide().times(old.wide())) } else { product };
        T::narrow(kept)
    }
}

/// The lowest element and the shape of a stack of matrices.
fn stacked(
    batch: &Nest<3>,
    operand: usize,
    matrix: [usize; 2],
    strides: MatrixStrides,
    offset: usize,
) -> (usize, StrideShape<IxDyn>) {
    let mut sizes = batch.sizes().to_vec();
    sizes.extend(matrix);
    let mut signed = batch.strides(operand).to_vec();
    signed.extend([strides.row, strides.col]);
    if sizes.contains(&0) {
        // Without elements the strides have no meaning.
        signed.fill(0);
    }
    let low = sizes.iter().zip(&signed).fold(offset, |low, (&size, &stride)| {
        low.wrapping_add_signed(if stride < 0 { (size as isize - 1) * stride } else { 0 })
    });
    // An axis of size 1 is never stepped along, whatever its stride.
    let strides: Vec<usize> =
        sizes.iter().zip(&signed).map(|(&size, &stride)| if size > 1 { stride.cast_unsigned() } else { 0 }).collect();
    (low, IxDyn(&sizes).strides(IxDyn(&strides)))
}

/// c = alpha · a @ b + beta · c over a stack of matrices, in at most `pieces` parallel pieces.
///
/// A piece ends at a multiple of 64 rows or columns, which every kernel's tile divides: elements are summed in the
/// same way however many pieces there are.
fn product<T: Gemm>(
    scale: Scale<T>,
    form: Option<Form>,
    grain: usize,
    a: ArrayViewD<'_, T>,
    b: ArrayViewD<'_, T>,
    mut c: ArrayViewMutD<'_, T>,
    pieces: usize,
) {
    let rank = c.ndim();
    let sizes = c.shape().to_vec();
    let (m, n, k) = (sizes[rank - 2], sizes[rank - 1], a.shape()[rank - 1]);
    let work = c.len().saturating_mul(k);
    let stack = sizes[..rank - 2].iter().position(|&size| size > 1);
    if pieces > 1 && work > grain {
        let halve = |size: usize| (size / 2).next_multiple_of(64);
        let half = |(a, b, c)| product(scale, form, grain, a, b, c, pieces.div_ceil(2));
        if let Some(axis) = stack.map(Axis) {
            let at = sizes[axis.0] / 2;
            let ((a0, a1), (b0, b1)) = (a.split_at(axis, at), b.split_at(axis, at));
            let (c0, c1) = c.split_at(axis, at);
            return join((a0, b0, c0), (a1, b1, c1), half);
        }
        if m >= n && m > 64 {
            let at = halve(m);
            let (a0, a1) = a.split_at(Axis(rank - 2), at);
            let (c0, c1) = c.split_at(Axis(rank - 2), at);
            return join((a0, b.clone(), c0), (a1, b, c1), half);
        }
        if n > 64 {
            let at = halve(n);
            let (b0, b1) = b.split_at(Axis(rank - 1), at);
            let (c0, c1) = c.split_at(Axis(rank - 1), at);
            return join((a.clone(), b0, c0), (a, b1, c1), half);
        }
    }
    if rank > 2 {
        for ((a, b), c) in a.outer_iter().zip(b.outer_iter()).zip(c.outer_iter_mut()) {
            product(scale, form, grain, a, b, c, 1);
        }
        return;
    }
    let matrix = "two axes are left";
    let (a, b) = (a.into_dimensionality::<Ix2>().expect(matrix), b.into_dimensionality::<Ix2>().expect(matrix));
    let c = c.into_dimensionality::<Ix2>().expect(matrix);
    match form {
        Some(form) => few::multiply(scale, form, a, b, c),
        None => T::gemm(scale, &a, &b, c),
    }
}

/// An element type with a matrix product.
trait Gemm: Lane<Wide: Accumulate> {
    /// Multiplications that are worth another thread: some 50 µs, several times what waking one takes.
    const GRAIN: usize;

    /// c = alpha · a @ b + beta · c.
    fn gemm(scale: Scale<Self>, a: &ArrayView2<'_, Self>, b: &ArrayView2<'_, Self>, c: ArrayViewMut2<'_, Self>);
}

/// A wide type that sums products.
trait Accumulate: Number {
    /// Whether [`multiply`](Self::multiply) takes columns that are contiguous as well as rows.
    const ANY_LAYOUT: bool;

    /// a · b.
    fn times(self, b: Self) -> Self;

    /// a + b.
    fn plus(self, b: Self) -> Self;

    /// acc += a @ b for contiguous blocks.
    fn multiply(a: &Array2<Self>, b: &Array2<Self>, acc: &mut Array2<Self>);
}

impl<T: Int> Accumulate for T {
    const ANY_LAYOUT: bool = false;

    #[inline(always)]
    fn times(self, b: Self) -> Self {
        Self::from_i64(self.to_i64().wrapping_mul(b.to_i64()))
    }

    #[inline(always)]
    fn plus(self, b: Self) -> Self {
        Self::from_i64(self.to_i64().wrapping_add(b.to_i64()))
    }

    fn multiply(a: &Array2<Self>, b: &Array2<Self>, acc: &mut Array2<Self>) {
        for (a, mut acc) in a.rows().into_iter().zip(acc.rows_mut()) {
            few::add_rows(acc.as_slice_mut().expect("blocks are contiguous"), a, b.view());
        }
    }
}

macro_rules! direct {
    ($($T:ty)*) => {$(
        impl Gemm for $T {
            const GRAIN: usize = 1 << 21;

            fn gemm(scale: Scale<Self>, a: &ArrayView2<'_, Self>, b: &ArrayView2<'_, Self>, mut c: ArrayViewMut2<'_, Self>) {
                general_mat_mul(scale.alpha, a, b, scale.beta, &mut c);
            }
        }

        impl Accumulate for $T {
            const ANY_LAYOUT: bool = true;

            #[inline(always)]
            fn times(self, b: Self) -> Self {
                self * b
            }

            #[inline(always)]
            fn plus(self, b: Self) -> Self {
                self + b
            }

            fn multiply(a: &Array2<Self>, b: &Array2<Self>, acc: &mut Array2<Self>) {
                general_mat_mul(1.0, a, b, 1.0, acc);
            }
        }
    )*};
}

direct!(f64 f32);

macro_rules! widened {
    ($($T:ty: $grain:expr;)*) => {$(
        impl Gemm for $T {
            const GRAIN: usize = $grain;

            fn gemm(scale: Scale<Self>, a: &ArrayView2<'_, Self>, b: &ArrayView2<'_, Self>, c: ArrayViewMut2<'_, Self>) {
                tiled(scale, a, b, c);
            }
        }
    )*};
}

widened! {
    f16: 1 << 21;
    bf16: 1 << 21;
    i64: GRAIN;
    i32: GRAIN;
    u32: GRAIN;
    u8: GRAIN;
}

fn tiled<T: Lane<Wide: Accumulate>>(
    scale: Scale<T>,
    a: &ArrayView2<'_, T>,
    b: &ArrayView2<'_, T>,
    mut c: ArrayViewMut2<'_, T>,
) {
    let k = a.ncols();
    let columns = b.axis_chunks_iter(Axis(1), TILE);
    for (b, mut c) in columns.zip(c.axis_chunks_iter_mut(Axis(1), TILE)) {
        for (a, mut c) in a.axis_chunks_iter(Axis(0), TILE).zip(c.axis_chunks_iter_mut(Axis(0), TILE)) {
            let mut acc = Array2::from_elem(c.dim(), T::Wide::default());
            for start in (0..k).step_by(DEPTH) {
                let end = k.min(start + DEPTH);
                let part = Slice::from(start..end);
                let (a, b) = (widen(&a.slice_axis(Axis(1), part)), widen(&b.slice_axis(Axis(0), part)));
                T::Wide::multiply(&a, &b, &mut acc);
            }
            Zip::from(&mut c).and(&acc).for_each(|c, &acc| *c = scale.apply(acc, *c));
        }
    }
}

/// A contiguous copy in the wide type; of contiguous columns the copy has them too, if the product takes them.
fn widen<T: Lane<Wide: Accumulate>>(matrix: &ArrayView2<'_, T>) -> Array2<T::Wide> {
    if T::Wide::ANY_LAYOUT && matrix.strides()[0] == 1 && matrix.strides()[1] != 1 {
        return widen(&matrix.t()).reversed_axes();
    }
    let mut wide = Array2::from_elem(matrix.dim(), T::Wide::default());
    let mut buffer = T::buffer();
    for (from, mut to) in matrix.rows().into_iter().zip(wide.rows_mut()) {
        match (from.as_slice(), to.as_slice_mut()) {
            (Some(from), Some(to)) => {
                for (from, to) in from.chunks(BLOCK).zip(to.chunks_mut(BLOCK)) {
                    to.copy_from_slice(T::widen_block(from, &mut buffer));
                }
            }
            _ => Zip::from(&mut to).and(&from).for_each(|to, from| *to = from.wide()),
        }
    }
    wide
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::{DType, Element, Layout, Slice};

    use super::*;
    use crate::testing::{Tensor, matmul, matmul_into, on_any_threads, output, tensor, vector};

    /// Whole numbers small enough for every dtype to be exact, at `[rows, columns]` of any layout.
    fn numbers<T: Element + Lane>(rows: usize, columns: usize) -> Tensor {
        let elements: Vec<T> = (0..rows * columns).map(|i| T::from_i64((i * 7 % 5) as i64)).collect();
        tensor(&[rows, columns], &elements)
    }

    fn expected<T: Element + Lane>(a: &Tensor, b: &Tensor) -> Vec<T> {
        let ([m, k], n) = ([a.shape()[0], a.shape()[1]], b.shape()[1]);
        let (a, b) = (a.elements::<T>(), b.elements::<T>());
        let dot = |i: usize, j: usize| -> i64 {
            (0..k).map(|p| a[i * k + p].cast::<i64>() * b[p * n + j].cast::<i64>()).sum()
        };
        (0..m * n).map(|at| T::from_i64(dot(at / n, at % n))).collect()
    }

    fn check<T: Element + Lane>() {
        for [m, n, k] in [[1, 1, 1], [3, 2, 4], [5, 1, 70], [1, 9, 33], [65, 130, 17], [300, 270, 5]] {
            let transposed = |x: Tensor| x.with(|x| x.permute(&[1, 0]));
            let flipped = |x: Tensor| x.with(|x| x.flip(&[0, 1]));
            for a in [numbers::<T>(m, k), transposed(numbers::<T>(k, m)), flipped(numbers::<T>(m, k))] {
                for b in [numbers::<T>(k, n), transposed(numbers::<T>(n, k)), flipped(numbers::<T>(k, n))] {
                    let product = on_any_threads(|| matmul(&a, &b).elements::<T>());
                    assert_eq!(product, expected::<T>(&a, &b), "{} {m} {n} {k}", T::DTYPE);
                }
            }
        }
    }

    #[test]
    fn floats_of_every_layout() {
        check::<f64>();
        check::<f32>();
        check::<f16>();
        check::<bf16>();
    }

    #[test]
    fn integers_of_every_layout_wrap() {
        check::<i64>();
        check::<i32>();
        check::<u32>();
        check::<u8>();
        let (a, b) = (tensor(&[1, 2], &[i64::MAX, 2]), tensor(&[2, 1], &[3, i64::MAX]));
        let wrapped = i64::MAX.wrapping_mul(3).wrapping_add(i64::MAX.wrapping_mul(2));
        assert_eq!(matmul(&a, &b).elements::<i64>(), [wrapped]);
    }

    #[test]
    fn vectors_and_batches_broadcast() {
        let a = tensor(&[2, 1, 2], &[1, 2, 3, 4]);
        let b = tensor(&[3, 2, 1], &[1, 1, 1, 0, 0, 1]);
        // Batches [2] and [3] broadcast after the left one gets an axis.
        let a = a.with(|a| a.unsqueeze(1));
        let product = matmul(&a, &b);
        assert_eq!((product.shape(), product.elements::<i32>()), (vec![2, 3, 1, 1], vec![3, 1, 2, 7, 3, 4]));
        assert_eq!(matmul(&vector(&[1.0, 2.0]), &vector(&[3.0, 4.0])).elements::<f64>(), [11.0]);
        let row = matmul(&vector(&[1_f32, 2.0]), &tensor(&[2, 2], &[1_f32, 2.0, 3.0, 4.0]));
        assert_eq!((row.shape(), row.elements::<f32>()), (vec![2], vec![7.0, 10.0]));
    }

    #[test]
    fn old_outputs_are_scaled_or_not_read() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let nan = |dtype| {
                let (nan, mut out) = (vector(&[f64::NAN]), output(dtype, &[2, 2]));
                crate::testing::copy_into(&nan, &mut out);
                out
            };
            let to = |x: Tensor| {
                let mut out = output(dtype, &x.shape());
                crate::testing::copy_into(&x, &mut out);
                out
            };
            let read = |x: &Tensor| {
                let mut out = output(DType::F64, &x.shape());
                crate::testing::copy_into(x, &mut out);
                out.elements::<f64>()
            };
            let (a, b) = (to(tensor(&[2, 1], &[1.0, 2.0])), to(tensor(&[1, 2], &[3.0, 4.0])));
            let mut out = nan(dtype);
            matmul_into(&a, &b, 2.into(), 0.into(), &mut out);
            assert_eq!(read(&out), [6.0, 8.0, 12.0, 16.0]);
            matmul_into(&a, &b, 1.into(), 0.5.into(), &mut out);
            assert_eq!(read(&out), [6.0, 8.0, 12.0, 16.0]);
            let (a, b) = (to(tensor::<f64>(&[2, 0], &[])), to(tensor::<f64>(&[0, 2], &[])));
            matmul_into(&a, &b, 1.into(), 0.5.into(), &mut out);
            assert_eq!(read(&out), [3.0, 4.0, 6.0, 8.0]);
            let mut out = nan(dtype);
            matmul_into(&a, &b, 1.into(), 0.into(), &mut out);
            assert_eq!(read(&out), [0.0; 4]);
            // Of nothing the product is zero, and α has no say.
            let (a, b) = (to(tensor::<f64>(&[1, 0], &[])), to(tensor::<f64>(&[0, 2], &[])));
            let mut out = nan(dtype).with(|out| out.slice(0, Slice { start: None, stop: Some(1), step: 1 }));
            matmul_into(&a, &b, f64::INFINITY.into(), 0.into(), &mut out);
            assert_eq!(read(&out), [0.0; 2]);
        }
    }

    #[test]
    fn halves_accumulate_in_f32() {
        // In f16 the sum would stop at 2048, where the spacing becomes 2.
        let ones = vec![f16::ONE; 5000];
        let product = matmul(&tensor(&[1, 5000], &ones), &tensor(&[5000, 1], &ones));
        assert_eq!(product.elements::<f16>(), [f16::from_f32(5000.0)]);
    }

    #[test]
    fn outputs_of_any_layout_and_fractions_do_not_depend_on_threads() {
        let fraction = |i: usize| 1.0 / (1.0 + i as f32);
        let a = tensor(&[2, 190, 80], &(0..30_400).map(fraction).collect::<Vec<_>>());
        let b = tensor(&[80, 200], &(0..16_000).map(fraction).collect::<Vec<_>>());
        let product = on_any_threads(|| matmul(&a, &b).elements::<f32>());
        let odd = tensor(&[65, 80], &(0..5200).map(fraction).collect::<Vec<_>>());
        on_any_threads(|| matmul(&odd, &b).elements::<f32>());
        let strided = on_any_threads(|| {
            let mut out = output(DType::F32, &[190 * 200 * 4]);
            out.layout = Layout::new("test", &[2, 190, 200], &[1, 400, -2], 401).unwrap();
            matmul_into(&a, &b, 1.into(), 0.into(), &mut out);
            out.elements::<f32>()
        });
        for (x, y) in product.iter().zip(strided) {
            assert!((x - y).abs() <= 1e-5 * x.abs(), "{x} {y}");
        }
    }
}
