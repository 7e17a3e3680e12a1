//! Elements come back as they went in, for every dtype; ndarray arrays of any layout; joins.

use congruent::api::match_dtype;
use congruent::{Cpu, DType, Element, Result, Scalar, Tensor, backend, bf16, f16};
use ndarray::{Array2, ArrayD, Axis, arr0, array};
use std::sync::Arc;

use crate::{AnyTensor, count, cpu, f32s, i64s, parts};

#[test]
fn every_dtype_round_trips() {
    fn round_trip<T: Element>(elements: &[T]) {
        let x = Tensor::from_slice(&cpu(), elements, [elements.len()]).unwrap();
        assert_eq!(x.dtype(), T::DTYPE);
        assert_eq!(x.to_vec::<T>().unwrap(), elements);
        assert_eq!(x.flip([0]).unwrap().flip([0]).unwrap().to_vec::<T>().unwrap(), elements);
    }
    round_trip(&[0.1_f64, f64::MIN_POSITIVE, f64::INFINITY]);
    round_trip(&[0.1_f32, -0.0, f32::MAX]);
    round_trip(&[f16::from_f32(0.1), f16::MAX]);
    round_trip(&[bf16::from_f32(0.1), bf16::MIN_POSITIVE]);
    round_trip(&[i64::MIN, -1, i64::MAX]);
    round_trip(&[i32::MIN, -1, i32::MAX]);
    round_trip(&[0_u32, u32::MAX]);
    round_trip(&[0_u8, 255]);
    round_trip(&[true, false, true]);
    round_trip::<f32>(&[]);
}

#[test]
fn constructors_fill_every_dtype() {
    let first = |x: &AnyTensor| -> Result<Scalar> { match_dtype!(x.dtype(), T => Ok(x.i(0)?.item::<T>()?.into())) };
    for dtype in DType::ALL {
        let zeros = Tensor::zeros(&cpu(), [2], dtype).unwrap();
        let ones = Tensor::ones(&cpu(), [2], dtype).unwrap();
        assert_eq!((zeros.dtype(), ones.dtype()), (dtype, dtype));
        assert_eq!(first(&zeros).unwrap().to_f64(), 0.0);
        assert_eq!(first(&ones).unwrap().to_f64(), 1.0);
        let range = Tensor::arange(&cpu(), 1..4, dtype).unwrap();
        assert_eq!((range.dtype(), range.count()), (dtype, 3));
        assert_eq!(first(&range).unwrap().to_f64(), 1.0);
    }
    let full = Tensor::full(&cpu(), 0.1, [], DType::F64).unwrap();
    assert_eq!(full.item::<f64>().unwrap(), 0.1);
    let (start, end) = (5, -5);
    assert_eq!(Tensor::arange(&cpu(), start..end, DType::I64).unwrap().count(), 0);
}

#[test]
fn arrays_of_any_layout_convert() {
    let array: Array2<f64> = array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
    let mut flipped = array.view();
    flipped.invert_axis(Axis(1));
    for view in [array.view(), array.t(), flipped, array.slice(ndarray::s![.., ..;2])] {
        let x = Tensor::from_ndarray(&cpu(), &view).unwrap();
        assert_eq!(x.to_ndarray::<f64>().unwrap(), view.into_dyn());
        let turned = x.t().unwrap().to_ndarray::<f64>().unwrap();
        assert_eq!(turned, view.t().into_dyn());
    }
    let scalar = Tensor::from_ndarray(&cpu(), &arr0(true)).unwrap();
    assert!(scalar.shape().is_empty() && scalar.item::<bool>().unwrap());
    let empty = ArrayD::<u8>::default(ndarray::IxDyn(&[2, 0]));
    assert_eq!(Tensor::from_ndarray(&cpu(), &empty).unwrap().to_ndarray::<u8>().unwrap(), empty);
}

#[test]
fn tensors_move_between_backends() {
    let x = f32s(&[1.0, f32::NAN, 3.0, 4.0], [2, 2]).t().unwrap();
    let cpu = Arc::new(Cpu::new());
    let moved = x.to_backend(&cpu).unwrap();
    let bits = |elements: Vec<f32>| elements.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    assert_eq!(bits(moved.to_vec().unwrap()), bits(x.to_vec().unwrap()));
    let back = moved.to_backend(&backend("cpu").unwrap()).unwrap();
    assert_eq!(back.add(&x).unwrap().i((1, 1)).unwrap().item::<f32>().unwrap(), 8.0);
    let bools = x.gt(2.0).unwrap().to_backend(&cpu).unwrap();
    assert_eq!(bools.to_vec::<bool>().unwrap(), [false, true, false, true]);
}

#[test]
fn joins_take_any_layout() {
    let (x, y) = (count([2, 3]), i64s(&[7, 8, 9], [1, 3]));
    assert_eq!(parts(&Tensor::cat(&[&x, &y], 0).unwrap()), (vec![3, 3], vec![0, 1, 2, 3, 4, 5, 7, 8, 9]));
    let turned = Tensor::cat(&[&x.t().unwrap(), &y.t().unwrap()], -1).unwrap();
    assert_eq!(parts(&turned), (vec![3, 3], vec![0, 3, 7, 1, 4, 8, 2, 5, 9]));
    let stacked = Tensor::stack(&[&x, &x.flip([1]).unwrap()], 1).unwrap();
    assert_eq!(parts(&stacked), (vec![2, 2, 3], vec![0, 1, 2, 2, 1, 0, 3, 4, 5, 5, 4, 3]));
    let empty = count([0, 3]);
    assert_eq!(parts(&Tensor::cat(&[&empty, &y, &empty], 0).unwrap()), (vec![1, 3], vec![7, 8, 9]));
}
