//! Attention and its gradients.

use congruent_backend_api::ops::attention::{Alignment, Attention, AttentionOp, AttentionOptions, Dropout};
use congruent_backend_api::{DType, Scalar, Shape};

use super::{Given, Stop};
use crate::case::Call;
use crate::replay::data::scalar;
use crate::replay::fields::Result;
use crate::replay::operand::Operand;

impl Given {
    /// Operands that are `null` are absent.
    pub(super) fn attention(&mut self, op: AttentionOp) -> Result<(Call, DType, Shape), Stop> {
        let [q, k, v] = [self.tensor(0)?, self.tensor(1)?, self.tensor(2)?];
        let absent = |operand: &Operand| matches!(operand, Operand::Null(_));
        let given = std::array::from_fn(|index| self.operands.get(index).is_some_and(|operand| !absent(operand)));
        self.operands.retain(|operand| !absent(operand));
        let options = self.attention_options()?;
        let shape = Attention::shape(op, q.layout.shape(), k.layout.shape(), v.layout.shape())?;
        Ok((Call::Attention { op, options, given }, q.dtype, shape))
    }

    fn attention_options(&mut self) -> Result<AttentionOptions> {
        let args = &mut self.args;
        let alignment = match args.optional("alignment") {
            None => Alignment::Last,
            Some(node) => match node.text()? {
                "last" => Alignment::Last,
                "first" => Alignment::First,
                _ => return Err(node.fail("expected \"last\" or \"first\"")),
            },
        };
        let mut number = |name| args.given(name).map(|node| scalar(&node, DType::F64).map(Scalar::to_f64)).transpose();
        let (scale, soft_cap) = (number("scale")?, number("soft_cap")?);
        let dropout = args.given("dropout").map(|node| {
            let mut fields = node.fields()?;
            let probability = fields.required("probability")?.tolerance()?;
            let mut word = |name| Ok(fields.optional(name).map_or(Ok(0), |node| node.unsigned())? as u64);
            let dropout = Dropout { probability, seed: word("seed")?, offset: word("offset")? };
            fields.finish()?;
            Ok(dropout)
        });
        Ok(AttentionOptions {
            scale,
            causal: args.optional("causal").map_or(Ok(false), |causal| causal.truth())?,
            alignment,
            window: args.given("window").map(|window| window.unsigned()).transpose()?,
            soft_cap,
            dropout: dropout.transpose()?,
        })
    }
}
