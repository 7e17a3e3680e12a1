//! What is allocated, kept, given back; that nothing leaks.

use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::ops::unary::UnaryOp;
use congruent_backend_api::{Backend, DType, ErrorKind, MatmulOps, Scalar, Storage};
use congruent_backend_cuda::Cuda;

use crate::support::{Tensor, alone, copy, cuda, layout, unary};

#[test]
fn memory_stats_count_what_storages_hold() {
    let Some(cuda) = cuda() else { return };
    let held = cuda.alloc(DType::U8, 1 << 28).unwrap();
    let stats = cuda.memory_stats().unwrap();
    println!("{stats:?}");
    assert!(stats.in_use >= held.len() as u64 && stats.reserved >= stats.in_use, "{stats:?}");
    assert!(stats.free < stats.total && stats.reserved <= stats.total, "{stats:?}");
}

#[test]
fn the_peak_counts_from_its_reset_and_trim_gives_back() {
    const GIB: u64 = 1 << 30;
    if !alone("memory::the_peak_counts_from_its_reset_and_trim_gives_back") {
        return;
    }
    let Some(cuda) = cuda() else { return };
    let kept = cuda.alloc(DType::U8, 1000).unwrap();
    drop(cuda.alloc(DType::U8, GIB as usize).unwrap());
    cuda.synchronize().unwrap();
    let stats = cuda.memory_stats().unwrap();
    assert!(stats.peak >= GIB && stats.reserved >= GIB && stats.in_use < GIB, "{stats:?}");
    cuda.reset_peak().unwrap();
    assert_eq!(cuda.memory_stats().unwrap().peak, stats.in_use);
    cuda.trim().unwrap();
    let trimmed = cuda.memory_stats().unwrap();
    assert!(trimmed.reserved < GIB && trimmed.in_use == stats.in_use, "{trimmed:?}");
    assert_eq!(kept.len(), 1000);
}

/// Other programs and tests on the device would run out of memory, so it runs only when asked for (`--ignored`).
#[test]
#[ignore = "takes most of the device"]
fn memory_that_does_not_fit_leaves_room_for_what_does() {
    if !alone("memory::memory_that_does_not_fit_leaves_room_for_what_does") {
        return;
    }
    let Some(cuda) = cuda() else { return };
    let stats = cuda.memory_stats().unwrap();
    let half = cuda.alloc(DType::U8, stats.free as usize / 2).unwrap();
    let error = cuda.alloc(DType::U8, stats.free as usize * 3 / 4).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.message().contains(&stats.total.to_string()), "{error}");
    assert_eq!(unary::<f32, f32>(cuda, UnaryOp::Neg, &[1.0]), [-1.0]);
    // Dropped on another stream, and not yet run.
    let second = cuda.fork().unwrap();
    let reader = Tensor { layout: layout(&[half.len()]), storage: half };
    drop(reader);
    drop(second.alloc(DType::U8, stats.free as usize * 3 / 4).unwrap());
    drop(cuda.alloc(DType::U8, stats.free as usize * 3 / 4).unwrap());
}

#[test]
fn a_million_allocations() {
    if !alone("memory::a_million_allocations") {
        return;
    }
    let Some(cuda) = cuda() else { return };
    let start = cuda.memory_stats().unwrap();
    let mut kept = Vec::new();
    for index in 0..1_000_000_usize {
        let storage = cuda.alloc(DType::F32, 1 + index * 7919 % 100_000).unwrap();
        if index % 1000 == 0 {
            kept.push(storage);
        }
    }
    cuda.synchronize().unwrap();
    let stats = cuda.memory_stats().unwrap();
    assert!(stats.in_use > start.in_use && stats.reserved < 4 << 30, "{stats:?}");
    drop(kept);
    cuda.synchronize().unwrap();
    assert_eq!(cuda.memory_stats().unwrap().in_use, start.in_use);
}

/// Ops, temporaries, errors, streams and transfers, dropped in every order.
#[test]
fn nothing_leaks() {
    if !alone("memory::nothing_leaks") {
        return;
    }
    let Some(first) = cuda() else { return };
    // What is made once and kept (kernels, cuBLAS's handle) is not taken from the pool.
    let start = first.memory_stats().unwrap();
    for round in 0..20 {
        let cuda = if round % 2 == 0 { first.fork().unwrap() } else { Cuda::new(0).unwrap() };
        let x = Tensor::from_fn(&cuda, &[300, 400], |at| at as f32);
        // Strides that BLAS cannot express, so that operands and output are copied.
        let b = Tensor::from_fn(&cuda, &[400, 600], |at| at as f32).with(|b| b.flip(&[0]).unwrap());
        let mut out = Tensor::zeros::<f32>(&cuda, &[300, 600]).with(|out| out.flip(&[1]).unwrap());
        let plan = Matmul::new(x.view(), b.view(), Scalar::Float(1.0), Scalar::Float(0.5), out.view()).unwrap();
        cuda.matmul(&plan, &x.storage, &b.storage, &mut out.storage).unwrap();
        let foreign = copy(first, &out);
        assert!(cuda.alloc(DType::F64, 1 << 45).is_err());
        let buffer = cuda.pinned::<f32>(1 << 20).unwrap();
        let mut storage = cuda.alloc(DType::F32, 1 << 20).unwrap();
        let copy = cuda.start_upload(buffer, &mut storage, 0).unwrap();
        match round % 3 {
            0 => drop((cuda, x, b, out, storage, foreign, copy)),
            1 => drop((foreign, storage, copy, out, x, b, cuda)),
            _ => drop((copy, storage, cuda, foreign, x, out, b)),
        }
    }
    first.synchronize().unwrap();
    first.trim().unwrap();
    assert_eq!(first.memory_stats().unwrap().in_use, start.in_use);
}
