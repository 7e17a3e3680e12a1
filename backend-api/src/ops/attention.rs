//! Scaled dot-product attention with grouped heads, masks, causality and windows, and its gradients.
//!
//! For query i and key j of a batch item and a head, a scale c (by default 1/√d) and a soft cap a:
//!
//! ```text
//! t[i, j] = c · Σ q[i, ·] · k[j, ·]                 the score
//! s[i, j] = a · tanh(t[i, j] / a)                   with a soft cap, else t[i, j]
//!           − slope · |place of i − j|              with slopes
//!           + mask[i, j]                            where the mask is additive
//! l[i]    = ln Σ exp(s[i, j])                       over the keys that i sees
//! p[i, j] = exp(s[i, j] − l[i])                     0 where i does not see j
//! y[i, ·] = Σ p[i, j] · r[i, j] · v[j, ·]           with r = 1, or what dropout makes of it
//! ```
//!
//! [`Output`](AttentionOp::Output) is y, [`LogSumExp`](AttentionOp::LogSumExp) is l: outputs over parts of the keys are
//! put together by it, each weighted with exp(l of the part − l of all). Given the gradient dy of y, l, and
//! δ\[i\] = Σ dy\[i, ·\] · y\[i, ·\], the gradients compute p anew:
//!
//! ```text
//! g[i, j]  = p[i, j] · (r[i, j] · Σ dy[i, ·] · v[j, ·] − δ[i])       times 1 − tanh² (t[i, j] / a) with a soft cap
//! dq[i, ·] = c · Σ g[i, j] · k[j, ·]
//! dk[j, ·] = c · Σ g[i, j] · q[i, ·]                    over the queries of every head that reads the key
//! dv[j, ·] = Σ p[i, j] · r[i, j] · dy[i, ·]             likewise
//! ```
//!
//! q is [batch, heads, n, d], k is [batch, kv_heads, m, d], v is [batch, kv_heads, m, e], y is [batch, heads, n, e]. Query
//! head h reads key head h / (heads / kv_heads): grouped-query attention, multi-query with one key head. The *place* of
//! query i is the key at which it stands: i + (m − n), or i with [`Alignment::First`]; m is the length of the batch item
//! where lengths are given. A query sees the keys of its batch item, but none that a boolean mask has `false` for, an
//! additive one −∞, that lies behind its place in causal attention, or as far from it as the window says.
//!
//! Dropout: weight (i, j) of head h and batch item b, number w = ((b · heads + h) · n + i) · m + j, is left out (r = 0) where
//! word `offset` + w of the [stream](crate::ops::random) of the seed is less than probability · 2³², as `bernoulli` of a
//! tensor [batch, heads, n, m] is true; else r = 1/(1 − probability). Here m is that of k, whatever the lengths.
//!
//! The composition that is [provided](compose) keeps the scores of some queries in memory, never of all.

mod compose;
mod options;

use crate::backend::Storage;
use crate::dtype::{DType, Scalar};
use crate::elementwise::{View, check_domain, check_dtype, check_output, check_shape, check_storage};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::ops::Op;
use crate::ops::matmul::MatmulOps;
use crate::ops::norm::NormOps;
use crate::ops::random::RandomOps;
use crate::shape::Shape;

pub use compose::compose;
pub use options::{Alignment, AttentionGradient, AttentionInputs, AttentionOp, AttentionOptions, Band, Dropout};

/// The roles of the operands, the output first.
const ROLES: [&str; 10] =
    ["the output", "q", "k", "v", "the mask", "slopes", "lengths", "the gradient", "logsumexp", "delta"];

/// A validated call. Operand 0 is the output, then come the inputs in the order of [`AttentionInputs::to_array`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    op: AttentionOp,
    dtype: DType,
    scale: Scalar,
    soft_cap: Option<Scalar>,
    band: Band,
    dropout: Option<(Scalar, u64, u64)>,
    /// Each operand's dtype, where it is given.
    dtypes: [Option<DType>; 10],
    layouts: [Layout; 10],
    min_lens: [usize; 10],
}

impl Attention {
    /// The shape of the result of an op.
    ///
    /// # Errors
    /// `Shape` unless q is [batch, heads, n, d], k [batch, kv_heads, m, d] and v [batch, kv_heads, m, e], with kv_heads
    /// a divisor of heads.
    pub fn shape(op: AttentionOp, q: &[usize], k: &[usize], v: &[usize]) -> Result<Shape> {
        let name = op.name();
        let fail = |rule: String| {
            Err(Error::new(ErrorKind::Shape, name, format!("q is {q:?}, k is {k:?}, v is {v:?}: {rule}")))
        };
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
        match op {
            AttentionOp::Output => Shape::new(name, &[batch, heads, queries, width]),
            AttentionOp::LogSumExp => Shape::new(name, &[batch, heads, queries]),
            AttentionOp::GradQuery => Shape::new(name, q),
            AttentionOp::GradKey => Shape::new(name, k),
            AttentionOp::GradValue => Shape::new(name, v),
        }
    }

