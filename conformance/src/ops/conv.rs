//! Convolutions and their gradients.
//!
//! All three ops sum products over the same taps, so the oracle walks those once: every combination of a batch, an output
//! channel, an input channel of its group, a position of y and a tap of the kernel, and puts the product to the element that
//! the op gives. Each sum is then bounded as an element of a matrix product over these terms and the bias, and moves on through the activation as in a [linear layer](super::linear). Padding is a term whose factor is 0.

use std::ops::Range;

use congruent_backend_api::ops::conv::{Conv, ConvOp, ConvOptions, MAX_SPATIAL};
use congruent_backend_api::ops::linear::Activation;
use congruent_backend_api::{DType, View};
use proptest::prelude::*;
use proptest::sample::select;

use crate::arithmetic::Arithmetic;
use crate::case::{Call, Case, Input, poisoned};
use crate::expect::Expect;
use crate::host::{HostTensor, decode, positions};
use crate::ops::linear::activate;
use crate::ops::matmul::{CLASSES, float};
use crate::ops::{host, layout};
use crate::spec::{Draw, Placement, ShapeKind, TensorSpec, placement, tensor};

/// The sizes of a convolution; spatial axes that there are not have size 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) batch: usize,
    pub(crate) groups: usize,
    /// Output channels, and input channels of each group.
    pub(crate) channels: [usize; 2],
    pub(crate) x: [usize; MAX_SPATIAL],
    pub(crate) kernel: [usize; MAX_SPATIAL],
    pub(crate) y: [usize; MAX_SPATIAL],
    pub(crate) options: ConvOptions,
}

/// A product: a tap of the kernel at a position of y.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tap {
    /// The group whose input channels are met.
    pub(crate) group: usize,
    /// The element of the kernel.
    pub(crate) kernel: [usize; MAX_SPATIAL],
    /// The position of y.
    pub(crate) position: [usize; MAX_SPATIAL],
    /// The input element that is met; outside of the input lies the padding.
    pub(crate) at: [isize; MAX_SPATIAL],
    /// Whether the product is left out.
    pub(crate) dropped: bool,
}

/// Which products are walked.
struct Scope {
    batch: Range<usize>,
    outputs: Range<usize>,
    inputs: Range<usize>,
    taps: Range<usize>,
    positions: Range<usize>,
}

impl Sizes {
    pub(crate) fn new(options: &ConvOptions, x: &[usize], weight: &[usize], y: &[usize]) -> Self {
        let space = |sizes: &[usize]| {
            let mut space = [1; MAX_SPATIAL];
            space[..sizes.len() - 2].copy_from_slice(&sizes[2..]);
            space
        };
        let default = ConvOptions::default();
        let mut options = *options;
        for axis in x.len() - 2..MAX_SPATIAL {
            options.stride[axis] = default.stride[axis];
            options.padding[axis] = default.padding[axis];
            options.dilation[axis] = default.dilation[axis];
        }
        let channels = [weight[0], weight[1]];
        Self { batch: x[0], groups: options.groups, channels, x: space(x), kernel: space(weight), y: space(y), options }
    }

    /// The sizes of a case, if they are those of a convolution.
    fn of(op: ConvOp, options: &ConvOptions, case: &Case) -> Option<Self> {
        let (a, b) = (case.tensor(0)?, case.tensor(1)?);
        Conv::new(op, view(a), view(b), case.tensor(2).map(view), options, view(&case.out)).ok()?;
        let [a, b, out] = [a, b, &case.out].map(|tensor| &**tensor.layout.shape());
        Some(match op {
            ConvOp::Conv => Self::new(options, a, b, out),
            ConvOp::ConvTranspose => Self::new(options, out, b, a),
            ConvOp::ConvGradWeight => Self::new(options, a, out, b),
        })
    }

    /// How many products there are.
    pub(crate) fn work(&self) -> usize {
        [[self.batch, self.channels[0], self.channels[1]], self.kernel, self.y]
            .as_flattened()
            .iter()
            .fold(1, |product: usize, &size| product.saturating_mul(size))
    }

    fn whole(&self) -> Scope {
        Scope {
            batch: 0..self.batch,
            outputs: 0..self.channels[0],
            inputs: 0..self.channels[1],
            taps: 0..self.kernel.iter().product(),
            positions: 0..self.y.iter().product(),
        }
    }

