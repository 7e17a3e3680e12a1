//! The view ops of the frontend, and their oracle: plain index arithmetic on the elements in row-major order.

use std::sync::Arc;

use congruent::{Index, Tensor};
use congruent_backend_api::erase::AnyBackend;
use congruent_backend_api::{Result, Slice, Storage as _};

use super::fields::{self, Fields, Node};
use super::operand::elsewhere;
use crate::case::{Call, Case, Input};
use crate::host::HostTensor;

/// A view op of an input.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// The op.
    pub(super) op: ViewOp,
    /// The input.
    pub(super) x: HostTensor,
    /// Whether the result is copied into an output of another layout.
    elsewhere: bool,
}

/// Which view, with its arguments.
#[derive(Clone, Debug)]
pub(super) enum ViewOp {
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

/// What a view op made: the result's storage, and what was damaged on the way.
pub(super) struct Made {
    pub(super) out: HostTensor,
    pub(super) damage: Option<String>,
}

impl View {
    /// The ops.
    pub(super) const NAMES: &[&str] =
        &["contiguous", "expand", "flip", "permute", "reshape", "slice", "squeeze", "unsqueeze"];

    /// The op called `name` with its arguments.
    pub(super) fn parse(name: &str, args: &mut Fields, x: HostTensor, elsewhere: bool) -> fields::Result<Self> {
        let op = match name {
            "expand" => ViewOp::Expand(args.required("shape")?.sizes()?),
            "flip" => ViewOp::Flip(args.given("axes").map(Node::integers).transpose()?),
            "permute" => ViewOp::Permute(args.required("axes")?.integers()?),
            "reshape" => ViewOp::Reshape(args.required("shape")?.sizes()?),
            "slice" => {
                let ranges = args.required("ranges")?.list()?;
                ViewOp::Slice(ranges.into_iter().map(index).collect::<fields::Result<_>>()?)
            }
            "squeeze" => ViewOp::Squeeze(args.required("axis")?.signed()?),
            "unsqueeze" => ViewOp::Unsqueeze(args.required("axis")?.signed()?),
            _ => ViewOp::Contiguous,
        };
        Ok(Self { op, x, elsewhere })
    }

    /// Runs the op on a backend.
    pub(super) fn run(&self, backend: &Arc<AnyBackend>) -> Result<Made> {
        let mut storage = backend.alloc(self.x.dtype, self.x.storage_len())?;
        backend.write(&self.x.bytes, &mut storage, 0)?;
        let x = Tensor::from_parts(backend, Arc::new(storage), self.x.layout)?;
        let result = match &self.op {
            ViewOp::Contiguous => x.contiguous(),
            ViewOp::Expand(shape) => x.expand(shape),
            ViewOp::Flip(axes) => x.flip(axes.clone().unwrap_or_else(|| (0..x.rank() as isize).collect())),
            ViewOp::Permute(axes) => x.permute(axes),
            ViewOp::Reshape(shape) => x.reshape(shape),
            ViewOp::Slice(indices) => x.i(indices.as_slice()),
            ViewOp::Squeeze(axis) => x.squeeze(*axis),
            ViewOp::Unsqueeze(axis) => x.unsqueeze(*axis),
        }?;
        let made = if self.elsewhere {
            let out = elsewhere(result.dtype(), result.shape())?;
            let source = download(backend.as_ref(), &result)?;
            let outcome = Case { call: Call::Copy, inputs: vec![Input::Tensor(source)], out }.run(backend.as_ref())?;
            Made { out: outcome.out, damage: outcome.damage }
        } else {
            Made { out: download(backend.as_ref(), &result.contiguous()?)?, damage: None }
        };
        let untouched = download(backend.as_ref(), &x)?.bytes == self.x.bytes;
        let changed = || "the input was changed by the call".to_owned();
        Ok(Made { damage: made.damage.or_else(|| (!untouched).then(changed)), ..made })
    }

