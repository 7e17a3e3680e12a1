//! Reading and writing at positions that are data, in the frontend's forms of it.

use congruent::Tensor;
use congruent_backend_api::erase::AnyBackend;
use congruent_backend_api::ops::index::ScatterOp;
use congruent_backend_api::{DType, Layout, Op, Result, Scalar, Shape};

use super::super::data::{dtype, scalar};
use super::{Elements, Entry, Expected, Moves, coordinates, front, index};
use crate::case::{Call, Case, Input};
use crate::host::{HostTensor, decode, encode};

/// One tensor, and what is done with it.
pub(super) const TRIANGLE: Entry = Entry {
    names: &["diagonal", "tril", "triu"],
    operands: 1..=1,
    uses: &[Op::Copy, Op::Where],
    parse: |name, args, _| {
        let k = args.optional("k").map_or(Ok(0), |node| node.signed())?;
        let mut axis = |name, default| args.optional(name).map_or(Ok(default), |node| node.signed());
        Ok(Box::new(match name {
            "diagonal" => Part::Diagonal(k, axis("axis1", 0)?, axis("axis2", 1)?),
            _ => Part::Triangle(k, name == "tril"),
        }))
    },
};

/// A tensor, then an index or a mask.
pub(super) const INDEXED: Entry = Entry {
    names: &["embedding", "index_select", "masked_fill", "masked_select", "take"],
    operands: 2..=2,
    uses: &[Op::Gather, Op::Where],
    parse: |name, args, operands| {
        Ok(Box::new(match name {
            "embedding" => Indexed::Embedding,
            "index_select" => Indexed::Select(args.required("axis")?.signed()?),
            "masked_fill" => Indexed::Fill(scalar(&args.required("value")?, operands[0].dtype)?),
            "masked_select" => Indexed::Mask,
            _ => args.optional("axis").map_or(Ok(Indexed::Take), |axis| axis.signed().map(Indexed::Select))?,
        }))
    },
};

/// A tensor, an index and sources.
pub(super) const WRITTEN: Entry = Entry {
    names: &["index_add", "put"],
    operands: 3..=3,
    uses: &[Op::Scatter(ScatterOp::Add)],
    parse: |name, args, _| {
        Ok(Box::new(match name {
            "put" => Written::Put,
            _ => Written::Add(args.required("axis")?.signed()?),
        }))
    },
};

/// An index alone.
pub(super) const COUNTED: Entry = Entry {
    names: &["bincount", "one_hot"],
    operands: 1..=1,
    uses: &[Op::Fill],
    parse: |name, args, _| {
        let classes = args.required("classes")?.unsigned()?;
        let result = args.optional("dtype").map_or(Ok(DType::I64), |node| dtype(&node))?;
        Ok(Box::new(if name == "one_hot" { Counted::OneHot(classes, result) } else { Counted::Bins(classes) }))
    },
};

#[derive(Debug)]
enum Part {
    Diagonal(isize, isize, isize),
    /// The diagonal, and whether what lies below it is kept.
    Triangle(isize, bool),
}

impl Moves for Part {
    fn run(&self, operands: &[Tensor<AnyBackend>]) -> Result<Vec<Tensor<AnyBackend>>> {
        let x = &operands[0];
        let result = match *self {
            Self::Diagonal(k, first, second) => x.diagonal(k, first, second),
            Self::Triangle(k, true) => x.tril(k as i64),
            Self::Triangle(k, false) => x.triu(k as i64),
        };
        result.map(|result| vec![result])
    }

    fn oracle(&self, operands: &[Elements]) -> Vec<Expected> {
        let x = &operands[0];
        let rank = x.shape.len();
        let result = match *self {
            Self::Diagonal(k, first, second) => {
                let (row, column) = (front(first, rank), front(second, rank));
                let (below, right) = ((-k).max(0) as usize, k.max(0) as usize);
                let left = |axis: usize, skip: usize| x.shape[axis].saturating_sub(skip);
                let others: Vec<usize> = (0..rank).filter(|&axis| axis != row && axis != column).collect();
                let mut shape: Vec<usize> = others.iter().map(|&axis| x.shape[axis]).collect();
                shape.push(left(row, below).min(left(column, right)));
                x.gather(shape, |to, from| {
                    others.iter().zip(to).for_each(|(&axis, &at)| from[axis] = at);
                    let at = to[to.len() - 1];
                    (from[row], from[column]) = (at + below, at + right);
                })
            }
            Self::Triangle(k, lower) => {
                let mut result = x.clone();
                for (bits, at) in result.bits.iter_mut().zip(coordinates(&x.shape)) {
                    let distance = at[rank - 1] as isize - at[rank - 2] as isize;
                    let kept = if lower { distance <= k } else { distance >= k };
                    *bits = if kept { *bits } else { 0 };
                }
                result
            }
        };
        vec![result.into()]
    }
}

#[derive(Debug)]
enum Indexed {
    Embedding,
    Fill(Scalar),
    Mask,
    Select(isize),
    Take,
}

impl Moves for Indexed {
    fn run(&self, operands: &[Tensor<AnyBackend>]) -> Result<Vec<Tensor<AnyBackend>>> {
        let (x, index) = (&operands[0], &operands[1]);
        let result = match *self {
            Self::Embedding => x.embedding(index),
            Self::Fill(value) => x.masked_fill(index, value),
            Self::Mask => x.masked_select(index),
            Self::Select(axis) => x.index_select(axis, index),
            Self::Take => x.take(index),
        };
        result.map(|result| vec![result])
    }

