//! A kernel of one's own on tensors: y = a·x + y with a gate, in one pass. Needs a GPU.
//!
//! `cargo run -p congruent-backend-cuda --example custom_kernel`

use std::sync::Arc;

use congruent::{DType, Error, ErrorKind, Result, Tensor};
use congruent_backend_cuda::{Cuda, Grid};

const SOURCE: &str = r#"
extern "C" __global__ void gated_axpy(float a, const float* x, const float* gate, float* y, unsigned long long count) {
    unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
        y[i] += a * x[i] / (1.0f + expf(-gate[i]));
    }
}
"#;

/// `y + a · x · sigmoid(gate)` for contiguous tensors of f32.
fn gated_axpy(cuda: &Arc<Cuda>, a: f32, [x, gate, y]: [&Tensor<Cuda>; 3]) -> Result<Tensor<Cuda>> {
    if [x, gate, y].iter().any(|tensor| !tensor.is_contiguous() || tensor.shape() != y.shape()) {
        return Err(Error::new(ErrorKind::Shape, "gated_axpy", "the tensors must be contiguous and of one shape"));
    }
    // Compiled once in a lifetime of the cache; a program would keep the kernel.
    let kernel = cuda.compile(SOURCE, &[])?.kernel("gated_axpy")?;
    let count = y.count();
    let mut result = y.copy()?;
    let out = result.storage_mut().ok_or_else(|| Error::new(ErrorKind::Argument, "gated_axpy", "a copy is shared"))?;
    let launch = kernel
        .launch(Grid::covering(count, 256))
        .scalar(a)
        .input::<f32>(x.storage(), x.layout().offset(), count)?
        .input::<f32>(gate.storage(), gate.layout().offset(), count)?
        .output::<f32>(out, 0, count)?
        .size(count);
    // SAFETY: the kernel's parameters are a float, two addresses to read and one to write, and a count; it touches `count`
    // elements of each.
    unsafe { launch.run() }?;
    Ok(result)
}

fn main() -> Result<()> {
    let cuda = match Cuda::new(0) {
        Ok(cuda) => Arc::new(cuda),
        Err(error) => {
            println!("no CUDA here: {error}");
            return Ok(());
        }
    };
    let x = Tensor::arange(&cuda, 0..8, DType::F32)?.reshape([2, 4])?;
    let gate = Tensor::zeros(&cuda, [2, 4], DType::F32)?;
    let y = Tensor::ones(&cuda, [2, 4], DType::F32)?;
    println!("{}", gated_axpy(&cuda, 2.0, [&x, &gate, &y])?);
    Ok(())
}
