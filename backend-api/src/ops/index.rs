//! Reading and writing at positions that are data.
//!
//! With the second of three axes as the example: gather is `out[i, j, k] = x[i, index[i, j, k], k]`, scatter is
//! `out[i, index[i, j, k], k] ∘= src[i, j, k]`, where ∘ replaces, adds or takes an extreme. A view that broadcasts (stride
//! 0) makes one index serve a whole row, so that `index_select`, `embedding`, `take`, `index_add`, `put`, `one_hot` and
//! `bincount` are the same two plans.

use crate::backend::{Backend, Storage};
use crate::dtype::DType;
use crate::elementwise::{View, check_domain, check_dtype, check_output, check_shape, check_storage};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::nest::Nest;
use crate::ops::Op;
use crate::shape::{MAX_RANK, Shape, axis};

/// What a scatter makes of the old value and a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScatterOp {
    /// Their sum; integers wrap.
    Add,
    /// The greater; NaN if either is; −0 < +0.
    Max,
    /// The less; NaN if either is; −0 < +0.
    Min,
    /// The source; of several the last one in row-major order.
    Set,
}

impl ScatterOp {
    /// Every op of the family.
    pub const ALL: &[Self] = &[Self::Add, Self::Max, Self::Min, Self::Set];

    /// The op's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "scatter_add",
            Self::Max => "scatter_max",
            Self::Min => "scatter_min",
            Self::Set => "scatter",
        }
    }

    /// Whether the op is defined for `dtype`.
    #[must_use]
    pub fn accepts(self, dtype: DType) -> bool {
        self == Self::Set || dtype.is_number()
    }
}

/// A validated gather along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gather {
    dtype: DType,
    index_dtype: DType,
    nest: Nest<3>,
    len: usize,
    stride: isize,
    min_lens: [usize; 3],
}

impl Gather {
    /// The shape of the result: along the axis that of `index`, elsewhere both broadcast.
    ///
    /// # Errors
    /// `Axis` when the axis does not exist; `Shape` when the ranks differ or sizes elsewhere do not broadcast.
    pub fn shape(x: &[usize], along: isize, index: &[usize]) -> Result<Shape> {
        let along = axis("gather", along, x.len())?;
        check_rank("gather", "the index", index, x.len())?;
        let mut others = Shape::new("gather", x)?.to_vec();
        others[along] = 1;
        let fits = |axis: usize| others[axis] == index[axis] || others[axis] == 1 || index[axis] == 1;
        if !(0..x.len()).all(|axis| axis == along || fits(axis)) {
            let message = format!(
                "x of shape {x:?} and the index of shape {index:?} must have equal sizes, or 1, on every axis but {along}"
            );
            return Err(Error::new(ErrorKind::Shape, "gather", message));
        }
        Shape::broadcast("gather", &[&others, index])
    }

    /// Plans `out[…, j, …] = x[…, index[…, j, …], …]` along axis `along`. `index` broadcasts to `out`'s shape, and so does
    /// `x` on every other axis.
    ///
    /// # Errors
    /// `DType` when `index` is not i64, i32, u32 or u8, or `out` has another dtype than `x`; `Axis`; `Shape` when ranks
    /// differ or something does not broadcast; `Argument` when `out` overlaps itself.
    pub fn new(x: View<'_>, along: isize, index: View<'_>, out: View<'_>) -> Result<Self> {
        const OP: &str = "gather";
        check_domain(Op::Gather, x.dtype)?;
        check_dtype(OP, out.dtype, x.dtype)?;
        check_index(OP, index.dtype)?;
        let along = axis(OP, along, x.layout.rank())?;
        check_rank(OP, "the output", out.layout.shape(), x.layout.rank())?;
        check_output(OP, out.layout)?;
        let shape = out.layout.shape();
        let fits = |axis: usize| axis == along || [1, shape[axis]].contains(&x.layout.shape()[axis]);
        if !(0..shape.rank()).all(fits) {
            let message = format!(
                "x of shape {:?} and the output of shape {shape:?} may differ only along axis {along}, or where x has size 1",
                x.layout.shape()
            );
            return Err(Error::new(ErrorKind::Shape, OP, message));
        }
        let indices = index.layout.broadcast_to(OP, shape)?;
        let first = at_first(OP, x.layout, along)?.broadcast_to(OP, shape)?;
        let min_lens = [out.layout.min_len(), index.layout.min_len(), x.layout.min_len()];
        let (len, stride) = (x.layout.shape()[along], step(x.layout, along));
        let nest = Nest::new([out.layout, &indices, &first]);
        Ok(Self { dtype: x.dtype, index_dtype: index.dtype, nest, len, stride, min_lens })
    }

