//! Every named method reaches its op: shapes, dtypes and small values of each family.

use congruent::ops::{Activation, ArgReduceOp, BinaryOp, CompareOp, ReduceOp, StatisticOp, UnaryOp};
use congruent::{DType, Result, Tensor, f16};

use crate::{AnyTensor, count, cpu, f32s, i64s, parts};

fn read(x: Result<AnyTensor>) -> Vec<f64> {
    x.unwrap().cast(DType::F64).unwrap().to_vec().unwrap()
}

#[test]
fn unary_names_reach_their_ops() {
    type Method = fn(&AnyTensor) -> Result<AnyTensor>;
    let methods: [(UnaryOp, Method); 43] = [
        (UnaryOp::Abs, Tensor::abs),
        (UnaryOp::Acos, Tensor::acos),
        (UnaryOp::Acosh, Tensor::acosh),
        (UnaryOp::Asin, Tensor::asin),
        (UnaryOp::Asinh, Tensor::asinh),
        (UnaryOp::Atan, Tensor::atan),
        (UnaryOp::Atanh, Tensor::atanh),
        (UnaryOp::BitwiseNot, Tensor::bitwise_not),
        (UnaryOp::Ceil, Tensor::ceil),
        (UnaryOp::Cos, Tensor::cos),
        (UnaryOp::Cosh, Tensor::cosh),
        (UnaryOp::Erf, Tensor::erf),
        (UnaryOp::Erfc, Tensor::erfc),
        (UnaryOp::Exp, Tensor::exp),
        (UnaryOp::Exp2, Tensor::exp2),
        (UnaryOp::Expm1, Tensor::expm1),
        (UnaryOp::Floor, Tensor::floor),
        (UnaryOp::Gelu, Tensor::gelu),
        (UnaryOp::GeluTanh, Tensor::gelu_tanh),
        (UnaryOp::IsFinite, Tensor::is_finite),
        (UnaryOp::IsInf, Tensor::is_inf),
        (UnaryOp::IsNan, Tensor::is_nan),
        (UnaryOp::Ln, Tensor::ln),
        (UnaryOp::Log10, Tensor::log10),
        (UnaryOp::Log1p, Tensor::log1p),
        (UnaryOp::Log2, Tensor::log2),
        (UnaryOp::LogicalNot, Tensor::logical_not),
        (UnaryOp::Neg, Tensor::neg),
        (UnaryOp::Recip, Tensor::recip),
        (UnaryOp::Relu, Tensor::relu),
        (UnaryOp::Round, Tensor::round),
        (UnaryOp::Rsqrt, Tensor::rsqrt),
        (UnaryOp::Sigmoid, Tensor::sigmoid),
        (UnaryOp::Sign, Tensor::sign),
        (UnaryOp::Silu, Tensor::silu),
        (UnaryOp::Sin, Tensor::sin),
        (UnaryOp::Sinh, Tensor::sinh),
        (UnaryOp::Softplus, Tensor::softplus),
        (UnaryOp::Sqrt, Tensor::sqrt),
        (UnaryOp::Square, Tensor::square),
        (UnaryOp::Tan, Tensor::tan),
        (UnaryOp::Tanh, Tensor::tanh),
        (UnaryOp::Trunc, Tensor::trunc),
    ];
    assert_eq!(methods.map(|(op, _)| op), UnaryOp::ALL);
    for (op, method) in methods {
        let x = match op {
            UnaryOp::BitwiseNot => i64s(&[3, -4], [2]),
            UnaryOp::LogicalNot => i64s(&[3, 0], [2]).cast(DType::Bool).unwrap(),
            _ => f32s(&[0.7, 1.3], [2]),
        };
        let result = method(&x).unwrap();
        assert_eq!(result.dtype(), op.out_dtype(x.dtype()));
        assert_eq!(result.to_string(), x.unary(op).unwrap().to_string(), "{}", op.name());
    }
    assert_eq!(read(f32s(&[-1.5, 2.5, 0.0], [3]).round()), [-2.0, 2.0, 0.0]);
}

