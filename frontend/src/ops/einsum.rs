//! Einstein summation. Operands are contracted in pairs, each pair by one matrix product:
//!
//! axes of both that stay are its batch, axes of both that are summed its inner axis, the axes of one alone its rows and
//! columns. A pair without an axis to sum is an elementwise product, and an axis of one operand alone that does not stay
//! is summed first, which is exact algebra: Σᵢⱼ aᵢ·bⱼ = (Σᵢ aᵢ)·(Σⱼ bⱼ).

use std::collections::BTreeMap;

use congruent_backend_api::{BinaryOps, CopyOps, Error, ErrorKind, Layout, MatmulOps, ReduceOps, Result, Shape};

use crate::operand::{Operand, same_backend};
use crate::tensor::Tensor;

const OP: &str = "einsum";

/// Labels of the axes under an ellipsis, counted from the last; letters are their own labels.
const ELLIPSIS: u8 = 128;

/// A tensor with a label for each axis, all different.
pub(super) struct Term<B: congruent_backend_api::Backend + ?Sized> {
    pub(super) tensor: Tensor<B>,
    pub(super) labels: Vec<u8>,
}

impl<B: MatmulOps + BinaryOps + ReduceOps + CopyOps + ?Sized> Tensor<B> {
    /// The sum of products that `equation` describes, as NumPy's `einsum`: a letter for each axis of each operand, and
    /// after `->` the letters of the result. Letters that are not there are summed over; a letter twice in one operand is
    /// its diagonal. Without `->` the result has the letters that appear once, in alphabetical order. `...` stands for
    /// axes that broadcast; they come first in a result without `->`, and are summed if a result leaves them out.
    ///
    /// Pairs are multiplied in the order that makes the smallest results. Each product and sum is rounded to the dtype.
    /// A result that takes no arithmetic, such as a transpose, is a view.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{DType, Tensor};
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::arange(&device, 0..4, DType::I64)?.reshape([2, 2])?;
    /// assert_eq!(Tensor::einsum("ij,jk->ik", &[&x, &x])?.to_vec::<i64>()?, [2, 3, 6, 11]);
    /// assert_eq!(Tensor::einsum("ii", &[&x])?.item::<i64>()?, 3);
    /// assert_eq!(Tensor::einsum("ij->ji", &[&x])?.to_vec::<i64>()?, [0, 2, 1, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Argument` for an equation that is malformed or does not fit the operands' number and ranks, or tensors of two
    /// backends; `Shape` when a letter's sizes differ and none is 1, or a product has more than eight axes; `DType` for
    /// bool or dtypes that differ; `Unsupported`; `OutOfMemory`.
    pub fn einsum(equation: &str, operands: &[&Self]) -> Result<Self> {
        let ranks: Vec<usize> = operands.iter().map(|operand| operand.rank()).collect();
        let (inputs, output) = parse(equation, &ranks)?;
        for operand in operands {
            same_backend(OP, operands[0].backend(), &[Operand::Tensor(operand)])?;
            if operand.dtype() != operands[0].dtype() {
                let (left, right) = (operands[0].dtype(), operand.dtype());
                let message = format!("dtypes {left} and {right} meet, and nothing is promoted; cast one of them");
                return Err(Error::new(ErrorKind::DType, OP, message));
            }
        }
        let mut terms = Vec::new();
        for (operand, labels) in operands.iter().zip(&inputs) {
            terms.push(diagonal(operand, labels)?);
        }
        let sizes = sizes(&terms)?;
        for index in 0..terms.len() {
            let shape: Vec<usize> = terms[index].labels.iter().map(|label| sizes[label]).collect();
            let expanded = terms[index].tensor.expand(shape)?;
            let elsewhere = |label: &u8| {
                output.contains(label)
                    || (0..terms.len()).any(|other| other != index && terms[other].labels.contains(label))
            };
            let labels = &terms[index].labels;
            let summed: Vec<isize> =
                (0..labels.len()).filter(|&axis| !elsewhere(&labels[axis])).map(|axis| axis as isize).collect();
            let kept = labels.iter().copied().filter(|label| elsewhere(label)).collect();
            let tensor = if summed.is_empty() { expanded } else { expanded.sum(summed.as_slice(), false)? };
            terms[index] = Term { tensor, labels: kept };
        }
        while terms.len() > 1 {
            let (first, second) = cheapest(&terms, &output, &sizes);
            let (b, a) = (terms.remove(second), terms.remove(first));
            let kept = |label| output.contains(&label) || terms.iter().any(|term| term.labels.contains(&label));
            let product = contract(&a, &b, kept)?;
            terms.insert(first, product);
        }
        // `parse` admits no equation without operands.
        let term = &terms[0];
        let axis = |label: &u8| term.labels.iter().position(|own| own == label).unwrap_or_default() as isize;
        term.tensor.permute(output.iter().map(axis).collect::<Vec<_>>())
    }
}

