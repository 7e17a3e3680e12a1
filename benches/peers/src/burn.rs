//! burn's two CPU backends; tensors of burn are consumed by its ops, so each call clones handles first, as users do.

use std::hint::black_box;

use burn_tensor::module;
use burn_tensor::ops::{AttentionModuleOptions, AvgPoolOptions, ConvOptions, MaxPoolOptions};
use burn_tensor::{Bool, DType, Device, Distribution, IndexingUpdateOp, Int, Tensor, TensorData, activation};

use crate::case::{Call, Case, Input, Refusal, unsupported};

fn dtype_of(name: &str) -> Result<DType, Refusal> {
    match name {
        "f64" => Ok(DType::F64),
        "f32" => Ok(DType::F32),
        "f16" => Ok(DType::F16),
        "bf16" => Ok(DType::BF16),
        _ => Err(unsupported(format!("no {name}"))),
    }
}

/// The inputs of a case on one of the backends.
struct Inputs<'a> {
    case: &'a Case,
    device: Device,
    dtype: DType,
}

impl Inputs<'_> {
    /// An input as a tensor of its own rank.
    fn floats<const D: usize>(&self, at: usize) -> Result<Tensor<D>, Refusal> {
        let input = self.case.input(at)?;
        self.shaped(input, &input.shape)
    }

    /// An input as a matrix of the rows of its last axis.
    fn rows(&self, at: usize) -> Result<Tensor<2>, Refusal> {
        let input = self.case.input(at)?;
        self.shaped(input, &input.rows())
    }

    fn shaped<const D: usize>(&self, input: &Input, shape: &[usize]) -> Result<Tensor<D>, Refusal> {
        if shape.len() != D {
            return Err(self.case.missing());
        }
        Ok(Tensor::from_data(TensorData::new(input.floats(), shape.to_vec()), (&self.device, self.dtype)))
    }

    fn integers(&self, at: usize) -> Result<Tensor<1, Int>, Refusal> {
        let input = self.case.input(at)?;
        Ok(Tensor::from_data(TensorData::new(input.integers(), [input.count()]), (&self.device, DType::I64)))
    }

    fn bools(&self, at: usize) -> Result<Tensor<1, Bool>, Refusal> {
        let input = self.case.input(at)?;
        Ok(Tensor::from_data(TensorData::new(input.bools(), [input.count()]), &self.device))
    }

    fn one<R: 'static>(&self, run: fn(Tensor<1>) -> R) -> Result<Call, Refusal> {
        let x = self.floats::<1>(0)?;
        Ok(call(move || run(x.clone())))
    }

    fn matrix<R: 'static>(&self, run: fn(Tensor<2>) -> R) -> Result<Call, Refusal> {
        let x = self.rows(0)?;
        Ok(call(move || run(x.clone())))
    }

    fn cube<R: 'static>(&self, run: fn(Tensor<3>) -> R) -> Result<Call, Refusal> {
        let x = self.floats::<3>(0)?;
        Ok(call(move || run(x.clone())))
    }

    fn two<const D: usize, R: 'static>(&self, run: fn(Tensor<D>, Tensor<D>) -> R) -> Result<Call, Refusal> {
        let (a, b) = (self.floats::<D>(0)?, self.floats::<D>(1)?);
        Ok(call(move || run(a.clone(), b.clone())))
    }
}

fn call<R: 'static>(mut run: impl FnMut() -> R + 'static) -> Call {
    Box::new(move || {
        drop(black_box(run()));
        Ok(())
    })
}

#[expect(deprecated, reason = "people use it, so it is timed as long as there is one")]
fn ndarray() -> Device {
    Device::ndarray()
}

/// The call of a case.
pub(crate) fn prepare(backend: &str, case: &Case) -> Result<Call, Refusal> {
    let device = if backend == "burn-flex" { Device::flex() } else { ndarray() };
    let dtype = dtype_of(&case.dtype)?;
    if !device.supports_dtype(dtype) {
        return Err(case.missing());
    }
    let inputs = Inputs { case, device, dtype };
    match case.op.as_str() {
        op if op.starts_with("conv") || op.contains("_pool") || op.starts_with("attention") => images(&inputs),
        op if op.starts_with("cast_") => {
            let (x, to) = (inputs.floats::<1>(0)?, dtype_of(&op[5..])?);
            if !inputs.device.supports_dtype(to) {
                return Err(case.missing());
            }
            Ok(call(move || x.clone().cast(to)))
        }
        _ => numbers(&inputs),
    }
}

