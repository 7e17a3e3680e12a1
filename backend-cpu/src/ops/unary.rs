//! Elementwise functions of one operand.

use congruent_backend_api::ops::unary::{Unary, UnaryOp};
use congruent_backend_api::{DType, Error, Result, UnaryOps, bf16, f16};

use crate::backend::Cpu;
use crate::lane::{Int, Lane};
use crate::loops::map1;
use crate::math::Real;
use crate::simd::{heavy, light};
use crate::storage::CpuStorage;

#[deny(clippy::missing_trait_methods)]
impl UnaryOps for Cpu {
    fn unary(&self, plan: &Unary, x: Option<&CpuStorage>, out: &mut CpuStorage) -> Result<()> {
        match plan.dtype() {
            DType::F64 => float::<f64>(plan, x, out),
            DType::F32 => float::<f32>(plan, x, out),
            DType::F16 => float::<f16>(plan, x, out),
            DType::BF16 => float::<bf16>(plan, x, out),
            DType::I64 => int::<i64>(plan, x, out),
            DType::I32 => int::<i32>(plan, x, out),
            DType::U32 => int::<u32>(plan, x, out),
            DType::U8 => int::<u8>(plan, x, out),
            DType::Bool => not(plan, x, out),
        }
    }
}

fn float<T: Lane<Wide: Real>>(plan: &Unary, x: Option<&CpuStorage>, out: &mut CpuStorage) -> Result<()> {
    if let Some(kernel) = predicate_kernel::<T::Wide>(plan.op()) {
        return map1(plan.elementwise(), x, out, |x: &[T], out| kernel(T::widen_block(x, &mut T::buffer()), out));
    }
    let kernel = float_kernel::<T::Wide>(plan.op()).ok_or_else(|| undefined(plan))?;
    map1(plan.elementwise(), x, out, |x: &[T], out: &mut [T]| {
        let (mut wide, mut result) = (T::buffer(), T::buffer());
        let x = T::widen_block(x, &mut wide);
        T::narrow_block(out, &mut result, |out| kernel(x, out));
    })
}

fn int<T: Int>(plan: &Unary, x: Option<&CpuStorage>, out: &mut CpuStorage) -> Result<()> {
    let kernel = int_kernel::<T>(plan.op()).ok_or_else(|| undefined(plan))?;
    map1(plan.elementwise(), x, out, kernel)
}

fn not(plan: &Unary, x: Option<&CpuStorage>, out: &mut CpuStorage) -> Result<()> {
    map1(plan.elementwise(), x, out, |x: &[u8], out| swift(x, out, |x| x ^ 1))
}

type MapKernel<T, R> = fn(&[T], &mut [R]);

/// A function that is one call and a few branches.
fn each<T: Copy, R>(x: &[T], out: &mut [R], f: impl Fn(T) -> R) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = f(x);
    }
}

/// A function of a few instructions.
fn swift<T: Copy, R>(x: &[T], out: &mut [R], f: impl Fn(T) -> R) {
    light(
        #[inline(always)]
        || {
            for (out, &x) in out.iter_mut().zip(x) {
                *out = f(x);
            }
        },
    );
}

/// A function of many instructions and no branch.
fn smooth<T: Copy, R>(x: &[T], out: &mut [R], f: impl Fn(T) -> R) {
    heavy(
        #[inline(always)]
        || {
            for (out, &x) in out.iter_mut().zip(x) {
                *out = f(x);
            }
        },
    );
}

fn predicate_kernel<T: Real>(op: UnaryOp) -> Option<MapKernel<T, u8>> {
    Some(match op {
        UnaryOp::IsFinite => |x, out| swift(x, out, |x| x.is_finite().into()),
        UnaryOp::IsInf => |x, out| swift(x, out, |x| x.is_infinite().into()),
        UnaryOp::IsNan => |x, out| swift(x, out, |x| x.is_nan().into()),
        _ => return None,
    })
}

