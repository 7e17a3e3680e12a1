//! Gather, scatter and nonzero: paths of the kernels that small random cases do not reach.

use std::time::{Duration, Instant};

use congruent_backend_api::ops::index::{Gather, Nonzero, Scatter, ScatterOp};
use congruent_backend_api::{Backend, DType, Element, ErrorKind, IndexOps, Layout, Result, Shape, View, f16};
use congruent_backend_cuda::{Cuda, CudaStorage};

use crate::support::{Tensor, cuda, get, layout};

fn gather(cuda: &Cuda, x: &Tensor, along: isize, index: &Tensor, out: &mut Tensor) {
    let plan = Gather::new(x.view(), along, index.view(), out.view()).unwrap();
    cuda.gather(&plan, &x.storage, &index.storage, &mut out.storage).unwrap();
}

fn scatter(cuda: &Cuda, op: ScatterOp, along: isize, index: &Tensor, src: &Tensor, out: &mut Tensor) {
    let plan = Scatter::new(op, along, index.view(), src.view(), out.view()).unwrap();
    cuda.scatter(&plan, &index.storage, &src.storage, &mut out.storage).unwrap();
}

fn spread(at: usize, len: usize) -> usize {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17) % len
}

fn rows<T: Element>(cuda: &Cuda, number: impl Fn(usize) -> T) {
    // Widths of whole packs, of none, and rows that start where no pack may.
    for (width, skip) in [(64, 0), (7, 0), (64, 1), (1, 0)] {
        let (len, count) = (301, 1000);
        let table = Tensor::from_fn(cuda, &[len, width + skip], &number);
        let table = table.with(|x| {
            x.slice(1, congruent_backend_api::Slice { start: Some(skip as isize), stop: None, step: 1 }).unwrap()
        });
        let index = Tensor::from_fn(cuda, &[count, 1], |at| spread(at, len) as i32);
        let mut out = Tensor::zeros::<T>(cuda, &[count, width]);
        gather(cuda, &table, 0, &index, &mut out);
        let expected: Vec<T> =
            (0..count * width).map(|at| number(spread(at / width, len) * (width + skip) + at % width + skip)).collect();
        assert_eq!(out.to_vec::<T>(cuda), expected, "{} {width} {skip}", T::DTYPE);
    }
}

#[test]
fn rows_of_every_alignment() {
    let Some(cuda) = cuda() else { return };
    rows(cuda, |at| at as f64);
    rows(cuda, |at| at as f32);
    rows(cuda, |at| f16::from_f32((at % 2048) as f32));
    rows(cuda, |at| at as u8);
    rows(cuda, |at| at.is_multiple_of(3));
}

/// Sums, extremes and last sources of `count` rows, against a loop on the host. Values are small integers: exact.
fn check_scatter<T: Element>(cuda: &Cuda, (count, len, width): (usize, usize, usize), number: impl Fn(i64) -> T) {
    let hot = |at: usize| if at.is_multiple_of(3) { 0 } else { spread(at, len) };
    let value = |at: usize| (spread(at, 3)) as i64;
    let index = Tensor::from_fn(cuda, &[count, 1], |at| hot(at) as i64);
    let src = Tensor::from_fn(cuda, &[count, width], |at| number(value(at)));
    for op in ScatterOp::ALL.iter().copied().filter(|op| op.accepts(T::DTYPE)) {
        let mut expected = vec![1_i64; len * width];
        for at in 0..count * width {
            let old = &mut expected[hot(at / width) * width + at % width];
            *old = match op {
                ScatterOp::Add => *old + value(at),
                ScatterOp::Max => (*old).max(value(at)),
                ScatterOp::Min => (*old).min(value(at)),
                ScatterOp::Set => value(at),
            };
        }
        let mut out = Tensor::from_fn(cuda, &[len, width], |_| number(1));
        scatter(cuda, op, 0, &index, &src, &mut out);
        let expected: Vec<T> = expected.into_iter().map(&number).collect();
        assert_eq!(out.to_vec::<T>(cuda), expected, "{op:?} {} {count} {len} {width}", T::DTYPE);
    }
}

#[test]
fn scatters_of_many_sources_and_hot_rows() {
    let Some(cuda) = cuda() else { return };
    for sizes in [(5000, 17, 64), (100_000, 3, 4), (70_000, 1000, 1), (3000, 257, 33), (1, 1, 8)] {
        check_scatter(cuda, sizes, |x| x as f32);
        check_scatter(cuda, sizes, |x| x as f64);
        check_scatter(cuda, sizes, |x| x);
        check_scatter(cuda, sizes, |x| x as i32);
        check_scatter(cuda, sizes, |x| x as u8);
    }
    check_scatter(cuda, (2000, 90, 16), |x| f16::from_f64(x as f64));
}

