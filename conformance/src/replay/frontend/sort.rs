//! Sorted elements with their positions, and quantiles of them.

use congruent::Tensor;
use congruent_backend_api::erase::AnyBackend;
use congruent_backend_api::ops::binary::BinaryOp;
use congruent_backend_api::ops::compare::CompareOp;
use congruent_backend_api::ops::sort::SortOp;
use congruent_backend_api::ops::unary::UnaryOp;
use congruent_backend_api::{DType, Op, Result};

use super::super::data::scalar;
use super::super::fields::{Fields, Node};
use super::{Elements, Entry, Expected, Moves, coordinates, front, index};
use crate::dd::Dd;
use crate::expect::Expect;
use crate::host::decode;
use crate::ops::sort::compare;
use crate::round::{Format, gamma};

/// `sort` and `topk` with two outputs; with one they are ops of backends.
pub(super) const ORDER: Entry = Entry {
    names: &["sort", "topk"],
    operands: 1..=1,
    uses: &[Op::Sort(SortOp::Sort), Op::Sort(SortOp::Argsort), Op::Sort(SortOp::Topk), Op::Gather, Op::Copy],
    parse: |name, args, _| {
        let axis = args.optional("axis").map_or(Ok(-1), |axis| axis.signed())?;
        Ok(Box::new(if name == "topk" {
            let largest = args.optional("largest").map_or(Ok(true), |largest| largest.truth())?;
            Order { axis, descending: largest, k: Some(args.required("k")?.unsigned()?) }
        } else {
            let descending = args.optional("descending").map_or(Ok(false), |descending| descending.truth())?;
            Order { axis, descending, k: None }
        }))
    },
};

/// `median` and `quantile`.
pub(super) const QUANTILE: Entry = Entry {
    names: &["median", "quantile"],
    operands: 1..=1,
    uses: &[
        Op::Sort(SortOp::Sort),
        Op::Binary(BinaryOp::Mul),
        Op::Binary(BinaryOp::Add),
        Op::Compare(CompareOp::Eq),
        Op::Unary(UnaryOp::IsNan),
        Op::Where,
        Op::Copy,
    ],
    parse: |name, args, _| {
        let q = if name == "median" { 0.5 } else { scalar(&args.required("q")?, DType::F64)?.to_f64() };
        let axis = args.given("axis").map(|axis| axis.signed()).transpose()?;
        Ok(Box::new(Quantile { q, axis, keepdim: keepdim(args)? }))
    },
};

fn keepdim(args: &mut Fields) -> super::fields::Result<bool> {
    args.optional("keepdim").map_or(Ok(false), |keepdim: Node| keepdim.truth())
}

/// `unique`.
pub(super) const UNIQUE: Entry = Entry {
    names: &["unique"],
    operands: 1..=1,
    uses: &[Op::Sort(SortOp::Sort), Op::Compare(CompareOp::Ne), Op::Unary(UnaryOp::IsNan), Op::Gather, Op::Copy],
    parse: |_, _, _| Ok(Box::new(Unique)),
};

#[derive(Debug)]
struct Unique;

impl Moves for Unique {
    fn run(&self, operands: &[Tensor<AnyBackend>]) -> Result<Vec<Tensor<AnyBackend>>> {
        Ok(vec![operands[0].unique()?])
    }

    fn oracle(&self, operands: &[Elements]) -> Vec<Expected> {
        let x = &operands[0];
        let mut bits: Vec<u64> = order(x.dtype, &x.bits, false).into_iter().map(|at| x.bits[at]).collect();
        bits.dedup_by(|b, a| compare(decode(x.dtype, *a), decode(x.dtype, *b)).is_eq());
        vec![Elements { dtype: x.dtype, shape: vec![bits.len()], bits }.into()]
    }
}

#[derive(Debug)]
struct Order {
    axis: isize,
    descending: bool,
    k: Option<usize>,
}

impl Moves for Order {
    fn run(&self, operands: &[Tensor<AnyBackend>]) -> Result<Vec<Tensor<AnyBackend>>> {
        let (x, axis, descending) = (&operands[0], self.axis, self.descending);
        let (values, positions) = match self.k {
            Some(k) => x.topk(k, axis, descending)?,
            None => (x.sort(axis, descending)?, x.argsort(axis, descending)?),
        };
        Ok(vec![values, positions])
    }

