//! Scaled dot-product attention, [batch, heads, positions, features] in rows.

use congruent::DType;
use congruent::ops::AttentionOptions;

use crate::case::{Case, data};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::BF16] {
        for shape in [[1, 2, 64, 64], [1, 32, 512, 64], [4, 8, 512, 64], [4, 8, 2048, 64], [4, 16, 2048, 64]] {
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
                cases.push(case.flops(flops).bytes(bytes).arg("causal", usize::from(causal)));
            }
        }
    }
    cases
}
