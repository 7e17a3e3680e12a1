//! Scans along an axis: running sums, products, extremes and log-sums of exponentials.

use congruent_backend_api::ops::scan::{Scan, ScanOp, ScanRange};
use congruent_backend_api::{Result, ScanOps};

use crate::operand::{Operand, same_backend};
use crate::tensor::Tensor;

impl<B: ScanOps + ?Sized> Tensor<B> {
    /// `op` along `axis` over the elements that `range` names: by default those up to and with each position.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// use congruent::Tensor;
    /// use congruent::ops::{ScanOp, ScanRange};
    ///
    /// # let device = congruent::backend("cpu")?;
    /// let x = Tensor::from_slice(&device, &[3, 1, 4, 1], [4])?;
    /// assert_eq!(x.cumsum(0)?.to_vec::<i32>()?, [3, 4, 8, 9]);
    /// let range = ScanRange { exclusive: true, ..ScanRange::default() };
    /// assert_eq!(x.scan(ScanOp::Sum, 0, range)?.to_vec::<i32>()?, [0, 3, 4, 8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `DType` when the op is not defined for the dtype; `Axis`; `Unsupported`; `OutOfMemory`.
    pub fn scan(&self, op: ScanOp, axis: isize, range: ScanRange) -> Result<Self> {
        Self::produce(
            self.backend(),
            self.dtype(),
            *self.layout().shape(),
            |out| Scan::new(op, self.view(), axis, range, out),
            |plan, out| self.backend().scan(plan, self.storage(), out),
        )
    }

    /// `op` along `axis` into `out`, which has this tensor's shape.
    ///
    /// # Errors
    /// As [`scan`](Self::scan), and `Shape` or `DType` when the result does not fit `out`.
    pub fn scan_into(&self, op: ScanOp, axis: isize, range: ScanRange, out: &mut Self) -> Result<()> {
        same_backend(op.name(), out.backend(), &[Operand::Tensor(self)])?;
        out.overwrite(
            |_, out| Scan::new(op, self.view(), axis, range, out),
            |plan, _, out| self.backend().scan(plan, self.storage(), out),
        )
    }

    /// The running sum along `axis`; integers keep their dtype and wrap.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn cumsum(&self, axis: isize) -> Result<Self> {
        self.scan(ScanOp::Sum, axis, ScanRange::default())
    }

    /// The running product along `axis`; integers keep their dtype and wrap.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn cumprod(&self, axis: isize) -> Result<Self> {
        self.scan(ScanOp::Prod, axis, ScanRange::default())
    }

    /// The greatest element so far along `axis`; NaN from the first NaN on.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn cummax(&self, axis: isize) -> Result<Self> {
        self.scan(ScanOp::Max, axis, ScanRange::default())
    }

    /// The least element so far along `axis`; NaN from the first NaN on.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn cummin(&self, axis: isize) -> Result<Self> {
        self.scan(ScanOp::Min, axis, ScanRange::default())
    }

    /// ln of the running sum of exponentials along `axis`, without overflow; floats only.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn logcumsumexp(&self, axis: isize) -> Result<Self> {
        self.scan(ScanOp::LogSumExp, axis, ScanRange::default())
    }
}
