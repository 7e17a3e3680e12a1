//! The provided composition: products of matrices, for some queries at a time, so that memory is linear in their number.

use super::{Attention, AttentionInputs, AttentionOp};
use crate::compose::{Composer, Temporary};
use crate::dtype::{DType, Element, Scalar};
use crate::elementwise::{Source, View};
use crate::error::Result;
use crate::layout::{Layout, Slice};
use crate::ops::binary::{Binary, BinaryOp};
use crate::ops::compare::{Clamp, Compare, CompareOp, Where};
use crate::ops::copy::{Copy, Fill};
use crate::ops::matmul::{Matmul, MatmulOps};
use crate::ops::norm::NormOps;
use crate::ops::random::{Distribution, Random, RandomOps};
use crate::ops::reduce::ReduceOp;
use crate::ops::unary::UnaryOp;
use crate::shape::{MAX_RANK, Shape};

const OP: &str = "attention";

/// About how many scores are in memory at once.
const PART: usize = 1 << 22;

/// Runs a plan as a composition of other ops: what the provided method does, for a backend whose own method leaves some
/// plans to it.
///
/// # Errors
/// As [`AttentionOps::attention`](super::AttentionOps::attention).
pub fn compose<B: NormOps + MatmulOps + RandomOps + ?Sized>(
    backend: &B,
    plan: &Attention,
    inputs: AttentionInputs<&B::Storage>,
    out: &mut B::Storage,
) -> Result<()> {
    plan.check(inputs, out)?;
    let target = View { dtype: plan.dtypes[0].unwrap_or(plan.dtype), layout: &plan.layouts[0] };
    if target.layout.count() == 0 {
        return Ok(());
    }
    if plan.heads() == 0 || plan.queries() == 0 || plan.keys() == 0 {
        let nothing = if plan.op == AttentionOp::LogSumExp { f64::NEG_INFINITY } else { 0.0 };
        return backend.fill(&Fill::new(Scalar::Float(nothing), target)?, out);
    }
    let mut last = [false; MAX_RANK];
    last[3] = true;
    let compose = Compose { ops: Composer { backend, mask: last }, plan, inputs: inputs.to_array() };
    compose.run(target, out)
}

/// The composition of a plan.
struct Compose<'a, B: NormOps + ?Sized> {
    ops: Composer<'a, B>,
    plan: &'a Attention,
    inputs: [Option<&'a B::Storage>; 9],
}

/// Some queries: the number of the first and how many.
#[derive(Clone, Copy)]
struct Part {
    first: usize,
    rows: usize,
}

/// The scores of a part, and what of them the derivative of a soft cap needs.
struct Scores<S> {
    scores: Temporary<S>,
    tanh: Option<Temporary<S>>,
}

