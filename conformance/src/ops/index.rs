//! Gather, scatter and the positions of true elements. All exact but for sums of floats, which are bounded as sums are.

use congruent_backend_api::ops::index::ScatterOp;
use congruent_backend_api::{DType, Scalar};
use proptest::prelude::*;
use proptest::sample::select;

use crate::arithmetic::Arithmetic;
use crate::case::{Call, Case, Input, poisoned};
use crate::expect::Expect;
use crate::host::{HostTensor, decode, encode_int, positions};
use crate::model::ErrorModel;
use crate::ops::binary::extreme;
use crate::ops::reduce::Sum;
use crate::ops::{broadcast_positions, host, layout, overlay};
use crate::spec::{Draw, Placement, TensorSpec, placement, shape, size, tensor};
use crate::values::{Class, hash};

const CLASSES: &[Class] = &[
    Class::SmallInts,
    Class::Specials,
    Class::Uniform,
    Class::FullRange,
    Class::Cancelling,
    Class::WideExponent,
    Class::Ties,
    Class::Positive,
    Class::Tiny,
];
const MASKS: &[Class] = &[Class::Uniform, Class::Sparse, Class::Constant];
const INDEX: &[Class] = &[Class::Uniform];
const DTYPES: &[DType] = &[DType::I64, DType::I32, DType::U32, DType::U8];

/// What index values a case has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// Anywhere on the axis.
    Anywhere,
    /// Ascending, so that runs of neighbours are equal.
    Sorted,
    /// Three positions at most.
    Few,
    /// The first and the last position.
    Ends,
    /// Each position once, while there are enough.
    Permuted,
    /// One in eight is negative or past the end.
    Outside,
}

const PATTERNS: &[Pattern] =
    &[Pattern::Anywhere, Pattern::Sorted, Pattern::Few, Pattern::Ends, Pattern::Permuted, Pattern::Outside];

/// An index to be.
#[derive(Clone, Debug)]
struct IndexSpec {
    tensor: TensorSpec,
    dtype: DType,
    pattern: Pattern,
}

impl IndexSpec {
    /// An index of `shape` into `len` positions.
    fn build(&self, shape: &[usize], len: usize, seed: u64) -> HostTensor {
        let mut index = host(&self.tensor, self.dtype, shape, seed, 7);
        let at = positions(&index.layout);
        for (place, &at) in at.iter().enumerate() {
            index.set_bits(at, encode_int(self.dtype, self.value(place, shape, len, seed).into()));
        }
        index
    }

    fn value(&self, place: usize, shape: &[usize], len: usize, seed: u64) -> i64 {
        let count: usize = shape.iter().product();
        let (key, size) = (hash(seed, place as u64), len.max(1));
        let inside = match self.pattern {
            Pattern::Anywhere | Pattern::Outside => (key >> 9) as usize % size,
            Pattern::Sorted => place * size / count.max(1),
            Pattern::Few => ((key >> 9) as usize % 3 * size / 3).min(size - 1),
            Pattern::Ends => (key >> 9) as usize % 2 * (size - 1),
            Pattern::Permuted => (place.wrapping_mul(7) + seed as usize % size) % size,
        } as i64;
        let greatest = match self.dtype {
            DType::I64 => i64::MAX,
            DType::I32 => i32::MAX.into(),
            DType::U32 => u32::MAX.into(),
            _ => u8::MAX.into(),
        };
        let signed = matches!(self.dtype, DType::I64 | DType::I32);
        if self.pattern == Pattern::Outside && key.is_multiple_of(8) {
            let wrong = [len as i64, -1, greatest, -(len as i64), -greatest - 1];
            let wrong = wrong[(key >> 3) as usize % wrong.len()];
            return if wrong < 0 && !signed { greatest } else { wrong.min(greatest) };
        }
        inside.min(greatest)
    }
}

fn index(draw: Draw) -> BoxedStrategy<IndexSpec> {
    (tensor(draw, INDEX), select(DTYPES), select(PATTERNS))
        .prop_map(|(tensor, dtype, pattern)| IndexSpec { tensor, dtype, pattern })
        .boxed()
}

/// A shape with at least one axis, one of its axes, and a size that takes that axis' place elsewhere.
fn axes(draw: Draw) -> impl Strategy<Value = (Vec<usize>, isize, usize)> {
    (shape(draw, 5), any::<usize>(), any::<bool>(), size()).prop_map(move |(mut shape, axis, backwards, other)| {
        if shape.is_empty() {
            shape.push(1);
        }
        let axis = axis % shape.len();
        let rest: usize =
            shape.iter().enumerate().filter(|&(at, _)| at != axis).map(|(_, &size)| size.max(1)).product();
        let given = axis as isize - if backwards { shape.len() as isize } else { 0 };
        (shape, given, other.min((draw.limit / rest).max(1)))
    })
}

