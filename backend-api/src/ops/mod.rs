//! The op families, one file each: the op enum, the plan that validates a call, the trait that backends implement.

pub mod attention;
pub mod binary;
pub mod compare;
pub mod conv;
pub mod copy;
pub mod index;
pub mod linear;
pub mod matmul;
pub mod norm;
pub mod pool;
pub mod random;
pub mod reduce;
pub mod scan;
pub mod sort;
pub mod statistic;
pub mod unary;

use crate::dtype::DType;
use attention::{AttentionOp, AttentionOps};
use binary::{BinaryOp, BinaryOps};
use compare::{CompareOp, CompareOps};
use conv::{ConvOp, ConvOps};
use copy::CopyOps;
use index::{IndexOps, ScatterOp};
use linear::LinearOps;
use matmul::MatmulOps;
use norm::{NormOps, NormalizeOp};
use pool::{PoolOp, PoolOps};
use random::{RandomOp, RandomOps};
use reduce::{ArgReduceOp, ReduceOp, ReduceOps};
use scan::{ScanOp, ScanOps};
use sort::{SortOp, SortOps};
use statistic::{StatisticOp, StatisticOps};
use unary::{UnaryOp, UnaryOps};

/// Every op family. Implemented for whatever has all of them.
pub trait AllOps:
    UnaryOps
    + BinaryOps
    + CompareOps
    + CopyOps
    + ReduceOps
    + StatisticOps
    + ScanOps
    + SortOps
    + RandomOps
    + MatmulOps
    + LinearOps
    + NormOps
    + IndexOps
    + AttentionOps
    + ConvOps
    + PoolOps
{
}

impl<B> AllOps for B where
    B: UnaryOps
        + BinaryOps
        + CompareOps
        + CopyOps
        + ReduceOps
        + StatisticOps
        + ScanOps
        + SortOps
        + RandomOps
        + MatmulOps
        + LinearOps
        + NormOps
        + AttentionOps
        + ConvOps
        + PoolOps
        + IndexOps
        + ?Sized
{
}

/// Any op: what [`Backend::supports`](crate::Backend::supports) is asked about and error messages name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// `argmax argmin`
    ArgReduce(ArgReduceOp),
    /// `attention`, its log-sum-exp and its gradients.
    Attention(AttentionOp),
    /// `add sub mul …`
    Binary(BinaryOp),
    /// A cast to this dtype.
    Cast(DType),
    /// `clamp`
    Clamp,
    /// `eq ne lt …`
    Compare(CompareOp),
    /// `conv conv_transpose conv_grad_weight`
    Conv(ConvOp),
    /// A copy between layouts.
    Copy,
    /// A fill with one value.
    Fill,
    /// Elements at positions that are data.
    Gather,
    /// `linear`: a product with bias and activation.
    Linear,
    /// `matmul`
    Matmul,
    /// `softmax layer_norm …`
    Normalize(NormalizeOp),
    /// The gradient of a normalisation.
    NormalizeGrad(NormalizeOp),
    /// The positions of true elements.
    Nonzero,
    /// `max_pool avg_pool …`, about which backends are asked with the dtype of the input.
    Pool(PoolOp),
    /// `uniform normal randint …`, about which backends are asked with the dtype of the result.
    Random(RandomOp),
    /// `sum prod max …`
    Reduce(ReduceOp),
    /// `cumsum cumprod cummax …`
    Scan(ScanOp),
    /// `scatter scatter_add …`
    Scatter(ScatterOp),
    /// `searchsorted`
    SearchSorted,
    /// `argsort sort topk`
    Sort(SortOp),
    /// `var std logsumexp norm`
    Statistic(StatisticOp),
    /// `abs neg exp …`
    Unary(UnaryOp),
    /// `where`: chooses between two operands.
    Where,
}

