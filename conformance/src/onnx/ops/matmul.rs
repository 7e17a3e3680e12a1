//! Matrix products and sums of products.

use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::{DType, Scalar};

use super::{Outputs, one};
use crate::onnx::node::{Lowered, Node};
use crate::onnx::trace::{Tensor, Trace};

pub(super) fn lower(trace: &Trace, node: &Node<'_>) -> Outputs {
    match node.op() {
        "Einsum" => one(trace.einsum(&node.text("equation", ""), &node.all())?),
        "Gemm" => one(gemm(trace, node)?),
        "MatMul" => one(trace.matmul(node.input(0)?, node.input(1)?)?),
        _ => Ok(None),
    }
}

fn gemm(trace: &Trace, node: &Node<'_>) -> Lowered<Tensor> {
    let side = |index: usize, name: &str| -> Lowered<Tensor> {
        let x = node.input(index)?;
        Ok(if node.flag(name, false) { x.t()? } else { x.clone() })
    };
    let (a, b) = (side(0, "transA")?, side(1, "transB")?);
    let factor = |name: &str| number(a.dtype(), node.float(name, 1.0));
    let (alpha, beta) = (factor("alpha"), factor("beta"));
    let shape = Matmul::shape(a.shape(), b.shape())?;
    let (c, beta) = match node.optional(2) {
        Some(c) => (c.expand(&*shape)?, beta),
        None => (Tensor::zeros(node.backend(), &*shape, a.dtype())?, Scalar::Int(0)),
    };
    trace.gemm((&a, &b), &c, alpha, beta)
}

/// A factor in the kind of the dtype.
fn number(dtype: DType, value: f64) -> Scalar {
    if dtype.is_float() { Scalar::Float(value) } else { Scalar::Int(value as i64) }
}
