//! Scans along an axis: running sums, products, extremes and log-sums of exponentials ([`ScanOp`]).

use crate::backend::{Backend, Storage};
use crate::dtype::DType;
use crate::elementwise::{View, check_domain, check_dtype, check_output, check_shape, check_storage};
use crate::error::Result;
use crate::layout::Layout;
use crate::nest::Nest;
use crate::ops::Op;
use crate::shape::axis;

/// A scan: each result combines the elements up to its own position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanOp {
    /// ln Σ eˣ, without overflow in between; floats only; of nothing −∞.
    LogSumExp,
    /// The greatest element; NaN from the first NaN on; −0 < +0; of nothing the least value (−∞ for floats).
    Max,
    /// The least element; NaN from the first NaN on; −0 < +0; of nothing the greatest value (+∞ for floats).
    Min,
    /// The product; integers wrap; of nothing 1.
    Prod,
    /// The sum; integers wrap; of nothing 0.
    Sum,
}

impl ScanOp {
    /// Every op of the family.
    pub const ALL: &[Self] = &[Self::LogSumExp, Self::Max, Self::Min, Self::Prod, Self::Sum];

    /// The op's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LogSumExp => "logcumsumexp",
            Self::Max => "cummax",
            Self::Min => "cummin",
            Self::Prod => "cumprod",
            Self::Sum => "cumsum",
        }
    }

    /// Whether the op is defined for `dtype`.
    #[must_use]
    pub fn accepts(self, dtype: DType) -> bool {
        if self == Self::LogSumExp { dtype.is_float() } else { dtype.is_number() }
    }
}

/// Which elements enter a result of a scan. The default is those up to and with its own position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScanRange {
    /// The element at the position itself does not enter.
    pub exclusive: bool,
    /// The elements from the position to the end enter, instead of those from the beginning.
    pub reverse: bool,
}

/// A validated call of a [`ScanOp`]. A scan in reverse is planned as one over reversed axes: backends see only forward ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scan {
    op: ScanOp,
    dtype: DType,
    exclusive: bool,
    rows: Nest<2>,
    len: usize,
    strides: [isize; 2],
    min_lens: [usize; 2],
}

impl Scan {
    /// Plans the scan of `x` along `along`, which may count from the end, into `out` of the same shape and dtype.
    ///
    /// # Errors
    /// `DType` when the op is not defined for `x` or `out` has another dtype; `Axis`; `Shape` when `out` has another shape
    /// than `x`; `Argument` when `out` overlaps itself.
    pub fn new(op: ScanOp, x: View<'_>, along: isize, range: ScanRange, out: View<'_>) -> Result<Self> {
        let name = op.name();
        check_domain(Op::Scan(op), x.dtype)?;
        check_dtype(name, out.dtype, x.dtype)?;
        let along = axis(name, along, x.layout.rank())?;
        check_shape(name, "the output", out.layout.shape(), x.layout.shape())?;
        check_output(name, out.layout)?;
        let len = x.layout.shape()[along];
        let along_axis = along as isize;
        let walked = |layout: &Layout| if range.reverse { layout.flip(&[along_axis]) } else { Ok(*layout) };
        let (walked_out, walked_x) = (walked(out.layout)?, walked(x.layout)?);
        // Without a next position the layout's stride may be any number.
        let stride = |layout: &Layout| if layout.count() == 0 || len == 1 { 1 } else { layout.strides()[along] };
        let rows = if x.layout.count() == 0 {
            Nest::new([&walked_out, &walked_x])
        } else {
            Nest::new([&walked_out.select(along_axis, 0)?, &walked_x.select(along_axis, 0)?])
        };
        Ok(Self {
            op,
            dtype: x.dtype,
            exclusive: range.exclusive,
            rows,
            len,
            strides: [stride(&walked_out), stride(&walked_x)],
            min_lens: [out.layout.min_len(), x.layout.min_len()],
        })
    }

    /// Which scan.
    #[must_use]
    pub fn op(&self) -> ScanOp {
        self.op
    }

