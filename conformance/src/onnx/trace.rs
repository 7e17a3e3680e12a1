//! The frontend's ops, recorded: what was computed on the way to an output can be given to the oracle.

use std::cell::{Cell, RefCell};

use congruent::Operand;
use congruent::ops::{AttentionInputs, AttentionOp, AttentionOptions};
use congruent_backend_api::erase::AnyBackend;
use congruent_backend_api::ops::binary::BinaryOp;
use congruent_backend_api::ops::compare::CompareOp;
use congruent_backend_api::ops::conv::{ConvOp, ConvOptions};
use congruent_backend_api::ops::index::ScatterOp;
use congruent_backend_api::ops::linear::Activation;
use congruent_backend_api::ops::norm::NormalizeOp;
use congruent_backend_api::ops::pool::{PoolOp, PoolOptions};
use congruent_backend_api::ops::reduce::{ArgReduceOp, ReduceOp};
use congruent_backend_api::ops::scan::{ScanOp, ScanRange};
use congruent_backend_api::ops::sort::SortOp;
use congruent_backend_api::ops::statistic::StatisticOp;
use congruent_backend_api::ops::unary::UnaryOp;
use congruent_backend_api::{DType, Op, Scalar};

use super::node::{Lowered, Stop};
use crate::case::Call;
use crate::ops::attention::given;

/// A tensor of the frontend.
pub(super) type Tensor = congruent::Tensor<AnyBackend>;

/// An operand of a recorded call.
#[derive(Clone, Debug)]
pub(super) enum Recorded {
    Tensor(Tensor),
    Scalar(Scalar),
    /// What the output held before.
    InPlace,
}

/// A call that was made.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) call: Call,
    pub(super) inputs: Vec<Recorded>,
    /// What the output held before, where that is read.
    pub(super) old: Option<Tensor>,
    pub(super) out: Tensor,
}

/// Makes calls and records them. Views, copies and fills move elements and are not recorded.
#[derive(Debug, Default)]
pub(super) struct Trace {
    steps: RefCell<Vec<Step>>,
    composed: Cell<bool>,
}

impl Trace {
    /// What was called.
    pub(super) fn steps(self) -> Vec<Step> {
        self.steps.into_inner()
    }

    /// Whether something was computed that is not recorded.
    pub(super) fn is_composed(&self) -> bool {
        self.composed.get()
    }

    /// A sum of products, which the frontend composes.
    pub(super) fn einsum(&self, equation: &str, operands: &[&Tensor]) -> Lowered<Tensor> {
        self.composed.set(true);
        Ok(Tensor::einsum(equation, operands)?)
    }

    /// A function of one operand.
    pub(super) fn unary(&self, op: UnaryOp, x: &Tensor) -> Lowered<Tensor> {
        defined(Op::Unary(op), x.dtype())?;
        Ok(self.record(Call::Unary(op), &[x.into()], None, x.unary(op)?))
    }

