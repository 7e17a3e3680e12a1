//! Errors name the op, what was given, the rule and the cure.

use std::sync::Arc;

use congruent::api::Layout;
use congruent::ops::{BinaryOp, UnaryOp};
use congruent::{Cpu, DType, Error, ErrorKind, Index, Operand, Result, Slice, Tensor};

use crate::{count, cpu, f32s};

#[track_caller]
fn check<T>(result: Result<T>, kind: ErrorKind, op: &str, words: &[&str]) {
    let error: Error = result.err().unwrap();
    assert_eq!((error.kind(), error.op()), (kind, op), "{error}");
    for word in words {
        assert!(error.message().contains(word), "`{word}` is missing in: {error}");
    }
}

#[test]
fn constructors_and_readers() {
    use ErrorKind::{Argument, DType as Type, Shape};
    check(Tensor::from_slice(&cpu(), &[1, 2], [3]), Argument, "from_slice", &["2 elements", "[3] needs 3"]);
    check(Tensor::zeros(&cpu(), [1; 9], DType::F32), Shape, "full", &["rank 9", "8"]);
    check(Tensor::zeros(&cpu(), [usize::MAX, 2], DType::U8), Shape, "full", &["overflows"]);
    check(Tensor::full(&cpu(), 1.5, [2], DType::I32), Type, "fill", &["1.5", "i32"]);
    check(Tensor::full(&cpu(), 300, [2], DType::U8), Argument, "fill", &["300", "0..=255"]);
    check(Tensor::arange(&cpu(), i64::MIN..i64::MAX, DType::I64), Shape, "arange", &["overflows"]);
    check(Tensor::arange(&cpu(), 0..1 << 60, DType::F32), ErrorKind::OutOfMemory, "alloc", &["1152921504606846976"]);
    let x = count([2, 3]);
    check(x.to_vec::<f32>(), Type, "to_vec", &["i64", "f32", "cast"]);
    check(x.item::<i64>(), Shape, "item", &["[2, 3]", "6 elements", "to_vec"]);
    let long = Layout::new("test", &[7], &[1], 0).unwrap();
    check(
        Tensor::from_parts(&cpu(), x.storage().clone(), long),
        Shape,
        "from_parts",
        &["7 elements", "this one has 6"],
    );
    assert!(Tensor::from_parts(&cpu(), x.storage().clone(), *x.layout()).is_ok());
}

#[test]
fn views() {
    use ErrorKind::{Argument, Axis, IndexOutOfRange, Shape};
    let x = count([2, 3]);
    check(x.i((0, 0, 0)), Axis, "select", &["axis 0 does not exist"]);
    check(x.i((.., 3)), IndexOutOfRange, "select", &["index 3", "size 3"]);
    check(x.i(Slice { step: 0, ..Slice::FULL }), Argument, "slice", &["step of axis 0 is 0"]);
    check(x.i(&[Index::NewAxis; 7][..]), Shape, "unsqueeze", &["rank 9"]);
    check(x.narrow(1, 2, 2), IndexOutOfRange, "narrow", &["2 positions from 2", "size 3"]);
    check(x.narrow(1, usize::MAX, 2), IndexOutOfRange, "narrow", &[]);
    check(x.reshape([4]), Shape, "reshape", &["[2, 3] has 6 elements", "[4] has 4"]);
    check(x.permute([0]), Axis, "permute", &["each of the 2 axes"]);
    check(x.transpose(0, 2), Axis, "transpose", &["axis 2"]);
    check(x.i(0).unwrap().t(), Axis, "transpose", &["axis -2"]);
    check(x.expand([3, 3]), Shape, "expand", &["[2, 3]", "[3, 3]"]);
    check(x.squeeze(0), Shape, "squeeze", &["size 2"]);
    check(x.flip([0, 0]), Axis, "flip", &["named twice"]);
}

