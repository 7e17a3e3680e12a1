//! Einstein sums and products against a sum over all letters, written as it is defined.

use std::collections::BTreeMap;

use congruent::{DType, Tensor, step};

use crate::{AnyTensor, count, cpu, f32s, i64s, parts};

/// Small integers, some negative, in a layout that is not row-major.
fn operand(shape: &[usize], seed: i64) -> AnyTensor {
    let reversed: Vec<usize> = shape.iter().rev().copied().collect();
    let count = count(&reversed).mul(7).unwrap().add(seed).unwrap().modulo(11).unwrap().sub(5).unwrap();
    let axes: Vec<isize> = (0..shape.len() as isize).rev().collect();
    count.permute(axes).unwrap()
}

/// Σ over every letter that the result lacks of the product of the operands' elements.
fn reference(inputs: &[&str], output: &str, operands: &[&AnyTensor]) -> (Vec<usize>, Vec<i64>) {
    let mut sizes = BTreeMap::new();
    for (letters, operand) in inputs.iter().zip(operands) {
        sizes.extend(letters.chars().zip(operand.shape().iter().copied()));
    }
    let elements: Vec<Vec<i64>> = operands.iter().map(|operand| operand.to_vec().unwrap()).collect();
    let shape: Vec<usize> = output.chars().map(|letter| sizes[&letter]).collect();
    let mut sums = vec![0; shape.iter().product()];
    let letters: Vec<char> = sizes.keys().copied().collect();
    for index in 0..sizes.values().product::<usize>() {
        let mut rest = index;
        let mut at = BTreeMap::new();
        for &letter in &letters {
            at.insert(letter, rest % sizes[&letter]);
            rest /= sizes[&letter];
        }
        let flat = |letters: &str| letters.chars().fold(0, |flat, letter| flat * sizes[&letter] + at[&letter]);
        let product: i64 = inputs.iter().zip(&elements).map(|(letters, elements)| elements[flat(letters)]).product();
        sums[flat(output)] += product;
    }
    (shape, sums)
}

#[test]
fn sums_are_those_of_the_definition() {
    let size = |letter: char| 2 + (letter as usize) % 3;
    for equation in [
        "i->i",
        "i->",
        "ij->ji",
        "ij->i",
        "ij->",
        "ii->i",
        "ii->",
        "iij->j",
        "iji->ij",
        "iii->i",
        "i,i->",
        "i,j->ij",
        "i,j->ji",
        "i,i->i",
        "ij,j->i",
        "ij,jk->ik",
        "ij,jk->ki",
        "ij,kj->ik",
        "ij,ij->",
        "ij,ji->",
        "bij,bjk->bik",
        "bij,jk->bik",
        "abc,cd->abd",
        "abc,bcd->ad",
        "abcd,cbe->ade",
        "ijk,lk->ijl",
        "ij,kl->ijkl",
        "ij,k->k",
        "ij,k->",
        "ii,ij->j",
        "ij,jj->i",
        "ij,jk,kl->il",
        "ij,jk,kl,lm->im",
        "a,b,c->abc",
        "ab,ab,ab->ab",
        "ab,bc,ca->",
        "abc,ab,c->b",
        "bhqd,bhkd->bhqk",
    ] {
        let (left, output) = equation.split_once("->").unwrap();
        let inputs: Vec<&str> = left.split(',').collect();
        let operands: Vec<AnyTensor> = inputs
            .iter()
            .enumerate()
            .map(|(seed, letters)| operand(&letters.chars().map(size).collect::<Vec<_>>(), seed as i64))
            .collect();
        let operands: Vec<&AnyTensor> = operands.iter().collect();
        let sum = Tensor::einsum(equation, &operands).unwrap();
        assert_eq!(parts(&sum), reference(&inputs, output, &operands), "{equation}");
    }
}

#[test]
fn results_that_are_not_written() {
    let (a, b) = (operand(&[2, 3], 0), operand(&[3, 4], 1));
    let pairs = [("ij,jk", "ij,jk->ik"), ("ji", "ji->ij"), ("ba,a", "ba,a->b"), (" i j , j k -> k i ", "ij,jk->ki")];
    for (short, long) in pairs {
        let operands: Vec<&AnyTensor> = match short.matches(',').count() {
            0 => vec![&a],
            _ if short == "ba,a" => vec![&a, &a],
            _ => vec![&a, &b],
        };
        let row = a.i(0).unwrap();
        let operands = if short == "ba,a" { vec![&a, &row] } else { operands };
        assert_eq!(
            parts(&Tensor::einsum(short, &operands).unwrap()),
            parts(&Tensor::einsum(long, &operands).unwrap()),
            "{short}"
        );
    }
    assert_eq!(Tensor::einsum("Zaii->Zai", &[&operand(&[2, 3, 4, 4], 0)]).unwrap().shape(), [2, 3, 4]);
    // Upper-case letters come first.
    assert_eq!(Tensor::einsum("aZ", &[&a]).unwrap().shape(), [3, 2]);
}

