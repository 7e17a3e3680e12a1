//! What a reduction does with its elements: [`Fold`], and the order in which it meets them.
//!
//! At most [`RUN`] elements are folded into one accumulator; accumulators are then combined pairwise, in a tree that
//! depends on the sizes alone. A run is half as long as the contract allows, which leaves room for the levels that
//! are lost where several axes are halved separately. Because the tree is fixed, threads cannot change a result.

use crate::lane::{Int, Lane, Number};
use crate::loops::{GRAIN, join};
use crate::math::Real;
use crate::simd::light;

/// The elements folded one after another into one accumulator.
const RUN: usize = 32;

/// The accumulators that a contiguous run is spread over, so that SIMD can add them side by side.
const LANES: usize = 32;

/// The elements that are folded without halving: a full run for each lane.
pub(super) const LEAF: usize = RUN * LANES;

/// A commutative fold of elements of type `T`.
pub(super) trait Fold<T: Number> {
    /// What is accumulated.
    type Acc: Copy + Send + Sync;

    /// The accumulator of nothing.
    fn identity() -> Self::Acc;

    /// The accumulator of one element.
    fn lift(x: T) -> Self::Acc;

    /// The accumulator of both.
    fn combine(a: Self::Acc, b: Self::Acc) -> Self::Acc;
}

/// Σ x of floats. −0 is the identity that also keeps a sum of nothing but −0.
pub(super) struct FloatSum;

impl<T: Real> Fold<T> for FloatSum {
    type Acc = T;

    #[inline(always)]
    fn identity() -> T {
        T::default().neg()
    }

    #[inline(always)]
    fn lift(x: T) -> T {
        x
    }

    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        a.add(b)
    }
}

/// ∏ x of floats.
pub(super) struct FloatProd;

impl<T: Real> Fold<T> for FloatProd {
    type Acc = T;

    #[inline(always)]
    fn identity() -> T {
        T::from_i64(1)
    }

    #[inline(always)]
    fn lift(x: T) -> T {
        x
    }

    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        a.mul(b)
    }
}

/// Σ x modulo 2⁶⁴.
pub(super) struct IntSum;

impl<T: Int> Fold<T> for IntSum {
    type Acc = i64;

    #[inline(always)]
    fn identity() -> i64 {
        0
    }

    #[inline(always)]
    fn lift(x: T) -> i64 {
        x.to_i64()
    }

    #[inline(always)]
    fn combine(a: i64, b: i64) -> i64 {
        a.wrapping_add(b)
    }
}

/// ∏ x modulo 2⁶⁴.
pub(super) struct IntProd;

impl<T: Int> Fold<T> for IntProd {
    type Acc = i64;

    #[inline(always)]
    fn identity() -> i64 {
        1
    }

    #[inline(always)]
    fn lift(x: T) -> i64 {
        x.to_i64()
    }

    #[inline(always)]
    fn combine(a: i64, b: i64) -> i64 {
        a.wrapping_mul(b)
    }
}

/// Σ x, exact: 2⁶³ elements of 64 bits fit.
pub(super) struct ExactSum;

impl<T: Int> Fold<T> for ExactSum {
    type Acc = i128;

    #[inline(always)]
    fn identity() -> i128 {
        0
    }

    #[inline(always)]
    fn lift(x: T) -> i128 {
        x.to_i64().into()
    }

    #[inline(always)]
    fn combine(a: i128, b: i128) -> i128 {
        a + b
    }
}

/// The greatest element.
pub(super) struct Greatest;

impl<T: Number> Fold<T> for Greatest {
    type Acc = T;

    #[inline(always)]
    fn identity() -> T {
        T::LEAST
    }

    #[inline(always)]
    fn lift(x: T) -> T {
        x
    }

    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        a.maximum(b)
    }
}

/// The least element.
pub(super) struct Least;

impl<T: Number> Fold<T> for Least {
    type Acc = T;

    #[inline(always)]
    fn identity() -> T {
        T::GREATEST
    }

    #[inline(always)]
    fn lift(x: T) -> T {
        x
    }

    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        a.minimum(b)
    }
}

/// The greatest element that is not NaN, or −∞.
pub(super) struct GreatestNumber;

impl<T: Number> Fold<T> for GreatestNumber {
    type Acc = T;

    #[inline(always)]
    fn identity() -> T {
        T::LEAST
    }

    #[inline(always)]
    fn lift(x: T) -> T {
        if x > T::LEAST { x } else { T::LEAST }
    }

    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        if b > a { b } else { a }
    }
}

/// Whether any element is nonzero.
pub(super) struct AnyNonzero;

