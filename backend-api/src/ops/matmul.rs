//! Batched matrix products with broadcasting batches, any strides, and accumulation into the output.

use crate::backend::{Backend, Storage};
use crate::dtype::{DType, Scalar};
use crate::elementwise::{View, check_domain, check_dtype, check_output, check_shape, check_storage};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::nest::Nest;
use crate::ops::Op;
use crate::shape::{MAX_RANK, Shape};

/// A matrix within each operand: how far apart rows and columns lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixStrides {
    /// From one row to the next, in elements; 1 when there is no next.
    pub row: isize,
    /// From one column to the next, in elements; 1 when there is no next.
    pub col: isize,
}

/// A validated `out = alpha · a @ b + beta · out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matmul {
    dtype: DType,
    alpha: Scalar,
    beta: Scalar,
    m: usize,
    n: usize,
    k: usize,
    // Entries are the output, a, b.
    matrices: [MatrixStrides; 3],
    batch: Nest<3>,
    min_lens: [usize; 3],
}

impl Matmul {
    /// The shape of `a @ b` by NumPy's rules: batches broadcast; a rank-1 operand is a row on the left, a column on
    /// the right, and its axis is dropped from the result.
    ///
    /// # Errors
    /// `Shape` for an operand of rank 0, inner sizes that differ, or batches that do not broadcast.
    pub fn shape(a: &[usize], b: &[usize]) -> Result<Shape> {
        let (batch, [m, _], [_, n]) = product(a, b)?;
        let mut sizes = batch.to_vec();
        sizes.extend((a.len() > 1).then_some(m));
        sizes.extend((b.len() > 1).then_some(n));
        Shape::new("matmul", &sizes)
    }

    /// Plans `out = alpha · a @ b + beta · out`; `out` has the shape that [`shape`](Self::shape) gives.
    ///
    /// # Errors
    /// `DType` for bool, dtypes that differ, or a scalar of another kind; `Shape` as for [`shape`](Self::shape) and
    /// when `out` has another shape; `Argument` for a scalar that does not fit or an output that overlaps itself.
    pub fn new(a: View<'_>, b: View<'_>, alpha: Scalar, beta: Scalar, out: View<'_>) -> Result<Self> {
        const OP: &str = "matmul";
        check_domain(Op::Matmul, out.dtype)?;
        check_dtype(OP, a.dtype, out.dtype)?;
        check_dtype(OP, b.dtype, out.dtype)?;
        check_shape(OP, "the output", out.layout.shape(), &Self::shape(a.layout.shape(), b.layout.shape())?)?;
        check_output(OP, out.layout)?;
        let (batch, [m, k], [_, n]) = product(a.layout.shape(), b.layout.shape())?;
        // A rank-1 operand gets the axis that its side lacks.
        let (row, column) = (a.layout.rank() == 1, b.layout.rank() == 1);
        let left = if row { a.layout.unsqueeze(0)? } else { *a.layout };
        let right = if column { b.layout.unsqueeze(-1)? } else { *b.layout };
        let mut result = if row { out.layout.unsqueeze(if column { -1 } else { -2 })? } else { *out.layout };
        if column {
            result = result.unsqueeze(-1)?;
        }
        let layouts = [result, left, right];
        let mut matrices = layouts.map(|layout| MatrixStrides { row: step(&layout, -2), col: step(&layout, -1) });
        let batches = [batch_layout(&result, &batch)?, batch_layout(&left, &batch)?, batch_layout(&right, &batch)?];
        let mut batch = Nest::new(std::array::from_fn(|index| &batches[index]));
        // The same product of every matrix of `a` is one product of all their rows.
        let m = if n > 0 && k > 0 { merge_rows(&mut batch, &mut matrices, m) } else { m };
        let (alpha, beta) = (alpha.to_dtype(OP, out.dtype)?, beta.to_dtype(OP, out.dtype)?);
        // As in BLAS, α = 0 means that the operands are not read; of no terms the product is zero, and ∞ · 0 is not.
        let empty = k == 0 || alpha.to_f64() == 0.0;
        let k = if empty { 0 } else { k };
        let alpha = if empty { Scalar::Int(0).to_dtype(OP, out.dtype)? } else { alpha };
        Ok(Self {
            dtype: out.dtype,
            alpha,
            beta,
            m,
            n,
            k,
            matrices,
            batch,
            min_lens: [out.layout.min_len(), a.layout.min_len(), b.layout.min_len()],
        })
    }

    /// The dtype of operands and result.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The factor of the product; 0 where [`k`](Self::k) is.
    #[must_use]
    pub fn alpha(&self) -> Scalar {
        self.alpha
    }

    /// The factor of the output's old value; 0 means that it is not read.
    #[must_use]
    pub fn beta(&self) -> Scalar {
        self.beta
    }

    /// Rows of `a` and of the result; those of a whole batch where its matrices follow evenly and `b` is the same.
    #[must_use]
    pub fn m(&self) -> usize {
        self.m
    }