fn resized(shape: &[usize], axis: isize, size: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    let at = along(axis, shape.len());
    shape[at] = size;
    shape
}

fn along(axis: isize, rank: usize) -> usize {
    if axis < 0 { rank.saturating_add_signed(axis) } else { axis as usize }
}

/// How exactly a scatter must agree.
#[must_use]
pub fn model(op: ScatterOp, dtype: DType) -> ErrorModel {
    if op == ScatterOp::Add && dtype.is_float() { ErrorModel::Accumulated } else { ErrorModel::Exact }
}

/// Generated gathers.
pub fn gathers(dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    (axes(draw), tensor(draw, CLASSES), index(draw), placement(), any::<u64>().no_shrink())
        .prop_map(move |((shape, axis, taken), x, index, placement, seed)| {
            let x = host(&x, dtype, &x.shape(&shape), seed, 0);
            let len = x.layout.shape()[along(axis, shape.len())];
            let shape = resized(&shape, axis, taken);
            let index = index.build(&index.tensor.shape(&shape), len, seed);
            let out = poisoned(dtype, layout(&placement, &shape), seed);
            Case { call: Call::Gather { axis }, inputs: vec![Input::Tensor(x), Input::Tensor(index)], out }
        })
        .boxed()
}

/// Generated scatters.
pub fn scatters(op: ScatterOp, dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    (axes(draw), tensor(draw, CLASSES), index(draw), placement(), any::<u64>().no_shrink())
        .prop_map(move |((shape, axis, count), src, index, placement, seed)| {
            let out = written(dtype, &shape, &placement, src.class, seed);
            let sources = resized(&shape, axis, count);
            let index = index.build(&index.tensor.shape(&sources), shape[along(axis, shape.len())], seed);
            let src = host(&src, dtype, &src.shape(&sources), seed, 1);
            let inputs = vec![Input::InPlace, Input::Tensor(index), Input::Tensor(src)];
            Case { call: Call::Scatter { op, axis }, inputs, out }
        })
        .boxed()
}

/// An output with old values.
fn written(dtype: DType, shape: &[usize], placement: &Placement, class: Class, seed: u64) -> HostTensor {
    let spec = TensorSpec { placement: placement.clone(), broadcast: 0, class };
    overlay(&poisoned(dtype, layout(placement, shape), seed), &host(&spec, dtype, shape, seed, 2))
}

/// Generated searches, mostly with room for just the positions that there are.
pub fn searches(draw: Draw) -> BoxedStrategy<Case> {
    let room = prop_oneof![6 => Just(0_isize), 1 => Just(3), 1 => Just(-2)];
    (shape(draw, 6), tensor(draw, MASKS), placement(), room, any::<u64>().no_shrink())
        .prop_map(|(shape, mask, placement, room, seed)| {
            let mask = host(&mask, DType::Bool, &shape, seed, 0);
            let count = mask.view_bits().into_iter().filter(|&bits| bits != 0).count();
            let out = layout(&placement, &[count.saturating_add_signed(room)]);
            Case { call: Call::Nonzero, inputs: vec![Input::Tensor(mask)], out: poisoned(DType::I64, out, seed) }
        })
        .boxed()
}

/// Whether an index of the case is out of range.
#[must_use]
pub fn out_of_range(case: &Case) -> bool {
    match (&case.call, case.tensor(0), case.tensor(1), case.tensor(2)) {
        (Call::Gather { axis }, Some(x), Some(index), _) => {
            let len = x.layout.shape()[along(*axis, x.layout.rank())];
            case.out.layout.count() > 0 && index.values().into_iter().any(|value| position(value, len).is_none())
        }
        (Call::Scatter { axis, .. }, Some(out), Some(index), Some(src)) => {
            let len = out.layout.shape()[along(*axis, out.layout.rank())];
            let count: usize = sources_shape(*axis, out, index, src).iter().product();
            count > 0 && index.values().into_iter().any(|value| position(value, len).is_none())
        }
        _ => false,
    }
}

/// An index value as a position, if it is one.
fn position(value: Scalar, len: usize) -> Option<usize> {
    usize::try_from(value.to_i64()).ok().filter(|&position| position < len)
}

