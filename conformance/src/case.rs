//! One concrete call: the op with its attributes, its inputs, where the output lies. A case can be run on a backend,
//! given to the oracle, and written to a replay file.

use congruent_backend_api::erase::{AnyBackend, Erased};
use congruent_backend_api::ops::attention::{Attention, AttentionOp, AttentionOptions};
use congruent_backend_api::ops::binary::{Binary, BinaryOp};
use congruent_backend_api::ops::compare::{Clamp, Compare, CompareOp, Where};
use congruent_backend_api::ops::conv::{Conv, ConvOp, ConvOptions};
use congruent_backend_api::ops::copy::{Copy, Fill};
use congruent_backend_api::ops::index::{Gather, Nonzero, Scatter, ScatterOp};
use congruent_backend_api::ops::linear::{Activation, Linear};
use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::ops::norm::{Normalize, NormalizeOp};
use congruent_backend_api::ops::pool::{Pool, PoolOp, PoolOptions};
use congruent_backend_api::ops::random::{Distribution, Random};
use congruent_backend_api::ops::reduce::{ArgReduce, ArgReduceOp, Reduce, ReduceOp};
use congruent_backend_api::ops::scan::{Scan, ScanOp, ScanRange};
use congruent_backend_api::ops::sort::{SearchSorted, Sort, SortOp};
use congruent_backend_api::ops::statistic::{Statistic, StatisticOp};
use congruent_backend_api::ops::unary::{Unary, UnaryOp};
use congruent_backend_api::{DType, Error, ErrorKind, Layout, Op, Result, Scalar, Source, View};

use crate::host::HostTensor;
use crate::ops::attention;
use crate::spec::filled;

/// An op with its attributes.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// A position of an extreme along an axis.
    ArgReduce {
        /// Which extreme.
        op: ArgReduceOp,
        /// The axis.
        axis: isize,
    },
    /// Attention, its log-sum-exp or one of its gradients.
    Attention {
        /// Which.
        op: AttentionOp,
        /// Beside the operands.
        options: AttentionOptions,
        /// Which operands are given.
        given: attention::Given,
    },
    /// Arithmetic of two operands.
    Binary(BinaryOp),
    /// Limits to two bounds.
    Clamp {
        /// The lower bound.
        min: Option<Scalar>,
        /// The upper bound.
        max: Option<Scalar>,
    },
    /// A comparison of two operands.
    Compare(CompareOp),
    /// A convolution or a gradient of one; a third input is the bias.
    Conv {
        /// Which.
        op: ConvOp,
        /// How the kernel moves.
        options: ConvOptions,
        /// What is applied to the sums.
        activation: Activation,
    },
    /// A copy, or a cast to the output's dtype.
    Copy,
    /// A fill with one value.
    Fill(Scalar),
    /// A linear layer; a third input is the bias.
    Linear {
        /// What is applied to the sums.
        activation: Activation,
    },
    /// Elements at the positions of the second input.
    Gather {
        /// Along which axis.
        axis: isize,
    },
    /// A matrix product; a third input is the output's old value.
    Matmul {
        /// Factor of the product.
        alpha: Scalar,
        /// Factor of the old value.
        beta: Scalar,
    },
    /// A normalisation of one to three inputs (x, weight, bias), or its gradient for two or three (x or y, gradient, weight).
    Normalize {
        /// Which.
        op: NormalizeOp,
        /// Whether it is the gradient.
        gradient: bool,
        /// What is added to the square, or bounds the norm.
        epsilon: f64,
        /// Over which axes; `None` is all.
        axes: Option<Vec<isize>>,
    },
    /// The positions of true elements.
    Nonzero,
    /// A pooling, or a gradient of one; a second input is the positions of maxima.
    Pool {
        /// Which.
        op: PoolOp,
        /// How the window moves.
        options: PoolOptions,
    },
    /// Random elements.
    Random {
        /// Of which kind.
        distribution: Distribution,
        /// The stream.
        seed: u64,
        /// The word with which it begins.
        offset: u64,
    },
    /// A reduction.
    Reduce {
        /// Which.
        op: ReduceOp,
        /// Over which axes; `None` is all.
        axes: Option<Vec<isize>>,
    },
    /// A scan.
    Scan {
        /// Which.
        op: ScanOp,
        /// The axis.
        axis: isize,
        /// Which elements enter.
        range: ScanRange,
    },
    /// A search for the places of values in sorted rows: the first input is the rows.
    SearchSorted {
        /// Whether equal elements of a row come before a value.
        right: bool,
    },
    /// A sort along an axis.
    Sort {
        /// What is written of it.
        op: SortOp,
        /// The axis.
        axis: isize,
        /// Whether the greatest element comes first.
        descending: bool,
    },
    /// The third input written to the positions of the second, in place.
    Scatter {
        /// What is made of the old value.
        op: ScatterOp,
        /// Along which axis.
        axis: isize,
    },
    /// A composed reduction.
    Statistic {
        /// Which.
        op: StatisticOp,
        /// The correction or the order.
        parameter: f64,
        /// Over which axes; `None` is all.
        axes: Option<Vec<isize>>,
    },
    /// A function of one operand.
    Unary(UnaryOp),
    /// A choice by a bool condition.
    Where,
}

