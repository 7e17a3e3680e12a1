//! Sorts of one long row and of many rows, the first 50 of each, and searches.

use congruent::{DType, Result};

use super::huge;
use crate::case::{Case, Input, T};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for shape in [&[256, 256][..], &[1024, 1024], &[1024, 8192], &[1 << 16], &[1 << 20], &[1 << 24]] {
        let mut rows = |op, call: fn(&T) -> Result<T>| {
            let uniform = Input::Uniform { shape: shape.to_vec() };
            cases.push(Case::new(("sort", op), DType::F32, [uniform], move |inputs| call(&inputs.x[0])));
        };
        rows("sort", |x| x.sort(-1, false));
        rows("argsort", |x| x.argsort(-1, false));
        rows("topk50", |x| Ok(x.topk(50, -1, true)?.0));
    }
    for count in [1 << 12, 1 << 20, 1 << 26] {
        let inputs = [Input::Sorted { shape: vec![4096] }, Input::Uniform { shape: vec![count] }];
        let case = Case::new(("sort", "searchsorted"), DType::F32, inputs, |inputs| {
            inputs.x[0].searchsorted(&inputs.x[1], false)
        });
        cases.push(case.bytes(12 * count).named(crate::case::size(count)).huge(huge(count)));
    }
    cases
}
