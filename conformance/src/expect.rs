//! What a result may be, element by element, and the judgement of what it is.
//!
//! An element is not compared with a tolerance: it must lie in an interval that contains every value which the
//! declared arithmetic can produce, whatever the order of evaluation. With internal error bound B and output format t
//! the interval is [round_t(y − B), round_t(y + B)]; rounding is monotone, so this covers the final rounding, overflow
//! to ±∞ and subnormals without another term.

use congruent_backend_api::DType;

use crate::dd::Dd;
use crate::host::{decode, encode_float};
use crate::round::Format;

/// What one element of a result may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expect {
    /// These bits.
    Bits(u64),
    /// Any NaN.
    Nan,
    /// A number within `bound` of `value` before the final rounding.
    Near {
        /// The oracle's value.
        value: Dd,
        /// The largest error before the final rounding.
        bound: f64,
        /// The largest error that is likely: above it, and inside the bound, a result is loose.
        likely: f64,
        /// Whether the result must have the value's sign, zero included.
        signed: bool,
    },
    /// Anything: the order of evaluation decides, as where a partial sum may overflow.
    Any,
}

impl Expect {
    /// A value that is rounded once and then exact; any NaN for NaN.
    #[must_use]
    pub fn exact(dtype: DType, value: f64) -> Self {
        if value.is_nan() { Self::Nan } else { Self::Bits(encode_float(dtype, value)) }
    }

    /// A correctly rounded op: f16 and bf16 are rounded to f32 first, as they are computed.
    #[must_use]
    pub fn computed(dtype: DType, value: f64) -> Self {
        Self::exact(dtype, Format::of(dtype).map_or(value, |format| format.accumulator().round(value)))
    }

    /// A value of an elementary function: `ulps` units of the format in which `dtype` is computed. Zero, ±∞ and NaN are exact.
    #[must_use]
    pub fn ulps(dtype: DType, value: Dd, ulps: f64) -> Self {
        let y = value.hi;
        if y == 0.0 || !y.is_finite() {
            return Self::exact(dtype, y);
        }
        let format = Format::of(dtype).map_or(Format::F64, Format::accumulator);
        let bound = ulps * format.ulp(y);
        Self::Near { value, bound, likely: bound, signed: true }
    }

    /// A value of an accumulation: the sign of a zero is free.
    #[must_use]
    pub fn near(value: Dd, bound: f64) -> Self {
        if value.hi.is_nan() {
            Self::Nan
        } else if bound.is_finite() {
            Self::Near { value, bound, likely: bound, signed: false }
        } else {
            Self::Any
        }
    }
}

impl Expect {
    /// The same with a likely error, which says nothing where it is not below the bound.
    #[must_use]
    pub fn likely(self, limit: f64) -> Self {
        match self {
            Self::Near { value, bound, signed, .. } => Self::Near { value, bound, likely: limit.min(bound), signed },
            other => other,
        }
    }
}

/// The judgement of one element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// Whether the element may be what it is.
    pub accepted: bool,
    /// Its error in units in the last place of the output; infinite where that has no meaning.
    pub ulps: f64,
    /// Its error over the largest one allowed; 0 for an exact result, above 1 exactly when it is not accepted.
    pub ratio: f64,
    /// Whether nothing was known about the element.
    pub indeterminate: bool,
    /// Whether its error is inside the bound but above what is likely.
    pub loose: bool,
    /// Whether there was an error to bound: not for exact results, nor where the final rounding of a narrower output covers
    /// the whole interval.
    pub bounded: bool,
}

impl Judgement {
    const EXACT: Self =
        Self { accepted: true, ulps: 0.0, ratio: 0.0, indeterminate: false, loose: false, bounded: false };
    const WRONG: Self = Self { accepted: false, ulps: f64::INFINITY, ratio: f64::INFINITY, ..Self::EXACT };

    fn exact(accepted: bool) -> Self {
        if accepted { Self::EXACT } else { Self::WRONG }
    }
}

