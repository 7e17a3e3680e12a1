//! The op table: from a name, arguments and operands to a [`Case`].

mod attention;
mod conv;
mod pool;

use congruent_backend_api::ops::conv::ConvOp;
use congruent_backend_api::ops::index::{Gather, ScatterOp};
use congruent_backend_api::ops::linear::{Activation, Linear};
use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::ops::norm::NormalizeOp;
use congruent_backend_api::ops::pool::PoolOp;
use congruent_backend_api::ops::random::{Distribution, RandomOp};
use congruent_backend_api::ops::reduce::{Reduce, ReduceOp};
use congruent_backend_api::ops::scan::ScanRange;
use congruent_backend_api::ops::sort::{Sort, SortOp};
use congruent_backend_api::ops::statistic::StatisticOp;
use congruent_backend_api::{DType, Error, Op, Scalar, Shape};

use super::data::{dtype, scalar};
use super::fields::{FieldError, Fields, Node, Result};
use super::frontend::{Entry, Frontend};
use super::operand::{Operand, Target, result_dtype};
use crate::case::{Call, Case, Input};
use crate::host::{HostTensor, positions};

/// What a file asks to be run.
#[derive(Debug)]
pub(super) enum Job {
    /// A call of an op.
    Call(Box<Case>),
    /// A call of an op that only the frontend has.
    Frontend(Frontend),
    /// A call whose result has no shape or no room.
    Rejected(Error),
    /// Something that the kit does not have.
    NotCovered(String),
}

/// Why there is no case: the file is wrong, or the call is.
pub(super) enum Stop {
    Field(FieldError),
    Call(Error),
}

