//! Repetitions of one measurement: their middle, their spread, and when two of them differ by more than noise.
//!
//! The middle is the median m. The spread is s = 1.4826 · median |xᵢ − m|, which for normal noise is the standard
//! deviation, and which a single disturbed repetition does not move. Two measurements differ when the ratio of their
//! medians leaves 1 by more than
//!
//! > noise = max(tolerance, 3 √((s₁/m₁)² + (s₂/m₂)²)),
//!
//! three standard deviations of a ratio of single repetitions, which is more than those of a ratio of medians; and when
//! the ratio of the fastest repetitions leaves 1 by more than the tolerance, to the same side. The second half is for
//! disturbances that last longer than a measurement: they only add time, and what is slower is so at its fastest too.
//! Fewer than three repetitions say nothing of their spread; [`UNKNOWN`] stands in.

use std::cmp::Ordering;

/// The relative spread of measurements that were not repeated often enough to have one.
pub const UNKNOWN: f64 = 0.1;

/// The median; NaN of nothing.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n.is_multiple_of(2) => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
        n => sorted[n / 2],
    }
}

/// The spread ÷ the median.
#[must_use]
pub fn spread(values: &[f64]) -> f64 {
    if values.len() < 3 {
        return UNKNOWN;
    }
    let middle = median(values);
    let deviations: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    1.4826 * median(&deviations) / middle
}

/// The geometric mean; NaN of nothing.
#[must_use]
pub fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

/// The change from one measurement to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The new median ÷ the old one.
    pub ratio: f64,
    /// The new fastest repetition ÷ the old one.
    pub fastest: f64,
    /// What the ratio may differ from 1 by.
    pub noise: f64,
    /// What that of the fastest may differ from 1 by.
    pub tolerance: f64,
}

impl Change {
    /// Compares repetitions; `tolerance` is the least noise.
    #[must_use]
    pub fn new(old: &[f64], new: &[f64], tolerance: f64) -> Self {
        let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
        Self {
            ratio: median(new) / median(old),
            fastest: least(new) / least(old),
            noise: tolerance.max(3.0 * spread(old).hypot(spread(new))),
            tolerance,
        }
    }

    /// `Greater` for slower beyond noise, `Less` for faster.
    #[must_use]
    pub fn verdict(&self) -> Ordering {
        let beyond = |ratio: f64, noise: f64| match ratio {
            ratio if ratio > 1.0 + noise => Ordering::Greater,
            ratio if ratio < 1.0 / (1.0 + noise) => Ordering::Less,
            _ => Ordering::Equal,
        };
        let verdict = beyond(self.ratio, self.noise);
        if verdict == beyond(self.fastest, self.tolerance) { verdict } else { Ordering::Equal }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn one_disturbed_repetition_does_not_move_the_spread() {
        let quiet = [1.0, 1.01, 0.99, 1.0, 1.02];
        let disturbed = [1.0, 1.01, 0.99, 1.0, 9.0];
        assert!((spread(&quiet) - 1.4826 * 0.01).abs() < 1e-12);
        assert!(spread(&disturbed) < 0.02);
        assert_eq!(spread(&[1.0, 2.0]), UNKNOWN);
    }

    #[test]
    fn means_are_geometric() {
        assert!((geometric_mean(&[0.5, 2.0]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_change_counts_beyond_tolerance_and_spread() {
        let steady = [1.0, 1.0, 1.0];
        let verdict = |old: &[f64], new: &[f64]| Change::new(old, new, 0.05).verdict();
        assert_eq!(verdict(&steady, &[1.04; 3]), Ordering::Equal);
        assert_eq!(verdict(&steady, &[1.06; 3]), Ordering::Greater);
        assert_eq!(verdict(&steady, &[0.9; 3]), Ordering::Less);
        // A spread of 15 % hides a change of 30 %, not one of 100 %.
        let noisy = [0.9, 1.0, 1.1];
        assert_eq!(verdict(&noisy, &[1.3; 3]), Ordering::Equal);
        assert_eq!(verdict(&noisy, &[2.0; 3]), Ordering::Greater);
        // A disturbance that most repetitions fall into, but not all.
        assert_eq!(verdict(&steady, &[1.0, 2.0, 2.0, 2.0]), Ordering::Equal);
        assert_eq!(verdict(&[1.0, 2.0, 2.0, 2.0], &steady), Ordering::Equal);
        // Without repetitions only a large one counts.
        assert_eq!(verdict(&[1.0], &[1.3]), Ordering::Equal);
        assert_eq!(verdict(&[1.0], &[1.5]), Ordering::Greater);
    }

    #[test]
    fn a_change_reads_the_same_from_either_side() {
        let (old, new) = ([1.0, 1.0, 1.0], [1.06, 1.06, 1.06]);
        assert_eq!(Change::new(&old, &new, 0.05).verdict(), Ordering::Greater);
        assert_eq!(Change::new(&new, &old, 0.05).verdict(), Ordering::Less);
    }
}
