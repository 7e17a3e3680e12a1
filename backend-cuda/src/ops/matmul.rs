//! Matrix products: floats by cuBLAS (`blas.rs`); integers, empty products, what cuBLAS lacks and what it rounds twice
//! (half precision with β) by `matmul.cu`.
//!
//! cuBLAS writes straight into the output. Transposes and padded rows are passed as they are; an operand whose strides
//! BLAS cannot express (both strides apart from 1, reversed, broadcast within the matrix) goes through a compact copy.
//! One axis of the batch is cuBLAS's, stride 0 included; the host loops over the rest.

use congruent_backend_api::ops::matmul::{Matmul, MatrixStrides};
use congruent_backend_api::{DType, MAX_RANK, MatmulOps, Nest, Op, Result};

use super::scalar_bits;
use crate::blas::{BlasMatrix, Gemm};
use crate::device::Cuda;
use crate::kernels::Kernel;
use crate::launch::MatmulParameter;
use crate::storage::{CudaStorage, DevicePointer};

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl MatmulOps for Cuda {
    fn matmul(&self, plan: &Matmul, a: &CudaStorage, b: &CudaStorage, out: &mut CudaStorage) -> Result<()> {
        plan.check(a, b, out)?;
        for storage in [a, b, &*out] {
            self.check_owner("matmul", storage)?;
        }
        if plan.m() == 0 || plan.n() == 0 || plan.batch().count() == 0 {
            return Ok(());
        }
        let pointers = [out.at(plan.batch().offset(0)), a.at(plan.batch().offset(1)), b.at(plan.batch().offset(2))];
        // BLAS has no bf16 before compute capability 8.0.
        let lacks = plan.dtype() == DType::BF16 && self.device.arch() < 80;
        // With β and a half-precision output, many of cuBLAS's kernels round the product before they add the old output,
        // and then again.
        let rounds_twice = plan.dtype().size() == 2 && plan.beta().to_f64() != 0.0;
        if !plan.dtype().is_float() || plan.k() == 0 || lacks || rounds_twice {
            return self.tiled(plan, pointers);
        }
        self.blas(plan, pointers)
    }
}

impl Cuda {
    fn tiled(&self, plan: &Matmul, pointers: [DevicePointer; 3]) -> Result<()> {
        const TILE: usize = 16;
        let compute = if plan.dtype() == DType::F64 || !plan.dtype().is_float() { plan.dtype() } else { DType::F32 };
        let parameter = MatmulParameter {
            batch: plan.batch().into(),
            pointers,
            strides: plan.matrices().map(|matrix| [matrix.row as i64, matrix.col as i64]),
            sizes: [plan.m() as u64, plan.n() as u64, plan.k() as u64],
            alpha: scalar_bits(plan.alpha(), compute),
            beta: scalar_bits(plan.beta(), compute),
        };
        let tiles = plan.m().div_ceil(TILE).saturating_mul(plan.n().div_ceil(TILE));
        let blocks = plan.batch().count().saturating_mul(tiles);
        // SAFETY: `matmul` has checked the plan against the storages in which `pointers` lie, and borrows the output
        // mutably.
        unsafe { self.device.launch(Kernel::new(Op::Matmul, plan.dtype()), blocks, &parameter) }
    }

    fn blas(&self, plan: &Matmul, pointers: [DevicePointer; 3]) -> Result<()> {
        let (m, n, k) = (plan.m(), plan.n(), plan.k());
        let operand = |index: usize, rows, cols| {
            Operand::new(pointers[index], rows, cols, plan.matrices()[index], plan.batch(), index)
        };
        let (target, left, right) = (operand(0, m, n), operand(1, m, k), operand(2, k, n));
        // Temporaries live until the end of this function; freeing them is ordered after the product.
        let (a, _a_memory) = self.readable(plan, left)?;
        let (b, _b_memory) = self.readable(plan, right)?;
        if target.form().is_some() {
            return self.products(plan, target, a, b);
        }
        let (temporary, memory) = self.compact(plan, target)?;
        if plan.beta().to_f64() != 0.0 {
            self.transfer(plan, target, temporary, Direction::ToTemporary)?;
        }
        self.products(plan, temporary, a, b)?;
        self.transfer(plan, target, temporary, Direction::FromTemporary)?;
        drop(memory);
        Ok(())
    }

    /// An operand that BLAS can read: itself, or a compact copy and its memory.
    fn readable(&self, plan: &Matmul, operand: Operand) -> Result<(Operand, Option<CudaStorage>)> {
        if operand.form().is_some() {
            return Ok((operand, None));
        }
        let (temporary, memory) = self.compact(plan, operand)?;
        self.transfer(plan, operand, temporary, Direction::ToTemporary)?;
        Ok((temporary, Some(memory)))
    }

    /// Memory for a compact copy of an operand; batch axes of stride 0 keep it.
    fn compact(&self, plan: &Matmul, operand: Operand) -> Result<(Operand, CudaStorage)> {
        let mut temporary =
            Operand { strides: MatrixStrides { row: operand.cols as isize, col: 1 }, batch: [0; MAX_RANK], ..operand };
        let mut len = operand.rows * operand.cols;
        for (axis, &size) in plan.batch().sizes().iter().enumerate().rev() {
            if operand.batch[axis] != 0 {
                temporary.batch[axis] = len as isize;
                len *= size;
            }
        }
        let memory = CudaStorage::alloc(&self.device, plan.dtype(), len)?;
        temporary.pointer = memory.at(0);
        Ok((temporary, memory))
    }

