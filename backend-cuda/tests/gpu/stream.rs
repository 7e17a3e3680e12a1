//! Threads, streams and devices: what one of them does is ordered behind what another did to the same memory.

use std::thread;
use std::time::Duration;

use congruent_backend_api::ops::binary::{Binary, BinaryOp};
use congruent_backend_api::ops::copy::Fill;
use congruent_backend_api::ops::unary::{Unary, UnaryOp};
use congruent_backend_api::{Backend, BinaryOps, CopyOps, DType, ErrorKind, Scalar, Source, UnaryOps};
use congruent_backend_cuda::Cuda;

use crate::support::{Tensor, binary, copy, cuda, get, increment, layout};

/// Large enough that an op takes much longer than starting it.
const LARGE: usize = 1 << 23;

fn filled(cuda: &Cuda, len: usize, value: i64) -> Tensor {
    let mut x = Tensor { storage: cuda.alloc(DType::I64, len).unwrap(), layout: layout(&[len]) };
    cuda.fill(&Fill::new(Scalar::Int(value), x.view()).unwrap(), &mut x.storage).unwrap();
    x
}

fn is_all(cuda: &Cuda, x: &Tensor, value: i64) -> bool {
    get::<i64>(cuda, &x.storage).unwrap().into_iter().all(|element| element == value)
}

#[test]
fn sixteen_threads_share_a_backend() {
    let Some(cuda) = cuda() else { return };
    thread::scope(|scope| {
        for seed in 0..16_usize {
            scope.spawn(move || {
                for round in 0..50 {
                    let count = 1 + (seed * 7919 + round * 104_729) % 50_000;
                    let x = Tensor::from_fn(cuda, &[count], |at| (at + seed) as f64);
                    let mut y = Tensor::zeros::<f64>(cuda, &[count]);
                    let plan = Unary::new(UnaryOp::Square, Source::View(x.view()), y.view()).unwrap();
                    cuda.unary(&plan, Some(&x.storage), &mut y.storage).unwrap();
                    let plan = Binary::new(BinaryOp::Add, Source::Output, Source::View(x.view()), y.view()).unwrap();
                    cuda.binary(&plan, None, Some(&x.storage), &mut y.storage).unwrap();
                    drop(x);
                    let value = |at: usize| ((at + seed) * (at + seed + 1)) as f64;
                    assert!(y.to_vec::<f64>(cuda).into_iter().enumerate().all(|(at, y)| y == value(at)));
                }
            });
        }
    });
}

#[test]
fn two_streams_exchange_tensors() {
    let Some(first) = cuda() else { return };
    for second in [first.fork().unwrap(), Cuda::new(0).unwrap()] {
        for round in 0..3 {
            // Written by the first, read by the second.
            let mut x = filled(first, LARGE, round);
            (0..10).for_each(|_| increment(first, &mut x));
            let before = copy(&second, &x);
            // Written again by the first while the second may still read.
            (0..10).for_each(|_| increment(first, &mut x));
            // Written by the second while the first may still read or write.
            let between = copy(first, &x);
            (0..10).for_each(|_| increment(&second, &mut x));
            let after = copy(first, &x);
            // Released while the second uses it, and the memory used again.
            let last = copy(&second, &x);
            drop(x);
            let other = filled(first, LARGE, -1);
            for (x, value) in [(&before, 10), (&between, 20), (&after, 30), (&last, 30)] {
                assert!(is_all(first, x, round + value), "{value}");
                assert!(is_all(&second, x, round + value), "{value}");
            }
            assert!(is_all(first, &other, -1));
            // Outlives its stream.
            drop(second.clone());
        }
    }
}

#[test]
fn the_second_stream_may_end_first() {
    let Some(first) = cuda() else { return };
    let second = first.fork().unwrap();
    let mut x = filled(&second, LARGE, 0);
    (0..10).for_each(|_| increment(&second, &mut x));
    drop(second);
    increment(first, &mut x);
    assert!(is_all(first, &x, 11));
}

/// Readers on many threads and streams, one writer after them.
#[test]
fn many_streams_read_one_tensor() {
    let Some(first) = cuda() else { return };
    let mut x = filled(first, 1 << 20, 0);
    for round in 1..20 {
        increment(first, &mut x);
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let stream = first.fork().unwrap();
                    let copies = [copy(&stream, &x), copy(first, &x)];
                    assert!(copies.iter().all(|copy| is_all(&stream, copy, round)));
                });
            }
        });
    }
}

#[test]
fn events_order_and_are_waited_for() {
    let Some(first) = cuda() else { return };
    let second = first.fork().unwrap();
    let mut x = filled(first, LARGE, 0);
    (0..20).for_each(|_| increment(first, &mut x));
    let event = first.record().unwrap();
    second.wait_for(&event).unwrap();
    second.synchronize().unwrap();
    assert!(event.is_done().unwrap());
    let event = first.record().unwrap();
    event.wait().unwrap();
    assert!(event.is_done().unwrap() && is_all(first, &x, 20));
    assert!(first.record().unwrap().wait().is_ok());
}