#[test]
fn an_index_out_of_range_leaves_the_backend_usable() {
    if cuda().is_none() {
        return;
    }
    // An error is reported to whoever synchronises next, so the backend is not shared.
    let cuda = &Cuda::new(0).unwrap();
    let src = Tensor::new(cuda, &[4], &[1.0_f32, 2.0, 4.0, 8.0]);
    for op in [ScatterOp::Add, ScatterOp::Set] {
        let mut out = Tensor::zeros::<f32>(cuda, &[2]);
        scatter(cuda, op, 0, &Tensor::new(cuda, &[4], &[1_i64, -1, 2, i64::MIN]), &src, &mut out);
        assert_eq!(cuda.synchronize().unwrap_err().kind(), ErrorKind::IndexOutOfRange);
        assert_eq!(get::<f32>(cuda, &out.storage).unwrap(), [0.0, 1.0]);
    }
    let none = Tensor::new::<f32>(cuda, &[0], &[]);
    let mut out = Tensor::new(cuda, &[1], &[3.0_f32]);
    gather(cuda, &none, 0, &Tensor::new(cuda, &[1], &[0_u8]), &mut out);
    assert_eq!(get::<f32>(cuda, &out.storage).unwrap_err().kind(), ErrorKind::IndexOutOfRange);
    assert_eq!(get::<f32>(cuda, &out.storage).unwrap(), [0.0]);
}

#[test]
fn positions_of_long_masks() {
    let Some(cuda) = cuda() else { return };
    for count in [1, 15, 4096, 4097, 3_000_001] {
        let truth = |at: usize| spread(at, 5) == 1;
        let mask = Tensor::from_fn(cuda, &[count], truth);
        let expected: Vec<i64> = (0..count as i64).filter(|&at| truth(at as usize)).chain([-1; 3]).collect();
        let mut out = Tensor::zeros::<i64>(cuda, &[expected.len()]);
        let plan = Nonzero::new(mask.view(), out.view()).unwrap();
        cuda.nonzero(&plan, &mask.storage, &mut out.storage).unwrap();
        assert_eq!(get::<i64>(cuda, &out.storage).unwrap(), expected);
    }
}

#[test]
fn atomic_sums_by_option() {
    if cuda().is_none() {
        return;
    }
    let cuda = &Cuda::builder(0).atomic_scatter(true).build().unwrap();
    check_scatter(cuda, (50_000, 5, 8), |x| x as f32);
    check_scatter(cuda, (50_000, 5, 8), |x| x as f64);
}

fn empty(cuda: &Cuda, dtype: DType, shape: &[usize]) -> Result<Tensor> {
    let layout = Layout::contiguous(Shape::new("test", shape)?);
    Ok(Tensor { storage: cuda.alloc(dtype, layout.count())?, layout })
}

fn last(cuda: &Cuda, storage: &CudaStorage, at: usize) -> u8 {
    let mut byte = [0];
    cuda.download(storage, at, &mut byte).unwrap();
    byte[0]
}

#[test]
#[ignore = "takes 16 GiB of device memory"]
fn more_than_two_to_the_31_elements() {
    let Some(cuda) = cuda() else { return };
    let len = (1 << 32) + 77;
    let Ok(mut x) = empty(cuda, DType::U8, &[len]) else { return println!("skipped: no memory") };
    cuda.write(&[5, 6], &mut x.storage, len - 2).unwrap();
    let index = Tensor::new(cuda, &[2], &[len as i64 - 1, len as i64 - 2]);
    let mut out = Tensor::zeros::<u8>(cuda, &[2]);
    gather(cuda, &x, 0, &index, &mut out);
    assert_eq!(out.to_vec::<u8>(cuda), [6, 5]);
    let src = Tensor::new(cuda, &[2], &[10_u8, 20]);
    for (op, expected) in [(ScatterOp::Add, [25, 16]), (ScatterOp::Max, [25, 16]), (ScatterOp::Set, [20, 10])] {
        scatter(cuda, op, 0, &index, &src, &mut x);
        assert_eq!([last(cuda, &x.storage, len - 2), last(cuda, &x.storage, len - 1)], expected, "{op:?}");
    }
    // A gather with that many results, all of one element.
    let (one, zeros) = (Tensor::new(cuda, &[1], &[9_u8]), Tensor::new(cuda, &[1], &[0_u8]));
    gather(cuda, &one, 0, &zeros, &mut x);
    assert_eq!([last(cuda, &x.storage, 0), last(cuda, &x.storage, len - 1)], [9, 9]);
    let Ok(mask) = empty(cuda, DType::Bool, &[len]) else { return println!("skipped: no memory") };
    let mut mask = mask;
    let plan = congruent_backend_api::ops::copy::Fill::new(false.into(), mask.view()).unwrap();
    congruent_backend_api::CopyOps::fill(cuda, &plan, &mut mask.storage).unwrap();
    cuda.write(&[1], &mut mask.storage, len - 3).unwrap();
    let mut found = Tensor::zeros::<i64>(cuda, &[1]);
    let plan = Nonzero::new(mask.view(), found.view()).unwrap();
    cuda.nonzero(&plan, &mask.storage, &mut found.storage).unwrap();
    assert_eq!(found.to_vec::<i64>(cuda), [len as i64 - 3]);
}

