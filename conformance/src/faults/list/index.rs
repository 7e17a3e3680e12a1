//! Indices read as others, duplicates, and what is reported of an index out of range.

use congruent_backend_api::ops::index::ScatterOp;

use crate::faults::{Fault, Kind, Special};

const INDEX: &[&str] = &["index"];

pub(super) const FAULTS: &[Fault] = &[
    Fault::index("an index is one too small", |index, _| if index > 0 { index - 1 } else { index }).number(64),
    Fault::index("a negative index counts from the end", |index, len| if index < 0 { index + len } else { index })
        .number(64),
    Fault::index("an index past the end is clamped", |index, len| index.min(len - 1)).number(64),
    Fault::index("a negative index is clamped", |index, _| index.max(0)).number(64),
    Fault::index("an index is taken modulo the axis", |index, len| index.rem_euclid(len.max(1))).number(64),
    Fault::index("an index above 127 is negative", |index, _| i64::from(index as i8)),
    Fault::special("of several sources the first stays", INDEX, Special::FirstWins),
    Fault::scatter("of several sources one is added", ScatterOp::Add, ScatterOp::Set).number(63),
    Fault::scatter("a maximum leaves the last source", ScatterOp::Max, ScatterOp::Set),
    Fault::scatter("a minimum is a maximum", ScatterOp::Min, ScatterOp::Max),
    Fault::scatter("sources are added to the old value, which they should replace", ScatterOp::Set, ScatterOp::Add),
    Fault::special("an index out of range is not reported", INDEX, Special::SilentIndex).number(64),
    Fault::special("an index out of range is reported for ever", INDEX, Special::StickyIndex),
];

impl Fault {
    const fn index(name: &'static str, read: fn(i64, i64) -> i64) -> Self {
        Self::new(name, INDEX, Kind::Index(read))
    }

    const fn scatter(name: &'static str, op: ScatterOp, other: ScatterOp) -> Self {
        Self::new(name, INDEX, Kind::Scatter(op, other))
    }
}
