//! The rows of attention and of its gradients, in ball arithmetic.

use std::ops::Range;

use congruent_backend_api::DType;
use congruent_backend_api::ops::attention::{
    Alignment, Attention, AttentionGradient, AttentionInputs, AttentionOp, AttentionOptions,
};
use congruent_backend_api::ops::random::philox;

use super::Given;
use crate::arithmetic::Arithmetic;
use crate::ball::{Ball, SECOND_ORDER, Steps, evaluated};
use crate::case::Case;
use crate::dd::Dd;
use crate::expect::Expect;
use crate::host::{HostTensor, decode, encode_float, positions};
use crate::round::{Format, exp2, gamma};

/// Keys that share one scaling by a running maximum, at least.
const KEYS: usize = 32;

/// A call, with what its arithmetic can do.
pub(super) struct Oracle<'a> {
    op: AttentionOp,
    options: AttentionOptions,
    operands: AttentionInputs<&'a HostTensor>,
    format: Format,
    /// That of f16 or bf16 operands.
    half: Option<Format>,
    steps: Steps,
    /// Units in the last place of exp and ln, and of tanh, in the contract.
    ulps: [f64; 2],
    /// What a backend declares to lose in the operands of a product.
    products: f64,
    scale: f64,
    heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
    depth: usize,
}

/// A score before the softmax.
enum Score {
    Hidden,
    Number {
        score: Ball,
        /// The derivative of the soft cap.
        slope: Ball,
    },
    Nan,
    /// Not specified.
    Open,
}

impl<'a> Oracle<'a> {
    pub(super) fn new(
        op: AttentionOp,
        options: AttentionOptions,
        given: Given,
        case: &'a Case,
        arithmetic: Arithmetic,
    ) -> Option<Self> {
        let mut next = 0..;
        let operands = given.map(|given| given.then(|| next.next().and_then(|index| case.tensor(index))).flatten());
        let oracle = Self::of(op, options, AttentionInputs::from_array(operands)?)?;
        let products = if oracle.wide() == DType::F64 { 0.0 } else { arithmetic.operand_error(DType::F32) };
        Some(Self { products, ..oracle })
    }

    fn of(op: AttentionOp, options: AttentionOptions, operands: AttentionInputs<&'a HostTensor>) -> Option<Self> {
        let (&[_, heads, queries, depth], &[_, kv_heads, keys, _]) =
            (&**operands.q.layout.shape(), &**operands.k.layout.shape())
        else {
            return None;
        };
        let double = operands.q.dtype == DType::F64;
        let format = if double { Format::F64 } else { Format::F32 };
        Some(Self {
            op,
            options,
            operands,
            format,
            half: Format::of(operands.q.dtype).filter(|half| half.precision < Format::F32.precision),
            steps: Steps::new(format),
            ulps: if double { [4.0; 2] } else { [3.0, 4.0] },
            products: 0.0,
            scale: options.scale.unwrap_or_else(|| 1.0 / (depth.max(1) as f64).sqrt()),
            heads,
            kv_heads,
            queries,
            keys,
            depth,
        })
    }

    fn wide(&self) -> DType {
        Attention::wide(self.operands.q.dtype)
    }

    /// The magnitude with which a tensor core may align an operand.
    fn counted(&self, x: f64) -> f64 {
        let least = self.half.map_or(0.0, |half| exp2(half.min_exponent));
        if x == 0.0 { 0.0 } else { x.abs().max(least) }
    }

    /// The features of a row of the result.
    pub(super) fn width(&self) -> usize {
        match self.op {
            AttentionOp::LogSumExp => 1,
            AttentionOp::Output | AttentionOp::GradValue => self.operands.v.layout.shape()[3],
            AttentionOp::GradQuery | AttentionOp::GradKey => self.depth,
        }
    }

