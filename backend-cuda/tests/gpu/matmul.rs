//! Matrix products of small integers, which every dtype computes exactly, so that results are compared by value.

use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::{Element, Layout, MatmulOps, Scalar, Slice, bf16, f16};
use congruent_backend_cuda::Cuda;

use crate::support::{Tensor, cuda, get, layout};

/// Element types made of small integers.
trait Small: Element {
    fn small(value: i64) -> Self;
    fn value(self) -> i64;
    fn scalar(value: i64) -> Scalar;
}

macro_rules! small {
    ($($T:ty: $from:expr, $to:expr, $scalar:expr;)*) => {$(
        impl Small for $T {
            fn small(value: i64) -> Self { $from(value) }
            fn value(self) -> i64 { $to(self) }
            fn scalar(value: i64) -> Scalar { $scalar(value) }
        }
    )*};
}

small! {
    f64: |x| x as f64, |x| x as i64, |x| Scalar::Float(x as f64);
    f32: |x| x as f32, |x| x as i64, |x| Scalar::Float(x as f64);
    f16: |x| f16::from_f64(x as f64), |x: f16| x.to_f64() as i64, |x| Scalar::Float(x as f64);
    bf16: |x| bf16::from_f64(x as f64), |x: bf16| x.to_f64() as i64, |x| Scalar::Float(x as f64);
    i64: |x| x, |x| x, Scalar::Int;
    i32: |x| x as i32, |x| x as i64, Scalar::Int;
    u32: |x| x as u32, |x| x as i64, Scalar::Int;
    u8: |x| x as u8, |x| x as i64, Scalar::Int;
}

fn random(at: usize) -> i64 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64 >> 33 & 1
}

/// Runs the plan and compares with the definition; `a`, `b` and `out` are [.., m, k], [.., k, n], [.., m, n].
fn check<T: Small>(cuda: &Cuda, a: Layout, b: Layout, out: Layout, alpha: i64, beta: i64) {
    let tensor = |layout: Layout, seed: usize| {
        Tensor::from_fn(cuda, &[layout.min_len() + 3], |at| T::small(random(at + seed))).with(|_| layout)
    };
    let (a, b, mut out) = (tensor(a, 1), tensor(b, 1000), tensor(out, 77));
    let before = out.to_vec::<T>(cuda);
    let all_before = get::<T>(cuda, &out.storage).unwrap();
    let plan = Matmul::new(a.view(), b.view(), T::scalar(alpha), T::scalar(beta), out.view()).unwrap();
    cuda.matmul(&plan, &a.storage, &b.storage, &mut out.storage).unwrap();
    // The plan's own k is 0 where α is, and its rows may be those of a whole batch.
    let [.., m, k] = *a.layout.shape().as_ref() else { unreachable!() };
    let n = plan.n();
    let batch = &out.layout.shape()[..out.layout.rank() - 2];
    let spread = |tensor: &Tensor, rows: usize, cols: usize| {
        let shape: Vec<usize> = batch.iter().copied().chain([rows, cols]).collect();
        let layout = tensor.layout.broadcast_to("test", &shape).unwrap();
        let all = get::<T>(cuda, &tensor.storage).unwrap();
        crate::support::elements(&layout).into_iter().map(|at| all[at].value()).collect::<Vec<_>>()
    };
    let (left, right) = (spread(&a, m, k), spread(&b, k, n));
    let got = out.to_vec::<T>(cuda);
    for (at, &got) in got.iter().enumerate() {
        let (matrix, i, j) = (at / (m * n), at / n % m, at % n);
        let dot: i64 = (0..k).map(|l| left[(matrix * m + i) * k + l] * right[(matrix * k + l) * n + j]).sum();
        let expected = T::small(alpha * dot + beta * before[at].value());
        assert_eq!(
            got.value(),
            expected.value(),
            "{} [{matrix}, {i}, {j}] of {:?} @ {:?} -> {:?}, alpha {alpha}, beta {beta}",
            T::DTYPE,
            a.layout,
            b.layout,
            out.layout
        );
    }
    // Nothing outside of the view was written.
    let mut all = get::<T>(cuda, &out.storage).unwrap();
    for at in crate::support::elements(&out.layout) {
        all[at] = all_before[at];
    }
    assert_eq!(all, all_before);
}

fn check_all(cuda: &Cuda, a: Layout, b: Layout, out: Layout, alpha: i64, beta: i64) {
    check::<f32>(cuda, a, b, out, alpha, beta);
    check::<f64>(cuda, a, b, out, alpha, beta);
    check::<f16>(cuda, a, b, out, alpha, beta);
    check::<bf16>(cuda, a, b, out, alpha, beta);
    check::<i64>(cuda, a, b, out, alpha, beta);
    check::<i32>(cuda, a, b, out, alpha, beta);
    check::<u32>(cuda, a, b, out, alpha, beta);
    check::<u8>(cuda, a, b, out, alpha, beta);
}

/// [rows, cols] laid out plainly, transposed, padded, stepped, reversed, broadcast.
fn matrices(rows: usize, cols: usize) -> Vec<Layout> {
    let stride = |row: usize, col: usize| Layout::new("test", &[rows, cols], &[row as isize, col as isize], 2).unwrap();
    vec![
        layout(&[rows, cols]),
        layout(&[cols, rows]).permute(&[1, 0]).unwrap(),
        stride(cols + 3, 1),
        stride(1, rows + 5),
        stride(2 * cols, 2),
        layout(&[rows, cols]).flip(&[0]).unwrap(),
        layout(&[rows, cols]).flip(&[1]).unwrap(),
    ]
}

