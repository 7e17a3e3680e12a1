//! The wrapper that injects a fault.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use congruent_backend_api::erase::{AnyBackend, Erased};
use congruent_backend_api::ops::binary::Binary;
use congruent_backend_api::ops::compare::{Clamp, Compare, Where};
use congruent_backend_api::ops::copy::{Copy, Fill};
use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::ops::reduce::{ArgReduce, ArgReduceOp, Reduce, ReduceOp};
use congruent_backend_api::ops::statistic::Statistic;
use congruent_backend_api::ops::unary::Unary;
use congruent_backend_api::{
    Backend, BinaryOps, CompareOps, CopyOps, DType, Elementwise, Error, ErrorKind, Layout, MatmulOps, Nest, Op,
    Operand, ReduceOps, Result, Scalar, Shape, Source, StatisticOps, Storage, UnaryOps, View,
};

use super::list::{encode, short};
use super::{Fault, Kind, Special, Written, download};
use crate::host::{HostTensor, decode, positions};

/// A backend that does one thing wrong.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<AnyBackend>,
    fault: Fault,
    calls: AtomicUsize,
    // An error of the wrapped backend that came up while the wrapper looked at the output.
    pending: Mutex<Option<Error>>,
}

impl Faulty {
    /// Wraps a correct backend.
    #[must_use]
    pub fn new(inner: Arc<AnyBackend>, fault: Fault) -> Self {
        Self { inner, fault, calls: AtomicUsize::new(0), pending: Mutex::new(None) }
    }

    fn special(&self, special: Special) -> bool {
        matches!(self.fault.kind, Kind::Special(fault) if fault == special)
    }

    /// Runs a call of a family, then spoils its output if the fault says so.
    fn run(
        &self,
        family: &str,
        out: &mut Erased,
        view: &Layout,
        call: impl FnOnce(&mut Erased) -> Result<()>,
    ) -> Result<()> {
        match self.fault.kind {
            Kind::Output(spoil) if self.fault.families.contains(&family) => {
                self.rewrite(out, view, call, |written, _| spoil(written))
            }
            _ => call(out),
        }
    }

    /// Runs a call, then lets `change` rewrite the elements of the view.
    fn rewrite(
        &self,
        out: &mut Erased,
        view: &Layout,
        call: impl FnOnce(&mut Erased) -> Result<()>,
        change: impl FnOnce(&mut Written<'_>, &[usize]),
    ) -> Result<()> {
        let before = download(&*self.inner, out)?;
        call(out)?;
        if let Err(error) = self.inner.synchronize() {
            *self.pending.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
        let mut after = download(&*self.inner, out)?;
        let walked = positions(view);
        let mut ascending = walked.clone();
        ascending.sort_unstable();
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        change(&mut Written { after: &mut after, before: &before, positions: &ascending, calls }, &walked);
        self.inner.write(&after.bytes, out, 0)
    }

    /// The layout of an input, changed if the fault says so; the nest's order of axes is kept.
    fn input<const N: usize>(
        &self,
        elementwise: &Elementwise<N>,
        index: usize,
        storage: Option<&Erased>,
    ) -> Result<Layout> {
        let mut layout = of_nest(elementwise.nest(), index)?;
        if let (Kind::Input(change), Some(storage)) = (self.fault.kind, storage) {
            let (mut strides, mut offset) = (layout.strides().to_vec(), layout.offset());
            change(&mut strides, &mut offset);
            // A layout outside the storage would be refused by the plan's own check: keep such a call right.
            if let Ok(changed) = Layout::new("fault", layout.shape(), &strides, offset)
                && changed.min_len() <= storage.len()
            {
                layout = changed;
            }
        }
        Ok(layout)
    }
}

/// A view of an operand as the nest walks it.
fn of_nest<const N: usize>(nest: &Nest<N>, operand: usize) -> Result<Layout> {
    Layout::new("fault", nest.sizes(), nest.strides(operand), nest.offset(operand))
}

fn source(operand: Operand, layout: &Layout) -> Source<'_> {
    match operand {
        Operand::Storage { dtype, .. } => Source::View(View { dtype, layout }),
        Operand::Scalar(scalar) => Source::Scalar(scalar),
        Operand::Output => Source::Output,
    }
}

impl Backend for Faulty {
    type Storage = Erased;