    /// The products that may enter an element of the output.
    fn scope(&self, op: ConvOp, index: usize) -> Scope {
        let whole = self.whole();
        let one = |index: usize| index..index + 1;
        let [outputs, inputs] = self.channels;
        match op {
            ConvOp::Conv => {
                let (channel, position) = (index / whole.positions.end, index % whole.positions.end);
                let (batch, outputs) = (one(channel / outputs), one(channel % outputs));
                Scope { batch, outputs, positions: one(position), ..whole }
            }
            ConvOp::ConvTranspose => {
                let channel = index / self.x.iter().product::<usize>();
                let (batch, channel) = (channel / (self.groups * inputs), channel % (self.groups * inputs));
                let (group, own) = (channel / inputs, outputs / self.groups);
                Scope {
                    batch: one(batch),
                    outputs: group * own..(group + 1) * own,
                    inputs: one(channel % inputs),
                    ..whole
                }
            }
            ConvOp::ConvGradWeight => {
                let (pair, tap) = (index / whole.taps.end, index % whole.taps.end);
                Scope { outputs: one(pair / inputs), inputs: one(pair % inputs), taps: one(tap), ..whole }
            }
        }
    }

    /// Walks products; each is given by the elements of x (`None` in the padding), weight and y.
    fn walk(&self, scope: Scope, change: impl Fn(&mut Tap, &Self), mut visit: impl FnMut([Option<usize>; 3])) {
        let [outputs, inputs] = self.channels;
        let in_group = (outputs / self.groups).max(1);
        let space = |sizes: &[usize; MAX_SPATIAL]| sizes.iter().product::<usize>();
        for batch in scope.batch {
            for output in scope.outputs.clone() {
                for input in scope.inputs.clone() {
                    for tap in scope.taps.clone() {
                        for position in scope.positions.clone() {
                            let (kernel, position) = (unravel(tap, &self.kernel), unravel(position, &self.y));
                            let at = std::array::from_fn(|axis| self.at(axis, position[axis], kernel[axis]));
                            let mut tap = Tap { group: output / in_group, kernel, position, at, dropped: false };
                            change(&mut tap, self);
                            if tap.dropped {
                                continue;
                            }
                            let inside: Vec<usize> = (tap.at.iter().zip(&self.x))
                                .filter_map(|(&at, &size)| usize::try_from(at).ok().filter(|&at| at < size))
                                .collect();
                            let channel = (batch * self.groups + tap.group) * inputs + input;
                            let x = (inside.len() == MAX_SPATIAL)
                                .then(|| channel * space(&self.x) + ravel(&inside, &self.x));
                            let weight =
                                (output * inputs + input) * space(&self.kernel) + ravel(&tap.kernel, &self.kernel);
                            let y = (batch * outputs + output) * space(&self.y) + ravel(&tap.position, &self.y);
                            visit([x, Some(weight), Some(y)]);
                        }
                    }
                }
            }
        }
    }

    /// The input element on an axis that a tap meets at a position.
    fn at(&self, axis: usize, position: usize, tap: usize) -> isize {
        let options = &self.options;
        (options.stride[axis] * position + options.dilation[axis] * tap) as isize - options.padding[axis][0] as isize
    }
}

fn view(tensor: &HostTensor) -> View<'_> {
    View { dtype: tensor.dtype, layout: &tensor.layout }
}

fn unravel(mut index: usize, sizes: &[usize; MAX_SPATIAL]) -> [usize; MAX_SPATIAL] {
    let mut at = [0; MAX_SPATIAL];
    for (at, &size) in at.iter_mut().zip(sizes).rev() {
        (*at, index) = (index % size, index / size);
    }
    at
}

fn ravel(at: &[usize], sizes: &[usize; MAX_SPATIAL]) -> usize {
    at.iter().zip(sizes).fold(0, |index, (&at, &size)| index * size + at)
}

