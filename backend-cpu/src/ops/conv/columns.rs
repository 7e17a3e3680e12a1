//! Windows as columns: where the taps of a block of positions lie, and copies of them in rows.

use std::ops::Range;

use congruent_backend_api::Layout;
use congruent_backend_api::ops::conv::Conv;
use ndarray::LinalgScalar;

use crate::lane::Lane;

/// The sizes of a convolution; spatial axes that there are not come first, with size 1.
pub(super) struct Geometry {
    pub(super) batch: usize,
    pub(super) groups: usize,
    /// Output and input channels of each group.
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    pub(super) x: [usize; 3],
    pub(super) y: [usize; 3],
    pub(super) kernel: [usize; 3],
    pub(super) stride: [usize; 3],
    dilation: [usize; 3],
    before: [usize; 3],
}

/// Neighbours of y: positions `range` of its last axis, in a row of it. `at` is the first one's place in the block.
pub(super) struct Segment {
    row: [usize; 2],
    range: Range<usize>,
    at: usize,
}

impl Geometry {
    pub(super) fn new(plan: &Conv) -> Self {
        let (options, weight) = (plan.options(), plan.weight().shape());
        let shift = 5 - plan.x().rank();
        let sizes = |layout: &Layout| {
            let mut sizes = [1; 3];
            sizes[shift..].copy_from_slice(&layout.shape()[2..]);
            sizes
        };
        let along = |values: [usize; 3], default: usize| {
            let mut along = [default; 3];
            along[shift..].copy_from_slice(&values[..3 - shift]);
            along
        };
        Self {
            batch: plan.x().shape()[0],
            groups: options.groups,
            outputs: weight[0] / options.groups,
            inputs: weight[1],
            x: sizes(plan.x()),
            y: sizes(plan.y()),
            kernel: sizes(plan.weight()),
            stride: along(options.stride, 1),
            dilation: along(options.dilation, 1),
            before: along(options.padding.map(|[before, _]| before), 0),
        }
    }

    /// Positions of y in a channel.
    pub(super) fn positions(&self) -> usize {
        self.y.iter().product()
    }

    /// Elements of x in a channel.
    pub(super) fn space(&self) -> usize {
        self.x.iter().product()
    }

    pub(super) fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Terms of a sum of `conv`.
    pub(super) fn terms(&self) -> usize {
        self.inputs * self.taps()
    }

    /// Whether a channel of the result, which is x when going `back`, meets one channel.
    pub(super) fn is_depthwise(&self, back: bool) -> bool {
        if back { self.outputs == 1 } else { self.inputs == 1 }
    }

    /// The positions of a block whose windows have about `elements` elements.
    pub(super) fn block(&self, elements: usize) -> usize {
        (elements / self.terms()).clamp(64, 2048).next_multiple_of(16).min(self.positions())
    }

    /// The batch and the channel of a row, of `channels` in each batch.
    pub(super) fn piece(&self, row: usize, channels: usize) -> (usize, usize) {
        (row / channels, row % channels)
    }

    /// The blocks of positions, by their first.
    pub(super) fn blocks(&self, size: usize) -> impl Iterator<Item = (usize, Vec<Segment>)> {
        (0..self.positions()).step_by(size).map(move |start| {
            let (end, width) = ((start + size).min(self.positions()), self.y[2]);
            let mut segments = Vec::new();
            let mut at = start;
            while at < end {
                let (row, column) = (at / width, at % width);
                let len = (width - column).min(end - at);
                let row = [row / self.y[1], row % self.y[1]];
                segments.push(Segment { row, range: column..column + len, at: at - start });
                at += len;
            }
            (start, segments)
        })
    }

    /// The positions of an axis at which a tap lies in x, and not in the padding.
    pub(super) fn reach(&self, axis: usize, tap: usize) -> Range<usize> {
        let (before, ahead) = (self.before[axis], self.dilation[axis] * tap);
        let first = before.saturating_sub(ahead).div_ceil(self.stride[axis]);
        let end = (self.x[axis].saturating_add(before)).saturating_sub(ahead).div_ceil(self.stride[axis]);
        let end = end.min(self.y[axis]);
        first.min(end)..end
    }

    /// The place in x that a tap meets at a position, if it is not padding.
    pub(super) fn meet(&self, axis: usize, position: usize, tap: usize) -> Option<usize> {
        // A place of the padded axis, so it does not overflow.
        let padded = self.stride[axis] * position + self.dilation[axis] * tap;
        padded.checked_sub(self.before[axis]).filter(|&place| place < self.x[axis])
    }

    /// The position at which a tap meets a place in x, if there is one.
    pub(super) fn met(&self, axis: usize, place: usize, tap: usize) -> Option<usize> {
        let ahead = place.checked_add(self.before[axis])?.checked_sub(self.dilation[axis] * tap)?;
        let position = ahead / self.stride[axis];
        (ahead.is_multiple_of(self.stride[axis]) && position < self.y[axis]).then_some(position)
    }

    /// The kernel's taps in order.
    pub(super) fn kernel(&self) -> impl Iterator<Item = [usize; 3]> {
        let [_, rows, columns] = self.kernel;
        (0..self.taps()).map(move |tap| [tap / columns / rows, tap / columns % rows, tap % columns])
    }