fn numbers(inputs: &Inputs<'_>) -> Result<Call, Refusal> {
    let (case, device, dtype) = (inputs.case, inputs.device.clone(), inputs.dtype);
    let count = case.arg("count");
    match case.op.as_str() {
        "exp" => inputs.one(|x| x.exp()),
        "tanh" => inputs.one(|x| x.tanh()),
        "gelu" => inputs.one(activation::gelu),
        "gelu_tanh" => inputs.one(activation::gelu_approximate),
        "relu" => inputs.one(activation::relu),
        "silu" => inputs.one(activation::silu),
        "sigmoid" => inputs.one(activation::sigmoid),
        "softplus" => inputs.one(|x| activation::softplus(x, 1.0)),
        "abs" => inputs.one(|x| x.abs()),
        "sqrt" => inputs.one(|x| x.sqrt()),
        "ln" => inputs.one(|x| x.log()),
        "sin" => inputs.one(|x| x.sin()),
        "cos" => inputs.one(|x| x.cos()),
        "erf" => inputs.one(|x| x.erf()),
        "round" => inputs.one(|x| x.round()),
        "add" => inputs.two::<1, _>(|a, b| a + b),
        "mul_scalar" => inputs.one(|x| x * 2.0),
        "add_row" => {
            let (a, row) = (inputs.rows(0)?, inputs.rows(1)?);
            Ok(call(move || a.clone() + row.clone()))
        }
        "add_col" => inputs.two::<2, _>(|a, b| a + b),
        "add_t" => inputs.matrix(|x| x.clone() + x.transpose()),
        "add_bt" => inputs.two::<2, _>(|a, b| a + b.transpose()),
        "gt" => inputs.two::<1, _>(|a, b| a.greater(b)),
        "where" => {
            let (a, b, mask) = (inputs.floats::<1>(0)?, inputs.floats::<1>(1)?, inputs.bools(2)?);
            Ok(call(move || b.clone().mask_where(mask.clone(), a.clone())))
        }
        "fill" => Ok(call(move || Tensor::<1>::full([count], 1.0, (&device, dtype)))),
        "cat" => inputs.two::<1, _>(|a, b| Tensor::cat(vec![a, b], 0)),
        "sum" => inputs.one(|x| x.sum()),
        "max" => inputs.one(|x| x.max()),
        "sum_first" => inputs.matrix(|x| x.sum_dim(0)),
        "sum_last" | "sum_last_128" => inputs.matrix(|x| x.sum_dim(1)),
        "sum_middle" => inputs.cube(|x| x.sum_dim(1)),
        "mean_outer" => inputs.cube(|x| x.mean_dims(&[0, 2])),
        "max_last" => inputs.matrix(|x| x.max_dim(1)),
        "argmax_last" => inputs.matrix(|x| x.argmax(1)),
        "argmax_first" => inputs.matrix(|x| x.argmax(0)),
        "var_last" => inputs.matrix(|x| x.var(1)),
        "cumsum_first" => inputs.matrix(|x| x.cumsum(0)),
        "cumsum_last" => inputs.matrix(|x| x.cumsum(1)),
        "softmax" => inputs.matrix(|x| activation::softmax(x, 1)),
        "log_softmax" => inputs.matrix(|x| activation::log_softmax(x, 1)),
        "layer_norm" => {
            let (x, weight, bias) = (inputs.rows(0)?, inputs.floats::<1>(1)?, inputs.floats::<1>(2)?);
            Ok(call(move || module::layer_norm(x.clone(), weight.clone(), Some(bias.clone()), 1e-5)))
        }
        "sort" => inputs.matrix(|x| x.sort(1)),
        "argsort" => inputs.matrix(|x| x.argsort(1)),
        "topk50" => inputs.matrix(|x| x.topk(50, 1)),
        "embedding" => {
            let (table, index) = (inputs.floats::<2>(0)?, inputs.integers(1)?);
            Ok(call(move || table.clone().select(0, index.clone())))
        }
        "take" => {
            let (x, index) = (inputs.floats::<1>(0)?, inputs.integers(1)?);
            Ok(call(move || x.clone().select(0, index.clone())))
        }
        "embedding_grad" => {
            let (rows, index) = (inputs.floats::<2>(0)?, inputs.integers(1)?);
            let shape = [case.arg("rows"), rows.dims()[1]];
            Ok(call(move || {
                let zeros = Tensor::<2>::zeros(shape, (&device, dtype));
                zeros.select_assign(0, index.clone(), rows.clone(), IndexingUpdateOp::Add)
            }))
        }
        "rand" => Ok(call(move || Tensor::<1>::random([count], Distribution::Uniform(0.0, 1.0), (&device, dtype)))),
        "randn" => Ok(call(move || Tensor::<1>::random([count], Distribution::Normal(0.0, 1.0), (&device, dtype)))),
        "matmul" => inputs.two::<2, _>(|a, b| a.matmul(b)),
        "bmm" => inputs.two::<3, _>(|a, b| a.matmul(b)),
        "matmul_at" => inputs.two::<2, _>(|a, b| a.transpose().matmul(b)),
        "matmul_bt" => inputs.two::<2, _>(|a, b| a.matmul(b.transpose())),
        "matmul_atbt" => inputs.two::<2, _>(|a, b| a.transpose().matmul(b.transpose())),
        "linear_identity" => linear(inputs, |x| x),
        "linear_relu" => linear(inputs, activation::relu),
        "linear_gelu" => linear(inputs, activation::gelu),
        "linear_gelu_tanh" => linear(inputs, activation::gelu_approximate),
        _ => Err(case.missing()),
    }
}