/// An operand of a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A view of a storage of its own.
    Tensor(HostTensor),
    /// A number.
    Scalar(Scalar),
    /// The output's old value, given as the tensor that the output holds before the call.
    InPlace,
}

/// A concrete call.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The op.
    pub call: Call,
    /// Its operands.
    pub inputs: Vec<Input>,
    /// The output before the call: its layout, and the value that an op in place or with β reads.
    pub out: HostTensor,
}

/// What a backend made of a case.
#[derive(Debug)]
pub struct Outcome {
    /// The whole output storage after the call.
    pub out: HostTensor,
    /// Why the run is wrong whatever the values: an input changed, a write outside the view.
    pub damage: Option<String>,
    /// Which error that data causes the synchronising call after the op reported.
    pub reported: Option<ErrorKind>,
}

impl Case {
    /// The op, as backends are asked about it.
    #[must_use]
    pub fn op(&self) -> Op {
        match &self.call {
            Call::ArgReduce { op, .. } => Op::ArgReduce(*op),
            Call::Attention { op, .. } => Op::Attention(*op),
            Call::Binary(op) => Op::Binary(*op),
            Call::Clamp { .. } => Op::Clamp,
            Call::Compare(op) => Op::Compare(*op),
            Call::Conv { op, .. } => Op::Conv(*op),
            Call::Copy if self.dtype() == self.out.dtype => Op::Copy,
            Call::Copy => Op::Cast(self.out.dtype),
            Call::Fill(_) => Op::Fill,
            Call::Linear { .. } => Op::Linear,
            Call::Gather { .. } => Op::Gather,
            Call::Matmul { .. } => Op::Matmul,
            Call::Normalize { op, gradient: false, .. } => Op::Normalize(*op),
            Call::Normalize { op, .. } => Op::NormalizeGrad(*op),
            Call::Nonzero => Op::Nonzero,
            Call::Pool { op, .. } => Op::Pool(*op),
            Call::Random { distribution, .. } => Op::Random(distribution.op()),
            Call::Reduce { op, .. } => Op::Reduce(*op),
            Call::Scan { op, .. } => Op::Scan(*op),
            Call::SearchSorted { .. } => Op::SearchSorted,
            Call::Sort { op, .. } => Op::Sort(*op),
            Call::Scatter { op, .. } => Op::Scatter(*op),
            Call::Statistic { op, .. } => Op::Statistic(*op),
            Call::Unary(op) => Op::Unary(*op),
            Call::Where => Op::Where,
        }
    }

    /// The dtype about which backends are asked: that of the inputs; for `where`, `fill` and scatters that of the output.
    #[must_use]
    pub fn dtype(&self) -> DType {
        let given = self.inputs.iter().find_map(|input| match input {
            Input::Tensor(tensor) if !matches!(self.call, Call::Where | Call::Scatter { .. }) => Some(tensor.dtype),
            _ => None,
        });
        given.unwrap_or(self.out.dtype)
    }

    /// The operand at `index` as a tensor; in place that is the output.
    #[must_use]
    pub fn tensor(&self, index: usize) -> Option<&HostTensor> {
        match self.inputs.get(index)? {
            Input::Tensor(tensor) => Some(tensor),
            Input::InPlace => Some(&self.out),
            Input::Scalar(_) => None,
        }
    }

