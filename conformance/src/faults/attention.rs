//! Wrong attention: each fault is a correct call of something else.

use congruent_backend_api::erase::Erased;
use congruent_backend_api::ops::attention::{
    Alignment, Attention, AttentionInputs, AttentionOp, AttentionOptions, Dropout,
};
use congruent_backend_api::{AttentionOps, DType, Element, Error, ErrorKind, Layout, Op, Result, Shape, Slice, View};

use super::call::{Call, Values};
use super::{Faulty, Held, Kind, Special};
use crate::host::{HostTensor, decode, encode_float, positions};

/// Operands, their dtypes and layouts, in the order of [`AttentionInputs::to_array`].
type Operands<'a> = [Option<(&'a Erased, DType, Layout)>; 9];

impl AttentionOps for Faulty {
    fn attention(&self, plan: &Attention, inputs: AttentionInputs<&Held>, out: &mut Held) -> Result<()> {
        let (op, dtype) = (Op::Attention(plan.op()), plan.dtype());
        let given = inputs.to_array();
        let layouts: [Layout; 9] =
            std::array::from_fn(|index| self.layout(op, dtype, *plan.layout(index + 1), given[index]));
        let special = match self.fault.kind {
            Kind::Special(special) if self.fault.touches(op, dtype) => Some(special),
            _ => None,
        };
        let options = changed(plan.options(), special);
        let by_key = matches!(plan.op(), AttentionOp::GradKey | AttentionOp::GradValue);
        let (storage, view) = if by_key { (inputs.k, layouts[1]) } else { (inputs.q, layouts[0]) };
        let columns = plan.layout(0).shape().get(3).copied().unwrap_or(1);
        let (rows, inner) = (view.shape()[2], plan.depth());
        let operands = vec![Values::Matrix { storage, view, rows, columns, inner, left: true }];
        let call = Call { op, dtype, view: *plan.layout(0), operands, factors: (plan.scale(), 0.0) };
        self.run(&call, out, |out| {
            let held = given.map(|held| held.map(Held::read));
            let operands: Operands<'_> =
                std::array::from_fn(|index| Some((&**held[index].as_ref()?, plan.operand(index + 1)?, layouts[index])));
            match special {
                Some(Special::CausalLate) if plan.band().causal && operands[3].is_none() && operands[5].is_none() => {
                    self.late(plan, operands, options, out)
                }
                Some(Special::HeadModulo) if plan.group() > 1 && !by_key => self.modulo(plan, operands, options, out),
                Some(Special::GroupLost) if plan.group() > 1 && by_key => {
                    self.first_heads(plan, operands, options, out)
                }
                Some(Special::DeltaLost) if plan.op().is_gradient() => {
                    let (mut operands, count) = (operands, plan.layout(9).count());
                    let wide = Attention::wide(dtype);
                    let mut zeros = self.inner.alloc(wide, count)?;
                    self.inner.write(&vec![0; count * wide.size()], &mut zeros, 0)?;
                    operands[8] = Some((&zeros, wide, Layout::contiguous(*plan.layout(9).shape())));
                    self.attend(plan.op(), operands, options, plan.layout(0), out)
                }
                Some(Special::MaskInverted) if plan.mask() == Some(DType::Bool) => {
                    let (mut operands, Some((mask, ..))) = (operands, operands[3]) else { return Ok(()) };
                    let seen = self.peek(mask)?;
                    let hidden: Vec<u8> = seen.bytes.iter().map(|&byte| u8::from(byte == 0)).collect();
                    let mut inverted = self.inner.alloc(DType::Bool, hidden.len())?;
                    self.inner.write(&hidden, &mut inverted, 0)?;
                    operands[3] = Some((&inverted, DType::Bool, layouts[3]));
                    self.attend(plan.op(), operands, options, plan.layout(0), out)
                }
                Some(Special::LengthsLost | Special::SlopesLost) => {
                    let mut operands = operands;
                    operands[if special == Some(Special::SlopesLost) { 4 } else { 5 }] = None;
                    self.attend(plan.op(), operands, options, plan.layout(0), out)
                }
                _ => {
                    self.attend(plan.op(), operands, options, plan.layout(0), out)?;
                    let blind = special == Some(Special::BlindNan) && plan.op() == AttentionOp::Output;
                    if blind { self.blind(plan, operands, out) } else { Ok(()) }
                }
            }
        })
    }
}

