//! Faults, to test the kit itself: a backend that does one thing wrong must be caught, by the rows of its family.
//!
//! [`Faulty`] wraps a correct backend. Some faults change the call: they rebuild its plan with a wrong layout or
//! wrong factors. The others let it run and then spoil what it wrote.

mod backend;
mod list;

use std::fmt;
use std::sync::Arc;

use congruent_backend_api::erase::{AnyBackend, Erased};
use congruent_backend_api::ops::binary::BinaryOp;
use congruent_backend_api::ops::unary::UnaryOp;
use congruent_backend_api::{DType, Result};

use crate::host::HostTensor;
use crate::ops::{Row, rows};
use crate::suite::{Candidate, Profile, check};

pub use backend::Faulty;
pub use list::FAULTS;

/// One way to be wrong.
#[derive(Clone, Copy)]
pub struct Fault {
    /// What is wrong.
    pub name: &'static str,
    /// The families whose rows must catch it; it touches no other.
    pub families: &'static [&'static str],
    /// How.
    pub(crate) kind: Kind,
}

/// How a fault works.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Spoils the output after a correct call.
    Output(fn(&mut Written<'_>)),
    /// Rebuilds the layout of elementwise and copied inputs from sizes, strides and offset.
    Input(fn(&mut [isize], &mut usize)),
    /// A function of one operand is another one.
    Unary(UnaryOp, fn(f64) -> f64),
    /// Integer arithmetic is another one, on values of this dtype.
    Integer(BinaryOp, fn(DType, i64, i64) -> i64),
    /// Something that only the wrapper's own code can do.
    Special(Special),
}

/// Faults with code of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    /// The old output is read although β is 0.
    BetaReadsOutput,
    /// The last term of each inner product is left out.
    InnerDropsLast,
    /// Products are computed in f16.
    HalfProduct,
    /// Operands of products lose their bits below 2^-10.
    ShortOperands,
    /// The last reduced element is left out.
    ReduceDropsLast,
    /// The last of several extremes is found.
    LastTie,
    /// A division by zero is never reported.
    SilentDivision,
    /// `supports` denies what runs.
    Denies,
    /// Float sums of f32 are computed in f16.
    HalfSum,
}

/// What a correct call wrote.
pub(crate) struct Written<'a> {
    /// The storage after the call.
    pub(crate) after: &'a mut HostTensor,
    /// The storage before the call.
    pub(crate) before: &'a HostTensor,
    /// The elements of the output view, ascending.
    pub(crate) positions: &'a [usize],
    /// How many calls came before this one.
    pub(crate) calls: usize,
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault").field("name", &self.name).field("families", &self.families).finish_non_exhaustive()
    }
}

/// What became of a fault.
#[derive(Clone, Debug)]
pub struct Score {
    /// The fault.
    pub fault: Fault,
    /// Cases run until the first cell caught it, for the row that needed fewest; `None` when none did.
    pub cases: Option<usize>,
    /// How many rows of its families caught it, and of how many.
    pub rows: (usize, usize),
}

/// Runs the rows of a fault's families, of these dtypes, on a backend with the fault.
///
/// # Errors
/// When the backend cannot be made.
pub fn score(
    make: impl Fn() -> Result<Arc<AnyBackend>> + Send + Sync + 'static,
    fault: &Fault,
    dtypes: &[DType],
    profile: &Profile,
) -> Result<Score> {
    let fault = *fault;
    let rows: Vec<Row> =
        rows().filter(|(op, dtype)| fault.families.contains(&op.family()) && dtypes.contains(dtype)).collect();
    let candidate = Candidate::new(fault.name, move || Ok(Arc::new(Faulty::new(make()?, fault)) as Arc<AnyBackend>));
    let report = check(&[candidate], &rows, profile, |_| {})?;
    let cases = report.failures().map(|cell| cell.cases).min();
    Ok(Score { fault, cases, rows: (report.failures().count(), report.cells.len()) })
}

impl Fault {
    /// No fault: the wrapper alone, which must pass everywhere.
    pub const NONE: Self = Self {
        name: "none",
        families: &["unary", "binary", "compare", "copy", "reduce", "matmul"],
        kind: Kind::Output(|_| {}),
    };
}

/// Reads a whole storage.
pub(crate) fn download(backend: &AnyBackend, storage: &Erased) -> Result<HostTensor> {
    use congruent_backend_api::{Layout, Shape, Storage};
    let mut bytes = vec![0; storage.len() * storage.dtype().size()];
    backend.download(storage, 0, &mut bytes)?;
    let layout = Layout::contiguous(Shape::new("download", &[storage.len()])?);
    Ok(HostTensor { dtype: storage.dtype(), layout, bytes })
}
