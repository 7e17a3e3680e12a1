//! Arithmetic of two operands: specials, integers, scalars, broadcasting.

use congruent_backend_api::ops::binary::{Binary, BinaryOp};
use congruent_backend_api::{BinaryOps, Scalar, Source, bf16, f16};
use congruent_backend_cuda::Cuda;

use crate::support::{Tensor, binary, cuda, get};

#[test]
fn floats_follow_ieee() {
    let Some(cuda) = cuda() else { return };
    let values = [0.0_f32, -0.0, 1.5, -2.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, 3.0e38, 7.0];
    let (a, b): (Vec<f32>, Vec<f32>) = values.iter().flat_map(|&a| values.map(|b| (a, b))).unzip();
    let zero = |a: f32, b: f32| if a.is_sign_negative() { (b, a) } else { (a, b) };
    let maximum = |a: f32, b: f32| {
        if a == b {
            zero(a, b).0
        } else if a.is_nan() {
            a
        } else if b.is_nan() {
            b
        } else {
            a.max(b)
        }
    };
    let minimum = |a: f32, b: f32| {
        if a == b {
            zero(a, b).1
        } else if a.is_nan() {
            a
        } else if b.is_nan() {
            b
        } else {
            a.min(b)
        }
    };
    let modulo = |a: f32, b: f32| match a % b {
        0.0 => 0.0_f32.copysign(b),
        r if (r < 0.0) != (b < 0.0) => r + b,
        r => r,
    };
    let cases: [(BinaryOp, &dyn Fn(f32, f32) -> f32); 8] = [
        (BinaryOp::Add, &|a, b| a + b),
        (BinaryOp::Sub, &|a, b| a - b),
        (BinaryOp::Mul, &|a, b| a * b),
        (BinaryOp::Div, &|a, b| a / b),
        (BinaryOp::Maximum, &maximum),
        (BinaryOp::Minimum, &minimum),
        (BinaryOp::Rem, &|a, b| a % b),
        (BinaryOp::Modulo, &modulo),
    ];
    let same = |x: f32, y: f32| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
    for (op, reference) in cases {
        let got: Vec<f32> = get(cuda, &binary(cuda, op, &a, &b)).unwrap();
        let (left, right): (Vec<f16>, Vec<f16>) =
            a.iter().zip(&b).map(|(&a, &b)| (f16::from_f32(a), f16::from_f32(b))).unzip();
        let halves: Vec<f16> = get(cuda, &binary(cuda, op, &left, &right)).unwrap();
        for at in 0..a.len() {
            let expected = reference(a[at], b[at]);
            assert!(same(got[at], expected), "{op:?}({}, {}) is {}, not {expected}", a[at], b[at], got[at]);
            let expected = f16::from_f32(reference(left[at].to_f32(), right[at].to_f32())).to_f32();
            assert!(same(halves[at].to_f32(), expected), "f16 {op:?}({}, {})", left[at], right[at]);
        }
    }
}

#[test]
fn powers_and_angles() {
    let Some(cuda) = cuda() else { return };
    let pow =
        binary(cuda, BinaryOp::Pow, &[2.0_f64, -8.0, 0.0, f64::NAN, -2.0, 3.0], &[10.0, 1.0 / 3.0, 0.0, 0.0, 3.0, 2.0]);
    let pow: Vec<f64> = get(cuda, &pow).unwrap();
    assert_eq!((pow[0], pow[2], pow[3], pow[4], pow[5]), (1024.0, 1.0, 1.0, -8.0, 9.0));
    assert!(pow[1].is_nan());
    let angles = binary(cuda, BinaryOp::Atan2, &[0.0_f32, -0.0, 1.0, 0.0], &[-1.0, -1.0, 0.0, 0.0]);
    let pi = std::f32::consts::PI;
    assert_eq!(get::<f32>(cuda, &angles).unwrap(), [pi, -pi, pi / 2.0, 0.0]);
}

