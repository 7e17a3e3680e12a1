//! Attention: the bound of its steps, carried from the scores through the exponentials to the weighted sums.
//!
//! For a row with scores s and their maximum M, the exact result is Σ w·r·v / Σ w with w = exp(s − M); it does not depend
//! on M, so that a backend's own maximum, close to M, needs no error of its own. A score is a product over d features: its
//! error is σ = γ_{d+4}·|scale|·|q|·|k|, one rounding being that of the scale; soft cap, slopes and an additive mask are
//! steps on it. Subtracting the maximum rounds once, and exp turns that into a relative error of w. A running maximum
//! multiplies w by exp(M′ − M″) in steps: their arguments add up to s − M, whose rounding is counted already, and each step
//! costs the error of exp and a product. The sums over m keys are within γ of their magnitude in any order. The log-sum-exp
//! is the logarithm of that sum, plus M. In f16 and bf16 the weights may be rounded before they meet the values, which adds
//! u·w·|v| of the dtype's u to each term and the least that the dtype holds (or f32, with subnormals flushed) times |v|, and
//! sums may be those of tensor cores, which cut off: two units for each term, operands counting as normal numbers. The
//! gradients are their formula's steps, with the weights taken from the log-sum-exp that was given.

mod oracle;

use congruent_backend_api::ops::attention::{
    Alignment, Attention, AttentionInputs, AttentionOp, AttentionOptions, Dropout,
};
use congruent_backend_api::{DType, Result};
use proptest::prelude::*;

use crate::arithmetic::Arithmetic;
use crate::case::{Call, Case, Input, poisoned};
use crate::expect::Expect;
use crate::host::{HostTensor, encode_float, positions};
use crate::ops::{host, layout};
use crate::spec::{Draw, TensorSpec, cap, placement, tensor};
use crate::values::{Class, hash};
use oracle::Oracle;

const CLASSES: &[Class] = &[
    Class::Uniform,
    Class::SmallInts,
    Class::Large,
    Class::WideExponent,
    Class::Specials,
    Class::Tiny,
    Class::Cancelling,
    Class::Sparse,
    Class::Constant,
];

/// What a gradient is not specified for is left out.
const FINITE: &[Class] = &[
    Class::Uniform,
    Class::SmallInts,
    Class::Large,
    Class::WideExponent,
    Class::Tiny,
    Class::Cancelling,
    Class::Sparse,
    Class::Constant,
];

/// Which operands of a call are given, in the order of [`AttentionInputs::to_array`].
pub type Given = [bool; 9];

/// The operands of a call from those of a case, which has only the ones that are given.
pub fn inputs<T>(given: Given, mut operand: impl FnMut(usize) -> Result<T>) -> Result<Option<AttentionInputs<T>>> {
    let (mut array, mut next) = ([(); 9].map(|()| None), 0);
    for (place, given) in array.iter_mut().zip(given) {
        if given {
            *place = Some(operand(next)?);
            next += 1;
        }
    }
    Ok(AttentionInputs::from_array(array))
}

/// Which operands a case has.
#[must_use]
pub fn given<T>(inputs: AttentionInputs<T>) -> Given {
    inputs.to_array().map(|operand| operand.is_some())
}

/// Generated calls: any number of heads on one key head, more queries than keys and fewer, both masks and none, causal and
/// not, every option alone and with others, features up to those at which backends change kernels.
pub fn cases(op: AttentionOp, dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    let few = || prop_oneof![1 => Just(0_usize), 12 => 1..4_usize];
    let positions = || prop_oneof![1 => Just(0_usize), 4 => 1..9_usize, 4 => 9..80_usize, 1 => 126..131_usize];
    let features = || prop_oneof![6 => 1..66_usize, 1 => Just(0_usize), 1 => 127..131_usize];
    let sizes = [few().boxed(), (1..3_usize).boxed(), (1..4_usize).boxed()];
    let sizes = (sizes, [positions().boxed(), positions().boxed(), features().boxed(), features().boxed()]);
    let classes = if op.is_gradient() { FINITE } else { CLASSES };
    // Where backends have kernels for rows of one size, masked by position only.
    let whole = prop_oneof![5 => Just(None), 1 => Just(Some(64_usize)), 1 => Just(Some(128))];
    let operands = [(); 8].map(|()| tensor(draw, classes));
    let extras = [any::<u8>(), any::<u8>(), any::<u8>()];
    (sizes, operands, (options(), whole), extras, placement(), any::<u64>().no_shrink())
        .prop_map(move |((heads, sizes), specs, (options, whole), extras, placement, seed)| {
            let ([batch, kv_heads, group], [queries, keys, mut depth, mut width]) = (heads, sizes);
            let (mut options, mut extras) = (options, extras);
            if let Some(features) = whole {
                (depth, width, extras[0], extras[1]) = (features, features, 0, 1);
                (options.soft_cap, options.dropout) = (None, None);
            }
            // The oracle needs queries · keys · (depth + width) steps a head; queries are the first to go.
            let sizes = cap(vec![queries, keys, batch, kv_heads, group, depth.max(width)], 16 * draw.limit);
            let [queries, keys, batch, kv_heads, group, _] = std::array::from_fn(|index| sizes[index]);
            let heads = kv_heads * group;
            let [q, k, v] =
                [[batch, heads, queries, depth], [batch, kv_heads, keys, depth], [batch, kv_heads, keys, width]];
            let build = |index: usize, dtype: DType, shape: &[usize]| {
                host(&TensorSpec { broadcast: 0, ..specs[index].clone() }, dtype, shape, seed, index)
            };
            let mut inputs = AttentionInputs::new(build(0, dtype, &q), build(1, dtype, &k), build(2, dtype, &v));
            let mask = specs[3].shape(&[batch, heads, queries, keys]);
            inputs.mask = match extras[0] % 4 {
                0 => None,
                1 => Some(additive(host(&specs[3], dtype, &mask, seed, 3), seed)),
                _ => Some(host(&specs[3], DType::Bool, &mask, seed, 3)),
            };
            let wide = Attention::wide(dtype);
            if extras[1].is_multiple_of(4) {
                let slopes = specs[4].shape(&[batch, heads]);
                inputs.slopes = Some(sloped(host(&specs[4], wide, &slopes, seed, 4), seed));
            }
            if extras[2].is_multiple_of(4) {
                inputs.lengths = Some(lengths(build(5, DType::I64, &[batch]), keys, seed));
            }
            if op.is_gradient() {
                let rows = [batch, heads, queries];
                let grad = build(6, dtype, &[batch, heads, queries, width]);
                let (logsumexp, delta) = (build(7, wide, &rows), build(7, wide, &rows));
                inputs = oracle::with_gradient(inputs, options, grad, logsumexp, delta);
            }
            let shape = Attention::shape(op, &q, &k, &v).expect("generated sizes fit together");
            let to = if op == AttentionOp::LogSumExp { wide } else { dtype };
            let out = poisoned(to, layout(&placement, &shape), seed);
            let call = Call::Attention { op, options, given: [true; 9] };
            case(call, inputs, out)
        })
        .boxed()
}

