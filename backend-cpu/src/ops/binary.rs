//! Elementwise arithmetic of two operands.

use congruent_backend_api::ops::binary::{Binary, BinaryOp};
use congruent_backend_api::{BinaryOps, DType, Error, Result, bf16, f16};

use crate::backend::Cpu;
use crate::lane::{Int, Lane};
use crate::loops::map2;
use crate::math::Real;
use crate::simd::light;
use crate::storage::CpuStorage;

#[deny(clippy::missing_trait_methods)]
impl BinaryOps for Cpu {
    fn binary(
        &self,
        plan: &Binary,
        a: Option<&CpuStorage>,
        b: Option<&CpuStorage>,
        out: &mut CpuStorage,
    ) -> Result<()> {
        let inputs = [a, b];
        match plan.dtype() {
            DType::F64 => float::<f64>(plan, inputs, out),
            DType::F32 => float::<f32>(plan, inputs, out),
            DType::F16 => float::<f16>(plan, inputs, out),
            DType::BF16 => float::<bf16>(plan, inputs, out),
            DType::I64 => int::<i64>(self, plan, inputs, out),
            DType::I32 => int::<i32>(self, plan, inputs, out),
            DType::U32 => int::<u32>(self, plan, inputs, out),
            // The bit operations of 0 and 1 are the logical ones.
            DType::U8 | DType::Bool => int::<u8>(self, plan, inputs, out),
        }
    }
}

fn float<T: Lane<Wide: Real>>(plan: &Binary, inputs: [Option<&CpuStorage>; 2], out: &mut CpuStorage) -> Result<()> {
    let kernel = float_kernel::<T::Wide>(plan.op()).ok_or_else(|| undefined(plan))?;
    map2(plan.elementwise(), inputs, out, |a: &[T], b, out: &mut [T]| {
        let (mut wide_a, mut wide_b, mut result) = (T::buffer(), T::buffer(), T::buffer());
        let (a, b) = (T::widen_block(a, &mut wide_a), T::widen_block(b, &mut wide_b));
        T::narrow_block(out, &mut result, |out| kernel(a, b, out));
    })
}

fn int<T: Int>(cpu: &Cpu, plan: &Binary, inputs: [Option<&CpuStorage>; 2], out: &mut CpuStorage) -> Result<()> {
    if let Some(kernel) = partial_kernel::<T>(plan.op()) {
        return map2(plan.elementwise(), inputs, out, |a, b, out| {
            if kernel(a, b, out) {
                cpu.mark_division_by_zero();
            }
        });
    }
    let kernel = int_kernel::<T>(plan.op()).ok_or_else(|| undefined(plan))?;
    map2(plan.elementwise(), inputs, out, kernel)
}

type ZipKernel<T> = fn(&[T], &[T], &mut [T]);

/// A kernel that returns whether some element has no result.
type PartialKernel<T> = fn(&[T], &[T], &mut [T]) -> bool;

#[inline(always)]
fn each<T: Copy>(a: &[T], b: &[T], out: &mut [T], f: impl Fn(T, T) -> T) {
    for (out, (&a, &b)) in out.iter_mut().zip(a.iter().zip(b)) {
        *out = f(a, b);
    }
}

/// [`each`] for an operation of a few instructions.
fn swift<T: Copy>(a: &[T], b: &[T], out: &mut [T], f: impl Fn(T, T) -> T) {
    light(
        #[inline(always)]
        || each(a, b, out, f),
    );
}

fn float_kernel<T: Real>(op: BinaryOp) -> Option<ZipKernel<T>> {
    Some(match op {
        BinaryOp::Add => |a, b, out| swift(a, b, out, T::add),
        BinaryOp::Atan2 => |a, b, out| each(a, b, out, T::atan2),
        BinaryOp::Div => |a, b, out| swift(a, b, out, T::div),
        BinaryOp::Maximum => |a, b, out| swift(a, b, out, T::maximum),
        BinaryOp::Minimum => |a, b, out| swift(a, b, out, T::minimum),
        BinaryOp::Modulo => |a, b, out| each(a, b, out, T::modulo),
        BinaryOp::Mul => |a, b, out| swift(a, b, out, T::mul),
        BinaryOp::Pow => |a, b, out| each(a, b, out, T::pow),
        BinaryOp::Rem => |a, b, out| each(a, b, out, T::rem),
        BinaryOp::Sub => |a, b, out| swift(a, b, out, T::sub),
        BinaryOp::BitwiseAnd | BinaryOp::BitwiseOr | BinaryOp::BitwiseXor | BinaryOp::Shl | BinaryOp::Shr => {
            return None;
        }
    })
}

