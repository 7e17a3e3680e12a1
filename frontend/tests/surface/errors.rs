//! Errors name the op, what was given, the rule and the cure.

use std::sync::Arc;

use congruent::api::Layout;
use congruent::ops::{BinaryOp, Pad, UnaryOp};
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
    check(x.i((0, 0, 0)), Axis, "i", &["3 indices", "2 axes"]);
    check(x.i((Index::Ellipsis, Index::Ellipsis)), Argument, "i", &["more than one ellipsis"]);
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
    check(x.moveaxis(0, 2), Axis, "moveaxis", &["axis 2"]);
    check(x.split([1, 1], 1), Argument, "split", &["[1, 1]", "size 3", "axis 1"]);
    check(x.split([usize::MAX, 4], 1), Argument, "split", &[]);
    check(x.split([2], -3), Axis, "split", &["axis -3"]);
    check(x.chunk(0, 0), Argument, "chunk", &["at least one"]);
    check(x.chunk(2, 2), Axis, "chunk", &["axis 2"]);
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
fn assignments() {
    let mut x = count([2, 3]);
    let row = count([2]);
    check(x.assign((0, 0, 0), 1), ErrorKind::Axis, "assign", &["3 indices"]);
    check(x.assign(2, 1), ErrorKind::IndexOutOfRange, "select", &["index 2"]);
    check(x.assign(0, &row), ErrorKind::Shape, "copy", &["[2]", "[3]"]);
    check(x.assign(0, 0.5), ErrorKind::DType, "fill", &["0.5", "i64"]);
    check(x.assign(0, Operand::Output), ErrorKind::Argument, "assign", &["clone"]);
    assert_eq!(x.to_vec::<i64>().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn creation() {
    use ErrorKind::{Argument, DType as Type, Shape};
    let arange = |start: f64, stop: f64, step: f64| Tensor::arange_step(&cpu(), start, stop, step, DType::F32);
    check(Tensor::arange_step(&cpu(), 0, 5, 0, DType::F32), Argument, "arange", &["step is 0"]);
    check(arange(0.0, 1.0, 0.0), Argument, "arange", &["no finite number"]);
    check(arange(0.0, f64::INFINITY, 1.0), Argument, "arange", &["inf"]);
    check(arange(f64::NAN, 1.0, 1.0), Argument, "arange", &["NaN"]);
    check(arange(f64::NEG_INFINITY, 1.0, -1.0), Argument, "arange", &["-inf"]);
    check(arange(0.0, 1.0, f64::INFINITY), Argument, "arange", &["inf"]);
    check(arange(0.0, 1e300, 1.0), Shape, "arange", &["overflows"]);
    check(Tensor::arange_step(&cpu(), false, 5, 1, DType::F32), Type, "arange", &["false"]);
    check(Tensor::linspace(&cpu(), 0.0, 1.0, 5, DType::I32), Type, "linspace", &["i32", "round"]);
    check(Tensor::linspace(&cpu(), 0.0, 1.0, usize::MAX, DType::F32), Shape, "linspace", &["overflows"]);
    check(Tensor::eye(&cpu(), 1 << 40, 1 << 40, 0, DType::F32), Shape, "eye", &["overflows"]);
    check(Tensor::<Cpu>::meshgrid(&[]), Argument, "meshgrid", &["at least one"]);
    check(Tensor::meshgrid(&[&count([2, 2])]), Shape, "meshgrid", &["[2, 2]", "flatten"]);
    check(Tensor::meshgrid(&[&count([2]); 9]), Shape, "meshgrid", &["rank 9"]);
}

#[test]
fn rearrangements() {
    use ErrorKind::{Argument, Axis, DType as Type, Shape};
    let x = count([2, 3]);
    let none = [0, 0];
    check(x.pad([none], Pad::Reflect), Argument, "pad", &["1 pairs", "2 axes"]);
    check(x.pad([none, [0, 1]], Pad::constant(0.5)), Type, "pad", &["0.5", "i64"]);
    check(x.pad([none, [0, 3]], Pad::Reflect), Argument, "pad", &["`Reflect`", "at most 2", "axis 1 of size 3, not 3"]);
    check(x.pad([[3, 0], none], Pad::Circular), Argument, "pad", &["`Circular`", "at most 2"]);
    check(count([0]).pad([[1, 0]], Pad::Replicate), Argument, "pad", &["`Replicate`", "size 0"]);
    check(x.pad([none, [-2, -2]], Pad::constant(0)), Argument, "pad", &["[-2, -2]", "axis 1", "size 3"]);
    check(x.pad([none, [isize::MIN, isize::MIN]], Pad::constant(0)), Argument, "pad", &[]);
    check(x.pad([none, [isize::MAX, isize::MAX]], Pad::constant(0)), Shape, "pad", &["overflows"]);
    check(x.roll([1], [0, 1]), Argument, "roll", &["1 shifts for 2 axes"]);
    check(x.roll([1, 1], ()), Argument, "roll", &["2 shifts for 1 axes"]);
    check(x.roll([1, 1], [0, 0]), Axis, "roll", &["named twice"]);
    check(x.roll([1], 2), Axis, "roll", &["axis 2"]);
    check(x.repeat(2, 2), Axis, "repeat", &["axis 2"]);
    check(x.repeat(usize::MAX, 0), Shape, "repeat", &["overflows"]);
    check(x.tile([1 << 62, 2]), Shape, "tile", &["overflows"]);
    check(x.tile([1; 9]), Shape, "unsqueeze", &["rank 9"]);
}

#[test]
fn products() {
    use ErrorKind::{Argument, Axis, DType as Type, Shape};
    let (x, y) = (f32s(&[0.0; 6], [2, 3]), count([2, 3]));
    let einsum = |equation: &str| Tensor::einsum(equation, &[&x, &x]);
    check(einsum("ij->ij"), Argument, "einsum", &["`ij->ij`", "1 operands", "2 given"]);
    check(einsum("ij,i->j"), Argument, "einsum", &["`i`", "2 axes"]);
    check(einsum("ij,...ijk->j"), Argument, "einsum", &["`...ijk`", "2 axes"]);
    check(einsum("ij,i1->j"), Argument, "einsum", &["`1` is no letter"]);
    check(einsum("ij,i.->j"), Argument, "einsum", &["`.`"]);
    check(einsum("ij,ij->k"), Argument, "einsum", &["`k` of the result"]);
    check(einsum("ij,ij->ii"), Argument, "einsum", &["`i` twice"]);
    check(einsum("ij,ij->i->j"), Argument, "einsum", &["`-`"]);
    check(einsum("ij,ji->i"), Shape, "einsum", &["sizes"]);
    check(einsum("ii,ij->j"), Shape, "einsum", &["`i`", "2 and 3"]);
    check(
        Tensor::einsum("...i,...i->i", &[&f32s(&[0.0; 6], [2, 3]), &f32s(&[0.0; 9], [3, 3])]),
        Shape,
        "einsum",
        &["ellipsis"],
    );
    check(Tensor::einsum("ij,ij->", &[&x, &y]), Type, "einsum", &["f32 and i64"]);
    check(Tensor::<Cpu>::einsum("", &[]), Argument, "einsum", &["0 given"]);
    let five = count([1; 5]);
    check(Tensor::einsum("abcde,fghij->abcdefghij", &[&five, &five]), Shape, "einsum", &["rank 10"]);
    check(x.outer(&y), Type, "mul", &["f32 and i64"]);
    check(count([2; 5]).kron(&count([2; 5])), Shape, "reshape", &["rank 10"]);
    check(y.dot(&y), Shape, "dot", &["[2, 3] and [2, 3]", "vdot"]);
    check(count([2]).dot(&count([3])), Shape, "dot", &["[2] and [3]"]);
    check(y.tensordot(&y, [0], []), Argument, "tensordot", &["[0] and []"]);
    check(y.tensordot(&y, [0], [1]), Shape, "tensordot", &["size 2", "3"]);
    check(y.tensordot(&y, [0, 0], [0, 1]), Axis, "tensordot", &["named twice"]);
    check(y.tensordot(&y, [2], [0]), Axis, "tensordot", &["axis 2"]);
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
    check(y.assign(0, &x), Argument, "assign", &words);
    check(Tensor::meshgrid(&[&x, &y]), Argument, "meshgrid", &words);
    check(Tensor::einsum("i,i->i", &[&x, &y]), Argument, "einsum", &words);
    check(x.tensordot(&y, [0], [0]), Argument, "tensordot", &words);
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
