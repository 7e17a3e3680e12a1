//! Pooling and its gradients.
//!
//! The oracle lists every window's places, in row-major order, and what lies in the input of them. Maxima and positions are
//! exact. An average is its sum, bounded by γ of one rounding less than it has terms, in any order, and one division; an
//! element of a gradient is the sum of the values, or quotients, of the windows that hold it.

use congruent_backend_api::ops::conv::MAX_SPATIAL;
use congruent_backend_api::ops::pool::{Divisor, Pool, PoolOp, PoolOptions};
use congruent_backend_api::{DType, Scalar, View};
use proptest::prelude::*;
use proptest::sample::select;

use crate::arithmetic::Arithmetic;
use crate::case::{Call, Case, Input, poisoned};
use crate::dd::Dd;
use crate::expect::Expect;
use crate::host::{HostTensor, encode, positions};
use crate::model::ErrorModel;
use crate::ops::reduce::Sum;
use crate::ops::{host, layout};
use crate::round::{exp2, gamma};
use crate::spec::{Draw, Placement, ShapeKind, TensorSpec, placement, tensor};
use crate::values::{Class, hash};

const CLASSES: &[Class] = &[
    Class::Specials,
    Class::Uniform,
    Class::Ties,
    Class::SmallInts,
    Class::Positive,
    Class::Cancelling,
    Class::WideExponent,
    Class::Constant,
    Class::FullRange,
    Class::Tiny,
];

/// The sizes of a pooling; spatial axes that there are not have size 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Batches times channels.
    pub(crate) planes: usize,
    pub(crate) x: [usize; MAX_SPATIAL],
    pub(crate) y: [usize; MAX_SPATIAL],
    pub(crate) options: PoolOptions,
}

/// A window, as the oracle takes it or a fault has it.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// Its number along each axis.
    pub(crate) number: [usize; MAX_SPATIAL],
    /// The places of its elements in row-major order; outside of the input lies the padding.
    pub(crate) places: Vec<[isize; MAX_SPATIAL]>,
    /// What its sum is divided by.
    pub(crate) divisor: f64,
    /// Whether padding is elements of value 0.
    pub(crate) zeros: bool,
    /// Whether NaN is passed over.
    pub(crate) skips_nan: bool,
    /// Whether its gradient replaces that of earlier windows.
    pub(crate) replaces: bool,
    /// The input whose positions are counted: its first place, and its sizes.
    pub(crate) counted: ([isize; MAX_SPATIAL], [usize; MAX_SPATIAL]),
}

/// What an element of the output is made of.
enum Made {
    /// This.
    One(Scalar),
    /// A sum of quotients, divided.
    Sum { terms: Vec<(f64, f64)>, divisor: f64 },
}

impl Sizes {
    fn of(op: PoolOp, options: &PoolOptions, case: &Case) -> Option<Self> {
        let input = case.tensor(0)?;
        Pool::new(op, view(input), case.tensor(1).map(view), options, view(&case.out)).ok()?;
        let (x, y) = if op.is_gradient() { (&case.out, input) } else { (input, &case.out) };
        let space = |tensor: &HostTensor| {
            let mut space = [1; MAX_SPATIAL];
            space[..tensor.layout.rank() - 2].copy_from_slice(&tensor.layout.shape()[2..]);
            space
        };
        let mut options = *options;
        for axis in x.layout.rank() - 2..MAX_SPATIAL {
            (options.kernel[axis], options.stride[axis], options.dilation[axis]) = (1, 1, 1);
            options.padding[axis] = [0; 2];
        }
        let planes = x.layout.shape()[..2].iter().product();
        Some(Self { planes, x: space(x), y: space(y), options })
    }

    fn work(&self) -> usize {
        let sizes = [self.y, self.options.kernel].concat();
        sizes.into_iter().fold(self.planes, usize::saturating_mul)
    }

    fn window(&self, number: [usize; MAX_SPATIAL]) -> Window {
        let PoolOptions { kernel, stride, padding, dilation, divisor, .. } = self.options;
        let places = (0..kernel.iter().product()).map(|tap| {
            let tap = unravel(tap, &kernel);
            std::array::from_fn(|axis| {
                (stride[axis] * number[axis] + dilation[axis] * tap[axis]) as isize - padding[axis][0] as isize
            })
        });
        let places: Vec<[isize; MAX_SPATIAL]> = places.collect();
        let divisor = match divisor {
            Divisor::Fixed(divisor) => divisor,
            Divisor::Elements => places.iter().filter(|&place| self.inside(place)).count(),
            Divisor::Padded => {
                let padded = |place: &&[isize; MAX_SPATIAL]| {
                    (0..MAX_SPATIAL).all(|axis| place[axis] < (self.x[axis] + padding[axis][1]) as isize)
                };
                places.iter().filter(padded).count()
            }
        };
        let counted = ([0; MAX_SPATIAL], self.x);
        let divisor = divisor as f64;
        Window { number, places, divisor, zeros: false, skips_nan: false, replaces: false, counted }
    }