#[test]
fn every_layout_of_every_operand() {
    let Some(cuda) = cuda() else { return };
    let (m, k, n) = (5, 7, 3);
    for a in matrices(m, k) {
        for b in matrices(k, n) {
            check_all(cuda, a, b, layout(&[m, n]), 1, 0);
        }
    }
    for out in matrices(m, n) {
        check_all(cuda, layout(&[m, k]), matrices(k, n)[1], out, 2, 3);
    }
    let row = layout(&[1, k]).broadcast_to("test", &[m, k]).unwrap();
    let column = layout(&[k, 1]).broadcast_to("test", &[k, n]).unwrap();
    check_all(cuda, row, column, matrices(m, n)[3], 1, 1);
}

#[test]
fn sizes_around_the_tiles() {
    let Some(cuda) = cuda() else { return };
    for (m, k, n) in [(1, 1, 1), (1, 33, 1), (16, 16, 16), (17, 1, 33), (31, 64, 15), (65, 100, 129), (1, 5, 300)] {
        check_all(cuda, layout(&[m, k]), layout(&[k, n]), layout(&[m, n]), 1, 0);
    }
    check::<f32>(cuda, layout(&[300, 700]), layout(&[700, 500]), layout(&[300, 500]), 1, 0);
}

#[test]
fn batches_broadcast() {
    let Some(cuda) = cuda() else { return };
    let cases: [(&[usize], &[usize], &[usize]); 6] = [
        (&[4, 3, 5], &[4, 5, 2], &[4, 3, 2]),
        (&[4, 3, 5], &[5, 2], &[4, 3, 2]),
        (&[3, 5], &[4, 5, 2], &[4, 3, 2]),
        (&[2, 1, 3, 5], &[4, 5, 2], &[2, 4, 3, 2]),
        (&[2, 1, 3, 3, 5], &[4, 1, 5, 2], &[2, 4, 3, 3, 2]),
        (&[1, 1, 3, 5], &[1, 1, 5, 2], &[1, 1, 3, 2]),
    ];
    for (a, b, out) in cases {
        check_all(cuda, layout(a), layout(b), layout(out), 1, 1);
    }
    // The batch axis inside of the matrix, reversed, and apart.
    let inside = layout(&[3, 4, 5]).permute(&[1, 0, 2]).unwrap();
    let reversed = layout(&[4, 5, 2]).flip(&[0, 2]).unwrap();
    let out = layout(&[3, 2, 4]).permute(&[2, 0, 1]).unwrap();
    check_all(cuda, inside, reversed, out, 1, 2);
    let apart = layout(&[8, 3, 5]).slice(0, Slice { step: 2, ..Slice::FULL }).unwrap();
    check_all(cuda, apart, layout(&[4, 5, 2]).flip(&[0]).unwrap(), layout(&[4, 3, 2]), 1, 0);
}

#[test]
fn vectors_and_empty_products() {
    let Some(cuda) = cuda() else { return };
    let x = Tensor::new(cuda, &[3], &[1.0_f32, 2.0, 3.0]);
    let y = Tensor::new(cuda, &[3, 2], &[1.0_f32, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let mut out = Tensor::zeros::<f32>(cuda, &[2]);
    let (one, zero) = (Scalar::Float(1.0), Scalar::Float(0.0));
    let plan = Matmul::new(x.view(), y.view(), one, zero, out.view()).unwrap();
    cuda.matmul(&plan, &x.storage, &y.storage, &mut out.storage).unwrap();
    assert_eq!(out.to_vec::<f32>(cuda), [4.0, 5.0]);
    check_all(cuda, layout(&[3, 0]), layout(&[0, 2]), layout(&[3, 2]), 1, 0);
    check_all(cuda, layout(&[3, 0]), layout(&[0, 2]), layout(&[3, 2]), 1, 2);
    check_all(cuda, layout(&[0, 3]), layout(&[3, 2]), layout(&[0, 2]), 1, 0);
    check_all(cuda, layout(&[3, 4]), layout(&[4, 2]), layout(&[3, 2]), 0, 1);
}

#[test]
fn the_old_output_counts_only_with_beta() {
    let Some(cuda) = cuda() else { return };
    let a = Tensor::new(cuda, &[2, 2], &[1.0_f64, 2.0, 3.0, 4.0]);
    let mut out = Tensor::new(cuda, &[2, 2], &[f64::NAN; 4]);
    let plan = Matmul::new(a.view(), a.view(), Scalar::Float(0.5), Scalar::Float(0.0), out.view()).unwrap();
    cuda.matmul(&plan, &a.storage, &a.storage, &mut out.storage).unwrap();
    assert_eq!(out.to_vec::<f64>(cuda), [3.5, 5.0, 7.5, 11.0]);
}

/// In TF32 these products would lose the low bits of 1 + 2⁻¹².
#[test]
fn f32_is_f32_unless_asked() {
    let Some(cuda) = cuda() else { return };
    let product = |cuda: &Cuda| {
        let x = Tensor::from_fn(cuda, &[256, 256], |_| 1.0 + 2f32.powi(-12));
        let identity = Tensor::from_fn(cuda, &[256, 256], |at| f32::from(u8::from(at / 256 == at % 256)));
        let mut out = Tensor::zeros::<f32>(cuda, &[256, 256]);
        let plan = Matmul::new(x.view(), identity.view(), Scalar::Float(1.0), Scalar::Float(0.0), out.view()).unwrap();
        cuda.matmul(&plan, &x.storage, &identity.storage, &mut out.storage).unwrap();
        out.to_vec::<f32>(cuda)
    };
    assert!(product(cuda).iter().all(|&y| y == 1.0 + 2f32.powi(-12)));
    let rounded = product(&Cuda::builder(0).tf32(true).build().unwrap());
    println!("with TF32: {}", rounded[0]);
}
