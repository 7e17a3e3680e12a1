//! Congruent's CPU backend: every op, dtype and layout of the [contract](congruent_backend_api), in safe Rust.
//!
//! - [`ndarray`] walks strided memory: views over this crate's buffers, never the storage type itself. Its matrix
//!   product is the portable SIMD kernels of `matrixmultiply`, but of a matrix and a few vectors the crate's own loops.
//! - [`fearless_simd`] compiles inner loops for AVX2 and AVX-512 too and chooses at run time. Results are the same bits at every
//!   level; `CONGRUENT_SIMD=baseline` or `=avx2` in the environment lowers it.
//! - The elementary functions that models call most are computed side by side in these loops, the others by [`pxfm`];
//!   f16 and bf16 are widened to f32 in blocks.
//! - [`rayon`] spreads large calls over its current thread pool: run a backend inside
//!   [`ThreadPool::install`](rayon::ThreadPool::install) to choose the number of threads. Results do not depend on it.
//!
//! # Example
//! ```
//! use congruent_backend_api::{Backend, DType};
//! use congruent_backend_cpu::Cpu;
//!
//! let cpu = Cpu::new();
//! let mut storage = cpu.alloc(DType::U8, 3)?;
//! cpu.write(&[1, 2, 3], &mut storage, 0)?;
//! let mut bytes = [0; 2];
//! cpu.download(&storage, 1, &mut bytes)?;
//! assert_eq!(bytes, [2, 3]);
//! # Ok::<(), congruent_backend_api::Error>(())
//! ```

#![forbid(unsafe_code)]

mod backend;
mod lane;
mod loops;
mod math;
mod ops;
mod pool;
mod simd;
mod storage;
#[cfg(test)]
mod testing;

pub use backend::Cpu;
pub use storage::CpuStorage;
