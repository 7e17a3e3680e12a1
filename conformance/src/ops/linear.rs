//! Linear layers. The sums are those of `matmul` with the bias as the old output and β = 1; the activation moves with them.
//!
//! With v the sum and B its bound, every value that a backend may have computed lies in [v − B, v + B]. An activation f with
//! |f′| ≤ L takes it to within L·B of f(v), and its own error, as `unary` bounds it there, comes on top. L is 1 for relu,
//! 1.13 for gelu and gelu_tanh (the slope of x·Φ(x) is greatest at x = √2, where it is 1.1289; that of the approximation
//! is 1.1291).

use congruent_backend_api::DType;
use congruent_backend_api::ops::linear::Activation;
use proptest::prelude::*;

use crate::arithmetic::Arithmetic;
use crate::case::{Call, Case, Input, poisoned};
use crate::dd::Dd;
use crate::expect::Expect;
use crate::host::{HostTensor, decode, positions};
use crate::ops::matmul::{CLASSES, float};
use crate::ops::{host, layout, unary};
use crate::spec::{Draw, Placement, TensorSpec, cap, placement, size, tensor};

/// Generated layers: any batch before the inputs, with and without a bias, every activation.
pub fn cases(dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    let batch = prop::collection::vec(prop_oneof![1 => Just(0_usize), 8 => size()], 0..=2);
    let operand = || tensor(draw, CLASSES);
    let operands = (operand(), operand(), prop_oneof![1 => Just(None), 3 => operand().prop_map(Some)]);
    let form = (prop::sample::select(Activation::ALL), placement(), any::<u64>().no_shrink());
    (batch, size(), size(), operands, form)
        .prop_map(move |(batch, n, k, operands, form)| build(dtype, draw.limit, &batch, [n, k], operands, &form))
        .boxed()
}

fn build(
    dtype: DType,
    limit: usize,
    batch: &[usize],
    [n, k]: [usize; 2],
    (x, weight, bias): (TensorSpec, TensorSpec, Option<TensorSpec>),
    (activation, placement, seed): &(Activation, Placement, u64),
) -> Case {
    // The oracle needs n·k steps a row.
    let sizes = cap([batch, &[n, k]].concat(), 16 * limit);
    let (batch, (n, k)) = (&sizes[..batch.len()], (sizes[batch.len()], sizes[batch.len() + 1]));
    let x = host(&x, dtype, &[batch, &[k]].concat(), *seed, 0);
    let weight = host(&weight, dtype, &[n, k], *seed, 1);
    let bias = bias.map(|bias| host(&bias, dtype, &[n], *seed, 2));
    let out = poisoned(dtype, layout(placement, &[batch, &[n]].concat()), *seed);
    let inputs = [Some(x), Some(weight), bias].into_iter().flatten().map(Input::Tensor).collect();
    Case { call: Call::Linear { activation: *activation }, inputs, out }
}

/// What each element may be.
#[must_use]
pub fn expect(activation: Activation, case: &Case, arithmetic: Arithmetic) -> Vec<Expect> {
    let (Some(x), Some(weight)) = (case.tensor(0), case.tensor(1)) else { return Vec::new() };
    let dtype = case.out.dtype;
    let value = |tensor: &HostTensor, at: usize| decode(dtype, tensor.bits(at)).to_f64();
    let (inputs, rows) = (positions(&x.layout), positions(&weight.layout));
    let bias =
        case.tensor(2).map(|bias| positions(&bias.layout).into_iter().map(|at| value(bias, at)).collect::<Vec<_>>());
    let &[n, k] = &**weight.layout.shape() else { return Vec::new() };
    (0..case.out.layout.count())
        .map(|index| {
            let (row, output) = (index / n, index % n);
            let pairs: Vec<_> =
                (0..k).map(|i| (value(x, inputs[row * k + i]), value(weight, rows[output * k + i]))).collect();
            let (beta, old) = bias.as_ref().map_or((0.0, 0.0), |bias| (1.0, bias[output]));
            activate(activation, dtype, float(dtype, &pairs, 1.0, beta, old, arithmetic))
        })
        .collect()
}

