//! Pad, roll, repeat, tile, split and chunk against plain index arithmetic.

use congruent::ops::Pad;
use congruent::{DType, Tensor, step};

use crate::{AnyTensor, count, cpu, i64s, parts};

/// A tensor whose element at each coordinate is given by a function.
fn build(shape: &[usize], element: impl Fn(&[usize]) -> i64) -> (Vec<usize>, Vec<i64>) {
    let elements = (0..shape.iter().product()).map(|index: usize| {
        let (mut rest, mut at) = (index, vec![0; shape.len()]);
        for (coordinate, &size) in at.iter_mut().zip(shape).rev() {
            (*coordinate, rest) = (rest % size, rest / size);
        }
        element(&at)
    });
    let elements = elements.collect();
    (shape.to_vec(), elements)
}

/// The element at coordinates of a tensor of rank 2 that the host holds.
fn at(x: &AnyTensor) -> impl Fn(usize, usize) -> i64 {
    let (columns, elements) = (x.shape()[1], x.to_vec::<i64>().unwrap());
    move |row, column| elements[row * columns + column]
}

fn inputs() -> Vec<AnyTensor> {
    let wide = count([6, 8]);
    vec![
        count([3, 4]),
        count([4, 3]).t().unwrap(),
        wide.i((step(.., -2), 2..6)).unwrap(),
        count([1, 4]).expand([3, 4]).unwrap(),
    ]
}

#[test]
fn pads_follow_their_mode() {
    type Source = fn(isize, isize) -> Option<isize>;
    let modes: [(Pad, Source); 4] = [
        (Pad::constant(-7), |at, size| (0..size).contains(&at).then_some(at)),
        (Pad::Reflect, |at, size| {
            Some(if at < 0 {
                -at
            } else if at >= size {
                2 * size - 2 - at
            } else {
                at
            })
        }),
        (Pad::Replicate, |at, size| Some(at.clamp(0, size - 1))),
        (Pad::Circular, |at, size| Some(at.rem_euclid(size))),
    ];
    for x in inputs() {
        for (mode, source) in modes {
            for pads in [[[0, 0], [0, 0]], [[1, 0], [0, 2]], [[2, 1], [3, 3]], [[0, 2], [1, 0]]] {
                let shape = [0, 1].map(|axis| x.shape()[axis] + (pads[axis][0] + pads[axis][1]) as usize);
                let get = at(&x);
                let expected = build(&shape, |to| {
                    let from = |axis: usize| source(to[axis] as isize - pads[axis][0], x.shape()[axis] as isize);
                    match (from(0), from(1)) {
                        (Some(row), Some(column)) => get(row as usize, column as usize),
                        _ => -7,
                    }
                });
                assert_eq!(parts(&x.pad(pads, mode).unwrap()), expected, "{mode:?} {pads:?}");
            }
        }
    }
}

#[test]
fn negative_widths_cut_off_before_the_rest_is_padded() {
    let x = count([5]);
    assert_eq!(parts(&x.pad([[-1, -2]], Pad::constant(0)).unwrap()), (vec![2], vec![1, 2]));
    assert_eq!(parts(&x.pad([[-3, 2]], Pad::constant(9)).unwrap()), (vec![4], vec![3, 4, 9, 9]));
    assert_eq!(parts(&x.pad([[-2, 2]], Pad::Reflect).unwrap()), (vec![5], vec![2, 3, 4, 3, 2]));
    assert_eq!(parts(&x.pad([[-5, 1]], Pad::constant(9)).unwrap()), (vec![1], vec![9]));
}

#[test]
fn pads_of_every_dtype_and_of_nothing() {
    for dtype in DType::ALL {
        let x = Tensor::ones(&cpu(), [2, 1], dtype).unwrap();
        let value = if dtype == DType::Bool { Pad::constant(false) } else { Pad::constant(0) };
        let padded = x.pad([[1, 1], [1, 0]], value).unwrap();
        assert_eq!((padded.dtype(), padded.shape()), (dtype, &[4, 2][..]));
        let ones = padded.cast(DType::I64).unwrap();
        assert_eq!(ones.to_vec::<i64>().unwrap(), [0, 0, 0, 1, 0, 1, 0, 0]);
    }
    assert_eq!(parts(&count([0, 2]).pad([[1, 1], [0, 0]], Pad::constant(4)).unwrap()), (vec![2, 2], vec![4; 4]));
    assert_eq!(parts(&count([0, 2]).pad([[0, 0], [1, 1]], Pad::Reflect).unwrap()), (vec![0, 4], vec![]));
    assert_eq!(parts(&count([1]).pad([[2, 1]], Pad::Replicate).unwrap()), (vec![4], vec![0; 4]));
    assert_eq!(parts(&count([]).pad([], Pad::Circular).unwrap()), (vec![], vec![0]));
}

