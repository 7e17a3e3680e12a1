//! Matrix products: floats by cuBLASLt and cuBLAS (`blas.rs`); integers, empty products and what the libraries lack by
//! `matmul.cu`.
//!
//! The libraries write straight into the output. Transposes and padded rows are passed as they are; an operand whose
//! strides BLAS cannot express (both strides apart from 1, reversed, broadcast within the matrix) goes through a compact
//! copy. One axis of the batch is theirs, stride 0 included; the host loops over the rest.
//!
//! Many of their kernels round a half-precision product before they add β times the old output, and then again. The
//! contract rounds once, so such a product goes to f32 memory, from where the kernel `linear` adds and rounds.

use congruent_backend_api::ops::linear::Activation;
use congruent_backend_api::ops::matmul::{Matmul, MatrixStrides};
use congruent_backend_api::{DType, Layout, MAX_RANK, MatmulOps, Op, Result, Scalar};

use super::linear::Finish;
use super::scalar_bits;
use crate::blas::{BlasMatrix, Gemm};
use crate::device::Cuda;
use crate::kernels::Kernel;
use crate::launch::MatmulParameter;
use crate::nest::DeviceNest;
use crate::storage::{CudaStorage, DevicePointer};

#[deny(clippy::missing_trait_methods, reason = "a default would be a performance bug")]
impl MatmulOps for Cuda {
    fn matmul(&self, plan: &Matmul, a: &CudaStorage, b: &CudaStorage, out: &mut CudaStorage) -> Result<()> {
        plan.check(a, b, out)?;
        self.order("matmul", [a, b], out)?;
        if plan.m() == 0 || plan.n() == 0 || plan.batch().count() == 0 {
            return Ok(());
        }
        let product = Product::new(plan, out, a, b);
        let half = plan.dtype().is_float() && plan.dtype().size() == 2;
        if !half || plan.beta().to_f64() == 0.0 {
            return self.product(&product);
        }
        let layout = product.layout()?;
        let memory = self.sums(&product)?;
        let sums = (memory.at(0), Layout::contiguous(*layout.shape()));
        let addend = Some((out.at(0), layout));
        self.finish(
            plan.dtype(),
            &layout,
            out,
            &Finish { sums, addend, factor: plan.beta(), activation: Activation::Identity },
        )
    }
}

/// A product, and where it goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product<'a> {
    plan: &'a Matmul,
    out: Operand,
    a: Operand,
    b: Operand,
    /// The plan's, or f32 for the sums of a half-precision product, which have no old value.
    out_dtype: DType,
    /// Elements that are added to each row.
    bias: Option<DevicePointer>,
}

impl<'a> Product<'a> {
    /// The product of a plan into its output; the plan was checked against the storages.
    pub(super) fn new(plan: &'a Matmul, out: &CudaStorage, a: &CudaStorage, b: &CudaStorage) -> Self {
        let operand = |index: usize, storage: &CudaStorage, rows: usize, cols: usize| {
            let mut batch = [0; MAX_RANK];
            batch[..plan.batch().rank()].copy_from_slice(plan.batch().strides(index));
            let pointer = storage.at(plan.batch().offset(index));
            Operand { pointer, rows, cols, strides: plan.matrices()[index], batch }
        };
        let (m, n, k) = (plan.m(), plan.n(), plan.k());
        let (out, a, b) = (operand(0, out, m, n), operand(1, a, m, k), operand(2, b, k, n));
        Self { plan, out, a, b, out_dtype: plan.dtype(), bias: None }
    }

    /// The same with a bias, if a library can add it while it writes the output.
    pub(super) fn with_bias(self, bias: DevicePointer) -> Option<Self> {
        let (plan, rows) = (self.plan, self.out.form().is_some_and(|(transposed, _)| !transposed));
        // Vectors are read faster by kernels that add nothing.
        let matrices = plan.m() > 1 && plan.n() > 1 && plan.k() > 0;
        (rows && matrices && bias.is_aligned()).then_some(Self { bias: Some(bias), ..self })
    }

    /// The output of the plan: its batch, rows and columns.
    pub(super) fn layout(&self) -> Result<Layout> {
        let (batch, matrix) = (self.plan.batch(), self.plan.matrices()[0]);
        let sizes = [batch.sizes(), &[self.plan.m(), self.plan.n()]].concat();
        let strides = [batch.strides(0), &[matrix.row, matrix.col]].concat();
        Layout::new("matmul", &sizes, &strides, batch.offset(0))
    }

    fn beta(&self) -> Scalar {
        if self.out_dtype == self.plan.dtype() { self.plan.beta() } else { Scalar::Float(0.0) }
    }
}

impl Cuda {
    /// A product by a library, or else by `matmul.cu`.
    pub(super) fn product(&self, product: &Product<'_>) -> Result<()> {
        if self.blas(product)? { Ok(()) } else { self.tiled(product) }
    }

    /// α·a @ b in the type of computation, row-major, a batch after the other; β has no influence.
    pub(super) fn sums(&self, product: &Product<'_>) -> Result<CudaStorage> {
        let dtype = if product.plan.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let (out, memory) = self.compact(product.plan, product.out, dtype)?;
        self.product(&Product { out, out_dtype: dtype, ..*product })?;
        Ok(memory)
    }