    pub(crate) fn inside(&self, place: &[isize; MAX_SPATIAL]) -> bool {
        place.iter().zip(&self.x).all(|(&at, &size)| (0..size as isize).contains(&at))
    }

    /// Calls `visit` with each plane, the number of each window in it, and the window.
    fn walk(&self, change: impl Fn(&mut Window, &Self), mut visit: impl FnMut(usize, usize, &Window)) {
        let count: usize = self.y.iter().product();
        let windows: Vec<Window> = (0..count)
            .map(|number| {
                let mut window = self.window(unravel(number, &self.y));
                change(&mut window, self);
                window
            })
            .collect();
        for plane in 0..self.planes {
            for (number, window) in windows.iter().enumerate() {
                visit(plane, plane * count + number, window);
            }
        }
    }
}

fn unravel(mut index: usize, sizes: &[usize; MAX_SPATIAL]) -> [usize; MAX_SPATIAL] {
    let mut at = [0; MAX_SPATIAL];
    for (at, &size) in at.iter_mut().zip(sizes).rev() {
        (*at, index) = (index % size, index / size);
    }
    at
}

fn ravel(place: &[isize; MAX_SPATIAL], (first, sizes): ([isize; MAX_SPATIAL], [usize; MAX_SPATIAL])) -> isize {
    (0..MAX_SPATIAL).fold(0, |index, axis| index * sizes[axis] as isize + place[axis] - first[axis])
}

fn view(tensor: &HostTensor) -> View<'_> {
    View { dtype: tensor.dtype, layout: &tensor.layout }
}

/// What each element of the output is made of, with each window changed by `change`.
fn make(op: PoolOp, options: &PoolOptions, case: &Case, change: impl Fn(&mut Window, &Sizes)) -> Option<Vec<Made>> {
    let sizes = Sizes::of(op, options, case)?;
    let values = case.tensor(0)?.values();
    let named: Vec<i64> =
        case.tensor(1).map_or_else(Vec::new, |named| named.values().into_iter().map(Scalar::to_i64).collect());
    let space: usize = sizes.x.iter().product();
    let element = |plane: usize, place: &[isize; MAX_SPATIAL]| {
        sizes.inside(place).then(|| plane * space + ravel(place, ([0; MAX_SPATIAL], sizes.x)) as usize)
    };
    let mut made = Vec::new();
    if op.is_gradient() {
        let mut sums = vec![Vec::new(); sizes.planes * space];
        sizes.walk(change, |plane, number, window| {
            for place in &window.places {
                let Some(at) = element(plane, place) else { continue };
                if op == PoolOp::MaxPoolGrad && named[number] != ravel(place, window.counted) as i64 {
                    continue;
                }
                if window.replaces {
                    sums[at].clear();
                }
                let divisor = if op == PoolOp::AvgPoolGrad { window.divisor } else { 1.0 };
                sums[at].push((values[number].to_f64(), divisor));
            }
        });
        made.extend(sums.into_iter().map(|terms| Made::Sum { terms, divisor: 1.0 }));
        return Some(made);
    }
    let float = case.dtype().is_float();
    let zero = if float { Scalar::Float(0.0) } else { Scalar::Int(0) };
    sizes.walk(change, |plane, _, window| {
        let held = window.places.iter().filter_map(|place| {
            let value = element(plane, place).map(|at| values[at]).or(window.zeros.then_some(zero))?;
            (!window.skips_nan || !value.to_f64().is_nan()).then_some((ravel(place, window.counted), value))
        });
        let held: Vec<(isize, Scalar)> = held.collect();
        made.push(match op {
            PoolOp::AvgPool => {
                let terms = held.iter().map(|(_, value)| (value.to_f64(), 1.0)).collect();
                Made::Sum { terms, divisor: window.divisor }
            }
            PoolOp::ArgmaxPool => {
                let first = held.iter().copied().reduce(|best, new| if exceeds(new.1, best.1) { new } else { best });
                Made::One(Scalar::Int(first.map_or(-1, |(position, _)| position as i64)))
            }
            _ => {
                let greatest = held.iter().map(|&(_, value)| value).reduce(greater);
                Made::One(greatest.unwrap_or(if float { Scalar::Float(f64::NEG_INFINITY) } else { zero }))
            }
        });
    });
    Some(made)
}

