//! What is wrong with an element, in words.

use crate::case::Case;
use crate::expect::{Expect, Judgement, interval};
use crate::host::{decode, positions};

/// What is wrong with an element: where it is, what it was, what it may be.
#[must_use]
pub fn describe(case: &Case, index: usize, bits: u64, expect: &Expect, judged: &Judgement) -> String {
    let (dtype, shape) = (case.out.dtype, case.out.layout.shape());
    let mut rest = index;
    let mut coordinates: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&size| {
            let coordinate = rest % size;
            rest /= size;
            coordinate
        })
        .collect();
    coordinates.reverse();
    let got = decode(dtype, bits);
    let want = match *expect {
        Expect::Bits(bits) => format!("{} exactly", decode(dtype, bits)),
        Expect::Nan => "NaN".to_owned(),
        Expect::Any => "anything".to_owned(),
        Expect::Near { value, bound, signed, .. } => {
            let (low, high) = interval(dtype, value, bound, signed);
            format!("{low:e} to {high:e} (oracle {:e})", value.to_f64())
        }
    };
    let error = match judged.ulps {
        // Zeros of the wrong sign are no distance apart, and infinities none that says anything.
        0.0 | f64::INFINITY => String::new(),
        ulps if ulps < 1e6 => format!(", {ulps:.3} ULP off"),
        ulps => format!(", {ulps:.3e} ULP off"),
    };
    let at = positions(&case.out.layout).get(index).copied().unwrap_or(0);
    format!("element {coordinates:?} of {shape:?} (storage element {at}) is {got}{error}; it must be {want}")
}
