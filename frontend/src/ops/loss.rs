//! Losses of classification, from logits. Floats only.

use congruent_backend_api::{DType, Error, ErrorKind, Result};

use crate::api::{CompareOps, CopyOps, NormOps};
use crate::tensor::Tensor;

/// What becomes of the losses of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Their mean over the rows that are not ignored; NaN where all are.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// They stay, one for each row.
    None,
}

/// How cross entropy is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CrossEntropy {
    /// Rows with this class index have no loss.
    pub ignore: Option<i64>,
    /// How much of the target is spread evenly over all classes, 0 to 1.
    pub smoothing: f64,
    /// What becomes of the losses of the rows.
    pub reduction: Reduction,
}

/// What the loss and its gradient have in common, in the dtype of the computation.
struct Targets<B: NormOps + ?Sized> {
    /// [..., classes], with smoothing; 0 in ignored rows.
    probabilities: Tensor<B>,
    /// What a row's loss is divided by, if anything.
    count: Option<Tensor<B>>,
}

impl<B: NormOps + CompareOps + CopyOps + ?Sized> Tensor<B> {
    /// −Σ p · log softmax of the tensor, which has classes as its last axis. `target` is a class index (i64) for each row,
    /// or p itself, of the tensor's shape and dtype.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{Tensor, ops::CrossEntropy};
    /// # let device = congruent::backend("cpu")?;
    /// let logits = Tensor::from_slice(&device, &[0.0_f32, 0.0, 5.0, 5.0], [2, 2])?;
    /// let target = Tensor::from_slice(&device, &[0_i64, -100], [2])?;
    /// let options = CrossEntropy { ignore: Some(-100), ..Default::default() };
    /// let loss = logits.cross_entropy(&target, options)?;
    /// assert!((loss.item::<f32>()? - 2.0_f32.ln()).abs() < 1e-6);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// f16 and bf16 are computed in f32 and rounded once. An index that names no class, and is not ignored, has none of the
    /// target's part of the loss.
    ///
    /// # Errors
    /// `Shape` for a target that fits neither way; `DType` unless it is i64 or of the tensor's float dtype; `Argument` for
    /// a smoothing outside 0 to 1, an ignored index of probabilities, or tensors of two backends; `Unsupported`;
    /// `OutOfMemory`.
    pub fn cross_entropy(&self, target: &Self, options: CrossEntropy) -> Result<Self> {
        let targets = self.targets(target, options)?;
        let logs = self.cast(targets.probabilities.dtype())?.log_softmax(-1)?;
        // −∞ · 0 would be NaN: what the target does not have costs nothing.
        let absent = targets.probabilities.eq(0.0)?;
        let products = absent.where_cond(0.0, &(&logs * &targets.probabilities)?)?;
        let rows = (-products.sum(-1, false)?)?;
        let loss = match options.reduction {
            Reduction::None => rows,
            _ => rows.sum(.., false)?,
        };
        match targets.count {
            Some(count) => (loss / &count)?.cast(self.dtype()),
            None => loss.cast(self.dtype()),
        }
    }

    /// The gradient of [`cross_entropy`](Self::cross_entropy) by the tensor, for the gradient `grad` of the loss, which has
    /// the loss's shape.
    ///
    /// # Errors
    /// As [`cross_entropy`](Self::cross_entropy), and `Shape` when `grad` does not fit.
    pub fn cross_entropy_grad(&self, target: &Self, grad: &Self, options: CrossEntropy) -> Result<Self> {
        let targets = self.targets(target, options)?;
        let wide = targets.probabilities.dtype();
        let rows: &[usize] = if options.reduction == Reduction::None { &self.shape()[..self.rank() - 1] } else { &[] };
        if grad.shape() != rows {
            let message = format!("the gradient has shape {:?}, the loss {rows:?}", grad.shape());
            return Err(Error::new(ErrorKind::Shape, "cross_entropy_grad", message));
        }
        let grad = grad.cast(wide)?;
        let grad = match targets.count {
            Some(count) => (grad / &count)?,
            None => grad,
        };
        let grad = if rows.is_empty() { grad } else { grad.unsqueeze(-1)? };
        let mass = targets.probabilities.sum(-1, true)?;
        let change = ((self.cast(wide)?.softmax(-1)? * &mass)? - &targets.probabilities)?;
        (change * &grad)?.cast(self.dtype())
    }

    fn targets(&self, target: &Self, options: CrossEntropy) -> Result<Targets<B>> {
        const OP: &str = "cross_entropy";
        let error = |kind, message: String| Err(Error::new(kind, OP, message));
        if !self.dtype().is_float() {
            return error(ErrorKind::DType, format!("logits of {} are none; cast them to a float dtype", self.dtype()));
        }
        let Some((&classes, rows)) = self.shape().split_last() else {
            return error(ErrorKind::Shape, "a scalar has no classes; they are the last axis".to_owned());
        };
        if !(0.0..=1.0).contains(&options.smoothing) {
            return error(
                ErrorKind::Argument,
                format!("the smoothing is {}; it must lie in 0 to 1", options.smoothing),
            );
        }
        let wide = if self.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let spread = |x: Self| (x * (1.0 - options.smoothing))? + options.smoothing / classes.max(1) as f64;
        let indices = target.dtype() == DType::I64;
        if !indices && target.dtype() != self.dtype() {
            let message =
                format!("the target is {}; it must be i64, or {} as the logits are", target.dtype(), self.dtype());
            return error(ErrorKind::DType, message);
        }
        let expected = if indices { rows } else { self.shape() };
        if target.shape() != expected {
            let message = format!(
                "the target has shape {:?}, for logits of {:?} it must be {expected:?}",
                target.shape(),
                self.shape()
            );
            return error(ErrorKind::Shape, message);
        }
        let counts = options.reduction == Reduction::Mean;
        if !indices {
            if options.ignore.is_some() {
                return error(ErrorKind::Argument, "probabilities have no class index to ignore".to_owned());
            }
            let count = rows.iter().product::<usize>() as f64;
            let count = counts.then(|| Self::full(self.backend(), count, [0_usize; 0], wide)).transpose()?;
            return Ok(Targets { probabilities: spread(target.cast(wide)?)?, count });
        }
        let numbers = Self::arange(self.backend(), 0..classes as i64, DType::I64)?;
        let probabilities = spread(numbers.eq(&target.unsqueeze(-1)?)?.cast(wide)?)?;
        let kept = match options.ignore {
            Some(ignore) => target.ne(ignore)?.cast(wide)?,
            None => Self::ones(self.backend(), rows, wide)?,
        };
        let count = counts.then(|| kept.sum(.., false)).transpose()?;
        Ok(Targets { probabilities: (probabilities * &kept.unsqueeze(-1)?)?, count })
    }
}
