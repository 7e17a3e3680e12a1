//! From a plan to a [`Case`]: layouts are rebuilt from the plan's loops, data is read from the first backend.

use std::ops::Range;

use congruent_backend_api::erase::{AnyBackend, Erased};
use congruent_backend_api::ops::attention::Attention;
use congruent_backend_api::ops::conv::Conv;
use congruent_backend_api::ops::index::{Gather, Nonzero, Scatter};
use congruent_backend_api::ops::linear::Linear;
use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::ops::norm::Normalize;
use congruent_backend_api::ops::pool::Pool;
use congruent_backend_api::ops::random::Random;
use congruent_backend_api::ops::reduce::{ArgReduce, Reduce};
use congruent_backend_api::ops::scan::{Scan, ScanRange};
use congruent_backend_api::ops::sort::{SearchSorted, Sort};
use congruent_backend_api::ops::statistic::Statistic;
use congruent_backend_api::{DType, Elementwise, Layout, Nest, Op, Operand, Result, Scalar, Storage};

use crate::case::{Call, Case, Input, poisoned};
use crate::host::HostTensor;

/// A call before its data is known. The first axes of each input are those of the output, in their order; only those of
/// the operands of products, linear layers, attention, convolutions and pooling stand as these have them, and an indexed axis comes last.
pub(super) struct Planned {
    pub(super) op: Op,
    pub(super) dtype: DType,
    call: Call,
    inputs: Vec<Source>,
    pub(super) out: Layout,
    out_dtype: DType,
}

enum Source {
    Tensor(DType, Layout),
    Scalar(Scalar),
    InPlace,
}

/// A stretch of a storage.
pub(super) struct Window {
    pub(super) start: usize,
    len: usize,
}

/// Elements of a storage around a view that are looked at too; a power of two, so that alignment is kept.
const MARGIN: usize = 64;

impl Planned {
    pub(super) fn elementwise<const N: usize>(call: Call, op: Op, dtype: DType, plan: &Elementwise<N>) -> Result<Self> {
        let inputs = (1..N).map(|index| {
            Ok(match plan.operand(index) {
                Operand::Storage { dtype, .. } => Source::Tensor(dtype, walked(plan.nest(), index)?),
                Operand::Scalar(scalar) => Source::Scalar(scalar),
                Operand::Output => Source::InPlace,
            })
        });
        let inputs = inputs.collect::<Result<_>>()?;
        Ok(Self { op, dtype, call, inputs, out: walked(plan.nest(), 0)?, out_dtype: plan.out_dtype() })
    }

    pub(super) fn reduce(plan: &Reduce) -> Result<Self> {
        let (kept, reduced) = (plan.kept(), plan.reduced());
        let axes = kept.rank() as isize..(kept.rank() + reduced.rank()) as isize;
        let x = after(kept, reduced.sizes(), reduced.strides(0))?;
        Ok(Self {
            op: Op::Reduce(plan.op()),
            dtype: plan.dtype(),
            call: Call::Reduce { op: plan.op(), axes: Some(axes.collect()) },
            inputs: vec![Source::Tensor(plan.dtype(), x)],
            out: walked(kept, 0)?,
            out_dtype: plan.out_dtype(),
        })
    }

    pub(super) fn arg_reduce(plan: &ArgReduce) -> Result<Self> {
        let x = after(plan.kept(), &[plan.len()], &[plan.stride()])?;
        Ok(Self {
            op: Op::ArgReduce(plan.op()),
            dtype: plan.dtype(),
            call: Call::ArgReduce { op: plan.op(), axis: plan.kept().rank() as isize },
            inputs: vec![Source::Tensor(plan.dtype(), x)],
            out: walked(plan.kept(), 0)?,
            out_dtype: DType::I64,
        })
    }

    pub(super) fn random(plan: &Random) -> Self {
        Self {
            op: Op::Random(plan.op()),
            dtype: plan.dtype(),
            call: Call::Random { distribution: plan.distribution(), seed: plan.seed(), offset: plan.offset() },
            inputs: Vec::new(),
            out: *plan.out(),
            out_dtype: plan.dtype(),
        }
    }

