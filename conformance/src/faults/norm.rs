//! The norms of the wrapper: every element of the output takes whole rows.

use congruent_backend_api::ops::norm::Normalize;
use congruent_backend_api::{Layout, NormOps, Result, View};

use super::call::{Call, Values};
use super::{Faulty, Held, Kind};

#[deny(clippy::missing_trait_methods, reason = "the composition would hide the backend's own normalisations")]
impl NormOps for Faulty {
    fn normalize(
        &self,
        plan: &Normalize,
        x: &Held,
        weight: Option<&Held>,
        bias: Option<&Held>,
        out: &mut Held,
    ) -> Result<()> {
        self.rows(plan, [Some(x), weight, bias], out)
    }

    fn normalize_grad(
        &self,
        plan: &Normalize,
        x: &Held,
        grad: &Held,
        weight: Option<&Held>,
        out: &mut Held,
    ) -> Result<()> {
        self.rows(plan, [Some(x), Some(grad), weight], out)
    }
}

impl Faulty {
    /// Operands of an element are the row of each input, then its own element of each input.
    fn rows(&self, plan: &Normalize, inputs: [Option<&Held>; 3], out: &Held) -> Result<()> {
        let (op, dtype, rank) = (plan.full_op(), plan.dtype(), plan.layout(0).rank());
        let layouts: [Layout; 3] =
            std::array::from_fn(|input| self.layout(op, dtype, *plan.layout(input + 1), inputs[input]));
        let (row, kept): (Vec<isize>, Vec<isize>) = (0..rank as isize).partition(|&axis| plan.mask()[axis as usize]);
        let order = [kept, row.clone()].concat();
        let view = plan.layout(0).permute(&order)?;
        let width = row.iter().map(|&axis| plan.layout(0).shape()[axis as usize]).product();
        let (mut rows, mut elements) = (Vec::new(), Vec::new());
        for (storage, layout) in inputs.iter().zip(&layouts) {
            if let Some(storage) = *storage {
                let view = layout.permute(&order)?;
                rows.push(Values::Row { storage, view, len: width, taken: width });
                elements.push(Values::Stored { storage, view, group: 1 });
            }
        }
        rows.extend(elements);
        let over = |input: usize| inputs[input].map(|_| View { dtype, layout: &layouts[input] });
        let (target, epsilon) = (View { dtype, layout: plan.layout(0) }, plan.epsilon());
        let x = View { dtype, layout: &layouts[0] };
        let changed = match (self.fault.kind, over(1)) {
            (Kind::Input(_), Some(grad)) if plan.is_gradient() => {
                Normalize::gradient(plan.op(), epsilon, Some(&row), x, grad, over(2), target)?
            }
            (Kind::Input(_), weight) => Normalize::new(plan.op(), epsilon, Some(&row), x, weight, over(2), target)?,
            _ => *plan,
        };
        let call = Call { op, dtype, view, operands: rows, factors: (epsilon, 0.0) };
        self.run(&call, out, |out| {
            let [x, second, third] = inputs.map(|input| input.map(Held::read));
            let Some(x) = x.as_deref() else { return Ok(()) };
            match (plan.is_gradient(), second.as_deref()) {
                (true, Some(grad)) => self.inner.normalize_grad(&changed, x, grad, third.as_deref(), out),
                (_, weight) => self.inner.normalize(&changed, x, weight, third.as_deref(), out),
            }
        })
    }
}
