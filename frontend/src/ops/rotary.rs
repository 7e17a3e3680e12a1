//! Rotary position embedding (Su et al., "RoFormer", 2021). Floats only.
//!
//! The first 2h features of a position are h pairs, each turned by an angle of its own:
//! (a, b) becomes (a·cos − b·sin, a·sin + b·cos). Features after them stay as they are.

use std::ops::Range;
use std::sync::Arc;

use congruent_backend_api::{BinaryOps, CopyOps, DType, Error, ErrorKind, Result, Shape};

use crate::tensor::Tensor;

/// Which features are a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pairing {
    /// Feature i and feature i + h.
    #[default]
    Halves,
    /// Feature 2i and feature 2i + 1.
    Neighbours,
}

impl<B: BinaryOps + CopyOps + ?Sized> Tensor<B> {
    /// Turns pairs of features by position: the tensor is [..., n, d], `cos` and `sin` broadcast to [..., n, h] with 2h ≤ d.
    ///
    /// ```
    /// # fn main() -> congruent::Result<()> {
    /// # use congruent::{DType, Tensor, ops::Pairing};
    /// # let device = congruent::backend("cpu")?;
    /// let (cos, sin) = Tensor::rotary_angles(&device, 0..2, 2, 1e4, DType::F64)?;
    /// let x = Tensor::from_slice(&device, &[3.0, 4.0, 1.0, 0.0], [2, 2])?;
    /// let y = x.rotary(&cos, &sin, Pairing::Halves)?.to_vec::<f64>()?;
    /// assert_eq!(y, [3.0, 4.0, 1.0_f64.cos(), 1.0_f64.sin()]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Shape` when the angles do not fit; `DType` unless all are of one float dtype; `Argument` for tensors of two backends;
    /// `Unsupported`; `OutOfMemory`.
    pub fn rotary(&self, cos: &Self, sin: &Self, pairing: Pairing) -> Result<Self> {
        let pairs = cos.shape().last().copied().unwrap_or(0);
        let features = self.shape().last().copied().unwrap_or(0);
        if self.rank() == 0 || cos.rank() == 0 || pairs > features / 2 {
            let message = format!(
                "{pairs} angles of a cosine of shape {:?} turn {} features, a tensor of shape {:?} has {features}",
                cos.shape(),
                pairs.saturating_mul(2),
                self.shape()
            );
            return Err(Error::new(ErrorKind::Shape, "rotary", message));
        }
        let part = |x: &Self, second: bool| match pairing {
            Pairing::Halves => x.narrow(-1, if second { pairs } else { 0 }, pairs),
            Pairing::Neighbours => {
                let first = isize::from(second);
                x.narrow(-1, 0, 2 * pairs)?.slice(-1, crate::step(first.., 2))
            }
        };
        let (a, b) = (part(self, false)?, part(self, true)?);
        let mut out = self.copy()?;
        for (second, (x, y)) in [(false, (&a * cos, &b * sin)), (true, (&b * cos, &a * sin))] {
            let turned = if second { (x? + y?)? } else { (x? - y?)? };
            let indices = match pairing {
                Pairing::Halves if second => crate::step(pairs as isize..2 * pairs as isize, 1),
                Pairing::Halves => crate::step(0..pairs as isize, 1),
                Pairing::Neighbours => crate::step(isize::from(second)..2 * pairs as isize, 2),
            };
            out.assign((crate::Index::Ellipsis, indices), &turned)?;
        }
        Ok(out)
    }

    /// Cosines and sines of the angles of some positions, [n, features / 2] each: pair i of a position turns by
    /// position · base^(−2i / features). They are computed in f64 and rounded once.
    ///
    /// # Errors
    /// `Shape` for an odd number of features; `Argument` for a base that is not a positive number; `DType` unless the
    /// dtype is a float; `OutOfMemory`.
    pub fn rotary_angles(
        backend: &Arc<B>,
        positions: Range<usize>,
        features: usize,
        base: f64,
        dtype: DType,
    ) -> Result<(Self, Self)> {
        const OP: &str = "rotary_angles";
        if !features.is_multiple_of(2) {
            let message = format!("{features} features do not make pairs; their number must be even");
            return Err(Error::new(ErrorKind::Shape, OP, message));
        }
        if !(base > 0.0 && base.is_finite()) {
            return Err(Error::new(
                ErrorKind::Argument,
                OP,
                format!("the base is {base}; it must be a positive number"),
            ));
        }
        if !dtype.is_float() {
            return Err(Error::new(ErrorKind::DType, OP, format!("{dtype} has no cosines; give a float dtype")));
        }
        let shape = Shape::new(OP, &[positions.len(), features / 2])?;
        let angle = |position: usize, pair: usize| position as f64 * base.powf(-2.0 * pair as f64 / features as f64);
        let angles: Vec<f64> =
            positions.flat_map(|position| (0..features / 2).map(move |pair| angle(position, pair))).collect();
        let of = |function: fn(f64) -> f64| {
            let values: Vec<f64> = angles.iter().map(|&angle| function(angle)).collect();
            Self::from_slice(backend, &values, &*shape)?.cast(dtype)
        };
        Ok((of(f64::cos)?, of(f64::sin)?))
    }
}
