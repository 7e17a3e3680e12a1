//! Transfers, errors and threads.

use std::thread;

use congruent_backend_api::ops::binary::{Binary, BinaryOp};
use congruent_backend_api::ops::copy::Fill;
use congruent_backend_api::ops::reduce::{ArgReduce, ArgReduceOp, Reduce, ReduceOp};
use congruent_backend_api::ops::unary::{Unary, UnaryOp};
use congruent_backend_api::{
    Backend, BinaryOps, CopyOps, DType, Element, ErrorKind, ReduceOps, Scalar, Slice, Source, Storage, UnaryOps, View,
    f16,
};
use congruent_backend_cuda::Cuda;

use crate::support::{Tensor, binary, cuda, get, layout, put, unary};

#[test]
fn counting_devices_never_panics() {
    match Cuda::device_count() {
        Ok(count) => println!("{count} CUDA devices"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::LibraryNotFound);
            assert!(error.message().contains("libcuda.so"), "{error}");
        }
    }
    let error = Cuda::new(1000).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::LibraryNotFound | ErrorKind::Argument), "{error}");
}

#[test]
fn bits_survive_transfers() {
    let Some(cuda) = cuda() else { return };
    let values: Vec<f32> = [0x7fc0_1234, 0xffa5_5555, 0x8000_0000, 1, 0x7f80_0000].map(f32::from_bits).into();
    let mut storage = put(cuda, &values);
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    assert_eq!(bits(get(cuda, &storage).unwrap()), bits(values));
    cuda.write(f32::as_bytes(&[7.0, 8.0]), &mut storage, 3).unwrap();
    assert_eq!(get::<f32>(cuda, &storage).unwrap()[3..], [7.0, 8.0]);
    for (start, bytes) in [(4, 8), (0, 3), (6, 0), (usize::MAX, 4)] {
        assert_eq!(cuda.write(&vec![0; bytes], &mut storage, start).unwrap_err().kind(), ErrorKind::Argument);
        assert_eq!(cuda.download(&storage, start, &mut vec![0; bytes]).unwrap_err().kind(), ErrorKind::Argument);
    }
    let mut truths = cuda.alloc(DType::Bool, 3).unwrap();
    cuda.write(&[0, 200, 1], &mut truths, 0).unwrap();
    let mut bytes = [9; 3];
    cuda.download(&truths, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [0, 1, 1]);
}

#[test]
fn nothing_is_allocated_for_no_elements() {
    let Some(cuda) = cuda() else { return };
    let empty = cuda.alloc(DType::F64, 0).unwrap();
    assert_eq!((empty.len(), get::<f64>(cuda, &empty).unwrap().len()), (0, 0));
    assert_eq!(unary::<f32, f32>(cuda, UnaryOp::Exp, &[]), []);
    cuda.synchronize().unwrap();
}

#[test]
fn out_of_memory_leaves_the_backend_usable() {
    let Some(cuda) = cuda() else { return };
    for len in [1 << 45, usize::MAX / 8, usize::MAX] {
        let error = cuda.alloc(DType::F64, len).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        assert!(error.message().contains("bytes are free"), "{error}");
    }
    assert_eq!(unary::<f32, f32>(cuda, UnaryOp::Neg, &[1.0, -2.0]), [-1.0, 2.0]);
}

#[test]
fn a_division_by_zero_is_reported_once() {
    let Some(_) = cuda() else { return };
    // A backend of its own: tests run in threads, and the flag belongs to the backend.
    let cuda = &Cuda::new(0).unwrap();
    let out = binary(cuda, BinaryOp::Div, &[7_i32, i32::MIN, 5], &[2, -1, 0]);
    let error = get::<i32>(cuda, &out).unwrap_err();
    assert_eq!((error.kind(), error.op()), (ErrorKind::DivisionByZero, "download"));
    assert_eq!(get::<i32>(cuda, &out).unwrap(), [3, i32::MIN, 0]);
    let _ = binary(cuda, BinaryOp::Modulo, &[7_u8; 100], &[0; 100]);
    assert_eq!(cuda.synchronize().unwrap_err().kind(), ErrorKind::DivisionByZero);
    cuda.synchronize().unwrap();
}