#[test]
fn integers_are_exact_and_wrap() {
    let Some(_) = cuda() else { return };
    // A backend of its own, since the division flag belongs to the backend.
    let cuda = &Cuda::new(0).unwrap();
    let values = [0_i64, 1, -1, 2, -3, 7, 63, 64, -64, i64::MIN, i64::MAX, 1 << 40];
    let (a, b): (Vec<i64>, Vec<i64>) = values.iter().flat_map(|&a| values.map(|b| (a, b))).unzip();
    let shl = |a: i64, b: i64| u32::try_from(b).ok().and_then(|b| a.checked_shl(b)).unwrap_or(0);
    let shr = |a: i64, b: i64| u32::try_from(b).ok().and_then(|b| a.checked_shr(b)).unwrap_or(a >> 63);
    let modulo = |a: i64, b: i64| match a.wrapping_rem(b) {
        r if r != 0 && (r < 0) != (b < 0) => r + b,
        r => r,
    };
    let pow = |a: i64, b: i64| match (a, b) {
        (0, ..0) => 0,
        (1, _) => 1,
        (-1, _) => {
            if b % 2 == 0 {
                1
            } else {
                -1
            }
        }
        (_, ..0) => 0,
        _ => {
            let (mut result, mut square, mut rest) = (1_i64, a, b);
            while rest > 0 {
                if rest & 1 == 1 {
                    result = result.wrapping_mul(square);
                }
                square = square.wrapping_mul(square);
                rest >>= 1;
            }
            result
        }
    };
    let cases: [(BinaryOp, &dyn Fn(i64, i64) -> i64); 14] = [
        (BinaryOp::Add, &|a, b| a.wrapping_add(b)),
        (BinaryOp::Sub, &|a, b| a.wrapping_sub(b)),
        (BinaryOp::Mul, &|a, b| a.wrapping_mul(b)),
        (BinaryOp::Div, &|a, b| if b == 0 { 0 } else { a.wrapping_div(b) }),
        (BinaryOp::Rem, &|a, b| if b == 0 { 0 } else { a.wrapping_rem(b) }),
        (BinaryOp::Modulo, &|a, b| if b == 0 { 0 } else { modulo(a, b) }),
        (BinaryOp::Pow, &pow),
        (BinaryOp::Maximum, &|a, b| a.max(b)),
        (BinaryOp::Minimum, &|a, b| a.min(b)),
        (BinaryOp::BitwiseAnd, &|a, b| a & b),
        (BinaryOp::BitwiseOr, &|a, b| a | b),
        (BinaryOp::BitwiseXor, &|a, b| a ^ b),
        (BinaryOp::Shl, &shl),
        (BinaryOp::Shr, &shr),
    ];
    for (op, reference) in cases {
        let out = binary(cuda, op, &a, &b);
        let divides = matches!(op, BinaryOp::Div | BinaryOp::Rem | BinaryOp::Modulo | BinaryOp::Pow);
        assert_eq!(get::<i64>(cuda, &out).is_err(), divides, "{op:?}");
        let got: Vec<i64> = get(cuda, &out).unwrap();
        for at in 0..a.len() {
            assert_eq!(got[at], reference(a[at], b[at]), "{op:?}({}, {})", a[at], b[at]);
        }
    }
    let bytes = [0_u8, 1, 2, 7, 8, 9, 200, 255];
    let (a, b): (Vec<u8>, Vec<u8>) = bytes.iter().flat_map(|&a| bytes.map(|b| (a, b))).unzip();
    let cases: [(BinaryOp, &dyn Fn(u8, u8) -> u8); 5] = [
        (BinaryOp::Sub, &|a, b| a.wrapping_sub(b)),
        (BinaryOp::Mul, &|a, b| a.wrapping_mul(b)),
        (BinaryOp::Pow, &|a, b| a.wrapping_pow(b.into())),
        (BinaryOp::Shl, &|a, b| a.checked_shl(b.into()).unwrap_or(0)),
        (BinaryOp::Shr, &|a, b| a.checked_shr(b.into()).unwrap_or(0)),
    ];
    for (op, reference) in cases {
        let got: Vec<u8> = get(cuda, &binary(cuda, op, &a, &b)).unwrap();
        let expected: Vec<u8> = a.iter().zip(&b).map(|(&a, &b)| reference(a, b)).collect();
        assert_eq!(got, expected, "{op:?}");
    }
}

