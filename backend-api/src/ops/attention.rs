//! Scaled dot-product attention with grouped heads, masks and causality.
//!
//! For query i and key j of a batch and a head, and a scale c (by default 1/√d):
//!
//! ```text
//! s[i, j] = c · Σ q[i, ·] · k[j, ·]  (+ mask[i, j] where the mask is additive)
//! p[i, ·] = softmax of s[i, ·] over the keys that i sees
//! y[i, ·] = Σ p[i, j] · v[j, ·]
//! ```
//!
//! q is [batch, heads, n, d], k is [batch, kv_heads, m, d], v is [batch, kv_heads, m, e], y is [batch, heads, n, e]. Query
//! head h reads key head h / (heads / kv_heads): grouped-query attention, multi-query with one key head. A query sees a
//! key unless a boolean mask has `false` there, an additive one −∞, or, in causal attention, j > i + (m − n): the last
//! query sees every key, as when the queries continue a sequence whose keys are all kept.
//!
//! The composition here is what a new backend inherits. It keeps the n × m scores of every head in memory; a backend
//! overrides the method to do without.

use crate::backend::Storage;
use crate::compose::{Composer, Temporary};
use crate::dtype::{DType, Element, Scalar};
use crate::elementwise::{Source, View, check_domain, check_dtype, check_output, check_shape, check_storage};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::ops::Op;
use crate::ops::binary::BinaryOp;
use crate::ops::compare::{CompareOp, Where};
use crate::ops::copy::{Copy, Fill};
use crate::ops::matmul::{Matmul, MatmulOps};
use crate::ops::norm::NormOps;
use crate::ops::reduce::ReduceOp;
use crate::ops::unary::UnaryOp;
use crate::shape::{MAX_RANK, Shape};

const OP: &str = "attention";

/// What attention does beside the product of its operands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AttentionOptions {
    /// The factor of the scores; `None` is 1/√d.
    pub scale: Option<f64>,
    /// Whether query i sees only keys up to i + (keys − queries).
    pub causal: bool,
}

/// A validated call of attention. Operands are the output, q, k, v and the mask, all of rank 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    dtype: DType,
    scale: Scalar,
    causal: bool,
    mask: Option<DType>,
    layouts: [Layout; 5],
    min_lens: [usize; 5],
}

impl Attention {
    /// The shape of the result.
    ///
    /// # Errors
    /// `Shape` unless q is [batch, heads, n, d], k [batch, kv_heads, m, d] and v [batch, kv_heads, m, e], with kv_heads
    /// a divisor of heads.
    pub fn shape(q: &[usize], k: &[usize], v: &[usize]) -> Result<Shape> {
        let fail =
            |rule: String| Err(Error::new(ErrorKind::Shape, OP, format!("q is {q:?}, k is {k:?}, v is {v:?}: {rule}")));
        let (&[batch, heads, queries, depth], &[k_batch, k_heads, keys, k_depth], &[v_batch, v_heads, v_keys, width]) =
            (q, k, v)
        else {
            return fail(
                "each must have the four axes [batch, heads, positions, features]; add those that lack".into(),
            );
        };
        if k_batch != batch || v_batch != batch {
            return fail("the batches must be equal; expand the smaller ones".into());
        }
        if k_heads != v_heads || k_heads == 0 && heads > 0 || k_heads > 0 && !heads.is_multiple_of(k_heads) {
            return fail(format!(
                "k and v must have the same number of heads, and it must divide the {heads} of q; repeat their heads"
            ));
        }
        if k_depth != depth {
            return fail("q and k must have the same last size, along which they are multiplied".into());
        }
        if v_keys != keys {
            return fail("k and v must hold the same number of positions".into());
        }
        Shape::new(OP, &[batch, heads, queries, width])
    }

