//! Convolutions of the wrapper: with changed layouts, without their bias, or over other taps.

use congruent_backend_api::erase::Erased;
use congruent_backend_api::ops::conv::Conv;
use congruent_backend_api::ops::linear::Activation;
use congruent_backend_api::{ConvOps, Layout, Op, Result, View};

use super::call::{Call, Values};
use super::{Faulty, Held, Kind, Special};
use crate::case::{Call as CaseCall, Case, Input};
use crate::host::{HostTensor, encode_float};
use crate::ops::conv::{changed, work};

/// Beyond this many products a call stays right: replacing its results would take too long.
const MOST_PRODUCTS: usize = 1 << 22;

impl ConvOps for Faulty {
    fn conv(&self, plan: &Conv, a: &Held, b: &Held, bias: Option<&Held>, out: &mut Held) -> Result<()> {
        let (op, dtype) = (Op::Conv(plan.op()), plan.dtype());
        let [left, right, result] = plan.operands();
        let (left, right) = (self.layout(op, dtype, *left, Some(a)), self.layout(op, dtype, *right, Some(b)));
        let lost = self.fault.is(Special::BiasLost) && self.fault.touches(op, dtype);
        let bias = bias.filter(|_| !lost);
        let addend = plan.bias().filter(|_| !lost).map(|layout| self.layout(op, dtype, *layout, bias));
        let over = |layout| View { dtype, layout };
        let replanned =
            Conv::new(plan.op(), over(&left), over(&right), addend.as_ref().map(over), plan.options(), over(result))?;
        let lost = self.fault.is(Special::ActivationLost) && self.fault.touches(op, dtype);
        let replanned = if lost { replanned } else { replanned.with_activation(plan.activation())? };
        let stored = |(storage, view)| Values::Stored { storage, view, group: 1 };
        let operands = [Some((a, left)), Some((b, right)), bias.zip(addend)];
        let call = Call {
            op,
            dtype,
            view: *result,
            operands: operands.iter().flatten().copied().map(stored).collect(),
            factors: (1.0, 0.0),
        };
        let run = |out: &mut Erased| {
            let bias = bias.map(Held::read);
            self.inner.conv(&replanned, &a.read(), &b.read(), bias.as_deref(), out)
        };
        let Kind::Taps(change) = self.fault.kind else { return self.run(&call, out, run) };
        if !self.fault.touches(op, dtype) || plan.activation() != Activation::Identity {
            return self.run(&call, out, run);
        }
        let input = |(storage, layout): &(&Held, Layout)| -> Result<Input> {
            Ok(Input::Tensor(HostTensor { layout: *layout, ..self.peek(&storage.read())? }))
        };
        let inputs = operands.iter().flatten().map(input).collect::<Result<_>>()?;
        let out = &mut *out.write();
        let old = HostTensor { layout: *result, ..self.peek(out)? };
        let options = *plan.options();
        let case = Case {
            call: CaseCall::Conv { op: plan.op(), options, activation: Activation::Identity },
            inputs,
            out: old,
        };
        if work(plan.op(), &options, &case) > MOST_PRODUCTS {
            return run(out);
        }
        let sums = changed(plan.op(), &options, &case, change);
        self.rewrite(&call, out, run, |written| {
            for (&at, &sum) in written.walked.iter().zip(&sums) {
                written.after.set_bits(at, encode_float(dtype, sum));
            }
        })
    }
}
