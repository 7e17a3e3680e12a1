//! Where the windows of a pooling lie, and the sizes that follow from it.

use crate::error::{Error, ErrorKind, Result};
use crate::ops::conv::MAX_SPATIAL;

/// By what the sum over a window is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Divisor {
    /// The number of elements of the input in the window.
    Elements,
    /// The number of places of the window in the padded input, each zero of the padding counted too.
    #[default]
    Padded,
    /// This number: 1 for sums.
    Fixed(usize),
}

/// How a window moves over its input. Each array has an entry for each spatial axis; those past the last axis have no say,
/// so that `[2; 3]` is 2 on every axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolOptions {
    /// Elements of the window.
    pub kernel: [usize; MAX_SPATIAL],
    /// Input elements from one window to the next.
    pub stride: [usize; MAX_SPATIAL],
    /// Places before the first and after the last element, which windows may reach into.
    pub padding: [[usize; 2]; MAX_SPATIAL],
    /// Input elements from one element of the window to the next.
    pub dilation: [usize; MAX_SPATIAL],
    /// Whether a last window may reach past the padded input; one that would start in the padding at the end is left out.
    pub ceil: bool,
    /// By what averages divide; maxima ignore it.
    pub divisor: Divisor,
}

impl PoolOptions {
    /// Windows of `kernel` elements side by side: the stride is the kernel, no padding, dilation 1, rounding down.
    #[must_use]
    pub fn new(kernel: [usize; MAX_SPATIAL]) -> Self {
        let ones = [1; MAX_SPATIAL];
        let padding = [[0; 2]; MAX_SPATIAL];
        Self { kernel, stride: kernel, padding, dilation: ones, ceil: false, divisor: Divisor::Padded }
    }

    /// The same with a window of one element past `axes` axes, so that options that mean the same are equal.
    pub(super) fn of_rank(mut self, axes: usize) -> Self {
        self.kernel[axes..].fill(1);
        self.stride[axes..].fill(1);
        self.padding[axes..].fill([0; 2]);
        self.dilation[axes..].fill(1);
        self
    }
}

/// The windows along one axis: window o has its k-th element at s·o + d·k − p.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Windows {
    /// Elements of the input.
    pub size: usize,
    /// Elements of a window.
    pub kernel: usize,
    /// Input elements from one window to the next.
    pub stride: usize,
    /// Input elements from one element of a window to the next.
    pub dilation: usize,
    /// Places before the first element of the input.
    pub before: usize,
    /// Places after its last.
    pub after: usize,
    /// How many windows there are.
    pub count: usize,
}

/// The elements of the input in one window along one axis: at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first of them.
    pub first: usize,
    /// How many.
    pub count: usize,
    /// How many places the window has in the padded input.
    pub places: usize,
}

impl Windows {
    /// The windows over an axis of `size` elements, for output sizes that do not overflow.
    pub(super) fn new(name: &'static str, axis: usize, size: usize, options: &PoolOptions) -> Result<Self> {
        let (kernel, stride, dilation) = (options.kernel[axis], options.stride[axis], options.dilation[axis]);
        let [before, after] = options.padding[axis];
        let fail = |kind, rule: String| Err(Error::new(kind, name, format!("on spatial axis {axis} {rule}")));
        if kernel == 0 || stride == 0 || dilation == 0 {
            let rule = format!(
                "the window has {kernel} elements, stride {stride} and dilation {dilation}; all must be at least 1"
            );
            return fail(ErrorKind::Argument, rule);
        }
        // One element is no distance from another.
        let dilation = if kernel == 1 { 1 } else { dilation };
        let extent = dilation.checked_mul(kernel - 1).and_then(|span| span.checked_add(1));
        let padded = before.checked_add(size).and_then(|size| size.checked_add(after));
        // Places are counted as isize, with room for one stride past the last.
        let fits = |place: &usize| place.checked_add(stride).is_some_and(|place| isize::try_from(place).is_ok());
        let (Some(extent), Some(padded)) = (extent.filter(fits), padded.filter(fits)) else {
            let rule = format!(
                "the window spans {dilation}·({kernel} − 1) + 1 elements at stride {stride} of {before} + {size} + {after}, which \
                 overflows"
            );
            return fail(ErrorKind::Shape, rule);
        };
        let Some(room) = padded.checked_sub(extent) else {
            let rule = format!(
                "the window spans {dilation}·({kernel} − 1) + 1 = {extent} elements, more than the padded input, \
                 {before} + {size} + {after} = {padded}"
            );
            return fail(ErrorKind::Shape, rule);
        };
        let mut count = room / stride + 1;
        if options.ceil {
            count = room.div_ceil(stride) + 1;
            if count > 1 && (count - 1) * stride >= before + size {
                count -= 1;
            }
        }
        let windows = Self { size, kernel, stride, dilation, before, after, count };
        // Where a window that starts in the padding enters the input, it holds an element unless it ends before or steps
        // over all of it, which depends on the remainder of its start alone; another one holds an element if it starts inside.
        let early = if dilation > size { before.div_ceil(stride).min(dilation) } else { 1 };
        let mut suspects = (0..early.min(count)).chain([count - 1]);
        if let Some(window) = suspects.find(|&window| windows.window(window).count == 0) {
            let start = (stride * window) as isize - before as isize;
            let rule = format!(
                "window {window} has {kernel} elements {dilation} apart from position {start} on, none of them one of the \
                 input's {size}; a window must not lie in the padding alone"
            );
            return fail(ErrorKind::Shape, rule);
        }
        Ok(windows)
    }

    /// What is in a window.
    #[must_use]
    pub fn window(&self, window: usize) -> Window {
        let start = self.stride * window;
        // The first element that is not in the padding, and how many come before the end of the input, and of its padding.
        let skipped = self.before.saturating_sub(start).div_ceil(self.dilation);
        let until = |end: usize| end.saturating_sub(start).div_ceil(self.dilation).min(self.kernel);
        let inside = until(self.before + self.size);
        let first = (start + self.dilation * skipped).saturating_sub(self.before);
        let places = until(self.before + self.size + self.after);
        Window { first, count: inside.saturating_sub(skipped), places }
    }

    /// Whether a window holds element `at` of the input.
    #[must_use]
    pub fn holds(&self, window: usize, at: usize) -> bool {
        let place = (at + self.before).checked_sub(self.stride * window);
        at < self.size
            && place.is_some_and(|place| place.is_multiple_of(self.dilation) && place / self.dilation < self.kernel)
    }

    /// The windows that have element `tap` inside the input: their numbers, and the first one's element of the input. The
    /// next one's is a stride further.
    #[must_use]
    pub fn of_tap(&self, tap: usize) -> (std::ops::Range<usize>, usize) {
        let place = self.dilation * tap;
        let low = self.before.saturating_sub(place).div_ceil(self.stride).min(self.count);
        let high = (self.before + self.size).saturating_sub(place).div_ceil(self.stride).clamp(low, self.count);
        (low..high, (self.stride * low + place).saturating_sub(self.before))
    }
}