    /// Plans `out = attention(q, k, v)`; `out` has the shape that [`shape`](Self::shape) gives. The mask broadcasts to
    /// [batch, heads, n, m]; a bool mask is true where a query sees a key, a mask of q's dtype is added to the scores.
    ///
    /// # Errors
    /// `DType` unless q, k, v and `out` have one float dtype and the mask has it too or is bool; `Shape` as for
    /// [`shape`](Self::shape), for a mask that does not broadcast, and when `out` has another shape; `Argument` for a
    /// scale that is not finite and for an output that overlaps itself.
    pub fn new(
        q: View<'_>,
        k: View<'_>,
        v: View<'_>,
        mask: Option<View<'_>>,
        options: AttentionOptions,
        out: View<'_>,
    ) -> Result<Self> {
        check_domain(Op::Attention, q.dtype)?;
        for view in [k, v, out] {
            check_dtype(OP, view.dtype, q.dtype)?;
        }
        let shape = Self::shape(q.layout.shape(), k.layout.shape(), v.layout.shape())?;
        check_shape(OP, "the output", out.layout.shape(), &shape)?;
        check_output(OP, out.layout)?;
        let scores = [shape[0], shape[1], shape[2], k.layout.shape()[2]];
        let seen = match mask {
            Some(mask) if mask.dtype != DType::Bool && mask.dtype != q.dtype => {
                let message = format!(
                    "the mask is {}; it must be bool (true where a query sees a key) or {}, the dtype of q (added to the \
                     scores); cast it",
                    mask.dtype, q.dtype
                );
                return Err(Error::new(ErrorKind::DType, OP, message));
            }
            Some(mask) => mask.layout.broadcast_to(OP, &scores)?,
            None => Layout::new(OP, &[], &[], 0)?.broadcast_to(OP, &scores)?,
        };
        let scale = options.scale.unwrap_or_else(|| 1.0 / (q.layout.shape()[3].max(1) as f64).sqrt());
        let finite = if q.dtype == DType::F64 { scale.is_finite() } else { (scale as f32).is_finite() };
        if !finite {
            let message = format!("the scale is {scale}; it must be finite in the dtype of the computation");
            return Err(Error::new(ErrorKind::Argument, OP, message));
        }
        let layouts = [*out.layout, *q.layout, *k.layout, *v.layout, seen];
        let min_lens = std::array::from_fn(|operand| match operand {
            4 => mask.map_or(0, |mask| mask.layout.min_len()),
            _ => layouts[operand].min_len(),
        });
        let (dtype, mask) = (q.dtype, mask.map(|mask| mask.dtype));
        Ok(Self { dtype, scale: Scalar::Float(scale), causal: options.causal, mask, layouts, min_lens })
    }

    /// The dtype of every operand but a bool mask.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The factor of the scores.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale.to_f64()
    }

    /// Whether query i sees only keys up to i + (keys − queries).
    #[must_use]
    pub fn causal(&self) -> bool {
        self.causal
    }

    /// The dtype of the mask, if there is one.
    #[must_use]
    pub fn mask(&self) -> Option<DType> {
        self.mask
    }

    /// The layout of an operand: the output, q, k, v, and the mask as [batch, heads, queries, keys].
    #[must_use]
    pub fn layout(&self, operand: usize) -> &Layout {
        &self.layouts[operand]
    }

    /// The size of the batch.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.layouts[1].shape()[0]
    }

    /// The heads of q.
    #[must_use]
    pub fn heads(&self) -> usize {
        self.layouts[1].shape()[1]
    }

    /// The heads of k and v.
    #[must_use]
    pub fn kv_heads(&self) -> usize {
        self.layouts[2].shape()[1]
    }

    /// How many heads of q read one of k: 1 where there are none.
    #[must_use]
    pub fn group(&self) -> usize {
        self.heads().checked_div(self.kv_heads()).unwrap_or(1).max(1)
    }

    /// The positions of q.
    #[must_use]
    pub fn queries(&self) -> usize {
        self.layouts[1].shape()[2]
    }

    /// The positions of k and v.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.layouts[2].shape()[2]
    }

    /// The features of q and k.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.layouts[1].shape()[3]
    }

    /// The features of v and of the result.
    #[must_use]
    pub fn width(&self) -> usize {
        self.layouts[3].shape()[3]
    }

    /// The number of keys, from the first on, that causality lets a query see; all of them without it.
    #[must_use]
    pub fn reach(&self, query: usize) -> usize {
        if self.causal {
            (query + 1 + self.keys()).saturating_sub(self.queries()).min(self.keys())
        } else {
            self.keys()
        }
    }

    /// Checks the storages of a call: q, k, v and the mask.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, or the mask is given or left out against it.
    pub fn check<S: Storage>(&self, inputs: [&S; 3], mask: Option<&S>, out: &S) -> Result<()> {
        check_storage(OP, "the output", self.dtype, self.min_lens[0], out)?;
        for ((input, role), min_len) in inputs.into_iter().zip(["q", "k", "v"]).zip(&self.min_lens[1..]) {
            check_storage(OP, role, self.dtype, *min_len, input)?;
        }
        match (mask, self.mask) {
            (Some(mask), Some(dtype)) => check_storage(OP, "the mask", dtype, self.min_lens[4], mask),
            (None, None) => Ok(()),
            _ => Err(Error::new(ErrorKind::Argument, OP, "the mask was given or left out against the plan")),
        }
    }
}

