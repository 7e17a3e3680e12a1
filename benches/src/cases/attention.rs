//! Scaled dot-product attention, [batch, heads, positions, features] in rows.

use congruent::DType;
use congruent::ops::AttentionOptions;

use super::COMMON;
use crate::case::{Case, data, sizes};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in COMMON {
        let small = [[1, 2, 64, 64], [1, 32, 512, 64], [4, 8, 512, 64], [4, 8, 2048, 64], [4, 16, 2048, 64]];
        for shape in small.into_iter().chain([[4, 16, 4096, 128]]) {
            let [batch, heads, positions, features] = shape;
            let flops = 4 * batch * heads * positions * positions * features;
            let inputs = vec![data(&shape); 3];
            let bytes = 4 * shape.iter().product::<usize>() * dtype.size();
            for causal in [false, true] {
                let options = AttentionOptions { causal, ..AttentionOptions::default() };
                let op = if causal { "attention_causal" } else { "attention" };
                let case = Case::new(("attention", op), dtype, inputs.clone(), move |inputs| {
                    inputs.x[0].attention(&inputs.x[1], &inputs.x[2], None, options)
                });
                // Half of the scores lie behind the queries.
                let flops = if causal { flops / 2 } else { flops };
                let case = case.flops(flops).bytes(bytes).arg("causal", usize::from(causal));
                cases.push(case.huge(positions > 2048));
            }
        }
        for queries in [1, 16] {
            cases.push(decode(dtype, queries));
        }
    }
    cases
}

/// Few queries after many keys, as when text is generated.
fn decode(dtype: DType, queries: usize) -> Case {
    let (q, k) = ([4, 16, queries, 128], [4, 16, 32768, 128]);
    let inputs = vec![data(&q), data(&k), data(&k)];
    let case = Case::new(("attention", "attention"), dtype, inputs, |inputs| {
        inputs.x[0].attention(&inputs.x[1], &inputs.x[2], None, AttentionOptions::default())
    });
    let count = |shape: [usize; 4]| shape.iter().product::<usize>();
    case.bytes(2 * (count(q) + count(k)) * dtype.size())
        .flops(4 * queries * count(k))
        .arg("causal", 0)
        .named(format!("{} of {} keys", sizes(&q), k[2]))
        .huge(true)
}
