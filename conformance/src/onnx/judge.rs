//! Judging a test: every recorded call by the oracle, the outputs by what is stored.

use std::sync::Arc;

use congruent_backend_api::erase::AnyBackend;
use congruent_backend_api::{ErrorKind, Layout};

use super::graph::{Evaluated, evaluate};
use super::load::NodeTest;
use super::node::{Lowered, Stop};
use super::trace::{Recorded, Step, Tensor};
use super::{Basis, Outcome, Verdict};
use crate::arithmetic::Arithmetic;
use crate::case::{Case, Input};
use crate::expect::{Expect, judge};
use crate::host::{HostTensor, decode};
use crate::ops::{expect, expect_of};
use crate::report::describe;
use crate::round::Format;

/// The tolerance with which ONNX's own runner compares.
const RTOL: f64 = 1e-3;
const ATOL: f64 = 1e-7;

/// Tests whose stored outputs were typed with four digits: the oracle rejects them, ONNX's tolerance does not.
const TYPED: &[&str] = &["test_averagepool_2d_ceil_last_window_starts_on_pad"];

impl NodeTest {
    /// Runs the test on a backend, with what that declares of its arithmetic.
    #[must_use]
    pub fn run(&self, backend: &Arc<AnyBackend>, arithmetic: Arithmetic) -> Outcome {
        let mut total = Outcome { verdict: Verdict::Pass(Basis::Oracle), oracle: None };
        if self.sets.is_empty() {
            total.verdict = Verdict::NotCovered("no inputs and outputs are stored".to_owned());
        }
        for set in &self.sets {
            let typed = TYPED.contains(&self.name());
            let judged = evaluate(self, set, backend).and_then(|evaluated| judge_all(&evaluated, arithmetic, typed));
            let (verdict, oracle) = match judged {
                Ok(Judged { failure: Some(reason), oracle, .. }) => (Verdict::Fail(reason), oracle),
                Ok(Judged { failure: None, basis, oracle }) => (Verdict::Pass(basis), oracle),
                Err(Stop::NotCovered(reason)) => (Verdict::NotCovered(reason), None),
                Err(Stop::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                    (Verdict::NotCovered(error.message().to_owned()), None)
                }
                Err(Stop::Error(error)) => (Verdict::Fail(format!("returned an error: {error}")), None),
                Err(Stop::Malformed(reason)) => (Verdict::Fail(format!("the test is malformed: {reason}")), None),
            };
            total.verdict = worse(total.verdict, verdict);
            total.oracle = match (total.oracle, oracle) {
                (Some(Err(reason)), _) => Some(Err(reason)),
                (old, new) => new.or(old),
            };
        }
        total
    }
}

fn worse(a: Verdict, b: Verdict) -> Verdict {
    match (a, b) {
        (Verdict::Pass(a), Verdict::Pass(b)) => Verdict::Pass(a.min(b)),
        (fail @ Verdict::Fail(_), _) | (_, fail @ Verdict::Fail(_)) => fail,
        (not_covered @ Verdict::NotCovered(_), _) | (_, not_covered) => not_covered,
    }
}

struct Judged {
    basis: Basis,
    failure: Option<String>,
    oracle: Option<Result<(), String>>,
}

fn judge_all(evaluated: &Evaluated, arithmetic: Arithmetic, typed: bool) -> Lowered<Judged> {
    let mut judged = Judged { basis: Basis::Oracle, failure: None, oracle: None };
    let mut cases = Vec::new();
    for step in &evaluated.steps {
        let case = case(step)?;
        let wrong = outside(&case, &download(&step.out)?, &expect_of(&case, arithmetic));
        judged.failure = judged.failure.or_else(|| wrong.map(|reason| format!("{}: {reason}", case.op().name())));
        cases.push(case);
    }
    for (index, (output, wanted)) in evaluated.outputs.iter().enumerate() {
        let (got, wanted) = (download(output)?, wanted);
        if got.dtype != wanted.dtype || got.layout.shape() != wanted.layout.shape() {
            let kind = |tensor: &HostTensor| format!("{}{:?}", tensor.dtype, tensor.layout.shape());
            let reason = format!("output {index} is {}; expected {}", kind(&got), kind(wanted));
            return Ok(Judged { failure: Some(reason), ..judged });
        }
        let sole = match (evaluated.steps.as_slice(), cases.as_slice()) {
            ([step], [case]) if !(evaluated.composed || typed) && same_elements(&step.out, output) => Some(case),
            _ => None,
        };
        let (basis, wrong) = match sole {
            Some(case) => {
                let widened: Vec<_> = expect(case).iter().map(|expect| widen(wanted, expect)).collect();
                judged.oracle = Some(outside(case, wanted, &widened).map_or(Ok(()), Err));
                (Basis::Oracle, None)
            }
            None if evaluated.steps.is_empty() && !evaluated.composed || !got.dtype.is_float() => {
                (Basis::Bits, different(&got, wanted, 0.0, 0.0))
            }
            None => (Basis::Tolerance, different(&got, wanted, ATOL, RTOL)),
        };
        judged.basis = judged.basis.min(basis);
        judged.failure = judged.failure.or_else(|| wrong.map(|reason| format!("output {index}, {reason}")));
    }
    Ok(judged)
}