/// The labels of each operand and of the result.
fn parse(equation: &str, ranks: &[usize]) -> Result<(Vec<Vec<u8>>, Vec<u8>)> {
    let malformed = |message: String| Error::new(ErrorKind::Argument, OP, format!("`{equation}`: {message}"));
    let text: String = equation.chars().filter(|character| !character.is_whitespace()).collect();
    let (left, right) = text.split_once("->").map_or((&*text, None), |(left, right)| (left, Some(right)));
    let operands: Vec<&str> = left.split(',').collect();
    if operands.len() != ranks.len() {
        return Err(malformed(format!("{} operands are described, {} given", operands.len(), ranks.len())));
    }
    let mut inputs = Vec::new();
    for (operand, &rank) in operands.iter().zip(ranks) {
        let letters = operand.replacen("...", "", 1).len();
        let hidden = rank.checked_sub(letters).filter(|&hidden| hidden == 0 || operand.contains("..."));
        let hidden =
            hidden.ok_or_else(|| malformed(format!("`{operand}` does not describe the {rank} axes of its operand")))?;
        inputs.push(labels(operand, hidden).map_err(malformed)?);
    }
    // The ellipses of operands broadcast, so that of the result is the longest.
    let hidden =
        inputs.iter().flatten().filter(|&&label| label >= ELLIPSIS).max().map_or(0, |&last| last - ELLIPSIS + 1);
    let given = |label: u8| inputs.iter().flatten().filter(|&&own| own == label).count();
    let output = match right {
        Some(right) => {
            let output = labels(right, hidden.into()).map_err(malformed)?;
            for (index, &label) in output.iter().enumerate() {
                if given(label) == 0 {
                    return Err(malformed(format!("no operand has the axis `{}` of the result", char::from(label))));
                }
                if output[..index].contains(&label) {
                    return Err(malformed(format!("the result has the axis `{}` twice", char::from(label))));
                }
            }
            output
        }
        None => {
            let once = (0..ELLIPSIS).filter(|&label| given(label) == 1);
            (0..hidden).rev().map(|hidden| ELLIPSIS + hidden).chain(once).collect()
        }
    };
    Ok((inputs, output))
}

/// The labels of one part of an equation, where an ellipsis stands for so many axes.
fn labels(part: &str, hidden: usize) -> Result<Vec<u8>, String> {
    let (before, after) = part.split_once("...").unwrap_or((part, ""));
    let mut labels = before.as_bytes().to_vec();
    if part.contains("...") {
        labels.extend((0..hidden as u8).rev().map(|hidden| ELLIPSIS + hidden));
    }
    labels.extend(after.as_bytes());
    match part.replacen("...", "", 1).chars().find(|character| !character.is_ascii_alphabetic()) {
        Some(character) => Err(format!("`{character}` is no letter; axes are named a to z and A to Z")),
        None => Ok(labels),
    }
}

/// The operand with each label once: where one repeats, the diagonal of its axes.
fn diagonal<B: CopyOps + ?Sized>(x: &Tensor<B>, given: &[u8]) -> Result<Term<B>> {
    let (mut labels, mut sizes, mut strides) = (Vec::new(), Vec::new(), Vec::new());
    for (axis, &label) in given.iter().enumerate() {
        let (size, stride) = (x.shape()[axis], x.layout().strides()[axis]);
        match labels.iter().position(|&own| own == label) {
            None => {
                labels.push(label);
                sizes.push(size);
                strides.push(stride);
            }
            // The last element of each is in the storage, so the sum is at most its length.
            Some(own) if sizes[own] == size => strides[own] += stride,
            Some(own) => return Err(differ(label, sizes[own], size)),
        }
    }
    let layout = Layout::new(OP, &sizes, &strides, x.layout().offset())?;
    Ok(Term { tensor: x.with_layout(layout), labels })
}

