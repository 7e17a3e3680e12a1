//! Elementwise functions of one operand, new result each time.

use congruent::DType;
use congruent::api::ops::unary::UnaryOp;
use congruent_benches::{compare, random};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn unary(criterion: &mut Criterion) {
    use UnaryOp::{Abs, Cos, Erf, Exp, Expm1, Gelu, GeluTanh, Ln, Round, Sigmoid, Silu, Sin, Softplus, Sqrt, Tanh};
    let functions = [Abs, Cos, Erf, Exp, Expm1, Gelu, GeluTanh, Ln, Round, Sigmoid, Silu, Sin, Softplus, Sqrt, Tanh];
    let cases = [(DType::F32, [256, 256]), (DType::BF16, [256, 256]), (DType::F64, [256, 256])];
    for (dtype, shape) in cases.into_iter().chain([(DType::F32, [4096, 4096])]) {
        let elements = Throughput::Elements((shape[0] * shape[1]) as u64);
        for op in functions {
            let case = format!("unary/{}/{dtype}/{}x{}", op.name(), shape[0], shape[1]);
            let make = |backend: &_| random(backend, dtype, &shape);
            compare(criterion, &case, elements.clone(), make, |x| x.unary(op).map(drop));
        }
    }
}

criterion_group!(benches, unary);
criterion_main!(benches);
