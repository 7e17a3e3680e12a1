//! The op families, one file each, and the enums that name their ops for the generic methods, such as
//! [`Tensor::unary`](crate::Tensor::unary). Named methods call the generic one, which plans the op and runs it.

mod attention;
mod binary;
mod cache;
mod channel_norm;
mod compare;
mod conv;
mod copy;
mod create;
mod einsum;
mod index;
mod join;
mod linear;
mod loss;
mod matmul;
mod norm;
mod pool;
mod product;
mod random;
mod rearrange;
mod reduce;
mod resize;
mod rotary;
mod sample;
mod scan;
mod sort;
mod statistic;
mod unary;

pub use cache::KvCache;
pub use congruent_backend_api::ops::Op;
pub use congruent_backend_api::ops::attention::{
    Alignment, AttentionGradient, AttentionInputs, AttentionOp, AttentionOptions, Dropout,
};
pub use congruent_backend_api::ops::binary::BinaryOp;
pub use congruent_backend_api::ops::compare::CompareOp;
pub use congruent_backend_api::ops::conv::{ConvOp, ConvOptions};
pub use congruent_backend_api::ops::index::ScatterOp;
pub use congruent_backend_api::ops::linear::Activation;
pub use congruent_backend_api::ops::norm::NormalizeOp;
pub use congruent_backend_api::ops::pool::{Divisor, PoolOp, PoolOptions};
pub use congruent_backend_api::ops::random::{Distribution, RandomOp};
pub use congruent_backend_api::ops::reduce::{ArgReduceOp, ReduceOp};
pub use congruent_backend_api::ops::scan::{ScanOp, ScanRange};
pub use congruent_backend_api::ops::sort::SortOp;
pub use congruent_backend_api::ops::statistic::StatisticOp;
pub use congruent_backend_api::ops::unary::UnaryOp;
pub use loss::{CrossEntropy, Reduction};
pub use random::Generator;
pub use rearrange::Pad;
pub use resize::{Coordinates, Interpolation, Rounding};
pub use rotary::Pairing;