/// The size of each label; 1 broadcasts.
fn sizes<B: CopyOps + ?Sized>(terms: &[Term<B>]) -> Result<BTreeMap<u8, usize>> {
    let mut sizes = BTreeMap::new();
    for term in terms {
        for (&label, &size) in term.labels.iter().zip(term.tensor.shape()) {
            let known = sizes.entry(label).or_insert(size);
            match (*known, size) {
                (1, _) => *known = size,
                (known, size) if size == 1 || size == known => {}
                (known, size) => return Err(differ(label, known, size)),
            }
        }
    }
    Ok(sizes)
}

fn differ(label: u8, a: usize, b: usize) -> Error {
    let axis = if label < ELLIPSIS { format!("`{}`", char::from(label)) } else { "under the ellipsis".to_owned() };
    Error::new(ErrorKind::Shape, OP, format!("the axis {axis} has sizes {a} and {b}; they must be equal, or one 1"))
}

/// The pair whose product has the fewest elements, the first of several.
fn cheapest<B: CopyOps + ?Sized>(terms: &[Term<B>], output: &[u8], sizes: &BTreeMap<u8, usize>) -> (usize, usize) {
    let cost = |first: usize, second: usize| {
        let kept = |label: &&u8| {
            output.contains(label)
                || terms
                    .iter()
                    .enumerate()
                    .any(|(index, term)| index != first && index != second && term.labels.contains(label))
        };
        let new = terms[second].labels.iter().filter(|label| !terms[first].labels.contains(label));
        terms[first].labels.iter().chain(new).filter(kept).map(|label| sizes[label] as f64).product::<f64>()
    };
    let pairs = (0..terms.len()).flat_map(|first| (first + 1..terms.len()).map(move |second| (first, second)));
    pairs.min_by(|&a, &b| cost(a.0, a.1).total_cmp(&cost(b.0, b.1))).unwrap_or((0, 1))
}

/// The product of two terms, summed over the labels of both that are not kept. Labels of one alone must be kept; labels
/// of both have one size.
pub(super) fn contract<B: MatmulOps + BinaryOps + CopyOps + ?Sized>(
    a: &Term<B>,
    b: &Term<B>,
    kept: impl Fn(u8) -> bool,
) -> Result<Term<B>> {
    let of = |term: &Term<B>, chosen: &dyn Fn(u8) -> bool| -> Vec<u8> {
        term.labels.iter().copied().filter(|&label| chosen(label)).collect()
    };
    let (in_a, in_b) = (|label| a.labels.contains(&label), |label| b.labels.contains(&label));
    let batch = of(a, &|label| in_b(label) && kept(label));
    let inner = of(a, &|label| in_b(label) && !kept(label));
    let (rows, columns) = (of(a, &|label| !in_b(label)), of(b, &|label| !in_a(label)));
    let labels = [batch.clone(), rows.clone(), columns.clone()].concat();
    let sizes = |term: &Term<B>, labels: &[u8]| -> Vec<usize> {
        let size = |label| (term.labels.iter().zip(term.tensor.shape())).find(|own| own.0 == label).map(|own| *own.1);
        labels.iter().filter_map(size).collect()
    };
    let order = |term: &Term<B>, labels: &[u8]| {
        let axis = |label: &u8| term.labels.iter().position(|own| own == label).unwrap_or_default() as isize;
        term.tensor.permute(labels.iter().map(axis).collect::<Vec<_>>())
    };
    let shape = [sizes(a, &batch), sizes(a, &rows), sizes(b, &columns)].concat();
    let shape = Shape::new(OP, &shape)?;
    if inner.is_empty() {
        let left = order(a, &[batch.clone(), rows.clone()].concat())?;
        let left = left.reshape([left.shape(), &vec![1; columns.len()]].concat())?;
        let right = order(b, &[batch.clone(), columns].concat())?;
        let (outer, own) = right.shape().split_at(batch.len());
        let right = right.reshape([outer, &vec![1; rows.len()], own].concat())?;
        return Ok(Term { tensor: left.mul(&right)?, labels });
    }
    let matrix = |term: &Term<B>, first: &[u8], second: &[u8]| {
        let outer = sizes(term, &batch);
        let count = |labels: &[u8]| sizes(term, labels).iter().product::<usize>();
        order(term, &[&batch, first, second].concat())?.reshape([outer, vec![count(first), count(second)]].concat())
    };
    let product = matrix(a, &rows, &inner)?.matmul(&matrix(b, &inner, &columns)?)?;
    Ok(Term { tensor: product.reshape(&*shape)?, labels })
}
