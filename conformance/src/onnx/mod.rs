//! Evidence of a third party: the node tests of ONNX, which other people wrote against NumPy, run through the frontend.
//!
//! A test is a model (one node, or the graph of simpler nodes into which ONNX expands a composed one) with inputs and
//! outputs. Its nodes become the frontend calls that a user would write for them, and every call that computes is
//! recorded: its result must lie inside the oracle's bound. Then the output is judged:
//!
//! - One call made it: the oracle must accept the stored output, with room for NumPy's own order of evaluation and for
//!   the rounding of what is stored ([`Basis::Oracle`]).
//! - Nothing was computed, or the output is not a float: equal bits ([`Basis::Bits`]).
//! - Else: within the tolerance with which ONNX compares, rtol 1e-3 and atol 1e-7 ([`Basis::Tolerance`]).
//!
//! What the frontend does not express is not covered and says why; nothing is skipped in silence.

mod command;
mod graph;
mod judge;
mod load;
mod node;
mod ops;
#[expect(unreachable_pub, reason = "generated code")]
mod proto;
mod tensor;
mod trace;

pub use command::{Detail, command};
pub use load::{NodeTest, read};

/// What is known of a test on a backend.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The backend's verdict.
    pub verdict: Verdict,
    /// Whether the oracle accepts the stored output, else why not; `None` where no single call makes the output.
    pub oracle: Option<Result<(), String>>,
}

/// What a backend made of a test.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// As expected, on this evidence.
    Pass(Basis),
    /// Not as expected, for this reason.
    Fail(String),
    /// Not run, for this reason.
    NotCovered(String),
}

/// How an output was held against the stored one, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// Within ONNX's tolerance, and each call inside its bound.
    Tolerance,
    /// Equal bits.
    Bits,
    /// The oracle accepts the stored output, and the backend is inside the oracle's bound.
    Oracle,
}