    /// The dtype of the input and the output.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dtype of the index.
    #[must_use]
    pub fn index_dtype(&self) -> DType {
        self.index_dtype
    }

    /// The elements of the output: operand 0 is the output, 1 the index, 2 the input at position 0 of the axis.
    #[must_use]
    pub fn nest(&self) -> &Nest<3> {
        &self.nest
    }

    /// How many positions the input has; an index must be less.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the input has no positions, so that every index is out of range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The input's stride from one position to the next; 1 when there is no next.
    #[must_use]
    pub fn stride(&self) -> isize {
        self.stride
    }

    /// Checks the storages of a call.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan.
    pub fn check<S: Storage>(&self, x: &S, index: &S, out: &S) -> Result<()> {
        check_storage("gather", "the output", self.dtype, self.min_lens[0], out)?;
        check_storage("gather", "the index", self.index_dtype, self.min_lens[1], index)?;
        check_storage("gather", "the input", self.dtype, self.min_lens[2], x)
    }
}

/// A validated scatter along one axis, into an output that holds the old values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scatter {
    op: ScatterOp,
    dtype: DType,
    index_dtype: DType,
    kept: Nest<3>,
    count: usize,
    len: usize,
    strides: [isize; 3],
    min_lens: [usize; 3],
}

impl Scatter {
    /// Plans `out[…, index[…, j, …], …] ∘= src[…, j, …]` along axis `along`. `index` and `src` broadcast to one shape, which
    /// is that of `out` but for the axis.
    ///
    /// # Errors
    /// `DType` when the op is not defined for `out`, `src` has another dtype, or `index` is not i64, i32, u32 or u8;
    /// `Axis`; `Shape` when ranks differ or something does not broadcast; `Argument` when `out` overlaps itself.
    pub fn new(op: ScatterOp, along: isize, index: View<'_>, src: View<'_>, out: View<'_>) -> Result<Self> {
        let name = op.name();
        check_domain(Op::Scatter(op), out.dtype)?;
        check_dtype(name, src.dtype, out.dtype)?;
        check_index(name, index.dtype)?;
        let along = axis(name, along, out.layout.rank())?;
        check_rank(name, "the index", index.layout.shape(), out.layout.rank())?;
        check_rank(name, "the source", src.layout.shape(), out.layout.rank())?;
        check_output(name, out.layout)?;
        let given = Shape::broadcast(name, &[index.layout.shape(), src.layout.shape()])?;
        let mut sizes = out.layout.shape().to_vec();
        let len = std::mem::replace(&mut sizes[along], given[along]);
        let (indices, sources) = (index.layout.broadcast_to(name, &sizes)?, src.layout.broadcast_to(name, &sizes)?);
        let kept =
            [without(name, out.layout, along)?, without(name, &indices, along)?, without(name, &sources, along)?];
        let strides = [step(out.layout, along), step(&indices, along), step(&sources, along)];
        let min_lens = [out.layout.min_len(), index.layout.min_len(), src.layout.min_len()];
        let kept = Nest::new([&kept[0], &kept[1], &kept[2]]);
        Ok(Self { op, dtype: out.dtype, index_dtype: index.dtype, kept, count: given[along], len, strides, min_lens })
    }