/// Whether an element takes the place of one before it; NaN is the greatest.
fn exceeds(new: Scalar, best: Scalar) -> bool {
    match (new, best) {
        (Scalar::Float(new), Scalar::Float(best)) => new > best || new.is_nan() && !best.is_nan(),
        (new, best) => new.to_i64() > best.to_i64(),
    }
}

/// The greater of two elements; NaN if either is, −0 less than +0.
fn greater(a: Scalar, b: Scalar) -> Scalar {
    match (a, b) {
        (Scalar::Float(a), Scalar::Float(b)) => Scalar::Float(crate::ops::binary::extreme(a, b, true)),
        (a, b) => Scalar::Int(a.to_i64().max(b.to_i64())),
    }
}

/// How exactly a pooling must agree.
#[must_use]
pub fn model(op: PoolOp) -> ErrorModel {
    match op {
        PoolOp::MaxPool | PoolOp::ArgmaxPool => ErrorModel::Exact,
        PoolOp::MaxPoolGrad | PoolOp::AvgPool | PoolOp::AvgPoolGrad => ErrorModel::Accumulated,
    }
}

/// What each element may be.
#[must_use]
pub fn expect(op: PoolOp, options: &PoolOptions, case: &Case, arithmetic: Arithmetic) -> Vec<Expect> {
    let made = make(op, options, case, |_, _| {}).unwrap_or_default();
    let dtype = case.out.dtype;
    let element = |made: Made| match made {
        Made::One(Scalar::Float(value)) => Expect::exact(dtype, value),
        Made::One(value) => Expect::Bits(encode(dtype, value)),
        Made::Sum { terms, divisor } => sum(dtype, &terms, divisor, arithmetic),
    };
    made.into_iter().map(element).collect()
}

/// Each quotient is rounded, then each addition, then the division of the sum; one by a power of two is exact but for
/// subnormal results.
fn sum(dtype: DType, terms: &[(f64, f64)], divisor: f64, arithmetic: Arithmetic) -> Expect {
    let quotients: Vec<f64> = terms.iter().map(|&(value, divisor)| value / divisor).collect();
    let sum = Sum::with(arithmetic.accumulator(dtype), &quotients).in_any_order();
    let value = terms.iter().fold(Dd::default(), |sum, &(value, divisor)| sum + Dd::from(value).quotient(divisor));
    let value = if value.hi.is_finite() { value } else { sum.value };
    let (unit, tiny) = (sum.format.unit(), sum.format.tiny());
    let rounds = |divisor: f64| f64::from(u8::from(divisor.log2().fract() != 0.0));
    let each = terms.iter().map(|&(_, divisor)| rounds(divisor)).fold(0.0, f64::max);
    let quotients = terms.iter().filter(|&&(_, divisor)| divisor != 1.0).count() as f64;
    let before = gamma(sum.roundings() + each, unit) * sum.magnitude * (1.0 + exp2(-40)) + quotients * tiny;
    if divisor == 1.0 {
        return sum.expect(value, before);
    }
    let after = gamma(rounds(divisor), unit) * (value.hi.abs() + before);
    sum.expect(value.quotient(divisor), (before + after) / divisor + tiny)
}

/// How many places the windows of a case have.
pub(crate) fn work(op: PoolOp, options: &PoolOptions, case: &Case) -> usize {
    Sizes::of(op, options, case).map_or(0, |sizes| sizes.work())
}

/// The results of a case, in f64, with every window changed by `change`.
pub(crate) fn changed(op: PoolOp, options: &PoolOptions, case: &Case, change: fn(&mut Window, &Sizes)) -> Vec<Scalar> {
    let value = |made: Made| match made {
        Made::One(value) => value,
        Made::Sum { terms, divisor } => {
            Scalar::Float(terms.iter().map(|(value, divisor)| value / divisor).sum::<f64>() / divisor)
        }
    };
    make(op, options, case, change).unwrap_or_default().into_iter().map(value).collect()
}

