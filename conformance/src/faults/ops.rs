//! The ops of the wrapper: each describes its call, and rebuilds its plan where layouts are changed.

use congruent_backend_api::erase::Erased;
use congruent_backend_api::ops::binary::{Binary, BinaryOp};
use congruent_backend_api::ops::compare::{Clamp, Compare, Where};
use congruent_backend_api::ops::copy::{Copy, Fill};
use congruent_backend_api::ops::index::{Gather, Nonzero, Scatter, ScatterOp};
use congruent_backend_api::ops::linear::{Activation, Linear};
use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::ops::random::Random;
use congruent_backend_api::ops::reduce::{ArgReduce, Reduce};
use congruent_backend_api::ops::scan::{Scan, ScanRange};
use congruent_backend_api::ops::sort::{SearchSorted, Sort};
use congruent_backend_api::ops::statistic::Statistic;
use congruent_backend_api::ops::unary::Unary;
use congruent_backend_api::{
    Backend as _, BinaryOps, CompareOps, CopyOps, DType, IndexOps, Layout, LinearOps, MatmulOps, Op, RandomOps,
    ReduceOps, Result, ScanOps, SortOps, Source, StatisticOps, Storage, UnaryOps, View,
};

use super::call::{Call, Values, of_nest, source};
use super::{Faulty, Held, Kind, Special};
use crate::host::{decode, encode_int};

impl UnaryOps for Faulty {
    fn unary(&self, plan: &Unary, x: Option<&Held>, out: &mut Held) -> Result<()> {
        let (op, dtype, elementwise) = (Op::Unary(plan.op()), plan.dtype(), plan.elementwise());
        let view = of_nest(elementwise.nest(), 0)?;
        let (layout, values) = self.operand((op, dtype), elementwise, 1, x)?;
        let out_view = View { dtype: out.dtype(), layout: &view };
        let changed = Unary::new(plan.op(), source(elementwise.operand(1), &layout), out_view)?;
        let call = Call { op, dtype, view, operands: vec![values], factors: (1.0, 0.0) };
        self.run(&call, out, |out| self.inner.unary(&changed, x.map(Held::read).as_deref(), out))
    }
}

impl BinaryOps for Faulty {
    fn binary(&self, plan: &Binary, a: Option<&Held>, b: Option<&Held>, out: &mut Held) -> Result<()> {
        let (op, dtype, elementwise) = (Op::Binary(plan.op()), plan.dtype(), plan.elementwise());
        let view = of_nest(elementwise.nest(), 0)?;
        let (left, a_values) = self.operand((op, dtype), elementwise, 1, a)?;
        let (right, b_values) = self.operand((op, dtype), elementwise, 2, b)?;
        let sources = [source(elementwise.operand(1), &left), source(elementwise.operand(2), &right)];
        let changed = Binary::new(plan.op(), sources[0], sources[1], View { dtype, layout: &view })?;
        let call = Call { op, dtype, view, operands: vec![a_values, b_values], factors: (1.0, 0.0) };
        self.run(&call, out, |out| {
            self.inner.binary(&changed, a.map(Held::read).as_deref(), b.map(Held::read).as_deref(), out)
        })
    }
}

impl CompareOps for Faulty {
    fn compare(&self, plan: &Compare, a: Option<&Held>, b: Option<&Held>, out: &mut Held) -> Result<()> {
        let (op, dtype, elementwise) = (Op::Compare(plan.op()), plan.dtype(), plan.elementwise());
        let view = of_nest(elementwise.nest(), 0)?;
        let (left, a_values) = self.operand((op, dtype), elementwise, 1, a)?;
        let (right, b_values) = self.operand((op, dtype), elementwise, 2, b)?;
        let sources = [source(elementwise.operand(1), &left), source(elementwise.operand(2), &right)];
        let changed =
            Compare::new(plan.op(), dtype, sources[0], sources[1], View { dtype: DType::Bool, layout: &view })?;
        let call = Call { op, dtype, view, operands: vec![a_values, b_values], factors: (1.0, 0.0) };
        self.run(&call, out, |out| {
            self.inner.compare(&changed, a.map(Held::read).as_deref(), b.map(Held::read).as_deref(), out)
        })
    }