    /// The shape and the elements that the result must have. The call must be a valid one.
    pub(super) fn oracle(&self) -> (Vec<usize>, Vec<u64>) {
        let (sizes, bits) = (self.x.layout.shape().to_vec(), self.x.view_bits());
        let rank = sizes.len();
        let front = |axis: isize, rank: usize| if axis < 0 { (axis + rank as isize) as usize } else { axis as usize };
        match &self.op {
            ViewOp::Contiguous => (sizes, bits),
            ViewOp::Reshape(shape) => (shape.clone(), bits),
            ViewOp::Squeeze(axis) => {
                let mut shape = sizes;
                shape.remove(front(*axis, rank));
                (shape, bits)
            }
            ViewOp::Unsqueeze(axis) => {
                let mut shape = sizes;
                shape.insert(front(*axis, rank + 1), 1);
                (shape, bits)
            }
            ViewOp::Permute(axes) => {
                let axes: Vec<usize> = axes.iter().map(|&axis| front(axis, rank)).collect();
                let shape: Vec<usize> = axes.iter().map(|&axis| sizes[axis]).collect();
                gather(&sizes, &bits, shape, |to, from| axes.iter().zip(to).for_each(|(&axis, &at)| from[axis] = at))
            }
            ViewOp::Expand(shape) => {
                let new = shape.len() - rank;
                gather(&sizes, &bits, shape.clone(), |to, from| {
                    (0..rank).for_each(|axis| from[axis] = if sizes[axis] == 1 { 0 } else { to[new + axis] });
                })
            }
            ViewOp::Flip(axes) => {
                let flipped =
                    |axis| axes.as_ref().is_none_or(|axes| axes.iter().any(|&given| front(given, rank) == axis));
                gather(&sizes, &bits, sizes.clone(), |to, from| {
                    (0..rank).for_each(|axis| {
                        from[axis] = if flipped(axis) { sizes[axis] - 1 - to[axis] } else { to[axis] }
                    });
                })
            }
            ViewOp::Slice(indices) => {
                let taken: Vec<Vec<usize>> = (0..rank).map(|axis| walk(indices.get(axis), sizes[axis])).collect();
                let kept: Vec<usize> =
                    (0..rank).filter(|&axis| !matches!(indices.get(axis), Some(Index::At(_)))).collect();
                let shape = kept.iter().map(|&axis| taken[axis].len()).collect();
                gather(&sizes, &bits, shape, |to, from| {
                    (0..rank).filter(|axis| !kept.contains(axis)).for_each(|axis| from[axis] = taken[axis][0]);
                    kept.iter().zip(to).for_each(|(&axis, &at)| from[axis] = taken[axis][at]);
                })
            }
        }
    }
}

/// `[start, stop, step]` or a position.
fn index(node: Node) -> fields::Result<Index> {
    if node.value.is_i64() {
        return node.signed().map(Index::At);
    }
    let fail = node.fail("expected [start, stop, step] or an integer");
    let [start, stop, step] = <[Node; 3]>::try_from(node.list().map_err(|_| fail.clone())?).map_err(|_| fail)?;
    let bound = |node: &Node| if node.is_null() { Ok(None) } else { node.signed().map(Some) };
    Ok(Index::Slice(Slice { start: bound(&start)?, stop: bound(&stop)?, step: bound(&step)?.unwrap_or(1) }))
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

/// The elements of a result, where `source` finds the coordinates in the input for those in the result.
fn gather(
    sizes: &[usize],
    bits: &[u64],
    shape: Vec<usize>,
    source: impl Fn(&[usize], &mut [usize]),
) -> (Vec<usize>, Vec<u64>) {
    let count: usize = shape.iter().product();
    let (mut to, mut from) = (vec![0; shape.len()], vec![0; sizes.len()]);
    let gathered = (0..count).map(|index| {
        let mut rest = index;
        for (coordinate, &size) in to.iter_mut().zip(&shape).rev() {
            *coordinate = rest % size;
            rest /= size;
        }
        source(&to, &mut from);
        bits[from.iter().zip(sizes).fold(0, |at, (&coordinate, &size)| at * size + coordinate)]
    });
    let gathered = gathered.collect();
    (shape, gathered)
}

/// A tensor with its whole storage.
fn download(backend: &AnyBackend, tensor: &Tensor<AnyBackend>) -> Result<HostTensor> {
    let mut bytes = vec![0; tensor.storage().len() * tensor.dtype().size()];
    backend.download(tensor.storage(), 0, &mut bytes)?;
    Ok(HostTensor { dtype: tensor.dtype(), layout: *tensor.layout(), bytes })
}