    /// Columns of `b` and of the result.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// Columns of `a` and rows of `b`; 0, which it also is when α is, makes the product zero.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// Row and column strides of the output, `a` and `b`.
    #[must_use]
    pub fn matrices(&self) -> &[MatrixStrides; 3] {
        &self.matrices
    }

    /// The loop over the batch; operands are the output, `a` and `b`, each at its first element.
    #[must_use]
    pub fn batch(&self) -> &Nest<3> {
        &self.batch
    }

    /// Checks the storages of a call.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan.
    pub fn check<S: Storage>(&self, a: &S, b: &S, out: &S) -> Result<()> {
        check_storage("matmul", "the output", self.dtype, self.min_lens[0], out)?;
        check_storage("matmul", "the left operand", self.dtype, self.min_lens[1], a)?;
        check_storage("matmul", "the right operand", self.dtype, self.min_lens[2], b)
    }
}

/// Matrix products.
pub trait MatmulOps: Backend {
    /// Writes `alpha · a @ b + beta · out` into `out`.
    ///
    /// # Contract
    /// - Every element of the planned output view is written, nothing else.
    /// - With `beta` 0 the old output has no influence, NaN and ∞ included; with α or `k` 0 the
    ///   product is zero, whatever the operands hold.
    /// - α may be applied to the operands, to partial sums, or to the sum, and may overflow there.
    /// - f16 and bf16 accumulate in f32 and round once, after the old output was added.
    /// - f32 means f32: no TF32 unless the backend was told so.
    /// - The sum may be formed in any order, with fused multiply-add or without.
    /// - Integers wrap.
    /// - The same input gives the same bits in every run.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, and what the device reports.
    fn matmul(&self, plan: &Matmul, a: &Self::Storage, b: &Self::Storage, out: &mut Self::Storage) -> Result<()>;
}

/// The broadcast batch, and the sizes [m, k] and [k, n].
fn product(a: &[usize], b: &[usize]) -> Result<(Shape, [usize; 2], [usize; 2])> {
    let fail = |rule: &str| Error::new(ErrorKind::Shape, "matmul", format!("shapes {a:?} and {b:?}: {rule}"));
    let (left, right) = match (a, b) {
        ([], _) | (_, []) => return Err(fail("an operand of rank 0 has no axis to multiply along; use `mul`")),
        (&[k], _) => ([1, k], matrix(b)),
        _ => (matrix(a), matrix(b)),
    };
    if left[1] != right[0] {
        return Err(fail(&format!(
            "the last axis of the left ({}) must equal the rows of the right ({})",
            left[1], right[0]
        )));
    }
    let batch = |shape: &[usize]| shape[..shape.len().saturating_sub(2)].to_vec();
    if a.len().max(b.len()) > MAX_RANK {
        return Err(fail("the rank exceeds the largest, 8"));
    }
    Ok((Shape::broadcast("matmul", &[&batch(a), &batch(b)])?, left, right))
}

/// Takes those axes of a batch into the rows along which `b` stands still and the rows of the other operands go on evenly;
/// returns how many rows there are then.
fn merge_rows(batch: &mut Nest<3>, matrices: &mut [MatrixStrides; 3], mut m: usize) -> usize {
    loop {
        let row = [0, 1].map(|operand: usize| matrices[operand].row);
        let goes_on = |row: isize, step: isize| m == 1 || row.checked_mul(m as isize) == Some(step);
        let mut step = [0; 3];
        let taken = batch.take_axis(|_, [out, a, b]| {
            step = [out, a, b];
            b == 0 && a != 0 && goes_on(row[0], out) && goes_on(row[1], a)
        });
        let Some(size) = taken else { return m };
        if m == 1 {
            (matrices[0].row, matrices[1].row) = (step[0], step[1]);
        }
        m *= size;
    }
}

/// The last two sizes; a vector is one column.
fn matrix(shape: &[usize]) -> [usize; 2] {
    match *shape {
        [k] => [k, 1],
        [.., rows, columns] => [rows, columns],
        [] => [1, 1],
    }
}

/// The stride of axis `from_end`, unless it has none that means anything: such a stride may be any number.
fn step(layout: &Layout, from_end: isize) -> isize {
    let axis = layout.rank().wrapping_add_signed(from_end);
    if layout.count() == 0 || layout.shape()[axis] == 1 { 1 } else { layout.strides()[axis] }
}

fn batch_layout(layout: &Layout, batch: &Shape) -> Result<Layout> {
    let rank = layout.rank() - 2;
    let (shape, strides) = (&layout.shape()[..rank], &layout.strides()[..rank]);
    // A matrix without elements is not read; its strides may be anything.
    let empty = layout.count() == 0;
    let zeros = [0; MAX_RANK];
    let strides = if empty { &zeros[..rank] } else { strides };
    let offset = if empty { 0 } else { layout.offset() };
    Layout::new("matmul", shape, strides, offset)?.broadcast_to("matmul", batch)
}
