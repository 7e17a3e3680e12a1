//! Attention: the bound of its steps, carried from the scores through the exponentials to the weighted values.
//!
//! For a row with scores s and their maximum M, the exact result is Σ w·v / Σ w with w = exp(s − M); it does not depend on
//! M, so that a backend's own maximum, close to M, needs no error of its own. A score is a product over d features: its
//! error is σ = γ_{d+4}·|scale|·|q|·|k|, one rounding being that of the scale, and one rounding more for an additive mask.
//! Subtracting the maximum rounds once, and exp turns that into a relative error of w. A running maximum multiplies w by
//! exp(M′ − M″) in steps: their arguments add up to s − M, whose rounding is counted already, and each step costs the
//! error of exp and a product. The sums over m keys are within γ of their magnitude in any order.

use congruent_backend_api::DType;
use congruent_backend_api::ops::attention::AttentionOptions;
use proptest::prelude::*;

use crate::arithmetic::Arithmetic;
use crate::ball::{Ball, SECOND_ORDER, Steps, evaluated};
use crate::case::{Call, Case, Input, poisoned};
use crate::dd::Dd;
use crate::expect::Expect;
use crate::host::{HostTensor, decode, encode_float, positions};
use crate::ops::{broadcast_positions, host, layout};
use crate::round::{Format, gamma};
use crate::spec::{Draw, TensorSpec, cap, placement, tensor};
use crate::values::{Class, hash};

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

/// Keys that share one scaling by a running maximum, at least.
const KEYS: usize = 32;

