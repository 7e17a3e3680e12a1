//! Products of a matrix with a few vectors: bound by the one pass over the matrix, so nothing is packed.
//!
//! The matrix is read once along its contiguous axis, whatever that is. Where columns are contiguous, every sum of a
//! block of rows takes one column after another: `c[i] += a[i][p] · x[p]`. Where rows are, each is a dot product spread over
//! [`LANES`] sums. Either way an element's sum does not depend on which other rows are computed beside it.

use congruent_backend_api::ops::matmul::MatrixStrides;
use ndarray::{ArrayView1, ArrayView2, ArrayViewMut2, Axis};

use super::{Accumulate, Scale};
use crate::lane::{BLOCK, Lane};
use crate::simd::light;

/// The most vectors that are multiplied without packing.
const FEW: usize = 8;

/// The elements of a matrix that is packed for several vectors all the same.
const SMALL: usize = 1 << 10;

/// The sums that a dot product is spread over.
const LANES: usize = 32;

/// The columns that are added in one pass over the sums.
const COLUMNS: usize = 4;

/// The elements of a row that are gathered at once: a broadcast row may be longer than memory.
const PIECE: usize = 1 << 16;

/// How a product is a matrix times a few vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// Whether the vectors are the rows of the left operand, or else the columns of the right one.
    left: bool,
    /// Whether sums are dot products of rows, or else made of columns.
    dots: bool,
}

impl Form {
    /// The form of `a @ b` in which the matrix is read as it lies; `None` where packing pays.
    pub(super) fn new<T: Lane>([m, n, k]: [usize; 3], a: MatrixStrides, b: MatrixStrides) -> Option<Self> {
        /// Shorter columns do not fill the registers, and shorter rows not the lanes.
        const SHORT: usize = 16;
        let columns = |length: usize| length >= k.min(SHORT);
        // A small matrix is packed in no time, in which several vectors gain more.
        let worth = |matrix: usize, vectors: usize| vectors == 1 || matrix.saturating_mul(k) >= SMALL;
        let (left, right) = (m <= FEW && worth(n, m), n <= FEW && worth(m, n));
        // Packing widens too, so what must be widened gains from dot products for longer.
        let dots = if size_of::<T::Wide>() > size_of::<T>() { FEW } else { 2 };
        if left && b.col == 1 && columns(n) {
            Some(Self { left: true, dots: false })
        } else if right && a.row == 1 && columns(m) {
            Some(Self { left: false, dots: false })
        } else if left && m <= dots && b.row == 1 && k >= SHORT {
            Some(Self { left: true, dots: true })
        } else if right && n <= dots && a.col == 1 && k >= SHORT {
            Some(Self { left: false, dots: true })
        } else {
            (m == 1 || n == 1).then_some(Self { left: m == 1, dots: true })
        }
    }
}

/// c = alpha · a @ b + beta · c.
pub(super) fn multiply<T: Lane<Wide: Accumulate>>(
    scale: Scale<T>,
    form: Form,
    a: ArrayView2<'_, T>,
    b: ArrayView2<'_, T>,
    c: ArrayViewMut2<'_, T>,
) {
    // (a @ b)ᵀ = bᵀ @ aᵀ.
    let (matrix, vectors, mut out) =
        if form.left { (b.reversed_axes(), a.reversed_axes(), c.reversed_axes()) } else { (a, b, c) };
    let count = vectors.ncols();
    let rows = if form.dots { BLOCK } else { 4 * BLOCK }.div_ceil(count);
    for (matrix, mut out) in matrix.axis_chunks_iter(Axis(0), rows).zip(out.axis_chunks_iter_mut(Axis(0), rows)) {
        let sums = if form.dots { dot_rows(matrix, vectors) } else { add_columns(matrix, vectors) };
        for (mut out, sums) in out.columns_mut().into_iter().zip(sums.chunks_exact(matrix.nrows())) {
            for (out, &sum) in out.iter_mut().zip(sums) {
                *out = scale.apply(sum, *out);
            }
        }
    }
}