impl From<FieldError> for Stop {
    fn from(error: FieldError) -> Self {
        Self::Field(error)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

/// The job of an op by its name; `args` are taken entirely.
///
/// Ops of backends have one output; an op of that name with several is the frontend's.
pub(super) fn build(name: &str, args: Fields, operands: Vec<Operand>, into: Target, outputs: usize) -> Result<Job> {
    let given = Given { args, operands, into };
    let op = match name {
        // The same op, whose result is said by `input_shape`.
        "conv_grad_input" => Some(Op::Conv(ConvOp::ConvTranspose)),
        _ => Op::all().find(|op| op.name() == name),
    };
    let job = match (op, Frontend::named(name)) {
        (Some(_), Some(entry)) if outputs > 1 => given.frontend(entry, name).map(Job::Frontend).map_err(Stop::Field),
        (Some(op), _) => given.case(op).map(|case| Job::Call(Box::new(case))),
        (None, Some(entry)) => given.frontend(entry, name).map(Job::Frontend).map_err(Stop::Field),
        (None, None) => Ok(Job::NotCovered(format!("the op `{name}`"))),
    };
    match job {
        Ok(job) => Ok(job),
        Err(Stop::Call(error)) => Ok(Job::Rejected(error)),
        Err(Stop::Field(error)) => Err(error),
    }
}

struct Given {
    args: Fields,
    operands: Vec<Operand>,
    into: Target,
}

impl Given {
    fn frontend(mut self, entry: &Entry, name: &str) -> Result<Frontend> {
        self.arity(name, *entry.operands.start(), *entry.operands.end())?;
        let operands = (0..self.operands.len()).map(|index| self.tensor(index)).collect::<Result<_>>()?;
        let elsewhere = match self.into {
            Target::Fresh => false,
            Target::Elsewhere => true,
            Target::Given(_) => return Err(self.args.fail(format!("`{name}` takes `into` as true or false only"))),
        };
        let call = Frontend::parse(entry, name, &mut self.args, operands, elsewhere)?;
        self.args.finish()?;
        Ok(call)
    }

    fn case(mut self, op: Op) -> Result<Case, Stop> {
        if matches!(op, Op::Binary(_) | Op::Compare(_)) {
            self.scalar_argument()?;
        }
        let (least, most) = match op {
            Op::Fill | Op::Random(_) => (0, 0),
            Op::Binary(_) | Op::Compare(_) => (2, 2),
            Op::Where | Op::Scatter(_) => (3, 3),
            Op::Gather | Op::Pool(PoolOp::MaxPoolGrad) => (2, 2),
            Op::Conv(ConvOp::ConvGradWeight) => (2, 2),
            Op::Matmul | Op::Linear | Op::NormalizeGrad(_) | Op::Conv(_) => (2, 3),
            Op::Attention(_) => (3, 9),
            Op::SearchSorted => (2, 2),
            Op::Normalize(op) if op.is_affine() => (1, 3),
            _ => (1, 1),
        };
        self.arity(op.name(), least, most)?;
        let (call, dtype, shape) = match op {
            Op::ArgReduce(op) => {
                let axis = self.args.required("axis")?.signed()?;
                self.reduction(Call::ArgReduce { op, axis })?
            }
            Op::Random(op) => self.random(op)?,
            Op::Reduce(op) => {
                let axes = self.axes()?;
                self.reduction(Call::Reduce { op, axes })?
            }
            Op::Scan(op) => {
                let axis = self.args.required("axis")?.signed()?;
                let mut flag = |name| self.args.optional(name).map_or(Ok(false), |node| node.truth());
                let range = ScanRange { exclusive: flag("exclusive")?, reverse: flag("reverse")? };
                let Some(Operand::Tensor(x)) = self.operands.first() else { return Err(self.lacks(0).into()) };
                (Call::Scan { op, axis, range }, x.dtype, *x.layout.shape())
            }
            Op::Statistic(op) => {
                let (axes, parameter) = (self.axes()?, self.parameter(op)?);
                self.reduction(Call::Statistic { op, parameter, axes })?
            }
            Op::Linear => return self.linear(),
            Op::Conv(op) => return self.conv(op),
            Op::Pool(op) => return self.pool(op),
            Op::Sort(op) => self.sort(op)?,
            Op::SearchSorted => self.search()?,
            Op::Normalize(op) => self.normalize(op, false)?,
            Op::NormalizeGrad(op) => self.normalize(op, true)?,
            Op::Attention(op) => self.attention(op)?,
            Op::Matmul => return self.matmul(),
            Op::Scatter(op) => return self.scatter(op),
            Op::Gather => self.gather()?,
            Op::Nonzero => self.nonzero()?,
            Op::Fill => self.fill()?,
            _ => self.elementwise(op)?,
        };
        let inputs = self.inputs(op, dtype)?;
        let out = self.into.output(result_dtype(&call, dtype), shape)?;
        self.args.finish()?;
        Ok(Case { call, inputs, out })
    }

    /// `scalar` and `side` stand for a second operand.
    fn scalar_argument(&mut self) -> Result<()> {
        let (scalar, side) = (self.args.optional("scalar"), self.args.optional("side"));
        let left = match side {
            None => false,
            Some(_) if scalar.is_none() => {
                return Err(self.args.fail("`side` says where a `scalar` stands, but there is none"));
            }
            Some(side) => match side.text()? {
                "left" => true,
                "right" => false,
                _ => return Err(side.fail("expected \"left\" or \"right\"")),
            },
        };
        if let Some(scalar) = scalar {
            self.operands.insert(if left { 0 } else { self.operands.len() }, Operand::Scalar(scalar));
        }
        Ok(())
    }

    fn arity(&self, name: &str, least: usize, most: usize) -> Result<()> {
        let count = self.operands.len();
        if (least..=most).contains(&count) {
            return Ok(());
        }
        let wanted = if least == most { most.to_string() } else { format!("{least} to {most}") };
        Err(FieldError { path: "inputs".to_owned(), message: format!("`{name}` takes {wanted} operands, not {count}") })
    }

    fn elementwise(&mut self, op: Op) -> Result<(Call, DType, Shape), Stop> {
        // The condition of `where` says nothing about the dtype.
        let skip = usize::from(op == Op::Where);
        let tensors = || {
            self.operands.iter().filter_map(|operand| match operand {
                Operand::Tensor(tensor) => Some(tensor),
                _ => None,
            })
        };
        let leading = self.operands[skip..].iter().find_map(|operand| match operand {
            Operand::Tensor(tensor) => Some(tensor.dtype),
            _ => None,
        });
        let target = match &self.into {
            Target::Given(out) => Some((out.dtype, *out.layout.shape())),
            _ => None,
        };
        let Some(dtype) = leading.or(target.map(|target| target.0)) else {
            return Err(FieldError { path: "inputs".to_owned(), message: "no operand is a tensor".to_owned() }.into());
        };
        let shapes: Vec<&[usize]> = tensors().map(|tensor| &**tensor.layout.shape()).collect();
        let shape = match target {
            Some((_, shape)) => shape,
            None => Shape::broadcast(op.name(), &shapes)?,
        };
        let call = match op {
            Op::Binary(op) => Call::Binary(op),
            Op::Compare(op) => Call::Compare(op),
            Op::Unary(op) => Call::Unary(op),
            Op::Where => Call::Where,
            Op::Clamp => {
                let mut bound = |name| self.args.given(name).map(|node| scalar(&node, dtype)).transpose();
                Call::Clamp { min: bound("min")?, max: bound("max")? }
            }
            _ => Call::Copy,
        };
        let dtype = match op {
            Op::Cast(_) => self::dtype(&self.args.required("dtype")?)?,
            _ => dtype,
        };
        Ok((call, dtype, shape))
    }

    fn fill(&mut self) -> Result<(Call, DType, Shape), Stop> {
        let (dtype, shape) = match &self.into {
            Target::Given(out) => (out.dtype, *out.layout.shape()),
            _ => {
                let dtype = dtype(&self.args.required("dtype")?)?;
                (dtype, Shape::new("fill", &self.args.required("shape")?.sizes()?)?)
            }
        };
        Ok((Call::Fill(scalar(&self.args.required("value")?, dtype)?), dtype, shape))
    }

    fn random(&mut self, op: RandomOp) -> Result<(Call, DType, Shape), Stop> {
        let seed = self.args.required("seed")?.unsigned()? as u64;
        let offset = self.args.optional("offset").map_or(Ok(0), |offset| offset.unsigned())? as u64;
        let distribution = match op {
            RandomOp::Bernoulli => {
                Distribution::Bernoulli { probability: self.args.required("probability")?.tolerance()? }
            }
            RandomOp::Normal => Distribution::Normal,
            RandomOp::Philox => Distribution::Bits,
            RandomOp::Randint => {
                let low = self.args.optional("low").map_or(Ok(0), |low| low.signed())?;
                Distribution::Integer { low: low as i64, high: self.args.required("high")?.signed()? as i64 }
            }
            RandomOp::Randperm => Distribution::Permutation,
            RandomOp::Uniform => Distribution::Uniform,
        };
        let (dtype, shape) = match (&self.into, op) {
            (Target::Given(out), _) => (out.dtype, *out.layout.shape()),
            (_, RandomOp::Philox | RandomOp::Randperm) => {
                let dtype = if op == RandomOp::Philox { DType::U32 } else { DType::I64 };
                (dtype, Shape::new(op.name(), &[self.args.required("len")?.unsigned()?])?)
            }
            _ => {
                let dtype = self.args.optional("dtype").map_or(Ok(DType::Bool), |node| dtype(&node))?;
                (dtype, Shape::new(op.name(), &self.args.required("shape")?.sizes()?)?)
            }
        };
        Ok((Call::Random { distribution, seed, offset }, dtype, shape))
    }

    fn axes(&mut self) -> Result<Option<Vec<isize>>> {
        self.args.given("axes").map(Node::integers).transpose()
    }

    fn reduction(&mut self, call: Call) -> Result<(Call, DType, Shape), Stop> {
        let Some(Operand::Tensor(x)) = self.operands.first() else { return Err(self.lacks(0).into()) };
        let (dtype, sizes) = (x.dtype, *x.layout.shape());
        let keepdim = self.args.optional("keepdim").map_or(Ok(false), |keepdim| keepdim.truth())?;
        let axes = match &call {
            Call::ArgReduce { axis, .. } => Some(vec![*axis]),
            Call::Reduce { axes, .. } | Call::Statistic { axes, .. } => axes.clone(),
            _ => None,
        };
        // The op enters only into messages.
        let shape = Reduce::shape(ReduceOp::Sum, &sizes, axes.as_deref(), keepdim)?;
        Ok((call, dtype, shape))
    }

    fn sort(&mut self, op: SortOp) -> Result<(Call, DType, Shape), Stop> {
        let x = self.tensor(0)?;
        let axis = self.args.optional("axis").map_or(Ok(-1), |axis| axis.signed())?;
        let descending = match op {
            SortOp::Topk => self.args.optional("largest").map_or(Ok(true), |largest| largest.truth())?,
            _ => self.args.optional("descending").map_or(Ok(false), |descending| descending.truth())?,
        };
        let shape = match op {
            SortOp::Topk => Sort::topk_shape(x.layout.shape(), self.args.required("k")?.unsigned()?, axis)?,
            _ => *x.layout.shape(),
        };
        Ok((Call::Sort { op, axis, descending }, x.dtype, shape))
    }

    fn search(&mut self) -> Result<(Call, DType, Shape), Stop> {
        let values = self.tensor(1)?;
        let right = self.args.optional("right").map_or(Ok(false), |right| right.truth())?;
        Ok((Call::SearchSorted { right }, self.tensor(0)?.dtype, *values.layout.shape()))
    }

    /// `axis` names one axis, `axes` several; operands at the end that are `null` are absent.
    fn normalize(&mut self, op: NormalizeOp, gradient: bool) -> Result<(Call, DType, Shape), Stop> {
        while self.operands.len() > 1 && matches!(self.operands.last(), Some(Operand::Null(_))) {
            self.operands.pop();
        }
        let Some(Operand::Tensor(x)) = self.operands.first() else { return Err(self.lacks(0).into()) };
        let (dtype, shape) = (x.dtype, *x.layout.shape());
        let axes = match self.args.given("axis") {
            Some(axis) => Some(vec![axis.signed()?]),
            None => self.axes()?,
        };
        let epsilon = match self.args.optional("eps") {
            Some(node) => scalar(&node, DType::F64)?.to_f64(),
            None if op == NormalizeOp::L2Normalize => 1e-12,
            None => 1e-5,
        };
        Ok((Call::Normalize { op, gradient, epsilon, axes }, dtype, shape))
    }

    fn parameter(&mut self, op: StatisticOp) -> Result<f64> {
        let (name, default) = match op {
            StatisticOp::LogSumExp => return Ok(0.0),
            StatisticOp::Norm => ("ord", 2.0),
            StatisticOp::Std | StatisticOp::Var => ("correction", 1.0),
        };
        match self.args.optional(name) {
            Some(node) => Ok(scalar(&node, DType::F64)?.to_f64()),
            None => Ok(default),
        }
    }

    fn matmul(mut self) -> Result<Case, Stop> {
        let (a, b) = (self.tensor(0)?, self.tensor(1)?);
        let old = match self.operands.get(2) {
            Some(Operand::Null(_)) | None => None,
            Some(_) => Some(self.tensor(2)?),
        };
        let mut factor = |name, default| match self.args.optional(name) {
            Some(node) => scalar(&node, a.dtype),
            None => Ok(Scalar::Int(default)),
        };
        let (alpha, beta) = (factor("alpha", 1)?, factor("beta", 0)?);
        if old.is_none() && beta.to_f64() != 0.0 && !matches!(self.into, Target::Given(_)) {
            return Err(self.args.fail("`beta` is not 0, but there is no third operand that it could scale").into());
        }
        let shape = Matmul::shape(a.layout.shape(), b.layout.shape());
        let shape = match &old {
            Some(old) => *old.layout.shape(),
            None => shape?,
        };
        let mut out = self.into.output(old.as_ref().map_or(a.dtype, |old| old.dtype), shape)?;
        if let Some(old) = old {
            if old.layout.shape() != out.layout.shape() || old.dtype != out.dtype {
                return Err(self
                    .args
                    .fail("the third operand and `into` differ in shape or dtype; leave one out")
                    .into());
            }
            for (to, from) in positions(&out.layout).into_iter().zip(old.view_bits()) {
                out.set_bits(to, from);
            }
        }
        self.args.finish()?;
        Ok(Case { call: Call::Matmul { alpha, beta }, inputs: vec![Input::Tensor(a), Input::Tensor(b)], out })
    }

    fn linear(mut self) -> Result<Case, Stop> {
        let (x, weight) = (self.tensor(0)?, self.tensor(1)?);
        let bias = match self.operands.get(2) {
            Some(Operand::Null(_)) | None => None,
            Some(_) => Some(self.tensor(2)?),
        };
        let activation = self.activation()?;
        let shape = Linear::shape(x.layout.shape(), weight.layout.shape())?;
        let out = self.into.output(x.dtype, shape)?;
        self.args.finish()?;
        let inputs = [Some(x), Some(weight), bias].into_iter().flatten().map(Input::Tensor).collect();
        Ok(Case { call: Call::Linear { activation }, inputs, out })
    }

    fn activation(&mut self) -> Result<Activation> {
        let Some(node) = self.args.optional("activation") else { return Ok(Activation::Identity) };
        let name = node.text()?;
        let named = Activation::ALL.iter().copied().find(|activation| activation.name() == name);
        named.ok_or_else(|| node.fail("expected \"identity\", \"relu\", \"gelu\" or \"gelu_tanh\""))
    }

    fn gather(&mut self) -> Result<(Call, DType, Shape), Stop> {
        let (x, index) = (self.tensor(0)?, self.tensor(1)?);
        let axis = self.args.required("axis")?.signed()?;
        let shape = match &self.into {
            Target::Given(out) => *out.layout.shape(),
            _ => Gather::shape(x.layout.shape(), axis, index.layout.shape())?,
        };
        Ok((Call::Gather { axis }, x.dtype, shape))
    }

    /// The output holds the old values: those of the first operand, or with `null` there what `into` gives.
    fn scatter(mut self, op: ScatterOp) -> Result<Case, Stop> {
        let axis = self.args.required("axis")?.signed()?;
        let op = match self.args.optional("mode") {
            None => op,
            Some(mode) => match mode.text()? {
                "set" => ScatterOp::Set,
                "add" => ScatterOp::Add,
                "max" => ScatterOp::Max,
                "min" => ScatterOp::Min,
                _ => return Err(mode.fail("expected \"set\", \"add\", \"max\" or \"min\"").into()),
            },
        };
        let out = match (&self.operands[0], self.into) {
            (Operand::Null(_), Target::Given(out)) => *out,
            (Operand::Tensor(x), into) => {
                let mut out = into.output(x.dtype, *x.layout.shape())?;
                if out.layout.shape() != x.layout.shape() || out.dtype != x.dtype {
                    return Err(self.args.fail("x and `into` differ in shape or dtype; give `null` for x").into());
                }
                for (to, from) in positions(&out.layout).into_iter().zip(x.view_bits()) {
                    out.set_bits(to, from);
                }
                out
            }
            _ => return Err(self.args.fail("`null` for x needs `into`").into()),
        };
        self.into = Target::Fresh;
        let inputs = vec![Input::InPlace, Input::Tensor(self.tensor(1)?), Input::Tensor(self.tensor(2)?)];
        self.args.finish()?;
        Ok(Case { call: Call::Scatter { op, axis }, inputs, out })
    }

    fn nonzero(&self) -> Result<(Call, DType, Shape), Stop> {
        let mask = self.tensor(0)?;
        let count = mask.view_bits().into_iter().filter(|&bits| bits != 0).count();
        let room = match &self.into {
            Target::Given(out) => *out.layout.shape(),
            _ => Shape::new("nonzero", &[count])?,
        };
        Ok((Call::Nonzero, mask.dtype, room))
    }

    /// The operands in the terms of a case; scalars have `dtype`, the condition of `where` is bool.
    fn inputs(&mut self, op: Op, dtype: DType) -> Result<Vec<Input>> {
        let in_place = matches!(self.into, Target::Given(_))
            && matches!(op, Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Where | Op::Clamp);
        std::mem::take(&mut self.operands)
            .into_iter()
            .enumerate()
            .map(|(index, operand)| match operand {
                Operand::Tensor(tensor) => Ok(Input::Tensor(tensor)),
                Operand::Scalar(node) if op == Op::Where && index == 0 => {
                    Ok(Input::Scalar(scalar(&node, DType::Bool)?))
                }
                Operand::Scalar(node) => Ok(Input::Scalar(scalar(&node, dtype)?)),
                Operand::Null(_) if in_place => Ok(Input::InPlace),
                Operand::Null(node) => Err(node.fail(format!("`{}` needs this operand", op.name()))),
            })
            .collect()
    }

    fn tensor(&self, index: usize) -> Result<HostTensor> {
        match &self.operands[index] {
            Operand::Tensor(tensor) => Ok(tensor.clone()),
            _ => Err(self.lacks(index)),
        }
    }

    fn lacks(&self, index: usize) -> FieldError {
        let message = "this operand must be a tensor";
        match self.operands.get(index) {
            Some(Operand::Scalar(node) | Operand::Null(node)) => node.fail(message),
            _ => FieldError { path: format!("inputs[{index}]"), message: message.to_owned() },
        }
    }
}
