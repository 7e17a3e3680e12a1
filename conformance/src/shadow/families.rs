//! The op families of [`Shadow`]: each call becomes a step.

use congruent_backend_api::erase::Erased;
use congruent_backend_api::ops::attention::{Attention, AttentionInputs};
use congruent_backend_api::ops::binary::Binary;
use congruent_backend_api::ops::compare::{Clamp, Compare, Where};
use congruent_backend_api::ops::conv::Conv;
use congruent_backend_api::ops::copy::{Copy, Fill};
use congruent_backend_api::ops::index::{Gather, Nonzero, Scatter};
use congruent_backend_api::ops::linear::Linear;
use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::ops::norm::Normalize;
use congruent_backend_api::ops::pool::Pool;
use congruent_backend_api::ops::random::Random;
use congruent_backend_api::ops::reduce::{ArgReduce, Reduce};
use congruent_backend_api::ops::scan::Scan;
use congruent_backend_api::ops::sort::{SearchSorted, Sort};
use congruent_backend_api::ops::statistic::Statistic;
use congruent_backend_api::ops::unary::Unary;
use congruent_backend_api::{
    AttentionOps, BinaryOps, CompareOps, ConvOps, CopyOps, Error, ErrorKind, IndexOps, LinearOps, MatmulOps, NormOps,
    Op, PoolOps, RandomOps, ReduceOps, Result, ScanOps, SortOps, StatisticOps, UnaryOps,
};

use super::call::Planned;
use super::{Pair, Shadow};
use crate::case::Call;
use crate::ops::attention;

impl UnaryOps for Shadow {
    fn unary(&self, plan: &Unary, x: Option<&Pair>, out: &mut Pair) -> Result<()> {
        plan.check(x, out)?;
        let planned =
            Planned::elementwise(Call::Unary(plan.op()), Op::Unary(plan.op()), plan.dtype(), plan.elementwise())?;
        self.step(&planned, &[x], out, |backend, x, out| backend.unary(plan, x[0], out))
    }
}

impl BinaryOps for Shadow {
    fn binary(&self, plan: &Binary, a: Option<&Pair>, b: Option<&Pair>, out: &mut Pair) -> Result<()> {
        plan.check(a, b, out)?;
        let planned =
            Planned::elementwise(Call::Binary(plan.op()), Op::Binary(plan.op()), plan.dtype(), plan.elementwise())?;
        self.step(&planned, &[a, b], out, |backend, x, out| backend.binary(plan, x[0], x[1], out))
    }
}

impl CompareOps for Shadow {
    fn compare(&self, plan: &Compare, a: Option<&Pair>, b: Option<&Pair>, out: &mut Pair) -> Result<()> {
        plan.check(a, b, out)?;
        let planned =
            Planned::elementwise(Call::Compare(plan.op()), Op::Compare(plan.op()), plan.dtype(), plan.elementwise())?;
        self.step(&planned, &[a, b], out, |backend, x, out| backend.compare(plan, x[0], x[1], out))
    }

    fn choose(
        &self,
        plan: &Where,
        condition: Option<&Pair>,
        a: Option<&Pair>,
        b: Option<&Pair>,
        out: &mut Pair,
    ) -> Result<()> {
        plan.check(condition, a, b, out)?;
        let planned = Planned::elementwise(Call::Where, Op::Where, plan.dtype(), plan.elementwise())?;
        self.step(&planned, &[condition, a, b], out, |backend, x, out| backend.choose(plan, x[0], x[1], x[2], out))
    }

    fn clamp(&self, plan: &Clamp, x: Option<&Pair>, out: &mut Pair) -> Result<()> {
        plan.check(x, out)?;
        let call = Call::Clamp { min: plan.min(), max: plan.max() };
        let planned = Planned::elementwise(call, Op::Clamp, plan.dtype(), plan.elementwise())?;
        self.step(&planned, &[x], out, |backend, x, out| backend.clamp(plan, x[0], out))
    }
}

impl CopyOps for Shadow {
    fn fill(&self, plan: &Fill, out: &mut Pair) -> Result<()> {
        plan.check(out)?;
        let planned = Planned::elementwise(Call::Fill(plan.value()), Op::Fill, plan.dtype(), plan.elementwise())?;
        self.step(&planned, &[], out, |backend, _, out| backend.fill(plan, out))
    }

    fn copy(&self, plan: &Copy, x: &Pair, out: &mut Pair) -> Result<()> {
        plan.check(x, out)?;
        let op = if plan.dtype() == plan.out_dtype() { Op::Copy } else { Op::Cast(plan.out_dtype()) };
        let planned = Planned::elementwise(Call::Copy, op, plan.dtype(), plan.elementwise())?;
        self.step(&planned, &[Some(x)], out, |backend, x, out| backend.copy(plan, tensor(op, x[0])?, out))
    }
}