fn float_kernel<T: Real>(op: UnaryOp) -> Option<MapKernel<T, T>> {
    Some(match op {
        UnaryOp::Abs => |x, out| swift(x, out, T::abs),
        UnaryOp::Acos => |x, out| each(x, out, T::acos),
        UnaryOp::Acosh => |x, out| each(x, out, T::acosh),
        UnaryOp::Asin => |x, out| each(x, out, T::asin),
        UnaryOp::Asinh => |x, out| each(x, out, T::asinh),
        UnaryOp::Atan => |x, out| each(x, out, T::atan),
        UnaryOp::Atanh => |x, out| each(x, out, T::atanh),
        UnaryOp::Ceil => |x, out| swift(x, out, T::ceil),
        UnaryOp::Cos => |x, out| each(x, out, T::cos),
        UnaryOp::Cosh => |x, out| each(x, out, T::cosh),
        UnaryOp::Erf => |x, out| smooth(x, out, T::erf),
        UnaryOp::Erfc => |x, out| each(x, out, T::erfc),
        UnaryOp::Exp => |x, out| smooth(x, out, T::exp),
        UnaryOp::Exp2 => |x, out| smooth(x, out, T::exp2),
        UnaryOp::Expm1 => |x, out| smooth(x, out, T::expm1),
        UnaryOp::Floor => |x, out| swift(x, out, T::floor),
        UnaryOp::Gelu => |x, out| smooth(x, out, T::gelu),
        UnaryOp::GeluTanh => |x, out| smooth(x, out, T::gelu_tanh),
        UnaryOp::Ln => |x, out| smooth(x, out, T::ln),
        UnaryOp::Log10 => |x, out| smooth(x, out, T::log10),
        UnaryOp::Log1p => |x, out| smooth(x, out, T::log1p),
        UnaryOp::Log2 => |x, out| smooth(x, out, T::log2),
        UnaryOp::Neg => |x, out| swift(x, out, T::neg),
        UnaryOp::Recip => |x, out| swift(x, out, T::recip),
        UnaryOp::Relu => |x, out| swift(x, out, T::relu),
        UnaryOp::Round => |x, out| swift(x, out, T::round),
        UnaryOp::Rsqrt => |x, out| swift(x, out, |x| x.sqrt().recip()),
        UnaryOp::Sigmoid => |x, out| smooth(x, out, T::sigmoid),
        UnaryOp::Sign => |x, out| swift(x, out, T::sign),
        UnaryOp::Silu => |x, out| smooth(x, out, T::silu),
        UnaryOp::Sin => |x, out| each(x, out, T::sin),
        UnaryOp::Sinh => |x, out| each(x, out, T::sinh),
        UnaryOp::Softplus => |x, out| smooth(x, out, T::softplus),
        UnaryOp::Sqrt => |x, out| swift(x, out, T::sqrt),
        UnaryOp::Square => |x, out| swift(x, out, T::square),
        UnaryOp::Tan => |x, out| each(x, out, T::tan),
        UnaryOp::Tanh => |x, out| smooth(x, out, T::tanh),
        UnaryOp::Trunc => |x, out| swift(x, out, T::trunc),
        UnaryOp::BitwiseNot | UnaryOp::IsFinite | UnaryOp::IsInf | UnaryOp::IsNan | UnaryOp::LogicalNot => return None,
    })
}

fn int_kernel<T: Int>(op: UnaryOp) -> Option<MapKernel<T, T>> {
    Some(match op {
        UnaryOp::Abs => |x, out| swift(x, out, |x| T::from_i64(x.to_i64().wrapping_abs())),
        UnaryOp::BitwiseNot => |x, out| swift(x, out, |x| T::from_i64(!x.to_i64())),
        UnaryOp::Neg => |x, out| swift(x, out, |x| T::from_i64(x.to_i64().wrapping_neg())),
        UnaryOp::Relu => |x, out| swift(x, out, |x| x.maximum(T::default())),
        UnaryOp::Sign => |x, out| swift(x, out, |x| T::from_i64(x.to_i64().signum())),
        UnaryOp::Square => |x, out| swift(x, out, |x| T::from_i64(x.to_i64().wrapping_mul(x.to_i64()))),
        _ => return None,
    })
}

