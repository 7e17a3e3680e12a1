//! What a device can do at the most: the best that anyone reached in the rows of the family `limit`.
//!
//! A case's limit is the longest of three times: to copy as many bytes as it reads and writes, at the rate of a copy of
//! that size; to make its additions and multiplications at the peak of its dtype; and to call the cheapest op.

use std::collections::BTreeMap;

use crate::document::{Document, Row};
use crate::stats::median;

/// The limits of one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Bytes read and written, and the rate of such a copy in bytes per second; ascending.
    pub copy: Vec<(f64, f64)>,
    /// Additions and multiplications per second of each dtype that was multiplied.
    pub peak: BTreeMap<String, f64>,
    /// Seconds of an addition of four elements.
    pub launch: Option<f64>,
}

impl Limits {
    /// Reads the limits of a device from a report.
    #[must_use]
    pub fn of(document: &Document, device: &str) -> Self {
        let mut limits = Self::default();
        for row in document.rows.iter().filter(|row| row.spec.family == "limit") {
            let here = row.times.iter().filter(|time| time.device == device && !time.seconds.is_empty());
            let Some(best) = here.map(|time| median(&time.seconds)).min_by(f64::total_cmp) else { continue };
            match (row.spec.op.as_str(), row.bytes, row.flops) {
                ("copy_into", Some(bytes), _) => limits.copy.push((bytes as f64, bytes as f64 / best)),
                ("matmul", _, Some(flops)) => {
                    let peak = limits.peak.entry(row.spec.dtype.clone()).or_insert(0.0);
                    *peak = peak.max(flops as f64 / best);
                }
                _ => limits.launch = Some(limits.launch.map_or(best, |launch| launch.min(best))),
            }
        }
        limits.copy.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        // Halves can be widened.
        if let Some(&single) = limits.peak.get("f32") {
            for half in ["f16", "bf16"] {
                limits.peak.entry(half.to_owned()).and_modify(|peak| *peak = peak.max(single));
            }
        }
        limits
    }

    /// The rate of a copy of this size, between the sizes that were measured on a logarithmic scale.
    #[must_use]
    pub fn rate(&self, bytes: f64) -> Option<f64> {
        let (&(least, low), &(most, high)) = (self.copy.first()?, self.copy.last()?);
        if bytes <= least {
            return Some(low);
        }
        let above = self.copy.iter().position(|&(size, _)| size >= bytes);
        let Some(above) = above.filter(|_| bytes < most) else { return Some(high) };
        let ((from, a), (to, b)) = (self.copy[above - 1], self.copy[above]);
        let share = (bytes / from).ln() / (to / from).ln();
        Some(a + share * (b - a))
    }

    /// The seconds that a case takes at the least; none where neither memory nor arithmetic bounds it.
    #[must_use]
    pub fn seconds(&self, row: &Row) -> Option<f64> {
        let memory = row.bytes.and_then(|bytes| Some(bytes as f64 / self.rate(bytes as f64)?));
        let arithmetic = row.flops.and_then(|flops| Some(flops as f64 / self.peak.get(&row.spec.dtype)?));
        let work = memory.into_iter().chain(arithmetic).max_by(f64::total_cmp)?;
        Some(work.max(self.launch.unwrap_or(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::document;

    #[test]
    fn rates_lie_between_those_measured() {
        let limits = Limits { copy: vec![(1e3, 10.0), (1e5, 30.0)], ..Limits::default() };
        assert_eq!(limits.rate(1.0), Some(10.0));
        assert_eq!(limits.rate(1e3), Some(10.0));
        assert!((limits.rate(1e4).unwrap() - 20.0).abs() < 1e-9);
        assert_eq!(limits.rate(1e9), Some(30.0));
        assert_eq!(Limits::default().rate(1.0), None);
    }

    #[test]
    fn the_longest_of_three_times_is_the_limit() {
        let peak = BTreeMap::from([("f32".to_owned(), 1e9)]);
        let limits = Limits { copy: vec![(1.0, 1e6)], peak, launch: Some(1e-6) };
        let mut row = document().rows[0].clone();
        let mut seconds = |bytes, flops| {
            (row.bytes, row.flops) = (bytes, flops);
            limits.seconds(&row)
        };
        assert_eq!(seconds(None, None), None);
        assert_eq!(seconds(Some(1_000_000), Some(1)), Some(1.0));
        assert_eq!(seconds(Some(1), Some(2_000_000_000)), Some(2.0));
        assert_eq!(seconds(None, Some(1)), Some(1e-6));
    }

    #[test]
    fn anyone_may_set_a_limit() {
        let limits = Limits::of(&document(), "cpu");
        // The copy of `machine`, which is faster than that of the backend.
        assert_eq!(limits.copy, [(8e6, 8e9)]);
        assert_eq!(limits.launch, Some(1e-7));
        assert_eq!(Limits::of(&document(), "cuda:0").copy, [(8e6, 8e12)]);
    }
}
