//! Random numbers, in a new tensor each time.

use congruent::{DType, Generator, Result, Tensor};
use std::sync::Arc;

use congruent::AnyBackend;

use super::{FLAT, huge};
use crate::case::{Case, T};

type Draw = fn(&Arc<AnyBackend>, usize, DType, &Generator) -> Result<T>;

pub(super) fn cases() -> Vec<Case> {
    let draws: [(&str, DType, Draw); 7] = [
        ("rand", DType::F32, |backend, count, dtype, generator| Tensor::rand(backend, [count], dtype, generator)),
        ("rand", DType::F64, |backend, count, dtype, generator| Tensor::rand(backend, [count], dtype, generator)),
        ("rand", DType::BF16, |backend, count, dtype, generator| Tensor::rand(backend, [count], dtype, generator)),
        ("randn", DType::F32, |backend, count, dtype, generator| Tensor::randn(backend, [count], dtype, generator)),
        ("randint", DType::I64, |backend, count, dtype, generator| {
            Tensor::randint(backend, 0..1000, [count], dtype, generator)
        }),
        ("bernoulli", DType::Bool, |backend, count, _, generator| Tensor::bernoulli(backend, 0.5, [count], generator)),
        ("randperm", DType::I64, |backend, count, _, generator| Tensor::randperm(backend, count, generator)),
    ];
    let case = |(op, dtype, draw): (&str, DType, Draw), count: usize| {
        let call =
            Case::new(("random", op), dtype, [], move |inputs| draw(&inputs.backend, count, dtype, &inputs.generator));
        call.count(count).bytes(count * dtype.size()).huge(huge(count))
    };
    draws.into_iter().flat_map(|draw| FLAT.map(|count| case(draw, count))).collect()
}
