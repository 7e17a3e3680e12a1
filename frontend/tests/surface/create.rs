//! Tensors from nothing: ranges, grids, the identity.

use congruent::{DType, Tensor};

use crate::{count, cpu, f32s, parts};

fn floats(x: &crate::AnyTensor) -> Vec<f64> {
    x.cast(DType::F64).unwrap().to_vec().unwrap()
}

#[test]
fn ranges_of_integers_are_exact() {
    let range = |start: i64, stop: i64, step: i64| {
        Tensor::arange_step(&cpu(), start, stop, step, DType::I64).unwrap().to_vec::<i64>().unwrap()
    };
    assert_eq!(range(0, 10, 3), [0, 3, 6, 9]);
    assert_eq!(range(0, 9, 3), [0, 3, 6]);
    assert_eq!(range(9, 0, -4), [9, 5, 1]);
    assert_eq!(range(0, 10, -1), [0; 0]);
    assert_eq!(range(5, 5, 1), [0; 0]);
    assert_eq!(range(i64::MIN, i64::MAX, i64::MAX), [i64::MIN, -1, i64::MAX - 1]);
    assert_eq!(range(i64::MAX, i64::MIN, i64::MIN), [i64::MAX, -1]);
    // Longer than the pieces in which the host computes it.
    let long = Tensor::arange_step(&cpu(), 1, 300_000, 2, DType::F64).unwrap();
    assert_eq!(long.count(), 150_000);
    assert_eq!(long.i(-1).unwrap().item::<f64>().unwrap(), 299_999.0);
    assert_eq!(long.sum((), false).unwrap().item::<f64>().unwrap(), 150_000.0 * 150_000.0);
}

#[test]
fn ranges_of_floats_count_as_numpy() {
    let range =
        |start: f64, stop: f64, step: f64| floats(&Tensor::arange_step(&cpu(), start, stop, step, DType::F64).unwrap());
    assert_eq!(range(0.0, 1.0, 0.25), [0.0, 0.25, 0.5, 0.75]);
    assert_eq!(range(1.0, 0.0, -0.5), [1.0, 0.5]);
    assert_eq!(range(0.0, -1.0, 0.5), [0.0; 0]);
    // The quotient rounds up, as in NumPy.
    assert_eq!(range(1.0, 1.3, 0.1).len(), 4);
    let mixed = Tensor::arange_step(&cpu(), 1, 2.5, 0.5, DType::F16).unwrap();
    assert_eq!((mixed.dtype(), floats(&mixed)), (DType::F16, vec![1.0, 1.5, 2.0]));
}

#[test]
fn linspace_includes_both_ends() {
    let space = |start, stop, count| floats(&Tensor::linspace(&cpu(), start, stop, count, DType::F64).unwrap());
    assert_eq!(space(0.0, 10.0, 11), (0..11).map(f64::from).collect::<Vec<_>>());
    assert_eq!(space(1.0, -1.0, 5), [1.0, 0.5, 0.0, -0.5, -1.0]);
    assert_eq!(space(0.1, 0.7, 4)[3], 0.7);
    assert_eq!((space(3.0, 4.0, 1), space(3.0, 4.0, 0)), (vec![3.0], vec![]));
    assert_eq!(space(-f64::MAX, f64::MAX, 3), [-f64::MAX, 0.0, f64::MAX]);
    assert!(space(0.0, f64::NAN, 3)[1].is_nan());
}

#[test]
fn eye_of_any_shape_and_diagonal() {
    for (rows, columns) in [(3, 3), (2, 4), (4, 2), (0, 3), (3, 0), (1, 1)] {
        for k in [-9, -2, -1, 0, 1, 2, 9, isize::MIN, isize::MAX] {
            let x = Tensor::eye(&cpu(), rows, columns, k, DType::I64).unwrap();
            let expected: Vec<i64> = (0..rows * columns)
                .map(|at| i64::from(((at % columns) as isize).checked_sub((at / columns) as isize) == Some(k)))
                .collect();
            assert_eq!(parts(&x), (vec![rows, columns], expected), "k = {k}");
        }
    }
    assert_eq!(
        Tensor::eye(&cpu(), 2, 2, 0, DType::Bool).unwrap().to_vec::<bool>().unwrap(),
        [true, false, false, true]
    );
}

#[test]
fn grids_are_views_that_vary_along_their_axis() {
    let (x, y, z) = (count([2]), count([3]), count([0]));
    let grids = Tensor::meshgrid(&[&x, &y]).unwrap();
    assert_eq!(parts(&grids[0]), (vec![2, 3], vec![0, 0, 0, 1, 1, 1]));
    assert_eq!(parts(&grids[1]), (vec![2, 3], vec![0, 1, 2, 0, 1, 2]));
    assert!(std::sync::Arc::ptr_eq(grids[1].storage(), y.storage()));
    let empty = Tensor::meshgrid(&[&x, &z, &f32s(&[1.0], [1])]).unwrap();
    assert!(empty.iter().all(|grid| grid.shape() == [2, 0, 1]));
}