fn int_kernel<T: Int>(op: BinaryOp) -> Option<ZipKernel<T>> {
    /// Applies an operation on i64 and wraps its result.
    fn wrap<T: Int>(a: &[T], b: &[T], out: &mut [T], f: impl Fn(i64, i64) -> i64) {
        swift(a, b, out, |a, b| T::from_i64(f(a.to_i64(), b.to_i64())));
    }
    Some(match op {
        BinaryOp::Add => |a, b, out| wrap(a, b, out, i64::wrapping_add),
        BinaryOp::BitwiseAnd => |a, b, out| wrap(a, b, out, |a, b| a & b),
        BinaryOp::BitwiseOr => |a, b, out| wrap(a, b, out, |a, b| a | b),
        BinaryOp::BitwiseXor => |a, b, out| wrap(a, b, out, |a, b| a ^ b),
        BinaryOp::Maximum => |a, b, out| swift(a, b, out, T::maximum),
        BinaryOp::Minimum => |a, b, out| swift(a, b, out, T::minimum),
        BinaryOp::Mul => |a, b, out| wrap(a, b, out, i64::wrapping_mul),
        BinaryOp::Shl => |a, b, out| wrap(a, b, out, |a, b| if (0..T::BITS).contains(&b) { a << b } else { 0 }),
        // 63 leaves nothing but the sign, which is 0 for the unsigned types.
        BinaryOp::Shr => |a, b, out| wrap(a, b, out, |a, b| a >> if (0..T::BITS).contains(&b) { b } else { 63 }),
        BinaryOp::Sub => |a, b, out| wrap(a, b, out, i64::wrapping_sub),
        BinaryOp::Atan2 | BinaryOp::Div | BinaryOp::Modulo | BinaryOp::Pow | BinaryOp::Rem => return None,
    })
}

/// The ops that have no result for some operands.
fn partial_kernel<T: Int>(op: BinaryOp) -> Option<PartialKernel<T>> {
    fn try_each<T: Int>(a: &[T], b: &[T], out: &mut [T], f: impl Fn(i64, i64) -> Option<i64>) -> bool {
        let mut failed = false;
        for (out, (&a, &b)) in out.iter_mut().zip(a.iter().zip(b)) {
            let result = f(a.to_i64(), b.to_i64());
            failed |= result.is_none();
            *out = T::from_i64(result.unwrap_or(0));
        }
        failed
    }
    Some(match op {
        BinaryOp::Div => |a, b, out| try_each(a, b, out, |a, b| (b != 0).then(|| a.wrapping_div(b))),
        BinaryOp::Modulo => |a, b, out| try_each(a, b, out, modulo),
        BinaryOp::Pow => |a, b, out| try_each(a, b, out, pow),
        BinaryOp::Rem => |a, b, out| try_each(a, b, out, |a, b| (b != 0).then(|| a.wrapping_rem(b))),
        _ => return None,
    })
}

fn modulo(a: i64, b: i64) -> Option<i64> {
    (b != 0).then(|| {
        let rest = a.wrapping_rem(b);
        if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
    })
}

/// aᵇ modulo 2⁶⁴ by squaring; a negative exponent truncates the fraction.
fn pow(a: i64, b: i64) -> Option<i64> {
    if b < 0 {
        return match a {
            0 => None,
            1 => Some(1),
            -1 => Some(if b & 1 == 0 { 1 } else { -1 }),
            _ => Some(0),
        };
    }
    let (mut base, mut exponent, mut result) = (a, b, 1_i64);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent >>= 1;
    }
    Some(result)
}

