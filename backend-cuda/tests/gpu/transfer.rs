//! Copies between host and device: ordinary slices, page-locked buffers, and their rates.

use std::thread;
use std::time::{Duration, Instant};

use congruent_backend_api::{Backend, DType, Element, ErrorKind, Storage};
use congruent_backend_cuda::Cuda;

use crate::support::{Tensor, cuda, get, increment, layout, put};

fn pattern(len: usize) -> Vec<i64> {
    (0..len as i64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed())).collect()
}

#[test]
fn slices_of_every_length_arrive() {
    let Some(cuda) = cuda() else { return };
    // Around the lengths where the way of copying changes, and where pieces end.
    let piece = (2 << 20) / 8;
    for len in [1, 1000, 65_535, 65_536, 65_537, piece, piece + 1, 4 * piece - 1, 33 * piece + 5] {
        let values = pattern(len);
        let mut storage = put(cuda, &values);
        assert_eq!(get::<i64>(cuda, &storage).unwrap(), values, "{len}");
        let part = &values[len / 3..];
        cuda.write(i64::as_bytes(part), &mut storage, 0).unwrap();
        let mut bytes = vec![0; part.len() * 8];
        cuda.download(&storage, 0, &mut bytes).unwrap();
        assert!(bytes == i64::as_bytes(part), "{len}");
    }
}

/// What is written may change at once, and a copy waits for the ops before it.
#[test]
fn copies_keep_the_order_of_ops() {
    let Some(cuda) = cuda() else { return };
    let len = 1 << 22;
    let mut x = Tensor::from_fn(cuda, &[len], |at| at as i64);
    let mut host = vec![0_i64; len];
    for round in 0..10 {
        host.iter_mut().enumerate().for_each(|(at, value)| *value = at as i64 * round);
        (0..5).for_each(|_| increment(cuda, &mut x));
        cuda.write(i64::as_bytes(&host), &mut x.storage, 0).unwrap();
        host.fill(-1);
        (0..5).for_each(|_| increment(cuda, &mut x));
        let expected = |(at, value): (usize, i64)| value == at as i64 * round + 5;
        assert!(get::<i64>(cuda, &x.storage).unwrap().into_iter().enumerate().all(expected));
    }
}

#[test]
fn threads_transfer_at_once() {
    let Some(cuda) = cuda() else { return };
    thread::scope(|scope| {
        for seed in 0..16 {
            scope.spawn(move || {
                let values: Vec<i64> = pattern(300_000 + seed).into_iter().map(|value| value ^ seed as i64).collect();
                for _ in 0..5 {
                    let storage = put(cuda, &values);
                    assert!(get::<i64>(cuda, &storage).unwrap() == values);
                }
            });
        }
    });
}

#[test]
fn pinned_buffers_are_slices_that_are_copied_in_order() {
    let Some(cuda) = cuda() else { return };
    let len = 1 << 22;
    let mut buffer = cuda.pinned::<i64>(len).unwrap();
    assert!(buffer.iter().all(|&element| element == 0));
    buffer.copy_from_slice(&pattern(len));
    let mut x = Tensor { storage: cuda.alloc(DType::I64, len).unwrap(), layout: layout(&[len]) };
    cuda.write(i64::as_bytes(&buffer), &mut x.storage, 0).unwrap();
    assert!(get::<i64>(cuda, &x.storage).unwrap() == *buffer);
    buffer.fill(5);
    let upload = cuda.start_upload(buffer, &mut x.storage, 0).unwrap();
    increment(cuda, &mut x);
    let download = cuda.start_download(&x.storage, 0, cuda.pinned::<i64>(len).unwrap()).unwrap();
    // After the copy in the order of the stream.
    increment(cuda, &mut x);
    assert!(upload.wait().unwrap().iter().all(|&element| element == 5));
    let buffer = download.wait().unwrap();
    assert!(buffer.iter().all(|&element| element == 6));
    assert!(get::<i64>(cuda, &x.storage).unwrap().into_iter().all(|element| element == 7));
    // Dropped while it runs; on another stream; a part.
    let second = cuda.fork().unwrap();
    drop(second.start_upload(buffer, &mut x.storage, 0).unwrap());
    let part = cuda.start_download(&x.storage, len - 3, second.pinned::<i64>(3).unwrap()).unwrap();
    drop(x);
    assert_eq!(part.wait().unwrap()[..], [6; 3]);
}

