//! Functions of one operand: special values, layouts, and every float function against one that rounds correctly.

use congruent_backend_api::ops::unary::{Unary, UnaryOp};
use congruent_backend_api::{Element, Source, UnaryOps, bf16, f16};

use crate::support::{Tensor, cuda, odd_layouts, unary};

const SPECIAL: [f32; 12] =
    [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, -f32::MAX];

/// Equal, zeros with their signs; any NaN equals any.
fn assert_same(op: UnaryOp, got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len());
    for (at, (got, expected)) in got.iter().zip(expected).enumerate() {
        let same = got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan());
        assert!(same, "{op:?}({}) is {got}, not {expected}", SPECIAL[at]);
    }
}

#[test]
fn exact_functions_have_the_right_special_values() {
    let Some(cuda) = cuda() else { return };
    let cases: [(UnaryOp, fn(f32) -> f32); 11] = [
        (UnaryOp::Abs, f32::abs),
        (UnaryOp::Ceil, f32::ceil),
        (UnaryOp::Floor, f32::floor),
        (UnaryOp::Neg, |x| -x),
        (UnaryOp::Recip, f32::recip),
        (UnaryOp::Relu, |x| if x > 0.0 || x.is_nan() { x } else { 0.0 }),
        (UnaryOp::Round, f32::round_ties_even),
        (UnaryOp::Sign, |x| if x == 0.0 || x.is_nan() { x } else { x.signum() }),
        (UnaryOp::Sqrt, f32::sqrt),
        (UnaryOp::Square, |x| x * x),
        (UnaryOp::Trunc, f32::trunc),
    ];
    for (op, reference) in cases {
        assert_same(op, &unary(cuda, op, &SPECIAL), &SPECIAL.map(reference));
        let half = |x: f32| f16::from_f32(x);
        let got: Vec<f16> = unary(cuda, op, &SPECIAL.map(half));
        let expected = SPECIAL.map(|x| half(reference(half(x).to_f32())).to_f32());
        assert_same(op, &got.into_iter().map(f16::to_f32).collect::<Vec<_>>(), &expected);
    }
    let finite: Vec<bool> = unary(cuda, UnaryOp::IsFinite, &SPECIAL);
    assert_eq!(finite, SPECIAL.map(f32::is_finite));
    assert_eq!(unary::<f32, bool>(cuda, UnaryOp::IsInf, &SPECIAL), SPECIAL.map(f32::is_infinite));
    assert_eq!(unary::<f32, bool>(cuda, UnaryOp::IsNan, &SPECIAL), SPECIAL.map(f32::is_nan));
}

#[test]
fn limits_at_infinity() {
    let Some(cuda) = cuda() else { return };
    for op in [UnaryOp::Gelu, UnaryOp::GeluTanh, UnaryOp::Silu] {
        let y: Vec<f32> = unary(cuda, op, &[f32::NEG_INFINITY, f32::INFINITY, f32::NAN, -0.0, -f32::MAX]);
        assert_eq!((y[0].to_bits(), y[1]), ((-0.0_f32).to_bits(), f32::INFINITY), "{op:?}");
        assert!(y[2].is_nan() && y[3] == 0.0 && y[4] == 0.0, "{op:?} {y:?}");
    }
    // Where the result underflows it is −0.
    let far = unary::<f32, f32>(cuda, UnaryOp::Gelu, &[-20.0, -40.0, -1e30]);
    assert!(far.iter().all(|y| y.to_bits() == (-0.0_f32).to_bits()), "{far:?}");
    let inputs = [f64::NEG_INFINITY, f64::INFINITY, 1000.0, -800.0];
    assert_eq!(unary::<f64, f64>(cuda, UnaryOp::Sigmoid, &inputs), [0.0, 1.0, 1.0, 0.0]);
    assert_eq!(unary::<f64, f64>(cuda, UnaryOp::Softplus, &inputs), [0.0, f64::INFINITY, 1000.0, 0.0]);
}

#[test]
fn integers_wrap() {
    let Some(cuda) = cuda() else { return };
    let x = [0, 1, -1, i32::MIN, i32::MAX, 65_536];
    assert_eq!(unary::<i32, i32>(cuda, UnaryOp::Abs, &x), x.map(i32::wrapping_abs));
    assert_eq!(unary::<i32, i32>(cuda, UnaryOp::Neg, &x), x.map(i32::wrapping_neg));
    assert_eq!(unary::<i32, i32>(cuda, UnaryOp::Square, &x), x.map(|x| x.wrapping_mul(x)));
    assert_eq!(unary::<i32, i32>(cuda, UnaryOp::Sign, &x), x.map(i32::signum));
    assert_eq!(unary::<i32, i32>(cuda, UnaryOp::BitwiseNot, &x), x.map(|x| !x));
    let bytes = [0_u8, 1, 16, 255];
    assert_eq!(unary::<u8, u8>(cuda, UnaryOp::Neg, &bytes), bytes.map(u8::wrapping_neg));
    assert_eq!(unary::<u8, u8>(cuda, UnaryOp::Square, &bytes), bytes.map(|x| x.wrapping_mul(x)));
    assert_eq!(unary::<u8, u8>(cuda, UnaryOp::Sign, &bytes), [0, 1, 1, 1]);
    assert_eq!(unary::<bool, bool>(cuda, UnaryOp::LogicalNot, &[true, false]), [false, true]);
}

