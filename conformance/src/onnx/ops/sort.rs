//! Sorts.

use congruent_backend_api::Scalar;

use super::Outputs;
use crate::onnx::node::{Node, only, sizes, to_isize};
use crate::onnx::trace::Trace;

pub(super) fn lower(trace: &Trace, node: &Node<'_>) -> Outputs {
    if node.op() != "TopK" {
        return Ok(None);
    }
    let (x, axis, largest) = (node.input(0)?, node.size("axis", -1), node.flag("largest", true));
    // In any order if not sorted, and so in order too.
    node.flag("sorted", true);
    let k = match only(node.input(1)?)? {
        Scalar::Int(k) => sizes(&[to_isize(k)])?[0],
        _ => return Err(node.not_covered("whose k is no integer")),
    };
    let (values, positions) = trace.topk(x, k, axis, largest)?;
    Ok(Some(vec![values, positions]))
}
