//! Tensors that are generic over a backend: numeric code is written once and runs on the CPU and on CUDA, with
//! results that agree.
//!
//! ```
//! # fn main() -> congruent::Result<()> {
//! use congruent::Tensor;
//!
//! let device = congruent::backend("cpu")?; // or "cuda:0"
//! let x = Tensor::from_slice(&device, &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])?;
//! let y = ((&x - x.mean(-1, true)?) / x.std(1.0, -1, true)?)?;
//! assert_eq!(y.to_vec::<f32>()?, [-1.0, 0.0, 1.0, -1.0, 0.0, 1.0]);
//! assert_eq!(x.t()?.matmul(&x)?.to_string(), "\
//! [[17. 22. 27.]
//!  [22. 29. 36.]
//!  [27. 36. 45.]] f32[3, 3]");
//! # Ok(())
//! # }
//! ```
//!
//! # Choosing a backend
//!
//! At run time by name, as above: the tensors are [`Tensor<AnyBackend>`](Tensor). At compile time by type, which
//! costs nothing per call. Code that serves both is generic over `B: AllOps + ?Sized`, or over the few families that
//! it needs:
//!
//! ```
//! # fn main() -> congruent::Result<()> {
//! use std::sync::Arc;
//! use congruent::{AllOps, Cpu, Result, Tensor};
//!
//! fn softmax<B: AllOps + ?Sized>(x: &Tensor<B>) -> Result<Tensor<B>> {
//!     (x - x.logsumexp(-1, true)?)?.exp()
//! }
//!
//! let compile_time = Arc::new(Cpu::new());
//! let run_time = congruent::backend("cpu")?;
//! let x = Tensor::from_slice(&compile_time, &[0.0_f64, 0.0], [2])?;
//! assert_eq!(softmax(&x)?.to_vec::<f64>()?, [0.5, 0.5]);
//! assert_eq!(softmax(&x.to_backend(&run_time)?)?.to_vec::<f64>()?, [0.5, 0.5]);
//! # Ok(())
//! # }
//! ```
//!
//! # Arithmetic
//!
//! - Operators take tensors by value or by reference and scalars on either side, and return a [`Result`]. They chain:
//!   an operand may itself be such a `Result`, as in `((&a + &b) * &c)?`. Rust's orphan rule ends that where no
//!   tensor appears: for a `Result` with a scalar or with a `Result`, write `?` on one of them.
//! - Shapes broadcast by NumPy's rule; dtypes must be equal, nothing is promoted.
//! - `where`, a keyword, is spelled [`where_cond`](Tensor::where_cond).
//!
//! # Writing in place
//!
//! Each op has a form that returns a new tensor, and its family a generic `_into` form that writes into one the caller
//! owns. Elementwise ops that keep the dtype also have a form ending in `_assign`, which writes into the first
//! operand. Elements are written in place when no other tensor shares them, and otherwise into a fresh buffer, so a
//! write never shows in another tensor; a failed op leaves every tensor usable:
//!
//! ```
//! # fn main() -> congruent::Result<()> {
//! # use congruent::{DType, Tensor};
//! # let device = congruent::backend("cpu")?;
//! let mut x = Tensor::ones(&device, [3], DType::F32)?; // the only owner: no copy below
//! x.mul_assign(4.0)?;
//! let y = x.clone();
//! x.sqrt_assign()?; // now shared: `y` keeps its elements
//! assert_eq!((x.to_vec::<f32>()?, y.to_vec::<f32>()?), (vec![2.0; 3], vec![4.0; 3]));
//! # Ok(())
//! # }
//! ```
//!
//! # Coming from NumPy or PyTorch
//!
//! [`numpy`] lists their names beside those here.
//!
//! The contract of results (rounding, NaN, ties, empty tensors, errors) is that of [`congruent_backend_api`], which
//! is also where a backend of one's own begins; `examples/custom_backend.rs` is one.

#![forbid(unsafe_code)]

mod device;
mod display;
mod index;
pub mod io;
mod ndarray;
#[doc = include_str!("../docs/numpy.md")]
pub mod numpy {}
mod operand;
mod operators;
pub mod ops;
mod pick;
mod tensor;
mod view;

pub use congruent_backend_api as api;
pub use congruent_backend_api::erase::AnyBackend;
pub use congruent_backend_api::{
    AllOps, Backend, BinaryOps, CompareOps, ConvOps, CopyOps, DType, Element, Error, ErrorKind, IndexOps, Layout,
    LinearOps, MatmulOps, PoolOps, RandomOps, ReduceOps, Result, Scalar, ScanOps, Shape, Slice, SortOps, StatisticOps,
    UnaryOps, bf16, f16,
};
pub use device::*;
pub use index::{Index, Indices, IntoSlice, Position, Subscript, step};
pub use operand::{Axes, Bound, Operand};
pub use ops::{Generator, KvCache};
pub use tensor::Tensor;
