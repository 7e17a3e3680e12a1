//! Matrix products.
//!
//! An element is bounded by γ·(|α|·Σ|a||b| + |β||c|). As for sums, only what can round counts: a product with a zero
//! factor, a product that the accumulator holds exactly, a sum of integers that fill the significand at most. One-hot
//! rows and integer matrices must therefore come out exact, which is what shows lost operand bits.

use congruent_backend_api::{DType, Scalar};
use proptest::prelude::*;

use crate::arithmetic::Arithmetic;
use crate::case::{Call, Case, Input, poisoned};
use crate::dd::Dd;
use crate::expect::Expect;
use crate::host::{HostTensor, decode, encode_int};
use crate::model::ErrorModel;
use crate::ops::reduce::{exact, independent};
use crate::ops::{broadcast_positions, host, layout};
use crate::round::{Format, exp2, gamma};
use crate::spec::{Draw, TensorSpec, cap, placement, size, tensor};
use crate::values::Class;

/// Values of operands of products.
pub(super) const CLASSES: &[Class] = &[
    Class::Uniform,
    Class::SmallInts,
    Class::WideInts,
    Class::Sparse,
    Class::Positive,
    Class::Cancelling,
    Class::WideExponent,
    Class::Specials,
    Class::FullRange,
    Class::Ties,
];

/// Generated products: every combination of vector and matrix, batches that broadcast, α and β.
pub fn cases(dtype: DType, draw: Draw) -> BoxedStrategy<Case> {
    let batch = prop::collection::vec(prop_oneof![1 => Just(0_usize), 6 => 1..4_usize], 0..=2);
    let sizes = (size(), size(), size(), batch);
    let form = (0..4_u8, 0..4_u8, any::<bool>());
    let factor = prop_oneof![3 => Just(None), 2 => (0..4_usize).prop_map(Some)];
    let operand = || (tensor(draw, CLASSES), any::<u8>());
    let rest = (placement(), any::<u64>().no_shrink());
    (sizes, form, (factor.clone(), factor), operand(), operand(), rest)
        .prop_map(move |(sizes, form, factors, a, b, (placement, seed))| {
            build(dtype, draw.limit, sizes, form, factors, a, b, &placement, seed)
        })
        .boxed()
}

#[expect(clippy::too_many_arguments, reason = "these are the parts of one generated description")]
fn build(
    dtype: DType,
    limit: usize,
    (m, n, k, batch): (usize, usize, usize, Vec<usize>),
    (a_rank, b_rank, accumulate): (u8, u8, bool),
    (alpha, beta): (Option<usize>, Option<usize>),
    (a_spec, a_batch): (TensorSpec, u8),
    (b_spec, b_batch): (TensorSpec, u8),
    placement: &crate::spec::Placement,
    seed: u64,
) -> Case {
    // The oracle needs m·n·k steps a batch.
    let sizes = cap(vec![m, n, k, batch.iter().product::<usize>().max(1)], 16 * limit);
    let (m, n, k) = (sizes[0], sizes[1], sizes[2]);
    let matrix = |spec: &TensorSpec, mask: u8, rank: u8, sizes: [usize; 2], vector: usize| match rank {
        // A vector contracts its only axis.
        0 => vec![vector],
        _ => {
            let mut shape = TensorSpec { broadcast: mask, ..spec.clone() }.shape(&batch);
            shape.drain(..if rank == 1 { shape.len() } else { 0 });
            shape.extend(sizes);
            shape
        }
    };
    let a_shape = matrix(&a_spec, a_batch, a_rank, [m, k], k);
    let b_shape = matrix(&b_spec, b_batch, b_rank, [k, n], k);
    let a = host(&a_spec, dtype, &a_shape, seed, 0);
    let b = host(&b_spec, dtype, &b_shape, seed, 1);
    let shape = crate::ops::product_shape(&a, &b).expect("generated operands fit together");
    let out = layout(placement, &shape);
    let out = if accumulate {
        let old = TensorSpec { placement: placement.clone(), broadcast: 0, class: a_spec.class };
        crate::ops::overlay(&poisoned(dtype, out, seed), &host(&old, dtype, &shape, seed, 2))
    } else {
        poisoned(dtype, out, seed)
    };
    let factor = |choice: Option<usize>, default: i64| match choice {
        Some(choice) if dtype.is_float() => Scalar::Float([0.5, -1.0, 1.3, 0.0][choice]),
        Some(choice) if dtype == DType::U8 || dtype == DType::U32 => Scalar::Int([2, 1, 3, 0][choice]),
        Some(choice) => Scalar::Int([2, -1, 3, 0][choice]),
        None => Scalar::Int(default),
    };
    let beta = if accumulate { factor(beta, 1) } else { Scalar::Int(0) };
    let call = Call::Matmul { alpha: factor(alpha, 1), beta };
    Case { call, inputs: vec![Input::Tensor(a), Input::Tensor(b)], out }
}