    fn choose(
        &self,
        plan: &Where,
        condition: Option<&Held>,
        a: Option<&Held>,
        b: Option<&Held>,
        out: &mut Held,
    ) -> Result<()> {
        let (op, dtype, elementwise) = (Op::Where, plan.dtype(), plan.elementwise());
        let view = of_nest(elementwise.nest(), 0)?;
        let (first, c_values) = self.operand((op, dtype), elementwise, 1, condition)?;
        let (left, a_values) = self.operand((op, dtype), elementwise, 2, a)?;
        let (right, b_values) = self.operand((op, dtype), elementwise, 3, b)?;
        let changed = Where::new(
            source(elementwise.operand(1), &first),
            source(elementwise.operand(2), &left),
            source(elementwise.operand(3), &right),
            View { dtype, layout: &view },
        )?;
        let call = Call { op, dtype, view, operands: vec![c_values, a_values, b_values], factors: (1.0, 0.0) };
        self.run(&call, out, |out| {
            let (condition, a, b) = (condition.map(Held::read), a.map(Held::read), b.map(Held::read));
            self.inner.choose(&changed, condition.as_deref(), a.as_deref(), b.as_deref(), out)
        })
    }

    fn clamp(&self, plan: &Clamp, x: Option<&Held>, out: &mut Held) -> Result<()> {
        let (op, dtype, elementwise) = (Op::Clamp, plan.dtype(), plan.elementwise());
        let view = of_nest(elementwise.nest(), 0)?;
        let (layout, values) = self.operand((op, dtype), elementwise, 1, x)?;
        let x_source = source(elementwise.operand(1), &layout);
        let changed = Clamp::new(plan.min(), plan.max(), x_source, View { dtype, layout: &view })?;
        let call = Call { op, dtype, view, operands: vec![values], factors: (1.0, 0.0) };
        self.run(&call, out, |out| self.inner.clamp(&changed, x.map(Held::read).as_deref(), out))
    }
}

impl CopyOps for Faulty {
    fn fill(&self, plan: &Fill, out: &mut Held) -> Result<()> {
        let view = of_nest(plan.elementwise().nest(), 0)?;
        let operands = vec![Values::Scalar(plan.value())];
        let call = Call { op: Op::Fill, dtype: plan.dtype(), view, operands, factors: (1.0, 0.0) };
        self.run(&call, out, |out| self.inner.fill(plan, out))
    }

    fn copy(&self, plan: &Copy, x: &Held, out: &mut Held) -> Result<()> {
        let (dtype, out_dtype) = (plan.dtype(), plan.out_dtype());
        let op = if dtype == out_dtype { Op::Copy } else { Op::Cast(out_dtype) };
        let view = of_nest(plan.elementwise().nest(), 0)?;
        let (layout, values) = self.operand((op, dtype), plan.elementwise(), 1, Some(x))?;
        let changed = Copy::new(View { dtype, layout: &layout }, View { dtype: out_dtype, layout: &view })?;
        let call = Call { op, dtype, view, operands: vec![values], factors: (1.0, 0.0) };
        self.run(&call, out, |out| self.inner.copy(&changed, &x.read(), out))
    }
}

impl ReduceOps for Faulty {
    fn reduce(&self, plan: &Reduce, x: &Held, out: &mut Held) -> Result<()> {
        let (op, dtype) = (Op::Reduce(plan.op()), plan.dtype());
        let view = of_nest(plan.kept(), 0)?;
        // Kept axes first, then the reduced ones.
        let rank = view.rank();
        let sizes = [plan.kept().sizes(), plan.reduced().sizes()].concat();
        let strides = [plan.kept().strides(1), plan.reduced().strides(0)].concat();
        let whole = Layout::new("fault", &sizes, &strides, plan.kept().offset(1))?;
        let layout = self.layout(op, dtype, whole, Some(x));
        let axes: Vec<isize> = (rank..sizes.len()).map(|axis| axis as isize).collect();
        let out_view = View { dtype: plan.out_dtype(), layout: &view };
        // Only a changed layout needs another plan.
        let changed = match self.fault.kind {
            Kind::Input(_) => Reduce::new(plan.op(), View { dtype, layout: &layout }, Some(&axes), out_view)?,
            _ => *plan,
        };
        let group = plan.reduced().count();
        let operands = vec![Values::Stored { storage: x, view: layout, group }];
        let call = Call { op, dtype, view, operands, factors: (1.0, 0.0) };
        self.run(&call, out, |out| self.inner.reduce(&changed, &x.read(), out))
    }

