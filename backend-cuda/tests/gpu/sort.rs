//! Sorts on every path: short rows, rows in shared memory, long rows, selections; strided, in both directions.

use congruent_backend_api::ops::sort::{SearchSorted, Sort, SortOp};
use congruent_backend_api::{Backend, DType, Element, SortOps, bf16};
use congruent_backend_cuda::Cuda;

use crate::support::{Tensor, cuda, layout};

fn run<O: Element>(cuda: &Cuda, op: SortOp, x: &Tensor, axis: isize, descending: bool, k: usize) -> Vec<O> {
    let mut shape = x.layout.shape().to_vec();
    shape[axis as usize] = k;
    let mut out = Tensor::zeros::<O>(cuda, &shape);
    let plan = Sort::new(op, x.view(), axis, descending, out.view()).unwrap();
    cuda.sort(&plan, &x.storage, &mut out.storage).unwrap();
    out.to_vec(cuda)
}

#[test]
fn every_length_agrees_with_a_plain_sort() {
    let Some(cuda) = cuda() else { return };
    for len in [1, 2, 31, 256, 257, 1000, 8192, 20_000, 70_001] {
        let x: Vec<i32> = (0..2 * len).map(|i: i32| (i.wrapping_mul(-1_640_531_527) >> 9) % 1000).collect();
        let tensor = Tensor::new(cuda, &[2, len as usize], &x);
        // The same rows as columns.
        let columns = Tensor::from_fn(cuda, &[len as usize, 2], |at| x[at % 2 * len as usize + at / 2]);
        for descending in [false, true] {
            let order: Vec<Vec<i64>> = x
                .chunks(len as usize)
                .map(|row| {
                    let mut order: Vec<i64> = (0..i64::from(len)).collect();
                    order.sort_by_key(|&at| if descending { !row[at as usize] } else { row[at as usize] });
                    order
                })
                .collect();
            let n = len as usize;
            assert!(run::<i64>(cuda, SortOp::Argsort, &tensor, 1, descending, n) == order.concat(), "{len}");
            let sorted = run::<i32>(cuda, SortOp::Sort, &columns, 0, descending, n);
            let expected = |at: usize| x[at % 2 * n + order[at % 2][at / 2] as usize];
            assert!((0..2 * n).all(|at| sorted[at] == expected(at)), "{len} {descending}");
            for k in [1, n / 9, n / 4, n] {
                let first: Vec<i64> = order.iter().flat_map(|row| row[..k].to_vec()).collect();
                assert!(run::<i64>(cuda, SortOp::Topk, &tensor, 1, descending, k) == first, "{len} {descending} {k}");
            }
        }
    }
}

#[test]
fn nan_is_greatest_zeros_are_equal_and_bits_are_kept() {
    let Some(cuda) = cuda() else { return };
    let nan = f32::from_bits(0xffc0_0123);
    let x = [0.0, nan, -1.0, -0.0, f32::INFINITY, f32::NAN, f32::NEG_INFINITY];
    for repeat in [1, 100, 10_000] {
        // Repeated, the row takes every path; the order of what repeats is that of the places.
        let all: Vec<f32> = x.iter().copied().cycle().take(7 * repeat).collect();
        let tensor = Tensor::new(cuda, &[7 * repeat], &all);
        let sorted = run::<f32>(cuda, SortOp::Sort, &tensor, 0, true, 7 * repeat);
        let order = run::<i64>(cuda, SortOp::Argsort, &tensor, 0, true, 7 * repeat);
        assert!(sorted.iter().zip(&order).all(|(x, &at)| x.to_bits() == all[at as usize].to_bits()));
        assert_eq!(order[..2], [1, 5]);
        assert_eq!(order[2 * repeat..2 * repeat + 1], [4]);
        assert_eq!(order[3 * repeat..3 * repeat + 2], [0, 3]);
    }
    let halves: Vec<bf16> = x.iter().map(|&x| bf16::from_f32(x)).collect();
    let tensor = Tensor::new(cuda, &[7], &halves);
    assert_eq!(run::<i64>(cuda, SortOp::Argsort, &tensor, 0, false, 7), [6, 2, 0, 3, 4, 1, 5]);
}

#[test]
fn searches_count_what_comes_before() {
    let Some(cuda) = cuda() else { return };
    let sorted = Tensor::new(cuda, &[5], &[-1.0, -0.0, 0.0, 2.0, f32::NAN]);
    let values = Tensor::new(cuda, &[5, 1], &[-2.0, 0.0, 2.0, f32::INFINITY, f32::NAN]);
    for (right, expected) in [(false, [0, 1, 3, 4, 4]), (true, [0, 3, 4, 4, 5])] {
        let mut out = Tensor::zeros::<i64>(cuda, &[5, 1]);
        let plan = SearchSorted::new(sorted.view(), values.view(), right, out.view()).unwrap();
        cuda.search_sorted(&plan, &sorted.storage, &values.storage, &mut out.storage).unwrap();
        assert_eq!(out.to_vec::<i64>(cuda), expected);
    }
}

/// 2³¹ elements and more: positions do not fit 32 signed bits.
#[test]
fn a_row_of_more_than_two_to_the_31_bytes() {
    let Some(cuda) = cuda() else { return };
    let len = (1_usize << 31) + 4097;
    let (Ok(x), Ok(out)) = (cuda.alloc(DType::U8, len), cuda.alloc(DType::U8, len)) else {
        println!("skipped: not enough device memory");
        return;
    };
    let (mut x, mut out) =
        (Tensor { storage: x, layout: layout(&[len]) }, Tensor { storage: out, layout: layout(&[len]) });
    let block: Vec<u8> = (0..1 << 24).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut counts = [0_u64; 256];
    for start in (0..len).step_by(block.len()) {
        let part = &block[..block.len().min(len - start)];
        part.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        cuda.write(part, &mut x.storage, start).unwrap();
    }
    let plan = Sort::new(SortOp::Sort, x.view(), 0, false, out.view()).unwrap();
    match cuda.sort(&plan, &x.storage, &mut out.storage) {
        Err(error) if error.kind() == congruent_backend_api::ErrorKind::OutOfMemory => {
            println!("skipped: {error}");
            return;
        }
        result => result.unwrap(),
    }
    // The first and the last element of each byte's run.
    let mut start = 0;
    for (byte, &count) in counts.iter().enumerate() {
        for at in [start, start + count - 1] {
            let mut found = [0];
            cuda.download(&out.storage, at as usize, &mut found).unwrap();
            assert_eq!(usize::from(found[0]), byte, "element {at}");
        }
        start += count;
    }
}