    /// Copies the windows of a block in a group: a row for each tap of each input channel, zeros for the padding.
    pub(super) fn windows<T: Lane>(
        &self,
        (data, layout): (&[T], &Layout),
        batch: usize,
        group: usize,
        segments: &[Segment],
        windows: &mut [T::Wide],
    ) {
        let strides = spatial(layout);
        let width = windows.len() / self.terms();
        let step = strides[2].wrapping_mul(self.stride[2].cast_signed());
        for (input, windows) in windows.chunks_exact_mut(self.taps() * width).enumerate() {
            let channel = start(layout, [batch, group * self.inputs + input]);
            for (tap, to) in self.kernel().zip(windows.chunks_exact_mut(width)) {
                let columns = self.reach(2, tap[2]);
                for segment in segments {
                    let to = &mut to[segment.at..][..segment.range.len()];
                    let rows = [0, 1].map(|axis| self.meet(axis, segment.row[axis], tap[axis]));
                    let [Some(a), Some(b)] = rows else {
                        to.fill(T::Wide::default());
                        continue;
                    };
                    let from = segment.range.start.clamp(columns.start, columns.end);
                    let end = segment.range.end.clamp(columns.start, columns.end);
                    let (front, to) = to.split_at_mut((from - segment.range.start.min(from)).min(to.len()));
                    front.fill(T::Wide::default());
                    let (to, back) = to.split_at_mut(end.saturating_sub(from).min(to.len()));
                    back.fill(T::Wide::default());
                    let Some(c) = self.meet(2, from, tap[2]).filter(|_| !to.is_empty()) else { continue };
                    let first = channel.wrapping_add_signed(
                        a as isize * strides[0] + b as isize * strides[1] + c as isize * strides[2],
                    );
                    copy(data, first, step, to);
                }
            }
        }
    }

    /// Copies a block of y: a row for each of as many channels as fit, from `channel` on.
    pub(super) fn values<T: Lane>(
        &self,
        (data, layout): (&[T], &Layout),
        batch: usize,
        channel: usize,
        segments: &[Segment],
        values: &mut [T::Wide],
    ) {
        let strides = spatial(layout);
        let width = segments.last().map_or(0, |segment| segment.at + segment.range.len());
        for (row, values) in values.chunks_exact_mut(width).enumerate() {
            let channel = start(layout, [batch, channel + row]);
            for segment in segments {
                let place = segment.row[0] as isize * strides[0]
                    + segment.row[1] as isize * strides[1]
                    + segment.range.start as isize * strides[2];
                let to = &mut values[segment.at..][..segment.range.len()];
                copy(data, channel.wrapping_add_signed(place), strides[2], to);
            }
        }
    }

    /// Adds the windows of a block to the elements of x that they cover, a plane for each channel.
    pub(super) fn put_back<W: LinalgScalar>(
        &self,
        windows: &[W],
        width: usize,
        segments: &[Segment],
        planes: &mut [W],
    ) {
        let (space, step) = (self.space(), self.stride[2]);
        for (windows, plane) in windows.chunks_exact(self.taps() * width).zip(planes.chunks_exact_mut(space)) {
            for (tap, from) in self.kernel().zip(windows.chunks_exact(width)) {
                let columns = self.reach(2, tap[2]);
                for segment in segments {
                    let rows = [0, 1].map(|axis| self.meet(axis, segment.row[axis], tap[axis]));
                    let [Some(a), Some(b)] = rows else { continue };
                    let (first, end) = (segment.range.start.max(columns.start), segment.range.end.min(columns.end));
                    let Some(c) = self.meet(2, first, tap[2]).filter(|_| first < end) else { continue };
                    let from = &from[segment.at + first - segment.range.start..][..end - first];
                    let to = &mut plane[(a * self.x[1] + b) * self.x[2] + c..];
                    if step == 1 {
                        to.iter_mut().zip(from).for_each(|(to, &from)| *to = *to + from);
                    } else {
                        to.iter_mut().step_by(step).zip(from).for_each(|(to, &from)| *to = *to + from);
                    }
                }
            }
        }
    }
}

/// The strides along the space; axes that there are not come first.
pub(super) fn spatial(layout: &Layout) -> [isize; 3] {
    let mut strides = [0; 3];
    strides[5 - layout.rank()..].copy_from_slice(&layout.strides()[2..]);
    strides
}

/// Where a channel of a batch begins.
pub(super) fn start(layout: &Layout, [batch, channel]: [usize; 2]) -> usize {
    let strides = layout.strides();
    layout.offset().wrapping_add_signed(batch as isize * strides[0] + channel as isize * strides[1])
}

/// Copies elements `step` apart from `first` on.
fn copy<T: Lane>(data: &[T], first: usize, step: isize, to: &mut [T::Wide]) {
    if step == 1 {
        to.iter_mut().zip(&data[first..]).for_each(|(to, from)| *to = from.wide());
        return;
    }
    for (place, to) in to.iter_mut().enumerate() {
        *to = data[first.wrapping_add_signed((place as isize).wrapping_mul(step))].wide();
    }
}