    fn arg_reduce(&self, plan: &ArgReduce, x: &Held, out: &mut Held) -> Result<()> {
        let (op, dtype) = (Op::ArgReduce(plan.op()), plan.dtype());
        let view = of_nest(plan.kept(), 0)?;
        let sizes = [plan.kept().sizes(), &[plan.len()]].concat();
        let strides = [plan.kept().strides(1), &[plan.stride()]].concat();
        let whole = Layout::new("fault", &sizes, &strides, plan.kept().offset(1))?;
        let layout = self.layout(op, dtype, whole, Some(x));
        let out_view = View { dtype: DType::I64, layout: &view };
        let changed = match self.fault.kind {
            Kind::Input(_) => ArgReduce::new(plan.op(), View { dtype, layout: &layout }, -1, out_view)?,
            _ => *plan,
        };
        let operands = vec![Values::Stored { storage: x, view: layout, group: plan.len() }];
        let call = Call { op, dtype, view, operands, factors: (1.0, 0.0) };
        self.run(&call, out, |out| self.inner.arg_reduce(&changed, &x.read(), out))
    }
}

impl RandomOps for Faulty {
    fn random(&self, plan: &Random, out: &mut Held) -> Result<()> {
        let (op, dtype) = (Op::Random(plan.op()), plan.dtype());
        let changed = match self.fault.kind {
            Kind::Random(change) if self.fault.touches(op, dtype) => {
                let (mut distribution, mut seed, mut offset) = (plan.distribution(), plan.seed(), plan.offset());
                change(&mut distribution, &mut seed, &mut offset);
                Random::new(distribution, seed, offset, View { dtype, layout: plan.out() })?
            }
            _ => *plan,
        };
        let call = Call { op, dtype, view: *plan.out(), operands: Vec::new(), factors: (1.0, 0.0) };
        self.run(&call, out, |out| self.inner.random(&changed, out))
    }
}

impl ScanOps for Faulty {
    fn scan(&self, plan: &Scan, x: &Held, out: &mut Held) -> Result<()> {
        let (op, dtype, rows) = (Op::Scan(plan.op()), plan.dtype(), plan.rows());
        let whole = |operand: usize| {
            let sizes = [rows.sizes(), &[plan.len()]].concat();
            let strides = [rows.strides(operand), &[plan.strides()[operand]]].concat();
            Layout::new("fault", &sizes, &strides, rows.offset(operand))
        };
        let (view, layout) = (whole(0)?, self.layout(op, dtype, whole(1)?, Some(x)));
        let range = ScanRange { exclusive: plan.exclusive(), reverse: false };
        let over = |layout| View { dtype, layout };
        let changed = match self.fault.kind {
            Kind::Input(_) => Scan::new(plan.op(), over(&layout), -1, range, over(&view))?,
            _ => *plan,
        };
        let operands = vec![Values::Prefix { storage: x, view: layout, len: plan.len() }];
        let call = Call { op, dtype, view, operands, factors: (plan.exclusive().into(), 0.0) };
        self.run(&call, out, |out| self.inner.scan(&changed, &x.read(), out))
    }
}

impl StatisticOps for Faulty {
    fn statistic(&self, plan: &Statistic, x: &Held, out: &mut Held) -> Result<()> {
        let (op, dtype) = (Op::Statistic(plan.op()), plan.dtype());
        let layout = self.layout(op, dtype, *plan.x(), Some(x));
        let (reduced, kept): (Vec<isize>, Vec<isize>) =
            (0..layout.rank() as isize).partition(|&axis| plan.mask()[axis as usize]);
        let whole = layout.permute(&[kept, reduced.clone()].concat())?;
        let x_view = View { dtype, layout: &layout };
        let changed =
            Statistic::new(plan.op(), plan.parameter(), x_view, Some(&reduced), View { dtype, layout: plan.out() })?;
        let operands = vec![Values::Stored { storage: x, view: whole, group: plan.reduced_count() }];
        let call = Call { op, dtype, view: *plan.out(), operands, factors: (plan.parameter(), 0.0) };
        self.run(&call, out, |out| self.inner.statistic(&changed, &x.read(), out))
    }
}

