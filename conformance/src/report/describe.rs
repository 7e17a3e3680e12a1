//! What is wrong with an element, in words.

use congruent_backend_api::DType;

use crate::case::Case;
use crate::expect::{Expect, Judgement, interval};
use crate::host::{decode, positions};

/// What is wrong with an element: where it is, what it was, what it may be.
#[must_use]
pub fn describe(case: &Case, index: usize, bits: u64, expect: &Expect, judged: &Judgement) -> String {
    let shape = case.out.layout.shape();
    let at = positions(&case.out.layout).get(index).copied().unwrap_or(0);
    format!(
        "element {:?} of {shape:?} (storage element {at}) is {}",
        coordinates(index, shape),
        verdict(case.out.dtype, bits, expect, judged)
    )
}

/// The same in short, for an element after the first.
pub(crate) fn describe_briefly(case: &Case, index: usize, bits: u64, expect: &Expect, judged: &Judgement) -> String {
    let at = coordinates(index, case.out.layout.shape());
    format!("{at:?} is {}", verdict(case.out.dtype, bits, expect, judged))
}

/// The coordinates of a row-major index.
pub(crate) fn coordinates(index: usize, shape: &[usize]) -> Vec<usize> {
    let mut rest = index;
    let mut coordinates = vec![0; shape.len()];
    for (coordinate, &size) in coordinates.iter_mut().zip(shape).rev() {
        (*coordinate, rest) = (rest % size, rest / size);
    }
    coordinates
}

fn verdict(dtype: DType, bits: u64, expect: &Expect, judged: &Judgement) -> String {
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
        // Integers show their distance, zeros of the wrong sign are none apart, and infinities none that says anything.
        _ if !dtype.is_float() => String::new(),
        0.0 | f64::INFINITY => String::new(),
        ulps if ulps < 1e6 => format!(", {ulps:.3} ULP off"),
        ulps => format!(", {ulps:.3e} ULP off"),
    };
    format!("{got}{error}; it must be {want}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::judge;
    use crate::host::encode_float;

    #[test]
    fn integers_have_no_units_in_the_last_place() {
        let text = |dtype, bits, expect: Expect| verdict(dtype, bits, &expect, &judge(dtype, bits, &expect));
        assert_eq!(text(DType::I32, 7, Expect::Bits(3)), "7; it must be 3 exactly");
        let two = encode_float(DType::F32, 2.0);
        assert_eq!(
            text(DType::F32, two, Expect::exact(DType::F32, 1.0)),
            "2.0, 8.389e6 ULP off; it must be 1.0 exactly"
        );
    }
}