/// Attention.
pub trait AttentionOps: NormOps + MatmulOps {
    /// Writes attention of `q`, `k` and `v` into `out`; `mask` is given as the plan says.
    ///
    /// # Contract
    /// - Every element of the planned output view is written, nothing else.
    /// - A query that sees no key, of no keys too, gives zeros.
    /// - A query that sees one key, or one whose score lies so far above the others that their exponentials vanish, gives
    ///   its row of `v`.
    /// - f16 and bf16 are computed in f32 and rounded once; scores, exponentials and sums are not rounded to them.
    /// - Sums over features and over keys may be formed in any order, with fused multiply-add or without; the division by
    ///   the sum of the exponentials may come before or after the product with `v`.
    /// - The exponentials of a row may be scaled by a running maximum, which changes at most once in 32 keys.
    /// - NaN in a query, or in a key, value or mask that a query sees, makes what depends on it NaN.
    /// - What infinities (but −∞ in the mask), values of unseen keys that are not finite, and with a scale of 0 such queries
    ///   and keys give is not specified, nor is it where scores or Σ|v| overflow the accumulator.
    /// - The same input gives the same bits in every run.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `OutOfMemory`, `Unsupported`, and what the device reports.
    fn attention(
        &self,
        plan: &Attention,
        q: &Self::Storage,
        k: &Self::Storage,
        v: &Self::Storage,
        mask: Option<&Self::Storage>,
        out: &mut Self::Storage,
    ) -> Result<()> {
        compose(self, plan, [q, k, v], mask, out)
    }
}

/// Runs a plan as a composition of other ops, with all scores in memory: what the provided method does, for a backend
/// whose own method leaves some plans to it.
///
/// # Errors
/// As [`AttentionOps::attention`].
pub fn compose<B: NormOps + MatmulOps + ?Sized>(
    backend: &B,
    plan: &Attention,
    inputs: [&B::Storage; 3],
    mask: Option<&B::Storage>,
    out: &mut B::Storage,
) -> Result<()> {
    plan.check(inputs, mask, out)?;
    let target = View { dtype: plan.dtype, layout: &plan.layouts[0] };
    if plan.layouts[0].count() == 0 {
        return Ok(());
    }
    if plan.keys() == 0 {
        return backend.fill(&Fill::new(Scalar::Float(0.0), target)?, out);
    }
    let mut last = [false; MAX_RANK];
    last[3] = true;
    let compose = Compose { ops: Composer { backend, mask: last }, plan };
    let mut weights = compose.scores(inputs[0], inputs[1])?;
    if let Some(mask) = mask {
        compose.mask(&mut weights, mask)?;
    }
    if plan.causal {
        compose.restrict(&mut weights)?;
    }
    compose.normalise(&mut weights)?;
    let result = compose.product(&weights, inputs[2])?;
    backend.copy(&Copy::new(result.view(), target)?, &result.storage, out)
}

/// The composition of a plan.
struct Compose<'a, B: ?Sized> {
    ops: Composer<'a, B>,
    plan: &'a Attention,
}