impl SortOps for Faulty {
    fn sort(&self, plan: &Sort, x: &Held, out: &mut Held) -> Result<()> {
        let (op, dtype, rows) = (Op::Sort(plan.op()), plan.dtype(), plan.rows());
        let with_row = |operand: usize, len: usize| {
            let sizes = [rows.sizes(), &[len]].concat();
            let strides = [rows.strides(operand), &[plan.strides()[operand]]].concat();
            Layout::new("fault", &sizes, &strides, rows.offset(operand))
        };
        let view = with_row(0, plan.taken())?;
        let whole = if view.count() == 0 { view } else { with_row(1, plan.len())? };
        let layout = self.layout(op, dtype, whole, Some(x));
        let out_view = View { dtype: out.dtype(), layout: &view };
        let changed = match self.fault.kind {
            Kind::Input(_) => Sort::new(plan.op(), View { dtype, layout: &layout }, -1, plan.descending(), out_view)?,
            _ => *plan,
        };
        let taken = plan.taken();
        let operands = vec![Values::Row { storage: x, view: layout, len: plan.len(), taken }];
        let factors = (f64::from(u8::from(plan.descending())), 0.0);
        let call = Call { op, dtype, view, operands, factors };
        self.run(&call, out, |out| self.inner.sort(&changed, &x.read(), out))
    }

    fn search_sorted(&self, plan: &SearchSorted, sorted: &Held, values: &Held, out: &mut Held) -> Result<()> {
        let (op, dtype, nest) = (Op::SearchSorted, plan.dtype(), plan.nest());
        let view = of_nest(nest, 0)?;
        // Layouts of inputs are changed in the values only: rows read another way are not sorted.
        let layout = self.layout(op, dtype, of_nest(nest, 1)?, Some(values));
        let mut changed = *plan;
        let sizes = [nest.sizes(), &[plan.len()]].concat();
        let strides = [nest.strides(2), &[plan.stride()]].concat();
        // An output of the greatest rank leaves no axis for the rows.
        let rows = Layout::new("fault", &sizes, &strides, nest.offset(2));
        if let (Kind::Input(_), Ok(rows)) = (self.fault.kind, &rows) {
            let (layout, view) = (layout.unsqueeze(-1), view.unsqueeze(-1));
            if let (Ok(layout), Ok(view)) = (layout, view) {
                let over = |layout| View { dtype, layout };
                let out_view = View { dtype: DType::I64, layout: &view };
                changed = SearchSorted::new(over(rows), over(&layout), plan.right(), out_view)?;
            }
        }
        let operands = match rows {
            Ok(rows) => vec![
                Values::Stored { storage: sorted, view: rows, group: plan.len() },
                Values::Stored { storage: values, view: layout, group: 1 },
            ],
            Err(_) => Vec::new(),
        };
        let factors = (f64::from(u8::from(plan.right())), 0.0);
        let call = Call { op, dtype, view, operands, factors };
        self.run(&call, out, |out| self.inner.search_sorted(&changed, &sorted.read(), &values.read(), out))
    }
}

impl MatmulOps for Faulty {
    fn matmul(&self, plan: &Matmul, a: &Held, b: &Held, out: &mut Held) -> Result<()> {
        let (op, dtype, batch) = (Op::Matmul, plan.dtype(), plan.batch());
        let (m, n, k) = (plan.m(), plan.n(), plan.k());
        let matrix = |operand: usize, rows: usize, columns: usize| {
            let strides = plan.matrices()[operand];
            let sizes = [batch.sizes(), &[rows, columns]].concat();
            let strides = [batch.strides(operand), &[strides.row, strides.col]].concat();
            Layout::new("fault", &sizes, &strides, batch.offset(operand))
        };
        let view = matrix(0, m, n)?;
        let left = self.layout(op, dtype, matrix(1, m, k)?, Some(a));
        let right = self.layout(op, dtype, matrix(2, k, n)?, Some(b));
        let over = |layout| View { dtype, layout };
        let changed = match self.fault.kind {
            Kind::Input(_) => Matmul::new(over(&left), over(&right), plan.alpha(), plan.beta(), over(&view))?,
            _ => *plan,
        };
        let columns = transposed(&right)?;
        let operands = vec![
            Values::Matrix { storage: a, view: left, rows: m, columns: n, inner: k, left: true },
            Values::Matrix { storage: b, view: columns, rows: m, columns: n, inner: k, left: false },
        ];
        let factors = (plan.alpha().to_f64(), plan.beta().to_f64());
        let call = Call { op, dtype, view, operands, factors };
        self.run(&call, out, |out| self.inner.matmul(&changed, &a.read(), &b.read(), out))
    }
}