impl<T: Number> Fold<T> for AnyNonzero {
    type Acc = bool;

    #[inline(always)]
    fn identity() -> bool {
        false
    }

    #[inline(always)]
    fn lift(x: T) -> bool {
        x.is_nonzero()
    }

    #[inline(always)]
    fn combine(a: bool, b: bool) -> bool {
        a | b
    }
}

/// Whether all elements are nonzero.
pub(super) struct AllNonzero;

impl<T: Number> Fold<T> for AllNonzero {
    type Acc = bool;

    #[inline(always)]
    fn identity() -> bool {
        true
    }

    #[inline(always)]
    fn lift(x: T) -> bool {
        x.is_nonzero()
    }

    #[inline(always)]
    fn combine(a: bool, b: bool) -> bool {
        a & b
    }
}

/// The axes that are reduced, outermost first; strides are not negative.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axes {
    rank: usize,
    sizes: [usize; 8],
    strides: [usize; 8],
}

impl Axes {
    pub(super) fn new(sizes: &[usize], strides: &[isize]) -> Self {
        let mut axes = Self { rank: sizes.len(), sizes: [1; 8], strides: [0; 8] };
        axes.sizes[..sizes.len()].copy_from_slice(sizes);
        for (to, stride) in axes.strides.iter_mut().zip(strides) {
            *to = stride.unsigned_abs();
        }
        axes
    }

    pub(super) fn count(&self) -> usize {
        self.sizes[..self.rank].iter().product()
    }

    /// See [`grouping_stride`].
    pub(super) fn grouping_stride(&self) -> usize {
        grouping_stride(self.count(), self.rank.checked_sub(1).map_or(0, |last| self.strides[last]))
    }

    /// Two parts, and how far the second lies from the first. The first is the larger, a power of two.
    fn split(&self) -> (Self, Self, usize) {
        let axis = self.sizes.iter().position(|&size| size > 1).unwrap_or(0);
        let size = self.sizes[axis];
        let at = 1 << (size - 1).ilog2();
        let (mut left, mut right) = (*self, *self);
        (left.sizes[axis], right.sizes[axis]) = (at, size - at);
        (left, right, at * self.strides[axis])
    }

    fn is_contiguous(&self) -> bool {
        let mut axes = self.sizes.iter().zip(&self.strides).filter(|&(&size, _)| size > 1);
        axes.next().is_none_or(|(_, &stride)| stride == 1) && axes.next().is_none()
    }

    /// How many elements lie next to each other along the innermost axis.
    fn inner_run(&self) -> usize {
        self.rank.checked_sub(1).map_or(1, |last| if self.strides[last] == 1 { self.sizes[last] } else { 1 })
    }

    /// Calls `visit` with the offset, size and stride of each row along the innermost axis.
    fn for_each_row(&self, visit: &mut dyn FnMut(usize, usize, usize)) {
        fn walk(sizes: &[usize], strides: &[usize], offset: usize, visit: &mut dyn FnMut(usize, usize, usize)) {
            match (sizes, strides) {
                ([size], [stride]) => visit(offset, *size, *stride),
                ([size, sizes @ ..], [stride, strides @ ..]) => {
                    for index in 0..*size {
                        walk(sizes, strides, offset + index * stride, visit);
                    }
                }
                _ => visit(offset, 1, 0),
            }
        }
        walk(&self.sizes[..self.rank], &self.strides[..self.rank], 0, visit);
    }
}

/// Results closer together than this are computed in groups: closer than the elements of one result, or at any
/// distance when each result has so few elements that a call for each would cost more than reading them.
pub(super) fn grouping_stride(count: usize, inner_stride: usize) -> usize {
    if count < LANES { usize::MAX } else { inner_stride }
}

/// The buffers of one thread.
pub(super) struct Scratch<T: Lane> {
    widened: T::Buffer,
    gathered: Vec<T::Wide>,
}

impl<T: Lane> Scratch<T> {
    pub(super) fn new() -> Self {
        Self { widened: T::buffer(), gathered: Vec::new() }
    }
}

