//! candle on the CPU.

use std::hint::black_box;

use candle_core::{D, DType, Device, Result as Candle, Tensor};
use candle_nn::ops;

use crate::case::{Call, Case, Input, Kind, Refusal, unsupported};

fn failed(error: candle_core::Error) -> Refusal {
    let why = error.to_string().lines().next().unwrap_or_default().to_owned();
    if why.contains("unsupported dtype") { Refusal::Unsupported(why) } else { Refusal::Failed(why) }
}

fn dtype_of(name: &str) -> Result<DType, Refusal> {
    match name {
        "f64" => Ok(DType::F64),
        "f32" => Ok(DType::F32),
        "f16" => Ok(DType::F16),
        "bf16" => Ok(DType::BF16),
        "i64" => Ok(DType::I64),
        _ => Err(unsupported(format!("no {name}"))),
    }
}

fn make(input: &Input, dtype: DType) -> Candle<Tensor> {
    let shape = input.shape.as_slice();
    match input.kind {
        Kind::Index => Tensor::from_vec(input.integers(), shape, &Device::Cpu),
        Kind::Mask => Tensor::from_vec(input.bools().into_iter().map(u8::from).collect(), shape, &Device::Cpu),
        _ if dtype == DType::I64 => Tensor::from_vec(input.integers(), shape, &Device::Cpu),
        _ => Tensor::from_vec(input.floats(), shape, &Device::Cpu)?.to_dtype(dtype),
    }
}

/// The call of a case.
pub(crate) fn prepare(_: &str, case: &Case) -> Result<Call, Refusal> {
    let dtype = dtype_of(&case.dtype)?;
    let run = op(case, dtype)?;
    let x: Vec<Tensor> = case.inputs.iter().map(|input| make(input, dtype)).collect::<Candle<_>>().map_err(failed)?;
    Ok(Box::new(move || run(&x).map(|out| drop(black_box(out))).map_err(failed)))
}

type Run = Box<dyn Fn(&[Tensor]) -> Candle<Tensor>>;

