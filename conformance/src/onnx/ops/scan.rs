//! Scans.

use congruent_backend_api::ops::scan::{ScanOp, ScanRange};

use super::{Outputs, one};
use crate::onnx::node::{Node, integers};
use crate::onnx::trace::Trace;

pub(super) fn lower(trace: &Trace, node: &Node<'_>) -> Outputs {
    let op = match node.op() {
        "CumProd" => ScanOp::Prod,
        "CumSum" => ScanOp::Sum,
        _ => return Ok(None),
    };
    let range = ScanRange { exclusive: node.flag("exclusive", false), reverse: node.flag("reverse", false) };
    let Some(&axis) = integers(node.input(1)?)?.first() else { return Err(node.not_covered("without an axis")) };
    one(trace.scan(op, node.input(0)?, axis, range)?)
}
