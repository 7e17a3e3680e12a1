//! Which of two results is wrong.

use congruent_backend_api::{DType, Error, Layout, Shape, Slice};

use super::divergence::Wrong;
use crate::case::{Call, Case, Input};
use crate::expect::{Expect, judge};
use crate::host::{HostTensor, decode, positions};
use crate::ops::{attention, conv, data_error, expect, misreported, pool};
use crate::report::describe;

/// What one backend made of a case.
pub(super) struct Ran<'a> {
    /// The output's storage, as far as the case has it.
    pub(super) bytes: &'a [u8],
    /// What the next synchronising call reported.
    pub(super) error: Option<&'a Error>,
}

/// Why two results are not both right.
pub(super) struct Finding {
    pub(super) wrong: Wrong,
    pub(super) reason: String,
}

/// How many elements of a call too large for the oracle are judged.
const SAMPLE: usize = 32;

/// Holds two results that differ in some bit against the oracle.
pub(super) fn compare(case: &Case, ran: &[Ran<'_>; 2], limit: usize) -> Option<Finding> {
    reports(case, ran).or_else(|| damage(case, ran)).or_else(|| values(case, ran, limit))
}

fn finding(wrong: [bool; 2], reason: impl FnOnce() -> String) -> Option<Finding> {
    let wrong = match wrong {
        [false, false] => return None,
        [true, false] => Wrong::First,
        [false, true] => Wrong::Second,
        [true, true] => Wrong::Both,
    };
    Some(Finding { wrong, reason: reason() })
}

/// Errors that the data caused must be those of the contract.
fn reports(case: &Case, ran: &[Ran<'_>; 2]) -> Option<Finding> {
    let reported = [0, 1].map(|side| ran[side].error.map(Error::kind));
    if reported[0] == reported[1] {
        return None;
    }
    let due = data_error(case);
    let wrong = reported.map(|reported| misreported(reported, due));
    finding([0, 1].map(|side| wrong[side].is_some()), || wrong.into_iter().flatten().next().unwrap_or_default())
}

/// Elements outside the view must be as before.
fn damage(case: &Case, ran: &[Ran<'_>; 2]) -> Option<Finding> {
    let (dtype, size) = (case.out.dtype, case.out.dtype.size());
    let mut outside = vec![true; case.out.storage_len()];
    for at in positions(&case.out.layout) {
        outside[at] = false;
    }
    let changed = |ran: &Ran<'_>, at: usize| {
        let element = at * size..(at + 1) * size;
        outside[at] && ran.bytes[element.clone()] != case.out.bytes[element]
    };
    let at = (0..outside.len()).find(|&at| changed(&ran[0], at) || changed(&ran[1], at))?;
    finding([changed(&ran[0], at), changed(&ran[1], at)], || {
        format!("element {at} of the output's storage ({dtype}), outside the view, was overwritten")
    })
}

/// Elements that differ must both be what the oracle allows.
fn values(case: &Case, ran: &[Ran<'_>; 2], limit: usize) -> Option<Finding> {
    let [a, b] = [0, 1].map(|side| HostTensor { bytes: ran[side].bytes.to_vec(), ..case.out.clone() }.view_bits());
    let mut differing: Vec<usize> = (0..a.len()).filter(|&index| a[index] != b[index]).collect();
    // Which sources or windows meet an element only the whole case says, and a whole row enters each element of a norm: all
    // of them take one pass.
    let one_pass =
        matches!(case.call, Call::Scatter { .. } | Call::Nonzero | Call::Normalize { .. } | Call::Pool { .. });
    let whole = one_pass || work(case) <= limit;
    let whole = whole.then(|| expect(case));
    if whole.is_none() {
        differing = farthest(case.out.dtype, &a, &b, differing);
    }
    differing.into_iter().find_map(|index| {
        let allowed = match &whole {
            Some(whole) => whole.get(index).copied(),
            None => match &case.call {
                Call::Conv { op, options, activation } => conv::expect_element(*op, options, *activation, case, index),
                Call::Attention { op, options, given } => attention::expect_element(*op, *options, *given, case, index),
                _ => expect(&element(case, index)?).last().copied(),
            },
        };
        disagreement(case, index, [a[index], b[index]], &allowed?)
    })
}

fn disagreement(case: &Case, index: usize, bits: [u64; 2], allowed: &Expect) -> Option<Finding> {
    let judged = bits.map(|bits| judge(case.out.dtype, bits, allowed));
    let side = usize::from(judged[0].accepted);
    finding(judged.map(|judged| !judged.accepted), || {
        let other = decode(case.out.dtype, bits[1 - side]);
        format!("{}; on the other backend it is {other}", describe(case, index, bits[side], allowed, &judged[side]))
    })
}

/// The oracle's steps for a case.
fn work(case: &Case) -> usize {
    let count = |index: usize| case.tensor(index).map_or(0, |tensor| tensor.layout.count());
    match (&case.call, case.tensor(1)) {
        (Call::Conv { op, options, .. }, _) => conv::work(*op, options, case),
        (Call::Pool { op, options }, _) => pool::work(*op, options, case),
        (Call::Matmul { .. }, Some(b)) => count(0).saturating_mul(b.layout.shape().last().copied().unwrap_or(1)),
        (Call::Attention { .. }, Some(k)) => count(0).max(case.out.layout.count()).saturating_mul(k.layout.shape()[2]),
        (Call::Linear { .. }, Some(weight)) => count(0).saturating_mul(weight.layout.shape()[0]),
        _ => case.out.layout.count().max(count(0)),
    }
}

/// The elements with the largest differences, half of them absolutely and half relative to their size.
fn farthest(dtype: DType, a: &[u64], b: &[u64], mut differing: Vec<usize>) -> Vec<usize> {
    let gap = |index: usize, relative: bool| {
        let [a, b] = [a[index], b[index]].map(|bits| decode(dtype, bits).to_f64());
        let gap = (a - b).abs() / if relative { a.abs().max(b.abs()) } else { 1.0 };
        // A NaN or an infinity on one side only is the largest difference.
        if gap.is_nan() { f64::INFINITY } else { gap }
    };
    let mut chosen = Vec::new();
    for relative in [false, true] {
        differing.sort_by(|&x, &y| gap(y, relative).total_cmp(&gap(x, relative)));
        chosen.extend(differing.iter().take(SAMPLE / 2));
    }
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// The case of one element of the output alone; for a scan, of the elements up to it.
fn element(case: &Case, index: usize) -> Option<Case> {
    let shape = case.out.layout.shape();
    let mut rest = index;
    let mut at = vec![0; shape.rank()];
    for (coordinate, &size) in at.iter_mut().zip(&**shape).rev() {
        *coordinate = rest % size;
        rest /= size;
    }
    let rank = at.len();
    let scanned = match case.call {
        Call::Scan { axis, .. } => usize::try_from(axis).ok(),
        _ => None,
    };
    let inputs = case.inputs.iter().enumerate().map(|(operand, input)| {
        let Input::Tensor(tensor) = input else { return Some(input.clone()) };
        // The axes of an input that are the output's, each with its coordinate; a product's left operand has its rows,
        // the right its columns. The weight and the bias of a layer have the output's last axis as their first.
        let axes = at.iter().copied().enumerate();
        let axes: Vec<(usize, usize)> = match (&case.call, operand) {
            // The gathered axis of the input stays whole.
            (Call::Matmul { .. } | Call::Linear { .. } | Call::Gather { .. }, 0) => axes.take(rank - 1).collect(),
            (Call::Matmul { .. }, _) => axes.filter(|&(axis, _)| axis != rank - 2).collect(),
            (Call::Linear { .. }, _) => vec![(0, at[rank - 1])],
            _ => axes.collect(),
        };
        Some(Input::Tensor(narrow(tensor, &axes, scanned)?))
    });
    let inputs = inputs.collect::<Option<_>>()?;
    let axes: Vec<_> = at.iter().copied().enumerate().collect();
    let call = crate::ops::random::single(&case.call, case.out.dtype, index)?;
    Some(Case { call, inputs, out: narrow(&case.out, &axes, scanned)? })
}

/// A compact copy of a view with each of `axes` cut down to one coordinate, the scanned one after it.
fn narrow(tensor: &HostTensor, axes: &[(usize, usize)], scanned: Option<usize>) -> Option<HostTensor> {
    let mut layout = tensor.layout;
    for &(axis, last) in axes {
        let last = last as isize;
        let start = if scanned == Some(axis) { 0 } else { last };
        layout = layout.slice(axis as isize, Slice { start: Some(start), stop: Some(last + 1), step: 1 }).ok()?;
    }
    let shape = Shape::new("shadow", layout.shape()).ok()?;
    let bytes = vec![0; layout.count() * tensor.dtype.size()];
    let mut copy = HostTensor { dtype: tensor.dtype, layout: Layout::contiguous(shape), bytes };
    for (to, from) in positions(&layout).into_iter().enumerate() {
        copy.set_bits(to, tensor.bits(from));
    }
    Some(copy)
}