impl LinearOps for Faulty {
    fn linear(&self, plan: &Linear, x: &Held, weight: &Held, bias: Option<&Held>, out: &mut Held) -> Result<()> {
        let (op, dtype) = (Op::Linear, plan.dtype());
        let over = |layout| View { dtype, layout };
        let input = self.layout(op, dtype, *plan.x(), Some(x));
        let rows = self.layout(op, dtype, *plan.weight(), Some(weight));
        let addend = plan.bias().map(|layout| self.layout(op, dtype, *layout, bias));
        let special = match self.fault.kind {
            Kind::Special(special) if self.fault.touches(op, dtype) => Some(special),
            _ => None,
        };
        let activation = match special {
            Some(Special::ActivationLost | Special::BiasLate | Special::SumsRounded) => Activation::Identity,
            Some(Special::GeluByTanh) if plan.activation() == Activation::Gelu => Activation::GeluTanh,
            _ => plan.activation(),
        };
        let early = !matches!(special, Some(Special::BiasLost | Special::BiasLate | Special::SumsRounded));
        let early_bias = addend.as_ref().filter(|_| early);
        let changed = Linear::new(over(&input), over(&rows), early_bias.map(over), activation, over(plan.out()))?;
        let (count, outputs) = (plan.out().count(), plan.weight().shape()[0]);
        let (rows_of_x, inner) = (count.checked_div(outputs).unwrap_or(0), plan.weight().shape()[1]);
        let matrix =
            |storage, view, left| Values::Matrix { storage, view, rows: rows_of_x, columns: outputs, inner, left };
        let mut operands = vec![matrix(x, input, true), matrix(weight, rows, false)];
        if let (Some(bias), Some(layout)) = (bias, addend) {
            let view = layout.broadcast_to("fault", plan.out().shape())?;
            operands.push(Values::Stored { storage: bias, view, group: 1 });
        }
        let call = Call { op, dtype, view: *plan.out(), operands, factors: (1.0, 0.0) };
        self.run(&call, out, |out| {
            let bias = bias.map(Held::read);
            let early_bias = bias.as_deref().filter(|_| early);
            self.inner.linear(&changed, &x.read(), &weight.read(), early_bias, out)?;
            match special {
                Some(Special::BiasLate) => {
                    self.activate(plan, out)?;
                    self.add_bias(plan, bias.as_deref(), out)
                }
                Some(Special::SumsRounded) => {
                    self.add_bias(plan, bias.as_deref(), out)?;
                    self.activate(plan, out)
                }
                _ => Ok(()),
            }
        })
    }
}

impl Faulty {
    fn add_bias(&self, plan: &Linear, bias: Option<&Erased>, out: &mut Erased) -> Result<()> {
        let (Some(bias), Some(layout)) = (bias, plan.bias()) else { return Ok(()) };
        let rows = layout.broadcast_to("fault", plan.out().shape())?;
        let over = |layout| View { dtype: plan.dtype(), layout };
        let add = Binary::new(BinaryOp::Add, Source::Output, Source::View(over(&rows)), over(plan.out()))?;
        self.inner.binary(&add, None, Some(bias), out)
    }

    fn activate(&self, plan: &Linear, out: &mut Erased) -> Result<()> {
        let Some(function) = plan.activation().function() else { return Ok(()) };
        let view = View { dtype: plan.dtype(), layout: plan.out() };
        self.inner.unary(&Unary::new(function, Source::Output, view)?, None, out)
    }
}

impl IndexOps for Faulty {
    fn gather(&self, plan: &Gather, x: &Held, index: &Held, out: &mut Held) -> Result<()> {
        let (op, dtype, nest) = (Op::Gather, plan.dtype(), plan.nest());
        let last = |operand: usize, size: usize, stride: isize| {
            let (sizes, strides) = ([nest.sizes(), &[size]].concat(), [nest.strides(operand), &[stride]].concat());
            Layout::new("fault", &sizes, &strides, nest.offset(operand))
        };
        let view = last(0, 1, 1)?;
        let x_layout = self.layout(op, dtype, last(2, plan.len(), plan.stride())?, Some(x));
        let index_layout = self.layout(op, dtype, last(1, 1, 1)?, Some(index));
        let changed = match self.fault.kind {
            Kind::Input(_) => Gather::new(
                View { dtype, layout: &x_layout },
                -1,
                View { dtype: plan.index_dtype(), layout: &index_layout },
                View { dtype, layout: &view },
            )?,
            _ => *plan,
        };
        let reread = self.reread(op, dtype, index, plan.len())?;
        let index = reread.as_ref().unwrap_or(index);
        let operands = vec![Values::Stored { storage: x, view: x_layout, group: 1 }];
        let call = Call { op, dtype, view, operands, factors: (1.0, 0.0) };
        self.run(&call, out, |out| self.inner.gather(&changed, &x.read(), &index.read(), out))
    }

