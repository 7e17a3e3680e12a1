//! Replay files: single cases as JSON, which a failing property test writes, a bug report carries, and anyone can write
//! by hand. The format is described in the README of this crate.

mod call;
mod command;
mod data;
mod fields;
mod frontend;
mod judge;
mod operand;
mod read;
mod write;

use std::sync::Arc;

use congruent_backend_api::erase::AnyBackend;
use congruent_backend_api::{Error, ErrorKind};

pub use command::command;
pub use read::{ReadError, read, recorded};
pub use write::to_json;

use crate::case::Case;
use crate::expect::{Expect, judge};
use crate::host::HostTensor;
use crate::ops::{data_error, expect, misreported};
use crate::report::{coordinates, describe};
use call::Job;
use frontend::{Expected, Frontend};
use judge::{Check, Output, show, show_oracle};

/// One case of a replay file.
#[derive(Debug)]
pub struct Replay {
    name: String,
    op: String,
    source: String,
    job: Job,
    expect: Expectation,
    check: Check,
}

/// What a file expects.
#[derive(Debug)]
enum Expectation {
    /// These tensors.
    Outputs(Vec<Output>),
    /// What the oracle says.
    Oracle,
    /// An error of this kind.
    Error(ErrorKind),
}

/// What a backend made of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As expected.
    Pass,
    /// Not as expected, for this reason; also where the expectation contradicts the oracle.
    Fail(String),
    /// The backend says that it lacks the op.
    Unsupported,
    /// The kit lacks this, so that nothing was run.
    NotCovered(String),
}

impl Replay {
    /// The case in a JSON value, as [`to_json`] writes it.
    ///
    /// # Errors
    /// For a case that is malformed: names the field.
    pub fn from_json(value: serde_json::Value) -> Result<Self, String> {
        read::parse(value).map_err(|error| match error.path.as_str() {
            "" => error.message,
            path => format!("{path}: {}", error.message),
        })
    }

    /// The case's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the case is from; may be empty.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The op's name.
    #[must_use]
    pub fn op(&self) -> &str {
        &self.op
    }

    /// The call that is made; ops of the frontend have none.
    #[must_use]
    pub fn case(&self) -> Option<&Case> {
        match &self.job {
            Job::Call(case) => Some(case),
            _ => None,
        }
    }

    /// Runs the case on a backend and compares the result with what is expected, and that with the oracle.
    #[must_use]
    pub fn run(&self, backend: &Arc<AnyBackend>) -> Outcome {
        let (judged, supported) = match &self.job {
            Job::NotCovered(what) => return Outcome::NotCovered(what.clone()),
            Job::Rejected(error) => return self.rejected(error).map_or(Outcome::Pass, Outcome::Fail),
            Job::Frontend(call) => (self.run_frontend(backend, call), call.is_supported(backend.as_ref())),
            Job::Call(case) => {
                let (op, dtype) = (case.op(), case.dtype());
                let supported = !op.accepts(dtype) || backend.supports(op, dtype);
                (self.run_call(backend.as_ref(), case, supported), supported)
            }
        };
        match judged {
            Ok(judged) => judged.map_or(Outcome::Pass, Outcome::Fail),
            Err(error) if !supported && error.kind() == ErrorKind::Unsupported && !self.expects(&error) => {
                Outcome::Unsupported
            }
            Err(error) => self.rejected(&error).map_or(Outcome::Pass, Outcome::Fail),
        }
    }

    fn expects(&self, error: &Error) -> bool {
        matches!(self.expect, Expectation::Error(kind) if kind == error.kind())
    }

    /// What is wrong with an error.
    fn rejected(&self, error: &Error) -> Option<String> {
        match self.expect {
            Expectation::Error(kind) if kind == error.kind() => None,
            Expectation::Error(kind) => Some(format!("expected an error of kind {kind}, got: {error}")),
            _ => Some(format!("returned an error: {error}")),
        }
    }

    fn run_call(&self, backend: &AnyBackend, case: &Case, supported: bool) -> Result<Option<String>, Error> {
        let outcome = case.run(backend)?;
        if !supported {
            return Ok(Some("ran, although `supports` says that the backend lacks the op".to_owned()));
        }
        if outcome.damage.is_some() {
            return Ok(outcome.damage);
        }
        let due = data_error(case);
        let wrong = misreported(outcome.reported, due);
        Ok(match &self.expect {
            _ if wrong.is_some() => wrong,
            Expectation::Error(kind) if due == Some(*kind) => None,
            Expectation::Error(kind) => Some(format!("succeeded, expected an error of kind {kind}")),
            Expectation::Outputs(outputs) => self.compare(outputs, &outcome.out, &expect(case)),
            Expectation::Oracle => {
                let judged = outcome.out.view_bits().into_iter().zip(expect(case)).enumerate();
                judged.into_iter().find_map(|(index, (bits, expect))| {
                    let judged = judge(case.out.dtype, bits, &expect);
                    (!judged.accepted).then(|| describe(case, index, bits, &expect, &judged))
                })
            }
        })
    }

    fn run_frontend(&self, backend: &Arc<AnyBackend>, call: &Frontend) -> Result<Option<String>, Error> {
        let made = call.run(backend)?;
        Ok(match self.expect {
            _ if made.damage.is_some() => made.damage,
            Expectation::Error(kind) => Some(format!("succeeded, expected an error of kind {kind}")),
            _ => self.judge_frontend(&call.oracle(), &made.outs),
        })
    }

    fn judge_frontend(&self, oracle: &[Expected], outs: &[HostTensor]) -> Option<String> {
        if outs.len() != oracle.len() {
            return Some(format!("there are {} results, expected {}", outs.len(), oracle.len()));
        }
        let Expectation::Outputs(outputs) = &self.expect else {
            return oracle.iter().zip(outs).find_map(|(oracle, out)| differs(oracle, out));
        };
        let contradicts = |what: String| Some(format!("the expectation contradicts the oracle: {what}"));
        if outputs.len() != oracle.len() {
            return contradicts(format!("there are {} outputs, by the oracle {}", outputs.len(), oracle.len()));
        }
        oracle.iter().zip(outputs).zip(outs).find_map(|((oracle, output), out)| {
            if output.shape != oracle.shape {
                return contradicts(format!("the shape is {:?}, by the oracle {:?}", output.shape, oracle.shape));
            }
            output.judge(self.check, out, &oracle.elements)
        })
    }

    fn compare(&self, outputs: &[Output], out: &HostTensor, oracle: &[Expect]) -> Option<String> {
        outputs.iter().find_map(|output| output.judge(self.check, out, oracle))
    }
}

/// Where a result differs from what the oracle says of it.
fn differs(oracle: &Expected, out: &HostTensor) -> Option<String> {
    let (dtype, shape) = (oracle.dtype, &oracle.shape);
    if out.dtype != dtype || **out.layout.shape() != *shape {
        return Some(format!("the result is {} {:?}, expected {dtype} {shape:?}", out.dtype, out.layout.shape()));
    }
    let mut elements = out.view_bits().into_iter().zip(&oracle.elements).enumerate();
    elements.find(|(_, (got, wanted))| !judge(dtype, *got, wanted).accepted).map(|(index, (got, wanted))| {
        let (at, got, wanted) = (coordinates(index, shape), show(dtype, got), show_oracle(dtype, wanted));
        format!("element {at:?} of {shape:?} is {got}; expected {wanted}")
    })
}
