//! The rows of the kit, one file per op family: which cases are generated, and what the oracle expects of them.
//!
//! The oracle is plain loops over single elements in f64, double-double or i128; no code of a backend is in it.

pub mod attention;
pub mod binary;
pub mod compare;
pub mod conv;
pub mod copy;
pub mod index;
pub mod linear;
pub mod matmul;
pub mod norm;
pub mod pool;
pub mod random;
pub mod reduce;
pub mod scan;
pub mod sort;
pub mod statistic;
pub mod unary;

use congruent_backend_api::ops::matmul::Matmul;
use congruent_backend_api::ops::random::RandomOp;
use congruent_backend_api::{DType, ErrorKind, Op, Scalar};
use proptest::prelude::*;

use crate::arithmetic::Arithmetic;
use crate::case::{Call, Case, Input, poisoned};
use crate::expect::Expect;
use crate::host::{HostTensor, decode};
use crate::model::ErrorModel;
use crate::spec::{Draw, Placement, TensorSpec, placement, shape, tensor};
use crate::values::Class;

/// One row of the report: an op for inputs of a dtype.
pub type Row = (Op, DType);

/// Every op with every dtype in its domain.
pub fn rows() -> impl Iterator<Item = Row> {
    Op::all()
        .flat_map(|op| DType::ALL.into_iter().filter(move |&dtype| op.accepts(dtype)).map(move |dtype| (op, dtype)))
}

/// The cases of a row.
pub fn cases((op, dtype): Row, draw: Draw) -> BoxedStrategy<Case> {
    match op {
        Op::Unary(op) => unary::cases(op, dtype, draw),
        Op::Binary(op) => binary::cases(op, dtype, draw),
        Op::Compare(op) => compare::comparisons(op, dtype, draw),
        Op::Where => compare::choices(dtype, draw),
        Op::Clamp => compare::clamps(dtype, draw),
        Op::Fill => copy::fills(dtype, draw),
        Op::Copy => copy::copies(dtype, dtype, draw),
        Op::Cast(to) => copy::copies(dtype, to, draw),
        Op::Random(op) => random::cases(op, dtype, draw),
        Op::Reduce(op) => reduce::reductions(op, dtype, draw),
        Op::ArgReduce(op) => reduce::arg_reductions(op, dtype, draw),
        Op::Scan(op) => scan::cases(op, dtype, draw),
        Op::SearchSorted => sort::searches(dtype, draw),
        Op::Sort(op) => sort::sorts(op, dtype, draw),
        Op::Statistic(op) => statistic::cases(op, dtype, draw),
        Op::Linear => linear::cases(dtype, draw),
        Op::Attention(op) => attention::cases(op, dtype, draw),
        Op::Matmul => matmul::cases(dtype, draw),
        Op::Normalize(op) => norm::cases(op, false, dtype, draw),
        Op::NormalizeGrad(op) => norm::cases(op, true, dtype, draw),
        Op::Gather => index::gathers(dtype, draw),
        Op::Scatter(op) => index::scatters(op, dtype, draw),
        Op::Nonzero => index::searches(draw),
        Op::Conv(op) => conv::cases(op, dtype, draw),
        Op::Pool(op) => pool::cases(op, dtype, draw),
    }
}

/// How exactly a row must agree.
#[must_use]
pub fn model((op, dtype): Row) -> ErrorModel {
    match op {
        Op::Unary(op) => unary::model(op, dtype),
        Op::Binary(op) => binary::model(op, dtype),
        Op::Cast(to) => copy::model(dtype, to),
        Op::Reduce(op) => reduce::model(op, dtype),
        Op::Scan(op) => scan::model(op, dtype),
        Op::Attention(_) | Op::Linear | Op::Normalize(_) | Op::NormalizeGrad(_) | Op::Statistic(_) => {
            ErrorModel::Composed
        }
        Op::Matmul | Op::Conv(_) => matmul::model(dtype),
        Op::Pool(op) => pool::model(op),
        Op::Scatter(op) => index::model(op, dtype),
        Op::Random(RandomOp::Normal) => ErrorModel::Composed,
        Op::ArgReduce(_)
        | Op::Clamp
        | Op::Compare(_)
        | Op::Copy
        | Op::Fill
        | Op::Gather
        | Op::Nonzero
        | Op::Random(_)
        | Op::SearchSorted
        | Op::Sort(_)
        | Op::Where => ErrorModel::Exact,
    }
}

