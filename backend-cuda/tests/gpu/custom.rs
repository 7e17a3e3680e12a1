//! Kernels of a user: arguments of every type, and what is refused.

use congruent_backend_api::{Backend, DType, ErrorKind, bf16, f16};
use congruent_backend_cuda::{Cuda, Grid};

use crate::support::{cuda, get, put};

const SOURCE: &str = r#"
extern "C" __global__ void collect(double a, float b, unsigned short c, unsigned short d, long long e, int f, unsigned g,
                                   unsigned char h, bool i, const float* x, unsigned long long count, double* out) {
    unsigned long long at = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) out[at] = a + b + c + d + e + f + g + h + i + x[at];
}
extern "C" __global__ void shared_sum(const int* x, int* out) {
    extern __shared__ int part[];
    part[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (unsigned i = 0; i < blockDim.x; i++) sum += part[i];
        *out = sum;
    }
}
"#;

#[test]
fn arguments_of_every_type_arrive() {
    let Some(cuda) = cuda() else { return };
    let kernel = cuda.compile(SOURCE, &["--std=c++17"]).unwrap().kernel("collect").unwrap();
    let x = put(cuda, &[9.0_f32, 1.0, 2.0, 3.0]);
    let mut out = put(cuda, &[0.0_f64; 5]);
    let launch = kernel
        .launch(Grid::covering(3, 2))
        .scalar(1.5_f64)
        .scalar(0.25_f32)
        .scalar(f16::from_bits(3))
        .scalar(bf16::from_bits(4))
        .scalar(-10_i64)
        .scalar(100_i32)
        .scalar(1000_u32)
        .scalar(7_u8)
        .scalar(true)
        .input::<f32>(&x, 1, 3)
        .and_then(|launch| launch.size(3).output::<f64>(&mut out, 2, 3))
        .unwrap();
    // SAFETY: the types are those of `collect`, which touches three elements from each address.
    unsafe { launch.run() }.unwrap();
    let sum = 1.5 + 0.25 + 3.0 + 4.0 - 10.0 + 100.0 + 1000.0 + 7.0 + 1.0;
    assert_eq!(get::<f64>(cuda, &out).unwrap(), [0.0, 0.0, sum + 1.0, sum + 2.0, sum + 3.0]);
}

#[test]
fn what_can_be_checked_is_refused() {
    let Some(cuda) = cuda() else { return };
    let error = cuda.compile("extern \"C\" __global__ void k() { undeclared(); }", &[]).unwrap_err();
    assert!(error.message().contains("undeclared"), "{error}");
    let module = cuda.compile(SOURCE, &[]).unwrap();
    assert_eq!(module.kernel("missing").unwrap_err().kind(), ErrorKind::Argument);
    let kernel = module.kernel("shared_sum").unwrap();
    let x = put(cuda, &[1_i32; 64]);
    let mut out = put(cuda, &[0_i32]);
    let grid = Grid { blocks: [1; 3], threads: [64, 1, 1], shared_bytes: 256 };
    let launch = |grid| kernel.launch(grid);
    assert_eq!(launch(grid).input::<f32>(&x, 0, 64).unwrap_err().kind(), ErrorKind::DType);
    for (start, len) in [(0, 65), (65, 0), (1, usize::MAX)] {
        assert_eq!(launch(grid).input::<i32>(&x, start, len).unwrap_err().kind(), ErrorKind::Argument);
    }
    // Memory of another stream of the device will do.
    let other = put(&Cuda::new(0).unwrap(), &[1_i32]);
    drop(launch(grid).input::<i32>(&other, 0, 1).unwrap());
    let mut run = |grid| {
        let launch = launch(grid).input::<i32>(&x, 0, 64).unwrap().output::<i32>(&mut out, 0, 1).unwrap();
        // SAFETY: the types are those of `shared_sum`, which reads an element for each thread, of which there are at most 64,
        // has shared memory for them, and writes one.
        unsafe { launch.run() }
    };
    for (threads, shared_bytes) in [([0, 1, 1], 256), ([2048, 1, 1], 8192), ([64, 1, 1], 1 << 24)] {
        assert_eq!(run(Grid { threads, shared_bytes, ..grid }).unwrap_err().kind(), ErrorKind::Argument);
    }
    run(Grid { blocks: [0, 1, 1], ..grid }).unwrap();
    run(Grid { shared_bytes: 64 << 10, ..grid }).unwrap();
    assert_eq!(get::<i32>(cuda, &out).unwrap(), [64]);
    // SAFETY: nothing is launched without arguments.
    let error = unsafe { launch(grid).run() };
    println!("without arguments: {}", error.unwrap_err());
}

#[test]
fn handles_for_other_libraries() {
    let Some(cuda) = cuda() else { return };
    assert!(!cuda.raw_stream().is_null() && !cuda.raw_context().is_null());
    cuda.make_current().unwrap();
    let mut storage = put(cuda, &[1_u8; 3]);
    assert!(storage.device_address() != 0 && storage.device_address_mut() == storage.device_address());
    assert_eq!(cuda.alloc(DType::F32, 0).unwrap().device_address(), 0);
}
