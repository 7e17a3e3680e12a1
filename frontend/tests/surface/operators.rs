//! Operators on values, references, scalars and results.

use congruent::{Cpu, Operand, Result, Tensor, ops::BinaryOp};
use std::sync::Arc;

use crate::{AnyTensor, f32s, i64s};

fn read(x: Result<AnyTensor>) -> Vec<f32> {
    x.unwrap().to_vec().unwrap()
}

#[test]
fn tensors_and_scalars_stand_on_either_side() {
    let (a, b) = (f32s(&[1.0, 2.0], [2]), f32s(&[4.0, 8.0], [2]));
    let owned = || a.clone();
    assert_eq!(read(&a + &b), [5.0, 10.0]);
    assert_eq!(read(owned() + &b), [5.0, 10.0]);
    assert_eq!(read(&b - owned()), [3.0, 6.0]);
    assert_eq!(read(owned() * owned()), [1.0, 4.0]);
    assert_eq!(read(&b / 2.0), [2.0, 4.0]);
    assert_eq!(read(owned() + 1_f32), [2.0, 3.0]);
    assert_eq!(read(2.0 - &a), [1.0, 0.0]);
    assert_eq!(read(2 * owned()), [2.0, 4.0]);
    assert_eq!(read(&b % 3), [1.0, 2.0]);
    assert_eq!(read(-&a), [-1.0, -2.0]);
    assert_eq!(read(-owned()), [-1.0, -2.0]);
}

#[test]
fn results_chain_beside_tensors() {
    let (a, b, c) = (f32s(&[1.0, 2.0], [2]), f32s(&[4.0, 8.0], [2]), f32s(&[10.0, 20.0], [2]));
    assert_eq!(read((&a + &b) * &c), [50.0, 200.0]);
    assert_eq!(read(&c - (&a + &b)), [5.0, 10.0]);
    assert_eq!(read((&a + &b) * c.clone()), [50.0, 200.0]);
    assert_eq!(read(c.clone() / (&b / &a)), [2.5, 5.0]);
    assert_eq!(read((&a * 2.0).unwrap() - 1.0), [1.0, 3.0]);
    // The first error of a chain is the one that comes out.
    let error = ((&a + &f32s(&[0.0; 3], [3])) * &i64s(&[0], [1])).unwrap_err();
    assert_eq!((error.op(), error.kind()), ("add", congruent::ErrorKind::Shape));
}

#[test]
fn integers_and_bools_have_the_bit_operators() {
    let x = i64s(&[6, -1], [2]);
    let read = |x: Result<AnyTensor>| x.unwrap().to_vec::<i64>().unwrap();
    assert_eq!(read(&x & 3), [2, 3]);
    assert_eq!(read(&x | 1), [7, -1]);
    assert_eq!(read(1 ^ &x), [7, -2]);
    assert_eq!(read(&x << 1), [12, -2]);
    assert_eq!(read(&x >> 1), [3, -1]);
    assert_eq!(read(!&x), [-7, 0]);
    let (yes, no) = (x.gt(0).unwrap(), x.lt(0).unwrap());
    assert_eq!((&yes | &no).unwrap().to_vec::<bool>().unwrap(), [true, true]);
    assert_eq!((!yes & &(&no | true).unwrap()).unwrap().to_vec::<bool>().unwrap(), [false, true]);
}

#[test]
fn a_literal_on_the_left_leaves_no_type_open() -> Result<()> {
    fn generic<B: congruent::AllOps + ?Sized>(x: &Tensor<B>) -> Result<Tensor<B>> {
        let y = (1.0 - x)?.abs()?;
        (2 * &y)?.clamp(0.0, None)?.clamp(None, 3)?.sum([0, -1], true)?.i((0, ..))?.add(1)
    }
    let x = Tensor::from_slice(&Arc::new(Cpu::new()), &[0.5_f64, 4.0], [1, 2])?;
    assert_eq!(generic(&x)?.to_vec::<f64>()?, [5.0]);
    Ok(())
}

#[test]
fn named_ops_take_scalars_on_the_left() -> Result<()> {
    let x = f32s(&[1.0, 3.0], [2]);
    assert_eq!(read(Tensor::binary(BinaryOp::Pow, 2.0, &x)), [2.0, 8.0]);
    let mut y = x.clone();
    Tensor::binary_into(BinaryOp::Sub, 1.0, Operand::Output, &mut y)?;
    assert_eq!((y.to_vec::<f32>()?, x.to_vec::<f32>()?), (vec![0.0, -2.0], vec![1.0, 3.0]));
    Ok(())
}
