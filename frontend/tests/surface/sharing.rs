//! Whatever writes does so in place when it may, and never into another tensor.

use std::sync::Arc;

use congruent::ops::{Activation, BinaryOp, CompareOp, ReduceOp, StatisticOp, UnaryOp};
use congruent::{DType, Operand, Result, Tensor};

use crate::{AnyTensor, count, cpu, f32s, i64s};

/// Runs `write` on a tensor that nobody shares and on one that a clone and a view share: both get the same elements,
/// the first keeps its storage, the second leaves the others as they were.
fn check(start: &AnyTensor, mut write: impl FnMut(&mut AnyTensor) -> Result<()>, expected: &[f64]) {
    let read = |x: &AnyTensor| x.cast(DType::F64).unwrap().to_vec::<f64>().unwrap();
    let old = read(start);
    let mut alone = start.copy().unwrap();
    let storage = Arc::as_ptr(alone.storage());
    write(&mut alone).unwrap();
    assert_eq!(read(&alone), expected);
    assert_eq!(Arc::as_ptr(alone.storage()), storage, "written in place");

    let mut shared = alone;
    start.copy_into(&mut shared).unwrap();
    let (clone, view) = (shared.clone(), shared.flatten().unwrap());
    write(&mut shared).unwrap();
    assert_eq!(read(&shared), expected);
    assert_eq!((read(&clone), read(&view)), (old.clone(), old));
    assert!(!Arc::ptr_eq(shared.storage(), clone.storage()));
}

#[test]
fn every_family_writes_in_place_or_into_a_fresh_buffer() {
    let (x, y) = (f32s(&[1.0, 2.0, 3.0, 4.0], [2, 2]), f32s(&[10.0, 20.0], [2]));
    let bools = x.gt(2.0).unwrap();
    check(&x, |x| x.square_assign(), &[1.0, 4.0, 9.0, 16.0]);
    check(&x, |out| y.unary_into(UnaryOp::Neg, out), &[-10.0, -20.0, -10.0, -20.0]);
    check(&x, |x| x.add_assign(&y), &[11.0, 22.0, 13.0, 24.0]);
    check(&x, |out| Tensor::binary_into(BinaryOp::Sub, &y, Operand::Output, out), &[9.0, 18.0, 7.0, 16.0]);
    check(&x, |out| Tensor::binary_into(BinaryOp::Mul, Operand::Output, Operand::Output, out), &[1.0, 4.0, 9.0, 16.0]);
    check(&bools, |out| Tensor::compare_into(CompareOp::Lt, &y, 15.0, out), &[1.0, 0.0, 1.0, 0.0]);
    check(&bools, |out| Tensor::compare_into(CompareOp::Eq, Operand::Output, false, out), &[1.0, 1.0, 0.0, 0.0]);
    check(&x, |out| bools.where_cond_into(0.0, Operand::Output, out), &[1.0, 2.0, 0.0, 0.0]);
    check(&x, |x| x.clamp_assign(2.0, 3.0), &[2.0, 2.0, 3.0, 3.0]);
    check(&x, |out| y.clamp_into(None, 15, out), &[10.0, 15.0, 10.0, 15.0]);
    check(&x, |x| x.fill(7.5), &[7.5; 4]);
    check(&x, |out| i64s(&[5, 6], [2, 1]).copy_into(out), &[5.0, 5.0, 6.0, 6.0]);
    check(&x, |x| x.assign((.., 0), &y), &[10.0, 2.0, 20.0, 4.0]);
    check(&x, |x| x.assign((1, ..), 7), &[1.0, 2.0, 7.0, 7.0]);
    check(&y, |out| x.reduce_into(ReduceOp::Sum, 0, out), &[4.0, 6.0]);
    check(&y, |out| x.statistic_into(StatisticOp::Norm, 1.0, -1, out), &[3.0, 7.0]);
    check(&i64s(&[9, 9], [2]), |out| x.arg_reduce_into(congruent::ops::ArgReduceOp::Argmin, 0, out), &[0.0, 0.0]);
    check(&x, |out| Tensor::matmul_into(&x, &x, 1, 0, out), &[7.0, 10.0, 15.0, 22.0]);
    check(&x, |out| x.linear_into(&x, Some(&y), Activation::Identity, out), &[15.0, 31.0, 21.0, 45.0]);
    check(&x, |out| Tensor::matmul_into(&x, &x, -1, 10.0, out), &[3.0, 10.0, 15.0, 18.0]);
}

#[test]
fn operands_may_share_the_output() -> Result<()> {
    let start = count([2, 2]);
    let mut x = start.copy()?;
    let same = x.clone();
    x.add_assign(&same)?;
    assert_eq!(x.to_vec::<i64>()?, [0, 2, 4, 6]);

    let mut x = start.copy()?;
    let turned = x.t()?;
    x.sub_assign(&turned)?;
    assert_eq!((x.to_vec::<i64>()?, turned.to_vec::<i64>()?), (vec![0, -1, 1, 0], vec![0, 2, 1, 3]));

    let mut x = start.copy()?;
    let (first, second) = (x.i(0)?, x.i(1)?);
    x.assign(1, &first)?;
    assert_eq!((x.to_vec::<i64>()?, second.to_vec::<i64>()?), (vec![0, 1, 0, 1], vec![2, 3]));
    Ok(())
}

#[test]
fn views_are_written_where_they_lie() -> Result<()> {
    // The only owner of a strided view writes the view's elements and no others.
    let mut column = count([3, 2]).i((.., 1))?;
    let storage = Arc::as_ptr(column.storage());
    column.mul_assign(10)?;
    assert_eq!((column.to_vec::<i64>()?, Arc::as_ptr(column.storage())), (vec![10, 30, 50], storage));
    // A broadcast view has one element in several places, so it gets a buffer of its own.
    let mut row = i64s(&[5], [1]).expand([3])?;
    row.add_assign(&i64s(&[1, 2, 3], [3]))?;
    assert_eq!(row.to_vec::<i64>()?, [6, 7, 8]);
    let mut turned = count([2, 3]).t()?;
    turned.assign(0, &i64s(&[-1, -2], [2]))?;
    assert_eq!(turned.to_vec::<i64>()?, [-1, -2, 1, 4, 2, 5]);
    Ok(())
}

#[test]
fn only_an_owner_gets_the_storage_to_write() {
    let mut x = count([2, 3]);
    assert!(x.storage_mut().is_some());
    let row = x.i(0).unwrap();
    assert!(x.storage_mut().is_none());
    drop(row);
    assert!(x.storage_mut().is_some() && x.copy().unwrap().storage_mut().is_some());
}

#[test]
fn an_error_loses_no_operand() -> Result<()> {
    let wrong = f32s(&[0.0; 3], [3]);
    for share in [false, true] {
        let mut x = Tensor::full(&cpu(), 2.0, [2, 2], DType::F32)?;
        let other = share.then(|| x.clone());
        assert!(x.add_assign(&wrong).is_err());
        assert!(x.is_nan().and_then(|_| x.unary_assign(UnaryOp::IsNan)).is_err());
        assert!(x.fill(true).is_err());
        assert!(x.assign(5, &wrong).is_err());
        assert!(Tensor::matmul_into(&wrong, &wrong, 1, 1, &mut x).is_err());
        assert!(wrong.reduce_into(ReduceOp::Sum, 0, &mut x).is_err());
        assert_eq!((x.to_vec::<f32>()?, wrong.to_vec::<f32>()?), (vec![2.0; 4], vec![0.0; 3]));
        assert!(other.is_none_or(|other| Arc::ptr_eq(other.storage(), x.storage())));
    }
    Ok(())
}