fn linear(inputs: &Inputs<'_>, activation: fn(Tensor<2>) -> Tensor<2>) -> Result<Call, Refusal> {
    let (x, weight, bias) = (inputs.floats::<2>(0)?, inputs.floats::<2>(1)?, inputs.floats::<1>(2)?);
    Ok(call(move || activation(module::linear(x.clone(), weight.clone(), Some(bias.clone())))))
}

/// Convolution, pooling, attention: tensors of four axes.
fn images(inputs: &Inputs<'_>) -> Result<Call, Refusal> {
    let case = inputs.case;
    let pair = |name: &str| [case.arg(name); 2];
    let (kernel, stride, padding) = (pair("kernel"), pair("stride"), pair("padding"));
    match case.op.as_str() {
        "conv3x3" | "conv7x7s2" | "conv1x1" | "conv3x3_depthwise" => {
            let (x, weight) = (inputs.floats::<4>(0)?, inputs.floats::<4>(1)?);
            let options = ConvOptions::new(stride, padding, [1, 1], case.arg("groups"));
            Ok(call(move || module::conv2d(x.clone(), weight.clone(), None, options.clone())))
        }
        "conv_relu3x3" => {
            let (x, weight) = (inputs.floats::<4>(0)?, inputs.floats::<4>(1)?);
            let bias: Tensor<1> = weight.clone().slice([0..weight.dims()[0], 0..1, 0..1, 0..1]).flatten(0, 3);
            let options = ConvOptions::new(stride, padding, [1, 1], case.arg("groups"));
            Ok(call(move || {
                activation::relu(module::conv2d(x.clone(), weight.clone(), Some(bias.clone()), options.clone()))
            }))
        }
        "conv_grad_weight3x3" => {
            let (x, weight) = (inputs.floats::<4>(0)?, inputs.floats::<4>(1)?);
            let options = ConvOptions::new(stride, padding, [1, 1], case.arg("groups"));
            Ok(call(move || module::conv2d_weight_backward(x.clone(), weight.clone(), x.clone(), options.clone())))
        }
        op if op.starts_with("max_pool") && !op.contains("grad") => {
            let x = inputs.floats::<4>(0)?;
            let options = MaxPoolOptions::new(kernel).with_stride(stride).with_padding(padding);
            Ok(call(move || module::max_pool2d(x.clone(), options.clone())))
        }
        op if op.starts_with("argmax_pool") => {
            let x = inputs.floats::<4>(0)?;
            let options = MaxPoolOptions::new(kernel).with_stride(stride).with_padding(padding);
            Ok(call(move || module::max_pool2d_with_indices(x.clone(), options.clone())))
        }
        op if op.starts_with("avg_pool") && !op.contains("grad") => {
            let x = inputs.floats::<4>(0)?;
            let options = AvgPoolOptions::new(kernel).with_stride(stride).with_padding(padding);
            Ok(call(move || module::avg_pool2d(x.clone(), options.clone())))
        }
        "attention" | "attention_causal" => {
            let (q, k, v) = (inputs.floats::<4>(0)?, inputs.floats::<4>(1)?, inputs.floats::<4>(2)?);
            let is_causal = case.arg("causal") == 1;
            Ok(call(move || {
                let options = AttentionModuleOptions { is_causal, ..AttentionModuleOptions::default() };
                module::attention(q.clone(), k.clone(), v.clone(), None, None, options)
            }))
        }
        _ => Err(case.missing()),
    }
}
