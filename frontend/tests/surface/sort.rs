//! Sorts, the first k, searches and quantiles.

use congruent::ops::SortOp;
use congruent::{DType, ErrorKind, Result, Tensor};

use crate::{AnyTensor, count, cpu, f32s};

#[track_caller]
fn kind<T>(result: Result<T>) -> ErrorKind {
    result.err().unwrap().kind()
}

#[test]
fn sorts_and_the_first_k() {
    let x = f32s(&[3.0, f32::NAN, 1.0, 5.0, 4.0, 5.0], [2, 3]);
    assert_eq!(x.argsort(-1, false).unwrap().to_vec::<i64>().unwrap(), [2, 0, 1, 1, 0, 2]);
    let (values, positions) = x.topk(2, -1, true).unwrap();
    assert_eq!(positions.to_vec::<i64>().unwrap(), [1, 0, 0, 2]);
    assert_eq!(values.to_vec::<f32>().unwrap()[1..], [3.0, 5.0, 5.0]);
    let columns = x.t().unwrap().sort(0, true).unwrap();
    assert_eq!(columns.i((1.., 1)).unwrap().to_vec::<f32>().unwrap(), [5.0, 4.0]);
    let mut first = Tensor::zeros(&cpu(), [2, 1], DType::I64).unwrap();
    x.sort_into(SortOp::Topk, 1, false, &mut first).unwrap();
    assert_eq!(first.to_vec::<i64>().unwrap(), [2, 1]);
    assert_eq!(kind(x.topk(4, 1, true)), ErrorKind::Argument);
    assert_eq!(kind(x.sort(2, true)), ErrorKind::Axis);
    assert_eq!(kind(x.sort_into(SortOp::Sort, 1, true, &mut first)), ErrorKind::DType);
    let none: AnyTensor = Tensor::zeros(&cpu(), [3, 0], DType::U8).unwrap();
    assert_eq!(none.sort(1, false).unwrap().shape(), [3, 0]);
    assert_eq!(none.topk(0, 1, true).unwrap().0.shape(), [3, 0]);
}

#[test]
fn searches() {
    let row = f32s(&[1.0, 2.0, 2.0, 3.0], [4]);
    let values = f32s(&[2.0, f32::NAN, -1.0], [3, 1]);
    assert_eq!(row.searchsorted(&values, false).unwrap().to_vec::<i64>().unwrap(), [1, 4, 0]);
    let mut out = Tensor::zeros(&cpu(), [3, 1], DType::I64).unwrap();
    row.searchsorted_into(&values, true, &mut out).unwrap();
    assert_eq!(out.to_vec::<i64>().unwrap(), [3, 4, 0]);
    assert_eq!(kind(row.searchsorted(&count([2]), false)), ErrorKind::DType);
    assert_eq!(kind(row.expand([2, 4]).unwrap().searchsorted(&values, false)), ErrorKind::Shape);
}

#[test]
fn distinct_elements() {
    let x = f32s(&[2.0, f32::NAN, -0.0, 2.0, 0.0, f32::NAN], [2, 3]);
    let (values, counts) = x.unique_counts().unwrap();
    let found = values.to_vec::<f32>().unwrap();
    assert!(found[0].to_bits() == 1 << 31 && found[1] == 2.0 && found[2].is_nan() && found.len() == 3, "{found:?}");
    assert_eq!(counts.to_vec::<i64>().unwrap(), [2, 2, 2]);
    let (_, inverse) = x.unique_inverse().unwrap();
    assert_eq!((inverse.shape(), inverse.to_vec::<i64>().unwrap()), (&[2, 3][..], vec![1, 2, 0, 1, 0, 2]));
    let none: AnyTensor = Tensor::zeros(&cpu(), [0, 3], DType::Bool).unwrap();
    assert_eq!(none.unique().unwrap().shape(), [0]);
    assert_eq!(count([5]).unique().unwrap().to_vec::<i64>().unwrap(), [0, 1, 2, 3, 4]);
}

#[test]
fn quantiles_and_medians() {
    let x = f32s(&[4.0, 1.0, 3.0, 2.0, 5.0, 5.0, f32::NAN, 5.0], [2, 4]);
    let rows = x.quantile(0.25, 1, true).unwrap();
    assert_eq!((rows.shape(), rows.to_vec::<f32>().unwrap()[0]), (&[2, 1][..], 1.75));
    assert!(rows.to_vec::<f32>().unwrap()[1].is_nan());
    let row = x.i(0).unwrap();
    assert_eq!(row.median(None, false).unwrap().item::<f32>().unwrap(), 2.5);
    assert_eq!(row.median(None, true).unwrap().shape(), [1]);
    assert_eq!(row.quantile(1.0, 0, false).unwrap().item::<f32>().unwrap(), 4.0);
    let infinite = f32s(&[f32::INFINITY, f32::INFINITY], [2]);
    assert_eq!(infinite.median(0, false).unwrap().item::<f32>().unwrap(), f32::INFINITY);
    let greatest = f32s(&[f32::MAX, -f32::MAX], [2]);
    assert_eq!(greatest.median(0, false).unwrap().item::<f32>().unwrap(), 0.0);
    for q in [-0.1, 1.1, f64::NAN] {
        assert_eq!(kind(x.quantile(q, 1, false)), ErrorKind::Argument);
    }
    assert_eq!(kind(count([3]).median(0, false)), ErrorKind::DType);
    let none: AnyTensor = Tensor::zeros(&cpu(), [3, 0], DType::F32).unwrap();
    assert_eq!(kind(none.median(1, false)), ErrorKind::Argument);
    assert_eq!(none.median(0, false).unwrap().shape(), [0]);
}
