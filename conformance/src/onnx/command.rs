//! `conformance onnx`: runs a folder of tests on backends and prints the verdicts.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use super::{Basis, Verdict, read};
use crate::suite::Candidate;

/// How much is printed. Failures always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Totals.
    Quiet,
    /// And why tests are not covered.
    Reasons,
    /// And a line for each test.
    Tests,
}

/// Verdicts counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    oracle: usize,
    bits: usize,
    tolerance: usize,
    fail: usize,
    not_covered: usize,
}

impl Counts {
    fn add(&mut self, verdict: &Verdict) {
        *match verdict {
            Verdict::Pass(Basis::Oracle) => &mut self.oracle,
            Verdict::Pass(Basis::Bits) => &mut self.bits,
            Verdict::Pass(Basis::Tolerance) => &mut self.tolerance,
            Verdict::Fail(_) => &mut self.fail,
            Verdict::NotCovered(_) => &mut self.not_covered,
        } += 1;
    }

    fn show(self) -> String {
        format!(
            "{} passed ({} by the oracle · {} bit for bit · {} within ONNX's tolerance) · {} failed · {} not covered",
            self.oracle + self.bits + self.tolerance,
            self.oracle,
            self.bits,
            self.tolerance,
            self.fail,
            self.not_covered
        )
    }
}

/// Runs the tests of a folder on each candidate and prints the verdicts. Returns whether nothing failed, neither a backend
/// nor the oracle: what is not covered is no failure, but it is counted by its reason.
///
/// # Errors
/// For a folder without tests or a file that cannot be read, before anything runs; for a candidate that cannot be made;
/// for output that cannot be written.
pub fn command(folder: &Path, candidates: &[Candidate], detail: Detail, out: &mut impl Write) -> io::Result<bool> {
    let tests = read(folder).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let backends = candidates.iter().map(Candidate::make).collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
    let mut totals = vec![Counts::default(); candidates.len()];
    let mut reasons: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let (mut accepted, mut rejected) = (0, 0);
    for test in &tests {
        // Which output a single call makes does not depend on the backend.
        let mut oracle = None;
        for (index, (candidate, backend)) in candidates.iter().zip(&backends).enumerate() {
            let outcome = test.run(backend, candidate.arithmetic());
            totals[index].add(&outcome.verdict);
            if let Verdict::NotCovered(reason) = &outcome.verdict {
                reasons.entry(reason.clone()).or_insert_with(|| vec![0; candidates.len()])[index] += 1;
            }
            if detail == Detail::Tests || matches!(outcome.verdict, Verdict::Fail(_)) {
                writeln!(out, "{}", line(candidate.name(), test.name(), &outcome.verdict))?;
            }
            oracle = oracle.or(outcome.oracle);
        }
        match oracle {
            Some(Ok(())) => accepted += 1,
            Some(Err(reason)) => {
                rejected += 1;
                writeln!(out, "{}", line("oracle", test.name(), &Verdict::Fail(reason)))?;
            }
            None => {}
        }
    }
    if detail != Detail::Quiet {
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.iter().sum::<usize>()));
        for (reason, counts) in reasons {
            let counts: String = counts.iter().map(|count| format!("{count:5}")).collect();
            writeln!(out, "not covered {counts}  {reason}")?;
        }
    }
    writeln!(out, "{} node tests of ONNX", tests.len())?;
    for (candidate, total) in candidates.iter().zip(&totals) {
        writeln!(out, "{}: {}", candidate.name(), total.show())?;
    }
    writeln!(out, "oracle: {accepted} stored outputs accepted · {rejected} rejected (of those that one call makes)")?;
    Ok(rejected == 0 && totals.iter().all(|total| total.fail == 0))
}

fn line(backend: &str, test: &str, verdict: &Verdict) -> String {
    match verdict {
        Verdict::Pass(Basis::Oracle) => format!("pass         {backend}  {test}: by the oracle"),
        Verdict::Pass(Basis::Bits) => format!("pass         {backend}  {test}: bit for bit"),
        Verdict::Pass(Basis::Tolerance) => format!("pass         {backend}  {test}: within ONNX's tolerance"),
        Verdict::Fail(reason) => format!("FAIL         {backend}  {test}: {reason}"),
        Verdict::NotCovered(reason) => format!("not covered  {backend}  {test}: {reason}"),
    }
}
