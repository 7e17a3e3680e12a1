//! Judging results against the outputs that a file expects.

use congruent_backend_api::{DType, Scalar};

use super::data::{Data, data, dtype};
use super::fields::{Fields, Node, Result};
use crate::expect::{Expect, interval, judge};
use crate::host::{HostTensor, decode, encode_float};
use crate::report::coordinates;
use crate::round::Format;

/// How far a result may be from the expected one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Check {
    /// Within the op's own error bound around the expected value.
    Bound,
    /// Equal bits.
    Bits,
    /// Within so many units in the last place.
    Ulp(f64),
    /// Within abs + rel·|expected|.
    Near { abs: f64, rel: f64 },
}

impl Check {
    /// The field `check`.
    pub(super) fn parse(node: Node) -> Result<Self> {
        match node.value.as_str() {
            Some("bound") => return Ok(Self::Bound),
            Some("bits") => return Ok(Self::Bits),
            Some(_) => return Err(node.fail("expected \"bound\", \"bits\", {\"ulp\": k} or {\"abs\": a, \"rel\": r}")),
            None => {}
        }
        let mut fields = node.fields()?;
        let ulp = fields.optional("ulp");
        let (abs, rel) = (fields.optional("abs"), fields.optional("rel"));
        let reason = fields.optional("reason").map(|reason| reason.text().map(drop)).transpose()?;
        let tolerance = |node: &Option<Node>| node.as_ref().map_or(Ok(0.0), Node::tolerance);
        let check = match (&ulp, &abs, &rel) {
            (Some(ulp), None, None) if reason.is_none() => Self::Ulp(ulp.tolerance()?),
            (None, Some(_), _) | (None, _, Some(_)) => Self::Near { abs: tolerance(&abs)?, rel: tolerance(&rel)? },
            _ => return Err(fields.fail("give either `ulp`, or `abs` and `rel` with a `reason`")),
        };
        fields.finish()?;
        Ok(check)
    }
}

/// A tensor that an op must return.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    data: Data,
}

impl Output {
    /// One of the field `outputs`.
    pub(super) fn parse(mut fields: Fields) -> Result<Self> {
        let dtype = dtype(&fields.required("dtype")?)?;
        let shape = fields.required("shape")?;
        let elements = fields.required("data")?;
        fields.finish()?;
        let (at, data) = (elements.clone(), data(elements, dtype)?);
        let (sizes, len) = (shape.clone().sizes()?, data.bytes.len() / dtype.size());
        let count = sizes.iter().try_fold(1_usize, |count, &size| count.checked_mul(size));
        match count {
            Some(count) if count == len => Ok(Self { dtype, shape: sizes, data }),
            Some(count) => Err(at.fail(format!("{len} elements, but shape {sizes:?} has {count}"))),
            None => Err(shape.fail("the element count overflows")),
        }
    }

    /// What is wrong with `out`, given what the oracle knows of its elements.
    pub(super) fn judge(&self, check: Check, out: &HostTensor, oracle: &[Expect]) -> Option<String> {
        if out.dtype != self.dtype || **out.layout.shape() != self.shape {
            let shape = out.layout.shape();
            return Some(format!("the result is {} {shape:?}, expected {} {:?}", out.dtype, self.dtype, self.shape));
        }
        let got = out.view_bits();
        let elements = got.into_iter().zip(oracle).enumerate();
        elements.into_iter().find_map(|(index, (got, oracle))| {
            let wanted = self.element(index);
            let at = || format!("element {:?} of {:?}", coordinates(index, &self.shape), self.shape);
            if !wanted.fits(check, oracle) {
                let (wanted, oracle) = (wanted.show(), show_oracle(self.dtype, oracle));
                return Some(format!(
                    "the expectation contradicts the oracle: {} is {wanted}, by the oracle {oracle}",
                    at()
                ));
            }
            let allowed = wanted.allowed(check, oracle);
            (!wanted.accepts(check, got, oracle))
                .then(|| format!("{} is {}; expected {}{allowed}", at(), show(self.dtype, got), wanted.show()))
        })
    }