    /// Runs the case on a backend.
    ///
    /// # Errors
    /// What the plan or the backend reports.
    pub fn run(&self, backend: &AnyBackend) -> Result<Outcome> {
        let mut storages = Vec::new();
        for input in &self.inputs {
            storages.push(match input {
                Input::Tensor(tensor) => Some(upload(backend, tensor)?),
                Input::Scalar(_) | Input::InPlace => None,
            });
        }
        let mut out = upload(backend, &self.out)?;
        self.execute(backend, &storages.iter().map(Option::as_ref).collect::<Vec<_>>(), &mut out)?;
        let reported = match backend.synchronize() {
            Ok(()) => None,
            Err(error) if matches!(error.kind(), ErrorKind::DivisionByZero | ErrorKind::IndexOutOfRange) => {
                Some(error.kind())
            }
            Err(error) => return Err(error),
        };
        // The error is reported once, so that this succeeds whether there was one or not.
        let result = download(backend, &out, &self.out)?;
        let mut damage = outside(&self.out, &result);
        for (index, (input, storage)) in self.inputs.iter().zip(&storages).enumerate() {
            if let (Input::Tensor(tensor), Some(storage)) = (input, storage)
                && download(backend, storage, tensor)?.bytes != tensor.bytes
            {
                damage = Some(format!("input {index} was changed by the call"));
            }
        }
        Ok(Outcome { out: result, damage, reported })
    }

    fn execute(&self, backend: &AnyBackend, storages: &[Option<&Erased>], out: &mut Erased) -> Result<()> {
        let out_view = View { dtype: self.out.dtype, layout: &self.out.layout };
        let source = |index: usize| match &self.inputs[index] {
            Input::Tensor(tensor) => Source::View(View { dtype: tensor.dtype, layout: &tensor.layout }),
            Input::Scalar(scalar) => Source::Scalar(*scalar),
            Input::InPlace => Source::Output,
        };
        let view = |index: usize| match &self.inputs[index] {
            Input::Tensor(tensor) => Ok(View { dtype: tensor.dtype, layout: &tensor.layout }),
            _ => Err(Error::new(ErrorKind::Argument, self.op().name(), "this operand must be a tensor")),
        };
        let required = |index: usize| {
            storages[index]
                .ok_or_else(|| Error::new(ErrorKind::Argument, self.op().name(), "this operand must be a tensor"))
        };
        match &self.call {
            Call::Unary(op) => backend.unary(&Unary::new(*op, source(0), out_view)?, storages[0], out),
            Call::Binary(op) => {
                backend.binary(&Binary::new(*op, source(0), source(1), out_view)?, storages[0], storages[1], out)
            }
            Call::Compare(op) => {
                let plan = Compare::new(*op, self.dtype(), source(0), source(1), out_view)?;
                backend.compare(&plan, storages[0], storages[1], out)
            }
            Call::Where => {
                let plan = Where::new(source(0), source(1), source(2), out_view)?;
                backend.choose(&plan, storages[0], storages[1], storages[2], out)
            }
            Call::Clamp { min, max } => backend.clamp(&Clamp::new(*min, *max, source(0), out_view)?, storages[0], out),
            Call::Fill(value) => backend.fill(&Fill::new(*value, out_view)?, out),
            Call::Copy => backend.copy(&Copy::new(view(0)?, out_view)?, required(0)?, out),
            Call::Gather { axis } => {
                let plan = Gather::new(view(0)?, *axis, view(1)?, out_view)?;
                backend.gather(&plan, required(0)?, required(1)?, out)
            }
            Call::Scatter { op, axis } => {
                let plan = Scatter::new(*op, *axis, view(1)?, view(2)?, out_view)?;
                backend.scatter(&plan, required(1)?, required(2)?, out)
            }
            Call::Nonzero => backend.nonzero(&Nonzero::new(view(0)?, out_view)?, required(0)?, out),
            Call::Random { distribution, seed, offset } => {
                backend.random(&Random::new(*distribution, *seed, *offset, out_view)?, out)
            }
            Call::Reduce { op, axes } => {
                backend.reduce(&Reduce::new(*op, view(0)?, axes.as_deref(), out_view)?, required(0)?, out)
            }
            Call::ArgReduce { op, axis } => {
                backend.arg_reduce(&ArgReduce::new(*op, view(0)?, *axis, out_view)?, required(0)?, out)
            }
            Call::Scan { op, axis, range } => {
                backend.scan(&Scan::new(*op, view(0)?, *axis, *range, out_view)?, required(0)?, out)
            }
            Call::SearchSorted { right } => {
                let plan = SearchSorted::new(view(0)?, view(1)?, *right, out_view)?;
                backend.search_sorted(&plan, required(0)?, required(1)?, out)
            }
            Call::Sort { op, axis, descending } => {
                backend.sort(&Sort::new(*op, view(0)?, *axis, *descending, out_view)?, required(0)?, out)
            }
            Call::Statistic { op, parameter, axes } => {
                let plan = Statistic::new(*op, *parameter, view(0)?, axes.as_deref(), out_view)?;
                backend.statistic(&plan, required(0)?, out)
            }
            Call::Conv { op, options, activation } => {
                let bias = if self.inputs.len() > 2 { Some(view(2)?) } else { None };
                let plan = Conv::new(*op, view(0)?, view(1)?, bias, options, out_view)?.with_activation(*activation)?;
                let bias = if bias.is_some() { Some(required(2)?) } else { None };
                backend.conv(&plan, required(0)?, required(1)?, bias, out)
            }
            Call::Pool { op, options } => {
                let indices = (self.inputs.len() > 1).then(|| view(1)).transpose()?;
                let plan = Pool::new(*op, view(0)?, indices, options, out_view)?;
                backend.pool(&plan, required(0)?, storages.get(1).copied().flatten(), out)
            }
            Call::Linear { activation } => {
                let bias = if self.inputs.len() > 2 { Some(view(2)?) } else { None };
                let plan = Linear::new(view(0)?, view(1)?, bias, *activation, out_view)?;
                let bias = if bias.is_some() { Some(required(2)?) } else { None };
                backend.linear(&plan, required(0)?, required(1)?, bias, out)
            }
            Call::Normalize { op, gradient, epsilon, axes } => {
                let other = |index: usize| (index < self.inputs.len()).then(|| view(index)).transpose();
                let (axes, third) = (axes.as_deref(), storages.get(2).copied().flatten());
                if *gradient {
                    let plan = Normalize::gradient(*op, *epsilon, axes, view(0)?, view(1)?, other(2)?, out_view)?;
                    return backend.normalize_grad(&plan, required(0)?, required(1)?, third, out);
                }
                let plan = Normalize::new(*op, *epsilon, axes, view(0)?, other(1)?, other(2)?, out_view)?;
                backend.normalize(&plan, required(0)?, storages.get(1).copied().flatten(), third, out)
            }
            Call::Attention { op, options, given } => {
                let missing = || Error::new(ErrorKind::Argument, op.name(), "an operand is missing");
                let views = attention::inputs(*given, view)?.ok_or_else(missing)?;
                let plan = Attention::new(*op, views, *options, out_view)?;
                backend.attention(&plan, attention::inputs(*given, required)?.ok_or_else(missing)?, out)
            }
            Call::Matmul { alpha, beta } => {
                let plan = Matmul::new(view(0)?, view(1)?, *alpha, *beta, out_view)?;
                backend.matmul(&plan, required(0)?, required(1)?, out)
            }
        }
    }
}