/// How exactly a product must agree.
#[must_use]
pub fn model(dtype: DType) -> ErrorModel {
    if dtype.is_float() { ErrorModel::Accumulated } else { ErrorModel::Exact }
}

/// What each element may be.
#[must_use]
pub fn expect(alpha: Scalar, beta: Scalar, case: &Case, arithmetic: Arithmetic) -> Vec<Expect> {
    let (Some(a), Some(b)) = (case.tensor(0), case.tensor(1)) else { return Vec::new() };
    let dtype = case.out.dtype;
    let rounded = |scalar: Scalar| decode(dtype, crate::host::encode(dtype, scalar));
    let (alpha, beta) = (rounded(alpha), rounded(beta));
    let old = case.out.view_bits();
    rows(a, b, &case.out)
        .into_iter()
        .zip(old)
        .map(|(terms, old)| {
            let pairs =
                terms.into_iter().map(|(a_at, b_at)| (decode(dtype, a.bits(a_at)), decode(dtype, b.bits(b_at))));
            if dtype.is_float() {
                // With α = 0 the operands have no influence.
                let pairs: Vec<_> =
                    pairs.filter(|_| alpha.to_f64() != 0.0).map(|(a, b)| (a.to_f64(), b.to_f64())).collect();
                return float(dtype, &pairs, alpha.to_f64(), beta.to_f64(), decode(dtype, old).to_f64(), arithmetic);
            }
            // Modulo 2^64, which every dtype divides.
            let sum = pairs.fold(0_i64, |sum, (a, b)| sum.wrapping_add(a.to_i64().wrapping_mul(b.to_i64())));
            let old = decode(dtype, old).to_i64().wrapping_mul(beta.to_i64());
            Expect::Bits(encode_int(dtype, alpha.to_i64().wrapping_mul(sum).wrapping_add(old).into()))
        })
        .collect()
}

/// For each element of the output, the storage elements of a and b that are multiplied.
fn rows(a: &HostTensor, b: &HostTensor, out: &HostTensor) -> Vec<Vec<(usize, usize)>> {
    let as_matrix = |tensor: &HostTensor, axis: isize| match tensor.layout.rank() {
        1 => HostTensor { layout: tensor.layout.unsqueeze(axis).expect("rank 1 has room"), ..tensor.clone() },
        _ => tensor.clone(),
    };
    let (left, right) = (as_matrix(a, 0), as_matrix(b, -1));
    let (m, k) = (left.layout.shape()[left.layout.rank() - 2], left.layout.shape()[left.layout.rank() - 1]);
    let n = right.layout.shape()[right.layout.rank() - 1];
    let batch_rank = out.layout.rank() - usize::from(a.layout.rank() > 1) - usize::from(b.layout.rank() > 1);
    let batch = &out.layout.shape()[..batch_rank];
    let with = |sizes: [usize; 2]| [batch, &sizes].concat();
    let a_at = broadcast_positions(&left, &with([m, k]));
    let b_at = broadcast_positions(&right, &with([k, n]));
    let count: usize = batch.iter().product();
    let mut rows = Vec::with_capacity(count * m * n);
    for batch in 0..count {
        for row in 0..m {
            for column in 0..n {
                let term = |i: usize| (a_at[(batch * m + row) * k + i], b_at[(batch * k + i) * n + column]);
                rows.push((0..k).map(term).collect());
            }
        }
    }
    rows
}

