//! Scans along rows and columns, with one pass and two.

use congruent_backend_api::ops::scan::{Scan, ScanOp, ScanRange};
use congruent_backend_api::{Element, Layout, ScanOps};
use congruent_backend_cuda::Cuda;

use crate::support::{Tensor, cuda, odd_layouts};

fn scan<T: Element>(cuda: &Cuda, op: ScanOp, x: &Tensor, axis: isize, range: ScanRange) -> Vec<T> {
    let mut out = Tensor::zeros::<T>(cuda, x.layout.shape());
    let plan = Scan::new(op, x.view(), axis, range, out.view()).unwrap();
    cuda.scan(&plan, &x.storage, &mut out.storage).unwrap();
    out.to_vec(cuda)
}

/// The running sums by the definition.
fn sums(x: &[i64], shape: &[usize], axis: usize, range: ScanRange) -> Vec<i64> {
    let (len, step) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let mut out = vec![0; x.len()];
    for row in 0..x.len() / len {
        let (start, mut sum) = (row / step * step * len + row % step, 0_i64);
        for position in 0..len {
            let at = start + step * if range.reverse { len - 1 - position } else { position };
            let after = sum.wrapping_add(x[at]);
            out[at] = if range.exclusive { sum } else { after };
            sum = after;
        }
    }
    out
}

fn ranges() -> impl Iterator<Item = ScanRange> {
    [(false, false), (true, false), (false, true), (true, true)]
        .into_iter()
        .map(|(exclusive, reverse)| ScanRange { exclusive, reverse })
}

#[test]
fn integers_along_every_axis_and_layout() {
    let Some(cuda) = cuda() else { return };
    for view in odd_layouts() {
        let x = Tensor::from_fn(cuda, &[4096], |at| (at as i64 * 0x9e37_79b9) ^ 0x55).with(|_| view);
        let values = x.to_vec::<i64>(cuda);
        for axis in 0..3 {
            for range in ranges() {
                let expected = sums(&values, x.layout.shape(), axis, range);
                assert_eq!(scan::<i64>(cuda, ScanOp::Sum, &x, axis as isize, range), expected, "{view:?} {axis}");
            }
        }
    }
}

#[test]
fn every_length_in_one_pass_and_two() {
    let Some(cuda) = cuda() else { return };
    for len in [1, 2, 31, 32, 33, 255, 511, 512, 513, 1025, 2047, 10_000, 262_145, 1 << 20] {
        for rows in [1, 3] {
            let x = Tensor::from_fn(cuda, &[rows, len], |at| (at as i64 * at as i64) % 1009 - 500);
            let values = x.to_vec::<i64>(cuda);
            for range in ranges() {
                let expected = sums(&values, &[rows, len], 1, range);
                assert!(scan::<i64>(cuda, ScanOp::Sum, &x, 1, range) == expected, "{rows}×{len} {range:?}");
            }
        }
    }
}

#[test]
fn columns_wide_and_long() {
    let Some(cuda) = cuda() else { return };
    for shape in [[1000, 16], [33, 5000], [70_000, 20], [5000, 3]] {
        let x = Tensor::from_fn(cuda, &shape, |at| (at as i64 * 7919) % 1013 - 500);
        let values = x.to_vec::<i64>(cuda);
        for range in ranges() {
            assert!(scan::<i64>(cuda, ScanOp::Sum, &x, 0, range) == sums(&values, &shape, 0, range), "{shape:?}");
        }
    }
}

/// Compensated carries: every running sum is the rounded exact one, almost.
#[test]
fn long_float_sums_stay_accurate_and_repeat() {
    let Some(cuda) = cuda() else { return };
    let x = Tensor::from_fn(cuda, &[10_000_000], |_| 0.1_f32);
    let sums = scan::<f32>(cuda, ScanOp::Sum, &x, 0, ScanRange::default());
    for at in [99, 12_345, 5_000_000, 9_999_999] {
        let exact = f64::from(0.1_f32) * (at + 1) as f64;
        assert!((f64::from(sums[at]) / exact - 1.0).abs() < 3e-7, "{at}: {}", sums[at]);
    }
    assert!(scan::<f32>(cuda, ScanOp::Sum, &x, 0, ScanRange::default()) == sums);
}

#[test]
fn nan_and_infinities_stay_where_they_belong() {
    let Some(cuda) = cuda() else { return };
    let mut elements = vec![1.0_f32; 5000];
    (elements[100], elements[3000]) = (f32::INFINITY, f32::NAN);
    let x = Tensor::new(cuda, &[5000], &elements);
    for &op in ScanOp::ALL {
        let y = scan::<f32>(cuda, op, &x, 0, ScanRange::default());
        assert!(y[..100].iter().all(|y| y.is_finite()), "{op:?}");
        assert!(y[100..3000].iter().all(|y| y.is_infinite() || op == ScanOp::Min), "{op:?}");
        assert!(y[3000..].iter().all(|y| y.is_nan()), "{op:?}");
    }
}

/// More than 2³¹ elements: offsets in 64 bits. Needs 5 GB of device memory, so it is run by name.
#[test]
#[ignore = "needs 5 GB of device memory"]
fn more_elements_than_32_bits_count() {
    let Some(cuda) = cuda() else { return };
    let count = (1_usize << 31) + 1000;
    let layout = Layout::new("test", &[count], &[0], 0).unwrap();
    let x = Tensor::new(cuda, &[1], &[1_u8]).with(|_| layout);
    let mut out = Tensor::zeros::<u8>(cuda, &[count]);
    let plan = Scan::new(ScanOp::Sum, x.view(), 0, ScanRange::default(), out.view()).unwrap();
    cuda.scan(&plan, &x.storage, &mut out.storage).unwrap();
    let y = crate::support::get::<u8>(cuda, &out.storage).unwrap();
    assert!(y.iter().enumerate().all(|(at, &y)| y == (at + 1) as u8));
}