/// Kernels in flight write the host's flag, so it must outlive them.
#[test]
fn a_backend_may_be_dropped_while_its_ops_run() {
    let Some(_) = cuda() else { return };
    for _ in 0..20 {
        let other = Cuda::new(0).unwrap();
        let layout = layout(&[1 << 24]);
        let mut x = other.alloc(DType::I64, layout.count()).unwrap();
        let view = View { dtype: DType::I64, layout: &layout };
        other.fill(&Fill::new(Scalar::Int(0), view).unwrap(), &mut x).unwrap();
        let plan = Binary::new(BinaryOp::Div, Source::Output, Source::Scalar(Scalar::Int(0)), view).unwrap();
        (0..10).for_each(|_| other.binary(&plan, None, None, &mut x).unwrap());
    }
}

#[test]
fn storages_may_be_dropped_on_another_thread_after_the_backend() {
    let Some(_) = cuda() else { return };
    let cuda = Cuda::new(0).unwrap();
    let x = Tensor::from_fn(&cuda, &[1000], |at| f16::from_f32(at as f32));
    thread::spawn(move || drop((cuda, x))).join().unwrap();
}

/// Elements beyond what 32-bit indices reach: a contiguous op, a strided one, and a reduction of each kind.
#[test]
fn more_than_two_to_the_32_elements() {
    let Some(cuda) = cuda() else { return };
    let len = (1_usize << 32) + 34;
    let (Ok(x), Ok(y)) = (cuda.alloc(DType::U8, len), cuda.alloc(DType::U8, len)) else {
        return println!("skipped: too little memory");
    };
    let (mut x, mut y) = (Tensor { storage: x, layout: layout(&[len]) }, Tensor { storage: y, layout: layout(&[len]) });
    cuda.fill(&Fill::new(Scalar::Int(3), x.view()).unwrap(), &mut x.storage).unwrap();
    cuda.write(&[9], &mut x.storage, len - 2).unwrap();
    let plan = Unary::new(UnaryOp::Square, Source::View(x.view()), y.view()).unwrap();
    cuda.unary(&plan, Some(&x.storage), &mut y.storage).unwrap();
    let at = |tensor: &Tensor, at: usize| {
        let mut byte = [0];
        cuda.download(&tensor.storage, at, &mut byte).unwrap();
        byte[0]
    };
    assert_eq!([0, 1 << 31, len - 3, len - 2, len - 1].map(|index| at(&y, index)), [9, 9, 9, 81, 9]);
    // Every second element, backwards: the odd ones are left.
    let even = x.layout.slice(0, Slice { start: Some(len as isize - 2), stop: None, step: -2 }).unwrap();
    let out = y.layout.slice(0, Slice { step: 2, ..Slice::FULL }).unwrap();
    let [even, out] = [&even, &out].map(|layout| View { dtype: DType::U8, layout });
    let plan = Unary::new(UnaryOp::Neg, Source::View(even), out).unwrap();
    cuda.unary(&plan, Some(&x.storage), &mut y.storage).unwrap();
    assert_eq!([0, 1, 2, len - 2, len - 1].map(|index| at(&y, index)), [247, 9, 253, 253, 9]);
    for (view, sum) in [(x.view(), (3 * len + 6) as u8), (even, (3 * len / 2 + 6) as u8)] {
        let mut total = Tensor::zeros::<u8>(cuda, &[]);
        let plan = Reduce::new(ReduceOp::Sum, view, None, total.view()).unwrap();
        cuda.reduce(&plan, &x.storage, &mut total.storage).unwrap();
        assert_eq!(total.to_vec::<u8>(cuda), [sum]);
    }
    let mut position = Tensor::zeros::<i64>(cuda, &[]);
    let plan = ArgReduce::new(ArgReduceOp::Argmax, x.view(), 0, position.view()).unwrap();
    cuda.arg_reduce(&plan, &x.storage, &mut position.storage).unwrap();
    assert_eq!(position.to_vec::<i64>(cuda), [len as i64 - 2]);
}