/// An element of a float product: α times the sum over the pairs, and β times the old value.
pub(super) fn float(
    dtype: DType,
    pairs: &[(f64, f64)],
    alpha: f64,
    beta: f64,
    old: f64,
    arithmetic: Arithmetic,
) -> Expect {
    let format = arithmetic.accumulator(dtype);
    let (u, tiny) = (format.unit(), format.tiny());
    let products: Vec<f64> = pairs.iter().map(|(a, b)| a * b).collect();
    let sum = pairs.iter().fold(Dd::default(), |sum, &(a, b)| sum + Dd::product(a, b));
    let magnitude: f64 = products.iter().map(|x| x.abs()).sum();
    // Of no terms the product is zero, whatever α.
    let alpha = if pairs.is_empty() { 0.0 } else { alpha };
    let scaled = Dd::from(alpha) * sum;
    let kept = if beta == 0.0 { Dd::default() } else { Dd::product(beta, old) };
    let value = scaled + kept;
    if products.iter().any(|x| !x.is_finite()) || !old.is_finite() && beta != 0.0 || magnitude.is_infinite() {
        let (kept, old) = if beta == 0.0 { (0.0, 0.0) } else { (beta * old, old) };
        return infinite(dtype, format, pairs, alpha, kept, old);
    }
    let total = alpha.abs() * magnitude + kept.hi.abs();
    // α may be applied to an operand, which may overflow even where its other factor is 0.
    let operand = pairs.iter().map(|(a, b)| a.abs().max(b.abs())).fold(0.0, f64::max);
    let scaled_operand = if alpha.abs() > 1.0 { alpha.abs() * operand } else { 0.0 };
    if magnitude.max(total).max(scaled_operand) >= format.max() / 2.0 {
        return Expect::Any;
    }
    let held = |&(a, b): &(f64, f64)| Dd::product(a, b).lo == 0.0 && format.round(a * b) == a * b;
    let nonzero = pairs.iter().filter(|&&(a, b)| a != 0.0 && b != 0.0);
    let terms = nonzero.clone().count() as f64;
    let underflows = nonzero.clone().any(|&(a, b)| (a * b).abs() < exp2(format.min_exponent + format.precision));
    // Tensor cores align the terms of a half-precision product to the largest and cut off what lies below: up to a whole
    // unit in the last place for each term, where rounding to nearest loses half of one. Subnormal operands enter with the
    // exponent of the smallest normal number, so that a term is aligned as if it were that large.
    let half = dtype.size() == 2;
    let floor = Format::of(dtype).map_or(0.0, |format| if half { exp2(format.min_exponent) } else { 0.0 });
    let aligned: f64 = nonzero.clone().map(|(a, b)| a.abs().max(floor) * b.abs().max(floor)).sum();
    // α may be applied to every term, to partial sums, or once at the end.
    let scaling = f64::from(u8::from(alpha != 0.0 && alpha.abs().log2().fract() != 0.0));
    let fits = pairs.iter().all(held) && exact(format, &products, magnitude) && aligned <= magnitude;
    let sum_roundings = if fits && scaling == 0.0 {
        0.0
    } else if half && terms > 1.0 {
        2.0 * terms
    } else {
        // One for each addition, one for a product that is not held exactly.
        (terms - 1.0).max(0.0) + f64::from(u8::from(!nonzero.clone().all(held)))
    };
    let keeping = if kept.hi == 0.0 { 0.0 } else { 1.0 + f64::from(u8::from(!(beta.abs() == 1.0))) };
    let roundings = sum_roundings + scaling + keeping;
    let lost = if underflows {
        (terms * alpha.abs() + 3.0) * tiny
    } else if roundings > 0.0 {
        3.0 * tiny
    } else {
        0.0
    };
    // An operand that α makes subnormal loses bits before it meets its factor.
    let smallest = exp2(format.min_exponent);
    let underflow = |x: f64, factor: f64| if (alpha * x).abs() < smallest { tiny * factor.abs() } else { 0.0 };
    let scaled: f64 = if alpha.abs() == 1.0 {
        0.0
    } else {
        nonzero.clone().map(|&(a, b)| underflow(a, b).max(underflow(b, a))).sum()
    };
    let operands = arithmetic.operand_error(dtype) * alpha.abs() * magnitude + scaled;
    let total = alpha.abs() * magnitude.max(aligned) + kept.hi.abs();
    let bound = gamma(roundings, u) * total * (1.0 + exp2(-40)) + lost + operands;
    // As for sums, with the old value as one more term; of up to 64 roundings 8·√n is no less than n.
    let all = || products.iter().map(|x| alpha * x).chain([kept.hi]).collect::<Vec<_>>();
    let walk = roundings > 64.0 && independent(&all(), value, total);
    let likely = if walk { 8.0 * roundings.sqrt() * u * total + lost + operands } else { bound };
    Expect::near(value, bound).likely(likely)
}