/// Generated poolings of one to three axes: strides, padding on either side, dilation, either rounding, every divisor.
pub fn cases(op: PoolOp, dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    let axis = (1..9_usize, 1..4_usize, 1..4_usize, 1..3_usize, (0..3_usize, 0..3_usize));
    let divisor = select(&[Divisor::Padded, Divisor::Elements, Divisor::Fixed(1), Divisor::Fixed(7)][..]);
    let kind = match draw.cell {
        Some((_, kind, _)) => Just(Some(kind)).boxed(),
        None => prop_oneof![4 => Just(None), 1 => select(&ShapeKind::ALL[..]).prop_map(Some)].boxed(),
    };
    let operands = (tensor(draw, CLASSES), tensor(draw, CLASSES), placement(), any::<u64>().no_shrink());
    (prop::collection::vec(axis, 1..=MAX_SPATIAL), (1..4_usize, 1..4_usize), (any::<bool>(), divisor), kind, operands)
        .prop_map(move |(axes, planes, rest, kind, operands)| {
            build((op, dtype), draw.limit, axes, planes, rest, kind, &operands)
        })
        .boxed()
}

type Axis = (usize, usize, usize, usize, (usize, usize));

fn build(
    (op, dtype): (PoolOp, DType),
    limit: usize,
    mut axes: Vec<Axis>,
    (mut batch, mut channels): (usize, usize),
    (ceil, divisor): (bool, Divisor),
    kind: Option<ShapeKind>,
    (input, named, placement, seed): &(TensorSpec, TensorSpec, Placement, u64),
) -> Case {
    match kind {
        Some(ShapeKind::Line) => axes.truncate(1),
        Some(ShapeKind::Block) => axes.truncate(2),
        Some(ShapeKind::Deep) => axes.resize(3, axes[0]),
        Some(ShapeKind::Edges) => {
            axes.truncate(1);
            axes[0].0 = [31, 32, 33, 63, 64, 65, 127, 129][*seed as usize % 8];
            // Half of these windows are as long as the input.
            axes[0].1 = if *seed % 16 < 8 { axes[0].1 } else { axes[0].0 };
        }
        Some(ShapeKind::Empty) => *[&mut batch, &mut channels][*seed as usize % 2] = 0,
        // Axes are easily confused where all sizes are equal.
        Some(ShapeKind::Equal) => {
            let size = 2 + channels % 4;
            (batch, channels) = (size, size);
            axes.iter_mut().for_each(|axis| axis.0 = size);
        }
        None => {}
    }
    // Maxima ignore it.
    let divisor = if matches!(op, PoolOp::AvgPool | PoolOp::AvgPoolGrad) { divisor } else { Divisor::default() };
    let mut options = PoolOptions { ceil, divisor, ..PoolOptions::new([1; MAX_SPATIAL]) };
    let mut space = Vec::new();
    for (index, (size, kernel, stride, dilation, (before, after))) in axes.into_iter().enumerate() {
        (options.kernel[index], options.stride[index], options.dilation[index]) = (kernel, stride, dilation);
        options.padding[index] = [before, after];
        // A window in the padding alone is an error.
        let alone = [[1, 1].as_slice(), &vec![1; index], &[size]].concat();
        let one = PoolOptions {
            kernel: std::array::from_fn(|axis| if axis == index { kernel } else { 1 }),
            padding: std::array::from_fn(|axis| if axis == index { [before, after] } else { [0; 2] }),
            ..options
        };
        let fits = Pool::shape(op, &alone, &one).is_ok();
        let size = if fits { size } else { size.max(dilation * (kernel - 1) + 1) };
        options.padding[index] = if fits { [before, after] } else { [0; 2] };
        space.push(size);
    }
    let shape = |batch: usize, channels: usize| [&[batch, channels], &space[..]].concat();
    let y = |batch: usize, channels: usize| {
        Pool::shape(op, &shape(batch, channels), &options).map_or_else(|_| Vec::new(), |shape| shape.to_vec())
    };
    // The oracle needs one step for each place of a window.
    let work = y(1, 1).iter().chain(&options.kernel[..space.len()]).product::<usize>();
    while work * batch * channels > 16 * limit && batch * channels > 1 {
        (batch, channels) = (batch.div_ceil(2), channels.div_ceil(2));
    }
    let (x, y) = (shape(batch, channels), y(batch, channels));
    let (given, result) = if op.is_gradient() { (y, x) } else { (x, y) };
    let out = poisoned(op.out_dtype(dtype), layout(placement, &result), *seed);
    let mut inputs = vec![Input::Tensor(host(input, dtype, &given, *seed, 0))];
    if op == PoolOp::MaxPoolGrad {
        let named = host(named, DType::I64, &given, *seed, 1);
        inputs.push(Input::Tensor(named));
    }
    let mut case = Case { call: Call::Pool { op, options }, inputs, out };
    name_elements(op, &options, &mut case, *seed);
    case
}

