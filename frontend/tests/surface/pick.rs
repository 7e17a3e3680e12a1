//! Indexing with tensors and masks; what is expected was written by NumPy.

use std::sync::Arc;

use congruent::{Cpu, DType, ErrorKind, Index, Result, Tensor, step};

use crate::{AnyTensor, count, f32s, i64s, parts};

/// Which integers are multiples.
fn mask(x: &AnyTensor, of: i64) -> AnyTensor {
    x.rem(of).unwrap().eq(0).unwrap()
}

#[test]
fn elements_are_picked_as_numpy_picks_them() {
    let x = count([3, 4, 5]);
    let (a, b, s) = (i64s(&[2, 0], [2]), i64s(&[1, 3, 0, 0], [2, 2]), i64s(&[1], []));
    let (m3, m4) = (i64s(&[0, 1, 0], [3]).eq(0).unwrap(), i64s(&[0, 1, 1, 0], [4]).gt(0).unwrap());
    let (m34, none) = (mask(&count([3, 4]), 5), i64s(&[], [0]));
    let mx = x.rem(7).unwrap().eq(3).unwrap();
    let cases: Vec<(Result<AnyTensor>, Vec<usize>, Vec<i64>)> = vec![
        (
            x.i(&a),
            vec![2, 4, 5],
            vec![
                40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 0, 1, 2, 3, 4, 5, 6, 7,
                8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
            ],
        ),
        (x.i((&a, 1..3, step(.., -2))), vec![2, 2, 3], vec![49, 47, 45, 54, 52, 50, 9, 7, 5, 14, 12, 10]),
        (
            x.i((.., &a)),
            vec![3, 2, 5],
            vec![
                10, 11, 12, 13, 14, 0, 1, 2, 3, 4, 30, 31, 32, 33, 34, 20, 21, 22, 23, 24, 50, 51, 52, 53, 54, 40, 41,
                42, 43, 44,
            ],
        ),
        (
            x.i((Index::Ellipsis, &a)),
            vec![3, 4, 2],
            vec![2, 0, 7, 5, 12, 10, 17, 15, 22, 20, 27, 25, 32, 30, 37, 35, 42, 40, 47, 45, 52, 50, 57, 55],
        ),
        (
            x.i((1, &b)),
            vec![2, 2, 5],
            vec![25, 26, 27, 28, 29, 35, 36, 37, 38, 39, 20, 21, 22, 23, 24, 20, 21, 22, 23, 24],
        ),
        (x.i((.., &b, 0)), vec![3, 2, 2], vec![5, 15, 0, 0, 25, 35, 20, 20, 45, 55, 40, 40]),
        (x.i((0, .., &a)), vec![2, 4], vec![2, 7, 12, 17, 0, 5, 10, 15]),
        (x.i((&a, .., &a)), vec![2, 4], vec![42, 47, 52, 57, 0, 5, 10, 15]),
        (x.i((&a, &a)), vec![2, 5], vec![50, 51, 52, 53, 54, 0, 1, 2, 3, 4]),
        (x.i((&a, &b)), vec![2, 2, 5], vec![45, 46, 47, 48, 49, 15, 16, 17, 18, 19, 40, 41, 42, 43, 44, 0, 1, 2, 3, 4]),
        (x.i((.., &a, &b)), vec![3, 2, 2], vec![11, 3, 10, 0, 31, 23, 30, 20, 51, 43, 50, 40]),
        (x.i((&a, &b, &s)), vec![2, 2], vec![46, 16, 41, 1]),
        (x.i((&a, Index::NewAxis, ..1)), vec![2, 1, 1, 5], vec![40, 41, 42, 43, 44, 0, 1, 2, 3, 4]),
        (x.i((.., &a, Index::NewAxis, &a)), vec![2, 3, 1], vec![12, 32, 52, 0, 20, 40]),
        (x.i(&s), vec![4, 5], vec![20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39]),
        (
            x.i(&m3),
            vec![2, 4, 5],
            vec![
                0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 40, 41, 42, 43, 44, 45, 46, 47,
                48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59,
            ],
        ),
        (x.i(&m34), vec![3, 5], vec![0, 1, 2, 3, 4, 25, 26, 27, 28, 29, 50, 51, 52, 53, 54]),
        (x.i(&mx), vec![9], vec![3, 10, 17, 24, 31, 38, 45, 52, 59]),
        (x.i((&m34, ..2)), vec![3, 2], vec![0, 1, 25, 26, 50, 51]),
        (x.i((.., &m4, 1..3)), vec![3, 2, 2], vec![6, 7, 11, 12, 26, 27, 31, 32, 46, 47, 51, 52]),
        (x.i((&a, &m4)), vec![2, 5], vec![45, 46, 47, 48, 49, 10, 11, 12, 13, 14]),
        (x.i((&m3, .., &a)), vec![2, 4], vec![2, 7, 12, 17, 40, 45, 50, 55]),
        (x.i(&none), vec![0, 4, 5], vec![]),
        (x.i((.., &none, 0)), vec![3, 0], vec![]),
    ];
    for (index, (picked, shape, elements)) in cases.into_iter().enumerate() {
        assert_eq!(parts(&picked.unwrap()), (shape, elements), "case {index}");
    }
}