/// A product with an infinite or NaN term: order-free unless a finite partial sum could overflow first.
fn infinite(dtype: DType, format: Format, pairs: &[(f64, f64)], alpha: f64, kept: f64, old: f64) -> Expect {
    let operand_infinite = pairs.iter().any(|(a, b)| a.is_infinite() || b.is_infinite());
    let finite: f64 = pairs.iter().map(|(a, b)| (a * b).abs()).filter(|x| x.is_finite()).sum();
    let nan = pairs.iter().any(|(a, b)| (a * b).is_nan());
    let signs =
        |sign: f64| pairs.iter().any(|(a, b)| (a.is_infinite() || b.is_infinite()) && (a * b) == sign * f64::INFINITY);
    if nan || signs(1.0) && signs(-1.0) || kept.is_nan() {
        return Expect::Nan;
    }
    let overflows = pairs.iter().any(|(a, b)| a.is_finite() && b.is_finite() && !(a * b).is_finite());
    // The old value may overflow when it is scaled, and so may an operand.
    let kept_overflows = old.is_finite() && kept.abs() >= format.max() / 2.0;
    let operand = pairs.iter().flat_map(|&(a, b)| [a.abs(), b.abs()]).filter(|x| x.is_finite()).fold(0.0, f64::max);
    if overflows
        || kept_overflows
        || alpha.abs() > 1.0 && alpha.abs() * operand >= format.max() / 2.0
        || finite >= format.max() / 2.0
        || (!operand_infinite && finite * alpha.abs() >= format.max() / 2.0)
    {
        return Expect::Any;
    }
    let sum = if signs(1.0) {
        f64::INFINITY
    } else if signs(-1.0) {
        f64::NEG_INFINITY
    } else {
        0.0
    };
    // A finite sum only matters beside an infinite old value, where its size does not.
    let product = if operand_infinite { alpha * sum } else { 0.0 };
    Expect::exact(dtype, product + kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::judge;
    use crate::host::encode_float;

    fn accepts(pairs: &[(f64, f64)], got: f32) -> bool {
        judge(DType::F32, got.to_bits().into(), &float(DType::F32, pairs, 1.0, 0.0, 0.0, Arithmetic::default()))
            .accepted
    }

    #[test]
    fn one_hot_and_integer_data_are_exact() {
        let x = 1.234_567_9_f32;
        assert!(accepts(&[(0.0, 5.0), (x.into(), 1.0)], x));
        assert!(!accepts(&[(0.0, 5.0), (x.into(), 1.0)], x.next_up()));
        let wide = f64::from((1 << 20) + 1);
        assert!(accepts(&[(wide, 3.0), (wide, -1.0)], 2.0 * wide as f32));
        assert!(!accepts(&[(wide, 3.0), (wide, -1.0)], 2.0 * wide as f32 + 2.0));
    }

    /// A correct product may round in one direction all along; what is lost elsewhere is loose.
    #[test]
    fn only_unlikely_errors_are_loose() {
        let judged = |terms: &[f64], got: f32| {
            let pairs: Vec<_> = terms.iter().map(|&x| (x, 1.0)).collect();
            let expect = float(DType::F32, &pairs, 1.0, 0.0, 0.0, Arithmetic::default());
            judge(DType::F32, got.to_bits().into(), &expect)
        };
        let in_order = |terms: &[f64]| terms.iter().fold(0_f32, |sum, &x| sum + x as f32);
        // Each small term is rounded away beside the large one, always downwards: 900 in all, beyond 8·√n·u·Σ|terms|.
        let small = (0..1024).map(|index| 0.75 + f64::from(index) * exp2(-12));
        let large: Vec<f64> = [exp2(24)].into_iter().chain(small).chain([-exp2(24)]).collect();
        let lost = judged(&large, in_order(&large));
        assert!(lost.accepted && !lost.loose, "{lost:?}");
        let wave: Vec<f64> = (0..1024).map(|index| f64::from((f64::from(index) * 1.7).sin() as f32)).collect();
        let right = judged(&wave, in_order(&wave));
        assert!(right.accepted && !right.loose, "{right:?}");
        let magnitude: f64 = wave.iter().map(|x| x.abs()).sum();
        let drifted = judged(&wave, (wave.iter().sum::<f64>() + 300.0 * exp2(-24) * magnitude) as f32);
        assert!(drifted.accepted && drifted.loose, "{drifted:?}");
    }

    #[test]
    fn a_subnormal_half_is_aligned_as_the_smallest_normal() {
        // What an H200 makes of 612·(−25·2⁻²⁴) + (−0x1.48p-12)·(23·2⁻²⁴): the second term is lost, and a tie goes to even.
        let pairs = [(612.0, -25.0 * exp2(-24)), (-1.281_25 * exp2(-12), 23.0 * exp2(-24))];
        let expect = float(DType::F16, &pairs, 1.0, 0.0, 0.0, Arithmetic::default());
        for accepted in [-0.000_911_712_646_484_375, -0.000_912_189_483_642_578_1] {
            assert!(judge(DType::F16, encode_float(DType::F16, accepted), &expect).accepted);
        }
        assert!(!judge(DType::F16, encode_float(DType::F16, -0.000_912_666_320_800_781_2), &expect).accepted);
    }

    #[test]
    fn beta_zero_ignores_the_old_value_and_infinities_propagate() {
        let f = |pairs: &[(f64, f64)], beta, old| float(DType::F32, pairs, 1.0, beta, old, Arithmetic::default());
        assert_eq!(f(&[(1.0, 2.0)], 0.0, f64::NAN), Expect::near(2.0.into(), 0.0));
        assert_eq!(f(&[(1.0, 2.0)], 1.0, f64::NAN), Expect::Nan);
        assert_eq!(f(&[(0.0, f64::INFINITY)], 0.0, 0.0), Expect::Nan);
        assert_eq!(f(&[(f64::INFINITY, 1.0), (1.0, 1.0)], 0.0, 0.0), Expect::exact(DType::F32, f64::INFINITY));
        assert_eq!(f(&[(1.0, 1.0)], 1.0, f64::NEG_INFINITY), Expect::exact(DType::F32, f64::NEG_INFINITY));
        assert_eq!(f(&[(3e38, 3.0), (-3e38, 3.0)], 0.0, 0.0), Expect::Any);
        assert_eq!(f(&[], 0.0, 7.0), Expect::near(Dd::default(), 0.0));
        let scaled = float(DType::F64, &[(f64::MAX, 0.0)], 1.3, 0.0, 0.0, Arithmetic::default());
        assert_eq!(scaled, Expect::Any);
        let beside = [(f64::INFINITY, -1.0), (f64::MAX, 0.0)];
        assert_eq!(float(DType::F64, &beside, 1.3, 0.0, 0.0, Arithmetic::default()), Expect::Any);
        assert_eq!(f(&[(f64::NEG_INFINITY, 1.0)], 1.3, 3e38), Expect::Any);
        let tiny = float(DType::F32, &[(-exp2(-149), 1000.0)], 0.5, 0.0, 0.0, Arithmetic::default());
        assert!(judge(DType::F32, (-0_f32).to_bits().into(), &tiny).accepted);
        let infinite = float(DType::F32, &[], f64::INFINITY, 0.0, 0.0, Arithmetic::default());
        assert_eq!(infinite, Expect::near(Dd::default(), 0.0));
        assert_eq!(f(&[(f64::INFINITY, 1.0)], 1.3, -3e38), Expect::Any);
    }
}
