//! Normalisation and its gradients: bounds by ball arithmetic over the steps that the contract names.
//!
//! One thing is done by hand. The deviations c of a row from its mean μ add up to 0, so that an error δ of the mean moves
//! Σ(c − δ)² = Σc² + n·δ² only by its square; balls, which know nothing of the sum, would say 2δ·Σ|c|.

use congruent_backend_api::ops::norm::NormalizeOp;
use congruent_backend_api::ops::reduce::summation_depth;
use congruent_backend_api::{DType, Scalar};
use proptest::prelude::*;

use crate::ball::{Ball, SECOND_ORDER, Steps, evaluated};
use crate::case::{Call, Case, Input, poisoned};
use crate::dd::Dd;
use crate::expect::Expect;
use crate::ops::reduce::{axes, members, named};
use crate::ops::{host, layout, operand};
use crate::round::{Format, gamma};
use crate::spec::{Draw, TensorSpec, placement, shape, tensor};
use crate::values::Class;

const CLASSES: &[Class] = &[
    Class::Uniform,
    Class::Shifted,
    Class::Large,
    Class::Specials,
    Class::Tiny,
    Class::Constant,
    Class::WideExponent,
    Class::SmallInts,
    Class::Cancelling,
    Class::Sparse,
];

/// Values of weights, biases and gradients.
const FACTORS: &[Class] = &[Class::Uniform, Class::SmallInts, Class::WideExponent, Class::Specials];

/// Generated normalisations, or gradients of them.
pub fn cases(op: NormalizeOp, gradient: bool, dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    let epsilon = prop::sample::select(&[1e-5, 1e-12, 0.0, 1.0][..]);
    let others = (tensor(draw, FACTORS), tensor(draw, FACTORS), 0..3_usize);
    (shape(draw.scaled(2), 5), axes(), tensor(draw, CLASSES), others, placement(), epsilon, any::<u64>().no_shrink())
        .prop_map(move |(shape, mask, x, (second, third, extra), placement, epsilon, seed)| {
            let whole = |spec: TensorSpec| TensorSpec { broadcast: 0, ..spec };
            let build =
                |spec: &TensorSpec, index: usize| Input::Tensor(host(spec, dtype, &spec.shape(&shape), seed, index));
            let mut inputs = vec![build(&whole(x), 0)];
            if gradient {
                inputs.push(build(&whole(second), 1));
                inputs.extend((op.is_affine() && extra > 0).then(|| build(&third, 2)));
            } else if op.is_affine() {
                inputs.extend([second, third].iter().take(extra).enumerate().map(|(at, spec)| build(spec, at + 1)));
            }
            let axes = named(mask, shape.len());
            let epsilon = if op.is_affine() { epsilon } else { 0.0 };
            let out = poisoned(dtype, layout(&placement, &shape), seed);
            Case { call: Call::Normalize { op, gradient, epsilon, axes }, inputs, out }
        })
        .boxed()
}

/// What each element may be.
#[must_use]
pub fn expect(op: NormalizeOp, gradient: bool, epsilon: f64, axes: Option<&[isize]>, case: &Case) -> Vec<Expect> {
    let dtype = case.out.dtype;
    let given = |index: usize| {
        let values = operand(case, index, dtype);
        values.iter().map(|x: &Scalar| x.to_f64()).collect::<Vec<_>>()
    };
    let inputs: Vec<Vec<f64>> = (0..case.inputs.len()).map(given).collect();
    let mut expected = vec![Expect::Any; case.out.layout.count()];
    let format = Format::of(dtype).map_or(Format::F64, Format::accumulator);
    for row in members(case.out.layout.shape(), axes) {
        let rows: Vec<Vec<f64>> = inputs.iter().map(|input| row.iter().map(|&at| input[at]).collect()).collect();
        let computed = Row { op, steps: Steps::new(format), epsilon, double: dtype == DType::F64 }.run(gradient, &rows);
        let finite = rows.iter().flatten().all(|x| x.is_finite());
        for (&at, ball) in row.iter().zip(computed) {
            if finite && ball.value.hi.is_nan() {
                // An overflow in between; `expected` stays open.
                continue;
            }
            expected[at] = Expect::near(ball.value, evaluated(ball.error) * SECOND_ORDER);
        }
    }
    expected
}