#[test]
fn a_stream_has_options_and_errors_of_its_own() {
    let Some(first) = cuda() else { return };
    let [first, second] = [first.fork().unwrap(), first.fork().unwrap()];
    assert_eq!(first.name(), second.name());
    let out = binary(&first, BinaryOp::Div, &[1_i32], &[0]);
    second.synchronize().unwrap();
    assert_eq!(get::<i32>(&second, &out).unwrap(), [0]);
    assert_eq!(first.synchronize().unwrap_err().kind(), ErrorKind::DivisionByZero);
    first.synchronize().unwrap();
}

/// Which thread gets the error of a shared backend is open, but it is not lost, and it does not come back.
#[test]
fn threads_share_the_error_of_their_backend() {
    let Some(_) = cuda() else { return };
    let cuda = &Cuda::new(0).unwrap();
    // How many errors were reported until the result came.
    let divide = |divisor: i32| {
        let out = binary(cuda, BinaryOp::Div, &[6; 10_000], &[divisor; 10_000]);
        let expected = [6_i32.checked_div(divisor).unwrap_or(0); 10_000];
        (0..100)
            .find(|_| match get::<i32>(cuda, &out) {
                Ok(results) => results == expected,
                Err(error) => error.kind() != ErrorKind::DivisionByZero,
            })
            .unwrap()
    };
    for _ in 0..50 {
        let reported: i32 = thread::scope(|scope| {
            [0, 1, 2, 0]
                .map(|divisor| scope.spawn(move || divide(divisor)))
                .map(|thread| thread.join().unwrap())
                .iter()
                .sum()
        });
        assert!(reported > 0);
        cuda.synchronize().unwrap();
    }
}

/// An op whose kernel reports for a while is reported by one call only, although another thread waits all the time.
#[test]
fn one_op_is_reported_once() {
    let Some(cuda) = cuda() else { return };
    let cuda = &cuda.fork().unwrap();
    let mut x = filled(cuda, LARGE, 7);
    for _ in 0..30 {
        let divisor = Source::Scalar(Scalar::Int(0));
        let plan = Binary::new(BinaryOp::Div, Source::Output, divisor, x.view()).unwrap();
        let reports = |calls: usize| (0..calls).filter(|_| cuda.synchronize().is_err()).count();
        let total = thread::scope(|scope| {
            let others = [(); 3].map(|()| scope.spawn(|| reports(20)));
            thread::sleep(Duration::from_micros(50));
            cuda.binary(&plan, None, None, &mut x.storage).unwrap();
            let own = reports(2);
            own + others.map(|other| other.join().unwrap()).iter().sum::<usize>()
        });
        assert_eq!(total + reports(2), 1);
    }
}

#[test]
fn two_devices_exchange_tensors() {
    if Cuda::device_count().unwrap_or(0) < 2 {
        return println!("skipped: fewer than two CUDA devices");
    }
    let devices = [0, 1].map(|ordinal| Cuda::new(ordinal).unwrap());
    for (from, to) in [(0, 1), (1, 0)].map(|(from, to)| (&devices[from], &devices[to])) {
        for round in 0..3 {
            let mut x = filled(from, LARGE, round);
            (0..10).for_each(|_| increment(from, &mut x));
            let mut out = Tensor { storage: to.alloc(DType::I64, LARGE - 3).unwrap(), layout: layout(&[LARGE - 3]) };
            assert!(to.receive(&x.storage, 3, &mut out.storage).unwrap());
            // Overwritten and released while it is copied.
            increment(from, &mut x);
            assert!(is_all(from, &x, round + 11));
            drop(x);
            increment(to, &mut out);
            assert!(is_all(to, &out, round + 11));
            let error = from.download(&out.storage, 0, &mut [0; 8]).unwrap_err();
            assert!(error.kind() == ErrorKind::Argument && error.message().contains("to_backend"), "{error}");
        }
        // Another thread, which has neither context yet.
        let x = filled(from, 1000, 5);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut out = Tensor { storage: to.alloc(DType::I64, 1000).unwrap(), layout: layout(&[1000]) };
                assert!(to.receive(&x.storage, 0, &mut out.storage).unwrap());
                assert!(is_all(to, &out, 5));
            });
        });
    }
}

#[test]
fn receiving_checks_its_arguments() {
    let Some(cuda) = cuda() else { return };
    let second = cuda.fork().unwrap();
    let x = filled(cuda, 10, 3);
    let mut out = second.alloc(DType::I64, 4).unwrap();
    assert!(second.receive(&x.storage, 6, &mut out).unwrap());
    assert_eq!(get::<i64>(&second, &out).unwrap(), [3; 4]);
    assert_eq!(second.receive(&x.storage, 7, &mut out).unwrap_err().kind(), ErrorKind::Argument);
    let mut floats = second.alloc(DType::F64, 4).unwrap();
    assert_eq!(second.receive(&x.storage, 0, &mut floats).unwrap_err().kind(), ErrorKind::DType);
    assert!(!second.receive(&"a storage of nobody", 0, &mut out).unwrap());
    let mut nothing = second.alloc(DType::I64, 0).unwrap();
    assert!(second.receive(&x.storage, 10, &mut nothing).unwrap());
}
