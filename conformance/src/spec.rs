//! Descriptions of cases that proptest generates and shrinks: sizes, placements and value classes, never values.

use congruent_backend_api::{DType, Layout, MAX_RANK, Result};
use proptest::prelude::*;
use proptest::sample::select;
use serde::Serialize;

use crate::host::{HostTensor, positions};
use crate::values::{Class, element, hash};

/// How a view lies in its storage.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Sort keys: axes lie in memory in the order of their keys; equal keys keep row-major order.
    pub order: Vec<u8>,
    /// Distance between neighbours of each axis, in multiples of what lies below it; negative walks backwards, 0 repeats
    /// one element, which an output must not.
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
            step *= if multiple == 0 { 1 } else { size * multiple.abs() };
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

/// How an input lies in its storage, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum LayoutKind {
    /// Row-major, one after another.
    Contiguous,
    /// Row-major, after elements that belong to others.
    Offset,
    /// Axes in another order.
    Permuted,
    /// With gaps.
    Stepped,
    /// Some axes backwards.
    Reversed,
    /// Some axes repeat one element: stride 0.
    Repeated,
    /// Everything at once.
    Mixed,
}

impl LayoutKind {
    /// Every kind.
    pub const ALL: [Self; 7] =
        [Self::Contiguous, Self::Offset, Self::Permuted, Self::Stepped, Self::Reversed, Self::Repeated, Self::Mixed];

    /// The kind of a layout: the most unusual thing about it.
    #[must_use]
    pub fn of(layout: &Layout) -> Self {
        let axes =
            || layout.shape().iter().zip(layout.strides()).filter(|&(&size, _)| size > 1).map(|(_, &stride)| stride);
        let steps = || axes().filter(|&stride| stride != 0).map(isize::unsigned_abs);
        let falls = steps().zip(steps().skip(1)).all(|(outer, inner)| outer >= inner);
        let unusual = [
            (axes().any(|stride| stride == 0), Self::Repeated),
            (axes().any(|stride| stride < 0), Self::Reversed),
            (!falls, Self::Permuted),
            (!layout.is_contiguous(), Self::Stepped),
        ];
        let mut found = unusual.iter().filter(|(holds, _)| *holds).map(|&(_, kind)| kind);
        match (found.next(), found.next()) {
            // Reversed and permuted views are never contiguous, so the last line says nothing more of them.
            (Some(_), Some(second)) if second != Self::Stepped => Self::Mixed,
            (Some(kind), _) => kind,
            (None, _) if layout.offset() > GUARD => Self::Offset,
            (None, _) => Self::Contiguous,
        }
    }
}

/// What sizes a case has, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShapeKind {
    /// Rank 0 or 1.
    Line,
    /// Rank 2 or 3.
    Block,
    /// Rank 4 and more.
    Deep,
    /// With a size of 0.
    Empty,
    /// Sizes at which tiles, warps and vectors end.
    Edges,
    /// All sizes equal, where axes are easily confused.
    Equal,
}

impl ShapeKind {
    /// Every kind.
    pub const ALL: [Self; 6] = [Self::Line, Self::Block, Self::Deep, Self::Empty, Self::Edges, Self::Equal];
}

/// What a generated case is drawn from: anything, or one cell of the pairwise covering array.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// About how many elements a case has at most.
    pub limit: usize,
    /// The fixed choices; `None` leaves all open.
    pub cell: Option<(LayoutKind, ShapeKind, usize)>,
}

impl Draw {
    /// Anything of at most about `limit` elements.
    #[must_use]
    pub fn any(limit: usize) -> Self {
        Self { limit, cell: None }
    }

    /// Cell `index` of the covering array. Of seven layouts, six shapes and up to twelve value classes, the first 84 cells
    /// hold every pair of a layout and a class, of a layout and a shape, and of a class and a shape.
    #[must_use]
    pub fn covering(limit: usize, index: usize) -> Self {
        let (layout, class) = (index % LayoutKind::ALL.len(), index / LayoutKind::ALL.len());
        let shape = (layout + class) % ShapeKind::ALL.len();
        Self { limit, cell: Some((LayoutKind::ALL[layout], ShapeKind::ALL[shape], class)) }
    }

    /// The same with another limit.
    #[must_use]
    pub fn scaled(self, factor: usize) -> Self {
        Self { limit: self.limit * factor, ..self }
    }
}