    /// The dtype in which operands of a dtype are computed, and that of slopes, logsumexp and delta: f32 for f16 and bf16.
    #[must_use]
    pub fn wide(dtype: DType) -> DType {
        if dtype == DType::F64 { DType::F64 } else { DType::F32 }
    }

    /// Plans `out = op(inputs)`; `out` has the shape that [`shape`](Self::shape) gives, and the dtype of q or, for
    /// `LogSumExp`, [the wide one](Self::wide).
    ///
    /// # Errors
    /// `DType` unless the operands have the dtypes that [`AttentionInputs`] says, with q of a float dtype; `Shape` as for
    /// [`shape`](Self::shape), and for another operand or an output of another shape; `Argument` for a scale that is not
    /// finite, a soft cap that is not a positive number, a window of 0, a probability outside 0 ≤ p < 1, operands of the
    /// gradient that are missing or are not asked for, and for an output that overlaps itself.
    pub fn new(
        op: AttentionOp,
        inputs: AttentionInputs<View<'_>>,
        options: AttentionOptions,
        out: View<'_>,
    ) -> Result<Self> {
        let (name, dtype) = (op.name(), inputs.q.dtype);
        check_domain(Op::Attention(op), dtype)?;
        let argument = |message: String| Err(Error::new(ErrorKind::Argument, name, message));
        if op.is_gradient() != inputs.gradient.is_some() {
            let verb = if op.is_gradient() { "needs" } else { "does not take" };
            return argument(format!("`{name}` {verb} the gradient of the output, logsumexp and delta"));
        }
        let shape_of = |operand: View<'_>| *operand.layout.shape();
        let (q, k) = (shape_of(inputs.q), shape_of(inputs.k));
        let shape = Self::shape(op, &q, &k, &shape_of(inputs.v))?;
        let (batch, heads, queries, keys, width) = (q[0], q[1], q[2], k[2], shape_of(inputs.v)[3]);
        check_shape(name, "the output", out.layout.shape(), &shape)?;
        check_output(name, out.layout)?;
        let wide = Self::wide(dtype);
        check_dtype(name, out.dtype, if op == AttentionOp::LogSumExp { wide } else { dtype })?;
        let absent = Layout::new(name, &[], &[], 0)?;
        let (mut layouts, mut dtypes, mut min_lens) = ([absent; 10], [None; 10], [0; 10]);
        (layouts[0], dtypes[0], min_lens[0]) = (*out.layout, Some(out.dtype), out.layout.min_len());
        for (index, given) in inputs.to_array().into_iter().enumerate() {
            let operand = index + 1;
            let Some(given) = given else { continue };
            let expected = match operand {
                4 if given.dtype == DType::Bool => DType::Bool,
                5 | 8 | 9 => wide,
                6 => DType::I64,
                _ => dtype,
            };
            if given.dtype != expected {
                let role = ROLES[operand];
                let also = if operand == 4 { ", or bool, true where a query sees a key" } else { "" };
                let message =
                    format!("{role} has dtype {}; with q of {dtype} it must be {expected}{also}; cast it", given.dtype);
                return Err(Error::new(ErrorKind::DType, name, message));
            }
            let exactly = |sizes: &[usize]| {
                if given.layout.shape()[..] == *sizes {
                    return Ok(*given.layout);
                }
                let message = format!("{} has shape {:?}, it must be {sizes:?}", ROLES[operand], given.layout.shape());
                Err(Error::new(ErrorKind::Shape, name, message))
            };
            layouts[operand] = match operand {
                4 => given.layout.broadcast_to(name, &[batch, heads, queries, keys])?,
                5 => given.layout.broadcast_to(name, &[batch, heads])?,
                6 => exactly(&[batch])?,
                7 => exactly(&[batch, heads, queries, width])?,
                8 | 9 => exactly(&[batch, heads, queries])?,
                _ => *given.layout,
            };
            (dtypes[operand], min_lens[operand]) = (Some(given.dtype), given.layout.min_len());
        }
        let scale = options.scale.unwrap_or_else(|| 1.0 / (q[3].max(1) as f64).sqrt());
        let finite = |x: f64| if dtype == DType::F64 { x.is_finite() } else { (x as f32).is_finite() };
        if !finite(scale) {
            return argument(format!("the scale is {scale}; it must be finite in the dtype of the computation"));
        }
        if let Some(cap) = options.soft_cap
            && !(finite(cap) && (cap as f32) > 0.0)
        {
            return argument(format!("the soft cap is {cap}; it must be a positive finite number"));
        }
        if options.window == Some(0) {
            return argument("a window of 0 keys shows none; give at least 1, which is the query's own".to_owned());
        }
        if let Some(Dropout { probability, .. }) = options.dropout
            && !(0.0..1.0).contains(&probability)
        {
            return argument(format!("the probability of dropout is {probability}; it must lie in 0 ≤ p < 1"));
        }
        let all = queries.saturating_add(keys).clamp(1, isize::MAX as usize / 4);
        let window = options.window.unwrap_or(all).min(all);
        let band = Band { causal: options.causal, window, alignment: options.alignment, queries };
        let dropout = options.dropout.map(|dropout| (Scalar::Float(dropout.probability), dropout.seed, dropout.offset));
        let soft_cap = options.soft_cap.map(Scalar::Float);
        Ok(Self { op, dtype, scale: Scalar::Float(scale), soft_cap, band, dropout, dtypes, layouts, min_lens })
    }

