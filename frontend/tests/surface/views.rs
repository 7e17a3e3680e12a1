//! Views share their storage, and reshape copies only where it must.

use std::sync::Arc;

use congruent::{Index, Slice, step};

use crate::{AnyTensor, count, parts};

fn shares(x: &AnyTensor, view: &AnyTensor) -> bool {
    Arc::ptr_eq(x.storage(), view.storage())
}

#[test]
fn indices_follow_numpy_and_copy_nothing() {
    let x = count([2, 3, 4]);
    let cases = [
        (x.i(1), vec![3, 4], (12..24).collect::<Vec<_>>()),
        (x.i((-1, -1)), vec![4], vec![20, 21, 22, 23]),
        (x.i((1, 2, 3)), vec![], vec![23]),
        (x.i((.., 0, 1)), vec![2], vec![1, 13]),
        (
            x.i((.., .., Slice { start: Some(1), stop: Some(-1), step: 1 })),
            vec![2, 3, 2],
            vec![1, 2, 5, 6, 9, 10, 13, 14, 17, 18, 21, 22],
        ),
        (x.i((0, step(.., -1), step(.., 3))), vec![3, 2], vec![8, 11, 4, 7, 0, 3]),
        (x.i((0, Index::NewAxis, 1, ..2)), vec![1, 2], vec![4, 5]),
        (x.i((0, ..=1, ..=-3)), vec![2, 2], vec![0, 1, 4, 5]),
        (x.i((0, ..=1, 2..=3)), vec![2, 2], vec![2, 3, 6, 7]),
        (x.i((.., .., -2..=-1)).and_then(|x| x.i((1, 0))), vec![2], vec![14, 15]),
        (x.i((Index::Ellipsis, -1)), vec![2, 3], vec![3, 7, 11, 15, 19, 23]),
        (x.i((0, Index::Ellipsis, ..1)), vec![3, 1], vec![0, 4, 8]),
        (x.i((1, Index::Ellipsis, 2, 3)), vec![], vec![23]),
        (x.i((Index::Ellipsis, Index::NewAxis, 0)).and_then(|x| x.i(0)), vec![3, 1], vec![0, 4, 8]),
        (x.i((.., 7..)), vec![2, 0, 4], vec![]),
        (x.i(&[Index::At(0), Index::Slice(Slice::FULL), Index::At(0)][..]), vec![3], vec![0, 4, 8]),
        (x.slice(1, ..1), vec![2, 1, 4], vec![0, 1, 2, 3, 12, 13, 14, 15]),
        (x.slice(-1, step(.., -3)), vec![2, 3, 2], vec![3, 0, 7, 4, 11, 8, 15, 12, 19, 16, 23, 20]),
        (x.i((1_usize, 2_isize..3, 0_i32)), vec![1], vec![20]),
        (x.i((.., .., 4_usize..usize::MAX)), vec![2, 3, 0], vec![]),
        (x.narrow(0, 1, 1), vec![1, 3, 4], (12..24).collect()),
        (x.narrow(2, 4, 0), vec![2, 3, 0], vec![]),
        (x.select(2, -4), vec![2, 3], vec![0, 4, 8, 12, 16, 20]),
    ];
    for (view, shape, elements) in cases {
        let view = view.unwrap();
        assert_eq!(parts(&view), (shape, elements));
        assert!(shares(&x, &view));
    }
}

#[test]
fn axes_move_without_copies() {
    let x = count([2, 3]);
    let cases = [
        (x.t(), vec![3, 2], vec![0, 3, 1, 4, 2, 5]),
        (x.permute([1, 0]), vec![3, 2], vec![0, 3, 1, 4, 2, 5]),
        (x.transpose(0, 0), vec![2, 3], vec![0, 1, 2, 3, 4, 5]),
        (x.flip([0, -1]), vec![2, 3], vec![5, 4, 3, 2, 1, 0]),
        (x.moveaxis(0, 1), vec![3, 2], vec![0, 3, 1, 4, 2, 5]),
        (x.unsqueeze(2).and_then(|x| x.moveaxis(-1, 0)), vec![1, 2, 3], vec![0, 1, 2, 3, 4, 5]),
        (x.unsqueeze(-1), vec![2, 3, 1], vec![0, 1, 2, 3, 4, 5]),
        (x.i(..1).unwrap().squeeze(0), vec![3], vec![0, 1, 2]),
        (x.i(1).unwrap().expand([2, 3]), vec![2, 3], vec![3, 4, 5, 3, 4, 5]),
        (x.i((.., 1..2)).unwrap().expand([2, 2]), vec![2, 2], vec![1, 1, 4, 4]),
    ];
    for (view, shape, elements) in cases {
        let view = view.unwrap();
        assert_eq!(parts(&view), (shape, elements));
        assert!(shares(&x, &view));
    }
}

#[test]
fn reshape_copies_only_where_no_strides_fit() {
    let x = count([2, 3, 2]);
    let view = x.reshape([6, 2]).unwrap();
    assert!(shares(&x, &view));
    let turned = x.permute([2, 0, 1]).unwrap();
    let view = turned.reshape([2, 6]).unwrap();
    assert!(shares(&x, &view));
    assert_eq!(view.to_vec::<i64>().unwrap(), [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]);
    let copy = turned.flatten().unwrap();
    assert!(!shares(&x, &copy) && copy.is_contiguous());
    assert_eq!(copy.to_vec::<i64>().unwrap(), [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]);
    assert!(shares(&x, &x.contiguous().unwrap()));
    assert!(!shares(&x, &x.copy().unwrap()));
}

#[test]
fn a_contiguous_part_is_read_where_it_lies() {
    let x = count([4, 3]);
    let rows = x.i(1..3).unwrap();
    assert!(rows.is_contiguous());
    assert_eq!(rows.to_vec::<i64>().unwrap(), [3, 4, 5, 6, 7, 8]);
    assert_eq!(rows.i((1, 1)).unwrap().item::<i64>().unwrap(), 7);
}