/// The function in f64, and the bound in units in the last place of f32 at x.
type Row = (UnaryOp, fn(f64) -> f64, fn(f64) -> f64);

fn rows() -> Vec<Row> {
    vec![
        (UnaryOp::Acos, |x| core_math::acos(x), |_| 5.0),
        (UnaryOp::Acosh, |x| core_math::acosh(x), |_| 5.0),
        (UnaryOp::Asin, |x| core_math::asin(x), |_| 5.0),
        (UnaryOp::Asinh, |x| core_math::asinh(x), |_| 5.0),
        (UnaryOp::Atan, |x| core_math::atan(x), |_| 5.0),
        (UnaryOp::Atanh, |x| core_math::atanh(x), |_| 5.0),
        (UnaryOp::Cos, |x| core_math::cos(x), |_| 4.0),
        (UnaryOp::Cosh, |x| core_math::cosh(x), |_| 4.0),
        (UnaryOp::Erf, |x| core_math::erf(x), |_| 4.0),
        (UnaryOp::Erfc, |x| core_math::erfc(x), |_| 6.0),
        (UnaryOp::Exp, |x| core_math::exp(x), |_| 3.0),
        (UnaryOp::Exp2, |x| core_math::exp2(x), |_| 3.0),
        (UnaryOp::Expm1, |x| core_math::expm1(x), |_| 3.0),
        (UnaryOp::Gelu, |x| x / 2.0 * core_math::erfc(-x * 0.5_f64.sqrt()), |x| 8.0 + x * x),
        (UnaryOp::GeluTanh, |x| x * sigmoid(gelu_argument(x)), |x| 8.0 + 4.0 * gelu_argument(x).abs()),
        (UnaryOp::Ln, |x| core_math::log(x), |_| 3.0),
        (UnaryOp::Log10, |x| core_math::log10(x), |_| 3.0),
        (UnaryOp::Log1p, |x| core_math::log1p(x), |_| 3.0),
        (UnaryOp::Log2, |x| core_math::log2(x), |_| 3.0),
        (UnaryOp::Rsqrt, |x| 1.0 / x.sqrt(), |_| 3.0),
        (UnaryOp::Sigmoid, sigmoid, |_| 8.0),
        (UnaryOp::Silu, |x| x * sigmoid(x), |_| 8.0),
        (UnaryOp::Sin, |x| core_math::sin(x), |_| 4.0),
        (UnaryOp::Sinh, |x| core_math::sinh(x), |_| 4.0),
        (UnaryOp::Softplus, |x| x.max(0.0) + core_math::log1p(core_math::exp(-x.abs())), |_| 8.0),
        (UnaryOp::Tan, |x| core_math::tan(x), |_| 5.0),
        (UnaryOp::Tanh, |x| core_math::tanh(x), |_| 4.0),
    ]
}

fn sigmoid(x: f64) -> f64 {
    let e = core_math::exp(-x.abs());
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

fn gelu_argument(x: f64) -> f64 {
    2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)
}

/// The worst error ÷ bound over `inputs`, which are of type `T` with unit roundoff `epsilon` / 2, smallest number `least`
/// and greatest `most`; `slack` is for the reference's own error.
fn worst<T: Element + Into<f64>>(
    row: &Row,
    inputs: &[T],
    results: &[T],
    [epsilon, least, most]: [f64; 3],
    slack: f64,
) -> f64 {
    let (op, reference, bound) = row;
    let (mut worst, mut worst_at) = (0.0_f64, 0.0);
    for (&x, &y) in inputs.iter().zip(results) {
        let (x, y): (f64, f64) = (x.into(), y.into());
        let exact = reference(x);
        if exact.is_nan() || x.is_infinite() {
            assert!(y.is_nan() || x.is_infinite(), "{op:?}({x:e}) is {y}");
            continue;
        }
        // Past the greatest number a result within the bound may be infinite or not.
        let (y, exact) = (y.clamp(-most, most), exact.clamp(-most, most));
        let unit = (epsilon * exact.abs().log2().floor().exp2()).max(least);
        let share = (y - exact).abs() / unit / (bound(x) + slack);
        if share > worst || share.is_nan() {
            (worst, worst_at) = (share, x);
        }
    }
    println!("{op:?} {}: worst error ÷ bound {worst:.3} at {worst_at:e}", T::DTYPE);
    worst
}

