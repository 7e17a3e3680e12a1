//! Sorting along an axis, the first k of an order ([`SortOp`]), and binary search in sorted rows ([`SearchSorted`]).
//!
//! All of them use one total preorder: NaN of either sign is equal to NaN and above +∞, −0 is equal to +0, `false` is
//! below `true`, and the rest is ordered as numbers are. Sorting is stable in both directions: of equal elements the one
//! that came first stays first, so the result is unique, bit for bit, on every backend.

use crate::backend::{Backend, Storage};
use crate::dtype::DType;
use crate::elementwise::{View, check_dtype, check_output, check_shape, check_storage};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Layout, Slice};
use crate::nest::Nest;
use crate::ops::Op;
use crate::shape::{MAX_RANK, Shape, axis};

/// What is written of the sorted order along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SortOp {
    /// The positions of the sorted elements, i64.
    Argsort,
    /// The sorted elements, bits unchanged.
    Sort,
    /// The positions of the first k sorted elements, i64.
    Topk,
}

impl SortOp {
    /// Every op of the family.
    pub const ALL: &[Self] = &[Self::Argsort, Self::Sort, Self::Topk];

    /// The op's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Argsort => "argsort",
            Self::Sort => "sort",
            Self::Topk => "topk",
        }
    }

    /// The dtype of the result for an input of `dtype`.
    #[must_use]
    pub fn out_dtype(self, dtype: DType) -> DType {
        if self == Self::Sort { dtype } else { DType::I64 }
    }
}

/// A validated call of a [`SortOp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sort {
    op: SortOp,
    dtype: DType,
    descending: bool,
    rows: Nest<2>,
    len: usize,
    taken: usize,
    strides: [isize; 2],
    min_lens: [usize; 2],
}

impl Sort {
    /// The shape of the first `k` of `x` along an axis.
    ///
    /// # Errors
    /// `Axis` when the axis does not exist; `Argument` when it has fewer than `k` elements.
    pub fn topk_shape(x: &[usize], k: usize, along: isize) -> Result<Shape> {
        let name = SortOp::Topk.name();
        let along = axis(name, along, x.len())?;
        check_k(k, along, x[along])?;
        let mut sizes = x.to_vec();
        sizes[along] = k;
        Shape::new(name, &sizes)
    }

    /// Plans `out = op(x)` along an axis: `out` has the shape of `x`, for [`SortOp::Topk`] with k elements along the axis.
    ///
    /// # Errors
    /// `DType` when `out` has another dtype than the result; `Axis`; `Shape` when `out` has another shape than the
    /// result; `Argument` when k exceeds the size of the axis, or when `out` overlaps itself.
    pub fn new(op: SortOp, x: View<'_>, along: isize, descending: bool, out: View<'_>) -> Result<Self> {
        let name = op.name();
        check_dtype(name, out.dtype, op.out_dtype(x.dtype))?;
        let along = axis(name, along, x.layout.rank())?;
        let len = x.layout.shape()[along];
        let mut shape = *x.layout.shape();
        if op == SortOp::Topk
            && let Some(&k) = out.layout.shape().get(along)
        {
            shape = Self::topk_shape(&shape, k, along as isize)?;
        }
        check_shape(name, "the output", out.layout.shape(), &shape)?;
        check_output(name, out.layout)?;
        let empty = out.layout.count() == 0;
        let first = Slice { start: Some(0), stop: Some(1), step: 1 };
        let rows = match empty {
            true => Nest::new([out.layout, out.layout]),
            false => Nest::new([&out.layout.slice(along as isize, first)?, &x.layout.slice(along as isize, first)?]),
        };
        let taken = shape[along];
        // Without a next element the layout's stride may be any number.
        let stride = |layout: &Layout, len| if empty || len == 1 { 1 } else { layout.strides()[along] };
        Ok(Self {
            op,
            dtype: x.dtype,
            descending,
            rows,
            len,
            taken,
            strides: [stride(out.layout, taken), stride(x.layout, len)],
            min_lens: [out.layout.min_len(), x.layout.min_len()],
        })
    }

    /// What is written.
    #[must_use]
    pub fn op(&self) -> SortOp {
        self.op
    }

    /// The dtype of the input.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dtype of the result.
    #[must_use]
    pub fn out_dtype(&self) -> DType {
        self.op.out_dtype(self.dtype)
    }

    /// Whether the greatest element comes first.
    #[must_use]
    pub fn descending(&self) -> bool {
        self.descending
    }

    /// The rows: operand 0 is the output, operand 1 the input, each at the first element of a row.
    #[must_use]
    pub fn rows(&self) -> &Nest<2> {
        &self.rows
    }

    /// The elements of an input row.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the rows have no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements of an output row: all, or k.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// The distances of neighbours in a row of the output and of the input; 1 where there are none.
    #[must_use]
    pub fn strides(&self) -> [isize; 2] {
        self.strides
    }