    /// What the features of row `row` of the result may be.
    pub(super) fn row(&self, row: usize, features: Range<usize>) -> Vec<Expect> {
        match self.op {
            AttentionOp::Output | AttentionOp::LogSumExp => {
                self.forward(self.place(row, self.heads, self.queries), features)
            }
            AttentionOp::GradQuery => {
                let place @ [batch, head, _] = self.place(row, self.heads, self.queries);
                let q = features_of(self.operands.q, place);
                let terms: Vec<_> = (0..self.keys)
                    .map(|key| {
                        let gradient = self.score_gradient(place, &q, key);
                        (gradient, features_of(self.operands.k, [batch, head / self.group(), key]))
                    })
                    .collect();
                features.map(|feature| self.sum(&terms, feature, true)).collect()
            }
            AttentionOp::GradKey | AttentionOp::GradValue => {
                let [batch, head, key] = self.place(row, self.kv_heads, self.keys);
                let heads = head * self.group()..(head + 1) * self.group();
                let queries = heads.flat_map(|head| (0..self.queries).map(move |query| [batch, head, query]));
                let by_key = self.op == AttentionOp::GradKey;
                let terms: Vec<_> = queries
                    .map(|place| {
                        let q = features_of(self.operands.q, place);
                        if by_key {
                            return (self.score_gradient(place, &q, key), q);
                        }
                        let weight = self.weight(place, &q, key).map(|(weight, _)| self.dropped(place, key, weight));
                        (weight, self.grad(place))
                    })
                    .collect();
                features.map(|feature| self.sum(&terms, feature, by_key)).collect()
            }
        }
    }

    fn group(&self) -> usize {
        (self.heads / self.kv_heads.max(1)).max(1)
    }

    fn place(&self, row: usize, heads: usize, positions: usize) -> [usize; 3] {
        [row / positions / heads, row / positions % heads, row % positions]
    }

    fn grad(&self, place: [usize; 3]) -> Vec<f64> {
        self.operands.gradient.map_or_else(Vec::new, |gradient| features_of(gradient.grad, place))
    }

    /// How many keys a batch item has, and by how much a query's own key is more than the query.
    fn keys_of(&self, batch: usize) -> (usize, i64) {
        let keys = match self.operands.lengths {
            Some(lengths) => {
                decode(DType::I64, lengths.bits(at(lengths, &[batch]))).to_i64().clamp(0, self.keys as i64)
            }
            None => self.keys as i64,
        };
        let shift = if self.options.alignment == Alignment::Last { keys - self.queries as i64 } else { 0 };
        (keys as usize, shift)
    }

    /// The score of a key for a query whose features are `q`.
    fn score(&self, [batch, head, query]: [usize; 3], q: &[f64], key: usize) -> Score {
        let (keys, shift) = self.keys_of(batch);
        let (own, steps) = (query as i64 + shift, self.steps);
        let distance = own.abs_diff(key as i64);
        let hidden = key >= keys
            || self.options.causal && key as i64 > own
            || self.options.window.is_some_and(|window| distance >= window as u64);
        let addend = match self.operands.mask {
            _ if hidden => return Score::Hidden,
            Some(mask) => {
                let value = decode(mask.dtype, mask.bits(at(mask, &[batch, head, query, key])));
                match mask.dtype {
                    DType::Bool if value.to_bool() => 0.0,
                    DType::Bool => return Score::Hidden,
                    _ => value.to_f64(),
                }
            }
            None => 0.0,
        };
        let k = &features_of(self.operands.k, [batch, head / self.group(), key])[..];
        let reads = self.depth > 0 && self.scale != 0.0;
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
            magnitude += self.counted(x) * self.counted(y);
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
        let roundings = if self.half.is_some() { 2.0 * depth + 4.0 } else { depth + 4.0 };
        let bound = (gamma(roundings, steps.unit()) + self.products) * factor * magnitude;
        let lost = steps.tiny() * depth * (1.0 + factor + sizes);
        let product = Ball { value: value * Dd::from(self.scale), error: bound + lost };
        let mut score = if factor == 0.0 { Ball::exact(0.0) } else { product };
        let mut slope = Ball::exact(1.0);
        if let Some(cap) = self.options.soft_cap {
            let cap = steps.constant(cap);
            let tanh = steps.tanh(steps.div(score, cap), self.ulps[1]);
            slope = steps.sub(slope, steps.mul(tanh, tanh));
            score = steps.mul(cap, tanh);
        }
        if let Some(slopes) = self.operands.slopes {
            let slope = decode(slopes.dtype, slopes.bits(at(slopes, &[batch, head]))).to_f64();
            score = steps.sub(score, steps.mul(Ball::exact(slope), Ball::exact(distance as f64)));
        }
        Score::Number { score: steps.add(score, Ball::exact(addend)), slope }
    }

