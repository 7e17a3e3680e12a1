//! Pooling and its gradients.

use congruent_backend_api::Shape;
use congruent_backend_api::ops::pool::{Divisor, Pool, PoolOp, PoolOptions};

use super::conv::{per_axis, sides};
use super::{Given, Stop};
use crate::case::{Call, Case, Input};
use crate::replay::fields::Node;
use crate::replay::operand::Target;

impl Given {
    /// `input_shape` says how large the result of a gradient is; where the file gives the output, that does.
    pub(super) fn pool(mut self, op: PoolOp) -> Result<Case, Stop> {
        let given = self.tensor(0)?;
        let positions = if op == PoolOp::MaxPoolGrad { Some(self.tensor(1)?) } else { None };
        let axes = given.layout.rank().saturating_sub(2);
        let size = |node: Node| node.unsigned();
        let mut options = PoolOptions::new(per_axis(self.args.required("kernel")?, axes, [1; 3], size)?);
        if let Some(node) = self.args.optional("stride") {
            options.stride = per_axis(node, axes, options.stride, size)?;
        }
        if let Some(node) = self.args.optional("padding") {
            options.padding = per_axis(node, axes, options.padding, sides)?;
        }
        if let Some(node) = self.args.optional("dilation") {
            options.dilation = per_axis(node, axes, options.dilation, size)?;
        }
        if let Some(node) = self.args.optional("ceil_mode") {
            options.ceil = node.truth()?;
        }
        if matches!(op, PoolOp::AvgPool | PoolOp::AvgPoolGrad) {
            let padded = self.args.optional("count_include_pad").map_or(Ok(true), |node| node.truth())?;
            options.divisor = match self.args.given("divisor") {
                Some(node) => Divisor::Fixed(node.unsigned()?),
                None if padded => Divisor::Padded,
                None => Divisor::Elements,
            };
        }
        let sizes = match op.is_gradient() {
            true => self.args.optional("input_shape").map(Node::sizes).transpose()?,
            false => None,
        };
        let shape = match (sizes, &self.into) {
            (Some(sizes), _) => Shape::new(op.name(), &sizes)?,
            (None, Target::Given(out)) => *out.layout.shape(),
            (None, _) if op.is_gradient() => return Err(self.args.fail("the field `input_shape` is missing").into()),
            (None, _) => Pool::shape(op, given.layout.shape(), &options)?,
        };
        let out = self.into.output(op.out_dtype(given.dtype), shape)?;
        self.args.finish()?;
        let inputs = [Some(given), positions].into_iter().flatten().map(Input::Tensor).collect();
        Ok(Case { call: Call::Pool { op, options }, inputs, out })
    }
}
