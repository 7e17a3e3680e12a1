//! How a kernel moves over its input, and the sizes that follow from it.

use crate::error::{Error, ErrorKind, Result};

/// The most spatial axes.
pub const MAX_SPATIAL: usize = 3;

/// How a kernel moves over its input. Each array has an entry for each spatial axis; those past the last axis have no say,
/// so that `[2; 3]` is 2 on every axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvOptions {
    /// Input elements from one output element to the next.
    pub stride: [usize; MAX_SPATIAL],
    /// Zeros before the first and after the last element.
    pub padding: [[usize; 2]; MAX_SPATIAL],
    /// Input elements from one tap of the kernel to the next.
    pub dilation: [usize; MAX_SPATIAL],
    /// Parts into which the channels are divided; as many as there are input channels make a depthwise convolution.
    pub groups: usize,
}

impl Default for ConvOptions {
    /// Stride 1, no padding, dilation 1, one group.
    fn default() -> Self {
        let ones = [1; MAX_SPATIAL];
        Self { stride: ones, padding: [[0; 2]; MAX_SPATIAL], dilation: ones, groups: 1 }
    }
}

impl ConvOptions {
    /// These options with the padding for which, at stride 1, the output is as large as the input; an odd zero goes after it.
    #[must_use]
    pub fn same(self, kernel: &[usize]) -> Self {
        self.padded(kernel, |total| [total / 2, total - total / 2])
    }

    /// As [`same`](Self::same), with all of the padding before the first element: no output depends on a later input.
    #[must_use]
    pub fn causal(self, kernel: &[usize]) -> Self {
        self.padded(kernel, |total| [total, 0])
    }

    fn padded(mut self, kernel: &[usize], split: impl Fn(usize) -> [usize; 2]) -> Self {
        for ((padding, &size), &dilation) in self.padding.iter_mut().zip(kernel).zip(&self.dilation) {
            *padding = split(size.saturating_sub(1).saturating_mul(dilation));
        }
        self
    }

    /// The same with the defaults past `axes` axes, so that options that mean the same are equal.
    pub(super) fn of_rank(mut self, axes: usize) -> Self {
        let default = Self::default();
        self.stride[axes..].copy_from_slice(&default.stride[axes..]);
        self.padding[axes..].copy_from_slice(&default.padding[axes..]);
        self.dilation[axes..].copy_from_slice(&default.dilation[axes..]);
        self
    }

    /// What a kernel of `size` taps spans on an axis.
    pub(super) fn extent(&self, op: &'static str, axis: usize, size: usize) -> Result<usize> {
        let (dilation, last) = (self.dilation[axis], size.saturating_sub(1));
        dilation.checked_mul(last).and_then(|span| span.checked_add(1)).ok_or_else(|| {
            let message = format!("the kernel's extent on spatial axis {axis}, {dilation}·({size} − 1) + 1, overflows");
            Error::new(ErrorKind::Shape, op, message)
        })
    }
}

/// By how much `x` is larger than the taps need: 0 where it is too small.
pub(super) fn output_padding(
    x: &[usize],
    y: &[usize],
    weight: &[usize],
    options: &ConvOptions,
) -> [usize; MAX_SPATIAL] {
    let mut more = [0; MAX_SPATIAL];
    let sizes = x.iter().zip(y).zip(weight).skip(2);
    for (axis, (more, ((&x, &y), &taps))) in more.iter_mut().zip(sizes).enumerate() {
        let reach = reach(options, axis, y, taps);
        let have = options.padding[axis].iter().fold(x as u128, |sum, &padding| sum + padding as u128);
        *more = usize::try_from(have.saturating_sub(reach)).unwrap_or(usize::MAX);
    }
    more
}

/// The padded size that the taps of `size` positions need. The product of two sizes is below 2^128.
pub(super) fn reach(options: &ConvOptions, axis: usize, size: usize, taps: usize) -> u128 {
    let along = |step: usize, count: usize| step as u128 * count.saturating_sub(1) as u128;
    if size == 0 {
        0
    } else {
        along(options.stride[axis], size).saturating_add(along(options.dilation[axis], taps) + 1)
    }
}

/// What any convolution asks of ranks, options and the weight.
pub(super) fn check_options(name: &'static str, rank: usize, weight: &[usize], options: &ConvOptions) -> Result<()> {
    let fail = |kind, rule: String| Err(Error::new(kind, name, rule));
    if !(3..=2 + MAX_SPATIAL).contains(&rank) || weight.len() != rank {
        let rule = format!(
            "the input has rank {rank}, the weight {}; both must be equal and 3 to 5: batch, channels, and 1 to 3 spatial axes \
             (add one with `unsqueeze`)",
            weight.len()
        );
        return fail(ErrorKind::Shape, rule);
    }
    for axis in 0..rank - 2 {
        if options.stride[axis] == 0 || options.dilation[axis] == 0 {
            let (stride, dilation) = (options.stride[axis], options.dilation[axis]);
            let rule =
                format!("spatial axis {axis} has stride {stride} and dilation {dilation}; both must be at least 1");
            return fail(ErrorKind::Argument, rule);
        }
        if weight[2 + axis] == 0 {
            return fail(
                ErrorKind::Shape,
                format!("the kernel of the weight {weight:?} has no tap on spatial axis {axis}"),
            );
        }
    }
    match options.groups {
        0 => fail(ErrorKind::Argument, "there are 0 groups; there must be at least 1".to_owned()),
        groups if !weight[0].is_multiple_of(groups) => {
            fail(ErrorKind::Shape, format!("{groups} groups do not divide the {} channels of the weight", weight[0]))
        }
        _ => Ok(()),
    }
}