/// The error of an op outside its domain, which plans exclude.
fn undefined(plan: &Binary) -> Error {
    Error::unsupported("cpu", plan.op().name(), plan.dtype())
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::{Backend, ErrorKind};

    use super::*;
    use crate::testing::{Arg, binary, binary_into, on_any_threads, output, tensor, vector};

    #[test]
    fn integers_follow_the_contract() {
        let (a, b) = ([7, -7, 7, -7, i32::MIN, 6], [2, 2, -2, -2, -1, -3]);
        assert_eq!(binary(BinaryOp::Div, &a, &b), [3, -3, -3, 3, i32::MIN, -2]);
        assert_eq!(binary(BinaryOp::Rem, &a, &b), [1, -1, 1, -1, 0, 0]);
        assert_eq!(binary(BinaryOp::Modulo, &a, &b), [1, 1, -1, -1, 0, 0]);
        assert_eq!(binary(BinaryOp::Div, &[i64::MIN], &[-1]), [i64::MIN]);
        assert_eq!(binary(BinaryOp::Mul, &[200_u8, 3], &[2, 5]), [144, 15]);
        assert_eq!(binary(BinaryOp::Sub, &[0_u32], &[1]), [u32::MAX]);
        assert_eq!(
            binary(BinaryOp::Pow, &[3_i64, -2, 1, -1, -1, 2], &[41, 63, -9, -3, -2, -1]),
            [3_i64.wrapping_pow(41), i64::MIN, 1, -1, 1, 0]
        );
        assert_eq!(binary(BinaryOp::Pow, &[2_u32, 3, 0], &[32, 21, 0]), [0, 3_u32.wrapping_pow(21), 1]);
    }

    #[test]
    fn shifts_outside_the_width_leave_the_fill() {
        let (a, b) = ([-5, 5, -5, 5, 1, -1], [1, 31, 32, -1, 31, i32::MAX]);
        assert_eq!(binary(BinaryOp::Shl, &a, &b), [-10, i32::MIN, 0, 0, i32::MIN, 0]);
        assert_eq!(binary(BinaryOp::Shr, &a, &b), [-3, 0, -1, 0, 0, -1]);
        assert_eq!(binary(BinaryOp::Shr, &[255_u8, 255], &[7, 8]), [1, 0]);
        assert_eq!(binary(BinaryOp::Shl, &[1_i64, 1], &[63, 64]), [i64::MIN, 0]);
    }

    #[test]
    fn a_zero_divisor_gives_zero_and_one_error() {
        for (op, a, b) in
            [(BinaryOp::Div, 5, 0), (BinaryOp::Rem, 5, 0), (BinaryOp::Modulo, 5, 0), (BinaryOp::Pow, 0, -1)]
        {
            let (cpu, mut out) = (Cpu::new(), output(DType::I32, &[2]));
            binary_into(&cpu, op, &vector(&[a, 4]), &vector(&[b, 1]), &mut out);
            assert_eq!(cpu.synchronize().unwrap_err().kind(), ErrorKind::DivisionByZero);
            cpu.synchronize().unwrap();
            assert_eq!(out.elements::<i32>()[0], 0, "{op:?}");
        }
    }

    #[test]
    fn float_remainders_take_the_sign_of_their_operand() {
        let inf = f64::INFINITY;
        let (a, b) = ([5.5, -5.5, 5.5, -6.0, 6.0, -1.0, 1.0], [2.0, 2.0, -2.0, 3.0, -3.0, inf, -inf]);
        assert_eq!(binary(BinaryOp::Rem, &a, &b), [1.5, -1.5, 1.5, -0.0, 0.0, -1.0, 1.0]);
        let modulo = binary(BinaryOp::Modulo, &a, &b);
        assert_eq!(modulo, [1.5, 0.5, -0.5, 0.0, -0.0, inf, -inf]);
        assert!(modulo[4].is_sign_negative() && modulo[3].is_sign_positive());
        assert!(binary(BinaryOp::Modulo, &[1.0, inf], &[0.0, 1.0]).iter().all(|x| x.is_nan()));
    }

    #[test]
    fn extremes_propagate_nan_and_order_zeros() {
        let (a, b) = ([f32::NAN, 1.0, -0.0, 0.0, 2.0], [1.0, f32::NAN, 0.0, -0.0, 3.0]);
        let (max, min) = (binary(BinaryOp::Maximum, &a, &b), binary(BinaryOp::Minimum, &a, &b));
        assert!(max[..2].iter().chain(&min[..2]).all(|x| x.is_nan()));
        assert!(max[2..4].iter().all(|x| x.to_bits() == 0) && min[2..4].iter().all(|x| x.to_bits() == 1 << 31));
        assert_eq!((max[4], min[4]), (3.0, 2.0));
    }

    #[test]
    fn halves_round_once() {
        let (a, b) = (f16::from_f32(2048.0), f16::from_f32(1.0));
        assert_eq!(binary(BinaryOp::Add, &[a], &[b]), [a]);
        assert_eq!(binary(BinaryOp::Mul, &[f16::MAX], &[f16::from_f32(2.0)]), [f16::INFINITY]);
        assert_eq!(binary(BinaryOp::BitwiseXor, &[true, true], &[true, false]), [false, true]);
    }

    #[test]
    fn operands_may_be_scalars_broadcast_or_the_output() {
        let cpu = Cpu::new();
        let mut out = tensor(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        binary_into(&cpu, BinaryOp::Sub, Arg::Scalar(10.into()), Arg::Output, &mut out);
        assert_eq!(out.elements::<f64>(), [9.0, 8.0, 7.0, 6.0, 5.0, 4.0]);
        binary_into(&cpu, BinaryOp::Mul, Arg::Output, Arg::Output, &mut out);
        assert_eq!(out.elements::<f64>(), [81.0, 64.0, 49.0, 36.0, 25.0, 16.0]);
        binary_into(&cpu, BinaryOp::Add, &vector(&[1.0, 2.0, 3.0]), &tensor(&[2, 1], &[10.0, 20.0]), &mut out);
        assert_eq!(out.elements::<f64>(), [11.0, 12.0, 13.0, 21.0, 22.0, 23.0]);
        binary_into(&cpu, BinaryOp::Div, Arg::Scalar(1.into()), Arg::Scalar(4.into()), &mut out);
        assert_eq!(out.elements::<f64>(), [0.25; 6]);
    }

    #[test]
    fn large_broadcasts_do_not_depend_on_threads() {
        let a = tensor(&[700, 300], &(0..210_000).collect::<Vec<i32>>());
        let b = tensor(&[300, 700], &(0..210_000).rev().collect::<Vec<i32>>()).with(|b| b.permute(&[1, 0]));
        let sum = on_any_threads(|| {
            let mut out = output(DType::I32, &[700, 300]);
            binary_into(&Cpu::new(), BinaryOp::Add, &a, &b, &mut out);
            out.elements::<i32>()
        });
        let expected: Vec<i32> = a.elements().iter().zip(b.elements::<i32>()).map(|(a, b): (&i32, _)| a + b).collect();
        assert_eq!(sum, expected);
    }
}