    /// What is computed.
    #[must_use]
    pub fn op(&self) -> AttentionOp {
        self.op
    }

    /// The dtype of q, k and v.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dtype of an operand, if it is given.
    #[must_use]
    pub fn operand(&self, operand: usize) -> Option<DType> {
        self.dtypes[operand]
    }

    /// The factor of the scores.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale.to_f64()
    }

    /// The soft cap of the scores.
    #[must_use]
    pub fn soft_cap(&self) -> Option<f64> {
        self.soft_cap.map(Scalar::to_f64)
    }

    /// Which keys a query may see.
    #[must_use]
    pub fn band(&self) -> &Band {
        &self.band
    }

    /// Weights that are left out.
    #[must_use]
    pub fn dropout(&self) -> Option<Dropout> {
        self.dropout.map(|(probability, seed, offset)| Dropout { probability: probability.to_f64(), seed, offset })
    }

    /// Options that make this plan again.
    #[must_use]
    pub fn options(&self) -> AttentionOptions {
        AttentionOptions {
            scale: Some(self.scale()),
            causal: self.band.causal,
            alignment: self.band.alignment,
            window: Some(self.band.window),
            soft_cap: self.soft_cap(),
            dropout: self.dropout(),
        }
    }

    /// The dtype of the mask, if there is one.
    #[must_use]
    pub fn mask(&self) -> Option<DType> {
        self.dtypes[4]
    }

    /// The layout of an operand: the mask as [batch, heads, n, m], slopes as [batch, heads].
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

    /// The features of v and of the output.
    #[must_use]
    pub fn width(&self) -> usize {
        self.layouts[3].shape()[3]
    }

    /// Checks the storages of a call.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, or an operand is given or left out against it.
    pub fn check<S: Storage>(&self, inputs: AttentionInputs<&S>, out: &S) -> Result<()> {
        let name = self.op.name();
        let storages = std::iter::once(Some(out)).chain(inputs.to_array());
        for (operand, storage) in storages.enumerate() {
            match (storage, self.dtypes[operand]) {
                (Some(storage), Some(dtype)) => {
                    check_storage(name, ROLES[operand], dtype, self.min_lens[operand], storage)?;
                }
                (None, None) => {}
                _ => {
                    let message = format!("{} was given or left out against the plan", ROLES[operand]);
                    return Err(Error::new(ErrorKind::Argument, name, message));
                }
            }
        }
        Ok(())
    }
}

/// Attention and its gradients.
pub trait AttentionOps: NormOps + MatmulOps + RandomOps {
    /// Writes attention, its log-sum-exp or one of its gradients into `out`; operands are given as the plan says.
    ///
    /// # Contract
    /// - Every element of the planned output view is written, nothing else.
    /// - A query that sees no key, of no keys too, gives zeros; its log-sum-exp is −∞, and with it its gradients are zeros.
    /// - A query that sees one key, or one whose score lies so far above the others that their exponentials vanish, gives
    ///   its row of `v`.
    /// - f16 and bf16 are computed in f32 and rounded once; scores and sums are not rounded to them. The weights of the
    ///   output may be, before their product with `v`; the sums are those of tensor cores then, as in `matmul`.
    /// - Sums over features, over keys and over queries may be formed in any order, with fused multiply-add or without; the
    ///   division by the sum of the exponentials may come before or after the product with `v`.
    /// - The exponentials of a row may be scaled by a running maximum, which changes at most once in 32 keys.
    /// - A log-sum-exp is the logarithm of that sum plus the maximum. Gradients take the weights from the log-sum-exp that
    ///   they are given.
    /// - Dropout leaves out the same weights on every backend.
    /// - NaN in a query, or in a key, value or mask that a query sees, makes what depends on it NaN.
    /// - What infinities (but −∞ in the mask), values of unseen keys that are not finite, and with a scale of 0 such queries
    ///   and keys give is not specified, nor is it where scores or Σ|v| overflow the accumulator, nor the gradients where an
    ///   operand is not finite or a weight is more than e.
    /// - The same input gives the same bits in every run.
    ///
    /// # Errors
    /// `Argument` when a storage does not fit the plan, `OutOfMemory`, `Unsupported`, and what the device reports.
    fn attention(
        &self,
        plan: &Attention,
        inputs: AttentionInputs<&Self::Storage>,
        out: &mut Self::Storage,
    ) -> Result<()> {
        compose(self, plan, inputs, out)
    }
}
