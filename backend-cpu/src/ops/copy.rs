//! Filling, and copying between any two layouts and dtypes.

use congruent_backend_api::ops::copy::{Copy, Fill};
use congruent_backend_api::{CopyOps, DType, Result, bf16, f16, match_number};

use crate::backend::Cpu;
use crate::lane::Lane;
use crate::loops::{fill, map1};
use crate::simd::light;
use crate::storage::CpuStorage;

#[deny(clippy::missing_trait_methods)]
impl CopyOps for Cpu {
    fn fill(&self, plan: &Fill, out: &mut CpuStorage) -> Result<()> {
        let (elementwise, value) = (plan.elementwise(), plan.value());
        match_number!(plan.dtype(), T => fill(elementwise, T::from_scalar(value), out),
            else => fill(elementwise, u8::from(value.to_bool()), out))
    }

    fn copy(&self, plan: &Copy, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
        // A bool is read as the byte 0 or 1.
        match_number!(plan.dtype(), T => copy::<T>(plan, x, out), else => copy::<u8>(plan, x, out))
    }
}

fn copy<T: Lane>(plan: &Copy, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
    match (plan.dtype(), plan.out_dtype()) {
        (from, to) if from == to => {
            map1(plan.elementwise(), Some(x), out, |x: &[T], out: &mut [T]| out.copy_from_slice(x))
        }
        (_, DType::Bool) => cast(plan, x, out, |x: T| u8::from(x.is_nonzero())),
        // Whole blocks are converted by SIMD where there is an instruction for it.
        (DType::F32, DType::F16) => narrow::<f16>(plan, x, out),
        (DType::F32, DType::BF16) => narrow::<bf16>(plan, x, out),
        (DType::F16, DType::F32) => widen::<f16>(plan, x, out),
        (DType::BF16, DType::F32) => widen::<bf16>(plan, x, out),
        (_, to) => match_number!(to, R => cast(plan, x, out, T::cast::<R>), else => Ok(())),
    }
}

fn cast<T: Lane, R: Lane>(plan: &Copy, x: &CpuStorage, out: &mut CpuStorage, f: impl Fn(T) -> R + Sync) -> Result<()> {
    map1(plan.elementwise(), Some(x), out, |x: &[T], out| {
        light(
            #[inline(always)]
            || {
                for (out, &x) in out.iter_mut().zip(x) {
                    *out = f(x);
                }
            },
        );
    })
}

fn widen<T: Lane>(plan: &Copy, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
    map1(plan.elementwise(), Some(x), out, |x: &[T], out: &mut [T::Wide]| {
        out.copy_from_slice(T::widen_block(x, &mut T::buffer()));
    })
}

fn narrow<R: Lane>(plan: &Copy, x: &CpuStorage, out: &mut CpuStorage) -> Result<()> {
    map1(plan.elementwise(), Some(x), out, |x: &[R::Wide], out: &mut [R]| {
        R::narrow_block(out, &mut R::buffer(), |out| out.copy_from_slice(x));
    })
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::{Layout, Scalar};

    use super::*;
    use crate::testing::{cast, copy_into, output, tensor};

    #[test]
    fn floats_saturate_to_integers_and_nan_is_zero() {
        let x = [f64::NAN, f64::INFINITY, -1e30, 2.9, -2.9, 300.0];
        assert_eq!(cast::<_, i64>(&x), [0, i64::MAX, i64::MIN, 2, -2, 300]);
        assert_eq!(cast::<_, u8>(&x), [0, 255, 0, 2, 0, 255]);
        assert_eq!(cast::<_, bool>(&x), [true; 6]);
        assert_eq!(cast::<_, bool>(&[-0.0_f32, f32::from_bits(1)]), [false, true]);
        assert_eq!(cast::<_, bool>(&[f16::NEG_ZERO, f16::NAN]), [false, true]);
        assert_eq!(cast::<_, u32>(&[bf16::from_f32(3e9), bf16::NEG_ONE]), [bf16::from_f32(3e9).to_f64() as u32, 0]);
    }

    #[test]
    fn integers_wrap_and_round_once() {
        assert_eq!(cast::<i64, i32>(&[i64::MAX, 1 << 33]), [-1, 0]);
        assert_eq!(cast::<i32, u8>(&[-1, 256]), [255, 0]);
        assert_eq!(cast::<i64, u32>(&[-1]), [u32::MAX]);
        assert_eq!(cast::<bool, f16>(&[true, false]), [f16::ONE, f16::ZERO]);
        // Through f64 this would be the tie, and 2^62.
        let above_tie = (1_i64 << 62) + (1 << 38) + 1;
        assert_eq!(cast::<i64, f32>(&[above_tie]), [((1_i64 << 62) + (1 << 39)) as f32]);
        assert_eq!(cast::<i64, bf16>(&[(1 << 62) + (1 << 54) + 1])[0].to_f64(), 2f64.powi(62) + 2f64.powi(55));
        // 1 + 2^-11 + 2^-40 is above the tie of f16, on it in f32.
        assert_eq!(cast::<f64, f16>(&[1.0 + 2f64.powi(-11) + 2f64.powi(-40)])[0].to_f64(), 1.0 + 2f64.powi(-10));
    }

    #[test]
    fn halves_convert_exactly_and_back() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).filter(|x| !x.is_nan()).collect();
        assert_eq!(cast::<f32, f16>(&cast::<f16, f32>(&all)), all);
        assert_eq!(cast::<f64, f16>(&cast::<f16, f64>(&all)), all);
        let all: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).filter(|x| !x.is_nan()).collect();
        assert_eq!(cast::<f32, bf16>(&cast::<bf16, f32>(&all)), all);
        assert!(cast::<f32, f16>(&[f32::NAN])[0].is_nan() && cast::<f32, bf16>(&[f32::NAN])[0].is_nan());
        assert_eq!(cast::<f32, f16>(&[65519.996, 65520.0]), [f16::MAX, f16::INFINITY]);
    }

    #[test]
    fn copies_keep_bits_and_write_only_the_view() {
        let x: Vec<f16> = (0x7c00..0x7c06).map(f16::from_bits).collect();
        let mut out = output(DType::F16, &[14]);
        out.layout = Layout::new("test", &[3, 2], &[1, -6], 7).unwrap();
        copy_into(&tensor(&[2, 3], &x).with(|x| x.permute(&[1, 0])), &mut out);
        out.layout = Layout::new("test", &[14], &[1], 0).unwrap();
        let bits: Vec<u16> = out.elements::<f16>().iter().map(|x| x.to_bits()).collect();
        let kept = 0x5a5a;
        let expected = [kept, 0x7c03, 0x7c04, 0x7c05, kept, kept, kept, 0x7c00, 0x7c01, 0x7c02, kept, kept, kept, kept];
        assert_eq!(bits, expected);
    }

    #[test]
    fn fills_reach_every_dtype_and_layout() {
        let value = |dtype| if dtype == DType::Bool { Scalar::Bool(true) } else { Scalar::Int(1) };
        for dtype in DType::ALL {
            let mut out = output(dtype, &[3, 4]).with(|out| out.permute(&[1, 0]));
            let plan = Fill::new(value(dtype), out.view()).unwrap();
            Cpu::new().fill(&plan, &mut out.storage).unwrap();
            let mut ones = output(DType::I32, &[4, 3]);
            copy_into(&out, &mut ones);
            assert_eq!(ones.elements::<i32>(), [1; 12], "{dtype}");
        }
    }
}