    /// Checks the storages of a call.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan.
    pub fn check<S: Storage>(&self, x: &S, out: &S) -> Result<()> {
        check_storage(self.op.name(), "the output", self.out_dtype(), self.min_lens[0], out)?;
        check_storage(self.op.name(), "the input", self.dtype, self.min_lens[1], x)
    }
}

fn check_k(k: usize, along: usize, size: usize) -> Result<()> {
    if k <= size {
        return Ok(());
    }
    let message = format!("k is {k}, but axis {along} has {size} elements; k must be at most that");
    Err(Error::new(ErrorKind::Argument, SortOp::Topk.name(), message))
}

/// A validated search for the places at which values belong in sorted rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SearchSorted {
    dtype: DType,
    right: bool,
    nest: Nest<3>,
    len: usize,
    stride: isize,
    min_lens: [usize; 3],
}

impl SearchSorted {
    /// Plans, for each element of `values`, how many elements of its sorted row are less, or with `right` less or equal.
    ///
    /// The rows are the last axis of `sorted`; its other axes broadcast to those of `values`. `out` is i64 and has the
    /// shape of `values`.
    ///
    /// # Errors
    /// `DType` when the dtypes of `sorted` and `values` differ or `out` is not i64; `Axis` when `sorted` has no axis;
    /// `Shape` when the rows do not broadcast, or `out` has another shape than `values`; `Argument` when `out` overlaps
    /// itself.
    pub fn new(sorted: View<'_>, values: View<'_>, right: bool, out: View<'_>) -> Result<Self> {
        let name = Op::SearchSorted.name();
        check_dtype(name, values.dtype, sorted.dtype)?;
        check_dtype(name, out.dtype, DType::I64)?;
        let last = axis(name, -1, sorted.layout.rank())?;
        let shape = values.layout.shape();
        check_shape(name, "the output", out.layout.shape(), shape)?;
        check_output(name, out.layout)?;
        let len = sorted.layout.shape()[last];
        let starts = row_starts(name, sorted.layout, shape)?;
        let (nothing, single) = (sorted.layout.count() == 0, len == 1);
        Ok(Self {
            dtype: values.dtype,
            right,
            nest: Nest::new([out.layout, values.layout, &starts]),
            len,
            stride: if nothing || single { 1 } else { sorted.layout.strides()[last] },
            min_lens: [out, values, sorted].map(|view| view.layout.min_len()),
        })
    }

    /// The dtype of the rows and the values.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether equal elements of a row count too.
    #[must_use]
    pub fn right(&self) -> bool {
        self.right
    }

    /// The visits: operand 0 is the output, operand 1 the value, operand 2 the first element of its row.
    #[must_use]
    pub fn nest(&self) -> &Nest<3> {
        &self.nest
    }

    /// The elements of a row.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the rows have no elements; every result is then 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The distance of neighbours in a row; 1 where there are none.
    #[must_use]
    pub fn stride(&self) -> isize {
        self.stride
    }

    /// Checks the storages of a call.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan.
    pub fn check<S: Storage>(&self, sorted: &S, values: &S, out: &S) -> Result<()> {
        let name = Op::SearchSorted.name();
        check_storage(name, "the output", DType::I64, self.min_lens[0], out)?;
        check_storage(name, "the values", self.dtype, self.min_lens[1], values)?;
        check_storage(name, "the sorted rows", self.dtype, self.min_lens[2], sorted)
    }
}

/// The first element of the row in which each value is searched.
fn row_starts(op: &'static str, sorted: &Layout, values: &Shape) -> Result<Layout> {
    let rank = sorted.rank() - 1;
    // Without elements nothing is read, and strides may be anything.
    let (strides, offset) = match sorted.count() {
        0 => ([0; MAX_RANK], 0),
        _ => {
            let mut strides = [0; MAX_RANK];
            strides[..rank].copy_from_slice(&sorted.strides()[..rank]);
            (strides, sorted.offset())
        }
    };
    let shape = &sorted.shape()[..rank];
    if rank == 0 {
        return Layout::new(op, &[], &[], offset)?.broadcast_to(op, values);
    }
    let kept = values.rank().saturating_sub(1);
    let rows = Layout::new(op, shape, &strides[..rank], offset)?.broadcast_to(op, &values[..kept])?;
    rows.unsqueeze(-1)?.broadcast_to(op, values)
}

