//! The suite as a test harness: one named, filterable trial for each op and dtype, for a backend's own
//! `tests/conformance.rs`.
//!
//! ```toml
//! [[test]]
//! name = "conformance"
//! harness = false
//! ```
//!
//! ```no_run
//! # use congruent_backend_api::{AllOps, Result};
//! use congruent_conformance::trials::Harness;
//!
//! # fn run<B: AllOps>(my_backend: fn() -> Result<B>) {
//! Harness::new("my-backend", my_backend)
//!     .expect_failure("unary::erf::bf16", "rounds twice")
//!     .run()
//! # }
//! ```

use std::sync::Arc;

use congruent_backend_api::erase::Erase;
use congruent_backend_api::{AllOps, Result};
use libtest_mimic::{Arguments, Failed, Trial};

use crate::ops::{Row, rows};
use crate::report::FailureRecord;
use crate::suite::{Candidate, Profile, check};

/// The trials of one backend.
#[derive(Debug)]
pub struct Harness {
    candidate: Arc<Candidate>,
    profile: Profile,
    expected_failures: Vec<(String, String)>,
}

impl Harness {
    /// The trials of the backend that `make` creates.
    pub fn new<B: AllOps>(name: &str, make: impl Fn() -> Result<B> + Send + Sync + 'static) -> Self {
        let candidate = Candidate::new(name, move || Ok(Arc::new(Erase(make()?))));
        // A trial is one row: the harness runs several at once.
        let profile = Profile { threads: 1, ..Profile::default() };
        Self { candidate: Arc::new(candidate), profile, expected_failures: Vec::new() }
    }

    /// Runs this many cases for each op and dtype.
    #[must_use]
    pub fn cases(mut self, cases: u32) -> Self {
        self.profile.cases = cases;
        self
    }

    /// Expects the trial `family::op::dtype` to fail, and fails it if it passes.
    #[must_use]
    pub fn expect_failure(mut self, trial: &str, reason: &str) -> Self {
        self.expected_failures.push((trial.to_owned(), reason.to_owned()));
        self
    }

    /// Runs the trials that the command line selects, and exits.
    pub fn run(self) -> ! {
        let arguments = Arguments::from_args();
        libtest_mimic::run(&arguments, self.trials()).exit()
    }

    /// Every trial; an op that the backend lacks is one that checks that calls say so.
    #[must_use]
    pub fn trials(self) -> Vec<Trial> {
        let profile = Arc::new(self.profile);
        rows()
            .map(|row| {
                let name = trial_name(row);
                let reason =
                    self.expected_failures.iter().find(|(trial, _)| *trial == name).map(|(_, reason)| reason.clone());
                let (candidate, profile) = (Arc::clone(&self.candidate), Arc::clone(&profile));
                Trial::test(name, move || judge(&candidate, row, &profile, reason.as_deref()))
            })
            .collect()
    }
}

/// `family::op::dtype`, for a cast `copy::cast_to::from`.
#[must_use]
pub fn trial_name((op, dtype): Row) -> String {
    match op {
        congruent_backend_api::Op::Cast(to) => format!("copy::cast_{to}::{dtype}"),
        _ => format!("{}::{}::{dtype}", op.family(), op.name()),
    }
}

fn judge(
    candidate: &Arc<Candidate>,
    row: Row,
    profile: &Profile,
    expected: Option<&str>,
) -> std::result::Result<(), Failed> {
    let report = check(std::slice::from_ref(candidate), &[row], profile, |_| {})?;
    let failure = report.failures().find_map(|cell| cell.failure.as_ref());
    match (failure, expected) {
        (None, None) => Ok(()),
        (Some(_), Some(_)) => Ok(()),
        (None, Some(reason)) => {
            Err(format!("passes, but is listed as an expected failure ({reason}); remove it from the list").into())
        }
        (Some(failure), None) => {
            let case =
                failure.case.as_ref().map(|case| crate::replay::to_json(case, &trial_name(row), &failure.reason));
            let replay = case.map_or(String::new(), |case| format!("\nreplay file:\n{case}"));
            let record = report.document().failures().find_map(|cell| cell.failure.clone());
            let details: String =
                record.iter().flat_map(FailureRecord::details).map(|detail| format!("\n  {detail}")).collect();
            Err(format!("{}{details}{replay}", failure.reason).into())
        }
    }
}