    /// What is made of the old value and a source.
    #[must_use]
    pub fn op(&self) -> ScatterOp {
        self.op
    }

    /// The dtype of the source and the output.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dtype of the index.
    #[must_use]
    pub fn index_dtype(&self) -> DType {
        self.index_dtype
    }

    /// The other axes: operand 0 is the output, 1 the index, 2 the source, each at position 0 of the axis.
    #[must_use]
    pub fn kept(&self) -> &Nest<3> {
        &self.kept
    }

    /// How many positions index and source have along the axis. Two sources meet only if they differ in this position
    /// alone, so that their order is that of the positions.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many positions the output has; an index must be less.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the output has no positions, so that every index is out of range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The strides of output, index and source from one position to the next; 1 when there is no next.
    #[must_use]
    pub fn strides(&self) -> [isize; 3] {
        self.strides
    }

    /// Checks the storages of a call.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan.
    pub fn check<S: Storage>(&self, index: &S, src: &S, out: &S) -> Result<()> {
        check_storage(self.op.name(), "the output", self.dtype, self.min_lens[0], out)?;
        check_storage(self.op.name(), "the index", self.index_dtype, self.min_lens[1], index)?;
        check_storage(self.op.name(), "the source", self.dtype, self.min_lens[2], src)
    }
}

/// A validated search for the true elements of a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonzero {
    nest: Nest<2>,
    count: usize,
    offset: usize,
    stride: isize,
    min_lens: [usize; 2],
}

impl Nonzero {
    /// Plans the positions of the first true elements of `mask`, as many as `out` has room for.
    ///
    /// # Errors
    /// `DType` when `mask` is not bool or `out` not i64; `Shape` when `out` has another rank than 1; `Argument` when `out`
    /// overlaps itself.
    pub fn new(mask: View<'_>, out: View<'_>) -> Result<Self> {
        const OP: &str = "nonzero";
        check_domain(Op::Nonzero, mask.dtype)?;
        check_dtype(OP, out.dtype, DType::I64)?;
        check_shape(OP, "the output", out.layout.shape(), &[out.layout.count()])?;
        check_output(OP, out.layout)?;
        let rows = Layout::contiguous(*mask.layout.shape());
        let (count, stride) = (out.layout.count(), step(out.layout, 0));
        let offset = if count == 0 { 0 } else { out.layout.offset() };
        let min_lens = [out.layout.min_len(), mask.layout.min_len()];
        Ok(Self { nest: Nest::new([&rows, mask.layout]), count, offset, stride, min_lens })
    }

    /// The elements of the mask in row-major order: operand 0 counts them, operand 1 is the mask.
    #[must_use]
    pub fn nest(&self) -> &Nest<2> {
        &self.nest
    }

    /// How many positions the output has room for.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Where the first position goes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The output's stride; 1 when there is no next.
    #[must_use]
    pub fn stride(&self) -> isize {
        self.stride
    }

    /// Checks the storages of a call.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan.
    pub fn check<S: Storage>(&self, mask: &S, out: &S) -> Result<()> {
        check_storage("nonzero", "the output", DType::I64, self.min_lens[0], out)?;
        check_storage("nonzero", "the mask", DType::Bool, self.min_lens[1], mask)
    }
}

/// Reading and writing at positions that are data.
pub trait IndexOps: Backend {
    /// Writes the elements of `x` that `index` names into `out`.
    ///
    /// # Contract
    /// - Bits are copied unchanged, NaN payloads too.
    /// - An index that is negative or not less than the axis reads nothing: the element becomes 0 and the backend is
    ///   marked, so that the next synchronising call returns `IndexOutOfRange`.
    /// - Every element of the planned output view is written, nothing else.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, and what the device reports.
    fn gather(&self, plan: &Gather, x: &Self::Storage, index: &Self::Storage, out: &mut Self::Storage) -> Result<()>;