    pub(super) fn scan(plan: &Scan) -> Result<Self> {
        let (op, rows) = (plan.op(), plan.rows());
        let layout = |operand: usize| {
            let sizes = [rows.sizes(), &[plan.len()]].concat();
            let strides = [rows.strides(operand), &[plan.strides()[operand]]].concat();
            Layout::new("shadow", &sizes, &strides, rows.offset(operand))
        };
        // A scan in reverse is planned as one over reversed axes.
        let range = ScanRange { exclusive: plan.exclusive(), reverse: false };
        Ok(Self {
            op: Op::Scan(op),
            dtype: plan.dtype(),
            call: Call::Scan { op, axis: rows.rank() as isize, range },
            inputs: vec![Source::Tensor(plan.dtype(), layout(1)?)],
            out: layout(0)?,
            out_dtype: plan.dtype(),
        })
    }

    pub(super) fn sort(plan: &Sort) -> Result<Self> {
        let (rows, [out_stride, x_stride]) = (plan.rows(), plan.strides());
        let call = Call::Sort { op: plan.op(), axis: rows.rank() as isize, descending: plan.descending() };
        Ok(Self {
            op: Op::Sort(plan.op()),
            dtype: plan.dtype(),
            call,
            inputs: vec![Source::Tensor(plan.dtype(), extended(rows, 1, plan.len(), x_stride)?)],
            out: extended(rows, 0, plan.taken(), out_stride)?,
            out_dtype: plan.out_dtype(),
        })
    }

    pub(super) fn search_sorted(plan: &SearchSorted) -> Result<Self> {
        let nest = plan.nest();
        let axes = nest.rank();
        // The axis along which values share a row comes last; without one, each value is alone in its batch.
        let shared = nest.strides(2).iter().position(|&stride| stride == 0);
        let layout = |operand: usize, last: Option<(usize, isize)>| {
            let axis = |axis: usize| (nest.sizes()[axis], nest.strides(operand)[axis]);
            let own = shared.map_or((1, 1), axis);
            let batch = (0..axes).filter(|&axis| Some(axis) != shared).map(axis);
            let (sizes, strides): (Vec<_>, Vec<_>) = batch.chain([last.unwrap_or(own)]).unzip();
            Layout::new("shadow", &sizes, &strides, nest.offset(operand))
        };
        let rows = layout(2, Some((plan.len(), plan.stride())))?;
        Ok(Self {
            op: Op::SearchSorted,
            dtype: plan.dtype(),
            call: Call::SearchSorted { right: plan.right() },
            inputs: vec![Source::Tensor(plan.dtype(), rows), Source::Tensor(plan.dtype(), layout(1, None)?)],
            out: layout(0, None)?,
            out_dtype: DType::I64,
        })
    }

    pub(super) fn statistic(plan: &Statistic) -> Result<Self> {
        let (x, out, op) = (plan.x(), plan.out(), plan.op());
        let (reduced, kept): (Vec<_>, Vec<_>) = (0..x.rank()).partition(|&axis| plan.mask()[axis]);
        let order: Vec<_> = kept.iter().chain(&reduced).map(|&axis| axis as isize).collect();
        // With the reduced axes kept at size 1, they are dropped here.
        let of_out = |values: &[isize]| match out.rank() == x.rank() {
            true => kept.iter().map(|&axis| values[axis]).collect(),
            false => values.to_vec(),
        };
        let sizes: Vec<_> = kept.iter().map(|&axis| x.shape()[axis]).collect();
        let axes = (kept.len()..x.rank()).map(|axis| axis as isize).collect();
        Ok(Self {
            op: Op::Statistic(op),
            dtype: plan.dtype(),
            call: Call::Statistic { op, parameter: plan.parameter(), axes: Some(axes) },
            inputs: vec![Source::Tensor(plan.dtype(), x.permute(&order)?)],
            out: Layout::new("shadow", &sizes, &of_out(out.strides()), out.offset())?,
            out_dtype: plan.dtype(),
        })
    }

    pub(super) fn normalize(plan: &Normalize) -> Result<Self> {
        let (dtype, rank) = (plan.dtype(), plan.layout(0).rank());
        let axes = (0..rank).filter(|&axis| plan.mask()[axis]).map(|axis| axis as isize);
        let inputs = (1..4).filter(|&operand| plan.has(operand));
        Ok(Self {
            op: plan.full_op(),
            dtype,
            call: Call::Normalize {
                op: plan.op(),
                gradient: plan.is_gradient(),
                epsilon: plan.epsilon(),
                axes: Some(axes.collect()),
            },
            inputs: inputs.map(|operand| Source::Tensor(dtype, *plan.layout(operand))).collect(),
            out: *plan.layout(0),
            out_dtype: dtype,
        })
    }

