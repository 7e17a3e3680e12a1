//! What a call costs: not a test of anything, so it runs only when asked for (`--ignored --nocapture`).

use std::time::{Duration, Instant};

use congruent_backend_api::ops::binary::{Binary, BinaryOp};
use congruent_backend_api::ops::copy::Copy;
use congruent_backend_api::ops::linear::{Activation, Linear};
use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::ops::reduce::{Reduce, ReduceOp};
use congruent_backend_api::ops::unary::{Unary, UnaryOp};
use congruent_backend_api::{
    Backend, BinaryOps, CopyOps, DType, LinearOps, MatmulOps, ReduceOps, Scalar, Source, UnaryOps,
};
use congruent_backend_cuda::Cuda;
use congruent_backend_cuda::kernels::KernelModule;

use crate::support::{Tensor, cuda};

/// The mean time of a call once the device has been waited for.
fn time(cuda: &Cuda, calls: u32, mut call: impl FnMut()) -> Duration {
    (0..3).for_each(|_| call());
    cuda.synchronize().unwrap();
    let start = Instant::now();
    (0..calls).for_each(|_| call());
    cuda.synchronize().unwrap();
    start.elapsed() / calls
}

#[test]
#[ignore = "measures"]
fn compile_times() {
    let mut total = Duration::ZERO;
    for module in KernelModule::all() {
        let start = Instant::now();
        match module.compile(90) {
            Ok(image) => println!("{module}: {:.2?}, {} bytes", start.elapsed(), image.len()),
            Err(error) => return println!("skipped: {error}"),
        }
        total += start.elapsed();
    }
    println!("all: {total:.2?}");
}

#[test]
#[ignore = "measures"]
fn launch_cost_and_bandwidth() {
    let Some(cuda) = cuda() else { return };
    let mut x = Tensor::zeros::<f32>(cuda, &[100]);
    let plan = Unary::new(UnaryOp::Neg, Source::Output, x.view()).unwrap();
    let start = Instant::now();
    cuda.unary(&plan, None, &mut x.storage).unwrap();
    println!("first neg: {:.2?}", start.elapsed());
    cuda.synchronize().unwrap();
    let start = Instant::now();
    (0..1000).for_each(|_| cuda.unary(&plan, None, &mut x.storage).unwrap());
    println!("neg of 100 f32, host only: {:.2?}", start.elapsed() / 1000);
    println!(
        "neg of 100 f32, with the device: {:.2?}",
        time(cuda, 1000, || cuda.unary(&plan, None, &mut x.storage).unwrap())
    );
    println!("alloc and free: {:.2?}", time(cuda, 1000, || drop(cuda.alloc(DType::F32, 1000).unwrap())));
    println!("download of 4 bytes: {:.2?}", time(cuda, 100, || cuda.download(&x.storage, 0, &mut [0; 4]).unwrap()));

    let n = 1 << 28;
    let rate = |name: &str, bytes: usize, time: Duration| {
        println!("{name}: {time:.2?}, {:.0} GB/s", bytes as f64 / time.as_secs_f64() / 1e9);
    };
    let mut a =
        Tensor { storage: cuda.alloc(DType::F32, n).unwrap(), layout: crate::support::layout(&[1 << 14, 1 << 14]) };
    let b = Tensor { storage: cuda.alloc(DType::F32, n).unwrap(), layout: a.layout };
    for op in [UnaryOp::Neg, UnaryOp::Exp, UnaryOp::Sin, UnaryOp::Gelu] {
        let plan = Unary::new(op, Source::View(b.view()), a.view()).unwrap();
        let time = time(cuda, 10, || cuda.unary(&plan, Some(&b.storage), &mut a.storage).unwrap());
        rate(&format!("{op:?} f32"), 8 * n, time);
    }
    for (dtype, len) in [(DType::U8, 4 * n), (DType::BF16, 2 * n), (DType::F64, n / 2)] {
        let shape = crate::support::layout(&[1 << 14, len >> 14]);
        let x = Tensor { storage: cuda.alloc(dtype, len).unwrap(), layout: shape };
        let mut y = Tensor { storage: cuda.alloc(dtype, len).unwrap(), layout: shape };
        let plan = Unary::new(UnaryOp::Neg, Source::View(x.view()), y.view()).unwrap();
        rate(
            &format!("neg {dtype}"),
            8 * n,
            time(cuda, 10, || cuda.unary(&plan, Some(&x.storage), &mut y.storage).unwrap()),
        );
        let mut out =
            Tensor { storage: cuda.alloc(dtype, 1 << 14).unwrap(), layout: crate::support::layout(&[1 << 14]) };
        let plan = Reduce::new(ReduceOp::Sum, x.view(), Some(&[1]), out.view()).unwrap();
        let time = time(cuda, 10, || cuda.reduce(&plan, &x.storage, &mut out.storage).unwrap());
        rate(&format!("sum of rows {dtype}"), 4 * n, time);
    }
    let row = b
        .layout
        .slice(0, congruent_backend_api::Slice { stop: Some(1), ..congruent_backend_api::Slice::FULL })
        .unwrap();
    let transposed = b.layout.permute(&[1, 0]).unwrap();
    for (name, layout) in [("add", b.layout), ("add of a row", row), ("add of a transposed", transposed)] {
        let view = congruent_backend_api::View { dtype: DType::F32, layout: &layout };
        let plan = Binary::new(BinaryOp::Add, Source::Output, Source::View(view), a.view()).unwrap();
        let time = time(cuda, 10, || cuda.binary(&plan, None, Some(&b.storage), &mut a.storage).unwrap());
        rate(name, 12 * n, time);
    }
    for axes in [None, Some(&[0_isize][..]), Some(&[1])] {
        let shape = Reduce::shape(ReduceOp::Sum, b.layout.shape(), axes, false).unwrap();
        let mut out =
            Tensor { storage: cuda.alloc(DType::F32, shape.count()).unwrap(), layout: crate::support::layout(&shape) };
        let plan = Reduce::new(ReduceOp::Sum, b.view(), axes, out.view()).unwrap();
        let time = time(cuda, 10, || cuda.reduce(&plan, &b.storage, &mut out.storage).unwrap());
        rate(&format!("sum over {axes:?}"), 4 * n, time);
    }
    let tall = crate::support::layout(&[n / 2, 2]);
    let mut out = Tensor { storage: cuda.alloc(DType::F32, 2).unwrap(), layout: crate::support::layout(&[2]) };
    let view = congruent_backend_api::View { dtype: DType::F32, layout: &tall };
    let plan = Reduce::new(ReduceOp::Sum, view, Some(&[0]), out.view()).unwrap();
    rate("sum of two columns", 4 * n, time(cuda, 10, || cuda.reduce(&plan, &b.storage, &mut out.storage).unwrap()));
}

