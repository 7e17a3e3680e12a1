//! Wrong orders, selections and searches.

use std::cmp::Ordering;

use congruent_backend_api::ops::sort::SortOp;
use congruent_backend_api::{DType, Op, Scalar};

use crate::faults::{Element, Fault};
use crate::ops::sort::compare;

const SORT: &[&str] = &["sort"];

pub(super) const FAULTS: &[Fault] = &[
    Fault::order("of equal elements the last comes first", |row, _, descending| {
        by(row, |&a, &b| directed(descending, compare(row[a], row[b])).then(b.cmp(&a)))
    })
    .number(35),
    Fault::order("a descending order is the ascending one backwards", |row, _, descending| {
        let mut order = order(row, false, compare);
        if descending {
            order.reverse();
        }
        order
    })
    .number(35),
    Fault::order("the choice of the first k is not stable", |row, _, descending| {
        let mut order = order(row, descending, compare);
        // Equal elements on either side of a cut in the middle change places.
        let middle = order.len() / 2;
        if let Some(pair) = order.get_mut(middle.saturating_sub(1)..=middle)
            && let [before, after] = pair
            && compare(row[*before], row[*after]).is_eq()
        {
            std::mem::swap(before, after);
        }
        order
    })
    .number(35),
    Fault::order("NaN is ordered below −∞", |row, _, descending| {
        order(row, descending, |a, b| match (nan(a), nan(b)) {
            (false, false) => compare(a, b),
            (a, b) => b.cmp(&a),
        })
    })
    .on(float)
    .number(36),
    Fault::order("NaN is last in either direction", |row, _, descending| {
        by(row, |&a, &b| nan(row[a]).cmp(&nan(row[b])).then_with(|| directed(descending, compare(row[a], row[b]))))
    })
    .on(float)
    .number(36),
    Fault::order("NaN compares equal to everything", |row, _, descending| {
        // Insertion stops at a NaN, and what lies behind it stays there.
        let mut order: Vec<usize> = Vec::with_capacity(row.len());
        for at in 0..row.len() {
            let moves = |&other: &usize| match (row[at].to_f64(), row[other].to_f64()) {
                (new, old) if descending => new > old,
                (new, old) => new < old,
            };
            let place = order.iter().rposition(|other| !moves(other)).map_or(0, |place| place + 1);
            order.insert(place, at);
        }
        order
    })
    .on(float)
    .number(36),
    Fault::order("−0 is ordered below +0", |row, _, descending| {
        order(row, descending, |a, b| match (a, b) {
            (Scalar::Float(a), Scalar::Float(b)) if !a.is_nan() && !b.is_nan() => a.total_cmp(&b),
            (a, b) => compare(a, b),
        })
    })
    .on(float),
    Fault::order("NaN is ordered by its sign", |row, _, descending| {
        order(row, descending, |a, b| match (a, b) {
            (Scalar::Float(a), Scalar::Float(b)) if a != b => a.total_cmp(&b),
            (a, b) => compare(a, b),
        })
    })
    .on(float)
    .laws_only(),
    Fault::order("the direction is ignored", |row, _, _| order(row, false, compare)),
    Fault::order("keys are the upper half of an element", |row, dtype, descending| {
        let half = 4 * dtype.size() as u32;
        order(row, descending, |a, b| match (a, b) {
            (Scalar::Int(a), Scalar::Int(b)) => (a >> half).cmp(&(b >> half)),
            (Scalar::Float(a), Scalar::Float(b)) if dtype == DType::F32 => {
                let bf16 = |x: f64| Scalar::Float(congruent_backend_api::convert::f64_to_bf16(x).to_f64());
                compare(bf16(a), bf16(b))
            }
            (a, b) => compare(a, b),
        })
    })
    .on(|_, dtype| dtype.is_int() || dtype == DType::F32),
    Fault::order("integers are ordered in f32", |row, _, descending| {
        order(row, descending, |a, b| (a.to_f64() as f32).total_cmp(&(b.to_f64() as f32)))
    })
    .on(|_, dtype| matches!(dtype, DType::I64 | DType::I32 | DType::U32)),
    Fault::order("integers are ordered as unsigned", |row, _, descending| {
        order(row, descending, |a, b| a.to_i64().cast_unsigned().cmp(&b.to_i64().cast_unsigned()))
    })
    .on(|_, dtype| matches!(dtype, DType::I64 | DType::I32)),
    Fault::order("what follows element 256 of a row is sorted on its own", |row, _, descending| {
        let mut order: Vec<usize> = (0..row.len()).collect();
        for tile in order.chunks_mut(256) {
            tile.sort_by(|&a, &b| directed(descending, compare(row[a], row[b])));
        }
        order
    }),
    Fault::order("the last element of a row stays where it is", |row, _, descending| {
        let mut order = order(&row[..row.len().saturating_sub(1)], descending, compare);
        order.extend(row.len().checked_sub(1));
        order
    }),
    Fault::output("positions of sorted elements are truncated to 16 bits", SORT, |written| {
        for &at in written.positions {
            written.after.set_bits(at, written.after.bits(at) & 0xffff);
        }
    })
    .on(positions)
    .laws_only()
    .number(39),
    Fault::output("positions in rows of more than 512 elements are one too many", SORT, |written| {
        if written.sizes.last().is_some_and(|&taken| taken > 512) {
            for &at in written.positions {
                written.after.set_bits(at, written.after.bits(at) + 1);
            }
        }
    })
    .on(positions),
    Fault::function("the side of a search is ignored", SORT, searches, |element| Some(place(element, false, compare))),
    Fault::function("a search takes the other side", SORT, searches, |element| {
        Some(place(element, element.factors.0 == 0.0, compare))
    }),
    Fault::function(
        "a search finds NaN before everything",
        SORT,
        |op, dtype| searches(op, dtype) && dtype.is_float(),
        |element| (nan(element.operands[1][0])).then_some(Scalar::Int(0)),
    ),
    Fault::function("a search leaves out the last element", SORT, searches, |element| {
        let most = element.operands[0].len().saturating_sub(1) as i64;
        Some(Scalar::Int(element.new.to_i64().min(most)))
    }),
];

fn float(_: Op, dtype: DType) -> bool {
    dtype.is_float()
}

fn positions(op: Op, _: DType) -> bool {
    matches!(op, Op::Sort(SortOp::Argsort | SortOp::Topk) | Op::SearchSorted)
}

fn searches(op: Op, _: DType) -> bool {
    op == Op::SearchSorted
}

fn nan(value: Scalar) -> bool {
    value.to_f64().is_nan()
}

fn directed(descending: bool, order: Ordering) -> Ordering {
    if descending { order.reverse() } else { order }
}

/// The positions of a row in a stable order.
pub(super) fn order(row: &[Scalar], descending: bool, compare: impl Fn(Scalar, Scalar) -> Ordering) -> Vec<usize> {
    by(row, |&a, &b| directed(descending, compare(row[a], row[b])))
}

fn by(row: &[Scalar], compare: impl FnMut(&usize, &usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(compare);
    order
}

/// The place of a value in its sorted row.
fn place(element: &Element<'_>, right: bool, compare: fn(Scalar, Scalar) -> Ordering) -> Scalar {
    let value = element.operands[1][0];
    let before = |&&x: &&Scalar| {
        let order = compare(x, value);
        order.is_lt() || right && order.is_eq()
    };
    Scalar::Int(element.operands[0].iter().filter(before).count() as i64)
}