impl ReduceOps for Shadow {
    fn reduce(&self, plan: &Reduce, x: &Pair, out: &mut Pair) -> Result<()> {
        plan.check(x, out)?;
        let planned = Planned::reduce(plan)?;
        let op = planned.op;
        self.step(&planned, &[Some(x)], out, |backend, x, out| backend.reduce(plan, tensor(op, x[0])?, out))
    }

    fn arg_reduce(&self, plan: &ArgReduce, x: &Pair, out: &mut Pair) -> Result<()> {
        plan.check(x, out)?;
        let planned = Planned::arg_reduce(plan)?;
        let op = planned.op;
        self.step(&planned, &[Some(x)], out, |backend, x, out| backend.arg_reduce(plan, tensor(op, x[0])?, out))
    }
}

impl RandomOps for Shadow {
    fn random(&self, plan: &Random, out: &mut Pair) -> Result<()> {
        plan.check(out)?;
        self.step(&Planned::random(plan), &[], out, |backend, _, out| backend.random(plan, out))
    }
}

impl ScanOps for Shadow {
    fn scan(&self, plan: &Scan, x: &Pair, out: &mut Pair) -> Result<()> {
        plan.check(x, out)?;
        let planned = Planned::scan(plan)?;
        let op = planned.op;
        self.step(&planned, &[Some(x)], out, |backend, x, out| backend.scan(plan, tensor(op, x[0])?, out))
    }
}

#[deny(clippy::missing_trait_methods, reason = "the composition would hide the backends' own statistics")]
impl StatisticOps for Shadow {
    fn statistic(&self, plan: &Statistic, x: &Pair, out: &mut Pair) -> Result<()> {
        plan.check(x, out)?;
        let planned = Planned::statistic(plan)?;
        let op = planned.op;
        self.step(&planned, &[Some(x)], out, |backend, x, out| backend.statistic(plan, tensor(op, x[0])?, out))
    }
}

impl SortOps for Shadow {
    fn sort(&self, plan: &Sort, x: &Pair, out: &mut Pair) -> Result<()> {
        plan.check(x, out)?;
        let planned = Planned::sort(plan)?;
        let op = planned.op;
        self.step(&planned, &[Some(x)], out, |backend, x, out| backend.sort(plan, tensor(op, x[0])?, out))
    }

    fn search_sorted(&self, plan: &SearchSorted, sorted: &Pair, values: &Pair, out: &mut Pair) -> Result<()> {
        plan.check(sorted, values, out)?;
        let planned = Planned::search_sorted(plan)?;
        self.step(&planned, &[Some(sorted), Some(values)], out, |backend, x, out| {
            backend.search_sorted(plan, tensor(Op::SearchSorted, x[0])?, tensor(Op::SearchSorted, x[1])?, out)
        })
    }
}

impl MatmulOps for Shadow {
    fn matmul(&self, plan: &Matmul, a: &Pair, b: &Pair, out: &mut Pair) -> Result<()> {
        plan.check(a, b, out)?;
        let planned = Planned::matmul(plan)?;
        self.step(&planned, &[Some(a), Some(b)], out, |backend, x, out| {
            backend.matmul(plan, tensor(Op::Matmul, x[0])?, tensor(Op::Matmul, x[1])?, out)
        })
    }
}

#[deny(clippy::missing_trait_methods, reason = "the composition would hide the backends' own convolutions")]
impl ConvOps for Shadow {
    fn conv(&self, plan: &Conv, a: &Pair, b: &Pair, bias: Option<&Pair>, out: &mut Pair) -> Result<()> {
        plan.check(a, b, bias, out)?;
        let planned = Planned::conv(plan);
        let (op, inputs) = (planned.op, [Some(a), Some(b), bias]);
        self.step(&planned, &inputs[..2 + usize::from(bias.is_some())], out, |backend, x, out| {
            backend.conv(plan, tensor(op, x[0])?, tensor(op, x[1])?, x.get(2).copied().flatten(), out)
        })
    }
}

#[deny(clippy::missing_trait_methods, reason = "the composition would hide the backends' own pooling")]
impl PoolOps for Shadow {
    fn pool(&self, plan: &Pool, input: &Pair, indices: Option<&Pair>, out: &mut Pair) -> Result<()> {
        plan.check(input, indices, out)?;
        let planned = Planned::pool(plan);
        let (op, inputs) = (planned.op, [Some(input), indices]);
        self.step(&planned, &inputs[..1 + usize::from(indices.is_some())], out, |backend, x, out| {
            backend.pool(plan, tensor(op, x[0])?, x.get(1).copied().flatten(), out)
        })
    }
}

