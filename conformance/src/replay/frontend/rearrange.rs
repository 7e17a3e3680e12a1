//! Parts of an axis, and elements in other places and more than once.

use congruent::Tensor;
use congruent::ops::Pad;
use congruent_backend_api::erase::AnyBackend;
use congruent_backend_api::{DType, Op, Result, Scalar};

use super::super::data::scalar;
use super::super::fields::{self, Fields, Node};
use super::{Elements, Entry, Expected, Moves, coordinates, front, index};
use crate::host::{HostTensor, encode};

/// `split`, `chunk`, `roll`, `tile`, `repeat`.
pub(super) const REARRANGE: Entry = Entry {
    names: &["split", "chunk", "roll", "tile", "repeat"],
    operands: 1..=1,
    uses: &[Op::Copy],
    parse: |name, args, _| {
        Ok(Box::new(match name {
            "split" => Rearrange::Split(args.required("sizes")?.sizes()?, args.required("axis")?.signed()?),
            "chunk" => Rearrange::Chunk(args.required("chunks")?.unsigned()?, args.required("axis")?.signed()?),
            "roll" => {
                let axes = args.given("axes").map(Node::integers).transpose()?;
                Rearrange::Roll(args.required("shifts")?.integers()?, axes)
            }
            "tile" => Rearrange::Tile(args.required("reps")?.sizes()?),
            _ => {
                let axis = args.given("axis").map(|axis| axis.signed()).transpose()?;
                Rearrange::Repeat(args.required("repeats")?.unsigned()?, axis)
            }
        }))
    },
};

/// `pad`.
pub(super) const PAD: Entry = Entry {
    names: &["pad"],
    operands: 1..=1,
    uses: &[Op::Copy, Op::Fill],
    parse: |_, args, operands| Ok(Box::new(Padding { pads: pads(args)?, mode: mode(args, operands)? })),
};

/// An op with its arguments.
#[derive(Debug)]
enum Rearrange {
    Split(Vec<usize>, isize),
    Chunk(usize, isize),
    Roll(Vec<isize>, Option<Vec<isize>>),
    Tile(Vec<usize>),
    Repeat(usize, Option<isize>),
}

impl Moves for Rearrange {
    fn run(&self, operands: &[Tensor<AnyBackend>]) -> Result<Vec<Tensor<AnyBackend>>> {
        let x = &operands[0];
        let result = match self {
            Self::Split(sizes, axis) => return x.split(sizes, *axis),
            Self::Chunk(chunks, axis) => return x.chunk(*chunks, *axis),
            Self::Roll(shifts, axes) => x.roll(shifts, axes.as_deref()),
            Self::Tile(reps) => x.tile(reps),
            Self::Repeat(repeats, axis) => x.repeat(*repeats, *axis),
        };
        result.map(|result| vec![result])
    }

    fn oracle(&self, operands: &[Elements]) -> Vec<Expected> {
        let x = &operands[0];
        let (shape, rank) = (x.shape.clone(), x.shape.len());
        let flat = || Elements { shape: vec![x.bits.len()], ..x.clone() };
        let result = match self {
            Self::Split(sizes, axis) => return parts(x, front(*axis, rank), sizes),
            Self::Chunk(chunks, axis) => {
                let axis = front(*axis, rank);
                let (size, length) = (shape[axis], shape[axis].div_ceil(*chunks));
                // As many as are needed; of nothing, as many as are asked for.
                let count = if size == 0 { *chunks } else { size.div_ceil(length) };
                let sizes: Vec<usize> = (0..count).map(|part| length.min(size - part * length)).collect();
                return parts(x, axis, &sizes);
            }
            Self::Roll(shifts, None) => Elements { shape, ..rolled(&flat(), shifts, &[0]) },
            Self::Roll(shifts, Some(axes)) => rolled(x, shifts, axes),
            Self::Tile(reps) => {
                let missing = reps.len().saturating_sub(rank);
                let x = Elements { shape: [vec![1; missing], shape].concat(), ..x.clone() };
                let times = [vec![1; x.shape.len() - reps.len()], reps.clone()].concat();
                let sizes = x.shape.iter().zip(&times).map(|(size, times)| size * times).collect();
                x.gather(sizes, |to, from| {
                    (0..to.len()).for_each(|axis| from[axis] = to[axis] % x.shape[axis]);
                })
            }
            Self::Repeat(repeats, axis) => {
                let x = if axis.is_none() { flat() } else { x.clone() };
                let axis = front(axis.unwrap_or(0), x.shape.len());
                let mut sizes = x.shape.clone();
                sizes[axis] *= repeats;
                x.gather(sizes, |to, from| {
                    from.copy_from_slice(to);
                    from[axis] /= repeats;
                })
            }
        };
        vec![result.into()]
    }
}