    fn element(&self, index: usize) -> Element {
        let size = self.dtype.size();
        let mut word = [0; 8];
        word[..size].copy_from_slice(&self.data.bytes[index * size..(index + 1) * size]);
        let literal = self.data.literal.get(index).copied().unwrap_or(false);
        Element { dtype: self.dtype, bits: u64::from_le_bytes(word), literal }
    }
}

/// An expected element.
#[derive(Clone, Copy)]
struct Element {
    dtype: DType,
    bits: u64,
    literal: bool,
}

impl Element {
    fn value(self) -> f64 {
        decode(self.dtype, self.bits).to_f64()
    }

    /// Equal bits; any NaN is any other, unless it was given as bits.
    fn same(self, bits: u64) -> bool {
        self.bits == bits || (!self.literal && nan(self.dtype, self.bits) && nan(self.dtype, bits))
    }

    fn ulp(self) -> f64 {
        Format::of(self.dtype).map_or(1.0, |format| format.ulp(self.value()))
    }

    fn within(self, bits: u64, limit: f64) -> bool {
        match (decode(self.dtype, bits), decode(self.dtype, self.bits)) {
            (Scalar::Float(got), Scalar::Float(wanted)) => {
                let near = got.is_finite() && wanted.is_finite() && (got - wanted).abs() <= limit;
                near || got == wanted || (got.is_nan() && wanted.is_nan())
            }
            (got, wanted) => (i128::from(got.to_i64()) - i128::from(wanted.to_i64())).unsigned_abs() as f64 <= limit,
        }
    }

    /// The tolerance of a check that names one.
    fn limit(self, check: Check) -> Option<f64> {
        match check {
            Check::Ulp(count) => Some(count * self.ulp()),
            Check::Near { abs, rel } => Some(abs + rel * self.value().abs()),
            Check::Bound | Check::Bits => None,
        }
    }

    /// Whether the oracle admits this element as a result.
    fn fits(self, check: Check, oracle: &Expect) -> bool {
        let tolerated = |bits| self.limit(check).is_some_and(|limit| self.within(bits, limit));
        match *oracle {
            Expect::Any => true,
            Expect::Nan => nan(self.dtype, self.bits),
            Expect::Bits(bits) => self.same(bits) || tolerated(bits),
            Expect::Near { value, .. } => {
                judge(self.dtype, self.bits, oracle).accepted || tolerated(encode_float(self.dtype, value.to_f64()))
            }
        }
    }

    /// Whether a result agrees with this element, which the oracle admits.
    fn accepts(self, check: Check, got: u64, oracle: &Expect) -> bool {
        match (self.limit(check), check) {
            (Some(limit), _) => self.within(got, limit),
            (None, Check::Bound) => judge(self.dtype, got, &self.centred(oracle)).accepted,
            (None, _) => self.same(got),
        }
    }

    /// The oracle's bound around this element, and half a unit more for the element's own rounding.
    fn centred(self, oracle: &Expect) -> Expect {
        match *oracle {
            Expect::Near { bound, signed, .. } if self.value().is_finite() => {
                let bound = bound + self.ulp() / 2.0;
                Expect::Near { value: self.value().into(), bound, likely: bound, signed }
            }
            oracle => oracle,
        }
    }

    fn show(self) -> String {
        show(self.dtype, self.bits)
    }

    /// The check in words, for a message.
    fn allowed(self, check: Check, oracle: &Expect) -> String {
        match (check, self.centred(oracle)) {
            (Check::Bound, Expect::Near { value, bound, signed, .. }) => {
                let (low, high) = interval(self.dtype, value, bound, signed);
                format!(" within the op's bound, {low:e} to {high:e}")
            }
            (Check::Ulp(count), _) => format!(" within {count} ULP"),
            (Check::Near { abs, rel }, _) => format!(" within {abs:e} + {rel:e} of its size"),
            _ => " exactly".to_owned(),
        }
    }
}

fn nan(dtype: DType, bits: u64) -> bool {
    dtype.is_float() && decode(dtype, bits).to_f64().is_nan()
}

/// An element's value and, for floats, its bits.
pub(super) fn show(dtype: DType, bits: u64) -> String {
    let value = decode(dtype, bits);
    let width = 2 * dtype.size();
    if dtype.is_float() { format!("{value} (0x{bits:0width$x})") } else { value.to_string() }
}