/// Generated calls: any number of heads on one key head, more queries than keys and fewer, both masks and none, causal and
/// not, features up to those at which backends change kernels.
pub fn cases(dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    let few = || prop_oneof![1 => Just(0_usize), 12 => 1..4_usize];
    let positions = || prop_oneof![1 => Just(0_usize), 4 => 1..9_usize, 4 => 9..80_usize, 1 => 126..131_usize];
    let features = || prop_oneof![6 => 1..66_usize, 1 => Just(0_usize), 1 => 127..131_usize];
    let sizes = [few().boxed(), (1..3_usize).boxed(), (1..4_usize).boxed()];
    let sizes = (sizes, [positions().boxed(), positions().boxed(), features().boxed(), features().boxed()]);
    let operands = [tensor(draw, CLASSES), tensor(draw, CLASSES), tensor(draw, CLASSES), tensor(draw, CLASSES)];
    let scale = prop_oneof![3 => Just(None), 1 => prop::sample::select(&[1.0, 0.3, -0.5, 0.0][..]).prop_map(Some)];
    let options = (scale, any::<bool>(), 0..4_u8);
    (sizes, operands, options, placement(), any::<u64>().no_shrink())
        .prop_map(move |((heads, sizes), [q, k, v, mask], (scale, causal, kind), placement, seed)| {
            let ([batch, kv_heads, group], [queries, keys, depth, width]) = (heads, sizes);
            // The oracle needs queries · keys · (depth + width) steps a head; queries are the first to go.
            let sizes = cap(vec![queries, keys, batch, kv_heads, group, depth.max(width)], 16 * draw.limit);
            let [queries, keys, batch, kv_heads, group, _] = std::array::from_fn(|index| sizes[index]);
            let heads = kv_heads * group;
            let build = |spec: TensorSpec, shape: [usize; 4], index: usize| {
                host(&TensorSpec { broadcast: 0, ..spec }, dtype, &shape, seed, index)
            };
            let mut inputs = vec![
                build(q, [batch, heads, queries, depth], 0),
                build(k, [batch, kv_heads, keys, depth], 1),
                build(v, [batch, kv_heads, keys, width], 2),
            ];
            let shape = mask.shape(&[batch, heads, queries, keys]);
            match kind {
                0 => {}
                1 => inputs.push(additive(host(&mask, dtype, &shape, seed, 3), seed)),
                _ => inputs.push(host(&mask, DType::Bool, &shape, seed, 3)),
            }
            let out = poisoned(dtype, layout(&placement, &[batch, heads, queries, width]), seed);
            let call = Call::Attention(AttentionOptions { scale, causal });
            Case { call, inputs: inputs.into_iter().map(Input::Tensor).collect(), out }
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

/// What each element may be.
#[must_use]
pub fn expect(options: AttentionOptions, case: &Case, arithmetic: Arithmetic) -> Vec<Expect> {
    let [Some(q), Some(k), Some(v)] = [0, 1, 2].map(|index| case.tensor(index)) else { return Vec::new() };
    let (&[batch, heads, queries, depth], &[_, kv_heads, keys, width]) = (&**q.layout.shape(), &**v.layout.shape())
    else {
        return Vec::new();
    };
    if case.out.layout.count() == 0 {
        return Vec::new();
    }
    let values = |tensor: &HostTensor| -> Vec<f64> {
        positions(&tensor.layout).into_iter().map(|at| decode(tensor.dtype, tensor.bits(at)).to_f64()).collect()
    };
    let (q, k, v) = (values(q), values(k), values(v));
    let addends = case.tensor(3).map(|mask| addends(mask, [batch, heads, queries, keys]));
    let format = Format::of(case.out.dtype).map_or(Format::F64, Format::accumulator);
    let row = Row {
        format,
        steps: Steps::new(format),
        ulps: if case.out.dtype == DType::F64 { 4.0 } else { 3.0 },
        products: if case.out.dtype == DType::F64 { 0.0 } else { arithmetic.operand_error(DType::F32) },
        scale: options.scale.unwrap_or_else(|| 1.0 / (depth.max(1) as f64).sqrt()),
        depth,
        width,
    };
    let mut expected = Vec::new();
    for head in 0..batch * heads {
        let shared = head / heads * kv_heads + head % heads / (heads / kv_heads);
        let (k, v) = (&k[shared * keys * depth..], &v[shared * keys * width..]);
        for query in 0..queries {
            let place = head * queries + query;
            let reach = |key: usize| !options.causal || key + queries <= query + keys;
            let addend = |key: usize| match &addends {
                _ if !reach(key) => None,
                Some(addends) => addends[place * keys + key],
                None => Some(0.0),
            };
            let addends: Vec<_> = (0..keys).map(addend).collect();
            expected.extend(row.expect(&q[place * depth..][..depth], k, v, &addends));
        }
    }
    expected
}

/// What the mask adds, `None` where a bool mask hides the key.
fn addends(mask: &HostTensor, scores: [usize; 4]) -> Vec<Option<f64>> {
    let value = |at: usize| decode(mask.dtype, mask.bits(at));
    broadcast_positions(mask, &scores)
        .into_iter()
        .map(|at| match mask.dtype {
            DType::Bool => value(at).to_bool().then_some(0.0),
            _ => Some(value(at).to_f64()),
        })
        .collect()
}

/// The computation of a row.
struct Row {
    format: Format,
    steps: Steps,
    /// Units in the last place of exp in the contract.
    ulps: f64,
    /// What a backend declares to lose in the operands of a product.
    products: f64,
    scale: f64,
    depth: usize,
    width: usize,
}

/// A score before the softmax.
enum Score {
    Hidden,
    Number(Ball),
    Nan,
    /// Not specified.
    Open,
}

impl Row {
    fn expect(&self, q: &[f64], k: &[f64], v: &[f64], addends: &[Option<f64>]) -> Vec<Expect> {
        let score = |key: usize, addend: &Option<f64>| {
            addend.map_or(Score::Hidden, |addend| self.score(q, &k[key * self.depth..][..self.depth], addend))
        };
        let scores: Vec<_> = addends.iter().enumerate().map(|(key, addend)| score(key, addend)).collect();
        let column =
            |column: usize| -> Vec<f64> { (0..addends.len()).map(|key| v[key * self.width + column]).collect() };
        if scores.iter().any(|score| matches!(score, Score::Nan)) {
            return vec![Expect::Nan; self.width];
        }
        let weights = self.weights(&scores);
        (0..self.width).map(|index| self.element(weights.as_deref(), &scores, &column(index))).collect()
    }

    /// scale · Σ q·k + addend
    fn score(&self, q: &[f64], k: &[f64], addend: f64) -> Score {
        let (steps, reads) = (self.steps, self.depth > 0 && self.scale != 0.0);
        let finite = q.iter().chain(k).all(|x| x.is_finite());
        if addend.is_nan() || reads && q.iter().chain(k).any(|x| x.is_nan()) {
            // −∞ hides a key by addition, which NaN survives.
            return if addend == f64::NEG_INFINITY { Score::Open } else { Score::Nan };
        }
        if !finite || addend == f64::INFINITY {
            return Score::Open;
        }
        let (mut value, mut magnitude, mut sizes) = (Dd::default(), 0.0_f64, 0.0_f64);
        for (&x, &y) in q.iter().zip(k) {
            value = value + Dd::product(x, y);
            magnitude += (x * y).abs();
            sizes = sizes.max(x.abs()).max(y.abs());
        }
        let (factor, depth) = (self.scale.abs(), self.depth as f64);
        // The scale may be applied to an operand, or to the sum.
        let largest = (factor.max(1.0) * magnitude.max(sizes)) * (1.0 + 1.0 / 1024.0);
        if largest >= self.format.max() {
            return Score::Open;
        }
        if addend == f64::NEG_INFINITY {
            return Score::Hidden;
        }
        let bound = (gamma(depth + 4.0, steps.unit()) + self.products) * factor * magnitude;
        let lost = steps.tiny() * depth * (1.0 + factor + sizes);
        let product = Ball { value: value * Dd::from(self.scale), error: bound + lost };
        let score = if factor == 0.0 { Ball::exact(0.0) } else { product };
        Score::Number(steps.add(score, Ball::exact(addend)))
    }

    /// The exponentials less the maximum, 0 for hidden keys; `None` where nothing is known.
    fn weights(&self, scores: &[Score]) -> Option<Vec<Ball>> {
        let (mut max, mut unsure) = (f64::NEG_INFINITY, 0.0_f64);
        for score in scores {
            match score {
                Score::Number(score) => (max, unsure) = (max.max(score.value.hi), unsure.max(score.error)),
                Score::Hidden => {}
                Score::Nan | Score::Open => return None,
            }
        }
        // A maximum so far off could let the exponentials overflow or vanish.
        if unsure > 1.0 || unsure.is_nan() {
            return None;
        }
        let rescaled = scores.len().div_ceil(KEYS) as f64;
        let weight = |score: &Score| {
            let Score::Number(score) = score else { return Ball::exact(0.0) };
            let shifted = score.value + Dd::from(-max);
            let rounding = self.steps.unit() * (shifted.hi.abs() + score.error + unsure);
            let weight = self.steps.exp(Ball { value: shifted, error: score.error + rounding }, self.ulps);
            let steps = rescaled * (2.0 * self.ulps + 1.0) * self.steps.unit() * SECOND_ORDER;
            // e bounds what a backend's own maximum makes of the smallest number.
            let lost = (rescaled + 1.0) * self.steps.tiny() * std::f64::consts::E;
            weight.with_error(weight.error + steps * weight.magnitude() + lost)
        };
        Some(scores.iter().map(weight).collect())
    }

    fn element(&self, weights: Option<&[Ball]>, scores: &[Score], values: &[f64]) -> Expect {
        let seen = |score: &Score| matches!(score, Score::Number(_));
        let pairs = || scores.iter().zip(values);
        if pairs().any(|(score, v)| seen(score) && v.is_nan()) {
            return Expect::Nan;
        }
        let most: f64 = values.iter().map(|v| v.abs()).sum();
        let Some(weights) = weights.filter(|_| most < self.format.max() / 2.0) else { return Expect::Any };
        if !scores.iter().any(seen) {
            return Expect::near(Dd::default(), 0.0);
        }
        let (steps, keys) = (self.steps, values.len());
        let total = steps.sum(weights, keys);
        let term = |(w, &v): (&Ball, &f64)| Ball { value: w.value * Dd::from(v), error: w.error * v.abs() };
        let terms: Vec<Ball> = weights.iter().zip(values).map(term).collect();
        let sum = steps.sum(&terms, keys + 2);
        let magnitude: f64 = terms.iter().map(|term| term.magnitude()).sum();
        let sum = sum.with_error(sum.error + self.products * magnitude + keys as f64 * steps.tiny());
        let result = steps.div(sum, total);
        // The division may come before the product, where it rounds each weight.
        let early = steps.unit() * magnitude / (total.value.hi - total.error) + steps.tiny() * (keys as f64 + most);
        Expect::near(result.value, evaluated(result.error + early) * SECOND_ORDER)
    }
}