/// One in 4096 of all f32, and every exponent of f64.
#[test]
fn elementary_functions_keep_their_bounds() {
    let Some(cuda) = cuda() else { return };
    let narrow: Vec<f32> = (0..1_u32 << 20).map(|at| f32::from_bits(at.wrapping_mul(4096) + at % 4093)).collect();
    let mantissa = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4b) & ((1 << 46) - 1);
    let wide: Vec<f64> = (0..1_u64 << 18).map(|at| f64::from_bits((at << 46) | mantissa(at))).collect();
    let narrow_limits = [f32::EPSILON, f32::from_bits(1), f32::MAX].map(f64::from);
    let wide_limits = [f64::EPSILON, f64::from_bits(1), f64::MAX];
    for row in rows() {
        let op = row.0;
        assert!(worst(&row, &narrow, &unary::<f32, f32>(cuda, op, &narrow), narrow_limits, 0.0) <= 1.0, "{op:?}");
        // In f64 the reference is as exact as the result; a composed one is worse, and that of x times something none.
        let slack = match op {
            UnaryOp::Gelu | UnaryOp::GeluTanh | UnaryOp::Silu => continue,
            UnaryOp::Sigmoid | UnaryOp::Softplus => 3.0,
            _ => 1.5,
        };
        assert!(worst(&row, &wide, &unary::<f64, f64>(cuda, op, &wide), wide_limits, slack) <= 1.0, "{op:?}");
    }
}

#[test]
fn every_dtype_computes_the_same_functions() {
    let Some(cuda) = cuda() else { return };
    let inputs: Vec<f64> = (1..60).map(|at| f64::from(at) / 64.0).collect();
    for (op, reference, _) in rows() {
        let shift = if op == UnaryOp::Acosh { 1.0 } else { 0.0 };
        let x: Vec<f64> = inputs.iter().map(|x| x + shift).collect();
        let halves: Vec<f16> = x.iter().map(|&x| f16::from_f64(x)).collect();
        let brains: Vec<bf16> = x.iter().map(|&x| bf16::from_f64(x)).collect();
        let wide: Vec<f64> = unary(cuda, op, &x);
        let half: Vec<f16> = unary(cuda, op, &halves);
        let brain: Vec<bf16> = unary(cuda, op, &brains);
        for at in 0..x.len() {
            let close = |y: f64, x: f64, limit: f64| (y - reference(x)).abs() <= limit * reference(x).abs();
            assert!(close(wide[at], x[at], 4e-15), "{op:?} f64 {}", x[at]);
            assert!(close(half[at].to_f64(), halves[at].to_f64(), 4.9e-4), "{op:?} f16 {}", x[at]);
            assert!(close(brain[at].to_f64(), brains[at].to_f64(), 3.92e-3), "{op:?} bf16 {}", x[at]);
        }
    }
}

#[test]
fn any_layout_in_and_out() {
    let Some(cuda) = cuda() else { return };
    for input in odd_layouts() {
        for output in odd_layouts() {
            let x = Tensor::from_fn(cuda, &[4096], |at| at as i64).with(|_| input);
            let mut out = Tensor::from_fn(cuda, &[4096], |_| 7_i64).with(|_| output);
            let plan = Unary::new(UnaryOp::Neg, Source::View(x.view()), out.view()).unwrap();
            cuda.unary(&plan, Some(&x.storage), &mut out.storage).unwrap();
            let expected: Vec<i64> = x.to_vec::<i64>(cuda).into_iter().map(|x| -x).collect();
            assert_eq!(out.to_vec::<i64>(cuda), expected, "{input:?} to {output:?}");
            let all = crate::support::get::<i64>(cuda, &out.storage).unwrap();
            assert_eq!(all.iter().filter(|&&y| y == 7).count(), 4096 - 120, "{output:?} was left");
        }
    }
}

/// In place, at every alignment and with every remainder of the vector width.
#[test]
fn every_alignment_and_length() {
    let Some(cuda) = cuda() else { return };
    fn check<T: Element>(cuda: &congruent_backend_cuda::Cuda, of: impl Fn(usize) -> T) {
        for offset in 0..17 {
            for len in [0, 1, 2, 15, 16, 17, 31, 33, 255, 257] {
                let cut = |_: &_| congruent_backend_api::Layout::new("test", &[len], &[1], offset).unwrap();
                let mut x = Tensor::from_fn(cuda, &[300], &of).with(cut);
                let before = x.to_vec::<T>(cuda);
                for _ in 0..2 {
                    let plan = Unary::new(UnaryOp::BitwiseNot, Source::Output, x.view()).unwrap();
                    cuda.unary(&plan, None, &mut x.storage).unwrap();
                }
                assert_eq!(x.to_vec::<T>(cuda), before);
                let plan = Unary::new(UnaryOp::BitwiseNot, Source::Output, x.view()).unwrap();
                cuda.unary(&plan, None, &mut x.storage).unwrap();
                assert!(x.to_vec::<T>(cuda).iter().zip(&before).all(|(after, before)| after != before));
            }
        }
    }
    check(cuda, |at| at as u8);
    check(cuda, |at| at as i32);
    check(cuda, |at| at as i64);
    check(cuda, |at| at % 3 == 0);
}