impl<B: NormOps + MatmulOps + RandomOps + ?Sized> Compose<'_, B> {
    fn run(&self, target: View<'_>, out: &mut B::Storage) -> Result<()> {
        let plan = self.plan;
        let (k, v) = (self.widened(2, *plan.layout(2))?, self.widened(3, *plan.layout(3))?);
        let most = (PART / plan.batch() / plan.heads() / plan.keys()).clamp(1, plan.queries());
        let width = if plan.op == AttentionOp::GradKey { plan.depth() } else { plan.width() };
        let mut sum = self.temporary(k.dtype, &[plan.batch(), plan.kv_heads(), plan.keys(), width])?;
        for first in (0..plan.queries()).step_by(most) {
            let part = Part { first, rows: most.min(plan.queries() - first) };
            let q = self.rows(1, part)?;
            let scores = self.scores(&q, &k, part)?;
            let of_part = |result: &Temporary<B::Storage>, out: &mut B::Storage| {
                let layout = self.part(&plan.layouts[0], part)?;
                let layout = if plan.op == AttentionOp::LogSumExp { layout.unsqueeze(-1)? } else { layout };
                let target = View { layout: &layout, ..target };
                self.ops.backend.copy(&Copy::new(result.view(), target)?, &result.storage, out)
            };
            let beta = f64::from(u8::from(first > 0));
            match plan.op {
                AttentionOp::Output => {
                    let mut weights = self.normalised(scores.scores)?;
                    self.drop_out(&mut weights, part)?;
                    of_part(&self.sum_keys(1.0, &weights, &v)?, out)?;
                }
                AttentionOp::LogSumExp => of_part(&self.log_sum_exp(scores.scores)?, out)?,
                AttentionOp::GradQuery => {
                    let gradient = self.score_gradient(scores, &v, part)?;
                    of_part(&self.sum_keys(plan.scale(), &gradient, &k)?, out)?;
                }
                AttentionOp::GradKey => {
                    let gradient = self.score_gradient(scores, &v, part)?;
                    self.sum_queries(plan.scale(), &gradient, &q, beta, &mut sum)?;
                }
                AttentionOp::GradValue => {
                    let mut weights = self.weights(scores.scores, part)?;
                    self.drop_out(&mut weights, part)?;
                    self.sum_queries(1.0, &weights, &self.rows(7, part)?, beta, &mut sum)?;
                }
            }
        }
        match plan.op {
            AttentionOp::GradKey | AttentionOp::GradValue => {
                self.ops.backend.copy(&Copy::new(sum.view(), target)?, &sum.storage, out)
            }
            _ => Ok(()),
        }
    }

    fn temporary(&self, dtype: DType, sizes: &[usize]) -> Result<Temporary<B::Storage>> {
        let layout = Layout::contiguous(Shape::new(OP, sizes)?);
        Ok(Temporary { storage: self.ops.backend.alloc(dtype, layout.count())?, dtype, layout })
    }

    /// Operand `operand` seen through a layout, in the dtype of the computation.
    fn widened(&self, operand: usize, layout: Layout) -> Result<Temporary<B::Storage>> {
        let dtype = self.plan.dtypes[operand].unwrap_or(self.plan.dtype);
        let view = View { dtype, layout: &layout };
        match self.inputs[operand - 1] {
            Some(storage) => self.ops.widen(storage, view),
            None => self.temporary(Attention::wide(self.plan.dtype), &[0]),
        }
    }

    /// The queries of a part in a layout whose axis 2 they are.
    fn part(&self, layout: &Layout, part: Part) -> Result<Layout> {
        let bound = |query: usize| Some(query as isize);
        layout.slice(2, Slice { start: bound(part.first), stop: bound(part.first + part.rows), step: 1 })
    }

    /// The queries of a part of an operand, with one axis more where there are no features.
    fn rows(&self, operand: usize, part: Part) -> Result<Temporary<B::Storage>> {
        let layout = self.part(self.plan.layout(operand), part)?;
        self.widened(operand, if layout.rank() == 3 { layout.unsqueeze(-1)? } else { layout })
    }

    /// [batch, heads, rows, …] as [batch, kv_heads, rows of the heads that share a key head, …].
    fn merged(&self, x: &Temporary<B::Storage>) -> Result<Layout> {
        let (plan, shape) = (self.plan, x.layout.shape());
        let rows = plan.group() * shape[2];
        Ok(Layout::contiguous(Shape::new(OP, &[plan.batch(), plan.kv_heads(), rows, shape[3]])?))
    }

    fn multiply(
        &self,
        (alpha, beta): (f64, f64),
        (a, a_layout): (&Temporary<B::Storage>, Layout),
        (b, b_layout): (&Temporary<B::Storage>, Layout),
        (out, out_layout): (&mut Temporary<B::Storage>, Layout),
    ) -> Result<()> {
        let view = |layout| View { dtype: a.dtype, layout };
        let [alpha, beta] = [alpha, beta].map(Scalar::Float);
        let plan = Matmul::new(view(&a_layout), view(&b_layout), alpha, beta, view(&out_layout))?;
        self.ops.backend.matmul(&plan, &a.storage, &b.storage, &mut out.storage)
    }

    /// alpha · x @ yᵀ of rows of queries and of keys: [batch, heads, rows, keys].
    fn products(
        &self,
        alpha: f64,
        x: &Temporary<B::Storage>,
        y: &Temporary<B::Storage>,
    ) -> Result<Temporary<B::Storage>> {
        let plan = self.plan;
        let mut out = self.temporary(x.dtype, &[plan.batch(), plan.heads(), x.layout.shape()[2], plan.keys()])?;
        let layout = self.merged(&out)?;
        let columns = y.layout.permute(&[0, 1, 3, 2])?;
        self.multiply((alpha, 0.0), (x, self.merged(x)?), (y, columns), (&mut out, layout))?;
        Ok(out)
    }

    /// alpha · weights @ y for rows of keys: [batch, heads, rows, features].
    fn sum_keys(
        &self,
        alpha: f64,
        weights: &Temporary<B::Storage>,
        y: &Temporary<B::Storage>,
    ) -> Result<Temporary<B::Storage>> {
        let (plan, rows, width) = (self.plan, weights.layout.shape()[2], y.layout.shape()[3]);
        let mut out = self.temporary(y.dtype, &[plan.batch(), plan.heads(), rows, width])?;
        let layout = self.merged(&out)?;
        self.multiply((alpha, 0.0), (weights, self.merged(weights)?), (y, y.layout), (&mut out, layout))?;
        Ok(out)
    }

    /// sum = alpha · weightsᵀ @ x + beta · sum, over the rows of all heads that share a key head.
    fn sum_queries(
        &self,
        alpha: f64,
        weights: &Temporary<B::Storage>,
        x: &Temporary<B::Storage>,
        beta: f64,
        sum: &mut Temporary<B::Storage>,
    ) -> Result<()> {
        let columns = self.merged(weights)?.permute(&[0, 1, 3, 2])?;
        let layout = sum.layout;
        self.multiply((alpha, beta), (weights, columns), (x, self.merged(x)?), (sum, layout))
    }

    fn scores(&self, q: &Temporary<B::Storage>, k: &Temporary<B::Storage>, part: Part) -> Result<Scores<B::Storage>> {
        let plan = self.plan;
        let mut scores = self.products(plan.scale(), q, k)?;
        let mut tanh = None;
        if let Some(cap) = plan.soft_cap() {
            self.ops.scale(BinaryOp::Div, &mut scores, cap)?;
            self.ops.unary(UnaryOp::Tanh, &mut scores)?;
            if plan.op.is_gradient() {
                tanh = Some(self.ops.copy(&scores)?);
            }
            self.ops.scale(BinaryOp::Mul, &mut scores, cap)?;
        }
        let band = plan.band();
        let bounded = band.causal || band.window < plan.queries() + plan.keys();
        let lengths = self.lengths()?;
        let mut away = None;
        if bounded || plan.operand(5).is_some() {
            let ahead = self.ahead(lengths.as_ref(), part)?;
            let mut distance = self.ops.copy(&ahead)?;
            self.ops.unary(UnaryOp::Abs, &mut distance)?;
            away = Some((ahead, distance));
        }
        if let (Some((_, distance)), true) = (&away, plan.operand(5).is_some()) {
            let slopes = self.widened(5, plan.layout(5).unsqueeze(-1)?.unsqueeze(-1)?)?;
            let distance = self.ops.cast(&distance.storage, distance.view(), slopes.dtype)?;
            let shape = *scores.layout.shape();
            let bias = self.arithmetic(BinaryOp::Mul, &distance, &slopes, &shape)?;
            self.ops.binary(BinaryOp::Sub, &mut scores, &bias)?;
        }
        // What is hidden by position is so whatever the mask adds to it, hence comes after it.
        self.mask(&mut scores, part)?;
        if let (Some((ahead, distance)), true) = (&away, bounded) {
            if band.causal {
                self.hide(&mut scores, &self.compared(CompareOp::Gt, ahead, Scalar::Int(0))?)?;
            }
            let far = Scalar::Int(band.window as i64);
            self.hide(&mut scores, &self.compared(CompareOp::Ge, distance, far)?)?;
        }
        if let Some(lengths) = lengths {
            let past = self.arithmetic(
                BinaryOp::Sub,
                &self.numbers(0..plan.keys(), false)?,
                &lengths,
                &[plan.batch(), 1, 1, plan.keys()],
            )?;
            self.hide(&mut scores, &self.compared(CompareOp::Ge, &past, Scalar::Int(0))?)?;
        }
        Ok(Scores { scores, tanh })
    }

    fn mask(&self, scores: &mut Temporary<B::Storage>, part: Part) -> Result<()> {
        let (Some(mask), Some(dtype)) = (self.inputs[3], self.plan.mask()) else { return Ok(()) };
        let layout = self.part(self.plan.layout(4), part)?;
        let view = View { dtype, layout: &layout };
        if dtype != DType::Bool {
            return self.ops.binary(BinaryOp::Add, scores, &self.ops.widen(mask, view)?);
        }
        let hidden = Source::Scalar(Scalar::Float(f64::NEG_INFINITY));
        let plan = Where::new(Source::View(view), Source::Output, hidden, scores.view())?;
        self.ops.backend.choose(&plan, Some(mask), None, None, &mut scores.storage)
    }

    /// −∞ where `hidden` is true.
    fn hide(&self, scores: &mut Temporary<B::Storage>, hidden: &Temporary<B::Storage>) -> Result<()> {
        let least = Source::Scalar(Scalar::Float(f64::NEG_INFINITY));
        let plan = Where::new(Source::View(hidden.view()), least, Source::Output, scores.view())?;
        self.ops.backend.choose(&plan, Some(&hidden.storage), None, None, &mut scores.storage)
    }

    /// How many keys of each batch item there are, [batch, 1, 1, 1].
    fn lengths(&self) -> Result<Option<Temporary<B::Storage>>> {
        let (plan, Some(storage)) = (self.plan, self.inputs[5]) else { return Ok(None) };
        let mut lengths = self.temporary(DType::I64, &[plan.batch(), 1, 1, 1])?;
        let given = plan.layout(6).unsqueeze(-1)?.unsqueeze(-1)?.unsqueeze(-1)?;
        let given = Source::View(View { dtype: DType::I64, layout: &given });
        let bounds = [0, plan.keys()].map(|bound| Some(Scalar::Int(bound as i64)));
        let clamp = Clamp::new(bounds[0], bounds[1], given, lengths.view())?;
        self.ops.backend.clamp(&clamp, Some(storage), &mut lengths.storage)?;
        Ok(Some(lengths))
    }

    /// How far each key lies behind the place of each query of a part: [1 or batch, 1, rows, keys], i64.
    fn ahead(&self, lengths: Option<&Temporary<B::Storage>>, part: Part) -> Result<Temporary<B::Storage>> {
        let plan = self.plan;
        let queries = self.numbers(part.first..part.first + part.rows, true)?;
        let keys = self.numbers(0..plan.keys(), false)?;
        let mut ahead = self.arithmetic(BinaryOp::Sub, &keys, &queries, &[1, 1, part.rows, plan.keys()])?;
        // The shift of `len` keys is that of none, and `len` more where it depends on them.
        let band = plan.band();
        match lengths {
            Some(lengths) if band.shift(plan.keys()) != band.shift(plan.keys() + 1) => {
                let shape = [plan.batch(), 1, part.rows, plan.keys()];
                ahead = self.arithmetic(BinaryOp::Sub, &ahead, lengths, &shape)?;
                self.shifted(&mut ahead, band.shift(0))?;
            }
            _ => self.shifted(&mut ahead, band.shift(plan.keys()))?,
        }
        Ok(ahead)
    }

    /// x − shift
    fn shifted(&self, x: &mut Temporary<B::Storage>, shift: isize) -> Result<()> {
        let shift = Source::Scalar(Scalar::Int(shift as i64));
        let plan = Binary::new(BinaryOp::Sub, Source::Output, shift, x.view())?;
        self.ops.backend.binary(&plan, None, None, &mut x.storage)
    }

    /// A range, along the queries or along the keys.
    fn numbers(&self, range: std::ops::Range<usize>, queries: bool) -> Result<Temporary<B::Storage>> {
        let numbers: Vec<i64> = range.map(|number| number as i64).collect();
        let count = numbers.len();
        let mut made = self.temporary(DType::I64, &if queries { [1, 1, count, 1] } else { [1, 1, 1, count] })?;
        self.ops.backend.write(i64::as_bytes(&numbers), &mut made.storage, 0)?;
        Ok(made)
    }

    /// op(a, b), broadcast to a shape.
    fn arithmetic(
        &self,
        op: BinaryOp,
        a: &Temporary<B::Storage>,
        b: &Temporary<B::Storage>,
        shape: &[usize],
    ) -> Result<Temporary<B::Storage>> {
        let mut out = self.temporary(a.dtype, shape)?;
        let plan = Binary::new(op, Source::View(a.view()), Source::View(b.view()), out.view())?;
        self.ops.backend.binary(&plan, Some(&a.storage), Some(&b.storage), &mut out.storage)?;
        Ok(out)
    }

    fn compared(&self, op: CompareOp, x: &Temporary<B::Storage>, with: Scalar) -> Result<Temporary<B::Storage>> {
        let mut out = self.temporary(DType::Bool, x.layout.shape())?;
        let plan = Compare::new(op, x.dtype, Source::View(x.view()), Source::Scalar(with), out.view())?;
        self.ops.backend.compare(&plan, Some(&x.storage), None, &mut out.storage)?;
        Ok(out)
    }

    /// The exponentials less the maximum, their sum, and the maximum, 0 where all keys are hidden.
    fn exponentials(&self, scores: &mut Temporary<B::Storage>) -> Result<[Temporary<B::Storage>; 2]> {
        let max = self.ops.reduce(ReduceOp::Max, scores)?;
        // NaN differs from −∞, and stays.
        let sees = self.ops.compare(CompareOp::Ne, &max, f64::NEG_INFINITY)?;
        let shift = self.ops.choose(&sees, &max, 0.0)?;
        self.ops.binary(BinaryOp::Sub, scores, &shift)?;
        self.ops.unary(UnaryOp::Exp, scores)?;
        Ok([self.ops.reduce(ReduceOp::Sum, scores)?, shift])
    }

    /// The softmax over the keys, zeros where all are hidden.
    fn normalised(&self, mut scores: Temporary<B::Storage>) -> Result<Temporary<B::Storage>> {
        let [sum, _] = self.exponentials(&mut scores)?;
        let sees = self.ops.compare(CompareOp::Ne, &sum, 0.0)?;
        let divisor = self.ops.choose(&sees, &sum, 1.0)?;
        self.ops.binary(BinaryOp::Div, &mut scores, &divisor)?;
        Ok(scores)
    }

    fn log_sum_exp(&self, mut scores: Temporary<B::Storage>) -> Result<Temporary<B::Storage>> {
        let [mut sum, shift] = self.exponentials(&mut scores)?;
        self.ops.unary(UnaryOp::Ln, &mut sum)?;
        self.ops.binary(BinaryOp::Add, &mut sum, &shift)?;
        Ok(sum)
    }

    /// The weights by the log-sum-exp that was given.
    fn weights(&self, mut scores: Temporary<B::Storage>, part: Part) -> Result<Temporary<B::Storage>> {
        let logsumexp = self.rows(8, part)?;
        let sees = self.ops.compare(CompareOp::Ne, &logsumexp, f64::NEG_INFINITY)?;
        let shift = self.ops.choose(&sees, &logsumexp, f64::INFINITY)?;
        self.ops.binary(BinaryOp::Sub, &mut scores, &shift)?;
        self.ops.unary(UnaryOp::Exp, &mut scores)?;
        Ok(scores)
    }

    /// What dropout makes of weights, or of their gradients.
    fn drop_out(&self, weights: &mut Temporary<B::Storage>, part: Part) -> Result<()> {
        let plan = self.plan;
        let Some(dropout) = plan.dropout() else { return Ok(()) };
        let (rows, keys) = (part.rows, plan.keys());
        let mut left_out = self.temporary(DType::Bool, weights.layout.shape())?;
        for pair in 0..plan.batch() * plan.heads() {
            let layout = Layout::new(OP, &[rows, keys], &[keys as isize, 1], pair * rows * keys)?;
            let weight = (pair * plan.queries() + part.first) as u64 * keys as u64;
            let distribution = Distribution::Bernoulli { probability: dropout.probability };
            let out = View { dtype: DType::Bool, layout: &layout };
            let random = Random::new(distribution, dropout.seed, dropout.offset.wrapping_add(weight), out)?;
            self.ops.backend.random(&random, &mut left_out.storage)?;
        }
        self.ops.scale(BinaryOp::Mul, weights, 1.0 / (1.0 - dropout.probability))?;
        let zero = Source::Scalar(Scalar::Float(0.0));
        let choose = Where::new(Source::View(left_out.view()), zero, Source::Output, weights.view())?;
        self.ops.backend.choose(&choose, Some(&left_out.storage), None, None, &mut weights.storage)
    }

    /// The gradient by the scaled products.
    fn score_gradient(
        &self,
        Scores { scores, tanh }: Scores<B::Storage>,
        v: &Temporary<B::Storage>,
        part: Part,
    ) -> Result<Temporary<B::Storage>> {
        let mut gradient = self.products(1.0, &self.rows(7, part)?, v)?;
        self.drop_out(&mut gradient, part)?;
        self.ops.binary(BinaryOp::Sub, &mut gradient, &self.rows(9, part)?)?;
        let weights = self.weights(scores, part)?;
        self.ops.binary(BinaryOp::Mul, &mut gradient, &weights)?;
        if let Some(mut slope) = tanh {
            self.ops.unary(UnaryOp::Square, &mut slope)?;
            self.ops.scale(BinaryOp::Sub, &mut slope, 1.0)?;
            self.ops.unary(UnaryOp::Neg, &mut slope)?;
            self.ops.binary(BinaryOp::Mul, &mut gradient, &slope)?;
        }
        Ok(gradient)
    }
}