    /// Writes the elements of `src` into the elements of `out` that `index` names.
    ///
    /// # Contract
    /// - Where several sources name one element, `scatter` leaves the last of them in row-major order; `scatter_add` adds
    ///   each of them to the old value, `scatter_max` and `scatter_min` take the extreme of them and the old value.
    /// - A float sum is no deeper than [`summation_depth`](crate::ops::reduce::summation_depth) of the terms, the old value
    ///   among them; f16 and bf16 accumulate in f32 and round once. Integer sums wrap.
    /// - An index that is negative or not less than the axis writes nothing and marks the backend, so that the next
    ///   synchronising call returns `IndexOutOfRange`; the other sources are written.
    /// - Elements that no index names keep their bits.
    /// - The same input gives the same bits in every run.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, and what the device reports.
    fn scatter(
        &self,
        plan: &Scatter,
        index: &Self::Storage,
        src: &Self::Storage,
        out: &mut Self::Storage,
    ) -> Result<()>;

    /// Writes the row-major positions of the true elements of `mask`, ascending, into `out`.
    ///
    /// # Contract
    /// - With room for fewer than there are, the first ones are written; what is left of a larger output becomes −1.
    /// - Every element of the planned output view is written, nothing else.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, and what the device reports.
    fn nonzero(&self, plan: &Nonzero, mask: &Self::Storage, out: &mut Self::Storage) -> Result<()>;
}

fn check_index(op: &'static str, dtype: DType) -> Result<()> {
    if dtype.is_int() {
        return Ok(());
    }
    let message = format!("the index is {dtype}, it must be i64, i32, u32 or u8; cast it, or find a mask's `nonzero`");
    Err(Error::new(ErrorKind::DType, op, message))
}

fn check_rank(op: &'static str, what: &str, shape: &[usize], rank: usize) -> Result<()> {
    if shape.len() == rank {
        return Ok(());
    }
    let message = format!("{what} has shape {shape:?} of rank {}, but rank {rank} is needed; reshape it", shape.len());
    Err(Error::new(ErrorKind::Shape, op, message))
}

/// The stride along an axis; 1 when no step is taken.
fn step(layout: &Layout, along: usize) -> isize {
    if layout.count() == 0 || layout.shape()[along] == 1 { 1 } else { layout.strides()[along] }
}

/// The layout with only position 0 of an axis, which keeps size 1.
fn at_first(op: &'static str, layout: &Layout, along: usize) -> Result<Layout> {
    let (mut sizes, mut strides) = ([1; MAX_RANK], [0; MAX_RANK]);
    let rank = layout.rank();
    sizes[..rank].copy_from_slice(layout.shape());
    sizes[along] = 1;
    // Without elements nothing is read, and strides may be anything.
    if layout.count() > 0 {
        strides[..rank].copy_from_slice(layout.strides());
    }
    let offset = if layout.count() > 0 { layout.offset() } else { 0 };
    Layout::new(op, &sizes[..rank], &strides[..rank], offset)
}