/// The computation of a row.
struct Row {
    op: NormalizeOp,
    steps: Steps,
    epsilon: f64,
    double: bool,
}

impl Row {
    /// Units in the last place of exp, ln and 1/√ in the contract.
    fn ulps(&self) -> f64 {
        if self.double { 4.0 } else { 3.0 }
    }

    fn run(&self, gradient: bool, rows: &[Vec<f64>]) -> Vec<Ball> {
        let count = rows[0].len();
        let everywhere = |value: f64, error: f64| vec![Ball { value: value.into(), error }; count];
        if rows[0].iter().any(|x| x.is_nan()) && !gradient {
            return everywhere(f64::NAN, 0.0);
        }
        let infinite = |row: &Vec<f64>| row.iter().any(|x| x.is_infinite());
        if gradient || self.op.is_affine() {
            // Infinities decide by the order of the steps; the contract leaves such rows open, NaN being NaN first.
            if rows.iter().any(infinite) || rows.iter().flatten().any(|x| x.is_nan()) && gradient {
                return everywhere(0.0, f64::INFINITY);
            }
        }
        let balls = |row: &[f64]| row.iter().map(|&x| Ball::exact(x)).collect::<Vec<_>>();
        let rows: Vec<Vec<Ball>> = rows.iter().map(|row| balls(row)).collect();
        match (gradient, self.op.is_affine()) {
            (false, false) => self.softmax(&rows[0]),
            (false, true) => self.affine(&rows),
            (true, false) => self.softmax_gradient(&rows[0], &rows[1]),
            (true, true) => self.affine_gradient(&rows),
        }
    }

    fn sum(&self, terms: &[Ball]) -> Ball {
        self.steps.sum(terms, summation_depth(terms.len()))
    }

    fn mean(&self, terms: &[Ball]) -> Ball {
        self.steps.div(self.sum(terms), self.steps.constant(terms.len() as f64))
    }

    fn products(&self, a: &[Ball], b: &[Ball]) -> Vec<Ball> {
        a.iter().zip(b).map(|(&a, &b)| self.steps.mul(a, b)).collect()
    }

    fn softmax(&self, x: &[Ball]) -> Vec<Ball> {
        let max = x.iter().map(|x| x.value.hi).fold(f64::NEG_INFINITY, f64::max);
        if max.is_infinite() {
            return vec![Ball::exact(f64::NAN); x.len()];
        }
        let (steps, ulps) = (self.steps, self.ulps());
        let least = Ball::exact(f64::NEG_INFINITY);
        let below = |x: &Ball| if *x == least { least } else { steps.sub(*x, Ball::exact(max)) };
        let shifted: Vec<Ball> = x.iter().map(below).collect();
        let exp = |x: &Ball| if *x == least { Ball::exact(0.0) } else { steps.exp(*x, ulps) };
        let exponentials: Vec<Ball> = shifted.iter().map(exp).collect();
        let total = self.sum(&exponentials);
        if self.op == NormalizeOp::Softmax {
            return exponentials.iter().map(|&e| steps.div(e, total)).collect();
        }
        let log = steps.ln(total, ulps);
        shifted.iter().map(|&x| if x == least { least } else { steps.sub(x, log) }).collect()
    }

    fn softmax_gradient(&self, y: &[Ball], grad: &[Ball]) -> Vec<Ball> {
        let steps = self.steps;
        if self.op == NormalizeOp::Softmax {
            let total = self.sum(&self.products(y, grad));
            return y.iter().zip(grad).map(|(&y, &g)| steps.mul(steps.sub(g, total), y)).collect();
        }
        let total = self.sum(grad);
        let pairs = y.iter().zip(grad);
        pairs.map(|(&y, &g)| steps.sub(g, steps.mul(steps.exp(y, self.ulps()), total))).collect()
    }

