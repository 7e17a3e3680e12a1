//! The building blocks of provided methods: each runs one op of the backend, into a new temporary or in place.

use crate::dtype::{DType, Scalar};
use crate::elementwise::{Source, View};
use crate::error::Result;
use crate::layout::Layout;
use crate::ops::binary::{Binary, BinaryOp};
use crate::ops::compare::{Compare, CompareOp, Where};
use crate::ops::copy::Copy;
use crate::ops::reduce::{Reduce, ReduceOp};
use crate::ops::statistic::StatisticOps;
use crate::ops::unary::{Unary, UnaryOp};
use crate::shape::{MAX_RANK, Shape};

/// A contiguous tensor of a composition.
pub(crate) struct Temporary<S> {
    pub(crate) storage: S,
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
}

impl<S> Temporary<S> {
    pub(crate) fn view(&self) -> View<'_> {
        View { dtype: self.dtype, layout: &self.layout }
    }
}

/// The ops of a composition whose reductions keep the axes of `mask` at size 1.
pub(crate) struct Composer<'a, B: ?Sized> {
    pub(crate) backend: &'a B,
    pub(crate) mask: [bool; MAX_RANK],
}

impl<B: StatisticOps + ?Sized> Composer<'_, B> {
    /// A contiguous copy of a view in the dtype of the computation: f32 for f16 and bf16.
    pub(crate) fn widen(&self, x: &B::Storage, view: View<'_>) -> Result<Temporary<B::Storage>> {
        let wide = if view.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        self.cast(x, view, wide)
    }

    /// A contiguous copy of a view in another dtype.
    pub(crate) fn cast(&self, x: &B::Storage, view: View<'_>, dtype: DType) -> Result<Temporary<B::Storage>> {
        let mut out = self.temporary(dtype, *view.layout.shape())?;
        let plan = Copy::new(view, out.view())?;
        self.backend.copy(&plan, x, &mut out.storage)?;
        Ok(out)
    }

    /// A copy of a temporary.
    pub(crate) fn copy(&self, x: &Temporary<B::Storage>) -> Result<Temporary<B::Storage>> {
        self.cast(&x.storage, x.view(), x.dtype)
    }

    /// `x = op(x)`
    pub(crate) fn unary(&self, op: UnaryOp, x: &mut Temporary<B::Storage>) -> Result<()> {
        let plan = Unary::new(op, Source::Output, x.view())?;
        self.backend.unary(&plan, None, &mut x.storage)
    }

    /// `x = op(x, y)`, where `y` broadcasts to `x`.
    pub(crate) fn binary(&self, op: BinaryOp, x: &mut Temporary<B::Storage>, y: &Temporary<B::Storage>) -> Result<()> {
        let plan = Binary::new(op, Source::Output, Source::View(y.view()), x.view())?;
        self.backend.binary(&plan, None, Some(&y.storage), &mut x.storage)
    }

    /// `x = op(x, y)` with a number.
    pub(crate) fn scale(&self, op: BinaryOp, x: &mut Temporary<B::Storage>, y: f64) -> Result<()> {
        let plan = Binary::new(op, Source::Output, Source::Scalar(Scalar::Float(y)), x.view())?;
        self.backend.binary(&plan, None, None, &mut x.storage)
    }

    /// The comparison of `x` with a number.
    pub(crate) fn compare(&self, op: CompareOp, x: &Temporary<B::Storage>, y: f64) -> Result<Temporary<B::Storage>> {
        let mut out = self.temporary(DType::Bool, *x.layout.shape())?;
        let (a, b) = (Source::View(x.view()), Source::Scalar(Scalar::Float(y)));
        let plan = Compare::new(op, x.dtype, a, b, out.view())?;
        self.backend.compare(&plan, Some(&x.storage), None, &mut out.storage)?;
        Ok(out)
    }

    /// `x` where `condition`, else a number.
    pub(crate) fn choose(
        &self,
        condition: &Temporary<B::Storage>,
        x: &Temporary<B::Storage>,
        other: f64,
    ) -> Result<Temporary<B::Storage>> {
        let mut out = self.temporary(x.dtype, *x.layout.shape())?;
        let other = Source::Scalar(Scalar::Float(other));
        let plan = Where::new(Source::View(condition.view()), Source::View(x.view()), other, out.view())?;
        self.backend.choose(&plan, Some(&condition.storage), Some(&x.storage), None, &mut out.storage)?;
        Ok(out)
    }

    /// A test of each element, as bool.
    pub(crate) fn test(&self, op: UnaryOp, x: &Temporary<B::Storage>) -> Result<Temporary<B::Storage>> {
        let mut out = self.temporary(DType::Bool, *x.layout.shape())?;
        let plan = Unary::new(op, Source::View(x.view()), out.view())?;
        self.backend.unary(&plan, Some(&x.storage), &mut out.storage)?;
        Ok(out)
    }

    /// The reduction of `x` over the axes of the mask.
    pub(crate) fn reduce(&self, op: ReduceOp, x: &Temporary<B::Storage>) -> Result<Temporary<B::Storage>> {
        let masked = (0..x.layout.rank()).filter(|&axis| self.mask[axis]);
        let axes: Vec<isize> = masked.map(|axis| axis as isize).collect();
        let mut out = self.temporary(x.dtype, x.layout.shape().reduced(&self.mask, true))?;
        let plan = Reduce::new(op, x.view(), Some(&axes), out.view())?;
        self.backend.reduce(&plan, &x.storage, &mut out.storage)?;
        Ok(out)
    }

    fn temporary(&self, dtype: DType, shape: Shape) -> Result<Temporary<B::Storage>> {
        let layout = Layout::contiguous(shape);
        Ok(Temporary { storage: self.backend.alloc(dtype, layout.count())?, dtype, layout })
    }
}
