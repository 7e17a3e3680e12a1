//! Reductions over any axes, and positions of extremes.
//!
//! Sums are bounded by γ_d·Σ|x| with the contract's depth d. The count that enters is that of the terms which can round:
//! zeros never do, and integers whose magnitudes add up to less than 2^p are summed exactly in any order, so that
//! sparse and integer data must give the exact sum.

use congruent_backend_api::DType;
use congruent_backend_api::Scalar;
use congruent_backend_api::ops::reduce::{ArgReduceOp, ReduceOp, summation_depth};
use proptest::prelude::*;

use crate::arithmetic::Arithmetic;
use crate::case::{Call, Case, Input, poisoned};
use crate::dd::Dd;
use crate::expect::Expect;
use crate::host::{HostTensor, encode_int};
use crate::model::ErrorModel;
use crate::ops::binary::extreme;
use crate::ops::{host, layout};
use crate::round::{Format, exp2, gamma};
use crate::spec::{Draw, placement, shape, tensor};
use crate::values::Class;

const CLASSES: &[Class] = &[
    // The covering array runs them in this order: what breaks most backends comes first.
    Class::Specials,
    Class::Uniform,
    Class::Sparse,
    Class::Ties,
    Class::Positive,
    Class::WideInts,
    Class::Constant,
    Class::SmallInts,
    Class::Cancelling,
    Class::WideExponent,
    Class::Tiny,
];

/// Which axes a generated case reduces: a bit mask, or all of them.
pub(super) fn axes() -> impl Strategy<Value = Option<u8>> {
    prop_oneof![1 => Just(None), 3 => any::<u8>().prop_map(Some)]
}

/// The axes of a mask that a tensor of this rank has; every other one counted from the end.
pub(super) fn named(mask: Option<u8>, rank: usize) -> Option<Vec<isize>> {
    mask.map(|mask| {
        let axes = (0..rank as isize).filter(|axis| mask >> axis & 1 == 1);
        axes.map(|axis| if axis % 2 == 0 { axis } else { axis - rank as isize }).collect()
    })
}

/// The shape left by reducing `axes`.
pub(super) fn reduced_shape(shape: &[usize], axes: Option<&[isize]>, keepdim: bool) -> Vec<usize> {
    let mask = mask(shape.len(), axes);
    let kept = |axis: usize| if mask[axis] { keepdim.then_some(1) } else { Some(shape[axis]) };
    (0..shape.len()).filter_map(kept).collect()
}

/// Generated reductions.
pub fn reductions(op: ReduceOp, dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    (shape(draw.scaled(4), 5), axes(), any::<bool>(), tensor(draw, CLASSES), placement(), any::<u64>().no_shrink())
        .prop_map(move |(mut shape, mask, keepdim, spec, placement, seed)| {
            let axes = named(mask, shape.len());
            if matches!(op, ReduceOp::Max | ReduceOp::Min) || op == ReduceOp::Mean && dtype.is_int() {
                // Of nothing there is no value; that this is an error is tested by the laws.
                shape.iter_mut().for_each(|size| *size = (*size).max(1));
            }
            let out = poisoned(
                op.out_dtype(dtype),
                layout(&placement, &reduced_shape(&shape, axes.as_deref(), keepdim)),
                seed,
            );
            let x = host(&spec, dtype, &shape, seed, 0);
            Case { call: Call::Reduce { op, axes }, inputs: vec![Input::Tensor(x)], out }
        })
        .boxed()
}

/// Generated searches.
pub fn arg_reductions(op: ArgReduceOp, dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    (shape(draw.scaled(4), 5), any::<u8>(), any::<bool>(), tensor(draw, CLASSES), placement(), any::<u64>().no_shrink())
        .prop_map(move |(mut shape, axis, keepdim, spec, placement, seed)| {
            if shape.is_empty() {
                shape.push(3);
            }
            let axis = usize::from(axis) % shape.len();
            shape[axis] = shape[axis].max(1);
            let out_shape = reduced_shape(&shape, Some(&[axis as isize]), keepdim);
            let out = poisoned(DType::I64, layout(&placement, &out_shape), seed);
            let x = host(&spec, dtype, &shape, seed, 0);
            Case { call: Call::ArgReduce { op, axis: axis as isize }, inputs: vec![Input::Tensor(x)], out }
        })
        .boxed()
}