/// What each element of the output may be by the contract, in row-major order.
#[must_use]
pub fn expect(case: &Case) -> Vec<Expect> {
    expect_of(case, Arithmetic::default())
}

/// What each element of the output may be with what a backend declares of its arithmetic, in row-major order.
#[must_use]
pub fn expect_of(case: &Case, arithmetic: Arithmetic) -> Vec<Expect> {
    match &case.call {
        Call::Unary(op) => unary::expect(*op, case),
        Call::Binary(op) => binary::expect(*op, case),
        Call::Compare(op) => compare::expect_comparison(*op, case),
        Call::Where => compare::expect_choice(case),
        Call::Clamp { min, max } => compare::expect_clamp(*min, *max, case),
        Call::Fill(value) => copy::expect_fill(*value, case),
        Call::Conv { op, options, activation } => conv::expect(*op, options, *activation, case, arithmetic),
        Call::Pool { op, options } => pool::expect(*op, options, case, arithmetic),
        Call::Copy => copy::expect_copy(case),
        Call::Random { distribution, seed, offset } => random::expect(*distribution, *seed, *offset, case),
        Call::Reduce { op, axes } => reduce::expect(*op, axes.as_deref(), case, arithmetic),
        Call::ArgReduce { op, axis } => reduce::expect_position(*op, *axis, case),
        Call::Scan { op, axis, range } => scan::expect(*op, *axis, *range, case, arithmetic),
        Call::SearchSorted { right } => sort::expect_places(*right, case),
        Call::Sort { op, axis, descending } => sort::expect(*op, *axis, *descending, case),
        Call::Statistic { op, parameter, axes } => statistic::expect(*op, *parameter, axes.as_deref(), case),
        Call::Linear { activation } => linear::expect(*activation, case, arithmetic),
        Call::Normalize { op, gradient, epsilon, axes } => {
            norm::expect(*op, *gradient, *epsilon, axes.as_deref(), case)
        }
        Call::Attention { op, options, given } => attention::expect(*op, *options, *given, case, arithmetic),
        Call::Matmul { alpha, beta } => matmul::expect(*alpha, *beta, case, arithmetic),
        Call::Gather { axis } => index::expect_gather(*axis, case),
        Call::Scatter { op, axis } => index::expect_scatter(*op, *axis, case, arithmetic),
        Call::Nonzero => index::expect_nonzero(case),
    }
}

/// The error that the data of a case makes a correct backend report.
#[must_use]
pub fn data_error(case: &Case) -> Option<ErrorKind> {
    match case.call {
        Call::Binary(op) if binary::divides_by_zero(op, case) => Some(ErrorKind::DivisionByZero),
        _ if index::out_of_range(case) => Some(ErrorKind::IndexOutOfRange),
        _ => None,
    }
}

/// What is wrong with the report of a data error; `None` when it is the one that is due.
#[must_use]
pub fn misreported(reported: Option<ErrorKind>, due: Option<ErrorKind>) -> Option<String> {
    match (reported, due) {
        _ if reported == due => None,
        (Some(reported), None) => Some(format!("reported an error of kind {reported}, which no element causes")),
        (None, Some(due)) => Some(format!("an element causes {due}, and the next synchronising call said nothing")),
        (Some(reported), Some(due)) => Some(format!("reported {reported}, but the data causes {due}")),
        (None, None) => None,
    }
}

/// How a generated elementwise case takes one operand.
#[derive(Clone, Debug)]
enum Operand {
    Tensor(TensorSpec),
    /// The first value that the tensor would hold.
    Scalar(TensorSpec),
    InPlace(TensorSpec),
}

/// Elementwise cases: operands of `dtypes` with values of `classes`, the output `out`; `flexible` operands may also be
/// scalars or the output itself.
fn elementwise(
    call: impl Fn() -> Call + 'static,
    dtypes: Vec<DType>,
    out: DType,
    classes: &'static [Class],
    flexible: bool,
    draw: Draw,
) -> BoxedStrategy<Case> {
    let operand = move |dtype: DType| {
        let weight = u32::from(flexible);
        let in_place = u32::from(dtype == out);
        prop_oneof![
            6 => tensor(draw, classes).prop_map(Operand::Tensor),
            weight => tensor(draw, classes).prop_map(Operand::Scalar),
            in_place => tensor(draw, classes).prop_map(Operand::InPlace),
        ]
    };
    let operands: Vec<_> = dtypes.iter().map(|&dtype| operand(dtype).boxed()).collect();
    (shape(draw, 6), operands, placement(), any::<u64>().no_shrink())
        .prop_map(move |(shape, operands, placement, seed)| {
            build_elementwise(call(), &dtypes, out, &shape, &operands, &placement, seed)
        })
        .boxed()
}

