//! Einstein sums. The oracle sums over every letter that the result lacks, as the sum is defined.
//!
//! A backend takes its operands in pairs, in any order, and may sum a letter of one operand first. With p operands and n
//! terms that is at most n + 4p roundings of the accumulator (2n + 4p of f16 and bf16, whose products are cut off), since
//! the numbers of terms of the steps multiply to n; and one rounding to the dtype after each of at most 2p − 1 steps but
//! the last. So an element is within ((1 + γ)·(1 + u)²ᵖ⁻² − 1)·Σ|term|.

use std::collections::BTreeMap;

use congruent::Tensor;
use congruent_backend_api::erase::AnyBackend;
use congruent_backend_api::ops::binary::BinaryOp;
use congruent_backend_api::ops::reduce::ReduceOp;
use congruent_backend_api::{DType, Op, Result};

use super::{Elements, Entry, Expected, Moves, coordinates, index};
use crate::dd::Dd;
use crate::expect::Expect;
use crate::host::{decode, encode_int};
use crate::round::{Format, exp2, gamma};

/// `einsum`.
pub(super) const EINSUM: Entry = Entry {
    names: &["einsum"],
    operands: 0..=usize::MAX,
    uses: &[Op::Matmul, Op::Binary(BinaryOp::Mul), Op::Reduce(ReduceOp::Sum), Op::Copy],
    parse: |_, args, _| Ok(Box::new(Einsum(args.required("equation")?.text()?.to_owned()))),
};

#[derive(Debug)]
struct Einsum(String);

impl Moves for Einsum {
    fn run(&self, operands: &[Tensor<AnyBackend>]) -> Result<Vec<Tensor<AnyBackend>>> {
        Tensor::einsum(&self.0, &operands.iter().collect::<Vec<_>>()).map(|result| vec![result])
    }

    fn oracle(&self, operands: &[Elements]) -> Vec<Expected> {
        let (inputs, output) = letters(&self.0, operands);
        let mut sizes = BTreeMap::new();
        for (letter, &size) in inputs.iter().flatten().zip(operands.iter().flat_map(|operand| &operand.shape)) {
            let known = sizes.entry(*letter).or_insert(size);
            *known = if *known == 1 { size } else { *known };
        }
        let of = |letters: &[char]| letters.iter().map(|letter| sizes[letter]).collect::<Vec<_>>();
        let summed: Vec<char> = sizes.keys().copied().filter(|letter| !output.contains(letter)).collect();
        let (shape, inner) = (of(&output), of(&summed));
        let rearranged = operands.len() == 1 && summed.is_empty();
        let dtype = operands[0].dtype;
        let element = |at: Vec<usize>| {
            let mut positions: BTreeMap<char, usize> = output.iter().copied().zip(at).collect();
            let terms = coordinates(&inner).map(|at| {
                positions.extend(summed.iter().copied().zip(at));
                let factor = |(letters, operand): (&Vec<char>, &Elements)| {
                    let own = letters.iter().zip(&operand.shape);
                    // A size of 1 broadcasts.
                    let at: Vec<usize> = own.map(|(letter, &size)| positions[letter].min(size - 1)).collect();
                    operand.bits[index(&operand.shape, &at)]
                };
                inputs.iter().zip(operands).map(factor).collect::<Vec<u64>>()
            });
            let terms: Vec<Vec<u64>> = terms.collect();
            if rearranged { Expect::Bits(terms[0][0]) } else { sum(dtype, &terms, operands.len()) }
        };
        vec![Expected { dtype, elements: coordinates(&shape).map(element).collect(), shape }]
    }
}

/// A letter for each axis of the operands and of the result; axes under an ellipsis get digits, from the last on.
fn letters(equation: &str, operands: &[Elements]) -> (Vec<Vec<char>>, Vec<char>) {
    let equation = equation.replace(' ', "");
    let (left, right) = equation.split_once("->").map_or((&*equation, None), |(left, right)| (left, Some(right)));
    let spelled = |part: &str, rank: usize| -> Vec<char> {
        let hidden = (rank + 3).saturating_sub(part.len());
        let digits: String = "76543210".chars().skip(8 - hidden.min(8)).collect();
        part.replace("...", &digits).chars().collect()
    };
    let parts = left.split(',').zip(operands);
    let inputs: Vec<Vec<char>> = parts.map(|(part, operand)| spelled(part, operand.shape.len())).collect();
    let mut once: Vec<char> = inputs.concat();
    once.retain(|letter| letter.is_ascii_digit() || inputs.iter().flatten().filter(|own| own == &letter).count() == 1);
    // Digits are ordered from the outermost on, and stand before letters.
    once.sort_by_key(|&letter| if letter.is_ascii_digit() { '9' as u32 - letter as u32 } else { letter as u32 });
    once.dedup();
    let hidden = once.iter().filter(|letter| letter.is_ascii_digit()).count();
    let output = right.map_or(once, |right| {
        if right.contains("...") { spelled(right, right.len() - 3 + hidden) } else { right.chars().collect() }
    });
    (inputs, output)
}

/// What Σ ∏ factors may be.
fn sum(dtype: DType, terms: &[Vec<u64>], operands: usize) -> Expect {
    let Some(format) = Format::of(dtype) else {
        let product = |term: &Vec<u64>| {
            term.iter().fold(1_i64, |product, &bits| product.wrapping_mul(decode(dtype, bits).to_i64()))
        };
        return Expect::Bits(encode_int(dtype, terms.iter().map(product).fold(0, i64::wrapping_add).into()));
    };
    let accumulator = format.accumulator();
    let half = dtype.size() == 2;
    // Tensor cores align subnormal operands as if they were normal.
    let floor = if half { exp2(format.min_exponent) } else { 0.0 };
    let (mut value, mut magnitude, mut largest) = (Dd::default(), 0.0, 0.0_f64);
    for term in terms {
        let factors = || term.iter().map(|&bits| decode(dtype, bits).to_f64());
        if factors().any(|factor| !factor.is_finite()) {
            return not_finite(dtype, terms);
        }
        let mut product = Dd::from(1.0);
        for factor in factors() {
            product = product * Dd::from(factor);
        }
        value = value + product;
        magnitude += factors().map(|factor| if factor == 0.0 { 0.0 } else { factor.abs().max(floor) }).product::<f64>();
        // Sums of single operands, and products of some of them, are intermediate results.
        largest = largest.max(factors().map(|factor| factor.abs().max(1.0)).product());
    }
    let count = terms.len() as f64;
    if largest * count.max(1.0) >= format.max() / 2.0 {
        return Expect::Any;
    }
    let p = operands as f64;
    let roundings = if half { 2.0 * count } else { count } + 4.0 * p;
    let stored = gamma(2.0 * p - 2.0, format.unit());
    let relative = gamma(roundings, accumulator.unit()) * (1.0 + stored) + stored;
    // What underflows on the way is less than one of the smallest numbers for each step, times what it is multiplied by.
    let lost = (count + 2.0 * p) * largest * if operands > 1 { format.tiny() } else { accumulator.tiny() };
    Expect::near(value, relative * magnitude * (1.0 + exp2(-40)) + lost)
}

/// A sum with an infinite or NaN factor: known where NaN spreads to it in every order.
fn not_finite(dtype: DType, terms: &[Vec<u64>]) -> Expect {
    let nan = |term: &Vec<u64>| term.iter().any(|&bits| decode(dtype, bits).to_f64().is_nan());
    if terms.iter().any(nan) { Expect::Nan } else { Expect::Any }
}