    pub(super) fn attention(plan: &Attention) -> Self {
        let given = std::array::from_fn(|index| plan.operand(index + 1).is_some());
        let inputs = (1..10).filter_map(|operand| Some(Source::Tensor(plan.operand(operand)?, *plan.layout(operand))));
        Self {
            op: Op::Attention(plan.op()),
            dtype: plan.dtype(),
            call: Call::Attention { op: plan.op(), options: plan.options(), given },
            inputs: inputs.collect(),
            out: *plan.layout(0),
            out_dtype: plan.operand(0).unwrap_or(plan.dtype()),
        }
    }

    pub(super) fn matmul(plan: &Matmul) -> Result<Self> {
        let matrix = |operand: usize, rows: usize, columns: usize| {
            let (batch, strides) = (plan.batch(), plan.matrices()[operand]);
            let sizes = [batch.sizes(), &[rows, columns]].concat();
            let strides = [batch.strides(operand), &[strides.row, strides.col]].concat();
            Layout::new("shadow", &sizes, &strides, batch.offset(operand))
        };
        let (m, n, k, dtype) = (plan.m(), plan.n(), plan.k(), plan.dtype());
        Ok(Self {
            op: Op::Matmul,
            dtype,
            call: Call::Matmul { alpha: plan.alpha(), beta: plan.beta() },
            inputs: vec![Source::Tensor(dtype, matrix(1, m, k)?), Source::Tensor(dtype, matrix(2, k, n)?)],
            out: matrix(0, m, n)?,
            out_dtype: dtype,
        })
    }

    pub(super) fn linear(plan: &Linear) -> Self {
        let dtype = plan.dtype();
        let layouts = [Some(*plan.x()), Some(*plan.weight()), plan.bias().copied()].into_iter().flatten();
        Self {
            op: Op::Linear,
            dtype,
            call: Call::Linear { activation: plan.activation() },
            inputs: layouts.map(|layout| Source::Tensor(dtype, layout)).collect(),
            out: *plan.out(),
            out_dtype: dtype,
        }
    }

    pub(super) fn gather(plan: &Gather) -> Result<Self> {
        let (nest, dtype) = (plan.nest(), plan.dtype());
        let last = |operand: usize, size: usize, stride: isize| {
            let (sizes, strides) = ([nest.sizes(), &[size]].concat(), [nest.strides(operand), &[stride]].concat());
            Layout::new("shadow", &sizes, &strides, nest.offset(operand))
        };
        let (x, index) = (last(2, plan.len(), plan.stride())?, last(1, 1, 1)?);
        Ok(Self {
            op: Op::Gather,
            dtype,
            call: Call::Gather { axis: -1 },
            inputs: vec![Source::Tensor(dtype, x), Source::Tensor(plan.index_dtype(), index)],
            out: last(0, 1, 1)?,
            out_dtype: dtype,
        })
    }

    pub(super) fn scatter(plan: &Scatter) -> Result<Self> {
        let (kept, dtype, op) = (plan.kept(), plan.dtype(), plan.op());
        let last = |operand: usize, size: usize| {
            let strides = [kept.strides(operand), &[plan.strides()[operand]]].concat();
            Layout::new("shadow", &[kept.sizes(), &[size]].concat(), &strides, kept.offset(operand))
        };
        let (index, src) = (last(1, plan.count())?, last(2, plan.count())?);
        Ok(Self {
            op: Op::Scatter(op),
            dtype,
            call: Call::Scatter { op, axis: -1 },
            inputs: vec![Source::InPlace, Source::Tensor(plan.index_dtype(), index), Source::Tensor(dtype, src)],
            out: last(0, plan.len())?,
            out_dtype: dtype,
        })
    }

    pub(super) fn nonzero(plan: &Nonzero) -> Result<Self> {
        Ok(Self {
            op: Op::Nonzero,
            dtype: DType::Bool,
            call: Call::Nonzero,
            inputs: vec![Source::Tensor(DType::Bool, walked(plan.nest(), 1)?)],
            out: Layout::new("shadow", &[plan.count()], &[plan.stride()], plan.offset())?,
            out_dtype: DType::I64,
        })
    }

    pub(super) fn conv(plan: &Conv) -> Self {
        let (dtype, [a, b, out]) = (plan.dtype(), plan.operands().map(|layout| *layout));
        let layouts = [Some(a), Some(b), plan.bias().copied()].into_iter().flatten();
        Self {
            op: Op::Conv(plan.op()),
            dtype,
            call: Call::Conv { op: plan.op(), options: *plan.options(), activation: plan.activation() },
            inputs: layouts.map(|layout| Source::Tensor(dtype, layout)).collect(),
            out,
            out_dtype: dtype,
        }
    }