/// How exactly a reduction must agree.
#[must_use]
pub fn model(op: ReduceOp, dtype: DType) -> ErrorModel {
    match op {
        ReduceOp::Mean | ReduceOp::Prod | ReduceOp::Sum if dtype.is_float() => ErrorModel::Accumulated,
        _ => ErrorModel::Exact,
    }
}

/// What each element of a reduction may be.
#[must_use]
pub fn expect(op: ReduceOp, axes: Option<&[isize]>, case: &Case, arithmetic: Arithmetic) -> Vec<Expect> {
    let Some(x) = case.tensor(0) else { return Vec::new() };
    groups(x, axes).into_iter().map(|group| reduce(op, x.dtype, &group, arithmetic)).collect()
}

/// What each element of a search may be.
#[must_use]
pub fn expect_position(op: ArgReduceOp, axis: isize, case: &Case) -> Vec<Expect> {
    let Some(x) = case.tensor(0) else { return Vec::new() };
    let better = |new: Scalar, best: Scalar| match (new, best) {
        (Scalar::Float(new), Scalar::Float(best)) if op == ArgReduceOp::Argmax => {
            new > best || new.is_nan() && !best.is_nan()
        }
        (Scalar::Float(new), Scalar::Float(best)) => new < best || new.is_nan() && !best.is_nan(),
        (new, best) if op == ArgReduceOp::Argmax => new.to_i64() > best.to_i64(),
        (new, best) => new.to_i64() < best.to_i64(),
    };
    groups(x, Some(&[axis]))
        .into_iter()
        .map(|group| {
            let best =
                (1..group.len()).fold(0, |best, index| if better(group[index], group[best]) { index } else { best });
            Expect::Bits(best as u64)
        })
        .collect()
}

/// The values reduced to each element of the output, in row-major order.
pub(super) fn groups(x: &HostTensor, axes: Option<&[isize]>) -> Vec<Vec<Scalar>> {
    let values = x.values();
    members(x.layout.shape(), axes).into_iter().map(|group| group.into_iter().map(|at| values[at]).collect()).collect()
}

/// The row-major indices of the elements that share their place on all but `axes`, in row-major order of that place.
pub(super) fn members(shape: &[usize], axes: Option<&[isize]>) -> Vec<Vec<usize>> {
    let mask = mask(shape.len(), axes);
    let kept: usize = (0..shape.len()).filter(|&axis| !mask[axis]).map(|axis| shape[axis]).product();
    let mut groups = vec![Vec::new(); kept];
    for index in 0..shape.iter().product() {
        // The row-major index among the kept axes.
        let (mut rest, mut group, mut step) = (index, 0, 1);
        for axis in (0..shape.len()).rev() {
            if !mask[axis] {
                group += rest % shape[axis] * step;
                step *= shape[axis];
            }
            rest /= shape[axis];
        }
        groups[group].push(index);
    }
    groups
}

fn mask(rank: usize, axes: Option<&[isize]>) -> Vec<bool> {
    let named = |axis: usize| {
        axes.is_none_or(|axes| axes.contains(&(axis as isize)) || axes.contains(&(axis as isize - rank as isize)))
    };
    (0..rank).map(named).collect()
}

fn reduce(op: ReduceOp, dtype: DType, group: &[Scalar], arithmetic: Arithmetic) -> Expect {
    match op {
        ReduceOp::All => return Expect::Bits(group.iter().all(|x| x.to_bool()).into()),
        ReduceOp::Any => return Expect::Bits(group.iter().any(|x| x.to_bool()).into()),
        _ => {}
    }
    if dtype.is_float() {
        let values: Vec<f64> = group.iter().map(|x| x.to_f64()).collect();
        return float(op, dtype, &values, arithmetic);
    }
    let values = group.iter().map(|x| i128::from(x.to_i64()));
    let result = match op {
        ReduceOp::Max => values.max().unwrap_or(0),
        ReduceOp::Min => values.min().unwrap_or(0),
        ReduceOp::Mean => values.sum::<i128>() / group.len().max(1) as i128,
        ReduceOp::Prod => values.fold(1_i128, |product, x| (product * x) as i64 as i128),
        _ => values.sum(),
    };
    Expect::Bits(encode_int(dtype, result))
}

