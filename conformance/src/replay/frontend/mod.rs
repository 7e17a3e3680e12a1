//! Ops that only the frontend has: views, joins, parts, writing into a part or at positions that are data, which move
//! elements, and what is composed from sorts. They run through the frontend, and their oracle is plain index arithmetic on
//! elements in row-major order. A
//! composition that computes, `einsum`, has an oracle with bounds of its own.
//!
//! A file below this folder is a group of ops: a type with the arguments that implements [`Moves`], and an [`Entry`] in
//! [`OPS`] that says what the ops are called and how the arguments are read.

mod einsum;
mod index;
mod join;
mod rearrange;
mod sort;
mod view;

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::Arc;

use congruent::Tensor;
use congruent_backend_api::erase::AnyBackend;
use congruent_backend_api::{DType, Op, Result, Storage as _};

use super::fields::{self, Fields};
use super::operand::elsewhere;
use crate::case::{Call, Case, Input};
use crate::expect::Expect;
use crate::host::HostTensor;

/// Every group of ops.
const OPS: &[Entry] = &[
    einsum::EINSUM,
    join::JOIN,
    join::ASSIGN,
    rearrange::PAD,
    rearrange::REARRANGE,
    index::COUNTED,
    index::INDEXED,
    index::TRIANGLE,
    index::WRITTEN,
    join::JOIN,
    join::ASSIGN,
    sort::ORDER,
    sort::QUANTILE,
    sort::UNIQUE,
    view::VIEW,
];

/// A group of ops.
pub(super) struct Entry {
    /// What they are called.
    names: &'static [&'static str],
    /// How many operands they take.
    pub(super) operands: RangeInclusive<usize>,
    /// The ops that a backend needs for them.
    uses: &'static [Op],
    /// Reads the arguments; the operands are given for their number and dtypes.
    parse: Parse,
}

type Parse = fn(&str, &mut Fields, &[HostTensor]) -> fields::Result<Box<dyn Moves>>;

/// An op with its arguments.
trait Moves: Debug {
    /// What the frontend makes of the operands.
    fn run(&self, operands: &[Tensor<AnyBackend>]) -> Result<Vec<Tensor<AnyBackend>>>;

    /// What each result must be. The call must be a valid one.
    fn oracle(&self, operands: &[Elements]) -> Vec<Expected>;
}

/// The elements of an operand in row-major order.
#[derive(Clone, Debug)]
struct Elements {
    dtype: DType,
    shape: Vec<usize>,
    bits: Vec<u64>,
}

/// What the elements of a result may be, in row-major order.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    pub(super) elements: Vec<Expect>,
}

impl From<Elements> for Expected {
    fn from(Elements { dtype, shape, bits }: Elements) -> Self {
        Self { dtype, shape, elements: bits.into_iter().map(Expect::Bits).collect() }
    }
}

impl Elements {
    fn of(tensor: &HostTensor) -> Self {
        Self { dtype: tensor.dtype, shape: tensor.layout.shape().to_vec(), bits: tensor.view_bits() }
    }

    /// A tensor of another shape, where `source` finds the coordinates in this one for those in the result.
    fn gather(&self, shape: Vec<usize>, source: impl Fn(&[usize], &mut [usize])) -> Self {
        let mut from = vec![0; self.shape.len()];
        let bits = coordinates(&shape).map(|to| {
            source(&to, &mut from);
            self.bits[index(&self.shape, &from)]
        });
        let bits = bits.collect();
        Self { dtype: self.dtype, shape, bits }
    }
}

/// Every coordinate of a shape in row-major order.
fn coordinates(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    (0..shape.iter().product()).map(|index| crate::report::coordinates(index, shape))
}

/// The row-major index of coordinates.
fn index(shape: &[usize], coordinates: &[usize]) -> usize {
    coordinates.iter().zip(shape).fold(0, |at, (&coordinate, &size)| at * size + coordinate)
}

/// An axis counted from the front.
fn front(axis: isize, rank: usize) -> usize {
    if axis < 0 { (axis + rank as isize) as usize } else { axis as usize }
}

/// A call of such an op.
#[derive(Debug)]
pub(super) struct Frontend {
    op: Box<dyn Moves>,
    uses: &'static [Op],
    operands: Vec<HostTensor>,
    /// Whether results are copied into outputs of another layout.
    elsewhere: bool,
}

/// What such a call made: the results' storages, and what was damaged on the way.
pub(super) struct Made {
    pub(super) outs: Vec<HostTensor>,
    pub(super) damage: Option<String>,
}

impl Frontend {
    /// The group of the op called `name`.
    pub(super) fn named(name: &str) -> Option<&'static Entry> {
        OPS.iter().find(|entry| entry.names.contains(&name))
    }

    /// A call of the op called `name`, one of those of `entry`.
    pub(super) fn parse(
        entry: &Entry,
        name: &str,
        args: &mut Fields,
        operands: Vec<HostTensor>,
        elsewhere: bool,
    ) -> fields::Result<Self> {
        Ok(Self { op: (entry.parse)(name, args, &operands)?, uses: entry.uses, operands, elsewhere })
    }

    /// Whether a backend has the ops that the call needs. What no backend could have is not lacking.
    pub(super) fn is_supported(&self, backend: &AnyBackend) -> bool {
        let dtype = self.operands.first().map(|operand| operand.dtype);
        dtype.is_none_or(|dtype| self.uses.iter().all(|&op| !op.accepts(dtype) || backend.supports(op, dtype)))
    }

    /// Runs the op on a backend.
    pub(super) fn run(&self, backend: &Arc<AnyBackend>) -> Result<Made> {
        let upload = |operand: &HostTensor| {
            let mut storage = backend.alloc(operand.dtype, operand.storage_len())?;
            backend.write(&operand.bytes, &mut storage, 0)?;
            Tensor::from_parts(backend, Arc::new(storage), operand.layout)
        };
        let operands = self.operands.iter().map(upload).collect::<Result<Vec<_>>>()?;
        let results = self.op.run(&operands)?;
        let mut made = Made { outs: Vec::new(), damage: None };
        for result in results {
            if self.elsewhere {
                let inputs = vec![Input::Tensor(download(&result)?)];
                let out = elsewhere(result.dtype(), result.shape())?;
                let outcome = Case { call: Call::Copy, inputs, out }.run(backend.as_ref())?;
                made.outs.push(outcome.out);
                made.damage = made.damage.or(outcome.damage);
            } else {
                made.outs.push(download(&result.contiguous()?)?);
            }
        }
        for (index, (tensor, given)) in operands.iter().zip(&self.operands).enumerate() {
            if download(tensor)?.bytes != given.bytes {
                made.damage.get_or_insert(format!("input {index} was changed by the call"));
            }
        }
        Ok(made)
    }

    /// What each result must be. The call must be a valid one.
    pub(super) fn oracle(&self) -> Vec<Expected> {
        self.op.oracle(&self.operands.iter().map(Elements::of).collect::<Vec<_>>())
    }
}

/// A tensor with its whole storage.
fn download(tensor: &Tensor<AnyBackend>) -> Result<HostTensor> {
    let mut bytes = vec![0; tensor.storage().len() * tensor.dtype().size()];
    tensor.backend().download(tensor.storage(), 0, &mut bytes)?;
    Ok(HostTensor { dtype: tensor.dtype(), layout: *tensor.layout(), bytes })
}