/// The error of an op outside its domain, which plans exclude.
fn undefined(plan: &Unary) -> Error {
    Error::unsupported("cpu", plan.op().name(), plan.dtype())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Arg, on_any_threads, output, tensor, unary, unary_into, vector};

    fn f64s(op: UnaryOp, x: &[f64]) -> Vec<f64> {
        unary(op, &vector(x)).elements()
    }

    fn bits(x: &[f64]) -> Vec<u64> {
        x.iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn exact_functions_keep_nan_and_the_sign_of_zero() {
        let x = [-2.5, -0.0, 0.0, 0.5, 1.5, 2.5, f64::INFINITY, f64::NEG_INFINITY];
        let inf = f64::INFINITY;
        let cases = [
            (UnaryOp::Round, [-2.0, -0.0, 0.0, 0.0, 2.0, 2.0, inf, -inf]),
            (UnaryOp::Floor, [-3.0, -0.0, 0.0, 0.0, 1.0, 2.0, inf, -inf]),
            (UnaryOp::Ceil, [-2.0, -0.0, 0.0, 1.0, 2.0, 3.0, inf, -inf]),
            (UnaryOp::Trunc, [-2.0, -0.0, 0.0, 0.0, 1.0, 2.0, inf, -inf]),
            (UnaryOp::Sign, [-1.0, -0.0, 0.0, 1.0, 1.0, 1.0, 1.0, -1.0]),
            (UnaryOp::Relu, [0.0, 0.0, 0.0, 0.5, 1.5, 2.5, inf, 0.0]),
            (UnaryOp::Abs, [2.5, 0.0, 0.0, 0.5, 1.5, 2.5, inf, inf]),
            (UnaryOp::Neg, [2.5, 0.0, -0.0, -0.5, -1.5, -2.5, -inf, inf]),
            (UnaryOp::Recip, [-0.4, -inf, inf, 2.0, 1.0 / 1.5, 0.4, 0.0, -0.0]),
            (UnaryOp::Square, [6.25, 0.0, 0.0, 0.25, 2.25, 6.25, inf, inf]),
        ];
        for (op, expected) in cases {
            assert_eq!(bits(&f64s(op, &x)), bits(&expected), "{op:?}");
            assert!(f64s(op, &[f64::NAN])[0].is_nan(), "{op:?}");
        }
    }

    #[test]
    fn integers_wrap() {
        let x = vector(&[i32::MIN, -3, 0, 7]);
        assert_eq!(unary(UnaryOp::Abs, &x).elements::<i32>(), [i32::MIN, 3, 0, 7]);
        assert_eq!(unary(UnaryOp::Neg, &x).elements::<i32>(), [i32::MIN, 3, 0, -7]);
        assert_eq!(unary(UnaryOp::Square, &x).elements::<i32>(), [0, 9, 0, 49]);
        assert_eq!(unary(UnaryOp::Sign, &x).elements::<i32>(), [-1, -1, 0, 1]);
        assert_eq!(unary(UnaryOp::Relu, &x).elements::<i32>(), [0, 0, 0, 7]);
        assert_eq!(unary(UnaryOp::Neg, &vector(&[1_u32])).elements::<u32>(), [u32::MAX]);
        assert_eq!(unary(UnaryOp::BitwiseNot, &vector(&[1_u8])).elements::<u8>(), [254]);
        assert_eq!(unary(UnaryOp::Abs, &vector(&[i64::MIN])).elements::<i64>(), [i64::MIN]);
        let not = unary(UnaryOp::LogicalNot, &vector(&[true, false]));
        assert_eq!(not.elements::<bool>(), [false, true]);
        assert_eq!(unary(UnaryOp::BitwiseNot, &vector(&[true, false])).elements::<bool>(), [false, true]);
    }

    #[test]
    fn predicates_are_bool() {
        let x = vector(&[f16::NAN, f16::INFINITY, f16::ONE]);
        assert_eq!(unary(UnaryOp::IsNan, &x).elements::<bool>(), [true, false, false]);
        assert_eq!(unary(UnaryOp::IsInf, &x).elements::<bool>(), [false, true, false]);
        assert_eq!(unary(UnaryOp::IsFinite, &x).elements::<bool>(), [false, false, true]);
    }

    #[test]
    fn every_layout_gives_the_same_elements() {
        let elements: Vec<f32> = (0..3000).map(|i| i as f32).collect();
        let x = tensor(&[50, 60], &elements).with(|x| x.permute(&[1, 0])).with(|x| x.flip(&[0]));
        let mut out = output(DType::F32, &[50, 120])
            .with(|out| out.slice(1, congruent_backend_api::Slice { step: -2, ..congruent_backend_api::Slice::FULL }))
            .with(|out| out.permute(&[1, 0]));
        unary_into(UnaryOp::Neg, &x, &mut out);
        let expected: Vec<f32> = x.elements::<f32>().iter().map(|x| -x).collect();
        assert_eq!(out.elements::<f32>(), expected);
        unary_into(UnaryOp::Neg, Arg::Output, &mut out);
        assert_eq!(out.elements::<f32>(), x.elements::<f32>());
        unary_into(UnaryOp::Square, &vector(&[3_f32]), &mut out);
        assert_eq!(out.elements::<f32>(), [9.0; 3000]);
    }

    #[test]
    fn large_calls_do_not_depend_on_threads() {
        let x = vector(&(0..300_001).map(|i| bf16::from_f32(i as f32 / 1e5)).collect::<Vec<_>>());
        let exp = on_any_threads(|| unary(UnaryOp::Exp, &x).elements::<bf16>());
        assert_eq!(exp[100_000], bf16::from_f32(1f32.exp()));
        assert!(unary(UnaryOp::Exp, &tensor::<f32>(&[3, 0], &[])).elements::<f32>().is_empty());
    }
}