fn float(op: ReduceOp, dtype: DType, values: &[f64], arithmetic: Arithmetic) -> Expect {
    match op {
        ReduceOp::Max | ReduceOp::Min => {
            let extreme = values.iter().copied().reduce(|a, b| extreme(a, b, op == ReduceOp::Max));
            Expect::exact(dtype, extreme.unwrap_or(f64::NAN))
        }
        ReduceOp::Prod => {
            let mut product = Product::new(arithmetic.accumulator(dtype));
            values.iter().for_each(|&x| product.push(x));
            product.expect(dtype)
        }
        ReduceOp::Mean => {
            let count = values.len() as f64;
            let sum = Sum::with(arithmetic.accumulator(dtype), values);
            let format = sum.format;
            // One rounding for the quotient, two where 1/n is multiplied and not a power of two.
            let divided = if values.len().is_power_of_two() { 1.0 } else { 2.0 };
            let bound =
                sum.bound() / count + gamma(divided, format.unit()) * (sum.value.hi.abs() + sum.bound()) / count;
            sum.expect(sum.value.quotient(count), bound + format.tiny())
        }
        _ => {
            let sum = Sum::with(arithmetic.accumulator(dtype), values);
            sum.expect(sum.value, sum.bound()).likely(sum.likely(values))
        }
    }
}

/// A sum with what its error bound needs, taken in value by value.
pub(super) struct Sum {
    /// The format in which a backend accumulates.
    pub(super) format: Format,
    /// The exact sum, to about 106 bits.
    pub(super) value: Dd,
    /// Σ|x|.
    pub(super) magnitude: f64,
    /// Σ|x| of the finite terms.
    finite: f64,
    /// A NaN, +∞ and −∞ among the terms.
    special: [bool; 3],
    count: usize,
    nonzero: usize,
    /// Whether the depth of the sum is not limited by the contract.
    any_order: bool,
    /// The lowest bit that is set in a finite term.
    lowest: f64,
}

impl Sum {
    /// The sum of values of a dtype, as the contract has it computed.
    pub(super) fn of(dtype: DType, values: &[f64]) -> Self {
        Self::with(Arithmetic::default().accumulator(dtype), values)
    }

    /// The sum of values that are accumulated in a format.
    pub(super) fn with(format: Format, values: &[f64]) -> Self {
        let mut sum = Self::new(format);
        values.iter().for_each(|&x| sum.push(x));
        sum
    }

    /// The sum of no values.
    pub(super) fn new(format: Format) -> Self {
        let value = Dd::default();
        Self {
            format,
            value,
            magnitude: 0.0,
            finite: 0.0,
            special: [false; 3],
            count: 0,
            nonzero: 0,
            any_order: false,
            lowest: f64::INFINITY,
        }
    }

    /// The same, added up in an order that may be as deep as there are terms.
    pub(super) fn in_any_order(self) -> Self {
        Self { any_order: true, ..self }
    }

    /// Takes in a value.
    pub(super) fn push(&mut self, x: f64) {
        self.value = self.value + x.into();
        self.magnitude += x.abs();
        self.count += 1;
        self.nonzero += usize::from(x != 0.0);
        if x.is_finite() {
            self.finite += x.abs();
            self.lowest = if x == 0.0 { self.lowest } else { self.lowest.min(lowest_bit(x)) };
        }
        for (special, is) in self.special.iter_mut().zip([x.is_nan(), x == f64::INFINITY, x == f64::NEG_INFINITY]) {
            *special |= is;
        }
    }

    /// The most roundings a term may pass through, for γ.
    pub(super) fn roundings(&self) -> f64 {
        let depth = if self.any_order { self.count } else { summation_depth(self.count) };
        let depth = depth.min(self.nonzero.saturating_sub(1));
        let exact = self.special.contains(&true) || fits(self.format, self.lowest, self.magnitude);
        if exact { 0.0 } else { depth as f64 }
    }

    /// γ·Σ|x|, with a last term for the oracle's own rounding.
    pub(super) fn bound(&self) -> f64 {
        gamma(self.roundings(), self.format.unit()) * self.magnitude * (1.0 + exp2(-40))
    }

    /// What roundings of these terms that are independent of each other add up to, but for one sum in many: 8·√n·u·Σ|x|. Of up
    /// to 64 roundings that is no less than the bound.
    pub(super) fn likely(&self, terms: &[f64]) -> f64 {
        if self.roundings() > 64.0 && independent(terms, self.value, self.magnitude) {
            8.0 * self.roundings().sqrt() * self.format.unit() * self.magnitude
        } else {
            f64::INFINITY
        }
    }

