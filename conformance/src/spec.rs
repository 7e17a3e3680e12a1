//! Descriptions of cases that proptest generates and shrinks: sizes, placements and value classes, never values.

use congruent_backend_api::{DType, Layout, Result};
use proptest::prelude::*;
use proptest::sample::select;

use crate::host::{HostTensor, positions};
use crate::values::{Class, element, hash};

/// How a view lies in its storage.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Sort keys: axes lie in memory in the order of their keys; equal keys keep row-major order.
    pub order: Vec<u8>,
    /// Distance between neighbours of each axis, in multiples of what lies below it; negative walks backwards.
    pub steps: Vec<i8>,
    /// Elements before the view.
    pub offset: usize,
}

/// A tensor to be: everything but its shape and dtype.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// How the view lies in its storage.
    pub placement: Placement,
    /// Axes along which the operand has size 1 and broadcasts, as a bit mask.
    pub broadcast: u8,
    /// What values it holds.
    pub class: Class,
}

/// Elements of storage kept free on either side of every view, to see writes outside it.
pub const GUARD: usize = 8;

impl Placement {
    /// The layout of a view of `shape`, and the length of its storage with guards.
    ///
    /// # Errors
    /// Only when the shape is too large for a layout.
    pub fn layout(&self, shape: &[usize]) -> Result<(Layout, usize)> {
        let mut axes: Vec<usize> = (0..shape.len()).collect();
        // Outermost first; the sort is stable.
        axes.sort_by_key(|&axis| self.order.get(axis).copied().unwrap_or(0));
        let mut strides = vec![0; shape.len()];
        let (mut step, mut offset) = (1_isize, GUARD + self.offset);
        for &axis in axes.iter().rev() {
            let multiple = isize::from(self.steps.get(axis).copied().unwrap_or(1));
            let size = shape[axis].max(1) as isize;
            strides[axis] = step * multiple;
            if multiple < 0 {
                offset += (step * -multiple * (size - 1)) as usize;
            }
            step *= size * multiple.abs();
        }
        let layout = Layout::new("spec", shape, &strides, offset)?;
        Ok((layout, layout.min_len().max(offset) + GUARD))
    }
}

impl TensorSpec {
    /// The shape of this operand when the result has `shape`.
    #[must_use]
    pub fn shape(&self, shape: &[usize]) -> Vec<usize> {
        (0..).zip(shape).map(|(axis, &size)| if self.broadcast >> axis & 1 == 1 { 1 } else { size }).collect()
    }

    /// The tensor of this exact shape; `tensor` tells the operands of a case apart.
    ///
    /// # Errors
    /// Only when the shape is too large for a layout.
    pub fn build(&self, dtype: DType, shape: &[usize], seed: u64, tensor: u64) -> Result<HostTensor> {
        let (layout, len) = self.placement.layout(shape)?;
        let mut host = filled(dtype, layout, len, CANARY);
        let seed = hash(seed, tensor);
        let mut coordinates = vec![0; shape.len()];
        for (index, at) in positions(&layout).into_iter().enumerate() {
            let mut rest = index;
            for (coordinate, &size) in coordinates.iter_mut().zip(shape).rev() {
                *coordinate = rest % size;
                rest /= size;
            }
            host.set_bits(at, element(dtype, self.class, seed, &coordinates, index));
        }
        Ok(host)
    }
}

/// Fills storage outside the views of inputs: NaN in every float format, −1 or the greatest integer, true.
pub const CANARY: u8 = 0xff;

/// A storage with one byte everywhere; bool storages hold only 0 and 1.
#[must_use]
pub fn filled(dtype: DType, layout: Layout, len: usize, byte: u8) -> HostTensor {
    let byte = if dtype == DType::Bool { byte & 1 } else { byte };
    HostTensor { dtype, layout, bytes: vec![byte; len * dtype.size()] }
}

/// Sizes at which tiles, warps and vectors end.
const EDGES: &[usize] =
    &[7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025];
const PRIMES: &[usize] = &[97, 251, 509, 1021];

/// One size.
pub fn size() -> impl Strategy<Value = usize> {
    prop_oneof![5 => 1..5_usize, 1 => Just(0), 4 => select(EDGES), 1 => select(PRIMES), 2 => 1..200_usize]
}

/// A shape of rank 0 to `max_rank` with at most `limit` elements.
pub fn shape(max_rank: usize, limit: usize) -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        4 => prop::collection::vec(size(), 0..=2.min(max_rank)),
        3 => prop::collection::vec(size(), 0..=max_rank),
        // All sizes equal, where axes are easily confused.
        1 => (1..=max_rank, 2..6_usize).prop_map(|(rank, size)| vec![size; rank]),
    ]
    .prop_map(move |shape| cap(shape, limit))
}

/// Shrinks sizes from the front until the count fits.
#[must_use]
pub fn cap(mut shape: Vec<usize>, limit: usize) -> Vec<usize> {
    for axis in 0..shape.len() {
        let rest: usize =
            shape.iter().enumerate().filter(|&(other, _)| other != axis).map(|(_, &size)| size.max(1)).product();
        if rest.saturating_mul(shape[axis]) > limit {
            shape[axis] = (limit / rest).max(1);
        }
    }
    shape
}

/// Placements: contiguous, offset, permuted, stepped, reversed, and all of them together.
pub fn placement() -> impl Strategy<Value = Placement> {
    let offset = prop_oneof![2 => Just(0_usize), 2 => 1..5_usize, 1 => 5..40_usize];
    let order = prop_oneof![3 => Just(vec![0; 8]), 2 => prop::collection::vec(0..8_u8, 8)];
    let steps = prop_oneof![
        4 => Just(vec![1_i8; 8]),
        2 => prop::collection::vec(select(&[1_i8, 1, -1][..]), 8),
        2 => prop::collection::vec(select(&[1_i8, 1, 2, 3, -1, -2][..]), 8),
    ];
    (order, steps, offset).prop_map(|(order, steps, offset)| Placement { order, steps, offset })
}

/// An operand with one of `classes`; about a third of them broadcast along some axes.
pub fn tensor(classes: &'static [Class]) -> impl Strategy<Value = TensorSpec> {
    let broadcast = prop_oneof![4 => Just(0_u8), 2 => any::<u8>(), 1 => Just(0xff_u8)];
    (placement(), broadcast, select(classes)).prop_map(|(placement, broadcast, class)| TensorSpec {
        placement,
        broadcast,
        class,
    })
}
