//! Conversion from and to `ndarray` arrays.

use std::sync::Arc;

use congruent_backend_api::{Backend, CopyOps, Element, Error, ErrorKind, Result};
use ndarray::{ArrayD, ArrayRef, Dimension, IxDyn};

use crate::tensor::Tensor;

impl<B: Backend + ?Sized> Tensor<B> {
    /// A tensor of the elements of an array or array view of any layout.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::Tensor;
    /// # let device = congruent::backend("cpu")?;
    /// let array = ndarray::array![[1.0, 2.0], [3.0, 4.0]];
    /// let x = Tensor::from_ndarray(&device, &array.t())?;
    /// assert_eq!(x.to_vec::<f64>()?, [1.0, 3.0, 2.0, 4.0]);
    /// assert_eq!(x.to_ndarray::<f64>()?, array.t().into_dyn());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Shape` for more than eight axes; `OutOfMemory`.
    pub fn from_ndarray<T: Element, D: Dimension>(backend: &Arc<B>, array: &ArrayRef<T, D>) -> Result<Self> {
        match array.as_slice() {
            Some(elements) => Self::from_slice(backend, elements, array.shape()),
            None => Self::from_slice(backend, &array.iter().copied().collect::<Vec<_>>(), array.shape()),
        }
    }
}

impl<B: CopyOps + ?Sized> Tensor<B> {
    /// The elements as an array. Synchronises.
    ///
    /// # Errors
    /// As [`to_vec`](Self::to_vec).
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        ArrayD::from_shape_vec(IxDyn(self.shape()), self.to_vec()?).map_err(|source| {
            let message = format!("`ndarray` refuses shape {:?}", self.shape());
            Error::new(ErrorKind::Shape, "to_ndarray", message).with_source(source)
        })
    }
}
