//! The crates that only multiply: row-major operands, a new result each time, all threads.

use std::hint::black_box;

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use crate::case::{Call, Case, Refusal};

/// The call of a product; operands that lie as columns are read with their strides exchanged.
pub(crate) fn prepare(library: &str, case: &Case) -> Result<Call, Refusal> {
    let (flip_a, flip_b) = match case.op.as_str() {
        "matmul" => (false, false),
        "matmul_at" => (true, false),
        "matmul_bt" => (false, true),
        "matmul_atbt" => (true, true),
        _ => return Err(case.missing()),
    };
    let (a, b) = (case.input(0)?, case.input(1)?);
    let (a_shape, b_shape) = (Matrix::new(a.rows(), flip_a), Matrix::new(b.rows(), flip_b));
    if a_shape.columns != b_shape.rows {
        return Err(Refusal::Failed(format!("{} columns by {} rows", a_shape.columns, b_shape.rows)));
    }
    let (a, b) = (a.floats(), b.floats());
    let doubles = |values: &[f32]| values.iter().map(|&value| f64::from(value)).collect::<Vec<_>>();
    match (library, case.dtype.as_str()) {
        ("faer", "f32") => Ok(faer_product(a, a_shape, b, b_shape)),
        ("faer", "f64") => Ok(faer_product(doubles(&a), a_shape, doubles(&b), b_shape)),
        ("gemm", "f32") => Ok(gemm_product(a, a_shape, b, b_shape, [0.0, 1.0])),
        ("gemm", "f64") => Ok(gemm_product(doubles(&a), a_shape, doubles(&b), b_shape, [0.0, 1.0])),
        ("gemm", "f16") => {
            let halves = |values: &[f32]| values.iter().map(|&value| gemm::f16::from_f32(value)).collect::<Vec<_>>();
            let constants = [gemm::f16::ZERO, gemm::f16::ONE];
            Ok(gemm_product(halves(&a), a_shape, halves(&b), b_shape, constants))
        }
        ("matrixmultiply", "f32") => Ok(Box::new(move || {
            let mut out = vec![0.0_f32; a_shape.rows * b_shape.columns];
            let (m, k, n) = (a_shape.rows, a_shape.columns, b_shape.columns);
            let ((ra, ca), (rb, cb)) = (a_shape.strides, b_shape.strides);
            // SAFETY: the shapes were checked against each other; each stride and size is that of its whole vector.
            unsafe {
                matrixmultiply::sgemm(
                    m,
                    k,
                    n,
                    1.0,
                    a.as_ptr(),
                    ra,
                    ca,
                    b.as_ptr(),
                    rb,
                    cb,
                    0.0,
                    out.as_mut_ptr(),
                    n as isize,
                    1,
                );
            }
            black_box(&out);
            Ok(())
        })),
        ("matrixmultiply", "f64") => {
            let (a, b) = (doubles(&a), doubles(&b));
            Ok(Box::new(move || {
                let mut out = vec![0.0_f64; a_shape.rows * b_shape.columns];
                let (m, k, n) = (a_shape.rows, a_shape.columns, b_shape.columns);
                let ((ra, ca), (rb, cb)) = (a_shape.strides, b_shape.strides);
                // SAFETY: as above.
                unsafe {
                    matrixmultiply::dgemm(
                        m,
                        k,
                        n,
                        1.0,
                        a.as_ptr(),
                        ra,
                        ca,
                        b.as_ptr(),
                        rb,
                        cb,
                        0.0,
                        out.as_mut_ptr(),
                        n as isize,
                        1,
                    );
                }
                black_box(&out);
                Ok(())
            }))
        }
        _ => Err(case.missing()),
    }
}

/// A matrix in a vector.
#[derive(Clone, Copy)]
struct Matrix {
    rows: usize,
    columns: usize,
    /// From one row to the next, and from one column to the next.
    strides: (isize, isize),
}

impl Matrix {
    /// A row-major matrix of these sizes, or its transpose.
    fn new([rows, columns]: [usize; 2], transposed: bool) -> Self {
        if transposed {
            return Self { rows: columns, columns: rows, strides: (1, columns as isize) };
        }
        Self { rows, columns, strides: (columns as isize, 1) }
    }

    fn view<T>(self, values: &[T]) -> MatRef<'_, T> {
        if self.strides.0 == 1 {
            return MatRef::from_column_major_slice(values, self.rows, self.columns);
        }
        MatRef::from_row_major_slice(values, self.rows, self.columns)
    }
}

fn faer_product<T: faer::traits::ComplexField + Copy + 'static>(
    a: Vec<T>,
    a_shape: Matrix,
    b: Vec<T>,
    b_shape: Matrix,
) -> Call {
    Box::new(move || {
        let mut out = vec![T::zero_impl(); a_shape.rows * b_shape.columns];
        let to = MatMut::from_row_major_slice_mut(&mut out, a_shape.rows, b_shape.columns);
        matmul(to, Accum::Replace, a_shape.view(&a), b_shape.view(&b), T::one_impl(), Par::rayon(0));
        black_box(&out);
        Ok(())
    })
}

fn gemm_product<T: Copy + Send + Sync + 'static>(
    a: Vec<T>,
    a_shape: Matrix,
    b: Vec<T>,
    b_shape: Matrix,
    [zero, one]: [T; 2],
) -> Call {
    Box::new(move || {
        let (m, k, n) = (a_shape.rows, a_shape.columns, b_shape.columns);
        let mut out = vec![zero; m * n];
        let ((ra, ca), (rb, cb)) = (a_shape.strides, b_shape.strides);
        let threads = gemm::Parallelism::Rayon(0);
        // SAFETY: the shapes were checked against each other; each stride and size is that of its whole vector.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                out.as_mut_ptr(),
                1,
                n as isize,
                false,
                a.as_ptr(),
                ca,
                ra,
                b.as_ptr(),
                cb,
                rb,
                zero,
                one,
                false,
                false,
                false,
                threads,
            );
        }
        black_box(&out);
        Ok(())
    })
}
