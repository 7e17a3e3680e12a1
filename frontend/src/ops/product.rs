//! Products of tensors other than the matrix product, composed from it and from elementwise ones.

use congruent_backend_api::{BinaryOps, CopyOps, Error, ErrorKind, MatmulOps, Result, axis};

use super::einsum::{Term, contract};
use crate::operand::{Operand, same_backend};
use crate::tensor::Tensor;

impl<B: BinaryOps + CopyOps + ?Sized> Tensor<B> {
    /// The products of all pairs of elements: a matrix whose rows belong to this tensor's elements in row-major order.
    ///
    /// # Errors
    /// As [`mul`](Self::mul).
    pub fn outer(&self, b: &Self) -> Result<Self> {
        self.flatten()?.unsqueeze(1)?.mul(&b.flatten()?)
    }

    /// The Kronecker product: this tensor with each element replaced by its product with all of `b`. The tensor of lower
    /// rank gets leading axes of size 1.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{DType, Tensor};
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::from_slice(&device, &[1, 10], [2])?;
    /// let y = Tensor::from_slice(&device, &[1, 2, 3], [3])?;
    /// assert_eq!(x.kron(&y)?.to_vec::<i32>()?, [1, 2, 3, 10, 20, 30]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`mul`](Self::mul); `Shape` for more than eight axes, of which those that are longer than 1 in both count twice.
    pub fn kron(&self, b: &Self) -> Result<Self> {
        let rank = self.rank().max(b.rank());
        let padded = |x: &Self| {
            let mut sizes = vec![1; rank - x.rank()];
            sizes.extend(x.shape());
            sizes
        };
        let (outer, inner) = (padded(self), padded(b));
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (&a, &b) in outer.iter().zip(&inner) {
            if a != 1 && b != 1 {
                left.extend([a, 1]);
                right.extend([1, b]);
            } else {
                left.push(a);
                right.push(b);
            }
        }
        let shape: Vec<usize> = outer.iter().zip(&inner).map(|(a, b)| a.saturating_mul(*b)).collect();
        self.reshape(left)?.mul(&b.reshape(right)?)?.reshape(shape)
    }
}

impl<B: MatmulOps + BinaryOps + CopyOps + ?Sized> Tensor<B> {
    /// Σ aᵢ·bᵢ of two vectors, as a tensor of rank 0.
    ///
    /// # Errors
    /// `Shape` unless both have rank 1 and one size; otherwise as [`matmul`](Self::matmul).
    pub fn dot(&self, b: &Self) -> Result<Self> {
        if (self.rank(), b.rank()) != (1, 1) || self.shape() != b.shape() {
            let message = format!(
                "shapes {:?} and {:?} are not two vectors of one size; see `matmul`, `vdot` and `tensordot`",
                self.shape(),
                b.shape()
            );
            return Err(Error::new(ErrorKind::Shape, "dot", message));
        }
        self.matmul(b)
    }

    /// Σ aᵢ·bᵢ over all elements in row-major order, as a tensor of rank 0.
    ///
    /// # Errors
    /// `Shape` unless there are equally many elements; otherwise as [`matmul`](Self::matmul).
    pub fn vdot(&self, b: &Self) -> Result<Self> {
        self.flatten()?.dot(&b.flatten()?)
    }

    /// The sum of products over pairs of axes, `axes[i]` of this tensor and `axes_b[i]` of the other. The result has this
    /// tensor's other axes, then those of `b`. Without axes it has the products of all pairs.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{DType, Tensor};
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::ones(&device, [2, 3, 4], DType::F32)?;
    /// assert_eq!(x.tensordot(&x, [0, 2], [0, 2])?.shape(), [3, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Axis`; `Argument` for lists of different lengths or tensors of two backends; `Shape` when the sizes of a pair
    /// differ or the result has more than eight axes; otherwise as [`matmul`](Self::matmul) and [`mul`](Self::mul).
    pub fn tensordot(&self, b: &Self, axes: impl AsRef<[isize]>, axes_b: impl AsRef<[isize]>) -> Result<Self> {
        const OP: &str = "tensordot";
        same_backend(OP, self.backend(), &[Operand::Tensor(b)])?;
        let (axes, axes_b) = (axes.as_ref(), axes_b.as_ref());
        if axes.len() != axes_b.len() {
            let message = format!("axes {axes:?} and {axes_b:?} differ in number; they are pairs");
            return Err(Error::new(ErrorKind::Argument, OP, message));
        }
        self.layout().shape().axis_mask(OP, Some(axes))?;
        b.layout().shape().axis_mask(OP, Some(axes_b))?;
        // Labels of the axes: a paired axis of `b` has that of its partner.
        let labels: Vec<u8> = (0..self.rank() as u8).collect();
        let mut labels_b: Vec<u8> = (0..b.rank() as u8).map(|axis| self.rank() as u8 + axis).collect();
        for (&left, &right) in axes.iter().zip(axes_b) {
            let (left, right) = (axis(OP, left, self.rank())?, axis(OP, right, b.rank())?);
            if self.shape()[left] != b.shape()[right] {
                let (size, other) = (self.shape()[left], b.shape()[right]);
                let message = format!("axis {left} has size {size}, its partner {right} of the other tensor {other}");
                return Err(Error::new(ErrorKind::Shape, OP, message));
            }
            labels_b[right] = left as u8;
        }
        let kept = |label: u8| !(labels.contains(&label) && labels_b.contains(&label));
        let left = Term { tensor: self.clone(), labels: labels.clone() };
        let right = Term { tensor: b.clone(), labels: labels_b.clone() };
        Ok(contract(&left, &right, kept)?.tensor)
    }
}
