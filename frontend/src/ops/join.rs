//! Joining tensors along an axis. Part of the `copy` family: each piece is copied to its place in one output.

use congruent_backend_api::{CopyOps, Error, ErrorKind, Result, Shape, Slice, axis};

use crate::operand::{Operand, same_backend};
use crate::tensor::Tensor;

impl<B: CopyOps + ?Sized> Tensor<B> {
    /// The tensors one after another along an axis that they have; their other sizes are equal.
    ///
    /// # Errors
    /// `Argument` for no tensors or tensors of two backends; `Axis`; `Shape` or `DType` when the tensors do not fit;
    /// `Unsupported`; `OutOfMemory`.
    pub fn cat(tensors: &[&Self], along: isize) -> Result<Self> {
        const OP: &str = "cat";
        let Some((&first, rest)) = tensors.split_first() else {
            return Err(Error::new(ErrorKind::Argument, OP, "no tensors given; at least one is needed"));
        };
        let along = axis(OP, along, first.rank())?;
        for &tensor in rest {
            same_backend(OP, first.backend(), &[Operand::Tensor(tensor)])?;
            check_fit(first, tensor, along)?;
        }
        let mut sizes = first.shape().to_vec();
        let total = tensors.iter().try_fold(0_usize, |total, tensor| total.checked_add(tensor.shape()[along]));
        // An overflowing size is past every limit that `Shape` knows.
        sizes[along] = total.unwrap_or(usize::MAX);
        Self::assemble(first.backend(), first.dtype(), Shape::new(OP, &sizes)?, None, |out| {
            let mut start = 0;
            let place = |tensor: &&Self| {
                let stop = start + tensor.shape()[along] as isize;
                let range = Slice { start: Some(start), stop: Some(stop), step: 1 };
                start = stop;
                Ok(((*tensor).clone(), out.slice(along as isize, range)?))
            };
            tensors.iter().map(place).collect()
        })
    }

    /// The tensors, all of one shape, along a new axis.
    ///
    /// # Errors
    /// As [`cat`](Self::cat).
    pub fn stack(tensors: &[&Self], axis: isize) -> Result<Self> {
        let tensors: Vec<Self> = tensors.iter().map(|tensor| tensor.unsqueeze(axis)).collect::<Result<_>>()?;
        Self::cat(&tensors.iter().collect::<Vec<_>>(), axis)
    }
}

fn check_fit<B: CopyOps + ?Sized>(first: &Tensor<B>, tensor: &Tensor<B>, along: usize) -> Result<()> {
    let (a, b) = (first.shape(), tensor.shape());
    if a.len() != b.len() || (0..a.len()).any(|axis| axis != along && a[axis] != b[axis]) {
        let message = format!("shapes {a:?} and {b:?} differ in more than axis {along}, along which they are joined");
        return Err(Error::new(ErrorKind::Shape, "cat", message));
    }
    if first.dtype() != tensor.dtype() {
        let message =
            format!("dtypes {} and {} meet, and nothing is promoted; cast one of them", first.dtype(), tensor.dtype());
        return Err(Error::new(ErrorKind::DType, "cat", message));
    }
    Ok(())
}