#[test]
fn rolls_go_round() {
    for x in inputs() {
        for (rows, columns) in [(0, 0), (1, 0), (-1, 2), (3, 4), (7, -5), (isize::MIN, isize::MAX)] {
            let get = at(&x);
            let from = |at: usize, shift: isize, size: usize| {
                (at as isize - shift.rem_euclid(size as isize)).rem_euclid(size as isize) as usize
            };
            let shape = [x.shape()[0], x.shape()[1]];
            let expected = build(&shape, |to| get(from(to[0], rows, shape[0]), from(to[1], columns, shape[1])));
            assert_eq!(parts(&x.roll([rows, columns], [0, 1]).unwrap()), expected);
            assert_eq!(parts(&x.roll([columns, rows], [-1, 0]).unwrap()), expected);
        }
    }
    assert_eq!(parts(&count([2, 2]).roll([1], ()).unwrap()), (vec![2, 2], vec![3, 0, 1, 2]));
    assert_eq!(parts(&count([0, 3]).roll([2], 0).unwrap()), (vec![0, 3], vec![]));
    assert_eq!(parts(&count([2]).roll([], [0; 0]).unwrap()), (vec![2], vec![0, 1]));
}

#[test]
fn repeats_and_tiles() {
    for x in inputs() {
        let (rows, columns) = (x.shape()[0], x.shape()[1]);
        let get = at(&x);
        for (a, b) in [(1, 1), (2, 3), (0, 2), (3, 1)] {
            let tiled = build(&[rows * a, columns * b], |to| get(to[0] % rows, to[1] % columns));
            assert_eq!(parts(&x.tile([a, b]).unwrap()), tiled);
            let repeated = build(&[rows * a, columns], |to| get(to[0] / a, to[1]));
            assert_eq!(parts(&x.repeat(a, 0).unwrap()), repeated);
            let repeated = build(&[rows, columns * b], |to| get(to[0], to[1] / b));
            assert_eq!(parts(&x.repeat(b, -1).unwrap()), repeated);
        }
        let leading = build(&[2, rows, columns], |to| get(to[1], to[2]));
        assert_eq!(parts(&x.tile([2, 1, 1]).unwrap()), leading);
        assert_eq!(parts(&x.tile([2]).unwrap()), build(&[rows, 2 * columns], |to| get(to[0], to[1] % columns)));
    }
    assert_eq!(parts(&count([2, 2]).repeat(2, None).unwrap()), (vec![8], vec![0, 0, 1, 1, 2, 2, 3, 3]));
    assert_eq!(parts(&count([]).tile([3]).unwrap()), (vec![3], vec![0; 3]));
    assert_eq!(parts(&count([0, 2]).tile([3, 2]).unwrap()), (vec![0, 4], vec![]));
    // The highest rank leaves no room for a broadcast axis.
    let deep = count([1, 2, 1, 1, 3, 1, 1, 1]);
    let tiled = deep.tile([2, 1, 1, 1, 2, 1, 1, 1]).unwrap();
    let row = vec![0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5];
    assert_eq!(parts(&tiled), (vec![2, 2, 1, 1, 6, 1, 1, 1], [row.clone(), row].concat()));
    let repeated = deep.repeat(2, 4).unwrap();
    assert_eq!(parts(&repeated), (vec![1, 2, 1, 1, 6, 1, 1, 1], vec![0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]));
}

#[test]
fn parts_of_an_axis_are_views() {
    let x = count([5, 2]);
    let elements = |parts: Vec<AnyTensor>| {
        assert!(parts.iter().all(|part| std::sync::Arc::ptr_eq(part.storage(), x.storage())));
        parts.iter().map(|part| part.select(1, 0).unwrap().to_vec::<i64>().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(elements(x.split([2, 0, 3], 0).unwrap()), [vec![0, 2], vec![], vec![4, 6, 8]]);
    assert_eq!(elements(x.chunk(2, 0).unwrap()), [vec![0, 2, 4], vec![6, 8]]);
    assert_eq!(elements(x.chunk(4, 0).unwrap()), [vec![0, 2], vec![4, 6], vec![8]]);
    assert_eq!(elements(x.chunk(9, 0).unwrap()).len(), 5);
    assert_eq!(count([2, 0]).chunk(3, 1).unwrap().len(), 3);
    assert!(count([2, 0]).split([], 1).unwrap().is_empty());
    let parts_of_columns = i64s(&[1, 2, 3, 4], [2, 2]).chunk(2, -1).unwrap();
    assert_eq!(parts(&parts_of_columns[1]), (vec![2, 1], vec![2, 4]));
}