    /// Arithmetic; a scalar is rounded to the other operand's dtype.
    pub(super) fn binary<'a>(
        &self,
        op: BinaryOp,
        a: impl Into<Operand<'a, AnyBackend>>,
        b: impl Into<Operand<'a, AnyBackend>>,
    ) -> Lowered<Tensor> {
        let operands = [a.into(), b.into()];
        defined(Op::Binary(op), dtype(&operands))?;
        Ok(self.record(Call::Binary(op), &operands, None, Tensor::binary(op, operands[0], operands[1])?))
    }

    /// A comparison.
    pub(super) fn compare<'a>(
        &self,
        op: CompareOp,
        a: impl Into<Operand<'a, AnyBackend>>,
        b: impl Into<Operand<'a, AnyBackend>>,
    ) -> Lowered<Tensor> {
        let operands = [a.into(), b.into()];
        defined(Op::Compare(op), dtype(&operands))?;
        Ok(self.record(Call::Compare(op), &operands, None, Tensor::compare(op, operands[0], operands[1])?))
    }

    /// `a` where the condition holds, else `b`.
    pub(super) fn choose<'a>(
        &self,
        condition: &'a Tensor,
        a: impl Into<Operand<'a, AnyBackend>>,
        b: impl Into<Operand<'a, AnyBackend>>,
    ) -> Lowered<Tensor> {
        let operands = [condition.into(), a.into(), b.into()];
        Ok(self.record(Call::Where, &operands, None, condition.where_cond(operands[1], operands[2])?))
    }

    /// Limits.
    pub(super) fn clamp(&self, x: &Tensor, min: Option<Scalar>, max: Option<Scalar>) -> Lowered<Tensor> {
        defined(Op::Clamp, x.dtype())?;
        Ok(self.record(Call::Clamp { min, max }, &[x.into()], None, x.clamp(min, max)?))
    }

    /// A cast; to the same dtype it is nothing.
    pub(super) fn cast(&self, x: &Tensor, dtype: DType) -> Lowered<Tensor> {
        let out = x.cast(dtype)?;
        Ok(if dtype == x.dtype() { out } else { self.record(Call::Copy, &[x.into()], None, out) })
    }

    /// A reduction; `None` is all axes.
    pub(super) fn reduce(&self, op: ReduceOp, x: &Tensor, axes: Option<&[isize]>, keepdim: bool) -> Lowered<Tensor> {
        defined(Op::Reduce(op), x.dtype())?;
        let call = Call::Reduce { op, axes: axes.map(<[isize]>::to_vec) };
        Ok(self.record(call, &[x.into()], None, x.reduce(op, axes, keepdim)?))
    }

    /// The first position of an extreme.
    pub(super) fn position(&self, op: ArgReduceOp, x: &Tensor, axis: isize, keepdim: bool) -> Lowered<Tensor> {
        defined(Op::ArgReduce(op), x.dtype())?;
        Ok(self.record(Call::ArgReduce { op, axis }, &[x.into()], None, x.arg_reduce(op, axis, keepdim)?))
    }

    /// A scan along an axis.
    pub(super) fn scan(&self, op: ScanOp, x: &Tensor, axis: isize, range: ScanRange) -> Lowered<Tensor> {
        defined(Op::Scan(op), x.dtype())?;
        Ok(self.record(Call::Scan { op, axis, range }, &[x.into()], None, x.scan(op, axis, range)?))
    }

    /// The first k elements in order, and their positions.
    pub(super) fn topk(&self, x: &Tensor, k: usize, axis: isize, largest: bool) -> Lowered<(Tensor, Tensor)> {
        let (values, positions) = x.topk(k, axis, largest)?;
        let call = Call::Sort { op: SortOp::Topk, axis, descending: largest };
        Ok((values, self.record(call, &[x.into()], None, positions)))
    }

    /// A composed reduction.
    pub(super) fn statistic(
        &self,
        (op, parameter): (StatisticOp, f64),
        x: &Tensor,
        axes: Option<&[isize]>,
        keepdim: bool,
    ) -> Lowered<Tensor> {
        defined(Op::Statistic(op), x.dtype())?;
        let call = Call::Statistic { op, parameter, axes: axes.map(<[isize]>::to_vec) };
        Ok(self.record(call, &[x.into()], None, x.statistic(op, parameter, axes, keepdim)?))
    }

    /// A normalisation with the weight and bias that are given.
    pub(super) fn normalize(
        &self,
        (op, epsilon): (NormalizeOp, f64),
        x: &Tensor,
        axes: &[isize],
        affine: [Option<&Tensor>; 2],
    ) -> Lowered<Tensor> {
        defined(Op::Normalize(op), x.dtype())?;
        let inputs: Vec<_> = [Some(x)].into_iter().chain(affine).flatten().map(Operand::from).collect();
        let call = Call::Normalize { op, gradient: false, epsilon, axes: Some(axes.to_vec()) };
        Ok(self.record(call, &inputs, None, x.normalize(op, epsilon, axes, affine[0], affine[1])?))
    }

    /// A matrix product.
    pub(super) fn matmul(&self, a: &Tensor, b: &Tensor) -> Lowered<Tensor> {
        defined(Op::Matmul, a.dtype())?;
        let call = Call::Matmul { alpha: Scalar::Int(1), beta: Scalar::Int(0) };
        Ok(self.record(call, &[a.into(), b.into()], None, a.matmul(b)?))
    }

    /// Elements at the positions of an index.
    pub(super) fn gather(&self, x: &Tensor, axis: isize, index: &Tensor) -> Lowered<Tensor> {
        Ok(self.record(Call::Gather { axis }, &[x.into(), index.into()], None, x.gather(axis, index)?))
    }

    /// `x` with sources at the positions of an index.
    pub(super) fn scatter(
        &self,
        op: ScatterOp,
        x: &Tensor,
        axis: isize,
        index: &Tensor,
        src: &Tensor,
    ) -> Lowered<Tensor> {
        defined(Op::Scatter(op), x.dtype())?;
        let out = x.scatter_with(op, axis, index, src)?;
        Ok(self.record(Call::Scatter { op, axis }, &[Operand::Output, index.into(), src.into()], Some(x.clone()), out))
    }

    /// A convolution.
    pub(super) fn conv(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: ConvOptions,
    ) -> Lowered<Tensor> {
        let out = x.conv(weight, bias, options)?;
        Ok(self.convolved(ConvOp::Conv, [Some(x), Some(weight), bias], options, out))
    }

    /// A transposed convolution.
    pub(super) fn conv_transpose(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: ConvOptions,
        output_padding: [usize; 3],
    ) -> Lowered<Tensor> {
        let out = x.conv_transpose(weight, bias, options, output_padding)?;
        Ok(self.convolved(ConvOp::ConvTranspose, [Some(x), Some(weight), bias], options, out))
    }

    fn convolved(&self, op: ConvOp, inputs: [Option<&Tensor>; 3], options: ConvOptions, out: Tensor) -> Tensor {
        let inputs: Vec<_> = inputs.into_iter().flatten().map(Operand::from).collect();
        self.record(Call::Conv { op, options, activation: Activation::Identity }, &inputs, None, out)
    }

    /// Attention.
    pub(super) fn attention(
        &self,
        op: AttentionOp,
        inputs: AttentionInputs<&Tensor>,
        options: AttentionOptions,
    ) -> Lowered<Tensor> {
        defined(Op::Attention(op), inputs.q.dtype())?;
        let operands: Vec<_> = inputs.to_array().into_iter().flatten().map(Operand::from).collect();
        let call = Call::Attention { op, options, given: given(inputs) };
        Ok(self.record(call, &operands, None, Tensor::attention_with(op, inputs, options)?))
    }

    /// A pooling.
    pub(super) fn pool(&self, op: PoolOp, x: &Tensor, options: PoolOptions) -> Lowered<Tensor> {
        defined(Op::Pool(op), x.dtype())?;
        Ok(self.record(Call::Pool { op, options }, &[x.into()], None, x.pool(op, options)?))
    }

    /// What the frontend composes, and the kit has no row for.
    pub(super) fn compose(&self, out: congruent::Result<Tensor>) -> Lowered<Tensor> {
        self.composed.set(true);
        Ok(out?)
    }

    /// `alpha · a @ b + beta · c`.
    pub(super) fn gemm(&self, (a, b): (&Tensor, &Tensor), c: &Tensor, alpha: Scalar, beta: Scalar) -> Lowered<Tensor> {
        defined(Op::Matmul, a.dtype())?;
        let mut out = c.clone();
        Tensor::matmul_into(a, b, alpha, beta, &mut out)?;
        Ok(self.record(Call::Matmul { alpha, beta }, &[a.into(), b.into()], Some(c.clone()), out))
    }

    fn record(&self, call: Call, inputs: &[Operand<'_, AnyBackend>], old: Option<Tensor>, out: Tensor) -> Tensor {
        let inputs = inputs.iter().map(|operand| match operand {
            Operand::Tensor(tensor) => Recorded::Tensor((*tensor).clone()),
            Operand::Scalar(scalar) => Recorded::Scalar(*scalar),
            Operand::Output => Recorded::InPlace,
        });
        self.steps.borrow_mut().push(Step { call, inputs: inputs.collect(), old, out: out.clone() });
        out
    }
}

/// Outside its domain an op is an error by contract; where ONNX defines it, that is not covered.
fn defined(op: Op, dtype: DType) -> Lowered<()> {
    let reason = || Stop::NotCovered(format!("{} is not defined for {dtype}", op.name()));
    op.accepts(dtype).then_some(()).ok_or_else(reason)
}

/// The dtype of the first tensor.
fn dtype(operands: &[Operand<'_, AnyBackend>]) -> DType {
    let given = operands.iter().find_map(|operand| match operand {
        Operand::Tensor(tensor) => Some(tensor.dtype()),
        _ => None,
    });
    given.unwrap_or(DType::Bool)
}
