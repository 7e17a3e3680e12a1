//! The contract between tensor code and the devices that run it: what a backend implements and what a caller may
//! rely on. Nothing here knows a backend by name.
//!
//! A [`Backend`] owns [`Storage`] and implements op families: [`UnaryOps`], [`BinaryOps`], [`CompareOps`],
//! [`CopyOps`], [`ReduceOps`], [`StatisticOps`], [`ScanOps`], [`SortOps`], [`RandomOps`], [`MatmulOps`],
//! [`LinearOps`], [`NormOps`], [`IndexOps`], [`ConvOps`], [`PoolOps`], [`AttentionOps`]; [`AllOps`] is all of them. A call is
//! validated once, by the constructor of its plan (for example [`Reduce`](ops::reduce::Reduce)), which infers shapes, checks
//! dtypes and brings the loops into [canonical form](Nest). A backend only executes plans: it never returns a shape error.
//! What it does check, with the plan's `check`, is that the storages it is handed are those the plan was made for.
//!
//! The rest of this page is the contract of results. Every clause is tested by the `congruent-conformance` crate.
//!
//! # Floats
//!
//! - IEEE 754 throughout: NaN and ±∞ propagate, subnormals are kept, nothing is compiled with fast-math, and f32 is
//!   never replaced by TF32 unless a backend was told so.
//! - `+ − × ÷ √`, reciprocals, squares and casts are correctly rounded: to nearest, ties to even, once. A cast from
//!   f64 to f16 does not pass through f32.
//! - f16 and bf16 are computed in f32 and rounded once, at the store.
//! - The payload and sign of a NaN that an op computes are not specified; copies keep both.
//!
//! # Accumulation
//!
//! With u the unit roundoff of the accumulator (2⁻⁵³ for f64, 2⁻²⁴ for f32, f16 and bf16) and γₙ = nu/(1 − nu)
//! (Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., ch. 3 and 4):
//!
//! - A sum or mean over n elements is within γ_d·Σ|x|, d = [`summation_depth`](ops::reduce::summation_depth)(n) (one
//!   more for the mean): at most 64 terms one after another, then pairwise.
//! - A product over n elements is within γₙ·|∏x|, in any order.
//! - Each result of a scan is within the bound of the sum or product of the elements that enter it.
//! - `logcumsumexp` scales its terms by a running maximum. With d = `summation_depth(n)` and r rises of the maximum, the
//!   sum of the n exponentials is within γ₁₀₍d+r₎ of their magnitude, beside what `exp` and `ln` cost in `logsumexp`.
//! - `matmul` is within γ_{k+3}·(|α|·|a|·|b| + |β|·|c|), element by element, in any order; for f16 and bf16 within
//!   γ_{2k+3} of that, where |a| and |b| count as at least the smallest normal number: tensor cores cut off where others
//!   round, and align subnormal operands as if they were normal (Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior
//!   of NVIDIA tensor cores", 2021; the alignment was seen on an H200).
//! - `scatter_add` of n sources to one element is within γ_d·(|old| + Σ|x|), d = [`summation_depth`](ops::reduce::summation_depth)(n + 1).
//! - Where Σ|x| (or |a|·|b|) itself overflows the accumulator, order decides between a number, ±∞ and NaN.
//! - `linear` is `matmul` with β = 1 and the bias for c, then its activation, whose own error comes on top: |f(x)| moves by
//!   at most 1.13 times as much as x.
//! - Each element of a [convolution](ops::conv) or of its gradients is within the bound of `matmul` over its terms, of which the
//!   bias is one; an activation comes on top as in `linear`. Padding is zeros that enter as terms; `conv_transpose` has no terms
//!   but those that a tap reaches.
//! - An average over a window of n elements is within γₙ of their magnitudes over the divisor, in any order; an element of the
//!   gradient of a [pooling](ops::pool) to which n windows contribute is within γₙ of what they contribute.
//! - `var std logsumexp norm` are computed as their [composition](ops::statistic) is, without overflow in between.
//! - Softmax and the norms, and their gradients, are computed step by step [as written](ops::norm), in f32 for f16 and
//!   bf16 and rounded once; each step rounds as it does on its own, sums within [`summation_depth`](ops::reduce::summation_depth),
//!   and the variance takes two passes.
//! - [Attention](ops::attention) over d features and m keys: scores as `matmul`, in f32 for f16 and bf16, where the weights of
//!   the output may be rounded to the dtype before they meet the values, and sums count as in `matmul`; the exponentials may
//!   be scaled again at most ⌈m/32⌉ times; both sums over the keys are within γ_m of their magnitude, in any order. Its
//!   gradients are their formula's steps, with sums over keys or queries within γ of their magnitude, in any order.
//!
//! # Elementary functions
//!
//! The largest error, in units in the last place of the result (of f32 before the final rounding for f16 and bf16):
//!
//! | functions | f32, f16, bf16 | f64 |
//! |---|---|---|
//! | `exp exp2 expm1 ln log2 log10 log1p rsqrt` | 3 | 4 |
//! | `sin cos sinh cosh tanh erf` | 4 | 4 |
//! | `tan asin acos atan asinh acosh atanh` | 5 | 5 |
//! | `erfc atan2` | 6 | 6 |
//! | `sigmoid silu softplus` | 8 | 8 |
//! | `gelu` | 8, and 2x² more for x < 0 | the same |
//! | `gelu_tanh` | 8, and 8·\|t\| more for t = 2√(2/π)·(x + 0.044715·x³) < 0 | the same |
//! | `pow` | 16 | 16 |
//!
//! The terms in x are the condition of the function: what one rounding of an intermediate argument costs. Results stay
//! in the range of the function (|sin x| ≤ 1, 0 ≤ sigmoid x ≤ 1), and odd and even functions are exactly that.
//!
//! # Order
//!
//! - `maximum minimum max min clamp relu` return NaN if an operand is NaN, and take −0 as less than +0.
//! - `max_pool` is the `max` of each window, `argmax_pool` its `argmax`; padding is never the greatest element.
//! - `argmax` and `argmin` return the first NaN if there is one, else the first extreme; −0 equals +0 there.
//! - `cummax` and `cummin` are NaN from the first NaN on.
//! - `sort argsort topk searchsorted` place NaN above +∞ (so it is first in descending order), and −0 equals +0. Sorting is
//!   stable in both directions: of equal elements the one that came first stays first. Sorted elements keep their bits.
//! - Comparisons with NaN are false, `ne` is true. `round` takes ties to even.
//!
//! # Empty tensors
//!
//! A size of 0 works everywhere. Of no elements the sum is 0, the product 1, `any` false, `all` true, a float mean NaN;
//! An exclusive scan begins with 0, 1, the least value (`cummax`), the greatest (`cummin`), −∞ (`logcumsumexp`).
//! `max min argmax argmin` and an integer mean are an error, unless the result has no elements either.
//!
//! # Integers
//!
//! - `+ − ×`, powers, sums, products and scans wrap in two's complement and are exact modulo 2ʷ, never computed in floats.
//! - `div` truncates towards zero, `rem` has the sign of the dividend, `modulo` that of the divisor; MIN / −1 is MIN.
//! - A zero divisor gives 0 at that element and [`ErrorKind::DivisionByZero`] from the next synchronising call.
//! - A shift by the width or more, or by a negative count, gives 0, or the sign fill for a signed right shift.
//! - Means accumulate without wrapping and truncate the quotient towards zero.
//!
//! # Casts and scalars
//!
//! - Float to integer truncates and saturates, NaN gives 0; integer to integer keeps the low bits; to bool, anything but
//!   zero is true, NaN too.
//! - Nothing is promoted: operands have one dtype. A scalar keeps the precision in which it was given and is rounded
//!   once to the dtype of the tensor; a float scalar does not meet an integer tensor.
//!
//! # Indices
//!
//! - An index is i64, i32, u32 or u8, of any layout. Index values are data: one that is negative or not less than its axis
//!   reads 0, or writes nothing, and is [`ErrorKind::IndexOutOfRange`] from the next synchronising call.
//! - Where several sources of a scatter name one element, the last in row-major order is kept; sums take all of them.
//! - A position given to `max_pool_grad` that is no element of its window adds nothing, and is no error.
//! - Negative indices count from the end only where the program gives them (slices, `select`), never in index tensors.
//!
//! # Random numbers
//!
//! Philox4x32-10, evaluated at each element's own position in the stream of a seed: the [convention](ops::random) fixes every
//! bit, whatever the backend, the layout, the threads and the split into calls. Only normal numbers have a bound: 4 ULP of f32
//! before the final rounding, 8 of f64.
//!
//! # Layouts
//!
//! Every op takes every [`Layout`] for every operand: transposed, sliced with steps, broadcast (stride 0), reversed
//! (negative stride). An output may have any layout whose elements do not overlap. Element counts and offsets are 64-bit.
//!
//! # Errors
//!
//! - What a plan can know is an error before anything runs. What only the data shows (a zero divisor, an index out of
//!   range) touches no memory outside, marks the backend, and is returned by the next synchronising call, once; the backend stays usable.
//! - A backend without an op says so in [`Backend::supports`] and returns [`ErrorKind::Unsupported`].
//! - Nothing panics on user input, and an error leaves every operand usable.
//!
//! # Determinism
//!
//! The same calls on the same device give the same bits, unless an option of the backend says otherwise.

