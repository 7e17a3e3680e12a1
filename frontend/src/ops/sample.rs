//! Draws by weights.

use congruent_backend_api::{
    BinaryOps, CompareOps, CopyOps, DType, Error, ErrorKind, IndexOps, RandomOps, ReduceOps, Result, ScanOps, SortOps,
    UnaryOps,
};

use crate::ops::random::Generator;
use crate::tensor::Tensor;

const OP: &str = "multinomial";

impl<B> Tensor<B>
where
    B: RandomOps + CopyOps + UnaryOps + BinaryOps + CompareOps + ReduceOps + ScanOps + SortOps + IndexOps + ?Sized,
{
    /// Draws `count` positions, as i64, along the last axis, each with a probability proportional to its weight: of weights
    /// [.., n] an output [.., count]. Weights need not add up to 1; those of logits are `logits.softmax(-1)`.
    ///
    /// With replacement a position can come again. The weights become whole numbers of 2⁻³² of the greatest of their row,
    /// rounded up, whose sums are exact: every backend draws the same positions, and never one of weight 0.
    ///
    /// Without replacement the positions come in the order of being drawn: they are the first of n exponential times of the
    /// rates given by the weights (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006). Times are
    /// f64 logarithms, so that backends can only differ where two times do by less than those logarithms' error.
    ///
    /// Synchronises once, to look at the weights.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// use congruent::{Generator, Tensor};
    ///
    /// # let device = congruent::backend("cpu")?;
    /// let weights = Tensor::from_slice(&device, &[1_f32, 0.0, 3.0], [3])?;
    /// let drawn = weights.multinomial(8, true, &Generator::new(7))?.to_vec::<i64>()?;
    /// assert!(drawn.iter().all(|&position| position == 0 || position == 2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Axis` for a tensor of rank 0; `Argument` for a row without weights, a weight that is negative, NaN or infinite, a row
    /// of zeros, and without replacement for a row with fewer than `count` positive weights; what the data of an earlier op
    /// caused; `Unsupported`; `OutOfMemory`.
    pub fn multinomial(&self, count: usize, replacement: bool, generator: &Generator) -> Result<Self> {
        let Some((&n, rows)) = self.shape().split_last() else {
            return Err(Error::new(ErrorKind::Axis, OP, "a single number has no axis of weights; reshape it to [1]"));
        };
        let weights = self.cast(DType::F64)?;
        let usable = weights.ge(0.0)?.logical_and(&weights.is_finite()?)?;
        let positive = weights.gt(0.0)?;
        // The fewest positive weights of a row; −1 when a weight is none.
        let fewest = if self.count() == 0 {
            0
        } else {
            let rows = positive.cast(DType::I64)?.sum([-1], false)?.min((), false)?;
            usable.all((), false)?.where_cond(&rows, -1_i64)?.item::<i64>()?
        };
        let needed = if replacement { 1 } else { count };
        if rows.contains(&0) || (count == 0 && fewest >= 0) {
            return Self::zeros(self.backend(), [rows, &[count]].concat(), DType::I64);
        }
        if fewest < 0 || (fewest.unsigned_abs() as usize) < needed {
            let message = match fewest {
                -1 => "weights must be finite and not negative".to_owned(),
                0 => format!("every row of {:?} needs a positive weight", self.shape()),
                _ => format!("{count} of a row with {fewest} positive weights: draw fewer, or with replacement"),
            };
            return Err(Error::new(ErrorKind::Argument, OP, message));
        }
        if !replacement {
            let uniform = Self::rand(self.backend(), self.shape(), DType::F64, generator)?;
            let times = uniform.neg()?.add(1.0)?.ln()?.neg()?.div(&weights)?;
            return Ok(positive.where_cond(&times, f64::INFINITY)?.topk(count, -1, false)?.1);
        }
        // n terms of at most 2^bits each stay below 2⁶³.
        let bits = (n.leading_zeros() as i32 - 2).min(32);
        let greatest = weights.max([-1], true)?;
        let parts = weights.div(&greatest)?.mul(f64::from(bits).exp2())?.ceil()?.cast(DType::I64)?;
        let ends = parts.cumsum(-1)?;
        let total = ends.narrow(-1, n - 1, 1)?.cast(DType::F64)?;
        let uniform = Self::rand(self.backend(), [rows, &[count]].concat(), DType::F64, generator)?;
        // A product of at most 1 − 2⁻⁵³ and the total is less than the total after rounding, too.
        ends.searchsorted(&uniform.mul(&total)?.floor()?.cast(DType::I64)?, true)
    }
}