#[deny(clippy::missing_trait_methods, reason = "the composition would hide the backends' own layers")]
impl LinearOps for Shadow {
    fn linear(&self, plan: &Linear, x: &Pair, weight: &Pair, bias: Option<&Pair>, out: &mut Pair) -> Result<()> {
        plan.check(x, weight, bias, out)?;
        let planned = Planned::linear(plan);
        let inputs = [Some(x), Some(weight), bias];
        self.step(&planned, &inputs[..2 + usize::from(bias.is_some())], out, |backend, x, out| {
            let bias = x.get(2).copied().flatten();
            backend.linear(plan, tensor(Op::Linear, x[0])?, tensor(Op::Linear, x[1])?, bias, out)
        })
    }
}

#[deny(clippy::missing_trait_methods, reason = "the composition would hide the backends' own normalisations")]
impl NormOps for Shadow {
    fn normalize(
        &self,
        plan: &Normalize,
        x: &Pair,
        weight: Option<&Pair>,
        bias: Option<&Pair>,
        out: &mut Pair,
    ) -> Result<()> {
        plan.check([Some(x), weight, bias], out)?;
        let planned = Planned::normalize(plan)?;
        let inputs: Vec<_> = [Some(x), weight, bias].into_iter().filter(Option::is_some).collect();
        self.step(&planned, &inputs, out, |backend, x, out| {
            let other = |index: usize| x.get(index).copied().flatten();
            backend.normalize(plan, tensor(plan.full_op(), x[0])?, other(1), other(2), out)
        })
    }

    fn normalize_grad(
        &self,
        plan: &Normalize,
        x: &Pair,
        grad: &Pair,
        weight: Option<&Pair>,
        out: &mut Pair,
    ) -> Result<()> {
        plan.check([Some(x), Some(grad), weight], out)?;
        let planned = Planned::normalize(plan)?;
        let inputs: Vec<_> = [Some(x), Some(grad), weight].into_iter().filter(Option::is_some).collect();
        self.step(&planned, &inputs, out, |backend, x, out| {
            let (op, third) = (plan.full_op(), x.get(2).copied().flatten());
            backend.normalize_grad(plan, tensor(op, x[0])?, tensor(op, x[1])?, third, out)
        })
    }
}

impl IndexOps for Shadow {
    fn gather(&self, plan: &Gather, x: &Pair, index: &Pair, out: &mut Pair) -> Result<()> {
        plan.check(x, index, out)?;
        let planned = Planned::gather(plan)?;
        self.step(&planned, &[Some(x), Some(index)], out, |backend, x, out| {
            backend.gather(plan, tensor(Op::Gather, x[0])?, tensor(Op::Gather, x[1])?, out)
        })
    }

    fn scatter(&self, plan: &Scatter, index: &Pair, src: &Pair, out: &mut Pair) -> Result<()> {
        plan.check(index, src, out)?;
        let planned = Planned::scatter(plan)?;
        let op = planned.op;
        // The first input is the output's old value.
        self.step(&planned, &[None, Some(index), Some(src)], out, |backend, x, out| {
            backend.scatter(plan, tensor(op, x[1])?, tensor(op, x[2])?, out)
        })
    }

    fn nonzero(&self, plan: &Nonzero, mask: &Pair, out: &mut Pair) -> Result<()> {
        plan.check(mask, out)?;
        let planned = Planned::nonzero(plan)?;
        self.step(&planned, &[Some(mask)], out, |backend, x, out| {
            backend.nonzero(plan, tensor(Op::Nonzero, x[0])?, out)
        })
    }
}

#[deny(clippy::missing_trait_methods, reason = "the composition would hide the backends' own attention")]
impl AttentionOps for Shadow {
    fn attention(&self, plan: &Attention, inputs: AttentionInputs<&Pair>, out: &mut Pair) -> Result<()> {
        plan.check(inputs, out)?;
        let (planned, given) = (Planned::attention(plan), attention::given(inputs));
        let present: Vec<_> = inputs.to_array().into_iter().filter(Option::is_some).collect();
        let op = planned.op;
        self.step(&planned, &present, out, |backend, x, out| {
            let missing = || Error::new(ErrorKind::Argument, op.name(), "an operand is missing");
            let inputs = attention::inputs(given, |index| tensor(op, x[index]))?.ok_or_else(missing)?;
            backend.attention(plan, inputs, out)
        })
    }
}

fn tensor(op: Op, input: Option<&Erased>) -> Result<&Erased> {
    input.ok_or_else(|| Error::new(ErrorKind::Argument, op.name(), "this operand must be a tensor"))
}