impl Op {
    /// The op's name, which is also the frontend's method and the name in replay files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ArgReduce(op) => op.name(),
            Self::Attention(op) => op.name(),
            Self::Binary(op) => op.name(),
            Self::Cast(_) => "cast",
            Self::Clamp => "clamp",
            Self::Compare(op) => op.name(),
            Self::Conv(op) => op.name(),
            Self::Copy => "copy",
            Self::Fill => "fill",
            Self::Gather => "gather",
            Self::Linear => "linear",
            Self::Matmul => "matmul",
            Self::Normalize(op) => op.name(),
            Self::NormalizeGrad(op) => op.grad_name(),
            Self::Nonzero => "nonzero",
            Self::Pool(op) => op.name(),
            Self::Random(op) => op.name(),
            Self::Reduce(op) => op.name(),
            Self::Scan(op) => op.name(),
            Self::Scatter(op) => op.name(),
            Self::SearchSorted => "searchsorted",
            Self::Sort(op) => op.name(),
            Self::Statistic(op) => op.name(),
            Self::Unary(op) => op.name(),
            Self::Where => "where",
        }
    }

    /// The family to which the op belongs, named as its file is.
    #[must_use]
    pub fn family(self) -> &'static str {
        match self {
            Self::Attention(_) => "attention",
            Self::Unary(_) => "unary",
            Self::Binary(_) => "binary",
            Self::Compare(_) | Self::Where | Self::Clamp => "compare",
            Self::Copy | Self::Cast(_) | Self::Fill => "copy",
            Self::Reduce(_) | Self::ArgReduce(_) | Self::Statistic(_) => "reduce",
            Self::Random(_) => "random",
            Self::Scan(_) => "scan",
            Self::Sort(_) | Self::SearchSorted => "sort",
            Self::Matmul | Self::Linear => "matmul",
            Self::Normalize(_) | Self::NormalizeGrad(_) => "norm",
            Self::Gather | Self::Scatter(_) | Self::Nonzero => "index",
            Self::Conv(_) => "conv",
            Self::Pool(_) => "pool",
        }
    }

    /// Whether the op is defined for inputs of `dtype` (for `where`, that of the chosen values; without inputs, of the result).
    #[must_use]
    pub fn accepts(self, dtype: DType) -> bool {
        match self {
            Self::Binary(op) => op.accepts(dtype),
            Self::Compare(op) => op.accepts(dtype),
            Self::Nonzero => dtype == DType::Bool,
            Self::Pool(op) => op.accepts(dtype),
            Self::Random(op) => op.accepts(dtype),
            Self::Reduce(op) => op.accepts(dtype),
            Self::Scan(op) => op.accepts(dtype),
            Self::Scatter(op) => op.accepts(dtype),
            Self::Attention(_)
            | Self::Statistic(_)
            | Self::Linear
            | Self::Normalize(_)
            | Self::NormalizeGrad(_)
            | Self::Conv(_) => dtype.is_float(),
            Self::Unary(op) => op.accepts(dtype),
            Self::ArgReduce(_) | Self::Clamp | Self::Matmul => dtype.is_number(),
            Self::Cast(_)
            | Self::Copy
            | Self::Fill
            | Self::Gather
            | Self::SearchSorted
            | Self::Sort(_)
            | Self::Where => true,
        }
    }

    /// Every op of every family.
    pub fn all() -> impl Iterator<Item = Self> {
        (UnaryOp::ALL.iter().map(|&op| Self::Unary(op)))
            .chain(BinaryOp::ALL.iter().map(|&op| Self::Binary(op)))
            .chain(CompareOp::ALL.iter().map(|&op| Self::Compare(op)))
            .chain([Self::Where, Self::Clamp, Self::Fill, Self::Copy])
            .chain(DType::ALL.map(Self::Cast))
            .chain(ReduceOp::ALL.iter().map(|&op| Self::Reduce(op)))
            .chain(ArgReduceOp::ALL.iter().map(|&op| Self::ArgReduce(op)))
            .chain(StatisticOp::ALL.iter().map(|&op| Self::Statistic(op)))
            .chain(RandomOp::ALL.iter().map(|&op| Self::Random(op)))
            .chain(ScanOp::ALL.iter().map(|&op| Self::Scan(op)))
            .chain(SortOp::ALL.iter().map(|&op| Self::Sort(op)))
            .chain([Self::SearchSorted, Self::Matmul, Self::Linear, Self::Gather])
            .chain(ScatterOp::ALL.iter().map(|&op| Self::Scatter(op)))
            .chain([Self::Nonzero])
            .chain(NormalizeOp::ALL.iter().map(|&op| Self::Normalize(op)))
            .chain(NormalizeOp::ALL.iter().map(|&op| Self::NormalizeGrad(op)))
            .chain(AttentionOp::ALL.iter().map(|&op| Self::Attention(op)))
            .chain(ConvOp::ALL.iter().map(|&op| Self::Conv(op)))
            .chain(PoolOp::ALL.iter().map(|&op| Self::Pool(op)))
    }
}