#[test]
fn ops() {
    use ErrorKind::{Argument, Axis, DType as Type, Shape};
    let (x, y) = (f32s(&[0.0; 6], [2, 3]), f32s(&[0.0; 4], [4]));
    let integers = count([2, 3]);
    check(&x + &y, Shape, "add", &["[2, 3] and [4]", "3 meets 4"]);
    check(&x * &integers, Type, "mul", &["f32 and i64", "cast"]);
    check(&integers / 0.5, Type, "div", &["0.5", "i64"]);
    check(&x & &x, Type, "bitwise_and", &["f32", "only for"]);
    check(integers.sqrt(), Type, "sqrt", &["i64", "cast first"]);
    check(x.lt(&integers), Type, "lt", &["f32 and i64"]);
    check(x.where_cond(&x, 0.0), Type, "where", &["bool and f32"]);
    check(x.is_nan().unwrap().where_cond(1.0, 0.0), Argument, "where", &["scalars", "Tensor::full"]);
    check(x.clamp(None, true), Type, "clamp", &["true", "f32"]);
    check(x.sum(2, false), Axis, "sum", &["axis 2", "-2..=1"]);
    check(x.sum([0, -2], false), Axis, "sum", &["named twice"]);
    check(x.sum([0; 9], false), Axis, "sum", &["named twice"]);
    check(f32s(&[], [0]).max((), false), Argument, "max", &["no elements"]);
    check(f32s(&[], [0]).argmin(None, false), Argument, "argmin", &["no elements"]);
    check(integers.var(1.0, (), false), Type, "var", &["i64"]);
    check(x.norm(f64::NAN, (), false), Argument, "norm", &["NaN"]);
    check(x.matmul(&x), Shape, "matmul", &["[2, 3] and [2, 3]", "(3)", "(2)"]);
    check(x.matmul(&f32s(&[1.0], [])), Shape, "matmul", &["`mul`"]);
    check(Tensor::cat(&[&x, &y], 0), Shape, "cat", &["[2, 3] and [4]"]);
    check(Tensor::cat(&[&x, &integers], 0), Type, "cat", &["f32 and i64"]);
    check(Tensor::<Cpu>::cat(&[], 0), Argument, "cat", &["no tensors"]);
    let mut out = y.clone();
    check(x.unary_into(UnaryOp::Exp, &mut out), Shape, "exp", &["[2, 3]", "[4]"]);
    check(x.copy_into(&mut out), Shape, "copy", &["[2, 3]", "[4]"]);
}

#[test]
fn operands_without_a_tensor_or_an_output() {
    let none: [Operand<'_, Cpu>; 2] = [1.0.into(), 2.into()];
    check(Tensor::binary(BinaryOp::Add, none[0], none[1]), ErrorKind::Argument, "add", &["scalars", "Tensor::full"]);
    let x = f32s(&[1.0], [1]);
    let result = Tensor::binary(BinaryOp::Add, &x, Operand::Output);
    check(result, ErrorKind::Argument, "add", &["`_into`"]);
}

#[test]
fn tensors_of_two_backends_do_not_meet() {
    use ErrorKind::Argument;
    let (one, other) = (Arc::new(Cpu::new()), Arc::new(Cpu::new()));
    let x = Tensor::from_slice(&one, &[1.0_f32, 2.0], [2]).unwrap();
    let mut y = Tensor::from_slice(&other, &[1.0_f32, 2.0], [2]).unwrap();
    let words = ["`cpu` and `cpu`", "created apart", "to_backend"];
    check(&x + &y, Argument, "add", &words);
    check(x.eq(&y), Argument, "eq", &words);
    check(x.lt(1.0).unwrap().where_cond(&x, &y), Argument, "where", &words);
    check(x.matmul(&y), Argument, "matmul", &words);
    check(Tensor::cat(&[&x, &y], 0), Argument, "cat", &words);
    check(x.unary_into(UnaryOp::Exp, &mut y), Argument, "exp", &words);
    check(y.add_assign(&x), Argument, "add", &words);
    check(y.slice_assign(0, &x), Argument, "slice_assign", &words);
    check(x.copy_into(&mut y), Argument, "copy", &words);
    assert!((&x + y.to_backend(&one).unwrap()).is_ok());
}

#[test]
fn an_error_of_the_data_comes_with_the_next_synchronisation() {
    // A backend of its own: the error waits for the next synchronising call, whosever it is.
    let device = Arc::new(Cpu::new());
    let x = Tensor::from_slice(&device, &[6_i64, 6], [2]).unwrap();
    let quotient = (&x / &Tensor::from_slice(&device, &[2_i64, 0], [2]).unwrap()).unwrap();
    check(x.synchronize(), ErrorKind::DivisionByZero, "synchronize", &["zero"]);
    assert_eq!(quotient.to_vec::<i64>().unwrap(), [3, 0]);
}