/// The slope of an activation is never steeper.
const STEEPEST: f64 = 1.13;

/// What an activation makes of a sum that may be what `sum` says.
pub(crate) fn activate(activation: Activation, dtype: DType, sum: Expect) -> Expect {
    let Some(function) = activation.function() else { return sum };
    // The value and the error of the activation alone.
    let apply = |x: f64| match unary::float(function, dtype, x) {
        Expect::Near { value, bound, .. } => (value, bound),
        Expect::Bits(bits) => (Dd::from(decode(dtype, bits).to_f64()), 0.0),
        Expect::Nan | Expect::Any => (Dd::from(f64::NAN), 0.0),
    };
    match sum {
        Expect::Nan | Expect::Any => sum,
        // An infinite sum; a zero may have either sign.
        Expect::Bits(bits) => {
            let value = apply(decode(dtype, bits).to_f64()).0;
            if value.hi == 0.0 { Expect::near(Dd::default(), 0.0) } else { Expect::exact(dtype, value.hi) }
        }
        Expect::Near { value, bound, likely, .. } => {
            // What f64 cannot hold of the sum is part of its error here.
            let (x, rest) = (value.hi, value.lo.abs());
            if activation == Activation::Relu {
                let clear = x + bound + rest < 0.0;
                return match x > 0.0 {
                    true => Expect::near(value, bound).likely(likely),
                    false if clear => Expect::near(Dd::default(), 0.0),
                    false => Expect::near(Dd::default(), bound).likely(likely),
                };
            }
            let (y, _) = apply(x);
            let own = [x - bound, x, x + bound].map(|x| apply(x).1).into_iter().fold(0.0, f64::max);
            let reach = |bound: f64| STEEPEST * (bound + rest) + own;
            Expect::near(y, reach(bound)).likely(reach(likely))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::judge;
    use crate::host::encode_float;

    fn accepts(activation: Activation, sum: Expect, got: f64) -> bool {
        judge(DType::F32, encode_float(DType::F32, got), &activate(activation, DType::F32, sum)).accepted
    }

    #[test]
    fn activations_move_the_interval_of_the_sum() {
        let near = |value: f64, bound| Expect::near(Dd::from(value), bound);
        for (activation, sum, inside, outside) in [
            (Activation::Identity, near(1.0, 0.5), 1.5, 1.6),
            (Activation::Relu, near(1.0, 0.5), 0.5, 0.4),
            (Activation::Relu, near(-1.0, 0.5), 0.0, 1e-30),
            (Activation::Relu, near(-0.1, 0.5), 0.4, 0.6),
            (Activation::Gelu, near(1.0, 0.0), 0.841_344_7, 0.841_35),
            (Activation::Gelu, near(1.414, 0.1), 1.414 * 0.921_3 + 0.112, 1.414 * 0.921_3 + 0.115),
            (Activation::GeluTanh, near(1.0, 0.0), 0.841_192, 0.841_344_7),
        ] {
            assert!(accepts(activation, sum, inside), "{activation:?} {sum:?} {inside}");
            assert!(!accepts(activation, sum, outside), "{activation:?} {sum:?} {outside}");
        }
    }

    #[test]
    fn infinite_sums_stay_or_vanish() {
        for &activation in Activation::ALL {
            let infinite = |sign: f64| Expect::exact(DType::F32, sign * f64::INFINITY);
            assert!(accepts(activation, infinite(1.0), f64::INFINITY));
            assert!(accepts(activation, Expect::Nan, f64::NAN) && !accepts(activation, Expect::Nan, 0.0));
            if activation != Activation::Identity {
                assert!(accepts(activation, infinite(-1.0), 0.0) && accepts(activation, infinite(-1.0), -0.0));
                assert!(!accepts(activation, infinite(-1.0), f64::NAN));
            }
        }
    }
}