    /// The dtype of the input and the output.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether an element does not enter the result at its own position.
    #[must_use]
    pub fn exclusive(&self) -> bool {
        self.exclusive
    }

    /// The rows: operand 0 is the output, operand 1 the input, both at the first position. Without elements, no rows.
    #[must_use]
    pub fn rows(&self) -> &Nest<2> {
        &self.rows
    }

    /// The number of positions of a row.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether rows have no positions; then there are no rows either.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The strides of the output and of the input from one position to the next; 1 when there is no next.
    #[must_use]
    pub fn strides(&self) -> [isize; 2] {
        self.strides
    }

    /// Checks the storages of a call.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan.
    pub fn check<S: Storage>(&self, x: &S, out: &S) -> Result<()> {
        check_storage(self.op.name(), "the output", self.dtype, self.min_lens[0], out)?;
        check_storage(self.op.name(), "the input", self.dtype, self.min_lens[1], x)
    }
}

/// Scans along an axis.
pub trait ScanOps: Backend {
    /// Writes the scan of `x` into `out`.
    ///
    /// # Contract
    /// - Each result is that of the reduction over the elements that enter it, with the same error bound: a float sum is
    ///   no deeper than [`summation_depth`](crate::ops::reduce::summation_depth) of their number.
    /// - f16 and bf16 accumulate in f32 and are rounded once, at the store; integers wrap.
    /// - NaN makes every result NaN that it enters, and no other.
    /// - Every element of the planned output view is written, nothing else.
    /// - The same input gives the same bits in every run.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `Unsupported`, and what the device reports.
    fn scan(&self, plan: &Scan, x: &Self::Storage, out: &mut Self::Storage) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::shape::Shape;

    fn layout(sizes: &[usize]) -> Layout {
        Layout::contiguous(Shape::new("test", sizes).unwrap())
    }

    fn plan(x: &Layout, along: isize, range: ScanRange, out: &Layout) -> Result<Scan> {
        let view = |layout| View { dtype: DType::F32, layout };
        Scan::new(ScanOp::Sum, view(x), along, range, view(out))
    }

    #[test]
    fn a_scan_in_reverse_begins_at_the_end() {
        let x = layout(&[2, 3]);
        let forward = plan(&x, -1, ScanRange::default(), &x).unwrap();
        assert_eq!((forward.rows().sizes(), forward.len(), forward.strides()), (&[2][..], 3, [1, 1]));
        let backward = plan(&x, 1, ScanRange { reverse: true, ..ScanRange::default() }, &x).unwrap();
        assert_eq!((backward.rows().offset(0), backward.rows().offset(1), backward.strides()), (2, 2, [-1, -1]));
        // Reversing the input, the output and the scan is no change.
        let flipped = x.flip(&[1]).unwrap();
        let range = ScanRange { reverse: true, exclusive: true };
        assert_eq!(
            plan(&flipped, 1, range, &flipped).unwrap(),
            plan(&x, 1, ScanRange { exclusive: true, ..ScanRange::default() }, &x).unwrap()
        );
    }

    #[test]
    fn nothing_has_no_rows_and_errors_are_named() {
        let none = layout(&[3, 0]);
        for along in [0, 1] {
            assert_eq!(plan(&none, along, ScanRange::default(), &none).unwrap().rows().count(), 0);
        }
        let kind = |x: &Layout, along, out: &Layout| plan(x, along, ScanRange::default(), out).unwrap_err().kind();
        let x = layout(&[2, 3]);
        assert_eq!(kind(&x, 2, &x), ErrorKind::Axis);
        assert_eq!(kind(&layout(&[]), 0, &layout(&[])), ErrorKind::Axis);
        assert_eq!(kind(&x, 0, &layout(&[3, 2])), ErrorKind::Shape);
        let repeated = layout(&[1, 3]).broadcast_to("test", &[2, 3]).unwrap();
        assert_eq!(kind(&x, 0, &repeated), ErrorKind::Argument);
        let ints = View { dtype: DType::I32, layout: &x };
        let error = Scan::new(ScanOp::LogSumExp, ints, 0, ScanRange::default(), ints).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DType);
    }
}
