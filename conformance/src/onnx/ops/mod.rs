//! ONNX's operators as the frontend calls that a user would write for them, in the files of the families that they use.

mod activation;
mod attention;
mod binary;
mod compare;
mod conv;
mod copy;
mod index;
mod loss;
mod matmul;
mod normalize;
mod pool;
mod reduce;
mod resize;
mod scan;
mod sort;
mod unary;
mod view;

use super::node::{Lowered, Node, Stop};
use super::trace::{Tensor, Trace};

/// The outputs of a node.
pub(super) fn run(trace: &Trace, node: &Node<'_>) -> Lowered<Vec<Tensor>> {
    for lower in [
        unary::lower,
        binary::lower,
        compare::lower,
        copy::lower,
        reduce::lower,
        scan::lower,
        sort::lower,
        matmul::lower,
        index::lower,
        conv::lower,
        pool::lower,
        resize::lower,
        attention::lower,
        view::lower,
        activation::lower,
        normalize::lower,
        loss::lower,
    ] {
        if let Some(outputs) = lower(trace, node)? {
            return Ok(outputs);
        }
    }
    Err(Stop::NotCovered(format!("op {}", node.op())))
}

/// What a file answers: the outputs, or `None` for an operator of another file.
type Outputs = Lowered<Option<Vec<Tensor>>>;

/// The single output of a node.
fn one(tensor: Tensor) -> Outputs {
    Ok(Some(vec![tensor]))
}
