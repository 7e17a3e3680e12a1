//! Comparisons, the choice between two operands, and clamping.

use congruent_backend_api::ops::compare::{Clamp, Compare, CompareOp, Where};
use congruent_backend_api::{CompareOps, Result, match_number};

use crate::backend::Cpu;
use crate::lane::{Lane, Number};
use crate::loops::{map1, map2, map3};
use crate::simd::light;
use crate::storage::CpuStorage;

#[deny(clippy::missing_trait_methods)]
impl CompareOps for Cpu {
    fn compare(
        &self,
        plan: &Compare,
        a: Option<&CpuStorage>,
        b: Option<&CpuStorage>,
        out: &mut CpuStorage,
    ) -> Result<()> {
        // The bytes 0 and 1 order as false and true do.
        match_number!(plan.dtype(), T => compare::<T>(plan, [a, b], out), else => compare::<u8>(plan, [a, b], out))
    }

    fn choose(
        &self,
        plan: &Where,
        condition: Option<&CpuStorage>,
        a: Option<&CpuStorage>,
        b: Option<&CpuStorage>,
        out: &mut CpuStorage,
    ) -> Result<()> {
        let inputs = [condition, a, b];
        match_number!(plan.dtype(), T => choose::<T>(plan, inputs, out), else => choose::<u8>(plan, inputs, out))
    }

    fn clamp(&self, plan: &Clamp, x: Option<&CpuStorage>, out: &mut CpuStorage) -> Result<()> {
        match_number!(plan.dtype(), T => clamp::<T>(plan, x, out), else => clamp::<u8>(plan, x, out))
    }
}

fn compare<T: Lane>(plan: &Compare, inputs: [Option<&CpuStorage>; 2], out: &mut CpuStorage) -> Result<()> {
    let kernel = kernel::<T::Wide>(plan.op());
    map2(plan.elementwise(), inputs, out, |a: &[T], b, out: &mut [u8]| {
        let (mut wide_a, mut wide_b) = (T::buffer(), T::buffer());
        kernel(T::widen_block(a, &mut wide_a), T::widen_block(b, &mut wide_b), out);
    })
}

fn kernel<T: Number>(op: CompareOp) -> fn(&[T], &[T], &mut [u8]) {
    fn each<T: Number>(a: &[T], b: &[T], out: &mut [u8], f: impl Fn(&T, &T) -> bool) {
        light(
            #[inline(always)]
            || {
                for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
                    *out = f(a, b).into();
                }
            },
        );
    }
    match op {
        CompareOp::Eq => |a, b, out| each(a, b, out, T::eq),
        CompareOp::Ge => |a, b, out| each(a, b, out, T::ge),
        CompareOp::Gt => |a, b, out| each(a, b, out, T::gt),
        CompareOp::Le => |a, b, out| each(a, b, out, T::le),
        // On 0 and 1: and is the minimum, or the maximum, exclusive or the inequality.
        CompareOp::LogicalAnd => |a, b, out| each(a, b, out, |a, b| a.minimum(*b).is_nonzero()),
        CompareOp::LogicalOr => |a, b, out| each(a, b, out, |a, b| a.maximum(*b).is_nonzero()),
        CompareOp::Lt => |a, b, out| each(a, b, out, T::lt),
        CompareOp::LogicalXor | CompareOp::Ne => |a, b, out| each(a, b, out, T::ne),
    }
}

fn choose<T: Lane>(plan: &Where, inputs: [Option<&CpuStorage>; 3], out: &mut CpuStorage) -> Result<()> {
    map3::<T>(plan.elementwise(), inputs, out, |condition, a, b, out| {
        light(
            #[inline(always)]
            || {
                for (((out, &condition), &a), &b) in out.iter_mut().zip(condition).zip(a).zip(b) {
                    *out = if condition != 0 { a } else { b };
                }
            },
        );
    })
}

