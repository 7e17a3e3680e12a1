//! Hand-checkable values, special values, layouts and errors on a real device. Without one each test prints why it is
//! skipped and passes.

#![expect(clippy::unwrap_used, clippy::type_complexity, reason = "helpers of tests; tables of functions")]

mod backend;
mod binary;
mod compare;
mod copy;
mod cost;
mod custom;
mod index;
mod linear;
mod matmul;
mod reduce;
mod scan;
mod sort;
mod support;
mod unary;
