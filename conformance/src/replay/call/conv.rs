//! Convolutions and their gradients.

use congruent_backend_api::Shape;
use congruent_backend_api::ops::conv::{Conv, ConvOp, ConvOptions, MAX_SPATIAL};

use super::{Given, Stop};
use crate::case::{Call, Case, Input};
use crate::replay::fields::{Node, Result};
use crate::replay::operand::{Operand, Target};

impl Given {
    /// `output_padding` or `input_shape` say how large a transpose is, `weight_shape` what a gradient by the weight; where the
    /// file gives the output, that does.
    pub(super) fn conv(mut self, op: ConvOp) -> Result<Case, Stop> {
        let (a, b) = (self.tensor(0)?, self.tensor(1)?);
        let bias = match self.operands.get(2) {
            Some(Operand::Null(_)) | None => None,
            Some(_) => Some(self.tensor(2)?),
        };
        let axes = a.layout.rank().saturating_sub(2);
        let mut options = ConvOptions::default();
        if let Some(node) = self.args.optional("stride") {
            options.stride = per_axis(node, axes, options.stride, |node| node.unsigned())?;
        }
        if let Some(node) = self.args.optional("padding") {
            options.padding = per_axis(node, axes, options.padding, sides)?;
        }
        if let Some(node) = self.args.optional("dilation") {
            options.dilation = per_axis(node, axes, options.dilation, |node| node.unsigned())?;
        }
        if let Some(node) = self.args.optional("groups") {
            options.groups = node.unsigned()?;
        }
        let mut more = [0; MAX_SPATIAL];
        if op == ConvOp::ConvTranspose
            && let Some(node) = self.args.optional("output_padding")
        {
            more = per_axis(node, axes, more, |node| node.unsigned())?;
        }
        let sizes = match op {
            ConvOp::Conv => None,
            ConvOp::ConvTranspose => self.args.optional("input_shape").map(Node::sizes).transpose()?,
            ConvOp::ConvGradWeight => self.args.optional("weight_shape").map(Node::sizes).transpose()?,
        };
        let (left, right) = (a.layout.shape(), b.layout.shape());
        let shape = match (op, sizes, &self.into) {
            (_, Some(sizes), _) => Shape::new(op.name(), &sizes)?,
            (_, None, Target::Given(out)) => *out.layout.shape(),
            (ConvOp::Conv, ..) => Conv::shape(left, right, &options)?,
            (ConvOp::ConvTranspose, ..) => Conv::transpose_shape(left, right, &options, more)?,
            (ConvOp::ConvGradWeight, ..) => return Err(self.args.fail("the field `weight_shape` is missing").into()),
        };
        let activation = self.activation()?;
        let out = self.into.output(a.dtype, shape)?;
        self.args.finish()?;
        let inputs = [Some(a), Some(b), bias].into_iter().flatten().map(Input::Tensor).collect();
        Ok(Case { call: Call::Conv { op, options, activation }, inputs, out })
    }
}

/// One value for all axes, or a list with one for each.
pub(super) fn per_axis<T: Copy>(
    node: Node,
    axes: usize,
    mut values: [T; MAX_SPATIAL],
    read: impl Fn(Node) -> Result<T>,
) -> Result<[T; MAX_SPATIAL]> {
    if !node.value.is_array() {
        return Ok([read(node)?; MAX_SPATIAL]);
    }
    let wrong = node.fail(format!("expected one value for each of the {axes} spatial axes"));
    let list = node.list()?;
    if list.len() != axes || axes > MAX_SPATIAL {
        return Err(wrong);
    }
    for (value, node) in values.iter_mut().zip(list) {
        *value = read(node)?;
    }
    Ok(values)
}

/// Padding on both sides, as one number or as two.
pub(super) fn sides(node: Node) -> Result<[usize; 2]> {
    if !node.value.is_array() {
        return node.unsigned().map(|size| [size; 2]);
    }
    let wrong = node.fail("expected a number, or the numbers before and after");
    node.sizes()?.try_into().map_err(|_| wrong)
}