/// Judges the bits of an element of `dtype`.
#[must_use]
pub fn judge(dtype: DType, bits: u64, expect: &Expect) -> Judgement {
    match *expect {
        Expect::Bits(expected) if bits == expected => Judgement::EXACT,
        Expect::Bits(expected) => Judgement { ulps: distance(dtype, bits, expected), ..Judgement::WRONG },
        Expect::Nan => Judgement::exact(dtype.is_float() && decode(dtype, bits).to_f64().is_nan()),
        Expect::Any => Judgement { indeterminate: true, ..Judgement::EXACT },
        Expect::Near { .. } => near(dtype, decode(dtype, bits).to_f64(), expect),
    }
}

/// The interval of results that [`Expect::Near`] accepts.
#[must_use]
pub fn interval(dtype: DType, value: Dd, bound: f64, signed: bool) -> (f64, f64) {
    let format = Format::of(dtype).unwrap_or(Format::F64);
    let end = |bound: f64| {
        let sum = Dd::sum(value.hi, value.lo + bound);
        // What f64 dropped decides only where the rest is a tie of a narrower format.
        let sticky = match sum.lo {
            _ if format.precision == Format::F64.precision => sum.hi,
            0.0 => sum.hi,
            ..0.0 => sum.hi.next_down(),
            _ => sum.hi.next_up(),
        };
        format.round(sticky)
    };
    let (low, high) = (end(-bound), end(bound));
    match signed {
        true if value.hi > 0.0 => (low.max(0.0), high),
        true if value.hi < 0.0 => (low, high.min(-0.0)),
        _ => (low, high),
    }
}

fn near(dtype: DType, got: f64, expect: &Expect) -> Judgement {
    let Expect::Near { value, bound, likely, signed } = *expect else { return Judgement::WRONG };
    let (low, high) = interval(dtype, value, bound, signed);
    let error = (got - value.hi - value.lo).abs();
    let ulps = error_ulps(dtype, got, value);
    // Written so that NaN is outside.
    let inside = low <= got && got <= high;
    let sign_fits = !signed || got != 0.0 || got.is_sign_negative() == value.hi.is_sign_negative();
    if !(inside && sign_fits) {
        return Judgement { ulps, ratio: (error / bound).max(1.0_f64.next_up()), ..Judgement::WRONG };
    }
    if got.is_infinite() || low == high {
        return Judgement::EXACT;
    }
    // The bound holds before the final rounding, which is one of its own only where the output is narrower.
    let narrower = Format::of(dtype).is_some_and(|format| format.accumulator().precision > format.precision);
    let rounding = if narrower { ulp(dtype, value) / 2.0 } else { 0.0 };
    let error = (error - rounding).max(0.0);
    let ratio = (error / bound).min(1.0);
    // The ends of the interval are rounded outwards: an error may exceed a bound that is also what is likely.
    Judgement { ulps, ratio, loose: likely < bound && error > likely, bounded: !narrower, ..Judgement::EXACT }
}

fn ulp(dtype: DType, value: Dd) -> f64 {
    Format::of(dtype).unwrap_or(Format::F64).ulp(value.hi)
}

fn error_ulps(dtype: DType, got: f64, value: Dd) -> f64 {
    let error = (got - value.hi - value.lo).abs() / ulp(dtype, value);
    if error.is_nan() { f64::INFINITY } else { error }
}

