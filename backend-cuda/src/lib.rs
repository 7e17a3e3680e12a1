//! The CUDA backend of [Congruent](congruent_backend_api): the driver, NVRTC, cuBLAS and cuDNN through cudarc. It builds on a
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
//! 3. `kernels.rs` finds the function `exp_f32`. At first use it compiles the module `unary2_f32`, which is
//!    `common.cuh`, `elementwise.cuh` and part 2 of `ops/unary.cu`, for the device (`compile.rs`), unless the disk cache has it
//!    (`cache.rs`).
//! 4. `ops/elementwise.rs` decides how its operands are walked, and `launch.rs` starts it on the backend's stream.
//!    `ops/unary.cu` says what one element becomes; the loops over elements are in `elementwise.cuh`.
//!
//! Reductions go through `ops/reduce.rs` and `reduce.cu`, float matrix products through `ops/matmul.rs` and `blas.rs`.
//! `unsafe` stands where a library is called: `launch.rs`, `storage.rs`, `transfer.rs`, `pinned.rs`, `peer.rs`,
//! `memory.rs`, `flag.rs`, `graph.rs`, `cublas.rs`, `cublaslt.rs`, `cudnn.rs`, `cudnn/descriptor.rs`, `compile.rs`,
//! `custom.rs`, and few lines in `device.rs`, `stream.rs`,
//! `error.rs` and `fork.rs`; and where `ops/` starts a kernel or a product and says why its addresses hold.
//!
//! # Order, threads, errors
//!
//! A backend is a stream: its work runs in the order of the calls, from however many threads they come. Memory comes from
//! the device's pool and returns to it in stream order; nothing waits for the device but `download`, `synchronize`,
//! [`Cuda::trim`], and an allocation that failed once.
//!
//! [`Cuda::fork`] makes a second stream of the same device, beside the first. Storages may be used by every stream of
//! their device: reads, writes and the release of a storage are ordered on the device, at no cost while one stream alone
//! uses it (`stream.rs`). [`Cuda::record`], [`Cuda::wait_for`] and [`Event::wait`] order what no storage connects. Another
//! device is another memory: `receive`, which the frontend's `to_backend` calls, copies between devices directly.
//!
//! A kernel reports what only the data shows, such as a division by zero, through a word of host memory, which costs
//! nothing until it happens. The first synchronising call of the backend that stands behind the op in the order of the
//! stream returns the error, once, on whichever thread that is; threads that want errors of their own take a fork each.
//!
//! After a kernel that traps, every call on that device is
//! [`DeviceLost`](congruent_backend_api::ErrorKind::DeviceLost) until the process ends, and, as the driver sees fit, on the
//! other devices of the process (so it was on H200s with CUDA 13); the CPU and other processes go on.
//! So is every call in a child that was forked (`fork(2)`) off a process which had opened a device.
//!
//! # Graphs
//!
//! [`Cuda::capture`] records the ops of a closure on tensors that are there already, and [`Graph::replay`] starts them
//! together, at a few microseconds of the host for all; on an H200, an addition of 4 elements takes 1.3 µs in a replay
//! (`cargo test --release --test gpu cost_of_a_small_op_in_a_replay -- --ignored --nocapture`). `graph.rs` says what a
//! graph may name.
//!
//! # Host memory
//!
//! Ordinary slices are copied through page-locked buffers by several threads, page-locked ones ([`Cuda::pinned`])
//! directly, and [`Cuda::start_upload`] and [`Cuda::start_download`] don't wait; `transfer.rs` has the figures.
//!
//! # Products without cuBLAS
//!
//! Where cuBLAS or cuBLASLt is missing, or only the toolkit's stub is found, float products run in the plain kernel of
//! `matmul.cu`: right, and slower by far. [`Cuda::has_blas`] tells.
//!
//! # Convolutions without cuDNN
//!
//! Convolutions go to cuDNN where it is installed: to engines that are deterministic and sum in f32 or wider, never to Winograd
//! or Fourier transforms. Without it, where it has no engine, and for gradients by the weight they are products of matrices,
//! within the same bounds; depthwise ones, and kernels of one tap, never need it. [`Cuda::has_cudnn`] tells, and [`CudaBuilder::cudnn`] turns it off.
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
//! `CONGRUENT_CUDNN=0` leaves cuDNN alone, as if it were not installed.
//! `CONGRUENT_NVRTC` names an NVRTC library (`…/libnvrtc.so.13`) for a system whose loader finds none.

mod blas;
mod cache;
mod compile;
mod cublas;
mod cublaslt;
mod cudnn;
mod custom;
mod device;
mod error;
mod flag;
mod fork;
mod graph;
pub mod kernels;
mod launch;
mod memory;
mod nest;
mod ops;
mod peer;
mod pinned;
mod storage;
mod stream;
mod transfer;

pub use custom::{CustomKernel, Grid, Launch, Module};
pub use device::{Cuda, CudaBuilder};
pub use graph::Graph;
pub use memory::MemoryStats;
pub use pinned::{Pinned, Transfer};
pub use storage::CudaStorage;
pub use stream::Event;