    fn name(&self) -> &str {
        self.fault.name
    }

    fn supports(&self, op: Op, dtype: DType) -> bool {
        !self.special(Special::Denies) && self.inner.supports(op, dtype)
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<Erased> {
        self.inner.alloc(dtype, len)
    }

    fn write(&self, bytes: &[u8], storage: &mut Erased, start: usize) -> Result<()> {
        self.inner.write(bytes, storage, start)
    }

    fn download(&self, storage: &Erased, start: usize, bytes: &mut [u8]) -> Result<()> {
        self.inner.download(storage, start, bytes)
    }

    fn synchronize(&self) -> Result<()> {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner).take();
        let result = pending.map_or_else(|| self.inner.synchronize(), Err);
        match result {
            Err(error) if error.kind() == ErrorKind::DivisionByZero && self.special(Special::SilentDivision) => Ok(()),
            result => result,
        }
    }
}

impl UnaryOps for Faulty {
    fn unary(&self, plan: &Unary, x: Option<&Erased>, out: &mut Erased) -> Result<()> {
        let (view, layout) = (of_nest(plan.elementwise().nest(), 0)?, self.input(plan.elementwise(), 1, x)?);
        let out_view = View { dtype: out.dtype(), layout: &view };
        let changed = Unary::new(plan.op(), source(plan.elementwise().operand(1), &layout), out_view)?;
        match self.fault.kind {
            Kind::Unary(op, function) if op == plan.op() && plan.dtype().is_float() => {
                let given = download(&*self.inner, x.unwrap_or(out))?;
                self.rewrite(
                    out,
                    &view,
                    |_| Ok(()),
                    |written, walked| {
                        for (&at, &from) in walked.iter().zip(&positions(&layout)) {
                            let value = function(decode(given.dtype, given.bits(from)).to_f64());
                            written.after.set_bits(at, encode(given.dtype, Scalar::Float(value)));
                        }
                    },
                )
            }
            _ => self.run("unary", out, &view, |out| self.inner.unary(&changed, x, out)),
        }
    }
}

impl BinaryOps for Faulty {
    fn binary(&self, plan: &Binary, a: Option<&Erased>, b: Option<&Erased>, out: &mut Erased) -> Result<()> {
        let elementwise = plan.elementwise();
        let view = of_nest(elementwise.nest(), 0)?;
        let layouts = [self.input(elementwise, 1, a)?, self.input(elementwise, 2, b)?];
        let out_view = View { dtype: out.dtype(), layout: &view };
        let sources = [source(elementwise.operand(1), &layouts[0]), source(elementwise.operand(2), &layouts[1])];
        let changed = Binary::new(plan.op(), sources[0], sources[1], out_view)?;
        let call = |out: &mut Erased| self.inner.binary(&changed, a, b, out);
        let Kind::Integer(op, function) = self.fault.kind else { return self.run("binary", out, &view, call) };
        if op != plan.op() || !plan.dtype().is_int() {
            return call(out);
        }
        let dtype = plan.dtype();
        let old = download(&*self.inner, out)?;
        let operand = |index: usize, storage: Option<&Erased>, layout: &Layout| -> Result<Vec<i64>> {
            let host = storage.map_or(Ok(old.clone()), |storage| download(&*self.inner, storage))?;
            Ok(match elementwise.operand(index) {
                Operand::Scalar(scalar) => vec![scalar.to_i64(); view.count()],
                Operand::Output => {
                    positions(&view).into_iter().map(|at| decode(dtype, host.bits(at)).to_i64()).collect()
                }
                Operand::Storage { .. } => {
                    positions(layout).into_iter().map(|at| decode(dtype, host.bits(at)).to_i64()).collect()
                }
            })
        };
        let (left, right) = (operand(1, a, &layouts[0])?, operand(2, b, &layouts[1])?);
        // The correct call first, so that a division by zero is still reported.
        self.rewrite(out, &view, call, |written, walked| {
            for (&at, (&a, &b)) in walked.iter().zip(left.iter().zip(&right)) {
                written.after.set_bits(at, encode(dtype, Scalar::Int(function(dtype, a, b))));
            }
        })
    }
}

impl CompareOps for Faulty {
    fn compare(&self, plan: &Compare, a: Option<&Erased>, b: Option<&Erased>, out: &mut Erased) -> Result<()> {
        let elementwise = plan.elementwise();
        let view = of_nest(elementwise.nest(), 0)?;
        let layouts = [self.input(elementwise, 1, a)?, self.input(elementwise, 2, b)?];
        let sources = [source(elementwise.operand(1), &layouts[0]), source(elementwise.operand(2), &layouts[1])];
        let out_view = View { dtype: out.dtype(), layout: &view };
        let changed = Compare::new(plan.op(), plan.dtype(), sources[0], sources[1], out_view)?;
        self.run("compare", out, &view, |out| self.inner.compare(&changed, a, b, out))
    }

