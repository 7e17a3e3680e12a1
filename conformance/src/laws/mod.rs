//! Laws that need no oracle: equalities between results of one backend that hold bit for bit, through the frontend.
//!
//! They are sharp where error bounds are loose, and independent of anything that the oracle might get wrong. Only
//! equalities that the contract promises are laws: sums in another order are compared on data that makes them exact.

mod algebra;
mod attention;
mod conv;
mod functions;
mod index;
mod layout;
mod memory;
mod norms;
mod order;
mod pool;
mod random;
mod rearrange;
mod scan;
mod sort;
mod state;

use std::sync::Arc;

use congruent::api::erase::AnyBackend;
use congruent::{DType, Layout, Result, Scalar, Tensor};

use crate::host::HostTensor;
use crate::spec::{Placement, TensorSpec};
use crate::values::Class;

type Backend = Arc<AnyBackend>;

/// A law: a name that says what holds, and its test, which returns what broke it.
#[derive(Clone, Copy, Debug)]
pub struct Law {
    /// What holds.
    pub name: &'static str,
    /// Returns `Some` with what was found when the law is broken.
    pub test: fn(&Backend, u64) -> Result<Option<String>>,
}

/// Every law.
pub const LAWS: &[Law] = &[
    Law { name: "host → device → host keeps every bit", test: memory::round_trip },
    Law { name: "transfers start and end where they are told", test: memory::transfer_offsets },
    Law { name: "any nonzero byte written to bool is true", test: memory::bool_bytes },
    Law { name: "writing to a clone leaves the original", test: memory::copy_on_write },
    Law { name: "in place = out of place", test: memory::in_place },
    Law { name: "x += x, x −= xᵀ and x += x·xᵀ in place", test: memory::aliases },
    Law { name: "writing through overlapping views", test: memory::overlapping_views },
    Law { name: "results outlive the memory of their operands", test: memory::memory_reuse },
    Law { name: "(AB)ᵀ = BᵀAᵀ on integers", test: algebra::product_transposed },
    Law { name: "a permutation matrix picks columns exactly", test: algebra::permutation_matrix },
    Law { name: "a batch is a loop of products", test: algebra::batch_is_loop },
    Law { name: "splitting k and adding is exact on integers", test: algebra::split_inner },
    Law { name: "β = 0 ignores the old output, α = 0 the operands", test: algebra::factors },
    Law { name: "α·AB + β·C is that of its parts on integers", test: algebra::accumulated },
    Law { name: "sum over two axes = sum of sums on integers", test: algebra::sum_of_sums },
    Law { name: "scaling by a power of two commutes", test: algebra::power_of_two },
    Law { name: "long sums of equal terms stay accurate", test: algebra::long_sums },
    Law { name: "the mean of 2ⁿ equal terms is the term", test: algebra::mean_of_equals },
    Law { name: "the mean of 2ⁿ integers is their sum / 2ⁿ", test: algebra::mean_is_sum_divided },
    Law { name: "logsumexp moves with its argument", test: algebra::logsumexp_shift },
    Law { name: "more than 65,535 rows and batches", test: algebra::many_rows },
    Law { name: "exactly one of <, =, > holds, or a NaN is there", test: order::trichotomy },
    Law { name: "max of parts = max of the whole", test: order::max_of_parts },
    Law { name: "max x = −min(−x), of −∞ too", test: order::mirrored_extremes },
    Law { name: "+, ·, maximum and minimum commute", test: order::commutative },
    Law { name: "reversing an axis leaves its sum and extremes", test: order::reversal },
    Law { name: "argmax is the first place of max, NaN included", test: order::first_extreme },
    Law { name: "abs, relu, clamp, rounding, cast to bool: twice = once", test: order::idempotence },
    Law { name: "where picks bits", test: order::choice },
    Law { name: "double negation and De Morgan", test: order::logic },
    Law { name: "sorted rows are permutations in order, ties as they came", test: sort::permutation },
    Law { name: "what is sorted stays as it is", test: sort::twice },
    Law { name: "topk is the beginning of the order", test: sort::first_of_order },
    Law { name: "descending is ascending backwards where all differ", test: sort::reversed },
    Law { name: "sorting along an axis = sorting the last one", test: sort::any_axis },
    Law { name: "searchsorted counts", test: sort::search_counts },
    Law { name: "NaN of either sign is the greatest and keeps its bits", test: sort::nan_of_either_sign },
    Law { name: "quantiles are sorted elements, or lie between two", test: sort::middle },
    Law { name: "odd and even functions are exactly that", test: functions::symmetry },
    Law { name: "functions stay in their range", test: functions::ranges },
    Law { name: "exp, tanh and sigmoid do not fall", test: functions::monotone },
    Law { name: "casting up and down is the identity", test: functions::cast_round_trip },
    Law { name: "a cast rounds once", test: functions::cast_once },
    Law { name: "softmax is a distribution", test: norms::distribution },
    Law { name: "softmax ignores an exact shift", test: norms::shift },
    Law { name: "layer norm ignores an exact shift and power of two", test: norms::rescaled },
    Law { name: "attention to one key gives its value", test: attention::one_key },
    Law { name: "attention with a dominating score gives that key's value", test: attention::dominating },
    Law { name: "attention over many keys counts each of them", test: attention::many_keys },
    Law { name: "causality and windows of attention are masks", test: attention::bands },
    Law {
        name: "attention over halves of the keys, weighted by log-sum-exp, is that over all",
        test: attention::chunks,
    },
    Law { name: "attention leaves out the weights that bernoulli says", test: attention::dropout },
    Law { name: "gradients of attention with weights of one are products", test: attention::gradients },
    Law { name: "a view gives what its contiguous copy gives", test: layout::layout_invariance },
    Law { name: "reversals, permutations and cuts undone = id", test: layout::there_and_back },
    Law { name: "reordering kept axes reorders, reduced axes does nothing", test: layout::equivariance },
    Law { name: "broadcast = written out", test: layout::broadcast },
    Law { name: "the last running sum is the sum, of whole numbers", test: scan::last_is_whole },
    Law { name: "a scan in reverse is a scan of the reversed axis, reversed", test: scan::reverse },
    Law { name: "an exclusive scan is the inclusive one, shifted", test: scan::exclusive },
    Law { name: "a scan goes on where its first part ended", test: scan::parts },
    Law { name: "parts put together = the whole", test: rearrange::parts },
    Law { name: "what a border surrounds is untouched", test: rearrange::borders },
    Law { name: "rolls undone = id, tile and repeat = joins", test: rearrange::copies },
    Law { name: "einsum = products and sums on integers", test: rearrange::einsum },
    Law { name: "rows taken by a permutation and written back = id", test: index::permuted },
    Law { name: "⟨gather x, y⟩ = ⟨x, scatter_add y⟩ on integers", test: index::adjoint },
    Law { name: "embedding = one_hot · table, and so is its gradient", test: index::one_hot },
    Law { name: "of ascending sources the last is the greatest", test: index::last_wins },
    Law { name: "sums and extremes do not depend on the order of sources", test: index::order_of_sources },
    Law { name: "what a mask and its complement select is all there is", test: index::selection },
    Law { name: "an index out of range is reported once, and poisons nothing", test: index::out_of_range },
    Law { name: "long sums at one index stay accurate", test: index::long_sums },
    Law { name: "random numbers in parts = at once", test: random::parts },
    Law { name: "random numbers do not depend on the layout", test: random::layouts },
    Law { name: "every bit of seed and offset counts", test: random::seeds },
    Law { name: "distributions are functions of the same words", test: random::related },
    Law { name: "moments of uniform and normal numbers", test: random::moments },
    Law { name: "a permutation has every number once", test: random::permutation },
    Law {
        name: "⟨conv x, y⟩ = ⟨x, conv_transpose y⟩ = ⟨weight, conv_grad_weight⟩ on integers", test: conv::adjoint
    },
    Law { name: "a kernel with a single one shifts", test: conv::delta },
    Law { name: "a convolution in groups is one for each group, joined", test: conv::groups },
    Law { name: "a channels-last view convolves as its copy does, on integers", test: conv::channels_last },
    Law { name: "⟨pool x, y⟩ = ⟨x, pool_grad y⟩ of sums and of maxima, on integers", test: pool::adjoint },
    Law { name: "the average of a constant is the constant", test: pool::constant },
    Law { name: "pooling windows of one element = id", test: pool::single },
    Law { name: "the greatest element of a window is at its position", test: pool::positions },
    Law { name: "one window over all = max and mean, on integers", test: pool::whole_input },
    Law { name: "a channels-last view pools as its copy does", test: pool::layouts },
    Law { name: "three runs give the same bits", test: state::determinism },
    Law { name: "a chain of 100 ops = one op at a time", test: state::chain },
    Law { name: "four threads give the bits of one", test: state::threads },
    Law { name: "empty tensors have results, or errors before launch", test: state::empties },
    Law { name: "an error leaves the backend usable", test: state::usable_after_error },
    Law { name: "an error in one thread leaves the others' results", test: state::error_elsewhere },
];