/// A case of a call with these operands.
fn case(call: Call, inputs: AttentionInputs<HostTensor>, out: HostTensor) -> Case {
    let operands = inputs.to_array();
    let given = operands.each_ref().map(Option::is_some);
    let call = match call {
        Call::Attention { op, options, .. } => Call::Attention { op, options, given },
        other => other,
    };
    Case { call, inputs: operands.into_iter().flatten().map(Input::Tensor).collect(), out }
}

fn options() -> BoxedStrategy<AttentionOptions> {
    let scale = prop_oneof![3 => Just(None), 1 => prop::sample::select(&[1.0, 0.3, -0.5, 0.0][..]).prop_map(Some)];
    let alignment = prop_oneof![2 => Just(Alignment::Last), 1 => Just(Alignment::First)];
    let window = prop_oneof![3 => Just(None), 1 => (1..40_usize).prop_map(Some)];
    let soft_cap = prop_oneof![4 => Just(None), 1 => prop::sample::select(&[0.5, 3.0, 50.0][..]).prop_map(Some)];
    let dropout = (prop::sample::select(&[0.0, 0.1, 0.5, 0.9][..]), any::<u64>(), any::<u64>());
    let dropout = dropout.prop_map(|(probability, seed, offset)| Some(Dropout { probability, seed, offset }));
    let dropout = prop_oneof![4 => Just(None), 1 => dropout];
    (scale, any::<bool>(), alignment, window, soft_cap, dropout)
        .prop_map(|(scale, causal, alignment, window, soft_cap, dropout)| AttentionOptions {
            scale,
            causal,
            alignment,
            window,
            soft_cap,
            dropout,
        })
        .boxed()
}

/// The mask with −∞ in a third of its places.
fn additive(mut mask: HostTensor, seed: u64) -> HostTensor {
    for (index, at) in positions(&mask.layout).into_iter().enumerate() {
        if hash(seed, index as u64).is_multiple_of(3) {
            mask.set_bits(at, encode_float(mask.dtype, f64::NEG_INFINITY));
        }
    }
    mask
}

/// Slopes as they are in use: 2⁻¹ … 2⁻⁸, some negative, some 0.
fn sloped(mut slopes: HostTensor, seed: u64) -> HostTensor {
    for (index, at) in positions(&slopes.layout).into_iter().enumerate() {
        let random = hash(seed, index as u64 + 100);
        let sign = [1.0, 1.0, -1.0, 0.0][(random >> 8) as usize % 4];
        slopes.set_bits(at, encode_float(slopes.dtype, sign / f64::from(2_u32 << (random % 8))));
    }
    slopes
}

/// Lengths from −1 to one more than there are keys.
fn lengths(mut lengths: HostTensor, keys: usize, seed: u64) -> HostTensor {
    for (index, at) in positions(&lengths.layout).into_iter().enumerate() {
        let length = hash(seed, index as u64 + 200) % (keys as u64 + 3);
        lengths.set_bits(at, length.wrapping_sub(1));
    }
    lengths
}

/// What each element may be.
#[must_use]
pub fn expect(
    op: AttentionOp,
    options: AttentionOptions,
    given: Given,
    case: &Case,
    arithmetic: Arithmetic,
) -> Vec<Expect> {
    let count = case.out.layout.count();
    let Some(oracle) = Oracle::new(op, options, given, case, arithmetic).filter(|_| count > 0) else {
        return Vec::new();
    };
    (0..count / oracle.width()).flat_map(|row| oracle.row(row, 0..oracle.width())).collect()
}

/// What one element may be, for calls that are too large to judge all of them.
pub(crate) fn expect_element(
    op: AttentionOp,
    options: AttentionOptions,
    given: Given,
    case: &Case,
    index: usize,
) -> Option<Expect> {
    let oracle = Oracle::new(op, options, given, case, Arithmetic::default())?;
    let (row, feature) = (index / oracle.width(), index % oracle.width());
    oracle.row(row, feature..feature + 1).into_iter().next()
}