/// How far apart two elements are, in units in the last place of a float, in steps for an integer.
fn distance(dtype: DType, bits: u64, expected: u64) -> f64 {
    let (got, expected) = (decode(dtype, bits).to_f64(), decode(dtype, expected).to_f64());
    if dtype.is_float() { error_ulps(dtype, got, expected.into()) } else { (got - expected).abs() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(dtype: DType, got: f64, expect: Expect) -> bool {
        judge(dtype, encode_float(dtype, got), &expect).accepted
    }

    fn near(value: f64, bound: f64) -> Expect {
        Expect::near(value.into(), bound)
    }

    /// Calibration: exact data has ratio 0, and one step outside the interval fails on either side.
    #[test]
    fn the_interval_is_sharp() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let format = Format::of(dtype).unwrap();
            for value in [1.0, -1.0, 1.5, 1000.0, format.tiny() * 8.0] {
                let step = format.ulp(value);
                let exact = judge(dtype, encode_float(dtype, value), &near(value, 0.0));
                assert_eq!((exact.accepted, exact.ratio, exact.ulps), (true, 0.0, 0.0));
                for (steps, inside) in [(2.0, true), (-2.0, true), (3.0, false), (-3.0, false)] {
                    let expect = near(value, 2.0 * step);
                    assert_eq!(accepted(dtype, value + steps * step, expect), inside, "{dtype} {value} {steps}");
                    let judged = judge(dtype, encode_float(dtype, value + steps * step), &expect);
                    assert_eq!(judged.ratio > 1.0, !inside);
                }
            }
        }
    }

    #[test]
    fn nan_infinity_and_zero_are_told_apart() {
        let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0];
        for (index, &got) in special.iter().enumerate() {
            for (other, &expected) in special.iter().enumerate() {
                assert_eq!(accepted(DType::F32, got, Expect::exact(DType::F32, expected)), index == other);
            }
            assert_eq!(accepted(DType::F32, got, near(1.0, 1e-3)), got == 1.0);
        }
        assert!(accepted(DType::F32, f64::NAN, Expect::Any) && accepted(DType::F32, -0.0, near(0.0, 0.0)));
        assert!(!judge(DType::I32, 0, &Expect::Nan).accepted);
    }

    #[test]
    fn overflow_is_decided_by_the_output_format() {
        assert!(accepted(DType::F16, f64::INFINITY, near(65520.0, 0.0)));
        assert!(!accepted(DType::F16, f64::INFINITY, near(65519.0, 0.5)));
        assert!(accepted(DType::F16, f64::INFINITY, near(65519.0, 1.0)));
        assert!(accepted(DType::F16, 65504.0, near(65519.0, 1.0)));
    }

    #[test]
    fn an_elementary_function_keeps_its_sign() {
        let tiny = Format::F32.tiny();
        let expect = Expect::ulps(DType::F32, tiny.into(), 4.0);
        assert!(accepted(DType::F32, 0.0, expect) && accepted(DType::F32, 5.0 * tiny, expect));
        assert!(!accepted(DType::F32, -0.0, expect) && !accepted(DType::F32, -tiny, expect));
        // f16 is computed in f32, whose units count.
        for (dtype, unit) in [(DType::F64, f64::EPSILON), (DType::F16, f64::from(f32::EPSILON))] {
            let bound = 12.0 * unit;
            let near = Expect::Near { value: 5.0.into(), bound, likely: bound, signed: true };
            assert_eq!(Expect::ulps(dtype, 5.0.into(), 3.0), near);
        }
        assert_eq!(Expect::ulps(DType::F32, (-0.0).into(), 4.0), Expect::exact(DType::F32, -0.0));
    }

    /// The ends are those of the exact value ± bound, rounded once, also where f64 alone would drop the rest of a sum.
    #[test]
    fn the_ends_are_rounded_once() {
        let (one, up) = (1.0, 1.0 + f64::from(f32::EPSILON));
        let tie = 1.0 + crate::round::exp2(-24);
        let end = |dtype, hi, lo| interval(dtype, Dd { hi, lo }, 0.0, false);
        assert_eq!(end(DType::F32, tie, 0.0), (one, one));
        assert_eq!(end(DType::F32, tie, crate::round::exp2(-80)), (up, up));
        assert_eq!(end(DType::F32, tie, -crate::round::exp2(-80)), (one, one));
        let odd = tie + f64::from(f32::EPSILON);
        assert_eq!(end(DType::F32, odd, -crate::round::exp2(-80)), (up, up));
        assert_eq!(end(DType::F64, one, crate::round::exp2(-60)), (one, one));
    }

    #[test]
    fn a_sign_cuts_the_interval_at_zero() {
        let ends = |value: f64, signed| interval(DType::F32, value.into(), 4.0, signed);
        assert_eq!((ends(1.0, false), ends(1.0, true), ends(0.0, true)), ((-3.0, 5.0), (0.0, 5.0), (-4.0, 4.0)));
        let (low, high) = ends(-1.0, true);
        assert_eq!((low, high.to_bits()), (-5.0, (-0.0_f64).to_bits()));
    }

    /// Every field of a judgement, with the remainder of the oracle's value in it.
    #[test]
    fn judgements_are_complete() {
        let accepted = |ulps, ratio, bounded| Judgement { ulps, ratio, bounded, ..Judgement::EXACT };
        let wrong = |ulps, ratio| Judgement { ulps, ratio, ..Judgement::WRONG };
        let judged = |dtype, got, expect| judge(dtype, encode_float(dtype, got), &expect);
        let step = f64::from(f32::EPSILON);
        assert_eq!(judged(DType::F32, 1.0 + 3.0 * step, near(1.0, 4.0 * step)), accepted(3.0, 0.75, true));
        assert_eq!(judged(DType::F32, 1.0 + 40.0 * step, near(1.0, 4.0 * step)), wrong(40.0, 10.0));
        assert_eq!(judged(DType::F32, 2.0 - 6.0 * step, near(2.0, step)), wrong(3.0, 6.0));
        let value = Dd { hi: 1.0, lo: f64::EPSILON / 4.0 };
        let expect = Expect::near(value, f64::EPSILON);
        assert_eq!(judged(DType::F64, 1.0 + f64::EPSILON, expect), accepted(0.75, 0.75, true));
        // Half a unit of a narrower output is its own rounding.
        let half = Format::F16.ulp(1.0);
        assert_eq!(judged(DType::F16, 1.0 + 2.0 * half, near(1.0, 2.0 * half)), accepted(2.0, 0.75, false));
        assert_eq!(judged(DType::F32, 1.0, Expect::Any), Judgement { indeterminate: true, ..Judgement::EXACT });
        assert_eq!(judged(DType::F32, 1.0, Expect::Nan), wrong(f64::INFINITY, f64::INFINITY));
        assert_eq!(judged(DType::F32, f64::NAN, near(1.0, 1.0)).ulps, f64::INFINITY);
        let exact = Expect::exact(DType::F32, 1.0);
        assert_eq!(judged(DType::F32, 1.0 + 3.0 * step, exact), wrong(3.0, f64::INFINITY));
        let integer = |got: i32, expected: i32| {
            judge(DType::I32, got.cast_unsigned().into(), &Expect::Bits(expected.cast_unsigned().into()))
        };
        assert_eq!((integer(-5, -5), integer(3, -4)), (Judgement::EXACT, wrong(7.0, f64::INFINITY)));
    }

    #[test]
    fn loose_is_above_what_is_likely() {
        let step = f64::from(f32::EPSILON);
        let loose = |likely| {
            let expect = near(1.0, 4.0 * step).likely(likely);
            judge(DType::F32, encode_float(DType::F32, 1.0 + 2.0 * step), &expect).loose
        };
        assert_eq!([loose(1.5 * step), loose(2.0 * step), loose(9.0 * step)], [true, false, false]);
        assert_eq!(near(1.0, 2.0).likely(9.0), near(1.0, 2.0));
        // 1 is an end of the interval around 1 + 0.45 ULP ± 0.1 ULP.
        let expect = Expect::near(Dd { hi: 1.0, lo: 0.45 * f64::EPSILON }, 0.1 * f64::EPSILON);
        let judged = judge(DType::F64, encode_float(DType::F64, 1.0), &expect);
        assert_eq!((judged.accepted, judged.ratio, judged.loose), (true, 1.0, false));
    }
}