/// A shape of at most `max_rank` axes.
pub fn shape(draw: Draw, max_rank: usize) -> BoxedStrategy<Vec<usize>> {
    let of_kind = move |kind: ShapeKind| match kind {
        ShapeKind::Line => prop::collection::vec(size(), 0..=1.min(max_rank)).boxed(),
        ShapeKind::Block => prop::collection::vec(1..40_usize, 2.min(max_rank)..=3.min(max_rank)).boxed(),
        ShapeKind::Deep => prop::collection::vec(1..8_usize, 4.min(max_rank)..=max_rank).boxed(),
        ShapeKind::Empty => (prop::collection::vec(0..5_usize, 1..=3.min(max_rank)), any::<usize>())
            .prop_map(|(mut shape, axis)| {
                let axis = axis % shape.len();
                shape[axis] = 0;
                shape
            })
            .boxed(),
        ShapeKind::Edges => prop::collection::vec(select(EDGES), 1..=2.min(max_rank)).boxed(),
        ShapeKind::Equal => (1..=max_rank, 2..6_usize).prop_map(|(rank, size)| vec![size; rank]).boxed(),
    };
    let shapes = match draw.cell {
        Some((_, kind, _)) => of_kind(kind),
        None => prop_oneof![
            4 => prop::collection::vec(size(), 0..=2.min(max_rank)),
            3 => prop::collection::vec(size(), 0..=max_rank),
            1 => of_kind(ShapeKind::Equal),
        ]
        .boxed(),
    };
    shapes.prop_map(move |shape| cap(shape, draw.limit)).boxed()
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

/// Placements of an output: contiguous, offset, permuted, stepped, reversed, and all of them together.
pub fn placement() -> BoxedStrategy<Placement> {
    let offset = prop_oneof![2 => Just(0_usize), 2 => 1..5_usize, 1 => 5..40_usize];
    let steps = prop_oneof![
        4 => Just(vec![1_i8; MAX_RANK]),
        2 => prop::collection::vec(select(&[1_i8, 1, -1][..]), MAX_RANK),
        2 => prop::collection::vec(select(&[1_i8, 1, 2, 3, -1, -2][..]), MAX_RANK),
    ];
    (order(), steps, offset).prop_map(|(order, steps, offset)| Placement { order, steps, offset }).boxed()
}

fn order() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![3 => Just(vec![0; MAX_RANK]), 2 => prop::collection::vec(0..8_u8, MAX_RANK)]
}

/// Placements of an input of one kind.
fn placed(kind: LayoutKind) -> BoxedStrategy<Placement> {
    let plain = || Just(vec![1_i8; MAX_RANK]).boxed();
    let steps_of = |steps: &'static [i8]| prop::collection::vec(select(steps), MAX_RANK).boxed();
    let rows = || Just(vec![0_u8; MAX_RANK]).boxed();
    let (order, steps, offset) = match kind {
        LayoutKind::Contiguous => (rows(), plain(), Just(0_usize).boxed()),
        LayoutKind::Offset => (rows(), plain(), (1..40_usize).boxed()),
        LayoutKind::Permuted => (prop::collection::vec(0..8_u8, MAX_RANK).boxed(), plain(), (0..3_usize).boxed()),
        LayoutKind::Stepped => (rows(), steps_of(&[1, 2, 3]), (0..3_usize).boxed()),
        LayoutKind::Reversed => (rows(), steps_of(&[1, -1]), (0..3_usize).boxed()),
        LayoutKind::Repeated => (rows(), steps_of(&[1, 1, 0]), (0..3_usize).boxed()),
        LayoutKind::Mixed => (order().boxed(), steps_of(&[1, 2, 0, -1, -2]), (0..40_usize).boxed()),
    };
    (order, steps, offset).prop_map(|(order, steps, offset)| Placement { order, steps, offset }).boxed()
}

/// An operand with one of `classes`; about a third of the freely drawn ones broadcast along some axes.
pub fn tensor(draw: Draw, classes: &'static [Class]) -> BoxedStrategy<TensorSpec> {
    let broadcast = prop_oneof![4 => Just(0_u8), 2 => any::<u8>(), 1 => Just(0xff_u8)];
    let (placements, class) = match draw.cell {
        Some((kind, _, class)) => (placed(kind), Just(classes[class % classes.len()]).boxed()),
        None => (prop_oneof![5 => placement(), 1 => placed(LayoutKind::Repeated)].boxed(), select(classes).boxed()),
    };
    (placements, broadcast, class)
        .prop_map(|(placement, broadcast, class)| TensorSpec { placement, broadcast, class })
        .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_covering_array_holds_every_pair() {
        let cells: Vec<_> = (0..84).filter_map(|index| Draw::covering(100, index).cell).collect();
        for layout in LayoutKind::ALL {
            for shape in ShapeKind::ALL {
                assert!(cells.iter().any(|cell| (cell.0, cell.1) == (layout, shape)));
            }
            for class in 0..12 {
                assert!(cells.iter().any(|cell| (cell.0, cell.2) == (layout, class)));
                assert!(
                    ShapeKind::ALL.iter().all(|&shape| cells.iter().any(|cell| (cell.1, cell.2) == (shape, class)))
                );
            }
        }
    }

    #[test]
    fn kinds_of_layouts_are_told_apart() {
        let kind = |strides: &[isize], offset| LayoutKind::of(&Layout::new("test", &[3, 4], strides, offset).unwrap());
        assert_eq!(kind(&[4, 1], GUARD), LayoutKind::Contiguous);
        assert_eq!(kind(&[4, 1], GUARD + 1), LayoutKind::Offset);
        assert_eq!(kind(&[1, 3], 8), LayoutKind::Permuted);
        assert_eq!(kind(&[8, 2], 8), LayoutKind::Stepped);
        assert_eq!(kind(&[4, -1], 20), LayoutKind::Reversed);
        assert_eq!(kind(&[0, 1], 8), LayoutKind::Repeated);
        assert_eq!(kind(&[-1, 3], 20), LayoutKind::Mixed);
    }
}
