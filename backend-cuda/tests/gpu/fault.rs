//! What goes wrong on a device or around it, and who goes on.

use std::time::{Duration, Instant};

use congruent_backend_api::ops::binary::BinaryOp;
use congruent_backend_api::{Backend, DType, ErrorKind};
use congruent_backend_cpu::Cpu;
use congruent_backend_cuda::Cuda;
use cudarc::driver::{CudaContext, LaunchConfig};
use cudarc::nvrtc::Ptx;

use crate::support::{Tensor, alone, binary, copy, cuda, get, increment, layout, put};

const TRAP: &str = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry trap() { trap; }\n";

/// Runs a kernel that traps, in the context that the backends of device 0 share.
fn trap() {
    let context = CudaContext::new(0).unwrap();
    let function = context.load_module(Ptx::from_src(TRAP)).unwrap().load_function("trap").unwrap();
    let stream = context.new_stream().unwrap();
    let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
    // SAFETY: the kernel takes no parameter and touches no memory.
    unsafe { stream.launch_builder(&function).launch(one) }.unwrap();
    assert!(stream.synchronize().is_err());
    // Their destructors would report the error again.
    std::mem::forget((function, stream));
}

#[test]
fn a_kernel_that_traps_loses_the_device() {
    if !alone("fault::a_kernel_that_traps_loses_the_device") {
        return;
    }
    let Some(cuda) = cuda() else { return };
    let other = (Cuda::device_count().unwrap() > 1).then(|| Cuda::new(1).unwrap());
    let other_x = other.as_ref().map(|other| put(other, &[1_i64, 2]));
    let second = cuda.fork().unwrap();
    let mut x = put(cuda, &[1.0_f32, 2.0]);
    let pending = cuda.start_upload(cuda.pinned::<f32>(2).unwrap(), &mut x, 0).unwrap();
    trap();
    // Every call says so, every time, and none hangs or panics.
    for _ in 0..3 {
        for (name, kind) in [
            ("synchronize", cuda.synchronize().unwrap_err().kind()),
            ("alloc", cuda.alloc(DType::F32, 10).unwrap_err().kind()),
            ("write", cuda.write(&[0; 4], &mut x, 0).unwrap_err().kind()),
            ("download", cuda.download(&x, 0, &mut [0; 4]).unwrap_err().kind()),
            ("the other stream", second.synchronize().unwrap_err().kind()),
        ] {
            assert_eq!(kind, ErrorKind::DeviceLost, "{name}");
        }
    }
    println!("{}", cuda.synchronize().unwrap_err());
    drop((x, pending, second));
    // Whether the driver keeps the contexts of other devices alive is its choice: they go on, or say the same.
    if let (Some(other), Some(x)) = (other, other_x) {
        match get::<i64>(&other, &x) {
            Ok(values) => assert_eq!(values, [1, 2]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}"),
        }
    }
    let cpu = Cpu::new();
    let mut storage = cpu.alloc(DType::U8, 2).unwrap();
    cpu.write(&[1, 2], &mut storage, 0).unwrap();
    let mut bytes = [0; 2];
    cpu.download(&storage, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2]);
}

#[cfg(unix)]
#[test]
fn a_forked_process_gets_an_error() {
    if !alone("fault::a_forked_process_gets_an_error") {
        return;
    }
    let Some(cuda) = cuda() else { return };
    let x = put(cuda, &[1_i32, 2]);
    let used = cuda.fork().unwrap();
    let y = put(&used, &[3_i32]);
    // SAFETY: the child below calls nothing that another thread could have locked for ever: glibc renews its allocator.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let lost = |result: congruent_backend_api::Result<()>| {
            result.is_err_and(|error| error.kind() == ErrorKind::DeviceLost && error.message().contains("fork"))
        };
        let told = [
            lost(cuda.synchronize()),
            lost(cuda.alloc(DType::F32, 10).map(drop)),
            lost(cuda.download(&x, 0, &mut [0; 8])),
            lost(cuda.fork().map(drop)),
            lost(cuda.memory_stats().map(drop)),
            lost(Cuda::new(0).map(drop)),
        ];
        drop((x, y, used));
        let failed = told.iter().position(|&told| !told).map_or(0, |index| index as i32 + 1);
        // SAFETY: the child ends here, without the parent's destructors.
        unsafe { libc::_exit(failed) };
    }
    let (start, mut status) = (Instant::now(), 0);
    // SAFETY: the child is this process's own, and one i32 is written.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if start.elapsed() > Duration::from_secs(20) {
            // SAFETY: the child is this process's own.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(status, 0, "the child's calls, from 1, or its signal");
    // The parent goes on.
    assert_eq!(get::<i32>(cuda, &x).unwrap(), [1, 2]);
    assert_eq!(get::<i32>(&used, &y).unwrap(), [3]);
}

/// Storages of a backend whose last handle is gone, and work on them that has not run.
#[test]
fn everything_may_be_dropped_while_work_is_queued() {
    let Some(first) = cuda() else { return };
    let len = 1 << 24;
    for round in 0..10 {
        let cuda = first.fork().unwrap();
        let mut x = Tensor { storage: cuda.alloc(DType::I64, len).unwrap(), layout: layout(&[len]) };
        (0..20).for_each(|_| increment(&cuda, &mut x));
        let copies = [copy(&cuda, &x), copy(first, &x)];
        if round % 2 == 0 {
            drop(cuda);
            drop(x);
        } else {
            drop(x);
            drop(cuda);
        }
        let [a, b] = copies.map(|copy| get::<i64>(first, &copy.storage).unwrap());
        assert!(a == b);
    }
}

/// An error of the data belongs to the backend, and leaves every storage as it should be.
#[test]
fn errors_of_the_data_leave_the_backend_usable() {
    let Some(first) = cuda() else { return };
    let cuda = first.fork().unwrap();
    for _ in 0..100 {
        let out = binary(&cuda, BinaryOp::Rem, &[7_i64, 8], &[0, 3]);
        assert_eq!(cuda.synchronize().unwrap_err().kind(), ErrorKind::DivisionByZero);
        assert_eq!(get::<i64>(&cuda, &out).unwrap(), [0, 2]);
    }
}
