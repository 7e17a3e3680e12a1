//! The op families, one file each.

mod arg_reduce;
mod binary;
mod compare;
mod copy;
mod fold;
mod matmul;
mod reduce;
mod unary;

use congruent_backend_api::StatisticOps;

use crate::backend::Cpu;

// The provided composition runs on the ops of this backend.
impl StatisticOps for Cpu {}