    fn forward(&self, place @ [batch, head, _]: [usize; 3], features: Range<usize>) -> Vec<Expect> {
        let q = features_of(self.operands.q, place);
        let scores: Vec<_> = (0..self.keys).map(|key| self.score(place, &q, key)).collect();
        if scores.iter().any(|score| matches!(score, Score::Nan)) {
            return vec![Expect::Nan; features.len()];
        }
        let weights = self.weights(&scores);
        if self.op == AttentionOp::LogSumExp {
            return vec![self.log_sum_exp(weights, &scores)];
        }
        let v: Vec<_> =
            (0..self.keys).map(|key| features_of(self.operands.v, [batch, head / self.group(), key])).collect();
        let weights = weights.map(|(weights, _)| {
            let kept = |(key, &weight)| self.dropped(place, key, weight);
            (weights.iter().enumerate().map(kept).collect::<Vec<_>>(), weights)
        });
        let column = |feature: usize| -> Vec<f64> { v.iter().map(|row| row[feature]).collect() };
        let weights = weights.as_ref().map(|(kept, all)| (&kept[..], &all[..]));
        features.map(|feature| self.element(weights, &scores, &column(feature))).collect()
    }

    /// The exponentials less the maximum, 0 for hidden keys, and that maximum; `None` where nothing is known.
    fn weights(&self, scores: &[Score]) -> Option<(Vec<Ball>, Ball)> {
        let (mut max, mut unsure) = (f64::NEG_INFINITY, 0.0_f64);
        for score in scores {
            match score {
                Score::Number { score, .. } => (max, unsure) = (max.max(score.value.hi), unsure.max(score.error)),
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
            let Score::Number { score, .. } = score else { return Ball::exact(0.0) };
            let shifted = score.value + Dd::from(-max);
            let rounding = self.steps.unit() * (shifted.hi.abs() + score.error + unsure);
            let weight = self.steps.exp(Ball { value: shifted, error: score.error + rounding }, self.ulps[0]);
            let steps = rescaled * (2.0 * self.ulps[0] + 1.0) * self.steps.unit() * SECOND_ORDER;
            // e bounds what a backend's own maximum makes of the smallest number.
            let lost = (rescaled + 1.0) * self.steps.tiny() * std::f64::consts::E;
            weight.with_error(weight.error + steps * weight.magnitude() + lost)
        };
        Some((scores.iter().map(weight).collect(), Ball { value: max.into(), error: unsure }))
    }

    fn log_sum_exp(&self, weights: Option<(Vec<Ball>, Ball)>, scores: &[Score]) -> Expect {
        let Some((weights, max)) = weights else { return Expect::Any };
        if !scores.iter().any(|score| matches!(score, Score::Number { .. })) {
            return Expect::exact(self.wide(), f64::NEG_INFINITY);
        }
        let (steps, unit) = (self.steps, self.steps.unit());
        let log = steps.ln(steps.sum(&weights, weights.len()), self.ulps[0]);
        // Of a backend's own maximum, the logarithm is by as much another.
        let log = log.with_error(log.error + 2.0 * self.ulps[0] * unit * max.error);
        let sum = steps.add(log, Ball::exact(max.value.hi));
        Expect::near(sum.value, evaluated(sum.error) * SECOND_ORDER)
    }

    fn element(&self, weights: Option<(&[Ball], &[Ball])>, scores: &[Score], values: &[f64]) -> Expect {
        let seen = |score: &Score| matches!(score, Score::Number { .. });
        let pairs = || scores.iter().zip(values);
        if pairs().any(|(score, v)| seen(score) && v.is_nan()) {
            return Expect::Nan;
        }
        let kept = self.options.dropout.map_or(1.0, |dropout| 1.0 / (1.0 - dropout.probability));
        let most: f64 = kept * values.iter().map(|v| v.abs()).sum::<f64>();
        let Some((kept, weights)) = weights.filter(|_| most < self.format.max() / 2.0) else { return Expect::Any };
        if !scores.iter().any(seen) {
            return Expect::near(Dd::default(), 0.0);
        }
        let (steps, keys) = (self.steps, values.len());
        let total = steps.sum(weights, keys);
        let term = |(w, &v): (&Ball, &f64)| Ball { value: w.value * Dd::from(v), error: w.error * v.abs() };
        let terms: Vec<Ball> = kept.iter().zip(values).map(term).collect();
        let roundings = if self.half.is_some() { 2 * keys + 2 } else { keys + 2 };
        let sum = steps.sum(&terms, roundings);
        let magnitude: f64 = terms.iter().map(|term| term.magnitude()).sum();
        let sum = sum.with_error(sum.error + self.products * magnitude + keys as f64 * steps.tiny());
        let sum = match self.half {
            Some(half) => {
                // A weight below the smallest normal number of f32 may be flushed.
                let least = half.tiny().max(exp2(self.format.min_exponent));
                let sizes: f64 = values.iter().map(|v| v.abs()).sum();
                // `steps.sum` has what is cut off of terms of normal operands; this is what the others may lose as such.
                let pairs = kept.iter().zip(values);
                let aligned: f64 = pairs.map(|(w, &v)| self.counted(w.magnitude()) * self.counted(v)).sum();
                let cut = gamma(2.0 * keys as f64, steps.unit()) * (aligned - magnitude).max(0.0);
                sum.with_error(sum.error + half.unit() * magnitude + least * sizes + cut)
            }
            None => sum,
        };
        let result = steps.div(sum, total);
        // The division may come before the product, where it rounds each weight.
        let early = steps.unit() * magnitude / (total.value.hi - total.error) + steps.tiny() * (keys as f64 + most);
        Expect::near(result.value, evaluated(result.error + early) * SECOND_ORDER)
    }

    /// What dropout makes of a weight, or of its gradient.
    fn dropped(&self, [batch, head, query]: [usize; 3], key: usize, weight: Ball) -> Ball {
        let Some(dropout) = self.options.dropout else { return weight };
        let number = ((batch * self.heads + head) * self.queries + query) * self.keys + key;
        let word = dropout.offset.wrapping_add(number as u64);
        let block = philox([(word / 4) as u32, ((word / 4) >> 32) as u32, 0, 0], dropout.seed);
        if f64::from(block[(word % 4) as usize]) < (dropout.probability * 2_f64.powi(32)).round_ties_even() {
            return Ball::exact(0.0);
        }
        let kept = self.steps.round(Dd::from(1.0).quotient(1.0 - dropout.probability), 0.0);
        self.steps.mul(weight, kept)
    }

    /// exp(s − l), and the derivative of the soft cap; `None` where nothing is known.
    fn weight(&self, place: [usize; 3], q: &[f64], key: usize) -> Option<(Ball, Ball)> {
        let logsumexp = value(self.operands.gradient?.logsumexp, &place);
        match self.score(place, q, key) {
            Score::Hidden => Some((Ball::exact(0.0), Ball::exact(1.0))),
            _ if logsumexp == f64::NEG_INFINITY => None,
            Score::Number { score, slope } => {
                let shifted = self.steps.sub(score, Ball::exact(logsumexp));
                Some((self.steps.exp(shifted, self.ulps[0]), slope)).filter(|(weight, _)| weight.error.is_finite())
            }
            Score::Nan | Score::Open => None,
        }
    }

    /// The gradient by the scaled product of a query and a key; `None` where nothing is known.
    fn score_gradient(&self, place @ [batch, head, _]: [usize; 3], q: &[f64], key: usize) -> Option<Ball> {
        let (weight, slope) = self.weight(place, q, key)?;
        if weight == Ball::exact(0.0) {
            return Some(weight);
        }
        let (steps, grad) = (self.steps, self.grad(place));
        let v = features_of(self.operands.v, [batch, head / self.group(), key]);
        let (mut sum, mut magnitude) = (Dd::default(), 0.0_f64);
        for (&x, &y) in grad.iter().zip(&v) {
            sum = sum + Dd::product(x, y);
            magnitude += (x * y).abs();
        }
        if magnitude >= self.format.max() / 2.0 || magnitude.is_nan() {
            return None;
        }
        let count = grad.len() as f64;
        let bound = (gamma(count + 1.0, steps.unit()) + self.products) * magnitude + count * steps.tiny();
        let kept = self.dropped(place, key, Ball { value: sum, error: bound });
        let delta = value(self.operands.gradient?.delta, &place);
        let gradient = steps.mul(weight, steps.sub(kept, Ball::exact(delta)));
        Some(if self.options.soft_cap.is_some() { steps.mul(gradient, slope) } else { gradient })
    }

    /// Σ of weighted features, times the scale if `scaled`.
    fn sum(&self, terms: &[(Option<Ball>, Vec<f64>)], feature: usize, scaled: bool) -> Expect {
        let steps = self.steps;
        let term = |(weight, features): &(Option<Ball>, Vec<f64>)| {
            let feature = features[feature];
            weight.map(|w| Ball { value: w.value * Dd::from(feature), error: w.error * feature.abs() })
        };
        let Some(terms) = terms.iter().map(term).collect::<Option<Vec<_>>>() else { return Expect::Any };
        let sum = steps.sum(&terms, terms.len() + 1);
        let magnitude: f64 = terms.iter().map(|term| term.magnitude()).sum();
        let lost = self.products * magnitude + terms.len() as f64 * steps.tiny();
        let sum = sum.with_error(sum.error + lost);
        let sum = if scaled { steps.mul(sum, steps.constant(self.scale)) } else { sum };
        Expect::near(sum.value, evaluated(sum.error) * SECOND_ORDER)
    }
}

/// Where an element lies, by NumPy's broadcasting rule.
fn at(tensor: &HostTensor, index: &[usize]) -> usize {
    let (shape, strides) = (tensor.layout.shape(), tensor.layout.strides());
    let missing = index.len() - shape.len();
    let steps = index[missing..].iter().zip(&**shape).zip(strides);
    let steps = steps.map(|((&index, &size), &stride)| if size == 1 { 0 } else { index as isize * stride });
    tensor.layout.offset().wrapping_add_signed(steps.sum())
}

fn value(tensor: &HostTensor, index: &[usize]) -> f64 {
    decode(tensor.dtype, tensor.bits(at(tensor, index))).to_f64()
}

/// The last axis at a place of the others.
fn features_of(tensor: &HostTensor, [batch, head, position]: [usize; 3]) -> Vec<f64> {
    (0..tensor.layout.shape()[3]).map(|feature| value(tensor, &[batch, head, position, feature])).collect()
}

/// The operands with those of a gradient, among them the log-sum-exp that belongs to them.
pub(super) fn with_gradient(
    inputs: AttentionInputs<HostTensor>,
    options: AttentionOptions,
    grad: HostTensor,
    mut logsumexp: HostTensor,
    delta: HostTensor,
) -> AttentionInputs<HostTensor> {
    let by_reference = AttentionInputs {
        mask: inputs.mask.as_ref(),
        slopes: inputs.slopes.as_ref(),
        lengths: inputs.lengths.as_ref(),
        gradient: None,
        q: &inputs.q,
        k: &inputs.k,
        v: &inputs.v,
    };
    if let Some(oracle) = Oracle::of(AttentionOp::LogSumExp, options, by_reference) {
        for (row, at) in positions(&logsumexp.layout).into_iter().enumerate() {
            let place = oracle.place(row, oracle.heads, oracle.queries);
            let q = features_of(oracle.operands.q, place);
            let scores = (0..oracle.keys).filter_map(|key| match oracle.score(place, &q, key) {
                Score::Number { score, .. } => Some(score.value.hi),
                _ => None,
            });
            let scores: Vec<f64> = scores.collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
            logsumexp.set_bits(at, encode_float(logsumexp.dtype, if scores.is_empty() { max } else { max + sum.ln() }));
        }
    }
    AttentionInputs { gradient: Some(AttentionGradient { grad, logsumexp, delta }), ..inputs }
}