fn clamp<T: Lane>(plan: &Clamp, x: Option<&CpuStorage>, out: &mut CpuStorage) -> Result<()> {
    // An absent bound is the one that changes nothing.
    let low = plan.min().map_or(T::Wide::LEAST, |bound| T::from_scalar(bound).wide());
    let high = plan.max().map_or(T::Wide::GREATEST, |bound| T::from_scalar(bound).wide());
    map1(plan.elementwise(), x, out, |x: &[T], out: &mut [T]| {
        let (mut wide, mut result) = (T::buffer(), T::buffer());
        let x = T::widen_block(x, &mut wide);
        T::narrow_block(out, &mut result, |out| {
            light(
                #[inline(always)]
                || {
                    for (out, &x) in out.iter_mut().zip(x) {
                        *out = x.maximum(low).minimum(high);
                    }
                },
            );
        });
    })
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::{DType, f16};

    use super::*;
    use crate::testing::{Arg, choose_into, clamp, compare, output, tensor, vector};

    #[test]
    fn comparisons_with_nan_are_false_but_ne() {
        let (a, b) = ([1.0, 2.0, f64::NAN, -0.0], [2.0, 2.0, f64::NAN, 0.0]);
        let cases = [
            (CompareOp::Eq, [false, true, false, true]),
            (CompareOp::Ne, [true, false, true, false]),
            (CompareOp::Lt, [true, false, false, false]),
            (CompareOp::Le, [true, true, false, true]),
            (CompareOp::Gt, [false, false, false, false]),
            (CompareOp::Ge, [false, true, false, true]),
        ];
        for (op, expected) in cases {
            assert_eq!(compare(op, &a, &b), expected, "{op:?}");
            let (a, b) = (a.map(f16::from_f64), b.map(f16::from_f64));
            assert_eq!(compare(op, &a, &b), expected, "{op:?} of f16");
        }
    }

    #[test]
    fn bool_and_unsigned_order() {
        let (a, b) = ([false, false, true, true], [false, true, false, true]);
        assert_eq!(compare(CompareOp::Lt, &a, &b), [false, true, false, false]);
        assert_eq!(compare(CompareOp::LogicalAnd, &a, &b), [false, false, false, true]);
        assert_eq!(compare(CompareOp::LogicalOr, &a, &b), [false, true, true, true]);
        assert_eq!(compare(CompareOp::LogicalXor, &a, &b), [false, true, true, false]);
        assert_eq!(compare(CompareOp::Gt, &[u32::MAX], &[1]), [true]);
    }

    #[test]
    fn where_moves_bits_and_broadcasts() {
        let payload = f32::from_bits(0x7fa0_1234);
        let mut out = output(DType::F32, &[2, 2]);
        let condition = tensor(&[2, 1], &[true, false]);
        choose_into(&condition, &vector(&[payload, 1.0]), Arg::Scalar(7.into()), &mut out);
        let bits: Vec<u32> = out.elements::<f32>().iter().map(|x| x.to_bits()).collect();
        assert_eq!(bits, [0x7fa0_1234, 1f32.to_bits(), 7f32.to_bits(), 7f32.to_bits()]);
        choose_into(Arg::Scalar(false.into()), Arg::Scalar(1.into()), Arg::Output, &mut out);
        assert_eq!(out.elements::<f32>()[1..], [1.0, 7.0, 7.0]);
    }

    #[test]
    fn clamp_propagates_nan_and_lets_max_win() {
        let x = [-3.0_f64, -0.0, 5.0];
        assert_eq!(clamp(&x, Some((-1.0).into()), Some(2.0.into())), [-1.0, -0.0, 2.0]);
        assert_eq!(clamp(&x, Some(0.into()), None)[1].to_bits(), 0);
        assert_eq!(clamp(&x, Some(4.into()), Some(1.into())), [1.0; 3]);
        assert!(clamp(&x, Some(f64::NAN.into()), None).iter().all(|x| x.is_nan()));
        assert!(clamp(&[f16::NAN], None, Some(1.into()))[0].is_nan());
        assert_eq!(clamp(&[f64::NEG_INFINITY, f64::INFINITY], None, None), [f64::NEG_INFINITY, f64::INFINITY]);
        assert_eq!(clamp(&[0_u8, 200], Some(3.into()), Some(9.into())), [3, 9]);
    }
}
