//! Hand-checkable values, special values, layouts and errors on a real device. Without one each test prints why it is
//! skipped and passes.
//!
//! Under a sanitizer leave out what provokes errors of the driver, starts processes, or is large:
//! `compute-sanitizer --tool memcheck GPU_TEST --skip out_of_memory --skip more_than_two --skip memory:: --skip fault::
//! --skip library:: --skip cost:: --skip may_be_dropped_while_its_ops --skip two_streams --skip pinned_buffers_of_any`; the
//! same with `initcheck` and `synccheck`. On an H200 with CUDA 13 each reports no error. `racecheck` takes many minutes.

#![expect(clippy::unwrap_used, clippy::type_complexity, reason = "helpers of tests; tables of functions")]

mod backend;
mod binary;
mod compare;
mod conv;
mod copy;
mod cost;
mod curand;
mod custom;
mod fault;
mod graph;
mod index;
mod library;
mod linear;
mod matmul;
mod memory;
mod pool;
mod random;
mod reduce;
mod scan;
mod sort;
mod stream;
mod support;
mod transfer;
mod unary;