#[test]
fn scalars_and_broadcasting_on_both_sides() {
    let Some(cuda) = cuda() else { return };
    let rows = Tensor::new(cuda, &[2, 1], &[10.0_f32, 20.0]);
    let columns = Tensor::new(cuda, &[3], &[1.0_f32, 2.0, 3.0]);
    let mut out = Tensor::zeros::<f32>(cuda, &[2, 3]);
    let plan = Binary::new(BinaryOp::Sub, Source::View(rows.view()), Source::View(columns.view()), out.view()).unwrap();
    cuda.binary(&plan, Some(&rows.storage), Some(&columns.storage), &mut out.storage).unwrap();
    assert_eq!(out.to_vec::<f32>(cuda), [9.0, 8.0, 7.0, 19.0, 18.0, 17.0]);
    // In place against a scalar on either side, and against one element that is broadcast to all.
    let plan = Binary::new(BinaryOp::Sub, Source::Scalar(Scalar::Float(1.0)), Source::Output, out.view()).unwrap();
    cuda.binary(&plan, None, None, &mut out.storage).unwrap();
    assert_eq!(out.to_vec::<f32>(cuda), [-8.0, -7.0, -6.0, -18.0, -17.0, -16.0]);
    let one = Tensor::new(cuda, &[1, 1], &[0.5_f32]);
    let plan = Binary::new(BinaryOp::Mul, Source::Output, Source::View(one.view()), out.view()).unwrap();
    cuda.binary(&plan, None, Some(&one.storage), &mut out.storage).unwrap();
    assert_eq!(out.to_vec::<f32>(cuda), [-4.0, -3.5, -3.0, -9.0, -8.5, -8.0]);
    let x = Tensor::new(cuda, &[3], &[1.0, 2.0, 3.0].map(bf16::from_f32));
    let mut y = Tensor::zeros::<bf16>(cuda, &[3]);
    let plan = Binary::new(BinaryOp::Div, Source::Scalar(Scalar::Int(1)), Source::View(x.view()), y.view()).unwrap();
    cuda.binary(&plan, None, Some(&x.storage), &mut y.storage).unwrap();
    assert_eq!(y.to_vec::<bf16>(cuda), [1.0, 0.5, 1.0 / 3.0].map(bf16::from_f32));
}

/// Against f64 functions that round correctly, at pairs from the whole range and at moderate ones.
#[test]
fn pow_and_atan2_keep_their_bounds() {
    let Some(cuda) = cuda() else { return };
    let bits = |at: u32| f32::from_bits(at.wrapping_mul(0x9e37_79b9));
    let moderate = |at: u32| (at.wrapping_mul(0x85eb_ca6b) >> 8) as f32 / 65_536.0;
    let (a, b): (Vec<f32>, Vec<f32>) = (0..1 << 18)
        .map(|at| {
            if at % 2 == 0 {
                (bits(at), bits(at ^ 0x5555))
            } else {
                (moderate(at) / 64.0, moderate(at + 7) / 8.0 - 16.0)
            }
        })
        .unzip();
    let cases: [(BinaryOp, fn(f64, f64) -> f64, f64); 2] =
        [(BinaryOp::Pow, |a, b| core_math::pow(a, b), 16.0), (BinaryOp::Atan2, |a, b| core_math::atan2(a, b), 6.0)];
    for (op, reference, bound) in cases {
        let got: Vec<f32> = get(cuda, &binary(cuda, op, &a, &b)).unwrap();
        let mut worst = 0.0_f64;
        for at in 0..a.len() {
            let exact = reference(a[at].into(), b[at].into());
            if exact.is_nan() {
                assert!(got[at].is_nan(), "{op:?}({:e}, {:e})", a[at], b[at]);
                continue;
            }
            let limit = f64::from(f32::MAX);
            let (y, exact) = (f64::from(got[at]).clamp(-limit, limit), exact.clamp(-limit, limit));
            let unit = (f64::from(f32::EPSILON) * exact.abs().log2().floor().exp2()).max(f32::from_bits(1).into());
            let error = (y - exact).abs() / unit;
            assert!(error <= bound, "{op:?}({:e}, {:e}) is {y:e}, {error} units from {exact:e}", a[at], b[at]);
            worst = worst.max(error);
        }
        println!("{op:?}: worst error {worst:.2} units");
    }
}