#[test]
fn binary_names_reach_their_ops() {
    let (x, y) = (i64s(&[-7, 9], [2]), i64s(&[2, 4], [2]));
    let (u, v) = (f32s(&[1.0, -1.0], [2]), f32s(&[0.0, 1.0], [2]));
    let cases = [
        (x.add(&y), vec![-5.0, 13.0]),
        (x.sub(&y), vec![-9.0, 5.0]),
        (x.mul(&y), vec![-14.0, 36.0]),
        (x.div(&y), vec![-3.0, 2.0]),
        (x.rem(&y), vec![-1.0, 1.0]),
        (x.modulo(&y), vec![1.0, 1.0]),
        (x.pow(&y), vec![49.0, 6561.0]),
        (x.maximum(&y), vec![2.0, 9.0]),
        (x.minimum(&y), vec![-7.0, 4.0]),
        (x.bitwise_and(&y), vec![0.0, 0.0]),
        (x.bitwise_or(&y), vec![-5.0, 13.0]),
        (x.bitwise_xor(&y), vec![-5.0, 13.0]),
        (x.shl(&y), vec![-28.0, 144.0]),
        (x.shr(&y), vec![-2.0, 0.0]),
        (u.atan2(&v), vec![f64::from(std::f32::consts::FRAC_PI_2), f64::from(-std::f32::consts::FRAC_PI_4)]),
    ];
    assert_eq!(cases.len(), BinaryOp::ALL.len());
    for (result, expected) in cases {
        assert_eq!(read(result), expected);
    }
}

#[test]
fn comparisons_and_choices() {
    let (x, y) = (f32s(&[1.0, 2.0, f32::NAN], [3]), f32s(&[2.0, 2.0, f32::NAN], [3]));
    let (yes, no) = (x.le(&y).unwrap(), x.lt(&y).unwrap());
    let cases = [
        (x.eq(&y), [false, true, false]),
        (x.ne(&y), [true, false, true]),
        (x.lt(&y), [true, false, false]),
        (x.le(&y), [true, true, false]),
        (x.gt(&y), [false, false, false]),
        (x.ge(2.0), [false, true, false]),
        (yes.logical_and(&no), [true, false, false]),
        (yes.logical_or(&no), [true, true, false]),
        (yes.logical_xor(true), [false, false, true]),
    ];
    assert_eq!(cases.len(), CompareOp::ALL.len());
    for (result, expected) in cases {
        assert_eq!(result.unwrap().to_vec::<bool>().unwrap(), expected);
    }
    let columns = i64s(&[0, 1], [2, 1]).cast(DType::Bool).unwrap();
    assert_eq!(parts(&columns.where_cond(&count([3]), -1).unwrap()), (vec![2, 3], vec![-1, -1, -1, 0, 1, 2]));
    assert_eq!(read(count([4]).clamp(1, 2)), [1.0, 1.0, 2.0, 2.0]);
}

#[test]
fn reductions_keep_or_drop_axes() {
    let x = count([2, 3, 4]);
    assert_eq!(parts(&x.sum((), false).unwrap()), (vec![], vec![276]));
    assert_eq!(parts(&x.sum(.., true).unwrap()), (vec![1, 1, 1], vec![276]));
    assert_eq!(parts(&x.sum([0, -1], false).unwrap()), (vec![3], vec![60, 92, 124]));
    assert_eq!(parts(&x.sum(1, true).unwrap()).0, [2, 1, 4]);
    assert_eq!(parts(&x.max(&[1_isize, 2][..], false).unwrap()), (vec![2], vec![11, 23]));
    assert_eq!(parts(&x.min([0, 1], false).unwrap()), (vec![4], vec![0, 1, 2, 3]));
    assert_eq!(parts(&x.sum([0_usize, 2], false).unwrap()), parts(&x.sum([0_isize, -1], false).unwrap()));
    assert_eq!(parts(&x.mean(None, false).unwrap()), (vec![], vec![11]));
    assert_eq!(parts(&x.i((0, 1..)).unwrap().prod(-1, false).unwrap()), (vec![2], vec![840, 7920]));
    assert_eq!(parts(&x.sum([0; 0], false).unwrap()), parts(&x));
    assert_eq!(read(x.any(0, false)).iter().sum::<f64>(), 12.0);
    assert_eq!(read(x.all([1, 2], false)), [0.0, 1.0]);
    assert_eq!(x.all((), false).unwrap().dtype(), DType::Bool);
    assert_eq!(ReduceOp::ALL.len(), 7);
}

#[test]
fn positions_of_extremes() {
    let x = f32s(&[3.0, 9.0, 1.0, 9.0, 0.0, 2.0], [2, 3]);
    assert_eq!(parts(&x.argmax(1, false).unwrap()), (vec![2], vec![1, 0]));
    assert_eq!(parts(&x.argmin(0, true).unwrap()), (vec![1, 3], vec![0, 1, 0]));
    assert_eq!(parts(&x.argmax(None, false).unwrap()), (vec![], vec![1]));
    assert_eq!(parts(&x.t().unwrap().argmax(None, true).unwrap()), (vec![1, 1], vec![1]));
    assert_eq!(parts(&x.arg_reduce(ArgReduceOp::Argmin, -1, false).unwrap()), (vec![2], vec![2, 1]));
}