/// Numbers in (−1, 1) of any float dtype.
fn numbers(cuda: &Cuda, dtype: DType, shape: &[usize]) -> Tensor {
    let number = |at: usize| (at as u32).wrapping_mul(0x9e37_79b9) as i32 as f32 / 2_147_483_648.0;
    let from = Tensor::from_fn(cuda, shape, number);
    let mut to = Tensor { storage: cuda.alloc(dtype, from.layout.count()).unwrap(), layout: from.layout };
    cuda.copy(&Copy::new(from.view(), to.view()).unwrap(), &from.storage, &mut to.storage).unwrap();
    to
}

#[test]
#[ignore = "measures"]
fn products() {
    let Some(cuda) = cuda() else { return };
    let report = |name: String, [batch, m, n, k]: [usize; 4], time: Duration| {
        let rate = 2.0 * (batch * m * n * k) as f64 / time.as_secs_f64() / 1e12;
        println!("{name}: {:.4} ms, {rate:.1} TFLOP/s", time.as_secs_f64() * 1e3);
    };
    for (dtype, [batch, m, n, k], beta) in [
        (DType::F32, [1, 1024, 1024, 1024], 0.0),
        (DType::F32, [1, 4096, 4096, 4096], 0.0),
        (DType::F32, [1, 8192, 8192, 8192], 0.0),
        (DType::F64, [1, 4096, 4096, 4096], 0.0),
        (DType::BF16, [1, 8192, 8192, 8192], 0.0),
        (DType::BF16, [1, 8192, 8192, 8192], 1.0),
        (DType::F16, [1, 8192, 8192, 8192], 0.0),
        (DType::F32, [64, 512, 512, 64], 0.0),
        (DType::BF16, [64, 512, 512, 64], 0.0),
        (DType::F32, [1, 1, 8192, 8192], 0.0),
        (DType::F32, [1, 8192, 1, 8192], 0.0),
        (DType::BF16, [1, 1, 8192, 8192], 0.0),
        (DType::BF16, [1, 8192, 1, 8192], 0.0),
    ] {
        let (a, b) = (numbers(cuda, dtype, &[batch, m, k]), numbers(cuda, dtype, &[batch, k, n]));
        let mut out = numbers(cuda, dtype, &[batch, m, n]);
        let plan = Matmul::new(a.view(), b.view(), Scalar::Float(1.0), Scalar::Float(beta), out.view()).unwrap();
        let time = time(cuda, 20, || cuda.matmul(&plan, &a.storage, &b.storage, &mut out.storage).unwrap());
        report(format!("matmul {dtype} {batch} of {m}x{k}x{n}, beta {beta}"), [batch, m, n, k], time);
    }
    for dtype in [DType::F32, DType::BF16] {
        let [m, n, k] = [4096; 3];
        let (x, weight) = (numbers(cuda, dtype, &[m, k]), numbers(cuda, dtype, &[n, k]));
        let (bias, mut out) = (numbers(cuda, dtype, &[n]), numbers(cuda, dtype, &[m, n]));
        for &activation in Activation::ALL {
            let plan = Linear::new(x.view(), weight.view(), Some(bias.view()), activation, out.view()).unwrap();
            let time = time(cuda, 20, || {
                cuda.linear(&plan, &x.storage, &weight.storage, Some(&bias.storage), &mut out.storage).unwrap();
            });
            report(format!("linear {} {dtype} {m}x{k}x{n}", activation.name()), [1, m, n, k], time);
        }
    }
}