/// What the oracle admits.
pub(super) fn show_oracle(dtype: DType, oracle: &Expect) -> String {
    match *oracle {
        Expect::Any => "anything".to_owned(),
        Expect::Nan => "NaN".to_owned(),
        Expect::Bits(bits) => show(dtype, bits),
        Expect::Near { value, bound, signed, .. } => {
            let (low, high) = interval(dtype, value, bound, signed);
            format!("{low:e} to {high:e}")
        }
    }
}

#[cfg(test)]
mod tests {
    use congruent_backend_api::{Layout, Shape};
    use serde_json::json;

    use super::*;

    /// What is wrong with the f32 `got` where `wanted` is expected and the oracle knows `oracle`.
    fn judged(check: Check, got: f32, wanted: serde_json::Value, oracle: Expect) -> Option<String> {
        let tensor = json!({"dtype": "f32", "shape": [1], "data": [wanted]});
        let output = Output::parse(Node::root(tensor).fields().unwrap()).unwrap();
        let layout = Layout::contiguous(Shape::new("test", &[1]).unwrap());
        output.judge(check, &HostTensor { dtype: DType::F32, layout, bytes: got.to_le_bytes().to_vec() }, &[oracle])
    }

    /// `steps` representable numbers above 1.
    fn above(steps: u32) -> f32 {
        f32::from_bits(1_f32.to_bits() + steps)
    }

    #[test]
    fn every_check_rejects_a_wrong_result() {
        let near = Expect::near(1.0.into(), f64::from(3.0 * f32::EPSILON));
        for (check, most) in [
            // Three units of the op, half a unit of the expectation, and a tie that rounds to even.
            (Check::Bound, 4),
            (Check::Bits, 0),
            (Check::Ulp(2.0), 2),
            (Check::Near { abs: 0.0, rel: 5.5 * f64::from(f32::EPSILON) }, 5),
            (Check::Near { abs: 5.5 * f64::from(f32::EPSILON), rel: 0.0 }, 5),
        ] {
            assert_eq!(judged(check, above(most), json!(1), near), None, "{check:?}");
            let message = judged(check, above(most + 1), json!(1), near).unwrap();
            assert!(message.starts_with("element [0] of [1] is 1.000000"), "{message}");
            for wrong in [f32::NAN, f32::INFINITY, -1.0] {
                assert!(judged(check, wrong, json!(1), near).is_some(), "{check:?} {wrong}");
            }
        }
    }

    #[test]
    fn the_bound_is_that_of_the_op_around_the_expectation() {
        let exact = Expect::exact(DType::F32, 1.0);
        assert_eq!(judged(Check::Bound, 1.0, json!(1), exact), None);
        assert!(judged(Check::Bound, above(1), json!(1), exact).is_some());
        assert!(judged(Check::Bound, 1.0, json!(above(1)), exact).unwrap().contains("contradicts"));
        let near = Expect::near(1.0.into(), f64::from(3.0 * f32::EPSILON));
        assert_eq!(judged(Check::Bound, above(6), json!(above(2)), near), None);
        assert!(judged(Check::Bound, above(7), json!(above(2)), near).is_some());
        assert!(judged(Check::Bound, above(4), json!(above(4)), near).unwrap().contains("contradicts"));
        assert_eq!(judged(Check::Bound, f32::NAN, json!("nan"), Expect::Nan), None);
        assert!(judged(Check::Bound, 1.0, json!("nan"), Expect::Nan).is_some());
        assert!(judged(Check::Bound, 1.0, json!(1), Expect::Nan).unwrap().contains("by the oracle NaN"));
        assert_eq!(judged(Check::Bound, 7.0, json!(1), Expect::Any), None);
    }

    #[test]
    fn a_nan_given_as_bits_is_that_nan() {
        let nan = f32::from_bits(0x7fc0_0123);
        let copied = Expect::Bits(0x7fc0_0123);
        assert_eq!(judged(Check::Bits, nan, json!("0x7fc00123"), copied), None);
        assert_eq!(judged(Check::Bits, nan, json!("nan"), copied), None);
        assert!(judged(Check::Bits, f32::NAN, json!("0x7fc00123"), copied).is_some());
    }
}