/// Sorting and searching in sorted rows.
pub trait SortOps: Backend {
    /// Writes the rows of `x` in order, or the positions of their elements in that order, into `out`.
    ///
    /// # Contract
    /// - Ascending, NaN is last; descending, the order of unequal elements is reversed and NaN is first.
    /// - Of equal elements (−0 and +0, two NaNs) the one that came first stays first, descending too.
    /// - Sorted elements keep their bits, the sign of zero and NaN payloads too.
    /// - Every element of the planned output view is written, nothing else.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `OutOfMemory` for the temporaries, `Unsupported`, and what the
    /// device reports.
    fn sort(&self, plan: &Sort, x: &Self::Storage, out: &mut Self::Storage) -> Result<()>;

    /// Writes the places at which `values` belong in the sorted rows into `out`.
    ///
    /// # Contract
    /// - The number of elements of the row that are less than the value, or with `right` less or equal, where NaN is
    ///   above +∞ and −0 equals +0.
    /// - In a row that is not sorted, some number between 0 and its length.
    /// - Every element of the planned output view is written, nothing else.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, and what the device reports.
    fn search_sorted(
        &self,
        plan: &SearchSorted,
        sorted: &Self::Storage,
        values: &Self::Storage,
        out: &mut Self::Storage,
    ) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(sizes: &[usize]) -> Layout {
        Layout::contiguous(Shape::new("test", sizes).unwrap())
    }

    fn view(dtype: DType, layout: &Layout) -> View<'_> {
        View { dtype, layout }
    }

    #[test]
    fn rows_start_where_the_axis_does() {
        let x = layout(&[2, 3, 4]).flip(&[1]).unwrap();
        let out = layout(&[2, 3, 4]);
        let plan = Sort::new(SortOp::Argsort, view(DType::F32, &x), 1, true, view(DType::I64, &out)).unwrap();
        assert_eq!((plan.len(), plan.taken(), plan.strides()), (3, 3, [4, -4]));
        assert_eq!((plan.rows().sizes(), plan.rows().offset(1)), (&[2, 4][..], 8));
        let wrong = Sort::new(SortOp::Argsort, view(DType::F32, &x), 1, true, view(DType::F32, &out));
        assert_eq!(wrong.unwrap_err().kind(), ErrorKind::DType);
    }

    #[test]
    fn k_is_at_most_the_size() {
        assert_eq!(*Sort::topk_shape(&[2, 3], 2, -1).unwrap(), [2, 2]);
        assert_eq!(Sort::topk_shape(&[2, 3], 4, 1).unwrap_err().kind(), ErrorKind::Argument);
        assert_eq!(Sort::topk_shape(&[], 1, 0).unwrap_err().kind(), ErrorKind::Axis);
        let x = layout(&[2, 3]);
        for (sizes, kind) in [
            (&[2, 0][..], None),
            (&[2, 3], None),
            (&[2, 4], Some(ErrorKind::Argument)),
            (&[1, 3], Some(ErrorKind::Shape)),
            (&[2], Some(ErrorKind::Shape)),
        ] {
            let out = layout(sizes);
            let plan = Sort::new(SortOp::Topk, view(DType::Bool, &x), 1, true, view(DType::I64, &out));
            assert_eq!(plan.err().map(|error| error.kind()), kind, "{sizes:?}");
        }
        let none = layout(&[2, 0]);
        let plan = Sort::new(SortOp::Topk, view(DType::F32, &x), 1, true, view(DType::I64, &none)).unwrap();
        assert_eq!((plan.rows().count(), plan.taken()), (0, 0));
    }

    #[test]
    fn sorted_rows_broadcast_over_the_values() {
        fn f32(layout: &Layout) -> View<'_> {
            view(DType::F32, layout)
        }
        let plan = |sorted: &[usize], values: &[usize]| {
            let (sorted, values) = (layout(sorted), layout(values));
            SearchSorted::new(f32(&sorted), f32(&values), false, view(DType::I64, &values))
        };
        assert_eq!(plan(&[5], &[]).unwrap().nest().rank(), 0);
        assert!(plan(&[5], &[2, 3]).unwrap().nest().is_constant(2));
        assert_eq!(plan(&[3, 5], &[2, 3, 4]).unwrap().nest().strides(2), [0, 5, 0]);
        assert_eq!(plan(&[3, 1, 5], &[3, 2, 4]).unwrap().nest().strides(2), [5, 0]);
        assert_eq!(plan(&[3, 0], &[3, 4]).unwrap().len(), 0);
        for (sorted, values, kind) in [
            (&[2, 5][..], &[3, 4][..], ErrorKind::Shape),
            (&[2, 5], &[2], ErrorKind::Shape),
            (&[], &[2], ErrorKind::Axis),
        ] {
            assert_eq!(plan(sorted, values).unwrap_err().kind(), kind, "{sorted:?} {values:?}");
        }
        let (row, out) = (layout(&[5]), layout(&[2]));
        let mixed = SearchSorted::new(f32(&row), view(DType::F64, &out), false, view(DType::I64, &out));
        assert_eq!(mixed.unwrap_err().kind(), ErrorKind::DType);
    }
}
