//! Pooling of the wrapper: with changed layouts, or of other windows.

use congruent_backend_api::erase::Erased;
use congruent_backend_api::ops::pool::Pool;
use congruent_backend_api::{DType, Layout, Op, PoolOps, Result, View};

use super::call::{Call, Values, encode};
use super::{Faulty, Held, Kind};
use crate::case::{Call as CaseCall, Case, Input};
use crate::host::HostTensor;
use crate::ops::pool::{changed, work};

/// Beyond this many places of windows a call stays right: replacing its results would take too long.
const MOST_PLACES: usize = 1 << 22;

#[deny(clippy::missing_trait_methods, reason = "the composition would hide the backend's own pooling")]
impl PoolOps for Faulty {
    fn pool(&self, plan: &Pool, input: &Held, indices: Option<&Held>, out: &mut Held) -> Result<()> {
        let (op, dtype) = (Op::Pool(plan.op()), plan.dtype());
        let [given, result] = plan.operands();
        let given = self.layout(op, dtype, *given, Some(input));
        let named = plan.indices().map(|layout| self.layout(op, dtype, *layout, indices));
        let target = View { dtype: plan.op().out_dtype(dtype), layout: result };
        let positions = named.as_ref().map(|layout| View { dtype: DType::I64, layout });
        let replanned = Pool::new(plan.op(), View { dtype, layout: &given }, positions, plan.options(), target)?;
        let operands = [Some((input, given)), indices.zip(named)];
        let stored = |(storage, view)| Values::Stored { storage, view, group: 1 };
        let operands_of_call = operands.iter().flatten().copied().map(stored).collect();
        let call = Call { op, dtype, view: *result, operands: operands_of_call, factors: (1.0, 0.0) };
        let run = |out: &mut Erased| {
            let indices = indices.map(Held::read);
            self.inner.pool(&replanned, &input.read(), indices.as_deref(), out)
        };
        let Kind::Windows(change) = self.fault.kind else { return self.run(&call, out, run) };
        if !self.fault.touches(op, dtype) {
            return self.run(&call, out, run);
        }
        let host = |(storage, layout): &(&Held, Layout)| -> Result<Input> {
            Ok(Input::Tensor(HostTensor { layout: *layout, ..self.peek(&storage.read())? }))
        };
        let inputs = operands.iter().flatten().map(host).collect::<Result<_>>()?;
        let out = &mut *out.write();
        let old = HostTensor { layout: *result, ..self.peek(out)? };
        let options = *plan.options();
        let case = Case { call: CaseCall::Pool { op: plan.op(), options }, inputs, out: old };
        if work(plan.op(), &options, &case) > MOST_PLACES {
            return run(out);
        }
        let values = changed(plan.op(), &options, &case, change);
        self.rewrite(&call, out, run, |written| {
            for (&at, &value) in written.walked.iter().zip(&values) {
                written.after.set_bits(at, encode(target.dtype, value));
            }
        })
    }
}