/// An output with every byte set to a poison that a correct op overwrites inside the view and nowhere else.
#[must_use]
pub fn poisoned(dtype: DType, (layout, len): (Layout, usize), seed: u64) -> HostTensor {
    filled(dtype, layout, len, if seed & 1 == 0 { 0xff } else { 0xa4 })
}

fn upload(backend: &AnyBackend, tensor: &HostTensor) -> Result<Erased> {
    let mut storage = backend.alloc(tensor.dtype, tensor.storage_len())?;
    backend.write(&tensor.bytes, &mut storage, 0)?;
    Ok(storage)
}

fn download(backend: &AnyBackend, storage: &Erased, like: &HostTensor) -> Result<HostTensor> {
    let mut bytes = vec![0; like.bytes.len()];
    backend.download(storage, 0, &mut bytes)?;
    Ok(HostTensor { bytes, ..like.clone() })
}

/// Says where the result differs from the old storage outside the output's view.
fn outside(before: &HostTensor, after: &HostTensor) -> Option<String> {
    let mut inside = vec![false; before.storage_len()];
    for at in crate::host::positions(&before.layout) {
        inside[at] = true;
    }
    let at = (0..inside.len()).find(|&at| !inside[at] && before.bits(at) != after.bits(at))?;
    Some(format!("element {at} of the output's storage, outside the view, was overwritten"))
}
