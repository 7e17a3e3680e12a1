//! Joining tensors along an axis, and writing one into a part of another.

use std::iter;

use congruent::{Index, Tensor};
use congruent_backend_api::erase::AnyBackend;
use congruent_backend_api::{Op, Result};

use super::view::{Taken, ranges};
use super::{Elements, Entry, Expected, Moves, coordinates, front, index};
use crate::ops::copy::copied;

/// `cat` and `stack`.
pub(super) const JOIN: Entry = Entry {
    names: &["cat", "stack"],
    operands: 0..=usize::MAX,
    uses: &[Op::Copy],
    parse: |name, args, _| {
        let axis = args.required("axis")?.signed()?;
        Ok(if name == "cat" { Box::new(Cat(axis)) } else { Box::new(Stack(axis)) })
    },
};

/// `slice_assign`.
pub(super) const ASSIGN: Entry = Entry {
    names: &["slice_assign"],
    operands: 2..=2,
    uses: &[Op::Copy],
    parse: |_, args, _| Ok(Box::new(SliceAssign(ranges(args)?))),
};

#[derive(Debug)]
struct Cat(isize);

impl Moves for Cat {
    fn run(&self, operands: &[Tensor<AnyBackend>]) -> Result<Vec<Tensor<AnyBackend>>> {
        Tensor::cat(&operands.iter().collect::<Vec<_>>(), self.0).map(|result| vec![result])
    }

    fn oracle(&self, operands: &[Elements]) -> Vec<Expected> {
        let mut shape = operands[0].shape.clone();
        let axis = front(self.0, shape.len());
        shape[axis] = operands.iter().map(|operand| operand.shape[axis]).sum();
        let bits = coordinates(&shape).map(|mut at| {
            let mut pieces = operands.iter();
            // The piece that the position falls into; it counts on from the end of the one before.
            iter::from_fn(|| pieces.next())
                .find_map(|piece| {
                    let inside = at[axis] < piece.shape[axis];
                    let bits = inside.then(|| piece.bits[index(&piece.shape, &at)]);
                    at[axis] -= if inside { 0 } else { piece.shape[axis] };
                    bits
                })
                .expect("the sizes along the axis add up to that of the result")
        });
        let bits = bits.collect();
        vec![Elements { dtype: operands[0].dtype, shape, bits }.into()]
    }
}

#[derive(Debug)]
struct Stack(isize);

impl Moves for Stack {
    fn run(&self, operands: &[Tensor<AnyBackend>]) -> Result<Vec<Tensor<AnyBackend>>> {
        Tensor::stack(&operands.iter().collect::<Vec<_>>(), self.0).map(|result| vec![result])
    }

    fn oracle(&self, operands: &[Elements]) -> Vec<Expected> {
        let mut shape = operands[0].shape.clone();
        let axis = front(self.0, shape.len() + 1);
        shape.insert(axis, operands.len());
        let bits = coordinates(&shape).map(|mut at| {
            let piece = &operands[at.remove(axis)];
            piece.bits[index(&piece.shape, &at)]
        });
        let bits = bits.collect();
        vec![Elements { dtype: operands[0].dtype, shape, bits }.into()]
    }
}

#[derive(Debug)]
struct SliceAssign(Vec<Index>);

impl Moves for SliceAssign {
    fn run(&self, operands: &[Tensor<AnyBackend>]) -> Result<Vec<Tensor<AnyBackend>>> {
        // The operand is still shared, so that it must keep its elements.
        let mut result = operands[0].clone();
        result.assign(self.0.as_slice(), &operands[1])?;
        Ok(vec![result])
    }

    fn oracle(&self, operands: &[Elements]) -> Vec<Expected> {
        let (x, value) = (&operands[0], &operands[1]);
        let taken = Taken::new(&self.0, &x.shape);
        let part = taken.shape();
        let mut result = Expected::from(x.clone());
        // The value broadcasts from the right.
        let spread = value.gather(part.clone(), |to, from| {
            let missing = to.len() - from.len();
            (0..from.len()).for_each(|axis| from[axis] = if value.shape[axis] == 1 { 0 } else { to[missing + axis] });
        });
        for (at, bits) in coordinates(&part).zip(spread.bits) {
            let mut place = vec![0; x.shape.len()];
            taken.place(&at, &mut place);
            result.elements[index(&x.shape, &place)] = copied(value.dtype, bits, x.dtype);
        }
        vec![result]
    }
}
