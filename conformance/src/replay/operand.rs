//! What a call reads and what it writes into.

use congruent_backend_api::ops::attention::{Attention, AttentionOp};
use congruent_backend_api::{DType, Error, ErrorKind, Layout, Result, Shape};

use super::fields::Node;
use crate::case::{Call, poisoned};
use crate::host::HostTensor;
use crate::spec::Placement;

/// An operand as the file gives it.
#[derive(Debug)]
pub(super) enum Operand {
    Tensor(HostTensor),
    /// The value is read once the dtype is known.
    Scalar(Node),
    /// `null`: absent, or the output where the file gives that.
    Null(Node),
}

/// What the op writes into.
#[derive(Debug)]
pub(super) enum Target {
    /// A new row-major output.
    Fresh,
    /// A poisoned output of another layout.
    Elsewhere,
    /// This storage.
    Given(Box<HostTensor>),
}

impl Target {
    /// The output of a call whose result has this dtype and shape.
    pub(super) fn output(self, dtype: DType, shape: Shape) -> Result<HostTensor> {
        match self {
            Self::Given(out) => Ok(*out),
            Self::Fresh => reserved(dtype, (Layout::contiguous(shape), shape.count()), 0),
            Self::Elsewhere => elsewhere(dtype, &shape),
        }
    }
}

/// A poisoned output that is transposed, strided, offset and guarded.
pub(super) fn elsewhere(dtype: DType, shape: &[usize]) -> Result<HostTensor> {
    let placement = Placement { order: (0..8).rev().collect(), steps: vec![2, 1, 1, 1, 1, 1, 1, 1], offset: 3 };
    reserved(dtype, placement.layout(shape)?, 1)
}

/// A poisoned output, if there is room for one.
fn reserved(dtype: DType, (layout, len): (Layout, usize), seed: u64) -> Result<HostTensor> {
    let room = len.checked_mul(dtype.size()).is_some_and(|bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok());
    if room {
        return Ok(poisoned(dtype, (layout, len), seed));
    }
    let message = format!("a result of {len} {dtype} elements does not fit into the memory of the kit");
    Err(Error::new(ErrorKind::OutOfMemory, "replay", message))
}

/// The dtype of the result for operands of `dtype`.
pub(super) fn result_dtype(call: &Call, dtype: DType) -> DType {
    match call {
        Call::Unary(op) => op.out_dtype(dtype),
        Call::Reduce { op, .. } => op.out_dtype(dtype),
        Call::Compare(_) => DType::Bool,
        Call::Sort { op, .. } => op.out_dtype(dtype),
        Call::Pool { op, .. } => op.out_dtype(dtype),
        Call::ArgReduce { .. } | Call::Nonzero | Call::SearchSorted { .. } => DType::I64,
        Call::Attention { op: AttentionOp::LogSumExp, .. } => Attention::wide(dtype),
        _ => dtype,
    }
}
