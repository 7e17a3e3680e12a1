//! The CUDA backend's verdict on every op and dtype; without a device it says why there is none.

use congruent_backend_cuda::Cuda;
use congruent_conformance::trials::Harness;

fn main() {
    match Cuda::device_count() {
        Ok(0) => eprintln!("skipped: no CUDA device"),
        Ok(_) => Harness::new("cuda:0", || Cuda::new(0)).cases(32).run(),
        Err(error) => eprintln!("skipped: {error}"),
    }
}