    fn choose(
        &self,
        plan: &Where,
        condition: Option<&Erased>,
        a: Option<&Erased>,
        b: Option<&Erased>,
        out: &mut Erased,
    ) -> Result<()> {
        let view = of_nest(plan.elementwise().nest(), 0)?;
        self.run("compare", out, &view, |out| self.inner.choose(plan, condition, a, b, out))
    }

    fn clamp(&self, plan: &Clamp, x: Option<&Erased>, out: &mut Erased) -> Result<()> {
        let view = of_nest(plan.elementwise().nest(), 0)?;
        self.run("compare", out, &view, |out| self.inner.clamp(plan, x, out))
    }
}

impl CopyOps for Faulty {
    fn fill(&self, plan: &Fill, out: &mut Erased) -> Result<()> {
        let view = of_nest(plan.elementwise().nest(), 0)?;
        self.run("copy", out, &view, |out| self.inner.fill(plan, out))
    }

    fn copy(&self, plan: &Copy, x: &Erased, out: &mut Erased) -> Result<()> {
        let (view, layout) = (of_nest(plan.elementwise().nest(), 0)?, self.input(plan.elementwise(), 1, Some(x))?);
        let changed =
            Copy::new(View { dtype: x.dtype(), layout: &layout }, View { dtype: out.dtype(), layout: &view })?;
        self.run("copy", out, &view, |out| self.inner.copy(&changed, x, out))
    }
}

impl ReduceOps for Faulty {
    fn reduce(&self, plan: &Reduce, x: &Erased, out: &mut Erased) -> Result<()> {
        let view = of_nest(plan.kept(), 0)?;
        let sizes = plan.reduced().sizes();
        let drops = self.special(Special::ReduceDropsLast) && sizes.first().is_some_and(|&size| size > 1);
        let halves = self.special(Special::HalfSum) && plan.op() == ReduceOp::Sum && plan.dtype() == DType::F32;
        if !drops && !halves {
            return self.run("reduce", out, &view, |out| self.inner.reduce(plan, x, out));
        }
        // Kept axes first, then the reduced ones.
        let rank = plan.kept().rank();
        let mut shape = [plan.kept().sizes(), sizes].concat();
        if drops {
            shape[rank] -= 1;
        }
        let strides = [plan.kept().strides(1), plan.reduced().strides(0)].concat();
        let layout = Layout::new("fault", &shape, &strides, plan.kept().offset(1))?;
        let axes: Vec<isize> = (rank..shape.len()).map(|axis| axis as isize).collect();
        let out_view = |dtype| View { dtype, layout: &view };
        if halves {
            let (half, storage) = self.convert(x, &layout, DType::F16)?;
            let mut sum = self.inner.alloc(DType::F16, view.min_len())?;
            let changed =
                Reduce::new(plan.op(), View { dtype: DType::F16, layout: &half }, Some(&axes), out_view(DType::F16))?;
            self.inner.reduce(&changed, &storage, &mut sum)?;
            return self.inner.copy(&Copy::new(out_view(DType::F16), out_view(DType::F32))?, &sum, out);
        }
        let changed = Reduce::new(
            plan.op(),
            View { dtype: plan.dtype(), layout: &layout },
            Some(&axes),
            out_view(plan.out_dtype()),
        )?;
        self.inner.reduce(&changed, x, out)
    }