    /// `value` within `bound`, unless infinities or an overflow of partial sums decide.
    pub(super) fn expect(&self, value: Dd, bound: f64) -> Expect {
        if self.special[0] || self.special[1] && self.special[2] {
            return Expect::Nan;
        }
        // Finite terms that overflow on their own may meet an infinity of the other sign.
        let overflows = self.finite >= self.format.max() / 2.0;
        if overflows { Expect::Any } else { Expect::near(value, if value.hi.is_infinite() { 0.0 } else { bound }) }
    }
}

/// Whether the roundings of a sum of `terms` may be taken for independent of each other, so that they cancel as a random
/// walk does. Three kinds of data make them agree instead, in an order of evaluation that is allowed:
///
/// - terms of one sign: partial sums grow, and so do their errors;
/// - one term T that outweighs the rest: what follows it is rounded to a multiple of ulp(T), and where those terms have one
///   sign, each loses in the same direction;
/// - terms that repeat: so do their errors.
///
/// So the terms must cancel, none may exceed four times their mean, and half of the magnitudes must differ.
pub(super) fn independent(terms: &[f64], value: Dd, total: f64) -> bool {
    let mut magnitudes: Vec<f64> = terms.iter().map(|x| x.abs()).filter(|&x| x != 0.0).collect();
    magnitudes.sort_unstable_by(f64::total_cmp);
    let (count, largest) = (magnitudes.len(), magnitudes.last().copied().unwrap_or(0.0));
    magnitudes.dedup();
    value.hi.abs() <= total / 4.0 && largest * count as f64 <= 4.0 * total && 2 * magnitudes.len() >= count
}

/// Whether any order of summation is exact: all values are multiples of one power of two, and their magnitudes add up
/// to at most 2^p of it.
pub(super) fn exact(format: Format, values: &[f64], magnitude: f64) -> bool {
    let nonzero = values.iter().filter(|&&value| value != 0.0);
    let special = nonzero.clone().any(|value| !value.is_finite());
    special || fits(format, nonzero.map(|&value| lowest_bit(value)).fold(f64::INFINITY, f64::min), magnitude)
}

/// Whether multiples of `lowest` whose magnitudes add up to `magnitude` have exact sums in a format.
fn fits(format: Format, lowest: f64, magnitude: f64) -> bool {
    magnitude == 0.0 || magnitude <= lowest * exp2(format.precision)
}

/// The lowest set bit of a finite nonzero value, as a power of two.
fn lowest_bit(value: f64) -> f64 {
    let bits = value.abs().to_bits();
    let (fraction, exponent) = (bits & ((1 << 52) - 1), (bits >> 52) as i32);
    let (significand, scale) = if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) };
    exp2(scale + significand.trailing_zeros() as i32)
}

/// A product with what its error bound needs, taken in value by value.
pub(super) struct Product {
    format: Format,
    value: Dd,
    /// A partial product lies between the products of the factors below 1 and of those above. Logarithms do not overflow.
    rise: f64,
    fall: f64,
    /// A NaN, an infinity and a zero among the factors.
    special: [bool; 3],
    sign: f64,
    /// Factors that may round.
    factors: usize,
}

impl Product {
    /// The product of no values.
    pub(super) fn new(format: Format) -> Self {
        Self { format, value: 1.0.into(), rise: 0.0, fall: 0.0, special: [false; 3], sign: 1.0, factors: 0 }
    }

    /// Takes in a value.
    pub(super) fn push(&mut self, x: f64) {
        for (special, is) in self.special.iter_mut().zip([x.is_nan(), x.is_infinite(), x == 0.0]) {
            *special |= is;
        }
        if x != 0.0 && !x.is_nan() {
            let log = x.abs().log2();
            if log > 0.0 { self.rise += log } else { self.fall += log }
        }
        self.value = self.value * x.into();
        self.sign *= x.signum();
        self.factors += usize::from(x.abs() != 1.0);
    }

