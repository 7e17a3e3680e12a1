//! Writing a case as a replay file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use congruent_backend_api::ops::attention::{Alignment, AttentionOptions, Dropout};
use congruent_backend_api::ops::conv::ConvOptions;
use congruent_backend_api::ops::linear::Activation;
use congruent_backend_api::ops::pool::{Divisor, PoolOp, PoolOptions};
use congruent_backend_api::ops::random::Distribution;
use congruent_backend_api::ops::sort::SortOp;
use congruent_backend_api::ops::statistic::StatisticOp;
use congruent_backend_api::{DType, Layout, Op, Scalar};
use serde_json::{Value, json};

use crate::case::{Call, Case, Input};
use crate::host::{HostTensor, decode, encode_float};

/// A case as JSON that the oracle judges when it is read back. Reading it gives the same case: the output is written as
/// the field `into`, with its layout and all of its storage, and an operand in place as `null`.
#[must_use]
pub fn to_json(case: &Case, name: &str, note: &str) -> Value {
    let mut inputs = Vec::new();
    let mut args = args(case);
    // The one scalar of a binary op stands among the arguments.
    let scalars = case.inputs.iter().filter(|input| matches!(input, Input::Scalar(_))).count();
    let argument = scalars == 1 && matches!(case.call, Call::Binary(_) | Call::Compare(_));
    let mut absent = absent(case).into_iter();
    for (index, input) in case.inputs.iter().enumerate() {
        while absent.next() == Some(true) {
            inputs.push(Value::Null);
        }
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

/// Which operands stand between those that are given.
fn absent(case: &Case) -> Vec<bool> {
    match &case.call {
        Call::Attention { given, .. } => given.iter().map(|given| !given).collect(),
        _ => Vec::new(),
    }
}

fn attention(options: &AttentionOptions) -> Value {
    let number = |number: Option<f64>| number.map_or(Value::Null, |x| scalar_json(DType::F64, Scalar::Float(x)));
    let mut args = json!({ "causal": options.causal, "scale": number(options.scale) });
    if options.alignment == Alignment::First {
        args["alignment"] = "first".into();
    }
    if let Some(window) = options.window {
        args["window"] = window.into();
    }
    if options.soft_cap.is_some() {
        args["soft_cap"] = number(options.soft_cap);
    }
    if let Some(Dropout { probability, seed, offset }) = options.dropout {
        args["dropout"] = json!({ "probability": probability, "seed": seed, "offset": offset });
    }
    args
}

fn args(case: &Case) -> Value {
    let dtype = case.dtype();
    let scalar = |value: Scalar| scalar_json(dtype, value);
    let bound = |value: Option<Scalar>| value.map_or(Value::Null, scalar);
    let rank = |tensor: Option<&HostTensor>| tensor.map(|tensor| tensor.layout.rank());
    let keepdim = rank(case.tensor(0)) == Some(case.out.layout.rank());
    match &case.call {
        Call::Attention { options, .. } => attention(options),
        Call::ArgReduce { axis, .. } => json!({ "axis": axis, "keepdim": keepdim }),
        Call::Normalize { axes, epsilon, .. } => json!({ "axes": axes, "eps": epsilon }),
        Call::Reduce { axes, .. } => json!({ "axes": axes, "keepdim": keepdim }),
        Call::Random { distribution, seed, offset } => {
            let mut args = json!({ "seed": seed, "offset": offset });
            match *distribution {
                Distribution::Bernoulli { probability } => args["probability"] = probability.into(),
                Distribution::Integer { low, high } => (args["low"], args["high"]) = (low.into(), high.into()),
                _ => {}
            }
            args
        }
        Call::Scan { axis, range, .. } => {
            json!({ "axis": axis, "exclusive": range.exclusive, "reverse": range.reverse })
        }
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
        Call::SearchSorted { right } => json!({ "right": right }),
        Call::Sort { op: SortOp::Topk, axis, descending } => {
            let axis_from_front = axis.rem_euclid(case.out.layout.rank() as isize) as usize;
            json!({ "axis": axis, "largest": descending, "k": case.out.layout.shape()[axis_from_front] })
        }
        Call::Sort { axis, descending, .. } => json!({ "axis": axis, "descending": descending }),
        Call::Conv { options, activation, .. } => {
            let mut args = conv(case.out.layout.rank().saturating_sub(2), options);
            if *activation != Activation::Identity {
                args["activation"] = activation.name().into();
            }
            args
        }
        Call::Pool { op, options } => pool(case.out.layout.rank().saturating_sub(2), *op, options),
        Call::Clamp { min, max } => json!({ "min": bound(*min), "max": bound(*max) }),
        Call::Fill(value) => json!({ "value": scalar(*value) }),
        Call::Linear { activation } => json!({ "activation": activation.name() }),
        Call::Matmul { alpha, beta } => json!({ "alpha": scalar(*alpha), "beta": scalar(*beta) }),
        Call::Gather { axis } | Call::Scatter { axis, .. } => json!({ "axis": axis }),
        Call::Copy if matches!(case.op(), Op::Cast(_)) => json!({ "dtype": case.out.dtype.name() }),
        Call::Binary(_) | Call::Compare(_) | Call::Copy | Call::Nonzero | Call::Unary(_) | Call::Where => json!({}),
    }
}

fn conv(axes: usize, options: &ConvOptions) -> Value {
    let ConvOptions { stride, padding, dilation, groups } = options;
    json!({ "stride": stride[..axes], "padding": padding[..axes], "dilation": dilation[..axes], "groups": groups })
}

fn pool(axes: usize, op: PoolOp, options: &PoolOptions) -> Value {
    let PoolOptions { kernel, stride, padding, dilation, ceil, divisor } = options;
    let mut json = json!({
        "kernel": kernel[..axes],
        "stride": stride[..axes],
        "padding": padding[..axes],
        "dilation": dilation[..axes],
        "ceil_mode": ceil,
    });
    if matches!(op, PoolOp::AvgPool | PoolOp::AvgPoolGrad) {
        match divisor {
            Divisor::Fixed(divisor) => json["divisor"] = (*divisor).into(),
            _ => json["count_include_pad"] = (*divisor == Divisor::Padded).into(),
        }
    }
    json
}

/// Storages of at most this many elements are written as lists.
const LIST: usize = 64;

/// A tensor with everything that the reader needs to rebuild it.
fn tensor_json(tensor: &HostTensor) -> Value {
    let layout = &tensor.layout;
    let mut json = json!({
        "dtype": tensor.dtype.name(),
        "shape": &**layout.shape(),
        "data": data_json(tensor),
    });
    if layout.strides() != Layout::contiguous(*layout.shape()).strides() {
        json["strides"] = layout.strides().into();
    }
    if layout.offset() != 0 {
        json["offset"] = layout.offset().into();
    }
    json
}

fn data_json(tensor: &HostTensor) -> Value {
    let (dtype, len) = (tensor.dtype, tensor.storage_len());
    let first = (len > 1).then(|| tensor.bits(0));
    if let Some(bits) = first.filter(|&bits| (1..len).all(|at| tensor.bits(at) == bits)) {
        return json!({ "full": element_json(dtype, bits), "len": len });
    }
    if len <= LIST {
        return (0..len).map(|at| element_json(dtype, tensor.bits(at))).collect();
    }
    json!({ "base64": STANDARD.encode(&tensor.bytes) })
}

fn element_json(dtype: DType, bits: u64) -> Value {
    match decode(dtype, bits) {
        Scalar::Float(value) if value.is_nan() => hex_json(dtype, bits),
        value => scalar_json(dtype, value),
    }
}

/// A scalar, so that the same one is read back: NaN as bits of the op's dtype.
fn scalar_json(dtype: DType, value: Scalar) -> Value {
    match value {
        Scalar::Int(value) => value.into(),
        Scalar::Bool(value) => value.into(),
        Scalar::Float(value) if value.is_nan() => hex_json(dtype, encode_float(dtype, value)),
        Scalar::Float(f64::INFINITY) => "inf".into(),
        Scalar::Float(f64::NEG_INFINITY) => "-inf".into(),
        Scalar::Float(value) => value.into(),
    }
}

fn hex_json(dtype: DType, bits: u64) -> Value {
    format!("0x{bits:0width$x}", width = 2 * dtype.size()).into()
}