#[test]
fn statistics() {
    let x = f32s(&[3.0, -4.0, 0.0, 0.0], [2, 2]);
    assert_eq!(read(x.norm(2.0, 1, false)), [5.0, 0.0]);
    assert_eq!(read(x.norm(f64::INFINITY, (), true)), [4.0]);
    assert_eq!(read(x.norm(0.0, (), false)), [2.0]);
    assert_eq!(read(x.var(0.0, 1, false)), [12.25, 0.0]);
    let std = read(x.std(0.0, 1, true));
    assert!((std[0] - 3.5).abs() < 1e-6 && std[1] == 0.0, "{std:?}");
    let big = Tensor::full(&cpu(), 60000, [4], DType::F16).unwrap();
    assert_eq!(big.logsumexp((), false).unwrap().item::<f16>().unwrap(), f16::from_f32(60000.0));
    assert_eq!(read(x.statistic(StatisticOp::Var, 1.0, 1, false)), [24.5, 0.0]);
}

#[test]
fn matrix_products() {
    let (a, b) = (count([2, 3]), count([3, 2]));
    assert_eq!(parts(&a.matmul(&b).unwrap()), (vec![2, 2], vec![10, 13, 28, 40]));
    assert_eq!(parts(&a.matmul(&a.t().unwrap()).unwrap()), (vec![2, 2], vec![5, 14, 14, 50]));
    assert_eq!(parts(&a.matmul(&i64s(&[1, 0, 2], [3])).unwrap()), (vec![2], vec![4, 13]));
    assert_eq!(parts(&i64s(&[1, 2], [2]).matmul(&a).unwrap()), (vec![3], vec![6, 9, 12]));
    let batch = Tensor::stack(&[&b, &b.flip([0]).unwrap()], 0).unwrap();
    assert_eq!(parts(&a.matmul(&batch).unwrap()), (vec![2, 2, 2], vec![10, 13, 28, 40, 2, 5, 20, 32]));
    assert_eq!(parts(&count([2, 0]).matmul(&count([0, 2])).unwrap()), (vec![2, 2], vec![0; 4]));
}

#[test]
fn linear_layers() {
    let x = f32s(&[1.0, 2.0, -1.0, 0.5], [2, 1, 2]);
    let (weight, bias) = (f32s(&[1.0, 1.0, 0.0, -1.0, 2.0, 0.0], [3, 2]), f32s(&[0.0, 1.0, -1.0], [3]));
    let linear = |bias, activation| x.linear(&weight, bias, activation).unwrap();
    let sums = linear(Some(&bias), Activation::Identity);
    assert_eq!((sums.shape(), read(Ok(sums.clone()))), (&[2, 1, 3][..], vec![3.0, -1.0, 1.0, -0.5, 0.5, -3.0]));
    assert_eq!(read(Ok(linear(Some(&bias), Activation::Relu))), [3.0, 0.0, 1.0, 0.0, 0.5, 0.0]);
    assert_eq!(read(Ok(linear(None, Activation::Identity))), [3.0, -2.0, 2.0, -0.5, -0.5, -2.0]);
    for (activation, expected) in [(Activation::Gelu, sums.gelu()), (Activation::GeluTanh, sums.gelu_tanh())] {
        assert_eq!(read(Ok(linear(Some(&bias), activation))), read(expected));
    }
    for dtype in [DType::F64, DType::F16, DType::BF16] {
        let to = |x: &Tensor<congruent::AnyBackend>| x.cast(dtype).unwrap();
        let narrow = to(&x).linear(&to(&weight), Some(&to(&bias)), Activation::Relu);
        assert_eq!(read(narrow.unwrap().cast(DType::F32)), [3.0, 0.0, 1.0, 0.0, 0.5, 0.0]);
    }
}

#[test]
fn casts() {
    let x = f32s(&[1.9, -1.9, 300.0, f32::NAN], [4]);
    let to = |dtype| read(x.cast(dtype));
    assert_eq!(to(DType::I32), [1.0, -1.0, 300.0, 0.0]);
    assert_eq!(to(DType::U8), [1.0, 0.0, 255.0, 0.0]);
    assert_eq!(to(DType::Bool), [1.0; 4]);
    assert!(std::sync::Arc::ptr_eq(x.cast(DType::F32).unwrap().storage(), x.storage()));
}