#[test]
fn ellipses_broadcast() {
    let (a, b) = (operand(&[5, 2, 3], 0), operand(&[4, 1, 3, 2], 1));
    let expected = parts(&a.matmul(&b).unwrap());
    assert_eq!(expected.0, [4, 5, 2, 2]);
    assert_eq!(parts(&Tensor::einsum("...ij,...jk->...ik", &[&a, &b]).unwrap()), expected);
    assert_eq!(parts(&Tensor::einsum("...ij,...jk", &[&a, &b]).unwrap()), expected);
    let summed = parts(&a.matmul(&b).unwrap().sum([0, 1], false).unwrap());
    assert_eq!(parts(&Tensor::einsum("...ij,...jk->ik", &[&a, &b]).unwrap()), summed);
    assert_eq!(parts(&Tensor::einsum("i...->...i", &[&a]).unwrap()), parts(&a.moveaxis(0, -1).unwrap()));
    let square = operand(&[3, 3, 2], 0);
    assert_eq!(Tensor::einsum("ii...->...i", &[&square]).unwrap().shape(), [2, 3]);
    // An ellipsis may stand for no axis.
    assert_eq!(parts(&Tensor::einsum("...i,i...->...", &[&count([3]), &count([3])]).unwrap()), (vec![], vec![5]));
}

#[test]
fn sizes_of_one_broadcast_and_of_zero_sum_to_zero() {
    let (one, three) = (i64s(&[2], [1]), i64s(&[1, 2, 3], [3]));
    assert_eq!(parts(&Tensor::einsum("i,i->", &[&one, &three]).unwrap()), (vec![], vec![12]));
    assert_eq!(parts(&Tensor::einsum("i,i->i", &[&one, &three]).unwrap()), (vec![3], vec![2, 4, 6]));
    let (empty, other) = (count([2, 0]), count([0, 3]));
    assert_eq!(parts(&Tensor::einsum("ij,jk->ik", &[&empty, &other]).unwrap()), (vec![2, 3], vec![0; 6]));
    assert_eq!(parts(&Tensor::einsum("ij->i", &[&empty]).unwrap()), (vec![2], vec![0; 2]));
    assert_eq!(parts(&Tensor::einsum("ij,kj->kij", &[&empty, &empty]).unwrap()), (vec![2, 2, 0], vec![]));
}

#[test]
fn rearrangements_are_views_of_any_dtype() {
    for dtype in DType::ALL {
        let x = Tensor::ones(&cpu(), [3, 3], dtype).unwrap();
        let diagonal = Tensor::einsum("ii->i", &[&x]).unwrap();
        assert_eq!((diagonal.dtype(), diagonal.shape()), (dtype, &[3][..]));
        assert!(std::sync::Arc::ptr_eq(diagonal.storage(), x.storage()));
    }
    let flipped = count([3, 4]).i((step(.., -1), step(.., -1))).unwrap().i((.., ..3)).unwrap();
    assert_eq!(parts(&Tensor::einsum("ii->i", &[&flipped]).unwrap()), (vec![3], vec![11, 6, 1]));
    assert_eq!(parts(&Tensor::einsum("ii", &[&count([1, 1]).expand([3, 3]).unwrap()]).unwrap()), (vec![], vec![0]));
}

#[test]
fn products() {
    let (x, y) = (operand(&[2, 3], 0), operand(&[2, 2], 1));
    let (a, b) = (x.to_vec::<i64>().unwrap(), y.to_vec::<i64>().unwrap());
    let outer: Vec<i64> = a.iter().flat_map(|a| b.iter().map(move |b| a * b)).collect();
    assert_eq!(parts(&x.outer(&y).unwrap()), (vec![6, 4], outer));
    let kron = (0..24)
        .map(|at| (at / 6, at % 6))
        .map(|(row, column)| a[row / 2 * 3 + column / 2] * b[row % 2 * 2 + column % 2]);
    assert_eq!(parts(&x.kron(&y).unwrap()), (vec![4, 6], kron.collect()));
    assert_eq!(parts(&i64s(&[1, 2], [2]).kron(&y).unwrap()).0, [2, 4]);
    assert_eq!(parts(&count([2, 0]).kron(&y).unwrap()), (vec![4, 0], vec![]));
    assert_eq!(count([1, 2, 1, 2, 1]).kron(&count([2, 2, 1, 2, 1])).unwrap().shape(), [2, 4, 1, 4, 1]);
    assert_eq!(parts(&count([4]).dot(&count([4])).unwrap()), (vec![], vec![14]));
    assert_eq!(parts(&x.vdot(&x).unwrap()), (vec![], vec![a.iter().map(|a| a * a).sum()]));
    let (u, v) = (operand(&[2, 3, 4], 0), operand(&[4, 5, 2], 1));
    let sum = u.tensordot(&v, [2, 0], [0, -1]).unwrap();
    assert_eq!(parts(&sum), parts(&Tensor::einsum("abc,cda->bd", &[&u, &v]).unwrap()));
    assert_eq!(u.tensordot(&v, [], []).unwrap().shape(), [2, 3, 4, 4, 5, 2]);
    assert_eq!(f32s(&[], [0]).dot(&f32s(&[], [0])).unwrap().item::<f32>().unwrap(), 0.0);
}