fn op(case: &Case, dtype: DType) -> Result<Run, Refusal> {
    let simple = |run: fn(&[Tensor]) -> Candle<Tensor>| -> Result<Run, Refusal> { Ok(Box::new(run)) };
    let (stride, padding, groups, kernel) =
        (case.arg("stride"), case.arg("padding"), case.arg("groups"), case.arg("kernel"));
    let (count, rows) = (case.arg("count"), case.arg("rows"));
    match case.op.as_str() {
        "exp" => simple(|x| x[0].exp()),
        "tanh" => simple(|x| x[0].tanh()),
        "gelu" => simple(|x| x[0].gelu_erf()),
        "gelu_tanh" => simple(|x| x[0].gelu()),
        "relu" => simple(|x| x[0].relu()),
        "silu" => simple(|x| x[0].silu()),
        "sigmoid" => simple(|x| ops::sigmoid(&x[0])),
        "abs" => simple(|x| x[0].abs()),
        "sqrt" => simple(|x| x[0].sqrt()),
        "ln" => simple(|x| x[0].log()),
        "sin" => simple(|x| x[0].sin()),
        "cos" => simple(|x| x[0].cos()),
        "erf" => simple(|x| x[0].erf()),
        "round" => simple(|x| x[0].round()),
        "add" => simple(|x| &x[0] + &x[1]),
        "mul_scalar" => simple(|x| &x[0] * 2.0),
        "add_row" | "add_col" => simple(|x| x[0].broadcast_add(&x[1])),
        "add_t" => simple(|x| &x[0] + x[0].t()?),
        "add_bt" => simple(|x| &x[0] + x[1].t()?),
        "gt" => simple(|x| x[0].gt(&x[1])),
        "where" => simple(|x| x[2].where_cond(&x[0], &x[1])),
        "copy" => simple(|x| x[0].copy()),
        cast if cast.starts_with("cast_") => {
            let to = dtype_of(&cast[5..])?;
            Ok(Box::new(move |x| x[0].to_dtype(to)))
        }
        "fill" => Ok(Box::new(move |_| Tensor::ones(count, dtype, &Device::Cpu))),
        "cat" => simple(|x| Tensor::cat(x, 0)),
        "transpose_copy" => simple(|x| x[0].t()?.contiguous()),
        "permute_copy" => simple(|x| x[0].permute((0, 2, 1, 3))?.contiguous()),
        "sum" => simple(|x| x[0].sum_all()),
        "max" => simple(|x| x[0].max_all()),
        "sum_first" => simple(|x| x[0].sum(0)),
        "sum_last" | "sum_last_128" | "sum_middle" => simple(|x| x[0].sum(1)),
        "max_last" => simple(|x| x[0].max(1)),
        "argmax_last" => simple(|x| x[0].argmax(1)),
        "argmax_first" => simple(|x| x[0].argmax(0)),
        "mean_outer" => simple(|x| x[0].mean((0, 2))),
        "var_last" => simple(|x| x[0].var(1)),
        "logsumexp_last" => simple(|x| x[0].log_sum_exp(1)),
        "cumsum_first" => simple(|x| x[0].cumsum(0)),
        "cumsum_last" => simple(|x| x[0].cumsum(1)),
        "softmax" => simple(|x| ops::softmax_last_dim(&x[0])),
        "log_softmax" => simple(|x| ops::log_softmax(&x[0], D::Minus1)),
        "layer_norm" => simple(|x| ops::layer_norm(&x[0], &x[1], &x[2], 1e-5)),
        "rms_norm" => simple(|x| ops::rms_norm(&x[0], &x[1], 1e-5)),
        "sort" => simple(|x| Ok(x[0].sort_last_dim(true)?.0)),
        "argsort" => simple(|x| x[0].arg_sort_last_dim(true)),
        "embedding" => simple(|x| x[0].index_select(&x[1], 0)),
        "embedding_grad" => {
            Ok(Box::new(move |x| Tensor::zeros((rows, x[0].dim(1)?), dtype, &Device::Cpu)?.index_add(&x[1], &x[0], 0)))
        }
        "take" => simple(|x| x[0].index_select(&x[1], 0)),
        "scatter" => simple(|x| x[2].scatter_set(&x[1], &x[0], 0).map(|()| x[2].clone())),
        "scatter_add" => simple(|x| x[2].scatter_add_set(&x[1], &x[0], 0).map(|()| x[2].clone())),
        "rand" if dtype == DType::F32 => Ok(Box::new(move |_| Tensor::rand(0_f32, 1_f32, count, &Device::Cpu))),
        "rand" if dtype == DType::F64 => Ok(Box::new(move |_| Tensor::rand(0_f64, 1_f64, count, &Device::Cpu))),
        "randn" if dtype == DType::F32 => Ok(Box::new(move |_| Tensor::randn(0_f32, 1_f32, count, &Device::Cpu))),
        "matmul" | "bmm" => simple(|x| x[0].matmul(&x[1])),
        "matmul_at" => simple(|x| x[0].t()?.matmul(&x[1])),
        "matmul_bt" => simple(|x| x[0].matmul(&x[1].t()?)),
        "matmul_atbt" => simple(|x| x[0].t()?.matmul(&x[1].t()?)),
        "linear_identity" => simple(linear),
        "linear_relu" => simple(|x| linear(x)?.relu()),
        "linear_gelu" => simple(|x| linear(x)?.gelu_erf()),
        "linear_gelu_tanh" => simple(|x| linear(x)?.gelu()),
        "conv3x3" | "conv7x7s2" | "conv1x1" | "conv3x3_depthwise" => {
            Ok(Box::new(move |x| x[0].conv2d(&x[1], padding, stride, 1, groups)))
        }
        "conv_relu3x3" => Ok(Box::new(move |x| {
            let bias = x[1].narrow(1, 0, 1)?.narrow(2, 0, 1)?.narrow(3, 0, 1)?.reshape((1, (), 1, 1))?;
            x[0].conv2d(&x[1], padding, stride, 1, groups)?.broadcast_add(&bias)?.relu()
        })),
        "max_pool2x2s2" if padding == 0 => Ok(Box::new(move |x| x[0].max_pool2d_with_stride(kernel, stride))),
        "avg_pool2x2s2" if padding == 0 => Ok(Box::new(move |x| x[0].avg_pool2d_with_stride(kernel, stride))),
        "attention" => simple(|x| {
            let scale = 1.0 / (x[0].dim(3)? as f64).sqrt();
            let scores = (x[0].matmul(&x[1].transpose(2, 3)?)? * scale)?;
            ops::softmax_last_dim(&scores)?.matmul(&x[2])
        }),
        _ => Err(case.missing()),
    }
}

fn linear(x: &[Tensor]) -> Candle<Tensor> {
    x[0].matmul(&x[1].t()?)?.broadcast_add(&x[2])
}