#[test]
fn pinned_buffers_of_any_dtype_and_length() {
    let Some(cuda) = cuda() else { return };
    let mut storage = put(cuda, &[true, false, true]);
    let truths = cuda.start_download(&storage, 0, cuda.pinned::<bool>(3).unwrap()).unwrap();
    assert!(truths.wait().unwrap()[..] == [true, false, true]);
    let nothing = cuda.pinned::<bool>(0).unwrap();
    assert!(nothing.is_empty());
    let copy = cuda.start_upload(nothing, &mut storage, 3).unwrap();
    assert!(copy.wait().unwrap().is_empty());
    let error = cuda.start_upload(cuda.pinned::<u8>(3).unwrap(), &mut storage, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DType, "{error}");
    let error = cuda.start_download(&storage, 1, cuda.pinned::<bool>(3).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    for len in [usize::MAX, usize::MAX / 16, 1 << 50] {
        assert_eq!(cuda.pinned::<f64>(len).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
    assert_eq!(storage.len(), 3);
}

/// Not a test of anything, so it runs only when asked for (`--ignored --nocapture`).
#[test]
#[ignore = "measures"]
fn transfer_rates() {
    let Some(cuda) = cuda() else { return };
    let report = |name: &str, bytes: usize, mut copy: Box<dyn FnMut() + '_>| {
        copy();
        cuda.synchronize().unwrap();
        let best = (0..5)
            .map(|_| {
                let start = Instant::now();
                copy();
                cuda.synchronize().unwrap();
                start.elapsed()
            })
            .min()
            .unwrap_or(Duration::ZERO);
        println!("{name}, {} MiB: {best:.2?}, {:.1} GB/s", bytes >> 20, bytes as f64 / best.as_secs_f64() / 1e9);
    };
    for mib in [1, 4, 16, 64, 1024] {
        let bytes = mib << 20;
        let mut storage = cuda.alloc(DType::U8, bytes).unwrap();
        let mut host = vec![1_u8; bytes];
        report("write of a slice", bytes, Box::new(|| cuda.write(&host, &mut storage, 0).unwrap()));
        report("download to a slice", bytes, Box::new(|| cuda.download(&storage, 0, &mut host).unwrap()));
        report("download to a new Vec", bytes, Box::new(|| drop(get::<u8>(cuda, &storage).unwrap())));
        let pinned = cuda.pinned::<u8>(bytes).unwrap();
        report("write of a pinned slice", bytes, Box::new(|| cuda.write(&pinned, &mut storage, 0).unwrap()));
        let mut pinned = Some(pinned);
        let upload = || {
            let buffer = pinned.take().unwrap();
            pinned = Some(cuda.start_upload(buffer, &mut storage, 0).unwrap().wait().unwrap());
        };
        report("start_upload", bytes, Box::new(upload));
        let download = || {
            let buffer = pinned.take().unwrap();
            pinned = Some(cuda.start_download(&storage, 0, buffer).unwrap().wait().unwrap());
        };
        report("start_download", bytes, Box::new(download));
        if Cuda::device_count().unwrap_or(0) > 1 {
            let other = Cuda::new(1).unwrap();
            let mut target = other.alloc(DType::U8, bytes).unwrap();
            let copy = || {
                other.receive(&storage, 0, &mut target).unwrap();
                other.synchronize().unwrap();
            };
            report("to another device", bytes, Box::new(copy));
        }
    }
}