impl<B: NormOps + MatmulOps + ?Sized> Compose<'_, B> {
    /// An operand in the dtype of the computation, with the heads that share keys on an axis of their own.
    fn widened(&self, storage: &B::Storage, operand: usize) -> Result<Temporary<B::Storage>> {
        let layout = &self.plan.layouts[operand];
        let wide = self.ops.widen(storage, View { dtype: self.plan.dtype, layout })?;
        let grouped = self.grouped(layout.shape()[1] / self.plan.kv_heads(), layout.shape()[2], layout.shape()[3])?;
        Ok(Temporary { layout: grouped, ..wide })
    }

    /// [batch, kv_heads, shared, rows, columns]
    fn grouped(&self, shared: usize, rows: usize, columns: usize) -> Result<Layout> {
        let sizes = [self.plan.batch(), self.plan.kv_heads(), shared, rows, columns];
        Ok(Layout::contiguous(Shape::new(OP, &sizes)?))
    }

    /// alpha · a @ b, as [batch, heads, queries, columns].
    fn multiply(
        &self,
        alpha: f64,
        (a, a_view): (&B::Storage, View<'_>),
        (b, b_view): (&B::Storage, View<'_>),
        columns: usize,
    ) -> Result<Temporary<B::Storage>> {
        let (plan, dtype) = (self.plan, a_view.dtype);
        let layout = self.grouped(plan.group(), plan.queries(), columns)?;
        let mut storage = self.ops.backend.alloc(dtype, layout.count())?;
        let matmul =
            Matmul::new(a_view, b_view, Scalar::Float(alpha), Scalar::Float(0.0), View { dtype, layout: &layout })?;
        self.ops.backend.matmul(&matmul, a, b, &mut storage)?;
        let shape = Shape::new(OP, &[plan.batch(), plan.heads(), plan.queries(), columns])?;
        Ok(Temporary { storage, dtype, layout: Layout::contiguous(shape) })
    }

    fn scores(&self, q: &B::Storage, k: &B::Storage) -> Result<Temporary<B::Storage>> {
        let (q, k) = (self.widened(q, 1)?, self.widened(k, 2)?);
        let columns = k.layout.permute(&[0, 1, 2, 4, 3])?;
        let columns = View { dtype: k.dtype, layout: &columns };
        self.multiply(self.plan.scale(), (&q.storage, q.view()), (&k.storage, columns), self.plan.keys())
    }

    fn mask(&self, scores: &mut Temporary<B::Storage>, mask: &B::Storage) -> Result<()> {
        let dtype = self.plan.mask.unwrap_or(self.plan.dtype);
        let view = View { dtype, layout: &self.plan.layouts[4] };
        if dtype == DType::Bool {
            return self.hide(scores, mask, view);
        }
        let addend = self.ops.widen(mask, view)?;
        self.ops.binary(BinaryOp::Add, scores, &addend)
    }

    /// Hides the keys after those that causality lets a query see.
    fn restrict(&self, scores: &mut Temporary<B::Storage>) -> Result<()> {
        let (queries, keys) = (self.plan.queries(), self.plan.keys());
        let seen: Vec<bool> =
            (0..queries).flat_map(|query| (0..keys).map(move |key| key < self.plan.reach(query))).collect();
        let mut storage = self.ops.backend.alloc(DType::Bool, seen.len())?;
        self.ops.backend.write(bool::as_bytes(&seen), &mut storage, 0)?;
        let layout = Layout::contiguous(Shape::new(OP, &[queries, keys])?);
        self.hide(scores, &storage, View { dtype: DType::Bool, layout: &layout })
    }

    /// −∞ where a query does not see a key.
    fn hide(&self, scores: &mut Temporary<B::Storage>, seen: &B::Storage, view: View<'_>) -> Result<()> {
        let hidden = Source::Scalar(Scalar::Float(f64::NEG_INFINITY));
        let plan = Where::new(Source::View(view), Source::Output, hidden, scores.view())?;
        self.ops.backend.choose(&plan, Some(seen), None, None, &mut scores.storage)
    }

    /// The softmax over the keys, zeros where all are hidden.
    fn normalise(&self, scores: &mut Temporary<B::Storage>) -> Result<()> {
        let max = self.ops.reduce(ReduceOp::Max, scores)?;
        // NaN differs from −∞, and stays.
        let sees = self.ops.compare(CompareOp::Ne, &max, f64::NEG_INFINITY)?;
        let shift = self.ops.choose(&sees, &max, 0.0)?;
        self.ops.binary(BinaryOp::Sub, scores, &shift)?;
        self.ops.unary(UnaryOp::Exp, scores)?;
        let sum = self.ops.reduce(ReduceOp::Sum, scores)?;
        let divisor = self.ops.choose(&sees, &sum, 1.0)?;
        self.ops.binary(BinaryOp::Div, scores, &divisor)
    }

    fn product(&self, weights: &Temporary<B::Storage>, v: &B::Storage) -> Result<Temporary<B::Storage>> {
        let (plan, v) = (self.plan, self.widened(v, 3)?);
        let layout = self.grouped(plan.group(), plan.queries(), plan.keys())?;
        let rows = View { dtype: weights.dtype, layout: &layout };
        self.multiply(1.0, (&weights.storage, rows), (&v.storage, v.view()), plan.width())
    }
}
