//! Matrix products: square, skinny, transposed, batched; linear layers.

use congruent::ops::Activation;
use congruent::{DType, Result};

use crate::case::{Case, T, data, sizes};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for side in [64, 256, 512, 1024, 2048, 4096] {
        cases.push(product(DType::F32, side, side, side));
        cases.push(product(DType::F64, side, side, side));
    }
    for dtype in super::HALVES {
        for side in [256, 1024, 4096, 8192] {
            cases.push(product(dtype, side, side, side));
        }
        cases.push(product(dtype, 1, 4096, 4096));
        cases.push(product(dtype, 32, 4096, 4096));
    }
    for rows in [1, 32] {
        cases.push(product(DType::F32, rows, 4096, 4096));
        cases.push(transposed("matmul_bt", DType::F32, rows, 4096, 4096, |a, b| a.matmul(&b.t()?)));
    }
    cases.push(transposed("matmul_at", DType::F32, 1024, 1024, 1024, |a, b| a.t()?.matmul(b)));
    cases.push(transposed("matmul_bt", DType::F32, 1024, 1024, 1024, |a, b| a.matmul(&b.t()?)));
    cases.push(transposed("matmul_atbt", DType::F32, 1024, 1024, 1024, |a, b| a.t()?.matmul(&b.t()?)));
    for dtype in [DType::F32, DType::BF16] {
        batched(&mut cases, dtype, [32, 128, 128, 128]);
        batched(&mut cases, dtype, [64, 512, 64, 512]);
    }
    for dtype in [DType::F32, DType::BF16] {
        for &activation in Activation::ALL {
            linear(&mut cases, dtype, activation, 32, 256);
            linear(&mut cases, dtype, activation, 512, 4096);
        }
    }
    cases
}

/// What an m×k by k×n product costs at the least.
fn cost(case: Case, dtype: DType, m: usize, k: usize, n: usize) -> Case {
    let flops = 2 * m * k * n;
    case.flops(flops).bytes((m * k + k * n + m * n) * dtype.size()).huge(flops > 1 << 35)
}

fn product(dtype: DType, m: usize, k: usize, n: usize) -> Case {
    let inputs = [data(&[m, k]), data(&[k, n])];
    let case = Case::new(("matmul", "matmul"), dtype, inputs, |inputs| inputs.x[0].matmul(&inputs.x[1]));
    cost(case, dtype, m, k, n).named(sizes(&[m, k, n]))
}

/// Operands that lie as columns.
fn transposed(op: &str, dtype: DType, m: usize, k: usize, n: usize, call: fn(&T, &T) -> Result<T>) -> Case {
    let a = if op.contains("_at") { [k, m] } else { [m, k] };
    let b = if op.contains("bt") { [n, k] } else { [k, n] };
    let inputs = [data(&a), data(&b)];
    let case = Case::new(("matmul", op), dtype, inputs, move |inputs| call(&inputs.x[0], &inputs.x[1]));
    cost(case, dtype, m, k, n).named(sizes(&[m, k, n]))
}

fn batched(cases: &mut Vec<Case>, dtype: DType, [batch, m, k, n]: [usize; 4]) {
    let inputs = [data(&[batch, m, k]), data(&[batch, k, n])];
    let case = Case::new(("matmul", "bmm"), dtype, inputs, |inputs| inputs.x[0].matmul(&inputs.x[1]));
    let bytes = batch * (m * k + k * n + m * n) * dtype.size();
    cases.push(case.flops(2 * batch * m * k * n).bytes(bytes).named(sizes(&[batch, m, k, n])));
}

/// A layer with bias.
fn linear(cases: &mut Vec<Case>, dtype: DType, activation: Activation, rows: usize, features: usize) {
    let inputs = [data(&[rows, features]), data(&[features, features]), data(&[features])];
    let name = format!("linear_{}", activation.name());
    let case = Case::new(("linear", &name), dtype, inputs, move |inputs| {
        inputs.x[0].linear(&inputs.x[1], Some(&inputs.x[2]), activation)
    });
    cases.push(cost(case, dtype, rows, features, features));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a product of 2×3 by 3×4 whose operands lie as the name says.
    fn fits(op: &str, call: fn(&T, &T) -> Result<T>) {
        let backend = congruent::backend("cpu").unwrap();
        let case = transposed(op, DType::F32, 2, 3, 4, call);
        let mut inputs = case.make(&backend).unwrap();
        case.call(&mut inputs).unwrap_or_else(|error| panic!("{op}: {error}"));
    }

    #[test]
    fn transposed_operands_fit() {
        fits("matmul_bt", |a, b| a.matmul(&b.t()?));
        fits("matmul_at", |a, b| a.t()?.matmul(b));
        fits("matmul_atbt", |a, b| a.t()?.matmul(&b.t()?));
    }
}