    /// What the product may be in `dtype`.
    pub(super) fn expect(&self, dtype: DType) -> Expect {
        let (format, [nan, infinite, zero]) = (self.format, self.special);
        if nan {
            return Expect::Nan;
        }
        // Underflow to zero before an infinity would give NaN.
        let low = self.fall <= f64::from(format.min_exponent) + 1.0;
        let high = self.rise >= f64::from(format.max_exponent) - 1.0;
        match (infinite, zero) {
            (true, true) => Expect::Nan,
            (true, false) if low => Expect::Any,
            (true, false) => Expect::exact(dtype, self.sign * f64::INFINITY),
            (false, true) if !high => Expect::near(Dd::default(), 0.0),
            (false, _) if high || low => Expect::Any,
            (false, _) => {
                let bound = gamma(self.factors.saturating_sub(1) as f64, format.unit()) * self.value.hi.abs();
                Expect::near(self.value, bound * (1.0 + exp2(-40)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::judge;

    #[test]
    fn exact_data_has_no_room() {
        assert_eq!(
            float(ReduceOp::Sum, DType::F32, &[1.0, 2.0, -3.0, 100.0], Arithmetic::default()),
            Expect::near(100.0.into(), 0.0)
        );
        assert!(exact(Format::F32, &[exp2(24) - 1.0, 1.0], exp2(24)));
        assert!(!exact(Format::F32, &[exp2(24), 1.0], exp2(24) + 1.0));
        assert_eq!(lowest_bit(-12.0), 4.0);
        assert_eq!(lowest_bit(f64::from_bits(2)), 2.0 * exp2(-1074));
    }

    #[test]
    fn a_sequential_f32_sum_of_many_is_caught() {
        let values = vec![f64::from(0.1_f32); 1 << 20];
        let naive = values.iter().fold(0_f32, |sum, &x| sum + x as f32);
        let expect = float(ReduceOp::Sum, DType::F32, &values, Arithmetic::default());
        assert!(!judge(DType::F32, naive.to_bits().into(), &expect).accepted);
        let right = (0.1_f32 as f64 * 1048576.0) as f32;
        assert!(judge(DType::F32, right.to_bits().into(), &expect).accepted);
    }

    #[test]
    fn an_unlikely_error_is_loose() {
        let loose = |values: &[f64], got: f32| {
            let expect = float(ReduceOp::Sum, DType::F32, values, Arithmetic::default());
            let judged = judge(DType::F32, got.to_bits().into(), &expect);
            assert!(judged.accepted, "{judged:?}");
            judged.loose
        };
        let runs = |values: &[f64]| -> f32 {
            values.chunks(64).map(|run| run.iter().fold(0_f32, |sum, &x| sum + x as f32)).sum()
        };
        let wave: Vec<f64> = (0..4096).map(|index| f64::from((f64::from(index) * 1.7).sin() as f32)).collect();
        assert!(!loose(&wave, runs(&wave)));
        let exact: f64 = wave.iter().sum();
        let magnitude: f64 = wave.iter().map(|x| x.abs()).sum();
        assert!(loose(&wave, (exact + 68.0 * exp2(-24) * magnitude) as f32));
    }

    #[test]
    fn infinities_and_overflow() {
        let sum = |values: &[f64]| float(ReduceOp::Sum, DType::F32, values, Arithmetic::default());
        assert_eq!(sum(&[f64::INFINITY, 1.0]), Expect::near(f64::INFINITY.into(), 0.0));
        assert_eq!(sum(&[f64::INFINITY, f64::NEG_INFINITY]), Expect::Nan);
        assert_eq!(sum(&[3e38, 3e38, -3e38]), Expect::Any);
        assert_eq!(
            float(ReduceOp::Sum, DType::F64, &[f64::MAX, f64::MAX, f64::NEG_INFINITY], Arithmetic::default()),
            Expect::Any
        );
        assert_eq!(float(ReduceOp::Mean, DType::F32, &[], Arithmetic::default()), Expect::Nan);
        assert_eq!(float(ReduceOp::Prod, DType::F32, &[], Arithmetic::default()), Expect::near(1.0.into(), 0.0));
        let product = |values: &[f64]| float(ReduceOp::Prod, DType::F32, values, Arithmetic::default());
        assert_eq!(product(&[0.0, f64::INFINITY]), Expect::Nan);
    }

    #[test]
    fn positions_prefer_the_first() {
        let at = |values: &[f64]| {
            let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            let shape = congruent_backend_api::Shape::new("test", &[values.len()]).unwrap();
            let x = HostTensor { dtype: DType::F64, layout: congruent_backend_api::Layout::contiguous(shape), bytes };
            let case = Case { call: Call::Copy, inputs: vec![Input::Tensor(x.clone())], out: x };
            expect_position(ArgReduceOp::Argmax, 0, &case)[0]
        };
        assert_eq!(at(&[1.0, 3.0, 3.0]), Expect::Bits(1));
        assert_eq!(at(&[1.0, f64::NAN, f64::NAN]), Expect::Bits(1));
        assert_eq!(at(&[-0.0, 0.0]), Expect::Bits(0));
    }
}
