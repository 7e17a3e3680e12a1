//! Views: the same elements under another shape or in another order.

use congruent::{Index, Tensor};
use congruent_backend_api::erase::AnyBackend;
use congruent_backend_api::{Op, Result, Slice};

use super::super::fields::{self, Fields, Node};
use super::{Elements, Entry, Expected, Moves, front};

/// The ops, each with its arguments.
pub(super) const VIEW: Entry = Entry {
    names: &["contiguous", "expand", "flip", "permute", "reshape", "slice", "squeeze", "unsqueeze"],
    operands: 1..=1,
    uses: &[Op::Copy],
    parse: |name, args, _| {
        Ok(Box::new(match name {
            "expand" => View::Expand(args.required("shape")?.sizes()?),
            "flip" => View::Flip(args.given("axes").map(Node::integers).transpose()?),
            "permute" => View::Permute(args.required("axes")?.integers()?),
            "reshape" => View::Reshape(args.required("shape")?.sizes()?),
            "slice" => View::Slice(ranges(args)?),
            "squeeze" => View::Squeeze(args.required("axis")?.signed()?),
            "unsqueeze" => View::Unsqueeze(args.required("axis")?.signed()?),
            _ => View::Contiguous,
        }))
    },
};

/// Which view, with its arguments.
#[derive(Debug)]
enum View {
    Contiguous,
    Expand(Vec<usize>),
    /// `None` is all axes.
    Flip(Option<Vec<isize>>),
    Permute(Vec<isize>),
    Reshape(Vec<usize>),
    Slice(Vec<Index>),
    Squeeze(isize),
    Unsqueeze(isize),
}

impl Moves for View {
    fn run(&self, operands: &[Tensor<AnyBackend>]) -> Result<Vec<Tensor<AnyBackend>>> {
        let x = &operands[0];
        let result = match self {
            Self::Contiguous => x.contiguous(),
            Self::Expand(shape) => x.expand(shape),
            Self::Flip(axes) => x.flip(axes.clone().unwrap_or_else(|| (0..x.rank() as isize).collect())),
            Self::Permute(axes) => x.permute(axes),
            Self::Reshape(shape) => x.reshape(shape),
            Self::Slice(indices) => x.i(indices.as_slice()),
            Self::Squeeze(axis) => x.squeeze(*axis),
            Self::Unsqueeze(axis) => x.unsqueeze(*axis),
        };
        result.map(|result| vec![result])
    }

    fn oracle(&self, operands: &[Elements]) -> Vec<Expected> {
        let x = operands[0].clone();
        let (sizes, rank) = (x.shape.clone(), x.shape.len());
        let result = match self {
            Self::Contiguous => x,
            Self::Reshape(shape) => Elements { shape: shape.clone(), ..x },
            Self::Squeeze(axis) => {
                let mut shape = sizes;
                shape.remove(front(*axis, rank));
                Elements { shape, ..x }
            }
            Self::Unsqueeze(axis) => {
                let mut shape = sizes;
                shape.insert(front(*axis, rank + 1), 1);
                Elements { shape, ..x }
            }
            Self::Permute(axes) => {
                let axes: Vec<usize> = axes.iter().map(|&axis| front(axis, rank)).collect();
                let shape: Vec<usize> = axes.iter().map(|&axis| sizes[axis]).collect();
                x.gather(shape, |to, from| axes.iter().zip(to).for_each(|(&axis, &at)| from[axis] = at))
            }
            Self::Expand(shape) => {
                let new = shape.len() - rank;
                x.gather(shape.clone(), |to, from| {
                    (0..rank).for_each(|axis| from[axis] = if sizes[axis] == 1 { 0 } else { to[new + axis] });
                })
            }
            Self::Flip(axes) => {
                let flipped =
                    |axis| axes.as_ref().is_none_or(|axes| axes.iter().any(|&given| front(given, rank) == axis));
                x.gather(sizes.clone(), |to, from| {
                    (0..rank).for_each(|axis| {
                        from[axis] = if flipped(axis) { sizes[axis] - 1 - to[axis] } else { to[axis] }
                    });
                })
            }
            Self::Slice(indices) => {
                let taken = Taken::new(indices, &sizes);
                x.gather(taken.shape(), |to, from| taken.place(to, from))
            }
        };
        vec![result.into()]
    }
}

/// The argument `ranges`.
pub(super) fn ranges(args: &mut Fields) -> fields::Result<Vec<Index>> {
    args.required("ranges")?.list()?.into_iter().map(range).collect()
}

/// `[start, stop, step]` or a position.
fn range(node: Node) -> fields::Result<Index> {
    if node.value.is_i64() {
        return node.signed().map(Index::At);
    }
    let fail = node.fail("expected [start, stop, step] or an integer");
    let [start, stop, step] = <[Node; 3]>::try_from(node.list().map_err(|_| fail.clone())?).map_err(|_| fail)?;
    let bound = |node: &Node| if node.is_null() { Ok(None) } else { node.signed().map(Some) };
    Ok(Index::Slice(Slice { start: bound(&start)?, stop: bound(&stop)?, step: bound(&step)?.unwrap_or(1) }))
}

/// The positions that ranges take of each axis.
pub(super) struct Taken {
    positions: Vec<Vec<usize>>,
    /// The axes that stay.
    kept: Vec<usize>,
}

impl Taken {
    /// What `indices` take of a tensor of these sizes.
    pub(super) fn new(indices: &[Index], sizes: &[usize]) -> Self {
        let positions = sizes.iter().enumerate().map(|(axis, &size)| walk(indices.get(axis), size)).collect();
        let kept = (0..sizes.len()).filter(|&axis| !matches!(indices.get(axis), Some(Index::At(_)))).collect();
        Self { positions, kept }
    }

    /// The shape of the part.
    pub(super) fn shape(&self) -> Vec<usize> {
        self.kept.iter().map(|&axis| self.positions[axis].len()).collect()
    }

    /// The coordinates in the tensor for those in the part.
    pub(super) fn place(&self, to: &[usize], from: &mut [usize]) {
        // Of a dropped axis there is one position; those of the others are set below.
        from.iter_mut().zip(&self.positions).for_each(|(from, positions)| *from = positions[0]);
        self.kept.iter().zip(to).for_each(|(&axis, &at)| from[axis] = self.positions[axis][at]);
    }
}

/// The positions that an index takes of an axis, walked one by one.
fn walk(index: Option<&Index>, size: usize) -> Vec<usize> {
    let size = size as isize;
    let wrap = |at: isize| if at < 0 { at.saturating_add(size) } else { at };
    match index {
        Some(Index::At(position)) => vec![wrap(*position) as usize],
        Some(Index::Slice(slice)) => {
            let forwards = slice.step > 0;
            let start = slice.start.map_or(if forwards { 0 } else { size - 1 }, wrap);
            let stop = slice.stop.map_or(if forwards { size } else { -1 }, wrap);
            // NumPy clips the start to the first position inside, and counts the steps from there.
            let mut at = if forwards { start.max(0) } else { start.min(size - 1) };
            let mut taken = Vec::new();
            while if forwards { at < stop.min(size) } else { at > stop.max(-1) } {
                taken.push(at as usize);
                at = at.saturating_add(slice.step);
            }
            taken
        }
        _ => (0..size as usize).collect(),
    }
}
