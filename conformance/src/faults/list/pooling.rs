//! Pooling of other windows.

use congruent_backend_api::ops::conv::MAX_SPATIAL;
use congruent_backend_api::ops::pool::PoolOp;
use congruent_backend_api::{DType, Op};

use crate::faults::Fault;
use crate::ops::pool::{Sizes, Window};

pub(super) const FAULTS: &[Fault] = &[
    Fault::windows("an average divides by the padded count", |window, _| window.divisor = window.places.len() as f64)
        .on(is_average)
        .number(60),
    Fault::windows("an average divides by the elements alone", |window, sizes| {
        window.divisor = window.places.iter().filter(|&place| sizes.inside(place)).count() as f64;
    })
    .on(is_average),
    Fault::windows("padding enters a maximum as zeros", |window, _| window.zeros = true)
        .on(|op, _| op == Op::Pool(PoolOp::MaxPool)),
    Fault::windows("the maximum of a window passes over NaN", |window, _| window.skips_nan = true)
        .on(|op, dtype| matches!(op, Op::Pool(PoolOp::MaxPool | PoolOp::ArgmaxPool)) && dtype.is_float()),
    Fault::windows("of equal elements of a window the last wins", |window, _| window.places.reverse())
        .on(|op, _| op == Op::Pool(PoolOp::ArgmaxPool)),
    Fault::windows("positions are those in the padded input", |window, sizes| {
        let padding = sizes.options.padding;
        window.counted.0 = std::array::from_fn(|axis| -(padding[axis][0] as isize));
        window.counted.1 = std::array::from_fn(|axis| sizes.x[axis] + padding[axis].iter().sum::<usize>());
    })
    .on(has_positions),
    Fault::windows("rows of positions are as long as the axis before", |window, sizes| {
        window.counted.1.rotate_right(1);
        window.counted.1[0] = sizes.x[0];
    })
    .on(has_positions),
    Fault::windows("where windows overlap, the last gradient stays", |window, _| window.replaces = true)
        .on(|op, _| matches!(op, Op::Pool(op) if op.is_gradient())),
    Fault::windows("the dilation of a window is ignored", |window, sizes| {
        meet(window, sizes, |_, _, k| k);
    }),
    Fault::windows("the stride of the first axis of windows is that of all", |window, sizes| {
        let (number, stride) = (window.number, sizes.options.stride);
        meet(window, sizes, |axis, d, k| {
            (d * k).wrapping_add(stride[0] * number[axis]).wrapping_sub(stride[axis] * number[axis])
        });
    }),
    Fault::windows("padding before and after windows change sides", |window, sizes| {
        for place in &mut window.places {
            for (at, [before, after]) in place.iter_mut().zip(sizes.options.padding) {
                *at += before as isize - after as isize;
            }
        }
    }),
    Fault::windows("the last element of a window is left out", |window, _| {
        window.places.pop();
    }),
];

fn is_average(op: Op, _: DType) -> bool {
    matches!(op, Op::Pool(PoolOp::AvgPool | PoolOp::AvgPoolGrad))
}

fn has_positions(op: Op, _: DType) -> bool {
    matches!(op, Op::Pool(PoolOp::ArgmaxPool | PoolOp::MaxPoolGrad))
}

/// Moves the elements of a window: `step` has an axis, its dilation and the element, and says how far that is from the first.
fn meet(window: &mut Window, sizes: &Sizes, step: impl Fn(usize, usize, usize) -> usize) {
    let options = &sizes.options;
    for (tap, place) in window.places.iter_mut().enumerate() {
        let mut rest = tap;
        for axis in (0..MAX_SPATIAL).rev() {
            let element = rest % options.kernel[axis];
            rest /= options.kernel[axis];
            let start = (options.stride[axis] * window.number[axis]) as isize - options.padding[axis][0] as isize;
            place[axis] = start.wrapping_add(step(axis, options.dilation[axis], element).cast_signed());
        }
    }
}
