//! Faults, to test the kit itself: a backend that does one thing wrong must be caught, by the rows of its families or
//! by a law.
//!
//! [`Faulty`] wraps a correct backend and does one thing wrong: it reads inputs through another layout, spoils what was
//! written, replaces results by those of a wrong function, or mishandles memory, errors and threads. Faults of one
//! number are forms of one known mistake of tensor libraries; those without a number are formulas and mistakes of our
//! own. What is missing, or here in another form:
//!
//! - 19, a clone that shares its buffer: storages cannot be cloned, and sharing is decided by the frontend; the law
//!   "writing to a clone leaves the original" tests it.
//! - 21, an output that aliases an input: `&` and `&mut` exclude it. What is left of it, an op in place that reads what
//!   it has just written, is a fault here.
//! - 49, a bool byte 2 read as false by an op: storages hold only 0 and 1, so the fault sits in `write`.
//! - 69, a wrong dtype of the result: plans fix it, and storages are checked against the plan.
//! - 72, mutants of the comparator: unit tests of [`expect`](crate::expect) hold it against hand-made bad results.
//! - 57, 61, 62, 68: about ops of other families (softmax, layer norm, attention,
//!   indexing, random numbers).
//!   56, 59, 60 and 67 are here in the form that logsumexp, var, mean and sum have of them.

mod attention;
mod backend;
mod call;
mod conv;
mod hint;
mod list;
mod norm;
mod ops;
mod pool;
mod score;

use std::fmt;

use congruent_backend_api::ops::binary::BinaryOp;
use congruent_backend_api::ops::index::ScatterOp;
use congruent_backend_api::ops::random::Distribution;
use congruent_backend_api::ops::unary::UnaryOp;
use congruent_backend_api::{DType, Op, Scalar};

use crate::host::HostTensor;
use crate::ops::conv::{Sizes, Tap};
use crate::ops::pool::{Sizes as PoolSizes, Window};

pub use backend::{Faulty, Held};
pub use hint::resembling;
pub use list::faults;
pub use score::{Score, score, score_all};

/// One way to be wrong.
#[derive(Clone, Copy)]
pub struct Fault {
    /// The known mistake of which it is a form; see the [module](self).
    pub number: Option<u8>,
    /// What is wrong.
    pub name: &'static str,
    /// The families whose rows may catch it; it touches no other.
    pub families: &'static [&'static str],
    /// Whether it shows only in laws, since it takes several calls or threads, or more elements than a case has.
    pub laws_only: bool,
    touched: fn(Op, DType) -> bool,
    kind: Kind,
}

