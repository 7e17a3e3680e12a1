//! Parts, borders and copies: what moves elements is undone by what moves them back, and sums of products are the same
//! however they are written. The latter on small integers, which makes them exact.

use congruent::ops::Pad;
use congruent::{DType, Result, Tensor};

use super::{Backend, differ, make};
use crate::values::Class;

pub(super) fn parts(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in DType::ALL {
        let x = make(backend, dtype, Class::FullRange, &[7, 33, 5], seed)?;
        for view in [x.clone(), x.permute([2, 1, 0])?, x.flip([1])?] {
            let split = view.split([5, 0, 27, 1], 1)?;
            let chunks = view.chunk(4, 1)?;
            for (name, parts) in [("split", split), ("chunk", chunks)] {
                let whole = Tensor::cat(&parts.iter().collect::<Vec<_>>(), 1)?;
                if let Some(found) = differ(&whole, &view.contiguous()?, false)? {
                    return Ok(Some(format!("{name} {dtype}: {found}")));
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn borders(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in DType::ALL {
        let zero = Tensor::zeros(backend, [1, 1], dtype)?;
        let value = if dtype == DType::Bool { Pad::constant(false) } else { Pad::constant(0) };
        let x = make(backend, dtype, Class::FullRange, &[9, 34], seed)?;
        let dense = x.contiguous()?;
        for view in [x.clone(), x.t()?.contiguous()?.t()?, x.flip([0, 1])?.contiguous()?.flip([0, 1])?] {
            for mode in [value, Pad::Reflect, Pad::Replicate, Pad::Circular] {
                let padded = view.pad([[3, 8], [1, 30]], mode)?;
                let back = padded.pad([[-3, -8], [-1, -30]], mode)?;
                let inside = padded.i((3..12, 1..35))?.contiguous()?;
                for (name, middle) in [("cut off again", back), ("sliced", inside)] {
                    if let Some(found) = differ(&middle, &dense, false)? {
                        return Ok(Some(format!("{mode:?} {name}, {dtype}: {found}")));
                    }
                }
            }
            // A border of zeros is a row and a column of zeros joined on.
            let (row, column) = (zero.expand([1, 34])?, zero.expand([10, 1])?);
            let joined = Tensor::cat(&[&column, &Tensor::cat(&[&row, &view], 0)?], 1)?;
            if let Some(found) = differ(&view.pad([[1, 0], [1, 0]], value)?, &joined, false)? {
                return Ok(Some(format!("a border of zeros, {dtype}: {found}")));
            }
        }
    }
    Ok(None)
}

pub(super) fn copies(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in DType::ALL {
        let x = make(backend, dtype, Class::FullRange, &[6, 35], seed)?;
        let pairs = [
            ("a roll and its opposite", x.roll([4, -50], [0, 1])?.roll([-4, 50], [0, 1])?, x.clone()),
            ("a roll by the size", x.roll([35], 1)?, x.clone()),
            ("a roll", x.roll([-2], 0)?, Tensor::cat(&[&x.i(2..)?, &x.i(..2)?], 0)?),
            ("tile", x.tile([2, 3])?, Tensor::cat(&[&Tensor::cat(&[&x; 3], 1)?; 2], 0)?),
            ("repeat", x.repeat(3, 1)?, Tensor::stack(&[&x; 3], 2)?.reshape([6, 105])?),
            ("repeat of rows", x.repeat(2, 0)?, x.unsqueeze(1)?.expand([6, 2, 35])?.reshape([12, 35])?),
        ];
        for (name, left, right) in pairs {
            if let Some(found) = differ(&left, &right, false)? {
                return Ok(Some(format!("{name}, {dtype}: {found}")));
            }
        }
    }
    Ok(None)
}

pub(super) fn einsum(backend: &Backend, seed: u64) -> Result<Option<String>> {
    for dtype in [DType::F64, DType::F32, DType::I64, DType::I32] {
        let a = make(backend, dtype, Class::SmallInts, &[3, 17, 12], seed)?;
        let b = make(backend, dtype, Class::SmallInts, &[3, 12, 5], seed + 1)?;
        let (row, square) = (a.i((0, 0))?, a.i((0, ..12, ..))?);
        let sum = |equation: &str, operands: &[&Tensor<_>]| Tensor::einsum(equation, operands)?.contiguous();
        let eye = Tensor::eye(backend, 12, 12, 0, dtype)?;
        let pairs = [
            ("bij,bjk->bik", sum("bij,bjk->bik", &[&a, &b])?, a.matmul(&b)?),
            ("bij,bjk->kbi", sum("bij,bjk->kbi", &[&a, &b])?, a.matmul(&b)?.permute([2, 0, 1])?.contiguous()?),
            ("bij,bjk->ik", sum("bij,bjk->ik", &[&a, &b])?, a.matmul(&b)?.sum(0, false)?),
            ("bij,bij->", sum("bij,bij->", &[&a, &a])?, a.square()?.sum((), false)?),
            ("ij,j,j->i", sum("ij,j,j->i", &[&square, &row, &row])?, square.matmul(&row.square()?)?),
            ("ii", sum("ii", &[&square])?, square.mul(&eye)?.sum((), false)?),
            ("ii->i", sum("ii->i", &[&square])?, square.mul(&eye)?.sum(1, false)?),
            ("i,j->ij", sum("i,j->ij", &[&row, &row])?, row.outer(&row)?),
            ("kron with one row", row.kron(&eye.i(..1)?)?.reshape([12, 12])?, row.unsqueeze(1)?.mul(&eye.i(..1)?)?),
        ];
        for (name, left, right) in pairs {
            if let Some(found) = differ(&left, &right, true)? {
                return Ok(Some(format!("{name}, {dtype}: {found}")));
            }
        }
    }
    Ok(None)
}