    fn transfer(&self, plan: &Matmul, operand: Operand, temporary: Operand, direction: Direction) -> Result<()> {
        let both = |of: isize, temporary: isize| match direction {
            Direction::ToTemporary => [temporary, of],
            Direction::FromTemporary => [of, temporary],
        };
        let batch = plan.batch().sizes().iter().enumerate().filter(|&(axis, _)| operand.batch[axis] != 0);
        let batch = batch.map(|(axis, &size)| (size, both(operand.batch[axis], temporary.batch[axis])));
        let matrix = [
            (operand.rows, both(operand.strides.row, temporary.strides.row)),
            (operand.cols, both(operand.strides.col, temporary.strides.col)),
        ];
        let (from, to) = match direction {
            Direction::ToTemporary => (operand.pointer, temporary.pointer),
            Direction::FromTemporary => (temporary.pointer, operand.pointer),
        };
        // SAFETY: one side is an operand of the plan that `matmul` has checked; the other is the memory that `compact`
        // allocated for as many elements, and that the caller still owns.
        unsafe { self.move_elements(plan.dtype(), batch.chain(matrix), from, to) }
    }

    /// The products of the batch: its largest axis in one call each, the other axes one after another.
    fn products(&self, plan: &Matmul, target: Operand, a: Operand, b: Operand) -> Result<()> {
        let sizes = plan.batch().sizes();
        let forward = |axis: &usize| [target, a, b].iter().all(|operand| operand.batch[*axis] >= 0);
        let inner = (0..sizes.len()).filter(forward).max_by_key(|&axis| sizes[axis]);
        let count: usize =
            sizes.iter().enumerate().filter(|&(axis, _)| Some(axis) != inner).map(|(_, &size)| size).product();
        for mut index in 0..count {
            let mut at = [0_isize; 3];
            for axis in (0..sizes.len()).rev().filter(|&axis| Some(axis) != inner) {
                let step = (index % sizes[axis]) as isize;
                index /= sizes[axis];
                for (at, operand) in at.iter_mut().zip([target, a, b]) {
                    *at += step * operand.batch[axis];
                }
            }
            let matrix = |operand: Operand, at: isize| {
                let (transposed, ld) = operand.form().unwrap_or((false, operand.cols));
                let pointer = operand.pointer.offset(at, plan.dtype());
                BlasMatrix { pointer, transposed, ld, batch_stride: inner.map_or(0, |axis| operand.batch[axis]) }
            };
            let gemm = Gemm {
                dtype: plan.dtype(),
                m: plan.m(),
                n: plan.n(),
                k: plan.k(),
                alpha: plan.alpha().to_f64(),
                beta: plan.beta().to_f64(),
                out: matrix(target, at[0]),
                a: matrix(a, at[1]),
                b: matrix(b, at[2]),
                batch: inner.map_or(1, |axis| sizes[axis]),
            };
            // SAFETY: the matrices are operands of the plan that `matmul` has checked, or compact copies that the caller
            // still owns; `form` gave strides that stay inside of them. The output is borrowed mutably or such a copy.
            unsafe { self.device.gemm(&gemm) }?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    ToTemporary,
    FromTemporary,
}

/// A batch of matrices in memory.
#[derive(Clone, Copy, Debug)]
struct Operand {
    pointer: DevicePointer,
    rows: usize,
    cols: usize,
    strides: MatrixStrides,
    batch: [isize; MAX_RANK],
}

impl Operand {
    fn new(
        pointer: DevicePointer,
        rows: usize,
        cols: usize,
        strides: MatrixStrides,
        nest: &Nest<3>,
        index: usize,
    ) -> Self {
        let mut batch = [0; MAX_RANK];
        batch[..nest.rank()].copy_from_slice(nest.strides(index));
        Self { pointer, rows, cols, strides, batch }
    }

    /// How BLAS takes the matrix: whether transposed, and the leading dimension; `None` when it cannot.
    fn form(&self) -> Option<(bool, usize)> {
        // Lines are `lines` runs of `len` neighbouring elements, `stride` apart.
        let leading = |lines: usize, stride: isize, len: usize, step: isize| {
            let dense = len <= 1 || step == 1;
            let apart = if lines <= 1 { len } else { usize::try_from(stride).ok()? };
            (dense && apart >= len && apart > 0).then_some(apart)
        };
        let MatrixStrides { row, col } = self.strides;
        let rows = leading(self.rows, row, self.cols, col).map(|ld| (false, ld));
        rows.or_else(|| leading(self.cols, col, self.rows, row).map(|ld| (true, ld)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(rows: usize, cols: usize, row: isize, col: isize) -> Option<(bool, usize)> {
        let strides = MatrixStrides { row, col };
        Operand { pointer: DevicePointer::NULL, rows, cols, strides, batch: [0; MAX_RANK] }.form()
    }

    #[test]
    fn strides_that_blas_can_express() {
        assert_eq!(form(2, 3, 3, 1), Some((false, 3)));
        assert_eq!(form(2, 3, 5, 1), Some((false, 5)));
        assert_eq!(form(2, 3, 1, 2), Some((true, 2)));
        assert_eq!(form(2, 3, 1, 7), Some((true, 7)));
        // One row, one column, one element: the stride across has no say.
        assert_eq!(form(1, 3, 0, 1), Some((false, 3)));
        assert_eq!(form(1, 3, -9, 4), Some((true, 4)));
        assert_eq!(form(3, 1, 4, 0), Some((false, 4)));
        assert_eq!(form(1, 1, 0, -1), Some((false, 1)));
        // Apart in both directions, reversed, broadcast, overlapping.
        assert_eq!(form(2, 3, 6, 2), None);
        assert_eq!(form(2, 3, -3, 1), None);
        assert_eq!(form(2, 3, 0, 1), None);
        assert_eq!(form(2, 3, 2, 1), None);
    }
}