#[test]
fn layouts_and_dtypes_of_the_index_do_not_matter() {
    let x = count([4, 6]).t().unwrap().i((step(.., -1), 1..)).unwrap();
    let dense = x.contiguous().unwrap();
    let index = i64s(&[9, 2, 9, 0, 9, 1], [3, 2]).i((.., 1)).unwrap();
    let flags = mask(&x, 3);
    for dtype in [DType::I64, DType::I32, DType::U32, DType::U8] {
        let index = index.cast(dtype).unwrap();
        for (left, right) in [
            (x.i((.., &index)), dense.i((.., &index))),
            (x.i((&index, &index)), dense.i((&index, &index))),
            (x.i(&flags), dense.i(&flags.contiguous().unwrap())),
        ] {
            assert_eq!(parts(&left.unwrap()), parts(&right.unwrap()));
        }
    }
    assert_eq!(parts(&x.i((&index, &index)).unwrap()), (vec![3], vec![21, 11, 16]));
}

#[test]
fn values_are_assigned_as_numpy_assigns_them() {
    type Write = fn(&mut AnyTensor) -> Result<()>;
    let cases: Vec<(Write, Vec<i64>)> = vec![
        (
            |y| y.assign((.., &i64s(&[2, 0], [2])), -1),
            vec![-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, -1, -1, -1, -1, 16, 17, 18, 19, -1, -1, -1, -1],
        ),
        (
            |y| y.assign((.., &i64s(&[2, 0], [2])), &i64s(&[-1, -2], [2, 1])),
            vec![-2, -2, -2, -2, 4, 5, 6, 7, -1, -1, -1, -1, -2, -2, -2, -2, 16, 17, 18, 19, -1, -1, -1, -1],
        ),
        (
            |y| y.assign((1, .., &i64s(&[2, 0], [2])), &i64s(&[-1, -2, -3], [3])),
            vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, -1, 13, -1, 15, -2, 17, -2, 19, -3, 21, -3, 23],
        ),
        (
            |y| y.assign((&i64s(&[1, 1], [2]), .., &i64s(&[3, 0], [2])), &i64s(&[-1, -2], [2, 1])),
            vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, -2, 13, 14, -1, -2, 17, 18, -1, -2, 21, 22, -1],
        ),
        (
            |y| y.assign((&i64s(&[1, 0], [2]), &i64s(&[2, 0], [2]), 1..3), -7),
            vec![0, -7, -7, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, -7, -7, 23],
        ),
        (
            |y| y.assign((0, &i64s(&[1, 1, 1], [3]), 0), &i64s(&[-1, -2, -3], [3])),
            vec![0, 1, 2, 3, -3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
        ),
        (
            |y| y.assign(&mask(&count([2, 3, 4]), 5), -1),
            vec![-1, 1, 2, 3, 4, -1, 6, 7, 8, 9, -1, 11, 12, 13, 14, -1, 16, 17, 18, 19, -1, 21, 22, 23],
        ),
        (
            |y| y.assign(&mask(&count([2, 3, 4]), 5), &count([5]).neg()?),
            vec![0, 1, 2, 3, 4, -1, 6, 7, 8, 9, -2, 11, 12, 13, 14, -3, 16, 17, 18, 19, -4, 21, 22, 23],
        ),
        (
            |y| y.assign(&mask(&count([2, 3]), 4), -1),
            vec![-1, -1, -1, -1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, -1, -1, -1, -1, 20, 21, 22, 23],
        ),
        (
            |y| y.assign((&mask(&count([2, 3]), 4), ..2), &i64s(&[-1, -2], [2, 1])),
            vec![-1, -1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, -2, -2, 18, 19, 20, 21, 22, 23],
        ),
        (
            |y| y.assign((.., &mask(&i64s(&[1, 2, 2], [3]), 2), step(.., -3)), &i64s(&[-1, -2], [2])),
            vec![0, 1, 2, 3, -2, 5, 6, -1, -2, 9, 10, -1, 12, 13, 14, 15, -2, 17, 18, -1, -2, 21, 22, -1],
        ),
    ];
    for (index, (write, expected)) in cases.into_iter().enumerate() {
        let start = count([2, 3, 4]);
        let mut alone = start.copy().unwrap();
        let storage = Arc::as_ptr(alone.storage());
        write(&mut alone).unwrap();
        assert_eq!(alone.to_vec::<i64>().unwrap(), expected, "case {index}");
        assert_eq!(Arc::as_ptr(alone.storage()), storage, "case {index} is written in place");
        // Another owner keeps its elements.
        let mut shared = start.clone();
        write(&mut shared).unwrap();
        assert_eq!(shared.to_vec::<i64>().unwrap(), expected, "case {index}");
        assert_eq!(start.to_vec::<i64>().unwrap(), (0..24).collect::<Vec<_>>(), "case {index}");
        // Of a view in another order, alone and shared.
        for hold in [false, true] {
            let mut turned = start.permute([2, 0, 1]).unwrap().copy().unwrap().permute([1, 2, 0]).unwrap();
            let other = hold.then(|| turned.clone());
            write(&mut turned).unwrap();
            assert_eq!(turned.to_vec::<i64>().unwrap(), expected, "case {index}");
            drop(other);
        }
    }
}