    fn tiled(&self, product: &Product<'_>) -> Result<()> {
        const TILE: usize = 16;
        let plan = product.plan;
        let compute = if plan.dtype().size() == 2 { DType::F32 } else { plan.dtype() };
        let operands = [product.out, product.a, product.b];
        let batch = plan.batch().sizes().iter().enumerate();
        let parameter = MatmulParameter {
            batch: DeviceNest::new(batch.map(|(axis, &size)| (size, operands.map(|operand| operand.batch[axis])))),
            pointers: operands.map(|operand| operand.pointer),
            strides: operands.map(|operand| [operand.strides.row as i64, operand.strides.col as i64]),
            sizes: [plan.m() as u64, plan.n() as u64, plan.k() as u64],
            alpha: scalar_bits(plan.alpha(), compute),
            beta: scalar_bits(product.beta(), compute),
            wide: u64::from(product.out_dtype != plan.dtype()),
        };
        let tiles = plan.m().div_ceil(TILE).saturating_mul(plan.n().div_ceil(TILE));
        let blocks = plan.batch().count().saturating_mul(tiles);
        // SAFETY: the operands are those of a plan that its op has checked against their storages, or compact copies that
        // the caller owns; the output is borrowed mutably or such a copy.
        unsafe { self.device.launch(Kernel::new(Op::Matmul, plan.dtype()), blocks, &parameter) }
    }

    /// A product by a library; `false`, and nothing is written, when none takes it.
    pub(super) fn blas(&self, product: &Product<'_>) -> Result<bool> {
        let plan = product.plan;
        // There is no bf16 before compute capability 8.0.
        let lacks = plan.dtype() == DType::BF16 && self.device.arch() < 80;
        if !plan.dtype().is_float() || plan.k() == 0 || lacks {
            return Ok(false);
        }
        // Temporaries live until the end of this function; freeing them is ordered after the product.
        let (a, _a_memory) = self.readable(plan, product.a)?;
        let (b, _b_memory) = self.readable(plan, product.b)?;
        let product = Product { a, b, ..*product };
        if product.out.form().is_some() {
            return self.products(&product);
        }
        let (temporary, _memory) = self.compact(plan, product.out, plan.dtype())?;
        if product.beta().to_f64() != 0.0 {
            self.transfer(plan, product.out, temporary, Direction::ToTemporary)?;
        }
        let ran = self.products(&Product { out: temporary, ..product })?;
        if ran {
            self.transfer(plan, product.out, temporary, Direction::FromTemporary)?;
        }
        Ok(ran)
    }

    /// An operand that BLAS can read: itself, or a compact copy and its memory.
    fn readable(&self, plan: &Matmul, operand: Operand) -> Result<(Operand, Option<CudaStorage>)> {
        if operand.form().is_some() {
            return Ok((operand, None));
        }
        let (temporary, memory) = self.compact(plan, operand, plan.dtype())?;
        self.transfer(plan, operand, temporary, Direction::ToTemporary)?;
        Ok((temporary, Some(memory)))
    }

    /// Memory for a compact copy of an operand; batch axes of stride 0 keep it.
    fn compact(&self, plan: &Matmul, operand: Operand, dtype: DType) -> Result<(Operand, CudaStorage)> {
        let mut temporary =
            Operand { strides: MatrixStrides { row: operand.cols as isize, col: 1 }, batch: [0; MAX_RANK], ..operand };
        let mut len = operand.rows * operand.cols;
        for (axis, &size) in plan.batch().sizes().iter().enumerate().rev() {
            if operand.batch[axis] != 0 {
                temporary.batch[axis] = len as isize;
                len *= size;
            }
        }
        let memory = CudaStorage::alloc(&self.device, dtype, len)?;
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

    /// The products of the batch: its largest axis in one call each, the other axes one after another. `false` when a
    /// library takes none of them, which it decides by their kind alone.
    fn products(&self, product: &Product<'_>) -> Result<bool> {
        let (plan, operands) = (product.plan, [product.out, product.a, product.b]);
        let dtypes = [product.out_dtype, plan.dtype(), plan.dtype()];
        let sizes = plan.batch().sizes();
        let forward = |axis: &usize| operands.iter().all(|operand| operand.batch[*axis] >= 0);
        let inner = (0..sizes.len()).filter(forward).max_by_key(|&axis| sizes[axis]);
        let outer = || (0..sizes.len()).rev().filter(|&axis| Some(axis) != inner);
        let count: usize = outer().map(|axis| sizes[axis]).product();
        for mut index in 0..count {
            let mut at = [0_isize; 3];
            for axis in outer() {
                let step = (index % sizes[axis]) as isize;
                index /= sizes[axis];
                for (at, operand) in at.iter_mut().zip(operands) {
                    *at += step * operand.batch[axis];
                }
            }
            let [out, a, b] = std::array::from_fn(|index| {
                let operand: Operand = operands[index];
                let (transposed, ld) = operand.form().unwrap_or((false, operand.cols));
                let pointer = operand.pointer.offset(at[index], dtypes[index]);
                BlasMatrix { pointer, transposed, ld, batch_stride: inner.map_or(0, |axis| operand.batch[axis]) }
            });
            let gemm = Gemm {
                dtype: plan.dtype(),
                out_dtype: product.out_dtype,
                m: plan.m(),
                n: plan.n(),
                k: plan.k(),
                alpha: plan.alpha().to_f64(),
                beta: product.beta().to_f64(),
                a,
                b,
                out,
                bias: product.bias,
                batch: inner.map_or(1, |axis| sizes[axis]),
            };
            // SAFETY: the matrices are operands of a plan that its op has checked, or compact copies that the caller still
            // owns; `form` gave strides that stay inside of them. The output is borrowed mutably or such a copy. The bias
            // is that of a plan that `linear` has checked.
            if !unsafe { self.device.gemm(&gemm) }? {
                return Ok(false);
            }
        }
        Ok(true)
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
