//! What tables and plots show of each row: times, shares of the limit, ratios.

use crate::document::{Document, Row};
use crate::limits::Limits;
use crate::runner::Identity;
use crate::stats::geometric_mean;

/// A report with its limits at hand.
#[derive(Debug)]
pub struct Figures<'a> {
    /// The report.
    pub document: &'a Document,
    /// Each backend of Congruent, and the limits of its device.
    pub backends: Vec<(&'a Identity, Limits)>,
}

/// One backend's figures in a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure<'a> {
    /// Seconds for a call.
    pub seconds: Option<f64>,
    /// Seconds at the least.
    pub limit: Option<f64>,
    /// The fastest of the other libraries on the same device.
    pub peer: Option<(&'a Identity, f64)>,
}

impl Figure<'_> {
    /// Limit ÷ time.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        Some(self.limit? / self.seconds?)
    }

    /// Time ÷ the best peer's.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        Some(self.seconds? / self.peer?.1)
    }
}

impl<'a> Figures<'a> {
    /// The figures of a report.
    #[must_use]
    pub fn new(document: &'a Document) -> Self {
        let backends = document.ours().map(|backend| (backend, Limits::of(document, &backend.device))).collect();
        Self { document, backends }
    }

    /// One for each backend.
    #[must_use]
    pub fn of(&self, row: &Row) -> Vec<Figure<'a>> {
        let figure = |(backend, limits): &(&'a Identity, Limits)| Figure {
            seconds: row.seconds(backend),
            limit: limits.seconds(row),
            peer: self.document.best_peer(row, &backend.device),
        };
        self.backends.iter().map(figure).collect()
    }

    /// The CPU's time ÷ the first CUDA device's.
    #[must_use]
    pub fn speed_up(&self, row: &Row) -> Option<f64> {
        let seconds = |wanted: fn(&str) -> bool| {
            let (backend, _) = self.backends.iter().find(|(backend, _)| wanted(&backend.device))?;
            row.seconds(backend)
        };
        Some(seconds(|device| device == "cpu")? / seconds(|device| device.starts_with("cuda"))?)
    }

    /// Whether there is a CPU and a GPU to compare.
    #[must_use]
    pub fn has_speed_up(&self) -> bool {
        self.document.cases().any(|row| self.speed_up(row).is_some())
    }

    /// Whether any other library was timed.
    #[must_use]
    pub fn has_peers(&self) -> bool {
        self.document.runners.iter().any(Identity::is_peer)
    }

    /// The geometric mean of the ratios to the best peer, for a family or all, with their number; `at` counts backends.
    #[must_use]
    pub fn against_peers(&self, at: usize, family: Option<&str>) -> Option<(f64, usize)> {
        let rows = self.document.cases().filter(|row| family.is_none_or(|family| row.spec.family == family));
        let ratios: Vec<f64> = rows.filter_map(|row| self.of(row)[at].ratio()).collect();
        (!ratios.is_empty()).then(|| (geometric_mean(&ratios), ratios.len()))
    }
}

/// Seconds in a unit that leaves three digits.
#[must_use]
pub fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        ..1e-6 => (seconds * 1e9, "ns"),
        ..1e-3 => (seconds * 1e6, "µs"),
        ..1.0 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// A rate in a unit that leaves three digits.
#[must_use]
pub fn rate(per_second: f64, unit: &str) -> String {
    let (value, prefix) = match per_second {
        ..1e9 => (per_second / 1e6, "M"),
        ..1e12 => (per_second / 1e9, "G"),
        _ => (per_second / 1e12, "T"),
    };
    format!("{} {prefix}{unit}/s", digits(value))
}

/// Three digits.
fn digits(value: f64) -> String {
    match value {
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A share in percent.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::document;

    #[test]
    fn figures_of_a_row() {
        let document = document();
        let figures = Figures::new(&document);
        let row = document.cases().next().unwrap();
        let [cpu, cuda] = &figures.of(row)[..] else { panic!() };
        assert_eq!((cpu.share(), cpu.ratio()), (Some(1.0), Some(0.5)));
        // The launch of 4 µs is longer than the copy.
        assert!((cuda.share().unwrap() - 0.8).abs() < 1e-12 && cuda.ratio().is_none());
        assert!((figures.speed_up(row).unwrap() - 200.0).abs() < 1e-9);
        let (mean, rows) = figures.against_peers(0, None).unwrap();
        assert!((mean - 1.5_f64.sqrt()).abs() < 1e-12 && rows == 2);
        assert_eq!(figures.against_peers(1, None), None);
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(duration(9.5e-8), "95.0 ns");
        assert_eq!(duration(1.234e-3), "1.23 ms");
        assert_eq!(duration(99.99e-6), "100 µs");
        assert_eq!(rate(4.17e12, "B"), "4.17 TB/s");
        assert_eq!(percent(0.934), "93 %");
    }
}
