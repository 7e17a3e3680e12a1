//! Comparisons, the choice between two operands, and clamping.

use congruent_backend_api::ops::compare::{Clamp, Compare, CompareOp, Where};
use congruent_backend_api::{CompareOps, DType, Error, ErrorKind, Result, Source};

use crate::operand::{Bound, Operand, common, same_backend};
use crate::tensor::Tensor;

impl<B: CompareOps + ?Sized> Tensor<B> {
    /// The bool `a op b` of operands that broadcast; either may be a scalar.
    ///
    /// # Errors
    /// As [`binary`](Self::binary).
    pub fn compare<'a>(op: CompareOp, a: impl Into<Operand<'a, B>>, b: impl Into<Operand<'a, B>>) -> Result<Self>
    where
        B: 'a,
    {
        let (a, b) = (a.into(), b.into());
        let (first, shape) = common(op.name(), &[a, b])?;
        Self::produce(
            first.backend(),
            DType::Bool,
            shape,
            |out| Compare::new(op, first.dtype(), a.source(Source::Output), b.source(Source::Output), out),
            |plan, out| first.backend().compare(plan, a.storage(None), b.storage(None), out),
        )
    }

    /// The bool `a op b`, broadcast into `out`, which is bool and keeps its shape.
    ///
    /// # Errors
    /// As [`binary_into`](Self::binary_into).
    pub fn compare_into<'a>(
        op: CompareOp,
        a: impl Into<Operand<'a, B>>,
        b: impl Into<Operand<'a, B>>,
        out: &mut Self,
    ) -> Result<()>
    where
        B: 'a,
    {
        let (a, b) = (a.into(), b.into());
        same_backend(op.name(), out.backend(), &[a, b])?;
        // Without a tensor only bool makes sense: the output compared with a scalar.
        let dtype = [a, b].iter().find_map(|operand| operand.tensor()).map_or(DType::Bool, Self::dtype);
        let backend = out.backend().clone();
        out.overwrite(
            |old, out| Compare::new(op, dtype, a.source(old), b.source(old), out),
            |plan, old, out| backend.compare(plan, a.storage(old), b.storage(old), out),
        )
    }

    /// `where`: takes from `a` where this bool tensor is true and from `b` where it is false; all three broadcast.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::Tensor;
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::from_slice(&device, &[-1.0_f32, 2.0], [2])?;
    /// assert_eq!(x.lt(0.0)?.where_cond(0.0, &x)?.to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `DType` unless this tensor is bool and `a` and `b` have one dtype; otherwise as [`binary`](Self::binary).
    pub fn where_cond<'a>(&'a self, a: impl Into<Operand<'a, B>>, b: impl Into<Operand<'a, B>>) -> Result<Self> {
        const OP: &str = "where";
        let (condition, a, b) = (Operand::from(self), a.into(), b.into());
        let (_, shape) = common(OP, &[condition, a, b])?;
        let Some(chosen) = a.tensor().or(b.tensor()) else {
            let message =
                "both values are scalars, which have no dtype; make one a tensor (`Tensor::full` of shape [])";
            return Err(Error::new(ErrorKind::Argument, OP, message));
        };
        let source = |operand: Operand<'a, B>| operand.source(Source::Output);
        Self::produce(
            self.backend(),
            chosen.dtype(),
            shape,
            |out| Where::new(source(condition), source(a), source(b), out),
            |plan, out| self.backend().choose(plan, Some(self.storage()), a.storage(None), b.storage(None), out),
        )
    }

    /// [`where_cond`](Self::where_cond), broadcast into `out`, whose shape and dtype stay.
    ///
    /// With [`Operand::Output`] as a value, elements of `out` are replaced only where the condition says so.
    ///
    /// # Errors
    /// As [`where_cond`](Self::where_cond), and `Shape` when the result does not fit `out`.
    pub fn where_cond_into<'a>(
        &'a self,
        a: impl Into<Operand<'a, B>>,
        b: impl Into<Operand<'a, B>>,
        out: &mut Self,
    ) -> Result<()> {
        let (condition, a, b) = (Operand::from(self), a.into(), b.into());
        same_backend("where", out.backend(), &[condition, a, b])?;
        out.overwrite(
            |old, out| Where::new(condition.source(old), a.source(old), b.source(old), out),
            |plan, old, out| self.backend().choose(plan, Some(self.storage()), a.storage(old), b.storage(old), out),
        )
    }

    /// Each element limited to `min..=max`; where `min > max` the result is `max`, NaN stays NaN.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::Tensor;
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::from_slice(&device, &[-1.0_f32, 0.5, 7.0], [3])?;
    /// assert_eq!(x.clamp(0.0, 1.0)?.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// assert_eq!(x.clamp(None, 1.0)?.to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `DType` for bool or a bound of another kind; `Argument` for a bound that does not fit; `Unsupported`;
    /// `OutOfMemory`.
    pub fn clamp(&self, min: impl Into<Bound>, max: impl Into<Bound>) -> Result<Self> {
        let (Bound(min), Bound(max)) = (min.into(), max.into());
        Self::produce(
            self.backend(),
            self.dtype(),
            *self.layout().shape(),
            |out| Clamp::new(min, max, Source::View(self.view()), out),
            |plan, out| self.backend().clamp(plan, Some(self.storage()), out),
        )
    }

    /// [`clamp`](Self::clamp), broadcast into `out`, whose shape and dtype stay.
    ///
    /// # Errors
    /// As [`clamp`](Self::clamp), and `Shape` or `DType` when the result does not fit `out`.
    pub fn clamp_into(&self, min: impl Into<Bound>, max: impl Into<Bound>, out: &mut Self) -> Result<()> {
        same_backend("clamp", out.backend(), &[Operand::Tensor(self)])?;
        let (Bound(min), Bound(max)) = (min.into(), max.into());
        out.overwrite(
            |_, out| Clamp::new(min, max, Source::View(self.view()), out),
            |plan, _, out| self.backend().clamp(plan, Some(self.storage()), out),
        )
    }

    /// [`clamp`](Self::clamp) in place.
    ///
    /// # Errors
    /// As [`clamp`](Self::clamp).
    pub fn clamp_assign(&mut self, min: impl Into<Bound>, max: impl Into<Bound>) -> Result<()> {
        let (Bound(min), Bound(max)) = (min.into(), max.into());
        let backend = self.backend().clone();
        self.overwrite(|x, out| Clamp::new(min, max, x, out), |plan, x, out| backend.clamp(plan, x, out))
    }
}

/// Names have no generic form: one method per op.
macro_rules! methods {
    ($($op:ident $name:ident: $doc:literal;)*) => {
        impl<B: CompareOps + ?Sized> Tensor<B> {$(
            #[doc = $doc]
            ///
            /// # Errors
            /// As [`compare`](Self::compare).
            pub fn $name<'a>(&'a self, b: impl Into<Operand<'a, B>>) -> Result<Self> {
                Self::compare(CompareOp::$op, self, b)
            }
        )*}
    };
}

methods! {
    Eq eq: "Whether self = b.";
    Ge ge: "Whether self ≥ b.";
    Gt gt: "Whether self > b.";
    Le le: "Whether self ≤ b.";
    LogicalAnd logical_and: "Whether both are true; bool only.";
    LogicalOr logical_or: "Whether at least one is true; bool only.";
    LogicalXor logical_xor: "Whether exactly one is true; bool only.";
    Lt lt: "Whether self < b.";
    Ne ne: "Whether self ≠ b; NaN differs from everything.";
}