    pub(super) fn pool(plan: &Pool) -> Self {
        let (dtype, [given, out]) = (plan.dtype(), plan.operands());
        let indices = plan.indices().map(|indices| Source::Tensor(DType::I64, *indices));
        Self {
            op: Op::Pool(plan.op()),
            dtype,
            call: Call::Pool { op: plan.op(), options: *plan.options() },
            inputs: [Some(Source::Tensor(dtype, *given)), indices].into_iter().flatten().collect(),
            out: *out,
            out_dtype: plan.op().out_dtype(dtype),
        }
    }

    /// The part of the output's storage that is looked at.
    pub(super) fn window(&self, len: usize) -> Window {
        Window::around(&self.out, len)
    }

    /// The output before the call: what the call may read of it, else a poison.
    pub(super) fn before(&self, backend: &AnyBackend, out: &Erased) -> Result<HostTensor> {
        let window = self.window(out.len());
        let layout = window.rebase(&self.out)?;
        let reads = match self.call {
            Call::Matmul { beta, .. } => beta.to_f64() != 0.0,
            _ => self.inputs.iter().any(|input| matches!(input, Source::InPlace)),
        };
        if reads || self.out.count() < window.len {
            return Ok(HostTensor { dtype: self.out_dtype, layout, bytes: window.read(backend, out)? });
        }
        Ok(poisoned(self.out_dtype, (layout, window.len), 0))
    }

    /// The case, with its inputs read from a backend.
    pub(super) fn case(&self, backend: &AnyBackend, inputs: &[Option<&Erased>], out: HostTensor) -> Result<Case> {
        let inputs = self.inputs.iter().zip(inputs).map(|(source, storage)| match (source, storage) {
            (Source::Tensor(dtype, layout), Some(storage)) => {
                let window = Window::around(layout, storage.len());
                let (layout, bytes) = (window.rebase(layout)?, window.read(backend, storage)?);
                Ok(Input::Tensor(HostTensor { dtype: *dtype, layout, bytes }))
            }
            (Source::Scalar(scalar), _) => Ok(Input::Scalar(*scalar)),
            _ => Ok(Input::InPlace),
        });
        Ok(Case { call: self.call.clone(), inputs: inputs.collect::<Result<_>>()?, out })
    }
}

impl Window {
    /// The elements of a view in a storage of `len`, and some around them.
    fn around(layout: &Layout, len: usize) -> Self {
        let Range { start, end } = extent(layout);
        let start = start.saturating_sub(MARGIN) / MARGIN * MARGIN;
        Self { start, len: end.saturating_add(MARGIN).min(len).saturating_sub(start) }
    }

    pub(super) fn read(&self, backend: &AnyBackend, storage: &Erased) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.len * storage.dtype().size()];
        backend.download(storage, self.start, &mut bytes)?;
        Ok(bytes)
    }

    /// A view of the storage as one of the stretch.
    fn rebase(&self, layout: &Layout) -> Result<Layout> {
        Layout::new("shadow", layout.shape(), layout.strides(), layout.offset().saturating_sub(self.start))
    }
}

/// The stretch of storage that a view touches.
fn extent(layout: &Layout) -> Range<usize> {
    if layout.count() == 0 {
        return 0..0;
    }
    let back = layout.shape().iter().zip(layout.strides()).map(|(&size, &stride)| (size as isize - 1) * stride.min(0));
    layout.offset().saturating_add_signed(back.sum())..layout.min_len()
}

/// A view of an operand as the nest walks it.
fn walked<const N: usize>(nest: &Nest<N>, operand: usize) -> Result<Layout> {
    Layout::new("shadow", nest.sizes(), nest.strides(operand), nest.offset(operand))
}

/// A view of an operand as the nest walks it, with one more axis.
fn extended<const N: usize>(nest: &Nest<N>, operand: usize, size: usize, stride: isize) -> Result<Layout> {
    let (sizes, strides) = ([nest.sizes(), &[size]].concat(), [nest.strides(operand), &[stride]].concat());
    Layout::new("shadow", &sizes, &strides, nest.offset(operand))
}

/// The input of a reduction: its kept axes, then others.
fn after(kept: &Nest<2>, sizes: &[usize], strides: &[isize]) -> Result<Layout> {
    let (sizes, strides) = ([kept.sizes(), sizes].concat(), [kept.strides(1), strides].concat());
    Layout::new("shadow", &sizes, &strides, kept.offset(1))
}