    fn arg_reduce(&self, plan: &ArgReduce, x: &Erased, out: &mut Erased) -> Result<()> {
        let view = of_nest(plan.kept(), 0)?;
        if !self.special(Special::LastTie) || plan.op() != ArgReduceOp::Argmax {
            return self.run("reduce", out, &view, |out| self.inner.arg_reduce(plan, x, out));
        }
        let shape = [plan.kept().sizes(), &[plan.len()]].concat();
        let strides = [plan.kept().strides(1), &[plan.stride()]].concat();
        let reversed = Layout::new("fault", &shape, &strides, plan.kept().offset(1))?.flip(&[-1])?;
        let out_view = View { dtype: DType::I64, layout: &view };
        let changed = ArgReduce::new(plan.op(), View { dtype: plan.dtype(), layout: &reversed }, -1, out_view)?;
        self.rewrite(
            out,
            &view,
            |out| self.inner.arg_reduce(&changed, x, out),
            |written, _| {
                for &at in written.positions {
                    written.after.set_bits(at, plan.len() as u64 - 1 - written.after.bits(at));
                }
            },
        )
    }
}

impl StatisticOps for Faulty {
    fn statistic(&self, plan: &Statistic, x: &Erased, out: &mut Erased) -> Result<()> {
        self.run("reduce", out, plan.out(), |out| self.inner.statistic(plan, x, out))
    }
}

impl MatmulOps for Faulty {
    fn matmul(&self, plan: &Matmul, a: &Erased, b: &Erased, out: &mut Erased) -> Result<()> {
        let matrix = |operand: usize, rows: usize, columns: usize| {
            let (batch, strides) = (plan.batch(), plan.matrices()[operand]);
            let sizes = [batch.sizes(), &[rows, columns]].concat();
            let strides = [batch.strides(operand), &[strides.row, strides.col]].concat();
            Layout::new("fault", &sizes, &strides, batch.offset(operand))
        };
        let (m, n, dtype) = (plan.m(), plan.n(), plan.dtype());
        let k = plan.k() - usize::from(self.special(Special::InnerDropsLast) && plan.k() > 1);
        let (view, left, right) = (matrix(0, m, n)?, matrix(1, m, k)?, matrix(2, k, n)?);
        let reads = self.special(Special::BetaReadsOutput) && plan.beta().to_f64() == 0.0 && dtype.is_float();
        let beta = if reads { Scalar::Float(1.0) } else { plan.beta() };
        let over = |layout, dtype| View { dtype, layout };
        let half = self.special(Special::HalfProduct) && dtype == DType::F32;
        let truncated = self.special(Special::ShortOperands) && dtype == DType::F32;
        if half || truncated {
            let through = if half { DType::F16 } else { DType::F32 };
            let ((left, a), (right, b)) = (self.convert(a, &left, through)?, self.convert(b, &right, through)?);
            let mut product = self.inner.alloc(through, view.min_len())?;
            let one = Matmul::new(
                over(&left, through),
                over(&right, through),
                plan.alpha(),
                Scalar::Int(0),
                over(&view, through),
            )?;
            if plan.beta().to_f64() != 0.0 || view.count() == 0 {
                return self.inner.matmul(plan, &a, &b, out).or(Ok(()));
            }
            self.inner.matmul(&one, &a, &b, &mut product)?;
            return self.inner.copy(&Copy::new(over(&view, through), over(&view, dtype))?, &product, out);
        }
        let changed = Matmul::new(over(&left, dtype), over(&right, dtype), plan.alpha(), beta, over(&view, dtype))?;
        self.run("matmul", out, &view, |out| self.inner.matmul(&changed, a, b, out))
    }
}

impl Faulty {
    /// A contiguous copy of a view that has lost bits: in another dtype, or with TF32's significand in its own.
    fn convert(&self, x: &Erased, layout: &Layout, dtype: DType) -> Result<(Layout, Erased)> {
        let host = download(&*self.inner, x)?;
        let compact = Layout::contiguous(Shape::new("fault", layout.shape())?);
        let mut copy = HostTensor { dtype, layout: compact, bytes: vec![0; compact.count() * dtype.size()] };
        for (at, from) in positions(layout).into_iter().enumerate() {
            let value = decode(host.dtype, host.bits(from)).to_f64();
            copy.set_bits(at, encode(dtype, Scalar::Float(short(value, 11))));
        }
        let mut storage = self.inner.alloc(dtype, compact.count())?;
        self.inner.write(&copy.bytes, &mut storage, 0)?;
        Ok((compact, storage))
    }
}