/// Folds the elements at `axes` from `x[start]`.
pub(super) fn fold_row<T: Lane, F: Fold<T::Wide>>(
    x: &[T],
    start: usize,
    axes: &Axes,
    scratch: &mut Scratch<T>,
) -> F::Acc {
    let count = axes.count();
    if count == 0 {
        return F::identity();
    }
    if count <= LEAF {
        if axes.is_contiguous() {
            return fold_leaf::<_, F>(T::widen_block(&x[start..start + count], &mut scratch.widened));
        }
        // Contiguous rows that are long enough are better folded where they lie.
        if axes.inner_run() < LEAF / 8 {
            scratch.gathered.clear();
            axes.for_each_row(&mut |offset, len, stride| {
                let row = &x[start + offset..];
                if stride == 0 {
                    scratch.gathered.extend(std::iter::repeat_n(row[0].wide(), len));
                } else {
                    scratch.gathered.extend(row.iter().step_by(stride).take(len).map(|x| x.wide()));
                }
            });
            return fold_leaf::<_, F>(&scratch.gathered);
        }
    }
    let (left, right, distance) = axes.split();
    if count > GRAIN {
        let mut accs = [F::identity(); 2];
        let [left_acc, right_acc] = &mut accs;
        join((start, left, left_acc), (start + distance, right, right_acc), |(start, axes, acc)| {
            *acc = fold_row::<T, F>(x, start, &axes, &mut Scratch::new());
        });
        return F::combine(accs[0], accs[1]);
    }
    let left = fold_row::<T, F>(x, start, &left, scratch);
    F::combine(left, fold_row::<T, F>(x, start + distance, &right, scratch))
}

/// Folds at most [`LEAF`] elements.
pub(super) fn fold_leaf<T: Number, F: Fold<T>>(items: &[T]) -> F::Acc {
    light(
        #[inline(always)]
        || fold_lanes::<T, F>(items),
    )
}

#[inline(always)]
fn fold_lanes<T: Number, F: Fold<T>>(items: &[T]) -> F::Acc {
    let (rows, rest) = items.as_chunks::<LANES>();
    if rows.is_empty() {
        return rest.iter().fold(F::identity(), |acc, &x| F::combine(acc, F::lift(x)));
    }
    let mut lanes = [F::identity(); LANES];
    // Four rows at a time, so that the lanes are read and written a quarter as often; loops of this form are vectorised.
    let (quads, rows) = rows.as_chunks::<4>();
    for [a, b, c, d] in quads {
        for lane in 0..LANES {
            let [a, b, c, d] = [a, b, c, d].map(|row| F::lift(row[lane]));
            lanes[lane] = F::combine(lanes[lane], F::combine(F::combine(a, b), F::combine(c, d)));
        }
    }
    for row in rows {
        for lane in 0..LANES {
            lanes[lane] = F::combine(lanes[lane], F::lift(row[lane]));
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = F::combine(*lane, F::lift(x));
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        let (low, high) = lanes.split_at_mut(width);
        for (low, &mut high) in low.iter_mut().zip(high) {
            *low = F::combine(*low, high);
        }
    }
    lanes[0]
}

/// Folds several rows at once: `accs[i]` is the fold from `x[start + i·stride]`.
pub(super) fn fold_columns<T: Lane, F: Fold<T::Wide>>(
    x: &[T],
    start: usize,
    stride: isize,
    axes: &Axes,
    accs: &mut [F::Acc],
    scratch: &mut Scratch<T>,
) {
    let count = axes.count();
    if count <= RUN {
        accs.fill(F::identity());
        axes.for_each_row(&mut |offset, len, step| {
            for index in 0..len {
                let row = fetch_row(x, start + offset + index * step, stride, accs.len(), scratch);
                light(
                    #[inline(always)]
                    || {
                        for (acc, &x) in accs.iter_mut().zip(row) {
                            *acc = F::combine(*acc, F::lift(x));
                        }
                    },
                );
            }
        });
        return;
    }
    let (left, right, distance) = axes.split();
    let mut other = vec![F::identity(); accs.len()];
    if count * accs.len() > GRAIN {
        join((start, left, &mut *accs), (start + distance, right, &mut other), |(start, axes, accs)| {
            fold_columns::<T, F>(x, start, stride, &axes, accs, &mut Scratch::new());
        });
    } else {
        fold_columns::<T, F>(x, start, stride, &left, accs, scratch);
        fold_columns::<T, F>(x, start + distance, stride, &right, &mut other, scratch);
    }
    for (acc, other) in accs.iter_mut().zip(other) {
        *acc = F::combine(*acc, other);
    }
}

/// `len` elements from `x[start]` on, `stride` apart and widened.
pub(super) fn fetch_row<'a, T: Lane>(
    x: &'a [T],
    start: usize,
    stride: isize,
    len: usize,
    scratch: &'a mut Scratch<T>,
) -> &'a [T::Wide] {
    if stride == 1 {
        return T::widen_block(&x[start..start + len], &mut scratch.widened);
    }
    scratch.gathered.clear();
    let elements = (0..len as isize).map(|index| x[start.wrapping_add_signed(index * stride)].wide());
    scratch.gathered.extend(elements);
    &scratch.gathered
}