/// How a fault works.
#[derive(Clone, Copy)]
enum Kind {
    /// Spoils the output after a correct call.
    Output(fn(&mut Written<'_>)),
    /// Changes the strides and the offset by which inputs are read, given the sizes.
    Input(fn(&[usize], &mut [isize], &mut usize)),
    /// Replaces an element of the output; `None` leaves it.
    Function(fn(&Element<'_>) -> Option<Scalar>),
    /// A convolution over other products than it should sum.
    Taps(fn(&mut Tap, &Sizes)),
    /// A pooling of other windows.
    Windows(fn(&mut Window, &PoolSizes)),
    /// Sorts in another order: of a row's values, their dtype and whether descending, the positions.
    Order(fn(&[Scalar], DType, bool) -> Vec<usize>),
    /// A function of one float is another one.
    Unary(UnaryOp, fn(f64) -> f64),
    /// Integer arithmetic is another one, on values of this dtype.
    Integer(BinaryOp, fn(DType, i64, i64) -> i64),
    /// Index values are read as others, given the length of the axis.
    Index(fn(i64, i64) -> i64),
    /// A scatter does another.
    Scatter(ScatterOp, ScatterOp),
    /// Asks for another distribution, seed and offset.
    Random(fn(&mut Distribution, &mut u64, &mut u64)),
    /// Something that only the wrapper's own code can do.
    Special(Special),
}

/// Faults with code of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    /// A linear layer without its activation.
    ActivationLost,
    /// Attention stands other queries at other keys.
    AlignmentSwapped,
    /// Attention gives NaN where a query sees no key.
    BlindNan,
    /// The bias of a linear layer is added last.
    BiasLate,
    /// A linear layer or a convolution without its bias.
    BiasLost,
    /// `write` takes bool bytes above 1 for false.
    BoolBytes,
    /// Causal attention sees one key too many.
    CausalLate,
    /// Gradients of attention do without delta.
    DeltaLost,
    /// `supports` denies what runs.
    Denies,
    /// `download` starts at element 0.
    DownloadStart,
    /// Attention without its dropout.
    DropoutLost,
    /// Dropout begins with another word.
    DropoutShifted,
    /// A call without elements is an error.
    EmptyCall,
    /// The first of several sources stays.
    FirstWins,
    /// Now and then an allocation spoils memory that is in use.
    FreedInUse,
    /// A linear layer with `gelu` runs with `gelu_tanh`.
    GeluByTanh,
    /// Of the heads that share a key, one adds to its gradients.
    GroupLost,
    /// Heads of attention read key heads in turn.
    HeadModulo,
    /// An op in place is applied to what it has just written.
    InPlaceTwice,
    /// The first element of an input is changed.
    InputChanged,
    /// Attention sees keys past the lengths of the batch.
    LengthsLost,
    /// `supports` claims what does not run.
    Lies,
    /// Of more than 64 calls without synchronisation one is lost.
    LostCall,
    /// The bool mask of attention hides where it should show.
    MaskInverted,
    /// Every eighth `download` does not wait.
    NoWait,
    /// Attention leaves its scale out.
    ScaleLost,
    /// A division by zero is never reported.
    SilentDivision,
    /// An index out of range is never reported.
    SilentIndex,
    /// Attention without its slopes.
    SlopesLost,
    /// Attention without its soft cap.
    SoftCapLost,
    /// A division by zero is reported for ever.
    StickyDivision,
    /// An index out of range is reported for ever.
    StickyIndex,
    /// The sums of a linear layer pass through the output's dtype.
    SumsRounded,
    /// Calls from another thread than the first one leave an element unwritten.
    ThreadScratch,
    /// `write` starts at element 0.
    WriteStart,
    /// A window of attention is too wide.
    WindowLate,
}

/// What a correct call wrote.
struct Written<'a> {
    /// The storage after the call.
    after: &'a mut HostTensor,
    /// The storage before the call.
    before: &'a HostTensor,
    /// The sizes of the output view as it is walked.
    sizes: &'a [usize],
    /// The elements of the view in the order in which they are walked.
    walked: &'a [usize],
    /// The same elements, ascending.
    positions: &'a [usize],
    /// How many calls came before this one.
    calls: usize,
}

/// An element of the output, and what it is computed from.
struct Element<'a> {
    op: Op,
    /// The dtype of the inputs.
    dtype: DType,
    /// The dtype of the output.
    out: DType,
    /// The values that enter, for each operand: one for an elementwise op, a group for a reduction, the row up to the
    /// element for a scan, the terms of the inner product for `matmul`.
    operands: &'a [Vec<Scalar>],
    /// α and β of `matmul`, the parameter of a statistic, 1 for an exclusive scan.
    factors: (f64, f64),
    /// The old value.
    old: Scalar,
    /// The correct result.
    new: Scalar,
    /// How many calls came before this one.
    calls: usize,
}

impl Fault {
    /// No fault: the wrapper alone, which must pass everywhere.
    pub const NONE: Self = Self {
        number: None,
        name: "none",
        families: list::ALL,
        laws_only: false,
        touched: |_, _| true,
        // The output is read and written back, so that this path is tested too.
        kind: Kind::Output(|_| {}),
    };

    /// Whether the fault can show in an op with inputs of a dtype.
    #[must_use]
    pub fn touches(&self, op: Op, dtype: DType) -> bool {
        let own = match self.kind {
            Kind::Unary(own, _) => op == Op::Unary(own) && dtype.is_float(),
            Kind::Integer(own, _) => op == Op::Binary(own) && dtype.is_int(),
            Kind::Order(_) => matches!(op, Op::Sort(_)),
            Kind::Index(_) => matches!(op, Op::Gather | Op::Scatter(_)),
            Kind::Scatter(own, _) => op == Op::Scatter(own),
            Kind::Special(Special::FirstWins) => op == Op::Scatter(ScatterOp::Set),
            Kind::Taps(_) => matches!(op, Op::Conv(_)),
            Kind::Windows(_) => matches!(op, Op::Pool(_)),
            Kind::Output(_) | Kind::Input(_) | Kind::Function(_) | Kind::Random(_) | Kind::Special(_) => true,
        };
        own && self.families.contains(&op.family()) && (self.touched)(op, dtype)
    }

    fn is(&self, special: Special) -> bool {
        matches!(self.kind, Kind::Special(own) if own == special)
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("number", &self.number)
            .field("name", &self.name)
            .field("families", &self.families)
            .finish_non_exhaustive()
    }
}

impl Element<'_> {
    /// Operand `index` in f64.
    fn values(&self, index: usize) -> Vec<f64> {
        self.operands[index].iter().map(|x| x.to_f64()).collect()
    }

    /// The only value of operand `index`.
    fn value(&self, index: usize) -> f64 {
        self.operands[index][0].to_f64()
    }

    /// The only value of integer operand `index`.
    fn integer(&self, index: usize) -> i64 {
        self.operands[index][0].to_i64()
    }
}