/// The layout at position 0 of an axis, which is dropped.
fn without(op: &'static str, layout: &Layout, along: usize) -> Result<Layout> {
    at_first(op, layout, along)?.squeeze(along as isize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Slice;

    fn layout(sizes: &[usize]) -> Layout {
        Layout::contiguous(Shape::new("test", sizes).unwrap())
    }

    fn view(dtype: DType, layout: &Layout) -> View<'_> {
        View { dtype, layout }
    }

    #[test]
    fn rows_share_an_index_and_merge() {
        let (table, rows, index) = (layout(&[100, 6, 4]), layout(&[5, 6, 4]), layout(&[5, 1, 1]));
        let plan = Gather::new(view(DType::F32, &table), 0, view(DType::U8, &index), view(DType::F32, &rows)).unwrap();
        assert_eq!((plan.nest().sizes(), plan.nest().strides(1)), (&[5, 24][..], &[1, 0][..]));
        assert_eq!((plan.nest().strides(2), plan.len(), plan.stride()), (&[0, 1][..], 100, 24));
        let plan = Scatter::new(
            ScatterOp::Add,
            0,
            view(DType::I64, &index),
            view(DType::F32, &rows),
            view(DType::F32, &table),
        );
        let plan = plan.unwrap();
        assert_eq!((plan.kept().sizes(), plan.count(), plan.len()), (&[24][..], 5, 100));
        assert_eq!((plan.strides(), plan.kept().strides(1)), ([24, 1, 24], &[0][..]));
    }

    #[test]
    fn shapes_and_dtypes_are_checked() {
        let (x, index, out) = (layout(&[3, 4]), layout(&[2, 4]), layout(&[2, 4]));
        let gather = |x: &Layout, along, index: &Layout, dtype, out: &Layout| {
            Gather::new(view(DType::F32, x), along, view(dtype, index), view(DType::F32, out)).map_err(|e| e.kind())
        };
        assert!(gather(&x, -2, &index, DType::I32, &out).is_ok());
        assert_eq!(gather(&x, 2, &index, DType::I32, &out), Err(ErrorKind::Axis));
        assert_eq!(gather(&x, 1, &index, DType::I32, &out), Err(ErrorKind::Shape));
        assert_eq!(gather(&x, 0, &index, DType::F32, &out), Err(ErrorKind::DType));
        assert_eq!(
            gather(&x, 0, &layout(&[4]), DType::I64, &out),
            Ok(gather(&x, 0, &layout(&[1, 4]), DType::I64, &out).unwrap())
        );
        assert_eq!(gather(&x, 0, &layout(&[2, 2]), DType::I64, &out), Err(ErrorKind::Shape));
        assert_eq!(*Gather::shape(&[3, 1, 5], 0, &[7, 4, 1]).unwrap(), [7, 4, 5]);
        assert_eq!(Gather::shape(&[3, 2], 0, &[7, 4]).unwrap_err().kind(), ErrorKind::Shape);
        assert_eq!(Gather::shape(&[], 0, &[]).unwrap_err().kind(), ErrorKind::Axis);
        let scatter = |op, dtype, src: &Layout, out: &Layout| {
            Scatter::new(op, 0, view(DType::I64, &index), view(dtype, src), view(dtype, out)).map_err(|e| e.kind())
        };
        assert!(scatter(ScatterOp::Set, DType::Bool, &layout(&[1, 1]), &x).is_ok());
        assert_eq!(scatter(ScatterOp::Add, DType::Bool, &index, &x), Err(ErrorKind::DType));
        assert_eq!(scatter(ScatterOp::Add, DType::F16, &index, &layout(&[3, 5])), Err(ErrorKind::Shape));
        let twice = layout(&[1, 4]).broadcast_to("test", &[3, 4]).unwrap();
        assert_eq!(scatter(ScatterOp::Set, DType::F16, &index, &twice), Err(ErrorKind::Argument));
    }

    #[test]
    fn an_empty_axis_makes_every_index_wrong() {
        let (none, index, out) = (layout(&[0, 4]), layout(&[2, 4]), layout(&[2, 4]));
        let plan = Gather::new(view(DType::F32, &none), 0, view(DType::I64, &index), view(DType::F32, &out)).unwrap();
        assert!(plan.is_empty() && plan.nest().count() == 8);
        let plan =
            Scatter::new(ScatterOp::Set, 0, view(DType::I64, &index), view(DType::F32, &out), view(DType::F32, &none));
        assert!(plan.unwrap().is_empty());
    }

    #[test]
    fn a_mask_is_walked_in_row_major_order() {
        let mask = layout(&[3, 4]).permute(&[1, 0]).unwrap().flip(&[1]).unwrap();
        let out = layout(&[9]).slice(0, Slice { step: -3, ..Slice::FULL }).unwrap();
        let plan = Nonzero::new(view(DType::Bool, &mask), view(DType::I64, &out)).unwrap();
        assert_eq!((plan.nest().sizes(), plan.nest().strides(1)), (&[4, 3][..], &[1, -4][..]));
        assert_eq!((plan.count(), plan.offset(), plan.stride()), (3, 8, -3));
    }
}