/// The product of each vector after the other, as sums of columns that are contiguous.
fn add_columns<T: Lane<Wide: Accumulate>>(matrix: ArrayView2<'_, T>, vectors: ArrayView2<'_, T>) -> Vec<T::Wide> {
    let (rows, k) = matrix.dim();
    let mut sums = vec![T::Wide::default(); rows * vectors.ncols()];
    let mut buffers: [T::Buffer; COLUMNS] = std::array::from_fn(|_| T::buffer());
    for first in (0..k).step_by(COLUMNS) {
        let count = COLUMNS.min(k - first);
        for start in (0..rows).step_by(BLOCK) {
            let end = rows.min(start + BLOCK);
            let mut columns: [&[T::Wide]; COLUMNS] = [&[]; COLUMNS];
            for (at, (column, buffer)) in columns[..count].iter_mut().zip(&mut buffers).enumerate() {
                *column = T::widen_block(&contiguous(matrix.column(first + at))[start..end], buffer);
            }
            for (sums, vector) in sums.chunks_exact_mut(rows).zip(vectors.columns()) {
                let factors =
                    std::array::from_fn(|at| vector.get(first + at).map_or_else(Default::default, |x| x.wide()));
                add_scaled(&mut sums[start..end], &columns[..count], factors);
            }
        }
    }
    sums
}

fn contiguous<T>(vector: ArrayView1<'_, T>) -> &[T] {
    // One element lies alone, whatever the stride.
    vector.to_slice().expect("the matrix is read along its contiguous axis")
}

/// sums += factors @ rows, one contiguous row after the other.
pub(super) fn add_rows<W: Accumulate>(sums: &mut [W], factors: ArrayView1<'_, W>, rows: ArrayView2<'_, W>) {
    for (factors, rows) in factors.axis_chunks_iter(Axis(0), COLUMNS).zip(rows.axis_chunks_iter(Axis(0), COLUMNS)) {
        let (mut four, mut parts) = ([W::default(); COLUMNS], [&[][..]; COLUMNS]);
        for (at, (&factor, row)) in factors.iter().zip(rows.rows()).enumerate() {
            (four[at], parts[at]) = (factor, contiguous(row));
        }
        add_scaled(sums, &parts[..rows.nrows()], four);
    }
}

/// sums += Σ column · factor, one column after the other.
fn add_scaled<W: Accumulate>(sums: &mut [W], columns: &[&[W]], factors: [W; COLUMNS]) {
    light(
        #[inline(always)]
        || {
            if let [a, b, c, d] = *columns {
                let [fa, fb, fc, fd] = factors;
                for ((((sum, &a), &b), &c), &d) in sums.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                    *sum = sum.plus(a.times(fa)).plus(b.times(fb)).plus(c.times(fc)).plus(d.times(fd));
                }
                return;
            }
            for (column, factor) in columns.iter().zip(factors) {
                for (sum, &x) in sums.iter_mut().zip(*column) {
                    *sum = sum.plus(x.times(factor));
                }
            }
        },
    );
}

/// The product of each vector after the other, as dot products of rows, contiguous or not.
fn dot_rows<T: Lane<Wide: Accumulate>>(matrix: ArrayView2<'_, T>, vectors: ArrayView2<'_, T>) -> Vec<T::Wide> {
    let (rows, count) = (matrix.nrows(), vectors.ncols());
    let (mut buffer, mut gathered) = (T::buffer(), Vec::new());
    let mut lanes = vec![[T::Wide::default(); LANES]; rows * count];
    for (matrix, vectors) in matrix.axis_chunks_iter(Axis(1), PIECE).zip(vectors.axis_chunks_iter(Axis(0), PIECE)) {
        let wide: Vec<T::Wide> = vectors.columns().into_iter().flatten().map(|x| x.wide()).collect();
        for (row, lanes) in matrix.rows().into_iter().zip(lanes.chunks_exact_mut(count)) {
            let row = row.to_slice().unwrap_or_else(|| {
                gathered.clear();
                gathered.extend(row.iter().copied());
                &gathered
            });
            for (at, part) in row.chunks(BLOCK).enumerate() {
                let part = T::widen_block(part, &mut buffer);
                for (lanes, vector) in lanes.iter_mut().zip(wide.chunks_exact(row.len())) {
                    add_products(lanes, part, &vector[at * BLOCK..][..part.len()]);
                }
            }
        }
    }
    (0..count).flat_map(|vector| lanes.iter().skip(vector).step_by(count)).map(total).collect()
}