#![forbid(unsafe_code)]

pub mod convert;
pub mod erase;
pub mod ops;

mod backend;
mod compose;
mod dtype;
mod elementwise;
mod error;
mod layout;
mod nest;
mod shape;

pub use backend::{Backend, Storage, check_transfer};
pub use dtype::{DType, Element, Scalar};
pub use elementwise::{Elementwise, Operand, Source, View};
pub use error::{Error, ErrorKind, Result};
pub use half::{bf16, f16};
pub use layout::{Layout, Slice};
pub use nest::Nest;
pub use ops::attention::AttentionOps;
pub use ops::binary::BinaryOps;
pub use ops::compare::CompareOps;
pub use ops::conv::ConvOps;
pub use ops::copy::CopyOps;
pub use ops::index::IndexOps;
pub use ops::linear::LinearOps;
pub use ops::matmul::MatmulOps;
pub use ops::norm::NormOps;
pub use ops::pool::PoolOps;
pub use ops::random::RandomOps;
pub use ops::reduce::ReduceOps;
pub use ops::scan::ScanOps;
pub use ops::sort::SortOps;
pub use ops::statistic::StatisticOps;
pub use ops::unary::UnaryOps;
pub use ops::{AllOps, Op};
pub use shape::{MAX_RANK, Shape, axis};