fn time(cuda: &Cuda, mut call: impl FnMut()) -> Duration {
    (0..3).for_each(|_| call());
    cuda.synchronize().unwrap();
    let start = Instant::now();
    (0..20).for_each(|_| call());
    cuda.synchronize().unwrap();
    start.elapsed() / 20
}

#[test]
#[ignore = "measures"]
fn rates() {
    let Some(cuda) = cuda() else { return };
    let (count, len, width) = (1 << 16, 50_257, 1024);
    let mut table = empty(cuda, DType::F32, &[len, width]).unwrap();
    let mut rows = empty(cuda, DType::F32, &[count, width]).unwrap();
    let fill = |x: &mut Tensor| {
        let plan =
            congruent_backend_api::ops::copy::Fill::new(1.0.into(), View { dtype: x.dtype(), layout: &x.layout })
                .unwrap();
        congruent_backend_api::CopyOps::fill(cuda, &plan, &mut x.storage).unwrap();
    };
    fill(&mut table);
    fill(&mut rows);
    for (name, hot) in [("spread", len), ("64 rows", 64), ("one row", 1)] {
        let index = Tensor::from_fn(cuda, &[count, 1], |at| spread(at, hot) as i64);
        println!(
            "embedding 64Ki x 1024 f32, {name}: {:.2?}",
            time(cuda, || gather(cuda, &table, 0, &index, &mut rows))
        );
        for op in [ScatterOp::Add, ScatterOp::Set] {
            println!(
                "{op:?} 64Ki x 1024 f32, {name}: {:.2?}",
                time(cuda, || scatter(cuda, op, 0, &index, &rows, &mut table))
            );
        }
    }
    let count = 1 << 24;
    let index = Tensor::from_fn(cuda, &[count], |at| spread(at, count) as i64);
    let bins = Tensor::from_fn(cuda, &[count], |at| spread(at, 256) as i64);
    let (mut x, mut y) = (empty(cuda, DType::F32, &[count]).unwrap(), empty(cuda, DType::F32, &[count]).unwrap());
    fill(&mut x);
    fill(&mut y);
    println!("take 16Mi f32: {:.2?}", time(cuda, || gather(cuda, &x, 0, &index, &mut y)));
    for op in [ScatterOp::Add, ScatterOp::Set] {
        println!("{op:?} 16Mi f32: {:.2?}", time(cuda, || scatter(cuda, op, 0, &index, &x, &mut y)));
    }
    let mut few = Tensor::zeros::<f32>(cuda, &[256]);
    println!("Add 16Mi f32 to 256: {:.2?}", time(cuda, || scatter(cuda, ScatterOp::Add, 0, &bins, &x, &mut few)));
    let ones = Tensor::new(cuda, &[1], &[1_i64]);
    let mut counts = Tensor::zeros::<i64>(cuda, &[256]);
    println!(
        "bincount 16Mi to 256: {:.2?}",
        time(cuda, || scatter(cuda, ScatterOp::Add, 0, &bins, &ones, &mut counts))
    );
    let mask = Tensor::from_fn(cuda, &[count], |at| spread(at, 2) == 0);
    let mut found = empty(cuda, DType::I64, &[count]).unwrap();
    let plan = Nonzero::new(mask.view(), View { dtype: DType::I64, layout: &layout(&[count]) }).unwrap();
    println!("nonzero 16Mi: {:.2?}", time(cuda, || cuda.nonzero(&plan, &mask.storage, &mut found.storage).unwrap()));
}
