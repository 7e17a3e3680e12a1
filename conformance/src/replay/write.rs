//! Writing a case as a replay file.

use congruent_backend_api::ops::statistic::StatisticOp;
use congruent_backend_api::{DType, Op, Scalar};
use serde_json::{Value, json};

use super::data::{scalar_json, tensor_json};
use crate::case::{Call, Case, Input};

/// A case as JSON that the oracle judges when it is read back. Reading it gives the same case: the output is written as
/// the field `into`, with its layout and all of its storage, and an operand in place as `null`.
#[must_use]
pub fn to_json(case: &Case, name: &str, note: &str) -> Value {
    let mut inputs = Vec::new();
    let mut args = args(case);
    // The one scalar of a binary op stands among the arguments.
    let scalars = case.inputs.iter().filter(|input| matches!(input, Input::Scalar(_))).count();
    let argument = scalars == 1 && matches!(case.call, Call::Binary(_) | Call::Compare(_));
    for (index, input) in case.inputs.iter().enumerate() {
        match input {
            Input::Tensor(tensor) => inputs.push(tensor_json(tensor)),
            Input::InPlace => inputs.push(Value::Null),
            Input::Scalar(scalar) => {
                let scalar = scalar_json(operand_dtype(case, index), *scalar);
                if argument {
                    args["scalar"] = scalar;
                    args["side"] = if index == 0 { "left" } else { "right" }.into();
                } else {
                    inputs.push(json!({ "scalar": scalar }));
                }
            }
        }
    }
    let mut json = json!({
        "congruent_replay": 1,
        "name": name,
        "op": case.op().name(),
        "args": args,
        "inputs": inputs,
        "into": tensor_json(&case.out),
        "expect": { "oracle": true },
    });
    if !note.is_empty() {
        json["note"] = note.into();
    }
    json
}

fn operand_dtype(case: &Case, index: usize) -> DType {
    match case.call {
        Call::Where if index == 0 => DType::Bool,
        _ => case.dtype(),
    }
}

fn args(case: &Case) -> Value {
    let dtype = case.dtype();
    let scalar = |value: Scalar| scalar_json(dtype, value);
    let bound = |value: Option<Scalar>| value.map_or(Value::Null, scalar);
    let rank = |tensor: Option<&crate::host::HostTensor>| tensor.map(|tensor| tensor.layout.rank());
    let keepdim = rank(case.tensor(0)) == Some(case.out.layout.rank());
    match &case.call {
        Call::ArgReduce { axis, .. } => json!({ "axis": axis, "keepdim": keepdim }),
        Call::Reduce { axes, .. } => json!({ "axes": axes, "keepdim": keepdim }),
        Call::Statistic { op, parameter, axes } => {
            let mut args = json!({ "axes": axes, "keepdim": keepdim });
            let parameter = scalar_json(DType::F64, Scalar::Float(*parameter));
            match op {
                StatisticOp::LogSumExp => {}
                StatisticOp::Norm => args["ord"] = parameter,
                StatisticOp::Std | StatisticOp::Var => args["correction"] = parameter,
            }
            args
        }
        Call::Clamp { min, max } => json!({ "min": bound(*min), "max": bound(*max) }),
        Call::Fill(value) => json!({ "value": scalar(*value) }),
        Call::Matmul { alpha, beta } => json!({ "alpha": scalar(*alpha), "beta": scalar(*beta) }),
        Call::Copy if matches!(case.op(), Op::Cast(_)) => json!({ "dtype": case.out.dtype.name() }),
        Call::Binary(_) | Call::Compare(_) | Call::Copy | Call::Unary(_) | Call::Where => json!({}),
    }
}
