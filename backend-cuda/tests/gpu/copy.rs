//! Fills, copies and casts.

use congruent_backend_api::convert::{f64_to_bf16, f64_to_f16, i64_to_bf16, i64_to_f16};
use congruent_backend_api::ops::copy::{Copy, Fill};
use congruent_backend_api::{CopyOps, DType, Element, Scalar, bf16, f16, match_dtype};
use congruent_backend_cuda::Cuda;

use crate::support::{Tensor, cast, cuda, get, odd_layouts};

#[test]
fn fills_write_the_view_and_nothing_else() {
    let Some(cuda) = cuda() else { return };
    for layout in odd_layouts() {
        for value in [2.5, f64::NEG_INFINITY, -0.0] {
            let mut out = Tensor::from_fn(cuda, &[4096], |_| f16::ONE).with(|_| layout);
            let plan = Fill::new(Scalar::Float(value), out.view()).unwrap();
            cuda.fill(&plan, &mut out.storage).unwrap();
            assert!(out.to_vec::<f16>(cuda).iter().all(|y| y.to_bits() == f16::from_f64(value).to_bits()));
            let all: Vec<f16> = get(cuda, &out.storage).unwrap();
            assert_eq!(all.iter().filter(|&&y| y == f16::ONE).count(), 4096 - 120);
        }
    }
    let mut out = Tensor::zeros::<i64>(cuda, &[1000]);
    cuda.fill(&Fill::new(Scalar::Int(i64::MIN), out.view()).unwrap(), &mut out.storage).unwrap();
    assert_eq!(out.to_vec::<i64>(cuda), [i64::MIN; 1000]);
}

#[test]
fn copies_keep_bits() {
    let Some(cuda) = cuda() else { return };
    let nans: Vec<f16> = (0x7c00..0x8000_u16).chain(0xfc00..=0xffff).map(f16::from_bits).collect();
    let bits = |halves: &[f16]| halves.iter().map(|half| half.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&cast::<f16, f16>(cuda, &nans)), bits(&nans));
    for (input, output) in odd_layouts().into_iter().zip(odd_layouts().into_iter().rev()) {
        let x = Tensor::from_fn(cuda, &[4096], |at| at as u32).with(|_| input);
        let mut out = Tensor::zeros::<u32>(cuda, &[4096]).with(|_| output);
        cuda.copy(&Copy::new(x.view(), out.view()).unwrap(), &x.storage, &mut out.storage).unwrap();
        assert_eq!(out.to_vec::<u32>(cuda), x.to_vec::<u32>(cuda), "{input:?} to {output:?}");
    }
}

/// The contract of casts, spelled with Rust's `as`.
fn expected(value: Scalar, to: DType) -> Scalar {
    match (value, to) {
        (Scalar::Float(x), DType::F64) => x.into(),
        (Scalar::Float(x), DType::F32) => (x as f32).into(),
        (Scalar::Float(x), DType::F16) => f64_to_f16(x).into(),
        (Scalar::Float(x), DType::BF16) => f64_to_bf16(x).into(),
        (Scalar::Float(x), DType::I64) => (x as i64).into(),
        (Scalar::Float(x), DType::I32) => (x as i32).into(),
        (Scalar::Float(x), DType::U32) => (x as u32).into(),
        (Scalar::Float(x), DType::U8) => (x as u8).into(),
        (Scalar::Float(x), DType::Bool) => (x != 0.0).into(),
        (Scalar::Int(x), DType::F64) => (x as f64).into(),
        (Scalar::Int(x), DType::F32) => (x as f32).into(),
        (Scalar::Int(x), DType::F16) => i64_to_f16(x).into(),
        (Scalar::Int(x), DType::BF16) => i64_to_bf16(x).into(),
        (Scalar::Int(x), DType::I64) => x.into(),
        (Scalar::Int(x), DType::I32) => (x as i32).into(),
        (Scalar::Int(x), DType::U32) => (x as u32).into(),
        (Scalar::Int(x), DType::U8) => (x as u8).into(),
        (Scalar::Int(x), DType::Bool) => (x != 0).into(),
        (Scalar::Bool(x), to) => expected(Scalar::Int(x.into()), to),
    }
}

fn check_casts<T: Element>(cuda: &Cuda, values: &[T]) {
    for to in DType::ALL {
        let got: Vec<Scalar> = match_dtype!(to, O => cast::<T, O>(cuda, values).into_iter().map(Into::into).collect());
        for (&x, got) in values.iter().zip(got) {
            let expected = expected(x.into(), to);
            let nan = |scalar: Scalar| matches!(scalar, Scalar::Float(x) if x.is_nan());
            assert!(
                got == expected || (nan(got) && nan(expected)),
                "{x:?} ({}) to {to}: {got}, not {expected}",
                T::DTYPE
            );
        }
    }
}

#[test]
fn casts_between_every_two_dtypes() {
    let Some(cuda) = cuda() else { return };
    let tie = |bits: i32| 1.0 + 2f64.powi(-bits);
    let mut floats: Vec<f64> =
        vec![0.0, 1.0, 0.5, 1.5, 2.5, 255.0, 255.5, 256.0, 65504.0, 65519.9, 65520.0, 1e-8, 5e-324];
    floats.extend([
        2147483647.0,
        2147483648.0,
        4294967295.0,
        4294967296.0,
        9.3e18,
        1e300,
        f64::MAX,
        f64::INFINITY,
        f64::NAN,
    ]);
    floats.extend([11, 8, 24].map(tie).into_iter().flat_map(|x| [x.next_down(), x, x.next_up()]));
    floats.extend([
        6e-8,
        2.98e-8,
        9.2e-41,
        4.6e-41,
        1.4e-45,
        3.4e38,
        3.3961e38,
        2f64.powi(63),
        2f64.powi(63).next_down(),
    ]);
    let floats: Vec<f64> = floats.into_iter().flat_map(|x| [x, -x]).collect();
    check_casts(cuda, &floats);
    check_casts(cuda, &floats.iter().map(|&x| x as f32).collect::<Vec<_>>());
    check_casts(cuda, &(0..=u16::MAX).map(f16::from_bits).collect::<Vec<_>>());
    check_casts(cuda, &(0..=u16::MAX).map(bf16::from_bits).collect::<Vec<_>>());
    let ties = (0..63).flat_map(|bit| [-1, 0, 1].map(|nudge| (1_i64 << bit) + (1 << bit >> 9) + nudge));
    let ints: Vec<i64> = ties.flat_map(|x| [x, x.wrapping_neg()]).chain([i64::MIN, i64::MAX]).collect();
    check_casts(cuda, &ints);
    check_casts(cuda, &ints.iter().map(|&x| x as i32).collect::<Vec<_>>());
    check_casts(cuda, &ints.iter().map(|&x| x as u32).collect::<Vec<_>>());
    check_casts(cuda, &(0..=255_u8).collect::<Vec<_>>());
    check_casts(cuda, &[false, true]);
}
