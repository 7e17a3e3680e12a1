//! What is reported where two backends part.

use std::backtrace::Backtrace;
use std::fmt;
use std::path::{Path, PathBuf};

use super::judge::Finding;
use crate::case::Case;
use crate::replay::to_json;

/// Which of the two backends the oracle calls wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The first.
    First,
    /// The second.
    Second,
    /// Both, and not in the same way.
    Both,
}

/// The op at which the two backends part.
#[derive(Debug)]
pub struct Divergence {
    /// The number of the call, from 1.
    pub call: usize,
    /// The call: the inputs that both backends saw, and the output before it.
    pub case: Box<Case>,
    /// Which backend the oracle calls wrong.
    pub wrong: Wrong,
    /// The first wrong element: what it is, and what it may be.
    pub reason: String,
    /// Where the case was written; only the first divergence of a shadow is.
    pub replay: Option<PathBuf>,
    blamed: String,
    unwritten: Option<std::io::Error>,
    backtrace: Backtrace,
}

impl Divergence {
    /// A divergence whose case is written to `path`.
    pub(super) fn new(call: usize, case: Case, finding: Finding, names: [&str; 2], path: Option<&Path>) -> Self {
        let Finding { wrong, reason } = finding;
        let [first, second] = names;
        let blamed = match wrong {
            Wrong::First => format!("the first backend, `{first}`, is wrong"),
            Wrong::Second => format!("the second backend, `{second}`, is wrong"),
            Wrong::Both => format!("both backends, `{first}` and `{second}`, are wrong"),
        };
        let name = format!("call {call} under a shadow of {first} and {second}");
        let written = path.map(|path| std::fs::write(path, format!("{:#}\n", to_json(&case, &name, &reason))));
        let unwritten = written.and_then(Result::err);
        let replay = path.filter(|_| unwritten.is_none()).map(Path::to_owned);
        Self { call, case: Box::new(case), wrong, reason, replay, blamed, unwritten, backtrace: Backtrace::capture() }
    }

    /// Where the program called the op; captured when `RUST_BACKTRACE` is set.
    pub fn backtrace(&self) -> &Backtrace {
        &self.backtrace
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (op, dtype, out) = (self.case.op().name(), self.case.dtype(), &self.case.out);
        write!(f, "call {}, `{op}` of {dtype} with a result of shape {:?}: ", self.call, out.layout.shape())?;
        write!(f, "{}: {}", self.blamed, self.reason)?;
        match (&self.replay, &self.unwritten) {
            (Some(path), _) => write!(f, "; the call is in {}", path.display()),
            (None, Some(error)) => write!(f, "; the call could not be written to a file: {error}"),
            (None, None) => Ok(()),
        }
    }
}

impl std::error::Error for Divergence {}