const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

/// A contiguous tensor of a class.
fn make(backend: &Backend, dtype: DType, class: Class, shape: &[usize], seed: u64) -> Result<Tensor<AnyBackend>> {
    let placement = Placement { order: Vec::new(), steps: Vec::new(), offset: 0 };
    let HostTensor { layout, bytes, .. } =
        TensorSpec { placement, broadcast: 0, class }.build(dtype, shape, seed, 0)?;
    let mut storage = backend.alloc(dtype, bytes.len() / dtype.size())?;
    backend.write(&bytes, &mut storage, 0)?;
    Tensor::from_parts(backend, Arc::new(storage), layout)
}

/// Where two tensors differ in bits; NaN equals NaN, and zeros of either sign each other when `zeros_equal`.
fn differ(a: &Tensor<AnyBackend>, b: &Tensor<AnyBackend>, zeros_equal: bool) -> Result<Option<String>> {
    if a.shape() != b.shape() || a.dtype() != b.dtype() {
        return Ok(Some(format!("{} {:?} against {} {:?}", a.dtype(), a.shape(), b.dtype(), b.shape())));
    }
    let (left, right) = (scalars(a)?, scalars(b)?);
    let equal = |x: f64, y: f64| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan() || zeros_equal && x == y;
    let at = (0..left.len()).find(|&at| match (left[at], right[at]) {
        (Scalar::Float(x), Scalar::Float(y)) => !equal(x, y),
        (x, y) => x != y,
    });
    Ok(at.map(|at| format!("element {at} is {} and {}", left[at], right[at])))
}

fn scalars(x: &Tensor<AnyBackend>) -> Result<Vec<Scalar>> {
    congruent::api::match_dtype!(x.dtype(), T => Ok(x.to_vec::<T>()?.into_iter().map(Into::into).collect()))
}

/// The bits of a row-major tensor.
fn bits(x: &Tensor<AnyBackend>) -> Result<Vec<u64>> {
    let mut bytes = vec![0; x.count() * x.dtype().size()];
    x.backend().download(x.storage(), x.layout().offset(), &mut bytes)?;
    let layout = Layout::contiguous(*x.layout().shape());
    Ok(HostTensor { dtype: x.dtype(), layout, bytes }.view_bits())
}