fn build_elementwise(
    call: Call,
    dtypes: &[DType],
    out: DType,
    shape: &[usize],
    operands: &[Operand],
    placement: &Placement,
    seed: u64,
) -> Case {
    let mut result = poisoned(out, layout(placement, shape), seed);
    // A case without any tensor has no shape to broadcast from, and at most one operand can be the output.
    let mut tensors = operands.iter().filter(|operand| !matches!(operand, Operand::Scalar(_))).count();
    let mut inputs = Vec::new();
    let mut in_place = false;
    for (index, (operand, &dtype)) in operands.iter().zip(dtypes).enumerate() {
        let (Operand::Tensor(spec) | Operand::Scalar(spec) | Operand::InPlace(spec)) = operand;
        let build = |shape: &[usize]| host(spec, dtype, shape, seed, index);
        inputs.push(match operand {
            Operand::Scalar(_) if tensors > 0 => {
                let value = build(&[1]);
                let scalar = value.values()[0];
                Input::Scalar(scalar)
            }
            Operand::InPlace(_) if !in_place => {
                in_place = true;
                let old = TensorSpec { placement: placement.clone(), ..spec.clone() };
                result = overlay(&result, &host(&old, dtype, shape, seed, index));
                Input::InPlace
            }
            _ => {
                tensors += 1;
                Input::Tensor(build(&spec.shape(shape)))
            }
        });
    }
    Case { call, inputs, out: result }
}

/// The tensor of a spec. Shapes are capped well below what a layout can hold, so this does not fail.
fn host(spec: &TensorSpec, dtype: DType, shape: &[usize], seed: u64, index: usize) -> HostTensor {
    spec.build(dtype, shape, seed, index as u64).expect("generated shapes are small")
}

/// The layout of a generated placement.
fn layout(placement: &Placement, shape: &[usize]) -> (congruent_backend_api::Layout, usize) {
    placement.layout(shape).expect("generated shapes are small")
}

/// The storage of `under` with the view's elements of `over`, which has the same layout.
fn overlay(under: &HostTensor, over: &HostTensor) -> HostTensor {
    let mut result = under.clone();
    for at in crate::host::positions(&under.layout) {
        result.set_bits(at, over.bits(at));
    }
    result
}

/// The bits of operand `index`, broadcast to the output's shape, in row-major order.
fn operand_bits(case: &Case, index: usize, dtype: DType) -> Vec<u64> {
    let shape = case.out.layout.shape();
    match (&case.inputs[index], case.tensor(index)) {
        (Input::Scalar(scalar), _) => vec![crate::host::encode(dtype, *scalar); shape.count()],
        (_, Some(tensor)) => broadcast_positions(tensor, shape).into_iter().map(|at| tensor.bits(at)).collect(),
        (_, None) => Vec::new(),
    }
}

/// The values of operand `index`, broadcast to the output's shape, in row-major order.
fn operand(case: &Case, index: usize, dtype: DType) -> Vec<Scalar> {
    operand_bits(case, index, dtype).into_iter().map(|bits| decode(dtype, bits)).collect()
}

/// The storage elements behind each element of `shape`, by NumPy's broadcasting rule.
fn broadcast_positions(tensor: &HostTensor, shape: &[usize]) -> Vec<usize> {
    let (sizes, strides) = (tensor.layout.shape(), tensor.layout.strides());
    let missing = shape.len() - sizes.len();
    let count = shape.iter().product();
    (0..count)
        .map(|mut index: usize| {
            let mut at = tensor.layout.offset() as isize;
            for axis in (0..shape.len()).rev() {
                let coordinate = (index % shape[axis]) as isize;
                index /= shape[axis];
                if axis >= missing && sizes[axis - missing] != 1 {
                    at += coordinate * strides[axis - missing];
                }
            }
            at as usize
        })
        .collect()
}

/// The shape of a product, for cases that are written by hand.
///
/// # Errors
/// `Shape` when the operands do not fit together.
pub fn product_shape(a: &HostTensor, b: &HostTensor) -> congruent_backend_api::Result<congruent_backend_api::Shape> {
    Matmul::shape(a.layout.shape(), b.layout.shape())
}
