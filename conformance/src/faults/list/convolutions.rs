//! Convolutions over other products than they should sum.

use congruent_backend_api::Op;
use congruent_backend_api::ops::conv::{ConvOp, MAX_SPATIAL};

use crate::faults::{Fault, Special};
use crate::ops::conv::{Sizes, Tap};

pub(super) const FAULTS: &[Fault] = &[
    Fault::taps("the kernel is flipped", |tap, sizes| {
        for (at, size) in tap.kernel.iter_mut().zip(sizes.kernel) {
            *at = size - 1 - *at;
        }
    })
    .number(61),
    Fault::taps("every group meets the input channels of the first", |tap, _| tap.group = 0).number(61),
    Fault::taps("dilation is ignored", |tap, sizes| meet(tap, sizes, |stride, _, o, k| stride * o + k)).number(61),
    Fault::taps("padding repeats the edge", |tap, sizes| {
        for (at, size) in tap.at.iter_mut().zip(sizes.x) {
            *at = (*at).clamp(0, (size as isize - 1).max(0));
        }
    })
    .number(61),
    Fault::taps("padding before and after change sides", |tap, sizes| {
        for (at, [before, after]) in tap.at.iter_mut().zip(sizes.options.padding) {
            *at += before as isize - after as isize;
        }
    }),
    Fault::taps("the dilation multiplies the position, the stride the tap", |tap, sizes| {
        meet(tap, sizes, |stride, dilation, o, k| dilation * o + stride * k);
    }),
    Fault::taps("the stride of the first axis is that of all", |tap, sizes| {
        let mut options = *sizes;
        options.options.stride = [sizes.options.stride[0]; MAX_SPATIAL];
        meet(tap, &options, |stride, dilation, o, k| stride * o + dilation * k);
    }),
    Fault::taps("the last tap of the kernel is left out", |tap, sizes| {
        tap.dropped = (0..MAX_SPATIAL).all(|axis| tap.kernel[axis] + 1 == sizes.kernel[axis]);
    }),
    Fault::taps("the last position is left out", |tap, sizes| {
        tap.dropped = (0..MAX_SPATIAL).all(|axis| tap.position[axis] + 1 == sizes.y[axis]);
    })
    .on(|op, _| op != Op::Conv(ConvOp::Conv)),
    Fault::taps("padding is skipped, with ∞ · 0 not formed", |tap, sizes| {
        tap.dropped = tap.at.iter().zip(sizes.x).any(|(&at, size)| at < 0 || at >= size as isize);
    })
    .on(|op, _| op != Op::Conv(ConvOp::ConvTranspose)),
    Fault::special("the bias of a convolution is left out", &["conv"], Special::BiasLost)
        .on(|op, _| op != Op::Conv(ConvOp::ConvGradWeight)),
    Fault::special("the activation of a convolution is left out", &["conv"], Special::ActivationLost)
        .on(|op, _| op != Op::Conv(ConvOp::ConvGradWeight)),
];

/// Lets a tap meet another element: `place` has stride, dilation, position and tap of an axis, without the padding.
fn meet(tap: &mut Tap, sizes: &Sizes, place: fn(usize, usize, usize, usize) -> usize) {
    let options = &sizes.options;
    for axis in 0..MAX_SPATIAL {
        let place = place(options.stride[axis], options.dilation[axis], tap.position[axis], tap.kernel[axis]);
        tap.at[axis] = place as isize - options.padding[axis][0] as isize;
    }
}