#[test]
fn a_value_is_cast_and_the_last_of_several_stays() -> Result<()> {
    let mut x = f32s(&[0.0; 3], [3]);
    x.assign(&i64s(&[1, 2, 1], [3]), &i64s(&[5, 6, 7], [3]))?;
    assert_eq!(x.to_vec::<f32>()?, [0.0, 7.0, 6.0]);
    let nan = x.div(&x)?.is_nan()?;
    x.assign(&nan, 9.0)?;
    assert_eq!(x.to_vec::<f32>()?, [9.0, 7.0, 6.0]);
    Ok(())
}

#[test]
fn nothing_is_picked_of_and_from_nothing() -> Result<()> {
    let none = i64s(&[], [0]);
    let mut empty = count([0, 3]);
    assert_eq!(empty.i(&none)?.shape(), [0, 3]);
    assert_eq!(empty.i(&mask(&empty, 2))?.shape(), [0]);
    assert_eq!(empty.i((.., &i64s(&[2, 2], [2])))?.shape(), [0, 2]);
    empty.assign(&none, 1)?;
    empty.assign((.., &none), &count([0, 0]))?;
    let mut x = count([2]);
    x.assign(&none, 5)?;
    x.assign(&x.clone().lt(0)?, &none)?;
    assert_eq!(x.to_vec::<i64>()?, [0, 1]);
    Ok(())
}

#[test]
fn errors_before_anything_runs() {
    let mut x = count([2, 3]);
    let check = |result: Result<()>, kind: ErrorKind, words: &[&str]| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(words.iter().all(|word| error.message().contains(word)), "{error}");
    };
    // What runs would find the last position of `long` outside its axis.
    let (a, long, flags) = (count([2]), count([4]), mask(&count([3]), 2));
    check(x.i(&f32s(&[0.0], [1])).map(drop), ErrorKind::DType, &["f32", "cast"]);
    check(x.i(&flags).map(drop), ErrorKind::Shape, &["[3]", "axis 0", "[2, 3]"]);
    check(x.i((.., .., &a)).map(drop), ErrorKind::Axis, &["3 indices", "2 axes"]);
    check(x.i((&a, &long)).map(drop), ErrorKind::Shape, &["[2]", "[4]"]);
    check(x.assign(&flags, 1), ErrorKind::Shape, &["[3]", "[2, 3]"]);
    check(x.assign(&a, &long), ErrorKind::Shape, &["[4]", "[2, 3]"]);
    check(x.assign((&long, &long), &count([3])), ErrorKind::Shape, &["[3]", "[4]"]);
    check(x.assign(&a, 0.5), ErrorKind::DType, &["0.5", "i64"]);
    check(x.assign(&a, congruent::Operand::Output), ErrorKind::Argument, &["clone"]);
    let apart = Tensor::from_slice(&Arc::new(Cpu::new()), &[0_i64], [1]).unwrap();
    let other = Tensor::from_slice(&Arc::new(Cpu::new()), &[0_i64], [1]).unwrap();
    check(apart.i(&other).map(drop), ErrorKind::Argument, &["to_backend"]);
    assert_eq!(x.to_vec::<i64>().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert!(x.synchronize().is_ok());
}

#[test]
fn a_position_outside_its_axis_comes_with_the_next_synchronisation() {
    // A backend of its own: the error waits there for the next synchronising call, whosever it is.
    let device = Arc::new(Cpu::new());
    let on = |x: &AnyTensor| x.to_backend(&device).unwrap();
    let mut x = on(&count([2, 3]));
    let (wrong, zero) = (on(&i64s(&[0, 3], [2])), on(&i64s(&[0, 0], [2])));
    let out_of_range = |x: &Tensor<Cpu>| x.synchronize().unwrap_err().kind() == ErrorKind::IndexOutOfRange;
    for negative in [on(&i64s(&[-1], [1])), wrong.clone()] {
        x.i((.., &negative)).unwrap();
        assert!(out_of_range(&x) && x.synchronize().is_ok());
    }
    // Inside the whole tensor, outside its own axis.
    x.i((&zero, &wrong)).unwrap();
    assert!(out_of_range(&x));
    x.assign((.., &wrong), -1).unwrap();
    assert!(out_of_range(&x));
    assert_eq!(x.to_vec::<i64>().unwrap(), [-1, 1, 2, -1, 4, 5]);
}

/// More of them than a byte counts, and a few more than whole rows of the count.
#[test]
fn every_true_element_of_a_long_mask_is_picked() {
    for size in [0, 1, 127, 128, 255, 256, 257, 128 * 300 + 77] {
        let x = count([size]);
        assert_eq!(x.ge(0).unwrap().flatnonzero().unwrap().shape(), [size]);
        assert_eq!(x.masked_select(&mask(&x, 2)).unwrap().shape(), [size.div_ceil(2)]);
    }
}
