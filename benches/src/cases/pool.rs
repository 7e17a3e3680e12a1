//! Pooling of image networks: 2×2 and 3×3 with stride 2, positions, averages and gradients.

use congruent::DType;
use congruent::ops::PoolOptions;

use crate::case::{Case, data, sizes};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::BF16] {
        for shape in [[1, 16, 32, 32], [8, 64, 112, 112], [32, 64, 112, 112]] {
            for (name, kernel, padding) in [("2x2s2", 2, 0), ("3x3s2", 3, 1)] {
                windows(&mut cases, dtype, shape, (name, kernel, padding));
            }
        }
    }
    cases
}

fn windows(cases: &mut Vec<Case>, dtype: DType, shape: [usize; 4], (name, kernel, padding): (&str, usize, usize)) {
    let options = PoolOptions { stride: [2; 3], padding: [[padding; 2]; 3], ..PoolOptions::new([kernel; 3]) };
    let half = [shape[0], shape[1], shape[2] / 2, shape[3] / 2];
    let (count, outs) = (shape.iter().product::<usize>(), half.iter().product::<usize>());
    let mut push = |case: Case, positions: usize| {
        let bytes = (count + outs) * dtype.size() + 8 * positions;
        let case = case.arg("kernel", kernel).arg("stride", 2).arg("padding", padding);
        cases.push(case.bytes(bytes).named(sizes(&shape)));
    };
    let op = |op: &str| format!("{op}{name}");
    let image = || [data(&shape)];
    push(Case::new(("pool", &op("max_pool")), dtype, image(), move |i| i.x[0].max_pool(options)), 0);
    push(Case::new(("pool", &op("argmax_pool")), dtype, image(), move |i| i.x[0].argmax_pool(options)), outs);
    push(Case::new(("pool", &op("avg_pool")), dtype, image(), move |i| i.x[0].avg_pool(options)), 0);
    let grad = Case::new(("pool", &op("max_pool_grad")), dtype, [data(&half), data(&shape)], move |inputs| {
        inputs.x[0].max_pool_grad(&inputs.x[1], shape, options)
    });
    push(
        grad.prepared(move |inputs| {
            inputs.x[1] = inputs.x[1].argmax_pool(options)?;
            Ok(())
        }),
        outs,
    );
    push(
        Case::new(("pool", &op("avg_pool_grad")), dtype, [data(&half)], move |inputs| {
            inputs.x[0].avg_pool_grad(shape, options)
        }),
        0,
    );
}
