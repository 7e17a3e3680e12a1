//! Two reports: what became slower beyond noise, and what faster.
//!
//! Only Congruent's backends are judged; the limits and the other libraries tell whether the machine itself changed. The
//! rule is that of [`stats`](crate::stats): medians differ by more than their spread, and the fastest repetitions as well.

use std::cmp::Ordering;

use crate::document::{Document, Row};
use crate::figures::duration;
use crate::runner::Identity;
use crate::stats::{Change, geometric_mean};

/// One case of one backend in both reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The case.
    pub case: String,
    /// The backend.
    pub runner: String,
    /// Medians, in seconds.
    pub seconds: [f64; 2],
    /// From the first to the second.
    pub change: Change,
}

/// The comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Everything that both have, the worst first.
    pub pairs: Vec<Pair>,
    /// Cases that only one of them has, with the side.
    pub alone: Vec<(String, &'static str)>,
    /// Why the times of the two may differ for other reasons.
    pub warnings: Vec<String>,
}

impl Comparison {
    /// Compares two reports; `tolerance` is the least change that counts.
    #[must_use]
    pub fn new(old: &Document, new: &Document, tolerance: f64) -> Self {
        let mut pairs = Vec::new();
        let mut alone = Vec::new();
        let find = |document: &Document, row: &Row| document.cases().any(|other| other.spec.name() == row.spec.name());
        for row in old.cases() {
            let name = row.spec.name();
            match new.cases().find(|other| other.spec.name() == name) {
                Some(other) => pairs.extend(new.ours().filter_map(|runner| pair(row, other, runner, tolerance))),
                None => alone.push((name, "old")),
            }
        }
        alone.extend(new.cases().filter(|row| !find(old, row)).map(|row| (row.spec.name(), "new")));
        pairs.sort_by(|a, b| b.change.ratio.total_cmp(&a.change.ratio));
        Self { pairs, alone, warnings: warnings(old, new) }
    }

    /// What became slower.
    pub fn regressions(&self) -> impl Iterator<Item = &Pair> {
        self.pairs.iter().filter(|pair| pair.change.verdict() == Ordering::Greater)
    }

    /// The table: changes beyond noise, or all.
    #[must_use]
    pub fn text(&self, all: bool) -> String {
        let mut lines: Vec<String> = self.warnings.iter().map(|warning| format!("note: {warning}")).collect();
        let changed: Vec<&Pair> =
            self.pairs.iter().filter(|pair| all || pair.change.verdict() != Ordering::Equal).collect();
        let width = changed.iter().map(|pair| pair.case.len() + pair.runner.len() + 1).max().unwrap_or(0);
        for pair in &changed {
            let verdict = match pair.change.verdict() {
                Ordering::Greater => "slower",
                Ordering::Less => "faster",
                Ordering::Equal => "",
            };
            let [old, new] = pair.seconds.map(duration);
            let Change { ratio, noise, .. } = pair.change;
            let name = format!("{} {}", pair.runner, pair.case);
            let noise = 100.0 * noise;
            lines.push(format!("{name:width$}  {old:>8} → {new:>8}  {ratio:>6.2}×  ±{noise:<4.0}% {verdict}"));
        }
        for (case, side) in &self.alone {
            lines.push(format!("only in the {side} report: {case}"));
        }
        let count = |verdict| self.pairs.iter().filter(|pair| pair.change.verdict() == verdict).count();
        let ratios: Vec<f64> = self.pairs.iter().map(|pair| pair.change.ratio).collect();
        lines.push(match ratios.is_empty() {
            true => "no case is in both reports".to_owned(),
            false => format!(
                "{} cases: {} slower, {} faster beyond noise; {:.3}× the time on average (geometric mean)",
                ratios.len(),
                count(Ordering::Greater),
                count(Ordering::Less),
                geometric_mean(&ratios)
            ),
        });
        lines.join("\n")
    }
}

fn pair(old: &Row, new: &Row, runner: &Identity, tolerance: f64) -> Option<Pair> {
    let seconds = [old.seconds(runner)?, new.seconds(runner)?];
    let change = Change::new(&old.time(runner)?.seconds, &new.time(runner)?.seconds, tolerance);
    Some(Pair { case: new.spec.name(), runner: runner.name(), seconds, change })
}

fn warnings(old: &Document, new: &Document) -> Vec<String> {
    let (a, b) = (&old.environment, &new.environment);
    let mut warnings = Vec::new();
    for (what, old, new) in [("machine", a.machine(), b.machine()), ("compiler", a.rustc.clone(), b.rustc.clone())] {
        if old != new {
            warnings.push(format!("another {what}: {old} → {new}"));
        }
    }
    // What nobody changed should take the same time.
    for row in old.rows.iter().filter(|row| row.spec.family == "limit") {
        let Some(other) = new.rows.iter().find(|other| other.spec.name() == row.spec.name()) else { continue };
        for runner in new.runners.iter().filter(|runner| !runner.is_ours()) {
            if let Some(pair) = pair(row, other, runner, 0.1).filter(|pair| pair.change.verdict() != Ordering::Equal) {
                let ratio = pair.change.ratio;
                warnings.push(format!(
                    "{} {} took {ratio:.2}× the time: the machine was not the same",
                    pair.runner, pair.case
                ));
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::document;

    /// The report with the times of one runner in one case replaced.
    fn changed(case: &str, device: &str, seconds: f64) -> Document {
        let mut document = document();
        let row = document.rows.iter_mut().find(|row| row.spec.name() == case).unwrap();
        let time = row.times.iter_mut().find(|time| time.device == device).unwrap();
        time.seconds = vec![seconds; 3];
        document
    }

    #[test]
    fn equal_reports_have_no_change() {
        let comparison = Comparison::new(&document(), &document(), 0.05);
        assert_eq!(comparison.regressions().count(), 0);
        assert_eq!((comparison.pairs.len(), comparison.alone.len(), comparison.warnings.len()), (5, 0, 0));
        assert!(comparison.text(false).starts_with("5 cases: 0 slower, 0 faster"), "{}", comparison.text(false));
        assert_eq!(comparison.text(true).lines().count(), 6);
    }

    #[test]
    fn slower_is_a_regression_and_faster_is_not() {
        let slower = changed("unary/exp/f32/1M", "cuda:0", 6e-6);
        let comparison = Comparison::new(&document(), &slower, 0.05);
        let found: Vec<_> = comparison.regressions().map(|pair| (pair.runner.as_str(), pair.case.as_str())).collect();
        assert_eq!(found, [("congruent cuda:0", "unary/exp/f32/1M")]);
        assert!(comparison.text(false).contains("1.20×"), "{}", comparison.text(false));
        assert_eq!(Comparison::new(&slower, &document(), 0.05).regressions().count(), 0);
    }

    #[test]
    fn other_machines_and_lost_cases_are_told() {
        let mut other = changed("limit/copy_into/f32/1M", "cpu", 2e-3);
        other.rows[0].times.retain(|time| time.library != "congruent");
        other.rows[0].times[0].seconds = vec![3e-3; 3];
        other.environment.threads = 4;
        other.rows.pop();
        let comparison = Comparison::new(&document(), &other, 0.05);
        assert_eq!(comparison.alone, [("sort/sort/f32/1M".to_owned(), "old")]);
        let text = comparison.text(false);
        assert!(text.contains("another machine: A CPU & more (2 threads)"), "{text}");
        assert!(text.contains("machine cpu limit/copy_into/f32/1M took 3.00×"), "{text}");
    }
}