/// Consecutive parts of these sizes along an axis.
fn parts(x: &Elements, axis: usize, sizes: &[usize]) -> Vec<Expected> {
    let mut start = 0;
    let part = |&size: &usize| {
        let mut shape = x.shape.clone();
        shape[axis] = size;
        let part = x.gather(shape, |to, from| {
            from.copy_from_slice(to);
            from[axis] += start;
        });
        start += size;
        part.into()
    };
    sizes.iter().map(part).collect()
}

fn rolled(x: &Elements, shifts: &[isize], axes: &[isize]) -> Elements {
    x.gather(x.shape.clone(), |to, from| {
        from.copy_from_slice(to);
        for (&shift, &axis) in shifts.iter().zip(axes) {
            let axis = front(axis, to.len());
            let size = x.shape[axis] as i128;
            from[axis] = (to[axis] as i128 - shift as i128).rem_euclid(size) as usize;
        }
    })
}

#[derive(Debug)]
struct Padding {
    pads: Vec<[isize; 2]>,
    mode: Pad,
}

impl Moves for Padding {
    fn run(&self, operands: &[Tensor<AnyBackend>]) -> Result<Vec<Tensor<AnyBackend>>> {
        operands[0].pad(&self.pads, self.mode).map(|result| vec![result])
    }

    fn oracle(&self, operands: &[Elements]) -> Vec<Expected> {
        let x = &operands[0];
        let shape: Vec<usize> =
            x.shape.iter().zip(&self.pads).map(|(&size, pad)| (size as isize + pad[0] + pad[1]) as usize).collect();
        let bits = coordinates(&shape).map(|to| {
            let source = |axis: usize| source(self.mode, x.shape[axis], self.pads[axis], to[axis]);
            match ((0..to.len()).map(source).collect::<Option<Vec<_>>>(), self.mode) {
                (Some(from), _) => x.bits[index(&x.shape, &from)],
                (None, Pad::Constant(value)) => encode(x.dtype, value),
                (None, _) => unreachable!("only a constant comes from nowhere"),
            }
        });
        let bits = bits.collect();
        vec![Elements { dtype: x.dtype, shape, bits }.into()]
    }
}

/// The position along an axis of the input for one along that of the result.
fn source(mode: Pad, size: usize, pad: [isize; 2], to: usize) -> Option<usize> {
    // What negative widths leave of the axis.
    let (first, end) = ((-pad[0]).max(0), size as isize + pad[1].min(0));
    let at = to as isize - pad[0];
    if (first..end).contains(&at) {
        return Some(at as usize);
    }
    let mirrored = |edge: isize| edge + (edge - at);
    let from = match mode {
        Pad::Constant(_) => return None,
        Pad::Reflect => mirrored(if at < first { first } else { end - 1 }),
        Pad::Replicate => at.clamp(first, end - 1),
        Pad::Circular => first + (at - first).rem_euclid(end - first),
    };
    Some(from as usize)
}

fn pads(args: &mut Fields) -> fields::Result<Vec<[isize; 2]>> {
    let pair = |node: Node| {
        let fail = node.fail("expected [before, after]");
        <[isize; 2]>::try_from(node.integers()?).map_err(|_| fail)
    };
    args.required("pads")?.list()?.into_iter().map(pair).collect()
}

fn mode(args: &mut Fields, operands: &[HostTensor]) -> fields::Result<Pad> {
    let dtype = operands[0].dtype;
    let mode = args.optional("mode");
    let modes = [("reflect", Pad::Reflect), ("replicate", Pad::Replicate), ("circular", Pad::Circular)];
    match mode.as_ref().map(|mode| mode.text()).transpose()? {
        None | Some("constant") => match args.optional("value") {
            Some(value) => Ok(Pad::Constant(scalar(&value, dtype)?)),
            None if dtype == DType::Bool => Ok(Pad::Constant(Scalar::Bool(false))),
            None => Ok(Pad::Constant(Scalar::Int(0))),
        },
        Some(given) => modes.into_iter().find(|(name, _)| *name == given).map(|(_, mode)| mode).ok_or_else(|| {
            args.fail(format!("`{given}` is no mode; there are constant, reflect, replicate and circular"))
        }),
    }
}