/// Generated convolutions of one to three axes: strides, padding on either side, dilation, groups, with and without a bias.
pub fn cases(op: ConvOp, dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    let axis = (1..9_usize, 1..4_usize, 1..4_usize, 1..3_usize, (0..3_usize, 0..3_usize));
    let channels = (1..4_usize, select(&[1_usize, 1, 1, 2, 3][..]), 1..4_usize, 1..4_usize);
    let operand = || tensor(draw, CLASSES);
    let operands = (operand(), operand(), prop_oneof![2 => Just(None), 3 => operand().prop_map(Some)]);
    let activation = prop_oneof![2 => Just(Activation::Identity), 1 => select(Activation::ALL)];
    let rest = (placement(), 0..3_usize, activation, any::<u64>().no_shrink());
    let kind = match draw.cell {
        Some((_, kind, _)) => Just(Some(kind)).boxed(),
        None => prop_oneof![4 => Just(None), 1 => select(&ShapeKind::ALL[..]).prop_map(Some)].boxed(),
    };
    (prop::collection::vec(axis, 1..=MAX_SPATIAL), channels, kind, operands, rest)
        .prop_map(move |(axes, channels, kind, operands, rest)| {
            build((op, dtype), draw.limit, axes, channels, kind, operands, &rest)
        })
        .boxed()
}

type Axis = (usize, usize, usize, usize, (usize, usize));

fn build(
    (op, dtype): (ConvOp, DType),
    limit: usize,
    mut axes: Vec<Axis>,
    (mut batch, mut groups, mut inputs, mut outputs): (usize, usize, usize, usize),
    kind: Option<ShapeKind>,
    (a, b, bias): (TensorSpec, TensorSpec, Option<TensorSpec>),
    (placement, more, activation, seed): &(Placement, usize, Activation, u64),
) -> Case {
    match kind {
        Some(ShapeKind::Line) => axes.truncate(1),
        Some(ShapeKind::Block) => axes.truncate(2),
        Some(ShapeKind::Deep) => axes.resize(3, axes[0]),
        Some(ShapeKind::Edges) => axes[0].0 = [31, 32, 33, 63, 64, 65][*seed as usize % 6],
        Some(ShapeKind::Empty) => *[&mut batch, &mut inputs, &mut outputs][*seed as usize % 3] = 0,
        // Axes are easily confused where all sizes are equal.
        Some(ShapeKind::Equal) => {
            let size = 2 + outputs % 3;
            batch = size;
            axes.iter_mut().for_each(|axis| axis.0 = size);
            (groups, inputs, outputs) = if groups > 1 { (size, 1, 1) } else { (1, size, size) };
        }
        None => {}
    }
    let mut options = ConvOptions { groups, ..ConvOptions::default() };
    for (index, &(_, _, stride, dilation, (before, after))) in axes.iter().enumerate() {
        (options.stride[index], options.dilation[index], options.padding[index]) = (stride, dilation, [before, after]);
    }
    // The least size for the kernel to fit.
    let least = |&(_, kernel, _, dilation, (before, after)): &Axis| {
        (dilation * (kernel - 1) + 1).saturating_sub(before + after)
    };
    let positions = |axis: &Axis| (axis.0 + axis.4.0 + axis.4.1 - axis.3 * (axis.1 - 1) - 1) / axis.2 + 1;
    axes.iter_mut().for_each(|axis| axis.0 = axis.0.max(least(axis)));
    // The oracle needs one step for each product.
    loop {
        let work = axes.iter().map(|axis| positions(axis) * axis.1).product::<usize>();
        let least_of_all = (batch, inputs, outputs) == (1, 1, 1) && axes.iter().all(|axis| axis.0 == least(axis));
        if work * batch * groups * inputs * outputs <= 16 * limit || least_of_all {
            break;
        }
        match axes.iter_mut().filter(|axis| axis.0 > least(axis)).max_by_key(|axis| axis.0) {
            Some(axis) => axis.0 = (axis.0 / 2).max(least(axis)),
            None => (batch, inputs, outputs) = (batch.min(1), (inputs / 2).max(1), (outputs / 2).max(1)),
        }
    }
    let sizes = |first: [usize; 2], of: &dyn Fn(&Axis) -> usize| {
        [&first[..], &axes.iter().map(of).collect::<Vec<_>>()].concat()
    };
    let more = if op == ConvOp::ConvTranspose { *more } else { 0 };
    let x = sizes([batch, groups * inputs], &|axis| axis.0 + more);
    let weight = sizes([groups * outputs, inputs], &|axis| axis.1);
    let y = sizes([batch, groups * outputs], &positions);
    let (left, right, out) = match op {
        ConvOp::Conv => (x, weight, y),
        ConvOp::ConvTranspose => (y, weight, x),
        ConvOp::ConvGradWeight => (x, y, weight),
    };
    let bias = bias.filter(|_| op != ConvOp::ConvGradWeight).map(|bias| host(&bias, dtype, &out[1..2], *seed, 2));
    let (a, b) = (host(&a, dtype, &left, *seed, 0), host(&b, dtype, &right, *seed, 1));
    let inputs = [Some(a), Some(b), bias].into_iter().flatten().map(Input::Tensor).collect();
    let activation = if op == ConvOp::ConvGradWeight { Activation::Identity } else { *activation };
    Case { call: Call::Conv { op, options, activation }, inputs, out: poisoned(dtype, layout(placement, &out), *seed) }
}