    fn oracle(&self, operands: &[Elements]) -> Vec<Expected> {
        let (x, given) = (&operands[0], &operands[1]);
        let number = |at: usize| decode(given.dtype, given.bits[at]).to_i64() as usize;
        let result = match *self {
            Self::Embedding => {
                let rank = given.shape.len();
                x.gather([&given.shape, &x.shape[1..]].concat(), |to, from| {
                    from[0] = number(index(&given.shape, &to[..rank]));
                    from[1..].copy_from_slice(&to[rank..]);
                })
            }
            Self::Fill(value) => {
                let mut result = x.clone();
                let mask = spread(given, &x.shape);
                result
                    .bits
                    .iter_mut()
                    .zip(mask)
                    .filter(|(_, chosen)| *chosen != 0)
                    .for_each(|(bits, _)| *bits = encode(x.dtype, value));
                result
            }
            Self::Mask => {
                let mask = spread(given, &x.shape);
                let bits: Vec<u64> =
                    x.bits.iter().zip(mask).filter(|(_, chosen)| *chosen != 0).map(|(&bits, _)| bits).collect();
                Elements { dtype: x.dtype, shape: vec![bits.len()], bits }
            }
            Self::Select(axis) => {
                let at = front(axis, x.shape.len());
                let mut shape = x.shape.clone();
                shape[at] = given.bits.len();
                x.gather(shape, |to, from| {
                    from.copy_from_slice(to);
                    from[at] = number(to[at]);
                })
            }
            Self::Take => {
                let bits = (0..given.bits.len()).map(|at| x.bits[number(at)]).collect();
                Elements { dtype: x.dtype, shape: given.shape.clone(), bits }
            }
        };
        vec![result.into()]
    }
}

/// A mask's elements in a shape to which it broadcasts.
fn spread(mask: &Elements, shape: &[usize]) -> Vec<u64> {
    let missing = shape.len().saturating_sub(mask.shape.len());
    let whole = mask.gather(shape.to_vec(), |to, from| {
        (0..from.len()).for_each(|axis| from[axis] = if mask.shape[axis] == 1 { 0 } else { to[missing + axis] });
    });
    whole.bits
}

#[derive(Debug)]
enum Written {
    Add(isize),
    Put,
}

impl Moves for Written {
    fn run(&self, operands: &[Tensor<AnyBackend>]) -> Result<Vec<Tensor<AnyBackend>>> {
        let [x, index, src] = operands else { return Ok(Vec::new()) };
        let result = match *self {
            Self::Add(axis) => x.index_add(axis, index, src),
            Self::Put => x.put(index, src),
        };
        result.map(|result| vec![result])
    }

    /// That of the scatter which the op is.
    fn oracle(&self, operands: &[Elements]) -> Vec<Expected> {
        let [x, given, src] = operands else { return Vec::new() };
        let (op, axis, shape) = match *self {
            Self::Add(axis) => {
                let mut shape = vec![1; x.shape.len()];
                shape[front(axis, x.shape.len())] = given.bits.len();
                (ScatterOp::Add, axis, [x.shape.clone(), shape, src.shape.clone()])
            }
            Self::Put => (ScatterOp::Set, 0, [vec![x.bits.len()], vec![given.bits.len()], vec![src.bits.len()]]),
        };
        let [out, index, src] = [(x, &shape[0]), (given, &shape[1]), (src, &shape[2])].map(|(x, shape)| host(x, shape));
        let case = Case {
            call: Call::Scatter { op, axis },
            inputs: vec![Input::InPlace, Input::Tensor(index), Input::Tensor(src)],
            out,
        };
        vec![Expected { dtype: x.dtype, shape: x.shape.clone(), elements: crate::ops::expect(&case) }]
    }
}

/// Elements as a row-major tensor of another shape.
fn host(x: &Elements, shape: &[usize]) -> HostTensor {
    let layout = Layout::contiguous(Shape::new("replay", shape).expect("the elements are there already"));
    let mut host = HostTensor { dtype: x.dtype, layout, bytes: vec![0; x.bits.len() * x.dtype.size()] };
    x.bits.iter().enumerate().for_each(|(at, &bits)| host.set_bits(at, bits));
    host
}

#[derive(Debug)]
enum Counted {
    Bins(usize),
    OneHot(usize, DType),
}

impl Moves for Counted {
    fn run(&self, operands: &[Tensor<AnyBackend>]) -> Result<Vec<Tensor<AnyBackend>>> {
        let result = match *self {
            Self::Bins(bins) => operands[0].bincount(bins),
            Self::OneHot(classes, dtype) => operands[0].one_hot(classes, dtype),
        };
        result.map(|result| vec![result])
    }

    fn oracle(&self, operands: &[Elements]) -> Vec<Expected> {
        let x = &operands[0];
        let numbers = x.bits.iter().map(|&bits| decode(x.dtype, bits).to_i64() as usize);
        let result = match *self {
            Self::Bins(bins) => {
                let mut counts = vec![0; bins];
                numbers.for_each(|number| counts[number] += 1);
                Elements { dtype: DType::I64, shape: vec![bins], bits: counts }
            }
            Self::OneHot(classes, dtype) => {
                let one = encode(dtype, if dtype == DType::Bool { Scalar::Bool(true) } else { Scalar::Int(1) });
                let row = |number| (0..classes).map(move |class| if class == number { one } else { 0 });
                Elements { dtype, shape: [&x.shape[..], &[classes]].concat(), bits: numbers.flat_map(row).collect() }
            }
        };
        vec![result.into()]
    }
}