    fn scatter(&self, plan: &Scatter, index: &Held, src: &Held, out: &mut Held) -> Result<()> {
        let (op, dtype, kept) = (Op::Scatter(plan.op()), plan.dtype(), plan.kept());
        let last = |operand: usize, size: usize| {
            let strides = [kept.strides(operand), &[plan.strides()[operand]]].concat();
            Layout::new("fault", &[kept.sizes(), &[size]].concat(), &strides, kept.offset(operand))
        };
        let view = last(0, plan.len())?;
        let mut index_layout = self.layout(op, dtype, last(1, plan.count())?, Some(index));
        let mut src_layout = self.layout(op, dtype, last(2, plan.count())?, Some(src));
        let replaced = match self.fault.kind {
            Kind::Scatter(own, other) if own == plan.op() && other.accepts(dtype) => other,
            _ => plan.op(),
        };
        if self.fault.is(Special::FirstWins) && plan.op() == ScatterOp::Set {
            (index_layout, src_layout) = (index_layout.flip(&[-1])?, src_layout.flip(&[-1])?);
        }
        let changed = match self.fault.kind {
            Kind::Input(_) | Kind::Scatter(..) | Kind::Special(Special::FirstWins) => Scatter::new(
                replaced,
                -1,
                View { dtype: plan.index_dtype(), layout: &index_layout },
                View { dtype, layout: &src_layout },
                View { dtype, layout: &view },
            )?,
            _ => *plan,
        };
        let reread = self.reread(op, dtype, index, plan.len())?;
        let index = reread.as_ref().unwrap_or(index);
        let operands = vec![Values::Stored { storage: src, view: src_layout, group: 1 }];
        let call = Call { op, dtype, view, operands, factors: (1.0, 0.0) };
        self.run(&call, out, |out| self.inner.scatter(&changed, &index.read(), &src.read(), out))
    }

    fn nonzero(&self, plan: &Nonzero, mask: &Held, out: &mut Held) -> Result<()> {
        let (op, dtype) = (Op::Nonzero, DType::Bool);
        let view = Layout::new("fault", &[plan.count()], &[plan.stride()], plan.offset())?;
        let layout = self.layout(op, dtype, of_nest(plan.nest(), 1)?, Some(mask));
        let changed = match self.fault.kind {
            Kind::Input(_) => Nonzero::new(View { dtype, layout: &layout }, View { dtype: DType::I64, layout: &view })?,
            _ => *plan,
        };
        let operands = vec![Values::Stored { storage: mask, view: layout, group: 1 }];
        let call = Call { op, dtype, view, operands, factors: (1.0, 0.0) };
        self.run(&call, out, |out| self.inner.nonzero(&changed, &mask.read(), out))
    }
}

impl Faulty {
    /// The index as the fault reads it, in a storage of its own.
    fn reread(&self, op: Op, dtype: DType, index: &Held, len: usize) -> Result<Option<Held>> {
        let Kind::Index(read) = self.fault.kind else { return Ok(None) };
        if !self.fault.touches(op, dtype) {
            return Ok(None);
        }
        let mut host = self.peek(&index.read())?;
        for at in 0..host.storage_len() {
            let value = decode(host.dtype, host.bits(at)).to_i64();
            host.set_bits(at, encode_int(host.dtype, read(value, len as i64).into()));
        }
        let mut copy = self.alloc(host.dtype, host.storage_len())?;
        self.write(&host.bytes, &mut copy, 0)?;
        Ok(Some(copy))
    }
}

/// The layout with its last two axes exchanged.
fn transposed(layout: &Layout) -> Result<Layout> {
    let rank = layout.rank() as isize;
    let axes: Vec<isize> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
    layout.permute(&axes)
}
