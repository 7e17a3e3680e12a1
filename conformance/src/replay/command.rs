//! `conformance replay`: runs files on backends and prints the verdicts.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use super::{Outcome, Replay, read};
use crate::suite::Candidate;

/// Verdicts counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    pass: usize,
    fail: usize,
    unsupported: usize,
    not_covered: usize,
}

impl Counts {
    fn add(&mut self, outcome: &Outcome) {
        *match outcome {
            Outcome::Pass => &mut self.pass,
            Outcome::Fail(_) => &mut self.fail,
            Outcome::Unsupported => &mut self.unsupported,
            Outcome::NotCovered(_) => &mut self.not_covered,
        } += 1;
    }

    fn show(self) -> String {
        let counts = [
            (self.pass, "pass"),
            (self.fail, "fail"),
            (self.unsupported, "unsupported"),
            (self.not_covered, "not covered"),
        ];
        let shown = counts.iter().filter(|(count, word)| *count > 0 || *word == "pass");
        shown.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(" · ")
    }
}

/// Runs the cases of files and folders on each candidate and prints the verdicts; with `quiet` only counts for each op,
/// and failures. Returns whether nothing failed: what is unsupported or not covered is no failure, but it is counted.
///
/// # Errors
/// For a file that cannot be read or is malformed, before anything runs; for a candidate that cannot be made; for output
/// that cannot be written.
pub fn command(paths: &[PathBuf], candidates: &[Candidate], quiet: bool, out: &mut impl Write) -> io::Result<bool> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut replays = Vec::new();
    for path in paths {
        replays.extend(read(path).map_err(invalid)?);
    }
    let backends = candidates.iter().map(Candidate::make).collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
    let mut totals = vec![Counts::default(); candidates.len()];
    let mut ops: BTreeMap<(&str, &str), Counts> = BTreeMap::new();
    for replay in &replays {
        for ((candidate, backend), total) in candidates.iter().zip(&backends).zip(&mut totals) {
            let outcome = replay.run(backend);
            total.add(&outcome);
            ops.entry((replay.op(), candidate.name())).or_default().add(&outcome);
            if !quiet || matches!(outcome, Outcome::Fail(_)) {
                writeln!(out, "{}", line(candidate.name(), replay, &outcome))?;
            }
        }
    }
    if quiet {
        let width = ops.keys().map(|(op, _)| op.len()).max().unwrap_or(0);
        for ((op, backend), counts) in &ops {
            writeln!(out, "{op:width$}  {backend}: {}", counts.show())?;
        }
    }
    for (candidate, total) in candidates.iter().zip(&totals) {
        writeln!(out, "{} cases on {}: {}", replays.len(), candidate.name(), total.show())?;
    }
    Ok(totals.iter().all(|total| total.fail == 0))
}

fn line(backend: &str, replay: &Replay, outcome: &Outcome) -> String {
    let (verdict, reason) = match outcome {
        Outcome::Pass => ("pass", ""),
        Outcome::Fail(reason) => ("FAIL", reason.as_str()),
        Outcome::Unsupported => ("unsupported", ""),
        Outcome::NotCovered(what) => ("not covered", what.as_str()),
    };
    let colon = if reason.is_empty() { "" } else { ": " };
    format!("{verdict:11}  {backend}  {}  {}{colon}{reason}", replay.op(), replay.name())
}