/// Adds the products of two slices to the lanes.
fn add_products<W: Accumulate>(lanes: &mut [W; LANES], a: &[W], x: &[W]) {
    light(
        #[inline(always)]
        || {
            // A copy of its own stays in registers.
            let mut sums = *lanes;
            let ((a, a_rest), (x, x_rest)) = (a.as_chunks::<LANES>(), x.as_chunks::<LANES>());
            // Loops of this form are vectorised.
            for (a, x) in a.iter().zip(x) {
                for lane in 0..LANES {
                    sums[lane] = sums[lane].plus(a[lane].times(x[lane]));
                }
            }
            *lanes = sums;
            for ((sum, &a), &x) in lanes.iter_mut().zip(a_rest).zip(x_rest) {
                *sum = sum.plus(a.times(x));
            }
        },
    );
}

/// The sum of the lanes, pair by pair.
fn total<W: Accumulate>(lanes: &[W; LANES]) -> W {
    let mut sums = *lanes;
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for at in 0..width {
            sums[at] = sums[at].plus(sums[at + width]);
        }
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::{Element, f16};

    use super::*;
    use crate::testing::{Tensor, matmul, on_any_threads, tensor};

    fn strides(row: isize, col: isize) -> MatrixStrides {
        MatrixStrides { row, col }
    }

    #[test]
    fn the_matrix_is_read_as_it_lies() {
        let (rows, columns) = (|n| strides(n, 1), |m| strides(1, m));
        let form = |left, dots| Some(Form { left, dots });
        assert_eq!(Form::new::<f16>([1, 500, 300], rows(300), rows(500)), form(true, false));
        assert_eq!(Form::new::<f16>([8, 500, 300], rows(300), columns(300)), form(true, true));
        assert_eq!(Form::new::<f16>([500, 1, 300], rows(300), rows(1)), form(false, true));
        assert_eq!(Form::new::<f16>([500, 8, 300], columns(500), rows(8)), form(false, false));
        // A dot product has no columns to speak of, and a strided matrix is gathered for a vector only.
        assert_eq!(Form::new::<f16>([1, 1, 300], rows(300), rows(1)), form(true, true));
        assert_eq!(Form::new::<f16>([500, 1, 300], strides(900, 3), rows(1)), form(false, true));
        assert_eq!(Form::new::<f16>([500, 2, 300], strides(900, 3), rows(2)), None);
        assert_eq!(Form::new::<f32>([2, 500, 300], rows(300), columns(300)), form(true, true));
        assert_eq!(Form::new::<f32>([3, 500, 300], rows(300), columns(300)), None);
        assert_eq!(Form::new::<f16>([500, 9, 300], rows(300), rows(9)), None);
    }

    /// Sums of whole numbers are exact in any order, so every form must agree with the plain one.
    fn check<T: Element + Lane>() {
        let whole = |rows: usize, columns: usize| -> Tensor {
            let elements: Vec<T> = (0..rows * columns).map(|i| T::from_i64((i * 7 % 5) as i64 % 2)).collect();
            tensor(&[rows, columns], &elements)
        };
        let layouts = |rows, columns| {
            let turned = whole(columns, rows).with(|x| x.permute(&[1, 0]));
            [whole(rows, columns), turned]
        };
        for [few, many, k] in [[1, 4100, 70], [2, 1500, 1030], [8, 70, 133], [8, 8, 8], [3, 5, 200], [4, 1100, 3]] {
            for [m, n] in [[few, many], [many, few]] {
                for a in layouts(m, k) {
                    for b in layouts(k, n) {
                        let (x, y) = (a.elements::<T>(), b.elements::<T>());
                        let sum = |i: usize, j: usize| -> i64 {
                            (0..k).map(|p| x[i * k + p].cast::<i64>() * y[p * n + j].cast::<i64>()).sum()
                        };
                        let expected: Vec<T> = (0..m * n).map(|at| T::from_i64(sum(at / n, at % n))).collect();
                        let product = on_any_threads(|| matmul(&a, &b).elements::<T>());
                        assert!(product == expected, "{} {m} {n} {k}", T::DTYPE);
                    }
                }
            }
        }
    }

    #[test]
    fn every_form_is_the_product() {
        check::<f32>();
        check::<f16>();
        check::<i32>();
    }

    /// Longer than what is gathered at once.
    #[test]
    fn long_broadcast_rows() {
        let k = 200_001;
        let row = tensor(&[1, 1], &[f16::ONE]).with(|x| x.broadcast_to("test", &[2, k]));
        let column = tensor(&[k], &vec![f16::from_f32(0.25); k]);
        assert_eq!(matmul(&row, &column).elements::<f16>(), [f16::from_f32(50_000.25); 2]);
    }
}
