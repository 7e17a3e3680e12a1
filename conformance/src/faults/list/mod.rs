//! The faults, by concern, and what they share.

mod attention;
mod convolutions;
mod functions;
mod index;
mod layout;
mod memory;
mod norms;
mod pooling;
mod products;
mod random;
mod reductions;
mod scans;
mod sorting;

use congruent_backend_api::ops::binary::BinaryOp;
use congruent_backend_api::ops::unary::UnaryOp;
use congruent_backend_api::{DType, Op, Scalar};

use super::{Element, Fault, Kind, Special, Written};
use crate::host::{decode, encode_float};
use crate::ops::conv::{Sizes, Tap};
use crate::ops::pool::{Sizes as PoolSizes, Window};
use crate::round::{exp2, exponent};

/// Every family.
pub(super) const ALL: &[&str] = &[
    "unary",
    "binary",
    "compare",
    "copy",
    "reduce",
    "scan",
    "sort",
    "random",
    "matmul",
    "norm",
    "index",
    "conv",
    "pool",
    "attention",
];
const ARITHMETIC: &[&str] = &["unary", "binary", "reduce", "scan", "matmul", "conv"];

/// Every fault.
pub fn faults() -> impl Iterator<Item = Fault> {
    [
        memory::FAULTS,
        layout::FAULTS,
        functions::FAULTS,
        reductions::FAULTS,
        scans::FAULTS,
        sorting::FAULTS,
        random::FAULTS,
        products::FAULTS,
        norms::FAULTS,
        index::FAULTS,
        attention::FAULTS,
        convolutions::FAULTS,
        pooling::FAULTS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

impl Fault {
    const fn new(name: &'static str, families: &'static [&'static str], kind: Kind) -> Self {
        Self { number: None, name, families, laws_only: false, touched: |_, _| true, kind }
    }

    const fn output(name: &'static str, families: &'static [&'static str], spoil: fn(&mut Written<'_>)) -> Self {
        Self::new(name, families, Kind::Output(spoil))
    }

    const fn input(name: &'static str, change: fn(&[usize], &mut [isize], &mut usize)) -> Self {
        Self::new(name, ALL, Kind::Input(change))
    }

    const fn special(name: &'static str, families: &'static [&'static str], special: Special) -> Self {
        Self::new(name, families, Kind::Special(special))
    }

    const fn function(
        name: &'static str,
        families: &'static [&'static str],
        touched: fn(Op, DType) -> bool,
        function: fn(&Element<'_>) -> Option<Scalar>,
    ) -> Self {
        Self { touched, ..Self::new(name, families, Kind::Function(function)) }
    }

    /// A convolution over other products.
    const fn taps(name: &'static str, change: fn(&mut Tap, &Sizes)) -> Self {
        Self::new(name, &["conv"], Kind::Taps(change))
    }

    /// A pooling of other windows.
    const fn windows(name: &'static str, change: fn(&mut Window, &PoolSizes)) -> Self {
        Self::new(name, &["pool"], Kind::Windows(change))
    }

    const fn order(name: &'static str, order: fn(&[Scalar], DType, bool) -> Vec<usize>) -> Self {
        Self::new(name, &["sort"], Kind::Order(order))
    }

    /// A wrong function of one float, in f64 before it is rounded to the dtype.
    const fn unary(op: UnaryOp, name: &'static str, function: fn(f64) -> f64) -> Self {
        Self::new(name, &["unary"], Kind::Unary(op, function))
    }

    /// A wrong function of two integers of a dtype.
    const fn integer(op: BinaryOp, name: &'static str, function: fn(DType, i64, i64) -> i64) -> Self {
        Self::new(name, &["binary"], Kind::Integer(op, function))
    }

    const fn number(self, number: u8) -> Self {
        Self { number: Some(number), ..self }
    }

    const fn on(self, touched: fn(Op, DType) -> bool) -> Self {
        Self { touched, ..self }
    }

    const fn laws_only(self) -> Self {
        Self { laws_only: true, ..self }
    }
}

fn float(_: Op, dtype: DType) -> bool {
    dtype.is_float()
}

fn restore(written: &mut Written<'_>, index: usize) {
    if let Some(&at) = written.positions.get(index) {
        written.after.set_bits(at, written.before.bits(at));
    }
}

/// Replaces each float of the view by a function of the old and the new value.
fn map(written: &mut Written<'_>, function: impl Fn(f64, f64) -> f64) {
    let dtype = written.after.dtype;
    for &at in written.positions.iter().filter(|_| dtype.is_float()) {
        let (old, new) = (decode(dtype, written.before.bits(at)), decode(dtype, written.after.bits(at)));
        let changed = function(old.to_f64(), new.to_f64());
        if changed.to_bits() != new.to_f64().to_bits() {
            written.after.set_bits(at, encode_float(dtype, changed));
        }
    }
}

/// A value with a significand of fewer bits.
fn short(value: f64, bits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let unit = exp2((exponent(value) - bits + 1).max(-1074));
    (value / unit).round_ties_even() * unit
}

/// The sum rounded to a dtype after each addition.
fn narrow(dtype: DType, values: impl IntoIterator<Item = f64>) -> f64 {
    let round = |value: f64| decode(dtype, encode_float(dtype, value)).to_f64();
    values.into_iter().fold(0.0, |sum, x| round(sum + round(x)))
}

/// The pairwise sum in f32, starting somewhere else at every call.
fn rotated(values: &[f64], calls: usize) -> f64 {
    let mut values: Vec<f64> = values.iter().map(|&x| f64::from(x as f32)).collect();
    let count = values.len().max(1);
    values.rotate_left(calls % count);
    pairwise(&values, |a, b| f64::from(a as f32 + b as f32))
}

/// The sum of the halves' sums.
fn pairwise(values: &[f64], add: fn(f64, f64) -> f64) -> f64 {
    match values {
        [] => 0.0,
        [value] => *value,
        _ => {
            let (left, right) = values.split_at(values.len().next_power_of_two() / 2);
            add(pairwise(left, add), pairwise(right, add))
        }
    }
}

#[cfg(all(test, feature = "cli"))]
mod tests {
    use std::sync::Arc;

    use congruent_backend_api::erase::Erase;

    use super::*;
    use crate::faults::score;
    use crate::ops::sort::compare;
    use crate::suite::Profile;

    /// What faults recompute would be right but for the fault: otherwise they were caught for another reason.
    #[test]
    fn recomputed_sums_and_products_are_right() {
        let none = [
            Fault::function(
                "products, recomputed",
                &["matmul"],
                |op, _| op == Op::Matmul,
                |element| products::product(element, |_| {}),
            ),
            Fault::function("scans, recomputed", &["scan"], |_, _| true, |element| scans::scan(element, |_| {})),
            Fault::taps("convolutions, recomputed", |_, _| {}),
            Fault::function("sums, recomputed", &["reduce"], reductions::sums, |element| {
                reductions::sum(element, |_| {})
            }),
            Fault::order("orders, recomputed", |row, _, descending| sorting::order(row, descending, compare)),
        ];
        for fault in none {
            let make = || Ok(Arc::new(Erase(congruent_backend_cpu::Cpu::new())) as Arc<_>);
            let score = score(make, fault, &DType::ALL, &[], &Profile { cases: 96, limit: 512, ..Profile::default() });
            assert!(!score.as_ref().unwrap().caught(), "{score:?}");
        }
    }
}