/// Whether two tensors are the same elements in the same order.
fn same_elements(a: &Tensor, b: &Tensor) -> bool {
    Arc::ptr_eq(a.storage(), b.storage()) && a.is_contiguous() && b.is_contiguous() && a.count() == b.count()
}

/// The call as the oracle takes it.
fn case(step: &Step) -> Lowered<Case> {
    let input = |recorded: &Recorded| match recorded {
        Recorded::Tensor(tensor) => download(tensor).map(Input::Tensor),
        Recorded::Scalar(scalar) => Ok(Input::Scalar(*scalar)),
        Recorded::InPlace => Ok(Input::InPlace),
    };
    let inputs = step.inputs.iter().map(input).collect::<Lowered<_>>()?;
    Ok(Case { call: step.call.clone(), inputs, out: download(step.old.as_ref().unwrap_or(&step.out))? })
}

/// The elements, row-major.
fn download(tensor: &Tensor) -> Lowered<HostTensor> {
    let tensor = tensor.contiguous()?;
    let mut bytes = vec![0; tensor.count() * tensor.dtype().size()];
    if bytes.is_empty() {
        tensor.synchronize()?;
    } else {
        tensor.backend().download(tensor.storage(), tensor.layout().offset(), &mut bytes)?;
    }
    Ok(HostTensor { dtype: tensor.dtype(), layout: Layout::contiguous(*tensor.layout().shape()), bytes })
}

/// What may be stored: NumPy evaluates in an order of its own, which is as far from the exact value as a backend's may
/// be, and what is stored was rounded.
fn widen(stored: &HostTensor, expect: &Expect) -> Expect {
    match *expect {
        Expect::Near { value, bound, likely, signed } => {
            let ulp = Format::of(stored.dtype).map_or(0.0, |format| format.ulp(value.to_f64()));
            Expect::Near { value, bound: 2.0 * bound + ulp / 2.0, likely, signed }
        }
        expect => expect,
    }
}

/// The first element that is not what it may be.
fn outside(case: &Case, out: &HostTensor, expected: &[Expect]) -> Option<String> {
    out.view_bits().into_iter().zip(expected).enumerate().find_map(|(index, (bits, expect))| {
        let judged = judge(out.dtype, bits, expect);
        (!judged.accepted).then(|| describe(case, index, bits, expect, &judged))
    })
}

/// The first element that is further from the wanted one than atol + rtol · |wanted|. NaN is NaN, an infinity itself, and
/// without a tolerance the bits are compared.
fn different(got: &HostTensor, wanted: &HostTensor, atol: f64, rtol: f64) -> Option<String> {
    let (dtype, shape) = (got.dtype, wanted.layout.shape());
    let elements = got.view_bits().into_iter().zip(wanted.view_bits()).enumerate();
    elements.into_iter().find_map(|(index, (got, wanted))| {
        let value = |bits| decode(dtype, bits).to_f64();
        let (x, y) = (value(got), value(wanted));
        let near = y.is_finite() && (x - y).abs() <= atol + rtol * y.abs() && atol > 0.0;
        if got == wanted || near || (x.is_nan() && y.is_nan()) {
            return None;
        }
        let at = coordinates(index, shape);
        let within = if atol > 0.0 { format!(" within {atol:e} + {rtol:e} of its size") } else { String::new() };
        Some(format!(
            "element {at:?} of {shape:?} is {}; expected {}{within}",
            decode(dtype, got),
            decode(dtype, wanted)
        ))
    })
}

/// The coordinates of a row-major index.
fn coordinates(index: usize, shape: &[usize]) -> Vec<usize> {
    let mut rest = index;
    let mut coordinates = vec![0; shape.len()];
    for (coordinate, &size) in coordinates.iter_mut().zip(shape).rev() {
        (*coordinate, rest) = (rest % size, rest / size);
    }
    coordinates
}
