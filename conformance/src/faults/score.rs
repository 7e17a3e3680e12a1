//! What catches a fault: rows of its families with the number of cases they need, and laws.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use congruent_backend_api::erase::{AnyBackend, Erase};
use congruent_backend_api::{DType, Result};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::{Fault, Faulty};
use crate::arithmetic::Arithmetic;
use crate::laws::{LAWS, Law};
use crate::ops::{Row, rows};
use crate::suite::{Profile, in_parallel, run_case, stages};
use crate::values::hash;

/// What became of a fault.
#[derive(Clone, Debug)]
pub struct Score {
    /// The fault.
    pub fault: Fault,
    /// Cases run until the first cell caught it, for the row that needed fewest; `None` when none did.
    pub cases: Option<usize>,
    /// How many of the rows that were run caught it, and how many were run.
    pub rows: (usize, usize),
    /// The laws whose results showed it.
    pub laws: Vec<&'static str>,
    /// The laws in which it made an op return an error.
    pub refused_laws: Vec<&'static str>,
}

impl Score {
    /// Whether a row or a law caught it.
    #[must_use]
    pub fn caught(&self) -> bool {
        self.cases.is_some() || !self.laws.is_empty() || !self.refused_laws.is_empty()
    }
}

/// At most this many rows are run for a fault; where it touches more, every n-th of them.
const ROWS: usize = 72;

/// Runs the rows that a fault touches, of these dtypes, and `laws` on a backend with the fault.
///
/// # Errors
/// When the backend cannot be made.
pub fn score(
    make: impl Fn() -> Result<Arc<AnyBackend>>,
    fault: Fault,
    dtypes: &[DType],
    laws: &[Law],
    profile: &Profile,
) -> Result<Score> {
    let make =
        || Ok::<_, congruent_backend_api::Error>(Arc::new(Erase(Faulty::new(make()?, fault))) as Arc<AnyBackend>);
    let touched = |&(op, dtype): &Row| !fault.laws_only && fault.touches(op, dtype) && dtypes.contains(&dtype);
    let all: Vec<Row> = rows().filter(touched).collect();
    let step = all.len().div_ceil(ROWS).max(1);
    let rows = (0, all.len().div_ceil(step));
    let mut score = Score { fault, cases: None, rows, laws: Vec::new(), refused_laws: Vec::new() };
    let backend = make()?;
    for &row in all.iter().step_by(step) {
        if let Some(cases) = cases_to_failure(backend.as_ref(), row, profile) {
            score.rows.0 += 1;
            score.cases = Some(score.cases.map_or(cases, |fewest| fewest.min(cases)));
        }
    }
    for law in laws {
        // A backend of its own: an error that one law leaves behind is not seen by the next.
        match (law.test)(&make()?, profile.seed) {
            Ok(None) => {}
            Ok(Some(_)) => score.laws.push(law.name),
            Err(_) => score.refused_laws.push(law.name),
        }
    }
    Ok(score)
}

/// Scores faults with all laws, on the profile's threads, and in the order of `faults`; `progress` is told of each.
///
/// # Errors
/// When the backend cannot be made.
pub fn score_all(
    make: impl Fn() -> Result<Arc<AnyBackend>> + Sync,
    faults: &[Fault],
    profile: &Profile,
    progress: impl Fn(&Score) + Sync,
) -> Result<Vec<Score>> {
    let (next, scores) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(&fault) = faults.get(index) else { return Ok(()) };
            let score = score(&make, fault, &DType::ALL, LAWS, profile)?;
            progress(&score);
            scores.lock().unwrap_or_else(PoisonError::into_inner).push((index, score));
        }
    };
    in_parallel(profile.threads, work)?;
    let mut scores = scores.into_inner().unwrap_or_else(PoisonError::into_inner);
    scores.sort_by_key(|&(index, _)| index);
    Ok(scores.into_iter().map(|(_, score)| score).collect())
}

/// The cases that a row runs until one fails; nothing is shrunk.
fn cases_to_failure(backend: &AnyBackend, row: Row, profile: &Profile) -> Option<usize> {
    let mut count = 0;
    for (strategy, cases, seed) in stages(row, profile) {
        let bytes: Vec<u8> = (0..4).flat_map(|word| hash(seed, word).to_le_bytes()).collect();
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        for _ in 0..cases {
            let case = strategy.new_tree(&mut runner).ok()?.current();
            count += 1;
            if run_case(backend, &case, Arithmetic::default()).failure.is_some() {
                return Some(count);
            }
        }
    }
    None
}