/// The options of a faulty call.
fn changed(options: AttentionOptions, special: Option<Special>) -> AttentionOptions {
    match special {
        Some(Special::AlignmentSwapped) => {
            let swapped = if options.alignment == Alignment::Last { Alignment::First } else { Alignment::Last };
            AttentionOptions { alignment: swapped, ..options }
        }
        Some(Special::DropoutLost) => AttentionOptions { dropout: None, ..options },
        Some(Special::DropoutShifted) => {
            let shift = |dropout: Dropout| Dropout { offset: dropout.offset.wrapping_add(1), ..dropout };
            AttentionOptions { dropout: options.dropout.map(shift), ..options }
        }
        Some(Special::ScaleLost) => AttentionOptions { scale: Some(1.0), ..options },
        Some(Special::SoftCapLost) => AttentionOptions { soft_cap: None, ..options },
        Some(Special::WindowLate) => {
            AttentionOptions { window: options.window.map(|window| window.saturating_add(1)), ..options }
        }
        _ => options,
    }
}

impl Faulty {
    fn attend(
        &self,
        op: AttentionOp,
        operands: Operands<'_>,
        options: AttentionOptions,
        out_layout: &Layout,
        out: &mut Erased,
    ) -> Result<()> {
        let missing = || Error::new(ErrorKind::Argument, op.name(), "an operand is missing");
        let views = operands
            .each_ref()
            .map(|operand| operand.as_ref().map(|(_, dtype, layout)| View { dtype: *dtype, layout }));
        let storages = operands.map(|operand| operand.map(|(storage, ..)| storage));
        let target = View { dtype: congruent_backend_api::Storage::dtype(out), layout: out_layout };
        let views = AttentionInputs::from_array(views).ok_or_else(missing)?;
        let plan = Attention::new(op, views, options, target)?;
        self.inner.attention(&plan, AttentionInputs::from_array(storages).ok_or_else(missing)?, out)
    }

    /// Every query sees one key more.
    fn late(
        &self,
        plan: &Attention,
        operands: Operands<'_>,
        options: AttentionOptions,
        out: &mut Erased,
    ) -> Result<()> {
        let (queries, keys) = (plan.queries(), plan.keys());
        let shift = plan.band().shift(keys);
        let sees = |at: usize| (at % keys) as isize <= (at / keys) as isize + shift + 1;
        let seen: Vec<bool> = (0..queries * keys).map(sees).collect();
        let mut mask = self.inner.alloc(DType::Bool, seen.len())?;
        self.inner.write(bool::as_bytes(&seen), &mut mask, 0)?;
        let mut operands = operands;
        operands[3] = Some((&mask, DType::Bool, Layout::contiguous(Shape::new("fault", &[queries, keys])?)));
        self.attend(plan.op(), operands, AttentionOptions { causal: false, ..options }, plan.layout(0), out)
    }

    /// Head h reads key head h modulo their number.
    fn modulo(
        &self,
        plan: &Attention,
        operands: Operands<'_>,
        options: AttentionOptions,
        out: &mut Erased,
    ) -> Result<()> {
        let [Some((k, dtype, _)), Some((v, ..))] = [operands[1], operands[2]] else { return Ok(()) };
        let (k, k_layout) = self.spread(plan, k, 2)?;
        let (v, v_layout) = self.spread(plan, v, 3)?;
        let mut operands = operands;
        (operands[1], operands[2]) = (Some((&k, dtype, k_layout)), Some((&v, dtype, v_layout)));
        self.attend(plan.op(), operands, options, plan.layout(0), out)
    }

    /// Of the heads that share a key head, only the first adds to its gradients.
    fn first_heads(
        &self,
        plan: &Attention,
        operands: Operands<'_>,
        options: AttentionOptions,
        out: &mut Erased,
    ) -> Result<()> {
        let first = Slice { step: plan.group() as isize, ..Slice::FULL };
        let mut changed = operands;
        for index in [0, 3, 4, 6, 7, 8] {
            if let Some((storage, dtype, layout)) = operands[index] {
                changed[index] = Some((storage, dtype, layout.slice(1, first)?));
            }
        }
        self.attend(plan.op(), changed, options, plan.layout(0), out)
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
    fn blind(&self, plan: &Attention, operands: Operands<'_>, out: &mut Erased) -> Result<()> {
        let mask = operands[3].map(|(mask, ..)| self.peek(mask)).transpose()?;
        let mut result = self.peek(out)?;
        let (walked, places) = (positions(plan.layout(0)), positions(plan.layout(4)));
        let shown = |at: usize| {
            mask.as_ref().is_none_or(|mask| match decode(mask.dtype, mask.bits(places[at])) {
                value if mask.dtype == DType::Bool => value.to_bool(),
                value => value.to_f64() != f64::NEG_INFINITY,
            })
        };
        for (row, elements) in walked.chunks(plan.width().max(1)).enumerate() {
            let mut seen = plan.band().keys(row % plan.queries(), plan.keys());
            if !seen.any(|key| shown(row * plan.keys() + key)) {
                let nan = encode_float(result.dtype, f64::NAN);
                elements.iter().for_each(|&at| result.set_bits(at, nan));
            }
        }
        self.inner.write(&result.bytes, out, 0)
    }
}