    fn affine(&self, rows: &[Vec<Ball>]) -> Vec<Ball> {
        let unknown = Ball { value: Dd::default(), error: f64::INFINITY };
        let (unit, _) = self.unit(&rows[0]);
        let mut y = unit.clone();
        if let Some(weight) = rows.get(1) {
            // What is not finite in a factor decides by itself.
            y = y.iter().zip(weight).map(|(&y, &w)| self.steps.mul(y, w)).collect();
        }
        if let Some(bias) = rows.get(2) {
            y = y.iter().zip(bias).map(|(&y, &b)| self.steps.add(y, b)).collect();
        }
        // An overflow is not undone by what follows, not even by NaN.
        let overflowed = |unit: &Ball| unit.error.is_infinite() || unit.value.hi.is_nan();
        y.iter().zip(&unit).map(|(&y, unit)| if overflowed(unit) { unknown } else { y }).collect()
    }

    fn affine_gradient(&self, rows: &[Vec<Ball>]) -> Vec<Ball> {
        let steps = self.steps;
        let (x, factor) = self.unit(&rows[0]);
        let mut grad = rows[1].clone();
        if let Some(weight) = rows.get(2) {
            grad = self.products(&grad, weight);
        }
        let products = self.products(&x, &grad);
        if self.op == NormalizeOp::L2Normalize {
            let epsilon = steps.constant(self.epsilon);
            let gap = factor.value.hi - self.epsilon;
            let along = match gap.abs() > factor.error + epsilon.error {
                true if gap > 0.0 => self.sum(&products),
                true => Ball::exact(0.0),
                // At ε itself, where nothing but ε counts, the divisor is constant.
                false if factor.error <= epsilon.error => Ball::exact(0.0),
                false => Ball { value: Dd::default(), error: f64::INFINITY },
            };
            let pairs = x.iter().zip(&grad);
            return pairs.map(|(&x, &g)| steps.div(steps.sub(g, steps.mul(x, along)), factor)).collect();
        }
        let along = self.mean(&products);
        let mean = if self.op == NormalizeOp::LayerNorm { self.mean(&grad) } else { Ball::exact(0.0) };
        let pairs = x.iter().zip(&grad);
        pairs.map(|(&x, &g)| steps.mul(steps.sub(steps.sub(g, mean), steps.mul(x, along)), factor)).collect()
    }

    /// x̂, and the factor r of the row or its divisor.
    fn unit(&self, x: &[Ball]) -> (Vec<Ball>, Ball) {
        let (steps, count) = (self.steps, self.steps.constant(x.len() as f64));
        let mut centred = x.to_vec();
        let mut squares = self.sum(&self.products(x, x));
        if self.op == NormalizeOp::LayerNorm {
            let mean = self.mean(x);
            centred.iter_mut().for_each(|c| *c = steps.sub(*c, mean));
            // Overflow shows in the plain squares.
            let plain = self.sum(&self.products(&centred, &centred));
            let exact = centred.iter().fold(Dd::default(), |sum, c| sum + c.value * c.value);
            let moved = x.len() as f64 * mean.error * mean.error;
            let depth = summation_depth(x.len()) as f64 + 3.0;
            let error = moved + gamma(depth, steps.unit()) * (exact.hi + moved) + x.len() as f64 * steps.tiny();
            squares = Ball { value: exact, error: if plain.error.is_finite() { error } else { f64::INFINITY } };
        }
        let epsilon = steps.constant(self.epsilon);
        if self.op == NormalizeOp::L2Normalize {
            let norm = steps.sqrt(squares);
            let (a, b) = (norm.value.hi, self.epsilon);
            let divisor = match a >= b {
                _ if norm.error.is_infinite() => norm,
                true => norm.with_error(if a - b > norm.error { norm.error } else { norm.error + epsilon.error }),
                false => epsilon.with_error((a + norm.error - b).max(epsilon.error)),
            };
            return (centred.iter().map(|&c| steps.div(c, divisor)).collect(), divisor);
        }
        let factor = steps.rsqrt(steps.add(steps.div(squares, count), epsilon), self.ulps());
        (centred.iter().map(|&c| steps.mul(c, factor)).collect(), factor)
    }
}