    fn oracle(&self, operands: &[Elements]) -> Vec<Expected> {
        let x = &operands[0];
        let axis = front(self.axis, x.shape.len());
        let (mut shape, mut rows) = (x.shape.clone(), x.shape.clone());
        (shape[axis], rows[axis]) = (self.k.unwrap_or(shape[axis]), 1);
        let count = shape.iter().product();
        let (mut bits, mut positions) = (vec![0; count], vec![0; count]);
        for mut at in coordinates(&rows) {
            let row = row(x, axis, &mut at);
            for (place, from) in order(x.dtype, &row, self.descending).into_iter().take(shape[axis]).enumerate() {
                at[axis] = place;
                let to = index(&shape, &at);
                (bits[to], positions[to]) = (row[from], from as u64);
            }
        }
        let values = Elements { dtype: x.dtype, shape: shape.clone(), bits };
        vec![values.into(), Elements { dtype: DType::I64, shape, bits: positions }.into()]
    }
}

#[derive(Debug)]
struct Quantile {
    q: f64,
    axis: Option<isize>,
    keepdim: bool,
}

impl Moves for Quantile {
    fn run(&self, operands: &[Tensor<AnyBackend>]) -> Result<Vec<Tensor<AnyBackend>>> {
        Ok(vec![operands[0].quantile(self.q, self.axis, self.keepdim)?])
    }

    fn oracle(&self, operands: &[Elements]) -> Vec<Expected> {
        let (x, rank) = (&operands[0], operands[0].shape.len());
        let (flat, axis) = match self.axis {
            Some(axis) => (x.clone(), front(axis, rank)),
            None => (Elements { shape: vec![x.bits.len()], ..x.clone() }, 0),
        };
        let mut kept = flat.shape.clone();
        kept[axis] = 1;
        let elements = coordinates(&kept).map(|mut at| quantile(x.dtype, &row(&flat, axis, &mut at), self.q)).collect();
        let shape = match (self.axis, self.keepdim) {
            (None, true) => vec![1; rank],
            (_, true) => kept,
            (_, false) => {
                kept.remove(axis);
                kept
            }
        };
        vec![Expected { dtype: x.dtype, shape, elements }]
    }
}

/// The bits along an axis through a position, which is moved.
fn row(x: &Elements, axis: usize, at: &mut [usize]) -> Vec<u64> {
    let mut bits = |place| {
        at[axis] = place;
        x.bits[index(&x.shape, at)]
    };
    (0..x.shape[axis]).map(&mut bits).collect()
}

fn order(dtype: DType, row: &[u64], descending: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|&a, &b| {
        let order = compare(decode(dtype, row[a]), decode(dtype, row[b]));
        if descending { order.reverse() } else { order }
    });
    order
}

/// Interpolated with two weights: each is rounded, each product, and the sum, so that the error is within
/// γ₃·((1 − t)·|low| + t·|high|), and half the least number for each product that underflows.
fn quantile(dtype: DType, row: &[u64], q: f64) -> Expect {
    let sorted: Vec<u64> = order(dtype, row, false).into_iter().map(|at| row[at]).collect();
    let value = |at: usize| decode(dtype, sorted[at]).to_f64();
    let last = sorted.len() - 1;
    if value(last).is_nan() {
        return Expect::Nan;
    }
    let place = q * last as f64;
    let (below, part) = (place.floor() as usize, place.fract());
    let low = value(below);
    if part == 0.0 || value(below + 1) == low {
        return Expect::Bits(sorted[below]);
    }
    let high = value(below + 1);
    if !low.is_finite() || !high.is_finite() {
        return Expect::exact(dtype, low + high);
    }
    let rest = Dd::sum(1.0, -part);
    let exact = Dd::from(low) * rest + Dd::from(high) * part.into();
    let format = Format::of(dtype).map_or(Format::F64, Format::accumulator);
    let magnitude = low.abs() * (1.0 - part) + high.abs() * part;
    Expect::near(exact, gamma(3.0, format.unit()) * magnitude * (1.0 + f64::EPSILON) + format.tiny())
}