/// Gives each window of a gradient the position of one of its elements; one in 16 is wrong.
fn name_elements(op: PoolOp, options: &PoolOptions, case: &mut Case, seed: u64) {
    let Some(sizes) = Sizes::of(op, options, case) else { return };
    let mut named = Vec::new();
    sizes.walk(
        |_, _| {},
        |_, number, window| {
            let key = hash(seed, number as u64);
            let held: Vec<_> = window.places.iter().filter(|&place| sizes.inside(place)).collect();
            let place = held[(key >> 8) as usize % held.len()];
            let size = sizes.x.iter().product::<usize>() as i64;
            let wrong = [-1, size, i64::MAX, i64::MIN, 0, size - 1, (key >> 40) as i64 % size];
            named.push(match key % 16 {
                0 => wrong[(key >> 4) as usize % wrong.len()],
                _ => ravel(place, window.counted) as i64,
            });
        },
    );
    if let Some(Input::Tensor(tensor)) = case.inputs.get_mut(1) {
        for (at, named) in positions(&tensor.layout).into_iter().zip(named) {
            tensor.set_bits(at, named.cast_unsigned());
        }
    }
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::{Layout, Shape};

    use super::*;

    fn tensor<T: congruent_backend_api::Element>(shape: &[usize], values: &[T]) -> HostTensor {
        let layout = Layout::contiguous(Shape::new("test", shape).unwrap());
        HostTensor { dtype: T::DTYPE, layout, bytes: T::as_bytes(values).to_vec() }
    }

    fn results(op: PoolOp, options: PoolOptions, inputs: Vec<HostTensor>, out: HostTensor) -> Vec<f64> {
        let inputs = inputs.into_iter().map(Input::Tensor).collect();
        let case = Case { call: Call::Pool { op, options }, inputs, out };
        changed(op, &options, &case, |_, _| {}).into_iter().map(Scalar::to_f64).collect()
    }

    /// By hand: windows of two elements, two apart, at −1, 1 | 1, 3 | 3, 5 of four elements, the last place past the padding.
    #[test]
    fn windows_are_those_of_the_formula() {
        let options = PoolOptions {
            stride: [2; 3],
            dilation: [2; 3],
            padding: [[1, 1]; 3],
            ceil: true,
            ..PoolOptions::new([2; 3])
        };
        let x = || vec![tensor(&[1, 1, 4], &[9.0_f32, 3.0, 8.0, 5.0])];
        let y = || tensor(&[1, 1, 3], &[0.0_f32; 3]);
        assert_eq!(results(PoolOp::MaxPool, options, x(), y()), [3.0, 5.0, 5.0]);
        assert_eq!(results(PoolOp::ArgmaxPool, options, x(), tensor(&[1, 1, 3], &[0_i64; 3])), [1.0, 3.0, 3.0]);
        assert_eq!(results(PoolOp::AvgPool, options, x(), y()), [1.5, 4.0, 5.0]);
        let elements = PoolOptions { divisor: Divisor::Elements, ..options };
        assert_eq!(results(PoolOp::AvgPool, elements, x(), y()), [3.0, 4.0, 5.0]);
        let (grad, out) = (tensor(&[1, 1, 3], &[2.0_f32, 20.0, 200.0]), || tensor(&[1, 1, 4], &[0.0_f32; 4]));
        let sent = vec![grad.clone(), tensor(&[1, 1, 3], &[1_i64, 1, 0])];
        assert_eq!(results(PoolOp::MaxPoolGrad, options, sent, out()), [0.0, 22.0, 0.0, 0.0]);
        assert_eq!(results(PoolOp::AvgPoolGrad, options, vec![grad], out()), [0.0, 11.0, 0.0, 210.0]);
    }

    #[test]
    fn sums_of_integers_are_exact_and_thirds_are_not() {
        let exact = sum(DType::F32, &[(1.0, 1.0), (2.0, 1.0)], 2.0, Arithmetic::default());
        assert!(matches!(exact, Expect::Near { bound, .. } if bound < 1e-44), "{exact:?}");
        let third = sum(DType::F32, &[(1.0, 3.0)], 1.0, Arithmetic::default());
        assert!(matches!(third, Expect::Near { bound, .. } if bound > 1e-8 && bound < 3e-8), "{third:?}");
    }
}
