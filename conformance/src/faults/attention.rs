//! Wrong attention: each fault is a correct call of something else.

use congruent_backend_api::erase::Erased;
use congruent_backend_api::ops::attention::{Attention, AttentionOptions};
use congruent_backend_api::{AttentionOps, DType, Element, Layout, Op, Result, Shape, View};

use super::call::{Call, Values};
use super::{Faulty, Held, Kind, Special};
use crate::host::{HostTensor, decode, encode_float, positions};

impl AttentionOps for Faulty {
    fn attention(
        &self,
        plan: &Attention,
        q: &Held,
        k: &Held,
        v: &Held,
        mask: Option<&Held>,
        out: &mut Held,
    ) -> Result<()> {
        let (op, dtype) = (Op::Attention, plan.dtype());
        let layouts: [Layout; 4] = std::array::from_fn(|operand| {
            let storage = [Some(q), Some(k), Some(v), mask][operand];
            self.layout(op, dtype, *plan.layout(operand + 1), storage)
        });
        let special = match self.fault.kind {
            Kind::Special(special) if self.fault.touches(op, dtype) => Some(special),
            _ => None,
        };
        let scale = if special == Some(Special::ScaleLost) { 1.0 } else { plan.scale() };
        let options = AttentionOptions { scale: Some(scale), causal: plan.causal() };
        let over = |operand: usize| View { dtype, layout: &layouts[operand] };
        let mask_view = plan.mask().map(|dtype| View { dtype, layout: &layouts[3] });
        let target = View { dtype, layout: plan.layout(0) };
        let changed = Attention::new(over(0), over(1), over(2), mask_view, options, target)?;
        let (rows, columns, inner) = (plan.queries(), plan.width(), plan.depth());
        let operands = vec![Values::Matrix { storage: q, view: layouts[0], rows, columns, inner, left: true }];
        let call = Call { op, dtype, view: *plan.layout(0), operands, factors: (plan.scale(), 0.0) };
        self.run(&call, out, |out| {
            let mask = mask.map(Held::read);
            let (q, k, v) = (q.read(), k.read(), v.read());
            let inputs = [&*q, &*k, &*v];
            match special {
                Some(Special::CausalLate) if plan.causal() && mask.is_none() => self.late(plan, inputs, out),
                Some(Special::HeadModulo) if plan.group() > 1 => self.modulo(plan, inputs, mask.as_deref(), out),
                Some(Special::MaskInverted) if plan.mask() == Some(DType::Bool) => {
                    let Some(mask) = mask.as_deref() else { return Ok(()) };
                    let seen = self.peek(mask)?;
                    let hidden: Vec<u8> = seen.bytes.iter().map(|&byte| u8::from(byte == 0)).collect();
                    let mut inverted = self.inner.alloc(DType::Bool, hidden.len())?;
                    self.inner.write(&hidden, &mut inverted, 0)?;
                    self.inner.attention(&changed, inputs[0], inputs[1], inputs[2], Some(&inverted), out)
                }
                _ => {
                    self.inner.attention(&changed, inputs[0], inputs[1], inputs[2], mask.as_deref(), out)?;
                    if special == Some(Special::BlindNan) { self.blind(plan, mask.as_deref(), out) } else { Ok(()) }
                }
            }
        })
    }
}

impl Faulty {
    /// Every query sees one key more.
    fn late(&self, plan: &Attention, [q, k, v]: [&Erased; 3], out: &mut Erased) -> Result<()> {
        let (queries, keys) = (plan.queries(), plan.keys());
        let seen: Vec<bool> = (0..queries * keys).map(|at| at % keys + queries <= at / keys + keys + 1).collect();
        let mut mask = self.inner.alloc(DType::Bool, seen.len())?;
        self.inner.write(bool::as_bytes(&seen), &mut mask, 0)?;
        let layout = Layout::contiguous(Shape::new("fault", &[queries, keys])?);
        let view = |operand: usize| View { dtype: plan.dtype(), layout: plan.layout(operand) };
        let options = AttentionOptions { scale: Some(plan.scale()), causal: false };
        let mask_view = Some(View { dtype: DType::Bool, layout: &layout });
        let masked = Attention::new(view(1), view(2), view(3), mask_view, options, view(0))?;
        self.inner.attention(&masked, q, k, v, Some(&mask), out)
    }

    /// Head h reads key head h modulo their number.
    fn modulo(&self, plan: &Attention, [q, k, v]: [&Erased; 3], mask: Option<&Erased>, out: &mut Erased) -> Result<()> {
        let dtype = plan.dtype();
        let (k, k_layout) = self.spread(plan, k, 2)?;
        let (v, v_layout) = self.spread(plan, v, 3)?;
        let view = |layout| View { dtype, layout };
        let options = AttentionOptions { scale: Some(plan.scale()), causal: plan.causal() };
        let mask_view = plan.mask().map(|dtype| View { dtype, layout: plan.layout(4) });
        let (q_view, target) = (view(plan.layout(1)), view(plan.layout(0)));
        let changed = Attention::new(q_view, view(&k_layout), view(&v_layout), mask_view, options, target)?;
        self.inner.attention(&changed, q, &k, &v, mask, out)
    }

    /// Keys or values with a head of their own for each head of q.
    fn spread(&self, plan: &Attention, storage: &Erased, operand: usize) -> Result<(Erased, Layout)> {
        let (from, layout) = (self.peek(storage)?, plan.layout(operand));
        let (heads, shape) = (plan.heads(), layout.shape());
        let size = shape[2] * shape[3];
        let shape = Shape::new("fault", &[shape[0], heads, shape[2], shape[3]])?;
        let spread = Layout::contiguous(shape);
        let mut to =
            HostTensor { dtype: from.dtype, layout: spread, bytes: vec![0; shape.count() * from.dtype.size()] };
        let walked = positions(layout);
        for at in 0..shape.count() {
            let (head, rest) = (at / size, at % size);
            let shared = head / heads * plan.kv_heads() + head % heads % plan.kv_heads();
            to.set_bits(at, from.bits(walked[shared * size + rest]));
        }
        let mut copy = self.inner.alloc(from.dtype, shape.count())?;
        self.inner.write(&to.bytes, &mut copy, 0)?;
        Ok((copy, spread))
    }

    /// Queries that see no key give NaN.
    fn blind(&self, plan: &Attention, mask: Option<&Erased>, out: &mut Erased) -> Result<()> {
        let mask = mask.map(|mask| self.peek(mask)).transpose()?;
        let mut result = self.peek(out)?;
        let (walked, places) = (positions(plan.layout(0)), positions(plan.layout(4)));
        let shown = |at: usize| {
            mask.as_ref().is_none_or(|mask| match decode(mask.dtype, mask.bits(places[at])) {
                value if mask.dtype == DType::Bool => value.to_bool(),
                value => value.to_f64() != f64::NEG_INFINITY,
            })
        };
        for (row, elements) in walked.chunks(plan.width().max(1)).enumerate() {
            let reach = plan.reach(row % plan.queries());
            if !(0..reach).any(|key| shown(row * plan.keys() + key)) {
                let nan = encode_float(result.dtype, f64::NAN);
                elements.iter().for_each(|&at| result.set_bits(at, nan));
            }
        }
        self.inner.write(&result.bytes, out, 0)
    }
}