/// The shape to which index and source broadcast.
fn sources_shape(axis: isize, out: &HostTensor, index: &HostTensor, src: &HostTensor) -> Vec<usize> {
    let at = along(axis, out.layout.rank());
    let given = [index.layout.shape()[at], src.layout.shape()[at]];
    resized(out.layout.shape(), axis, if given[0] == 1 { given[1] } else { given[0] })
}

/// The row-major number of an element of `shape`, with `position` on an axis of another length `len`.
fn moved(mut number: usize, shape: &[usize], at: usize, len: usize, position: usize) -> usize {
    let (mut result, mut step) = (0, 1);
    for axis in (0..shape.len()).rev() {
        let coordinate = if axis == at { position } else { number % shape[axis] };
        number /= shape[axis];
        result += coordinate * step;
        step *= if axis == at { len } else { shape[axis] };
    }
    result
}

/// What each element of a gather may be: the bits that its index names, or 0.
#[must_use]
pub fn expect_gather(axis: isize, case: &Case) -> Vec<Expect> {
    let (Some(x), Some(index)) = (case.tensor(0), case.tensor(1)) else { return Vec::new() };
    let shape = case.out.layout.shape();
    let at = along(axis, shape.len());
    let len = x.layout.shape()[at];
    let elements = broadcast_positions(x, &resized(shape, axis, len));
    let indices = broadcast_positions(index, shape);
    (indices.into_iter().enumerate())
        .map(|(number, index_at)| {
            let position = position(decode(index.dtype, index.bits(index_at)), len);
            Expect::Bits(position.map_or(0, |position| x.bits(elements[moved(number, shape, at, len, position)])))
        })
        .collect()
}

/// What each element of a scatter may be.
#[must_use]
pub fn expect_scatter(op: ScatterOp, axis: isize, case: &Case, arithmetic: Arithmetic) -> Vec<Expect> {
    let (Some(index), Some(src)) = (case.tensor(1), case.tensor(2)) else { return Vec::new() };
    let (out, dtype) = (&case.out, case.out.dtype);
    let shape = sources_shape(axis, out, index, src);
    let at = along(axis, shape.len());
    let len = out.layout.shape()[at];
    // The sources of each element in row-major order.
    let mut sources = vec![Vec::new(); out.layout.count()];
    let (indices, values) = (broadcast_positions(index, &shape), broadcast_positions(src, &shape));
    for (number, (index_at, src_at)) in indices.into_iter().zip(values).enumerate() {
        if let Some(position) = position(decode(index.dtype, index.bits(index_at)), len) {
            sources[moved(number, &shape, at, len, position)].push(src.bits(src_at));
        }
    }
    (out.view_bits().into_iter().zip(sources))
        .map(|(old, sources)| merged(op, dtype, old, &sources, arithmetic))
        .collect()
}

fn merged(op: ScatterOp, dtype: DType, old: u64, sources: &[u64], arithmetic: Arithmetic) -> Expect {
    let Some(&last) = sources.last() else { return Expect::Bits(old) };
    if op == ScatterOp::Set {
        return Expect::Bits(last);
    }
    let terms = std::iter::once(old).chain(sources.iter().copied()).map(|bits| decode(dtype, bits));
    if dtype.is_float() {
        let values: Vec<f64> = terms.map(Scalar::to_f64).collect();
        if op == ScatterOp::Add {
            let sum = Sum::with(arithmetic.accumulator(dtype), &values);
            return sum.expect(sum.value, sum.bound()).likely(sum.likely(&values));
        }
        let best = values.into_iter().reduce(|a, b| extreme(a, b, op == ScatterOp::Max));
        return Expect::exact(dtype, best.unwrap_or(f64::NAN));
    }
    let values = terms.map(|value| i128::from(value.to_i64()));
    let value = match op {
        ScatterOp::Max => values.max(),
        ScatterOp::Min => values.min(),
        _ => Some(values.sum()),
    };
    Expect::Bits(encode_int(dtype, value.unwrap_or(0)))
}

/// What each element of a search may be: a position of a true element, in order, then −1.
#[must_use]
pub fn expect_nonzero(case: &Case) -> Vec<Expect> {
    let mask = case.tensor(0).map_or_else(Vec::new, HostTensor::view_bits);
    let found = (0..).zip(mask).filter(|&(_, bits)| bits != 0).map(|(number, _): (i64, u64)| number);
    let room = case.out.layout.count();
    found.chain(std::iter::repeat(-1)).take(room).map(|number| Expect::Bits(number.cast_unsigned())).collect()
}
