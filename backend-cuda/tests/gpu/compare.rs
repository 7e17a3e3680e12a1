//! Comparisons, choice, clamping.

use congruent_backend_api::ops::compare::{Clamp, Compare, CompareOp, Where};
use congruent_backend_api::{CompareOps, Element, Scalar, Source, bf16, f16};
use congruent_backend_cuda::Cuda;

use crate::support::{Tensor, cuda, odd_layouts};

fn compare<T: Element>(cuda: &Cuda, op: CompareOp, a: &[T], b: &[T]) -> Vec<bool> {
    let (a, b) = (Tensor::new(cuda, &[a.len()], a), Tensor::new(cuda, &[b.len()], b));
    let mut out = Tensor::zeros::<bool>(cuda, a.layout.shape());
    let plan = Compare::new(op, T::DTYPE, Source::View(a.view()), Source::View(b.view()), out.view()).unwrap();
    cuda.compare(&plan, Some(&a.storage), Some(&b.storage), &mut out.storage).unwrap();
    out.to_vec(cuda)
}

#[test]
fn comparisons_of_every_dtype() {
    let Some(cuda) = cuda() else { return };
    fn check<T: Element + PartialOrd>(cuda: &Cuda, values: &[T]) {
        let (a, b): (Vec<T>, Vec<T>) = values.iter().flat_map(|&a| values.iter().map(move |&b| (a, b))).unzip();
        let cases: [(CompareOp, fn(&T, &T) -> bool); 6] = [
            (CompareOp::Eq, |a, b| a == b),
            (CompareOp::Ne, |a, b| a != b),
            (CompareOp::Lt, |a, b| a < b),
            (CompareOp::Le, |a, b| a <= b),
            (CompareOp::Gt, |a, b| a > b),
            (CompareOp::Ge, |a, b| a >= b),
        ];
        for (op, reference) in cases {
            let expected: Vec<bool> = a.iter().zip(&b).map(|(a, b)| reference(a, b)).collect();
            assert_eq!(compare(cuda, op, &a, &b), expected, "{op:?} {}", T::DTYPE);
        }
    }
    let floats = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-45];
    check(cuda, &floats);
    check(cuda, &floats.map(|x| x as f32));
    check(cuda, &floats.map(f16::from_f64));
    check(cuda, &floats.map(bf16::from_f64));
    check(cuda, &[0_i64, -1, i64::MIN, i64::MAX]);
    check(cuda, &[0_i32, -1, i32::MIN, i32::MAX]);
    check(cuda, &[0_u32, 1, u32::MAX]);
    check(cuda, &[0_u8, 1, 255]);
    check(cuda, &[false, true]);
    let (a, b) = ([false, false, true, true], [false, true, false, true]);
    assert_eq!(compare(cuda, CompareOp::LogicalAnd, &a, &b), [false, false, false, true]);
    assert_eq!(compare(cuda, CompareOp::LogicalOr, &a, &b), [false, true, true, true]);
    assert_eq!(compare(cuda, CompareOp::LogicalXor, &a, &b), [false, true, true, false]);
}

#[test]
fn choosing_copies_bits_from_any_layout() {
    let Some(cuda) = cuda() else { return };
    for layouts in odd_layouts().windows(4) {
        let condition = Tensor::from_fn(cuda, &[4096], |at| at % 3 == 0).with(|_| layouts[0]);
        let a = Tensor::from_fn(cuda, &[4096], |at| f32::from_bits(0x7fc0_0000 + at as u32)).with(|_| layouts[1]);
        let b = Tensor::from_fn(cuda, &[4096], |at| at as f32).with(|_| layouts[2]);
        let mut out = Tensor::zeros::<f32>(cuda, &[4096]).with(|_| layouts[3]);
        let (first, second) = (Source::View(a.view()), Source::View(b.view()));
        let plan = Where::new(Source::View(condition.view()), first, second, out.view()).unwrap();
        cuda.choose(&plan, Some(&condition.storage), Some(&a.storage), Some(&b.storage), &mut out.storage).unwrap();
        let conditions = condition.to_vec::<bool>(cuda);
        let (a, b) = (a.to_vec::<f32>(cuda), b.to_vec::<f32>(cuda));
        for (at, y) in out.to_vec::<f32>(cuda).into_iter().enumerate() {
            assert_eq!(y.to_bits(), if conditions[at] { a[at] } else { b[at] }.to_bits());
        }
    }
    let condition = Tensor::new(cuda, &[3], &[true, false, true]);
    let mut out = Tensor::new(cuda, &[3], &[1_u8, 2, 3]);
    let choice = Source::Scalar(Scalar::Int(9));
    let plan = Where::new(Source::View(condition.view()), choice, Source::Output, out.view()).unwrap();
    cuda.choose(&plan, Some(&condition.storage), None, None, &mut out.storage).unwrap();
    assert_eq!(out.to_vec::<u8>(cuda), [9, 2, 9]);
}

#[test]
fn clamping_keeps_nan_and_the_order_of_zeros() {
    let Some(cuda) = cuda() else { return };
    fn clamp<T: Element>(cuda: &Cuda, x: &[T], min: Option<Scalar>, max: Option<Scalar>) -> Vec<T> {
        let mut x = Tensor::new(cuda, &[x.len()], x);
        let plan = Clamp::new(min, max, Source::Output, x.view()).unwrap();
        cuda.clamp(&plan, None, &mut x.storage).unwrap();
        x.to_vec(cuda)
    }
    let float = |x: f64| Some(Scalar::Float(x));
    let x = [-5.0_f32, -0.0, 0.0, 5.0, f32::NAN];
    let bits = |y: Vec<f32>| y.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(clamp(cuda, &x[..4], float(0.0), float(1.0))), [0.0_f32, 0.0, 0.0, 1.0].map(f32::to_bits));
    assert_eq!(bits(clamp(cuda, &x[..4], None, float(-0.0))), [-5.0_f32, -0.0, -0.0, -0.0].map(f32::to_bits));
    assert_eq!(clamp(cuda, &x[..4], float(3.0), float(1.0)), [1.0; 4]);
    assert!(clamp(cuda, &x, float(0.0), None)[4].is_nan());
    assert!(clamp(cuda, &x, float(f64::NAN), None).iter().all(|y| y.is_nan()));
    let int = |x: i64| Some(Scalar::Int(x));
    assert_eq!(clamp(cuda, &[-9_i32, 0, 9], int(-1), int(4)), [-1, 0, 4]);
    assert_eq!(clamp(cuda, &[0_u8, 100, 255], int(3), None), [3, 100, 255]);
    assert_eq!(clamp(cuda, &[f16::from_f32(9.0)], None, float(2.0)), [f16::from_f32(2.0)]);
}
