//! The CUDA backend of [Congruent](congruent_backend_api): the driver, NVRTC and cuBLAS through cudarc. It builds on a
//! machine without CUDA, and loads each library when it is first needed; a missing one is
//! [`LibraryNotFound`](congruent_backend_api::ErrorKind::LibraryNotFound), never a panic.
//!
//! # How an op runs
//!
//! `exp` of an f32 tensor, from the top:
//!
//! 1. The frontend's `exp` builds a plan, [`Unary`](congruent_backend_api::ops::unary::Unary): dtypes checked, loops
//!    canonical.
//! 2. `ops/unary.rs` implements [`UnaryOps`](congruent_backend_api::UnaryOps): it checks the plan against the storages
//!    and fills the structure that the kernel takes (`ops/mod.rs`; the structures are in `launch.rs`).
//! 3. `kernels.rs` finds the function `exp_f32`. At first use it compiles the module `unary_f32`, which is `common.cuh`
//!    followed by `ops/unary.cu`, for the device (`compile.rs`), unless the disk cache has it (`cache.rs`).
//! 4. `launch.rs` starts it on the backend's stream. `ops/unary.cu` says what one element becomes; the loop over
//!    elements is `elementwise` in `common.cuh`.
//!
//! Reductions go through `ops/reduce.rs` and `reduce.cu`, float matrix products through `ops/matmul.rs` and `blas.rs`.
//! `unsafe` stands where a library is called: `launch.rs`, `storage.rs`, `memory.rs`, `cublas.rs`, `cublaslt.rs`,
//! `compile.rs`, `custom.rs`, and few lines in `device.rs` and `error.rs`; and where `ops/` starts a kernel or a product and says why its addresses hold.
//!
//! # Order, threads, errors
//!
//! A backend has one stream, so its work runs in the order of the calls, from however many threads they come. Memory
//! comes from the device's pool and returns to it in stream order; nothing waits for the device but `download`,
//! `synchronize`, and an allocation that failed once. A kernel reports a division by zero through a word of host
//! memory, which costs nothing until it happens.
//!
//! # Products without cuBLAS
//!
//! Where cuBLAS or cuBLASLt is missing, or only the toolkit's stub is found, float products run in the plain kernel of
//! `matmul.cu`: right, and slower by far. [`Cuda::has_blas`] tells.
//!
//! # Your own kernels, and other CUDA libraries
//!
//! [`Cuda::compile`] takes CUDA C++ and [`CustomKernel::launch`] runs it on storages, with checked arguments and in the
//! order of the backend's calls; `examples/custom_kernel.rs` does so on tensors. Other libraries get the backend's
//! [stream](Cuda::raw_stream), [context](Cuda::raw_context) and [addresses](CudaStorage::device_address): what is enqueued
//! on that stream is ordered with all other work of the backend. Storages are freed in the order of that stream, so work on
//! another one must be waited for before the storage is dropped.
//!
//! # Environment
//!
//! `CONGRUENT_CACHE_DIR` is where compiled kernels are kept; the default is `congruent` in the user's cache directory.
//! `CONGRUENT_NVRTC` names an NVRTC library (`…/libnvrtc.so.13`) for a system whose loader finds none.

mod blas;
mod cache;
mod compile;
mod cublas;
mod cublaslt;
mod custom;
mod device;
mod error;
pub mod kernels;
mod launch;
mod memory;
mod ops;
mod storage;

pub use custom::{CustomKernel, Grid, Launch, Module};
pub use device::{Cuda, CudaBuilder};
pub use memory::MemoryStats;
pub use storage::CudaStorage;