/// The values of a case's operands.
struct Values {
    a: Vec<f64>,
    b: Vec<f64>,
    bias: Option<Vec<f64>>,
}

impl Values {
    fn of(case: &Case) -> Option<Self> {
        let values = |tensor: &HostTensor| {
            let elements =
                positions(&tensor.layout).into_iter().map(|at| decode(tensor.dtype, tensor.bits(at)).to_f64());
            elements.collect::<Vec<_>>()
        };
        Some(Self { a: values(case.tensor(0)?), b: values(case.tensor(1)?), bias: case.tensor(2).map(values) })
    }

    /// The element of the output to which a product belongs, and its factors.
    fn term(&self, op: ConvOp, [x, weight, y]: [Option<usize>; 3]) -> Option<(usize, (f64, f64))> {
        let value = |values: &[f64], at: Option<usize>| at.map_or(0.0, |at| values[at]);
        let (out, a, b) = match op {
            ConvOp::Conv => (y, x, weight),
            ConvOp::ConvTranspose => (x, y, weight),
            ConvOp::ConvGradWeight => (weight, x, y),
        };
        Some((out?, (value(&self.a, a), value(&self.b, b))))
    }

    /// The bias of an element.
    fn bias(&self, case: &Case, index: usize) -> Option<f64> {
        let shape = case.out.layout.shape();
        let space: usize = shape[2..].iter().product();
        self.bias.as_ref().map(|bias| bias[index / space % shape[1]])
    }

    /// What an element may be whose terms, but for the bias, are these.
    fn expect(
        &self,
        case: &Case,
        index: usize,
        mut terms: Vec<(f64, f64)>,
        activation: Activation,
        arithmetic: Arithmetic,
    ) -> Expect {
        terms.extend(self.bias(case, index).map(|bias| (bias, 1.0)));
        activate(activation, case.out.dtype, float(case.out.dtype, &terms, 1.0, 0.0, 0.0, arithmetic))
    }
}

/// What each element may be.
#[must_use]
pub fn expect(
    op: ConvOp,
    options: &ConvOptions,
    activation: Activation,
    case: &Case,
    arithmetic: Arithmetic,
) -> Vec<Expect> {
    let (Some(sizes), Some(values)) = (Sizes::of(op, options, case), Values::of(case)) else { return Vec::new() };
    let mut sums = vec![Vec::new(); case.out.layout.count()];
    sizes.walk(
        sizes.whole(),
        |_, _| {},
        |product| {
            if let Some((out, term)) = values.term(op, product) {
                sums[out].push(term);
            }
        },
    );
    let element = |(index, terms)| values.expect(case, index, terms, activation, arithmetic);
    sums.into_iter().enumerate().map(element).collect()
}

/// What one element may be, for calls that are too large to judge all of them.
pub(crate) fn expect_element(
    op: ConvOp,
    options: &ConvOptions,
    activation: Activation,
    case: &Case,
    index: usize,
) -> Option<Expect> {
    let (sizes, values) = (Sizes::of(op, options, case)?, Values::of(case)?);
    let mut terms = Vec::new();
    sizes.walk(
        sizes.scope(op, index),
        |_, _| {},
        |product| {
            terms.extend(values.term(op, product).filter(|&(out, _)| out == index).map(|(_, term)| term));
        },
    );
    Some(values.expect(case, index, terms, activation, Arithmetic::default()))
}

/// How many products a case has.
pub(crate) fn work(op: ConvOp, options: &ConvOptions, case: &Case) -> usize {
    Sizes::of(op, options, case).map_or(0, |sizes| sizes.work())
}

/// The sums of a case, in f64, with every product changed or dropped by `change`.
pub(crate) fn changed(op: ConvOp, options: &ConvOptions, case: &Case, change: fn(&mut Tap, &Sizes)) -> Vec<f64> {
    let (Some(sizes), Some(values)) = (Sizes::of(op, options, case), Values::of(case)) else { return Vec::new() };
    let mut sums: Vec<f64> =
        (0..case.out.layout.count()).map(|index| values.bias(case, index).unwrap_or(0.0)).collect();
    sizes.walk(sizes.whole(), change, |product| {
        if let Some((out, (a, b))) = values.term(op, product) {
            sums[out] += a * b;
        }
    });
    sums
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::{Layout, Shape};

    use super::*;

    fn tensor(shape: &[usize], values: &[f32]) -> HostTensor {
        let layout = Layout::contiguous(Shape::new("test", shape).unwrap());
        HostTensor { dtype: DType::F32, layout, bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect() }
    }

    fn case(op: ConvOp, options: ConvOptions, inputs: Vec<HostTensor>, out: &[usize]) -> Case {
        let out = tensor(out, &vec![0.0; out.iter().product()]);
        let call = Call::Conv { op, options, activation: Activation::Identity };
        Case { call, inputs: inputs.into_iter().map(Input::Tensor).collect(), out }
    }

    /// By hand: a kernel [1, 10] with stride 2, dilation 2 and one zero before, in two groups.
    #[test]
    fn sums_are_those_of_the_formula() {
        let options = ConvOptions { stride: [2; 3], dilation: [2; 3], padding: [[1, 0]; 3], groups: 2 };
        let (x, weight) = (
            tensor(&[1, 2, 4], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
            tensor(&[2, 1, 2], &[1.0, 10.0, 2.0, 20.0]),
        );
        let y = tensor(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let sums = |case: Case| {
            let Call::Conv { op, options, activation } = case.call else { return Vec::new() };
            let whole = expect(op, &options, activation, &case, Arithmetic::default());
            let one = |index| expect_element(op, &options, activation, &case, index);
            assert!((0..whole.len()).all(|index| one(index) == Some(whole[index])));
            changed(op, &options, &case, |_, _| {})
        };
        let bias = tensor(&[2], &[100.0, 200.0]);
        let forward = case(ConvOp::Conv, options, vec![x.clone(), weight.clone(), bias], &[1, 2, 2]);
        // Taps at −1, 1 and at 1, 3.
        assert_eq!(sums(forward), [120.0, 142.0, 320.0, 372.0]);
        let back = case(ConvOp::ConvTranspose, options, vec![y.clone(), weight], &[1, 2, 4]);
        assert_eq!(sums(back), [0.0, 12.0, 0.0, 20.0, 0.0, 68.0, 0.0, 80.0]);
        let weight = case(ConvOp::ConvGradWeight, options, vec![x, y], &[2, 1, 2]);
        assert_eq!(sums(weight), [4.0, 10.0, 24.0, 50.0]);
    }

    #[test]
    fn padding_enters_as_zeros_except_in_a_transpose() {
        let options = ConvOptions { padding: [[1, 1]; 3], ..ConvOptions::default() };
        let (x, weight) = (tensor(&[1, 1, 2], &[1.0, 1.0]), tensor(&[1, 1, 3], &[f32::INFINITY, 1.0, 1.0]));
        let of = |op| {
            let case = case(op, options, vec![x.clone(), weight.clone()], &[1, 1, 2]);
            expect(op, &options, Activation::Identity, &case, Arithmetic::default())
        };
        assert_eq!(of(ConvOp::Conv), [Expect::Nan, Expect::exact(DType::F32, f64::INFINITY)]);
        let infinite = Expect::exact(DType::F32, f64::INFINITY);
        assert_eq!(of(ConvOp::ConvTranspose)[0], infinite);
        assert!(matches!(of(ConvOp::ConvTranspose)[1], Expect::Near { .. }));
    }
}
